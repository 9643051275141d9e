package main

import (
	"context"
	"os/user"
	"strconv"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/scheduler/daemon"
	"github.com/musterhpc/muster/spec"
)

// TestSubmitForOthers: root submits for a user and in a group that he names, and nobody else
// does.
func TestSubmitForOthers(t *testing.T) {
	other, err := user.Lookup("nobody")
	if err != nil {
		t.Skip("NOT RUN: this host has no user nobody")
	}
	group, err := user.LookupGroupId("1") // daemon, of which nobody is no member
	if err != nil {
		t.Skip("NOT RUN: this host has no group 1")
	}
	s, stop := openServer(t, t.TempDir())
	defer stop()
	svc := daemon.NewClusterService(s.ctl)
	root, alice := as(t, "root", 0), as(t, "alice", 4001)
	gid := uint32(1)
	submit := func(ctx context.Context, owner *apiv1.JobOwner) (*apiv1.JobInfo, error) {
		t.Helper()
		rep, err := svc.Submit(ctx, &apiv1.SubmitRequest{
			Spec:   &apiv1.JobSpec{Name: "for-another"},
			Script: &apiv1.Blob{Data: []byte("#!/bin/sh\n")},
			Owner:  owner,
		})
		if err != nil {
			return nil, err
		}
		filter := &apiv1.JobFilter{Jobs: []string{strconv.Itoa(int(rep.GetJobId()))}}
		jobs, err := svc.ListJobs(root, &apiv1.ListJobsRequest{Filter: filter})
		if err != nil || len(jobs.GetJobs()) != 1 {
			t.Fatalf("job %d: %v, %v", rep.GetJobId(), jobs, err)
		}
		return jobs.GetJobs()[0], nil
	}
	job, err := submit(root, &apiv1.JobOwner{User: other.Username, Gid: &gid})
	if err != nil {
		t.Fatal(err)
	}
	if job.GetUser() != other.Username || strconv.Itoa(int(job.GetUserId())) != other.Uid ||
		job.GetGroup() != group.Name {
		t.Errorf("the job is of %s(%d), group %s", job.GetUser(), job.GetUserId(), job.GetGroup())
	}
	job, err = submit(root, &apiv1.JobOwner{Gid: &gid})
	if err != nil || job.GetUser() != "root" || job.GetGroup() != group.Name {
		t.Errorf("in another group: %v, %v", job, err)
	}
	if _, err := submit(root, &apiv1.JobOwner{User: "nobody-at-all"}); spec.CodeOf(err) != spec.CodeInvalidUser {
		t.Errorf("a user whom nobody knows: %v", err)
	}
	for name, owner := range map[string]*apiv1.JobOwner{
		"root": {User: "root"}, "himself": {User: "alice"}, "a group": {Gid: &gid},
	} {
		if _, err := submit(alice, owner); spec.CodeOf(err) != spec.CodeAccessDenied {
			t.Errorf("alice submits for %s: %v", name, err)
		}
	}
}
