package query

import (
	"fmt"
	"strings"

	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/spec"
)

// KPIs asks for every figure over a source, in the window before the scope's
// now, for every dimension at once. The row is: scope (a kpi.Dimension), key
// ("" for the cluster), then one Nullable(Float64) for each of names.
func KPIs(s Scope, source kpi.Source, window spec.Span) (q Query, names []string) {
	b := begin(s)
	r := Report{Start: s.Now - spec.Instant(window), End: s.Now}
	r.bounds(b)
	b.bind("hours", "Float64", float64(window)/float64(spec.Hour))
	var rows string
	switch source {
	case kpi.Runs:
		rows = b.kpiRuns()
	case kpi.Nodes:
		rows = b.kpiNodes()
	case kpi.GPUs:
		rows = b.kpiGPUs()
	}
	inner, outer := []string{}, []string{}
	capacity := false
	for _, k := range kpi.All() {
		if k.Source != source {
			continue
		}
		names = append(names, k.Name)
		n, d := "n_"+k.Name, "d_"+k.Name
		inner = append(inner, fmt.Sprintf("toNullable(toFloat64(%s)) AS %s", k.Num, n))
		switch {
		case k.Over != kpi.NoCapacity:
			capacity = true
			outer = append(outer, fmt.Sprintf("%s / nullIf(%s, 0) AS %s", n, k.Over, k.Name))
		case k.PerHour:
			outer = append(outer, fmt.Sprintf("%s / {hours:Float64} AS %s", n, k.Name))
		case k.Den != "":
			inner = append(inner, fmt.Sprintf("toFloat64(%s) AS %s", k.Den, d))
			outer = append(outer, fmt.Sprintf("%s / nullIf(%s, 0) AS %s", n, d, k.Name))
		default:
			outer = append(outer, fmt.Sprintf("%s AS %s", n, k.Name))
		}
	}
	sql := "SELECT scope, key,\n  " + strings.Join(outer, ",\n  ") + "\nFROM (\n  SELECT dim.1 AS scope, dim.2 AS key,\n    " +
		strings.Join(inner, ",\n    ") + "\n  FROM " + rows +
		"\n  ARRAY JOIN [('cluster', ''), ('partition', toString(partition)), ('account', toString(account)), ('user', toString(user)), ('qos', toString(qos))] AS dim" +
		"\n  GROUP BY scope, key\n)"
	if capacity {
		sql += " AS f\nLEFT JOIN " + b.capacity() + " AS c ON if(f.scope = 'partition', f.key, '') = c.part"
	}
	return b.query(sql + "\nORDER BY scope, key"), names
}

// seconds turns microseconds into seconds, for showing.
func seconds(us string) string { return "((" + us + ") / 1e6)" }

// kpiRuns are the rows of kpi.Runs.
func (b *builder) kpiRuns() string {
	within := func(column string) string {
		return "ifNull(" + column + " >= fromUnixTimestamp64Micro({from:Int64}, 'UTC') AND " + column + " < fromUnixTimestamp64Micro({to:Int64}, 'UTC'), false)"
	}
	// A run that ended in the window, started or not, or still ran in it.
	where := "((" + ran + ") OR (end >= fromUnixTimestamp64Micro({from:Int64}, 'UTC') AND end < fromUnixTimestamp64Micro({to:Int64}, 'UTC')))"
	return b.runs("partition, account, user, qos, toString(state) AS state, toInt64(count) AS count, alloc_cpus, alloc_gpus, isNotNull(start) AS ran, "+
		within("start")+" AS started_in, "+within("end")+" AS ended_in, "+
		seconds("greatest(0, "+overlap+")")+" AS overlap_s, "+seconds("ifNull(toUnixTimestamp64Micro(start) - toUnixTimestamp64Micro(submit), 0)")+" AS wait_s", where)
}

// share gives overlap_s and share of a table with from, to and end.
const share = "toUnixTimestamp64Micro(least(to, end)) - toUnixTimestamp64Micro(from) AS whole_us, " +
	"greatest(0, least(toUnixTimestamp64Micro(least(to, end)), {to:Int64}) - greatest(toUnixTimestamp64Micro(from), {from:Int64})) AS overlap_us, " +
	"overlap_us / 1e6 AS overlap_s, if(whole_us > 0, overlap_us / whole_us, if(from >= fromUnixTimestamp64Micro({from:Int64}, 'UTC'), 1, 0)) AS share"

const shareWithin = " AND from < fromUnixTimestamp64Micro({to:Int64}, 'UTC') AND to >= fromUnixTimestamp64Micro({from:Int64}, 'UTC')"

// kpiNodes are the rows of kpi.Nodes.
func (b *builder) kpiNodes() string {
	return "(\n    SELECT partition, account, user, qos, cpus, (user_cpu_us + system_cpu_us) / 1e6 AS cpu_s, mem_mib * 1048576 AS mem_bytes, peak_rss, " + share +
		"\n    FROM " + b.table("job_nodes") + "\n    WHERE " + stored + " AND measured" + shareWithin + "\n  )"
}

// kpiGPUs are the rows of kpi.GPUs.
func (b *builder) kpiGPUs() string {
	return "(\n    SELECT partition, account, user, qos, util_us / 1e6 AS util_s, (no_process_us + idle_us) / 1e6 AS held_idle_s, busy_us / 1e6 AS busy_s, " + share +
		"\n    FROM " + b.table("job_gpus") + "\n    WHERE " + stored + " AND measured" + shareWithin + "\n  )"
}

// capacity is a subquery over what the cluster (part = ”) and each partition
// offered: part, capacity_cpu_s, capacity_gpu_s.
func (b *builder) capacity() string {
	return "(\n  SELECT part, sum(cpu) AS capacity_cpu_s, sum(gpu) AS capacity_gpu_s FROM (\n    SELECT arrayJoin(arrayConcat([''], partitions)) AS part, " +
		"caps[1] * ((b - a) / 1e6) AS cpu, caps[2] * ((b - a) / 1e6) AS gpu\n    FROM " +
		b.nodeIntervals("cpus, gpus") + "\n    WHERE a < b\n  )\n  GROUP BY part\n)"
}
