package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/accounting/tally/tallytest"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/archive"
	"github.com/musterhpc/muster/ledger/blob"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// keeperWorld is a history of jobs, each batch of it in a file of its own.
type keeperWorld struct {
	*keeper
	t     *testing.T
	h     *tallytest.History
	clock time.Time
	pos   uint64
	from  uint64 // accounting's
}

func newKeeperWorld(t *testing.T) *keeperWorld {
	codec, err := event.NewCodec()
	if err != nil {
		t.Fatal(err)
	}
	w := &keeperWorld{t: t, clock: time.Unix(1_790_812_800, 0)}
	now := func() time.Time { return w.clock }
	a, err := archive.Open(t.TempDir(), archive.Options{SegmentBytes: 1, Now: now})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	s, err := blob.Open(t.TempDir(), blob.Options{FileBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	w.h = tallytest.New(t, spec.AtUnix(w.clock.Unix()))
	w.keeper = &keeper{archive: a, blobs: &blobStore{s: s, waiting: map[spec.Hash][]byte{}}, codec: codec, retention: 30 * spec.Day, now: now,
		log: slog.New(slog.DiscardHandler), applied: func() (uint64, *state.State) { return w.pos, w.h.State }, stored: func() uint64 { return w.from }}
	w.h.Nodes(1, 8, 1000, 0)
	w.h.Accounts([]string{"a"}, map[string][]string{"a": {"u"}})
	w.archived()
	return w
}

// archived appends what the history has new as one batch.
func (w *keeperWorld) archived() {
	w.t.Helper()
	_, done := w.archive.Bounds()
	events := w.h.Log
	if st := w.archive.Stats(); done > 0 {
		events = events[st.LastSeq:]
	}
	data, err := w.codec.Encode(events)
	if err != nil {
		w.t.Fatal(err)
	}
	w.pos++
	if err := w.archive.Append(w.pos, events[0].Seq, events[len(events)-1].Seq, data); err != nil {
		w.t.Fatal(err)
	}
}

// job submits a job with a script, in a batch of its own.
func (w *keeperWorld) job(script string) spec.JobUID {
	w.t.Helper()
	h, err := w.blobs.Put([]byte(script))
	if err != nil {
		w.t.Fatal(err)
	}
	uid := w.h.State.NextUID
	w.h.Put(&event.JobSubmitted{UID: uid, ID: w.h.State.NextID, Req: spec.TRES{CPU: 1, Node: 1}, Eligible: w.h.Now,
		Spec: &spec.JobSpec{User: "u", Account: "a", Partitions: []string{"batch"}, Script: h, Size: spec.Size{MinNodes: 1}}})
	w.archived()
	return uid
}

func (w *keeperWorld) end(uid spec.JobUID) {
	w.h.EndBy(uid, spec.Cancelled, spec.ExitStatus{}, 0)
	w.h.Put(&event.JobPurged{UIDs: []spec.JobUID{uid}})
	w.archived()
}

func (w *keeperWorld) later(d time.Duration) {
	w.clock = w.clock.Add(d)
	w.h.Wait(spec.Span(d))
}

func (w *keeperWorld) look() {
	w.t.Helper()
	// The archive seals in the background.
	for st := w.archive.Stats(); st.Sealed < st.Segments-1; st = w.archive.Stats() {
		<-time.After(time.Millisecond)
	}
	if err := w.runOnce(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// have lists which of the scripts are still there.
func (w *keeperWorld) have(scripts ...string) string {
	return strings.Join(slices.DeleteFunc(scripts, func(s string) bool { return !w.blobs.s.Has(blob.Sum([]byte(s))) }), " ")
}

// TestRetention: nothing goes before it is old and accounting has stored it;
// then the events go, and the scripts that nothing names any more.
func TestRetention(t *testing.T) {
	w := newKeeperWorld(t)
	w.end(w.job("old"))
	waits := w.job("waits")
	w.end(w.job("again"))
	old := w.archive.Stats().LastSeq
	w.later(40 * 24 * time.Hour)
	w.end(w.job("new"))
	all := []string{"old", "waits", "again", "new"}
	gone := func(first uint64, scripts string) {
		t.Helper()
		w.look()
		if got, have := w.archive.Stats().FirstSeq, w.have(all...); got != first || have != scripts {
			t.Errorf("the history begins with event %d, want %d; scripts %q, want %q", got, first, have, scripts)
		}
	}
	gone(1, "old waits again new") // accounting has said nothing
	w.from = 3
	gone(1, "old waits again new") // and not stored the first batch
	w.retention = spec.Infinite
	w.from = old + 1
	gone(1, "old waits again new")
	w.retention = 30 * spec.Day

	// While a sweep runs a user submits an old script again: the writer finds it
	// in the store and leaves it out of the batch.
	named := w.applied
	w.applied = func() (uint64, *state.State) {
		w.blobs.Has(spec.Hash(blob.Sum([]byte("again"))))
		return named()
	}
	gone(old+1, "waits again new")
	if snaps, err := w.archive.Snapshots(); err != nil || len(snaps) != 1 || snaps[0].Seq != w.h.State.Seq {
		t.Errorf("snapshots %v, %v", snaps, err)
	}
	w.applied = named

	w.end(waits)
	w.later(40 * 24 * time.Hour)
	w.job("newest")
	all = append(all, "newest")
	w.from = w.archive.Stats().LastSeq
	gone(w.archive.Stats().LastSeq, "newest")
	if first, _ := w.archive.Bounds(); first == 1 {
		t.Error("nothing was dropped")
	}
}

// TestLogIsWhole: a log that ends before the archive is damaged, and is not
// continued: job numbers would be given twice.
func TestLogIsWhole(t *testing.T) {
	dir := t.TempDir()
	s, stop := openServer(t, dir)
	stop()
	if err := os.RemoveAll(filepath.Join(dir, "state", "ledger")); err != nil {
		t.Fatal(err)
	}
	s = &server{cfg: s.cfg, cluster: s.cluster, log: s.log}
	if err := s.openLedger(t.Context(), log.Options{}); !errors.Is(err, log.ErrCorrupt) || !strings.Contains(err.Error(), "was acknowledged") {
		t.Errorf("a log that was lost: %v", err)
	}
}

// TestRetentionWaitsForAccounting: the log is compacted behind the archive, and
// the archive goes only behind what accounting has confirmed. Whatever it says
// and however long it is away, what it needs next is there.
func TestRetentionWaitsForAccounting(t *testing.T) {
	for seed := range uint64(12) {
		rng := rand.New(rand.NewPCG(seed, 3))
		w := newKeeperWorld(t)
		var told accounted
		w.stored = told.neededFrom
		w.retention = 2 * spec.Day
		says := func(seq, keep uint64, up bool) {
			told.noteConfirmed(&apiv1.ConfirmRequest{Seq: seq, Keep: keep, Up: up})
		}
		dropped, seq, keep := 0, uint64(0), uint64(1)
		for range 40 {
			switch last := w.archive.Stats().LastSeq; rng.IntN(5) {
			case 0: // it goes on; its last snapshot is somewhere before
				seq += rng.Uint64N(last - seq + 1)
				keep += rng.Uint64N(seq + 1 - keep + 1)
				says(seq, keep, true)
			case 1: // its store is away
				says(seq, keep, false)
			case 2: // nobody has heard of it since the controller's start, or it has none yet
				if told = (accounted{}); rng.IntN(2) == 0 {
					says(0, 0, false)
				}
			default:
				w.end(w.job(fmt.Sprint(seed, last)))
				w.later(time.Duration(rng.IntN(100)) * time.Hour)
			}
			before, known := w.archive.Stats().FirstSeq, told.neededFrom()
			w.look()
			first := w.archive.Stats().FirstSeq
			if first != before {
				dropped++
			}
			if first > before && first > known {
				t.Fatalf("seed %d: accounting needs the history from event %d, the controller had heard %d; it begins with %d now", seed, keep, known, first)
			}
			if _, err := (ledgerSource{a: w.archive}).Open(t.Context(), keep); err != nil {
				t.Fatalf("seed %d: from event %d: %v", seed, keep, err)
			}
		}
		if dropped == 0 && seed == 0 {
			t.Error("nothing was ever dropped")
		}
	}
}

// TestConfirmedBeyondWhatIsStored: a report that asks for less history than it
// has stored is not believed.
func TestConfirmedBeyondWhatIsStored(t *testing.T) {
	var told accounted
	for _, c := range []struct{ seq, keep, want uint64 }{{0, 0, 0}, {10, 4, 4}, {10, 11, 11}, {10, 12, 11}, {0, 7, 1}} {
		told.noteConfirmed(&apiv1.ConfirmRequest{Seq: c.seq, Keep: c.keep})
		if got := told.neededFrom(); got != c.want {
			t.Errorf("stored %d, needs %d: %d, want %d", c.seq, c.keep, got, c.want)
		}
	}
}
