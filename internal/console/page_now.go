package console

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// nowData is what the first page shows: what is wrong, what is full, what waits
// and what moves.
type nowData struct {
	Figures  []figure
	Alerts   *alertsData // nil of a moment of the past
	Wrong    []wrong
	More     int // things that are wrong and not listed
	Parts    []partLine
	Reasons  []weight
	Holders  []weight
	Longest  []jobLine
	Started  []jobLine
	Ended    []jobLine
	Next     []jobLine
	Services []fact
}

// wrong is something that somebody should look at.
type wrong struct {
	Class, What, Link, Text string
	// Rule is the alert whose condition holds; empty = there is no rule for it.
	Rule string
}

// The rules of muster alerts whose condition the console sees in the state.
const (
	ruleNodeDown   = "MusterNodesDown"
	ruleGPULost    = "MusterGPUOffTheBus"
	ruleGPUMemory  = "MusterGPUMemoryErrors"
	ruleGPUHeat    = "MusterGPUThrottled"
	ruleXIDFatal   = "MusterGPUXID"
	ruleXIDDevice  = "MusterGPUXIDOfDevice"
	ruleXIDProgram = "MusterGPUXIDOfProgram"
	ruleGPUWarned  = "MusterJobGPUWarned"
	ruleAccounting = "MusterAccountingDown"
	ruleIncomplete = "MusterNodeIncomplete"
)

// JudgedRules names the rules that the console judges without an Alertmanager.
func JudgedRules() []string {
	return []string{
		ruleNodeDown, ruleGPULost, ruleGPUMemory, ruleGPUHeat, ruleXIDFatal, ruleXIDDevice,
		ruleXIDProgram, ruleGPUWarned, ruleAccounting, ruleIncomplete,
	}
}

// newsOfXID is how long the rules about driver errors hold.
const newsOfXID = int64(time.Hour)

// faultRule is the rule about a fault of a GPU.
func faultRule(node *apiv1.NodeInfo, fault *apiv1.GpuFault, now int64) string {
	switch spec.GPUFaultKind(fault.GetKind()) {
	case spec.GPULost:
		return ruleGPULost
	case spec.GPUECC:
		return ruleGPUMemory
	case spec.GPUThermal:
		return ruleGPUHeat
	case spec.GPUXID:
		return xidRule(node, fault, now)
	case spec.GPUReturned, spec.GPUMIGChanged, spec.GPUIdle:
	}
	return ""
}

// xidRule is the rule about a driver error: by its class, and less urgent where
// the node takes no more jobs.
func xidRule(node *apiv1.NodeInfo, fault *apiv1.GpuFault, now int64) string {
	switch {
	case now-fault.GetAt() > newsOfXID:
		return ""
	case fault.GetClass() == "application":
		return ruleXIDProgram
	case fault.GetClass() == "fatal" && !render.StateOf(node).Out():
		return ruleXIDFatal
	}
	return ruleXIDDevice
}

// partLine is a partition with what is given out of it.
type partLine struct {
	Name, Link, State                string
	Nodes, GPUs, CPUs                string
	GPUBar, CPUBar                   int
	Running, Pending, GPUsAsked      int64
	gpus, gpusUsed, cpus, cpusUsed   int64
	nodesAll, nodesOut, firstPending int64
}

// weight is a name with a number, drawn as a bar.
type weight struct {
	Name, Link, Value string
	Bar               int
	n                 int64
}

const (
	maxWrong    = 12
	maxWeights  = 8
	maxMoves    = 8
	movesWithin = int64(30 * time.Minute)
)

func (c *Console) nowPage(v *visit) (answer, error) {
	jobs, err := v.listJobs(true)
	if err != nil {
		return answer{}, err
	}
	nodes, err := v.listNodes()
	if err != nil {
		return answer{}, err
	}
	parts, err := callAPI[*apiv1.ListPartitionsReply](
		v,
		tool.MethodListPartitions,
		&apiv1.ListPartitionsRequest{},
	)
	if err != nil {
		return answer{}, err
	}
	text := jobText(jobs.GetNow())
	data := nowData{
		Figures: append(
			queueFigures(jobs.GetJobs())[:3:3],
			nodeFigures(nodes.GetNodes(), nodes.GetNow())...),
	}
	data.findWrong(nodes.GetNodes(), jobs.GetJobs(), text)
	data.fillParts(parts.GetPartitions(), nodes.GetNodes(), jobs.GetJobs())
	data.Reasons, data.Holders = weighReasons(jobs.GetJobs()), weighHolders(jobs.GetJobs())
	data.findMoves(jobs.GetJobs(), text)
	if v.past == nil {
		data.services(v)
		data.Alerts = v.describeAlerts(jobs.GetNow())
	}
	return answer{page: "now", title: "Now", data: data}, nil
}

// findWrong lists nodes that are out, GPUs with faults and GPUs that are held
// without a process.
func (d *nowData) findWrong(nodes []*apiv1.NodeInfo, jobs []*apiv1.JobInfo, text *render.JobView) {
	for _, node := range nodes {
		class := nodeClass(node)
		link := "/node/" + node.GetName()
		if class == "bad" || class == "warn" {
			reason := render.Clean(node.GetReason())
			if at := node.GetReasonTime(); at > 0 && reason != "" {
				reason += ", since " + render.Span(text.Now-at)
			}
			rule := ""
			if strings.HasPrefix(node.GetState(), "DOWN") || render.StateOf(node).Has("FAIL") {
				rule = ruleNodeDown
			}
			d.Wrong = append(d.Wrong, wrong{class, render.Clean(node.GetName()) + " is " +
				nodeState(node), link, reason, rule})
		}
		if reason := gpusMissing(node); reason != "" &&
			len(render.AllGPUs(node)) == len(node.GetGpus()) {
			d.Wrong = append(d.Wrong, wrong{"warn", render.Clean(node.GetName()) + " has fewer GPUs than configured",
				link, render.Clean(reason), ruleIncomplete})
		}
		for _, gpu := range render.AllGPUs(node) {
			trouble := render.TroubleOf(node, gpu, text.Now)
			name := render.Clean(node.GetName()) + " GPU " + gpuNumber(gpu)
			switch {
			case trouble.Fault != nil:
				d.Wrong = append(d.Wrong, wrong{"bad", name, link, troubleText(trouble),
					faultRule(node, trouble.Fault, text.Now)})
			case trouble.Idle != nil:
				rule := ""
				if trouble.Idle.GetWarned() {
					rule = ruleGPUWarned
				}
				id := strconv.FormatUint(uint64(gpu.GetJobId()), 10)
				d.Wrong = append(d.Wrong, wrong{"warn", name, "/job/" + id,
					render.FaultText(trouble.Idle) + " by job " + id, rule})
			}
		}
	}
	for _, job := range jobs {
		switch code := spec.ReasonCode(job.GetReason().GetCode()); {
		case spec.JobState(job.GetState()) != spec.Pending:
		case code == spec.ReasonDependencyNever,
			code == spec.ReasonBadConstraints,
			code == spec.ReasonPartitionConfig:
			line := newJobLine(job, text)
			d.Wrong = append(d.Wrong, wrong{"warn", "job " + line.ID + " of " + line.User +
				" can never start", line.Link, line.Reason, ""})
		}
	}
	slices.SortStableFunc(d.Wrong, func(a, b wrong) int { return cmp.Compare(a.Class, b.Class) })
	d.More = max(len(d.Wrong)-maxWrong, 0)
	d.Wrong = d.Wrong[:min(len(d.Wrong), maxWrong)]
}

// fillParts sums up what is given out of each partition.
func (d *nowData) fillParts(
	parts []*apiv1.PartitionInfo,
	nodes []*apiv1.NodeInfo,
	jobs []*apiv1.JobInfo,
) {
	byName := map[string]*partLine{}
	order := make([]*partLine, 0, len(parts))
	for _, partition := range parts {
		line := &partLine{Name: render.Clean(partition.GetName()), Link: "/queue?q=partition%3A" +
			partition.GetName()}
		byName[partition.GetName()] = line
		order = append(order, line)
	}
	for _, node := range nodes {
		for _, name := range node.GetPartitions() {
			if line := byName[name]; line != nil {
				line.addNode(node)
			}
		}
	}
	for _, job := range jobs {
		for name := range strings.SplitSeq(job.GetPartition(), ",") {
			line := byName[name]
			switch state := spec.JobState(job.GetState()); {
			case line == nil:
			case state == spec.Pending:
				line.Pending += countTasks(job)
				line.GPUsAsked += render.GPUs(job) * countTasks(job)
			case state.Active():
				line.Running++
			}
		}
	}
	for _, line := range order {
		line.Nodes = formatNumber(line.nodesAll)
		if line.nodesOut > 0 {
			line.Nodes += " (" + formatNumber(line.nodesOut) + " out)"
		}
		if line.gpus > 0 {
			line.GPUs, line.GPUBar = formatNumber(
				line.gpusUsed,
			)+" / "+formatNumber(
				line.gpus,
			), inThousandths(
				line.gpusUsed,
				line.gpus,
			)
		}
		line.CPUs, line.CPUBar = formatNumber(
			line.cpusUsed,
		)+" / "+formatNumber(
			line.cpus,
		), inThousandths(
			line.cpusUsed,
			line.cpus,
		)
		d.Parts = append(d.Parts, *line)
	}
}

func (l *partLine) addNode(node *apiv1.NodeInfo) {
	l.nodesAll++
	if class := nodeClass(node); class == "bad" || class == "warn" {
		l.nodesOut++
	}
	l.cpus += node.GetCpus()
	l.cpusUsed += node.GetCpusAlloc()
	for _, gpu := range node.GetGpus() {
		l.gpus++
		if gpu.GetAllocated() {
			l.gpusUsed++
		}
	}
}

// weights makes bars of sums, the largest first.
func weights(sums map[string]int64, link func(name string) string) []weight {
	var out []weight
	for name, n := range sums {
		if n > 0 {
			out = append(
				out,
				weight{Name: render.Clean(name), Link: link(name), Value: formatNumber(n), n: n},
			)
		}
	}
	slices.SortFunc(
		out,
		func(a, b weight) int { return cmp.Or(cmp.Compare(b.n, a.n), cmp.Compare(a.Name, b.Name)) },
	)
	out = out[:min(len(out), maxWeights)]
	for i := range out {
		out[i].Bar = inThousandths(out[i].n, out[0].n)
	}
	return out
}

func weighReasons(jobs []*apiv1.JobInfo) []weight {
	sums := map[string]int64{}
	for _, job := range jobs {
		if spec.JobState(job.GetState()) == spec.Pending {
			sums[cmp.Or(job.GetReason().GetCode(), "None")] += countTasks(job)
		}
	}
	return weights(sums, func(name string) string {
		return queueChoice{Query: "reason:" +
			strings.ToLower(name)}.queueLink()
	})
}

// weighHolders sums GPUs up by user, or CPUs where there are no GPUs.
func weighHolders(jobs []*apiv1.JobInfo) []weight {
	byGPU, byCPU := map[string]int64{}, map[string]int64{}
	for _, job := range jobs {
		if spec.JobState(job.GetState()).Active() {
			byGPU[job.GetUser()] += render.GPUs(job)
			byCPU[job.GetUser()] += int64(job.GetNumCpus())
		}
	}
	link := func(name string) string {
		return queueChoice{Query: "state:running user:" +
			render.QuotedTerm(strings.ToLower(name))}.queueLink()
	}
	if out := weights(byGPU, link); len(out) > 0 {
		return out
	}
	return weights(byCPU, link)
}

// findMoves lists what has started and ended of late, what is planned next, and
// what waits the longest.
func (d *nowData) findMoves(jobs []*apiv1.JobInfo, text *render.JobView) {
	pick := func(fits func(j *apiv1.JobInfo) bool, before func(a, b *apiv1.JobInfo) int) []jobLine {
		var found []*apiv1.JobInfo
		for _, job := range jobs {
			if fits(job) {
				found = append(found, job)
			}
		}
		slices.SortFunc(
			found,
			func(a, b *apiv1.JobInfo) int { return cmp.Or(before(a, b), cmp.Compare(a.GetUid(), b.GetUid())) },
		)
		var lines []jobLine
		for _, job := range found[:min(len(found), maxMoves)] {
			lines = append(lines, newJobLine(job, text))
		}
		return lines
	}
	pending := func(j *apiv1.JobInfo) bool { return spec.JobState(j.GetState()) == spec.Pending }
	d.Started = pick(func(job *apiv1.JobInfo) bool {
		return spec.JobState(job.GetState()).Active() && text.Now-job.GetStart() < movesWithin
	}, func(a, b *apiv1.JobInfo) int { return cmp.Compare(b.GetStart(), a.GetStart()) })
	d.Ended = pick(func(job *apiv1.JobInfo) bool {
		return spec.JobState(job.GetState()).Terminal() && text.Now-job.GetEnd() < movesWithin
	}, func(a, b *apiv1.JobInfo) int { return cmp.Compare(b.GetEnd(), a.GetEnd()) })
	for i := range d.Ended {
		d.Ended[i].TimeTitle = "ran"
	}
	d.Next = pick(
		func(j *apiv1.JobInfo) bool { return pending(j) && j.GetPlannedStart() != 0 },
		func(a, b *apiv1.JobInfo) int { return cmp.Compare(a.GetPlannedStart(), b.GetPlannedStart()) },
	)
	d.Longest = pick(func(job *apiv1.JobInfo) bool {
		return pending(job) && job.GetHold() == 0 && job.GetEligible() > 0 &&
			job.GetEligible() <= text.Now
	},
		func(a, b *apiv1.JobInfo) int { return cmp.Compare(a.GetSubmit(), b.GetSubmit()) })
}

// services tells how the controller and accounting do. What does not answer is
// wrong, and no reason to show nothing.
func (d *nowData) services(v *visit) {
	add := func(name, value string) {
		d.Services = append(d.Services, fact{Name: name, Value: render.Clean(value)})
	}
	if diag, err := callAPI[*apiv1.DiagReply](v, tool.MethodDiag, &apiv1.DiagRequest{}); err == nil {
		add("controller up for", render.Span(diag.GetNow()-diag.GetStartedAt()))
		add("agents connected", formatNumber(diag.GetAgents()))
		add("last pass", strconv.FormatFloat(float64(diag.GetPassLast())/1e6, 'f', 1, 64)+" ms, "+
			formatNumber(diag.GetPassDepth())+" jobs")
		add(
			"last write to the ledger",
			strconv.FormatFloat(float64(diag.GetAppendLast())/1e6, 'f', 1, 64)+
				" ms",
		)
		add("events", formatNumber(diag.GetSeq()))
	}
	status, err := callAPI[*apiv1.AccountingStatusReply](
		v,
		tool.MethodAcctStatus,
		&apiv1.AccountingStatusRequest{},
	)
	switch {
	case err != nil:
		add("accounting", "no answer: "+tool.ExplainError(err).Text)
	case !status.GetUp():
		d.Wrong = append(
			[]wrong{{"bad", "accounting is not up", "", render.Clean(status.GetError()) +
				" Nothing is lost: the ledger is the buffer.", ruleAccounting}},
			d.Wrong...)
	default:
		behind := status.GetHeadSeq() - min(status.GetSeq(), status.GetHeadSeq())
		text := "up to date"
		if behind > 0 {
			text = formatNumber(behind) + " events behind"
		}
		add("accounting", text)
	}
}
