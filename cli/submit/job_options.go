package submit

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/render"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

// jobOption is an option that shapes a job.
type jobOption struct {
	opt.Option
	// apply writes the value into the request; nil for options that the command
	// itself acts on.
	apply func(r *jobRequest, v opt.Value) error
}

// jobRequest collects a submission.
type jobRequest struct {
	name string // of the command, for error texts
	env  *tool.Env
	spec *apiv1.JobSpec
	opts *opt.Values
}

// badOption is Slurm's error for a value that cannot be read; the exit code
// is that of a bad command line.
func (r *jobRequest) badOption(long string) error {
	return tool.Fail(255, fmt.Sprintf("%s: error: Invalid --%s specification", r.name, long))
}

// badNumber is Slurm's error for a value that is no number, or not a number that can be.
func (r *jobRequest) badNumber(long, text string) error {
	return tool.Fail(1, fmt.Sprintf(
		"%s: error: Invalid numeric value %q for --%s.", r.name, text, long,
	))
}

// applyWaitNodes checks --wait-all-nodes, which asks for what holds in any case.
func applyWaitNodes(request *jobRequest, value opt.Value) error {
	n, err := strconv.ParseUint(value.Text, 10, 31)
	if err != nil {
		return request.badNumber("wait-all-nodes", value.Text)
	}
	if n > 1 {
		return request.badOption("wait-all-nodes")
	}
	return nil
}

// refuseJob is Slurm's error for a job that cannot be.
func (r *jobRequest) refuseJob(code spec.Code) error {
	return tool.Fail(1, fmt.Sprintf("%s: error: Batch job submission failed: %s", r.name, code))
}

type applier = func(r *jobRequest, v opt.Value) error

func textTo(field func(s *apiv1.JobSpec) *string) applier {
	return func(r *jobRequest, v opt.Value) error { *field(r.spec) = v.Text; return nil }
}

func switchTo(field func(s *apiv1.JobSpec) *bool) applier {
	return func(r *jobRequest, _ opt.Value) error { *field(r.spec) = true; return nil }
}

// countTo reads a whole number of at least one.
func countTo(long string, field func(s *apiv1.JobSpec) *uint32) applier {
	return func(request *jobRequest, value opt.Value) error {
		n, err := strconv.ParseUint(value.Text, 10, 31)
		if err != nil || n == 0 {
			return request.badNumber(long, value.Text)
		}
		*field(request.spec) = uint32(n)
		return nil
	}
}

// applyAcctgFreq reads how often what a job uses is sampled: seconds, bare or
// behind task=. Nothing of the other kinds is sampled for a single job, so 0 is
// all that can be said of them.
func applyAcctgFreq(request *jobRequest, value opt.Value) error {
	every, err := acctgFreq(value.Text)
	if err != nil {
		return tool.Fail(1, request.name+": error: Invalid --acctg-freq specification: "+
			err.Error())
	}
	request.spec.SampleEvery = every
	return nil
}

// acctgFreq gives nanoseconds, as JobSpec.SampleEvery has them.
func acctgFreq(text string) (every int64, err error) {
	for part := range strings.SplitSeq(text, ",") {
		kind, number, named := strings.Cut(part, "=")
		if !named {
			kind, number = "task", part
		}
		kind = strings.ToLower(strings.TrimSpace(kind))
		if !slices.Contains([]string{"task", "energy", "network", "filesystem"}, kind) {
			return 0, fmt.Errorf("%s: the kinds are task, energy, network and filesystem", part)
		}
		n, err := strconv.ParseUint(number, 10, 31)
		switch {
		case err != nil:
			return 0, fmt.Errorf("%s: want a number of seconds, or 0 for never", part)
		case kind == "energy" && n > 0:
			return 0, fmt.Errorf(
				"%s: energy is counted from start to end and not sampled job by job",
				part,
			)
		case kind != "task" && n > 0:
			return 0, fmt.Errorf("%s: what a job does to the %s is not sampled", part, kind)
		case kind != "task":
		case n == 0:
			every = -1
		default:
			every = int64(n) * tool.Second
		}
	}
	return every, nil
}

// memoryTo reads an amount of memory into MiB.
func memoryTo(long string, field func(s *apiv1.JobSpec) *int64) applier {
	return func(request *jobRequest, value opt.Value) error {
		n, err := format.ParseMemory(value.Text)
		if err != nil {
			return request.badOption(long)
		}
		*field(request.spec) = n
		return nil
	}
}

// spanTo reads a time limit; Slurm's are whole minutes.
func spanTo(long string, field func(s *apiv1.JobSpec) *int64) applier {
	return func(request *jobRequest, value opt.Value) error {
		seconds, err := format.ParseDuration(value.Text)
		switch {
		case err != nil:
			return request.badOption(long)
		// -t 0 asks for no limit
		case seconds == format.Infinite || (seconds == 0 && long == "time"):
			*field(request.spec) = -1
		default:
			*field(request.spec) = format.Minutes(seconds) * int64(spec.Second)
		}
		return nil
	}
}

// momentTo reads a point in time.
func momentTo(long string, field func(s *apiv1.JobSpec) *int64) applier {
	return func(request *jobRequest, value opt.Value) error {
		seconds, err := format.ParseTime(
			value.Text,
			format.Moment{Now: request.env.Now().Unix(), Loc: request.env.Loc},
		)
		if err != nil {
			return tool.Fail(
				255,
				tool.BadTimeText(value.Text),
				fmt.Sprintf("%s: error: Invalid --%s specification", request.name, long),
			)
		}
		*field(request.spec) = seconds * int64(spec.Second)
		return nil
	}
}

// gresTo reads a list of generic resources: gpu:2, gpu:h100:1, nic. only is
// the name that the option stands for (--gpus=h100:2), or empty.
func gresTo(long, only string, field func(s *apiv1.JobSpec) *[]*apiv1.Count) applier {
	return func(request *jobRequest, value opt.Value) error {
		if only == "" && strings.EqualFold(value.Text, "none") {
			*field(request.spec) = nil
			return nil
		}
		list, ok := render.ParseGRES(value.Text, only)
		if !ok {
			return request.badOption(long)
		}
		*field(request.spec) = list
		return nil
	}
}

func applyNodes(request *jobRequest, value opt.Value) error {
	lo, hi, ranged := strings.Cut(value.Text, "-")
	least, err := format.ParseCount(lo)
	most := least
	if err == nil && ranged {
		most, err = format.ParseCount(hi)
	}
	if err == nil && least >= 1 && most < least {
		return tool.Fail(
			255,
			fmt.Sprintf("%s: error: Maximum node count %d is less than minimum node count %d",
				request.name, most, least),
		)
	}
	if err != nil || least < 1 || most > 1<<30 {
		return tool.Fail(
			1,
			fmt.Sprintf("%s: error: \"%s\" is not a valid node count", request.name, value.Text),
			fmt.Sprintf("%s: error: invalid node count `%s'", request.name, value.Text),
		)
	}
	request.spec.MinNodes, request.spec.MaxNodes = uint32(least), 0
	if ranged {
		request.spec.MaxNodes = uint32(most)
	}
	return nil
}

func applyArray(request *jobRequest, value opt.Value) error {
	array, err := format.ParseArray(value.Text)
	if err != nil {
		return request.refuseJob(spec.CodeInvalidArray)
	}
	request.spec.Array, request.spec.ArrayThrottle = nil, array.Throttle
	for _, x := range array.Ranges {
		request.spec.Array = append(
			request.spec.Array,
			&apiv1.TaskRange{First: int64(x.First), Last: int64(x.Last), Step: int64(x.Step)},
		)
	}
	return nil
}

func applyDependency(request *jobRequest, value opt.Value) error {
	if _, err := spec.ParseDependency(value.Text); err != nil {
		return request.refuseJob(spec.CodeDependencyProblem)
	}
	request.spec.Dependency = value.Text
	return nil
}

func applyExclusive(request *jobRequest, value opt.Value) error {
	kinds := map[string]spec.Sharing{
		"":          spec.Exclusive,
		"exclusive": spec.Exclusive,
		"user":      spec.ExclusiveUser,
		"mcs":       spec.ExclusiveMCS,
		"topo":      spec.ExclusiveTopo,
	}
	kind, ok := kinds[strings.ToLower(value.Text)]
	if !ok {
		return request.badOption("exclusive")
	}
	request.spec.Sharing = uint32(kind)
	return nil
}

func applyHosts(long string, field func(s *apiv1.JobSpec) *string) applier {
	return func(request *jobRequest, value opt.Value) error {
		if _, err := hostlist.Count(value.Text); err != nil {
			return request.badOption(long)
		}
		*field(request.spec) = value.Text
		return nil
	}
}

// applyNodeFile reads the names of -F: one or several to a line.
func applyNodeFile(request *jobRequest, value opt.Value) error {
	data, err := tool.ReadFile(request.absolutePath(value.Text), 1<<20)
	if err != nil {
		return tool.Fail(
			255,
			fmt.Sprintf("%s: error: Invalid --nodefile specification: %v", request.name, err),
		)
	}
	list := strings.Join(
		strings.FieldsFunc(
			string(data),
			func(c rune) bool { return c == '\n' || c == ' ' || c == '\t' || c == ',' },
		),
		",",
	)
	if _, err := hostlist.Count(list); err != nil || list == "" {
		return request.badOption("nodefile")
	}
	request.spec.Nodes = list
	return nil
}

func applyLicenses(request *jobRequest, value opt.Value) error {
	by := ","
	request.spec.AnyLicense = strings.Contains(value.Text, "|")
	if request.spec.AnyLicense {
		by = "|"
	}
	for part := range strings.SplitSeq(value.Text, by) {
		name, number, counted := strings.Cut(part, ":")
		n := int64(1)
		if counted {
			var err error
			n, err = format.ParseCount(number)
			if err != nil {
				return request.badOption("licenses")
			}
		}
		if name == "" || strings.ContainsAny(name, ",|() ") {
			return request.badOption("licenses")
		}
		request.spec.Licenses = append(request.spec.Licenses, &apiv1.Count{Name: name, N: n})
	}
	return nil
}

func applyMailType(request *jobRequest, value opt.Value) error {
	known := []string{
		"NONE",
		"BEGIN",
		"END",
		"FAIL",
		"REQUEUE",
		"ALL",
		"INVALID_DEPEND",
		"STAGE_OUT",
		"TIME_LIMIT",
		"TIME_LIMIT_50",
		"TIME_LIMIT_80",
		"TIME_LIMIT_90",
		"ARRAY_TASKS",
	}
	request.spec.MailTypes = nil
	for part := range strings.SplitSeq(value.Text, ",") {
		part = strings.ToUpper(part)
		if !slices.Contains(known, part) {
			return request.badOption("mail-type")
		}
		if part != "NONE" {
			request.spec.MailTypes = append(request.spec.MailTypes, part)
		}
	}
	return nil
}

func applySignal(request *jobRequest, value opt.Value) error {
	signal, err := format.ParseEarlySignal(value.Text)
	if err != nil {
		return request.badOption("signal")
	}
	request.spec.Signal, request.spec.SignalBefore = int32(
		signal.Number,
	), signal.Before*int64(
		spec.Second,
	)
	request.spec.SignalBatch, request.spec.SignalResv = signal.Batch, signal.Overlap
	return nil
}

// maxNice is the largest adjustment of a priority, either way.
const maxNice = 2147483645

func applyNice(request *jobRequest, value opt.Value) error {
	request.spec.Nice = 100
	if value.Has {
		n, err := strconv.ParseInt(value.Text, 10, 64)
		if err != nil && !errors.Is(err, strconv.ErrRange) {
			return request.badOption("nice")
		}
		if n > maxNice || n < -maxNice {
			return tool.Fail(255, fmt.Sprintf(
				"%s: error: Invalid --nice value, out of range (+/- %d)", request.name, maxNice,
			))
		}
		request.spec.Nice = int32(n)
	}
	return nil
}

func applyPriority(request *jobRequest, value opt.Value) error {
	if strings.EqualFold(value.Text, "top") {
		return tool.Fail(
			255,
			fmt.Sprintf(
				"%s: error: --priority=TOP is not supported in this release: give a number",
				request.name,
			),
		)
	}
	n, err := strconv.ParseUint(value.Text, 10, 32)
	if err != nil || n >= 1<<32-2 {
		return request.badOption("priority")
	}
	if n == 0 {
		request.spec.Hold = true // a priority of 0 is how Slurm holds
		return nil
	}
	request.spec.Priority = uint32(n)
	return nil
}

func applyOpenMode(request *jobRequest, value opt.Value) error {
	switch {
	case value.Text != "" && strings.HasPrefix("append", strings.ToLower(value.Text)):
		request.spec.Append = apiv1.Tri_TRI_YES
	case value.Text != "" && strings.HasPrefix("truncate", strings.ToLower(value.Text)):
		request.spec.Append = apiv1.Tri_TRI_NO
	default:
		return request.badOption("open-mode")
	}
	return nil
}

// applyRequeue lets the later of --requeue and --no-requeue win.
func applyRequeue(request *jobRequest, value opt.Value) error {
	if value.Text != "" {
		return tool.Fail(
			255,
			fmt.Sprintf(
				"%s: error: --requeue=%s is not supported in this release: plain --requeue is",
				request.name,
				value.Text,
			),
		)
	}
	if no, ok := request.opts.Get("no-requeue"); !ok || no.Order < value.Order {
		request.spec.Requeue = apiv1.Tri_TRI_YES
	}
	return nil
}

func applyNoRequeue(request *jobRequest, value opt.Value) error {
	if yes, ok := request.opts.Get("requeue"); !ok || yes.Order < value.Order {
		request.spec.Requeue = apiv1.Tri_TRI_NO
	}
	return nil
}

func applyNoKill(request *jobRequest, value opt.Value) error {
	request.spec.NoKill = value.Text == ""
	if !request.spec.NoKill && !strings.EqualFold(value.Text, "off") {
		return request.badOption("no-kill")
	}
	return nil
}

func applyKillInvalid(request *jobRequest, value opt.Value) error {
	switch strings.ToLower(value.Text) {
	case "yes":
		request.spec.KillOnInvalidDep = apiv1.Tri_TRI_YES
	case "no":
		request.spec.KillOnInvalidDep = apiv1.Tri_TRI_NO
	default:
		return request.badOption("kill-on-invalid-dep")
	}
	return nil
}

func applySwitches(request *jobRequest, value opt.Value) error {
	count, wait, timed := strings.Cut(value.Text, "@")
	n, err := strconv.ParseUint(count, 10, 31)
	if err != nil || n == 0 {
		return request.badNumber("switches", count)
	}
	request.spec.Switches = uint32(n)
	if timed {
		seconds, err := format.ParseDuration(wait)
		if err != nil {
			return request.badOption("switches")
		}
		request.spec.SwitchWait = seconds * int64(spec.Second)
	}
	return nil
}

func applyTRESPerTask(request *jobRequest, value opt.Value) error {
	for part := range strings.SplitSeq(value.Text, ",") {
		if rest, ok := strings.CutPrefix(strings.ReplaceAll(part, "=", ":"), "cpu:"); ok {
			n, err := strconv.ParseUint(rest, 10, 31)
			if err != nil || n == 0 {
				return request.badOption("tres-per-task")
			}
			request.spec.CpusPerTask = uint32(n)
			continue
		}
		list, ok := render.ParseGRES(part, "")
		if !ok || !strings.HasPrefix(part, "gres/") {
			return request.badOption("tres-per-task")
		}
		request.spec.PerTask = append(request.spec.PerTask, list...)
	}
	return nil
}

// applyMemory lets --mem=0 mean all of a node's memory.
func applyMemory(request *jobRequest, value opt.Value) error {
	if err := memoryTo("mem", func(s *apiv1.JobSpec) *int64 { return &s.MemPerNode })(request, value); err != nil {
		return err
	}
	request.spec.AllMem = request.spec.MemPerNode == 0
	return nil
}

// applyPropagate chooses the limits that travel with the job; without the option
// the site does.
func applyPropagate(request *jobRequest, value opt.Value) error {
	text := "ALL"
	if value.Has {
		text = value.Text
	}
	names, err := spec.ParseLimitNames(text)
	var bad *spec.LimitNameError
	if errors.As(err, &bad) {
		return tool.Fail(1,
			fmt.Sprintf("%s: error: Bad rlimit name: %s", request.name, bad.Name),
			fmt.Sprintf("%s: error: --propagate=%s is not valid.", request.name, text))
	}
	request.spec.LimitsAsked = true
	request.spec.Rlimits = slices.DeleteFunc(slices.Clone(request.spec.Rlimits),
		func(l *apiv1.Count) bool { return !slices.Contains(names, l.GetName()) })
	return nil
}

// applyLogin reads --get-user-env=[timeout][mode].
func applyLogin(request *jobRequest, value opt.Value) error {
	login := &apiv1.LoginShell{}
	digits := strings.TrimRight(value.Text, "LlSs")
	switch mode := strings.ToUpper(value.Text[len(digits):]); mode {
	case "", "L":
	case "S":
		login.Plain = true
	default:
		return request.badOption("get-user-env")
	}
	if digits != "" {
		seconds, err := strconv.ParseUint(digits, 10, 31)
		if err != nil {
			return request.badOption("get-user-env")
		}
		login.Timeout = int64(seconds) * int64(spec.Second)
	}
	request.spec.Login = login
	return nil
}

// absolutePath makes a path absolute from where the command runs.
func (r *jobRequest) absolutePath(p string) string {
	if strings.HasPrefix(p, "/") {
		return p
	}
	return strings.TrimSuffix(r.env.Dir, "/") + "/" + p
}

// memoryOptions exclude each other: what came last from the strongest source
// wins, and two from the same source are an error.
func (r *jobRequest) memoryOptions() error {
	names := [...]string{"mem", "mem-per-cpu", "mem-per-gpu"}
	best, count := opt.Source(0), 0
	for _, n := range names {
		if value, ok := r.opts.Get(n); ok {
			switch {
			case value.From > best:
				best, count = value.From, 1
			case value.From == best:
				count++
			}
		}
	}
	if count > 1 {
		what := "--mem, --mem-per-cpu, and --mem-per-gpu"
		if best == opt.FromEnv {
			what = "SBATCH_MEM_PER_CPU, SBATCH_MEM_PER_GPU, and SBATCH_MEM_PER_NODE"
		}
		return tool.Fail(1, fmt.Sprintf("%s: fatal: %s are mutually exclusive.", r.name, what))
	}
	fields := map[string]func(){
		"mem":         func() { r.spec.MemPerNode, r.spec.AllMem = 0, false },
		"mem-per-cpu": func() { r.spec.MemPerCpu = 0 },
		"mem-per-gpu": func() { r.spec.MemPerGpu = 0 },
	}
	for _, n := range names {
		if v, ok := r.opts.Get(n); ok && v.From < best {
			fields[n]()
		}
	}
	return nil
}

var errNotFound = errors.New("no such file")

// openScript finds a script in this folder, else in PATH.
func openScript(env *tool.Env, arg string) (path string, data []byte, err error) {
	if env.Relay != nil {
		return env.Relay.Script(arg)
	}
	candidates := []string{arg}
	if !strings.HasPrefix(arg, "/") {
		candidates[0] = strings.TrimSuffix(env.Dir, "/") + "/" + arg
		if !strings.Contains(arg, "/") {
			for dir := range strings.SplitSeq(env.Getenv("PATH"), ":") {
				if dir != "" {
					candidates = append(candidates, dir+"/"+arg)
				}
			}
		}
	}
	for _, p := range candidates {
		if info, serr := os.Stat(p); serr != nil || info.IsDir() {
			continue
		}
		data, err = tool.ReadFile(p, maxScript)
		return p, data, err
	}
	return "", nil, errNotFound
}

func applyGPUBind(request *jobRequest, value opt.Value) error {
	if _, err := spec.ParseGPUBind(value.Text); err != nil {
		return tool.Fail(255, request.name+": error: --gpu-bind: "+err.Error())
	}
	request.spec.GpuBind = value.Text
	return nil
}

func applyGPUFreq(request *jobRequest, value opt.Value) error {
	if _, err := spec.ParseGPUFreq(value.Text); err != nil {
		return tool.Fail(255, request.name+": error: --gpu-freq: "+err.Error())
	}
	request.spec.GpuFreq = value.Text
	return nil
}

// applyHint reads --hint: one thread of each core, or all of them.
func applyHint(request *jobRequest, value opt.Value) error {
	switch value.Text {
	case "nomultithread", "compute_bound":
		request.spec.ThreadsPerCore = 1
	case "multithread":
	case "memory_bound":
		return tool.Fail(1, request.name+
			": error: --hint=memory_bound asks for one core of each socket, and tasks are not bound to sockets here: request the memory with --mem, and fewer tasks on a node with --ntasks-per-node or --ntasks-per-socket")
	default:
		return tool.Fail(1, fmt.Sprintf(
			"%s: error: unrecognized --hint argument \"%s\", see --hint=help", request.name, value.Text,
		))
	}
	return nil
}

// applyNodeInfo reads -B: sockets, cores of each, threads of each, of which *
// leaves one open.
func applyNodeInfo(request *jobRequest, value opt.Value) error {
	fields := [...]*uint32{
		&request.spec.SocketsPerNode,
		&request.spec.CoresPerSocket,
		&request.spec.ThreadsPerCore,
	}
	list := strings.Split(value.Text, ":")
	if len(list) > len(fields) {
		return request.badOption("extra-node-info")
	}
	for i, text := range list {
		if text == "*" {
			continue
		}
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil || n == 0 {
			return request.badOption("extra-node-info")
		}
		*fields[i] = uint32(n)
	}
	return nil
}
