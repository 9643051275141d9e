package main

import (
	"net/http"
	"time"

	"google.golang.org/grpc"

	"github.com/musterhpc/muster/controller/forward"
	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/gate"
	"github.com/musterhpc/muster/internal/transport/identity"
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

// aroundREST surrounds the calls of REST. In a group those that come to a leader which is none any
// more are passed on.
func (s *server) aroundREST() ([]grpc.UnaryServerInterceptor, []grpc.StreamServerInterceptor) {
	unary, stream := s.aroundUnary(), s.aroundStream()
	if s.peers == nil {
		return unary, stream
	}
	passOn := forward.PassOn{Forward: s.passing.Forward, Again: gate.Again, Over: s.lead.Over()}
	return append([]grpc.UnaryServerInterceptor{passOn.Unary}, unary...),
		append([]grpc.StreamServerInterceptor{passOn.Stream}, stream...)
}

// newGateway is the API as JSON over HTTP, without its services.
func (s *server) newGateway(source *pki.Source) *rest.Gateway {
	admission := &channel.Admission{Revoked: s.directory().IsRevoked(source), Now: time.Now}
	unary, stream := s.aroundREST()
	return rest.New(
		rest.Config{
			Errors:   rpcstatus.Numbers(),
			Unary:    unary,
			Stream:   stream,
			Table:    s.limits,
			Version:  "v1",
			Log:      s.log,
			Refused:  s.trail.NotIdentified,
			Identify: func(r *http.Request) (identity.Identity, error) { return s.callers().WebIdentity(r, admission) },
		},
	)
}
