package daemon

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// newsStream is the stream of an srun.
type newsStream struct {
	grpc.ServerStream
	ctx context.Context
	out chan *apiv1.StepNews
}

func (s *newsStream) Context() context.Context     { return s.ctx }
func (s *newsStream) Send(n *apiv1.StepNews) error { s.out <- n; return nil }

// stepJobOf is a job of one node on which steps can be started.
func (w *world) stepJobOf(js *apiv1.JobSpec) *state.Job {
	w.t.Helper()
	inv := w.inventory("n1")
	inv.Socket = "/s"
	w.must(scheduler.RegisterNode{Node: "n1", Inventory: inv})
	js.Shell = true
	id := w.submit(js)
	w.until("the job runs", func() bool { return w.c.View().State.JobByID(spec.JobID(id)).State == spec.Running })
	return w.c.View().State.JobByID(spec.JobID(id))
}

// srun asks for a step and waits until it was told that it waits, or has one.
func (w *world) srun(ctx context.Context, job *state.Job, s *apiv1.StepSpec, ticket byte) (*newsStream, *apiv1.StepNews) {
	w.t.Helper()
	stream := &newsStream{ctx: ctx, out: make(chan *apiv1.StepNews, 4)}
	s.Argv = []string{"true"}
	req := &apiv1.RunStepRequest{Job: itoaID(job.ID), Step: s, Ticket: append(make([]byte, ticketSize-1), ticket)}
	go func() {
		if err := w.svc.RunStep(req, stream); err != nil && ctx.Err() == nil {
			w.t.Errorf("srun %d: %v", ticket, err)
		}
	}()
	return stream, <-stream.out
}

func itoaID(id spec.JobID) string { return strconv.FormatUint(uint64(id), 10) }

// inLine returns when so many steps of a job wait.
func (w *world) inLine(job *state.Job, n int) {
	for w.c.steps.countWaiting(job.UID) != n && w.t.Context().Err() == nil {
		runtime.Gosched()
	}
}

// endStep reports the end of a job's only live step.
func (w *world) endStep(job *state.Job, id spec.StepID) {
	w.t.Helper()
	w.must(scheduler.Report{Node: "n1", Run: scheduler.Run{UID: job.UID, Attempt: 1}, StepOver: &scheduler.StepOver{Step: id, Result: event.StepResult{}}})
}

// TestStepsWaitInLine: sruns of one job that ask for the same get their steps in
// the order in which they came, and cost a few tries each, however many wait.
func TestStepsWaitInLine(t *testing.T) {
	const many = 50
	w := start(t)
	job := w.stepJobOf(&apiv1.JobSpec{Tasks: 1})
	var streams []*newsStream
	for i := range many {
		stream, first := w.srun(t.Context(), job, &apiv1.StepSpec{Tasks: 1}, byte(i))
		if created := first.GetCreated() != nil; created != (i == 0) {
			t.Fatalf("srun %d hears %v first", i, first)
		}
		w.inLine(job, i) // it joins when it has told so
		streams = append(streams, stream)
	}
	before := w.c.figures.commands.Load()
	for i, s := range streams {
		if i > 0 {
			if made := (<-s.out).GetCreated(); made.GetStep() != int32(i) {
				t.Fatalf("srun %d has step %d", i, made.GetStep())
			}
		}
		w.endStep(job, spec.StepID(i))
		if over := (<-s.out).GetOver(); over == nil {
			t.Fatalf("srun %d does not hear of its step's end", i)
		}
	}
	tries := w.c.figures.commands.Load() - before - many // less the ends
	t.Logf("%d tries of %d waiting sruns", tries, many-1)
	if tries > 5*many {
		t.Errorf("%d tries of %d sruns that waited", tries, many-1)
	}
}

// TestSmallStepsPassLargeOnes: one that has no room does not keep others from
// the room that there is, and one that goes away leaves the line.
func TestSmallStepsPassLargeOnes(t *testing.T) {
	w := start(t)
	job := w.stepJobOf(&apiv1.JobSpec{Tasks: 4})
	step := func(tasks uint32) *apiv1.StepSpec { return &apiv1.StepSpec{Tasks: tasks, Exact: true} }
	if _, first := w.srun(t.Context(), job, step(2), 1); first.GetCreated() == nil {
		t.Fatalf("the first hears %v", first)
	}
	large, first := w.srun(t.Context(), job, step(4), 2)
	if first.GetQueued() == nil {
		t.Fatalf("the large one hears %v", first)
	}
	w.inLine(job, 1)
	ctx, leave := context.WithCancel(t.Context())
	if _, first := w.srun(ctx, job, step(4), 3); first.GetQueued() == nil {
		t.Fatalf("the other large one hears %v", first)
	}
	leave()
	small, _ := w.srun(t.Context(), job, step(2), 4)
	if made := (<-small.out).GetCreated(); made.GetStep() != 1 {
		t.Fatalf("the small one has %v", made)
	}
	if _, err := w.srunNow(job, step(1)); spec.CodeOf(err) != spec.CodeNodesBusy {
		t.Errorf("one that does not wait: %v", err)
	}
	w.endStep(job, 0)
	w.endStep(job, 1)
	if made := (<-large.out).GetCreated(); made.GetStep() != 2 {
		t.Fatalf("the large one has %v", made)
	}
	w.endStep(job, 2)
	w.inLine(job, 0)
}

// srunNow is srun --immediate.
func (w *world) srunNow(job *state.Job, s *apiv1.StepSpec) (*apiv1.StepNews, error) {
	s.Argv = []string{"true"}
	stream := &newsStream{ctx: w.t.Context(), out: make(chan *apiv1.StepNews, 4)}
	err := w.svc.RunStep(&apiv1.RunStepRequest{Job: itoaID(job.ID), Step: s, Ticket: make([]byte, ticketSize), Immediate: true}, stream)
	select {
	case n := <-stream.out:
		return n, err
	default:
		return nil, err
	}
}

// TestAStepThatCannotBeOrdered ends with the reason, and its srun hears of it.
func TestAStepThatCannotBeOrdered(t *testing.T) {
	w := start(t)
	w.connect("n1")
	for w.c.hub.connOf("n1") == nil && w.t.Context().Err() == nil { // it has registered then
		runtime.Gosched()
	}
	w.as(Caller{UID: 1000, GID: 1000, User: "alice"})
	job := w.stepJobOf(&apiv1.JobSpec{Tasks: 1})
	step := w.must(scheduler.StartStep{UID: job.UID, Attempt: job.Attempt, Spec: &spec.StepSpec{Tasks: 1, Env: spec.Hash{1}}, Ticket: "x"}).Step
	at := func() *state.Step { return w.c.View().State.Job(job.UID).StepByID(step) }
	w.until("it is over", func() bool { return !at().Live() })
	if st := at(); st.State != spec.Failed || !strings.Contains(st.Result.Detail, "no such content") {
		t.Errorf("it is %s, %+v", st.State, st.Result)
	}
}

// TestAStepThatCannotBeOrderedWhileMuchIsToDo: who tells of it never waits for
// the writer, which waits for him, and what he tells is not lost.
func TestAStepThatCannotBeOrderedWhileMuchIsToDo(t *testing.T) {
	m, _ := newMachine(t)
	c := New(Deps{Clock: realClock{}}, m) // its writer takes nothing
	for range cap(c.writer.cmds) {
		c.writer.cmds <- &request{}
	}
	c.hub.stepImpossible(&state.Job{UID: 7, Attempt: 1}, &state.Step{ID: 3}, "n1", errors.New("no key"))
	for range cap(c.writer.cmds) {
		<-c.writer.cmds
	}
	var r request
	select {
	case got := <-c.writer.cmds:
		r = *got
	case <-time.After(20 * time.Second):
		t.Fatal("the writer is not told")
	}
	if got, ok := r.cmd.(scheduler.Report); !ok || got.Node != "n1" || got.StepOver == nil || got.StepOver.Step != 3 {
		t.Errorf("the writer is told %+v", r.cmd)
	}
}

// TestWhoWaitsHearsOfTheEnd of the job, and of the controller, after which it
// asks again.
func TestWhoWaitsHearsOfTheEnd(t *testing.T) {
	for want, end := range map[spec.Code]func(*world, *state.Job){
		spec.CodeAlreadyDone: func(w *world, j *state.Job) { w.must(scheduler.EndJob{UID: j.UID}) },
		spec.CodeStopping:    func(w *world, _ *state.Job) { w.stop() },
	} {
		w := start(t)
		job := w.stepJobOf(&apiv1.JobSpec{Tasks: 1})
		w.must(scheduler.StartStep{UID: job.UID, Attempt: job.Attempt, Spec: &spec.StepSpec{Tasks: 1}})
		stream := &newsStream{ctx: t.Context(), out: make(chan *apiv1.StepNews, 4)}
		ended := make(chan error, 2)
		for i := range byte(2) {
			go func() {
				ended <- w.svc.RunStep(&apiv1.RunStepRequest{Job: itoaID(job.ID), Step: &apiv1.StepSpec{Tasks: 1, Argv: []string{"true"}},
					Ticket: append(make([]byte, ticketSize-1), i+1)}, stream)
			}()
		}
		w.inLine(job, 2)
		end(w, job)
		for range 2 {
			select {
			case err := <-ended:
				if spec.CodeOf(err) != want {
					t.Errorf("it hears %v, want %v", err, want)
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("nobody says %v", want)
			}
		}
	}
}

// TestAttachDisplay: the user of a job with --x11 gets the right to forward a display to the
// nodes where it is to be reached; of a job without, that is over or that is somebody else's
// nobody gets one.
func TestAttachDisplay(t *testing.T) {
	w := start(t)
	alice := Caller{UID: 1000, GID: 1000, User: "alice"}
	attach := func(who Caller, job string) (*apiv1.StepCreated, error) {
		w.c.deps.Identify = func(context.Context) Caller { return who }
		return w.svc.AttachStep(t.Context(), &apiv1.AttachStepRequest{Job: job, Step: int32(spec.StepExtern)})
	}
	plain := w.stepJobOf(&apiv1.JobSpec{Tasks: 1})
	if _, err := attach(alice, itoaID(plain.ID)); spec.CodeOf(err) != spec.CodeBadRequest {
		t.Errorf("a job without --x11: %v", err)
	}
	if _, err := w.svc.Submit(t.Context(), &apiv1.SubmitRequest{Spec: &apiv1.JobSpec{Tasks: 1, X11: "all", Shell: true}}); spec.CodeOf(err) != spec.CodeDisabled {
		t.Errorf("without PrologFlags=X11: %v", err)
	}
	config := *w.c.View().State.Config
	config.ForwardX11 = true
	w.must(scheduler.Configure{Config: &config})
	job := w.stepJobOf(&apiv1.JobSpec{Tasks: 1, X11: "first"})
	made, err := attach(alice, itoaID(job.ID))
	if err != nil || len(made.GetNodes()) != 1 || len(made.GetCredential()) == 0 || made.GetStep() != int32(spec.StepExtern) {
		t.Errorf("its user gets %v, %v", made, err)
	}
	if _, err := attach(Caller{UID: 1001, GID: 1001, User: "bob"}, itoaID(job.ID)); spec.CodeOf(err) != spec.CodeAccessDenied {
		t.Errorf("another user: %v", err)
	}
}

// TestAttachStep: a step's user and root get the right to see it, in their own
// name, and nobody else does; nor is there anything to see of one that is over.
func TestAttachStep(t *testing.T) {
	w := start(t)
	job := w.stepJobOf(&apiv1.JobSpec{Tasks: 1})
	w.must(scheduler.StartStep{UID: job.UID, Attempt: job.Attempt, Spec: &spec.StepSpec{Tasks: 1}})
	for name, tc := range map[string]struct {
		who  Caller
		step int32
		want spec.Code
	}{
		"its user":         {Caller{UID: 1000, GID: 1000, User: "alice"}, 0, 0},
		"root":             {Caller{UID: 0, User: "root"}, 0, 0},
		"another user":     {Caller{UID: 1001, GID: 1001, User: "bob"}, 0, spec.CodeAccessDenied},
		"no such step":     {Caller{UID: 1000, GID: 1000, User: "alice"}, 7, spec.CodeInvalidJobID},
		"the batch script": {Caller{UID: 1000, GID: 1000, User: "alice"}, -5, spec.CodeBadRequest},
	} {
		w.c.deps.Identify = func(context.Context) Caller { return tc.who }
		made, err := w.svc.AttachStep(t.Context(), &apiv1.AttachStepRequest{Job: itoaID(job.ID), Step: tc.step})
		if spec.CodeOf(err) != tc.want || (err == nil) != (tc.want == 0) {
			t.Errorf("%s: %v, want %d", name, err, tc.want)
		}
		if err == nil && (len(made.GetNodes()) != 1 || len(made.GetCredential()) == 0 || made.GetTasks() != 1) {
			t.Errorf("%s gets %v", name, made)
		}
	}
	w.endStep(job, 0)
	w.c.deps.Identify = func(context.Context) Caller { return Caller{UID: 1000, GID: 1000, User: "alice"} }
	if _, err := w.svc.AttachStep(t.Context(), &apiv1.AttachStepRequest{Job: itoaID(job.ID)}); spec.CodeOf(err) != spec.CodeAlreadyDone {
		t.Errorf("of a step that is over: %v", err)
	}
}
