package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestSteps: srun in a batch script and alone, salloc, and the commands that
// show and end steps.
func TestSteps(t *testing.T) {
	c := start(t)
	srun := bin("muster") + " srun"
	if out := c.must("srun", "-n", "2", "-l", "sh", "-c", "echo of $SLURM_NTASKS in $SLURM_STEP_ID"); !strings.Contains(out, "0: of 2 in 0") || !strings.Contains(out, "1: of 2 in 0") {
		t.Errorf("srun alone wrote %q", out)
	}
	script := filepath.Join(c.dir, "steps.sh")
	text := "#!/bin/sh\n" + srun + " -n 2 sh -c 'exit $SLURM_PROCID'; echo first $?\n" +
		"echo words | " + srun + " -n 1 cat\n" +
		srun + " -n 1 --exact sleep 300; echo second $?\n"
	if err := os.WriteFile(script, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	c.must("sbatch", "-n", "2", "-o", filepath.Join(c.dir, "steps.out"), script)
	c.until("2.2", "squeue", "-h", "-s", "-j", "2.2", "-o", "%i")
	if out := c.must("scontrol", "show", "step", "2.2"); !strings.Contains(out, "StepId=2.2 ") {
		t.Errorf("scontrol show step: %s", out)
	}
	c.must("scancel", "2.2")
	c.until("2|COMPLETED|0:0\n2.batch|COMPLETED|0:0\n2.0|FAILED|1:0\n2.1|COMPLETED|0:0\n2.2|CANCELLED|0:15", "sacct", "-n", "-P", "-j", "2", "-o", "JobID,State,ExitCode")
	out, err := os.ReadFile(filepath.Join(c.dir, "steps.out"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"task 1: Exited with exit code 1\nfirst 1\n", "\nwords\n", "second 143"} {
		if !strings.Contains(string(out), want) {
			t.Errorf("the script wrote %q, without %q", out, want)
		}
	}
	if code := c.wait("salloc", "-n", "1", "sh", "-c", srun+" true && exit 6")(); code != 6 {
		t.Errorf("salloc ended with %d, want 6", code)
	}
	c.until("FAILED|6:0", "sacct", "-n", "-X", "-P", "-j", "3", "-o", "State,ExitCode")
}

// TestStepsSurvive: whoever of controller, agents and shepherd dies, a step's
// tasks run once, srun ends with their exit code, and its end is counted once.
func TestStepsSurvive(t *testing.T) {
	c := start(t)
	log := filepath.Join(c.dir, "began")
	step := c.wait("srun", "-n", "2", "sh", "-c", "echo began >> "+log+"; sleep 8; exit 3")
	c.until("1.0", "squeue", "-h", "-s", "-o", "%i")
	c.kill9("musterd")
	c.kill9("agent-node1")
	c.kill9("agent-node2")
	c.must("up", "--dir", c.dir)
	if code := step(); code != 3 {
		t.Errorf("srun ended with %d, want 3", code)
	}
	if data, err := os.ReadFile(log); err != nil || string(data) != "began\nbegan\n" {
		t.Errorf("the tasks began as %q (%v)", data, err)
	}
	c.until("1|FAILED|3:0\n1.0|FAILED|3:0", "sacct", "-n", "-P", "-j", "1", "-o", "JobID,State,ExitCode")
}

// TestStepOutputAfterCancel: a step of a cancelled job gets SIGTERM once, and what its
// tasks write until they have ended is in the output of the job, although the shell of
// the script has ended before.
func TestStepOutputAfterCancel(t *testing.T) {
	c := start(t)
	output := filepath.Join(c.dir, "late.out")
	task := filepath.Join(c.dir, "task.sh")
	text := "#!/bin/sh\nn=0; trap 'n=$((n+1))' TERM\necho began\nsleep 300 & wait\nsleep 1\necho late $n\n"
	if err := os.WriteFile(task, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	// The client of the step is known by its name.
	if err := os.Symlink(bin("muster"), filepath.Join(c.dir, "srun")); err != nil {
		t.Fatal(err)
	}
	c.must("sbatch", "-o", output, "--wrap", filepath.Join(c.dir, "srun")+" "+task)
	c.until("1.0", "squeue", "-h", "-s", "-j", "1.0", "-o", "%i")
	for text := ""; !strings.Contains(text, "began"); {
		data, err := os.ReadFile(output)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		text = string(data)
	}
	c.must("scancel", "1")
	c.until("1|CANCELLED by 0|0:0\n1.batch|CANCELLED|0:15\n1.0|CANCELLED|0:0", "sacct", "-n", "-P", "-j", "1", "-o", "JobID,State,ExitCode")
	out, err := os.ReadFile(output)
	if err != nil || !strings.Contains(string(out), "late 1\n") {
		t.Errorf("the output is %q (%v), without what the step wrote last", out, err)
	}
}

// TestStepsAsTheSiteSays: KillOnBadExit and WaitTime hold for steps that do not
// say otherwise.
func TestStepsAsTheSiteSays(t *testing.T) {
	c := start(t, "KillOnBadExit=1", "WaitTime=1")
	if out, errs, code := c.run("srun", "-n", "2", "sh", "-c", "[ $SLURM_PROCID = 1 ] && exit 3; sleep 300"); code != 143 || !strings.Contains(errs, "Terminating StepId=1.0") || strings.Contains(errs, "First task") {
		t.Errorf("with KillOnBadExit: exit %d\n%s%s", code, out, errs)
	}
	if out, errs, code := c.run("srun", "-K0", "-n", "2", "sh", "-c", "[ $SLURM_PROCID = 1 ] && exit 3; sleep 300"); code != 137 || !strings.Contains(errs, "First task exited 1s ago") {
		t.Errorf("with WaitTime: exit %d\n%s%s", code, out, errs)
	}
	if out, errs, code := c.run("srun", "-K0", "-W0", "-n", "2", "sh", "-c", "[ $SLURM_PROCID = 1 ] && exit 3; sleep 2"); code != 3 || strings.Contains(errs, "Terminating") {
		t.Errorf("with neither: exit %d\n%s%s", code, out, errs)
	}
}
