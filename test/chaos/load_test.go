package main

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhpc/muster/test/chaos/acked"
)

// attempts runs the job script as an agent would.
type attempts struct {
	t    *testing.T
	dir  string
	path string
}

func newAttempts(t *testing.T) *attempts {
	o := &options{out: t.TempDir()}
	if err := os.Mkdir(filepath.Join(o.out, "locks"), 0o777); err != nil {
		t.Fatal(err)
	}
	l, err := newLoad(o, nil)
	if err != nil {
		t.Fatal(err)
	}
	return &attempts{t: t, dir: o.out, path: l.path}
}

func (a *attempts) start(seconds string, env ...string) *exec.Cmd {
	a.t.Helper()
	cmd := exec.Command(a.path, a.dir, seconds, "0")
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH")}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	return cmd
}

// noted are the words of the side-effect file: job, attempt, what.
func (a *attempts) noted() []string {
	a.t.Helper()
	b, err := os.ReadFile(filepath.Join(a.dir, "effects"))
	if err != nil {
		a.t.Fatal(err)
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		f := strings.Fields(line)
		if len(f) != 5 {
			a.t.Fatalf("line %q", line)
		}
		out = append(out, strings.Join(f[:3], " "))
	}
	return out
}

func (a *attempts) until(line string) {
	a.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		for _, l := range a.noted() {
			if l == line {
				return
			}
		}
	}
	a.t.Fatalf("never noted %q: %q", line, a.noted())
}

// untilItSleeps waits until a shell has started its sleep.
func (a *attempts) untilItSleeps(shell int) {
	a.t.Helper()
	list := fmt.Sprintf("/proc/%d/task/%d/children", shell, shell)
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		children, err := os.ReadFile(list)
		if err != nil {
			a.t.Fatal(err)
		}
		for _, pid := range strings.Fields(string(children)) {
			if name, _ := os.ReadFile("/proc/" + pid + "/comm"); string(name) == "sleep\n" {
				return
			}
		}
	}
	a.t.Fatalf("the shell %d starts no sleep", shell)
}

func count(lines []string, what string) (n int) {
	for _, l := range lines {
		if strings.HasSuffix(l, " "+what) {
			n++
		}
	}
	return n
}

func TestTwoAttemptsAtOnceAreNoted(t *testing.T) {
	a := newAttempts(t)
	first := a.start("60", "SLURM_JOB_ID=5")
	a.until("5 0 start")
	second := a.start("0", "SLURM_JOB_ID=5", "SLURM_RESTART_COUNT=1")
	if err := second.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := a.noted(); count(got, "double") != 1 {
		t.Errorf("the second ran beside the first, noted %q", got)
	}
	if err := syscall.Kill(-first.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait() // killed
}

// gone waits until nothing of a process group is left: what was killed with its
// leader may still be on its way out, and hold the lock, when that is reaped.
func (a *attempts) gone(group int) {
	a.t.Helper()
	for began := time.Now(); !errors.Is(syscall.Kill(-group, 0), syscall.ESRCH); time.Sleep(5 * time.Millisecond) {
		if time.Since(began) > 30*time.Second {
			a.t.Fatalf("something of process group %d is left", group)
		}
	}
}

func TestAKilledAttemptDoesNotCountAsRunning(t *testing.T) {
	a := newAttempts(t)
	first := a.start("60", "SLURM_ARRAY_JOB_ID=7", "SLURM_ARRAY_TASK_ID=2", "SLURM_JOB_ID=9")
	a.until("7_2 0 start")
	if err := syscall.Kill(-first.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = first.Wait() // killed
	a.gone(first.Process.Pid)
	second := a.start("0", "SLURM_ARRAY_JOB_ID=7", "SLURM_ARRAY_TASK_ID=2", "SLURM_JOB_ID=9", "SLURM_RESTART_COUNT=1")
	if err := second.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := a.noted(); count(got, "double") != 0 || count(got, "start") != 2 || count(got, "end") != 1 {
		t.Errorf("noted %q", got)
	}
}

// A process that the first attempt left behind is the first attempt, still.
func TestAChildThatSurvivesCounts(t *testing.T) {
	a := newAttempts(t)
	first := a.start("60", "SLURM_JOB_ID=5")
	a.until("5 0 start")
	a.untilItSleeps(first.Process.Pid)
	if err := first.Process.Kill(); err != nil { // the shell only: its sleep goes on
		t.Fatal(err)
	}
	_ = first.Wait() // killed
	second := a.start("0", "SLURM_JOB_ID=5", "SLURM_RESTART_COUNT=1")
	if err := second.Wait(); err != nil {
		t.Fatal(err)
	}
	got := a.noted()
	if err := syscall.Kill(-first.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatalf("the sleep was gone already, so this shows nothing: %v", err)
	}
	if count(got, "double") != 1 {
		t.Errorf("noted %q", got)
	}
}

func TestPlanKillsEveryRoleAndFollowsTheSeed(t *testing.T) {
	all := []role{controller, engine, agent, shepherd, roleNode, hang}
	a, b := plan(50, all, rng(7, 0)), plan(50, all, rng(7, 0))
	times := map[role]int{}
	for i := range a {
		times[a[i]]++
		if a[i] != b[i] {
			t.Fatal("one seed, two plans")
		}
	}
	for _, r := range all {
		if times[r] < 8 {
			t.Errorf("%s dies %d times of 50", r, times[r])
		}
	}
	if _, err := (&options{roles: "controller,enigne"}).parseVictims(); err == nil {
		t.Error("a misspelt role is accepted")
	}
}

func TestAnswersThatAreNoNumberAreNotAcknowledgements(t *testing.T) {
	a := newAttempts(t)
	list, err := acked.Create(filepath.Join(a.dir, "acked"))
	if err != nil {
		t.Fatal(err)
	}
	l := &load{o: &options{}, list: list, refused: map[string]int{}, byKind: map[string]int{}}
	for _, answer := range []string{"", "0\n", "sbatch: error", "-4"} {
		l.note("sbatch", job{}, answer, nil)
	}
	if list.Len() != 0 {
		t.Errorf("%d answers were believed", list.Len())
	}
	l.note("sbatch", job{kind: acked.OK, tasks: 3}, "12;chaos\n", nil)
	b, err := os.ReadFile(filepath.Join(a.dir, "acked"))
	if err != nil || !bytes.HasPrefix(b, []byte("12 3 ok ")) {
		t.Errorf("the list holds %q, %v", b, err)
	}
}

func TestEveryKindOfJobIsDrawn(t *testing.T) {
	seen := map[string]bool{}
	r := rand.New(rand.NewPCG(1, 1))
	for range 500 {
		j := draw(r)
		seen[string(j.kind)+j.exit()] = true
		seen["array"] = seen["array"] || j.tasks > 0
	}
	if !seen["ok0"] || !seen["fails7"] || !seen["array"] {
		t.Errorf("drawn: %v", seen)
	}
}
