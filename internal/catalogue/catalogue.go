// Package catalogue describes every metric that Muster serves: its name, type,
// unit, labels, where the figure comes from and how many series it can make.
//
// The rooms that serve metrics (the exporter, the agents, the accounting
// service) each hand over an explicit list; New joins them and refuses what
// breaks the naming rules, all problems at once. The catalogue is what
// docs/metrics.md is generated from, what a test holds the live registries
// against (Conform), and what closes the world: a dashboard or an alert may
// name a series only if Resolve knows it.
package catalogue

import (
	"cmp"
	"slices"
	"strings"
)

// Type is the Prometheus type of a metric.
type Type uint8

// The types. An Info is a gauge that is always 1 and whose labels are the
// content; it is exported as a gauge.
const (
	Counter Type = iota + 1
	Gauge
	Histogram
	Info
)

// String gives the name used after # TYPE.
func (t Type) String() string {
	switch t {
	case Counter:
		return "counter"
	case Gauge, Info:
		return "gauge"
	case Histogram:
		return "histogram"
	}
	return "unknown"
}

// Unit is a base unit; it is also the suffix that the metric's name carries.
type Unit string

// The units a metric of Muster's own may have. None is for counts of things,
// which the name itself says (muster_jobs, muster_cpus).
const (
	None    Unit = ""
	Seconds Unit = "seconds"
	Bytes   Unit = "bytes"
	Ratio   Unit = "ratio"
	Joules  Unit = "joules"
	Watts   Unit = "watts"
	Celsius Unit = "celsius"
	Hertz   Unit = "hertz"
)

// Dialect says whose naming a metric follows. Only Muster's own names are held
// to its rules; the others are kept as the world knows them.
type Dialect string

// The dialects.
const (
	Muster Dialect = "muster" // this project's names
	DCGM   Dialect = "dcgm"   // dcgm-exporter's names
	Vpenso Dialect = "vpenso" // the names of prometheus-slurm-exporter
	Slurm  Dialect = "slurm"  // the names Slurm's own exporter uses
	Guide  Dialect = "guide"  // the few names that guides tell people to expect
	Common Dialect = "common" // process and runtime metrics of the client libraries
)

// Metric is one entry.
type Metric struct {
	Name    string
	Type    Type
	Dialect Dialect // empty means Muster
	// Endpoint is where it is served, as "process path": "musterd /metrics".
	Endpoint string
	// Help is one sentence, as it stands after # HELP.
	Help string
	Unit Unit
	// Labels in the order the docs show them; le of a histogram is not named.
	Labels []string
	// Source says which record the figure is read from.
	Source string
	// Cardinality says how many series there are, as a formula of things an
	// administrator can count: "partitions x 12 states".
	Cardinality string
}

// Catalogue is a valid list of metrics. It does not change after New.
type Catalogue struct {
	all []Metric // by endpoint, then name
}

// New joins the lists of the rooms. The error, if any, is Problems and names
// every breach.
func New(lists ...[]Metric) (*Catalogue, error) {
	var all []Metric
	for _, l := range lists {
		for _, metric := range l {
			if metric.Dialect == "" {
				metric.Dialect = Muster
			}
			metric.Labels = slices.Clone(metric.Labels)
			all = append(all, metric)
		}
	}
	slices.SortStableFunc(all, func(a, b Metric) int {
		return cmp.Or(cmp.Compare(a.Endpoint, b.Endpoint), cmp.Compare(a.Name, b.Name))
	})
	if p := validateMetrics(all); len(p) > 0 {
		return nil, p
	}
	return &Catalogue{all: all}, nil
}

// All gives every metric, by endpoint and then by name.
func (c *Catalogue) All() []Metric { return slices.Clone(c.all) }

// Served gives the metrics of one endpoint, by name.
func (c *Catalogue) Served(endpoint string) []Metric {
	var metrics []Metric
	for _, metric := range c.all {
		if metric.Endpoint == endpoint {
			metrics = append(metrics, metric)
		}
	}
	return metrics
}

// Resolve finds the metric that a series name in a query belongs to: the name
// itself or, for a histogram, its _bucket, _sum and _count.
func (c *Catalogue) Resolve(series string) (Metric, bool) {
	if metric, ok := c.named(series); ok {
		return metric, true
	}
	for _, suffix := range []string{"_bucket", "_sum", "_count"} {
		base, cut := strings.CutSuffix(series, suffix)
		if metric, ok := c.named(base); cut && ok && metric.Type == Histogram {
			return metric, true
		}
	}
	return Metric{}, false
}

func (c *Catalogue) named(name string) (Metric, bool) {
	i := slices.IndexFunc(c.all, func(m Metric) bool { return m.Name == name })
	if i < 0 {
		return Metric{}, false
	}
	return c.all[i], true
}
