package daemon

import (
	"testing"

	"github.com/musterhpc/muster/spec"
)

func TestFindingsPause(t *testing.T) {
	const regular = spec.Minute
	for _, c := range []struct {
		name     string
		took     spec.Span
		failures int
		found    bool
		want     spec.Span
	}{
		{"found", spec.Second / 10, 0, true, regular},
		{"found after long", 10 * spec.Second, 0, true, 180 * spec.Second},
		{"nothing stored yet", 0, 0, false, spec.Second},
		{"away for a moment", 0, 1, false, 2 * spec.Second},
		{"away for long", 0, 100, false, regular},
		{"never in time", 30 * spec.Second, 3, false, 540 * spec.Second},
	} {
		if got := findingsPause(regular, c.took, 10, c.failures, c.found); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
