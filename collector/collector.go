package collector

import (
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	dto "github.com/prometheus/client_model/go"

	"github.com/musterhpc/muster/accounting/findings"
	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/spec"
)

// endpoint is the catalogue's name of what Handler serves.
const endpoint = "musterd /metrics"

// Source is what the exporter reads. All of it must be cheap: a scrape takes
// no lock, forks nothing and queries nothing.
type Source struct {
	View    func() *view.View
	Agents  func() int
	KPIs    func() []kpi.Value // figures of accounting, computed in the background; may be nil
	Budgets func() []kpi.Spent // the same of budgets; may be nil
	// Findings are those of the last days; may be nil, and so may what it gives.
	Findings func() *findings.Found
	Now      func() spec.Instant
	Version  string
	// Cluster is the name that StandbyHandler's series have; the others take the
	// view's.
	Cluster string
	// Accounting is the lag of the store behind the ledger.
	Accounting func() AccountingLag
	// Live is what the agents' heartbeats said last, by node; may be nil.
	Live func() map[string]Live
	// Raft is the state of the replicated log; may be nil.
	Raft func() Raft
	// Calls counts the API's calls; may be nil.
	Calls *Calls
	// Refused tells how often each limit of the API was exceeded, by its name; may
	// be nil.
	Refused func() map[string]uint64
	// Audit is how the audit trail gets to its targets; may be nil.
	Audit func() []AuditTarget
	// Traces is how traces of jobs get to a collector, and whether they do; may be nil.
	Traces func() (SentTraces, bool)
	// Pushed is how pushes of these metrics went, and whether there are any; may be nil.
	Pushed func() (Pushed, bool)
	// Objectives count against the site's service objectives; may be nil.
	Objectives *Objectives
	// Private is what the pages leave out.
	Private Privacy
}

// Live is what a node's heartbeat says.
type Live struct {
	LoadMilli int64 // -1: not known
	MemFree   int64 // MiB; -1: not known
}

// AuditTarget is how far the audit trail is at one of its targets.
type AuditTarget struct {
	Name     string // file, syslog or journald
	Seq      uint64 // of the newest event that it has taken
	Seconds  float64
	Records  uint64
	Failures uint64
	LeftOut  uint64 // refusals without a record
}

// SentTraces is how far traces of jobs are.
type SentTraces struct {
	Seq      uint64  // up to this event every trace has been taken
	Seconds  float64 // since the oldest trace that has not been taken was whole
	Traces   uint64
	Spans    uint64
	Refused  uint64
	Failures uint64
}

// Pushed is how pushes of these metrics went.
type Pushed struct {
	Pushes   uint64
	Failures uint64
	Dropped  uint64
	Waiting  int
}

// AccountingLag is how far accounting is behind.
type AccountingLag struct {
	Up      bool
	Seq     uint64
	Seconds float64
	// Readings of GPUs that this process stored, did not, and has waiting; all 0
	// where accounting runs in another.
	SamplesStored, SamplesRefused, SamplesLeftOut uint64
	SamplesWaiting                                int
	// Reports that this process mailed by schedule, and tries that failed.
	ReportsMailed, ReportsFailed uint64
}

// Raft is the state of the replicated log.
type Raft struct {
	Leader          bool
	LeaderKnown     bool
	Batches         uint64 // applied since the start
	Bytes           uint64
	Syncs           uint64 // group commits
	SyncSeconds     float64
	SyncFailures    uint64
	Pending         int
	FirstIndex      uint64
	LastIndex       uint64
	SnapshotIndex   uint64
	Snapshots       uint64
	FreeBytes       uint64 // of the ledger's disk
	ReserveBytes    uint64
	HeadroomUnknown bool
}

// family is one metric with what reads it.
type family struct {
	catalogue.Metric
	read func(s *scrape)
}

// scrape is one collection over one picture.
type scrape struct {
	src *Source
	v   *view.View // nil beside a Slurm
	pic *picture
	now spec.Instant

	mem    *slab
	family *dto.MetricFamily
	def    *family
}

// pictures keeps the picture of the newest view.
type pictures struct{ last atomic.Pointer[drawn] }

type drawn struct {
	v   *view.View
	pic *picture
}

// pictureOf draws a view, or gives what was drawn for it before. Nothing is written
// when a reservation begins or ends, so what was drawn before that is stale.
func (p *pictures) pictureOf(snapshot *view.View, src *Source, now spec.Instant) *picture {
	if latest := p.last.Load(); latest != nil && latest.v == snapshot && (latest.pic.until == 0 || now < latest.pic.until) {
		return latest.pic
	}
	latest := &drawn{snapshot, fromView(snapshot, src.Live, src.Version, now)}
	p.last.Store(latest)
	return latest.pic
}

// families lists everything /metrics can serve for a Muster cluster.
func families() []family {
	var out []family
	for _, list := range [...][]family{jobFamilies(), ledgerJobFamilies(), nodeFamilies(), policyFamilies(), shareFamilies(), schedulerFamilies(), ledgerFamilies(), buildFamilies(),
		raftFamilies(), apiFamilies(), auditFamilies(), traceFamilies(), pushFamilies(), accountingFamilies(), sloFamilies(), kpiFamilies(), budgetFamilies(), findingFamilies(), guideFamilies()} {
		out = append(out, list...)
	}
	return out
}

// dialects are the further paths, each with its families.
func dialects() map[string][]family {
	return map[string][]family{
		endpointVpenso: vpensoFamilies(), endpointJobs: nativeJobs(), endpointNodes: nativeNodes(), endpointPartitions: nativePartitions(),
		endpointUsers: nativeUsers(), endpointScheduler: nativeScheduler(),
	}
}

// Metrics is the collector's part of the catalogue.
func Metrics() []catalogue.Metric {
	var metrics []catalogue.Metric
	for _, f := range append(families(), sourceFamilies()...) {
		f.Endpoint = endpoint
		metrics = append(metrics, f.Metric)
	}
	paths := dialects()
	for _, path := range sortedKeys(paths) {
		for _, f := range paths[path] {
			metrics = append(metrics, f.Metric)
		}
	}
	return metrics
}

// Gather gives what a scrape of /metrics gets. The families are read until done is called.
type Gather func() (families []*dto.MetricFamily, done func(), err error)

// Mount serves every path of the exporter on a mux, and gives the main one to those who
// push it.
func Mount(mux *http.ServeMux, src Source) Gather {
	shared := &pictures{}
	draw := func() *scrape {
		snapshot := src.View()
		if snapshot == nil || snapshot.State.Seq == 0 {
			return nil // no cluster yet
		}
		now := src.Now()
		return &scrape{src: &src, v: snapshot, now: now, pic: shared.pictureOf(snapshot, &src, now)}
	}
	main := newPage(families(), processGatherer(), draw)
	mux.Handle("GET /metrics", pageHandler(main))
	mountDialects(mux, draw)
	mux.HandleFunc(
		"GET "+discoveryPath,
		func(writer http.ResponseWriter, _ *http.Request) { writeTargets(writer, draw()) },
	)
	return main.Gather
}

// StandbyHandler serves what a controller that does not lead knows: its part of the
// replicated log. What is summed over controllers only the leader serves.
func StandbyHandler(src Source) http.Handler {
	return pageHandler(
		newPage(append(raftFamilies(), buildFamilies()...), processGatherer(), func() *scrape {
			return &scrape{src: &src, now: src.Now(), pic: &picture{cluster: src.Cluster}}
		}),
	)
}

// AccountingHandler serves what accounting knows where it runs in a process of
// its own: the KPIs. How far it is behind the controller serves.
func AccountingHandler(src Source) http.Handler {
	return pageHandler(newPage(kpiFamilies(), processGatherer(), func() *scrape {
		snapshot := src.View()
		if snapshot == nil {
			return nil
		}
		now := src.Now()
		return &scrape{
			src: &src, v: snapshot, now: now, pic: fromView(snapshot, nil, src.Version, now),
		}
	}))
}

// mountDialects serves the paths on which other exporters' names stand.
func mountDialects(mux *http.ServeMux, draw func() *scrape) {
	for path, list := range dialects() {
		_, url, _ := strings.Cut(path, " ")
		mux.Handle("GET "+url, pageHandler(newPage(list, nil, draw)))
	}
}

// processGatherer gathers what every Go program says about itself.
func processGatherer() prometheus.Gatherer {
	reg := prometheus.NewRegistry()
	// Errors here are duplicate names in an empty registry.
	_ = reg.Register(collectors.NewGoCollector())
	_ = reg.Register(collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return reg
}

func gaugeMetric(
	name, help string,
	unit catalogue.Unit,
	source, card string,
	labels ...string,
) catalogue.Metric {
	return catalogue.Metric{
		Name:        name,
		Type:        catalogue.Gauge,
		Help:        help,
		Unit:        unit,
		Labels:      append([]string{"cluster"}, labels...),
		Source:      source,
		Cardinality: card,
	}
}

func counterMetric(
	name, help string,
	unit catalogue.Unit,
	source, card string,
	labels ...string,
) catalogue.Metric {
	metric := gaugeMetric(name, help, unit, source, card, labels...)
	metric.Type = catalogue.Counter
	return metric
}

func infoMetric(metric catalogue.Metric) catalogue.Metric {
	metric.Type = catalogue.Info
	return metric
}
