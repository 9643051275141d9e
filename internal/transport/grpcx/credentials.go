// Package grpcx is gRPC as Muster uses it: credentials that know the peer from the channel,
// interceptors that put its identity into the context and carry typed errors, bounds and
// keepalive, and an Endpoint that serves gRPC and the framed protocol on the same sockets.
package grpcx

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"

	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/framed/serve"
	"github.com/musterhpc/muster/internal/transport/identity"
)

// AuthInfo is what the credentials know about a connection.
type AuthInfo struct {
	credentials.CommonAuthInfo
	Peer identity.Identity
}

// AuthType implements credentials.AuthInfo.
func (AuthInfo) AuthType() string { return "muster" }

// ValidateAuthority implements credentials.AuthorityValidator: the authority has no meaning
// here, so overriding it is refused.
func (AuthInfo) ValidateAuthority(string) error {
	return errors.New("the authority of a call cannot be overridden")
}

// framedSink takes over an authenticated connection whose client speaks the framed protocol;
// see serve.Server.ServeConn.
type framedSink func(conn net.Conn, ahead *bufio.Reader, peer identity.Identity) error

// serverCredentials authenticates accepted connections and hands those of framed clients to sink.
type serverCredentials struct {
	channel *channel.Server
	sink    framedSink // nil = framed clients are refused
	timeout time.Duration
	table   *table
}

// newServerCredentials returns the credentials of a server: unix sockets are known by the
// kernel's credentials, TCP by TLS. A connection has timeout for authentication and its first
// bytes. Framed clients are handed to sink; nil refuses them.
func newServerCredentials(
	server *channel.Server,
	sink framedSink,
	timeout time.Duration,
	t *table,
) credentials.TransportCredentials {
	return &serverCredentials{channel: server, sink: sink, timeout: timeout, table: t}
}

// ServerHandshake implements credentials.TransportCredentials.
func (s *serverCredentials) ServerHandshake(raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	ctx, cancel := context.WithTimeout(context.Background(), s.timeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { raw.Close() }) // whatever the handshake waits for
	defer stop()
	conn, err := s.handshake(ctx, raw)
	if err != nil {
		return nil, nil, err
	}
	protocol, err := conn.Protocol()
	if err == nil && !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	if protocol == channel.Framed {
		return nil, nil, s.dispatch(conn)
	}
	kept, err := s.table.trackConn(conn)
	if err != nil {
		conn.Close()
		return nil, nil, err
	}
	level := credentials.PrivacyAndIntegrity // a unix socket never leaves the machine
	return kept, AuthInfo{
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: level},
		Peer:           conn.Peer,
	}, nil
}

// handshake counts a connection over TCP against its address until the peer has
// proved who he is, so that one address cannot take all handshakes.
func (s *serverCredentials) handshake(ctx context.Context, raw net.Conn) (*channel.Conn, error) {
	if _, local := raw.(*net.UnixConn); !local {
		address := s.table.limits.HandshakeOf(raw.RemoteAddr())
		if !s.table.limits.Connect(address) {
			return nil, fmt.Errorf("%w from %s", serve.ErrFull, raw.RemoteAddr())
		}
		defer s.table.limits.Disconnect(address)
	}
	return s.channel.Handshake(ctx, raw)
}

func (s *serverCredentials) dispatch(c *channel.Conn) error {
	if s.sink == nil {
		c.Close()
		return errors.New("this server does not serve the framed protocol")
	}
	if err := c.SetDeadline(time.Time{}); err != nil { // gRPC had set one for the handshake
		c.Close()
		return err
	}
	conn, ahead := c.Detach()
	if err := s.sink(conn, ahead, c.Peer); err != nil {
		c.Close()
		return err
	}
	return credentials.ErrConnDispatched
}

// ClientHandshake implements credentials.TransportCredentials; these credentials are a server's.
func (s *serverCredentials) ClientHandshake(
	context.Context,
	string,
	net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("BUG: a server's credentials were given to a client")
}

// Info implements credentials.TransportCredentials.
func (s *serverCredentials) Info() credentials.ProtocolInfo {
	return credentials.ProtocolInfo{SecurityProtocol: "muster"}
}

// Clone implements credentials.TransportCredentials.
func (s *serverCredentials) Clone() credentials.TransportCredentials {
	c := *s
	return &c
}

// OverrideServerName implements credentials.TransportCredentials.
func (s *serverCredentials) OverrideServerName(string) error { return nil }

// clientCredentials secures connections to a server. config is asked for each connection, so
// that renewed certificates are used; nil means a unix socket.
type clientCredentials struct{ config func() *tls.Config }

// NewLocalCredentials returns a client's credentials for unix sockets; anything else is refused.
func NewLocalCredentials() credentials.TransportCredentials { return clientCredentials{} }

// NewTLSCredentials returns a client's credentials for TCP. config makes the configuration of
// one connection, server name included: see pki.Source.Client and pki.Pinned.
func NewTLSCredentials(config func() *tls.Config) credentials.TransportCredentials {
	return clientCredentials{config: config}
}

// ClientHandshake implements credentials.TransportCredentials.
//
// The authority plays no part: grpc-go's own TLS credentials would put it in the place of the
// configuration's server name.
func (c clientCredentials) ClientHandshake(
	ctx context.Context,
	_ string,
	raw net.Conn,
) (net.Conn, credentials.AuthInfo, error) {
	info := AuthInfo{
		CommonAuthInfo: credentials.CommonAuthInfo{SecurityLevel: credentials.PrivacyAndIntegrity},
	}
	if c.config == nil {
		if _, ok := raw.(*net.UnixConn); !ok {
			return nil, nil, errors.New("only the local socket may be used without TLS")
		}
		return raw, info, nil
	}
	secure := tls.Client(raw, c.config())
	if err := secure.HandshakeContext(ctx); err != nil {
		raw.Close()
		if channel.IsStandby(err) {
			err = errors.New("this controller is a standby")
		}
		return nil, nil, err
	}
	if p := secure.ConnectionState().NegotiatedProtocol; p != channel.ALPNGRPC {
		raw.Close()
		return nil, nil, fmt.Errorf("the server speaks %q, want %q", p, channel.ALPNGRPC)
	}
	return secure, info, nil
}

// ServerHandshake implements credentials.TransportCredentials; these credentials are a client's.
func (clientCredentials) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("BUG: a client's credentials were given to a server")
}

// Info implements credentials.TransportCredentials.
func (c clientCredentials) Info() credentials.ProtocolInfo {
	if c.config == nil {
		return credentials.ProtocolInfo{SecurityProtocol: "unix"}
	}
	return credentials.ProtocolInfo{SecurityProtocol: "tls"}
}

// Clone implements credentials.TransportCredentials.
func (c clientCredentials) Clone() credentials.TransportCredentials { return c }

// OverrideServerName implements credentials.TransportCredentials.
func (clientCredentials) OverrideServerName(string) error { return nil }

// channelPeer returns the identity of the connection that a call came on.
func channelPeer(ctx context.Context) identity.Identity {
	p, ok := peer.FromContext(ctx)
	if !ok {
		return identity.Nameless()
	}
	info, ok := p.AuthInfo.(AuthInfo)
	if !ok {
		return identity.Nameless()
	}
	return info.Peer
}
