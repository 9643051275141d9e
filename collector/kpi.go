package collector

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/internal/catalogue"
)

// kpiFamilies are the figures that the accounting service computes, one
// metric for each definition. A figure that is missing has no series: it is
// never shown as zero.
func kpiFamilies() []family {
	var out []family
	seen := map[string]bool{}
	for _, k := range kpi.All() {
		if seen[k.Metric] {
			continue
		}
		seen[k.Metric] = true
		out = append(out, kpiFamily(k.Metric))
	}
	return out
}

// kpiFamily is the metric of a definition, or of those that differ in their
// class only.
func kpiFamily(metric string) family {
	members := map[string]kpi.KPI{}
	var first kpi.KPI
	for _, k := range slices.Backward(kpi.All()) {
		if k.Metric == metric {
			members[k.Name], first = k, k
		}
	}
	unit := catalogue.None
	for _, u := range [...]catalogue.Unit{catalogue.Ratio, catalogue.Seconds, catalogue.Joules} {
		if strings.HasSuffix(metric, "_"+string(u)) {
			unit = u
		}
	}
	help := first.Title + ": " + first.Formula + "."
	labels, card := []string{"by", "key", "window"}, fmt.Sprintf("(1 + partitions + accounts + users + QOS, of each the %d largest) x 4 windows", kpi.MaxKeys)
	if first.Class != "" {
		labels, card = append(labels, "class"), card+fmt.Sprintf(" x %d classes", len(members))
		help = "As " + strings.TrimSuffix(first.Name, "_"+first.Class) + ", by class of failure."
	}
	m := gauge(metric, help, unit, "SQL over the accounting store: "+first.From, card, labels...)
	return family{m, func(s *scrape) {
		if s.src.KPIs == nil {
			return
		}
		for _, v := range s.src.KPIs() {
			k, ok := members[v.KPI]
			if !ok || v.Null {
				continue
			}
			values := []string{string(v.By), v.Key, v.Window}
			if k.Class != "" {
				values = append(values, k.Class)
			}
			s.send(v.Value*k.Scale, values...)
		}
	}}
}
