package store

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/scheduler/daemon"
)

// A start from a snapshot never sees the batches before it again: if archive
// and content store still held them in memory when the process was killed,
// they would be missing for ever.
func TestSnapshotWaitsForArchiveAndContent(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	codec, err := event.NewCodec()
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := OpenBlobs(t.TempDir(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	arch, err := OpenArchive(t.TempDir(), quiet)
	if err != nil {
		t.Fatal(err)
	}
	synced, full := 0, errors.New("the disk is full")
	l := Machine{Fold: daemon.NewMachine(codec, arch, blobs), Sync: func() error { synced++; return full }}
	write, err := l.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := write(&out); !errors.Is(err, full) || out.Len() != 0 {
		t.Errorf("with a sync that fails, %d bytes are written: %v", out.Len(), err)
	}
	full = nil
	if err := write(&out); err != nil || synced != 2 || out.Len() == 0 {
		t.Errorf("synced %d times, %d bytes: %v", synced, out.Len(), err)
	}
	if err := errors.Join(arch.Close(), blobs.Close()); err != nil {
		t.Error(err)
	}
	if err := ledgerError(nil); err != nil {
		t.Errorf("no error became one: %v", err)
	}
}
