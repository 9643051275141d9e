package alerts

// atController is a label set of the controller's own series.
const slurmUp = `up{job="slurm",instance="ctl:8080",cluster="lab"}`

// controllerDown finds clusters whose controllers do not answer, and those that push
// their metrics (there is no up of them) and have stopped within the last day.
const controllerDown = `max by (cluster) (up{job="slurm"}) == 0` +
	` or (absent(up{job="slurm"}) unless on () count(muster_ledger_events_total))` +
	` or (group by (cluster) (last_over_time(muster_ledger_events_total[1d])) unless on (cluster) group by (cluster) (muster_ledger_events_total)` +
	` unless on (cluster) group by (cluster) (up{job="slurm"} == 1) unless on () (up{job="slurm",cluster=""} == 1))`

// leaderless finds clusters of which a controller answers and none serves the cluster.
// A target without the label cluster (deploy/prometheus sets it) can only be compared
// with all clusters together, and is left to the controllers where one of them says that it knows
// no leader: two alerts would tell of one fault.
const leaderless = `(count by (cluster) (up{job="slurm",cluster!=""} == 1) unless on (cluster) count by (cluster) (muster_ledger_events_total))` +
	` or (count(up{job="slurm",cluster=""} == 1) > 0 unless on () count(muster_ledger_events_total) unless on () count(muster_raft_leader_known == 0))` +
	` or max by (cluster) (muster_raft_leader_known) == 0`

func controlRules() []Rule {
	const g = "muster-controller"
	return append([]Rule{
		{Name: "MusterControllerDown", Group: g, Severity: Critical, For: "1m", Board: "muster-internals",
			Expr:    controllerDown,
			Summary: "The controller does not answer", Detail: "No controller{{ with $labels.cluster }} of {{ . }}{{ end }} has answered Prometheus, or pushed its metrics: nothing can be submitted, and nothing new starts. Jobs that run go on.",
			Fires: Case{[]string{slurmUp + ` 1 0x20`}, 10}, Quiet: Case{[]string{slurmUp +
				` 1x20`}, 10}},
		{Name: "MusterLeaderless", Group: g, Severity: Critical, For: "1m", Board: "muster-internals",
			Expr:    leaderless,
			Summary: "No controller leads", Detail: "Controllers answer, but none serves the cluster: they do not agree on a leader. Submissions wait; jobs that run go on.",
			Fires: Case{[]string{slurmUp + ` 1x20`}, 10}, Quiet: Case{[]string{slurmUp + ` 1x20`, `muster_ledger_events_total{cluster="lab"} 5+1x20`, `muster_raft_leader_known{cluster="lab"} 1x20`}, 10}},
		{Name: "MusterInvariantFailed", Group: g, Severity: Warning, For: "0s", Board: "muster-internals",
			Expr:    `muster_controller_invariant_failures_total > 0`,
			Summary: "A check of the cluster's state failed", Detail: "{{ $value }} sampled checks of the state's invariants have failed in {{ $labels.cluster }} since the controller started. This is a bug: keep the ledger and report it.",
			Fires: Case{[]string{`muster_controller_invariant_failures_total{cluster="lab"} 0 1x10`}, 5}, Quiet: Case{[]string{`muster_controller_invariant_failures_total{cluster="lab"} 0x10`}, 5}},
		{Name: "MusterOrphanRuns", Group: g, Severity: Warning, For: "0s", Board: "muster-internals",
			Expr:    `muster_ledger_orphan_runs > 0`,
			Summary: "Nodes run what the ledger does not know", Detail: "Nodes of {{ $labels.cluster }} have {{ $value }} runs that the ledger does not know: it was restored from an older copy. The nodes are drained. List the runs with muster runs, and put the newer ledger back, or adopt or end them with muster runs adopt and muster runs kill.",
			Fires: Case{[]string{`muster_ledger_orphan_runs{cluster="lab"} 0 3x10`}, 5}, Quiet: Case{[]string{`muster_ledger_orphan_runs{cluster="lab"} 0x10`}, 5}},
		{Name: "MusterHistoryLost", Group: g, Severity: Critical, For: "0s", Board: "muster-internals",
			Expr:    `increase(muster_ledger_history_lost_total[1h]) > 0`,
			Summary: "The ledger has lost history", Detail: "An agent has seen more of the ledger of {{ $labels.cluster }} than it holds: it was restored from an older copy. Jobs of the lost part are not known any more; their numbers are not given out again.",
			Fires: Case{[]string{`muster_ledger_history_lost_total{cluster="lab"} 0 1x10`}, 5}, Quiet: Case{[]string{`muster_ledger_history_lost_total{cluster="lab"} 1x10`}, 5}},
		{Name: "MusterWriterOverloaded", Group: g, Severity: Warning, For: "5m", Board: "muster-internals",
			Params:  []Param{{"above", Number, "500", "commands that wait for the writer"}},
			Expr:    `min_over_time(muster_controller_command_queue[5m]) > $above`,
			Summary: "The controller cannot keep up", Detail: "{{ $value | humanize }} commands have been waiting for the writer of {{ $labels.cluster }} for five minutes (limit $above). Submissions and job ends are slow.",
			Fires: Case{[]string{`muster_controller_command_queue{cluster="lab"} 900x30`}, 20}, Quiet: Case{[]string{`muster_controller_command_queue{cluster="lab"} 900 0x30`}, 20}},
		{Name: "MusterLedgerSlow", Group: g, Severity: Warning, For: "5m", Board: "muster-internals",
			Params:  []Param{{"above", Number, "0.25", "seconds from decision to durability"}},
			Expr:    `avg_over_time(muster_ledger_append_last_seconds[5m]) > $above`,
			Summary: "The ledger's disk is slow", Detail: "A batch of {{ $labels.cluster }} takes {{ $value | humanizeDuration }} to be on disk (limit $above s). Every submission waits for that.",
			Fires: Case{[]string{`muster_ledger_append_last_seconds{cluster="lab"} 0.8x30`}, 20}, Quiet: Case{[]string{`muster_ledger_append_last_seconds{cluster="lab"} 0.002x10 0.8 0.002x20`}, 20}},
		{Name: "MusterLedgerSyncFailed", Group: g, Severity: Critical, For: "0s", Once: true, Board: "muster-internals",
			Expr:    `increase(muster_raft_sync_failures_total[10m]) > 0`,
			Summary: "The ledger could not be written", Detail: "{{ $value | humanize }} writes of the ledger of {{ $labels.cluster }} failed in ten minutes: the disk is full or broken.",
			Fires: Case{[]string{`muster_raft_sync_failures_total{cluster="lab"} 0x5 1x10`}, 8}, Quiet: Case{[]string{`muster_raft_sync_failures_total{cluster="lab"} 1x15`}, 12}},
		{Name: "MusterLedgerDiskLow", Group: g, Severity: Critical, For: "2m", Board: "muster-internals",
			Params:  []Param{{"times", Number, "4", "multiple of the reserve below which it fires"}},
			Expr:    `muster_ledger_disk_free_bytes < $times * muster_ledger_disk_reserve_bytes`,
			Summary: "The ledger's disk is filling up", Detail: "{{ $value | humanize1024 }}B are left on the ledger's disk of {{ $labels.cluster }}. When only the reserve is left, submissions are refused.",
			Fires: Case{[]string{`muster_ledger_disk_free_bytes{cluster="lab"} 500e6x20`, `muster_ledger_disk_reserve_bytes{cluster="lab"} 256e6x20`}, 10},
			Quiet: Case{[]string{`muster_ledger_disk_free_bytes{cluster="lab"} 80e9x20`, `muster_ledger_disk_reserve_bytes{cluster="lab"} 256e6x20`}, 10}},
		{Name: "MusterLedgerDiskFills", Group: g, Severity: Warning, For: "1h", Board: "muster-internals",
			Params:  []Param{{"within", Number, "172800", "seconds within which only the reserve will be left"}},
			Expr:    `muster:ledger_disk_full:seconds < $within`,
			Summary: "The ledger's disk will be full", Detail: "If it fills as in the last six hours, only the reserve is left on the ledger's disk of {{ $labels.cluster }} in {{ $value | humanizeDuration }} (limit $within s); submissions are then refused.",
			// 100 MB a minute: 300 GB last two days.
			Fires: Case{[]string{`muster_ledger_disk_free_bytes{cluster="lab"} 200e9-100e6x480`, `muster_ledger_disk_reserve_bytes{cluster="lab"} 256e6x480`}, 470},
			// What a compaction gives back counts as well as what was written before it.
			Quiet: Case{[]string{`muster_ledger_disk_free_bytes{cluster="lab"} 200e9-100e6x230 200e9-100e6x230`, `muster_ledger_disk_reserve_bytes{cluster="lab"} 256e6x480`}, 470}},
		{Name: "MusterPassSlow", Group: g, Severity: Warning, For: "10m", Board: "muster-internals",
			Params:  []Param{{"above", Number, "5", "seconds of a mean pass"}},
			Expr:    `rate(muster_scheduler_pass_seconds_total[10m]) / (rate(muster_scheduler_passes_total[10m]) > 0) > $above`,
			Summary: "Scheduling passes take long", Detail: "A pass over the queue of {{ $labels.cluster }} takes {{ $value | humanizeDuration }} (limit $above s).",
			Fires: Case{[]string{`muster_scheduler_pass_seconds_total{cluster="lab"} 0+50x60`, `muster_scheduler_passes_total{cluster="lab"} 0+5x60`}, 30},
			Quiet: Case{[]string{`muster_scheduler_pass_seconds_total{cluster="lab"} 0+5x60`, `muster_scheduler_passes_total{cluster="lab"} 0+50x60`}, 30}},
	}, pipelineRules()...)
}

func pipelineRules() []Rule {
	const g = "muster-pipeline"
	return []Rule{
		{Name: "MusterAccountingDown", Group: g, Severity: Warning, For: "5m", Board: "muster-pipeline",
			Expr:    `muster_accounting_up == 0`,
			Summary: "The accounting store takes no rows", Detail: "The accounting store of {{ $labels.cluster }} does not answer. Nothing is lost, the ledger keeps everything; sacct and sreport are out of date.",
			Fires: Case{[]string{`muster_accounting_up{cluster="lab"} 1 0x20`}, 10}, Quiet: Case{[]string{`muster_accounting_up{cluster="lab"} 1x20`}, 10}},
		{Name: "MusterAccountingBehind", Group: g, Severity: Warning, For: "5m", Board: "muster-pipeline",
			Params:  []Param{{"above", Duration, "5m", "age of the oldest event that is missing"}},
			Expr:    `muster_accounting_lag_seconds > $above_seconds`,
			Summary: "Accounting is behind", Detail: "The oldest event of {{ $labels.cluster }} that is not in the accounting store is {{ $value | humanizeDuration }} old (limit $above).",
			Fires: Case{[]string{`muster_accounting_lag_seconds{cluster="lab"} 0+60x40`}, 30}, Quiet: Case{[]string{`muster_accounting_lag_seconds{cluster="lab"} 20x40`}, 30}},
		{Name: "MusterScrapeSlow", Group: g, Severity: Warning, For: "10m", Board: "muster-pipeline",
			Params:  []Param{{"above", Number, "5", "seconds"}},
			Expr:    `max by (cluster, job, instance) (avg_over_time(scrape_duration_seconds{job=~"slurm|dcgm"}[10m])) > $above`,
			Summary: "Scrapes are slow", Detail: "{{ $labels.instance }} takes {{ $value | humanizeDuration }} to answer Prometheus (limit $above s).",
			Fires: Case{[]string{`scrape_duration_seconds{job="slurm",instance="a"} 9x60`}, 30}, Quiet: Case{[]string{`scrape_duration_seconds{job="slurm",instance="a"} 0.02x60`}, 30}},
		{Name: "MusterControllerFilesLow", Group: g, Severity: Warning, For: "5m", Board: "muster-internals",
			Params:  []Param{{"above", Share, "0.8", "share of the open files it may have"}},
			Expr:    `process_open_fds{job="slurm"} / process_max_fds{job="slurm"} > $above`,
			Summary: "The controller runs out of open files", Detail: "{{ $labels.instance }} has {{ $value | humanizePercentage }} of the open files it may have.",
			Fires: Case{[]string{`process_open_fds{job="slurm",instance="a"} 950x20`, `process_max_fds{job="slurm",instance="a"} 1024x20`}, 10},
			Quiet: Case{[]string{`process_open_fds{job="slurm",instance="a"} 95x20`, `process_max_fds{job="slurm",instance="a"} 1024x20`}, 10}},
		{Name: "MusterCollectionFails", Group: g, Severity: Warning, For: "5m", Board: "muster-pipeline",
			Params:  []Param{{"above", Share, "0.5", "share of the collections"}},
			Expr:    `sum by (cluster, node, source) (increase(muster_agent_collection_errors_total[10m])) / (sum by (cluster, node, source) (increase(muster_agent_collections_total[10m])) > 5) > $above`,
			Summary: "An agent cannot read {{ $labels.source }} figures", Detail: "{{ $value | humanizePercentage }} of the collections of {{ $labels.source }} on {{ $labels.node }} failed in ten minutes.",
			Fires: Case{[]string{`muster_agent_collection_errors_total{cluster="lab",node="n1",source="gpu"} 0+6x40`, `muster_agent_collections_total{cluster="lab",node="n1",source="gpu"} 0+6x40`}, 25},
			Quiet: Case{[]string{`muster_agent_collection_errors_total{cluster="lab",node="n1",source="gpu"} 0x40`, `muster_agent_collections_total{cluster="lab",node="n1",source="gpu"} 0+6x40`}, 25}},
		{Name: "MusterReportsStuck", Group: g, Severity: Warning, For: "10m", Board: "muster-pipeline",
			Params:  []Param{{"above", Number, "20", "reports"}},
			Expr:    `min_over_time(muster_agent_reports_pending[5m]) > $above`,
			Summary: "Reports of {{ $labels.node }} do not arrive", Detail: "{{ $value | humanize }} reports of {{ $labels.node }} wait to be acknowledged: ends of jobs are not known to the controller yet.",
			Fires: Case{[]string{`muster_agent_reports_pending{cluster="lab",node="n1"} 40x40`}, 25}, Quiet: Case{[]string{`muster_agent_reports_pending{cluster="lab",node="n1"} 40 0x40`}, 25}},
	}
}
