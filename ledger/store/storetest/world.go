package storetest

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/accounting/tally/tallytest"
	"github.com/musterhpc/muster/ledger/archive"
	"github.com/musterhpc/muster/ledger/blob"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/store"
	"github.com/musterhpc/muster/spec"
)

// World is a history of jobs, each batch of it in a file of its own.
type World struct {
	*store.Keeper
	t       *testing.T
	History *tallytest.History
	clock   time.Time
	pos     uint64
	From    uint64 // accounting's
}

// NewWorld makes a history with nodes and an account.
func NewWorld(t *testing.T) *World {
	codec, err := event.NewCodec()
	if err != nil {
		t.Fatal(err)
	}
	world := &World{t: t, clock: time.Unix(1_790_812_800, 0)}
	now := func() time.Time { return world.clock }
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
	world.History = tallytest.New(t, spec.AtUnix(world.clock.Unix()))
	world.Keeper = store.NewKeeper(store.Keeper{
		Archive:   a,
		Blobs:     store.NewBlobs(s),
		Codec:     codec,
		Retention: 30 * spec.Day,
		Now:       now,
		Log:       slog.New(slog.DiscardHandler),
		Applied:   func() (uint64, *state.State) { return world.pos, world.History.State },
		Stored:    func() uint64 { return world.From },
	})
	world.History.Nodes(1, 8, 1000, 0)
	world.History.Accounts([]string{"a"}, map[string][]string{"a": {"u"}})
	world.Archived()
	return world
}

// Archived appends what the history has new as one batch.
func (w *World) Archived() {
	w.t.Helper()
	_, done := w.Archive.Bounds()
	events := w.History.Log
	if done > 0 {
		events = events[w.Archive.Stats().LastSeq:]
	}
	data, err := w.Codec.Encode(events)
	if err != nil {
		w.t.Fatal(err)
	}
	w.pos++
	if err := w.Archive.Append(w.pos, events[0].Seq, events[len(events)-1].Seq, data); err != nil {
		w.t.Fatal(err)
	}
}

// Job submits a job with a script, in a batch of its own.
func (w *World) Job(script string) spec.JobUID {
	w.t.Helper()
	hash, err := w.Blobs.Put([]byte(script))
	if err != nil {
		w.t.Fatal(err)
	}
	uid := w.History.State.NextUID
	w.History.Put(&event.JobSubmitted{UID: uid, ID: w.History.State.NextID, Req: spec.TRES{CPU: 1, Node: 1}, Eligible: w.History.Now,
		Spec: &spec.JobSpec{
			User:       "u",
			Account:    "a",
			Partitions: []string{"batch"},
			Script:     hash,
			Size:       spec.Size{MinNodes: 1},
		}})
	w.Archived()
	return uid
}

// End cancels a job and forgets it.
func (w *World) End(uid spec.JobUID) {
	w.History.EndBy(uid, spec.Cancelled, spec.ExitStatus{}, 0)
	w.History.Put(&event.JobPurged{UIDs: []spec.JobUID{uid}})
	w.Archived()
}

// Later lets time pass.
func (w *World) Later(d time.Duration) {
	w.clock = w.clock.Add(d)
	w.History.Wait(spec.Span(d))
}

// Look lets the keeper look once.
func (w *World) Look() {
	w.t.Helper()
	// The archive seals in the background.
	for st := w.Archive.Stats(); st.Sealed < st.Segments-1; st = w.Archive.Stats() {
		<-time.After(time.Millisecond)
	}
	if err := w.RunOnce(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// Have lists which of the scripts are still there.
func (w *World) Have(scripts ...string) string {
	return strings.Join(slices.DeleteFunc(scripts, func(s string) bool { return !w.Blobs.Disk.Has(blob.Sum([]byte(s))) }), " ")
}
