package alerts

func nodeRules() []Rule {
	const g = "muster-nodes"
	onNode := map[string]string{"node": "node"}
	return []Rule{
		{Name: "MusterAgentDown", Group: g, Severity: Warning, For: "5m", Board: "muster-node", Vars: onNode,
			Expr:    `label_replace(up{job="dcgm"} == 0, "node", "$1", "instance", "([^:]+).*")`,
			Summary: "The agent of {{ $labels.node }} does not answer Prometheus", Detail: "{{ $labels.instance }} has not answered Prometheus: the node is down, or its agent is. The figures of its GPUs and jobs are missing.",
			Fires: Case{[]string{`up{job="dcgm",instance="n1:9400"} 1 0x20`}, 10}, Quiet: Case{[]string{`up{job="dcgm",instance="n1:9400"} 1x20`}, 10}},
		{Name: "MusterAgentsLost", Group: g, Severity: Critical, For: "2m", Board: "muster-pipeline",
			Params: []Param{{"above", Share, "0.2", "share of the agents that are expected and not connected"}, {"least", Number, "3", "agents"}},
			// Nodes that are powered down are not expected. A node or two are
			// MusterNodesDown, which names them.
			Expr: `1 - sum by (cluster) (muster_agents_connected) / (sum by (cluster) (muster_agents{state=~"connected|silent"}) > 0) > $above` +
				` and on (cluster) sum by (cluster) (muster_agents{state=~"connected|silent"}) - on (cluster) sum by (cluster) (muster_agents_connected) >= $least`,
			Summary: "Many agents are gone", Detail: "{{ $value | humanizePercentage }} of the agents of {{ $labels.cluster }} are not connected (limit $above). Think of the network or of a switch before the nodes.",
			Fires: Case{[]string{`muster_agents_connected{cluster="lab"} 10 3x20`, `muster_agents{cluster="lab",state="connected"} 10x20`}, 10},
			// One of four is a node, not the network.
			Quiet: Case{[]string{`muster_agents_connected{cluster="lab"} 4 3x20`, `muster_agents{cluster="lab",state="connected"} 4x20`}, 10}},
		{Name: "MusterAgentDisconnected", Group: g, Severity: Warning, For: "3m", Board: "muster-node", Vars: onNode,
			Expr:    `muster_agent_controller_connected == 0`,
			Summary: "{{ $labels.node }} has lost the controller", Detail: "The agent of {{ $labels.node }} answers Prometheus but has no stream to the controller: nothing starts there. Its jobs go on and report later.",
			Fires: Case{[]string{`muster_agent_controller_connected{cluster="lab",node="n1"} 1 0x20`}, 10}, Quiet: Case{[]string{`muster_agent_controller_connected{cluster="lab",node="n1"} 1x20`}, 10}},
		{Name: "MusterShepherdDown", Group: g, Severity: Warning, For: "2m", Board: "muster-node", Vars: onNode,
			Expr:    `muster_agent_shepherd_up == 0`,
			Summary: "The process that owns the jobs of {{ $labels.node }} is gone", Detail: "The shepherd of {{ $labels.node }} does not answer: jobs that run go on, nothing new starts there, and exits may become unknown.",
			Fires: Case{[]string{`muster_agent_shepherd_up{cluster="lab",node="n1"} 1 0x20`}, 10}, Quiet: Case{[]string{`muster_agent_shepherd_up{cluster="lab",node="n1"} 1x20`}, 10}},
		{Name: "MusterNodesDown", Group: g, Severity: Warning, For: "5m", Board: "muster-node", Vars: onNode,
			Expr:    `muster_node_state_info{state=~"down|fail|unknown"} == 1`,
			Summary: "{{ $labels.node }} is {{ $labels.state }}", Detail: "{{ $labels.node }} of {{ $labels.cluster }} is {{ $labels.state }}{{ with $labels.reason }}: {{ . }}{{ end }}. Its jobs have ended or are queued again.",
			Fires: Case{[]string{`muster_node_state_info{cluster="lab",node="n1",state="down",reason="Not responding"} 1x20`}, 10}, Quiet: Case{[]string{`muster_node_state_info{cluster="lab",node="n1",state="drained",reason="fan"} 1x20`}, 10}},
		{Name: "MusterManyNodesOut", Group: g, Severity: Critical, For: "5m", Board: "muster-node",
			Params: []Param{{"above", Share, "0.2", "share of the nodes"}, {"least", Number, "3", "nodes"}},
			// Drained nodes were taken out by somebody: that wakes nobody up.
			Expr:    `sum by (cluster) (muster_nodes{state=~"down|fail|unknown"}) / sum by (cluster) (muster_nodes) > $above and sum by (cluster) (muster_nodes{state=~"down|fail|unknown"}) >= $least`,
			Summary: "A large part of the cluster is down", Detail: "{{ $value | humanizePercentage }} of the nodes of {{ $labels.cluster }} are down (limit $above).",
			Fires: Case{[]string{`muster_nodes{cluster="lab",state="down"} 3x20`, `muster_nodes{cluster="lab",state="idle"} 5x20`}, 10},
			Quiet: Case{[]string{`muster_nodes{cluster="lab",state="down"} 1x20`, `muster_nodes{cluster="lab",state="drained"} 6x20`, `muster_nodes{cluster="lab",state="idle"} 2x20`}, 10}},
		{Name: "MusterNodeDrainedLong", Group: g, Severity: Info, For: "10m", Board: "muster-node", Vars: onNode,
			Params:  []Param{{"above", Duration, "3d", "time out of service"}},
			Expr:    `time() - muster_node_drained_since_timestamp_seconds > $above_seconds`,
			Summary: "{{ $labels.node }} has been out of service for long", Detail: "{{ $labels.node }} has been drained or down for {{ $value | humanizeDuration }}: {{ $labels.reason }}. Was it forgotten?",
			Fires: Case{[]string{`muster_node_drained_since_timestamp_seconds{cluster="lab",node="n1",reason="fan"} -400000x30`}, 20},
			Quiet: Case{[]string{`muster_node_drained_since_timestamp_seconds{cluster="lab",node="n1",reason="fan"} 0x30`}, 20}},
		{Name: "MusterNodeFlapping", Group: g, Severity: Warning, For: "0s", Board: "muster-node", Vars: onNode,
			Params: []Param{{"above", Number, "4", "changes in the window"}, {"window", Duration, "1h", "window"}},
			// Each restart of the controller costs every agent two changes.
			Expr: `sum by (cluster, node) (changes(muster_agent_controller_connected[$window]))` +
				` - on (cluster) group_left () (2 * (max by (cluster) (changes(process_start_time_seconds{job="slurm"}[$window])) or 0 * max by (cluster) (muster_agents_connected))) > $above`,
			Summary: "{{ $labels.node }} comes and goes", Detail: "The agent of {{ $labels.node }} lost or found the controller {{ $value }} times in $window beyond restarts of the controller (limit $above): a network that flaps, or a node that restarts.",
			Fires: Case{[]string{`muster_agents_connected{cluster="lab"} 4x40`, `muster_agent_controller_connected{cluster="lab",node="n1"} 1 0 1 0 1 0 1 0 1 1x20`}, 20},
			Quiet: Case{[]string{`muster_agents_connected{cluster="lab"} 4x40`, `process_start_time_seconds{cluster="lab",job="slurm"} 1 1 2 2 3 3 4x25`, `muster_agent_controller_connected{cluster="lab",node="n1"} 1 1 0 1 0 1 0 1x25`}, 20}},
		{Name: "MusterNodeRestarted", Group: g, Severity: Info, For: "0s", Once: true, Board: "muster-node", Vars: onNode,
			Params:  []Param{{"window", Duration, "30m", "window"}},
			Expr:    `changes(muster_node_boot_time_seconds[$window]) > 0`,
			Summary: "{{ $labels.node }} was restarted", Detail: "{{ $labels.node }} was booted in the last $window. If nobody did it, look for a crash.",
			Fires: Case{[]string{`muster_node_boot_time_seconds{cluster="lab",node="n1"} 100x5 700x10`}, 12}, Quiet: Case{[]string{`muster_node_boot_time_seconds{cluster="lab",node="n1"} 100x15`}, 12}},
		{Name: "MusterNodeMemoryLow", Group: g, Severity: Warning, For: "5m", Board: "muster-node", Vars: onNode,
			Params:  []Param{{"below", Share, "0.03", "share of the memory that programs could still get"}},
			Expr:    `muster_node_memory_available_bytes / muster_node_memory_bytes < $below`,
			Summary: "{{ $labels.node }} runs out of memory", Detail: "Only {{ $value | humanizePercentage }} of the memory of {{ $labels.node }} is left: the kernel will kill something.",
			Fires: Case{[]string{`muster_node_memory_available_bytes{cluster="lab",node="n1"} 1e9x20`, `muster_node_memory_bytes{cluster="lab",node="n1"} 100e9x20`}, 10},
			Quiet: Case{[]string{`muster_node_memory_available_bytes{cluster="lab",node="n1"} 40e9x20`, `muster_node_memory_bytes{cluster="lab",node="n1"} 100e9x20`}, 10}},
		{Name: "MusterNodeUnhealthy", Group: g, Severity: Warning, For: "2m", Board: "muster-node", Vars: onNode,
			Expr:    `muster_node_health_value and on (cluster, node, rule) muster_node_health_failed > 0`,
			Summary: "{{ $labels.node }} fails the health rule {{ $labels.rule }}", Detail: "{{ $labels.node }} fails {{ $labels.rule }} with {{ $value }}. The limit and what follows are in docs/node-health.md; the log of its agent, and sinfo -R where the node is drained, name the file system, device or process.",
			Fires: Case{[]string{`muster_node_health_failed{cluster="lab",node="n1",rule="disk_space"} 1x20`, `muster_node_health_value{cluster="lab",node="n1",rule="disk_space"} 1x20`}, 10},
			Quiet: Case{[]string{`muster_node_health_failed{cluster="lab",node="n1",rule="disk_space"} 0x20`, `muster_node_health_value{cluster="lab",node="n1",rule="disk_space"} 40x20`}, 10}},
		{Name: "MusterNodeIncomplete", Group: g, Severity: Warning, For: "2m", Board: "muster-node", Vars: onNode,
			// A device that falls off the bus while the agent runs is MusterGPUOffTheBus.
			// Where no label cluster is set on what agents serve, the name of the node has to do.
			Expr: `muster_node_incomplete_info unless on (cluster, node) ` + onHost("(muster_gpu_up == 0)") +
				` unless on (node) ` + onHost(`(muster_gpu_up{cluster=""} == 0)`),
			Summary: "{{ $labels.node }} found less than is configured", Detail: "{{ $labels.node }} of {{ $labels.cluster }} found less than slurm.conf or gres.conf says: {{ $labels.reason }}. With fewer GPUs it goes on with the others; with less of anything else it takes no jobs. It is whole again by itself as soon as its agent finds the rest.",
			Fires: Case{[]string{`muster_node_incomplete_info{cluster="lab",node="n1",reason="gres/gpu count too low: 7 found, 8 configured"} 1x20`}, 10},
			Quiet: Case{[]string{`muster_node_incomplete_info{cluster="lab",node="n1",reason="gres/gpu count too low: 7 found, 8 configured"} 1x20`, `muster_gpu_up{` + gpu1 + `} 0x20`}, 10}},
		{Name: "MusterScratchFull", Group: g, Severity: Warning, For: "5m", Board: "muster-node", Vars: onNode,
			Params:  []Param{{"below", Share, "0.05", "share of the space"}},
			Expr:    `muster_node_tmp_disk_available_bytes / muster_node_tmp_disk_bytes < $below`,
			Summary: "The scratch disk of {{ $labels.node }} is full", Detail: "{{ $value | humanizePercentage }} of the scratch disk of {{ $labels.node }} is left; jobs that write there will fail.",
			Fires: Case{[]string{`muster_node_tmp_disk_available_bytes{cluster="lab",node="n1"} 1e9x20`, `muster_node_tmp_disk_bytes{cluster="lab",node="n1"} 100e9x20`}, 10},
			Quiet: Case{[]string{`muster_node_tmp_disk_available_bytes{cluster="lab",node="n1"} 40e9x20`, `muster_node_tmp_disk_bytes{cluster="lab",node="n1"} 100e9x20`}, 10}},
	}
}
