package forward

import (
	"log/slog"
	"net/http"

	"google.golang.org/grpc"

	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/limit"
	"github.com/musterhpc/muster/internal/transport/rest"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
)

// GatewayOptions are what the gateway of a standby needs. All are required.
type GatewayOptions struct {
	Forward  forwardFunc // passes a call on to the leader
	Limits   *limit.Table
	Identify func(request *http.Request) (identity.Identity, error)
	Health   func() OwnHealth
	Log      *slog.Logger
}

// NewGateway makes the gateway of a standby: the services of users, whose calls the leader carries
// out, and the health of this controller.
func NewGateway(options GatewayOptions) *rest.Gateway {
	gateway := rest.New(rest.Config{
		Errors:   rpcstatus.Numbers(),
		Unary:    []grpc.UnaryServerInterceptor{RefuseTokenByToken},
		Table:    options.Limits,
		Version:  "v1",
		Log:      options.Log,
		Identify: options.Identify,
	})
	descs := [...]*grpc.ServiceDesc{&service.Cluster_ServiceDesc, &service.Accounting_ServiceDesc}
	for _, desc := range descs {
		gateway.RegisterService(NewService(desc, options.Forward), nil)
	}
	gateway.Mount(HealthPath, Health{Own: options.Health}, true)
	return gateway
}
