package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// beginLogin starts the agent of a login host, which trio.run finds by its name.
func (c *trio) beginLogin(name string) {
	c.t.Helper()
	home := filepath.Join(c.dir, "controllers", name) // where trio.run looks for the socket
	var addresses []string
	for i := range trioNames {
		addresses = append(addresses, fmt.Sprintf("127.0.0.%d:%d", i+1, c.port))
	}
	files := map[string]string{"muster.yaml": fmt.Sprintf(
		"state_dir: %s/state\nsocket: %s/run/muster.sock\nlisten: {agent_grpc: \"off\", agent_metrics: \"off\"}\n", home, home)}
	files["token"], _ = c.must("ctl1", "token", "--login", name)
	if err := os.MkdirAll(filepath.Join(home, "run"), 0o755); err != nil {
		c.t.Fatal(err)
	}
	for file, text := range files {
		if err := os.WriteFile(filepath.Join(home, file), []byte(text), 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
	c.spawn(name, c.program("muster-agent"), "--login", "--node", name, "--config", filepath.Join(home, "muster.yaml"),
		"--controller", strings.Join(addresses, ","), "--token-file", filepath.Join(home, "token"))
	c.t.Cleanup(func() { c.kill9(name) })
	c.until("2", name, "sinfo", "-h", "-t", "idle", "-o", "%D")
}

// TestStoppedLeader: a leader that is stopped and not dead keeps the connections of agents and login
// hosts. They notice, and go to the one that was elected, while the other is still stopped: a
// command that was asked at a login host is answered, and jobs run.
func TestStoppedLeader(t *testing.T) {
	c := startTrio(t)
	c.beginLogin("login1")
	old := c.whole()
	c.signal(old, syscall.SIGSTOP)
	began := time.Now()
	c.must("login1", "squeue")
	t.Logf("a login host's command is answered after %v", time.Since(began))
	leads := c.otherLeader(old)
	id, _ := c.must(leads, "sbatch", "--parsable", "-N2", "-o", "/dev/null", "--wrap", "exec sleep 600")
	c.until("R", leads, "squeue", "-h", "-j", id, "-o", "%t")
	c.must(leads, "srun", "-N2", "--overlap", "--jobid", id, "true") // both nodes have their orders
	t.Logf("a job on both nodes runs after %v", time.Since(began))
	c.signal(old, syscall.SIGCONT)
	c.whole()
	c.must(leads, "scancel", id)
}
