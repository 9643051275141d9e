package alerts

import "fmt"

// sloGroup is the group of the recordings and alerts about service objectives.
const sloGroup = "muster-slo"

// errorRatio is the name of the recorded part of what an objective counts that was
// not good within a window.
func errorRatio(window string) string { return "muster:slo_errors:ratio_" + window }

// sloRecordings are the error ratios over the windows that alerts and boards read.
func sloRecordings() []Recording {
	var recordings []Recording
	const by = "sum by (cluster, slo, class) "
	for _, word := range [...]string{"5m", "30m", "1h", "6h", "30d"} {
		recordings = append(recordings,
			Recording{Group: sloGroup + "-recording", Record: errorRatio(word),
				Help: "Part of what a service objective counts that was not good in " + word + ".",
				Expr: fmt.Sprintf(
					"1 - %[1]s(increase(muster_slo_good_events_total[%[2]s])) / (%[1]s(increase(muster_slo_events_total[%[2]s])) > 0)",
					by,
					word,
				)})
	}
	return recordings
}

// burns is the condition that an error ratio uses a budget of 30 days up so many
// times as fast as it lasts.
func burns(window, times string) string {
	return errorRatio(window) + " > " + times +
		" * (1 - max by (cluster, slo, class) (muster_slo_objective_ratio))"
}

// counted are the series of an objective in the tests: all events and the good
// ones, and the objective.
func counted(kind, all, good, part string) []string {
	of := `{cluster="lab",slo="` + kind + `"} `
	return []string{"muster_slo_events_total" + of + all, "muster_slo_good_events_total" + of +
		good, "muster_slo_objective_ratio" + of + part}
}

// sloRules rise from how fast the budget of errors of 30 days is used up, over a
// long window, so that it matters, and over a short one, so that it still goes on.
func sloRules() []Rule {
	const enough = ` and on (cluster, slo, class) sum by (cluster, slo, class) (increase(muster_slo_events_total[$window])) >= $least`
	const subject = `The objective "{{ $labels.slo }}"{{ with $labels.class }} of {{ . }}{{ end }} of {{ $labels.cluster }}`
	vars := map[string]string{"slo": "slo"}
	return []Rule{
		{
			Name:     "MusterErrorBudgetBurnsFast",
			Group:    sloGroup,
			Severity: Critical,
			For:      "2m",
			Board:    "muster-slo",
			Vars:     vars,
			Params: []Param{
				{"times", Number, "14.4", "times as fast as the budget lasts"},
				{"least", Number, "50", "events in the window"},
				{"window", Duration, "1h", "window in which the events are counted"},
			},
			Expr: "(" + burns("1h", "$times") + ") and (" + burns("5m", "$times") + `)` +
				enough +
				` and on (cluster, slo, class) muster_slo_objective_ratio{slo=~"submit|durability|scheduling"}`,
			Summary: "The error budget of {{ $labels.slo }} will be spent within two days",
			Detail: subject +
				" was missed by {{ $value | humanizePercentage }} of its events in the last hour, and is missed now: users feel it.",
			Fires: Case{counted("submit", "0+10x90", "0+5x90", "0.99x90"), 60},
			// It was bad for an hour and is over.
			Quiet: Case{counted("submit", "0+10x90", "0+5x60 310+10x29", "0.99x90"), 80},
		},
		{
			Name:     "MusterErrorBudgetBurns",
			Group:    sloGroup,
			Severity: Warning,
			For:      "10m",
			Board:    "muster-slo",
			Vars:     vars,
			Params: []Param{
				{"times", Number, "6", "times as fast as the budget lasts"},
				{"least", Number, "50", "events in the window"},
				{"window", Duration, "6h", "window in which the events are counted"},
			},
			Expr: "(" + burns("6h", "$times") + ") and (" + burns("30m", "$times") + `)` +
				enough +
				` and on (cluster, slo, class) muster_slo_objective_ratio{slo=~"submit|durability|scheduling|accounting|agents"}`,
			Summary: "The error budget of {{ $labels.slo }} will be spent within five days",
			Detail: subject +
				" was missed by {{ $value | humanizePercentage }} of its events in the last six hours, and is missed now.",
			Fires: Case{counted("agents", "0+60x400", "0+54x400", "0.99x400"), 390},
			Quiet: Case{counted("agents", "0+60x400", "0+59x400", "0.99x400"), 390},
		},
		{
			Name:     "MusterErrorBudgetSpent",
			Group:    sloGroup,
			Severity: Info,
			For:      "1h",
			Board:    "muster-slo",
			Vars:     vars,
			Params: []Param{
				{"above", Part, "1", "part of the budget of 30 days"},
				{"least", Number, "50", "events in 30 days"},
				{"window", Duration, "30d", "window in which the events are counted"},
			},
			Expr:    burns("30d", "$above") + enough,
			Summary: "The error budget of {{ $labels.slo }}{{ with $labels.class }} of {{ . }}{{ end }} is spent",
			Detail: subject +
				" was missed by {{ $value | humanizePercentage }} of its events in 30 days, more than the objective allows.",
			Fires: Case{counted("wait", "0+10x200", "0+5x200", "0.9x200"), 180},
			Quiet: Case{counted("wait", "0+100x200", "0+95x200", "0.9x200"), 180},
		},
	}
}
