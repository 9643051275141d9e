package grpcx

import (
	"fmt"
	"net"
	"sync"

	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/framed/serve"
	"github.com/musterhpc/muster/internal/transport/identity"
)

// table knows the open gRPC connections of an endpoint by their peers, so that one peer cannot take them all and a revoked one can
// be shut out.
type table struct {
	perPeer int

	mu    sync.Mutex
	conns map[*tracked]struct{}
	count map[string]int // by identity.Key
}

func newTable(perPeer int) *table {
	return &table{perPeer: perPeer, conns: make(map[*tracked]struct{}), count: make(map[string]int)}
}

// tracked is a connection that leaves the table when it is closed.
type tracked struct {
	net.Conn
	peer  identity.Identity
	table *table
	once  sync.Once
}

// add counts a connection in; serve.ErrFull is wrapped when its peer has too many.
func (t *table) add(c *channel.Conn) (*tracked, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := c.Peer.Key()
	if t.count[key] >= t.perPeer {
		return nil, fmt.Errorf("%w of %s: %d", serve.ErrFull, c.Peer, t.perPeer)
	}
	k := &tracked{Conn: c, peer: c.Peer, table: t}
	t.conns[k] = struct{}{}
	t.count[key]++
	return k, nil
}

// Close closes the connection and takes it out of the table.
func (k *tracked) Close() error {
	k.once.Do(func() {
		k.table.mu.Lock()
		defer k.table.mu.Unlock()
		delete(k.table.conns, k)
		key := k.peer.Key()
		if k.table.count[key]--; k.table.count[key] == 0 {
			delete(k.table.count, key)
		}
	})
	return k.Conn.Close()
}

// disconnect closes the connections whose peer matches and returns how many.
func (t *table) disconnect(match func(identity.Identity) bool) int {
	t.mu.Lock()
	var found []*tracked
	for k := range t.conns {
		if match(k.peer) {
			found = append(found, k)
		}
	}
	t.mu.Unlock()
	for _, k := range found {
		k.Close()
	}
	return len(found)
}
