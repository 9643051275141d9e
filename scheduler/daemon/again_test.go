package daemon

import (
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/scheduler"
)

// TestARepeatedSubmissionIsOneJob: a submission whose answer was lost is sent again
// under its number and gives the job that it made. The number is worth nothing to
// another user, and nothing without the word that it is a repetition.
func TestARepeatedSubmissionIsOneJob(t *testing.T) {
	w := start(t)
	w.as(Caller{UID: 1000, GID: 1000, User: "alice"})
	submit := func(number uint64, again bool) uint32 {
		t.Helper()
		req := &apiv1.SubmitRequest{Spec: &apiv1.JobSpec{Name: "once"}, Script: &apiv1.Blob{Data: []byte("#!/bin/sh\n")}, Request: number, Again: again}
		rep, err := w.svc.Submit(t.Context(), req)
		if err != nil {
			t.Fatal(err)
		}
		return rep.GetJobId()
	}
	first := submit(77, false)
	if second := submit(77, true); second != first {
		t.Errorf("the submission became job %d and, repeated, job %d", first, second)
	}
	if other := submit(78, true); other == first {
		t.Error("a submission that never arrived is taken for another")
	}
	if other := submit(77, false); other == first {
		t.Error("a submission that is not repeated is taken for one")
	}
	w.as(Caller{UID: 1001, GID: 1001, User: "bob"})
	if other := submit(77, true); other == first {
		t.Error("another user's number gives alice's job")
	}
	if n := w.c.View().State.Jobs.Len(); n != 4 {
		t.Errorf("%d jobs, want 4", n)
	}
	w.must(scheduler.Tick{})
}
