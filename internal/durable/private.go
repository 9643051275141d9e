package durable

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// MaxPrivate bounds what ReadPrivate takes. No key file is anywhere near it.
const MaxPrivate = 1 << 20

// ErrExposed is wrapped by ReadPrivate when the file's mode lets group or others at it.
var ErrExposed = errors.New("key file is accessible to others")

// ReadPrivate returns the content of a secret file. It refuses anything but a regular file that is closed to group and others
// (ErrExposed); the check is made on the open file, so the file cannot be exchanged in between.
func ReadPrivate(path string) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	info, err := file.Stat()
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
	return readBounded(file, path)
}

func readBounded(file *os.File, path string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(file, MaxPrivate+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	if len(data) > MaxPrivate {
		return nil, fmt.Errorf("%s: larger than %d bytes, not a key file", path, MaxPrivate)
	}
	return data, nil
}
