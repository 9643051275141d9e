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
	"gpu-bind", "gpus-per-task", "tres-per-task", "ntasks-per-gpu",
}

// within keeps of the options what was typed, those of steps, and what a job
// tells its steps.
func within(c *tool.Call) *opt.Values {
	own := stepOptions()
	out := opt.New()
	for _, o := range c.Command.AllOptions() {
		v, ok := c.Opts.Get(o.Long)
		isStep := slices.ContainsFunc(own, func(m opt.Option) bool { return m.Long == o.Long })
		if !ok {
			continue
		}
		typed := v.From == opt.FromCommand
		if !typed && !isStep && slices.Contains(taskDeviceOptions, o.Long) {
			v.Text = inheritedTaskDevices(c, o.Long, v.Text)
			if v.Text == "" {
				continue
			}
		}
		if typed || isStep || slices.Contains(jobSays, o.Long) {
			out.Put(o.Long, v.Text, v.Has, v.From)
		}
	}
	return out
}

// stepAsk is a step, or its part in one component.
type stepAsk struct {
	job  string
	step *apiv1.StepSpec
	opts *opt.Values
	vars []string // of the job
}

// stepWithin makes the request of a step in a job.
func stepWithin(c *tool.Call, job string, vars []string) (stepAsk, error) {
	opts := within(c)
	typed := func(long string) bool { v, ok := opts.Get(long); return ok && v.From == opt.FromCommand }
	js := &apiv1.JobSpec{}
	if typed("nodes") && !typed("ntasks") { // not what the job says of all its nodes
		opts = withoutOption(opts, c.Command.AllOptions(), "ntasks")
	}
	if err := applyOptions(c, js, opts); err != nil {
		return stepAsk{}, err
	}
	if !typed("nodes") {
		js.MinNodes, js.MaxNodes = 0, 0 // the job has as many as it has
	}
	if !typed("ntasks-per-node") && typed("ntasks") {
		js.TasksPerNode = 0
	}
	step, err := makeStep(c, js, opts)
	if err != nil {
		return stepAsk{}, err
	}
	if typed("cpus-per-task") || typed("exclusive") {
		step.Exact = true
	}
	return stepAsk{job, step, opts, vars}, nil
}

// withoutOption drops an option.
func withoutOption(v *opt.Values, all []opt.Option, long string) *opt.Values {
	out := opt.New()
	for _, o := range all {
		if x, ok := v.Get(o.Long); ok && o.Long != long {
			out.Put(o.Long, x.Text, x.Has, x.From)
		}
	}
	return out
}

func stepExit(c *tool.Call, code int, err error) error {
	if err != nil || code == 0 {
		return err
	}
	return tool.ExitCode(code)
}

// makeStep makes the request of a step: sizes as a job's options give them, and the
// options of steps.
func makeStep(c *tool.Call, js *apiv1.JobSpec, opts *opt.Values) (*apiv1.StepSpec, error) {
	s := &apiv1.StepSpec{
		Argv: c.Operands, WorkDir: c.Dir, Umask: currentUmask(c), Rlimits: c.Rlimits(), MinNodes: js.GetMinNodes(), MaxNodes: js.GetMaxNodes(), Tasks: js.GetTasks(),
		TasksPerNode: js.GetTasksPerNode(), CpusPerTask: js.GetCpusPerTask(), Overlap: opts.On("overlap"), Exact: opts.On("exact"), MemPerNode: js.GetMemPerNode(),
		MemPerCpu: js.GetMemPerCpu(), PerNode: js.GetPerNode(), PerStep: js.GetPerJob(), PerTask: js.GetPerTask(), Nodes: js.GetNodes(), Exclude: js.GetExclude(),
		Overcommit: js.GetOvercommit(), External: opts.On("external-launcher"), Unbuffered: opts.On("unbuffered"), GpuBind: js.GetGpuBind(), Append: js.GetAppend() == apiv1.Tri_TRI_YES,
		PreserveEnv: opts.On("preserve-env"),
	}
	s.Container = js.GetContainer()
	if js.GetTimeLimit() > 0 {
		s.TimeLimit = js.GetTimeLimit()
	}
	if dir := js.GetWorkDir(); dir != "" {
		s.WorkDir = dir
	}
	if v, ok := opts.Get("gres"); ok && strings.EqualFold(v.Text, "none") {
		s.NoGres = true
	}
	if s.GpuBind == "" && js.GetTasksPerGpu() > 0 && len(s.PerTask) == 0 {
		s.GpuBind = "single:" + tool.Itoa(js.GetTasksPerGpu())
	}
	s.Name = js.GetName()
	if s.Name == "" {
		s.Name = tool.BaseName(c.Operands[0])
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
		if v, ok := opts.Get(x.long); ok {
			if err := x.read(c, s, v.Text); err != nil {
				return nil, err
			}
		}
	}
	s.TaskProlog, s.TaskEpilog = program(c, opts.Text("task-prolog")), program(c, opts.Text("task-epilog"))
	if opts.On("pty") {
		s.Pty = true
		if f, ok := c.Stdin.(*os.File); ok {
			s.Rows, s.Columns = terminalSize(f)
		}
	}
	return s, decideFiles(c, s, opts)
}

func program(c *tool.Call, path string) string {
	if path == "" {
		return ""
	}
	return (&jobRequest{env: c.Env}).absolutePath(path)
}

func readRelative(c *tool.Call, s *apiv1.StepSpec, text string) error {
	n, err := strconv.ParseUint(text, 10, 31)
	s.Relative = uint32(n) + 1
	if err != nil {
		return c.Errorf("Invalid numeric value %q for --relative.", text)
	}
	return nil
}

func readMPI(c *tool.Call, s *apiv1.StepSpec, text string) error {
	switch text {
	case "none", "pmi2":
		s.Mpi = text
		return nil
	}
	return c.Errorf("--mpi=%s is not supported in this release: use --mpi=pmi2, or mpirun in the allocation, which starts its daemons by srun", text)
}

// readCPUBind checks the words; the node carries them out.
func readCPUBind(c *tool.Call, s *apiv1.StepSpec, text string) error {
	lower := strings.ToLower(text)
	var kept []string
	for word := range strings.SplitSeq(lower, ",") {
		switch kind, _, hasList := strings.Cut(word, ":"); {
		case hasList && (kind == "map_cpu" || kind == "mask_cpu"):
			s.CpuBind = strings.Join(append(kept, lower[strings.Index(lower, kind):]), ",") // the rest is its list
			return nil
		case word == "no":
			kept = append(kept, "none")
		case slices.Contains([]string{"none", "cores", "threads", "rank", "quiet", "q", "verbose", "v"}, word):
			kept = append(kept, word)
		case word != "":
			return c.Errorf("--cpu-bind=%s is not supported in this release: none, cores, threads, rank, map_cpu and mask_cpu are", text)
		}
	}
	s.CpuBind = strings.Join(kept, ",")
	return nil
}

func readWait(c *tool.Call, s *apiv1.StepSpec, text string) error {
	n, err := strconv.ParseUint(text, 10, 30)
	if err != nil {
		return c.Errorf("Invalid numeric value %q for --wait.", text)
	}
	s.Wait = int32(n)
	if n == 0 {
		s.Wait = -1
	}
	return nil
}

func readKill(c *tool.Call, s *apiv1.StepSpec, text string) error {
	if text != "" && text != "0" && text != "1" {
		return c.Errorf("Invalid numeric value %q for --kill-on-bad-exit.", text)
	}
	s.KillOnBadExit, s.KeepOnBadExit = text != "0", text == "0"
	return nil
}

// readPrograms reads the file of --multi-prog: ranks, a program and its
// arguments in each line; * are all other ranks.
func readPrograms(c *tool.Call, s *apiv1.StepSpec, _ string) error {
	data, err := tool.ReadFile(program(c, c.Operands[0]), maxScript)
	if err != nil {
		return c.Errorf("Unable to open multi_prog file %s: %v", c.Operands[0], err)
	}
	s.Argv = nil
	number := 0
	for line := range strings.Lines(strings.ReplaceAll(string(data), "\\\n", " ")) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		words, err := tool.ShellWords(line)
		if err != nil || len(words) < 2 {
			return c.Errorf("Configuration line %d of %s: it has no ranks or no program: %s", number, c.Operands[0], line)
		}
		p := &apiv1.TaskProgram{Argv: words[1:]}
		if words[0] != "*" {
			set, err := format.ParseArray(words[0])
			if err != nil {
				return c.Errorf("Configuration line %d of %s: %v", number, c.Operands[0], err)
			}
			for _, r := range set.Ranges {
				p.Ranks = append(p.Ranks, &apiv1.TaskRange{First: int64(r.First), Last: int64(r.Last), Step: int64(r.Step)})
			}
		}
		s.Programs = append(s.Programs, p)
	}
	if len(s.Programs) == 0 {
		return c.Errorf("%s names no program", c.Operands[0])
	}
	return nil
}

// decideFiles decides what the nodes open: files that are another for each task or
// node. Everything else passes through srun.
func decideFiles(c *tool.Call, s *apiv1.StepSpec, opts *opt.Values) error {
	there := func(long string) string {
		switch mode := opts.Text(long); {
		case mode == "none":
			return os.DevNull
		case isFile(mode) && plan.FilePerTask(mode):
			return program(c, mode)
		}
		return ""
	}
	s.Stdout, s.Stderr = there("output"), there("error")
	switch mode := opts.Text("input"); {
	case mode == "" || mode == "all":
		s.InputTask = spec.InputAll
	case mode == "none":
		s.InputTask = spec.InputNone
	case !isFile(mode):
		n, err := strconv.ParseUint(mode, 10, 31)
		if err != nil {
			return c.Errorf("Invalid --input specification")
		}
		s.InputTask = int32(n)
	case plan.FilePerTask(mode):
		s.Stdin, s.InputTask = program(c, mode), spec.InputNone
	default:
		s.InputTask = spec.InputAll
	}
	if s.Pty && s.InputTask == spec.InputAll {
		s.InputTask = 0
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
func stepEnvironment(c *tool.Call, s *apiv1.StepSpec, opts *opt.Values, job []string) ([]byte, error) {
	e := newEnvironment()
	text := opts.Text("export")
	switch {
	case text == "" || strings.EqualFold(text, "ALL"):
		e.inheritFrom(c.Environ, true)
	case strings.EqualFold(text, "NONE") || strings.EqualFold(text, "NIL"):
		e.inheritFrom(c.Environ, false)
	default:
		if err := exportList(c, e, text); err != nil {
			return nil, err
		}
	}
	for _, kv := range job {
		name, value, _ := strings.Cut(kv, "=")
		e.setVariable(name, value)
	}
	if s.GetCpusPerTask() > 0 {
		e.setVariable("SLURM_CPUS_PER_TASK", tool.Itoa(s.GetCpusPerTask()))
	}
	if s.GetDistribution() != "" {
		e.setVariable("SLURM_DISTRIBUTION", s.GetDistribution())
	}
	return e.encodeEnv(), nil
}

// newTicket makes the sign by which the controller knows a request again.
func newTicket() []byte {
	b := make([]byte, 16)
	_, _ = rand.Read(b) // it never fails
	return b
}

// placeName names a step as Slurm's tools do.
func placeName(n *apiv1.StepCreated) string {
	return fmt.Sprintf("StepId=%d.%d", n.GetJobId(), n.GetStep())
}

// partsOf are a step's parts, each in a job of its own.
func partsOf(n *apiv1.StepCreated) []*apiv1.StepCreated {
	return append([]*apiv1.StepCreated{n}, n.GetRest()...)
}
