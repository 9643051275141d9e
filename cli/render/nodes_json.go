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
func upperStates(node *apiv1.NodeInfo) tree.List {
	state := StateOf(node)
	return append(tree.List{state.base}, tree.Strings(state.flags)...)
}

// NodeTree is one node, as scontrol show node --json has it.
//
//muster:table one entry for each key
func NodeTree(node *apiv1.NodeInfo, view *NodeView) tree.Object {
	gpus := tree.List{}
	for _, gpu := range node.GetGpus() {
		gpus = append(gpus,
			tree.Object{{Key: "index", Value: gpu.GetIndex()}, {Key: "uuid", Value: gpu.GetUuid()},
				{Key: "type", Value: gpu.GetType()},
				{Key: "model", Value: gpu.GetModel()}, {Key: "memory", Value: gpu.GetMem()},
				{Key: "allocated", Value: gpu.GetAllocated()},
				{Key: "job_id", Value: gpu.GetJobId()},
				{Key: "share", Value: gpu.GetShare()}, {Key: "shares", Value: gpu.GetShares()},
				{Key: "shares_used", Value: gpu.GetSharesUsed()}})
	}
	return tree.Object{
		{Key: "architecture", Value: node.GetArch()}, {Key: "burstbuffer_network_address", Value: ""}, {Key: "boards", Value: max(node.GetBoards(), 1)},
		{Key: "boot_time", Value: Instant(node.GetBootTime())}, {Key: "cluster_name", Value: view.Cluster}, {Key: "cores", Value: node.GetCoresPerSocket()},
		{Key: "specialized_cores", Value: node.GetCoreSpec()}, {Key: "cpu_binding", Value: 0}, {Key: "cpu_load", Value: max(node.GetLoadMilli(), 0) / 10},
		{Key: "free_mem", Value: Number(node.GetMemFree(), node.GetMemFree() >= 0, false)}, {Key: "cpus", Value: max(node.GetCpusConfigured(), node.GetCpus())}, {Key: "effective_cpus", Value: node.GetCpus()},
		{Key: "specialized_cpus", Value: node.GetCpuSpec()}, {Key: "energy", Value: tree.Object{}}, {Key: "external_sensors", Value: tree.Object{}}, {Key: "extra", Value: node.GetExtra()}, {Key: "power", Value: tree.Object{}},
		{Key: "features", Value: tree.Strings(AvailableFeatures(node))}, {Key: "active_features", Value: tree.Strings(node.GetFeatures())}, {Key: "gpu_spec", Value: ""},
		{Key: "gres", Value: node.GetGres()}, {Key: "gres_drained", Value: NotAvailable}, {Key: "gres_used", Value: node.GetGresUsed()}, {Key: "instance_id", Value: ""}, {Key: "instance_type", Value: ""},
		{Key: "last_busy", Value: Instant(node.GetLastBusy())}, {Key: "mcs_label", Value: ""}, {Key: "specialized_memory", Value: node.GetMemSpec()}, {Key: "name", Value: node.GetName()},
		{Key: "next_state_after_reboot", Value: tree.List{"INVALID"}}, {Key: "address", Value: cmp.Or(node.GetAddr(), node.GetName())}, {Key: "hostname", Value: cmp.Or(node.GetHostname(), node.GetName())},
		{Key: "state", Value: upperStates(node)}, {Key: "operating_system", Value: node.GetOs()}, {Key: "owner", Value: ""}, {Key: "partitions", Value: tree.Strings(node.GetPartitions())},
		{Key: "port", Value: node.GetPort()}, {Key: "real_memory", Value: node.GetMem()}, {Key: "res_cores_per_gpu", Value: 0}, {Key: "comment", Value: node.GetComment()}, {Key: "reason", Value: node.GetReason()},
		{Key: "reason_changed_at", Value: Instant(node.GetReasonTime())}, {Key: "reason_set_by_user", Value: node.GetReasonUser()}, {Key: "resume_after", Value: Instant(0)}, {Key: "reservation", Value: ""},
		{Key: "alloc_memory", Value: node.GetMemAlloc()}, {Key: "alloc_cpus", Value: node.GetCpusAlloc()}, {Key: "alloc_idle_cpus", Value: node.GetCpus() - node.GetCpusAlloc()},
		{Key: "tres_used", Value: TRESText(node.GetAllocTres())}, {Key: "tres_weighted", Value: 0.0}, {Key: "slurmd_start_time", Value: Instant(node.GetAgentStart())},
		{Key: "sockets", Value: node.GetSockets()}, {Key: "threads", Value: node.GetThreadsPerCore()}, {Key: "temporary_disk", Value: node.GetTmpDisk()}, {Key: "weight", Value: node.GetWeight()},
		{Key: "tres", Value: TRESText(node.GetCfgTres())}, {Key: "version", Value: node.GetVersion()},
		{Key: "gpus", Value: gpus}, // Muster's own: which device is whose
	}
}

// PartitionTree is one partition, as scontrol show partition --json has it.
//
//muster:table one entry for each key
func PartitionTree(partition *apiv1.PartitionInfo) tree.Object {
	list := func(s []string) string { return strings.Join(s, ",") }
	return tree.Object{
		{Key: "nodes", Value: tree.Object{{Key: "allowed_allocation", Value: ""}, {Key: "configured", Value: partition.GetNodes()}, {Key: "total", Value: partition.GetTotalNodes()}}},
		{Key: "accounts", Value: tree.Object{{Key: "allowed", Value: list(partition.GetAllowAccounts())}, {Key: "deny", Value: list(partition.GetDenyAccounts())}}},
		{Key: "groups", Value: tree.Object{{Key: "allowed", Value: list(partition.GetAllowGroups())}}},
		{Key: "qos", Value: tree.Object{{Key: "allowed", Value: list(partition.GetAllowQos())}, {Key: "deny", Value: list(partition.GetDenyQos())}, {Key: "assigned", Value: partition.GetQos()}}},
		{Key: "alternate", Value: ""},
		{Key: "tres", Value: tree.Object{{Key: "billing_weights", Value: partition.GetBillingWeights()}, {Key: "configured", Value: TRESText(partition.GetTres())}}},
		{Key: "cluster", Value: ""},
		{Key: "cpus", Value: tree.Object{{Key: "task_binding", Value: 0}, {Key: "total", Value: partition.GetTotalCpus()}}},
		{Key: "defaults", Value: tree.Object{{Key: "memory_per_cpu", Value: partition.GetDefMemPerCpu()}, {Key: "partition_memory_per_cpu", Value: Some(partition.GetDefMemPerCpu())},
			{Key: "partition_memory_per_node", Value: Some(partition.GetDefMemPerNode())}, {Key: "time", Value: Minutes(partition.GetDefaultTime())}, {Key: "job", Value: ""}}},
		{Key: "grace_time", Value: partition.GetGraceTime() / tool.Second},
		{Key: "maximums", Value: tree.Object{{Key: "cpus_per_node", Value: Number(partition.GetMaxCpusPerNode(), partition.GetMaxCpusPerNode() != 0, partition.GetMaxCpusPerNode() == 0)},
			{Key: "cpus_per_socket", Value: Number(0, false, true)}, {Key: "memory_per_cpu", Value: partition.GetMaxMemPerCpu()}, {Key: "partition_memory_per_cpu", Value: Some(partition.GetMaxMemPerCpu())},
			{Key: "partition_memory_per_node", Value: Some(partition.GetMaxMemPerNode())}, {Key: "nodes", Value: Number(int64(partition.GetMaxNodes()), partition.GetMaxNodes() != 0, partition.GetMaxNodes() == 0)},
			{Key: "shares", Value: 1}, {Key: "oversubscribe", Value: tree.Object{{Key: "jobs", Value: 1}, {Key: "flags", Value: tree.List{}}}},
			{Key: "time", Value: Minutes(partition.GetMaxTime())}, {Key: "over_time_limit", Value: Number(0, false, false)}}},
		{Key: "minimums", Value: tree.Object{{Key: "nodes", Value: partition.GetMinNodes()}}},
		{Key: "name", Value: partition.GetName()}, {Key: "node_sets", Value: ""},
		{Key: "priority", Value: tree.Object{{Key: "job_factor", Value: partition.GetPriorityJobFactor()}, {Key: "tier", Value: partition.GetPriorityTier()}}},
		{Key: "timeouts", Value: tree.Object{{Key: "resume", Value: Number(0, false, false)}, {Key: "suspend", Value: Number(0, false, false)}}},
		{Key: "partition", Value: tree.Object{{Key: "state", Value: tree.List{spec.PartitionState(partition.GetState()).String()}}}},
		{Key: "suspend_time", Value: Number(0, false, false)},
	}
}

// SinfoTree is what sinfo --json prints: nodes that are equal in everything
// share an entry.
func SinfoTree(call *tool.Call, groups []*NodeGroup, view *NodeView) tree.Object {
	list := tree.List{}
	for _, group := range groups {
		if len(group.Nodes) > 0 {
			list = append(list, groupTree(group, view))
		}
	}
	return Document(call, tree.Member{Key: "sinfo", Value: list})
}

//muster:table one entry for each key
func groupTree(group *NodeGroup, view *NodeView) tree.Object {
	node := group.First()
	span := func(get func(*apiv1.NodeInfo) int64) tree.Object {
		lo, hi := Extent(group, get)
		return tree.Object{{Key: "minimum", Value: lo}, {Key: "maximum", Value: hi}}
	}
	var names, hosts, addrs []string
	for _, x := range group.Nodes {
		names, hosts, addrs = append(names, x.GetName()), append(hosts, cmp.Or(x.GetHostname(), x.GetName())), append(addrs, cmp.Or(x.GetAddr(), x.GetName()))
	}
	tally := func(t [4]int64) tree.Object {
		return tree.Object{{Key: "allocated", Value: t[0]}, {Key: "idle", Value: t[1]}, {Key: "other", Value: t[2]}, {Key: "total", Value: t[3]}}
	}
	lo, hi := Extent(group, (*apiv1.NodeInfo).GetMemFree)
	return tree.Object{
		{Key: "port", Value: node.GetPort()}, {Key: "node", Value: tree.Object{{Key: "state", Value: upperStates(node)}}},
		{Key: "nodes", Value: append(tally(group.Tally(false)), tree.Member{Key: "hostnames", Value: tree.Strings(hosts)},
			tree.Member{Key: "addresses", Value: tree.Strings(addrs)}, tree.Member{Key: "nodes", Value: tree.Strings(names)})},
		{Key: "cpus", Value: append(append(tally(group.Tally(true)), span((*apiv1.NodeInfo).GetCpus)...),
			tree.Member{Key: "load", Value: span(func(n *apiv1.NodeInfo) int64 { return max(n.GetLoadMilli(), 0) / 10 })})},
		{Key: "sockets", Value: span((*apiv1.NodeInfo).GetSockets)}, {Key: "cores", Value: span((*apiv1.NodeInfo).GetCoresPerSocket)},
		{Key: "threads", Value: span((*apiv1.NodeInfo).GetThreadsPerCore)}, {Key: "disk", Value: span((*apiv1.NodeInfo).GetTmpDisk)},
		{Key: "memory", Value: append(span((*apiv1.NodeInfo).GetMem), tree.Member{Key: "free", Value: tree.Object{
			{Key: "minimum", Value: Number(lo, lo >= 0, false)}, {Key: "maximum", Value: Number(hi, hi >= 0, false)}}}, tree.Member{Key: "allocated", Value: node.GetMemAlloc()})},
		{Key: "weight", Value: span(func(n *apiv1.NodeInfo) int64 { return int64(n.GetWeight()) })},
		{Key: "features", Value: tree.Object{{Key: "total", Value: strings.Join(node.GetFeatures(), ",")}, {Key: "active", Value: strings.Join(node.GetFeatures(), ",")}}},
		{Key: "gres", Value: tree.Object{{Key: "total", Value: node.GetGres()}, {Key: "used", Value: node.GetGresUsed()}}},
		{Key: "reason", Value: tree.Object{{Key: "description", Value: cmp.Or(node.GetReason(), "none")}, {Key: "time", Value: Instant(node.GetReasonTime())}, {Key: "user", Value: node.GetReasonUser()}}},
		{Key: "partition", Value: PartitionTree(group.Part)}, {Key: "cluster", Value: view.Cluster}, {Key: "comment", Value: ""}, {Key: "extra", Value: ""}, {Key: "reservation", Value: ""},
	}
}
