package cli

import (
	"os"
	"strings"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
)

// protoMessage is any message of the API.
type protoMessage = proto.Message

func cloneRow(r *apiv1.AcctRow) *apiv1.AcctRow {
	out := &apiv1.AcctRow{}
	proto.Merge(out, r)
	return out
}

// localZone finds the name of this host's zone where Go only says "Local".
func localZone() string {
	if target, err := os.Readlink("/etc/localtime"); err == nil {
		if _, name, ok := strings.Cut(target, "zoneinfo/"); ok {
			return name
		}
	}
	return "UTC"
}

// acctTree is what sacct --json prints: jobs with their steps.
func acctTree(c *call, v *acctView, rows []*apiv1.AcctRow) tree.Object {
	jobs := tree.List{}
	for i := 0; i < len(rows); {
		r := rows[i]
		var steps tree.List
		next := i + 1
		if !isStep(r) {
			for next < len(rows) && isStep(rows[next]) && rows[next].GetUid() == r.GetUid() && rows[next].GetAttempt() == r.GetAttempt() && rows[next].GetRestarts() == r.GetRestarts() {
				steps = append(steps, acctStep(v, rows[next]))
				next++
			}
		}
		jobs = append(jobs, acctJob(v, r, steps))
		i = next
	}
	return c.document(tree.Member{Key: "jobs", Value: jobs})
}

// tresList is a vector as slurmdbd's documents have it.
func tresList(t *apiv1.Tres) tree.List {
	out := tree.List{}
	for i, x := range toTRES(t).All() {
		kind, name, _ := strings.Cut(x.Name, "/")
		id := i + 1001
		for k, fixed := range [...]string{"cpu", "mem", "energy", "node", "billing"} {
			if x.Name == fixed {
				id = k + 1
			}
		}
		out = append(out, tree.Object{{Key: "type", Value: kind}, {Key: "name", Value: name}, {Key: "id", Value: id}, {Key: "count", Value: x.N}})
	}
	return out
}

func cpuSeconds(ns int64) tree.Object {
	return tree.Object{{Key: "seconds", Value: ns / second}, {Key: "microseconds", Value: ns % second / int64(spec.Microsecond)}}
}

//muster:table one entry for each key
func acctJob(v *acctView, r *apiv1.AcctRow, steps tree.List) tree.Object {
	if steps == nil {
		steps = tree.List{}
	}
	u := r.GetUsage()
	killer := ""
	if r.GetCancelled() {
		killer = itoa(r.GetCancelledBy())
	}
	task := number(r.GetArrayTask(), r.GetArrayJobId() != 0 && r.GetArrayTasks() == "", false)
	return tree.Object{
		{Key: "account", Value: r.GetAccount()},
		{Key: "comment", Value: tree.Object{{Key: "administrator", Value: r.GetAdminComment()}, {Key: "job", Value: r.GetComment()}, {Key: "system", Value: r.GetSystemComment()}}},
		{Key: "allocation_nodes", Value: allocNodes(r)},
		{Key: "array", Value: tree.Object{{Key: "job_id", Value: r.GetArrayJobId()},
			{Key: "limits", Value: tree.Object{{Key: "max", Value: tree.Object{{Key: "running", Value: tree.Object{{Key: "tasks", Value: 0}}}}}}},
			{Key: "task_id", Value: task}, {Key: "task", Value: r.GetArrayTasks()}}},
		{Key: "association", Value: tree.Object{{Key: "account", Value: r.GetAccount()}, {Key: "cluster", Value: v.cluster}, {Key: "partition", Value: ""}, {Key: "user", Value: r.GetUser()}, {Key: "id", Value: r.GetAssocId()}}},
		{Key: "block", Value: ""}, {Key: "cluster", Value: v.cluster}, {Key: "constraints", Value: r.GetConstraint()}, {Key: "container", Value: ""},
		{Key: "derived_exit_code", Value: exitTree(r.GetDerivedCode(), r.GetDerivedSignal())},
		{Key: "time", Value: tree.Object{{Key: "elapsed", Value: r.GetElapsed() / second}, {Key: "eligible", Value: r.GetEligible() / second}, {Key: "end", Value: r.GetEnd() / second},
			{Key: "planned", Value: number(r.GetPlanned()/second, true, false)}, {Key: "start", Value: r.GetStart() / second}, {Key: "submission", Value: r.GetSubmit() / second},
			{Key: "suspended", Value: r.GetSuspended() / second}, {Key: "system", Value: cpuSeconds(u.GetSystemCpu())}, {Key: "limit", Value: minutes(r.GetTimeLimit())},
			{Key: "total", Value: cpuSeconds(u.GetUserCpu() + u.GetSystemCpu())}, {Key: "user", Value: cpuSeconds(u.GetUserCpu())}}},
		{Key: "exit_code", Value: exitTree(r.GetExitCode(), r.GetExitSignal())}, {Key: "extra", Value: r.GetExtra()}, {Key: "failed_node", Value: r.GetFailedNode()}, {Key: "flags", Value: tree.Strings(splitList(r.GetFlags()))},
		{Key: "group", Value: r.GetGroup()}, {Key: "het", Value: tree.Object{{Key: "job_id", Value: r.GetHetJobId()}, {Key: "job_offset", Value: number(int64(r.GetHetOffset()), r.GetHetJobId() != 0, false)}}}, {Key: "job_id", Value: r.GetJobId()},
		{Key: "name", Value: r.GetName()}, {Key: "licenses", Value: r.GetLicenses()}, {Key: "mcs", Value: tree.Object{{Key: "label", Value: r.GetMcsLabel()}}}, {Key: "nodes", Value: or(r.GetNodeList(), "None assigned")},
		{Key: "partition", Value: r.GetPartition()}, {Key: "hold", Value: false}, {Key: "priority", Value: number(int64(r.GetPriority()), true, false)}, {Key: "qos", Value: r.GetQos()}, {Key: "qosreq", Value: r.GetQos()},
		{Key: "required", Value: tree.Object{{Key: "CPUs", Value: r.GetReqCpus()}, {Key: "memory_per_cpu", Value: number(0, false, false)}, {Key: "memory_per_node", Value: some(r.GetReqMem())}}},
		{Key: "kill_request_user", Value: killer}, {Key: "restart_cnt", Value: r.GetRestarts()}, {Key: "reservation", Value: tree.Object{{Key: "id", Value: 0}, {Key: "name", Value: r.GetReservation()}}},
		{Key: "script", Value: ""}, {Key: "stdin_expanded", Value: r.GetStdin()}, {Key: "stdout_expanded", Value: r.GetStdout()}, {Key: "stderr_expanded", Value: r.GetStderr()},
		{Key: "stdout", Value: r.GetStdout()}, {Key: "stderr", Value: r.GetStderr()}, {Key: "stdin", Value: r.GetStdin()},
		{Key: "state", Value: tree.Object{{Key: "current", Value: tree.List{r.GetState()}}, {Key: "reason", Value: or(r.GetReason(), "None")}}}, {Key: "steps", Value: steps},
		{Key: "submit_line", Value: r.GetSubmitLine()}, {Key: "tres", Value: tree.Object{{Key: "allocated", Value: tresList(r.GetAllocTres())}, {Key: "requested", Value: tresList(r.GetReqTres())}}},
		{Key: "used_gres", Value: ""}, {Key: "user", Value: r.GetUser()}, {Key: "wckey", Value: tree.Object{{Key: "wckey", Value: r.GetWckey()}, {Key: "flags", Value: tree.List{}}}},
		{Key: "working_directory", Value: r.GetWorkDir()},
		{Key: "gpu_uuids", Value: tree.Strings(splitList(r.GetGpuUuids()))}, // Muster's own
	}
}

//muster:table one entry for each key
func acctStep(v *acctView, r *apiv1.AcctRow) tree.Object {
	u := r.GetUsage()
	return tree.Object{
		{Key: "time", Value: tree.Object{{Key: "elapsed", Value: r.GetElapsed() / second}, {Key: "end", Value: moment(r.GetEnd())}, {Key: "start", Value: moment(r.GetStart())},
			{Key: "suspended", Value: r.GetSuspended() / second}, {Key: "system", Value: cpuSeconds(u.GetSystemCpu())}, {Key: "total", Value: cpuSeconds(u.GetUserCpu() + u.GetSystemCpu())},
			{Key: "user", Value: cpuSeconds(u.GetUserCpu())}}},
		{Key: "exit_code", Value: exitTree(r.GetExitCode(), r.GetExitSignal())},
		{Key: "nodes", Value: tree.Object{{Key: "count", Value: allocNodes(r)}, {Key: "range", Value: r.GetNodeList()}, {Key: "list", Value: tree.List{}}}},
		{Key: "tasks", Value: tree.Object{{Key: "count", Value: max(r.GetTasks(), 1)}}}, {Key: "pid", Value: ""},
		{Key: "state", Value: tree.List{r.GetState()}},
		{Key: "statistics", Value: tree.Object{{Key: "CPU", Value: tree.Object{{Key: "actual_frequency", Value: u.GetCpuKhz()}}}, {Key: "energy", Value: tree.Object{{Key: "consumed", Value: number(u.GetEnergyMj()/1000, u.GetHasEnergy(), false)}}},
			{Key: "memory", Value: tree.Object{{Key: "peak", Value: number(u.GetPeakRss(), u.GetHasRss(), false)},
				{Key: "peak_virtual", Value: number(u.GetPeakVm(), u.GetPeakVm() > 0, false)}}}}},
		{Key: "step", Value: tree.Object{{Key: "id", Value: acctID(r)}, {Key: "name", Value: or(r.GetName(), r.GetStep())}, {Key: "stderr", Value: ""}, {Key: "stdin", Value: ""}, {Key: "stdout", Value: ""}}},
		{Key: "task", Value: tree.Object{{Key: "distribution", Value: "Unknown"}}},
		{Key: "tres", Value: tree.Object{{Key: "allocated", Value: tresList(r.GetAllocTres())}}},
	}
}
