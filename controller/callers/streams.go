package callers

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"

	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/spec"
)

// isTokenEnded tells whether the ledger has a token revoked.
func (c Callers) isTokenEnded(paper identity.Paper) bool {
	if c.State == nil {
		return false
	}
	known := c.State()
	if known == nil {
		return false
	}
	issued := spec.Instant(0)
	if !paper.Issued.IsZero() {
		issued = spec.Instant(paper.Issued.UnixNano())
	}
	return known.Access.IsEnded(paper.User, paper.ID, issued)
}

// errTokenEnded is the refusal of a token that was revoked.
func errTokenEnded() error {
	return rpcstatus.New(rpcstatus.Unauthenticated, "the token has been revoked")
}

// tokenLook is the time between two looks at whether the token still holds by which a
// stream was opened.
const tokenLook = time.Second

// errTokenOver ends a stream.
var errTokenOver = errors.New("the token of this call has expired or was revoked")

// EndWithToken is a stream interceptor. It ends a stream with the token by which it was opened: a call that goes on
// for days would outlive it.
func EndWithToken(
	now func() Callers,
	service any,
	stream grpc.ServerStream,
	next grpc.StreamHandler,
) error {
	id := identity.From(stream.Context())
	if !id.Token {
		return next(service, stream)
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
			case at := <-look.C:
				if at.After(id.Paper.Expires) || now().isTokenEnded(id.Paper) {
					end(errTokenOver)
					return
				}
			}
		}
	}()
	err := next(service, boundStream{stream, ctx})
	if errors.Is(context.Cause(ctx), errTokenOver) {
		return rpcstatus.New(rpcstatus.Unauthenticated, "%v", errTokenOver)
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
