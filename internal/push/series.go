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
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			labels := t.labelsOf(metric)
			s := one{at: at.UnixMilli(), family: family}
			if metric.TimestampMs != nil {
				s.at = metric.GetTimestampMs()
			}
			send := func(suffix string, value float64, exemplar *dto.Exemplar, more ...pair) {
				s.labels = append(slices.Clone(labels), more...)
				s.labels = append(s.labels, pair{"__name__", family.GetName() + suffix})
				slices.SortFunc(s.labels, func(a, b pair) int { return strings.Compare(a.name, b.name) })
				s.value, s.exemplar = value, exemplar
				give(s)
			}
			switch family.GetType() {
			case dto.MetricType_COUNTER:
				send("", metric.GetCounter().GetValue(), metric.GetCounter().GetExemplar())
			case dto.MetricType_HISTOGRAM, dto.MetricType_GAUGE_HISTOGRAM:
				sendHistogram(metric.GetHistogram(), send)
			case dto.MetricType_SUMMARY:
				for _, q := range metric.GetSummary().GetQuantile() {
					send("", q.GetValue(), nil, pair{"quantile", formatFloat(q.GetQuantile())})
				}
				send("_sum", metric.GetSummary().GetSampleSum(), nil)
				send("_count", float64(metric.GetSummary().GetSampleCount()), nil)
			case dto.MetricType_GAUGE:
				send("", metric.GetGauge().GetValue(), nil)
			case dto.MetricType_UNTYPED:
				send("", metric.GetUntyped().GetValue(), nil)
			}
		}
	}
}

func sendHistogram(
	histogram *dto.Histogram,
	send func(suffix string, value float64, exemplar *dto.Exemplar, more ...pair),
) {
	infinite := false
	for _, b := range histogram.GetBucket() {
		infinite = infinite || math.IsInf(b.GetUpperBound(), 1)
		send("_bucket", float64(b.GetCumulativeCount()), b.GetExemplar(), pair{"le", formatFloat(b.GetUpperBound())})
	}
	if !infinite {
		send("_bucket", float64(histogram.GetSampleCount()), nil, pair{"le", "+Inf"})
	}
	send("_sum", histogram.GetSampleSum(), nil)
	send("_count", float64(histogram.GetSampleCount()), nil)
}

// labelsOf are those of a series and of the target.
func (t Target) labelsOf(metric *dto.Metric) []pair {
	var pairs []pair
	has := map[string]bool{}
	for _, l := range metric.GetLabel() {
		if l.GetValue() != "" {
			pairs = append(pairs, pair{l.GetName(), l.GetValue()})
			has[l.GetName()] = true
		}
	}
	add := func(name, value string) {
		if value != "" && !has[name] {
			pairs = append(pairs, pair{name, value})
		}
	}
	add("job", t.Job)
	add("instance", t.Instance)
	for name, value := range t.Labels {
		add(name, value)
	}
	return pairs
}

// formatFloat writes a number as Prometheus writes it in labels.
func formatFloat(value float64) string {
	if math.IsInf(value, 1) {
		return "+Inf"
	}
	text := strconv.FormatFloat(value, 'g', -1, 64)
	if !strings.ContainsAny(text, "e.") {
		text += ".0"
	}
	return text
}
