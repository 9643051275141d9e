package daemon

import (
	"crypto/sha256"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/scheduler/credentials"
	"github.com/musterhpc/muster/spec"
	"google.golang.org/protobuf/proto"
)

// stepOrder is the order of a step's part of two tasks.
func (b *bench) stepOrder(k plan.RunKey, more ...func(*apiv1.Launch)) *apiv1.Order {
	o := b.order(k, func(l *apiv1.Launch) {
		l.Batch, l.Script = false, nil
		l.Step = &apiv1.StepLaunch{Spec: wire.StepSpec(&spec.StepSpec{Argv: []string{"hostname"}, WorkDir: "/tmp", InputTask: spec.InputAll}),
			Here: wire.NodeAlloc(&spec.NodeAlloc{Name: "n1", CPUs: spec.FullBitset(1), Mem: 100}), Nodes: "n1", NumNodes: 1, TasksPerNode: "2", Tasks: 2,
			Ranks: []uint32{0, 1}, LaunchHost: "login"}
		for _, f := range more {
			f(l)
		}
	})
	l := o.GetLaunch()
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(l.GetStep())
	if err != nil {
		b.t.Fatal(err)
	}
	n, err := strconv.Atoi(string(l.Credential))
	if err == nil {
		b.creds.claims[n].Launch = sha256.Sum256(data)
	}
	return o
}

func reportsOf(c *Core) []*apiv1.Report { return c.Outgoing() }

func keysOf(list []plan.RunSpec) []plan.RunKey {
	var out []plan.RunKey
	for i := range list {
		out = append(out, list[i].Key)
	}
	return out
}

// A step begins once its job has, and once only; its end is told with what it
// used, and the job goes on.
func TestAStepInsideOfItsJob(t *testing.T) {
	b := newBench(t)
	job := plan.Key(1, 1, plan.StepBatch)
	step := plan.Key(1, 1, 0)
	b.welcome()
	b.launch(job)
	if fx := b.orders(b.stepOrder(step)); len(fx.Launch) != 0 {
		t.Fatalf("launched before its job: %v", keysOf(fx.Launch))
	}
	b.answer(job, plan.Accepted, 0)
	fx := b.started(job)
	if got := b.core.runs[step].phase; got != asked && !slices.Contains(keysOf(fx.Launch), step) {
		t.Fatalf("the step's phase is %d", got)
	}
	if fx := b.orders(b.stepOrder(step)); len(fx.Launch) != 0 {
		t.Fatal("launched twice")
	}
	b.answer(step, plan.Accepted, 0)
	b.core.Heard([]plan.Event{{Started: &plan.Observed{Key: step, State: plan.Running, PID: 101, Start: b.now, Socket: "/run/step/io"}}})
	if s := b.core.Step(step); s.Socket != "/run/step/io" || s.Over {
		t.Fatalf("%+v", s)
	}
	if jobs := b.core.Jobs(); len(jobs) != 1 {
		t.Errorf("a step is shown as a job: %+v", jobs)
	}
	reportsOf(b.core)
	b.exit(step, func(e *plan.Exit) { e.Code, e.Usage.UserCPU = 7, 5*spec.Second })
	list := reportsOf(b.core)
	if len(list) != 1 || list[0].GetEnded().GetExitCode() != 7 || list[0].GetEnded().GetUsage().GetUserCpu() != int64(5*spec.Second) || runKey(list[0].Run) != step {
		t.Fatalf("%v", list)
	}
	if s := b.core.Step(step); !s.Over {
		t.Errorf("%+v", s)
	}
	if b.core.runs[job].phase != living {
		t.Error("the job ended with its step")
	}
	b.core.Ack(list[0].Number)
	if fx := b.core.Effects(); !slices.Equal(fx.Forget, []plan.RunKey{step}) {
		t.Errorf("%v", fx.Forget)
	}
	if fx := b.orders(b.stepOrder(step)); len(fx.Launch) != 0 || len(reportsOf(b.core)) != 1 {
		t.Error("a step that is over is not told again")
	}
}

// What a job used on a node is what its script and its steps there used, each
// once, also where it has no script, and over a restart of the agent: the
// accounting takes the steps' part out of it again.
func TestAJobsUseIsItsStepsToo(t *testing.T) {
	for _, batch := range []bool{true, false} {
		b := newBench(t)
		job, first, second := plan.Key(1, 1, plan.StepBatch), plan.Key(1, 1, 0), plan.Key(1, 1, 1)
		b.welcome()
		b.launch(job, func(l *apiv1.Launch) { l.Batch = batch })
		if batch {
			b.answer(job, plan.Accepted, 0)
			b.started(job)
		}
		for _, k := range []plan.RunKey{first, second} {
			b.orders(b.stepOrder(k))
			b.answer(k, plan.Accepted, 0)
			b.started(k)
		}
		b.core.Usage(b.now, []plan.Usage{{Key: job, RSS: 3 << 20}, {Key: first, RSS: 20 << 20}, {Key: second, RSS: 30 << 20}})
		uses := func(cpu spec.Span, rss int64) func(*plan.Exit) {
			return func(e *plan.Exit) {
				e.Usage = plan.Usage{UserCPU: cpu, SystemCPU: cpu, PeakRSS: rss, ReadB: int64(cpu)}
			}
		}
		b.exit(first, uses(5*spec.Second, 20<<20))
		if batch {
			b.exit(second, uses(7*spec.Second, 30<<20))
			b.exit(job, uses(1*spec.Second, 3<<20))
		} else {
			b.orders(terminateOrder(job, ""))
			b.exit(second, uses(8*spec.Second, 30<<20))
		}
		list := reportsOf(b.core)
		done := list[len(list)-1].GetNodeDone()
		peak := int64(50 << 20)
		if batch {
			peak = 53 << 20
		}
		if u := done.GetUsage(); u.GetUserCpu() != int64(13*spec.Second) || u.GetSystemCpu() != int64(13*spec.Second) || u.GetPeakRss() != peak || u.GetReadBytes() != int64(13*spec.Second) {
			t.Errorf("batch %v: %v", batch, u)
		}
	}
}

// The node is given back only when the steps are gone: they are ended first,
// whether the job has a script here or not.
func TestAJobWaitsForItsSteps(t *testing.T) {
	for _, batch := range []bool{true, false} {
		b := newBench(t)
		job, step, waiting := plan.Key(1, 1, plan.StepBatch), plan.Key(1, 1, 0), plan.Key(1, 1, 1)
		b.welcome()
		b.launch(job, func(l *apiv1.Launch) { l.Batch = batch })
		if batch {
			b.answer(job, plan.Accepted, 0)
			b.started(job)
		}
		if fx := b.orders(b.stepOrder(step), b.stepOrder(waiting)); len(fx.Launch) != 2 {
			t.Fatalf("batch %v: %v", batch, keysOf(fx.Launch))
		}
		b.answer(step, plan.Accepted, 0)
		b.started(step)
		reportsOf(b.core)
		var fx Effects
		if batch {
			fx = b.exit(job)
		} else {
			fx = b.orders(terminateOrder(job, ""))
		}
		if len(fx.Terminate) != 1 || fx.Terminate[0].Key != step || fx.Terminate[0].Scope != plan.ScopeRun || fx.Terminate[0].Grace != 30*spec.Second {
			t.Fatalf("batch %v: %+v", batch, fx.Terminate)
		}
		if !slices.Equal(fx.Withdraw, []plan.RunKey{waiting}) {
			t.Fatalf("batch %v: %v", batch, fx.Withdraw)
		}
		b.core.Withdrawn(waiting)
		late := plan.Key(1, 1, 2)
		b.orders(b.stepOrder(late))
		for _, r := range reportsOf(b.core) {
			if r.GetNodeDone() != nil {
				t.Fatalf("batch %v: the node is given back while a step runs", batch)
			}
			if e := r.GetEnded(); runKey(r.Run) == late && (e.GetExitCode() != 1 || !strings.Contains(e.GetDetail(), "ending")) {
				t.Errorf("a step that came too late: %v", e)
			}
		}
		b.exit(step, func(e *plan.Exit) { e.Signal = 15 })
		list := reportsOf(b.core)
		if len(list) != 2 || list[0].GetEnded().GetExitSignal() != 15 || list[1].GetNodeDone() == nil || runKey(list[1].Run) != job {
			t.Fatalf("batch %v: %v", batch, list)
		}
	}
}

// What is wrong with a step is told as its end, never as a failed launch: that
// would end the job.
func TestStepsThatCannotBegin(t *testing.T) {
	for name, x := range map[string]struct {
		change func(*apiv1.Launch)
		spoil  func(*credentials.Claims)
		err    error
		want   string
	}{
		"a credential for another order": {spoil: func(c *credentials.Claims) { c.Launch[0]++ }, want: "another script"},
		"a credential for another user":  {spoil: func(c *credentials.Claims) { c.UID++ }, want: "another user"},
		"a credential for another step":  {spoil: func(c *credentials.Claims) { c.Step++ }, want: "another step"},
		"an expired credential":          {err: errors.New("credential has expired"), want: "expired"},
		"ranks that do not fit":          {change: func(l *apiv1.Launch) { l.Step.Ranks = l.Step.Ranks[:1] }, want: "not that many"},
		"a binding that is not known":    {change: func(l *apiv1.Launch) { l.Step.Spec.CpuBind = "sockets" }, want: "sockets is not supported"},
		"a device that is not here": {change: func(l *apiv1.Launch) {
			l.Step.Here.Gpus = []*apiv1.GpuRef{{Uuid: "GPU-x"}}
		}, want: "GPU-x is not on this node"},
	} {
		cfg := testConfig()
		cfg.Node.Affinity = true
		b := newBenchWith(t, cfg)
		job, step := plan.Key(1, 1, plan.StepBatch), plan.Key(1, 1, 0)
		b.welcome()
		b.launch(job)
		b.answer(job, plan.Accepted, 0)
		b.started(job)
		reportsOf(b.core)
		o := b.stepOrder(step, func(l *apiv1.Launch) {
			if x.change != nil {
				x.change(l)
			}
		})
		if x.spoil != nil {
			x.spoil(&b.creds.claims[len(b.creds.claims)-1])
		}
		b.creds.err = x.err
		if fx := b.orders(o); len(fx.Launch) != 0 {
			t.Errorf("%s: launched", name)
		}
		list := reportsOf(b.core)
		if len(list) != 1 || list[0].GetEnded().GetExitCode() != 1 || !strings.Contains(list[0].GetEnded().GetDetail(), x.want) {
			t.Errorf("%s: %v", name, list)
		}
		if b.core.runs[job].phase != living {
			t.Errorf("%s: the job does not go on", name)
		}
	}
}

func TestWhoMayAttach(t *testing.T) {
	b := newBench(t)
	step := plan.Key(1, 1, 0)
	if _, _, err := b.core.Attachable(step, []byte("0")); !errors.Is(err, ErrDown) {
		t.Errorf("before the first welcome: %v", err)
	}
	b.welcome()
	good := credentials.Claims{Cluster: testCluster, Job: 1, Attempt: 1, Step: 0, UID: 1001, Launch: sha256.Sum256([]byte(attachWords))}
	for name, x := range map[string]struct {
		change func(*credentials.Claims)
		err    error
		ok     bool
	}{
		"its own":                  {func(*credentials.Claims) {}, nil, true},
		"another step's":           {func(c *credentials.Claims) { c.Step = 1 }, nil, false},
		"another attempt's":        {func(c *credentials.Claims) { c.Attempt = 2 }, nil, false},
		"another cluster's":        {func(c *credentials.Claims) { c.Cluster[0]++ }, nil, false},
		"that of a launch":         {func(c *credentials.Claims) { c.Launch = sha256.Sum256([]byte("an order")) }, nil, false},
		"one that has expired":     {func(*credentials.Claims) {}, errors.New("expired"), false},
		"one of a key that is old": {func(*credentials.Claims) {}, errors.New("signed with a key that is not live"), false},
	} {
		c := good
		x.change(&c)
		b.creds.claims, b.creds.err = []credentials.Claims{c}, x.err
		if _, uid, err := b.core.Attachable(step, []byte("0")); (err == nil) != x.ok || x.ok && uid != 1001 {
			t.Errorf("%s: user %d, %v", name, uid, err)
		}
	}
}

// What a step has used stays in its job's sum when it has ended.
func TestSumsOfJobs(t *testing.T) {
	of := func(step int32, cpu spec.Span, rss int64) plan.Usage {
		return plan.Usage{Key: plan.Key(1, 1, step), UserCPU: cpu, RSS: rss, PeakRSS: rss}
	}
	var s jobSums
	for i, x := range []struct {
		runs []plan.Usage
		cpu  spec.Span
		rss  int64
	}{
		{[]plan.Usage{of(plan.StepBatch, 1, 10)}, 1, 10},
		{[]plan.Usage{of(plan.StepBatch, 2, 10), of(0, 5, 30)}, 7, 40},
		{[]plan.Usage{of(plan.StepBatch, 3, 10)}, 8, 10},
		{[]plan.Usage{of(plan.StepBatch, 3, 10), of(1, 1, 5)}, 9, 15},
		{[]plan.Usage{of(plan.StepBatch, 3, 10)}, 9, 10},
	} {
		got := s.addReading(x.runs)
		if len(got) != 1 || got[0].UserCPU != x.cpu || got[0].RSS != x.rss {
			t.Errorf("reading %d: %+v", i, got)
		}
	}
	if got := s.addReading(nil); len(got) != 0 || len(s.gone) != 0 {
		t.Errorf("%+v, %+v", got, s.gone)
	}
}

// The words of a user's script need not be UTF-8; a report that holds them can
// be sent all the same.
func TestReportsAreText(t *testing.T) {
	if e := runEnded(&plan.Exit{Message: "bad interpreter (caf\xe9)"}); e.Detail != "bad interpreter (caf\ufffd)" {
		t.Errorf("%q", e.Detail)
	}
}
