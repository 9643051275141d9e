package clickhouse

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	"github.com/musterhpc/muster/spec"
)

// TestSampleView: the view of samples shows every column of the table but
// those that say whose ledger it is.
func TestSampleView(t *testing.T) {
	var table, view []string
	for _, c := range samplesDef().columns {
		if c.name != "ledger" && c.name != "cluster" {
			table = append(table, c.name)
		}
	}
	for _, v := range query.Views() {
		if v.Name == samplesTable {
			for _, c := range v.Columns {
				view = append(view, c.Name)
			}
		}
	}
	has := func(list []string, name string) bool {
		return strings.Contains(" "+strings.Join(list, " ")+" ", " "+name+" ")
	}
	for _, name := range table {
		if !has(view, name) {
			t.Errorf("the view lacks %s", name)
		}
	}
	if len(view) != len(table) {
		t.Errorf("table %v, view %v", table, view)
	}
}

// TestSamples: what is put is there, what was not measured is NULL, a number
// too large for its column is the largest, and what is sent twice is one row
// after a merge.
func TestSamples(t *testing.T) {
	ctx := context.Background()
	s := openStore(t, startEngine(t).Socket(), "smp")
	const t0 = 1_795_000_000
	var rows []tally.GPUSample
	for i := range 100 {
		r := tally.GPUSample{At: t0 + int64(i)*10, Node: "n1", UUID: "GPU-a", Index: 3, UID: 7, Attempt: 1, JobID: 12, User: "alice", Account: "ml", Partition: "gpu", Seconds: 10}
		for k := range r.Values {
			r.Values[k] = tally.NotMeasured
		}
		r.Values[0], r.Values[8], r.Values[20] = int64(i), 70_000, int64(i/50)
		rows = append(rows, r)
	}
	for range 2 {
		if err := s.PutSamples(ctx, tallytest.LedgerID, "peer", rows); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Exec(ctx, "OPTIMIZE TABLE smp.gpu_samples FINAL"); err != nil {
		t.Fatal(err)
	}
	got := one[string](t, s, "SELECT concat(toString(count()), ' ', toString(sum(util)), ' ', toString(count(sm)), ' ', toString(max(power_w)), ' ', toString(sum(processes)), ' ', any(user)) FROM smp.gpu_samples")
	if got != "100 4950 0 65535 50 alice" {
		t.Errorf("%s", got)
	}
	sc := query.Scope{Database: "smp", Ledger: tallytest.LedgerID, Now: spec.AtUnix(t0 + 2000)}
	var text []string
	err := s.Query(ctx, query.GPUHistory(sc, 7, 1, spec.AtUnix(t0), spec.AtUnix(t0+990), 500), func(scan func(...any) error) error {
		var node, uuid, profile string
		var index, slot uint32
		var n uint64
		var util, sm, tensor, mem, power, temp, busy *float64
		if err := scan(&node, &index, &uuid, &profile, &slot, &n, &util, &sm, &tensor, &mem, &power, &temp, &busy); err != nil {
			return err
		}
		text = append(text, fmt.Sprintf("%s %d %s slot %d: %d util %v sm %v busy %v", node, index, uuid, slot, n, *util, sm, *busy))
		return nil
	})
	if want := "n1 3 GPU-a slot 0: 50 util 24.5 sm <nil> busy 0|n1 3 GPU-a slot 1: 50 util 74.5 sm <nil> busy 1"; err != nil || strings.Join(text, "|") != want {
		t.Errorf("%v\n%s\n%s", err, strings.Join(text, "|"), want)
	}
	ttl := func() string {
		return one[string](t, s, "SELECT extract(create_table_query, 'TTL [^)]*') FROM system.tables WHERE database = 'smp' AND name = 'gpu_samples'")
	}
	for _, tc := range []struct {
		keep spec.Span
		want string
	}{{30 * spec.Day, "2592000"}, {30 * spec.Day, "2592000"}, {spec.Day, "86400"}, {spec.Infinite, ""}, {spec.Infinite, ""}} {
		if err := s.KeepSamples(ctx, tc.keep); err != nil {
			t.Fatal(err)
		}
		if got := ttl(); !strings.Contains(got, tc.want) || (tc.want == "") != (got == "") {
			t.Errorf("kept for %v: %q", tc.keep, got)
		}
	}
}
