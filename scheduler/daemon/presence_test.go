package daemon

import (
	"fmt"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/state/pmap"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// setClock shows the time that it was set to.
type setClock struct {
	realClock
	now spec.Instant
}

func (c *setClock) Now() spec.Instant { return c.now }

// A client that was there for long may be away as long as one that had just
// come; one that is back, or has another beside it, is not away.
func TestClientsMayBeAwayForAWhile(t *testing.T) {
	clock := &setClock{now: 1000 * spec.Instant(spec.Second)}
	p := newPresence(&Controller{deps: Deps{Clock: clock}})
	later := func(d spec.Span) { clock.now = clock.now.Add(d) }
	k := attended{job: 1, attempt: 1, step: 0}
	first, second := p.enterClient(k), p.enterClient(k)
	later(spec.Hour)
	first()
	later(spec.Hour)
	if gone := p.takeOverdue(clock.now); gone != nil {
		t.Errorf("one of two clients is gone: %v is overdue", gone)
	}
	second()
	later(absence - 1)
	if gone := p.takeOverdue(clock.now); gone != nil {
		t.Errorf("%v is overdue too soon", gone)
	}
	back := p.enterClient(k)
	later(spec.Hour)
	if gone := p.takeOverdue(clock.now); gone != nil {
		t.Errorf("%v is overdue though its client is back", gone)
	}
	back()
	later(absence)
	if gone := p.takeOverdue(clock.now); len(gone) != 1 || gone[0] != k {
		t.Errorf("overdue are %v", gone)
	}
}

// A job whose client is only about to come when the controller looks for those
// who have not is not ended.
func TestClientsMayComeWhileTheyAreMissed(t *testing.T) {
	clock := &setClock{now: 1000 * spec.Instant(spec.Second)}
	c, st, own := &Controller{deps: Deps{Clock: clock}}, state.New(), new(pmap.Owner)
	for uid := spec.JobUID(1); uid <= 2; uid++ {
		st.Jobs.Set(own, uint64(uid), &state.Job{UID: uid, State: spec.Pending, Spec: &spec.JobSpec{Attended: true}})
		st.Waiting.Set(own, uint64(uid), struct{}{})
	}
	c.view.Store(&view.View{State: st})
	p := newPresence(c)
	p.markMissing(clock.now)
	if gone := p.takeOverdue(clock.now); gone != nil {
		t.Errorf("%v is overdue at once", gone)
	}
	p.enterClient(jobKey(1))
	if gone := p.takeOverdue(clock.now.Add(absence)); len(gone) != 1 || gone[0] != jobKey(2) {
		t.Errorf("overdue are %v", gone)
	}
}

// TestClientsThatNeverCame: a job and a step whose client died before it said
// that it is there count as left from their beginning; the number that an
// array's last task shares with the array names that task's steps.
func TestClientsThatNeverCame(t *testing.T) {
	w := start(t)
	for _, name := range []string{"n1", "n2"} {
		inv := w.inventory(name)
		inv.Socket = "/s"
		w.must(scheduler.RegisterNode{Node: name, Inventory: inv})
	}
	left := func(k attended) func() bool {
		return func() bool {
			w.c.present.mu.Lock()
			defer w.c.present.mu.Unlock()
			_, gone := w.c.present.left[k]
			return gone
		}
	}
	id := w.submit(&apiv1.JobSpec{Name: "alloc", Shell: true, Attended: true, Array: []*apiv1.TaskRange{{First: 1, Last: 2, Step: 1}}})
	w.until("the array runs", func() bool {
		j := w.c.View().State.JobByID(spec.JobID(id))
		return j.State == spec.Running && !j.IsArrayRecord()
	})
	st := w.c.View().State
	all := func(*state.Job) bool { return true }
	j, err := stepJob(st, fmt.Sprint(id), all)
	if err != nil || j.ID != spec.JobID(id) || j.Task != 2 {
		t.Fatalf("%d is %+v (%v), want task 2", id, j, err)
	}
	if first, err := stepJob(st, fmt.Sprintf("%d_1", id), all); err != nil || first == j {
		t.Errorf("%d_1 is %+v (%v)", id, first, err)
	}
	if _, err := stepJob(st, fmt.Sprintf("%d_[1-2]", id), all); spec.CodeOf(err) != spec.CodeInvalidJobID {
		t.Errorf("two tasks for a step: %v", err)
	}
	ask := scheduler.StartStep{UID: j.UID, Attempt: j.Attempt, Spec: &spec.StepSpec{Tasks: 1}, Ticket: "x"}
	step := w.must(ask).Step
	w.until("the job's client is missed", left(jobKey(j.UID)))
	w.until("the step's client is missed", left(attended{j.UID, j.Attempt, step}))
	ask.Attempt, ask.Ticket = 2, "y"
	if rep := w.c.writer.commitCommand(t.Context(), &request{cmd: ask}); spec.CodeOf(rep.err) != spec.CodeAlreadyDone {
		t.Errorf("a step of another attempt: %v", rep.err)
	}
}

// What nobody attends is ended again where that failed: a disk that was full
// must not leave it for ever.
func TestWhatNobodyAttendsIsEndedInTheEnd(t *testing.T) {
	w := start(t)
	job := w.stepJobOf(&apiv1.JobSpec{Tasks: 1})
	step := w.must(scheduler.StartStep{UID: job.UID, Attempt: job.Attempt, Spec: &spec.StepSpec{Tasks: 1}, Ticket: "x"}).Step
	k := attended{job.UID, job.Attempt, step}
	p := &presence{c: w.c, here: map[attended]int{}, left: map[attended]spec.Instant{}} // that nobody runs
	ending := func() bool { return w.c.View().State.Job(job.UID).StepByID(step).Ending != nil }
	w.log.fail(ErrDiskFull)
	p.endJob(t.Context(), k)
	if _, again := p.left[k]; ending() || !again {
		t.Errorf("with a full disk the step is ended (%v), or not expected to be (%v)", ending(), !again)
	}
	w.until("it is ended", func() bool {
		for _, k := range p.takeOverdue(w.deps.Clock.Now().Add(absence)) {
			p.endJob(t.Context(), k)
		}
		return ending()
	})
	if len(p.left) != 0 {
		t.Errorf("it is still to be ended: %v", p.left)
	}
}
