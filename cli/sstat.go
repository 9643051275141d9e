package cli

import (
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/column"
	"github.com/musterhpc/muster/cli/opt"
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

func sstatCommand() *command {
	return &command{
		name: "sstat", slurm: true, mixed: true,
		summary: "show what running jobs have used so far",
		usage:   []string{"[OPTIONS] -j JOB[.STEP],..."},
		about: `The nodes of the jobs are asked when the command runs; what is shown is of that moment. Of a job the step with the lowest number is
shown, or the batch script where there is no step; -a shows all. A user sees his own jobs, a coordinator those of his accounts.
A node measures a step as a whole: the largest and smallest values (Max, Min) are those of nodes, and a task is named where each node
has one. What nobody measures (CPU frequencies, the energy of CPUs) is empty, never zero.`,
		more: func() string {
			var names []string
			for _, f := range sstatFields() {
				names = append(names, f.name)
			}
			return "Fields of -o, each with %width if its own does not fit: " + strings.Join(names, ", ") + "."
		},
		options: []opt.Option{
			{Long: "allsteps", Short: "a", Help: "all steps of each job"},
			{Long: "format", Short: "o", Arg: "<fields>", Env: "SSTAT_FORMAT", Help: "fields to show"},
			{Long: "helpformat", Short: "e", Help: "list the fields of -o"},
			{Long: "jobs", Short: "j", Arg: "<job[.step]>", Help: "the jobs: 12,36_4,12.batch,12.0"},
			{Long: "noconvert", Help: "leave amounts in bytes"},
			{Long: "noheader", Short: "n", Help: "print no header"},
			{Long: "parsable", Short: "p", Help: "| behind every field"},
			{Long: "parsable2", Short: "P", Help: "| between fields"},
			{Long: "pidformat", Short: "i", Help: "show the processes of each step instead"},
		},
		example: []example{
			{"sstat -j 12 -o jobid,maxrss,avecpu", "shows memory and CPU time of a running job"},
			{"sstat -a -P 12", "prints everything about all its steps for a script"},
		},
		run: runSstat,
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

func runSstat(c *call) error {
	fields, err := c.sstatColumns()
	if err != nil {
		return err
	}
	if c.opts.On("helpformat") {
		return c.write(fieldHelp(sstatFields(), func(f sstatField) string { return f.name }))
	}
	var asked []string
	for _, text := range append([]string{c.opts.Text("jobs")}, c.args...) {
		asked = append(asked, splitJobs(text)...)
	}
	if len(asked) == 0 {
		return c.errorf("You didn't give me any jobs to stat.")
	}
	req := &apiv1.StepUsageRequest{}
	wanted := map[string][]string{} // steps by job; "" = as -a says
	for _, id := range asked {
		refs, ok := jobRefs(id)
		if !ok {
			return fail(1, "sstat: error: Invalid job id: "+id)
		}
		for _, ref := range refs {
			job, step, _ := strings.Cut(ref, ".")
			if wanted[job] == nil {
				req.Jobs = append(req.Jobs, job)
			}
			wanted[job] = append(wanted[job], step)
		}
	}
	var rep apiv1.StepUsageReply
	if err := c.ask(methodStepUsage, req, &rep); err != nil {
		return err
	}
	return c.sstatPrint(&rep, wanted, fields)
}

// sstatPrint prints what is there, and says what is not.
func (c *call) sstatPrint(rep *apiv1.StepUsageReply, wanted map[string][]string, fields []sstatField) error {
	view := &acctView{clock: c.clock(), convert: format.Convert{Exact: true, Keep: c.opts.On("noconvert")}}
	style := c.tableStyle()
	heads := make([]column.Field, len(fields))
	for i, f := range fields {
		heads[i] = column.Field{Name: f.name, Width: f.width}
	}
	b := style.Header(nil, heads)
	var problems []string
	for _, j := range rep.GetJobs() {
		if e := j.GetError(); e != nil {
			problems = append(problems, "sstat: error: job "+j.GetJob()+": "+or(e.GetText(), e.GetDetail()))
			continue
		}
		if s := j.GetSilent(); len(s) > 0 {
			problems = append(problems, "sstat: error: job "+j.GetJob()+": no answer from "+strings.Join(s, ",")+": what runs there is missing")
		}
		steps := c.sstatSteps(j, wanted[j.GetJob()])
		if len(steps) == 0 && len(j.GetSilent()) == 0 {
			problems = append(problems, "sstat: error: no steps running for job "+j.GetJob())
		}
		texts := make([]string, len(fields))
		for _, s := range steps {
			for i, f := range fields {
				texts[i] = f.text(view, s)
			}
			b = style.Row(b, heads, texts)
		}
	}
	if err := c.write(b); err != nil {
		return err
	}
	if len(problems) > 0 {
		return fail(1, problems...)
	}
	return nil
}

// sstatSteps picks the steps that were asked for.
func (c *call) sstatSteps(j *apiv1.JobSteps, wanted []string) []*liveStep {
	var out []*liveStep
	var first *liveStep
	for _, s := range j.GetSteps() {
		name := spec.StepID(s.GetStep()).String()
		l := &liveStep{id: itoa(j.GetJobId()) + "." + name, tasks: int64(max(s.GetTasks(), 1)), on: s.GetNodes(), nodes: j.GetNodes(), alloc: j.GetAlloc()}
		if first == nil || (s.GetStep() >= 0 && strings.HasSuffix(first.id, "."+spec.StepBatch.String())) {
			first = l
		}
		if slices.Contains(wanted, name) || (c.opts.On("allsteps") && slices.Contains(wanted, "")) {
			out = append(out, l)
		}
	}
	if slices.Contains(wanted, "") && !slices.Contains(out, first) && first != nil {
		out = append(out, first)
	}
	return out
}

// sstatColumns reads the fields that are wished for.
func (c *call) sstatColumns() ([]sstatField, error) {
	text := sstatFormat
	given, ok := c.opts.Get("format")
	switch {
	case ok && (given.From == opt.FromCommand || !c.opts.On("pidformat")):
		text = given.Text
	case c.opts.On("pidformat"):
		text = sstatPids
	}
	all := sstatFields()
	var out []sstatField
	for _, part := range splitList(text) {
		name, width, sized, err := column.Sized(strings.TrimSpace(part))
		if err != nil {
			return nil, c.errorf("%v", err)
		}
		i := slices.IndexFunc(all, func(f sstatField) bool { return strings.EqualFold(f.name, name) })
		if i < 0 && name != "" {
			i = slices.IndexFunc(all, func(f sstatField) bool { return len(f.name) > len(name) && strings.EqualFold(f.name[:len(name)], name) })
		}
		if i < 0 {
			return nil, c.errorf("Invalid field requested: %q", name)
		}
		f := all[i]
		if sized {
			f.width = width
		}
		out = append(out, f)
	}
	return out, nil
}
