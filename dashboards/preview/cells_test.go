package preview

import (
	"testing"

	"github.com/musterhpc/muster/dashboards"
)

// TestUnits: a unit that follows a figure gets no other prefix, an instant is
// written to the second, and one figure is read from a table too.
func TestUnits(t *testing.T) {
	for _, tc := range []struct {
		v    float64
		unit dashboards.Unit
		want string
	}{{1020, dashboards.KgCO2, "1020 kg CO2e"}, {1.0204, dashboards.KgCO2, "1.02 kg CO2e"}, {2730.4, dashboards.GPUHours, "2730 GPU-h"}, {1500, dashboards.Count, "1.5 k"}} {
		if got := Text(tc.v, tc.unit); got != tc.want {
			t.Errorf("%v in %s: %q, want %q", tc.v, tc.unit, got, tc.want)
		}
	}
	p := dashboards.Panel{Units: map[string]dashboards.Unit{"start": dashboards.When}, Cells: []dashboards.Word{{Name: "idle", Color: "#123456"}}}
	cells := cellsOf(p, Data{Columns: []string{"start", "0"}, Rows: [][]any{{"2026-11-23 10:00:00.123456", "idle alice 7"}}})
	if cells[0][0].Text != "2026-11-23 10:00:00" || cells[0][1].Color != "#123456" {
		t.Errorf("%+v", cells)
	}
	if v, ok := (Data{Rows: [][]any{{"x", 0.5}}}).First(); !ok || v != 0.5 {
		t.Errorf("%v %v", v, ok)
	}
}
