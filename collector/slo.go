package collector

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/internal/slo"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
)

// Objectives count against a site's service objectives. Calls, writes, passes and
// waits are counted where they happen; objectives about time are counted here, by
// Tick.
type Objectives struct {
	list   []slo.Objective
	timers []timer // of the objective at the same place
}

// timer adds time up, in microseconds.
type timer struct{ good, all atomic.Uint64 }

// NewObjectives begins to count.
func NewObjectives(list []slo.Objective) *Objectives {
	return &Objectives{list: list, timers: make([]timer, len(list))}
}

// Condition is how the cluster is at a moment.
type Condition struct {
	Connected, Expected int // agents; see Reachable
	// Lag of accounting in seconds; negative if it is not known.
	Lag float64
	// Goodput of the last day; negative if there is none.
	Goodput float64
}

// Tick counts the time since the last tick as one in which the cluster was so.
func (o *Objectives) Tick(since time.Duration, now Condition) {
	micros := uint64(max(since, 0).Microseconds())
	add := func(i int, good, all uint64) {
		o.timers[i].good.Add(good)
		o.timers[i].all.Add(all)
	}
	part := func(i int, known, good bool) {
		switch {
		case known && good:
			add(i, micros, micros)
		case known:
			add(i, 0, micros)
		}
	}
	for i, objective := range o.list {
		switch objective.Kind {
		case slo.Agents:
			expected := uint64(max(now.Expected, 0))
			add(i, micros*min(uint64(max(now.Connected, 0)), expected), micros*expected)
		case slo.Accounting:
			part(i, now.Lag >= 0, now.Lag <= toSeconds(objective.Within))
		case slo.Goodput:
			part(i, now.Goodput >= 0, now.Goodput > objective.Above)
		case slo.Submit, slo.Durability, slo.Scheduling, slo.Wait:
		}
	}
}

// measure is what an objective has counted: of a class, so much was good of all.
type measure struct {
	class     string
	good, all float64
}

// readMeasures reads what was counted. The objective of every QOS has a row for each
// that has none of its own.
func (o *Objectives) readMeasures(i int, s *scrape) []measure {
	objective := o.list[i]
	switch objective.Kind {
	case slo.Submit:
		if s.src.Calls == nil {
			return nil
		}
		good, all := s.src.Calls.countWithin("Cluster/Submit", objective.Within)
		return []measure{{"", float64(good), float64(all)}}
	case slo.Durability:
		if s.src.Raft == nil {
			return nil
		}
		raft := s.src.Raft()
		return []measure{{"", float64(raft.Syncs), float64(raft.Syncs + raft.SyncFailures)}}
	case slo.Scheduling:
		return []measure{{"", float64(s.v.Pass.Within(objective.Within)), float64(s.v.Pass.Passes)}}
	case slo.Wait:
		return o.measureWaits(objective, s.v.State.Totals.Waits)
	case slo.Accounting, slo.Agents, slo.Goodput:
	}
	const second = 1e6
	t := &o.timers[i]
	good := float64(t.good.Load()) / second
	return []measure{{"", good, max(float64(t.all.Load())/second, good)}}
}

func (o *Objectives) measureWaits(
	objective slo.Objective, totals []*state.QOSTotals,
) (measures []measure) {
	named := func(qos string) bool {
		return slices.ContainsFunc(
			o.list,
			func(x slo.Objective) bool { return x.Kind == slo.Wait && x.Class == qos },
		)
	}
	for _, qosTotals := range totals {
		if qosTotals.Name == objective.Class ||
			objective.Class == slo.EveryQOS && !named(qosTotals.Name) {
			measures = append(
				measures,
				measure{
					qosTotals.Name,
					float64(qosTotals.Wait.Within(objective.Within)),
					float64(qosTotals.Wait.Histogram.Count),
				},
			)
		}
	}
	return measures
}

// unit is what an objective of a kind counts.
func unit(kind slo.Kind) string {
	switch kind {
	case slo.Submit:
		return "submissions"
	case slo.Durability:
		return "writes"
	case slo.Scheduling:
		return "passes"
	case slo.Wait:
		return "starts"
	case slo.Agents:
		return "agent-seconds"
	case slo.Accounting, slo.Goodput:
	}
	return "seconds"
}

// sloFamilies are the objectives and what was counted against them. The rules of
// alerts read nothing else, so that a site's target is in one place.
//
//muster:table one entry for each metric
func sloFamilies() []family {
	const src, card = "slo in muster.yaml, and what each objective is about, since the controller started; waits since the cluster was created", "6 + QOS"
	each := func(f func(s *scrape, o slo.Objective, m measure)) func(s *scrape) {
		return func(s *scrape) {
			if s.src.Objectives == nil {
				return
			}
			for i, objective := range s.src.Objectives.list {
				for _, m := range s.src.Objectives.readMeasures(i, s) {
					f(s, objective, m)
				}
			}
		}
	}
	return []family{
		{counterMetric("muster_slo_events_total", "What a service objective counts: calls, writes, passes, starts of jobs, or seconds.", catalogue.None, src, card, "slo", "class"),
			each(func(s *scrape, o slo.Objective, m measure) { s.sendSeries(m.all, string(o.Kind), m.class) })},
		{counterMetric("muster_slo_good_events_total", "Those that were good, as the objective says it.", catalogue.None, src, card, "slo", "class"),
			each(func(s *scrape, o slo.Objective, m measure) { s.sendSeries(m.good, string(o.Kind), m.class) })},
		{gaugeMetric("muster_slo_objective_ratio", "The part that must be good, over 30 days.", catalogue.Ratio, src, card, "slo", "class"),
			each(func(s *scrape, o slo.Objective, m measure) { s.sendSeries(o.Part, string(o.Kind), m.class) })},
		{infoMetric(gaugeMetric("muster_slo_info", "Always 1; the labels say the objective as muster.yaml does, and what it counts.", catalogue.None, src, card, "slo", "class", "objective", "counts")),
			each(func(s *scrape, objective slo.Objective, m measure) {
				s.sendSeries(
					1, string(objective.Kind), m.class, objective.Text(), unit(objective.Kind),
				)
			})},
	}
}

// Reachable counts the nodes whose agents should be connected, and those of them
// that are: nodes that have registered, and are neither asleep nor taken out of
// service. The agent of a drained node does not make up for one that is missed.
func Reachable(cluster *state.State, connected func(node string) bool) (heard, expected int) {
	cluster.Nodes.Range(func(_ uint64, node *state.Node) bool {
		if node.Inv == nil || node.Asleep() || node.Admin != event.NodeResume {
			return true
		}
		expected++
		if connected(node.Spec.Name) {
			heard++
		}
		return true
	})
	return heard, expected
}
