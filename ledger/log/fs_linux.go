package log

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// syncData flushes the data and what is needed to read it back, not the file's times.
func syncData(file *os.File) error {
	for {
		err := unix.Fdatasync(int(file.Fd()))
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// preallocateFile reserves blocks, so that a later write inside size cannot find the disk full.
func preallocateFile(file *os.File, size int64) error {
	for {
		err := unix.Fallocate(int(file.Fd()), 0, 0, size)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.ENOSYS):
			return file.Truncate(size)
		default:
			return err
		}
	}
}

func (osFS) Free(dir string) (uint64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, fmt.Errorf("free space of %s: %w", dir, err)
	}
	return st.Bavail * uint64(st.Bsize), nil
}

func (osFS) Lock(path string) (io.Closer, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		var holder [32]byte
		n, _ := file.ReadAt(holder[:], 0)
		file.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf(
				"%w: %s is held by process %s; stop it first",
				ErrLocked,
				path,
				holder[:n],
			)
		}
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	// The pid is a courtesy to whoever meets the lock; failing to note it does not weaken the lock.
	if err := file.Truncate(0); err == nil {
		_, _ = file.WriteAt(fmt.Appendf(nil, "%d", os.Getpid()), 0)
	}
	return file, nil
}
