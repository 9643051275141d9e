package framed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/musterhpc/muster/internal/transport/rpcstatus"
)

// Bounds of the client's side.
const (
	maxInFlight    = 1024 // calls of a connection that wait for their end; Start waits beyond
	maxUnsent      = 512 << 10
	clientPatience = 30 * time.Second // a server that takes no bytes for so long is gone
)

// DetailOutcome is the key of a detail that transport errors carry: OutcomeNotSent says that
// the server has not looked at the request, so that repeating it is safe; OutcomeUnknown that
// it may have been carried out.
const (
	DetailOutcome  = "outcome"
	OutcomeNotSent = "not-sent"
	OutcomeUnknown = "unknown"
)

// Conn is the client's side of a connection. It is safe for several goroutines.
type Conn struct {
	conn net.Conn
	out  *Writer
	done chan struct{} // closed when the reader has ended
	slot chan struct{} // holds one element for each call in flight

	mu       sync.Mutex
	calls    map[uint64]*Call
	last     uint64       // last id given away
	draining bool         // the server takes no further calls
	closed   *StatusError // why the connection is of no further use
}

// NewConn takes over an open connection. first goes out with the first call: Preface, or nothing
// where somebody has sent it. A server waits for the preface for as long as for a handshake, so a
// connection on which nothing is asked until then is closed.
func NewConn(conn net.Conn, first string) *Conn {
	c := &Conn{
		conn: conn, out: NewWriter(conn, first, maxUnsent, clientPatience), done: make(chan struct{}),
		slot: make(chan struct{}, maxInFlight), calls: make(map[uint64]*Call),
	}
	c.out.Background = true
	go c.read()
	return c
}

// Close ends the connection; calls in flight fail. It waits for the reader to end.
func (c *Conn) Close() error {
	c.fail(transportError(rpcstatus.Canceled, OutcomeUnknown, "the connection was closed here"))
	<-c.done
	return nil
}

// Done is closed when the connection has ended.
func (c *Conn) Done() <-chan struct{} { return c.done }

// Usable reports that new calls can be started: neither ended nor draining.
func (c *Conn) Usable() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed == nil && !c.draining
}

// Call is a call in flight. One goroutine receives from it.
type Call struct {
	conn   *Conn
	id     uint64
	ctx    context.Context
	notify chan struct{} // one element when there is something new

	// Guarded by conn.mu.
	queue [][]byte
	ended bool
	err   *StatusError // with ended; nil = success

	held uint64 // cost of what was received and not credited yet; the receiver's own
}

// SendRequest sends a frame of which Method, Header and Payload or Encode are set, and returns
// without waiting for an answer, so that one goroutine can have many on their way. The caller must
// receive until the end or Cancel. The deadline of ctx goes with the request; ctx stays the call's.
func (c *Conn) SendRequest(ctx context.Context, frame *Frame) (*Call, error) {
	select {
	case c.slot <- struct{}{}:
	case <-ctx.Done():
		return nil, contextError(ctx, OutcomeNotSent)
	case <-c.done:
		return nil, c.reason()
	}
	frame.Kind, frame.Window = Request, DefaultWindow
	if deadline, ok := ctx.Deadline(); ok {
		frame.Timeout = time.Until(deadline)
		if frame.Timeout < time.Microsecond {
			<-c.slot
			return nil, contextErrorOf(context.DeadlineExceeded, OutcomeNotSent)
		}
	}
	call := &Call{conn: c, ctx: ctx, notify: make(chan struct{}, 1)}
	err := c.out.writeFrame(ctx, frame, func() error {
		err := c.register(call)
		frame.ID = call.id
		return err
	})
	if err == nil {
		return call, nil
	}
	if call.id == 0 {
		<-c.slot // it was never registered
	} else {
		c.forget(call)
	}
	return nil, c.writeError(ctx, err, call.id != 0)
}

// writeError says why a request was not written; begun, whether a part of it may have been.
func (c *Conn) writeError(ctx context.Context, err error, begun bool) error {
	outcome := OutcomeNotSent
	if begun {
		outcome = OutcomeUnknown
	}
	var own *StatusError
	switch {
	case errors.As(err, &own):
		return transportError(own.Wire, outcome, "%s", own.Message)
	case errors.Is(err, ErrTooLarge), errors.Is(err, ErrEncode):
		return transportError(
			rpcstatus.InvalidArgument,
			OutcomeNotSent,
			"the request cannot be sent: %v",
			err,
		)
	case ctx.Err() != nil:
		return contextError(ctx, OutcomeNotSent)
	}
	return transportError(
		rpcstatus.Unavailable,
		outcome,
		"the connection broke while the request was sent: %v",
		err,
	)
}

// register gives a call its id and counts it in. The writer's lock is held, so ids grow on the
// wire.
func (c *Conn) register(call *Call) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed != nil {
		return notSent(c.closed)
	}
	if c.draining {
		return transportError(rpcstatus.Unavailable, OutcomeNotSent, "the server is shutting down")
	}
	c.last++
	call.id = c.last
	c.calls[call.id] = call
	return nil
}

// forget takes a call out; true if it was in flight.
func (c *Conn) forget(call *Call) bool {
	c.mu.Lock()
	_, live := c.calls[call.id]
	delete(c.calls, call.id)
	c.mu.Unlock()
	if live {
		<-c.slot
	}
	return live
}

// Invoke makes one call with one answer.
func (c *Conn) Invoke(
	ctx context.Context,
	method string,
	payload []byte,
	header ...Pair,
) ([]byte, error) {
	call, err := c.SendRequest(ctx, &Frame{Method: method, Header: header, Payload: payload})
	if err != nil {
		return nil, err
	}
	return call.Wait()
}

// Wait receives the one answer of a call and its end.
func (k *Call) Wait() ([]byte, error) {
	answer, err := k.Recv()
	if errors.Is(err, io.EOF) {
		return nil, transportError(
			rpcstatus.Internal,
			OutcomeUnknown,
			"the server ended the call without an answer",
		)
	}
	if err != nil {
		return nil, err
	}
	if _, err := k.Recv(); err == nil {
		k.Cancel()
		return nil, transportError(
			rpcstatus.Internal,
			OutcomeUnknown,
			"the server sent several answers to a call that has one",
		)
	} else if !errors.Is(err, io.EOF) {
		return nil, err
	}
	return answer, nil
}

// Recv returns the next message of the call, io.EOF after its successful end, or a
// *StatusError. When ctx of the call is over the call is cancelled at the server too.
func (k *Call) Recv() ([]byte, error) {
	for {
		k.conn.mu.Lock()
		switch {
		case len(k.queue) > 0:
			m := k.queue[0]
			k.queue = k.queue[1:]
			ended := k.ended
			k.conn.mu.Unlock()
			if !ended {
				k.credit(len(m))
			}
			return m, nil
		case k.ended:
			err := k.err
			k.conn.mu.Unlock()
			if err != nil {
				return nil, err
			}
			return nil, io.EOF
		}
		k.conn.mu.Unlock()
		select {
		case <-k.notify:
		case <-k.ctx.Done():
			k.Cancel()
			return nil, contextError(k.ctx, OutcomeUnknown)
		}
	}
}

// credit tells the server what was consumed, in steps of half a window.
func (k *Call) credit(n int) {
	k.held += Cost(n)
	if k.held < DefaultWindow/2 {
		return
	}
	// A failure shows as the end of the call.
	if k.conn.out.Write(k.ctx, &Frame{Kind: Credit, ID: k.id, Bytes: k.held}) == nil {
		k.held = 0
	}
}

// Cancel gives the call up: the server is told and what it still sends is dropped. After the
// end it does nothing.
func (k *Call) Cancel() {
	if !k.conn.forget(k) {
		return
	}
	k.conn.mu.Lock()
	k.end(transportError(rpcstatus.Canceled, OutcomeUnknown, "the call was cancelled here"))
	k.queue = nil
	k.conn.mu.Unlock()
	// Not under the call's context, which may be over; a connection that takes nothing fails by
	// itself.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(k.ctx), time.Second)
	defer cancel()
	if err := k.conn.out.Write(ctx, &Frame{Kind: Cancel, ID: k.id}); err != nil {
		return // the server learns it when the connection ends
	}
}

// end marks the call as ended. conn.mu is held.
func (k *Call) end(err *StatusError) {
	if !k.ended {
		k.ended, k.err = true, err
		k.wake()
	}
}

func (k *Call) wake() {
	select {
	case k.notify <- struct{}{}:
	default:
	}
}

// read is the connection's reader; it ends when the connection does.
func (c *Conn) read() {
	defer close(c.done)
	reader := NewReader(c.conn, bufio.NewReader(c.conn))
	for {
		var frame Frame
		if _, err := reader.Next(&frame); err != nil {
			c.fail(lost(err))
			return
		}
		if err := c.handle(&frame); err != nil {
			c.fail(
				transportError(
					rpcstatus.Internal,
					OutcomeUnknown,
					"the server does not speak this protocol: %v",
					err,
				),
			)
			return
		}
	}
}

func lost(err error) *StatusError {
	if errors.Is(err, io.EOF) {
		return transportError(
			rpcstatus.Unavailable,
			OutcomeUnknown,
			"the server closed the connection",
		)
	}
	if errors.Is(err, ErrProtocol) {
		return transportError(
			rpcstatus.Internal,
			OutcomeUnknown,
			"the server does not speak this protocol: %v",
			err,
		)
	}
	return transportError(rpcstatus.Unavailable, OutcomeUnknown, "the connection broke: %v", err)
}

func (c *Conn) handle(frame *Frame) error {
	switch frame.Kind {
	case Drain:
		c.drain(frame.ID)
		return nil
	case Message, End:
	default:
		return fmt.Errorf("%w: kind %d from a server", ErrProtocol, frame.Kind)
	}
	c.mu.Lock()
	call, ok := c.calls[frame.ID]
	if ok {
		c.deliver(call, frame)
	}
	known := frame.ID <= c.last
	c.mu.Unlock()
	switch {
	case !known || frame.ID == 0:
		return fmt.Errorf("%w: answer to call %d, which was never made", ErrProtocol, frame.ID)
	case ok && call.finished(frame):
		<-c.slot
	}
	return nil
}

// deliver hands a frame to its call. c.mu is held.
func (c *Conn) deliver(call *Call, frame *Frame) {
	if frame.Kind == Message {
		call.queue = append(call.queue, frame.Payload)
		call.wake()
	}
	if call.finished(frame) {
		delete(c.calls, call.id)
		call.end(frame.Err)
	}
}

func (k *Call) finished(frame *Frame) bool { return frame.Kind == End || frame.Last }

// drain ends the calls that the server has not looked at and lets the others finish.
func (c *Conn) drain(last uint64) {
	c.mu.Lock()
	c.draining = true
	var dropped []*Call
	for id, call := range c.calls {
		if id > last {
			dropped = append(dropped, call)
		}
	}
	for _, call := range dropped {
		delete(c.calls, call.id)
		call.end(transportError(rpcstatus.Unavailable, OutcomeNotSent, "the server is shutting down"))
	}
	c.mu.Unlock()
	for range dropped {
		<-c.slot
	}
}

// fail ends the connection and every call in flight.
func (c *Conn) fail(why *StatusError) {
	c.mu.Lock()
	if c.closed == nil {
		c.closed = why
	}
	calls := c.calls
	c.calls = make(map[uint64]*Call)
	for _, call := range calls {
		call.end(c.closed)
	}
	c.mu.Unlock()
	for range calls {
		<-c.slot
	}
	c.out.Close(why)
}

// reason returns why the connection ended, for a call that was not made.
func (c *Conn) reason() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed == nil {
		return transportError(rpcstatus.Unavailable, OutcomeNotSent, "the connection has ended")
	}
	return notSent(c.closed)
}

func notSent(e *StatusError) *StatusError {
	return transportError(e.Wire, OutcomeNotSent, "%s", e.Message)
}

func transportError(wire rpcstatus.Code, outcome, format string, args ...any) *StatusError {
	e := rpcstatus.New(wire, format, args...)
	e.Details = []rpcstatus.Detail{{Key: DetailOutcome, Value: outcome}}
	return e
}

func contextError(ctx context.Context, outcome string) *StatusError {
	return contextErrorOf(ctx.Err(), outcome)
}

func contextErrorOf(err error, outcome string) *StatusError {
	if errors.Is(err, context.DeadlineExceeded) {
		return transportError(rpcstatus.DeadlineExceeded, outcome, "no answer within the time allowed")
	}
	return transportError(rpcstatus.Canceled, outcome, "the call was cancelled here")
}
