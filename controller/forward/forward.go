// Package forward is REST on a standby: a gateway whose calls the leading controller carries out,
// and /health, by which a load balancer finds that one. It reads the token of a request.
package forward

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/framed/serve"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/rest"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
)

// Forwarder is REST on a standby: the gateway with the same services, whose calls the
// leader carries out. The standby finds out who asks, as the leader would, and the
// leader decides what that user may do.
type Forwarder struct {
	Gateway *rest.Gateway
}

// tokenKey holds the token of a request, which the leader reads itself: what has been
// revoked a moment ago it knows first.
type tokenKey struct{}

// ServeHTTP implements http.Handler.
func (f Forwarder) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	// Who acts as another user is known to the standby alone, which vouches for him.
	if token, given := BearerToken(request); given &&
		request.Header.Get("X-SLURM-USER-NAME") == "" {
		request = request.WithContext(context.WithValue(request.Context(), tokenKey{}, token))
	}
	f.Gateway.ServeHTTP(writer, request)
}

// forwardFunc passes a call on and gives the messages of its answer to send.
type forwardFunc func(ctx context.Context, request serve.RelayCall, send func([]byte) error) error

// NewService is a service whose methods are carried out by the leader.
func NewService(desc *grpc.ServiceDesc, forward forwardFunc) *grpc.ServiceDesc {
	out := &grpc.ServiceDesc{ServiceName: desc.ServiceName, Metadata: desc.Metadata}
	for i := range desc.Methods {
		call := newForwarded(desc.ServiceName, desc.Methods[i].MethodName, forward)
		out.Methods = append(
			out.Methods,
			grpc.MethodDesc{MethodName: desc.Methods[i].MethodName, Handler: call.passUnary},
		)
	}
	for i := range desc.Streams {
		if desc.Streams[i].ClientStreams {
			continue // REST has no form for them
		}
		call := newForwarded(desc.ServiceName, desc.Streams[i].StreamName, forward)
		out.Streams = append(
			out.Streams,
			grpc.StreamDesc{
				StreamName:    desc.Streams[i].StreamName,
				Handler:       call.passStream,
				ServerStreams: true,
			},
		)
	}
	return out
}

// forwarded is one method.
type forwarded struct {
	name          string // "/package.Service/Method"
	input, output protoreflect.MessageType
	forward       forwardFunc
}

// newForwarded finds the types of a method's messages. That they are linked is a matter
// of the build.
func newForwarded(serviceName, method string, forward forwardFunc) forwarded {
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(serviceName))
	described, ok := found.(protoreflect.ServiceDescriptor)
	if err != nil || !ok {
		panic("BUG: " + serviceName + " is no service of a linked .proto file")
	}
	desc := described.Methods().ByName(protoreflect.Name(method))
	input, inErr := protoregistry.GlobalTypes.FindMessageByName(desc.Input().FullName())
	output, outErr := protoregistry.GlobalTypes.FindMessageByName(desc.Output().FullName())
	if inErr != nil || outErr != nil {
		panic(fmt.Sprintf("BUG: messages of %s/%s: %v, %v", serviceName, method, inErr, outErr))
	}
	return forwarded{"/" + serviceName + "/" + method, input, output, forward}
}

// passUnary is a grpc.MethodHandler.
func (f forwarded) passUnary(
	_ any,
	ctx context.Context,
	decode func(any) error,
	around grpc.UnaryServerInterceptor,
) (any, error) {
	in := f.input.New().Interface()
	if err := decode(in); err != nil {
		return nil, err
	}
	pass := func(ctx context.Context, request any) (any, error) {
		out := f.output.New().Interface()
		err := f.passRequest(ctx, request, func(message proto.Message) error {
			out = message
			return nil
		})
		return out, err
	}
	if around == nil {
		return pass(ctx, in)
	}
	return around(ctx, in, &grpc.UnaryServerInfo{FullMethod: f.name}, pass)
}

// passStream is a grpc.StreamHandler.
func (f forwarded) passStream(_ any, stream grpc.ServerStream) error {
	in := f.input.New().Interface()
	if err := stream.RecvMsg(in); err != nil {
		return err
	}
	return f.passRequest(
		stream.Context(),
		in,
		func(message proto.Message) error { return stream.SendMsg(message) },
	)
}

// passRequest sends a request to the leader, and its answers to send.
func (f forwarded) passRequest(
	ctx context.Context, request any, send func(proto.Message) error,
) error {
	asker, err := speakFor(ctx)
	if err != nil {
		return err
	}
	message, ok := request.(proto.Message)
	if !ok {
		return rpcstatus.New(rpcstatus.Internal, "%T is not a protobuf message", request)
	}
	payload, err := proto.Marshal(message)
	if err != nil {
		return rpcstatus.New(rpcstatus.Internal, "the request cannot be encoded: %v", err)
	}
	return f.forward(
		ctx,
		serve.RelayCall{Method: f.name, Payload: payload, For: asker},
		func(data []byte) error {
			out := f.output.New().Interface()
			if err := proto.Unmarshal(data, out); err != nil {
				return rpcstatus.New(rpcstatus.Internal, "the leader's answer cannot be read: %v", err)
			}
			return send(out)
		},
	)
}

// speakFor tells the leader whose call it is: his token, or a user for whom this
// controller vouches, as it does on its own socket. The holder of an administrator's
// certificate has the rights of root, and is root to the leader.
func speakFor(ctx context.Context) (framed.Pair, error) {
	id := identity.From(ctx)
	if token, ok := ctx.Value(tokenKey{}).(string); ok {
		return framed.Pair{Key: framed.HeaderToken, Value: token}, nil
	}
	switch {
	case id.Kind == identity.Admin:
		return framed.Attest(0, 0), nil
	case id.IsUser() && !id.Squashed:
		return framed.Attest(id.UID, id.GID), nil
	}
	return framed.Pair{}, rpcstatus.New(
		rpcstatus.PermissionDenied,
		"%s: this controller is a standby, and passes on only calls of users and administrators",
		id,
	)
}

// HealthPath is where a load balancer asks.
const HealthPath = "/health"

// Health answers a load balancer, who need not say who it is.
type Health struct {
	Own func() OwnHealth
}

// OwnHealth is what a controller says of itself.
type OwnHealth struct {
	Role       string `json:"role"` // leader or standby
	Controller string `json:"controller,omitempty"`
	Leader     string `json:"leader,omitempty"` // empty = none is known
	Term       uint64 `json:"term,omitempty"`
}

// ServeHTTP answers /health, which is good where requests are answered, and
// /health/leader, which is good on the leader alone.
func (h Health) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	own := h.Own()
	good := own.Role == "leader"
	switch {
	case request.Method != http.MethodGet && request.Method != http.MethodHead:
		writer.Header().Set("Allow", "GET, HEAD")
		http.Error(writer, "use GET or HEAD", http.StatusMethodNotAllowed)
		return
	case request.URL.Path == HealthPath:
		good = good || own.Leader != ""
	case request.URL.Path != HealthPath+"/leader":
		http.NotFound(writer, request)
		return
	}
	writer.Header().Set("Content-Type", "application/json")
	writer.Header().Set("Cache-Control", "no-store")
	if !good {
		writer.WriteHeader(http.StatusServiceUnavailable)
	}
	// The caller may be gone; there is nobody else to tell.
	_ = json.NewEncoder(writer).Encode(own)
}

// Refuse implements rest.Mounted. Nobody is refused here.
func (h Health) Refuse(
	writer http.ResponseWriter, _ *http.Request, code int, err *rpcstatus.Error,
) {
	http.Error(writer, err.Message, code)
}
