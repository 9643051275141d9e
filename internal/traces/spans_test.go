package traces

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

// TestTraceOfALife: the spans of a job have the times of its events, and a trace is complete
// when the last node has been given back.
func TestTraceOfALife(t *testing.T) {
	told := NewBuilder(0, 0)
	for i, e := range aLife() {
		told.Add(e)
		if got := len(told.ready); (got == 1) != (i == len(aLife())-1) {
			t.Fatalf("after event %d there are %d traces", i+1, got)
		}
	}
	job := told.Take()[0]
	got := map[string][2]int64{}
	for _, s := range append([]*Span{job.Root}, job.Rest...) {
		got[s.Name+" from "+strconv.FormatInt(s.Start, 10)] = [2]int64{s.Start, s.End}
		if s != job.Root && (s.Start < job.Root.Start || s.End > job.Root.End) {
			t.Errorf("%s from %d to %d is outside of the job's %d to %d", s.Name, s.Start, s.End, job.Root.Start, job.Root.End)
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
	if job.Root.Failed != "FAILED" || job.Rest[1].Failed != "NODE_FAIL" {
		t.Errorf("the job failed by %q and its first run by %q", job.Root.Failed, job.Rest[1].Failed)
	}
}

// TestToldAgainFromAPosition: who begins behind an event tells of what it made whole no
// more, and of what came later as before.
func TestToldAgainFromAPosition(t *testing.T) {
	last := aLife()[len(aLife())-1].GetSeq()
	for _, after := range []uint64{0, last - 1, last} {
		told := NewBuilder(0, after)
		for _, e := range aLife() {
			told.Add(e)
		}
		if got := len(told.Take()); (got == 1) != (after < last) {
			t.Errorf("behind event %d of %d: %d traces", after, last, got)
		}
	}
}

// TestForgotten: the trace of a job whose node never gave it back is complete when the controller
// forgets the job, and nothing of forgotten jobs and arrays stays in memory.
func TestForgotten(t *testing.T) {
	told := NewBuilder(0, 0)
	for _, e := range aLife()[:12] {
		told.Add(e)
	}
	told.Add(&apiv1.EventInfo{Seq: 90, At: 9000, Kind: "JobPurged", Job: "7", JobId: 7})
	if got := told.Take(); len(got) != 1 || got[0].Root.Failed != "FAILED" {
		t.Errorf("of a job whose nodes are lost: %v", got)
	}
	array := &apiv1.EventField{Name: "array", Value: &apiv1.EventField_Text{Text: "0-1"}}
	for i, e := range []*apiv1.EventInfo{
		{Kind: "JobSubmitted", Job: "36", JobId: 36, Fields: []*apiv1.EventField{array}},
		{Kind: "ArrayTaskSplit", Job: "36_0", JobId: 37},
		{Kind: "ArrayTaskSplit", Job: "36_1", JobId: 36},
		{Kind: "JobEnded", Job: "36_0", JobId: 37},
		{Kind: "JobEnded", Job: "36_1", JobId: 36},
		{Kind: "JobPurged", Job: "36_0", JobId: 37},
		{Kind: "JobPurged", Job: "36_1", JobId: 36},
	} {
		e.Seq = uint64(100 + i)
		e.At = int64(10_000 + i)
		told.Add(e)
	}
	traces := told.Take()
	if len(traces) != 2 || traces[0].Job != "36_0" || traces[1].Job != "36_1" || traces[0].ID == traces[1].ID {
		t.Errorf("of an array's tasks: %v", traces)
	}
	if len(told.jobs) != 0 {
		t.Errorf("remembered: %v", told.jobs)
	}
}

// TestTraceIsBounded: a job that runs steps for ever, and one whose reason changes for
// ever, have a trace that a receiver takes, with the number of what is missing.
func TestTraceIsBounded(t *testing.T) {
	told := NewBuilder(0, 0)
	life := aLife()
	for _, e := range life[:3] {
		told.Add(e)
	}
	job := told.jobs["7"]
	step := life[4]
	for range maxSpans {
		told.Add(step)
	}
	for range maxEvents + 5 {
		told.Add(life[1])
	}
	if spans := job.Spans(); len(spans) != maxSpans || spans[0].Facts[len(spans[0].Facts)-1] != (Fact{"muster.dropped_spans", job.Dropped}) || job.Dropped != 3 {
		t.Errorf("%d spans, %d dropped: %v", len(spans), job.Dropped, spans[0].Facts)
	}
	if run := job.attempts[1].run; len(run.Events) != maxEvents || run.Dropped != 5 {
		t.Errorf("%d events, %d dropped", len(run.Events), run.Dropped)
	}
}
