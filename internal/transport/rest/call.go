package rest

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/spec"
)

// Call makes one call for a caller whom this process has identified, through
// the limits and guards that surround a call that came over HTTP. method is the
// full name, /muster.v1.Service/Method; it must have one answer. The answer must
// not be changed.
func (g *Gateway) Call(
	ctx context.Context,
	id identity.Identity,
	method string,
	request proto.Message,
) (proto.Message, error) {
	m := g.byName[method]
	if m == nil || m.stream != nil {
		return nil, rpcstatus.New(
			rpcstatus.Unimplemented,
			"there is no method %s with one answer",
			method,
		)
	}
	party := g.cfg.Table.PartyOf(id, nil)
	if !g.cfg.Table.Call(party) {
		return nil, spec.Refuse(spec.CodeBackoff, "")
	}
	decode := func(into any) error {
		message, ok := into.(proto.Message)
		if !ok {
			return rpcstatus.New(rpcstatus.Internal, "%T is not a protobuf message", into)
		}
		proto.Merge(message, request)
		return nil
	}
	reply, err := m.unary(m.impl, identity.With(ctx, id), decode, g.unary)
	if err != nil {
		return nil, err
	}
	msg, ok := reply.(proto.Message)
	if !ok {
		return nil, fmt.Errorf("BUG: %T is not a protobuf message", reply)
	}
	return msg, nil
}

// CallStream makes a call that is answered by several messages, as Call does, and
// hands each to send. An error of send ends the call and is returned.
func (g *Gateway) CallStream(
	ctx context.Context,
	id identity.Identity,
	method string,
	request proto.Message,
	send func(proto.Message) error,
) error {
	m := g.byName[method]
	if m == nil || m.stream == nil {
		return rpcstatus.New(
			rpcstatus.Unimplemented,
			"there is no method %s with several answers",
			method,
		)
	}
	party := g.cfg.Table.PartyOf(id, nil)
	if !g.cfg.Table.Call(party) {
		return spec.Refuse(spec.CodeBackoff, "")
	}
	s := &handedStream{
		localStream: localStream{ctx: identity.With(ctx, id), req: request}, send: send,
	}
	var err error
	if g.stream == nil {
		err = m.stream.Handler(m.impl, s)
	} else {
		err = g.stream(m.impl, s, &grpc.StreamServerInfo{FullMethod: method, IsServerStream: true}, m.stream.Handler)
	}
	if s.failed != nil {
		return s.failed
	}
	return err
}

// handedStream is a localStream whose messages are handed to a function, in the
// goroutine of the handler.
type handedStream struct {
	localStream
	send   func(proto.Message) error
	failed error // what send refused with
}

// Outlive implements Outliving.
func (s *handedStream) Outlive(ctx context.Context) grpc.ServerStream {
	return outlivingHanded{s, ctx}
}

// outlivingHanded is a handedStream with another context. What its function refused with is noted at
// the first one.
type outlivingHanded struct {
	*handedStream
	ctx context.Context
}

// Context implements grpc.ServerStream.
func (s outlivingHanded) Context() context.Context { return s.ctx }

// SendMsg implements grpc.ServerStream.
func (s outlivingHanded) SendMsg(m any) error { return s.sendUntil(s.ctx, m) }

// SendMsg implements grpc.ServerStream.
func (s *handedStream) SendMsg(m any) error { return s.sendUntil(s.ctx, m) }

// sendUntil hands a message over unless ctx has ended.
func (s *handedStream) sendUntil(ctx context.Context, m any) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	message, ok := m.(proto.Message)
	if !ok {
		return fmt.Errorf("BUG: %T is not a protobuf message", m)
	}
	s.failed = s.send(message)
	return s.failed
}
