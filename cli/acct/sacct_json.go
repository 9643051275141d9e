package acct

import (
	"cmp"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
)

func cloneRow(r *apiv1.AcctRow) *apiv1.AcctRow {
	out := &apiv1.AcctRow{}
	proto.Merge(out, r)
	return out
}

// acctTree are the jobs of sacct --json, with their steps.
func acctTree(view *acctView, rows []*apiv1.AcctRow) tree.List {
	jobs := tree.List{}
	for i := 0; i < len(rows); {
		r := rows[i]
		var steps tree.List
		next := i + 1
		if !isStep(r) {
			for next < len(rows) && isStepOf(rows[next], r) {
				steps = append(steps, acctStep(view, rows[next]))
				next++
			}
		}
		jobs = append(jobs, acctJob(view, r, steps))
		i = next
	}
	return jobs
}

// isStepOf tells whether a row is of a step of the run that a job's row is of.
func isStepOf(row, job *apiv1.AcctRow) bool {
	return isStep(row) &&
		row.GetUid() == job.GetUid() &&
		row.GetAttempt() == job.GetAttempt() &&
		row.GetRestarts() == job.GetRestarts()
}

func cpuSeconds(ns int64) tree.Object {
	return tree.Object{
		{Key: "seconds", Value: ns / tool.Second},
		{Key: "microseconds", Value: ns % tool.Second / int64(spec.Microsecond)},
	}
}

//muster:table one entry for each key
func acctJob(view *acctView, r *apiv1.AcctRow, steps tree.List) tree.Object {
	if steps == nil {
		steps = tree.List{}
	}
	usage := r.GetUsage()
	killer := ""
	if r.GetCancelled() {
		killer = tool.Itoa(r.GetCancelledBy())
	}
	task := render.Number(r.GetArrayTask(), r.GetArrayJobId() != 0 && r.GetArrayTasks() == "", false)
	return tree.Object{
		{Key: "account", Value: r.GetAccount()},
		{Key: "comment", Value: tree.Object{{Key: "administrator", Value: r.GetAdminComment()}, {Key: "job", Value: r.GetComment()}, {Key: "system", Value: r.GetSystemComment()}}},
		{Key: "allocation_nodes", Value: allocNodes(r)},
		{Key: "array", Value: tree.Object{{Key: "job_id", Value: r.GetArrayJobId()},
			{Key: "limits", Value: tree.Object{{Key: "max", Value: tree.Object{{Key: "running", Value: tree.Object{{Key: "tasks", Value: 0}}}}}}},
			{Key: "task_id", Value: task}, {Key: "task", Value: r.GetArrayTasks()}}},
		{Key: "association", Value: tree.Object{{Key: "account", Value: r.GetAccount()}, {Key: "cluster", Value: view.cluster}, {Key: "partition", Value: ""}, {Key: "user", Value: r.GetUser()}, {Key: "id", Value: r.GetAssocId()}}},
		{Key: "block", Value: ""}, {Key: "cluster", Value: view.cluster}, {Key: "constraints", Value: r.GetConstraint()}, {Key: "container", Value: r.GetContainer()},
		{Key: "derived_exit_code", Value: render.ExitTree(r.GetDerivedCode(), r.GetDerivedSignal())},
		{Key: "time", Value: tree.Object{{Key: "elapsed", Value: r.GetElapsed() / tool.Second}, {Key: "eligible", Value: r.GetEligible() / tool.Second}, {Key: "end", Value: r.GetEnd() / tool.Second},
			{Key: "planned", Value: render.Number(r.GetPlanned()/tool.Second, true, false)}, {Key: "start", Value: r.GetStart() / tool.Second}, {Key: "submission", Value: r.GetSubmit() / tool.Second},
			{Key: "suspended", Value: r.GetSuspended() / tool.Second}, {Key: "system", Value: cpuSeconds(usage.GetSystemCpu())}, {Key: "limit", Value: render.Minutes(r.GetTimeLimit())},
			{Key: "total", Value: cpuSeconds(usage.GetUserCpu() + usage.GetSystemCpu())}, {Key: "user", Value: cpuSeconds(usage.GetUserCpu())}}},
		{Key: "exit_code", Value: render.ExitTree(r.GetExitCode(), r.GetExitSignal())}, {Key: "extra", Value: r.GetExtra()}, {Key: "failed_node", Value: r.GetFailedNode()}, {Key: "flags", Value: tree.Strings(tool.SplitList(r.GetFlags()))},
		{Key: "group", Value: r.GetGroup()}, {Key: "het", Value: tree.Object{{Key: "job_id", Value: r.GetHetJobId()}, {Key: "job_offset", Value: render.Number(int64(r.GetHetOffset()), r.GetHetJobId() != 0, false)}}}, {Key: "job_id", Value: r.GetJobId()},
		{Key: "name", Value: r.GetName()}, {Key: "licenses", Value: r.GetLicenses()}, {Key: "mcs", Value: tree.Object{{Key: "label", Value: r.GetMcsLabel()}}}, {Key: "nodes", Value: cmp.Or(r.GetNodeList(), "None assigned")},
		{Key: "partition", Value: r.GetPartition()}, {Key: "hold", Value: false}, {Key: "priority", Value: render.Number(int64(r.GetPriority()), true, false)}, {Key: "qos", Value: r.GetQos()}, {Key: "qosreq", Value: r.GetQos()},
		{Key: "required", Value: tree.Object{{Key: "CPUs", Value: r.GetReqCpus()}, {Key: "memory_per_cpu", Value: render.Number(0, false, false)}, {Key: "memory_per_node", Value: render.Some(r.GetReqMem())}}},
		{Key: "kill_request_user", Value: killer}, {Key: "restart_cnt", Value: r.GetRestarts()}, {Key: "reservation", Value: tree.Object{{Key: "id", Value: 0}, {Key: "name", Value: r.GetReservation()}}},
		{Key: "script", Value: ""}, {Key: "stdin_expanded", Value: r.GetStdin()}, {Key: "stdout_expanded", Value: r.GetStdout()}, {Key: "stderr_expanded", Value: r.GetStderr()},
		{Key: "stdout", Value: r.GetStdout()}, {Key: "stderr", Value: r.GetStderr()}, {Key: "stdin", Value: r.GetStdin()},
		{Key: "state", Value: tree.Object{{Key: "current", Value: tree.List{r.GetState()}}, {Key: "reason", Value: cmp.Or(r.GetReason(), "None")}}}, {Key: "steps", Value: steps},
		{Key: "submit_line", Value: r.GetSubmitLine()}, {Key: "tres", Value: tree.Object{{Key: "allocated", Value: render.TRESTree(r.GetAllocTres())}, {Key: "requested", Value: render.TRESTree(r.GetReqTres())}}},
		{Key: "used_gres", Value: ""}, {Key: "user", Value: r.GetUser()}, {Key: "wckey", Value: tree.Object{{Key: "wckey", Value: r.GetWckey()}, {Key: "flags", Value: tree.List{}}}},
		{Key: "working_directory", Value: r.GetWorkDir()},
		{Key: "gpu_uuids", Value: tree.Strings(tool.SplitList(r.GetGpuUuids()))}, // Muster's own
	}
}

//muster:table one entry for each key
func acctStep(view *acctView, r *apiv1.AcctRow) tree.Object {
	usage := r.GetUsage()
	return tree.Object{
		{Key: "time", Value: tree.Object{{Key: "elapsed", Value: r.GetElapsed() / tool.Second}, {Key: "end", Value: render.Instant(r.GetEnd())}, {Key: "start", Value: render.Instant(r.GetStart())},
			{Key: "suspended", Value: r.GetSuspended() / tool.Second}, {Key: "system", Value: cpuSeconds(usage.GetSystemCpu())}, {Key: "total", Value: cpuSeconds(usage.GetUserCpu() + usage.GetSystemCpu())},
			{Key: "user", Value: cpuSeconds(usage.GetUserCpu())}}},
		{Key: "exit_code", Value: render.ExitTree(r.GetExitCode(), r.GetExitSignal())},
		{Key: "nodes", Value: tree.Object{{Key: "count", Value: allocNodes(r)}, {Key: "range", Value: r.GetNodeList()}, {Key: "list", Value: tree.List{}}}},
		{Key: "tasks", Value: tree.Object{{Key: "count", Value: max(r.GetTasks(), 1)}}}, {Key: "pid", Value: ""},
		{Key: "state", Value: tree.List{r.GetState()}},
		{Key: "statistics", Value: tree.Object{{Key: "CPU", Value: tree.Object{{Key: "actual_frequency", Value: usage.GetCpuKhz()}}}, {Key: "energy", Value: tree.Object{{Key: "consumed", Value: render.Number(usage.GetEnergyMj()/1000, usage.GetHasEnergy(), false)}}},
			{Key: "memory", Value: tree.Object{{Key: "peak", Value: render.Number(usage.GetPeakRss(), usage.GetHasRss(), false)},
				{Key: "peak_virtual", Value: render.Number(usage.GetPeakVm(), usage.GetPeakVm() > 0, false)}}}}},
		{Key: "step", Value: tree.Object{{Key: "id", Value: acctID(r)}, {Key: "name", Value: cmp.Or(r.GetName(), r.GetStep())}, {Key: "stderr", Value: ""}, {Key: "stdin", Value: ""}, {Key: "stdout", Value: ""}}},
		{Key: "task", Value: tree.Object{{Key: "distribution", Value: "Unknown"}}},
		{Key: "tres", Value: tree.Object{{Key: "allocated", Value: render.TRESTree(r.GetAllocTres())}}},
	}
}
