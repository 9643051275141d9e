package commit

import (
	"testing"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// TestStepState: how a step ended, as a real Slurm has it (make side-by-side, signals).
func TestStepState(t *testing.T) {
	for _, tc := range []struct {
		name string
		step state.Step
		want spec.JobState
	}{
		{"ends well", state.Step{Result: &event.StepResult{}}, spec.Completed},
		{"exits with a code", state.Step{Result: &event.StepResult{Exit: spec.ExitStatus{Code: 4}}}, spec.Failed},
		{"is killed", state.Step{Result: &event.StepResult{Exit: spec.ExitStatus{Signal: 9}}}, spec.Cancelled},
		{"was not seen to end", state.Step{Result: &event.StepResult{Unknown: true}}, spec.Failed},
		{
			"out of memory",
			state.Step{
				Result: &event.StepResult{Exit: spec.ExitStatus{Signal: 9}},
				Usage:  spec.Usage{OOMKilled: true},
			},
			spec.OutOfMemory,
		},
	} {
		if got := stepState(&state.Job{State: spec.Running}, &tc.step); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}
