package push

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	metricsrpc "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	metrics "go.opentelemetry.io/proto/otlp/metrics/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"

	"github.com/musterhpc/muster/internal/otlp"
)

// OTLP sends metrics to a collector, with the names that a scrape has.
type OTLP struct {
	client *otlp.Client
	target Target
	began  time.Time // since when counters count, as far as is known
}

// NewOTLP makes one over a client.
func NewOTLP(client *otlp.Client, target Target, began time.Time) *OTLP {
	return &OTLP{client: client, target: target, began: began}
}

// Encode implements Receiver.
func (o *OTLP) Encode(families []*dto.MetricFamily, at time.Time) Message {
	var list []*metrics.Metric
	for _, f := range families {
		if m := o.metricOf(f, at); m != nil {
			list = append(list, m)
		}
	}
	who := []*common.KeyValue{keyValue("service.name", o.target.Job), keyValue("service.instance.id", o.target.Instance)}
	if cluster := o.target.Labels["cluster"]; cluster != "" {
		who = append(who, keyValue("service.namespace", cluster))
	}
	return &metricsrpc.ExportMetricsServiceRequest{ResourceMetrics: []*metrics.ResourceMetrics{{
		Resource:     &resource.Resource{Attributes: who},
		ScopeMetrics: []*metrics.ScopeMetrics{{Scope: &common.InstrumentationScope{Name: "muster"}, Metrics: list}},
	}}}
}

// Send implements Receiver.
func (o *OTLP) Send(ctx context.Context, message Message) error {
	rejected, err := o.client.SendMetrics(ctx, message.(*metricsrpc.ExportMetricsServiceRequest))
	var why *otlp.Error
	switch {
	case errors.As(err, &why) && why.Never:
		return fmt.Errorf("%w: %w", errRefused, err)
	case err != nil:
		return err
	case rejected.Count > 0:
		return fmt.Errorf("%w: %d points: %s", errRefused, rejected.Count, rejected.Why)
	}
	return nil
}

// Close implements Receiver.
func (o *OTLP) Close() error { return o.client.Close() }

// metricOf is a family as OpenTelemetry has it.
func (o *OTLP) metricOf(family *dto.MetricFamily, at time.Time) *metrics.Metric {
	out := &metrics.Metric{Name: family.GetName(), Description: family.GetHelp()}
	now, began := uint64(at.UnixNano()), uint64(o.began.UnixNano())
	var points []*metrics.NumberDataPoint
	number := func(m *dto.Metric, value float64) {
		points = append(points, &metrics.NumberDataPoint{
			Attributes:   o.attributes(m),
			TimeUnixNano: now,
			Value:        &metrics.NumberDataPoint_AsDouble{AsDouble: value},
		})
	}
	switch family.GetType() {
	case dto.MetricType_COUNTER:
		for _, m := range family.GetMetric() {
			number(m, m.GetCounter().GetValue())
		}
		for _, p := range points {
			p.StartTimeUnixNano = began
		}
		out.Data = &metrics.Metric_Sum{Sum: &metrics.Sum{
			DataPoints: points, IsMonotonic: true, AggregationTemporality: metrics.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE,
		}}
	case dto.MetricType_HISTOGRAM, dto.MetricType_GAUGE_HISTOGRAM:
		var list []*metrics.HistogramDataPoint
		for _, m := range family.GetMetric() {
			p := histogramPoint(m.GetHistogram())
			p.Attributes = o.attributes(m)
			p.TimeUnixNano = now
			p.StartTimeUnixNano = began
			list = append(list, p)
		}
		out.Data = &metrics.Metric_Histogram{Histogram: &metrics.Histogram{
			DataPoints: list, AggregationTemporality: metrics.AggregationTemporality_AGGREGATION_TEMPORALITY_CUMULATIVE,
		}}
	case dto.MetricType_SUMMARY:
		var list []*metrics.SummaryDataPoint
		for _, metric := range family.GetMetric() {
			p := &metrics.SummaryDataPoint{
				Attributes: o.attributes(metric), TimeUnixNano: now, StartTimeUnixNano: began,
				Count: metric.GetSummary().GetSampleCount(),
				Sum:   metric.GetSummary().GetSampleSum(),
			}
			for _, q := range metric.GetSummary().GetQuantile() {
				p.QuantileValues = append(p.QuantileValues, &metrics.SummaryDataPoint_ValueAtQuantile{Quantile: q.GetQuantile(), Value: q.GetValue()})
			}
			list = append(list, p)
		}
		out.Data = &metrics.Metric_Summary{Summary: &metrics.Summary{DataPoints: list}}
	default:
		for _, metric := range family.GetMetric() {
			if metric.GetUntyped() != nil {
				number(metric, metric.GetUntyped().GetValue())
				continue
			}
			number(metric, metric.GetGauge().GetValue())
		}
		out.Data = &metrics.Metric_Gauge{Gauge: &metrics.Gauge{DataPoints: points}}
	}
	return out
}

// histogramPoint has the counts of each bucket alone; the last one is that above all
// bounds.
func histogramPoint(histogram *dto.Histogram) *metrics.HistogramDataPoint {
	out := &metrics.HistogramDataPoint{
		Count: histogram.GetSampleCount(), Sum: new(histogram.GetSampleSum()),
	}
	before := uint64(0)
	for _, b := range histogram.GetBucket() {
		if math.IsInf(b.GetUpperBound(), 1) {
			continue
		}
		out.ExplicitBounds = append(out.ExplicitBounds, b.GetUpperBound())
		out.BucketCounts = append(out.BucketCounts, b.GetCumulativeCount()-before)
		before = b.GetCumulativeCount()
		if e := b.GetExemplar(); e != nil {
			out.Exemplars = append(out.Exemplars, exemplarOf(e))
		}
	}
	out.BucketCounts = append(out.BucketCounts, histogram.GetSampleCount()-before)
	return out
}

// exemplarOf leads to a trace by its id, which is no label in OpenTelemetry.
func exemplarOf(e *dto.Exemplar) *metrics.Exemplar {
	out := &metrics.Exemplar{
		TimeUnixNano: uint64(e.GetTimestamp().AsTime().UnixNano()),
		Value:        &metrics.Exemplar_AsDouble{AsDouble: e.GetValue()},
	}
	for _, l := range e.GetLabel() {
		if id, err := hex.DecodeString(l.GetValue()); l.GetName() == "trace_id" && err == nil {
			out.TraceId = id
			continue
		}
		out.FilteredAttributes = append(out.FilteredAttributes, keyValue(l.GetName(), l.GetValue()))
	}
	return out
}

// attributes are the labels of a series; job and instance are the resource's.
func (o *OTLP) attributes(metric *dto.Metric) []*common.KeyValue {
	var out []*common.KeyValue
	for _, l := range (Target{Labels: o.target.Labels}).labelsOf(metric) {
		out = append(out, keyValue(l.name, l.value))
	}
	return out
}

func keyValue(key, value string) *common.KeyValue {
	value = strings.ToValidUTF8(value, "\ufffd")
	return &common.KeyValue{Key: key, Value: &common.AnyValue{Value: &common.AnyValue_StringValue{StringValue: value}}}
}
