package query

import (
	"reflect"
	"strconv"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
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

// TestTraceOfALife: the spans of a job have the times of its events, and a trace is told
// of when the last node has been given back.
func TestTraceOfALife(t *testing.T) {
	traces := newJobTraces(0)
	for i, e := range aLife() {
		traces.add(e)
		if got := len(traces.ready); (got == 1) != (i == len(aLife())-1) {
			t.Fatalf("after event %d %d traces are told of", i+1, got)
		}
	}
	job := traces.take()[0]
	got := map[string][2]int64{}
	for _, s := range append([]*span{job.root}, job.spans...) {
		got[s.name+" from "+strconv.FormatInt(s.start, 10)] = [2]int64{s.start, s.end}
		if s != job.root && (s.start < job.root.start || s.end > job.root.end) {
			t.Errorf("%s from %d to %d is outside of the job's %d to %d", s.name, s.start, s.end, job.root.start, job.root.end)
		}
	}
	want := map[string][2]int64{
		"job from 100":      {100, 1400},
		"wait from 100":     {100, 300},
		"run from 300":      {300, 600},
		"prolog from 300":   {300, 400},
		"step from 500":     {500, 600},
		"release from 600":  {600, 800},
		"wait from 600":     {600, 900},
		"run from 900":      {900, 1200},
		"step from 1000":    {1000, 1100},
		"release from 1200": {1200, 1400},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("spans are %v, want %v", got, want)
	}
	if job.root.failed != "FAILED" || job.spans[1].failed != "NODE_FAIL" {
		t.Errorf("the job failed by %q and its first run by %q", job.root.failed, job.spans[1].failed)
	}
}

// TestTraceIsAFunction: the same events give the same trace, and every id is one's own.
func TestTraceIsAFunction(t *testing.T) {
	read := func() otlpRequest {
		traces := newJobTraces(0)
		for _, e := range aLife() {
			traces.add(e)
		}
		return traces.take()[0].otlp()
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
