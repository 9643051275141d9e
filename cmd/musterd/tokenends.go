package main

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"

	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/status"
	"github.com/musterhpc/muster/spec"
)

// isTokenEnded tells whether the ledger has a token revoked.
func (s *server) isTokenEnded(paper identity.Paper) bool {
	st := s.known()
	if st == nil {
		return false
	}
	issued := spec.Instant(0)
	if !paper.Issued.IsZero() {
		issued = spec.Instant(paper.Issued.UnixNano())
	}
	return st.Access.IsEnded(paper.User, paper.ID, issued)
}

// errTokenEnded is the refusal of a token that was revoked.
func errTokenEnded() error {
	return status.New(status.Unauthenticated, "the token has been revoked")
}

// tokenLook is the time between two looks at whether the token still holds by which a
// stream was opened.
const tokenLook = time.Second

// errTokenOver ends a stream.
var errTokenOver = errors.New("the token of this call has expired or was revoked")

// endWithToken ends a stream with the token by which it was opened: a call that goes on
// for days would outlive it.
func (s *server) endWithToken(
	srv any,
	stream grpc.ServerStream,
	_ *grpc.StreamServerInfo,
	next grpc.StreamHandler,
) error {
	id := identity.From(stream.Context())
	if !id.Token {
		return next(srv, stream)
	}
	ctx, end := context.WithCancelCause(stream.Context())
	defer end(nil)
	go func() {
		look := time.NewTicker(tokenLook)
		defer look.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-look.C:
				if now.After(id.Paper.Expires) || s.isTokenEnded(id.Paper) {
					end(errTokenOver)
					return
				}
			}
		}
	}()
	err := next(srv, boundStream{stream, ctx})
	if errors.Is(context.Cause(ctx), errTokenOver) {
		return status.New(status.Unauthenticated, "%v", errTokenOver)
	}
	return err
}

// boundStream is a stream with a context of its own, after which no message comes through.
type boundStream struct {
	grpc.ServerStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (b boundStream) Context() context.Context { return b.ctx }

// RecvMsg implements grpc.ServerStream.
func (b boundStream) RecvMsg(m any) error {
	if err := b.ServerStream.RecvMsg(m); err != nil {
		return err
	}
	return context.Cause(b.ctx)
}

// SendMsg implements grpc.ServerStream.
func (b boundStream) SendMsg(m any) error {
	if err := context.Cause(b.ctx); err != nil {
		return err
	}
	return b.ServerStream.SendMsg(m)
}
