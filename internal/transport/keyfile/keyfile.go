// Package keyfile reads and writes small secret files: written whole or not at all, readable by the owner only, and refused
// when somebody else could have read or replaced them.
package keyfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// MaxSize bounds what Read takes; no key file is anywhere near it.
const MaxSize = 1 << 20

// ErrExposed is wrapped by Read when the file's mode lets group or others at it.
var ErrExposed = errors.New("key file is accessible to others")

// Write replaces the file by data with the given permissions, durably: after it returns nil the new content survives a power
// cut, and at every moment before that the old content (or no file) is what a reader sees.
func Write(path string, data []byte, perm fs.FileMode) error {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := fill(tmp, data, perm); err != nil {
		os.Remove(tmp.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		os.Remove(tmp.Name())
		return fmt.Errorf("write %s: %w", path, err)
	}
	return syncDir(dir)
}

func fill(f *os.File, data []byte, perm fs.FileMode) error {
	_, err := f.Write(data)
	if err == nil {
		err = f.Chmod(perm) // CreateTemp made it 0600; the umask does not apply here
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}

// Read returns the content of a secret file. It refuses anything but a regular file that is closed to group and others
// (ErrExposed); the check is made on the open file, so the file cannot be exchanged in between.
func Read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s: not a regular file", path)
	}
	if perm := info.Mode().Perm(); perm&0o077 != 0 {
		return nil, fmt.Errorf(
			"%s: %w (mode %04o): run chmod 600 on it, and replace the key if others may have read it",
			path,
			ErrExposed,
			perm,
		)
	}
	return readAll(f, path)
}

func readAll(f *os.File, path string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(f, MaxSize+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(data) > MaxSize {
		return nil, fmt.Errorf("%s: larger than %d bytes, not a key file", path, MaxSize)
	}
	return data, nil
}
