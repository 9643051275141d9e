package query

import (
	"encoding/json"
	"strconv"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/opt"
	"github.com/musterhpc/muster/cli/tool"
	lives "github.com/musterhpc/muster/internal/traces"
)

// Traces is the command muster traces.
func Traces() *tool.Command {
	return &tool.Command{
		Name:    "traces",
		Summary: "write the lives of ended jobs as OpenTelemetry traces",
		Usage:   []string{"[OPTIONS]"},
		About: `Each line is one trace, of one job that has ended, in OTLP's JSON encoding: a valid body of a POST to
/v1/traces of any collector, and a line of the file that its otlpjsonfile receiver reads. The spans of a job are its
waits with the reasons as span events, its runs with boot, prolog and steps, and the release of its nodes. They are
derived from the ledger, so their times are exact and the past can be exported again: the ids follow from the job, and a
collector that is sent a trace twice holds its spans once.

Without --since these are the jobs that ended since midnight. --follow goes on as jobs end, also after a restart of the
controller. Jobs are shown to whoever may see them by squeue (PrivateData).`,
		Options: []opt.Option{
			{Long: "follow", Short: "f", Help: "go on as jobs end, until interrupted"},
			{
				Long:  "jobs",
				Also:  "job",
				Short: "j",
				Arg:   "<job_id_list>",
				Help:  "only these jobs: 12, 36 with its tasks, 36_7",
			},
			{
				Long:  "since",
				Also:  "starttime",
				Short: "S",
				Arg:   "<time>",
				Help:  "only jobs that ended at or after this time, as sacct -S reads it",
			},
			{
				Long:  "until",
				Also:  "endtime",
				Short: "E",
				Arg:   "<time>",
				Help:  "only what happened before this time, as sacct -E reads it",
			},
			{
				Long:  "users",
				Also:  "user",
				Short: "u",
				Arg:   "<user_list>",
				Help:  "only jobs of these users",
			},
		},
		Example: []tool.Example{
			{Line: "muster traces -j 12", What: "writes the trace of job 12"},
			{
				Line: "muster traces -S now-7days > week.json",
				What: "writes the traces of a week for an otlpjsonfile receiver",
			},
			{
				Line: "muster traces --follow | while read -r t; do curl -sS --retry 99 --retry-connrefused " +
					"--json \"$t\" http://collector:4318/v1/traces; done",
				What: "sends each job's trace to a collector as the job ends",
			},
		},
		Run: runTraces,
	}
}

func runTraces(call *tool.Call) error {
	if err := call.RefuseOperands(); err != nil {
		return err
	}
	request, since, err := tracesRequest(call)
	if err != nil {
		return err
	}
	defer call.EndWhenUnread()()
	traces := lives.NewBuilder(since, 0)
	write := func(call *tool.Call, event *apiv1.EventInfo) error {
		traces.Add(event)
		return writeTraces(call, traces.Take())
	}
	if request.GetFollow() {
		return followEvents(call, request, write)
	}
	_, err = eventsOnce(call, request, write)
	if call.Ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return err
	}
	return writeTraces(call, traces.Rest())
}

// tracesRequest reads the options: what to ask for, and since when jobs must have ended
// to be shown. A job that ended today may have been submitted long ago, so the ledger
// is read from its beginning.
func tracesRequest(call *tool.Call) (*apiv1.EventsRequest, int64, error) {
	request, err := eventsRequest(call)
	if err != nil {
		return nil, 0, err
	}
	since := request.GetSince()
	if request.GetFollow() && since == 0 {
		since = call.Now().UnixNano()
	}
	request.Since = 1
	request.Kinds = []string{"Job", "Step", "ReasonsChanged", "ArrayTaskSplit"}
	return request, since, nil
}

func writeTraces(call *tool.Call, jobs []*lives.Trace) error {
	for _, job := range jobs {
		line, err := json.Marshal(otlpOf(job))
		if err != nil {
			return err
		}
		if err := call.WriteOut(append(line, '\n')); err != nil {
			return err
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	return call.Out.Flush()
}

// What follows is ExportTraceServiceRequest of OTLP in its JSON encoding: ids are
// hexadecimal, and integers of 64 bits are strings.

type otlpRequest struct {
	ResourceSpans []otlpResourceSpans `json:"resourceSpans"`
}

type otlpResourceSpans struct {
	Resource   otlpResource     `json:"resource"`
	ScopeSpans []otlpScopeSpans `json:"scopeSpans"`
}

type otlpResource struct {
	Attributes []otlpAttribute `json:"attributes"`
}

type otlpScopeSpans struct {
	Scope otlpScope  `json:"scope"`
	Spans []otlpSpan `json:"spans"`
}

type otlpScope struct {
	Name string `json:"name"`
}

type otlpSpan struct {
	TraceID    string          `json:"traceId"`
	SpanID     string          `json:"spanId"`
	Parent     string          `json:"parentSpanId,omitempty"`
	Name       string          `json:"name"`
	Kind       int             `json:"kind"`
	Start      string          `json:"startTimeUnixNano"`
	End        string          `json:"endTimeUnixNano"`
	Attributes []otlpAttribute `json:"attributes,omitempty"`
	Events     []otlpEvent     `json:"events,omitempty"`
	Dropped    int64           `json:"droppedEventsCount,omitempty"`
	Status     otlpStatus      `json:"status"`
}

type otlpEvent struct {
	Time       string          `json:"timeUnixNano"`
	Name       string          `json:"name"`
	Attributes []otlpAttribute `json:"attributes,omitempty"`
}

type otlpStatus struct {
	Code    int    `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

type otlpAttribute struct {
	Key   string    `json:"key"`
	Value otlpValue `json:"value"`
}

type otlpValue struct {
	Text   *string `json:"stringValue,omitempty"`
	Number *string `json:"intValue,omitempty"`
	Yes    *bool   `json:"boolValue,omitempty"`
}

// Numbers of the protocol.
const (
	otlpKindInternal = 1
	otlpStatusError  = 2
)

// otlpOf is a trace as a request to a collector.
func otlpOf(job *lives.Trace) otlpRequest {
	var spans []otlpSpan
	for _, s := range job.Spans() {
		spans = append(spans, otlpSpanOf(job.ID, s))
	}
	return otlpRequest{ResourceSpans: []otlpResourceSpans{{
		Resource:   otlpResource{Attributes: otlpAttributes([]lives.Fact{{Key: "service.name", Value: lives.Service}})},
		ScopeSpans: []otlpScopeSpans{{Scope: otlpScope{Name: lives.Scope}, Spans: spans}},
	}}}
}

func otlpSpanOf(trace string, s *lives.Span) otlpSpan {
	span := otlpSpan{
		TraceID:    trace,
		SpanID:     s.ID,
		Parent:     s.Parent,
		Name:       s.Name,
		Kind:       otlpKindInternal,
		Start:      strconv.FormatInt(s.Start, 10),
		End:        strconv.FormatInt(s.End, 10),
		Attributes: otlpAttributes(s.Facts),
		Dropped:    s.Dropped,
	}
	for _, event := range s.Events {
		span.Events = append(span.Events, otlpEvent{
			Time:       strconv.FormatInt(event.At, 10),
			Name:       event.Name,
			Attributes: otlpAttributes(event.Facts),
		})
	}
	if s.Failed != "" {
		span.Status = otlpStatus{Code: otlpStatusError, Message: s.Failed}
	}
	return span
}

func otlpAttributes(facts []lives.Fact) []otlpAttribute {
	var attributes []otlpAttribute
	for _, fact := range facts {
		var value otlpValue
		switch x := fact.Value.(type) {
		case string:
			value.Text = &x
		case int64:
			number := strconv.FormatInt(x, 10)
			value.Number = &number
		case bool:
			value.Yes = &x
		}
		attributes = append(attributes, otlpAttribute{fact.Key, value})
	}
	return attributes
}
