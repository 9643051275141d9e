package clickhouse

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/accounting/tally/tallytest"
	"github.com/musterhpc/muster/spec"
)

// TestSampleView: the view of samples shows every column of the table but
// those that say whose ledger it is.
func TestSampleView(t *testing.T) {
	for _, def := range []tableDef{samplesDef(), usageDef()} {
		checkSampleView(t, def)
	}
}

func checkSampleView(t *testing.T, def tableDef) {
	t.Helper()
	var table, view []string
	for _, c := range def.columns {
		if c.name != "ledger" && c.name != "cluster" {
			table = append(table, c.name)
		}
	}
	for _, v := range query.Views() {
		if v.Name == def.name {
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

// TestUsageSamples: what runs use over time is stored as it was read, NULL where
// nothing is known, one row where it was sent twice, and small: a day of a
// node's eight jobs of many kinds.
func TestUsageSamples(t *testing.T) {
	ctx := context.Background()
	s := openStore(t, startEngine(t).Socket(), "usg")
	const t0, jobs, readings = 1_795_003_200, 8, 2880
	var rows []tally.UsageSample
	noise := uint64(1)
	for job := range int64(jobs) {
		for i := range int64(readings) {
			noise = noise*6364136223846793005 + 1442695040888963407
			wave := int64(noise >> 40 % 512)
			r := tally.UsageSample{
				At:        t0 + 30*i,
				Node:      "n1",
				UID:       uint64(100 + job),
				Attempt:   1,
				JobID:     uint32(100 + job),
				Step:      -5,
				User:      "alice",
				Account:   "ml",
				Partition: "cpu",
				Seconds:   30,
				CPU:       1000*job + wave,
				RSS:       1<<20*job + 4*i + wave,
			}
			if i == 0 {
				r.CPU = tally.NotMeasured
			}
			rows = append(rows, r)
		}
	}
	for range 2 {
		if err := s.PutUsage(ctx, tallytest.LedgerID, "peer", rows); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Exec(ctx, "OPTIMIZE TABLE usg.usage_samples FINAL"); err != nil {
		t.Fatal(err)
	}
	var cpu, rss int64
	for _, r := range rows {
		cpu, rss = cpu+max(r.CPU, 0), rss+r.RSS
	}
	if got, want := one[string](t, s, "SELECT concat(toString(count()), ' ', toString(count(cpu)), ' ', toString(sum(cpu)), ' ', toString(sum(rss_kib))) FROM usg.usage_samples"),
		fmt.Sprint(len(rows), len(rows)-jobs, cpu, rss); got != want {
		t.Errorf("stored %s, want %s", got, want)
	}
	each := one[float64](t, s, "SELECT sum(data_compressed_bytes) / sum(rows)"+
		" FROM system.parts"+
		" WHERE database = 'usg' AND table = 'usage_samples' AND active")
	t.Logf("%.2f bytes a sample", each)
	if each > 8 {
		t.Errorf("a sample takes %.2f bytes", each)
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
		r := tally.GPUSample{
			At:        t0 + int64(i)*10,
			Node:      "n1",
			UUID:      "GPU-a",
			Index:     3,
			UID:       7,
			Attempt:   1,
			JobID:     12,
			User:      "alice",
			Account:   "ml",
			Partition: "gpu",
			Seconds:   10,
		}
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
	got := one[string](t, s, "SELECT concat(toString(count()),"+
		" ' ', toString(sum(util)),"+
		" ' ', toString(count(sm)),"+
		" ' ', toString(max(power_w)),"+
		" ' ', toString(sum(processes)),"+
		" ' ', any(user))"+
		" FROM smp.gpu_samples")
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
		return one[string](t, s, "SELECT if(uniqExact(extract(create_table_query, 'TTL [^)]*') AS x) = 1, any(x), 'they differ')"+
			" FROM system.tables"+
			" WHERE database = 'smp' AND endsWith(name, '_samples')")
	}
	for _, tc := range []struct {
		keep spec.Span
		want string
	}{
		{30 * spec.Day, "2592000"},
		{30 * spec.Day, "2592000"},
		{spec.Day, "86400"},
		{spec.Infinite, ""},
		{spec.Infinite, ""},
	} {
		if err := s.KeepSamples(ctx, tc.keep); err != nil {
			t.Fatal(err)
		}
		if got := ttl(); !strings.Contains(got, tc.want) || (tc.want == "") != (got == "") {
			t.Errorf("kept for %v: %q", tc.keep, got)
		}
	}
}

// TestSamplesOfMonths: readings of more days than the engine takes in one
// insert are stored all the same, also those that are older than what is kept:
// they go when the engine next merges, and cost the others nothing.
func TestSamplesOfMonths(t *testing.T) {
	ctx := context.Background()
	s := openStore(t, startEngine(t).Socket(), "smm")
	if err := s.KeepSamples(ctx, 30*spec.Day); err != nil {
		t.Fatal(err)
	}
	days := int64(250)
	if os.Getenv("MUSTER_LONG") == "" {
		days = 125
	}
	now := time.Now().Unix()
	var gpus []tally.GPUSample
	var usage []tally.UsageSample
	for i := range days {
		gpus = append(gpus, tally.GPUSample{At: now - i*86400, Node: "n1", UUID: "GPU-a", Seconds: 10})
		usage = append(usage, tally.UsageSample{At: now - i*86400, Node: "n1", UID: 7, Seconds: 10})
	}
	for range 2 { // the second time the first rows may be gone already
		if err := s.PutSamples(ctx, tallytest.LedgerID, "peer", gpus); err != nil {
			t.Fatal(err)
		}
		if err := s.PutUsage(ctx, tallytest.LedgerID, "peer", usage); err != nil {
			t.Fatal(err)
		}
	}
	for _, table := range []string{"gpu_samples", "usage_samples"} {
		recent := one[uint64](t, s, "SELECT uniqExact(at)"+
			" FROM smm."+table+" WHERE at > now() - toIntervalDay(29)")
		if all := one[uint64](t, s, "SELECT uniqExact(at) FROM smm."+table); recent != 29 || all > uint64(days) {
			t.Errorf("%s has %d of 29 recent readings, %d in all", table, recent, all)
		}
	}
}

// TestSamplesAreReordered: version 2 of the schema keeps every reading of a store of version
// 1, also where the migration was interrupted behind any of its steps.
func TestSamplesAreReordered(t *testing.T) {
	socket := startEngine(t).Socket()
	steps := len(migrationSteps(2, "reo", Layout{}))
	stride := steps / 2 // the first, the last and one between
	if os.Getenv("MUSTER_LONG") != "" {
		stride = 1
	}
	for behind := 0; behind <= steps; behind += stride {
		t.Run(fmt.Sprintf("interrupted behind step %d", behind), func(t *testing.T) {
			checkReordered(t, socket, fmt.Sprintf("reo%d", behind), behind)
		})
	}
}

// checkReordered migrates a database of version 1 that an earlier migration left behind one of its
// steps.
func checkReordered(t *testing.T, socket, db string, behind int) {
	t.Helper()
	ctx := context.Background()
	s, err := Open(Options{Socket: socket, Database: db})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	versions := versionsTable()
	old := samplesDef1()
	for _, sql := range []string{
		"CREATE DATABASE " + db,
		versions.createStatements(db, Layout{})[0],
		old.createStatements(db, Layout{})[0],
		"INSERT INTO " + db + ".schema_versions (version) VALUES (1)",
		"INSERT INTO " + db + ".gpu_samples" +
			" (ledger, cluster, node, gpu_uuid, at, uid, seconds, util)" +
			" SELECT toUUID('b0010203-0405-0607-0809-0a0b0c0d0e0f'), 'peer', 'n1'," +
			" concat('GPU-', toString(number % 8))," +
			" toDateTime(1795003200 + number * 10, 'UTC')," +
			" number % 5, 10, number % 100" +
			" FROM numbers(20000)",
	} {
		if err := s.Exec(ctx, sql); err != nil {
			t.Fatal(err)
		}
	}
	sums := "SELECT concat(toString(count()), ' ', toString(sum(util)), ' '," +
		" toString(max(at)), ' ', toString(sum(uid)))" +
		" FROM " + db + ".gpu_samples FINAL"
	before := one[string](t, s, sums)
	for _, step := range migrationSteps(2, db, Layout{})[:behind] {
		if err := s.migrateStep(ctx, step); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	if after := one[string](t, s, sums); after != before {
		t.Errorf("%q became %q", before, after)
	}
	tables := " FROM system.tables WHERE database = '" + db + "' AND name "
	key := one[string](t, s, "SELECT sorting_key"+tables+"= 'gpu_samples'")
	if "("+key+")" != samplesOrder {
		t.Errorf("samples are sorted by %s", key)
	}
	left := one[uint64](t, s, "SELECT count()"+tables+"LIKE 'gpu_samples_%'")
	if left != 0 {
		t.Errorf("%d tables are left", left)
	}
}
