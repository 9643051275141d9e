package log

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"sync/atomic"

	"github.com/musterhpc/muster/internal/durable"
)

// FS is the file layer under the log. The one that Open uses by default is the operating
// system's; tests put one underneath that loses unsynced writes, fills up, or fails.
//
// Durability: after File.Sync the file's bytes survive a power cut; after SyncDir so do the
// names in the folder.
type FS interface {
	MkdirAll(dir string) error
	// ReadDir returns the names of the plain files in dir, sorted.
	ReadDir(dir string) ([]string, error)
	// Create makes a new file of size zero bytes, reserving its blocks where the filesystem
	// can. The file must not exist.
	Create(path string, size int64) (File, error)
	// Open opens an existing file for reading and, if write, for writing.
	Open(path string, write bool) (File, error)
	Rename(from, to string) error
	Remove(path string) error
	SyncDir(dir string) error
	// Free returns the bytes this process may still allocate on dir's filesystem.
	Free(dir string) (uint64, error)
	// Lock takes an exclusive lock that ends with the process or with Close.
	Lock(path string) (io.Closer, error)
}

// File is an open file of an FS.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	// Sync makes the bytes written so far durable.
	Sync() error
	Size() (int64, error)
}

type osFS struct{}

// OS returns the operating system's file layer.
func OS() FS { return osFS{} }

type osFile struct {
	*os.File
	synced atomic.Bool
}

// Sync is a full fsync the first time, which also fixes a new file's size, and only flushes
// data afterwards.
func (f *osFile) Sync() error {
	if f.synced.Load() {
		return syncData(f.File)
	}
	if err := f.File.Sync(); err != nil {
		return err
	}
	f.synced.Store(true)
	return nil
}

func (f *osFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func (osFS) MkdirAll(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return osFS{}.SyncDir(filepath.Dir(dir))
}

func (osFS) ReadDir(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	sort.Strings(names)
	return names, nil
}

func (osFS) Create(path string, size int64) (File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if size > 0 {
		if err := preallocateFile(file, size); err != nil {
			// A file that holds nothing must not be left behind to hold the very space that is
			// missing.
			return nil, errors.Join(
				fmt.Errorf("reserve %d bytes for %s: %w", size, path, err),
				file.Close(),
				os.Remove(path),
			)
		}
	}
	return &osFile{File: file}, nil
}

func (osFS) Open(path string, write bool) (File, error) {
	flag := os.O_RDONLY
	if write {
		flag = os.O_RDWR
	}
	file, err := os.OpenFile(path, flag, 0)
	if err != nil {
		return nil, err
	}
	return &osFile{File: file}, nil
}

func (osFS) Rename(from, to string) error { return os.Rename(from, to) }

func (osFS) Remove(path string) error { return os.Remove(path) }

func (osFS) SyncDir(dir string) error { return durable.SyncDir(dir) }

// readAll reads a whole file, at most limit bytes.
func readAll(fs FS, path string, limit int64) ([]byte, error) {
	file, err := fs.Open(path, false)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	size, err := file.Size()
	if err != nil {
		return nil, err
	}
	buf := make([]byte, min(size, limit))
	n, err := file.ReadAt(buf, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	return buf[:n], nil
}

func fileExists(fs FS, path string) (bool, error) {
	file, err := fs.Open(path, false)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, file.Close()
}
