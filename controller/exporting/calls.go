package exporting

import (
	"context"
	"path"
	"time"

	"google.golang.org/grpc"

	"github.com/musterhpc/muster/collector"
	"github.com/musterhpc/muster/internal/transport/identity"
)

// CountCalls counts the API's calls by method and user.
func CountCalls(calls *collector.Calls) grpc.UnaryServerInterceptor {
	return func(
		ctx context.Context,
		req any,
		info *grpc.UnaryServerInfo,
		handler grpc.UnaryHandler,
	) (any, error) {
		began := time.Now()
		answer, err := handler(ctx, req)
		calls.Observe(
			shortMethod(info.FullMethod),
			identity.From(ctx).User,
			time.Since(began),
			err != nil,
		)
		return answer, err
	}
}

// shortMethod is the name of a method as metrics have it: /muster.v1.Cluster/Submit is
// Cluster/Submit.
func shortMethod(full string) string {
	service, method := path.Split(full)
	service = path.Base(service)
	if dot := path.Ext(service); dot != "" {
		service = dot[1:]
	}
	return service + "/" + method
}
