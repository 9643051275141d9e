// Package durabletest keeps folders that an earlier release wrote as test data, so that today's
// readers prove that they still read them.
package durabletest

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// UpdateVariable makes Golden write the folder anew. It is for a new format only: what is in the
// repository is what the releases wrote.
const UpdateVariable = "UPDATE_FORMATS"

// Golden unpacks a packed folder into a temporary one and returns that. With UpdateVariable set, it
// calls write first and packs what that made.
func Golden(t testing.TB, packed string, write func(dir string)) string {
	t.Helper()
	if os.Getenv(UpdateVariable) != "" {
		dir := t.TempDir()
		write(dir)
		if err := packFolder(dir, packed); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	if err := unpackFolder(packed, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

func packFolder(dir, packed string) error {
	if err := os.MkdirAll(filepath.Dir(packed), 0o755); err != nil {
		return err
	}
	out, err := os.Create(packed)
	if err != nil {
		return err
	}
	zipped := gzip.NewWriter(out)
	w := tar.NewWriter(zipped)
	err = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		header := &tar.Header{
			Name:    filepath.ToSlash(name),
			Mode:    0o600,
			Size:    int64(len(data)),
			ModTime: time.Unix(0, 0),
		}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		_, err = w.Write(data)
		return err
	})
	return errors.Join(err, w.Close(), zipped.Close(), out.Close())
}

func unpackFolder(packed, dir string) error {
	in, err := os.Open(packed)
	if err != nil {
		return err
	}
	defer in.Close()
	zipped, err := gzip.NewReader(in)
	if err != nil {
		return err
	}
	reader := tar.NewReader(zipped)
	for {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.FromSlash(header.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		data, err := io.ReadAll(reader)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			return err
		}
	}
}
