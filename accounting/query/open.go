package query

import (
	"fmt"
	"strings"
)

// Runs that are not over have no rows in job_nodes and job_gpus: the agents sum
// up what a run used when it ends. Until then the samples say what it has used
// so far. The subqueries below give those runs rows of the same columns, so that
// a figure, a view and a report that read both count a run from its first
// minute on, and the same way.
//
// A sample counts from its instant to the next reading. A run whose end the
// store has not covered yet counts as open, by the condition open.

// openRuns is a subquery over the runs that are not over and have started.
func (b *builder) openRuns() string {
	return "(SELECT uid, restarts, attempt, job_id, user, account, partition, qos, start, held_nodes, held_cpus, held_mem_mib, held_gpus FROM " +
		b.qualifyTable("live") + " FINAL WHERE " + open + " AND isNotNull(start))"
}

// ofOpenRuns is the condition on samples of the open runs: all of them, or those
// within the window that {from} and {to} bound.
func (b *builder) ofOpenRuns(windowed bool) string {
	where := readings + " AND uid != 0 AND (uid, attempt) IN (SELECT uid, attempt FROM " +
		b.openRuns() + ")"
	if windowed {
		where += " AND at >= " + windowFrom + " AND at < " + windowTo
	}
	return where
}

// fineInstant turns a DateTime of a sample into the instants of the other tables.
func fineInstant(column string) string { return "toDateTime64(" + column + ", 6, 'UTC')" }

// Rows of job_gpus that an edge of the window cuts.
const (
	deviceFirst = "(from < " + windowFrom + " AND to >= " + windowFrom + ")"
	deviceLast  = "(from < " + windowTo + " AND to > " + windowTo + ")"
)

// wholeRows are the condition on rows of job_nodes and job_gpus that lie within the window.
const wholeRows = " AND from >= " + windowFrom + " AND to <= " + windowTo

// countWhole is a list of columns for such rows: all of each counts, so that the store need not
// compute a share for millions of them.
func countWhole(columns string) string {
	const whole = "toUnixTimestamp64Micro(least(to, end)) - toUnixTimestamp64Micro(from) AS whole_us, " +
		"whole_us AS overlap_us, overlap_us / 1e6 AS overlap_s, 1. AS "
	return strings.NewReplacer(storedPart(), whole+"part", share, whole+"share").Replace(columns)
}

// cutRows is a subquery of rows of a table that an edge of the window cuts. Each edge is
// asked about on its own, so that the store reads only what lies around it.
func (b *builder) cutRows(table, columns, where string) string {
	at := func(edge string) string {
		return "SELECT " + columns + " FROM " + b.qualifyTable(table) + " WHERE " + stored + " AND " + edge + where
	}
	return at(deviceFirst) + " UNION ALL " + at(deviceLast+" AND NOT "+deviceFirst)
}

// Samples of whole quarters of an hour are added up when they are stored (SampleQuarters):
// a question about days reads those sums, and samples one by one only in the two quarters
// that the edges of its window cut.
const (
	sampleQuarter = "toStartOfFifteenMinutes(at)"
	quarterFrom   = "toDateTime(greatest(0, least(intDiv({from:Int64} + 899999999, 900000000) * 900, 4294966200)), 'UTC')"
	quarterTo     = "toDateTime(greatest(0, least(intDiv({to:Int64}, 900000000) * 900, 4294966200)), 'UTC')"
)

// sampleSum is an amount that samples of one device in the hands of one run add up to.
type sampleSum struct {
	name  string
	sql   string // over samples
	merge string // what adds up two of them
}

// sampleSums lists them.
//
//muster:table one entry for each amount
func sampleSums() []sampleSum {
	const utilisation = "ifNull(util * 10, engine)" // in thousandths
	const known = "isNotNull(util) OR isNotNull(engine) OR isNotNull(processes)"
	const absent = "ifNull(processes = 0, false)"
	const unused = "ifNull(" + utilisation + " = 0, false) AND NOT " + absent
	return []sampleSum{
		{"index", "argMax(gpu_index, at)", "any"},
		{"cut", "argMax(profile, at)", "any"},
		{"first", "min(at)", "min"},
		{"last", "max(at)", "max"},
		{"until", "max(at + seconds)", "max"},
		{"known_s", "sumIf(seconds, " + known + ")", "sum"},
		{"absent_s", "sumIf(seconds, " + absent + ")", "sum"},
		{"unused_s", "sumIf(seconds, " + unused + ")", "sum"},
		{"util_ms", "sum(ifNull(" + utilisation + ", 0) * seconds)", "sum"},
		{"sm_ms", "sum(ifNull(sm, 0) * seconds)", "sum"},
		{"tensor_ms", "sum(ifNull(tensor, 0) * seconds)", "sum"},
		{"peak", "max(ifNull(memory_mib, 0))", "max"},
		{"mib_s", "sum(ifNull(memory_mib, 0) * seconds)", "sum"},
		{"energy_max", "max(energy_j)", "max"},
		{"energy_min", "min(energy_j)", "min"},
		{"throttled_s", "sumIf(seconds, ifNull(throttle, 0) > 1)", "sum"},
	}
}

// sampleKeys are what the sums of samples are kept by. The owner follows from the run.
const sampleKeys = "ledger, " + sampleQuarter + ", node, gpu_uuid, uid, attempt, cluster, user"

// SampleQuarters is the query that the table of samples keeps the answer of, as a
// projection. A query whose sums, keys and conditions are made of these is answered from it.
func SampleQuarters() string {
	sql := "SELECT " + sampleKeys
	for _, sum := range sampleSums() {
		sql += ", " + sum.sql
	}
	return sql + " GROUP BY " + sampleKeys
}

// sampledUse is a subquery of what the samples of some runs add up to, by run, node and
// device, in a window or in all: uid, attempt, node, gpu_uuid and the sums. Runs is a subquery of
// their uid. Within quarters that were stored, a sample that was sent twice counts twice until
// the store merges its parts, within minutes.
func (b *builder) sampledUse(runs string, windowed bool) string {
	const keys = "uid, attempt, node, gpu_uuid"
	var sums, merged []string
	for _, sum := range sampleSums() {
		sums = append(sums, sum.sql+" AS "+sum.name)
		merged = append(merged, fmt.Sprintf("%[1]s(q.%[2]s) AS %[2]s", sum.merge, sum.name))
	}
	from := func(final, where string) string {
		return "SELECT " + keys + ", " + strings.Join(sums, ", ") + " FROM " +
			b.qualifyTable("gpu_samples") + final + " WHERE " + readings + " AND uid IN " + runs + where +
			" GROUP BY " + keys
	}
	if !windowed {
		return "(" + from("", "") + ")"
	}
	inner := from("", " AND "+sampleQuarter+" >= "+quarterFrom+" AND "+sampleQuarter+" < "+quarterTo)
	edges := from(" FINAL", " AND at >= "+windowFrom+" AND at < "+windowTo+" AND ("+
		sampleQuarter+" < "+quarterFrom+" OR "+sampleQuarter+" >= "+quarterTo+")")
	return "(SELECT " + keys + ", " + strings.Join(merged, ", ") + " FROM (" + inner +
		" UNION ALL " + edges + ") AS q GROUP BY " + keys + ")"
}

// sampledColumns are columns of job_gpus made from the sums of samples.
func sampledColumns() []string {
	return []string{
		fineInstant("s.first") + " AS from",
		fineInstant("s.until") + " AS to",
		"s.known_s > 0 AS measured",
		"toInt64(s.absent_s * 1000000) AS no_process_us",
		"toInt64(s.unused_s * 1000000) AS idle_us",
		"toInt64((s.known_s - s.absent_s - s.unused_s) * 1000000) AS busy_us",
		"toInt64(s.util_ms * 1000) AS util_us",
		"toInt64(s.sm_ms * 1000) AS sm_us",
		"toInt64(s.tensor_ms * 1000) AS tensor_us",
		"toInt64(s.peak) * 1048576 AS peak_mem",
		"toInt64(s.mib_s) AS mem_mib_s",
		"toInt64(ifNull(s.energy_max - s.energy_min, 0)) * 1000 AS energy_mj",
		"toInt64(s.throttled_s * 1000000) AS throttled_us",
		"toInt64(0) AS xids",
		"'sampled' AS method",
		"toInt64(1000) AS share",
	}
}

// deviceOwner are the columns of job_gpus that say whose a row is.
const deviceOwner = "uid, restarts, attempt, job_id, user, account, partition, qos"

// openDevices is a subquery of the columns of job_gpus, made from samples: of the devices
// that open runs hold alone.
func (b *builder) openDevices(windowed bool) string {
	runs := b.openRuns()
	var owner []string
	for _, c := range strings.Split(deviceOwner, ", ") {
		owner = append(owner, "r."+c+" AS "+c)
	}
	return "(\n    SELECT " + strings.Join(owner, ", ") + ", s.node AS node, s.gpu_uuid AS gpu_uuid, s.index AS gpu_index, s.cut AS gpu_type,\n      " +
		strings.Join(sampledColumns(), ", ") + ", " + fineInstant("s.until") + " AS end\n    FROM " +
		b.sampledUse("(SELECT uid FROM "+runs+")", windowed) +
		" AS s\n    INNER JOIN (SELECT " + deviceOwner + " FROM " + runs +
		") AS r ON s.uid = r.uid AND s.attempt = r.attempt\n  )"
}

// cutDevices is a subquery of the columns of job_gpus: of the rows that an edge of the
// window cuts. The samples say what such a run did on this side of the edge; where there are
// none, the row stands as it is.
func (b *builder) cutDevices() string {
	// A column of the row, and what stands in its place where there are samples.
	var columns []string
	for _, c := range strings.Split(deviceOwner+", node, gpu_uuid, gpu_index, gpu_type", ", ") {
		columns = append(columns, "j."+c+" AS "+c)
	}
	names := []string{deviceOwner, "node", "gpu_uuid", "gpu_index", "gpu_type", "end"}
	for _, column := range sampledColumns() {
		at := strings.LastIndex(column, " AS ")
		name := column[at+4:]
		names = append(names, name)
		columns = append(columns, "if(s.uid = 0, j."+name+", "+column[:at]+") AS "+name)
	}
	columns = append(columns, "if(s.uid = 0, j.end, "+fineInstant("s.until")+") AS end")
	return "(\n    SELECT " + strings.Join(columns, ", ") + "\n    FROM " +
		"(" + b.cutRows("job_gpus", strings.Join(names, ", "), "") + ") AS j\n    LEFT JOIN " +
		b.sampledUse("("+b.cutRows("job_gpus", "uid", "")+")", true) +
		" AS s ON j.uid = s.uid AND j.attempt = s.attempt AND j.gpu_uuid = s.gpu_uuid\n  )"
}

// openNodes is a subquery of the columns of job_nodes over the nodes that open
// runs hold or held. Steps are sampled at the same instants, so that what they
// had at a time adds up.
func (b *builder) openNodes(windowed bool) string {
	return `(
    SELECT r.uid AS uid, r.restarts AS restarts, r.attempt AS attempt, r.job_id AS job_id,
      r.user AS user, r.account AS account, r.partition AS partition, r.qos AS qos,
      r.node AS node, if(measured, ` + fineInstant("s.first") + `, assumeNotNull(r.start)) AS from,
      if(measured, ` + fineInstant("s.until") + `, ` + microsToInstant(b.nowMicros()) +
		`) AS to, to AS end,
      toInt64(r.cpu) AS cpus, toInt64(r.mem) AS mem_mib, toInt64(r.gpu) AS gpus, toUInt32(0) AS tasks, false AS lost, s.known_s > 0 AS measured,
      toInt64(round(s.cpu_s * 1e6)) AS user_cpu_us, toInt64(0) AS system_cpu_us,
      if(measured, toNullable(toInt64(s.peak)), NULL) AS peak_rss, toInt64(s.mib_s) AS mem_mib_s,
      toInt64(0) AS read_bytes, toInt64(0) AS write_bytes, CAST(NULL AS Nullable(Int64)) AS energy_mj, toInt64(0) AS maj_faults,
      CAST(map() AS Map(LowCardinality(String), Int64)) AS counters
    FROM (
      SELECT *, node, cpu, mem, gpu FROM ` + b.openRuns() +
		` ARRAY JOIN held_nodes AS node, held_cpus AS cpu, held_mem_mib AS mem, held_gpus AS gpu
    ) AS r
    LEFT JOIN (
      SELECT uid, attempt, node, min(at) AS first, max(at + seconds) AS until, sum(seconds) AS known_s,
        sum(cpu_s) AS cpu_s, max(rss) AS peak, sum(rss / 1048576 * seconds) AS mib_s
      FROM (
        SELECT uid, attempt, node, at, toUInt64(max(usage_samples.seconds)) AS seconds,
          sum(ifNull(cpu, 0) / 1000 * usage_samples.seconds) AS cpu_s, sum(rss_kib) * 1024 AS rss
        FROM ` + b.qualifyTable("usage_samples") + ` AS usage_samples FINAL
        WHERE ` + b.ofOpenRuns(windowed) + `
        GROUP BY uid, attempt, node, at
      )
      GROUP BY uid, attempt, node
    ) AS s ON r.uid = s.uid AND r.attempt = s.attempt AND r.node = s.node
  )`
}

// deviceRows is a query over job_gpus and the devices of open runs; columns are
// expressions over the columns of job_gpus, where is a condition on these.
//
// In a window the samples of a run that an edge cuts say what it did on this
// side of the edge. Where there are none, what it did is shared out evenly over
// its length (share).
func (b *builder) deviceRows(columns, where string, windowed bool) string {
	return b.endedDevices(columns, where, windowed) +
		"\n    UNION ALL\n    SELECT " + columns + "\n    FROM " + b.openDevices(windowed) +
		"\n    WHERE true" + where
}

// endedDevices is the part of deviceRows about runs that are over.
func (b *builder) endedDevices(columns, where string, windowed bool) string {
	sql := "SELECT " + columns + "\n    FROM " + b.qualifyTable("job_gpus") + "\n    WHERE " +
		stored + where
	if windowed {
		sql = "SELECT " + countWhole(columns) + "\n    FROM " + b.qualifyTable("job_gpus") + "\n    WHERE " +
			stored + where + wholeRows + "\n    UNION ALL\n    SELECT " + columns + "\n    FROM " +
			b.cutDevices() + "\n    WHERE true" + where
	}
	return sql
}

// Runs that are over, by whether an edge of the window cuts them.
const (
	runWithin = "isNotNull(start) AND start >= " + windowFrom + " AND end >= " + windowFrom + " AND end <= " + windowTo
	runCut    = "isNotNull(start) AND end >= " + windowFrom + " AND start < " + windowTo + " AND (start < " + windowFrom + " OR end > " + windowTo + ")"
)

// runDevices is a query about what runs did on all of their devices together in the window.
// Of a run that lies within the window its own row in jobs says it, which is the sum of those of
// its devices: whole is what is selected from jobs. Of others the devices are looked at: rest is
// what is selected from a row for each of them, d, with the columns that columns makes of those of
// job_gpus, and what is joined to it.
func (b *builder) runDevices(whole, where, rest, columns, joined string) string {
	cut := "(SELECT uid, restarts FROM " + b.qualifyTable("jobs") + " WHERE " + stored + " AND " + runCut + ")"
	const measured = " AND measured" + shareWithin
	return "SELECT " + whole + "\n    FROM " + b.qualifyTable("jobs") + "\n    WHERE " + stored + " AND " + runWithin +
		" AND gpu_measured_us > 0" + where + "\n    UNION ALL\n    SELECT " + rest + "\n    FROM (" +
		b.endedDevices(columns, measured+" AND (uid, restarts) IN "+cut, true) +
		"\n    UNION ALL\n    SELECT " + columns + "\n    FROM " + b.openDevices(true) + "\n    WHERE true" + measured + ") AS d" + joined
}

// nodeRows is the same over job_nodes; what a run did that an edge cuts is shared out.
func (b *builder) nodeRows(columns, where string, windowed bool) string {
	sql := "SELECT " + columns + "\n    FROM " + b.qualifyTable("job_nodes") + "\n    WHERE " +
		stored + where
	if windowed {
		sql = "SELECT " + countWhole(columns) + "\n    FROM " + b.qualifyTable("job_nodes") + "\n    WHERE " +
			stored + where + wholeRows + "\n    UNION ALL\n    " + b.cutRows("job_nodes", columns, where)
	}
	return sql + "\n    UNION ALL\n    SELECT " + columns + "\n    FROM " + b.openNodes(windowed) +
		"\n    WHERE true" + where
}
