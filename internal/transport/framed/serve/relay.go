// The relay forwards framed calls of local users to the controller: what the agent of a login host
// or a node does, so that tools there need no certificate. It attests who the user is by the
// kernel's word about the local socket; the controller decides what that attestation is worth.
// Payloads are passed on unread.

package serve

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/spec"
)

// crowd is how many calls may be under way on a connection before another is opened: the controller handles so many of one
// connection at a time (Limits.ActiveCalls), and those who watch a job are there for as long as it runs.
const crowd = 128

// Relay is a Handler over connections to the controller, which it opens when they are first needed, and again when they broke
// or are crowded.
type Relay struct {
	opts RelayOptions

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
	calls   int         // under way; guarded by Relay.mu
	asker   framed.Pair // of the last call; guarded by Relay.mu
	dropped bool        // closed when the last call has ended; guarded by Relay.mu
	silent  atomic.Bool // closed because the controller answered nothing
}

// attempt is one attempt to reach the controller, shared by everybody who waits for it.
type attempt struct {
	done   chan struct{}
	cancel context.CancelFunc
	vain   bool      // the connection is not wanted any more; guarded by Relay.mu
	conn   *upstream // after done; nil = err
	err    error
}

// dialPatience bounds one attempt to connect: a controller whose host is gone answers nothing, and
// the callers that wait for the connection would wait as long as TCP does.
const dialPatience = 10 * time.Second

// RelayOptions are what a relay needs. Dial is required.
type RelayOptions struct {
	// Dial opens a secure connection to the controller that leads, with the ALPN protocol framed.ALPN.
	Dial func(ctx context.Context) (net.Conn, error)
	// Patience is how long a call is tried anew while no controller takes it; 0 = not at all.
	Patience time.Duration
	// Again gives the request with which a call may be repeated of which nobody knows whether it was carried out, and
	// false for one that must not be. nil = none may.
	Again func(method string, payload []byte) ([]byte, bool)
	// Told says that somebody calls Reset when the controller is lost. Then probes are not passed on to a
	// controller that may be stopped: the call beside them waits for the next one.
	Told bool
	// Silent hears of a connection that was closed because its controller does not even answer a ping. Its
	// process may be stopped, so Dial tries the next one. Where it is set the relay itself watches the
	// controller, and answers the probes of callers. nil = the callers watch, and give up.
	Silent func()
}

// How often a controller is pinged while calls wait for it, and how long it may take to answer: together
// what its clients allow a controller (see package client).
const (
	pingPeriod   = 5 * time.Second
	pingPatience = 5 * time.Second
	methodPing   = "/muster.v1.Cluster/Ping"
)

// The pauses between two attempts of a call, doubled from the first to the longest.
const (
	firstPause   = 20 * time.Millisecond
	longestPause = 200 * time.Millisecond
)

// NewRelay makes a relay.
func NewRelay(opts RelayOptions) *Relay {
	ctx, cancel := context.WithCancel(context.Background())
	return &Relay{opts: opts, ctx: ctx, cancel: cancel}
}

// Handle implements Handler.
func (r *Relay) Handle(ctx context.Context, call *Call) error {
	if call.Peer.Kind != identity.LocalUser {
		return rpcstatus.New(
			rpcstatus.PermissionDenied,
			"only local users are relayed, not %s",
			call.Peer,
		)
	}
	if _, ok := call.Header(framed.HeaderAttest); ok {
		return rpcstatus.New(rpcstatus.PermissionDenied, "%s may not speak for others", call.Peer)
	}
	if _, probe := call.Header(framed.HeaderProbe); probe && r.answersProbes() {
		return unavailable("this relay works")
	}
	request := RelayCall{
		Method:  call.Method,
		Payload: call.Payload,
		For:     framed.Attest(call.Peer.UID, call.Peer.GID),
	}
	if token, given := call.Header(framed.HeaderToken); given {
		request.For = framed.Pair{Key: framed.HeaderToken, Value: token}
	}
	return r.Forward(ctx, request, call.Send)
}

// answersProbes tells whether a probe is for the relay itself: it looks after the call beside it.
func (r *Relay) answersProbes() bool {
	return r.opts.Told || r.opts.Silent != nil || !r.isConnected()
}

// RelayCall is a call that is passed on.
type RelayCall struct {
	Method  string
	Payload []byte
	// For says whose call it is: framed.Attest of a user for whom this host vouches, or his token, which
	// the controller reads.
	For framed.Pair
}

// Forward passes a call on and gives the messages of its answer to send.
func (r *Relay) Forward(ctx context.Context, request RelayCall, send func([]byte) error) error {
	pause := firstPause
	var until time.Time
	for {
		up, answered, err := r.once(ctx, request, send)
		if err == nil || answered || r.opts.Patience == 0 {
			return err
		}
		again, repeat := r.again(request.Method, request.Payload, err)
		if !repeat {
			return err
		}
		request.Payload = again
		if up != nil {
			r.drop(up) // its controller leads no longer, or is gone
		}
		now := time.Now()
		if until.IsZero() {
			until = now.Add(r.opts.Patience)
		}
		if now.After(until) {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return err
		case <-r.ctx.Done():
			return err
		}
		pause = min(2*pause, longestPause)
	}
}

// once passes a call on. answered tells that the caller has been given a part of the answer, after which it cannot be repeated.
func (r *Relay) once(
	ctx context.Context,
	request RelayCall,
	send func([]byte) error,
) (up *upstream, answered bool, err error) {
	up, err = r.upstream(ctx, request.For)
	if err != nil {
		return nil, false, err
	}
	defer r.leave(up)
	defer func() {
		if err != nil && up.silent.Load() {
			err = silentController()
		}
	}()
	call, err := up.SendRequest(ctx, &framed.Frame{
		Method:  request.Method,
		Header:  []framed.Pair{request.For},
		Payload: request.Payload,
	})
	if err != nil {
		return up, false, err
	}
	defer call.Cancel()
	for {
		message, err := call.Recv()
		if errors.Is(err, io.EOF) {
			return up, true, nil
		}
		if err != nil {
			return up, answered, err
		}
		answered = true
		if err := send(message); err != nil {
			return up, true, err
		}
	}
}

// again gives the request for another attempt after an error. A call that no controller has looked at may always be repeated.
func (r *Relay) again(method string, payload []byte, err error) ([]byte, bool) {
	var st *rpcstatus.Error
	if !errors.As(err, &st) {
		return nil, false
	}
	outcome, _ := st.Detail(framed.DetailOutcome)
	refusal := st.Refusal()
	switch {
	case outcome == framed.OutcomeNotSent:
		return payload, true
	case refusal != nil && (refusal.Kind == spec.CodeNotLeader || refusal.Kind == spec.CodeStopping):
		return payload, true
	case outcome == framed.OutcomeUnknown,
		refusal != nil && refusal.Kind == spec.CodeOutcomeUnknown:
		if r.opts.Again != nil {
			return r.opts.Again(method, payload)
		}
	}
	return nil, false
}

// isConnected tells whether a call would find a connection.
func (r *Relay) isConnected() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.conns, func(c *upstream) bool { return c.Usable() })
}

// drop keeps further calls off a connection. Those under way end as they will.
func (r *Relay) drop(c *upstream) {
	r.mu.Lock()
	r.conns = slices.DeleteFunc(r.conns, func(other *upstream) bool { return other == c })
	idle := c.calls == 0
	c.dropped = true
	r.mu.Unlock()
	if idle {
		_ = c.Close()
	}
}

// upstream returns a connection to the controller with room for a call, which leave takes off it again. Calls that come while one
// is being opened wait for it, each for its own time.
func (r *Relay) upstream(ctx context.Context, asker framed.Pair) (*upstream, error) {
	for {
		r.mu.Lock()
		if r.closed {
			r.mu.Unlock()
			return nil, unavailable("the agent is shutting down")
		}
		for _, c := range r.conns {
			if c.calls < crowd && c.Usable() {
				c.calls++
				c.asker = asker
				r.mu.Unlock()
				return c, nil
			}
		}
		a := r.opening
		if a == nil {
			dialing, cancel := context.WithTimeout(r.ctx, dialPatience)
			a = &attempt{done: make(chan struct{}), cancel: cancel}
			r.opening = a
			r.wg.Go(func() { r.open(dialing, a) })
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
			a.conn.asker = asker
			r.mu.Unlock()
			return a.conn, nil
		}
		r.mu.Unlock()
	}
}

func (r *Relay) leave(c *upstream) {
	r.mu.Lock()
	c.calls--
	over := c.dropped && c.calls == 0
	r.mu.Unlock()
	if over {
		_ = c.Close()
	}
}

// open dials, under the relay's own time: the caller that began it may go away.
func (r *Relay) open(ctx context.Context, a *attempt) {
	defer a.cancel()
	defer close(a.done)
	nc, err := r.opts.Dial(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.opening == a {
		r.opening = nil
	}
	switch {
	case err == nil && a.vain:
		nc.Close()
		a.err = unavailable("another controller leads now")
	case err != nil:
		a.err = unavailable("the agent cannot reach the controller: %v", err)
	case r.closed:
		nc.Close()
		a.err = unavailable("the agent is shutting down")
	default:
		a.conn = &upstream{Conn: framed.NewConn(nc, framed.Preface)}
		r.conns = append(slices.DeleteFunc(r.conns, ended), a.conn)
		if r.opts.Silent != nil {
			conn := a.conn
			r.wg.Go(func() { r.watch(conn) })
		}
	}
}

// watch closes a connection whose controller answers nothing while calls wait for it, so that they go to
// the next controller. The kernel of a stopped controller acknowledges what is sent, hence TCP does not
// notice.
func (r *Relay) watch(c *upstream) {
	tick := time.NewTicker(pingPeriod)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-c.Done():
			return
		case <-r.ctx.Done():
			return
		}
		r.mu.Lock()
		waiting := c.calls > 0
		asker := c.asker
		r.mu.Unlock()
		if !waiting || r.answersPing(c, asker) {
			continue
		}
		c.silent.Store(true)
		r.opts.Silent()
		r.drop(c)
		_ = c.Close()
		return
	}
}

// answersPing tells whether a controller answers anything; a refusal is an answer.
func (r *Relay) answersPing(c *upstream, asker framed.Pair) bool {
	ctx, cancel := context.WithTimeout(r.ctx, pingPatience)
	defer cancel()
	_, err := c.Invoke(ctx, methodPing, nil, asker)
	return err == nil || !errors.Is(ctx.Err(), context.DeadlineExceeded)
}

// silentController is the error of calls that waited for a controller that answered nothing.
func silentController() error {
	e := rpcstatus.New(
		rpcstatus.Unavailable,
		"the controller has not answered for %s: its process may be stopped",
		pingPeriod+pingPatience,
	)
	e.Details = []rpcstatus.Detail{{Key: framed.DetailOutcome, Value: framed.OutcomeUnknown}}
	return e
}

func ended(c *upstream) bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}

func unavailable(format string, args ...any) *rpcstatus.Error {
	e := rpcstatus.New(rpcstatus.Unavailable, format, args...)
	e.Details = []rpcstatus.Detail{{Key: framed.DetailOutcome, Value: framed.OutcomeNotSent}}
	return e
}

// Reset ends the connections to the controller and opens new ones when they are needed. What became of the calls under way is
// not known. A connection that is being opened is given up too: a controller that is stopped takes it and never answers.
func (r *Relay) Reset() {
	r.mu.Lock()
	conns := r.conns
	r.conns = nil
	if a := r.opening; a != nil {
		a.vain = true
		a.cancel()
		r.opening = nil
	}
	for _, c := range conns {
		c.dropped = true
	}
	r.mu.Unlock()
	for _, c := range conns {
		_ = c.Close()
	}
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
