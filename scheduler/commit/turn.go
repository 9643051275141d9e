package commit

import (
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// Run is one attempt of a job as an agent knows it.
type Run struct {
	UID     spec.JobUID
	Attempt uint32
}

// Turn is a proposal: a suspended job goes on, and those that had its CPUs are
// suspended instead.
type Turn struct {
	UID     spec.JobUID
	Attempt uint32
	Instead []Run
}

// TakeTurn suspends some jobs and lets another go on.
func (d Changes) TakeTurn(turn *Turn) error {
	for _, r := range turn.Instead {
		if err := d.Emit(&event.JobSuspended{UID: r.UID, Attempt: r.Attempt, Yields: true, Auto: true}); err != nil {
			return err
		}
	}
	return d.Emit(&event.JobResumed{UID: turn.UID, Attempt: turn.Attempt})
}

// ExceedsPartitionCPUs tells whether the MaxCPUsPerNode of its partition keeps a suspended
// job from going on: others have its share, but for those that are to leave.
func ExceedsPartitionCPUs(st *state.State, job *state.Job, leave []Run) bool {
	part := st.Parts.Find(job.Alloc.Partition)
	if part == nil || part.Spec.MaxCPUsPerNode == 0 || job.Alloc.Whole {
		return false
	}
	for i := range job.Alloc.Nodes {
		alloc := &job.Alloc.Nodes[i]
		node := st.NodeByID(alloc.ID)
		if job.Done.Has(i) || node == nil {
			continue
		}
		sum := int64(alloc.CPUs.Count())
		for _, uid := range node.Jobs {
			o := st.Job(uid)
			if uid != job.UID && !o.Yields && o.Alloc.Partition == job.Alloc.Partition &&
				!slices.ContainsFunc(leave, func(r Run) bool { return r.UID == uid }) {
				sum += int64(o.Alloc.Nodes[o.Alloc.Index(alloc.ID)].CPUs.Count())
			}
		}
		if sum > part.Spec.MaxCPUsPerNode {
			return true
		}
	}
	return false
}
