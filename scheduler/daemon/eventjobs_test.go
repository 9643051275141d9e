package daemon

import (
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// TestEventJobsWithoutAState: what a reader knows of jobs is the same with the state
// that he holds and without, and what has been read since counts more.
func TestEventJobsWithoutAState(t *testing.T) {
	w := start(t)
	w.submit(&apiv1.JobSpec{Name: "one", Hold: true})
	w.submit(&apiv1.JobSpec{Name: "many", Hold: true, Array: []*apiv1.TaskRange{{First: 1, Last: 3, Step: 1}}})
	st := w.c.View().State
	with, without := newEventJobs(st), newEventJobs(st)
	for _, d := range []*eventJobs{with, without} {
		d.noteEvent(&event.ArrayTaskSplit{Array: 2, Task: 2, UID: 3, ID: 3})
		d.noteEvent(&event.JobUpdated{UID: 1, Spec: &spec.JobSpec{Account: "moved"}})
	}
	without.releaseState()
	if without.base != nil {
		t.Error("the state is still held")
	}
	names := map[spec.JobUID]string{1: "1", 2: "2", 3: "2_2"}
	for uid := spec.JobUID(1); uid <= 4; uid++ {
		a, known := with.findJob(uid)
		b, still := without.findJob(uid)
		if a != b || known != still || known != (names[uid] != "") || known && a.displayName() != names[uid] {
			t.Errorf("job %d: %+v %v with the state, %+v %v without, want %q", uid, a, known, b, still, names[uid])
		}
	}
	if j, _ := without.findJob(1); j.account != "moved" || j.user != "alice" {
		t.Errorf("job 1 is %+v", j)
	}
	without.forgetEnded(&event.JobPurged{UIDs: []spec.JobUID{1}})
	if _, known := without.findJob(1); known {
		t.Error("a job that was purged is known")
	}
	without.rebaseOn(st)
	if j, _ := without.findJob(1); j.account == "moved" {
		t.Error("what was read counts more than the state that holds it all")
	}
}
