package daemon_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/musterhpc/muster/accounting/daemon"
	"github.com/musterhpc/muster/accounting/embedded/enginetest"
	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/archive"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// busy is a history of n jobs on 16 GPUs, some requeued, some still open.
func busy(t tallytest.TB, n int) []event.Envelope {
	h := tallytest.New(t, spec.AtUnix(t0))
	h.Nodes(2, 64, 512_000, 8)
	for i := range n {
		uid := h.Submit(tallytest.Ask{Name: "train", User: "alice", UID: 1001, Account: "ml", QOS: "normal", CPUs: 4, Mem: 4000, GPUs: 1})
		h.Wait(spec.Second)
		h.Start(uid, "n1")
		h.Wait(spec.Minute)
		if i%10 == 3 {
			h.Put(&event.JobEndRequested{UID: uid, Attempt: 1, Cause: event.EndRequeue, Requeue: true})
			h.Done(uid, spec.Usage{UserCPU: spec.Second}, spec.ExitStatus{Signal: 15})
			h.Requeue(uid, spec.Pending)
			h.Start(uid, "n2")
			h.Wait(spec.Second)
		}
		if i%50 != 49 || i > 300 {
			h.Finish(uid, spec.Usage{UserCPU: 50 * spec.Second, HasRSS: true, PeakRSS: 1 << 30})
		}
	}
	return h.Log
}

// rows asks the store how many rows of each table a reader sees.
func (r *rig) rows() string {
	r.t.Helper()
	pos, err := r.store.Position(context.Background(), tallytest.LedgerID)
	if err != nil {
		r.t.Fatal(err)
	}
	var b strings.Builder
	for _, table := range []string{"events", "jobs", "steps", "job_nodes", "job_gpus", "node_states", "pending_reasons"} {
		key := "seq, uid"
		if table == "node_states" {
			key = "seq, node"
		}
		q := query.Query{SQL: fmt.Sprintf("SELECT count(), uniqExact(%s) FROM %s.%s WHERE seq <= %d", key, r.store.Database(), table, pos.Seq)}
		var n, distinct uint64
		if err := r.store.Query(context.Background(), q, func(scan func(...any) error) error { return scan(&n, &distinct) }); err != nil {
			r.t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %d/%d ", table, n, distinct)
	}
	fmt.Fprintf(&b, "at %d", pos.Seq)
	return b.String()
}

// want says what rows should answer.
func want(t testing.TB, log []event.Envelope) string {
	ta := tally.New()
	for i := range log {
		if err := ta.Apply(&log[i]); err != nil {
			t.Fatal(err)
		}
	}
	b := ta.Take()
	gpus := map[[2]uint64]bool{}
	for _, g := range b.GPUs {
		gpus[[2]uint64{g.Seq, g.UID}] = true
	}
	return fmt.Sprintf("events %d/%d jobs %d/%d steps %d/%d job_nodes %d/%d job_gpus %d/%d node_states %d/%d pending_reasons %d/%d at %d",
		len(b.Events), len(b.Events), len(b.Jobs), len(b.Jobs), len(b.Steps), len(b.Steps), len(b.Nodes), len(b.Nodes), len(b.GPUs), len(gpus),
		len(b.NodeStates), len(b.NodeStates), len(b.Reasons), len(b.Reasons), log[len(log)-1].Seq)
}

// TestEngineKilled kills the engine over and over while the ledger is stored:
// nothing is missing and nothing is there twice.
func TestEngineKilled(t *testing.T) {
	engine := startEngine(t)
	log := busy(t, 600)
	ledger := newLedger(t)
	r := newRig(t, engine.Socket(), ledger)
	r.cfg.BatchRows = 300
	var batches atomic.Int64
	confirm := r.cfg.Confirm
	r.cfg.Confirm = func(p daemon.Progress) {
		if n := batches.Add(1); n%7 == 3 && n < 40 {
			kill(t, engine.PID)
		}
		confirm(p)
	}
	r.cfg.Log = nil // it has much to say
	ledger.add(t, log, 20)
	r.start()
	r.stored(log[len(log)-1].Seq)
	if got, want := r.rows(), want(t, log); got != want {
		t.Errorf("after %d deaths of the engine\nwant %s\ngot  %s", engine.Restarts(), want, got)
	}
	if engine.Restarts() == 0 {
		t.Error("the engine never died")
	}
	if s := r.Status(); !s.Up || s.Lag != 0 || s.Seq != s.Head || s.Error != nil || s.Batches == 0 {
		t.Errorf("%+v", s)
	}
}

// TestFarBehind: what the store is far behind goes into large batches, the
// last of it into ordinary ones, and all of it is there.
func TestFarBehind(t *testing.T) {
	engine := startEngine(t)
	log := busy(t, 800)
	ledger := newLedger(t)
	ledger.add(t, log, 10)
	r := newRig(t, engine.Socket(), ledger)
	r.cfg.BatchRows = 100
	r.start()
	r.stored(log[len(log)-1].Seq)
	if got, want := r.rows(), want(t, log); got != want {
		t.Errorf("\nwant %s\ngot  %s", want, got)
	}
	if n, usual := r.Status().Batches, uint64(len(log)/100); n > usual/2 || n < usual/8 {
		t.Errorf("%d events took %d batches; ordinary ones would be %d", len(log), n, usual)
	}
}

// TestRestarts stops the service at many points and starts it again: it goes
// on from its last snapshot, and the history before that is not needed.
func TestRestarts(t *testing.T) {
	engine := startEngine(t)
	log := busy(t, 400)
	ledger := newLedger(t)
	keep := uint64(0)
	for at := 0; at < len(log); at += 777 {
		ledger.add(t, log[at:min(at+777, len(log))], 9)
		r := newRig(t, engine.Socket(), ledger)
		r.cfg.BatchRows, r.cfg.SnapshotEvery = 400, 300
		r.start()
		head, _ := ledger.Head()
		r.stored(head)
		r.stop()
		close(r.keep)
		for p := range r.keep {
			if p.Keep < keep || p.Keep > p.Seq+1 {
				t.Fatalf("it wants the ledger from event %d after it wanted it from %d; stored is %d", p.Keep, keep, p.Seq)
			}
			keep = p.Keep
		}
		for len(ledger.entries) > 0 && ledger.entries[0].Last < keep {
			ledger.entries = ledger.entries[1:] // the history may be dropped
		}
		if at+777 >= len(log) {
			if got, want := r.rows(), want(t, log); got != want {
				t.Errorf("\nwant %s\ngot  %s", want, got)
			}
		}
	}
	if keep < uint64(len(log))-900 {
		t.Errorf("the history is needed from event %d of %d", keep, len(log))
	}
}

// TestAway: without a store the service answers that, falls behind, says so,
// and catches up when the store is there.
func TestAway(t *testing.T) {
	enginetest.Need(t)
	log := busy(t, 50)
	ledger := newLedger(t)
	ledger.add(t, log, 10)
	engine := startEngine(t)
	r := newRig(t, engine.Socket()+".not", ledger)
	r.cfg.ReadWait = spec.Millisecond
	r.cfg.Log = nil
	r.start()
	for r.Status().Error == nil {
		if t.Context().Err() != nil {
			t.Fatal("no error")
		}
	}
	s := r.Status()
	if s.Up || s.Seq != 0 || s.Head != uint64(len(log)) || s.Lag <= 0 {
		t.Errorf("%+v", s)
	}
	_, err := r.Service().Jobs(t.Context(), &apiv1.AcctQuery{})
	if spec.CodeOf(err) != spec.CodeDatabaseUnreachable {
		t.Errorf("sacct: %v", err)
	}
	st, err := r.Service().Status(t.Context(), nil)
	if err != nil || st.GetUp() || st.GetError() == "" || st.GetStore() != "embedded" {
		t.Errorf("status: %v %v", st, err)
	}
	r.stop()

	// And away in the middle: the engine is stopped and started again.
	r = newRig(t, engine.Socket(), ledger)
	r.cfg.Log = nil
	r.start()
	r.stored(uint64(len(log)))
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
	ledger.add(t, busy(t, 120)[len(log):], 10) // the same history, longer
	for r.Status().Up {
		if t.Context().Err() != nil {
			t.Fatal("the store went away and nobody noticed")
		}
	}
	if s := r.Status(); s.Lag <= 0 || s.Head-s.Seq == 0 {
		t.Errorf("%+v", s)
	}
}

// TestBehind: a question that names an event waits for it, and says how many
// are missing when they do not come.
func TestBehind(t *testing.T) {
	log := busy(t, 20)
	ledger := newLedger(t)
	ledger.add(t, log, 10)
	r := newRig(t, startEngine(t).Socket(), ledger)
	r.cfg.ReadWait = 20 * spec.Millisecond
	r.start()
	r.stored(uint64(len(log)))
	reply, err := r.Service().Jobs(t.Context(), &apiv1.AcctQuery{MinSeq: uint64(len(log)) + 5})
	if err != nil || reply.GetBehind() != 5 || reply.GetSeq() != uint64(len(log)) {
		t.Errorf("behind %d at %d: %v", reply.GetBehind(), reply.GetSeq(), err)
	}
	rep, err := r.Service().Report(t.Context(), &apiv1.ReportQuery{Report: "user top", MinSeq: uint64(len(log)) + 2})
	if err != nil || rep.GetBehind() != 2 {
		t.Errorf("behind %d: %v", rep.GetBehind(), err)
	}
}

// TestGenerations: when many live rows have been replaced a new generation
// begins, and questions in between see every open job once.
func TestGenerations(t *testing.T) {
	h := tallytest.New(t, spec.AtUnix(t0))
	h.Nodes(2, 64, 512_000, 8)
	var uids []spec.JobUID
	for range 300 {
		uids = append(uids, h.Submit(tallytest.Ask{Name: "wait", User: "bob", Account: "ml", CPUs: 1}))
	}
	ledger := newLedger(t)
	ledger.add(t, h.Log, 50)
	r := newRig(t, startEngine(t).Socket(), ledger)
	r.cfg.Interval, r.cfg.LiveRows = spec.Microsecond, 100
	r.start()
	at := len(h.Log)
	r.stored(uint64(at))
	first, err := r.store.Position(t.Context(), tallytest.LedgerID)
	if err != nil {
		t.Fatal(err)
	}
	// Each round changes the reason of every job.
	for round := range 120 {
		ev := &event.ReasonsChanged{}
		for _, uid := range uids {
			ev.Jobs = append(ev.Jobs, event.JobReason{UID: uid, Reason: spec.Reason{Code: spec.ReasonResources, Asked: int64(round)}})
		}
		h.Put(ev)
		ledger.add(t, h.Log[at:], 1)
		at = len(h.Log)
		if round%40 == 0 {
			r.stored(uint64(at))
			if n := len(r.acct(&apiv1.AcctQuery{AllUsers: true, AllocationsOnly: true, Start: 1})); n != len(uids) {
				t.Fatalf("round %d: %d of %d open jobs", round, n, len(uids))
			}
		}
	}
	r.stored(uint64(at))
	// The tables of the generations before go, but for the last. They go after
	// the position is written, so the answer that it is stored may come before.
	gens := uint64(3)
	q := query.Query{SQL: "SELECT uniqExact(gen) FROM " + r.store.Database() + ".live"}
	for tries := 0; gens > 2; tries++ {
		if err := r.store.Query(t.Context(), q, func(scan func(...any) error) error { return scan(&gens) }); err != nil || tries > 2000 {
			t.Fatalf("%d generations are kept: %v", gens, err)
		}
	}
	last, err := r.store.Position(t.Context(), tallytest.LedgerID)
	if err != nil {
		t.Fatal(err)
	}
	if last.Gen == first.Gen {
		t.Errorf("generation %d to the end; %+v", first.Gen, r.Status())
	}
	if n := len(r.acct(&apiv1.AcctQuery{AllUsers: true, AllocationsOnly: true, Start: 1})); n != len(uids) {
		t.Errorf("%d of %d open jobs", n, len(uids))
	}
}

// archiveSource is the archive as a Source, as musterd wires it.
type archiveSource struct {
	a  *archive.Archive
	at spec.Instant
}

func (s archiveSource) Head() (uint64, spec.Instant) { return s.a.Stats().LastSeq, s.at }

func (s archiveSource) Epochs(context.Context) ([]state.Epoch, uint64, error) {
	return nil, s.a.Stats().LastSeq, nil
}

func (s archiveSource) Open(_ context.Context, seq uint64) (daemon.Cursor, error) {
	it, err := s.a.Reader(seq)
	if err != nil {
		return nil, err
	}
	return archiveCursor{it}, nil
}

type archiveCursor struct{ it *archive.Iterator }

func (c archiveCursor) Next(ctx context.Context) (daemon.Entry, error) {
	r, err := c.it.Follow(ctx)
	return daemon.Entry{First: r.FirstSeq, Last: r.LastSeq, Events: r.Batch}, err
}

// TestArchive reads the real archive, while it grows.
func TestArchive(t *testing.T) {
	log := busy(t, 100)
	a, err := archive.Open(t.TempDir(), archive.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close() })
	ledger := newLedger(t)
	ledger.add(t, log, 13)
	r := newRig(t, startEngine(t).Socket(), ledger)
	r.cfg.Source = archiveSource{a, log[len(log)-1].At}
	r.start()
	for i, e := range ledger.entries {
		if err := a.Append(uint64(i+1), e.First, e.Last, e.Events); err != nil {
			t.Fatal(err)
		}
	}
	r.stored(uint64(len(log)))
	if got, want := r.rows(), want(t, log); got != want {
		t.Errorf("\nwant %s\ngot  %s", want, got)
	}
}
