package query

import (
	"cmp"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// jobField is a column of squeue.
type jobField struct {
	letter string // of -o, or empty
	name   string // of -O
	head   string
	text   func(v *render.JobView, r render.JobRow) string
}

func jobText(get func(j *apiv1.JobInfo) string) func(*render.JobView, render.JobRow) string {
	return func(_ *render.JobView, r render.JobRow) string { return get(r.JobInfo) }
}

func fixedText(text string) func(*render.JobView, render.JobRow) string {
	return func(*render.JobView, render.JobRow) string { return text }
}

// jobFields are the columns of squeue by letter and name, in the order in
// which %all and ALL print them.
//
//muster:table one row for each column
func jobFields() []jobField {
	f := func(letter, name, head string, get func(j *apiv1.JobInfo) string) jobField {
		return jobField{letter, name, head, jobText(get)}
	}
	none := func(name, head, text string) jobField { return jobField{"", name, head, fixedText(text)} }
	return []jobField{
		f("a", "Account", "ACCOUNT", func(j *apiv1.JobInfo) string { return cmp.Or(j.GetSpec().GetAccount(), render.Null) }),
		{"", "AccrueTime", "ACCRUE_TIME", func(v *render.JobView, r render.JobRow) string { return v.TimeOr(r.GetEligible(), render.NotAvailable) }},
		f("", "admin_comment", "ADMIN_COMMENT", func(j *apiv1.JobInfo) string { return cmp.Or(j.GetSpec().GetAdminComment(), render.Null) }),
		f("", "AllocNodes", "ALLOC_NODES", func(j *apiv1.JobInfo) string { return cmp.Or(j.GetSpec().GetSubmitHost(), render.NotAvailable) }),
		none("AllocSID", "ALLOC_SID", "0"),
		{"F", "ArrayJobID", "ARRAY_JOB_ID", func(_ *render.JobView, row render.JobRow) string {
			if row.GetArrayJobId() != 0 {
				return tool.Itoa(row.GetArrayJobId())
			}
			return tool.Itoa(row.GetJobId())
		}},
		{"K", "ArrayTaskID", "ARRAY_TASK_ID", func(view *render.JobView, row render.JobRow) string {
			switch {
			case row.IsArray():
				return render.ArrayTasks(view.Env, row.JobInfo)
			case row.TaskID() >= 0:
				return tool.Itoa(row.TaskID())
			}
			return render.NotAvailable
		}},
		none("AssocID", "ASSOC_ID", "0"),
		f("", "BatchFlag", "BATCH_FLAG", func(j *apiv1.JobInfo) string { return render.ZeroOne(!j.GetSpec().GetShell()) }),
		f("B", "BatchHost", "EXEC_HOST", func(j *apiv1.JobInfo) string { return cmp.Or(j.GetBatchHost(), "n/a") }),
		none("BoardsPerNode", "BOARDS_PER_NODE", render.NotAvailable),
		none("BurstBuffer", "BURST_BUFFER", render.Null),
		none("BurstBufferState", "BURST_BUFFER_STATE", render.Null),
		{"", "Cluster", "CLUSTER", func(v *render.JobView, _ render.JobRow) string { return cmp.Or(v.Cluster, render.NotAvailable) }},
		none("ClusterFeature", "CLUSTER_FEATURES", render.Null),
		f("o", "Command", "COMMAND", func(j *apiv1.JobInfo) string { return cmp.Or(render.CommandLine(j), render.Null) }),
		f("k", "Comment", "COMMENT", func(j *apiv1.JobInfo) string { return cmp.Or(j.GetSpec().GetComment(), render.Null) }),
		f("O", "Contiguous", "CONTIGUOUS", func(j *apiv1.JobInfo) string { return render.ZeroOne(j.GetSpec().GetContiguous()) }),
		f("", "Container", "CONTAINER", render.ImageName),
		none("ContainerID", "CONTAINER_ID", ""),
		f("I", "Cores", "CORES_PER_SOCKET", func(j *apiv1.JobInfo) string { return render.StarIfZero(j.GetSpec().GetCoresPerSocket()) }),
		f("X", "CoreSpec", "CORE_SPEC", func(job *apiv1.JobInfo) string {
			if n := job.GetSpec().GetCoreSpec(); n > 0 {
				return tool.Itoa(n)
			}
			if n := job.GetSpec().GetThreadSpec(); n > 0 {
				return tool.Itoa(n) + " Threads"
			}
			return render.NotAvailable
		}),
		none("CPUFreq", "CPU_FREQ", render.NotAvailable),
		f("", "cpus-per-task", "CPUS_PER_TASK", func(job *apiv1.JobInfo) string {
			if n := job.GetSpec().GetCpusPerTask(); n > 0 {
				return tool.Itoa(n)
			}
			return render.NotAvailable
		}),
		f("", "cpus-per-tres", "CPUS_PER_TRES", func(job *apiv1.JobInfo) string {
			if n := job.GetSpec().GetCpusPerGpu(); n > 0 {
				return "gres:gpu:" + tool.Itoa(n)
			}
			return render.NotAvailable
		}),
		f("", "CronJob", "CRON_JOB", func(job *apiv1.JobInfo) string {
			if job.GetSpec().GetCron() != "" {
				return "Yes"
			}
			return "No"
		}),
		{"", "Deadline", "DEADLINE", func(view *render.JobView, row render.JobRow) string {
			return view.TimeOr(row.GetSpec().GetDeadline(), render.NotAvailable)
		}},
		none("DelayBoot", "DELAY_BOOT", "00:00:00"),
		f("E", "Dependency", "DEPENDENCY", func(j *apiv1.JobInfo) string { return cmp.Or(j.GetDependency(), render.Null) }),
		f("", "DerivedEC", "DERIVED_EXIT_CODE", func(j *apiv1.JobInfo) string { return tool.Itoa(j.GetDerivedCode()) }),
		{"", "EligibleTime", "ELIGIBLE_TIME", func(v *render.JobView, r render.JobRow) string { return v.TimeOr(r.GetEligible(), render.NotAvailable) }},
		{"e", "EndTime", "END_TIME", func(view *render.JobView, row render.JobRow) string {
			return view.TimeOr(render.End(row.JobInfo), render.NotAvailable)
		}},
		f("x", "ExcNodes", "EXC_NODES", func(j *apiv1.JobInfo) string { return j.GetSpec().GetExclude() }),
		f("", "exit_code", "EXIT_CODE", func(j *apiv1.JobInfo) string { return tool.Itoa(j.GetExitCode()) }),
		f("f", "Feature", "FEATURES", func(j *apiv1.JobInfo) string { return cmp.Or(j.GetSpec().GetConstraint(), render.Null) }),
		f("G", "GroupID", "GROUP", func(j *apiv1.JobInfo) string { return tool.Itoa(j.GetGroupId()) }),
		f("g", "GroupName", "GROUP", func(j *apiv1.JobInfo) string { return cmp.Or(j.GetGroup(), tool.Itoa(j.GetGroupId())) }),
		f("", "HetJobID", "HET_JOB_ID", func(j *apiv1.JobInfo) string { return orNA(j.GetHetJobId()) }),
		f("", "HetJobIDSet", "HET_JOB_ID_SET", func(j *apiv1.JobInfo) string { return cmp.Or(render.HetSet(j), render.NotAvailable) }),
		f("", "HetJobOffset", "HET_JOB_OFFSET", func(job *apiv1.JobInfo) string {
			if job.GetHetJobId() == 0 {
				return render.NotAvailable
			}
			return tool.Itoa(job.GetHetOffset())
		}),
		{"i", "JobArrayID", "JOBID", (*render.JobView).ID},
		f("A", "JobID", "JOBID", func(j *apiv1.JobInfo) string { return tool.Itoa(j.GetJobId()) }),
		{"", "LastSchedEval", "LAST_SCHED_EVAL",
			func(view *render.JobView, row render.JobRow) string {
				return view.TimeOr(row.GetLastSchedEval(), render.NotAvailable)
			}},
		f("W", "Licenses", "LICENSES", func(j *apiv1.JobInfo) string { return cmp.Or(render.LicencesText(j.GetSpec()), render.Null) }),
		{"", "LicensesAlloc", "LICENSES_ALLOC", func(_ *render.JobView, row render.JobRow) string {
			if row.Pending() {
				return render.Null
			}
			return cmp.Or(render.CountsText(row.GetSpec().GetLicenses(), "", ":"), render.Null)
		}},
		none("MaxCPUs", "MAX_CPUS", "0"),
		f("", "MaxNodes", "MAX_NODES", func(j *apiv1.JobInfo) string { return tool.Itoa(j.GetSpec().GetMaxNodes()) }),
		f("", "MCSLabel", "MCSLABEL", func(j *apiv1.JobInfo) string { return cmp.Or(j.GetSpec().GetMcsLabel(), render.NotAvailable) }),
		f("", "mem-per-tres", "MEM_PER_TRES", func(job *apiv1.JobInfo) string {
			if n := job.GetSpec().GetMemPerGpu(); n > 0 {
				return "gres:gpu:" + tool.Itoa(n)
			}
			return render.NotAvailable
		}),
		f("c", "MinCpus", "MIN_CPUS", func(job *apiv1.JobInfo) string {
			return tool.Itoa(
				max(job.GetSpec().GetMinCpusPerNode(), job.GetSpec().GetCpusPerTask(), 1),
			)
		}),
		{"m", "MinMemory", "MIN_MEMORY", func(v *render.JobView, r render.JobRow) string { return v.MinMemory(r.JobInfo) }},
		f("", "MinTime", "MIN_TIME", func(job *apiv1.JobInfo) string {
			if n := job.GetSpec().GetTimeMin(); n != 0 {
				return render.Limit(n, format.ShortDuration)
			}
			return render.NotAvailable
		}),
		{"d", "MinTmpDisk", "MIN_TMP_DISK", func(v *render.JobView, r render.JobRow) string { return v.Memory(r.GetSpec().GetTmpDisk()) }},
		f("j", "Name", "NAME", func(j *apiv1.JobInfo) string { return j.GetSpec().GetName() }),
		none("Network", "NETWORK", render.Null),
		f("y", "Nice", "NICE", func(j *apiv1.JobInfo) string { return tool.Itoa(j.GetSpec().GetNice()) }),
		f("N", "NodeList", "NODELIST", func(j *apiv1.JobInfo) string { return j.GetNodes() }),
		f("D", "NumNodes", "NODES", func(j *apiv1.JobInfo) string { return tool.Itoa(j.GetNumNodes()) }),
		none("NTPerBoard", "TASKS_PER_BOARD", render.NotAvailable),
		f("", "NTPerCore", "TASKS_PER_CORE", func(j *apiv1.JobInfo) string { return orNA(j.GetSpec().GetTasksPerCore()) }),
		f("", "NTPerNode", "TASKS_PER_NODE", func(j *apiv1.JobInfo) string { return orNA(j.GetSpec().GetTasksPerNode()) }),
		f("", "NTPerSocket", "TASKS_PER_SOCKET", func(j *apiv1.JobInfo) string { return orNA(j.GetSpec().GetTasksPerSocket()) }),
		f("C", "NumCPUs", "CPUS", func(j *apiv1.JobInfo) string { return tool.Itoa(j.GetNumCpus()) }),
		f("", "NumTasks", "TASKS", func(j *apiv1.JobInfo) string { return tool.Itoa(j.GetNumTasks()) }),
		none("Origin", "ORIGIN", render.NotAvailable),
		none("OriginRaw", "ORIGIN_RAW", render.NotAvailable),
		f("h", "OverSubscribe", "OVER_SUBSCRIBE", render.Sharing),
		{"P", "Partition", "PARTITION", func(_ *render.JobView, r render.JobRow) string { return cmp.Or(r.Part, r.GetPartition()) }},
		{"", "PendingTime", "PENDING_TIME", func(view *render.JobView, row render.JobRow) string {
			until := row.GetStart()
			if row.Pending() || until == 0 {
				until = view.Now
			}
			return tool.Itoa(max(0, until-row.GetSubmit()) / tool.Second)
		}},
		{"", "PreemptTime", "PREEMPT_TIME", func(view *render.JobView, row render.JobRow) string {
			return view.TimeOr(row.GetPreemptedAt(), render.NotAvailable)
		}},
		f("", "Prefer", "PREFER", func(j *apiv1.JobInfo) string { return cmp.Or(j.GetSpec().GetPrefer(), render.Null) }),
		f("p", "Priority", "PRIORITY", func(j *apiv1.JobInfo) string { return formatFraction(j.GetPriority()) }),
		f("Q", "PriorityLong", "PRIORITY", func(j *apiv1.JobInfo) string { return tool.Itoa(j.GetPriority()) }),
		none("Profile", "PROFILE", render.NotAvailable),
		f("q", "QOS", "QOS", func(j *apiv1.JobInfo) string { return cmp.Or(render.QOSOf(j), render.Null) }),
		f("r", "Reason", "REASON", render.Reason),
		f("R", "ReasonList", "NODELIST(REASON)", render.NodesOrReason),
		f("", "Reboot", "REBOOT", func(j *apiv1.JobInfo) string { return render.ZeroOne(j.GetSpec().GetReboot()) }),
		f("n", "ReqNodes", "REQ_NODES", func(j *apiv1.JobInfo) string { return j.GetSpec().GetNodes() }),
		f("", "ReqSwitch", "REQ_SWITCH", func(j *apiv1.JobInfo) string { return tool.Itoa(j.GetSpec().GetSwitches()) }),
		f("", "Requeue", "REQUEUE", func(j *apiv1.JobInfo) string { return render.ZeroOne(j.GetSpec().GetRequeue() != apiv1.Tri_TRI_NO) }),
		f("v", "Reservation", "RESERVATION", func(j *apiv1.JobInfo) string { return cmp.Or(j.GetSpec().GetReservation(), render.Null) }),
		none("ResizeTime", "RESIZE_TIME", render.NotAvailable),
		f("", "RestartCnt", "RESTART_COUNT", func(j *apiv1.JobInfo) string { return tool.Itoa(j.GetRestarts()) }),
		none("ResvPort", "RESV_PORTS", render.NotAvailable),
		{"Y", "SchedNodes", "SCHEDNODES", func(_ *render.JobView, row render.JobRow) string {
			if row.Pending() {
				return cmp.Or(row.GetPlannedNodes(), render.Null)
			}
			return render.Null
		}},
		f("z", "SCT", "S:C:T", func(j *apiv1.JobInfo) string {
			jobSpec := j.GetSpec()
			return render.StarIfZero(jobSpec.GetSocketsPerNode()) + ":" +
				render.StarIfZero(jobSpec.GetCoresPerSocket()) + ":" +
				render.StarIfZero(jobSpec.GetThreadsPerCore())
		}),
		f("", "SegmentSize", "SEGMENT_SIZE", func(j *apiv1.JobInfo) string { return orNA(j.GetSpec().GetSegment()) }),
		none("SiblingsActive", "ACTIVE_SIBLINGS", render.NotAvailable),
		none("SiblingsActiveRaw", "ACTIVE_SIBLINGS_RAW", render.NotAvailable),
		none("SiblingsViable", "VIABLE_SIBLINGS", render.NotAvailable),
		none("SiblingsViableRaw", "VIABLE_SIBLINGS_RAW", render.NotAvailable),
		f("H", "Sockets", "SOCKETS_PER_NODE", func(j *apiv1.JobInfo) string { return render.StarIfZero(j.GetSpec().GetSocketsPerNode()) }),
		none("SPerBoard", "SOCKETS_PER_BOARD", render.NotAvailable),
		{"S", "StartTime", "START_TIME", func(view *render.JobView, row render.JobRow) string {
			return view.TimeOr(render.Start(row.JobInfo), render.NotAvailable)
		}},
		f("T", "State", "STATE", func(j *apiv1.JobInfo) string { long, _ := render.StateNames(j); return long }),
		f("t", "StateCompact", "ST", func(j *apiv1.JobInfo) string { _, short := render.StateNames(j); return short }),
		{"", "STDERR", "STDERR", func(v *render.JobView, r render.JobRow) string { return v.Stderr(r.JobInfo) }},
		{"", "STDIN", "STDIN", func(v *render.JobView, r render.JobRow) string { return v.Stdin(r.JobInfo) }},
		{"", "STDOUT", "STDOUT", func(v *render.JobView, r render.JobRow) string { return v.Stdout(r.JobInfo) }},
		{"V", "SubmitTime", "SUBMIT_TIME", func(v *render.JobView, r render.JobRow) string { return v.TimeOr(r.GetSubmit(), render.NotAvailable) }},
		f("", "system_comment", "SYSTEM_COMMENT", func(j *apiv1.JobInfo) string { return cmp.Or(j.GetSpec().GetSystemComment(), render.Null) }),
		f("J", "Threads", "THREADS_PER_CORE", func(j *apiv1.JobInfo) string { return render.StarIfZero(j.GetSpec().GetThreadsPerCore()) }),
		{"L", "TimeLeft", "TIME_LEFT", func(view *render.JobView, row render.JobRow) string {
			return render.Limit(render.Left(row.JobInfo, view.Now), format.ShortDuration)
		}},
		f("l", "TimeLimit", "TIME_LIMIT", func(j *apiv1.JobInfo) string { return render.Limit(j.GetTimeLimit(), format.ShortDuration) }),
		{"M", "TimeUsed", "TIME", func(view *render.JobView, row render.JobRow) string {
			return format.ShortDuration(render.Elapsed(row.JobInfo, view.Now) / tool.Second)
		}},
		f("", "tres-alloc", "TRES_ALLOC", func(job *apiv1.JobInfo) string {
			if text := render.TRESText(job.GetAllocTres()); text != "" {
				return text
			}
			return cmp.Or(render.TRESText(job.GetReqTres()), render.NotAvailable)
		}),
		f("", "tres-bind", "TRES_BIND", func(j *apiv1.JobInfo) string { return cmp.Or(render.TRESBind(j.GetSpec()), render.NotAvailable) }),
		f("", "tres-freq", "TRES_FREQ", func(j *apiv1.JobInfo) string { return cmp.Or(render.TRESFreq(j.GetSpec()), render.NotAvailable) }),
		f("", "tres-per-job", "TRES_PER_JOB", func(job *apiv1.JobInfo) string {
			return cmp.Or(
				render.CountsText(job.GetSpec().GetPerJob(), "gres:", ":"), render.NotAvailable,
			)
		}),
		f("b", "tres-per-node", "TRES_PER_NODE", render.PerNode),
		f("", "tres-per-socket", "TRES_PER_SOCKET", func(job *apiv1.JobInfo) string {
			return cmp.Or(
				render.CountsText(job.GetSpec().GetPerSocket(), "gres:", ":"), render.NotAvailable,
			)
		}),
		none("tres-per-step", "TRES_PER_STEP", render.NotAvailable),
		f("", "tres-per-task", "TRES_PER_TASK", func(job *apiv1.JobInfo) string {
			return cmp.Or(
				render.CountsText(job.GetSpec().GetPerTask(), "gres:", ":"), render.NotAvailable,
			)
		}),
		f("U", "UserID", "USER", func(j *apiv1.JobInfo) string { return tool.Itoa(j.GetUserId()) }),
		f("u", "UserName", "USER", func(j *apiv1.JobInfo) string { return cmp.Or(j.GetUser(), tool.Itoa(j.GetUserId())) }),
		f("w", "WCKey", "WCKEY", func(j *apiv1.JobInfo) string { return cmp.Or(j.GetSpec().GetWckey(), render.Null) }),
		f("Z", "WorkDir", "WORK_DIR", func(j *apiv1.JobInfo) string { return cmp.Or(j.GetSpec().GetWorkDir(), render.Null) }),
	}
}

// aliases are other spellings of -O names.
func jobFieldAlias(name string) string {
	switch strings.ToLower(name) {
	case "nodes":
		return "NumNodes"
	case "cpus":
		return "NumCPUs"
	case "tasks":
		return "NumTasks"
	case "maxnodes":
		return "MaxNodes"
	case "gres":
		return "tres-per-node"
	case "admincomment":
		return "admin_comment"
	case "exitcode":
		return "exit_code"
	case "partitionname":
		return "Partition"
	}
	return name
}

// stepFields are the columns of squeue -s.
//
//muster:table one row for each column
func stepFields() []jobField {
	return []jobField{
		{"A", "NumTasks", "TASKS", func(_ *render.JobView, r render.JobRow) string { return tool.Itoa(max(r.Step.GetTasks(), 1)) }},
		{"i", "StepID", "STEPID", func(view *render.JobView, row render.JobRow) string {
			return view.ID(row) + "." + spec.StepID(row.Step.GetStepId()).String()
		}},
		{"j", "StepName", "NAME", func(_ *render.JobView, r render.JobRow) string { return r.Step.GetName() }},
		{"l", "TimeLimit", "TIME_LIMIT", jobText(func(j *apiv1.JobInfo) string { return render.Limit(j.GetTimeLimit(), format.ShortDuration) })},
		{"M", "TimeUsed", "TIME", func(view *render.JobView, row render.JobRow) string {
			end := row.Step.GetEnd()
			if end == 0 {
				end = view.Now
			}
			return format.ShortDuration(max(0, end-row.Step.GetStart()) / tool.Second)
		}},
		{"N", "NodeList", "NODELIST", func(_ *render.JobView, r render.JobRow) string { return strings.Join(r.Step.GetNodes(), ",") }},
		{"P", "Partition", "PARTITION", jobText(func(j *apiv1.JobInfo) string { return j.GetPartition() })},
		{"S", "StartTime", "START_TIME", func(view *render.JobView, row render.JobRow) string {
			return view.TimeOr(row.Step.GetStart(), render.NotAvailable)
		}},
		{"T", "StepState", "STATE", func(_ *render.JobView, r render.JobRow) string { return spec.JobState(r.Step.GetState()).String() }},
		{"b", "tres-alloc", "TRES_ALLOC", func(_ *render.JobView, row render.JobRow) string {
			return cmp.Or(render.TRESText(row.Step.GetTres()), render.NotAvailable)
		}},
		{"u", "UserName", "USER", jobText(func(j *apiv1.JobInfo) string { return cmp.Or(j.GetUser(), tool.Itoa(j.GetUserId())) })},
		{"U", "UserID", "USER", jobText(func(j *apiv1.JobInfo) string { return tool.Itoa(j.GetUserId()) })},
	}
}

func orNA(n uint32) string {
	if n == 0 {
		return render.NotAvailable
	}
	return tool.Itoa(n)
}

// formatFraction writes a priority as the part of the largest one, with 14 digits,
// in integers: it is shown, and nothing may depend on rounding.
func formatFraction(p uint32) string {
	const most, digits = 1<<32 - 1, 14
	rest := uint64(p)
	buffer := []byte{byte('0' + rest/most), '.'}
	for range digits {
		rest = rest % most * 10
		buffer = append(buffer, byte('0'+rest/most))
	}
	return string(buffer)
}
