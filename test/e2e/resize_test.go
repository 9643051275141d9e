package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestAJobGivesNodesBack: a running job is told something, loses a node with the
// steps there, over the death of the controller, and goes on with the others; a
// step gets a shorter time limit than it began with.
func TestAJobGivesNodesBack(t *testing.T) {
	c := start(t)
	srun := bin("muster") + " srun"
	script, out := filepath.Join(c.dir, "job.sh"), filepath.Join(c.dir, "job.out")
	text := "#!/bin/sh\n" + srun + " -N2 sleep 300; echo first $?\n" +
		"until [ -e slurm_job_1_resize.sh ]; do sleep 0.2; done; . ./slurm_job_1_resize.sh\n" +
		srun + " sh -c 'echo on $SLURMD_NODENAME of $SLURM_NNODES'\n" +
		srun + " sleep 300; echo third $?\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	c.must("sbatch", "-N2", "-n2", "-t", "60", "-o", out, script)
	c.until("1.0", "squeue", "-h", "-s", "-j", "1.0", "-o", "%i")
	c.must("scontrol", "notify", "1", "a node leaves")
	// As under Slurm, the script for the job's shell is written only where there is such a shell.
	said, errs, code := c.runWith([]string{"SLURM_JOB_ID=1"}, "scontrol", "update", "jobid=1", "numnodes=1")
	if code != 0 || !strings.Contains(said, "slurm_job_1_resize.sh") {
		t.Fatalf("scontrol: exit %d, %q %s", code, said, errs)
	}
	c.kill9("musterd")
	c.must("up", "--dir", c.dir)
	c.until("node1", "squeue", "-h", "-j", "1", "-o", "%N")
	c.until("1.2", "squeue", "-h", "-s", "-j", "1.2", "-o", "%i")
	c.until("idle", "sinfo", "-h", "-n", "node2", "-o", "%t")
	c.must("scontrol", "update", "stepid=1.2", "timelimit=0:01")
	c.until("1|COMPLETED\n1.batch|COMPLETED\n1.0|CANCELLED\n1.1|COMPLETED\n1.2|TIMEOUT", "sacct", "-n", "-P", "-j", "1", "-o", "JobID,State")
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a node leaves\n", "first 143\n", "on node1 of 1\n", "third "} {
		if !strings.Contains(string(data), want) {
			t.Errorf("the script wrote %q, without %q", data, want)
		}
	}
}
