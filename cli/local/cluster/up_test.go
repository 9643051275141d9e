package cluster

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/program"
	"github.com/musterhpc/muster/spec"
)

// stand is a folder in which a program that only sleeps stands for musterd.
func stand(t *testing.T) (l *local, start func() error, starts *int) {
	t.Helper()
	sleep, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(sleep)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "musterd-sleep")
	if err := os.WriteFile(program, data, 0o755); err != nil {
		t.Fatal(err)
	}
	l = &local{cfg: &conffile.Config{RunDir: dir}, out: io.Discard, wait: 20 * time.Second, again: map[string]func() error{}, begun: map[string]spec.Instant{}}
	starts = new(int)
	start = func() error {
		*starts++
		return l.start("musterd", program, "600")
	}
	t.Cleanup(func() {
		if pid := l.runningPID("musterd", "musterd"); pid != 0 {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return l, start, starts
}

func pidOf(t *testing.T, l *local) int {
	t.Helper()
	data, err := os.ReadFile(l.pidFile("musterd"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// The nodes of --nodes are those of the list; a list that names none, as an
// unset variable gives it, is not the whole cluster.
func TestUpNodes(t *testing.T) {
	for _, c := range []struct {
		verb, want string
		args       []string
	}{
		{"down", "--nodes: names no node", []string{"--nodes", ""}},
		{"down", "--nodes: names no node", []string{"--jobs", "--nodes="}},
		{"up", "--nodes: names no node", []string{"--nodes", ""}},
		{"up", "--nodes: ", []string{"--nodes", "n[1"}},
		{"up", "--apart has no meaning", []string{"--nodes", "n1", "--apart"}},
		{"down", "`muster init` makes it", []string{"--nodes", "n1"}},
		{"down", "`muster init` makes it", nil},
	} {
		var out, errOut strings.Builder
		rc := UpOrDown(c.verb, append(c.args, "--dir", t.TempDir()), &out, &errOut)
		if rc == 0 || !strings.Contains(errOut.String(), c.want) {
			t.Errorf("%s %q: %d %s%s, want %s", c.verb, c.args, rc, &out, &errOut, c.want)
		}
	}
	l := &local{}
	if err := l.pick("n[1-2],n4"); err != nil || !slices.Equal(l.nodes(), []string{"n1", "n2", "n4"}) {
		t.Errorf("%v: %v", l.nodes(), err)
	}
}

// A daemon that was killed a moment ago is not taken for one that runs, however
// far the kernel is with it; one that runs is left alone.
func TestUpAfterAKill(t *testing.T) {
	l, start, starts := stand(t)
	for round := range 20 {
		if err := l.ensure("musterd", start); err != nil {
			t.Fatal(err)
		}
		if err := l.ensure("musterd", start); err != nil || *starts != round+1 {
			t.Fatalf("round %d: started %d times, %v", round, *starts, err)
		}
		if err := syscall.Kill(pidOf(t, l), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
}

// One that seemed to run and ends while it is waited for is started, once.
func TestUpStartsWhatEndsMeanwhile(t *testing.T) {
	l, start, starts := stand(t)
	if err := errors.Join(start(), l.ensure("musterd", start)); err != nil || *starts != 1 {
		t.Fatal(*starts, err)
	}
	tries := 0
	err := l.until(t.Context(), "musterd", func(context.Context) error {
		if tries++; tries == 1 {
			return errors.Join(errors.New("no answer"), syscall.Kill(pidOf(t, l), syscall.SIGKILL))
		}
		if l.runningPID("musterd", "musterd") == 0 {
			return errors.New("no answer")
		}
		return nil
	})
	if err != nil || *starts != 2 {
		t.Fatalf("started %d times, %v", *starts, err)
	}
	err = l.until(t.Context(), "musterd", func(context.Context) error {
		return errors.Join(errors.New("no answer"), syscall.Kill(pidOf(t, l), syscall.SIGKILL))
	})
	if err == nil || !strings.Contains(err.Error(), "has ended") || *starts != 2 {
		t.Errorf("the second time: started %d times, %v", *starts, err)
	}
}

// A process that has a SIGKILL waiting is one that is killed.
func TestKilled(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), "sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if program.WasKilled(cmd.Process.Pid) || program.IsEnding(cmd.Process.Pid) || program.WasKilled(1<<30) || program.IsEnding(1<<30) {
		t.Error("a process that runs, and one that does not exist, are not ending")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for program.IsEnding(cmd.Process.Pid) {
		time.Sleep(time.Millisecond) //muster:sleep another process's state gives no event here
	}
	if err := cmd.Wait(); err == nil {
		t.Error("it was not killed")
	}
}

// headless makes a process of this test end its first thread and no other.
const headless = "MUSTER_TEST_HEADLESS"

func init() { // runs on the first thread
	if os.Getenv(headless) == "" {
		return
	}
	go func() {
		time.Sleep(time.Minute) //muster:sleep another process's state gives no event here
		os.Exit(0)
	}()
	_, _, _ = syscall.RawSyscall(syscall.SYS_EXIT, 0, 0, 0)
}

// A process whose first thread is a zombie holds its files, and their locks,
// for as long as another thread is left.
func TestEndingIsOverWithTheLastThread(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), headless+"=1")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pid := cmd.Process.Pid
	for stat := ""; !strings.Contains(stat, ") Z "); time.Sleep(time.Millisecond) { //muster:sleep another process's state gives no event here
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			t.Fatal(err)
		}
		stat = string(b)
	}
	if !program.IsEnding(pid) {
		t.Error("its other threads still run")
	}
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := stop(soon, pid); err == nil {
		t.Error("muster down takes it for stopped")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for program.IsEnding(pid) {
		time.Sleep(time.Millisecond) //muster:sleep another process's state gives no event here
	}
	_ = cmd.Wait()
}

// Where the API listens on no port, the agents on this machine use its socket,
// over which they need neither certificate nor token.
func TestAgentsWithoutTheAPI(t *testing.T) {
	l, _, _ := stand(t)
	dir := l.cfg.RunDir
	l.cfg.StateDir, l.cfg.Socket = dir, filepath.Join(dir, "s")
	if err := os.WriteFile(filepath.Join(dir, "muster-agent"), []byte("#!/bin/sh\necho \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := l.launchAgent(t.Context(), dir, "n1", 0); err != nil {
		t.Fatal(err)
	}
	said := ""
	for began := time.Now(); !strings.HasSuffix(said, "\n") && time.Since(began) < l.wait; time.Sleep(5 * time.Millisecond) { //muster:sleep what the other process prints gives no event here
		said = tail(l.logFile("agent-n1"), 1000)
		if said != "" {
			said += "\n"
		}
	}
	if !strings.Contains(said, "--controller "+l.cfg.Socket+"\n") {
		t.Errorf("the agent was started with %s", said)
	}
	l.cfg.Listen.GRPC = "10.0.0.1:7001"
	if at, err := l.controller(); err != nil || at != "localhost:7001" {
		t.Errorf("with an API the agent would reach it at %s, %v", at, err)
	}
}
