package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/nodeagent/gpu/attrib"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// fakeClock is internal/clock's in the form the agent wants.
type fakeClock struct {
	*clock.Fake
	mu    *sync.Mutex
	asked *[]spec.Span // every wait, in order
}

func (c fakeClock) waits() []spec.Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(*c.asked)
}

func (c fakeClock) After(d spec.Span) (<-chan struct{}, func()) {
	c.mu.Lock()
	*c.asked = append(*c.asked, d)
	c.mu.Unlock()
	ch, stopped := make(chan struct{}), make(chan struct{})
	timer := c.NewTimer(d)
	go func() {
		select {
		case <-timer.C():
			close(ch)
		case <-stopped:
		}
	}()
	return ch, sync.OnceFunc(func() { timer.Stop(); close(stopped) })
}

// fakeShepherd answers as it is told.
type fakeShepherd struct {
	w       *watch
	batches [][]plan.RunKey // of each launch call
	alive   map[plan.RunKey]bool
	acked   []plan.RunKey
	ended   []plan.Terminate
	grants  []plan.Grant
	spaces  []plan.RunKey // attempts with private folders
	vacated []plan.RunKey
	mounts  bool // it can make private folders
	tree    string
	lists   int
	hold    chan struct{} // launches wait for it
	stopped chan struct{} // if set, greetings and lists are answered once it is closed
	launch  func([]plan.RunSpec) error
	end     func(plan.Terminate) error
}

// stand waits while the shepherd is stopped.
func (s *fakeShepherd) stand(ctx context.Context) error {
	var stopped chan struct{}
	s.w.do(func() { stopped = s.stopped })
	if stopped == nil {
		return nil
	}
	select {
	case <-stopped:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *fakeShepherd) Hello(ctx context.Context) (plan.Hello, error) {
	if err := s.stand(ctx); err != nil {
		return plan.Hello{}, err
	}
	return plan.Hello{Degraded: []string{"no control groups"}, Enforces: plan.Enforces{Spaces: s.mounts}, Tree: s.tree, TreeDepth: 1}, nil
}

func (s *fakeShepherd) Launch(ctx context.Context, runs []plan.RunSpec) ([]plan.LaunchResult, error) {
	var keys []plan.RunKey
	for i := range runs {
		keys = append(keys, runs[i].Key)
	}
	var hold chan struct{}
	var err error
	s.w.do(func() {
		s.batches = append(s.batches, keys)
		hold = s.hold
		if s.launch != nil {
			err = s.launch(runs)
		}
	})
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if err != nil {
		return nil, err
	}
	var out []plan.LaunchResult
	s.w.do(func() {
		for _, k := range keys {
			s.alive[k] = true
			out = append(out, plan.LaunchResult{Key: k, Status: plan.Accepted})
		}
	})
	return out, nil
}

func (s *fakeShepherd) List(ctx context.Context) ([]plan.Observed, error) {
	if err := s.stand(ctx); err != nil {
		return nil, err
	}
	var out []plan.Observed
	s.w.do(func() {
		s.lists++
		for k := range s.alive {
			out = append(out, plan.Observed{Key: k, State: plan.Running, Start: 1})
		}
	})
	return out, nil
}

func (s *fakeShepherd) Tell(context.Context, plan.RunKey, string) error { return nil }

func (s *fakeShepherd) Adopt(context.Context, plan.RunKey, int) error { return nil }

func (s *fakeShepherd) Spaces(context.Context) ([]plan.RunKey, error) {
	var out []plan.RunKey
	s.w.do(func() { out = slices.Clone(s.spaces) })
	return out, nil
}

func (s *fakeShepherd) Vacate(_ context.Context, k plan.RunKey) error {
	s.w.do(func() {
		s.spaces = slices.DeleteFunc(s.spaces, func(o plan.RunKey) bool { return o == k })
		s.vacated = append(s.vacated, k)
	})
	return nil
}

func (s *fakeShepherd) Signal(context.Context, plan.RunKey, int32, plan.Scope) error { return nil }

func (s *fakeShepherd) Terminate(_ context.Context, t plan.Terminate) (err error) {
	s.w.do(func() {
		s.ended = append(s.ended, t)
		if s.end != nil {
			err = s.end(t)
		}
	})
	return err
}

func (s *fakeShepherd) Usage(_ context.Context, keys ...plan.RunKey) (out []plan.Usage, err error) {
	s.w.do(func() {
		for _, k := range keys {
			if s.alive[k] {
				out = append(out, plan.Usage{Key: k, RSS: 3 << 20, PeakRSS: 5 << 20, VM: 7 << 20, PeakVM: 9 << 20, UserCPU: spec.Second, PIDs: []int32{11, 12}})
			}
		}
	})
	return out, nil
}

func (s *fakeShepherd) Grant(_ context.Context, g plan.Grant) error {
	s.w.do(func() { s.grants = append(s.grants, g) })
	return nil
}

func (s *fakeShepherd) Ack(_ context.Context, keys []plan.RunKey) error {
	s.w.do(func() { s.acked = append(s.acked, keys...) })
	return nil
}

// watch lets a test wait for what other goroutines do.
type watch struct {
	mu   sync.Mutex
	cond *sync.Cond
}

func newWatch() *watch {
	w := &watch{}
	w.cond = sync.NewCond(&w.mu)
	return w
}

func (w *watch) do(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	w.cond.Broadcast()
}

func (w *watch) until(cond func() bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for !cond() {
		w.cond.Wait()
	}
}

// fakeController hands out one stream for each connection it accepts.
type fakeController struct {
	w       *watch
	refuse  error
	dials   int
	streams []*fakeStream
}

type fakeStream struct {
	w    *watch
	ctx  context.Context
	said []*apiv1.AgentMessage
	in   chan *apiv1.ControllerMessage // closed: the stream ends
}

func (c *fakeController) Connect(ctx context.Context) (s Stream, err error) {
	c.w.do(func() {
		c.dials++
		if err = c.refuse; err == nil {
			f := &fakeStream{w: c.w, ctx: ctx, in: make(chan *apiv1.ControllerMessage, 100)}
			c.streams = append(c.streams, f)
			s = f
		}
	})
	return s, err
}

func (s *fakeStream) Send(m *apiv1.AgentMessage) error {
	if s.ctx.Err() != nil {
		return io.EOF
	}
	s.w.do(func() { s.said = append(s.said, m) })
	return nil
}

func (s *fakeStream) Recv() (*apiv1.ControllerMessage, error) {
	select {
	case m, ok := <-s.in:
		if !ok {
			return nil, io.EOF
		}
		return m, nil
	case <-s.ctx.Done():
		return nil, s.ctx.Err()
	}
}

func (s *fakeStream) welcome(cluster [16]byte, keys ...plan.RunKey) {
	w := &apiv1.Welcome{Cluster: "lab", ClusterUuid: cluster[:], Heartbeat: int64(10 * spec.Second)}
	for _, k := range keys {
		w.Desired = append(w.Desired, wireKey(k))
	}
	s.in <- &apiv1.ControllerMessage{Kind: &apiv1.ControllerMessage_Welcome{Welcome: w}}
}

func (s *fakeStream) orders(list ...*apiv1.Order) {
	s.in <- &apiv1.ControllerMessage{Kind: &apiv1.ControllerMessage_Orders{Orders: &apiv1.Orders{Orders: list}}}
}

func (s *fakeStream) ack(n uint64) {
	s.in <- &apiv1.ControllerMessage{Kind: &apiv1.ControllerMessage_Ack{Ack: &apiv1.ReportAck{UpTo: n}}}
}

func (s *fakeStream) count(is func(*apiv1.AgentMessage) bool) (n int) {
	for _, m := range s.said {
		if is(m) {
			n++
		}
	}
	return n
}

func (s *fakeStream) reports() (out []*apiv1.Report) {
	for _, m := range s.said {
		out = append(out, m.GetReports().GetReports()...)
	}
	return out
}

type fakeHost struct{}

func (fakeHost) Inventory(context.Context) (spec.Inventory, error) {
	return spec.Inventory{BootID: "boot", CPUs: 2, Degraded: "small"}, nil
}
func (fakeHost) Load(context.Context) (int64, int64, error) { return 1500, 700, nil }
func (fakeHost) BusyCPU() (int64, error)                    { return 0, nil }

type fakeSpool struct {
	w    *watch
	data []byte
	err  error
}

func (s *fakeSpool) Load() ([]byte, error) { return s.data, nil }
func (s *fakeSpool) Save(b []byte) error {
	if s.err != nil {
		return s.err
	}
	s.w.do(func() { s.data = b })
	return nil
}

// fakeTelemetry remembers the jobs and counts.
type fakeTelemetry struct {
	shepherd  bool
	w         *watch
	jobs      []JobOnNode
	published int
	connected []bool
	sent      int
	energy    EnergyFigures
}

func (f *fakeTelemetry) SetDevices([]device.Device)             {}
func (f *fakeTelemetry) SetSample(*device.Sample)               {}
func (f *fakeTelemetry) SetGPUAccounts([]attrib.Account)        {}
func (f *fakeTelemetry) SetUsage([]JobUsage)                    {}
func (f *fakeTelemetry) SetEnergy(e EnergyFigures)              { f.w.do(func() { f.energy = e }) }
func (f *fakeTelemetry) SetCounters(spec.CounterValues)         {}
func (f *fakeTelemetry) GPUEvent(device.EventKind)              {}
func (f *fakeTelemetry) SetShepherdUp(up bool)                  { f.w.do(func() { f.shepherd = up }) }
func (f *fakeTelemetry) SetReportsPending(int)                  {}
func (f *fakeTelemetry) SamplesStored(int)                      {}
func (f *fakeTelemetry) SamplesLost(int)                        {}
func (f *fakeTelemetry) SetSamplesPending(int)                  {}
func (f *fakeTelemetry) ReportFailed()                          {}
func (f *fakeTelemetry) Collected(Collection, spec.Span, error) {}
func (f *fakeTelemetry) ReportSent()                            { f.w.do(func() { f.sent++ }) }
func (f *fakeTelemetry) SetJobs(j []JobOnNode)                  { f.w.do(func() { f.jobs = j; f.published++ }) }
func (f *fakeTelemetry) SetControllerConnected(yes bool) {
	f.w.do(func() { f.connected = append(f.connected, yes) })
}

// stage is an agent among fakes.
type stage struct {
	*watch
	t       *testing.T
	clock   fakeClock
	shep    *fakeShepherd
	ctl     *fakeController
	spool   *fakeSpool
	tele    *fakeTelemetry
	bench   *bench // makes orders and their credentials
	agent   *Agent
	clocks  *fakeClocks
	gpus    GPUs
	meter   Meter
	network Network
	log     *lockedLog
	// configure changes the configuration before the start; may be nil.
	configure func(*Config)
	images    Images
	accounts  Accounts
	stop      func()
}

type lockedLog struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func newStage(t *testing.T) *stage {
	w := newWatch()
	s := &stage{watch: w, t: t, clock: fakeClock{clock.NewFake(spec.AtUnix(1_800_000_000)), &sync.Mutex{}, &[]spec.Span{}}, log: &lockedLog{}, bench: newBench(t),
		shep: &fakeShepherd{w: w, alive: map[plan.RunKey]bool{}}, ctl: &fakeController{w: w}, spool: &fakeSpool{w: w}, tele: &fakeTelemetry{w: w}}
	return s
}

func (s *stage) start() {
	deps := Deps{Shepherd: s.shep, Controller: s.ctl, Credentials: s.bench.creds, Host: fakeHost{}, Telemetry: s.tele,
		Spool: s.spool, Clock: s.clock, Jitter: func(int64) int64 { return 0 }, Logger: slog.New(slog.NewTextHandler(s.log, nil))}
	if s.clocks != nil {
		deps.Clocks = s.clocks
	}
	if s.gpus != nil {
		deps.GPUs = s.gpus
	}
	if s.network != nil {
		deps.Network = s.network
	}
	if s.meter != nil {
		deps.Meter = s.meter
	}
	if s.images != nil {
		deps.Images = s.images
	}
	if s.accounts != nil {
		deps.Accounts = s.accounts
	}
	cfg := testConfig()
	if s.configure != nil {
		s.configure(&cfg)
	}
	s.agent = New(cfg, deps)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.agent.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			s.t.Errorf("the agent: %v", err)
		}
	})
	s.t.Cleanup(s.stop)
}

// stream waits for the n-th stream and its registration.
func (s *stage) stream(n int) (st *fakeStream) {
	s.until(func() bool { return len(s.ctl.streams) >= n && len(s.ctl.streams[n-1].said) > 0 })
	s.do(func() { st = s.ctl.streams[n-1] })
	return st
}

// sync waits until the owner has done everything that came before.
func (s *stage) sync() {
	done := make(chan struct{})
	s.agent.inbox.putItems(func() { s.agent.inbox.putItems(func() { close(done) }) })
	<-done
}

// pass moves the clock once the agent waits for it, until the condition holds.
func (s *stage) pass(step spec.Span, cond func() bool) {
	s.t.Helper()
	for range 10_000 {
		s.mu.Lock()
		ok := cond()
		s.mu.Unlock()
		if ok {
			return
		}
		if err := s.clock.AwaitTimers(s.t.Context(), 1); err != nil {
			s.t.Fatal(err)
		}
		s.clock.Advance(step)
		s.sync()
		time.Sleep(50 * time.Microsecond) //muster:sleep the other goroutines have work of their own, which no clock waits for
	}
	s.t.Fatal("the clock ran out")
}

func (s *stage) exit(k plan.RunKey, code int32) {
	s.do(func() { delete(s.shep.alive, k) })
	s.agent.Heard([]plan.Event{{Exited: &plan.Exit{Key: k, Code: code, Started: true, Start: 1, End: 2}}})
}

func TestRegistrationAndHeartbeats(t *testing.T) {
	s := newStage(t)
	s.shep.alive[key(4)] = true
	s.start()
	st := s.stream(1)
	var reg *apiv1.Registration
	s.do(func() { reg = st.said[0].GetRegistration() })
	if reg.GetNode() != "n1" || reg.GetInventory().GetDegraded() != "small; no control groups" || len(reg.GetRunning()) != 1 || reg.GetRunning()[0].GetJobUid() != 4 {
		t.Errorf("%v", reg)
	}
	st.welcome(testCluster, key(4))
	s.until(func() bool { return slices.Equal(s.tele.connected, []bool{true}) })
	s.pass(spec.Second, func() bool {
		return st.count(func(m *apiv1.AgentMessage) bool {
			return m.GetHeartbeat().GetLoadMilli() == 1500 && m.GetHeartbeat().GetMemFree() == 700
		}) > 0
	})
}

// brokenGPUs are devices whose driver does not always answer.
type brokenGPUs struct {
	w    *watch
	list []device.Device
	err  error
}

func (g *brokenGPUs) Name() string { return "broken" }
func (g *brokenGPUs) Inventory(context.Context) (list []device.Device, err error) {
	g.w.do(func() { list, err = g.list, g.err })
	return list, err
}
func (g *brokenGPUs) Sample(context.Context, spec.Instant, *device.Sample) error {
	return errors.New("no answer")
}
func (g *brokenGPUs) Processes(context.Context, []device.Process) ([]device.Process, error) {
	return nil, nil
}
func (g *brokenGPUs) Events(context.Context, spec.Instant, []device.Event) ([]device.Event, error) {
	return nil, nil
}

// TestGPUsThatCannotBeListed: the node registers all the same, with the GPUs
// that it had, and says so; when they are listed again it registers anew.
func TestGPUsThatCannotBeListed(t *testing.T) {
	s := newStage(t)
	g := &brokenGPUs{w: s.watch, list: []device.Device{{UUID: "GPU-0"}}}
	s.gpus = g
	s.start()
	said := func(st *fakeStream) (gpus int, degraded string) {
		s.do(func() {
			i := st.said[0].GetRegistration().GetInventory()
			gpus, degraded = len(i.GetGpus()), i.GetDegraded()
		})
		return gpus, degraded
	}
	st := s.stream(1)
	if n, why := said(st); n != 1 || strings.Contains(why, "cannot be listed") {
		t.Fatalf("%d GPUs, %q", n, why)
	}
	s.do(func() { g.err = errors.New("the driver is gone") })
	st.welcome(testCluster)
	close(st.in) // the connection breaks
	s.pass(spec.Second, func() bool { return len(s.ctl.streams) > 1 && len(s.ctl.streams[1].said) > 0 })
	st = s.stream(2)
	if n, why := said(st); n != 1 || !strings.Contains(why, "this node's GPUs cannot be listed, the last list stands: the driver is gone") {
		t.Errorf("%d GPUs, %q", n, why)
	}
	s.do(func() { g.err = nil })
	st.welcome(testCluster)
	s.pass(spec.Second, func() bool { return len(s.ctl.streams) > 2 && len(s.ctl.streams[2].said) > 0 })
	if n, why := said(s.stream(3)); n != 1 || strings.Contains(why, "cannot be listed") {
		t.Errorf("%d GPUs, %q", n, why)
	}
}

// TestHeartbeatsInTime: one at the first tick of a connection, then one for
// each interval.
func TestHeartbeatsInTime(t *testing.T) {
	s := newStage(t)
	a := New(testConfig(), Deps{Shepherd: s.shep, Credentials: s.bench.creds, Host: fakeHost{}, Telemetry: s.tele, Spool: s.spool, Clock: s.clock})
	a.session, a.beat = &session{out: newQueue[*apiv1.AgentMessage]()}, 10*spec.Second
	a.listAt, a.saveAt = spec.FarFuture, spec.FarFuture
	var at []int
	for second := range 31 {
		a.doDue(t.Context())
		if len(a.session.out.take()) > 0 {
			at = append(at, second)
		}
		s.clock.Advance(spec.Second)
	}
	if !slices.Equal(at, []int{0, 10, 20, 30}) {
		t.Errorf("heartbeats at %v", at)
	}
}

// TestLaunchesGather: one message is one call, and what comes during a call
// is the next one.
func TestLaunchesGather(t *testing.T) {
	s := newStage(t)
	s.shep.hold = make(chan struct{})
	s.start()
	st := s.stream(1)
	st.welcome(testCluster)
	var first, second []*apiv1.Order
	for i := range uint64(40) {
		first = append(first, s.bench.order(key(i+1)))
		second = append(second, s.bench.order(key(i+101)))
	}
	st.orders(first...)
	s.until(func() bool { return len(s.shep.batches) == 1 })
	st.orders(second[:20]...)
	st.orders(second[20:]...)
	st.orders(terminateOrder(key(105), "")) // not asked for yet: never is
	s.until(func() bool { return len(st.reports()) >= 1 })
	close(s.shep.hold)
	s.until(func() bool { return len(s.shep.alive) == 79 })
	s.do(func() {
		if len(s.shep.batches) != 2 || len(s.shep.batches[0]) != 40 || len(s.shep.batches[1]) != 39 {
			t.Errorf("%d calls", len(s.shep.batches))
		}
		if r := st.reports()[0]; r.GetNodeDone().GetBatch().GetExitSignal() != 15 || r.GetRun().GetJobUid() != 105 {
			t.Errorf("%v", r)
		}
	})
}

func TestShepherdDown(t *testing.T) {
	s := newStage(t)
	failures := 3
	s.shep.launch = func([]plan.RunSpec) error {
		if failures--; failures >= 0 {
			return fmt.Errorf("restarting: %w", ErrDown)
		}
		return nil
	}
	downs := 2
	s.shep.end = func(plan.Terminate) error {
		if downs--; downs >= 0 {
			return ErrDown
		}
		return nil
	}
	s.start()
	st := s.stream(1)
	st.welcome(testCluster)
	st.orders(s.bench.order(key(1)))
	s.pass(50*spec.Millisecond, func() bool { return s.shep.alive[key(1)] })
	s.do(func() {
		if len(s.shep.batches) != 4 {
			t.Errorf("%d calls", len(s.shep.batches))
		}
	})
	st.orders(terminateOrder(key(1), ""))
	s.pass(50*spec.Millisecond, func() bool { return len(s.shep.ended) >= 3 })
}

// TestStoppedShepherd: a shepherd whose process is there and which does nothing
// is seen within MessageTimeout, and so is its coming back.
func TestStoppedShepherd(t *testing.T) {
	s := newStage(t)
	s.start()
	st := s.stream(1)
	st.welcome(testCluster)
	lastSaid := func() (unready string, beats int) {
		for _, m := range st.said {
			if beat := m.GetHeartbeat(); beat != nil {
				unready = beat.GetUnready()
				beats++
			}
		}
		return unready, beats
	}
	s.pass(spec.Second, func() bool { _, beats := lastSaid(); return beats > 0 })
	s.do(func() { s.shep.stopped = make(chan struct{}) })
	stoppedAt := s.clock.Now()
	s.pass(spec.Second, func() bool { unready, _ := lastSaid(); return unready != "" })
	if took := s.clock.Now().Sub(stoppedAt); took > defaultMessageTimeout+3*tickEvery {
		t.Errorf("the controller learned after %v that the shepherd does not answer", took)
	}
	if s.agent.Health().Shepherd {
		t.Error("the agent says that the shepherd answers")
	}
	s.do(func() {
		if s.tele.shepherd {
			t.Error("the metric says that the shepherd answers")
		}
		close(s.shep.stopped)
		s.shep.stopped = nil
	})
	s.pass(spec.Second, func() bool { unready, _ := lastSaid(); return unready == "" })
	if !s.agent.Health().Shepherd {
		t.Error("the agent does not see that the shepherd answers again")
	}
}

// TestOneBadRun: a run that cannot even be asked for harms no other.
func TestOneBadRun(t *testing.T) {
	s := newStage(t)
	s.shep.launch = func(runs []plan.RunSpec) error {
		for i := range runs {
			if runs[i].Key == key(2) {
				return errors.New("the message is too large")
			}
		}
		return nil
	}
	s.start()
	st := s.stream(1)
	st.welcome(testCluster)
	st.orders(s.bench.order(key(1)), s.bench.order(key(2)), s.bench.order(key(3)))
	s.until(func() bool { return len(s.shep.alive) == 2 && len(st.reports()) == 2 })
	s.do(func() {
		if f := st.reports()[0].GetLaunchFailed(); st.reports()[0].GetRun().GetJobUid() != 2 || !strings.Contains(f.GetText(), "too large") || f.GetDrainNode() {
			t.Errorf("%v", st.reports())
		}
	})
}

// TestUnknownRunIsLookedFor: a shepherd that does not know a run makes the
// agent compare lists, and the run is lost.
func TestUnknownRunIsLookedFor(t *testing.T) {
	s := newStage(t)
	s.shep.end = func(plan.Terminate) error { return ErrNoRun }
	s.start()
	st := s.stream(1)
	st.welcome(testCluster)
	st.orders(s.bench.order(key(1)))
	s.until(func() bool { return s.shep.alive[key(1)] })
	s.sync()
	s.do(func() { delete(s.shep.alive, key(1)) })
	st.orders(terminateOrder(key(1), ""))
	s.pass(spec.Second, func() bool { return len(st.reports()) >= 1 })
	s.do(func() {
		if r := st.reports()[0]; !r.GetNodeDone().GetBatch().GetUnknown() {
			t.Errorf("%v", r)
		}
	})
}

func TestReportsSurviveConnections(t *testing.T) {
	s := newStage(t)
	s.start()
	st := s.stream(1)
	st.welcome(testCluster)
	st.orders(s.bench.order(key(1)), s.bench.order(key(2)))
	s.until(func() bool { return len(s.shep.alive) == 2 })
	s.exit(key(1), 3)
	s.until(func() bool { return len(st.reports()) >= 1 })
	close(st.in) // the controller goes away without a word
	s.exit(key(2), 4)
	s.pass(100*spec.Millisecond, func() bool { return len(s.ctl.streams) == 2 && len(s.ctl.streams[1].said) == 1 })
	st = s.stream(2)
	st.welcome(testCluster, key(1), key(2))
	s.until(func() bool { return len(st.reports()) == 2 })
	s.do(func() {
		for i, r := range st.reports() {
			if r.GetNumber() != uint64(i+1) || r.GetNodeDone().GetBatch().GetExitCode() != int32(i+3) {
				t.Errorf("report %d: %v", i, r)
			}
		}
		if len(s.shep.acked) != 0 {
			t.Error("the shepherd forgets before the controller knows")
		}
	})
	st.ack(2)
	s.until(func() bool { return len(s.shep.acked) == 2 && s.tele.sent == 2 })
}

// TestWaitsBetweenConnections: doubled to the longest, begun anew after a
// welcome, and long at once where hurry is useless.
func TestWaitsBetweenConnections(t *testing.T) {
	s := newStage(t)
	s.ctl.refuse = errors.New("connection refused")
	s.start()
	s.pass(50*spec.Millisecond, func() bool { return s.ctl.dials == 10 })
	var want []spec.Span
	for w := firstWait; len(want) < 9; w = min(2*w, longestWait) {
		want = append(want, w)
	}
	if got := s.between(0); len(got) < len(want) || !slices.Equal(got[:len(want)], want) {
		t.Errorf("waits %v, want %v", got, want)
	}
	if n := strings.Count(s.log.String(), "no connection to the controller"); n > 1+int(s.clock.Monotonic()/remindAfter) {
		t.Errorf("the same trouble is logged %d times", n)
	}
	s.do(func() { s.ctl.refuse = nil })
	s.pass(100*spec.Millisecond, func() bool { return len(s.ctl.streams) == 1 && len(s.ctl.streams[0].said) > 0 })
	st := s.stream(1)
	st.welcome(testCluster)
	s.until(func() bool { return slices.Contains(s.tele.connected, true) })
	for range 2 { // it holds for a while
		s.clock.Advance(spec.Second)
		s.sync()
	}
	from := len(s.clock.waits())
	st.in <- &apiv1.ControllerMessage{Kind: &apiv1.ControllerMessage_Goodbye{Goodbye: &apiv1.Goodbye{Reason: "shutting down"}}}
	s.pass(10*spec.Millisecond, func() bool { return len(s.ctl.streams) == 2 && len(s.ctl.streams[1].said) > 0 })
	if got := s.between(from); !slices.Equal(got, []spec.Span{firstWait}) {
		t.Errorf("after a goodbye: %v", got)
	}
	from = len(s.clock.waits())
	s.stream(2).welcome([16]byte{7})
	s.until(func() bool { return slices.Equal(s.tele.connected, []bool{true, false, true, false}) })
	s.pass(100*spec.Millisecond, func() bool { return len(s.ctl.streams) == 3 && len(s.ctl.streams[2].said) > 0 })
	if got := s.between(from); !slices.Equal(got, []spec.Span{longestWait}) {
		t.Errorf("the wrong cluster is asked again: %v", got)
	}
	for _, text := range []string{"shutting down", "another cluster"} {
		if !strings.Contains(s.log.String(), text) {
			t.Errorf("%q is not logged", text)
		}
	}
}

// between gives the waits between connections that were asked for since.
func (s *stage) between(from int) []spec.Span {
	return slices.DeleteFunc(s.clock.waits()[from:], func(d spec.Span) bool {
		return d == tickEvery || d == testConfig().Interval || d == welcomeWait || d == publishAfter
	})
}

func TestNoWelcome(t *testing.T) {
	s := newStage(t)
	s.start()
	s.stream(1)
	s.pass(spec.Second, func() bool { return len(s.ctl.streams) == 2 && len(s.ctl.streams[1].said) > 0 })
	if !strings.Contains(s.log.String(), "did not answer the registration") {
		t.Error(s.log.String())
	}
	s.stream(2).in <- &apiv1.ControllerMessage{Kind: &apiv1.ControllerMessage_Ack{Ack: &apiv1.ReportAck{}}}
	s.pass(spec.Second, func() bool { return len(s.ctl.streams) == 3 })
	if !strings.Contains(s.log.String(), "instead of a welcome") {
		t.Error(s.log.String())
	}
}

func TestSpoolKeepsTheJobs(t *testing.T) {
	s := newStage(t)
	s.start()
	st := s.stream(1)
	st.welcome(testCluster)
	st.orders(s.bench.order(key(1)))
	s.until(func() bool { return s.shep.alive[key(1)] })
	s.agent.Heard([]plan.Event{{Started: &plan.Observed{Key: key(1), State: plan.Running, Start: s.clock.Now()}}})
	s.pass(50*spec.Millisecond, func() bool { return len(s.tele.jobs) == 1 })
	s.stop()
	s.until(func() bool { return strings.Contains(string(s.spool.data), `"user":"alice"`) })

	again := newStage(t)
	again.spool.data, again.spool.err = s.spool.data, errors.New("disk full")
	again.shep.alive[key(1)] = true
	again.ctl.refuse = errors.New("away")
	again.start()
	again.pass(50*spec.Millisecond, func() bool { return len(again.tele.jobs) == 1 })
	again.do(func() {
		if j := again.tele.jobs[0]; j.User != "alice" || j.ID != 1001 {
			t.Errorf("without a controller the job is %+v", j)
		}
	})
	again.pass(spec.Second, func() bool { return strings.Contains(again.log.String(), "disk full") })
}
