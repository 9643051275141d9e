package acct

import (
	"cmp"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// qosID is the number that the run's QOS has now; empty where it is gone.
func (v *acctView) qosID(r *apiv1.AcctRow) string {
	for _, qos := range v.policy.GetQos() {
		if !isStep(r) && qos.GetName() == r.GetQos() {
			return tool.Itoa(qos.GetId())
		}
	}
	return ""
}

// wckeyID is the number that the run's wckey has now, 0 without one.
func (v *acctView) wckeyID(r *apiv1.AcctRow) string {
	if isStep(r) || v.policy == nil {
		return ""
	}
	for _, key := range v.policy.GetWckeys() {
		if key.GetName() == r.GetWckey() && key.GetUser() == r.GetUser() {
			return tool.Itoa(key.GetId())
		}
	}
	if r.GetWckey() != "" {
		return "" // it is gone, or nobody ever made it
	}
	return "0"
}

// acctField is a column of sacct. A negative width pads on the right.
type acctField struct {
	name  string
	width int
	text  func(v *acctView, r *apiv1.AcctRow) string
}

// exitOf is the exit of a job or step. A job that was cancelled has none of its own, as under
// Slurm: the signal that ended it stands in its batch step.
func exitOf(row *apiv1.AcctRow) string {
	if !isStep(row) && strings.HasPrefix(row.GetState(), "CANCELLED") {
		return "0:0"
	}
	return tool.Itoa(row.GetExitCode()) + ":" + tool.Itoa(row.GetExitSignal())
}

// jobOnly is a column that steps leave empty.
func jobOnly(get func(r *apiv1.AcctRow) string) func(*acctView, *apiv1.AcctRow) string {
	return func(_ *acctView, r *apiv1.AcctRow) string {
		if isStep(r) {
			return ""
		}
		return get(r)
	}
}

func row(get func(r *apiv1.AcctRow) string) func(*acctView, *apiv1.AcctRow) string {
	return func(_ *acctView, r *apiv1.AcctRow) string { return get(r) }
}

func stepSuffix(r *apiv1.AcctRow) string {
	if isStep(r) {
		return "." + r.GetStep()
	}
	return ""
}

// acctState is the state with who cancelled it.
func acctState(r *apiv1.AcctRow) string {
	if r.GetCancelled() && !isStep(r) && r.GetState() == spec.Cancelled.String() {
		return r.GetState() + " by " + tool.Itoa(r.GetCancelledBy())
	}
	return r.GetState()
}

// formatTRES writes a vector by name, memory in the requested unit.
func (v *acctView) formatTRES(tres *apiv1.Tres) string {
	x := render.ToTRES(tres)
	text := render.SortedTRES(x)
	if v.convert.Exact && !v.convert.Keep && v.convert.To == 0 {
		return text
	}
	parts := strings.Split(text, ",")
	for i, p := range parts {
		if strings.HasPrefix(p, "mem=") {
			parts[i] = "mem=" + v.formatMemory(x.Mem)
		}
	}
	return strings.Join(parts, ",")
}

func (v *acctView) formatMemory(mib int64) string { return format.Units(mib, 'M', v.convert) }

func (v *acctView) formatBytes(n int64) string { return format.Units(n, 0, v.convert) }

// startTime is the time a row began: None if it ended without, Unknown before.
func (v *acctView) startTime(r *apiv1.AcctRow) string {
	if r.GetStart() == 0 && r.GetEnd() != 0 {
		return "None"
	}
	return v.Time(r.GetStart())
}

// usedColumn is a column of what a step used; allocations leave it empty, and so
// does what was not measured.
func usedColumn(
	get func(v *acctView, u *apiv1.Usage) string,
) func(*acctView, *apiv1.AcctRow) string {
	return func(view *acctView, r *apiv1.AcctRow) string {
		if !isStep(r) || !r.GetHasUsage() {
			return ""
		}
		return get(view, r.GetUsage())
	}
}

// onNode is the node of a step's largest usage, known where it ran on one.
func onNode(view *acctView, r *apiv1.AcctRow) string {
	if !isStep(r) || !r.GetHasUsage() || allocNodes(r) != 1 {
		return ""
	}
	return r.GetNodeList()
}

func cpuTime(get func(u *apiv1.Usage) int64) func(*acctView, *apiv1.AcctRow) string {
	return func(_ *acctView, r *apiv1.AcctRow) string {
		return format.CPUTime(get(r.GetUsage()) / int64(spec.Microsecond))
	}
}

// formatDisk writes bytes in MiB with two digits, as Slurm's disk columns.
func formatDisk(n int64) string {
	hundredths := (n*100 + 1<<19) >> 20
	return strconv.FormatInt(hundredths/100, 10) + "." +
		string([]byte{byte('0' + hundredths/10%10), byte('0' + hundredths%10)}) + "M"
}

func energy(usage *apiv1.Usage) string {
	if !usage.GetHasEnergy() {
		return ""
	}
	return tool.Itoa(usage.GetEnergyMj() / 1000)
}

// usageTRES is a vector of what a step used.
func usageTRES(view *acctView, usage *apiv1.Usage) string {
	parts := []string{"cpu=" +
		format.Duration((usage.GetUserCpu()+usage.GetSystemCpu())/tool.Second)}
	if usage.GetHasEnergy() {
		parts = append(parts, "energy="+energy(usage))
	}
	parts = append(parts, "fs/disk="+tool.Itoa(usage.GetReadBytes()))
	if n, ok := counted(usage, spec.CounterLustreRead); ok {
		parts = append(parts, "fs/lustre="+tool.Itoa(n))
	}
	for _, gpu := range usage.GetGpus() {
		if gpu.GetHas() {
			parts = append(parts, gpuUsage(usage)...)
			break
		}
	}
	if n, ok := counted(usage, spec.CounterFabricIn); ok {
		parts = append(parts, "ic/ofed="+tool.Itoa(n))
	}
	if usage.GetHasRss() {
		parts = append(parts, "mem="+view.formatBytes(usage.GetPeakRss()))
	}
	parts = append(parts, "pages="+tool.Itoa(usage.GetMajFaults()))
	if text := formatVirtual(view, usage); text != "" {
		parts = append(parts, "vmem="+text)
	}
	return strings.Join(parts, ",")
}

// counted gives a counter of what was used; ok is false where it was not counted.
func counted(usage *apiv1.Usage, counter spec.Counter) (n int64, ok bool) {
	for _, value := range usage.GetCounters() {
		if value.GetCounter() == uint32(counter) {
			return value.GetN(), true
		}
	}
	return 0, false
}

// writtenTRES is a vector of what a step wrote and sent.
func writtenTRES(_ *acctView, usage *apiv1.Usage) string {
	text := "fs/disk=" + tool.Itoa(usage.GetWriteBytes())
	if n, ok := counted(usage, spec.CounterLustreWrite); ok {
		text += ",fs/lustre=" + tool.Itoa(n)
	}
	if n, ok := counted(usage, spec.CounterFabricOut); ok {
		text += ",ic/ofed=" + tool.Itoa(n)
	}
	return text
}

// taskSpread is how one kind of use lay on the tasks of a row; nil where that is not
// known: of scripts, and of what older releases stored.
func taskSpread(r *apiv1.AcctRow, kind spec.TaskKind) *apiv1.TaskSpread {
	for _, spread := range r.GetUsage().GetTasks() {
		if spread.GetKind() == uint32(kind) {
			return spread
		}
	}
	return nil
}

// ofTask shows a figure of a step's tasks or, where they are not known, another.
func ofTask(
	kind spec.TaskKind,
	show func(view *acctView, spread *apiv1.TaskSpread) string,
	otherwise func(*acctView, *apiv1.AcctRow) string,
) func(*acctView, *apiv1.AcctRow) string {
	return func(view *acctView, r *apiv1.AcctRow) string {
		if spread := taskSpread(r, kind); spread != nil {
			return show(view, spread)
		}
		return otherwise(view, r)
	}
}

// taskColumns are the columns about one kind of use of the tasks: the most and the
// least with their nodes and ranks, and the mean.
type taskColumns struct {
	max, maxNode, maxTask func(*acctView, *apiv1.AcctRow) string
	min, minNode, minTask func(*acctView, *apiv1.AcctRow) string
	mean                  func(*acctView, *apiv1.AcctRow) string
}

func columnsOfTasks(
	kind spec.TaskKind,
	text func(view *acctView, n int64) string,
	whole, onNode, task func(*acctView, *apiv1.AcctRow) string,
) taskColumns {
	figure := func(get func(*apiv1.TaskSpread) int64) func(*acctView, *apiv1.AcctRow) string {
		return ofTask(
			kind,
			func(view *acctView, t *apiv1.TaskSpread) string { return text(view, get(t)) },
			whole,
		)
	}
	node := func(get func(*apiv1.TaskSpread) string) func(*acctView, *apiv1.AcctRow) string {
		return ofTask(kind, func(_ *acctView, t *apiv1.TaskSpread) string { return get(t) }, onNode)
	}
	rank := func(get func(*apiv1.TaskSpread) uint32) func(*acctView, *apiv1.AcctRow) string {
		return ofTask(
			kind,
			func(_ *acctView, t *apiv1.TaskSpread) string { return tool.Itoa(get(t)) },
			task,
		)
	}
	return taskColumns{
		max:     figure((*apiv1.TaskSpread).GetMax),
		maxNode: node((*apiv1.TaskSpread).GetMaxNode),
		maxTask: rank((*apiv1.TaskSpread).GetMaxRank),
		min:     figure((*apiv1.TaskSpread).GetMin),
		minNode: node((*apiv1.TaskSpread).GetMinNode),
		minTask: rank((*apiv1.TaskSpread).GetMinRank),
		mean: figure(func(t *apiv1.TaskSpread) int64 {
			return t.GetSum() / max(t.GetTasks(), 1)
		}),
	}
}

// formatVirtual is the largest address space; empty where nobody looked.
func formatVirtual(view *acctView, usage *apiv1.Usage) string {
	if usage.GetPeakVm() <= 0 {
		return ""
	}
	return view.formatBytes(usage.GetPeakVm())
}

// usageWhere names the node, or the task, of the largest usage of each kind,
// known where a step ran on one node or as one task.
func usageWhere(task bool) func(*acctView, *apiv1.AcctRow) string {
	return func(view *acctView, r *apiv1.AcctRow) string {
		where := onNode(view, r)
		if where == "" || (task && r.GetTasks() > 1) {
			return ""
		}
		if task {
			where = "0"
		}
		var parts []string
		for p := range strings.SplitSeq(usageTRES(view, r.GetUsage()), ",") {
			if name, _, _ := strings.Cut(p, "="); !task || name != "energy" {
				parts = append(parts, name+"="+where)
			}
		}
		return strings.Join(parts, ",")
	}
}

// numberOrNothing is a number, or nothing for 0.
func numberOrNothing(n uint32) string {
	if n == 0 {
		return ""
	}
	return tool.Itoa(n)
}

// gpuUsage is gres/gpumem (the largest sum) and gres/gpuutil in percent.
func gpuUsage(usage *apiv1.Usage) []string {
	var memory, util, all int64
	for _, g := range usage.GetGpus() {
		memory += g.GetPeakMem()
		util += g.GetUtilNs()
		all += g.GetNoProcess() + g.GetIdle() + g.GetBusy()
	}
	out := []string{"gres/gpumem=" + formatMegabytes(memory)}
	if all > 0 {
		out = append(out, "gres/gpuutil="+tool.Itoa((util*100+all/2)/all))
	}
	return out
}

// acctFields are the columns of sacct in the order of --helpformat.
//
//muster:table one row for each column
func acctFields() []acctField {
	type R = apiv1.AcctRow
	empty := row(func(*R) string { return "" })
	jobTime := func(get func(r *R) int64) func(*acctView, *R) string {
		return func(v *acctView, r *R) string { return v.Time(get(r)) }
	}
	rss := usedColumn(func(view *acctView, usage *apiv1.Usage) string {
		if !usage.GetHasRss() {
			return ""
		}
		return view.formatBytes(usage.GetPeakRss())
	})
	vm := usedColumn(func(v *acctView, u *apiv1.Usage) string { return formatVirtual(v, u) })
	vmAt := func(where func(*acctView, *R) string) func(*acctView, *R) string {
		return func(view *acctView, r *R) string {
			if vm(view, r) == "" {
				return ""
			}
			return where(view, r)
		}
	}
	read := usedColumn(func(_ *acctView, u *apiv1.Usage) string { return formatDisk(u.GetReadBytes()) })
	written := usedColumn(func(_ *acctView, u *apiv1.Usage) string { return formatDisk(u.GetWriteBytes()) })
	pages := usedColumn(func(_ *acctView, u *apiv1.Usage) string { return tool.Itoa(u.GetMajFaults()) })
	cpu := usedColumn(func(_ *acctView, usage *apiv1.Usage) string {
		return format.Duration((usage.GetUserCpu() + usage.GetSystemCpu()) / tool.Second)
	})
	task := func(view *acctView, r *R) string {
		if onNode(view, r) == "" || r.GetTasks() > 1 {
			return ""
		}
		return "0"
	}
	planned := jobOnly(func(r *R) string { return format.Duration(r.GetPlanned() / tool.Second) })
	plannedCPU := func(r *R) int64 { return r.GetPlanned() / tool.Second * int64(r.GetReqCpus()) }
	freq := row(func(r *R) string {
		if isStep(r) && r.GetStep() == spec.StepBatch.String() {
			return "0" // nothing starts the script that could ask for a frequency
		}
		return "Unknown"
	})
	wrote := usedColumn(writtenTRES)
	const micros = 1_000_000 // of a second
	cpus := columnsOfTasks(spec.TaskCPU, func(_ *acctView, n int64) string { return format.Duration(n / micros) }, cpu, onNode, task)
	memory := columnsOfTasks(spec.TaskRSS, (*acctView).formatBytes, rss, onNode, task)
	reads := columnsOfTasks(spec.TaskRead, func(_ *acctView, n int64) string { return formatDisk(n) }, read, onNode, task)
	writes := columnsOfTasks(spec.TaskWrite, func(_ *acctView, n int64) string { return formatDisk(n) }, written, onNode, task)
	faults := columnsOfTasks(spec.TaskPages, func(_ *acctView, n int64) string { return tool.Itoa(n) }, pages, onNode, task)
	wroteAt := func(where func(*acctView, *R) string) func(*acctView, *R) string {
		return func(view *acctView, r *R) string {
			at := where(view, r)
			if at == "" {
				return ""
			}
			var parts []string
			for part := range strings.SplitSeq(writtenTRES(view, r.GetUsage()), ",") {
				name, _, _ := strings.Cut(part, "=")
				parts = append(parts, name+"="+at)
			}
			return strings.Join(parts, ",")
		}
	}
	return []acctField{
		{"Account", 10, row((*R).GetAccount)}, {"AdminComment", 15, jobOnly((*R).GetAdminComment)},
		{"AllocCPUS", 10, row(func(r *R) string { return tool.Itoa(allocCPUs(r)) })}, {"AllocNodes", 10, row(func(r *R) string { return tool.Itoa(allocNodes(r)) })},
		{"AllocTRES", 10, func(v *acctView, r *R) string { return v.formatTRES(r.GetAllocTres()) }}, {"AssocID", 7, row(func(r *R) string { return numberOrNothing(r.GetAssocId()) })},
		{"AveCPU", 10, cpus.mean}, {"AveCPUFreq", 10, usedColumn(func(v *acctView, u *apiv1.Usage) string { return formatFrequency(v, u.GetCpuKhz()) })}, {"AveDiskRead", 14, reads.mean}, {"AveDiskWrite", 14, writes.mean}, {"AvePages", 10, faults.mean}, {"AveRSS", 10, memory.mean}, {"AveVMSize", 10, vm},
		{"BlockID", 16, empty}, {"Cluster", 10, func(v *acctView, _ *R) string { return v.cluster }}, {"Comment", 14, jobOnly((*R).GetComment)}, {"Constraints", 19, jobOnly((*R).GetConstraint)},
		{"ConsumedEnergy", 14, usedColumn(func(_ *acctView, u *apiv1.Usage) string { return energy(u) })}, {"ConsumedEnergyRaw", 17, usedColumn(func(_ *acctView, u *apiv1.Usage) string { return energy(u) })},
		{"Container", 19, row((*R).GetContainer)}, {"CPUTime", 10, row(func(r *R) string { return format.Duration(r.GetElapsed() / tool.Second * allocCPUs(r)) })},
		{"CPUTimeRAW", 10, row(func(r *R) string { return tool.Itoa(r.GetElapsed() / tool.Second * allocCPUs(r)) })}, {"DBIndex", -21, row(func(r *R) string { return tool.Itoa(r.GetUid()) })},
		{"DerivedExitCode", 15, jobOnly(func(r *R) string { return tool.Itoa(r.GetDerivedCode()) + ":" + tool.Itoa(r.GetDerivedSignal()) })},
		{"Elapsed", 10, row(func(r *R) string { return format.Duration(r.GetElapsed() / tool.Second) })}, {"ElapsedRaw", 10, row(func(r *R) string { return tool.Itoa(r.GetElapsed() / tool.Second) })},
		{"Eligible", 19, func(view *acctView, r *R) string {
			if isStep(r) { // its job had begun: it was eligible when it started
				return view.Time(r.GetStart())
			}
			return view.Time(r.GetEligible())
		}}, {"End", 19, jobTime((*R).GetEnd)}, {"ExitCode", 8, row(exitOf)},
		{"Extra", 14, jobOnly((*R).GetExtra)}, {"FailedNode", 8, jobOnly((*R).GetFailedNode)}, {"Flags", 19, jobOnly((*R).GetFlags)}, {"GID", 6, jobOnly(func(r *R) string { return tool.Itoa(r.GetGroupId()) })}, {"Group", 9, jobOnly((*R).GetGroup)},
		{"JobID", -12, row(acctID)}, {"JobIDRaw", -12, row(func(r *R) string { return tool.Itoa(r.GetJobId()) + stepSuffix(r) })}, {"JobName", 10, row(func(r *R) string {
			if isStep(r) && r.GetName() == "" {
				return r.GetStep()
			}
			return r.GetName()
		})},
		{"Layout", 9, func(_ *acctView, r *R) string {
			if isStep(r) {
				return "Unknown"
			}
			return ""
		}},
		{"Licenses", 10, jobOnly((*R).GetLicenses)}, {"MaxDiskRead", 12, reads.max}, {"MaxDiskReadNode", 15, reads.maxNode}, {"MaxDiskReadTask", 15, reads.maxTask}, {"MaxDiskWrite", 12, writes.max}, {"MaxDiskWriteNode", 16, writes.maxNode},
		{"MaxDiskWriteTask", 16, writes.maxTask}, {"MaxPages", 8, faults.max}, {"MaxPagesNode", 12, faults.maxNode}, {"MaxPagesTask", 14, faults.maxTask},
		{"MaxRSS", 10, memory.max}, {"MaxRSSNode", 10, memory.maxNode}, {"MaxRSSTask", 10, memory.maxTask},
		{"MaxVMSize", 10, vm}, {"MaxVMSizeNode", 14, vmAt(onNode)}, {"MaxVMSizeTask", 14, vmAt(task)}, {"McsLabel", 12, jobOnly((*R).GetMcsLabel)}, {"MinCPU", 10, cpus.min}, {"MinCPUNode", 10, cpus.minNode}, {"MinCPUTask", 10, cpus.minTask},
		{"NCPUS", 10, row(func(r *R) string { return tool.Itoa(allocCPUs(r)) })}, {"NNodes", 8, row(func(r *R) string { return tool.Itoa(allocNodes(r)) })},
		{"NodeList", 15, row(func(r *R) string { return cmp.Or(r.GetNodeList(), "None assigned") })}, {"NTasks", 8, func(_ *acctView, r *R) string {
			if isStep(r) {
				return tool.Itoa(max(r.GetTasks(), 1))
			}
			return ""
		}},
		{"Partition", 10, jobOnly((*R).GetPartition)}, {"Planned", 10, planned}, {"PlannedCPU", 10, jobOnly(func(r *R) string { return format.Duration(plannedCPU(r)) })},
		{"PlannedCPURAW", 13, jobOnly(func(r *R) string { return tool.Itoa(plannedCPU(r)) })}, {"Priority", 10, jobOnly(func(r *R) string { return tool.Itoa(r.GetPriority()) })},
		{"QOS", 10, jobOnly((*R).GetQos)}, {"QOSRAW", 6, (*acctView).qosID}, {"QOSREQ", 10, jobOnly((*R).GetQos)}, {"Reason", 22, jobOnly((*R).GetReason)},
		{"ReqCPUFreq", 10, freq}, {"ReqCPUFreqGov", 13, freq}, {"ReqCPUFreqMax", 13, freq}, {"ReqCPUFreqMin", 13, freq},
		{"ReqCPUS", 8, row(func(r *R) string {
			if isStep(r) { // a step gets what it asks for
				return tool.Itoa(allocCPUs(r))
			}
			return tool.Itoa(r.GetReqCpus())
		})}, {"ReqMem", 10, func(view *acctView, r *R) string {
			if isStep(r) {
				return ""
			}
			return view.formatMemory(r.GetReqMem())
		}},
		{"ReqNodes", 8, row(func(r *R) string { return tool.Itoa(max(r.GetReqNodes(), 1)) })}, {"ReqReservation", 20, jobOnly((*R).GetReservation)}, {"ReqTRES", 10, func(view *acctView, r *R) string {
			if isStep(r) {
				return ""
			}
			return view.formatTRES(r.GetReqTres())
		}},
		{"Reservation", 20, jobOnly((*R).GetReservation)}, {"ReservationId", 8, empty}, {"Reserved", 10, planned}, {"Restarts", 8, jobOnly(func(r *R) string { return tool.Itoa(r.GetRestarts()) })},
		{"ResvCPU", 10, jobOnly(func(r *R) string { return format.Duration(plannedCPU(r)) })}, {"ResvCPURAW", 10, jobOnly(func(r *R) string { return tool.Itoa(plannedCPU(r)) })},
		{"SegmentSize", 11, jobOnly(func(r *R) string { return numberOrNothing(r.GetSegment()) })}, {"SLUID", 14, empty}, {"Start", 19, (*acctView).startTime}, {"State", 10, row(acctState)},
		{"StdErr", 20, jobOnly((*R).GetStderr)}, {"StdIn", 20, jobOnly((*R).GetStdin)}, {"StdOut", 20, jobOnly((*R).GetStdout)}, {"Submit", 19, jobTime((*R).GetSubmit)},
		{"SubmitLine", 20, row((*R).GetSubmitLine)}, {"Suspended", 10, row(func(r *R) string { return format.Duration(r.GetSuspended() / tool.Second) })}, {"SystemComment", 15, jobOnly((*R).GetSystemComment)},
		{"SystemCPU", 10, cpuTime((*apiv1.Usage).GetSystemCpu)}, {"Timelimit", 10, jobOnly(func(r *R) string {
			if r.GetTimeLimit() == 0 {
				return "Partition_Limit"
			}
			return render.Limit(r.GetTimeLimit(), format.Duration)
		})},
		{"TimelimitRaw", 10, jobOnly(func(r *R) string {
			if r.GetTimeLimit() == 0 {
				return "Partition_Limit"
			}
			return render.Limit(r.GetTimeLimit(), func(seconds int64) string {
				return tool.Itoa(seconds / 60)
			})
		})},
		{"TotalCPU", 10, cpuTime(func(u *apiv1.Usage) int64 { return u.GetUserCpu() + u.GetSystemCpu() })},
		{"TRESUsageInAve", 14, usedColumn(usageTRES)}, {"TRESUsageInMax", 14, usedColumn(usageTRES)}, {"TRESUsageInMaxNode", 18, usageWhere(false)}, {"TRESUsageInMaxTask", 18, usageWhere(true)},
		{"TRESUsageInMin", 14, usedColumn(usageTRES)}, {"TRESUsageInMinNode", 18, usageWhere(false)}, {"TRESUsageInMinTask", 18, usageWhere(true)}, {"TRESUsageInTot", 14, usedColumn(usageTRES)},
		{"TRESUsageOutAve", 15, wrote}, {"TRESUsageOutMax", 15, wrote}, {"TRESUsageOutMaxNode", 19, wroteAt(onNode)}, {"TRESUsageOutMaxTask", 19, wroteAt(task)}, {"TRESUsageOutMin", 15, wrote},
		{"TRESUsageOutMinNode", 19, wroteAt(onNode)}, {"TRESUsageOutMinTask", 19, wroteAt(task)}, {"TRESUsageOutTot", 15, wrote},
		{"UID", 6, jobOnly(func(r *R) string { return tool.Itoa(r.GetUserId()) })}, {"User", 9, jobOnly((*R).GetUser)}, {"UserCPU", 10, cpuTime((*apiv1.Usage).GetUserCpu)},
		{"WCKey", 10, jobOnly((*R).GetWckey)}, {"WCKeyID", 10, (*acctView).wckeyID}, {"WorkDir", 20, jobOnly((*R).GetWorkDir)},
		{"GPUUUIDs", 20, jobOnly((*R).GetGpuUuids)}, // Muster's own
	}
}

// acctNeeds names what of a row the columns are made from; nil = everything.
// What comes with every row is not named.
//
//muster:table one case for each column that a long listing is likely to have
func acctNeeds(fields []acctField) []string {
	out := []string{"submit"}
	for _, field := range fields {
		switch field.name {
		case "JobID", "JobIDRaw", "DBIndex", "Elapsed", "ElapsedRaw", "Start", "End", "Submit", "Suspended", "Restarts", "Cluster":
		case "State":
			out = append(out, "cancelled_by")
		case "ExitCode":
			out = append(out, "exit_code")
		case "AllocCPUS", "NCPUS", "AllocNodes", "NNodes", "CPUTime", "CPUTimeRAW":
			out = append(out, "cpus", "req_nodes")
		case "JobName":
			out = append(out, "name")
		case "User", "Account", "Partition", "QOS", "Reason", "Priority", "WCKey", "Comment", "Eligible", "Extra":
			out = append(out, strings.ToLower(field.name))
		case "UID":
			out = append(out, "user_id")
		case "NodeList":
			out = append(out, "node_list")
		case "Timelimit", "TimelimitRaw":
			out = append(out, "time_limit")
		case "ReqMem", "ReqCPUS", "ReqTRES":
			out = append(out, "req_tres")
		case "AllocTRES":
			out = append(out, "alloc_tres")
		case "MaxRSS", "AveRSS", "TotalCPU", "UserCPU", "SystemCPU":
			out = append(out, "usage", "cpus", "req_nodes")
		case "WorkDir":
			out = append(out, "work_dir")
		default:
			return nil
		}
	}
	return out
}
