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

// upgradeTables are the tables that versions rewrite, with their instant.
func upgradeTables() map[string]string {
	return map[string]string{"jobs": "end", "steps": "end", "job_nodes": "to", "job_gpus": "to"}
}

// fillOne puts 5,000 rows into each of the tables of the first version, with
// every kind of value: NULL and not, words with the character that later
// versions put between words, devices that were measured and some that were not.
func fillOne(db string) []string {
	const from = " FROM numbers(5000)"
	const key = "toUUID('b0010203-0405-0607-0809-0a0b0c0d0e0f'), 'peer', number, number * 7 % 5000, number % 3, 1, number"
	const columns = "ledger, cluster, seq, uid, restarts, attempt, job_id"
	at := func(sql string) string {
		return "fromUnixTimestamp64Micro(toInt64(1767225600000000 + number * 3600123456 + " + sql + "), 'UTC')"
	}
	const owner = "concat('u', toString(number % 7)), if(number % 11 = 0, 'a\x1fb', 'acc')"
	share := columns + ", user, account, partition, qos, node, from, to, end"
	shared := key + ", " + owner + ", 'gpu', 'normal', concat('n', toString(number % 5)), " + at("0") + ", " + at("number % 77 * 1000001") + ", " + at("number % 78 * 1000001")
	return []string{
		"INSERT INTO " + db + ".jobs (" + columns + ", user, account, user_id, `group`, group_id, assoc, submit, eligible, start, end, suspended_us, elapsed_us, submit_line, gpu_uuids, alloc_cpus, name, node_list) SELECT " + key +
			", " + owner + ", number % 7 + 1000, 'staff', 50, number % 7, " + at("0") + ", if(number % 13 = 0, NULL, " + at("number % 5") + "), if(number % 10 = 0, NULL, " + at("5000001 * (number % 9)") + "), " + at("7000003 * (number % 9) + 11") +
			", number % 2, if(number % 10 = 0, 0, 2000002 * (number % 9) + 11 - number % 2), concat('sbatch -n', toString(number)), if(number % 4 = 0, [], ['GPU-1', concat('GPU-', toString(number))]), number, 'x', 'n1'" + from,
		"INSERT INTO " + db + ".steps (" + columns + ", step, name, user, account, start, end, user_cpu_us) SELECT " + key + ", -5, 'batch', " + owner + ", " + at("0") + ", " + at("17 * number") + ", number" + from,
		"INSERT INTO " + db + ".job_nodes (" + share + ", cpus, measured, peak_rss) SELECT " + shared + ", number, number % 2 = 0, if(number % 3 = 0, NULL, number)" + from,
		"INSERT INTO " + db + ".job_gpus (" + share + ", gpu_uuid, gpu_index, gpu_type, measured, no_process_us, idle_us, busy_us) SELECT " + shared + ", concat('GPU-', toString(number % 9)), number % 8, 'h100', number % 2 = 0, number * (number % 2 = 0), 5 * (number % 2 = 0), 7 * number * (number % 2 = 0)" + from,
	}
}

// TestUpgrade: a store of the first version with rows in it becomes one of this
// version that gives the same values for every column that there was, also
// when an upgrade is broken off behind any of its statements.
func TestUpgrade(t *testing.T) {
	ctx := context.Background()
	engine := startEngine(t)
	type cut struct{ version, statements int }
	last := len(migrations(4, "x", Layout{}))
	cuts := []cut{{2, 4}, {4, last/2 + 1}, {SchemaVersion, len(migrations(SchemaVersion, "x", Layout{}))}}
	for _, c := range cuts {
		db := fmt.Sprintf("up%d_%d", c.version, c.statements)
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
		exec("DROP DATABASE IF EXISTS " + db + " SYNC")
		exec(DDL(db, Layout{})[:head]...)
		exec(migrations(1, db, Layout{})...)
		exec("INSERT INTO " + db + ".schema_versions (version) VALUES (1)")
		exec(fillOne(db)...)
		sums := func() string {
			var out []string
			for _, tab := range schemaOne() {
				if upgradeTables()[tab.name] == "" {
					continue
				}
				parts := []string{"toString(count())"}
				for _, col := range tab.columns {
					// The character between words is taken out of words.
					parts = append(parts, fmt.Sprintf("concat('%s.%s ', toString(sum(cityHash64(uid, ifNull(replaceAll(toString(%s), '\\x1f', '?'), '-')))))", tab.name, col.name, quoteName(col.name)))
				}
				out = append(out, one[[]string](t, s, "SELECT ["+strings.Join(parts, ", ")+"] FROM "+db+"."+tab.name)...)
			}
			return strings.Join(out, "\n")
		}
		before := sums()
		for v := 2; v < c.version; v++ {
			exec(migrations(v, db, Layout{})...)
			exec(fmt.Sprintf("INSERT INTO %s.schema_versions (version) VALUES (%d)", db, v))
		}
		exec(migrations(c.version, db, Layout{})[:c.statements]...)
		if err := s.Migrate(ctx); err != nil {
			t.Fatalf("after %d statements of version %d: %v", c.statements, c.version, err)
		}
		if after := sums(); after != before {
			was, is := strings.Split(before, "\n"), strings.Split(after, "\n")
			for i := range was {
				if was[i] != is[i] {
					t.Errorf("after %d statements of version %d: %s became %s", c.statements, c.version, was[i], is[i])
				}
			}
		}
		if n := one[[]string](t, s, fmt.Sprintf("SELECT groupArray(name) FROM system.tables WHERE database = '%s' AND endsWith(name, '%s')", db, rebuiltSuffix)); len(n) != 0 {
			t.Errorf("after %d statements of version %d: %v are left over", c.statements, c.version, n)
		}
		for _, tab := range schema() {
			if got := one[string](t, s, fmt.Sprintf("SELECT concat('(', replaceAll(sorting_key, '`', ''), ')') FROM system.tables WHERE database = '%s' AND name = '%s'", db, tab.name)); got != "("+strings.Trim(tab.order, "()")+")" {
				t.Errorf("%s is sorted by %s, not %s", tab.name, got, tab.order)
			}
		}
		if v := one[uint32](t, s, "SELECT max(version) FROM "+db+".schema_versions"); v != SchemaVersion {
			t.Errorf("version %d was noted", v)
		}
		exec("DROP DATABASE " + db + " SYNC")
	}
}
