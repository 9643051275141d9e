package daemon

import (
	"slices"
	"testing"

	"github.com/musterhpc/muster/accounting/tally"
)

// TestForkPointsOfASnapshot: every lost stretch is either ahead of a counting state
// or behind it. One that begins right at its position is behind: it was passed when
// the store branched.
func TestForkPointsOfASnapshot(t *testing.T) {
	p := parted{shared: []tally.Stretch{{From: 1, To: 10}, {From: 21, To: 30, Shift: 12}, {From: 41, To: 50, Shift: 25}}}
	gaps := []tally.Gap{{From: 11, To: 20}, {From: 31, To: 40}}
	for label, behind := range map[uint64]int{0: 0, 10: 0, 20: 1, 25: 1, 39: 1, 40: 2, 50: 2} {
		p.beginAt(label)
		var ahead []tally.Gap
		for _, at := range p.ahead {
			ahead = append(ahead, at.gap)
		}
		if !slices.Equal(p.behind, gaps[:behind]) || !slices.Equal(ahead, gaps[behind:]) {
			t.Errorf("from position %d: behind %v, ahead %v", label, p.behind, ahead)
		}
	}
}
