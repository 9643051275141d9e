package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// shepherds lists the shepherds of a cluster.
func (c *cluster) shepherds() []string {
	c.t.Helper()
	list, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		c.t.Fatal(err)
	}
	var out []string
	for _, path := range list {
		line, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(line), "muster-shepherd") && strings.Contains(string(line), c.dir+"/") {
			out = append(out, path)
		}
	}
	return out
}

// TestDownAndUp: jobs go on while the daemons are away, the nodes take new
// ones afterwards, and nothing is left behind in the end.
func TestDownAndUp(t *testing.T) {
	c := start(t)
	long := c.must("sbatch", "--parsable", "-w", "node1", "--wrap", "sleep 4; exit 5")
	c.until("R", "squeue", "-h", "-j", long, "-o", "%t")
	if out := c.must("down", "--dir", c.dir); !strings.Contains(out, "node1: 1 job goes on") {
		t.Errorf("down said %q", out)
	}
	c.must("up", "--dir", c.dir)
	next := c.must("sbatch", "--parsable", "-w", "node1", "--wrap", "exit 6")
	c.until("FAILED|6:0", "sacct", "-n", "-X", "-P", "-j", next, "-o", "State,ExitCode")
	c.until("FAILED|5:0", "sacct", "-n", "-X", "-P", "-j", long, "-o", "State,ExitCode")
	for i := range 8 {
		c.must("sbatch", "--parsable", "-w", fmt.Sprintf("node%d", 1+i%2), "--wrap", "sleep 0.2; sleep 60")
	}
	c.must("down", "--dir", c.dir, "--jobs")
	left := c.shepherds()
	for range 100 {
		if len(left) == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
		left = c.shepherds()
	}
	t.Errorf("after down --jobs there are %q", left)
}
