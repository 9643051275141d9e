package clickhouse

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestReleasedSchema: the first version is what it was when it was released.
func TestReleasedSchema(t *testing.T) {
	want, err := os.ReadFile("testdata/schema-1.sql")
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	for _, l := range []Layout{{}, {Cluster: "c"}} {
		got += strings.Join(migrations(1, "muster", l), ";\n\n") + ";\n\n"
	}
	if got != string(want) {
		t.Error("version 1 of the schema has changed: stores that are out there have what testdata/schema-1.sql says, so a change is a version of its own")
	}
}

// TestUpgrade: a store of the first version with rows in it becomes one of this
// version with the same rows, also when the upgrade is broken off behind any
// of its statements.
func TestUpgrade(t *testing.T) {
	ctx := context.Background()
	engine := startEngine(t)
	steps := len(migrations(2, "x", Layout{}))
	for _, cut := range []int{0, 3, 4, 7, steps} {
		db := fmt.Sprintf("up%d", cut)
		s, err := Open(Options{Socket: engine.Socket(), Database: db})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		exec := func(list ...string) {
			for _, sql := range list {
				if err := s.conn.Exec(ctx, sql); err != nil {
					t.Fatalf("%v\n%s", err, sql)
				}
			}
		}
		head := 1 + len((&tableDef{}).create(db, Layout{}))
		exec(DDL(db, Layout{})[:head]...)
		exec(migrations(1, db, Layout{})...)
		exec("INSERT INTO " + db + ".schema_versions (version) VALUES (1)")
		const from = " SELECT toUUID('b0010203-0405-0607-0809-0a0b0c0d0e0f'), number, number * 7 % 5000, number, toDateTime64('2026-01-01 00:00:00', 6, 'UTC') + number * 3600 FROM numbers(5000)"
		for table, column := range map[string]string{"jobs": "end", "steps": "end", "job_nodes": "to", "job_gpus": "to"} {
			exec("INSERT INTO " + db + "." + table + " (ledger, seq, uid, job_id, `" + column + "`)" + from)
		}
		sums := func() (out string) {
			for table, column := range map[string]string{"jobs": "end", "steps": "end", "job_nodes": "to", "job_gpus": "to"} {
				out = one[string](t, s, fmt.Sprintf("SELECT concat('%s', '%s ', toString(count()), ' ', toString(sum(cityHash64(ledger, seq, uid, job_id, `%s`)))) FROM %s.%s", out, table, column, db, table))[len(out):]
				if !strings.Contains(out, " 5000 ") {
					t.Fatalf("%s", out)
				}
			}
			return one[string](t, s, fmt.Sprintf("SELECT toString(sum(cityHash64(uid, end))) FROM %s.jobs", db)) +
				one[string](t, s, fmt.Sprintf("SELECT toString(sum(cityHash64(uid, `to`))) FROM %s.job_gpus", db))
		}
		before := sums()
		exec(migrations(2, db, Layout{})[:cut]...)
		if cut < steps {
			if err := s.Migrate(ctx); err != nil {
				t.Fatalf("after %d statements: %v", cut, err)
			}
		} else if err := s.Migrate(ctx); err != nil { // all done, only not noted
			t.Fatal(err)
		}
		if after := sums(); after != before {
			t.Errorf("after %d statements: the rows were %s and are %s", cut, before, after)
		}
		if n := one[[]string](t, s, fmt.Sprintf("SELECT groupArray(name) FROM system.tables WHERE database = '%s' AND endsWith(name, '%s')", db, rebuiltSuffix)); len(n) != 0 {
			t.Errorf("after %d statements: %v are left over", cut, n)
		}
		for _, tab := range schema() {
			if got := one[string](t, s, fmt.Sprintf("SELECT concat('(', sorting_key, ')') FROM system.tables WHERE database = '%s' AND name = '%s'", db, tab.name)); got != "("+strings.Trim(tab.order, "()")+")" {
				t.Errorf("%s is sorted by %s, not %s", tab.name, got, tab.order)
			}
		}
		if v := one[uint32](t, s, "SELECT max(version) FROM "+db+".schema_versions"); v != SchemaVersion {
			t.Errorf("version %d was noted", v)
		}
		exec("DROP DATABASE " + db + " SYNC")
	}
}
