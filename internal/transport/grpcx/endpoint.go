package grpcx

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"

	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/framed/serve"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/limit"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
)

// Bounds and times of gRPC connections.
const (
	MaxMessage    = framed.MaxFrame
	maxStreams    = 256 // calls at a time on one connection
	maxHeaderList = 64 << 10
	// How often a client that hears nothing pings its server, and how long that may take to answer. A
	// process that is stopped keeps its connections, and its kernel acknowledges what is sent: agents
	// notice by this alone. gRPC lets clients ping every 10 s at most.
	pingEvery    = 10 * time.Second
	pingPatience = 5 * time.Second
	// What servers allow is more often than clients ping: clocks and networks are not exact, and
	// gRPC ends connections of clients that ping too often.
	fastestPing = 5 * time.Second
	// Servers ask less often: an agent's silence is noticed by its heartbeats.
	serverPingEvery    = 30 * time.Second
	serverPingPatience = 15 * time.Second
	windowSize         = 1 << 20
	handshakeTimeout   = 10 * time.Second
)

// EndpointConfig is what an Endpoint needs.
type EndpointConfig struct {
	Channel *channel.Server // required: how peers are authenticated
	Admit   Admit           // who is asking, per call
	// Refused hears of calls whose caller Admit refused; nil = nobody does.
	Refused func(ctx context.Context, channel identity.Identity, method string, err error)
	Errors  rpcstatus.Table // how handlers' errors are classified; see rpcstatus.Numbers
	Limits  serve.Limits    // of the framed protocol
	Table   *limit.Table    // what each party may hold, over both protocols; nil = limit.Defaults
	Unary   []grpc.UnaryServerInterceptor
	Stream  []grpc.StreamServerInterceptor // run inside identity and recovery, for both protocols
	Options []grpc.ServerOption            // further options of the gRPC server
	Log     *slog.Logger                   // nil = slog.Default()
}

// Endpoint serves registered services over gRPC and over the framed protocol, on any number of
// listeners, unix and TCP; which of the two a client speaks is found out on each connection.
type Endpoint struct {
	grpc     *grpc.Server
	framed   *serve.Server
	registry *Registry
	conns    *table // of gRPC
}

var _ grpc.ServiceRegistrar = (*Endpoint)(nil)

// NewEndpoint makes an endpoint.
func NewEndpoint(config EndpointConfig) (*Endpoint, error) {
	if config.Channel == nil {
		return nil, errors.New("grpcx: no channel.Server")
	}
	if config.Log == nil {
		config.Log = slog.Default()
	}
	if config.Table == nil {
		config.Table = limit.New(
			limit.Config{
				UserConnections:    config.Limits.ConnsPerPeer,
				MachineConnections: config.Limits.ConnsPerPeer,
			},
			time.Now,
		)
	}
	registry := NewRegistry(config.Unary, config.Stream)
	server, err := serve.New(
		serve.Config{
			Handler:      registry.Handle,
			Authenticate: config.Channel.Authenticate,
			Admit:        config.Admit,
			Refused:      config.Refused,
			Errors:       config.Errors,
			Limits:       config.Limits,
			Table:        config.Table,
			Log:          config.Log,
		},
	)
	if err != nil {
		return nil, err
	}
	conns := newTable(config.Table)
	creds := newServerCredentials(config.Channel, server.ServeConn, handshakeTimeout, conns)
	g := guard{
		admit:   config.Admit,
		refused: config.Refused,
		table:   config.Errors,
		limits:  config.Table,
		log:     config.Log,
	}
	options := append([]grpc.ServerOption{
		grpc.Creds(creds),
		grpc.ChainUnaryInterceptor(
			append([]grpc.UnaryServerInterceptor{g.interceptUnary}, config.Unary...)...),
		grpc.ChainStreamInterceptor(
			append([]grpc.StreamServerInterceptor{g.interceptStream}, config.Stream...)...),
		grpc.MaxRecvMsgSize(MaxMessage), grpc.MaxSendMsgSize(MaxMessage),
		grpc.MaxConcurrentStreams(maxStreams), grpc.MaxHeaderListSize(maxHeaderList),
		grpc.InitialWindowSize(windowSize), grpc.InitialConnWindowSize(4 * windowSize),
		grpc.ConnectionTimeout(2 * handshakeTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: serverPingEvery, Timeout: serverPingPatience}),
		grpc.KeepaliveEnforcementPolicy(
			keepalive.EnforcementPolicy{MinTime: fastestPing, PermitWithoutStream: true},
		),
		grpc.WaitForHandlers(true),
		grpc.InTapHandle(g.refuseEarly),
	}, config.Options...)
	return &Endpoint{
		grpc:     grpc.NewServer(options...),
		framed:   server,
		registry: registry,
		conns:    conns,
	}, nil
}

// RegisterService implements grpc.ServiceRegistrar: generated RegisterXServer functions take an
// Endpoint. Register before Serve.
func (e *Endpoint) RegisterService(desc *grpc.ServiceDesc, impl any) {
	e.grpc.RegisterService(desc, impl)
	e.registry.RegisterService(desc, impl)
}

// Serve accepts connections from listener until the endpoint stops (nil) or the listener fails. It
// closes listener. It may be called for several listeners.
func (e *Endpoint) Serve(listener net.Listener) error {
	if err := e.grpc.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve on %s: %w", listener.Addr(), err)
	}
	return nil
}

// Shutdown takes no further connections and calls and waits for those under way; streams that
// last for ever must be ended by their handlers, which learn of it by other means. When ctx is
// over first, everything is closed and ctx's error returned.
func (e *Endpoint) Shutdown(ctx context.Context) error {
	var wg sync.WaitGroup
	var framedErr error
	wg.Go(func() { framedErr = e.framed.Shutdown(ctx) })
	stop := context.AfterFunc(ctx, e.grpc.Stop)
	e.grpc.GracefulStop()
	stop()
	wg.Wait()
	return errors.Join(framedErr, ctx.Err())
}

// Close ends everything at once.
func (e *Endpoint) Close() {
	e.framed.Close()
	e.grpc.Stop()
}

// Disconnect closes the connections whose channel identity matches, calls and streams on them
// included, and returns how many: after a revocation. New calls of a revoked peer are refused
// without it, but a stream that is open was admitted when it began.
func (e *Endpoint) Disconnect(match func(identity.Identity) bool) int {
	return e.framed.Disconnect(match) + e.conns.disconnectMatching(match)
}
