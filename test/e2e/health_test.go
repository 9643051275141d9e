package e2e

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// TestNodeHealth: a file system that is filled takes its node out of service, with
// rule, value and limit as the reason; jobs wait and are told why; when there is
// space again the node takes them by itself. A node that somebody has drained stays.
func TestNodeHealth(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("a file system cannot be mounted without root")
	}
	disk := shortDir(t)
	if err := syscall.Mount("tmpfs", disk, "tmpfs", 0, "size=16m"); err != nil {
		t.Skipf("this machine mounts nothing: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(disk, syscall.MNT_DETACH) })
	c := start(t)
	c.must("down", "--dir", c.dir)
	config := filepath.Join(c.dir, "muster.yaml")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	health := "health:\n  interval: 1s\n  paths: [\"" + disk + "\"]\n  rules: [\"disk_space drain 2%\"]\n"
	section := regexp.MustCompile(`(?m)^health:\n( .*\n|\n)*`)
	if !section.Match(text) {
		t.Fatalf("%s has no section health:\n%s", config, text)
	}
	if err := os.WriteFile(config, section.ReplaceAll(text, []byte(health)), 0o600); err != nil {
		t.Fatal(err)
	}
	c.must("up", "--dir", c.dir)
	c.until("idle\nidle", "sinfo", "-h", "-N", "-o", "%T")

	full := filepath.Join(disk, "full")
	if err := os.WriteFile(full, make([]byte, 16<<20-64<<10), 0o600); err != nil {
		t.Fatal(err)
	}
	c.until("drained\ndrained", "sinfo", "-h", "-N", "-o", "%T")
	reason := c.must("sinfo", "-h", "-R", "-o", "%E")
	if want := "Health check: disk_space: " + disk + " has free space 0% (below 2%)"; !strings.Contains(reason, want) {
		t.Errorf("sinfo -R says %q, not %q", reason, want)
	}
	id := c.must("sbatch", "--parsable", "--wrap", "true")
	if why := c.must("why", id); !strings.Contains(why, "disk_space") {
		t.Errorf("why says %q", why)
	}
	c.must("scontrol", "update", "nodename=node2", "state=resume")
	c.must("scontrol", "update", "nodename=node2", "state=drain", "reason=by hand")

	if err := os.Remove(full); err != nil {
		t.Fatal(err)
	}
	c.until("COMPLETED", "sacct", "-n", "-X", "-P", "-j", id, "-o", "State")
	c.until("idle\ndrained", "sinfo", "-h", "-N", "-o", "%T")
	if out := c.must("sinfo", "-h", "-R", "-o", "%E %N"); out != "by hand node2" {
		t.Errorf("what somebody has drained: %q", out)
	}
}
