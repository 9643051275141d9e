package fetch

import (
	"errors"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/spec"
)

// ControllerGone tells that the controller is being restarted, or is not there.
func ControllerGone(err error) bool {
	var st *rpcstatus.Error
	var gone *tool.Unreachable
	if errors.As(err, &gone) {
		return true
	}
	switch tool.ExplainError(err).Code {
	case spec.CodeStopping, spec.CodeNotLeader, spec.CodeOutcomeUnknown:
		return true
	}
	return errors.As(err, &st) && st.Number == 0 && st.Wire == rpcstatus.Unavailable
}

// JobOfRow is what an explanation needs of a job, out of its accounting row.
func JobOfRow(row *apiv1.AcctRow) *apiv1.JobInfo {
	job := &apiv1.JobInfo{
		Uid:        row.GetUid(),
		JobId:      row.GetJobId(),
		ArrayJobId: row.GetArrayJobId(),
		ArrayTask:  row.GetArrayTask(),
		User:       row.GetUser(),
		UserId:     row.GetUserId(),
		Spec: &apiv1.JobSpec{
			Name: row.GetName(),
		},
		Partition:  row.GetPartition(),
		Submit:     row.GetSubmit(),
		Start:      row.GetStart(),
		End:        row.GetEnd(),
		Nodes:      row.GetNodeList(),
		ExitCode:   row.GetExitCode(),
		ExitSignal: row.GetExitSignal(),
		TimeLimit:  row.GetTimeLimit(),
	}
	if s, ok := spec.ParseJobState(row.GetState()); ok {
		job.State = uint32(s)
	}
	return job
}
