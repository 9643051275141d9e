// Package confirm keeps a controller that was overtaken from answering: after a pause of the process,
// or of its messages, it would answer from an old state and not know it.
package confirm

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

// Majority tells whether a controller leads; *log.Lead does.
type Majority interface {
	Now() log.Moment
	// Confirm returns nil when a majority has said since that this controller leads.
	Confirm(ctx context.Context, since log.Moment) error
}

// Lead is the lead of a controller.
type Lead struct {
	of Majority // nil: a controller alone, which always leads
}

// Of is the lead of a controller in a group; nil = it is alone.
func Of(lead *log.Lead) Lead {
	if lead == nil {
		return Lead{}
	}
	return By(lead)
}

// By is a lead that somebody else confirms.
func By(majority Majority) Lead { return Lead{of: majority} }

// Confirm returns nil when a majority of the controllers has said since the call that this one
// leads; a controller alone always does.
func (l Lead) Confirm(ctx context.Context) error {
	if l.of == nil || answersStale {
		return nil
	}
	return l.confirmSince(ctx, l.of.Now())
}

func (l Lead) confirmSince(ctx context.Context, since log.Moment) error {
	err := l.of.Confirm(ctx, since)
	switch {
	case errors.Is(err, log.ErrNotLeader):
		return spec.Refuse(spec.CodeNotLeader, "")
	case errors.Is(err, log.ErrClosed):
		return spec.Refuse(spec.CodeStopping, "")
	}
	return err
}

// Unary lets no call be answered by a controller that was overtaken.
func (l Lead) Unary(
	ctx context.Context,
	request any,
	info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler,
) (any, error) {
	if l.of == nil || answersStale {
		return handler(ctx, request)
	}
	since := l.of.Now()
	if !commitsFirst[info.FullMethod] {
		if err := l.confirmSince(ctx, since); err != nil {
			return nil, err
		}
		return handler(ctx, request)
	}
	answer, failed := handler(ctx, request)
	switch spec.CodeOf(failed) {
	case spec.CodeNotLeader, spec.CodeStopping, spec.CodeOutcomeUnknown:
		return nil, failed
	}
	if err := l.confirmSince(ctx, since); err != nil {
		// The call may have been carried out: only a caller who says that it is repeated may
		// repeat it.
		return nil, spec.Refuse(spec.CodeOutcomeUnknown, "the controller was overtaken by another")
	}
	return answer, failed
}

// Stream is Unary for streams: they begin when the lead is confirmed.
func (l Lead) Stream(
	srv any,
	stream grpc.ServerStream,
	_ *grpc.StreamServerInfo,
	handler grpc.StreamHandler,
) error {
	if err := l.Confirm(stream.Context()); err != nil {
		return err
	}
	return handler(srv, stream)
}
