package main

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/collector"
	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/ledger/log"
)

// figures is what a scrape shows and would have to take a lock or call the
// system for: it is looked up every other second beside the scrapes.
type figures struct {
	agents int
	live   map[string]collector.Live
	raft   collector.Raft
	lag    collector.AccountingLag // as an accounting in another process says
}

const figuresEvery = 2 * time.Second

// sampled keeps the figures.
type sampled struct {
	s    *server
	last atomic.Pointer[figures]

	objectives *collector.Objectives
	ticked     time.Time // of sample alone
}

func newSampled(s *server) *sampled {
	list, err := s.cfg.Objectives()
	if err != nil { // the configuration was checked when it was read
		s.log.Error("no service objective is counted", "error", err)
	}
	f := &sampled{s: s, objectives: collector.NewObjectives(list)}
	f.sample()
	return f
}

func (f *sampled) run(ctx context.Context) error {
	tick := time.NewTicker(figuresEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			f.sample()
		}
	}
}

func (f *sampled) sample() {
	now := &figures{
		agents: f.s.ctl.Agents(),
		live:   map[string]collector.Live{},
		raft:   raftFigures(f.s.durable),
	}
	if f.s.acct == nil {
		now.lag = f.s.toldLag()
	}
	for node, l := range f.s.ctl.Live() {
		now.live[node] = collector.Live{LoadMilli: l.LoadMilli, MemFree: l.MemFree}
	}
	f.last.Store(now)
	f.tick(now)
}

// tick counts the time since the last sample against the objectives that are about
// time. A controller that does not lead has no view and counts nothing.
func (f *sampled) tick(now *figures) {
	at := time.Now()
	since := at.Sub(f.ticked)
	first := f.ticked.IsZero()
	f.ticked = at
	view := f.s.ctl.View()
	if first || view == nil || view.State.Seq == 0 {
		return
	}
	lag, goodput := now.lag, float64(-1)
	if f.s.acct != nil {
		lag = f.s.acct.currentLag()
		for _, k := range f.s.acct.currentKPIs() {
			if k.KPI == "goodput" && k.By == kpi.ByCluster && k.Window == "1d" && !k.Null {
				goodput = k.Value
			}
		}
	}
	streams := f.s.ctl.ConnectedNodes()
	heard, expected := collector.Reachable(
		view.State,
		func(node string) bool { return streams[node] },
	)
	cond := collector.Condition{
		Connected: heard,
		Expected:  expected,
		Lag:       lag.Seconds,
		Goodput:   goodput,
	}
	f.objectives.Tick(since, cond)
}

func raftFigures(durable *log.Durable) collector.Raft {
	stats, lead := durable.Stats(), durable.Leader()
	raft := collector.Raft{
		Leader:      lead.Self,
		LeaderKnown: lead.Known,
		Batches:     stats.Batches,
		Bytes:       stats.Bytes,
		Syncs:       stats.Groups,
		SyncSeconds: float64(
			stats.SyncNanos,
		) / 1e9,
		SyncFailures:  stats.Failures,
		Pending:       stats.Pending,
		FirstIndex:    stats.FirstIndex,
		LastIndex:     stats.LastIndex,
		SnapshotIndex: stats.SnapshotIndex,
		Snapshots:     stats.Snapshots,
	}
	room, err := durable.Headroom()
	raft.FreeBytes = room.Free
	raft.ReserveBytes = room.Reserve
	raft.HeadroomUnknown = err != nil
	return raft
}

// countCalls counts the API's calls by method and user.
func countCalls(calls *collector.Calls) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		began := time.Now()
		answer, err := handler(ctx, req)
		service, method := path.Split(info.FullMethod)
		service = path.Base(service)
		if dot := path.Ext(service); dot != "" {
			service = dot[1:]
		}
		calls.Observe(service+"/"+method, identity.From(ctx).User, time.Since(began), err != nil)
		return answer, err
	}
}

// hidesUsers tells whether the metrics leave users out: PrivateData keeps what
// they do from each other, and everybody may read the metrics. Where a site asks
// for a credential there, it decides by that who may.
func (s *server) hidesUsers() bool {
	web := s.webOptions()
	if web.ConfigFile != "" || web.TokenFile != "" {
		return false
	}
	return slices.ContainsFunc(s.cluster.Private, func(word string) bool {
		return word == "jobs" || word == "usage" || word == "users"
	})
}

// countRefused tells how often each limit of the API was exceeded.
func (s *server) countRefused() map[string]uint64 {
	out := map[string]uint64{}
	for reason, n := range s.limits.Refused() {
		out[reason.String()] = n
	}
	return out
}

// exportedSource is what the exporter reads.
func (s *server) exportedSource(f *sampled) collector.Source {
	src := collector.Source{
		View:       s.ctl.View,
		Agents:     func() int { return f.last.Load().agents },
		Now:        clock.NewSystem().Now,
		Version:    version,
		Live:       func() map[string]collector.Live { return f.last.Load().live },
		Raft:       func() collector.Raft { return f.last.Load().raft },
		Calls:      s.calls,
		Refused:    s.countRefused,
		Private:    s.hidesUsers(),
		Audit:      s.auditTargets,
		Traces:     s.sentTraces,
		Pushed:     s.pushed,
		Accounting: func() collector.AccountingLag { return f.last.Load().lag },
		Objectives: f.objectives,
	}
	if s.acct != nil {
		src.Accounting, src.KPIs, src.Budgets = s.acct.currentLag, s.acct.currentKPIs, s.acct.daemon.Budgets
		src.Findings = s.acct.daemon.Findings
	}
	return src
}

// metricsPages are the controller's metrics and health.
func (s *server) metricsPages(g *group) http.Handler {
	mux := http.NewServeMux()
	f := newSampled(s)
	g.spawnPart("figures for metrics", f.run)
	gather := collector.Mount(mux, s.exportedSource(f))
	if s.cfg.Telemetry.PushesFromController() {
		s.startPush(g, gather)
	}
	ok := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") }
	mux.HandleFunc("GET /livez", ok)
	mux.HandleFunc("GET /healthz", s.serveHealth)
	mux.HandleFunc("GET /readyz", s.serveHealth)
	return mux
}

// auditTargets are the targets of the audit trail as metrics show them.
func (s *server) auditTargets() []collector.AuditTarget {
	var out []collector.AuditTarget
	for _, st := range s.trail.Statuses() {
		out = append(out, collector.AuditTarget{
			Name:     st.Target,
			Seq:      st.Seq,
			Seconds:  st.Seconds,
			Records:  st.Records,
			Failures: st.Failures,
			LeftOut:  st.LeftOut,
		})
	}
	return out
}

// sentTraces is how the traces of jobs get to the collector, as metrics show it.
func (s *server) sentTraces() (collector.SentTraces, bool) {
	if s.traces == nil {
		return collector.SentTraces{}, false
	}
	st := s.traces.Status()
	return collector.SentTraces{
		Seq:      st.Seq,
		Seconds:  st.Seconds,
		Traces:   st.Traces,
		Spans:    st.Spans,
		Refused:  st.Refused,
		Failures: st.Failures,
	}, true
}
