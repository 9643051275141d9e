package paging

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/annotations"
)

// A week has 10,080 minutes, and promtool asks each rule in each of them anew. Here a
// rule is one range query over a day, of the same engine, which keeps its windows from
// a minute to the next. TestPlantedFaultsPageOnce compares the two.

// rule is one of the shipped rules.
type rule struct {
	Record, Alert string
	Expr          string
	For           model.Duration
	KeepFiringFor model.Duration `yaml:"keep_firing_for"`
	Labels        map[string]string
}

// notifies tells whether the rule is an alert that somebody gets within the day.
func (r *rule) notifies() bool {
	return r.Alert != "" && (r.Labels["severity"] == "critical" || r.Labels["severity"] == "warning")
}

// store holds series by the names of their metrics, for the engine.
type store map[string][]*values

// store gives the series that were recorded.
func (r *recorder) store(t testing.TB) store {
	t.Helper()
	p := parser.NewParser(parser.Options{})
	s := store{}
	for name, v := range r.series {
		var err error
		if v.labels, err = p.ParseMetric(name); err != nil {
			t.Fatalf("series %s: %v", name, err)
		}
		v.seal(t)
		metric := v.labels.Get(labels.MetricName)
		s[metric] = append(s[metric], v)
	}
	return s
}

// minuteAt is the minute of the engine's milliseconds, and millis the other way.
func minuteAt(ms int64) int   { return int(ms / 60_000) }
func millis(minute int) int64 { return int64(minute) * 60_000 }
func at(minute int) time.Time { return time.UnixMilli(millis(minute)) }
func (v *values) ends() int   { return v.runs[len(v.runs)-1].end() }
func (v *values) begins() int { return v.runs[0].from }
func (s store) Close() error  { return nil }

// Querier looks at the series between two instants.
func (s store) Querier(from, to int64) (storage.Querier, error) {
	return &querier{store: s, from: from, to: to}, nil
}

type querier struct {
	store
	from, to int64
}

func (q *querier) Select(_ context.Context, sorted bool, _ *storage.SelectHints, ms ...*labels.Matcher) storage.SeriesSet {
	set := &found{}
	for _, m := range ms {
		if m.Name != labels.MetricName || m.Type != labels.MatchEqual {
			continue
		}
		for _, v := range q.store[m.Value] {
			if millis(v.ends()) >= q.from && millis(v.begins()) <= q.to && matchers(ms).matchLabels(v.labels) {
				set.list = append(set.list, v)
			}
		}
	}
	if sorted {
		slices.SortFunc(set.list, func(a, b *values) int { return labels.Compare(a.labels, b.labels) })
	}
	return set
}

func (q *querier) LabelValues(context.Context, string, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil // no query asks
}

func (q *querier) LabelNames(context.Context, *storage.LabelHints, ...*labels.Matcher) ([]string, annotations.Annotations, error) {
	return nil, nil, nil
}

// found is a list of series.
type found struct {
	list []*values
	next int
}

func (f *found) Next() bool                        { f.next++; return f.next <= len(f.list) }
func (f *found) At() storage.Series                { return f.list[f.next-1] }
func (f *found) Err() error                        { return nil }
func (f *found) Warnings() annotations.Annotations { return nil }

// Labels and Iterator make values a series of Prometheus'.
func (v *values) Labels() labels.Labels { return v.labels }

func (v *values) Iterator(again chunkenc.Iterator) chunkenc.Iterator { return v.chunk.Iterator(again) }

// seal packs the samples as Prometheus does.
func (v *values) seal(t testing.TB) {
	t.Helper()
	v.chunk = chunkenc.NewXORChunk()
	to, err := v.chunk.Appender()
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range v.runs {
		for minute := r.from; minute < r.end(); minute++ {
			to.Append(0, millis(minute), r.sample)
		}
	}
}

// evaluated gives the alerts that fire, by minute, as firing does.
func (s *shipped) evaluated(t testing.TB, r *recorder) map[int][]model.LabelSet {
	t.Helper()
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: math.MaxInt32, Timeout: time.Hour, LookbackDelta: 5 * time.Minute})
	series := r.store(t)
	fired := map[int][]model.LabelSet{}
	for i := range s.rules {
		rule := &s.rules[i]
		switch {
		case rule.Record != "" && s.wanted[rule.Record]:
			s.record(t, engine, series, rule, r.minute)
		case rule.notifies():
			s.alert(t, engine, series, rule, r.minute, fired)
		}
	}
	return fired
}

// ask evaluates an expression at each minute of a day.
func ask(t testing.TB, engine *promql.Engine, series store, expr string, from, to int) promql.Matrix {
	t.Helper()
	q, err := engine.NewRangeQuery(context.Background(), series, nil, expr, at(from), at(to), time.Minute)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	defer q.Close()
	res := q.Exec(context.Background())
	m, err := res.Matrix()
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	out := make(promql.Matrix, len(m))
	for i := range m {
		// What the query holds is used again after Close.
		out[i] = promql.Series{Metric: m[i].Metric, Floats: slices.Clone(m[i].Floats)}
	}
	return out
}

// record adds the series of a recording rule.
func (s *shipped) record(t testing.TB, engine *promql.Engine, series store, rule *rule, last int) {
	t.Helper()
	made := map[uint64]*values{}
	for from := 0; from <= last; from += day {
		for _, one := range ask(t, engine, series, rule.Expr, from, min(from+day-1, last)) {
			b := labels.NewBuilder(one.Metric).Set(labels.MetricName, rule.Record)
			for name, text := range rule.Labels {
				b.Set(name, text)
			}
			set := b.Labels()
			v := made[set.Hash()]
			if v == nil {
				v = &values{labels: set}
				made[set.Hash()] = v
			}
			for _, p := range one.Floats {
				minute := minuteAt(p.T)
				v.endBefore(minute)
				v.put(minute, p.F)
			}
		}
	}
	for _, v := range made {
		v.endBefore(last + 1)
		v.seal(t)
		series[rule.Record] = append(series[rule.Record], v)
	}
}

// endBefore marks a series as ended at the first minute that it misses.
func (v *values) endBefore(minute int) {
	if last := v.last(); last != nil && last.end() < minute && !last.stale() {
		v.put(last.end(), math.Float64frombits(value.StaleNaN))
	}
}

// alert adds what an alerting rule fires. An alert fires when its expression has been
// true for the rule's time, and until it has been false for keep_firing_for.
func (s *shipped) alert(t testing.TB, engine *promql.Engine, series store, rule *rule, last int, fired map[int][]model.LabelSet) {
	t.Helper()
	hold := int((time.Duration(rule.For) + time.Minute - 1) / time.Minute)
	keep := int((time.Duration(rule.KeepFiringFor) + time.Minute - 1) / time.Minute)
	truths := map[model.Fingerprint][]int{}
	sets := map[model.Fingerprint]model.LabelSet{}
	for from := 0; from <= last; from += day {
		for _, one := range ask(t, engine, series, rule.Expr, from, min(from+day-1, last)) {
			set := model.LabelSet{}
			one.Metric.Range(func(l labels.Label) { set[model.LabelName(l.Name)] = model.LabelValue(l.Value) })
			for name, text := range rule.Labels {
				if strings.Contains(text, "{{") {
					t.Fatalf("%s: label %s is a template, which this evaluation does not know", rule.Alert, name)
				}
				set[model.LabelName(name)] = model.LabelValue(text)
			}
			delete(set, labels.MetricName)
			set["alertname"] = model.LabelValue(rule.Alert)
			key := set.Fingerprint()
			sets[key] = set
			for _, p := range one.Floats {
				truths[key] = append(truths[key], minuteAt(p.T))
			}
		}
	}
	for key, minutes := range truths {
		slices.Sort(minutes)
		for _, minute := range firingMinutes(slices.Compact(minutes), hold, keep, last) {
			fired[minute] = append(fired[minute], sets[key])
		}
	}
}

// firingMinutes are those at which an alert fires that is true at the given ones.
func firingMinutes(minutes []int, hold, keep, last int) (out []int) {
	for len(minutes) > 0 {
		since := minutes[0]
		firing := false
		falseFrom := -1
		for minute := since; minute <= last; minute++ {
			if len(minutes) > 0 && minutes[0] == minute {
				minutes = minutes[1:]
				falseFrom = -1
				firing = firing || minute-since >= hold
			} else {
				if falseFrom < 0 {
					falseFrom = minute
				}
				if !firing || minute-falseFrom >= keep {
					break
				}
			}
			if firing {
				out = append(out, minute)
			}
		}
	}
	return out
}
