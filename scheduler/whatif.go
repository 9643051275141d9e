package scheduler

import (
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
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
func tryOut(st *state.State, js *spec.JobSpec, now spec.Instant, actor event.Actor) (*Answer, error) {
	t := trial.On(st.Fork(), now, actor, "test-only")
	res, err := Decide(t, Submit{Spec: js})
	if err != nil {
		return nil, err
	}
	req := t.Job(res.UID).Req.CPU
	out, err := Pass(t.Freeze(), t.Now, PassOptions{})
	if err != nil {
		return nil, err
	}
	for i := range out.Starts {
		if s := &out.Starts[i]; s.UID == res.UID {
			return &Answer{Start: t.Now, Nodes: nodeIDs(s.Alloc), Partition: s.Alloc.Partition, CPUs: s.Alloc.TRES.CPU}, nil
		}
	}
	a := &Answer{CPUs: req}
	for _, r := range out.Reasons {
		if r.UID == res.UID {
			a.Reason = r.Reason
		}
	}
	p := out.Plan.Of(res.UID)
	if p == nil {
		return a, ErrNoStart
	}
	a.Start, a.Nodes, a.Partition = p.Start, p.Nodes, p.Partition
	return a, nil
}
