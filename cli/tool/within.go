package tool

import (
	"context"

	"google.golang.org/protobuf/proto"
)

// Within is a connection to services of this process, where there is nothing to wait
// for between a request and its answer.
type Within struct {
	// Do makes one call.
	Do func(ctx context.Context, method string, request, resp proto.Message) error
	// Follow makes a call that is answered by several messages.
	Follow func(ctx context.Context, method string, request proto.Message) (Receiver, error)
}

// Call implements Conn.
func (w Within) Call(ctx context.Context, method string, request, resp proto.Message) error {
	return w.Do(ctx, method, request, resp)
}

// Stream implements Conn.
func (w Within) Stream(
	ctx context.Context, method string, request proto.Message,
) (Receiver, error) {
	return w.Follow(ctx, method, request)
}

// Start implements Conn: the call is made when its answer is wanted.
func (w Within) Start(ctx context.Context, method string, request proto.Message) (Pending, error) {
	return pendingWithin{do: w.Do, ctx: ctx, method: method, req: request}, nil
}

// Close implements Conn.
func (Within) Close() error { return nil }

// pendingWithin is a call that was not made yet.
type pendingWithin struct {
	do     func(ctx context.Context, method string, request, resp proto.Message) error
	ctx    context.Context
	method string
	req    proto.Message
}

// Wait implements Pending.
func (p pendingWithin) Wait(resp proto.Message) error {
	return p.do(p.ctx, p.method, p.req, resp)
}
