package query

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/spec"
)

// Stored is a view that stands beside the tables, for who asks the store itself:
// Grafana's boards. It takes whole batches of the ledger, counts each run once,
// and runs that are not over up to now, by the same text as the KPIs and the
// views of muster sql, so that all of them give the same figures.
//
// A view of a window is asked with the cluster's name and the window's ends in
// Unix seconds: runs_within(cluster = 'lab', from = 1800000000, until =
// 1800003600). One of a job is asked with the cluster and the job's number.
type Stored struct {
	Name    string
	About   string
	Params  []string // in the order in which they are written
	Columns []ViewColumn

	rows func(b *builder) string
}

// Parameters of the stored views.
const (
	storedCluster = "cluster"
	storedFrom    = "from"
	storedUntil   = "until"
	storedJob     = "job"
)

// window and jobOf are the parameters of the two kinds of view.
func windowParams() []string { return []string{storedCluster, storedFrom, storedUntil} }

func jobParams() []string { return []string{storedCluster, storedJob} }

const runColumns = `uid, restarts, attempt, job_id, array_job_id, array_task: number of the job, never used twice / which of its runs, from 0 / number of the start; 0 = never started / number that people see / number of the array; 0 = none / task of the array; -1 = none
name, user, account, partition, qos, wckey: its name / its user / the account it is charged to / where it ran, or shall / its QOS / its wckey
state, reason: PENDING, RUNNING, COMPLETED and so on / the last reason for which it waited
exit_code, exit_signal: exit code; 0 = well / the signal that ended it; 0 = none
count: how many jobs the row stands for
submit, eligible, start, end: when it was submitted, or requeued / since when nothing but room was missing / when it started / when it was over; NULL = not yet, or never
promised: the first start that it was promised; NULL = none, or void since it was held or changed
elapsed_us, limit_us: what it ran without suspensions, so far where it goes on, in microseconds; NULL = never started / time limit in microseconds; -1 = none
req_cpus, req_gpus, req_nodes, req_mem_mib: what it asked for
alloc_cpus, alloc_gpus, alloc_nodes, alloc_mem_mib, alloc_billing: what it got
node_list, backfill: its nodes, as a list expression / started ahead of its turn
`

// StoredViews lists them.
//
//muster:table one entry for each view
func StoredViews() []Stored {
	const who = "uid, restarts, attempt, job_id, user, account, partition, qos: which start of which job / whose it is\n"
	return []Stored{
		{Name: "runs_within", Params: windowParams(), About: "the runs that ran, ended or waited in a window, those that go on up to now; with the same columns as the figures of source runs",
			rows: (*builder).storedRuns, Columns: viewColumns(runColumns +
				`held_us: time within the window, in microseconds
held_from, held_until: the same as instants, cut to the window
active: the part of its time that it was not suspended
cpu_held_us, gpu_held_us: CPUs times microseconds within the window, without suspensions / GPUs times microseconds within the window
started_in, ended_in: it started in the window / it ended in the window
wait_s: seconds from its submission to its start
`)},
		{Name: "promises_within", Params: windowParams(), About: "the promises of a start that were due in a window: each counts once, at the start that keeps it or when its grace is over",
			rows: (*builder).storedPromises, Columns: viewColumns(who +
				`promised, start: the first start that it was promised / when it started; NULL = not yet, or never
kept: it started no later than the grace after the promise
late_s: seconds that it started later than promised, so far where it still waits; 0 = it did not
`)},
		{Name: "nodes_within", Params: windowParams(), About: "what each run held and used within a window on each of its nodes; of one that is not over, as far as it was sampled",
			rows: (*builder).storedNodes, Columns: viewColumns(who +
				`node: name of the node
from, until: since when it was held / until when, or was last sampled
cpus, gpus, mem_mib, lost: what was held there / the node was lost, so nothing was measured
held_s: seconds of it within the window
cpu_s, cpu_held_s: CPU time used, in seconds / CPUs times seconds where that was measured; NULL = not measured, as all that follows
mem_held_byte_s, mem_wasted_byte_s: bytes times seconds held, where the peak was measured / what of that was never used
peak_rss: largest memory in bytes
energy_j: energy in joules
`)},
		{Name: "gpus_within", Params: windowParams(), About: "which run held which device within a window and what it did with it; of one that is not over, as far as it was sampled",
			rows: (*builder).storedGPUs, Columns: viewColumns(who +
				`node, gpu_uuid, gpu_index, gpu_type: name of the node / the device / its number on the node / its type in Gres
from, until: since when it was held / until when, or was last sampled
held_s: seconds of it within the window, where it was measured; NULL = not measured, as all that follows
no_process_s, idle_s, busy_s: without a process / with one that did nothing / with one that worked
util_s, sm_s: utilisation times seconds / activity of the multiprocessors times seconds
energy_j, xids: energy in joules / errors of the driver
`)},
		{Name: "gpu_runs_within", Params: windowParams(), About: "what runs did within a window on all of their devices together, where it was measured; a run that an edge of the window cuts, or that is not over, may have several rows",
			rows: (*builder).storedGPURuns, Columns: viewColumns(who +
				`no_process_s, idle_s, busy_s: seconds of its devices without a process / with one that did nothing / with one that worked
measured_s: all of these
util_s: utilisation times seconds
`)},
		{Name: "gpu_quarters_within", Params: windowParams(), About: "what was read of each device in each quarter of an hour that lies in a window, or of which an edge of the window cuts a part, by the run that held the device",
			rows: (*builder).storedQuarters, Columns: viewColumns(`at: when the quarter begins
node, gpu_uuid: name of the node / the device
uid, attempt, user: which start of which job held it; 0 = none held it alone / the user of that job; empty = none
read_s: seconds for which something was measured
no_process_s, idle_s, busy_s: without a process / with one that did nothing / with one that worked
util_s, sm_s: utilisation times seconds / activity of the multiprocessors times seconds
`)},
		{Name: "runs_of_job", Params: jobParams(), About: "every run of a job: over, running or pending",
			rows: (*builder).storedJobRuns, Columns: viewColumns(runColumns +
				`constraint, reservation, licenses, priority: features of nodes it asked for / the reservation it ran in / licenses it asked for / its priority at its start
work_dir, stdout: folder it ran in / file its output went to
comment: its comment
cost, currency: what was allocated so far times the prices of the day (cost.prices of muster.yaml); NULL without prices, or as it never started / the currency of that (cost.currency); empty = it has no name
`)},
		{Name: "nodes_of_job", Params: jobParams(), About: "what each run of a job held and used on each of its nodes, up to now",
			rows: (*builder).storedJobNodes, Columns: viewColumns(who +
				`node, from, until: name of the node / since when it was held / until when, or was last sampled
cpus, gpus, mem_mib, lost: what was held there / the node was lost, so nothing was measured
cpu_s, peak_rss: CPU time used, in seconds; NULL = not measured / largest memory in bytes; NULL = not measured
`)},
		{Name: "gpus_of_job", Params: jobParams(), About: "which devices each run of a job held and what it did with them, up to now",
			rows: (*builder).storedJobGPUs, Columns: viewColumns(who +
				`node, gpu_uuid, gpu_index, gpu_type, from, until: name of the node / the device / its number on the node / its type in Gres / since when it was held / until when, or was last sampled
no_process_s, idle_s, busy_s, util_s: without a process / with one that did nothing / with one that worked / utilisation times seconds; NULL = not measured
peak_mem, energy_j, xids: largest memory in bytes / energy in joules / errors of the driver
`)},
		{Name: "goodput_within", Params: windowParams(), About: "what became of the GPU time that was bought in a window: a row for each step, which add up to it exactly",
			rows: (*builder).storedLadder, Columns: viewColumns(`rank, step, what: order in which they are read / its name / in words
gpu_us, bought_gpu_us: GPUs times microseconds / what was bought in all
`)},
		{Name: "gpus_now", Params: []string{storedCluster}, About: "every device as it is now, by the newest reading and what holds for its node",
			rows: (*builder).storedGPUsNow, Columns: viewColumns(`node, gpu_index, gpu_uuid, profile: name of the node / number on the node / the device or MIG instance / the MIG profile; empty = a whole device
state: busy; idle = held and without work for ten minutes, or since it was taken; shared; free; drained; down; off = powered down; lost = no reading for two minutes though its node is up
user, account, partition, job_id: who holds it alone / the account / the partition / the job; 0 = none does
util: utilisation in percent at the newest reading; NULL = not measured
at: when that was
node_state, node_reason: state of the node, as sinfo has it / why
`)},
		{Name: "steps_of_job", Params: jobParams(), About: "every step of a job, those that go on too",
			rows: (*builder).storedJobSteps, Columns: viewColumns(`uid, restarts, attempt, job_id: which start of which job
step: its name: batch, extern, interactive, or its number
name, state, exit_code, exit_signal: its name / how it ended, or RUNNING / exit code; 0 = well / the signal that ended it; 0 = none
start, end, tasks, node_list: when it began / when it was over; NULL = not yet / number of tasks / its nodes, as a list expression
cpu_s, peak_rss: CPU time used, in seconds; NULL = not measured / largest memory in bytes; NULL = not measured
`)},
	}
}

// SQL is the view's text over the tables of a database, with the site's prices,
// which may be nil: no amount is known then.
func (v Stored) SQL(database string, rates *kpi.Rates) string {
	b := newBuilder(Scope{Database: database})
	b.rates = rates
	names := make([]string, len(v.Columns))
	for i, column := range v.Columns {
		names[i] = "`" + column.Name + "`"
	}
	with := []string{
		"(" + b.positionOfCluster() + ") AS _at",
		"assumeNotNull(greatest(toUnixTimestamp64Micro(now64(6, 'UTC')), _at.4)) AS _now",
	}
	if slices.Contains(v.Params, storedFrom) {
		with = append(
			with,
			"1000000 * {from:Int64} AS _from",
			"least(1000000 * {until:Int64}, _now) AS _to",
		)
	}
	if slices.Contains(v.Params, storedJob) {
		with = append(with, "_now AS _to")
	}
	rows := v.rows(b)
	known := []string{"{ledger:UUID}", "_at.1", "{seq:UInt64}", "_at.2", "{gen:UInt32}", "_at.3",
		"{from:Int64}", "_from", "{to:Int64}", "_to", "{now_us:Int64}", "_now"}
	// A view has no parameters but its own: names of priced licences and the like
	// stand in its text.
	for _, param := range b.params {
		if name, ok := param.Value.(string); ok && strings.HasPrefix(param.Name, priceParam) {
			known = append(known, "{"+param.Name+":String}", quoteLiteral(name, "String"))
		}
	}
	rows = strings.NewReplacer(known...).Replace(rows)
	return "WITH " + strings.Join(with, ", ") + "\nSELECT " + strings.Join(names, ", ") +
		"\nFROM " + rows
}

// positionOfCluster asks which ledger a cluster's is, how far the store has it,
// the generation of its open runs and when its last event was: no instant
// before that is now, whatever the store's clock says. Of several ledgers of one name the one
// that was written last counts.
func (b *builder) positionOfCluster() string {
	var of []string
	for _, table := range [...]string{"associations", "live", "rollup_days"} {
		of = append(of, "SELECT DISTINCT ledger FROM "+b.qualifyTable(table)+
			" WHERE cluster = {cluster:String}")
	}
	return "SELECT (argMax(ledger, written), argMax(last, written), argMax(gen, written), toUnixTimestamp64Micro(argMax(at, written))) FROM " +
		b.qualifyTable("ingest") +
		" FINAL WHERE phase = 'done' AND ledger IN (" + strings.Join(of, " UNION ALL ") + ")"
}

// storedRun are the columns that are the same for a run that is over and for one
// that is open. The end has a name of its own: it is no Nullable of one that is
// over.
const storedRun = "uid, restarts, attempt, job_id, array_job_id, array_task, name, wckey, reason, exit_code, exit_signal, " +
	"submit, eligible, start, promised, toNullable(end) AS over_at, limit_us, req_cpus, req_gpus, req_nodes, req_mem_mib, alloc_mem_mib, alloc_billing, " +
	"node_list, backfill, if(isNull(start), NULL, if(isNull(end) AND state != 'SUSPENDED', greatest(0, {now_us:Int64} - toUnixTimestamp64Micro(start) - suspended_us), elapsed_us)) AS ran_us"

func (b *builder) storedRuns() string {
	const more = "greatest(assumeNotNull(toUnixTimestamp64Micro(start)), {from:Int64}) AS held_from_us"
	rows := b.kpiRuns(&Report{}, nil, storedRun, more)
	return "(SELECT *, over_at AS end, ran_us AS elapsed_us, toInt64(round(assumeNotNull(overlap_s) * 1e6)) AS held_us, if(held_us > 0, " +
		microsToInstant("held_from_us") + ", NULL) AS held_from, " +
		"if(held_us > 0, " + microsToInstant("held_from_us + held_us") +
		", NULL) AS held_until, assumeNotNull(alloc_cpus * overlap_s * 1e6 * active) AS cpu_held_us, alloc_gpus * held_us AS gpu_held_us FROM " +
		rows + ")"
}

func (b *builder) storedPromises() string {
	rows := b.kpiRuns(&Report{}, nil, "uid, restarts, attempt, job_id, promised, start")
	return "(SELECT *, promise_kept AS kept FROM " + rows + " WHERE promise_due)"
}

// storedOf are the columns that say whose a row of a node or a device is.
const storedOf = "uid, restarts, attempt, job_id, user, account, partition, qos, node, from, least(to, end) AS until"

// storedPart is share under a name that no table has: job_gpus has a share of its
// own, the part of the device.
func storedPart() string { return strings.TrimSuffix(share, "share") + "part" }

// storedUse are a node's amounts, times the part of them that counts.
func storedUse(share, seconds string) string {
	const peak = "measured AND isNotNull(peak_rss)"
	used := "if(measured, (user_cpu_us + system_cpu_us) / 1e6 * " + share + ", NULL) AS cpu_s"
	if seconds == "" {
		return used
	}
	return used + ", if(measured, cpus * " + seconds + ", NULL) AS cpu_held_s, " +
		"if(" + peak + ", mem_mib * 1048576 * " + seconds + ", NULL) AS mem_held_byte_s, " +
		"if(" + peak + ", greatest(mem_mib * 1048576 - assumeNotNull(peak_rss), 0) * " + seconds +
		", NULL) AS mem_wasted_byte_s, energy_mj / 1000 * " + share + " AS energy_j"
}

func (b *builder) storedNodes() string {
	columns := storedOf + ", cpus, gpus, mem_mib, lost, peak_rss, " + storedPart() +
		", overlap_s AS held_s, " + storedUse("part", "overlap_s")
	return "(\n    " + b.nodeRows(columns, shareWithin, true) + "\n  )"
}

// deviceUse are a device's amounts, times the part of them that counts.
func deviceUse(share string) string {
	var out []string
	for _, c := range [...]string{"no_process", "idle", "busy", "util"} {
		out = append(
			out,
			fmt.Sprintf("if(measured, %[1]s_us / 1e6 * %[2]s, NULL) AS %[1]s_s", c, share),
		)
	}
	return strings.Join(out, ", ") + ", if(measured, energy_mj / 1000 * " + share +
		", NULL) AS energy_j, xids, peak_mem"
}

func (b *builder) storedGPUs() string {
	columns := storedOf + ", gpu_uuid, gpu_index, gpu_type, " + storedPart() +
		", if(measured, overlap_s, NULL) AS held_s, " +
		"if(measured AND NOT (sm_us = 0 AND util_us > 0), sm_us / 1e6 * part, NULL) AS sm_s, " +
		deviceUse("part")
	return "(\n    " + b.deviceRows(columns, shareWithin, true) + "\n  )"
}

func (b *builder) storedGPURuns() string {
	const of = "uid, restarts, attempt, job_id, user, account, partition, qos"
	const amounts = ", no_process / 1e6 AS no_process_s, idle / 1e6 AS idle_s, busy / 1e6 AS busy_s, (no_process + idle + busy) / 1e6 AS measured_s, used / 1e6 AS util_s"
	return "(SELECT " + of + amounts + " FROM (\n    " + b.runDevices(
		of+", toFloat64(gpu_no_process_us) AS no_process, toFloat64(gpu_idle_us) AS idle, toFloat64(gpu_busy_us) AS busy, toFloat64(gpu_util_us) AS used",
		"",
		of+", no_process, idle, busy, used",
		of+", no_process_us * part AS no_process, idle_us * part AS idle, busy_us * part AS busy, util_us * part AS used, "+storedPart(),
		"",
	) + "\n  ))"
}

// storedQuarters reads the sums that the store keeps of samples.
func (b *builder) storedQuarters() string {
	const keys = "node, gpu_uuid, uid, attempt, user"
	sums := ""
	for _, sum := range sampleSums() {
		switch sum.name {
		case "known_s", "absent_s", "unused_s", "util_ms", "sm_ms":
			sums += ", " + sum.sql + " AS " + sum.name
		}
	}
	return "(SELECT quarter AS at, " + keys + ", known_s AS read_s, absent_s AS no_process_s, unused_s AS idle_s, known_s - absent_s - unused_s AS busy_s, " +
		"util_ms / 1000 AS util_s, sm_ms / 1000 AS sm_s FROM (SELECT " + sampleQuarter + " AS quarter, " + keys + sums + " FROM " +
		b.qualifyTable("gpu_samples") + " WHERE " + readings + " AND " + sampleQuarter +
		" >= toStartOfFifteenMinutes(toDateTime(intDiv({from:Int64}, 1000000), 'UTC')) AND " + sampleQuarter +
		" < toDateTime(intDiv({to:Int64} + 999999, 1000000), 'UTC') GROUP BY quarter, " + keys + "))"
}

// Spans of gpus_now, in seconds: readings that are older say nothing of now, a
// device that did nothing for so long is idle, and one that was not read for so
// long is not known any more.
const (
	freshFor = 120
	idleFor  = 600
	knownFor = 86_400
)

func (b *builder) storedGPUsNow() string {
	const since = "toDateTime(intDiv({now_us:Int64}, 1000000) - %d, 'UTC')"
	read := func(seconds int) string {
		return b.qualifyTable("gpu_samples") + " WHERE " + readings + " AND at >= " +
			fmt.Sprintf(since, seconds)
	}
	// In this form the store reads what it has added up, not the samples.
	known := "(SELECT node, gpu_uuid, "
	for _, sum := range sampleSums() {
		switch sum.name {
		case "index", "cut":
			known += sum.sql + " AS " + sum.name + ", "
		case "last":
			known += sum.sql + " AS " + sum.name
		}
	}
	known += " FROM " + b.qualifyTable("gpu_samples") + " WHERE " + readings + " AND " + sampleQuarter +
		" >= toStartOfFifteenMinutes(" + fmt.Sprintf(since, knownFor) + ") GROUP BY node, gpu_uuid)"
	// A node's state is said again at each midnight.
	nodes := "(SELECT node, argMax(toString(class), (at, seq)) AS class, argMax(toString(state), (at, seq)) AS node_state, argMax(toString(reason), (at, seq)) AS node_reason FROM " +
		b.qualifyTable("node_states") + " WHERE " + stored + " AND at >= " +
		fmt.Sprintf(since, 2*knownFor) + " GROUP BY node)"
	const newest = "argMax(user, last) AS user, argMax(account, last) AS account, argMax(partition, last) AS partition, argMax(job_id, last) AS job_id, " +
		"argMax(holder, last) AS holder, argMax(worked, last) AS worked, argMax(running, last) AS running, argMax(percent, last) AS util, max(last) AS read"
	// All readings in the hands of one run name the same owner.
	held := "(SELECT node, gpu_uuid, uid AS holder, max(at) AS last, any(user) AS user, any(account) AS account, any(partition) AS partition, any(job_id) AS job_id, " +
		"argMax(tuple(ifNull(util, engine / 10)), at).1 AS percent, " +
		"max(ifNull(ifNull(util, engine), 1)) > 0 AS worked, argMax(ifNull(processes, 0), at) > 0 AS running FROM " +
		read(idleFor) + " GROUP BY node, gpu_uuid, uid)"
	return "(\n  SELECT k.node AS node, k.gpu_uuid AS gpu_uuid, k.index AS gpu_index, toString(k.cut) AS profile, s.user AS user, s.account AS account, s.partition AS partition, " +
		"if(state IN ('lost', 'down', 'off'), 0, s.job_id) AS job_id, s.util AS util, k.last AS at, n.node_state AS node_state, n.node_reason AS node_reason,\n" +
		"    s.read >= " + fmt.Sprintf(since, freshFor) + " AS fresh,\n" +
		"    multiIf(n.class = 'planned', 'off', NOT fresh AND n.class = 'up', 'lost', NOT fresh, 'down', s.holder != 0 AND NOT s.worked, 'idle', s.holder != 0, 'busy',\n" +
		"      s.running, 'shared', n.class != 'up', 'drained', 'free') AS state\n" +
		"  FROM " + known + " AS k\n" +
		"  INNER JOIN " + nodes + " AS n ON k.node = n.node\n" +
		"  LEFT JOIN (SELECT node, gpu_uuid, " + newest + " FROM " + held +
		" GROUP BY node, gpu_uuid) AS s ON k.node = s.node AND k.gpu_uuid = s.gpu_uuid\n" +
		"  WHERE n.class != 'gone'\n)"
}

// ofJob is the condition on rows of the job that is asked about.
const ofJob = "job_id = {job:UInt32}"

func (b *builder) storedJobRuns() string {
	currency := ""
	if b.rates != nil {
		currency = b.rates.Currency
	}
	const more = ", user, account, partition, qos, alloc_cpus, alloc_gpus, alloc_nodes, state, toInt64(count) AS count, " +
		"constraint, reservation, licenses, priority, work_dir, stdout, comment, "
	cost := b.costColumn(&Report{End: spec.FarFuture}, b.rates)
	money := ", if(isNull(start), NULL, cost) AS cost, " + quoteLiteral(currency, "String") +
		" AS currency FROM "
	return "(SELECT * EXCEPT (cost), over_at AS end, ran_us AS elapsed_us" + money +
		b.allRuns(storedRun+more+cost, ofJob) + ")"
}

func (b *builder) storedJobNodes() string {
	return "(\n    " +
		b.nodeRows(
			storedOf+", cpus, gpus, mem_mib, lost, peak_rss, "+storedUse("1", ""),
			" AND "+ofJob,
			false,
		) +
		"\n  )"
}

func (b *builder) storedJobGPUs() string {
	return "(\n    " +
		b.deviceRows(
			storedOf+", gpu_uuid, gpu_index, gpu_type, "+deviceUse("1"),
			" AND "+ofJob,
			false,
		) +
		"\n  )"
}

func (b *builder) storedJobSteps() string {
	const step = "uid, restarts, attempt, job_id, name, exit_code, exit_signal, tasks, node_list"
	over := "SELECT uid, restarts, attempt, job_id, toString(name) AS name, toString(state) AS state, exit_code, exit_signal, start, toNullable(end) AS over_at, tasks, toString(node_list) AS node_list, " +
		stepName("steps.step") +
		" AS step, if(measured, (user_cpu_us + system_cpu_us) / 1e6, NULL) AS cpu_s, peak_rss FROM " +
		b.qualifyTable("steps") + " WHERE " + stored + " AND " + ofJob
	goesOn := "SELECT uid, restarts, attempt, job_id, step_name AS name, 'RUNNING' AS state, toInt32(0) AS exit_code, toInt32(0) AS exit_signal, step_start AS start, CAST(NULL AS Nullable(DateTime64(6, 'UTC'))) AS over_at, step_task AS tasks, step_node AS node_list, " +
		stepName("step_id") +
		" AS step, CAST(NULL AS Nullable(Float64)) AS cpu_s, CAST(NULL AS Nullable(Int64)) AS peak_rss FROM " +
		b.qualifyTable("live") +
		" FINAL ARRAY JOIN step_ids AS step_id, step_names AS step_name, step_starts AS step_start, step_tasks AS step_task, step_nodes AS step_node WHERE " +
		open + " AND " + ofJob
	// The script of a run is a step, too; while it runs only the run tells of it.
	script := "SELECT uid, restarts, attempt, job_id, 'batch' AS name, toString(live.state) AS state, toInt32(0) AS exit_code, toInt32(0) AS exit_signal, assumeNotNull(live.start) AS start, CAST(NULL AS Nullable(DateTime64(6, 'UTC'))) AS over_at, toUInt32(1) AS tasks, toString(live.node_list) AS node_list, 'batch' AS step, " +
		"CAST(NULL AS Nullable(Float64)) AS cpu_s, CAST(NULL AS Nullable(Int64)) AS peak_rss FROM " +
		b.qualifyTable("live") + " AS live FINAL WHERE " + open +
		" AND batch AND isNotNull(live.start) AND isNull(live.end) AND " + ofJob
	return "(SELECT " + step +
		", state, start, over_at AS end, step, cpu_s, peak_rss FROM (\n    " + over +
		"\n    UNION ALL\n    " + goesOn + "\n    UNION ALL\n    " + script + "\n  ))"
}

// stepName is a step's number as sacct writes it.
func stepName(column string) string {
	return "multiIf(" + column + " = -5, 'batch', " + column + " = -4, 'extern', " + column +
		" = -6, 'interactive', toString(" + column + "))"
}
