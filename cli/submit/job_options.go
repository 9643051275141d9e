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
	return func(r *jobRequest, v opt.Value) error {
		n, err := strconv.ParseUint(v.Text, 10, 31)
		if err != nil || n == 0 {
			return tool.Fail(1, fmt.Sprintf("%s: error: Invalid numeric value %q for --%s.", r.name, v.Text, long))
		}
		*field(r.spec) = uint32(n)
		return nil
	}
}

// applyAcctgFreq reads how often what a job uses is sampled: seconds, bare or
// behind task=. Nothing of the other kinds is sampled for a single job, so 0 is
// all that can be said of them.
func applyAcctgFreq(r *jobRequest, v opt.Value) error {
	every, err := acctgFreq(v.Text)
	if err != nil {
		return tool.Fail(1, r.name+": error: Invalid --acctg-freq specification: "+err.Error())
	}
	r.spec.SampleEvery = every
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
			return 0, fmt.Errorf("%s: energy is counted from start to end and not sampled job by job", part)
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
	return func(r *jobRequest, v opt.Value) error {
		n, err := format.ParseMemory(v.Text)
		if err != nil {
			return r.badOption(long)
		}
		*field(r.spec) = n
		return nil
	}
}

// spanTo reads a time limit; Slurm's are whole minutes.
func spanTo(long string, field func(s *apiv1.JobSpec) *int64) applier {
	return func(r *jobRequest, v opt.Value) error {
		sec, err := format.ParseDuration(v.Text)
		switch {
		case err != nil:
			return r.badOption(long)
		case sec == format.Infinite || (sec == 0 && long == "time"): // -t 0 asks for no limit
			*field(r.spec) = -1
		default:
			*field(r.spec) = format.Minutes(sec) * int64(spec.Second)
		}
		return nil
	}
}

// momentTo reads a point in time.
func momentTo(long string, field func(s *apiv1.JobSpec) *int64) applier {
	return func(r *jobRequest, v opt.Value) error {
		sec, err := format.ParseTime(v.Text, format.Moment{Now: r.env.Now().Unix(), Loc: r.env.Loc})
		if err != nil {
			return tool.Fail(255, tool.BadTimeText(v.Text), fmt.Sprintf("%s: error: Invalid --%s specification", r.name, long))
		}
		*field(r.spec) = sec * int64(spec.Second)
		return nil
	}
}

// gresTo reads a list of generic resources: gpu:2, gpu:h100:1, nic. only is
// the name that the option stands for (--gpus=h100:2), or empty.
func gresTo(long, only string, field func(s *apiv1.JobSpec) *[]*apiv1.Count) applier {
	return func(r *jobRequest, v opt.Value) error {
		if only == "" && strings.EqualFold(v.Text, "none") {
			*field(r.spec) = nil
			return nil
		}
		list, ok := render.ParseGRES(v.Text, only)
		if !ok {
			return r.badOption(long)
		}
		*field(r.spec) = list
		return nil
	}
}

func applyNodes(r *jobRequest, v opt.Value) error {
	lo, hi, ranged := strings.Cut(v.Text, "-")
	least, err := format.ParseCount(lo)
	most := least
	if err == nil && ranged {
		most, err = format.ParseCount(hi)
	}
	if err != nil || least < 1 || most < least || most > 1<<30 {
		return tool.Fail(1, fmt.Sprintf("%s: error: \"%s\" is not a valid node count", r.name, v.Text),
			fmt.Sprintf("%s: error: invalid node count `%s'", r.name, v.Text))
	}
	r.spec.MinNodes, r.spec.MaxNodes = uint32(least), 0
	if ranged {
		r.spec.MaxNodes = uint32(most)
	}
	return nil
}

func applyArray(r *jobRequest, v opt.Value) error {
	a, err := format.ParseArray(v.Text)
	if err != nil {
		return r.refuseJob(spec.CodeInvalidArray)
	}
	r.spec.Array, r.spec.ArrayThrottle = nil, a.Throttle
	for _, x := range a.Ranges {
		r.spec.Array = append(r.spec.Array, &apiv1.TaskRange{First: int64(x.First), Last: int64(x.Last), Step: int64(x.Step)})
	}
	return nil
}

func applyDependency(r *jobRequest, v opt.Value) error {
	if _, err := spec.ParseDependency(v.Text); err != nil {
		return r.refuseJob(spec.CodeDependencyProblem)
	}
	r.spec.Dependency = v.Text
	return nil
}

func applyExclusive(r *jobRequest, v opt.Value) error {
	kinds := map[string]spec.Sharing{"": spec.Exclusive, "exclusive": spec.Exclusive, "user": spec.ExclusiveUser, "mcs": spec.ExclusiveMCS, "topo": spec.ExclusiveTopo}
	kind, ok := kinds[strings.ToLower(v.Text)]
	if !ok {
		return r.badOption("exclusive")
	}
	r.spec.Sharing = uint32(kind)
	return nil
}

func applyHosts(long string, field func(s *apiv1.JobSpec) *string) applier {
	return func(r *jobRequest, v opt.Value) error {
		if _, err := hostlist.Count(v.Text); err != nil {
			return r.badOption(long)
		}
		*field(r.spec) = v.Text
		return nil
	}
}

// applyNodeFile reads the names of -F: one or several to a line.
func applyNodeFile(r *jobRequest, v opt.Value) error {
	data, err := tool.ReadFile(r.absolutePath(v.Text), 1<<20)
	if err != nil {
		return tool.Fail(255, fmt.Sprintf("%s: error: Invalid --nodefile specification: %v", r.name, err))
	}
	list := strings.Join(strings.FieldsFunc(string(data), func(c rune) bool { return c == '\n' || c == ' ' || c == '\t' || c == ',' }), ",")
	if _, err := hostlist.Count(list); err != nil || list == "" {
		return r.badOption("nodefile")
	}
	r.spec.Nodes = list
	return nil
}

func applyLicenses(r *jobRequest, v opt.Value) error {
	by := ","
	r.spec.AnyLicense = strings.Contains(v.Text, "|")
	if r.spec.AnyLicense {
		by = "|"
	}
	for part := range strings.SplitSeq(v.Text, by) {
		name, num, counted := strings.Cut(part, ":")
		n := int64(1)
		if counted {
			var err error
			n, err = format.ParseCount(num)
			if err != nil {
				return r.badOption("licenses")
			}
		}
		if name == "" || strings.ContainsAny(name, ",|() ") {
			return r.badOption("licenses")
		}
		r.spec.Licenses = append(r.spec.Licenses, &apiv1.Count{Name: name, N: n})
	}
	return nil
}

func applyMailType(r *jobRequest, v opt.Value) error {
	known := []string{"NONE", "BEGIN", "END", "FAIL", "REQUEUE", "ALL", "INVALID_DEPEND", "STAGE_OUT", "TIME_LIMIT",
		"TIME_LIMIT_50", "TIME_LIMIT_80", "TIME_LIMIT_90", "ARRAY_TASKS"}
	r.spec.MailTypes = nil
	for part := range strings.SplitSeq(v.Text, ",") {
		part = strings.ToUpper(part)
		if !slices.Contains(known, part) {
			return r.badOption("mail-type")
		}
		if part != "NONE" {
			r.spec.MailTypes = append(r.spec.MailTypes, part)
		}
	}
	return nil
}

func applySignal(r *jobRequest, v opt.Value) error {
	s, err := format.ParseEarlySignal(v.Text)
	if err != nil {
		return r.badOption("signal")
	}
	r.spec.Signal, r.spec.SignalBefore = int32(s.Number), s.Before*int64(spec.Second)
	r.spec.SignalBatch, r.spec.SignalResv = s.Batch, s.Overlap
	return nil
}

func applyNice(r *jobRequest, v opt.Value) error {
	r.spec.Nice = 100
	if v.Has {
		n, err := strconv.ParseInt(v.Text, 10, 32)
		if err != nil || n > 2147483645 || n < -2147483645 {
			return r.badOption("nice")
		}
		r.spec.Nice = int32(n)
	}
	return nil
}

func applyPriority(r *jobRequest, v opt.Value) error {
	if strings.EqualFold(v.Text, "top") {
		return tool.Fail(255, fmt.Sprintf("%s: error: --priority=TOP is not supported in this release: give a number", r.name))
	}
	n, err := strconv.ParseUint(v.Text, 10, 32)
	if err != nil || n >= 1<<32-2 {
		return r.badOption("priority")
	}
	if n == 0 {
		r.spec.Hold = true // a priority of 0 is how Slurm holds
		return nil
	}
	r.spec.Priority = uint32(n)
	return nil
}

func applyOpenMode(r *jobRequest, v opt.Value) error {
	switch {
	case v.Text != "" && strings.HasPrefix("append", strings.ToLower(v.Text)):
		r.spec.Append = apiv1.Tri_TRI_YES
	case v.Text != "" && strings.HasPrefix("truncate", strings.ToLower(v.Text)):
		r.spec.Append = apiv1.Tri_TRI_NO
	default:
		return r.badOption("open-mode")
	}
	return nil
}

// applyRequeue lets the later of --requeue and --no-requeue win.
func applyRequeue(r *jobRequest, v opt.Value) error {
	if v.Text != "" {
		return tool.Fail(255, fmt.Sprintf("%s: error: --requeue=%s is not supported in this release: plain --requeue is", r.name, v.Text))
	}
	if no, ok := r.opts.Get("no-requeue"); !ok || no.Order < v.Order {
		r.spec.Requeue = apiv1.Tri_TRI_YES
	}
	return nil
}

func applyNoRequeue(r *jobRequest, v opt.Value) error {
	if yes, ok := r.opts.Get("requeue"); !ok || yes.Order < v.Order {
		r.spec.Requeue = apiv1.Tri_TRI_NO
	}
	return nil
}

func applyNoKill(r *jobRequest, v opt.Value) error {
	r.spec.NoKill = v.Text == ""
	if !r.spec.NoKill && !strings.EqualFold(v.Text, "off") {
		return r.badOption("no-kill")
	}
	return nil
}

func applyKillInvalid(r *jobRequest, v opt.Value) error {
	switch strings.ToLower(v.Text) {
	case "yes":
		r.spec.KillOnInvalidDep = apiv1.Tri_TRI_YES
	case "no":
		r.spec.KillOnInvalidDep = apiv1.Tri_TRI_NO
	default:
		return r.badOption("kill-on-invalid-dep")
	}
	return nil
}

func applySwitches(r *jobRequest, v opt.Value) error {
	count, wait, timed := strings.Cut(v.Text, "@")
	n, err := strconv.ParseUint(count, 10, 31)
	if err != nil || n == 0 {
		return r.badOption("switches")
	}
	r.spec.Switches = uint32(n)
	if timed {
		sec, err := format.ParseDuration(wait)
		if err != nil {
			return r.badOption("switches")
		}
		r.spec.SwitchWait = sec * int64(spec.Second)
	}
	return nil
}

func applyTRESPerTask(r *jobRequest, v opt.Value) error {
	for part := range strings.SplitSeq(v.Text, ",") {
		if rest, ok := strings.CutPrefix(strings.ReplaceAll(part, "=", ":"), "cpu:"); ok {
			n, err := strconv.ParseUint(rest, 10, 31)
			if err != nil || n == 0 {
				return r.badOption("tres-per-task")
			}
			r.spec.CpusPerTask = uint32(n)
			continue
		}
		list, ok := render.ParseGRES(part, "")
		if !ok || !strings.HasPrefix(part, "gres/") {
			return r.badOption("tres-per-task")
		}
		r.spec.PerTask = append(r.spec.PerTask, list...)
	}
	return nil
}

// applyMemory lets --mem=0 mean all of a node's memory.
func applyMemory(r *jobRequest, v opt.Value) error {
	if err := memoryTo("mem", func(s *apiv1.JobSpec) *int64 { return &s.MemPerNode })(r, v); err != nil {
		return err
	}
	r.spec.AllMem = r.spec.MemPerNode == 0
	return nil
}

// applyPropagate names the limits that travel with the job.
func applyPropagate(r *jobRequest, v opt.Value) error {
	if !v.Has || strings.EqualFold(v.Text, "all") {
		return nil // all of them is what holds without the option
	}
	if strings.EqualFold(v.Text, "none") {
		r.spec.Rlimits = nil
		return nil
	}
	all := r.spec.Rlimits
	r.spec.Rlimits = nil
	for part := range strings.SplitSeq(v.Text, ",") {
		name := strings.TrimPrefix(strings.ToUpper(part), "RLIMIT_")
		known := false
		for _, l := range tool.RlimitNames() {
			known = known || l.Name == name
		}
		if !known {
			return r.badOption("propagate")
		}
		for _, l := range all {
			if l.GetName() == name {
				r.spec.Rlimits = append(r.spec.Rlimits, l)
			}
		}
	}
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
		if v, ok := r.opts.Get(n); ok {
			switch {
			case v.From > best:
				best, count = v.From, 1
			case v.From == best:
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
func openScript(e *tool.Env, arg string) (path string, data []byte, err error) {
	if e.Relay != nil {
		return e.Relay.Script(arg)
	}
	candidates := []string{arg}
	if !strings.HasPrefix(arg, "/") {
		candidates[0] = strings.TrimSuffix(e.Dir, "/") + "/" + arg
		if !strings.Contains(arg, "/") {
			for dir := range strings.SplitSeq(e.Getenv("PATH"), ":") {
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

func applyGPUBind(r *jobRequest, v opt.Value) error {
	if _, err := spec.ParseGPUBind(v.Text); err != nil {
		return tool.Fail(255, r.name+": error: --gpu-bind: "+err.Error())
	}
	r.spec.GpuBind = v.Text
	return nil
}

func applyGPUFreq(r *jobRequest, v opt.Value) error {
	if _, err := spec.ParseGPUFreq(v.Text); err != nil {
		return tool.Fail(255, r.name+": error: --gpu-freq: "+err.Error())
	}
	r.spec.GpuFreq = v.Text
	return nil
}

// applyHint reads --hint: one thread of each core, or all of them.
func applyHint(r *jobRequest, v opt.Value) error {
	switch v.Text {
	case "nomultithread", "compute_bound":
		r.spec.ThreadsPerCore = 1
	case "multithread":
	case "memory_bound":
		return tool.Fail(1, r.name+": error: --hint=memory_bound asks for one core of each socket, and tasks are not bound to sockets here: request the memory with --mem, and fewer tasks on a node with --ntasks-per-node or --ntasks-per-socket")
	default:
		return r.badOption("hint")
	}
	return nil
}

// applyNodeInfo reads -B: sockets, cores of each, threads of each, of which *
// leaves one open.
func applyNodeInfo(r *jobRequest, v opt.Value) error {
	fields := [...]*uint32{&r.spec.SocketsPerNode, &r.spec.CoresPerSocket, &r.spec.ThreadsPerCore}
	list := strings.Split(v.Text, ":")
	if len(list) > len(fields) {
		return r.badOption("extra-node-info")
	}
	for i, text := range list {
		if text == "*" {
			continue
		}
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil || n == 0 {
			return r.badOption("extra-node-info")
		}
		*fields[i] = uint32(n)
	}
	return nil
}
