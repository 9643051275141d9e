package dashboards

func gpusBoard() Board {
	const of = `cluster=~"$cluster|",hostname=~"$node"`
	return Board{UID: GPUs, Title: "Muster / GPU fleet", Vars: []Var{clusterVar(), nodeVar()},
		Description: "All devices: who holds them, whether they work, and whether they are well.",
		Rows: []Row{
			{Title: "Now", Panels: []Panel{
				figurePanel("GPUs", "Devices that answer.", Count, `count(muster_gpu_up{`+of+
					`,GPU_I_PROFILE=""} == 1)`),
				figurePanel(
					"Lost",
					"Devices that do not answer. Each is a node to drain: see the runbook of GPUOffTheBus.",
					Count,
					`count(muster_gpu_up{`+
						of+`,GPU_I_PROFILE=""} == 0)`,
				).colored(Green, Step{1, Red}).
					empty("every device answers"),
				figurePanel(
					"Held by jobs",
					"Share of the devices that jobs hold, or parts of which they hold.",
					Ratio,
					`count(count by (UUID) (muster_gpu_job_info{`+
						of+`})) / count(count by (UUID) (muster_gpu_up{`+of+`}))`,
				).top(1).
					empty("no job holds a GPU"),
				figurePanel(
					"Held but idle",
					"Devices that a job holds and that have done nothing for ten minutes, or since the job got them.",
					Count,
					`count(`+heldIdle(
						of,
					)+`)`,
				).colored(Green, Step{1, Orange}).
					empty("every device that is held works"),
				figurePanel(
					"Utilisation of held devices",
					"Mean utilisation of the devices that jobs hold.",
					Ratio,
					`avg(DCGM_FI_DEV_GPU_UTIL{`+
						of+`,slurm_job_id!=""}) / 100`,
				).
					colored(Red, Step{0.3, Orange}, Step{0.6, Green}).
					top(1).
					empty("no job holds a GPU"),
				figurePanel("Power", "What they draw now.", Watts, `sum(DCGM_FI_DEV_POWER_USAGE{`+of+
					`})`).linked(Energy, "", ""),
			}},
			{Title: "Use", Panels: gpuUse(of)},
			{Title: "Layout", Panels: gpuLayout(of)},
			{Title: "Health", Panels: gpuHealth(of)},
			{Title: "History (from the accounting store)", Panels: []Panel{
				sqlSeries(
					"GPU-hours held and not used, from the samples",
					"By user, in each quarter of an hour: time in which a job held a device alone and there was no process on it, or none that did anything. Runs that go on are in it.",
					GPUHours,
					`SELECT at AS time, user, sum(no_process_s + idle_s) / 3600 AS idle FROM `+
						withinView("gpu_quarters_within")+
						` WHERE user != '' AND $__conditionalAll(node IN (${node:singlequote}), $node) GROUP BY time, user HAVING idle > 0 ORDER BY time`,
				).
					wide(12).
					empty("every device that was held worked"),
				sqlTable(
					"Users by idle GPU time",
					"Who held devices longest without using them in the dashboard's time, runs that go on up to now; `muster report idle` says the same.",
					`SELECT user, sum(no_process_s + idle_s) AS idle, sum(no_process_s) AS "no process", sum(measured_s) AS measured, idle / nullIf(measured, 0) AS part FROM `+
						withinView(
							"gpu_runs_within",
						)+
						` GROUP BY user HAVING idle > 0 ORDER BY idle DESC LIMIT 20`,
				).
					units(map[string]Unit{"idle": Seconds, "no process": Seconds, "measured": Seconds, "part": Ratio}).
					linked(People, "user", "user").
					wide(12).
					empty("every device that was held worked"),
				sqlTable(
					"Devices by idle time",
					"Devices by the time they were held without work in the dashboard's time, runs that go on up to now. One device far ahead of its neighbours may be broken rather than unused.",
					`SELECT node, gpu_index AS gpu, any(gpu_type) AS type, uniqExact(uid) AS jobs, sum(busy_s) AS busy, sum(no_process_s + idle_s) AS "held idle", sum(util_s) / nullIf(sum(held_s), 0) AS utilisation, sum(energy_j) AS energy, sum(xids) AS XIDs FROM `+
						withinView(
							"gpus_within",
						)+
						` WHERE $__conditionalAll(node IN (${node:singlequote}), $node) GROUP BY node, gpu ORDER BY "held idle" DESC LIMIT 50`,
				).
					units(map[string]Unit{"busy": Seconds, "held idle": Seconds, "utilisation": Ratio, "energy": Joules}).
					linked(Node, "node", "node").
					empty("no job held a GPU in the dashboard's time"),
			}},
		}}
}

// heldIdle are the devices that a job holds now and that did nothing lately. A
// job that is over is not in it, though its series still lie in the range.
func heldIdle(of string) string {
	held := `DCGM_FI_DEV_GPU_UTIL{` + of + `,slurm_job_id!=""}`
	return `max_over_time(` + held + `[10m]) == 0 and on (UUID, slurm_job_id) ` + held
}

func gpuUse(of string) []Panel {
	return []Panel{
		{
			Title:       "Utilisation of each device over time",
			Kind:        HeatMap,
			Unit:        Percent,
			Max:         100,
			Height:      10,
			Description: "A line for each device. A dark line that the panel below names as held is an allocation that does nothing.",
			Queries: []Query{{Expr: `max by (hostname, gpu) (DCGM_FI_DEV_GPU_UTIL{` + of +
				`})`, Legend: "{{hostname}} {{gpu}}"}},
		},
		{Title: "Held but idle", Kind: Table, Unit: Percent, Column: "utilisation", Width: 12,
			Description: "Devices that a job holds and whose utilisation was 0 for ten minutes, or since the job got them, with who holds them.",
			Queries:     []Query{{Expr: heldIdle(of)}},
			Links: []Link{
				{Board: Job, Var: "job", Label: "slurm_job_id"},
				{Board: People, Var: "user", Label: "user"},
			}, MayBeEmpty: "every device that is held works"},
		stackPanel(
			"By type and state",
			"Devices by type and what they are given to. One type full while another idles: jobs ask for the wrong one.",
			Count,
			Query{
				Expr:   `sum by (type, state) (muster_gpus{cluster="$cluster"})`,
				Legend: "{{type}} {{state}}",
			},
		),
		linePanel(
			"Multiprocessors and tensor cores",
			"Part of the cycles in which the multiprocessors, and the tensor cores, of held devices had work.",
			Ratio,
			Query{
				Expr:   `avg(DCGM_FI_PROF_SM_ACTIVE{` + of + `,slurm_job_id!=""})`,
				Legend: "SM active",
			},
			Query{
				Expr:   `avg(DCGM_FI_PROF_SM_OCCUPANCY{` + of + `,slurm_job_id!=""})`,
				Legend: "SM occupancy",
			},
			Query{
				Expr:   `avg(DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{` + of + `,slurm_job_id!=""})`,
				Legend: "tensor",
			},
			Query{
				Expr:   `avg(DCGM_FI_PROF_DRAM_ACTIVE{` + of + `,slurm_job_id!=""})`,
				Legend: "memory",
			},
		).top(1).
			empty("no job holds a GPU"),
		stackPanel(
			"What is seen on held devices",
			"Devices by what was seen on them: no process, a process that did nothing, or work.",
			Count,
			Query{
				Expr:   `sum by (state) (rate(muster_job_gpu_seconds_total{cluster="$cluster",node=~"$node"}[$__rate_interval]))`,
				Legend: "{{state}}",
			},
		).empty("no job holds a GPU"),
		linePanel("Memory in use", "Part of each node's GPU memory that is in use.", Ratio,
			Query{Expr: `sum by (hostname) (DCGM_FI_DEV_FB_USED{` + of +
				`}) / sum by (hostname) (DCGM_FI_DEV_FB_USED{` + of +
				`} + DCGM_FI_DEV_FB_FREE{` + of + `} + DCGM_FI_DEV_FB_RESERVED{` + of + `})`, Legend: "{{hostname}}"}).top(1),
		linePanel("PCIe and NVLink", "Traffic of the devices.", ByteRate,
			Query{Expr: `sum(DCGM_FI_PROF_PCIE_RX_BYTES{` + of +
				`} + DCGM_FI_PROF_PCIE_TX_BYTES{` + of + `})`, Legend: "PCIe"},
			Query{Expr: `sum(DCGM_FI_PROF_NVLINK_RX_BYTES{` + of +
				`} + DCGM_FI_PROF_NVLINK_TX_BYTES{` + of + `})`, Legend: "NVLink"}),
	}
}

// gpuLayout shows how devices hang together and how they are cut up.
func gpuLayout(of string) []Panel {
	const links, held = `muster_gpu_link_info`, `count by (hostname, UUID) (muster_gpu_job_info)`
	return []Panel{
		{
			Title:       "NVLink domains",
			Kind:        Table,
			Unit:        Count,
			Column:      "devices",
			Width:       12,
			MayBeEmpty:  "the nodes have no GPU",
			Description: "Devices of each NVLink domain (named by its lowest index) with the best link among them. A node whose domains are smaller than its neighbours' has lost a link or a switch.",
			Queries: []Query{{Expr: `count by (hostname, domain, link) (` + links + `{` + of +
				`})`}},
			Links: []Link{{Board: Node, Var: "node", Label: "hostname"}},
		},
		barPanel(
			"Free devices of each NVLink domain",
			"What a job that needs NVLink between all of its GPUs can get: the longest bar. Many short ones: the fleet is fragmented.",
			Count,
			`sort_desc(count by (hostname, domain) (`+links+`{`+of+
				`} unless on (hostname, UUID) `+held+`))`,
			"{{hostname}} domain {{domain}}",
		).empty("every device is held"),
		{
			Title:       "MIG layout",
			Kind:        Table,
			Unit:        Count,
			Column:      "instances",
			Width:       12,
			Description: "How devices are cut up: instances by device and profile.",
			Queries: []Query{{Expr: `count by (hostname, gpu, GPU_I_PROFILE) (muster_gpu_up{` +
				of + `,GPU_I_PROFILE!=""})`}},
			Links:      []Link{{Board: Node, Var: "node", Label: "hostname"}},
			MayBeEmpty: "no device is cut into MIG instances",
		},
		barPanel(
			"MIG instances held",
			"Part of the instances of each profile that jobs hold. One profile full while another idles: cut the devices anew.",
			Ratio,
			`(count by (GPU_I_PROFILE) (muster_gpu_job_info{`+of+
				`,GPU_I_PROFILE!=""}) or 0 * count by (GPU_I_PROFILE) (muster_gpu_up{`+of+
				`,GPU_I_PROFILE!=""})) / count by (GPU_I_PROFILE) (muster_gpu_up{`+of+
				`,GPU_I_PROFILE!=""})`,
			"{{GPU_I_PROFILE}}",
		).top(1).
			empty("no device is cut into MIG instances"),
	}
}

func gpuHealth(of string) []Panel {
	return []Panel{
		{
			Title:       "Driver errors (XID)",
			Kind:        Table,
			Unit:        Seconds,
			Column:      "last seen, ago",
			Width:       12,
			Description: "Errors of the driver by device, newest first, with the job that they struck. Class fatal: drain the node. memory, link, driver: the device, today. application: mostly the program.",
			Queries: []Query{
				{
					Expr: `sort(time() - muster_gpu_xid_last_timestamp_seconds{cluster="$cluster",node=~"$node"})`,
				},
			},
			Links: []Link{
				{Board: Job, Var: "job", Label: "slurm_job_id"},
				{Board: Node, Var: "node", Label: "node"},
			},
			MayBeEmpty: "no driver error has been seen",
		},
		linePanel(
			"GPU events seen by the agents",
			"Events by kind over ten minutes: errors, lost devices, throttling.",
			Count,
			Query{
				Expr:   `sum by (node, kind) (increase(muster_agent_gpu_events_total{cluster="$cluster",node=~"$node"}[10m]))`,
				Legend: "{{node}} {{kind}}",
			},
		),
		linePanel(
			"Temperature",
			"Hottest device of each node: core and memory.",
			Celsius,
			Query{
				Expr:   `max by (hostname) (DCGM_FI_DEV_GPU_TEMP{` + of + `})`,
				Legend: "{{hostname}} core",
			},
			Query{
				Expr:   `max by (hostname) (DCGM_FI_DEV_MEMORY_TEMP{` + of + `})`,
				Legend: "{{hostname}} memory",
			},
		).colored(Green, Step{80, Orange}, Step{90, Red}),
		linePanel(
			"Clocks held down",
			"Part of the time in which the clocks were held down by heat or by the power limit.",
			Ratio,
			Query{Expr: `sum by (hostname) (rate(DCGM_FI_DEV_THERMAL_VIOLATION{` + of +
				`}[$__rate_interval])) / 1e9`, Legend: "{{hostname}} heat"},
			Query{Expr: `sum by (hostname) (rate(DCGM_FI_DEV_POWER_VIOLATION{` + of +
				`}[$__rate_interval])) / 1e9`, Legend: "{{hostname}} power"},
		),
		linePanel(
			"Memory errors",
			"Double-bit errors and remapped rows over the life of the devices. Any increase of double-bit errors: drain the node.",
			Count,
			Query{
				Expr:   `sum by (hostname) (DCGM_FI_DEV_ECC_DBE_AGG_TOTAL{` + of + `})`,
				Legend: "{{hostname}} double-bit",
			},
			Query{
				Expr:   `sum by (hostname) (DCGM_FI_DEV_ECC_SBE_AGG_TOTAL{` + of + `})`,
				Legend: "{{hostname}} single-bit",
			},
			Query{Expr: `sum by (hostname) (DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS{` + of +
				`})`, Legend: "{{hostname}} rows remapped"},
		),
		linePanel(
			"NVLink and PCIe errors",
			"Errors on the links over an hour. Steady replay errors: a cable, a riser or a seat.",
			Count,
			Query{
				Expr: `sum by (hostname) (increase(DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL{` +
					of + `}[1h]))`,
				Legend: "{{hostname}} NVLink recoveries",
			},
			Query{Expr: `sum by (hostname) (increase(DCGM_FI_DEV_PCIE_REPLAY_COUNTER{` + of +
				`}[1h]))`, Legend: "{{hostname}} PCIe replays"},
		),
	}
}

func energyBoard() Board {
	const of = `cluster="$cluster"`
	return Board{
		UID:         Energy,
		Title:       "Muster / Energy, carbon and cost",
		From:        "now-24h",
		Vars:        []Var{clusterVar(), nodeVar()},
		Description: "What the GPUs draw and for whom. From the devices' own counters; CPUs, fans and cooling are not in it. Carbon and cost need their settings in muster.yaml (cost).",
		Rows: []Row{
			{Title: "Power", Panels: []Panel{
				stackPanel(
					"Power by node",
					"What the GPUs of each node draw.",
					Watts,
					Query{
						Expr:   `sum by (hostname) (DCGM_FI_DEV_POWER_USAGE{cluster=~"$cluster|",hostname=~"$node"})`,
						Legend: "{{hostname}}",
					},
				),
				stackPanel(
					"Power by account",
					"What the GPUs draw for the jobs of each account, from the jobs' energy counters.",
					Watts,
					Query{Expr: `sum by (account) (rate(muster_job_gpu_energy_joules_total{` +
						of + `,node=~"$node"}[$__rate_interval]))`, Legend: "{{account}}"},
				).empty("no job holds a GPU"),
				linePanel(
					"Power against the limit",
					"What the devices draw, by their power limits.",
					Ratio,
					Query{
						Expr:   `sum by (hostname) (DCGM_FI_DEV_POWER_USAGE{cluster=~"$cluster|",hostname=~"$node"}) / sum by (hostname) (DCGM_FI_DEV_POWER_MGMT_LIMIT{cluster=~"$cluster|",hostname=~"$node"})`,
						Legend: "{{hostname}}",
					},
				).top(1),
				linePanel(
					"Power of idle devices",
					"What devices draw that no job holds.",
					Watts,
					Query{
						Expr:   `sum by (hostname) (DCGM_FI_DEV_POWER_USAGE{cluster=~"$cluster|",hostname=~"$node",slurm_job_id=""})`,
						Legend: "{{hostname}}",
					},
				).
					empty("every device is held"),
			}},
			{Title: "Energy", Panels: []Panel{
				barPanel(
					"Energy by node, dashboard's time",
					"From the devices' energy counters.",
					Joules,
					`sum by (hostname) (increase(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{cluster=~"$cluster|",hostname=~"$node"}[$__range])) / 1000`,
					"{{hostname}}",
				),
				barPanel(
					"Energy of runs by account, 7 days",
					"Energy of the nodes' part that the runs held, and of their devices, as far as it was measured.",
					Joules,
					`topk(15, muster_kpi_energy_joules{`+
						of+`,by="account",window="7d"})`,
					"{{key}}",
				).
					linked(People, "account", "key"),
				barPanel(
					"Carbon by account, 7 days",
					"Kilograms of CO2 equivalent: energy times the carbon intensity of the day, times the site's overhead.",
					KgCO2,
					`topk(15, muster_kpi_carbon_grams{`+
						of+`,by="account",window="7d"} / 1000 > 0)`,
					"{{key}}",
				).
					linked(People, "account", "key").
					empty("no carbon intensity is set (cost in muster.yaml)"),
				barPanel(
					"Cost by account, 7 days",
					"What was allocated times the prices of the day, in the site's currency.",
					Count,
					`topk(15, muster_kpi_cost{`+
						of+`,by="account",window="7d"} > 0)`,
					"{{key}}",
				).
					linked(People, "account", "key").
					empty("no prices are set (cost in muster.yaml)"),
				// Over 2.9 million rows this takes 1.0 s of CPU, and 1.4 s with uniqExact, which
				// hashes the UUID of every row.
				sqlTable(
					"Energy by account and user",
					"Energy of the GPUs that runs held in the dashboard's time, those that go on up to now, and how much of it went into devices without work (shared out by time).",
					`SELECT account, user, sum(energy_j) / 3.6e6 AS kWh, sum(energy_j * (no_process_s + idle_s) / nullIf(no_process_s + idle_s + busy_s, 0)) / 3.6e6 AS "idle kWh", length(groupUniqArray(gpu_uuid)) AS devices FROM `+
						withinView(
							"gpus_within",
						)+
						` WHERE isNotNull(energy_j) GROUP BY account, user ORDER BY kWh DESC LIMIT 50`,
				).
					units(map[string]Unit{"kWh": KWh, "idle kWh": KWh}).
					wide(24).
					linked(People, "user", "user").
					empty("no run held a GPU in the dashboard's time"),
			}},
		},
	}
}
