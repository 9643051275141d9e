package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// TempSuffix ends the name of a file that is being written. A store that opens its folder removes
// such files: a crash has left them.
const TempSuffix = ".tmp"

// WriteFile replaces the file by data with the given permissions, durably: after it returns nil the
// new content survives a power cut, and at every moment before that the old content (or no file) is
// what a reader sees.
func WriteFile(path string, data []byte, perm fs.FileMode) error {
	err := Replace(path, perm, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// Replace is WriteFile for a content that write produces. An error of write leaves the file as it
// was.
func Replace(path string, perm fs.FileMode, write func(io.Writer) error) error {
	return replace(disk{}, path, perm, write)
}

// SyncDir makes the names in a folder last: those that were created, renamed and removed.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}

// filesystem is what replace needs of an operating system. Tests put one beneath it that fails.
type filesystem interface {
	createTemp(dir, pattern string) (tempFile, error)
	rename(from, to string) error
	remove(path string) error
	syncDir(dir string) error
}

type tempFile interface {
	io.WriteCloser
	Name() string
	Chmod(fs.FileMode) error
	Sync() error
}

type disk struct{}

func (disk) createTemp(dir, pattern string) (tempFile, error) { return os.CreateTemp(dir, pattern) }

func (disk) rename(from, to string) error { return os.Rename(from, to) }

func (disk) remove(path string) error { return os.Remove(path) }

func (disk) syncDir(dir string) error { return SyncDir(dir) }

func replace(on filesystem, path string, perm fs.FileMode, write func(io.Writer) error) error {
	dir := filepath.Dir(path)
	temp, err := on.createTemp(dir, "."+filepath.Base(path)+".*"+TempSuffix)
	if err != nil {
		return err
	}
	err = fill(temp, perm, write)
	if err == nil {
		err = on.rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, on.remove(temp.Name()))
	}
	return on.syncDir(dir)
}

// fill writes the content and makes it last before the name changes: a filesystem may make a
// renaming durable before the bytes, and would then show an empty file after a power cut.
func fill(file tempFile, perm fs.FileMode, write func(io.Writer) error) error {
	err := write(file)
	if err == nil {
		// the temporary file is made with 0600, and the umask does not apply here
		err = file.Chmod(perm)
	}
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}
