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
				finding := &all.List[i]
				if finding.GPU == 0 {
					continue
				}
				device := ""
				if finding.Device != "" {
					device = fmt.Sprint(finding.Index)
				}
				s.sendSeries(
					float64(finding.GPU)/1e6,
					string(finding.Kind),
					finding.User,
					finding.Account,
					finding.JobName,
					finding.Node,
					device,
				)
			}
		}},
		{saved, func(s *scrape) {
			if all := found(s); all != nil {
				s.sendSeries(float64(all.SavedGPU) / 1e6)
			}
		}},
	}
}
