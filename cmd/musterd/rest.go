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

	"github.com/musterhpc/muster/controller/forward"
	"github.com/musterhpc/muster/controller/host"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/transport/authz"
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

// newGateway is the API as JSON over HTTP, without its services.
func (s *server) newGateway(source *mtls.Source) *rest.Gateway {
	admission := &channel.Admission{Revoked: s.revokedSerial(source), Now: time.Now}
	return rest.New(
		rest.Config{
			Errors:   status.Numbers(),
			Unary:    s.aroundUnary(),
			Stream:   s.aroundStream(),
			Table:    s.limits,
			Version:  "v1",
			Log:      s.log,
			Refused:  s.trail.notIdentified,
			Identify: func(r *http.Request) (identity.Identity, error) { return s.webIdentity(r, admission) },
		},
	)
}

// webIdentity finds out who asks over HTTP: on this host's socket the kernel
// says it; over TLS a certificate or a token does.
func (s *server) webIdentity(
	r *http.Request,
	admission *channel.Admission,
) (identity.Identity, error) {
	id, err := s.webCaller(r, admission)
	if err != nil {
		return id, err
	}
	return s.actAs(r, id)
}

// actAs is the user whom X-SLURM-USER-NAME names. Whoever has the rights of root
// may act as another user; everybody else can only say who he is.
func (s *server) actAs(r *http.Request, id identity.Identity) (identity.Identity, error) {
	name := r.Header.Get("X-SLURM-USER-NAME")
	switch {
	case name == "" || name == authz.UserName(id):
		return id, nil
	case s.authorizationDoor().Role(id) != authz.Root:
		return identity.Nameless(), status.New(
			status.Unauthenticated,
			"X-SLURM-USER-NAME: %s is not who the token or the socket says: %s",
			name,
			authz.UserName(id),
		)
	}
	uid, gid, ok := host.FindUser(name)
	if !ok || uid == 0 {
		return identity.Nameless(), status.New(
			status.Unauthenticated,
			"X-SLURM-USER-NAME: there is no user %s on this host whom one can become by way of REST",
			name,
		)
	}
	return identity.Identity{
		Kind:    identity.AttestedUser,
		UID:     uid,
		GID:     gid,
		User:    name,
		Node:    "REST",
		Cluster: s.cluster.ClusterName,
		Serial:  id.Serial,
		Token:   id.Token,
		Paper:   id.Paper,
	}, nil
}

// webCaller is whoever shows a token, a certificate or a local socket.
func (s *server) webCaller(
	r *http.Request,
	admission *channel.Admission,
) (identity.Identity, error) {
	token, given := forward.BearerToken(r)
	if given {
		return s.verifyToken(token, admission)
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
	return identity.Nameless(), status.New(
		status.Unauthenticated,
		"say who you are: Authorization: Bearer TOKEN (or X-SLURM-USER-TOKEN), with a token from scontrol token, or an administrator's certificate",
	)
}

// verifyToken gives the user for whom a token stands.
func (s *server) verifyToken(
	token string,
	admission *channel.Admission,
) (identity.Identity, error) {
	if s.tokens == nil {
		return identity.Nameless(), status.New(
			status.Unauthenticated,
			"tokens are not accepted here: only a controller knows their key",
		)
	}
	id, err := s.tokens.Verify(token)
	if err != nil {
		return id, status.New(status.Unauthenticated, "%v", err)
	}
	if s.isTokenEnded(id.Paper) {
		return identity.Nameless(), errTokenEnded()
	}
	if id.Serial != "" && admission.Revoked(id.Serial) {
		return identity.Nameless(), status.New(
			status.Unauthenticated,
			"the token was made by way of a machine that has been sent away since: make a new one",
		)
	}
	id.Token = true
	if id.Paper.ID != "" && s.access != nil {
		s.access.Uses.Note(id.Paper.ID, time.Now())
	}
	return id, nil
}

// peerKey holds who connected to the socket.
type peerKey struct{}

// gatewayServer serves the gateway. How long a body may take the gateway says
// itself: a deadline of the server would end long answers too.
func gatewayServer(ctx context.Context, gateway http.Handler, cfg *tls.Config) *http.Server {
	return &http.Server{
		Handler: gateway, TLSConfig: cfg, MaxHeaderBytes: 64 << 10,
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 30 * time.Second,
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			if accepted, ok := c.(*rest.Conn); ok && accepted.Peer.IsUser() {
				return context.WithValue(ctx, peerKey{}, accepted.Peer)
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
