package dashboards

func slos() Board {
	const of = `{cluster="$cluster",slo=~"$slo"}`
	const by = "sum by (slo, class) "
	errors := func(window string) string {
		return "1 - " + by + "(increase(muster_slo_good_events_total" + of + "[" + window +
			"])) / (" + by + "(increase(muster_slo_events_total" + of + "[" + window +
			"])) > 0)"
	}
	const allowed = "(1 - max by (slo, class) (muster_slo_objective_ratio" + of + "))"
	// Only waits have a class; a legend of a label that is missing is not empty in
	// Grafana.
	named := func(expr string) string {
		return `label_join(` + expr +
			`, "name", " ", "slo", "class")`
	}
	const none = "no objective is set (slo in muster.yaml), or nothing was counted yet"
	return Board{UID: SLOs, Title: "Muster / Service objectives", From: "now-7d",
		Vars: []Var{
			clusterVar(),
			{
				Name:  "slo",
				Label: "Objective",
				Query: `label_values(muster_slo_objective_ratio{cluster="$cluster"}, slo)`,
				Multi: true,
			},
		},
		Description: "What this site has promised its users, what was kept of it in 30 days, and how fast the errors that are allowed are used up. " +
			"The objectives stand in muster.yaml under slo; an alert rises long before a budget is spent.",
		Rows: []Row{
			{Title: "Objectives", Panels: []Panel{
				{
					Title:       "Objectives",
					Kind:        Table,
					Unit:        Count,
					Column:      Hidden,
					Width:       12,
					Description: "Each objective as muster.yaml says it, and what it counts.",
					MayBeEmpty:  none,
					Queries:     []Query{{Expr: "muster_slo_info" + of}},
				},
				barPanel(
					"Error budget left",
					"Part of the errors that 30 days allow which is left. Below 0 the objective is missed: what costs reliability has to wait.",
					Ratio,
					named(
						"1 - ("+errors("30d")+") / "+allowed,
					),
					"{{name}}",
				).colored(Red, Step{0, Orange}, Step{0.25, Green}).
					top(1).
					wide(12).
					linked(SLOs, "slo", "slo").
					empty(none),
			}},
			{Title: "Over time", Panels: []Panel{
				linePanel(
					"Errors of the last hour",
					"Part of what each objective counts that was not good in the hour before.",
					Ratio,
					Query{Expr: named(errors("1h")), Legend: "{{name}}"},
				).empty(none),
				linePanel(
					"Burn rate",
					"How many times as fast as it lasts the budget of 30 days was used up in the hour before. 1 for 30 days spends it exactly; 14.4 spends it in two days and pages.",
					Count,
					Query{
						Expr:   named("(" + errors("1h") + ") / " + allowed),
						Legend: "{{name}}",
					},
				).colored(Green, Step{6, Orange}, Step{14.4, Red}).
					empty(none),
				linePanel(
					"Counted",
					"What each objective counts, a second: submissions, writes, passes, starts, or seconds (of nodes, where it is about agents). Few events make an error ratio jump.",
					PerSec,
					Query{
						Expr:   named(by + "(rate(muster_slo_events_total" + of + "[5m]))"),
						Legend: "{{name}}",
					},
				).wide(24).
					empty(none),
			}},
		}}
}
