package state

import "github.com/musterhpc/muster/spec"

// CheckHolds is S25: jobs and the holds of other schedulers never have the same
// CPU or device of a node, and the holds have the CPUs that they need. That
// their sum fits the node is part of CheckNodes.
func CheckHolds(s *State) error {
	var err error
	s.Nodes.Range(func(_ uint64, n *Node) bool {
		err = s.checkHoldsOf(n)
		return err == nil
	})
	return err
}

func (s *State) checkHoldsOf(n *Node) error {
	name := n.Spec.Name
	devices := map[string]string{}
	for _, uid := range n.Jobs {
		j := s.Job(uid)
		i := j.Alloc.Index(n.ID)
		if i < 0 || j.Done.Has(i) {
			continue
		}
		if j.Alloc.Nodes[i].CPUs.Intersects(n.HeldCPU) {
			return brokenInvariant("%s and another scheduler have the same CPUs of node %s", s.labelJob(j), name)
		}
		for _, g := range j.Alloc.Nodes[i].GPUs {
			devices[g.UUID] = s.labelJob(j)
		}
		for k := range j.Alloc.Nodes[i].Shares {
			devices[j.Alloc.Nodes[i].Shares[k].UUID] = s.labelJob(j)
		}
	}
	for i := range n.Holds {
		h := &n.Holds[i]
		if i > 0 && n.Holds[i-1].ID >= h.ID {
			return brokenInvariant("hold %s of node %s is there twice or out of order", h.ID, name)
		}
		for _, g := range h.GPUs {
			if other, twice := devices[g.UUID]; twice {
				return brokenInvariant("GPU %s of node %s is held by %s and by %s", g.UUID, name, other, h.Name())
			}
			devices[g.UUID] = h.Name()
		}
	}
	if milli := n.HeldMilli(); int64(n.HeldCPU.Count())*1000 < milli || (milli == 0 && !n.HeldCPU.Empty()) {
		return brokenInvariant("the holds of node %s have %d CPUs for %d thousandths", name, n.HeldCPU.Count(), milli)
	}
	return nil
}

// heldByOther stands for the holder of a CPU or device that no job has.
const heldByOther = ^spec.JobUID(0)

// addHolds counts what other schedulers have on a node.
func (h *holding) addHolds(n *Node) error {
	for _, c := range n.HeldCPU.Members() {
		if other, twice := h.cpus[c]; twice {
			return brokenInvariant("CPU %d of node %s is held by job uid %d and by another scheduler", c, n.Spec.Name, other)
		}
		h.cpus[c] = heldByOther
	}
	for i := range n.Holds {
		hold := &n.Holds[i]
		for _, g := range hold.GPUs {
			if other, twice := h.gpus[g.UUID]; twice {
				return brokenInvariant("GPU %s of node %s is held by uid %d and by %s", g.UUID, n.Spec.Name, other, hold.Name())
			}
			h.gpus[g.UUID] = heldByOther
		}
		h.mem += hold.Mem
	}
	return nil
}
