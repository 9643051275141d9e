package cli

import (
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// The shapes below are those of Slurm's data_parser v0.0.44.

// number is an integer that may be unset or without limit.
func number(n int64, set, infinite bool) tree.Object {
	if infinite || !set {
		n = 0
	}
	return tree.Object{{Key: "set", Value: set && !infinite}, {Key: "infinite", Value: infinite}, {Key: "number", Value: n}}
}

// some is a number that is unset when it is zero.
func some[T ~int32 | ~int64 | ~uint32](n T) tree.Object { return number(int64(n), n != 0, false) }

// moment is a point in time in seconds; nanoseconds are given.
func moment(ns int64) tree.Object { return number(ns/second, true, false) }

// minutes is a span in minutes; -1 ns is no limit.
func minutes(ns int64) tree.Object { return number(ns/(60*second), ns != 0, ns < 0) }

// meta says who answers, as every document of Slurm does.
func (c *call) meta() tree.Object {
	return tree.Object{
		{Key: "plugin", Value: tree.Object{{Key: "type", Value: ""}, {Key: "name", Value: ""}, {Key: "data_parser", Value: "data_parser/v0.0.44"}, {Key: "accounting_storage", Value: ""}}},
		{Key: "client", Value: tree.Object{{Key: "source", Value: c.Host}, {Key: "user", Value: c.UserName(c.UID)}, {Key: "group", Value: ""}}},
		{Key: "command", Value: tree.Strings(c.Args)},
		{Key: "slurm", Value: tree.Object{
			{Key: "version", Value: tree.Object{{Key: "major", Value: "25"}, {Key: "micro", Value: "0"}, {Key: "minor", Value: "11"}}},
			{Key: "release", Value: slurmVersion}, {Key: "cluster", Value: ""}}},
	}
}

// document wraps an answer with meta, errors and warnings.
func (c *call) document(members ...tree.Member) tree.Object {
	return append(tree.Object(members), tree.Member{Key: "meta", Value: c.meta()},
		tree.Member{Key: "errors", Value: tree.List{}}, tree.Member{Key: "warnings", Value: tree.List{}})
}

// structured prints a document as JSON or YAML.
func (c *call) structured(json bool, doc any) error {
	if json {
		return c.write(tree.JSON(nil, doc))
	}
	return c.write(tree.YAML(nil, doc))
}

func jobsTree(c *call, rows []jobRow, now int64) tree.Object {
	list := make(tree.List, len(rows))
	for i, r := range rows {
		list[i] = c.jobTree(r.JobInfo)
	}
	return c.document(tree.Member{Key: "jobs", Value: list},
		tree.Member{Key: "last_backfill", Value: moment(0)}, tree.Member{Key: "last_update", Value: moment(now)})
}

func exitTree(code, signal int32) tree.Object {
	status := "SUCCESS"
	if signal != 0 {
		status = "SIGNALED"
	} else if code != 0 {
		status = "ERROR"
	}
	name := ""
	if signal != 0 {
		name = format.Signal(int(signal))
	}
	return tree.Object{
		{Key: "status", Value: tree.List{status}}, {Key: "return_code", Value: number(int64(code), signal == 0, false)},
		{Key: "signal", Value: tree.Object{{Key: "id", Value: some(signal)}, {Key: "name", Value: name}}},
	}
}

func jobStates(j *apiv1.JobInfo) tree.List {
	out := tree.List{spec.JobState(j.GetState()).String()}
	if j.GetCompleting() {
		out = append(out, "COMPLETING")
	}
	if configuring(j) {
		out = append(out, "CONFIGURING")
	}
	return out
}

// gresDetail writes the devices of each node: gpu:h100:2(IDX:0,3).
func gresDetail(j *apiv1.JobInfo) tree.List {
	out := tree.List{}
	for _, n := range j.GetAllocation() {
		if text := gresOfNode(n); text != "" {
			out = append(out, text)
		}
	}
	return out
}

// gresOfNode writes what a job holds on a node, GPUs by type.
func gresOfNode(n *apiv1.NodeAlloc) string {
	var parts, types []string
	index := map[string]spec.Bitset{}
	for _, g := range n.GetGpus() {
		if _, ok := index[g.GetType()]; !ok {
			types = append(types, g.GetType())
		}
		index[g.GetType()] = index[g.GetType()].Set(int(g.GetIndex()))
	}
	for _, t := range types {
		name := "gpu"
		if t != "" {
			name += ":" + t
		}
		parts = append(parts, name+":"+itoa(index[t].Count())+"(IDX:"+index[t].Ranges()+")")
	}
	for _, g := range n.GetGres() {
		text := countsText([]*apiv1.Count{g}, "", ":")
		if i := slices.IndexFunc(n.GetShares(), func(s *apiv1.GpuShare) bool { return s.GetName() == g.GetName() }); i >= 0 {
			s := n.GetShares()[i]
			text += "(IDX:" + itoa(s.GetIndex()) + "," + countText(s.GetN()) + "/" + countText(s.GetOf()) + ")"
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ",")
}

func (c *call) resourcesTree(j *apiv1.JobInfo) any {
	if len(j.GetAllocation()) == 0 {
		return tree.Object{}
	}
	nodes := tree.List{}
	for i, n := range j.GetAllocation() {
		cores := tree.List{}
		cpus := spec.Bitset(n.GetCpus())
		for k := cpus.Next(0); k >= 0; k = cpus.Next(k + 1) {
			cores = append(cores, tree.Object{{Key: "index", Value: k}, {Key: "status", Value: tree.List{"ALLOCATED"}}})
		}
		nodes = append(nodes, tree.Object{
			{Key: "index", Value: i}, {Key: "name", Value: n.GetName()},
			{Key: "cpus", Value: tree.Object{{Key: "count", Value: cpus.Count()}, {Key: "used", Value: 0}}},
			{Key: "memory", Value: tree.Object{{Key: "used", Value: 0}, {Key: "allocated", Value: n.GetMem()}}},
			{Key: "sockets", Value: tree.List{tree.Object{{Key: "index", Value: 0}, {Key: "cores", Value: cores}}}},
		})
	}
	return tree.Object{
		{Key: "select_type", Value: tree.List{"CPU", "MEMORY"}},
		{Key: "nodes", Value: tree.Object{{Key: "count", Value: len(nodes)}, {Key: "select_type", Value: tree.List{"AVAILABLE"}},
			{Key: "list", Value: j.GetNodes()}, {Key: "whole", Value: false}, {Key: "allocation", Value: nodes}}},
		{Key: "cpus", Value: j.GetNumCpus()}, {Key: "threads_per_core", Value: some(j.GetSpec().GetThreadsPerCore())}, {Key: "type", Value: tree.List{}},
	}
}

// jobTree is one job. Keys stand in alphabetical groups as Slurm's do; what
// this release does not know is empty or unset.
//
//muster:table one entry for each key
func (c *call) jobTree(j *apiv1.JobInfo) tree.Object {
	s := j.GetSpec()
	v := &jobView{clock: c.clock(), env: c.Env}
	arrayTask := number(j.GetArrayTask(), j.GetArrayJobId() != 0 && len(j.GetArrayTasks()) == 0, false)
	tasks := ""
	if len(j.GetArrayTasks()) > 0 {
		tasks = c.arrayTasks(j)
	}
	perNodeText := perNode(j)
	if perNodeText == na {
		perNodeText = ""
	}
	return tree.Object{
		{Key: "account", Value: s.GetAccount()}, {Key: "accrue_time", Value: moment(j.GetEligible())}, {Key: "admin_comment", Value: s.GetAdminComment()},
		{Key: "allocating_node", Value: s.GetSubmitHost()}, {Key: "array_job_id", Value: number(int64(j.GetArrayJobId()), true, false)},
		{Key: "array_task_id", Value: arrayTask}, {Key: "array_max_tasks", Value: number(int64(j.GetArrayThrottle()), true, false)},
		{Key: "array_task_string", Value: tasks}, {Key: "association_id", Value: 0}, {Key: "batch_features", Value: ""},
		{Key: "batch_flag", Value: !s.GetShell()}, {Key: "batch_host", Value: j.GetBatchHost()}, {Key: "flags", Value: jobFlags(j)},
		{Key: "burst_buffer", Value: ""}, {Key: "burst_buffer_state", Value: ""}, {Key: "cluster", Value: c.opts.Text("clusters")}, {Key: "cluster_features", Value: ""},
		{Key: "command", Value: commandLine(j)}, {Key: "comment", Value: s.GetComment()}, {Key: "container", Value: ""}, {Key: "container_id", Value: ""},
		{Key: "contiguous", Value: s.GetContiguous()}, {Key: "core_spec", Value: s.GetCoreSpec()}, {Key: "thread_spec", Value: 32766},
		{Key: "cores_per_socket", Value: number(0, false, false)}, {Key: "billable_tres", Value: some(j.GetAllocTres().GetBilling())},
		{Key: "cpus_per_task", Value: some(s.GetCpusPerTask())}, {Key: "cpu_frequency_minimum", Value: number(0, false, false)},
		{Key: "cpu_frequency_maximum", Value: number(0, false, false)}, {Key: "cpu_frequency_governor", Value: number(0, false, false)}, {Key: "cpus_per_tres", Value: ""},
		{Key: "cron", Value: ""}, {Key: "deadline", Value: moment(s.GetDeadline())}, {Key: "delay_boot", Value: moment(0)}, {Key: "dependency", Value: j.GetDependency()},
		{Key: "derived_exit_code", Value: exitTree(j.GetDerivedCode(), j.GetDerivedSignal())}, {Key: "eligible_time", Value: moment(j.GetEligible())},
		{Key: "end_time", Value: moment(end(j))}, {Key: "excluded_nodes", Value: s.GetExclude()}, {Key: "exit_code", Value: exitTree(j.GetExitCode(), j.GetExitSignal())},
		{Key: "extra", Value: s.GetExtra()}, {Key: "failed_node", Value: ""}, {Key: "features", Value: s.GetConstraint()}, {Key: "federation_origin", Value: ""},
		{Key: "federation_siblings_active", Value: ""}, {Key: "federation_siblings_viable", Value: ""}, {Key: "gres_detail", Value: gresDetail(j)},
		{Key: "group_id", Value: j.GetGroupId()}, {Key: "group_name", Value: j.GetGroup()}, {Key: "het_job_id", Value: number(int64(j.GetHetJobId()), true, false)},
		{Key: "het_job_id_set", Value: hetSet(j)}, {Key: "het_job_offset", Value: number(int64(j.GetHetOffset()), true, false)}, {Key: "job_id", Value: j.GetJobId()},
		{Key: "job_resources", Value: c.resourcesTree(j)}, {Key: "job_size_str", Value: tree.List{}}, {Key: "job_state", Value: jobStates(j)},
		{Key: "last_sched_evaluation", Value: moment(j.GetLastSchedEval())}, {Key: "licenses", Value: licencesText(s)},
		{Key: "mail_type", Value: tree.Strings(s.GetMailTypes())}, {Key: "mail_user", Value: s.GetMailUser()}, {Key: "max_cpus", Value: number(0, true, false)},
		{Key: "max_nodes", Value: number(int64(s.GetMaxNodes()), true, false)}, {Key: "mcs_label", Value: s.GetMcsLabel()}, {Key: "memory_per_tres", Value: ""}, {Key: "name", Value: s.GetName()},
		{Key: "network", Value: ""}, {Key: "nodes", Value: j.GetNodes()}, {Key: "nice", Value: int64(s.GetNice())}, {Key: "tasks_per_core", Value: some(s.GetTasksPerCore())},
		{Key: "tasks_per_tres", Value: some(s.GetTasksPerGpu())}, {Key: "tasks_per_node", Value: number(int64(s.GetTasksPerNode()), true, false)},
		{Key: "tasks_per_socket", Value: some(s.GetTasksPerSocket())}, {Key: "tasks_per_board", Value: number(0, true, false)},
		{Key: "cpus", Value: number(int64(j.GetNumCpus()), true, false)}, {Key: "node_count", Value: number(int64(j.GetNumNodes()), true, false)},
		{Key: "tasks", Value: number(int64(j.GetNumTasks()), true, false)}, {Key: "partition", Value: j.GetPartition()}, {Key: "prefer", Value: s.GetPrefer()},
		{Key: "memory_per_cpu", Value: some(s.GetMemPerCpu())}, {Key: "memory_per_node", Value: some(s.GetMemPerNode())},
		{Key: "minimum_cpus_per_node", Value: number(int64(max(s.GetMinCpusPerNode(), s.GetCpusPerTask(), 1)), true, false)},
		{Key: "minimum_tmp_disk_per_node", Value: number(s.GetTmpDisk(), true, false)}, {Key: "preempt_time", Value: moment(j.GetPreemptedAt())},
		{Key: "preemptable_time", Value: moment(0)}, {Key: "pre_sus_time", Value: moment(0)}, {Key: "hold", Value: j.GetHold() != 0},
		{Key: "priority", Value: number(int64(j.GetPriority()), true, false)}, {Key: "priority_by_partition", Value: tree.List{}}, {Key: "profile", Value: tree.List{"NOT_SET"}},
		{Key: "qos", Value: qosOf(j)}, {Key: "reboot", Value: s.GetReboot()}, {Key: "required_nodes", Value: s.GetNodes()}, {Key: "required_switches", Value: s.GetSwitches()},
		{Key: "requeue", Value: s.GetRequeue() != apiv1.Tri_TRI_NO}, {Key: "resize_time", Value: moment(0)}, {Key: "restart_cnt", Value: j.GetRestarts()},
		{Key: "resv_name", Value: s.GetReservation()}, {Key: "scheduled_nodes", Value: j.GetPlannedNodes()}, {Key: "segment_size", Value: 0}, {Key: "selinux_context", Value: ""},
		{Key: "shared", Value: sharedTree(j)}, {Key: "sockets_per_board", Value: 0}, {Key: "sockets_per_node", Value: number(0, false, false)},
		{Key: "start_time", Value: moment(start(j))}, {Key: "state_description", Value: ""}, {Key: "state_reason", Value: or(j.GetReason().GetCode(), "None")},
		{Key: "standard_input", Value: v.stdin(j)}, {Key: "standard_output", Value: v.stdout(j)}, {Key: "standard_error", Value: v.stderr(j)},
		{Key: "stdin_expanded", Value: j.GetStdin()}, {Key: "stdout_expanded", Value: j.GetStdout()}, {Key: "stderr_expanded", Value: j.GetStderr()},
		{Key: "submit_time", Value: moment(j.GetSubmit())}, {Key: "submit_line", Value: s.GetSubmitLine()}, {Key: "suspend_time", Value: moment(0)}, {Key: "system_comment", Value: s.GetSystemComment()},
		{Key: "time_limit", Value: minutes(j.GetTimeLimit())}, {Key: "time_minimum", Value: minutes(s.GetTimeMin())}, {Key: "threads_per_core", Value: some(s.GetThreadsPerCore())},
		{Key: "tres_bind", Value: tresBind(s)}, {Key: "tres_freq", Value: tresFreq(s)}, {Key: "tres_per_job", Value: countsText(s.GetPerJob(), "gres/", ":")},
		{Key: "tres_per_node", Value: strings.ReplaceAll(perNodeText, "gres:", "gres/")}, {Key: "tres_per_socket", Value: countsText(s.GetPerSocket(), "gres/", ":")},
		{Key: "tres_per_task", Value: countsText(s.GetPerTask(), "gres/", ":")}, {Key: "tres_req_str", Value: tresText(j.GetReqTres())}, {Key: "tres_alloc_str", Value: tresText(j.GetAllocTres())},
		{Key: "user_id", Value: j.GetUserId()}, {Key: "user_name", Value: j.GetUser()}, {Key: "maximum_switch_wait_time", Value: s.GetSwitchWait() / second}, {Key: "wckey", Value: s.GetWckey()},
		{Key: "current_working_directory", Value: s.GetWorkDir()},
	}
}

func jobFlags(j *apiv1.JobInfo) tree.List {
	out := tree.List{}
	if j.GetBackfilled() {
		out = append(out, "BACKFILL_SCHEDULED")
	}
	if j.GetSpec().GetKillOnInvalidDep() == apiv1.Tri_TRI_YES {
		out = append(out, "KILL_INVALID_DEPENDENCY")
	}
	return out
}

func sharedTree(j *apiv1.JobInfo) tree.List {
	switch text := sharing(j); text {
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
