package tool

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/spec"
)

// TestPatiently: what is refused by the limit of calls is repeated with growing
// waits, anything else is not, and not for ever.
func TestPatiently(t *testing.T) {
	backoff := rpcstatus.Convert(spec.Refuse(spec.CodeBackoff, ""), rpcstatus.Numbers())
	now := time.Unix(1_800_000_000, 0)
	var waits []time.Duration
	c := &Call{Env: &Env{Now: func() time.Time { return now }, Pause: func(_ context.Context, d time.Duration) {
		waits = append(waits, d)
		now = now.Add(d)
	}}}
	calls := 0
	do := func(refusals int, other error) func() error {
		calls = 0
		return func() error {
			if calls++; calls <= refusals {
				return backoff
			}
			return other
		}
	}
	if err := c.Patiently(t.Context(), do(3, nil)); err != nil || calls != 4 {
		t.Errorf("after three refusals: %v, %d calls", err, calls)
	}
	for i, longest := range []time.Duration{750, 1500, 3000} {
		if waits[i] > longest*time.Millisecond || waits[i] < longest*time.Millisecond/3 {
			t.Errorf("wait %d is %s", i, waits[i])
		}
	}
	other := errors.New("another error")
	if err := c.Patiently(t.Context(), do(0, other)); !errors.Is(err, other) || calls != 1 {
		t.Errorf("another error: %v, %d calls", err, calls)
	}
	began := now
	if err := c.Patiently(t.Context(), do(1000, nil)); ExplainError(err).Code != spec.CodeBackoff || now.Sub(began) > 2*backoffPatience {
		t.Errorf("refused for ever: %v after %s", err, now.Sub(began))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Patiently(ctx, do(1000, nil)); err == nil || calls != 1 {
		t.Errorf("interrupted: %v, %d calls", err, calls)
	}
}
