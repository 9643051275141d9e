package dashboards

func peopleBoard() Board {
	kpi := func(name, by string) string {
		return `muster_kpi_` + name + `{cluster="$cluster",by="` + by + `",key=~"$` + by +
			`",window="7d"}`
	}
	const chosen = `$__conditionalAll(account IN (${account:singlequote}), $account) AND $__conditionalAll(user IN (${user:singlequote}), $user)`
	lastRuns := `FROM ` + withinView("runs_within") + ` WHERE isNotNull(start) AND ` + chosen +
		` ORDER BY isNull(end) DESC, end DESC, uid DESC LIMIT 100`
	last := ` WHERE uid IN (SELECT uid ` + lastRuns + `)`
	return Board{UID: People, Title: "Muster / Users and accounts", From: "now-7d", Vars: []Var{clusterVar(), accountVar(), userVar()},
		Description: "What people and accounts use, how well, and what they waste. Figures of the last seven days, or of the dashboard's time where it says so.",
		Rows: []Row{
			{Title: "Accounts", Panels: []Panel{
				stackPanel("Jobs running by account", "Running jobs by account.", Count, Query{Expr: `sum by (account) (muster_account_jobs{cluster="$cluster",account=~"$account",state="running"})`, Legend: "{{account}}"}).
					empty("nothing runs"),
				stackPanel("Jobs pending by account", "Pending jobs by account. One account with all of them: its limit, or its share, is used up.", Count,
					Query{Expr: `sum by (account) (muster_account_jobs{cluster="$cluster",account=~"$account",state="pending"})`, Legend: "{{account}}"}).empty("nothing waits"),
				barPanel("Share of the GPUs, 7 days", "GPU time held, by the GPU time the cluster had. The accounts add up to the cluster's figure.", Ratio, kpi("gpu_allocation_ratio", "account"), "{{key}}").wide(8),
				barPanel("GPU occupancy, 7 days", "Utilisation of the devices an account held, weighted by time.", Ratio, kpi("gpu_occupancy_ratio", "account"), "{{key}}").
					colored(Red, Step{0.3, Orange}, Step{0.6, Green}).top(1).wide(8),
				barPanel("CPU efficiency, 7 days", "CPU time used by CPU time allocated.", Ratio, kpi("cpu_efficiency_ratio", "account"), "{{key}}").colored(Red, Step{0.3, Orange}, Step{0.6, Green}).top(1).wide(8),
			}},
			{Title: "Money", Panels: []Panel{
				barPanel("Budget spent", "Part of each account's budget that is spent, with all below it. The dashboard of limits says whether it will last.", Ratio, `muster_budget_spent_ratio{cluster="$cluster",account=~"$account"}`, "{{account}}").
					colored(Green, Step{0.8, Yellow}, Step{1, Red}).top(1).wide(8).linked(Limits, "account", "account").empty("no budget is set (cost.budgets in muster.yaml)"),
				barPanel("Cost by account, 7 days", "What was allocated times the prices of the day, in the site's currency.", Count, kpi("cost", "account")+
					" > 0", "{{key}}").wide(8).empty("no prices are set (cost in muster.yaml)"),
				barPanel("Cost by user, 7 days", "The same by user: the longest bars first.", Count, `topk(15, `+
					kpi("cost", "user")+` > 0)`, "{{key}}").wide(8).linked(People, "user", "key").empty("no prices are set (cost in muster.yaml)"),
			}},
			{Title: "Users", Panels: []Panel{
				barPanel("GPU time held but idle, 7 days", "GPU seconds in which a device was held without work on it. The first names are those to talk to.", Seconds, `topk(15, `+
					kpi("gpu_idle_seconds", "user")+` > 0)`, "{{key}}").
					colored(Green, Step{36000, Orange}, Step{360000, Red}).linked(People, "user", "key").wide(8).empty("nobody held a GPU without work"),
				barPanel("Memory wasted, 7 days", "Memory allocated and never touched, by all that was allocated.", Ratio, `topk(15, `+
					kpi("memory_waste_ratio", "user")+` > 0)`, "{{key}}").
					colored(Green, Step{0.5, Orange}, Step{0.8, Red}).top(1).linked(People, "user", "key").wide(8),
				barPanel("Failed runs, 7 days", "Runs that failed, by those that failed or completed.", Ratio, `topk(15, `+
					kpi("failure_ratio", "user")+` > 0)`, "{{key}}").
					colored(Green, Step{0.1, Yellow}, Step{0.4, Red}).top(1).linked(People, "user", "key").wide(8),
				barPanel("GPU time lost to failures, 7 days", "GPU seconds of the runs that failed.", Seconds, `topk(15, `+
					kpi("lost_gpu_seconds", "user")+` > 0)`, "{{key}}").linked(People, "user", "key").empty("no run with a GPU failed"),
				barPanel("Wait P95, 7 days", "Exact, from the accounting store.", Seconds, `topk(15, `+
					kpi("wait_p95_seconds", "user")+`)`, "{{key}}").linked(People, "user", "key"),
			}},
			{Title: "In the dashboard's time (from the accounting store)", Panels: []Panel{
				sqlTable("Users by GPU-hours", "Rank, what was held, how well it was used, and what was wasted in the dashboard's time; runs that go on count up to now.",
					`SELECT row_number() OVER (ORDER BY gpu_hours DESC, cpu_hours DESC, user) AS rank, user, account, runs, round(gpu_hours, 3) AS "GPU-hours", round(cpu_hours, 3) AS "CPU-hours", util_s / nullIf(held_s, 0) AS "GPU used", cpu_s / nullIf(cpu_held_s, 0) AS "CPU used", round(idle_s / 3600, 3) AS "idle GPU-hours" FROM `+
						useByUser(chosen)+` ORDER BY rank LIMIT 50`).
					units(map[string]Unit{"GPU-hours": GPUHours, "CPU-hours": CPUHours, "GPU used": Ratio, "CPU used": Ratio, "idle GPU-hours": GPUHours}).linked(People, "user", "user"),
				sqlTable("Jobs", "The runs that go on, then the last that ended, with what they used. Click on an id.",
					`SELECT job_id AS job, name, user, account, partition, state, end, elapsed_us / 1e6 AS "run time", alloc_cpus AS CPUs, alloc_gpus AS GPUs, cpu_s / nullIf(cpu_held_s, 0) AS "CPU used", util_s / nullIf(held_s, 0) AS "GPU used", energy_j AS "GPU energy" FROM (SELECT * `+lastRuns+`) AS r LEFT JOIN (SELECT uid, restarts, sum(cpu_s) AS cpu_s, sum(cpu_held_s) AS cpu_held_s FROM `+
						withinView("nodes_within")+last+
						` GROUP BY uid, restarts) AS n USING (uid, restarts) LEFT JOIN (SELECT uid, restarts, sum(util_s) AS util_s, sum(held_s) AS held_s, sum(energy_j) AS energy_j FROM `+
						withinView("gpus_within")+last+
						` GROUP BY uid, restarts) AS g USING (uid, restarts) ORDER BY isNull(end) DESC, end DESC, uid DESC`).
					units(map[string]Unit{"end": When, "run time": Seconds, "CPU used": Ratio, "GPU used": Ratio, "GPU energy": Joules}).linked(Job, "job", "job"),
				sqlSeries("GPU-hours held", "GPU-hours that runs held in each stretch of time by account, those that go on up to now.", GPUHours, heldSeries("alloc_gpus", "account", "gpu_hours", chosen)),
				sqlSeries("Runs ended", "Runs by final state.", Count, `SELECT $__timeInterval(assumeNotNull(end)) AS time, toString(state) AS state, toInt64(sum(count)) AS runs FROM `+
					withinView("runs_within")+` WHERE ended_in AND `+chosen+
					` GROUP BY time, state ORDER BY time`),
			}},
		}}
}
