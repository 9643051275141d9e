package cli

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/cli/tool"
	"github.com/musterhpc/muster/spec"
)

func labEvent(seq uint64) *apiv1.EventInfo {
	return &apiv1.EventInfo{Seq: seq, At: at("01:44:41") + 5, Kind: "JobStarted", ActorKind: "user", Actor: "alice", Command: "submit", CauseSeq: 3, Job: "36_7", JobId: 40,
		User: "alice", Account: "ml", Nodes: []string{"node1", "node2"}, Fields: []*apiv1.EventField{
			{Name: "name", Value: &apiv1.EventField_Text{Text: "two words"}},
			{Name: "attempt", Value: &apiv1.EventField_Number{Number: 1}},
			{Name: "begin", Value: &apiv1.EventField_Time{Time: at("02:00:00")}},
			{Name: "time_limit", Value: &apiv1.EventField_Span{Span: hour}},
			{Name: "cpu_time", Value: &apiv1.EventField_Span{Span: 1_500_000_000}},
			{Name: "grace", Value: &apiv1.EventField_Span{Span: -1}},
			{Name: "backfill", Value: &apiv1.EventField_Yes{Yes: true}},
		}}
}

// TestEventsText: a line names everything, JSON is one object a line, and the
// options become the request.
func TestEventsText(t *testing.T) {
	w := newWorld(t)
	w.reply[tool.MethodEvents] = func(proto.Message) (proto.Message, error) {
		return &apiv1.EventsReply{Seq: 9, Events: []*apiv1.EventInfo{labEvent(8), labEvent(9)}}, nil
	}
	text := w.run("muster", "events")
	const line = `8 2026-11-21T01:44:41 JobStarted job=36_7 user=alice account=ml nodes=node[1-2] name="two words" attempt=1 ` +
		`begin=2026-11-21T02:00:00 time_limit=01:00:00 cpu_time=1.500s grace=UNLIMITED backfill=yes by=user:alice command=submit`
	if got, _, _ := strings.Cut(text.out, "\n"); got != line || strings.Count(text.out, "\n") != 2 {
		t.Errorf("text is %s%s", text.out, text.errOut)
	}
	if req := w.last(tool.MethodEvents).(*apiv1.EventsRequest); req.GetSince() != at("00:00:00") || req.GetFollow() {
		t.Errorf("without options: %v", req)
	}
	var parsed struct {
		Seq    uint64
		At     string
		Job    string
		Nodes  []string
		Fields map[string]any
	}
	first, _, _ := strings.Cut(w.run("muster", "events", "--json", "-j", "36", "-k", "JobStarted,Node", "-w", "node[1-2]", "-u", "alice", "-E", "01:44").out, "\n")
	if err := json.Unmarshal([]byte(first), &parsed); err != nil {
		t.Fatalf("%q: %v", first, err)
	}
	if parsed.Seq != 8 || parsed.At != "2026-11-21T01:44:41.000000005Z" || parsed.Job != "36_7" || len(parsed.Nodes) != 2 || parsed.Fields["time_limit"] != 3600.0 ||
		parsed.Fields["begin"] != "2026-11-21T02:00:00Z" || parsed.Fields["grace"] != -1.0 || parsed.Fields["backfill"] != true {
		t.Errorf("JSON is %s", first)
	}
	req := w.last(tool.MethodEvents).(*apiv1.EventsRequest)
	if want := (&apiv1.EventsRequest{Since: 1, Until: at("01:44:00"), Jobs: []string{"36"}, Users: []string{"alice"}, Nodes: []string{"node[1-2]"}, Kinds: []string{"JobStarted", "Node"}}); !proto.Equal(req, want) {
		t.Errorf("asked %v, want %v", req, want)
	}
	for _, line := range []string{"events --from 0", "events --from x", "events --from 3 -S now", "events -f -E now", "events -S 25:99", "events 12"} {
		if r := w.shell("muster " + line); r.code == 0 || r.errOut == "" {
			t.Errorf("%s: exit code %d, %q", line, r.code, r.errOut)
		}
	}
	if r := w.run("muster", "events", "--list-kinds"); !strings.Contains(r.out, "\nJobStarted\n") {
		t.Errorf("the kinds are %q", r.out)
	}
}

// TestEventsFollowContinues: after a restart of the controller the follower asks for
// what comes behind the last event that it has been told, in the same history, and
// an answer that is no restart ends it.
func TestEventsFollowContinues(t *testing.T) {
	w := newWorld(t)
	calls := 0
	w.reply[tool.MethodEvents] = func(proto.Message) (proto.Message, error) {
		calls++
		switch calls {
		case 1:
			return &apiv1.EventsReply{Seq: 9, Epoch: 5, Events: []*apiv1.EventInfo{labEvent(8)}}, nil
		case 2:
			return nil, spec.Refuse(spec.CodeStopping, "")
		case 3:
			return &apiv1.EventsReply{Seq: 12, Epoch: 6, Events: []*apiv1.EventInfo{labEvent(11)}}, nil
		}
		return nil, spec.Refuse(spec.CodeBadRequest, "this ledger was restored")
	}
	r := w.run("muster", "events", "--follow", "-k", "Job")
	if r.code != 1 || strings.Count(r.out, "JobStarted") != 2 || !strings.Contains(r.errOut, "this ledger was restored") || !strings.Contains(r.errOut, "away after event 9") {
		t.Errorf("exit code %d: %s%s", r.code, r.out, r.errOut)
	}
	req := w.last(tool.MethodEvents).(*apiv1.EventsRequest)
	if !req.GetFollow() || req.GetFromSeq() != 13 || req.GetEpoch() != 6 || len(w.pauses) != 3 {
		t.Errorf("the last request is %v after %d pauses", req, len(w.pauses))
	}
	if w.seen[0].req.(*apiv1.EventsRequest).GetFromSeq() != 0 {
		t.Errorf("the first request is %v", w.seen[0].req)
	}
}

// TestTraces: a line is the trace of a job that ended since the given time, in OTLP's
// JSON, from however early its events are.
func TestTraces(t *testing.T) {
	w := newWorld(t)
	w.reply[tool.MethodEvents] = func(proto.Message) (proto.Message, error) {
		state := &apiv1.EventField{Name: "state", Value: &apiv1.EventField_Text{Text: "CANCELLED"}}
		submitted := &apiv1.EventInfo{Seq: 8, At: at("00:10:00"), Kind: "JobSubmitted", ActorKind: "user", Actor: "alice", Job: "36", User: "alice"}
		ended := &apiv1.EventInfo{Seq: 9, At: at("01:10:00"), Kind: "JobEnded", ActorKind: "system", Job: "36", Fields: []*apiv1.EventField{state}}
		return &apiv1.EventsReply{Seq: 9, Events: []*apiv1.EventInfo{submitted, ended}}, nil
	}
	for since, lines := range map[string]int{"00:30": 1, "01:10": 1, "01:20": 0} {
		r := w.run("muster", "traces", "-S", since)
		if got := strings.Count(r.out, "\n"); r.code != 0 || got != lines {
			t.Errorf("since %s there are %d traces, want %d: %s%s", since, got, lines, r.out, r.errOut)
		}
		if req := w.last(tool.MethodEvents).(*apiv1.EventsRequest); req.GetSince() != 1 {
			t.Errorf("the ledger is read from %d", req.GetSince())
		}
	}
	var parsed struct {
		ResourceSpans []struct {
			ScopeSpans []struct {
				Spans []struct{ Name, TraceID, StartTimeUnixNano string }
			}
		}
	}
	if err := json.Unmarshal([]byte(w.run("muster", "traces", "-S", "00:30").out), &parsed); err != nil {
		t.Fatal(err)
	}
	spans := parsed.ResourceSpans[0].ScopeSpans[0].Spans
	if len(spans) != 2 || spans[0].Name != "job" || spans[1].Name != "wait" || spans[0].StartTimeUnixNano != strconv.FormatInt(at("00:10:00"), 10) {
		t.Errorf("spans are %+v", spans)
	}
}

// TestAudit: a line says who acted where; the scheduler's bookkeeping is left out
// unless it is asked for; JSON is the record that the exporter writes.
func TestAudit(t *testing.T) {
	w := newWorld(t)
	w.reply[tool.MethodEvents] = func(proto.Message) (proto.Message, error) {
		held := &apiv1.EventInfo{Seq: 8, At: at("01:44:41"), Kind: "JobHeld", ActorKind: "user", Actor: "alice", Host: "login1", Command: "hold", Job: "36", User: "bob"}
		booked := &apiv1.EventInfo{Seq: 9, At: at("01:44:41"), Kind: "JobEligible", ActorKind: "system", Job: "36"}
		return &apiv1.EventsReply{Seq: 9, Events: []*apiv1.EventInfo{held, booked}}, nil
	}
	const line = "8 2026-11-21T01:44:41 alice@login1 JobHeld job=36 user=bob\n"
	if got := w.run("muster", "audit", "-a", "alice,system", "-j", "36"); got.out != line {
		t.Errorf("text is %s%s", got.out, got.errOut)
	}
	req := w.last(tool.MethodEvents).(*apiv1.EventsRequest)
	if want := (&apiv1.EventsRequest{Since: 1, Jobs: []string{"36"}, Actors: []string{"alice", "system"}, Audit: true}); !proto.Equal(req, want) {
		t.Errorf("asked %v, want %v", req, want)
	}
	if got := w.run("muster", "audit", "--all"); strings.Count(got.out, "\n") != 2 || !strings.Contains(got.out, " system JobEligible ") {
		t.Errorf("all are %s%s", got.out, got.errOut)
	}
	var record struct {
		Event  struct{ Action, Outcome string }
		User   struct{ Name string }
		Source struct{ Address string }
	}
	if got := w.run("muster", "audit", "--json"); json.Unmarshal([]byte(got.out), &record) != nil || record.Event.Action != "job-held" || record.User.Name != "alice" || record.Source.Address != "login1" {
		t.Errorf("JSON is %s%s", got.out, got.errOut)
	}
	if r := w.shell("muster audit 12"); r.code == 0 || r.errOut == "" {
		t.Errorf("an argument is accepted")
	}
}
