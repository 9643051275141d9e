package main

import (
	"context"
	"errors"

	"google.golang.org/grpc"

	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/spec"
)

// commitsFirst are the calls that are carried out before the lead is confirmed: most append to the
// ledger, and the majority that takes the batch confirms the lead with it. What they
// answer still waits for the confirmation, so that a refusal comes from a leader, too.
var commitsFirst = map[string]bool{
	service.Cluster_Submit_FullMethodName: true,
	service.Shell_Sbatch_FullMethodName:   true,
}

// confirmLead returns nil when a majority of the controllers has said since the call that this one
// leads; a controller alone always does.
func (s *server) confirmLead(ctx context.Context) error {
	if s.lead == nil || answersStale {
		return nil
	}
	return s.confirmSince(ctx, s.lead.Now())
}

func (s *server) confirmSince(ctx context.Context, since log.Moment) error {
	err := s.lead.Confirm(ctx, since)
	switch {
	case errors.Is(err, log.ErrNotLeader):
		return spec.Refuse(spec.CodeNotLeader, "")
	case errors.Is(err, log.ErrClosed):
		return spec.Refuse(spec.CodeStopping, "")
	}
	return err
}

// confirmUnary lets no call be answered by a controller that was overtaken and does not know it:
// after a pause of the process, or of its messages, it would answer from an old state.
func (s *server) confirmUnary(
	ctx context.Context,
	req any,
	info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler,
) (any, error) {
	if s.lead == nil || answersStale {
		return handler(ctx, req)
	}
	since := s.lead.Now()
	if !commitsFirst[info.FullMethod] {
		if err := s.confirmSince(ctx, since); err != nil {
			return nil, err
		}
		return handler(ctx, req)
	}
	answer, failed := handler(ctx, req)
	switch spec.CodeOf(failed) {
	case spec.CodeNotLeader, spec.CodeStopping, spec.CodeOutcomeUnknown:
		return nil, failed
	}
	if err := s.confirmSince(ctx, since); err != nil {
		// The call may have been carried out: only a caller who says that it is repeated may
		// repeat it.
		return nil, spec.Refuse(spec.CodeOutcomeUnknown, "the controller was overtaken by another")
	}
	return answer, failed
}

// confirmStream is confirmUnary for streams: they begin when the lead is confirmed.
func (s *server) confirmStream(
	srv any,
	stream grpc.ServerStream,
	_ *grpc.StreamServerInfo,
	handler grpc.StreamHandler,
) error {
	if err := s.confirmLead(stream.Context()); err != nil {
		return err
	}
	return handler(srv, stream)
}
