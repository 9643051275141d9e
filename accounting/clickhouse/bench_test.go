package clickhouse

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/accounting/tally"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// BenchmarkCatchUp decodes, folds and stores a ledger of short jobs, as an
// ingester that is far behind does.
func BenchmarkCatchUp(b *testing.B) {
	for _, events := range []int{5_000, 50_000, 150_000} {
		b.Run(fmt.Sprintf("batch=%d", events), func(b *testing.B) {
			e := startEngine(b)
			s := openStore(b, e.Socket(), "bench")
			codec, err := event.NewCodec()
			if err != nil {
				b.Fatal(err)
			}
			log := shortJobs(b, 40_000)
			var entries [][]byte
			for at := 0; at < len(log); at += 100 {
				data, err := codec.Encode(log[at:min(at+100, len(log))])
				if err != nil {
					b.Fatal(err)
				}
				entries = append(entries, data)
			}
			n, rows := 0, 0
			used := cpu(e.PID())
			for b.Loop() {
				ta := tally.New()
				w, _, err := s.NewWriter(context.Background(), [16]byte{byte(n >> 16), byte(n >> 8), byte(n), 1}, "peer")
				if err != nil {
					b.Fatal(err)
				}
				if err := w.Generation(context.Background(), nil); err != nil {
					b.Fatal(err)
				}
				pending := make(chan *tally.Batch, 1)
				done := make(chan error, 1)
				go func() {
					var err error
					for batch := range pending {
						if err == nil {
							err = w.Write(context.Background(), batch)
						}
					}
					done <- err
				}()
				for _, data := range entries {
					envs, err := codec.Decode(data)
					if err != nil {
						b.Fatal(err)
					}
					for i := range envs {
						if err := ta.Apply(&envs[i]); err != nil {
							b.Fatal(err)
						}
					}
					if ta.Rows() >= events {
						batch := ta.Take()
						rows += batch.Rows()
						pending <- batch
					}
				}
				batch := ta.Take()
				rows += batch.Rows()
				pending <- batch
				close(pending)
				if err := <-done; err != nil {
					b.Fatal(err)
				}
				n += len(log)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "events/s")
			b.ReportMetric((cpu(e.PID())-used)/float64(n)*1e6, "engine-us/event")
			b.ReportMetric(float64(rows)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// cpu is how many seconds of CPU time a process has used.
func cpu(pid int) float64 {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return float64(user+system) / 100
}

// BenchmarkQueries asks a store of 1,000,000 jobs and their steps of one month
// what people ask.
func BenchmarkQueries(b *testing.B) {
	ctx := context.Background()
	s := openStore(b, startEngine(b).Socket(), "big")
	ta := tally.New()
	w, _ := newWriter(b, s, ta)
	const month = 1_790_812_800 // 2026-10-01
	common := `'b0010203-0405-0607-0809-0a0b0c0d0e0f' AS ledger, 'peer' AS cluster, number + 1 AS seq, number + 1 AS uid, toUInt32(number + 10000000) AS job_id,
		month + number * 2592000 / 1000000 AS sub, sub + cityHash64(number, 1) % 600 AS sta, sta + 5 + cityHash64(number, 2) % 3600 AS fin,
		concat('u', leftPad(toString(cityHash64(number, 3) % 100), 3, '0')) AS user, concat('acct', toString(cityHash64(number, 3) % 100 DIV 10)) AS account,
		arrayElement([1, 1, 2, 4, 8, 16], 1 + cityHash64(number, 4) % 6) AS cpus, arrayElement([0, 0, 1, 2, 8], 1 + cityHash64(number, 5) % 5) AS gpus,
		cityHash64(number, 6) % 100 AS dice, multiIf(dice < 85, 'COMPLETED', dice < 93, 'FAILED', dice < 97, 'CANCELLED', dice < 99, 'TIMEOUT', 'NODE_FAIL') AS state,
		concat('node', toString(1 + number % 1000)) AS node`
	at := func(c string) string { return "fromUnixTimestamp64Micro(toInt64(" + c + " * 1000000), 'UTC')" }
	from := fmt.Sprintf("(WITH %d AS month SELECT %s FROM numbers(1000000))", month, common)
	for _, sql := range []string{
		"INSERT INTO big.jobs (ledger, cluster, seq, uid, attempt, job_id, array_task, count, name, user, user_id, account, partition, qos, state, submit, eligible, start, end, elapsed_us, req_cpus, req_mem_mib, req_nodes, alloc_cpus, alloc_mem_mib, alloc_nodes, alloc_gpus, alloc_billing, node_list, batch, work_dir, submit_line, measured, user_cpu_us) SELECT ledger, cluster, seq, uid, 1, job_id, -1, 1, concat('train_', toString(uid % 977)), user, 20000, account, 'gpu', 'normal', state, " +
			at("sub") + ", " + at("sub") + ", " + at("sta") + ", " + at("fin") + ", toInt64((fin - sta) * 1e6), cpus, cpus * 4000, 1, cpus, cpus * 4000, 1, gpus, cpus, node, true, concat('/home/', user, '/run', toString(uid % 1000)), concat('sbatch -n', toString(cpus), ' --gres=gpu:', toString(gpus), ' train.sh'), true, toInt64((fin - sta) * 9e5) FROM " + from,
		"INSERT INTO big.steps (ledger, cluster, seq, uid, attempt, job_id, step, name, user, account, state, start, end, tasks, node_list, alloc_cpus, measured, user_cpu_us, peak_rss) SELECT ledger, cluster, seq, uid, 1, job_id, -5, 'batch', user, account, state, " +
			at("sta") + ", " + at("fin") + ", 1, node, cpus, true, toInt64((fin - sta) * 9e5), 334233600 FROM " + from,
		"INSERT INTO big.job_nodes (ledger, cluster, seq, uid, attempt, job_id, user, account, partition, qos, node, from, to, end, cpus, mem_mib, gpus, measured, user_cpu_us, peak_rss) SELECT ledger, cluster, seq, uid, 1, job_id, user, account, 'gpu', 'normal', node, " +
			at("sta") + ", " + at("fin") + ", " + at("fin") + ", cpus, cpus * 4000, gpus, true, toInt64((fin - sta) * 9e5), 334233600 FROM " + from,
		"INSERT INTO big.node_states (ledger, cluster, seq, at, node, state, class, restated, cpus, mem_mib, gpus, partitions) SELECT 'b0010203-0405-0607-0809-0a0b0c0d0e0f', 'peer', 1, " +
			at(fmt.Sprintf("(%d + (number DIV 1000) * 86400)", month)) + ", concat('node', toString(1 + number % 1000)), 'UP', 'up', true, 16, 64000, 8, ['gpu'] FROM numbers(32000)",
	} {
		if err := s.conn.Exec(ctx, sql); err != nil {
			b.Fatalf("%v\n%s", err, sql)
		}
	}
	w.pos.Seq = 1_000_000
	day := spec.AtUnix(month + 14*86400)
	sc := scopeOf(s, w, spec.AtUnix(month+31*86400))
	run := func(name string, q query.Query) {
		b.Run(name, func(b *testing.B) {
			n := 0
			for b.Loop() {
				n = 0
				if err := s.Query(ctx, q, func(func(...any) error) error { n++; return nil }); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(n), "rows")
		})
	}
	acct := func(a query.Acct) query.Query { return a.Runs(sc, all) }
	run("sacct/one-job", acct(query.Acct{Jobs: []query.JobRef{{ID: 10500000, Task: -1}}, Start: 1, End: sc.Now}))
	run("sacct/one-job-steps", (&query.Acct{}).Steps(sc, []query.RunKey{{UID: 500001}}, true, true))
	run("sacct/user-day", acct(query.Acct{Users: []string{"u042"}, Start: day, End: day.Add(spec.Day)}))
	run("sacct/all-day", acct(query.Acct{Start: day, End: day.Add(spec.Day)}))
	run("sacct/all-day-steps", (&query.Acct{}).Steps(sc, stretch(466_000, 500_000), false, false))
	run("sacct/failed-month", acct(query.Acct{States: []uint32{uint32(spec.NodeFailed)}, Start: spec.AtUnix(month), End: sc.Now}))
	r := query.Report{Start: spec.AtUnix(month), End: sc.Now}
	used, err := r.Used(sc, query.KeyAccount, query.KeyUser)
	if err != nil {
		b.Fatal(err)
	}
	run("sreport/user-month", used)
	util, err := r.Utilization(sc)
	if err != nil {
		b.Fatal(err)
	}
	run("sreport/utilization-month", util)
	for _, src := range kpi.Sources() {
		q, _ := query.KPIs(sc, src, 30*spec.Day, &kpi.Rates{})
		run("kpi-30d/"+string(src), q)
	}
	run("kpi-30d/demand", query.Demand(sc, 30*spec.Day, 30))
}

// stretch names the runs of a range of jobs.
func stretch(from, to uint64) []query.RunKey {
	var out []query.RunKey
	for uid := from; uid < to; uid++ {
		out = append(out, query.RunKey{UID: uid})
	}
	return out
}
