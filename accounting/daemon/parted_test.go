package daemon_test

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/musterhpc/muster/accounting/tally/tallytest"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// Epochs implements daemon.Source: those of the history that was put in last.
func (l *memLedger) Epochs(context.Context) ([]state.Epoch, uint64, error) {
	head, _ := l.Head()
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.epochs), head, nil
}

// replace makes the ledger another history, as a restored controller has it.
func (l *memLedger) replace(t testing.TB, h *tallytest.History) {
	t.Helper()
	l.mu.Lock()
	l.entries = nil
	l.epochs = slices.Clone(h.State.Epochs)
	l.mu.Unlock()
	l.add(t, h.Log, 1)
}

// put submits a job.
func put(h *tallytest.History, name string) spec.JobUID {
	uid := h.Submit(tallytest.Ask{Name: name, User: "alice", UID: 1001, Account: "ml", QOS: "normal", CPUs: 2, Mem: 1000})
	h.Wait(spec.Second)
	return uid
}

// historyRig is a rig whose ledger is restored.
type historyRig struct {
	*rig
	seen []event.Position // what the controller was told
}

// shows is every run that sacct -D shows, by name and state.
func (h *historyRig) shows() string {
	h.t.Helper()
	var out []string
	for _, row := range h.acct(&apiv1.AcctQuery{AllUsers: true, Duplicates: true, AllocationsOnly: true, Start: 1}) {
		out = append(out, fmt.Sprintf("%s=%s", row.GetName(), row.GetState()))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// restart runs the service over another history until all of it is stored.
func (h *historyRig) restart(log *tallytest.History) {
	h.t.Helper()
	if h.stop != nil {
		h.stop()
	}
	h.clock.set(log.Now.Add(spec.Minute))
	h.ledger.replace(h.t, log)
	h.start()
	for head := log.State.Seq; h.Status().Seq != head || !h.Status().Up; {
		runtime.Gosched()
	}
	if bad := h.care("verify", ""); bad != nil {
		h.t.Errorf("muster accounting verify: %s", bad)
	}
}

// TestARestoredLedgerIsStoredBesideWhatWasLost restores the ledger from an older
// copy while the store has more. Both histories' runs stay, each once, also those
// that have the same job number and the same attempt in both; what ran when
// history was lost ends as a run whose end nobody saw; the controller is told; and
// when the lost history is put back it goes on too.
func TestARestoredLedgerIsStoredBesideWhatWasLost(t *testing.T) {
	engine := startEngine(t)
	h := &historyRig{rig: newRig(t, engine.Socket(), newLedger(t))}
	h.cfg.SnapshotEvery = 5
	h.cfg.Lost = func(_ context.Context, seen event.Position) error {
		h.seen = append(h.seen, seen)
		return nil
	}
	used := spec.Usage{UserCPU: spec.Second}
	first := tallytest.New(t, spec.AtUnix(t0))
	first.Put(&event.EpochBegan{Value: 11})
	first.Nodes(2, 64, 512_000, 0)
	done, waits, runs := put(first, "done"), put(first, "waits"), put(first, "runs")
	first.Start(done, "n1")
	first.Wait(spec.Minute)
	first.Finish(done, used)
	first.Start(runs, "n1")
	saved := first.Copy()

	first.Put(&event.EpochBegan{Value: 12})
	first.Start(waits, "n2")
	first.Wait(spec.Minute)
	first.Finish(waits, used)
	first.Finish(runs, used)
	ended, open, queued := put(first, "ended1"), put(first, "open1"), put(first, "queued1")
	first.Start(ended, "n1")
	first.Wait(spec.Minute)
	first.Finish(ended, used)
	first.Start(open, "n1")
	_ = queued
	h.restart(first)
	if got, want := h.shows(), "done=COMPLETED ended1=COMPLETED open1=RUNNING queued1=PENDING runs=COMPLETED waits=COMPLETED"; got != want {
		t.Fatalf("before\nwant %s\ngot  %s", want, got)
	}

	second := saved.Copy()
	second.Wait(spec.Hour)
	second.Put(&event.EpochBegan{Value: 13})
	second.Put(&event.HistoryLost{Witness: "accounting store", Seen: event.Position{Epoch: 12, Seq: first.State.Seq, NextUID: first.State.NextUID, NextID: first.State.NextID}})
	second.Start(waits, "n1")
	second.Wait(spec.Minute)
	second.Finish(waits, used)
	mine := put(second, "mine2")
	second.Start(mine, "n1")
	second.Wait(spec.Minute)
	second.Finish(mine, used)
	second.Finish(runs, used)
	h.restart(second)
	both := "done=COMPLETED ended1=COMPLETED mine2=COMPLETED open1=NODE_FAIL queued1=CANCELLED runs=COMPLETED waits=COMPLETED waits=COMPLETED"
	if got := h.shows(); got != both {
		t.Errorf("after the restore\nwant %s\ngot  %s", both, got)
	}
	want := event.Position{Epoch: 12, Seq: first.State.Seq, NextUID: first.State.NextUID, NextID: first.State.NextID}
	if len(h.seen) != 1 || h.seen[0] != want {
		t.Errorf("the controller was told of %+v, the store had seen %+v", h.seen, want)
	}
	h.restart(second) // nothing is told or closed twice
	if got := h.shows(); got != both || len(h.seen) != 1 {
		t.Errorf("after a further start, told %d times\nwant %s\ngot  %s", len(h.seen), both, got)
	}

	first.Wait(2 * spec.Hour) // the lost history is found and put back
	first.Put(&event.EpochBegan{Value: 14})
	first.Finish(open, used)
	h.restart(first)
	back := "done=COMPLETED ended1=COMPLETED mine2=COMPLETED open1=COMPLETED open1=NODE_FAIL queued1=CANCELLED queued1=PENDING runs=COMPLETED waits=COMPLETED waits=COMPLETED"
	if got := h.shows(); got != back {
		t.Errorf("after the lost history was put back\nwant %s\ngot  %s", back, got)
	}
}
