package wire

import (
	"math"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// Counters writes what was counted of a run.
func Counters(list spec.CounterValues) []*apiv1.CounterValue {
	var values []*apiv1.CounterValue
	for _, value := range list {
		values = append(values, &apiv1.CounterValue{Counter: uint32(value.Counter), N: value.N})
	}
	return values
}

// ToCounters reads what was counted of a run. A counter that this release does not
// know is kept: its number says what it is to a later one.
func ToCounters(list []*apiv1.CounterValue) spec.CounterValues {
	var values spec.CounterValues
	for _, value := range list {
		if n := value.GetCounter(); n > 0 && n <= math.MaxUint8 {
			values = values.With(spec.Counter(n), value.GetN())
		}
	}
	return values
}

func taskSpreads(list spec.TaskSpreads) []*apiv1.TaskSpread {
	var spreads []*apiv1.TaskSpread
	for i := range list {
		spread := &list[i]
		spreads = append(spreads, &apiv1.TaskSpread{
			Kind:    uint32(spread.Kind),
			Tasks:   spread.Tasks,
			Sum:     spread.Sum,
			Min:     spread.Min,
			Max:     spread.Max,
			MinRank: spread.MinRank,
			MaxRank: spread.MaxRank,
			MinNode: spread.MinNode,
			MaxNode: spread.MaxNode,
		})
	}
	return spreads
}

func toTaskSpreads(list []*apiv1.TaskSpread) spec.TaskSpreads {
	var spreads spec.TaskSpreads
	for _, spread := range list {
		if n := spread.GetKind(); n == 0 || n > math.MaxUint8 {
			continue
		}
		spreads = append(spreads, spec.TaskSpread{
			Kind:    spec.TaskKind(spread.GetKind()),
			Tasks:   spread.GetTasks(),
			Sum:     spread.GetSum(),
			Min:     spread.GetMin(),
			Max:     spread.GetMax(),
			MinRank: spread.GetMinRank(),
			MaxRank: spread.GetMaxRank(),
			MinNode: spread.GetMinNode(),
			MaxNode: spread.GetMaxNode(),
		})
	}
	return spreads
}
