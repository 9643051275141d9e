package daemon

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// withoutEnv makes an order of a job that was submitted without an environment.
func withoutEnv(l *apiv1.Launch) { l.Environment = nil }

// newIdentifyingBench is a core that can have accounts looked up.
func newIdentifyingBench(t testing.TB) *bench {
	b := newBench(t)
	b.core.identifies = true
	return b
}

func (b *bench) identified(k plan.RunKey, account Account, err error) Effects {
	b.core.Identified(k, account, err)
	return b.core.Effects()
}

// TestIdentify: a job that brings no environment begins once its user is known, and
// one that brings one at once.
func TestIdentify(t *testing.T) {
	b := newIdentifyingBench(t)
	b.welcome()
	if fx := b.launch(key(1)); len(fx.Identify) != 0 || len(fx.Launch) != 1 {
		t.Fatalf("a job with an environment: %+v", fx)
	}
	k := key(2)
	fx := b.launch(k, withoutEnv)
	if len(fx.Launch) != 0 || len(fx.Identify) != 1 || fx.Identify[0] != (Identify{k, 1001}) {
		t.Fatalf("a job without one: %+v", fx)
	}
	if fx := b.launch(k, withoutEnv); len(fx.Identify)+len(fx.Launch) != 0 {
		t.Errorf("asked again, its user is looked up again: %+v", fx)
	}
	fx = b.identified(k, Account{"/net/alice", "/bin/zsh"}, nil)
	if len(fx.Launch) != 1 || !slices.Contains(fx.Launch[0].Env, "HOME=/net/alice") || !slices.Contains(fx.Launch[0].Env, "SHELL=/bin/zsh") {
		t.Fatalf("%+v", fx.Launch)
	}
	if fx := b.identified(k, Account{}, nil); len(fx.Launch) != 0 {
		t.Error("answered twice, it is launched twice")
	}
	fx = b.launch(key(3), withoutEnv)
	if len(fx.Identify) != 1 {
		t.Fatalf("%+v", fx)
	}
	fx = b.identified(key(3), Account{}, errors.New("the directory is away"))
	if len(fx.Launch) != 1 || !slices.Equal(fx.Launch[0].Notices, []string{"HOME and SHELL are not set: the directory is away"}) {
		t.Errorf("%+v", fx.Launch)
	}
}

// TestIdentifyStep: the same of steps, which also wait for their job.
func TestIdentifyStep(t *testing.T) {
	b := newIdentifyingBench(t)
	b.welcome()
	job, step := plan.Key(1, 1, plan.StepBatch), plan.Key(1, 1, 0)
	b.launch(job)
	fx := b.orders(b.stepOrder(step, withoutEnv))
	if len(fx.Identify) != 1 || fx.Identify[0].Key != step {
		t.Fatalf("%+v", fx)
	}
	if fx := b.identified(step, Account{"/net/alice", ""}, nil); len(fx.Launch) != 0 {
		t.Fatal("the step does not wait for its job")
	}
	b.answer(job, plan.Accepted, 0)
	fx = b.core.Effects()
	fx2 := b.started(job)
	launched := append(fx.Launch, fx2.Launch...)
	if b.core.runs[step].phase != asked {
		t.Fatalf("%+v", launched)
	}
	other := plan.Key(1, 1, 1)
	b.orders(b.stepOrder(other, withoutEnv))
	b.core.Outgoing()
	b.exit(job) // which ends its steps: one that has not begun at once
	ended := false
	for _, report := range b.core.Outgoing() {
		ended = ended || runKey(report.GetRun()) == other && report.GetEnded().GetExitSignal() == sigTerm
	}
	if !ended {
		t.Error("the step that waits for its user outlives its job")
	}
	if fx := b.identified(other, Account{}, nil); len(fx.Launch) != 0 {
		t.Errorf("the step of a job that is over begins: %+v", fx.Launch)
	}
}

// TestCancelWhileIdentifying: a job that is cancelled, or not wanted any more, does
// not wait for a database, and its epilog does not run.
func TestCancelWhileIdentifying(t *testing.T) {
	b := newBenchWith(t, withScripts())
	b.core.identifies = true
	b.welcome()
	b.launch(key(1), withoutEnv)
	fx := b.orders(terminateOrder(key(1), ""))
	out := b.core.Outgoing()
	if len(fx.Clean) != 0 || len(out) != 1 || out[0].GetNodeDone().GetBatch().GetExitSignal() != sigTerm {
		t.Errorf("%+v %v", fx, out)
	}
	b.launch(key(2), withoutEnv)
	b.welcome(key(3)) // the controller has another view of job 2
	if b.core.runs[key(2)] != nil {
		t.Error("a job that nobody wants waits")
	}
	for _, n := range []uint64{1, 2} {
		if fx := b.identified(key(n), Account{}, nil); len(fx.Prepare)+len(fx.Launch) != 0 {
			t.Errorf("job %d begins: %+v", n, fx)
		}
	}
	b.launch(key(4), withoutEnv)
	if fx := b.identified(key(4), Account{}, nil); len(fx.Prepare) != 1 {
		t.Errorf("no prolog behind the lookup: %+v", fx)
	}
}

// hangingAccounts answers for all users but one, which waits for a word.
type hangingAccounts struct {
	w       *watch
	hangs   uint32
	asked   []uint32
	proceed chan struct{}
}

func (h *hangingAccounts) FindAccount(ctx context.Context, uid uint32) (Account, error) {
	h.w.do(func() { h.asked = append(h.asked, uid) })
	if uid == h.hangs {
		select {
		case <-h.proceed:
		case <-ctx.Done():
			return Account{}, ctx.Err()
		}
	}
	return Account{Home: "/home/x", Shell: "/bin/sh"}, nil
}

// TestHangingAccount: while the database hangs for one user, the jobs of another
// begin, heartbeats go on, and the agent ends when it is told to.
func TestHangingAccount(t *testing.T) {
	s := newStage(t)
	accounts := &hangingAccounts{w: s.watch, hangs: 1001, proceed: make(chan struct{})}
	s.accounts = accounts
	s.start()
	st := s.stream(1)
	st.welcome(testCluster)
	of := func(k plan.RunKey, uid uint32) *apiv1.Order {
		order := s.bench.order(k, withoutEnv, func(l *apiv1.Launch) { l.Job.UserId = uid })
		s.bench.creds.claims[len(s.bench.creds.claims)-1].UID = uid
		return order
	}
	st.orders(of(key(1), 1001))
	s.until(func() bool { return slices.Equal(accounts.asked, []uint32{1001}) })
	st.orders(of(key(2), 1002), s.bench.order(key(3)))
	s.until(func() bool { return s.shep.alive[key(2)] && s.shep.alive[key(3)] })
	beats := func() int {
		return st.count(func(m *apiv1.AgentMessage) bool { return m.GetHeartbeat() != nil })
	}
	var before int
	s.do(func() { before = beats() })
	s.pass(spec.Second, func() bool { return beats() >= before+3 })
	s.do(func() {
		if s.shep.alive[key(1)] {
			t.Error("a job has begun whose user is not known")
		}
	})
	close(accounts.proceed)
	s.until(func() bool { return s.shep.alive[key(1)] })

	accounts.w.do(func() { accounts.hangs, accounts.proceed = 1003, make(chan struct{}) })
	st.orders(of(key(4), 1003))
	s.until(func() bool { return slices.Contains(accounts.asked, 1003) })
	s.stop()
	if strings.Contains(s.log.String(), "not known") {
		t.Error("an agent that ends takes that for an answer")
	}
}
