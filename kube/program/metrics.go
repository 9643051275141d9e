package program

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"

	"github.com/musterhpc/muster/internal/catalogue"
)

// buckets of times: from an order on an idle machine to a ledger that is away for minutes.
var buckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// Metrics are the series of one program, made of the entries of the catalogue, from which the
// documentation is made too. A name that the catalogue lacks is a mistake of the program: its
// series are nil, and using them panics in its first test.
type Metrics struct {
	registry   *prometheus.Registry
	counters   map[string]*prometheus.CounterVec
	gauges     map[string]*prometheus.GaugeVec
	histograms map[string]*prometheus.HistogramVec
}

// NewMetrics makes the series of an endpoint of the catalogue. constant labels are on each of them.
func NewMetrics(endpoint string, constant map[string]string) *Metrics {
	m := &Metrics{
		registry:   prometheus.NewRegistry(),
		counters:   map[string]*prometheus.CounterVec{},
		gauges:     map[string]*prometheus.GaugeVec{},
		histograms: map[string]*prometheus.HistogramVec{},
	}
	m.registry.MustRegister(collectors.NewGoCollector())
	m.registry.MustRegister(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, entry := range catalogue.Kubernetes() {
		if entry.Endpoint != endpoint {
			continue
		}
		labels := slices.DeleteFunc(slices.Clone(entry.Labels), func(l string) bool {
			_, is := constant[l]
			return is
		})
		switch entry.Type {
		case catalogue.Counter:
			vec := prometheus.NewCounterVec(
				prometheus.CounterOpts{Name: entry.Name, Help: entry.Help, ConstLabels: constant},
				labels,
			)
			m.registry.MustRegister(vec)
			m.counters[entry.Name] = vec
		case catalogue.Gauge, catalogue.Info:
			vec := prometheus.NewGaugeVec(
				prometheus.GaugeOpts{Name: entry.Name, Help: entry.Help, ConstLabels: constant},
				labels,
			)
			m.registry.MustRegister(vec)
			m.gauges[entry.Name] = vec
		case catalogue.Histogram:
			vec := prometheus.NewHistogramVec(
				prometheus.HistogramOpts{Name: entry.Name, Help: entry.Help, ConstLabels: constant, Buckets: buckets},
				labels,
			)
			m.registry.MustRegister(vec)
			m.histograms[entry.Name] = vec
		}
	}
	return m
}

// Counter is a series by its name and the values of its labels.
func (m *Metrics) Counter(name string, values ...string) prometheus.Counter {
	return m.counters[name].WithLabelValues(values...)
}

// Gauge is a series by its name and the values of its labels.
func (m *Metrics) Gauge(name string, values ...string) prometheus.Gauge {
	return m.gauges[name].WithLabelValues(values...)
}

// DropGauge ends a series: what it was about is not there any more.
func (m *Metrics) DropGauge(name string, values ...string) {
	m.gauges[name].DeleteLabelValues(values...)
}

// Histogram is a series by its name and the values of its labels.
func (m *Metrics) Histogram(name string, values ...string) prometheus.Observer {
	return m.histograms[name].WithLabelValues(values...)
}

// Gather collects what is served.
func (m *Metrics) Gather() ([]*dto.MetricFamily, error) { return m.registry.Gather() }

// Handler serves the series.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{Registry: m.registry})
}

// Since observes the time since then.
func Since(o prometheus.Observer, then time.Time) { o.Observe(time.Since(then).Seconds()) }

// Leading has a gauge say whether this copy works.
func Leading(gauge prometheus.Gauge, work func(context.Context) error) func(context.Context) error {
	gauge.Set(0)
	return func(ctx context.Context) error {
		gauge.Set(1)
		defer gauge.Set(0)
		return work(ctx)
	}
}
