package query

import (
	"fmt"
	"strings"

	"github.com/musterhpc/muster/accounting/kpi"
)

// goodputLadder is a subquery of one row: what the cluster had of GPUs in the window,
// in microseconds (bought_us), and a column for each of kpi.Steps. They are
// integers and add up to bought_us.
//
// What runs held of each node comes from ladderByNode; what they held without work
// then moves from its step to held_idle. Columns of ladderByNode that are named have an
// array of the values of all nodes, all_COLUMN, each in the same order.
func (b *builder) goodputLadder(byNode ...string) string {
	sums := []string{"sum(node_bought) AS bought_us"}
	var columns []string
	for _, step := range append(kpi.HeldSteps(), kpi.FreeSteps()...) {
		sums = append(sums, fmt.Sprintf("sum(node_%[1]s) AS %[1]s_sum", step.Name))
		switch step.Name {
		case "good", "open":
			columns = append(
				columns,
				fmt.Sprintf("%[1]s_sum - least(%[1]s_sum, idle_%[1]s) AS %[1]s_us", step.Name),
			)
		default:
			columns = append(columns, fmt.Sprintf("%[1]s_sum AS %[1]s_us", step.Name))
		}
	}
	for _, column := range byNode {
		sums = append(sums, fmt.Sprintf("groupArray(%[1]s) AS all_%[1]s", column))
		columns = append(columns, "all_"+column)
	}
	columns = append(
		columns,
		"least(good_sum, idle_good) + least(open_sum, idle_open) AS held_idle_us",
	)
	idle := "SELECT sumIf(idle, outcome = 'good') AS idle_good, sumIf(idle, outcome = 'open') AS idle_open FROM (" +
		b.runDevices(
			"toInt64(gpu_no_process_us + gpu_idle_us) AS idle, "+ladderOutcome()+" AS outcome",
			" AND alloc_gpus > 0",
			"idle, outcome",
			"uid, restarts, toInt64(round((no_process_us + idle_us) * part)) AS idle, "+storedPart(),
			" INNER JOIN "+b.ladderOutcomes()+" AS o USING (uid, restarts)",
		) + ") AS d"
	return "(\n  SELECT bought_us, " + strings.Join(columns, ", ") +
		"\n  FROM (\n    SELECT " + strings.Join(sums, ", ") + " FROM " + b.ladderByNode() +
		"\n  ) AS l\n  CROSS JOIN (" + idle + ") AS i\n)"
}

// ladderOutcomes is a subquery over the runs with GPUs that were not over before the
// window, with the step of the ladder that their time belongs to.
func (b *builder) ladderOutcomes() string {
	return b.allRuns("uid, restarts, "+ladderOutcome()+" AS outcome",
		"(end > "+windowFrom+" OR isNull(end)) AND alloc_gpus > 0")
}

// ladderOutcome is that step, over the columns of a run.
func ladderOutcome() string {
	state := ""
	for _, step := range kpi.HeldSteps() {
		if len(step.States) > 0 {
			state += fmt.Sprintf(
				", state IN ('%s'), '%s'", strings.Join(step.States, "', '"), step.Name,
			)
		}
	}
	return "multiIf(isNull(end), 'open'" + state + ", 'preempted')"
}

// ladderByNode is a subquery of a row for each node: node, node_bought and, for each
// step that is held or free, node_STEP, all in microseconds.
//
// Most nodes never had more devices held than they have, and were of one class
// throughout. Of those plain nodes each step is the sum of its spans (ladderSpans), and
// the rest of what was bought is of that class.
//
// The time of the others is cut wherever the node's state changes and wherever a run
// takes or gives back its devices. Within a piece nothing changes; what runs
// hold there is taken from what the node has, in the order of kpi.Steps, and the
// rest is by the node's state. So nothing is counted twice, also where a run
// holds a device that its node has lost meanwhile.
func (b *builder) ladderByNode() string {
	held, free := kpi.HeldSteps(), kpi.FreeSteps()
	var deltas, levels []string
	place := map[string]int{} // of a step in the array plain
	for i, step := range append(append([]kpi.Step{}, held...), free...) {
		place[step.Name] = i + 2
		deltas = append(
			deltas,
			fmt.Sprintf("sumIf(abs(change) * e.2, slot = '%[1]s') AS d_%[1]s", step.Name),
		)
		levels = append(
			levels,
			fmt.Sprintf(
				"sum(d_%[1]s) OVER (PARTITION BY node ORDER BY t ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS l_%[1]s",
				step.Name,
			),
		)
	}
	var had, taken, sums []string
	for _, step := range free {
		had = append(had, "l_"+step.Name)
	}
	add := func(step, sum string) {
		sums = append(sums, fmt.Sprintf("%s + any(plain)[%d] AS node_%s", sum, place[step], step))
	}
	for _, step := range held {
		before := strings.Join(append([]string{"cap"}, taken...), " - l_")
		add(step.Name, fmt.Sprintf("sum(toInt128(greatest(0, least(l_%s, %s))) * dt)", step.Name, before))
		taken = append(taken, step.Name)
	}
	rest := "greatest(0, " + strings.Join(append([]string{"cap"}, taken...), " - l_") + ")"
	not := ""
	for i, step := range free {
		cond := "l_" + step.Name + " > 0" + not
		if i == len(free)-1 {
			cond = strings.TrimPrefix(not, " AND ")
		}
		add(step.Name, fmt.Sprintf("sumIf(toInt128(%s) * dt, %s)", rest, cond))
		not += " AND l_" + step.Name + " = 0"
	}
	pieces := "SELECT node, e.1 AS t, any(plain) AS plain, " + strings.Join(deltas, ", ") +
		" FROM (SELECT node, plain, span.1 AS a, span.2 AS b, span.3 AS change, span.4 AS slot FROM " + b.ladderSpans() +
		" ARRAY JOIN spans AS span) ARRAY JOIN [(a, toInt64(1)), (b, toInt64(-1))] AS e GROUP BY node, t"
	return "(\n    SELECT node, sum(toInt128(cap) * dt) + any(plain)[1] AS node_bought, " +
		strings.Join(sums, ",\n      ") +
		"\n    FROM (\n      SELECT node, plain, leadInFrame(t, 1, t) OVER (PARTITION BY node ORDER BY t ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING) - t AS dt, " +
		strings.Join(levels, ",\n        ") +
		", " + strings.Join(had, " + ") + " AS cap\n      FROM (" + pieces +
		")\n    )\n    GROUP BY node\n  )"
}

// ladderSpans is a subquery of a row for each node. Of a plain node, plain has what was
// bought and then what each step that is held or free had of it, in microseconds, and
// spans has one span of nothing. Of others, plain is empty and spans has when the node
// had devices (change below 0) and when runs held some: from, until, change, step.
//
// A node was never overcommitted if the sum of the changes, in the order of time, never is
// above 0. At one instant what is given back comes before what is taken.
func (b *builder) ladderSpans() string {
	capacity := "SELECT node, a, b, caps[1] AS amount, multiIf(class = 'up', 'unallocated', class = 'planned', 'off', caps[2] = 1, 'drained', 'down') AS slot, true AS has FROM " +
		b.nodeIntervals(
			"toInt64(gpus), toInt64(state = 'DRAIN')",
			"",
		) +
		" WHERE a < b AND amount > 0"
	holds := "SELECT h.node AS node, h.a AS a, h.b AS b, h.amount AS amount, if(o.outcome = '', 'preempted', o.outcome) AS slot, false AS has FROM (" +
		b.gpuHolds() + ") AS h LEFT JOIN " + b.ladderOutcomes() +
		" AS o USING (uid, restarts) WHERE a < b"
	columns := []string{
		"node",
		"groupArray(toInt64(a)) AS froms",
		"groupArray(toInt64(b)) AS untils",
		"groupArray(toInt64(if(has, -amount, amount))) AS changes",
		"groupArray(slot) AS slots",
		"minIf(slot, has) AS class",
		"class = maxIf(slot, has) AS alike",
		"sumIf(amount * (b - a), has) AS bought",
		"sumIf(amount * (b - a), NOT has) AS all_held",
	}
	sums := []string{"bought"}
	for _, step := range kpi.HeldSteps() {
		columns = append(
			columns,
			fmt.Sprintf("sumIf(amount * (b - a), slot = '%[1]s') AS held_%[1]s", step.Name),
		)
		sums = append(sums, "held_"+step.Name)
	}
	for _, step := range kpi.FreeSteps() {
		sums = append(sums, fmt.Sprintf("if(class = '%s', bought - all_held, 0)", step.Name))
	}
	const overcommitted = "arrayMax(arrayCumSum(arraySort((c, k) -> k, arrayConcat(changes, arrayMap(c -> -c, changes)), " +
		"arrayConcat(arrayMap((t, c) -> 2 * t + (c > 0), froms, changes), arrayMap((t, c) -> 2 * t + (c < 0), untils, changes))))) > 0"
	return "(SELECT node, alike AND NOT " + overcommitted + " AS whole, if(whole, [" + strings.Join(sums, ", ") + "], []) AS plain, " +
		"if(whole, [(toInt64(0), toInt64(0), toInt64(0), '')], arrayZip(froms, untils, changes, slots)) AS spans FROM (SELECT " +
		strings.Join(columns, ", ") + " FROM (" + capacity + " UNION ALL " + holds + ") GROUP BY node))"
}

// gpuHolds is a query over the devices that runs hold on nodes, cut to the
// window: node, uid, restarts, amount, a, b.
func (b *builder) gpuHolds() string {
	return "SELECT node, uid, restarts, toInt64(gpus) AS amount, greatest(toUnixTimestamp64Micro(from), {from:Int64}) AS a, least(toUnixTimestamp64Micro(least(to, end)), {to:Int64}) AS b FROM " +
		b.qualifyTable("job_nodes") + " WHERE " + stored + " AND gpus > 0 AND from < " +
		windowTo + " AND to > " + windowFrom +
		" UNION ALL SELECT node, uid, restarts, toInt64(held_gpu) AS amount, greatest(toUnixTimestamp64Micro(assumeNotNull(start)), {from:Int64}) AS a, " +
		"least(if(toUnixTimestamp64Micro(given) = 0, {to:Int64}, toUnixTimestamp64Micro(given)), ifNull(toUnixTimestamp64Micro(end), {to:Int64}), {to:Int64}) AS b FROM " +
		b.qualifyTable("live") +
		" FINAL ARRAY JOIN held_nodes AS node, held_gpus AS held_gpu, held_to AS given WHERE " +
		open + " AND isNotNull(start) AND held_gpu > 0"
}

// storedLadder are the rows of goodput_within.
func (b *builder) storedLadder() string {
	var rows []string
	for i, step := range kpi.Steps() {
		rows = append(
			rows,
			fmt.Sprintf("(toUInt8(%d), '%s', '%s', %s_us)", i+1, step.Name, step.Words, step.Name),
		)
	}
	return "(SELECT r.1 AS rank, r.2 AS step, r.3 AS what, toInt64(r.4) AS gpu_us, toInt64(bought_us) AS bought_gpu_us FROM " +
		b.goodputLadder() + " ARRAY JOIN [" + strings.Join(rows, ", ") +
		"] AS r WHERE bought_us > 0)"
}
