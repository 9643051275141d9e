package exporting

import (
	"testing"

	"github.com/musterhpc/muster/accounting/kpi"
)

// TestObjectiveOfGoodputCountsOpenRuns: a cluster full of runs that take days keeps its
// objective; what failed or was not held does not count.
func TestObjectiveOfGoodputCountsOpenRuns(t *testing.T) {
	day := func(name string, value float64) kpi.Value {
		return kpi.Value{KPI: name, By: kpi.ByCluster, Window: "1d", Value: value}
	}
	values := []kpi.Value{
		day("goodput", 0.04), day("gpu_bought", 100), day("gpu_ladder_good", 4),
		day("gpu_ladder_open", 81), day("gpu_ladder_cancelled", 10),
		{KPI: "gpu_bought", By: kpi.ByCluster, Window: "7d", Value: 700},
	}
	if got := dayGoodput(values); got != 0.85 {
		t.Errorf("the objective sees %v of the GPU time, want 0.85", got)
	}
	if got := dayGoodput(nil); got != -1 {
		t.Errorf("without figures it is %v, want -1", got)
	}
}
