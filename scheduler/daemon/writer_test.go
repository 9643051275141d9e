package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"testing"

	"google.golang.org/grpc"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// slowLog holds appends back until they are let through: a disk that takes its
// time, and takes the batches in their order.
type slowLog struct {
	directLog
	gate    chan struct{} // closed: through
	held    chan struct{} // a token for each append that waits
	waiting []*gated      // in the order of their appends
	order   sync.Mutex    // of letting through
}

// gated is an append that waits for the gate.
type gated struct {
	l       *slowLog
	gate    chan struct{}
	batch   []byte
	through Pending // once the gate was open
}

func (l *slowLog) door() chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.gate
}

func (l *slowLog) shut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gate = make(chan struct{})
}

func (l *slowLog) Append(batch []byte) Pending {
	gate := l.door()
	select {
	case <-gate:
		l.letThrough()
		return l.directLog.Append(batch)
	default:
	}
	waits := &gated{l: l, gate: gate, batch: batch}
	l.mu.Lock()
	l.waiting = append(l.waiting, waits)
	l.mu.Unlock()
	l.held <- struct{}{}
	return waits
}

// letThrough appends what waited.
func (l *slowLog) letThrough() {
	l.order.Lock()
	defer l.order.Unlock()
	l.mu.Lock()
	waiting := l.waiting
	l.waiting = nil
	l.mu.Unlock()
	for _, waits := range waiting {
		waits.through = l.directLog.Append(waits.batch)
	}
}

func (g *gated) Wait(ctx context.Context) error {
	select {
	case <-g.gate:
		g.l.letThrough()
		return g.through.Wait(ctx)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// life is a controller that a test ends itself.
type life struct {
	*world
	end  context.CancelFunc
	done chan error
}

// live runs a controller over a log.
func live(t *testing.T, l Log, m *Machine, blobs Blobs) *life {
	t.Helper()
	codec, err := event.NewCodec()
	if err != nil {
		t.Fatal(err)
	}
	deps := Deps{Log: l, Archive: noArchive{}, Blobs: blobs, Clock: realClock{}, Directory: noGroups{}, Access: noAccess{}, Codec: codec,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Settings: Settings{CheckEvery: 1},
		Identify: func(context.Context) Caller { return Caller{UID: 1000, GID: 1000, User: "alice"} }}
	w := &world{t: t, c: New(deps, m)}
	w.svc = NewClusterService(w.c)
	ctx, cancel := context.WithCancel(context.Background())
	out := &life{world: w, end: cancel, done: make(chan error, 1)}
	ready := make(chan struct{})
	go func() { out.done <- w.c.Run(ctx, Create{Config: testConfig(), UUID: [16]byte{1}}, ready) }()
	select {
	case <-ready:
	case err := <-out.done:
		t.Fatalf("the controller did not start: %v", err)
	}
	t.Cleanup(cancel)
	return out
}

func newMachine(t *testing.T) (*Machine, *memBlobs) {
	codec, err := event.NewCodec()
	if err != nil {
		t.Fatal(err)
	}
	blobs := &memBlobs{m: map[spec.Hash][]byte{}}
	return NewMachine(codec, noArchive{}, blobs), blobs
}

// At a shutdown a submission that is on its way to the disk is waited for and
// acknowledged, one that comes later is refused, and nobody waits for ever.
func TestShutdownAnswersEveryCommandOnce(t *testing.T) {
	m, blobs := newMachine(t)
	l := &slowLog{directLog: directLog{m: m}, gate: make(chan struct{}), held: make(chan struct{}, 1000)}
	close(l.gate)
	w := live(t, l, m, blobs)
	w.register("n1", "n2")
	l.shut()

	const callers = 200
	answers := make(chan error, callers)
	ids := sync.Map{}
	for i := range callers {
		go func() {
			rep, err := w.svc.Submit(context.Background(), &apiv1.SubmitRequest{Spec: &apiv1.JobSpec{Name: fmt.Sprint(i), Hold: true}, Script: &apiv1.Blob{Data: []byte("#!/bin/sh\n")}})
			if err == nil {
				ids.Store(rep.GetJobId(), true)
			}
			answers <- err
		}()
	}
	<-l.held // a batch is at the disk
	w.end()
	<-w.c.stopping
	close(l.door())
	acked := 0
	for range callers {
		switch err := <-answers; {
		case err == nil:
			acked++
		case spec.CodeOf(err) != spec.CodeStopping:
			t.Errorf("answered with %v", err)
		}
	}
	if err := <-w.done; err != nil {
		t.Errorf("ended with %v", err)
	}
	jobs := 0
	st := m.Applied()
	for uid := spec.JobUID(1); uid < st.NextUID; uid++ {
		if j := st.Job(uid); j != nil {
			jobs++
			if _, ok := ids.Load(uint32(j.ID)); !ok {
				t.Errorf("job %d is in the ledger and its caller was refused", j.ID)
			}
		}
	}
	if jobs != acked || acked == 0 {
		t.Errorf("%d acknowledged, %d in the ledger", acked, jobs)
	}
	if rep := w.c.writer.commitCommand(context.Background(), &request{cmd: scheduler.Tick{}}); spec.CodeOf(rep.err) != spec.CodeStopping {
		t.Errorf("after the end: %+v", rep)
	}
}

// What was decided behind a batch that failed was decided on a state that
// never came to be, also when it changed nothing itself: a report taken for
// stale there must not be acknowledged.
func TestNothingIsAnsweredFromAStateThatFailed(t *testing.T) {
	w := start(t)
	r := &request{cmd: scheduler.Tick{}, reply: make(chan reply, 1)}
	w.c.writer.broken.Store(true)
	w.c.writer.failure = ErrDiskFull
	w.c.writer.landFlight(t.Context(), &flight{requests: []*request{r}, results: []reply{{res: scheduler.Result{Stale: 1}}}})
	if rep := <-r.reply; spec.CodeOf(rep.err) != spec.CodeDiskReserve {
		t.Errorf("answered with %+v", rep)
	}
	w.must(scheduler.Tick{}) // it recovers
}

// While the log cannot be written every command is refused at once; when it
// can, the next one is taken.
func TestCommandsAreRefusedWhileTheDiskIsFull(t *testing.T) {
	w := start(t)
	w.register("n1")
	w.log.mu.Lock()
	w.log.err, w.log.stuck = ErrDiskFull, true
	w.log.mu.Unlock()
	for range 3 {
		_, err := w.svc.Submit(t.Context(), &apiv1.SubmitRequest{Spec: &apiv1.JobSpec{Name: "x", Hold: true}, Script: &apiv1.Blob{Data: []byte("#!/bin/sh\n")}})
		if spec.CodeOf(err) != spec.CodeDiskReserve {
			t.Fatalf("submission on a full disk: %v", err)
		}
	}
	w.log.mu.Lock()
	w.log.stuck = false
	w.log.mu.Unlock()
	for {
		_, err := w.svc.Submit(t.Context(), &apiv1.SubmitRequest{Spec: &apiv1.JobSpec{Name: "y", Hold: true}, Script: &apiv1.Blob{Data: []byte("#!/bin/sh\n")}})
		if err == nil {
			break
		}
		if spec.CodeOf(err) != spec.CodeDiskReserve {
			t.Fatal(err)
		}
	}
	if n := w.count(spec.Pending); n != 1 {
		t.Errorf("%d jobs are there", n)
	}
}

// A log that has stopped for good ends the controller with an error, so that
// a supervisor starts it again.
func TestControllerEndsWithItsLog(t *testing.T) {
	m, blobs := newMachine(t)
	l := &directLog{m: m}
	w := live(t, l, m, blobs)
	l.mu.Lock()
	l.err, l.stuck = fmt.Errorf("%w: torn", ErrLogStopped), true
	l.mu.Unlock()
	_, err := w.svc.Submit(t.Context(), &apiv1.SubmitRequest{Spec: &apiv1.JobSpec{Name: "x"}, Script: &apiv1.Blob{Data: []byte("#!/bin/sh\n")}})
	if spec.CodeOf(err) != spec.CodeStopping {
		t.Errorf("refused with %v", err)
	}
	if err := <-w.done; !errors.Is(err, ErrLogStopped) {
		t.Errorf("ended with %v", err)
	}
}

// A command that breaks a rule of the ledger is refused alone: the others of
// its batch are decided, and the cluster goes on.
func TestPoisonIsRefusedAlone(t *testing.T) {
	w := start(t)
	bad := scheduler.Policy{Events: []event.Event{&event.NodeLost{Node: "nowhere"}}}
	reqs := []*request{{cmd: scheduler.Submit{Spec: &spec.JobSpec{User: "u", UID: 1, Queue: spec.QueueAsk{Hold: spec.HeldByUser}}}}, {cmd: bad},
		{cmd: scheduler.Submit{Spec: nil}}, {cmd: scheduler.Submit{Spec: &spec.JobSpec{User: "u", UID: 1, Queue: spec.QueueAsk{Hold: spec.HeldByUser}}}}}
	for _, r := range reqs {
		if err := w.c.writer.enqueueCommand(t.Context(), r); err != nil {
			t.Fatal(err)
		}
	}
	for i, want := range []bool{true, false, false, true} {
		if rep := w.c.writer.awaitReply(t.Context(), reqs[i]); (rep.err == nil) != want || (!want && spec.CodeOf(rep.err) != 0) {
			t.Errorf("command %d: %v", i, rep.err)
		}
	}
	if n := w.count(spec.Pending); n != 2 {
		t.Errorf("%d jobs are there", n)
	}
	if n := w.c.figures.invariantFailures.Swap(0); n != 2 {
		t.Errorf("%d failures were counted", n)
	}
}

// submitStream is the caller's side of SubmitStream.
type submitStream struct {
	grpc.ServerStream
	ctx context.Context
	in  chan *apiv1.SubmitRequest
	out chan *apiv1.SubmitReply
}

func (s *submitStream) Context() context.Context { return s.ctx }
func (s *submitStream) Send(r *apiv1.SubmitReply) error {
	s.out <- r
	return nil
}
func (s *submitStream) Recv() (*apiv1.SubmitRequest, error) {
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

type jobStream struct {
	grpc.ServerStream
	ctx context.Context
	out chan *apiv1.JobInfo
}

func (s *jobStream) Context() context.Context    { return s.ctx }
func (s *jobStream) Send(j *apiv1.JobInfo) error { s.out <- j; return nil }

// Streams that would last for ever end with the controller.
func TestStreamsEndAtTheShutdown(t *testing.T) {
	m, blobs := newMachine(t)
	w := live(t, &directLog{m: m}, m, blobs)
	id := w.submit(&apiv1.JobSpec{Hold: true})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 2)
	watch := &jobStream{ctx: ctx, out: make(chan *apiv1.JobInfo, 8)}
	go func() { ended <- w.svc.WatchJob(&apiv1.WatchJobRequest{JobId: id}, watch) }()
	<-watch.out
	sub := &submitStream{ctx: ctx, in: make(chan *apiv1.SubmitRequest), out: make(chan *apiv1.SubmitReply, 8)}
	go func() { ended <- w.svc.SubmitStream(sub) }()
	sub.in <- &apiv1.SubmitRequest{Tag: 7, Spec: &apiv1.JobSpec{Hold: true}, Script: &apiv1.Blob{Data: []byte("#!/bin/sh\n")}}
	if rep := <-sub.out; rep.GetTag() != 7 || rep.GetError() != nil {
		t.Fatalf("answered %v", rep)
	}
	w.end()
	for range 2 {
		if err := <-ended; spec.CodeOf(err) != spec.CodeStopping {
			t.Errorf("a stream ended with %v", err)
		}
	}
	if err := <-w.done; err != nil {
		t.Error(err)
	}
}

// TestInvariantsByTurns: on a sample of batches one invariant is looked at after
// the other, so that a breach is found within a round of all of them.
func TestInvariantsByTurns(t *testing.T) {
	w := startWith(t, 0)
	w.stop()
	broken := state.New()
	broken.Licenses = []spec.Count{{Name: "matlab", N: 3}} // held by nobody
	bad := uint64(0)
	for _, c := range state.Checks() {
		if c.Check(broken) != nil {
			bad++
		}
	}
	w.c.deps.Settings.CheckEvery = 7
	wr := w.c.writer
	wr.batches = 0
	for range 7 * len(state.Checks()) {
		wr.check(broken)
		wr.checks.Wait()
	}
	if got := w.c.figures.invariantFailures.Load(); got != bad || bad == 0 {
		t.Errorf("%d breaches were found, of %d", got, bad)
	}
}
