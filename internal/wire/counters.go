package wire

import (
	"math"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// Counters writes what was counted of a run.
func Counters(list spec.CounterValues) []*apiv1.CounterValue {
	var out []*apiv1.CounterValue
	for _, c := range list {
		out = append(out, &apiv1.CounterValue{Counter: uint32(c.Counter), N: c.N})
	}
	return out
}

// ToCounters reads what was counted of a run. A counter that this release does not
// know is kept: its number says what it is to a later one.
func ToCounters(list []*apiv1.CounterValue) spec.CounterValues {
	var out spec.CounterValues
	for _, c := range list {
		if n := c.GetCounter(); n > 0 && n <= math.MaxUint8 {
			out = out.With(spec.Counter(n), c.GetN())
		}
	}
	return out
}

func taskSpreads(list spec.TaskSpreads) []*apiv1.TaskSpread {
	var out []*apiv1.TaskSpread
	for i := range list {
		t := &list[i]
		out = append(out, &apiv1.TaskSpread{
			Kind:    uint32(t.Kind),
			Tasks:   t.Tasks,
			Sum:     t.Sum,
			Min:     t.Min,
			Max:     t.Max,
			MinRank: t.MinRank,
			MaxRank: t.MaxRank,
			MinNode: t.MinNode,
			MaxNode: t.MaxNode,
		})
	}
	return out
}

func toTaskSpreads(list []*apiv1.TaskSpread) spec.TaskSpreads {
	var out spec.TaskSpreads
	for _, t := range list {
		if n := t.GetKind(); n == 0 || n > math.MaxUint8 {
			continue
		}
		out = append(out, spec.TaskSpread{
			Kind:    spec.TaskKind(t.GetKind()),
			Tasks:   t.GetTasks(),
			Sum:     t.GetSum(),
			Min:     t.GetMin(),
			Max:     t.GetMax(),
			MinRank: t.GetMinRank(),
			MaxRank: t.GetMaxRank(),
			MinNode: t.GetMinNode(),
			MaxNode: t.GetMaxNode(),
		})
	}
	return out
}
