package logtest

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/musterhpc/muster/ledger/log"
)

// FS returns the disk as a process that starts now sees it.
func (d *Disk) FS() log.FS {
	d.mu.Lock()
	defer d.mu.Unlock()
	return &diskFS{d: d, boot: d.boot}
}

type diskFS struct {
	d    *Disk
	boot int
}

// enter locks the disk unless this process is dead.
func (v *diskFS) enter() error {
	v.d.mu.Lock()
	if v.d.off || v.boot != v.d.boot {
		v.d.mu.Unlock()
		return ErrPower
	}
	return nil
}

// change is enter for an operation that changes something.
func (v *diskFS) change() error {
	if err := v.enter(); err != nil {
		return err
	}
	if !v.d.burnOperation() {
		v.d.mu.Unlock()
		return ErrPower
	}
	return nil
}

func (v *diskFS) MkdirAll(string) error { return nil } // folders cost nothing and are not lost

func (v *diskFS) ReadDir(dir string) ([]string, error) {
	if err := v.enter(); err != nil {
		return nil, err
	}
	defer v.d.mu.Unlock()
	var names []string
	for _, n := range sortedKeys(v.d.live) {
		if filepath.Dir(n) == dir {
			names = append(names, filepath.Base(n))
		}
	}
	return names, nil
}

func (v *diskFS) Create(path string, size int64) (log.File, error) {
	if err := v.change(); err != nil {
		return nil, err
	}
	defer v.d.mu.Unlock()
	if v.d.live[path] != nil {
		return nil, &os.PathError{Op: "create", Path: path, Err: os.ErrExist}
	}
	if v.d.usedBytes()+uint64(size) > v.d.capacity {
		return nil, &os.PathError{Op: "create", Path: path, Err: syscall.ENOSPC}
	}
	f := &inode{data: make([]byte, size), dirty: map[int64]bool{}}
	for s := int64(0); s*sector < size; s++ {
		f.dirty[s] = true
	}
	v.d.live[path] = f
	return &diskFile{v: v, f: f, path: path, write: true}, nil
}

func (v *diskFS) Open(path string, write bool) (log.File, error) {
	v.d.mu.Lock()
	defer v.d.mu.Unlock()
	f := v.d.live[path]
	switch {
	case !write && v.boot == v.d.boot-1:
		f = v.d.gone[path]
	case v.d.off || v.boot != v.d.boot:
		return nil, ErrPower
	}
	if f == nil {
		return nil, &os.PathError{Op: "open", Path: path, Err: os.ErrNotExist}
	}
	return &diskFile{v: v, f: f, path: path, write: write}, nil
}

func (v *diskFS) Rename(from, to string) error {
	if err := v.change(); err != nil {
		return err
	}
	defer v.d.mu.Unlock()
	f := v.d.live[from]
	if f == nil {
		return &os.PathError{Op: "rename", Path: from, Err: os.ErrNotExist}
	}
	delete(v.d.live, from)
	v.d.live[to] = f
	return nil
}

func (v *diskFS) Remove(path string) error {
	if err := v.change(); err != nil {
		return err
	}
	defer v.d.mu.Unlock()
	if v.d.live[path] == nil {
		return &os.PathError{Op: "remove", Path: path, Err: os.ErrNotExist}
	}
	delete(v.d.live, path)
	return nil
}

func (v *diskFS) SyncDir(dir string) error {
	if err := v.change(); err != nil {
		return err
	}
	defer v.d.mu.Unlock()
	for name := range v.d.durable {
		if filepath.Dir(name) == dir && v.d.live[name] == nil {
			delete(v.d.durable, name)
		}
	}
	for n, f := range v.d.live {
		if filepath.Dir(n) == dir {
			v.d.durable[n] = f
		}
	}
	return nil
}

func (v *diskFS) Free(string) (uint64, error) {
	if err := v.enter(); err != nil {
		return 0, err
	}
	defer v.d.mu.Unlock()
	return v.d.capacity - min(v.d.usedBytes(), v.d.capacity), nil
}

func (v *diskFS) Lock(path string) (io.Closer, error) {
	if err := v.enter(); err != nil {
		return nil, err
	}
	defer v.d.mu.Unlock()
	if v.d.locks[path] {
		return nil, fmt.Errorf("%w: %s", log.ErrLocked, path)
	}
	v.d.locks[path] = true
	return unlock{v: v, path: path}, nil
}

type unlock struct {
	v    *diskFS
	path string
}

func (u unlock) Close() error {
	if err := u.v.enter(); err != nil {
		return nil // the power cut took the lock with it
	}
	defer u.v.d.mu.Unlock()
	delete(u.v.d.locks, u.path)
	return nil
}

type diskFile struct {
	v     *diskFS
	f     *inode
	path  string
	write bool
}

func (f *diskFile) ReadAt(p []byte, off int64) (int, error) {
	f.v.d.mu.Lock()
	defer f.v.d.mu.Unlock()
	if off >= int64(len(f.f.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.f.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *diskFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.v.enter(); err != nil {
		return 0, err
	}
	defer f.v.d.mu.Unlock()
	if f.v.d.fuse == 1 {
		// The power goes in the middle of this write, between two sectors.
		end := off + int64(f.v.d.rng.IntN(len(p)+1))
		f.put(p[:max(0, end/sector*sector-off)], off)
	}
	if !f.v.d.burnOperation() {
		return 0, ErrPower
	}
	if !f.write {
		return 0, &os.PathError{Op: "write", Path: f.path, Err: os.ErrPermission}
	}
	end := off + int64(len(p))
	if grow := end - int64(len(f.f.data)); grow > 0 {
		if room := int64(f.v.d.capacity) - int64(f.v.d.usedBytes()); grow > room {
			// A real disk writes what fits first.
			f.put(p[:max(0, int64(len(p))-(grow-max(room, 0)))], off)
			return 0, &os.PathError{Op: "write", Path: f.path, Err: syscall.ENOSPC}
		}
	}
	f.put(p, off)
	return len(p), nil
}

func (f *diskFile) put(p []byte, off int64) {
	end := off + int64(len(p))
	if end > int64(len(f.f.data)) {
		f.f.data = append(f.f.data, make([]byte, end-int64(len(f.f.data)))...)
	}
	copy(f.f.data[off:], p)
	for s := off / sector; s*sector < end; s++ {
		f.f.dirty[s] = true
	}
}

func (f *diskFile) Sync() error {
	if err := f.v.change(); err != nil {
		return err
	}
	defer f.v.d.mu.Unlock()
	if f.v.d.SyncError != nil {
		if err := f.v.d.SyncError(f.path); err != nil {
			// As on Linux: what failed to reach the platter is marked clean all the same.
			f.f.dirty = map[int64]bool{}
			return err
		}
	}
	for s := range f.f.dirty {
		f.f.flushSector(s)
	}
	if len(f.f.platter) < len(f.f.data) {
		f.f.platter = append(f.f.platter, make([]byte, len(f.f.data)-len(f.f.platter))...)
	}
	f.f.dirty = map[int64]bool{}
	return nil
}

func (f *diskFile) Size() (int64, error) {
	if err := f.v.enter(); err != nil {
		return 0, err
	}
	defer f.v.d.mu.Unlock()
	return int64(len(f.f.data)), nil
}

func (f *diskFile) Close() error { return nil }
