package submit

import (
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// TestCheckRanks: each task has one program, and each program a task.
func TestCheckRanks(t *testing.T) {
	of := func(ranges ...int64) *apiv1.TaskProgram {
		out := &apiv1.TaskProgram{Argv: []string{"true"}}
		for i := 0; i < len(ranges); i += 2 {
			out.Ranks = append(out.Ranks, &apiv1.TaskRange{First: ranges[i], Last: ranges[i+1], Step: 1})
		}
		return out
	}
	for _, tt := range []struct {
		programs []*apiv1.TaskProgram
		tasks    uint32
		want     string
	}{
		{[]*apiv1.TaskProgram{of(0, 1), of()}, 4, ""},
		{[]*apiv1.TaskProgram{of(0, 1), of(2, 3)}, 4, ""},
		{[]*apiv1.TaskProgram{of(0, 1), of(2, 9)}, 0, ""},
		{[]*apiv1.TaskProgram{of(0, 1), of(2, 4)}, 4, "there is no task 4: the step has tasks 0 to 3"},
		{[]*apiv1.TaskProgram{of(0, 2), of(3, 3, 1, 1)}, 4, "task 1 has two programs"},
	} {
		got := ""
		if err := checkRanks(tt.programs, tt.tasks); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%v of %d tasks: %q, wanted %q", tt.programs, tt.tasks, got, tt.want)
		}
	}
}
