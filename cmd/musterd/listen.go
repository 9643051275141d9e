package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"google.golang.org/grpc"

	"github.com/musterhpc/muster/accounting/feed"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/cli/submit"
	"github.com/musterhpc/muster/collector"
	"github.com/musterhpc/muster/collector/web"
	"github.com/musterhpc/muster/controller/callers"
	"github.com/musterhpc/muster/controller/confirm"
	"github.com/musterhpc/muster/controller/doors"
	"github.com/musterhpc/muster/controller/exporting"
	"github.com/musterhpc/muster/controller/forward"
	"github.com/musterhpc/muster/controller/host"
	"github.com/musterhpc/muster/controller/keys"
	"github.com/musterhpc/muster/internal/parts"
	"github.com/musterhpc/muster/internal/transport/authz"
	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/grpcx"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/limit"
	"github.com/musterhpc/muster/internal/transport/pki"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
	"github.com/musterhpc/muster/scheduler/daemon"
)

// openSockets opens the controller's sockets and serves on them.
func (s *server) openSockets(group *parts.Group) error {
	source, err := s.openCertificates()
	if err != nil {
		return err
	}
	if s.peers == nil { // in a group it is kept whether this controller leads or not
		s.keepCertificate(group, source)
	}
	endpoint, err := s.newEndpoint(source)
	if err != nil {
		return err
	}
	s.api.Store(endpoint)
	gateway := s.newGateway(source)
	users := registrars{endpoint, gateway}
	jobs := daemon.NewClusterService(s.ctl)
	service.RegisterClusterServer(users, jobs)
	service.RegisterShellServer(
		endpoint,
		shellService{
			zone:     submit.ZoneSetting(os.Environ()),
			filtered: func() bool { return jobs.C.View().State.Config.CliFilter != nil },
			submit:   exporting.CountAs(s.calls, service.Cluster_Submit_FullMethodName, jobs.Submit),
		},
	)
	service.RegisterAgentsServer(endpoint, &daemon.AgentService{C: s.ctl})
	service.RegisterLedgerServer(
		endpoint,
		&feed.Service{
			Archive:     s.disk.Archive,
			Head:        s.ctl,
			FindContent: s.disk.Blobs.Get,
			Confirmed:   s.told.NoteConfirmed,
			ListRevoked: s.directory().ListRevoked,
			Applied:     s.disk.Machine.AppliedAt,
		},
	)
	if s.acct != nil {
		service.RegisterAccountingServer(users, s.acct.Service)
	} else {
		service.RegisterAccountingServer(users, feed.Absent{Socket: s.cfg.AccountingSocket})
	}
	console, err := s.consoleDoor(source, gateway)
	if err != nil {
		return err
	}
	s.mountSlurm(gateway)
	gateway.Mount(forward.HealthPath, forward.Health{Own: s.ownHealth}, true)
	exporter := exporting.New(exporting.Options{
		Config:     s.cfg,
		Cluster:    s.cluster.ClusterName,
		Version:    version,
		Private:    s.privacy(),
		Controller: s.ctl,
		Durable:    s.disk.Durable,
		Calls:      s.calls,
		Limits:     s.limits,
		Trail:      s.trail,
		Traces:     s.traces,
		Accounting: s.exportedAccounting(),
		Apart:      &exporting.Apart{Said: &s.told, Archive: s.disk.Archive, Codec: s.disk.Codec, Began: s.began},
		Log:        s.log,
	})
	metrics := s.metricsDoor()
	metrics.Pages = exporter.Pages(group)
	d := doors.Doors{
		Socket:  s.cfg.Socket,
		API:     doors.Address{Key: "listen.grpc", At: s.cfg.Listen.GRPC},
		Metrics: metrics,
		REST:    s.restDoor(gateway, source),
		Console: console,
	}
	if s.peers != nil {
		d.TakeAPI = func() net.Listener { return s.peers.Door.Listen(apiProtocols...) }
		d.TakeLocal = func() net.Listener { return s.local.TakeOver() }
	}
	return d.ServeAll(group, endpoint)
}

// exportedAccounting is the accounting of this process as the metrics read it; nil = there is none.
func (s *server) exportedAccounting() exporting.Accounting {
	if s.acct == nil {
		return nil
	}
	return s.acct
}

// metricsDoor is the address of the metrics, without pages.
func (s *server) metricsDoor() doors.Metrics {
	return doors.Metrics{
		Address: doors.Address{Key: "listen.metrics", At: s.cfg.Listen.Metrics},
		Readers: s.webOptions(),
		Log:     s.log,
	}
}

// restDoor is the way to a gateway of the API.
func (s *server) restDoor(gateway http.Handler, source *pki.Source) *doors.REST {
	return &doors.REST{
		Address: doors.Address{Key: "listen.rest", At: s.cfg.Listen.REST},
		Socket:  s.cfg.RESTSocket,
		Gateway: gateway,
		TLS:     source.Server(false, "h2", "http/1.1"),
		Limits:  s.limits,
		Names:   userNames(),
	}
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
func (s *server) keepCertificate(group *parts.Group, source *pki.Source) {
	group.Spawn("keep the certificate", func(ctx context.Context) error {
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
	tokens := &channel.Admission{Revoked: s.directory().IsRevoked(source), Now: time.Now}
	admission := &channel.Admission{
		Revoked:  s.directory().IsRevoked(source),
		Now:      time.Now,
		JobThere: s.directory().JobThere,
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
		exporting.CountCalls(s.calls, s.noteCall),
		confirm.Of(s.lead).Unary,
		s.trail.UnaryInterceptor(),
		s.authorizationDoor().Unary(),
		forward.RefuseTokenByToken,
	}
}

// noteCall writes a call to the log while that is wanted.
func (s *server) noteCall(ctx context.Context, method string, took time.Duration, err error) {
	if s.verbosity.WantsCalls() {
		s.verbosity.NoteCall(method, host.NewCallerFunc(uint32(os.Getuid()))(ctx), took, err)
	}
}

func (s *server) aroundStream() []grpc.StreamServerInterceptor {
	return []grpc.StreamServerInterceptor{
		confirm.Of(s.lead).Stream,
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
		State:   s.knownState,
		Role:    s.authorizationDoor().Role,
	}
	if s.access != nil {
		c.NoteUse = s.access.Uses.Note
	}
	return c
}

// authorizationDoor is what decides who may call which method.
func (s *server) authorizationDoor() authz.Door {
	return authz.Door{Self: uint32(os.Getuid()), Standing: s.directory().StandingOf}
}

// limitTable counts what each party holds, over all protocols.
func (s *server) limitTable() *limit.Table {
	return limit.New(limit.Config{Self: uint32(os.Getuid()), Rate: s.directory().CallRate}, time.Now)
}

func userNames() identity.Resolver {
	return identity.NewCache(identity.SystemPasswd(), 10000, time.Minute, time.Now)
}

// webOptions is what the metrics ask of those who read them.
func (s *server) webOptions() web.Options {
	return web.Options{ConfigFile: s.cfg.TLS.WebConfig, TokenFile: s.cfg.TLS.WebTokenFile}
}

// privacy is what the metrics leave out.
func (s *server) privacy() collector.Privacy {
	return exporting.PrivacyOf(s.webOptions(), s.cluster.Private)
}
