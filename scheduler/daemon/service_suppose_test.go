package daemon

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// The callers of these tests.
var (
	rootCaller  = Caller{UID: 0, User: "root", Admin: true}
	aliceCaller = Caller{UID: 1000, GID: 1000, User: "alice"}
	bobCaller   = Caller{UID: 1001, GID: 1001, User: "bob"}
)

// wholeNode is a job that takes a node for an hour.
func wholeNode(name string, hours int64) *apiv1.JobSpec {
	return &apiv1.JobSpec{
		Name:      name,
		TimeLimit: hours * int64(spec.Hour),
		PerNode:   []*apiv1.Count{{Name: "gpu", N: 8}},
	}
}

// busyWorld has two nodes, full of alice's and bob's jobs, and one job of each that
// waits: 1 and 2 run for one hour and two, 3 is alice's and 4 bob's.
func busyWorld(t *testing.T, private ...string) *world {
	conf := testConfig()
	conf.Private, conf.MaxNodes = private, 10
	w := startDeps(t, conf, func(*Deps) {})
	w.register("n1", "n2")
	for i, who := range []Caller{aliceCaller, bobCaller, aliceCaller, bobCaller} {
		w.as(who)
		w.submit(wholeNode(fmt.Sprint("job", i+1), int64(1+i%2)))
	}
	w.until("two jobs run and two are planned", func() bool {
		v := w.c.View()
		return w.count(spec.Running) == 2 && v.Plan != nil && len(v.Plan.Jobs) == 2
	})
	return w
}

func cancelled(jobs ...string) *apiv1.SupposedChange {
	return &apiv1.SupposedChange{Change: &apiv1.SupposedChange_Cancel{
		Cancel: &apiv1.CancelRequest{Filter: &apiv1.JobFilter{Jobs: jobs}},
	}}
}

func drained(nodes string) *apiv1.SupposedChange {
	return &apiv1.SupposedChange{Change: &apiv1.SupposedChange_UpdateNode{
		UpdateNode: &apiv1.UpdateNodeRequest{Nodes: nodes, State: "drain", Reason: "test"},
	}}
}

func added(count int64, like string) *apiv1.SupposedChange {
	return &apiv1.SupposedChange{Change: &apiv1.SupposedChange_AddNodes{
		AddNodes: &apiv1.AddedNodes{Count: count, Like: like},
	}}
}

func controlled(verb apiv1.ControlJobsRequest_Verb, job string) *apiv1.SupposedChange {
	return &apiv1.SupposedChange{Change: &apiv1.SupposedChange_ControlJobs{
		ControlJobs: &apiv1.ControlJobsRequest{Verb: verb, Jobs: []string{job}},
	}}
}

func submitted(js *apiv1.JobSpec) *apiv1.SupposedChange {
	return &apiv1.SupposedChange{Change: &apiv1.SupposedChange_Submit{
		Submit: &apiv1.SubmitRequest{Spec: js, Script: &apiv1.Blob{Data: []byte("#!/bin/sh\n")}},
	}}
}

// everyChange has each kind of change once.
func everyChange() []*apiv1.SupposedChange {
	set := []*apiv1.ConfigEntry{{Key: "maxtime", Value: "90"}}
	return []*apiv1.SupposedChange{
		drained("n1"),
		added(2, "n1"),
		{Change: &apiv1.SupposedChange_ChangeNodes{
			ChangeNodes: &apiv1.NodeChange{Create: "NodeName=d1 CPUs=8 RealMemory=16000"},
		}},
		cancelled("1"),
		controlled(apiv1.ControlJobsRequest_HOLD, "3"),
		controlled(apiv1.ControlJobsRequest_REQUEUE, "2"),
		submitted(wholeNode("more", 1)),
		{Change: &apiv1.SupposedChange_ChangePartition{
			ChangePartition: &apiv1.PartitionChange{Name: "gpu", Set: set},
		}},
		{Change: &apiv1.SupposedChange_ChangePolicy{ChangePolicy: &apiv1.PolicyChangeRequest{
			Verb: apiv1.PolicyChangeRequest_ADD, Entity: "qos", Names: []string{"fast"},
		}}},
		{Change: &apiv1.SupposedChange_ChangeReservation{ChangeReservation: &apiv1.ReservationChange{
			Verb: apiv1.ReservationChange_CREATE,
			Name: "service",
			Set: []*apiv1.ConfigEntry{
				{Key: "nodes", Value: "n2"}, {Key: "users", Value: "root"},
				{Key: "starttime", Value: "4000000000000000000"}, {Key: "duration", Value: "60"},
			},
		}}},
	}
}

// Every kind of change is made on the copy and leaves the cluster as it was: no event,
// no content, no order.
func TestSupposeChangesNothing(t *testing.T) {
	w := busyWorld(t)
	w.as(rootCaller)
	before := w.c.View().State
	for _, change := range everyChange() {
		name := fmt.Sprintf("%T", change.GetChange())
		t.Run(name, func(t *testing.T) {
			_, err := w.svc.Suppose(t.Context(), &apiv1.SupposeRequest{
				Changes: []*apiv1.SupposedChange{change},
			})
			if err != nil {
				t.Fatal(err)
			}
		})
	}
	// A pass may still have written why jobs wait: look at what the changes are about.
	now := w.c.View().State
	if was, is := whatChangesAreAbout(before), whatChangesAreAbout(now); was != is {
		t.Errorf("suppositions have changed\n%s\nto\n%s", was, is)
	}
	descriptor := (&apiv1.SupposedChange{}).ProtoReflect().Descriptor().Oneofs().ByName("change")
	tried := map[string]bool{}
	for _, change := range everyChange() {
		which := change.ProtoReflect().WhichOneof(descriptor)
		tried[string(which.Name())] = true
	}
	if want := descriptor.Fields().Len(); len(tried) != want {
		t.Errorf("%d kinds of changes are tried, there are %d: name the new one in everyChange", len(tried), want)
	}
}

// whatChangesAreAbout is the part of a state that everyChange would change.
func whatChangesAreAbout(st *state.State) string {
	var out strings.Builder
	st.Nodes.Range(func(_ uint64, node *state.Node) bool {
		fmt.Fprintln(&out, node.Spec.Name, node.Admin, node.Reason)
		return true
	})
	for uid := spec.JobUID(1); uid < st.NextUID; uid++ {
		job := st.Job(uid)
		fmt.Fprintln(&out, uid, job.State, job.Attempt, job.Hold, job.Ending != nil)
	}
	fmt.Fprintln(&out, st.Parts.Find("gpu").Spec.MaxTime, st.Policy.FindQOS("fast") != nil)
	fmt.Fprintln(&out, st.NextID, st.NextUID, len(st.Reservations), len(st.Config.Nodes))
	return out.String()
}

// supposed asks, and returns the outlooks of the jobs by name.
func (w *world) supposed(changes ...*apiv1.SupposedChange) (map[string]*apiv1.SupposedJob, *apiv1.SupposeReply) {
	w.t.Helper()
	rep, err := w.svc.Suppose(w.t.Context(), &apiv1.SupposeRequest{Changes: changes})
	if err != nil {
		w.t.Fatal(err)
	}
	jobs := map[string]*apiv1.SupposedJob{}
	for _, job := range rep.GetJobs() {
		jobs[job.GetName()] = job
	}
	return jobs, rep
}

// Jobs start when a plan by hand says that they do.
func TestSupposeTellsWhoseStartMoves(t *testing.T) {
	w := busyWorld(t)
	w.as(rootCaller)
	jobs, rep := w.supposed(cancelled("1"))
	if got := jobs["job1"]; got.GetBefore().GetStanding() != apiv1.Outlook_RUNNING ||
		got.GetAfter().GetStanding() != apiv1.Outlook_ABSENT {
		t.Errorf("the cancelled job: %v", got)
	}
	if got := jobs["job3"]; got.GetBefore().GetStanding() != apiv1.Outlook_PLANNED ||
		got.GetAfter().GetStanding() != apiv1.Outlook_STARTING || got.GetAfter().GetNodes() != "n1" ||
		got.GetAfter().GetStart() != rep.GetNow() {
		t.Errorf("the job that waits for it: %v", got)
	}
	if rep.GetStartedBefore() != 0 || rep.GetStartedAfter() != 1 {
		t.Errorf("%d and %d jobs start", rep.GetStartedBefore(), rep.GetStartedAfter())
	}

	jobs, rep = w.supposed(added(2, "n1"))
	if jobs["job3"].GetAfter().GetNodes() != "new1" || jobs["job4"].GetAfter().GetNodes() != "new2" {
		t.Errorf("with two more nodes: %v", jobs)
	}
	if !slices.Equal(rep.GetNotes(), []string{"the new nodes are new[1-2]"}) {
		t.Errorf("notes: %q", rep.GetNotes())
	}

	jobs, _ = w.supposed(drained("n[1-2]"), submitted(wholeNode("more", 1)))
	if got := jobs["job3"].GetAfter(); got.GetStanding() != apiv1.Outlook_WAITING ||
		got.GetReason().GetCode() != string(spec.ReasonReqNodeNotAvail) {
		t.Errorf("with both nodes drained: %v", got)
	}
	if got := jobs["more"]; got.GetBefore().GetStanding() != apiv1.Outlook_ABSENT ||
		got.GetAfter().GetStanding() != apiv1.Outlook_WAITING {
		t.Errorf("the new job: %v", got)
	}
}

// A change is refused to whom the method itself refuses it, and nobody learns of a
// job that he may not see.
func TestSupposeKeepsTheRulesOfItsChanges(t *testing.T) {
	w := busyWorld(t, privateJobs, privateNodes)
	w.as(aliceCaller)
	for _, tc := range []struct {
		what    string
		changes []*apiv1.SupposedChange
		want    spec.Code
	}{
		{"drain a node", []*apiv1.SupposedChange{drained("n1")}, spec.CodeAccessDenied},
		{"add nodes", []*apiv1.SupposedChange{added(1, "n1")}, spec.CodeAccessDenied},
		{"cancel a job of bob", []*apiv1.SupposedChange{cancelled("2")}, spec.CodeInvalidJobID},
		{"first what he may", []*apiv1.SupposedChange{cancelled("1"), drained("n1")}, spec.CodeAccessDenied},
		{"nothing", nil, spec.CodeBadRequest},
		{"an empty change", []*apiv1.SupposedChange{{}}, spec.CodeBadRequest},
		{"a message", []*apiv1.SupposedChange{controlled(apiv1.ControlJobsRequest_NOTIFY, "1")}, spec.CodeBadRequest},
		{"too many", slices.Repeat([]*apiv1.SupposedChange{cancelled("1")}, 101), spec.CodeBadRequest},
	} {
		_, err := w.svc.Suppose(t.Context(), &apiv1.SupposeRequest{Changes: tc.changes})
		if spec.CodeOf(err) != tc.want {
			t.Errorf("%s: %v, want %v", tc.what, err, tc.want)
		}
	}

	jobs, rep := w.supposed(cancelled("1"))
	for name, job := range jobs {
		if job.GetUser() != "alice" || job.GetAfter().GetNodes() != "" {
			t.Errorf("alice sees %s: %v", name, job)
		}
	}
	if len(jobs) != 2 || rep.GetSame() != 0 || rep.GetStartedAfter() != 1 {
		t.Errorf("%d jobs, %v", len(jobs), rep)
	}
	w.as(Caller{})
	if _, err := w.svc.Suppose(t.Context(), &apiv1.SupposeRequest{Changes: everyChange()}); spec.CodeOf(err) != spec.CodeAccessDenied {
		t.Errorf("nobody: %v", err)
	}
}

// Questions and changes at the same time are in nobody's way.
func TestSupposeBesideChanges(t *testing.T) {
	w := busyWorld(t)
	w.as(rootCaller)
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for range 10 {
				change := proto.CloneOf(everyChange()[i])
				_, err := w.svc.Suppose(t.Context(), &apiv1.SupposeRequest{
					Changes: []*apiv1.SupposedChange{change},
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 20 {
		w.submit(wholeNode("further", 1))
		w.must(scheduler.Tick{})
	}
	all.Wait()
	if n := w.count(spec.Pending); n != 22 {
		t.Errorf("%d jobs wait, want 22", n)
	}
}

// refusingScript is a job_submit.lua that refuses every job.
type refusingScript struct{}

// Submit implements JobScripts.
func (refusingScript) Submit(context.Context, *spec.Config, *ScriptedJob) (ScriptVerdict, error) {
	return ScriptVerdict{Refused: true, User: "not on Tuesdays"}, nil
}

// Modify implements JobScripts.
func (refusingScript) Modify(context.Context, *spec.Config, *ScriptedJob, *ScriptedChange) (ScriptVerdict, error) {
	return ScriptVerdict{}, nil
}

// The site's script judges a supposed job too, but a refusal of what nobody has asked for
// is not in the audit trail.
func TestSupposeLeavesNoTrail(t *testing.T) {
	conf := testConfig()
	conf.JobSubmit = &spec.SiteScript{Path: "job_submit.lua", Text: "-"}
	recorded := 0
	w := startDeps(t, conf, func(d *Deps) {
		d.JobScripts = refusingScript{}
		d.Refused = func(context.Context, string, error) { recorded++ }
	})
	w.register("n1", "n2")
	w.as(aliceCaller)
	change := submitted(wholeNode("refused", 1))
	_, err := w.svc.Suppose(t.Context(), &apiv1.SupposeRequest{Changes: []*apiv1.SupposedChange{change}})
	if err == nil || recorded != 0 {
		t.Errorf("supposed: %v, %d records", err, recorded)
	}
	if _, err := w.svc.Submit(t.Context(), change.GetSubmit()); err == nil || recorded != 1 {
		t.Errorf("submitted: %v, %d records", err, recorded)
	}
}
