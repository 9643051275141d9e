package acct

import (
	"cmp"
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/column"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/cli/tree"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// The listings of sstat.
const (
	sstatFormat = "jobid,maxvmsize,maxvmsizenode,maxvmsizetask,avevmsize,maxrss,maxrssnode,maxrsstask,averss,maxpages,maxpagesnode,maxpagestask,avepages,mincpu," +
		"mincpunode,mincputask,avecpu,ntasks,avecpufreq,reqcpufreqmin,reqcpufreqmax,reqcpufreqgov,consumedenergy,maxdiskread,maxdiskreadnode,maxdiskreadtask,avediskread," +
		"maxdiskwrite,maxdiskwritenode,maxdiskwritetask,avediskwrite,tresusageinave,tresusageinmax,tresusageinmaxnode,tresusageinmaxtask,tresusageinmin,tresusageinminnode," +
		"tresusageinmintask,tresusageintot,tresusageoutave,tresusageoutmax,tresusageoutmaxnode,tresusageoutmaxtask,tresusageoutmin,tresusageoutminnode,tresusageoutmintask,tresusageouttot"
	sstatPids = "jobid,nodelist,pids"
)

func Sstat() *tool.Command {
	return &tool.Command{
		Name: "sstat", Slurm: true, Mixed: true,
		Summary: "show the resource usage of running jobs",
		Usage:   []string{"[OPTIONS] -j JOB[.STEP],..."},
		About: `Queries the nodes of the jobs when the command runs. Shows the step with the lowest number of each
job, or the batch script if there is no step; -a shows all. Users see their own jobs, coordinators those of
their accounts. A node measures a step as a whole: maximum and minimum values are those of nodes, and a task
is named only if each node has one. Values that are not measured (CPU frequencies, energy of CPUs) are
empty, never zero.`,
		More: func() string {
			var names []string
			for _, field := range sstatFields() {
				names = append(names, field.name)
			}
			return "Fields of -o, each with %width if its own does not fit: " +
				strings.Join(names, ", ") + "."
		},
		Options: []opt.Option{
			{Long: "allsteps", Short: "a", Help: "show all steps of each job"},
			{
				Long:  "format",
				Short: "o",
				Arg:   "<fields>",
				Env:   "SSTAT_FORMAT",
				Help:  "fields to show",
			},
			{Long: "helpformat", Short: "e", Help: "list the fields that -o accepts"},
			{
				Long:  "jobs",
				Short: "j",
				Arg:   "<job[.step]>",
				Help:  "jobs and steps: 12,36_4,12.batch,12.0",
			},
			{
				Long:  "json",
				Arg:   "<data_parser>",
				Maybe: true,
				Env:   "SLURM_JSON",
				Help:  "print JSON: all that was measured, whatever -o says",
			},
			{Long: "noconvert", Help: "print amounts in bytes"},
			{Long: "noheader", Short: "n", Help: "omit the header"},
			{Long: "parsable", Short: "p", Help: "end every field with |"},
			{Long: "parsable2", Short: "P", Help: "separate fields with |"},
			{Long: "pidformat", Short: "i", Help: "show the processes of each step instead"},
			{Long: "yaml", Arg: "<data_parser>", Maybe: true, Env: "SLURM_YAML", Help: "print YAML"},
		},
		Example: []tool.Example{
			{
				Line: "sstat -j 12 -o jobid,maxrss,avecpu",
				What: "shows memory and CPU time of a running job",
			},
			{Line: "sstat -a -P 12", What: "prints everything about all its steps for a script"},
		},
		Fields: func() []string {
			var out []string
			for _, field := range sstatFields() {
				out = append(out, field.name)
			}
			return out
		},
		Run: runSstat,
	}
}

// liveStep is a running step as the columns see it.
type liveStep struct {
	id    string
	tasks int64
	on    []*apiv1.Measurement // one for each node
	nodes string
	alloc *apiv1.Tres
}

func runSstat(call *tool.Call) error {
	fields, err := sstatColumns(call)
	if err != nil {
		return err
	}
	if call.Opts.On("helpformat") {
		return call.WriteOut(
			render.FieldHelp(sstatFields(), func(f sstatField) string { return f.name }),
		)
	}
	var asked []string
	for _, text := range append([]string{call.Opts.Text("jobs")}, call.Operands...) {
		asked = append(asked, tool.SplitJobs(text)...)
	}
	if len(asked) == 0 {
		return call.Errorf("You didn't give me any jobs to stat.")
	}
	request := &apiv1.StepUsageRequest{}
	wanted := map[string][]string{} // steps by job; "" = as -a says
	for _, id := range asked {
		refs, ok := jobRefs(id)
		if !ok {
			return tool.Fail(1, "sstat: error: Invalid job id: "+id)
		}
		for _, ref := range refs {
			job, step, _ := strings.Cut(ref, ".")
			if wanted[job] == nil {
				request.Jobs = append(request.Jobs, job)
			}
			wanted[job] = append(wanted[job], step)
		}
	}
	var reply apiv1.StepUsageReply
	if err := call.RPC(tool.MethodStepUsage, request, &reply); err != nil {
		return err
	}
	return sstatPrint(call, &reply, wanted, fields)
}

// sstatPrint prints what is there, and says what is not.
func sstatPrint(
	call *tool.Call,
	reply *apiv1.StepUsageReply,
	wanted map[string][]string,
	fields []sstatField,
) error {
	view := &acctView{
		Clock:   render.NewClock(call.Env),
		convert: format.Convert{Exact: true, Keep: call.Opts.On("noconvert")},
	}
	style := render.TableStyle(call)
	heads := make([]column.Field, len(fields))
	for i, field := range fields {
		heads[i] = column.Field{Name: field.name, Width: field.width}
	}
	data := style.Header(nil, heads)
	list := tree.List{}
	var problems []string
	for _, job := range reply.GetJobs() {
		if e := job.GetError(); e != nil {
			problems = append(problems, "sstat: error: job "+job.GetJob()+": "+
				cmp.Or(e.GetText(), e.GetDetail()))
			continue
		}
		if s := job.GetSilent(); len(s) > 0 {
			problems = append(problems, "sstat: error: job "+job.GetJob()+": no answer from "+
				strings.Join(s, ",")+": what runs there is missing")
		}
		steps := sstatSteps(call, job, wanted[job.GetJob()])
		if len(steps) == 0 && len(job.GetSilent()) == 0 {
			problems = append(problems, "sstat: error: no steps running for job "+job.GetJob())
		}
		texts := make([]string, len(fields))
		for _, step := range steps {
			for i, field := range fields {
				texts[i] = field.text(view, step)
			}
			data = style.Row(data, heads, texts)
			if render.WantsDocument(call) {
				list = append(list, liveStepTree(step))
			}
		}
	}
	if err := sstatWrite(call, data, list); err != nil {
		return err
	}
	if len(problems) > 0 {
		return tool.Fail(1, problems...)
	}
	return nil
}

// sstatWrite writes the table, or the document in its place.
func sstatWrite(call *tool.Call, table []byte, list tree.List) error {
	if !render.WantsDocument(call) {
		return call.WriteOut(table)
	}
	steps, err := render.Steps(call, list)
	if err != nil {
		return err
	}
	return render.Print(call, steps)
}

// sstatSteps picks the steps that were asked for.
func sstatSteps(call *tool.Call, job *apiv1.JobSteps, wanted []string) []*liveStep {
	var steps []*liveStep
	var first *liveStep
	for _, step := range job.GetSteps() {
		name := spec.StepID(step.GetStep()).String()
		live := &liveStep{
			id:    tool.Itoa(job.GetJobId()) + "." + name,
			tasks: int64(max(step.GetTasks(), 1)),
			on:    step.GetNodes(),
			nodes: job.GetNodes(),
			alloc: job.GetAlloc(),
		}
		if first == nil || (step.GetStep() >= 0 && strings.HasSuffix(first.id, "."+
			spec.StepBatch.String())) {
			first = live
		}
		if slices.Contains(wanted, name) ||
			(call.Opts.On("allsteps") && slices.Contains(wanted, "")) {
			steps = append(steps, live)
		}
	}
	if slices.Contains(wanted, "") && !slices.Contains(steps, first) && first != nil {
		steps = append(steps, first)
	}
	return steps
}

// sstatColumns reads the requested fields.
func sstatColumns(call *tool.Call) ([]sstatField, error) {
	text := sstatFormat
	given, ok := call.Opts.Get("format")
	switch {
	case ok && (given.From == opt.FromCommand || !call.Opts.On("pidformat")):
		text = given.Text
	case call.Opts.On("pidformat"):
		text = sstatPids
	}
	all := sstatFields()
	var fields []sstatField
	for _, part := range tool.SplitList(text) {
		name, width, sized, err := column.Sized(strings.TrimSpace(part))
		if err != nil {
			return nil, call.Errorf("%v", err)
		}
		i := slices.IndexFunc(
			all,
			func(f sstatField) bool { return strings.EqualFold(f.name, name) },
		)
		if i < 0 && name != "" {
			i = slices.IndexFunc(
				all,
				func(f sstatField) bool { return len(f.name) > len(name) && strings.EqualFold(f.name[:len(name)], name) },
			)
		}
		if i < 0 {
			return nil, call.Errorf("Invalid field requested: %q", name)
		}
		field := all[i]
		if sized {
			field.width = width
		}
		fields = append(fields, field)
	}
	return fields, nil
}
