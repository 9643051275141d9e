package dashboards

import "fmt"

func overviewBoard() Board {
	return Board{UID: Overview, Title: "Muster / Cluster overview", Vars: []Var{clusterVar()},
		Description: "Is the cluster well, is it busy, and does the work that holds it do anything? Start here; every figure leads on.",
		Rows: []Row{
			{Title: "What is wrong now", Panels: []Panel{wrongNow()}},
			{Title: "Now", Panels: overviewNow()},
			{Title: "GPUs now", Panels: []Panel{gpuGrid()}},
			{Title: "Jobs and nodes", Panels: []Panel{
				stackPanel("Jobs", "Live jobs by state; tasks of arrays count each. Pending that rises while running stands still is a queue that is stuck or full: open the queue dashboard.", Count,
					Query{Expr: `sum by (state) (muster_jobs{cluster="$cluster"})`, Legend: "{{state}}"}).linked(Queue, "", ""),
				stackPanel("Nodes", "Nodes by state. Anything but idle, mixed and allocated is capacity that was bought and cannot be used.", Count,
					Query{Expr: `sum by (state) (muster_nodes{cluster="$cluster"})`, Legend: "{{state}}"}).linked(Node, "", ""),
				stackPanel("GPUs", "GPUs by what they are given to. Unavailable ones belong to nodes that are down or drained.", Count,
					Query{Expr: `sum by (state) (muster_gpus{cluster="$cluster"})`, Legend: "{{state}}"}).linked(GPUs, "", ""),
				linePanel("GPUs given out and used", "Allocated is the share of the GPUs that jobs hold; used is how busy all devices are. A wide gap is money that idles: open the GPU dashboard.", Ratio,
					Query{Expr: `sum(muster_gpus{cluster="$cluster",state=~"allocated|shared"}) / (sum(muster_gpus{cluster="$cluster"}) > 0)`, Legend: "allocated"},
					Query{Expr: `avg(DCGM_FI_DEV_GPU_UTIL{cluster=~"$cluster|"}) / 100`, Legend: "used"}).top(1).linked(GPUs, "", ""),
				stackPanel("CPUs", "CPUs by partition and what they are given to.", Count,
					Query{Expr: `sum by (partition, state) (muster_partition_cpus{cluster="$cluster"})`, Legend: "{{partition}} {{state}}"}),
				stackPanel("Memory", "Memory by partition and what it is given to.", Bytes,
					Query{Expr: `sum by (partition, state) (muster_partition_memory_bytes{cluster="$cluster"})`, Legend: "{{partition}} {{state}}"}),
			}},
			{Title: "Who and what is wrong", Panels: []Panel{
				barPanel("CPUs by account", "CPUs of running jobs by account, largest first.", Count, `topk(15, sum by (account) (slurm_account_cpu_count{cluster="$cluster"}))`, "{{account}}").empty("nothing runs").
					linked(People, "account", "account"),
				{Title: "Nodes out of service", Kind: Table, Unit: Seconds, Column: "for", Width: 12, Queries: []Query{{Expr: `time() - muster_node_drained_since_timestamp_seconds{cluster="$cluster"}`}},
					Description: "Nodes that are drained or down, for how long and why. The oldest is the one that was forgotten: `scontrol show node NODE`.",
					Links:       []Link{{Board: Node, Var: "node", Label: "node"}}, MayBeEmpty: "no node is out of service"},
			}},
			{Title: "History (from the accounting store)", Panels: []Panel{
				sqlSeries("Jobs ended", "Runs that ended, by final state.", Count,
					`SELECT $__timeInterval(assumeNotNull(end)) AS time, toString(state) AS state, toInt64(sum(count)) AS jobs FROM `+
						withinView("runs_within")+
						` WHERE ended_in GROUP BY time, state ORDER BY time`),
				sqlTable("GPU-hours by account", "What each account held in the dashboard's time, runs that go on up to now.",
					`SELECT account, round(sum(gpu_held_us) / 3.6e9, 2) AS "GPU-hours", round(sum(cpu_held_us) / 3.6e9, 2) AS "CPU-hours", toInt64(sum(count)) AS jobs FROM `+
						withinView("runs_within")+
						` WHERE isNotNull(start) GROUP BY account ORDER BY "GPU-hours" DESC, "CPU-hours" DESC LIMIT 20`).
					wide(12).units(map[string]Unit{"GPU-hours": GPUHours, "CPU-hours": CPUHours}).linked(People, "account", "account"),
			}},
		}}
}

// runbooks is where a runbook stands, by the name of its alert.
const runbooks = "https://github.com/musterhpc/muster/blob/main/alerts/runbooks/%s.md"

// wrongNow is the table of alerts that fire, the gravest first.
func wrongNow() Panel {
	expr := `(time() - ALERTS_FOR_STATE{cluster=~"$cluster|"}) and ignoring(alertstate) ALERTS{alertstate="firing",cluster=~"$cluster|"}`
	for _, s := range [...][2]string{{"critical", "1 critical"}, {"warning", "2 warning"}, {"info", "3 info"}} {
		expr = `label_replace(` + expr + `, "severity", "` + s[1] + `", "severity", "` + s[0] + `")`
	}
	return Panel{
		Title:       "Alerts that fire",
		Kind:        Table,
		Unit:        Seconds,
		Column:      "since",
		SortBy:      "severity",
		Height:      9,
		Description: "What fires, the gravest first: on which node, for which job and user, and for how long. A click on the alert opens its runbook, which says what to type.",
		Queries:     []Query{{Expr: expr, Legend: "{{severity}} {{alertname}} {{node}}"}},
		Links: []Link{
			{Label: "alertname", URL: runbooks, Title: "Runbook"},
			{Board: Node, Var: "node", Label: "node"},
			{Board: Job, Var: "job", Label: "slurm_job_id"},
			{Board: People, Var: "user", Label: "user"},
		},
		MayBeEmpty: "no alert fires",
	}
}

// gpuColumns is how many devices of a node have a column of their own.
const gpuColumns = 8

// gpuGrid is a line for each node with a cell for each device: 1,000 devices are
// 125 lines. Nodes with something wrong come first, then those with idle holders.
func gpuGrid() Panel {
	columns := ""
	for i := range gpuColumns {
		columns += fmt.Sprintf(
			`, arrayStringConcat(groupArrayIf(cell, gpu_index = %d), ' + ') AS "%d"`,
			i,
			i,
		)
	}
	panel := sqlTable(
		"Each GPU now",
		"A line for each node, a cell for each device: what it does and who holds it, by the newest reading. idle is held without work for ten minutes, or since it was taken; lost gives no readings though its node is up. Nodes with something wrong come first. One person's idle cells: `muster report idle`.",
		`SELECT node, any(node_state) AS "node state", countIf(job_id != 0) AS held`+columns+
			fmt.Sprintf(
				`, arrayStringConcat(groupArrayIf(concat(toString(gpu_index), ': ', cell), gpu_index >= %d), ', ') AS others, any(node_reason) AS reason`,
				gpuColumns,
			)+
			` FROM (SELECT *, concat(state, if(job_id = 0, '', concat(' ', user, ' ', toString(job_id)))) AS cell FROM gpus_now(cluster = ${cluster:singlequote}) ORDER BY node, gpu_index, gpu_uuid) GROUP BY node ORDER BY countIf(state IN ('lost', 'down')) = 0, countIf(state = 'drained') = 0, countIf(state = 'idle') = 0, node`,
	).
		linked(Node, "node", "node").
		tall(14).
		empty("no node has sent readings of a GPU in a day")
	panel.Cells = []Word{
		{"busy", "#37872d"},
		{"idle", "#ff780a"},
		{"shared", "#8ab8ff"},
		{"free", "#3d71d9"},
		{"drained", "#b877d9"},
		{"down", "#c4162a"},
		{"lost", "#e02f44"},
		{"off", "#8e8ea0"},
	}
	return panel
}

func overviewNow() []Panel {
	return []Panel{
		figurePanel(
			"Nodes in service",
			"Share of the nodes that can run jobs: neither down, drained, draining, failed nor unknown.",
			Ratio,
			`sum(muster_nodes{cluster="$cluster",state=~"idle|mixed|allocated"}) / (sum(muster_nodes{cluster="$cluster"}) > 0)`,
		).
			colored(Red, Step{0.9, Orange}, Step{0.97, Green}).
			top(1).
			linked(Node, "", ""),
		figurePanel(
			"Jobs running",
			"Jobs that run now; tasks of arrays count each.",
			Count,
			`sum(muster_jobs{cluster="$cluster",state="running"})`,
		).linked(Queue, "", ""),
		figurePanel(
			"Jobs pending",
			"Jobs that wait now. Why: the queue dashboard, or `muster why JOB`.",
			Count,
			`sum(muster_jobs{cluster="$cluster",state="pending"})`,
		).linked(Queue, "", ""),
		figurePanel(
			"GPUs allocated",
			"Share of the GPUs that jobs hold.",
			Ratio,
			`sum(muster_gpus{cluster="$cluster",state=~"allocated|shared"}) / (sum(muster_gpus{cluster="$cluster"}) > 0)`,
		).top(1).linked(GPUs, "", ""),
		figurePanel(
			"GPU utilisation of allocated",
			"Mean utilisation of the GPUs that jobs hold. Low means held but not used.",
			Ratio,
			`avg(DCGM_FI_DEV_GPU_UTIL{cluster=~"$cluster|",slurm_job_id!=""}) / 100`,
		).colored(Red, Step{0.3, Orange}, Step{0.6, Green}).
			top(1).
			linked(Efficiency, "", "").
			empty("no job holds a GPU"),
		figurePanel(
			"Alerts firing",
			"Alerts that fire now.",
			Count,
			`count(ALERTS{alertstate="firing"})`,
		).colored(Green, Step{1, Orange}, Step{5, Red}).
			linked(Alerts, "", "").
			empty("no alert fires"),
		figurePanel(
			"Goodput, last day",
			"GPU time that runs which ended well held with work, by the GPU time that was bought.",
			Ratio,
			`muster_kpi_goodput_ratio{cluster="$cluster",by="cluster",window="1d"}`,
		).colored(Red, Step{0.4, Orange}, Step{0.7, Green}).
			top(1).
			linked(Efficiency, "", "").
			empty("the cluster has no GPU"),
		figurePanel(
			"Wait P95, last day",
			"Of the jobs that started in the last day, the wait that 5 % exceeded. From the accounting store, exact.",
			Seconds,
			`muster_kpi_wait_p95_seconds{cluster="$cluster",by="cluster",window="1d"}`,
		).colored(Green, Step{3600, Yellow}, Step{14400, Red}).
			linked(Queue, "", ""),
		figurePanel(
			"Failed runs, last day",
			"Runs that failed, divided by those that failed or completed.",
			Ratio,
			`muster_kpi_failure_ratio{cluster="$cluster",by="cluster",window="1d"}`,
		).colored(Green, Step{0.05, Yellow}, Step{0.2, Red}).
			linked(Efficiency, "", ""),
		figurePanel(
			"GPU occupancy, last day",
			"Utilisation averaged over the time that jobs held the devices.",
			Ratio,
			`muster_kpi_gpu_occupancy_ratio{cluster="$cluster",by="cluster",window="1d"}`,
		).colored(Red, Step{0.3, Orange}, Step{0.6, Green}).
			top(1).
			linked(Efficiency, "", ""),
		figurePanel(
			"CPU efficiency, last day",
			"CPU time used by CPU time allocated; runs that go on count up to now, as far as they were sampled.",
			Ratio,
			`muster_kpi_cpu_efficiency_ratio{cluster="$cluster",by="cluster",window="1d"}`,
		).colored(Red, Step{0.3, Orange}, Step{0.6, Green}).
			top(1).
			linked(Efficiency, "", ""),
		figurePanel(
			"GPU power",
			"What the GPUs draw now.",
			Watts,
			`sum(DCGM_FI_DEV_POWER_USAGE{cluster=~"$cluster|"})`,
		).linked(Energy, "", ""),
		figurePanel(
			"Accounting behind",
			"Age of the oldest event that is not in the accounting store yet; what sacct shows is that old.",
			Seconds,
			`muster_accounting_lag_seconds{cluster="$cluster"}`,
		).colored(Green, Step{30, Yellow}, Step{300, Red}).
			linked(Pipeline, "", ""),
	}
}
