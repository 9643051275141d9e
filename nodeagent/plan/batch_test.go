package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/musterhpc/muster/spec"
	"pgregory.net/rapid"
)

func set(cpus ...int) (b spec.Bitset) {
	for _, c := range cpus {
		b = b.Set(c)
	}
	return b
}

// labJob is job 112 of the reference cluster as the agent learns it, and
// labNode the node it ran on.
func labJob() *Job {
	return &Job{
		Key: Key(112, 1, StepBatch), ID: 112, Task: spec.NoTask, User: "alice", UID: 1001, GID: 1001, Partition: "gpu", Nodes: "node2",
		Spec: &spec.JobSpec{Name: "gpuenv", Account: "ml", QOS: "normal", Host: "vm",
			IO: spec.JobIO{WorkDir: "/lab/jobs"}, Size: spec.Size{PerNode: []spec.Count{{Name: "gpu", N: 3}}}},
		Here: spec.NodeAlloc{Name: "node2", CPUs: set(0), Mem: 500, Tasks: 1,
			GPUs: []spec.GPURef{{UUID: "GPU-0"}, {UUID: "GPU-1", Index: 1}, {UUID: "GPU-2", Index: 2}}},
		CPUsPerNode: []uint32{1}, TasksOnNode: []uint32{1},
		Tasks: 1, Script: []byte("#!/bin/sh\n"), GPUEnv: []string{"CUDA_DEVICE_ORDER=PCI_BUS_ID", "CUDA_VISIBLE_DEVICES=0,1,2"},
		Env: []byte("PATH=/bin\x00HOME=/home/alice\x00CUDA_VISIBLE_DEVICES=7\x00SLURM_JOB_ID=1\x00SLURM_ARRAY_TASK_ID=9\x00SLURM_SUBMIT_DIR=/from\x00X=a=b\x00"),
	}
}

func labNode() *Node {
	return &Node{Name: "node2", Host: "vm", Cluster: "peer", SlurmConf: "/etc/slurm/slurm.conf", MemoryMiB: 8000, CPUs: set(0, 1),
		HasGPUs: true, Memory: MemoryDefault{PerCPU: 500}}
}

func TestBatchEnvironment(t *testing.T) {
	for _, c := range []struct {
		name string
		prep func(*Job, *Node)
		want []string // NAME=value, or NAME for one that must not be there
	}{
		{"as it is", func(*Job, *Node) {}, []string{"PATH=/bin", "X=a=b", "SLURM_JOB_ID=112", "SLURM_ARRAY_TASK_ID", "SLURM_SUBMIT_DIR=/from",
			"CUDA_VISIBLE_DEVICES=0,1,2", "CUDA_DEVICE_ORDER=PCI_BUS_ID", "SLURM_JOB_GPUS=0,1,2", "SLURM_GPUS_ON_NODE=3", "SLURM_MEM_PER_CPU=500",
			"SLURM_NTASKS", "SLURM_CPUS_PER_TASK", "SLURM_JOB_END_TIME", "SLURM_RESTART_COUNT", "SLURM_GPUS", "SLURM_GPUS_PER_NODE=3"}},
		{"array task", func(j *Job, _ *Node) {
			j.ArrayID, j.Task = 113, 3
			j.Spec.Queue.Array = spec.NewArrayAsk(spec.TaskSet{{First: 3, Last: 4, Step: 1}}, 0)
		}, []string{"SLURM_ARRAY_JOB_ID=113", "SLURM_ARRAY_TASK_COUNT=2", "SLURM_ARRAY_TASK_ID=3", "SLURM_ARRAY_TASK_MAX=4", "SLURM_ARRAY_TASK_MIN=3", "SLURM_ARRAY_TASK_STEP=1"}},
		{"several nodes", func(j *Job, _ *Node) {
			j.Nodes, j.Tasks, j.Spec.Size.TasksPerNode, j.Spec.Size.CPUsPerTask = "n[1-3]", 11, 4, 2
			j.Here, j.CPUsPerNode, j.TasksOnNode = spec.NodeAlloc{CPUs: set(0, 1, 2, 3), Tasks: 4}, []uint32{4, 4, 3}, []uint32{4, 4, 3}
		}, []string{"SLURM_TASKS_PER_NODE=4(x2),3", "SLURM_JOB_CPUS_PER_NODE=4(x2),3", "SLURM_NNODES=3", "SLURM_NTASKS=11", "SLURM_NPROCS=11",
			"SLURM_NTASKS_PER_NODE=4", "SLURM_CPUS_PER_TASK=2", "SLURM_CPUS_ON_NODE=4", "SLURM_NODEID=0"}},
		{"memory by node", func(j *Job, _ *Node) { j.Spec.Size.MemPerNode = 2048 }, []string{"SLURM_MEM_PER_NODE=2048", "SLURM_MEM_PER_CPU"}},
		{"memory by the partition", func(_ *Job, n *Node) { n.Parts = map[string]MemoryDefault{"gpu": {PerGPU: 900}} }, []string{"SLURM_MEM_PER_GPU=900", "SLURM_MEM_PER_CPU", "SLURM_MEM_PER_NODE"}},
		{"all memory", func(j *Job, _ *Node) { j.Spec.Size.AllMem = true }, []string{"SLURM_MEM_PER_NODE=500", "SLURM_MEM_PER_CPU"}},
		{"times", func(j *Job, _ *Node) { j.Start, j.End, j.Restarts = spec.AtUnix(100), spec.AtUnix(160), 2 }, []string{"SLURM_JOB_START_TIME=100", "SLURM_JOB_END_TIME=160", "SLURM_RESTART_COUNT=2"}},
		{"GPUs of the job", func(j *Job, _ *Node) {
			j.Spec.Size.PerJob = []spec.Count{{Name: "gpu", Type: "h100", N: 4}, {Name: "nic", N: 1}}
		}, []string{"SLURM_GPUS=h100:4"}},
		{"GPUs of each task", func(j *Job, _ *Node) {
			j.Spec.Size.PerTask = []spec.Count{{Name: "gpu", Type: "h100", N: 2}}
		}, []string{"SLURM_GPUS_PER_TASK=h100:2", "SLURM_TRES_PER_TASK=gres/gpu:h100=2"}},
		{"licences", func(j *Job, _ *Node) { j.Spec.Licenses = []spec.Count{{Name: "matlab", N: 2}, {Name: "ansys", N: 1}} }, []string{"SLURM_JOB_LICENSES=matlab:2,ansys:1"}},
		{"append", func(j *Job, _ *Node) { j.Spec.IO.Append = spec.Yes }, []string{"SLURM_OPEN_MODE=a"}},
		{"truncate", func(j *Job, _ *Node) { j.Spec.IO.Append = spec.No }, []string{"SLURM_OPEN_MODE=t"}},
		{"plane", func(j *Job, _ *Node) { j.Spec.Place.Distribution = "plane=8" }, []string{"SLURM_DISTRIBUTION=plane", "SLURM_DIST_PLANESIZE=8"}},
		{"no environment", func(j *Job, _ *Node) { j.Env, j.Home = nil, "/home/alice" },
			[]string{"PATH=" + defaultPath, "USER=alice", "LOGNAME=alice", "HOME=/home/alice", "SHELL", "SLURM_SUBMIT_DIR=/lab/jobs", "SLURM_SUBMIT_HOST=vm"}},
	} {
		j, n := labJob(), labNode()
		c.prep(j, n)
		r, _ := Batch(j, n)
		for _, want := range c.want {
			has := slices.ContainsFunc(r.Env, func(e string) bool { return e == want || strings.HasPrefix(e, want+"=") })
			if has != strings.Contains(want, "=") {
				t.Errorf("%s: %s: %v", c.name, want, has)
			}
		}
	}
}

// TestEnvironmentNamesOnce: programs differ in which of two entries they
// believe.
func TestEnvironmentNamesOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		j, n := labJob(), labNode()
		names := []string{"PATH", "SLURM_JOB_ID", "SLURM_NTASKS", "CUDA_VISIBLE_DEVICES", "USER", "CUDA_DEVICE_ORDER", "A"}
		picked := rapid.SliceOf(rapid.SampledFrom(names)).Draw(t, "names")
		j.Env = []byte(strings.Join(picked, "=1\x00") + "=1\x00")
		r, _ := Batch(j, n)
		seen := map[string]bool{}
		for _, e := range r.Env {
			name, _, _ := strings.Cut(e, "=")
			if seen[name] {
				t.Fatalf("%s is there twice", name)
			}
			seen[name] = true
		}
		for _, p := range picked {
			if !seen[p] && p != "SLURM_NTASKS" {
				t.Fatalf("%s is lost", p)
			}
		}
	})
}

func TestBatch(t *testing.T) {
	j, n := labJob(), labNode()
	j.Spec.IO.Stderr = "%x-%N.err"
	j.Spec.IO.Rlimits = []spec.Count{{Name: "NOFILE", N: 4096}, {Name: "RLIMIT_CORE", N: -1}, {Name: "FROBS", N: 1}}
	j.Env = append(j.Env, "SLURM_UMASK=0027\x00"...)
	r, warnings := Batch(j, n)
	if r.Stdout != "slurm-112.out" || r.Stderr != "gpuenv-vm.err" || r.Stdin != "" || r.Append || r.Umask != 0o027 || r.WorkDir != "/lab/jobs" {
		t.Errorf("%+v", r)
	}
	want := []Rlimit{{Resource: 7, Soft: 4096, Hard: RlimitKeep}, {Resource: 4, Soft: RlimitInfinity, Hard: RlimitKeep}}
	if !slices.Equal(r.Rlimits, want) || len(warnings) != 1 || !strings.Contains(warnings[0], "FROBS") {
		t.Errorf("%+v %q", r.Rlimits, warnings)
	}
	if r.CPUs != nil || !r.Limits.IsZero() || r.FenceDevices {
		t.Errorf("nothing is configured, and yet %+v", r)
	}
	n.Append, n.TaskProlog = true, "/etc/slurm/task.sh"
	if r, _ := Batch(j, n); !r.Append || r.TaskProlog != n.TaskProlog {
		t.Error("JobFileAppend or TaskProlog is ignored")
	}
	j.Spec.IO.Append, j.ArrayID, j.Task = spec.No, 100, 12
	if r, _ := Batch(j, n); r.Append || r.Stdout != "slurm-100_12.out" {
		t.Errorf("append %v, output %s", r.Append, r.Stdout)
	}
}

func TestBatchConfinement(t *testing.T) {
	all := Enforces{Memory: true, Cores: true, Devices: true}
	for _, c := range []struct {
		name  string
		prep  func(*Job, *Node)
		cpus  []int32
		want  Limits
		fence bool
	}{
		{"affinity", func(_ *Job, n *Node) { n.Affinity = true }, []int32{0}, Limits{}, false},
		{"more CPUs declared than there are", func(j *Job, n *Node) { n.Affinity, j.Here.CPUs = true, set(0, 17) }, nil, Limits{}, false},
		{"cores", func(_ *Job, n *Node) { n.Confine.Cores = true }, []int32{0}, Limits{Cores: true}, false},
		{"cores that nobody can enforce", func(_ *Job, n *Node) { n.Confine.Cores, n.Enforces = true, Enforces{} }, []int32{0}, Limits{}, false},
		{"memory", func(_ *Job, n *Node) { n.Confine.RAM = true }, nil, Limits{MemoryBytes: 500 << 20}, false},
		{"memory that nobody can enforce", func(_ *Job, n *Node) { n.Confine.RAM, n.Enforces = true, Enforces{} }, nil, Limits{}, false},
		{"a share of memory", func(_ *Job, n *Node) { n.Confine.RAM, n.Confine.AllowedRAM = true, 15_000 }, nil, Limits{MemoryBytes: 750 << 20}, false},
		{"the least memory", func(j *Job, n *Node) { n.Confine.RAM, n.Confine.MinRAM, j.Here.Mem = true, 30, 1 }, nil, Limits{MemoryBytes: 30 << 20}, false},
		{"the most memory", func(j *Job, n *Node) { n.Confine.RAM, n.Confine.MaxRAM, j.Here.Mem = true, 5_000, 7_000 }, nil, Limits{MemoryBytes: 4000 << 20}, false},
		{"no memory given", func(j *Job, n *Node) { n.Confine.RAM, j.Here.Mem = true, 0 }, nil, Limits{MemoryBytes: 8000 << 20}, false},
		{"no swap", func(_ *Job, n *Node) { n.Confine.RAM, n.Confine.Swap = true, true }, nil, Limits{MemoryBytes: 500 << 20, SwapBytes: NoSwap}, false},
		{"some swap", func(_ *Job, n *Node) { n.Confine.RAM, n.Confine.Swap, n.Confine.AllowedSwap = true, true, 1_000 }, nil, Limits{MemoryBytes: 500 << 20, SwapBytes: 50 << 20}, false},
		{"devices", func(_ *Job, n *Node) { n.Confine.Devices = true }, nil, Limits{}, true},
	} {
		j, n := labJob(), labNode()
		n.Enforces, n.Confine.AllowedRAM, n.Confine.MaxRAM = all, 10_000, 10_000
		c.prep(j, n)
		r, _ := Batch(j, n)
		if !slices.Equal(r.CPUs, c.cpus) || r.Limits != c.want || r.FenceDevices != c.fence {
			t.Errorf("%s: CPUs %v, limits %+v, fence %v", c.name, r.CPUs, r.Limits, r.FenceDevices)
		}
	}
}

func BenchmarkBatch(b *testing.B) {
	j, n := labJob(), labNode()
	var env strings.Builder
	for i := range 80 {
		env.WriteString("SOME_VARIABLE_" + string(rune('a'+i%26)) + string(rune('a'+i/26)) + "=" + strings.Repeat("v", 80) + "\x00")
	}
	j.Env = []byte(env.String())
	b.ReportAllocs()
	for b.Loop() {
		Batch(j, n)
	}
}

// What the batch script of a heterogeneous job learns about its components; what
// another job left in its environment is gone.
func TestHetVariables(t *testing.T) {
	got := hetVariables([]Component{
		{ID: 12, Partition: "cpu", Nodes: "c[1-2]", NumNodes: 2, Tasks: 8, CPUsPerNode: "4(x2)", TasksPerNode: "4(x2)", Mem: 400},
		{ID: 13, Partition: "gpu", Nodes: "g1", NumNodes: 1, Tasks: 1, CPUsPerNode: "2", TasksPerNode: "1", Mem: 600, CPUsPerTask: 3, MemPerCPU: 200},
	})
	for _, want := range []string{"SLURM_HET_SIZE=2", "SLURM_CPUS_PER_TASK_HET_GROUP_1=3", "SLURM_MEM_PER_CPU_HET_GROUP_1=200", "SLURM_JOB_ID_HET_GROUP_0=12", "SLURM_JOB_ID_HET_GROUP_1=13", "SLURM_JOB_NODELIST_HET_GROUP_0=c[1-2]",
		"SLURM_JOB_CPUS_PER_NODE_HET_GROUP_0=4(x2)", "SLURM_TASKS_PER_NODE_HET_GROUP_1=1", "SLURM_NTASKS_HET_GROUP_0=8", "SLURM_JOB_PARTITION_HET_GROUP_1=gpu",
		"SLURM_JOB_NUM_NODES_HET_GROUP_0=2", "SLURM_MEM_PER_NODE_HET_GROUP_0=400"} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is missing in %v", want, got)
		}
	}
	if slices.ContainsFunc(got, func(e string) bool {
		return strings.HasPrefix(e, "SLURM_MEM_PER_NODE_HET_GROUP_1") || strings.HasPrefix(e, "SLURM_CPUS_PER_TASK_HET_GROUP_0")
	}) || hetVariables(nil) != nil {
		t.Errorf("too much is told: %v", got)
	}
}
