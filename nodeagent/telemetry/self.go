package telemetry

import (
	"github.com/VictoriaMetrics/metrics"

	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/spec"
)

// Source is what a collection reads.
type Source uint8

// The sources of a collection.
const (
	SourceGPU Source = iota
	SourceJobs
	SourceNode
	SourceEnergy
	sources
)

// String names the source as the label has it.
func (s Source) String() string {
	switch s {
	case SourceGPU:
		return "gpu"
	case SourceJobs:
		return "jobs"
	case SourceNode:
		return "node"
	case SourceEnergy:
		return "energy"
	}
	return "other"
}

// self is what the agent counts about itself.
type self struct {
	set        *metrics.Set
	reports    *metrics.Counter
	failed     *metrics.Counter
	pending    *metrics.Gauge
	stored     *metrics.Counter
	lost       *metrics.Counter
	waiting    *metrics.Gauge
	shepherd   *metrics.Gauge
	controller *metrics.Gauge
	scrapes    *metrics.Counter
	pushes     *metrics.Counter
	pushErrors *metrics.Counter
	scraped    *metrics.PrometheusHistogram
	collected  [sources]*metrics.Counter
	errors     [sources]*metrics.Counter
	took       [sources]*metrics.PrometheusHistogram
	events     map[device.EventKind]*metrics.Counter // does not change
	health     map[string]healthGauges               // by rule; does not change
}

func newSelf(options *Options) *self {
	node := labelPairs(nodeLabels[:], options.Cluster, options.Node)
	set := metrics.NewSet()
	name := func(metric string, extra ...string) string {
		labels := node
		for _, e := range extra {
			labels += "," + e
		}
		return metric + "{" + labels + "}"
	}
	gauge := func(metric string, v float64, extra ...string) *metrics.Gauge {
		g := set.NewGauge(name(metric, extra...), nil)
		g.Set(v)
		return g
	}
	s := &self{
		set:        set,
		reports:    set.NewCounter(name("muster_agent_reports_total")),
		failed:     set.NewCounter(name("muster_agent_report_errors_total")),
		pending:    gauge("muster_agent_reports_pending", 0),
		stored:     set.NewCounter(name("muster_agent_gpu_samples_stored_total")),
		lost:       set.NewCounter(name("muster_agent_gpu_samples_lost_total")),
		waiting:    gauge("muster_agent_gpu_samples_pending", 0),
		shepherd:   gauge("muster_agent_shepherd_up", 0),
		controller: gauge("muster_agent_controller_connected", 0),
		scrapes:    set.NewCounter(name("muster_agent_scrapes_total")),
		pushes:     set.NewCounter(name("muster_agent_pushes_total")),
		pushErrors: set.NewCounter(name("muster_agent_push_errors_total")),
		scraped: set.NewPrometheusHistogramExt(name("muster_agent_scrape_duration_seconds"),
			[]float64{0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.25, 1}),
		events: map[device.EventKind]*metrics.Counter{},
	}
	s.health = newHealthGauges(gauge, options.Health)
	gauge("muster_agent_up", 1)
	gauge(
		"muster_agent_build_info",
		1,
		labelPairs(
			[]string{"version", "commit", "goversion"},
			options.Version,
			options.Commit,
			goVersion(),
		),
	)
	if options.Provider != "" {
		gauge(
			"muster_agent_gpu_provider_info",
			1,
			labelPairs([]string{"provider"}, options.Provider),
		)
	}
	for src := SourceGPU; src < sources; src++ {
		l := labelPairs([]string{"source"}, src.String())
		s.collected[src] = set.NewCounter(name("muster_agent_collections_total", l))
		s.errors[src] = set.NewCounter(name("muster_agent_collection_errors_total", l))
		s.took[src] = set.NewPrometheusHistogramExt(
			name("muster_agent_collection_duration_seconds", l),
			[]float64{0.001, 0.005, 0.02, 0.1, 0.5, 2, 10},
		)
	}
	for k := device.EventXID; k <= device.EventMIGChanged; k++ {
		s.events[k] = set.NewCounter(
			name("muster_agent_gpu_events_total", labelPairs([]string{"kind"}, k.String())),
		)
	}
	return s
}

// ReportSent counts a report that the controller has acknowledged.
func (t *Telemetry) ReportSent() { t.self.reports.Inc() }

// ReportFailed counts a report that could not be sent.
func (t *Telemetry) ReportFailed() { t.self.failed.Inc() }

// SetReportsPending says how many reports wait.
func (t *Telemetry) SetReportsPending(n int) { t.self.pending.Set(float64(n)) }

// SamplesStored counts samples that the store has.
func (t *Telemetry) SamplesStored(n int) { t.self.stored.Add(n) }

// SamplesLost counts samples that were dropped.
func (t *Telemetry) SamplesLost(n int) { t.self.lost.Add(n) }

// SetSamplesPending says how many samples wait.
func (t *Telemetry) SetSamplesPending(n int) { t.self.waiting.Set(float64(n)) }

// SetShepherdUp says whether the shepherd answers.
func (t *Telemetry) SetShepherdUp(up bool) { t.self.shepherd.Set(boolFigure(up)) }

// SetControllerConnected says whether there is a stream to the controller.
func (t *Telemetry) SetControllerConnected(yes bool) { t.self.controller.Set(boolFigure(yes)) }

// Collected counts a collection, how long it took, and whether it failed.
func (t *Telemetry) Collected(src Source, took spec.Span, err error) {
	if src >= sources {
		return
	}
	t.self.collected[src].Inc()
	t.self.took[src].Update(float64(took) / float64(spec.Second))
	if err != nil {
		t.self.errors[src].Inc()
	}
}

// GPUEvent counts a GPU event.
func (t *Telemetry) GPUEvent(kind device.EventKind) {
	if c := t.self.events[kind]; c != nil {
		c.Inc()
	}
}

func boolFigure(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
