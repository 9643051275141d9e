package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"google.golang.org/grpc"

	"github.com/musterhpc/muster/controller/callers"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/listen"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/internal/transport/rest"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
)

// registrars registers a service in several places.
type registrars []grpc.ServiceRegistrar

// RegisterService implements grpc.ServiceRegistrar.
func (r registrars) RegisterService(desc *grpc.ServiceDesc, impl any) {
	for _, one := range r {
		one.RegisterService(desc, impl)
	}
}

// newGateway is the API as JSON over HTTP, without its services.
func (s *server) newGateway(source *pki.Source) *rest.Gateway {
	admission := &channel.Admission{Revoked: s.revokedSerial(source), Now: time.Now}
	return rest.New(
		rest.Config{
			Errors:   rpcstatus.Numbers(),
			Unary:    s.aroundUnary(),
			Stream:   s.aroundStream(),
			Table:    s.limits,
			Version:  "v1",
			Log:      s.log,
			Refused:  s.trail.NotIdentified,
			Identify: func(r *http.Request) (identity.Identity, error) { return s.callers().WebIdentity(r, admission) },
		},
	)
}

// gatewayServer serves the gateway. How long a body may take the gateway says
// itself: a deadline of the server would end long answers too.
func gatewayServer(ctx context.Context, gateway http.Handler, cfg *tls.Config) *http.Server {
	return &http.Server{
		Handler: gateway, TLSConfig: cfg, MaxHeaderBytes: 64 << 10,
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 30 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if accepted, ok := c.(*rest.Conn); ok && accepted.Peer.IsUser() {
				return callers.WithPeer(ctx, accepted.Peer)
			}
			return ctx
		},
	}
}

// serveREST opens the two ways to the gateway and serves on them.
func (d doors) serveREST(
	g *group,
	tcp func(key string, addr conffile.Addr) (net.Listener, error),
) error {
	if d.gateway == nil || d.rest.Off() {
		return nil
	}
	secure, err := tcp("listen.rest", d.rest)
	if err != nil {
		return err
	}
	local, err := listen.Unix(d.restSocket, 0o666)
	if err != nil {
		return err
	}
	srv := gatewayServer(g.ctx, d.gateway, d.gatewayTLS)
	for name, serve := range map[string]func() error{
		"REST":        func() error { return srv.ServeTLS(&rest.Listener{Listener: secure, Table: d.limits}, "", "") },
		"REST socket": func() error { return srv.Serve(&rest.Listener{Listener: local, Table: d.limits, Names: d.names}) },
	} {
		g.spawnPart(name, func(context.Context) error {
			if err := serve(); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve: %w", err)
			}
			return nil
		})
	}
	g.spawnPart("stop REST", func(ctx context.Context) error {
		<-ctx.Done()
		stop, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		return srv.Shutdown(stop)
	})
	return nil
}
