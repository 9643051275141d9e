package query

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/spec"
)

// Shares of a run: what it held and used, node by node and device by device.

// RunNodes asks for the nodes of a run that is over: node, cpus, mem_mib,
// held_us, lost, measured, cpu_us, peak_rss, energy_mj.
func RunNodes(scope Scope, run RunKey) Query {
	b := newBuilder(scope)
	return b.buildQuery("SELECT node, cpus, mem_mib, greatest(0, toUnixTimestamp64Micro(least(to, end)) - toUnixTimestamp64Micro(from)) AS held_us, " +
		"lost, measured, user_cpu_us + system_cpu_us AS cpu_us, peak_rss, energy_mj\nFROM " +
		b.qualifyTable("job_nodes") + "\nWHERE " + b.theRun(run) + "\nORDER BY node")
}

// RunGPUs asks for its devices: node, gpu_uuid, gpu_index, gpu_type, measured,
// held_us, util_us, sm_us (NULL = not measured), no_process_us, idle_us,
// peak_mem, energy_mj (NULL = not measured), method, share.
func RunGPUs(scope Scope, run RunKey) Query {
	b := newBuilder(scope)
	return b.buildQuery("SELECT node, gpu_uuid, gpu_index, gpu_type, measured, greatest(0, toUnixTimestamp64Micro(least(to, end)) - toUnixTimestamp64Micro(from)) AS held_us, " +
		"util_us, if(sm_us = 0 AND util_us > 0, NULL, toNullable(sm_us)) AS sm, no_process_us, idle_us, peak_mem, nullIf(energy_mj, 0) AS energy, toString(method), share\nFROM " +
		b.qualifyTable("job_gpus") + "\nWHERE " + b.theRun(run) +
		"\nORDER BY node, gpu_index, gpu_uuid")
}

// RunHeld asks what a run that is not over holds: node, cpus, mem_mib, gpus.
func RunHeld(scope Scope, run RunKey) Query {
	b := newBuilder(scope)
	uid, restarts := b.bindValue(
		"uid",
		"UInt64",
		run.UID,
	), b.bindValue(
		"restarts",
		"UInt32",
		run.Restarts,
	)
	return b.buildQuery("SELECT node, cpu, mem, gpu\nFROM " + b.qualifyTable("live") +
		" FINAL\nARRAY JOIN held_nodes AS node, held_cpus AS cpu, held_mem_mib AS mem, held_gpus AS gpu\nWHERE " +
		open + " AND uid = " + uid + " AND restarts = " + restarts + "\nORDER BY node")
}

func (b *builder) theRun(run RunKey) string {
	return stored + " AND uid = " + b.bindValue("uid", "UInt64", run.UID) + " AND restarts = " +
		b.bindValue("restarts", "UInt32", run.Restarts)
}

// RunCost asks what one run costs so far, in 1/kpi.CostScale as a text.
func RunCost(scope Scope, run RunKey, rates *kpi.Rates) Query {
	b := newBuilder(scope)
	report := Report{End: scope.Now}
	report.bindWindow(b)
	cost := b.exactCost(&report, rates)
	if cost == "" {
		cost = "toInt128(0)"
	}
	where := "uid = " + b.bindValue("uid", "UInt64", run.UID) + " AND restarts = " +
		b.bindValue("restarts", "UInt32", run.Restarts)
	return b.buildQuery("SELECT toString(sum(cost_n)) FROM " + b.allRuns(cost+" AS cost_n", where))
}

// RunEnergy asks what one run that is over used: joules, grams of CO2e; both
// NULL where nothing was measured.
func RunEnergy(scope Scope, run RunKey, rates *kpi.Rates) Query {
	b := newBuilder(scope)
	report := Report{Start: 0, End: scope.Now}
	report.bindWindow(b)
	rows := b.kpiEnergy(&report, rates)
	where := " AND uid = " + b.bindValue("uid", "UInt64", run.UID) + " AND restarts = " +
		b.bindValue("restarts", "UInt32", run.Restarts)
	rows = strings.ReplaceAll(rows, shareWithin, shareWithin+where)
	return b.buildQuery(
		"SELECT if(count() = 0, NULL, sum(energy_j * share)), if(count() = 0, NULL, sum(carbon_g)) FROM " +
			rows,
	)
}

// History is which runs of a user advice rests on.
type History struct {
	User  string
	Work  string // as WorkOf
	Since spec.Instant
	Limit int
}

// defaultNames are the names of jobs that were given none: they tell nothing about what a job
// does.
func defaultNames() []string { return []string{"wrap", "sbatch", "interactive", "bash", "sh"} }

// WorkOf is what jobs that do the same have in common: their name, or how they were submitted
// where nobody has named them.
func WorkOf(name, submitLine string) string {
	if submitLine != "" && slices.Contains(defaultNames(), name) {
		return submitLine
	}
	return name
}

// workExpr is WorkOf in SQL.
func workExpr() string {
	return "if(notEmpty(submit_line) AND name IN ('" + strings.Join(defaultNames(), "', '") +
		"'), toString(submit_line), toString(name))"
}

// Runs asks for the newest runs that are over and ran: uid, restarts, job_id,
// state, partition, nodes, cpus, mem_mib, gpus, limit_us, elapsed_us, wait_us,
// measured, cpu_us, peak_rss, gpu_measured_us, gpu_util_us, worked (devices
// that did anything), watched (devices that were measured).
func (h History) Runs(scope Scope) Query {
	b := newBuilder(scope)
	where := stored + " AND user = " + b.bindValue("user", "String", h.User) + " AND " + workExpr() + " = " +
		b.bindValue("work", "String", h.Work) +
		" AND isNotNull(start) AND end >= fromUnixTimestamp64Micro(" +
		b.bindMicros("since", h.Since) + ", 'UTC')"
	runs := "(SELECT uid, restarts, job_id, toString(state) AS state, toString(partition) AS partition, alloc_nodes, alloc_cpus, alloc_mem_mib, alloc_gpus, limit_us, elapsed_us, " +
		"toUnixTimestamp64Micro(assumeNotNull(start)) - toUnixTimestamp64Micro(submit) AS wait_us, measured, user_cpu_us + system_cpu_us AS cpu_us, peak_rss, gpu_measured_us, gpu_util_us, end\n  FROM " +
		b.qualifyTable("jobs") + "\n  WHERE " + where +
		fmt.Sprintf("\n  ORDER BY end DESC, uid DESC LIMIT %d)", h.Limit)
	devices := "(SELECT uid, restarts, toUInt64(countIf(measured)) AS watched, toUInt64(countIf(measured AND (busy_us > 0 OR util_us > 0))) AS worked FROM " +
		b.qualifyTable("job_gpus") +
		" WHERE " + stored + " AND (uid, restarts) IN (SELECT uid, restarts FROM " + runs +
		") GROUP BY uid, restarts)"
	return b.buildQuery("SELECT r.uid, r.restarts, job_id, state, partition, alloc_nodes, alloc_cpus, alloc_mem_mib, alloc_gpus, limit_us, elapsed_us, wait_us, measured, cpu_us, peak_rss, " +
		"gpu_measured_us, gpu_util_us, d.worked, d.watched\nFROM " + runs + " AS r\nLEFT JOIN " +
		devices +
		" AS d ON r.uid = d.uid AND r.restarts = d.restarts\nORDER BY end DESC, uid DESC")
}

// Works asks for the work of a user that held most, CPUs times time: WorkOf.
func (h History) Works(scope Scope) Query {
	b := newBuilder(scope)
	return b.buildQuery("SELECT " + workExpr() + " AS work\nFROM " + b.qualifyTable("jobs") + "\nWHERE " + stored +
		" AND user = " + b.bindValue("user", "String", h.User) +
		" AND isNotNull(start) AND end >= fromUnixTimestamp64Micro(" +
		b.bindMicros("since", h.Since) + ", 'UTC')" +
		fmt.Sprintf(
			"\nGROUP BY work\nORDER BY sum(toFloat64(alloc_cpus + 16 * alloc_gpus) * elapsed_us) DESC, work\nLIMIT %d",
			h.Limit,
		))
}

// Peers is which runs of a partition are compared with: those that asked for
// no more. A limit of 0 does not restrict.
type Peers struct {
	Partition              string
	Since                  spec.Instant
	CPUs, MemPerNode, GPUs int64
	Limit                  int64 // microseconds
	Nodes                  int64
}

// Waits asks how long they waited: runs (UInt64), mean wait in seconds.
func (p Peers) Waits(scope Scope) Query {
	b := newBuilder(scope)
	where := stored + " AND isNotNull(start) AND end >= fromUnixTimestamp64Micro(" +
		b.bindMicros("since", p.Since) + ", 'UTC') AND partition = " +
		b.bindValue("partition", "String", p.Partition) +
		" AND alloc_nodes <= " + b.bindValue("nodes", "Int64", p.Nodes) + " AND alloc_gpus <= " +
		b.bindValue("gpus", "Int64", p.GPUs) + " AND alloc_cpus <= " +
		b.bindValue("cpus", "Int64", p.CPUs)
	if p.GPUs > 0 {
		where += " AND alloc_gpus > 0"
	}
	if p.MemPerNode > 0 {
		where += " AND intDiv(alloc_mem_mib, greatest(alloc_nodes, 1)) <= " +
			b.bindValue("mem", "Int64", p.MemPerNode)
	}
	if p.Limit > 0 {
		where += " AND limit_us >= 0 AND limit_us <= " + b.bindValue("limit", "Int64", p.Limit)
	}
	return b.buildQuery("SELECT toUInt64(count()) AS runs, ifNotFinite(avg(toUnixTimestamp64Micro(assumeNotNull(start)) - toUnixTimestamp64Micro(submit)) / 1e6, 0) AS wait_s\nFROM " +
		b.qualifyTable("jobs") + "\nWHERE " + where)
}

// Efficiency asks how well runs that ended in the window used what they held,
// by user, account, name or partition: key, runs, cpu_s held, gpu_s held,
// cpu_used_s and cpu_measured_s, waste_byte_s and mem_byte_s (measured),
// gpu_util_s and gpu_measured_s, gpu_idle_s, failed, judged, wait_s (sum).
// Who held most comes first.
func (r *Report) Efficiency(scope Scope, by string, limit int) Query {
	b := newBuilder(scope)
	r.bindWindow(b)
	const held = "toFloat64(elapsed_us) / 1e6"
	const peak = "assumeNotNull(peak_rss) * alloc_nodes"
	sums := "toUInt64(count()) AS runs, sum(alloc_cpus * " + held +
		") AS cpu_s, sum(alloc_gpus * " + held + ") AS gpu_s, " +
		"sumIf((user_cpu_us + system_cpu_us) / 1e6, measured) AS cpu_used_s, sumIf(alloc_cpus * " +
		held + ", measured) AS cpu_measured_s, " +
		"sumIf(greatest(0, toFloat64(alloc_mem_mib) * 1048576 - " + peak + ") * " + held +
		", isNotNull(peak_rss) AND alloc_mem_mib > 0) AS waste_byte_s, " +
		"sumIf(toFloat64(alloc_mem_mib) * 1048576 * " + held +
		", isNotNull(peak_rss) AND alloc_mem_mib > 0) AS mem_byte_s, " +
		"sum(gpu_util_us) / 1e6 AS gpu_util_s, sum(gpu_measured_us) / 1e6 AS gpu_measured_s, sum(gpu_no_process_us + gpu_idle_us) / 1e6 AS gpu_idle_s, " +
		"toUInt64(countIf(state IN " + kpi.Failed +
		")) AS failed, toUInt64(countIf(state = 'COMPLETED' OR state IN " + kpi.Failed +
		")) AS judged, " +
		"sum(toUnixTimestamp64Micro(assumeNotNull(start)) - toUnixTimestamp64Micro(submit)) / 1e6 AS wait_s"
	return b.buildQuery("SELECT toString(" + by + ") AS key, " + sums + "\nFROM " +
		b.qualifyTable("jobs") + "\nWHERE " + stored +
		" AND isNotNull(start) AND end >= " + windowFrom + " AND end < " + windowTo +
		r.filterClause(b) +
		fmt.Sprintf("\nGROUP BY key\nORDER BY cpu_s + 16 * gpu_s DESC, key\nLIMIT %d", limit))
}

// Waste asks for the runs that ended in the window whose peak memory stayed
// below a part of what they held, on each of their nodes: job_id,
// array_job_id, array_task, user, account, name, state, elapsed_us, mem_mib,
// peak (bytes, the sum of the nodes' peaks), ratio (the largest of a node),
// waste (byte-seconds). Who wasted most comes first. Runs that were not
// measured on every node are left out.
func (r *Report) Waste(scope Scope, below float64, limit int) Query {
	b := newBuilder(scope)
	r.bindWindow(b)
	ratio := b.bindValue("below", "Float64", below)
	nodes := "(SELECT uid, restarts, sum(assumeNotNull(peak_rss)) AS peak, sum(mem_mib) AS mem, max(assumeNotNull(peak_rss) / (mem_mib * 1048576)) AS ratio, " +
		"sum(toFloat64(greatest(0, mem_mib * 1048576 - assumeNotNull(peak_rss))) * (toUnixTimestamp64Micro(least(to, end)) - toUnixTimestamp64Micro(from)) / 1e6) AS waste\n  FROM " +
		b.qualifyTable("job_nodes") + "\n  WHERE " + stored + " AND end >= " + windowFrom +
		" AND end < " + windowTo +
		"\n  GROUP BY uid, restarts\n  HAVING countIf(isNull(peak_rss) OR mem_mib <= 0) = 0 AND ratio < " +
		ratio + ")"
	return b.buildQuery("SELECT job_id, array_job_id, array_task, toString(user), toString(account), name, toString(state), elapsed_us, toInt64(n.mem), toInt64(n.peak), n.ratio, n.waste\nFROM " +
		b.qualifyTable("jobs") + " AS j\nINNER JOIN " + nodes +
		" AS n ON j.uid = n.uid AND j.restarts = n.restarts\nWHERE " + stored +
		" AND isNotNull(start) AND end >= " + windowFrom + " AND end < " + windowTo +
		r.filterClause(b) +
		fmt.Sprintf("\nORDER BY n.waste DESC, job_id\nLIMIT %d", limit))
}
