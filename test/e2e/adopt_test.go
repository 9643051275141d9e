package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// runNames gives the names of the runs that the ledger does not know, by job number.
func (c *cluster) runNames() map[string]string {
	c.t.Helper()
	names := map[string]string{}
	for _, line := range strings.Split(c.must("runs"), "\n") {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[0], "node") {
			names[fields[1]] = fields[len(fields)-1]
		}
	}
	return names
}

// TestALostRunIsAdopted: a ledger is put back to an older copy while jobs run that it then does
// not know, as in TestARestoredStateGivesNoRunAway. An administrator adopts them: each is the
// job of its owner again, under its number, with the start and the limit that it had; squeue,
// scancel and further steps of its script work on it, and its end is recorded from its
// shepherd. What waited when the copy was made, and was started since, is adopted as that job.
func TestALostRunIsAdopted(t *testing.T) {
	c := start(t)
	c.until("", "squeue", "-h", "-j", c.must("sbatch", "--parsable", "--wrap", "true"))
	waits := c.must("sbatch", "--parsable", "-H", "-w", "node1", "--wrap", "echo $$ > waited; until [ -e go ]; do sleep 0.1; done")
	// It is not started here before somebody decides: the copy has it held.
	c.must("down", "--dir", c.dir)
	saved := c.saveLedger()
	c.must("up", "--dir", c.dir)
	c.must("scontrol", "release", waits)
	script := filepath.Join(c.dir, "steps.sh")
	srun := bin("muster") + " srun -n1"
	if err := os.WriteFile(script, []byte("#!/bin/bash\n"+
		srun+" bash -c 'echo $SLURM_STEP_ID > first'\nuntil [ -e go ]; do sleep 0.1; done\n"+
		srun+" --gpus=1 bash -c 'echo $SLURM_STEP_ID > second'\nexit 7\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	steps := c.must("sbatch", "--parsable", "-J", "steps", "-w", "node1", "--gpus=2", "-t", "30", script)
	wide := c.must("sbatch", "--parsable", "-N2", "--wrap", "echo $$ > wide; exec sleep 600")
	ends := c.must("sbatch", "--parsable", "-w", "node1", "--wrap", "echo > ends; until [ -e go ]; do sleep 0.1; done; exit 3")
	for _, id := range []string{waits, steps, wide, ends} {
		c.until("R", "squeue", "-h", "-j", id, "-o", "%t")
	}
	c.content("first")
	waited := c.content("waited")
	pid := c.content("wide")
	started := map[string]string{}
	for _, id := range []string{waits, steps, wide, ends} {
		started[id] = c.must("squeue", "-h", "-j", id, "-o", "%S %l %u %j %N %P %C %m")
		c.until("RUNNING", "sacct", "-n", "-P", "-X", "-o", "state", "-j", id)
	}
	c.kill9("musterd")
	c.putBack(saved)
	c.must("up", "--dir", c.dir)

	c.until("drained", "sinfo", "-h", "-n", "node1", "-o", "%T")
	c.until("drained", "sinfo", "-h", "-n", "node2", "-o", "%T")
	names := c.runNames()
	for id := range started {
		if names[id] == "" {
			t.Fatalf("muster runs does not list job %s:\n%s", id, c.must("runs"))
		}
	}
	if _, errs, code := c.run("runs", "adopt", names[steps]+"1"); code == 0 || !strings.Contains(errs, "not a run of a lost history") {
		t.Errorf("a run that does not exist was adopted: %s", errs)
	}
	c.must("runs", "adopt", names[waits], names[steps], names[wide], names[ends])
	for id, was := range started {
		if is := c.must("squeue", "-h", "-j", id, "-o", "%S %l %u %j %N %P %C %m"); is != was {
			t.Errorf("job %s was %q, adopted it is %q", id, was, is)
		}
	}
	if left := c.runNames(); len(left) > 0 {
		t.Errorf("runs are unknown still: %v", left)
	}
	// What is free of the node goes to the next job, and no device of the run to any other.
	mine := c.must("sbatch", "--parsable", "-w", "node1", "--gpus=6", "--wrap", "sleep 600")
	c.until("R", "squeue", "-h", "-j", mine, "-o", "%t")
	c.until("PD", "squeue", "-h", "-j", c.must("sbatch", "--parsable", "-w", "node1", "--gpus=1", "--wrap", "true"), "-o", "%t")

	// The adoption is in the log: a restart of controller and agents changes nothing.
	c.kill9("musterd")
	c.must("up", "--dir", c.dir)
	for id := range started {
		c.until("R", "squeue", "-h", "-j", id, "-o", "%t")
	}
	if !alive(pid) || !alive(waited) {
		t.Error("an adopted run was ended without being asked")
	}
	c.must("scancel", wide)
	c.until("CANCELLED by 0|0:0", "sacct", "-n", "-P", "-X", "-o", "state,exitcode", "-j", wide)
	if alive(pid) {
		t.Error("scancel did not reach the process of an adopted job")
	}
	if err := os.WriteFile(filepath.Join(c.dir, "go"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	c.until("COMPLETED|0:0", "sacct", "-n", "-P", "-X", "-o", "state,exitcode", "-j", waits)
	c.until("FAILED|3:0", "sacct", "-n", "-P", "-X", "-o", "state,exitcode", "-j", ends)
	c.until("FAILED|7:0", "sacct", "-n", "-P", "-X", "-o", "state,exitcode", "-j", steps)
	if n := number(t, c.content("second")); n < 1 {
		t.Errorf("the step after the adoption has number %d, which was another's", n)
	}
	for id := range started {
		begun := strings.Fields(started[id])[0]
		c.until(begun, "sacct", "-n", "-P", "-X", "-o", "start", "-j", id)
	}
	c.must("accounting", "verify")
}
