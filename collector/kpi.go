package collector

import (
	"strings"

	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/internal/catalogue"
)

// kpiFamilies are the figures that the accounting service computes, one
// metric for each definition. A figure that is missing has no series: it is
// never shown as zero.
func kpiFamilies() []family {
	var out []family
	for _, k := range kpi.All() {
		unit := catalogue.None
		for _, u := range [...]catalogue.Unit{catalogue.Ratio, catalogue.Seconds} {
			if strings.HasSuffix(k.Metric, "_"+string(u)) {
				unit = u
			}
		}
		help := k.Title + ": " + k.Formula + "."
		m := gauge(k.Metric, help, unit, "SQL over the accounting store: "+k.From, "(1 + partitions + accounts + users + QOS) x 4 windows", "by", "key", "window")
		out = append(out, family{m, func(s *scrape) {
			if s.src.KPIs == nil {
				return
			}
			for _, v := range s.src.KPIs() {
				if v.KPI == k.Name && !v.Null {
					s.send(v.Value*k.Scale, string(v.By), v.Key, v.Window)
				}
			}
		}})
	}
	return out
}
