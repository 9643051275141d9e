package collector

import (
	"strings"

	dto "github.com/prometheus/client_model/go"

	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/spec"
)

// endpointVpenso serves the names of prometheus-slurm-exporter and of the
// exporters that grew from it.
const endpointVpenso = "musterd /metrics/vpenso"

// vpensoFamilies lists the dialect. Everything is a gauge unless it counts for
// ever under a name that ends with _total, as the dialect has it.
func vpensoFamilies() []family {
	var out []family
	for _, list := range [...][]family{vpensoCapacity(), vpensoNodes(), vpensoPartitions(), vpensoQueue(), vpensoScheduler(), vpensoSubjects(),
		vpensoFairshare(), vpensoReservations(), vpensoCalls(), vpensoJobs(), vpensoSelf()} {
		out = append(out, list...)
	}
	for i := range out {
		out[i].Dialect, out[i].Endpoint = catalogue.Vpenso, endpointVpenso
		if !strings.HasSuffix(out[i].Help, ".") {
			out[i].Help += "."
		}
	}
	return out
}

// fig is a metric without labels beside the cluster.
func fig(name, help string, read func(s *scrape) float64) family {
	return singleSeries(gaugeMetric(name, help, catalogue.None, "node and job records", "1"), read)
}

// nodeSum adds up an amount over all nodes.
func nodeSum(amount func(node *nodeRow) int64) func(s *scrape) float64 {
	return func(s *scrape) float64 {
		total := int64(0)
		for i := range s.pic.nodes {
			total += amount(&s.pic.nodes[i])
		}
		return float64(total)
	}
}

func vpensoCapacity() []family {
	alloc := nodeSum(func(node *nodeRow) int64 { return node.GPUAlloc })
	total := nodeSum(func(node *nodeRow) int64 { return node.GPUs })
	return []family{
		fig(
			"slurm_cpus_alloc",
			"Allocated CPUs",
			nodeSum(func(node *nodeRow) int64 { return node.CPUAlloc }),
		),
		fig("slurm_cpus_idle", "Idle CPUs", nodeSum((*nodeRow).cpuIdle)),
		fig(
			"slurm_cpus_other",
			"CPUs that are neither allocated nor idle",
			nodeSum((*nodeRow).cpuOther),
		),
		fig(
			"slurm_cpus_total",
			"CPUs of all nodes",
			nodeSum(func(node *nodeRow) int64 { return node.CPUs }),
		),
		fig("slurm_gpus_alloc", "Allocated GPUs", alloc),
		fig("slurm_gpus_idle", "Idle GPUs", nodeSum((*nodeRow).gpuIdle)),
		fig(
			"slurm_gpus_other",
			"GPUs that are neither allocated nor idle",
			nodeSum(func(row *nodeRow) int64 { return row.GPUs - row.GPUAlloc - row.gpuIdle() }),
		),
		fig("slurm_gpus_total", "GPUs of all nodes", total),
		fig(
			"slurm_gpus_utilization",
			"Allocated GPUs as a part of all (allocation, not use)",
			func(s *scrape) float64 {
				if n := total(s); n > 0 {
					return alloc(s) / n
				}
				return 0
			},
		),
	}
}

// longState is the node's state as sinfo writes it, without a mark for silence.
func (n *nodeRow) longState() string {
	switch flags := n.Flags; {
	case flags&nodeInvalid != 0:
		return "inval"
	case flags&nodeFuture != 0:
		return "future"
	case flags&nodeUnknown != 0:
		return "unknown"
	case flags&nodeFail != 0 && n.Busy:
		return "failing"
	case flags&nodeFail != 0:
		return "fail"
	case flags&nodeDrain != 0 && n.Busy && flags&nodeDown == 0:
		return "draining"
	case flags&nodeDrain != 0:
		return "drained"
	case flags&nodeDown != 0:
		return "down"
	case flags&nodeError != 0:
		return "error"
	case flags&nodeMaint != 0:
		return "maint"
	case flags&nodeResv != 0 && !n.Busy:
		return "reserved"
	case flags&nodeCompleting != 0:
		return "completing"
	case flags&nodeAlloc != 0:
		return "allocated"
	case flags&nodeMixed != 0:
		return "mixed"
	case flags&nodePlanned != 0:
		return "planned"
	}
	return "idle"
}

// vpensoStates are the groups of node states with the prefixes of the states
// that each counts.
func vpensoStates() [][2]string {
	return [][2]string{
		{"alloc", "alloc"},
		{"comp", "comp"},
		{"down", "down"},
		{"drain", "drain"},
		{"err", "err"},
		{"fail", "fail"},
		{
			"idle",
			"idle",
		},
		{"maint", "maint"},
		{"mix", "mix"},
		{"resv", "res"},
		{"inval", "inval"},
		{"planned", "planned"},
	}
}

func vpensoNodes() []family {
	var out []family
	prefixed := func(s *scrape, nodes func(yield func(node *nodeRow)), prefix string) int {
		count := 0
		nodes(func(row *nodeRow) {
			if strings.HasPrefix(row.longState(), prefix) {
				count++
			}
		})
		return count
	}
	all := func(s *scrape) func(func(node *nodeRow)) {
		return func(yield func(node *nodeRow)) {
			for i := range s.pic.nodes {
				yield(&s.pic.nodes[i])
			}
		}
	}
	for _, g := range vpensoStates() {
		out = append(
			out,
			fig(
				"slurm_nodes_"+g[0],
				"Nodes whose state is "+g[0],
				func(s *scrape) float64 { return float64(prefixed(s, all(s), g[1])) },
			),
		)
	}
	out = append(
		out,
		fig(
			"slurm_nodes_total",
			"Nodes",
			func(s *scrape) float64 { return float64(len(s.pic.nodes)) },
		),
		fig(
			"slurm_nodes_other",
			"Nodes in none of the states that have a metric of their own",
			func(s *scrape) float64 {
				n := len(s.pic.nodes)
				for _, g := range vpensoStates() {
					n -= prefixed(s, all(s), g[1])
				}
				return float64(n)
			},
		),
	)
	per := func(name, help string, amount func(node *nodeRow) int64) {
		out = append(
			out,
			family{
				gaugeMetric(name, help, catalogue.None, "node records", "nodes", "node", "status"),
				func(s *scrape) {
					for i := range s.pic.nodes {
						row := &s.pic.nodes[i]
						s.sendSeries(float64(amount(row)), row.Name, row.longState())
					}
				},
			},
		)
	}
	per(
		"slurm_node_cpu_alloc",
		"Allocated CPUs of the node",
		func(node *nodeRow) int64 { return node.CPUAlloc },
	)
	per("slurm_node_cpu_idle", "Idle CPUs of the node", (*nodeRow).cpuIdle)
	per(
		"slurm_node_cpu_other",
		"CPUs of the node that are neither allocated nor idle",
		(*nodeRow).cpuOther,
	)
	per("slurm_node_cpu_total", "CPUs of the node", func(node *nodeRow) int64 { return node.CPUs })
	per(
		"slurm_node_mem_alloc",
		"Memory of the node given to jobs, in MB as sinfo prints it",
		func(node *nodeRow) int64 { return node.MemAlloc },
	)
	per(
		"slurm_node_mem_total",
		"Memory of the node, in MB as sinfo prints it",
		func(node *nodeRow) int64 { return node.Mem },
	)
	return append(out, vpensoNodeExtras()...)
}

// eachNodePart calls f for every node in each of its partitions.
func eachNodePart(s *scrape, f func(node *nodeRow, part string)) {
	eachPartition(s, func(name string, nodes []int32) {
		for _, k := range nodes {
			f(&s.pic.nodes[k], name)
		}
	})
}

func vpensoNodeExtras() []family {
	gres := func(name, help string, amount func(g *gresRow) int64) family {
		return family{
			gaugeMetric(
				name,
				help,
				catalogue.None,
				"node records",
				"nodes x their partitions x kinds of GRES",
				"node",
				"status",
				"partition",
				"gres_type",
			),
			func(s *scrape) {
				eachNodePart(s, func(node *nodeRow, part string) {
					for i := range node.GRES {
						row := &node.GRES[i]
						kind := row.Name
						if row.Type != "" {
							kind += ":" + row.Type
						}
						s.sendSeries(float64(amount(row)), node.Name, node.longState(), part, kind)
					}
				})
			},
		}
	}
	drained := func(metric catalogue.Metric, f func(s *scrape, n *nodeRow)) family {
		return family{metric, func(s *scrape) {
			for i := range s.pic.nodes {
				if row := &s.pic.nodes[i]; row.Reason != "" {
					f(s, row)
				}
			}
		}}
	}
	return []family{
		{
			gaugeMetric(
				"slurm_node_status",
				"1 for the state that the node is in",
				catalogue.None,
				"node records",
				"nodes x their partitions",
				"node",
				"status",
				"partition",
			),
			func(s *scrape) {
				eachNodePart(
					s,
					func(n *nodeRow, part string) { s.sendSeries(1, n.Name, n.longState(), part) },
				)
			},
		},
		gres(
			"slurm_node_gres_total",
			"Generic resources of the node",
			func(g *gresRow) int64 { return g.Total },
		),
		gres(
			"slurm_node_gres_used",
			"Generic resources of the node that jobs hold",
			func(g *gresRow) int64 { return g.Used },
		),
		drained(
			gaugeMetric(
				"slurm_node_drain_reason_info",
				"1, with the reason why the node is out of service",
				catalogue.None,
				"node records",
				"nodes with a reason",
				"node",
				"reason",
			),
			func(s *scrape, n *nodeRow) { s.sendSeries(1, n.Name, n.Reason) },
		),
		drained(
			gaugeMetric(
				"slurm_node_drain_since_timestamp_seconds",
				"When the reason was given, in seconds since 1970",
				catalogue.Seconds,
				"node records",
				"nodes with a reason",
				"node",
			),
			func(s *scrape, n *nodeRow) { s.sendSeries(float64(n.ReasonAt.Unix()), n.Name) },
		),
	}
}

func vpensoPartitions() []family {
	var out []family
	per := func(name, help string, amount func(node *nodeRow) int64) {
		out = append(out, partitionSum(name, help, 1, amount))
	}
	jobs := func(name, help string, amount func(counts *tally) float64) {
		out = append(
			out,
			family{
				gaugeMetric(name, help, catalogue.None, "live job records", "partitions", "partition"),
				func(s *scrape) { eachTally(s, amount) },
			},
		)
	}
	per(
		"slurm_partition_cpus_allocated",
		"Allocated CPUs of the partition",
		func(node *nodeRow) int64 { return node.CPUAlloc },
	)
	per("slurm_partition_cpus_idle", "Idle CPUs of the partition", (*nodeRow).cpuIdle)
	per(
		"slurm_partition_cpus_other",
		"CPUs of the partition that are neither allocated nor idle",
		(*nodeRow).cpuOther,
	)
	per(
		"slurm_partition_cpus_total",
		"CPUs of the partition",
		func(node *nodeRow) int64 { return node.CPUs },
	)
	per(
		"slurm_partition_gpus_allocated",
		"Allocated GPUs of the partition",
		func(node *nodeRow) int64 { return node.GPUAlloc },
	)
	per("slurm_partition_gpus_idle", "Idle GPUs of the partition", (*nodeRow).gpuIdle)
	jobs(
		"slurm_partition_jobs_pending",
		"Pending jobs of the partition",
		func(counts *tally) float64 { return float64(counts.shown[spec.Pending]) },
	)
	jobs(
		"slurm_partition_jobs_running",
		"Running jobs of the partition",
		func(counts *tally) float64 { return float64(counts.shown[spec.Running]) },
	)
	return out
}

// queueState is one state of the dialect's queue with what counts in it.
type queueState struct {
	name  string
	count func(t *tally) int64
	base  spec.JobState // 0: the dialect has no cores of it
}

func queueStates() []queueState {
	of := func(name string, st spec.JobState) queueState {
		return queueState{name, func(counts *tally) int64 { return counts.shown[st] }, st}
	}
	return []queueState{
		of("pending", spec.Pending),
		of("running", spec.Running),
		of("suspended", spec.Suspended),
		of("cancelled", spec.Cancelled),
		{
			"completing",
			func(counts *tally) int64 { return counts.closing },
			0,
		},
		of("completed", spec.Completed),
		{
			"configuring",
			func(counts *tally) int64 { return counts.flags[0] },
			0,
		},
		of("failed", spec.Failed),
		of("timeout", spec.TimedOut),
		of("preempted", spec.Preempted),
		of("node_fail", spec.NodeFailed),
	}
}

func vpensoQueue() []family {
	out := []family{
		fig(
			"slurm_queue_pending_dependency",
			"Pending jobs that wait for others",
			func(s *scrape) float64 { return float64(s.pic.jobs.waiting) },
		),
		fig(
			"slurm_jobs_cores_running",
			"CPUs of running jobs",
			func(s *scrape) float64 { return float64(s.pic.jobs.cores[spec.Running]) },
		),
		fig(
			"slurm_jobs_cores_pending",
			"CPUs that pending jobs ask for",
			func(s *scrape) float64 { return float64(s.pic.jobs.cores[spec.Pending]) },
		),
	}
	for _, queue := range queueStates() {
		count := func(s *scrape) float64 { return float64(queue.count(&s.pic.jobs)) }
		out = append(
			out,
			fig("slurm_queue_"+queue.name, "Jobs that are "+queue.name, count),
			fig("slurm_jobs_"+
				queue.name, "Jobs that are "+queue.name, count),
		)
		if queue.base == 0 {
			continue
		}
		out = append(out, family{gaugeMetric("slurm_cores_"+queue.name, "CPUs of jobs that are "+
			queue.name, catalogue.None, "job records", "users x partitions with such jobs", "user", "partition"), func(s *scrape) {
			for _, k := range s.pic.pairKeys {
				if n := s.pic.pairs[k][queue.base]; n > 0 {
					s.sendSeries(float64(n), k.a, k.b)
				}
			}
		}})
	}
	return out
}

func toMicros(d spec.Span) float64 { return float64(d / 1000) }

// meanOf is a total over a count, 0 of nothing.
func meanOf(total float64, count uint64) float64 {
	if count == 0 {
		return 0
	}
	return total / float64(count)
}

// vpensoScheduler is what sdiag prints: times in microseconds.
//
//muster:table one entry for each metric
func vpensoScheduler() []family {
	sched := func(name, help string, read func(r *schedRow) float64) family {
		return singleSeries(gaugeMetric(name, help, catalogue.None, "figures of the scheduler", "1"), func(s *scrape) float64 { return read(&s.pic.sched) })
	}
	return []family{
		sched("slurm_scheduler_threads", "Threads that serve requests", func(r *schedRow) float64 { return float64(r.Threads) }),
		sched("slurm_scheduler_queue_size", "Requests that wait to be sent or served", func(r *schedRow) float64 { return float64(r.ServerQueue) }),
		sched("slurm_scheduler_dbd_queue_size", "Records that wait for accounting", func(r *schedRow) float64 { return float64(r.DBDQueue) }),
		sched("slurm_scheduler_last_cycle", "Time of the last scheduling cycle in microseconds", func(r *schedRow) float64 { return toMicros(r.CycleLast) }),
		sched("slurm_scheduler_mean_cycle", "Mean time of a scheduling cycle in microseconds", func(r *schedRow) float64 { return meanOf(toMicros(r.CycleTotal), r.Cycles) }),
		{gaugeMetric("slurm_scheduler_cycle_per_minute", "Scheduling cycles a minute", catalogue.None, "figures of the scheduler", "1"), func(s *scrape) {
			row := &s.pic.sched
			s.sendSeries(
				meanOf(float64(row.Cycles)*60, uint64(max(s.now.Sub(row.Since)/spec.Second, 0))),
			)
		}},
		sched("slurm_scheduler_backfill_last_cycle", "Time of the last backfill cycle in microseconds", func(r *schedRow) float64 { return toMicros(r.BFLast) }),
		sched("slurm_scheduler_backfill_mean_cycle", "Mean time of a backfill cycle in microseconds", func(r *schedRow) float64 { return meanOf(toMicros(r.BFTotal), r.BFCycles) }),
		sched("slurm_scheduler_backfill_depth_mean", "Mean number of jobs tried in a backfill cycle", func(r *schedRow) float64 { return meanOf(float64(r.BFDepthTotal), r.BFCycles) }),
		sched("slurm_scheduler_backfilled_jobs_since_start_total", "Jobs started by backfill", func(r *schedRow) float64 { return float64(r.Backfilled) }),
		sched("slurm_scheduler_backfilled_jobs_since_cycle_total", "Jobs started by backfill since the figures were last reset; Muster never resets them",
			func(r *schedRow) float64 { return float64(r.BackfilledCycle) }),
		sched("slurm_scheduler_backfilled_heterogeneous_total", "Components of heterogeneous jobs started by backfill", func(r *schedRow) float64 { return float64(r.BackfilledHet) }),
		sched("slurm_scheduler_jobs_submitted", "Jobs submitted", func(r *schedRow) float64 { return float64(r.Submitted) }),
		sched("slurm_scheduler_jobs_started", "Jobs started", func(r *schedRow) float64 { return float64(r.Started) }),
		sched("slurm_scheduler_jobs_completed", "Jobs completed", func(r *schedRow) float64 { return float64(r.Completed) }),
		sched("slurm_scheduler_jobs_canceled", "Jobs cancelled", func(r *schedRow) float64 { return float64(r.Cancelled) }),
		sched("slurm_scheduler_jobs_failed", "Jobs failed", func(r *schedRow) float64 { return float64(r.Failed) }),
	}
}

func vpensoSubjects() []family {
	var out []family
	for _, sub := range sampleSubjects() {
		for _, m := range [...]struct {
			name, help string
			amount     func(counts *tally) int64
		}{
			{"jobs_pending", "Pending jobs", func(counts *tally) int64 { return counts.shown[spec.Pending] }},
			{"jobs_running", "Running jobs", func(counts *tally) int64 { return counts.shown[spec.Running] }},
			{"jobs_suspended", "Suspended jobs", func(counts *tally) int64 { return counts.shown[spec.Suspended] }},
			{"cpus_running", "CPUs of running jobs", func(counts *tally) int64 { return counts.cores[spec.Running] }},
			{"gpus_running", "GPUs that jobs hold", func(counts *tally) int64 { return counts.gpus }},
		} {
			out = append(out, family{gaugeMetric("slurm_"+sub.name+"_"+m.name, m.help+" of the "+
				sub.name, catalogue.None, "job records", sub.name+"s with such jobs", sub.name), func(s *scrape) {
				all := sub.of(s)
				for _, k := range all.keys {
					if n := m.amount(all.by[k]); n > 0 {
						s.sendSeries(float64(n), k)
					}
				}
			}})
		}
	}
	return out
}

func vpensoFairshare() []family {
	var out []family
	for _, sub := range [...]struct {
		prefix string
		user   bool
		labels []string
	}{{"slurm_account_fairshare", false, []string{"account"}}, {"slurm_user_fairshare", true, []string{"account", "user"}}} {
		for _, m := range [...]struct {
			suffix, help string
			amount       func(r *shareRow) (float64, bool)
		}{
			{"", "Fair-share factor", func(r *shareRow) (float64, bool) { return r.Factor, r.HasFactor }},
			{"_norm_shares", "Shares as a part of the cluster's", func(r *shareRow) (float64, bool) { return r.NormShares, true }},
			{"_norm_usage", "Decayed usage as a part of the cluster's", func(r *shareRow) (float64, bool) { return r.NormUsage, r.HasUsage }},
			{"_raw_shares", "Shares as configured", func(r *shareRow) (float64, bool) { return float64(r.RawShares), true }},
			{"_raw_usage_cpu_seconds", "Decayed usage in billing-seconds", func(r *shareRow) (float64, bool) { return r.RawUsage, r.HasUsage }},
		} {
			out = append(
				out,
				family{
					gaugeMetric(
						sub.prefix+m.suffix,
						m.help,
						catalogue.None,
						"associations and their decayed usage",
						"associations",
						sub.labels...),
					func(s *scrape) {
						for i := range s.pic.shares {
							row := &s.pic.shares[i]
							value, ok := m.amount(row)
							switch {
							case !ok || (row.User != "") != sub.user:
							case sub.user:
								s.sendSeries(value, row.Account, row.User)
							default:
								s.sendSeries(value, row.Account)
							}
						}
					},
				},
			)
		}
	}
	return out
}

//muster:table one entry for each metric
func vpensoReservations() []family {
	const src = "reservations"
	each := func(f func(s *scrape, r *reservationRow)) func(s *scrape) {
		return func(s *scrape) {
			for i := range s.pic.resvs {
				f(s, &s.pic.resvs[i])
			}
		}
	}
	amount := func(name, help string, unit catalogue.Unit, read func(r *reservationRow) float64) family {
		return family{gaugeMetric(name, help, unit, src, src, "reservation_name"), each(func(s *scrape, r *reservationRow) { s.sendSeries(read(r), r.Name) })}
	}
	out := []family{
		{gaugeMetric("slurm_reservation_info", "1, with what the reservation is", catalogue.None, src, src, "reservation_name", "state", "users", "nodes", "partition", "flags"),
			each(func(s *scrape, row *reservationRow) {
				s.sendSeries(1, row.Name, row.State, row.Users, row.Nodes, row.Partition, row.Flags)
			})},
		amount("slurm_reservation_start_time_seconds", "When the reservation begins, in seconds since 1970", catalogue.Seconds, func(r *reservationRow) float64 { return float64(r.Start.Unix()) }),
		amount("slurm_reservation_end_time_seconds", "When the reservation ends, in seconds since 1970", catalogue.Seconds, func(r *reservationRow) float64 { return float64(r.End.Unix()) }),
		amount("slurm_reservation_node_count", "Nodes of the reservation", catalogue.None, func(r *reservationRow) float64 { return float64(r.NodeCount) }),
		amount("slurm_reservation_core_count", "Cores of the reservation", catalogue.None, func(r *reservationRow) float64 { return float64(r.Cores) }),
	}
	for _, g := range [...][2]string{{"alloc", "allocated completing"}, {"idle", "idle reserved"}, {"mix", "mixed"}, {"down", "down"},
		{"drain", "drained draining"}, {"planned", "planned"}, {"other", ""}, {"healthy", "allocated completing idle reserved mixed planned"}} {
		out = append(out, family{gaugeMetric("slurm_reservation_nodes_"+g[0], "Nodes of the reservation that are "+g[0], catalogue.None, src, src, "reservation"),
			each(func(s *scrape, row *reservationRow) {
				n := 0
				for _, k := range row.members {
					st := s.pic.nodes[k].longState()
					known := strings.Contains(" allocated completing idle reserved mixed down drained draining planned ", " "+st+" ")
					if (g[1] == "" && !known) || (g[1] != "" && strings.Contains(" "+g[1]+" ", " "+st+" ")) {
						n++
					}
				}
				s.sendSeries(float64(n), row.Name)
			})})
	}
	for _, m := range [...]struct {
		name, help string
		amount     func(l *licenceRow) int64
	}{{"total", "Licences", func(l *licenceRow) int64 { return l.Total }}, {"used", "Licences that jobs hold", func(l *licenceRow) int64 { return l.Used }},
		{"free", "Licences that no job holds, as scontrol says it", func(l *licenceRow) int64 { return max(l.Total-l.Used, 0) }},
		{"reserved", "Licences that active reservations keep, with those that their jobs hold", func(l *licenceRow) int64 { return l.Reserved }}} {
		out = append(out, family{gaugeMetric("slurm_license_"+m.name, m.help, catalogue.None, "licences", "licences", "license"), func(s *scrape) {
			for i := range s.pic.lics {
				s.sendSeries(float64(m.amount(&s.pic.lics[i])), s.pic.lics[i].Name)
			}
		}})
	}
	return out
}

// vpensoCalls show the controller's calls; times in microseconds, as sdiag's.
func vpensoCalls() []family {
	var out []family
	for _, sub := range [...]struct {
		prefix, label string
		of            func(s *scrape) []rpcRow
	}{{"slurm_rpc_stats", "operation", (*scrape).methodRows}, {"slurm_user_rpc_stats", "user", (*scrape).callersRows}} {
		for _, m := range [...]struct {
			suffix, help string
			amount       func(r *rpcRow) float64
		}{{"", "Calls", func(r *rpcRow) float64 { return float64(r.Count) }},
			{"_avg_time", "Mean time of a call in microseconds", func(r *rpcRow) float64 { return meanOf(toMicros(r.Total), r.Count) }},
			{"_total_time", "Time of all calls in microseconds", func(r *rpcRow) float64 { return toMicros(r.Total) }}} {
			out = append(
				out,
				family{
					gaugeMetric(
						sub.prefix+m.suffix,
						m.help+" by "+sub.label,
						catalogue.None,
						"the API's handlers",
						sub.label+
							"s (at most 500)",
						sub.label,
					),
					func(s *scrape) {
						list := sub.of(s)
						for i := range list {
							s.sendSeries(m.amount(&list[i]), list[i].Name)
						}
					},
				},
			)
		}
	}
	return out
}

// methodRows and callers are the calls of the API, or those that a Slurm counts.
func (s *scrape) methodRows() []rpcRow {
	if s.src != nil && s.src.Calls != nil {
		return callRows(&s.src.Calls.methods)
	}
	return s.pic.sched.RPCs
}

func (s *scrape) callersRows() []rpcRow {
	if s.src != nil && s.src.Calls != nil {
		return callRows(&s.src.Calls.users)
	}
	return s.pic.sched.UserRPCs
}

// vpensoJobs are figures over the jobs that ended and are still known.
func vpensoJobs() []family {
	var out []family
	for _, m := range [...]struct {
		name, help string
		amount     func(e *efficiency) (float64, bool)
	}{
		{"slurm_job_cpu_efficiency_avg", "Mean over jobs of used to given CPU time", func(e *efficiency) (float64, bool) { return meanOf(e.cpuRatio, uint64(e.withCPU)), e.withCPU > 0 }},
		{"slurm_job_mem_efficiency_avg", "Mean over jobs of peak to given memory", func(e *efficiency) (float64, bool) { return meanOf(e.memRatio, uint64(e.withMem)), e.withMem > 0 }},
		{"slurm_job_count_completed", "Jobs that ran and ended", func(e *efficiency) (float64, bool) { return float64(e.jobs), true }},
		{"slurm_job_cpu_hours_allocated", "CPU hours given to jobs that ended", func(e *efficiency) (float64, bool) { return e.hours, true }},
	} {
		out = append(
			out,
			family{
				gaugeMetric(
					m.name,
					m.help+", of the jobs still known (MinJobAge)",
					catalogue.None,
					"job records",
					"accounts x users with such jobs",
					"account",
					"user",
				),
				func(s *scrape) {
					for _, k := range sortedPairs(s.pic.done) {
						if v, ok := m.amount(s.pic.done[k]); ok {
							s.sendSeries(v, k.a, k.b)
						}
					}
				},
			},
		)
	}
	return out
}

// commands counts what the exporter runs beside a Slurm; it stays empty for
// Muster's own clusters, where nothing is run.
type commands struct {
	Name    string
	Seconds *dto.Histogram
	Errors  uint64
}

// vpensoSelf is about the exporter itself. For Muster's own clusters there is
// one collector, the picture of the published view.
func vpensoSelf() []family {
	duration := gaugeMetric(
		"slurm_exporter_command_duration_seconds",
		"Time of the commands that the exporter runs; none for a cluster of Muster's",
		catalogue.Seconds,
		"the exporter",
		"commands x 12",
		"command",
	)
	duration.Type = catalogue.Histogram
	failures := gaugeMetric(
		"slurm_exporter_command_errors_total",
		"Commands of the exporter that failed",
		catalogue.None,
		"the exporter",
		"commands",
		"command",
	)
	failures.Type = catalogue.Counter
	return []family{
		{
			gaugeMetric(
				"slurm_info",
				"1, with the version of what is exported",
				catalogue.None,
				"the program",
				"1",
				"type",
				"binary",
				"version",
			),
			func(s *scrape) { s.sendSeries(1, s.pic.made.kind, s.pic.made.binary, s.pic.made.version) },
		},
		{
			gaugeMetric(
				"slurm_exporter_collector_success",
				"1 if the figures could be read",
				catalogue.None,
				"the exporter",
				"1 to 5",
				"collector",
			),
			func(s *scrape) {
				for i := range s.pic.made.parts {
					s.sendSeries(oneIf(s.pic.made.parts[i].err == nil), s.pic.made.parts[i].name)
				}
			},
		},
		{
			gaugeMetric(
				"slurm_exporter_collector_duration_seconds",
				"Time it took to read the figures",
				catalogue.Seconds,
				"the exporter",
				"1 to 5",
				"collector",
			),
			func(s *scrape) {
				for i := range s.pic.made.parts {
					s.sendSeries(s.pic.made.parts[i].seconds, s.pic.made.parts[i].name)
				}
			},
		},
		{
			gaugeMetric(
				"slurm_exporter_cache_age_seconds",
				"Age of the figures shown",
				catalogue.Seconds,
				"the exporter",
				"1",
			),
			func(s *scrape) { s.sendSeries(toSeconds(max(s.now.Sub(s.pic.at), 0))) },
		},
		{duration, func(s *scrape) {
			for i := range s.pic.made.commands {
				s.sendHistogram(s.pic.made.commands[i].Seconds, s.pic.made.commands[i].Name)
			}
		}},
		{failures, func(s *scrape) {
			for i := range s.pic.made.commands {
				s.sendSeries(float64(s.pic.made.commands[i].Errors), s.pic.made.commands[i].Name)
			}
		}},
	}
}
