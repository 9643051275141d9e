package submit

import (
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// jobSays are the options that a job's own variables give to the steps in it;
// of the other variables, those of sizes are the job's business.
var jobSays = []string{
	"ntasks", "nodes", "ntasks-per-node", "cpus-per-task", "overcommit", "export", "chdir",
	"gpu-bind", "gpus-per-task", "tres-per-task", "ntasks-per-gpu", "open-mode", "container",
}

// within keeps of the options what was typed, those of steps, and what a job
// tells its steps.
func within(call *tool.Call) *opt.Values {
	own := stepOptions()
	values := opt.New()
	for _, option := range call.Command.AllOptions() {
		value, ok := call.Opts.Get(option.Long)
		isStep := slices.ContainsFunc(own, func(m opt.Option) bool { return m.Long == option.Long })
		if !ok {
			continue
		}
		typed := value.From == opt.FromCommand
		if !typed && !isStep && slices.Contains(taskDeviceOptions, option.Long) {
			value.Text = inheritedTaskDevices(call, option.Long, value.Text)
			if value.Text == "" {
				continue
			}
		}
		if typed || isStep || slices.Contains(jobSays, option.Long) {
			values.Put(option.Long, value.Text, value.Has, value.From)
		}
	}
	return values
}

// stepAsk is a step, or its part in one component.
type stepAsk struct {
	job  string
	step *apiv1.StepSpec
	opts *opt.Values
	vars []string // of the job
}

// stepWithin makes the request of a step in a job.
func stepWithin(call *tool.Call, job string, vars []string) (stepAsk, error) {
	opts := within(call)
	typed := func(long string) bool { v, ok := opts.Get(long); return ok && v.From == opt.FromCommand }
	jobSpec := &apiv1.JobSpec{}
	if typed("nodes") && !typed("ntasks") && !fewTasks(opts) { // not what the job says of all its nodes
		opts = withoutOption(opts, call.Command.AllOptions(), "ntasks")
	}
	if err := applyOptions(call, jobSpec, opts); err != nil {
		return stepAsk{}, err
	}
	if !typed("nodes") {
		jobSpec.MinNodes, jobSpec.MaxNodes = 0, 0 // the job has as many as it has
	}
	if !typed("ntasks-per-node") && typed("ntasks") {
		jobSpec.TasksPerNode = 0
	}
	step, err := makeStep(call, jobSpec, opts)
	if err != nil {
		return stepAsk{}, err
	}
	if typed("cpus-per-task") || typed("exclusive") {
		step.Exact = true
	}
	return stepAsk{job, step, opts, vars}, nil
}

// fewTasks tells that the job has fewer tasks than the nodes that a step asks for: then the step
// takes as many nodes as there are tasks.
func fewTasks(opts *opt.Values) bool {
	tasks, err := strconv.Atoi(opts.Text("ntasks"))
	if err != nil {
		return false
	}
	least, _, _ := strings.Cut(opts.Text("nodes"), "-")
	nodes, err := strconv.Atoi(least)
	return err == nil && tasks < nodes
}

// withoutOption drops an option.
func withoutOption(values *opt.Values, all []opt.Option, long string) *opt.Values {
	out := opt.New()
	for _, option := range all {
		if value, ok := values.Get(option.Long); ok && option.Long != long {
			out.Put(option.Long, value.Text, value.Has, value.From)
		}
	}
	return out
}

func stepExit(call *tool.Call, code int, err error) error {
	if err != nil || code == 0 {
		return err
	}
	return tool.ExitCode(code)
}

// makeStep makes the request of a step: sizes as a job's options give them, and the
// options of steps.
func makeStep(call *tool.Call, jobSpec *apiv1.JobSpec, opts *opt.Values) (*apiv1.StepSpec, error) {
	step := &apiv1.StepSpec{
		Argv: call.Operands, WorkDir: call.Dir, Umask: currentUmask(call), Rlimits: call.Rlimits(), MinNodes: jobSpec.GetMinNodes(), MaxNodes: jobSpec.GetMaxNodes(), Tasks: jobSpec.GetTasks(),
		TasksPerNode: jobSpec.GetTasksPerNode(), CpusPerTask: jobSpec.GetCpusPerTask(), Overlap: opts.On("overlap"), Exact: opts.On("exact"), MemPerNode: jobSpec.GetMemPerNode(),
		MemPerCpu: jobSpec.GetMemPerCpu(), PerNode: jobSpec.GetPerNode(), PerStep: jobSpec.GetPerJob(), PerTask: jobSpec.GetPerTask(), Nodes: jobSpec.GetNodes(), Exclude: jobSpec.GetExclude(),
		Overcommit: jobSpec.GetOvercommit(), External: opts.On("external-launcher"), Unbuffered: opts.On("unbuffered"), GpuBind: jobSpec.GetGpuBind(), Append: jobSpec.GetAppend() == apiv1.Tri_TRI_YES,
		PreserveEnv: opts.On("preserve-env"),
	}
	step.Container = jobSpec.GetContainer()
	if jobSpec.GetLimitsAsked() {
		step.LimitsAsked = true
		step.Rlimits = jobSpec.GetRlimits()
	}
	if jobSpec.GetTimeLimit() > 0 {
		step.TimeLimit = jobSpec.GetTimeLimit()
	}
	if dir := jobSpec.GetWorkDir(); dir != "" {
		step.WorkDir = dir
	}
	if v, ok := opts.Get("gres"); ok && strings.EqualFold(v.Text, "none") {
		step.NoGres = true
	}
	if step.GpuBind == "" && jobSpec.GetTasksPerGpu() > 0 && len(step.PerTask) == 0 {
		step.GpuBind = "single:" + tool.Itoa(jobSpec.GetTasksPerGpu())
	}
	step.Name = jobSpec.GetName()
	if step.Name == "" {
		step.Name = tool.BaseName(call.Operands[0])
	}
	for _, x := range []struct {
		long string
		read func(c *tool.Call, s *apiv1.StepSpec, text string) error
	}{
		{"relative", readRelative},
		{"distribution", readDistribution},
		{"mpi", readMPI},
		{"cpu-bind", readCPUBind},
		{"wait", readWait},
		{"kill-on-bad-exit", readKill},
		{"multi-prog", readPrograms},
	} {
		if value, ok := opts.Get(x.long); ok {
			if err := x.read(call, step, value.Text); err != nil {
				return nil, err
			}
		}
	}
	if opts.On("relative") && (opts.On("nodelist") || opts.On("exclude")) {
		return nil, call.Errorf("--relative cannot be combined with -w or -x: each of them chooses the nodes of the step")
	}
	if err := placeTasks(call, step); err != nil {
		return nil, err
	}
	step.TaskProlog, step.TaskEpilog = programPath(
		call,
		opts.Text("task-prolog"),
	), programPath(
		call,
		opts.Text("task-epilog"),
	)
	if opts.On("pty") {
		step.Pty = true
		if f, ok := call.Stdin.(*os.File); ok {
			step.Rows, step.Columns = terminalSize(f)
		}
	}
	return step, decideFiles(call, step, opts)
}

func programPath(call *tool.Call, path string) string {
	if path == "" {
		return ""
	}
	return (&jobRequest{env: call.Env}).absolutePath(path)
}

func readRelative(call *tool.Call, step *apiv1.StepSpec, text string) error {
	n, err := strconv.ParseUint(text, 10, 31)
	step.Relative = uint32(n) + 1
	if err != nil {
		return call.Errorf("Invalid numeric value %q for --relative.", text)
	}
	return nil
}

func readMPI(call *tool.Call, step *apiv1.StepSpec, text string) error {
	if text == spec.MPINone || text == spec.MPIPMI2 || spec.IsPMIx(text) {
		step.Mpi = text
		return nil
	}
	return call.Errorf(
		"--mpi=%s is not supported: there is %s, %s, pmix and pmix_vN; programs of other MPIs are started by mpirun in the allocation",
		text, spec.MPINone, spec.MPIPMI2,
	)
}

// readCPUBind checks the words; the node carries them out.
func readCPUBind(call *tool.Call, step *apiv1.StepSpec, text string) error {
	lower := strings.ToLower(text)
	var kept []string
	for word := range strings.SplitSeq(lower, ",") {
		switch kind, _, hasList := strings.Cut(word, ":"); {
		case hasList && (kind == "map_cpu" || kind == "mask_cpu"):
			step.CpuBind = strings.Join(
				append(kept, lower[strings.Index(lower, kind):]),
				",",
			) // the rest is its list
			return nil
		case word == "no":
			kept = append(kept, "none")
		case slices.Contains([]string{"none", "cores", "threads", "rank", "quiet", "q", "verbose", "v"}, word):
			kept = append(kept, word)
		case word != "":
			return call.Errorf(
				"--cpu-bind=%s is not supported in this release: none, cores, threads, rank, map_cpu and mask_cpu are",
				text,
			)
		}
	}
	step.CpuBind = strings.Join(kept, ",")
	return nil
}

func readWait(call *tool.Call, step *apiv1.StepSpec, text string) error {
	n, err := strconv.ParseUint(text, 10, 30)
	if err != nil {
		return call.Errorf("Invalid numeric value %q for --wait.", text)
	}
	step.Wait = int32(n)
	if n == 0 {
		step.Wait = -1
	}
	return nil
}

func readKill(call *tool.Call, step *apiv1.StepSpec, text string) error {
	if text != "" && text != "0" && text != "1" {
		return call.Errorf("Invalid numeric value %q for --kill-on-bad-exit.", text)
	}
	step.KillOnBadExit, step.KeepOnBadExit = text != "0", text == "0"
	return nil
}

// readPrograms reads the file of --multi-prog: ranks, a program and its
// arguments in each line; * are all other ranks.
func readPrograms(call *tool.Call, step *apiv1.StepSpec, _ string) error {
	data, err := tool.ReadFile(programPath(call, call.Operands[0]), maxScript)
	if err != nil {
		return call.Errorf("Unable to open multi_prog file %s: %v", call.Operands[0], err)
	}
	step.Argv = nil
	number := 0
	for line := range strings.Lines(strings.ReplaceAll(string(data), "\\\n", " ")) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		words, err := tool.ShellWords(line)
		if err != nil || len(words) < 2 {
			return call.Errorf(
				"Configuration line %d of %s: it has no ranks or no program: %s",
				number,
				call.Operands[0],
				line,
			)
		}
		program := &apiv1.TaskProgram{Argv: words[1:]}
		if words[0] != "*" {
			set, err := format.ParseArray(words[0])
			if err != nil {
				return call.Errorf("Configuration line %d of %s: %v", number, call.Operands[0], err)
			}
			for _, r := range set.Ranges {
				program.Ranks = append(
					program.Ranks,
					&apiv1.TaskRange{
						First: int64(r.First),
						Last:  int64(r.Last),
						Step:  int64(r.Step),
					},
				)
			}
		}
		step.Programs = append(step.Programs, program)
	}
	if len(step.Programs) == 0 {
		return call.Errorf("Configuration file %s invalid, no record for task id 0", call.Operands[0])
	}
	if err := checkRanks(step.GetPrograms(), step.GetTasks()); err != nil {
		return call.Errorf("%s: %v", call.Operands[0], err)
	}
	return nil
}

// checkRanks refuses programs of tasks that the step does not have, and two for one task. How
// many tasks there are is not known of each step (0); the nodes check what cannot be checked here.
func checkRanks(programs []*apiv1.TaskProgram, tasks uint32) error {
	taken := map[int64]bool{}
	for _, program := range programs {
		for _, ranks := range program.GetRanks() {
			if tasks > 0 && ranks.GetLast() >= int64(tasks) {
				return fmt.Errorf("there is no task %d: the step has tasks 0 to %d", ranks.GetLast(), tasks-1)
			}
			for rank := ranks.GetFirst(); rank <= ranks.GetLast(); rank += max(ranks.GetStep(), 1) {
				if taken[rank] {
					return fmt.Errorf("task %d has two programs", rank)
				}
				taken[rank] = true
			}
		}
	}
	return nil
}

// decideFiles decides what the nodes open: files that are another for each task or
// node. Everything else passes through srun.
func decideFiles(call *tool.Call, step *apiv1.StepSpec, opts *opt.Values) error {
	there := func(long string) string {
		switch mode := opts.Text(long); {
		case mode == "none":
			return os.DevNull
		case isFile(mode) && plan.FilePerTask(mode):
			return programPath(call, mode)
		}
		return ""
	}
	step.Stdout, step.Stderr = there("output"), there("error")
	switch mode := opts.Text("input"); {
	case mode == "" || mode == "all":
		step.InputTask = spec.InputAll
	case mode == "none":
		step.InputTask = spec.InputNone
	case !isFile(mode):
		n, err := strconv.ParseUint(mode, 10, 31)
		if err != nil {
			return call.Errorf("Invalid --input specification")
		}
		step.InputTask = int32(n)
	case plan.FilePerTask(mode):
		step.Stdin, step.InputTask = programPath(call, mode), spec.InputNone
	default:
		step.InputTask = spec.InputAll
	}
	if step.Pty && step.InputTask == spec.InputAll {
		step.InputTask = 0
	}
	return nil
}

// isFile tells the name of a file from the other modes of input and output.
func isFile(mode string) bool {
	_, err := strconv.ParseUint(mode, 10, 31)
	return mode != "" && mode != "all" && mode != "none" && err != nil
}

// stepEnvironment is what the tasks get of the caller's variables, with those
// of the step's options.
func stepEnvironment(
	call *tool.Call,
	step *apiv1.StepSpec,
	opts *opt.Values,
	job []string,
) ([]byte, error) {
	e := newEnvironment()
	text := opts.Text("export")
	switch {
	case text == "" || strings.EqualFold(text, "ALL"):
		e.inheritFrom(call.Environ, true)
	case strings.EqualFold(text, "NONE") || strings.EqualFold(text, "NIL"):
		e.inheritFrom(call.Environ, false)
	default:
		if _, err := exportList(call, e, text, true); err != nil {
			return nil, err
		}
	}
	for _, kv := range job {
		name, value, _ := strings.Cut(kv, "=")
		e.setVariable(name, value)
	}
	if step.GetCpusPerTask() > 0 {
		e.setVariable("SLURM_CPUS_PER_TASK", tool.Itoa(step.GetCpusPerTask()))
	}
	if way, plane, _ := strings.Cut(step.GetDistribution(), "="); way != "" {
		e.setVariable("SLURM_DISTRIBUTION", way)
		if plane != "" {
			e.setVariable("SLURM_DIST_PLANESIZE", plane)
		}
	}
	e.setVariable("SLURM_UMASK", fmt.Sprintf("%04o", step.GetUmask()))
	e.setNice(call)
	return e.encodeEnv(), nil
}

// newTicket makes the sign by which the controller knows a request again.
func newTicket() []byte {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails
	return b
}

// placeName names a step as Slurm's tools do.
func placeName(created *apiv1.StepCreated) string {
	return fmt.Sprintf("StepId=%d.%d", created.GetJobId(), created.GetStep())
}

// partsOf are a step's parts, each in a job of its own.
func partsOf(created *apiv1.StepCreated) []*apiv1.StepCreated {
	return append([]*apiv1.StepCreated{created}, created.GetRest()...)
}
