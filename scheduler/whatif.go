package scheduler

import (
	"errors"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/pass"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// Answer is a predicted start.
type Answer struct {
	Start     spec.Instant
	Nodes     []spec.NodeID
	Partition string
	CPUs      int64
	Reason    spec.Reason // why it would wait, if it does
}

// tryOut submits a job on a fork and runs a pass over it.
func tryOut(
	cluster *state.State, cmd Submit, now spec.Instant, actor event.Actor,
) (*Answer, error) {
	t := trial.On(cluster.Fork(), now, actor, "test-only")
	result, err := Decide(t, cmd)
	if err != nil {
		return nil, err
	}
	answer := &Answer{Start: t.Now}
	parts := []*state.Job{t.Job(result.UID)}
	if len(cmd.Rest) > 0 {
		parts = t.Components(parts[0])
	}
	outcome, err := Pass(t.Freeze(), t.Now, PassOptions{})
	if err != nil {
		return nil, err
	}
	for _, job := range parts {
		found := false
		for i := range outcome.Starts {
			if start := &outcome.Starts[i]; start.UID == job.UID {
				answer.Nodes, answer.Partition = append(
					answer.Nodes,
					pass.NodeIDs(start.Alloc)...), start.Alloc.Partition
				answer.CPUs, found = answer.CPUs+start.Alloc.TRES.CPU, true
			}
		}
		if found {
			continue
		}
		for _, r := range outcome.Reasons {
			if r.UID == job.UID {
				answer.Reason = r.Reason
			}
		}
		planned := outcome.Plan.Of(job.UID)
		if planned == nil {
			return answer, ErrNoStart
		}
		answer.Start = planned.Start
		answer.Nodes = append(answer.Nodes, planned.Nodes...)
		answer.Partition = planned.Partition
		answer.CPUs += job.Req.CPU
	}
	return answer, nil
}

// TestOnly answers --test-only: when and where a job would start if it were
// submitted now. Nothing is stored.
func TestOnly(
	cluster *state.State, cmd Submit, now spec.Instant, actor event.Actor,
) (*Answer, error) {
	return tryOut(cluster, cmd, now, actor)
}

// ErrNoStart tells that no start can be predicted for a job.
var ErrNoStart = errors.New(
	"no start can be predicted: the job waits for something other than resources",
)
