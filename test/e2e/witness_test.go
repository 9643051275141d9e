package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
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

// losses are how a member of two controllers and a witness is lost, in turn.
var losses = []string{"the leader was killed", "the leader was killed", "the leader was stopped", "the witness was killed"}

// loseOne loses a member while jobs are submitted, brings it back, and tells the
// longest time without an acknowledgement; -1 = none came any more.
func (c *trio) loseOne(round int, a *acknowledged) time.Duration {
	c.t.Helper()
	leads, standby := c.pair("ctl1")
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() { c.submitter(standby, done, a) })
	time.Sleep(500 * time.Millisecond)
	began := time.Now()
	how := losses[round%len(losses)]
	switch how {
	case "the leader was stopped":
		c.signal(leads, syscall.SIGSTOP)
		c.untilLeads(standby)
	case "the witness was killed":
		c.kill9(witnessName)
	default:
		c.kill9(leads)
		c.untilLeads(standby)
	}
	time.Sleep(500 * time.Millisecond)
	gap := a.gap(began, time.Now())
	switch how {
	case "the leader was stopped":
		c.signal(leads, syscall.SIGCONT)
	case "the witness was killed":
		c.beginWitness()
	default:
		c.begin(leads)
	}
	c.pair(standby)
	close(done)
	wg.Wait()
	return gap
}

// TestWitness: two controllers and a witness lose nothing when a member is killed or
// stopped, and refuse when only one of the three is left. KILLS says how often;
// `make chaos-ha` sets it.
func TestWitness(t *testing.T) {
	kills := len(losses)
	if n, err := strconv.Atoi(os.Getenv("KILLS")); err == nil {
		kills = n
	}
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

	// A member is lost, again and again, under load.
	var a acknowledged
	var gaps []time.Duration
	for i := range kills {
		gap := c.loseOne(i, &a)
		t.Logf("%s: from acknowledgement to acknowledgement %v", losses[i%len(losses)], gap.Round(time.Millisecond))
		gaps = append(gaps, gap)
	}
	slices.Sort(gaps)
	fmt.Printf("two controllers and a witness: %d losses of a member, %d submissions acknowledged, %d not; from acknowledgement to acknowledgement: median %v, slowest %v\n",
		kills, len(a.ids), len(a.lost), gaps[len(gaps)/2].Round(time.Millisecond), gaps[len(gaps)-1].Round(time.Millisecond))
	if gaps[0] < 0 {
		t.Error("nothing was acknowledged after the loss of a member")
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
	for _, want := range []string{"1 of 3 votes are there, and 2 are needed", "Not reached: ", leads + " (", witnessName + " (", "Start musterd there"} {
		if !strings.Contains(errs, want) {
			t.Errorf("one of three says %q, without %q", errs, want)
		}
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
