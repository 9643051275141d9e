package daemon

import (
	"context"
	"slices"
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// lostRun is a run of a history that this ledger never saw: its numbers are those
// that this ledger gives away next.
func lostRun(st interface{ Position() event.Position }) *apiv1.HeldRun {
	head := st.Position()
	return &apiv1.HeldRun{Run: &apiv1.RunKey{JobUid: uint64(head.NextUID), Attempt: 1, Step: int32(spec.StepBatch), Epoch: 0xfeed},
		JobId: uint32(head.NextID), UserId: 0, User: "root", Started: 5, Seq: head.Seq + 7}
}

// TestARestoredLedgerGivesNothingOfALostRunAway: a ledger that was restored from
// an older copy meets a node with a run that it does not know. The next job gets
// other numbers, does not run there, and its owner cannot reach that run.
func TestARestoredLedgerGivesNothingOfALostRunAway(t *testing.T) {
	w := start(t)
	run := lostRun(w.c.View().State)
	seen := &apiv1.LedgerPosition{Epoch: 0xfeed, Seq: run.GetSeq() + 3, NextJobUid: run.GetRun().GetJobUid() + 4, NextJobId: run.GetJobId() + 4}
	s, _ := w.registerAs(&apiv1.Registration{Node: "n1", Epochs: true, Seen: seen, Held: []*apiv1.HeldRun{run}, Running: []*apiv1.RunKey{run.GetRun()}})
	m := <-s.out
	if unknown := m.GetWelcome().GetUnknown(); len(unknown) != 1 || unknown[0].GetEpoch() != 0xfeed || len(m.GetWelcome().GetDesired()) != 0 {
		t.Fatalf("unknown %v, desired %v", unknown, m.GetWelcome().GetDesired())
	}
	if head := m.GetHead(); head.GetEpoch() != w.c.View().State.CurrentEpoch() || head.GetSeq() == 0 {
		t.Errorf("the agent is told the position %v", head)
	}
	st := w.c.View().State
	if n := st.Node("n1"); n.Admin != event.NodeDrain || !strings.Contains(n.Reason, "muster runs") {
		t.Errorf("the node is %v: %q", n.Admin, n.Reason)
	}
	if st.Lost == nil || st.Lost.Witness != "node n1" || w.c.View().Orphans != 1 {
		t.Errorf("lost %+v, %d orphans", st.Lost, w.c.View().Orphans)
	}
	w.c.deps.Identify = func(context.Context) Caller { return Caller{UID: 1000, GID: 1000, User: "alice"} }
	id := w.submit(&apiv1.JobSpec{Name: "mine"})
	if j := w.c.View().State.JobByID(spec.JobID(id)); id < seen.GetNextJobId() || uint64(j.UID) < seen.GetNextJobUid() {
		t.Errorf("the next job is %d with uid %d: those numbers were given away before", id, j.UID)
	}
	if _, err := w.svc.ListOrphans(t.Context(), nil); err == nil {
		t.Error("a user lists the runs of others")
	}
	w.as(Caller{User: "root", Admin: true})
	rep, err := w.svc.ListOrphans(t.Context(), nil)
	if err != nil || len(rep.GetRuns()) != 1 || rep.GetRuns()[0].GetUser() != "root" || rep.GetWitness() != "node n1" {
		t.Fatalf("%v, %v", rep, err)
	}
	name := rep.GetRuns()[0].GetRun()
	if _, err := w.svc.KillOrphans(t.Context(), &apiv1.KillOrphansRequest{Runs: []string{name, "1.1.batch.1"}}); err == nil {
		t.Error("a run that is none is killed")
	}
	if _, err := w.svc.KillOrphans(t.Context(), &apiv1.KillOrphansRequest{Runs: []string{name}}); err != nil {
		t.Fatal(err)
	}
	orders := s.orders(t)
	if k := slices.IndexFunc(orders, func(o *apiv1.Order) bool { return o.GetTerminate() != nil }); k < 0 || orders[k].GetRun().GetEpoch() != 0xfeed {
		t.Fatalf("ordered %v", orders)
	}
	go func() {
		for range s.out { // the acknowledgement
		}
	}()
	s.in <- done(1, run.GetRun())
	w.until("in service again", func() bool { return w.c.View().State.Node("n1").Admin == event.NodeResume && w.c.View().Orphans == 0 })
}

// TestAnAgentThatKnowsLessIsNoWitness: what this ledger holds is not lost, however
// old the agent's memory is.
func TestAnAgentThatKnowsLessIsNoWitness(t *testing.T) {
	w := start(t)
	head := w.c.View().State.Position()
	s, _ := w.registerAs(&apiv1.Registration{Node: "n1", Epochs: true, Seen: &apiv1.LedgerPosition{Epoch: head.Epoch, Seq: head.Seq}})
	if m := <-s.out; len(m.GetWelcome().GetUnknown()) != 0 {
		t.Errorf("%v", m)
	}
	if st := w.c.View().State; st.Lost != nil || st.Node("n1").Admin == event.NodeDrain {
		t.Errorf("lost %+v, node %v", st.Lost, st.Node("n1").Admin)
	}
}

// TestReportsOfAnotherHistoryAreStale: a run with the numbers of a job that runs
// here, but of another epoch, ends; the job does not.
func TestReportsOfAnotherHistoryAreStale(t *testing.T) {
	w := start(t)
	s, _ := w.registerAs(&apiv1.Registration{Node: "n1", Epochs: true})
	<-s.out
	w.c.deps.Identify = func(context.Context) Caller { return Caller{UID: 1000, GID: 1000, User: "alice"} }
	id := w.submit(&apiv1.JobSpec{Name: "mine"})
	run := s.orders(t)[0].GetRun()
	if run.GetEpoch() == 0 || run.GetEpoch() != w.c.View().State.CurrentEpoch() {
		t.Fatalf("the order is for %v", run)
	}
	other := &apiv1.RunKey{JobUid: run.GetJobUid(), Attempt: run.GetAttempt(), Step: run.GetStep(), Epoch: run.GetEpoch() + 1}
	s.in <- done(1, other)
	for m := range s.out {
		if m.GetAck() != nil {
			break
		}
	}
	if j := w.c.View().State.JobByID(spec.JobID(id)); j.State != spec.Running || w.c.figures.stale.Load() != 1 {
		t.Errorf("the job is %v, %d reports were stale", j.State, w.c.figures.stale.Load())
	}
}
