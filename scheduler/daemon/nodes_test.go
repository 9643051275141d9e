package daemon

import (
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// An agent that connects again writes nothing; one that was taken for lost
// comes back with one small event; a changed inventory is recorded.
func TestRegistrationIsRecordedWhenItSaysSomething(t *testing.T) {
	w := start(t)
	w.register("n1")
	seq := w.c.View().State.Seq
	w.register("n1")
	if s := w.c.View().State.Seq; s != seq {
		t.Errorf("%d events for the same inventory", s-seq)
	}
	w.must(scheduler.NodeSilent{Node: "n1", LastSeen: 1})
	seq = w.c.View().State.Seq
	w.register("n1")
	st := w.c.View().State
	if n := st.Node("n1"); n.Lost || n.Reason != "" || st.Seq != seq+1 {
		t.Errorf("lost %v, reason %q, %d events", n.Lost, n.Reason, st.Seq-seq)
	}
	inv := w.inventory("n1")
	inv.Mem += 1000
	w.must(scheduler.NodeSilent{Node: "n1", LastSeen: 1})
	w.must(scheduler.RegisterNode{Node: "n1", Inventory: inv})
	if n := w.c.View().State.Node("n1"); n.Lost || n.Reason != "" || n.Inv.Mem != inv.Mem {
		t.Errorf("lost %v, reason %q, %d MiB", n.Lost, n.Reason, n.Inv.Mem)
	}
}

// An array is still named by its number when the record that carried it has
// ended and is forgotten, as long as one of its tasks is there.
func TestArrayIsFoundWithoutItsOwnRecord(t *testing.T) {
	w := start(t)
	w.register("n1", "n2")
	id := w.submit(&apiv1.JobSpec{Array: []*apiv1.TaskRange{{First: 1, Last: 3, Step: 1}}})
	w.until("all run", func() bool { return w.count(spec.Running) == 3 })
	st := w.c.View().State
	rec := st.JobByID(spec.JobID(id))
	w.must(scheduler.Report{Node: rec.Alloc.Nodes[0].Name, Run: scheduler.Run{UID: rec.UID, Attempt: 1},
		Done: &scheduler.NodeDone{Batch: &event.StepResult{}}})
	w.must(scheduler.Policy{Events: []event.Event{&event.JobPurged{UIDs: []spec.JobUID{rec.UID}}}})
	st = w.c.View().State
	if st.JobByID(spec.JobID(id)) != nil {
		t.Fatal("the record is still there: the test shows nothing")
	}
	if all, err := findTargets(st, "1"); err != nil || len(all) != 2 {
		t.Errorf("the array: %v %v", all, err)
	}
	if one, err := findTargets(st, "1_1"); err != nil || len(one) != 1 {
		t.Errorf("a task: %v %v", one, err)
	}
	res, err := w.svc.Cancel(t.Context(), &apiv1.CancelRequest{Filter: &apiv1.JobFilter{Jobs: []string{"1"}}})
	if err != nil || len(res.GetResults()) != 2 || res.GetResults()[0].GetError() != nil {
		t.Errorf("scancel: %v %v", res, err)
	}
}
