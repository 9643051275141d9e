package render

import (
	"cmp"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
)

// upperStates is a node's state as JSON has it: the base and its flags.
func upperStates(n *apiv1.NodeInfo) tree.List {
	s := StateOf(n)
	return append(tree.List{s.base}, tree.Strings(s.flags)...)
}

// NodeTree is one node, as scontrol show node --json has it.
//
//muster:table one entry for each key
func NodeTree(n *apiv1.NodeInfo, v *NodeView) tree.Object {
	gpus := tree.List{}
	for _, g := range n.GetGpus() {
		gpus = append(gpus, tree.Object{{Key: "index", Value: g.GetIndex()}, {Key: "uuid", Value: g.GetUuid()}, {Key: "type", Value: g.GetType()},
			{Key: "model", Value: g.GetModel()}, {Key: "memory", Value: g.GetMem()}, {Key: "allocated", Value: g.GetAllocated()}, {Key: "job_id", Value: g.GetJobId()},
			{Key: "share", Value: g.GetShare()}, {Key: "shares", Value: g.GetShares()}, {Key: "shares_used", Value: g.GetSharesUsed()}})
	}
	return tree.Object{
		{Key: "architecture", Value: n.GetArch()}, {Key: "burstbuffer_network_address", Value: ""}, {Key: "boards", Value: max(n.GetBoards(), 1)},
		{Key: "boot_time", Value: Instant(n.GetBootTime())}, {Key: "cluster_name", Value: v.Cluster}, {Key: "cores", Value: n.GetCoresPerSocket()},
		{Key: "specialized_cores", Value: n.GetCoreSpec()}, {Key: "cpu_binding", Value: 0}, {Key: "cpu_load", Value: max(n.GetLoadMilli(), 0) / 10},
		{Key: "free_mem", Value: Number(n.GetMemFree(), n.GetMemFree() >= 0, false)}, {Key: "cpus", Value: max(n.GetCpusConfigured(), n.GetCpus())}, {Key: "effective_cpus", Value: n.GetCpus()},
		{Key: "specialized_cpus", Value: n.GetCpuSpec()}, {Key: "energy", Value: tree.Object{}}, {Key: "external_sensors", Value: tree.Object{}}, {Key: "extra", Value: n.GetExtra()}, {Key: "power", Value: tree.Object{}},
		{Key: "features", Value: tree.Strings(AvailableFeatures(n))}, {Key: "active_features", Value: tree.Strings(n.GetFeatures())}, {Key: "gpu_spec", Value: ""},
		{Key: "gres", Value: n.GetGres()}, {Key: "gres_drained", Value: NotAvailable}, {Key: "gres_used", Value: n.GetGresUsed()}, {Key: "instance_id", Value: ""}, {Key: "instance_type", Value: ""},
		{Key: "last_busy", Value: Instant(n.GetLastBusy())}, {Key: "mcs_label", Value: ""}, {Key: "specialized_memory", Value: n.GetMemSpec()}, {Key: "name", Value: n.GetName()},
		{Key: "next_state_after_reboot", Value: tree.List{"INVALID"}}, {Key: "address", Value: cmp.Or(n.GetAddr(), n.GetName())}, {Key: "hostname", Value: cmp.Or(n.GetHostname(), n.GetName())},
		{Key: "state", Value: upperStates(n)}, {Key: "operating_system", Value: n.GetOs()}, {Key: "owner", Value: ""}, {Key: "partitions", Value: tree.Strings(n.GetPartitions())},
		{Key: "port", Value: n.GetPort()}, {Key: "real_memory", Value: n.GetMem()}, {Key: "res_cores_per_gpu", Value: 0}, {Key: "comment", Value: n.GetComment()}, {Key: "reason", Value: n.GetReason()},
		{Key: "reason_changed_at", Value: Instant(n.GetReasonTime())}, {Key: "reason_set_by_user", Value: n.GetReasonUser()}, {Key: "resume_after", Value: Instant(0)}, {Key: "reservation", Value: ""},
		{Key: "alloc_memory", Value: n.GetMemAlloc()}, {Key: "alloc_cpus", Value: n.GetCpusAlloc()}, {Key: "alloc_idle_cpus", Value: n.GetCpus() - n.GetCpusAlloc()},
		{Key: "tres_used", Value: TRESText(n.GetAllocTres())}, {Key: "tres_weighted", Value: 0.0}, {Key: "slurmd_start_time", Value: Instant(n.GetAgentStart())},
		{Key: "sockets", Value: n.GetSockets()}, {Key: "threads", Value: n.GetThreadsPerCore()}, {Key: "temporary_disk", Value: n.GetTmpDisk()}, {Key: "weight", Value: n.GetWeight()},
		{Key: "tres", Value: TRESText(n.GetCfgTres())}, {Key: "version", Value: n.GetVersion()},
		{Key: "gpus", Value: gpus}, // Muster's own: which device is whose
	}
}

// PartitionTree is one partition, as scontrol show partition --json has it.
//
//muster:table one entry for each key
func PartitionTree(p *apiv1.PartitionInfo) tree.Object {
	list := func(s []string) string { return strings.Join(s, ",") }
	return tree.Object{
		{Key: "nodes", Value: tree.Object{{Key: "allowed_allocation", Value: ""}, {Key: "configured", Value: p.GetNodes()}, {Key: "total", Value: p.GetTotalNodes()}}},
		{Key: "accounts", Value: tree.Object{{Key: "allowed", Value: list(p.GetAllowAccounts())}, {Key: "deny", Value: list(p.GetDenyAccounts())}}},
		{Key: "groups", Value: tree.Object{{Key: "allowed", Value: list(p.GetAllowGroups())}}},
		{Key: "qos", Value: tree.Object{{Key: "allowed", Value: list(p.GetAllowQos())}, {Key: "deny", Value: list(p.GetDenyQos())}, {Key: "assigned", Value: p.GetQos()}}},
		{Key: "alternate", Value: ""},
		{Key: "tres", Value: tree.Object{{Key: "billing_weights", Value: p.GetBillingWeights()}, {Key: "configured", Value: TRESText(p.GetTres())}}},
		{Key: "cluster", Value: ""},
		{Key: "cpus", Value: tree.Object{{Key: "task_binding", Value: 0}, {Key: "total", Value: p.GetTotalCpus()}}},
		{Key: "defaults", Value: tree.Object{{Key: "memory_per_cpu", Value: p.GetDefMemPerCpu()}, {Key: "partition_memory_per_cpu", Value: Some(p.GetDefMemPerCpu())},
			{Key: "partition_memory_per_node", Value: Some(p.GetDefMemPerNode())}, {Key: "time", Value: Minutes(p.GetDefaultTime())}, {Key: "job", Value: ""}}},
		{Key: "grace_time", Value: p.GetGraceTime() / tool.Second},
		{Key: "maximums", Value: tree.Object{{Key: "cpus_per_node", Value: Number(p.GetMaxCpusPerNode(), p.GetMaxCpusPerNode() != 0, p.GetMaxCpusPerNode() == 0)},
			{Key: "cpus_per_socket", Value: Number(0, false, true)}, {Key: "memory_per_cpu", Value: p.GetMaxMemPerCpu()}, {Key: "partition_memory_per_cpu", Value: Some(p.GetMaxMemPerCpu())},
			{Key: "partition_memory_per_node", Value: Some(p.GetMaxMemPerNode())}, {Key: "nodes", Value: Number(int64(p.GetMaxNodes()), p.GetMaxNodes() != 0, p.GetMaxNodes() == 0)},
			{Key: "shares", Value: 1}, {Key: "oversubscribe", Value: tree.Object{{Key: "jobs", Value: 1}, {Key: "flags", Value: tree.List{}}}},
			{Key: "time", Value: Minutes(p.GetMaxTime())}, {Key: "over_time_limit", Value: Number(0, false, false)}}},
		{Key: "minimums", Value: tree.Object{{Key: "nodes", Value: p.GetMinNodes()}}},
		{Key: "name", Value: p.GetName()}, {Key: "node_sets", Value: ""},
		{Key: "priority", Value: tree.Object{{Key: "job_factor", Value: p.GetPriorityJobFactor()}, {Key: "tier", Value: p.GetPriorityTier()}}},
		{Key: "timeouts", Value: tree.Object{{Key: "resume", Value: Number(0, false, false)}, {Key: "suspend", Value: Number(0, false, false)}}},
		{Key: "partition", Value: tree.Object{{Key: "state", Value: tree.List{spec.PartitionState(p.GetState()).String()}}}},
		{Key: "suspend_time", Value: Number(0, false, false)},
	}
}

// SinfoTree is what sinfo --json prints: nodes that are equal in everything
// share an entry.
func SinfoTree(c *tool.Call, groups []*NodeGroup, v *NodeView) tree.Object {
	list := tree.List{}
	for _, g := range groups {
		if len(g.Nodes) > 0 {
			list = append(list, groupTree(g, v))
		}
	}
	return Document(c, tree.Member{Key: "sinfo", Value: list})
}

//muster:table one entry for each key
func groupTree(g *NodeGroup, v *NodeView) tree.Object {
	n := g.First()
	span := func(get func(*apiv1.NodeInfo) int64) tree.Object {
		lo, hi := Extent(g, get)
		return tree.Object{{Key: "minimum", Value: lo}, {Key: "maximum", Value: hi}}
	}
	var names, hosts, addrs []string
	for _, x := range g.Nodes {
		names, hosts, addrs = append(names, x.GetName()), append(hosts, cmp.Or(x.GetHostname(), x.GetName())), append(addrs, cmp.Or(x.GetAddr(), x.GetName()))
	}
	tally := func(t [4]int64) tree.Object {
		return tree.Object{{Key: "allocated", Value: t[0]}, {Key: "idle", Value: t[1]}, {Key: "other", Value: t[2]}, {Key: "total", Value: t[3]}}
	}
	lo, hi := Extent(g, (*apiv1.NodeInfo).GetMemFree)
	return tree.Object{
		{Key: "port", Value: n.GetPort()}, {Key: "node", Value: tree.Object{{Key: "state", Value: upperStates(n)}}},
		{Key: "nodes", Value: append(tally(g.Tally(false)), tree.Member{Key: "hostnames", Value: tree.Strings(hosts)},
			tree.Member{Key: "addresses", Value: tree.Strings(addrs)}, tree.Member{Key: "nodes", Value: tree.Strings(names)})},
		{Key: "cpus", Value: append(append(tally(g.Tally(true)), span((*apiv1.NodeInfo).GetCpus)...),
			tree.Member{Key: "load", Value: span(func(n *apiv1.NodeInfo) int64 { return max(n.GetLoadMilli(), 0) / 10 })})},
		{Key: "sockets", Value: span((*apiv1.NodeInfo).GetSockets)}, {Key: "cores", Value: span((*apiv1.NodeInfo).GetCoresPerSocket)},
		{Key: "threads", Value: span((*apiv1.NodeInfo).GetThreadsPerCore)}, {Key: "disk", Value: span((*apiv1.NodeInfo).GetTmpDisk)},
		{Key: "memory", Value: append(span((*apiv1.NodeInfo).GetMem), tree.Member{Key: "free", Value: tree.Object{
			{Key: "minimum", Value: Number(lo, lo >= 0, false)}, {Key: "maximum", Value: Number(hi, hi >= 0, false)}}}, tree.Member{Key: "allocated", Value: n.GetMemAlloc()})},
		{Key: "weight", Value: span(func(n *apiv1.NodeInfo) int64 { return int64(n.GetWeight()) })},
		{Key: "features", Value: tree.Object{{Key: "total", Value: strings.Join(n.GetFeatures(), ",")}, {Key: "active", Value: strings.Join(n.GetFeatures(), ",")}}},
		{Key: "gres", Value: tree.Object{{Key: "total", Value: n.GetGres()}, {Key: "used", Value: n.GetGresUsed()}}},
		{Key: "reason", Value: tree.Object{{Key: "description", Value: cmp.Or(n.GetReason(), "none")}, {Key: "time", Value: Instant(n.GetReasonTime())}, {Key: "user", Value: n.GetReasonUser()}}},
		{Key: "partition", Value: PartitionTree(g.Part)}, {Key: "cluster", Value: v.Cluster}, {Key: "comment", Value: ""}, {Key: "extra", Value: ""}, {Key: "reservation", Value: ""},
	}
}
