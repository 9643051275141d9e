package plan

import (
	"slices"
	"strings"
	"testing"

	"github.com/musterhpc/muster/spec"
)

func TestExpandFile(t *testing.T) {
	job := FileFacts{JobID: 42, ArrayTask: spec.NoTask, Step: StepBatch, Node: "node1", User: "alice", JobName: "train", Restarts: 2}
	task := job
	task.JobID, task.ArrayJob, task.ArrayTask, task.Step, task.NodeIndex, task.Task = 50, 42, 137, 3, 1, 7
	for _, c := range []struct {
		pattern   string
		job, task string
	}{
		{"slurm-%j.out", "slurm-42.out", "slurm-50.out"},
		{"slurm-%A_%a.out", "slurm-42_4294967294.out", "slurm-42_137.out"},
		{"%b", "4", "7"},
		{"%J", "42", "50.3"},
		{"%s-%n-%t-%N", "batch-0-0-node1", "3-1-7-node1"},
		{"%u/%x", "alice/train", "alice/train"},
		{"%r", "2", "2"},
		{"%5j|%05j|%3a", "00042|00042|4294967294", "00050|00050|137"},
		{"%12j", "0000000042", "0000000050"},
		{"%999999999999999999999j", "0000000042", "0000000050"},
		{"%4u|%4s", "alice|batch", "alice|0003"},
		{"100%%|%%j", "100%|%j", "100%|%j"},
		{"%q %S %", "%q %S %", "%q %S %"},
		{"%4", "%4", "%4"},
		{`\%j`, "%j", "%j"},
		{`%j\x`, "%jx", "%jx"},
		{`a\\%j`, `a\%j`, `a\%j`},
		{"", "", ""},
	} {
		if got := ExpandFile(c.pattern, &job); got != c.job {
			t.Errorf("%q of a job: %q, want %q", c.pattern, got, c.job)
		}
		if got := ExpandFile(c.pattern, &task); got != c.task {
			t.Errorf("%q of an array task: %q, want %q", c.pattern, got, c.task)
		}
	}
	job.SLUID = "s4ZA"
	if got := ExpandFile("%S", &job); got != "s4ZA" {
		t.Errorf("%%S: %q", got)
	}
	if DefaultOutput(false) != "slurm-%j.out" || DefaultOutput(true) != "slurm-%A_%a.out" {
		t.Error("default names differ from Slurm's")
	}
	for pattern, want := range map[string]bool{"%t": true, "a%2n": true, "%N": true, "%%t": false, "%j": false, `\%t`: false} {
		if FilePerTask(pattern) != want {
			t.Errorf("one file per task for %q: %v", pattern, !want)
		}
	}
}

func FuzzExpandFile(f *testing.F) {
	f.Add("slurm-%A_%4a.out")
	f.Add(`\%j%`)
	f.Fuzz(func(t *testing.T, p string) {
		facts := FileFacts{JobID: 1, ArrayTask: spec.NoTask}
		got := ExpandFile(p, &facts)
		if !strings.ContainsAny(p, `%\`) && got != p {
			t.Fatalf("%q became %q", p, got)
		}
		FilePerTask(p)
	})
}

// gpuFacts are those of job 112 of the reference cluster: three GPUs of one node.
func gpuFacts() *BatchFacts {
	return &BatchFacts{Cluster: "peer", ConfigFile: "/etc/slurm/slurm.conf", JobID: 112, ArrayTask: spec.NoTask,
		JobName: "gpuenv", Partition: "gpu", Account: "ml", QOS: "normal", User: "alice", UID: 1001, GID: 1001,
		SubmitDir: "/lab/jobs", SubmitHost: "vm", NodeName: "node2", Nodelist: "node2", CPUsPerNode: []uint32{1},
		TasksOnNode: []uint32{1}, Topology: "node2", TopologyBy: "node", MemPerCPU: 500,
		GPUs: []spec.GPURef{{Index: 0}, {Index: 1}, {Index: 2}}, Whole: 3}
}

func TestBatchEnvIsWhatARealSlurmGave(t *testing.T) {
	// What a real Slurm gave that job, of the names that start with SLURM,
	// CUDA or GPU, but for three: SLURM_TASK_PID is the shepherd's, and
	// SLURM_NODE_ALIASES and SLURM_WORKING_CLUSTER are not documented any more.
	want := strings.Fields(`CUDA_VISIBLE_DEVICES=0,1,2 GPU_DEVICE_ORDINAL=0,1,2 SLURMD_NODENAME=node2 SLURM_CLUSTER_NAME=peer
		SLURM_CONF=/etc/slurm/slurm.conf SLURM_CPUS_ON_NODE=1 SLURM_GPUS_ON_NODE=3 SLURM_GTIDS=0 SLURM_JOBID=112 SLURM_JOB_ACCOUNT=ml
		SLURM_JOB_CPUS_PER_NODE=1 SLURM_JOB_GID=1001 SLURM_JOB_GPUS=0,1,2 SLURM_JOB_ID=112 SLURM_JOB_NAME=gpuenv
		SLURM_JOB_NODELIST=node2 SLURM_JOB_NUM_NODES=1 SLURM_JOB_PARTITION=gpu SLURM_JOB_QOS=normal SLURM_JOB_UID=1001
		SLURM_JOB_USER=alice SLURM_LOCALID=0 SLURM_MEM_PER_CPU=500 SLURM_NNODES=1 SLURM_NODEID=0 SLURM_NODELIST=node2
		SLURM_PRIO_PROCESS=0 SLURM_PROCID=0 SLURM_SUBMIT_DIR=/lab/jobs SLURM_SUBMIT_HOST=vm SLURM_TASKS_PER_NODE=1
		SLURM_TOPOLOGY_ADDR=node2 SLURM_TOPOLOGY_ADDR_PATTERN=node`)
	var got []string
	for _, e := range BatchEnv(nil, gpuFacts()) {
		if strings.HasPrefix(e, "SLURM") || strings.HasPrefix(e, "CUDA") || strings.HasPrefix(e, "GPU") {
			got = append(got, e)
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestBatchEnvOfAnArrayTask(t *testing.T) {
	f := gpuFacts()
	f.JobID, f.ArrayJob, f.ArrayTask, f.ArrayCount, f.ArrayMin, f.ArrayMax, f.ArrayStep = 114, 113, 3, 2, 3, 4, 1
	f.GPUs, f.Whole, f.Restarts, f.Start, f.End = nil, 0, 1, spec.AtUnix(1000), spec.AtUnix(2000)
	env := BatchEnv(nil, f)
	for _, want := range []string{"SLURM_ARRAY_JOB_ID=113", "SLURM_ARRAY_TASK_COUNT=2", "SLURM_ARRAY_TASK_ID=3", "SLURM_ARRAY_TASK_MAX=4",
		"SLURM_ARRAY_TASK_MIN=3", "SLURM_ARRAY_TASK_STEP=1", "SLURM_JOB_ID=114", "SLURM_RESTART_COUNT=1",
		"SLURM_JOB_START_TIME=1000", "SLURM_JOB_END_TIME=2000", "ENVIRONMENT=BATCH", "HOSTNAME=node2", "TMPDIR=/tmp"} {
		if !slices.Contains(env, want) {
			t.Errorf("%s is missing", want)
		}
	}
	for _, e := range env {
		if strings.HasPrefix(e, "CUDA_VISIBLE_DEVICES") || strings.HasPrefix(e, "SLURM_JOB_GPUS") {
			t.Errorf("a job without GPUs has %s", e)
		}
	}
	// Task 0 of an array is a task.
	f.ArrayTask = 0
	if env := BatchEnv(nil, f); !slices.Contains(env, "SLURM_ARRAY_TASK_ID=0") {
		t.Error("array task 0 does not see its number")
	}
}

func TestBatchEnvDropsWhatAnotherJobLeft(t *testing.T) {
	f := gpuFacts()
	f.GPUs = nil
	env := BatchEnv([]string{"PATH=/bin", "SLURM_CPUS_PER_TASK=9", "SLURM_JOB_ID=1", "CUDA_VISIBLE_DEVICES=7", "SLURM_ARRAY_TASK_ID=4",
		"SLURM_TASK_PID=5", "MUSTER_RUN=1.0.batch/x", "A=1", "A=2", "broken", "=x", "TMPDIR=/scratch", "SLURM_EXIT_ERROR=3", "B=a=b"}, f)
	if !slices.Equal(env[:5], []string{"PATH=/bin", "A=2", "TMPDIR=/scratch", "SLURM_EXIT_ERROR=3", "B=a=b"}) {
		t.Errorf("the user's part is %q", env[:5])
	}
	count := map[string]int{}
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		count[name]++
	}
	for name, n := range count {
		if n > 1 {
			t.Errorf("%s is there %d times", name, n)
		}
	}
	for _, gone := range []string{"SLURM_CPUS_PER_TASK", "CUDA_VISIBLE_DEVICES", "SLURM_ARRAY_TASK_ID", "SLURM_TASK_PID", "MUSTER_RUN"} {
		if count[gone] != 0 {
			t.Errorf("%s of another job is still there", gone)
		}
	}
}

func TestFencedDevicesCountFromZero(t *testing.T) {
	f := gpuFacts()
	f.GPUs = []spec.GPURef{{Index: 5}, {Index: 7}}
	env := BatchEnv(nil, f)
	if !slices.Contains(env, "CUDA_VISIBLE_DEVICES=5,7") || !slices.Contains(env, "SLURM_JOB_GPUS=5,7") {
		t.Errorf("%q", env)
	}
	f.GPUsFenced = true
	env = BatchEnv(nil, f)
	if !slices.Contains(env, "CUDA_VISIBLE_DEVICES=0,1") || !slices.Contains(env, "SLURM_JOB_GPUS=5,7") {
		t.Errorf("%q", env)
	}
	f.GPUVendor = AMD
	env = BatchEnv(nil, f)
	if !slices.Contains(env, "ROCR_VISIBLE_DEVICES=0,1") || !slices.Contains(env, "GPU_DEVICE_ORDINAL=0,1") {
		t.Errorf("%q", env)
	}
}

func TestRunsFold(t *testing.T) {
	for want, in := range map[string][]uint32{"": nil, "1": {1}, "4(x2),3": {4, 4, 3}, "1,2,1(x3)": {1, 2, 1, 1, 1}} {
		if got := Runs(in); got != want {
			t.Errorf("%v: %q, want %q", in, got, want)
		}
	}
}

// TestTableHoldsSlurmsOutputVariables compares the table with the output
// environment that sbatch documents: none of its names is forgotten.
func TestTableHoldsSlurmsOutputVariables(t *testing.T) {
	documented := strings.Fields(`SBATCH_MEM_BIND SBATCH_MEM_BIND_LIST SBATCH_MEM_BIND_PREFER SBATCH_MEM_BIND_TYPE SBATCH_MEM_BIND_VERBOSE
		SLURM_ARRAY_JOB_ID SLURM_ARRAY_TASK_COUNT SLURM_ARRAY_TASK_ID SLURM_ARRAY_TASK_MAX SLURM_ARRAY_TASK_MIN SLURM_ARRAY_TASK_STEP
		SLURM_CLUSTER_NAME SLURM_CPUS_ON_NODE SLURM_CPUS_PER_GPU SLURM_CPUS_PER_TASK SLURM_CONTAINER SLURM_CONTAINER_ID SLURM_DIST_PLANESIZE
		SLURM_DISTRIBUTION SLURM_EXPORT_ENV SLURM_GPU_BIND SLURM_GPU_FREQ SLURM_GPUS SLURM_GPUS_ON_NODE SLURM_GPUS_PER_NODE
		SLURM_GPUS_PER_SOCKET SLURM_GPUS_PER_TASK SLURM_GTIDS SLURM_HET_SIZE SLURM_JOB_ACCOUNT SLURM_JOB_CPUS_PER_NODE SLURM_JOB_DEPENDENCY SLURM_JOB_END_TIME
		SLURM_JOB_GPUS SLURM_JOB_ID SLURM_JOB_LICENSES SLURM_JOB_NAME SLURM_JOB_NODELIST SLURM_JOB_NUM_NODES SLURM_JOB_PARTITION SLURM_JOB_QOS
		SLURM_JOB_RESERVATION SLURM_JOB_SEGMENT_SIZE SLURM_JOB_START_TIME SLURM_JOBID SLURM_LOCALID SLURM_MEM_PER_CPU SLURM_MEM_PER_GPU
		SLURM_MEM_PER_NODE SLURM_NETWORK SLURM_NNODES SLURM_NODEID SLURM_NODELIST SLURM_NPROCS SLURM_NTASKS SLURM_NTASKS_PER_CORE
		SLURM_NTASKS_PER_GPU SLURM_NTASKS_PER_NODE SLURM_NTASKS_PER_SOCKET SLURM_OOMKILLSTEP SLURM_OVERCOMMIT SLURM_PRIO_PROCESS SLURM_PROCID
		SLURM_PROFILE SLURM_RESTART_COUNT SLURM_SHARDS_ON_NODE SLURM_SUBMIT_DIR SLURM_SUBMIT_HOST SLURM_TASK_PID SLURM_TASKS_PER_NODE
		SLURM_THREADS_PER_CORE SLURM_TOPOLOGY_ADDR SLURM_TOPOLOGY_ADDR_PATTERN SLURM_TRES_PER_TASK SLURMD_NODENAME`)
	have := map[string]bool{taskPID: true}
	for _, v := range slices.Concat(identityVariables(), placeVariables(), askedVariables()) {
		if have[v.name] {
			t.Errorf("%s is in the table twice", v.name)
		}
		have[v.name] = true
	}
	for _, name := range documented {
		if !have[name] {
			t.Errorf("%s is missing", name)
		}
	}
}
