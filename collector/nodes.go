package collector

import (
	"strconv"

	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/spec"
)

func nodeStates() []string {
	return []string{
		"allocated",
		"mixed",
		"idle",
		"draining",
		"drained",
		"fail",
		"down",
		"unknown",
		"powered_down",
	}
}

// capacity sums what a set of nodes offers.
type capacity struct{ allocated, idle, out, total int64 }

func (c *capacity) addNode(usable bool, used, total int64) {
	c.total += total
	c.allocated += used
	if usable {
		c.idle += total - used
	} else {
		c.out += total - used
	}
}

// sendCapacity shows allocated, idle and out of service after the given labels.
func (c *capacity) sendCapacity(s *scrape, scale float64, label string) {
	s.sendSeries(float64(c.allocated)*scale, label, "allocated")
	s.sendSeries(float64(c.idle)*scale, label, "idle")
	s.sendSeries(float64(c.out)*scale, label, "unavailable")
}

// eachPartition calls f with the nodes of every partition.
func eachPartition(s *scrape, f func(name string, nodes []int32)) {
	for i := range s.pic.parts {
		f(s.pic.parts[i].Name, s.pic.parts[i].nodes)
	}
}

// sum adds up an amount for each partition.
func sum(s *scrape, scale float64, amount func(node *nodeRow) (used, total int64)) {
	eachPartition(s, func(name string, nodes []int32) {
		var c capacity
		for _, k := range nodes {
			row := &s.pic.nodes[k]
			used, total := amount(row)
			c.addNode(row.isUsable(), used, total)
		}
		c.sendCapacity(s, scale, name)
	})
}

func nodeCPUs(row *nodeRow) (int64, int64) { return row.CPUAlloc, row.CPUsForJobs }
func nodeMem(row *nodeRow) (int64, int64)  { return row.MemAlloc, row.MemForJobs }
func nodeGPUs(row *nodeRow) (int64, int64) { return row.GPUAlloc, row.GPUs }

// largest finds the most that one node of each partition could give a job now.
func largest(s *scrape, scale float64, amount func(node *nodeRow) (used, total int64)) {
	eachPartition(s, func(name string, nodes []int32) {
		best := int64(0)
		for _, k := range nodes {
			if row := &s.pic.nodes[k]; row.isUsable() {
				used, total := amount(row)
				best = max(best, total-used)
			}
		}
		s.sendSeries(float64(best)*scale, name)
	})
}

// nodeFamilies need no ledger: they are served beside a Slurm too.
//
//muster:table one entry for each metric
func nodeFamilies() []family {
	const src = "node records"
	return []family{
		{gaugeMetric("muster_nodes", "Nodes by state.", catalogue.None, src, "9 states", "state"), func(s *scrape) {
			for _, st := range nodeStates() {
				s.sendSeries(float64(countNodes(s, st)), st)
			}
		}},
		{gaugeMetric("muster_partition_nodes", "Nodes of a partition by state.", catalogue.None, src, "partitions x states that occur (at most 9)", "partition", "state"), partitionNodes},
		{gaugeMetric("muster_node_drained_since_timestamp_seconds", "When a node was drained or set down, for each node that is.", catalogue.Seconds, src, "nodes out of service", "node", "reason"),
			func(s *scrape) {
				for i := range s.pic.nodes {
					if row := &s.pic.nodes[i]; row.ReasonAt != 0 &&
						row.Flags&(nodeDrain|nodeFail|nodeDown|nodeInvalid) != 0 {
						s.sendSeries(float64(row.ReasonAt.Unix()), row.Name, row.Reason)
					}
				}
			}},
		{infoMetric(gaugeMetric("muster_node_state_info", "Always 1, for each node that takes no jobs, with its state and the reason that was given.", catalogue.None, src, "nodes out of service", "node", "state", "reason")), nodesOut},
		{infoMetric(gaugeMetric("muster_node_incomplete_info", "Always 1, for each node that found fewer GPUs, CPUs or other resources, or less memory, than are configured, with the first that it lacks.", catalogue.None, src, "such nodes", "node", "reason")),
			nodesIncomplete},
		{gaugeMetric("muster_node_lost_since_timestamp_seconds", "When a silent node was given up, for each node that is silent.", catalogue.Seconds, src, "silent nodes", "node"),
			func(s *scrape) {
				for i := range s.pic.nodes {
					if row := &s.pic.nodes[i]; row.LostAt != 0 {
						s.sendSeries(float64(row.LostAt.Unix()), row.Name)
					}
				}
			}},
		{gaugeMetric("muster_partition_cpus", "CPUs of a partition's nodes: allocated to jobs, idle, or of nodes out of service.", catalogue.None, src, "partitions x 3", "partition", "state"),
			func(s *scrape) { sum(s, 1, nodeCPUs) }},
		{gaugeMetric("muster_partition_memory_bytes", "Memory of a partition's nodes: allocated to jobs, idle, or of nodes out of service.", catalogue.Bytes, src, "partitions x 3", "partition", "state"),
			func(s *scrape) { sum(s, 1<<20, nodeMem) }},
		{gaugeMetric("muster_partition_gpus", "GPUs of a partition's nodes: allocated to jobs, idle, of nodes out of service (unavailable), or configured and not there any more (lost). Their sum is what was bought.",
			catalogue.None, src, "partitions x 4", "partition", "state"), partitionGPUs},
		{gaugeMetric("muster_gpus", "GPUs of the cluster by type: allocated to jobs, shared by jobs that have parts of them, idle, of nodes out of service (unavailable), or configured and not there any more (lost). Their sum is what was bought.",
			catalogue.None, src, "GPU types x 5", "type", "state"), gpusByType},
		{gaugeMetric("muster_partition_largest_idle_gpus", "GPUs that the partition's emptiest node could give one job now: large total, small largest means fragmentation.", catalogue.None, src, "partitions", "partition"),
			func(s *scrape) { largest(s, 1, nodeGPUs) }},
		{gaugeMetric("muster_partition_largest_idle_cpus", "CPUs that the partition's emptiest node could give one job now.", catalogue.None, src, "partitions", "partition"),
			func(s *scrape) { largest(s, 1, nodeCPUs) }},
		{gaugeMetric("muster_partition_largest_idle_memory_bytes", "Memory that the partition's emptiest node could give one job now.", catalogue.Bytes, src, "partitions", "partition"),
			func(s *scrape) { largest(s, 1<<20, nodeMem) }},
		{gaugeMetric("muster_partition_startable_nodes", "Nodes of the largest job that could start now if it asks for so many idle GPUs on each; 0 GPUs: whole idle nodes.", catalogue.None, src, "partitions x 5", "partition", "gpus_per_node"), startable},
		{gaugeMetric("muster_node_gpu_faults", "Things that happened to a node's GPUs and that the controller remembers (at most 64 for a node), by kind and class of XID.", catalogue.None, src, "nodes with such GPUs x kinds", "node", "kind", "class"), func(s *scrape) {
			for i := range s.pic.nodes {
				row := &s.pic.nodes[i]
				for k := range row.Faults {
					s.sendSeries(
						float64(row.Faults[k].Count),
						row.Name,
						row.Faults[k].Kind.String(),
						row.Faults[k].Class,
					)
				}
			}
		}},
		xidEvents(),
		xidLast(),
		{gaugeMetric("muster_job_gpu_idle_seconds", "How long a job has held a GPU without a process, where gpu.on_idle has its user warned of it (warn, cancel): as last said by the node, which says it again when it has doubled.",
			catalogue.Seconds, src, "GPUs of warned jobs", "slurm_job_id", "user", "account", "partition", "node", "gpu_uuid"), func(s *scrape) {
			for i := range s.pic.nodes {
				node := &s.pic.nodes[i]
				for k := range node.Warned {
					if row := &node.Warned[k]; row.isCurrent(s.now) {
						s.sendSeries(
							float64(row.Idle)/float64(spec.Second),
							strconv.FormatUint(row.Job, 10),
							row.User,
							row.Account,
							row.Partition,
							node.Name,
							row.UUID,
						)
					}
				}
			}
		}},
		{gaugeMetric("muster_licenses", "Licences: held by jobs, kept by active reservations beside what their own jobs hold, or free.", catalogue.None, "licences of the configuration and of jobs", "licences x 3", "license", "state"), func(s *scrape) {
			for i := range s.pic.lics {
				row := &s.pic.lics[i]
				s.sendSeries(float64(row.Used), row.Name, "used")
				s.sendSeries(float64(row.Kept), row.Name, "reserved")
				s.sendSeries(float64(max(row.Total-row.Used-row.Kept, 0)), row.Name, "free")
			}
		}},
	}
}

// nodesOut names the nodes that take no jobs, for alerts and tables: a count of
// them does not say where to look.
func nodesOut(s *scrape) {
	for i := range s.pic.nodes {
		node := &s.pic.nodes[i]
		switch st := node.countedState(); st {
		case "allocated", "mixed", "idle", "powered_down":
		default:
			s.sendSeries(1, node.Name, st, node.Reason)
		}
	}
}

// nodesIncomplete names the nodes that have less than is configured.
func nodesIncomplete(s *scrape) {
	for i := range s.pic.nodes {
		if node := &s.pic.nodes[i]; node.Incomplete != "" {
			s.sendSeries(1, node.Name, node.Incomplete)
		}
	}
}

func countNodes(s *scrape, states ...string) int {
	n := 0
	for i := range s.pic.nodes {
		st := s.pic.nodes[i].countedState()
		for _, want := range states {
			if st == want {
				n++
			}
		}
	}
	return n
}

func partitionNodes(s *scrape) {
	eachPartition(s, func(name string, nodes []int32) {
		for _, st := range nodeStates() {
			n := 0
			for _, k := range nodes {
				if s.pic.nodes[k].countedState() == st {
					n++
				}
			}
			if n > 0 {
				s.sendSeries(float64(n), name, st)
			}
		}
	})
}

// startable counts, for some sizes of request, the nodes that could serve it
// at once: the size of the largest job that is not held up by fragmentation.
func startable(s *scrape) {
	sizes := [...]struct {
		gpus int64
		name string
	}{{0, "0"}, {1, "1"}, {2, "2"}, {4, "4"}, {8, "8"}}
	eachPartition(s, func(name string, nodes []int32) {
		for _, size := range sizes {
			count := 0
			for _, k := range nodes {
				node := &s.pic.nodes[k]
				fits := !node.Busy
				if size.gpus > 0 {
					fits = node.gpuIdle() >= size.gpus && node.cpuIdle() > 0
				}
				if fits && node.isUsable() {
					count++
				}
			}
			s.sendSeries(float64(count), name, size.name)
		}
	})
}

func partitionGPUs(s *scrape) {
	sum(s, 1, nodeGPUs)
	eachPartition(s, func(name string, nodes []int32) {
		lost := int64(0)
		for _, k := range nodes {
			lost += s.pic.nodes[k].GPUsLost
		}
		s.sendSeries(float64(lost), name, "lost")
	})
}

func gpusByType(s *scrape) {
	types := gpuStates(s.pic.nodes)
	for _, name := range sortedKeys(types) {
		counts := types[name]
		counts.sendCapacity(s, 1, name)
		s.sendSeries(float64(counts.shared), name, "shared")
		s.sendSeries(float64(counts.lost), name, "lost")
	}
}

// gpuCounts are the GPUs of one type. One of which jobs have parts is shared,
// and neither allocated nor idle.
type gpuCounts struct {
	capacity
	shared, lost int64
}

// gpuStates counts GPUs by type.
func gpuStates(nodes []nodeRow) map[string]*gpuCounts {
	types := map[string]*gpuCounts{}
	for i := range nodes {
		node := &nodes[i]
		for _, gres := range node.GRES {
			if gres.Name != "gpu" {
				continue
			}
			counts := entryOf(types, gres.Type)
			counts.addNode(node.isUsable(), gres.Used, gres.Total-gres.Shared)
			counts.shared += gres.Shared
			counts.lost += gres.Lost
		}
	}
	return types
}

const xidSource = "GPU faults that the nodes reported, from the ledger"

// eachXID calls f for every driver error that is remembered.
func eachXID(s *scrape, f func(node string, x *xidRow)) {
	for i := range s.pic.nodes {
		row := &s.pic.nodes[i]
		for k := range row.XIDs {
			f(row.Name, &row.XIDs[k])
		}
	}
}

// xidEvents counts driver errors. It has no label for the job: a counter whose
// first sample is already 1 shows no increase, so alerts use xidLast instead.
func xidEvents() family {
	metric := counterMetric(
		"muster_gpu_xid_events_total",
		"Driver errors (XID) of a GPU, counted by the ledger. A node's oldest errors are forgotten beyond 64 kinds.",
		catalogue.None,
		xidSource,
		"GPUs with errors x XIDs",
		"node",
		"gpu",
		"gpu_uuid",
		"xid",
		"class",
	)
	return family{metric, func(s *scrape) {
		eachXID(s, func(node string, row *xidRow) {
			s.sendSeries(
				float64(row.Count),
				node,
				row.Index,
				row.UUID,
				strconv.FormatInt(row.XID, 10),
				row.Class,
			)
		})
	}}
}

// xidLast says when each driver error happened last and whom it struck then.
// Unlike DCGM's gauge of the last XID it does not pass to the GPU's next holder.
func xidLast() family {
	metric := gaugeMetric(
		"muster_gpu_xid_last_timestamp_seconds",
		"When a GPU had a driver error (XID) last, and the job that held the GPU at that moment.",
		catalogue.Seconds,
		xidSource,
		"GPUs with errors x XIDs",
		"node",
		"gpu",
		"gpu_uuid",
		"xid",
		"class",
		"slurm_job_id",
		"user",
	)
	return family{metric, func(s *scrape) {
		eachXID(s, func(node string, row *xidRow) {
			at := float64(row.At) / float64(spec.Second)
			s.sendSeries(
				at,
				node,
				row.Index,
				row.UUID,
				strconv.FormatInt(row.XID, 10),
				row.Class,
				row.Job,
				row.User,
			)
		})
	}}
}
