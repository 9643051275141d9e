package daemon

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// TestHolds: an operator holds a part of a node for a pod, which everybody sees and
// a job waits for, and gives it back.
func TestHolds(t *testing.T) {
	w := start(t)
	w.register("n1", "n2")
	ask := &apiv1.HoldNodeRequest{Node: "n1", Hold: &apiv1.ForeignHold{Id: "u1", Space: "web", Owner: "p1", MilliCpu: 2735, Mem: 3417}, Gpus: 8}
	if _, err := w.svc.HoldNode(t.Context(), ask); spec.CodeOf(err) != spec.CodeAccessDenied {
		t.Errorf("a user takes a hold: %v", err)
	}
	w.as(Caller{User: "root", Admin: true})
	for range 2 { // the second answer is lost, or the first
		rep, err := w.svc.HoldNode(t.Context(), ask)
		if err != nil || len(rep.GetHold().GetGpus()) != 8 {
			t.Fatalf("%v, %v", rep, err)
		}
	}
	if _, err := w.svc.HoldNode(t.Context(), &apiv1.HoldNodeRequest{Node: "n1", Hold: &apiv1.ForeignHold{Id: "u2"}, Gpus: 1}); spec.CodeOf(err) != spec.CodeNodesBusy {
		t.Errorf("a ninth GPU: %v", err)
	}
	list, err := w.svc.ListHolds(t.Context(), &apiv1.ListHoldsRequest{})
	if err != nil || len(list.GetNodes()) != 2 {
		t.Fatalf("%v, %v", list, err)
	}
	if n := list.GetNodes()[0]; !n.GetOpen() || n.GetFreeCpus() != 5 || n.GetSpareMilli() != 265 || n.GetFreeMem() != 16000-3417 || len(n.GetFreeGpus()) != 0 || len(n.GetHolds()) != 1 {
		t.Errorf("%v", n)
	}
	again, err := w.svc.ListHolds(t.Context(), &apiv1.ListHoldsRequest{UnlessSeq: w.c.View().State.Seq})
	if err != nil || !again.GetUnchanged() || len(again.GetNodes()) != 0 {
		t.Errorf("%v, %v", again, err)
	}
	nodes, err := w.svc.ListNodes(t.Context(), &apiv1.ListNodesRequest{Nodes: []string{"n1"}})
	if err != nil || nodes.GetNodes()[0].GetState() != "MIXED" || len(nodes.GetNodes()[0].GetHolds()) != 1 {
		t.Errorf("%v, %v", nodes, err)
	}
	w.waitsFor("web/p1")
	agents := &AgentService{C: w.c}
	for _, c := range []struct {
		who  Caller
		node string
		code spec.Code
		n    int
	}{
		{Caller{Node: "n1"}, "n1", 0, 1},
		{Caller{Node: "n2"}, "n2", 0, 0},
		{Caller{Node: "n2"}, "n1", spec.CodeAccessDenied, 0},
		{Caller{User: "alice"}, "n1", spec.CodeAccessDenied, 0},
		{Caller{User: "root", Admin: true}, "n9", spec.CodeInvalidNodeName, 0},
	} {
		w.as(c.who)
		rep, err := agents.Holds(t.Context(), &apiv1.NodeHoldsRequest{Node: c.node})
		if (c.code != 0 || err != nil) && spec.CodeOf(err) != c.code || len(rep.GetHolds()) != c.n {
			t.Errorf("%+v asks for %s: %v, %v", c.who, c.node, rep, err)
		}
		if c.n > 0 && (rep.GetHolds()[0].GetId() != "u1" || len(rep.GetHolds()[0].GetGpus()) != 8) {
			t.Errorf("%v", rep)
		}
	}
	w.as(Caller{User: "root", Admin: true})
	if _, err := w.svc.ReleaseHold(t.Context(), &apiv1.ReleaseHoldRequest{Node: "n1", Id: "u1", Why: "deleted"}); err != nil {
		t.Fatal(err)
	}
	if n := w.c.View().State.Node("n1"); !n.UsedGPU.Empty() || !n.UsedCPU.Empty() || n.UsedMem != 0 {
		t.Errorf("n1 still has %+v", n.Holds)
	}
}

// Reservations open and close nodes without an event, so that while there are any
// the list is given whole.
func TestHoldsBesideReservations(t *testing.T) {
	w := start(t)
	w.register("n1")
	w.as(Caller{User: "root", Admin: true})
	resv := &apiv1.ReservationChange{Verb: apiv1.ReservationChange_CREATE, Set: []*apiv1.ConfigEntry{
		{Key: "StartTime", Value: "now"}, {Key: "Duration", Value: "60"}, {Key: "Nodes", Value: "n1"}, {Key: "Users", Value: "alice"}}}
	if _, err := w.svc.ChangeReservation(t.Context(), resv); err != nil {
		t.Fatal(err)
	}
	list, err := w.svc.ListHolds(t.Context(), &apiv1.ListHoldsRequest{UnlessSeq: w.c.View().State.Seq})
	if err != nil || list.GetUnchanged() || len(list.GetNodes()) == 0 || list.GetNodes()[0].GetOpen() {
		t.Errorf("%v, %v", list, err)
	}
}

// holdStream hands on what a watch of holds sends.
type holdStream struct {
	grpc.ServerStream
	ctx  context.Context
	sent chan *apiv1.WatchHoldsReply
}

func (s *holdStream) Context() context.Context { return s.ctx }

func (s *holdStream) Send(m *apiv1.WatchHoldsReply) error {
	s.sent <- m
	return nil
}

// watcher marks the calls of a watch, which run beside the test's own.
type watcher struct{}

// A watch tells all nodes first, then only those that changed, and how far the
// ledger has come where none did; who is no operator any more hears no more.
func TestWatchHolds(t *testing.T) {
	w := start(t)
	w.register("n1", "n2")
	var operator atomic.Bool // the watcher is one
	root, alice := Caller{User: "root", Admin: true}, Caller{UID: 1000, GID: 1000, User: "alice"}
	self := root // who makes the other calls
	w.c.deps.Identify = func(ctx context.Context) Caller {
		switch {
		case ctx.Value(watcher{}) == nil:
			return self
		case operator.Load():
			return root
		}
		return alice
	}
	s := &holdStream{ctx: context.WithValue(t.Context(), watcher{}, true), sent: make(chan *apiv1.WatchHoldsReply, 100)}
	if err := w.svc.WatchHolds(&apiv1.WatchHoldsRequest{}, s); spec.CodeOf(err) != spec.CodeAccessDenied {
		t.Errorf("a user watches holds: %v", err)
	}
	operator.Store(true)
	ended := make(chan error, 1)
	go func() { ended <- w.svc.WatchHolds(&apiv1.WatchHoldsRequest{}, s) }()
	if first := <-s.sent; len(first.GetNodes()) != 2 {
		t.Fatalf("%v", first)
	}
	// until reads on to a position, and names the nodes that were told.
	until := func(seq uint64) (told []string, last *apiv1.HeldNode) {
		for {
			m := <-s.sent
			for _, n := range m.GetNodes() {
				told = append(told, n.GetName())
				last = n
			}
			if m.GetSeq() >= seq {
				return told, last
			}
		}
	}
	ask := &apiv1.HoldNodeRequest{Node: "n2", Hold: &apiv1.ForeignHold{Id: "u1", MilliCpu: 735, Mem: 100}}
	taken, err := w.svc.HoldNode(t.Context(), ask)
	if err != nil {
		t.Fatal(err)
	}
	if told, n := until(taken.GetSeq()); len(told) != 1 || n.GetName() != "n2" || len(n.GetHolds()) != 1 || n.GetSpareMilli() != 265 {
		t.Errorf("%v %v", told, n)
	}
	given, err := w.svc.ReleaseHold(t.Context(), &apiv1.ReleaseHoldRequest{Node: "n2", Id: "u1", Why: "deleted"})
	if err != nil {
		t.Fatal(err)
	}
	if told, n := until(given.GetSeq()); len(told) != 1 || len(n.GetHolds()) != 0 {
		t.Errorf("%v %v", told, n)
	}
	self = alice
	w.submit(&apiv1.JobSpec{Hold: true})
	if told, _ := until(w.c.View().State.Seq); len(told) != 0 {
		t.Errorf("a job that runs nowhere changed %v", told)
	}
	self = root
	resv := &apiv1.ReservationChange{Verb: apiv1.ReservationChange_CREATE, Set: []*apiv1.ConfigEntry{
		{Key: "StartTime", Value: "now"}, {Key: "Duration", Value: "60"}, {Key: "Nodes", Value: "n1"}, {Key: "Users", Value: "alice"}}}
	if _, err := w.svc.ChangeReservation(t.Context(), resv); err != nil {
		t.Fatal(err)
	}
	if told, n := until(w.c.View().State.Seq); len(told) != 1 || n.GetName() != "n1" || n.GetOpen() {
		t.Errorf("the reservation closes n1: %v %v", told, n)
	}
	operator.Store(false)
	if err := <-ended; spec.CodeOf(err) != spec.CodeAccessDenied {
		t.Errorf("he is no operator any more: %v", err)
	}
}

// waitsFor submits a job that needs a GPU of n1, has its explanation name a hold,
// and cancels it.
func (w *world) waitsFor(hold string) {
	w.as(Caller{UID: 1000, GID: 1000, User: "alice"})
	id := w.submit(&apiv1.JobSpec{Name: "j", Nodes: "n1", PerNode: []*apiv1.Count{{Name: "gpu", N: 1}}, TimeLimit: int64(spec.Minute)})
	w.as(Caller{User: "root", Admin: true})
	j := func() *state.Job { return w.c.View().State.JobByID(spec.JobID(id)) }
	w.until("the job waits for resources", func() bool { return j().Reason.Code == spec.ReasonResources })
	rep, err := w.svc.Why(w.t.Context(), &apiv1.WhyRequest{Job: fmt.Sprint(id)})
	if err != nil {
		w.t.Fatal(err)
	}
	if len(rep.GetHolds()) != 1 || rep.GetHolds()[0].GetName() != hold {
		w.t.Errorf("it waits for %v, want %s", rep.GetHolds(), hold)
	}
	w.must(scheduler.Cancel{Target: scheduler.Target{UID: j().UID, Task: spec.NoTask}})
}
