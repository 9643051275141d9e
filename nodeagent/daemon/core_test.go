package daemon

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/scheduler/credentials"
	"github.com/musterhpc/muster/spec"
)

// truthful believes every credential that names claims: the raw bytes are the
// number of the claims in the bench.
type truthful struct {
	claims []credentials.Claims
	err    error
	keys   [][]byte
}

func (c *truthful) Use(keys [][]byte, _ [16]byte) error { c.keys = keys; return nil }

func (c *truthful) Verify(raw []byte, _ spec.Instant) (credentials.Claims, error) {
	if c.err != nil {
		return credentials.Claims{}, c.err
	}
	n, err := strconv.Atoi(string(raw))
	if err != nil || n >= len(c.claims) {
		return credentials.Claims{}, errors.New("no credential")
	}
	return c.claims[n], nil
}

// bench is a core with everything around it in the test's hands.
type bench struct {
	t     testing.TB
	now   spec.Instant
	creds *truthful
	core  *Core
	log   strings.Builder
}

var testCluster = [16]byte{1, 2, 3}

func testConfig() Config {
	return Config{Node: plan.Node{Name: "n1", Host: "vm", Cluster: "lab", CPUs: spec.FullBitset(8), MemoryMiB: 8000}, Interval: 7 * spec.Second,
		Orphans: plan.Policy{KillOrphans: true, OrphanAfter: 60 * spec.Second, OrphanGrace: 30 * spec.Second}}
}

func newBench(t testing.TB) *bench { return newBenchWith(t, testConfig()) }

func newBenchWith(t testing.TB, cfg Config) *bench {
	b := &bench{t: t, now: spec.AtUnix(1_800_000_000), creds: &truthful{}}
	b.core = NewCore(cfg, b.creds, func() spec.Instant { return b.now }, slog.New(slog.NewTextHandler(&b.log, nil)))
	return b
}

// welcome begins a connection on which the given runs are wanted.
func (b *bench) welcome(keys ...plan.RunKey) Effects {
	w := &apiv1.Welcome{Cluster: "lab", ClusterUuid: testCluster[:], Heartbeat: int64(10 * spec.Second), KillWait: int64(30 * spec.Second)}
	for _, k := range keys {
		w.Desired = append(w.Desired, wireKey(k))
	}
	b.core.Welcome(w)
	return b.core.Effects()
}

var script = []byte("#!/bin/sh\ntrue\n")

// order is a launch order with its credential.
func (b *bench) order(k plan.RunKey, more ...func(*apiv1.Launch)) *apiv1.Order {
	js := &spec.JobSpec{Name: "job", Account: "ml", IO: spec.JobIO{WorkDir: "/tmp"}}
	l := &apiv1.Launch{Batch: true, Script: script, Environment: []byte("HOME=/\x00"), Job: &apiv1.JobInfo{
		Uid: k.Job, JobId: uint32(k.Job) + 1000, Attempt: k.Attempt, UserId: 1001, GroupId: 1001, User: "alice", Partition: "gpu", Nodes: "n1", ArrayTask: spec.NoTask,
		Spec: wire.JobSpec(js)}, Here: wire.NodeAlloc(&spec.NodeAlloc{Name: "n1", CPUs: spec.FullBitset(1), Mem: 500}), CpusPerNode: "1", TasksPerNode: "1"}
	for _, f := range more {
		f(l)
	}
	claims := credentials.Claims{Cluster: testCluster, Job: spec.JobUID(k.Job), Attempt: k.Attempt, Step: spec.StepID(k.Step), UID: 1001, GID: 1001,
		Groups: l.Groups, Launch: sha256.Sum256(script)}
	if len(l.Credential) == 0 {
		b.creds.claims = append(b.creds.claims, claims)
		l.Credential = []byte(strconv.Itoa(len(b.creds.claims) - 1))
	}
	return &apiv1.Order{Run: wireKey(k), Kind: &apiv1.Order_Launch{Launch: l}}
}

func (b *bench) orders(list ...*apiv1.Order) Effects {
	b.core.Orders(list)
	return b.core.Effects()
}

func (b *bench) launch(k plan.RunKey, more ...func(*apiv1.Launch)) Effects {
	return b.orders(b.order(k, more...))
}

func terminateOrder(k plan.RunKey, note string) *apiv1.Order {
	return &apiv1.Order{Run: wireKey(k), Kind: &apiv1.Order_Terminate{Terminate: &apiv1.Terminate{Grace: int64(30 * spec.Second), Note: note}}}
}

func (b *bench) answer(k plan.RunKey, s plan.LaunchStatus, code plan.RefusalCode) Effects {
	b.core.Launched([]plan.LaunchResult{{Key: k, Status: s, Code: code, Reason: "because"}})
	return b.core.Effects()
}

func (b *bench) started(k plan.RunKey) Effects {
	b.core.Heard([]plan.Event{{Started: &plan.Observed{Key: k, JobID: k.Job + 1000, State: plan.Running, PID: 100, Start: b.now}}})
	return b.core.Effects()
}

func (b *bench) exit(k plan.RunKey, more ...func(*plan.Exit)) Effects {
	e := &plan.Exit{Key: k, Started: true, Start: b.now.Add(-spec.Second), End: b.now, Usage: plan.Usage{UserCPU: 7, PeakRSS: 4 << 20}}
	for _, f := range more {
		f(e)
	}
	b.core.Heard([]plan.Event{{Exited: e}})
	return b.core.Effects()
}

// run brings a run to life.
func (b *bench) run(k plan.RunKey, more ...func(*apiv1.Launch)) {
	b.t.Helper()
	if fx := b.launch(k, more...); len(fx.Launch) != 1 {
		b.t.Fatalf("no launch: %+v\n%s", fx, b.log.String())
	}
	b.answer(k, plan.Accepted, 0)
	b.started(k)
}

// sent writes what would be sent now, one report a line.
func (b *bench) sent() string {
	var out []string
	for _, r := range b.core.Outgoing() {
		text := fmt.Sprintf("%d %s ", r.GetNumber(), runKey(r.GetRun()))
		switch k := r.GetKind().(type) {
		case *apiv1.Report_LaunchFailed:
			text += fmt.Sprintf("failed drain=%v", k.LaunchFailed.GetDrainNode())
		case *apiv1.Report_NodeDone:
			text += "done"
			if e := k.NodeDone.GetBatch(); e != nil {
				text += fmt.Sprintf(" %d:%d", e.GetExitCode(), e.GetExitSignal())
				if e.GetUnknown() {
					text += " unknown"
				}
			}
		case *apiv1.Report_Ended:
			text += "ended"
		}
		out = append(out, text)
	}
	return strings.Join(out, "\n")
}

func (b *bench) wantSent(want ...string) {
	b.t.Helper()
	if got := b.sent(); got != strings.Join(want, "\n") {
		b.t.Errorf("sent\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
}

func key(job uint64) plan.RunKey { return plan.Key(job, 1, plan.StepBatch) }

func TestLifeOfARun(t *testing.T) {
	b := newBench(t)
	if fx := b.welcome(); !fx.List || !fx.Save || fx.Leave != "" {
		t.Errorf("after the welcome: %+v", fx)
	}
	k := key(1)
	fx := b.launch(k)
	if len(fx.Launch) != 1 || fx.Launch[0].Key != k || fx.Launch[0].UID != 1001 || fx.Launch[0].Stdout != "slurm-1001.out" {
		t.Fatalf("%+v\n%s", fx, b.log.String())
	}
	if fx := b.launch(k); len(fx.Launch) != 0 {
		t.Error("launched twice")
	}
	b.answer(k, plan.Accepted, 0)
	b.started(k)
	if jobs := b.core.Jobs(); len(jobs) != 1 || jobs[0].ID != 1001 || jobs[0].Account != "ml" || jobs[0].MemoryMiB != 500 || jobs[0].CPUs != 1 {
		t.Errorf("%+v", jobs)
	}
	b.now = b.now.Add(spec.Second)
	if fx := b.exit(k, func(e *plan.Exit) { e.Code = 3 }); !fx.Send || !fx.Jobs {
		t.Errorf("%+v", fx)
	}
	b.wantSent("1 1.1.batch done 3:0")
	if len(b.core.Jobs()) != 0 || len(b.core.Running()) != 0 {
		t.Error("the job still holds the node")
	}
	b.exit(k) // the shepherd repeats itself
	b.wantSent("")
	b.core.Ack(1)
	if fx := b.core.Effects(); !slices.Equal(fx.Forget, []plan.RunKey{k}) || fx.Acked != 1 {
		t.Errorf("%+v", fx)
	}
	if fx := b.exit(k); !slices.Equal(fx.Forget, []plan.RunKey{k}) {
		t.Errorf("an acknowledged exit comes again: %+v", fx)
	}
	b.wantSent("")
}

// TestOutOfOrder: news of a run may be quicker than the answer to its launch.
func TestOutOfOrder(t *testing.T) {
	b := newBench(t)
	b.welcome()
	k := key(1)
	b.launch(k)
	b.started(k)
	b.exit(k)
	b.answer(k, plan.Accepted, 0)
	b.wantSent("1 1.1.batch done 0:0")
	if fx := b.answer(k, plan.Known, 0); len(fx.Terminate)+len(fx.Forget) != 0 {
		t.Errorf("%+v", fx)
	}
}

func TestHeldPart(t *testing.T) {
	b := newBench(t)
	b.welcome()
	k := key(1)
	if fx := b.launch(k, func(l *apiv1.Launch) { l.Batch, l.Script = false, nil }); len(fx.Launch) != 0 || !fx.Jobs {
		t.Fatalf("%+v", fx)
	}
	if len(b.core.Jobs()) != 1 {
		t.Fatalf("not held: %s", b.log.String())
	}
	b.orders(terminateOrder(k, ""))
	b.wantSent("1 1.1.batch done")
	b.orders(terminateOrder(k, ""))
	b.wantSent("")
	b.core.Ack(1)
	if fx := b.core.Effects(); len(fx.Forget) != 0 {
		t.Errorf("the shepherd never had it: %+v", fx)
	}
}

func TestRefusedOrders(t *testing.T) {
	for _, c := range []struct {
		name  string
		prep  func(*bench)
		order func(*apiv1.Launch)
		drain bool
		why   string
	}{
		{"no credential", nil, func(l *apiv1.Launch) { l.Credential = []byte("forged") }, false, "credential is refused"},
		{"another user", nil, func(l *apiv1.Launch) { l.Job.UserId = 0 }, false, "another user"},
		{"another group", nil, func(l *apiv1.Launch) { l.Job.GroupId = 0 }, false, "another user"},
		{"another script", nil, func(l *apiv1.Launch) { l.Script = []byte("#!/bin/sh\nrm -rf /\n") }, false, "another script"},
		{"another node", nil, func(l *apiv1.Launch) { l.Here.Name = "n2" }, false, "not n1"},
		{"no place", nil, func(l *apiv1.Launch) { l.NodeIndex = 7 }, false, "place 7"},
		{"the clock", func(b *bench) { b.creds.err = fmt.Errorf("expired: %w", ErrClock) }, func(*apiv1.Launch) {}, true, "clocks"},
		{"a GPU that is not here", nil, func(l *apiv1.Launch) { l.Here.Gpus = []*apiv1.GpuRef{{Uuid: "GPU-x"}} }, true, "GPU-x is not on this node"},
	} {
		b := newBench(t)
		b.welcome()
		if c.prep != nil {
			c.prep(b)
		}
		fx := b.launch(key(1), c.order)
		reports := b.core.outbox.queue
		if len(fx.Launch) != 0 || len(reports) != 2 {
			t.Errorf("%s: launched %d, reports %d", c.name, len(fx.Launch), len(reports))
			continue
		}
		f := reports[0].report.GetLaunchFailed()
		if f.GetDrainNode() != c.drain || !strings.Contains(f.GetText(), c.why) {
			t.Errorf("%s: %v", c.name, f)
		}
		if done := reports[1].report.GetNodeDone(); done.GetBatch().GetExitCode() != 1 {
			t.Errorf("%s: %v", c.name, done)
		}
	}
	// Groups are claims too, and so is every other field of the credential.
	b := newBench(t)
	b.welcome()
	o := b.order(key(1))
	o.GetLaunch().Groups = []uint32{0}
	if fx := b.orders(o); len(fx.Launch) != 0 {
		t.Error("a group that is not in the credential is given")
	}
	for i, spoil := range []func(*credentials.Claims){
		func(c *credentials.Claims) { c.Cluster[0]++ }, func(c *credentials.Claims) { c.Job++ }, func(c *credentials.Claims) { c.Attempt++ },
		func(c *credentials.Claims) { c.Step++ }, func(c *credentials.Claims) { c.UID++ }, func(c *credentials.Claims) { c.Launch[0]++ },
	} {
		o := b.order(key(uint64(i) + 10))
		spoil(&b.creds.claims[len(b.creds.claims)-1])
		if fx := b.orders(o); len(fx.Launch) != 0 {
			t.Errorf("claim %d is not compared", i)
		}
	}
}

func TestShepherdRefuses(t *testing.T) {
	b := newBench(t)
	b.welcome()
	b.launch(key(1))
	b.answer(key(1), plan.Refused, plan.RefusedPrivilege)
	b.wantSent("1 1.1.batch failed drain=false", "2 1.1.batch done 1:0")

	// A full disk is waited for, then the node is left alone.
	b.launch(key(2))
	b.answer(key(2), plan.Refused, plan.RefusedDisk)
	b.wantSent("")
	for range 4 {
		b.core.Tick()
		if fx := b.core.Effects(); len(fx.Launch) != 1 {
			t.Fatalf("not asked again: %+v", fx)
		}
		b.answer(key(2), plan.Refused, plan.RefusedDisk)
		b.now = b.now.Add(29 * spec.Second)
	}
	b.wantSent("3 2.1.batch failed drain=true", "4 2.1.batch done 1:0")

	// One that is cancelled meanwhile is over at once.
	b.launch(key(3))
	b.answer(key(3), plan.Refused, plan.RefusedDisk)
	b.orders(terminateOrder(key(3), ""))
	b.wantSent("5 3.1.batch done 0:15")
	b.core.Tick()
	if fx := b.core.Effects(); len(fx.Launch) != 0 {
		t.Error("a cancelled run is asked for again")
	}

	// What the shepherd took for over long ago has an end that nobody knows.
	b.launch(key(4))
	b.answer(key(4), plan.Ended, 0)
	b.wantSent("6 4.1.batch done 0:0 unknown")
}

func TestFailuresOfTheStart(t *testing.T) {
	for _, c := range []struct {
		exit plan.Exit
		want []string
	}{
		{plan.Exit{Failure: plan.FailOutput, Signal: plan.IOErrorSignal}, []string{"1 1.1.batch done 0:53"}},
		{plan.Exit{Failure: plan.FailExec, Code: 2}, []string{"1 1.1.batch done 2:0"}},
		{plan.Exit{Failure: plan.FailSpool, Code: 1}, []string{"1 1.1.batch failed drain=true", "2 1.1.batch done 1:0"}},
		{plan.Exit{Failure: plan.NotBegun, Code: 1}, []string{"1 1.1.batch failed drain=false", "2 1.1.batch done 1:0"}},
		{plan.Exit{Failure: plan.Lost, Code: 9}, []string{"1 1.1.batch done 0:0 unknown"}},
		{plan.Exit{OOM: true, Signal: 9}, []string{"1 1.1.batch done 0:9"}},
	} {
		b := newBench(t)
		b.welcome()
		b.launch(key(1))
		b.answer(key(1), plan.Accepted, 0)
		b.exit(key(1), func(e *plan.Exit) {
			e.Failure, e.Code, e.Signal, e.OOM = c.exit.Failure, c.exit.Code, c.exit.Signal, c.exit.OOM
		})
		b.wantSent(c.want...)
		last := b.core.outbox.queue[len(b.core.outbox.queue)-1].report.GetNodeDone()
		if last.GetBatch().GetOom() != c.exit.OOM || last.GetUsage().GetOomKilled() != c.exit.OOM {
			t.Errorf("%+v: %v", c.exit, last)
		}
	}
}

func TestTerminate(t *testing.T) {
	b := newBench(t)
	b.welcome()
	b.run(key(1))
	fx := b.orders(terminateOrder(key(1), "DUE TO TIME LIMIT"))
	want := "*** JOB 1001 ON n1 CANCELLED AT 2027-01-15T08:00:00 DUE TO TIME LIMIT ***"
	if len(fx.Terminate) != 1 || fx.Terminate[0].Notice != want || fx.Terminate[0].Grace != 30*spec.Second || fx.Terminate[0].Scope != plan.ScopeJob {
		t.Errorf("%+v", fx.Terminate)
	}
	if fx := b.orders(terminateOrder(key(1), "DUE TO TIME LIMIT")); len(fx.Terminate) != 1 || fx.Terminate[0].Notice != "" {
		t.Errorf("the line comes twice: %+v", fx.Terminate)
	}
	b.exit(key(1), func(e *plan.Exit) { e.Signal = 15 })
	b.wantSent("1 1.1.batch done 0:15")

	// Before the shepherd has answered, the end waits for the answer.
	b.launch(key(2))
	if fx := b.orders(terminateOrder(key(2), "")); len(fx.Terminate) != 0 || !slices.Equal(fx.Withdraw, []plan.RunKey{key(2)}) {
		t.Errorf("%+v", fx)
	}
	if fx := b.answer(key(2), plan.Accepted, 0); len(fx.Terminate) != 1 {
		t.Errorf("%+v", fx)
	}
	// If it was not asked yet, that is all.
	b.launch(key(3))
	b.orders(terminateOrder(key(3), ""))
	b.core.Withdrawn(key(3))
	b.wantSent("2 3.1.batch done 0:15")

	// Of a run that is not here nothing is left.
	b.orders(terminateOrder(key(4), ""))
	b.wantSent("3 4.1.batch done")
}

func TestSignals(t *testing.T) {
	b := newBench(t)
	b.welcome()
	order := func(k plan.RunKey, seq uint64, scope event.SignalScope) *apiv1.Order {
		return &apiv1.Order{Run: wireKey(k), Kind: &apiv1.Order_Signal{Signal: &apiv1.SignalRun{Signal: 10, Scope: uint32(scope), Seq: seq}}}
	}
	b.launch(key(1))
	if fx := b.orders(order(key(1), 5, event.SignalBatch)); len(fx.Signal) != 0 {
		t.Error("sent before the run is there")
	}
	fx := b.answer(key(1), plan.Accepted, 0)
	if len(fx.Signal) != 1 || fx.Signal[0] != (Signal{Key: key(1), Number: 10, Scope: plan.ScopeLeader}) {
		t.Errorf("%+v", fx.Signal)
	}
	if fx := b.orders(order(key(1), 5, event.SignalBatch)); len(fx.Signal) != 0 {
		t.Error("the same signal twice")
	}
	fx = b.orders(order(key(1), 6, event.SignalFull), order(key(1), 7, event.SignalSteps), order(key(9), 1, event.SignalFull))
	if len(fx.Signal) != 2 || fx.Signal[0].Scope != plan.ScopeJob || fx.Signal[1].Scope != plan.ScopeSteps {
		t.Errorf("%+v", fx.Signal)
	}
}

func TestReconnect(t *testing.T) {
	b := newBench(t)
	b.welcome()
	b.run(key(1))
	b.run(key(2))
	b.exit(key(1))
	b.wantSent("1 1.1.batch done 0:0")
	// The connection breaks before the acknowledgement; another run ends.
	b.exit(key(2))
	b.welcome(key(1), key(2))
	b.wantSent("1 1.1.batch done 0:0", "2 2.1.batch done 0:0")
	if fx := b.launch(key(2)); len(fx.Launch) != 0 {
		t.Error("an ended run is launched again")
	}
	b.core.Ack(2)
	fx := b.core.Effects()
	if !slices.Equal(fx.Forget, []plan.RunKey{key(1), key(2)}) {
		t.Errorf("%+v", fx)
	}
	// A launch that was on its way is answered with the end, not begun.
	if fx := b.launch(key(2)); len(fx.Launch) != 0 {
		t.Error("a run that is over is launched again")
	}
	b.wantSent("3 2.1.batch done 0:0")
	b.core.Ack(3)
	b.orders(terminateOrder(key(2), ""))
	b.wantSent("4 2.1.batch done 0:0")
}

func TestAnotherCluster(t *testing.T) {
	b := newBench(t)
	b.welcome()
	b.core.Welcome(&apiv1.Welcome{Cluster: "other", ClusterUuid: make([]byte, 16)})
	if fx := b.core.Effects(); !strings.Contains(fx.Leave, "another cluster") || fx.List {
		t.Errorf("%+v", fx)
	}
	b.core.Welcome(&apiv1.Welcome{ClusterUuid: []byte{1}})
	if fx := b.core.Effects(); fx.Leave == "" {
		t.Error("a cluster without a name is accepted")
	}
}

func (b *bench) resync(seen ...plan.Observed) Effects {
	b.core.Listing()
	b.core.Resync(seen)
	return b.core.Effects()
}

func TestOrphans(t *testing.T) {
	b := newBench(t)
	alive := plan.Observed{Key: key(1), JobID: 1001, State: plan.Running, Start: b.now}
	b.resync(alive) // before any welcome nothing is an orphan
	b.now = b.now.Add(spec.Hour)
	if fx := b.resync(alive); len(fx.Terminate) != 0 {
		t.Error("killed before the controller has spoken")
	}
	b.welcome()
	if fx := b.resync(alive); len(fx.Terminate) != 0 {
		t.Error("killed without a grace")
	}
	b.now = b.now.Add(61 * spec.Second)
	fx := b.resync(alive)
	if len(fx.Terminate) != 1 || fx.Terminate[0].Key != key(1) || fx.Terminate[0].Grace != 30*spec.Second {
		t.Errorf("%+v", fx.Terminate)
	}
	b.exit(key(1), func(e *plan.Exit) { e.Signal = 15 })
	b.wantSent("1 1.1.batch done 0:15")

	// A later attempt is wanted: the earlier one is an orphan.
	b = newBench(t)
	b.resync(alive)
	b.welcome(plan.Key(1, 2, plan.StepBatch))
	b.resync(alive)
	b.now = b.now.Add(61 * spec.Second)
	if fx := b.resync(alive); len(fx.Terminate) != 1 || fx.Terminate[0].Key != key(1) {
		t.Errorf("%+v", fx.Terminate)
	}

	// It is launched here: the earlier one is killed at once, another job's is not.
	b = newBench(t)
	other := alive
	other.Key = key(2)
	b.resync(alive, other)
	b.welcome()
	b.resync(alive, other)
	fx = b.launch(plan.Key(1, 2, plan.StepBatch))
	if len(fx.Launch) != 1 || len(fx.Terminate) != 1 || fx.Terminate[0].Key != key(1) || fx.Terminate[0].Grace != 0 {
		t.Errorf("%+v, %+v", fx.Launch, fx.Terminate)
	}
}

func TestLostRun(t *testing.T) {
	b := newBench(t)
	b.welcome()
	b.run(key(1))
	b.core.Listing()
	b.run(key(2)) // begins while the list is made: it cannot be in it
	b.core.Resync([]plan.Observed{})
	b.wantSent("1 1.1.batch done 0:0 unknown")
	if got := b.core.Running(); !slices.Equal(got, []plan.RunKey{key(2)}) {
		t.Errorf("%v", got)
	}
}

// TestAgentRestart: what the shepherd runs is taken over, with the figures
// that the spool kept.
func TestAgentRestart(t *testing.T) {
	b := newBench(t)
	b.core.SetDevices([]device.Device{{UUID: "GPU-0"}, {UUID: "GPU-1", Index: 1}})
	b.welcome()
	gpus := func(uuid string) func(*apiv1.Launch) {
		return func(l *apiv1.Launch) { l.Here.Gpus = []*apiv1.GpuRef{{Uuid: uuid}} }
	}
	b.run(key(1), gpus("GPU-0"))
	b.run(key(2))
	b.launch(key(3), gpus("GPU-1"), func(l *apiv1.Launch) { l.Batch, l.Script = false, nil })
	begin := b.now
	for range 6 {
		b.now = b.now.Add(10 * spec.Second)
		b.core.Usage(b.now, []plan.Usage{{Key: key(1), RSS: 100 << 20}})
		b.collected(100, "GPU-0", "GPU-1")
	}
	data, err := b.core.Save("boot-1")
	if err != nil {
		t.Fatal(err)
	}

	again := newBench(t)
	again.now = b.now.Add(spec.Second)
	again.core.SetDevices([]device.Device{{UUID: "GPU-0"}, {UUID: "GPU-1", Index: 1}})
	if err := again.core.Restore(data, "boot-1"); err != nil {
		t.Fatal(err)
	}
	observed := plan.Observed{Key: key(1), JobID: 1001, State: plan.Running, Start: begin}
	again.resync(observed) // run 2 ended and was forgotten just before
	if jobs := again.core.Jobs(); len(jobs) != 3 || jobs[0].User != "alice" {
		t.Errorf("%+v", jobs)
	}
	again.welcome(key(1), key(3))
	again.resync(observed)
	if got := again.core.Running(); !slices.Equal(got, []plan.RunKey{key(1), key(3)}) {
		t.Errorf("%v", got)
	}
	again.wantSent("")
	again.now = begin.Add(70 * spec.Second)
	again.exit(key(1), func(e *plan.Exit) { e.Start = begin })
	again.collected(100, "GPU-0", "GPU-1")
	u := again.core.outbox.queue[0].report.GetNodeDone().GetUsage()
	if g := u.GetGpus(); len(g) != 1 || g[0].GetBusy() != int64(70*spec.Second) || g[0].GetUtilNs() != int64(70*spec.Second) || !g[0].GetHas() {
		t.Errorf("GPU figures: %v", g)
	}
	if u.GetMemMibS() != 100*70 {
		t.Errorf("memory: %d MiB·s", u.GetMemMibS())
	}

	// After a reboot nothing of it is true but the cluster.
	rebooted := newBench(t)
	if err := rebooted.core.Restore(data, "boot-2"); err != nil {
		t.Fatal(err)
	}
	if len(rebooted.core.Running()) != 0 || rebooted.core.cluster != testCluster {
		t.Errorf("%v %x", rebooted.core.Running(), rebooted.core.cluster)
	}
	for _, bad := range []string{"", "{", `{"version":9}`, `{"version":1,"boot":"b","cluster":"xy"}`, `{"version":1,"boot":"b","book":{"version":7}}`} {
		if err := newBench(t).core.Restore([]byte(bad), "b"); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// collected gives a reading of all GPUs, busy by so many percent.
func (b *bench) collected(percent int64, uuids ...string) Effects {
	rd := &Reading{Sample: device.Sample{At: b.now}, Listed: true}
	for _, u := range uuids {
		rd.Sample.Readings = append(rd.Sample.Readings, device.Reading{UUID: u, Values: []device.Value{{Field: device.GPUUtil, N: percent}, {Field: device.FBUsed, N: 1000}}})
		rd.Processes = append(rd.Processes, device.Process{PID: 1, UUID: u})
	}
	b.core.Collected(rd)
	return b.core.Effects()
}
