package kpi

import (
	"fmt"
	"strings"
)

// Markdown renders the definitions as docs/kpis.md.
func Markdown() string {
	var text strings.Builder
	text.WriteString(
		"# KPIs\n\nGenerated from the definitions in accounting/kpi by `make generate`; do not edit.\n\n" +
			"Each figure is defined once, and that definition is what `muster kpi`, the metrics, the dashboards and the alerts use.\n" +
			"Where nothing was measured a figure is missing: it is never shown as zero. Time-like amounts of a run that overlaps the\n" +
			"edge of a window are shared out evenly over its length; counts belong to the instant of what is counted.\n\n",
	)
	var windows, dims []string
	for _, window := range Windows() {
		windows = append(windows, window.Name)
	}
	for _, d := range Dimensions() {
		dims = append(dims, string(d))
	}
	fmt.Fprintf(
		&text,
		"Computed all the time by %s, over the last %s. As metrics, each dimension has its %d\nlargest keys (by what they were allocated); `muster kpi` has all.\n\n| name | unit | metric | in words |\n|---|---|---|---|\n",
		strings.Join(dims, ", "),
		strings.Join(windows, ", "),
		MaxKeys,
	)
	for _, kpi := range All() {
		fmt.Fprintf(
			&text,
			"| [`%s`](#%s) | %s | `%s` | %s |\n",
			kpi.Name,
			kpi.Name,
			kpi.Unit,
			kpi.Metric,
			kpi.Formula,
		)
	}
	text.WriteString("\n## Rows\n\nThe SQL below is over these rows, cut to the window:\n\n" +
		"- `runs`: every run of a job that ran in the window, over or not, and those that ended in it without having started or\n  wait at its end.\n" +
		"- `nodes`: each node's part of each run, where the node reported what was used; of runs that are not over, as far as they were sampled.\n" +
		"- `gpus`: each device of each run, where it was measured; of runs that are not over, as far as they were sampled.\n" +
		"- `energy`: what each node and each device measured for a run; of one that is not over, its devices only.\n" +
		"- `ladder`: one row of what became of the GPU time that was bought, in microseconds.\n- `associations`: what each association used, beside its share; computed by the service.\n\n" +
		"`overlap_s` is the part of a row's time within the window, `share` that part by the whole.\n")
	for _, kpi := range All() {
		fmt.Fprintf(
			&text,
			"\n## %s\n\n%s, in %s. %s.\n\n```sql\n%s\n-- over: %s\n```\n\n",
			kpi.Name,
			kpi.Title,
			kpi.Unit,
			upper(kpi.Formula),
			kpi.expression(),
			kpi.Source,
		)
		for _, e := range kpi.Edges {
			fmt.Fprintf(&text, "- %s\n", e)
		}
		fmt.Fprintf(&text, "- Source: %s.\n- Metric: `%s%s`", kpi.From, kpi.Metric, kpi.label())
		if kpi.Scale != 1 {
			fmt.Fprintf(&text, " (in the base unit: the figure times %.6g)", kpi.Scale)
		}
		text.WriteString(".\n")
	}
	return text.String()
}

// expression is the figure as SQL.
func (k KPI) expression() string {
	switch {
	case k.Over != NoCapacity:
		return k.Num + "\n/ nullIf(" + string(k.Over) + ", 0)"
	case k.PerHour:
		return k.Num + "\n/ window_hours"
	case k.Den != "":
		return k.Num + "\n/ nullIf(" + k.Den + ", 0)"
	}
	return k.Num
}

func upper(text string) string { return strings.ToUpper(text[:1]) + text[1:] }

// label is the label that tells the classes of a metric apart.
func (k KPI) label() string {
	if k.Class == "" {
		return ""
	}
	return `{class="` + k.Class + `"}`
}
