package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/credentials"
	"github.com/musterhpc/muster/scheduler/predict"
	"github.com/musterhpc/muster/spec"
)

// directLog applies each batch at once: a log whose disk is the machine.
type directLog struct {
	mu  sync.Mutex
	m   *Machine
	pos uint64
	err error // set: appends fail until Resume
	low bool
	// stuck: Resume fails too
	stuck bool
}

type settled struct{ err error }

func (s settled) Wait(context.Context) error { return s.err }

func (l *directLog) Append(batch []byte) Pending {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return settled{l.err}
	}
	l.pos++
	return settled{l.m.Apply(l.pos, batch)}
}

func (l *directLog) Resume(context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stuck {
		return l.err
	}
	l.err = nil
	return nil
}
func (l *directLog) Low() (bool, error)   { l.mu.Lock(); defer l.mu.Unlock(); return l.low, nil }
func (l *directLog) LastPosition() uint64 { l.mu.Lock(); defer l.mu.Unlock(); return l.pos }
func (l *directLog) fail(err error)       { l.mu.Lock(); defer l.mu.Unlock(); l.err = err }

type memBlobs struct {
	mu sync.Mutex
	m  map[spec.Hash][]byte
}

func (b *memBlobs) Has(h spec.Hash) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, ok := b.m[h]
	return ok
}
func (b *memBlobs) Get(h spec.Hash) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if d, ok := b.m[h]; ok {
		return d, nil
	}
	return nil, errors.New("no such content")
}
func (b *memBlobs) Put(d []byte) (spec.Hash, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	h := spec.Hash(contentHash(d))
	b.m[h] = append([]byte(nil), d...)
	return h, nil
}

type realClock struct{}

// clockBegan is where realClock counts from.
var clockBegan = time.Now()

func (realClock) Monotonic() spec.Span { return spec.Span(time.Since(clockBegan)) }

func (realClock) Now() spec.Instant { return spec.Instant(time.Now().UnixNano()) }
func (realClock) After(d spec.Span) (<-chan struct{}, func()) {
	ch := make(chan struct{})
	t := time.AfterFunc(time.Duration(d), func() { close(ch) })
	return ch, func() { t.Stop() }
}

type noArchive struct{}

func (noArchive) Append(uint64, uint64, uint64, []byte) error { return nil }

type noAccess struct{ Access }

func (noAccess) Sign(credentials.Claims) ([]byte, error) { return []byte("c"), nil }
func (noAccess) Keys() [][]byte                          { return nil }

type noGroups struct{}

func (noGroups) User(_ context.Context, name string) (uid, gid uint32, ok bool) {
	return 1000, 1000, name == "alice"
}

func (noGroups) Groups(_ context.Context, _ string, gid uint32) (string, []uint32) {
	return "users", []uint32{gid}
}

func testConfig() *spec.Config {
	c := &spec.Config{ClusterName: "test", GresTypes: []string{"gpu"}}
	c.Sched = spec.SchedConfig{Backfill: true, Memory: true}
	c.Limits.JobRequeue = true
	c.Limits.DefMemPerCPU = 100
	for _, name := range []string{"n1", "n2"} {
		c.Nodes = append(c.Nodes, spec.NodeSpec{Name: name, CPUs: 8, Mem: 16000, GRES: []spec.GRESSpec{{Name: "gpu", N: 8}}})
	}
	c.Partitions = []spec.PartitionSpec{{Name: "gpu", Nodes: "n[1-2]", NodeNames: []string{"n1", "n2"}, Default: true, DefaultTime: spec.Hour}}
	return c
}

type world struct {
	t   testing.TB
	c   *Controller
	log *directLog
	svc *ClusterService

	deps Deps
	m    *Machine
	stop func() // the controller
}

// start runs a controller for the length of a test, its invariants checked
// after every batch.
func start(t testing.TB) *world { return startWith(t, 1) }

func startWith(t testing.TB, checkEvery int) *world { return startAt(t, checkEvery, realClock{}) }

func startAt(t testing.TB, checkEvery int, clock Clock) *world {
	return startDeps(t, testConfig(), func(d *Deps) { d.Clock, d.Settings.CheckEvery = clock, checkEvery })
}

func startDeps(t testing.TB, conf *spec.Config, change func(*Deps)) *world {
	codec, err := event.NewCodec()
	if err != nil {
		t.Fatal(err)
	}
	blobs := &memBlobs{m: map[spec.Hash][]byte{}}
	m := NewMachine(codec, noArchive{}, blobs)
	w := &world{t: t, log: &directLog{m: m}}
	deps := Deps{Log: w.log, Archive: noArchive{}, Blobs: blobs, Clock: realClock{}, Directory: noGroups{}, Access: noAccess{}, Codec: codec,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Settings: Settings{Host: "here", Version: "test", CheckEvery: 1},
		Identify: func(context.Context) Caller { return Caller{UID: 1000, GID: 1000, User: "alice"} }}
	change(&deps)
	w.deps, w.m = deps, m
	w.run(conf)
	return w
}

// run starts a controller, the first or another after stop.
func (w *world) run(conf *spec.Config) {
	t := w.t
	w.c = New(w.deps, w.m)
	w.svc = NewClusterService(w.c)
	ctx, cancel := context.WithCancel(context.Background())
	done, ready := make(chan error, 1), make(chan struct{})
	go func() { done <- w.c.Run(ctx, Create{Config: conf, UUID: [16]byte{1}}, ready) }()
	select {
	case <-ready:
	case err := <-done:
		t.Fatalf("the controller did not start: %v", err)
	}
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the controller ended with: %v", err)
		}
		if n := w.c.figures.invariantFailures.Load(); n != 0 {
			t.Errorf("%d invariant failures", n)
		}
	})
	t.Cleanup(w.stop)
}

func (w *world) register(nodes ...string) {
	w.t.Helper()
	for _, name := range nodes {
		w.must(scheduler.RegisterNode{Node: name, Inventory: w.inventory(name)})
	}
}

func (w *world) inventory(node string) spec.Inventory {
	inv := spec.Inventory{BootID: "b1", CPUs: 8, Mem: 16000}
	for i := range uint32(8) {
		inv.GPUs = append(inv.GPUs, spec.GPU{Index: i, UUID: node + "-gpu-" + string(rune('0'+i))})
	}
	return inv
}

func (w *world) must(cmd scheduler.Command) scheduler.Result {
	w.t.Helper()
	if r, ok := cmd.(scheduler.Report); ok { // of the attempt that is current
		r.Epoch = w.c.epochOf(r.Run.UID)
		cmd = r
	}
	rep := w.c.writer.commitCommand(w.t.Context(), &request{cmd: cmd, actor: event.Actor{Kind: event.ActorSystem}})
	if rep.err != nil {
		w.t.Fatalf("%T: %v", cmd, rep.err)
	}
	return rep.res
}

func (w *world) submit(js *apiv1.JobSpec) uint32 {
	w.t.Helper()
	rep, err := w.svc.Submit(w.t.Context(), &apiv1.SubmitRequest{Spec: js, Script: &apiv1.Blob{Data: []byte("#!/bin/sh\n")}})
	if err != nil {
		w.t.Fatal(err)
	}
	return rep.GetJobId()
}

// until waits for a view in which a condition holds.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	for {
		_, changed := w.c.Changed()
		if ok() {
			return
		}
		select {
		case <-changed:
		case <-w.t.Context().Done():
			w.t.Fatalf("never: %s", what)
		case <-time.After(20 * time.Second):
			w.t.Fatalf("still not: %s", what)
		}
	}
}

func (w *world) count(state spec.JobState) int64 {
	var n int64
	v := w.c.View().State
	for uid := spec.JobUID(1); uid < v.NextUID; uid++ {
		if j := v.Job(uid); j != nil && j.State == state {
			n += j.Count()
		}
	}
	return n
}

func TestJobFromSubmissionToEnd(t *testing.T) {
	w := start(t)
	w.register("n1", "n2")
	id := w.submit(&apiv1.JobSpec{Name: "one", PerNode: []*apiv1.Count{{Name: "gpu", N: 1}}})
	w.until("running", func() bool { return w.c.View().State.JobByID(spec.JobID(id)).State == spec.Running })
	j := w.c.View().State.JobByID(spec.JobID(id))
	if len(j.Alloc.Nodes) != 1 || j.Alloc.GPUCount() != 1 || j.Alloc.Nodes[0].GPUs[0].UUID == "" {
		t.Fatalf("allocation %+v", j.Alloc)
	}
	w.must(scheduler.Report{Node: j.Alloc.Nodes[0].Name, Run: scheduler.Run{UID: j.UID, Attempt: 1},
		Done: &scheduler.NodeDone{Batch: &event.StepResult{Exit: spec.ExitStatus{Code: 3}}}})
	w.until("failed", func() bool { return w.c.View().State.JobByID(spec.JobID(id)).State == spec.Failed })
	if n := w.c.View().State.Node(j.Alloc.Nodes[0].Name); n.FreeCPUs() != 8 || !n.UsedGPU.Empty() {
		t.Errorf("the node was not given back: %+v", n)
	}
}

func TestArrayFillsTheGPUsAndTheRestWaitsForResources(t *testing.T) {
	w := start(t)
	w.register("n1", "n2")
	id := w.submit(&apiv1.JobSpec{Name: "sweep", PerNode: []*apiv1.Count{{Name: "gpu", N: 1}}, Array: []*apiv1.TaskRange{{First: 1, Last: 20, Step: 1}}})
	w.until("16 running", func() bool { return w.count(spec.Running) == 16 })
	w.until("the reason is Resources", func() bool {
		j := w.c.View().State.JobByID(spec.JobID(id))
		return j.IsArrayRecord() && j.Tasks.String() == "17-20" && j.Reason.Code == spec.ReasonResources
	})
	why, err := w.svc.Why(t.Context(), &apiv1.WhyRequest{Job: "1_18"})
	if err != nil {
		t.Fatal(err)
	}
	if len(why.GetNodes()) != 1 || why.GetNodes()[0].GetCount() != 2 || why.GetPlannedStart() == 0 {
		t.Errorf("why says %v", why)
	}
}

// TestWhyPredictsWithoutALimit: a job that requests no limit has its partition's, within
// which its length is predicted, and by which similar runs are found.
func TestWhyPredictsWithoutALimit(t *testing.T) {
	w := start(t)
	w.register("n1", "n2")
	for range 2 {
		id := w.submit(&apiv1.JobSpec{Name: "short"})
		job := func() *state.Job { return w.c.View().State.JobByID(spec.JobID(id)) }
		w.until("running", func() bool { return job().State == spec.Running })
		w.must(scheduler.Report{Node: job().Alloc.Nodes[0].Name, Run: scheduler.Run{UID: job().UID, Attempt: 1},
			Done: &scheduler.NodeDone{Batch: &event.StepResult{}}})
		w.until("completed", func() bool { return job().State == spec.Completed })
	}
	held := w.submit(&apiv1.JobSpec{Name: "short", Hold: true})
	why, err := w.svc.Why(t.Context(), &apiv1.WhyRequest{Job: fmt.Sprint(held)})
	if err != nil {
		t.Fatal(err)
	}
	got := why.GetPrediction()
	if got.GetLength() != int64(spec.Second) || got.GetSimilar() != predict.SameName.String() {
		t.Errorf("predicted %v, want a second from %s", got, predict.SameName)
	}
}

// TestDefaultMemoryIsShown: a job that requests no memory shows its default by CPU, and
// its request still names none, since salloc hands the request on to its steps.
func TestDefaultMemoryIsShown(t *testing.T) {
	w := start(t)
	for name, tt := range map[string]struct {
		request *apiv1.JobSpec
		want    int64
	}{
		"none":    {&apiv1.JobSpec{Name: "one", Tasks: 2, Hold: true}, 100},
		"by CPU":  {&apiv1.JobSpec{Name: "one", MemPerCpu: 70, Hold: true}, 0},
		"by node": {&apiv1.JobSpec{Name: "one", MemPerNode: 70, Hold: true}, 0},
		"all":     {&apiv1.JobSpec{Name: "one", AllMem: true, Hold: true}, 0},
	} {
		asked := tt.request.GetMemPerCpu()
		id := spec.JobID(w.submit(tt.request))
		w.until("known", func() bool { return w.c.View().State.JobByID(id) != nil })
		job := w.c.View().State.JobByID(id)
		shown := wire.NewShower(w.c.View(), 0, false).Job(job)
		if got := shown.GetDefaultMemPerCpu(); got != tt.want {
			t.Errorf("%s: a default of %d MiB per CPU is shown, want %d", name, got, tt.want)
		}
		if got := shown.GetSpec().GetMemPerCpu(); got != asked {
			t.Errorf("%s: the request is shown with %d MiB per CPU, want %d", name, got, asked)
		}
	}
}

// TestReleaseLeavesOutEndedTasks: a change of a whole array is about the tasks that are not
// over; one that is named alone is refused.
func TestReleaseLeavesOutEndedTasks(t *testing.T) {
	w := start(t)
	w.register("n1", "n2")
	id := w.submit(&apiv1.JobSpec{Name: "list", Hold: true, Array: []*apiv1.TaskRange{{First: 0, Last: 3, Step: 1}}})
	whole := fmt.Sprint(id)
	if _, err := w.svc.Cancel(t.Context(), &apiv1.CancelRequest{Filter: &apiv1.JobFilter{Jobs: []string{whole + "_[0,2]"}}}); err != nil {
		t.Fatal(err)
	}
	release := func(jobs string) (refused []string) {
		rep, err := w.svc.ControlJobs(t.Context(), &apiv1.ControlJobsRequest{Verb: apiv1.ControlJobsRequest_RELEASE, Jobs: []string{jobs}})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rep.GetResults() {
			if r.GetError() != nil {
				refused = append(refused, r.GetError().GetText())
			}
		}
		return refused
	}
	if refused := release(whole); len(refused) > 0 {
		t.Errorf("the array is refused: %v", refused)
	}
	w.until("two tasks run", func() bool { return w.count(spec.Running) == 2 })
	if refused := release(whole + "_2"); len(refused) != 1 {
		t.Errorf("a task that is over is released: %v", refused)
	}
}

func TestTooManyGPUsAreRefusedWithSlurmsText(t *testing.T) {
	w := start(t)
	w.register("n1", "n2")
	_, err := w.svc.Submit(t.Context(), &apiv1.SubmitRequest{Spec: &apiv1.JobSpec{MinNodes: 1, MaxNodes: 1, PerNode: []*apiv1.Count{{Name: "gpu", N: 16}}},
		Script: &apiv1.Blob{Data: []byte("#!/bin/sh\n")}})
	if spec.CodeOf(err) != spec.CodeNodeConfigUnavailable || err.Error() != "Requested node configuration is not available" {
		t.Fatalf("refused with %v", err)
	}
}

func TestFailedAppendRefusesAndRecovers(t *testing.T) {
	w := start(t)
	w.register("n1", "n2")
	w.log.fail(ErrDiskFull)
	_, err := w.svc.Submit(t.Context(), &apiv1.SubmitRequest{Spec: &apiv1.JobSpec{Name: "lost"}, Script: &apiv1.Blob{Data: []byte("#!/bin/sh\n")}})
	if spec.CodeOf(err) != spec.CodeDiskReserve {
		t.Fatalf("submission on a full disk: %v", err)
	}
	id := w.submit(&apiv1.JobSpec{Name: "kept"})
	if j := w.c.View().State.JobByID(spec.JobID(id)); j == nil || j.Spec.Name != "kept" || id != 1 {
		t.Fatalf("after recovery job %d is %+v", id, j)
	}
}

func TestLowDiskRefusesSubmissionsOnly(t *testing.T) {
	w := start(t)
	w.register("n1", "n2")
	id := w.submit(&apiv1.JobSpec{Hold: true})
	w.c.writer.low.Store(true)
	w.log.low = true
	_, err := w.svc.Submit(t.Context(), &apiv1.SubmitRequest{Spec: &apiv1.JobSpec{}, Script: &apiv1.Blob{Data: []byte("#!/bin/sh\n")}})
	if spec.CodeOf(err) != spec.CodeDiskReserve {
		t.Fatalf("submission below the reserve: %v", err)
	}
	res, err := w.svc.Cancel(t.Context(), &apiv1.CancelRequest{Filter: &apiv1.JobFilter{Jobs: []string{"1"}}})
	if err != nil || len(res.GetResults()) != 1 || res.GetResults()[0].GetError() != nil {
		t.Fatalf("cancel of job %d: %v %v", id, res, err)
	}
}
