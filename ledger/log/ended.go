package log

import (
	"errors"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

// A leader whose process has ended is not waited for. Raft finds out by silence, which takes up to
// twice the election timeout on each of the others, and nobody votes before its own has passed.
// But the end of a process shows at once: its connections end, and nothing listens at its address
// any more. A member that sees both stands for election. Of a machine that lost its power, a network
// that is cut and a process that is stopped nothing of this can be seen; there raft's silence decides.
//
// It is no matter of safety who stands for election, and when. What keeps a healthy leader from being
// unseated is that it listens.

// Prober is a transport that sees the end of other members' processes.
type Prober interface {
	// ConnectionEnded receives when a connection that another member opened has ended.
	ConnectionEnded() <-chan struct{}
	// Probe returns nil when a member answers at an address, an error that is ECONNREFUSED when nothing
	// listens there, and any other when neither is known.
	Probe(address string) error
}

// standAfter is for how long each further member lets those before it try first, so that they do not
// split the votes. An election takes two syncs of a disk on each side.
const standAfter = 200 * time.Millisecond

// A process that is killed stops to listen a moment before or after its connections end.
const (
	probes     = 25
	probeEvery = 20 * time.Millisecond
)

// watchLeaderProcess stands for election when the leader's process has ended.
func (d *Durable) watchLeaderProcess(p Prober) {
	defer d.wg.Done()
	for {
		select {
		case <-p.ConnectionEnded():
			d.succeedLeader(p)
		case <-d.closing:
			return
		}
	}
}

// succeedLeader stands for election if the leader's process has ended and no member before this one
// was elected.
func (d *Durable) succeedLeader(p Prober) {
	dead := d.Leader()
	if !dead.Known || dead.Self || !d.hasEnded(p, dead.Address) {
		return
	}
	rank, votes := d.rankWithout(dead.ID)
	if !votes || !d.pause(time.Duration(rank)*standAfter) {
		return
	}
	// One before this one may have stood and lost, because this one has more of the log: then no leader
	// is known.
	now := d.Leader()
	isFollower := d.raft.State() == raft.Follower
	if now.Known && now != dead || !isFollower || d.hung.Load() || !d.hasEnded(p, dead.Address) {
		return
	}
	d.opts.Logger.Info(
		"the leader's process has ended: this controller stands for election",
		"leader", dead.ID,
	)
	// What a leader tells the member to which it hands the lead over. The others vote for it though
	// they have not noticed yet that the leader is silent.
	self := d.trans.LocalAddr()
	request := &raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{
		ProtocolVersion: raft.ProtocolVersionMax,
		ID:              []byte(d.opts.NodeID),
		Addr:            d.trans.EncodePeer(raft.ServerID(d.opts.NodeID), self),
	}}
	err := d.trans.TimeoutNow(raft.ServerID(d.opts.NodeID), self, request, &raft.TimeoutNowResponse{})
	if err != nil {
		d.opts.Logger.Warn("the election waits for the leader's silence", "error", err)
	}
}

// hasEnded tells whether nothing listens at a member's address.
func (d *Durable) hasEnded(p Prober, address string) bool {
	for range probes {
		err := p.Probe(address)
		if err == nil {
			return false
		}
		if errors.Is(err, syscall.ECONNREFUSED) {
			return true
		}
		if !d.pause(probeEvery) {
			return false
		}
	}
	return false
}

// rankWithout is the place of this member among those that vote but one, and whether it votes.
func (d *Durable) rankWithout(id string) (int, bool) {
	var ids []string
	for _, member := range d.Group() {
		if !member.Joining && member.ID != id {
			ids = append(ids, member.ID)
		}
	}
	slices.Sort(ids)
	return slices.BinarySearch(ids, d.opts.NodeID)
}

// pause waits; false means that the log is closing.
func (d *Durable) pause(span time.Duration) bool {
	timer := time.NewTimer(span)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-d.closing:
		return false
	}
}

// endingLayer notes when connections that others opened end.
type endingLayer struct {
	Layer
	ended chan struct{}
}

func newEndingLayer(layer Layer) endingLayer {
	return endingLayer{Layer: layer, ended: make(chan struct{}, 1)}
}

// Accept implements net.Listener.
func (l endingLayer) Accept() (net.Conn, error) {
	conn, err := l.Layer.Accept()
	if err != nil {
		return nil, err
	}
	return &endingConn{Conn: conn, ended: l.ended}, nil
}

// endingConn is closed by the transport when the other side has closed it.
type endingConn struct {
	net.Conn
	ended chan struct{}
	once  sync.Once
}

// Close implements net.Conn.
func (c *endingConn) Close() error {
	c.once.Do(func() {
		select {
		case c.ended <- struct{}{}:
		default: // somebody looks already, or will
		}
	})
	return c.Conn.Close()
}

// probePatience bounds one probe.
const probePatience = time.Second

// probe opens a connection and closes it.
func (l endingLayer) probe(address string) error {
	conn, err := l.Dial(address, probePatience)
	if err != nil {
		return err
	}
	return conn.Close()
}
