package tool

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"
)

// TestPatience: only calls to accounting may take as long as they need, and a person at a
// terminal, nobody else, sees on one line that such a call goes on.
func TestPatience(t *testing.T) {
	for _, terminal := range []bool{true, false} {
		var errOut bytes.Buffer
		now := time.Unix(1_800_000_000, 0)
		began := now
		ticks := make(chan struct{})
		c := &Call{
			Ctx:     t.Context(),
			Command: &Command{Name: "findings"},
			Env: &Env{
				Stderr:   &errOut,
				Terminal: func(any) bool { return terminal },
				Now:      func() time.Time { return now },
				Pause: func(ctx context.Context, d time.Duration) {
					select {
					case <-ctx.Done():
					case ticks <- struct{}{}:
						now = now.Add(d)
					}
				},
			},
		}
		ctx, cancel := c.limitCall(MethodListJobs)
		at, limited := ctx.Deadline()
		cancel()
		if !limited || time.Until(at) > callPatience {
			t.Errorf("a call to the controller ends at %v", at)
		}
		ctx, cancel = c.limitCall(MethodAcctReport)
		if _, limited := ctx.Deadline(); limited {
			t.Error("a question to accounting has a limit")
		}
		cancel()
		stop := c.NoteWaiting(MethodAcctReport)
		for range 3 {
			if terminal {
				<-ticks
			}
		}
		stop()
		text := errOut.String()
		if !terminal {
			if text != "" {
				t.Errorf("somebody who is not there is told %q", text)
			}
			continue
		}
		if now.Sub(began) != 5*time.Second || strings.Contains(text, "\n") || !strings.HasSuffix(text, "\r\x1b[K") {
			t.Errorf("after %v: %q", now.Sub(began), text)
		}
		for _, want := range []string{"findings: accounting has been reading for 00:00:03", "00:00:04"} {
			if !strings.Contains(text, want) {
				t.Errorf("%q lacks %q", text, want)
			}
		}
	}
}
