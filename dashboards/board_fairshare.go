package dashboards

// shares are the accounts' shares of their level of the tree, now.
const shares = `SELECT account, argMax(shares, seq) AS shares, argMax(removed, seq) AS removed FROM associations WHERE cluster = ${cluster:singlequote} AND user = '' AND account != 'root' GROUP BY account HAVING NOT removed`

func fairshareBoard() Board {
	used := `SELECT account, sum(cpu_held_us) / 3.6e9 AS cpu_hours, sum(gpu_held_us) / 3.6e9 AS gpu_hours FROM ` +
		withinView("runs_within") + ` GROUP BY account`
	return Board{UID: FairShare, Title: "Muster / Fair share and drift", From: "now-7d", Vars: []Var{clusterVar(), accountVar()},
		Description: "What accounts were promised and what they got. Drift is the difference: above 0 more than its share, below 0 less.",
		Rows: []Row{
			{Title: "Use", Panels: []Panel{
				stackPanel("CPUs in use by account", "CPUs of running jobs by account.", Count, Query{Expr: `sum by (account) (slurm_account_cpu_count{cluster="$cluster",account=~"$account"})`, Legend: "{{account}}"}).empty("nothing runs"),
				linePanel("Share of the CPUs, a day", "CPU time held in the last day by what the cluster had.", Ratio, Query{Expr: `muster_kpi_utilisation_ratio{cluster="$cluster",by="account",key=~"$account",window="1d"}`, Legend: "{{key}}"}),
				linePanel("Share of the GPUs, a day", "GPU time held in the last day by what the cluster had.", Ratio, Query{Expr: `muster_kpi_gpu_allocation_ratio{cluster="$cluster",by="account",key=~"$account",window="1d"}`, Legend: "{{key}}"}),
				linePanel("Part of all use, a day", "An account's CPU time by all accounts' CPU time, in the last day: what to hold against its part of the shares.", Ratio,
					Query{Expr: `muster_kpi_utilisation_ratio{cluster="$cluster",by="account",key=~"$account",window="1d"} / on (cluster) group_left () sum by (cluster) (muster_kpi_utilisation_ratio{cluster="$cluster",by="account",window="1d"})`, Legend: "{{key}}"}).top(1),
			}},
			{Title: "Shares", Panels: []Panel{
				linePanel("Promised", "Part of its siblings' shares that each account has: what sshare calls NormShares.", Ratio,
					Query{Expr: `muster_account_shares_ratio{cluster="$cluster",account=~"$account"}`, Legend: "{{account}}"}).top(1).wide(8).empty("the cluster has no account but root"),
				linePanel("Decayed use", "Part of its siblings' decayed use that is each account's: what the priority of its jobs is made from. Above what it is promised, its jobs come later.", Ratio,
					Query{Expr: `muster_account_usage_ratio{cluster="$cluster",account=~"$account"}`, Legend: "{{account}}"}).top(1).wide(8).empty("nobody has used anything yet"),
				linePanel("Drift now, by account", "Decayed use less the promised part. Above 0 it has had more than its share, below 0 less.", Ratio,
					Query{Expr: `muster_account_usage_ratio{cluster="$cluster",account=~"$account"} - muster_account_shares_ratio{cluster="$cluster",account=~"$account"}`, Legend: "{{account}}"}).wide(8).
					empty("nobody has used anything yet"),
			}},
			{Title: "Drift of the cluster", Panels: []Panel{
				figurePanel("Drift, last day", "Part of the use that went to others than those it was promised to, among those that had something to run.", Ratio,
					`muster_kpi_fairshare_drift_ratio{cluster="$cluster",by="cluster",window="1d"}`).colored(Green, Step{0.15, Yellow}, Step{0.3, Red}).top(1).tall(8).empty("nobody ran anything in the window"),
				figurePanel("Drift, last 7 days", "The same over seven days: what of it lasts.", Ratio,
					`muster_kpi_fairshare_drift_ratio{cluster="$cluster",by="cluster",window="7d"}`).colored(Green, Step{0.15, Yellow}, Step{0.3, Red}).top(1).tall(8).empty("nobody ran anything in the window"),
				linePanel("Drift over time", "Above 0.3 for long: shares do not bind. Look at the weights of the priorities, and at limits that keep an account from its share.", Ratio,
					Query{Expr: `muster_kpi_fairshare_drift_ratio{cluster="$cluster",by="cluster",window=~"1d|7d|30d"}`, Legend: "{{window}}"}).colored(Green, Step{0.15, Yellow}, Step{0.3, Red}).top(1).wide(16).
					empty("nobody ran anything in the window"),
			}},
			{Title: "Shares and drift (from the accounting store)", Panels: []Panel{
				sqlTable("Drift", "Part of the shares, part of the CPU time, and their difference, of what runs held in the dashboard's time, those that go on up to now. The lowest drift is who should be served next; a high one that stays says that shares do not bind.",
					`SELECT s.account AS account, s.shares AS shares, s.shares / sum(s.shares) OVER () AS promised, ifNull(u.cpu_hours, 0) AS "CPU-hours", ifNull(u.gpu_hours, 0) AS "GPU-hours", ifNull(u.cpu_hours, 0) / nullIf(sum(ifNull(u.cpu_hours, 0)) OVER (), 0) AS got, got - promised AS drift FROM (`+
						shares+`) AS s LEFT JOIN (`+used+
						`) AS u ON s.account = u.account ORDER BY drift`).
					units(map[string]Unit{"promised": Ratio, "got": Ratio, "drift": Ratio, "CPU-hours": CPUHours, "GPU-hours": GPUHours}).linked(People, "account", "account").
					empty("the cluster has no account but root"),
				sqlSeries("CPU-hours by account", "CPU-hours that runs held in each stretch of time, those that go on up to now.", CPUHours,
					heldSeries("alloc_cpus * active", "account", "cpu_hours", `$__conditionalAll(account IN (${account:singlequote}), $account)`)).wide(24),
			}},
		}}
}
