package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhpc/muster/accounting/clickhouse"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/daemon"
	"github.com/musterhpc/muster/spec"
)

// stateFolder is the folder of a controller that has written a history and was
// stopped.
type stateFolder struct {
	t     *testing.T
	dir   string
	codec *event.Codec
	h     *tallytest.History
	sent  int // events of h that were written
}

func newStateFolder(t *testing.T) *stateFolder {
	t.Helper()
	codec, err := event.NewCodec()
	if err != nil {
		t.Fatal(err)
	}
	f := &stateFolder{t: t, dir: t.TempDir(), codec: codec, h: tallytest.New(t, spec.AtUnix(1_790_000_000))}
	f.h.Nodes(1, 8, 1000, 0)
	return f
}

// run opens the log as a controller does and hands it on.
func (f *stateFolder) run(use func(l *log.Durable, m *daemon.Machine, a *archiveAdapter)) error {
	f.t.Helper()
	quiet := slog.New(slog.DiscardHandler)
	arch, err := openArchive(filepath.Join(f.dir, "archive"), quiet)
	if err != nil {
		f.t.Fatal(err)
	}
	defer arch.Close()
	blobs, err := openBlobs(filepath.Join(f.dir, "content"), quiet)
	if err != nil {
		f.t.Fatal(err)
	}
	defer blobs.Close()
	machine := daemon.NewMachine(f.codec, arch, blobs)
	_, known := arch.a.Bounds()
	sync := func() error { _, err := arch.Sync(); return err }
	l, err := log.Open(context.Background(), log.Options{Dir: filepath.Join(f.dir, "ledger"), Machine: logMachine{m: machine, sync: sync}, AtLeast: log.Position(known)})
	if err != nil {
		return err
	}
	use(l, machine, arch)
	return l.Close(context.Background())
}

// write appends batches of one job each.
func (f *stateFolder) write(l *log.Durable, batches int) {
	f.t.Helper()
	for range batches {
		f.h.Submit(tallytest.Ask{Name: "job", User: "alice", UID: 1001, Account: "ml", QOS: "normal", CPUs: 1, Mem: 10})
		f.h.Wait(spec.Second)
		data, err := f.codec.Encode(f.h.Log[f.sent:])
		if err != nil {
			f.t.Fatal(err)
		}
		f.sent = len(f.h.Log)
		if _, err := l.Append(daemon.Batch(data)).Wait(context.Background()); err != nil {
			f.t.Fatal(err)
		}
	}
}

// care runs one of the commands and gives what it said.
func (f *stateFolder) care(verb func(*ledgerCare) error) (string, error) {
	var out bytes.Buffer
	err := verb(&ledgerCare{state: f.dir, archive: filepath.Join(f.dir, "archive"), out: &out})
	return out.String(), err
}

// seq opens the ledger and tells its last event.
func (f *stateFolder) seq() uint64 {
	f.t.Helper()
	var seq uint64
	if err := f.run(func(_ *log.Durable, m *daemon.Machine, _ *archiveAdapter) { seq = m.Applied().Seq }); err != nil {
		f.t.Fatal(err)
	}
	return seq
}

// flip turns over a bit of a file.
func flip(t *testing.T, path string, at int64) {
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

// only is the one file that matches.
func only(t *testing.T, pattern string) string {
	t.Helper()
	names, err := filepath.Glob(pattern)
	if err != nil || len(names) == 0 {
		t.Fatalf("%s: %v %v", pattern, names, err)
	}
	return names[0]
}

// TestAFlippedByteIsRebuilt turns over a bit anywhere in the log. The controller
// refuses it and names the command; verify names the file; rebuild brings every
// event back, and the ledger goes on from there, also through a further rebuild.
func TestAFlippedByteIsRebuilt(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	for range 8 {
		f := newStateFolder(t)
		if err := f.run(func(l *log.Durable, _ *daemon.Machine, _ *archiveAdapter) { f.write(l, 30) }); err != nil {
			t.Fatal(err)
		}
		if out, err := f.care((*ledgerCare).verifyLedger); err != nil || !strings.Contains(out, "0 damaged places") {
			t.Fatalf("verify of a whole ledger: %v\n%s", err, out)
		}
		segment := only(t, filepath.Join(f.dir, "ledger", "raft", "*.wal"))
		data, err := os.ReadFile(segment)
		if err != nil {
			t.Fatal(err)
		}
		used := int64(len(bytes.TrimRight(data, "\x00")))
		at := rnd.Int64N(used - 2000)
		flip(t, segment, at)
		if err := f.run(func(*log.Durable, *daemon.Machine, *archiveAdapter) {}); !errors.Is(err, log.ErrCorrupt) || !strings.Contains(err.Error(), "musterd ledger rebuild") {
			t.Fatalf("byte %d flipped: the controller says %v", at, err)
		}
		if out, err := f.care((*ledgerCare).verifyLedger); !errors.Is(err, errDamaged) || !strings.Contains(out, segment+" at offset") {
			t.Fatalf("byte %d flipped: verify says %v\n%s", at, err, out)
		}
		for round := range 2 {
			out, err := f.care((*ledgerCare).rebuildLog)
			if err != nil {
				t.Fatalf("byte %d flipped: %v\n%s", at, err, out)
			}
			if got := f.seq(); got != f.h.State.Seq {
				t.Fatalf("byte %d flipped: rebuilt up to event %d of %d\n%s", at, got, f.h.State.Seq, out)
			}
			if err := f.run(func(l *log.Durable, _ *daemon.Machine, _ *archiveAdapter) { f.write(l, 3) }); err != nil {
				t.Fatal(err)
			}
			if out, err := f.care((*ledgerCare).verifyLedger); err != nil {
				t.Fatalf("verify after rebuild %d: %v\n%s", round, err, out)
			}
		}
	}
}

// TestRebuildTakesTheTailOfTheLog: where the archive ends before the log, because
// the machine lost power before the archive was on the disk, what the log has is
// taken from it; an archive that is lost leaves the whole log.
func TestRebuildTakesTheTailOfTheLog(t *testing.T) {
	for _, archived := range []int{0, 12} {
		t.Run(fmt.Sprint(archived), func(t *testing.T) {
			f := newStateFolder(t)
			saved := t.TempDir()
			err := f.run(func(l *log.Durable, _ *daemon.Machine, a *archiveAdapter) {
				f.write(l, archived)
				if _, err := a.Sync(); err != nil {
					t.Fatal(err)
				}
				if err := os.CopyFS(saved, os.DirFS(filepath.Join(f.dir, "archive"))); err != nil {
					t.Fatal(err)
				}
				f.write(l, 20)
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(filepath.Join(f.dir, "archive")); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(filepath.Join(f.dir, "archive"), os.DirFS(saved)); err != nil {
				t.Fatal(err)
			}
			out, err := f.care((*ledgerCare).rebuildLog)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if got := f.seq(); got != f.h.State.Seq {
				t.Errorf("rebuilt up to event %d of %d\n%s", got, f.h.State.Seq, out)
			}
		})
	}
}

// TestAnEmptyLedgerBesideDataIsRefused: a controller whose ledger is gone does not
// found a cluster beside what is left of the old one, unless it is told to.
func TestAnEmptyLedgerBesideDataIsRefused(t *testing.T) {
	dir := t.TempDir()
	blobs, err := openBlobs(filepath.Join(dir, "content"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer blobs.Close()
	s := &server{cfg: &conffile.Config{StateDir: dir}, blobs: blobs}
	empty := state.New()
	if err := s.refuseEmpty(empty); err != nil {
		t.Errorf("the first start: %v", err)
	}
	if _, err := blobs.Put([]byte("#!/bin/sh")); err != nil {
		t.Fatal(err)
	}
	if err := s.refuseEmpty(empty); !errors.Is(err, errLedgerGone) {
		t.Errorf("beside a script: %v", err)
	}
	if err := s.markCluster(tallytest.New(t, spec.AtUnix(1_790_000_000)).State); err != nil {
		t.Fatal(err)
	}
	if err := s.refuseEmpty(empty); !errors.Is(err, errLedgerGone) || !strings.Contains(err.Error(), "peer ") || !strings.Contains(err.Error(), "--new-cluster") {
		t.Errorf("beside the mark of a cluster: %v", err)
	}
	s.anew = true
	if err := s.refuseEmpty(empty); err != nil {
		t.Errorf("with --new-cluster: %v", err)
	}
}

// TestAClusterThatTheStoreKnowsIsNotFounded: an empty ledger does not begin where the
// accounting store has a cluster of this name, unless it is told to; a store that does
// not answer keeps nobody from beginning.
func TestAClusterThatTheStoreKnowsIsNotFounded(t *testing.T) {
	s := &server{cfg: &conffile.Config{}, cluster: &spec.Config{ClusterName: "peer"}, log: slog.New(slog.DiscardHandler)}
	asked := ""
	knows := func(_ context.Context, cluster string) ([]clickhouse.KnownLedger, error) {
		asked = cluster
		return []clickhouse.KnownLedger{{Ledger: tallytest.LedgerID, Seq: 7, At: spec.AtUnix(1_790_000_000)}}, nil
	}
	err := s.refuseKnown(t.Context(), state.New(), knows)
	if !errors.Is(err, errClusterKnown) || asked != "peer" {
		t.Fatalf("asked for %q: %v", asked, err)
	}
	for _, word := range []string{"2026-09-21T14:13:20Z", "muster restore", "--new-cluster"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("it says nothing of %s: %v", word, err)
		}
	}
	if err := s.refuseKnown(t.Context(), tallytest.New(t, spec.AtUnix(1_790_000_000)).State, knows); err != nil {
		t.Errorf("with a ledger: %v", err)
	}
	silent := func(context.Context, string) ([]clickhouse.KnownLedger, error) { return nil, errors.New("away") }
	if err := s.refuseKnown(t.Context(), state.New(), silent); err != nil {
		t.Errorf("a store that is away: %v", err)
	}
	s.anew = true
	if err := s.refuseKnown(t.Context(), state.New(), knows); err != nil {
		t.Errorf("with --new-cluster: %v", err)
	}
}

// TestADamagedArchiveIsNamed turns over bits of the archive: verify names file and
// offset of each.
func TestADamagedArchiveIsNamed(t *testing.T) {
	f := newStateFolder(t)
	if err := f.run(func(l *log.Durable, _ *daemon.Machine, _ *archiveAdapter) { f.write(l, 30) }); err != nil {
		t.Fatal(err)
	}
	live := only(t, filepath.Join(f.dir, "archive", "segments", "*.live"))
	flip(t, live, 500)
	flip(t, live, 3000)
	out, err := f.care((*ledgerCare).verifyLedger)
	if !errors.Is(err, errDamaged) || strings.Count(out, live+" at offset") != 2 {
		t.Errorf("verify says %v\n%s", err, out)
	}
}

// TestADamagedContentIsNamed turns over a bit of a script: verify names file and offset.
func TestADamagedContentIsNamed(t *testing.T) {
	f := newStateFolder(t)
	if err := f.run(func(l *log.Durable, _ *daemon.Machine, _ *archiveAdapter) { f.write(l, 3) }); err != nil {
		t.Fatal(err)
	}
	blobs, err := openBlobs(filepath.Join(f.dir, "content"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		if _, err := blobs.Put(fmt.Appendf(nil, "#!/bin/sh\necho %d\n", n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := blobs.Close(); err != nil {
		t.Fatal(err)
	}
	out, err := f.care((*ledgerCare).verifyLedger)
	if err != nil || !strings.Contains(out, "content: 3 scripts and environments") {
		t.Fatalf("whole contents: %v\n%s", err, out)
	}
	file := only(t, filepath.Join(f.dir, "content", "*.blobs"))
	flip(t, file, 70)
	out, err = f.care((*ledgerCare).verifyLedger)
	if !errors.Is(err, errDamaged) || !strings.Contains(out, file+" at offset 24") {
		t.Errorf("verify says %v\n%s", err, out)
	}
}
