package query

import (
	"cmp"
	"fmt"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

// showNodes is scontrol show node.
func showNodes(call *tool.Call, names string) error {
	request := &apiv1.ListNodesRequest{Future: call.Opts.On("future")}
	if names != "" && !strings.EqualFold(names, "all") {
		if _, err := hostlist.Count(names); err != nil {
			return call.Errorf("%v", err)
		}
		request.Nodes = []string{names}
	}
	var reply apiv1.ListNodesReply
	if err := call.RPC(tool.MethodListNodes, request, &reply); err != nil {
		refusal := tool.ExplainError(err)
		return tool.Fail(
			1, append(refusal.Preamble("scontrol"), "slurm_load_node error: "+refusal.Text)...,
		)
	}
	view := &render.NodeView{
		Clock: render.NewClock(call.Env),
		UID:   tool.LookupUID,
	}
	view.Now = reply.GetNow()
	if render.WantsDocument(call) {
		view.Cluster = call.Cluster()
		if err := notFound(spec.CodeInvalidNodeName, "Node", reply.GetUnknown()); err != nil {
			return err
		}
		list := make(tree.List, len(reply.GetNodes()))
		for i, node := range reply.GetNodes() {
			list[i] = render.NodeTree(node, view)
		}
		return render.Answer(
			call,
			"openapi_nodes_resp",
			tree.Member{Key: "nodes", Value: list},
			tree.Member{Key: "last_update", Value: render.Instant(call.LastUpdate(reply.GetNow()))},
		)
	}
	for _, node := range reply.GetNodes() {
		if err := call.WriteOut(
			[]byte(
				nodeRecord(view, node, call.Opts.On("details")).Text(
					call.Opts.On("oneliner"), "\n",
				),
			),
		); err != nil {
			return err
		}
	}
	return notFound(spec.CodeInvalidNodeName, "Node", reply.GetUnknown())
}

// nodeRecord lays a node out as scontrol show node does, blanks at the ends of
// lines included.
//
//muster:table the lines of a node in Slurm's order
func nodeRecord(view *render.NodeView, node *apiv1.NodeInfo, details bool) *render.Record {
	record := &render.Record{}
	record.Line(
		"NodeName="+node.GetName(),
		"Arch="+cmp.Or(node.GetArch(), render.Null),
		"CoresPerSocket="+tool.Itoa(node.GetCoresPerSocket())+" ",
	)
	record.Line(
		"CPUAlloc="+tool.Itoa(node.GetCpusAlloc()),
		"CPUEfctv="+tool.Itoa(node.GetCpus()),
		"CPUTot="+tool.Itoa(max(node.GetCpusConfigured(), node.GetCpus())),
		"CPULoad="+render.Milli(node.GetLoadMilli()),
	)
	record.Line(
		"AvailableFeatures=" +
			cmp.Or(strings.Join(render.AvailableFeatures(node), ","), render.Null),
	)
	record.Line("ActiveFeatures=" + cmp.Or(strings.Join(node.GetFeatures(), ","), render.Null))
	record.Line("Gres=" + cmp.Or(node.GetGres(), render.Null))
	if details {
		record.Line("GresDrain=N/A")
		record.Line("GresUsed=" + node.GetGresUsed())
	}
	record.Line(
		"NodeAddr="+cmp.Or(node.GetAddr(), node.GetName()),
		"NodeHostName="+cmp.Or(node.GetHostname(), node.GetName()),
		"Port="+tool.Itoa(node.GetPort()),
		"Version="+cmp.Or(node.GetVersion(), render.Null),
	)
	record.Line("OS=" + cmp.Or(node.GetOs(), render.Null) + " ")
	free := render.NotAvailable
	if node.GetMemFree() >= 0 {
		free = tool.Itoa(node.GetMemFree())
	}
	record.Line(
		"RealMemory="+tool.Itoa(node.GetMem()),
		"AllocMem="+tool.Itoa(node.GetMemAlloc()),
		"FreeMem="+free,
		"Sockets="+tool.Itoa(node.GetSockets()),
		"Boards="+tool.Itoa(max(node.GetBoards(), 1)),
	)
	if node.GetCoreSpec() > 0 || node.GetCpuSpec() != "" || node.GetMemSpec() > 0 {
		record.Line(keptFromJobs(node)...)
	}
	record.Line(
		"State="+cmp.Or(node.GetState(), "UNKNOWN"),
		"ThreadsPerCore="+tool.Itoa(node.GetThreadsPerCore()),
		"TmpDisk="+tool.Itoa(node.GetTmpDisk()),
		"Weight="+tool.Itoa(node.GetWeight()),
		"Owner=N/A",
		"MCS_label=N/A",
	)
	if node.GetNextState() != "" {
		record.Line("NextState=" + node.GetNextState())
	}
	if len(node.GetPartitions()) > 0 {
		record.Line("Partitions=" + strings.Join(node.GetPartitions(), ",") + " ")
	}
	record.Line(
		"BootTime="+view.TimeOr(node.GetBootTime(), "None"),
		"SlurmdStartTime="+view.TimeOr(node.GetAgentStart(), "None"),
	)
	busy := []string{"LastBusyTime=" + view.Time(node.GetLastBusy())}
	if node.GetResumeAt() != 0 {
		busy = append(busy, "ResumeAfterTime="+view.Time(node.GetResumeAt()))
	}
	record.Line(busy...)
	record.Line("CfgTRES=" + nodeTRES(node.GetCfgTres()))
	record.Line("AllocTRES=" + nodeTRES(node.GetAllocTres()))
	record.Line("CapWatts=n/a")
	record.Line("CurrentWatts=0 AveWatts=0")
	record.Line("ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s")
	if text := render.NodeReason(node, view.Clock); text != "" {
		record.Line("Reason=" + text)
	}
	if node.GetComment() != "" {
		record.Line("Comment=" + node.GetComment())
	}
	if node.GetExtra() != "" {
		record.Line("Extra=" + node.GetExtra())
	}
	if node.GetDegraded() != "" {
		record.Line("Degraded=" + node.GetDegraded())
	}
	if gpus := node.GetGpus(); len(gpus) > 0 && gpus[0].GetProvider() != "" {
		record.Line("GPUProvider=" + gpus[0].GetProvider())
	}
	for _, hold := range node.GetHolds() {
		words := []string{"Hold=" + render.HoldName(hold), "TRES=" + render.HoldTRES(hold)}
		if devices := render.HoldGPUs(hold); devices != "" {
			words = append(words, "GPUs="+devices)
		}
		record.Line(append(words, "Since="+view.Time(hold.GetSince()))...)
	}
	for _, fault := range node.GetGpuFaults() {
		words := "GPUEvent=" + fault.GetUuid() + ": " + render.FaultText(fault) + " [" + view.Time(fault.GetAt()) + "]"
		if fault.GetJobId() != 0 {
			words += fmt.Sprintf(" JobId=%d", fault.GetJobId())
		}
		record.Line(words)
	}
	return record
}

// keptFromJobs says what of a node is the system's.
func keptFromJobs(node *apiv1.NodeInfo) []string {
	var out []string
	if node.GetCoreSpec() > 0 {
		out = append(out, "CoreSpecCount="+tool.Itoa(node.GetCoreSpec()))
	}
	if node.GetCpuSpec() != "" {
		out = append(out, "CPUSpecList="+node.GetCpuSpec())
	}
	if node.GetMemSpec() > 0 {
		out = append(out, "MemSpecLimit="+tool.Itoa(node.GetMemSpec()))
	}
	return out
}

// nodeTRES is a node's vector: without the node itself.
func nodeTRES(t *apiv1.Tres) string {
	x := render.ToTRES(t)
	x.Node = 0
	return x.String()
}

// notFound names what was asked for and does not exist.
func notFound(kind spec.Code, what string, names []string) error {
	if len(names) == 0 {
		return nil
	}
	lines := make([]string, len(names))
	for i, n := range names {
		lines[i] = what + " " + n + " not found"
	}
	return tool.Unknown(kind, lines...)
}

// showPartitions is scontrol show partition.
func showPartitions(call *tool.Call, name string) error {
	request := &apiv1.ListPartitionsRequest{Partitions: tool.SplitList(name)}
	var reply apiv1.ListPartitionsReply
	if err := call.RPC(tool.MethodListPartitions, request, &reply); err != nil {
		refusal := tool.ExplainError(err)
		return tool.Fail(1, append(refusal.Preamble("scontrol"), "slurm_load_partitions error: "+
			refusal.Text)...)
	}
	shown := reply.GetPartitions()
	if len(request.GetPartitions()) == 0 {
		shown = fetch.ShownPartitions(call, shown)
	}
	if render.WantsDocument(call) {
		if err := notFound(spec.CodeInvalidPartition, "Partition", reply.GetUnknown()); err != nil {
			return err
		}
		list := make(tree.List, len(shown))
		for i, partition := range shown {
			list[i] = render.PartitionTree(partition)
		}
		return render.Answer(
			call,
			"openapi_partition_resp",
			tree.Member{Key: "partitions", Value: list},
			tree.Member{Key: "last_update", Value: render.Instant(call.LastUpdate(reply.GetNow()))},
		)
	}
	for _, partition := range shown {
		if err := call.WriteOut(
			[]byte(partitionRecord(partition).Text(call.Opts.On("oneliner"), "\n")),
		); err != nil {
			return err
		}
	}
	return notFound(spec.CodeInvalidPartition, "Partition", reply.GetUnknown())
}

// partitionRecord lays a partition out as scontrol show partition does.
//
//muster:table the lines of a partition in Slurm's order
func partitionRecord(partition *apiv1.PartitionInfo) *render.Record {
	all := func(s []string) string { return cmp.Or(strings.Join(s, ","), "ALL") }
	unlimited := func(n int64) string {
		if n == 0 {
			return "UNLIMITED"
		}
		return tool.Itoa(n)
	}
	record := &render.Record{}
	record.Line("PartitionName=" + partition.GetName())
	accounts, qos := "AllowAccounts="+all(partition.GetAllowAccounts()), "AllowQos="+all(partition.GetAllowQos())
	if len(partition.GetDenyAccounts()) > 0 && len(partition.GetAllowAccounts()) == 0 {
		accounts = "DenyAccounts=" + strings.Join(partition.GetDenyAccounts(), ",")
	}
	if len(partition.GetDenyQos()) > 0 && len(partition.GetAllowQos()) == 0 {
		qos = "DenyQos=" + strings.Join(partition.GetDenyQos(), ",")
	}
	record.Line("AllowGroups="+all(partition.GetAllowGroups()), accounts, qos)
	record.Line(
		"AllocNodes=ALL",
		"Default="+render.YesNo(partition.GetIsDefault()),
		"QoS="+cmp.Or(partition.GetQos(), render.NotAvailable),
	)
	defaultTime := "NONE"
	if partition.GetDefaultTime() != 0 {
		defaultTime = render.Limit(partition.GetDefaultTime(), format.Duration)
	}
	record.Line("DefaultTime="+defaultTime,
		"DisableRootJobs="+render.YesNo(partition.GetDisableRootJobs()),
		"ExclusiveUser="+render.YesNo(partition.GetExclusiveUser()),
		"GraceTime="+tool.Itoa(partition.GetGraceTime()/tool.Second), "Hidden="+render.YesNo(partition.GetHidden()))
	record.Line("MaxNodes="+unlimited(int64(partition.GetMaxNodes())),
		"MaxTime="+render.Limit(partition.GetMaxTime(), format.Duration),
		"MinNodes="+tool.Itoa(partition.GetMinNodes()), "LLN="+render.YesNo(partition.GetLln()),
		"MaxCPUsPerNode="+unlimited(partition.GetMaxCpusPerNode()))
	record.Line("Nodes=" + cmp.Or(partition.GetNodes(), render.Null))
	record.Line("PriorityJobFactor="+tool.Itoa(partition.GetPriorityJobFactor()),
		"PriorityTier="+tool.Itoa(partition.GetPriorityTier()),
		"RootOnly="+render.YesNo(partition.GetRootOnly()),
		"ReqResv="+render.YesNo(partition.GetReqResv()),
		"OverSubscribe="+cmp.Or(partition.GetOverSubscribe(), "NO"))
	over := []string{"OverTimeLimit=NONE", "PreemptMode=" + cmp.Or(partition.GetPreemptMode(), "OFF")}
	if partition.GetTopology() != "" {
		over = append(over, "Topology="+partition.GetTopology())
	}
	record.Line(over...)
	record.Line(
		"State="+spec.PartitionState(partition.GetState()).String(),
		"TotalCPUs="+tool.Itoa(partition.GetTotalCpus()),
		"TotalNodes="+tool.Itoa(partition.GetTotalNodes()),
		"SelectTypeParameters=NONE",
	)
	record.Line("JobDefaults=(null)")
	perWhat := func(kind string, cpu, node int64) string {
		if cpu > 0 {
			return kind + "MemPerCPU=" + tool.Itoa(cpu)
		}
		return kind + "MemPerNode=" + unlimited(node)
	}
	record.Line(
		perWhat("Def", partition.GetDefMemPerCpu(), partition.GetDefMemPerNode()),
		perWhat("Max", partition.GetMaxMemPerCpu(), partition.GetMaxMemPerNode()),
	)
	record.Line("TRES=" + render.TRESText(partition.GetTres()))
	if partition.GetBillingWeights() != "" {
		record.Line("TRESBillingWeights=" + partition.GetBillingWeights())
	}
	if partition.GetSuspendTime() != 0 || partition.GetSuspendTimeout() != 0 || partition.GetResumeTimeout() != 0 || partition.GetPowerDownOnIdle() {
		record.Line("ResumeTimeout="+formatPartitionTime(partition.GetResumeTimeout()),
			"SuspendTimeout="+formatPartitionTime(partition.GetSuspendTimeout()),
			"SuspendTime="+formatPartitionTime(partition.GetSuspendTime()),
			"PowerDownOnIdle="+render.YesNo(partition.GetPowerDownOnIdle()))
	}
	return record
}

// formatPartitionTime writes a partition's own time in seconds, or that it has none.
func formatPartitionTime(ns int64) string {
	switch {
	case ns == 0:
		return "GLOBAL"
	case ns < 0:
		return "INFINITE"
	}
	return tool.Itoa(ns / tool.Second)
}

// operatorRefusal explains why a change that is for operators was refused, and gives the lines
// before the main one.
func operatorRefusal(err error) (refusal tool.Refusal, lines []string) {
	refusal = tool.ExplainError(err)
	if refusal.Code == spec.CodeAccessDenied {
		refusal.Text = spec.CodeInvalidUser.String() // what Slurm says to users who are no operators
	}
	return refusal, refusal.Preamble("scontrol")
}

// nodeStateLine words a refusal to change nodes as Slurm does.
func nodeStateLine(err error) error {
	refusal, lines := operatorRefusal(err)
	return tool.Fail(1, append(lines, fmt.Sprintf("slurm_update error: %s", refusal.Text))...)
}
