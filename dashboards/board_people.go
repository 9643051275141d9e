package dashboards

func people() Board {
	kpi := func(name, by string) string {
		return `muster_kpi_` + name + `{cluster="$cluster",by="` + by + `",key=~"$` + by + `",window="7d"}`
	}
	const in = ` WHERE $__timeFilter(end) AND cluster = ${cluster:singlequote} AND $__conditionalAll(account IN (${account:singlequote}), $account) AND $__conditionalAll(user IN (${user:singlequote}), $user) `
	return Board{UID: People, Title: "Muster / Users and accounts", From: "now-7d", Vars: []Var{clusterVar(), accountVar(), userVar()},
		Description: "What people and accounts use, how well, and what they waste. Figures of the last seven days, or of the dashboard's time where it says so.",
		Rows: []Row{
			{Title: "Accounts", Panels: []Panel{
				stack("Jobs running by account", "Running jobs by account.", Count, Query{Expr: `sum by (account) (muster_account_jobs{cluster="$cluster",account=~"$account",state="running"})`, Legend: "{{account}}"}).
					empty("nothing runs"),
				stack("Jobs pending by account", "Pending jobs by account. One account with all of them: its limit, or its share, is used up.", Count,
					Query{Expr: `sum by (account) (muster_account_jobs{cluster="$cluster",account=~"$account",state="pending"})`, Legend: "{{account}}"}).empty("nothing waits"),
				bars("Share of the GPUs, 7 days", "GPU time held, by the GPU time the cluster had. The accounts add up to the cluster's figure.", Ratio, kpi("gpu_allocation_ratio", "account"), "{{key}}").wide(8),
				bars("GPU occupancy, 7 days", "Utilisation of the devices an account held, weighted by time.", Ratio, kpi("gpu_occupancy_ratio", "account"), "{{key}}").
					colored(Red, Step{0.3, Orange}, Step{0.6, Green}).top(1).wide(8),
				bars("CPU efficiency, 7 days", "CPU time used by CPU time allocated.", Ratio, kpi("cpu_efficiency_ratio", "account"), "{{key}}").colored(Red, Step{0.3, Orange}, Step{0.6, Green}).top(1).wide(8),
			}},
			{Title: "Money", Panels: []Panel{
				bars("Budget spent", "Part of each account's budget that is spent, with all below it. The dashboard of limits says whether it will last.", Ratio, `muster_budget_spent_ratio{cluster="$cluster",account=~"$account"}`, "{{account}}").
					colored(Green, Step{0.8, Yellow}, Step{1, Red}).top(1).wide(8).linked(Limits, "account", "account").empty("no budget is set (cost.budgets in muster.yaml)"),
				bars("Cost by account, 7 days", "What was allocated times the prices of the day, in the site's currency.", Count, kpi("cost", "account"), "{{key}}").wide(8).empty("no prices are set (cost in muster.yaml)"),
				bars("Cost by user, 7 days", "The same by user: the longest bars first.", Count, `topk(15, `+kpi("cost", "user")+`)`, "{{key}}").wide(8).linked(People, "user", "key").empty("no prices are set (cost in muster.yaml)"),
			}},
			{Title: "Users", Panels: []Panel{
				bars("GPU time held but idle, 7 days", "GPU seconds in which a device was held without work on it. The first names are those to talk to.", Seconds, `topk(15, `+kpi("gpu_idle_seconds", "user")+`)`, "{{key}}").
					colored(Green, Step{36000, Orange}, Step{360000, Red}).linked(People, "user", "key").wide(8),
				bars("Memory wasted, 7 days", "Memory allocated and never touched, by all that was allocated.", Ratio, `topk(15, `+kpi("memory_waste_ratio", "user")+`)`, "{{key}}").
					colored(Green, Step{0.5, Orange}, Step{0.8, Red}).top(1).linked(People, "user", "key").wide(8),
				bars("Failed runs, 7 days", "Runs that failed, by those that failed or completed.", Ratio, `topk(15, `+kpi("failure_ratio", "user")+`)`, "{{key}}").
					colored(Green, Step{0.1, Yellow}, Step{0.4, Red}).top(1).linked(People, "user", "key").wide(8),
				bars("GPU time lost to failures, 7 days", "GPU seconds of the runs that failed.", Seconds, `topk(15, `+kpi("lost_gpu_seconds", "user")+`)`, "{{key}}").linked(People, "user", "key"),
				bars("Wait P95, 7 days", "Exact, from the accounting store.", Seconds, `topk(15, `+kpi("wait_p95_seconds", "user")+`)`, "{{key}}").linked(People, "user", "key"),
			}},
			{Title: "In the dashboard's time (from the accounting store)", Panels: []Panel{
				sqlTable("Users by GPU-hours", "Rank, what was held, how well it was used, and what was wasted, of runs that ended in the dashboard's time.",
					`SELECT row_number() OVER (ORDER BY sum(alloc_gpus * elapsed_us) DESC, sum(alloc_cpus * elapsed_us) DESC, user) AS rank, user, account, toInt64(sum(count)) AS runs, round(sum(alloc_gpus * elapsed_us) / 3.6e9, 3) AS gpu_hours, round(sum(alloc_cpus * elapsed_us) / 3.6e9, 3) AS cpu_hours, sum(gpu_util_us) / nullIf(sum(gpu_measured_us), 0) AS gpu_used, sumIf(user_cpu_us + system_cpu_us, measured) / nullIf(sumIf(alloc_cpus * elapsed_us, measured), 0) AS cpu_used, round(sum(gpu_no_process_us + gpu_idle_us) / 3.6e9, 3) AS idle_gpu_hours FROM jobs`+in+`GROUP BY user, account ORDER BY rank LIMIT 50`).
					units(map[string]Unit{"gpu_hours": GPUHours, "cpu_hours": CPUHours, "gpu_used": Ratio, "cpu_used": Ratio, "idle_gpu_hours": GPUHours}).linked(People, "user", "user"),
				sqlTable("Jobs", "The last runs, with what they used. Click on an id.",
					`SELECT job_id AS job, name, user, account, partition, state, end, elapsed_us / 1e6 AS elapsed, alloc_cpus AS cpus, alloc_gpus AS gpus, if(measured, (user_cpu_us + system_cpu_us) / nullIf(alloc_cpus * elapsed_us, 0), NULL) AS cpu_used, gpu_util_us / nullIf(gpu_measured_us, 0) AS gpu_used, energy_mj / 1000 AS energy FROM jobs`+in+`ORDER BY end DESC LIMIT 100`).
					units(map[string]Unit{"end": When, "elapsed": Seconds, "cpu_used": Ratio, "gpu_used": Ratio, "energy": Joules}).linked(Job, "job", "job"),
				sqlSeries("GPU-hours held", "GPU-hours of the runs, by account, at the instant they ended.", GPUHours,
					`SELECT $__timeInterval(end) AS time, account, sum(alloc_gpus * elapsed_us) / 3.6e9 AS gpu_hours FROM jobs`+in+`GROUP BY time, account ORDER BY time`),
				sqlSeries("Runs ended", "Runs by final state.", Count, `SELECT $__timeInterval(end) AS time, toString(state) AS state, toInt64(sum(count)) AS runs FROM jobs`+in+`GROUP BY time, state ORDER BY time`),
			}},
		}}
}
