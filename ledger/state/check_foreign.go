package state

import "github.com/musterhpc/muster/spec"

// CheckHolds is S25: jobs and the holds of other schedulers never have the same
// CPU or device of a node, and the holds have the CPUs that they need. That
// their sum fits the node is part of CheckNodes.
func CheckHolds(state *State) error {
	var err error
	state.Nodes.Range(func(_ uint64, node *Node) bool {
		err = state.checkHoldsOf(node)
		return err == nil
	})
	return err
}

func (s *State) checkHoldsOf(node *Node) error {
	name := node.Spec.Name
	devices := map[string]string{}
	for _, uid := range node.Jobs {
		job := s.Job(uid)
		i := job.Alloc.Index(node.ID)
		if i < 0 || job.Done.Has(i) {
			continue
		}
		if job.Alloc.Nodes[i].CPUs.Intersects(node.HeldCPU) {
			return brokenInvariant(
				"%s and another scheduler have the same CPUs of node %s",
				s.labelJob(job),
				name,
			)
		}
		for _, gpu := range job.Alloc.Nodes[i].GPUs {
			devices[gpu.UUID] = s.labelJob(job)
		}
		for k := range job.Alloc.Nodes[i].Shares {
			devices[job.Alloc.Nodes[i].Shares[k].UUID] = s.labelJob(job)
		}
	}
	for i := range node.Holds {
		hold := &node.Holds[i]
		if i > 0 && node.Holds[i-1].ID >= hold.ID {
			return brokenInvariant(
				"hold %s of node %s is there twice or out of order",
				hold.ID,
				name,
			)
		}
		for _, gpu := range hold.GPUs {
			if other, twice := devices[gpu.UUID]; twice {
				return brokenInvariant(
					"GPU %s of node %s is held by %s and by %s",
					gpu.UUID,
					name,
					other,
					hold.Name(),
				)
			}
			devices[gpu.UUID] = hold.Name()
		}
	}
	if milli := node.HeldMilli(); int64(node.HeldCPU.Count())*1000 < milli ||
		(milli == 0 && !node.HeldCPU.Empty()) {
		return brokenInvariant(
			"the holds of node %s have %d CPUs for %d thousandths",
			name,
			node.HeldCPU.Count(),
			milli,
		)
	}
	return nil
}

// heldByOther stands for the holder of a CPU or device that no job has.
const heldByOther = ^spec.JobUID(0)

// addHolds counts what other schedulers have on a node.
func (h *holding) addHolds(node *Node) error {
	for _, c := range node.HeldCPU.Members() {
		if other, twice := h.cpus[c]; twice {
			return brokenInvariant(
				"CPU %d of node %s is held by job uid %d and by another scheduler",
				c,
				node.Spec.Name,
				other,
			)
		}
		h.cpus[c] = heldByOther
	}
	for i := range node.Holds {
		hold := &node.Holds[i]
		for _, gpu := range hold.GPUs {
			if other, twice := h.gpus[gpu.UUID]; twice {
				return brokenInvariant(
					"GPU %s of node %s is held by uid %d and by %s",
					gpu.UUID,
					node.Spec.Name,
					other,
					hold.Name(),
				)
			}
			h.gpus[gpu.UUID] = heldByOther
		}
		h.mem += hold.Mem
	}
	return nil
}
