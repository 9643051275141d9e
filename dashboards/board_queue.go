package dashboards

const queueFilter = `cluster="$cluster",partition=~"$partition"`

func queueBoard() Board {
	jobsIn := `FROM ` + withinView("runs_within") +
		` WHERE started_in AND $__conditionalAll(partition IN (${partition:singlequote}), $partition)`
	wait := func(q string) Query {
		return Query{Expr: `histogram_quantile(` + q +
			`, sum by (le) (increase(muster_job_wait_seconds_bucket{` + queueFilter +
			`}[1h])))`, Legend: "p" + q[2:]}
	}
	return Board{UID: Queue, Title: "Muster / Queue and wait", Vars: []Var{clusterVar(), partitionVar()},
		Description: "Who waits, for how long, and for what.",
		Rows: []Row{
			{Title: "The queue", Panels: []Panel{
				stackPanel("Pending by reason", "Pending jobs by the reason they wait for. Resources and Priority mean the cluster is full; anything else is a limit, a hold or a dependency: `muster why JOB` explains one.", Count,
					Query{Expr: `sum by (reason) (muster_jobs_pending{` + queueFilter + `})`, Legend: "{{reason}}"}).empty("nothing waits"),
				stackPanel("Pending by partition", "Pending jobs by partition.", Count,
					Query{Expr: `sum by (partition) (muster_jobs{` + queueFilter +
						`,state="pending"})`, Legend: "{{partition}}"}),
				linePanel("GPUs wanted and idle", "GPUs that pending jobs ask for, beside those that are idle. Idle ones while jobs wait for GPUs mean fragmentation or limits: see the largest piece below.", Count,
					Query{Expr: `sum by (partition) (muster_partition_pending_gpus{` +
						queueFilter + `})`, Legend: "{{partition}} wanted"},
					Query{Expr: `sum by (partition) (muster_partition_gpus{` + queueFilter +
						`,state="idle"})`, Legend: "{{partition}} idle"}),
				linePanel("CPUs wanted and idle", "CPUs that pending jobs ask for, beside those that are idle.", Count,
					Query{Expr: `sum by (partition) (muster_partition_pending_cpus{` +
						queueFilter + `})`, Legend: "{{partition}} wanted"},
					Query{Expr: `sum by (partition) (muster_partition_cpus{` + queueFilter +
						`,state="idle"})`, Legend: "{{partition}} idle"}),
				linePanel("Idle GPUs: all and in one piece", "All idle GPUs of a partition, and those that its emptiest node could give one job. Far apart means fragmentation: large jobs wait although enough is idle.", Count,
					Query{Expr: `sum by (partition) (muster_partition_gpus{` + queueFilter +
						`,state="idle"})`, Legend: "{{partition}} idle"},
					Query{Expr: `muster_partition_largest_idle_gpus{` + queueFilter + `}`, Legend: "{{partition}} on one node"}),
				linePanel("Oldest pending job", "How long the job that has waited longest in each partition could have started. Far above the P95: one job starves.", Seconds,
					Query{Expr: `muster_partition_oldest_pending_seconds{` + queueFilter + `}`, Legend: "{{partition}}"}),
				linePanel("Jobs held, jobs past their promise", "Pending jobs that somebody holds, which start when they are released and not before; those that still wait although the start that they were first promised is over (overdue), and those that the plan has start later than that (slipping).", Count,
					Query{Expr: `muster_jobs_held{` + queueFilter + `}`, Legend: "{{partition}} held"},
					Query{Expr: `muster_jobs_overdue{` + queueFilter + `}`, Legend: "{{partition}} overdue"},
					Query{Expr: `muster_jobs_slipped{` + queueFilter + `}`, Legend: "{{partition}} slipping"}),
				linePanel("Nodes of the largest job that could start", "By GPUs that it asks for on each node; 0 GPUs is whole idle nodes. Falls before the queue shows it.", Count,
					Query{Expr: `muster_partition_startable_nodes{` + queueFilter + `}`, Legend: "{{partition}} {{gpus_per_node}} GPUs a node"}),
				linePanel("Jobs submitted, started, ended", "Rates of the queue's ways in and out. Submitted above started for long makes waits grow.", PerSec,
					Query{Expr: `sum(rate(muster_jobs_submitted_total{` + queueFilter +
						`}[$__rate_interval]))`, Legend: "submitted"},
					Query{Expr: `sum(rate(muster_jobs_started_total{` + queueFilter +
						`}[$__rate_interval]))`, Legend: "started"},
					Query{Expr: `sum(rate(muster_jobs_ended_total{` + queueFilter +
						`}[$__rate_interval]))`, Legend: "ended"}).wide(24),
			}},
			{Title: "Wait", Panels: []Panel{
				linePanel("Wait of the jobs that started, last hour", "Quantiles of the wait from submission to start, from the histogram's buckets (an estimate within a bucket).", Seconds,
					wait("0.50"), wait("0.95"), wait("0.99")).empty("no job started in the last hour"),
				linePanel("Mean wait by partition, over the dashboard's time (MetricsQL)", "Sum of the waits by number of starts, in MetricsQL's increase. Reads the same on VictoriaMetrics and on Prometheus.", Seconds,
					Query{Expr: `sum by (partition) (increase(muster_job_wait_seconds_sum{` +
						queueFilter +
						`}[$__range])) / (sum by (partition) (increase(muster_job_wait_seconds_count{` +
						queueFilter + `}[$__range])) > 0)`,
						Legend: "{{partition}}", Lang: MetricsQL}).empty("no job started in the dashboard's time"),
				linePanel("Worst hourly wait P95 of a day, by partition (MetricsQL)", "The exact 95th percentile that the accounting store computes each minute for the last hour, and of those the value that 5 % of the day exceeded: quantile_over_time.", Seconds,
					Query{Expr: `quantile_over_time(0.95, muster_kpi_wait_p95_seconds{cluster="$cluster",by="partition",key=~"$partition",window="1h"}[1d])`, Legend: "{{key}}", Lang: MetricsQL}),
				linePanel("Wait since eligible, 95th percentile", "Exact, and jobs that still wait count with what they have waited so far: it does not look good while the queue stands still.", Seconds,
					Query{Expr: `muster_kpi_wait_eligible_p95_seconds{cluster="$cluster",by="partition",key=~"$partition",window="1h"}`, Legend: "{{key}}"}),
				barPanel("Wait P95 by partition, last day", "Exact, from the accounting store.", Seconds,
					`muster_kpi_wait_p95_seconds{cluster="$cluster",by="partition",key=~"$partition",window="1d"}`, "{{key}}"),
				linePanel("Share of starts by backfill", "Jobs started out of order because they delayed nobody, by all starts. Near zero with a long queue: time limits are too long for backfill to find gaps.", Ratio,
					Query{Expr: `sum(increase(muster_jobs_backfilled_total{cluster="$cluster"}[1h])) / (sum(increase(muster_jobs_started_total{cluster="$cluster"}[1h])) > 0)`, Legend: "backfilled"}).top(1).
					empty("no job started in the last hour"),
				linePanel("Promises kept, last day", "Part of the first promises of a start that were kept, to within the grace, by partition: exact, from the accounting store. Only jobs with a firm reservation are promised a start (bf_firm, bf_promise=prediction).", Ratio,
					Query{Expr: `muster_kpi_promise_kept_ratio{cluster="$cluster",by="partition",key=~"$partition",window="1d"}`, Legend: "{{key}}"}).top(1).
					empty("no promise was due in the last day"),
				linePanel("Run time of the jobs that ended, last hour", "Median and 95th percentile of the time from start to end.", Seconds,
					Query{Expr: `histogram_quantile(0.5, sum by (le) (increase(muster_job_run_seconds_bucket{` +
						queueFilter + `}[1h])))`, Legend: "median"},
					Query{Expr: `histogram_quantile(0.95, sum by (le) (increase(muster_job_run_seconds_bucket{` +
						queueFilter + `}[1h])))`, Legend: "p95"}).
					empty("no job ended in the last hour"),
			}},
			{Title: "History (from the accounting store)", Panels: []Panel{
				sqlTable("Wait by partition and size", "Exact quantiles of the runs that started in the dashboard's time, by GPUs asked for. One large job that waited long is not hidden among many small ones.",
					`SELECT partition, multiIf(req_gpus = 0, 'no GPU', req_gpus = 1, '1 GPU', req_gpus <= 8, '2-8 GPUs', '9+ GPUs') AS size, count() AS starts, quantileExact(0.5)(wait_s) AS p50, quantileExact(0.95)(wait_s) AS p95, max(wait_s) AS longest `+
						jobsIn+` GROUP BY partition, size ORDER BY partition, size`).units(map[string]Unit{"p50": Seconds, "p95": Seconds, "longest": Seconds}).wide(12),
				sqlTable("Longest waits", "The runs that started in the dashboard's time and had waited longest. Why a run waited, minute by minute: the job dashboard.",
					`SELECT job_id AS job, user, account, partition, req_gpus AS GPUs, wait_s AS waited, start `+
						jobsIn+` ORDER BY waited DESC LIMIT 20`).
					units(map[string]Unit{"waited": Seconds, "start": When}).wide(12).linked(Job, "job", "job"),
				sqlTable("Promises by partition and QOS", "First promised start against the real one, of the promises that were due in the dashboard's time.",
					`SELECT partition, qos, count() AS promises, countIf(kept) / promises AS "kept", quantileExact(0.5)(toFloat64(late_s)) AS "late p50", quantileExact(0.95)(toFloat64(late_s)) AS "late p95", max(late_s) AS latest FROM `+
						withinView("promises_within")+` WHERE $__conditionalAll(partition IN (${partition:singlequote}), $partition) GROUP BY partition, qos ORDER BY partition, qos`).
					units(map[string]Unit{"kept": Ratio, "late p50": Seconds, "late p95": Seconds, "latest": Seconds}).wide(24).empty("no promise was due in this time"),
				sqlTable("What the waiting was for", "Times a job got a reason to wait, in the dashboard's time, with the most frequent subject (limit, node, licence).",
					`SELECT code AS reason, count() AS times, uniqExact(uid) AS jobs, topK(1)(subject)[1] AS mostly FROM pending_reasons WHERE $__timeFilter(at) AND code != 'None' AND cluster = ${cluster:singlequote} AND $__conditionalAll(partition IN (${partition:singlequote}), $partition) GROUP BY code ORDER BY times DESC`).empty("no job got a reason to wait"),
			}},
		}}
}
