package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime"
	"github.com/musterhpc/muster/nodeagent/runtime/login"
	"github.com/musterhpc/muster/nodeagent/runtime/minder"
	"github.com/musterhpc/muster/nodeagent/runtime/receive"
	"github.com/musterhpc/muster/nodeagent/runtime/shepherd"
	"golang.org/x/sys/unix"
)

// asShepherd makes the test binary be the real program: it is what a started
// shepherd runs here, so that no build step comes before the tests.
const asShepherd = "MUSTER_TEST_AS_SHEPHERD"

func TestMain(m *testing.M) {
	verbs := []string{
		minder.Verb, minder.TaskVerb, minder.ContainedTaskVerb,
		login.Verb, login.PrintVerb, shepherd.GuardVerb, receive.Verb,
	}
	calledByVerb := len(os.Args) > 1 && slices.Contains(verbs, os.Args[1])
	if os.Getenv(asShepherd) != "" || calledByVerb {
		os.Exit(profiled())
	}
	os.Exit(m.Run())
}

// profiled is the shepherd, writing a CPU profile where the benchmark wants one.
func profiled() int {
	if path := os.Getenv("MUSTER_TEST_CPUPROFILE"); path != "" {
		f, err := os.Create(path)
		if err == nil && pprof.StartCPUProfile(f) == nil {
			defer pprof.StopCPUProfile()
		}
	}
	return shepherd.Main(os.Args[1:], os.Stdout, os.Stderr)
}

// lab is one node: a state folder, a shepherd, and everything heard from it.
type lab struct {
	t      testing.TB
	dir    string // holds state and work
	work   string
	cfg    runtime.Config
	client *runtime.Client

	mu      sync.Mutex
	cond    *sync.Cond
	exits   map[plan.RunKey]plan.Exit
	heard   map[plan.RunKey]int // how often an exit was heard
	started map[plan.RunKey]plan.Observed
}

var jobSeq atomic.Uint64 // distinct job ids over all tests of one run

func newLab(t testing.TB, args ...string) *lab {
	t.Helper()
	return newLabAt(t, "", args...)
}

// newLabAt makes a node whose state is in the given folder.
func newLabAt(t testing.TB, state string, args ...string) *lab {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "shep")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	l := &lab{t: t, dir: dir, work: filepath.Join(dir, "work"), exits: map[plan.RunKey]plan.Exit{},
		heard: map[plan.RunKey]int{}, started: map[plan.RunKey]plan.Observed{},
		cfg: runtime.Config{Binary: self, Dir: filepath.Join(dir, "state"), Node: "n1", Release: "r1", Args: args,
			Env: append(os.Environ(), asShepherd+"=1")}}
	l.cond = sync.NewCond(&l.mu)
	if state != "" {
		l.cfg.Dir = state
	}
	if err := os.Mkdir(l.work, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(l.work, 0o777); err != nil {
		t.Fatal(err)
	}
	l.connect()
	t.Cleanup(l.stop)
	return l
}

// connect starts or finds the shepherd and listens.
func (l *lab) connect() {
	l.t.Helper()
	c, err := runtime.Start(context.Background(), l.cfg)
	if err != nil {
		l.t.Fatal(err)
	}
	l.client = c
	if err := c.Subscribe(context.Background(), l.hear); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) hear(batch []plan.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range batch {
		if e.Started != nil {
			l.started[e.Started.Key] = *e.Started
		}
		if e.Exited != nil {
			l.exits[e.Exited.Key] = *e.Exited
			l.heard[e.Exited.Key]++
		}
	}
	l.cond.Broadcast()
}

// await waits until the condition on what was heard holds.
func (l *lab) await(cond func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !cond() {
		l.cond.Wait()
	}
}

func (l *lab) exit(k plan.RunKey) plan.Exit {
	l.await(func() bool { _, ok := l.exits[k]; return ok })
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.exits[k]
}

func (l *lab) begun(k plan.RunKey) plan.Observed {
	l.await(func() bool { _, ok := l.started[k]; return ok })
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.started[k]
}

// stop ends all runs and the shepherd, and removes the folder.
func (l *lab) stop() {
	if log, err := os.ReadFile(filepath.Join(l.cfg.Dir, l.cfg.Release, "log")); err == nil {
		if bytes.Contains(log, []byte("DATA RACE")) || bytes.Contains(log, []byte("panic:")) {
			l.t.Error("the shepherd raced or panicked")
		}
		if l.t.Failed() {
			l.t.Logf("the shepherd's log:\n%s", log)
		}
	}
	c, err := runtime.Start(context.Background(), l.cfg)
	if err != nil {
		l.t.Error(err)
		return
	}
	defer c.Close()
	pid := int(c.Hello().PID)
	runs, err := c.List(context.Background())
	if err != nil {
		l.t.Error(err)
	}
	gone := make(chan struct{})
	var left atomic.Int64
	left.Store(int64(len(runs)))
	if len(runs) == 0 {
		close(gone)
	}
	acked := map[plan.RunKey]bool{}
	err = c.Subscribe(context.Background(), func(batch []plan.Event) {
		for _, e := range batch {
			if e.Exited != nil && !acked[e.Exited.Key] {
				acked[e.Exited.Key] = true
				if left.Add(-1) == 0 {
					close(gone)
				}
			}
		}
	})
	if err != nil {
		l.t.Error(err)
	}
	for _, r := range runs {
		if r.State != plan.Exited {
			_ = c.Kill(context.Background(), r.Key, plan.ScopeRun)
		}
	}
	<-gone
	l.client.Close()
	end(l.t, pid, syscall.SIGTERM)
	if err := os.RemoveAll(l.dir); err != nil {
		l.t.Error(err)
	}
}

// end signals a process and waits until it is gone, whoever's child it is.
func end(t testing.TB, pid int, sig syscall.Signal) {
	t.Helper()
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil {
		t.Fatal(err)
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, -1)
		if n == 1 {
			return
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			t.Fatal(err)
		}
	}
}

// job makes a batch run of a shell script, as nobody when we are root.
func (l *lab) job(script string) plan.RunSpec {
	id := jobSeq.Add(1)
	sp := plan.RunSpec{Key: plan.Key(id, 0, plan.StepBatch), JobID: id, UID: uint32(os.Geteuid()), GID: uint32(os.Getegid()),
		WorkDir: l.work, Script: []byte("#!/bin/sh\n" + script + "\n"), Env: []string{"PATH=/usr/bin:/bin", fmt.Sprintf("SLURM_JOB_ID=%d", id)},
		Stdout: fmt.Sprintf("slurm-%d.out", id), Umask: 0o022}
	if os.Geteuid() == 0 {
		sp.UID, sp.GID = 65534, 65534
	}
	return sp
}

func (l *lab) launch(specs ...plan.RunSpec) {
	l.t.Helper()
	res, err := l.client.Launch(context.Background(), specs)
	if err != nil {
		l.t.Fatal(err)
	}
	for _, r := range res {
		if r.Status != plan.Accepted {
			l.t.Fatalf("launch of %v: %+v", r.Key, r)
		}
	}
}

// run launches one job and gives its exit and its output.
func (l *lab) run(sp plan.RunSpec) (plan.Exit, string) {
	l.t.Helper()
	l.launch(sp)
	x := l.exit(sp.Key)
	out, _ := os.ReadFile(filepath.Join(l.work, sp.Stdout))
	return x, string(out)
}

// fifo makes a named pipe that a job can wait on.
func (l *lab) fifo(name string) string {
	p := filepath.Join(l.work, name)
	if err := unix.Mkfifo(p, 0o666); err != nil {
		l.t.Fatal(err)
	}
	if err := os.Chmod(p, 0o666); err != nil {
		l.t.Fatal(err)
	}
	return p
}

// alive tells whether any process has the entry in its environment.
func alive(t testing.TB, k plan.RunKey) []string {
	t.Helper()
	out, err := exec.Command("sh", "-c", fmt.Sprintf("grep -lz '^MUSTER_RUN=%s/' /proc/[0-9]*/environ 2>/dev/null || true", k)).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.Fields(string(out))
}

func castagnoli(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }
