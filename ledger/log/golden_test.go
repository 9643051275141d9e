package log_test

import (
	"testing"

	"github.com/musterhpc/muster/internal/durable/durabletest"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/log/logtest"
)

// TestReadsFormat1 opens a log as the first format wrote it: metadata, segments and a snapshot.
func TestReadsFormat1(t *testing.T) {
	const batches = 50
	options := func(dir string, m log.Machine) log.Options {
		return log.Options{Dir: dir, Machine: m, SegmentBytes: 16 << 10, SnapshotEvery: 20, Trailing: 5}
	}
	dir := durabletest.Golden(t, "testdata/v1.tar.gz", func(dir string) {
		l := mustOpen(t, options(dir, &logtest.Machine{}))
		h := &history{next: 1, acked: map[log.Position]int{}}
		for range batches {
			mustAppend(t, l, h)
		}
		mustClose(t, l)
	})
	m := &logtest.Machine{}
	l := mustOpen(t, options(dir, m))
	defer mustClose(t, l)
	if got := len(m.Batches()); got != batches {
		t.Fatalf("%d batches, want %d", got, batches)
	}
	h := &history{next: batches + 1, acked: map[log.Position]int{}}
	for n := 1; n <= batches; n++ {
		h.acked[log.Position(n)] = n
	}
	if err := h.check(m); err != nil {
		t.Fatal(err)
	}
}
