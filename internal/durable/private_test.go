package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func TestWriteRead(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "k")
	for _, content := range []string{"one", "two, longer", ""} {
		if err := WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		got, err := ReadPrivate(path)
		if err != nil || string(got) != content {
			t.Fatalf("%q, %v", got, err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestReadRefuses(t *testing.T) {
	dir := t.TempDir()
	for _, perm := range []fs.FileMode{0o640, 0o604, 0o620, 0o601} {
		path := filepath.Join(dir, "exposed")
		if err := WriteFile(path, []byte("k"), perm); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadPrivate(path); !errors.Is(err, ErrExposed) {
			t.Errorf("mode %o: %v", perm, err)
		}
	}
	if _, err := ReadPrivate(dir); err == nil {
		t.Error("a directory was read")
	}
	if _, err := ReadPrivate(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	big := filepath.Join(dir, "big")
	if err := WriteFile(big, make([]byte, MaxPrivate+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadPrivate(big); err == nil {
		t.Error("an oversized file was read")
	}
	if err := WriteFile(filepath.Join(dir, "no", "such", "dir"), nil, 0o600); err == nil {
		t.Error("wrote into a missing folder")
	}
}
