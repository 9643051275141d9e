package doors

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/musterhpc/muster/controller/callers"
	"github.com/musterhpc/muster/internal/parts"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/limit"
	"github.com/musterhpc/muster/internal/transport/rest"
)

// maxHeaders is how large the headers of a request may be.
const maxHeaders = 64 << 10

// REST is the API as JSON, over TLS and on this host's socket.
type REST struct {
	Address Address
	Socket  string
	Gateway http.Handler
	TLS     *tls.Config
	Limits  *limit.Table      // of the connections
	Names   identity.Resolver // of those who come over the socket
}

// serveOn serves the gateway on a port and on this host's socket.
func (r *REST) serveOn(group *parts.Group, secure, local net.Listener) {
	server := GatewayServer(group.Context(), r.Gateway, r.TLS)
	spawnServer := func(name string, serve func() error) {
		group.Spawn(name, func(context.Context) error {
			if err := serve(); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve: %w", err)
			}
			return nil
		})
	}
	spawnServer("REST", func() error {
		return server.ServeTLS(&rest.Listener{Listener: secure, Table: r.Limits}, "", "")
	})
	spawnServer("REST socket", func() error {
		return server.Serve(&rest.Listener{Listener: local, Table: r.Limits, Names: r.Names})
	})
	stopLater(group, "stop REST", server)
}

// GatewayServer serves the gateway. How long a body may take the gateway says
// itself: a deadline of the server would end long answers too.
func GatewayServer(ctx context.Context, gateway http.Handler, config *tls.Config) *http.Server {
	return &http.Server{
		Handler:           gateway,
		TLSConfig:         config,
		MaxHeaderBytes:    maxHeaders,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       30 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if accepted, ok := c.(*rest.Conn); ok && accepted.Peer.IsUser() {
				return callers.WithPeer(ctx, accepted.Peer)
			}
			return ctx
		},
	}
}

// Console is the web console.
type Console struct {
	Address Address
	Pages   http.Handler
	TLS     *tls.Config
	// Beside are the parts that keep the pages up to date, by name.
	Beside map[string]func(context.Context) error
}

// serveOn serves the console on a listener.
func (c *Console) serveOn(group *parts.Group, open net.Listener) {
	server := &http.Server{
		Handler:           c.Pages,
		TLSConfig:         c.TLS,
		MaxHeaderBytes:    maxHeaders,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		BaseContext:       func(net.Listener) context.Context { return group.Context() },
	}
	serve := func() error { return server.ServeTLS(open, "", "") }
	if isLocal(open.Addr()) {
		serve = func() error { return server.Serve(open) }
	}
	group.Spawn("console", func(context.Context) error {
		if err := serve(); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	for name, part := range c.Beside {
		group.Spawn(name, part)
	}
	stopLater(group, "stop console", server)
}

// isLocal tells an address that only this machine reaches, where nobody else
// can listen in and plain HTTP will do.
func isLocal(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && tcp.IP.IsLoopback()
}
