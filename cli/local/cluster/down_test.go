package cluster

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/program"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime"
	"github.com/musterhpc/muster/nodeagent/runtime/shepherd"
	"github.com/musterhpc/muster/spec"
)

const asShepherd = "MUSTERD_TEST_SHEPHERD"

// TestMain is the shepherd where the environment says so.
func TestMain(m *testing.M) {
	if os.Getenv(asShepherd) != "" {
		os.Exit(shepherd.Main(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// fold is a lab's folder in which shepherds can be started.
type fold struct {
	*local
	t   *testing.T
	out bytes.Buffer
}

func newFold(t *testing.T) *fold {
	t.Helper()
	dir, err := os.MkdirTemp("", "down")
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	f := &fold{t: t}
	f.local = &local{cfg: &conffile.Config{StateDir: dir, RunDir: dir}, cluster: &spec.Config{}, out: &f.out, wait: 30 * time.Second}
	f.local.shepherd = runtime.Config{
		Binary: self,
		Args:   []string{"--cgroup-mode", "none"},
		Env:    append(os.Environ(), asShepherd+"=1"),
	}
	t.Cleanup(func() {
		for _, p := range f.left() {
			_ = syscall.Kill(p.PID, syscall.SIGKILL)
		}
		_ = os.RemoveAll(dir)
	})
	return f
}

// connect starts the shepherd of a release for a node, unless it runs.
func (f *fold) connect(node, release string) *runtime.Client {
	f.t.Helper()
	cfg := f.local.shepherd
	cfg.Dir = filepath.Join(f.agentDir(node), "shepherd")
	cfg.Node = node
	cfg.Release = release
	c, err := runtime.Start(context.Background(), cfg)
	if err != nil {
		f.t.Fatal(err)
	}
	return c
}

// shepherd starts the shepherd of a release for a node, with a run that sleeps
// if asked.
func (f *fold) shepherd(node, release string, busy bool) {
	f.t.Helper()
	c := f.connect(node, release)
	defer c.Close()
	if !busy {
		return
	}
	key := plan.Key(1, 1, 0)
	res, err := c.Launch(context.Background(), []plan.RunSpec{{Key: key, JobID: 1, UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()),
		WorkDir: "/", Argv: []string{"sleep", "600"}}})
	if err != nil || res[0].Status != plan.Accepted {
		f.t.Fatal(res, err)
	}
}

// left gives the shepherds of the folder that still run.
func (f *fold) left() (out []runtime.Process) {
	for _, node := range []string{"n1", "n2", "n3", "n4"} {
		out = append(out, runtime.Shepherds(filepath.Join(f.agentDir(node), "shepherd"))...)
	}
	return out
}

// Every shepherd of the folder is found: of another release, of a node that
// slurm.conf does not name, one whose socket is gone. Those of another folder
// are left alone, and so are jobs unless they are over.
func TestDownFindsEveryShepherd(t *testing.T) {
	f, other := newFold(t), newFold(t)
	other.shepherd("n1", "older", false)
	f.shepherd("n1", "v1", false)
	f.shepherd("n2", "older", false)
	f.shepherd("n3", "silent", false)
	f.shepherd("n4", "busy", true)
	if err := os.Remove(runtime.Socket(filepath.Join(f.agentDir("n3"), "shepherd"), "silent")); err != nil {
		t.Fatal(err)
	}
	if n := len(f.left()); n != 4 {
		t.Fatalf("%d shepherds run, of 4", n)
	}

	if err := f.stopCluster(); err != nil {
		t.Fatal(err)
	}
	said := f.out.String()
	for _, want := range []string{"n3: its shepherd (pid ", "does not answer and stays", "n4: 1 job goes on"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is missing in:\n%s", want, said)
		}
	}
	releases := map[string]bool{}
	for _, p := range f.left() {
		releases[p.Release] = true
	}
	if len(releases) != 2 || !releases["silent"] || !releases["busy"] {
		t.Errorf("these run still: %v", releases)
	}

	f.out.Reset()
	if err := f.endShepherds(t.Context(), forgetRuns); err != nil {
		t.Fatal(err)
	}
	if left := f.left(); len(left) != 0 || !strings.Contains(f.out.String(), "did not answer and was ended") {
		t.Errorf("when all jobs are over, these stay: %v; it said:\n%s", left, f.out.String())
	}
	if n := len(other.left()); n != 1 {
		t.Errorf("of another folder's one shepherd %d run", n)
	}
}

// TestDownJobsWithoutController: the controller is gone and cannot cancel, so down --jobs kills the
// jobs itself, also those whose shepherd does not answer or is dead. It names them, leaves no
// process behind, and keeps their ends for the controller.
func TestDownJobsWithoutController(t *testing.T) {
	f := newFold(t)
	f.shepherd("n1", "v1", true)
	f.shepherd("n2", "silent", true)
	f.shepherd("n3", "dead", true)
	f.shepherd("n4", "idle", false)
	sleeps := map[string]int{}
	for node, release := range map[string]string{"n1": "v1", "n2": "silent", "n3": "dead"} {
		c := f.connect(node, release)
		runs, err := c.List(t.Context())
		if err != nil || len(runs) != 1 {
			t.Fatal(runs, err)
		}
		for runs[0].PID == 0 {
			runs, err = c.List(t.Context())
			if err != nil {
				t.Fatal(err)
			}
		}
		sleeps[node] = int(runs[0].PID)
		c.Close()
	}
	if err := os.Remove(runtime.Socket(filepath.Join(f.agentDir("n2"), "shepherd"), "silent")); err != nil {
		t.Fatal(err)
	}
	for _, p := range f.left() {
		if p.Release == "dead" {
			if err := syscall.Kill(p.PID, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
	}
	f.jobs = true
	if err := f.stopCluster(); err != nil {
		t.Fatal(err)
	}
	said := f.out.String()
	for _, want := range []string{"the controller does not run", "n1: killed 1 job: 1;", "n2: killed 1 job: 1;", "n3: killed 1 job: 1;"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is missing in:\n%s", want, said)
		}
	}
	if left := f.left(); len(left) != 0 {
		t.Errorf("these shepherds run still: %v\n%s", left, said)
	}
	for node, pid := range sleeps {
		if program.HoldsFiles(pid) {
			t.Errorf("the job of %s (pid %d) runs still", node, pid)
		}
	}
	c := f.connect("n1", "v1")
	defer c.Close()
	runs, err := c.List(t.Context())
	if err != nil || len(runs) != 1 || runs[0].Exit == nil || runs[0].Exit.Signal != int32(syscall.SIGKILL) {
		t.Errorf("the end of the job was not kept: %+v, %v", runs, err)
	}
}
