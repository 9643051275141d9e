package grpcx

import (
	"context"
	"log/slog"
	"net"
	"runtime/debug"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/limit"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/spec"
)

// Admit decides for each call who is asking; see channel.Admission.Admit. nil = the channel's
// identity as it is.
type Admit func(ctx context.Context, channel identity.Identity, header func(key string) (string, bool)) (identity.Identity, error)

// guard is what surrounds every gRPC call: it finds out who is asking, recovers from panics,
// and makes errors ready for the wire. The framed server does the same in package serve.
type guard struct {
	admit   Admit
	refused func(ctx context.Context, channel identity.Identity, method string, err error)
	table   rpcstatus.Table
	limits  *limit.Table
	log     *slog.Logger
}

func (g guard) enter(ctx context.Context, method string) (context.Context, error) {
	id := channelPeer(ctx)
	if p, ok := peer.FromContext(ctx); ok {
		ctx = identity.WithAddress(ctx, p.Addr)
	}
	if g.admit == nil {
		return identity.With(ctx, id), nil
	}
	caller, err := g.admit(ctx, id, headerOf(ctx))
	if err != nil {
		if g.refused != nil {
			g.refused(ctx, id, method, err)
		}
		return nil, err
	}
	return identity.With(ctx, caller), nil
}

// refuseEarly refuses a call before its body is read, when the caller has made too many.
// Who may call at all is decided later, by the interceptors.
func (g guard) refuseEarly(ctx context.Context, info *tap.Info) (context.Context, error) {
	id := channelPeer(ctx)
	if g.admit != nil {
		header := func(key string) (string, bool) {
			values := info.Header.Get(key)
			return first(values)
		}
		var err error
		id, err = g.admit(ctx, id, header)
		if err != nil {
			return ctx, nil // the interceptor says it with all that belongs to it
		}
	}
	var from net.Addr
	if p, ok := peer.FromContext(ctx); ok {
		from = p.Addr
	}
	if !g.limits.Call(g.limits.PartyOf(id, from)) {
		return nil, ToStatus(spec.Refuse(spec.CodeBackoff, ""), g.table)
	}
	return ctx, nil
}

// first is the first value of a header.
func first(values []string) (string, bool) {
	if len(values) == 0 {
		return "", false
	}
	return values[0], true
}

func headerOf(ctx context.Context) func(string) (string, bool) {
	md, _ := metadata.FromIncomingContext(ctx)
	return func(key string) (string, bool) { return first(md.Get(key)) }
}

func (g guard) recovered(ctx context.Context, method string, p any) error {
	g.log.Error(
		"handler panicked",
		"method",
		method,
		"peer",
		channelPeer(ctx).String(),
		"panic",
		p,
		"stack",
		string(debug.Stack()),
	)
	return rpcstatus.New(
		rpcstatus.Internal,
		"%s: internal error; the server's log has the details",
		method,
	)
}

func (g guard) interceptUnary(
	ctx context.Context,
	request any,
	info *grpc.UnaryServerInfo,
	handler grpc.UnaryHandler,
) (resp any, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = g.recovered(ctx, info.FullMethod, p)
		}
		err = ToStatus(err, g.table)
	}()
	inner, err := g.enter(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	return handler(inner, request)
}

func (g guard) interceptStream(
	service any,
	ss grpc.ServerStream,
	info *grpc.StreamServerInfo,
	handler grpc.StreamHandler,
) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = g.recovered(ss.Context(), info.FullMethod, p)
		}
		err = ToStatus(err, g.table)
	}()
	ctx, err := g.enter(ss.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	return handler(service, identified{ServerStream: ss, ctx: ctx})
}

// identified is a stream whose context carries the caller's identity.
type identified struct {
	grpc.ServerStream
	ctx context.Context
}

func (s identified) Context() context.Context { return s.ctx }
