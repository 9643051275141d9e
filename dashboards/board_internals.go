package dashboards

func internalsBoard() Board {
	const of = `{cluster="$cluster"}`
	rate := func(m, legend string) Query {
		return Query{Expr: `rate(` + m + of + `[$__rate_interval])`, Legend: legend}
	}
	is := func(m, legend string) Query { return Query{Expr: m + of, Legend: legend} }
	return Board{UID: Internals, Title: "Muster / Scheduler and controller", From: "now-1h", Vars: []Var{clusterVar()},
		Description: "Is the controller quick, and if not, what takes its time?",
		Rows: []Row{
			{Title: "Scheduler", Panels: []Panel{
				figurePanel("Last pass", "Time the last pass over the queue took.", Seconds, `muster_scheduler_pass_last_seconds`+
					of).colored(Green, Step{1, Yellow}, Step{10, Red}),
				figurePanel("Longest pass", "Since the controller started.", Seconds, `muster_scheduler_pass_max_seconds`+
					of).colored(Green, Step{5, Yellow}, Step{30, Red}),
				figurePanel("Passes a second", "How often the queue is gone through.", PerSec, `rate(muster_scheduler_passes_total`+
					of+`[$__rate_interval])`),
				figurePanel("Jobs tried in the last pass", "Depth of the last pass.", Count, `muster_scheduler_pass_depth`+
					of),
				figurePanel("Pending records", "Records in the queue at the last pass; an array is one until its tasks start.", Count, `muster_scheduler_queue_records`+
					of),
				figurePanel("Jobs with a predicted start", "Jobs in the plan. The rest lies beyond the horizon of backfill.", Count, `muster_scheduler_planned_jobs`+
					of),
				linePanel("Time of a pass", "Mean over the interval, the last one, and the longest since the controller started.", Seconds,
					Query{Expr: `rate(muster_scheduler_pass_seconds_total` + of +
						`[$__rate_interval]) / (rate(muster_scheduler_passes_total` + of +
						`[$__rate_interval]) > 0)`, Legend: "mean"},
					is("muster_scheduler_pass_last_seconds", "last"), is("muster_scheduler_pass_max_seconds", "longest")),
				linePanel("Time spent in passes", "Part of the time in which a pass was under way. Near 1: the scheduler cannot keep up.", Ratio, rate("muster_scheduler_pass_seconds_total", "in passes")).top(1),
				linePanel("Depth and queue", "Jobs tried in a pass, beside those in the queue.", Count, is("muster_scheduler_pass_depth", "tried"), is("muster_scheduler_queue_records", "in the queue"), is("muster_scheduler_planned_jobs", "with a predicted start")),
				linePanel("Starts: by backfill, dropped", "Starts out of order, and starts that a pass proposed and the writer dropped because the state had moved on. Many drops: passes are long beside the rate of change.", PerSec,
					rate("muster_jobs_backfilled_total", "backfilled"), rate("muster_scheduler_dropped_proposals_total", "dropped")),
			}},
			{Title: "Writer and ledger", Panels: []Panel{
				linePanel("Commands", "Commands decided and refused by the one writer. Refusals are users' mistakes, or a script that tries again and again.", PerSec,
					rate("muster_controller_commands_total", "decided"), rate("muster_controller_refusals_total", "refused"), rate("muster_controller_stale_reports_total", "late reports")),
				linePanel("Commands waiting", "Commands that wait for the writer. More than a few for long: it is overloaded.", Count, is("muster_controller_command_queue", "waiting")).colored(Green, Step{100, Yellow}, Step{1000, Red}),
				linePanel("Time to durability", "From a decision to its being on disk: the last and the longest. What every submission waits for.", Seconds,
					is("muster_ledger_append_last_seconds", "last"), is("muster_ledger_append_max_seconds", "longest")).colored(Green, Step{0.05, Yellow}, Step{1, Red}),
				linePanel("Ledger's disk", "Space left on the ledger's disk, beside the reserve below which submissions are refused, and what will be left in two days if it fills as in the last six hours.", Bytes,
					is("muster_ledger_disk_free_bytes", "free"), is("muster_ledger_disk_reserve_bytes", "reserve"),
					Query{Expr: `clamp_min(predict_linear(muster_ledger_disk_free_bytes` + of + `[6h], 172800), 0)`, Legend: "in two days"}),
				linePanel("Time of a disk sync", "Mean time of a group commit: the disk's part of every submission.", Seconds,
					Query{Expr: `rate(muster_raft_sync_seconds_total` + of +
						`[$__rate_interval]) / (rate(muster_raft_syncs_total` + of +
						`[$__rate_interval]) > 0)`, Legend: "mean"}).
					colored(Green, Step{0.02, Yellow}, Step{0.25, Red}).empty("nothing was written in the interval"),
				linePanel("Answers, 95th percentile", "Time the controller took for a call, by method. Not those that wait by design: agents' GPU samples are acknowledged with the store's next insert.", Seconds,
					Query{Expr: `histogram_quantile(0.95, sum by (le, method) (rate(muster_api_request_seconds_bucket{cluster="$cluster",method!="Accounting/PutGpuSamples"}[$__rate_interval])))`, Legend: "{{method}}"}).empty("nobody asked in the interval"),
				linePanel("Calls and refusals", "Calls a second by method, and those that were refused or failed.", PerSec,
					Query{Expr: `sum by (method) (rate(muster_api_request_seconds_count` + of +
						`[$__rate_interval]))`, Legend: "{{method}}"},
					Query{Expr: `sum(rate(muster_api_errors_total` + of + `[$__rate_interval]))`, Legend: "refused or failed"}).empty("nobody asked in the interval"),
				linePanel("Events and batches", "Events of the ledger and the batches they went to disk in. Many events in a batch: one write serves many.", PerSec,
					rate("muster_ledger_events_total", "events"), rate("muster_ledger_batches_total", "batches")),
				figurePanel("Failed checks of the state", "Sampled checks of the state's invariants that failed. Above 0 is a bug: keep the ledger and report it.", Count, `muster_controller_invariant_failures_total`+
					of).colored(Green, Step{1, Red}).wide(6),
				figurePanel("Agents connected", "Agents with a stream to the controller.", Count, `muster_agents_connected`+
					of).wide(6).linked(Pipeline, "", ""),
				{Title: "Release", Kind: Table, Unit: Count, Column: Hidden, Width: 12, Height: 4, Description: "The release that serves this.", Queries: []Query{is("muster_build_info", "")}},
			}},
			{Title: "Process", Panels: []Panel{
				linePanel("CPU", "CPUs that the controller uses.", Count, Query{Expr: `rate(process_cpu_seconds_total{job="slurm"}[$__rate_interval])`, Legend: "{{instance}}"}).wide(8),
				linePanel("Memory", "Resident memory of the controller.", Bytes, Query{Expr: `process_resident_memory_bytes{job="slurm"}`, Legend: "{{instance}}"}).wide(8),
				linePanel("Open files", "Open file descriptors, by the most it may have.", Ratio, Query{Expr: `process_open_fds{job="slurm"} / process_max_fds{job="slurm"}`, Legend: "{{instance}}"}).wide(8).
					colored(Green, Step{0.7, Orange}, Step{0.9, Red}),
			}},
			{Title: "History (from the accounting store)", Panels: []Panel{
				sqlSeries("Events by kind", "What the ledger recorded.", Count,
					`SELECT $__timeInterval(at) AS time, kind, count() AS events FROM events WHERE $__timeFilter(at) AND cluster = ${cluster:singlequote} GROUP BY time, kind ORDER BY time`),
				sqlTable("Who asked for what", "Commands behind the events, by author: who keeps the controller busy.",
					`SELECT actor, command, count() AS events, max(at) AS last FROM events WHERE $__timeFilter(at) AND cluster = ${cluster:singlequote} AND actor != '' GROUP BY actor, command ORDER BY events DESC LIMIT 30`).
					wide(12).units(map[string]Unit{"last": When}),
			}},
		}}
}

func pipelineBoard() Board {
	const of = `{cluster="$cluster"}`
	return Board{UID: Pipeline, Title: "Muster / Pipeline health", From: "now-1h", Vars: []Var{clusterVar()},
		Description: "Can the other dashboards be believed? From the nodes to the metrics, and from the ledger to the accounting store.",
		Rows: []Row{
			{Title: "Now", Panels: []Panel{
				figurePanel("Targets up", "Targets of Prometheus that answer, by all.", Ratio, `sum(up{job=~"slurm|dcgm"}) / count(up{job=~"slurm|dcgm"})`).colored(Red, Step{0.9, Orange}, Step{1, Green}),
				figurePanel("Agents connected", "Agents with a stream to the controller, by the nodes there are.", Ratio, `sum(muster_agents_connected`+
					of+`) / sum(muster_nodes`+of+`)`).colored(Red, Step{0.9, Orange}, Step{1, Green}),
				figurePanel("Accounting store", "Whether it takes rows.", Count, `muster_accounting_up`+
					of).upDown().colored(Red, Step{1, Green}),
				figurePanel("Accounting behind", "Age of the oldest event that is not stored yet.", Seconds, `muster_accounting_lag_seconds`+
					of).colored(Green, Step{30, Yellow}, Step{300, Red}),
				figurePanel("Events not stored yet", "The ledger keeps them until the store has them: nothing is lost.", Count, `muster_accounting_lag_events`+
					of).colored(Green, Step{10000, Yellow}, Step{1000000, Red}),
				figurePanel("Oldest GPU reading", "Age of the oldest reading among the nodes.", Seconds, `time() - min(muster_agent_last_collection_time_seconds`+
					of+`)`).colored(Green, Step{60, Yellow}, Step{300, Red}),
			}},
			{Title: "Metrics", Panels: []Panel{
				{Title: "Targets", Kind: States, Unit: Count, UpDown: true, Width: 12, Good: Red, Steps: []Step{{1, Green}}, Description: "Whether each target answers.",
					Queries: []Query{{Expr: `up{job=~"slurm|dcgm"}`, Legend: "{{job}} {{instance}}"}}},
				linePanel("Time of a scrape", "As Prometheus saw it.", Seconds, Query{Expr: `max by (job) (scrape_duration_seconds{job=~"slurm|dcgm"})`, Legend: "{{job}}"}).colored(Green, Step{1, Yellow}, Step{5, Red}),
				linePanel("Series of a scrape", "Samples each scrape brought.", Count, Query{Expr: `sum by (job) (scrape_samples_scraped{job=~"slurm|dcgm"})`, Legend: "{{job}}"}),
				linePanel("Jobs without series of their own", "Jobs on a node beyond the number that gets series: their figures are in the store, not here.", Count, Query{Expr: `sum(muster_agent_jobs_without_series` +
					of + `)`, Legend: "jobs"}),
			}},
			{Title: "Agents", Panels: []Panel{
				linePanel("Collections that failed", "By what was to be collected.", PerSec, Query{Expr: `sum by (source) (rate(muster_agent_collection_errors_total` +
					of + `[$__rate_interval]))`, Legend: "{{source}}"}),
				linePanel("Time of a collection", "95th percentile over the nodes, by what was collected.", Seconds,
					Query{Expr: `histogram_quantile(0.95, sum by (le, source) (rate(muster_agent_collection_duration_seconds_bucket` +
						of + `[$__rate_interval])))`, Legend: "{{source}}"}),
				linePanel("Reports", "Reports to the controller: acknowledged and failed (they are tried again).", PerSec,
					Query{Expr: `sum(rate(muster_agent_reports_total` + of +
						`[$__rate_interval]))`, Legend: "acknowledged"},
					Query{Expr: `sum(rate(muster_agent_report_errors_total` + of +
						`[$__rate_interval]))`, Legend: "failed"}),
				linePanel("Reports waiting", "Reports that wait to be acknowledged, by node.", Count, Query{Expr: `muster_agent_reports_pending` +
					of, Legend: "{{node}}"}),
				{Title: "Process that owns the jobs", Kind: States, Unit: Count, UpDown: true, Width: 12, Good: Red, Steps: []Step{{1, Green}}, Description: "Whether the shepherd answers. Jobs go on without it, but nothing new starts.",
					Queries: []Query{{Expr: `muster_agent_shepherd_up` + of, Legend: "{{node}}"}}},
				{Title: "Agents' releases and GPU sources", Kind: Table, Unit: Count, Column: Hidden, Width: 12, Description: "What runs where, and where GPU readings come from.",
					Queries: []Query{{Expr: `muster_agent_build_info` + of +
						` * on (cluster, node) group_left (provider) muster_agent_gpu_provider_info` +
						of}}, Links: []Link{{Board: Node, Var: "node", Label: "node"}}},
			}},
			{Title: "Accounting", Panels: []Panel{
				linePanel("Accounting behind", "Age of the oldest event that is not stored yet. Rises by a second a second while the store is away; falls quickly once it is back.", Seconds, Query{Expr: `muster_accounting_lag_seconds` +
					of, Legend: "behind"}).
					colored(Green, Step{30, Yellow}, Step{300, Red}),
				sqlTable("Where the writer is", "The last state of each phase of the ingest.",
					`SELECT phase, max(last) AS seq, max(written) AS written FROM ingest GROUP BY phase ORDER BY phase`).wide(12).units(map[string]Unit{"written": When}),
			}},
		}}
}

func alertsBoard() Board {
	const firing = `alertstate="firing",cluster=~"$cluster|"`
	return Board{UID: Alerts, Title: "Muster / Alerts", From: "now-24h", Vars: []Var{clusterVar()},
		Description: "What fires, since when, and what did. Each alert has a runbook that says what to type.",
		Rows: []Row{
			{Title: "Now", Panels: []Panel{
				figurePanel(
					"Critical",
					"Critical alerts that fire: somebody is being paged.",
					Count,
					`count(ALERTS{`+
						firing+`,severity="critical"})`,
				).colored(Green, Step{1, Red}).
					wide(6).
					empty("none fires"),
				figurePanel("Warnings", "Warnings that fire.", Count, `count(ALERTS{`+firing+
					`,severity="warning"})`).colored(Green, Step{1, Orange}).wide(6).empty("none fires"),
				figurePanel(
					"Notices",
					"Notices that fire, to users among others.",
					Count,
					`count(ALERTS{`+
						firing+`,severity="info"})`,
				).wide(6).
					empty("none fires"),
				figurePanel(
					"About to fire",
					"Alerts whose condition holds, not yet for long enough.",
					Count,
					`count(ALERTS{alertstate="pending",cluster=~"$cluster|"})`,
				).colored(Green, Step{1, Yellow}).
					wide(6).
					empty("none is about to fire"),
				{
					Title:       "Firing",
					Kind:        Table,
					Unit:        Seconds,
					Column:      "for",
					Description: "What fires, with all its labels, and for how long its condition has held.",
					Queries: []Query{
						{
							Expr: `time() - ALERTS_FOR_STATE{cluster=~"$cluster|"} and ignoring(alertstate) ALERTS{` +
								firing + `}`,
						},
					},
					Links: []Link{
						{Board: Node, Var: "node", Label: "node"},
						{Board: Job, Var: "job", Label: "slurm_job_id"},
					},
					MayBeEmpty: "none fires",
				},
			}},
			{Title: "Over time", Panels: []Panel{
				{
					Title:       "What fired when",
					Kind:        States,
					Unit:        Count,
					Height:      10,
					Good:        Blue,
					Steps:       []Step{{1, Red}},
					Description: "A line for each alert that fired in the dashboard's time.",
					Queries: []Query{
						{
							Expr:   `max by (alertname) (ALERTS{` + firing + `})`,
							Legend: "{{alertname}}",
						},
					},
					MayBeEmpty: "none fired",
				},
				barPanel(
					"Time spent firing",
					"For how long alerts fired in the dashboard's time, those of several subjects added up: the noisiest first. One that leads for weeks is wrong, or nobody acts on it.",
					Seconds,
					`topk(15, 15 * sum by (alertname) (count_over_time(ALERTS{`+firing+
						`}[$__range:15s])))`,
					"{{alertname}}",
				).wide(24).
					empty("none fired"),
			}},
		}}
}
