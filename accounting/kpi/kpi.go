// Package kpi defines Muster's figures about a cluster, once: name, unit,
// formula, SQL, metric, edge cases and source. The command line, the reports,
// the metrics, the rules, the dashboards and docs/kpis.md are all made from
// these definitions.
//
// A figure is Num / Den, both SQL aggregates over the rows of a Source within
// a window of time. Where Den is 0 or nothing was measured the figure is
// missing (NULL), which is never shown as zero.
//
// Time-like amounts of a run that overlaps a window's edge are shared out
// evenly over its length, and the part within the window counts; counts belong
// to the instant of what is counted.
package kpi

// Unit is what a figure is measured in.
type Unit string

// The units.
const (
	Ratio       Unit = "ratio"   // shown as a percentage
	Seconds     Unit = "seconds" // of waiting
	ByteHours   Unit = "byte-hours"
	GPUHours    Unit = "GPU-hours"
	JobsPerHour Unit = "jobs per hour"
)

// Source is what the rows are that a figure is computed over.
type Source string

// The sources. Package query makes the columns that the definitions use.
const (
	// Runs: every run that ran in the window, over or not. Columns: overlap_s
	// (seconds of it within the window), started_in, ended_in (whether it
	// started, ended within), wait_s (start - submit), state, count (jobs it
	// stands for), alloc_cpus, alloc_gpus; beside these, runs that ended in the
	// window without having started, with an overlap of 0.
	Runs Source = "runs"
	// Nodes: each node's part of each run that is over and was measured there.
	// Columns: overlap_s, share (overlap_s by its whole length), cpus, cpu_s
	// (CPU time used), mem_bytes, peak_rss (bytes, NULL = not measured).
	Nodes Source = "nodes"
	// GPUs: each device of each run that is over, where it was measured.
	// Columns: overlap_s, share, util_s (integral of utilisation), held_idle_s
	// (no process, or a process without work), busy_s.
	GPUs Source = "gpus"
)

// Capacity names a denominator that is the cluster's, not the rows': what the
// nodes in the cluster offered over the window, in or out of service.
type Capacity string

// The capacities.
const (
	NoCapacity  Capacity = ""
	CPUCapacity Capacity = "capacity_cpu_s"
	GPUCapacity Capacity = "capacity_gpu_s"
)

// KPI is one definition.
type KPI struct {
	Name    string
	Title   string
	Unit    Unit
	Formula string // in words
	Source  Source
	Num     string   // SQL
	Den     string   // SQL; empty = Num is the figure
	Over    Capacity // the denominator, where it is the cluster's
	PerHour bool     // divide by the window's length in hours
	// Metric is the name in Prometheus, and Scale what the figure is multiplied
	// with to be in the metric's base unit.
	Metric string
	Scale  float64
	Edges  []string
	From   string // where the rows come from
}

// Failed are the states that count as a failure. A cancelled or preempted job,
// or one that was asked to run again, is neither a failure nor a success.
const Failed = "('FAILED', 'TIMEOUT', 'OUT_OF_MEMORY', 'NODE_FAIL', 'BOOT_FAIL', 'DEADLINE')"

// failed and judged are conditions of Runs.
const (
	failed = "ended_in AND state IN " + Failed
	judged = "ended_in AND (state = 'COMPLETED' OR state IN " + Failed + ")"
)

// All lists every definition, in the order in which they are shown.
//
//muster:table one entry for each definition
func All() []KPI {
	const (
		fromNodes = "the agents' usage summary at the end of a run, node by node"
		fromGPUs  = "the agents' GPU counters at the end of a run, device by device"
		fromRuns  = "the ledger: submission, start and end of each run"
	)
	running := "A run that still runs is not in it: what it used is known when it ends."
	return []KPI{
		{Name: "cpu_efficiency", Title: "CPU efficiency", Unit: Ratio, Source: Nodes, From: fromNodes, Metric: "muster_kpi_cpu_efficiency_ratio", Scale: 1,
			Formula: "CPU time used, divided by CPUs allocated times the time they were held, node by node, summed before dividing",
			Num:     "sum(cpu_s * share)", Den: "sum(cpus * overlap_s)",
			Edges: []string{"A node that was lost reports nothing: its part is left out of both sums, not counted as 0.",
				"Of several nodes each counts with its own CPUs and time: a mean of means would weigh a small node like a large one.",
				"A job that never started is not in it.", running}},
		{Name: "memory_waste", Title: "Memory waste", Unit: ByteHours, Source: Nodes, From: fromNodes, Metric: "muster_kpi_memory_waste_byte_seconds", Scale: 3600,
			Formula: "memory allocated less the peak used, times the time it was held, node by node",
			Num:     "if(countIf(peak_rss IS NOT NULL) = 0, NULL, sumIf(greatest(mem_bytes - assumeNotNull(peak_rss), 0) * overlap_s, peak_rss IS NOT NULL) / 3600)",
			Edges: []string{"The peak is that of one node against the memory held on that node.",
				"A node that used more than it was allocated wastes nothing; it does not make up for others.",
				"Where the peak was not measured the part is left out. A peak of 0 was measured and counts.",
				"Memory stays allocated while a job is suspended, so that time counts.", running}},
		{Name: "memory_waste_share", Title: "Memory waste, share", Unit: Ratio, Source: Nodes, From: fromNodes, Metric: "muster_kpi_memory_waste_ratio", Scale: 1,
			Formula: "memory waste divided by memory allocated times the time it was held, where the peak was measured",
			Num:     "sumIf(greatest(mem_bytes - assumeNotNull(peak_rss), 0) * overlap_s, peak_rss IS NOT NULL)",
			Den:     "sumIf(mem_bytes * overlap_s, peak_rss IS NOT NULL)",
			Edges:   []string{"As memory_waste.", "Jobs of clusters that do not allocate memory hold none: the share is missing."}},
		wait("wait_p50", "Wait, median", "0.5", fromRuns), wait("wait_p95", "Wait, 95th percentile", "0.95", fromRuns),
		wait("wait_p99", "Wait, 99th percentile", "0.99", fromRuns),
		{Name: "gpu_occupancy", Title: "GPU occupancy", Unit: Ratio, Source: GPUs, From: fromGPUs, Metric: "muster_kpi_gpu_occupancy_ratio", Scale: 1,
			Formula: "the devices' utilisation (DCGM_FI_DEV_GPU_UTIL), averaged over the time jobs held them: it tells work from idle allocation",
			Num:     "sum(util_s * share)", Den: "sum(overlap_s)",
			Edges: []string{"Weighted by GPU-time, so one long job counts as much as many short ones of the same length.",
				"A device that was not measured is left out; one that was idle counts with 0.", running}},
		{Name: "gpu_idle", Title: "GPU-hours held but idle", Unit: GPUHours, Source: GPUs, From: fromGPUs, Metric: "muster_kpi_gpu_idle_seconds", Scale: 3600,
			Formula: "time during which a job held a device without a process on it, or with one that did nothing",
			Num:     "sum(held_idle_s * share) / 3600",
			Edges:   []string{"The three states no process, idle and busy add up to the time measured.", running}},
		{Name: "gpu_allocation", Title: "GPU allocation", Unit: Ratio, Source: Runs, From: fromRuns + "; node states", Metric: "muster_kpi_gpu_allocation_ratio", Scale: 1,
			Formula: "GPUs allocated times time, divided by the GPUs of the cluster times time",
			Num:     "sum(alloc_gpus * overlap_s)", Over: GPUCapacity,
			Edges: []string{"Nodes that are down or drained stay in the denominator: their devices were bought too.",
				"By partition the denominator is that partition's; by account, user or QOS it is the cluster's, so the parts add up.",
				"Runs that still run count up to now.", "A cluster without GPUs has no figure."}},
		{Name: "utilisation", Title: "CPU utilisation", Unit: Ratio, Source: Runs, From: fromRuns + "; node states", Metric: "muster_kpi_utilisation_ratio", Scale: 1,
			Formula: "CPUs allocated times time, divided by the CPUs of the cluster times time",
			Num:     "sum(alloc_cpus * overlap_s)", Over: CPUCapacity,
			Edges: []string{"As gpu_allocation.", "Nodes count from when they were configured until they were removed."}},
		{Name: "failure_rate", Title: "Failure rate", Unit: Ratio, Source: Runs, From: fromRuns, Metric: "muster_kpi_failure_ratio", Scale: 1,
			Formula: "runs that failed, divided by those that failed or completed, by the instant of their end",
			Num:     "sumIf(count, " + failed + ")", Den: "sumIf(count, " + judged + ")",
			Edges: []string{"Failed: FAILED, TIMEOUT, OUT_OF_MEMORY, NODE_FAIL, BOOT_FAIL, DEADLINE.",
				"Cancelled, preempted and requeued runs are in neither sum. A run that a node failure ended and that is run again is a failed run.",
				"Without any end in the window the figure is missing."}},
		{Name: "lost_gpu_hours", Title: "GPU-hours lost to failures", Unit: GPUHours, Source: Runs, From: fromRuns, Metric: "muster_kpi_lost_gpu_seconds", Scale: 3600,
			Formula: "GPUs allocated times time of the runs that failed in the window, from the window's beginning on",
			Num:     "sumIf(alloc_gpus * overlap_s, " + failed + ") / 3600",
			Edges:   []string{"Failed as in failure_rate."}},
		{Name: "throughput", Title: "Throughput", Unit: JobsPerHour, Source: Runs, From: fromRuns, Metric: "muster_kpi_throughput_jobs_per_second", Scale: 1.0 / 3600,
			Formula: "runs that had started and ended in the window, divided by its length",
			Num:     "toFloat64(sumIf(count, ended_in AND ran))", PerHour: true,
			Edges: []string{"Whatever their state: what the cluster got through.", "Jobs that were cancelled before they started are not in it."}},
	}
}

func wait(name, title, level, from string) KPI {
	return KPI{Name: name, Title: title, Unit: Seconds, Source: Runs, From: from, Metric: "muster_kpi_" + name + "_seconds", Scale: 1,
		Formula: "start - submit of the runs that started in the window: the smallest wait that more than this share of them did not exceed",
		Num:     "if(countIf(started_in) = 0, NULL, quantileExactIf(" + level + ")(wait_s, started_in))",
		Edges: []string{"A run that is queued again waits from then on, not from the first submission.",
			"Jobs that still wait are not in it, so it looks good while the queue stands still: see the age of the oldest pending job beside it.",
			"Time held, or waiting for a dependency or begin time, counts: it is what the user sees.",
			"Every task of an array counts, from the submission of the array."}}
}

// Find returns a definition by name.
func Find(name string) (KPI, bool) {
	for _, k := range All() {
		if k.Name == name {
			return k, true
		}
	}
	return KPI{}, false
}

// Dimension is what figures are broken down by.
type Dimension string

// The dimensions; the names are those of columns.
const (
	ByCluster   Dimension = "cluster"
	ByPartition Dimension = "partition"
	ByAccount   Dimension = "account"
	ByUser      Dimension = "user"
	ByQOS       Dimension = "qos"
)

// Dimensions lists them.
func Dimensions() []Dimension {
	return []Dimension{ByCluster, ByPartition, ByAccount, ByUser, ByQOS}
}

// Window is a length of time that ends now.
type Window struct {
	Name    string
	Seconds int64
}

// Windows lists the windows that are computed all the time.
func Windows() []Window {
	return []Window{{"1h", 3600}, {"1d", 86_400}, {"7d", 7 * 86_400}, {"30d", 30 * 86_400}}
}

// Value is one computed figure; Null where there is none.
type Value struct {
	KPI    string
	By     Dimension
	Key    string // of the dimension: the account's name; the cluster's for ByCluster
	Window string
	Null   bool
	Value  float64 // in the definition's unit
}
