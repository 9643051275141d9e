package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/listen"
	"github.com/musterhpc/muster/internal/transport/mtls"
	"github.com/musterhpc/muster/internal/transport/rest"
	"github.com/musterhpc/muster/internal/transport/status"
)

// registrars registers a service in several places.
type registrars []grpc.ServiceRegistrar

// RegisterService implements grpc.ServiceRegistrar.
func (r registrars) RegisterService(desc *grpc.ServiceDesc, impl any) {
	for _, one := range r {
		one.RegisterService(desc, impl)
	}
}

// gateway is the API as JSON over HTTP, without its services.
func (s *server) gateway(source *mtls.Source) *rest.Gateway {
	admission := &channel.Admission{Revoked: s.revokedSerial(source), Now: time.Now}
	return rest.New(rest.Config{Errors: status.Numbers(), Unary: s.aroundUnary(), Stream: aroundStream(), Version: "v1", Log: s.log,
		Identify: func(r *http.Request) (identity.Identity, error) { return s.webIdentity(r, admission) }})
}

// webIdentity finds out who asks over HTTP: on this host's socket the kernel
// says it; over TLS a certificate or a token does.
func (s *server) webIdentity(r *http.Request, admission *channel.Admission) (identity.Identity, error) {
	token, given := bearer(r)
	if given {
		id, err := s.tokens.Verify(token)
		if err != nil {
			return id, status.New(status.Unauthenticated, "%v", err)
		}
		if id.Serial != "" && admission.Revoked(id.Serial) {
			return identity.Nameless(), status.New(status.Unauthenticated, "the token was made by way of a machine that has been sent away since: make a new one")
		}
		if r.URL.Path == "/v1/Cluster/CreateUserToken" { // else one that leaked would never end
			return identity.Nameless(), status.New(status.PermissionDenied, "a token makes no tokens: ask on the controller's host, or with a certificate")
		}
		return id, nil
	}
	if id, ok := r.Context().Value(peerKey{}).(identity.Identity); ok {
		return id, nil
	}
	if r.TLS != nil && len(r.TLS.VerifiedChains) > 0 {
		id, err := identity.FromCertificate(r.TLS.PeerCertificates[0], s.cluster.ClusterName)
		if err != nil {
			return id, status.New(status.Unauthenticated, "%v", err)
		}
		return admission.Admit(r.Context(), id, func(string) (string, bool) { return "", false })
	}
	return identity.Nameless(), status.New(status.Unauthenticated,
		"say who you are: Authorization: Bearer TOKEN (or X-SLURM-USER-TOKEN), with a token from scontrol token, or an administrator's certificate")
}

// bearer is the token of a request, in either of the two headers.
func bearer(r *http.Request) (token string, given bool) {
	if kind, rest, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(kind, "Bearer") {
		return strings.TrimSpace(rest), true
	}
	token = r.Header.Get("X-SLURM-USER-TOKEN")
	return token, token != ""
}

// peerKey holds who connected to the socket.
type peerKey struct{}

// serveREST opens the two ways to the gateway and serves on them.
func (d doors) serveREST(g *group, tcp func(key string, addr conffile.Addr) (net.Listener, error)) error {
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
	srv := &http.Server{Handler: d.gateway, TLSConfig: d.gatewayTLS, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		BaseContext: func(net.Listener) context.Context { return g.ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if u, ok := c.(*net.UnixConn); ok {
				if id, err := identity.FromPeer(ctx, u, d.names); err == nil {
					return context.WithValue(ctx, peerKey{}, id)
				}
			}
			return ctx
		}}
	for name, serve := range map[string]func() error{
		"REST":        func() error { return srv.ServeTLS(secure, "", "") },
		"REST socket": func() error { return srv.Serve(local) },
	} {
		g.spawn(name, func(context.Context) error {
			if err := serve(); !errors.Is(err, http.ErrServerClosed) {
				return fmt.Errorf("serve: %w", err)
			}
			return nil
		})
	}
	g.spawn("stop REST", func(ctx context.Context) error {
		<-ctx.Done()
		stop, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		return srv.Shutdown(stop)
	})
	return nil
}
