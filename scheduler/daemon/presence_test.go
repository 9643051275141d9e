package daemon

import (
	"testing"

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
