package query

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// nodesHere are the nodes whose agents run on this host: in a lab several.
func nodesHere(call *tool.Call) ([]string, error) {
	nodes, err := loadNodes(call, "")
	if err != nil {
		return nil, err
	}
	var names []string
	for _, node := range nodes {
		if node.GetName() == call.Host || node.GetHostname() == call.Host {
			names = append(names, node.GetName())
		}
	}
	return names, nil
}

// jobsAt lists the jobs that hold a node, or without a name one of this host.
func jobsAt(call *tool.Call, node string) (jobs []*apiv1.JobInfo, nodes []string, err error) {
	nodes = []string{node}
	if node == "" {
		nodes, err = nodesHere(call)
	}
	if err != nil || len(nodes) == 0 {
		return nil, nil, err
	}
	jobs, err = runningOn(call, nodes...)
	return jobs, nodes, err
}

// firstOf is the first of a list of arguments, empty if there is none.
func firstOf(args []string) string {
	if len(args) == 0 {
		return ""
	}
	return args[0]
}

// runningOn lists the jobs that hold one of some nodes.
func runningOn(call *tool.Call, nodes ...string) ([]*apiv1.JobInfo, error) {
	var reply apiv1.ListJobsReply
	request := &apiv1.ListJobsRequest{
		Detail: true,
		Filter: &apiv1.JobFilter{
			States: []uint32{uint32(spec.Running), uint32(spec.Suspended)},
			Nodes:  nodes,
		},
	}
	if err := fetch.Jobs(call, request, &reply); err != nil {
		return nil, fetch.JobsError(err)
	}
	return reply.GetJobs(), nil
}

// listSteps prints the steps that run on a node.
func listSteps(call *tool.Call, args []string) error {
	jobs, nodes, err := jobsAt(call, firstOf(args))
	if err != nil {
		return err
	}
	var text strings.Builder
	text.WriteString("JOBID    STEPID\n")
	for _, job := range jobs {
		if !job.GetSpec().GetShell() && slices.Contains(nodes, job.GetBatchHost()) {
			fmt.Fprintf(&text, "%-8d %s\n", job.GetJobId(), spec.StepBatch)
		}
		for _, step := range job.GetSteps() {
			if step.GetEnd() == 0 && slices.ContainsFunc(step.GetNodes(), func(name string) bool { return slices.Contains(nodes, name) }) {
				fmt.Fprintf(&text, "%-8d %s\n", job.GetJobId(), spec.StepID(step.GetStepId()))
			}
		}
	}
	return call.WriteOut([]byte(text.String()))
}

// process is a process of a job.
type process struct {
	pid  int32
	job  uint32
	step spec.StepID
}

// askProcesses asks the agents for the processes of jobs on a node; all nodes of this
// host without one.
func askProcesses(call *tool.Call, jobs []string, node string) ([]process, error) {
	local := []string{node}
	if node == "" {
		var err error
		local, err = nodesHere(call)
		if err != nil {
			return nil, err
		}
	}
	var reply apiv1.StepUsageReply
	if err := call.RPC(
		tool.MethodStepUsage, &apiv1.StepUsageRequest{Jobs: jobs}, &reply,
	); err != nil {
		return nil, err
	}
	var processes []process
	for _, job := range reply.GetJobs() {
		if e := job.GetError(); e != nil && len(jobs) == 1 {
			return nil, tool.Fail(1, "Job id "+job.GetJob()+" not found on this node: "+e.GetText())
		}
		for _, step := range job.GetSteps() {
			for _, measurement := range step.GetNodes() {
				if !slices.Contains(local, measurement.GetNode()) {
					continue
				}
				for _, pid := range measurement.GetPids() {
					processes = append(
						processes, process{pid, job.GetJobId(), spec.StepID(step.GetStep())},
					)
				}
			}
		}
	}
	return processes, nil
}

// hostJobs are the numbers of the jobs on this host, or on a node.
func hostJobs(call *tool.Call, node string) ([]string, error) {
	list, _, err := jobsAt(call, node)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, job := range list {
		out = append(out, tool.Itoa(job.GetJobId()))
	}
	return out, nil
}

// listPIDs prints the processes of jobs. Which task a process belongs to is not
// known outside its step, so the columns of tasks hold a dash.
func listPIDs(call *tool.Call, args []string) error {
	job := ""
	step := ""
	node := ""
	if len(args) > 0 && args[0] != "*" {
		job, step, _ = strings.Cut(args[0], ".")
		if !tool.ValidJob(job) {
			return tool.Fail(1, "invalid job id specification: "+args[0])
		}
	}
	if len(args) > 1 {
		node = args[1]
	}
	if len(args) > 2 {
		return tool.Fail(1, "listpids takes a job or step and a node")
	}
	jobs := []string{job}
	if job == "" {
		var err error
		jobs, err = hostJobs(call, node)
		if err != nil {
			return err
		}
	}
	var list []process
	if len(jobs) > 0 {
		var err error
		list, err = askProcesses(call, jobs, node)
		if err != nil {
			return err
		}
	}
	buffer := []byte("PID      JOBID    STEPID   LOCALID GLOBALID\n")
	for _, p := range list {
		if step == "" || step == p.step.String() {
			buffer = fmt.Appendf(buffer, "%-8d %-8d %-8s %-7s %s\n", p.pid, p.job, p.step, "-", "-")
		}
	}
	return call.WriteOut(buffer)
}

// pidInfo tells of which job a process of this host is.
func pidInfo(call *tool.Call, args []string) error {
	if len(args) != 1 {
		return tool.Fail(1, "pidinfo takes one process id")
	}
	pid, err := strconv.ParseInt(args[0], 10, 32)
	if err != nil || pid <= 0 {
		return tool.Fail(1, "invalid process id: "+args[0])
	}
	jobs, _, err := jobsAt(call, "")
	if err != nil {
		return err
	}
	var ids []string
	for _, job := range jobs {
		ids = append(ids, tool.Itoa(job.GetJobId()))
	}
	var list []process
	if len(ids) > 0 {
		list, err = askProcesses(call, ids, "")
		if err != nil {
			return err
		}
	}
	for _, p := range list {
		if int64(p.pid) != pid {
			continue
		}
		i := slices.IndexFunc(jobs, func(j *apiv1.JobInfo) bool { return j.GetJobId() == p.job })
		clock := render.NewClock(call.Env)
		clock.Now = call.Now().UnixNano()
		end := render.End(jobs[i])
		text := fmt.Sprintf("Slurm JobId=%d ends at %s\n", p.job, clock.Time(end))
		if end > 0 {
			left := end - clock.Now
			text += "time left: " + format.Duration(max(left, 0)/tool.Second) + "\n"
		}
		return call.WriteOut([]byte(text))
	}
	return tool.Fail(1, "Failed to locate job for requested pid")
}
