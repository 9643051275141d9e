// Package relay forwards framed calls of local users to the controller: what the agent of a login host or a node does, so that tools
// there need no certificate. It attests who the user is by the kernel's word about the local socket; the controller decides what
// that attestation is worth. Payloads are passed on unread.
package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/framed/serve"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/status"
)

// crowd is how many calls may be under way on a connection before another is opened: the controller handles so many of one
// connection at a time (serve.Limits.ActiveCalls), and those who watch a job are there for as long as it runs.
const crowd = 128

// Relay is a serve.Handler over connections to the controller, which it opens when they are first needed, and again when they broke
// or are crowded.
type Relay struct {
	dial func(ctx context.Context) (net.Conn, error)

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // the goroutine that dials

	mu      sync.Mutex
	conns   []*upstream // some may have ended, or take no more calls
	opening *attempt    // nil = nobody dials
	closed  bool
}

// upstream is a connection to the controller.
type upstream struct {
	*framed.Conn
	calls int // under way; guarded by Relay.mu
}

// attempt is one attempt to reach the controller, shared by everybody who waits for it.
type attempt struct {
	done chan struct{}
	conn *upstream // after done; nil = err
	err  error
}

const dialPatience = 10 * time.Second

// New makes a relay. dial opens a secure connection to the controller, with the ALPN protocol framed.ALPN.
func New(dial func(ctx context.Context) (net.Conn, error)) *Relay {
	ctx, cancel := context.WithCancel(context.Background())
	return &Relay{dial: dial, ctx: ctx, cancel: cancel}
}

// Handle implements serve.Handler.
func (r *Relay) Handle(ctx context.Context, call *serve.Call) error {
	if call.Peer.Kind != identity.LocalUser {
		return status.New(status.PermissionDenied, "only local users are relayed, not %s", call.Peer)
	}
	if _, ok := call.Header(framed.HeaderAttest); ok {
		return status.New(status.PermissionDenied, "%s may not speak for others", call.Peer)
	}
	up, err := r.upstream(ctx)
	if err != nil {
		return err
	}
	defer r.leave(up)
	out, err := up.Start(ctx, call.Method, call.Payload, framed.Attest(call.Peer.UID, call.Peer.GID))
	if err != nil {
		return err
	}
	defer out.Cancel()
	for {
		message, err := out.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := call.Send(message); err != nil {
			return err
		}
	}
}

// upstream returns a connection to the controller with room for a call, which leave takes off it again. Calls that come while one
// is being opened wait for it, each for its own time.
func (r *Relay) upstream(ctx context.Context) (*upstream, error) {
	for {
		r.mu.Lock()
		if r.closed {
			r.mu.Unlock()
			return nil, unavailable("the agent is shutting down")
		}
		for _, c := range r.conns {
			if c.calls < crowd && c.Usable() {
				c.calls++
				r.mu.Unlock()
				return c, nil
			}
		}
		a := r.opening
		if a == nil {
			a = &attempt{done: make(chan struct{})}
			r.opening = a
			r.wg.Go(func() { r.open(a) })
		}
		r.mu.Unlock()
		select {
		case <-a.done:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if a.err != nil {
			return nil, a.err
		}
		r.mu.Lock()
		if a.conn.calls < crowd { // also if it has ended at once: the call tells why
			a.conn.calls++
			r.mu.Unlock()
			return a.conn, nil
		}
		r.mu.Unlock()
	}
}

func (r *Relay) leave(c *upstream) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.calls--
}

// open dials, under the relay's own time: the caller that began it may go away.
func (r *Relay) open(a *attempt) {
	ctx, cancel := context.WithTimeout(r.ctx, dialPatience)
	defer cancel()
	defer close(a.done)
	nc, err := r.dial(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opening = nil
	switch {
	case err != nil:
		a.err = unavailable("the agent cannot reach the controller: %v", err)
	case r.closed:
		nc.Close()
		a.err = unavailable("the agent is shutting down")
	default:
		a.conn = &upstream{Conn: framed.NewConn(nc, framed.Preface)}
		r.conns = append(slices.DeleteFunc(r.conns, ended), a.conn)
	}
}

func ended(c *upstream) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

func unavailable(format string, args ...any) *status.Error {
	e := status.New(status.Unavailable, format, args...)
	e.Details = []status.Detail{{Key: framed.DetailOutcome, Value: framed.OutcomeNotSent}}
	return e
}

// Close ends the connections to the controller. Stop the server in front of the relay first.
func (r *Relay) Close() error {
	r.mu.Lock()
	r.closed = true
	conns := r.conns
	r.mu.Unlock()
	r.cancel()
	r.wg.Wait()
	var errs []error
	for _, c := range conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
