package blob

import (
	"bytes"
	"os"
	"testing"
)

// FuzzRecord: what is read as a record is the encoding of a blob with the hash that it names, and
// reading never goes beyond the bytes.
func FuzzRecord(f *testing.F) {
	const salt = 77
	data := []byte("#!/bin/sh\n")
	whole := appendRecord(nil, salt, Sum(data), data)
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add(append(bytes.Clone(whole), whole...))
	f.Fuzz(func(t *testing.T, b []byte) {
		hash, n, ok := readRecord(b, salt)
		if !ok {
			return
		}
		if recordHeader+n > len(b) {
			t.Fatalf("a record of %d bytes in %d", recordHeader+n, len(b))
		}
		again := appendRecord(nil, salt, hash, b[recordHeader:recordHeader+n])
		if !bytes.Equal(again, b[:recordHeader+n]) {
			t.Fatalf("%x is read as a record, which is written as %x", b, again)
		}
	})
}

// FuzzIndex: an index is used whole or not at all, and never ends the program.
func FuzzIndex(f *testing.F) {
	dir := f.TempDir()
	entries := []entry{{Sum([]byte("a")), place{1, 24, 1}}, {Sum(nil), place{1, 65, 0}}}
	if err := writeIndex(dir, 1, entries); err != nil {
		f.Fatal(err)
	}
	whole, err := os.ReadFile(indexPath(dir, 1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:20])
	f.Fuzz(func(t *testing.T, b []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(indexPath(dir, 1), b, 0o600); err != nil {
			t.Fatal(err)
		}
		found := readIndex(dir, 1)
		if found == nil {
			return
		}
		if err := writeIndex(dir, 1, found); err != nil {
			t.Fatal(err)
		}
		again, err := os.ReadFile(indexPath(dir, 1))
		if err != nil || !bytes.Equal(again, b) {
			t.Fatalf("%x is read as an index, which is written as %x, %v", b, again, err)
		}
	})
}
