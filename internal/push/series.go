package push

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
)

// Target is what a scrape would add to every series: which process it is.
type Target struct {
	Job, Instance string
	// Labels are added where a series has none of the name, such as the cluster to those
	// of GPUs.
	Labels map[string]string
}

// pair is a label.
type pair struct{ name, value string }

// one is a series with its value, as remote write has it.
type one struct {
	labels   []pair // in order of their names, with __name__
	value    float64
	at       int64 // milliseconds
	family   *dto.MetricFamily
	exemplar *dto.Exemplar
}

// eachSeries gives the series of families in the classic form: a histogram is its buckets,
// its sum and its count.
func (t Target) eachSeries(families []*dto.MetricFamily, at time.Time, give func(one)) {
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := t.labelsOf(m)
			s := one{at: at.UnixMilli(), family: f}
			if m.TimestampMs != nil {
				s.at = m.GetTimestampMs()
			}
			send := func(suffix string, value float64, exemplar *dto.Exemplar, more ...pair) {
				s.labels = append(slices.Clone(labels), more...)
				s.labels = append(s.labels, pair{"__name__", f.GetName() + suffix})
				slices.SortFunc(s.labels, func(a, b pair) int { return strings.Compare(a.name, b.name) })
				s.value, s.exemplar = value, exemplar
				give(s)
			}
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				send("", m.GetCounter().GetValue(), m.GetCounter().GetExemplar())
			case dto.MetricType_HISTOGRAM, dto.MetricType_GAUGE_HISTOGRAM:
				sendHistogram(m.GetHistogram(), send)
			case dto.MetricType_SUMMARY:
				for _, q := range m.GetSummary().GetQuantile() {
					send("", q.GetValue(), nil, pair{"quantile", formatFloat(q.GetQuantile())})
				}
				send("_sum", m.GetSummary().GetSampleSum(), nil)
				send("_count", float64(m.GetSummary().GetSampleCount()), nil)
			case dto.MetricType_GAUGE:
				send("", m.GetGauge().GetValue(), nil)
			case dto.MetricType_UNTYPED:
				send("", m.GetUntyped().GetValue(), nil)
			}
		}
	}
}

func sendHistogram(h *dto.Histogram, send func(suffix string, value float64, exemplar *dto.Exemplar, more ...pair)) {
	infinite := false
	for _, b := range h.GetBucket() {
		infinite = infinite || math.IsInf(b.GetUpperBound(), 1)
		send("_bucket", float64(b.GetCumulativeCount()), b.GetExemplar(), pair{"le", formatFloat(b.GetUpperBound())})
	}
	if !infinite {
		send("_bucket", float64(h.GetSampleCount()), nil, pair{"le", "+Inf"})
	}
	send("_sum", h.GetSampleSum(), nil)
	send("_count", float64(h.GetSampleCount()), nil)
}

// labelsOf are those of a series and of the target.
func (t Target) labelsOf(m *dto.Metric) []pair {
	var out []pair
	has := map[string]bool{}
	for _, l := range m.GetLabel() {
		if l.GetValue() != "" {
			out = append(out, pair{l.GetName(), l.GetValue()})
			has[l.GetName()] = true
		}
	}
	add := func(name, value string) {
		if value != "" && !has[name] {
			out = append(out, pair{name, value})
		}
	}
	add("job", t.Job)
	add("instance", t.Instance)
	for name, value := range t.Labels {
		add(name, value)
	}
	return out
}

// formatFloat writes a number as Prometheus writes it in labels.
func formatFloat(v float64) string {
	if math.IsInf(v, 1) {
		return "+Inf"
	}
	text := strconv.FormatFloat(v, 'g', -1, 64)
	if !strings.ContainsAny(text, "e.") {
		text += ".0"
	}
	return text
}
