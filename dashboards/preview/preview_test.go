package preview_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/dashboards"
	"github.com/musterhpc/muster/dashboards/preview"
)

// nasty is a label value that would end a script, an attribute and a text.
const nasty = "</script><b>\" '\U0001F600\n"

// TestPage draws panels of every kind from what engines answer, with label
// values that must not get out of their place.
func TestPage(t *testing.T) {
	prom := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err != nil {
			t.Error(err)
		}
		if strings.Contains(r.Form.Get("query"), "broken") {
			http.Error(w, "parse error", http.StatusBadRequest)
			return
		}
		name := fmt.Sprintf("%q", nasty)
		name = strings.ReplaceAll(strings.ReplaceAll(name, `\U0001f600`, "\U0001F600"), `\x`, `\u00`)
		if strings.HasSuffix(r.URL.Path, "query_range") {
			if r.Form.Get("query") == "zero" {
				fmt.Fprint(w, `{"data":{"result":[{"metric":{},"values":[[1000,"0"],[1060,"0"]]}]}}`)
				return
			}
			fmt.Fprintf(w, `{"data":{"result":[{"metric":{"node":%s},"values":[[1000,"1"],[1060,"NaN"],[1120,"3"]]}]}}`, name)
			return
		}
		fmt.Fprintf(w, `{"data":{"result":[{"metric":{"node":%s},"value":[1120,"0.5"]}]}}`, name)
	}))
	defer prom.Close()
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"meta":[{"name":"user","type":"String"},{"name":"bytes","type":"UInt64"}],"data":[["ada","2048"]]}`)
	}))
	defer store.Close()
	q := []dashboards.Query{{Expr: "up", Legend: "{{node}}"}}
	panel := func(k dashboards.Kind, queries []dashboards.Query, u dashboards.Unit) dashboards.Panel {
		return dashboards.Panel{Title: string(k), Kind: k, Unit: u, Queries: queries, Units: map[string]dashboards.Unit{"bytes": dashboards.Bytes}}
	}
	board := dashboards.Board{UID: "b", Title: "Muster / B", Rows: []dashboards.Row{{Title: "r", Panels: []dashboards.Panel{
		panel(dashboards.Stat, q, dashboards.Ratio), panel(dashboards.Bars, q, dashboards.Seconds), panel(dashboards.Table, q, dashboards.Count), panel(dashboards.HeatMap, q, dashboards.Percent),
		panel(dashboards.States, q, dashboards.Count), panel(dashboards.Lines, q, dashboards.Count), panel(dashboards.Stack, q, dashboards.Count),
		panel(dashboards.Table, []dashboards.Query{{Expr: "SELECT 1", Lang: dashboards.SQL}}, dashboards.Count),
		panel(dashboards.Lines, []dashboards.Query{{Expr: "broken"}}, dashboards.Count),
		{Title: "figure", Kind: dashboards.Table, Column: "how much", Queries: q}, {Title: "labels", Kind: dashboards.Table, Column: dashboards.Hidden, Queries: q},
		{Title: "service", Kind: dashboards.States, UpDown: true, Queries: []dashboards.Query{{Expr: "zero", Legend: "x"}}},
		{Title: "layers", Kind: dashboards.Stack, Queries: []dashboards.Query{{Expr: "zero", Legend: "never there"}, {Expr: "up", Legend: "there"}}},
	}}}}
	scope := dashboards.Scope{From: time.Unix(1000, 0), To: time.Unix(1120, 0), Step: time.Minute}
	var out bytes.Buffer
	results, err := preview.Page{Boards: []dashboards.Board{board}, Scope: scope, Source: preview.Source{Prometheus: prom.URL, ClickHouse: store.URL, Database: "m"}.Open()}.Write(context.Background(), &out)
	if err != nil || len(results) != 13 {
		t.Fatalf("%v %+v", err, results)
	}
	for i, r := range results {
		if (r.Err != nil) != (i == 8) || r.Empty {
			t.Errorf("%+v", r)
		}
	}
	page := out.String()
	for _, want := range []string{"50.0 %", "500 ms", "2 KiB", "ada", "parse error", `<th>how much</th>`, `title="down"`, `"names":["there"]`, `"running":"#73bf69"`, `"names":["\u003c/script\u003e`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %s", want)
		}
	}
	for _, bad := range []string{"</script><b>", "ZgotmplZ", "NaN", "never there", "<th>-</th>"} {
		if strings.Contains(page[strings.Index(page, "<body>"):], bad) {
			t.Errorf("the page has %s", bad)
		}
	}
}

// TestRunningJob: the page shows a job that runs now, not the last that ever
// ran, and job 0 where none does.
func TestRunningJob(t *testing.T) {
	for _, tc := range []struct{ gpus, cpus, want string }{{"12", "9", "12"}, {"", "9", "9"}, {"", "", "0"}} {
		prom := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			job := tc.cpus
			if strings.Contains(r.FormValue("query"), "gpu_seconds") {
				job = tc.gpus
			}
			if !strings.HasSuffix(r.URL.Path, "/query") || !strings.Contains(r.FormValue("query"), `cluster="lab"`) {
				t.Errorf("asked %s %s: only what is now tells what runs", r.URL.Path, r.FormValue("query"))
			}
			if job == "" {
				fmt.Fprint(w, `{"data":{"result":[]}}`)
				return
			}
			fmt.Fprintf(w, `{"data":{"result":[{"metric":{"slurm_job_id":%q},"value":[1120,"5"]}]}}`, job)
		}))
		got, err := preview.Source{Prometheus: prom.URL}.Open().RunningJob(t.Context(), dashboards.Scope{Vars: map[string][]string{"cluster": {"lab"}}, To: time.Unix(1120, 0)})
		prom.Close()
		if err != nil || got != tc.want {
			t.Errorf("%+v: job %q, %v", tc, got, err)
		}
	}
}
