package dashboards_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/musterhpc/muster/collector"
	"github.com/musterhpc/muster/dashboards"
	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/nodeagent/telemetry"
)

// known gives every metric that Muster serves.
func known(t testing.TB) *catalogue.Catalogue {
	t.Helper()
	c, err := catalogue.New(collector.Metrics(), telemetry.Metrics(), catalogue.Kubernetes())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// prometheusOwn are the series that Prometheus makes itself, with their labels
// (nil: any).
var prometheusOwn = map[string][]string{
	"up": {}, "scrape_duration_seconds": {}, "scrape_samples_scraped": {},
	"ALERTS": {"alertname", "alertstate", "severity", "cluster", "node"}, "ALERTS_FOR_STATE": {"alertname", "severity", "cluster", "node"},
}

// byTarget are labels that the scrape adds to every series; cluster to those
// of GPUs, where deploy/prometheus and deploy/vmagent are used.
var byTarget = []string{"job", "instance", "cluster"}

var scope = dashboards.Scope{
	Vars: map[string][]string{"cluster": {"lab"}, "partition": {"gpu", `a"b\c`}, "job": {"42"}},
	From: time.Unix(1_800_000_000, 0), To: time.Unix(1_800_021_600, 0),
}

// queries calls visit for each query of each panel.
func queries(t *testing.T, visit func(t *testing.T, b dashboards.Board, p dashboards.Panel, q dashboards.Query)) {
	for _, b := range dashboards.All() {
		for _, r := range b.Rows {
			for _, p := range r.Panels {
				for _, q := range p.Queries {
					t.Run(b.UID+"/"+p.Title, func(t *testing.T) { visit(t, b, p, q) })
				}
			}
		}
	}
}

// TestClosedWorld holds every series and label of every PromQL against the
// catalogue.
func TestClosedWorld(t *testing.T) {
	cat := known(t)
	used := map[string]bool{}
	queries(t, func(t *testing.T, _ dashboards.Board, p dashboards.Panel, q dashboards.Query) {
		if q.Lang == dashboards.SQL {
			return
		}
		text, err := scope.Expand(q)
		if err != nil {
			t.Fatal(err)
		}
		checkProm(t, cat, text, used)
		if v := regexp.MustCompile(`vector\(|^[0-9. ]+$`).FindString(text); v != "" {
			t.Errorf("%q in %s: a constant is not a measurement", v, text)
		}
	})
	if len(used) < 60 {
		t.Errorf("only %d series are shown on any dashboard", len(used))
	}
}

// checkProm parses an expression and looks up its series and labels.
func checkProm(t *testing.T, cat *catalogue.Catalogue, text string, used map[string]bool) {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		v, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		name := v.Name
		have, own := prometheusOwn[name]
		if !own {
			m, ok := cat.Resolve(name)
			if !ok {
				t.Errorf("%s is in no catalogue: %s", name, text)
				return nil
			}
			have = m.Labels
			if m.Type == catalogue.Histogram {
				have = append(slices.Clone(have), "le")
			}
			if (m.Type == catalogue.Counter || name != m.Name) && !inRate(expr, v) && !strings.Contains(text, " > 0") && !accumulates(name) {
				t.Errorf("the counter %s is shown as it stands; rate or increase it: %s", name, text)
			}
		}
		used[name] = true
		for _, l := range v.LabelMatchers {
			if l.Name != labels.MetricName && !slices.Contains(have, l.Name) && !slices.Contains(byTarget, l.Name) {
				t.Errorf("%s has no label %s: %s", name, l.Name, text)
			}
		}
		return nil
	})
}

// accumulates tells counters whose total is what is asked for.
func accumulates(name string) bool {
	return slices.Contains([]string{"muster_job_gpu_seconds_total", "muster_job_gpu_energy_joules_total", "muster_job_oom_kills_total", "muster_controller_invariant_failures_total",
		"DCGM_FI_DEV_ECC_DBE_AGG_TOTAL", "DCGM_FI_DEV_ECC_SBE_AGG_TOTAL", "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"}, name)
}

// inRate tells whether a selector stands in a range.
func inRate(expr parser.Expr, v *parser.VectorSelector) bool {
	found := false
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		if m, ok := n.(*parser.MatrixSelector); ok && m.VectorSelector == v {
			found = true
		}
		return nil
	})
	return found
}

// TestPanels holds every panel to what the reader may expect.
func TestPanels(t *testing.T) {
	uids := map[string]dashboards.Board{}
	for _, b := range dashboards.All() {
		if _, twice := uids[b.UID]; twice {
			t.Errorf("two dashboards have the UID %s", b.UID)
		}
		uids[b.UID] = b
	}
	metricsQL := 0
	for _, b := range uids {
		vars := map[string]bool{}
		for _, v := range b.Vars {
			vars[v.Name] = true
			if v.Query == "" || v.Label == "" {
				t.Errorf("%s: the variable %s has no query or label", b.UID, v.Name)
			}
		}
		for _, r := range b.Rows {
			titles := map[string]bool{}
			for _, p := range r.Panels {
				where := b.UID + "/" + p.Title
				if titles[p.Title] {
					t.Errorf("%s stands twice in its row", where)
				}
				titles[p.Title] = true
				if len(p.Description) < 12 || !strings.HasSuffix(p.Description, ".") && !strings.HasSuffix(p.Description, "`.") && !strings.HasSuffix(p.Description, "?") {
					t.Errorf("%s has no description that is a sentence: %q", where, p.Description)
				}
				if p.Unit == "" || len(p.Queries) == 0 {
					t.Errorf("%s has no unit or no query", where)
				}
				if !slices.IsSortedFunc(p.Steps, func(a, b dashboards.Step) int { return cmp.Compare(a.From, b.From) }) {
					t.Errorf("%s: thresholds out of order", where)
				}
				for _, l := range p.Links {
					if l.URL != "" {
						if !strings.Contains(l.URL, "%s") || l.Title == "" || l.Label == "" {
							t.Errorf("%s links to %s without a value, a title or a label", where, l.URL)
						}
						continue
					}
					target, ok := uids[l.Board]
					if !ok || l.Var != "" && !slices.ContainsFunc(target.Vars, func(v dashboards.Var) bool { return v.Name == l.Var }) {
						t.Errorf("%s links to %s with the variable %q, which is not there", where, l.Board, l.Var)
					}
				}
				for _, q := range p.Queries {
					if q.Lang == dashboards.MetricsQL {
						metricsQL++
					}
					for _, m := range regexp.MustCompile(`\$\{?([a-z][a-z]*)`).FindAllStringSubmatch(q.Expr, -1) {
						if !vars[m[1]] {
							t.Errorf("%s uses $%s, which the dashboard does not have", where, m[1])
						}
					}
				}
			}
		}
	}
	if metricsQL == 0 {
		t.Error("no panel is in MetricsQL")
	}
}

// TestEveryPanelHasAMove: the table of moves and the panels are one to one,
// and every action moves something.
func TestEveryPanelHasAMove(t *testing.T) {
	key := func(board, row, panel string) string { return board + " / " + row + " / " + panel }
	moves, used, still := map[string]dashboards.Move{}, map[dashboards.Action]int{}, 0
	for _, m := range dashboards.Moves() {
		k := key(m.Board, m.Row, m.Panel)
		if _, twice := moves[k]; twice {
			t.Errorf("%s is moved twice", k)
		}
		moves[k] = m
		if m.Action == "" {
			still++
			if len(m.Why) < 20 {
				t.Errorf("%s is moved by nothing, and %q is no reason", k, m.Why)
			}
			continue
		}
		used[m.Action]++
		if m.Way != dashboards.Up && m.Way != dashboards.Down {
			t.Errorf("%s has no direction", k)
		}
	}
	for _, b := range dashboards.All() {
		for _, r := range b.Rows {
			for _, p := range r.Panels {
				k := key(b.UID, r.Title, p.Title)
				if _, ok := moves[k]; !ok {
					t.Errorf("%s has no move", k)
				}
				delete(moves, k)
			}
		}
	}
	for k := range moves {
		t.Errorf("%s is moved, but there is no such panel", k)
	}
	listed := 0
	for _, d := range dashboards.Actions() {
		listed++
		if used[d.Action] == 0 || len(d.What) < 12 {
			t.Errorf("the action %s moves %d panels: %s", d.Action, used[d.Action], d.What)
		}
	}
	if listed != len(used) || still > 4 {
		t.Errorf("%d actions listed, %d used; %d panels that nothing moves", listed, len(used), still)
	}
}

// TestExpandAsGrafana: the built-in variables become what Grafana's own
// library made of them, which test/grafana has on record.
func TestExpandAsGrafana(t *testing.T) {
	data, err := os.ReadFile("testdata/promlib.json")
	if err != nil {
		t.Fatal(err)
	}
	recorded := map[string]bool{}
	for d := json.NewDecoder(bytes.NewReader(data)); d.More(); {
		var a struct {
			Range, Scrape, Step, Expr, Out string
			Points                         int64
		}
		if err := d.Decode(&a); err != nil {
			t.Fatal(err)
		}
		recorded[a.Expr] = true
		s := dashboards.Scope{Vars: scope.Vars, To: scope.To, From: scope.To.Add(-span(t, a.Range)), Step: span(t, a.Step), Scrape: span(t, a.Scrape)}
		ours, err := s.Expand(dashboards.Query{Expr: a.Expr})
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := s.Expand(dashboards.Query{Expr: a.Out}) // only the choices at the top are left, which Grafana's pages fill in
		if err != nil {
			t.Fatal(err)
		}
		if got, want := parsed(t, ours), parsed(t, theirs); got != want {
			t.Errorf("over %s with %d points\ngot  %s\nwant %s", a.Range, a.Points, got, want)
		}
	}
	queries(t, func(t *testing.T, _ dashboards.Board, _ dashboards.Panel, q dashboards.Query) {
		if q.Lang != dashboards.SQL && strings.Contains(q.Expr, "$__") && !recorded[q.Expr] {
			t.Errorf("Grafana's library was not asked about %s: run make grafana UPDATE_GOLDEN=1", q.Expr)
		}
	})
}

func span(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// parsed writes an expression in the one way in which PromQL prints it.
func parsed(t *testing.T, text string) string {
	t.Helper()
	expr, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return expr.String()
}

// TestExpand: label values mean themselves, whatever is in them, and the
// macros become what the data sources make of them.
func TestExpand(t *testing.T) {
	s := dashboards.Scope{Vars: map[string][]string{"user": {"o'brien", `a"b`}, "one": {"a.b\n\U0001F600"}}, From: time.Unix(100, 0), To: time.Unix(3700, 0), Step: 30 * time.Second}
	for _, tc := range []struct {
		lang     dashboards.Language
		in, want string
	}{
		{dashboards.PromQL, `x{user=~"$user"}`, `x{user=~"(o'brien|a\"b)"}`},
		{dashboards.PromQL, `x{one=~"$one"}`, `x{one=~"a\\.b\n` + "\U0001F600" + `"}`},
		{dashboards.PromQL, `x{all=~"$all"}`, `x{all=~".*"}`},
		{dashboards.PromQL, `rate(x[$__rate_interval]) + increase(x[$__range]) + y[$__interval]`, `rate(x[60s]) + increase(x[3600s]) + y[30s]`},
		{dashboards.SQL, `user IN (${user:singlequote})`, `user IN ('o\'brien','a"b')`},
		{dashboards.SQL, `$__conditionalAll(user IN (${user:singlequote}), $user)`, `user IN ('o\'brien','a"b')`},
		{dashboards.SQL, `$__conditionalAll(a IN (${all:singlequote}), $all)`, `1 = 1`},
		{dashboards.SQL, `$__timeFilter(end)`, `end >= toDateTime(100) AND end <= toDateTime(3700)`},
		{dashboards.SQL, `$__timeInterval(end)`, `toStartOfInterval(toDateTime(end), INTERVAL 30 second)`},
	} {
		got, err := s.Expand(dashboards.Query{Expr: tc.in, Lang: tc.lang})
		if err != nil || got != tc.want {
			t.Errorf("%s\ngot  %s (%v)\nwant %s", tc.in, got, err, tc.want)
		}
	}
	for _, bad := range []dashboards.Query{{Expr: "$user", Lang: dashboards.SQL}, {Expr: "$__nosuch(a)", Lang: dashboards.SQL}, {Expr: "${user:csv}"}} {
		if got, err := s.Expand(bad); err == nil {
			t.Errorf("%s was taken: %s", bad.Expr, got)
		}
	}
}

// TestTablesAreHeaded: a figure of Prometheus in a table stands under a word
// that says what it is, and a state panel says up and down.
func TestTablesAreHeaded(t *testing.T) {
	queries(t, func(t *testing.T, _ dashboards.Board, p dashboards.Panel, q dashboards.Query) {
		if p.Kind == dashboards.Table && q.Lang != dashboards.SQL && (p.Column == "" || p.Column == dashboards.ValueColumn) {
			t.Errorf("the figure of %s has no heading", p.Title)
		}
		if strings.Contains(strings.ToLower(p.Description), "1 while") && !p.UpDown {
			t.Errorf("%s explains 1 and 0 instead of saying up and down", p.Title)
		}
	})
}
