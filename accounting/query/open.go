package query

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

// Rows of job_gpus that lie within the window, and those that an edge of it cuts.
const (
	deviceWithin = "(from >= " + windowFrom + " AND to <= " + windowTo + ")"
	deviceFirst  = "(from < " + windowFrom + " AND to > " + windowFrom + ")"
	deviceLast   = "(from < " + windowTo + " AND to > " + windowTo + ")"
	deviceCut    = "(" + deviceFirst + " OR " + deviceLast + ")"
)

// sampledTimes bounds the samples of a window to those that can belong to a run
// that an edge cuts or that is not over: in a long window that is a small part.
func (b *builder) sampledTimes() string {
	stretch := b.qualifyTable("job_gpus") + " WHERE " + stored + " AND "
	begun := "(SELECT toDateTime(max(to), 'UTC') FROM " + stretch + deviceFirst + ")"
	left := "(SELECT if(count() = 0, toDateTime('2106-01-01', 'UTC'), toDateTime(min(since), 'UTC')) FROM (SELECT from AS since FROM " +
		stretch + deviceLast +
		" UNION ALL SELECT assumeNotNull(start) AS since FROM " + b.openRuns() + "))"
	return " AND at >= " + windowFrom + " AND at < " + windowTo + " AND (at <= " + begun +
		" OR at >= " + left + ")"
}

// sampledGPUs is a subquery of the columns of job_gpus, made from samples: of
// the devices that open runs hold alone and, in a window, of those runs too that
// an edge of it cuts.
func (b *builder) sampledGPUs(windowed bool) string {
	const utilisation = "ifNull(util / 100, engine / 1000)"
	const known = "(isNotNull(util) OR isNotNull(engine) OR isNotNull(processes))"
	const absent = "ifNull(processes = 0, false)"
	const unused = "ifNull(" + utilisation + " = 0, false)"
	const owner = "uid, restarts, attempt, job_id, user, account, partition, qos"
	holders := "SELECT " + owner + " FROM " + b.openRuns()
	where := readings + " AND uid != 0 AND "
	if windowed {
		cut := b.qualifyTable("job_gpus") + " WHERE " + stored + " AND " + deviceCut
		holders += " UNION ALL SELECT DISTINCT " + owner + " FROM " + cut
		where += "((uid, attempt) IN (SELECT uid, attempt FROM " + b.openRuns() +
			") OR (uid, attempt, gpu_uuid) IN (SELECT uid, attempt, gpu_uuid FROM " + cut +
			"))" + b.sampledTimes()
	} else {
		where += "(uid, attempt) IN (SELECT uid, attempt FROM " + b.openRuns() + ")"
	}
	return `(
    SELECT r.uid AS uid, r.restarts AS restarts, r.attempt AS attempt, r.job_id AS job_id,
      r.user AS user, r.account AS account, r.partition AS partition, r.qos AS qos,
      s.node AS node, ` + fineInstant("s.first") + ` AS from, ` + fineInstant("s.until") +
		` AS to, to AS end,
      s.gpu_uuid AS gpu_uuid, s.gpu_index AS gpu_index, s.profile AS gpu_type, s.known_s > 0 AS measured,
      toInt64(s.absent_s * 1000000) AS no_process_us, toInt64(s.unused_s * 1000000) AS idle_us,
      toInt64((s.known_s - s.absent_s - s.unused_s) * 1000000) AS busy_us,
      toInt64(round(s.util_s * 1e6)) AS util_us, toInt64(round(s.sm_s * 1e6)) AS sm_us, toInt64(round(s.tensor_s * 1e6)) AS tensor_us,
      toInt64(s.peak) * 1048576 AS peak_mem, toInt64(s.mib_s) AS mem_mib_s, toInt64(s.joules) * 1000 AS energy_mj,
      toInt64(s.throttled_s * 1000000) AS throttled_us, toInt64(0) AS xids, 'sampled' AS method, toInt64(1000) AS share
    FROM (
      SELECT uid, attempt, node, gpu_uuid, any(gpu_index) AS gpu_index, any(profile) AS profile,
        min(at) AS first, max(at + seconds) AS until, sumIf(seconds, ` + known + `) AS known_s,
        sumIf(seconds, ` + absent + `) AS absent_s, sumIf(seconds, ` + unused + ` AND NOT ` +
		absent + `) AS unused_s,
        sum(ifNull(` + utilisation + `, 0) * seconds) AS util_s,
        sum(ifNull(sm, 0) / 1000 * seconds) AS sm_s, sum(ifNull(tensor, 0) / 1000 * seconds) AS tensor_s,
        ifNull(max(memory_mib), 0) AS peak, sum(ifNull(memory_mib, 0) * seconds) AS mib_s,
        ifNull(max(energy_j) - min(energy_j), 0) AS joules, sumIf(seconds, ifNull(throttle, 0) > 1) AS throttled_s
      FROM ` + b.qualifyTable("gpu_samples") + ` FINAL
      WHERE ` + where + `
      GROUP BY uid, attempt, node, gpu_uuid
    ) AS s
    INNER JOIN (` + holders + `) AS r ON s.uid = r.uid AND s.attempt = r.attempt
  )`
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
	whole := ""
	if windowed {
		whole = " AND (" + deviceWithin +
			" OR (uid, attempt, gpu_uuid) NOT IN (SELECT uid, attempt, gpu_uuid FROM " +
			b.qualifyTable("gpu_samples") +
			" WHERE " + readings + " AND uid != 0" + b.sampledTimes() + "))"
	}
	return "SELECT " + columns + "\n    FROM " + b.qualifyTable("job_gpus") + "\n    WHERE " +
		stored + where + whole +
		"\n    UNION ALL\n    SELECT " + columns + "\n    FROM " + b.sampledGPUs(windowed) +
		"\n    WHERE true" + where
}

// nodeRows is the same over job_nodes.
func (b *builder) nodeRows(columns, where string, windowed bool) string {
	return "SELECT " + columns + "\n    FROM " + b.qualifyTable("job_nodes") + "\n    WHERE " +
		stored + where +
		"\n    UNION ALL\n    SELECT " + columns + "\n    FROM " + b.openNodes(windowed) +
		"\n    WHERE true" + where
}
