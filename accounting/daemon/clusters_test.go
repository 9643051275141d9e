package daemon_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/dashboards"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// panelAnswers asks every SQL of the boards for one cluster, of the jobs that it has.
func panelAnswers(t *testing.T, ask func(sql string) string, cluster string, from, to time.Time) map[string]any {
	out := map[string]any{}
	for _, board := range dashboards.All() {
		for _, row := range board.Rows {
			for _, panel := range row.Panels {
				for i, q := range panel.Queries {
					if q.Lang != dashboards.SQL {
						continue
					}
					scope := dashboards.Scope{From: from, To: to, Vars: map[string][]string{"cluster": {cluster}, "job": {"1"}}}
					sql, err := scope.Expand(q)
					if err != nil {
						t.Fatal(err)
					}
					var answer struct{ Data any }
					if err := json.Unmarshal([]byte(ask(sql+" FORMAT JSONCompact")), &answer); err != nil {
						t.Fatalf("%v: %s", err, sql)
					}
					out[fmt.Sprintf("%s/%s %d", board.UID, panel.Title, i)] = answer.Data
				}
			}
		}
	}
	return out
}

// TestClustersOfOneStore: three clusters write to one store, two of them with jobs of
// the same numbers and users of the same names. Every panel, the KPIs and sacct say of
// each what they say where it is alone.
func TestClustersOfOneStore(t *testing.T) {
	h, end := scenario(t)
	// Of runs that go on the panels say what is so now.
	h.State.Jobs.Range(func(_ uint64, job *state.Job) bool {
		if job.State == spec.Running {
			h.Finish(job.UID, spec.Usage{UserCPU: spec.Minute})
		}
		return true
	})
	ledger := newLedger(t)
	ledger.add(t, h.Log, 50)
	r := newRig(t, startEngine(t).Socket(), ledger)
	r.clock.set(end)
	r.start().stored(h.Log[len(h.Log)-1].Seq)
	c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", r.socket)
	}}}
	t.Cleanup(c.CloseIdleConnections)
	ask := func(sql string) string {
		t.Helper()
		resp, err := c.Post("http://engine/?database=muster", "text/plain", strings.NewReader(sql))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s, %v: %s\n%s", resp.Status, err, body, sql)
		}
		return string(body)
	}
	from, to := time.Unix(h.Log[0].At.Unix()-3600, 0), time.Unix(end.Unix(), 0)
	window := [2]int64{int64(h.Log[0].At) / 1000, int64(end) / 1000}
	said := func() (panels map[string]any, rows []*apiv1.AcctRow, kpis map[string]map[string]float64) {
		panels = panelAnswers(t, ask, "peer", from, to)
		rows = r.acct(&apiv1.AcctQuery{AllUsers: true, Start: window[0] * 1000, End: window[1] * 1000})
		kpis = r.kpisBy(t, window[0], window[1])
		return panels, rows, kpis
	}
	panels, rows, kpis := said()
	filled := 0
	for _, answer := range panels {
		if list, ok := answer.([]any); ok && len(list) > 0 {
			filled++
		}
	}
	if filled < 25 || len(rows) < 3 {
		t.Fatalf("%d of %d answers and %d rows hold anything: too little to compare", filled, len(panels), len(rows))
	}

	// What is of a cluster has its name, or the id of its ledger.
	const tables = "SELECT name FROM system.tables WHERE database = 'muster' AND engine LIKE '%MergeTree'"
	listed := ask("SELECT table, name FROM system.columns " +
		"WHERE database = 'muster' AND name IN ('cluster', 'ledger', 'job_id') AND table IN (" + tables + ") FORMAT TSV")
	columns := map[string][]string{}
	for _, line := range strings.Split(listed, "\n") {
		if table, column, ok := strings.Cut(line, "\t"); ok {
			columns[table] = append(columns[table], column)
		}
	}
	if len(columns) < 8 {
		t.Fatalf("tables with clusters: %v", columns)
	}
	peerLedger := ledgerText(t, ask)
	for cluster, other := range map[string]struct {
		ledger string
		shift  int
	}{"lab2": {"0b010203-0405-0607-0809-0a0b0c0d0e0f", 0}, "lab3": {"0c010203-0405-0607-0809-0a0b0c0d0e0f", 500}} {
		for table, has := range columns {
			var renamed []string
			for _, column := range has {
				switch column {
				case "cluster":
					renamed = append(renamed, "'"+cluster+"' AS cluster")
				case "ledger":
					renamed = append(renamed, "toUUID('"+other.ledger+"') AS ledger")
				case "job_id":
					renamed = append(renamed, fmt.Sprintf("job_id + %d AS job_id", other.shift))
				}
			}
			ofPeer := "ledger = toUUID('" + peerLedger + "')"
			if !slices.Contains(has, "ledger") {
				ofPeer = "cluster = 'peer'"
			}
			// The rows of the first cluster are stored again under the name of the other.
			rowsOfPeer := "SELECT * FROM muster." + table + " WHERE " + ofPeer
			copied := "SELECT * REPLACE(" + strings.Join(renamed, ", ") + ") FROM (" + rowsOfPeer + ")"
			insert := "INSERT INTO muster." + table + " " + copied
			if err := r.store.Exec(t.Context(), insert); err != nil {
				t.Fatalf("%v: %s", err, insert)
			}
		}
	}
	panelsOf3, rowsOf3, kpisOf3 := said()
	for name, want := range panels {
		if got := panelsOf3[name]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s\nalone:       %v\nwith others: %v", name, want, got)
		}
	}
	if len(rows) != len(rowsOf3) || !reflect.DeepEqual(kpis, kpisOf3) {
		t.Errorf("alone: %d rows, %v\nwith others: %d rows, %v", len(rows), kpis, len(rowsOf3), kpisOf3)
	}
	second := panelAnswers(t, ask, "lab2", from, to)
	for name, want := range panels {
		if got := second[name]; !reflect.DeepEqual(got, want) {
			t.Errorf("of the second cluster: %s\nis   %v\nwant %v", name, got, want)
		}
	}
}

// ledgerText is the id of the ledger of the cluster that is alone at first.
func ledgerText(t *testing.T, ask func(string) string) string {
	t.Helper()
	return strings.TrimSpace(ask("SELECT any(ledger) FROM jobs WHERE cluster = 'peer' FORMAT TSV"))
}
