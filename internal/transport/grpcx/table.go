package grpcx

import (
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/musterhpc/muster/internal/transport/channel"
	"github.com/musterhpc/muster/internal/transport/framed/serve"
	"github.com/musterhpc/muster/internal/transport/identity"
	"github.com/musterhpc/muster/internal/transport/limit"
)

// bodyTime is how long a message may take from its first byte to its last.
const bodyTime = 30 * time.Second

// table knows the open gRPC connections of an endpoint by their peers, so that
// one peer cannot take them all and a revoked one can be shut out.
type table struct {
	limits *limit.Table

	mu    sync.Mutex
	conns map[*tracked]struct{}
}

func newTable(limits *limit.Table) *table {
	return &table{limits: limits, conns: make(map[*tracked]struct{})}
}

// tracked is a connection whose unfinished messages count against its peer, and
// which leaves the table when it is closed.
type tracked struct {
	net.Conn
	peer  identity.Identity
	party limit.Party
	table *table
	once  sync.Once

	// Only gRPC's reading goroutine touches these.
	meter limit.Meter
	held  int64     // bytes counted against the party
	since time.Time // when the oldest unfinished message began; zero = there is none

	mu    sync.Mutex
	ended bool // nothing is counted any more: Close has given back what was
}

// trackConn counts a connection in; serve.ErrFull is wrapped when its peer has too many.
func (t *table) trackConn(conn *channel.Conn) (*tracked, error) {
	party := t.limits.PartyOf(conn.Peer, conn.RemoteAddr())
	if !t.limits.Connect(party) {
		return nil, fmt.Errorf("%w of %s", serve.ErrFull, conn.Peer)
	}
	k := &tracked{Conn: conn, peer: conn.Peer, party: party, table: t}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.conns[k] = struct{}{}
	return k, nil
}

// errUnfinished is wrapped by what ends a connection for its unfinished messages.
var errUnfinished = errors.New(
	"the requests on this connection that are not complete exceed a limit",
)

// Read reads for gRPC and counts what it reads. gRPC itself bounds one message
// and not the messages of one connection, nor how long they take.
func (k *tracked) Read(data []byte) (int, error) {
	n, err := k.Conn.Read(data)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		k.table.limits.Refuse(limit.Body)
		return n, fmt.Errorf("%w: not complete after %s", errUnfinished, bodyTime)
	}
	if n == 0 {
		return n, err
	}
	k.meter.Observe(data[:n], time.Now())
	if problem := k.count(k.meter.Unfinished()); problem != nil {
		return n, problem
	}
	return n, err
}

// count makes what is held for this connection what its messages take.
func (k *tracked) count(unfinished int64) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		return net.ErrClosed
	}
	switch more := unfinished - k.held; {
	case more > 0 && !k.table.limits.Take(k.party, more):
		return fmt.Errorf("%w: %d bytes", errUnfinished, unfinished)
	case more < 0:
		k.table.limits.Give(k.party, -more)
	}
	k.held = unfinished
	return k.setDeadline(unfinished > 0)
}

// setDeadline bounds the time of unfinished messages, from when the oldest of
// them began.
func (k *tracked) setDeadline(unfinished bool) error {
	switch {
	case unfinished && (k.since.IsZero() || time.Since(k.since) > bodyTime/4):
		// On a busy connection there may always be some message that is not
		// complete, and each of them is soon.
		k.since = k.meter.Oldest()
		return k.Conn.SetReadDeadline(k.since.Add(bodyTime))
	case !unfinished && !k.since.IsZero():
		k.since = time.Time{}
		return k.Conn.SetReadDeadline(time.Time{})
	}
	return nil
}

// Close closes the connection and takes it out of the table.
func (k *tracked) Close() error {
	k.once.Do(func() {
		k.table.mu.Lock()
		delete(k.table.conns, k)
		k.table.mu.Unlock()
		k.mu.Lock()
		defer k.mu.Unlock()
		k.ended = true
		k.table.limits.Give(k.party, k.held)
		k.table.limits.Disconnect(k.party)
	})
	return k.Conn.Close()
}

// disconnectMatching closes the connections whose peer matches and returns how many.
func (t *table) disconnectMatching(match func(identity.Identity) bool) int {
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
