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

// With PrivateData=jobs a user reads off the nodes which devices are held, and by which job
// only where squeue would show it to him: not by its number, and not by what struck it.
func TestNodesHideTheJobsOfOthers(t *testing.T) {
	for _, private := range [][]string{nil, {privateJobs}} {
		w := busyWorld(t, private...)
		inv := w.inventory("n1")
		for i, node := range []string{"n1", "n2"} {
			w.must(scheduler.GPUReport{Node: node, Fault: spec.GPUFault{UUID: w.inventory(node).GPUs[0].UUID, Kind: spec.GPUXID, XID: 48, Job: spec.JobUID(i + 1), Attempt: 1, At: w.c.View().State.At}})
		}
		for _, c := range []struct {
			who  Caller
			sees map[uint32]bool
		}{
			{aliceCaller, map[uint32]bool{1: true, 2: private == nil}},
			{bobCaller, map[uint32]bool{1: private == nil, 2: true}},
			{Caller{UID: 0, User: "root", Admin: true}, map[uint32]bool{1: true, 2: true}},
		} {
			w.as(c.who)
			for _, named := range [][]string{nil, {"n[1-2]"}} {
				reply, err := w.svc.ListNodes(t.Context(), &apiv1.ListNodesRequest{Nodes: named})
				if err != nil {
					t.Fatal(err)
				}
				held, struck := map[uint32]int{}, map[uint64]int{}
				for _, node := range reply.GetNodes() {
					for _, gpu := range node.GetGpus() {
						if !gpu.GetAllocated() || (gpu.GetJobId() == 0) != (gpu.GetJobUid() == 0) {
							t.Errorf("%s sees the device %v", c.who.User, gpu)
						}
						held[gpu.GetJobId()]++
					}
					for _, fault := range node.GetGpuFaults() {
						struck[fault.GetJobId()]++
						if (fault.GetJobId() == 0) != (fault.GetJobUid() == 0) {
							t.Errorf("%s sees the fault %v", c.who.User, fault)
						}
					}
				}
				for job, sees := range c.sees {
					if (held[job] == len(inv.GPUs)) != sees || (struck[uint64(job)] == 1) != sees {
						t.Errorf("with PrivateData=%v %s sees of the jobs on devices %v, of those struck %v", private, c.who.User, held, struck)
					}
				}
			}
		}
	}
}
