package wire

import (
	"fmt"
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// NodeLive is what only the agent's heartbeats tell of a node; negative
// numbers are unknown.
type NodeLive struct {
	LoadMilli, MemFree int64
	LastSeen           spec.Instant
	Trouble            string // with its agent, as of now; empty = none
}

// registered adds what the node's agent registered; nil = none has.
func registered(out *apiv1.NodeInfo, inv *spec.Inventory, trouble string) {
	if inv != nil {
		out.Version, out.Os, out.Arch = inv.AgentVersion, inv.OS, inv.Arch
		out.BootTime, out.AgentStart = int64(inv.BootedAt), int64(inv.AgentStarted)
		out.MetricsAddr, out.Degraded = inv.MetricsAddr, inv.Degraded
		if out.Hostname == "" {
			out.Hostname = inv.Hostname
		}
	}
	if trouble != "" {
		out.Degraded = strings.TrimPrefix(out.Degraded+"; "+trouble, "; ")
	}
}

// capacity is what a node has for jobs, and its billing: its CPUs, as Slurm has it
// of a node without weights of its own.
func capacity(ns *spec.NodeSpec) *apiv1.Tres {
	t := ns.NodeTRES()
	t.Billing = t.CPU
	return TRES(t)
}

// Node writes a node as sinfo and scontrol show it. planned tells that the
// plan keeps it for a job.
func Node(st *state.State, n *state.Node, live NodeLive, planned bool) *apiv1.NodeInfo {
	ns := n.Spec
	out := &apiv1.NodeInfo{
		NodeId: uint32(n.ID), Name: ns.Name, Hostname: ns.Hostname, Addr: ns.Addr, Port: ns.Port, CoreSpec: ns.CoreSpecCount, CpuSpec: ns.CPUSpecList, MemSpec: ns.MemSpecLimit, CpusConfigured: ns.CPUs,
		Cpus: n.CPUs, CpusAlloc: int64(n.UsedCPU.Count()),
		Boards: ns.Boards, Sockets: ns.Sockets, CoresPerSocket: ns.CoresPerSocket, ThreadsPerCore: ns.ThreadsPerCore,
		Mem: ns.Mem, MemAlloc: n.UsedMem, MemFree: live.MemFree, LoadMilli: live.LoadMilli, LastSeen: int64(live.LastSeen),
		TmpDisk: ns.TmpDisk, Weight: max(ns.Weight, 1), Features: ns.Features, Gres: GRESText(ns.GRES), GresUsed: gresUsed(n),
		AvailableFeatures: ns.Available, Comment: n.Comment, Extra: n.Extra,
		Reason: n.Reason, ReasonTime: int64(n.ReasonAt), CfgTres: capacity(ns), AllocTres: TRES(n.InUse()),
		Admin: uint32(n.Admin), Registered: n.Inv != nil, Lost: n.Lost, Invalid: n.Invalid, LastBusy: int64(n.BusyAt), ResumeAt: int64(n.ResumeAt), Planned: planned,
	}
	out.Power, out.PowerAt, out.Cloud, out.Dynamic, out.Future = uint32(n.Power), int64(n.PowerAt), ns.State == "CLOUD", ns.Dynamic, Future(n)
	if r := n.Reboot; r != nil {
		out.Reboot, out.RebootAsap = 1, r.ASAP
		if r.Issued {
			out.Reboot = 2
		}
		switch r.Next {
		case event.NodeResume:
			out.NextState = "RESUME"
		case event.NodeDown:
			out.NextState = "DOWN"
		case event.NodeDrain, event.NodeFail:
		}
	}
	if n.Reason != "" {
		out.ReasonUser = actorName(n.ReasonBy)
	} else if n.Invalid != "" {
		// It is out of service by what it registered.
		out.Reason, out.ReasonUser, out.ReasonTime = n.Invalid, actorName(event.Actor{}), int64(n.Registered)
	}
	registered(out, n.Inv, live.Trouble)
	for i := range st.Parts.List {
		if st.Parts.List[i].Nodes.Has(int(n.ID)) {
			out.Partitions = append(out.Partitions, st.Parts.List[i].Spec.Name)
		}
	}
	for _, uid := range n.Jobs {
		if j := st.Job(uid); j.State.Active() {
			out.JobsRunning++
		} else {
			out.JobsCompleting++
		}
	}
	for i := range n.GPUs {
		g := GPU(&n.GPUs[i])
		g.Allocated = n.UsedGPU.Has(i)
		if g.Allocated {
			g.JobUid, g.JobId = holder(st, n, n.GPUs[i].UUID)
		}
		if share := n.ShareAt(i); share.N > 0 {
			g.Share, g.Shares, g.SharesUsed = share.Name, share.N, n.ShareUsed(i)
		}
		out.Gpus = append(out.Gpus, g)
	}
	for i := range n.Holds {
		out.Holds = append(out.Holds, ForeignHold(&n.Holds[i]))
	}
	for i := range n.Faults {
		f := GPUFault(&n.Faults[i])
		if j := st.Job(n.Faults[i].Job); j != nil && f.GetJobId() == 0 {
			f.JobId = uint64(j.ID) // recorded by a release that did not write the number down
		}
		out.GpuFaults = append(out.GpuFaults, f)
	}
	out.State = NodeState(out)
	return out
}

func actorName(a event.Actor) string {
	if a.Name != "" {
		return a.Name
	}
	if a.Kind == event.ActorUser {
		return fmt.Sprint(a.UID)
	}
	return "muster"
}

func holder(st *state.State, n *state.Node, uuid string) (uint64, uint32) {
	for _, uid := range n.Jobs {
		j := st.Job(uid)
		for i := range j.Alloc.Nodes {
			a := &j.Alloc.Nodes[i]
			if a.ID == n.ID && slices.ContainsFunc(a.GPUs, func(g spec.GPURef) bool { return g.UUID == uuid }) {
				return uint64(uid), uint32(j.ID)
			}
		}
	}
	return 0, 0
}

// GPU writes a device.
func GPU(g *spec.GPU) *apiv1.GpuInfo {
	return &apiv1.GpuInfo{Index: g.Index, Uuid: g.UUID, Type: g.Type, Model: g.Model, Pci: g.PCI, Mem: g.Mem, Path: g.Path,
		Provider: g.Provider, Minor: g.Minor, Numa: g.NUMA, Links: g.Links, Cpus: g.CPUs, Parent: g.Parent}
}

// ToGPU reads a device.
func ToGPU(g *apiv1.GpuInfo) spec.GPU {
	return spec.GPU{Index: g.GetIndex(), UUID: g.GetUuid(), Type: g.GetType(), Minor: g.GetMinor(), PCI: g.GetPci(), Model: g.GetModel(),
		Mem: g.GetMem(), NUMA: g.GetNuma(), Path: g.GetPath(), Parent: g.GetParent(), Links: g.GetLinks(), CPUs: g.GetCpus(), Provider: g.GetProvider()}
}

// Indices writes a set as ranges, N/A when it is empty: 0-3,7.
func Indices(b spec.Bitset) string {
	if b.Empty() {
		return "N/A"
	}
	var parts []string
	for i := b.Next(0); i >= 0; {
		end := i
		for b.Has(end + 1) {
			end++
		}
		if end > i {
			parts = append(parts, fmt.Sprintf("%d-%d", i, end))
		} else {
			parts = append(parts, fmt.Sprint(i))
		}
		i = b.Next(end + 1)
	}
	return strings.Join(parts, ",")
}

// FaultsOf lists what happened to the devices of a job's allocation while it
// held them.
func FaultsOf(st *state.State, j *state.Job) []*apiv1.GpuFault {
	if j.Alloc == nil {
		return nil
	}
	var out []*apiv1.GpuFault
	for i := range j.Alloc.Nodes {
		n := st.NodeByID(j.Alloc.Nodes[i].ID)
		if n == nil {
			continue
		}
		for k := range n.Faults {
			if f := &n.Faults[k]; f.Job == j.UID && f.Attempt == j.Attempt {
				m := GPUFault(f)
				m.Node, m.JobId = n.Spec.Name, uint64(j.ID)
				out = append(out, m)
			}
		}
	}
	return out
}

// Future tells a node in State=FUTURE for which no agent has come yet. It is
// shown only where it is asked for.
func Future(n *state.Node) bool { return n.Spec.State == "FUTURE" && n.Inv == nil }

// NodeState is the state as scontrol shows it: the base and its flags.
func NodeState(n *apiv1.NodeInfo) string {
	admin := event.NodeAdminState(n.GetAdmin())
	base := "IDLE"
	power := event.PowerState(n.GetPower())
	asleep := power >= event.PoweringDown
	switch {
	case n.GetFuture():
		base = "FUTURE"
	case admin == event.NodeDown || n.GetLost():
		base = "DOWN"
	case !n.GetRegistered() && !asleep:
		base = "UNKNOWN"
	case (n.GetJobsRunning() > 0 || len(n.GetHolds()) > 0) && n.GetCpusAlloc() >= n.GetCpus():
		base = "ALLOCATED"
	case n.GetJobsRunning() > 0 || len(n.GetHolds()) > 0:
		base = "MIXED"
	}
	idle := base == "IDLE"
	if n.GetCloud() {
		base += "+CLOUD"
	}
	if n.GetJobsCompleting() > 0 {
		base += "+COMPLETING"
	}
	if admin == event.NodeDrain || n.GetInvalid() != "" || power == event.PowerDownASAP || (n.GetReboot() == 1 && n.GetRebootAsap()) {
		base += "+DRAIN"
	}
	if admin == event.NodeFail {
		base += "+FAIL"
	}
	if n.GetInvalid() != "" {
		base += "+INVALID_REG"
	}
	if n.GetDynamic() {
		base += "+DYNAMIC_NORM"
	}
	if n.GetLost() || (!n.GetRegistered() && !asleep && !n.GetFuture()) || power == event.PoweringUp {
		base += "+NOT_RESPONDING"
	}
	base += [...]string{event.PowerDownWish: "+POWER_DOWN", event.PowerDownASAP: "+POWER_DOWN", event.PoweringDown: "+POWERING_DOWN", event.PoweredDown: "+POWERED_DOWN",
		event.PowerUpWish: "+POWERED_DOWN+POWER_UP", event.PoweringUp: "+POWERING_UP"}[min(power, event.PoweringUp)]
	base += [...]string{"", "+REBOOT_REQUESTED", "+REBOOT_ISSUED"}[min(n.GetReboot(), 2)]
	switch {
	case n.GetMaintenance():
		return base + "+MAINTENANCE"
	case n.GetReservation() != "":
		return base + "+RESERVED"
	}
	if n.GetPlanned() && idle && n.GetJobsCompleting() == 0 && !strings.Contains(base, "DRAIN") {
		base += "+PLANNED"
	}
	return base
}

// nodesOf are the nodes of a partition as a host list, with those that were added
// while the cluster ran.
func nodesOf(ps *spec.PartitionSpec) string {
	if ps.AllNodes || len(ps.NodeFeatures) > 0 {
		return hostlist.Fold(ps.NodeNames)
	}
	return ps.Nodes
}

// Partition writes a partition.
func Partition(st *state.State, p *state.Partition) *apiv1.PartitionInfo {
	ps := p.Spec
	out := &apiv1.PartitionInfo{
		Name: ps.Name, IsDefault: ps.Default, State: uint32(max(ps.State, spec.PartitionUp)), Nodes: nodesOf(ps), NodeNames: ps.NodeNames,
		MaxTime: partTime(ps.MaxTime, Unlimited), DefaultTime: partTime(ps.DefaultTime, 0), MinNodes: ps.MinNodes, MaxNodes: ps.MaxNodes,
		PriorityTier: max(ps.PriorityTier, 1), PriorityJobFactor: max(ps.PriorityJobFactor, 1), Qos: ps.QOS,
		AllowAccounts: ps.AllowAccounts, DenyAccounts: ps.DenyAccounts, AllowQos: ps.AllowQOS, DenyQos: ps.DenyQOS, AllowGroups: ps.AllowGroups,
		DefMemPerCpu: ps.DefMemPerCPU, DefMemPerNode: ps.DefMemPerNode, MaxMemPerCpu: ps.MaxMemPerCPU, MaxMemPerNode: ps.MaxMemPerNode,
		OverSubscribe: ps.OverSubscribe, Hidden: ps.Hidden, RootOnly: ps.RootOnly, DisableRootJobs: ps.DisableRootJobs, ReqResv: ps.ReqResv,
		Lln: ps.LLN, PreemptMode: ps.PreemptMode, GraceTime: int64(ps.GraceTime), MaxCpusPerNode: ps.MaxCPUsPerNode, ExclusiveUser: ps.ExclusiveUser,
		SuspendTime: Span(ps.SuspendTime), SuspendTimeout: int64(ps.SuspendTimeout), ResumeTimeout: int64(ps.ResumeTimeout), PowerDownOnIdle: ps.PowerDownOnIdle, Topology: ps.Topology,
	}
	var t spec.TRES
	for id := p.Nodes.Next(0); id >= 0; id = p.Nodes.Next(id + 1) {
		if n := st.NodeByID(spec.NodeID(id)); n != nil {
			t = t.Add(n.Spec.NodeTRES())
			out.TotalNodes++
		}
	}
	t.Billing = t.CPU
	out.TotalCpus, out.Tres = t.CPU, TRES(t)
	return out
}

func partTime(d spec.Span, unset int64) int64 {
	if d == 0 {
		return unset
	}
	return Span(d)
}
