package commit

import (
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// Run names one attempt of a job.
type Run struct {
	UID     spec.JobUID
	Attempt uint32
}

// Turn proposes that a suspended job resume, and that the jobs which now have its CPUs be suspended
// for it. There are such jobs where jobs take turns (PreemptMode=GANG); after a preemption by
// suspension the CPUs are free.
type Turn struct {
	UID     spec.JobUID
	Attempt uint32
	Suspend []Run
}

// TakeTurn suspends and resumes the jobs of a turn.
func (d Changes) TakeTurn(turn *Turn) error {
	for _, run := range turn.Suspend {
		suspended := &event.JobSuspended{
			UID:     run.UID,
			Attempt: run.Attempt,
			Yields:  true,
			Auto:    true,
		}
		if err := d.Emit(suspended); err != nil {
			return err
		}
	}
	return d.Emit(&event.JobResumed{UID: turn.UID, Attempt: turn.Attempt})
}

// ExceedsPartitionCPUs tells whether a suspended job would exceed MaxCPUsPerNode of its partition
// on some node if it resumed. Suspended jobs that yield their CPUs do not count, and neither do
// those in leave, which are about to. A job with whole nodes (--exclusive) is free of the limit.
func ExceedsPartitionCPUs(cluster *state.State, job *state.Job, leave []Run) bool {
	part := cluster.Parts.Find(job.Alloc.Partition)
	if part == nil || part.Spec.MaxCPUsPerNode == 0 || job.Alloc.Whole {
		return false
	}
	leaves := func(uid spec.JobUID) bool {
		return slices.ContainsFunc(leave, func(run Run) bool { return run.UID == uid })
	}
	for i := range job.Alloc.Nodes {
		alloc := &job.Alloc.Nodes[i]
		node := cluster.NodeByID(alloc.ID)
		if job.Done.Has(i) || node == nil {
			continue
		}
		used := int64(alloc.CPUs.Count())
		for _, uid := range node.Jobs {
			other := cluster.Job(uid)
			if uid == job.UID || other.Yields || leaves(uid) {
				continue
			}
			if other.Alloc.Partition == job.Alloc.Partition {
				held := &other.Alloc.Nodes[other.Alloc.Index(alloc.ID)]
				used += int64(held.CPUs.Count())
			}
		}
		if used > part.Spec.MaxCPUsPerNode {
			return true
		}
	}
	return false
}
