package daemon

import (
	"testing"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/state/pmap"
	"github.com/musterhpc/muster/ledger/view"
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
	first, second := p.enter(k), p.enter(k)
	later(spec.Hour)
	first()
	later(spec.Hour)
	if gone := p.overdue(clock.now); gone != nil {
		t.Errorf("one of two clients is gone: %v is overdue", gone)
	}
	second()
	later(absence - 1)
	if gone := p.overdue(clock.now); gone != nil {
		t.Errorf("%v is overdue too soon", gone)
	}
	back := p.enter(k)
	later(spec.Hour)
	if gone := p.overdue(clock.now); gone != nil {
		t.Errorf("%v is overdue though its client is back", gone)
	}
	back()
	later(absence)
	if gone := p.overdue(clock.now); len(gone) != 1 || gone[0] != k {
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
	p.missing(clock.now)
	if gone := p.overdue(clock.now); gone != nil {
		t.Errorf("%v is overdue at once", gone)
	}
	p.enter(jobKey(1))
	if gone := p.overdue(clock.now.Add(absence)); len(gone) != 1 || gone[0] != jobKey(2) {
		t.Errorf("overdue are %v", gone)
	}
}
