package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// witnessName is the member that votes and keeps no state.
const witnessName = "wit"

// beginWitness starts it.
func (c *trio) beginWitness() {
	c.t.Helper()
	c.spawn(witnessName, bin("musterd"), "--role", "witness", "--config", filepath.Join(c.home(witnessName), "muster.yaml"))
}

// pair waits until one controller leads, the other stands by and the witness votes,
// and says who leads.
func (c *trio) pair(at string) (leads, standby string) {
	c.t.Helper()
	roles := map[string]string{}
	for range 1200 {
		roles = c.roles(at)
		for _, name := range trioNames[:2] {
			switch roles[name] {
			case "leader":
				leads = name
			case "standby":
				standby = name
			}
		}
		if roles[witnessName] == "witness" && leads != "" && standby != "" && leads != standby {
			return leads, standby
		}
		time.Sleep(50 * time.Millisecond)
	}
	c.t.Fatalf("the group does not come together: %v", roles)
	return "", ""
}

// TestWitness: two controllers and a witness lose nothing when the leader is killed,
// go on without the witness, and refuse when only one of the three is left.
func TestWitness(t *testing.T) {
	c := newTrio(t, "--controllers", "ctl1=127.0.0.1,ctl2=127.0.0.2", "--witness", "wit=127.0.0.3")
	if _, err := os.Stat(filepath.Join(c.home(witnessName), "tls", "ca.key")); err == nil {
		t.Error("the witness has the key of the authority")
	}
	for _, name := range trioNames[:2] {
		c.patience(name)
		c.begin(name)
	}
	c.patience(witnessName)

	// Each role where it belongs.
	yaml := filepath.Join(c.home(witnessName), "muster.yaml")
	if out, err := exec.Command(bin("musterd"), "--role", "controller", "--config", yaml).CombinedOutput(); err == nil || !strings.Contains(string(out), "start musterd --role witness") {
		t.Errorf("a witness started as a controller: %v %s", err, out)
	}
	if out, err := exec.Command(bin("musterd"), "--role", "witness", "--config", filepath.Join(c.dir, "muster.yaml")).CombinedOutput(); err == nil || !strings.Contains(string(out), "the witness is wit") {
		t.Errorf("a controller started as a witness: %v %s", err, out)
	}
	c.beginWitness()
	c.pair("ctl1")
	c.addNodes()
	if out, _ := c.must("ctl1", "controllers"); !strings.Contains(out, "survives the loss of 1") {
		t.Errorf("controllers says:\n%s", out)
	}
	if _, errs, code := c.run("ctl1", "controllers", "handover", witnessName); code == 0 || !strings.Contains(errs, "does not lead") {
		t.Errorf("the lead was handed to the witness: %d %s", code, errs)
	}

	// The leader is lost, twice, under load.
	var a acknowledged
	for range 2 {
		leads, standby := c.pair("ctl1")
		done := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() { c.submitter(standby, done, &a) })
		time.Sleep(500 * time.Millisecond)
		began := time.Now()
		c.kill9(leads)
		c.untilLeads(standby)
		time.Sleep(500 * time.Millisecond)
		t.Logf("%s lost: from acknowledgement to acknowledgement %v", leads, a.gap(began, time.Now()).Round(time.Millisecond))
		if a.gap(began, time.Now()) < 0 {
			t.Error("nothing was acknowledged after the loss of the leader")
		}
		c.begin(leads)
		c.pair(standby)
		close(done)
		wg.Wait()
	}
	leads, standby := c.pair("ctl1")
	if len(a.lost) > 0 {
		t.Errorf("not acknowledged through the controller that lived: %v", a.lost)
	}
	c.until("", leads, "squeue", "-h")
	for _, id := range a.ids {
		data, err := os.ReadFile(filepath.Join(c.jobs, "ran."+id))
		if n := strings.Count(string(data), "\n"); err != nil || n != 1 {
			t.Errorf("job %s was acknowledged and ran %d times: %v", id, n, err)
		}
	}
	c.keepsNoState()

	// Without the witness the two go on.
	c.kill9(witnessName)
	id, _ := c.must(standby, "sbatch", "--parsable", "-o", "/dev/null", "--wrap", "true")
	c.until("", leads, "squeue", "-h", "-j", id)
	c.beginWitness()
	leads, standby = c.pair(standby)

	// With the witness lost too, the one that is left refuses.
	c.kill9(witnessName)
	c.kill9(leads)
	out, errs, code := c.run(standby, "sbatch", "--parsable", "--wrap", "true")
	if code == 0 {
		t.Errorf("one of three acknowledged job %s", out)
	}
	t.Logf("one of three says: %s", strings.TrimSpace(errs))
	if !strings.Contains(errs, "lead") && !strings.Contains(errs, "controller") {
		t.Errorf("one of three says only %q", errs)
	}
	c.beginWitness()
	c.untilLeads(standby)
	id, _ = c.must(standby, "sbatch", "--parsable", "-o", "/dev/null", "--wrap", "true")
	c.until("", standby, "squeue", "-h", "-j", id)
	c.begin(leads)
	c.pair(standby)
}

// untilLeads waits until a controller leads by its own word.
func (c *trio) untilLeads(name string) {
	c.t.Helper()
	for range 1200 {
		if c.roles(name)[name] == "leader" {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	c.t.Fatalf("%s does not lead: %v", name, c.roles(name))
}

// keepsNoState looks at what the witness has on its disk: a log, and no archive,
// script or key.
func (c *trio) keepsNoState() {
	c.t.Helper()
	state := filepath.Join(c.home(witnessName), "state")
	entries, err := os.ReadDir(state)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != "ledger" {
			c.t.Errorf("the witness keeps %s", e.Name())
		}
	}
}
