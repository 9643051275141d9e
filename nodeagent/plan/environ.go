package plan

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/spec"
)

// GPUVendor says which variables name a job's devices.
type GPUVendor uint8

// The vendors; the zero value is treated as NVIDIA, as simulated devices are.
const (
	NVIDIA GPUVendor = iota
	AMD
	Intel
)

// BatchFacts are what the environment of a batch script tells. Fields that
// mirror an option hold its text and are empty when it was not given: the
// variable is then absent, as programs expect.
type BatchFacts struct {
	Cluster, ConfigFile                       string
	JobID, ArrayJob                           uint64
	ArrayTask                                 int64 // spec.NoTask outside of an array
	ArrayCount, ArrayMin, ArrayMax, ArrayStep uint64
	Restarts                                  uint32
	JobName, Partition, Account, QOS          string
	Reservation, Dependency, Licenses         string
	User, Group                               string
	UID, GID                                  uint32
	SubmitDir, SubmitHost                     string
	Start, End                                spec.Instant

	NodeName    string   // this node
	NodeIndex   uint32   // its number within the job
	Nodelist    string   // folded
	CPUsPerNode []uint32 // allocated, in the order of the nodes
	TasksOnNode []uint32 // tasks, in the order of the nodes
	Topology    string   // path of names from the top, dot separated
	TopologyBy  string   // what each of those is: switch, block, node

	GPUs        []spec.GPURef // of this node, those it has a part of included
	Whole       int           // how many of them it has whole
	GPUVendor   GPUVendor
	GPUsFenced  bool // other devices cannot be opened: programs count from 0
	ShardsHere  uint32
	MemPerNode  int64 // MiB, if asked by node
	MemPerCPU   int64 // MiB, if asked by CPU
	MemPerGPU   int64 // MiB, if asked by GPU
	Tasks       uint32
	CPUsPerTask uint32
	HetSize     uint32
	Nice        string // value of the submitting command

	Asked AskedText
}

// AskedText holds the options that a job sees as they were written.
type AskedText struct {
	NTasksPerNode, NTasksPerCore, NTasksPerSocket, NTasksPerGPU string
	CPUsPerGPU, ThreadsPerCore, Distribution, PlaneSize         string
	GPUs, GPUsPerNode, GPUsPerSocket, GPUBind, GPUFreq          string
	GPUsPerTask                                                 string
	TRESPerTask, Network, Profile, SegmentSize                  string
	Container, ContainerID, ExportEnv, Overcommit, OOMKillStep  string
	MemBind, MemBindList, MemBindPrefer, MemBindType            string
	MemBindVerbose                                              string
	OpenMode                                                    string
}

// variable is one row of the table: a name and what it holds; absent if empty.
type variable struct {
	name  string
	value func(*BatchFacts) string
}

func formatNumber(n uint64) string { return strconv.FormatUint(n, 10) }

func formatPositive[T uint32 | int64 | uint64](n T) string {
	if n <= 0 {
		return ""
	}
	return formatNumber(uint64(n))
}

func unixTime(t spec.Instant) string {
	if t == 0 || t == spec.FarFuture {
		return ""
	}
	return strconv.FormatInt(t.Unix(), 10)
}

func inArray(facts *BatchFacts, n uint64) string {
	if facts.ArrayTask == spec.NoTask {
		return ""
	}
	return formatNumber(n)
}

func cpusHere(facts *BatchFacts) string {
	if int(facts.NodeIndex) < len(facts.CPUsPerNode) {
		return formatPositive(facts.CPUsPerNode[facts.NodeIndex])
	}
	return ""
}

// Runs folds counts as Slurm writes them: 4(x2),3.
func Runs(counts []uint32) string {
	var text strings.Builder
	for i := 0; i < len(counts); {
		j := i
		for j < len(counts) && counts[j] == counts[i] {
			j++
		}
		if i > 0 {
			text.WriteByte(',')
		}
		text.WriteString(formatNumber(uint64(counts[i])))
		if n := j - i; n > 1 {
			text.WriteString("(x" + strconv.Itoa(n) + ")")
		}
		i = j
	}
	return text.String()
}

// gpuIndexes lists this node's devices by the node's numbering, or from 0 if
// the job can see no others.
func gpuIndexes(facts *BatchFacts, relative bool) string {
	var out []string
	for i, gpu := range facts.GPUs {
		n := uint64(gpu.Index)
		if relative {
			n = uint64(i)
		}
		out = append(out, formatNumber(n))
	}
	return strings.Join(out, ",")
}

func visible(vendors ...GPUVendor) func(*BatchFacts) string {
	return func(facts *BatchFacts) string {
		if !slices.Contains(vendors, facts.GPUVendor) {
			return ""
		}
		return gpuIndexes(facts, facts.GPUsFenced)
	}
}

// identityVariables are the variables that say which job this is.
func identityVariables() []variable {
	return []variable{
		{"SLURM_CLUSTER_NAME", func(f *BatchFacts) string { return f.Cluster }},
		{"SLURM_CONF", func(f *BatchFacts) string { return f.ConfigFile }},
		{"SLURM_JOB_ID", func(f *BatchFacts) string { return formatNumber(f.JobID) }},
		{"SLURM_JOBID", func(f *BatchFacts) string { return formatNumber(f.JobID) }},
		{"SLURM_JOB_NAME", func(f *BatchFacts) string { return f.JobName }},
		{"SLURM_JOB_PARTITION", func(f *BatchFacts) string { return f.Partition }},
		{"SLURM_JOB_ACCOUNT", func(f *BatchFacts) string { return f.Account }},
		{"SLURM_JOB_QOS", func(f *BatchFacts) string { return f.QOS }},
		{"SLURM_JOB_RESERVATION", func(f *BatchFacts) string { return f.Reservation }},
		{"SLURM_JOB_DEPENDENCY", func(f *BatchFacts) string { return f.Dependency }},
		{"SLURM_JOB_LICENSES", func(f *BatchFacts) string { return f.Licenses }},
		{"SLURM_JOB_USER", func(f *BatchFacts) string { return f.User }},
		{"SLURM_JOB_UID", func(f *BatchFacts) string { return formatNumber(uint64(f.UID)) }},
		{"SLURM_JOB_GROUP", func(f *BatchFacts) string { return f.Group }},
		{"SLURM_JOB_GID", func(f *BatchFacts) string { return formatNumber(uint64(f.GID)) }},
		{"SLURM_JOB_START_TIME", func(f *BatchFacts) string { return unixTime(f.Start) }},
		{"SLURM_JOB_END_TIME", func(f *BatchFacts) string { return unixTime(f.End) }},
		{"SLURM_SUBMIT_DIR", func(f *BatchFacts) string { return f.SubmitDir }},
		{"SLURM_SUBMIT_HOST", func(f *BatchFacts) string { return f.SubmitHost }},
		{"SLURM_RESTART_COUNT", func(f *BatchFacts) string { return formatPositive(f.Restarts) }},
		{"SLURM_HET_SIZE", func(f *BatchFacts) string { return formatPositive(f.HetSize) }},
		{"SLURM_ARRAY_JOB_ID", func(f *BatchFacts) string { return inArray(f, f.ArrayJob) }},
		{
			"SLURM_ARRAY_TASK_ID",
			func(f *BatchFacts) string { return inArray(f, uint64(f.ArrayTask)) },
		},
		{"SLURM_ARRAY_TASK_COUNT", func(f *BatchFacts) string { return inArray(f, f.ArrayCount) }},
		{"SLURM_ARRAY_TASK_MIN", func(f *BatchFacts) string { return inArray(f, f.ArrayMin) }},
		{"SLURM_ARRAY_TASK_MAX", func(f *BatchFacts) string { return inArray(f, f.ArrayMax) }},
		{"SLURM_ARRAY_TASK_STEP", func(f *BatchFacts) string { return inArray(f, f.ArrayStep) }},
	}
}

// placeVariables are the variables that say where it runs and on what.
func placeVariables() []variable {
	zero := func(*BatchFacts) string { return "0" }
	return []variable{
		{"SLURMD_NODENAME", func(f *BatchFacts) string { return f.NodeName }},
		{"SLURM_JOB_NODELIST", func(f *BatchFacts) string { return f.Nodelist }},
		{"SLURM_NODELIST", func(f *BatchFacts) string { return f.Nodelist }},
		{
			"SLURM_JOB_NUM_NODES",
			func(f *BatchFacts) string { return formatNumber(uint64(len(f.CPUsPerNode))) },
		},
		{
			"SLURM_NNODES",
			func(f *BatchFacts) string { return formatNumber(uint64(len(f.CPUsPerNode))) },
		},
		{"SLURM_NODEID", func(f *BatchFacts) string { return formatNumber(uint64(f.NodeIndex)) }},
		{
			"SLURM_PROCID",
			zero,
		}, {"SLURM_LOCALID", zero}, {"SLURM_GTIDS", zero}, {"SLURM_PRIO_PROCESS", func(f *BatchFacts) string { return cmp.Or(f.Nice, "0") }},
		{"SLURM_CPUS_ON_NODE", cpusHere},
		{"SLURM_JOB_CPUS_PER_NODE", func(f *BatchFacts) string { return Runs(f.CPUsPerNode) }},
		{"SLURM_TASKS_PER_NODE", func(f *BatchFacts) string { return Runs(f.TasksOnNode) }},
		{"SLURM_TOPOLOGY_ADDR", func(f *BatchFacts) string { return f.Topology }},
		{"SLURM_TOPOLOGY_ADDR_PATTERN", func(f *BatchFacts) string { return f.TopologyBy }},
		{"SLURM_MEM_PER_NODE", func(f *BatchFacts) string { return formatPositive(f.MemPerNode) }},
		{"SLURM_MEM_PER_CPU", func(f *BatchFacts) string { return formatPositive(f.MemPerCPU) }},
		{"SLURM_MEM_PER_GPU", func(f *BatchFacts) string { return formatPositive(f.MemPerGPU) }},
		{"SLURM_NTASKS", func(f *BatchFacts) string { return formatPositive(f.Tasks) }},
		{"SLURM_NPROCS", func(f *BatchFacts) string { return formatPositive(f.Tasks) }},
		{
			"SLURM_CPUS_PER_TASK",
			func(f *BatchFacts) string { return formatPositive(f.CPUsPerTask) },
		},
		{"SLURM_JOB_GPUS", func(f *BatchFacts) string { return gpuIndexes(f, false) }},
		{
			"SLURM_GPUS_ON_NODE",
			func(f *BatchFacts) string { return formatPositive(uint64(f.Whole)) },
		},
		{
			"SLURM_SHARDS_ON_NODE",
			func(f *BatchFacts) string { return formatPositive(f.ShardsHere) },
		},
		{"CUDA_VISIBLE_DEVICES", visible(NVIDIA)},
		{"GPU_DEVICE_ORDINAL", visible(NVIDIA, AMD)},
		{"ROCR_VISIBLE_DEVICES", visible(AMD)},
		{"ZE_AFFINITY_MASK", visible(Intel)},
	}
}

// askedVariables are the variables that repeat an option's text.
func askedVariables() []variable {
	return []variable{
		{"SLURM_NTASKS_PER_NODE", func(f *BatchFacts) string { return f.Asked.NTasksPerNode }},
		{"SLURM_NTASKS_PER_CORE", func(f *BatchFacts) string { return f.Asked.NTasksPerCore }},
		{"SLURM_NTASKS_PER_SOCKET", func(f *BatchFacts) string { return f.Asked.NTasksPerSocket }},
		{"SLURM_NTASKS_PER_GPU", func(f *BatchFacts) string { return f.Asked.NTasksPerGPU }},
		{"SLURM_CPUS_PER_GPU", func(f *BatchFacts) string { return f.Asked.CPUsPerGPU }},
		{"SLURM_THREADS_PER_CORE", func(f *BatchFacts) string { return f.Asked.ThreadsPerCore }},
		{"SLURM_DISTRIBUTION", func(f *BatchFacts) string { return f.Asked.Distribution }},
		{"SLURM_DIST_PLANESIZE", func(f *BatchFacts) string { return f.Asked.PlaneSize }},
		{"SLURM_GPUS", func(f *BatchFacts) string { return f.Asked.GPUs }},
		{"SLURM_GPUS_PER_NODE", func(f *BatchFacts) string { return f.Asked.GPUsPerNode }},
		{"SLURM_GPUS_PER_SOCKET", func(f *BatchFacts) string { return f.Asked.GPUsPerSocket }},
		{"SLURM_GPUS_PER_TASK", func(f *BatchFacts) string { return f.Asked.GPUsPerTask }},
		{"SLURM_GPU_BIND", func(f *BatchFacts) string { return f.Asked.GPUBind }},
		{"SLURM_GPU_FREQ", func(f *BatchFacts) string { return f.Asked.GPUFreq }},
		{"SLURM_TRES_PER_TASK", func(f *BatchFacts) string { return f.Asked.TRESPerTask }},
		{"SLURM_NETWORK", func(f *BatchFacts) string { return f.Asked.Network }},
		{"SLURM_PROFILE", func(f *BatchFacts) string { return f.Asked.Profile }},
		{"SLURM_JOB_SEGMENT_SIZE", func(f *BatchFacts) string { return f.Asked.SegmentSize }},
		{"SLURM_CONTAINER", func(f *BatchFacts) string { return f.Asked.Container }},
		{"SLURM_CONTAINER_ID", func(f *BatchFacts) string { return f.Asked.ContainerID }},
		{"SLURM_EXPORT_ENV", func(f *BatchFacts) string { return f.Asked.ExportEnv }},
		{"SLURM_OPEN_MODE", func(f *BatchFacts) string { return f.Asked.OpenMode }},
		{"SLURM_OVERCOMMIT", func(f *BatchFacts) string { return f.Asked.Overcommit }},
		{"SLURM_OOMKILLSTEP", func(f *BatchFacts) string { return f.Asked.OOMKillStep }},
		{"SBATCH_MEM_BIND", func(f *BatchFacts) string { return f.Asked.MemBind }},
		{"SBATCH_MEM_BIND_LIST", func(f *BatchFacts) string { return f.Asked.MemBindList }},
		{"SBATCH_MEM_BIND_PREFER", func(f *BatchFacts) string { return f.Asked.MemBindPrefer }},
		{"SBATCH_MEM_BIND_TYPE", func(f *BatchFacts) string { return f.Asked.MemBindType }},
		{"SBATCH_MEM_BIND_VERBOSE", func(f *BatchFacts) string { return f.Asked.MemBindVerbose }},
	}
}

// taskPID is set by the shepherd, which alone knows it.
const taskPID = "SLURM_TASK_PID"

// BatchEnv builds the environment of a batch script from the one that the job
// was submitted with and the facts. Every variable of the table is ours: one
// that the facts leave empty is absent, even if the job was submitted from
// inside another job that had it. Ours come last, in the order of the table;
// the user's keep their order, and of a repeated name the last one counts.
func BatchEnv(user []string, facts *BatchFacts) []string {
	table := slices.Concat(identityVariables(), placeVariables(), askedVariables())
	table = append(table, variable{"ENVIRONMENT", func(*BatchFacts) string { return "BATCH" }},
		variable{"HOSTNAME", func(f *BatchFacts) string { return f.NodeName }})
	ours := make(map[string]bool, len(table)+2)
	for _, v := range table {
		ours[v.name] = true
	}
	ours[taskPID], ours["MUSTER_RUN"] = true, true

	last := make(map[string]int, len(user))
	for i, e := range user {
		name, _, ok := strings.Cut(e, "=")
		if ok && name != "" && !ours[name] {
			last[name] = i
		}
	}
	out := make([]string, 0, len(user)+len(table)+1)
	for i, e := range user {
		name, _, _ := strings.Cut(e, "=")
		if at, ok := last[name]; ok && at == i {
			out = append(out, e)
		}
	}
	if _, ok := last["TMPDIR"]; !ok {
		out = append(out, "TMPDIR=/tmp")
	}
	for _, v := range table {
		if s := v.value(facts); s != "" {
			out = append(out, v.name+"="+s)
		}
	}
	return out
}
