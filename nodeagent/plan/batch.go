package plan

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// Node is what a node's agent knows of the node and of the configuration when
// it prepares a run. It does not change while the agent lives.
type Node struct {
	Name    string // in the cluster
	Host    string // of the machine, without its domain
	Cluster string
	// SlurmConf is the path that jobs find in SLURM_CONF.
	SlurmConf string
	MemoryMiB int64       // of the machine
	CPUs      spec.Bitset // that really exist and may be used
	HasGPUs   bool        // jobs without GPUs have them hidden
	MPSEach   bool        // each GPU has an MPS server of its own

	// TaskProlog is a program that runs before each batch script, as its user;
	// empty = none.
	TaskProlog string
	// TaskEpilog is a program that runs after each batch script, as its user.
	TaskEpilog string

	// Space is what each job has for itself; nil where jobs have no private folders.
	Space *Space

	PMIx PMIxNode

	// LimitsKept are resource limits that jobs have as the node has them, unless
	// --propagate names them: PropagateResourceLimits and its Except.
	LimitsKept []string
	// Nice is PropagatePrioProcess.
	Nice NicePolicy
	// LoginTimeout is how long the login environment of a job that does not say
	// may take; 0: only LoginCache counts.
	LoginTimeout spec.Span
	// LoginCache is the folder of cached login environments, a file for each user.
	LoginCache string

	Append   bool // JobFileAppend: what holds without --open-mode
	Affinity bool // task/affinity: bind to the allocated CPUs
	Confine  Confine
	Enforces Enforces // what the shepherd says that it can

	Memory MemoryDefault            // of the cluster
	Parts  map[string]MemoryDefault // of partitions
}

// NicePolicy is the nice value with which processes of jobs begin.
type NicePolicy uint8

// The policies, as PropagatePrioProcess numbers them.
const (
	NiceOfNode      NicePolicy = iota // the node's
	NiceOfSubmitter                   // that of the command that submitted, not below the node's
	NiceAboveNode                     // the same, and always above the node's
)

// MemoryDefault is the memory of jobs that ask for none, MiB.
type MemoryDefault struct{ PerCPU, PerNode, PerGPU int64 }

// Confine is cgroup.conf: what holds jobs to what they were given. Shares are
// in hundredths of a percent.
type Confine struct {
	Cores, Devices, RAM, Swap bool
	AllowedRAM, AllowedSwap   int64 // of the memory a job has
	MaxRAM                    int64 // of the node's memory
	MinRAM                    int64 // MiB
	Tasks                     int64 // processes and threads of a run; 0 = no limit
}

// Job is one attempt of a job as its batch node learns it.
type Job struct {
	Key       RunKey
	ID        uint64
	ArrayID   uint64 // 0 = no array
	Task      int64  // spec.NoTask = no array task
	Spec      *spec.JobSpec
	User      string
	Group     string
	Home      string // for an environment that has none; may be empty
	Shell     string // the same
	UID, GID  uint32
	Groups    []uint32
	Partition string
	Nodes     string         // the allocation as a host list
	Here      spec.NodeAlloc // this node's part of the allocation
	Index     int            // of this node among the job's
	// Of all its nodes, in their order.
	CPUsPerNode []uint32
	TasksOnNode []uint32
	Tasks       uint32
	Restarts    uint32
	Start       spec.Instant
	End         spec.Instant // 0 = no time limit
	GPUEnv      []string     // CUDA_VISIBLE_DEVICES and its like
	Devices     []string     // device files of its GPUs
	Script      []byte
	Env         []byte             // NUL-separated NAME=value
	Images      []spec.PinnedImage // what the names of its images meant before
	// Components are all of a heterogeneous job whose leader this is.
	Components []Component
}

// Component is what the batch script of a heterogeneous job learns about one of
// its components.
type Component struct {
	ID                        uint64
	Partition                 string
	Nodes                     string // hostlist
	NumNodes, Tasks           uint32
	CPUsPerNode, TasksPerNode string // in the order of the nodes and folded
	Mem                       int64  // MiB on its first node
	CPUsPerTask               uint32 // as asked for; 0 = not
	MemPerCPU                 int64  // MiB, as asked for; 0 = not
}

// hetVariables tell of the components of a heterogeneous job: each variable
// that an ordinary job has, with _HET_GROUP_ and the component's number.
func hetVariables(list []Component) []string {
	if len(list) == 0 {
		return nil
	}
	out := []string{"SLURM_HET_SIZE=" + strconv.Itoa(len(list))}
	for i := range list {
		component := &list[i]
		memPerNode := formatPositive(component.Mem)
		if component.MemPerCPU > 0 { // what was asked for by CPU is told by CPU, as in an ordinary job
			memPerNode = ""
		}
		for _, v := range [...]struct{ name, value string }{
			{"JOB_ID", formatNumber(component.ID)}, {"JOBID", formatNumber(component.ID)}, {"JOB_NODELIST", component.Nodes}, {"NODELIST", component.Nodes},
			{"JOB_NUM_NODES", formatNumber(uint64(component.NumNodes))}, {"NNODES", formatNumber(uint64(component.NumNodes))}, {"JOB_PARTITION", component.Partition},
			{"JOB_CPUS_PER_NODE", component.CPUsPerNode}, {"TASKS_PER_NODE", component.TasksPerNode}, {"NTASKS", formatPositive(component.Tasks)}, {"NPROCS", formatPositive(component.Tasks)},
			{"MEM_PER_NODE", memPerNode}, {"MEM_PER_CPU", formatPositive(component.MemPerCPU)},
			{"CPUS_PER_TASK", formatPositive(component.CPUsPerTask)},
		} {
			if v.value != "" {
				out = append(out, fmt.Sprintf("SLURM_%s_HET_GROUP_%d=%s", v.name, i, v.value))
			}
		}
	}
	return out
}

// Batch prepares the batch script of a job. The warnings are for the log.
func Batch(job *Job, node *Node) (RunSpec, []string) {
	io := &job.Spec.IO
	limits, warnings := node.rlimits(io.Rlimits, io.LimitsAsked)
	user := splitEnv(job.Env)
	run := RunSpec{
		Key: job.Key, JobID: job.ID, UID: job.UID, GID: job.GID, Groups: job.Groups,
		WorkDir: cmp.Or(
			io.WorkDir,
			"/tmp",
		), Script: job.Script, Argv: job.Spec.Args, Env: jobEnvironment(user, job, node),
		Append: io.Append.Or(node.Append), Umask: submitterUmask(io.Umask, user), Rlimits: limits,
		TaskProlog: node.TaskProlog, TaskEpilog: node.TaskEpilog,
	}
	run.Stdin, run.Stdout, run.Stderr = Files(job, node)
	run.CPUs = bindCPUs(job, node)
	run.Limits = memoryLimits(job, node)
	run.JobLimits = run.Limits
	run.Limits.Cores = node.Confine.Cores && node.Enforces.Cores && len(run.CPUs) > 0
	if node.fencesDevices() {
		run.FenceDevices, run.Devices = true, job.Devices
	}
	run.Space = spaceOf(job, node)
	run.Container = containerOf(job.Spec.Container, job)
	run.Login = node.login(job)
	run.Nice, run.NiceAbove = node.nice(user)
	run.showPrograms(node.TaskProlog) // the TaskEpilog of a script runs on the node
	return run, warnings
}

func (n *Node) fencesDevices() bool { return n.Confine.Devices && n.Enforces.Devices && n.HasGPUs }

// Files gives a batch script's standard files with their patterns expanded;
// they may be relative to the work directory. An empty stderr is the stdout.
func Files(job *Job, node *Node) (stdin, stdout, stderr string) {
	io := &job.Spec.IO
	facts := FileFacts{
		JobID:     job.ID,
		ArrayJob:  job.ArrayID,
		ArrayTask: job.Task,
		Step:      StepBatch,
		Node:      node.Host,
		NodeIndex: uint32(job.Index),
		User:      job.User,
		JobName:   job.Spec.Name,
		Restarts:  job.Restarts,
	}
	stdout = cmp.Or(io.Stdout, DefaultOutput(job.ArrayID != 0))
	return ExpandFile(io.Stdin, &facts), ExpandFile(stdout, &facts), ExpandFile(io.Stderr, &facts)
}

// splitEnv takes a stored environment apart.
func splitEnv(env []byte) []string {
	if len(env) == 0 {
		return nil
	}
	return strings.Split(strings.TrimSuffix(string(env), "\x00"), "\x00")
}

// lookUpVariable finds a variable; of several with one name the last one counts.
func lookUpVariable(env []string, name string) string {
	for _, e := range slices.Backward(env) {
		if v, ok := strings.CutPrefix(e, name); ok && strings.HasPrefix(v, "=") {
			return v[1:]
		}
	}
	return ""
}

// jobEnvironment is the job's own, the variables of Slurm, the devices, and what
// a submission that did not come from a shell lacks.
func jobEnvironment(user []string, job *Job, node *Node) []string {
	env := BatchEnv(user, batchFacts(user, job, node))
	named := func(list []string) func(string) bool {
		return func(e string) bool {
			name, _, _ := strings.Cut(e, "=")
			return slices.ContainsFunc(
				list,
				func(o string) bool { return strings.HasPrefix(o, name) && strings.HasPrefix(o[len(name):], "=") },
			)
		}
	}
	env = append(slices.DeleteFunc(env, named(job.GPUEnv)), job.GPUEnv...)
	env = slices.DeleteFunc(
		env,
		func(e string) bool { // of a heterogeneous job that submitted this one
			return strings.HasPrefix(e, "SLURM_HET_SIZE=") ||
				(strings.HasPrefix(e, "SLURM_") && strings.Contains(e, "_HET_GROUP_"))
		},
	)
	env = append(env, hetVariables(job.Components)...)
	if node.login(job) != nil {
		return env // what is missing is of the login
	}
	for _, e := range [...]string{"USER=" + job.User, "LOGNAME=" + job.User, "HOME=" + job.Home, "SHELL=" +
		job.Shell, "PATH=" + defaultPath} {
		name, v, _ := strings.Cut(e, "=")
		if v != "" && lookUpVariable(env, name) == "" {
			env = append(env, e)
		}
	}
	return env
}

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// batchFacts are what the environment tells of a job.
func batchFacts(user []string, job *Job, node *Node) *BatchFacts {
	jobSpec, size := job.Spec, &job.Spec.Size
	facts := &BatchFacts{
		Cluster: node.Cluster, ConfigFile: node.SlurmConf, JobID: job.ID, ArrayJob: job.ArrayID, ArrayTask: job.Task, Restarts: job.Restarts,
		JobName: jobSpec.Name, Partition: job.Partition, Account: jobSpec.Account, QOS: jobSpec.QOS, Reservation: jobSpec.Place.Reservation,
		Dependency: jobSpec.Queue.Dependency.String(), Licenses: formatAmounts(jobSpec.Licenses), User: job.User, Group: job.Group, UID: job.UID, GID: job.GID,
		SubmitDir: cmp.Or(
			lookUpVariable(user, "SLURM_SUBMIT_DIR"),
			jobSpec.IO.WorkDir,
		), SubmitHost: jobSpec.Host, Start: job.Start, End: job.End,
		NodeName: node.Name, NodeIndex: uint32(job.Index), Nodelist: job.Nodes, Topology: node.Name, TopologyBy: "node",
		CPUsPerNode: job.CPUsPerNode, TasksOnNode: job.TasksOnNode, GPUs: Devices(&job.Here), Whole: len(job.Here.GPUs), ShardsHere: countShards(&job.Here),
		Nice:       lookUpVariable(user, "SLURM_PRIO_PROCESS"),
		GPUsFenced: node.fencesDevices(), CPUsPerTask: size.CPUsPerTask,
	}
	if size.Tasks > 0 || size.TasksPerNode > 0 {
		facts.Tasks = job.Tasks
	}
	if query := jobSpec.Queue.Array; query != nil {
		facts.ArrayCount = uint64(query.Count)
		facts.ArrayMin = uint64(query.Min)
		facts.ArrayMax = uint64(query.Max)
		facts.ArrayStep = uint64(query.Step)
	}
	memory := memoryOf(job, node)
	facts.MemPerCPU = memory.PerCPU
	facts.MemPerNode = memory.PerNode
	facts.MemPerGPU = memory.PerGPU
	distribution, plane, _ := strings.Cut(jobSpec.Place.Distribution, "=")
	facts.Asked = AskedText{
		NTasksPerNode: formatPositive(
			size.TasksPerNode,
		), NTasksPerCore: formatPositive(size.TasksPerCore), NTasksPerSocket: formatPositive(size.TasksPerSocket),
		NTasksPerGPU: formatPositive(
			size.TasksPerGPU,
		), CPUsPerGPU: formatPositive(size.CPUsPerGPU), ThreadsPerCore: formatPositive(size.ThreadsPerCore),
		Distribution: distribution, PlaneSize: plane, GPUs: gpuCount(size.PerJob), GPUsPerNode: gpuCount(size.PerNode),
		GPUsPerSocket: gpuCount(
			size.PerSocket,
		), GPUsPerTask: gpuCount(size.PerTask), GPUBind: jobSpec.GPUBind, GPUFreq: jobSpec.GPUFreq, TRESPerTask: perTask(size),
		ExportEnv: lookUpVariable(user, "SLURM_EXPORT_ENV"),
	}
	facts.Asked.SegmentSize = formatPositive(jobSpec.Place.Segment)
	if size.Overcommit {
		facts.Asked.Overcommit = "1"
	}
	// srun in the script opens its files as sbatch was told to: a job that is requeued
	// would otherwise lose what its steps wrote before.
	switch jobSpec.IO.Append {
	case spec.Yes:
		facts.Asked.OpenMode = "a"
	case spec.No:
		facts.Asked.OpenMode = "t"
	case spec.Unset:
	}
	return facts
}

// gpuCount writes a request for GPUs as sbatch takes it: 4, or h100:2,a100:2.
func gpuCount(list []spec.Count) string {
	var parts []string
	for _, count := range list {
		if count.Name != "gpu" {
			continue
		}
		text := strconv.FormatInt(count.N, 10)
		if count.Type != "" {
			text = count.Type + ":" + text
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, ",")
}

// perTask writes what each task was asked to have, as --tres-per-task takes it.
func perTask(size *spec.Size) string {
	var parts []string
	if size.CPUsPerTask > 0 {
		parts = append(parts, "cpu="+formatNumber(uint64(size.CPUsPerTask)))
	}
	for _, count := range size.PerTask {
		name := count.TRES()
		if count.Type != "" {
			name = count.TypedTRES()
		}
		parts = append(parts, name+"="+strconv.FormatInt(count.N, 10))
	}
	return strings.Join(parts, ",")
}

// formatAmounts writes licences: matlab:2,ansys:1.
func formatAmounts(list []spec.Count) string {
	parts := make([]string, len(list))
	for i, count := range list {
		parts[i] = count.Name + ":" + strconv.FormatInt(count.N, 10)
	}
	return strings.Join(parts, ",")
}

// memoryOf is the memory of the job by what it was asked for; where nothing
// was, by the default that gave it some; else what this node gave.
func memoryOf(job *Job, node *Node) MemoryDefault {
	size := &job.Spec.Size
	if !size.AllMem {
		anyGPU := slices.ContainsFunc(
			slices.Concat(size.PerJob, size.PerNode, size.PerTask, size.PerSocket),
			func(c spec.Count) bool { return c.Name == "gpu" },
		)
		for _, memory := range [...]MemoryDefault{{size.MemPerCPU, size.MemPerNode, size.MemPerGPU}, node.Parts[job.Partition], node.Memory} {
			switch {
			case memory.PerCPU > 0:
				return MemoryDefault{PerCPU: memory.PerCPU}
			case memory.PerNode > 0:
				return MemoryDefault{PerNode: memory.PerNode}
			case memory.PerGPU > 0 && anyGPU:
				return MemoryDefault{PerGPU: memory.PerGPU}
			}
		}
	}
	return MemoryDefault{PerNode: job.Here.Mem}
}

// submitterUmask is the submitter's; one that was not sent is looked for where Slurm's
// tools leave it.
func submitterUmask(given uint32, user []string) uint32 {
	if given != 0 {
		return given & 0o777
	}
	if n, err := strconv.ParseUint(lookUpVariable(user, "SLURM_UMASK"), 8, 32); err == nil {
		return uint32(n) & 0o777
	}
	return 0o022
}

// bindCPUs gives the CPUs to run on. A node that is declared larger than it is (a
// lab) has no such CPUs: its jobs are left where the kernel puts them.
func bindCPUs(job *Job, node *Node) []int32 {
	mine := job.Here.CPUs
	if !node.Affinity && !node.Confine.Cores || mine.Empty() || !mine.AndNot(node.CPUs).Empty() {
		return nil
	}
	members := mine.Members()
	out := make([]int32, len(members))
	for i, c := range members {
		out[i] = int32(c)
	}
	return out
}

// memoryLimits gives the memory limits of cgroup.conf for what the job was given.
func memoryLimits(job *Job, node *Node) Limits {
	confine := &node.Confine
	var limits Limits
	if node.Enforces.Pids {
		limits.Pids = confine.Tasks
	}
	if !confine.RAM || !node.Enforces.Memory {
		return limits
	}
	const mib = 1 << 20
	most := percentOf(node.MemoryMiB*mib, confine.MaxRAM)
	given := job.Here.Mem * mib
	if given == 0 {
		given = most
	}
	limits.MemoryBytes = max(percentOf(given, confine.AllowedRAM), confine.MinRAM*mib)
	if most > 0 {
		limits.MemoryBytes = min(limits.MemoryBytes, most)
	}
	if confine.Swap {
		limits.SwapBytes = percentOf(given, confine.AllowedSwap)
		if limits.SwapBytes == 0 {
			limits.SwapBytes = NoSwap
		}
	}
	return limits
}

// percentOf gives a share in hundredths of a percent, without overflow.
func percentOf(n, share int64) int64 {
	return n/10_000*share + n%10_000*share/10_000
}
