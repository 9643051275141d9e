package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// StepPart is a step's part on this node.
type StepPart struct {
	Job   *Job // of which it is; Env is that of the tasks, Here the job's part
	Key   RunKey
	Spec  *spec.StepSpec
	Here  spec.NodeAlloc // what the step has of this node
	Index int            // of this node among the step's
	Nodes string         // the step's, as a host list
	// Of all its nodes, in their order.
	TasksOnNode []uint32
	Tasks       uint32
	Ranks       []uint32 // here, by local id
	LaunchHost  string   // where its client runs
	Mapping     string   // of ranks to nodes, as PMI has it
	Hosts       []string // names of its nodes
	NodeOf      []uint32 // by rank
	// Secret is known to the step's nodes alone, and the same on all; nil: the
	// controller is of an older release.
	Secret []byte
	GPUs   []StepGPU
}

// StepGPU is a device of a step on this node.
type StepGPU struct {
	Index uint32
	Files []string
	CPUs  spec.Bitset // near it; empty = not known
}

// StepRun prepares the tasks of a step. The error is for its user: the step
// cannot be run as it was asked for.
func StepRun(
	step *StepPart,
	node *Node,
	visible func(gpus []int) []string,
) (RunSpec, []string, error) {
	jobSpec, stepSpec := step.Job.Spec, step.Spec
	limits, warnings := node.rlimits(stepSpec.Rlimits, stepSpec.LimitsAsked)
	user := splitEnv(step.Job.Env)
	part := *step.Job // with what the step has of the node
	part.Here = step.Here
	if part.Here.Mem == 0 {
		part.Here.Mem = step.Job.Here.Mem
	}
	tasks := &Tasks{
		Argv:    stepSpec.Argv,
		WorkDir: cmp.Or(stepSpec.WorkDir, jobSpec.IO.WorkDir, "/tmp"),
		Umask:   stepSpec.Umask & 0o777,
		Append:  stepSpec.Append || node.Append,
		Rlimits: limits,
		Input:   stepSpec.InputTask,
		Cast:    stepSpec.Cast,
	}
	if stepSpec.Pty {
		tasks.Input = spec.InputAll
		tasks.Terminal = &Window{Rows: stepSpec.Rows, Columns: stepSpec.Columns}
		if !slices.Contains(step.Ranks, 0) {
			tasks.Terminal, tasks.Input = nil, spec.InputNone // only the first task has one
		}
	}
	for _, p := range []string{node.TaskProlog, stepSpec.TaskProlog} {
		if p != "" && stepSpec.Cast == nil {
			tasks.Prologs = append(tasks.Prologs, p)
		}
	}
	for _, p := range []string{stepSpec.TaskEpilog, node.TaskEpilog} {
		if p != "" && stepSpec.Cast == nil {
			tasks.Epilogs = append(tasks.Epilogs, p)
		}
	}
	cpus := bindCPUs(&part, node)
	bound, told, err := bindTasks(step, node, cpus)
	if err != nil {
		return RunSpec{}, warnings, err
	}
	mpi := step.mpiType()
	pmi := step.pmiConfig(mpi)
	tasks.PMI = pmi
	tasks.PMIx, err = step.pmixConfig(node, mpi)
	if err != nil {
		return RunSpec{}, warnings, err
	}
	tasks.Env = step.commonEnv(user, node, bound, mpi)
	for i, rank := range step.Ranks {
		task := Task{Rank: rank, CPUs: bound.taskCPUs(i)}
		if len(stepSpec.Programs) > 0 {
			task.Argv, err = programOf(stepSpec.Programs, rank)
			if err != nil {
				return RunSpec{}, warnings, err
			}
		}
		step.expandFiles(&task, node)
		task.Env, err = step.taskEnv(i, node, &task, visible)
		if err != nil {
			return RunSpec{}, warnings, err
		}
		if pmi != nil {
			task.Env = append(task.Env, "PMI_RANK="+formatNumber(uint64(rank)), "PMI_SIZE="+
				formatNumber(uint64(step.Tasks)), "PMI_JOBID="+pmi.Job)
		}
		tasks.List = append(tasks.List, task)
	}
	run := RunSpec{
		Key:       step.Key,
		JobID:     step.Job.ID,
		UID:       step.Job.UID,
		GID:       step.Job.GID,
		Groups:    step.Job.Groups,
		CPUs:      cpus,
		Limits:    memoryLimits(&part, node),
		JobLimits: memoryLimits(step.Job, node),
		Notices:   told,
		Tasks:     tasks,
	}
	tasks.Notices = told
	run.Nice, run.NiceAbove = node.nice(user)
	run.Space, run.Container = spaceOf(step.Job, node), containerOf(stepSpec.Container, step.Job)
	if run.Container != nil {
		tasks.Contained = true
		run.showPrograms(node.TaskProlog, node.TaskEpilog)
	}
	run.Limits.Cores = node.Confine.Cores && node.Enforces.Cores && len(cpus) > 0
	if node.fencesDevices() {
		run.FenceDevices = true
		for i := range step.GPUs {
			run.Devices = append(run.Devices, step.GPUs[i].Files...)
		}
	}
	return run, warnings, nil
}

// pmiConfig is what the tasks' server of PMI-1 and PMI-2 is told; nil where they
// have another interface.
func (s *StepPart) pmiConfig(mpi string) *PMI {
	if mpi != spec.MPIPMI2 {
		return nil
	}
	id := s.Job.ID
	if world := s.Spec.World; world != nil {
		id = uint64(world.Job)
	}
	return &PMI{
		Job:     fmt.Sprintf("%d.%d", id, s.Key.Step),
		Size:    s.Tasks,
		Node:    uint32(s.Index),
		Nodes:   uint32(len(s.TasksOnNode)),
		Mapping: s.Mapping,
		Ranks:   s.Ranks,
	}
}

// expandFiles gives a task's files with their patterns expanded.
func (s *StepPart) expandFiles(task *Task, node *Node) {
	facts := FileFacts{
		JobID:     s.Job.ID,
		ArrayJob:  s.Job.ArrayID,
		ArrayTask: s.Job.Task,
		Step:      s.Key.Step,
		Node:      node.Host,
		NodeIndex: uint32(s.Index),
		Task:      task.Rank,
		User:      s.Job.User,
		JobName:   s.Job.Spec.Name,
		Restarts:  s.Job.Restarts,
	}
	expand := func(pattern string) string {
		if pattern == "none" {
			return "/dev/null"
		}
		return ExpandFile(pattern, &facts)
	}
	task.Stdin = expand(s.Spec.Stdin)
	task.Stdout = expand(s.Spec.Stdout)
	task.Stderr = expand(s.Spec.Stderr)
}

// programOf finds what a rank runs of --multi-prog: the first line that names it,
// else one for all others, which names none. %t is the rank, %o its place among
// those of its line.
func programOf(list []spec.TaskProgram, rank uint32) ([]string, error) {
	others := -1
	for i := range list {
		if len(list[i].Ranks) == 0 && others < 0 {
			others = i
		}
		place := 0
		for _, taskRange := range list[i].Ranks {
			if int64(rank) > taskRange.Last {
				place += int((taskRange.Last-taskRange.First)/taskRange.Step) + 1
				continue
			}
			if int64(rank) < taskRange.First || (int64(rank)-taskRange.First)%taskRange.Step != 0 {
				break
			}
			return programFor(
				&list[i], rank, place+int((int64(rank)-taskRange.First)/taskRange.Step),
			), nil
		}
	}
	if others >= 0 {
		return programFor(&list[others], rank, int(rank)), nil
	}
	return nil, fmt.Errorf("no program is configured for task %d", rank)
}

func programFor(program *spec.TaskProgram, rank uint32, place int) []string {
	swap := strings.NewReplacer("%t", formatNumber(uint64(rank)), "%o", strconv.Itoa(place))
	out := make([]string, len(program.Argv))
	for i, a := range program.Argv {
		out[i] = swap.Replace(a)
	}
	return out
}

// commonEnv is the environment of all tasks here: the client's, less what is
// the step's, and that.
func (s *StepPart) commonEnv(user []string, node *Node, b *binding, mpi string) []string {
	own := []string{
		"SLURM_JOB_ID=" + formatNumber(s.Job.ID), "SLURM_JOBID=" + formatNumber(s.Job.ID),
		"SLURM_STEP_ID=" + strconv.Itoa(int(s.Key.Step)), "SLURM_STEPID=" +
			strconv.Itoa(int(s.Key.Step)),
		"SLURM_STEP_NODELIST=" + s.Nodes, "SLURM_STEP_NUM_NODES=" +
			strconv.Itoa(len(s.TasksOnNode)),
		"SLURM_STEP_NUM_TASKS=" + formatNumber(uint64(s.Tasks)), "SLURM_STEP_TASKS_PER_NODE=" +
			Runs(s.TasksOnNode),
		"SLURM_NTASKS=" + formatNumber(uint64(s.Tasks)), "SLURM_NPROCS=" +
			formatNumber(uint64(s.Tasks)),
		"SLURM_NNODES=" + strconv.Itoa(len(s.TasksOnNode)), "SLURM_TASKS_PER_NODE=" +
			Runs(s.TasksOnNode),
		"SLURM_NODEID=" + strconv.Itoa(s.Index), "SLURMD_NODENAME=" + node.Name, "SLURM_TOPOLOGY_ADDR=" +
			node.Name, "SLURM_TOPOLOGY_ADDR_PATTERN=node",
		"SLURM_SRUN_COMM_HOST=" + s.LaunchHost, "SLURM_LAUNCH_NODE_IPADDR=" + s.LaunchHost,
		"SLURM_CPU_BIND=" + b.text, "SLURM_CPU_BIND_TYPE=" + b.kind, "SLURM_CPU_BIND_LIST=" +
			b.list, "SLURM_CPU_BIND_VERBOSE=" + b.verbose,
		"SLURM_CPUS_ON_NODE=" + strconv.Itoa(s.cpusHere()), "SLURM_PRIO_PROCESS=" + cmp.Or(lookUpVariable(user, "SLURM_PRIO_PROCESS"), "0"),
		"SLURM_GPUS_ON_NODE=" + formatPositive(uint64(len(s.Here.GPUs))), "SLURM_SHARDS_ON_NODE=" +
			formatPositive(countShards(&s.Here)),
		"SLURM_STEP_GPUS=" + s.gpuNumbers(), "SLURM_MPI_TYPE=" + mpi,
	}
	if s.Spec.KeepSizes {
		own = without(own, sizeVariables, user)
	}
	ours := map[string]bool{"SLURM_PROCID": true, "SLURM_LOCALID": true, "SLURM_GTIDS": true, "SLURM_TASK_PID": true, "PMI_FD": true, "PMI_RANK": true,
		"PMI_SIZE": true, "PMI_JOBID": true, "MUSTER_RUN": true}
	for _, e := range own {
		name, _, _ := strings.Cut(e, "=")
		ours[name] = true
	}
	// srun may have been started in a task of another step.
	foreign := slices.ContainsFunc(user, func(e string) bool { return strings.HasPrefix(e, "PMIX_NAMESPACE=") })
	out := make([]string, 0, len(user)+len(own)+2)
	seen := make(map[string]bool, len(user))
	for _, e := range slices.Backward(user) { // of a repeated name the last one counts
		name, value, ok := strings.Cut(e, "=")
		if !ok || name == "" || ours[name] || seen[name] || foreign && ofPMIxServer(name) {
			continue
		}
		seen[name] = true
		if name == "HOSTNAME" && value != "" {
			e = "HOSTNAME=" + node.Host
		}
		out = append(out, e)
	}
	slices.Reverse(out)
	for _, e := range [...][2]string{{"TMPDIR", "/tmp"}, {"USER", s.Job.User}, {"LOGNAME", s.Job.User}, {"HOME", s.Job.Home}, {"SHELL", s.Job.Shell}, {"PATH", defaultPath}} {
		if !seen[e[0]] && e[1] != "" {
			out = append(out, e[0]+"="+e[1])
		}
	}
	for _, e := range own {
		if !strings.HasSuffix(e, "=") {
			out = append(out, e)
		}
	}
	return out
}

// ofPMIxServer tells that a variable is one by which a PMIx server tells its tasks
// about itself.
func ofPMIxServer(name string) bool {
	switch name {
	case "PMIX_NAMESPACE",
		"PMIX_RANK",
		"PMIX_SYSTEM_TMPDIR",
		"PMIX_GDS_MODULE",
		"PMIX_SECURITY_MODE",
		"PMIX_BFROP_BUFFER_TYPE",
		"PMIX_HOSTNAME",
		"PMIX_VERSION":
		return true
	}
	return strings.HasPrefix(name, "PMIX_SERVER_") || strings.HasPrefix(name, "PMIX_DSTORE_")
}

// sizeVariables are those that srun -E leaves as they are.
var sizeVariables = []string{"SLURM_NNODES", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASKS_PER_NODE"}

// without drops the variables of these names that the user's environment has.
func without(own, names, user []string) []string {
	theirs := func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return slices.Contains(names, name) && slices.ContainsFunc(user, func(u string) bool {
			return strings.HasPrefix(u, name+
				"=")
		})
	}
	return slices.DeleteFunc(own, theirs)
}

// cpusHere is how many CPUs the step has here; one that holds none has the job's.
func (s *StepPart) cpusHere() int {
	if n := s.Here.CPUs.Count(); n > 0 {
		return n
	}
	return s.Job.Here.CPUs.Count()
}

func (s *StepPart) gpuNumbers() string {
	var out []string
	for i := range s.GPUs {
		out = append(out, formatNumber(uint64(s.GPUs[i].Index)))
	}
	return strings.Join(out, ",")
}

// taskEnv is what one task alone has.
func (s *StepPart) taskEnv(
	local int,
	node *Node,
	task *Task,
	visible func([]int) []string,
) ([]string, error) {
	ids := make([]string, len(s.Ranks))
	for i, r := range s.Ranks {
		ids[i] = formatNumber(uint64(r))
	}
	env := []string{"SLURM_PROCID=" + formatNumber(uint64(task.Rank)), "SLURM_LOCALID=" +
		strconv.Itoa(local), "SLURM_GTIDS=" + strings.Join(ids, ",")}
	places, err := s.gpusOf(local, task, node)
	if err != nil {
		return nil, err
	}
	return append(env, visible(places)...), nil
}

// gpusOf gives the places of the devices that a task sees among the step's.
func (s *StepPart) gpusOf(local int, task *Task, node *Node) ([]int, error) {
	text := s.Spec.GPUBind
	per := int64(0)
	for _, count := range s.Spec.PerTask {
		if count.Name == "gpu" {
			per += count.N
		}
	}
	if text == "" && per > 0 { // as --gpus-per-task has it
		text = "per_task:" + strconv.FormatInt(per, 10)
	}
	bind, err := spec.ParseGPUBind(cmp.Or(text, "none"))
	if err != nil {
		return nil, err
	}
	var cpus spec.Bitset
	for _, c := range task.CPUs {
		cpus = cpus.Set(int(c))
	}
	if cpus.Empty() {
		cpus = s.Here.CPUs
	}
	list := make([]spec.BindableGPU, len(s.GPUs))
	for i := range s.GPUs {
		list[i] = spec.BindableGPU{Number: uint32(i), CPUs: s.GPUs[i].CPUs}
		if !node.fencesDevices() {
			list[i].Number = s.GPUs[i].Index
		}
	}
	places, _ := bind.Devices(spec.BoundTask{Local: local, CPUs: cpus}, list)
	return places, nil
}
