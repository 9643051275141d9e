package runtime_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/runtime"
	"github.com/musterhpc/muster/spec"
	"golang.org/x/sys/unix"
)

// leased is a run with a lease that began a moment ago.
func leased(sp plan.RunSpec, length, kill spec.Span) plan.RunSpec {
	sp.Lease = plan.Lease{From: runtime.BootClock(), Length: length, Kill: kill, Seq: 7}
	return sp
}

// living lists the processes of a run of this lab. Labs of other test processes on
// the machine use the same keys.
func living(l *lab, k plan.RunKey) []string {
	l.t.Helper()
	var out []string
	for _, environ := range alive(l.t, k) {
		dir, err := os.Readlink(filepath.Join(filepath.Dir(environ), "cwd"))
		if err == nil && strings.HasPrefix(dir, l.dir) {
			out = append(out, environ)
		}
	}
	return out
}

// waitGone waits until no process of a run lives.
func waitGone(l *lab, k plan.RunKey) {
	l.t.Helper()
	for len(living(l, k)) > 0 {
		//muster:sleep processes that nobody may be the parent of
		time.Sleep(20 * time.Millisecond)
	}
}

// A run whose lease ends is told so, has its time to end, and counts as one whose
// end says nothing about it.
func TestALeaseEndsARun(t *testing.T) {
	l := newLab(t)
	polite := leased(l.job(`trap 'echo saved; exit 0' TERM; while :; do sleep 0.05; done`), 3*spec.Second, 2*spec.Second)
	deaf := leased(l.job(`trap '' TERM; while :; do sleep 0.05; done`), 3*spec.Second, spec.Second)
	free := l.job(`exec sleep 600`)
	l.launch(polite, deaf, free)
	for _, sp := range []plan.RunSpec{polite, deaf} {
		x := l.exit(sp.Key)
		if x.Failure != plan.Lost || !x.Started || !strings.Contains(x.Message, "lease") {
			t.Errorf("%+v", x)
		}
		if left := living(l, sp.Key); len(left) > 0 {
			t.Errorf("processes are left: %v", left)
		}
	}
	out, err := os.ReadFile(filepath.Join(l.work, polite.Stdout))
	if err != nil || !strings.Contains(string(out), "saved") || !strings.Contains(string(out), "lease of the job is over") {
		t.Errorf("%v %q", err, out)
	}
	if len(living(l, free.Key)) == 0 {
		t.Error("a run without a lease is ended too")
	}
}

// The controller's answers lengthen leases, but not those of attempts that it had
// given up by then. An answer that was sent long ago and read late does not either.
func TestAnswersLengthenLeases(t *testing.T) {
	l := newLab(t)
	given := leased(l.job(`exec sleep 600`), 10*spec.Second, spec.Second)
	late := leased(l.job(`exec sleep 600`), 10*spec.Second, spec.Second)
	kept := leased(l.job(`exec sleep 600`), 10*spec.Second, spec.Second)
	late.Lease.Seq, kept.Lease.Seq = 8, 9
	l.launch(given, late, kept)
	began := runtime.BootClock()
	grant := func(g plan.Grant) {
		if err := l.client.Grant(context.Background(), g); err != nil {
			t.Fatal(err)
		}
	}
	grant(plan.Grant{Sent: began + int64(spec.Second), After: 7})
	grant(plan.Grant{Sent: began - int64(spec.Second), After: 0}) // of before
	for over := map[plan.RunKey]bool{}; len(over) < 2; {
		//muster:sleep the answers of a controller come by the clock
		time.Sleep(100 * time.Millisecond)
		grant(plan.Grant{Sent: runtime.BootClock(), After: 8})
		l.mu.Lock()
		for k := range l.exits {
			over[k] = true
		}
		l.mu.Unlock()
		if over[kept.Key] {
			t.Fatal("a run whose lease was lengthened ended")
		}
	}
	if x := l.exit(given.Key); x.Failure != plan.Lost {
		t.Errorf("%+v", x)
	}
	if len(living(l, kept.Key)) == 0 {
		t.Error("nothing of the run with the lengthened lease is left")
	}
}

// A lease holds whatever becomes of the agent and the shepherd: both stopped or both
// killed, the guard ends the run.
func TestALeaseHoldsWithoutAShepherd(t *testing.T) {
	for name, fell := range map[string]func(*testing.T, int){
		"stopped": standStill,
		"killed":  func(t *testing.T, pid int) { end(t, pid, syscall.SIGKILL) },
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			sp := leased(l.job(`trap '' TERM; while :; do sleep 0.05; done`), 4*spec.Second, spec.Second)
			l.launch(sp)
			l.begun(sp.Key)
			pid := int(l.client.Hello().PID)
			fell(t, pid)
			waitGone(l, sp.Key)
			_ = unix.Kill(pid, syscall.SIGCONT)
			l.connect()
			if x := l.exit(sp.Key); x.Failure != plan.Lost {
				t.Errorf("%+v", x)
			}
		})
	}
}

// An order that waited for longer than its lease is not carried out.
func TestALateOrderIsRefused(t *testing.T) {
	l := newLab(t)
	sp := leased(l.job(`echo ran; exec sleep 600`), 5*spec.Second, spec.Second)
	sp.Lease.From -= int64(6 * spec.Second)
	x, out := l.run(sp)
	if x.Failure != plan.NotBegun || x.Started || strings.Contains(out, "ran") {
		t.Errorf("%+v\n%s", x, out)
	}
}

// A shepherd that begins again takes the newest answer up from the one before.
func TestALeaseOutlivesItsShepherd(t *testing.T) {
	l := newLab(t)
	sp := leased(l.job(`exec sleep 600`), 3*spec.Second, spec.Second)
	l.launch(sp)
	l.begun(sp.Key)
	far := runtime.BootClock() + int64(spec.Hour)
	if err := l.client.Grant(context.Background(), plan.Grant{Sent: far}); err != nil {
		t.Fatal(err)
	}
	end(t, int(l.client.Hello().PID), syscall.SIGKILL)
	for runtime.BootClock() < sp.Lease.From+int64(4*spec.Second) {
		//muster:sleep the lease that the order had must be over
		time.Sleep(50 * time.Millisecond)
	}
	l.connect()
	runs, err := l.client.List(context.Background())
	if err != nil || len(runs) != 1 || runs[0].State != plan.Running || len(living(l, sp.Key)) == 0 {
		t.Errorf("%v %+v", err, runs)
	}
}
