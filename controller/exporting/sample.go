package exporting

import (
	"context"
	"io"
	"sync/atomic"
	"time"

	"github.com/musterhpc/muster/accounting/feed"
	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/collector"
	"github.com/musterhpc/muster/internal/clock"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/store"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/spec"
)

// sampleEvery is the interval between two samples.
const sampleEvery = 2 * time.Second

// figures is what a scrape shows and would have to take a lock or call the system for.
type figures struct {
	agents int
	live   map[string]collector.Live
	raft   collector.Raft
	lag    collector.AccountingLag // of an accounting in another process
}

// sampler keeps the newest figures, and counts time against the service objectives.
type sampler struct {
	of         Options
	last       atomic.Pointer[figures]
	objectives *collector.Objectives
	ticked     time.Time // of takeSample alone
}

// newSampler makes a sampler that has taken a first sample.
func newSampler(of Options) *sampler {
	list, err := of.Config.Objectives()
	if err != nil { // the configuration was checked when it was read
		of.Log.Error("no service objective is counted", "error", err)
	}
	s := &sampler{of: of, objectives: collector.NewObjectives(list)}
	s.takeSample()
	return s
}

// latestFigures are the newest figures.
func (s *sampler) latestFigures() *figures { return s.last.Load() }

// run takes samples until the context ends.
func (s *sampler) run(ctx context.Context) error {
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			s.takeSample()
		}
	}
}

func (s *sampler) takeSample() {
	now := &figures{
		agents: s.of.Controller.Agents(),
		live:   map[string]collector.Live{},
		raft:   readRaft(s.of.Durable),
	}
	if s.of.Accounting == nil {
		now.lag = s.of.Apart.measureLag(s.of.Controller.View())
	}
	for node, live := range s.of.Controller.Live() {
		now.live[node] = collector.Live{LoadMilli: live.LoadMilli, MemFree: live.MemFree}
	}
	s.last.Store(now)
	s.countObjectives(now)
}

// countObjectives counts the time since the last sample against the objectives that are about
// time. A controller that does not lead has no view and counts nothing.
func (s *sampler) countObjectives(now *figures) {
	at := time.Now()
	since := at.Sub(s.ticked)
	first := s.ticked.IsZero()
	s.ticked = at
	view := s.of.Controller.View()
	if first || view == nil || view.State.Seq == 0 {
		return
	}
	lag := now.lag
	goodput := float64(-1)
	if accounting := s.of.Accounting; accounting != nil {
		lag = accounting.Lag()
		goodput = dayGoodput(accounting.KPIs())
	}
	streams := s.of.Controller.ConnectedNodes()
	heard, expected := collector.Reachable(
		view.State,
		func(node string) bool { return streams[node] },
	)
	s.objectives.Tick(since, collector.Condition{
		Connected: heard,
		Expected:  expected,
		Lag:       lag.Seconds,
		Goodput:   goodput,
	})
}

// dayGoodput is the part of the last day's GPU time that runs held with work which ended well or
// are not over; -1 = unknown. The figure goodput has only those that ended: a cluster full of runs
// that take days would miss every objective until one of them ends.
func dayGoodput(values []kpi.Value) float64 {
	day := map[string]float64{}
	for _, value := range values {
		if value.By == kpi.ByCluster && value.Window == "1d" && !value.Null {
			day[value.KPI] = value.Value
		}
	}
	bought := day["gpu_bought"]
	if bought <= 0 {
		return -1
	}
	return (day["gpu_ladder_good"] + day["gpu_ladder_open"]) / bought
}

// readRaft is the state of the replicated log.
func readRaft(durable *log.Durable) collector.Raft {
	stats := durable.Stats()
	lead := durable.Leader()
	raft := collector.Raft{
		Leader:        lead.Self,
		LeaderKnown:   lead.Known,
		Batches:       stats.Batches,
		Bytes:         stats.Bytes,
		Syncs:         stats.Groups,
		SyncSeconds:   float64(stats.SyncNanos) / 1e9,
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

// Apart tells how far an accounting in another process has come.
type Apart struct {
	Said    *feed.Confirmed // what it said last
	Archive *store.Archive
	Codec   *event.Codec
	Began   spec.Instant // when this controller started
}

// measureLag is how far it is behind. The age is that of the first event which it has not confirmed, read
// from the archive; since a controller that starts knows nothing, it is unknown (as old as the
// controller) until the first report.
func (a *Apart) measureLag(view *view.View) collector.AccountingLag {
	_, up := a.Said.LastReport()
	lag := collector.AccountingLag{Up: up, Seq: view.AccountedSeq}
	if view.AccountedSeq >= view.State.Seq {
		return lag
	}
	since := a.Began
	if view.AccountedSeq > 0 {
		if at, err := a.eventTime(view.AccountedSeq + 1); err == nil {
			since = at
		}
	}
	now := clock.NewSystem().Now()
	lag.Seconds = float64(max(now.Sub(since), 0)) / float64(spec.Second)
	return lag
}

// eventTime is when an event happened.
func (a *Apart) eventTime(seq uint64) (spec.Instant, error) {
	iterator, err := a.Archive.Disk.Reader(seq)
	if err != nil {
		return 0, err
	}
	record, err := iterator.Next()
	if err != nil {
		return 0, err
	}
	events, err := a.Codec.Decode(record.Batch)
	if err != nil {
		return 0, err
	}
	for i := range events {
		if events[i].Seq >= seq {
			return events[i].At, nil
		}
	}
	return 0, io.EOF
}
