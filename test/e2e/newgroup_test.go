package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestNoSecondGroup: a controller whose log was rebuilt, or whose disk was emptied,
// never begins a second cluster while the others are silent. It says who is silent
// and what to do, gives way when they are back, and begins only on the
// administrator's word.
func TestNoSecondGroup(t *testing.T) {
	c := startTrio(t)
	id, _ := c.must("ctl2", "sbatch", "--parsable", "-o", "/dev/null", "--begin", "now+1day", "--wrap", "true")

	// Its log is rebuilt while the others are silent.
	for _, name := range trioNames {
		c.kill9(name)
	}
	c.rebuild("ctl1")
	c.begin("ctl1")
	c.refuses("ctl1", "ctl2 (127.0.0.2:", "ctl3 (127.0.0.3:")

	// The others are back: they are the group, and it gives way.
	c.begin("ctl2")
	c.begin("ctl3")
	c.until("PD", "ctl2", "squeue", "-h", "-j", id, "-o", "%t")
	c.ends("ctl1", "has the ledger of a group")

	// Its folder is emptied while the others are silent.
	c.kill9("ctl2")
	c.kill9("ctl3")
	c.empty("ctl1")
	c.begin("ctl1")
	c.refuses("ctl1", "ctl2 (127.0.0.2:", "ctl3 (127.0.0.3:")
	c.begin("ctl2")
	c.begin("ctl3")
	c.whole()
	c.until("PD", "ctl1", "squeue", "-h", "-j", id, "-o", "%t")

	// The others are lost for good, and the administrator says so. Scripts that are gone
	// are taken from the log; those that are nowhere keep nobody from beginning.
	for _, name := range trioNames {
		c.kill9(name)
	}
	c.forget("ctl1")
	if out := c.rebuild("ctl1"); !strings.Contains(out, "scripts and environments of all jobs that are not over are there") {
		t.Errorf("rebuild does not take the contents of the log:\n%s", out)
	}
	c.forget("ctl1")
	if out := c.rebuild("ctl1"); !strings.Contains(out, "job "+id+": its script or environment") {
		t.Errorf("rebuild does not name the contents that are lost:\n%s", out)
	}
	c.spawn("ctl1", bin("musterd"), "--role", "controller", "--new-group", "--config", filepath.Join(c.dir, "muster.yaml"))
	c.untilLeads("ctl1")
	c.until("PD", "ctl1", "squeue", "-h", "-j", id, "-o", "%t")
	for _, name := range trioNames[1:] {
		c.empty(name)
		c.begin(name)
	}
	c.whole()
	c.until("PD", "ctl3", "squeue", "-h", "-j", id, "-o", "%t")

	// A second time the word has no effect, and is not kept from him who gave it.
	c.kill9("ctl1")
	c.spawn("ctl1", bin("musterd"), "--role", "controller", "--new-group", "--config", filepath.Join(c.dir, "muster.yaml"))
	c.whole()
	if log, err := os.ReadFile(filepath.Join(c.dir, "ctl1.log")); err != nil || !strings.Contains(string(log), "--new-group has no effect") {
		t.Errorf("the log of ctl1 does not say that --new-group had no effect: %v", err)
	}
}

// forget removes a controller's scripts and environments.
func (c *trio) forget(name string) {
	c.t.Helper()
	if err := os.RemoveAll(filepath.Join(c.home(name), "state", "content")); err != nil {
		c.t.Fatal(err)
	}
}

// rebuild makes a log without the group from a controller's archive.
func (c *trio) rebuild(name string) string {
	c.t.Helper()
	out, err := exec.Command(bin("musterd"), "ledger", "rebuild", "--config", filepath.Join(c.home(name), "muster.yaml")).CombinedOutput()
	if err != nil {
		c.t.Fatalf("rebuild %s: %v\n%s", name, err, out)
	}
	return string(out)
}

// empty takes a controller's state folder away.
func (c *trio) empty(name string) {
	c.t.Helper()
	state := filepath.Join(c.home(name), "state")
	for _, sub := range []string{"ledger", "archive", "content", "cluster"} {
		if err := os.RemoveAll(filepath.Join(state, sub)); err != nil {
			c.t.Fatal(err)
		}
	}
}

// refuses expects that a controller which runs answers no command, and says who is
// silent and what to do.
func (c *trio) refuses(name string, silent ...string) {
	c.t.Helper()
	out, errs, code := c.run(name, "squeue")
	for range 1200 {
		if !strings.Contains(errs, "nothing listens") {
			break
		}
		time.Sleep(50 * time.Millisecond) // it is starting
		out, errs, code = c.run(name, "squeue")
	}
	if code == 0 {
		c.t.Fatalf("%s began a second group: squeue says %q", name, out)
	}
	want := append(silent, "refuses to begin a group", "Not reached: ", "musterd --new-group")
	for _, part := range want {
		if !strings.Contains(errs, part) {
			c.t.Errorf("%s says %q, without %q", name, errs, part)
		}
	}
}

// ends waits until a controller has ended by itself with an error.
func (c *trio) ends(name, text string) {
	c.t.Helper()
	c.mu.Lock()
	cmd := c.running[name]
	delete(c.running, name)
	c.mu.Unlock()
	timer := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	err := cmd.Wait()
	log, readErr := os.ReadFile(filepath.Join(c.dir, name+".log"))
	if err == nil || readErr != nil || !strings.Contains(string(log), text) {
		c.t.Errorf("%s ended with %v (%v), and its log does not say %q", name, err, readErr, text)
	}
}
