package query

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

// updateStep changes the time limit of a step, or without a step of all that run in
// the job. A step has nothing else that could change.
func updateStep(call *tool.Call, name string, rest []setting) error {
	job, step, one := strings.Cut(name, ".")
	request := &apiv1.ControlJobsRequest{
		Verb:    apiv1.ControlJobsRequest_UPDATE_STEP,
		Changes: map[string]string{},
	}
	if one {
		n, err := strconv.ParseInt(step, 10, 32)
		if err != nil || n < 0 {
			return tool.Fail(1, "Invalid step id specified for "+name+
				": only numbered steps have a time limit of their own")
		}
		number := int32(n)
		request.Step = &number
	}
	list, err := jobArgs([]string{job})
	if errors.Is(err, errNoJob) {
		return tool.Fail(1, "slurm_update error: "+spec.CodeInvalidJobID.String())
	}
	if err != nil {
		return err
	}
	request.Jobs = list
	for _, s := range rest {
		if pickWord([]string{"timelimit"}, strings.ToLower(s.key)) == "" {
			return tool.Fail(
				1,
				"Update of this step parameter is not supported: "+s.key,
				"Request aborted",
			)
		}
		request.Changes["timelimit"] = s.value
	}
	if len(request.Changes) == 0 {
		return tool.Fail(1, "No changes specified")
	}
	return controlJobs(call, request)
}

// notifyJob sends a line to who follows a job.
func notifyJob(call *tool.Call, args []string) error {
	if len(args) < 2 {
		return tool.Fail(1, "notify takes a job id and a message")
	}
	jobs, err := verbJobs(call, args[:1])
	if err != nil {
		return err
	}
	return controlJobs(
		call,
		&apiv1.ControlJobsRequest{
			Verb:    apiv1.ControlJobsRequest_NOTIFY,
			Jobs:    jobs,
			Message: strings.Join(args[1:], " "),
		},
	)
}

// isResize tells a key of update that takes nodes from a running job.
func isResize(key string) bool {
	return pickWord([]string{"numnodes", "reqnodes", "nodelist", "reqnodelist"}, strings.ToLower(key)) != ""
}

// resizeScripts writes, for each of the jobs that run, two files into the working
// folder: sourced in the job's shell they tell it of the nodes that it keeps.
func resizeScripts(call *tool.Call, jobs []string) error {
	var reply apiv1.ListJobsReply
	if err := fetch.Jobs(
		call, &apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{Jobs: jobs}, Detail: true}, &reply,
	); err != nil {
		return fetch.JobsError(err)
	}
	for _, job := range reply.GetJobs() {
		if spec.JobState(job.GetState()) != spec.Running {
			continue
		}
		var sh, csh strings.Builder
		for _, kv := range resizedVariables(job) {
			fmt.Fprintf(&sh, "export %s=%q\n", kv[0], kv[1])
			fmt.Fprintf(&csh, "setenv %s %q\n", kv[0], kv[1])
		}
		sh.WriteString("unset SLURM_NPROCS SLURM_NTASKS SLURM_TASKS_PER_NODE\n")
		csh.WriteString(
			"unsetenv SLURM_NPROCS\nunsetenv SLURM_NTASKS\nunsetenv SLURM_TASKS_PER_NODE\n",
		)
		name := fmt.Sprintf("slurm_job_%d_resize", job.GetJobId())
		for _, f := range [...]struct{ file, text string }{{name + ".sh", sh.String()}, {name +
			".csh", csh.String()}} {
			if err := os.WriteFile(filepath.Join(call.Dir, f.file), []byte(f.text), 0o700); err != nil {
				return call.Errorf(
					"the job was changed, but the variables of its shell cannot be written: %v",
					err,
				)
			}
		}
		if !call.Opts.On("quiet") {
			if err := call.WriteOut(fmt.Appendf(nil, "To give the job's shell its new variables, run there:\n  sh:   . ./%s.sh\n  csh:  source ./%s.csh\n", name, name)); err != nil {
				return err
			}
		}
	}
	return nil
}

// resizedVariables are what changes for the programs of a job that gives nodes back.
func resizedVariables(job *apiv1.JobInfo) [][2]string {
	var names []string
	var cpus []int64
	for _, allocation := range job.GetAllocation() {
		if !allocation.GetDone() && !allocation.GetLeaving() {
			names, cpus = append(
				names,
				allocation.GetName(),
			), append(
				cpus,
				int64(spec.Bitset(allocation.GetCpus()).Count()),
			)
		}
	}
	list, count := hostlist.Fold(names), tool.Itoa(len(names))
	return [][2]string{
		{"SLURM_NODELIST", list},
		{"SLURM_JOB_NODELIST", list},
		{"SLURM_NNODES", count},
		{"SLURM_JOB_NUM_NODES", count},
		{"SLURM_JOB_CPUS_PER_NODE", format.PerNode(cpus)},
	}
}
