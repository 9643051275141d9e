package daemon

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/nodeagent/plan"
)

// TestAnAgentTellsWhatItKept: of runs that the controller does not know the agent gives back the
// order that they were started with, without script and environment, and a number above their
// steps; what it learns later, from the shepherd's list, it tells then.
func TestAnAgentTellsWhatItKept(t *testing.T) {
	b := newBench(t)
	b.welcome()
	withRecord := func(l *apiv1.Launch) {
		l.Record, l.Launch, l.Seq = []byte("record"), make([]byte, 32), 7
		l.Launch[0] = 1
	}
	fx := b.launch(key(1), withRecord)
	if len(fx.Launch) != 1 || len(fx.Launch[0].Order) == 0 {
		t.Fatalf("effects %+v", fx)
	}
	order := fx.Launch[0].Order
	b.answer(key(1), plan.Accepted, 0)
	b.core.Heard([]plan.Event{{Started: &plan.Observed{Key: key(1), JobID: 1001, State: plan.Running, PID: 100, Start: b.now}}})
	step := key(1)
	step.Step = 4
	b.core.Heard([]plan.Event{{Started: &plan.Observed{Key: step, JobID: 1001, State: plan.Running, PID: 101, Start: b.now}}})
	b.core.Welcome(&apiv1.Welcome{ClusterUuid: testCluster[:], Lost: true, Unknown: []*apiv1.RunKey{wireKey(key(1))}})
	if fx := b.core.Effects(); !fx.TellKept {
		t.Error("nothing is told after the welcome")
	}
	kept := b.core.Kept()
	if len(kept) != 1 || string(kept[0].GetOrder().GetRecord()) != "record" || len(kept[0].GetOrder().GetCredential()) == 0 ||
		len(kept[0].GetOrder().GetScript()) > 0 || kept[0].GetNextStep() != 5 {
		t.Fatalf("kept %v", kept)
	}
	// Another life without a spool: the shepherd's list has the order.
	again := newBench(t)
	again.core.Welcome(&apiv1.Welcome{ClusterUuid: testCluster[:], Lost: true, Unknown: []*apiv1.RunKey{wireKey(key(1))}})
	again.core.Effects()
	again.core.Resync([]plan.Observed{{Key: key(1), JobID: 1001, State: plan.Running, PID: 100, Start: b.now, Order: order}})
	if fx := again.core.Effects(); !fx.TellKept {
		t.Error("what the list had is not told")
	}
	if kept := again.core.Kept(); len(kept) != 1 || string(kept[0].GetOrder().GetRecord()) != "record" {
		t.Errorf("kept %v", kept)
	}
	if err := proto.Unmarshal(order, &apiv1.Launch{}); err != nil {
		t.Error(err)
	}
}

// TestAnAdoptedRunIsNeverStarted: the order for one that is here makes it wanted, and the orphan's
// grace does not end it; one that is not here is reported as lost once the shepherd has listed
// its runs, and not before.
func TestAnAdoptedRunIsNeverStarted(t *testing.T) {
	adopted := func(l *apiv1.Launch) { l.Adopted, l.Script, l.Environment = true, nil, nil }
	b := newBench(t)
	b.welcome(key(1))
	b.run(key(1))
	b.core.Welcome(&apiv1.Welcome{ClusterUuid: testCluster[:], Lost: true, Unknown: []*apiv1.RunKey{wireKey(key(1))}})
	b.core.Effects()
	b.launch(key(1), adopted)
	if !b.core.runs[key(1)].wanted || b.core.unknown[key(1)] {
		t.Error("the run is an orphan still")
	}
	b.now += 1 << 40
	b.core.Resync([]plan.Observed{{Key: key(1), JobID: 1001, State: plan.Running, PID: 100, Start: 5}})
	if fx := b.core.Effects(); len(fx.Terminate) > 0 {
		t.Errorf("it is ended: %+v", fx.Terminate)
	}

	b = newBench(t)
	b.welcome(key(1), key(2))
	fx := b.orders(b.order(key(1), adopted), b.order(key(2), adopted))
	if len(fx.Launch)+len(fx.Prepare) > 0 || !fx.List {
		t.Fatalf("effects %+v", fx)
	}
	if len(b.core.Outgoing()) > 0 {
		t.Fatal("it is reported before the shepherd was asked")
	}
	b.core.Listing()
	b.core.Resync([]plan.Observed{{Key: key(2), JobID: 1002, State: plan.Running, PID: 100, Start: 5}})
	reports := b.core.Outgoing()
	if k := slices.IndexFunc(reports, func(r *apiv1.Report) bool { return r.GetNodeDone() != nil }); k < 0 ||
		runKey(reports[k].GetRun()) != key(1) || !reports[k].GetNodeDone().GetBatch().GetUnknown() {
		t.Errorf("reported %v", reports)
	}
	if r := b.core.runs[key(2)]; r == nil || !r.wanted || r.phase != living {
		t.Errorf("the one that is here is %+v", r)
	}
}
