package collector

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/spec"
)

// endpoint is where these metrics are served, for the catalogue.
const endpoint = "musterd /metrics"

// Source is what a scrape reads. View must be quick and never block; the
// others may be nil where there is no such part in this process.
type Source struct {
	View    func() *view.View
	Agents  func() int
	KPIs    func() []kpi.Value
	Now     func() spec.Instant
	Version string
	// Accounting is the lag of the store behind the ledger.
	Accounting func() AccountingLag
}

// AccountingLag is how far the store is behind.
type AccountingLag struct {
	Up      bool
	Seq     uint64
	Seconds float64
}

// family is one metric with how its samples are read from a view.
type family struct {
	catalogue.Metric
	read func(s *scrape)
}

// scrape is one reading: it gives the current family's samples.
type scrape struct {
	src  *Source
	v    *view.View
	now  spec.Instant
	jobs *jobCounts
	send func(value float64, labels ...string)
	hist func(count uint64, sum float64, buckets map[float64]uint64, labels ...string)
}

// exporter is a prometheus.Collector over the families.
type exporter struct {
	src      Source
	families []family
	descs    []*prometheus.Desc
}

// families lists everything that is served on /metrics, by source.
func families() []family {
	var out []family
	for _, list := range [...][]family{jobFamilies(), nodeFamilies(), schedulerFamilies(), ledgerFamilies(), accountingFamilies(), kpiFamilies(), guideFamilies()} {
		out = append(out, list...)
	}
	return out
}

// Metrics lists the catalogue entries of this room.
func Metrics() []catalogue.Metric {
	var out []catalogue.Metric
	for _, f := range families() {
		f.Endpoint = endpoint
		out = append(out, f.Metric)
	}
	return out
}

// Handler serves /metrics: Prometheus text or OpenMetrics, compressed where
// the client asks for it.
func Handler(src Source) http.Handler {
	reg := prometheus.NewRegistry()
	e := &exporter{src: src, families: families()}
	for i := range e.families {
		m := &e.families[i].Metric
		e.descs = append(e.descs, prometheus.NewDesc(m.Name, m.Help, m.Labels, nil))
	}
	// An error here is a duplicate name in our own list: a test holds that.
	_ = reg.Register(e)
	_ = reg.Register(collectors.NewGoCollector())
	_ = reg.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(reg, promhttp.HandlerOpts{EnableOpenMetrics: true, ErrorHandling: promhttp.ContinueOnError})
}

// Describe implements prometheus.Collector.
func (e *exporter) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range e.descs {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (e *exporter) Collect(ch chan<- prometheus.Metric) {
	v := e.src.View()
	if v == nil || v.State.Seq == 0 {
		return
	}
	s := &scrape{src: &e.src, v: v, now: e.src.Now(), jobs: countJobs(v.State)}
	for i := range e.families {
		f, desc := &e.families[i], e.descs[i]
		kind := prometheus.GaugeValue
		if f.Type == catalogue.Counter {
			kind = prometheus.CounterValue
		}
		s.send = func(value float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(desc, kind, value, append([]string{v.State.ClusterName}, labels...)...)
		}
		s.hist = func(count uint64, sum float64, buckets map[float64]uint64, labels ...string) {
			ch <- prometheus.MustNewConstHistogram(desc, count, sum, buckets, append([]string{v.State.ClusterName}, labels...)...)
		}
		f.read(s)
	}
}

// gauge and counter make entries; every series carries the label cluster.
func gauge(name, help string, unit catalogue.Unit, source, card string, labels ...string) catalogue.Metric {
	return catalogue.Metric{Name: name, Type: catalogue.Gauge, Help: help, Unit: unit, Labels: append([]string{"cluster"}, labels...), Source: source, Cardinality: card}
}

func counter(name, help string, unit catalogue.Unit, source, card string, labels ...string) catalogue.Metric {
	m := gauge(name, help, unit, source, card, labels...)
	m.Type = catalogue.Counter
	return m
}

// info marks a metric that is always 1 and whose labels are the news.
func info(m catalogue.Metric) catalogue.Metric {
	m.Type = catalogue.Info
	return m
}
