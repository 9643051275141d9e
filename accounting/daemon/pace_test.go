package daemon

import (
	"context"
	"testing"
	"time"

	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/spec"
)

func TestPaceTellsBursts(t *testing.T) {
	var p pace
	for i, step := range []struct {
		at   spec.Span
		head uint64
		want bool
	}{
		{0, 1_000_000, false}, // what was there before is no burst
		{10 * spec.Millisecond, 1_001_000, false},
		{60 * spec.Millisecond, 1_001_500, true},
		{70 * spec.Millisecond, 1_001_500, true}, // not looked at yet
		{120 * spec.Millisecond, 1_001_600, false},
		{170 * spec.Millisecond, 1_002_600, true},
		{170*spec.Millisecond + 10*spec.Second, 1_026_600, false}, // 2,400/s
		{20 * spec.Second, 1_026_600, false},
		{spec.Second, 1_200_000, false}, // the clock was set back
		{spec.Second + burstLook, 1_200_126, true},
		{spec.Second + 2*burstLook, 1_200_100, false}, // a backup was restored
	} {
		if got := p.inBurst(spec.AtUnix(1000).Add(step.at), func() uint64 { return step.head }); got != step.want {
			t.Errorf("step %d: burst %v, want %v", i, got, step.want)
		}
	}
}

// burstClock goes on when it is asked and when somebody rests.
type burstClock struct {
	now    spec.Instant
	rested spec.Span
	never  bool // a rest does not end by itself
}

func (c *burstClock) Now() spec.Instant { c.now = c.now.Add(spec.Millisecond); return c.now }

func (c *burstClock) After(d spec.Span) (fires <-chan struct{}, stop func()) {
	c.rested += d
	ch := make(chan struct{})
	if !c.never {
		c.now = c.now.Add(d)
		close(ch)
	}
	return ch, func() {}
}

// burstLedger grows by 50,000 events a second.
type burstLedger struct {
	Source
	clock *burstClock
}

func (l burstLedger) Head() (uint64, spec.Instant) {
	return uint64(l.clock.now) / uint64(spec.Second/50_000), l.clock.now
}

func burstSession() (*session, *burstClock) {
	clock := &burstClock{now: spec.AtUnix(1000)}
	d := &Daemon{cfg: Config{Clock: clock, Source: burstLedger{clock: clock}}, hurry: make(chan struct{}, 1)}
	return &session{d: d, tally: tally.New(), awake: make(chan struct{}, 1)}, clock
}

func TestCountingRestsInBursts(t *testing.T) {
	ctx := context.Background()
	s, clock := burstSession()
	worked := spec.Span(0)
	for range 1000 {
		began := clock.Now()
		clock.now = clock.now.Add(spec.Millisecond)
		s.yieldAfter(ctx, began, began)
		worked += 2 * spec.Millisecond
	}
	if !s.burst.Load() || clock.rested < 15*worked {
		t.Errorf("burst %v; worked %d ms, rested %d ms", s.burst.Load(), worked/spec.Millisecond, clock.rested/spec.Millisecond)
	}
	rested := clock.rested
	for range 100 { // far behind
		began := clock.Now()
		s.yieldAfter(ctx, began, began.Add(-burstLag))
	}
	if s.burst.Load() || clock.rested != rested {
		t.Errorf("counting that is %d s behind still rests", burstLag/spec.Second)
	}
}

func TestWhoAsksEndsTheRest(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	s, clock := burstSession()
	for !s.burst.Load() {
		began := clock.Now()
		s.yieldAfter(ctx, began, began)
	}
	clock.never = true
	s.d.hastenIngest()
	began := clock.Now()
	s.yieldAfter(ctx, began, began)
	if ctx.Err() != nil {
		t.Fatal("the rest did not end")
	}
	select { // count sees it too
	case <-s.d.hurry:
		s.countHurried()
	default:
		t.Fatal("nobody is told that somebody waits")
	}
	rested := clock.rested
	if began := clock.Now(); s.tally.Seq() < s.pace.asked {
		s.yieldAfter(ctx, began, began)
	}
	if clock.rested != rested || s.burst.Load() {
		t.Error("counting rests before it has what somebody waits for")
	}
	if len(s.awake) != 1 {
		t.Error("the writer was not woken")
	}
}
