package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// ledgerFolders are what holds a controller's history in its state folder.
var ledgerFolders = []string{"ledger", "archive", "content"}

// saveLedger copies the history of a controller that is down.
func (c *cluster) saveLedger() string {
	c.t.Helper()
	copyDir := filepath.Join(c.dir, "saved")
	for _, name := range ledgerFolders {
		if err := os.CopyFS(filepath.Join(copyDir, name), os.DirFS(filepath.Join(c.dir, "state", name))); err != nil {
			c.t.Fatal(err)
		}
	}
	return copyDir
}

// putBack replaces the history of a controller that is down by a copy.
func (c *cluster) putBack(saved string) {
	c.t.Helper()
	for _, name := range ledgerFolders {
		to := filepath.Join(c.dir, "state", name)
		if err := os.RemoveAll(to); err != nil {
			c.t.Fatal(err)
		}
		if err := os.CopyFS(to, os.DirFS(filepath.Join(saved, name))); err != nil {
			c.t.Fatal(err)
		}
	}
}

// content waits for a file.
func (c *cluster) content(name string) string {
	c.t.Helper()
	for range 1200 {
		data, err := os.ReadFile(filepath.Join(c.dir, name))
		if err == nil && len(data) > 0 {
			return strings.TrimSpace(string(data))
		}
		time.Sleep(50 * time.Millisecond)
	}
	c.t.Fatalf("%s was never written", name)
	return ""
}

// alive tells whether a process runs.
func alive(pid string) bool {
	_, err := os.Stat("/proc/" + pid)
	return err == nil
}

// TestARestoredStateGivesNoRunAway: a controller is killed and its ledger is put
// back to an older copy while jobs run that it then does not know. A new job gets
// a number of its own and runs its own script, its cancellation does not reach the
// old process, and the node with that process is drained and says why until an
// administrator has killed it. sacct shows the jobs of both histories.
func TestARestoredStateGivesNoRunAway(t *testing.T) {
	c := start(t)
	first := c.must("sbatch", "--parsable", "--wrap", "true")
	c.until("", "squeue", "-h", "-j", first)
	c.must("down", "--dir", c.dir)
	saved := c.saveLedger()
	c.must("up", "--dir", c.dir)
	var lost []string
	for i := range 3 {
		out := "lost" + strconv.Itoa(i)
		id := c.must("sbatch", "--parsable", "-w", "node1", "--wrap", "echo $$ > "+out+"; exec sleep 600")
		c.until("R", "squeue", "-h", "-j", id, "-o", "%t")
		lost = append(lost, id)
	}
	over := c.must("sbatch", "--parsable", "-w", "node1", "--wrap", "true")
	c.until("", "squeue", "-h", "-j", over)
	for id, state := range map[string]string{over: "COMPLETED", lost[0]: "RUNNING", lost[2]: "RUNNING"} {
		c.until(state, "sacct", "-n", "-P", "-X", "-o", "state", "-j", id)
	}
	pid := c.content("lost0")
	c.kill9("musterd")
	c.putBack(saved)
	c.must("up", "--dir", c.dir)

	c.until("drained", "sinfo", "-h", "-n", "node1", "-o", "%T")
	if reasons := c.must("sinfo", "-R", "-h"); !strings.Contains(reasons, "Lost history: 3 runs") || !strings.Contains(reasons, "node1") {
		t.Errorf("sinfo -R says %q", reasons)
	}
	mine := c.must("sbatch", "--parsable", "--wrap", "echo mine > mine; sleep 600")
	if number(t, mine) <= number(t, over) {
		t.Errorf("job %s has a number that was given away before: the last one was %s", mine, over)
	}
	if got := c.content("mine"); got != "mine" {
		t.Errorf("the new job wrote %q", got)
	}
	c.until("R|node2", "squeue", "-h", "-j", mine, "-o", "%t|%N")
	for _, id := range lost {
		c.run("scancel", id) // must not reach the old process, whatever it answers
	}
	c.must("scancel", mine)
	c.until("", "squeue", "-h", "-j", mine)
	// Accounting, which knew the lost history, goes on and shows both.
	c.until("CANCELLED by 0", "sacct", "-n", "-P", "-X", "-o", "state", "-j", mine)
	for id, state := range map[string]string{first: "COMPLETED", over: "COMPLETED", lost[0]: "NODE_FAIL", lost[2]: "NODE_FAIL"} {
		c.until(state, "sacct", "-n", "-P", "-X", "-o", "state", "-j", id)
	}
	c.must("accounting", "verify")
	if stderr := c.must("accounting", "doctor"); strings.Contains(stderr, "BAD") {
		t.Errorf("muster accounting doctor says\n%s", stderr)
	}
	if !alive(pid) {
		t.Errorf("process %s of a lost run was ended without being asked", pid)
	}
	table := c.must("runs")
	var names []string
	for _, line := range strings.Split(table, "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "node1" {
			names = append(names, fields[len(fields)-1])
		}
	}
	if len(names) != len(lost) || !strings.Contains(table, "History was lost: ") {
		t.Fatalf("muster runs says\n%s", table)
	}
	c.must(append([]string{"runs", "kill", "--grace=1"}, names...)...)
	c.until("idle", "sinfo", "-h", "-n", "node1", "-o", "%T")
	if alive(pid) {
		t.Errorf("process %s lives though its run was killed", pid)
	}
}

// TestARestoreGivesNoNumberAgain: jobs that were only pending, held, when the ledger was
// lost had numbers. A submission that comes as soon as the restored controller listens
// gets one above them. The restore follows at once on the kill.
func TestARestoreGivesNoNumberAgain(t *testing.T) {
	c := start(t)
	c.until("", "squeue", "-h", "-j", c.must("sbatch", "--parsable", "--wrap", "true"))
	backups := filepath.Join(c.dir, "backups")
	config := filepath.Join(c.dir, "muster.yaml")
	c.must("backup", "--to", backups, "--config", config)
	var last string
	for range 3 {
		last = c.must("sbatch", "--parsable", "-H", "--wrap", "true")
	}
	c.until("PENDING", "sacct", "-n", "-P", "-X", "-o", "state", "-j", last)
	c.kill9("musterd")
	for _, name := range ledgerFolders {
		if err := os.RemoveAll(filepath.Join(c.dir, "state", name)); err != nil {
			t.Fatal(err)
		}
	}
	c.must("restore", "--from", backups, "--config", config)
	up := make(chan string, 1)
	go func() {
		_, errs, code := c.run("up", "--dir", c.dir)
		if code == 0 {
			errs = ""
		}
		up <- errs
	}()
	var first string
	for first == "" {
		out, _, code := c.run("sbatch", "--parsable", "--wrap", "true")
		if code == 0 {
			first = strings.TrimSpace(out)
		}
	}
	if errs := <-up; errs != "" {
		t.Errorf("muster up: %s", errs)
	}
	if number(t, first) <= number(t, last) {
		t.Errorf("job %s has a number that was given away before: the last one was %s", first, last)
	}
	c.until("COMPLETED", "sacct", "-n", "-P", "-X", "-o", "state", "-j", first)
	if _, err := os.Stat(filepath.Join(c.dir, "state", "restored")); !os.IsNotExist(err) {
		t.Errorf("the controller still waits for those who know the numbers: %v", err)
	}
}

func number(t *testing.T, id string) int {
	t.Helper()
	n, err := strconv.Atoi(id)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
