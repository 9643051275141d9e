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
func showNodes(c *tool.Call, names string) error {
	req := &apiv1.ListNodesRequest{Future: c.Opts.On("future")}
	if names != "" && !strings.EqualFold(names, "all") {
		if _, err := hostlist.Count(names); err != nil {
			return c.Errorf("%v", err)
		}
		req.Nodes = []string{names}
	}
	var rep apiv1.ListNodesReply
	if err := c.RPC(tool.MethodListNodes, req, &rep); err != nil {
		r := tool.ExplainError(err)
		return tool.Fail(1, append(r.Preamble("scontrol"), "slurm_load_node error: "+r.Text)...)
	}
	view := &render.NodeView{Clock: render.NewClock(c.Env), UID: tool.LookupUID, Cluster: c.Cluster()}
	view.Now = rep.GetNow()
	if render.WantsDocument(c) {
		if err := notFound(spec.CodeInvalidNodeName, "Node", rep.GetUnknown()); err != nil {
			return err
		}
		list := make(tree.List, len(rep.GetNodes()))
		for i, n := range rep.GetNodes() {
			list[i] = render.NodeTree(n, view)
		}
		return render.Answer(c, "openapi_nodes_resp", tree.Member{Key: "nodes", Value: list}, tree.Member{Key: "last_update", Value: render.Instant(rep.GetNow())})
	}
	for _, n := range rep.GetNodes() {
		if err := c.WriteOut([]byte(nodeRecord(view, n, c.Opts.On("details")).Text(c.Opts.On("oneliner"), "\n"))); err != nil {
			return err
		}
	}
	return notFound(spec.CodeInvalidNodeName, "Node", rep.GetUnknown())
}

// nodeRecord lays a node out as scontrol show node does, blanks at the ends of
// lines included.
//
//muster:table the lines of a node in Slurm's order
func nodeRecord(v *render.NodeView, n *apiv1.NodeInfo, details bool) *render.Record {
	rec := &render.Record{}
	rec.Line("NodeName="+n.GetName(), "Arch="+cmp.Or(n.GetArch(), render.Null), "CoresPerSocket="+tool.Itoa(n.GetCoresPerSocket())+" ")
	rec.Line("CPUAlloc="+tool.Itoa(n.GetCpusAlloc()), "CPUEfctv="+tool.Itoa(n.GetCpus()), "CPUTot="+tool.Itoa(max(n.GetCpusConfigured(), n.GetCpus())), "CPULoad="+render.Milli(n.GetLoadMilli()))
	rec.Line("AvailableFeatures=" + cmp.Or(strings.Join(render.AvailableFeatures(n), ","), render.Null))
	rec.Line("ActiveFeatures=" + cmp.Or(strings.Join(n.GetFeatures(), ","), render.Null))
	rec.Line("Gres=" + cmp.Or(n.GetGres(), render.Null))
	if details {
		rec.Line("GresDrain=N/A")
		rec.Line("GresUsed=" + n.GetGresUsed())
	}
	rec.Line("NodeAddr="+cmp.Or(n.GetAddr(), n.GetName()), "NodeHostName="+cmp.Or(n.GetHostname(), n.GetName()), "Port="+tool.Itoa(n.GetPort()), "Version="+cmp.Or(n.GetVersion(), render.Null))
	rec.Line("OS=" + cmp.Or(n.GetOs(), render.Null) + " ")
	free := render.NotAvailable
	if n.GetMemFree() >= 0 {
		free = tool.Itoa(n.GetMemFree())
	}
	rec.Line("RealMemory="+tool.Itoa(n.GetMem()), "AllocMem="+tool.Itoa(n.GetMemAlloc()), "FreeMem="+free, "Sockets="+tool.Itoa(n.GetSockets()), "Boards="+tool.Itoa(max(n.GetBoards(), 1)))
	if n.GetCoreSpec() > 0 || n.GetCpuSpec() != "" || n.GetMemSpec() > 0 {
		rec.Line(keptFromJobs(n)...)
	}
	rec.Line("State="+cmp.Or(n.GetState(), "UNKNOWN"), "ThreadsPerCore="+tool.Itoa(n.GetThreadsPerCore()), "TmpDisk="+tool.Itoa(n.GetTmpDisk()), "Weight="+tool.Itoa(n.GetWeight()), "Owner=N/A", "MCS_label=N/A")
	if n.GetNextState() != "" {
		rec.Line("NextState=" + n.GetNextState())
	}
	if len(n.GetPartitions()) > 0 {
		rec.Line("Partitions=" + strings.Join(n.GetPartitions(), ",") + " ")
	}
	rec.Line("BootTime="+v.TimeOr(n.GetBootTime(), "None"), "SlurmdStartTime="+v.TimeOr(n.GetAgentStart(), "None"))
	busy := []string{"LastBusyTime=" + v.Time(n.GetLastBusy())}
	if n.GetResumeAt() != 0 {
		busy = append(busy, "ResumeAfterTime="+v.Time(n.GetResumeAt()))
	}
	rec.Line(busy...)
	rec.Line("CfgTRES=" + nodeTRES(n.GetCfgTres()))
	rec.Line("AllocTRES=" + nodeTRES(n.GetAllocTres()))
	rec.Line("CapWatts=n/a")
	rec.Line("CurrentWatts=0 AveWatts=0")
	rec.Line("ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s")
	if n.GetExtra() != "" {
		rec.Line("Extra=" + n.GetExtra())
	}
	if n.GetComment() != "" {
		rec.Line("Comment=" + n.GetComment())
	}
	if text := render.NodeReason(n, v.Clock); text != "" {
		rec.Line("Reason=" + text)
	}
	if n.GetDegraded() != "" {
		rec.Line("Degraded=" + n.GetDegraded())
	}
	if gpus := n.GetGpus(); len(gpus) > 0 && gpus[0].GetProvider() != "" {
		rec.Line("GPUProvider=" + gpus[0].GetProvider())
	}
	for _, h := range n.GetHolds() {
		words := []string{"Hold=" + render.HoldName(h), "TRES=" + render.HoldTRES(h)}
		if devices := render.HoldGPUs(h); devices != "" {
			words = append(words, "GPUs="+devices)
		}
		rec.Line(append(words, "Since="+v.Time(h.GetSince()))...)
	}
	for _, f := range n.GetGpuFaults() {
		words := "GPUEvent=" + f.GetUuid() + ": " + render.FaultText(f) + " [" + v.Time(f.GetAt()) + "]"
		if f.GetJobId() != 0 {
			words += fmt.Sprintf(" JobId=%d", f.GetJobId())
		}
		rec.Line(words)
	}
	return rec
}

// keptFromJobs says what of a node is the system's.
func keptFromJobs(n *apiv1.NodeInfo) []string {
	var out []string
	if n.GetCoreSpec() > 0 {
		out = append(out, "CoreSpecCount="+tool.Itoa(n.GetCoreSpec()))
	}
	if n.GetCpuSpec() != "" {
		out = append(out, "CPUSpecList="+n.GetCpuSpec())
	}
	if n.GetMemSpec() > 0 {
		out = append(out, "MemSpecLimit="+tool.Itoa(n.GetMemSpec()))
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
func showPartitions(c *tool.Call, name string) error {
	req := &apiv1.ListPartitionsRequest{Partitions: tool.SplitList(name)}
	var rep apiv1.ListPartitionsReply
	if err := c.RPC(tool.MethodListPartitions, req, &rep); err != nil {
		r := tool.ExplainError(err)
		return tool.Fail(1, append(r.Preamble("scontrol"), "slurm_load_partitions error: "+r.Text)...)
	}
	shown := rep.GetPartitions()
	if len(req.GetPartitions()) == 0 {
		shown = fetch.ShownPartitions(c, shown)
	}
	if render.WantsDocument(c) {
		if err := notFound(spec.CodeInvalidPartition, "Partition", rep.GetUnknown()); err != nil {
			return err
		}
		list := make(tree.List, len(shown))
		for i, p := range shown {
			list[i] = render.PartitionTree(p)
		}
		return render.Answer(c, "openapi_partition_resp", tree.Member{Key: "partitions", Value: list}, tree.Member{Key: "last_update", Value: render.Instant(rep.GetNow())})
	}
	for _, p := range shown {
		if err := c.WriteOut([]byte(partitionRecord(p).Text(c.Opts.On("oneliner"), "\n"))); err != nil {
			return err
		}
	}
	return notFound(spec.CodeInvalidPartition, "Partition", rep.GetUnknown())
}

// partitionRecord lays a partition out as scontrol show partition does.
//
//muster:table the lines of a partition in Slurm's order
func partitionRecord(p *apiv1.PartitionInfo) *render.Record {
	all := func(s []string) string { return cmp.Or(strings.Join(s, ","), "ALL") }
	unlimited := func(n int64) string {
		if n == 0 {
			return "UNLIMITED"
		}
		return tool.Itoa(n)
	}
	rec := &render.Record{}
	rec.Line("PartitionName=" + p.GetName())
	accounts, qos := "AllowAccounts="+all(p.GetAllowAccounts()), "AllowQos="+all(p.GetAllowQos())
	if len(p.GetDenyAccounts()) > 0 {
		accounts = "DenyAccounts=" + strings.Join(p.GetDenyAccounts(), ",")
	}
	if len(p.GetDenyQos()) > 0 {
		qos = "DenyQos=" + strings.Join(p.GetDenyQos(), ",")
	}
	rec.Line("AllowGroups="+all(p.GetAllowGroups()), accounts, qos)
	rec.Line("AllocNodes=ALL", "Default="+render.YesNo(p.GetIsDefault()), "QoS="+cmp.Or(p.GetQos(), render.NotAvailable))
	defaultTime := "NONE"
	if p.GetDefaultTime() != 0 {
		defaultTime = render.Limit(p.GetDefaultTime(), format.Duration)
	}
	rec.Line("DefaultTime="+defaultTime, "DisableRootJobs="+render.YesNo(p.GetDisableRootJobs()), "ExclusiveUser="+render.YesNo(p.GetExclusiveUser()),
		"GraceTime="+tool.Itoa(p.GetGraceTime()/tool.Second), "Hidden="+render.YesNo(p.GetHidden()))
	rec.Line("MaxNodes="+unlimited(int64(p.GetMaxNodes())), "MaxTime="+render.Limit(p.GetMaxTime(), format.Duration), "MinNodes="+tool.Itoa(p.GetMinNodes()), "LLN="+render.YesNo(p.GetLln()),
		"MaxCPUsPerNode="+unlimited(p.GetMaxCpusPerNode()))
	rec.Line("Nodes=" + cmp.Or(p.GetNodes(), render.Null))
	rec.Line("PriorityJobFactor="+tool.Itoa(p.GetPriorityJobFactor()), "PriorityTier="+tool.Itoa(p.GetPriorityTier()), "RootOnly="+render.YesNo(p.GetRootOnly()), "ReqResv="+render.YesNo(p.GetReqResv()),
		"OverSubscribe="+cmp.Or(p.GetOverSubscribe(), "NO"))
	over := []string{"OverTimeLimit=NONE", "PreemptMode=" + cmp.Or(p.GetPreemptMode(), "OFF")}
	if p.GetTopology() != "" {
		over = append(over, "Topology="+p.GetTopology())
	}
	rec.Line(over...)
	rec.Line("State="+spec.PartitionState(p.GetState()).String(), "TotalCPUs="+tool.Itoa(p.GetTotalCpus()), "TotalNodes="+tool.Itoa(p.GetTotalNodes()), "SelectTypeParameters=NONE")
	rec.Line("JobDefaults=(null)")
	perWhat := func(kind string, cpu, node int64) string {
		if cpu > 0 {
			return kind + "MemPerCPU=" + tool.Itoa(cpu)
		}
		return kind + "MemPerNode=" + unlimited(node)
	}
	rec.Line(perWhat("Def", p.GetDefMemPerCpu(), p.GetDefMemPerNode()), perWhat("Max", p.GetMaxMemPerCpu(), p.GetMaxMemPerNode()))
	rec.Line("TRES=" + render.TRESText(p.GetTres()))
	if p.GetBillingWeights() != "" {
		rec.Line("TRESBillingWeights=" + p.GetBillingWeights())
	}
	if p.GetSuspendTime() != 0 || p.GetSuspendTimeout() != 0 || p.GetResumeTimeout() != 0 || p.GetPowerDownOnIdle() {
		rec.Line("ResumeTimeout="+formatPartitionTime(p.GetResumeTimeout()), "SuspendTimeout="+formatPartitionTime(p.GetSuspendTimeout()), "SuspendTime="+formatPartitionTime(p.GetSuspendTime()),
			"PowerDownOnIdle="+render.YesNo(p.GetPowerDownOnIdle()))
	}
	return rec
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

// nodeStateLine words a refusal to change nodes as Slurm does.
func nodeStateLine(err error) error {
	r := tool.ExplainError(err)
	if r.Code == spec.CodeAccessDenied {
		r.Text = spec.CodeInvalidUser.String() // what Slurm says to users who are no operators
	}
	lines := r.Preamble("scontrol")
	return tool.Fail(1, append(lines, fmt.Sprintf("slurm_update error: %s", r.Text))...)
}
