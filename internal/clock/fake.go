package clock

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/musterhpc/muster/spec"
)

// Fake is a clock that stands still until a test moves it.
type Fake struct {
	mu      sync.Mutex
	wall    spec.Instant
	mono    spec.Span
	armed   []*fakeTimer // by (due, order)
	order   uint64
	changed chan struct{} // closed and replaced whenever armed changes
}

// NewFake gives a clock that stands at start; its Monotonic starts at zero.
func NewFake(start spec.Instant) *Fake {
	return &Fake{wall: start, changed: make(chan struct{})}
}

// Now is the instant the test has moved to.
func (f *Fake) Now() spec.Instant {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.wall
}

// Monotonic is the sum of every Advance.
func (f *Fake) Monotonic() spec.Span {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mono
}

// Advance moves both readings forward by d and fires the timers on the way, in
// order of their due time and then of their arming. While a timer fires, the
// clock stands at that timer's due time. A negative d is treated as zero.
func (f *Fake) Advance(d spec.Span) {
	f.mu.Lock()
	defer f.mu.Unlock()
	end := f.mono + max(d, 0)
	for len(f.armed) > 0 && f.armed[0].due <= end {
		timer := f.armed[0]
		f.move(timer.due)
		f.disarm(timer)
		timer.c <- f.time() // never blocks: armed timers have an empty channel
	}
	f.move(end)
}

// Step sets the wall clock forward or back by d, as an administrator would.
// Monotonic and the timers do not notice.
func (f *Fake) Step(d spec.Span) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.wall += spec.Instant(d)
}

// NewTimer arms a timer that Advance fires.
func (f *Fake) NewTimer(d spec.Span) Timer {
	timer := &fakeTimer{clock: f, c: make(chan time.Time, 1)}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.arm(timer, d)
	return timer
}

// AwaitTimers waits until at least n timers are armed, so that a test moves
// the clock only once the code under test is waiting; the error is ctx's.
func (f *Fake) AwaitTimers(ctx context.Context, n int) error {
	for {
		f.mu.Lock()
		have, changed := len(f.armed), f.changed
		f.mu.Unlock()
		if have >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// NextDue tells how long until the first armed timer fires.
func (f *Fake) NextDue() (spec.Span, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.armed) == 0 {
		return 0, false
	}
	return f.armed[0].due - f.mono, true
}

func (f *Fake) time() time.Time { return time.Unix(0, int64(f.wall)) }

func (f *Fake) move(to spec.Span) {
	if to > f.mono {
		f.wall += spec.Instant(to - f.mono)
		f.mono = to
	}
}

func (f *Fake) arm(timer *fakeTimer, d spec.Span) {
	if d <= 0 {
		timer.c <- f.time()
		return
	}
	f.order++
	timer.due = f.mono + d
	timer.order = f.order
	timer.live = true
	if timer.due < f.mono { // overflow: as good as never
		timer.due = spec.Infinite
	}
	at, _ := slices.BinarySearchFunc(f.armed, timer, byDue)
	f.armed = slices.Insert(f.armed, at, timer)
	f.notify()
}

func (f *Fake) disarm(timer *fakeTimer) {
	if !timer.live {
		return
	}
	timer.live = false
	at, _ := slices.BinarySearchFunc(f.armed, timer, byDue)
	f.armed = slices.Delete(f.armed, at, at+1)
	f.notify()
}

func (f *Fake) notify() {
	close(f.changed)
	f.changed = make(chan struct{})
}

func byDue(a, b *fakeTimer) int {
	return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.order, b.order))
}

// fakeTimer's fields are guarded by its clock's lock.
type fakeTimer struct {
	clock *Fake
	c     chan time.Time
	due   spec.Span
	order uint64
	live  bool
}

func (t *fakeTimer) C() <-chan time.Time { return t.c }

func (t *fakeTimer) Reset(d spec.Span) {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	t.clock.disarm(t)
	t.drain()
	t.clock.arm(t, d)
}

func (t *fakeTimer) Stop() bool {
	t.clock.mu.Lock()
	defer t.clock.mu.Unlock()
	live := t.live
	t.clock.disarm(t)
	t.drain()
	return live
}

func (t *fakeTimer) drain() {
	select {
	case <-t.c:
	default:
	}
}
