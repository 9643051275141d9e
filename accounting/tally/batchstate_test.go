package tally

import (
	"testing"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// TestBatchState: the script's own state beside the verdict on its run, as a real Slurm has it
// (make side-by-side, signals).
func TestBatchState(t *testing.T) {
	for _, tc := range []struct {
		name   string
		result event.StepResult
		run    spec.JobState
		want   spec.JobState
	}{
		{"ends well", event.StepResult{}, spec.Completed, spec.Completed},
		{"exits with a code", event.StepResult{Exit: spec.ExitStatus{Code: 7}}, spec.Failed, spec.Failed},
		{"kills itself", event.StepResult{Exit: spec.ExitStatus{Signal: 9}}, spec.Failed, spec.Cancelled},
		{"is killed at the limit", event.StepResult{Exit: spec.ExitStatus{Signal: 15}}, spec.TimedOut, spec.Cancelled},
		{"out of memory", event.StepResult{Exit: spec.ExitStatus{Signal: 9}}, spec.OutOfMemory, spec.OutOfMemory},
		{"lost with its node", event.StepResult{Unknown: true}, spec.NodeFailed, spec.NodeFailed},
	} {
		if got := batchState(&tc.result, tc.run.String()); got != tc.want.String() {
			t.Errorf("%s: %s, want %s", tc.name, got, tc.want)
		}
	}
}
