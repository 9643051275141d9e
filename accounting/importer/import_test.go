package importer_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/musterhpc/muster/accounting/clickhouse"
	"github.com/musterhpc/muster/accounting/embedded/enginetest"
	"github.com/musterhpc/muster/accounting/importer"
	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/spec"
)

// TestMain lets the test binary be the engine process.
func TestMain(m *testing.M) { os.Exit(enginetest.Main(m.Run)) }

func uuidOf(ledger [16]byte) string { return uuid.UUID(ledger).String() }

// openStore runs an engine for one test, or skips.
func openStore(t testing.TB) *clickhouse.Store {
	t.Helper()
	e := enginetest.Start(t)
	s, err := clickhouse.Open(clickhouse.Options{Socket: e.Socket()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}

// traces opens a file of the folder of real workloads, or skips.
func traces(t testing.TB, name string) *os.File {
	t.Helper()
	dir := os.Getenv("MUSTER_TRACES")
	if dir == "" {
		dir = "../../../shared/traces"
	}
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		t.Skipf("NOT TESTED against real workloads: %v (set MUSTER_TRACES to their folder)", err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// into imports a dump into a store; change may change the import.
func into(t testing.TB, s *clickhouse.Store, cluster string, dump io.Reader, change func(c *importer.Config)) (*importer.Result, []importer.Reject) {
	t.Helper()
	ledger := tally.ImportedLedger(cluster)
	w, err := s.NewImportWriter(t.Context(), ledger, cluster)
	if err != nil {
		t.Fatal(err)
	}
	var rejects []importer.Reject
	c := importer.Config{Ledger: ledger, Store: importer.In(s), Writer: w, Rejected: func(r importer.Reject) { rejects = append(rejects, r) }, Now: spec.AtUnix(1_800_000_000)}
	if change != nil {
		change(&c)
	}
	res, err := importer.Import(t.Context(), c, dump)
	if err != nil {
		t.Fatal(err)
	}
	if !res.Reconciled() {
		t.Errorf("the store has %+v, there were %+v and %+v were added", res.After, res.Before, res.Added)
	}
	return res, rejects
}

const phillips = "jobid,jobidraw,cluster,partition,qos,account,group,gid,user,uid,submit,eligible,start,end,elapsed,exitcode,state,nnodes,ncpus,reqcpus,reqmem,reqtres,alloctres,timelimit,nodelist,jobname"

// one runs a query of one row with one number.
func one(t testing.TB, s *clickhouse.Store, sql string, params ...query.Param) float64 {
	t.Helper()
	var v float64
	err := s.Query(t.Context(), query.Query{SQL: sql, Params: params}, func(scan func(...any) error) error { return scan(&v) })
	if err != nil {
		t.Fatalf("%v\n%s", err, sql)
	}
	return v
}

// TestXDMoD: what another accounting system reports about a real cluster is
// what the store says of the imported dump, line by line, for every figure
// that follows from the rows of jobs. Three do not: two need to know how large
// the cluster is, and one counts an array as one submission.
func TestXDMoD(t *testing.T) {
	s := openStore(t)
	res, rejects := into(t, s, "phillips", traces(t, "xdmod/sacct_phillips.log.gz"), func(c *importer.Config) { c.Columns, c.Cluster = strings.Split(phillips, ","), "phillips" })
	if len(rejects) > 0 || res.Lines != 4285 || res.New != 4285 {
		t.Fatalf("%+v, rejected %v", res, rejects)
	}
	// Over a period: rows with overlap in hours.
	const rows = "(SELECT *, user, account, start, (least(toUnixTimestamp64Micro(end), {b:Int64}) - greatest(toUnixTimestamp64Micro(assumeNotNull(start)), {a:Int64})) / 3.6e9 AS h, " +
		"toUnixTimestamp64Micro(assumeNotNull(start)) >= {a:Int64} AND start < fromUnixTimestamp64Micro({b:Int64}, 'UTC') AS started, " +
		"(toUnixTimestamp64Micro(assumeNotNull(start)) - toUnixTimestamp64Micro(submit)) / 3.6e9 AS wait_h, elapsed_us / 3.6e9 AS wall_h FROM muster.jobs " +
		"WHERE isNotNull(start) AND start < fromUnixTimestamp64Micro({b:Int64}, 'UTC') AND end >= fromUnixTimestamp64Micro({a:Int64}, 'UTC'))"
	figures := map[string]string{
		"active_person_count": "uniqExact(user)", "active_pi_count": "uniqExact(account)", "active_resource_count": "uniqExact(cluster)",
		"job_count": "countIf(end < fromUnixTimestamp64Micro({b:Int64}, 'UTC'))", "running_job_count": "count()", "started_job_count": "countIf(started)",
		"total_cpu_hours": "sum(alloc_cpus * h)", "total_gpu_hours": "sum(alloc_gpus * h)", "total_node_hours": "sum(alloc_nodes * h)", "total_wallduration_hours": "sum(h)",
		"total_waitduration_hours": "sumIf(wait_h, started)", "avg_cpu_hours": "sum(alloc_cpus * h) / count()", "avg_gpu_hours": "sum(alloc_gpus * h) / count()",
		"avg_node_hours": "sum(alloc_nodes * h) / count()", "avg_wallduration_hours": "sum(h) / count()", "avg_waitduration_hours": "sumIf(wait_h, started) / countIf(started)",
		"avg_processors": "avg(alloc_cpus)", "avg_gpus": "avg(alloc_gpus)", "min_processors": "min(alloc_cpus)", "max_processors": "max(alloc_cpus)",
		"avg_job_size_weighted_by_cpu_hours": "sum(alloc_cpus * alloc_cpus * h) / sum(alloc_cpus * h)",
		"avg_job_size_weighted_by_gpu_hours": "sum(alloc_cpus * alloc_gpus * h) / sum(alloc_gpus * h)",
		"expansion_factor":                   "sumIf((wall_h + wait_h) / wall_h * alloc_nodes * h, wall_h > 0) / sumIf(alloc_nodes * h, wall_h > 0)",
	}
	others := map[string]int{"utilization": 0, "normalized_avg_processors": 0, "submitted_job_count": 0}
	lines := bufio.NewScanner(traces(t, "xdmod/expected_phillips.csv"))
	checked := 0
	for lines.Scan() {
		f := strings.Split(lines.Text(), ",")
		sql, ok := figures[f[1]]
		if !ok {
			if n, known := others[f[1]]; known {
				others[f[1]] = n + 1
			} else if f[0] != "kind" {
				t.Errorf("nobody knows %s", f[1])
			}
			continue
		}
		first, last, ok := strings.Cut(f[3], "..")
		if !ok {
			last = first
		}
		from, err1 := time.Parse(time.DateOnly, first)
		to, err2 := time.Parse(time.DateOnly, last)
		want, err3 := strconv.ParseFloat(f[4], 64)
		if err := errors.Join(err1, err2, err3); err != nil {
			t.Fatal(err)
		}
		got := one(t, s, "SELECT toFloat64("+sql+") FROM "+rows, query.Param{Name: "a", Value: from.UnixMicro()}, query.Param{Name: "b", Value: to.AddDate(0, 0, 1).UnixMicro()})
		_, decimals, _ := strings.Cut(f[4], ".")
		if math.Abs(got-want) > 0.5000001*math.Pow10(-len(decimals)) {
			t.Errorf("%s of %s: %v, expected %s", f[1], f[3], got, f[4])
		}
		checked++
	}
	if checked != 276 || fmt.Sprint(others) != "map[normalized_avg_processors:12 submitted_job_count:12 utilization:12]" {
		t.Errorf("%d figures were compared, left out %v", checked, others)
	}
	rolledReports(t, s, "phillips")
	again, _ := into(t, s, "phillips", traces(t, "xdmod/sacct_phillips.log.gz"), func(c *importer.Config) { c.Columns = strings.Split(phillips, ",") })
	if again.New != 0 || again.Known != 4285 {
		t.Errorf("again: %+v", again)
	}
}

// rolledReports adds up an imported cluster's days: reports say what they said,
// and the rollups have what the runs give.
func rolledReports(t *testing.T, s *clickhouse.Store, cluster string) {
	t.Helper()
	ledger := tally.ImportedLedger(cluster)
	scope := func() query.Scope {
		pos, err := s.Position(t.Context(), ledger)
		if err != nil {
			t.Fatal(err)
		}
		return query.Scope{Database: "muster", Ledger: ledger, Cluster: cluster, Seq: pos.Seq, Gen: pos.Gen, Rolled: query.Rolled(pos.Rolled), Now: spec.AtUnix(1_800_000_000)}
	}
	used := func() (out string) {
		for _, days := range []spec.Instant{1, 10, 100} {
			r := query.Report{Start: spec.AtUnix(1_800_000_000).Add(-4000 * spec.Day), End: spec.AtUnix(1_500_000_000).Add(spec.Span(days) * 7 * spec.Day), TRES: "cpu"}
			q, err := r.Used(scope())
			if err != nil {
				t.Fatal(err)
			}
			err = s.Query(t.Context(), q, func(scan func(...any) error) error {
				var account, user, used string
				var energy int64
				err := scan(&account, &user, &used, &energy)
				out += fmt.Sprintln(account, user, used, energy)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		return out
	}
	before := used()
	w, err := s.NewImportWriter(t.Context(), ledger, cluster)
	if err != nil {
		t.Fatal(err)
	}
	if err := importer.RollUp(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	sc := scope()
	if sc.Rolled.Build == 0 {
		t.Fatal("nothing is added up")
	}
	if after := used(); after != before || before == "" {
		t.Errorf("reports said\n%s\nand with rollups\n%s", before, after)
	}
	err = s.Query(t.Context(), query.RolledCheck(sc), func(scan func(...any) error) error {
		var days, quarters, runs []string
		err := scan(&days, &quarters, &runs)
		if fmt.Sprint(days) != fmt.Sprint(runs[:len(days)]) || fmt.Sprint(quarters) != fmt.Sprint(runs) || runs[0] == "0" {
			t.Errorf("days %v, quarters %v, runs %v", days, quarters, runs)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestHetDump: components keep the number of their job's leader, their place
// and how many there are, with their own numbers in the dump or without.
func TestHetDump(t *testing.T) {
	s := openStore(t)
	for name, dump := range map[string]string{
		"raw": "JobID|JobIDRaw|State|Submit|Start|End|AllocCPUS|User\n" +
			"12+0|12|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T00:02:00|1|u\n12+0.batch|12.batch|COMPLETED||2026-01-01T00:01:00|2026-01-01T00:02:00|1|\n" +
			"12+1|13|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T00:02:00|2|u\n14|14|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T00:02:00|3|u\n" +
			"15+0|15|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T00:02:00|1|u\n15+1|16|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T00:02:00|1|u\n15+2|17|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T00:02:00|1|u\n",
		"shown": "JobID|State|Submit|Start|End|AllocCPUS|User\n" +
			"12+0|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T00:02:00|1|u\n12+1|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T00:02:00|2|u\n" +
			"14|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T00:02:00|3|u\n15+0|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T00:02:00|1|u\n" +
			"15+1|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T00:02:00|1|u\n15+2|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T00:02:00|1|u\n",
	} {
		for _, batch := range []int{1, 100} {
			cluster := fmt.Sprint(name, batch)
			if _, rejects := into(t, s, cluster, strings.NewReader(dump), func(c *importer.Config) { c.Batch = batch }); len(rejects) > 0 {
				t.Errorf("%s: %v", cluster, rejects)
			}
			var got []string
			sql := "SELECT concat(toString(job_id), '=', toString(het_job_id), '+', toString(het_offset), '/', toString(het_size)) FROM muster.jobs WHERE ledger = {ledger:UUID} ORDER BY job_id"
			err := s.Query(t.Context(), query.Query{SQL: sql, Params: []query.Param{{Name: "ledger", Value: uuidOf(tally.ImportedLedger(cluster))}}}, func(scan func(...any) error) error {
				var text string
				err := scan(&text)
				got = append(got, text)
				return err
			})
			if want := "12=12+0/2 13=12+1/2 14=0+0/0 15=15+0/3 16=15+1/3 17=15+2/3"; err != nil || strings.Join(got, " ") != want {
				t.Errorf("%s: %v, %v, want %s", cluster, got, err, want)
			}
		}
	}
	for _, id := range []string{"12+", "+1", "12+x", "x+1"} {
		if _, rejects := into(t, s, "bad", strings.NewReader("JobID|State|Submit|Start|End|AllocCPUS|User\n"+id+"|COMPLETED|2026-01-01T00:00:00|2026-01-01T00:01:00|2026-01-01T00:02:00|1|u\n"), nil); len(rejects) != 1 {
			t.Errorf("%s: %v", id, rejects)
		}
	}
}

// graham imports the trace of that site.
func graham(t testing.TB, s *clickhouse.Store) (*importer.Result, []importer.Reject) {
	t.Helper()
	return into(t, s, "graham", traces(t, "graham_slurm_2021.csv.gz"), func(c *importer.Config) {
		c.Columns = strings.Split("jobidraw,submit,eligible,start,end,-,-,state,account,partition,reqcpus,nnodes,reqmem,reqtres,gpus,priority,-,-,-,-,-,-,-,-,-,-", ",")
		c.Delimiter, c.Skip = ",", 1
	})
}

// TestGraham: a real site's 171,584 rows with columns of their own, and what
// is known about them.
func TestGraham(t *testing.T) {
	s := openStore(t)
	began := time.Now()
	res, rejects := graham(t, s)
	t.Logf("%+v in %v", res, time.Since(began))
	for i, r := range rejects {
		if i < 5 {
			t.Errorf("line %d: %s: %s", r.Line, r.Reason, r.Text)
		}
	}
	if res.Lines != 171_584 || res.New+res.Known != 171_584 {
		t.Errorf("%+v", res)
	}
	if accounts := one(t, s, "SELECT toFloat64(uniqExact(account)) FROM muster.jobs"); accounts != 670 {
		t.Errorf("%v accounts", accounts)
	}
	if parts := one(t, s, "SELECT toFloat64(uniqExact(partition)) FROM muster.jobs"); parts != 42 {
		t.Errorf("%v partitions", parts)
	}
	if gpu := one(t, s, "SELECT toFloat64(countIf(alloc_gpus > 0)) FROM muster.jobs"); gpu != 19_407 {
		t.Errorf("%v GPU jobs", gpu)
	}
	if cpu := importer.Hours(res.After.CPU); math.Abs(cpu-16.15e6) > 0.005e6 {
		t.Errorf("%.0f core-hours", cpu)
	}
	if gpu := importer.Hours(res.After.GPU); math.Abs(gpu-164_686) > 0.5 {
		t.Errorf("%.1f GPU-hours", gpu)
	}
	for state, want := range map[string]float64{"COMPLETED": 80.4, "TIMEOUT": 8.4, "FAILED": 7.9, "CANCELLED": 1.3, "OUT_OF_MEMORY": 1.2, "NODE_FAIL": 0.9} {
		if got := one(t, s, "SELECT 100 * countIf(state = '"+state+"') / count() FROM muster.jobs"); math.Abs(got-want) > 0.05 {
			t.Errorf("%.2f %% are %s", got, state)
		}
	}
}

// TestBadLines: what cannot be is rejected with its line and why; what is odd
// and can be is taken.
func TestBadLines(t *testing.T) {
	s := openStore(t)
	const head = "JobID|JobIDRaw|User|Account|Partition|State|Submit|Start|End|NCPUS|AllocTRES|NodeList|TotalCPU|MaxRSS|NTasks|JobName\n"
	const day = "2026-03-01T"
	line := func(id, state, submit, start, end, tres, name string) string {
		return strings.Join([]string{id, id, "alice", "ml", "gpu", state, submit, start, end, "4", tres, "n1", "00:10:00", "", "", name}, "|") + "\n"
	}
	ok := func(id string) string {
		return line(id, "COMPLETED", day+"10:00:00", day+"10:01:00", day+"10:11:00", "cpu=4,mem=4G,node=1,gres/gpu:a100=2", "fit")
	}
	dump := head + ok("1") + "1.batch|1.batch||||COMPLETED|" + day + "10:01:00|" + day + "10:01:00|" + day + "10:11:00|4|cpu=4|n1|00:09:00|2048K|1|batch\n" +
		line("2", "NEVER_SEEN", day+"10:00:00", day+"10:01:00", day+"10:11:00", "", "x") +
		line("3", "COMPLETED", day+"10:00:00", day+"10:11:00", day+"10:01:00", "", "backwards") +
		line("4", "COMPLETED", day+"10:00:00", day+"25:01:00", day+"10:11:00", "", "x") +
		line("5", "COMPLETED", day+"10:00:00", day+"10:01:00", "Unknown", "", "x") +
		line("6", "COMPLETED", day+"10:00:00", day+"10:01:00", day+"10:11:00", "cpu=many", "x") +
		line("x", "COMPLETED", day+"10:00:00", day+"10:01:00", day+"10:11:00", "", "x") +
		"7|7|short\n" + "99.batch|99.batch||||COMPLETED|" + day + "10:01:00|" + day + "10:01:00|" + day + "10:11:00|4|cpu=4|n1|00:09:00|2048K|1|batch\n" +
		line("8_3", "CANCELLED by 1001", day+"10:00:00", day+"10:01:00", day+"10:11:00", "", "a|name|with pipes") +
		line("9", "COMPLETED", day+"11:00:00", day+"10:01:00", day+"10:11:00", "", "caf\xe9") +
		line("10", "RUNNING", day+"10:00:00", day+"10:01:00", "Unknown", "cpu=4,gres/gpu=1", "long") +
		strings.Replace(line("11", "CANCELLED by 5", day+"10:00:00", day+"10:05:00", day+"10:05:00", "", "never"), "|n1|", "|None assigned|", 1) +
		line("12_[1-5%2]", "PENDING", day+"10:00:00", "Unknown", "Unknown", "", "later") + ok("1") +
		line("13", "COMPLETED", day+"10:00:00", "1772358060", "9999999999999", "", "x") +
		line("14", "COMPLETED", day+"10:00:00", "2099-01-01T00:00:00", "2099-01-02T00:00:00", "", "x") +
		line("15", "RUNNING", day+"10:00:00", "2099-01-01T00:00:00", "Unknown", "", "x") +
		line("16", "COMPLETED", day+"10:00:00", day+"10:01:00", day+"10:11:00", "", "a\x00b")
	dump = strings.ReplaceAll(dump, "12_[1-5%2]|12_[1-5%2]", "12_[1-5%2]|12")
	dump = strings.ReplaceAll(dump, "8_3|8_3", "8_3|80")
	res, rejects := into(t, s, "bad", strings.NewReader(dump), func(c *importer.Config) { c.Batch = 3 })
	got := ""
	for _, r := range rejects {
		got += fmt.Sprintf("%d %s\n", r.Line, r.Reason)
	}
	want := `4 State "NEVER_SEEN" cannot be read
5 it ends before it begins
6 Start "2026-03-01T25:01:00" cannot be read
7 it is COMPLETED and has no end
8 AllocTRES "cpu=many" cannot be read
9 its job number "xx" cannot be read
10 it has 3 columns, there must be 16
11 it is a step whose job does not stand before it
18 End "9999999999999" cannot be read
19 its time is in the future
20 its time is in the future
21 it has a character NUL: the dump is damaged there
`
	if got != want {
		t.Errorf("rejected:\n%sexpected:\n%s", got, want)
	}
	if res.New != 4 || res.Open != 2 || res.Known != 1 || res.Steps != 1 {
		t.Errorf("%+v", res)
	}
	if n := one(t, s, "SELECT toFloat64(sum(count)) FROM muster.live FINAL WHERE NOT final"); n != 6 {
		t.Errorf("%v jobs are open", n)
	}
	if n := one(t, s, "SELECT toFloat64(assumeNotNull(any(peak_rss))) FROM muster.jobs WHERE job_id = 1"); n != 2048*1024 {
		t.Errorf("the peak is %v", n)
	}
	if n := one(t, s, "SELECT toFloat64(count()) FROM muster.jobs WHERE job_id = 11 AND isNull(start) AND cancelled_by = 5"); n != 1 {
		t.Errorf("the job that never started: %v", n)
	}
	if n := one(t, s, "SELECT toFloat64(count()) FROM muster.jobs WHERE name IN ('a|name|with pipes', 'caf\ufffd') AND alloc_cpus = 4"); n != 2 {
		t.Errorf("odd names: %v", n)
	}
	// Later the running job has ended, and the number 1 was given out again.
	later := head + line("10", "COMPLETED", day+"10:00:00", day+"10:01:00", day+"12:01:00", "cpu=4,gres/gpu=1", "long") +
		line("1", "FAILED", "2026-12-01T10:00:00", "2026-12-01T10:00:00", "2026-12-01T11:00:00", "", "other")
	res, _ = into(t, s, "bad", strings.NewReader(later), nil)
	if res.New != 2 || res.Known != 0 {
		t.Errorf("later: %+v", res)
	}
	if n := one(t, s, "SELECT toFloat64(uniqExact(uid)) FROM muster.jobs WHERE job_id = 1"); n != 2 {
		t.Errorf("the number 1 stands for %v jobs", n)
	}
}

// TestColumns: dumps that cannot be read say why.
func TestColumns(t *testing.T) {
	for dump, want := range map[string]string{
		"1|2|3\n": "does not name them", "\xff\xfeJ\x00o\x00b\x00I\x00D\x00|\x00S\x00t\x00a\x00t\x00e\x00\n\x00": "iconv -f UTF-16", "JobID|State|Start|End\n": "Submit is missing", "JobID|Submit|Start|End\n": "State is missing",
		"JobID|JobID|Submit|Start|End|State\n": "stands twice", "JobID|Nonsense|Submit|Start|End|State\n": `no field "Nonsense"`, "Submit|Start|End|State\n": "JobID or JobIDRaw",
	} {
		c := importer.Config{Store: nothing{}, Writer: nothing{}}
		if _, err := importer.Import(t.Context(), c, strings.NewReader(dump)); !errors.Is(err, importer.ErrColumns) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", dump, err)
		}
	}
	if _, err := importer.Import(t.Context(), importer.Config{Store: nothing{}, Writer: nothing{}}, bytes.NewReader([]byte{0x1f, 0x8b, 1, 2, 3})); err == nil {
		t.Error("broken gzip is read")
	}
}

// TestOverlap: a run that is read again while the batch with it is being
// written is stored once, and so is one of a batch before that.
func TestOverlap(t *testing.T) {
	var lines strings.Builder
	if err := dump(&lines, 6, false); err != nil {
		t.Fatal(err)
	}
	l := strings.SplitAfter(lines.String(), "\n") // the names, then jobs 1 to 6
	text := l[0] + l[1] + l[2] + l[1] + l[3] + l[4] + l[2] + l[3] + l[5] + l[6] + l[1]
	o := &overlapping{asked: make(chan struct{})}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	res, err := importer.Import(ctx, importer.Config{Store: o, Writer: o, Batch: 2, Now: spec.AtUnix(1_800_000_000)}, strings.NewReader(text))
	if err != nil || res.New != 6 || res.Known != 4 || len(o.uids) != 6 || res.Added.Runs != 6 {
		t.Errorf("stored %v, %+v: %v", o.uids, res, err)
	}
	// A chunk of which the store has everything is no batch: the one before it may still be being written.
	first := &overlapping{asked: make(chan struct{})}
	if _, err := importer.Import(ctx, importer.Config{Store: first, Writer: first, Batch: 2, Now: spec.AtUnix(1_800_000_000)}, strings.NewReader(l[0]+l[3]+l[4]+l[5])); err != nil {
		t.Fatal(err)
	}
	o = &overlapping{asked: make(chan struct{}), often: 3, uids: first.uids, subs: first.subs}
	res, err = importer.Import(ctx, importer.Config{Store: o, Writer: o, Batch: 2, Now: spec.AtUnix(1_800_000_000)}, strings.NewReader(l[0]+l[1]+l[2]+l[3]+l[4]+l[1]+l[6]))
	if err != nil || res.New != 3 || res.Known != 3 || len(o.uids) != 6 {
		t.Errorf("stored %v, %+v: %v", o.uids, res, err)
	}
	// A store that fails ends the import, however much there is to read.
	failing := &overlapping{asked: make(chan struct{}), seq: 7}
	endless := io.MultiReader(strings.NewReader(text), neverEnding(l[1]))
	if _, err := importer.Import(ctx, importer.Config{Store: failing, Writer: failing, Batch: 2, Now: spec.AtUnix(1_800_000_000)}, endless); !errors.Is(err, tally.ErrOrder) {
		t.Errorf("of a store that fails: %v", err)
	}
}

// neverEnding gives a line for ever.
type neverEnding string

func (n neverEnding) Read(p []byte) (int, error) { return copy(p, n), nil }
