//go:build !linux

package log

import (
	"errors"
	"fmt"
	"io"
	"math"
	"os"
)

func syncData(f *os.File) error { return f.Sync() }

func preallocate(f *os.File, size int64) error { return f.Truncate(size) }

// Free is unknown here, so the reserve is never reported as touched; a full disk is still an error at the write.
func (osFS) Free(string) (uint64, error) { return math.MaxUint64, nil }

// Lock creates the file exclusively; a crash leaves it behind and the error says so.
func (osFS) Lock(path string) (io.Closer, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("%w: %s exists; remove it if no controller runs", ErrLocked, path)
	}
	if err != nil {
		return nil, err
	}
	return removeOnClose{f}, nil
}

type removeOnClose struct{ *os.File }

func (r removeOnClose) Close() error { return errors.Join(r.File.Close(), os.Remove(r.Name())) }
