package log_test

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/log/logtest"
)

// plainLayer carries raft over TCP without TLS.
type plainLayer struct{ net.Listener }

func (plainLayer) Dial(address string, timeout time.Duration) (net.Conn, error) {
	return net.DialTimeout("tcp", address, timeout)
}

// joiner opens a member of a group over TCP.
func (c *cluster) joiner(disk *logtest.Disk, id string, first bool) *node {
	c.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		c.t.Fatal(err)
	}
	nd := &node{id: id, disk: disk, m: &logtest.Machine{}}
	opts := simOptions(disk, nd.m)
	opts.NodeID, opts.Timeout = id, 100*time.Millisecond
	opts.Transport = log.NewTransport(plainLayer{l}, time.Second, slog.New(slog.DiscardHandler))
	if first {
		opts.Members = []log.Member{{ID: id, Address: l.Addr().String()}}
	}
	nd.l = mustOpen(c.t, opts)
	c.nodes = append(c.nodes, nd)
	c.members = append(c.members, log.Member{ID: id, Address: l.Addr().String()})
	return nd
}

func (c *cluster) await(what string, done func() bool) {
	c.t.Helper()
	for !done() {
		if c.t.Context().Err() != nil {
			c.t.Fatalf("%s did not happen", what)
		}
		time.Sleep(time.Millisecond) //muster:sleep raft runs in real time
	}
}

// TestGroupGrowsFromOne: the ledger of a single controller becomes that of a group, which others join, in which the lead is
// handed over, and which a member leaves.
func TestGroupGrowsFromOne(t *testing.T) {
	disk := logtest.NewDisk(1)
	h := &history{next: 1, acked: map[log.Position]int{}}
	alone := simOptions(disk, &logtest.Machine{})
	single := mustOpen(t, alone)
	for range 20 {
		mustAppend(t, single, h)
	}
	if err := single.Snapshot(bg); err != nil {
		t.Fatal(err)
	}
	for range 20 {
		mustAppend(t, single, h)
	}
	mustClose(t, single)

	// Where another controller has the ledger of a group, this one is left as it is.
	refused := simOptions(disk, &logtest.Machine{})
	refused.NodeID = "ctl1"
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused.Transport = log.NewTransport(plainLayer{l}, time.Second, slog.New(slog.DiscardHandler))
	others := errors.New("others have a group")
	refused.Found = func() error { return others }
	if _, err := log.Open(bg, refused); !errors.Is(err, others) {
		t.Fatalf("opened beside a group: %v", err)
	}
	mustClose(t, mustOpen(t, alone))

	c := &cluster{t: t}
	one := c.joiner(disk, "ctl1", false)
	lead := c.leader()
	if lead != one || one.l.LastPosition() != 40 {
		t.Fatalf("the first member leads: %v, at position %d", lead == one, one.l.LastPosition())
	}
	mustAppend(t, one.l, h)
	two, three := c.joiner(logtest.NewDisk(2), "ctl2", false), c.joiner(logtest.NewDisk(3), "ctl3", false)
	for i, nd := range []*node{two, three} {
		m := c.members[i+1]
		m.Joining = true
		if err := one.l.Add(bg, m); err != nil {
			t.Fatal(err)
		}
		c.waitFor(nd, 41)
		if err := one.l.Add(bg, c.members[i+1]); err != nil {
			t.Fatal(err)
		}
	}
	c.await("both vote", func() bool {
		voters := 0
		for _, m := range two.l.Group() {
			if !m.Joining {
				voters++
			}
		}
		return voters == 3
	})
	before := one.l.Term()
	ctx, cancel := context.WithTimeout(bg, time.Minute)
	defer cancel()
	if err := one.l.HandOver(ctx, "ctl3"); err != nil {
		t.Fatal(err)
	}
	c.await("ctl3 leads", func() bool { return three.l.Leader().Self })
	if three.l.Term() <= before {
		t.Errorf("term %d after %d", three.l.Term(), before)
	}
	var nl *log.NotLeaderError
	if err := one.l.Remove(ctx, "ctl2"); !errors.As(err, &nl) {
		t.Errorf("a member that does not lead removes another: %v", err)
	}
	if lead = c.leader(); lead != three {
		t.Fatalf("%s leads", lead.id)
	}
	mustAppend(t, three.l, h)
	if err := three.l.Remove(ctx, "ctl1"); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, three.l, h)
	c.waitFor(two, 43)
	if err := h.check(two.m); err != nil {
		t.Fatal(err)
	}
	for _, nd := range c.nodes {
		mustClose(t, nd.l)
	}

	// The folder remembers whose it is, and that it is of a group.
	_, trans := raft.NewInmemTransport("x")
	opts := simOptions(disk, &logtest.Machine{})
	opts.NodeID, opts.Transport = "ctl9", trans
	if _, err := log.Open(bg, opts); err == nil || !strings.Contains(err.Error(), "belongs to controller ctl1") {
		t.Errorf("another controller opens the folder: %v", err)
	}
	if _, err := log.Open(bg, simOptions(disk, &logtest.Machine{})); err == nil || !strings.Contains(err.Error(), "group") {
		t.Errorf("a single controller opens the folder of a group: %v", err)
	}
}

// TestDropStart: a member that joins a log which began with a state, as a rebuilt one does, gets that
// state, and not only the entries behind it.
func TestDropStart(t *testing.T) {
	h := &history{next: 1, acked: map[log.Position]int{}}
	m := &logtest.Machine{}
	old := mustOpen(t, simOptions(logtest.NewDisk(1), m))
	if err := old.DropStart(); err == nil {
		t.Error("a log that holds its whole history drops its start")
	}
	for range 20 {
		mustAppend(t, old, h)
	}
	mustClose(t, old)
	disk := logtest.NewDisk(2)
	rebuilt := simOptions(disk, m)
	rebuilt.StartAt = 20
	fresh := mustOpen(t, rebuilt)
	if err := fresh.Snapshot(bg); err != nil {
		t.Fatal(err)
	}
	if err := fresh.DropStart(); err != nil {
		t.Fatal(err)
	}
	mustClose(t, fresh)

	c := &cluster{t: t}
	one := c.joiner(disk, "ctl1", false)
	c.leader()
	mustAppend(t, one.l, h)
	two := c.joiner(logtest.NewDisk(3), "ctl2", false)
	if err := one.l.Add(bg, c.members[1]); err != nil {
		t.Fatal(err)
	}
	c.waitFor(two, 21)
	if err := h.check(two.m); err != nil {
		t.Error(err)
	}
	for _, nd := range c.nodes {
		mustClose(t, nd.l)
	}
}

// TestARemovedMemberComesBack: a member that knows that it was removed opens its folder, has no vote, and
// goes on with what it had when it is added again.
func TestARemovedMemberComesBack(t *testing.T) {
	c := newCluster(t, 3)
	h := &history{next: 1, acked: map[log.Position]int{}}
	lead := c.leader()
	mustAppend(t, lead.l, h)
	removed := c.nodes[0]
	if removed == lead {
		removed = c.nodes[1]
	}
	if err := lead.l.Remove(bg, removed.id); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, lead.l, h)
	if err := lead.l.Add(bg, log.Member{ID: removed.id, Address: removed.id, Joining: true}); err != nil {
		t.Fatal(err)
	}
	c.waitFor(removed, 2)
	if err := lead.l.Remove(bg, removed.id); err != nil {
		t.Fatal(err)
	}
	c.await("it knows that it was removed", func() bool {
		for _, member := range removed.l.Group() {
			if member.ID == removed.id {
				return false
			}
		}
		return true
	})
	c.stop(removed)
	c.start(removed)
	if lead.l.Leader().ID != lead.id || removed.l.Leader().Self {
		t.Error("the removed member changed who leads")
	}
	if err := lead.l.Add(bg, log.Member{ID: removed.id, Address: removed.id}); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, lead.l, h)
	c.waitFor(removed, 3)
	if err := h.check(removed.m); err != nil {
		t.Error(err)
	}
	for _, nd := range c.nodes {
		c.stop(nd)
	}
}
