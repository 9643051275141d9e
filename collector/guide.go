package collector

import (
	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/spec"
)

// guideFamilies are the few names that guides tell people to expect on 8080,
// with exactly the meaning they give them. They carry cluster too.
//
//muster:table one entry for each metric
func guideFamilies() []family {
	list := []family{
		{gaugeMetric("slurm_jobs_running", "Running jobs by partition.", catalogue.None, "live job records", "partitions", "partition"), func(s *scrape) {
			eachTally(s, func(counts *tally) float64 { return float64(counts.shown[spec.Running]) })
		}},
		{gaugeMetric("slurm_jobs_pending", "Pending jobs by reason.", catalogue.None, "live job records", "reasons in use", "reason"), func(s *scrape) {
			for _, reason := range sortedKeys(s.pic.reason) {
				s.sendSeries(float64(s.pic.reason[reason]), reason)
			}
		}},
		singleSeries(gaugeMetric("slurm_nodes_alloc", "Nodes with all CPUs allocated, or some.", catalogue.None, "node records", "1"), func(s *scrape) float64 { return float64(countNodes(s, "allocated", "mixed")) }),
		singleSeries(gaugeMetric("slurm_nodes_idle", "Nodes in service without jobs.", catalogue.None, "node records", "1"), func(s *scrape) float64 { return float64(countNodes(s, "idle")) }),
		singleSeries(gaugeMetric("slurm_nodes_down", "Nodes that are down or drained.", catalogue.None, "node records", "1"),
			func(s *scrape) float64 {
				return float64(countNodes(s, "down", "drained", "draining", "fail", "unknown"))
			}),
		singleSeries(gaugeMetric("slurm_cpus_total", "CPUs of all nodes.", catalogue.None, "node records", "1"), func(s *scrape) float64 { return float64(allCPUs(s).total) }),
		singleSeries(gaugeMetric("slurm_cpus_idle", "CPUs free for jobs on nodes in service.", catalogue.None, "node records", "1"), func(s *scrape) float64 { return float64(allCPUs(s).idle) }),
		{gaugeMetric("slurm_account_cpu_count", "CPUs allocated to an account's running jobs.", catalogue.None, "live job records", "accounts with running jobs", "account"), func(s *scrape) {
			for _, a := range s.pic.byAcct.keys {
				if n := s.pic.byAcct.by[a].cpus; n > 0 {
					s.sendSeries(float64(n), a)
				}
			}
		}},
	}
	for i := range list {
		list[i].Dialect = catalogue.Guide
	}
	return list
}

func allCPUs(s *scrape) capacity {
	var c capacity
	for i := range s.pic.nodes {
		row := &s.pic.nodes[i]
		used, total := nodeCPUs(row)
		c.addNode(row.isUsable(), used, total)
	}
	return c
}
