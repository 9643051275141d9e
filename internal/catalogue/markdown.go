package catalogue

import (
	"fmt"
	"strings"
)

// Markdown renders the catalogue as docs/metrics.md: one section for each
// endpoint, one row for each metric.
func (c *Catalogue) Markdown() string {
	var text strings.Builder
	text.WriteString(
		"# Metrics\n\nGenerated from the metric catalogue by `make generate`; do not edit.\n\n" +
			"Every series that Muster serves is listed here with where its figure comes from and how many series it can\n" +
			"make. A dashboard or an alert that names anything else fails the tests. A histogram also has the series\n" +
			"`_bucket`, `_sum` and `_count`.\n",
	)
	for i, metric := range c.all {
		if i == 0 || metric.Endpoint != c.all[i-1].Endpoint {
			process, path, _ := strings.Cut(metric.Endpoint, " ")
			fmt.Fprintf(&text, "\n## %s: `%s`\n\n", process, path)
			text.WriteString(
				"| metric | type | unit | labels | meaning | source | series |\n|---|---|---|---|---|---|---|\n",
			)
		}
		fmt.Fprintf(
			&text,
			"| `%s` | %s | %s | %s | %s | %s | %s |\n",
			metric.Name,
			metric.kind(),
			orDash(string(metric.Unit)),
			metric.labels(),
			cell(metric.Help),
			cell(metric.Source),
			cell(metric.Cardinality),
		)
	}
	return text.String()
}

func (m Metric) kind() string {
	if m.Type == Info {
		return "info"
	}
	return m.Type.String()
}

func (m Metric) labels() string {
	if len(m.Labels) == 0 {
		return "-"
	}
	return "`" + strings.Join(m.Labels, "` `") + "`"
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

func cell(text string) string { return strings.ReplaceAll(text, "|", `\|`) }
