package log_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/log/logtest"
)

// named counts how the segments of a log came to their names.
type named struct {
	log.FS
	created, renamed atomic.Int64
}

func (n *named) Create(path string, size int64) (log.File, error) {
	f, err := n.FS.Create(path, size)
	if err == nil && strings.HasSuffix(path, ".wal") {
		n.created.Add(1)
	}
	return f, err
}

func (n *named) Rename(from, to string) error {
	err := n.FS.Rename(from, to)
	if err == nil && strings.HasSuffix(to, ".wal") {
		n.renamed.Add(1)
	}
	return err
}

func spares(d *logtest.Disk) int { return len(filesOf(d, ".spare")) }

// TestTheNextSegmentIsReady: a log that goes on has its next segments made beside it, and what is in them survives a power
// cut as in any other.
func TestTheNextSegmentIsReady(t *testing.T) {
	disk, h, m := logtest.NewDisk(7), &history{next: 1, acked: map[log.Position]int{}}, &logtest.Machine{}
	fs := &named{FS: disk.FS()}
	opts := simOptions(disk, m)
	opts.FS, opts.SnapshotEvery = fs, 1<<40
	l := mustOpen(t, opts)
	for end := time.Now().Add(time.Minute); fs.renamed.Load() < 3; {
		if time.Now().After(end) {
			t.Fatalf("after %d batches %d segments were made when they were needed, and %d beforehand", h.next-1, fs.created.Load(), fs.renamed.Load())
		}
		mustAppend(t, l, h)
	}
	if n := fs.created.Load(); n < 1 {
		t.Error("not even the first segment was made when it was needed")
	}
	for range 10 {
		mustAppend(t, l, h)
	}
	disk.PowerCut()
	_ = l.Close(bg) // on a disk that is off
	disk.PowerOn()

	m = &logtest.Machine{}
	l = mustOpen(t, simOptions(disk, m))
	if err := h.check(m); err != nil {
		t.Error(err)
	}
	mustAppend(t, l, h)
	mustClose(t, l)
	if n := spares(disk); n != 0 {
		t.Errorf("%d spares are left behind", n)
	}
}

// TestNoSpareWithoutRoom: what is kept free for the ends of jobs is not taken for a segment that nobody needs yet.
func TestNoSpareWithoutRoom(t *testing.T) {
	disk, h := logtest.NewDisk(8), &history{next: 1, acked: map[log.Position]int{}}
	fs := &named{FS: disk.FS()}
	opts := simOptions(disk, &logtest.Machine{})
	opts.FS, opts.ReserveBytes = fs, 1<<40
	l := mustOpen(t, opts)
	for fs.created.Load() < 4 {
		mustAppend(t, l, h)
		if spares(disk) != 0 || fs.renamed.Load() != 0 {
			t.Fatal("there is a spare")
		}
	}
	mustClose(t, l)
}
