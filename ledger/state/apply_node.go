package state

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

func newNode(id spec.NodeID, nodeSpec *spec.NodeSpec) *Node {
	node := &Node{ID: id, Spec: nodeSpec, Reason: nodeSpec.Reason}
	node.Admin, node.Power = event.Configured(nodeSpec)
	node.deriveCapacity()
	return node
}

// deriveCapacity derives what the node offers: counts from the configuration,
// devices from the inventory, never more than were declared.
func (n *Node) deriveCapacity() {
	n.CPUs = n.Spec.JobCPUs()
	n.Mem = max(n.Spec.Mem-n.Spec.MemSpecLimit, 0)
	n.GPUs, n.GRES = nil, nil
	declared := int64(0)
	for _, gres := range n.Spec.GRES {
		if gres.N < 0 {
			continue
		}
		if gres.Name == "gpu" {
			declared += gres.N
		} else if !gres.NoConsume {
			n.GRES = append(n.GRES, spec.Count{Name: gres.Name, Type: gres.Type, N: gres.N})
		}
	}
	switch {
	case n.Inv != nil:
		n.GPUs = n.Inv.GPUs[:min(int64(len(n.Inv.GPUs)), declared)]
	case n.Spec.State == "CLOUD":
		n.GPUs = n.expectedGPUs()
	}
	n.Shares = n.Spec.SharesOf(n.GPUs)
}

// measureNode recomputes capacity and, from the allocations of its jobs, use.
func (s *State) measureNode(node *Node) *Node {
	node.deriveCapacity()
	node.UsedCPU = nil
	node.SharedCPU = nil
	node.UsedMem = 0
	node.UsedGPU = nil
	node.UsedGRES = nil
	node.UsedShare = nil
	for _, uid := range node.Jobs {
		job := s.Job(uid)
		for i := range job.Alloc.Nodes {
			if job.Alloc.Nodes[i].ID == node.ID && !job.Done.Has(i) {
				node.take(&job.Alloc.Nodes[i], job.Alloc.Share > 0, job.Yields)
			}
		}
	}
	node.takeHolds()
	node.Shrunk = node.describeOveruse(s.Config) != ""
	return node
}

// describeOveruse says what the node holds more of than it offers; empty if nothing.
func (n *Node) describeOveruse(config *spec.Config) string {
	if !n.Spec.ForJobs(n.UsedCPU) {
		return fmt.Sprintf("CPU %d of %d", n.UsedCPU.Last(), n.CPUs)
	}
	if config.Sched.Memory && n.UsedMem > n.Mem {
		return fmt.Sprintf("%d of %d MiB", n.UsedMem, n.Mem)
	}
	for _, u := range n.UsedGRES {
		if over := n.overGRES(u.Name, u.Type); over != "" {
			return over
		}
	}
	return n.overShares()
}

// overBy is over, for what one allocation takes part in.
func (n *Node) overBy(alloc *spec.NodeAlloc, config *spec.Config) string {
	if !n.Spec.ForJobs(alloc.CPUs) {
		return fmt.Sprintf("CPU %d of %d", alloc.CPUs.Last(), n.CPUs)
	}
	if alloc.Mem < 0 || (alloc.Mem > 0 && config.Sched.Memory && n.UsedMem > n.Mem) {
		return fmt.Sprintf("%d MiB, then %d of %d MiB", alloc.Mem, n.UsedMem, n.Mem)
	}
	for _, g := range alloc.GRES {
		if g.N <= 0 {
			return fmt.Sprintf("%d of %s", g.N, g.Name)
		}
		if len(alloc.Shares) > 0 && spec.Shares(g.Name) &&
			alloc.ShareOf(g.Name) != countOf(alloc.GRES, g.Name) {
			return fmt.Sprintf("%d of %s, of devices %d", g.N, g.Name, alloc.ShareOf(g.Name))
		}
		if over := n.overGRES(g.Name, g.Type); over != "" {
			return over
		}
	}
	return ""
}

// overShares says which device is held in more parts than it has, or both
// whole and in parts; empty if none is.
func (n *Node) overShares() string {
	for i, used := range n.UsedShare {
		switch {
		case used == 0:
		case n.UsedGPU.Has(i):
			return fmt.Sprintf("GPU %d both whole and in shares", i)
		case used > n.ShareAt(i).N:
			return fmt.Sprintf("%d of %d shares of GPU %d", used, n.ShareAt(i).N, i)
		}
	}
	return ""
}

func (n *Node) overGRES(name, typ string) string {
	if spec.Shares(name) && n.Shares != nil {
		return "" // counted by device: see overShares
	}
	if slices.ContainsFunc(
		n.Spec.GRES,
		func(g spec.GRESSpec) bool { return g.Name == name && g.NoConsume },
	) {
		return ""
	}
	used, total := countOf(n.UsedGRES, name), countOf(n.GRES, name)
	if typ != "" && used <= total {
		used, total = countTyped(n.UsedGRES, name, typ), countTyped(n.GRES, name, typ)
	}
	if used > total {
		return fmt.Sprintf("%d of %d %s", used, total, name)
	}
	return ""
}

func countTyped(list []spec.Count, name, typ string) int64 {
	var n int64
	for _, count := range list {
		if count.Name == name && count.Type == typ {
			n += count.N
		}
	}
	return n
}

// take marks one node's part of an allocation as used, without its CPUs if
// those are left to others. The sets are copied.
func (n *Node) take(alloc *spec.NodeAlloc, shared, yields bool) {
	if !yields {
		n.UsedCPU = n.UsedCPU.Or(alloc.CPUs).Trim()
	}
	if shared && !yields {
		n.shareCPUs(alloc.CPUs)
	}
	n.UsedMem += alloc.Mem
	if len(alloc.GPUs) > 0 {
		n.UsedGPU = n.UsedGPU.Clone()
		for _, gpu := range alloc.GPUs {
			if i := n.gpuAt(gpu.UUID); i >= 0 {
				n.UsedGPU = n.UsedGPU.Set(i)
			}
		}
	}
	if len(alloc.GRES) > 0 {
		n.UsedGRES = addCounts(n.UsedGRES, alloc.GRES, 1)
	}
	n.divideDevices(alloc.Shares, 1)
}

// divideDevices adds sign times the parts of devices to those in use.
func (n *Node) divideDevices(list []spec.GPUShare, sign int64) {
	if len(list) == 0 {
		return
	}
	used := make([]int64, len(n.GPUs))
	copy(used, n.UsedShare)
	for i := range list {
		if k := n.gpuAt(list[i].UUID); k >= 0 {
			used[k] += sign * list[i].N
		}
	}
	if !slices.ContainsFunc(used, func(n int64) bool { return n != 0 }) {
		used = nil
	}
	n.UsedShare = used
}

// give is the reverse of take.
func (n *Node) give(alloc *spec.NodeAlloc, shared, yields bool) {
	gone := alloc.CPUs
	switch {
	case yields:
		gone = nil
	case shared:
		gone = n.unshareCPUs(gone)
	}
	n.UsedCPU = n.UsedCPU.AndNot(gone).Trim()
	n.UsedMem -= alloc.Mem
	if len(alloc.GPUs) > 0 {
		n.UsedGPU = n.UsedGPU.Clone()
		for _, gpu := range alloc.GPUs {
			if i := n.gpuAt(gpu.UUID); i >= 0 {
				n.UsedGPU = n.UsedGPU.Clear(i)
			}
		}
		n.UsedGPU = n.UsedGPU.Trim()
	}
	if len(alloc.GRES) > 0 {
		n.UsedGRES = addCounts(n.UsedGRES, alloc.GRES, -1)
	}
	n.divideDevices(alloc.Shares, -1)
}

func (n *Node) gpuAt(uuid string) int {
	return slices.IndexFunc(n.GPUs, func(g spec.GPU) bool { return g.UUID == uuid })
}

// addCounts returns a + sign*b, sorted, without zeros.
func addCounts(a, b []spec.Count, sign int64) []spec.Count {
	out := slices.Clone(a)
	for _, count := range b {
		if count.N == 0 {
			continue
		}
		i, ok := slices.BinarySearchFunc(out, count, func(x, y spec.Count) int {
			if x.Name != y.Name {
				return compare(x.Name, y.Name)
			}
			return compare(x.Type, y.Type)
		})
		if ok {
			out[i].N += sign * count.N
			if out[i].N == 0 {
				out = slices.Delete(out, i, i+1)
			}
		} else {
			out = slices.Insert(out, i, spec.Count{Name: count.Name, Type: count.Type, N: sign * count.N})
		}
	}
	if len(out) == 0 {
		return nil
	}
	return out
}

func compare(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func (s *State) applyRegistered(envelope *event.Envelope, e *event.NodeRegistered) error {
	old := s.Node(e.Node)
	if old == nil {
		return contradictionError("node %s is not configured", e.Node)
	}
	node := *old
	inventory := e.Inventory
	node.Inv = &inventory
	node.Registered = envelope.At
	node.Invalid = e.Invalid
	if old.Asleep() {
		s.renameGPUs(old, &node, envelope)
	}
	node.clearSilence()
	s.putNode(s.measureNode(&node))
	return nil
}

func (s *State) applyNodeState(envelope *event.Envelope, e *event.NodeStateSet) error {
	old := s.Node(e.Node)
	if old == nil {
		return contradictionError("node %s is not configured", e.Node)
	}
	if e.State < event.NodeResume || e.State > event.NodeFail {
		return contradictionError(
			"node %s is set to state %d, which means nothing",
			e.Node,
			e.State,
		)
	}
	node := *old
	node.Admin = e.State
	node.ResumeAt = e.ResumeAt
	node.setReason(e.Reason, envelope.Actor, envelope.At)
	if e.State == event.NodeResume {
		node.clearReason()
	}
	s.putNode(&node)
	return nil
}

func (s *State) applyNodeLost(envelope *event.Envelope, e *event.NodeLost) error {
	old := s.Node(e.Node)
	if old == nil {
		return contradictionError("node %s is not configured", e.Node)
	}
	node := *old
	node.Lost = true
	node.LostAt = e.LastSeen
	node.LostWhy = e.Why
	if node.Reason == "" {
		reason := notResponding
		if e.Why != "" {
			reason += ": " + e.Why
		}
		node.setReason(reason, event.Actor{}, envelope.At)
	}
	s.putNode(&node)
	return nil
}

func (s *State) applyNodeReturned(e *event.NodeReturned) error {
	old := s.Node(e.Node)
	if old == nil {
		return contradictionError("node %s is not configured", e.Node)
	}
	node := *old
	node.clearSilence()
	s.putNode(&node)
	return nil
}

// notResponding is the reason that a node gets by being silent, and loses by
// answering.
const notResponding = "Not responding"

// setReason notes why a node is as it is, and who said so.
func (n *Node) setReason(reason string, by event.Actor, at spec.Instant) {
	n.Reason = reason
	n.ReasonBy = by
	n.ReasonAt = at
}

func (n *Node) clearReason() { n.setReason("", event.Actor{}, 0) }

// clearSilence takes back what a node got by being silent.
func (n *Node) clearSilence() {
	n.Lost = false
	n.LostAt = 0
	n.LostWhy = ""
	if n.silentReason() {
		n.clearReason()
	}
}

// silentReason tells whether the node's reason is only that it was silent, or
// could start nothing. What an operator wrote is not, whatever it says.
func (n *Node) silentReason() bool {
	return n.ReasonBy == event.Actor{} && strings.HasPrefix(n.Reason, notResponding)
}

// MaxGPUFaults bounds what is remembered of the GPUs of one node.
const MaxGPUFaults = 64

// applyGPUFaulted remembers the last fault of each kind, GPU and number, and
// counts it. Where a GPU answers again, its loss is over.
func (s *State) applyGPUFaulted(e *event.GPUFaulted) error {
	old := s.Node(e.Node)
	if old == nil {
		return contradictionError(
			"a GPU of node %q, which does not exist, %s",
			e.Node,
			e.Fault.Kind,
		)
	}
	fault := e.Fault
	fault.Count = fault.Times()
	s.countFault(&fault)
	node := *old
	kept := make([]spec.GPUFault, 0, len(node.Faults)+1)
	for _, gpuFault := range node.Faults {
		switch same := gpuFault.UUID == fault.UUID && gpuFault.XID == fault.XID; {
		case same && gpuFault.Kind == fault.Kind:
			fault.Count += gpuFault.Count
		case gpuFault.UUID == fault.UUID && undoes(gpuFault.Kind, fault.Kind):
		default:
			kept = append(kept, gpuFault)
		}
	}
	if len(kept) >= MaxGPUFaults {
		kept = kept[len(kept)-MaxGPUFaults+1:]
	}
	node.Faults = append(kept, fault)
	s.putNode(&node)
	return nil
}

func (s *State) countFault(fault *spec.GPUFault) {
	list := slices.Clone(s.Totals.GPUFaults)
	i, ok := slices.BinarySearchFunc(list, fault,
		func(totals FaultTotals, gpuFault *spec.GPUFault) int {
			return cmp.Or(
				cmp.Compare(totals.Kind, gpuFault.Kind), cmp.Compare(totals.Class, gpuFault.Class),
			)
		})
	if !ok {
		if len(list) >= MaxGPUFaults {
			return // classes are few: this is no agent of ours
		}
		list = slices.Insert(list, i, FaultTotals{Kind: fault.Kind, Class: fault.Class})
	}
	list[i].Count += fault.Count
	s.Totals.GPUFaults = list
}

// shareCPUs counts one more job on each of some CPUs.
func (n *Node) shareCPUs(cpus spec.Bitset) {
	rows := slices.Clone(n.SharedCPU)
	for k := 0; !cpus.Empty(); k++ {
		if k == len(rows) {
			rows = append(rows, nil)
		}
		again := rows[k].And(cpus)
		rows[k] = rows[k].Or(cpus).Trim()
		cpus = again
	}
	n.SharedCPU = rows
}

// unshareCPUs counts one job less on each of some CPUs, and gives those on which
// none is left.
func (n *Node) unshareCPUs(cpus spec.Bitset) spec.Bitset {
	rows := slices.Clone(n.SharedCPU)
	for k := len(rows) - 1; k >= 0; k-- {
		top := rows[k].And(cpus)
		rows[k] = rows[k].AndNot(top).Trim()
		cpus = cpus.AndNot(top)
		if k == 0 {
			cpus = top
		}
	}
	for len(rows) > 0 && rows[len(rows)-1].Empty() {
		rows = rows[:len(rows)-1]
	}
	if len(rows) == 0 {
		rows = nil
	}
	n.SharedCPU = rows
	return cpus
}

// undoes tells whether one of two faults is the loss of a GPU and the other its return.
func undoes(a, b spec.GPUFaultKind) bool {
	if a == spec.GPULost {
		return b == spec.GPUReturned
	}
	return a == spec.GPUReturned && b == spec.GPULost
}
