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
func applyOptions(call *tool.Call, jobSpec *apiv1.JobSpec, final *opt.Values) error {
	request := &jobRequest{name: call.Command.Name, env: call.Env, spec: jobSpec, opts: final}
	for _, option := range JobOptions() {
		value, ok := final.Get(option.Long)
		if !ok || option.apply == nil {
			continue
		}
		if err := option.apply(request, value); err != nil {
			return err
		}
		if option.Warn != "" && !final.On("quiet") && !strings.EqualFold(value.Text, "none") {
			fmt.Fprintf(
				call.Stderr,
				"%s: warning: --%s: %s\n",
				call.Command.Name,
				option.Long,
				option.Warn,
			)
		}
	}
	if err := request.memoryOptions(); err != nil {
		return err
	}
	if err := request.placeByHostFile(); err != nil {
		return err
	}
	if err := request.checkContainer(); err != nil {
		return err
	}
	takeFewerNodes(call, jobSpec)
	return switchWait(call, jobSpec)
}

// takeFewerNodes asks for no more nodes than there are tasks, and says so.
func takeFewerNodes(call *tool.Call, jobSpec *apiv1.JobSpec) {
	tasks := jobSpec.GetTasks()
	if tasks == 0 || tasks >= jobSpec.GetMinNodes() {
		return
	}
	fmt.Fprintf(call.Stderr, "%s: Warning: can't run %d processes on %d nodes, setting nnodes to %d\n",
		call.Command.Name, tasks, jobSpec.GetMinNodes(), tasks)
	jobSpec.MinNodes = tasks
	jobSpec.MaxNodes = tasks
}

// warnOf prints the warnings of options that were given. Those of a job's options
// are printed where the job is made.
func warnOf(call *tool.Call, options []opt.Option) {
	for _, option := range options {
		if option.Warn != "" && call.Opts.On(option.Long) && !call.Opts.On("quiet") {
			fmt.Fprintf(
				call.Stderr, "%s: warning: --%s: %s\n", call.Command.Name, option.Long, option.Warn,
			)
		}
	}
}

// ownArgs are the arguments behind the command's name.
func ownArgs(call *tool.Call) []string {
	if tool.BaseName(call.Args[0]) == call.Command.Name {
		return call.Args[1:]
	}
	return call.Args[2:]
}

// submitLine is the command line as sacct and scontrol show it.
func submitLine(call *tool.Call) string {
	return strings.Join(append([]string{call.Command.Name}, ownArgs(call)...), " ")
}

func currentUmask(call *tool.Call) uint32 {
	if text, ok := call.Lookup("SLURM_UMASK"); ok {
		if n, err := strconv.ParseUint(text, 8, 12); err == nil {
			return uint32(n)
		}
	}
	return call.Umask()
}

// unknownOutcome tells what to do when the connection broke after the request was sent.
const unknownOutcome = "whether the job was accepted is not known: look with squeue --me before submitting it again"

// submitFailed words a refusal as sbatch does.
func submitFailed(call *tool.Call, err error, testOnly bool) error {
	refusal := tool.ExplainError(err)
	code := 1
	if n, nerr := strconv.Atoi(call.Getenv("SLURM_EXIT_ERROR")); nerr == nil {
		code = n
	}
	lines := refusal.Preamble(call.Command.Name)
	switch {
	case testOnly:
		lines = append(lines, "allocation failure: "+refusal.Text)
	case refusal.Code == spec.CodeInvalidGRES:
		lines = append(
			lines,
			call.Command.Name+": error: "+refusal.Text,
		) // Slurm finds this one before it submits
	default:
		lines = append(lines, call.Command.Name+": error: Batch job submission failed: "+
			refusal.Text)
	}
	if refusal.Lost {
		lines = append(lines, call.Command.Name+": error: "+unknownOutcome)
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
	batch := []string{
		"array",
		"batch",
		"export-file",
		"external",
		"ignore-pbs",
		"no-requeue",
		"parsable",
		"requeue",
		"wait",
		"wait-all-nodes",
		"wrap",
	}
	var options []opt.Option
	for _, option := range JobOptions() {
		own := func(m opt.Option) bool { return m.Long == option.Long }
		if slices.Contains(batch, option.Long) || slices.ContainsFunc(more, own) {
			continue
		}
		option.Option.Env = strings.ReplaceAll(option.Env, "SBATCH_", prefix)
		if option.Long == "clusters" {
			option.Option.Env = clusters
		}
		options = append(options, option.Option)
	}
	return append(options, more...)
}

// immediateOption is -I of srun and salloc.
func immediateOption(env string) opt.Option {
	return opt.Option{
		Long:  "immediate",
		Short: "I",
		Arg:   "seconds",
		Maybe: true,
		Env:   env,
		Help:  "exit if the resources are not available within this number of seconds (default: 1)",
	}
}

func testOnly(call *tool.Call, list []component, filter *siteFilter) error {
	_, specs, err := liveJobs(call, list, filter)
	if err != nil {
		return err
	}
	request := &apiv1.SubmitRequest{Spec: specs[0], Rest: specs[1:], TestOnly: true}
	return inEarliest(call, request, func(call *tool.Call) error {
		var reply apiv1.SubmitReply
		if err := call.RPC(tool.MethodSubmit, request, &reply); err != nil {
			return submitFailed(call, err, true)
		}
		if !call.Opts.On("quiet") {
			sayTested(call, &reply)
		}
		return nil
	})
}

// liveJob is the job of an srun or salloc: without a script, and over with it.
func liveJob(call *tool.Call, argv []string) (*apiv1.JobSpec, error) {
	jobSpec := &apiv1.JobSpec{
		WorkDir:    call.Dir,
		SubmitLine: submitLine(call),
		SubmitHost: call.Host,
		Umask:      currentUmask(call),
		Rlimits:    call.Rlimits(),
		Shell:      true,
		Attended:   true,
	}
	if len(argv) > 0 {
		jobSpec.Name = tool.BaseName(argv[0])
		jobSpec.Command = argv[0]
		jobSpec.Args = argv[1:]
	}
	if err := applyOptions(call, jobSpec, call.Opts); err != nil {
		return nil, err
	}
	jobSpec.Stdin = ""
	jobSpec.Stdout = ""
	jobSpec.Stderr = "" // they are the step's
	return jobSpec, nil
}

// sayTested prints the answer to --test-only.
func sayTested(call *tool.Call, reply *apiv1.SubmitReply) {
	for line := range strings.Lines(reply.GetMessage()) {
		fmt.Fprintf(call.Stderr, "%s: %s\n", call.Command.Name, strings.TrimRight(line, "\n"))
	}
	fmt.Fprintf(
		call.Stderr,
		"%s: Job %d to start at %s using %d processors on nodes %s in partition %s\n",
		call.Command.Name,
		reply.GetJobId(),
		render.FormatTime(
			call,
			reply.GetPlannedStart(),
		),
		reply.GetPlannedCpus(),
		reply.GetPlannedNodes(),
		reply.GetPlannedPartition(),
	)
}
