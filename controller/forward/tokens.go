package forward

import (
	"context"
	"net/http"
	"strings"

	"google.golang.org/grpc"

	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/rpcstatus"
)

// RefuseTokenByToken keeps a token from making another: one that leaked would never end.
func RefuseTokenByToken(
	ctx context.Context,
	request any,
	info *grpc.UnaryServerInfo,
	next grpc.UnaryHandler,
) (any, error) {
	if info.FullMethod == "/muster.v1.Cluster/CreateUserToken" && identity.From(ctx).Token {
		return nil, rpcstatus.New(
			rpcstatus.PermissionDenied,
			"a token makes no tokens: ask on the controller's host without SLURM_JWT, or with a certificate",
		)
	}
	return next(ctx, request)
}

// BearerToken is the token of a request, in either of the two headers.
func BearerToken(request *http.Request) (token string, given bool) {
	if kind, rest, ok := strings.Cut(request.Header.Get("Authorization"), " "); ok &&
		strings.EqualFold(kind, "Bearer") {
		return strings.TrimSpace(rest), true
	}
	token = request.Header.Get("X-SLURM-USER-TOKEN")
	return token, token != ""
}
