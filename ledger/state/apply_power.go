package state

import (
	"fmt"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// expectedGPUs are the devices that a node of the cloud will have, before it was
// ever up: as many as are configured, under names that are replaced by the
// real ones when it registers.
func (n *Node) expectedGPUs() []spec.GPU {
	var gpus []spec.GPU
	for _, gres := range n.Spec.GRES {
		for range min(gres.N, maxExpected) {
			if gres.Name == "gpu" {
				gpus = append(
					gpus,
					spec.GPU{
						Index: uint32(len(gpus)),
						UUID:  fmt.Sprintf("expected/%s/%d", n.Spec.Name, len(gpus)),
						Type:  gres.Type,
					},
				)
			}
		}
	}
	return gpus
}

// maxExpected bounds the devices of a node that nobody has seen.
const maxExpected = 1024

// renameGPUs lets the jobs that wait for a node to boot hold the devices that
// it came up with, position by position, where those are others: a machine of
// the cloud is not the same one each time. What it has no place for any more
// is held under a name that nothing has.
func (s *State) renameGPUs(old, node *Node, envelope *event.Envelope) {
	node.deriveCapacity()
	have := make(map[string]bool, len(node.GPUs))
	for i := range node.GPUs {
		have[node.GPUs[i].UUID] = true
	}
	if len(have) < len(node.GPUs) ||
		!slices.ContainsFunc(old.GPUs, func(g spec.GPU) bool { return !have[g.UUID] }) {
		return // the same ones, or names that mean nothing
	}
	to := func(uuid string, index uint32) (string, uint32) {
		if i := old.gpuAt(uuid); i >= 0 && i < len(node.GPUs) {
			return node.GPUs[i].UUID, node.GPUs[i].Index
		}
		return "gone/" + uuid, index
	}
	for _, uid := range node.Jobs {
		job, err := s.editJob(uid, envelope)
		at := job.Alloc.Index(node.ID)
		if err != nil || at < 0 {
			continue
		}
		alloc := *job.Alloc
		alloc.Nodes = slices.Clone(alloc.Nodes)
		allocation := &alloc.Nodes[at]
		allocation.GPUs, allocation.Shares = slices.Clone(allocation.GPUs),
			slices.Clone(allocation.Shares)
		for i := range allocation.GPUs {
			allocation.GPUs[i].UUID, allocation.GPUs[i].Index = to(
				allocation.GPUs[i].UUID, allocation.GPUs[i].Index,
			)
		}
		for i := range allocation.Shares {
			allocation.Shares[i].UUID, allocation.Shares[i].Index = to(
				allocation.Shares[i].UUID, allocation.Shares[i].Index,
			)
		}
		job.Alloc = &alloc
		s.storeJob(job)
	}
}

// Missing tells whether a job holds devices of a node that it does not have.
func (n *Node) Missing(alloc *spec.NodeAlloc) bool {
	return slices.ContainsFunc(alloc.GPUs, func(gpu spec.GPURef) bool {
		i := n.gpuAt(gpu.UUID)
		return i < 0 || n.GPUs[i].Type != gpu.Type
	}) || slices.ContainsFunc(alloc.Shares, func(g spec.GPUShare) bool { return n.gpuAt(g.UUID) < 0 })
}

// Booting names the nodes of an allocation that are not up, or yet to be rebooted
// for the job; nil if it waits for none.
func (s *State) Booting(job *Job) []string {
	var out []string
	for i := range job.Alloc.Nodes {
		node := s.NodeByID(job.Alloc.Nodes[i].ID)
		if node == nil || job.Done.Has(i) {
			continue
		}
		reboots := job.Spec.Queue.Reboot && node.Reboot != nil
		if reboots || node.Asleep() {
			out = append(out, node.Spec.Name)
		}
	}
	return out
}

// awaitsBoot tells whether an allocation has nodes that are not up.
func (s *State) awaitsBoot(allocation *spec.Allocation) bool {
	return slices.ContainsFunc(allocation.Nodes, func(nodeAlloc spec.NodeAlloc) bool {
		node := s.NodeByID(nodeAlloc.ID)
		return node != nil && node.Asleep()
	})
}

func (s *State) applyReady(envelope *event.Envelope, e *event.JobReady) error {
	job, err := s.editJob(e.UID, envelope)
	if err != nil {
		return err
	}
	if !job.Configuring() || job.Attempt != e.Attempt {
		return contradictionError(
			"attempt %d of job uid %d does not wait for nodes to boot (%s, attempt %d)",
			e.Attempt,
			e.UID,
			job.State,
			job.Attempt,
		)
	}
	if names := s.Booting(job); names != nil {
		return contradictionError(
			"attempt %d of job uid %d cannot begin: node %s is not up",
			e.Attempt,
			e.UID,
			names[0],
		)
	}
	job.Ready = envelope.At
	s.storeJob(job)
	return nil
}

func (s *State) applyPowered(envelope *event.Envelope, e *event.NodePowered) error {
	if e.To < event.PowerOn || e.To > event.PoweringUp {
		return contradictionError("nodes %v are powered to %d, which means nothing", e.Nodes, e.To)
	}
	for _, name := range e.Nodes {
		old := s.Node(name)
		if old == nil {
			return contradictionError("node %s is not configured", name)
		}
		if e.To >= event.PoweredDown {
			if reason := s.needsPower(old, e.To); reason != "" {
				return contradictionError("node %s is powered to %d, but %s", name, e.To, reason)
			}
		}
		node := *old
		node.Power, node.PowerAt = e.To, envelope.At
		switch e.To {
		case event.PoweringDown:
			node.DownAt = envelope.At
			s.Totals.PoweredDown++
		case event.PoweringUp:
			node.UpAt = envelope.At
			s.Totals.PoweredUp++
		case event.PoweredDown:
			node.clearSilence() // nobody expects it to
			if e.Failed {
				s.Totals.BootFailed++
			}
		case event.PowerOn, event.PowerDownWish, event.PowerDownASAP, event.PowerUpWish:
		}
		s.putNode(&node)
	}
	return nil
}

func (s *State) applyReboot(envelope *event.Envelope, e *event.NodeReboot) error {
	old := s.Node(e.Node)
	if old == nil {
		return contradictionError("node %s is not configured", e.Node)
	}
	node := *old
	switch {
	case e.Phase == event.RebootWanted:
		node.Reboot = &Reboot{At: envelope.At, ASAP: e.ASAP, Next: e.Next, Reason: e.Reason}
	case e.Phase == event.RebootIssued && old.Reboot != nil:
		reboot := *old.Reboot
		reboot.Issued, reboot.At = true, envelope.At
		node.Reboot = &reboot
	case e.Phase == event.RebootOver && old.Reboot != nil:
		node.Reboot, node.PowerAt = nil, envelope.At
	default:
		return contradictionError("the reboot of node %s cannot go to phase %d", e.Node, e.Phase)
	}
	s.putNode(&node)
	return nil
}

// needsPower says which job makes it impossible that a node is in a state of
// those in which its agent is not there; empty if none does.
func (s *State) needsPower(node *Node, to event.PowerState) string {
	for _, uid := range node.Jobs {
		job := s.Job(uid)
		if to == event.PoweredDown || (job.State.Active() && !job.Configuring()) {
			return fmt.Sprintf("job uid %d is on it", uid)
		}
	}
	return ""
}
