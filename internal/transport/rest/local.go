package rest

import (
	"context"
	"io"
	"net/http"
	"runtime/debug"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/musterhpc/muster/internal/transport/grpcx"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
)

// Mounted is another API under a path of this gateway. The gateway finds out who
// asks and admits the request; the identity is in the request's context.
type Mounted interface {
	http.Handler
	// Refuse answers a request that did not come to ServeHTTP, in the form in
	// which this API's clients expect errors; code is the HTTP status.
	Refuse(writer http.ResponseWriter, request *http.Request, code int, err *rpcstatus.Error)
}

// mount is an API with the paths that belong to it.
type mount struct {
	api    Mounted
	prefix string
	open   bool // anybody may ask
}

// Mount serves an API under the paths that begin with prefix. open lets anybody
// ask, for descriptions that hold nothing of the cluster.
func (g *Gateway) Mount(prefix string, api Mounted, open bool) {
	g.mounts = append(g.mounts, mount{api: api, prefix: prefix, open: open})
}

// findMount finds the API to which a path belongs.
func (g *Gateway) findMount(path string) *mount {
	for i := range g.mounts {
		if strings.HasPrefix(path, g.mounts[i].prefix) {
			return &g.mounts[i]
		}
	}
	return nil
}

// fail answers with an error in the form of the mounted API.
func (g *Gateway) failMounted(
	m *mount, writer http.ResponseWriter, request *http.Request, err error,
) {
	e := rpcstatus.Convert(grpcx.FromStatus(err), g.cfg.Errors)
	code := StatusOf(e)
	if code == http.StatusUnauthorized {
		writer.Header().Set("WWW-Authenticate", `Bearer realm="muster"`)
	}
	m.api.Refuse(writer, request, code, e)
}

// Convert is an error of a handler as every protocol gives it.
func (g *Gateway) Convert(err error) *rpcstatus.Error {
	return rpcstatus.Convert(grpcx.FromStatus(err), g.cfg.Errors)
}

// StatusOf is the HTTP status of an error.
func StatusOf(e *rpcstatus.Error) int { return httpStatus(e.Wire) }

// Body reads the body of a request of a mounted API within the bounds that hold
// for all requests.
func (g *Gateway) Body(writer http.ResponseWriter, request *http.Request) ([]byte, error) {
	body, err := g.readBody(writer, request)
	if err != nil {
		return nil, err
	}
	return body, g.checkValues(body)
}

// local finds a registered method by its full name, /muster.v1.Cluster/Ping.
func (g *Gateway) local(name string) (*method, error) {
	m := g.byName[name]
	if m == nil {
		return nil, rpcstatus.New(rpcstatus.Unimplemented, "there is no method %s", name)
	}
	return m, nil
}

// Ask is Call for a request that was admitted already: a request over HTTP that
// needs several methods counts once. Who asks is the identity in ctx. Errors are
// *rpcstatus.Error.
func (g *Gateway) Ask(ctx context.Context, name string, request, resp proto.Message) error {
	m, err := g.local(name)
	if err != nil {
		return err
	}
	if m.unary == nil {
		return rpcstatus.New(rpcstatus.Unimplemented, "%s answers with a stream", name)
	}
	reply, err := m.unary(m.impl, ctx, func(into any) error { return hand(request, into) }, g.unary)
	if err != nil {
		return g.Convert(err)
	}
	return hand(reply, resp)
}

// hand gives one message's fields to another of the same type. Lists and messages
// in it are shared: neither side changes a message that it was given.
func hand(from, to any) error {
	source, ok := from.(proto.Message)
	target, ok2 := to.(proto.Message)
	if !ok || !ok2 || source.ProtoReflect().Descriptor() != target.ProtoReflect().Descriptor() {
		return rpcstatus.New(rpcstatus.Internal, "BUG: a %T is not a %T", from, to)
	}
	into := target.ProtoReflect()
	source.ProtoReflect().Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		into.Set(f, v)
		return true
	})
	return nil
}

// Received is the answer of a method that gives several messages.
type Received struct {
	messages chan proto.Message
	err      error // after messages was closed
	cancel   context.CancelFunc
}

// Stream calls a registered method that answers with several messages.
func (g *Gateway) Stream(
	ctx context.Context, name string, request proto.Message,
) (*Received, error) {
	m, err := g.local(name)
	if err != nil {
		return nil, err
	}
	if m.stream == nil {
		return nil, rpcstatus.New(rpcstatus.Unimplemented, "%s answers with one message", name)
	}
	ctx, cancel := context.WithCancel(ctx)
	received := &Received{messages: make(chan proto.Message), cancel: cancel}
	s := &localStream{ctx: ctx, req: request, out: received.messages}
	go func() {
		defer close(received.messages)
		defer func() { // this is not the goroutine of the request, which has its own
			if p := recover(); p != nil {
				g.cfg.Log.Error(
					"handler panicked",
					"method",
					name,
					"panic",
					p,
					"stack",
					string(debug.Stack()),
				)
				received.err = rpcstatus.New(
					rpcstatus.Internal,
					"internal error; the server's log has the details",
				)
			}
		}()
		if g.stream == nil {
			received.err = m.stream.Handler(m.impl, s)
		} else {
			received.err = g.stream(
				m.impl,
				s,
				&grpc.StreamServerInfo{FullMethod: name, IsServerStream: true},
				m.stream.Handler,
			)
		}
		if received.err != nil {
			received.err = g.Convert(received.err)
		}
	}()
	return received, nil
}

// Recv gives the next message, and io.EOF after the last one.
func (r *Received) Recv(resp proto.Message) error {
	m, ok := <-r.messages
	switch {
	case ok:
		return hand(m, resp)
	case r.err != nil:
		return r.err
	}
	return io.EOF
}

// Close ends the call. It waits for the handler, which may hold what others need.
func (r *Received) Close() {
	r.cancel()
	for range r.messages { //nolint:revive // what is on its way is not wanted any more
	}
}

// Outliving is a stream of this package. The context of its request ends with the server that took
// it, as when a controller leads no longer, while the connection to the client can still carry an
// answer.
type Outliving interface {
	grpc.ServerStream
	// Outlive is the same stream whose messages come through until ctx ends.
	Outlive(ctx context.Context) grpc.ServerStream
}

// localStream is the grpc.ServerStream of a call within this process.
type localStream struct {
	ctx  context.Context
	req  proto.Message
	out  chan<- proto.Message
	read bool
}

var _ grpc.ServerStream = (*localStream)(nil)

func (s *localStream) Context() context.Context { return s.ctx }

// Outlive implements Outliving.
func (s *localStream) Outlive(ctx context.Context) grpc.ServerStream {
	longer := *s
	longer.ctx = ctx
	return &longer
}

func (s *localStream) RecvMsg(into any) error {
	if s.read {
		return io.EOF
	}
	s.read = true
	return hand(s.req, into)
}

func (s *localStream) SendMsg(m any) error {
	message, ok := m.(proto.Message)
	if !ok {
		return rpcstatus.New(rpcstatus.Internal, "BUG: %T is not a protobuf message", m)
	}
	select {
	case s.out <- message:
		return nil
	case <-s.ctx.Done():
		return s.ctx.Err()
	}
}

func (s *localStream) SetHeader(metadata.MD) error  { return errNoHeaders }
func (s *localStream) SendHeader(metadata.MD) error { return errNoHeaders }
func (s *localStream) SetTrailer(metadata.MD)       {}
