package forward

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/musterhpc/muster/internal/transport/framed/serve"
	"github.com/musterhpc/muster/internal/transport/rest"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/spec"
)

// passPatience bounds a call that is passed on: an election, and the call itself.
const passPatience = 40 * time.Second

// PassOn carries calls of REST over a hand-over: one that came to a controller that leads no longer
// is passed on to the one that leads, as a standby would have done. Tools repeat such a call
// themselves, and programs that speak REST do not.
type PassOn struct {
	// Forward passes a call on; it waits for a leader.
	Forward func(ctx context.Context, request serve.RelayCall, send func([]byte) error) error
	// Again gives the request with which a call may be repeated of which nobody knows whether it was
	// carried out, and false for one that must not be.
	Again func(method string, payload []byte) ([]byte, bool)
	// Over is closed when the lead is over. It ends the contexts of requests, as a client does that
	// goes away.
	Over <-chan struct{}
}

// Unary is a grpc.UnaryServerInterceptor. It must be the outermost.
func (p PassOn) Unary(
	ctx context.Context,
	request any,
	info *grpc.UnaryServerInfo,
	next grpc.UnaryHandler,
) (any, error) {
	reply, err := next(ctx, request)
	if err == nil {
		return reply, nil
	}
	message, ok := request.(proto.Message)
	if !ok {
		return reply, err
	}
	message, ok = p.messageToPass(info.FullMethod, message, err)
	if !ok {
		return reply, err
	}
	// The context of the request ends with the lead.
	passing, cancel := context.WithTimeout(context.WithoutCancel(ctx), passPatience)
	defer cancel()
	var out proto.Message
	keep := func(message proto.Message) error {
		out = message
		return nil
	}
	if err := p.forwarded(info.FullMethod).passRequest(passing, message, keep); err != nil {
		return nil, err
	}
	return out, nil
}

// Stream is a grpc.StreamServerInterceptor for calls that are answered by several messages. It must
// be the outermost. Once the caller has a message the call is not passed on: what would follow is
// of another moment.
func (p PassOn) Stream(
	srv any,
	stream grpc.ServerStream,
	info *grpc.StreamServerInfo,
	next grpc.StreamHandler,
) error {
	if info.IsClientStream {
		return next(srv, stream)
	}
	watched := &watchedStream{ServerStream: stream}
	err := next(srv, watched)
	if err == nil || watched.answered {
		return err
	}
	call := p.forwarded(info.FullMethod)
	message := watched.request
	if message == nil { // it was refused before it was read
		message = call.input.New().Interface()
		if stream.RecvMsg(message) != nil {
			return err
		}
	}
	message, ok := p.messageToPass(info.FullMethod, message, err)
	if !ok {
		return err
	}
	passing, cancel := context.WithTimeout(context.WithoutCancel(stream.Context()), passPatience)
	defer cancel()
	if outliving, is := stream.(rest.Outliving); is {
		stream = outliving.Outlive(passing)
	}
	send := func(message proto.Message) error { return stream.SendMsg(message) }
	return call.passRequest(passing, message, send)
}

// watchedStream keeps the request of a call and notes whether it is answered.
type watchedStream struct {
	grpc.ServerStream
	request  proto.Message
	answered bool
}

// RecvMsg implements grpc.ServerStream.
func (s *watchedStream) RecvMsg(into any) error {
	if err := s.ServerStream.RecvMsg(into); err != nil {
		return err
	}
	if message, ok := into.(proto.Message); ok {
		s.request = proto.Clone(message)
	}
	return nil
}

// SendMsg implements grpc.ServerStream.
func (s *watchedStream) SendMsg(m any) error {
	err := s.ServerStream.SendMsg(m)
	s.answered = s.answered || err == nil
	return err
}

// messageToPass gives the request with which a call that failed is passed on, and false where its
// error is the answer.
func (p PassOn) messageToPass(
	method string, message proto.Message, failed error,
) (proto.Message, bool) {
	switch p.fateOf(failed) {
	case notDone:
		return message, true
	case perhapsDone:
		return p.repeatableMessage(method, message)
	case answered:
	}
	return nil, false
}

// forwarded is the method of a full name, "/package.Service/Method".
func (p PassOn) forwarded(fullMethod string) forwarded {
	service, method, _ := strings.Cut(strings.TrimPrefix(fullMethod, "/"), "/")
	return newForwarded(service, method, p.Forward)
}

// fate is what became of a call that failed.
type fate uint8

const (
	answered    fate = iota // the error is the answer
	notDone                 // no controller has carried it out
	perhapsDone             // nobody knows
)

func (p PassOn) fateOf(err error) fate {
	code := spec.CodeOf(err)
	var status *rpcstatus.Error
	if errors.As(err, &status) && status.Refusal() != nil {
		code = status.Refusal().Kind
	}
	switch {
	case code == spec.CodeNotLeader, code == spec.CodeStopping:
		return notDone
	case code == spec.CodeOutcomeUnknown:
		return perhapsDone
	case errors.Is(err, context.Canceled) && p.isOver():
		return perhapsDone
	}
	return answered
}

func (p PassOn) isOver() bool {
	select {
	case <-p.Over:
		return true
	default:
		return false
	}
}

// repeatableMessage gives the message with which a call may be repeated that may have been carried out.
func (p PassOn) repeatableMessage(method string, message proto.Message) (proto.Message, bool) {
	payload, err := proto.Marshal(message)
	if err != nil {
		return nil, false
	}
	payload, ok := p.Again(method, payload)
	if !ok {
		return nil, false
	}
	again := message.ProtoReflect().New().Interface()
	return again, proto.Unmarshal(payload, again) == nil
}
