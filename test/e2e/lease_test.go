package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// daemonsOf gives the pids of the agent and the shepherds of a node.
func (c *cluster) daemonsOf(node string) []int {
	c.t.Helper()
	agent, err := os.ReadFile(filepath.Join(c.dir, "run", "agent-"+node+".pid"))
	if err != nil {
		c.t.Fatal(err)
	}
	texts := strings.Fields(string(agent))
	for _, path := range c.shepherds() {
		line, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(line), "--node\x00"+node+"\x00") {
			texts = append(texts, filepath.Base(filepath.Dir(path)))
		}
	}
	var pids []int
	for _, text := range texts {
		pid, err := strconv.Atoi(text)
		if err != nil {
			c.t.Fatal(err)
		}
		pids = append(pids, pid)
	}
	if len(pids) < 2 {
		c.t.Fatalf("agent and shepherd of %s: %v", node, pids)
	}
	return pids
}

// TestALeaseMovesAJob: agent and shepherd of a node are stopped, or killed, together
// while a job runs there. Nobody is left to ask, and nobody says that the node is off:
// the job's processes end by themselves when the lease is over, before the job starts
// again on another node.
func TestALeaseMovesAJob(t *testing.T) {
	for name, sig := range map[string]syscall.Signal{"stopped": syscall.SIGSTOP, "killed": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits more than it works
			c := start(t, "SlurmdTimeout=5", "KillWait=2", "FencingPolicy=lease=6")
			id := c.must("sbatch", "--parsable", "--requeue", "-o", filepath.Join(c.dir, "out.%j"), "--wrap",
				"echo $$ >> "+filepath.Join(c.dir, "pids")+"; trap '' TERM; while :; do sleep 0.1; done")
			c.until("R", "squeue", "-h", "-j", id, "-o", "%t")
			old := c.content("pids")
			node := c.must("squeue", "-h", "-j", id, "-o", "%N")
			for _, pid := range c.daemonsOf(node) {
				if err := syscall.Kill(pid, sig); err != nil {
					t.Fatal(err)
				}
				if sig == syscall.SIGSTOP {
					t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGCONT) })
				}
			}
			c.until("PD FencingWait", "squeue", "-h", "-j", id, "-o", "%t %r")
			if why := c.must("why", id); !strings.Contains(strings.Join(strings.Fields(why), " "), "when its lease is over") {
				t.Errorf("muster why:\n%s", why)
			}
			for pids := old; strings.Count(pids, "\n") == 0; pids = c.content("pids") {
				time.Sleep(20 * time.Millisecond)
			}
			// A shepherd that is stopped leaves what is dead unreaped.
			if stat, err := os.ReadFile("/proc/" + old + "/stat"); err == nil && !strings.Contains(string(stat), ") Z ") {
				t.Errorf("the job runs again while its first run lives: %s", stat)
			}
			c.until("R", "squeue", "-h", "-j", id, "-o", "%t")
			if again := c.must("squeue", "-h", "-j", id, "-o", "%N"); again == node {
				t.Errorf("it runs again on %s, which does not answer", node)
			}
			c.must("scancel", id)
		})
	}
}
