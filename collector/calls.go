package collector

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/musterhpc/muster/internal/catalogue"
	"github.com/musterhpc/muster/internal/slo"
	"github.com/musterhpc/muster/spec"
)

// Calls counts the API's calls by method and by user. Methods are those of the
// service and users at most maxCallers, so the series are bounded; counting
// takes no lock once a name is known.
type Calls struct {
	methods sync.Map // string: *callStat
	users   sync.Map
	callers atomic.Int64
}

const (
	maxCallers   = 500
	otherCallers = "other users"
)

// callBounds are the upper bounds of the latency's buckets in seconds.
func callBounds() [10]float64 { return slo.CallBounds() }

// countWithin counts the calls of a method, and those of them that were answered, be it
// with a refusal, within a time, as far as the bounds tell.
func (c *Calls) countWithin(method string, d spec.Span) (good, all uint64) {
	value, ok := c.methods.Load(method)
	if !ok {
		return 0, 0
	}
	s := value.(*callStat)
	for i, bound := range callBounds() {
		if bound <= toSeconds(d) {
			good += s.buckets[i].Load()
		}
	}
	// Counted last, so that it is never the smaller one.
	return good, max(s.count.Load(), good)
}

type callStat struct {
	count, failed, nanos atomic.Uint64
	buckets              [10]atomic.Uint64
}

// Observe counts one call.
func (c *Calls) Observe(method, user string, took time.Duration, failed bool) {
	stat(&c.methods, method).addCall(took, failed)
	if user == "" {
		return
	}
	if _, known := c.users.Load(user); !known && c.callers.Add(1) > maxCallers {
		c.callers.Add(-1)
		user = otherCallers
	}
	stat(&c.users, user).addCall(took, failed)
}

// EachMethod visits the calls of each method.
func (c *Calls) EachMethod(visit func(name string, count, nanos uint64)) { each(&c.methods, visit) }

// EachUser visits the calls of each user who has a name of his own among the metrics.
func (c *Calls) EachUser(visit func(name string, count, nanos uint64)) { each(&c.users, visit) }

func each(m *sync.Map, visit func(name string, count, nanos uint64)) {
	m.Range(func(name, value any) bool {
		s := value.(*callStat)
		visit(name.(string), s.count.Load(), s.nanos.Load())
		return true
	})
}

func stat(m *sync.Map, name string) *callStat {
	if v, ok := m.Load(name); ok {
		return v.(*callStat)
	}
	v, _ := m.LoadOrStore(name, &callStat{})
	return v.(*callStat)
}

func (s *callStat) addCall(took time.Duration, failed bool) {
	s.count.Add(1)
	s.nanos.Add(uint64(max(took, 0)))
	if failed {
		s.failed.Add(1)
	}
	for i, b := range callBounds() {
		if took.Seconds() <= b {
			s.buckets[i].Add(1)
			return
		}
	}
}

// callRows lists what was counted, by name.
func callRows(m *sync.Map) []rpcRow {
	var rows []rpcRow
	m.Range(func(k, v any) bool {
		s := v.(*callStat)
		rows = append(
			rows,
			rpcRow{Name: k.(string), Count: s.count.Load(), Total: spec.Span(s.nanos.Load())},
		)
		return true
	})
	slices.SortFunc(rows, func(a, b rpcRow) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return rows
}

// latencyHistogram writes a method's times as a histogram. Its count is the sum of the
// buckets as they were read, so that the two always agree.
func (s *callStat) latencyHistogram() *dto.Histogram {
	bounds := callBounds()
	histogram, total := &dto.Histogram{}, uint64(0)
	for i := range bounds {
		total += s.buckets[i].Load()
		n := total
		histogram.Bucket = append(histogram.Bucket, &dto.Bucket{UpperBound: &bounds[i], CumulativeCount: &n})
	}
	count, seconds := max(s.count.Load(), total), float64(s.nanos.Load())/1e9
	histogram.SampleCount, histogram.SampleSum = &count, &seconds
	return histogram
}

//muster:table one entry for each metric
func apiFamilies() []family {
	const src, card = "the API's handlers, since the controller started", "methods of the API (at most 60)"
	latency := gaugeMetric("muster_api_request_seconds", "Time the controller took for a call, by method; streams are not counted.", catalogue.Seconds, src, card+" x 12", "method")
	latency.Type = catalogue.Histogram
	each := func(s *scrape, f func(name string, st *callStat)) {
		if s.src.Calls == nil {
			return
		}
		for _, row := range callRows(&s.src.Calls.methods) {
			f(row.Name, stat(&s.src.Calls.methods, row.Name))
		}
	}
	return []family{
		{latency, func(s *scrape) {
			each(s, func(name string, st *callStat) { s.sendHistogram(st.latencyHistogram(), name) })
		}},
		{counterMetric("muster_api_errors_total", "Calls that were refused or failed, by method.", catalogue.None, src, card, "method"),
			func(s *scrape) {
				each(s, func(name string, st *callStat) { s.sendSeries(float64(st.failed.Load()), name) })
			}},
	}
}
