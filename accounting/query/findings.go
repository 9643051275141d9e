package query

import (
	"fmt"
	"strings"

	"github.com/musterhpc/muster/accounting/findings"
	"github.com/musterhpc/muster/accounting/kpi"
)

// workName is a job's name with its numbers left out, so that train-1 and train-2
// are the same work.
func workName(column string) string {
	return "replaceRegexpAll(toString(" + column + "), '[0-9]+', '#')"
}

// workNames is the same for a question about many runs: most of them repeat a name, which
// is then read once for each block of rows.
func workNames(column string) string {
	return "toString(replaceRegexpAll(toLowCardinality(" + column + "), '[0-9]+', '#'))"
}

// earlyFailure is the condition on runs that failed in their first minute.
func earlyFailure(start, end string) string {
	return fmt.Sprintf(
		"toUnixTimestamp64Micro(%s) - toUnixTimestamp64Micro(%s) < %d",
		end,
		start,
		findings.CrashWithin,
	)
}

// FindingsWork asks what runs did within the report's window, by user, account,
// job name without its numbers, and outcome: the columns of findings.Work in
// its order.
func (r *Report) FindingsWork(scope Scope) Query {
	b := newBuilder(scope)
	r.bindWindow(b)
	outcome := "multiIf(isNull(end) OR state = 'COMPLETED', 'ended', state = 'FAILED' AND " +
		earlyFailure("start", "end") + ", 'early', state = 'FAILED', 'failed', " +
		"state = 'TIMEOUT', 'timeout', state = 'OUT_OF_MEMORY', 'memory', " +
		"state = 'NODE_FAIL', 'node', state IN ('BOOT_FAIL', 'DEADLINE', 'CANCELLED'), 'other', " +
		"'preempted')"
	const byNode = "outcome = 'node'"
	runs := b.allRuns("uid, restarts, "+outcome+" AS outcome, "+
		"if("+byNode+", '', toString(user)) AS by_user, "+
		"if("+byNode+", '', toString(account)) AS by_account, "+
		"if("+byNode+", '', "+workNames("name")+") AS work, "+
		"if("+byNode+", toString(failed_node), '') AS at_node, "+
		"toInt64(alloc_gpus) AS gpus, toInt64(alloc_cpus) AS cpus, toInt64(alloc_nodes) AS nodes, "+
		"toInt64(intDiv(alloc_mem_mib, greatest(alloc_nodes, 1))) AS node_mem, limit_us, "+
		"toUnixTimestamp64Micro(assumeNotNull(start)) AS began_us, "+
		"ifNull(toUnixTimestamp64Micro(end), {to:Int64}) AS over_us, "+
		"isNotNull(end) AND state = 'COMPLETED' AND limit_us > 0 AS with_limit, "+
		"ifNull(toUnixTimestamp64Micro(end) - toUnixTimestamp64Micro(start), 0) AS ran_us",
		ran+r.filterClause(b))
	const ended = "outcome = 'ended'"
	const idle = "least(u.idle_us, u.gpu_us)"
	const never = "least(u.unworked_us, " + idle + ")"
	sums := []string{
		"toInt64(count())", "toInt64(sum(u.gpu_us))", "toInt64(sum(cpus * greatest(0, least(over_us, {to:Int64}) - greatest(began_us, {from:Int64}))))",
		"toInt64(sumIf(" + idle + ", " + ended + " AND u.worked = 0))",
		"toInt64(sumIf(" + never + ", " + ended + " AND u.worked > 0))",
		"toInt64(sumIf(" + idle + " - " + never + ", " + ended + " AND u.worked > 0))",
		"toInt64(countIf(" + ended + " AND u.worked = 0 AND " + idle + " > 0))",
		"toInt64(countIf(" + ended + " AND u.worked > 0 AND " + never + " > 0))",
		"toInt64(countIf(" + ended + " AND u.worked > 0 AND " + idle + " > " + never + "))",
		"toInt64(sum(u.cpu_us))", "toInt64(sum(least(u.used_us, u.cpu_us)))",
		"toInt64(sum(u.mem_us))", "toInt64(sum(u.spare_us))", "toInt64(countIf(u.seen > 0))",
		"max(gpus)", "max(u.worked)", "max(cpus)", "max(nodes)", "max(u.busy)", "max(node_mem)",
		"max(u.peak)", "greatest(0, max(limit_us))",
		"toInt64(countIf(with_limit))", "maxIf(ran_us, with_limit)",
		"toInt64(sumIf(greatest(0, limit_us - ran_us), with_limit))",
	}
	return b.buildQuery("SELECT by_user, by_account, work, at_node, outcome,\n  " +
		strings.Join(sums, ",\n  ") + "\nFROM " + runs + " AS r\nLEFT JOIN " + b.useOfRuns() +
		" AS u ON r.uid = u.uid AND r.restarts = u.restarts\n" +
		"GROUP BY by_user, by_account, work, at_node, outcome\n" +
		"ORDER BY by_user, by_account, work, at_node, outcome")
}

// useOfRuns is a subquery of a row for each run that held or used something in the
// window: uid, restarts; gpu_us that it held; of its devices idle_us, unworked_us (on those that never
// worked) and worked (how many did); of its nodes cpu_us, used_us, mem_us, spare_us, peak, busy (CPUs
// in thousandths) and seen (how many were measured). All of it is added up in one pass: a month
// has millions of rows of nodes and devices, and joining one kind to the other takes
// longer than to read them.
func (b *builder) useOfRuns() string {
	amounts := []string{"gpu", "idle", "unworked", "did", "cpu", "used", "mem", "spare", "most", "cores", "measured_node"}
	part := func(of map[string]string, from string) string {
		columns := []string{"uid", "restarts"}
		for _, a := range amounts {
			value := "0"
			if sql, ok := of[a]; ok {
				value = sql
			}
			typ := "toInt64"
			if a == "cores" {
				typ = "toFloat64" // rounded once, over all nodes
			}
			columns = append(columns, typ+"("+value+") AS "+a)
		}
		return "SELECT " + strings.Join(columns, ", ") + " FROM (" + from + ")"
	}
	held := part(map[string]string{"gpu": "amount * greatest(0, b - a)"}, b.gpuHolds())
	// A run has one row of each of its devices.
	devices := part(map[string]string{"idle": "without_work", "unworked": "if(worked, 0, without_work)", "did": "worked"},
		b.deviceRows(
			"uid, restarts, toInt64(round((no_process_us + idle_us) * part)) AS without_work, "+
				"busy_us > 0 OR util_us > 0 AS worked, "+storedPart(),
			" AND measured"+shareWithin,
			true,
		))
	const peak = "intDiv(assumeNotNull(peak_rss) + 1048575, 1048576)"
	nodes := part(map[string]string{"cpu": "cpu_us", "used": "used_us", "mem": "mem_us", "spare": "spare_us", "most": "peak", "cores": "busy", "measured_node": "1"},
		b.nodeRows(
			"uid, restarts, toInt64(cpus) * overlap_us AS cpu_us, "+
				"toInt64(round((user_cpu_us + system_cpu_us) * share)) AS used_us, "+
				"if(whole_us > 0, 1000 * (user_cpu_us + system_cpu_us) / whole_us, 0) AS busy, "+
				"if(isNull(peak_rss), 0, toInt64(mem_mib) * overlap_us) AS mem_us, "+
				"if(isNull(peak_rss), 0, greatest(0, toInt64(mem_mib) - "+peak+") * overlap_us) AS spare_us, "+
				"toInt64(ifNull("+peak+", 0)) AS peak, "+share,
			" AND measured"+shareWithin,
			true,
		))
	return "(SELECT uid, restarts, sum(gpu) AS gpu_us, sum(idle) AS idle_us, sum(unworked) AS unworked_us, sum(did) AS worked, " +
		"sum(cpu) AS cpu_us, sum(used) AS used_us, sum(mem) AS mem_us, sum(spare) AS spare_us, max(most) AS peak, " +
		"toInt64(sum(cores)) AS busy, sum(measured_node) AS seen FROM (\n" +
		held + "\nUNION ALL\n" + devices + "\nUNION ALL\n" + nodes + "\n) GROUP BY uid, restarts)"
}

// FindingsPlaces asks how long completed runs on one node took there, by user,
// account, job name without its numbers, node and number of GPUs: the columns of
// findings.Place in its order. Places with too few runs to be compared are merged into
// one for each node, without a user and with 0 GPUs: most places are such, and only their GPU time
// counts.
func (r *Report) FindingsPlaces(scope Scope) Query {
	b := newBuilder(scope)
	r.bindWindow(b)
	where := "end >= " + windowFrom + " AND end < " + windowTo +
		" AND state = 'COMPLETED' AND alloc_nodes = 1 AND alloc_gpus > 0 AND isNotNull(start)"
	use := "(SELECT uid, restarts, any(node) AS node, sum(gpu) AS gpu_us, sum(idle) AS idle_us FROM (" +
		"SELECT uid, restarts, node, toInt64(amount * greatest(0, b - a)) AS gpu, toInt64(0) AS idle, 1 AS held FROM (" + b.gpuHolds() + ")\nUNION ALL\n" +
		"SELECT uid, restarts, node, toInt64(0) AS gpu, without_work AS idle, 0 AS held FROM (" +
		b.deviceRows(
			"uid, restarts, node, toInt64(round((no_process_us + idle_us) * part)) AS without_work, "+storedPart(),
			" AND measured"+shareWithin,
			true,
		) + ")) GROUP BY uid, restarts HAVING sum(held) > 0)"
	places := "SELECT user, account, " + workNames("name") +
		" AS work, u.node AS at_node, toInt64(alloc_gpus) AS gpus, toInt64(count()) AS runs, " +
		"toInt64(quantileExact(0.5)(elapsed_us)) AS median, toInt64(sum(elapsed_us)) AS total, " +
		"toInt64(sum(u.gpu_us - least(u.gpu_us, u.idle_us))) AS had\nFROM (SELECT uid, restarts, user, account, name, alloc_gpus, elapsed_us FROM " +
		b.qualifyTable("jobs") + " WHERE " + stored + " AND " + where + r.filterClause(b) +
		") AS r\nINNER JOIN " + use +
		" AS u ON r.uid = u.uid AND r.restarts = u.restarts\n" +
		"GROUP BY user, account, work, at_node, gpus"
	compared := func(column, none string) string {
		return fmt.Sprintf("if(runs >= %d, %s, %s)", findings.MinRuns, column, none)
	}
	return b.buildQuery("SELECT " + compared("toString(user)", "''") + " AS by_user, " + compared("toString(account)", "''") +
		" AS by_account, " + compared("work", "''") + " AS of_work, toString(at_node) AS place, " + compared("gpus", "0") + " AS of_gpus, " +
		"toInt64(sum(runs)), max(median), toInt64(sum(total)), toInt64(sum(had))\nFROM (" + places +
		")\nGROUP BY by_user, by_account, of_work, place, of_gpus\nORDER BY by_user, by_account, of_work, place, of_gpus")
}

// FindingsLadder asks for the goodput ladder in one row: the GPU microseconds of each of
// kpi.Steps, the names of nodes, and what each had, was drained and was down of that while no run
// held it. The latter add up to those steps.
func (r *Report) FindingsLadder(scope Scope) Query {
	b := newBuilder(scope)
	r.bindWindow(b)
	var steps []string
	for _, step := range kpi.Steps() {
		steps = append(steps, "toInt64("+step.Name+"_us)")
	}
	ladder := b.goodputLadder("node", "node_bought", "node_drained", "node_down")
	columns := []string{"[" + strings.Join(steps, ", ") + "]", "arrayMap(n -> toString(n), all_node)"}
	for _, column := range []string{"node_bought", "node_drained", "node_down"} {
		columns = append(columns, "arrayMap(us -> toInt64(us), all_"+column+")")
	}
	return b.buildQuery("SELECT " + strings.Join(columns, ", ") + " FROM " + ladder)
}

// FindingEvidence is a question for `muster sql` that lists what a finding was made
// of, run by run. Where no run crosses an edge of the window, the first column
// that is named after the resource adds up to the finding.
func (r *Report) FindingEvidence(finding *findings.Finding) string {
	from := fmt.Sprintf("fromUnixTimestamp64Micro(%d, 'UTC')", r.Start/1000)
	until := fmt.Sprintf("fromUnixTimestamp64Micro(%d, 'UTC')", r.End/1000)
	cut := func(start, end string) string {
		return fmt.Sprintf("greatest(0, least(toUnixTimestamp64Micro(%s), %d) - greatest(toUnixTimestamp64Micro(%s), %d))",
			end, r.End/1000, start, r.Start/1000)
	}
	overlaps := func(start, end string) string {
		return "ifNull(" + start + " < " + until + " AND (isNull(" + end + ") OR " + end + " > " + from + "), false)"
	}
	text := func(s string) string { return quoteLiteral(s, "String") }
	whose := "j.user = " + text(finding.User) + " AND j.account = " + text(finding.Account) +
		" AND " +
		workName("j.name") + " = " + text(finding.JobName) + " AND " + overlaps("j.start", "j.end")
	lost := func(state, more string) string {
		return "SELECT j.job_id AS job, j.restarts AS restart, j.user AS user, j.state AS state, j.start AS start, j.end AS end, " +
			"sum(n.gpus * " + cut("n.from", "least(n.to, n.end)") + ") AS gpu_us " +
			"FROM jobs AS j INNER JOIN job_nodes AS n ON j.uid = n.uid AND j.restarts = n.restarts " +
			"WHERE " + more + " AND " + state +
			" GROUP BY job, restart, user, state, start, end ORDER BY gpu_us DESC, job"
	}
	devices := func(having string) string {
		return "SELECT job_id AS job, restart, " + having + " AS gpu_us, gpus, worked FROM (" +
			"SELECT job_id, restart, sum(idle) AS idle_us, sumIf(idle, NOT did) AS never_us, count() AS gpus, countIf(did) AS worked FROM (" +
			"SELECT g.job_id AS job_id, g.restarts AS restart, g.gpu_uuid AS device, sum(g.no_process_us + g.idle_us) AS idle, max(g.busy_us > 0 OR g.util_us > 0) AS did " +
			"FROM job_gpus AS g INNER JOIN jobs AS j ON j.uid = g.uid AND j.restarts = g.restarts " +
			"WHERE g.measured AND (isNull(j.end) OR j.state = 'COMPLETED') AND " + whose +
			" GROUP BY job_id, restart, device) GROUP BY job_id, restart) WHERE gpu_us > 0 AND worked %s ORDER BY gpu_us DESC, job"
	}
	nodes := func(column string) string {
		return "SELECT j.job_id AS job, j.restarts AS restart, " + column +
			" FROM job_nodes AS n INNER JOIN jobs AS j ON j.uid = n.uid AND j.restarts = n.restarts " +
			"WHERE n.measured AND (isNull(j.end) OR j.state = 'COMPLETED') AND " + whose +
			" GROUP BY job, restart ORDER BY 3 DESC, job"
	}
	switch finding.Kind {
	case findings.Idle:
		return fmt.Sprintf(devices("idle_us"), "= 0")
	case findings.Unused:
		return fmt.Sprintf(devices("never_us"), "> 0")
	case findings.Input:
		return fmt.Sprintf(devices("idle_us - never_us"), "> 0")
	case findings.Crash:
		return lost("j.state = 'FAILED' AND "+earlyFailure("j.start", "assumeNotNull(j.end)"), whose)
	case findings.Failing:
		return lost("j.state = 'FAILED' AND NOT ("+earlyFailure("j.start", "assumeNotNull(j.end)")+")", whose)
	case findings.TimedOut:
		return lost("j.state = 'TIMEOUT'", whose)
	case findings.OutOfMem:
		return lost("j.state = 'OUT_OF_MEMORY'", whose)
	case findings.Preempted:
		return lost("isNotNull(j.end) AND j.state NOT IN ('COMPLETED', 'FAILED', 'TIMEOUT', 'OUT_OF_MEMORY', "+
			"'NODE_FAIL', 'BOOT_FAIL', 'DEADLINE', 'CANCELLED')", whose)
	case findings.BadNode:
		return lost(
			"j.state = 'NODE_FAIL'",
			"j.failed_node = "+text(finding.Node)+" AND "+overlaps("j.start", "j.end"),
		)
	case findings.CPUs:
		return nodes("sum(n.cpus * " + cut("n.from", "least(n.to, n.end)") + ") - sum(n.user_cpu_us + n.system_cpu_us) AS cpu_us")
	case findings.Memory:
		return nodes("sum(greatest(0, n.mem_mib - intDiv(assumeNotNull(n.peak_rss) + 1048575, 1048576)) * " +
			cut("n.from", "least(n.to, n.end)") + ") AS mem_mib_us")
	case findings.TimeLimit:
		return "SELECT j.job_id AS job, j.limit_us / 1e6 AS limit_s, dateDiff('second', j.start, j.end) AS ran_s FROM jobs AS j WHERE j.state = 'COMPLETED' AND j.limit_us > 0 AND " +
			whose + " ORDER BY ran_s DESC, job"
	case findings.Straggler:
		return unevenEvidence(finding, whose)
	case findings.SlowGPU:
		return r.clockEvidence(finding)
	case findings.Slow:
		return "SELECT j.name AS name, n.node AS node, j.alloc_gpus AS gpus, count() AS runs, median(dateDiff('second', j.start, j.end)) AS median_s FROM jobs AS j INNER JOIN job_nodes AS n ON j.uid = n.uid AND j.restarts = n.restarts " +
			"WHERE j.state = 'COMPLETED' AND j.alloc_nodes = 1 AND j.alloc_gpus > 0 AND " + overlaps("j.start", "j.end") +
			" GROUP BY name, node, gpus ORDER BY name, gpus, median_s DESC"
	}
	return "SELECT at, state, reason, by FROM node_states WHERE node = " + text(finding.Node) +
		" AND NOT restated AND at < " + until + " ORDER BY at DESC LIMIT 50"
}
