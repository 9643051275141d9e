package main

import (
	"context"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/scheduler/daemon"
	"github.com/musterhpc/muster/spec"
)

// TestPrivateData: what a site keeps private shows to its owner, to the
// coordinators of the account and to operators, on every call that reads.
func TestPrivateData(t *testing.T) {
	s, stop := openServer(t, t.TempDir(), "PrivateData=jobs,nodes,partitions,reservations,usage")
	defer stop()
	svc := &daemon.ClusterService{C: s.ctl}
	alice, bob, root := as(t, "alice", 4001), as(t, "bob", 4002), as(t, "root", 0)
	submit := func(ctx context.Context, name string) uint32 {
		t.Helper()
		rep, err := svc.Submit(ctx, &apiv1.SubmitRequest{Spec: &apiv1.JobSpec{Name: name}, Script: &apiv1.Blob{Data: []byte("#!/bin/sh\n")}})
		if err != nil {
			t.Fatal(err)
		}
		return rep.GetJobId()
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
	rep, err := svc.Cancel(bob, &apiv1.CancelRequest{Filter: &apiv1.JobFilter{}})
	if err != nil || len(rep.GetResults()) != 1 || rep.GetResults()[0].GetJobId() == mine {
		t.Errorf("cancelling everything names %v, %v", rep, err)
	}
}
