package serve

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"runtime/debug"
	"sync"

	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/limit"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/spec"
)

// conn is one connection.
type conn struct {
	server *Server
	net    net.Conn
	in     *framed.Reader
	out    *framed.Writer
	peer   identity.Identity
	party  limit.Party     // whom the connection and its requests count against
	ctx    context.Context // ends with the connection
	cancel context.CancelFunc
	wg     sync.WaitGroup // its workers

	mu       sync.Mutex
	calls    map[uint64]*Call // accepted and not ended
	queue    []*Call
	workers  int
	last     uint64 // id of the last request taken
	draining bool
	refuseTo uint64 // while draining: requests after this id were not looked at
}

func newConn(server *Server, nc net.Conn, reader *bufio.Reader, id identity.Identity) *conn {
	limits := server.cfg.Limits
	c := &conn{
		server: server,
		net:    nc,
		peer:   id,
		party:  server.cfg.Table.PartyOf(id, nc.RemoteAddr()),
		calls:  make(map[uint64]*Call),
	}
	c.in = framed.NewReader(nc, reader)
	c.in.Idle = limits.Idle
	c.in.Frame = limits.Frame
	c.in.StayIdle = c.busy
	c.in.Admit = func(n int) bool { return n <= uncountedFrame || server.cfg.Table.Take(c.party, int64(n)) }
	c.in.Buffer = server.requestBuffer
	c.out = framed.NewWriter(nc, "", limits.Unsent, limits.Write)
	c.ctx, c.cancel = context.WithCancel(server.ctx)
	return c
}

// run reads until the connection ends, then waits for the calls.
func (c *conn) run() {
	err := c.read()
	c.cancel()
	c.out.Close(err)
	c.wg.Wait()
	if !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		c.server.cfg.Log.Debug("connection ended", "peer", c.peer.String(), "error", err)
	}
}

func (c *conn) read() error {
	for {
		var frame framed.Frame
		n, err := c.in.Next(&frame)
		var refused *framed.Refused
		switch {
		case errors.As(err, &refused):
			c.refuse(
				refused.ID,
				rpcstatus.New(
					rpcstatus.ResourceExhausted,
					"the server has no room for a request of %d bytes now: try again",
					refused.Size,
				),
			)
			continue
		case err != nil:
			c.release(n)
			return err
		}
		if err := c.handle(&frame, n); err != nil {
			return err
		}
	}
}

// uncountedFrame is the size up to which a request is not counted: most requests
// are smaller, and the bounds on connections and calls hold them.
const uncountedFrame = 4 << 10

// release gives back what Admit took for a frame of n bytes.
func (c *conn) release(n int) {
	if n > uncountedFrame {
		c.server.cfg.Table.Give(c.party, int64(n))
	}
}

func (c *conn) handle(frame *framed.Frame, n int) error {
	if frame.Kind != framed.Request {
		c.release(n)
	}
	switch frame.Kind {
	case framed.Request:
		return c.request(frame, n)
	case framed.Cancel:
		c.mu.Lock()
		if call, ok := c.calls[frame.ID]; ok {
			call.cancel()
		}
		c.mu.Unlock()
	case framed.Credit:
		c.mu.Lock()
		if call, ok := c.calls[frame.ID]; ok {
			call.unacked -= min(call.unacked, frame.Bytes)
			wake(call.credit)
		}
		c.mu.Unlock()
	default:
		return framed.ErrProtocol
	}
	return nil
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// request takes a call and gives it to a worker.
func (c *conn) request(frame *framed.Frame, n int) error {
	call := &Call{
		Method:  frame.Method,
		Payload: frame.Payload,
		conn:    c,
		id:      frame.ID,
		window:  frame.Window,
		header:  frame.Header,
		raw:     frame.Raw,
		credit:  make(chan struct{}, 1),
	}
	if n > uncountedFrame {
		call.size = int64(n)
	}
	if frame.Timeout > 0 {
		call.ctx, call.cancel = context.WithTimeout(c.ctx, frame.Timeout)
	} else {
		call.ctx, call.cancel = context.WithCancel(c.ctx)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if frame.ID <= c.last { // ids only grow, so that "the last request taken" means something
		call.drop()
		return framed.ErrProtocol
	}
	if c.draining {
		call.drop() // the client has been told
		return nil
	}
	c.last = frame.ID
	switch {
	case c.workers < c.server.cfg.Limits.ActiveCalls:
		c.calls[call.id] = call
		c.workers++
		c.wg.Go(func() { c.work(call) })
	case len(c.queue) < c.server.cfg.Limits.QueuedCalls:
		c.calls[call.id] = call
		c.queue = append(c.queue, call)
	default:
		call.drop()
		c.wg.Go(func() {
			c.refuse(
				frame.ID,
				rpcstatus.New(
					rpcstatus.ResourceExhausted,
					"%d calls of this connection wait already",
					c.server.cfg.Limits.QueuedCalls,
				),
			)
		})
	}
	return nil
}

// drop gives back what a call that is not handled holds.
func (k *Call) drop() {
	k.cancel()
	k.release()
}

// release gives back the room of a large request; before the answer, so that the client finds
// it when it sends the next.
func (k *Call) release() {
	if k.size > 0 {
		k.conn.server.cfg.Table.Give(k.conn.party, k.size)
	}
	k.size = 0
}

// work handles a call and then those that wait.
func (c *conn) work(call *Call) {
	for call != nil {
		c.serve(call)
		c.mu.Lock()
		delete(c.calls, call.id)
		call = nil
		if len(c.queue) > 0 {
			call, c.queue = c.queue[0], c.queue[1:]
		} else {
			c.workers--
		}
		idle := c.draining && len(c.calls) == 0
		c.mu.Unlock()
		if idle {
			c.finish()
		}
	}
}

// serve handles one call to its end.
func (c *conn) serve(call *Call) {
	defer call.drop()
	err := call.ctx.Err() // it may have been cancelled while it waited
	if err == nil {
		err = c.invoke(call)
	}
	if call.over {
		return
	}
	call.release()
	frame := framed.Frame{
		Kind: framed.End, ID: call.id, Err: rpcstatus.Convert(err, c.server.cfg.Errors),
	}
	c.send(call.ctx, &frame)
}

// invoke runs the handler; a panic in it ends the call, not the server.
func (c *conn) invoke(call *Call) (err error) {
	defer func() {
		if p := recover(); p != nil {
			c.server.cfg.Log.Error(
				"handler panicked",
				"method",
				call.Method,
				"peer",
				call.Peer.String(),
				"panic",
				p,
				"stack",
				string(debug.Stack()),
			)
			err = rpcstatus.New(
				rpcstatus.Internal,
				"%s: internal error; the server's log has the details",
				call.Method,
			)
		}
	}()
	call.Peer = c.peer
	ctx := identity.WithAddress(call.ctx, c.net.RemoteAddr())
	if admit := c.server.cfg.Admit; admit != nil {
		call.Peer, err = admit(ctx, c.peer, call.Header)
		if err != nil {
			if refused := c.server.cfg.Refused; refused != nil {
				refused(ctx, c.peer, call.Method, err)
			}
			return err
		}
	}
	// An attested user has a bucket of his own, beside that of his login host.
	if table := c.server.cfg.Table; !table.Call(table.PartyOf(call.Peer, c.net.RemoteAddr())) {
		return spec.Refuse(spec.CodeBackoff, "")
	}
	return c.server.cfg.Handler(identity.With(ctx, call.Peer), call)
}

// refuse answers a request that is not handled.
func (c *conn) refuse(id uint64, why *rpcstatus.Error) {
	c.send(c.ctx, &framed.Frame{Kind: framed.End, ID: id, Err: why})
}

// send sends the end of a call. It must reach the client also when the call's own time is over,
// so only the connection bounds it.
func (c *conn) send(ctx context.Context, frame *framed.Frame) {
	if err := c.out.Write(context.WithoutCancel(ctx), frame); err != nil {
		c.server.cfg.Log.Debug("answer not sent", "peer", c.peer.String(), "error", err)
	}
}

// busy reports that calls are under way, so that the connection is not idle.
func (c *conn) busy() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls) > 0
}

// drainCalls stops taking calls, tells the client, and closes the connection when the last call has
// ended.
func (c *conn) drainCalls(ctx context.Context) {
	c.mu.Lock()
	if c.draining {
		c.mu.Unlock()
		return
	}
	c.draining = true
	last, idle := c.last, len(c.calls) == 0
	c.mu.Unlock()
	if err := c.out.Write(ctx, &framed.Frame{Kind: framed.Drain, ID: last}); err != nil || idle {
		c.finish()
	}
}

// finish closes the connection once everything written is on its way.
func (c *conn) finish() {
	if err := c.out.Flush(c.ctx); err != nil {
		c.server.cfg.Log.Debug("last answers not sent", "peer", c.peer.String(), "error", err)
	}
	c.out.Close(ErrStopped)
}

// Reply sends the one answer of a call, which ends it.
func (k *Call) Reply(payload []byte) error { return k.reply(framed.Frame{Payload: payload}) }

// ReplyWith is Reply with a function that appends the answer to a buffer, which saves a copy.
func (k *Call) ReplyWith(encode func(b []byte) ([]byte, error)) error {
	return k.reply(framed.Frame{Encode: encode})
}

func (k *Call) reply(frame framed.Frame) error {
	if k.over {
		return errors.New("serve: the call has ended")
	}
	k.release()
	frame.Kind = framed.Message
	frame.ID = k.id
	frame.Last = true
	if err := k.conn.out.Write(context.WithoutCancel(k.ctx), &frame); err != nil {
		return unsendable(err)
	}
	k.over = true
	return nil
}

// Send sends one of several messages. It waits while the client has not consumed enough of the
// earlier ones, until the call's end.
func (k *Call) Send(payload []byte) error {
	if k.over {
		return errors.New("serve: the call has ended")
	}
	for !k.spend(framed.Cost(len(payload))) {
		select {
		case <-k.credit:
		case <-k.ctx.Done():
			return k.ctx.Err()
		}
	}
	return unsendable(
		k.conn.out.Write(k.ctx, &framed.Frame{Kind: framed.Message, ID: k.id, Payload: payload}),
	)
}

// spend counts a message against the window; one message may exceed it, so that large ones pass
// at all.
func (k *Call) spend(cost uint64) bool {
	k.conn.mu.Lock()
	defer k.conn.mu.Unlock()
	if k.unacked >= max(k.window, 1) {
		return false
	}
	k.unacked += cost
	return true
}

func unsendable(err error) error {
	if errors.Is(err, framed.ErrEncode) {
		return rpcstatus.New(rpcstatus.Internal, "the answer cannot be sent: %v", err)
	}
	if errors.Is(err, framed.ErrTooLarge) {
		return rpcstatus.New(
			rpcstatus.ResourceExhausted,
			"the answer cannot be sent: %v: ask for less",
			err,
		)
	}
	return err
}
