package state

import "github.com/musterhpc/muster/spec"

// CheckFences is the part of S5 that the ledger alone can keep: while an attempt
// of a job may still live on a node that was given up, no other attempt runs.
// Only requeue_unfenced, a site's explicit choice, lets one run beside it; the
// job then has a later attempt than the one that is owed.
func CheckFences(s *State) error {
	owed := map[spec.JobUID]uint32{}
	var err error
	s.Nodes.Range(func(_ uint64, n *Node) bool {
		for i, debt := range n.Unfenced {
			if n.findOwed(debt.UID, debt.Attempt) != i {
				err = brokenInvariant("attempt %d of job uid %d is owed twice on node %s", debt.Attempt, debt.UID, n.Spec.Name)
			}
			owed[debt.UID]++
			j := s.Job(debt.UID)
			if j == nil || j.State == spec.Pending || j.Attempt > debt.Attempt {
				continue
			}
			if j.Attempt == debt.Attempt && holdsNode(j, n) {
				err = brokenInvariant("%s holds node %s, on which that attempt was given up", s.labelJob(j), n.Spec.Name)
			}
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	return s.eachJob(func(j *Job) error {
		if j.Unfenced != owed[j.UID] {
			return brokenInvariant("%s counts %d unfenced nodes, there are %d", s.labelJob(j), j.Unfenced, owed[j.UID])
		}
		return nil
	})
}

// holdsNode tells whether a job still holds a node.
func holdsNode(j *Job, n *Node) bool {
	if j.Alloc == nil {
		return false
	}
	for i := range j.Alloc.Nodes {
		if j.Alloc.Nodes[i].ID == n.ID {
			return !j.Done.Has(i)
		}
	}
	return false
}
