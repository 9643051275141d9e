package acct

import (
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// TestExitOfCancelledJobs: the signal that ended a cancelled job stands in its batch step and not
// in the job, as under Slurm.
func TestExitOfCancelledJobs(t *testing.T) {
	row := func(state, step string) *apiv1.AcctRow {
		return &apiv1.AcctRow{State: state, Step: step, ExitCode: 1, ExitSignal: 15}
	}
	for _, tc := range []struct {
		row  *apiv1.AcctRow
		want string
	}{
		{row("CANCELLED by 1001", ""), "0:0"},
		{row("CANCELLED", "batch"), "1:15"},
		{row("FAILED", ""), "1:15"},
	} {
		if got := exitOf(tc.row); got != tc.want {
			t.Errorf("%v: %s, want %s", tc.row, got, tc.want)
		}
	}
}
