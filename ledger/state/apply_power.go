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
	var out []spec.GPU
	for _, gres := range n.Spec.GRES {
		for range min(gres.N, maxExpected) {
			if gres.Name == "gpu" {
				out = append(
					out,
					spec.GPU{
						Index: uint32(len(out)),
						UUID:  fmt.Sprintf("expected/%s/%d", n.Spec.Name, len(out)),
						Type:  gres.Type,
					},
				)
			}
		}
	}
	return out
}

// maxExpected bounds the devices of a node that nobody has seen.
const maxExpected = 1024

// renameGPUs lets the jobs that wait for a node to boot hold the devices that
// it came up with, position by position, where those are others: a machine of
// the cloud is not the same one each time. What it has no place for any more
// is held under a name that nothing has.
func (s *State) renameGPUs(old, node *Node, env *event.Envelope) {
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
		job, err := s.editJob(uid, env)
		at := job.Alloc.Index(node.ID)
		if err != nil || at < 0 {
			continue
		}
		alloc := *job.Alloc
		alloc.Nodes = slices.Clone(alloc.Nodes)
		a := &alloc.Nodes[at]
		a.GPUs, a.Shares = slices.Clone(a.GPUs), slices.Clone(a.Shares)
		for i := range a.GPUs {
			a.GPUs[i].UUID, a.GPUs[i].Index = to(a.GPUs[i].UUID, a.GPUs[i].Index)
		}
		for i := range a.Shares {
			a.Shares[i].UUID, a.Shares[i].Index = to(a.Shares[i].UUID, a.Shares[i].Index)
		}
		job.Alloc = &alloc
		s.storeJob(job)
	}
}

// Missing tells whether a job holds devices of a node that it does not have.
func (n *Node) Missing(alloc *spec.NodeAlloc) bool {
	return slices.ContainsFunc(alloc.GPUs, func(g spec.GPURef) bool {
		i := n.gpuAt(g.UUID)
		return i < 0 || n.GPUs[i].Type != g.Type
	}) || slices.ContainsFunc(alloc.Shares, func(g spec.GPUShare) bool { return n.gpuAt(g.UUID) < 0 })
}

// Booting names the nodes of an allocation that are not up, or yet to be rebooted
// for the job; nil if it waits for none.
func (s *State) Booting(job *Job) []string {
	var out []string
	for i := range job.Alloc.Nodes {
		n := s.NodeByID(job.Alloc.Nodes[i].ID)
		if n == nil || job.Done.Has(i) {
			continue
		}
		reboots := job.Spec.Queue.Reboot && n.Reboot != nil
		if reboots || n.Asleep() {
			out = append(out, n.Spec.Name)
		}
	}
	return out
}

// awaitsBoot tells whether an allocation has nodes that are not up.
func (s *State) awaitsBoot(allocation *spec.Allocation) bool {
	return slices.ContainsFunc(allocation.Nodes, func(a spec.NodeAlloc) bool {
		n := s.NodeByID(a.ID)
		return n != nil && n.Asleep()
	})
}

func (s *State) applyReady(env *event.Envelope, e *event.JobReady) error {
	job, err := s.editJob(e.UID, env)
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
	job.Ready = env.At
	s.storeJob(job)
	return nil
}

func (s *State) applyPowered(env *event.Envelope, e *event.NodePowered) error {
	if e.To < event.PowerOn || e.To > event.PoweringUp {
		return contradictionError("nodes %v are powered to %d, which means nothing", e.Nodes, e.To)
	}
	for _, name := range e.Nodes {
		old := s.Node(name)
		if old == nil {
			return contradictionError("node %s is not configured", name)
		}
		if e.To >= event.PoweredDown {
			if why := s.needsPower(old, e.To); why != "" {
				return contradictionError("node %s is powered to %d, but %s", name, e.To, why)
			}
		}
		node := *old
		node.Power, node.PowerAt = e.To, env.At
		switch e.To {
		case event.PoweringDown:
			node.DownAt = env.At
			s.Totals.PoweredDown++
		case event.PoweringUp:
			node.UpAt = env.At
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

func (s *State) applyReboot(env *event.Envelope, e *event.NodeReboot) error {
	old := s.Node(e.Node)
	if old == nil {
		return contradictionError("node %s is not configured", e.Node)
	}
	node := *old
	switch {
	case e.Phase == event.RebootWanted:
		node.Reboot = &Reboot{At: env.At, ASAP: e.ASAP, Next: e.Next, Reason: e.Reason}
	case e.Phase == event.RebootIssued && old.Reboot != nil:
		r := *old.Reboot
		r.Issued, r.At = true, env.At
		node.Reboot = &r
	case e.Phase == event.RebootOver && old.Reboot != nil:
		node.Reboot, node.PowerAt = nil, env.At
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
		j := s.Job(uid)
		if to == event.PoweredDown || (j.State.Active() && !j.Configuring()) {
			return fmt.Sprintf("job uid %d is on it", uid)
		}
	}
	return ""
}
