package care

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/store"
	"github.com/musterhpc/muster/ledger/store/storetest"
	"github.com/musterhpc/muster/scheduler/daemon"
)

// careFor runs one of the commands and gives what it said.
func careFor(f *storetest.Folder, verb func(*Care) error) (string, error) {
	var out bytes.Buffer
	err := verb(&Care{State: f.Dir, Archive: filepath.Join(f.Dir, "archive"), Out: &out})
	return out.String(), err
}

// TestAFlippedByteIsRebuilt turns over a bit anywhere in the log. The controller
// refuses it and names the command; verify names the file; rebuild brings every
// event back, and the ledger goes on from there, also through a further rebuild.
func TestAFlippedByteIsRebuilt(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 7))
	for range 8 {
		f := storetest.NewFolder(t)
		if err := f.Run(func(l *log.Durable, _ *daemon.Machine, _ *store.Archive) { f.Write(l, 30) }); err != nil {
			t.Fatal(err)
		}
		if out, err := careFor(f, (*Care).VerifyLedger); err != nil || !strings.Contains(out, "0 damaged places") {
			t.Fatalf("verify of a whole ledger: %v\n%s", err, out)
		}
		segment := storetest.OnlyFile(t, filepath.Join(f.Dir, "ledger", "raft", "*.wal"))
		data, err := os.ReadFile(segment)
		if err != nil {
			t.Fatal(err)
		}
		used := int64(len(bytes.TrimRight(data, "\x00")))
		at := rnd.Int64N(used - 2000)
		storetest.FlipBit(t, segment, at)
		if err := f.Run(func(*log.Durable, *daemon.Machine, *store.Archive) {}); !errors.Is(err, log.ErrCorrupt) || !strings.Contains(err.Error(), "musterd ledger rebuild") {
			t.Fatalf("byte %d flipped: the controller says %v", at, err)
		}
		if out, err := careFor(f, (*Care).VerifyLedger); !errors.Is(err, errDamaged) || !strings.Contains(out, segment+" at offset") {
			t.Fatalf("byte %d flipped: verify says %v\n%s", at, err, out)
		}
		for round := range 2 {
			out, err := careFor(f, (*Care).rebuildLog)
			if err != nil {
				t.Fatalf("byte %d flipped: %v\n%s", at, err, out)
			}
			if got := f.Seq(); got != f.History.State.Seq {
				t.Fatalf("byte %d flipped: rebuilt up to event %d of %d\n%s", at, got, f.History.State.Seq, out)
			}
			if err := f.Run(func(l *log.Durable, _ *daemon.Machine, _ *store.Archive) { f.Write(l, 3) }); err != nil {
				t.Fatal(err)
			}
			if out, err := careFor(f, (*Care).VerifyLedger); err != nil {
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
			f := storetest.NewFolder(t)
			saved := t.TempDir()
			err := f.Run(func(l *log.Durable, _ *daemon.Machine, a *store.Archive) {
				f.Write(l, archived)
				if _, err := a.Sync(); err != nil {
					t.Fatal(err)
				}
				if err := os.CopyFS(saved, os.DirFS(filepath.Join(f.Dir, "archive"))); err != nil {
					t.Fatal(err)
				}
				f.Write(l, 20)
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := os.RemoveAll(filepath.Join(f.Dir, "archive")); err != nil {
				t.Fatal(err)
			}
			if err := os.CopyFS(filepath.Join(f.Dir, "archive"), os.DirFS(saved)); err != nil {
				t.Fatal(err)
			}
			out, err := careFor(f, (*Care).rebuildLog)
			if err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			if got := f.Seq(); got != f.History.State.Seq {
				t.Errorf("rebuilt up to event %d of %d\n%s", got, f.History.State.Seq, out)
			}
		})
	}
}

// TestADamagedArchiveIsNamed turns over bits of the archive: verify names file and
// offset of each.
func TestADamagedArchiveIsNamed(t *testing.T) {
	f := storetest.NewFolder(t)
	if err := f.Run(func(l *log.Durable, _ *daemon.Machine, _ *store.Archive) { f.Write(l, 30) }); err != nil {
		t.Fatal(err)
	}
	live := storetest.OnlyFile(t, filepath.Join(f.Dir, "archive", "segments", "*.live"))
	storetest.FlipBit(t, live, 500)
	storetest.FlipBit(t, live, 3000)
	out, err := careFor(f, (*Care).VerifyLedger)
	if !errors.Is(err, errDamaged) || strings.Count(out, live+" at offset") != 2 {
		t.Errorf("verify says %v\n%s", err, out)
	}
}

// TestADamagedContentIsNamed turns over a bit of a script: verify names file and offset.
func TestADamagedContentIsNamed(t *testing.T) {
	f := storetest.NewFolder(t)
	if err := f.Run(func(l *log.Durable, _ *daemon.Machine, _ *store.Archive) { f.Write(l, 3) }); err != nil {
		t.Fatal(err)
	}
	blobs, err := store.OpenBlobs(filepath.Join(f.Dir, "content"), slog.New(slog.DiscardHandler))
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
	out, err := careFor(f, (*Care).VerifyLedger)
	if err != nil || !strings.Contains(out, "content: 3 scripts and environments") {
		t.Fatalf("whole contents: %v\n%s", err, out)
	}
	file := storetest.OnlyFile(t, filepath.Join(f.Dir, "content", "*.blobs"))
	storetest.FlipBit(t, file, 70)
	out, err = careFor(f, (*Care).VerifyLedger)
	if !errors.Is(err, errDamaged) || !strings.Contains(out, file+" at offset 24") {
		t.Errorf("verify says %v\n%s", err, out)
	}
}
