// Package serve is the server's side of the framed protocol on plain bytes: Server takes connections
// and hands calls to a Handler, and Relay is a Handler that passes them on to another server. It
// knows neither protobuf nor gRPC; grpcx.Registry puts gRPC service descriptions on top. It is apart
// from framed because it links crypto/x509, which a command would pay for at each start.
//
// Each connection has one goroutine that reads, and one for each call that is being handled, up to a bound; further calls wait in
// a bounded queue, and beyond that are refused. Nothing a client does (sending slowly, not reading, opening many connections,
// announcing large frames) holds memory or goroutines beyond Limits.
package serve

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/limit"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
)

// Handler handles one call: it sends messages with Call.Send or Call.Reply and returns the call's end. It runs in its own
// goroutine; ctx ends with the caller's deadline, when the caller gives up or is gone, and when the server is closed.
type Handler func(ctx context.Context, call *Call) error

// Limits bounds what clients can make the server hold. A zero field takes the value of DefaultLimits.
type Limits struct {
	Conns        int           // connections
	ConnsPerPeer int           // connections of one party; without Config.Table
	ActiveCalls  int           // calls of one connection that are being handled
	QueuedCalls  int           // calls of one connection that wait to be handled
	SmallFrame   int           // bytes up to which buffers are kept for reuse
	Buffered     int64         // bytes of requests, all connections together; without Config.Table
	Unsent       int           // bytes of answers that wait for one client to read
	Handshake    time.Duration // from accepting a connection to the end of authentication and preface
	Frame        time.Duration // from a frame's first byte to its last
	Idle         time.Duration // without a call
	Write        time.Duration // for a client to take the next piece of an answer
}

// DefaultLimits are meant for a controller.
func DefaultLimits() Limits {
	return Limits{
		Conns:        16384,
		ConnsPerPeer: 2048,
		ActiveCalls:  256,
		QueuedCalls:  4096,
		SmallFrame:   64 << 10,
		Buffered:     256 << 20,
		Unsent:       512 << 10,
		Handshake:    10 * time.Second,
		Frame:        30 * time.Second,
		Idle:         10 * time.Minute,
		Write:        30 * time.Second,
	}
}

func pick[T int | int64 | time.Duration](set *T, fallback T) {
	if *set <= 0 {
		*set = fallback
	}
}

func (l Limits) withDefaults() Limits {
	d := DefaultLimits()
	pick(&l.Conns, d.Conns)
	pick(&l.ConnsPerPeer, d.ConnsPerPeer)
	pick(&l.ActiveCalls, d.ActiveCalls)
	pick(&l.QueuedCalls, d.QueuedCalls)
	pick(&l.SmallFrame, d.SmallFrame)
	pick(&l.Buffered, d.Buffered)
	pick(&l.Unsent, d.Unsent)
	pick(&l.Handshake, d.Handshake)
	pick(&l.Frame, d.Frame)
	pick(&l.Idle, d.Idle)
	pick(&l.Write, d.Write)
	return l
}

// Config is what a Server needs.
type Config struct {
	Handler Handler // required
	// Authenticate makes an accepted connection into one whose peer is known; it must obey ctx. Required for Serve; ServeConn's
	// connections are authenticated already.
	Authenticate func(ctx context.Context, raw net.Conn) (net.Conn, identity.Identity, error)
	// Admit decides for each call who is asking, from the channel's identity and the call's headers: it checks that the
	// certificate is still good, and turns an attestation into a user. nil = the channel's identity as it is.
	Admit func(ctx context.Context, channel identity.Identity, header func(key string) (string, bool)) (identity.Identity, error)
	// Refused hears of calls whose caller Admit refused; nil = nobody does.
	Refused func(ctx context.Context, channel identity.Identity, method string, err error)
	Errors  rpcstatus.Table // how handlers' errors are classified
	Limits  Limits
	// Table counts what each party holds, together with the other protocols of
	// the process. nil = a table of this server's own, made of Limits.
	Table *limit.Table
	Log   *slog.Logger // nil = slog.Default()
}

// tableOf makes the table of a server that shares none: every party may have as
// much as the whole server.
func tableOf(limits Limits) *limit.Table {
	return limit.New(
		limit.Config{
			UserConnections:    limits.ConnsPerPeer,
			MachineConnections: limits.ConnsPerPeer,
			AddressConnections: limits.ConnsPerPeer,
			UserBytes:          limits.Buffered,
			MachineBytes:       limits.Buffered,
			AllBytes:           limits.Buffered,
		},
		time.Now,
	)
}

// New makes a server.
func New(config Config) (*Server, error) {
	if config.Handler == nil {
		return nil, errors.New("serve: no handler")
	}
	config.Limits = config.Limits.withDefaults()
	if config.Log == nil {
		config.Log = slog.Default()
	}
	if config.Table == nil {
		config.Table = tableOf(config.Limits)
	}
	ctx, cancel := context.WithCancel(context.Background())
	return &Server{
		cfg: config, ctx: ctx, cancel: cancel,
		listeners: make(map[net.Listener]struct{}), conns: make(map[*conn]struct{}),
	}, nil
}

// Call is one call as its handler sees it.
type Call struct {
	Method  string // "/package.Service/Method"
	Payload []byte // the request; the handler may keep it unless it calls Recycle
	Peer    identity.Identity

	conn   *conn
	id     uint64
	window uint64
	header []framed.Pair
	size   int64  // bytes counted against the connection's party
	raw    []byte // what Payload lies in

	ctx     context.Context
	cancel  context.CancelFunc
	credit  chan struct{} // one element when credit has come in
	unacked uint64        // guarded by conn.mu: cost sent less cost credited
	over    bool          // the handler's own: the end has been sent
}

// Header returns the value of a header of the request.
func (c *Call) Header(key string) (string, bool) {
	for _, pair := range c.header {
		if pair.Key == key {
			return pair.Value, true
		}
	}
	return "", false
}
