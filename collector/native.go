package collector

import (
	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/spec"
)

// The paths of Slurm's own exporter (25.11 and later), with its names.
const (
	endpointJobs       = "musterd /metrics/jobs"
	endpointNodes      = "musterd /metrics/nodes"
	endpointPartitions = "musterd /metrics/partitions"
	endpointUsers      = "musterd /metrics/jobs-users-accts"
	endpointScheduler  = "musterd /metrics/scheduler"
)

const mib = 1 << 20

// native marks families as Slurm's own. All of them are gauges there, also
// what only grows, and they stay gauges here: the type is part of the name.
func native(endpoint string, list []family) []family {
	for i := range list {
		list[i].Dialect = catalogue.Slurm
		list[i].Endpoint = endpoint
		list[i].Type = catalogue.Gauge
	}
	return list
}

// nativeJob is one figure over jobs, under the suffix that four paths use.
type nativeJob struct {
	name, help string
	amount     func(t *tally) float64
}

func baseCount(st spec.JobState) func(counts *tally) float64 {
	return func(counts *tally) float64 { return float64(counts.base[st]) }
}

func flagCount(flags jobFlags) func(counts *tally) float64 {
	i := 0
	for flags>>i != 1 {
		i++
	}
	return func(counts *tally) float64 { return float64(counts.flags[i]) }
}

//muster:table one entry for each metric
func nativeJobFigures() []nativeJob {
	return []nativeJob{
		{"bootfail", "Jobs in state BOOT_FAIL.", baseCount(spec.BootFailed)},
		{"cancelled", "Jobs in state CANCELLED.", baseCount(spec.Cancelled)},
		{"completed", "Jobs in state COMPLETED.", baseCount(spec.Completed)},
		{"completing", "Jobs with the flag COMPLETING.", func(counts *tally) float64 { return float64(counts.closing) }},
		{"configuring", "Jobs with the flag CONFIGURING.", flagCount(jobConfiguring)},
		{"cpus_alloc", "CPUs that jobs hold.", func(counts *tally) float64 { return float64(counts.cpus) }},
		{"deadline", "Jobs in state DEADLINE.", baseCount(spec.DeadlineMissed)},
		{"expediting", "Jobs with the flag EXPEDITING.", flagCount(jobExpediting)},
		{"failed", "Jobs in state FAILED.", baseCount(spec.Failed)},
		{"fed_requeued", "Jobs requeued to another cluster of a federation.", flagCount(jobFedRequeued)},
		{"finished", "Jobs that ended and hold nothing any more.", func(counts *tally) float64 { return float64(counts.countFinished()) }},
		{"gpus_alloc", "GPUs that jobs hold.", func(counts *tally) float64 { return float64(counts.gpus) }},
		{"hold", "Pending jobs that are held.", func(counts *tally) float64 { return float64(counts.held) }},
		{"memory_alloc", "Memory that jobs hold, in bytes.", func(counts *tally) float64 { return float64(counts.mem) * mib }},
		{"node_failed", "Jobs in state NODE_FAIL.", baseCount(spec.NodeFailed)},
		{"nodes_alloc", "Nodes that jobs hold, counted for each job.", func(counts *tally) float64 { return float64(counts.nodes) }},
		{"outofmemory", "Jobs in state OUT_OF_MEMORY.", baseCount(spec.OutOfMemory)},
		{"pending", "Jobs in state PENDING.", baseCount(spec.Pending)},
		{"powerup_node", "Jobs that wait for a node to power up.", flagCount(jobPowerUp)},
		{"preempted", "Jobs in state PREEMPTED.", baseCount(spec.Preempted)},
		{"requeued", "Jobs that were requeued.", flagCount(jobRequeued)},
		{"resizing", "Jobs with the flag RESIZING.", flagCount(jobResizing)},
		{"revoked", "Jobs with the flag REVOKED.", flagCount(jobRevoked)},
		{"running", "Jobs in state RUNNING.", baseCount(spec.Running)},
		{"signaling", "Jobs with the flag SIGNALING.", flagCount(jobSignaling)},
		{"stageout", "Jobs with the flag STAGE_OUT.", flagCount(jobStageOut)},
		{"started", "Jobs that have started.", func(counts *tally) float64 { return float64(counts.countStarted()) }},
		{"suspended", "Jobs in state SUSPENDED.", baseCount(spec.Suspended)},
		{"timeout", "Jobs in state TIMEOUT.", baseCount(spec.TimedOut)},
	}
}

func allJobs(counts *tally) float64 { return float64(counts.all) }

// nativeJobs is the whole cluster.
func nativeJobs() []family {
	const src = "job records"
	out := []family{
		singleSeries(
			gaugeMetric("slurm_jobs", "Jobs known to the controller.", catalogue.None, src, "1"),
			func(s *scrape) float64 { return allJobs(&s.pic.jobs) },
		),
	}
	for _, figure := range nativeJobFigures() {
		out = append(
			out,
			singleSeries(
				gaugeMetric("slurm_jobs_"+figure.name, figure.help, catalogue.None, src, "1"),
				func(s *scrape) float64 { return figure.amount(&s.pic.jobs) },
			),
		)
	}
	return native(endpointJobs, out)
}

// subject is whose jobs are counted.
type subject struct {
	name string
	of   func(s *scrape) *tallies
}

func sampleSubjects() []subject {
	return []subject{
		{"account", func(s *scrape) *tallies { return &s.pic.byAcct }},
		{"user", func(s *scrape) *tallies { return &s.pic.byUser }},
	}
}

// nativeUsers counts the same by user and by account.
func nativeUsers() []family {
	var out []family
	for _, sub := range sampleSubjects() {
		label := sub.name
		if label == "user" {
			label = "username"
		}
		per := func(name, help string, amount func(counts *tally) float64) {
			out = append(
				out,
				family{gaugeMetric("slurm_"+sub.name+"_"+name, help, catalogue.None, "job records", label+
					"s with known jobs", label), func(s *scrape) {
					all := sub.of(s)
					for _, k := range all.keys {
						s.sendSeries(amount(all.by[k]), k)
					}
				}},
			)
		}
		per("jobs", "Jobs known to the controller.", allJobs)
		for _, figure := range nativeJobFigures() {
			per("jobs_"+figure.name, figure.help, figure.amount)
		}
	}
	return native(endpointUsers, out)
}

// nativeState is one group of nodes, under the suffixes of two paths; the
// partitions' suffix is empty where it is the same.
type nativeState struct {
	name, partition string
	in              func(n *nodeRow) bool
}

func has(flags nodeFlags) func(node *nodeRow) bool {
	return func(node *nodeRow) bool { return node.Flags&flags != 0 }
}

//muster:table one entry for each state
func nativeStates() []nativeState {
	return []nativeState{
		{"alloc", "", has(nodeAlloc)},
		{"blocked", "", has(nodeBlocked)},
		{"completing", "cg", has(nodeCompleting)},
		{"cloud", "", has(nodeCloud)},
		{"down", "", has(nodeDown)},
		{"drain", "", has(nodeDrain)},
		{"drained", "", func(node *nodeRow) bool { return node.Flags&nodeDrain != 0 && !node.Busy }},
		{"draining", "", func(node *nodeRow) bool { return node.Flags&nodeDrain != 0 && node.Busy }},
		{"dyn_future", "", has(nodeDynFuture)},
		{"dyn_normal", "", has(nodeDynNormal)},
		{"external", "", has(nodeExternal)},
		{"fail", "", has(nodeFail)},
		{"future", "", has(nodeFuture)},
		{"idle", "", has(nodeIdle)},
		{"invalid_reg", "", has(nodeInvalid)},
		{"maint", "", has(nodeMaint)},
		{"mixed", "", has(nodeMixed)},
		{"noresp", "no_resp", has(nodeNoResp)},
		{"planned", "", has(nodePlanned)},
		{"power_down", "", has(nodePowerDown)},
		{"power_up", "", has(nodePowerUp)},
		{"powered_down", "", has(nodePoweredDown)},
		{"powering_up", "", has(nodePoweringUp)},
		{"reboot_issued", "", has(nodeRebootIssued)},
		{"reboot_req", "reboot_requested", has(nodeRebootRequested)},
		{"resv", "", has(nodeResv)},
		{"unknown", "", has(nodeUnknown)},
	}
}

func nativeNodes() []family {
	const src = "node records"
	var out []family
	per := func(name, help string, unit catalogue.Unit, scale float64, amount func(node *nodeRow) int64) {
		out = append(out, family{gaugeMetric(name, help, unit, src, "nodes", "node"), func(s *scrape) {
			for i := range s.pic.nodes {
				if v := amount(&s.pic.nodes[i]); v >= 0 {
					s.sendSeries(float64(v)*scale, s.pic.nodes[i].Name)
				}
			}
		}})
	}
	per(
		"slurm_node_cpus",
		"CPUs of the node.",
		catalogue.None,
		1,
		func(node *nodeRow) int64 { return node.CPUs },
	)
	per(
		"slurm_node_cpus_alloc",
		"CPUs of the node that jobs hold.",
		catalogue.None,
		1,
		func(node *nodeRow) int64 { return node.CPUAlloc },
	)
	per(
		"slurm_node_cpus_effective",
		"CPUs of the node without those kept for the system.",
		catalogue.None,
		1,
		func(node *nodeRow) int64 { return node.CPUsForJobs },
	)
	per(
		"slurm_node_cpus_idle",
		"CPUs of the node for jobs that no job holds.",
		catalogue.None,
		1,
		func(node *nodeRow) int64 { return max(node.CPUsForJobs-node.CPUAlloc, 0) },
	)
	per(
		"slurm_node_memory_bytes",
		"Memory of the node, in bytes.",
		catalogue.Bytes,
		mib,
		func(node *nodeRow) int64 { return node.Mem },
	)
	per(
		"slurm_node_memory_alloc_bytes",
		"Memory of the node that jobs hold, in bytes.",
		catalogue.Bytes,
		mib,
		func(node *nodeRow) int64 { return node.MemAlloc },
	)
	per(
		"slurm_node_memory_effective_bytes",
		"Memory of the node without that kept for the system, in bytes.",
		catalogue.Bytes,
		mib,
		func(node *nodeRow) int64 { return node.MemForJobs },
	)
	per(
		"slurm_node_memory_free_bytes",
		"Memory that the node's operating system calls free, in bytes; absent until the agent has said it.",
		catalogue.Bytes,
		mib,
		func(node *nodeRow) int64 { return node.MemFree },
	)
	per(
		"slurm_node_gpus",
		"GPUs of the node.",
		catalogue.None,
		1,
		func(node *nodeRow) int64 { return node.GPUs },
	)
	per(
		"slurm_node_gpus_alloc",
		"GPUs of the node that jobs hold.",
		catalogue.None,
		1,
		func(node *nodeRow) int64 { return node.GPUAlloc },
	)
	out = append(
		out,
		singleSeries(
			gaugeMetric("slurm_nodes", "Nodes.", catalogue.None, src, "1"),
			func(s *scrape) float64 { return float64(len(s.pic.nodes)) },
		),
	)
	for _, state := range nativeStates() {
		out = append(out, singleSeries(gaugeMetric("slurm_nodes_"+state.name, "Nodes that are "+
			state.name+".", catalogue.None, src, "1"), func(s *scrape) float64 {
			n := 0
			for i := range s.pic.nodes {
				if state.in(&s.pic.nodes[i]) {
					n++
				}
			}
			return float64(n)
		}))
	}
	return native(endpointNodes, out)
}

func nativePartitions() []family {
	out := []family{
		singleSeries(
			gaugeMetric(
				"slurm_partitions",
				"Partitions.",
				catalogue.None,
				"partitions of the configuration",
				"1",
			),
			func(s *scrape) float64 { return float64(len(s.pic.parts)) },
		),
	}
	jobs := func(name, help string, amount func(counts *tally) float64) {
		out = append(
			out,
			family{
				gaugeMetric(
					"slurm_partition_jobs"+name,
					help,
					catalogue.None,
					"job records",
					"partitions",
					"partition",
				),
				func(s *scrape) { eachTally(s, amount) },
			},
		)
	}
	jobs("", "Jobs known to the controller.", allJobs)
	for _, figure := range nativeJobFigures() {
		if figure.name != "nodes_alloc" { // the dialect has none for partitions
			jobs("_"+figure.name, figure.help, figure.amount)
		}
	}
	jobs(
		"_max_job_nodes",
		"Most nodes that one pending job asks for.",
		func(counts *tally) float64 { return float64(counts.maxNodes) },
	)
	jobs(
		"_max_job_nodes_nohold",
		"Most nodes that one pending job asks for that is not held.",
		func(counts *tally) float64 { return float64(counts.maxNodesFree) },
	)
	jobs(
		"_min_job_nodes",
		"Fewest nodes that one pending job asks for.",
		func(counts *tally) float64 { return float64(counts.minNodes) },
	)
	jobs(
		"_min_job_nodes_nohold",
		"Fewest nodes that one pending job asks for that is not held.",
		func(counts *tally) float64 { return float64(counts.minNodesFree) },
	)
	jobs(
		"_wait_part_node_limit",
		"Jobs that wait for a limit on the partition's nodes.",
		func(counts *tally) float64 { return float64(counts.limited) },
	)
	return native(endpointPartitions, append(out, nativePartitionNodes()...))
}

// partitionSum adds an amount up over the nodes of each partition; one below 0
// is not known.
func partitionSum(name, help string, scale float64, amount func(node *nodeRow) int64) family {
	return family{
		gaugeMetric(name, help, catalogue.None, "node records", "partitions", "partition"),
		func(s *scrape) {
			eachPartition(s, func(part string, list []int32) {
				total := int64(0)
				for _, k := range list {
					total += max(amount(&s.pic.nodes[k]), 0)
				}
				s.sendSeries(float64(total)*scale, part)
			})
		},
	}
}

func nativePartitionNodes() []family {
	var out []family
	nodes := func(name, help string, scale float64, amount func(n *nodeRow) int64) {
		out = append(out, partitionSum("slurm_partition_"+name, help, scale, amount))
	}
	nodes("nodes", "Nodes of the partition.", 1, func(*nodeRow) int64 { return 1 })
	nodes("cpus", "CPUs of the partition's nodes.", 1, func(n *nodeRow) int64 { return n.CPUs })
	nodes("gpus", "GPUs of the partition's nodes.", 1, func(n *nodeRow) int64 { return n.GPUs })
	nodes(
		"nodes_cpus_efctv",
		"CPUs of the partition's nodes without those kept for the system.",
		1,
		func(n *nodeRow) int64 { return n.CPUsForJobs },
	)
	nodes(
		"nodes_cpus_alloc",
		"CPUs of the partition's nodes that jobs hold.",
		1,
		func(n *nodeRow) int64 { return n.CPUAlloc },
	)
	nodes(
		"nodes_cpus_idle",
		"CPUs of the partition's nodes for jobs that no job holds.",
		1,
		func(n *nodeRow) int64 { return max(n.CPUsForJobs-n.CPUAlloc, 0) },
	)
	nodes(
		"nodes_mem_alloc",
		"Memory of the partition's nodes that jobs hold, in bytes.",
		mib,
		func(n *nodeRow) int64 { return n.MemAlloc },
	)
	nodes(
		"nodes_mem_avail",
		"Memory of the partition's nodes for jobs that no job holds, in bytes.",
		mib,
		func(n *nodeRow) int64 { return n.MemForJobs - n.MemAlloc },
	)
	nodes(
		"nodes_mem_free",
		"Memory that the operating systems of the partition's nodes call free, in bytes.",
		mib,
		func(n *nodeRow) int64 { return n.MemFree },
	)
	nodes(
		"nodes_mem_tot",
		"Memory of the partition's nodes, in bytes.",
		mib,
		func(n *nodeRow) int64 { return n.Mem },
	)
	states := append(nativeStates(), nativeState{"powering_down", "", has(nodePoweringDown)})
	for _, state := range states {
		name := state.partition
		if name == "" {
			name = state.name
		}
		nodes(
			"nodes_"+name,
			"Nodes of the partition that are "+state.name+".",
			1,
			func(node *nodeRow) int64 {
				if state.in(node) {
					return 1
				}
				return 0
			},
		)
	}
	return out
}

// nativeScheduler is what sdiag prints; times in microseconds.
//
//muster:table one entry for each metric
func nativeScheduler() []family {
	fig := func(name, help string, read func(row *schedRow) float64) family {
		return singleSeries(gaugeMetric("slurm_"+name, help, catalogue.None, "figures of the scheduler", "1"), func(s *scrape) float64 { return read(&s.pic.sched) })
	}
	exit := func(name, help string, of func(row *schedRow) map[string]uint64, word string) family {
		return fig(name, help, func(row *schedRow) float64 { return float64(of(row)[word]) })
	}
	main := func(row *schedRow) map[string]uint64 { return row.Exits }
	backfill := func(row *schedRow) map[string]uint64 { return row.BFExits }
	out := []family{
		fig("agent_cnt", "Agents that the controller has threads for.", func(row *schedRow) float64 { return float64(row.Agents) }),
		fig("agent_queue_size", "Requests that wait to be sent to nodes.", func(row *schedRow) float64 { return float64(row.ServerQueue) }),
		fig("agent_thread_cnt", "Threads that send requests to nodes.", func(row *schedRow) float64 { return float64(row.AgentThreads) }),
		fig("bf_depth_mean", "Mean number of jobs looked at in a backfill cycle.", func(row *schedRow) float64 { return meanOf(float64(row.BFDepthTotal), row.BFCycles) }),
		fig("bf_mean_cycle", "Mean time of a backfill cycle in microseconds.", func(row *schedRow) float64 { return meanOf(toMicros(row.BFTotal), row.BFCycles) }),
		fig("bf_mean_table_sz", "Mean number of planned slots of backfill.", func(row *schedRow) float64 { return meanOf(float64(row.BFTableTotal), row.BFCycles) }),
		fig("bf_queue_len_mean", "Mean length of backfill's queue.", func(row *schedRow) float64 { return meanOf(float64(row.BFQueueTotal), row.BFCycles) }),
		fig("bf_try_depth_mean", "Mean number of jobs tried in a backfill cycle.", func(row *schedRow) float64 { return meanOf(float64(row.BFTryTotal), row.BFCycles) }),
		fig("backfilled_het_jobs", "Components of heterogeneous jobs started by backfill.", func(row *schedRow) float64 { return float64(row.BackfilledHet) }),
		fig("backfilled_jobs", "Jobs started by backfill.", func(row *schedRow) float64 { return float64(row.Backfilled) }),
		fig("bf_active", "1 while backfill runs.", func(row *schedRow) float64 { return oneIf(row.BFActive) }),
		fig("bf_cycle_cnt", "Backfill cycles.", func(row *schedRow) float64 { return float64(row.BFCycles) }),
		fig("bf_cycle_last", "Time of the last backfill cycle in microseconds.", func(row *schedRow) float64 { return toMicros(row.BFLast) }),
		fig("bf_cycle_max", "Time of the longest backfill cycle in microseconds.", func(row *schedRow) float64 { return toMicros(row.BFMax) }),
		fig("bf_cycle_tot", "Time of all backfill cycles in microseconds.", func(row *schedRow) float64 { return toMicros(row.BFTotal) }),
		fig("bf_depth_tot", "Jobs looked at in all backfill cycles.", func(row *schedRow) float64 { return float64(row.BFDepthTotal) }),
		fig("bf_depth_try_tot", "Jobs tried in all backfill cycles.", func(row *schedRow) float64 { return float64(row.BFTryTotal) }),
		fig("bf_last_depth", "Jobs looked at in the last backfill cycle.", func(row *schedRow) float64 { return float64(row.BFDepthLast) }),
		fig("bf_last_depth_try", "Jobs tried in the last backfill cycle.", func(row *schedRow) float64 { return float64(row.BFTryLast) }),
		fig("bf_queue_len", "Length of backfill's queue in its last cycle.", func(row *schedRow) float64 { return float64(row.BFQueue) }),
		fig("bf_queue_len_tot", "Sum of the lengths of backfill's queue.", func(row *schedRow) float64 { return float64(row.BFQueueTotal) }),
		fig("bf_table_size", "Planned slots of backfill's last cycle.", func(row *schedRow) float64 { return float64(row.BFTable) }),
		fig("bf_table_size_tot", "Sum of backfill's planned slots.", func(row *schedRow) float64 { return float64(row.BFTableTotal) }),
		fig("bf_when_last_cycle", "When the last backfill cycle began, in seconds since 1970.", func(row *schedRow) float64 { return float64(row.BFWhen.Unix()) }),
		fig("sdiag_jobs_canceled", "Jobs cancelled.", func(row *schedRow) float64 { return float64(row.Cancelled) }),
		fig("sdiag_jobs_completed", "Jobs completed.", func(row *schedRow) float64 { return float64(row.Completed) }),
		fig("sdiag_jobs_failed", "Jobs failed.", func(row *schedRow) float64 { return float64(row.Failed) }),
		singleSeries(gaugeMetric("slurm_sdiag_jobs_pending", "Pending jobs.", catalogue.None, "job records", "1"), func(s *scrape) float64 { return float64(s.pic.jobs.base[spec.Pending]) }),
		singleSeries(gaugeMetric("slurm_sdiag_jobs_running", "Running jobs.", catalogue.None, "job records", "1"), func(s *scrape) float64 { return float64(s.pic.jobs.base[spec.Running]) }),
		fig("sdiag_jobs_started", "Jobs started.", func(row *schedRow) float64 { return float64(row.Started) }),
		fig("sdiag_jobs_submitted", "Jobs submitted.", func(row *schedRow) float64 { return float64(row.Submitted) }),
		fig("sdiag_job_states_ts", "When jobs were counted by state, in seconds since 1970.", func(row *schedRow) float64 { return float64(row.StatesAt.Unix()) }),
		fig("last_backfilled_jobs", "Jobs started by backfill since the figures were last reset; Muster never resets them.", func(row *schedRow) float64 { return float64(row.BackfilledCycle) }),
		fig("sdiag_latency", "Delay of the controller in microseconds: in Slurm of reading the clock, in Muster of the last batch to become durable.", func(row *schedRow) float64 { return toMicros(row.Latency) }),
		fig("schedule_cycle_cnt", "Scheduling cycles.", func(row *schedRow) float64 { return float64(row.Cycles) }),
		fig("schedule_cycle_depth", "Jobs looked at in all scheduling cycles.", func(row *schedRow) float64 { return float64(row.CycleDepth) }),
		fig("schedule_cycle_last", "Time of the last scheduling cycle in microseconds.", func(row *schedRow) float64 { return toMicros(row.CycleLast) }),
		fig("schedule_cycle_max", "Time of the longest scheduling cycle in microseconds.", func(row *schedRow) float64 { return toMicros(row.CycleMax) }),
		fig("schedule_cycle_tot", "Time of all scheduling cycles in microseconds.", func(row *schedRow) float64 { return toMicros(row.CycleTotal) }),
		fig("schedule_queue_len", "Length of the queue in the last scheduling cycle.", func(row *schedRow) float64 { return float64(row.CycleQueue) }),
		fig("sched_mean_cycle", "Mean time of a scheduling cycle in microseconds.", func(row *schedRow) float64 { return meanOf(toMicros(row.CycleTotal), row.Cycles) }),
		fig("sched_mean_depth_cycle", "Mean number of jobs looked at in a scheduling cycle.", func(row *schedRow) float64 { return meanOf(float64(row.CycleDepth), row.Cycles) }),
		fig("server_thread_cnt", "Threads that serve requests.", func(row *schedRow) float64 { return float64(row.Threads) }),
		fig("slurmdbd_queue_size", "Records that wait for accounting.", func(row *schedRow) float64 { return float64(row.DBDQueue) }),
		fig("last_proc_req_start", "When the figures were last reset, in seconds since 1970.", func(row *schedRow) float64 { return float64(row.Since.Unix()) }),
		singleSeries(gaugeMetric("slurm_sched_stats_timestamp", "When the figures were read, in seconds since 1970.", catalogue.None, "the exporter", "1"), func(s *scrape) float64 { return float64(s.pic.at.Unix()) }),
	}
	for _, word := range [...]string{"end", "max_depth", "max_job_start", "lic", "rpc_cnt", "timeout"} {
		out = append(out, exit("sched_exit_"+word, "Scheduling cycles that ended for this reason.", main, word))
	}
	for _, word := range [...]string{"end", "max_job_start", "max_job_test", "state_changed", "table_limit", "timeout"} {
		out = append(out, exit("bf_exit_"+word, "Backfill cycles that ended for this reason.", backfill, word))
	}
	return native(endpointScheduler, out)
}
