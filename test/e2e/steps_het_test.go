package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhpc/muster/nodeagent/runtime/mpitest"
)

// TestStepsOfHetJobs: srun and salloc of several components: one step in both,
// with its numbers, variables and rows, that is signalled and ended as one or
// in parts.
func TestStepsOfHetJobs(t *testing.T) {
	c := start(t)
	say := "echo $SLURM_PROCID of $SLURM_NTASKS on $SLURM_NODEID of $SLURM_NNODES in $SLURM_JOB_ID"
	has := func(out string, lines ...string) {
		t.Helper()
		for _, want := range lines {
			if !strings.Contains(out+"\n", want+"\n") {
				t.Errorf("%q without %q", out, want)
			}
		}
	}
	has(c.must("srun", "-l", "-w", "node1", "-n", "2", "sh", "-c", say, ":", "-w", "node2", "-n", "1", "sh", "-c", say+" other"),
		"0: 0 of 3 on 0 of 2 in 1", "1: 1 of 3 on 0 of 2 in 1", "2: 2 of 3 on 1 of 2 in 2 other")
	c.until("1+0|COMPLETED|0:0|\n1+0.0|COMPLETED|0:0|2\n1+1|COMPLETED|0:0|\n1+1.0|COMPLETED|0:0|1", "sacct", "-n", "-P", "-j", "1", "-o", "JobID,State,ExitCode,NTasks")

	srun := bin("muster") + " srun"
	script := filepath.Join(c.dir, "het.sh")
	text := "#!/bin/sh\n#SBATCH -w node1 -n 2\n#SBATCH hetjob\n#SBATCH -w node2 -n 3\n" +
		srun + " sh -c 'echo alone " + say[5:] + "'\n" +
		srun + " --het-group=1 sh -c 'echo second " + say[5:] + "'\n" +
		srun + " --het-group=0,1 sh -c 'echo both " + say[5:] + "'\n" +
		srun + " -n 1 true : sh -c 'exit $SLURM_PROCID'; echo worst $?\n" +
		srun + " --het-group=0-1 sleep 300; echo ended $?\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(c.dir, "het.out")
	c.must("sbatch", "-o", log, script)
	c.until("3+0.3\n3+0.batch\n3+1.3", "squeue", "-h", "-s", "-o", "%i")
	if out := c.must("scontrol", "show", "step", "3+1.3"); !strings.Contains(out, "StepId=3+1.3 ") || !strings.Contains(out, "Tasks=3") {
		t.Errorf("scontrol show step: %s", out)
	}
	c.must("scancel", "3.3")
	c.until("3+0|COMPLETED|0:0", "sacct", "-n", "-P", "-X", "-j", "3+0", "-o", "JobID,State,ExitCode")
	data, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	has(string(data), "alone 1 of 2 on 0 of 1 in 3", "second 2 of 3 on 0 of 1 in 4", "both 1 of 5 on 0 of 2 in 3", "both 4 of 5 on 1 of 2 in 4", "worst 3", "ended 143")
	c.until("3+0.0|COMPLETED|0:0|2\n3+0.1|COMPLETED|0:0|2\n3+0.2|COMPLETED|0:0|1\n3+0.3|CANCELLED|0:15|2\n3+1.0|COMPLETED|0:0|3\n3+1.1|COMPLETED|0:0|3\n3+1.2|FAILED|3:0|3\n3+1.3|CANCELLED|0:15|3",
		"sacct", "-n", "-P", "-j", "3+0.0,3+0.1,3+0.2,3+0.3,3+1.0,3+1.1,3+1.2,3+1.3", "-o", "JobID,State,ExitCode,NTasks")

	has(c.must("salloc", "-w", "node1", "-n", "1", ":", "-w", "node2", "-n", "2", "sh", "-c", "echo $SLURM_HET_SIZE $SLURM_JOB_NODELIST_HET_GROUP_1; "+srun+" --het-group=0,1 sh -c 'echo "+say[5:]+"'"),
		"2 node2", "0 of 3 on 0 of 2 in 5", "2 of 3 on 1 of 2 in 6")
	part := c.wait("srun", "-w", "node1", "sleep", "300", ":", "-w", "node2", "sh", "-c", "sleep 300")
	c.until("7+0.0\n7+1.0", "squeue", "-h", "-s", "-o", "%i")
	c.must("scancel", "7+1.0")
	c.until("7+0.0", "squeue", "-h", "-s", "-o", "%i")
	c.must("scancel", "-s", "USR1", "7.0")
	if code := part(); code != 143 {
		t.Errorf("srun ended with %d, want 143", code)
	}
}

// TestStepsOfHetJobsMPI: the programs of all components are one world.
func TestStepsOfHetJobsMPI(t *testing.T) {
	c := start(t)
	program := mpitest.Program(t, c.dir, "mpich")
	out := c.must("srun", "-w", "node1", "-n", "3", program, ":", "-w", "node2", "-n", "2", program)
	for _, want := range []string{"rank 0 of 5, sum 10", "rank 4 of 5, sum 10"} {
		if !strings.Contains(out, want) {
			t.Errorf("the ranks wrote %q, without %q", out, want)
		}
	}
}
