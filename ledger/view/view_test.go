package view

import (
	"testing"

	"github.com/musterhpc/muster/spec"
)

func TestPlanOf(t *testing.T) {
	p := NewPlan(10, 5, []Planned{{UID: 7, Task: 1, Start: 100}, {UID: 7, Task: 2, Start: 50}, {UID: 9, Task: spec.NoTask, Start: 20}}, true)
	if got := p.Of(7); got == nil || got.Task != 1 || got != &p.Jobs[0] {
		t.Errorf("the first prediction of an array is %+v, want that of its first task in the plan", got)
	}
	if got := p.Of(9); got == nil || got.Start != 20 {
		t.Errorf("%+v", got)
	}
	if p.Of(8) != nil || (*Plan)(nil).Of(7) != nil {
		t.Error("a job that is not planned has a prediction")
	}
	if p.At != 10 || p.Seq != 5 || !p.Truncated {
		t.Errorf("%+v", p)
	}
}
