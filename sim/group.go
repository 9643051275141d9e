package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/musterhpc/muster/spec"
)

// Groups is what a profile has of several controllers.
type Groups struct {
	Members    int       // controllers, each with a disk of its own: 1 or 3
	ApartEvery spec.Span // mean interval of partitions: a member is cut off, in one direction or both
	DiskEvery  spec.Span // mean interval of disk faults: a member's disk hangs or is full
}

func drawGroups(random *rand.Rand) Groups {
	groups := Groups{
		Members: 1, ApartEvery: drawInterval(random, 70, 10*spec.Second, 120*spec.Second),
	}
	if random.IntN(2) == 0 {
		groups.Members = 3
	}
	groups.DiskEvery = drawInterval(random, 50, 10*spec.Second, 120*spec.Second)
	return groups
}

// group is the controllers of the cluster, which keep one log together. The consensus between them
// is modelled by raft's rules and not by the library that the product uses, whose goroutines and
// timers are not deterministic. Messages between members are late, doubled, out of order and lost
// as all others are. Only an election is counted at one instant.
//
// Everything around the log is the product's: commands, fold, snapshots, the effects of committed
// batches, and a leader that has been overtaken and does not know it yet.
type group struct {
	w       *World
	members []*member
	// chosen is the longest prefix that a majority ever had on its disks. It only grows.
	chosen    []*entry
	crashes   int
	elections int
	overlaps  int // elections during which another controller still believed that it led
}

// entry is one place of the log.
type entry struct {
	term  uint64
	batch *batch // without events: the first entry of a leader's term
}

// member is one controller's machine: its disk and its clock outlive the process.
type member struct {
	g     *group
	name  string
	skew  spec.Span // of its clock
	alive bool
	boots int  // counts restarts of the process; work of an earlier one is void
	mute  bool // no other member hears it
	deaf  bool // it hears no other member
	disk  disk

	term   uint64   // the newest one it knows
	log    []*entry // on its disk
	snap   []byte   // an encoded state ...
	snapAt int      // ... after so many entries

	heard spec.Instant // when it last heard a leader, or voted for one
	ctl   *controller  // while it leads, or believes that it does
}

// The shortest and the longest time for which a member hears nothing before it stands for
// election.
const (
	shortestPatience = 4 * spec.Second
	longestPatience  = 8 * spec.Second
)

func newGroup(world *World) *group {
	g := &group{w: world}
	for i := range max(world.profile.Members, 1) {
		g.members = append(g.members, &member{
			g:     g,
			name:  fmt.Sprintf("controller %d", i+1),
			alive: true,
			heard: world.now.Add(-shortestPatience), // so that it votes at once
		})
	}
	return g
}

// majority is how many members choose an entry or a leader.
func (g *group) majority() int { return len(g.members)/2 + 1 }

// begin elects the first member and lets all members watch for a leader.
func (g *group) begin() {
	g.members[0].standForElection()
	if len(g.members) == 1 {
		return
	}
	for _, m := range g.members {
		m.watchLeader()
	}
}

// reaches tells whether a message from a member comes to another.
func (m *member) reaches(other *member) bool {
	return m.alive && other.alive && !m.mute && !other.deaf
}

// watchLeader runs the election timer of a follower.
func (m *member) watchLeader() {
	var look func()
	patience := shortestPatience
	look = func() {
		if m.alive && m.ctl == nil && m.g.w.now.Sub(m.heard) > patience {
			m.standForElection()
			patience = shortestPatience + m.g.w.upTo(longestPatience-shortestPatience)
		}
		m.g.w.scheduleAfter(m.g.w.upTo(spec.Second), look)
	}
	m.g.w.scheduleAfter(m.g.w.upTo(spec.Second), look)
}

// standForElection makes a member the leader if a majority votes for it. As with raft's vote before
// the vote, a try that fails changes nothing.
func (m *member) standForElection() {
	if !m.disk.works() {
		return // its vote for itself would not be kept
	}
	term := m.term
	voters := []*member{m}
	for _, other := range m.g.members {
		if other == m || !m.reaches(other) || !other.reaches(m) {
			continue
		}
		term = max(term, other.term)
		if other.wouldVoteFor(m) {
			voters = append(voters, other)
		}
	}
	if len(voters) < m.g.majority() {
		return
	}
	for _, voter := range voters {
		voter.term = term + 1
		voter.heard = m.g.w.now
	}
	m.g.noteElection(m)
	m.lead()
}

// wouldVoteFor tells whether a member gives its vote to a candidate: one that leads or hears a
// leader does not, nor does one that has what the candidate lacks.
func (m *member) wouldVoteFor(candidate *member) bool {
	if m.ctl != nil || !m.disk.works() || m.g.w.now.Sub(m.heard) < shortestPatience {
		return false
	}
	mine, his := m.lastTerm(), candidate.lastTerm()
	return his > mine || (his == mine && len(candidate.log) >= len(m.log))
}

func (m *member) lastTerm() uint64 {
	if len(m.log) == 0 {
		return 0
	}
	return m.log[len(m.log)-1].term
}

func (g *group) noteElection(leader *member) {
	g.elections++
	for _, m := range g.members {
		if m != leader && m.ctl != nil {
			g.overlaps++
		}
	}
	if g.elections > 1 {
		g.w.noteLine("%s leads in term %d", leader.name, leader.term)
	}
}

// lead begins a turn as the leader.
func (m *member) lead() {
	if len(m.log) < len(m.g.chosen) {
		m.g.w.failSeed(
			"%s leads with %d entries, but %d entries are committed",
			m.name, len(m.log), len(m.g.chosen),
		)
		return
	}
	c := newController(m)
	m.ctl = c
	m.g.w.ctl = c
	c.beginTurn()
}

// hearTerm learns of a term. A leader of an older term steps down.
func (m *member) hearTerm(term uint64) {
	if term <= m.term {
		return
	}
	m.term = term
	if m.ctl != nil {
		m.ctl.endTurn("it hears of term %d", term)
	}
}

// appendMessage is what a leader sends: its whole log as it was then. A member takes what it lacks.
type appendMessage struct {
	from    *member
	term    uint64
	entries []*entry
	// snap is set where the leader believes that the other lacks what is before its snapshot:
	// a state after all these entries.
	snap []byte
}

// takeEntries takes what a leader sent, and answers.
func (m *member) takeEntries(message appendMessage) {
	if message.term < m.term {
		m.answerAppend(message.from, message.term, -1)
		return
	}
	m.hearTerm(message.term)
	m.heard = m.g.w.now
	m.disk.write(func() { m.keepEntries(message) })
}

// keepEntries writes what a leader sent, unless another was elected while the disk hung.
func (m *member) keepEntries(message appendMessage) {
	if message.term < m.term {
		m.answerAppend(message.from, message.term, -1)
		return
	}
	same := m.sameEntries(message.entries)
	switch {
	case same == len(message.entries):
		// It has all of it, and perhaps more from a message that overtook this one.
	case message.snap != nil:
		m.log = slices.Clone(message.entries)
		m.snap = message.snap
		m.snapAt = len(message.entries)
	default:
		m.takeTail(same, message.entries[same:])
	}
	m.answerAppend(message.from, message.term, len(message.entries))
}

// takeTail replaces what comes after so many entries.
func (m *member) takeTail(same int, tail []*entry) {
	if same < m.snapAt {
		m.snap = nil
		m.snapAt = 0
	}
	// A message on its way may still show what is dropped here: the array is not written over.
	m.log = append(slices.Clip(m.log[:same]), tail...)
}

// sameEntries is with how many entries a member's log and another begin alike.
func (m *member) sameEntries(entries []*entry) int {
	same := min(len(m.log), len(entries))
	for same > 0 && m.log[same-1] != entries[same-1] {
		same--
	}
	return same
}

// answerAppend tells a leader how many of its entries are on this disk; -1 refuses, and
// the answer carries the newer term.
func (m *member) answerAppend(leader *member, term uint64, has int) {
	boots, newest := leader.boots, m.term
	m.g.w.sendMessage(func() {
		if boots != leader.boots || !m.reaches(leader) {
			return
		}
		leader.hearTerm(newest)
		if c := leader.ctl; c != nil && c.term == term && has >= 0 {
			c.noteCopy(m, has)
		}
	})
}

// choose records that a majority has the leader's first entries: they are committed.
func (g *group) choose(leader *member, count int) {
	known := min(count, len(g.chosen))
	if known > 0 && leader.log[known-1] != g.chosen[known-1] {
		g.w.failSeed(
			"entry %[2]d of %[1]s differs from the committed one: an acknowledged batch is lost",
			leader.name, known,
		)
		return
	}
	for _, e := range leader.log[known:count] {
		g.chosen = append(g.chosen, e)
		g.w.noteChosen(e.batch)
	}
}

// crashSome kills one of the controllers.
func (g *group) crashSome() {
	m := g.members[0]
	if len(g.members) > 1 {
		m = g.members[g.w.rng.IntN(len(g.members))]
	}
	m.crash()
}

// crash ends the process of a member. Of what a leader had not yet synced a part may have reached
// the disk. Nothing of that was acknowledged, and it may yet be chosen.
func (m *member) crash() {
	if !m.alive {
		return
	}
	m.alive = false
	m.boots++
	m.disk.forget()
	m.g.crashes++
	m.g.w.noteLine("%s dies", m.name)
	if c := m.ctl; c != nil {
		for _, b := range c.flying[:m.g.w.rng.IntN(len(c.flying)+1)] {
			if len(b.events) > 0 {
				m.log = append(m.log, &entry{term: c.term, batch: b})
			}
		}
		c.endTurn("its process ends")
	}
	m.g.w.scheduleAfter(m.g.w.upTo(3*spec.Second), m.restart)
}

func (m *member) restart() {
	if !m.disk.works() {
		m.g.w.scheduleAfter(spec.Second, m.restart)
		return
	}
	m.alive = true
	m.heard = m.g.w.now
	m.g.w.noteLine("%s is back with %d entries", m.name, len(m.log))
	if len(m.g.members) == 1 {
		m.standForElection()
	}
}

// cutOff keeps the messages of some member from the others for a while: those to it, those from
// it, or both. Nodes and users still reach it.
func (g *group) cutOff() {
	if len(g.members) == 1 {
		return
	}
	m := g.members[g.w.rng.IntN(len(g.members))]
	if m.mute || m.deaf {
		return
	}
	how := g.w.rng.IntN(4)
	m.mute = how != 0
	m.deaf = how != 1
	g.w.noteLine("%s: mute %t, deaf %t", m.name, m.mute, m.deaf)
	g.w.scheduleAfter(g.w.upTo(2*spec.Minute), m.join)
}

// join reconnects the members that were cut off.
func (m *member) join() {
	m.mute = false
	m.deaf = false
}

// someController is one that believes that it leads: mostly the one that does.
func (w *World) someController() *controller {
	for _, m := range w.group.members {
		if m.ctl != nil && m.ctl != w.ctl && w.rng.IntN(3) == 0 {
			return m.ctl
		}
	}
	return w.ctl
}
