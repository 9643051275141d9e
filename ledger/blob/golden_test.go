package blob_test

import (
	"testing"

	"github.com/musterhpc/muster/internal/durable/durabletest"
)

// TestReadsFormat1 opens a blob store as the first format wrote it: sealed files with an index, and
// the file that is being written.
func TestReadsFormat1(t *testing.T) {
	const blobs = 40
	dir := durabletest.Golden(t, "testdata/v1.tar.gz", func(dir string) {
		s := open(t, dir, 2000)
		for n := range blobs {
			put(t, s, n)
		}
		closed(t, s)
	})
	s := open(t, dir, 2000)
	defer closed(t, s)
	for n := range blobs {
		if err := check(s, n, true); err != nil {
			t.Fatal(err)
		}
	}
	if err := check(s, blobs, false); err != nil {
		t.Fatal(err)
	}
}
