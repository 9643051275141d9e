// Package storetest makes ledgers on disk for tests: Folder is the state folder of a
// controller that was stopped, World an archive with contents and its keeper.
package storetest

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/musterhpc/muster/accounting/tally/tallytest"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/store"
	"github.com/musterhpc/muster/scheduler/daemon"
	"github.com/musterhpc/muster/spec"
)

// Folder is the folder of a controller that has written a history and was
// stopped.
type Folder struct {
	T       *testing.T
	Dir     string
	codec   *event.Codec
	History *tallytest.History
	Sent    int // events of h that were written
}

// NewFolder makes a folder whose history has nodes and no job.
func NewFolder(t *testing.T) *Folder {
	t.Helper()
	codec, err := event.NewCodec()
	if err != nil {
		t.Fatal(err)
	}
	folder := &Folder{
		T: t, Dir: t.TempDir(), codec: codec, History: tallytest.New(t, spec.AtUnix(1_790_000_000)),
	}
	folder.History.Nodes(1, 8, 1000, 0)
	return folder
}

// Run opens the log as a controller does and hands it on.
func (f *Folder) Run(use func(l *log.Durable, m *daemon.Machine, a *store.Archive)) error {
	f.T.Helper()
	quiet := slog.New(slog.DiscardHandler)
	arch, err := store.OpenArchive(filepath.Join(f.Dir, "archive"), quiet)
	if err != nil {
		f.T.Fatal(err)
	}
	defer arch.Close()
	blobs, err := store.OpenBlobs(filepath.Join(f.Dir, "content"), quiet)
	if err != nil {
		f.T.Fatal(err)
	}
	defer blobs.Close()
	machine := daemon.NewMachine(f.codec, arch, blobs)
	_, known := arch.Disk.Bounds()
	sync := func() error { _, err := arch.Sync(); return err }
	durable, err := log.Open(
		context.Background(),
		log.Options{
			Dir:     filepath.Join(f.Dir, "ledger"),
			Machine: store.Machine{Fold: machine, Sync: sync},
			AtLeast: log.Position(known),
		},
	)
	if err != nil {
		return err
	}
	use(durable, machine, arch)
	return durable.Close(context.Background())
}

// Write appends batches of one job each.
func (f *Folder) Write(durable *log.Durable, batches int) {
	f.T.Helper()
	for range batches {
		f.History.Submit(tallytest.Ask{Name: "job", User: "alice", UID: 1001, Account: "ml", QOS: "normal", CPUs: 1, Mem: 10})
		f.History.Wait(spec.Second)
		data, err := f.codec.Encode(f.History.Log[f.Sent:])
		if err != nil {
			f.T.Fatal(err)
		}
		f.Sent = len(f.History.Log)
		if _, err := durable.Append(daemon.Batch(data)).Wait(context.Background()); err != nil {
			f.T.Fatal(err)
		}
	}
}

// Seq opens the ledger and tells its last event.
func (f *Folder) Seq() uint64 {
	f.T.Helper()
	var seq uint64
	if err := f.Run(func(_ *log.Durable, m *daemon.Machine, _ *store.Archive) { seq = m.Applied().Seq }); err != nil {
		f.T.Fatal(err)
	}
	return seq
}

// FlipBit turns over a bit of a file.
func FlipBit(t *testing.T, path string, at int64) {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	data[at] ^= 4
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

// OnlyFile is the one file that matches.
func OnlyFile(t *testing.T, pattern string) string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %v %v", pattern, names, err)
	}
	return names[0]
}
