package dashboards

func efficiencyBoard() Board {
	fig := func(name, legend string) Query {
		return Query{Expr: `muster_kpi_` + name +
			`{cluster="$cluster",by="cluster",window="1d"}`, Legend: legend}
	}
	by := func(title, about string, unit Unit, name, dim string) Panel {
		cond := "> 0" // a list of people with nothing says nothing
		if dim != "user" {
			cond = ""
		}
		return barPanel(title, about, unit, `topk(10, muster_kpi_`+name+`{cluster="$cluster",by="`+
			dim+`",window="7d"} `+cond+`)`, "{{key}}").wide(8)
	}
	const chosen = "$__conditionalAll(partition IN (${partition:singlequote}), $partition)"
	return Board{UID: Efficiency, Title: "Muster / Efficiency", From: "now-7d", Vars: []Var{clusterVar(), partitionVar()},
		Description: "How well what was given out is used, and by whom it is wasted. Every figure is defined once, in docs/kpis.md; `muster kpi` prints the same.",
		Rows: []Row{
			{Title: "Goodput", Panels: []Panel{
				figurePanel("Goodput, last day", "GPU time that runs which ended well held with work, by the GPU time that was bought. The rest is in the table beside it.", Ratio,
					`muster_kpi_goodput_ratio{cluster="$cluster",by="cluster",window="1d"}`).colored(Red, Step{0.4, Orange}, Step{0.7, Green}).top(1).tall(8).wide(4).empty("the cluster has no GPU"),
				sqlTable("Where the GPU time went", "Every GPU-hour that was bought in the dashboard's time, by what became of it. The lines add up to it exactly.",
					`SELECT step, what, gpu_us / 3.6e9 AS "GPU-hours", gpu_us / nullIf(bought_gpu_us, 0) AS part FROM `+
						withinView("goodput_within")+` WHERE gpu_us > 0 ORDER BY rank`).
					units(map[string]Unit{"GPU-hours": GPUHours, "part": Ratio}).wide(10).tall(8).empty("the cluster has no GPU"),
				stackPanel("Where the GPU time went, over a day", "The same by the day that ended at each moment.", Seconds,
					Query{Expr: `muster_kpi_gpu_ladder_seconds{cluster="$cluster",by="cluster",window="1d"}`, Legend: "{{class}}"}).wide(10).empty("the cluster has no GPU"),
			}},
			{Title: "Findings", Panels: []Panel{
				{
					Title:       "What wastes most, 7 days",
					Description: "Changes that somebody could make, by the GPU time each would have saved. `muster findings` and the console's page have the line that would fix it and the runs behind it.",
					Kind:        Table,
					Unit:        Seconds,
					Column:      "GPU time",
					Width:       24,
					MayBeEmpty:  "nothing was found",
					Queries:     []Query{{Expr: `topk(15, muster_finding_gpu_seconds{cluster="$cluster"})`}},
					Links:       []Link{{Board: People, Var: "user", Label: "user"}},
				},
			}},
			{Title: "The cluster, over a day", Panels: []Panel{
				linePanel("Given out", "CPU and GPU time given to jobs, by what the cluster had.", Ratio, fig("utilisation_ratio", "CPUs"), fig("gpu_allocation_ratio", "GPUs")).top(1),
				linePanel("Used of what was given out", "CPU efficiency and GPU occupancy of runs.", Ratio, fig("cpu_efficiency_ratio", "CPU"), fig("gpu_occupancy_ratio", "GPU occupancy"), fig("gpu_efficiency_ratio", "GPU efficiency (SM)")).top(1),
				linePanel("Wasted", "Memory never touched, by memory allocated; runs that failed, by those that failed or completed.", Ratio, fig("memory_waste_ratio", "memory"), fig("failure_ratio", "runs failed")).top(1),
				linePanel("GPU time idle and lost", "GPU time held without work, and of runs that failed, in the last day.", Seconds, fig("gpu_idle_seconds", "held but idle"), fig("lost_gpu_seconds", "lost to failures")),
				linePanel("Throughput", "Runs that started and ended, a second, over the last day.", PerSec, fig("throughput_jobs_per_second", "runs")),
				linePanel("Wait", "Exact quantiles of the runs that started in the last day.", Seconds, fig("wait_p50_seconds", "median"), fig("wait_p95_seconds", "p95"), fig("wait_p99_seconds", "p99")),
			}},
			{Title: "What waiting and failing cost, over a day", Panels: []Panel{
				linePanel("Waiting by running", "Bounded slowdown and expansion factor: how many times longer a job took than it ran. 1 is a cluster without a queue.", Count,
					fig("bounded_slowdown_ratio", "bounded slowdown"), fig("expansion_factor_ratio", "expansion factor")).wide(8),
				stackPanel("Failures by class", "Runs that failed by class of failure, by those that failed or completed. The classes add up to the failure rate.", Ratio,
					Query{Expr: `muster_kpi_failure_class_ratio{cluster="$cluster",by="cluster",window="1d"}`, Legend: "{{class}}"}).wide(8),
				stackPanel("GPU time lost, by class of failure", "GPU seconds of the runs that failed, by class. Node failures are the site's, the others mostly the users'.", Seconds,
					Query{Expr: `muster_kpi_lost_gpu_class_seconds{cluster="$cluster",by="cluster",window="1d"}`, Legend: "{{class}}"}).wide(8),
			}},
			{Title: "By partition, 7 days", Panels: []Panel{
				by("GPU occupancy", "Utilisation weighted by time held.", Ratio, "gpu_occupancy_ratio", "partition").colored(Red, Step{0.3, Orange}, Step{0.6, Green}).top(1),
				by("CPU efficiency", "CPU time used by CPU time allocated.", Ratio, "cpu_efficiency_ratio", "partition").colored(Red, Step{0.3, Orange}, Step{0.6, Green}).top(1),
				by("Failed runs", "By those that failed or completed.", Ratio, "failure_ratio", "partition").colored(Green, Step{0.1, Yellow}, Step{0.3, Red}).top(1),
			}},
			{Title: "By user, 7 days", Panels: []Panel{
				by("GPU time held but idle", "Who holds devices that do nothing.", Seconds, "gpu_idle_seconds", "user").linked(People, "user", "key").empty("nobody held a GPU without work"),
				barPanel("Memory wasted", "Memory allocated and never touched, times how long.", GiBHours,
					`topk(10, muster_kpi_memory_waste_byte_seconds{cluster="$cluster",by="user",window="7d"} / 2^30 / 3600)`, "{{key}}").wide(8).linked(People, "user", "key"),
				by("GPU time lost to failures", "GPU seconds of runs that failed.", Seconds, "lost_gpu_seconds", "user").linked(People, "user", "key").empty("no run with a GPU failed"),
			}},
			{Title: "In the dashboard's time (from the accounting store)", Panels: []Panel{
				sqlTable("Use against waste, by user", "Who to help first: GPU-hours against the part of them without work, CPU-hours against the part used. Runs that go on count up to now.",
					`SELECT user, account, runs, gpu_hours AS "GPU-hours", idle_s / nullIf(held_s, 0) AS "GPU idle", cpu_hours AS "CPU-hours", cpu_s / nullIf(cpu_held_s, 0) AS "CPU used", failed FROM `+
						useByUser(chosen)+
						` ORDER BY ifNull(idle_s, 0) DESC, cpu_hours DESC LIMIT 50`).
					units(map[string]Unit{"GPU-hours": GPUHours, "GPU idle": Ratio, "CPU-hours": CPUHours, "CPU used": Ratio}).linked(People, "user", "user").empty("nothing ran in the dashboard's time"),
				sqlTable("Runs that wasted most GPU time", "Runs by the GPU time they held without work in the dashboard's time, those that go on too.",
					`SELECT job_id AS job, name, user, partition, state, alloc_gpus AS GPUs, elapsed_us / 1e6 AS "run time", idle_s / 3600 AS "idle GPU-hours", util_s / nullIf(held_s, 0) AS "GPU used" FROM `+
						withinView("runs_within")+` AS r INNER JOIN (SELECT uid, restarts, sum(no_process_s + idle_s) AS idle_s, sum(util_s) AS util_s, sum(measured_s) AS held_s FROM `+
						withinView("gpu_runs_within")+` WHERE `+chosen+
						` GROUP BY uid, restarts HAVING idle_s > 0 ORDER BY idle_s DESC LIMIT 30) AS g USING (uid, restarts) ORDER BY idle_s DESC`).
					units(map[string]Unit{"run time": Seconds, "idle GPU-hours": GPUHours, "GPU used": Ratio}).wide(12).linked(Job, "job", "job").empty("no run held a GPU without work"),
				sqlTable("Time limits", "How much of the time asked for was used, by partition, of the runs that ended in the dashboard's time. Far below 1: backfill cannot plan, and everybody waits longer.",
					`SELECT partition, count() AS runs, avg(elapsed_us / limit_us) AS "limit used", quantileExact(0.5)(limit_us / 1e6) AS "median limit", quantileExact(0.5)(elapsed_us / 1e6) AS "median run time", countIf(state = 'TIMEOUT') AS "timed out", countIf(elapsed_us < 60e6) AS "under a minute" FROM `+
						withinView("runs_within")+
						` WHERE ended_in AND isNotNull(start) AND limit_us > 0 AND `+chosen+
						` GROUP BY partition ORDER BY runs DESC`).
					units(map[string]Unit{"limit used": Ratio, "median limit": Seconds, "median run time": Seconds}).wide(12).empty("no run with a time limit ended in the dashboard's time"),
			}},
		}}
}
