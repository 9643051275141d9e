package clock_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/spec"
)

const start = spec.Instant(1_700_000_000 * spec.Instant(spec.Second))

func fired(t clock.Timer) bool {
	select {
	case <-t.C():
		return true
	default:
		return false
	}
}

// TestContract holds both clocks to what the interface promises. wait lets the
// given span pass by that clock's own means.
func TestContract(t *testing.T) {
	fake := clock.NewFake(start)
	for name, tc := range map[string]struct {
		c    clock.Clock
		wait func(clock.Timer)
	}{
		"system": {clock.NewSystem(), func(tm clock.Timer) { <-tm.C() }},
		"fake":   {fake, func(tm clock.Timer) { fake.Advance(spec.Millisecond); <-tm.C() }},
	} {
		t.Run(name, func(t *testing.T) {
			before := tc.c.Monotonic()
			tm := tc.c.NewTimer(spec.Millisecond)
			tc.wait(tm)
			if d := tc.c.Monotonic() - before; d < spec.Millisecond {
				t.Errorf("timer of 1ms fired after %dns", d)
			}
			if tm.Stop() {
				t.Error("Stop of a fired timer says it was armed")
			}
			tm.Reset(spec.Millisecond)
			tc.wait(tm)
			if fired(tm) {
				t.Error("timer fired twice for one Reset")
			}
			tm.Reset(spec.Hour)
			if !tm.Stop() {
				t.Error("Stop of an armed timer says it was not")
			}
			tm.Reset(0)
			<-tm.C()
			tm.Reset(-spec.Second)
			tm.Reset(spec.Hour) // takes back the value nobody read
			if fired(tm) {
				t.Error("Reset left a stale value in the channel")
			}
			tm.Stop()

			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := clock.Sleep(ctx, tc.c, spec.Hour); !errors.Is(err, context.Canceled) {
				t.Errorf("Sleep under a cancelled context: %v", err)
			}
			if err := clock.Sleep(t.Context(), tc.c, 0); err != nil {
				t.Errorf("Sleep of nothing: %v", err)
			}
		})
	}
}

func TestSystemNowIsTheWallClock(t *testing.T) {
	c := clock.NewSystem()
	if now := c.Now(); now < start {
		t.Errorf("system clock stands at %d, before this test was written", now)
	}
}

func TestStepMovesOnlyTheWallClock(t *testing.T) {
	c := clock.NewFake(start)
	tm := c.NewTimer(spec.Minute)
	c.Step(-spec.Hour)
	if got := c.Now(); got != start.Add(-spec.Hour) {
		t.Errorf("wall clock is %d", got)
	}
	if c.Monotonic() != 0 || fired(tm) {
		t.Error("a step of the wall clock moved the monotonic one")
	}
	c.Advance(spec.Minute)
	if !fired(tm) {
		t.Error("timer did not fire after its span")
	}
	if got := c.Now(); got != start.Add(-59*spec.Minute) {
		t.Errorf("wall clock is %d after a minute", got)
	}
}

// TestAwaitTimers: a goroutine that arms a timer releases the waiting test.
func TestAwaitTimers(t *testing.T) {
	c := clock.NewFake(start)
	done := make(chan error, 1)
	go func() { done <- clock.Sleep(t.Context(), c, spec.Second) }()
	if err := c.AwaitTimers(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if d, ok := c.NextDue(); !ok || d != spec.Second {
		t.Fatalf("next timer is due in %d (%v)", d, ok)
	}
	c.Advance(spec.Second)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.AwaitTimers(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for a timer nobody arms: %v", err)
	}
}

// TestFakeAgainstModel: timers fire once, exactly when due, whatever the order
// of arming, resetting, stopping and advancing.
func TestFakeAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := clock.NewFake(start)
		var timers []clock.Timer
		var due []spec.Span // -1: disarmed
		now := spec.Span(0)
		span := rapid.Int64Range(1, 20)
		t.Repeat(map[string]func(*rapid.T){
			"arm": func(t *rapid.T) {
				d := spec.Span(span.Draw(t, "d"))
				timers = append(timers, c.NewTimer(d))
				due = append(due, now+d)
			},
			"reset": func(t *rapid.T) {
				if len(timers) == 0 {
					t.Skip()
				}
				i, d := rapid.IntRange(0, len(timers)-1).Draw(t, "i"), spec.Span(span.Draw(t, "d"))
				timers[i].Reset(d)
				due[i] = now + d
			},
			"stop": func(t *rapid.T) {
				if len(timers) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(timers)-1).Draw(t, "i")
				if got, want := timers[i].Stop(), due[i] >= 0; got != want {
					t.Fatalf("Stop of timer %d says %v", i, got)
				}
				due[i] = -1
			},
			"advance": func(t *rapid.T) {
				d := spec.Span(span.Draw(t, "d"))
				c.Advance(d)
				now += d
				for i := range timers {
					want := due[i] >= 0 && due[i] <= now
					select {
					case at := <-timers[i].C():
						if !want || at.UnixNano() != int64(start)+int64(due[i]) {
							t.Fatalf("timer %d due %d fired at %v", i, due[i], at)
						}
					default:
						if want {
							t.Fatalf("timer %d due %d has not fired at %d", i, due[i], now)
						}
					}
					if want {
						due[i] = -1
					}
				}
			},
			"": func(t *rapid.T) {
				if c.Monotonic() != now || c.Now() != start.Add(now) {
					t.Fatalf("clock at %d/%d, want %d", c.Monotonic(), c.Now(), now)
				}
				armed := slices.DeleteFunc(slices.Clone(due), func(d spec.Span) bool { return d < 0 })
				d, ok := c.NextDue()
				if ok != (len(armed) > 0) || ok && d != slices.Min(armed)-now {
					t.Fatalf("NextDue %d %v with %v armed at %d", d, ok, armed, now)
				}
			},
		})
	})
}
