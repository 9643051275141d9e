package scheduler_test

import (
	"reflect"
	"testing"

	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// TestPassYields: a long pass lets others go first again and again, and
// proposes what it would have proposed without.
func TestPassYields(t *testing.T) {
	st := plant(4, 16)
	fill(st, 400, func(i int) *spec.JobSpec {
		js := small(i)
		js.Time.Limit = spec.Hour + spec.Span(i)*spec.Minute
		return js
	})
	still, err := scheduler.Pass(st.Freeze(), epoch, scheduler.PassOptions{})
	if err != nil {
		t.Fatal(err)
	}
	breaths := 0
	out, err := scheduler.Pass(st.Freeze(), epoch, scheduler.PassOptions{Yield: func() { breaths++ }})
	if err != nil {
		t.Fatal(err)
	}
	if breaths < 10 || len(out.Starts) == 0 || !reflect.DeepEqual(out.Starts, still.Starts) || !reflect.DeepEqual(out.Plan, still.Plan) {
		t.Errorf("%d breaths, %d starts and %d without", breaths, len(out.Starts), len(still.Starts))
	}
}
