package collector

import (
	"fmt"

	"github.com/musterhpc/muster/accounting/findings"
	"github.com/musterhpc/muster/internal/catalogue"
)

// findingFamilies are what wastes most of the cluster, and what became of it.
func findingFamilies() []family {
	const src = "muster findings, over the accounting store"
	gpu := gaugeMetric(
		"muster_finding_gpu_seconds",
		fmt.Sprintf("GPU time of the last %d days that a change would have saved: the largest findings.", findings.MetricDays),
		catalogue.Seconds, src, fmt.Sprintf("at most %d", findings.MaxMetrics),
		"kind", "user", "account", "work", "node", "gpu",
	)
	saved := gaugeMetric(
		"muster_findings_saved_gpu_seconds",
		fmt.Sprintf("GPU time of the last %[1]d days that findings of the %[1]d days before would have wasted at their rate, and did not.", findings.MetricDays),
		catalogue.Seconds, src, "1",
	)
	found := func(s *scrape) *findings.Found {
		if s.src.Findings == nil {
			return nil
		}
		return s.src.Findings()
	}
	return []family{
		{gpu, func(s *scrape) {
			all := found(s)
			if all == nil {
				return
			}
			for i := range all.List {
				f := &all.List[i]
				if f.GPU == 0 || s.src.Private && f.User != "" {
					continue
				}
				device := ""
				if f.Device != "" {
					device = fmt.Sprint(f.Index)
				}
				s.sendSeries(float64(f.GPU)/1e6, string(f.Kind), f.User, f.Account, f.JobName, f.Node, device)
			}
		}},
		{saved, func(s *scrape) {
			if all := found(s); all != nil {
				s.sendSeries(float64(all.SavedGPU) / 1e6)
			}
		}},
	}
}
