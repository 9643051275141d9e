package daemon

import (
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// TestWhoMayNoteJobs: operators note anything of any job that has been, its owner the
// comment and the exit code while the controller shows it, and others nothing.
func TestWhoMayNoteJobs(t *testing.T) {
	w := authorityWorld(t)
	text := func(s string) *string { return &s }
	comment := &apiv1.NoteJobsRequest{Uids: []uint64{1}, Comment: text("ok")}
	admin := &apiv1.NoteJobsRequest{Uids: []uint64{1}, AdminComment: text("ok")}
	code := uint32(300)
	owner := Caller{UID: 1007, GID: 1007, User: "plain"}
	w.as(owner)
	id := w.submit(&apiv1.JobSpec{Name: "a"})
	for _, tc := range []struct {
		who  Caller
		req  *apiv1.NoteJobsRequest
		want spec.Code
	}{{owner, comment, 0}, {owner, admin, spec.CodeAccessDenied}, {operatorCaller(), admin, 0}} {
		w.as(tc.who)
		if _, err := w.svc.NoteJobs(t.Context(), tc.req); spec.CodeOf(err) != tc.want {
			t.Errorf("%s: %v, want %d", tc.who.User, err, tc.want)
		}
	}
	job := w.c.View().State.Job(1)
	if uint32(job.ID) != id || job.Spec.Comment != "ok" || job.Spec.AdminComment != "ok" {
		t.Errorf("job %d has comment %q and administrator's comment %q", job.ID, job.Spec.Comment, job.Spec.AdminComment)
	}
	for name, tc := range map[string]struct {
		who  Caller
		req  *apiv1.NoteJobsRequest
		want spec.Code
	}{
		"an operator, of no job":       {operatorCaller(), &apiv1.NoteJobsRequest{Uids: []uint64{99}, Comment: text("x")}, spec.CodeInvalidJobID},
		"an operator, of none":         {operatorCaller(), &apiv1.NoteJobsRequest{Comment: text("x")}, spec.CodeBadRequest},
		"a long text":                  {operatorCaller(), &apiv1.NoteJobsRequest{Uids: []uint64{1}, Comment: text(strings.Repeat("x", maxNote+1))}, spec.CodeBadRequest},
		"an exit code that is none":    {operatorCaller(), &apiv1.NoteJobsRequest{Uids: []uint64{1}, DerivedExitCode: &code}, spec.CodeBadRequest},
		"a stranger":                   {Caller{User: "eve", UID: 666}, comment, spec.CodeAccessDenied},
		"a stranger, as administrator": {Caller{User: "eve", UID: 666}, admin, spec.CodeAccessDenied},
	} {
		w.as(tc.who)
		if _, err := w.svc.NoteJobs(t.Context(), tc.req); spec.CodeOf(err) != tc.want {
			t.Errorf("%s: %v, want %d", name, err, tc.want)
		}
	}
}
