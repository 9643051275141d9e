package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// swapState puts a copy of a state folder in the place of a member's, which is moved aside.
func (c *trio) swapState(name, from, aside string) {
	c.t.Helper()
	if err := os.Rename(c.state(name), aside); err != nil {
		c.t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-a", from, c.state(name)).CombinedOutput(); err != nil {
		c.t.Fatalf("%v: %s", err, out)
	}
}

// startsNot starts a member that must end with a line that has all these words.
func (c *trio) startsNot(name string, words ...string) {
	c.t.Helper()
	cmd := exec.Command(bin("musterd"), "--role", "controller", "--config", filepath.Join(c.home(name), "muster.yaml"))
	out, err := cmd.CombinedOutput()
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	last := lines[len(lines)-1]
	for _, word := range words {
		if err == nil || !strings.Contains(last, word) {
			c.t.Errorf("%s ended with %v and %q, want %q", name, err, last, word)
		}
	}
	c.t.Logf("%s: %s", name, last)
}

// untilLogged waits for a line in a member's log.
func (c *trio) untilLogged(name string, words ...string) {
	c.t.Helper()
	path := filepath.Join(c.dir, name+".log")
	for range 600 {
		data, _ := os.ReadFile(path)
		for line := range strings.Lines(string(data)) {
			found := true
			for _, word := range words {
				found = found && strings.Contains(line, word)
			}
			if found {
				c.t.Logf("%s: %s", name, strings.TrimSpace(line))
				return
			}
		}
		time.Sleep(50 * time.Millisecond)
	}
	c.t.Errorf("%s does not log %q", name, words)
}

// TestMembersThatDoNotFit: a controller with another cluster name and one with the ledger of another
// group of the same name end with a line that says so, and one that was removed says that. The
// group goes on, and nothing of either ledger is lost.
func TestMembersThatDoNotFit(t *testing.T) {
	t.Parallel() // it waits more than it works
	c := newTrio(t, "--controllers", "ctl1=127.0.0.1,ctl2=127.0.0.2,ctl3=127.0.0.3")
	fresh := map[string]string{}
	for _, name := range trioNames {
		fresh[name] = filepath.Join(c.dir, name+".fresh")
		if _, err := os.Stat(c.state(name)); err != nil {
			if err := os.Mkdir(c.state(name), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if out, err := exec.Command("cp", "-a", c.state(name), fresh[name]).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	// The first group, of which ctl3 keeps what it has.
	c.beginAll()
	for range 3 {
		c.must("ctl1", "sbatch", "--begin=now+1hour", "-J", "first", "--wrap", "true")
	}
	c.until("first\nfirst\nfirst", "ctl3", "squeue", "-h", "-o", "%j")
	mark := filepath.Join(c.state("ctl3"), "cluster")
	for range 600 {
		if _, err := os.Stat(mark); err == nil {
			break
		}
		time.Sleep(50 * time.Millisecond)
	}
	for _, name := range trioNames {
		c.terminate(name)
	}
	of1 := filepath.Join(c.dir, "ctl3.first")
	for _, name := range trioNames {
		aside := filepath.Join(c.dir, name+".first")
		c.swapState(name, fresh[name], aside)
	}
	// The second group, with the same names and certificates.
	for _, name := range trioNames {
		c.begin(name)
	}
	c.whole()
	c.must("ctl1", "sbatch", "--begin=now+1hour", "-J", "second", "--wrap", "true")
	c.terminate("ctl3")
	of2 := filepath.Join(c.dir, "ctl3.second")
	c.swapState("ctl3", of1, of2)
	c.startsNot("ctl3", "two clusters of one name", "has the ledger", "move "+c.state("ctl3")+" aside")
	if out, err := exec.Command("diff", "-r", "-x", "LOCK", "-x", "*.lock", of1, c.state("ctl3")).CombinedOutput(); err != nil {
		t.Errorf("the ledger of the first group has changed: %v\n%s", err, out)
	}
	if err := os.RemoveAll(c.state("ctl3")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(of2, c.state("ctl3")); err != nil {
		t.Fatal(err)
	}

	conf := filepath.Join(c.home("ctl3"), "slurm.conf")
	text, err := os.ReadFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	other := strings.Replace(string(text), "ClusterName=muster", "ClusterName=other", 1)
	if err := os.WriteFile(conf, []byte(other), 0o600); err != nil {
		t.Fatal(err)
	}
	c.startsNot("ctl3", "the certificate is of another cluster", `of "muster"`, "ClusterName=other")
	if err := os.WriteFile(conf, text, 0o600); err != nil {
		t.Fatal(err)
	}

	leads := c.otherLeader("ctl3")
	c.must(leads, "controllers", "remove", "ctl3")
	c.begin("ctl3")
	c.untilLogged("ctl3", "this controller was removed from the group", "muster controllers add ctl3")
	c.until("second", "ctl3", "squeue", "-h", "-o", "%j")
	c.must(leads, "controllers", "add", "ctl3")
	c.whole()
	c.until("second", "ctl3", "squeue", "-h", "-o", "%j")
}
