package catalogue

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Problem is one breach of the rules.
type Problem struct {
	Metric   string
	Endpoint string
	Text     string // what is wrong and what to do
}

func (p Problem) Error() string {
	if p.Endpoint == "" {
		return p.Metric + ": " + p.Text
	}
	return p.Metric + " (" + p.Endpoint + "): " + p.Text
}

// Problems is every breach found, as one error; errors.As finds the first.
type Problems []Problem

func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, problem := range ps {
		lines[i] = problem.Error()
	}
	return strings.Join(lines, "\n")
}

// Unwrap lets errors.Is and errors.As look at each problem.
func (ps Problems) Unwrap() []error {
	out := make([]error, len(ps))
	for i, problem := range ps {
		out[i] = problem
	}
	return out
}

var (
	anyName   = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)
	ownName   = regexp.MustCompile(`^muster(_[a-z0-9]+)+$`)
	labelName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_]*$`)
	ownLabel  = regexp.MustCompile(`^[a-z][a-z0-9_]*$`)
	endpoint  = regexp.MustCompile(`^[a-z][a-z-]* /[a-z/-]*$`)
)

// derivedUnits are words that give a name a unit other than a base unit.
var derivedUnits = [...]string{
	"ns", "nanoseconds", "us", "microseconds", "ms", "millis", "milliseconds", "minutes", "hours", "days",
	"kb", "mb", "gb", "tb", "kib", "mib", "gib", "tib", "kilobytes", "megabytes", "gigabytes",
	"percent", "percentage", "mj", "millijoules", "kwh", "mw", "milliwatts", "mhz", "ghz", "fahrenheit",
}

var units = [...]Unit{None, Seconds, Bytes, Ratio, Joules, Watts, Celsius, Hertz}

// reservedLabels have a meaning to Prometheus: le and quantile belong to the
// types, job and instance are set by the scraper and would be renamed.
var reservedLabels = [...]string{"le", "quantile", "job", "instance"}

func validateMetrics(all []Metric) Problems {
	var problems Problems
	for _, metric := range all {
		for _, text := range metric.breaches() {
			problems = append(problems, Problem{metric.Name, metric.Endpoint, text})
		}
	}
	return append(problems, clashes(all)...)
}

func (m Metric) breaches() []string {
	var out []string
	if !anyName.MatchString(m.Name) {
		return []string{"is not a metric name: use letters, digits and underscores"}
	}
	if m.Type < Counter || m.Type > Info {
		out = append(out, "has no type")
	}
	if !endpoint.MatchString(m.Endpoint) {
		out = append(
			out,
			fmt.Sprintf(
				"endpoint %q must name a process and a path, as in \"musterd /metrics\"",
				m.Endpoint,
			),
		)
	}
	if m.Source == "" {
		out = append(out, "has no source: say which record the figure is read from")
	}
	if m.Cardinality == "" {
		out = append(out, "has no cardinality: say how many series it can make")
	}
	out = append(out, m.helpBreaches()...)
	out = append(out, m.labelBreaches()...)
	if m.Dialect == Muster {
		out = append(out, m.nameBreaches()...)
	}
	return out
}

func (m Metric) helpBreaches() []string {
	switch {
	case m.Help == "":
		return []string{"has no help text"}
	case strings.ContainsAny(m.Help, "\n\r"):
		return []string{"help text must be one line"}
	case m.Dialect == Muster && !strings.HasSuffix(m.Help, "."):
		return []string{"help text must be a sentence that ends with a full stop"}
	}
	return nil
}

func (m Metric) labelBreaches() []string {
	var out []string
	for i, l := range m.Labels {
		switch {
		case !labelName.MatchString(l), m.Dialect == Muster && !ownLabel.MatchString(l):
			out = append(out, fmt.Sprintf("label %q is not in lower_snake_case", l))
		case slices.Contains(reservedLabels[:], l):
			out = append(out, fmt.Sprintf("label %q is reserved by Prometheus", l))
		case slices.Contains(m.Labels[:i], l):
			out = append(out, fmt.Sprintf("label %q stands twice", l))
		}
	}
	// The operator has the clusters of all namespaces.
	ofCluster := m.Dialect == Muster && m.Endpoint != OperatorEndpoint
	if ofCluster && !slices.Contains(m.Labels, "cluster") {
		out = append(out, "lacks the label \"cluster\", which every series carries")
	}
	return out
}

// nameBreaches holds Muster's own names to the conventions: prefix, base units
// as suffix, _total for counters and for nothing else.
func (m Metric) nameBreaches() []string {
	var out []string
	if !ownName.MatchString(m.Name) {
		out = append(out, "must start with muster_ and be in lower_snake_case")
	}
	stem, total := strings.CutSuffix(m.Name, "_total")
	switch {
	case m.Type == Counter && !total:
		out = append(out, "is a counter, so its name must end with _total")
	case m.Type != Counter && total:
		out = append(out, "is not a counter, so its name must not end with _total")
	}
	words := strings.Split(stem, "_")
	last := words[len(words)-1]
	if slices.Contains([]string{"bucket", "sum", "count"}, last) {
		out = append(
			out,
			fmt.Sprintf("must not end with _%s, which Prometheus appends to histograms", last),
		)
	}
	if (m.Type == Info) != (last == "info") {
		out = append(out, "an info metric, and nothing else, must end with _info")
	}
	if !slices.Contains(units[:], m.Unit) {
		return append(out, fmt.Sprintf("unit %q is not a base unit", m.Unit))
	}
	if m.Unit != None && last != string(m.Unit) {
		suffix := "_" + string(m.Unit)
		if total {
			suffix += "_total"
		}
		out = append(out, fmt.Sprintf("is in %s, so its name must end with %s", m.Unit, suffix))
	}
	if m.Unit == None && last != "" && slices.Contains(units[:], Unit(last)) {
		out = append(out, fmt.Sprintf("ends with _%s but declares no unit", last))
	}
	for _, word := range words {
		if slices.Contains(derivedUnits[:], word) {
			out = append(
				out,
				fmt.Sprintf(
					"contains %q: metrics are in base units (seconds, bytes, ratio, joules, ...)",
					word,
				),
			)
		}
	}
	return out
}

// clashes finds names that mean two things: two entries at one endpoint, one
// name of a dialect with different labels or types at two, or a name that is
// also the series of a histogram. Two dialects of the outside world may use one
// name for two things; they stand on paths of their own.
func clashes(all []Metric) Problems {
	var problems Problems
	type spoken struct {
		dialect Dialect
		name    string
	}
	first, at := map[spoken]Metric{}, map[[2]string]bool{}
	for _, metric := range all {
		place := [2]string{metric.Endpoint, metric.Name}
		if at[place] {
			problems = append(problems, Problem{metric.Name, metric.Endpoint, "is listed twice"})
			continue
		}
		at[place] = true
		f, seen := first[spoken{metric.Dialect, metric.Name}]
		if !seen {
			first[spoken{metric.Dialect, metric.Name}] = metric
			continue
		}
		text := ""
		switch {
		case f.Type.String() != metric.Type.String():
			text = "is a " + f.Type.String() + " at " + f.Endpoint + ": one name has one type"
		case !sameSet(f.Labels, metric.Labels):
			text = "has other labels at " + f.Endpoint + ": one name has one set of labels"
		case f.Help != metric.Help || f.Unit != metric.Unit:
			text = "has another meaning at " + f.Endpoint + ": one name has one help text and unit"
		}
		if text != "" {
			problems = append(problems, Problem{metric.Name, metric.Endpoint, text})
		}
	}
	for _, metric := range all {
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			base, cut := strings.CutSuffix(metric.Name, suffix)
			if h, ok := first[spoken{metric.Dialect, base}]; cut && ok && h.Type == Histogram {
				problems = append(
					problems,
					Problem{metric.Name, metric.Endpoint, "is already a series of the histogram " +
						base},
				)
			}
		}
	}
	return problems
}

func sameSet(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}
