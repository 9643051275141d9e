package rest

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/limit"
)

// Listener accepts the connections of the gateway and refuses those that are
// more than their party may have: the user on the local socket, the address over
// TCP, where nobody is known before the handshake.
type Listener struct {
	net.Listener
	Table *limit.Table
	Names identity.Resolver // of users on the local socket
}

// Conn is an accepted connection.
type Conn struct {
	net.Conn
	// Peer is the user on the local socket; Nameless over TCP.
	Peer  identity.Identity
	once  sync.Once
	leave func()
}

// peerTime bounds the look-up of a user's name.
const peerTime = 2 * time.Second

// Accept implements net.Listener.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		peer := identity.Nameless()
		if local, ok := raw.(*net.UnixConn); ok {
			ctx, cancel := context.WithTimeout(context.Background(), peerTime)
			peer, err = identity.FromPeer(ctx, local, l.Names)
			cancel()
			if err != nil {
				raw.Close()
				continue
			}
		}
		party := l.Table.PartyOf(peer, raw.RemoteAddr())
		if !l.Table.Connect(party) {
			raw.Close()
			continue
		}
		return &Conn{Conn: raw, Peer: peer, leave: func() { l.Table.Disconnect(party) }}, nil
	}
}

// Close closes the connection and counts it out.
func (c *Conn) Close() error {
	c.once.Do(c.leave)
	return c.Conn.Close()
}
