package daemon_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/accounting/query"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// second is one, in microseconds.
const second = int64(1_000_000)

// storedBy asks a stored view for figures by user: one map for each, without
// those that are missing.
func (r *rig) storedBy(t *testing.T, view string, from, until int64, figures map[string]string) map[string]map[string]float64 {
	t.Helper()
	var columns []string
	names := slices.Sorted(maps.Keys(figures))
	cells := make([]*float64, len(names))
	var user string
	dest := []any{&user}
	out := map[string]map[string]float64{}
	for i, name := range names {
		columns = append(columns, "toNullable(toFloat64("+figures[name]+"))")
		dest = append(dest, &cells[i])
		out[name] = map[string]float64{}
	}
	text := fmt.Sprintf("SELECT toString(user), %s FROM `%s`.%s(cluster = 'peer', from = %d, until = %d) GROUP BY user",
		strings.Join(columns, ", "), r.store.Database(), view, from/second, until/second)
	err := r.store.Query(t.Context(), query.Query{SQL: text}, func(scan func(...any) error) error {
		if err := scan(dest...); err != nil {
			return err
		}
		for i, v := range cells {
			if v != nil && !math.IsNaN(*v) && !math.IsInf(*v, 0) {
				out[names[i]][user] = *v
			}
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return out
}

// kpisBy gives every figure of `muster kpi` by user.
func (r *rig) kpisBy(t *testing.T, from, until int64) map[string]map[string]float64 {
	t.Helper()
	reply, err := r.Service().Report(t.Context(), &apiv1.ReportQuery{Report: "kpi", By: string(kpi.ByUser), Start: from * 1000, End: until * 1000})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]map[string]float64{}
	for i, col := range reply.GetColumns() {
		out[col.GetName()] = map[string]float64{}
		for _, row := range reply.GetRows() {
			if c := row.GetCells()[i]; i > 0 && !c.GetNull() {
				out[col.GetName()][row.GetCells()[0].GetText()] = c.GetFloat()
			}
		}
	}
	return out
}

// boardFigures are what the boards make of the columns of the stored views, by
// the name of the KPI that says the same.
func boardFigures(hours float64) map[string]map[string]string {
	const judged = "sumIf(count, ended_in AND (state = 'COMPLETED' OR state IN " + kpi.Failed + "))"
	const failed = "ended_in AND state IN " + kpi.Failed
	return map[string]map[string]string{
		"runs_within": {
			"throughput":     fmt.Sprintf("sumIf(count, ended_in AND isNotNull(start)) / %v", hours),
			"failure_rate":   "sumIf(count, " + failed + ") / nullIf(" + judged + ", 0)",
			"lost_gpu_hours": "sumIf(gpu_held_us, " + failed + ") / 3.6e9",
			"wait_p95":       "if(countIf(started_in) = 0, NULL, quantilesExactIf(0.5, 0.95, 0.99)(wait_s, started_in)[2])",
		},
		"nodes_within": {
			"cpu_efficiency":     "sum(cpu_s) / nullIf(sum(cpu_held_s), 0)",
			"memory_waste":       "sum(mem_wasted_byte_s) / 3600",
			"memory_waste_share": "sum(mem_wasted_byte_s) / nullIf(sum(mem_held_byte_s), 0)",
		},
		"gpus_within": {
			"gpu_occupancy":  "sum(util_s) / nullIf(sum(held_s), 0)",
			"gpu_efficiency": "sum(sm_s) / nullIf(sumIf(held_s, sm_s IS NOT NULL), 0)",
			"gpu_idle":       "sum(no_process_s + idle_s) / 3600",
		},
		"gpu_runs_within": {
			"gpu_idle": "sum(no_process_s + idle_s) / 3600",
		},
	}
}

// checkStored: the stored views, from which Grafana's tables are made, give what
// `muster kpi` gives, and hold what a loop over the events says.
func checkStored(t *testing.T, r *rig, p *plain, from, until int64) {
	t.Helper()
	from, until = from/second*second, until/second*second
	if from >= until {
		return
	}
	want := r.kpisBy(t, from, until)
	for view, figures := range boardFigures(float64(until-from) / 3.6e9) {
		for name, got := range r.storedBy(t, view, from, until, figures) {
			nearly(t, fmt.Sprintf("%s of %s in [%d, %d)", name, view, from, until), got, want[name])
		}
	}
	if p == nil {
		return
	}
	held := map[string]*sums{}
	for _, pr := range p.runs {
		s := held[pr.spec.User]
		if s == nil {
			s = &sums{from: from, to: until, failed: map[string]int64{}, lost: map[string]float64{}}
			held[pr.spec.User] = s
		}
		p.run(s, pr)
	}
	cpus, gpus := map[string]float64{}, map[string]float64{}
	for user, s := range held {
		if s.any {
			cpus[user], gpus[user] = s.cpuAlloc/3600, s.gpuAlloc/3600
		}
	}
	got := r.storedBy(t, "runs_within", from, until, map[string]string{"cpus": "sum(cpu_held_us) / 3.6e9", "gpus": "sum(gpu_held_us) / 3.6e9"})
	nearly(t, fmt.Sprintf("CPU-hours of runs_within in [%d, %d)", from, until), got["cpus"], cpus)
	nearly(t, fmt.Sprintf("GPU-hours of runs_within in [%d, %d)", from, until), got["gpus"], gpus)
}

func nearly(t *testing.T, what string, got, want map[string]float64) {
	t.Helper()
	for user, v := range want {
		if g, ok := got[user]; !ok || math.Abs(g-v) > 1e-6*max(1, math.Abs(v)) {
			t.Errorf("%s: %s has %v (%v), want %v", what, user, g, ok, v)
		}
	}
	for user, v := range got {
		if _, ok := want[user]; !ok {
			t.Errorf("%s: %s has %v, want none", what, user, v)
		}
	}
}

// lastEvent is when the newest event of a ledger was, in microseconds: the views
// know no later now where the engine's clock is behind it.
func (l *memLedger) lastEvent() int64 {
	_, at := l.Head()
	return int64(at) / int64(spec.Microsecond)
}
