package alerts

// gpu1 are the labels of a device in the tests.
const gpu1 = `gpu="0",UUID="GPU-1",hostname="n1",modelName="H100"`

// onHost copies the label hostname of a device's series to node, which the
// other rules and the inhibitions go by.
func onHost(expr string) string {
	return `label_replace(` + expr + `, "node", "$1", "hostname", "(.+)")`
}

// byDevice copies the label gpu_uuid of the controller's series to UUID, as
// DCGM's series and the inhibitions have it.
func byDevice(expr string) string {
	return `label_replace(` + expr + `, "UUID", "$1", "gpu_uuid", "(.+)")`
}

func gpuRules() []Rule {
	const g = "muster-gpus"
	vars := map[string]string{"node": "node"}
	return append(xidRules(g, vars), []Rule{
		{Name: "MusterGPUOffTheBus", Group: g, Severity: Warning, For: "1m", Board: "muster-gpus", Vars: vars,
			Expr:    onHost("(muster_gpu_up == 0)"),
			Summary: "GPU {{ $labels.gpu }} of {{ $labels.node }} is lost", Detail: "{{ $labels.UUID }} ({{ $labels.modelName }}) on {{ $labels.node }} does not answer any more. Jobs on it are lost, and no job gets it until it is back: reset or replace it today.",
			Fires: Case{[]string{`muster_gpu_up{` + gpu1 + `} 1 0x20`}, 8}, Quiet: Case{[]string{`muster_gpu_up{` +
				gpu1 + `} 1x20`}, 8}},
		{Name: "MusterGPUMemoryErrors", Group: g, Severity: Critical, For: "2m", Board: "muster-gpus", Vars: vars,
			// An XID 48 or 95 is the same fault, and its alert names the job.
			Expr: onHost("(increase(DCGM_FI_DEV_ECC_DBE_VOL_TOTAL[1h]) > 0 or DCGM_FI_DEV_ROW_REMAP_FAILURE > 0)") +
				" unless on (node, UUID) " +
				byDevice(`time() - muster_gpu_xid_last_timestamp_seconds{xid=~"48|95"} < 7200`) +
				" unless on (cluster, node) " + drained,
			Summary: "GPU {{ $labels.gpu }} of {{ $labels.node }} has broken memory", Detail: "{{ $labels.UUID }} on {{ $labels.node }} had double-bit errors, or could not remap a row. Results of its jobs may be wrong; drain the node.",
			Fires: Case{[]string{`DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{` + gpu1 + `} 0x5 2x20`}, 10},
			Quiet: Case{[]string{`DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{` + gpu1 + `} 0x5 2x20`, lastXID("48", "fatal") +
				` _x4 300x20`,
				`DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{cluster="lab",gpu="0",UUID="GPU-2",hostname="n2"} 0x5 2x20`, outOfService("n2") +
					` 1x20`}, 12}},
		{Name: "MusterGPUHot", Group: g, Severity: Warning, For: "5m", Board: "muster-gpus", Vars: vars,
			Params:  []Param{{"above", Number, "87", "degrees Celsius"}},
			Expr:    onHost("(DCGM_FI_DEV_GPU_TEMP > $above)"),
			Summary: "GPU {{ $labels.gpu }} of {{ $labels.node }} is hot", Detail: "{{ $labels.UUID }} on {{ $labels.node }} has {{ $value }} degrees Celsius (limit $above). Several of one node: its fans or its room.",
			Fires: Case{[]string{`DCGM_FI_DEV_GPU_TEMP{` + gpu1 + `} 60 92x20`}, 10}, Quiet: Case{[]string{`DCGM_FI_DEV_GPU_TEMP{` +
				gpu1 + `} 92 70x20`}, 10}},
		{Name: "MusterGPUThrottled", Group: g, Severity: Warning, For: "5m", Board: "muster-gpus", Vars: vars,
			Params:  []Param{{"above", Share, "0.1", "share of the time"}},
			Expr:    onHost("(rate(DCGM_FI_DEV_THERMAL_VIOLATION[5m]) / 1e9 > $above)"),
			Summary: "Heat holds GPU {{ $labels.gpu }} of {{ $labels.node }} down", Detail: "Heat held the clocks of {{ $labels.UUID }} on {{ $labels.node }} down for {{ $value | humanizePercentage }} of the time (limit $above): jobs there are slower.",
			Fires: Case{[]string{`DCGM_FI_DEV_THERMAL_VIOLATION{` + gpu1 + `} 0+30e9x30`}, 20}, Quiet: Case{[]string{`DCGM_FI_DEV_THERMAL_VIOLATION{` +
				gpu1 + `} 0+1e9x30`}, 20}},
		{Name: "MusterGPULinkErrors", Group: g, Severity: Warning, For: "0s", Board: "muster-gpus", Vars: vars,
			Params:  []Param{{"above", Number, "10", "in an hour"}},
			Expr:    onHost("(increase(DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL[1h]) + increase(DCGM_FI_DEV_PCIE_REPLAY_COUNTER[1h]) > $above)"),
			Summary: "Links of GPU {{ $labels.gpu }} of {{ $labels.node }} have errors", Detail: "{{ $labels.UUID }} on {{ $labels.node }} had {{ $value | humanize }} NVLink recoveries and PCIe replays in an hour (limit $above).",
			Fires: Case{[]string{`DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL{` + gpu1 +
				`} 0+1x60`, `DCGM_FI_DEV_PCIE_REPLAY_COUNTER{` + gpu1 + `} 0x60`}, 50},
			Quiet: Case{[]string{`DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL{` + gpu1 +
				`} 40x60`, `DCGM_FI_DEV_PCIE_REPLAY_COUNTER{` + gpu1 + `} 0x60`}, 50}},
		{Name: "MusterGPUReadingsOld", Group: g, Severity: Warning, For: "2m", Board: "muster-pipeline",
			Params:  []Param{{"above", Duration, "2m", "age of the last reading"}},
			Expr:    `time() - (muster_agent_last_collection_time_seconds > 0) > $above_seconds`,
			Summary: "GPU readings of {{ $labels.node }} are old", Detail: "The last GPU reading of {{ $labels.node }} is {{ $value | humanizeDuration }} old (limit $above): the driver hangs, or the agent does.",
			Fires: Case{[]string{`muster_agent_last_collection_time_seconds{cluster="lab",node="n1"} 10x20`}, 10}, Quiet: Case{[]string{`muster_agent_last_collection_time_seconds{cluster="lab",node="n1"} 10+60x20`}, 10}},
		{Name: "MusterGPUsUnavailable", Group: g, Severity: Warning, For: "15m", Board: "muster-gpus",
			Params:  []Param{{"above", Share, "0.1", "share of the GPUs of a type"}},
			Expr:    `sum by (cluster, type) (muster_gpus{state=~"unavailable|lost"}) / (sum by (cluster, type) (muster_gpus) > 0) > $above`,
			Summary: "GPUs are out of service", Detail: "{{ $value | humanizePercentage }} of the {{ $labels.type }} GPUs of {{ $labels.cluster }} are lost or on nodes out of service (limit $above).",
			Fires: Case{[]string{`muster_gpus{cluster="lab",type="h100",state="unavailable"} 8x40`, `muster_gpus{cluster="lab",type="h100",state="idle"} 8x40`}, 30},
			Quiet: Case{[]string{`muster_gpus{cluster="lab",type="h100",state="unavailable"} 0x40`, `muster_gpus{cluster="lab",type="h100",state="idle"} 16x40`}, 30}},
		{Name: "MusterJobGPUWarned", Group: g, Severity: Info, Audience: Users, For: "0s", Board: "muster-job", Vars: map[string]string{"job": "slurm_job_id"},
			Expr:    `count by (cluster, slurm_job_id, user, account, partition) (muster_job_gpu_idle_seconds)`,
			Summary: "Job {{ $labels.slurm_job_id }} holds {{ $value }} GPUs without a process", Detail: "No process has been on {{ $value }} GPUs of job {{ $labels.slurm_job_id }} of {{ $labels.user }} ({{ $labels.account }}) for longer than this site lets pass in silence. Others wait for them: muster why {{ $labels.slurm_job_id }} says for how long, and whether the job will be cancelled.",
			Fires: Case{[]string{`muster_job_gpu_idle_seconds{cluster="lab",slurm_job_id="7",user="ada",account="ml",partition="gpu",node="n1",gpu_uuid="GPU-1"} 1800x20`}, 5},
			Quiet: Case{[]string{`muster_job_gpu_idle_seconds{cluster="lab",slurm_job_id="7",user="ada",account="ml",partition="gpu",node="n1",gpu_uuid="GPU-1"} 1800x3 stale`}, 15}},
		{Name: "MusterJobGPUIdle", Group: g, Severity: Info, Audience: Users, For: "5m", Board: "muster-job", Vars: map[string]string{"job": "slurm_job_id"},
			Params:  []Param{{"window", Duration, "30m", "how long a device may do nothing"}, {"above", Number, "0", "GPUs of the job that do nothing"}},
			Expr:    `count by (cluster, slurm_job_id, user, account, partition) (max_over_time(DCGM_FI_DEV_GPU_UTIL{slurm_job_id!=""}[$window]) == 0 and on (UUID, slurm_job_id) DCGM_FI_DEV_GPU_UTIL{slurm_job_id!=""} and on (UUID, slurm_job_id) (DCGM_FI_DEV_GPU_UTIL{slurm_job_id!=""} offset $window)) > $above`,
			Summary: "Job {{ $labels.slurm_job_id }} holds {{ $value }} GPUs that do nothing", Detail: "{{ $value }} GPUs of job {{ $labels.slurm_job_id }} of {{ $labels.user }} ({{ $labels.account }}) have done nothing for $window. Others wait for them: scancel {{ $labels.slurm_job_id }}, or see the runbook.",
			Fires: Case{[]string{`DCGM_FI_DEV_GPU_UTIL{` + gpu1 +
				`,slurm_job_id="7",user="ada",account="ml",partition="gpu"} 0x60`}, 50},
			Quiet: Case{[]string{`DCGM_FI_DEV_GPU_UTIL{` + gpu1 +
				`,slurm_job_id="7",user="ada",account="ml",partition="gpu"} 0x20 80 0x39`, `DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-2",hostname="n1",slurm_job_id="8",user="ada",account="ml",partition="gpu"} _x35 0x25`, `DCGM_FI_DEV_GPU_UTIL{gpu="2",UUID="GPU-3",hostname="n1",slurm_job_id="9",user="ada",account="ml",partition="gpu"} 0x44 stale`}, 50}},
	}...)
}

// drained are the nodes that take no more jobs: what was to be done about a device
// of theirs at once has been done, by a person or by gpu.on_fault.
const drained = `muster_node_state_info{state=~"drained|draining|down|fail"}`

// outOfService is the series of a drained node in the tests.
func outOfService(node string) string {
	return `muster_node_state_info{cluster="lab",node="` + node + `",state="drained",reason="GPU"}`
}

// lastXID is the series of a driver error in the tests.
func lastXID(xid, class string) string {
	return `muster_gpu_xid_last_timestamp_seconds{cluster="lab",node="n1",gpu="0",gpu_uuid="GPU-1",xid="` +
		xid + `",class="` + class + `",slurm_job_id="7",user="ada"}`
}

// xidRules rise from the ledger's record of driver errors, never from DCGM's
// gauge: that keeps the last number for as long as the driver runs, under the
// name of whoever holds the device now.
func xidRules(group string, vars map[string]string) []Rule {
	news := Param{"window", Duration, "1h", "how long an error is news"}
	recent := func(class string) string {
		return byDevice(`time() - muster_gpu_xid_last_timestamp_seconds{class` + class +
			`} < $window_seconds`)
	}
	// A device that fell off the bus is reported by MusterGPUOffTheBus, which
	// lasts for as long as the device is away.
	lost := "unless on (node, UUID) " + onHost("(min_over_time(muster_gpu_up[$window]) == 0)")
	const struck = "{{ with $labels.slurm_job_id }} It struck job {{ . }} of {{ $labels.user }}.{{ else }} No job held the device alone.{{ end }}"
	const summary = "GPU {{ $labels.gpu }} of {{ $labels.node }}: driver error {{ $labels.xid }}"
	const reported = "The driver reported XID {{ $labels.xid }} for {{ $labels.UUID }} on {{ $labels.node }} {{ $value | humanizeDuration }} ago."
	return []Rule{
		{Name: "MusterGPUXID", Once: true, Group: group, Severity: Critical, For: "30s", Board: "muster-gpus", Vars: vars, Params: []Param{news},
			Expr: recent(`="fatal"`) + " " + lost + " unless on (cluster, node) " + drained, Summary: summary,
			Detail: reported + struck + " The device must not be used: drain the node.",
			Fires:  Case{[]string{lastXID("48", "fatal") + ` _x4 300x40`}, 8},
			// Another job on the device does not make an old error news.
			Quiet: Case{[]string{lastXID("79", "fatal") + ` _x4 300x40`, `muster_gpu_up{` + gpu1 +
				`} 1x4 0x40`, `DCGM_FI_DEV_XID_ERRORS{` + gpu1 + `} 48x90`,
				`muster_gpu_xid_last_timestamp_seconds{cluster="lab",node="n2",gpu="0",gpu_uuid="GPU-2",xid="48",class="fatal"} _x4 300x40`, outOfService("n2") +
					` 1x40`}, 20}},
		{Name: "MusterGPUXIDOfDevice", Once: true, Group: group, Severity: Warning, For: "0s", Board: "muster-gpus", Vars: vars, Params: []Param{news},
			// A fatal error on a node that is drained already has time until the day.
			Expr: recent(`=~"memory|link|driver|unknown"`) + " or (" + recent(`="fatal"`) +
				" " + lost + " and on (cluster, node) " + drained + ")",
			Summary: summary,
			Detail: reported + struck +
				" It concerns the device (class {{ $labels.class }}): reset or replace it today.",
			Fires: Case{[]string{lastXID("63", "memory") + ` _x4 300x40`}, 8}, Quiet: Case{[]string{lastXID("31", "application") +
				` _x4 300x40`}, 8}},
		{Name: "MusterGPUXIDOfProgram", Once: true, Group: group, Severity: Info, For: "0s", Board: "muster-gpus", Vars: vars, Params: []Param{news},
			Expr: recent(`="application"`), Summary: summary,
			Detail: reported + struck +
				" Mostly that is the program; several jobs on one device are the device.",
			Fires: Case{[]string{lastXID("31", "application") + ` _x4 300x40`}, 8}, Quiet: Case{[]string{lastXID("31", "application") +
				` 0x90`}, 80}},
	}
}
