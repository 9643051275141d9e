package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	tracesrpc "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/parts"
	"github.com/musterhpc/muster/internal/traces"
	"github.com/musterhpc/muster/internal/traces/sending"
)

// spanReceiver is a collector on loopback.
type spanReceiver struct {
	tracesrpc.UnimplementedTraceServiceServer
	mu    sync.Mutex
	away  bool
	spans []string // trace, span, name and times
}

// Export takes spans.
func (r *spanReceiver) Export(_ context.Context, m *tracesrpc.ExportTraceServiceRequest) (*tracesrpc.ExportTraceServiceResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away {
		return nil, status.Error(codes.Unavailable, "away")
	}
	for _, rs := range m.GetResourceSpans() {
		for _, ss := range rs.GetScopeSpans() {
			for _, s := range ss.GetSpans() {
				r.spans = append(r.spans, fmt.Sprintf("%x %x %s %d %d", s.GetTraceId(), s.GetSpanId(), s.GetName(), s.GetStartTimeUnixNano(), s.GetEndTimeUnixNano()))
			}
		}
	}
	return &tracesrpc.ExportTraceServiceResponse{}, nil
}

func (r *spanReceiver) got() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.spans)
}

// TestTracesAreSent: a collector gets the traces of the jobs that end after the first
// start, whole though they were submitted before, over restarts of the controller and
// while it is away; and they are those that muster traces tells of.
func TestTracesAreSent(t *testing.T) {
	s, svc := eventsWorld(t)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	receiver := &spanReceiver{}
	rpc := grpc.NewServer()
	tracesrpc.RegisterTraceServiceServer(rpc, receiver)
	go func() { _ = rpc.Serve(l) }() // Stop ends it
	t.Cleanup(rpc.Stop)
	s.cfg.OTLP.Endpoint = "grpc://" + l.Addr().String()

	alice := as(t, "alice", 4001)
	submit := func() uint32 {
		rep, err := svc.Submit(alice, &apiv1.SubmitRequest{
			Spec:   &apiv1.JobSpec{Name: "late", Hold: true},
			Script: &apiv1.Blob{Data: []byte("#!/bin/sh\n")},
		})
		if err != nil {
			t.Fatal(err)
		}
		return rep.GetJobId()
	}
	cancel := func(id uint32) {
		if _, err := svc.Cancel(alice, &apiv1.CancelRequest{Filter: &apiv1.JobFilter{Jobs: []string{fmt.Sprint(id)}}}); err != nil {
			t.Fatal(err)
		}
	}
	run := func() (sender *sending.Sender, stop func()) {
		sender, err := sending.Open(s.trailOptions(), version)
		if err != nil {
			t.Fatal(err)
		}
		g := parts.New(context.Background())
		g.Spawn("traces", sender.Run)
		return sender, g.Stop
	}
	caughtUp := func(sender *sending.Sender) {
		for sender.Status().Seq < s.ctl.View().State.Seq && t.Context().Err() == nil {
			time.Sleep(time.Millisecond)
		}
	}
	first, second := submit(), submit()
	begin := s.ctl.View().State.Seq
	sender, stop := run()
	cancel(first)
	caughtUp(sender)
	if n := len(receiver.got()); n != 2 {
		t.Errorf("after one job's end there are %d spans: %q", n, receiver.got())
	}
	receiver.mu.Lock()
	receiver.away = true
	receiver.mu.Unlock()
	cancel(second)
	for sender.Status().Failures == 0 {
		time.Sleep(time.Millisecond)
	}
	stop()
	receiver.mu.Lock()
	receiver.away = false
	receiver.mu.Unlock()
	cancel(submit())
	sender, stop = run()
	caughtUp(sender)
	stop()

	// The same events, told at once.
	told := traces.NewBuilder(0, begin)
	reader := &eventsReader{ctx: as(t, "root", 0), got: make(chan *apiv1.EventsReply, 1000)}
	if err := svc.Events(&apiv1.EventsRequest{Since: 1}, reader); err != nil {
		t.Fatal(err)
	}
	close(reader.got)
	for m := range reader.got {
		for _, e := range m.GetEvents() {
			told.Add(e)
		}
	}
	var want []string
	for _, trace := range told.Take() {
		for _, span := range trace.Spans() {
			want = append(want, fmt.Sprintf("%s %s %s %d %d", trace.ID, span.ID, span.Name, span.Start, span.End))
		}
	}
	if got := receiver.got(); len(want) != 6 || !slices.Equal(got, want) {
		t.Errorf("the collector has\n%q\nthe ledger tells\n%q", got, want)
	}
}
