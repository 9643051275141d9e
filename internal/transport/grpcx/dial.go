package grpcx

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"

	"github.com/musterhpc/muster/internal/transport/framed"
)

// DialUnix makes a client of a unix socket. Like every gRPC client it connects when it is first used and again when it must.
func DialUnix(path string, more ...grpc.DialOption) (*grpc.ClientConn, error) {
	dial := func(ctx context.Context, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", path)
	}
	return newClient(
		"passthrough:///localhost",
		NewLocalCredentials(),
		append([]grpc.DialOption{grpc.WithContextDialer(dial)}, more...),
	)
}

// DialTLS makes a client of a TCP address (host:port). config makes the TLS configuration of each connection; see pki.Source.Client.
func DialTLS(
	address string,
	config func() *tls.Config,
	more ...grpc.DialOption,
) (*grpc.ClientConn, error) {
	return newClient("passthrough:///"+address, NewTLSCredentials(config), more)
}

func newClient(
	target string,
	creds credentials.TransportCredentials,
	more []grpc.DialOption,
) (*grpc.ClientConn, error) {
	options := append([]grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithChainUnaryInterceptor(unaryClientErrors),
		grpc.WithChainStreamInterceptor(streamClientErrors),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(MaxMessage),
			grpc.MaxCallSendMsgSize(MaxMessage),
		),
		grpc.WithKeepaliveParams(
			keepalive.ClientParameters{
				Time:                pingEvery,
				Timeout:             pingPatience,
				PermitWithoutStream: true,
			},
		),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 5 * time.Second,
			Backoff: backoff.Config{
				BaseDelay:  100 * time.Millisecond,
				Multiplier: 1.6,
				Jitter:     0.2,
				MaxDelay:   5 * time.Second,
			}}),
		grpc.WithInitialWindowSize(windowSize), grpc.WithInitialConnWindowSize(4 * windowSize),
		grpc.WithMaxHeaderListSize(maxHeaderList),
		grpc.WithDisableServiceConfig(),
	}, more...)
	c, err := grpc.NewClient(target, options...)
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", target, err)
	}
	return c, nil
}

// WithAttestation returns a context whose gRPC calls carry the attestation of a local user; see identity.Identity.Attest.
func WithAttestation(ctx context.Context, uid, gid uint32) context.Context {
	pair := framed.Attest(uid, gid)
	return metadata.AppendToOutgoingContext(ctx, pair.Key, pair.Value)
}
