package render

import (
	"cmp"
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
)

// JobsAnswer prints jobs as squeue --json does. Each job's document is made when
// it is written, because a cluster may have many.
func JobsAnswer(call *tool.Call, jobs []*apiv1.JobInfo, now int64) error {
	list := tree.Seq(func(yield func(any) bool) {
		for _, job := range jobs {
			if !yield(JobTree(call, job)) {
				return
			}
		}
	})
	return Answer(
		call,
		"openapi_job_info_resp",
		tree.Member{Key: "jobs", Value: list},
		tree.Member{
			Key:   "last_backfill",
			Value: Instant(0),
		},
		tree.Member{Key: "last_update", Value: Instant(call.LastUpdate(now))},
	)
}

func jobStates(job *apiv1.JobInfo) tree.List {
	out := tree.List{spec.JobState(job.GetState()).String()}
	if job.GetCompleting() {
		out = append(out, "COMPLETING")
	}
	if Configuring(job) {
		out = append(out, "CONFIGURING")
	}
	return out
}

// gresDetail writes the devices of each node: gpu:h100:2(IDX:0,3).
func gresDetail(job *apiv1.JobInfo) tree.List {
	out := tree.List{}
	for _, allocation := range job.GetAllocation() {
		if text := GresOfNode(allocation); text != "" {
			out = append(out, text)
		}
	}
	return out
}

// GresOfNode writes what a job holds on a node, GPUs by type.
func GresOfNode(node *apiv1.NodeAlloc) string {
	var parts, types []string
	index := map[string]spec.Bitset{}
	for _, gpu := range node.GetGpus() {
		if _, ok := index[gpu.GetType()]; !ok {
			types = append(types, gpu.GetType())
		}
		index[gpu.GetType()] = index[gpu.GetType()].Set(int(gpu.GetIndex()))
	}
	for _, t := range types {
		name := "gpu"
		if t != "" {
			name += ":" + t
		}
		parts = append(parts, name+":"+tool.Itoa(index[t].Count())+"(IDX:"+index[t].Ranges()+")")
	}
	for _, g := range node.GetGres() {
		text := CountsText([]*apiv1.Count{g}, "", ":")
		if i := slices.IndexFunc(node.GetShares(), func(s *apiv1.GpuShare) bool { return s.GetName() == g.GetName() }); i >= 0 {
			share := node.GetShares()[i]
			text += "(IDX:" + tool.Itoa(share.GetIndex()) + "," + CountText(share.GetN()) + "/" +
				CountText(share.GetOf()) + ")"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ",")
}

func resourcesTree(call *tool.Call, job *apiv1.JobInfo) any {
	if len(job.GetAllocation()) == 0 {
		return tree.Object{}
	}
	nodes := tree.List{}
	allocated := tree.List{"ALLOCATED"}
	for i, node := range job.GetAllocation() {
		cpus := spec.Bitset(node.GetCpus())
		cores := make(tree.List, 0, cpus.Count())
		for k := cpus.Next(0); k >= 0; k = cpus.Next(k + 1) {
			cores = append(
				cores,
				tree.Object{{Key: "index", Value: k}, {Key: "status", Value: allocated}},
			)
		}
		nodes = append(nodes, tree.Object{
			{Key: "index", Value: i}, {Key: "name", Value: node.GetName()},
			{
				Key:   "cpus",
				Value: tree.Object{{Key: "count", Value: cpus.Count()}, {Key: "used", Value: 0}},
			},
			{
				Key: "memory",
				Value: tree.Object{
					{Key: "used", Value: 0},
					{Key: "allocated", Value: node.GetMem()},
				},
			},
			{
				Key: "sockets",
				Value: tree.List{
					tree.Object{{Key: "index", Value: 0}, {Key: "cores", Value: cores}},
				},
			},
		})
	}
	return tree.Object{
		{Key: "select_type", Value: tree.List{"CPU", "MEMORY"}},
		{
			Key: "nodes",
			Value: tree.Object{
				{Key: "count", Value: len(nodes)},
				{Key: "select_type", Value: tree.List{"AVAILABLE"}},
				{
					Key:   "list",
					Value: job.GetNodes(),
				},
				{Key: "whole", Value: false},
				{Key: "allocation", Value: nodes},
			},
		},
		{
			Key:   "cpus",
			Value: job.GetNumCpus(),
		}, {Key: "threads_per_core", Value: Some(job.GetSpec().GetThreadsPerCore())},
	}
}

// JobTree is one job. Keys stand in alphabetical groups as Slurm's do; what
// this release does not know is empty or unset.
//
//muster:table one entry for each key
func JobTree(call *tool.Call, job *apiv1.JobInfo) tree.Object {
	jobSpec := job.GetSpec()
	view := &JobView{Clock: NewClock(call.Env), Env: call.Env}
	arrayTask := Number(job.GetArrayTask(), job.GetArrayJobId() != 0 && len(job.GetArrayTasks()) == 0, false)
	tasks := ""
	if len(job.GetArrayTasks()) > 0 {
		tasks = ArrayTasks(call.Env, job)
	}
	perNodeText := PerNode(job)
	if perNodeText == NotAvailable {
		perNodeText = ""
	}
	return tree.Object{
		{Key: "account", Value: jobSpec.GetAccount()},
		{Key: "accrue_time", Value: Instant(job.GetEligible())},
		{Key: "admin_comment", Value: jobSpec.GetAdminComment()},
		{Key: "allocating_node", Value: jobSpec.GetSubmitHost()},
		{Key: "array_job_id", Value: Number(int64(job.GetArrayJobId()), true, false)},
		{Key: "array_task_id", Value: arrayTask}, {Key: "array_max_tasks", Value: Number(int64(job.GetArrayThrottle()), true, false)},
		{Key: "array_task_string", Value: tasks}, {Key: "association_id", Value: 0}, {Key: "batch_features", Value: ""},
		{Key: "batch_flag", Value: !jobSpec.GetShell()},
		{Key: "batch_host", Value: job.GetBatchHost()}, {Key: "flags", Value: jobFlags(job)},
		{Key: "burst_buffer", Value: ""}, {Key: "burst_buffer_state", Value: ""}, {Key: "cluster", Value: call.Cluster()}, {Key: "cluster_features", Value: ""},
		{Key: "command", Value: CommandLine(job)}, {Key: "comment", Value: jobSpec.GetComment()},
		{Key: "container", Value: ImageName(job)}, {Key: "container_id", Value: ""},
		{Key: "contiguous", Value: jobSpec.GetContiguous()},
		{Key: "core_spec", Value: jobSpec.GetCoreSpec()}, {Key: "thread_spec", Value: cmp.Or(jobSpec.GetThreadSpec(), 32766)},
		{Key: "cores_per_socket", Value: Some(jobSpec.GetCoresPerSocket())}, {Key: "billable_tres", Value: Some(job.GetAllocTres().GetBilling())},
		{Key: "cpus_per_task", Value: Some(jobSpec.GetCpusPerTask())},
		{Key: "cpu_frequency_minimum", Value: Number(0, false, false)},
		{Key: "cpu_frequency_maximum", Value: Number(0, false, false)}, {Key: "cpu_frequency_governor", Value: Number(0, false, false)}, {Key: "cpus_per_tres", Value: ""},
		{Key: "cron", Value: jobSpec.GetCron()},
		{Key: "deadline", Value: Instant(jobSpec.GetDeadline())},
		{Key: "delay_boot", Value: Instant(0)}, {Key: "dependency", Value: job.GetDependency()},
		{Key: "derived_exit_code", Value: ExitTree(job.GetDerivedCode(), job.GetDerivedSignal())}, {Key: "eligible_time", Value: Instant(job.GetEligible())},
		{Key: "end_time", Value: Instant(End(job))},
		{Key: "excluded_nodes", Value: jobSpec.GetExclude()},
		{Key: "exit_code", Value: ExitTree(job.GetExitCode(), job.GetExitSignal())},
		{Key: "extra", Value: jobSpec.GetExtra()}, {Key: "failed_node", Value: ""},
		{Key: "features", Value: jobSpec.GetConstraint()}, {Key: "federation_origin", Value: ""},
		{Key: "federation_siblings_active", Value: ""}, {Key: "federation_siblings_viable", Value: ""}, {Key: "gres_detail", Value: gresDetail(job)},
		{Key: "group_id", Value: job.GetGroupId()}, {Key: "group_name", Value: job.GetGroup()}, {Key: "het_job_id", Value: Number(int64(job.GetHetJobId()), true, false)},
		{Key: "het_job_id_set", Value: HetSet(job)}, {Key: "het_job_offset", Value: Number(int64(job.GetHetOffset()), true, false)}, {Key: "job_id", Value: job.GetJobId()},
		{Key: "job_resources", Value: resourcesTree(call, job)}, {Key: "job_size_str", Value: tree.List{}}, {Key: "job_state", Value: jobStates(job)},
		{Key: "last_sched_evaluation", Value: Instant(job.GetLastSchedEval())},
		{Key: "licenses", Value: LicencesText(jobSpec)},
		{Key: "mail_type", Value: tree.Strings(jobSpec.GetMailTypes())},
		{Key: "mail_user", Value: jobSpec.GetMailUser()},
		{Key: "max_cpus", Value: Number(0, true, false)},
		{Key: "max_nodes", Value: Number(int64(jobSpec.GetMaxNodes()), true, false)},
		{Key: "mcs_label", Value: jobSpec.GetMcsLabel()}, {Key: "memory_per_tres", Value: ""},
		{Key: "name", Value: jobSpec.GetName()},
		{Key: "network", Value: ""}, {Key: "nodes", Value: job.GetNodes()},
		{Key: "nice", Value: int64(jobSpec.GetNice())},
		{Key: "tasks_per_core", Value: Some(jobSpec.GetTasksPerCore())},
		{Key: "tasks_per_tres", Value: Some(jobSpec.GetTasksPerGpu())},
		{Key: "tasks_per_node", Value: Number(int64(jobSpec.GetTasksPerNode()), true, false)},
		{Key: "tasks_per_socket", Value: Some(jobSpec.GetTasksPerSocket())},
		{Key: "tasks_per_board", Value: Number(0, true, false)},
		{Key: "cpus", Value: Number(int64(job.GetNumCpus()), true, false)}, {Key: "node_count", Value: Number(int64(job.GetNumNodes()), true, false)},
		{Key: "tasks", Value: Number(int64(job.GetNumTasks()), true, false)},
		{Key: "partition", Value: job.GetPartition()}, {Key: "prefer", Value: jobSpec.GetPrefer()},
		{
			Key:   "memory_per_cpu",
			Value: Some(max(jobSpec.GetMemPerCpu(), job.GetDefaultMemPerCpu())),
		}, {Key: "memory_per_node", Value: Some(jobSpec.GetMemPerNode())},
		{
			Key: "minimum_cpus_per_node",
			Value: Number(
				int64(max(jobSpec.GetMinCpusPerNode(), jobSpec.GetCpusPerTask(), 1)), true, false,
			),
		},
		{Key: "minimum_tmp_disk_per_node", Value: Number(jobSpec.GetTmpDisk(), true, false)},
		{Key: "preempt_time", Value: Instant(job.GetPreemptedAt())},
		{Key: "preemptable_time", Value: Instant(0)}, {Key: "pre_sus_time", Value: Instant(0)}, {Key: "hold", Value: job.GetHold() != 0},
		{Key: "priority", Value: Number(int64(job.GetPriority()), true, false)}, {Key: "priority_by_partition", Value: tree.List{}}, {Key: "profile", Value: tree.List{"NOT_SET"}},
		{Key: "qos", Value: QOSOf(job)}, {Key: "reboot", Value: jobSpec.GetReboot()},
		{Key: "required_nodes", Value: jobSpec.GetNodes()},
		{Key: "required_switches", Value: jobSpec.GetSwitches()},
		{Key: "requeue", Value: jobSpec.GetRequeue() != apiv1.Tri_TRI_NO},
		{Key: "resize_time", Value: Instant(0)}, {Key: "restart_cnt", Value: job.GetRestarts()},
		{Key: "resv_name", Value: jobSpec.GetReservation()},
		{Key: "scheduled_nodes", Value: job.GetPlannedNodes()}, {Key: "segment_size", Value: 0},
		{Key: "selinux_context", Value: ""},
		{Key: "shared", Value: sharedTree(job)}, {Key: "sockets_per_board", Value: 0}, {Key: "sockets_per_node", Value: Some(jobSpec.GetSocketsPerNode())},
		{Key: "start_time", Value: Instant(Start(job))}, {Key: "state_description", Value: ""}, {Key: "state_reason", Value: cmp.Or(job.GetReason().GetCode(), "None")},
		{Key: "standard_input", Value: view.Stdin(job)}, {Key: "standard_output", Value: view.Stdout(job)}, {Key: "standard_error", Value: view.Stderr(job)},
		{Key: "stdin_expanded", Value: job.GetStdin()}, {Key: "stdout_expanded", Value: job.GetStdout()}, {Key: "stderr_expanded", Value: job.GetStderr()},
		{Key: "submit_time", Value: Instant(job.GetSubmit())},
		{Key: "submit_line", Value: jobSpec.GetSubmitLine()},
		{Key: "suspend_time", Value: Instant(0)},
		{Key: "system_comment", Value: jobSpec.GetSystemComment()},
		{Key: "time_limit", Value: Minutes(job.GetTimeLimit())},
		{Key: "time_minimum", Value: Minutes(jobSpec.GetTimeMin())},
		{Key: "threads_per_core", Value: Some(jobSpec.GetThreadsPerCore())},
		{Key: "tres_bind", Value: TRESBind(jobSpec)}, {Key: "tres_freq", Value: TRESFreq(jobSpec)},
		{Key: "tres_per_job", Value: CountsText(jobSpec.GetPerJob(), "gres/", ":")},
		{Key: "tres_per_node", Value: strings.ReplaceAll(perNodeText, "gres:", "gres/")},
		{Key: "tres_per_socket", Value: CountsText(jobSpec.GetPerSocket(), "gres/", ":")},
		{Key: "tres_per_task", Value: CountsText(jobSpec.GetPerTask(), "gres/", ":")},
		{Key: "tres_req_str", Value: TRESText(job.GetReqTres())},
		{Key: "tres_alloc_str", Value: TRESText(job.GetAllocTres())},
		{Key: "user_id", Value: job.GetUserId()}, {Key: "user_name", Value: job.GetUser()},
		{Key: "maximum_switch_wait_time", Value: jobSpec.GetSwitchWait() / tool.Second},
		{Key: "wckey", Value: jobSpec.GetWckey()},
		{Key: "current_working_directory", Value: jobSpec.GetWorkDir()},
	}
}

func jobFlags(job *apiv1.JobInfo) tree.List {
	out := tree.List{}
	if job.GetBackfilled() {
		out = append(out, "BACKFILL_ATTEMPTED")
	}
	if job.GetSpec().GetKillOnInvalidDep() == apiv1.Tri_TRI_YES {
		out = append(out, "KILL_INVALID_DEPENDENCY")
	}
	return out
}

func sharedTree(job *apiv1.JobInfo) tree.List {
	switch text := Sharing(job); text {
	case "NO":
		return tree.List{"none"}
	case "YES":
		return tree.List{"oversubscribe"}
	case "OK":
		return tree.List{}
	default:
		return tree.List{strings.ToLower(text)}
	}
}

// TRESBind and tresFreq are --gpu-bind and --gpu-freq as Slurm shows them.
func TRESBind(jobSpec *apiv1.JobSpec) string { return tresOf("gres/gpu:", jobSpec.GetGpuBind()) }

func TRESFreq(jobSpec *apiv1.JobSpec) string { return tresOf("gpu:", jobSpec.GetGpuFreq()) }

func tresOf(name, text string) string {
	if text == "" {
		return ""
	}
	return name + text
}
