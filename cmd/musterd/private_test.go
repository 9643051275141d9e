package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/scheduler/daemon"
	"github.com/musterhpc/muster/spec"
)

// TestPrivateData: what a site keeps private shows to its owner, to the
// coordinators of the account and to operators, on every call that reads.
func TestPrivateData(t *testing.T) {
	s, stop := openServer(t, t.TempDir(), "PrivateData=jobs,nodes,partitions,reservations,usage")
	defer stop()
	svc := daemon.NewClusterService(s.ctl)
	alice, bob, root := as(t, "alice", 4001), as(t, "bob", 4002), as(t, "root", 0)
	submit := func(ctx context.Context, name string) uint32 {
		t.Helper()
		rep, err := svc.Submit(ctx, &apiv1.SubmitRequest{Spec: &apiv1.JobSpec{Name: name}, Script: &apiv1.Blob{Data: []byte("#!/bin/sh\n")}})
		if err != nil {
			t.Fatal(err)
		}
		return rep.GetJobId()
	}
	for _, user := range []string{"alice", "bob", "root"} {
		s.calls.Observe("Cluster/ListJobs", user, time.Millisecond, false)
	}
	mine := submit(alice, "mine")
	submit(bob, "his")
	for _, c := range []struct {
		who                            string
		ctx                            context.Context
		jobs, nodes, parts, privateFor int
		sees                           bool
	}{{"alice", alice, 1, 0, 0, 5, true}, {"bob", bob, 1, 0, 0, 5, false}, {"root", root, 2, 2, 1, 0, true}} {
		jobs, err := svc.ListJobs(c.ctx, &apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{}})
		if err != nil {
			t.Fatal(err)
		}
		nodes, err := svc.ListNodes(c.ctx, &apiv1.ListNodesRequest{})
		if err != nil {
			t.Fatal(err)
		}
		parts, err := svc.ListPartitions(c.ctx, &apiv1.ListPartitionsRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if len(jobs.GetJobs()) != c.jobs || len(nodes.GetNodes()) != c.nodes || len(parts.GetPartitions()) != c.parts {
			t.Errorf("%s sees %d jobs, %d nodes, %d partitions", c.who, len(jobs.GetJobs()), len(nodes.GetNodes()), len(parts.GetPartitions()))
		}
		diag, err := svc.Diag(c.ctx, &apiv1.DiagRequest{})
		if err != nil {
			t.Fatal(err)
		}
		// Who may not see nodes must not learn which there are; others learn of a mistake.
		unknown := &apiv1.JobFilter{Nodes: []string{"nosuch"}}
		_, err = svc.ListJobs(c.ctx, &apiv1.ListJobsRequest{Filter: unknown})
		if refused := spec.CodeOf(err) == spec.CodeInvalidNodeName; refused != (c.privateFor == 0) {
			t.Errorf("%s asks for the jobs of an unknown node: %v", c.who, err)
		}
		callers := []string{}
		for _, caller := range diag.GetCallers() {
			callers = append(callers, caller.GetName())
		}
		wantCallers := []string{c.who}
		if c.privateFor == 0 {
			wantCallers = []string{"alice", "bob", "root"}
		}
		if !slices.Equal(callers, wantCallers) {
			t.Errorf("sdiag tells %s of the calls of %q, want %q", c.who, callers, wantCallers)
		}
		if got := s.ctl.Private(c.ctx); len(got) != c.privateFor {
			t.Errorf("private for %s: %q", c.who, got)
		}
		_, why := svc.Why(c.ctx, &apiv1.WhyRequest{Job: "1"})
		if want := spec.CodeInvalidJobID; (why == nil) != c.sees || why != nil && spec.CodeOf(why) != want {
			t.Errorf("why to %s: %v", c.who, why)
		}
	}
	for name, do := range map[string]func() (*apiv1.JobResults, error){
		"cancel": func() (*apiv1.JobResults, error) {
			return svc.Cancel(bob, &apiv1.CancelRequest{Filter: &apiv1.JobFilter{Jobs: []string{"1"}}})
		},
		"hold": func() (*apiv1.JobResults, error) {
			return svc.ControlJobs(bob, &apiv1.ControlJobsRequest{Verb: apiv1.ControlJobsRequest_HOLD, Jobs: []string{"1"}})
		},
	} {
		rep, err := do()
		if err != nil || len(rep.GetResults()) != 1 || spec.Code(rep.GetResults()[0].GetError().GetCode()) != spec.CodeInvalidJobID {
			t.Errorf("%s of a hidden job: %v, %v", name, rep, err)
		}
	}
	const script = "#!/bin/sh\n# only alice has sent this\n"
	known := sha256.Sum256([]byte(script))
	submitBlob := func(who context.Context, blob *apiv1.Blob, partitions ...string) error {
		_, err := svc.Submit(who, &apiv1.SubmitRequest{Spec: &apiv1.JobSpec{Partitions: partitions}, Script: blob})
		return err
	}
	byHash, whole := &apiv1.Blob{Sha256: known[:]}, &apiv1.Blob{Data: []byte(script)}
	if err := submitBlob(alice, whole); err != nil {
		t.Fatal(err)
	}
	if err := submitBlob(alice, byHash); err != nil {
		t.Errorf("alice's own script is not found by its hash: %v", err)
	}
	if submitBlob(bob, byHash) == nil {
		t.Error("bob learns by its hash that somebody has sent a script")
	}
	if submitBlob(bob, whole, "nosuch") == nil {
		t.Error("a job in no partition is accepted")
	}
	if submitBlob(bob, byHash) == nil {
		t.Error("bob learns by a job that is refused that somebody has sent a script")
	}
	submitTo := func(test bool, partitions []string) func(job string) string {
		return func(job string) string {
			_, err := svc.Submit(bob, &apiv1.SubmitRequest{Spec: &apiv1.JobSpec{Dependency: "afterok:" + job, Partitions: partitions},
				Script: &apiv1.Blob{Data: []byte("#!/bin/sh\n")}, TestOnly: test})
			return strings.ReplaceAll(fmt.Sprint(err), "job "+job+" ", `job "`+job+`" `)
		}
	}
	for name, ask := range map[string]func(job string) string{
		"list": func(job string) string {
			rep, err := svc.ListJobs(bob, &apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{Jobs: []string{job}, AllStates: true}})
			return fmt.Sprintf("%q %v", rep.GetUnknown(), err)
		},
		"depend on":                 submitTo(true, nil),
		"depend on in no partition": submitTo(false, []string{"nosuch"}),
		"update to depend on": func(job string) string {
			rep, err := svc.ControlJobs(bob, &apiv1.ControlJobsRequest{Verb: apiv1.ControlJobsRequest_UPDATE, Jobs: []string{"2"}, Changes: map[string]string{"dependency": "afterok:" + job}})
			return strings.ReplaceAll(fmt.Sprint(rep, err), "job "+job+" ", `job "`+job+`" `)
		},
		"measure": func(job string) string {
			rep, err := svc.StepUsage(bob, &apiv1.StepUsageRequest{Jobs: []string{job}})
			return fmt.Sprint(rep.GetJobs(), err)
		},
	} {
		number := strconv.Itoa(int(mine))
		hidden := strings.ReplaceAll(ask(number), `"`+number+`"`, "N")
		absent := strings.ReplaceAll(ask("4711"), `"4711"`, "N")
		if hidden != absent {
			t.Errorf("to %s a hidden job says %q, an absent one %q", name, hidden, absent)
		}
	}
	rep, err := svc.Cancel(bob, &apiv1.CancelRequest{Filter: &apiv1.JobFilter{}})
	if err != nil || len(rep.GetResults()) != 1 || rep.GetResults()[0].GetJobId() == mine {
		t.Errorf("cancelling everything names %v, %v", rep, err)
	}
}
