package wire

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strconv"
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
func registered(node *apiv1.NodeInfo, inventory *spec.Inventory, trouble string) {
	if inventory != nil {
		node.Version = inventory.AgentVersion
		node.Os = inventory.OS
		node.Arch = inventory.Arch
		node.BootTime, node.AgentStart = int64(inventory.BootedAt), int64(inventory.AgentStarted)
		node.MetricsAddr, node.Degraded = inventory.MetricsAddr, inventory.Degraded
		if node.Hostname == "" {
			node.Hostname = inventory.Hostname
		}
		node.Found = &apiv1.NodeHardware{
			Cpus: inventory.CPUs, Sockets: inventory.Sockets,
			CoresPerSocket: inventory.CoresPerSocket, ThreadsPerCore: inventory.ThreadsPerCore,
			Mem: inventory.Mem, TmpDisk: inventory.TmpDisk, Addr: inventory.Addr,
		}
		if node.Port == 0 {
			node.Port = portOf(inventory.Addr)
		}
	}
	if trouble != "" {
		node.Degraded = strings.TrimPrefix(node.Degraded+"; "+trouble, "; ")
	}
}

// portOf is the port of an address, or 0.
func portOf(addr string) uint32 {
	_, text, err := net.SplitHostPort(addr)
	if err != nil {
		return 0
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0
	}
	return uint32(port)
}

// capacity is what a node has for jobs, and its billing: its CPUs, as Slurm has it
// of a node without weights of its own.
func capacity(nodeSpec *spec.NodeSpec) *apiv1.Tres {
	tres := nodeSpec.NodeTRES()
	tres.Billing = tres.CPU
	return TRES(tres)
}

// Node writes a node as sinfo and scontrol show it. planned tells that the
// plan keeps it for a job.
func Node(cluster *state.State, node *state.Node, live NodeLive, planned bool) *apiv1.NodeInfo {
	nodeSpec := node.Spec
	out := &apiv1.NodeInfo{
		NodeId: uint32(
			node.ID,
		), Name: nodeSpec.Name, Hostname: nodeSpec.Hostname, Addr: nodeSpec.Addr, Port: nodeSpec.Port, CoreSpec: nodeSpec.CoreSpecCount, CpuSpec: nodeSpec.CPUSpecList, MemSpec: nodeSpec.MemSpecLimit, CpusConfigured: nodeSpec.CPUs,
		Cpus: node.CPUs, CpusAlloc: int64(node.UsedCPU.Count()),
		Boards: nodeSpec.Boards, Sockets: nodeSpec.Sockets, CoresPerSocket: nodeSpec.CoresPerSocket, ThreadsPerCore: nodeSpec.ThreadsPerCore,
		Mem: nodeSpec.Mem, MemAlloc: node.UsedMem, MemFree: live.MemFree, LoadMilli: live.LoadMilli, LastSeen: int64(live.LastSeen),
		TmpDisk: nodeSpec.TmpDisk, Weight: max(nodeSpec.Weight, 1), Features: nodeSpec.Features, Gres: GRESText(nodeSpec.GRES), GresUsed: gresUsed(node),
		AvailableFeatures: nodeSpec.Available, Comment: node.Comment, Extra: node.Extra,
		Reason: node.Reason, ReasonTime: int64(node.ReasonAt), CfgTres: capacity(nodeSpec), AllocTres: TRES(node.InUse()),
		Admin: uint32(
			node.Admin,
		), Registered: node.Inv != nil, Lost: node.Lost, Invalid: node.Invalid, LastBusy: int64(node.BusyAt), ResumeAt: int64(node.ResumeAt), Planned: planned,
	}
	out.Power = uint32(node.Power)
	out.PowerAt = int64(node.PowerAt)
	out.Cloud = nodeSpec.State == "CLOUD"
	out.Dynamic = nodeSpec.Dynamic
	out.Future = Future(node)
	if reboot := node.Reboot; reboot != nil {
		out.Reboot, out.RebootAsap = 1, reboot.ASAP
		if reboot.Issued {
			out.Reboot = 2
		}
		switch reboot.Next {
		case event.NodeResume:
			out.NextState = "RESUME"
		case event.NodeDown:
			out.NextState = "DOWN"
		case event.NodeDrain, event.NodeFail:
		}
	}
	out.Shortfall = node.Shortfall()
	switch own := cmp.Or(node.Invalid, out.Shortfall); {
	case node.Reason != "":
		out.ReasonUser = actorName(node.ReasonBy)
		if try := node.FenceTry; try != nil && node.ReasonBy.Kind != event.ActorUser {
			// Its jobs wait for the program: whoever looks for why the node is down must see it.
			out.Reason += fmt.Sprintf(", fence program failed %d times: %s", try.Try, try.Why)
		}
	case own != "": // by what it registered
		out.Reason = own
		out.ReasonUser = actorName(event.Actor{})
		out.ReasonTime = int64(node.Registered)
	case node.Reboot != nil && node.Reboot.Reason != "":
		out.Reason = node.Reboot.Reason
		out.ReasonTime = int64(node.Reboot.At)
	}
	registered(out, node.Inv, live.Trouble)
	for i := range cluster.Parts.List {
		if cluster.Parts.List[i].Nodes.Has(int(node.ID)) {
			out.Partitions = append(out.Partitions, cluster.Parts.List[i].Spec.Name)
		}
	}
	for _, uid := range node.Jobs {
		if j := cluster.Job(uid); j.State.Active() {
			out.JobsRunning++
		} else {
			out.JobsCompleting++
		}
	}
	for i := range node.GPUs {
		gpu := GPU(&node.GPUs[i])
		gpu.Allocated = node.UsedGPU.Has(i)
		if gpu.Allocated {
			gpu.JobUid, gpu.JobId = holder(cluster, node, node.GPUs[i].UUID)
		}
		if share := node.ShareAt(i); share.N > 0 {
			gpu.Share = share.Name
			gpu.Shares = share.N
			gpu.SharesUsed = node.ShareUsed(i)
		}
		out.Gpus = append(out.Gpus, gpu)
	}
	for i := range node.Holds {
		out.Holds = append(out.Holds, ForeignHold(&node.Holds[i]))
	}
	for i := range node.Faults {
		fault := GPUFault(&node.Faults[i])
		if job := cluster.Job(node.Faults[i].Job); job != nil && fault.GetJobId() == 0 {
			fault.JobId = uint64(job.ID) // recorded by a release that did not write the number down
		}
		out.GpuFaults = append(out.GpuFaults, fault)
	}
	out.State = NodeState(out)
	return out
}

func actorName(actor event.Actor) string {
	if actor.Name != "" {
		return actor.Name
	}
	if actor.Kind == event.ActorUser {
		return fmt.Sprint(actor.UID)
	}
	return "muster"
}

func holder(cluster *state.State, node *state.Node, uuid string) (uint64, uint32) {
	for _, uid := range node.Jobs {
		job := cluster.Job(uid)
		for i := range job.Alloc.Nodes {
			allocation := &job.Alloc.Nodes[i]
			if allocation.ID == node.ID &&
				slices.ContainsFunc(allocation.GPUs, func(g spec.GPURef) bool {
					return g.UUID == uuid
				}) {
				return uint64(uid), uint32(job.ID)
			}
		}
	}
	return 0, 0
}

// GPU writes a device.
func GPU(gpu *spec.GPU) *apiv1.GpuInfo {
	return &apiv1.GpuInfo{
		Index:    gpu.Index,
		Uuid:     gpu.UUID,
		Type:     gpu.Type,
		Model:    gpu.Model,
		Pci:      gpu.PCI,
		Mem:      gpu.Mem,
		Path:     gpu.Path,
		Provider: gpu.Provider,
		Minor:    gpu.Minor,
		Numa:     gpu.NUMA,
		Links:    gpu.Links,
		Cpus:     gpu.CPUs,
		Parent:   gpu.Parent,
	}
}

// ToGPU reads a device.
func ToGPU(gpu *apiv1.GpuInfo) spec.GPU {
	return spec.GPU{
		Index:    gpu.GetIndex(),
		UUID:     gpu.GetUuid(),
		Type:     gpu.GetType(),
		Minor:    gpu.GetMinor(),
		PCI:      gpu.GetPci(),
		Model:    gpu.GetModel(),
		Mem:      gpu.GetMem(),
		NUMA:     gpu.GetNuma(),
		Path:     gpu.GetPath(),
		Parent:   gpu.GetParent(),
		Links:    gpu.GetLinks(),
		CPUs:     gpu.GetCpus(),
		Provider: gpu.GetProvider(),
	}
}

// Indices writes a set as ranges, N/A when it is empty: 0-3,7.
func Indices(bitset spec.Bitset) string {
	if bitset.Empty() {
		return "N/A"
	}
	var parts []string
	for i := bitset.Next(0); i >= 0; {
		end := i
		for bitset.Has(end + 1) {
			end++
		}
		if end > i {
			parts = append(parts, fmt.Sprintf("%d-%d", i, end))
		} else {
			parts = append(parts, fmt.Sprint(i))
		}
		i = bitset.Next(end + 1)
	}
	return strings.Join(parts, ",")
}

// FaultsOf lists what happened to the devices of a job's allocation while it
// held them.
func FaultsOf(cluster *state.State, job *state.Job) []*apiv1.GpuFault {
	if job.Alloc == nil {
		return nil
	}
	var faults []*apiv1.GpuFault
	for i := range job.Alloc.Nodes {
		node := cluster.NodeByID(job.Alloc.Nodes[i].ID)
		if node == nil {
			continue
		}
		for k := range node.Faults {
			if fault := &node.Faults[k]; fault.Job == job.UID && fault.Attempt == job.Attempt {
				message := GPUFault(fault)
				message.Node, message.JobId = node.Spec.Name, uint64(job.ID)
				faults = append(faults, message)
			}
		}
	}
	return faults
}

// Future tells a node in State=FUTURE for which no agent has come yet. It is
// shown only where it is asked for.
func Future(node *state.Node) bool { return node.Spec.State == "FUTURE" && node.Inv == nil }

// NodeState is the state as scontrol shows it: the base and its flags.
func NodeState(node *apiv1.NodeInfo) string {
	admin := event.NodeAdminState(node.GetAdmin())
	base := "IDLE"
	power := event.PowerState(node.GetPower())
	asleep := power >= event.PoweringDown
	switch {
	case node.GetFuture():
		base = "FUTURE"
	case admin == event.NodeDown || node.GetLost():
		base = "DOWN"
	case !node.GetRegistered() && !asleep:
		base = "UNKNOWN"
	case (node.GetJobsRunning() > 0 || len(node.GetHolds()) > 0) && node.GetCpusAlloc() >= node.GetCpus():
		base = "ALLOCATED"
	case node.GetJobsRunning() > 0 || len(node.GetHolds()) > 0:
		base = "MIXED"
	}
	idle := base == "IDLE"
	if node.GetCloud() {
		base += "+CLOUD"
	}
	if node.GetJobsCompleting() > 0 {
		base += "+COMPLETING"
	}
	rebootsSoon := node.GetReboot() == 1 && node.GetRebootAsap()
	if admin == event.NodeDrain || node.GetInvalid() != "" || power == event.PowerDownASAP ||
		rebootsSoon {
		base += "+DRAIN"
	}
	if admin == event.NodeFail {
		base += "+FAIL"
	}
	if node.GetInvalid() != "" {
		base += "+INVALID_REG"
	}
	if node.GetDynamic() {
		base += "+DYNAMIC_NORM"
	}
	expected := !asleep && !node.GetFuture()
	if node.GetLost() || expected && !node.GetRegistered() || power == event.PoweringUp {
		base += "+NOT_RESPONDING"
	}
	base += [...]string{event.PowerDownWish: "+POWER_DOWN", event.PowerDownASAP: "+POWER_DOWN", event.PoweringDown: "+POWERING_DOWN", event.PoweredDown: "+POWERED_DOWN",
		event.PowerUpWish: "+POWERED_DOWN+POWER_UP", event.PoweringUp: "+POWERING_UP"}[min(power, event.PoweringUp)]
	base += [...]string{"", "+REBOOT_REQUESTED", "+REBOOT_ISSUED"}[min(node.GetReboot(), 2)]
	switch {
	case node.GetMaintenance():
		return base + "+MAINTENANCE"
	case node.GetReservation() != "":
		return base + "+RESERVED"
	}
	if node.GetPlanned() && idle && node.GetJobsCompleting() == 0 &&
		!strings.Contains(base, "DRAIN") {
		base += "+PLANNED"
	}
	return base
}

// nodesOf are the nodes of a partition as a host list, with those that were added
// while the cluster ran.
func nodesOf(partition *spec.PartitionSpec) string {
	if partition.AllNodes || len(partition.NodeFeatures) > 0 {
		return hostlist.Fold(partition.NodeNames)
	}
	return partition.Nodes
}

// Partition writes a partition.
func Partition(cluster *state.State, partition *state.Partition) *apiv1.PartitionInfo {
	ps := partition.Spec
	out := &apiv1.PartitionInfo{
		Name: ps.Name, IsDefault: ps.Default, State: uint32(max(ps.State, spec.PartitionUp)), Nodes: nodesOf(ps), NodeNames: ps.NodeNames,
		MaxTime: partTime(
			ps.MaxTime,
			Unlimited,
		), DefaultTime: partTime(ps.DefaultTime, 0), MinNodes: ps.MinNodes, MaxNodes: ps.MaxNodes,
		PriorityTier: max(
			ps.PriorityTier,
			1,
		), PriorityJobFactor: max(ps.PriorityJobFactor, 1), Qos: ps.QOS,
		AllowAccounts: ps.AllowAccounts, DenyAccounts: ps.DenyAccounts, AllowQos: ps.AllowQOS, DenyQos: ps.DenyQOS, AllowGroups: ps.AllowGroups,
		DefMemPerCpu: ps.DefMemPerCPU, DefMemPerNode: ps.DefMemPerNode, MaxMemPerCpu: ps.MaxMemPerCPU, MaxMemPerNode: ps.MaxMemPerNode,
		OverSubscribe: ps.OverSubscribe, Hidden: ps.Hidden, RootOnly: ps.RootOnly, DisableRootJobs: ps.DisableRootJobs, ReqResv: ps.ReqResv,
		Lln: ps.LLN, PreemptMode: ps.PreemptMode, GraceTime: int64(ps.GraceTime), MaxCpusPerNode: ps.MaxCPUsPerNode, ExclusiveUser: ps.ExclusiveUser,
		SuspendTime: Span(
			ps.SuspendTime,
		), SuspendTimeout: int64(ps.SuspendTimeout), ResumeTimeout: int64(ps.ResumeTimeout), PowerDownOnIdle: ps.PowerDownOnIdle, Topology: ps.Topology,
	}
	var tres spec.TRES
	for id := partition.Nodes.Next(0); id >= 0; id = partition.Nodes.Next(id + 1) {
		if node := cluster.NodeByID(spec.NodeID(id)); node != nil {
			tres = tres.Add(node.Spec.NodeTRES())
			out.TotalNodes++
		}
	}
	tres.Billing = tres.CPU
	out.TotalCpus, out.Tres = tres.CPU, TRES(tres)
	return out
}

func partTime(d spec.Span, unset int64) int64 {
	if d == 0 {
		return unset
	}
	return Span(d)
}
