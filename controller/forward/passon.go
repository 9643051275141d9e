package forward

import (
	"context"
	"errors"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/musterhpc/muster/internal/transport/framed/serve"
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
	Forward func(ctx context.Context, req serve.RelayCall, send func([]byte) error) error
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
	req any,
	info *grpc.UnaryServerInfo,
	next grpc.UnaryHandler,
) (any, error) {
	reply, err := next(ctx, req)
	if err == nil {
		return reply, nil
	}
	fate := p.fateOf(err)
	message, ok := req.(proto.Message)
	if fate == answered || !ok {
		return reply, err
	}
	if fate == perhapsDone {
		message, ok = p.repeatableMessage(info.FullMethod, message)
		if !ok {
			return reply, err
		}
	}
	service, method, _ := strings.Cut(strings.TrimPrefix(info.FullMethod, "/"), "/")
	// The context of the request ends with the lead.
	passing, cancel := context.WithTimeout(context.WithoutCancel(ctx), passPatience)
	defer cancel()
	var out proto.Message
	keep := func(message proto.Message) error {
		out = message
		return nil
	}
	if err := newForwarded(service, method, p.Forward).passRequest(passing, message, keep); err != nil {
		return nil, err
	}
	return out, nil
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
