package daemon

import (
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// A node that was given up comes back with the old attempt: its agent is told at
// once to end it, and the job starts again only when that is reported.
func TestGivenUpRunIsStoppedFirst(t *testing.T) {
	w := start(t)
	first, _ := w.connect("n1")
	<-first.out
	w.as(Caller{UID: 1000, GID: 1000, User: "alice"})
	id := spec.JobID(w.submit(&apiv1.JobSpec{Name: "a"}))
	old := first.orders(t)[0].GetRun()
	w.must(scheduler.NodeSilent{Node: "n1", LastSeen: 1})
	w.register("n2")
	w.until("it waits for the fence", func() bool {
		return w.c.View().State.JobByID(id).Reason.Code == spec.ReasonFencingWait
	})
	back, _ := w.connect("n1")
	if m := (<-back.out).GetWelcome(); len(m.GetDesired()) != 1 || m.GetDesired()[0].GetAttempt() != old.GetAttempt() {
		t.Errorf("the agent is not told of the run: %v", m.GetDesired())
	}
	orders := back.orders(t)
	if len(orders) != 1 || orders[0].GetTerminate() == nil || orders[0].GetRun().GetAttempt() != old.GetAttempt() {
		t.Fatalf("orders %v", orders)
	}
	if j := w.c.View().State.JobByID(id); j.State != spec.Pending || j.Unfenced != 1 {
		t.Errorf("before its end: %s, %d nodes unfenced", j.State, j.Unfenced)
	}
	back.in <- done(1, orders[0].GetRun())
	w.until("it runs again", func() bool { return w.c.View().State.JobByID(id).State == spec.Running })
	if j := w.c.View().State.JobByID(id); j.Attempt != 2 || j.Unfenced != 0 {
		t.Errorf("attempt %d, %d nodes unfenced", j.Attempt, j.Unfenced)
	}
}

// An operator said that the node was fenced, and was wrong: when its agent is back
// with the old attempt while the next one runs, that is killed without grace.
func TestOutlivedRunIsKilled(t *testing.T) {
	w := start(t)
	first, _ := w.connect("n1")
	<-first.out
	w.as(Caller{UID: 1000, GID: 1000, User: "alice"})
	id := spec.JobID(w.submit(&apiv1.JobSpec{Name: "a"}))
	old := first.orders(t)[0].GetRun()
	w.must(scheduler.NodeSilent{Node: "n1", LastSeen: 1})
	w.must(scheduler.DeclareFenced{Nodes: []string{"n1"}})
	w.register("n2")
	w.until("it runs elsewhere", func() bool { return w.c.View().State.JobByID(id).State == spec.Running })
	reg := &apiv1.Registration{Node: "n1", Epochs: true, Running: []*apiv1.RunKey{old}}
	conn := newAgentConn(reg)
	w.c.hub.attachConn(conn, reg)
	orders := conn.take().orders
	if len(orders) != 1 || orders[0].GetTerminate() == nil || orders[0].GetTerminate().GetGrace() != 0 || orders[0].GetRun().GetAttempt() != old.GetAttempt() {
		t.Errorf("orders %v", orders)
	}
}

// A node whose agent says that it can start nothing gets no jobs at once, whatever
// else the agent says, until a heartbeat says that it can again. After SlurmdTimeout
// it is as good as silent.
func TestUnreadyNode(t *testing.T) {
	w := start(t)
	s, _ := w.connect("n1")
	<-s.out
	beat := func(unready string) {
		s.in <- &apiv1.AgentMessage{Kind: &apiv1.AgentMessage_Heartbeat{Heartbeat: &apiv1.Heartbeat{Unready: unready}}}
	}
	beat("the shepherd has not answered for 11 s")
	w.until("it is not responding", func() bool { return w.c.View().State.Node("n1").Lost })
	n := w.c.View().State.Node("n1")
	if n.Usable() || n.Reason != "Not responding: the shepherd has not answered for 11 s" || n.ReasonBy.Kind != event.ActorSystem {
		t.Errorf("usable %v, reason %q", n.Usable(), n.Reason)
	}
	s.in <- done(1, &apiv1.RunKey{JobUid: 77, Attempt: 1})
	for range 2 { // the second is taken once the first has been dealt with
		beat("the shepherd has not answered for 12 s")
	}
	if !w.c.View().State.Node("n1").Lost {
		t.Error("a report made the node ready")
	}
	beat("")
	w.until("it is back", func() bool { return w.c.View().State.Node("n1").Usable() })
}
