package submit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

// applyOptions applies options to a job.
func applyOptions(c *tool.Call, js *apiv1.JobSpec, final *opt.Values) error {
	r := &jobRequest{name: c.Command.Name, env: c.Env, spec: js, opts: final}
	for _, o := range JobOptions() {
		v, ok := final.Get(o.Long)
		if !ok || o.apply == nil {
			continue
		}
		if err := o.apply(r, v); err != nil {
			return err
		}
		if o.Warn != "" && !final.On("quiet") && !strings.EqualFold(v.Text, "none") {
			fmt.Fprintf(c.Stderr, "%s: warning: --%s: %s\n", c.Command.Name, o.Long, o.Warn)
		}
	}
	if err := r.memoryOptions(); err != nil {
		return err
	}
	if err := r.checkContainer(); err != nil {
		return err
	}
	return switchWait(c, js)
}

// warnOf prints the warnings of options that were given. Those of a job's options
// are printed where the job is made.
func warnOf(c *tool.Call, options []opt.Option) {
	for _, o := range options {
		if o.Warn != "" && c.Opts.On(o.Long) && !c.Opts.On("quiet") {
			fmt.Fprintf(c.Stderr, "%s: warning: --%s: %s\n", c.Command.Name, o.Long, o.Warn)
		}
	}
}

// ownArgs are the arguments behind the command's name.
func ownArgs(c *tool.Call) []string {
	if tool.BaseName(c.Args[0]) == c.Command.Name {
		return c.Args[1:]
	}
	return c.Args[2:]
}

// submitLine is the command line as sacct and scontrol show it.
func submitLine(c *tool.Call) string {
	return strings.Join(append([]string{c.Command.Name}, ownArgs(c)...), " ")
}

func currentUmask(c *tool.Call) uint32 {
	if text, ok := c.Lookup("SLURM_UMASK"); ok {
		if n, err := strconv.ParseUint(text, 8, 12); err == nil {
			return uint32(n)
		}
	}
	return c.Umask()
}

// unknownOutcome tells what to do when the connection broke after the request was sent.
const unknownOutcome = "whether the job was accepted is not known: look with squeue --me before submitting it again"

// submitFailed words a refusal as sbatch does.
func submitFailed(c *tool.Call, err error, testOnly bool) error {
	r := tool.ExplainError(err)
	code := 1
	if n, nerr := strconv.Atoi(c.Getenv("SLURM_EXIT_ERROR")); nerr == nil {
		code = n
	}
	lines := r.Preamble(c.Command.Name)
	switch {
	case testOnly:
		lines = append(lines, "allocation failure: "+r.Text)
	case r.Code == spec.CodeInvalidGRES:
		lines = append(lines, c.Command.Name+": error: "+r.Text) // Slurm finds this one before it submits
	default:
		lines = append(lines, c.Command.Name+": error: Batch job submission failed: "+r.Text)
	}
	if r.Lost {
		lines = append(lines, c.Command.Name+": error: "+unknownOutcome)
	}
	return tool.Fail(code, lines...)
}

// Waits between attempts to reach a controller that went away under --wait.
const (
	firstWait = time.Second
	longWait  = 30 * time.Second
)

// liveOptions are the options of a command whose user waits for the job: those
// of sbatch without those of batch scripts, and more.
func liveOptions(prefix, clusters string, more []opt.Option) []opt.Option {
	batch := []string{"array", "batch", "export-file", "ignore-pbs", "no-requeue", "parsable", "requeue", "wait", "wait-all-nodes", "wrap"}
	var out []opt.Option
	for _, o := range JobOptions() {
		own := func(m opt.Option) bool { return m.Long == o.Long }
		if slices.Contains(batch, o.Long) || slices.ContainsFunc(more, own) {
			continue
		}
		o.Option.Env = strings.ReplaceAll(o.Env, "SBATCH_", prefix)
		if o.Long == "clusters" {
			o.Option.Env = clusters
		}
		out = append(out, o.Option)
	}
	return append(out, more...)
}

// immediateOption is -I of srun and salloc.
func immediateOption(env string) opt.Option {
	return opt.Option{Long: "immediate", Short: "I", Arg: "seconds", Maybe: true, Env: env, Help: "exit if the resources are not available within this number of seconds (default: 1)"}
}

func testOnly(c *tool.Call, list []component) error {
	_, specs, err := liveJobs(c, list)
	if err != nil {
		return err
	}
	var rep apiv1.SubmitReply
	if err := c.RPC(tool.MethodSubmit, &apiv1.SubmitRequest{Spec: specs[0], Rest: specs[1:], TestOnly: true}, &rep); err != nil {
		return submitFailed(c, err, true)
	}
	if !c.Opts.On("quiet") {
		sayTested(c, &rep)
	}
	return nil
}

// liveJob is the job of an srun or salloc: without a script, and over with it.
func liveJob(c *tool.Call, argv []string) (*apiv1.JobSpec, error) {
	js := &apiv1.JobSpec{WorkDir: c.Dir, SubmitLine: submitLine(c), SubmitHost: c.Host, Umask: currentUmask(c), Rlimits: c.Rlimits(), Shell: true, Attended: true}
	if len(argv) > 0 {
		js.Name, js.Command, js.Args = tool.BaseName(argv[0]), argv[0], argv[1:]
	}
	if err := applyOptions(c, js, c.Opts); err != nil {
		return nil, err
	}
	js.Stdin = ""
	js.Stdout = ""
	js.Stderr = "" // they are the step's
	return js, nil
}

// sayTested prints the answer to --test-only.
func sayTested(c *tool.Call, rep *apiv1.SubmitReply) {
	for line := range strings.Lines(rep.GetMessage()) {
		fmt.Fprintf(c.Stderr, "%s: %s\n", c.Command.Name, strings.TrimRight(line, "\n"))
	}
	fmt.Fprintf(c.Stderr, "%s: Job %d to start at %s using %d processors on nodes %s in partition %s\n", c.Command.Name, rep.GetJobId(),
		render.FormatTime(c, rep.GetPlannedStart()), rep.GetPlannedCpus(), rep.GetPlannedNodes(), rep.GetPlannedPartition())
}
