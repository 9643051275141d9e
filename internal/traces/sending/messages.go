package sending

import (
	"encoding/hex"
	"strings"

	tracesrpc "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	resource "go.opentelemetry.io/proto/otlp/resource/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/musterhpc/muster/internal/traces"
)

// Resource is who tells of the jobs.
type Resource struct {
	Cluster    string
	Controller string // its host
	Version    string
}

// maxSpansAtOnce bounds a message: receivers take 4 MiB, and a span with all its events
// is far below 16 KiB.
const maxSpansAtOnce = 256

// message is a request with what it is about.
type message struct {
	of      Resource
	request *tracesrpc.ExportTraceServiceRequest
	jobs    []string
	byJob   [][]*trace.Span
	spans   int
}

// messages puts traces into requests of a bounded size. A trace of many spans is spread
// over several, which receivers put together by its id.
func (r Resource) messages(list []*traces.Trace) []message {
	var messages []message
	open := message{of: r}
	flush := func() {
		if open.spans > 0 {
			messages = append(messages, open.filled())
		}
		open = message{of: r}
	}
	for _, t := range list {
		rest := spansOf(t)
		for len(rest) > 0 {
			if open.spans == maxSpansAtOnce {
				flush()
			}
			n := min(len(rest), maxSpansAtOnce-open.spans)
			open.jobs = append(open.jobs, t.Job)
			open.byJob = append(open.byJob, rest[:n])
			open.spans += n
			rest = rest[n:]
		}
	}
	flush()
	return messages
}

// filled makes the request.
func (m message) filled() message {
	var spans []*trace.Span
	for _, of := range m.byJob {
		spans = append(spans, of...)
	}
	m.request = &tracesrpc.ExportTraceServiceRequest{ResourceSpans: []*trace.ResourceSpans{{
		Resource: &resource.Resource{Attributes: m.of.attributes()},
		ScopeSpans: []*trace.ScopeSpans{{
			Scope: &common.InstrumentationScope{Name: traces.Scope, Version: m.of.Version},
			Spans: spans,
		}},
	}}}
	return m
}

// split makes a message of each job.
func (m message) split() []message {
	var messages []message
	for i := range m.jobs {
		one := message{of: m.of, jobs: m.jobs[i : i+1], byJob: m.byJob[i : i+1], spans: len(m.byJob[i])}
		messages = append(messages, one.filled())
	}
	return messages
}

// attributes name the resource in the words of OpenTelemetry's conventions.
func (r Resource) attributes() []*common.KeyValue {
	return attributesOf([]traces.Fact{
		{Key: "service.name", Value: traces.Service},
		{Key: "service.namespace", Value: r.Cluster},
		{Key: "service.version", Value: r.Version},
		{Key: "service.instance.id", Value: r.Controller},
		{Key: "muster.cluster", Value: r.Cluster},
	})
}

func spansOf(t *traces.Trace) []*trace.Span {
	var out []*trace.Span
	for _, s := range t.Spans() {
		span := &trace.Span{
			TraceId:            bytesOf(t.ID),
			SpanId:             bytesOf(s.ID),
			ParentSpanId:       bytesOf(s.Parent),
			Name:               s.Name,
			Kind:               trace.Span_SPAN_KIND_INTERNAL,
			StartTimeUnixNano:  uint64(s.Start),
			EndTimeUnixNano:    uint64(s.End),
			Attributes:         attributesOf(s.Facts),
			DroppedEventsCount: uint32(s.Dropped),
		}
		for _, event := range s.Events {
			span.Events = append(span.Events, &trace.Span_Event{
				TimeUnixNano: uint64(event.At),
				Name:         event.Name,
				Attributes:   attributesOf(event.Facts),
			})
		}
		if s.Failed != "" {
			span.Status = &trace.Status{Code: trace.Status_STATUS_CODE_ERROR, Message: validText(s.Failed)}
		}
		out = append(out, span)
	}
	return out
}

// bytesOf reads an id; the Builder makes only hexadecimal ones.
func bytesOf(id string) []byte {
	out, _ := hex.DecodeString(id)
	return out
}

// validText is what the protocol can carry: a job may have any bytes in its name, and a
// message with others than UTF-8 cannot be written.
func validText(text string) string { return strings.ToValidUTF8(text, "\ufffd") }

func attributesOf(facts []traces.Fact) []*common.KeyValue {
	out := make([]*common.KeyValue, 0, len(facts))
	for _, fact := range facts {
		value := &common.AnyValue{}
		switch x := fact.Value.(type) {
		case string:
			value.Value = &common.AnyValue_StringValue{StringValue: validText(x)}
		case int64:
			value.Value = &common.AnyValue_IntValue{IntValue: x}
		case bool:
			value.Value = &common.AnyValue_BoolValue{BoolValue: x}
		}
		out = append(out, &common.KeyValue{Key: fact.Key, Value: value})
	}
	return out
}
