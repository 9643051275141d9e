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
		Run: func(c *tool.Call) error {
			if len(c.Operands) == 0 {
				return &opt.UsageError{Command: "qdel", Text: "name at least one job"}
			}
			env := *c.Env
			env.Args = []string{"scancel"}
			for _, id := range c.Operands {
				id, _, _ = strings.Cut(id, ".")
				if id == "all" {
					id = "--me"
				}
				env.Args = append(env.Args, pbsArray(id))
			}
			return tool.Execute(c.Ctx, &env, Scancel(), env.Args[1:])
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

func runQstat(c *tool.Call) error {
	if c.Opts.On("queues") {
		return listQueues(c)
	}
	filter := &apiv1.JobFilter{Users: c.Opts.List("user")}
	for _, id := range c.Operands {
		id, _, _ = strings.Cut(id, ".")
		filter.Jobs = append(filter.Jobs, tool.SplitJobs(pbsArray(id))...)
	}
	filter.AllStates = len(filter.Jobs) > 0
	var rep apiv1.ListJobsReply
	if err := fetch.Jobs(c, &apiv1.ListJobsRequest{Filter: filter}, &rep); err != nil {
		return fetch.JobsError(err)
	}
	if len(rep.GetUnknown()) > 0 {
		return tool.Unknown(spec.CodeInvalidJobID, "qstat: Unknown Job Id "+strings.Join(rep.GetUnknown(), ","))
	}
	view := &render.JobView{Clock: render.NewClock(c.Env), Env: c.Env}
	view.Now = rep.GetNow()
	var b strings.Builder
	if len(rep.GetJobs()) > 0 && !c.Opts.On("full") {
		b.WriteString("Job id              Name             Username        Time Use S Queue          \n" +
			"------------------- ---------------- --------------- -------- - ---------------\n")
	}
	for _, j := range rep.GetJobs() {
		r := render.JobRow{JobInfo: j, Task: -1}
		if c.Opts.On("full") {
			fullJob(&b, view, r)
			continue
		}
		fmt.Fprintf(&b, "%-19.19s %-16.16s %-15.15s %-8.8s %s %-15.15s\n", view.ID(r), j.GetSpec().GetName(), cmp.Or(j.GetUser(), tool.Itoa(j.GetUserId())),
			format.Duration(render.Elapsed(j, view.Now)/tool.Second), pbsState(j), j.GetPartition())
	}
	return c.WriteOut([]byte(b.String()))
}

// pbsState is the letter of a state.
func pbsState(j *apiv1.JobInfo) string {
	switch state := spec.JobState(j.GetState()); {
	case state == spec.Pending && j.GetHold() != 0:
		return "H"
	case state == spec.Pending:
		return "Q"
	case state == spec.Suspended:
		return "S"
	case !state.Terminal():
		return "R"
	}
	if _, short := render.StateNames(j); short == "CG" {
		return "E"
	}
	return "C"
}

// fullJob writes a job as qstat -f does: a line for each attribute.
func fullJob(b *strings.Builder, v *render.JobView, r render.JobRow) {
	j := r.JobInfo
	s := j.GetSpec()
	fmt.Fprintf(b, "Job Id:\t%s\n", v.ID(r))
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(b, "\t%s = %s\n", name, value)
		}
	}
	line("Job_Name", s.GetName())
	line("Job_Owner", cmp.Or(j.GetUser(), tool.Itoa(j.GetUserId()))+"@"+s.GetSubmitHost())
	line("job_state", pbsState(j))
	line("queue", j.GetPartition())
	line("qtime", v.Time(j.GetSubmit()))
	if start := render.Start(j); start != 0 {
		line("stime", v.Time(start))
	}
	line("Account_Name", s.GetAccount())
	line("Priority", tool.Itoa(priority(j)))
	line("exec_host", j.GetNodes())
	line("Resource_List.walltime", render.Limit(j.GetTimeLimit(), format.Duration))
	line("Resource_List.nodect", tool.Itoa(j.GetNumNodes()))
	line("Resource_List.ncpus", tool.Itoa(j.GetNumCpus()))
	line("resources_used.walltime", format.Duration(render.Elapsed(j, v.Now)/tool.Second))
	if pbsState(j) == "C" {
		line("exit_status", tool.Itoa(j.GetExitCode()))
	} else {
		line("comment", render.Reason(j))
	}
	b.WriteString("\n")
}

// listQueues is qstat -Q: a line for each partition, with the jobs in it by state.
func listQueues(c *tool.Call) error {
	var parts apiv1.ListPartitionsReply
	if err := c.RPC(tool.MethodListPartitions, &apiv1.ListPartitionsRequest{}, &parts); err != nil {
		return err
	}
	var jobs apiv1.ListJobsReply
	if err := fetch.Jobs(c, &apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{}}, &jobs); err != nil {
		return fetch.JobsError(err)
	}
	count := map[string]map[string]int{}
	for _, j := range jobs.GetJobs() {
		of := count[j.GetPartition()]
		if of == nil {
			of = map[string]int{}
			count[j.GetPartition()] = of
		}
		of[pbsState(j)]++
		of["all"]++
	}
	var b strings.Builder
	b.WriteString("Queue              Tot  Ena  Str   Que   Run   Hld   Exi\n---------------- ----- ---- ---- ----- ----- ----- -----\n")
	for _, p := range parts.GetPartitions() {
		if p.GetHidden() {
			continue
		}
		of := count[p.GetName()]
		state := spec.PartitionState(p.GetState())
		accepts := strings.ToLower(render.YesNo(state == spec.PartitionUp || state == spec.PartitionDown))
		starts := strings.ToLower(render.YesNo(state == spec.PartitionUp || state == spec.PartitionDrain))
		fmt.Fprintf(&b, "%-16.16s %5d %4s %4s %5d %5d %5d %5d\n", p.GetName(), of["all"], accepts, starts, of["Q"], of["R"]+of["S"], of["H"], of["E"])
	}
	return c.WriteOut([]byte(b.String()))
}
