package dashboards

func jobBoard() Board {
	const of = `cluster="$cluster",slurm_job_id=~"$job"`
	const gpu = `cluster=~"$cluster|",slurm_job_id=~"$job"`
	const sql = ` WHERE cluster = ${cluster:singlequote} AND job_id = toUInt32OrZero(${job:singlequote}) `
	over := "no reading now: the job is over, or has not started; the tables below have what it used"
	return Board{UID: Job, Title: "Muster / Job", From: "now-24h",
		Vars:        []Var{clusterVar(), {Name: "job", Label: "Job id", Query: `label_values(muster_job_cpus{cluster="$cluster"}, slurm_job_id)`}},
		Description: "One job: what it asked for, what it got, what it used, and why it waited. The list holds the jobs that run; type any other id. The figures by the minute are kept as long as Prometheus keeps them, the tables for good.",
		Rows: []Row{
			{Title: "What it is", Panels: []Panel{
				sqlTable("Runs", "Every run of this job, the newest first: one that is pending or running too. A requeued job has several.",
					`SELECT job_id AS job, name, user, account, partition, qos AS QOS, state, if(state = 'PENDING', reason, '') AS "waits for", submit, eligible, start, if(isNull(end) AND isNotNull(start) AND limit_us > 0, start + toIntervalMicrosecond(limit_us), NULL) AS "ends at the latest", end, elapsed_us / 1e6 AS "run time", if(limit_us < 0, NULL, limit_us / 1e6) AS "time limit", if(isNull(start), req_cpus, alloc_cpus) AS CPUs, if(isNull(start), req_gpus, alloc_gpus) AS GPUs, if(isNull(start), req_mem_mib, alloc_mem_mib) * 1048576 AS memory, node_list AS nodes, if(isNull(cost), '', concat(toString(round(cost, 2)), ' ', currency)) AS "cost so far", if(isNull(end), NULL, exit_code) AS "exit code", comment FROM `+
						ofJob("runs_of_job")+` ORDER BY restarts DESC, submit DESC`).
					units(map[string]Unit{"submit": When, "eligible": When, "start": When, "ends at the latest": When, "end": When, "run time": Seconds, "time limit": Seconds, "memory": Bytes}).
					linked(People, "user", "user").tall(6).empty("the accounting store has no job of this number"),
				{Title: "Planned start", Kind: Table, Unit: When, Column: "starts", Width: 24, Height: 4, MayBeEmpty: "the job does not wait, or others start before it: the plan's first 200 jobs have a figure; squeue --start has all",
					Description: "When the scheduler's plan has the job start. Every pass makes the plan anew: jobs that end early make it earlier, jobs of higher priority later.",
					Queries: []Query{{Expr: `muster_job_planned_start_timestamp_seconds{` +
						of + `} * 1000`}}, Links: []Link{{Board: People, Var: "user", Label: "user"}}},
				{Title: "Where it runs", Kind: Table, Unit: Count, Column: "CPUs", Width: 12, Height: 6, Description: "The nodes on which the job runs now, with the CPUs it was given on each.", MayBeEmpty: over,
					Queries: []Query{{Expr: `muster_job_cpus{` + of + `}`}}, Links: []Link{{Board: Node, Var: "node", Label: "node"}, {Board: People, Var: "user", Label: "user"}}},
				sqlTable("Advice", "What to ask for next time, from what the last run was given and used; `muster report JOB` says more, and compares with earlier runs of the name.",
					`SELECT a.1 AS about, a.2 AS seen, a.3 AS next_time FROM (SELECT state, limit_us, elapsed_us, alloc_cpus, measured, gpu_measured_us, gpu_busy_us, gpu_util_us, alloc_mem_mib * 1048576 / greatest(alloc_nodes, 1) AS held, ifNull(peak_rss, 0) AS peak, greatest(toInt64(1), toInt64(ceil(peak * 1.25 / 1073741824))) AS fits, toInt64(ceil(elapsed_us * 1.25 / 3e8) * 5) AS minutes, (user_cpu_us + system_cpu_us) / greatest(elapsed_us, 1) AS busy, greatest(toInt64(ceil(busy - 0.05)), toInt64(1), toInt64(alloc_nodes)) AS enough FROM jobs`+
						sql+
						`AND start IS NOT NULL AND state NOT IN ('PENDING', 'RUNNING', 'SUSPENDED', 'COMPLETING') ORDER BY start DESC LIMIT 1) ARRAY JOIN `+
						advice+` AS a WHERE a.3 != ''`).
					wide(12).tall(6).empty("no run of the job is over, or it used what it asked for"),
				figurePanel("CPUs in use", "CPU time used a second, by the CPUs it was given. Far below 1: ask for fewer.", Ratio,
					`sum(rate(muster_job_cpu_seconds_total{`+of+
						`}[$__rate_interval])) / sum(muster_job_cpus{`+of+`})`).colored(Red, Step{0.3, Orange}, Step{0.7, Green}).empty(over),
				figurePanel("Memory at its peak", "Most memory held, by what it was given. Near 1: it will be killed for lack of memory; far below: ask for less.", Ratio,
					`max(muster_job_memory_peak_bytes{`+of+`} / muster_job_memory_limit_bytes{`+
						of+`})`).colored(Blue, Step{0.2, Green}, Step{0.95, Red}).empty(over),
				sqlFigure("GPUs busy", "Utilisation of its GPUs, averaged over the time that it has held them in all of its runs.", Ratio, `SELECT sum(util_s) / nullIf(sum(no_process_s + idle_s + busy_s), 0) AS busy FROM `+
					ofJob("gpus_of_job")+` HAVING isNotNull(busy)`).
					colored(Red, Step{0.3, Orange}, Step{0.6, Green}).empty("the job held no GPU that was measured"),
				sqlFigure("GPU time idle so far", "Part of the GPU time so far in which there was no process on a device, or one that did nothing.", Ratio,
					`SELECT sum(no_process_s + idle_s) / nullIf(sum(no_process_s + idle_s + busy_s), 0) AS idle FROM `+
						ofJob("gpus_of_job")+` HAVING isNotNull(idle)`).colored(Green, Step{0.3, Orange}, Step{0.6, Red}).
					empty("the job held no GPU that was measured"),
				sqlFigure("GPU energy so far", "Energy its GPUs have used for it.", Joules, `SELECT sum(energy_j) AS energy FROM `+
					ofJob("gpus_of_job")+` HAVING isNotNull(energy)`).empty("the job held no GPU that was measured"),
				figurePanel("Killed for lack of memory", "Processes of the job that the kernel killed for lack of memory.", Count, `sum(muster_job_oom_kills_total{`+
					of+`})`).colored(Green, Step{1, Red}).empty(over),
			}},
			{Title: "CPU and memory, node by node", Panels: []Panel{
				linePanel("CPUs in use", "CPU seconds a second on each node, beside the CPUs given. A node far below the others is an imbalance.", Count,
					Query{Expr: `sum by (node) (rate(muster_job_cpu_seconds_total{` + of +
						`}[$__rate_interval]))`, Legend: "{{node}} used"},
					Query{Expr: `sum by (node) (muster_job_cpus{` + of + `})`, Legend: "{{node}} given"}).empty(over),
				linePanel("Memory", "Memory held on each node (page cache included), beside what was given.", Bytes,
					Query{Expr: `sum by (node) (muster_job_memory_bytes{` + of + `})`, Legend: "{{node}} held"},
					Query{Expr: `sum by (node) (muster_job_memory_limit_bytes{` + of + `})`, Legend: "{{node}} given"}).empty(over),
				linePanel("Disk read and written", "Block device traffic of the job. Network file systems do not count here.", ByteRate,
					Query{Expr: `sum by (node) (rate(muster_job_io_read_bytes_total{` + of +
						`}[$__rate_interval]))`, Legend: "{{node}} read"},
					Query{Expr: `sum by (node) (rate(muster_job_io_written_bytes_total{` + of +
						`}[$__rate_interval]))`, Legend: "{{node}} written"}).empty(over),
				linePanel("Processes", "Processes of the job on each node.", Count, Query{Expr: `sum by (node) (muster_job_processes{` +
					of + `})`, Legend: "{{node}}"}).empty(over),
			}},
			{Title: "GPUs", Panels: jobGPUs(of, gpu)},
			{Title: "History (from the accounting store)", Panels: []Panel{
				sqlTable("Why it waited", "Each reason to wait, from when on, with its figures.",
					`SELECT at, code AS reason, tres AS TRES, if(limit = 0, NULL, limit) AS limit, if(limit = 0, NULL, in_use) AS "in use", if(limit = 0, NULL, asked) AS asked, subject, if(blocker = 0, '', toString(blocker)) AS blocker, detail FROM pending_reasons`+
						sql+`AND code != 'None' ORDER BY at`).units(map[string]Unit{"at": When}).wide(12).empty("it never waited"),
				sqlTable("Steps", "Its steps with what they used, those that go on too.",
					`SELECT step, name, state, if(isNull(end), NULL, exit_code) AS "exit code", start, end, cpu_s AS "CPU time", peak_rss AS "peak memory", node_list AS nodes FROM `+
						ofJob("steps_of_job")+` ORDER BY start, step`).
					units(map[string]Unit{"start": When, "end": When, "CPU time": Seconds, "peak memory": Bytes}).wide(12).empty("no step has begun"),
				sqlTable("Nodes", "What it held and used on each node; of a run that goes on, as far as it was sampled.",
					`SELECT node, from, until, cpus AS CPUs, gpus AS GPUs, mem_mib * 1048576 AS memory, cpu_s AS "CPU time", peak_rss AS "peak memory", lost FROM `+
						ofJob("nodes_of_job")+` ORDER BY from, node`).
					units(map[string]Unit{"from": When, "until": When, "memory": Bytes, "CPU time": Seconds, "peak memory": Bytes}).wide(12).linked(Node, "node", "node").empty("the job has not started"),
				sqlTable("Devices", "Which GPUs it held and what was seen on them; of a run that goes on, as far as it was sampled.",
					`SELECT node, gpu_index AS gpu, gpu_type AS type, util_s / nullIf(no_process_s + idle_s + busy_s, 0) AS utilisation, no_process_s AS "no process", idle_s AS idle, busy_s AS busy, peak_mem AS "peak memory", energy_j AS energy, xids AS XIDs FROM `+
						ofJob("gpus_of_job")+` ORDER BY from, node, gpu`).
					units(map[string]Unit{"utilisation": Ratio, "no process": Seconds, "idle": Seconds, "busy": Seconds, "peak memory": Bytes, "energy": Joules}).wide(12).empty("the job held no GPU"),
				sqlSeries("GPU utilisation, from the samples", "Utilisation of each device, or activity of each MIG instance, as the accounting store has it: also of jobs that are over, for as long as samples are kept.", Percent,
					`SELECT $__timeInterval(at) AS time, concat(node, ' ', toString(gpu_index), if(profile = '', '', concat(' ', profile))) AS gpu, avg(ifNull(util, engine / 10)) AS util FROM gpu_samples WHERE $__timeFilter(at) AND cluster = ${cluster:singlequote} AND job_id = toUInt32OrZero(${job:singlequote}) GROUP BY time, gpu ORDER BY time`).
					unstacked().top(100).wide(24).empty("the job held no GPU alone in the dashboard's time"),
				sqlTable("Events", "What the ledger says about the job, newest first.",
					`SELECT at, kind, actor, host, command FROM events WHERE cluster = ${cluster:singlequote} AND uid IN (SELECT uid FROM `+
						ofJob("runs_of_job")+`) AND uid != 0 ORDER BY seq DESC LIMIT 100`).
					units(map[string]Unit{"at": When}).empty("the accounting store has no job of this number"),
			}},
		}}
}

func jobGPUs(of, gpu string) []Panel {
	none := "the job has no GPU, or does not run"
	return []Panel{
		{
			Title:       "Utilisation of each GPU over time",
			Kind:        HeatMap,
			Unit:        Percent,
			Max:         100,
			MayBeEmpty:  none,
			Description: "A line for each device. Dark lines among bright ones: a rank that waits for the others, or a device that the program does not use.",
			Queries: []Query{{Expr: `max by (hostname, gpu) (DCGM_FI_DEV_GPU_UTIL{` + gpu +
				`})`, Legend: "{{hostname}} {{gpu}}"}},
		},
		linePanel(
			"Multiprocessors and tensor cores",
			"Part of the cycles in which the multiprocessors, and the tensor cores, had work. Utilisation of 100 % with little of these is a program that waits on the device.",
			Ratio,
			Query{
				Expr:   `avg by (hostname) (DCGM_FI_PROF_SM_ACTIVE{` + gpu + `})`,
				Legend: "{{hostname}} SM",
			},
			Query{
				Expr:   `avg by (hostname) (DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{` + gpu + `})`,
				Legend: "{{hostname}} tensor",
			},
		).top(1).
			empty(none),
		linePanel(
			"GPU memory",
			"Memory in use on each device.",
			Bytes,
			Query{Expr: `max by (hostname, gpu) (DCGM_FI_DEV_FB_USED{` +
				gpu + `}) * 1048576`, Legend: "{{hostname}} {{gpu}}"},
		).empty(none),
		linePanel(
			"Power",
			"What each device draws.",
			Watts,
			Query{Expr: `max by (hostname, gpu) (DCGM_FI_DEV_POWER_USAGE{` +
				gpu + `})`, Legend: "{{hostname}} {{gpu}}"},
		).empty(none),
		linePanel(
			"Temperature",
			"Temperature of each device.",
			Celsius,
			Query{Expr: `max by (hostname, gpu) (DCGM_FI_DEV_GPU_TEMP{` +
				gpu + `})`, Legend: "{{hostname}} {{gpu}}"},
		).empty(none),
		stackPanel(
			"What was seen on the GPUs",
			"GPUs by what was seen on them: no process, a process that did nothing, or work.",
			Count,
			Query{Expr: `sum by (state) (rate(muster_job_gpu_seconds_total{` + of +
				`}[$__rate_interval]))`, Legend: "{{state}}"},
		).empty(none),
		linePanel("PCIe and NVLink", "Traffic of its devices.", ByteRate,
			Query{Expr: `sum by (hostname) (DCGM_FI_PROF_PCIE_RX_BYTES{` + gpu +
				`} + DCGM_FI_PROF_PCIE_TX_BYTES{` + gpu + `})`, Legend: "{{hostname}} PCIe"},
			Query{Expr: `sum by (hostname) (DCGM_FI_PROF_NVLINK_RX_BYTES{` + gpu +
				`} + DCGM_FI_PROF_NVLINK_TX_BYTES{` + gpu + `})`, Legend: "{{hostname}} NVLink"}).empty(none),
	}
}

// advice are the rules of muster report, on one run: an array of what it is
// about, what was seen, and what to ask for. An empty last part is no advice.
const advice = `[
 ('memory', concat('ran out of ', formatReadableSize(held), ' a node'), if(state = 'OUT_OF_MEMORY', concat('--mem=', toString(toInt64(ceil(held * 1.5 / 1073741824))), 'G'), '')),
 ('memory', concat(formatReadableSize(peak), ' of ', formatReadableSize(held), ' a node'), if(peak > 0 AND fits * 1073741824 <= held * 0.75, concat('--mem=', toString(fits), 'G'), '')),
 ('time', concat('reached its limit of ', toString(intDiv(limit_us, 60000000)), ' min'), if(state = 'TIMEOUT', 'ask for more, or save checkpoints', '')),
 ('time', concat(toString(intDiv(elapsed_us, 1000000)), ' s of ', toString(intDiv(limit_us, 60000000)), ' min'), if(state = 'COMPLETED' AND limit_us > 0 AND minutes * 60e6 <= limit_us * 0.75, concat('--time=', toString(minutes)), '')),
 ('CPUs', concat(toString(round(busy, 1)), ' of ', toString(alloc_cpus), ' busy'), if(measured AND elapsed_us >= 60000000 AND alloc_cpus > 1 AND enough <= alloc_cpus * 0.75, concat('ask for ', toString(enough)), '')),
 ('GPUs', 'no work on any of them', if(gpu_measured_us > 0 AND gpu_busy_us = 0, 'ask for none, or find out why the program does not see them', '')),
 ('GPUs', concat(toString(toInt64(100 * gpu_util_us / greatest(gpu_measured_us, 1))), ' % utilisation'), if(gpu_busy_us > 0 AND gpu_util_us < gpu_measured_us * 0.3, 'look at how data are loaded and at the batch size, or share a device', ''))]`
