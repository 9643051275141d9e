package collector

import (
	"sort"

	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// nodeState is the one word a node is counted under.
func nodeState(n *state.Node) string {
	busy := len(n.Jobs) > 0
	switch {
	case n.Inv == nil:
		return "unknown"
	case n.Lost || n.Admin == event.NodeDown:
		return "down"
	case n.Admin == event.NodeFail:
		return "fail"
	case n.Admin == event.NodeDrain || n.Invalid != "":
		if busy {
			return "draining"
		}
		return "drained"
	case n.FreeCPUs() <= 0:
		return "allocated"
	case busy:
		return "mixed"
	}
	return "idle"
}

func nodeStates() []string {
	return []string{"allocated", "mixed", "idle", "draining", "drained", "fail", "down", "unknown"}
}

// capacity is what the nodes of a partition (or all) have, in three parts:
// held by jobs, free for jobs, and out of service.
type capacity struct{ allocated, idle, out, total int64 }

func (c *capacity) add(n *state.Node, used, total int64) {
	c.total += total
	c.allocated += used
	if n.Usable() {
		c.idle += total - used
	} else {
		c.out += total - used
	}
}

func (c *capacity) send(s *scrape, scale float64, labels ...string) {
	for _, e := range [...]struct {
		name string
		n    int64
	}{{"allocated", c.allocated}, {"idle", c.idle}, {"unavailable", c.out}} {
		s.send(float64(e.n)*scale, append(append([]string(nil), labels...), e.name)...)
	}
}

// sum adds up an amount of the nodes of each partition.
func sum(s *scrape, scale float64, amount func(n *state.Node) (used, total int64)) {
	for i := range s.v.State.Parts.List {
		p := &s.v.State.Parts.List[i]
		var c capacity
		for id := p.Nodes.Next(0); id >= 0; id = p.Nodes.Next(id + 1) {
			if n := s.v.State.NodeByID(spec.NodeID(id)); n != nil {
				used, total := amount(n)
				c.add(n, used, total)
			}
		}
		c.send(s, scale, p.Spec.Name)
	}
}

func nodeCPUs(n *state.Node) (int64, int64) { return int64(n.UsedCPU.Count()), n.CPUs }
func nodeMem(n *state.Node) (int64, int64)  { return n.UsedMem, n.Mem }
func nodeGPUs(n *state.Node) (int64, int64) { return int64(n.UsedGPU.Count()), int64(len(n.GPUs)) }

//muster:table one entry for each metric
func nodeFamilies() []family {
	const src = "node records"
	return []family{
		{gauge("muster_nodes", "Nodes by state.", catalogue.None, src, "8 states", "state"), func(s *scrape) {
			count := map[string]int{}
			s.v.State.Nodes.Range(func(_ uint64, n *state.Node) bool { count[nodeState(n)]++; return true })
			for _, st := range nodeStates() {
				s.send(float64(count[st]), st)
			}
		}},
		{gauge("muster_node_drained_since_timestamp_seconds", "When a node was drained or set down, for each node that is.", catalogue.Seconds, src, "nodes out of service", "node", "reason"),
			func(s *scrape) {
				s.v.State.Nodes.Range(func(_ uint64, n *state.Node) bool {
					if n.Admin != event.NodeResume && n.ReasonAt != 0 {
						s.send(float64(n.ReasonAt.Unix()), n.Spec.Name, n.Reason)
					}
					return true
				})
			}},
		{gauge("muster_partition_cpus", "CPUs of a partition's nodes: allocated to jobs, idle, or of nodes out of service.", catalogue.None, src, "partitions x 3", "partition", "state"),
			func(s *scrape) { sum(s, 1, nodeCPUs) }},
		{gauge("muster_partition_memory_bytes", "Memory of a partition's nodes: allocated to jobs, idle, or of nodes out of service.", catalogue.Bytes, src, "partitions x 3", "partition", "state"),
			func(s *scrape) { sum(s, 1<<20, nodeMem) }},
		{gauge("muster_partition_gpus", "GPUs of a partition's nodes: allocated to jobs, idle, or of nodes out of service.", catalogue.None, src, "partitions x 3", "partition", "state"),
			func(s *scrape) { sum(s, 1, nodeGPUs) }},
		{gauge("muster_gpus", "GPUs of the cluster by type: allocated to jobs, idle, or of nodes out of service.", catalogue.None, src, "GPU types x 3", "type", "state"), gpusByType},
		{gauge("muster_partition_largest_idle_gpus", "GPUs that the partition's emptiest node could give one job now: large total, small largest means fragmentation.", catalogue.None, src, "partitions", "partition"),
			func(s *scrape) {
				for i := range s.v.State.Parts.List {
					p, best := &s.v.State.Parts.List[i], int64(0)
					for id := p.Nodes.Next(0); id >= 0; id = p.Nodes.Next(id + 1) {
						if n := s.v.State.NodeByID(spec.NodeID(id)); n != nil && n.Usable() {
							used, total := nodeGPUs(n)
							best = max(best, total-used)
						}
					}
					s.send(float64(best), p.Spec.Name)
				}
			}},
	}
}

func gpusByType(s *scrape) {
	types := map[string]*capacity{}
	s.v.State.Nodes.Range(func(_ uint64, n *state.Node) bool {
		for i := range n.GPUs {
			c := types[n.GPUs[i].Type]
			if c == nil {
				c = &capacity{}
				types[n.GPUs[i].Type] = c
			}
			used := int64(0)
			if n.UsedGPU.Has(i) {
				used = 1
			}
			c.add(n, used, 1)
		}
		return true
	})
	names := make([]string, 0, len(types))
	for t := range types {
		names = append(names, t)
	}
	sort.Strings(names)
	for _, t := range names {
		types[t].send(s, 1, t)
	}
}
