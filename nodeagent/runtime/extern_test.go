package runtime_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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
		Placeholder: true,
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

// asNobody is a process of the node with the identity of the job's user.
func asNobody(t *testing.T, job *plan.RunSpec, argv ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: job.UID, Gid: job.GID}}
	return cmd
}

// TestPlaceholderIsOfTheNode: the process that keeps an extern step is not the user's. It
// survives the user's signals, signals to the job and a shortage of memory in the step;
// what was put into the step does not. It ends with the step.
func TestPlaceholderIsOfTheNode(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: without it all processes belong to one user")
	}
	l := newLab(t)
	hello := l.client.Hello()
	if hello.CgroupMode == "none" {
		t.Skip("needs control groups")
	}
	job := l.job("read x <" + l.fifo("gate"))
	step := extern(&job)
	step.Limits = plan.Limits{MemoryBytes: 64 << 20, SwapBytes: plan.NoSwap}
	ctx := context.Background()
	l.launch(step, job)
	seen := l.begun(step.Key)
	l.begun(job.Key)
	proc := filepath.Join("/proc", strconv.Itoa(int(seen.PID)))

	status, err := os.ReadFile(filepath.Join(proc, "status"))
	if err != nil || !strings.Contains(string(status), "\nUid:\t0\t0\t0\t0\n") {
		t.Errorf("the placeholder belongs to the user: %v\n%s", err, status)
	}
	probe := stranger(t)
	err = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", probe.Process.Pid), []byte("-1000"), 0)
	if err == nil { // a root without CAP_SYS_RESOURCE may not
		score, err := os.ReadFile(filepath.Join(proc, "oom_score_adj"))
		if err != nil || string(score) != "-1000\n" {
			t.Errorf("oom_score_adj is %q, %v", score, err)
		}
	}
	alive := func(after string) {
		t.Helper()
		runs, err := l.client.List(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range runs {
			if r.Key == step.Key && r.State == plan.Running && r.KillSent == 0 {
				return
			}
		}
		t.Fatalf("the extern step is over after %s", after)
	}

	out, err := asNobody(t, &job, "sh", "-c", "kill -9 "+strconv.Itoa(int(seen.PID))).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "not permitted") {
		t.Errorf("the user killed the placeholder: %v %s", err, out)
	}
	alive("a signal of its user")

	// A user can have a kill sent to all steps of the job, and asks for that of one.
	for _, target := range []struct {
		key   plan.RunKey
		scope plan.Scope
	}{{job.Key, plan.ScopeSteps}, {step.Key, plan.ScopeRun}, {step.Key, plan.ScopeLeader}} {
		guest := asNobody(t, &job, "sleep", "infinity")
		if err := guest.Start(); err != nil {
			t.Fatal(err)
		}
		if err := l.client.Adopt(ctx, step.Key, guest.Process.Pid); err != nil {
			t.Fatal(err)
		}
		if err := l.client.Signal(ctx, target.key, int32(unix.SIGKILL), target.scope); err != nil {
			t.Fatal(err)
		}
		if err := guest.Wait(); err == nil {
			t.Error("the kill did not reach a process of the extern step")
		}
		alive("a kill sent by the user")
	}

	if hello.Enforces.Memory {
		guest := asNobody(t, &job, "sh", "-c", "read x; a=$(head -c 200000000 /dev/zero | tr '\\0' x); echo survived")
		in, err := guest.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := guest.Start(); err != nil {
			t.Fatal(err)
		}
		if err := l.client.Adopt(ctx, step.Key, guest.Process.Pid); err != nil {
			t.Fatal(err)
		}
		if _, err := in.Write([]byte("\n")); err != nil {
			t.Fatal(err)
		}
		if err := guest.Wait(); err == nil {
			t.Error("a login used more memory than the extern step has")
		}
		alive("a shortage of memory in it")
	}

	if err := l.client.Terminate(ctx, plan.Terminate{Key: step.Key, Scope: plan.ScopeRun, Grace: 1000 * spec.Second}); err != nil {
		t.Fatal(err)
	}
	l.exit(step.Key) // long before the end of the grace
}

// TestPlaceholderIsPlain: nothing of the user's is executed as a placeholder.
func TestPlaceholderIsPlain(t *testing.T) {
	l := newLab(t)
	job := l.job("id")
	job.Placeholder = true
	results, err := l.client.Launch(context.Background(), []plan.RunSpec{job})
	if err != nil || len(results) != 1 || results[0].Code != plan.RefusedSpec {
		t.Errorf("a script as a placeholder: %+v, %v", results, err)
	}
}
