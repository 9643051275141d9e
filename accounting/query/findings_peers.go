package query

import (
	"fmt"
	"strings"

	"github.com/musterhpc/muster/accounting/findings"
)

// Findings that compare: the nodes of a run with each other, a device with others
// under the same programs, a run with its user's earlier ones.

// clocksWithin is how much of a window, in seconds before its end, clocks of GPUs are read
// from: a fleet of 8,000 GPUs has 70 million readings a day.
const clocksWithin = 86_400

// heldDown are the bits of what holds clocks down that tell of heat or of the board's
// power: HW slowdown, SW and HW thermal, HW power brake. A power cap is left
// out, because heavy programs reach it on healthy devices too.
const heldDown = 0x08 | 0x20 | 0x40 | 0x80

// runOutcome is the step of the ladder of runs that ended well or are not over.
const runOutcome = "multiIf(isNull(end), 'open', state = 'COMPLETED', 'good', '')"

// unevenRuns is the part of a query that both the figures and their evidence have: a
// row for each run on several nodes, from rows of its nodes (node, sm, util, dark,
// idle, held, wall). Activity is that of the multiprocessors where all its devices
// report it, otherwise utilisation; of runs without devices it is CPU time.
func unevenRuns(key, nodes string) string {
	const busy = "8 * r >= 7 * top"
	const behind = "4 * r <= 3 * top"
	columns := []string{
		key,
		"groupArray(node) AS names",
		"groupArray(held) AS helds",
		"groupArray(idle) AS idles",
		"count() AS wide",
		"min(wall) AS shortest",
		"if(sum(dark) = 0 AND sum(sm) > 0, groupArray(sm), groupArray(util)) AS acts",
	}
	runs := "SELECT " + strings.Join(columns, ", ") +
		" FROM (" + nodes + ") GROUP BY " + key + " HAVING wide > 1"
	columns = []string{
		"*",
		"arrayMap((act, h) -> if(h > 0, intDiv(1000 * act, h), 0), acts, helds) AS rates",
		"arrayMax(rates) AS top",
		"arrayMin(rates) AS low",
		fmt.Sprintf(
			"top >= %d AND shortest >= %d AND 4 * low <= %d * top AS uneven",
			findings.MinActive,
			findings.MinHeld,
			findings.UnevenQuarters,
		),
	}
	rated := "SELECT " + strings.Join(columns, ", ") + " FROM (" + runs + ")"
	const waits = "arrayMap((r, h, i) -> if(uneven, greatest(0, intDiv((top - r) * h, 1000) - i), 0), " +
		"rates, helds, idles)"
	columns = []string{
		key,
		"names",
		"rates",
		"wide",
		"uneven",
		"arraySum(helds) AS held",
		"arrayCount(r -> " + busy + ", rates) AS busy",
		waits + " AS waits",
		"if(uneven AND 2 * busy <= wide, arrayFilter((n, r) -> " + busy + ", names, rates), []) AS late",
		"if(uneven AND 2 * busy > wide, arrayFilter((n, r) -> " + behind + ", names, rates), []) AS behind",
	}
	return "SELECT " + strings.Join(columns, ", ") + " FROM (" + rated + ")"
}

// FindingsSpreads asks how unevenly nodes of runs worked, of runs with devices or of
// those without: the columns of findings.Spread behind its resource, in its order.
func (r *Report) FindingsSpreads(scope Scope, resource findings.Resource) Query {
	b := newBuilder(scope)
	r.bindWindow(b)
	which := ran + " AND alloc_nodes > 1 AND (isNull(end) OR state = 'COMPLETED') AND alloc_gpus "
	if resource == findings.GPUTime {
		which += "> 0"
	} else {
		which += "= 0"
	}
	which += r.filterClause(b)
	runs := b.allRuns("uid, restarts, toString(user) AS by_user, toString(account) AS by_account, "+
		workNames("name")+" AS work, toInt64(alloc_nodes) AS nodes, "+runOutcome+" AS outcome", which)
	of := " AND uid IN (SELECT uid FROM " + b.allRuns("uid", which) + ")"
	const key = "uid, restarts"
	var nodes string
	if resource == findings.GPUTime {
		nodes = "SELECT uid, restarts, toString(node) AS node, sum(sm_part) AS sm, sum(util_part) AS util, sum(util_part > 0 AND sm_part = 0) AS dark, sum(idle_part) AS idle, sum(device_held) AS held, max(device_held) AS wall FROM (" +
			b.deviceRows(
				"uid, restarts, node, toInt64(round(sm_us * part)) AS sm_part, toInt64(round(util_us * part)) AS util_part, "+
					"toInt64(round((no_process_us + idle_us) * part)) AS idle_part, toInt64(overlap_us) AS device_held, "+storedPart(),
				" AND measured AND method != 'by share'"+shareWithin+of,
				true,
			) + ") GROUP BY uid, restarts, node"
	} else {
		nodes = "SELECT uid, restarts, toString(node) AS node, toInt64(0) AS sm, sum(used) AS util, toUInt64(0) AS dark, toInt64(0) AS idle, sum(cpus_held) AS held, max(node_held) AS wall FROM (" +
			b.nodeRows(
				"uid, restarts, node, toInt64(round((user_cpu_us + system_cpu_us) * share)) AS used, toInt64(cpus) * overlap_us AS cpus_held, toInt64(overlap_us) AS node_held, "+share,
				" AND measured"+shareWithin+of,
				true,
			) + ") GROUP BY uid, restarts, node"
	}
	most := func(list, as string) string {
		return "sumMap(" + list + ", arrayMap(n -> toUInt64(1), " + list + ")) AS " + as
	}
	// Of nodes with equal numbers of runs the first by name.
	first := func(m string) string {
		return "arraySort((n, c) -> (-toInt64(c), n), " + m + ".1, " + m + ".2)[1], toInt64(arrayMax(arrayConcat(" + m + ".2, [toUInt64(0)])))"
	}
	return b.buildQuery("SELECT by_user, by_account, work, held_us, all_runs, runs, waited_us, open_us, " +
		first("late_of") + ", " + first("behind_of") +
		"\nFROM (SELECT by_user, by_account, work, toInt64(sum(held)) AS held_us, toInt64(count()) AS all_runs, toInt64(countIf(uneven)) AS runs, " +
		"toInt64(sum(arraySum(waits))) AS waited_us, toInt64(sumIf(arraySum(waits), outcome = 'open')) AS open_us, " +
		most("late", "late_of") + ", " + most("behind", "behind_of") +
		"\nFROM (" + unevenRuns(key, nodes) + ") AS u\nINNER JOIN " + runs +
		" AS r ON u.uid = r.uid AND u.restarts = r.restarts\nWHERE u.wide = r.nodes\nGROUP BY by_user, by_account, work)" +
		"\nORDER BY by_user, by_account, work")
}

// FindingsDevices asks for the clocks of devices at full load within the last day of the
// window, by the programs that loaded them: the columns of findings.Device in its order.
func (r *Report) FindingsDevices(scope Scope) Query {
	b := newBuilder(scope)
	r.bindWindow(b)
	full := fmt.Sprintf("util >= %d AND isNotNull(sm_mhz)", findings.FullLoad)
	// Readings that were sent twice count twice until they are merged, which makes no
	// difference to a mean and little to a sum.
	read := "SELECT uid, attempt, toString(gpu_samples.node) AS at_node, toString(gpu_samples.gpu_uuid) AS device, toInt64(any(gpu_index)) AS number, toInt64(sum(seconds)) AS load_s, " +
		"toInt64(sum(assumeNotNull(sm_mhz) * seconds)) AS clock, " +
		fmt.Sprintf("toInt64(sumIf(seconds, bitAnd(ifNull(throttle, 0), %d) != 0)) AS slowed, ", heldDown) +
		"toInt64(ifNull(max(mem_mhz), 0)) AS mem_clock FROM " + b.qualifyTable("gpu_samples") +
		" AS gpu_samples WHERE " + readings + " AND uid != 0 AND " + full +
		fmt.Sprintf(" AND at >= greatest(%s, %s - %d) AND at < %s", windowFrom, windowTo, clocksWithin, windowTo) +
		" GROUP BY uid, attempt, at_node, device"
	runs := b.allRuns("uid, attempt, toString(user) AS by_user, toString(account) AS by_account, "+
		workNames("name")+" AS work, alloc_nodes = 1 AS alone, "+runOutcome+" AS outcome", ran+" AND alloc_gpus > 0")
	types := "(SELECT toString(job_gpus.gpu_uuid) AS device, anyLast(toString(job_gpus.gpu_type)) AS kind FROM " +
		b.qualifyTable("job_gpus") + " AS job_gpus WHERE " + stored + " AND to > " + windowFrom +
		" - toIntervalDay(30) GROUP BY device)"
	alone := func(outcome string) string {
		return "toInt64(sumIf(load_s, alone AND outcome " + outcome + ") * 1000000)"
	}
	return b.buildQuery("SELECT by_user, by_account, work, any(t.kind) AS kind, max(mem_clock) AS memory, at_node, s.device AS which, any(number), " +
		"toInt64(uniqExact(s.uid, s.attempt)), sum(load_s) AS load, intDiv(sum(clock), load), sum(slowed), " +
		alone("IN ('good', 'open')") + ", " + alone("= 'open'") +
		"\nFROM (" + read + ") AS s\nINNER JOIN " + runs + " AS r ON s.uid = r.uid AND s.attempt = r.attempt\nLEFT JOIN " + types +
		" AS t ON s.device = t.device\nGROUP BY by_user, by_account, work, at_node, which\nORDER BY by_user, by_account, work, at_node, which")
}

// measure is what a run is compared by with its user's earlier runs.
type measure struct {
	name, unit string
	value      string // over the columns of runs below; NULL = not measured
	floor      string // differences below it are none
	open       bool   // known of runs that are not over
	above      bool   // only more than usual counts
}

// measures lists them. Rates of runs that go on are those so far.
//
//muster:table one entry for each measure
func measures() []measure {
	return []measure{
		{"gpu utilisation", "ratio", "if(gpu_known > 0, gpu_used / gpu_known, NULL)", "0.1", true, false},
		{"cpu utilisation", "ratio", "if(cpu_known > 0, cpu_used / cpu_known, NULL)", "0.1", true, false},
		{"memory", "bytes", "toFloat64(peak)", "268435456", true, true},
		{"reads", "bytes/s", "if(isNotNull(read), read / took_s, NULL)", "1048576", false, true},
		{"writes", "bytes/s", "if(isNotNull(written), written / took_s, NULL)", "1048576", false, true},
		{"run time", "seconds", "if(completed, took_s, NULL)", "300", false, false},
	}
}

// Rules of what is unlike: at least so many earlier runs, within so many days before the
// window, and a value so many times the distance between the quartiles beyond them.
const (
	minEarlier      = 8
	earlierDays     = 28
	beyondQuartiles = 3
	minComparedSpan = 300_000_000 // microseconds
)

// FindingsUnlike asks for runs within the window that are unlike the earlier runs of the
// same user, account, job name without its numbers, and number of GPUs and nodes: job,
// restarts, user, account, name, state, start, GPU microseconds held, measure, unit, value,
// first quartile, median, third quartile, number of earlier runs. Earlier runs are those that
// completed in the earlierDays before the window.
func (r *Report) FindingsUnlike(scope Scope, limit int) Query {
	b := newBuilder(scope)
	r.bindWindow(b)
	chosen := r.filterClause(b)
	identity := "user, account, " + workNames("name") + " AS work, alloc_gpus, alloc_nodes"
	const over = "gpu_measured_us AS gpu_known, gpu_util_us AS gpu_used, " +
		"if(measured, toInt64(alloc_cpus) * elapsed_us, 0) AS cpu_known, user_cpu_us + system_cpu_us AS cpu_used, " +
		"peak_rss AS peak, if(measured, toNullable(read_bytes), NULL) AS read, if(measured, toNullable(write_bytes), NULL) AS written, " +
		"elapsed_us / 1e6 AS took_s, state = 'COMPLETED' AS completed"
	long := fmt.Sprintf("isNotNull(start) AND elapsed_us >= %d", minComparedSpan)
	ended := func(columns, where string) string {
		return "SELECT " + columns + identity + ", " + over + " FROM " + b.qualifyTable("jobs") + " WHERE " + stored +
			" AND " + long + " AND " + where + chosen
	}
	const who = "job_id, restarts, state, start, "
	// Of runs that are not over the samples tell.
	gpus := "(SELECT uid, restarts, sum(util_us) AS gpu_used, sum(no_process_us + idle_us + busy_us) AS gpu_known FROM " + b.openDevices(false) +
		" WHERE measured GROUP BY uid, restarts)"
	nodes := "(SELECT uid, restarts, sum(user_cpu_us) AS cpu_used, sum(toInt64(cpus) * (toUnixTimestamp64Micro(to) - toUnixTimestamp64Micro(from))) AS cpu_known, max(peak_rss) AS peak FROM " +
		b.openNodes(false) + " WHERE measured GROUP BY uid, restarts)"
	goesOn := "SELECT r.job_id, r.restarts, r.state, r.start, r.user, r.account, r.work, r.alloc_gpus, r.alloc_nodes, " +
		"g.gpu_known, g.gpu_used, n.cpu_known, n.cpu_used, n.peak, CAST(NULL AS Nullable(Int64)) AS read, CAST(NULL AS Nullable(Int64)) AS written, " +
		"r.took_s, false AS completed FROM (SELECT uid, job_id, restarts, state, start, " + identity +
		", ({to:Int64} - toUnixTimestamp64Micro(assumeNotNull(start))) / 1e6 AS took_s FROM " + b.qualifyTable("live") + " FINAL WHERE " + open +
		" AND isNotNull(start) AND isNull(end) AND start < " + windowTo + chosen + fmt.Sprintf(" AND took_s * 1e6 >= %d", minComparedSpan) +
		") AS r LEFT JOIN " + gpus + " AS g ON r.uid = g.uid AND r.restarts = g.restarts LEFT JOIN " + nodes +
		" AS n ON r.uid = n.uid AND r.restarts = n.restarts"
	now := ended(who, "end >= "+windowFrom+" AND end < "+windowTo+" AND state = 'COMPLETED'")
	var quartiles, values []string
	for i, m := range measures() {
		quartiles = append(quartiles, fmt.Sprintf("quantilesExactIf(0.25, 0.5, 0.75)(ifNull(v%[1]d, 0), isNotNull(v%[1]d)) AS q%[1]d, countIf(isNotNull(v%[1]d)) AS n%[1]d", i))
		values = append(values, fmt.Sprintf("%s AS v%d", m.value, i))
	}
	valued := func(of string) string {
		return "SELECT *, " + strings.Join(values, ", ") + " FROM (" + of + ")"
	}
	var cases []string
	for i, m := range measures() {
		beyond := fmt.Sprintf("v > q[3] + greatest(%d * (q[3] - q[1]), q[2] / 4, %s)", beyondQuartiles, m.floor)
		if !m.above {
			beyond += fmt.Sprintf(" OR v < q[1] - greatest(%d * (q[3] - q[1]), q[2] / 4, %s)", beyondQuartiles, m.floor)
		}
		cases = append(cases, fmt.Sprintf("('%s', '%s', v%d, q%d, n%d, ifNull(arrayExists((v, q) -> %s, [assumeNotNull(v%d)], [q%d]) AND isNotNull(v%d), false) AND n%d >= %d)",
			m.name, m.unit, i, i, i, beyond, i, i, i, i, minEarlier))
	}
	earlier := "SELECT user, account, work, alloc_gpus, alloc_nodes, " + strings.Join(quartiles, ", ") + " FROM (" +
		valued(ended("", fmt.Sprintf("end >= %s - toIntervalDay(%d) AND end < %s AND state = 'COMPLETED'", windowFrom, earlierDays, windowFrom))) +
		") GROUP BY user, account, work, alloc_gpus, alloc_nodes"
	const same = "r.user = h.user AND r.account = h.account AND r.work = h.work AND r.alloc_gpus = h.alloc_gpus AND r.alloc_nodes = h.alloc_nodes"
	return b.buildQuery("SELECT job_id, restarts, toString(user) AS by_user, toString(account) AS by_account, work, toString(state), " +
		"toUnixTimestamp64Micro(assumeNotNull(start)), toInt64(alloc_gpus) AS gpus, toInt64(round(alloc_gpus * took_s * 1e6)) AS held_us, " +
		"m.1, m.2, assumeNotNull(m.3), m.4[1], m.4[2], m.4[3], toInt64(m.5)\nFROM (SELECT r.*, h.* EXCEPT (user, account, work, alloc_gpus, alloc_nodes) FROM (" +
		valued(now+" UNION ALL "+goesOn) + ") AS r INNER JOIN (" + earlier + ") AS h ON " + same +
		")\nARRAY JOIN [" + strings.Join(cases, ",\n  ") + "] AS m\nWHERE m.6\n" +
		fmt.Sprintf("ORDER BY held_us DESC, took_s DESC, job_id, restarts, m.1 LIMIT %d", limit))
}

// unevenEvidence lists the nodes of the uneven runs that a finding is about, with what they
// waited for the busiest of each.
func unevenEvidence(finding *findings.Finding, whose string) string {
	const key = "job, restart"
	amount := "gpu_us"
	nodes := "SELECT g.job_id AS job, g.restarts AS restart, toString(g.node) AS node, sum(g.sm_us) AS sm, sum(g.util_us) AS util, sum(g.util_us > 0 AND g.sm_us = 0) AS dark, " +
		"sum(g.no_process_us + g.idle_us) AS idle, sum(toUnixTimestamp64Micro(least(g.to, g.end)) - toUnixTimestamp64Micro(g.from)) AS held, " +
		"max(toUnixTimestamp64Micro(least(g.to, g.end)) - toUnixTimestamp64Micro(g.from)) AS wall FROM job_gpus AS g INNER JOIN jobs AS j ON j.uid = g.uid AND j.restarts = g.restarts " +
		"WHERE g.measured AND g.method != 'by share' AND j.alloc_nodes > 1 AND (isNull(j.end) OR j.state = 'COMPLETED') AND " + whose + " GROUP BY job, restart, node"
	if finding.Resource == findings.CPUTime {
		amount = "cpu_us"
		nodes = "SELECT n.job_id AS job, n.restarts AS restart, toString(n.node) AS node, toInt64(0) AS sm, sum(n.user_cpu_us + n.system_cpu_us) AS util, toUInt64(0) AS dark, " +
			"toInt64(0) AS idle, sum(toInt64(n.cpus) * (toUnixTimestamp64Micro(least(n.to, n.end)) - toUnixTimestamp64Micro(n.from))) AS held, " +
			"max(toUnixTimestamp64Micro(least(n.to, n.end)) - toUnixTimestamp64Micro(n.from)) AS wall FROM job_nodes AS n INNER JOIN jobs AS j ON j.uid = n.uid AND j.restarts = n.restarts " +
			"WHERE n.measured AND j.alloc_nodes > 1 AND j.alloc_gpus = 0 AND (isNull(j.end) OR j.state = 'COMPLETED') AND " + whose + " GROUP BY job, restart, node"
	}
	return "SELECT job, restart, x.1 AS node, x.2 / 1000 AS activity, x.3 AS " + amount + " FROM (SELECT job, restart, arrayJoin(arrayZip(names, rates, waits)) AS x FROM (" +
		unevenRuns(key, nodes) + ") WHERE uneven) ORDER BY " + amount + " DESC, job, restart, node"
}

// clockEvidence lists the clocks at full load of a device and of the others that its
// programs loaded in the last day of the window.
func (r *Report) clockEvidence(f *findings.Finding) string {
	until := fmt.Sprintf("toDateTime(%d, 'UTC')", r.End/1_000_000_000)
	since := fmt.Sprintf("toDateTime(%d, 'UTC')", max(r.Start/1_000_000_000, r.End/1_000_000_000-clocksWithin))
	within := "s.util >= " + fmt.Sprint(findings.FullLoad) + " AND isNotNull(s.sm_mhz) AND s.at >= " + since + " AND s.at < " + until
	return "SELECT " + workName("j.name") + " AS work, s.node AS node, s.gpu_index AS gpu, round(avg(s.sm_mhz)) AS mhz, round(sum(s.seconds) / 60, 1) AS minutes, round(avg(s.power_w)) AS watts, max(s.temp_c) AS hottest " +
		"FROM gpu_samples AS s INNER JOIN jobs AS j ON j.uid = s.uid AND j.attempt = s.attempt WHERE " + within +
		" AND (j.user, j.account, " + workName("j.name") + ") IN (SELECT w.user, w.account, " + workName("w.name") +
		" FROM gpu_samples AS d INNER JOIN jobs AS w ON w.uid = d.uid AND w.attempt = d.attempt WHERE d.gpu_uuid = " + quoteLiteral(f.Device, "String") +
		" AND d.at >= " + since + " AND d.at < " + until + ") GROUP BY work, node, gpu ORDER BY work, mhz LIMIT 200"
}

// UnlikeEvidence lists the earlier runs that a run was compared with.
func (r *Report) UnlikeEvidence(user, account, work string, gpus int64) string {
	until := fmt.Sprintf("fromUnixTimestamp64Micro(%d, 'UTC')", r.Start/1000)
	text := func(s string) string { return quoteLiteral(s, "String") }
	return "SELECT job_id AS job, start, end, round(gpu_util_us / nullIf(gpu_measured_us, 0), 3) AS gpu_utilisation, " +
		"round((user_cpu_us + system_cpu_us) / nullIf(alloc_cpus * (toUnixTimestamp64Micro(end) - toUnixTimestamp64Micro(start)), 0), 3) AS cpu_utilisation, peak_rss, read_bytes, write_bytes FROM jobs " +
		"WHERE state = 'COMPLETED' AND user = " + text(user) + " AND account = " + text(account) + " AND " + workName("name") + " = " + text(work) +
		fmt.Sprintf(" AND alloc_gpus = %d AND end >= %s - toIntervalDay(%d) AND end < %s ORDER BY end DESC LIMIT 200", gpus, until, earlierDays, until)
}
