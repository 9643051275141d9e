package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"time"

	"github.com/musterhpc/muster/internal/audit/ecs"
)

// File is a file that rotates: at its size it becomes NAME.1, what was NAME.1
// becomes NAME.2, and so on. One that another program has moved away is opened
// anew.
type File struct {
	path string
	max  int64
	keep int
	f    *os.File
	size int64
}

// NewFile makes a target that keeps so many older files, each of about max
// bytes. The file is opened by the first Write.
func NewFile(path string, maxBytes int64, keep int) *File {
	return &File{path: path, max: maxBytes, keep: keep}
}

// Settles implements Target: what was written is on the disk.
func (*File) Settles() time.Duration { return 0 }

// Write implements Target.
func (t *File) Write(_ context.Context, lines []string) error {
	if len(lines) == 0 {
		return nil
	}
	if err := t.ready(); err != nil {
		return err
	}
	text := strings.Join(lines, "\n") + "\n"
	n, err := t.f.WriteString(text)
	t.size += int64(n)
	if err == nil {
		err = t.f.Sync()
	}
	if err != nil {
		// A line that was written in part is cut off when the file is opened again.
		return errors.Join(fmt.Errorf("audit.file: %w", err), t.Close())
	}
	return nil
}

// ready opens the file, after a rotation if that is due.
func (t *File) ready() error {
	if t.f != nil {
		there, err := os.Stat(t.path)
		ours, oursErr := t.f.Stat()
		if err != nil || oursErr != nil || !os.SameFile(there, ours) {
			if err := t.Close(); err != nil {
				return err
			}
		}
	}
	if t.f == nil {
		if err := t.open(); err != nil {
			return err
		}
	}
	if t.size < t.max {
		return nil
	}
	if err := t.Close(); err != nil {
		return err
	}
	if err := t.rotate(); err != nil {
		return fmt.Errorf("audit.file: %w", err)
	}
	return t.open()
}

func (t *File) open() error {
	file, err := os.OpenFile(t.path, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o640)
	if err != nil {
		return fmt.Errorf("audit.file: %w", err)
	}
	size, err := cutTornLine(file)
	if err != nil {
		return errors.Join(fmt.Errorf("audit.file: %w", err), file.Close())
	}
	t.f, t.size = file, size
	return nil
}

// cutTornLine removes what a crash has left of a line at the end of a file: the
// whole line is written again.
func cutTornLine(file *os.File) (size int64, err error) {
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	size = info.Size()
	tail := make([]byte, min(size, 4*ecs.MaxLine))
	if _, err := file.ReadAt(tail, size-int64(len(tail))); err != nil && !errors.Is(err, io.EOF) {
		return 0, err
	}
	whole := size - int64(len(tail)) + int64(bytes.LastIndexByte(tail, '\n')+1)
	if whole == size || whole == size-int64(len(tail)) && whole > 0 {
		return size, nil // nothing is torn, or this is not a file of lines
	}
	return whole, file.Truncate(whole)
}

func (t *File) rotate() error {
	name := func(n int) string {
		if n == 0 {
			return t.path
		}
		return fmt.Sprintf("%s.%d", t.path, n)
	}
	if t.keep == 0 {
		return os.Remove(t.path)
	}
	for n := t.keep - 1; n >= 0; n-- {
		if err := os.Rename(name(n), name(n+1)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// Close implements Target.
func (t *File) Close() error {
	if t.f == nil {
		return nil
	}
	err := t.f.Close()
	t.f, t.size = nil, 0
	return err
}
