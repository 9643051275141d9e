package daemon

import (
	"slices"
	"testing"

	"github.com/musterhpc/muster/nodeagent/plan"
)

// TestDisplayOfAJobThatWasNotSaved: an agent that was killed right after a job began knows
// only its extern step when the controller welcomes it. The job keeps its display until it
// is over, and one that the controller does not want loses it.
func TestDisplayOfAJobThatWasNotSaved(t *testing.T) {
	b := newBench(t)
	wanted, unwanted := key(1), key(2)
	b.core.Resync([]plan.Observed{
		{Key: wanted.StepOf(plan.StepExtern), State: plan.Running, Start: 1},
		{Key: unwanted.StepOf(plan.StepExtern), State: plan.Running, Start: 1},
	})
	b.welcome(wanted)
	want := []plan.RunKey{wanted.StepOf(plan.StepExtern)}
	if got := b.core.displaysKept(); !slices.Equal(got, want) {
		t.Errorf("after the welcome %v are kept, want %v", got, want)
	}
	b.launch(wanted)
	if got := b.core.displaysKept(); !slices.Equal(got, want) {
		t.Errorf("after the order %v are kept, want %v", got, want)
	}
	b.answer(wanted, plan.Accepted, 0)
	b.exit(wanted)
	b.exit(externOf(wanted))
	if got := b.core.displaysKept(); len(got) != 0 {
		t.Errorf("after its end %v are kept", got)
	}
}
