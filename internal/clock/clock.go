// Package clock gives the daemons their time: the machine's, or one that a
// test moves by hand.
//
// Nothing else in a daemon asks the machine for the time, so a test decides
// when a heartbeat is late or a lease ends. Two readings are kept apart: Now
// is the wall clock, which goes into events and may step when an administrator
// or NTP sets it; Monotonic only ever moves forward at one second a second and
// is what timeouts are measured with. A node is not late because the clock of
// the controller was corrected.
package clock

import (
	"context"
	"time"

	"github.com/musterhpc/muster/spec"
)

// Clock is a source of time. Implementations are safe for concurrent use.
type Clock interface {
	// Now is the wall clock in nanoseconds since 1970.
	Now() spec.Instant
	// Monotonic is the time since an arbitrary start; it never steps.
	Monotonic() spec.Span
	// NewTimer arms a timer that fires once, d from now by Monotonic. A d of
	// zero or less fires at once.
	NewTimer(d spec.Span) Timer
}

// Timer fires once after each NewTimer or Reset. Stop and Reset leave no stale
// value in the channel, so they need no draining.
type Timer interface {
	// C receives one value when the timer fires. It is never closed.
	C() <-chan time.Time
	// Reset arms the timer again, d from now, whether or not it had fired.
	Reset(d spec.Span)
	// Stop disarms the timer and tells whether it was still armed.
	Stop() bool
}

// Sleep waits until d has passed or ctx is done; the error is ctx's.
func Sleep(ctx context.Context, clock Clock, d spec.Span) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	timer := clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// System is the machine's clock.
type System struct{ started time.Time }

// NewSystem gives the machine's clock; its Monotonic counts from this call.
func NewSystem() *System { return &System{started: time.Now()} }

// Now is the machine's wall clock.
func (*System) Now() spec.Instant { return spec.Instant(time.Now().UnixNano()) }

// Monotonic is the time since NewSystem.
func (s *System) Monotonic() spec.Span { return spec.Span(time.Since(s.started)) }

// NewTimer arms a timer of the runtime.
func (*System) NewTimer(d spec.Span) Timer {
	return systemTimer{time.NewTimer(time.Duration(d))}
}

type systemTimer struct{ t *time.Timer }

func (s systemTimer) C() <-chan time.Time { return s.t.C }
func (s systemTimer) Reset(d spec.Span)   { s.t.Reset(time.Duration(d)) }
func (s systemTimer) Stop() bool          { return s.t.Stop() }
