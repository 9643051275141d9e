package state

import (
	"slices"
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// HoldAt finds a hold of another scheduler by its id; ok is false if there is
// none, and at is then where it would stand.
func (n *Node) HoldAt(id string) (at int, ok bool) {
	return slices.BinarySearchFunc(n.Holds, id, func(h spec.ForeignHold, id string) int { return strings.Compare(h.ID, id) })
}

// HeldMilli is how many thousandths of CPUs other schedulers hold on the node.
func (n *Node) HeldMilli() int64 {
	var sum int64
	for i := range n.Holds {
		sum += n.Holds[i].MilliCPU
	}
	return sum
}

// HeldMem is how much memory other schedulers hold on the node, in MiB.
func (n *Node) HeldMem() int64 {
	var sum int64
	for i := range n.Holds {
		sum += n.Holds[i].Mem
	}
	return sum
}

// Unused tells that neither a job nor another scheduler has anything on the node.
func (n *Node) Unused() bool { return len(n.Jobs) == 0 && len(n.Holds) == 0 }

// isGone tells that a node which is not configured any more owes nobody anything.
func (n *Node) isGone() bool { return n.Removed && n.Unused() && len(n.Unfenced) == 0 }

func (s *State) applyForeignHoldTaken(env *event.Envelope, e *event.ForeignHoldTaken) error {
	old := s.Node(e.Node)
	if old == nil {
		return contradictionError("node %s is not configured", e.Node)
	}
	h := e.Hold
	at, twice := old.HoldAt(h.ID)
	switch {
	case h.ID == "" || twice:
		return contradictionError("hold %q of node %s has no id, or is there already", h.ID, e.Node)
	case h.MilliCPU < 0 || h.Mem < 0:
		return contradictionError("hold %s of node %s takes %d thousandths of a CPU and %d MiB", h.ID, e.Node, h.MilliCPU, h.Mem)
	case !old.Spec.ForJobs(e.CPUs) || s.cpusOfJobs(old).Intersects(e.CPUs) || old.HeldCPU.Intersects(e.CPUs):
		return contradictionError("hold %s takes CPUs of node %s that are not free", h.ID, e.Node)
	}
	for i, g := range h.GPUs {
		k := old.gpuAt(g.UUID)
		again := slices.ContainsFunc(h.GPUs[:i], func(o spec.GPURef) bool { return o.UUID == g.UUID })
		if k < 0 || again || !old.FreeWhole(k) {
			return contradictionError("hold %s takes GPU %s of node %s, which is not free", h.ID, g.UUID, e.Node)
		}
	}
	n := *old
	h.Since = env.At
	n.Holds = slices.Insert(slices.Clone(n.Holds), at, h)
	n.HeldCPU = n.HeldCPU.Or(e.CPUs).Trim()
	n.takeHold(&h)
	n.UsedCPU = n.UsedCPU.Or(e.CPUs).Trim()
	n.BusyAt = env.At
	if int64(n.HeldCPU.Count())*1000 < n.HeldMilli() {
		return contradictionError("the holds of node %s have %d CPUs for %d thousandths", e.Node, n.HeldCPU.Count(), n.HeldMilli())
	}
	if h.Mem > 0 && s.Config.Sched.Memory && n.UsedMem > n.Mem {
		return contradictionError("with hold %s node %s has %d of %d MiB in use", h.ID, e.Node, n.UsedMem, n.Mem)
	}
	s.putNode(&n)
	return nil
}

func (s *State) applyForeignHoldReleased(env *event.Envelope, e *event.ForeignHoldReleased) error {
	old := s.Node(e.Node)
	if old == nil {
		return contradictionError("node %s is not configured", e.Node)
	}
	at, ok := old.HoldAt(e.ID)
	if !ok || !e.CPUs.AndNot(old.HeldCPU).Empty() {
		return contradictionError("hold %s is not on node %s, or gives back CPUs that no hold has", e.ID, e.Node)
	}
	n := *old
	h := old.Holds[at]
	n.Holds = slices.Delete(slices.Clone(n.Holds), at, at+1)
	if len(n.Holds) == 0 {
		n.Holds = nil
	}
	n.HeldCPU = n.HeldCPU.AndNot(e.CPUs).Trim()
	n.UsedCPU = n.UsedCPU.AndNot(e.CPUs).Trim()
	n.UsedMem -= h.Mem
	if len(h.GPUs) > 0 {
		n.UsedGPU = n.UsedGPU.Clone()
		for _, g := range h.GPUs {
			if i := n.gpuAt(g.UUID); i >= 0 {
				n.UsedGPU = n.UsedGPU.Clear(i)
			}
		}
		n.UsedGPU = n.UsedGPU.Trim()
	}
	n.Shrunk = n.Shrunk && n.describeOveruse(s.Config) != ""
	n.BusyAt = env.At
	if int64(n.HeldCPU.Count())*1000 < n.HeldMilli() {
		return contradictionError("without hold %s the others of node %s have %d CPUs for %d thousandths", e.ID, e.Node, n.HeldCPU.Count(), n.HeldMilli())
	}
	if n.isGone() {
		s.Nodes.Delete(s.own, uint64(n.ID))
	} else {
		s.putNode(&n)
	}
	return nil
}

// takeHolds marks what other schedulers have on the node as used.
func (n *Node) takeHolds() {
	n.UsedCPU = n.UsedCPU.Or(n.HeldCPU).Trim()
	for i := range n.Holds {
		n.takeHold(&n.Holds[i])
	}
}

// takeHold marks memory and devices of one hold as used; its CPUs are shared
// with others.
func (n *Node) takeHold(h *spec.ForeignHold) {
	n.UsedMem += h.Mem
	if len(h.GPUs) == 0 {
		return
	}
	n.UsedGPU = n.UsedGPU.Clone()
	for _, g := range h.GPUs {
		if i := n.gpuAt(g.UUID); i >= 0 {
			n.UsedGPU = n.UsedGPU.Set(i)
		}
	}
}

// cpusOfJobs are the CPUs of all jobs on a node, also of those that left theirs
// to other jobs for a while.
func (s *State) cpusOfJobs(n *Node) spec.Bitset {
	var cpus spec.Bitset
	for _, uid := range n.Jobs {
		j := s.Job(uid)
		if i := j.Alloc.Index(n.ID); i >= 0 && !j.Done.Has(i) {
			cpus = cpus.Or(j.Alloc.Nodes[i].CPUs)
		}
	}
	return cpus
}

// OpenCPUs are the CPUs of a node that no job and no other scheduler has, nor
// has only left to others for a while.
func (s *State) OpenCPUs(n *Node) spec.Bitset {
	taken := s.cpusOfJobs(n).Or(n.HeldCPU)
	var open spec.Bitset
	for cpu := range int(n.Spec.TopCPU()) {
		if !taken.Has(cpu) && !n.Spec.Reserved.Has(cpu) {
			open = open.Set(cpu)
		}
	}
	return open
}
