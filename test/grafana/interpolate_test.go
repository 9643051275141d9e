package grafana

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/grafana/grafana-plugin-sdk-go/backend"
	"github.com/grafana/grafana/pkg/promlib/intervalv2"
	"github.com/grafana/grafana/pkg/promlib/models"
	"go.opentelemetry.io/otel/trace/noop"
)

// recorded is what Grafana made of the dashboards' queries; the tests of
// dashboards read it without this module.
const recorded = "../../dashboards/testdata/promlib.json"

// answer is one interpolation.
type answer struct {
	Range  string `json:"range"`  // of the dashboard
	Points int64  `json:"points"` // that the panel has room for
	Scrape string `json:"scrape"` // scrape interval that the data source is set to
	Step   string `json:"step"`
	Expr   string `json:"expr"`
	Out    string `json:"out"`
}

// view is how a dashboard is looked at.
type view struct {
	long   time.Duration
	points int64
	scrape string
}

// TestInterpolation has Grafana's library interpolate every query of every
// dashboard that uses a built-in variable. UPDATE_GOLDEN=1 records the
// answers; otherwise they must be those on record.
func TestInterpolation(t *testing.T) {
	var got []answer
	for _, target := range targets(t) {
		for _, v := range []view{{5 * time.Minute, 1000, "15s"}, {6 * time.Hour, 800, "15s"}, {7 * 24 * time.Hour, 600, "15s"}, {24 * time.Hour, 1000, "1m"}} {
			got = append(got, ask(t, target, v))
		}
	}
	if len(got) < 40 {
		t.Fatalf("only %d interpolations: the dashboards were not read", len(got))
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	for _, a := range got {
		if err := e.Encode(a); err != nil {
			t.Fatal(err)
		}
	}
	if os.Getenv("UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(recorded, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(recorded)
	if err != nil || !bytes.Equal(have, b.Bytes()) {
		t.Errorf("%s is not what Grafana's library says (%v): run make grafana UPDATE_GOLDEN=1 and the tests of dashboards", recorded, err)
	}
}

// ask interpolates as Grafana's data source of Prometheus does it.
func ask(t *testing.T, target []byte, v view) answer {
	t.Helper()
	to := time.Unix(1_800_000_000, 0)
	times := backend.TimeRange{From: to.Add(-v.long), To: to}
	calculator := intervalv2.NewCalculator()
	scrape, err := time.ParseDuration(v.scrape)
	if err != nil {
		t.Fatal(err)
	}
	q, err := models.Parse(noop.Span{}, backend.DataQuery{RefID: "A", JSON: target, TimeRange: times, MaxDataPoints: v.points,
		Interval: calculator.Calculate(times, scrape, v.points).Value}, v.scrape, calculator, false, false)
	if err != nil {
		t.Fatalf("Grafana refuses %s: %v", target, err)
	}
	var raw struct{ Expr string }
	if err := json.Unmarshal(target, &raw); err != nil {
		t.Fatal(err)
	}
	return answer{v.long.String(), v.points, v.scrape, q.Step.String(), raw.Expr, q.Expr}
}

// targets are the queries of Prometheus that use a built-in variable, each
// expression once, as Grafana has them in a panel.
func targets(t *testing.T) [][]byte {
	t.Helper()
	files, err := filepath.Glob("../../dashboards/generated/*.json")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	var out [][]byte
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var d struct {
			Panels []struct {
				Targets []json.RawMessage
			}
		}
		if err := json.Unmarshal(data, &d); err != nil {
			t.Fatal(err)
		}
		for _, p := range d.Panels {
			for _, raw := range p.Targets {
				var q struct{ Expr string }
				if err := json.Unmarshal(raw, &q); err != nil {
					t.Fatal(err)
				}
				if strings.Contains(q.Expr, "$__") && !seen[q.Expr] {
					seen[q.Expr] = true
					out = append(out, raw)
				}
			}
		}
	}
	return out
}
