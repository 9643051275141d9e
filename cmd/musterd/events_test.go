package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/scheduler/daemon"
	"github.com/musterhpc/muster/spec"
)

// eventsReader is the receiving side of Events.
type eventsReader struct {
	grpc.ServerStream
	ctx context.Context
	got chan *apiv1.EventsReply
}

func (r *eventsReader) Context() context.Context { return r.ctx }
func (r *eventsReader) Send(m *apiv1.EventsReply) error {
	select {
	case r.got <- m:
		return nil
	case <-r.ctx.Done():
		return r.ctx.Err()
	}
}

// readEvents asks once and gives what was answered as lines, and how far it went.
func readEvents(t *testing.T, svc *daemon.ClusterService, who context.Context, req *apiv1.EventsRequest) (lines []string, seq uint64) {
	t.Helper()
	r := &eventsReader{ctx: who, got: make(chan *apiv1.EventsReply, 1000)}
	if err := svc.Events(req, r); err != nil {
		t.Fatal(err)
	}
	close(r.got)
	for m := range r.got {
		for _, e := range m.GetEvents() {
			lines = append(lines, eventLine(e))
		}
		seq = m.GetSeq()
	}
	return lines, seq
}

func eventLine(e *apiv1.EventInfo) string {
	line := fmt.Sprintf("%d %s %s %s %s", e.GetSeq(), e.GetKind(), e.GetJob(), e.GetUser(), strings.Join(e.GetNodes(), ","))
	for _, f := range e.GetFields() {
		line += fmt.Sprintf(" %v", f)
	}
	return line
}

// kindsOf are the kinds of lines, each once.
func kindsOf(lines []string) []string {
	var kinds []string
	for _, line := range lines {
		kinds = append(kinds, strings.Fields(line)[1])
	}
	slices.Sort(kinds)
	return slices.Compact(kinds)
}

// eventsWorld is a controller in which two users have submitted, changed and
// cancelled something.
func eventsWorld(t *testing.T, conf ...string) (*server, *daemon.ClusterService) {
	s, stop := openServer(t, t.TempDir(), conf...)
	t.Cleanup(stop)
	svc := daemon.NewClusterService(s.ctl)
	alice, bob, root := as(t, "alice", 4001), as(t, "bob", 4002), as(t, "root", 0)
	submit := func(ctx context.Context, js *apiv1.JobSpec) string {
		t.Helper()
		rep, err := svc.Submit(ctx, &apiv1.SubmitRequest{Spec: js, Script: &apiv1.Blob{Data: []byte("#!/bin/sh\n")}})
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(rep.GetJobId())
	}
	submit(alice, &apiv1.JobSpec{Name: "alices-plan", Hold: true})
	submit(bob, &apiv1.JobSpec{Name: "bobs-plan", Array: []*apiv1.TaskRange{{First: 1, Last: 3, Step: 1}}, Hold: true})
	for ctx, job := range map[context.Context]string{alice: "1", bob: "2_2"} {
		if _, err := svc.ControlJobs(ctx, &apiv1.ControlJobsRequest{Verb: apiv1.ControlJobsRequest_UPDATE, Jobs: []string{job}, Changes: map[string]string{"comment": "secret of " + job}}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := svc.UpdateNode(root, &apiv1.UpdateNodeRequest{Nodes: "node2", State: "drain", Reason: "fan"}); err != nil {
		t.Fatal(err)
	}
	if _, err := svc.CreateToken(root, &apiv1.CreateTokenRequest{Node: "node1"}); err != nil {
		t.Fatal(err)
	}
	if _, err := svc.Cancel(bob, &apiv1.CancelRequest{Filter: &apiv1.JobFilter{Jobs: []string{"2_2"}}}); err != nil {
		t.Fatal(err)
	}
	return s, svc
}

// TestEventsShowWhatTheCommandsWould: events of what a site keeps private are
// absent for whoever could not see it by squeue, sinfo and sacctmgr, and not a
// trace of them is left in others.
func TestEventsShowWhatTheCommandsWould(t *testing.T) {
	_, svc := eventsWorld(t, "PrivateData=jobs,nodes,partitions,reservations,usage")
	all := &apiv1.EventsRequest{Since: 1}
	root, last := readEvents(t, svc, as(t, "root", 0), all)
	for _, kind := range []string{"JobSubmitted", "JobUpdated", "NodeStateSet", "TokenIssued", "QOSPut", "ArrayTaskSplit", "JobEnded", "EpochBegan"} {
		if !slices.Contains(kindsOf(root), kind) {
			t.Errorf("root is not told %s: %q", kind, kindsOf(root))
		}
	}
	bob, seq := readEvents(t, svc, as(t, "bob", 4002), all)
	if seq != last {
		t.Errorf("bob was told up to %d, root up to %d", seq, last)
	}
	for _, line := range bob {
		if strings.Contains(line, "alice") || strings.Contains(line, "secret of 1") || strings.Contains(line, "fan") {
			t.Errorf("bob is told %s", line)
		}
	}
	if got, want := kindsOf(bob), []string{"ArrayTaskSplit", "ClusterCreated", "ConfigAdopted", "EpochBegan", "JobEnded", "JobSubmitted", "JobUpdated"}; !slices.Equal(got, want) {
		t.Errorf("bob is told %q, want %q", got, want)
	}
	nobody, _ := readEvents(t, svc, as(t, "carol", 4003), all)
	if got := kindsOf(nobody); slices.ContainsFunc(got, func(k string) bool { return strings.HasPrefix(k, "Job") || strings.HasPrefix(k, "Array") }) {
		t.Errorf("carol is told %q", got)
	}
}

// TestEventsByFilter: jobs, arrays, tasks, users, nodes, kinds and times.
func TestEventsByFilter(t *testing.T) {
	_, svc := eventsWorld(t)
	who := as(t, "carol", 4003) // nothing is private
	for _, c := range []struct {
		req  *apiv1.EventsRequest
		want string
	}{
		{&apiv1.EventsRequest{Since: 1, Jobs: []string{"1"}}, "JobSubmitted 1 JobUpdated 1"},
		{&apiv1.EventsRequest{Since: 1, Jobs: []string{"2"}}, "JobSubmitted 2 ArrayTaskSplit 2_2 JobUpdated 2_2 JobEnded 2_2"},
		{&apiv1.EventsRequest{Since: 1, Jobs: []string{"2_2"}}, "ArrayTaskSplit 2_2 JobUpdated 2_2 JobEnded 2_2"},
		{&apiv1.EventsRequest{Since: 1, Jobs: []string{"2_1"}}, ""},
		{&apiv1.EventsRequest{Since: 1, Users: []string{"alice"}}, "JobSubmitted 1 JobUpdated 1"},
		{&apiv1.EventsRequest{Since: 1, Users: []string{"4001"}, Kinds: []string{"jobsub"}}, "JobSubmitted 1"},
		{&apiv1.EventsRequest{Since: 1, Nodes: []string{"node[2-9]"}}, "NodeStateSet node2"},
		{&apiv1.EventsRequest{Since: 1, Jobs: []string{"1"}, Until: 2}, ""},
		{&apiv1.EventsRequest{}, ""},
	} {
		lines, _ := readEvents(t, svc, who, c.req)
		var got []string
		for _, line := range lines {
			// The order of the two updates is chance.
			words := strings.Fields(line)
			if words[1] == "NodeStateSet" {
				words[2] = words[2][:5]
			}
			got = append(got, words[1]+" "+words[2])
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%v: %q, want %q", c.req, got, c.want)
		}
	}
	for _, req := range []*apiv1.EventsRequest{{Jobs: []string{"x"}}, {Kinds: []string{"Weather"}}, {Nodes: []string{"n["}}, {FromSeq: 1 << 40}, {Follow: true, Until: 7}} {
		if err := svc.Events(req, &eventsReader{ctx: who, got: make(chan *apiv1.EventsReply, 9)}); err == nil {
			t.Errorf("%v is accepted", req)
		}
	}
}

// TestEventsFromAnyPlace: whoever begins in the middle, from a snapshot, is told the
// same as whoever began before, by the same rules.
func TestEventsFromAnyPlace(t *testing.T) {
	s, svc := eventsWorld(t, "PrivateData=jobs")
	for _, who := range []context.Context{as(t, "root", 0), as(t, "bob", 4002)} {
		whole, last := readEvents(t, svc, who, &apiv1.EventsRequest{Since: 1})
		for from := uint64(1); from <= last+1; from++ {
			part, seq := readEvents(t, svc, who, &apiv1.EventsRequest{FromSeq: from})
			want := slices.DeleteFunc(slices.Clone(whole), func(line string) bool {
				var at uint64
				fmt.Sscan(line, &at)
				return at < from
			})
			if !slices.Equal(part, want) || seq < last {
				t.Fatalf("from %d up to %d: %q, want %q", from, seq, part, want)
			}
		}
		// The second reader begins behind a snapshot wherever he can.
		pos, st := s.disk.Machine.AppliedAt()
		r, w := io.Pipe()
		go func() { w.CloseWithError(st.Encode(w)) }()
		if err := s.disk.Archive.Disk.PutSnapshot(pos, st.Seq, r); err != nil {
			t.Fatal(err)
		}
		if _, err := svc.Submit(as(t, "bob", 4002), &apiv1.SubmitRequest{Spec: &apiv1.JobSpec{Name: "later", Hold: true}, Script: &apiv1.Blob{Data: []byte("#!/bin/sh\n")}}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEventsFollow: a follower is told at once where he is, then what happens; one
// who comes again continues, and one whose position is of another history is
// refused. Nobody reads more often at once than is allowed.
func TestEventsFollow(t *testing.T) {
	s, svc := eventsWorld(t)
	ctx, cancel := context.WithCancel(as(t, "alice", 4001))
	r := &eventsReader{ctx: ctx, got: make(chan *apiv1.EventsReply)}
	done := make(chan error, 1)
	go func() { done <- svc.Events(&apiv1.EventsRequest{Follow: true}, r) }()
	first := <-r.got
	if len(first.GetEvents()) != 0 || first.GetSeq() == 0 || first.GetEpoch() != s.ctl.View().State.CurrentEpoch() {
		t.Errorf("the first answer is %v", first)
	}
	if _, err := svc.Submit(as(t, "bob", 4002), &apiv1.SubmitRequest{Spec: &apiv1.JobSpec{Name: "live", Hold: true}, Script: &apiv1.Blob{Data: []byte("#!/bin/sh\n")}}); err != nil {
		t.Fatal(err)
	}
	for told := false; !told; {
		for _, e := range (<-r.got).GetEvents() {
			told = told || e.GetKind() == "JobSubmitted" && e.GetUser() == "bob"
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("a follower who leaves: %v", err)
	}
	again, _ := readEvents(t, svc, as(t, "alice", 4001), &apiv1.EventsRequest{FromSeq: first.GetSeq() + 1, Epoch: first.GetEpoch(), Kinds: []string{"JobSubmitted"}})
	if len(again) != 1 {
		t.Errorf("from the position on: %q", again)
	}
	other := &apiv1.EventsRequest{FromSeq: first.GetSeq() + 1, Epoch: first.GetEpoch() + 1}
	if err := svc.Events(other, &eventsReader{ctx: as(t, "alice", 4001)}); err == nil || spec.CodeOf(err) != spec.CodeBadRequest {
		t.Errorf("a position of another history: %v", err)
	}
	ctx, cancel = context.WithCancel(as(t, "alice", 4001))
	defer cancel()
	r = &eventsReader{ctx: ctx, got: make(chan *apiv1.EventsReply)}
	for range 8 {
		go func() { _ = svc.Events(&apiv1.EventsRequest{Follow: true}, r) }()
	}
	for range 8 {
		<-r.got
	}
	if err := svc.Events(&apiv1.EventsRequest{Follow: true}, r); spec.CodeOf(err) != spec.CodeBadRequest {
		t.Errorf("a ninth reader of one user: %v", err)
	}
}

// TestSlowReaderDelaysNobody: while a follower takes nothing, others submit; when he
// goes on he is told all of it, in order and once.
func TestSlowReaderDelaysNobody(t *testing.T) {
	_, svc := eventsWorld(t)
	ctx, cancel := context.WithCancel(as(t, "alice", 4001))
	defer cancel()
	r := &eventsReader{ctx: ctx, got: make(chan *apiv1.EventsReply)}
	done := make(chan error, 1)
	go func() { done <- svc.Events(&apiv1.EventsRequest{Follow: true, Kinds: []string{"JobSubmitted"}}, r) }()
	<-r.got
	var want []string
	for i := range 60 {
		name := fmt.Sprint("n", i)
		rep, err := svc.Submit(as(t, "bob", 4002), &apiv1.SubmitRequest{Spec: &apiv1.JobSpec{Name: name, Hold: true}, Script: &apiv1.Blob{Data: []byte("#!/bin/sh\n")}})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, fmt.Sprint(rep.GetJobId()))
	}
	var got []string
	for len(got) < len(want) {
		for _, e := range (<-r.got).GetEvents() {
			got = append(got, e.GetJob())
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("told %q, want %q", got, want)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
