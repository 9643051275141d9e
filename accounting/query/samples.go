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
	return readings + " AND uid = " + b.bind("uid", "UInt64", uid) + " AND attempt = " + b.bind("attempt", "UInt32", attempt) +
		" AND at >= fromUnixTimestamp(" + b.bind("from", "Int64", int64(from)/int64(spec.Second)) + ") AND at <= fromUnixTimestamp(" +
		b.bind("to", "Int64", int64(to)/int64(spec.Second)) + ")"
}

// SampleSpan asks between which times a job's GPUs were sampled, and how often:
// samples, first and last (Unix seconds), seconds between two.
func SampleSpan(s Scope, uid uint64, attempt uint32, from, to spec.Instant) Query {
	return sampleSpan(s, "gpu_samples", uid, attempt, from, to)
}

// UsageSpan asks the same of what a job used of CPU and memory.
func UsageSpan(s Scope, uid uint64, attempt uint32, from, to spec.Instant) Query {
	return sampleSpan(s, "usage_samples", uid, attempt, from, to)
}

func sampleSpan(s Scope, table string, uid uint64, attempt uint32, from, to spec.Instant) Query {
	b := begin(s)
	return b.query("SELECT count(), toInt64(toUnixTimestamp(min(at))), toInt64(toUnixTimestamp(max(at))), toInt64(max(seconds))\nFROM " + b.table(table) +
		"\nWHERE " + b.theSamples(uid, attempt, from, to))
}

// UsageHistory asks what a job used on each node in each stretch of some
// seconds since an instant: node, slot, samples, cpus (mean; NULL where nothing
// is known), rss (bytes, most). What the steps of a job used at a time adds up.
func UsageHistory(s Scope, uid uint64, attempt uint32, from, to spec.Instant, seconds int64) Query {
	b := begin(s)
	where := b.theSamples(uid, attempt, from, to)
	return b.query("SELECT node, slot, sum(n), sum(cpus) / 1000, toInt64(sum(rss) * 1024)\nFROM (SELECT node, step, toUInt32(intDiv(toInt64(toUnixTimestamp(at)) - {from:Int64}, " +
		b.bind("step", "Int64", seconds) + ")) AS slot, count() AS n, avg(cpu) AS cpus, max(rss_kib) AS rss\n  FROM " + b.table("usage_samples") +
		"\n  WHERE " + where + "\n  GROUP BY node, step, slot)\nGROUP BY node, slot\nORDER BY node, slot")
}

// GPUHistory asks what the GPUs of a job did in each stretch of some seconds
// since an instant: node, gpu_index, gpu_uuid, profile, slot, samples, util,
// sm, tensor, memory_mib, power_w, temp_c, occupied; the last seven are NULL
// where nothing was measured.
func GPUHistory(s Scope, uid uint64, attempt uint32, from, to spec.Instant, seconds int64) Query {
	b := begin(s)
	where := b.theSamples(uid, attempt, from, to)
	return b.query("SELECT node, gpu_index, gpu_uuid, profile, toUInt32(intDiv(toInt64(toUnixTimestamp(at)) - {from:Int64}, " + b.bind("step", "Int64", seconds) + ")) AS slot, count(),\n" +
		"  avg(util), avg(sm) / 1000, avg(tensor) / 1000, toFloat64(max(memory_mib)), avg(power_w), toFloat64(max(temp_c)),\n" +
		"  countIf(processes > 0) / nullIf(countIf(isNotNull(processes)), 0)\nFROM " + b.table("gpu_samples") +
		"\nWHERE " + where + "\nGROUP BY node, gpu_index, gpu_uuid, profile, slot\nORDER BY node, gpu_index, gpu_uuid, slot")
}

// Idle asks who held GPUs longest without using them in the window: user,
// idle_s, no_process_s (its part without a process), held_s. Idle is a GPU
// without a process, or one that was not used.
//
// What a run did in all is in the ledger, counted where it ran. Only of runs
// that the window cuts, and of those that are not over, the samples tell how
// much falls into it; of these, no more is read than can be theirs.
func (r *Report) Idle(s Scope, limit int) Query {
	b := begin(s)
	r.bounds(b)
	filters := r.filters(b)
	gpus, live := b.table("job_gpus"), b.table("live")+" FINAL"
	const within = "from >= " + windowFrom + " AND to <= " + windowTo
	const first = "(from < " + windowFrom + " AND to > " + windowFrom + ")"
	const last = "(from < " + windowTo + " AND to > " + windowTo + ")"
	const running = open + " AND alloc_gpus > 0 AND isNotNull(start) AND assumeNotNull(start) < " + windowTo
	over := "SELECT user, sum(no_process_us + idle_us) / 1e6 AS idle, sum(no_process_us) / 1e6 AS absent, sum(no_process_us + idle_us + busy_us) / 1e6 AS held\n  FROM " +
		gpus + "\n  WHERE " + stored + " AND measured AND " + within + filters + "\n  GROUP BY user"
	begun := "(SELECT toDateTime(max(to), 'UTC') FROM " + gpus + " WHERE " + stored + " AND " + first + ")"
	left := "(SELECT if(count() = 0, toDateTime('2106-01-01', 'UTC'), toDateTime(min(since), 'UTC')) FROM (SELECT from AS since FROM " + gpus + " WHERE " + stored + " AND " + last +
		" UNION ALL SELECT assumeNotNull(start) AS since FROM " + live + " WHERE " + running + "))"
	cut := "SELECT user, toFloat64(sumIf(seconds, ifNull(util, engine) = 0 OR processes = 0)) AS idle, toFloat64(sumIf(seconds, processes = 0)) AS absent, toFloat64(sum(seconds)) AS held\n  FROM " +
		b.table("gpu_samples") + "\n  WHERE " + readings + " AND at >= " + windowFrom + " AND at < " + windowTo + " AND (at <= " + begun + " OR at >= " + left + ") AND uid != 0\n    AND ((uid, attempt, gpu_uuid) IN (" +
		"SELECT uid, toUInt32(restarts + 1), gpu_uuid FROM " + gpus + " WHERE " + stored + " AND (" + first + " OR " + last + "))\n      OR (uid, attempt) IN (SELECT uid, toUInt32(restarts + 1) FROM " +
		live + " WHERE " + running + "))" + r.sampled() + "\n  GROUP BY user"
	return b.query("SELECT toString(user) AS who, sum(idle) AS idle_s, sum(absent) AS no_process_s, sum(held) AS held_s\nFROM (\n  " + over + "\n  UNION ALL\n  " + cut +
		fmt.Sprintf("\n)\nGROUP BY who\nHAVING idle_s > 0\nORDER BY idle_s DESC, who\nLIMIT %d", limit))
}

// sampled are the filters that samples know, with what filters bound.
func (r *Report) sampled() string {
	out := ""
	for _, f := range [...]struct {
		column, name string
		some         bool
	}{{"account", "accounts", len(r.Accounts) > 0}, {"user", "users", len(r.Users) > 0}, {"partition", "partitions", len(r.Partitions) > 0}} {
		if f.some {
			out += " AND " + f.column + " IN {" + f.name + ":Array(String)}"
		}
	}
	return out
}
