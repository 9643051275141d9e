package durable

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// failing is the real filesystem until the operation number failAt, which fails. It notes what was
// asked of it. After a power cut (stop) nothing more is done, also not the clearing up.
type failing struct {
	failAt int
	stop   bool
	failed error
	done   []string
}

var errPower = errors.New("the power is off")

func (f *failing) try(operation string) error {
	if f.stop && f.failed != nil {
		return errPower
	}
	f.done = append(f.done, operation)
	if len(f.done)-1 != f.failAt {
		return nil
	}
	f.failed = fmt.Errorf("%s: %w", operation, syscall.ENOSPC)
	return f.failed
}

func (f *failing) createTemp(dir, pattern string) (tempFile, error) {
	if err := f.try("create"); err != nil {
		return nil, err
	}
	file, err := os.CreateTemp(dir, pattern)
	if err != nil {
		return nil, err
	}
	return &failingFile{File: file, on: f}, nil
}

func (f *failing) rename(from, to string) error {
	if err := f.try("rename"); err != nil {
		return err
	}
	return os.Rename(from, to)
}

func (f *failing) remove(path string) error {
	if f.stop {
		return errPower
	}
	return os.Remove(path)
}

func (f *failing) syncDir(string) error { return f.try("sync folder") }

type failingFile struct {
	*os.File
	on *failing
}

// Write writes half of what it is given before it fails, as a disk does that fills up.
func (f *failingFile) Write(data []byte) (int, error) {
	if err := f.on.try("write"); err != nil {
		n, _ := f.File.Write(data[:len(data)/2])
		return n, err
	}
	return f.File.Write(data)
}

func (f *failingFile) Chmod(perm fs.FileMode) error {
	if err := f.on.try("chmod"); err != nil {
		return err
	}
	return f.File.Chmod(perm)
}

func (f *failingFile) Sync() error { return f.on.try("sync") }

func (f *failingFile) Close() error {
	err := f.on.try("close")
	return errors.Join(err, f.File.Close())
}

// TestReplaceFailsWhole fails each operation in turn, with and without a power cut behind it: the
// file holds its old or its new content whole, and only a power cut leaves a file behind, with the
// suffix that stores remove.
func TestReplaceFailsWhole(t *testing.T) {
	const before = "the old content"
	const after = "the new content, which is longer"
	write := func(w io.Writer) error {
		_, err := w.Write([]byte(after))
		return err
	}
	operations := &failing{failAt: -1}
	if err := replace(operations, filepath.Join(t.TempDir(), "f"), 0o600, write); err != nil {
		t.Fatal(err)
	}
	for failAt, operation := range operations.done {
		for _, stop := range []bool{false, true} {
			dir := t.TempDir()
			path := filepath.Join(dir, "f")
			if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
				t.Fatal(err)
			}
			on := &failing{failAt: failAt, stop: stop}
			if err := replace(on, path, 0o600, write); !errors.Is(err, syscall.ENOSPC) {
				t.Errorf("%s failed: the error is %v", operation, err)
			}
			got, err := os.ReadFile(path)
			if err != nil || string(got) != before && string(got) != after {
				t.Errorf("%s failed: the file holds %q, %v", operation, got, err)
			}
			for _, name := range namesIn(t, dir) {
				left := name != "f"
				if left && (!stop || !strings.HasSuffix(name, TempSuffix)) {
					t.Errorf("%s failed (power cut: %v): %s is left behind", operation, stop, name)
				}
			}
		}
	}
}

// TestReplaceOrder: the bytes are durable before the name changes, and the name before Replace
// returns.
func TestReplaceOrder(t *testing.T) {
	on := &failing{failAt: -1}
	err := replace(on, filepath.Join(t.TempDir(), "f"), 0o600, func(w io.Writer) error {
		_, err := w.Write([]byte("text"))
		return err
	})
	want := []string{"create", "write", "chmod", "sync", "close", "rename", "sync folder"}
	if err != nil || !slices.Equal(on.done, want) {
		t.Errorf("%q, %v", on.done, err)
	}
}

// TestReplaceContentFails: an error of the content leaves the file as it was.
func TestReplaceContentFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := WriteFile(path, []byte("old"), 0o640); err != nil {
		t.Fatal(err)
	}
	broken := errors.New("broken")
	err := Replace(path, 0o600, func(w io.Writer) error {
		_, err := w.Write([]byte("half of the ne"))
		return errors.Join(err, broken)
	})
	if !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != "old" {
		t.Errorf("the file holds %q, %v", got, err)
	}
	if names := namesIn(t, dir); len(names) != 1 {
		t.Errorf("left behind: %q", names)
	}
}

func TestErrorsMatchTheirStore(t *testing.T) {
	damaged := errors.New("the store is damaged")
	newer := errors.New("the store is newer")
	corrupt := &CorruptError{Store: damaged, File: "f", Offset: 12, What: "no sum", Cure: "copy it"}
	if !errors.Is(corrupt, damaged) || errors.Is(corrupt, newer) {
		t.Error("a CorruptError does not match its store alone")
	}
	if got := corrupt.Error(); got != "the store is damaged: f at offset 12: no sum; copy it" {
		t.Error(got)
	}
	version := &VersionError{Store: newer, Where: "f", Found: 3, Known: 2, Cure: "upgrade"}
	if !errors.Is(version, newer) || errors.Is(version, damaged) {
		t.Error("a VersionError does not match its store alone")
	}
	const want = "the store is newer: f has format 3, this release reads up to 2; upgrade"
	if got := version.Error(); got != want {
		t.Error(got)
	}
}

func namesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
