package telemetry

import (
	"context"
	"io"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/musterhpc/muster/spec"
)

// Push is where the metrics are sent to when a scraper cannot reach the node.
type Push struct {
	// URL takes the text format by POST: /api/v1/import/prometheus of
	// VictoriaMetrics, of vmagent, or of a cluster's vminsert.
	URL string
	// Headers are lines "Name: value" of every request.
	Headers []string
	// Interval is the time between two pushes.
	Interval spec.Span
	// First is how long to wait before the first, so that nodes that started
	// together do not push together.
	First spec.Span
	// Changed is told the first failure after a success, and nil at the first
	// success after a failure.
	Changed func(error)
}

// PushUntil pushes what a scrape would get until the context ends. A failed
// push is counted and not repeated: the next one carries newer values, and
// counters lose nothing by it.
func (t *Telemetry) PushUntil(ctx context.Context, push Push) {
	timer := time.NewTimer(time.Duration(push.First))
	defer timer.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		timer.Reset(time.Duration(push.Interval))
		err := t.push(ctx, push)
		if ctx.Err() != nil {
			return
		}
		t.CountPush(err)
		if failed := err != nil; failed != failing {
			failing = failed
			push.Changed(err)
		}
	}
}

// CountPush counts a push that another way of pushing tried.
func (t *Telemetry) CountPush(err error) {
	t.self.pushes.Inc()
	if err != nil {
		t.self.pushErrors.Inc()
	}
}

func (t *Telemetry) push(ctx context.Context, push Push) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(push.Interval))
	defer cancel()
	write := func(w io.Writer) { _, _ = t.WriteTo(w) } // into memory
	return metrics.PushMetricsExt(
		ctx,
		push.URL,
		write,
		&metrics.PushOptions{Headers: push.Headers, Method: "POST"},
	)
}
