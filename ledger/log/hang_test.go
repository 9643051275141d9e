package log_test

import (
	"errors"
	"testing"

	"github.com/musterhpc/muster/ledger/log"
)

// TestAHungDiskGivesUpTheLead: a leader whose disk does not answer sends heartbeats as before, so its
// own word that it does not lead is what lets the others go on. What it had not stored is not
// acknowledged, and with its disk back it follows.
func TestAHungDiskGivesUpTheLead(t *testing.T) {
	c := newCluster(t, 3)
	h := &history{next: 1, acked: map[log.Position]int{}}
	old := c.leader()
	mustAppend(t, old.l, h)
	present := old.l.PresentLead()
	release := make(chan struct{})
	old.disk.SyncError = func(string) error {
		<-release
		return nil
	}
	lost := old.l.Append(payload(99))
	<-present.Over()
	if lead := old.l.Leader(); lead.Self {
		t.Error("the member whose disk hangs says that it leads")
	}
	if err := present.Confirm(bg, present.Now()); !errors.Is(err, log.ErrNotLeader) {
		t.Errorf("its lead is confirmed: %v", err)
	}
	var notLeader *log.NotLeaderError
	if _, err := lost.Wait(bg); !errors.As(err, &notLeader) || !notLeader.Unknown {
		t.Errorf("the batch that the disk did not take: %v", err)
	}
	next := c.leader()
	if next == old {
		t.Fatal("nobody took the lead over")
	}
	for range 20 {
		mustAppend(t, next.l, h)
	}
	close(release)
	last := next.l.LastPosition()
	c.waitFor(old, last)
	mustAppend(t, next.l, h)
	c.waitFor(old, last+1)
	want := next.m.Hash()
	if old.m.Hash() != want {
		t.Error("the member whose disk hung holds another state")
	}
	for _, nd := range c.nodes {
		c.stop(nd)
	}
}

// TestAShortHangKeepsTheLead: a disk that answers in time costs nothing but that time.
func TestAShortHangKeepsTheLead(t *testing.T) {
	c := newCluster(t, 3)
	h := &history{next: 1, acked: map[log.Position]int{}}
	lead := c.leader()
	present := lead.l.PresentLead()
	asked := make(chan struct{}, 100)
	release := make(chan struct{})
	lead.disk.SyncError = func(string) error {
		asked <- struct{}{}
		<-release
		return nil
	}
	batch := lead.l.Append(payload(h.next))
	<-asked
	close(release)
	if _, err := batch.Wait(bg); err != nil {
		t.Error(err)
	}
	select {
	case <-present.Over():
		t.Error("the lead is over")
	default:
	}
	for _, nd := range c.nodes {
		c.stop(nd)
	}
}
