package e2e

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// wait begins a command and gives what ends with its exit code.
func (c *cluster) wait(args ...string) func() int {
	c.t.Helper()
	cmd := exec.Command(bin("muster"), args...)
	cmd.Env = append(os.Environ(), "MUSTER_SOCKET="+filepath.Join(c.dir, "run", "muster.sock"))
	cmd.Dir = c.dir
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	return func() int {
		c.t.Helper()
		_ = cmd.Wait() // the exit code tells
		c.t.Logf("muster %v: %s", args, out.String())
		return cmd.ProcessState.ExitCode()
	}
}

// waitShell is wait for a line of the shell.
func (c *cluster) waitShell(line string) func() int {
	c.t.Helper()
	cmd := exec.Command("sh", "-c", line)
	cmd.Env = append(os.Environ(), "MUSTER_SOCKET="+filepath.Join(c.dir, "run", "muster.sock"))
	cmd.Dir = c.dir
	var errs bytes.Buffer
	cmd.Stderr = &errs
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	return func() int {
		c.t.Helper()
		_ = cmd.Wait() // the exit code tells
		c.t.Logf("%s: %s", line, errs.String())
		return cmd.ProcessState.ExitCode()
	}
}

// untilShell tries a line of the shell until it succeeds.
func (c *cluster) untilShell(line string) {
	c.t.Helper()
	for range 600 {
		if c.waitShell(line)() == 0 {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	c.t.Fatalf("%s: never", line)
}

// TestWaitSurvivesTheController: sbatch --wait gives the job's exit code over a
// restart and a death of the controller, also when the job was over and
// forgotten before the controller was back.
func TestWaitSurvivesTheController(t *testing.T) {
	c := start(t, "MinJobAge=2")
	short := c.wait("sbatch", "--wait", "--wrap", "sleep 3; exit 4")
	c.until("1", "squeue", "-h", "-t", "R", "-o", "%i")
	long := c.wait("sbatch", "--wait", "--wrap", "sleep 9; exit 5")
	c.until("R\nR", "squeue", "-h", "-t", "R", "-o", "%t")
	c.must("down", "--dir", c.dir)
	c.must("up", "--dir", c.dir)
	c.until("FAILED|4:0", "sacct", "-n", "-X", "-P", "-j", "1", "-o", "State,ExitCode")
	c.kill9("musterd")
	c.must("up", "--dir", c.dir)
	if code := long(); code != 5 {
		t.Errorf("sbatch --wait ended with %d, want 5", code)
	}
	if code := short(); code != 4 {
		t.Errorf("sbatch --wait ended with %d, want 4", code)
	}
}
