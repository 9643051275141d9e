package collector

import (
	"sort"

	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/ledger/state"
)

// guideFamilies are the few names that guides tell people to expect on 8080,
// with exactly the meaning they give them. They carry cluster too.
//
//muster:table one entry for each metric
func guideFamilies() []family {
	list := []family{
		{gauge("slurm_jobs_running", "Running jobs by partition.", catalogue.None, "live job records", "partitions", "partition"), func(s *scrape) {
			for i := range s.v.State.Parts.List {
				name := s.v.State.Parts.List[i].Spec.Name
				s.send(float64(s.jobs.byState[[2]string{name, "running"}]), name)
			}
		}},
		{gauge("slurm_jobs_pending", "Pending jobs by reason.", catalogue.None, "live job records", "reasons in use", "reason"), func(s *scrape) {
			eachName(s.jobs.reasons, func(r string, n int64) { s.send(float64(n), r) })
		}},
		one(gauge("slurm_nodes_alloc", "Nodes with all CPUs allocated, or some.", catalogue.None, "node records", "1"), countNodes("allocated", "mixed")),
		one(gauge("slurm_nodes_idle", "Nodes in service without jobs.", catalogue.None, "node records", "1"), countNodes("idle")),
		one(gauge("slurm_nodes_down", "Nodes that are down or drained.", catalogue.None, "node records", "1"), countNodes("down", "drained", "draining", "fail", "unknown")),
		one(gauge("slurm_cpus_total", "CPUs of all nodes.", catalogue.None, "node records", "1"), func(s *scrape) float64 { return float64(allCPUs(s).total) }),
		one(gauge("slurm_cpus_idle", "CPUs free for jobs on nodes in service.", catalogue.None, "node records", "1"), func(s *scrape) float64 { return float64(allCPUs(s).idle) }),
		{gauge("slurm_account_cpu_count", "CPUs allocated to an account's running jobs.", catalogue.None, "live job records", "accounts with running jobs", "account"), func(s *scrape) {
			eachName(s.jobs.cpusBy, func(a string, n int64) { s.send(float64(n), a) })
		}},
	}
	for i := range list {
		list[i].Dialect = catalogue.Guide
	}
	return list
}

func eachName(m map[string]int64, f func(name string, n int64)) {
	names := make([]string, 0, len(m))
	for k := range m {
		names = append(names, k)
	}
	sort.Strings(names)
	for _, k := range names {
		f(k, m[k])
	}
}

func countNodes(states ...string) func(s *scrape) float64 {
	return func(s *scrape) float64 {
		n := 0
		s.v.State.Nodes.Range(func(_ uint64, node *state.Node) bool {
			st := nodeState(node)
			for _, want := range states {
				if st == want {
					n++
				}
			}
			return true
		})
		return float64(n)
	}
}

func allCPUs(s *scrape) capacity {
	var c capacity
	s.v.State.Nodes.Range(func(_ uint64, n *state.Node) bool {
		used, total := nodeCPUs(n)
		c.add(n, used, total)
		return true
	})
	return c
}
