package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"google.golang.org/grpc"

	"github.com/musterhpc/muster/accounting/feed"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/cli/submit"
	"github.com/musterhpc/muster/collector/web"
	"github.com/musterhpc/muster/controller/callers"
	"github.com/musterhpc/muster/controller/forward"
	"github.com/musterhpc/muster/controller/keys"
	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/internal/console"
	"github.com/musterhpc/muster/internal/console/firing"
	"github.com/musterhpc/muster/internal/transport/authz"
	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/grpcx"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/limit"
	"github.com/musterhpc/muster/internal/transport/listen"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/scheduler/daemon"
)

// openSockets opens the controller's sockets and serves on them.
func (s *server) openSockets(g *group) error {
	source, err := s.openCertificates()
	if err != nil {
		return err
	}
	if s.peers == nil { // in a group it is kept whether this controller leads or not
		s.keepCertificate(g, source)
	}
	endpoint, err := s.newEndpoint(source)
	if err != nil {
		return err
	}
	s.api.Store(endpoint)
	gateway := s.newGateway(source)
	users := registrars{endpoint, gateway}
	jobs := &daemon.ClusterService{C: s.ctl}
	service.RegisterClusterServer(users, jobs)
	service.RegisterShellServer(
		endpoint,
		shellService{
			zone:     submit.ZoneSetting(os.Environ()),
			filtered: func() bool { return jobs.C.View().State.Config.CliFilter != nil },
			submit:   jobs.Submit,
		},
	)
	service.RegisterAgentsServer(endpoint, &daemon.AgentService{C: s.ctl})
	service.RegisterLedgerServer(
		endpoint,
		&feed.Service{
			Archive:     s.archive,
			Head:        s.ctl,
			FindContent: s.blobs.Get,
			Confirmed:   s.told.NoteConfirmed,
			ListRevoked: s.revokedSerials,
			Applied:     s.machine.AppliedAt,
		},
	)
	if s.acct != nil {
		service.RegisterAccountingServer(users, s.acct.service)
	} else {
		service.RegisterAccountingServer(users, feed.Absent{Socket: s.cfg.AccountingSocket})
	}
	pages, err := s.openConsole(source, gateway)
	if err != nil {
		return err
	}
	s.mountSlurm(gateway)
	gateway.Mount(forward.HealthPath, forward.Health{Own: s.ownHealth}, true)
	d := doors{
		socket:     s.cfg.Socket,
		apiKey:     "listen.grpc",
		api:        s.cfg.Listen.GRPC,
		metricsKey: "listen.metrics",
		metrics:    s.cfg.Listen.Metrics,
		web:        s.webOptions(),
		log:        s.log,
		console:    pages,
		firing:     s.firing,
		consoleAt:  s.cfg.Listen.Web,
		rest:       s.cfg.Listen.REST,
		restSocket: s.cfg.RESTSocket,
		gateway:    gateway,
		gatewayTLS: source.Server(false, "h2", "http/1.1"),
		names:      userNames(),
		limits:     s.limits,
	}
	if s.peers != nil {
		d.openAPI = func() net.Listener { return s.peers.Door.Listen(apiProtocols...) }
		d.openLocal = func() net.Listener { return s.local.leadTrack() }
	}
	return d.serveAll(g, endpoint, s.metricsPages(g))
}

// openCertificates are this host's.
func (s *server) openCertificates() (*pki.Source, error) {
	if s.peers != nil {
		return s.peers.Source, nil
	}
	source, err := pki.LoadSource(pki.Dir(s.cfg.TLS.Dir))
	if err != nil {
		return nil, fmt.Errorf("this host's certificate in %s: %w", s.cfg.TLS.Dir, err)
	}
	return source, nil
}

// keepCertificate has this host's certificate renewed as long as the group of parts runs.
func (s *server) keepCertificate(g *group, source *pki.Source) {
	g.spawnPart("keep the certificate", func(ctx context.Context) error {
		return keys.KeepCertificate(ctx, source, pki.Dir(s.cfg.TLS.Dir), s.log)
	})
}

// newEndpoint is the API without its services.
func (s *server) newEndpoint(source *pki.Source) (*grpcx.Endpoint, error) {
	names := userNames()
	ch := &channel.Server{
		TLS:     source.Server(false, channel.ALPNGRPC, framed.ALPN),
		Cluster: s.cluster.ClusterName,
		Names:   names,
	}
	tokens := &channel.Admission{Revoked: s.revokedSerial(source), Now: time.Now}
	admission := &channel.Admission{
		Revoked:  s.revokedSerial(source),
		Now:      time.Now,
		JobThere: s.jobThere,
		Names:    names,
		Munge:    s.mungeDoor(),
		Token:    func(text string) (identity.Identity, error) { return s.callers().VerifyToken(text, tokens) },
		Vouches:  func(controller string) bool { return s.peers != nil && s.peers.IsNamed(controller) },
	}
	return grpcx.NewEndpoint(
		grpcx.EndpointConfig{
			Channel: ch,
			Admit:   admission.Admit,
			Refused: s.trail.NotAdmitted,
			Errors:  rpcstatus.Numbers(),
			Table:   s.limits,
			Log:     s.log,
			Unary:   s.aroundUnary(),
			Stream:  s.aroundStream(),
			Options: []grpc.ServerOption{grpc.ForceServerCodecV2(grpcx.NewCodec())},
		},
	)
}

// aroundUnary and aroundStream surround every call, whichever way it came.
func (s *server) aroundUnary() []grpc.UnaryServerInterceptor {
	return []grpc.UnaryServerInterceptor{
		countCalls(s.calls),
		s.confirmUnary,
		s.trail.UnaryInterceptor(),
		s.authorizationDoor().Unary(),
		forward.RefuseTokenByToken,
	}
}

func (s *server) aroundStream() []grpc.StreamServerInterceptor {
	return []grpc.StreamServerInterceptor{
		s.confirmStream,
		s.trail.StreamInterceptor(),
		s.authorizationDoor().Stream(),
		s.endWithToken,
	}
}

// endWithToken ends a stream with the token by which it was opened.
func (s *server) endWithToken(
	srv any,
	stream grpc.ServerStream,
	_ *grpc.StreamServerInfo,
	next grpc.StreamHandler,
) error {
	return callers.EndWithToken(s.callers, srv, stream, next)
}

// callers is what this process knows now of those who call.
func (s *server) callers() callers.Callers {
	c := callers.Callers{
		Cluster: s.cluster.ClusterName,
		Tokens:  s.tokens,
		State:   s.known,
		Role:    s.authorizationDoor().Role,
	}
	if s.access != nil {
		c.NoteUse = s.access.Uses.Note
	}
	return c
}

// authorizationDoor is what decides who may call which method.
func (s *server) authorizationDoor() authz.Door {
	return authz.Door{Self: uint32(os.Getuid()), Standing: s.standingOf}
}

// standingOf is what accounting makes of a user. Accounting that runs apart has no
// state to look it up in; its services ask the store.
func (s *server) standingOf(name string) authz.Role {
	if s.ctl == nil {
		return authz.User
	}
	return authz.StandingOf(s.ctl.View().State.Policy, name)
}

// limitTable counts what each party holds, over all protocols.
func (s *server) limitTable() *limit.Table {
	return limit.New(limit.Config{Self: uint32(os.Getuid()), Rate: s.callRate}, time.Now)
}

// callRate is what slurm.conf says of the calls of one user.
func (s *server) callRate() limit.RateConfig {
	if s.ctl == nil || s.ctl.View().State.Config == nil || s.ctl.View().State.Config.Rate == nil {
		return limit.RateConfig{}
	}
	rate := s.ctl.View().State.Config.Rate
	return limit.RateConfig{Enabled: true, Bucket: int(rate.Bucket), Refill: int(rate.Refill),
		Period: time.Duration(rate.Period), Users: int(rate.Users)}
}

func userNames() identity.Resolver {
	return identity.NewCache(identity.SystemPasswd(), 10000, time.Minute, time.Now)
}

// webOptions is what the metrics ask of those who read them.
func (s *server) webOptions() web.Options {
	return web.Options{ConfigFile: s.cfg.TLS.WebConfig, TokenFile: s.cfg.TLS.WebTokenFile}
}

// doors are the places at which a process is reached, with the keys of
// muster.yaml that choose them.
type doors struct {
	socket             string
	apiKey, metricsKey string
	api, metrics       conffile.Addr
	web                web.Options // what the metrics ask of those who read them
	log                *slog.Logger

	rest       conffile.Addr // where the gateway is reached over TLS, and …
	restSocket string        // … on this host
	// Of a group: the port of the API and the socket are open already, and these take
	// what comes there from now on.
	openAPI, openLocal func() net.Listener

	gateway    http.Handler // nil = none
	gatewayTLS *tls.Config
	console    *console.Console // nil = none
	firing     *firing.Alerts   // of the console; nil = no Alertmanager
	consoleAt  conffile.Addr
	limits     *limit.Table      // of the gateway's connections
	names      identity.Resolver // of those who come over restSocket
}

// serveAll opens all of them, or none, and serves: nobody is served by a process
// that then finds a port taken.
func (d doors) serveAll(g *group, endpoint *grpcx.Endpoint, pages http.Handler) (err error) {
	if err := d.web.Check(); err != nil {
		return err
	}
	var opened []net.Listener
	defer func() {
		for _, l := range opened {
			if err != nil {
				err = errors.Join(err, l.Close())
			}
		}
	}()
	tcp := func(key string, addr conffile.Addr) (net.Listener, error) {
		if addr.Off() {
			return nil, nil
		}
		l, err := listen.TCP(g.ctx, string(addr))
		if err != nil {
			return nil, fmt.Errorf("%s: %w (choose another in muster.yaml)", key, err)
		}
		opened = append(opened, l)
		return l, nil
	}
	var api net.Listener
	if d.openAPI == nil {
		api, err = tcp(d.apiKey, d.api)
		if err != nil {
			return err
		}
	}
	metrics, err := tcp(d.metricsKey, d.metrics)
	if err != nil {
		return err
	}
	var local net.Listener
	if d.openLocal == nil {
		local, err = listen.Unix(d.socket, 0o666)
		if err != nil {
			return err
		}
		opened = append(opened, local)
	}
	if err := d.serveREST(g, tcp); err != nil {
		return err
	}
	if err := d.serveConsole(g, tcp); err != nil {
		return err
	}
	if d.openAPI != nil {
		api, local = d.openAPI(), d.openLocal()
	}
	g.spawnPart("local socket", func(context.Context) error { return endpoint.Serve(local) })
	if api != nil {
		g.spawnPart("API", func(context.Context) error { return endpoint.Serve(api) })
	}
	g.spawnPart("stop API", func(ctx context.Context) error {
		<-ctx.Done()
		stop, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		return endpoint.Shutdown(stop)
	})
	if metrics != nil {
		serveHTTP(g, metrics, pages, d.web, d.log)
	}
	return nil
}

// serveHTTP serves pages until the group's context ends.
func serveHTTP(g *group, l net.Listener, pages http.Handler, opts web.Options, log *slog.Logger) {
	srv := &http.Server{Handler: pages, ReadHeaderTimeout: 10 * time.Second}
	g.spawnPart("metrics", func(context.Context) error {
		if err := opts.Serve(l, srv, log); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.spawnPart("stop metrics", func(ctx context.Context) error {
		<-ctx.Done()
		stop, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		return srv.Shutdown(stop)
	})
}
