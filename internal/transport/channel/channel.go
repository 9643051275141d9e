// Package channel makes accepted connections into channels whose peer is known: unix sockets by
// the kernel's credentials, TCP by mutual TLS. It is the one place where that happens, for gRPC
// and for the framed protocol alike.
package channel

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/musterhpc/muster/internal/transport/framed"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/pki"
)

// Protocol is what a client speaks on a channel.
type Protocol string

// The protocols.
const (
	GRPC   Protocol = "grpc"
	Framed Protocol = "framed"
)

// ALPNGRPC is the name of gRPC's protocol in TLS.
const ALPNGRPC = "h2"

// IsStandby tells that a controller was reached that serves no agents and tools: it does not
// lead. TLS says so, since a standby offers none of their protocols.
func IsStandby(err error) bool {
	const noProtocol = "tls: no application protocol"
	var refused *net.OpError
	return errors.As(err, &refused) && refused.Op == "remote error" &&
		refused.Err.Error() == noProtocol
}

// Server authenticates accepted connections.
type Server struct {
	TLS     *tls.Config       // see pki.Source.Server; nil = unix sockets only
	Cluster string            // whose certificates name a party; with TLS
	Names   identity.Resolver // names of local users; nil = none
}

// Conn is a connection with a known peer, from which some bytes may have been read ahead.
type Conn struct {
	net.Conn
	Peer  identity.Identity
	Local bool // a unix socket
	ahead *bufio.Reader
	alpn  string
}

// Read reads what was read ahead, then from the connection.
func (c *Conn) Read(data []byte) (int, error) {
	if c.ahead != nil {
		if c.ahead.Buffered() > 0 {
			return c.ahead.Read(data[:min(len(data), c.ahead.Buffered())])
		}
		c.ahead = nil
	}
	return c.Conn.Read(data)
}

// Handshake authenticates an accepted connection. On error it is closed. A *Conn is returned as
// it is. A TLS client without a certificate is identity.Nameless, where the TLS configuration
// lets it in at all.
func (s *Server) Handshake(ctx context.Context, raw net.Conn) (*Conn, error) {
	conn, err := s.handshake(ctx, raw)
	if err != nil {
		raw.Close()
		return nil, err
	}
	return conn, nil
}

func (s *Server) handshake(ctx context.Context, raw net.Conn) (*Conn, error) {
	switch raw := raw.(type) {
	case *Conn:
		return raw, nil
	case *net.UnixConn:
		id, err := identity.FromPeer(ctx, raw, s.Names)
		if err != nil {
			return nil, err
		}
		return &Conn{Conn: raw, Peer: id, Local: true}, nil
	}
	if s.TLS == nil {
		return nil, fmt.Errorf(
			"connection from %s: only the local socket is served without TLS",
			raw.RemoteAddr(),
		)
	}
	secure := tls.Server(raw, s.TLS)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, fmt.Errorf("TLS handshake with %s: %w", raw.RemoteAddr(), err)
	}
	state := secure.ConnectionState()
	id, err := s.peer(state)
	if err == nil && id.Kind == identity.Anonymous {
		id.Binding, err = pki.Binding(state)
	}
	if err != nil {
		return nil, fmt.Errorf("connection from %s: %w", raw.RemoteAddr(), err)
	}
	return &Conn{Conn: secure, Peer: id, alpn: state.NegotiatedProtocol}, nil
}

func (s *Server) peer(state tls.ConnectionState) (identity.Identity, error) {
	if len(state.PeerCertificates) == 0 {
		return identity.Nameless(), nil
	}
	if len(state.VerifiedChains) == 0 {
		return identity.Nameless(), errors.New(
			"BUG: the TLS configuration let an unverified certificate in",
		)
	}
	return identity.FromCertificate(state.PeerCertificates[0], s.Cluster)
}

// Protocol says what the client speaks: by ALPN over TLS, on a unix socket by the first bytes,
// for which it waits until the connection's read deadline. A framed client's preface is
// consumed.
func (c *Conn) Protocol() (Protocol, error) {
	switch {
	case !c.Local && c.alpn == ALPNGRPC:
		return GRPC, nil
	case !c.Local && c.alpn != framed.ALPN:
		return "", fmt.Errorf("the client offers neither %s nor %s", ALPNGRPC, framed.ALPN)
	}
	c.ahead = bufio.NewReaderSize(c.Conn, framed.ReadBuffer)
	head, err := c.ahead.Peek(len(framed.Preface))
	if err != nil {
		return "", fmt.Errorf("first bytes: %w", err)
	}
	if string(head) == framed.Preface {
		_, err := c.ahead.Discard(len(framed.Preface))
		return Framed, err
	}
	if !c.Local {
		return "", fmt.Errorf("%w: it begins with %q", framed.ErrProtocol, head)
	}
	return GRPC, nil // which tells HTTP/2's preface from anything else by itself
}

// ALPN is the protocol that TLS agreed on; empty on a unix socket.
func (c *Conn) ALPN() string { return c.alpn }

// Detach returns the connection and the bytes read ahead apart, for a reader that has its own
// use for the buffer.
func (c *Conn) Detach() (net.Conn, *bufio.Reader) {
	if c.ahead == nil {
		c.ahead = bufio.NewReaderSize(c.Conn, framed.ReadBuffer)
	}
	return c.Conn, c.ahead
}

// Authenticate is Handshake in the form that serve.Config wants, for listeners that serve the
// framed protocol alone.
func (s *Server) Authenticate(
	ctx context.Context,
	raw net.Conn,
) (net.Conn, identity.Identity, error) {
	conn, err := s.Handshake(ctx, raw)
	if err != nil {
		return nil, identity.Nameless(), err
	}
	if !conn.Local && conn.alpn != framed.ALPN {
		conn.Close()
		return nil, identity.Nameless(), fmt.Errorf("the client does not offer %s", framed.ALPN)
	}
	return conn, conn.Peer, nil
}

var _ io.Reader = (*Conn)(nil)
