package daemon

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// jumpClock is the machine's clock whose monotonic reading a test puts forward.
type jumpClock struct {
	realClock
	ahead *atomic.Int64
}

func (c jumpClock) Monotonic() spec.Span { return c.realClock.Monotonic() + spec.Span(c.ahead.Load()) }

// startFencing starts a controller with a fencing policy and a clock that can be put
// forward.
func startFencing(t *testing.T, policy spec.FencingPolicy, programs Programs) (*world, *atomic.Int64) {
	conf := testConfig()
	conf.Fencing = &policy
	conf.Timing.KillWait = 5 * spec.Second
	ahead := &atomic.Int64{}
	return startDeps(t, conf, func(d *Deps) { d.Clock, d.Programs = jumpClock{ahead: ahead}, programs }), ahead
}

// grant is the next answer to a heartbeat.
func (s *agentStream) grant() *apiv1.Grant {
	for {
		select {
		case m := <-s.out:
			if g := m.GetGrant(); g != nil {
				return g
			}
		case <-s.ctx.Done():
			return nil
		}
	}
}

func beatAt(sent uint64) *apiv1.AgentMessage {
	return &apiv1.AgentMessage{Kind: &apiv1.AgentMessage_Heartbeat{Heartbeat: &apiv1.Heartbeat{Sent: sent}}}
}

// A run's lease is ordered from the last heartbeat that was heard and lengthened by
// answers. Once the node is given up the next attempt starts when the lease, counted
// from the last answer and with its slack, is over, and not before.
func TestLeaseIsCountedFromTheLastAnswer(t *testing.T) {
	const lease = 300 * spec.Second
	w, ahead := startFencing(t, spec.FencingPolicy{Kind: spec.FenceLease, Lease: lease}, nil)
	first, _ := w.registerAs(&apiv1.Registration{Node: "n1", Leases: true, Sent: 1000})
	<-first.out
	if g := first.grant(); g.GetSent() != 1000 || g.GetAfter() != 0 {
		t.Errorf("the registration is answered with %v", g)
	}
	w.as(Caller{UID: 1000, GID: 1000, User: "alice"})
	id := spec.JobID(w.submit(&apiv1.JobSpec{Name: "a"}))
	const length = lease + 5*spec.Second
	l := first.orders(t)[0].GetLaunch().GetLease()
	if l.GetFrom() != 1000 || spec.Span(l.GetLength()) != length || spec.Span(l.GetKill()) != 5*spec.Second || l.GetSeq() == 0 {
		t.Errorf("ordered with the lease %v", l)
	}
	ahead.Add(int64(100 * spec.Second))
	first.in <- beatAt(2000)
	if g := first.grant(); g.GetSent() != 2000 || g.GetAfter() >= l.GetSeq() {
		t.Errorf("the heartbeat is answered with %v", g)
	}
	w.register("n2")
	w.must(scheduler.NodeSilent{Node: "n1", LastSeen: 1})
	waits := func() bool { return w.c.View().State.JobByID(id).Reason.Code == spec.ReasonFencingWait }
	w.until("it waits for the fence", waits)
	if j := w.c.View().State.JobByID(id); j.Reason.Until == 0 {
		t.Errorf("the reason does not say until when: %+v", j.Reason)
	}
	ahead.Add(int64(spec.LeaseBound(length) - 60*spec.Second)) // 60 s: this test may be slow
	w.c.hub.fenceOwed(t.Context())
	if !waits() {
		t.Error("it is taken for fenced before its lease is over")
	}
	ahead.Add(int64(61 * spec.Second))
	w.until("it runs elsewhere", func() bool { return w.c.View().State.JobByID(id).State == spec.Running })
	if n := w.c.View().State.Node("n1"); len(n.Unfenced) != 0 {
		t.Errorf("n1 owes %v", n.Unfenced)
	}
	// The runs that were given up have nothing of what the node is told later.
	back, _ := w.registerAs(&apiv1.Registration{Node: "n1", Leases: true, Sent: 9000})
	<-back.out
	if g := back.grant(); g.GetSent() != 9000 || g.GetAfter() < l.GetSeq() {
		t.Errorf("the node that is back is answered with %v, the attempt was started by event %d", g, l.GetSeq())
	}
}

// An agent that would not end the run gets no run that has a lease: its node is
// drained, and the job starts elsewhere.
func TestNoLeaseWithoutAnAgentThatKeepsIt(t *testing.T) {
	w, _ := startFencing(t, spec.FencingPolicy{Kind: spec.FenceLease, Lease: 300 * spec.Second}, nil)
	first, _ := w.registerAs(&apiv1.Registration{Node: "n1"})
	<-first.out
	w.as(Caller{UID: 1000, GID: 1000, User: "alice"})
	id := spec.JobID(w.submit(&apiv1.JobSpec{Name: "a"}))
	w.until("its start has failed", func() bool {
		j := w.c.View().State.JobByID(id)
		return j.Ending != nil || j.Attempt > 0 && j.State != spec.Running
	})
	if n := w.c.View().State.Node("n1"); n.Admin != event.NodeDrain || !strings.Contains(n.Reason, "restart it with this release") {
		t.Errorf("the node with the old agent is %v: %q", n.Admin, n.Reason)
	}
	w.registerAs(&apiv1.Registration{Node: "n2", Leases: true, Sent: 1000})
	first.in <- done(1, runKey(w.c.View().State.JobByID(id)))
	w.until("it runs elsewhere", func() bool {
		j := w.c.View().State.JobByID(id)
		return j.State == spec.Running && j.Alloc.Nodes[0].Name == "n2"
	})
}

// A node that can start nothing, or whose agent tells no time, is not answered. Once
// it can again it has to register, which is answered.
func TestUnreadyNodesGetNoAnswer(t *testing.T) {
	w, _ := startFencing(t, spec.FencingPolicy{Kind: spec.FenceLease, Lease: 300 * spec.Second}, nil)
	s, _ := w.registerAs(&apiv1.Registration{Node: "n1", Leases: true, Sent: 1})
	<-s.out
	s.grant()
	unready := beatAt(2)
	unready.GetHeartbeat().Unready = "the shepherd does not answer"
	s.in <- unready
	s.in <- beatAt(0)
	if g := s.grant(); g != nil {
		t.Errorf("answered with %v", g)
	}
	again, _ := w.registerAs(&apiv1.Registration{Node: "n1", Leases: true, Sent: 3})
	<-again.out
	if g := again.grant(); g.GetSent() != 3 {
		t.Errorf("its registration is answered with %v", g)
	}
}

// fakeFencer fails as often as it is told and then switches nodes off.
type fakeFencer struct {
	mu    sync.Mutex
	fails int
	calls []string
}

func (*fakeFencer) Start(string, string, []byte) {}

func (f *fakeFencer) Fence(_ context.Context, program, node, reason string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, program+" "+node+": "+reason)
	if len(f.calls) <= f.fails {
		return errors.New("exit status 3: no answer from pdu7")
	}
	return nil
}

// The site's program is asked about a lost node until it confirms that it is off;
// what it said before is in the ledger.
func TestFenceProgramConfirms(t *testing.T) {
	f := &fakeFencer{fails: 1}
	w, ahead := startFencing(t, spec.FencingPolicy{Kind: spec.FenceProgram, Program: "/sbin/pdu"}, f)
	first, _ := w.connect("n1")
	<-first.out
	w.as(Caller{UID: 1000, GID: 1000, User: "alice"})
	id := spec.JobID(w.submit(&apiv1.JobSpec{Name: "a"}))
	first.orders(t)
	w.register("n2")
	w.must(scheduler.NodeSilent{Node: "n1", LastSeen: 1})
	w.until("its failure is recorded", func() bool { return w.c.View().State.Node("n1").FenceTry != nil })
	if try := w.c.View().State.Node("n1").FenceTry; try.Try != 1 || try.Program != "/sbin/pdu" || try.Why != "exit status 3: no answer from pdu7" {
		t.Errorf("%+v", try)
	}
	if j := w.c.View().State.JobByID(id); j.State != spec.Pending {
		t.Errorf("the job is %s although nothing fenced its node", j.State)
	}
	ahead.Add(int64(firstFenceWait))
	w.until("it runs elsewhere", func() bool { return w.c.View().State.JobByID(id).State == spec.Running })
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.calls) != 2 || f.calls[1] != "/sbin/pdu n1: node n1 does not respond" {
		t.Errorf("%q", f.calls)
	}
}

// A node that was powered down by force owes what ran there until SuspendProgram, asked once more,
// says that it is off: that SuspendTimeout has passed proves nothing.
func TestPowerDownIsFencedBySuspendProgram(t *testing.T) {
	fencer := &fakeFencer{fails: 1}
	w, ahead := startFencing(t, spec.FencingPolicy{}, fencer)
	config := *w.c.View().State.Config
	config.Power = &spec.PowerConfig{
		Suspend: "/sbin/off",
		Resume:  "/sbin/on",
		DownIn:  spec.Millisecond,
		UpIn:    spec.Minute,
	}
	w.must(scheduler.Configure{Config: &config})
	first, _ := w.connect("n1")
	<-first.out
	w.as(Caller{UID: 1000, GID: 1000, User: "alice"})
	id := spec.JobID(w.submit(&apiv1.JobSpec{Name: "a"}))
	first.orders(t)
	w.register("n2")
	w.must(scheduler.PowerNodes{Nodes: []string{"n1"}, How: scheduler.PowerDownForce})
	w.until("its failure is recorded", func() bool {
		return w.c.View().State.Node("n1").FenceTry != nil
	})
	if j := w.c.View().State.JobByID(id); j.State != spec.Pending || j.Unfenced != 1 {
		t.Errorf("the job is %s and %d nodes owe it, though nothing proved that n1 is off", j.State, j.Unfenced)
	}
	ahead.Add(int64(firstFenceWait))
	w.until("it runs elsewhere", func() bool {
		j := w.c.View().State.JobByID(id)
		return j.State == spec.Running && j.Alloc.Nodes[0].Name == "n2"
	})
	fencer.mu.Lock()
	defer fencer.mu.Unlock()
	if len(fencer.calls) != 2 || fencer.calls[1] != "/sbin/off n1: " {
		t.Errorf("%q", fencer.calls)
	}
}
