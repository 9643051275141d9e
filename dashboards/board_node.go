package dashboards

func nodeBoard() Board {
	const of = `cluster="$cluster",node=~"$node"`
	return Board{UID: Node, Title: "Muster / Nodes", Vars: []Var{clusterVar(), nodeVar()},
		Description: "The machines: what they are doing, what they have left, and what happened to them.",
		Rows: []Row{
			{Title: "State", Panels: []Panel{
				{Title: "Out of service for", Kind: Table, Unit: Seconds, Column: "for", Width: 12, Queries: []Query{{Expr: `time() - muster_node_drained_since_timestamp_seconds{` +
					of + `}`}},
					Description: "Nodes that are drained or down, for how long and why. Back into service: `scontrol update nodename=NODE state=resume`.", MayBeEmpty: "no node is out of service"},
				{Title: "Agents", Kind: States, Unit: Count, UpDown: true, Width: 12, Good: Red, Steps: []Step{{1, Green}}, Queries: []Query{{Expr: `max by (node) (muster_agent_controller_connected{` +
					of + `})`, Legend: "{{node}}"}},
					Description: "Whether a node's agent has its stream to the controller. A gap is a node whose metrics were not reached at all."},
				{Title: "Health rules", Kind: Table, Unit: Count, Column: "failing", Width: 12, Good: Green, Steps: []Step{{1, Red}}, Queries: []Query{{Expr: `topk(200, muster_node_health_failed{` +
					of + `} * on (cluster, node, rule) group_left (action, back) max by (cluster, node, rule, action, back) (muster_node_health_rule_info{` + of + `}))`}},
					Description: "For how many things of a node (file systems, GPUs, ports) each rule of its health checks fails now, what follows (action) and when it holds again (back). A node that a " +
						"rule drains has the rule as its reason under Out of service for, and takes jobs again by itself when the rule holds. docs/node-health.md lists limits, muster_node_health_value has the worst value."},
				linePanel("Failing health rules by node", "How many health rules fail on each node. A node that comes and goes has a fault that heals for a while.", Count,
					Query{Expr: `sum by (node) (muster_node_health_failed{` + of + `} > bool 0)`, Legend: "{{node}}"}).colored(Green, Step{1, Orange}),
				linePanel("Jobs on the node", "Jobs that run on each node.", Count, Query{Expr: `muster_agent_jobs{` +
					of + `}`, Legend: "{{node}}"}),
				linePanel("Time since the node was started", "Since the node's last boot. A saw tooth is a node that restarts.", Seconds, Query{Expr: `time() - muster_node_boot_time_seconds{` +
					of + `}`, Legend: "{{node}}"}),
			}},
			{Title: "CPU, memory, disk", Panels: []Panel{
				linePanel("CPU busy", "Part of the node's CPU time that was not idle. Jobs and everything else.", Ratio,
					Query{Expr: `1 - sum by (node) (rate(muster_node_cpu_seconds_total{` + of +
						`,mode=~"idle|iowait"}[$__rate_interval])) / sum by (node) (rate(muster_node_cpu_seconds_total{` +
						of + `}[$__rate_interval]))`, Legend: "{{node}}"}).top(1),
				stackPanel("CPU time by kind", "CPU time of the chosen nodes by kind. Much system or iowait: a file system or the network is slow.", Count,
					Query{Expr: `sum by (mode) (rate(muster_node_cpu_seconds_total{` + of +
						`,mode!="idle"}[$__rate_interval]))`, Legend: "{{mode}}"}),
				linePanel("Load", "Load average of a minute by CPUs. Above 1 for long: more runs than there are CPUs.", Ratio,
					Query{Expr: `muster_node_load{` + of +
						`,window="1m"} / on (cluster, node) muster_node_cpus{` + of + `}`, Legend: "{{node}}"}).colored(Green, Step{1, Orange}, Step{2, Red}),
				linePanel("Memory left", "Memory that programs could still get, by all.", Ratio, Query{Expr: `muster_node_memory_available_bytes{` +
					of + `} / muster_node_memory_bytes{` + of + `}`, Legend: "{{node}}"}).
					colored(Red, Step{0.05, Orange}, Step{0.1, Green}).top(1),
				linePanel("Scratch disk left", "Space left on the file system of TmpFS, by all.", Ratio, Query{Expr: `muster_node_tmp_disk_available_bytes{` +
					of + `} / muster_node_tmp_disk_bytes{` + of + `}`, Legend: "{{node}}"}).
					colored(Red, Step{0.05, Orange}, Step{0.1, Green}).top(1),
				linePanel("Memory held by jobs", "Memory of the jobs' own, by node. What is left of the node's use belongs to nobody's job.", Bytes,
					Query{Expr: `sum by (node) (muster_job_memory_bytes{` + of + `})`, Legend: "{{node}}"}).empty("nothing runs"),
			}},
			{Title: "GPUs", Panels: []Panel{
				{Title: "Utilisation", Kind: HeatMap, Unit: Percent, Max: 100, Width: 12, Description: "A line for each device of the chosen nodes.", MayBeEmpty: "the nodes have no GPU",
					Queries: []Query{{Expr: `max by (hostname, gpu) (DCGM_FI_DEV_GPU_UTIL{cluster=~"$cluster|",hostname=~"$node"})`, Legend: "{{hostname}} {{gpu}}"}}},
				linePanel("Power", "What the GPUs of each node draw.", Watts, Query{Expr: `sum by (hostname) (DCGM_FI_DEV_POWER_USAGE{cluster=~"$cluster|",hostname=~"$node"})`, Legend: "{{hostname}}"}).empty("the nodes have no GPU"),
			}},
			{Title: "History (from the accounting store)", Panels: []Panel{
				sqlTable("What happened to the nodes", "Changes of state with their reason and author, newest first.",
					`SELECT at, node, state, reason, by FROM node_states WHERE $__timeFilter(at) AND NOT restated AND cluster = ${cluster:singlequote} AND $__conditionalAll(node IN (${node:singlequote}), $node) ORDER BY at DESC, seq DESC LIMIT 100`).
					units(map[string]Unit{"at": When}).wide(12),
				sqlTable("Runs on the nodes", "The runs that held these nodes in the dashboard's time, the newest first; of those that go on, what was sampled so far.",
					`SELECT job_id AS job, node, user, account, from, until, cpus AS CPUs, gpus AS GPUs, cpu_s AS "CPU time", lost FROM `+
						withinView("nodes_within")+
						` WHERE $__conditionalAll(node IN (${node:singlequote}), $node) ORDER BY until DESC LIMIT 100`).
					units(map[string]Unit{"from": When, "until": When, "CPU time": Seconds}).wide(12).linked(Job, "job", "job").empty("no run held these nodes"),
			}},
		}}
}
