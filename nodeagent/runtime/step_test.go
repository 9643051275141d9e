package runtime_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/plan/stepio"
	"github.com/musterhpc/muster/nodeagent/runtime"
	"github.com/musterhpc/muster/spec"
)

// step makes a step of n tasks that run a shell command, as nobody when we are
// root.
func (l *lab) step(n int, command string) plan.RunSpec {
	sp := l.job("")
	sp.Script, sp.Stdout, sp.Key.Step = nil, "", 0
	t := &plan.Tasks{Argv: []string{"sh", "-c", command}, Env: sp.Env, WorkDir: l.work, Umask: 0o022, Input: spec.InputAll}
	for i := range n {
		t.List = append(t.List, plan.Task{Rank: uint32(i), Env: []string{fmt.Sprintf("SLURM_PROCID=%d", i)}})
	}
	sp.Tasks = t
	return sp
}

// viewer is a step's client on the node: it acknowledges what it has seen,
// unless it is told to hold still.
type viewer struct {
	t    testing.TB
	step *runtime.Step

	mu      sync.Mutex
	cond    *sync.Cond
	still   bool // takes nothing at the moment
	out     map[string]string
	closed  map[string]bool
	exits   map[uint32]plan.TaskExit
	pids    map[uint32]int32
	notices []string
	fences  []plan.Fence
	end     *plan.FrameEnd
	last    uint64
}

func newViewer(t testing.TB) *viewer {
	v := &viewer{t: t, out: map[string]string{}, closed: map[string]bool{}, exits: map[uint32]plan.TaskExit{}, pids: map[uint32]int32{}}
	v.cond = sync.NewCond(&v.mu)
	return v
}

// attach connects to a step that has begun, behind what the viewer has seen.
func (v *viewer) attach(l *lab, k plan.RunKey) *viewer {
	v.t.Helper()
	s, err := runtime.DialStep(context.Background(), l.begun(k).Socket, v.take)
	if err != nil {
		v.t.Fatal(err)
	}
	v.mu.Lock()
	v.step = s
	last := v.last
	v.mu.Unlock()
	if err := s.Attach(context.Background(), last, false); err != nil {
		v.t.Fatal(err)
	}
	return v
}

func (v *viewer) take(plain []byte) {
	var list []plan.Frame
	for r := stepio.NewReader(bytes.NewReader(plain)); ; {
		m, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || m.Kind != stepio.Frame {
			v.t.Errorf("not a frame: %+v (%v)", m, err)
			return
		}
		list = append(list, m.Frame)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for v.still {
		v.cond.Wait()
	}
	for _, f := range list {
		if f.Number != v.last+1 {
			v.t.Errorf("frame %d behind frame %d", f.Number, v.last)
		}
		v.last = f.Number
		switch {
		case f.Output != nil && len(f.Output.Data) == 0:
			v.closed[fmt.Sprintf("%d.%d", f.Output.Rank, f.Output.Stream)] = true
		case f.Output != nil:
			v.out[fmt.Sprintf("%d.%d", f.Output.Rank, f.Output.Stream)] += string(f.Output.Data)
		case f.Exit != nil:
			v.exits[f.Exit.Rank] = *f.Exit
		case f.Started != nil:
			for i, r := range f.Started.Ranks {
				v.pids[r] = f.Started.PIDs[i]
			}
		case f.End != nil:
			v.end = f.End
		case f.Fence != nil:
			v.fences = append(v.fences, *f.Fence)
		case f.Notice != "":
			v.notices = append(v.notices, f.Notice)
		}
	}
	v.cond.Broadcast()
	step, last := v.step, v.last
	go func() { _ = step.Ack(context.Background(), last) }()
}

func (v *viewer) await(cond func() bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for !cond() {
		v.cond.Wait()
	}
}

// all waits for the end and gives what a stream had.
func (v *viewer) all(stream string) string {
	v.await(func() bool { return v.end != nil })
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.out[stream]
}

func TestAStepOfSeveralTasks(t *testing.T) {
	l := newLab(t)
	sp := l.step(4, `echo out $SLURM_PROCID; echo err $SLURM_PROCID >&2; test $SLURM_TASK_PID = $$ || echo wrong pid; id -u; exit $((SLURM_PROCID * 2))`)
	l.launch(sp)
	v := newViewer(t).attach(l, sp.Key)
	for i := range uint32(4) {
		if got, want := v.all(fmt.Sprintf("%d.1", i)), fmt.Sprintf("out %d\n%d\n", i, sp.UID); got != want {
			t.Errorf("task %d wrote %q, want %q", i, got, want)
		}
		if got, want := v.all(fmt.Sprintf("%d.2", i)), fmt.Sprintf("err %d\n", i); got != want {
			t.Errorf("task %d complained %q, want %q", i, got, want)
		}
		if x := v.exits[i]; x.Code != int32(2*i) || x.Usage.PeakRSS == 0 || v.pids[i] == 0 || !v.closed[fmt.Sprintf("%d.1", i)] {
			t.Errorf("task %d: %+v, pid %d", i, x, v.pids[i])
		}
	}
	if v.end.Code != 6 || v.end.Signal != 0 {
		t.Errorf("%+v", v.end)
	}
	x := l.exit(sp.Key)
	if x.Code != 6 || x.Failure != plan.None || !x.Started || x.Usage.PeakRSS == 0 {
		t.Errorf("%+v", x)
	}
	if _, err := os.Stat(filepath.Dir(l.begun(sp.Key).Socket)); !os.IsNotExist(err) {
		t.Errorf("the step's folder is left behind: %v", err)
	}
}

func TestInputReachesWhoReadsIt(t *testing.T) {
	l := newLab(t)
	for _, c := range []struct {
		input int32
		want  [2]string
	}{{spec.InputAll, [2]string{"ab", "ab"}}, {1, [2]string{"", "ab"}}, {spec.InputNone, [2]string{"", ""}}} {
		sp := l.step(2, "cat")
		sp.Tasks.Input = c.input
		l.launch(sp)
		v := newViewer(t).attach(l, sp.Key)
		to := max(c.input, spec.InputAll)
		pass := func(at uint64, text string) error {
			err := v.step.Input(context.Background(), to, at, []byte(text))
			if c.input == spec.InputNone && errors.Is(err, runtime.ErrClosed) {
				return nil // nobody waits for it: the step may be over
			}
			return err
		}
		for _, piece := range []struct {
			at   uint64
			text string
		}{{0, "a"}, {0, "a"}, {0, "ab"}} { // repeats, as after a broken connection
			if err := pass(piece.at, piece.text); err != nil {
				t.Fatal(err)
			}
		}
		if err := pass(9, "x"); c.input != spec.InputNone && (err == nil || errors.Is(err, runtime.ErrClosed)) {
			t.Errorf("a gap in the input is taken: %v", err)
		}
		if err := pass(2, ""); err != nil {
			t.Fatal(err)
		}
		if got := [2]string{v.all("0.1"), v.all("1.1")}; got != c.want {
			t.Errorf("input for %d: %q, want %q", c.input, got, c.want)
		}
	}
}

// A task that writes waits once what is kept is full, and goes on when somebody
// reads; not a byte is lost or doubled over broken connections.
func TestOutputWaitsForAReader(t *testing.T) {
	l := newLab(t)
	const lines = 400_000
	sp := l.step(2, fmt.Sprintf(`i=0; seq 1 %d; echo done > done$SLURM_PROCID`, lines))
	l.launch(sp)
	v := newViewer(t)
	v.still = true
	v.attach(l, sp.Key)
	if _, err := os.Stat(filepath.Join(l.work, "done0")); err == nil {
		t.Error("a task has written more than is kept, and did not wait")
	}
	u, err := l.client.Usage(context.Background(), sp.Key)
	if err != nil || len(u) != 1 || u[0].Procs < 2 {
		t.Errorf("usage of waiting tasks: %+v, %v", u, err)
	}
	v.mu.Lock()
	v.still = false
	v.cond.Broadcast()
	v.mu.Unlock()
	for range 20 { // connections that break
		v.await(func() bool { return len(v.out["0.1"]) > 0 })
		v.step.Close()
		v.mu.Lock()
		over := v.end != nil
		v.mu.Unlock()
		if over {
			break
		}
		v.attach(l, sp.Key)
	}
	var want strings.Builder
	for i := range lines {
		fmt.Fprintln(&want, i+1)
	}
	for _, s := range []string{"0.1", "1.1"} {
		if got := v.all(s); got != want.String() {
			t.Errorf("stream %s has %d bytes, want %d", s, len(got), want.Len())
		}
	}
	l.exit(sp.Key)
}

func TestFilesOfTasks(t *testing.T) {
	l := newLab(t)
	sp := l.step(3, "echo $SLURM_PROCID; echo e$SLURM_PROCID >&2; cat")
	if err := os.WriteFile(filepath.Join(l.work, "in"), []byte("input\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for i := range sp.Tasks.List {
		x := &sp.Tasks.List[i]
		x.Stdout, x.Stdin = fmt.Sprintf("out-%d", i%2), "in"
	}
	sp.Tasks.List[2].Stderr = "errors"
	l.launch(sp)
	v := newViewer(t).attach(l, sp.Key)
	v.all("0.1")
	lines := func(name string) []string {
		b, _ := os.ReadFile(filepath.Join(l.work, name))
		out := strings.Fields(string(b))
		slices.Sort(out)
		return out
	}
	for name, want := range map[string][]string{"out-0": {"0", "2", "e0", "input", "input"}, "out-1": {"1", "e1", "input"}, "errors": {"e2"}} {
		if got := lines(name); !slices.Equal(got, want) {
			t.Errorf("%s holds %q, want %q", name, got, want)
		}
	}
	bad := l.step(2, "true")
	bad.Tasks.List[1].Stdout = "nowhere/x"
	l.launch(bad)
	v = newViewer(t).attach(l, bad.Key)
	v.all("0.1")
	if x := v.exits[1]; x.Signal != plan.IOErrorSignal || !strings.Contains(x.Error, "nowhere/x: No such file or directory") || len(v.notices) != 1 {
		t.Errorf("%+v, %q", x, v.notices)
	}
}

func TestCommandsThatCannotRun(t *testing.T) {
	l := newLab(t)
	sp := l.step(1, "")
	sp.Tasks.Argv = []string{"no-such-program"}
	l.launch(sp)
	v := newViewer(t).attach(l, sp.Key)
	v.all("0.1")
	if x := v.exits[0]; x.Code != 2 || !slices.ContainsFunc(v.notices, func(s string) bool {
		return strings.HasSuffix(s, "execve(): no-such-program: No such file or directory")
	}) {
		t.Errorf("%+v, %q", x, v.notices)
	}
	if x := l.exit(sp.Key); x.Code != 2 || !strings.Contains(x.Message, "no-such-program") {
		t.Errorf("%+v", x)
	}
}

// A step's terminal is one: it has a size, which can change, and a session of
// its own.
func TestTerminal(t *testing.T) {
	l := newLab(t)
	sp := l.step(2, `test -t 0 && test -t 1 && tty -s && stty size; trap 'stty size; exit 7' WINCH; read x; echo "got $x"; while :; do sleep 0.05; done`)
	sp.Tasks.Terminal = &plan.Window{Rows: 30, Columns: 70}
	sp.Tasks.List[1].Argv = []string{"sh", "-c", "test -t 0 || echo no terminal"}
	l.launch(sp)
	v := newViewer(t).attach(l, sp.Key)
	v.await(func() bool { return strings.Contains(v.out["0.1"], "30 70") })
	if err := v.step.Input(context.Background(), spec.InputAll, 0, []byte("hello\n")); err != nil {
		t.Fatal(err)
	}
	v.await(func() bool { return strings.Contains(v.out["0.1"], "got hello") })
	if err := v.step.Resize(context.Background(), plan.Window{Rows: 31, Columns: 71}); err != nil {
		t.Fatal(err)
	}
	if got := v.all("0.1"); !strings.Contains(got, "31 71") || v.exits[0].Code != 7 {
		t.Errorf("%q, %+v", got, v.exits[0])
	}
	if got := v.all("1.1"); got != "no terminal\n" {
		t.Errorf("the second task: %q", got)
	}
}

// Who has a terminal is told that it is gone when the step is to end: a shell
// bears SIGTERM.
func TestTerminalHangsUp(t *testing.T) {
	l := newLab(t)
	sp := l.step(1, `trap '' TERM; trap 'exit 9' HUP; echo ready; while :; do sleep 0.05; done`)
	sp.Tasks.Terminal = &plan.Window{}
	l.launch(sp)
	v := newViewer(t).attach(l, sp.Key)
	v.await(func() bool { return strings.Contains(v.out["0.1"], "ready") })
	if err := l.client.Terminate(context.Background(), plan.Terminate{Key: sp.Key, Scope: plan.ScopeRun, Grace: spec.Minute}); err != nil {
		t.Fatal(err)
	}
	v.all("0.1")
	if x := v.exits[0]; x.Code != 9 {
		t.Errorf("%+v", x)
	}
}

// The end of a job ends its steps, with the grace that it is given; what bears
// SIGTERM is killed, and the step knows by what.
func TestTheJobsEndEndsItsSteps(t *testing.T) {
	l := newLab(t)
	mild := l.step(2, `trap 'exit 3' TERM; echo ready; while :; do sleep 0.05; done`)
	hard := l.step(1, `trap '' TERM; echo ready; while :; do sleep 0.05; done`)
	hard.Key = plan.Key(mild.Key.Job, 0, 1)
	l.launch(mild, hard)
	a, b := newViewer(t).attach(l, mild.Key), newViewer(t).attach(l, hard.Key)
	a.await(func() bool { return len(a.out) == 2 })
	b.await(func() bool { return len(b.out) == 1 })
	err := l.client.Terminate(context.Background(), plan.Terminate{Key: mild.Key, Scope: plan.ScopeJob, Grace: 300 * spec.Millisecond, Notice: "*** STEP CANCELLED ***"})
	if err != nil {
		t.Fatal(err)
	}
	a.all("0.1")
	if !slices.ContainsFunc(a.notices, func(s string) bool { return strings.Contains(s, "*** STEP CANCELLED ***") }) {
		t.Errorf("the client was told %q", a.notices)
	}
	if x := l.exit(mild.Key); x.Code != 3 || x.Signal != 0 {
		t.Errorf("who obeys SIGTERM: %+v", x)
	}
	if x := l.exit(hard.Key); x.Signal != 9 || x.Code != 0 || x.Failure != plan.None {
		t.Errorf("who bears it: %+v", x)
	}
	if left := alive(t, hard.Key); len(left) > 0 {
		t.Errorf("processes are left: %q", left)
	}
}

// What a task leaves behind ends with the step, also what holds its output open.
func TestChildrenThatTasksLeave(t *testing.T) {
	l := newLab(t)
	sp := l.step(2, `(setsid sh -c 'trap "" HUP TERM; while :; do sleep 0.05; done' &) ; sleep 0.1; echo left`)
	l.launch(sp)
	v := newViewer(t).attach(l, sp.Key)
	if got := v.all("1.1"); got != "left\n" {
		t.Errorf("%q", got)
	}
	l.exit(sp.Key)
	if left := alive(t, sp.Key); len(left) > 0 {
		t.Errorf("processes are left: %q", left)
	}
}

// The tasks outlive the shepherd and are found again by the next one; the exit
// is known, whatever the kernel, and the output is whole.
func TestStepsOutliveTheShepherd(t *testing.T) {
	l := newLab(t)
	doors := [2]string{l.fifo("go0"), l.fifo("go1")}
	sp := l.step(2, "echo one; read x < go$SLURM_PROCID; echo two; exit $((SLURM_PROCID + 4))")
	l.launch(sp)
	v := newViewer(t).attach(l, sp.Key)
	v.await(func() bool { return v.out["0.1"] == "one\n" && v.out["1.1"] == "one\n" })
	end(t, int(l.client.Hello().PID), syscall.SIGKILL)
	l.client.Close()
	// Both tasks end while no shepherd is there.
	for _, door := range doors {
		if err := os.WriteFile(door, []byte("x\n"), 0); err != nil {
			t.Fatal(err)
		}
	}
	if a, b := v.all("0.1"), v.all("1.1"); a != "one\ntwo\n" || b != "one\ntwo\n" {
		t.Errorf("%q, %q", a, b)
	}
	l.connect()
	if x := l.exit(sp.Key); x.Code != 5 || x.Failure != plan.None {
		t.Errorf("%+v", x)
	}
}

// A minder that is killed takes its tasks with it, and the step says so.
func TestAKilledMinder(t *testing.T) {
	l := newLab(t)
	sp := l.step(2, "echo up; sleep 1000")
	l.launch(sp)
	v := newViewer(t).attach(l, sp.Key)
	v.await(func() bool { return len(v.out) == 2 })
	end(t, int(l.begun(sp.Key).PID), syscall.SIGKILL)
	if x := l.exit(sp.Key); x.Signal != 9 || x.Failure != plan.None {
		t.Errorf("%+v", x)
	}
	if left := alive(t, sp.Key); len(left) > 0 {
		t.Errorf("processes are left: %q", left)
	}
}

func TestTaskPrologAndEpilogOfTasks(t *testing.T) {
	l := newLab(t)
	script := func(name, text string) string {
		p := filepath.Join(l.work, name)
		if err := os.WriteFile(p, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
			t.Fatal(err)
		}
		return p
	}
	sp := l.step(2, `echo "$FROM_SITE $FROM_USER"`)
	sp.Tasks.Prologs = []string{script("site", `echo export FROM_SITE=s$SLURM_PROCID; echo print hello`), script("user", `echo export FROM_USER=u`)}
	sp.Tasks.Epilogs = []string{script("after", fmt.Sprintf(`echo x >> %s/after.$SLURM_PROCID`, l.work)), script("bad", "exit 3")}
	l.launch(sp)
	v := newViewer(t).attach(l, sp.Key)
	if a, b := v.all("0.1"), v.all("1.1"); a != "hello\ns0 u\n" || b != "hello\ns1 u\n" {
		t.Errorf("%q, %q", a, b)
	}
	for i := range 2 {
		if b, err := os.ReadFile(filepath.Join(l.work, fmt.Sprintf("after.%d", i))); err != nil || string(b) != "x\n" {
			t.Errorf("%q, %v", b, err)
		}
	}
	if !slices.ContainsFunc(v.notices, func(s string) bool { return strings.Contains(s, "bad: exit code 3") }) || v.end.Code != 0 {
		t.Errorf("%q %+v", v.notices, v.end)
	}
}

// As many tasks as a large node has: all start, all are heard, none is lost.
func TestAThousandTasks(t *testing.T) {
	l := newLab(t)
	const n = 1000
	sp := l.step(n, "")
	sp.Tasks.Argv = []string{"/bin/sh", "-c", "echo $SLURM_PROCID"}
	l.launch(sp)
	v := newViewer(t).attach(l, sp.Key)
	for i := range n {
		if got, want := v.all(fmt.Sprintf("%d.1", i)), fmt.Sprintf("%d\n", i); got != want || v.exits[uint32(i)].Code != 0 {
			t.Fatalf("task %d wrote %q: %+v", i, got, v.exits[uint32(i)])
		}
	}
	if x := l.exit(sp.Key); x.Code != 0 || x.Failure != plan.None || len(v.exits) != n || len(v.pids) != n {
		t.Errorf("%+v, %d exits, %d processes", x, len(v.exits), len(v.pids))
	}
}

// A step that uses more memory than it has is told so, and so is its user.
func TestAStepOutOfMemory(t *testing.T) {
	l := newLab(t)
	if !l.client.Hello().Enforces.Memory {
		t.Skip("memory limits are not enforced on this machine")
	}
	sp := l.step(1, `x=a; while :; do x="$x$x"; done`)
	sp.Limits = plan.Limits{MemoryBytes: 40 << 20}
	l.launch(sp)
	v := newViewer(t).attach(l, sp.Key)
	v.all("0.1")
	if v.exits[0].Signal != 9 || v.exits[0].Error != plan.OutOfMemory || !slices.ContainsFunc(v.notices, func(s string) bool { return strings.Contains(s, "oom_kill event") }) {
		t.Errorf("%+v, %q", v.exits[0], v.notices)
	}
	if x := l.exit(sp.Key); !x.OOM || x.Usage.OOMKills == 0 {
		t.Errorf("%+v", x)
	}
}

// The process that minds a step runs as its user, whose other processes cannot
// look into it: it holds files of the shepherd's.
func TestAStepsMinderIsClosedToItsUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only where the shepherd is root is the minder another user's")
	}
	l := newLab(t)
	sp := l.step(1, "cat")
	sp.UID, sp.GID, sp.Tasks.WorkDir = 65534, 65534, "/"
	l.launch(sp)
	fd := fmt.Sprintf("/proc/%d/fd/1", l.begun(sp.Key).PID)
	newViewer(t).attach(l, sp.Key) // it serves: so it has closed itself
	spy := exec.Command("readlink", fd)
	spy.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := spy.CombinedOutput(); err == nil {
		t.Errorf("a process of the same user reads of the minder's files: %s", out)
	}
	if err := l.client.Terminate(context.Background(), plan.Terminate{Key: sp.Key, Scope: plan.ScopeRun, Grace: spec.Minute}); err != nil {
		t.Fatal(err)
	}
	l.exit(sp.Key)
}

// A step that is told to end does not wait for a client that has gone.
func TestAStepWithoutItsClientEnds(t *testing.T) {
	l := newLab(t)
	sp := l.step(1, "echo unread; sleep 1000")
	l.launch(sp)
	l.begun(sp.Key)
	before := time.Now()
	if err := l.client.Terminate(context.Background(), plan.Terminate{Key: sp.Key, Scope: plan.ScopeRun, Grace: 5 * spec.Minute}); err != nil {
		t.Fatal(err)
	}
	if x := l.exit(sp.Key); x.Signal != 15 || x.Failure != plan.None {
		t.Errorf("%+v after %v", x, time.Since(before))
	}
}

// What a task has used stays in its step's counters when the task has ended,
// also where no control group counts.
func TestEndedTasksStayInTheUsage(t *testing.T) {
	l := newLab(t, "--cgroup-mode", "none")
	door := l.fifo("door")
	sp := l.step(2, `if [ $SLURM_PROCID = 0 ]; then i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done; else read x < door; fi`)
	l.launch(sp)
	v := newViewer(t).attach(l, sp.Key)
	v.await(func() bool { _, over := v.exits[0]; return over })
	list, err := l.client.Usage(context.Background())
	if err != nil || len(list) != 1 || list[0].UserCPU+list[0].SystemCPU < v.exits[0].Usage.UserCPU/2 || list[0].Procs != 1 {
		t.Errorf("%+v, %v; the task used %+v", list, err, v.exits[0].Usage)
	}
	if err := os.WriteFile(door, []byte("x\n"), 0); err != nil {
		t.Fatal(err)
	}
	l.exit(sp.Key)
}
