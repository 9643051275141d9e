package log_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/log/logtest"
)

// probedTransport tells what a test knows of the processes of the others.
type probedTransport struct {
	*raft.InmemTransport
	ended chan struct{}
	probe func(address string) error
}

func (p *probedTransport) ConnectionEnded() <-chan struct{} { return p.ended }

func (p *probedTransport) Probe(address string) error { return p.probe(address) }

// newProbedCluster is three members of which only the first is elected by the silence of others.
// The transports are in the order of the members.
func newProbedCluster(t *testing.T, probe func(c *cluster, address string) error) (*cluster, []*probedTransport) {
	t.Helper()
	c := &cluster{t: t}
	var transports []*probedTransport
	c.wrap = func(inner *raft.InmemTransport) raft.Transport {
		inner.Connect(inner.LocalAddr(), inner) // as a real one reaches itself
		p := &probedTransport{InmemTransport: inner, ended: make(chan struct{}, 1)}
		p.probe = func(address string) error { return probe(c, address) }
		transports = append(transports, p)
		return p
	}
	for i, id := range []string{"c1", "c2", "c3"} {
		c.members = append(c.members, log.Member{ID: id, Address: id})
		c.nodes = append(c.nodes, &node{id: id, disk: logtest.NewDisk(uint64(i))})
	}
	for _, nd := range c.nodes {
		c.start(nd)
		c.timeout = time.Hour
	}
	if lead := c.leader(); lead != c.nodes[0] {
		t.Fatalf("%s leads", lead.id)
	}
	return c, transports
}

// TestAnEndedLeaderIsSucceeded: when the leader's process has ended, another is elected though none of
// the others would notice its silence for an hour.
func TestAnEndedLeaderIsSucceeded(t *testing.T) {
	c, transports := newProbedCluster(t, func(c *cluster, address string) error {
		for _, nd := range c.nodes {
			if nd.id == address && nd.l != nil {
				return nil
			}
		}
		return &connectError{}
	})
	h := &history{next: 1, acked: map[log.Position]int{}}
	for range 10 {
		mustAppend(t, c.nodes[0].l, h)
	}
	c.stop(c.nodes[0])
	transports[1].ended <- struct{}{}
	transports[2].ended <- struct{}{}
	lead := c.leader()
	mustAppend(t, lead.l, h)
	if err := h.check(lead.m); err != nil {
		t.Error(err)
	}
	for _, nd := range c.nodes[1:] {
		c.stop(nd)
	}
}

// TestALeaderThatListensIsKept: connections end for many reasons, and a leader that listens leads on.
func TestALeaderThatListensIsKept(t *testing.T) {
	asked := make(chan struct{}, 100)
	c, transports := newProbedCluster(t, func(*cluster, string) error {
		asked <- struct{}{}
		return nil
	})
	present := c.nodes[0].l.PresentLead()
	transports[1].ended <- struct{}{}
	transports[2].ended <- struct{}{}
	<-asked
	<-asked
	h := &history{next: 1, acked: map[log.Position]int{}}
	mustAppend(t, c.nodes[0].l, h)
	if err := present.Confirm(bg, present.Now()); err != nil {
		t.Errorf("the lead is over: %v", err)
	}
	for _, nd := range c.nodes {
		c.stop(nd)
	}
}

// connectError is what a dialler says of a port at which nothing listens.
type connectError struct{}

func (connectError) Error() string { return "connection refused" }
func (connectError) Unwrap() error { return syscall.ECONNREFUSED }
