package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/musterhpc/muster/accounting/clickhouse"
	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/spec"
)

// fillFrom is the first second of the made-up jobs: 2099-01-01 in UTC. They are of a time
// to come, so that the end of the last one is now to the stored views, whatever the clock
// says.
const fillFrom = 4_070_908_800

// fillNodes is how many nodes the cluster has, with fillGPUs each.
const fillNodes = 1000

// fillGPUs is how many GPUs a node has.
const fillGPUs = 8

// fillBlock is how many neighbouring nodes one run may have together. In every second
// block, the first of its jobs takes 2 to 32 of them whole; the jobs whose nodes these
// are run beside it and have no GPU.
const fillBlock = 40

// fillPart is how many jobs one statement makes.
const fillPart = 1_000_000

// fill makes rows of jobs inside the engine.
type fill struct {
	jobs, months int
	ledger       [16]byte
}

func newFill(jobs, months int) *fill {
	return &fill{
		jobs:   jobs,
		months: months,
		ledger: [16]byte{0xb0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
	}
}

// lastSeq is the last event of the ledger that these jobs would have had: five for
// each.
func (f *fill) lastSeq() uint64 { return uint64(f.jobs) * 5 }

// endInstant is the instant behind the last month.
func (f *fill) endInstant() spec.Instant { return spec.AtUnix(fillFrom + int64(f.months)*30*86400) }

// turn is the time in seconds from one job of a node to its next: a job is over by then,
// because a node has no device for two.
func (f *fill) turn() int64 { return max(int64(f.months)*30*86400*fillNodes/int64(f.jobs), 2) }

// common are the columns from which every table is made: submissions evenly
// over the time, waits up to ten minutes, run times with a tail, 100
// users in ten accounts, and the ends that jobs have. A run on several nodes starts when
// the last of these is free.
func (f *fill) common(from, n int) string {
	spacing := float64(f.months) * 30 * 86400 / float64(f.jobs)
	dice := func(k int) string { return fmt.Sprintf("(cityHash64(number, %d) %% 1000000 / 1000000)", k) }
	return strings.Join([]string{
		"SELECT toUUID('b0010203-0405-0607-0809-0a0b0c0d0e0f') AS ledger, 'peer' AS cluster, toUInt64(number * 5 + 5) AS seq, toUInt64(number + 1) AS uid",
		"toUInt32(10000001 + number) AS job_id",
		fmt.Sprintf("intDiv(number, %[1]d) AS block, number %% %[1]d AS place", fillBlock),
		"if(cityHash64(block, 7) % 2 = 0, [2, 2, 4, 4, 8, 8, 16, 32][1 + cityHash64(block, 8) % 8], 0) AS wide",
		"wide > 0 AND place = 0 AS leads, place < wide AND NOT leads AS beside",
		"toInt64(if(leads, wide, 1)) AS nodes",
		fmt.Sprintf("%d + toUInt64(number * %f) AS sub", fillFrom, spacing),
		fmt.Sprintf(
			"greatest(sub + cityHash64(number, 2) %% %d, if(leads, sub + toUInt64(ceil(nodes * %f)), 0)) AS sta",
			max(min(600, f.turn()/4), 1),
			spacing,
		),
		fmt.Sprintf("least(sta + 5 + toUInt64(-log(1 - %s * 0.9999) * 1800), sub + %d) AS fin", dice(3), f.turn()-1),
		"toInt64(cityHash64(number, 1) % 100) AS whose", "concat('u', leftPad(toString(whose + 1), 3, '0')) AS user", "concat('acct', leftPad(toString(intDiv(whose, 10) + 1), 2, '0')) AS account",
		"toInt64(multiIf(leads, 8, beside, [1, 1, 2, 4, 8, 8][1 + cityHash64(number, 4) % 6], [1, 1, 2, 4, 8, 16][1 + cityHash64(number, 4) % 6])) AS node_cpus",
		fmt.Sprintf("toInt64(multiIf(leads, %d, beside, 0, [0, 0, 1, 2, 8][1 + cityHash64(number, 5) %% 5])) AS node_gpus", fillGPUs),
		"node_cpus * nodes AS cpus", "node_gpus * nodes AS gpus", dice(6) + " AS r",
		"multiIf(r < 0.85, 'COMPLETED', r < 0.93, 'FAILED', r < 0.97, 'CANCELLED', r < 0.99, 'TIMEOUT', 'OUT_OF_MEMORY') AS state",
		"toInt32(r >= 0.85 AND r < 0.93) AS code", "toInt32(if(r >= 0.93 AND r < 0.97, 15, 0)) AS sig", "toInt64(fin - sta) AS d",
		fmt.Sprintf("number %% %d AS nodenr", fillNodes), "concat('node', toString(1 + nodenr)) AS node",
		"if(nodes = 1, node, concat('node[', toString(1 + nodenr), '-', toString(nodenr + nodes), ']')) AS node_list",
		fmt.Sprintf("number FROM numbers(%d, %d)", from, n),
	}, ",\n  ")
}

// deviceOf is the SQL of the UUID of a run's nth device.
func deviceOf(nth string) string {
	return "concat('GPU-', leftPad(toString(nodenr + intDiv(" + nth + ", greatest(node_gpus, 1))), 4, '0'), '-', toString(" +
		nth + " % greatest(node_gpus, 1)))"
}

// statements fill the tables with some of the jobs.
func (f *fill) statements(db string, from, n int) []string {
	at := func(c string) string {
		return "fromUnixTimestamp64Micro(toInt64(" + c +
			") * 1000000, 'UTC')"
	}
	src := "(" + f.common(from, n) + ")"
	insert := func(table, columns, values, more string) string {
		return fmt.Sprintf(
			"INSERT INTO %s.%s (%s)\nSELECT %s\nFROM %s %s",
			db,
			table,
			columns,
			values,
			src,
			more,
		)
	}
	packed := func(words ...string) string {
		return "concat(" +
			strings.Join(words, `, '\x1f', `) + ")"
	}
	place := packed("user", "account", "'gpu'", "'normal'")
	run := "ledger, cluster, seq, uid, restarts, attempt, job_id"
	runV := "ledger, cluster, seq, uid, 0, 1, job_id"
	return []string{
		insert("jobs", run+
			", array_task, count, name, owner, partition, qos, state, exit_code, exit_signal, reason, end_reason, "+
			"submit, eligible_gap_us, start_gap_us, end, limit_us, req_cpus, req_mem_mib, req_nodes, req_gpus, req_billing, alloc_cpus, alloc_mem_mib, alloc_nodes, alloc_gpus, alloc_billing, "+
			"req_nodes_min, tasks, node_list, priority, batch, work_dir, submit_line, gpu_uuids, measured, user_cpu_us, system_cpu_us, peak_rss, read_bytes, write_bytes, maj_faults, "+
			"gpu_measured_us, gpu_util_us, gpu_no_process_us, gpu_idle_us, gpu_busy_us",
			runV+", -1, 1, concat('train_', toString(uid % 977)), "+
				packed(
					"user",
					"user",
					"account",
					"toString(20001 + whose)",
					"toString(20001 + whose)",
					"toString(19 + whose)",
				)+
				", 'gpu', 'normal', state, code, sig, 'None', 'None', "+
				at("sub")+", 0, toInt64(sta - sub) * 1000000, "+at("fin")+
				", 7200000000, cpus, cpus * 4000, nodes, gpus, cpus, cpus, cpus * 4000, nodes, gpus, cpus, "+
				"nodes, nodes, node_list, 1000 + uid % 5000, true, concat('/home/u', toString(19 + whose), '/run', toString(uid % 1000)), concat('sbatch -n', toString(cpus), ' --gres=gpu:', toString(gpus), ' train.sh'), "+
				"arrayMap(i -> "+deviceOf("i")+", range(toUInt64(gpus))), true, nodes * d * 900000, nodes * 3000000, 334233600, 15107, 4, 0, "+
				"gpus * (d * 900000 + 1000000), gpus * d * 600000, gpus * 1000000, gpus * d * 100000, gpus * d * 800000", ""),
		insert("steps", run+
			", step, name, who, state, exit_code, exit_signal, start, end, tasks, node_list, alloc_cpus, alloc_mem_mib, alloc_nodes, alloc_gpus, measured, "+
			"user_cpu_us, system_cpu_us, peak_rss, read_bytes, write_bytes, maj_faults",
			runV+", -5, 'batch', "+packed("user", "account")+", state, code, sig, "+at("sta")+
				", "+at("fin")+
				", nodes, node_list, cpus, cpus * 4000, nodes, gpus, true, nodes * d * 900000, nodes * 3000000, 334233600, 15107, 4, 0", ""),
		insert("job_nodes", run+
			", who, node, from, to, end_gap_us, cpus, mem_mib, gpus, tasks, lost, measured, user_cpu_us, system_cpu_us, peak_rss, read_bytes, write_bytes",
			runV+", "+place+", concat('node', toString(1 + nodenr + k)), "+at("sta")+", "+at("fin")+
				", 0, node_cpus, node_cpus * 4000, node_gpus, 1, false, true, d * 900000, 3000000, 334233600, 15107, 4",
			"ARRAY JOIN range(toUInt64(nodes)) AS k"),
		insert("job_gpus", run+
			", who, from, to, end_gap_us, device, measured, no_process_us, idle_us, rest_us, util_us, peak_mem",
			runV+", "+place+", "+at("sta")+", "+at("fin")+", 0, "+
				packed(
					deviceOf("i"),
					"concat('node', toString(1 + nodenr + intDiv(i, greatest(node_gpus, 1))))",
					"toString(i % greatest(node_gpus, 1))",
					"'h100'",
				)+
				", true, "+
				"1000000, d * 100000, d * 100000 - 1000000, d * 600000, 8000000000", "ARRAY JOIN range(toUInt64(gpus)) AS i"),
	}
}

// run makes everything but samples, the position last.
func (f *fill) run(ctx context.Context, store *clickhouse.Store, p *progress) error {
	return f.runWithSamples(ctx, store, 0, p)
}

// runWithSamples makes samples of some hours, too.
func (f *fill) runWithSamples(ctx context.Context, store *clickhouse.Store, hours int, p *progress) error {
	exec := func(sql string) error {
		return store.Query(
			ctx,
			query.Query{SQL: sql},
			func(func(...any) error) error { return nil },
		)
	}
	db := "`" + store.Database() + "`"
	from, err := f.made(ctx, store)
	if err != nil {
		return err
	}
	for ; from < f.jobs && ctx.Err() == nil; from += fillPart {
		for _, sql := range f.statements(db, from, min(fillPart, f.jobs-from)) {
			// A part that was begun is made to its end, so that the next call can go on behind it.
			if err := store.Query(context.WithoutCancel(ctx), query.Query{SQL: sql}, func(func(...any) error) error { return nil }); err != nil {
				return fmt.Errorf("%w\n%s", err, sql)
			}
		}
		p.say("%d of %d jobs", min(from+fillPart, f.jobs), f.jobs)
	}
	if hours > 0 {
		if err := f.sampleHours(ctx, store, hours, p); err != nil {
			return err
		}
	}
	// Every node is up, and says so at each midnight.
	states := fmt.Sprintf(
		"INSERT INTO %s.node_states (ledger, cluster, seq, at, node, state, class, restated, cpus, mem_mib, gpus, partitions) "+
			"SELECT toUUID('b0010203-0405-0607-0809-0a0b0c0d0e0f'), 'peer', 1, fromUnixTimestamp64Micro(toInt64(%d + intDiv(number, 1000) * 86400) * 1000000, 'UTC'), "+
			"concat('node', toString(1 + number %% 1000)), 'UP', 'up', true, 16, 64000, 8, ['gpu'] FROM numbers(%d)",
		db,
		fillFrom,
		1000*(30*f.months+1),
	)
	position := fmt.Sprintf(
		"INSERT INTO %s.ingest (ledger, phase, n, writer, first, last, at, gen) SELECT toUUID('b0010203-0405-0607-0809-0a0b0c0d0e0f'), 'done', 1, generateUUIDv4(), 0, %d, fromUnixTimestamp64Micro(%d, 'UTC'), 1",
		db,
		f.lastSeq(),
		int64(f.endInstant())/1000,
	)
	for _, sql := range []string{states, position} {
		if err := exec(sql); err != nil {
			return fmt.Errorf("%w\n%s", err, sql)
		}
	}
	if err := f.rollUp(ctx, store); err != nil {
		return err
	}
	return f.settle(ctx, store, p)
}

// sampleHours fills in what every GPU did in the last hours, read every ten seconds. A run
// does nothing on its devices for the first tenth of its time, as its row in job_gpus says.
func (f *fill) sampleHours(ctx context.Context, store *clickhouse.Store, hours int, p *progress) error {
	end := int64(f.endInstant()) / int64(spec.Second)
	for hour := range hours {
		if err := store.Exec(ctx, f.sampleStatement("`"+store.Database()+"`", end-int64(hours-hour)*3600)); err != nil {
			return err
		}
		p.say("%d of %d hours of samples", hour+1, hours)
	}
	return store.Exec(ctx, "OPTIMIZE TABLE `"+store.Database()+"`.gpu_samples FINAL SETTINGS optimize_throw_if_noop = 0")
}

// sampleStatement makes the samples of an hour.
func (f *fill) sampleStatement(db string, from int64) string {
	const every = int64(sampleEvery / spec.Second)
	const perHour = 3600 / every
	grid := fmt.Sprintf("SELECT %d + intDiv(number, %d) * %d AS s, number %% %d AS device, intDiv(device, %d) AS nodenr, device %% %d AS gpu, "+
		"concat('GPU-', leftPad(toString(nodenr), 4, '0'), '-', toString(gpu)) AS uuid FROM numbers(%d)",
		from, fillNodes*fillGPUs, every, fillNodes*fillGPUs, fillGPUs, fillGPUs, perHour*fillNodes*fillGPUs)
	held := fmt.Sprintf("SELECT toString(gpu_uuid) AS uuid, toUnixTimestamp(from) AS a, toUnixTimestamp(to) AS b, uid AS holder, job_id, toString(user) AS user, toString(account) AS account "+
		"FROM %s.job_gpus WHERE to > fromUnixTimestamp(%d) AND from < fromUnixTimestamp(%d)", db, from, from+3600)
	return fmt.Sprintf("INSERT INTO %s.gpu_samples (ledger, cluster, node, gpu_uuid, at, gpu_index, uid, attempt, job_id, user, account, partition, seconds, "+
		"util, sm, tensor, memory_mib, power_w, energy_j, temp_c, sm_mhz, processes)\n"+
		"SELECT toUUID('b0010203-0405-0607-0809-0a0b0c0d0e0f'), 'peer', concat('node', toString(1 + nodenr)), uuid, toDateTime(s, 'UTC'), gpu, if(on, holder, 0), toUInt32(on), if(on, job_id, 0), "+
		"if(on, user, ''), if(on, account, ''), if(on, 'gpu', ''), %d, busy, busy * 9, busy * 4, if(on, 40000 + cityHash64(uuid, s) %% 500, 4), 70 + busy * 6, "+
		"toUInt64(s - %d) * 300, 35 + intDiv(busy, 3), if(on, 1980, 345), toUInt32(on)\n"+
		"FROM (SELECT g.s AS s, g.nodenr AS nodenr, g.gpu AS gpu, g.uuid AS uuid, h.holder AS holder, h.job_id AS job_id, h.user AS user, h.account AS account, g.s < h.b AS on, "+
		"if(on AND (g.s - h.a) * 10 >= h.b - h.a, 60 + cityHash64(g.uuid, g.s, 1) %% 15, 0) AS busy FROM (%s) AS g ASOF LEFT JOIN (%s) AS h ON g.uuid = h.uuid AND g.s >= h.a)",
		db, every, int64(fillFrom), grid, held)
}

// made tells how many jobs are there already, from a call that was told to stop.
func (f *fill) made(ctx context.Context, store *clickhouse.Store) (n int, err error) {
	err = store.Query(ctx, query.Query{SQL: "SELECT toInt64(count()) FROM `" + store.Database() +
		"`.jobs"}, func(scan func(...any) error) error {
		var rows int64
		err := scan(&rows)
		n = int(rows)
		return err
	})
	if err == nil && n%fillPart != 0 {
		err = fmt.Errorf(
			"the folder holds %d jobs, which no call that was told to stop has left: begin with an empty one",
			n,
		)
	}
	return n, err
}

// settle does what the engine does behind inserts in its own time: it merges
// the parts of each month to one.
func (f *fill) settle(ctx context.Context, store *clickhouse.Store, p *progress) error {
	type place struct{ table, partition string }
	var all []place
	err := store.Query(
		ctx,
		query.Query{
			SQL: "SELECT table, partition_id FROM system.parts WHERE active AND database = '" +
				store.Database() +
				"' AND table IN ('" + strings.Join(fillTables(), "', '") +
				"') GROUP BY table, partition_id HAVING count() > 1 ORDER BY table, partition_id",
		},
		func(scan func(...any) error) error {
			var one place
			err := scan(&one.table, &one.partition)
			all = append(all, one)
			return err
		},
	)
	for i, one := range all {
		if err != nil {
			return err
		}
		p.say("merge %d of %d", i+1, len(all))
		err = store.Query(ctx, query.Query{SQL: "OPTIMIZE TABLE `" + store.Database() + "`." +
			one.table + " PARTITION ID '" + one.partition + "' FINAL"},
			func(func(...any) error) error { return nil })
	}
	return err
}

// rollUp adds up the days, as the service does.
func (f *fill) rollUp(ctx context.Context, store *clickhouse.Store) error {
	writer, _, err := store.NewWriter(ctx, f.ledger, "peer")
	for more := true; more && err == nil; {
		more, err = writer.RollUp(ctx)
	}
	return err
}

func fillTables() []string {
	return []string{"jobs", "steps", "job_nodes", "job_gpus", "rollup_days", "rollup_quarters"}
}

// measureBytes tells what the tables take on disk, for each job.
func (f *fill) measureBytes(ctx context.Context, store *clickhouse.Store) (map[string]float64, error) {
	out := map[string]float64{}
	err := store.Query(ctx, query.Query{SQL: "SELECT table, toFloat64(sum(bytes_on_disk)) FROM system.parts WHERE active AND database = '" +
		store.Database() +
		"' AND table IN ('" + strings.Join(fillTables(), "', '") + "') GROUP BY table"}, func(scan func(...any) error) error {
		var table string
		var n float64
		if err := scan(&table, &n); err != nil {
			return err
		}
		out[table] = n / float64(f.jobs)
		return nil
	})
	return out, err
}

// question is one command, with what it may take.
type question struct {
	name string
	goal float64 // milliseconds; 0 = none
	args []string
}

// stampForm is how questions write a time.
const stampForm = "2006-01-02T15:04:05"

// listQuestions are what people ask; the last month is meant.
func (f *fill) listQuestions() []question {
	stamp := func(seconds int64) string { return time.Unix(seconds, 0).UTC().Format(stampForm) }
	end := fillFrom + int64(f.months)*30*86400
	month := end - 30*86400
	day := stamp(month + 14*86400)
	next := stamp(month + 15*86400)
	last := stamp(end)
	job := fmt.Sprint(10000001 + f.jobs - f.jobs/(2*f.months))
	large := f.months > 1 // the goals for a store of 100,000,000 jobs
	goal := func(small, big float64) float64 {
		if large {
			return big
		}
		return small
	}
	questions := []question{
		{"sacct user, day", goal(20, 50), []string{"sacct", "-u", "u042", "-S", day, "-E", next}},
		{"sacct all, day, steps", goal(300, 0), []string{"sacct", "-a", "-S", day, "-E", next}},
		{
			"sacct state, month",
			goal(100, 0),
			[]string{"sacct", "-a", "-X", "-s", "OOM", "-S", stamp(month), "-E", last},
		},
		{"sacct one job", goal(15, 0), []string{"sacct", "-j", job}},
		{
			"sacct all, month",
			goal(3000, 0),
			[]string{"sacct", "-a", "-X", "-S", stamp(month), "-E", last},
		},
	}
	for _, r := range [...]string{"cluster Utilization", "cluster AccountUtilizationByUser", "cluster AccountUtilizationByQOS", "cluster UserUtilizationByAccount",
		"cluster UserUtilizationByWckey", "cluster WCKeyUtilizationByUser", "job SizesByAccount", "job SizesByAccountAndWckey", "job SizesByWckey",
		"reservation Utilization", "user TopUsage"} {
		questions = append(
			questions,
			question{
				"sreport " + r,
				goal(100, 2000),
				append(append([]string{"sreport"}, strings.Fields(r)...), "start="+
					stamp(month), "end="+last),
			},
		)
	}
	return append(
		questions,
		question{
			"sreport sizes of a day",
			goal(100, 0),
			[]string{"sreport", "job", "SizesByAccount", "start=" +
				day, "end=" + next},
		},
		question{
			"kpi all accounts, 30 days",
			goal(500, 0),
			[]string{"kpi", "--by", "account", "--window", "30d"},
		},
		question{
			"findings, week",
			goal(2000, 0),
			[]string{"findings", "--start", stamp(end - 7*86400), "--end", last},
		},
		question{
			"findings, month",
			goal(10_000, 0),
			[]string{"findings", "--start", stamp(month), "--end", last},
		},
		question{
			"sql by user, month",
			0,
			[]string{
				"sql",
				"SELECT user, count(), sum(alloc_gpus * dateDiff('second', start, end)) FROM jobs GROUP BY user",
			},
		},
	)
}
