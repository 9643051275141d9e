package collector

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/spec"
)

// kpiFamilies are the figures that the accounting service computes, one
// metric for each definition. A figure that is missing has no series: it is
// never shown as zero.
func kpiFamilies() []family {
	var out []family
	seen := map[string]bool{}
	for _, figure := range kpi.All() {
		if seen[figure.Metric] {
			continue
		}
		seen[figure.Metric] = true
		out = append(out, kpiFamily(figure.Metric))
	}
	return out
}

// kpiFamily is the metric of a definition, or of those that differ in their
// class only.
func kpiFamily(metric string) family {
	members := map[string]kpi.KPI{}
	var first kpi.KPI
	for _, figure := range slices.Backward(kpi.All()) {
		if figure.Metric == metric {
			members[figure.Name], first = figure, figure
		}
	}
	unit := catalogue.None
	for _, u := range [...]catalogue.Unit{catalogue.Ratio, catalogue.Seconds, catalogue.Joules} {
		if strings.HasSuffix(metric, "_"+string(u)) {
			unit = u
		}
	}
	help := first.Title + ": " + first.Formula + "."
	labels, card := []string{
		"by",
		"key",
		"window",
	}, fmt.Sprintf(
		"(1 + partitions + accounts + users + QOS, of each the %d largest) x 4 windows",
		kpi.MaxKeys,
	)
	if first.Class != "" {
		labels, card = append(labels, "class"), card+fmt.Sprintf(" x %d classes", len(members))
		help = "As " + strings.TrimSuffix(first.Name, "_"+first.Class) + ", by class of failure."
		if first.Source == kpi.Ladder {
			help = "GPU time that was bought, by what became of it; the classes add up to it."
		}
	}
	m := gaugeMetric(metric, help, unit, "SQL over the accounting store: "+first.From, card, labels...)
	return family{m, func(s *scrape) {
		if s.src.KPIs == nil {
			return
		}
		for _, value := range s.shownKPIs() {
			figure, ok := members[value.KPI]
			if !ok || value.Null {
				continue
			}
			values := []string{string(value.By), value.Key, value.Window}
			if figure.Class != "" {
				values = append(values, figure.Class)
			}
			s.sendSeries(value.Value*figure.Scale, values...)
		}
	}}
}

// budgetFamilies are the budgets in force, by account. Budgets of an account
// never overlap, so there is one at a time.
func budgetFamilies() []family {
	const src, card = "cost.budgets and cost.prices in muster.yaml, and SQL over the accounting store", "accounts with a budget"
	figure := func(name, help string, unit catalogue.Unit, f func(b *kpi.Spent) float64) family {
		return family{gaugeMetric(name, help, unit, src, card, "account"), func(s *scrape) {
			if s.src.Budgets == nil {
				return
			}
			list := s.src.Budgets()
			for i := range list {
				s.sendSeries(f(&list[i]), list[i].Account)
			}
		}}
	}
	return []family{
		figure(
			"muster_budget_amount",
			"Amount of the account's budget, in the site's currency.",
			catalogue.None,
			func(b *kpi.Spent) float64 { return b.Amount },
		),
		figure(
			"muster_budget_spent",
			"What the account and all below it have spent of the budget, in the site's currency.",
			catalogue.None,
			func(b *kpi.Spent) float64 { return b.Spent },
		),
		figure(
			"muster_budget_spent_ratio",
			"Part of the budget that is spent.",
			catalogue.Ratio,
			func(b *kpi.Spent) float64 { return b.Share() },
		),
		figure(
			"muster_budget_elapsed_ratio",
			"Part of the budget's time that is over.",
			catalogue.Ratio,
			func(b *kpi.Spent) float64 { return b.Elapsed() },
		),
		figure(
			"muster_budget_forecast_ratio",
			"Part of the budget that will be spent at its end if spending goes on as in the last seven days.",
			catalogue.Ratio,
			func(b *kpi.Spent) float64 { return b.Forecast() / b.Amount },
		),
		{gaugeMetric("muster_budget_lasts_seconds", "Time until nothing is left of the budget if spending goes on as in the last seven days; absent where something is left at its end.",
			catalogue.Seconds, src, card, "account"), func(s *scrape) {
			if s.src.Budgets == nil {
				return
			}
			for _, spent := range s.src.Budgets() {
				if at, ok := spent.RunsOut(); ok {
					s.sendSeries(float64(at-spent.At)/float64(spec.Second), spent.Account)
				}
			}
		}},
	}
}
