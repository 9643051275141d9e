package cli

import (
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// jobField is a column of squeue.
type jobField struct {
	letter string // of -o, or empty
	name   string // of -O
	head   string
	text   func(v *jobView, r jobRow) string
}

func jobText(get func(j *apiv1.JobInfo) string) func(*jobView, jobRow) string {
	return func(_ *jobView, r jobRow) string { return get(r.JobInfo) }
}

func fixed(text string) func(*jobView, jobRow) string {
	return func(*jobView, jobRow) string { return text }
}

// jobFields are the columns of squeue by letter and name, in the order in
// which %all and ALL print them.
//
//muster:table one row for each column
func jobFields() []jobField {
	f := func(letter, name, head string, get func(j *apiv1.JobInfo) string) jobField {
		return jobField{letter, name, head, jobText(get)}
	}
	none := func(name, head, text string) jobField { return jobField{"", name, head, fixed(text)} }
	return []jobField{
		f("a", "Account", "ACCOUNT", func(j *apiv1.JobInfo) string { return or(j.GetSpec().GetAccount(), null) }),
		{"", "AccrueTime", "ACCRUE_TIME", func(v *jobView, r jobRow) string { return v.timeOr(r.GetEligible(), na) }},
		f("", "admin_comment", "ADMIN_COMMENT", func(j *apiv1.JobInfo) string { return or(j.GetSpec().GetAdminComment(), null) }),
		f("", "AllocNodes", "ALLOC_NODES", func(j *apiv1.JobInfo) string { return or(j.GetSpec().GetSubmitHost(), na) }),
		none("AllocSID", "ALLOC_SID", "0"),
		{"F", "ArrayJobID", "ARRAY_JOB_ID", func(_ *jobView, r jobRow) string {
			if r.GetArrayJobId() != 0 {
				return itoa(r.GetArrayJobId())
			}
			return itoa(r.GetJobId())
		}},
		{"K", "ArrayTaskID", "ARRAY_TASK_ID", func(v *jobView, r jobRow) string {
			switch {
			case r.isArray():
				return v.env.arrayTasks(r.JobInfo)
			case r.taskID() >= 0:
				return itoa(r.taskID())
			}
			return na
		}},
		none("AssocID", "ASSOC_ID", "0"),
		f("", "BatchFlag", "BATCH_FLAG", func(j *apiv1.JobInfo) string { return bit(!j.GetSpec().GetShell()) }),
		f("B", "BatchHost", "EXEC_HOST", func(j *apiv1.JobInfo) string { return or(j.GetBatchHost(), "n/a") }),
		none("BoardsPerNode", "BOARDS_PER_NODE", na),
		none("BurstBuffer", "BURST_BUFFER", null),
		none("BurstBufferState", "BURST_BUFFER_STATE", null),
		{"", "Cluster", "CLUSTER", func(v *jobView, _ jobRow) string { return or(v.cluster, na) }},
		none("ClusterFeature", "CLUSTER_FEATURES", null),
		f("o", "Command", "COMMAND", func(j *apiv1.JobInfo) string { return or(commandLine(j), null) }),
		f("k", "Comment", "COMMENT", func(j *apiv1.JobInfo) string { return or(j.GetSpec().GetComment(), null) }),
		f("O", "Contiguous", "CONTIGUOUS", func(j *apiv1.JobInfo) string { return bit(j.GetSpec().GetContiguous()) }),
		none("Container", "CONTAINER", ""),
		none("ContainerID", "CONTAINER_ID", ""),
		f("I", "Cores", "CORES_PER_SOCKET", func(*apiv1.JobInfo) string { return "*" }),
		f("X", "CoreSpec", "CORE_SPEC", func(j *apiv1.JobInfo) string {
			if n := j.GetSpec().GetCoreSpec(); n > 0 {
				return itoa(n)
			}
			return na
		}),
		none("CPUFreq", "CPU_FREQ", na),
		f("", "cpus-per-task", "CPUS_PER_TASK", func(j *apiv1.JobInfo) string {
			if n := j.GetSpec().GetCpusPerTask(); n > 0 {
				return itoa(n)
			}
			return na
		}),
		f("", "cpus-per-tres", "CPUS_PER_TRES", func(j *apiv1.JobInfo) string {
			if n := j.GetSpec().GetCpusPerGpu(); n > 0 {
				return "gres:gpu:" + itoa(n)
			}
			return na
		}),
		none("CronJob", "CRON_JOB", "No"),
		{"", "Deadline", "DEADLINE", func(v *jobView, r jobRow) string { return v.timeOr(r.GetSpec().GetDeadline(), na) }},
		none("DelayBoot", "DELAY_BOOT", "00:00:00"),
		f("E", "Dependency", "DEPENDENCY", func(j *apiv1.JobInfo) string { return or(j.GetDependency(), null) }),
		f("", "DerivedEC", "DERIVED_EXIT_CODE", func(j *apiv1.JobInfo) string { return itoa(j.GetDerivedCode()) }),
		{"", "EligibleTime", "ELIGIBLE_TIME", func(v *jobView, r jobRow) string { return v.timeOr(r.GetEligible(), na) }},
		{"e", "EndTime", "END_TIME", func(v *jobView, r jobRow) string { return v.timeOr(end(r.JobInfo), na) }},
		f("x", "ExcNodes", "EXC_NODES", func(j *apiv1.JobInfo) string { return j.GetSpec().GetExclude() }),
		f("", "exit_code", "EXIT_CODE", func(j *apiv1.JobInfo) string { return itoa(j.GetExitCode()) }),
		f("f", "Feature", "FEATURES", func(j *apiv1.JobInfo) string { return or(j.GetSpec().GetConstraint(), null) }),
		f("G", "GroupID", "GROUP", func(j *apiv1.JobInfo) string { return itoa(j.GetGroupId()) }),
		f("g", "GroupName", "GROUP", func(j *apiv1.JobInfo) string { return or(j.GetGroup(), itoa(j.GetGroupId())) }),
		f("", "HetJobID", "HET_JOB_ID", func(j *apiv1.JobInfo) string { return orNA(j.GetHetJobId()) }),
		f("", "HetJobIDSet", "HET_JOB_ID_SET", func(j *apiv1.JobInfo) string { return or(hetSet(j), na) }),
		f("", "HetJobOffset", "HET_JOB_OFFSET", func(j *apiv1.JobInfo) string {
			if j.GetHetJobId() == 0 {
				return na
			}
			return itoa(j.GetHetOffset())
		}),
		{"i", "JobArrayID", "JOBID", (*jobView).id},
		f("A", "JobID", "JOBID", func(j *apiv1.JobInfo) string { return itoa(j.GetJobId()) }),
		{"", "LastSchedEval", "LAST_SCHED_EVAL", func(v *jobView, r jobRow) string { return v.timeOr(r.GetLastSchedEval(), na) }},
		f("W", "Licenses", "LICENSES", func(j *apiv1.JobInfo) string { return or(licencesText(j.GetSpec()), null) }),
		{"", "LicensesAlloc", "LICENSES_ALLOC", func(_ *jobView, r jobRow) string {
			if r.pending() {
				return null
			}
			return or(countsText(r.GetSpec().GetLicenses(), "", ":"), null)
		}},
		none("MaxCPUs", "MAX_CPUS", "0"),
		f("", "MaxNodes", "MAX_NODES", func(j *apiv1.JobInfo) string { return itoa(j.GetSpec().GetMaxNodes()) }),
		none("MCSLabel", "MCSLABEL", na),
		f("", "mem-per-tres", "MEM_PER_TRES", func(j *apiv1.JobInfo) string {
			if n := j.GetSpec().GetMemPerGpu(); n > 0 {
				return "gres:gpu:" + itoa(n)
			}
			return na
		}),
		f("c", "MinCpus", "MIN_CPUS", func(j *apiv1.JobInfo) string {
			return itoa(max(j.GetSpec().GetMinCpusPerNode(), j.GetSpec().GetCpusPerTask(), 1))
		}),
		{"m", "MinMemory", "MIN_MEMORY", func(v *jobView, r jobRow) string { return v.minMemory(r.JobInfo) }},
		f("", "MinTime", "MIN_TIME", func(j *apiv1.JobInfo) string {
			if n := j.GetSpec().GetTimeMin(); n != 0 {
				return limit(n, format.ShortDuration)
			}
			return na
		}),
		{"d", "MinTmpDisk", "MIN_TMP_DISK", func(v *jobView, r jobRow) string { return v.memory(r.GetSpec().GetTmpDisk()) }},
		f("j", "Name", "NAME", func(j *apiv1.JobInfo) string { return j.GetSpec().GetName() }),
		none("Network", "NETWORK", null),
		f("y", "Nice", "NICE", func(j *apiv1.JobInfo) string { return itoa(j.GetSpec().GetNice()) }),
		f("N", "NodeList", "NODELIST", func(j *apiv1.JobInfo) string { return j.GetNodes() }),
		f("D", "NumNodes", "NODES", func(j *apiv1.JobInfo) string { return itoa(j.GetNumNodes()) }),
		none("NTPerBoard", "TASKS_PER_BOARD", na),
		f("", "NTPerCore", "TASKS_PER_CORE", func(j *apiv1.JobInfo) string { return orNA(j.GetSpec().GetTasksPerCore()) }),
		f("", "NTPerNode", "TASKS_PER_NODE", func(j *apiv1.JobInfo) string { return orNA(j.GetSpec().GetTasksPerNode()) }),
		f("", "NTPerSocket", "TASKS_PER_SOCKET", func(j *apiv1.JobInfo) string { return orNA(j.GetSpec().GetTasksPerSocket()) }),
		f("C", "NumCPUs", "CPUS", func(j *apiv1.JobInfo) string { return itoa(j.GetNumCpus()) }),
		f("", "NumTasks", "TASKS", func(j *apiv1.JobInfo) string { return itoa(j.GetNumTasks()) }),
		none("Origin", "ORIGIN", na),
		none("OriginRaw", "ORIGIN_RAW", na),
		f("h", "OverSubscribe", "OVER_SUBSCRIBE", sharing),
		{"P", "Partition", "PARTITION", func(_ *jobView, r jobRow) string { return or(r.part, r.GetPartition()) }},
		{"", "PendingTime", "PENDING_TIME", func(v *jobView, r jobRow) string {
			until := r.GetStart()
			if r.pending() || until == 0 {
				until = v.now
			}
			return itoa(max(0, until-r.GetSubmit()) / second)
		}},
		{"", "PreemptTime", "PREEMPT_TIME", func(v *jobView, r jobRow) string { return v.timeOr(r.GetPreemptedAt(), na) }},
		f("", "Prefer", "PREFER", func(j *apiv1.JobInfo) string { return or(j.GetSpec().GetPrefer(), null) }),
		f("p", "Priority", "PRIORITY", func(j *apiv1.JobInfo) string { return fraction(j.GetPriority()) }),
		f("Q", "PriorityLong", "PRIORITY", func(j *apiv1.JobInfo) string { return itoa(j.GetPriority()) }),
		none("Profile", "PROFILE", na),
		f("q", "QOS", "QOS", func(j *apiv1.JobInfo) string { return or(qosOf(j), null) }),
		f("r", "Reason", "REASON", reason),
		f("R", "ReasonList", "NODELIST(REASON)", nodesOrReason),
		f("", "Reboot", "REBOOT", func(j *apiv1.JobInfo) string { return bit(j.GetSpec().GetReboot()) }),
		f("n", "ReqNodes", "REQ_NODES", func(j *apiv1.JobInfo) string { return j.GetSpec().GetNodes() }),
		f("", "ReqSwitch", "REQ_SWITCH", func(j *apiv1.JobInfo) string { return itoa(j.GetSpec().GetSwitches()) }),
		f("", "Requeue", "REQUEUE", func(j *apiv1.JobInfo) string { return bit(j.GetSpec().GetRequeue() != apiv1.Tri_TRI_NO) }),
		f("v", "Reservation", "RESERVATION", func(j *apiv1.JobInfo) string { return or(j.GetSpec().GetReservation(), null) }),
		none("ResizeTime", "RESIZE_TIME", na),
		f("", "RestartCnt", "RESTART_COUNT", func(j *apiv1.JobInfo) string { return itoa(j.GetRestarts()) }),
		none("ResvPort", "RESV_PORTS", na),
		{"Y", "SchedNodes", "SCHEDNODES", func(_ *jobView, r jobRow) string {
			if r.pending() {
				return or(r.GetPlannedNodes(), null)
			}
			return null
		}},
		f("z", "SCT", "S:C:T", func(j *apiv1.JobInfo) string { return "*:*:" + starIfZero(j.GetSpec().GetThreadsPerCore()) }),
		none("SegmentSize", "SEGMENT_SIZE", na),
		none("SiblingsActive", "ACTIVE_SIBLINGS", na),
		none("SiblingsActiveRaw", "ACTIVE_SIBLINGS_RAW", na),
		none("SiblingsViable", "VIABLE_SIBLINGS", na),
		none("SiblingsViableRaw", "VIABLE_SIBLINGS_RAW", na),
		f("H", "Sockets", "SOCKETS_PER_NODE", func(*apiv1.JobInfo) string { return "*" }),
		none("SPerBoard", "SOCKETS_PER_BOARD", na),
		{"S", "StartTime", "START_TIME", func(v *jobView, r jobRow) string { return v.timeOr(start(r.JobInfo), na) }},
		f("T", "State", "STATE", func(j *apiv1.JobInfo) string { long, _ := stateNames(j); return long }),
		f("t", "StateCompact", "ST", func(j *apiv1.JobInfo) string { _, short := stateNames(j); return short }),
		{"", "STDERR", "STDERR", func(v *jobView, r jobRow) string { return v.stderr(r.JobInfo) }},
		{"", "STDIN", "STDIN", func(v *jobView, r jobRow) string { return v.stdin(r.JobInfo) }},
		{"", "STDOUT", "STDOUT", func(v *jobView, r jobRow) string { return v.stdout(r.JobInfo) }},
		{"V", "SubmitTime", "SUBMIT_TIME", func(v *jobView, r jobRow) string { return v.timeOr(r.GetSubmit(), na) }},
		f("", "system_comment", "SYSTEM_COMMENT", func(j *apiv1.JobInfo) string { return or(j.GetSpec().GetSystemComment(), null) }),
		f("J", "Threads", "THREADS_PER_CORE", func(j *apiv1.JobInfo) string { return starIfZero(j.GetSpec().GetThreadsPerCore()) }),
		{"L", "TimeLeft", "TIME_LEFT", func(v *jobView, r jobRow) string { return limit(left(r.JobInfo, v.now), format.ShortDuration) }},
		f("l", "TimeLimit", "TIME_LIMIT", func(j *apiv1.JobInfo) string { return limit(j.GetTimeLimit(), format.ShortDuration) }),
		{"M", "TimeUsed", "TIME", func(v *jobView, r jobRow) string { return format.ShortDuration(elapsed(r.JobInfo, v.now) / second) }},
		f("", "tres-alloc", "TRES_ALLOC", func(j *apiv1.JobInfo) string {
			if text := tresText(j.GetAllocTres()); text != "" {
				return text
			}
			return or(tresText(j.GetReqTres()), na)
		}),
		f("", "tres-bind", "TRES_BIND", func(j *apiv1.JobInfo) string { return or(tresBind(j.GetSpec()), na) }),
		f("", "tres-freq", "TRES_FREQ", func(j *apiv1.JobInfo) string { return or(tresFreq(j.GetSpec()), na) }),
		f("", "tres-per-job", "TRES_PER_JOB", func(j *apiv1.JobInfo) string { return or(countsText(j.GetSpec().GetPerJob(), "gres:", ":"), na) }),
		f("b", "tres-per-node", "TRES_PER_NODE", perNode),
		f("", "tres-per-socket", "TRES_PER_SOCKET", func(j *apiv1.JobInfo) string { return or(countsText(j.GetSpec().GetPerSocket(), "gres:", ":"), na) }),
		none("tres-per-step", "TRES_PER_STEP", na),
		f("", "tres-per-task", "TRES_PER_TASK", func(j *apiv1.JobInfo) string { return or(countsText(j.GetSpec().GetPerTask(), "gres:", ":"), na) }),
		f("U", "UserID", "USER", func(j *apiv1.JobInfo) string { return itoa(j.GetUserId()) }),
		f("u", "UserName", "USER", func(j *apiv1.JobInfo) string { return or(j.GetUser(), itoa(j.GetUserId())) }),
		f("w", "WCKey", "WCKEY", func(j *apiv1.JobInfo) string { return or(j.GetSpec().GetWckey(), null) }),
		f("Z", "WorkDir", "WORK_DIR", func(j *apiv1.JobInfo) string { return or(j.GetSpec().GetWorkDir(), null) }),
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
		{"A", "NumTasks", "TASKS", func(_ *jobView, r jobRow) string { return itoa(max(r.step.GetTasks(), 1)) }},
		{"i", "StepID", "STEPID", func(v *jobView, r jobRow) string { return v.id(r) + "." + spec.StepID(r.step.GetStepId()).String() }},
		{"j", "StepName", "NAME", func(_ *jobView, r jobRow) string { return r.step.GetName() }},
		{"l", "TimeLimit", "TIME_LIMIT", jobText(func(j *apiv1.JobInfo) string { return limit(j.GetTimeLimit(), format.ShortDuration) })},
		{"M", "TimeUsed", "TIME", func(v *jobView, r jobRow) string {
			end := r.step.GetEnd()
			if end == 0 {
				end = v.now
			}
			return format.ShortDuration(max(0, end-r.step.GetStart()) / second)
		}},
		{"N", "NodeList", "NODELIST", func(_ *jobView, r jobRow) string { return strings.Join(r.step.GetNodes(), ",") }},
		{"P", "Partition", "PARTITION", jobText(func(j *apiv1.JobInfo) string { return j.GetPartition() })},
		{"S", "StartTime", "START_TIME", func(v *jobView, r jobRow) string { return v.timeOr(r.step.GetStart(), na) }},
		{"T", "StepState", "STATE", func(_ *jobView, r jobRow) string { return spec.JobState(r.step.GetState()).String() }},
		{"b", "tres-alloc", "TRES_ALLOC", func(_ *jobView, r jobRow) string { return or(tresText(r.step.GetTres()), na) }},
		{"u", "UserName", "USER", jobText(func(j *apiv1.JobInfo) string { return or(j.GetUser(), itoa(j.GetUserId())) })},
		{"U", "UserID", "USER", jobText(func(j *apiv1.JobInfo) string { return itoa(j.GetUserId()) })},
	}
}

func orNA(n uint32) string {
	if n == 0 {
		return na
	}
	return itoa(n)
}

// fraction writes a priority as the part of the largest one, with 14 digits,
// in integers: it is shown, and nothing may depend on rounding.
func fraction(p uint32) string {
	const most, digits = 1<<32 - 1, 14
	rest := uint64(p)
	b := []byte{byte('0' + rest/most), '.'}
	for range digits {
		rest = rest % most * 10
		b = append(b, byte('0'+rest/most))
	}
	return string(b)
}
