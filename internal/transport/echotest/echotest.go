// Package echotest is a small gRPC service, written by hand over well-known messages, with
// which the packages of internal/transport test and measure themselves: one implementation,
// reached over gRPC and over the framed protocol.
package echotest

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/spec"
)

// Full names of the methods.
const (
	Echo   = "/muster.test.Echo/Echo"   // StringValue -> the same
	WhoAmI = "/muster.test.Echo/WhoAmI" // StringValue -> the channel's identity, whatever the message says
	Fail   = "/muster.test.Echo/Fail"   // StringValue -> a refusal with prefix and reason; "panic" panics; "plain" is a plain error
	Block  = "/muster.test.Echo/Block"  // waits for the end of its context
	Count  = "/muster.test.Echo/Count"  // Int64Value n -> stream of 1..n; n < 0 = without end
)

// Server is the service.
type Server interface {
	DoEcho(ctx context.Context, in *wrapperspb.StringValue) (*wrapperspb.StringValue, error)
	DoWhoAmI(ctx context.Context, in *wrapperspb.StringValue) (*wrapperspb.StringValue, error)
	DoFail(ctx context.Context, in *wrapperspb.StringValue) (*wrapperspb.StringValue, error)
	DoBlock(ctx context.Context, in *wrapperspb.StringValue) (*wrapperspb.StringValue, error)
	DoCount(in *wrapperspb.Int64Value, out grpc.ServerStream) error
}

// Service implements Server.
type Service struct {
	Blocked  chan struct{} // receives one element when Block has begun; nil = not told
	Released chan error    // receives the context's error when Block ends; nil = not told
	Release  chan struct{} // closed = Block returns success; nil = never
	Sent     atomic.Int64  // messages that Count has sent
}

// DoEcho returns its input.
func (s *Service) DoEcho(
	_ context.Context,
	in *wrapperspb.StringValue,
) (*wrapperspb.StringValue, error) {
	return in, nil
}

// DoWhoAmI returns who the channel says the caller is.
func (s *Service) DoWhoAmI(
	ctx context.Context,
	_ *wrapperspb.StringValue,
) (*wrapperspb.StringValue, error) {
	return wrapperspb.String(identity.From(ctx).String()), nil
}

// Refusal is the error of Fail.
func Refusal() *spec.Error {
	return &spec.Error{
		Kind:   spec.CodeNodeConfigUnavailable,
		Prefix: "a line before",
		Detail: "16 GPUs asked, the largest node has 8",
		Reason: &spec.Reason{Code: spec.ReasonResources, TRES: "gres/gpu", Limit: 8, Asked: 16},
	}
}

// DoFail returns the error that its input asks for.
func (s *Service) DoFail(
	_ context.Context,
	in *wrapperspb.StringValue,
) (*wrapperspb.StringValue, error) {
	switch in.GetValue() {
	case "panic":
		panic("asked for")
	case "plain":
		return nil, fmt.Errorf("plain error")
	default:
		return nil, Refusal()
	}
}

// DoBlock waits.
func (s *Service) DoBlock(
	ctx context.Context,
	in *wrapperspb.StringValue,
) (*wrapperspb.StringValue, error) {
	if s.Blocked != nil {
		s.Blocked <- struct{}{}
	}
	select {
	case <-ctx.Done():
		if s.Released != nil {
			s.Released <- ctx.Err()
		}
		return nil, ctx.Err()
	case <-s.Release:
		return in, nil
	}
}

// DoCount streams numbers.
func (s *Service) DoCount(in *wrapperspb.Int64Value, out grpc.ServerStream) error {
	for i := int64(1); in.GetValue() < 0 || i <= in.GetValue(); i++ {
		if err := out.SendMsg(wrapperspb.Int64(i)); err != nil {
			if s.Released != nil {
				s.Released <- err
			}
			return err
		}
		s.Sent.Add(1)
	}
	return nil
}

type unaryMethod func(Server, context.Context, *wrapperspb.StringValue) (*wrapperspb.StringValue, error)

func unary(name string, call unaryMethod) grpc.MethodDesc {
	handler := func(srv any, ctx context.Context, dec func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
		in := new(wrapperspb.StringValue)
		if err := dec(in); err != nil {
			return nil, err
		}
		run := func(ctx context.Context, request any) (any, error) {
			return call(srv.(Server), ctx, request.(*wrapperspb.StringValue))
		}
		if interceptor == nil {
			return run(ctx, in)
		}
		return interceptor(
			ctx,
			in,
			&grpc.UnaryServerInfo{Server: srv, FullMethod: "/muster.test.Echo/" +
				name},
			run,
		)
	}
	return grpc.MethodDesc{MethodName: name, Handler: handler}
}

// Desc is the service's description, as protoc would generate it.
func Desc() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: "muster.test.Echo",
		HandlerType: (*Server)(nil),
		Methods: []grpc.MethodDesc{
			unary(
				"Echo",
				Server.DoEcho,
			), unary("WhoAmI", Server.DoWhoAmI), unary("Fail", Server.DoFail), unary("Block", Server.DoBlock),
		},
		Streams: []grpc.StreamDesc{{
			StreamName: "Count", ServerStreams: true,
			Handler: func(service any, stream grpc.ServerStream) error {
				in := new(wrapperspb.Int64Value)
				if err := stream.RecvMsg(in); err != nil {
					return err
				}
				return service.(Server).DoCount(in, stream)
			},
		}, {
			StreamName: "Upload", ClientStreams: true,
			Handler: func(any, grpc.ServerStream) error { return fmt.Errorf("never called") },
		}},
	}
}

// NoGoroutines fails the test when goroutines whose stack mentions any of the given texts
// outlive it. It registers itself to run after the clean-ups that were registered later. A
// goroutine that has done its last work may need a moment to disappear, which it is given by
// yielding the processor, not by waiting for a time.
func NoGoroutines(t testing.TB, texts ...string) {
	t.Helper()
	t.Cleanup(func() {
		var left []byte
		for range 5000 {
			left = stacks(texts)
			if left == nil {
				return
			}
			runtime.Gosched()
		}
		t.Errorf("goroutines are left:\n%s", left)
	})
}

func stacks(texts []string) []byte {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	var out []byte
	for i, g := range bytes.Split(buf, []byte("\n\n")) {
		if i == 0 {
			continue // this one
		}
		for _, text := range texts {
			if bytes.Contains(g, []byte(text)) && !bytes.Contains(g, []byte("testing.(*T).Run")) &&
				!bytes.Contains(g, []byte("testing.(*B).")) {
				out = append(append(out, g...), '\n', '\n')
				break
			}
		}
	}
	return out
}
