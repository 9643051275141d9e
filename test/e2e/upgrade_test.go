package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// previousRelease is the commit that stands for the release before this one: the last whose
// controllers know version 1 of the ledger only. With each version of the ledger it moves to the
// last commit before that version.
const previousRelease = "09d4e7525e2e"

// buildPrevious builds the programs of the previous release out of the repository's history,
// and keeps them for the next run.
func buildPrevious(t *testing.T) string {
	t.Helper()
	need(t)
	top := filepath.Join("..", "..")
	if out, err := exec.Command("git", "-C", top, "cat-file", "-e", previousRelease+"^{commit}").CombinedOutput(); err != nil {
		t.Skipf("the previous release is built from commit %s, which this checkout does not have: %s", previousRelease, out)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(cache, "muster", "release-"+previousRelease)
	if _, err := os.Stat(filepath.Join(dir, "muster-agent")); err == nil {
		return dir
	}
	tree := t.TempDir()
	// The agent is last: it tells that all are there.
	script := fmt.Sprintf(`set -e
git -C "$1" archive %s | tar -x -C "$2"
cd "$2"
mkdir -p "$3"
CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=%s' -o "$3/" ./cmd/muster ./cmd/musterd ./cmd/muster-shepherd
go build -trimpath -ldflags '-s -w -X main.version=%s' -o "$3/" ./cmd/muster-agent`, previousRelease, previousRelease, previousRelease)
	absolute, err := filepath.Abs(top)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("bash", "-c", script, "bash", absolute, tree, dir).CombinedOutput(); err != nil {
		t.Fatalf("build release %s: %v\n%s", previousRelease, err, out)
	}
	return dir
}

// terminate ends a daemon as its service would, and waits for it.
func (c *trio) terminate(name string) {
	c.t.Helper()
	c.signal(name, syscall.SIGTERM)
	c.mu.Lock()
	cmd := c.running[name]
	delete(c.running, name)
	c.mu.Unlock()
	_ = cmd.Wait() // of a program that was told to end
}

// rolling is an upgrade of a group under way.
type rolling struct {
	*trio
	old string // folder of the previous release
}

// restart ends a controller and starts it from a folder, empty = this tree's, and waits until it
// has the ledger.
func (c *rolling) restart(name, folder string) {
	c.t.Helper()
	c.terminate(name)
	c.use(folder)
	c.begin(name)
	c.whole()
}

// passLead has a controller lead.
func (c *rolling) passLead(to string) {
	c.t.Helper()
	for range 20 {
		if c.whole() == to {
			return
		}
		c.run(to, "controllers", "handover", to) // who leads then is asked above
	}
	c.t.Fatalf("%s does not get the lead", to)
}

// runsJob has a node run a job, by the tools of one release and of the other.
func (c *rolling) runsJob(node string) {
	c.t.Helper()
	for _, folder := range []string{"", c.old} {
		c.use(folder)
		id, _ := c.must("ctl1", "sbatch", "--parsable", "-w", node, "-o", "/dev/null", "--wrap", "exit 0")
		c.completes(node, id)
	}
	c.use("")
}

// completes waits until a job of a node has ended well.
func (c *rolling) completes(node, id string) {
	c.t.Helper()
	state := ""
	for range 3000 {
		state, _, _ = c.run("ctl2", "squeue", "-h", "-t", "all", "-j", id, "-o", "%T")
		if state == "COMPLETED" {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	job, _, _ := c.run("ctl2", "scontrol", "show", "job", id)
	shown, _, _ := c.run("ctl2", "scontrol", "show", "node", node)
	c.t.Fatalf("job %s on %s is %s\n%s\n%s", id, node, state, job, shown)
}

// TestUpgrade upgrades a group of three and its nodes from the previous release, one program at a
// time, under load: nothing acknowledged is lost, jobs run on, releases work side by side in both
// directions, each step can be taken back, and only the raised version of the ledger ends that.
func TestUpgrade(t *testing.T) {
	old := buildPrevious(t)
	c := &rolling{trio: newTrioFrom(t, old, "--controllers", "ctl1=127.0.0.1,ctl2=127.0.0.2,ctl3=127.0.0.3"), old: old}
	for _, name := range trioNames {
		c.patience(name)
		c.begin(name)
	}
	c.whole()
	c.addNodes()
	long, _ := c.must("ctl2", "sbatch", "--parsable", "-w", "node1", "-o", "/dev/null", "-t", "60", "--wrap", "echo $$ >> long; exec sleep 3000")
	c.until("R", "ctl3", "squeue", "-h", "-j", long, "-o", "%t")

	var a acknowledged
	done := make(chan struct{})
	var wg sync.WaitGroup
	for _, at := range trioNames {
		wg.Go(func() { c.submitter(at, done, &a) })
	}
	// The nodes' agents and the tools may be newer than the controllers.
	c.use("")
	c.terminate("node2")
	c.beginAgent("node2")
	c.runsJob("node2")
	plan, _ := c.must("ctl1", "upgrade", "--plan")
	if !strings.Contains(plan, "version 1") || !strings.Contains(plan, previousRelease) || strings.Contains(plan, "controller  "+previousRelease+"  done") {
		t.Errorf("before the upgrade the plan says\n%s", plan)
	}

	// One standby after the other, and back.
	leads := c.whole()
	standbys := slices.DeleteFunc(slices.Clone(trioNames), func(n string) bool { return n == leads })
	c.restart(standbys[0], "")
	c.restart(standbys[1], "")
	c.passLead(standbys[0])
	c.runsJob("node1") // whose agent is of the previous release
	if out, errs, code := c.run(standbys[1], "upgrade", "--raise"); code == 0 || !strings.Contains(errs, leads) {
		t.Errorf("raised beside an older controller: exit %d\n%s%s", code, out, errs)
	}
	if plan, _ := c.must("ctl1", "upgrade"); !strings.Contains(plan, "in the way:") || !strings.Contains(plan, "upgrade "+leads) {
		t.Errorf("half way the plan says\n%s", plan)
	}
	c.restart(standbys[1], old)
	c.passLead(standbys[1])
	c.runsJob("node2")
	c.restart(standbys[1], "")
	c.restart(leads, "")
	c.terminate("node1")
	c.beginAgent("node1")
	c.runsJob("node1")

	leads = c.whole()
	if plan, _ := c.must("ctl1", "upgrade"); strings.Contains(plan, "in the way:") || strings.Count(plan, "done") != 4 {
		t.Errorf("at the end the plan says\n%s", plan)
	}
	if out, _ := c.must(leads, "upgrade", "--raise"); out != "the ledger is at version 2" {
		t.Errorf("the raise says %q", out)
	}
	c.runsJob("node2")
	close(done)
	wg.Wait()
	fmt.Printf("upgrade: %d submissions acknowledged meanwhile, %d not\n", len(a.ids), len(a.lost))
	c.cannotGoBack()
	c.ranOnce(long, &a)
}

// cannotGoBack starts a standby from the previous release, which must not read the ledger.
func (c *rolling) cannotGoBack() {
	c.t.Helper()
	leads := c.whole()
	name := trioNames[slices.IndexFunc(trioNames, func(n string) bool { return n != leads })]
	c.terminate(name)
	cmd := exec.Command(filepath.Join(c.old, "musterd"), "--role", "controller", "--config", filepath.Join(c.home(name), "muster.yaml"))
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "written by a newer release") {
		c.t.Errorf("the previous release on the raised ledger: %v\n%s", err, out)
	}
	c.begin(name)
	c.whole()
}

// ranOnce looks whether all that was acknowledged ran, and once.
func (c *rolling) ranOnce(long string, a *acknowledged) {
	t := c.t
	t.Helper()
	for _, text := range a.lost {
		t.Logf("not acknowledged: %s", text)
	}
	if len(a.ids) == 0 {
		t.Fatal("nothing was submitted meanwhile")
	}
	c.until(long+" R", "ctl1", "squeue", "-h", "-o", "%i %t")
	for _, id := range a.ids {
		data, err := os.ReadFile(filepath.Join(c.jobs, "ran."+id))
		if n := strings.Count(string(data), "\n"); err != nil || n != 1 {
			t.Errorf("job %s was acknowledged and ran %d times (%v)", id, n, err)
		}
	}
	if data, err := os.ReadFile(filepath.Join(c.jobs, "long")); err != nil || strings.Count(string(data), "\n") != 1 {
		t.Errorf("the long job began as processes %q (%v)", data, err)
	}
}
