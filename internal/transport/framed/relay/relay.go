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

// Relay is a serve.Handler over one connection to the controller, which it opens when it is first needed and again when it broke.
type Relay struct {
	dial func(ctx context.Context) (net.Conn, error)

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // the goroutine that dials

	mu      sync.Mutex
	conn    *framed.Conn   // the newest
	older   []*framed.Conn // which may still have calls under way
	opening *attempt       // nil = nobody dials
	closed  bool
}

// attempt is one attempt to reach the controller, shared by everybody who waits for it.
type attempt struct {
	done chan struct{}
	conn *framed.Conn // after done; nil = err
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

// upstream returns the connection to the controller. Calls that come while it is being opened wait for it, each for its own time.
func (r *Relay) upstream(ctx context.Context) (*framed.Conn, error) {
	r.mu.Lock()
	if r.closed {
		r.mu.Unlock()
		return nil, unavailable("the agent is shutting down")
	}
	if r.conn != nil && r.conn.Usable() {
		defer r.mu.Unlock()
		return r.conn, nil
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
		return a.conn, a.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
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
		r.older = slices.DeleteFunc(r.older, ended)
		if r.conn != nil {
			r.older = append(r.older, r.conn)
		}
		r.conn = framed.NewConn(nc, framed.Preface)
		a.conn = r.conn
	}
}

func ended(c *framed.Conn) bool {
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
	conns := r.older
	if r.conn != nil {
		conns = append(conns, r.conn)
	}
	r.mu.Unlock()
	r.cancel()
	r.wg.Wait()
	var errs []error
	for _, c := range conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}
