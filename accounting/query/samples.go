package query

import (
	"fmt"

	"github.com/musterhpc/muster/spec"
)

// readings is the condition on GPU samples of a scope: they are not part of
// the ledger, so that no position of it bounds them.
const readings = "ledger = {ledger:UUID}"

// theSamples is the condition on the samples of one start of a job, from the
// second in which it began to that in which it ended.
func (b *builder) theSamples(uid uint64, attempt uint32, from, to spec.Instant) string {
	return readings + " AND uid = " + b.bindValue("uid", "UInt64", uid) + " AND attempt = " +
		b.bindValue("attempt", "UInt32", attempt) +
		" AND at >= fromUnixTimestamp(" +
		b.bindValue("from", "Int64", int64(from)/int64(spec.Second)) +
		") AND at <= fromUnixTimestamp(" +
		b.bindValue("to", "Int64", int64(to)/int64(spec.Second)) + ")"
}

// SampleSpan asks between which times a job's GPUs were sampled, and how often:
// samples, first and last (Unix seconds), seconds between two.
func SampleSpan(scope Scope, uid uint64, attempt uint32, from, to spec.Instant) Query {
	return sampleSpan(scope, "gpu_samples", uid, attempt, from, to)
}

// UsageSpan asks the same of what a job used of CPU and memory.
func UsageSpan(scope Scope, uid uint64, attempt uint32, from, to spec.Instant) Query {
	return sampleSpan(scope, "usage_samples", uid, attempt, from, to)
}

func sampleSpan(
	scope Scope, table string, uid uint64, attempt uint32, from, to spec.Instant,
) Query {
	b := newBuilder(scope)
	return b.buildQuery("SELECT count(), toInt64(toUnixTimestamp(min(at))), toInt64(toUnixTimestamp(max(at))), toInt64(max(seconds))\nFROM " +
		b.qualifyTable(table) +
		"\nWHERE " + b.theSamples(uid, attempt, from, to))
}

// UsageHistory asks what a job used on each node in each stretch of some
// seconds since an instant: node, slot, samples, cpus (mean; NULL where nothing
// is known), rss (bytes, most). What the steps of a job used at a time adds up.
func UsageHistory(
	scope Scope,
	uid uint64,
	attempt uint32,
	from, to spec.Instant,
	seconds int64,
) Query {
	b := newBuilder(scope)
	where := b.theSamples(uid, attempt, from, to)
	return b.buildQuery(
		"SELECT node, slot, sum(n), sum(cpus) / 1000, toInt64(sum(rss) * 1024)\nFROM (SELECT node, step, toUInt32(intDiv(toInt64(toUnixTimestamp(at)) - {from:Int64}, " +
			b.bindValue(
				"step",
				"Int64",
				seconds,
			) +
			")) AS slot, count() AS n, avg(cpu) AS cpus, max(rss_kib) AS rss\n  FROM " +
			b.qualifyTable(
				"usage_samples",
			) +
			"\n  WHERE " + where +
			"\n  GROUP BY node, step, slot)\nGROUP BY node, slot\nORDER BY node, slot",
	)
}

// GPUHistory asks what the GPUs of a job did in each stretch of some seconds
// since an instant: node, gpu_index, gpu_uuid, profile, slot, samples, util,
// sm, tensor, memory_mib, power_w, temp_c, occupied; the last seven are NULL
// where nothing was measured.
func GPUHistory(scope Scope, uid uint64, attempt uint32, from, to spec.Instant, seconds int64) Query {
	b := newBuilder(scope)
	where := b.theSamples(uid, attempt, from, to)
	return b.buildQuery("SELECT node, gpu_index, gpu_uuid, profile, toUInt32(intDiv(toInt64(toUnixTimestamp(at)) - {from:Int64}, " +
		b.bindValue("step", "Int64", seconds) + ")) AS slot, count(),\n" +
		"  avg(util), avg(sm) / 1000, avg(tensor) / 1000, toFloat64(max(memory_mib)), avg(power_w), toFloat64(max(temp_c)),\n" +
		"  countIf(processes > 0) / nullIf(countIf(isNotNull(processes)), 0)\nFROM " +
		b.qualifyTable("gpu_samples") +
		"\nWHERE " + where +
		"\nGROUP BY node, gpu_index, gpu_uuid, profile, slot\nORDER BY node, gpu_index, gpu_uuid, slot")
}

// Idle asks who held GPUs longest without using them in the window: user,
// idle_s, no_process_s (its part without a process), held_s. Idle is a GPU
// without a process, or one that was not used. The rows are those of the KPI
// gpu_idle, so that both give the same figure.
func (r *Report) Idle(scope Scope, limit int) Query {
	b := newBuilder(scope)
	r.bindWindow(b)
	// The column share of job_gpus is the part of the device that the run had,
	// which is in the times already.
	columns := "user, (no_process_us + idle_us) / 1e6 AS idle, no_process_us / 1e6 AS absent, (no_process_us + idle_us + busy_us) / 1e6 AS held, " +
		share
	rows := b.deviceRows(columns, " AND measured"+shareWithin+r.filterClause(b), true)
	return b.buildQuery(
		"SELECT toString(user) AS who, sum(idle * share) AS idle_s, sum(absent * share) AS no_process_s, sum(held * share) AS held_s\nFROM (\n    " +
			rows +
			fmt.Sprintf(
				"\n)\nGROUP BY who\nHAVING idle_s > 0\nORDER BY idle_s DESC, who\nLIMIT %d",
				limit,
			),
	)
}
