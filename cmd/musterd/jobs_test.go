package main

import (
	"context"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/scheduler/daemon"
)

// jobsStream is the receiving side of a list of jobs.
type jobsStream struct {
	grpc.ServerStream
	ctx context.Context
	got []*apiv1.ListJobsReply
}

func (s *jobsStream) Context() context.Context { return s.ctx }
func (s *jobsStream) Send(r *apiv1.ListJobsReply) error {
	s.got = append(s.got, r)
	return nil
}

// TestStreamJobs: a list that no message could hold comes in several, each job
// once, all of one moment.
func TestStreamJobs(t *testing.T) {
	s, stop := openServer(t, t.TempDir())
	defer stop()
	svc := daemon.NewClusterService(s.ctl)
	alice := as(t, "alice", 4001)
	const jobs = 60
	for range jobs {
		req := &apiv1.SubmitRequest{Spec: &apiv1.JobSpec{Comment: strings.Repeat("x", 60<<10)}, Script: &apiv1.Blob{Data: []byte("#!/bin/sh\n")}}
		if _, err := svc.Submit(alice, req); err != nil {
			t.Fatal(err)
		}
	}
	stream := &jobsStream{ctx: alice}
	if err := svc.StreamJobs(&apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{}, Detail: true}, stream); err != nil {
		t.Fatal(err)
	}
	seen := map[uint32]bool{}
	for _, part := range stream.got {
		if n := proto.Size(part); n > 2<<20 {
			t.Errorf("a message of %d bytes", n)
		}
		if part.GetSeq() != stream.got[0].GetSeq() || part.GetNow() != stream.got[0].GetNow() {
			t.Error("the messages are of several moments")
		}
		for _, j := range part.GetJobs() {
			if seen[j.GetJobId()] {
				t.Errorf("job %d comes twice", j.GetJobId())
			}
			seen[j.GetJobId()] = true
		}
	}
	if len(seen) != jobs || len(stream.got) < 3 {
		t.Errorf("%d jobs in %d messages", len(seen), len(stream.got))
	}
	none := &jobsStream{ctx: alice}
	if err := svc.StreamJobs(&apiv1.ListJobsRequest{Filter: &apiv1.JobFilter{Jobs: []string{"4711"}}}, none); err != nil || len(none.got) != 1 || len(none.got[0].GetUnknown()) != 1 {
		t.Errorf("of a job that is not known: %v, %v", none.got, err)
	}
}
