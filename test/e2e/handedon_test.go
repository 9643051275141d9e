package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// handed is an option of sbatch with the variables that Slurm hands on for it.
type handed struct {
	options string
	script  string // NAME=VALUE of the batch script; NAME= must not be there
	step    string // the same of the only task of `srun -n1`, or of task 0 of srun, that says nothing else
	whole   bool   // srun gives no number of tasks
}

// handedOn are the variables of a batch script, and what of them reaches a step in it that repeats
// no option. What a step decides by itself (its size) differs from the job's.
func handedOn() []handed {
	return []handed{
		{"", "SLURM_NTASKS= SLURM_NPROCS= SLURM_CPUS_PER_TASK= SLURM_GPUS= SLURM_EXPORT_ENV=", "SLURM_NTASKS=1 SLURM_NPROCS=1 SLURM_CPUS_PER_TASK=", false},
		{"-J name -A root -p gpu", "SLURM_JOB_NAME=name SLURM_JOB_ACCOUNT=root SLURM_JOB_PARTITION=gpu SLURM_JOB_QOS=normal",
			"SLURM_JOB_NAME=name SLURM_JOB_ACCOUNT=root SLURM_JOB_PARTITION=gpu SLURM_JOB_QOS=normal", false},
		{"-n2", "SLURM_NTASKS=2 SLURM_NPROCS=2 SLURM_JOB_NUM_NODES=1 SLURM_NNODES=1 SLURM_TASKS_PER_NODE=2",
			"SLURM_NTASKS=2 SLURM_NPROCS=2 SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NUM_NODES=1 SLURM_STEP_TASKS_PER_NODE=2", true},
		{"-N2 --ntasks-per-node=2", "SLURM_NTASKS_PER_NODE=2 SLURM_NTASKS=4 SLURM_TASKS_PER_NODE=2(x2) SLURM_JOB_NUM_NODES=2 SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0",
			"SLURM_NTASKS_PER_NODE=2 SLURM_NTASKS=4 SLURM_STEP_TASKS_PER_NODE=2(x2) SLURM_STEP_NUM_NODES=2", true},
		{"-n2 -c2", "SLURM_CPUS_PER_TASK=2 SLURM_TRES_PER_TASK=cpu=2 SLURM_JOB_CPUS_PER_NODE=4 SLURM_CPUS_ON_NODE=4",
			"SLURM_CPUS_PER_TASK=2 SLURM_TRES_PER_TASK=cpu=2 SLURM_CPUS_ON_NODE=4", true},
		{"-n2 --ntasks-per-core=1", "SLURM_NTASKS_PER_CORE=1", "SLURM_NTASKS_PER_CORE=1", true},
		{"-n2 --ntasks-per-socket=2", "SLURM_NTASKS_PER_SOCKET=2", "SLURM_NTASKS_PER_SOCKET=2", true},
		{"--threads-per-core=1", "SLURM_THREADS_PER_CORE=1", "SLURM_THREADS_PER_CORE=1", false},
		{"--mem=300", "SLURM_MEM_PER_NODE=300 SLURM_MEM_PER_CPU=", "SLURM_MEM_PER_NODE=300 SLURM_MEM_PER_CPU=", false},
		{"--mem-per-cpu=300", "SLURM_MEM_PER_CPU=300 SLURM_MEM_PER_NODE=", "SLURM_MEM_PER_CPU=300 SLURM_MEM_PER_NODE=", false},
		{"--gpus=1 --mem-per-gpu=300", "SLURM_MEM_PER_GPU=300 SLURM_GPUS=1 SLURM_GPUS_ON_NODE=1", "SLURM_MEM_PER_GPU=300 SLURM_GPUS=1 SLURM_GPUS_ON_NODE=1", false},
		{"--gpus=2 --cpus-per-gpu=2", "SLURM_CPUS_PER_GPU=2 SLURM_GPUS=2", "SLURM_CPUS_PER_GPU=2 SLURM_GPUS=2", false},
		{"-N2 --gpus-per-node=2", "SLURM_GPUS_PER_NODE=2 SLURM_GPUS_ON_NODE=2", "SLURM_GPUS_PER_NODE=2 SLURM_GPUS_ON_NODE=2", true},
		{"--gpus-per-socket=1 --sockets-per-node=1", "SLURM_GPUS_PER_SOCKET=1", "SLURM_GPUS_PER_SOCKET=1", false},
		{"-n2 --gpus-per-task=1", "SLURM_GPUS_PER_TASK=1 SLURM_TRES_PER_TASK=gres/gpu=1", "SLURM_GPUS_PER_TASK=1 SLURM_TRES_PER_TASK=gres/gpu=1", true},
		{"-n2 --tres-per-task=cpu=2,gres/gpu=1", "SLURM_TRES_PER_TASK=cpu=2,gres/gpu=1 SLURM_CPUS_PER_TASK=2", "SLURM_TRES_PER_TASK=cpu=2,gres/gpu=1 SLURM_CPUS_PER_TASK=2", true},
		{"-n4 --gpus=2 --ntasks-per-gpu=2", "SLURM_NTASKS_PER_GPU=2", "SLURM_NTASKS_PER_GPU=2", true},
		{"--gpus=2 --gpu-bind=map_gpu:1,0", "SLURM_GPU_BIND=map_gpu:1,0", "SLURM_GPU_BIND=map_gpu:1,0", false},
		{"--gpus=1 --gpu-freq=low", "SLURM_GPU_FREQ=low", "SLURM_GPU_FREQ=low", false},
		{"-n2 -m cyclic", "SLURM_DISTRIBUTION=cyclic SLURM_DIST_PLANESIZE=", "SLURM_DISTRIBUTION=cyclic", true},
		{"-n4 -m plane=2", "SLURM_DISTRIBUTION=plane SLURM_DIST_PLANESIZE=2", "SLURM_DISTRIBUTION=plane SLURM_DIST_PLANESIZE=2", true},
		{"--export=NONE", "SLURM_EXPORT_ENV=NONE", "SLURM_EXPORT_ENV=NONE", false},
		{"--export=HANDED=on", "SLURM_EXPORT_ENV=HANDED=on HANDED=on", "HANDED=on", false},
		{"-n2 -O", "SLURM_OVERCOMMIT=1", "SLURM_OVERCOMMIT=1", true},
		{"--open-mode=append", "SLURM_OPEN_MODE=a", "SLURM_OPEN_MODE=a", false},
		{"-L lic:2", "SLURM_JOB_LICENSES=lic:2", "SLURM_JOB_LICENSES=lic:2", false},
		{"--reservation=rest", "SLURM_JOB_RESERVATION=rest", "SLURM_JOB_RESERVATION=rest", false},
		{"-a 5", "SLURM_ARRAY_TASK_ID=5 SLURM_ARRAY_TASK_MIN=5 SLURM_ARRAY_TASK_MAX=5 SLURM_ARRAY_TASK_COUNT=1 SLURM_ARRAY_TASK_STEP=1",
			"SLURM_ARRAY_TASK_ID=5 SLURM_ARRAY_TASK_MIN=5 SLURM_ARRAY_TASK_MAX=5 SLURM_ARRAY_TASK_COUNT=1", false},
		{"-D /tmp", "SLURM_SUBMIT_DIR=DIR PWD=/tmp", "SLURM_SUBMIT_DIR=DIR PWD=/tmp", false},
	}
}

// inEvery are the variables of every script, and of every task.
func inEvery() (script, step []string) {
	both := []string{
		"SLURM_JOB_ID", "SLURM_JOBID", "SLURM_JOB_NODELIST", "SLURM_JOB_UID", "SLURM_JOB_GID", "SLURM_JOB_USER", "SLURM_JOB_GROUP",
		"SLURM_JOB_START_TIME", "SLURM_JOB_END_TIME", "SLURM_CLUSTER_NAME", "SLURM_CONF", "SLURM_SUBMIT_HOST", "SLURMD_NODENAME",
		"SLURM_TASK_PID", "SLURM_GTIDS", "SLURM_NODEID", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_PRIO_PROCESS",
		"SLURM_TASKS_PER_NODE", "SLURM_NODELIST", "SLURM_NNODES", "SLURM_JOB_CPUS_PER_NODE",
		"SLURM_TOPOLOGY_ADDR", "SLURM_TOPOLOGY_ADDR_PATTERN",
	}
	return both, append([]string{
		"SLURM_STEP_ID", "SLURM_STEPID", "SLURM_STEP_NODELIST", "SLURM_STEP_NUM_NODES", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE",
		"SLURM_LAUNCH_NODE_IPADDR", "SLURM_SRUN_COMM_HOST", "SLURM_UMASK", "SLURM_MPI_TYPE",
	}, both...)
}

// TestHandedOn: every option that Slurm hands on through the environment reaches the script and the
// tasks of a step in it, and nobody else's.
func TestHandedOn(t *testing.T) {
	c := start(t, "Licenses=lic:4")
	c.must("scontrol", "create", "reservation", "reservationname=rest", "starttime=now", "duration=60", "nodes=node2", "corecnt=2", "users=root", "flags=ignore_jobs")
	rows := handedOn()
	for i, row := range rows {
		srun := bin("muster") + " srun -n1 /usr/bin/env"
		if row.whole {
			srun = bin("muster") + " srun /bin/sh -c '[ $SLURM_PROCID != 0 ] || /usr/bin/env'"
		}
		args := append([]string{"sbatch", "--parsable", "-t1", "-o", filepath.Join(c.dir, fmt.Sprintf("out%d", i))}, strings.Fields(row.options)...)
		c.must(append(args, "--wrap", "env; echo ==; "+srun)...)
	}
	c.until("", "squeue", "-h")
	everyScript, everyStep := inEvery()
	for i, row := range rows {
		t.Run(row.options, func(t *testing.T) {
			text, err := os.ReadFile(filepath.Join(c.dir, fmt.Sprintf("out%d", i)))
			if err != nil {
				t.Fatal(err)
			}
			script, step, ok := strings.Cut(string(text), "\n==\n")
			if !ok {
				t.Fatalf("the script printed\n%s", text)
			}
			compareHanded(t, "the script", script, strings.ReplaceAll(row.script, "=DIR", "="+c.dir), everyScript)
			compareHanded(t, "the task", step, strings.ReplaceAll(row.step, "=DIR", "="+c.dir), everyStep)
		})
	}
}

// compareHanded looks for variables in what env printed.
func compareHanded(t *testing.T, who, printed, want string, every []string) {
	t.Helper()
	got := map[string]string{}
	for line := range strings.Lines(printed) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		got[name] = value
	}
	for _, w := range strings.Fields(want) {
		name, value, _ := strings.Cut(w, "=")
		if have, there := got[name]; have != value || (there && value == "") {
			t.Errorf("%s has %s=%q, want %q", who, name, have, value)
		}
	}
	for _, name := range every {
		if got[name] == "" {
			t.Errorf("%s has no %s", who, name)
		}
	}
}
