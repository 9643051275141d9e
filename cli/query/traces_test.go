package query

import (
	"reflect"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	lives "github.com/musterhpc/muster/internal/traces"
)

// aLife is a job that waits, runs twice and fails, with a step in each run.
func aLife() []*apiv1.EventInfo {
	number := func(name string, n int64) *apiv1.EventField {
		return &apiv1.EventField{Name: name, Value: &apiv1.EventField_Number{Number: n}}
	}
	text := func(name, s string) *apiv1.EventField {
		return &apiv1.EventField{Name: name, Value: &apiv1.EventField_Text{Text: s}}
	}
	var out []*apiv1.EventInfo
	add := func(kind string, nodes []string, fields ...*apiv1.EventField) {
		n := len(out) + 1
		out = append(out, &apiv1.EventInfo{
			Seq: uint64(n), At: int64(n) * 100, Kind: kind, Job: "7", JobId: 7, User: "alice",
			ActorKind: "system", Nodes: nodes, Fields: fields,
		})
	}
	both := []string{"n1", "n2"}
	add("JobSubmitted", nil, text("name", "train"))
	add("ReasonsChanged", nil, text("reason", "Resources"))
	add("JobStarted", both, number("attempt", 1))
	add("JobPrepared", nil, number("attempt", 1))
	add("StepStarted", both, number("attempt", 1), text("step", "0"))
	add("JobRequeued", nil, number("attempt", 1), text("state", "NODE_FAIL"))
	add("JobNodeDone", []string{"n1"}, number("attempt", 1))
	add("JobNodeDone", []string{"n2"}, number("attempt", 1))
	add("JobStarted", both, number("attempt", 2))
	add("StepStarted", both, number("attempt", 2), text("step", "0"))
	add("StepEnded", nil, number("attempt", 2), text("step", "0"), text("state", "FAILED"))
	add("JobEnded", nil, number("attempt", 2), text("state", "FAILED"))
	add("JobNodeDone", []string{"n1"}, number("attempt", 2))
	add("JobNodeDone", []string{"n2"}, number("attempt", 2))
	return out
}

// TestTraceIsAFunction: the same events give the same trace, and every id is one's own.
func TestTraceIsAFunction(t *testing.T) {
	read := func() otlpRequest {
		traces := lives.NewBuilder(0, 0)
		for _, e := range aLife() {
			traces.Add(e)
		}
		return otlpOf(traces.Take()[0])
	}
	once := read()
	if !reflect.DeepEqual(once, read()) {
		t.Error("the second reading gives another trace")
	}
	ids := map[string]bool{}
	for _, s := range once.ResourceSpans[0].ScopeSpans[0].Spans {
		if ids[s.SpanID] || len(s.SpanID) != 16 || len(s.TraceID) != 32 {
			t.Errorf("span %s has id %q of trace %q", s.Name, s.SpanID, s.TraceID)
		}
		if s.Parent != "" && !ids[s.Parent] {
			t.Errorf("span %s stands before its parent", s.Name)
		}
		ids[s.SpanID] = true
	}
}
