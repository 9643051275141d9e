package daemon

import (
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// TestDiagSince counts from a reset on, and leaves gauges and the figures themselves alone.
func TestDiagSince(t *testing.T) {
	calls := func(figures ...uint64) []*apiv1.CallFigure {
		var out []*apiv1.CallFigure
		for i := 0; i < len(figures); i += 2 {
			name := string(rune('a' + i/2))
			out = append(out, &apiv1.CallFigure{Name: name, Count: figures[i], Nanos: figures[i+1]})
		}
		return out
	}
	base := &apiv1.DiagReply{Now: 100, StartedAt: 1, JobsSubmitted: 7, JobsStarted: 6, JobsBackfilled: 5, JobsCompleted: 4, JobsCancelled: 3, JobsFailed: 2,
		Passes: 3, QuickPasses: 10, PassTotal: 30, DroppedProposals: 1, StaleReports: 1, Pending: 5, Methods: calls(2, 20, 4, 40), Callers: calls(6, 60)}
	now := &apiv1.DiagReply{Now: 200, StartedAt: 1, JobsSubmitted: 9, JobsStarted: 9, JobsBackfilled: 9, JobsCompleted: 9, JobsCancelled: 9, JobsFailed: 9,
		Passes: 5, QuickPasses: 14, PassTotal: 90, DroppedProposals: 9, StaleReports: 10, Pending: 2, PassMax: 8, Methods: calls(2, 20, 5, 47, 1, 3), Callers: calls(7, 67)}
	kept := proto.CloneOf(now)
	want := &apiv1.DiagReply{Now: 200, StartedAt: 100, JobsSubmitted: 2, JobsStarted: 3, JobsBackfilled: 4, JobsCompleted: 5, JobsCancelled: 6, JobsFailed: 7,
		Passes: 2, QuickPasses: 4, PassTotal: 60, DroppedProposals: 8, StaleReports: 9, Pending: 2, PassMax: 8, Methods: calls(0, 0, 1, 7, 1, 3)[1:], Callers: calls(1, 7)}
	if got := diagSince(base, now); !proto.Equal(got, want) {
		t.Errorf("since the reset: %v\nwant %v", got, want)
	}
	if !proto.Equal(now, kept) {
		t.Errorf("the figures were changed: %v", now)
	}
}
