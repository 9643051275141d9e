package embedded

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// ErrInUse is returned when another process has the data path.
var ErrInUse = errors.New("the data path is in use")

// lockData takes the data path for this process. The lock is the kernel's, so that it ends with the process however
// that ends; the file stays and holds the number of the process that has or had it.
func lockData(data string) (*os.File, error) {
	path := filepath.Join(data, "muster.lock")
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock the data path: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		defer file.Close()
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		holder := "another process"
		if text, err := os.ReadFile(path); err == nil && len(text) > 0 {
			holder = "process " + strings.TrimSpace(string(text))
		}
		return nil, fmt.Errorf(
			"%w: %s has %s open; one data path serves one engine, so stop that one or give another path",
			ErrInUse,
			holder,
			data,
		)
	}
	if err := file.Truncate(0); err == nil {
		_, err = file.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("write %s: %w", path, err)
	}
	return file, nil
}
