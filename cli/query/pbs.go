package query

import (
	"cmp"
	"fmt"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/fetch"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

func Qdel() *tool.Command {
	return &tool.Command{
		Name: "qdel", Slurm: true, Mixed: true,
		Summary: "cancel jobs, as users of PBS know it",
		Usage:   []string{"JOB..."},
		About:   "Cancels jobs as scancel does. The part of a number behind a dot (12.host) is ignored; all means all of one's own jobs.",
		Example: []tool.Example{{Line: "qdel 12 13.login", What: "cancels two jobs"}},
		Run: func(call *tool.Call) error {
			if len(call.Operands) == 0 {
				return &opt.UsageError{Command: "qdel", Text: "name at least one job"}
			}
			env := *call.Env
			env.Args = []string{"scancel"}
			for _, id := range call.Operands {
				id, _, _ = strings.Cut(id, ".")
				if id == "all" {
					id = "--me"
				}
				env.Args = append(env.Args, pbsArray(id))
			}
			return tool.Execute(call.Ctx, &env, Scancel(), env.Args[1:])
		},
	}
}

// pbsArray writes a task of an array as scancel does: 12[3] is 12_3, 12[] is 12.
func pbsArray(id string) string {
	job, tasks, ok := strings.Cut(id, "[")
	tasks = strings.TrimSuffix(tasks, "]")
	if !ok || tasks == "" {
		return job
	}
	return job + "_" + tasks
}

func Qstat() *tool.Command {
	return &tool.Command{
		Name: "qstat", Slurm: true, Mixed: true,
		Summary: "show jobs, as users of PBS know it",
		Usage:   []string{"[OPTIONS] [JOB...]"},
		About:   "Lists pending and running jobs in the layout of PBS. States are Q (pending), H (held), R (running), S (suspended), E (ending) and C (over).",
		Options: []opt.Option{
			{Long: "full", Short: "f", Help: "show all that is known of each job, a line for each"},
			{Long: "queues", Short: "Q", Help: "list the partitions instead"},
			{Long: "user", Short: "u", Arg: "<user_list>", Help: "only jobs of these users"},
		},
		Example: []tool.Example{{Line: "qstat -u alice", What: "lists alice's jobs"}},
		Run:     runQstat,
	}
}

func runQstat(call *tool.Call) error {
	if call.Opts.On("queues") {
		return listQueues(call)
	}
	filter := &apiv1.JobFilter{Users: call.Opts.List("user")}
	for _, id := range call.Operands {
		id, _, _ = strings.Cut(id, ".")
		filter.Jobs = append(filter.Jobs, tool.SplitJobs(pbsArray(id))...)
	}
	filter.AllStates = len(filter.Jobs) > 0
	var reply apiv1.ListJobsReply
	if err := fetch.Jobs(call, &apiv1.ListJobsRequest{Filter: filter}, &reply); err != nil {
		return fetch.JobsError(err)
	}
	if len(reply.GetUnknown()) > 0 {
		return tool.Unknown(spec.CodeInvalidJobID, "qstat: Unknown Job Id "+
			strings.Join(reply.GetUnknown(), ","))
	}
	view := &render.JobView{Clock: render.NewClock(call.Env), Env: call.Env}
	view.Now = reply.GetNow()
	var text strings.Builder
	if len(reply.GetJobs()) > 0 && !call.Opts.On("full") {
		text.WriteString(
			"Job id              Name             Username        Time Use S Queue          \n" +
				"------------------- ---------------- --------------- -------- - ---------------\n",
		)
	}
	for _, job := range reply.GetJobs() {
		row := render.JobRow{JobInfo: job, Task: -1}
		if call.Opts.On("full") {
			fullJob(&text, view, row)
			continue
		}
		fmt.Fprintf(
			&text,
			"%-19.19s %-16.16s %-15.15s %-8.8s %s %-15.15s\n",
			view.ID(row),
			render.Cell(job.GetSpec().GetName()),
			cmp.Or(job.GetUser(), tool.Itoa(job.GetUserId())),
			format.Duration(
				render.Elapsed(job, view.Now)/tool.Second,
			),
			pbsState(job),
			job.GetPartition(),
		)
	}
	return call.WriteOut([]byte(text.String()))
}

// pbsState is the letter of a state.
func pbsState(job *apiv1.JobInfo) string {
	switch state := spec.JobState(job.GetState()); {
	case state == spec.Pending && job.GetHold() != 0:
		return "H"
	case state == spec.Pending:
		return "Q"
	case state == spec.Suspended:
		return "S"
	case !state.Terminal():
		return "R"
	}
	if _, short := render.StateNames(job); short == "CG" {
		return "E"
	}
	return "C"
}

// fullJob writes a job as qstat -f does: a line for each attribute.
func fullJob(text *strings.Builder, view *render.JobView, row render.JobRow) {
	job := row.JobInfo
	jobSpec := job.GetSpec()
	fmt.Fprintf(text, "Job Id:\t%s\n", view.ID(row))
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(text, "\t%s = %s\n", name, render.Cell(value))
		}
	}
	line("Job_Name", jobSpec.GetName())
	line("Job_Owner", cmp.Or(job.GetUser(), tool.Itoa(job.GetUserId()))+"@"+jobSpec.GetSubmitHost())
	line("job_state", pbsState(job))
	line("queue", job.GetPartition())
	line("qtime", view.Time(job.GetSubmit()))
	if start := render.Start(job); start != 0 {
		line("stime", view.Time(start))
	}
	line("Account_Name", jobSpec.GetAccount())
	line("Priority", tool.Itoa(priorityOf(job)))
	line("exec_host", job.GetNodes())
	line("Resource_List.walltime", render.Limit(job.GetTimeLimit(), format.Duration))
	line("Resource_List.nodect", tool.Itoa(job.GetNumNodes()))
	line("Resource_List.ncpus", tool.Itoa(job.GetNumCpus()))
	line("resources_used.walltime", format.Duration(render.Elapsed(job, view.Now)/tool.Second))
	if pbsState(job) == "C" {
		line("exit_status", tool.Itoa(job.GetExitCode()))
	} else {
		line("comment", render.Reason(job))
	}
	text.WriteString("\n")
}

// listQueues is qstat -Q: a line for each partition, with the jobs in it by state.
func listQueues(call *tool.Call) error {
	var parts apiv1.ListPartitionsReply
	if err := call.RPC(tool.MethodListPartitions, &apiv1.ListPartitionsRequest{}, &parts); err != nil {
		return err
	}
	var jobs apiv1.ListJobsReply
	if err := fetch.Jobs(call, &apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{}}, &jobs); err != nil {
		return fetch.JobsError(err)
	}
	count := map[string]map[string]int{}
	for _, job := range jobs.GetJobs() {
		of := count[job.GetPartition()]
		if of == nil {
			of = map[string]int{}
			count[job.GetPartition()] = of
		}
		of[pbsState(job)]++
		of["all"]++
	}
	var text strings.Builder
	text.WriteString(
		"Queue              Tot  Ena  Str   Que   Run   Hld   Exi\n---------------- ----- ---- ---- ----- ----- ----- -----\n",
	)
	for _, partition := range parts.GetPartitions() {
		if partition.GetHidden() {
			continue
		}
		of := count[partition.GetName()]
		state := spec.PartitionState(partition.GetState())
		accepts := strings.ToLower(
			render.YesNo(state == spec.PartitionUp || state == spec.PartitionDown),
		)
		starts := strings.ToLower(
			render.YesNo(state == spec.PartitionUp || state == spec.PartitionDrain),
		)
		fmt.Fprintf(
			&text,
			"%-16.16s %5d %4s %4s %5d %5d %5d %5d\n",
			partition.GetName(),
			of["all"],
			accepts,
			starts,
			of["Q"],
			of["R"]+of["S"],
			of["H"],
			of["E"],
		)
	}
	return call.WriteOut([]byte(text.String()))
}
