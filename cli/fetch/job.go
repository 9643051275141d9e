package fetch

import (
	"errors"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/internal/transport/status"
	"github.com/musterhpc/muster/spec"
)

// ControllerGone tells that the controller is being restarted, or is not there.
func ControllerGone(err error) bool {
	var st *status.Error
	var gone *tool.Unreachable
	if errors.As(err, &gone) {
		return true
	}
	switch tool.ExplainError(err).Code {
	case spec.CodeStopping, spec.CodeNotLeader, spec.CodeOutcomeUnknown:
		return true
	}
	return errors.As(err, &st) && st.Number == 0 && st.Wire == status.Unavailable
}

// JobOfRow is what an explanation needs of a job, out of its accounting row.
func JobOfRow(r *apiv1.AcctRow) *apiv1.JobInfo {
	j := &apiv1.JobInfo{Uid: r.GetUid(), JobId: r.GetJobId(), ArrayJobId: r.GetArrayJobId(), ArrayTask: r.GetArrayTask(), User: r.GetUser(), UserId: r.GetUserId(),
		Spec: &apiv1.JobSpec{Name: r.GetName()}, Partition: r.GetPartition(), Submit: r.GetSubmit(), Start: r.GetStart(), End: r.GetEnd(),
		Nodes: r.GetNodeList(), ExitCode: r.GetExitCode(), ExitSignal: r.GetExitSignal(), TimeLimit: r.GetTimeLimit()}
	if s, ok := spec.ParseJobState(r.GetState()); ok {
		j.State = uint32(s)
	}
	return j
}
