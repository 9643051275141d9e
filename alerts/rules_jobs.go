package alerts

func jobRules() []Rule {
	const g = "muster-jobs"
	inQueue := map[string]string{"partition": "partition"}
	ended := func(state, values string) string {
		return `muster_jobs_ended_total{cluster="lab",partition="gpu",state="` + state + `"} ` +
			values
	}
	requeued := func(state, values string) string {
		return `muster_attempts_requeued_total{cluster="lab",partition="gpu",state="` + state +
			`"} ` + values
	}
	return []Rule{
		{Name: "MusterWaitLong", Group: g, Severity: Warning, For: "10m", Board: "muster-queue", Vars: inQueue,
			Params:  []Param{{"above", Duration, "4h", "what the wait P95 may be"}, {"least", Number, "20", "starts in the hour"}},
			Expr:    `label_replace(muster_kpi_wait_p95_seconds{by="partition",window="1h"}, "partition", "$1", "key", "(.+)") > $above_seconds and on (cluster, partition) sum by (cluster, partition) (increase(muster_jobs_started_total[1h])) >= $least`,
			Summary: "Jobs wait long in {{ $labels.partition }}", Detail: "5 % of the jobs that started in {{ $labels.partition }} in the last hour had waited {{ $value | humanizeDuration }} or longer (limit $above).",
			Fires: Case{[]string{`muster_kpi_wait_p95_seconds{cluster="lab",by="partition",key="gpu",window="1h"} 20000x90`, `muster_jobs_started_total{cluster="lab",partition="gpu"} 0+1x90`}, 80},
			Quiet: Case{[]string{`muster_kpi_wait_p95_seconds{cluster="lab",by="partition",key="gpu",window="1h"} 20000x90`, `muster_jobs_started_total{cluster="lab",partition="gpu"} 5x90`}, 80}},
		{Name: "MusterOldestPending", Group: g, Severity: Info, For: "10m", Board: "muster-queue", Vars: inQueue,
			Params:  []Param{{"above", Duration, "7d", "time since the job was eligible"}},
			Expr:    `muster_partition_oldest_pending_seconds > $above_seconds`,
			Summary: "A job has waited very long in {{ $labels.partition }}", Detail: "The oldest job that could start in {{ $labels.partition }} has waited {{ $value | humanizeDuration }} (limit $above). `muster why` says for what.",
			Fires: Case{[]string{`muster_partition_oldest_pending_seconds{cluster="lab",partition="gpu"} 700000+60x30`}, 20}, Quiet: Case{[]string{`muster_partition_oldest_pending_seconds{cluster="lab",partition="gpu"} 3600x30`}, 20}},
		{Name: "MusterQueueStuck", Group: g, Severity: Warning, For: "10m", Board: "muster-queue", Vars: inQueue,
			Params: []Param{{"window", Duration, "1h", "time without a start"}, {"above", Share, "0.5", "share of what the queue asks for that idles meanwhile"}},
			// A partition whose GPUs are taken is full for jobs that ask for GPUs,
			// however many of its CPUs idle. And while all promises can be kept, nodes
			// idle on purpose: the front job's are being collected. Promises say nothing
			// once one of them was broken, the plan moved one back, or no pass has made
			// a plan for all that time.
			Expr: `sum by (cluster, partition) (muster_jobs_pending{reason=~"Resources|Priority|None"}) > 0` +
				` and on (cluster, partition) sum by (cluster, partition) (increase(muster_jobs_started_total[$window])) == 0` +
				` and on (cluster, partition) sum by (cluster, partition) (muster_partition_cpus{state="idle"}) / sum by (cluster, partition) (muster_partition_cpus) > $above` +
				` unless on (cluster, partition) (muster_partition_pending_gpus > 0 and on (cluster, partition)` +
				` sum by (cluster, partition) (muster_partition_gpus{state="idle"}) / (sum by (cluster, partition) (muster_partition_gpus) > 0) <= $above)` +
				` unless on (cluster, partition) (muster_jobs_promised > 0` +
				` unless on (cluster, partition) muster_jobs_slipped + muster_jobs_overdue > 0` +
				` and on (cluster) increase(muster_scheduler_passes_total[$window]) > 0)`,
			Summary: "The queue of {{ $labels.partition }} is stuck", Detail: "{{ $value }} jobs wait for resources in {{ $labels.partition }}, more than $above of what they ask for idles, no promised start explains that, and nothing has started for $window.",
			Fires: Case{[]string{`muster_jobs_pending{cluster="lab",partition="gpu",reason="Resources"} 4x90`, `muster_jobs_started_total{cluster="lab",partition="gpu"} 9x90`,
				`muster_partition_cpus{cluster="lab",partition="gpu",state="idle"} 90x90`, `muster_partition_cpus{cluster="lab",partition="gpu",state="allocated"} 10x90`,
				`muster_partition_pending_gpus{cluster="lab",partition="gpu"} 0x90`,
				// Two promises stand, and the plan has moved one of them back.
				`muster_jobs_promised{cluster="lab",partition="gpu"} 2x90`, `muster_jobs_slipped{cluster="lab",partition="gpu"} 1x90`,
				`muster_jobs_overdue{cluster="lab",partition="gpu"} 0x90`, `muster_scheduler_passes_total{cluster="lab"} 0+2x90`}, 85},
			Quiet: Case{[]string{`muster_jobs_pending{cluster="lab",partition="batch",reason="Resources"} 4x90`, `muster_jobs_started_total{cluster="lab",partition="batch"} 9x90`,
				`muster_partition_cpus{cluster="lab",partition="batch",state="idle"} 90x90`, `muster_jobs_promised{cluster="lab",partition="batch"} 1x90`,
				`muster_jobs_slipped{cluster="lab",partition="batch"} 0x90`, `muster_jobs_overdue{cluster="lab",partition="batch"} 0x90`,
				`muster_scheduler_passes_total{cluster="lab"} 0+2x90`,
				`muster_jobs_pending{cluster="lab",partition="gpu",reason="Resources"} 4x90`, `muster_jobs_started_total{cluster="lab",partition="gpu"} 9x90`,
				`muster_partition_cpus{cluster="lab",partition="gpu",state="idle"} 90x90`, `muster_partition_cpus{cluster="lab",partition="gpu",state="allocated"} 10x90`,
				`muster_partition_pending_gpus{cluster="lab",partition="gpu"} 16x90`, `muster_partition_gpus{cluster="lab",partition="gpu",state="idle"} 0x90`,
				`muster_partition_gpus{cluster="lab",partition="gpu",state="allocated"} 32x90`}, 85}},
		{Name: "MusterFailureRate", Group: g, Severity: Warning, For: "5m", Board: "muster-efficiency",
			Params:  []Param{{"above", Share, "0.3", "share of the runs"}, {"least", Number, "20", "runs that ended in the window"}, {"window", Duration, "1h", "window"}},
			Expr:    `sum by (cluster, partition) (increase(muster_jobs_ended_total{state=~"failed|timeout|out_of_memory|node_fail|boot_fail|deadline"}[$window])) / (sum by (cluster, partition) (increase(muster_jobs_ended_total{state!~"cancelled|preempted"}[$window])) >= $least) > $above`,
			Summary: "Many jobs fail in {{ $labels.partition }}", Detail: "{{ $value | humanizePercentage }} of the runs that ended in {{ $labels.partition }} in $window failed (limit $above). Of all users at once: a node, a file system; of one user: that user's program.",
			Fires: Case{[]string{ended("failed", "0+1x90"), ended("completed", "0+1x90")}, 70}, Quiet: Case{[]string{ended("failed", "0x80 3x10"), ended("completed", "0x90")}, 85}},
		{Name: "MusterJobsLostToNodes", Group: g, Severity: Warning, For: "0s", Board: "muster-node",
			Params: []Param{{"above", Number, "0", "jobs"}, {"window", Duration, "1h", "window"}},
			// Most jobs may be requeued: their attempts are lost and the jobs do not end.
			Expr: `sum by (cluster, partition) (increase(muster_jobs_ended_total{state=~"node_fail|boot_fail"}[$window])` +
				` + on (cluster, partition, state) increase(muster_attempts_requeued_total{state=~"node_fail|boot_fail"}[$window])) > $above`,
			Summary: "Jobs of {{ $labels.partition }} were lost with their nodes", Detail: "{{ $value | humanize }} runs of {{ $labels.partition }} ended because a node failed, in $window, with those that were queued again (limit $above).",
			Fires: Case{[]string{ended("node_fail", "0x25"), requeued("node_fail", "0x5 3x20")}, 10},
			Quiet: Case{[]string{ended("node_fail", "3x25"), requeued("node_fail", "3x25"), requeued("preempted", "0+1x25")}, 20}},
		{Name: "MusterOOMStorm", Group: g, Severity: Warning, For: "0s", Board: "muster-efficiency",
			Params:  []Param{{"above", Number, "10", "jobs"}, {"window", Duration, "1h", "window"}},
			Expr:    `sum by (cluster, partition) (increase(muster_jobs_ended_total{state="out_of_memory"}[$window])) > $above`,
			Summary: "Many jobs are killed for lack of memory in {{ $labels.partition }}", Detail: "{{ $value | humanize }} jobs of {{ $labels.partition }} were killed for lack of memory in $window (limit $above).",
			Fires: Case{[]string{ended("out_of_memory", "0+1x40")}, 30}, Quiet: Case{[]string{ended("out_of_memory", "0x20 2x20")}, 30}},
		{Name: "MusterTimeoutsMany", Group: g, Severity: Info, For: "5m", Board: "muster-efficiency",
			Params:  []Param{{"above", Share, "0.3", "share of the runs"}, {"least", Number, "20", "runs that ended in the window"}, {"window", Duration, "1d", "window"}},
			Expr:    `sum by (cluster, partition) (increase(muster_jobs_ended_total{state="timeout"}[$window])) / (sum by (cluster, partition) (increase(muster_jobs_ended_total[$window])) >= $least) > $above`,
			Summary: "Many jobs of {{ $labels.partition }} reach their time limit", Detail: "{{ $value | humanizePercentage }} of the runs that ended in {{ $labels.partition }} in $window were stopped at their time limit (limit $above).",
			Fires: Case{[]string{ended("timeout", "0+1x90"), ended("completed", "0+1x90")}, 70}, Quiet: Case{[]string{ended("timeout", "0x90"), ended("completed", "0+1x90")}, 70}},
		{Name: "MusterRequeuesMany", Group: g, Severity: Info, For: "5m", Board: "muster-queue",
			Params:  []Param{{"above", Number, "20", "requeues in the window"}, {"window", Duration, "1h", "window"}},
			Expr:    `increase(muster_jobs_requeued_total[$window]) > $above`,
			Summary: "Many jobs are queued again", Detail: "{{ $value | humanize }} runs of {{ $labels.cluster }} ended with their job back in the queue in $window (limit $above): preemption, failing nodes, or a prolog that fails.",
			Fires: Case{[]string{`muster_jobs_requeued_total{cluster="lab"} 0+1x70`}, 60}, Quiet: Case{[]string{`muster_jobs_requeued_total{cluster="lab"} 50x70`}, 60}},
		{Name: "MusterRefusalsMany", Group: g, Severity: Info, For: "10m", Board: "muster-internals",
			Params:  []Param{{"above", Number, "1", "refused commands a second"}},
			Expr:    `rate(muster_controller_refusals_total[10m]) > $above`,
			Summary: "Somebody asks for the impossible again and again", Detail: "{{ $value | humanize }} commands a second are refused by {{ $labels.cluster }} (limit $above): a script that tries without end.",
			Fires: Case{[]string{`muster_controller_refusals_total{cluster="lab"} 0+300x40`}, 30}, Quiet: Case{[]string{`muster_controller_refusals_total{cluster="lab"} 0+3x40`}, 30}},
	}
}

func useRules() []Rule {
	const g = "muster-use"
	kpi := func(name, by, key, values string) string {
		return `muster_kpi_` + name + `{cluster="lab",by="` + by + `",key="` + key +
			`",window="1d"} ` + values
	}
	return []Rule{
		{Name: "MusterGPUOccupancyLow", Group: g, Severity: Info, For: "1h", Board: "muster-efficiency",
			Params:  []Param{{"below", Share, "0.25", "utilisation over the time held"}},
			Expr:    `muster_kpi_gpu_occupancy_ratio{by="cluster",window="1d"} < $below`,
			Summary: "The GPUs that jobs hold do little", Detail: "The GPUs of {{ $labels.cluster }} were used to {{ $value | humanizePercentage }} of the time that jobs held them in the last day (limit $below).",
			Fires: Case{[]string{kpi("gpu_occupancy_ratio", "cluster", "lab", "0.1x90")}, 80}, Quiet: Case{[]string{kpi("gpu_occupancy_ratio", "cluster", "lab", "0.7x90")}, 80}},
		{Name: "MusterCPUEfficiencyLow", Group: g, Severity: Info, For: "1h", Board: "muster-efficiency",
			Params:  []Param{{"below", Share, "0.2", "CPU time used by CPU time allocated"}},
			Expr:    `muster_kpi_cpu_efficiency_ratio{by="cluster",window="1d"} < $below`,
			Summary: "The CPUs that jobs hold do little", Detail: "The CPUs of {{ $labels.cluster }} that jobs held in the last day were used to {{ $value | humanizePercentage }} (limit $below).",
			Fires: Case{[]string{kpi("cpu_efficiency_ratio", "cluster", "lab", "0.05x90")}, 80}, Quiet: Case{[]string{kpi("cpu_efficiency_ratio", "cluster", "lab", "0.6x90")}, 80}},
		{Name: "MusterMemoryWasted", Group: g, Severity: Info, For: "1h", Board: "muster-people", Vars: map[string]string{"user": "key"},
			Params:  []Param{{"above", Share, "0.9", "share of the memory never touched"}, {"least", Number, "3.6e14", "byte-seconds wasted in the day"}},
			Expr:    `muster_kpi_memory_waste_ratio{by="user",window="1d"} > $above and on (cluster, key) muster_kpi_memory_waste_byte_seconds{by="user",window="1d"} > $least`,
			Summary: "{{ $labels.key }} asks for memory that is never touched", Detail: "{{ $value | humanizePercentage }} of the memory that {{ $labels.key }}'s jobs held in the last day was never touched (limit $above); others could have run in it.",
			Fires: Case{[]string{kpi("memory_waste_ratio", "user", "ada", "0.97x90"), kpi("memory_waste_byte_seconds", "user", "ada", "9e14x90")}, 80},
			Quiet: Case{[]string{kpi("memory_waste_ratio", "user", "ada", "0.97x90"), kpi("memory_waste_byte_seconds", "user", "ada", "1e9x90")}, 80}},
		{Name: "MusterGPUsFragmented", Group: g, Severity: Info, For: "30m", Board: "muster-queue", Vars: map[string]string{"partition": "partition"},
			Params:  []Param{{"least", Number, "8", "idle GPUs"}, {"below", Number, "4", "GPUs in the largest piece"}},
			Expr:    `sum by (cluster, partition) (muster_partition_gpus{state="idle"}) >= $least and on (cluster, partition) muster_partition_largest_idle_gpus < $below and on (cluster, partition) muster_partition_pending_gpus > 0`,
			Summary: "Idle GPUs of {{ $labels.partition }} lie in small pieces", Detail: "{{ $value }} GPUs of {{ $labels.partition }} idle while jobs wait for GPUs, but no node has $below of them free.",
			Fires: Case{[]string{`muster_partition_gpus{cluster="lab",partition="gpu",state="idle"} 12x60`, `muster_partition_largest_idle_gpus{cluster="lab",partition="gpu"} 2x60`, `muster_partition_pending_gpus{cluster="lab",partition="gpu"} 8x60`}, 50},
			Quiet: Case{[]string{`muster_partition_gpus{cluster="lab",partition="gpu",state="idle"} 12x60`, `muster_partition_largest_idle_gpus{cluster="lab",partition="gpu"} 8x60`, `muster_partition_pending_gpus{cluster="lab",partition="gpu"} 8x60`}, 50}},
		{Name: "MusterLimitReached", Group: g, Severity: Info, For: "30m", Board: "muster-queue",
			Params:  []Param{{"above", Share, "0.98", "share of the limit"}},
			Expr:    `muster_limit_used_ratio > $above`,
			Summary: "The {{ $labels.scope }} {{ $labels.name }} is at its limit", Detail: "The {{ $labels.scope }} {{ $labels.name }} has used {{ $value | humanizePercentage }} of {{ $labels.limit }}: its further jobs wait, whatever idles.",
			Fires: Case{[]string{`muster_limit_used_ratio{cluster="lab",scope="qos",name="capped",limit="GrpTRES=gres/gpu"} 1x60`}, 50}, Quiet: Case{[]string{`muster_limit_used_ratio{cluster="lab",scope="qos",name="capped",limit="GrpTRES=gres/gpu"} 0.5x60`}, 50}},
		{Name: "MusterFairShareDrift", Group: g, Severity: Info, For: "6h", Board: "muster-fairshare",
			Params:  []Param{{"above", Share, "0.3", "part of the use that went to others than promised"}},
			Expr:    `muster_kpi_fairshare_drift_ratio{by="cluster",window="7d"} > $above`,
			Summary: "Use drifts away from the shares", Detail: "{{ $value | humanizePercentage }} of the use of {{ $labels.cluster }} in the last seven days went to others than the shares say (limit $above).",
			Fires: Case{[]string{`muster_kpi_fairshare_drift_ratio{cluster="lab",by="cluster",key="lab",window="7d"} 0.5x420`}, 400},
			Quiet: Case{[]string{`muster_kpi_fairshare_drift_ratio{cluster="lab",by="cluster",key="lab",window="7d"} 0.5x20 0.1x400`}, 400}},
		{Name: "MusterNodeFailuresCost", Group: g, Severity: Warning, For: "10m", Board: "muster-efficiency",
			Params:  []Param{{"above", Duration, "100h", "GPU time lost to node failures in a day"}},
			Expr:    `muster_kpi_lost_gpu_class_seconds{by="cluster",window="1d",class="node"} > $above_seconds`,
			Summary: "Node failures cost much GPU time", Detail: "Runs that a failing node ended had held {{ $value | humanizeDuration }} of GPU time in {{ $labels.cluster }} in the last day (limit $above).",
			Fires: Case{[]string{`muster_kpi_lost_gpu_class_seconds{cluster="lab",by="cluster",key="lab",window="1d",class="node"} 900000x40`}, 30},
			Quiet: Case{[]string{`muster_kpi_lost_gpu_class_seconds{cluster="lab",by="cluster",key="lab",window="1d",class="user"} 900000x40`}, 30}},
		{Name: "MusterBudgetWillNotLast", Group: g, Severity: Info, For: "1h", Board: "muster-limits", Vars: map[string]string{"account": "account"},
			Params:  []Param{{"above", Part, "1.05", "part of the budget spent at its end"}, {"least", Share, "0.1", "part of its time that must be over"}},
			Expr:    `muster_budget_forecast_ratio > $above and on (cluster, account) muster_budget_elapsed_ratio > $least`,
			Summary: "The budget of {{ $labels.account }} will not last", Detail: "If it goes on as in the last seven days, {{ $labels.account }} will have spent {{ $value | humanizePercentage }} of its budget at its end (limit $above).",
			Fires: Case{[]string{`muster_budget_forecast_ratio{cluster="lab",account="ml"} 1.4x90`, `muster_budget_elapsed_ratio{cluster="lab",account="ml"} 0.5x90`}, 80},
			Quiet: Case{[]string{`muster_budget_forecast_ratio{cluster="lab",account="ml"} 1.4x90`, `muster_budget_elapsed_ratio{cluster="lab",account="ml"} 0.02x90`}, 80}},
		{Name: "MusterBudgetSpent", Group: g, Severity: Warning, For: "10m", Board: "muster-limits", Vars: map[string]string{"account": "account"},
			Params:  []Param{{"above", Share, "0.95", "part of the budget"}},
			Expr:    `muster_budget_spent_ratio > $above`,
			Summary: "The budget of {{ $labels.account }} is spent", Detail: "{{ $labels.account }} has spent {{ $value | humanizePercentage }} of its budget (limit $above).",
			Fires: Case{[]string{`muster_budget_spent_ratio{cluster="lab",account="ml"} 0.99x40`}, 30}, Quiet: Case{[]string{`muster_budget_spent_ratio{cluster="lab",account="ml"} 0.5x40`}, 30}},
		{Name: "MusterLicencesExhausted", Group: g, Severity: Info, For: "30m", Board: "muster-queue",
			Expr:    `sum by (cluster, license) (muster_licenses{state="free"}) == 0`,
			Summary: "No {{ $labels.license }} licence is free", Detail: "All licences {{ $labels.license }} of {{ $labels.cluster }} are in use: jobs that ask for one wait.",
			Fires: Case{[]string{`muster_licenses{cluster="lab",license="ansys",state="free"} 0x60`, `muster_licenses{cluster="lab",license="ansys",state="used"} 5x60`}, 50}, Quiet: Case{[]string{`muster_licenses{cluster="lab",license="ansys",state="free"} 2x60`}, 50}},
	}
}
