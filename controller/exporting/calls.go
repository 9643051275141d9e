package exporting

import (
	"context"
	"path"
	"time"

	"google.golang.org/grpc"

	"github.com/musterhpc/muster/collector"
	"github.com/musterhpc/muster/internal/transport/identity"
)

// CountCalls counts the API's calls by method and user, and tells note of each.
func CountCalls(
	calls *collector.Calls,
	note func(ctx context.Context, method string, took time.Duration, err error),
) grpc.UnaryServerInterceptor {
	return func(
		ctx context.Context,
		request any,
		info *grpc.UnaryServerInfo,
		handler grpc.UnaryHandler,
	) (any, error) {
		began := time.Now()
		answer, err := handler(ctx, request)
		took := time.Since(began)
		method := shortMethod(info.FullMethod)
		calls.Observe(method, identity.From(ctx).User, took, err != nil)
		note(ctx, method, took, err)
		return answer, err
	}
}

// CountAs counts what a call hands on to another method as calls of that method too. So the figures
// of submissions do not depend on the client: muster-sbatch calls Shell/Sbatch, which submits. The
// user is counted once, with the call itself.
func CountAs[Request, Reply any](
	calls *collector.Calls,
	fullMethod string,
	call func(context.Context, Request) (Reply, error),
) func(context.Context, Request) (Reply, error) {
	method := shortMethod(fullMethod)
	return func(ctx context.Context, request Request) (Reply, error) {
		began := time.Now()
		reply, err := call(ctx, request)
		calls.Observe(method, "", time.Since(began), err != nil)
		return reply, err
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
