package state_test

import (
	"testing"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// TestOldUpdatesLeaveTheRank: a ledger of a release that did not change the priority of jobs
// that run folds as it did there; an update that names the new priority changes it.
func TestOldUpdatesLeaveTheRank(t *testing.T) {
	st := state.New()
	apply := func(ev event.Event) {
		t.Helper()
		if err := st.Apply(&event.Envelope{Seq: st.Seq + 1, At: 1, Event: ev}); err != nil {
			t.Fatal(err)
		}
	}
	job := spec.JobSpec{Name: "a", Partitions: []string{"p"}}
	apply(&event.ClusterCreated{UUID: [16]byte{1}, Name: "test", Version: 1})
	apply(&event.ConfigAdopted{Config: &spec.Config{
		ClusterName: "test",
		Nodes:       []spec.NodeSpec{{Name: "n1", CPUs: 4, Mem: 4000}},
		Partitions:  []spec.PartitionSpec{{Name: "p", NodeNames: []string{"n1"}}},
	}})
	apply(&event.JobSubmitted{UID: 1, ID: 1, Spec: &job, Reason: spec.Reason{Code: spec.ReasonNone}})
	apply(&event.JobStarted{UID: 1, Attempt: 1, Limit: spec.Hour, Priority: 500, Alloc: &spec.Allocation{
		Partition: "p",
		Nodes:     []spec.NodeAlloc{{ID: 0, Name: "n1", CPUs: spec.FullBitset(1)}},
		TRES:      spec.TRES{CPU: 1, Node: 1},
	}})
	nicer := job
	nicer.Queue.Nice = 100
	apply(&event.JobUpdated{UID: 1, Spec: &nicer, Changed: []string{"Nice"}})
	fixed := nicer
	fixed.Queue.Priority = 9
	apply(&event.JobUpdated{UID: 1, Spec: &fixed, Changed: []string{"Priority"}})
	if got := st.Job(1).StartPrio; got != 500 {
		t.Errorf("updates of an older release left the job at priority %d, want 500", got)
	}
	ranks := uint32(9)
	apply(&event.JobUpdated{UID: 1, Spec: &fixed, Changed: []string{"Priority"}, Ranks: &ranks})
	if got := st.Job(1).StartPrio; got != 9 {
		t.Errorf("the update to priority 9 left the job at %d", got)
	}
}
