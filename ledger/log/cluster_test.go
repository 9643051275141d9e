package log_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/log/logtest"
)

// node is one member of a simulated cluster.
type node struct {
	id    string
	disk  *logtest.Disk
	m     *logtest.Machine
	l     *log.Durable
	trans *raft.InmemTransport
	// witness is set on a member without a machine.
	witness bool
}

type cluster struct {
	t       *testing.T
	timeout time.Duration // of raft; 0 = 100 ms
	members []log.Member
	nodes   []*node
	// wrap makes the transport of a member of the one between the members.
	wrap func(*raft.InmemTransport) raft.Transport
}

func newCluster(t *testing.T, n int) *cluster {
	c := &cluster{t: t}
	for i := range n {
		id := fmt.Sprintf("c%d", i+1)
		c.members = append(c.members, log.Member{ID: id, Address: id})
		c.nodes = append(c.nodes, &node{id: id, disk: logtest.NewDisk(uint64(i))})
	}
	for _, nd := range c.nodes {
		c.start(nd)
	}
	return c
}

func (c *cluster) start(nd *node) {
	c.t.Helper()
	_, nd.trans = raft.NewInmemTransport(raft.ServerAddress(nd.id))
	for _, other := range c.nodes {
		if other != nd && other.l != nil {
			nd.trans.Connect(raft.ServerAddress(other.id), other.trans)
			other.trans.Connect(raft.ServerAddress(nd.id), nd.trans)
		}
	}
	nd.m = &logtest.Machine{}
	opts := simOptions(nd.disk, nd.m)
	opts.NodeID, opts.Transport, opts.Members, opts.Timeout = nd.id, nd.trans, c.members, max(c.timeout, 100*time.Millisecond)
	if c.wrap != nil {
		opts.Transport = c.wrap(nd.trans)
	}
	if nd.witness {
		opts.Witness, opts.Machine = true, nil
	}
	nd.l = mustOpen(c.t, opts)
	if nd.witness {
		go nd.l.PassLead(bg, nil) // ends with the log
	}
}

func (c *cluster) stop(nd *node) {
	mustClose(c.t, nd.l)
	for _, other := range c.nodes {
		if other.l != nil && other != nd {
			other.trans.Disconnect(raft.ServerAddress(nd.id))
		}
	}
	nd.l = nil
}

// leader resumes the writer on whichever member leads.
func (c *cluster) leader() *node {
	for {
		for _, nd := range c.nodes {
			if nd.l == nil || nd.witness || !nd.l.Leader().Self {
				continue
			}
			err := nd.l.Resume(bg)
			if err == nil {
				return nd
			}
			if !errors.Is(err, log.ErrNotLeader) {
				c.t.Fatalf("resume on %s: %v", nd.id, err)
			}
		}
		time.Sleep(time.Millisecond) //muster:sleep an election runs in real time
	}
}

// waitFor waits until a member has applied everything up to pos.
func (c *cluster) waitFor(nd *node, pos log.Position) {
	for nd.l.LastPosition() < pos {
		if err := nd.l.Err(); err != nil {
			c.t.Fatalf("%s stopped: %v", nd.id, err)
		}
		time.Sleep(time.Millisecond) //muster:sleep replication runs in real time
	}
}

// TestThreeMembers: what is acknowledged survives the leader; followers refuse with the leader's name; a member that was away
// catches up from entries and, when those are gone, from a snapshot.
func TestThreeMembers(t *testing.T) {
	c := newCluster(t, 3)
	h := &history{next: 1, acked: map[log.Position]int{}}
	lead := c.leader()
	for range 50 {
		mustAppend(t, lead.l, h)
	}
	for _, nd := range c.nodes {
		c.waitFor(nd, 50)
		if nd == lead {
			continue
		}
		var nl *log.NotLeaderError
		if err := nd.l.Resume(bg); !errors.As(err, &nl) || nl.Leader.ID != lead.id {
			t.Fatalf("resume on a follower: %v", err)
		}
		if _, err := nd.l.Append(payload(1)).Wait(bg); !errors.Is(err, log.ErrNotLeader) {
			t.Fatalf("append on a follower: %v", err)
		}
	}
	c.stop(lead)
	away := lead
	lead = c.leader()
	// Enough for snapshots on those that stay, and for the log to be compacted beyond what the absent member has.
	for range 200 {
		mustAppend(t, lead.l, h)
	}
	if err := lead.l.Snapshot(bg); err != nil {
		t.Fatal(err)
	}
	for range 60 {
		mustAppend(t, lead.l, h)
	}
	if err := lead.l.Snapshot(bg); err != nil {
		t.Fatal(err)
	}
	if first := lead.l.Stats().FirstIndex; first < 60 {
		t.Fatalf("the leader's log still begins at %d", first)
	}
	c.start(away)
	last := log.Position(len(h.acked))
	c.waitFor(away, last)
	if away.m.Restored() == 0 {
		t.Fatal("the member that was away did not get a snapshot")
	}
	mustAppend(t, lead.l, h)
	want := uint64(0)
	for _, nd := range c.nodes {
		c.waitFor(nd, last+1)
		if err := h.check(nd.m); err != nil {
			t.Fatalf("%s: %v", nd.id, err)
		}
		if want == 0 {
			want = nd.m.Hash()
		} else if nd.m.Hash() != want {
			t.Fatalf("%s holds another state", nd.id)
		}
	}
	for _, nd := range c.nodes {
		c.stop(nd)
	}
	// The member that was away holds its own durable copy by now.
	c.start(away)
	if n := log.Position(away.m.Restored()); n == 0 {
		t.Fatal("nothing was restored from the installed snapshot")
	}
	c.stop(away)
}
