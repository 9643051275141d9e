package query

import (
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
	b := begin(s)
	return b.query("SELECT count(), toInt64(toUnixTimestamp(min(at))), toInt64(toUnixTimestamp(max(at))), toInt64(max(seconds))\nFROM " + b.table("gpu_samples") +
		"\nWHERE " + b.theSamples(uid, attempt, from, to))
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

// IdleGPUs asks who held GPUs longest without using them between two instants,
// by the samples: user, idle_hours, held_hours. Idle is a GPU without a process,
// or one that was not used.
func IdleGPUs(s Scope, from, to spec.Instant, users int64) Query {
	b := begin(s)
	return b.query("SELECT user, sumIf(seconds, util = 0 OR processes = 0) / 3600 AS idle_hours, sum(seconds) / 3600 AS held_hours\nFROM " + b.table("gpu_samples") +
		"\nWHERE " + readings + " AND at >= fromUnixTimestamp(" + b.bind("from", "Int64", int64(from)/int64(spec.Second)) + ") AND at < fromUnixTimestamp(" +
		b.bind("to", "Int64", int64(to)/int64(spec.Second)) + ") AND user != ''\nGROUP BY user\nORDER BY idle_hours DESC, user\nLIMIT " + b.bind("users", "Int64", users))
}
