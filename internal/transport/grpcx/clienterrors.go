package grpcx

import (
	"context"

	"google.golang.org/grpc"
)

func unaryClientErrors(
	ctx context.Context,
	method string,
	request, reply any,
	cc *grpc.ClientConn,
	invoker grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	return FromStatus(invoker(ctx, method, request, reply, cc, opts...))
}

func streamClientErrors(
	ctx context.Context,
	desc *grpc.StreamDesc,
	cc *grpc.ClientConn,
	method string,
	streamer grpc.Streamer,
	opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	s, err := streamer(ctx, desc, cc, method, opts...)
	if err != nil {
		return nil, FromStatus(err)
	}
	return clientStream{s}, nil
}

// clientStream turns the errors of a stream.
type clientStream struct{ grpc.ClientStream }

func (s clientStream) SendMsg(m any) error { return FromStatus(s.ClientStream.SendMsg(m)) }
func (s clientStream) RecvMsg(m any) error { return FromStatus(s.ClientStream.RecvMsg(m)) }
func (s clientStream) CloseSend() error    { return FromStatus(s.ClientStream.CloseSend()) }
