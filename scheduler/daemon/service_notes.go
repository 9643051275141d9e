package daemon

import (
	"context"
	"fmt"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// Bounds of a request that notes something of jobs.
const (
	maxNotedJobs = 10_000
	maxNote      = 16 << 10 // bytes of one text
)

// NoteJobs changes what is said of jobs. The controller forgets a job some minutes after
// its end and then knows only that there was one, so that from then on operators alone
// may: whose job it was is for accounting to say, which the caller has asked.
func (s *jobCalls) NoteJobs(
	ctx context.Context,
	req *apiv1.NoteJobsRequest,
) (*apiv1.NoteJobsReply, error) {
	caller, actor, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	if n := len(req.GetUids()); n == 0 || n > maxNotedJobs {
		return nil, spec.Refuse(
			spec.CodeBadRequest,
			fmt.Sprintf("%d jobs in one request: between 1 and %d are allowed", n, maxNotedJobs),
		)
	}
	note := event.JobNoted{
		Comment: req.Comment,
		Admin:   req.AdminComment,
		System:  req.SystemComment,
		Extra:   req.Extra,
	}
	for _, text := range [...]*string{note.Comment, note.Admin, note.System, note.Extra} {
		if text != nil && len(*text) > maxNote {
			return nil, spec.Refuse(
				spec.CodeBadRequest,
				fmt.Sprintf("a text of %d bytes: %d are allowed", len(*text), maxNote),
			)
		}
	}
	if req.DerivedExitCode != nil {
		if req.GetDerivedExitCode() > 255 {
			return nil, spec.Refuse(
				spec.CodeBadRequest,
				fmt.Sprintf("exit code %d: 0 to 255 are allowed", req.GetDerivedExitCode()),
			)
		}
		note.Derived = &spec.ExitStatus{Code: int32(req.GetDerivedExitCode())}
	}
	cmd := scheduler.NoteJobs{Note: note}
	if cmd.UIDs, err = s.notableJobs(caller, req); err != nil {
		return nil, err
	}
	rep := s.commitCommand(ctx, &request{cmd: cmd, actor: actor})
	if rep.err != nil {
		return nil, rep.err
	}
	return &apiv1.NoteJobsReply{Seq: s.currentView().State.Seq}, nil
}

// notableJobs are the jobs of a request, of which the caller may change what it names.
func (s *jobCalls) notableJobs(
	caller Caller,
	req *apiv1.NoteJobsRequest,
) ([]spec.JobUID, error) {
	operator := s.isOperator(caller)
	if !operator && (req.AdminComment != nil || req.SystemComment != nil || req.Extra != nil) {
		return nil, spec.Refuse(
			spec.CodeAccessDenied,
			"only an operator may change AdminComment, SystemComment and Extra",
		)
	}
	view := s.currentView()
	var uids []spec.JobUID
	for _, n := range req.GetUids() {
		uid := spec.JobUID(n)
		job := view.State.Job(uid)
		if !operator && job == nil {
			return nil, spec.Refuse(
				spec.CodeAccessDenied,
				"the controller has forgotten a job that ended more than MinJobAge ago; an operator may change it",
			)
		}
		if !operator && job.Spec.UID != caller.UID {
			return nil, spec.Refuse(spec.CodeAccessDenied, "only operators may change the jobs of others")
		}
		uids = append(uids, uid)
	}
	return uids, nil
}
