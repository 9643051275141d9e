package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/scheduler/daemon"
	"github.com/musterhpc/muster/spec"
)

// asked is what the commands read, for one caller at one moment.
func asked(t *testing.T, svc *daemon.ClusterService, who context.Context, m *apiv1.Moment) string {
	t.Helper()
	var b strings.Builder
	show := func(rep proto.Message, err error) {
		if err != nil {
			fmt.Fprintln(&b, err)
			return
		}
		fmt.Fprintln(&b, rep.ProtoReflect().Descriptor().Name(), prototext.MarshalOptions{Multiline: true, Indent: " "}.Format(withoutPresent(rep)))
	}
	jobs, err := svc.ListJobs(who, &apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{AllStates: true}, Detail: true, Moment: m})
	show(jobs, err)
	nodes, err := svc.ListNodes(who, &apiv1.ListNodesRequest{Moment: m})
	show(nodes, err)
	parts, err := svc.ListPartitions(who, &apiv1.ListPartitionsRequest{Moment: m})
	show(parts, err)
	prio, err := svc.Priorities(who, &apiv1.PrioritiesRequest{Moment: m})
	show(prio, err)
	resv, err := svc.ListReservations(who, &apiv1.ReservationsRequest{Moment: m})
	show(resv, err)
	why, err := svc.Why(who, &apiv1.WhyRequest{Job: "1", Moment: m})
	show(why, err)
	policy, err := svc.GetPolicy(who, &apiv1.PolicyRequest{Moment: m})
	show(policy, err)
	limits, err := svc.LimitUsage(who, &apiv1.LimitUsageRequest{Moment: m})
	show(limits, err)
	return strings.Join(strings.Fields(b.String()), " ")
}

// withoutPresent takes away what docs/time-travel.md says is not in the ledger: when
// the question was asked, how nodes are, and when the last pass was.
func withoutPresent(rep proto.Message) proto.Message {
	out := proto.Clone(rep)
	var visit func(m protoreflect.Message)
	visit = func(m protoreflect.Message) {
		m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
			switch {
			case f.Name() == "now" || f.Name() == "last_sched_eval" || f.Name() == "load_milli" || f.Name() == "mem_free" || f.Name() == "last_seen":
				m.Clear(f)
			case f.IsList() && f.Message() != nil:
				for i := range v.List().Len() {
					visit(v.List().Get(i).Message())
				}
			case f.Message() != nil && !f.IsMap():
				visit(v.Message())
			}
			return true
		})
	}
	visit(out.ProtoReflect())
	return out
}

// TestMomentIsWhatWasShown: what the commands read at each step of a history is what
// they read later about that moment, for everybody, from an event's number or a time.
func TestMomentIsWhatWasShown(t *testing.T) {
	s, stop := openServer(t, t.TempDir())
	t.Cleanup(stop)
	svc := daemon.NewClusterService(s.ctl)
	alice, root := as(t, "alice", 4001), as(t, "root", 0)
	type shot struct {
		seq  uint64
		at   int64
		text string
	}
	var shots []shot
	shoot := func() {
		t.Helper()
		for { // two answers of one state, or the state moved on between
			before := s.ctl.View().State
			text := asked(t, svc, alice, nil)
			if s.ctl.View().State.Seq == before.Seq {
				shots = append(shots, shot{before.Seq, int64(before.At), text})
				return
			}
		}
	}
	steps := []func() error{
		func() error {
			_, err := svc.Submit(alice, &apiv1.SubmitRequest{Spec: &apiv1.JobSpec{Name: "one", Hold: true, TimeLimit: int64(spec.Hour)}, Script: &apiv1.Blob{Data: []byte("#!/bin/sh\n")}})
			return err
		},
		func() error {
			_, err := svc.Submit(alice, &apiv1.SubmitRequest{Spec: &apiv1.JobSpec{Name: "many", Array: []*apiv1.TaskRange{{First: 1, Last: 9, Step: 2}}, Hold: true}, Script: &apiv1.Blob{Data: []byte("#!/bin/sh\n")}})
			return err
		},
		func() error {
			_, err := svc.UpdateNode(root, &apiv1.UpdateNodeRequest{Nodes: "node2", State: "drain", Reason: "fan"})
			return err
		},
		func() error {
			_, err := svc.ControlJobs(alice, &apiv1.ControlJobsRequest{Verb: apiv1.ControlJobsRequest_UPDATE, Jobs: []string{"1"}, Changes: map[string]string{"comment": "x", "timelimit": "30"}})
			return err
		},
		func() error { // a snapshot, from which later moments are made
			pos, st := s.disk.Machine.AppliedAt()
			r, w := io.Pipe()
			go func() { w.CloseWithError(st.Encode(w)) }()
			return s.disk.Archive.Disk.PutSnapshot(pos, st.Seq, r)
		},
		func() error {
			_, err := svc.Cancel(alice, &apiv1.CancelRequest{Filter: &apiv1.JobFilter{Jobs: []string{"2_5"}}})
			return err
		},
		func() error {
			_, err := svc.Cancel(alice, &apiv1.CancelRequest{Filter: &apiv1.JobFilter{Jobs: []string{"1"}}})
			return err
		},
		func() error {
			_, err := svc.UpdateNode(root, &apiv1.UpdateNodeRequest{Nodes: "node2", State: "resume"})
			return err
		},
	}
	for i, step := range steps {
		if err := step(); err != nil {
			t.Fatalf("step %d: %v", i, err)
		}
		shoot()
	}
	differ := 0
	for i := range shots {
		// Backwards first, so that the state that is kept is of no use; then forwards.
		for _, at := range []int{len(shots) - 1 - i, i} {
			was := shots[at]
			for _, m := range []*apiv1.Moment{{Seq: was.seq}, {At: was.at}} {
				if got := asked(t, svc, alice, m); got != was.text {
					t.Fatalf("at %v\n%s\nwas shown\n%s", m, got, was.text)
				}
			}
		}
		if i > 0 && shots[i].text != shots[i-1].text {
			differ++
		}
	}
	if differ < 6 {
		t.Errorf("only %d of %d moments differ from the one before", differ, len(shots))
	}
}

// TestMomentByTheRulesOfNow: who may not see jobs and nodes now does not see those of
// the past either, and a job of the past shows to whoever owned it.
func TestMomentByTheRulesOfNow(t *testing.T) {
	s, svc := eventsWorld(t, "PrivateData=jobs,nodes,partitions,reservations,usage")
	m := &apiv1.Moment{Seq: s.ctl.View().State.Seq}
	for _, c := range []struct {
		user        string
		uid         uint32
		jobs, nodes int
	}{{"alice", 4001, 1, 0}, {"bob", 4002, 2, 0}, {"carol", 4003, 0, 0}, {"root", 0, 3, 2}} {
		who := as(t, c.user, c.uid)
		jobs, err := svc.ListJobs(who, &apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{AllStates: true}, Moment: m})
		if err != nil {
			t.Fatal(err)
		}
		nodes, err := svc.ListNodes(who, &apiv1.ListNodesRequest{Moment: m})
		if err != nil {
			t.Fatal(err)
		}
		if len(jobs.GetJobs()) != c.jobs || len(nodes.GetNodes()) != c.nodes {
			t.Errorf("%s sees %d jobs and %d nodes of the past", c.user, len(jobs.GetJobs()), len(nodes.GetNodes()))
		}
		if _, err := svc.Why(who, &apiv1.WhyRequest{Job: "1", Moment: m}); (err == nil) != (c.user == "alice" || c.user == "root") {
			t.Errorf("why to %s: %v", c.user, err)
		}
	}
	if _, err := svc.ListJobs(identity.With(t.Context(), identity.Nameless()), &apiv1.ListJobsRequest{Moment: m}); err == nil {
		t.Error("a caller without a name can read the past")
	}
}

// TestUnknownMoments are refused with what is known.
func TestUnknownMoments(t *testing.T) {
	s, svc := eventsWorld(t)
	st := s.ctl.View().State
	for _, m := range []*apiv1.Moment{{At: 1}, {At: int64(st.At) + int64(spec.Hour)}, {Seq: st.Seq + 1000}, {}} {
		_, err := svc.ListNodes(as(t, "alice", 4001), &apiv1.ListNodesRequest{Moment: m})
		if spec.CodeOf(err) != spec.CodeInvalidTime || !strings.Contains(fmt.Sprintf("%+v", err), "the past is known from") {
			t.Errorf("%v: %v", m, err)
		}
	}
	first, err := svc.ListNodes(as(t, "alice", 4001), &apiv1.ListNodesRequest{Moment: &apiv1.Moment{Seq: 1}})
	if err != nil || len(first.GetNodes()) != 0 {
		t.Errorf("after the first event there are %d nodes: %v", len(first.GetNodes()), err)
	}
	diag, err := svc.Diag(as(t, "alice", 4001), &apiv1.DiagRequest{})
	if err != nil {
		t.Fatal(err)
	}
	from := diag.GetPastFrom()
	if _, err := svc.ListNodes(as(t, "alice", 4001), &apiv1.ListNodesRequest{Moment: &apiv1.Moment{At: from}}); err != nil {
		t.Errorf("the first moment that is known is refused: %v", err)
	}
	if _, err := svc.ListNodes(as(t, "alice", 4001), &apiv1.ListNodesRequest{Moment: &apiv1.Moment{At: from - 1}}); spec.CodeOf(err) != spec.CodeInvalidTime {
		t.Errorf("a moment before the first one: %v", err)
	}
}
