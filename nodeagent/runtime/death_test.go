package runtime_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime"
	"golang.org/x/sys/unix"
)

// tellsExits says whether this kernel gives the wait status of a process to
// whoever holds its pidfd (Linux 6.15): without that, the end of an adopted
// run is rightly reported as lost.
func tellsExits() bool {
	var u unix.Utsname
	var major, minor int
	if unix.Uname(&u) != nil {
		return false
	}
	if n, _ := fmt.Sscanf(unix.ByteSliceToString(u.Release[:]), "%d.%d", &major, &minor); n != 2 {
		return false
	}
	return major > 6 || major == 6 && minor >= 15
}

func TestShepherdDiesAndTheNextAdopts(t *testing.T) {
	for _, mode := range []string{"", "v1", "none"} {
		t.Run("mode="+mode, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, "--cgroup-mode", mode)
			gate := l.fifo("gate")
			sp := l.job("sleep 1000 & exec 3< " + gate + "; echo still here; exit 7")
			ends := l.job("exec 3< " + gate + "; exit 3")
			l.launch(sp, ends)
			l.begun(sp.Key)
			l.begun(ends.Key)
			l.killShepherd()
			if len(alive(t, sp.Key)) == 0 {
				t.Fatal("the job died with the shepherd")
			}
			// One job ends while nobody is there to see it.
			pid := l.begun(ends.Key).PID
			end(t, int(pid), syscall.SIGKILL)
			// Until init has reaped it, the kernel still knows how it ended.
			for _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err == nil; _, err = os.Stat(fmt.Sprintf("/proc/%d", pid)) {
			}
			l.connect()
			if x := l.exit(ends.Key); !x.Unknown() || !x.Adopted || x.Code != 0 || x.Signal != 0 || x.Message == "" {
				t.Errorf("an end that nobody saw: %+v", x)
			}
			runs, err := l.client.List(context.Background())
			if err != nil || len(runs) != 2 || runs[0].State != plan.Running || !runs[0].Adopted {
				t.Fatalf("%+v %v", runs, err)
			}
			openGate(t, gate)
			x := l.exit(sp.Key)
			if tellsExits() && (x.Code != 7 || x.Unknown()) || !tellsExits() && !x.Unknown() {
				t.Errorf("%+v", x)
			}
			if x.Elapsed <= 0 || x.Start == 0 {
				t.Errorf("times are lost: %+v", x)
			}
			if left := alive(t, sp.Key); len(left) > 0 {
				t.Errorf("its background process is left over: %v", left)
			}
		})
	}
}

func TestAdoptedRunsCanBeKilled(t *testing.T) {
	for _, mode := range []string{"", "v1", "none"} {
		t.Run("mode="+mode, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, "--cgroup-mode", mode)
			gate := l.fifo("gate")
			sp := l.job("setsid sh -c '(sleep 1000 & sleep 1001) & echo up > " + gate + "' & wait; sleep 1002")
			l.launch(sp)
			waitGate(t, gate)
			l.begun(sp.Key)
			l.killShepherd()
			l.connect()
			if err := l.client.Kill(context.Background(), sp.Key, plan.ScopeJob); err != nil {
				t.Fatal(err)
			}
			if x := l.exit(sp.Key); tellsExits() && x.Signal != int32(unix.SIGKILL) {
				t.Errorf("%+v", x)
			}
			if left := alive(t, sp.Key); len(left) > 0 {
				t.Errorf("left over: %v", left)
			}
		})
	}
}

// TestShepherdKilledUnderLoad kills it again and again while jobs are
// launched, and asks again for whatever was not answered. Each job appends its
// key to a file: no key may be there twice, and every accepted run must give
// one exit.
func TestShepherdKilledUnderLoad(t *testing.T) {
	l := newLab(t)
	log := filepath.Join(l.work, "log")
	const jobs, kills = 300, 6
	var specs []plan.RunSpec
	for i := range jobs {
		specs = append(specs, l.job(fmt.Sprintf("echo ${MUSTER_RUN%%/*} >> %s; exit %d", log, i%3)))
	}
	last := -1 // one kill at each place, or a slow machine never gets past it
	for i := 0; i < jobs; {
		n := min(7, jobs-i)
		killed := make(chan struct{})
		if (i/7)%(jobs/7/kills) == 3 && i != last {
			last = i
			pid := int(l.client.Hello().PID)
			go func() { _ = unix.Kill(pid, unix.SIGKILL); close(killed) }()
		} else {
			close(killed)
		}
		res, err := l.client.Launch(context.Background(), specs[i:i+n])
		<-killed
		if err != nil {
			if !errors.Is(err, runtime.ErrClosed) {
				t.Fatal(err)
			}
			l.client.Close()
			l.connect()
			continue // the same ones again: nobody knows which were started
		}
		for _, r := range res {
			if r.Status != plan.Accepted && r.Status != plan.Known {
				t.Fatalf("%+v", r)
			}
		}
		i += n
	}
	select {
	case <-l.client.Done():
		l.connect()
	default:
	}
	lost, spared := 0, 0
	for i, sp := range specs {
		x := l.exit(sp.Key)
		if x.Unknown() {
			lost++
		} else if x.Failure == plan.NotBegun {
			spared++
		} else if int(x.Code) != i%3 || x.Signal != 0 {
			t.Errorf("run %d: %+v", i, x)
		}
	}
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for _, k := range strings.Fields(string(b)) {
		seen[k]++
	}
	never := 0
	for i, sp := range specs {
		switch n := seen[sp.Key.String()]; {
		case n > 1:
			t.Errorf("run %v ran %d times", sp.Key, n)
		case n == 1 && l.exits[sp.Key].Failure == plan.NotBegun:
			t.Errorf("run %v is said not to have begun, but it ran", sp.Key)
		case n == 0:
			never++
			if x := l.exits[sp.Key]; !x.Unknown() && x.Failure != plan.NotBegun {
				t.Errorf("run %d never ran, yet its exit says %+v", i, x)
			}
		}
	}
	t.Logf("%d jobs, %d kills: %d known not to have begun, %d ends unknown; %d left no trace", jobs, kills, spared, lost, never)
}

func TestAgentAndShepherdBothDie(t *testing.T) {
	l := newLab(t)
	sp := l.job("exit 4")
	l.run(sp)
	l.killShepherd()
	l.mu.Lock()
	clear(l.exits)
	l.mu.Unlock()
	l.connect()
	if x := l.exit(sp.Key); x.Code != 4 || x.Unknown() || x.Usage.PeakRSS == 0 {
		t.Errorf("the exit changed on disk: %+v", x)
	}
}

func TestFullDiskRefusesLaunchesAndKeepsExits(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to mount a small file system")
	}
	small, err := os.MkdirTemp("", "shepsmall")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(small) })
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=6m,mode=755"); err != nil {
		t.Skipf("cannot mount: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(small, unix.MNT_DETACH) })
	l := newLabAt(t, filepath.Join(small, "state"))
	gate := l.fifo("gate")
	running := l.job("exec 3< " + gate + "; exit 5")
	l.launch(running)
	l.begun(running.Key)
	filler := filepath.Join(small, "filler")
	if err := os.WriteFile(filler, make([]byte, 7<<20), 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("the disk is not full: %v", err)
	}
	// Room that is already reserved may still be used up.
	var refusal plan.LaunchResult
	big := make([]uint32, 30000)
	for range 200 {
		sp := l.job("exit 0")
		sp.Groups = big
		res, err := l.client.Launch(context.Background(), []plan.RunSpec{sp})
		if err != nil {
			t.Fatal(err)
		}
		if res[0].Status == plan.Refused {
			refusal = res[0]
			break
		}
	}
	if refusal.Code != plan.RefusedDisk || !strings.Contains(refusal.Reason, "full") {
		t.Fatalf("%+v", refusal)
	}
	openGate(t, gate)
	if x := l.exit(running.Key); x.Code != 5 {
		t.Errorf("%+v", x)
	}
	// The exit is on disk although the disk is full.
	l.killShepherd()
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	l.mu.Lock()
	clear(l.exits)
	l.mu.Unlock()
	l.connect()
	if x := l.exit(running.Key); x.Code != 5 || x.Unknown() {
		t.Errorf("after a restart: %+v", x)
	}
	if x, _ := l.run(l.job("exit 0")); x.Code != 0 || x.Failure != plan.None {
		t.Errorf("with room again: %+v", x)
	}
}

func TestDamagedJournalIsRefusedAndSaid(t *testing.T) {
	l := newLab(t)
	l.run(l.job("exit 0"))
	l.run(l.job("exit 0"))
	l.killShepherd()
	path := filepath.Join(l.cfg.Dir, "r1", "journal")
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bad := append([]byte(nil), good...)
	bad[len(bad)/3] ^= 0xff
	if err := os.WriteFile(path, bad, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := runtime.Start(context.Background(), l.cfg); err == nil || !strings.Contains(err.Error(), "journal is damaged") {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	l.connect()
}

// TestNodeRestart makes the journal say that it was written on another boot.
func TestNodeRestart(t *testing.T) {
	l := newLab(t)
	gate := l.fifo("gate")
	sp := l.job("exec 3< " + gate)
	l.launch(sp)
	pid := l.begun(sp.Key).PID
	l.killShepherd()
	end(t, int(pid), syscall.SIGKILL)
	path := filepath.Join(l.cfg.Dir, "r1", "journal")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	boot := l.client.Hello().BootID
	changed := strings.Replace(boot, boot[:4], "0000", 1)
	if err := os.WriteFile(path, reboot(t, b, boot, changed), 0o600); err != nil {
		t.Fatal(err)
	}
	l.connect()
	if x := l.exit(sp.Key); !x.Unknown() || !strings.Contains(x.Message, "restarted") {
		t.Errorf("%+v", x)
	}
}

// reboot replaces the boot id in a journal and mends the checksums.
func reboot(t *testing.T, b []byte, from, to string) []byte {
	t.Helper()
	out := append([]byte(nil), b...)
	for at := 8; at+8 <= len(out); {
		n := int(binary.LittleEndian.Uint32(out[at:]))
		p := out[at+8 : at+8+n]
		copy(p, strings.ReplaceAll(string(p), from, to))
		binary.LittleEndian.PutUint32(out[at+4:], castagnoli(p))
		at += 8 + n
	}
	return out
}

func TestNewReleaseDrainsTheOldAndTakesOverWhatDies(t *testing.T) {
	l := newLab(t)
	gate, gate2 := l.fifo("gate"), l.fifo("gate2")
	first, second := l.job("exec 3< "+gate+"; exit 5"), l.job("exec 3< "+gate2+"; exit 6")
	l.launch(first, second)
	l.begun(first.Key)
	l.begun(second.Key)
	old := l.client
	ctx, cancel := context.WithCancel(context.Background())
	next := l.cfg
	next.Release = "r2"
	k, err := runtime.Keep(ctx, next, nil, l.hear)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { cancel(); k.Wait() }()
	// The old one starts nothing more; the new one starts nothing twice.
	res, err := old.Launch(ctx, []plan.RunSpec{l.job("true")})
	if err != nil || res[0].Status != plan.Refused || res[0].Code != plan.RefusedDraining {
		t.Fatalf("old: %+v %v", res, err)
	}
	res, err = k.Launch(ctx, []plan.RunSpec{first})
	if err != nil || res[0].Status != plan.Known {
		t.Errorf("new: %+v %v", res, err)
	}
	runs, err := k.List(ctx)
	if err != nil || len(runs) != 2 {
		t.Errorf("list: %+v %v", runs, err)
	}
	if err := k.Signal(ctx, first.Key, int32(unix.SIGCONT), plan.ScopeRun); err != nil {
		t.Errorf("signal through the keeper: %v", err)
	}
	openGate(t, gate)
	if x := l.exit(first.Key); x.Code != 5 || x.Adopted {
		t.Errorf("%+v", x)
	}
	if err := k.Ack(ctx, []plan.RunKey{first.Key}); err != nil {
		t.Fatal(err)
	}
	// The old one dies with a run left: the new one adopts it.
	end(t, int(old.Hello().PID), syscall.SIGKILL)
	old.Close()
	for {
		runs, err := k.List(ctx)
		if errors.Is(err, runtime.ErrClosed) {
			continue // the keeper has not seen the old one's death yet
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(runs) == 1 && runs[0].Key == second.Key && runs[0].Adopted && runs[0].State == plan.Running {
			break
		}
	}
	openGate(t, gate2)
	if x := l.exit(second.Key); tellsExits() && x.Code != 6 {
		t.Errorf("%+v", x)
	}
	if res, err := k.Launch(ctx, []plan.RunSpec{first, second}); err != nil || res[0].Status != plan.Ended || res[1].Status != plan.Known {
		t.Errorf("after the takeover: %+v %v", res, err)
	}
	if err := k.Ack(ctx, []plan.RunKey{second.Key}); err != nil {
		t.Fatal(err)
	}
	cancel()
	k.Wait()
	l.cfg = next
	l.connect()
}

// A new release that is asked for a run before the old one has said what it
// has waits for that: the run is not started a second time.
func TestNewReleaseLearnsFirstWhatTheOldOneHas(t *testing.T) {
	l := newLab(t)
	gate := l.fifo("gate")
	sp := l.job("exec 3< " + gate + "; exit 5")
	l.launch(sp)
	l.begun(sp.Key)
	old := int(l.client.Hello().PID)
	standStill(t, old)
	defer func() { _ = unix.Kill(old, unix.SIGCONT) }()
	goOn := time.AfterFunc(300*time.Millisecond, func() { _ = unix.Kill(old, unix.SIGCONT) })
	defer goOn.Stop()
	next := l.cfg
	next.Release = "r2"
	c, err := runtime.Start(t.Context(), next)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	defer func() { end(t, int(c.Hello().PID), syscall.SIGKILL) }()
	res, err := c.Launch(t.Context(), []plan.RunSpec{sp})
	if err != nil || res[0].Status != plan.Known {
		t.Errorf("%+v %v", res, err)
	}
	openGate(t, gate)
	if x := l.exit(sp.Key); x.Code != 5 {
		t.Errorf("%+v", x)
	}
}

// standStill stops a process and waits until all of its threads have stopped:
// a signal tells it to, and returns before they have.
func standStill(t *testing.T, pid int) {
	t.Helper()
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	for until := time.Now().Add(20 * time.Second); ; {
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		if err != nil || len(threads) == 0 {
			t.Fatalf("the threads of process %d: %v", pid, err)
		}
		runs := slices.ContainsFunc(threads, func(file string) bool {
			b, err := os.ReadFile(file)
			return err == nil && !bytes.Contains(b, []byte(") T "))
		})
		if !runs {
			return
		}
		if time.Now().After(until) {
			t.Fatalf("process %d does not stop", pid)
		}
		//muster:sleep a stopped process tells its parent only
		time.Sleep(time.Millisecond)
	}
}

// A new release whose older one stands still for good reads there what it has,
// and what the older one was asked by an agent that is gone is not done when it
// goes on.
func TestNewReleaseReadsWhatAStoppedOneHas(t *testing.T) {
	l := newLab(t)
	gate := l.fifo("gate")
	sp, unread := l.job("exec 3< "+gate+"; exit 5"), l.job("echo again >> twice")
	l.launch(sp)
	l.begun(sp.Key)
	old := int(l.client.Hello().PID)
	standStill(t, old)
	defer func() { _ = unix.Kill(old, unix.SIGCONT) }()
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := l.client.Launch(soon, []plan.RunSpec{unread}); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	l.client.Close() // its agent dies with that request on its way

	next := l.cfg
	next.Release, next.Args = "r2", append(next.Args, "--drain-wait", "100ms")
	c, err := runtime.Start(t.Context(), next)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	defer func() { end(t, int(c.Hello().PID), syscall.SIGKILL) }()
	res, err := c.Launch(t.Context(), []plan.RunSpec{sp, unread})
	if err != nil || res[0].Status != plan.Known || res[1].Status != plan.Accepted {
		t.Errorf("%+v %v", res, err)
	}
	if err := unix.Kill(old, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if l.client, err = runtime.Dial(t.Context(), runtime.Socket(l.cfg.Dir, "r1")); err != nil {
		t.Fatal(err)
	}
	if err := l.client.Subscribe(t.Context(), l.hear); err != nil {
		t.Fatal(err)
	}
	openGate(t, gate)
	if x := l.exit(sp.Key); x.Code != 5 {
		t.Errorf("%+v", x)
	}
	runs, err := l.client.List(t.Context())
	if err != nil || len(runs) != 1 || runs[0].Key != sp.Key {
		t.Errorf("the older one has %+v %v", runs, err)
	}
}

// A release that is taken back to learns first what the one between has.
func TestADrainIsTakenBackFromANewerRelease(t *testing.T) {
	l := newLab(t)
	gates := []string{l.fifo("gate1"), l.fifo("gate2")}
	first, second := l.job("exec 3< "+gates[0]+"; exit 5"), l.job("exec 3< "+gates[1]+"; exit 6")
	l.launch(first)
	l.begun(first.Key)
	next := l.cfg
	next.Release = "r2"
	c, err := runtime.Start(t.Context(), next)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	defer func() { end(t, int(c.Hello().PID), syscall.SIGKILL) }()
	if err := c.Subscribe(t.Context(), l.hear); err != nil {
		t.Fatal(err)
	}
	if res, err := c.Launch(t.Context(), []plan.RunSpec{second}); err != nil || res[0].Status != plan.Accepted {
		t.Fatalf("%+v %v", res, err)
	}
	l.begun(second.Key)
	l.client.Close()
	l.connect()
	res, err := l.client.Launch(t.Context(), []plan.RunSpec{second, l.job("true")})
	if err != nil || res[0].Status != plan.Known || res[1].Status != plan.Accepted {
		t.Errorf("the older one, taken back: %+v %v", res, err)
	}
	res, err = c.Launch(t.Context(), []plan.RunSpec{l.job("true")})
	if err != nil || res[0].Code != plan.RefusedDraining {
		t.Errorf("the newer one: %+v %v", res, err)
	}
	openGate(t, gates[0])
	openGate(t, gates[1])
	for k, code := range map[plan.RunKey]int32{first.Key: 5, second.Key: 6} {
		if x := l.exit(k); x.Code != code {
			t.Errorf("%v: %+v", k, x)
		}
	}
}

func TestKeeperBringsTheShepherdBack(t *testing.T) {
	l := newLab(t)
	l.client.Close()
	ctx, cancel := context.WithCancel(context.Background())
	k, err := runtime.Keep(ctx, l.cfg, nil, l.hear)
	if err != nil {
		t.Fatal(err)
	}
	gate := l.fifo("gate")
	sp := l.job("exec 3< " + gate + "; exit 5")
	if res, err := k.Launch(ctx, []plan.RunSpec{sp}); err != nil || res[0].Status != plan.Accepted {
		t.Fatalf("%+v %v", res, err)
	}
	l.begun(sp.Key)
	c, err := k.Client()
	if err != nil {
		t.Fatal(err)
	}
	end(t, int(c.Hello().PID), syscall.SIGKILL)
	for {
		runs, err := k.List(ctx)
		if err == nil && len(runs) == 1 && runs[0].Adopted {
			break
		}
		if err != nil && !errors.Is(err, runtime.ErrDown) && !errors.Is(err, runtime.ErrClosed) {
			t.Fatal(err)
		}
	}
	openGate(t, gate)
	if x := l.exit(sp.Key); tellsExits() && x.Code != 5 {
		t.Errorf("%+v", x)
	}
	cancel()
	k.Wait()
	l.connect()
}

// TestWithoutRoot runs this package's tests again as nobody.
func TestWithoutRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		l := newLab(t)
		h := l.client.Hello()
		if h.Root || !strings.Contains(strings.Join(h.Degraded, "\n"), "not root") {
			t.Errorf("%+v", h)
		}
		other := l.job("true")
		other.UID = 0
		res, err := l.client.Launch(context.Background(), []plan.RunSpec{other})
		if err != nil || res[0].Code != plan.RefusedPrivilege {
			t.Errorf("another user's job: %+v %v", res, err)
		}
		return
	}
	dir, err := os.MkdirTemp("", "shepuser")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.Chown(dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(dir, "runtime.test")
	if err := os.WriteFile(copied, b, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(copied, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(copied, "-test.v", "-test.run", "^(TestExitCodes|TestTheScript|TestOutput|TestTheWhole|TestDaemons|TestSignal|TestAgentDies|TestShepherdKilled|TestAdopted|TestWithoutRoot)")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "HOME="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := strings.Count(string(out), "--- PASS: Test"); n < 10 {
		t.Errorf("only %d tests passed as nobody:\n%s", n, out)
	}
}

// TestADrainIsTakenBack: an agent that comes back to the shepherd of its own
// release finds it ready to start runs, though somebody had it drained.
func TestADrainIsTakenBack(t *testing.T) {
	l := newLab(t)
	gate := l.fifo("gate")
	first := l.job("exec 3< " + gate + "; exit 5")
	l.launch(first)
	l.begun(first.Key)
	if _, err := l.client.Drain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if res, err := l.client.Launch(t.Context(), []plan.RunSpec{l.job("true")}); err != nil || res[0].Code != plan.RefusedDraining {
		t.Fatalf("%+v %v", res, err)
	}
	l.client.Close()
	l.connect()
	l.launch(l.job("exit 7"))
	openGate(t, gate)
	if x := l.exit(first.Key); x.Code != 5 {
		t.Errorf("%+v", x)
	}
	if err := l.client.Ack(t.Context(), []plan.RunKey{first.Key}); err != nil {
		t.Fatal(err)
	}
	if _, err := l.client.Greet(t.Context()); err != nil {
		t.Errorf("after the run that the drain had waited for: %v", err)
	}
}

// A shepherd that is stopped keeps its socket open. Whoever asks it is told after
// the limit that there is no answer, and nobody starts another one beside it.
func TestAStoppedShepherdIsSaid(t *testing.T) {
	l := newLab(t)
	const limit = 100 * time.Millisecond
	cfg := l.cfg
	cfg.CallTimeout = limit
	c, err := runtime.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	pid := int(c.Hello().PID)
	standStill(t, pid)
	defer func() { _ = unix.Kill(pid, unix.SIGCONT) }()
	if _, err := c.List(t.Context()); !errors.Is(err, runtime.ErrNoAnswer) {
		t.Errorf("list: %v", err)
	}
	if _, err := c.Launch(t.Context(), nil); !errors.Is(err, runtime.ErrNoAnswer) {
		t.Errorf("launch: %v", err)
	}
	if _, err := runtime.Start(t.Context(), cfg); !errors.Is(err, runtime.ErrNoAnswer) {
		t.Errorf("start: %v", err)
	}
	if err := unix.Kill(pid, unix.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if _, err := l.client.List(t.Context()); err != nil {
		t.Errorf("it goes on, and says: %v", err)
	}
}
