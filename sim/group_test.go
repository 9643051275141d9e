package sim

import (
	"slices"
	"testing"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// newTestGroup is a world of three controllers without nodes, jobs or faults, in which messages
// arrive within a millisecond.
func newTestGroup(t *testing.T) *World {
	t.Helper()
	profile := Profile{Nodes: 1, CPUs: 1, Slow: spec.Millisecond, Groups: Groups{Members: 3}}
	w, err := newWorld(1, profile)
	if err != nil {
		t.Fatal(err)
	}
	w.group.begin()
	w.runUntil(w.now.Add(spec.Second))
	if !w.ctl.up || w.err != nil {
		t.Fatalf("nobody leads after a second: %v", w.err)
	}
	return w
}

// A group elects the first, keeps it while all is well, and elects another when it dies.
func TestGroupElectsAnother(t *testing.T) {
	w := newTestGroup(t)
	first := w.ctl
	w.runUntil(w.now.Add(spec.Minute))
	if w.ctl != first {
		t.Fatalf("%s leads, though nothing happened to %s", w.ctl.m.name, first.m.name)
	}
	first.m.crash()
	first.m.deaf = true // it is back soon, and must not be the one that is elected
	w.runUntil(w.now.Add(15 * spec.Second))
	first.m.join()
	w.runUntil(w.now.Add(5 * spec.Second))
	if w.ctl == first || !w.ctl.up || w.err != nil {
		t.Fatalf("nobody took the lead over: %v", w.err)
	}
	if !first.m.alive || first.m.ctl != nil || first.m.term != w.ctl.term {
		t.Errorf("%s does not follow %s: %q", first.m.name, w.ctl.m.name, w.trace)
	}
}

// A leader that nobody hears is overtaken. It believes for a while that it leads, and nothing
// that it writes is chosen.
func TestOvertakenLeaderChoosesNothing(t *testing.T) {
	w := newTestGroup(t)
	old := w.ctl
	old.patience = spec.Minute
	old.m.mute = true
	old.m.deaf = true
	w.runUntil(w.now.Add(20 * spec.Second))
	if w.ctl == old || !w.ctl.up || !old.up {
		t.Fatal("the cut-off leader was not overtaken, or knows of it")
	}
	if old.confirmsLead() || !w.ctl.confirmsLead() {
		t.Error("the overtaken leader confirms its lead, or the newest does not")
	}
	chosen := old.chosen
	old.st.Seq++ // something to write
	old.flying = append(old.flying, &batch{after: old.st.Freeze()})
	old.m.log = append(old.m.log, &entry{term: old.term, batch: old.flying[0]})
	old.landBatch(old.flying[0])
	w.runUntil(w.now.Add(5 * spec.Second))
	if old.chosen != chosen || len(old.waiting) == 0 {
		t.Error("an overtaken leader had something chosen")
	}
	old.m.join()
	w.runUntil(w.now.Add(20 * spec.Second))
	if old.up || !slices.Equal(old.m.log, w.ctl.m.log) || w.err != nil {
		t.Errorf("the overtaken leader does not follow with the other's log: %v", w.err)
	}
}

// A leader that was overtaken answers no heartbeat: the leader after it counts leases from its own
// beginning.
func TestOvertakenLeaderLengthensNoLease(t *testing.T) {
	w := newTestGroup(t)
	w.profile.Fencing = fencesByLease
	n := newNode(w, nodeName(0))
	old := w.ctl
	old.grantLease(n, 1)
	if old.sent[n.name] != 1 {
		t.Fatal("the leader does not answer")
	}
	old.patience = spec.Minute
	old.m.mute = true
	old.m.deaf = true
	w.runUntil(w.now.Add(20 * spec.Second))
	if !old.up || w.ctl == old {
		t.Fatal("the cut-off leader was not overtaken, or knows of it")
	}
	old.grantLease(n, 2)
	if old.sent[n.name] != 1 {
		t.Error("an overtaken leader answered a heartbeat")
	}
}

// An entry of an earlier term that a majority has is not chosen before one of the leader's own
// term is: a member with a newer term could still replace it (figure 8 of the paper on raft).
func TestOlderEntriesAreChosenWithOwn(t *testing.T) {
	w := newTestGroup(t)
	c := w.ctl
	old := &entry{term: c.term, batch: &batch{after: state.New()}}
	c.m.log = append(c.m.log, old)
	c.term++ // as after an election
	chosen := c.chosen
	for _, m := range w.group.members {
		c.copies[m] = len(c.m.log)
	}
	c.advance()
	if c.chosen != chosen {
		t.Fatal("an entry of an earlier term was chosen by itself")
	}
	c.m.log = append(c.m.log, &entry{term: c.term, batch: &batch{after: state.New()}})
	for _, m := range w.group.members {
		c.copies[m] = len(c.m.log)
	}
	c.advance()
	if c.chosen != len(c.m.log) {
		t.Error("an entry of its own term was not chosen")
	}
}

// A member that lacks what a snapshot replaces takes it, one that has more keeps what it has.
func TestSnapshotIsTakenOnlyWhereItIsNeeded(t *testing.T) {
	w := newTestGroup(t)
	c := w.ctl
	follower := w.group.members[1]
	entries := c.m.log
	for range 3 {
		entries = append(entries, &entry{term: c.term, batch: &batch{after: state.New()}})
	}
	message := appendMessage{from: c.m, term: c.term, entries: entries[:2], snap: []byte("state")}
	follower.takeEntries(message)
	if follower.snapAt != 2 || !slices.Equal(follower.log, entries[:2]) {
		t.Fatalf("the snapshot was not taken: %d entries, snapshot at %d", len(follower.log), follower.snapAt)
	}
	follower.takeEntries(appendMessage{from: c.m, term: c.term, entries: entries})
	follower.takeEntries(message)
	if !slices.Equal(follower.log, entries) {
		t.Errorf("a late snapshot took %d entries away", len(entries)-len(follower.log))
	}
}

// A leader whose disk hangs gives up the lead, though all others hear it. What its disk had not taken
// is nobody's, and it follows when the disk is back.
func TestALeaderWhoseDiskHangsGivesUp(t *testing.T) {
	w := newTestGroup(t)
	old := w.ctl
	old.m.disk.is, old.m.disk.since = diskHangs, w.now
	old.st.Seq++ // something to write
	lost := &batch{after: old.st.Freeze()}
	old.flying = append(old.flying, lost)
	old.landBatch(lost)
	w.runUntil(w.now.Add(30 * spec.Second))
	if w.ctl == old || !w.ctl.up || old.up {
		t.Fatal("the leader whose disk hangs leads on")
	}
	old.m.healDisk()
	w.runUntil(w.now.Add(30 * spec.Second))
	if !slices.Equal(old.m.log, w.ctl.m.log) || w.err != nil {
		t.Errorf("with its disk back it does not follow: %v", w.err)
	}
}
