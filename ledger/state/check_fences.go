package state

import "github.com/musterhpc/muster/spec"

// CheckFences is the part of S5 that the ledger alone can keep: while an attempt
// of a job may still live on a node that was given up, no other attempt runs.
// Only requeue_unfenced, a site's explicit choice, lets one run beside it; the
// job then has a later attempt than the one that is owed.
func CheckFences(state *State) error {
	owed := map[spec.JobUID]uint32{}
	var err error
	state.Nodes.Range(func(_ uint64, node *Node) bool {
		for i, debt := range node.Unfenced {
			if node.findOwed(debt.UID, debt.Attempt) != i {
				err = brokenInvariant(
					"attempt %d of job uid %d is owed twice on node %s",
					debt.Attempt,
					debt.UID,
					node.Spec.Name,
				)
			}
			owed[debt.UID]++
			job := state.Job(debt.UID)
			if job == nil || job.State == spec.Pending || job.Attempt > debt.Attempt {
				continue
			}
			if job.Attempt == debt.Attempt && holdsNode(job, node) {
				err = brokenInvariant(
					"%s holds node %s, on which that attempt was given up",
					state.labelJob(job),
					node.Spec.Name,
				)
			}
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	return state.eachJob(func(job *Job) error {
		if job.Unfenced != owed[job.UID] {
			return brokenInvariant(
				"%s counts %d unfenced nodes, there are %d",
				state.labelJob(job),
				job.Unfenced,
				owed[job.UID],
			)
		}
		return nil
	})
}

// holdsNode tells whether a job still holds a node.
func holdsNode(job *Job, node *Node) bool {
	if job.Alloc == nil {
		return false
	}
	for i := range job.Alloc.Nodes {
		if job.Alloc.Nodes[i].ID == node.ID {
			return !job.Done.Has(i)
		}
	}
	return false
}
