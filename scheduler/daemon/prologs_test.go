package daemon

import (
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

func preparedMessage(run *apiv1.RunKey) *apiv1.AgentMessage {
	return &apiv1.AgentMessage{Kind: &apiv1.AgentMessage_Prepared{Prepared: &apiv1.Prepared{Run: run}}}
}

// TestDeferBatch: the script of a job on two nodes waits until both have told that
// their prologs are over, also over a connection that is made again; that of a job on
// one node does not, and an agent that cannot tell is not waited for.
func TestDeferBatch(t *testing.T) {
	conf := testConfig()
	conf.Ctl = &spec.CtlScripts{DeferBatch: true}
	w := startDeps(t, conf, func(*Deps) {})
	first, _ := w.registerAs(&apiv1.Registration{Node: "n1", Prepares: true})
	<-first.out
	second, _ := w.registerAs(&apiv1.Registration{Node: "n2", Prepares: true})
	<-second.out
	w.as(Caller{UID: 1000, GID: 1000, User: "alice"})
	id := spec.JobID(w.submit(&apiv1.JobSpec{Name: "a", MinNodes: 2}))
	launch := first.orders(t)[0].GetLaunch()
	if !launch.GetBatch() || !launch.GetDefer() || !launch.GetTellPrepared() {
		t.Fatalf("the script's node: batch %v, deferred %v, tells %v", launch.GetBatch(), launch.GetDefer(), launch.GetTellPrepared())
	}
	if other := second.orders(t)[0].GetLaunch(); other.GetDefer() || !other.GetTellPrepared() {
		t.Errorf("the other node: deferred %v, tells %v", other.GetDefer(), other.GetTellPrepared())
	}
	run := runKey(w.c.View().State.JobByID(id))
	first.in <- preparedMessage(run)
	w.until("it is noted", func() bool {
		w.c.hub.turn.Lock()
		defer w.c.hub.turn.Unlock()
		return w.c.hub.prologs.hasProlog(w.c.View().State.JobByID(id), "n1")
	})
	again, _ := w.registerAs(&apiv1.Registration{Node: "n1", Prepares: true})
	<-again.out
	if launch := again.orders(t)[0].GetLaunch(); !launch.GetDefer() {
		t.Error("with one prolog of two over, the script is ordered")
	}
	second.in <- preparedMessage(run)
	if launch := again.orders(t)[0].GetLaunch(); launch.GetDefer() || !launch.GetBatch() || len(launch.GetScript()) == 0 {
		t.Errorf("with both prologs over, the script is not ordered: %v", launch)
	}
	// The agent answers that order with its prolog again. The second message is taken when the first
	// one has had its effect.
	again.in <- preparedMessage(run)
	again.in <- preparedMessage(run)
	w.must(scheduler.Cancel{Target: scheduler.Target{UID: spec.JobUID(run.GetJobUid()), Task: spec.NoTask}})
	if order := again.orders(t)[0]; order.GetLaunch() != nil {
		t.Error("the script is ordered again, though nothing new was said of its prologs")
	}
}
