package log

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft-wal/types"
)

// walFS gives raft-wal its segments from an FS. It remembers the first error, because raft-wal
// rotates segments in the background and only logs why that failed.
type walFS struct {
	fs    FS
	spare *spare
	first atomic.Pointer[error]
}

func (v *walFS) noteError(err error) error {
	if err != nil {
		v.first.CompareAndSwap(nil, &err)
	}
	return err
}

// causeOf returns the error behind what raft-wal said.
func (v *walFS) causeOf(said error) error {
	if first := v.first.Load(); first != nil && !errors.Is(said, *first) {
		return fmt.Errorf("%w (%w)", *first, said)
	}
	return said
}

func (v *walFS) ListDir(dir string) ([]string, error) { return v.fs.ReadDir(dir) }

func (v *walFS) Create(dir, name string, size uint64) (types.WritableFile, error) {
	path := filepath.Join(dir, name)
	file, ok := v.spare.take(path, int64(size))
	if !ok {
		var err error
		file, err = v.fs.Create(path, int64(size))
		if err != nil {
			return nil, v.noteError(err)
		}
	}
	return &walFile{File: file, v: v, dir: dir, fresh: true, next: int64(size) / spareFrom}, nil
}

func (v *walFS) Delete(dir, name string) error {
	if err := v.fs.Remove(filepath.Join(dir, name)); err != nil {
		return err
	}
	return v.fs.SyncDir(dir)
}

func (v *walFS) OpenReader(dir, name string) (types.ReadableFile, error) {
	file, err := v.fs.Open(filepath.Join(dir, name), false)
	if err != nil {
		return nil, err
	}
	return file, nil
}

// OpenWriter opens the tail for recovery, which raft-wal does with two small reads per entry;
// hence the window.
func (v *walFS) OpenWriter(dir, name string) (types.WritableFile, error) {
	file, err := v.fs.Open(filepath.Join(dir, name), true)
	if err != nil {
		return nil, err
	}
	size, err := file.Size()
	if err != nil {
		file.Close()
		return nil, err
	}
	return &walFile{
		File:   file,
		v:      v,
		dir:    dir,
		next:   size / spareFrom,
		window: &windowReader{f: file, size: size},
	}, nil
}

// spareFrom is the part of a segment that is written when the next one is made ready: a log
// that stays small never has one.
const spareFrom = 8

type walFile struct {
	File
	v     *walFS
	dir   string
	fresh bool  // the folder entry is not yet durable; only the writer touches it
	next  int64 // a write behind this makes the next segment ready

	mu     sync.Mutex
	window *windowReader // nil once the file has been written to
}

func (f *walFile) ReadAt(p []byte, off int64) (int, error) {
	f.mu.Lock()
	if f.window == nil {
		f.mu.Unlock()
		return f.File.ReadAt(p, off)
	}
	defer f.mu.Unlock()
	b, err := f.window.readAt(off, int64(len(p)))
	if err != nil {
		return 0, err
	}
	n := copy(p, b)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *walFile) WriteAt(p []byte, off int64) (int, error) {
	f.mu.Lock()
	f.window = nil
	f.mu.Unlock()
	n, err := f.File.WriteAt(p, off)
	if off > f.next {
		f.v.spare.prepareSoon()
	}
	return n, f.v.noteError(err)
}

func (f *walFile) Sync() error {
	if err := f.File.Sync(); err != nil {
		return f.v.noteError(err)
	}
	if f.fresh {
		if err := f.v.fs.SyncDir(f.dir); err != nil {
			return f.v.noteError(err)
		}
		f.fresh = false
	}
	return nil
}
