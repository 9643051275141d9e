package archive_test

import (
	"io"
	"strings"
	"testing"

	"github.com/musterhpc/muster/internal/durable/durabletest"
)

// TestReadsFormat1 opens an archive as the first format wrote it: live and sealed segments, a
// snapshot and the chain.
func TestReadsFormat1(t *testing.T) {
	want := history(60, 7)
	const snapshotText = "the state after batch 40"
	dir := durabletest.Golden(t, "testdata/v1.tar.gz", func(dir string) {
		a := open(t, dir, 6000)
		put(t, a, 1, want)
		if err := a.PutSnapshot(40, want[39].last, strings.NewReader(snapshotText)); err != nil {
			t.Fatal(err)
		}
		sealedAll(a)
		closed(t, a)
	})
	a := open(t, dir, 6000)
	defer closed(t, a)
	if err := same(a, want); err != nil {
		t.Fatal(err)
	}
	if s := a.Stats(); s.Sealed < 2 || s.Segments <= s.Sealed {
		t.Fatalf("%d segments, %d sealed: the test data lack a kind", s.Segments, s.Sealed)
	}
	snapshot, found, err := a.SnapshotBefore(60)
	if err != nil || !found || snapshot.Pos != 40 {
		t.Fatalf("snapshot %+v, %v, %v", snapshot, found, err)
	}
	r, err := a.OpenSnapshot(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if text, err := io.ReadAll(r); err != nil || string(text) != snapshotText {
		t.Fatalf("snapshot holds %q, %v", text, err)
	}
}
