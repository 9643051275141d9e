package kpi

import (
	"fmt"

	"github.com/musterhpc/muster/spec"
)

// Class is a kind of failure.
type Class struct{ Name, State, Words string }

// Classes lists the kinds of failure; together they are Failed.
func Classes() []Class {
	return []Class{
		{"user", "FAILED", "the program ended with an error"},
		{"timeout", "TIMEOUT", "the time limit ran out"},
		{"memory", "OUT_OF_MEMORY", "memory ran out"},
		{"node", "NODE_FAIL", "a node failed"},
		{"boot", "BOOT_FAIL", "the job could not be launched"},
		{"deadline", "DEADLINE", "the deadline passed"},
	}
}

// Slowdown is the least run time that counts in bounded_slowdown, in seconds:
// without it jobs that run for an instant would decide the mean.
const Slowdown = 10

// Where the rows come from.
const (
	fromNodes = "the agents' usage summary at the end of a run, node by node; their samples until then"
	fromGPUs  = "the agents' GPU counters at the end of a run, device by device; their samples until then, and for runs that the window cuts"
	fromRuns  = "the ledger: submission, start and end of each run"
	// A promise stands in the ledger beside the reason for which its job waits.
	fromPromises = "the ledger: the first promise of each run, its start and its end"
	running      = "A run that still runs counts up to now, as far as it was sampled (accounting.samples_keep)."
)

// All lists every definition, in the order in which they are shown.
func All() []KPI {
	var kpis []KPI
	for _, list := range [...][]KPI{goodputKPIs(), efficiency(), waits(), promises(), gpus(), loads(), failures(), costs(), fairness()} {
		kpis = append(kpis, list...)
	}
	return kpis
}

// efficiency is how well CPUs and memory were used.
//
//muster:table one entry for each definition
func efficiency() []KPI {
	return []KPI{
		{Name: "cpu_efficiency", Title: "CPU efficiency", Unit: Ratio, Source: Nodes, From: fromNodes, Metric: "muster_kpi_cpu_efficiency_ratio", Scale: 1,
			Formula: "CPU time used, divided by CPUs allocated times the time they were held, node by node, summed before dividing",
			Num:     "sum(cpu_s * share)", Den: "sum(cpus * overlap_s)",
			Edges: []string{"A node that was lost reports nothing: its part is left out of both sums, not counted as 0.",
				"Of several nodes each counts with its own CPUs and time: a mean of means would weigh a small node like a large one.",
				"Time in which a job was suspended counts as held: see utilisation for what was free.",
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
	}
}

// waits is how long jobs waited.
func waits() []KPI {
	kpis := []KPI{}
	levels := [...][2]string{
		{"50", "1"},
		{"95", "2"},
		{"99", "3"},
	} // and their places in waitLevels
	for _, p := range levels {
		kpis = append(kpis, wait(p[0], p[1]))
	}
	for _, p := range levels {
		kpis = append(kpis, eligibleWait(p[0], p[1]))
	}
	return append(kpis, slowdowns()...)
}

// slowdowns is waiting against running.
//
//muster:table one entry for each definition
func slowdowns() []KPI {
	return []KPI{
		{Name: "bounded_slowdown", Title: "Bounded slowdown", Unit: Times, Source: Runs, From: fromRuns, Metric: "muster_kpi_bounded_slowdown_ratio", Scale: 1,
			Formula: "(wait + run time) divided by the run time, which counts as 10 s at least, never below 1; the mean over the runs that ended in the window",
			Num:     "avgIf(greatest(1, (wait_s + run_s) / greatest(run_s, 10)), ended_in AND ran)",
			Edges: []string{"The bound of 10 s is the usual one: without it runs that fail at once would decide the mean.",
				"Each run counts the same, whatever its size: expansion_factor weighs by nodes and time.", "A run that never started has none."}},
		{Name: "expansion_factor", Title: "Expansion factor", Unit: Times, Source: Runs, From: fromRuns, Metric: "muster_kpi_expansion_factor_ratio", Scale: 1,
			Formula: "(wait + run time) divided by the run time, averaged over the runs in the window weighted by nodes times time within it",
			Num:     "sumIf((wait_s + run_s) / run_s * alloc_nodes * overlap_s, run_s > 0)", Den: "sumIf(alloc_nodes * overlap_s, run_s > 0)",
			Edges: []string{"As Open XDMoD computes it. A run that still runs counts with its run time so far.", "A run without length has no weight."}},
	}
}

// promises is how the first promises of a start were kept.
//
//muster:table one entry for each definition
func promises() []KPI {
	void := []string{
		"A promise is the start that the plan gives a job when it first has a firm reservation: with bf_promise=prediction, for as many jobs as bf_firm says. Other jobs have none.",
		"It is void once its job is held, changed or requeued, or ends before it was due. The job may be promised another one after that.",
		"Each promise counts once: at the start that keeps it, otherwise when its grace is over, whether the job has started or not. So the windows of a month add up to the month.",
	}
	grace := fmt.Sprintf("%d s", int64(spec.PromiseGrace/spec.Second))
	return []KPI{
		{Name: "promise_kept", Title: "Promises kept", Unit: Ratio, Source: Runs, From: fromPromises, Metric: "muster_kpi_promise_kept_ratio", Scale: 1,
			Formula: "runs that started no later than " + grace + " after the start that they were first promised, divided by all whose promise was due in the window",
			Num:     "countIf(promise_due AND promise_kept)", Den: "countIf(promise_due)", Edges: void},
		{Name: "promise_late_p95", Title: "Start after the promise, 95th percentile", Unit: Seconds, Source: Runs, From: fromPromises, Metric: "muster_kpi_promise_late_p95_seconds", Scale: 1,
			Formula: "start less promised start, 0 for those that started earlier, of the promises that were due in the window: the smallest that more than 95 % of them did not exceed",
			Num:     "if(countIf(promise_due) = 0, NULL, quantilesExactIf(0.95)(late_s, promise_due)[1])",
			Edges:   append([]string{"A job that still waits at the window's end counts with what it is late until then."}, void...)},
	}
}

// gpus is how well the devices were used.
//
//muster:table one entry for each definition
func gpus() []KPI {
	return []KPI{
		{Name: "gpu_occupancy", Title: "GPU occupancy", Unit: Ratio, Source: GPUs, From: fromGPUs, Metric: "muster_kpi_gpu_occupancy_ratio", Scale: 1,
			Formula: "the devices' utilisation (DCGM_FI_DEV_GPU_UTIL), averaged over the time jobs held them: it tells work from idle allocation",
			Num:     "sum(util_s * share)", Den: "sum(overlap_s)",
			Edges: []string{"Weighted by GPU-time, so one long job counts as much as many short ones of the same length.",
				"A device that was not measured is left out; one that was idle counts with 0.", running}},
		{Name: "gpu_efficiency", Title: "GPU efficiency", Unit: Ratio, Source: GPUs, From: fromGPUs, Metric: "muster_kpi_gpu_efficiency_ratio", Scale: 1,
			Formula: "the devices' SM activity (DCGM_FI_PROF_SM_ACTIVE), averaged over the time jobs held them: how much of each device worked, not only whether",
			Num:     "sumIf(assumeNotNull(sm_s) * share, sm_s IS NOT NULL)", Den: "sumIf(overlap_s, sm_s IS NOT NULL)",
			Edges: []string{"Weighted by GPU-time, as gpu_occupancy, and never above it by much: a kernel that keeps one SM busy is full occupancy and little efficiency.",
				"A device that was utilised and shows no SM activity at all was not measured for it (NVML does not give it) and is left out; one that was idle counts with 0.", running}},
		{Name: "gpu_idle", Title: "GPU-hours held but idle", Unit: GPUHours, Source: GPUs, From: fromGPUs, Metric: "muster_kpi_gpu_idle_seconds", Scale: 3600,
			Formula: "time during which a job held a device without a process on it, or with one that did nothing",
			Num:     "sum(held_idle_s * share) / 3600",
			Edges:   []string{"The three states no process, idle and busy add up to the time measured.", running}},
	}
}

// loads is how full the cluster was.
//
//muster:table one entry for each definition
func loads() []KPI {
	return []KPI{
		{Name: "gpu_allocation", Title: "GPU allocation", Unit: Ratio, Source: Runs, From: fromRuns + "; node states", Metric: "muster_kpi_gpu_allocation_ratio", Scale: 1,
			Formula: "GPUs allocated times time, divided by the GPUs of the cluster times time",
			Num:     "sum(alloc_gpus * overlap_s)", Over: GPUCapacity,
			Edges: []string{"Nodes that are down or drained stay in the denominator: their devices were bought too.",
				"By partition the denominator is that partition's; by account, user or QOS it is the cluster's, so the parts add up.",
				"A suspended run keeps its devices.", "Runs that still run count up to now.", "A cluster without GPUs has no figure."}},
		{Name: "utilisation", Title: "CPU utilisation", Unit: Ratio, Source: Runs, From: fromRuns + "; node states", Metric: "muster_kpi_utilisation_ratio", Scale: 1,
			Formula: "CPUs allocated times time, divided by the CPUs of the cluster times time",
			Num:     "sum(alloc_cpus * overlap_s * active)", Over: CPUCapacity,
			Edges: []string{"As gpu_allocation.", "Time in which a run was suspended is left out, evenly over the run: its CPUs are free then. While it is suspended, nothing counts since then.", "Nodes count from when they were configured until they were removed."}},
		{Name: "throughput", Title: "Throughput", Unit: JobsPerHour, Source: Runs, From: fromRuns, Metric: "muster_kpi_throughput_jobs_per_second", Scale: 1.0 / 3600,
			Formula: "runs that had started and ended in the window, divided by its length",
			Num:     "toFloat64(sumIf(count, ended_in AND ran))", PerHour: true,
			Edges: []string{"Whatever their state: what the cluster got through.", "Jobs that were cancelled before they started are not in it."}},
	}
}

// failures is what was lost, in all and by class.
func failures() []KPI {
	kpis := failed(Class{})
	for _, class := range Classes() {
		kpis = append(kpis, failed(class)...)
	}
	return kpis
}

// failed makes the definitions of a class; of all failures, without one.
func failed(class Class) []KPI {
	states := Failed
	suffix := ""
	title := ""
	words := "runs that failed"
	edges := []string{"Failed: FAILED, TIMEOUT, OUT_OF_MEMORY, NODE_FAIL, BOOT_FAIL, DEADLINE.",
		"Cancelled, preempted and requeued runs are in neither sum. A run that a node failure ended and that is run again is a failed run.",
		"Without any end in the window the figure is missing."}
	metric, lost := "muster_kpi_failure_ratio", "muster_kpi_lost_gpu_seconds"
	if class.Name != "" {
		states = "('" + class.State + "')"
		suffix = "_" + class.Name
		title = " (" + class.Name + ")"
		words = "runs that failed because " + class.Words
		edges = []string{"State " + class.State + ". The classes add up to failure_rate."}
		metric, lost = "muster_kpi_failure_class_ratio", "muster_kpi_lost_gpu_class_seconds"
	}
	of := "ended_in AND state IN " + states
	return []KPI{
		{
			Name:   "failure_rate" + suffix,
			Title:  "Failure rate" + title,
			Unit:   Ratio,
			Source: Runs,
			From:   fromRuns,
			Metric: metric,
			Class:  class.Name,
			Scale:  1,
			Formula: words +
				", divided by those that failed or completed, by the instant of their end",
			Num:   "sumIf(count, " + of + ")",
			Den:   "sumIf(count, " + judged + ")",
			Edges: edges,
		},
		{
			Name:   "lost_gpu_hours" + suffix,
			Title:  "GPU-hours lost to failures" + title,
			Unit:   GPUHours,
			Source: Runs,
			From:   fromRuns,
			Metric: lost,
			Class:  class.Name,
			Scale:  3600,
			Formula: "GPUs allocated times time of the " + words +
				" in the window, from the window's beginning on",
			Num:   "sumIf(alloc_gpus * overlap_s, " + of + ") / 3600",
			Edges: []string{"Failed as in failure_rate" + suffix + "."},
		},
	}
}

// costs is energy, carbon and money.
//
//muster:table one entry for each definition
func costs() []KPI {
	return []KPI{
		{Name: "energy", Title: "Energy", Unit: KWh, Source: Energy, From: fromNodes + ", and " + fromGPUs, Metric: "muster_kpi_energy_joules", Scale: 3.6e6,
			Formula: "energy of the nodes' part that the run held, and of its devices, as far as it was measured",
			Num:     "sum(energy_j * share) / 3.6e6",
			Edges: []string{"The energy of a node is without its GPUs, which are measured device by device.",
				"A device that counted no energy at all was not measured: a working device always draws power.",
				"Cooling and power supply are not in it; carbon counts them through cost.pue.", running}},
		{Name: "carbon", Title: "Carbon", Unit: KgCO2, Source: Energy, From: fromNodes + ", and " + fromGPUs + "; cost.carbon in muster.yaml", Metric: "muster_kpi_carbon_grams", Scale: 1000,
			Formula: "energy times the carbon intensity of the day, times cost.pue",
			Num:     "sum(carbon_g) / 1000",
			Edges: []string{"The intensity that holds at each moment of a run counts for that part of it.",
				"Without an intensity in muster.yaml the figure is missing; time before the first is left out.", running}},
		{Name: "cost", Title: "Cost", Unit: Money, Source: Runs, From: fromRuns + "; cost.prices in muster.yaml", Metric: "muster_kpi_cost", Scale: 1,
			Formula: "what was allocated times the prices of the day, in cost.currency",
			Num:     "sum(cost)",
			Edges: []string{"Allocated, not used: what a run holds nobody else can have.", "Runs that still run count up to now.",
				"Without prices in muster.yaml the figure is missing; a TRES without a price, and time before the first price, is free."}},
	}
}

// fairness is how far use is from the shares.
//
//muster:table one entry for each definition
func fairness() []KPI {
	return []KPI{
		{Name: "fairshare_drift", Title: "Fair-share drift", Unit: Ratio, Source: Associations, From: "the ledger: use of each association, and the tree of shares", Metric: "muster_kpi_fairshare_drift_ratio", Scale: 1,
			Formula: "half the sum of the differences between usage and share over the associations with demand: the part of the use that went to others than the shares say",
			Num:     "sum(abs(used / total_used - share)) / 2",
			Edges: []string{"An association with demand ran something in the window, or had something eligible waiting. Shares are those among these, level by level: who wants nothing starves nobody.",
				"usage is billing TRES times time, as a part of that of all; share is the association's part of the tree.",
				"By account and user it is that part of the sum, so that the parts add up to the cluster's. Partitions and QOS have none.",
				"Fairshare=parent has no share of its own: its use counts as the parent's.", "Without any use in the window the figure is missing."}},
		{Name: "fairshare_drift_slope", Title: "Fair-share drift, slope", Unit: PerDay, Source: Associations, From: "as fairshare_drift", Metric: "muster_kpi_fairshare_drift_slope", Scale: 1,
			Formula: "slope of the straight line through fairshare_drift of each day of the window: above 0 the cluster grows less fair",
			Num:     "simpleLinearRegression(day, fairshare_drift).1",
			Edges: []string{"Least squares. Days are 24 hours long and end where the window ends; those without any use are left out.",
				"For windows of less than two days, and where fewer than two days had use, the figure is missing.", "For the cluster only."}},
	}
}

// waitLevels are the quantiles of waits. They stand in one function, which gathers
// the waits once.
const waitLevels = "0.5, 0.95, 0.99"

func wait(p, nth string) KPI {
	name := "wait_p" + p
	return KPI{
		Name:   name,
		Title:  waitTitle("Wait", p),
		Unit:   Seconds,
		Source: Runs,
		From:   fromRuns,
		Metric: "muster_kpi_" +
			name + "_seconds",
		Scale:   1,
		Formula: "start - submit of the runs that started in the window: the smallest wait that more than this share of them did not exceed",
		Num: "if(countIf(started_in) = 0, NULL, quantilesExactIf(" + waitLevels +
			")(wait_s, started_in)[" + nth + "])",
		Edges: []string{
			"A run that is queued again waits from then on, not from the first submission.",
			"Jobs that still wait are not in it, so it looks good while the queue stands still: see wait_eligible beside it.",
			"Time held, or waiting for a dependency or begin time, counts: it is what the user sees.",
			"Every task of an array counts, from the submission of the array.",
		},
	}
}

func eligibleWait(p, nth string) KPI {
	name := "wait_eligible_p" + p
	return KPI{
		Name:   name,
		Title:  waitTitle("Wait since eligible", p),
		Unit:   Seconds,
		Source: Runs,
		From:   fromRuns,
		Metric: "muster_kpi_" +
			name + "_seconds",
		Scale: 1,
		Formula: "wait since a run was eligible, of those that started in the window, those that wait at its end (until then) and those that " +
			"ended in it without a start: the smallest that at least this share of them did not exceed",
		Num: "if(countIf(waits) = 0, NULL, quantilesExactWeightedIf(" + waitLevels +
			")(eligible_wait_s, toUInt64(count), waits)[" + nth + "])",
		Edges: []string{
			"Jobs that still wait count with their age, so a queue that stands still shows.",
			"Time held, or waiting for a dependency or begin time, does not count: nobody could have started it.",
			"A job that is not eligible is not in it. The tasks of an array count each.",
			"A run that is queued again waits from when it is eligible again.",
		},
	}
}

func waitTitle(what, p string) string {
	if p == "50" {
		return what + ", median"
	}
	return what + ", " + p + "th percentile"
}
