package log_test

import (
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/log/logtest"
)

// newPair is a group of two controllers and a witness.
func newPair(t *testing.T) (c *cluster, witness *node) {
	// Nobody but the test shall end a lead, however busy the machine is.
	c = &cluster{t: t, timeout: time.Second}
	for i, id := range []string{"c1", "c2", "w"} {
		c.members = append(c.members, log.Member{ID: id, Address: id})
		c.nodes = append(c.nodes, &node{id: id, disk: logtest.NewDisk(uint64(i)), witness: id == "w"})
	}
	for _, nd := range c.nodes {
		c.start(nd)
	}
	return c, c.nodes[2]
}

// other is the controller that does not lead.
func (c *cluster) other(lead *node) *node {
	for _, nd := range c.nodes {
		if nd != lead && !nd.witness {
			return nd
		}
	}
	return nil
}

// cutOff takes a member's connections away, and joins them again.
func (c *cluster) cutOff(nd *node) (join func()) {
	for _, other := range c.nodes {
		if other != nd && other.l != nil {
			other.trans.Disconnect(raft.ServerAddress(nd.id))
			nd.trans.Disconnect(raft.ServerAddress(other.id))
		}
	}
	return func() {
		for _, other := range c.nodes {
			if other != nd && other.l != nil {
				other.trans.Connect(raft.ServerAddress(nd.id), nd.trans)
				nd.trans.Connect(raft.ServerAddress(other.id), other.trans)
			}
		}
	}
}

// TestWitnessHandsOver: what one controller and the witness have acknowledged reaches the other controller after the loss of the
// first, by the witness's log, and that controller leads.
func TestWitnessHandsOver(t *testing.T) {
	c, witness := newPair(t)
	h := &history{next: 1, acked: map[log.Position]int{}}
	lead := c.leader()
	other := c.other(lead)
	for range 10 {
		mustAppend(t, lead.l, h)
	}
	c.waitFor(other, 10)
	join := c.cutOff(other)
	for range 30 {
		mustAppend(t, lead.l, h)
	}
	c.stop(lead)
	join()
	if now := c.leader(); now != other {
		t.Fatalf("%s leads", now.id)
	}
	c.waitFor(other, 40)
	mustAppend(t, other.l, h)
	if err := h.check(other.m); err != nil {
		t.Fatal(err)
	}
	if n := witness.l.Stats().LastPosition; n < 40 {
		t.Errorf("the witness knows of %d batches", n)
	}
	c.stop(other)
	c.stop(witness)
}

// TestWitnessKeepsNoState: a witness that gets a snapshot keeps its head; and a controller that lacks more than the witness's log
// has takes no snapshot of it, but waits for the other controller.
func TestWitnessKeepsNoState(t *testing.T) {
	c, witness := newPair(t)
	h := &history{next: 1, acked: map[log.Position]int{}}
	lead := c.leader()
	other := c.other(lead)
	mustAppend(t, lead.l, h)
	c.waitFor(other, 1)
	compact := func(nd *node, more int) {
		for range 2 {
			for range more {
				mustAppend(t, lead.l, h)
			}
			c.waitFor(nd, log.Position(len(h.acked)))
			if err := nd.l.Snapshot(bg); err != nil {
				t.Fatal(err)
			}
		}
	}

	// The witness was away for longer than the leader's log goes back.
	c.stop(witness)
	compact(lead, 30)
	c.start(witness)
	c.waitFor(witness, log.Position(len(h.acked)))
	for _, path := range witness.disk.Files() {
		if !strings.HasSuffix(path, ".snap") {
			continue
		}
		if n := len(witness.disk.Content(path)); n > 1024 {
			t.Errorf("the witness keeps %d bytes in %s", n, path)
		}
	}
	c.stop(witness)
	c.start(witness)
	mustAppend(t, lead.l, h)

	// The other controller was, and the one that has everything is lost.
	c.waitFor(other, log.Position(len(h.acked)))
	c.stop(other)
	has := len(h.acked)
	compact(witness, 30)
	c.stop(lead)
	c.start(other)
	time.Sleep(3 * time.Second) //muster:sleep the witness must have tried; it runs in real time
	if n := other.l.LastPosition(); n > log.Position(has) {
		t.Fatalf("a controller took position %d from the witness", n)
	}
	if err := other.l.Err(); err != nil {
		t.Fatal(err)
	}
	first := lead
	c.start(first)
	if lead = c.leader(); lead.witness {
		t.Fatal("the witness leads")
	}
	mustAppend(t, lead.l, h)
	for _, nd := range []*node{first, other} {
		c.waitFor(nd, log.Position(len(h.acked)))
		if err := h.check(nd.m); err != nil {
			t.Fatalf("%s: %v", nd.id, err)
		}
	}
	for _, nd := range []*node{first, other, witness} {
		c.stop(nd)
	}
}

// TestWitnessFolder: a controller does not open what a witness has kept.
func TestWitnessFolder(t *testing.T) {
	c, witness := newPair(t)
	h := &history{next: 1, acked: map[log.Position]int{}}
	lead := c.leader()
	for range 100 {
		mustAppend(t, lead.l, h)
	}
	c.waitFor(witness, 100)
	if err := witness.l.Snapshot(bg); err != nil {
		t.Fatal(err)
	}
	for _, nd := range c.nodes {
		c.stop(nd)
	}
	opts := simOptions(witness.disk, &logtest.Machine{})
	opts.NodeID, opts.Members = witness.id, c.members
	_, trans := raft.NewInmemTransport("w")
	opts.Transport = trans
	if l, err := log.Open(bg, opts); err == nil || !strings.Contains(err.Error(), "holds no state") {
		if err == nil {
			mustClose(t, l)
		}
		t.Errorf("a controller opened a witness's folder: %v", err)
	}
}
