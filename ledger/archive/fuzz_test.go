package archive

import (
	"bytes"
	"testing"
)

// FuzzRecord: no bytes make the reader panic, and what it accepts is what the writer would have written.
func FuzzRecord(f *testing.F) {
	f.Add(appendRecord(nil, 7, Record{Pos: 1, FirstSeq: 1, LastSeq: 2, At: 3, Batch: []byte("x")}), uint32(7))
	f.Fuzz(func(t *testing.T, b []byte, salt uint32) {
		r, n, err := readRecord(b, salt)
		if err == nil && !bytes.Equal(appendRecord(nil, salt, r), b[:n]) {
			t.Fatalf("%x reads as %+v", b[:n], r)
		}
	})
}
