package log_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/log/logtest"
)

// heldTransport keeps back the answers of others while it is held, as the
// network and a process that is stopped do.
type heldTransport struct {
	*raft.InmemTransport
	mu   sync.Mutex
	held chan struct{} // nil = answers pass
	kept int           // answers that wait
	sent int           // requests since it was made
}

func (h *heldTransport) hold() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.held = make(chan struct{})
}

func (h *heldTransport) release() {
	h.mu.Lock()
	defer h.mu.Unlock()
	close(h.held)
	h.held = nil
}

func (h *heldTransport) count(of *int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return *of
}

// AppendEntries implements raft.Transport.
func (h *heldTransport) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	h.mu.Lock()
	h.sent++
	h.mu.Unlock()
	err := h.InmemTransport.AppendEntries(id, target, args, resp)
	h.mu.Lock()
	held := h.held
	if held != nil {
		h.kept++
	}
	h.mu.Unlock()
	if held != nil {
		<-held
	}
	return err
}

// newHeldCluster is a cluster of three whose answers can be kept back, and its
// leader with its transport.
func newHeldCluster(t *testing.T, timeout time.Duration) (*cluster, *node, *heldTransport) {
	t.Helper()
	c := &cluster{t: t, timeout: timeout}
	held := map[raft.ServerAddress]*heldTransport{}
	c.wrap = func(inner *raft.InmemTransport) raft.Transport {
		h := &heldTransport{InmemTransport: inner}
		held[inner.LocalAddr()] = h
		return h
	}
	for i, id := range []string{"c1", "c2", "c3"} {
		c.members = append(c.members, log.Member{ID: id, Address: id})
		c.nodes = append(c.nodes, &node{id: id, disk: logtest.NewDisk(uint64(i))})
	}
	for _, nd := range c.nodes {
		c.start(nd)
	}
	lead := c.leader()
	return c, lead, held[raft.ServerAddress(lead.id)]
}

// TestConfirmLead: a lead is confirmed while it lasts, and never by what the others said before the
// question, however late that arrives.
func TestConfirmLead(t *testing.T) {
	c := newCluster(t, 3)
	lead := c.leader()
	h := &history{next: 1, acked: map[log.Position]int{}}
	mustAppend(t, lead.l, h)
	first := lead.l.PresentLead()
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			if err := first.Confirm(bg, first.Now()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, nd := range c.nodes {
		if nd == lead {
			continue
		}
		l := nd.l.PresentLead()
		if err := l.Confirm(bg, l.Now()); !errors.Is(err, log.ErrNotLeader) {
			t.Errorf("a member that does not lead: %v", err)
		}
	}
	// One of the others is enough for a majority, and none is not.
	var others []*node
	for _, nd := range c.nodes {
		if nd != lead {
			others = append(others, nd)
		}
	}
	c.stop(others[0])
	if err := first.Confirm(bg, first.Now()); err != nil {
		t.Errorf("with a majority: %v", err)
	}
	c.stop(others[1])
	if err := first.Confirm(bg, first.Now()); !errors.Is(err, log.ErrNotLeader) {
		t.Errorf("without a majority: %v", err)
	}
	c.start(others[0])
	again := c.leader()
	l := again.l.PresentLead()
	if err := l.Confirm(bg, l.Now()); err != nil {
		t.Error(err)
	}
	if err := first.Confirm(bg, first.Now()); !errors.Is(err, log.ErrNotLeader) {
		t.Errorf("an earlier lead, also of this member: %v", err)
	}
	c.start(others[1])
	for _, nd := range c.nodes {
		c.stop(nd)
	}
}

// TestLateAnswersDoNotConfirm: what others answered before a call came, and what is heard of only
// after it, does not confirm the lead. Raft's VerifyLeader takes it for a proof.
func TestLateAnswersDoNotConfirm(t *testing.T) {
	c, lead, trans := newHeldCluster(t, 200*time.Millisecond)
	mustAppend(t, lead.l, &history{next: 1, acked: map[log.Position]int{}})
	present := lead.l.PresentLead()
	trans.hold()
	before := present.Now()
	asking, stop := context.WithCancel(bg)
	asked := make(chan error, 1)
	go func() { asked <- present.Confirm(asking, before) }()
	c.await("the others answer", func() bool { return trans.count(&trans.kept) >= 2 })
	stop()
	<-asked
	// The answers lie there. The others are gone now, and a call comes.
	lead.trans.DisconnectAll()
	since := present.Now()
	trans.release()
	if err := present.Confirm(bg, before); err != nil && !errors.Is(err, log.ErrNotLeader) {
		t.Errorf("for the earlier moment: %v", err)
	}
	if err := present.Confirm(bg, since); !errors.Is(err, log.ErrNotLeader) {
		t.Errorf("answers to what was sent before the call confirm the lead: %v", err)
	}
	for _, nd := range c.nodes {
		mustClose(t, nd.l)
	}
}

// TestConfirmationIsShared: calls that wait at the same time ask the others once.
func TestConfirmationIsShared(t *testing.T) {
	c, lead, trans := newHeldCluster(t, 5*time.Second)
	present := lead.l.PresentLead()
	trans.hold()
	const calls = 500
	var wg sync.WaitGroup
	start := trans.count(&trans.sent)
	for range calls {
		since := present.Now()
		wg.Go(func() {
			if err := present.Confirm(bg, since); err != nil {
				t.Error(err)
			}
		})
	}
	c.await("the others are asked", func() bool { return trans.count(&trans.kept) >= 2 })
	trans.release()
	wg.Wait()
	// At most two questions for each of the two others, and a few of raft's own heartbeats.
	if n := trans.count(&trans.sent) - start; n > calls/10 {
		t.Errorf("%d calls had the others asked %d times", calls, n)
	}
	// A batch that the others have answered confirms the lead without a question.
	since := present.Now()
	mustAppend(t, lead.l, &history{next: 1, acked: map[log.Position]int{}})
	trans.hold()
	if err := present.Confirm(bg, since); err != nil {
		t.Error(err)
	}
	trans.release()
	for _, nd := range c.nodes {
		c.stop(nd)
	}
}
