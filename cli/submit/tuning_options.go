package submit

import (
	"fmt"
	"os/user"
	"slices"
	"strconv"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// ignoreTuning is an option that only tunes how fast a job runs: the job is accepted, and
// the option's warning says what becomes of it.
func ignoreTuning(*jobRequest, opt.Value) error { return nil }

// applyGRESFlags checks the words of --gres-flags. Those that only tune are accepted
// with the option's warning; one-task-per-sharing holds here in any case.
func applyGRESFlags(request *jobRequest, value opt.Value) error {
	known := []string{
		"enforce-binding",
		"disable-binding",
		"allow-task-sharing",
		"multiple-tasks-per-sharing",
		"one-task-per-sharing",
	}
	for word := range strings.SplitSeq(strings.ToLower(value.Text), ",") {
		if !slices.Contains(known, word) {
			return request.badOption("gres-flags")
		}
	}
	return nil
}

// applyTRESBind reads --tres-bind: of gres/gpu it means what --gpu-bind means.
func applyTRESBind(request *jobRequest, value opt.Value) error {
	for item := range strings.SplitSeq(value.Text, "+") {
		name, kind, ok := strings.Cut(item, ":")
		if !ok {
			return request.badOption("tres-bind")
		}
		if name != "gres/gpu" {
			return tool.Fail(
				1,
				fmt.Sprintf(
					"%s: error: --tres-bind=%s: tasks are bound to GPUs only (gres/gpu:%s)",
					request.name,
					value.Text,
					kind,
				),
			)
		}
		if err := applyGPUBind(request, opt.Value{Text: kind, Has: true, From: value.From}); err != nil {
			return err
		}
	}
	return nil
}

// applyUser checks --uid: jobs belong to the user who submits them. Batch jobs of root may be
// another user's (readOwner).
func applyUser(request *jobRequest, value opt.Value) error {
	own := strconv.FormatUint(uint64(request.env.UID), 10)
	switch {
	case value.Text == own || tool.LookupUID(value.Text) == own:
		return nil
	case request.env.UID == 0 && request.name == "sbatch":
		return nil
	case request.env.UID == 0:
		return tool.Fail(1, fmt.Sprintf(
			"%[1]s: error: --uid=%[2]s: only sbatch submits for others; use runuser -u %[2]s -- %[1]s ...",
			request.name, value.Text))
	}
	return tool.Fail(255, request.name+": error: --uid only permitted by root user")
}

// applyGroup checks --gid in the same way.
func applyGroup(request *jobRequest, value opt.Value) error {
	gid, known := lookupGroup(value.Text)
	own, err := user.LookupId(strconv.FormatUint(uint64(request.env.UID), 10))
	switch {
	case !known:
		return tool.Fail(255, request.name+": error: Invalid --gid specification")
	case err == nil && own.Gid == strconv.FormatUint(uint64(gid), 10):
		return nil
	case request.env.UID == 0 && request.name == "sbatch":
		return nil
	case request.env.UID == 0:
		return tool.Fail(1, fmt.Sprintf(
			"%[1]s: error: --gid=%[2]s: only sbatch submits for other groups; use runuser -g %[2]s -- %[1]s ...",
			request.name, value.Text))
	}
	return tool.Fail(255, request.name+": error: --gid only permitted by root user")
}

// lookupGroup finds the number of a group by its name or number.
func lookupGroup(text string) (gid uint32, known bool) {
	number := text
	if group, err := user.LookupGroup(text); err == nil {
		number = group.Gid
	}
	n, err := strconv.ParseUint(number, 10, 32)
	return uint32(n), err == nil
}

// readOwner says whom root submits a batch job for; nil = for himself.
func readOwner(call *tool.Call) (*apiv1.JobOwner, error) {
	if call.UID != 0 || !call.Opts.On("uid") && !call.Opts.On("gid") {
		return nil, nil
	}
	owner := &apiv1.JobOwner{}
	if name := call.Opts.Text("uid"); name != "" {
		account, err := user.Lookup(name)
		if err != nil {
			account, err = user.LookupId(name)
		}
		if err != nil {
			return nil, tool.Fail(255, call.Command.Name+": error: Invalid --uid specification")
		}
		owner.User = account.Username
	}
	if call.Opts.On("gid") {
		gid, _ := lookupGroup(call.Opts.Text("gid")) // applyGroup has checked it
		owner.Gid = &gid
	}
	return owner, nil
}

// applyDistribution reads -m of a job: its steps distribute their tasks so.
func applyDistribution(request *jobRequest, value opt.Value) error {
	text, err := parseDistribution(value.Text, request.env.Getenv("SLURM_DIST_PLANESIZE"))
	if err != nil {
		return tool.Fail(255, request.name+": error: "+err.Error())
	}
	request.spec.Distribution = text
	return nil
}

// parseDistribution reads --distribution and returns it as steps store it: the way
// over nodes, and behind colons the ways over sockets and cores, which the node does
// not follow. A * is what holds without it: block over nodes and cyclic over sockets,
// and over cores what holds over sockets. Pack and NoPack only tune how few nodes are
// used, and are passed on.
func parseDistribution(text, planeSize string) (string, error) {
	levels, pack, packs := strings.Cut(strings.ToLower(text), ",")
	if levels == "pack" || levels == "nopack" {
		levels, pack, packs = "block", levels, true
	}
	if packs && pack != "pack" && pack != "nopack" {
		return "", fmt.Errorf("Invalid --distribution specification: %s", text)
	}
	if packs {
		pack = "," + pack
	}
	list := strings.Split(levels, ":")
	if len(list) > 3 {
		return "", fmt.Errorf("Invalid --distribution specification: %s", text)
	}
	for _, level := range list[1:] {
		if !slices.Contains([]string{"*", "block", "cyclic", "fcyclic"}, level) {
			return "", fmt.Errorf("Invalid --distribution specification: %s", text)
		}
	}
	if len(list) > 1 && list[1] == "*" {
		list[1] = "cyclic"
	}
	if len(list) > 2 && list[2] == "*" {
		list[2] = list[1]
	}
	switch nodes := list[0]; {
	case nodes == "*" || nodes == "unknown":
		list[0] = "block"
	case nodes == "block" || nodes == "cyclic" || nodes == arbitrary:
	case nodes == "plane":
		return readPlane("plane="+planeSize, text)
	case strings.HasPrefix(nodes, "plane="):
		return readPlane(nodes, text)
	default:
		return "", fmt.Errorf("Invalid --distribution specification: %s", text)
	}
	return strings.Join(list, ":") + pack, nil
}

// arbitrary is the distribution that a host file spells out, task by task.
const arbitrary = "arbitrary"

// hostFileVariable names the host file of the distribution arbitrary.
const hostFileVariable = "SLURM_HOSTFILE"

// isArbitrary tells that a distribution is spelled out by a host file.
func isArbitrary(distribution string) bool {
	return (&spec.StepSpec{Distribution: distribution}).DealOverNodes() == arbitrary
}

// placeByHostFile lets the host file of -m arbitrary say which nodes the job needs and,
// unless -n does, how many tasks it has.
func (r *jobRequest) placeByHostFile() error {
	if !isArbitrary(r.spec.GetDistribution()) {
		return nil
	}
	hosts, err := r.hostFile()
	if err != nil {
		return err
	}
	if len(hosts) == 0 && r.spec.GetNodes() == "" {
		return tool.Fail(1, r.name+": error: With Arbitrary distribution you need to specify a nodelist"+
			" with the -w option, or a host file in $"+hostFileVariable)
	}
	if len(hosts) == 0 {
		return nil
	}
	if r.spec.GetTasks() == 0 {
		r.spec.Tasks = uint32(len(hosts))
	}
	hosts = hosts[:min(len(hosts), int(r.spec.GetTasks()))]
	names := withoutRepeats(hosts)
	r.spec.Nodes = strings.Join(names, ",")
	if r.spec.GetMinNodes() == 0 {
		r.spec.MinNodes, r.spec.MaxNodes = uint32(len(names)), uint32(len(names))
	}
	return nil
}

// hostFile reads the nodes of the tasks, by rank: one or several to a line, and node*3
// for three of them. Without a file there are none.
func (r *jobRequest) hostFile() ([]string, error) {
	path := r.env.Getenv(hostFileVariable)
	if path == "" {
		return nil, nil
	}
	data, err := tool.ReadFile(r.absolutePath(path), 1<<20)
	if err != nil {
		return nil, tool.Fail(255, fmt.Sprintf("%s: error: %s: %v", r.name, hostFileVariable, err))
	}
	bad := func(line string) error {
		return tool.Fail(255, fmt.Sprintf("%s: error: %s: %q is not a list of nodes, or names too many",
			r.name, hostFileVariable, line))
	}
	var out []string
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(line, "#")
		for _, word := range strings.Fields(line) {
			word, times, repeated := strings.Cut(word, "*")
			n := uint64(1)
			if repeated {
				n, err = strconv.ParseUint(times, 10, 16)
			}
			names, badList := hostlist.Expand(word)
			if err != nil || badList != nil || n == 0 || len(out)+len(names)*int(n) > maxHostFile {
				return nil, bad(strings.TrimSpace(line))
			}
			for _, name := range names {
				for range n {
					out = append(out, name)
				}
			}
		}
	}
	return out, nil
}

// maxHostFile is how many tasks a host file can place.
const maxHostFile = 1 << 16

// withoutRepeats leaves out what has come before.
func withoutRepeats(list []string) []string {
	var out []string
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

func readPlane(plane, text string) (string, error) {
	if (&spec.StepSpec{Distribution: plane}).Plane() == 0 {
		return "", fmt.Errorf("Invalid --distribution specification: %s", text)
	}
	return plane, nil
}

// readDistribution reads -m of a step.
func readDistribution(call *tool.Call, step *apiv1.StepSpec, text string) error {
	distribution, err := parseDistribution(text, call.Getenv("SLURM_DIST_PLANESIZE"))
	if err != nil {
		return call.Errorf("%v", err)
	}
	step.Distribution = distribution
	return nil
}

// placeTasks puts the tasks of a step where the host file of -m arbitrary says.
func placeTasks(call *tool.Call, step *apiv1.StepSpec) error {
	if !isArbitrary(step.GetDistribution()) {
		return nil
	}
	request := &jobRequest{name: call.Command.Name, env: call.Env}
	hosts, err := request.hostFile()
	if err != nil {
		return err
	}
	if len(hosts) == 0 && step.GetNodes() == "" {
		return call.Errorf("--distribution=arbitrary needs a host file in $%s, or nodes in --nodelist", hostFileVariable)
	}
	if len(hosts) == 0 {
		if hosts, err = hostlist.Expand(step.GetNodes()); err != nil {
			return call.Errorf("Invalid --nodelist specification: %v", err)
		}
	}
	if step.GetTasks() == 0 {
		step.Tasks = uint32(len(hosts))
	}
	if int(step.GetTasks()) > len(hosts) {
		return call.Errorf(
			"--distribution=arbitrary: %d tasks are asked for, and $%s or --nodelist places %d",
			step.GetTasks(), hostFileVariable, len(hosts),
		)
	}
	step.TaskNodes = hosts[:step.GetTasks()]
	names := withoutRepeats(step.TaskNodes)
	step.Nodes, step.TasksPerNode = strings.Join(names, ","), 0
	step.MinNodes, step.MaxNodes = uint32(len(names)), uint32(len(names))
	return nil
}
