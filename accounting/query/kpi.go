package query

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/spec"
)

// KPIs asks for every figure over a source, in the window before the scope's
// now, for every dimension at once. The row is: scope (a kpi.Dimension), key
// ("" for the cluster), then one Nullable(Float64) for each of names. With by,
// only that dimension is there.
func KPIs(
	s Scope,
	source kpi.Source,
	window spec.Span,
	rates *kpi.Rates,
	by ...kpi.Dimension,
) (query Query, names []string) {
	b := newBuilder(s)
	report := Report{Start: s.Now - spec.Instant(window), End: s.Now}
	report.bindWindow(b)
	b.bindValue("hours", "Float64", float64(window)/float64(spec.Hour))
	var rows string
	switch source {
	case kpi.Runs:
		rows = b.kpiRuns(&report, rates)
	case kpi.Nodes:
		rows = b.kpiNodes()
	case kpi.GPUs:
		rows = b.kpiGPUs()
	case kpi.Energy:
		rows = b.kpiEnergy(&report, rates)
	case kpi.Ladder:
		rows = b.goodputLadder()
		by = []kpi.Dimension{kpi.ByCluster}
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
			outer = append(
				outer,
				fmt.Sprintf("if(isFinite(assumeNotNull(%s)), %s, NULL) AS %s", n, n, k.Name),
			)
		}
	}
	from := "\n  FROM " + rows + "\n  ARRAY JOIN " + dimensionPairs(by) +
		" AS dim\n  GROUP BY scope, key\n)"
	scope, key := "dim.1", "dim.2"
	// With one dimension a row counts once, and is not made twice as wide for it.
	// A job that may run in several partitions waits in each of them.
	if len(by) == 1 && by[0] != kpi.ByPartition {
		scope, key = "'"+string(by[0])+"'", "''"
		from = "\n  FROM " + rows + "\n  HAVING count() > 0\n)"
		if by[0] != kpi.ByCluster {
			key = "toString(" + string(by[0]) + ")"
			from = "\n  FROM " + rows + "\n  GROUP BY " + string(by[0]) + "\n)"
		}
	}
	sql := "SELECT scope, key,\n  " + strings.Join(outer, ",\n  ") + "\nFROM (\n  SELECT " +
		scope + " AS scope, " + key + " AS key,\n    " +
		strings.Join(inner, ",\n    ") + from
	if capacity {
		sql += " AS f\nLEFT JOIN " + b.clusterCapacity() +
			" AS c ON if(f.scope = 'partition', f.key, '') = c.part"
	}
	return b.buildQuery(sql + "\nORDER BY scope, key"), names
}

// dimensionPairs is an array of the pairs (dimension, key) that a row counts in.
func dimensionPairs(by []kpi.Dimension) string {
	if len(by) == 0 {
		by = kpi.Dimensions()
	}
	var single []string
	parts := ""
	for _, dimension := range by {
		switch dimension {
		case kpi.ByCluster:
			single = append(single, "('cluster', '')")
		case kpi.ByPartition:
			parts = "arrayMap(p -> ('partition', p), splitByChar(',', toString(partition)))"
		default:
			single = append(single, "('"+string(dimension)+"', toString("+string(dimension)+"))")
		}
	}
	one := "[" + strings.Join(single, ", ") + "]"
	switch {
	case len(single) == 0:
		return parts
	case parts == "":
		return one
	}
	return "arrayConcat(" + one + ", " + parts + ")"
}

// toSeconds turns microseconds into seconds, for showing.
func toSeconds(us string) string { return "((" + us + ") / 1e6)" }

// The window, as instants.
const (
	windowFrom = "fromUnixTimestamp64Micro({from:Int64}, 'UTC')"
	windowTo   = "fromUnixTimestamp64Micro({to:Int64}, 'UTC')"
)

// kpiRuns are the rows of kpi.Runs, with more columns for who asks for them.
func (b *builder) kpiRuns(report *Report, rates *kpi.Rates, more ...string) string {
	within := func(column string) string {
		return "ifNull(" + column + " >= " + windowFrom + " AND " + column + " < " + windowTo +
			", false)"
	}
	// A run that ended in the window, started or not, or still ran in it, or
	// waits at its end. None of these was over before the window: said first, that
	// lets the store leave out months.
	const waiting = "(isNotNull(eligible) AND eligible < " + windowTo + " AND ifNull(start >= " +
		windowTo + ", true) AND ifNull(end >= " + windowTo + ", true))"
	where := "(end >= " + windowFrom + " OR isNull(end)) AND ((" + ran + ") OR (end >= " +
		windowFrom + " AND end < " + windowTo + ") OR " + waiting + ")"
	wait := "ifNull(greatest(0, multiIf(started_in, toUnixTimestamp64Micro(start), " + waiting +
		", {to:Int64}, toUnixTimestamp64Micro(end)) - toUnixTimestamp64Micro(eligible)), 0)"
	// A promise is judged once: at the start that keeps it, otherwise when the grace
	// is over. A run that ended before that without a start voids it.
	due := fmt.Sprintf(
		"(toUnixTimestamp64Micro(promised) + %d)",
		int64(spec.PromiseGrace/spec.Microsecond),
	)
	kept := "ifNull(toUnixTimestamp64Micro(start) <= " + due + ", false)"
	void := "ifNull(isNull(start) AND toUnixTimestamp64Micro(end) < " + due + ", false)"
	judged := "if(" + kept + ", toUnixTimestamp64Micro(start), " + due + ")"
	dueIn := "ifNull(" + judged + " >= {from:Int64} AND " + judged + " < {to:Int64} AND NOT " +
		void + ", false)"
	late := "ifNull(greatest(0, least(toInt64(ifNull(toUnixTimestamp64Micro(start), ifNull(toUnixTimestamp64Micro(end), {to:Int64}))), {to:Int64}) - " +
		"toUnixTimestamp64Micro(promised)), 0)"
	const run = "(ifNull(toUnixTimestamp64Micro(end), {to:Int64}) - toUnixTimestamp64Micro(start))"
	// A run that is suspended now has used its CPUs until it was: what it ran for
	// is its elapsed_us, while others that still run have none.
	const stood = "(toUnixTimestamp64Micro(start) + suspended_us + elapsed_us)"
	const now = "ifNull(state = 'SUSPENDED' AND isNull(end), false)"
	const until = "ifNull(greatest(0, least(" + stood +
		", {to:Int64}) - greatest(toUnixTimestamp64Micro(start), {from:Int64})) / 1e6 / overlap_s * " +
		"elapsed_us / greatest(elapsed_us + suspended_us, 1), 0)"
	return b.allRuns(strings.Join(append(more, ""), ", ")+
		"partition, account, user, qos, state, toInt64(count) AS count, alloc_cpus, alloc_gpus, alloc_nodes, isNotNull(start) AS ran, "+
		within("start")+" AS started_in, "+within("end")+" AS ended_in, "+
		toSeconds("greatest(0, "+overlap+")")+" AS overlap_s, "+
		toSeconds("ifNull(toUnixTimestamp64Micro(start) - toUnixTimestamp64Micro(submit), 0)")+
		" AS wait_s, "+
		toSeconds("ifNull(greatest(0, "+run+"), 0)")+" AS run_s, multiIf("+now+
		", if(overlap_s > 0, "+until+
		", 0), run_s > 0, greatest(0, 1 - suspended_us / 1e6 / run_s), 1) AS active, "+
		"ifNull(isNotNull(eligible) AND (started_in OR (ended_in AND isNull(start)) OR "+waiting+
		"), false) AS waits, "+toSeconds(wait)+" AS eligible_wait_s, "+
		dueIn+" AS promise_due, "+kept+" AS promise_kept, "+toSeconds(late)+" AS late_s, "+
		b.costColumn(report, rates), where)
}

// costColumn is the column cost of kpi.Runs.
func (b *builder) costColumn(report *Report, rates *kpi.Rates) string {
	if exact := b.exactCost(report, rates); exact != "" {
		return "toNullable(toFloat64(" + exact + ") / " +
			strconv.FormatFloat(kpi.CostScale, 'e', -1, 64) + ") AS cost"
	}
	return "CAST(NULL AS Nullable(Float64)) AS cost"
}

// priceParam begins the names of parameters that name a priced TRES.
const priceParam = "price"

// exactCost is what the part of a run within the window costs, as an Int128
// in 1/kpi.CostScale; "" without prices.
func (b *builder) exactCost(report *Report, rates *kpi.Rates) string {
	if rates == nil || len(rates.Prices) == 0 {
		return ""
	}
	var parts []string
	for i, list := range rates.Prices {
		until := report.End
		if i+1 < len(rates.Prices) {
			until = min(until, rates.Prices[i+1].From)
		}
		from := max(report.Start, list.From)
		if from >= until {
			continue
		}
		var sum []string
		for k, price := range list.Per {
			scale := int64(1024)
			var column string
			switch price.TRES {
			case "cpu":
				column = "alloc_cpus"
			case "mem":
				column, scale = "alloc_mem_mib", 1
			case "node":
				column = "alloc_nodes"
			case "billing":
				column = "alloc_billing"
			case "gres/gpu":
				column = "alloc_gpus"
			default:
				column = "alloc_tres[" +
					b.bindValue(fmt.Sprintf("%s%d_%d", priceParam, i, k), "String", price.TRES) +
					"]"
			}
			sum = append(sum, fmt.Sprintf("toInt128(%s) * %d", column, price.Micro*scale))
		}
		parts = append(parts, "("+strings.Join(sum, " + ")+") * "+
			partWithin("start", "end", from, until))
	}
	if len(parts) == 0 {
		return "toInt128(0)"
	}
	return strings.Join(parts, " + ")
}

// partWithin is how much of a run lies within [from, until) and before the
// window's end, in microseconds.
func partWithin(start, end string, from, until spec.Instant) string {
	a, z := int64(from)/int64(spec.Microsecond), int64(until)/int64(spec.Microsecond)
	return fmt.Sprintf(
		"greatest(0, least(ifNull(toUnixTimestamp64Micro(%s), {to:Int64}), {to:Int64}, %d) - greatest(ifNull(toUnixTimestamp64Micro(%s), {to:Int64}), %d))",
		end,
		z,
		start,
		a,
	)
}

// share gives overlap_s and share of a table with from, to and end.
const share = "toUnixTimestamp64Micro(least(to, end)) - toUnixTimestamp64Micro(from) AS whole_us, " +
	"greatest(0, least(toUnixTimestamp64Micro(least(to, end)), {to:Int64}) - greatest(toUnixTimestamp64Micro(from), {from:Int64})) AS overlap_us, " +
	"overlap_us / 1e6 AS overlap_s, if(whole_us > 0, overlap_us / whole_us, if(from >= fromUnixTimestamp64Micro({from:Int64}, 'UTC'), 1, 0)) AS share"

const shareWithin = " AND from < fromUnixTimestamp64Micro({to:Int64}, 'UTC') AND to >= fromUnixTimestamp64Micro({from:Int64}, 'UTC')" +
	" AND end >= fromUnixTimestamp64Micro({from:Int64}, 'UTC')"

// kpiNodes are the rows of kpi.Nodes.
func (b *builder) kpiNodes() string {
	const columns = "partition, account, user, qos, cpus, (user_cpu_us + system_cpu_us) / 1e6 AS cpu_s, mem_mib * 1048576 AS mem_bytes, peak_rss, " +
		share
	return "(\n    " + b.nodeRows(columns, " AND measured"+shareWithin, true) + "\n  )"
}

// kpiGPUs are the rows of kpi.GPUs.
func (b *builder) kpiGPUs() string {
	const columns = "partition, account, user, qos, util_us / 1e6 AS util_s, (no_process_us + idle_us) / 1e6 AS held_idle_s, busy_us / 1e6 AS busy_s, " +
		"if(sm_us = 0 AND util_us > 0, NULL, sm_us / 1e6) AS sm_s, " + share
	return "(\n    " + b.deviceRows(columns, " AND measured"+shareWithin, true) + "\n  )"
}

// kpiEnergy are the rows of kpi.Energy.
func (b *builder) kpiEnergy(report *Report, rates *kpi.Rates) string {
	carbon := "CAST(NULL AS Nullable(Float64))"
	if rates != nil && len(rates.Carbon) > 0 {
		parts := []string{}
		for i, intensity := range rates.Carbon {
			until := report.End
			if i+1 < len(rates.Carbon) {
				until = min(until, rates.Carbon[i+1].From)
			}
			if from := max(report.Start, intensity.From); from < until {
				a, z := int64(from)/int64(spec.Microsecond), int64(until)/int64(spec.Microsecond)
				parts = append(
					parts,
					fmt.Sprintf(
						"if(whole_us > 0, greatest(0, least(to_us, %d) - greatest(from_us, %d)) / whole_us, toFloat64(from_us >= %d AND from_us < %d)) * %s",
						z,
						a,
						a,
						z,
						strconv.FormatFloat(
							float64(intensity.Milli)/1000*float64(rates.PUE)/1000,
							'e',
							-1,
							64,
						),
					),
				)
			}
		}
		if len(parts) == 0 {
			parts = append(parts, "0.")
		}
		carbon = "toNullable(energy_j / 3.6e6 * (" + strings.Join(parts, " + ") + "))"
	}
	columns := func(energy, part string) string {
		return "partition, account, user, qos, " + energy + " / 1000 AS energy_j, " + part +
			", toUnixTimestamp64Micro(from) AS from_us, toUnixTimestamp64Micro(least(to, end)) AS to_us, " +
			carbon + " AS carbon_g"
	}
	nodes := b.nodeRows(columns("assumeNotNull(energy_mj)", share), " AND isNotNull(energy_mj)"+
		shareWithin, true)
	devices := b.deviceRows(columns("energy_mj", share), " AND measured AND energy_mj > 0"+
		shareWithin, true)
	return "(\n    " + nodes + "\n    UNION ALL\n    " + devices + "\n  )"
}

// Demand asks who wanted and used how much in each of n equal parts of the
// window before the scope's now: part (0 is the first), account, user, used
// (billing TRES times seconds). There is a row for whoever ran or waited.
func Demand(scope Scope, window spec.Span, n int) Query {
	b := newBuilder(scope)
	report := Report{Start: scope.Now - spec.Instant(window), End: scope.Now}
	report.bindWindow(b)
	b.bindValue("size", "Int64", int64(window)/int64(spec.Microsecond)/int64(n))
	b.bindValue("parts", "Int64", int64(n))
	const began = "least(ifNull(toUnixTimestamp64Micro(eligible), toUnixTimestamp64Micro(start)), ifNull(toUnixTimestamp64Micro(start), toUnixTimestamp64Micro(eligible)))"
	const over = "ifNull(toUnixTimestamp64Micro(end), {to:Int64})"
	rows := b.allRuns(
		"account, user, alloc_billing, toUnixTimestamp64Micro(start) AS start_us, assumeNotNull("+
			began+") AS a, "+
			"greatest(a, least("+over+", {to:Int64})) AS z",
		"(isNotNull(eligible) OR isNotNull(start)) AND "+began+" < {to:Int64} AND "+over+
			" >= {from:Int64}",
	)
	return b.buildQuery(
		"SELECT toInt64(part) AS part, account, user, sum(if(isNull(start_us), 0, toFloat64(alloc_billing) * " +
			"greatest(0, least(z, {from:Int64} + (part + 1) * {size:Int64}) - greatest(assumeNotNull(start_us), {from:Int64} + part * {size:Int64})) / 1e6)) AS used\nFROM " +
			rows +
			"\nARRAY JOIN range(greatest(0, intDiv(a - {from:Int64}, {size:Int64})), " +
			"least({parts:Int64}, greatest(intDiv(greatest(z - {from:Int64}, 1) - 1, {size:Int64}), intDiv(greatest(a - {from:Int64}, 0), {size:Int64})) + 1)) AS part" +
			"\nGROUP BY part, account, user\nORDER BY part, account, user",
	)
}

// Shares asks for the tree of associations as it is now: id, parent, account,
// user, shares.
func Shares(scope Scope) Query {
	b := newBuilder(scope)
	return b.buildQuery("SELECT id, argMax(parent, seq) AS parent_id, argMax(account, seq) AS account_name, argMax(user, seq) AS user_name, argMax(shares, seq) AS own" +
		"\nFROM " + b.qualifyTable("associations") + "\nWHERE " + b.knownEvents() +
		"\nGROUP BY id\nHAVING NOT argMax(removed, seq)\nORDER BY id")
}

// clusterCapacity is a subquery over what the cluster (part = ”) and each partition
// offered: part, capacity_cpu_s, capacity_gpu_s.
func (b *builder) clusterCapacity() string {
	return "(\n  SELECT part, sum(cpu) AS capacity_cpu_s, sum(gpu) AS capacity_gpu_s FROM (\n    SELECT arrayJoin(arrayConcat([''], partitions)) AS part, " +
		"caps[1] * ((b - a) / 1e6) AS cpu, caps[2] * ((b - a) / 1e6) AS gpu\n    FROM " +
		b.nodeIntervals("cpus, gpus", "") + "\n    WHERE a < b\n  )\n  GROUP BY part\n)"
}

// Charged lists the TRES whose use stands in a bill.
func Charged() []string { return []string{"cpu", "mem", "node", "gres/gpu", "billing"} }

// QOSWait is how long the jobs of a QOS may wait.
type QOSWait struct {
	QOS    string
	Within spec.Span
}

// Waits asks how many jobs started in the window, by QOS, and how many of them had
// waited no longer than they may: qos, starts, good. A QOS that is not named may
// wait as long as rest; without rest it is left out.
func (r *Report) Waits(scope Scope, named []QOSWait, rest *spec.Span) Query {
	b := newBuilder(scope)
	r.bindWindow(b)
	limit := "multiIf("
	for i, wait := range named {
		qos := b.bindValue(fmt.Sprintf("qos%d", i), "String", wait.QOS)
		within := b.bindValue(
			fmt.Sprintf("within%d", i),
			"Int64",
			int64(wait.Within)/int64(spec.Microsecond),
		)
		limit += "toString(qos) = " + qos + ", " + within + ", "
	}
	others := int64(-1)
	if rest != nil {
		others = int64(*rest) / int64(spec.Microsecond)
	}
	// A condition that never holds: multiIf wants one where no QOS is named.
	limit += "false, toInt64(0), " + b.bindValue("others", "Int64", others) + ")"
	const waited = "toInt64(round(assumeNotNull(wait_s) * 1e6))"
	return b.buildQuery("SELECT toString(qos), sum(count), sumIf(count, " + waited + " <= " +
		limit + ")\nFROM " + b.kpiRuns(r, nil) +
		"\nWHERE started_in AND " + limit + " >= 0\nGROUP BY qos\nORDER BY qos")
}

// Charge asks what was used and what it cost: account, user, runs (UInt64),
// the use of each of Charged and the cost in 1/kpi.CostScale, as texts.
func (r *Report) Charge(scope Scope, rates *kpi.Rates) Query {
	b := newBuilder(scope)
	r.bindWindow(b)
	cost := b.exactCost(r, rates)
	if cost == "" {
		cost = "toInt128(0)"
	}
	const within = "greatest(0, " + overlap + ")"
	columns := "account, user, " + cost + " AS cost_n"
	sums := ""
	for i, name := range Charged() {
		report := *r
		report.TRES = name
		alloc, _, _, err := report.amountColumns(b)
		if err != nil {
			continue // all of Charged are known
		}
		columns += fmt.Sprintf(", toInt128(%s) * %s AS used_%d", alloc, within, i)
		sums += fmt.Sprintf(", toString(sum(used_%d)) AS used_%d_us", i, i)
	}
	return b.buildQuery("SELECT account, user, toUInt64(count()) AS runs" + sums +
		", toString(sum(cost_n)) AS cost\nFROM " + b.allRuns(columns, ran+r.filterClause(b)) +
		"\nGROUP BY account, user\nORDER BY account, user")
}

// Promises asks how the promises of a start that were due in the window were kept:
// partition, qos, promises, kept, median, 95th percentile and largest lateness in
// seconds.
func (r *Report) Promises(scope Scope) Query {
	b := newBuilder(scope)
	r.bindWindow(b)
	return b.buildQuery("SELECT toString(partition), toString(qos), toInt64(count()), toInt64(countIf(promise_kept)),\n" +
		"  quantileExact(0.5)(toFloat64(late_s)), quantileExact(0.95)(toFloat64(late_s)), max(toFloat64(late_s))\nFROM " +
		b.kpiRuns(r, nil) + "\nWHERE promise_due\nGROUP BY partition, qos\nORDER BY partition, qos")
}
