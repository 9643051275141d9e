// Package client is the framed protocol's client for protobuf messages. It links no gRPC, no
// TLS and no resolver of user names, because it is part of commands whose whole life is a few
// milliseconds.
package client

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/protobuf/proto"

	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
)

// Target is where and how to connect.
type Target struct {
	Network string // "unix" or "tcp"
	Address string // socket path, or host:port
	// Secure makes the plain connection into a secure one, or fails and closes it; it must obey
	// ctx. Required for tcp: see pki.Source.
	Secure func(ctx context.Context, plain net.Conn) (net.Conn, error)
}

// Unix is the target of the local socket.
func Unix(path string) Target { return Target{Network: "unix", Address: path} }

// Client is a connection to one server. It is safe for several goroutines.
type Client struct {
	conn   *framed.Conn
	header []framed.Pair
	watch  Watch
}

// Dial connects. When the server cannot be reached the error is a *framed.StatusError with code
// Unavailable (DeadlineExceeded when ctx ran out) that names the target and the cause.
func Dial(ctx context.Context, target Target) (*Client, error) {
	if target.Network != "unix" && target.Secure == nil {
		return nil, fmt.Errorf(
			"dial %s: only the local socket may be used without TLS",
			target.Address,
		)
	}
	var d net.Dialer
	plain, err := d.DialContext(ctx, target.Network, target.Address)
	if err != nil {
		return nil, unreachable(ctx, target, err)
	}
	if target.Secure == nil {
		return New(plain), nil
	}
	secure, err := target.Secure(ctx, plain)
	if err != nil {
		plain.Close()
		return nil, unreachable(ctx, target, err)
	}
	return New(secure), nil
}

func unreachable(ctx context.Context, target Target, err error) error {
	e := rpcstatus.New(
		rpcstatus.Unavailable,
		"cannot reach the controller at %s: %v",
		target.Address,
		err,
	)
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		e.Wire = rpcstatus.DeadlineExceeded
	}
	e.Details = []rpcstatus.Detail{{Key: framed.DetailOutcome, Value: framed.OutcomeNotSent}}
	return e
}

// New makes a client of a connection that is open and secure.
func New(conn net.Conn) *Client {
	return &Client{conn: framed.NewConn(conn, framed.Preface), watch: controllerWatch}
}

// Watched returns a client on the same connection that gives up a silent server as watch says.
// Closing either closes both.
func (c *Client) Watched(watch Watch) *Client {
	watched := *c
	watched.watch = watch
	return &watched
}

// With returns a client on the same connection that sends these headers with every request.
// Closing either closes both.
func (c *Client) With(header ...framed.Pair) *Client {
	more := *c
	more.header = append(append([]framed.Pair(nil), c.header...), header...)
	return &more
}

// Close ends the connection.
func (c *Client) Close() error { return c.conn.Close() }

// Usable reports that calls can be started on the connection; otherwise dial again.
func (c *Client) Usable() bool { return c.conn.Usable() }

// Call makes one call and reads its answer into resp. Errors of the server and of the
// connection are *framed.StatusError; for the latter DetailOutcome says whether repeating is
// safe.
func (c *Client) Call(ctx context.Context, method string, request, resp proto.Message) error {
	pending, err := c.Start(ctx, method, request)
	if err != nil {
		return err
	}
	return pending.Wait(resp)
}

// Start sends a request and returns at once, so that one goroutine can have many on their way.
// Wait must be called.
func (c *Client) Start(
	ctx context.Context, method string, request proto.Message,
) (*Pending, error) {
	call, err := c.sendMessage(ctx, method, request)
	if err != nil {
		return nil, err
	}
	return &Pending{call: call, method: method}, nil
}

// sendMessage sends a request that is encoded where it is written, so that it is never copied.
func (c *Client) sendMessage(
	ctx context.Context,
	method string,
	request proto.Message,
) (*watchedCall, error) {
	encode := func(b []byte) ([]byte, error) {
		return proto.MarshalOptions{}.MarshalAppend(b, request)
	}
	return c.beginCall(ctx, &framed.Frame{Method: method, Header: c.header, Encode: encode})
}

// Pending is a call whose answer has not been read.
type Pending struct {
	call   *watchedCall
	method string
}

// Wait reads the answer into resp.
func (p *Pending) Wait(resp proto.Message) error {
	payload, err := p.call.awaitReply()
	if err != nil {
		return err
	}
	return decode(p.method, payload, resp)
}

// Stream makes a call that is answered by several messages. The receiver must be read to its
// end or closed.
func (c *Client) Stream(
	ctx context.Context, method string, request proto.Message,
) (*Receiver, error) {
	call, err := c.sendMessage(ctx, method, request)
	if err != nil {
		return nil, err
	}
	return &Receiver{call: call, method: method}, nil
}

// Receiver receives the messages of one call, in one goroutine.
type Receiver struct {
	call   *watchedCall
	method string
}

// Recv reads the next message into resp; io.EOF says that the stream ended with success.
func (r *Receiver) Recv(resp proto.Message) error {
	payload, err := r.call.receiveNext()
	if err != nil {
		return err
	}
	if err := decode(r.method, payload, resp); err != nil {
		r.call.cancelCall()
		return err
	}
	return nil
}

// Close gives the stream up. After the end it does nothing.
func (r *Receiver) Close() { r.call.cancelCall() }

func decode(method string, payload []byte, into proto.Message) error {
	if err := proto.Unmarshal(payload, into); err != nil {
		return unreadable(method, err)
	}
	return nil
}

func unreadable(method string, err error) error {
	return rpcstatus.New(rpcstatus.Internal, "%s: the server's answer cannot be read: %v", method, err)
}
