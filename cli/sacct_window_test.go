package cli

import (
	"testing"
	"time"
)

// TestSacctUntilNow: the clock has parts of a second, what is typed has none:
// until now is not before now.
func TestSacctUntilNow(t *testing.T) {
	w := newWorld(t)
	w.lab()
	w.at = w.at.Truncate(time.Second).Add(900 * time.Millisecond)
	for _, line := range []string{"sacct -s R -E now", "sacct -S now", "sacct -S now -E now", "sacct -E now"} {
		if r := w.shell(line); r.code != 0 {
			t.Errorf("%s: exit %d, %s", line, r.code, r.errOut)
		}
	}
}
