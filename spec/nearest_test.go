package spec

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestNearest(t *testing.T) {
	names := []string{"maxjobs", "maxsubmitjobs", "fairshare", "grptres", "qos"}
	for word, want := range map[string]string{
		"maxjbs": "maxjobs", "maxjosb": "maxjobs", "MaxJob": "maxjobs", "fairshre": "fairshare", "grptress": "grptres",
		"colour": "", "q": "", "": "", "maxjobs": "maxjobs",
		"jobs": "", strings.Repeat("maxjobs", 10): "",
	} {
		if got := Nearest(word, names); got != want {
			t.Errorf("nearest to %q: %q, wanted %q", word, got, want)
		}
	}
}

// TestEditDistance: it is the same in both directions, 0 for equal words only, never more than the
// longer word has letters, and never more than its limit.
func TestEditDistance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.StringMatching("[ab]{0,6}").Draw(t, "a")
		b := rapid.StringMatching("[ab]{0,6}").Draw(t, "b")
		limit := rapid.IntRange(0, 4).Draw(t, "limit")
		const unlimited = 100
		n := editDistance(a, b, unlimited)
		if n != editDistance(b, a, unlimited) || (n == 0) != (a == b) || n > max(len(a), len(b)) {
			t.Errorf("%q and %q differ by %d", a, b, n)
		}
		if got := editDistance(a, b, limit); got != min(n, limit) {
			t.Errorf("%q and %q differ by %d, with limit %d by %d", a, b, n, limit, got)
		}
	})
}
