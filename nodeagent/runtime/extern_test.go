package runtime_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime"
	"github.com/musterhpc/muster/spec"
	"golang.org/x/sys/unix"
)

// extern makes the extern step of a job's run.
func extern(job *plan.RunSpec) plan.RunSpec {
	return plan.RunSpec{
		Key: job.Key.StepOf(plan.StepExtern), JobID: job.JobID, UID: job.UID, GID: job.GID,
		WorkDir: "/", Argv: []string{"sleep", "infinity"}, Env: job.Env, Stdout: "/dev/null",
	}
}

// stranger is a process of the node that no run has started.
func stranger(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "infinity")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	return cmd
}

// TestAdopt: a process of the node becomes one of a job's extern step. A signal that the
// job's program has a handler for does not reach it; the end of the step does.
func TestAdopt(t *testing.T) {
	l := newLab(t)
	if l.client.Hello().CgroupMode == "none" {
		t.Skip("needs control groups")
	}
	job := l.job("trap 'echo told; exit 0' USR1; echo up; while :; do sleep 0.05; done")
	step := extern(&job)
	ctx := context.Background()
	login := stranger(t)
	if err := l.client.Adopt(ctx, step.Key, login.Process.Pid); !errors.Is(err, runtime.ErrNotFound) {
		t.Errorf("into a run that is not there: %v", err)
	}
	l.launch(step, job)
	seen := l.begun(step.Key)
	l.begun(job.Key)
	if err := l.client.Adopt(ctx, step.Key, login.Process.Pid); err != nil {
		t.Fatal(err)
	}
	procs, err := os.ReadFile(seen.Cgroup + "/cgroup.procs")
	if err != nil || len(strings.Fields(string(procs))) != 2 {
		t.Errorf("the group holds %q, %v", procs, err)
	}
	for { // until the script has its handler
		out, err := os.ReadFile(l.work + "/" + job.Stdout)
		if err == nil && strings.Contains(string(out), "up") {
			break
		}
	}
	if err := l.client.Signal(ctx, job.Key, int32(unix.SIGUSR1), plan.ScopeJob); err != nil {
		t.Fatal(err)
	}
	if x := l.exit(job.Key); x.Code != 0 || x.Signal != 0 {
		t.Errorf("the job ended with %+v", x)
	}
	if err := l.client.Terminate(ctx, plan.Terminate{Key: step.Key, Scope: plan.ScopeRun, Grace: 30 * spec.Second}); err != nil {
		t.Fatal(err)
	}
	if x := l.exit(step.Key); x.Signal == int32(unix.SIGUSR1) {
		t.Error("the signal to the job ended the extern step")
	}
	err = login.Wait()
	status, ok := login.ProcessState.Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() == unix.SIGUSR1 {
		t.Errorf("the login was not ended by the end of the extern step: %v", err)
	}
	late := stranger(t)
	if err := l.client.Adopt(ctx, step.Key, late.Process.Pid); err == nil {
		t.Error("a process was put into a run that is over")
	}
}
