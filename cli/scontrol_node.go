package cli

import (
	"fmt"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

// showNodes is scontrol show node.
func (c *call) showNodes(names string) error {
	req := &apiv1.ListNodesRequest{Future: c.opts.On("future")}
	if names != "" && !strings.EqualFold(names, "all") {
		if _, err := hostlist.Count(names); err != nil {
			return c.errorf("%v", err)
		}
		req.Nodes = []string{names}
	}
	var rep apiv1.ListNodesReply
	if err := c.ask(methodListNodes, req, &rep); err != nil {
		r := explainError(err)
		return fail(1, append(r.before("scontrol"), "slurm_load_node error: "+r.text)...)
	}
	view := &nodeView{clock: c.clock(), uid: lookupUID}
	view.now = rep.GetNow()
	if c.wantsTree() {
		list := make(tree.List, len(rep.GetNodes()))
		for i, n := range rep.GetNodes() {
			list[i] = nodeTree(n, view)
		}
		return c.structured(c.opts.On("json"), c.document(tree.Member{Key: "nodes", Value: list}, tree.Member{Key: "last_update", Value: moment(rep.GetNow())}))
	}
	for _, n := range rep.GetNodes() {
		if err := c.write([]byte(nodeRecord(view, n, c.opts.On("details")).text(c.opts.On("oneliner"), "\n"))); err != nil {
			return err
		}
	}
	if len(rep.GetUnknown()) > 0 {
		lines := make([]string, len(rep.GetUnknown()))
		for i, n := range rep.GetUnknown() {
			lines[i] = "Node " + n + " not found"
		}
		return fail(1, lines...)
	}
	return nil
}

// nodeRecord lays a node out as scontrol show node does, blanks at the ends of
// lines included.
//
//muster:table the lines of a node in Slurm's order
func nodeRecord(v *nodeView, n *apiv1.NodeInfo, details bool) *record {
	rec := &record{}
	rec.line("NodeName="+n.GetName(), "Arch="+or(n.GetArch(), null), "CoresPerSocket="+itoa(n.GetCoresPerSocket())+" ")
	rec.line("CPUAlloc="+itoa(n.GetCpusAlloc()), "CPUEfctv="+itoa(n.GetCpus()), "CPUTot="+itoa(max(n.GetCpusConfigured(), n.GetCpus())), "CPULoad="+milli(n.GetLoadMilli()))
	rec.line("AvailableFeatures=" + or(strings.Join(availableFeatures(n), ","), null))
	rec.line("ActiveFeatures=" + or(strings.Join(n.GetFeatures(), ","), null))
	rec.line("Gres=" + or(n.GetGres(), null))
	if details {
		rec.line("GresDrain=N/A")
		rec.line("GresUsed=" + n.GetGresUsed())
	}
	rec.line("NodeAddr="+or(n.GetAddr(), n.GetName()), "NodeHostName="+or(n.GetHostname(), n.GetName()), "Port="+itoa(n.GetPort()), "Version="+or(n.GetVersion(), null))
	rec.line("OS=" + or(n.GetOs(), null) + " ")
	free := na
	if n.GetMemFree() >= 0 {
		free = itoa(n.GetMemFree())
	}
	rec.line("RealMemory="+itoa(n.GetMem()), "AllocMem="+itoa(n.GetMemAlloc()), "FreeMem="+free, "Sockets="+itoa(n.GetSockets()), "Boards="+itoa(max(n.GetBoards(), 1)))
	if n.GetCoreSpec() > 0 || n.GetCpuSpec() != "" || n.GetMemSpec() > 0 {
		rec.line(keptFromJobs(n)...)
	}
	rec.line("State="+or(n.GetState(), "UNKNOWN"), "ThreadsPerCore="+itoa(n.GetThreadsPerCore()), "TmpDisk="+itoa(n.GetTmpDisk()), "Weight="+itoa(n.GetWeight()), "Owner=N/A", "MCS_label=N/A")
	if n.GetNextState() != "" {
		rec.line("NextState=" + n.GetNextState())
	}
	if len(n.GetPartitions()) > 0 {
		rec.line("Partitions=" + strings.Join(n.GetPartitions(), ",") + " ")
	}
	rec.line("BootTime="+v.timeOr(n.GetBootTime(), "None"), "SlurmdStartTime="+v.timeOr(n.GetAgentStart(), "None"))
	rec.line("LastBusyTime=" + v.time(n.GetLastBusy()))
	rec.line("CfgTRES=" + nodeTRES(n.GetCfgTres()))
	rec.line("AllocTRES=" + nodeTRES(n.GetAllocTres()))
	rec.line("CapWatts=n/a")
	rec.line("CurrentWatts=0 AveWatts=0")
	rec.line("ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s")
	if n.GetExtra() != "" {
		rec.line("Extra=" + n.GetExtra())
	}
	if n.GetComment() != "" {
		rec.line("Comment=" + n.GetComment())
	}
	if text := nodeReason(n, v.clock); text != "" {
		rec.line("Reason=" + text)
	}
	if n.GetDegraded() != "" {
		rec.line("Degraded=" + n.GetDegraded())
	}
	if gpus := n.GetGpus(); len(gpus) > 0 && gpus[0].GetProvider() != "" {
		rec.line("GPUProvider=" + gpus[0].GetProvider())
	}
	for _, f := range n.GetGpuFaults() {
		words := "GPUEvent=" + f.GetUuid() + ": " + faultText(f) + " [" + v.time(f.GetAt()) + "]"
		if f.GetJobId() != 0 {
			words += fmt.Sprintf(" JobId=%d", f.GetJobId())
		}
		rec.line(words)
	}
	return rec
}

// keptFromJobs says what of a node is the system's.
func keptFromJobs(n *apiv1.NodeInfo) []string {
	var out []string
	if n.GetCoreSpec() > 0 {
		out = append(out, "CoreSpecCount="+itoa(n.GetCoreSpec()))
	}
	if n.GetCpuSpec() != "" {
		out = append(out, "CPUSpecList="+n.GetCpuSpec())
	}
	if n.GetMemSpec() > 0 {
		out = append(out, "MemSpecLimit="+itoa(n.GetMemSpec()))
	}
	return out
}

// availableFeatures are all features that a node may have.
func availableFeatures(n *apiv1.NodeInfo) []string {
	if a := n.GetAvailableFeatures(); len(a) > 0 {
		return a
	}
	return n.GetFeatures()
}

// nodeTRES is a node's vector: without the node itself.
func nodeTRES(t *apiv1.Tres) string {
	x := toTRES(t)
	x.Node = 0
	return x.String()
}

// showPartitions is scontrol show partition.
func (c *call) showPartitions(name string) error {
	req := &apiv1.ListPartitionsRequest{Partitions: splitList(name)}
	var rep apiv1.ListPartitionsReply
	if err := c.ask(methodListPartitions, req, &rep); err != nil {
		r := explainError(err)
		return fail(1, append(r.before("scontrol"), "slurm_load_partitions error: "+r.text)...)
	}
	shown := rep.GetPartitions()
	if len(req.GetPartitions()) == 0 {
		shown = c.shownPartitions(shown)
	}
	if c.wantsTree() {
		list := make(tree.List, len(shown))
		for i, p := range shown {
			list[i] = partitionTree(p)
		}
		return c.structured(c.opts.On("json"), c.document(tree.Member{Key: "partitions", Value: list}, tree.Member{Key: "last_update", Value: moment(rep.GetNow())}))
	}
	for _, p := range shown {
		if err := c.write([]byte(partitionRecord(p).text(c.opts.On("oneliner"), "\n"))); err != nil {
			return err
		}
	}
	if len(rep.GetUnknown()) > 0 {
		lines := make([]string, len(rep.GetUnknown()))
		for i, n := range rep.GetUnknown() {
			lines[i] = "Partition " + n + " not found"
		}
		return fail(1, lines...)
	}
	return nil
}

// partitionRecord lays a partition out as scontrol show partition does.
//
//muster:table the lines of a partition in Slurm's order
func partitionRecord(p *apiv1.PartitionInfo) *record {
	all := func(s []string) string { return or(strings.Join(s, ","), "ALL") }
	unlimited := func(n int64) string {
		if n == 0 {
			return "UNLIMITED"
		}
		return itoa(n)
	}
	rec := &record{}
	rec.line("PartitionName=" + p.GetName())
	accounts, qos := "AllowAccounts="+all(p.GetAllowAccounts()), "AllowQos="+all(p.GetAllowQos())
	if len(p.GetDenyAccounts()) > 0 {
		accounts = "DenyAccounts=" + strings.Join(p.GetDenyAccounts(), ",")
	}
	if len(p.GetDenyQos()) > 0 {
		qos = "DenyQos=" + strings.Join(p.GetDenyQos(), ",")
	}
	rec.line("AllowGroups="+all(p.GetAllowGroups()), accounts, qos)
	rec.line("AllocNodes=ALL", "Default="+yesNo(p.GetIsDefault()), "QoS="+or(p.GetQos(), na))
	defaultTime := "NONE"
	if p.GetDefaultTime() != 0 {
		defaultTime = limit(p.GetDefaultTime(), format.Duration)
	}
	rec.line("DefaultTime="+defaultTime, "DisableRootJobs="+yesNo(p.GetDisableRootJobs()), "ExclusiveUser="+yesNo(p.GetExclusiveUser()),
		"GraceTime="+itoa(p.GetGraceTime()/second), "Hidden="+yesNo(p.GetHidden()))
	rec.line("MaxNodes="+unlimited(int64(p.GetMaxNodes())), "MaxTime="+limit(p.GetMaxTime(), format.Duration), "MinNodes="+itoa(p.GetMinNodes()), "LLN="+yesNo(p.GetLln()),
		"MaxCPUsPerNode="+unlimited(p.GetMaxCpusPerNode()))
	rec.line("Nodes=" + or(p.GetNodes(), null))
	rec.line("PriorityJobFactor="+itoa(p.GetPriorityJobFactor()), "PriorityTier="+itoa(p.GetPriorityTier()), "RootOnly="+yesNo(p.GetRootOnly()), "ReqResv="+yesNo(p.GetReqResv()),
		"OverSubscribe="+or(p.GetOverSubscribe(), "NO"))
	over := []string{"OverTimeLimit=NONE", "PreemptMode=" + or(p.GetPreemptMode(), "OFF")}
	if p.GetTopology() != "" {
		over = append(over, "Topology="+p.GetTopology())
	}
	rec.line(over...)
	rec.line("State="+spec.PartitionState(p.GetState()).String(), "TotalCPUs="+itoa(p.GetTotalCpus()), "TotalNodes="+itoa(p.GetTotalNodes()), "SelectTypeParameters=NONE")
	rec.line("JobDefaults=(null)")
	perWhat := func(kind string, cpu, node int64) string {
		if cpu > 0 {
			return kind + "MemPerCPU=" + itoa(cpu)
		}
		return kind + "MemPerNode=" + unlimited(node)
	}
	rec.line(perWhat("Def", p.GetDefMemPerCpu(), p.GetDefMemPerNode()), perWhat("Max", p.GetMaxMemPerCpu(), p.GetMaxMemPerNode()))
	rec.line("TRES=" + tresText(p.GetTres()))
	if p.GetBillingWeights() != "" {
		rec.line("TRESBillingWeights=" + p.GetBillingWeights())
	}
	if p.GetSuspendTime() != 0 || p.GetSuspendTimeout() != 0 || p.GetResumeTimeout() != 0 || p.GetPowerDownOnIdle() {
		rec.line("ResumeTimeout="+global(p.GetResumeTimeout()), "SuspendTimeout="+global(p.GetSuspendTimeout()), "SuspendTime="+global(p.GetSuspendTime()),
			"PowerDownOnIdle="+yesNo(p.GetPowerDownOnIdle()))
	}
	return rec
}

// global writes a partition's own time in seconds, or that it has none.
func global(ns int64) string {
	switch {
	case ns == 0:
		return "GLOBAL"
	case ns < 0:
		return "INFINITE"
	}
	return itoa(ns / second)
}

// nodeStateLine words a refusal to change nodes as Slurm does.
func nodeStateLine(err error) error {
	r := explainError(err)
	if r.code == spec.CodeAccessDenied {
		r.text = spec.CodeInvalidUser.String() // what Slurm says to users who are no operators
	}
	lines := r.before("scontrol")
	return fail(1, append(lines, fmt.Sprintf("slurm_update error: %s", r.text))...)
}
