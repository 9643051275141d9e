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
	return slices.BinarySearchFunc(
		n.Holds,
		id,
		func(h spec.ForeignHold, id string) int { return strings.Compare(h.ID, id) },
	)
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

func (s *State) applyForeignHoldTaken(envelope *event.Envelope, e *event.ForeignHoldTaken) error {
	old := s.Node(e.Node)
	if old == nil {
		return contradictionError("node %s is not configured", e.Node)
	}
	hold := e.Hold
	at, twice := old.HoldAt(hold.ID)
	switch {
	case hold.ID == "" || twice:
		return contradictionError(
			"hold %q of node %s has no id, or is there already",
			hold.ID,
			e.Node,
		)
	case hold.MilliCPU < 0 || hold.Mem < 0:
		return contradictionError(
			"hold %s of node %s takes %d thousandths of a CPU and %d MiB",
			hold.ID,
			e.Node,
			hold.MilliCPU,
			hold.Mem,
		)
	case !old.Spec.ForJobs(e.CPUs) || s.cpusOfJobs(old).Intersects(e.CPUs) || old.HeldCPU.Intersects(e.CPUs):
		return contradictionError(
			"hold %s takes CPUs of node %s that are not free",
			hold.ID,
			e.Node,
		)
	}
	for i, gpu := range hold.GPUs {
		k := old.gpuAt(gpu.UUID)
		again := slices.ContainsFunc(
			hold.GPUs[:i],
			func(o spec.GPURef) bool { return o.UUID == gpu.UUID },
		)
		if k < 0 || again || !old.FreeWhole(k) {
			return contradictionError(
				"hold %s takes GPU %s of node %s, which is not free",
				hold.ID,
				gpu.UUID,
				e.Node,
			)
		}
	}
	node := *old
	hold.Since = envelope.At
	node.Holds = slices.Insert(slices.Clone(node.Holds), at, hold)
	node.HeldCPU = node.HeldCPU.Or(e.CPUs).Trim()
	node.takeHold(&hold)
	node.UsedCPU = node.UsedCPU.Or(e.CPUs).Trim()
	node.BusyAt = envelope.At
	if int64(node.HeldCPU.Count())*1000 < node.HeldMilli() {
		return contradictionError(
			"the holds of node %s have %d CPUs for %d thousandths",
			e.Node,
			node.HeldCPU.Count(),
			node.HeldMilli(),
		)
	}
	if hold.Mem > 0 && s.Config.Sched.Memory && node.UsedMem > node.Mem {
		return contradictionError(
			"with hold %s node %s has %d of %d MiB in use",
			hold.ID,
			e.Node,
			node.UsedMem,
			node.Mem,
		)
	}
	s.putNode(&node)
	return nil
}

func (s *State) applyForeignHoldReleased(
	envelope *event.Envelope, e *event.ForeignHoldReleased,
) error {
	old := s.Node(e.Node)
	if old == nil {
		return contradictionError("node %s is not configured", e.Node)
	}
	at, ok := old.HoldAt(e.ID)
	if !ok || !e.CPUs.AndNot(old.HeldCPU).Empty() {
		return contradictionError(
			"hold %s is not on node %s, or gives back CPUs that no hold has",
			e.ID,
			e.Node,
		)
	}
	node := *old
	hold := old.Holds[at]
	node.Holds = slices.Delete(slices.Clone(node.Holds), at, at+1)
	if len(node.Holds) == 0 {
		node.Holds = nil
	}
	node.HeldCPU = node.HeldCPU.AndNot(e.CPUs).Trim()
	node.UsedCPU = node.UsedCPU.AndNot(e.CPUs).Trim()
	node.UsedMem -= hold.Mem
	if len(hold.GPUs) > 0 {
		node.UsedGPU = node.UsedGPU.Clone()
		for _, gpu := range hold.GPUs {
			if i := node.gpuAt(gpu.UUID); i >= 0 {
				node.UsedGPU = node.UsedGPU.Clear(i)
			}
		}
		node.UsedGPU = node.UsedGPU.Trim()
	}
	node.Shrunk = node.Shrunk && node.describeOveruse(s.Config) != ""
	node.BusyAt = envelope.At
	if int64(node.HeldCPU.Count())*1000 < node.HeldMilli() {
		return contradictionError(
			"without hold %s the others of node %s have %d CPUs for %d thousandths",
			e.ID,
			e.Node,
			node.HeldCPU.Count(),
			node.HeldMilli(),
		)
	}
	if node.isGone() {
		s.Nodes.Delete(s.own, uint64(node.ID))
	} else {
		s.putNode(&node)
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
func (n *Node) takeHold(hold *spec.ForeignHold) {
	n.UsedMem += hold.Mem
	if len(hold.GPUs) == 0 {
		return
	}
	n.UsedGPU = n.UsedGPU.Clone()
	for _, gpu := range hold.GPUs {
		if i := n.gpuAt(gpu.UUID); i >= 0 {
			n.UsedGPU = n.UsedGPU.Set(i)
		}
	}
}

// cpusOfJobs are the CPUs of all jobs on a node, also of those that left theirs
// to other jobs for a while.
func (s *State) cpusOfJobs(node *Node) spec.Bitset {
	var cpus spec.Bitset
	for _, uid := range node.Jobs {
		job := s.Job(uid)
		if i := job.Alloc.Index(node.ID); i >= 0 && !job.Done.Has(i) {
			cpus = cpus.Or(job.Alloc.Nodes[i].CPUs)
		}
	}
	return cpus
}

// OpenCPUs are the CPUs of a node that no job and no other scheduler has, nor
// has only left to others for a while.
func (s *State) OpenCPUs(node *Node) spec.Bitset {
	taken := s.cpusOfJobs(node).Or(node.HeldCPU)
	var open spec.Bitset
	for cpu := range int(node.Spec.TopCPU()) {
		if !taken.Has(cpu) && !node.Spec.Reserved.Has(cpu) {
			open = open.Set(cpu)
		}
	}
	return open
}
