// The registry dispatches framed calls to gRPC service descriptions, so that one implementation of a
// service, registered once, is reached through gRPC and through the framed protocol, with the same
// interceptors.

package grpcx

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/musterhpc/muster/internal/transport/framed/serve"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
)

// Registry holds the services of a framed server. It implements grpc.ServiceRegistrar, so
// generated RegisterXServer functions fill it. Register everything before the first call.
type Registry struct {
	unary  grpc.UnaryServerInterceptor
	stream grpc.StreamServerInterceptor

	mu      sync.RWMutex
	methods map[string]method
}

var _ grpc.ServiceRegistrar = (*Registry)(nil)

// method is one method of a registered service; exactly one of unary and stream is set.
type method struct {
	impl   any
	unary  grpc.MethodHandler
	stream *grpc.StreamDesc
}

// NewRegistry makes an empty registry. The interceptors run around every call, the first outermost.
func NewRegistry(
	unary []grpc.UnaryServerInterceptor,
	stream []grpc.StreamServerInterceptor,
) *Registry {
	return &Registry{
		unary:   ChainUnary(unary),
		stream:  ChainStream(stream),
		methods: make(map[string]method),
	}
}

// RegisterService implements grpc.ServiceRegistrar. Like grpc.Server it panics when impl does
// not implement the service or the service is registered already: both are mistakes of the
// program.
func (r *Registry) RegisterService(desc *grpc.ServiceDesc, impl any) {
	if desc.HandlerType != nil && impl != nil {
		want := reflect.TypeOf(desc.HandlerType).Elem()
		if have := reflect.TypeOf(impl); !have.Implements(want) {
			panic(fmt.Sprintf("BUG: framed server: %v does not implement %v", have, want))
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	add := func(name string, m method) {
		full := "/" + desc.ServiceName + "/" + name
		if _, twice := r.methods[full]; twice {
			panic("BUG: framed server: " + full + " is registered twice")
		}
		r.methods[full] = m
	}
	for _, m := range desc.Methods {
		add(m.MethodName, method{impl: impl, unary: m.Handler})
	}
	for i := range desc.Streams {
		add(desc.Streams[i].StreamName, method{impl: impl, stream: &desc.Streams[i]})
	}
}

// Handle is the serve.Handler of the registry. An error that is a gRPC status keeps its code.
func (r *Registry) Handle(ctx context.Context, call *serve.Call) error {
	return FromStatus(r.dispatchCall(ctx, call))
}

// dispatchCall hands a call to the handler of its method, which has its own form for each kind
// of method.
func (r *Registry) dispatchCall(ctx context.Context, call *serve.Call) error {
	r.mu.RLock()
	m, ok := r.methods[call.Method]
	r.mu.RUnlock()
	switch {
	case !ok:
		return rpcstatus.New(
			rpcstatus.Unimplemented,
			"this server does not know the method %q: is it of an older release?",
			call.Method,
		)
	case m.unary != nil:
		return r.handleUnary(ctx, call, m)
	case m.stream.ClientStreams:
		return rpcstatus.New(
			rpcstatus.Unimplemented,
			"%s takes a stream of requests: call it through gRPC",
			call.Method,
		)
	default:
		return r.handleStream(ctx, call, m)
	}
}

func (r *Registry) handleUnary(ctx context.Context, call *serve.Call, m method) error {
	ctx = grpc.NewContextWithServerTransportStream(ctx, transportStream(call.Method))
	answer, err := m.unary(m.impl, ctx, func(into any) error { return decode(call, into) }, r.unary)
	if err != nil {
		return err
	}
	out, ok := answer.(proto.Message)
	if !ok {
		return rpcstatus.New(rpcstatus.Internal, "%s: %T is not a protobuf message", call.Method, answer)
	}
	return call.ReplyWith(
		func(b []byte) ([]byte, error) { return proto.MarshalOptions{}.MarshalAppend(b, out) },
	)
}

func (r *Registry) handleStream(ctx context.Context, call *serve.Call, m method) error {
	stream := &serverStream{
		ctx:  grpc.NewContextWithServerTransportStream(ctx, transportStream(call.Method)),
		call: call,
	}
	if r.stream == nil {
		return m.stream.Handler(m.impl, stream)
	}
	info := &grpc.StreamServerInfo{FullMethod: call.Method, IsServerStream: m.stream.ServerStreams}
	return r.stream(m.impl, stream, info, m.stream.Handler)
}

func decode(call *serve.Call, into any) error {
	m, ok := into.(proto.Message)
	if !ok {
		return rpcstatus.New(rpcstatus.Internal, "%s: %T is not a protobuf message", call.Method, into)
	}
	if exceedsValues(call.Payload, m, MaxValues) {
		return rpcstatus.New(
			rpcstatus.ResourceExhausted,
			"%s: the request has more than %d values: send several",
			call.Method,
			MaxValues,
		)
	}
	if err := proto.Unmarshal(call.Payload, m); err != nil {
		return rpcstatus.New(
			rpcstatus.InvalidArgument,
			"%s: the request is not a valid %s: %v",
			call.Method,
			m.ProtoReflect().Descriptor().FullName(),
			err,
		)
	}
	call.Recycle() // protobuf copies what it keeps
	return nil
}

func encode(call *serve.Call, answer any) ([]byte, error) {
	m, ok := answer.(proto.Message)
	if !ok {
		return nil, rpcstatus.New(
			rpcstatus.Internal,
			"%s: %T is not a protobuf message",
			call.Method,
			answer,
		)
	}
	payload, err := proto.Marshal(m)
	if err != nil {
		return nil, rpcstatus.New(
			rpcstatus.Internal,
			"%s: the answer cannot be encoded: %v",
			call.Method,
			err,
		)
	}
	return payload, nil
}

// serverStream is the grpc.ServerStream of a framed call that answers with several messages.
type serverStream struct {
	ctx  context.Context
	call *serve.Call
	read bool // the one request has been handed out
}

var _ grpc.ServerStream = (*serverStream)(nil)

func (s *serverStream) Context() context.Context { return s.ctx }

func (s *serverStream) RecvMsg(into any) error {
	if s.read {
		return io.EOF
	}
	s.read = true
	return decode(s.call, into)
}

func (s *serverStream) SendMsg(m any) error {
	payload, err := encode(s.call, m)
	if err != nil {
		return err
	}
	return s.call.Send(payload)
}

// Headers and trailers of answers have no place in the protocol. None of our services uses
// them; the error tells whoever starts.
func (s *serverStream) SetHeader(md metadata.MD) error {
	return transportStream(s.call.Method).SetHeader(md)
}
func (s *serverStream) SendHeader(md metadata.MD) error {
	return transportStream(s.call.Method).SendHeader(md)
}
func (s *serverStream) SetTrailer(metadata.MD) {}

// transportStream gives handlers grpc.Method; its value is the method's name.
type transportStream string

var _ grpc.ServerTransportStream = transportStream("")

func (t transportStream) Method() string { return string(t) }

func (t transportStream) SetHeader(md metadata.MD) error {
	if len(md) == 0 {
		return nil
	}
	return rpcstatus.New(
		rpcstatus.Unimplemented,
		"%s: the framed protocol carries no answer headers",
		string(t),
	)
}

func (t transportStream) SendHeader(md metadata.MD) error { return t.SetHeader(md) }
func (t transportStream) SetTrailer(md metadata.MD) error { return t.SetHeader(md) }

// ChainUnary makes one interceptor of several, the first outermost; nil of none.
func ChainUnary(list []grpc.UnaryServerInterceptor) grpc.UnaryServerInterceptor {
	if len(list) == 0 {
		return nil
	}
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		next := handler
		for i := len(list) - 1; i > 0; i-- {
			inner, interceptor := next, list[i]
			next = func(ctx context.Context, request any) (any, error) {
				return interceptor(ctx, request, info, inner)
			}
		}
		return list[0](ctx, req, info, next)
	}
}

// ChainStream is ChainUnary for streams.
func ChainStream(list []grpc.StreamServerInterceptor) grpc.StreamServerInterceptor {
	if len(list) == 0 {
		return nil
	}
	return func(srv any, ss grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
		next := handler
		for i := len(list) - 1; i > 0; i-- {
			inner, interceptor := next, list[i]
			next = func(service any, ss grpc.ServerStream) error {
				return interceptor(service, ss, info, inner)
			}
		}
		return list[0](srv, ss, info, next)
	}
}
