package pass

import (
	"cmp"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/commit"
	"github.com/musterhpc/muster/scheduler/preempt"
	"github.com/musterhpc/muster/scheduler/timeline"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// A heterogeneous job has others make room for all of its components, or for
// none: each pushes out only whom its own rank lets it. What they leave belongs
// to the leader until all start there.

// makeRoomHet looks for running jobs that the components of a heterogeneous job
// may push out so that all can start as soon as those are gone. start is when
// they would start otherwise, blocked why they would not.
func (p *het) makeRoomHet(
	class *jobClass,
	m *member,
	parts []hetPart,
	start spec.Instant,
	blocked *spec.Reason,
) (bool, error) {
	at := p.line.NextTick()
	startsNow := blocked == nil && start <= at
	if startsNow || !p.preemption.maySearch(class, m) {
		return false, nil
	}
	if !slices.ContainsFunc(parts, p.outranksSome) {
		return false, nil
	}
	before := slices.Clone(parts)
	list := p.findVictims(m, parts, at)
	room := roomOf(parts)
	if len(list) == 0 || !p.isClaimable(list, parts, room, at) || p.stillBlockedHet(list, parts) {
		copy(parts, before)
		return false, nil
	}
	list[0].Room = room
	for i := range list {
		if err := commit.On(p.trial).PreemptJob(&list[i]); err != nil {
			return false, err
		}
		for _, gone := range componentsOf(p.snapshot, list[i].Victim.UID) {
			p.guarantees.RemoveVictim(gone.UID)
			if list[i].Victim.Mode == preempt.Suspend {
				p.turns.keepCPUsOf(p.trial.Job(gone.UID))
			}
		}
	}
	p.line.Relieve(at, p.preemption.goneRecords(victimsOf(list)))
	p.out.Preempts = append(p.out.Preempts, list...)
	p.marks[m.uid] |= preempting
	for i := range parts {
		p.claims.holdStart(
			parts[i].job,
			parts[i].class.part.Spec.Name,
			nodesOf(&parts[i]),
			parts[i].class.demand.Limit,
		)
	}
	return true, nil
}

// outranksSome tells whether a component could ever push somebody out: it is cheap
// to know, other than a sketch.
func (p *het) outranksSome(c hetPart) bool {
	return slices.ContainsFunc(c.classes, func(class *jobClass) bool {
		return p.preemption.rules.Any(class.inQOS(c.job), class.part.Spec) ||
			p.guarantees.Within(c.job, class.least)
	})
}

// findVictims finds victims for one component after the other, on a sketch of the
// timeline; nil if one of them finds no room. The components' slots tell where
// they would start then.
func (p *het) findVictims(m *member, parts []hetPart, at spec.Instant) []commit.Preempt {
	for i := range parts {
		for _, class := range parts[i].classes {
			p.planner.queryOf(class) // the sketch takes no new questions
		}
	}
	line, claimed := p.line, 0
	p.line = line.Sketch()
	var out []commit.Preempt
	for i := range parts {
		list, ok := p.pushesOf(m, &parts[i], at, out)
		if !ok {
			out = nil
			break
		}
		c := &parts[i]
		p.line.Promise(c.slot.Parts, at, c.class.demand.Limit, c.job.UID)
		p.guarantees.Claim(c.job, c.class.least)
		claimed, out = i+1, append(out, list...)
	}
	p.line = line
	for i := range parts[:claimed] {
		p.guarantees.Unclaim(parts[i].job, parts[i].class.least)
	}
	for i, tried := len(out)-1, 0; i >= 0 && len(out) > 1 && tried < maxSparedHet && !p.cfg.Sched.PreemptStrict; i, tried = i-1, tried+1 {
		fewer, before := slices.Delete(slices.Clone(out), i, i+1), slices.Clone(parts)
		if p.fitWithout(fewer, parts, at) &&
			p.isClaimable(fewer, slices.Clone(parts), roomOf(parts), at) {
			out = fewer // those for another component leave enough
		} else {
			copy(parts, before)
		}
	}
	return out
}

// isClaimable tells whether the components would find their places once the
// victims are gone and the nodes are the leader's: each takes then what suits it
// best, and that another needs it is seen only where the search for claims sees
// it. The components' slots tell where they start.
func (p *het) isClaimable(
	list []commit.Preempt,
	parts []hetPart,
	room spec.Bitset,
	at spec.Instant,
) bool {
	p.claimQueries(parts, room)
	line := p.line.Sketch()
	line.Relieve(at, p.preemption.goneRecords(victimsOf(list)))
	return p.placeIn(line, parts, at)
}

// maxSparedHet bounds the victims that are tried to be spared once there is room
// for all components: each takes a sketch.
const maxSparedHet = 16

// fitWithout tells whether all components find room with some victims gone. Their
// slots tell where.
func (p *het) fitWithout(list []commit.Preempt, parts []hetPart, at spec.Instant) bool {
	line := p.line.Sketch()
	line.Relieve(at, p.preemption.goneRecords(victimsOf(list)))
	for i := range parts {
		c := &parts[i]
		if !slices.ContainsFunc(c.classes, func(class *jobClass) bool {
			c.class, c.slot = class, timeline.Slot{
				Start: at,
				Parts: line.Relieved(p.planner.queryOf(class), at, nil),
			}
			return c.slot.Parts != nil
		}) {
			return false
		}
		line.Promise(c.slot.Parts, at, c.class.demand.Limit, c.job.UID)
	}
	return true
}

// pushesOf finds the victims of a component beside those that were found
// already, which are gone from the sketch: none if it has room as it is.
func (p *het) pushesOf(
	m *member,
	c *hetPart,
	at spec.Instant,
	have []commit.Preempt,
) ([]commit.Preempt, bool) {
	for _, class := range c.classes {
		if parts := p.line.Relieved(p.planner.queryOf(class), at, nil); parts != nil {
			c.class, c.slot = class, timeline.Slot{Start: at, Parts: parts}
			return nil, true
		}
	}
	for _, class := range c.classes {
		factors := class.fixed
		p.ctx.Complete(&factors, class.inQOS(c.job))
		list := slices.DeleteFunc(
			p.preemption.listVictims(class, class.inQOS(c.job), factors.Total),
			func(v preempt.Victim) bool {
				return slices.ContainsFunc(
					have,
					func(pr commit.Preempt) bool { return sameJob(p.snapshot, pr.Victim.UID, v.UID) },
				)
			},
		)
		p.preemption.searches++
		victims, parts := p.preemption.fewestVictims(class, at, list)
		if parts == nil {
			continue
		}
		p.line.Relieve(at, p.preemption.goneRecords(victims))
		c.class, c.slot = class, timeline.Slot{Start: at, Parts: parts}
		var out []commit.Preempt
		for _, v := range victims {
			out = append(
				out,
				commit.Preempt{
					For:       m.uid,
					By:        c.job.UID,
					Partition: class.part.Spec.Name,
					QOS:       class.qos,
					Priority:  factors.Total,
					Victim:    v,
					After:     len(p.out.Starts),
				},
			)
		}
		return out, true
	}
	return nil, false
}

// sameJob tells whether two records are of one job: the same, or components of
// one heterogeneous job.
func sameJob(st *state.State, a, b spec.JobUID) bool {
	if a == b {
		return true
	}
	x, y := st.Job(a), st.Job(b)
	return x != nil && y != nil && x.Het != nil && commit.LeaderOf(x) == commit.LeaderOf(y)
}

func victimsOf(list []commit.Preempt) []preempt.Victim {
	out := make([]preempt.Victim, len(list))
	for i := range list {
		out[i] = list[i].Victim
	}
	return out
}

// roomOf are the nodes of all components' slots.
func roomOf(parts []hetPart) spec.Bitset {
	var out spec.Bitset
	for i := range parts {
		out = out.Or(nodesOf(&parts[i]))
	}
	return out
}

func nodesOf(c *hetPart) spec.Bitset {
	var out spec.Bitset
	for i := range c.slot.Parts {
		out = out.Set(int(c.slot.Parts[i].Node.ID))
	}
	return out
}

// stillBlockedHet tells that the components could not all start even if the victims
// were gone, and those who are ending there already.
func (p *het) stillBlockedHet(list []commit.Preempt, parts []hetPart) bool {
	t := trial.On(p.trial.Freeze().Fork(), p.now, event.Actor{}, "schedule")
	victims := victimsOf(list)
	for i := range parts {
		if !p.preemption.removeVictims(t, victims, parts[i].slot.Parts) {
			return true
		}
		victims = nil // they are gone
	}
	return p.allowedIn(t, parts) != nil
}

// claimHet starts a heterogeneous job on the nodes that were freed for it, or
// promises them to it if they will be free soon. Where it can, it leaves the
// other claimants their places.
func (p *het) claimHet(class *jobClass, m *member, others []claimant) error {
	parts, reason := p.prepareComponents(class, m)
	if reason != nil {
		return nil // it waits its turn like the others
	}
	for i := range parts {
		c := &parts[i]
		if old := p.planner.promiseTo(c.job.UID, spec.NoTask); old != nil {
			p.planner.giveBack(c.class, old)
		}
	}
	for _, at := range [...]spec.Instant{p.now, p.line.NextTick()} {
		if !p.placeBeside(others, m.job, parts, at) && !p.placeClaim(m.job, parts, at) {
			continue
		}
		if at == p.now {
			if p.tryStarts(parts) != nil {
				return nil
			}
			return p.startHet(parts)
		}
		for i := range parts {
			c := &parts[i]
			p.line.Promise(c.slot.Parts, at, c.class.demand.Limit, c.job.UID)
			p.planner.notePromise(
				c.class,
				&promise{
					c.job.UID,
					spec.NoTask,
					c.slot,
					c.class.demand.Limit,
					p.line.Blockers(c.slot.Parts, at, c.job.UID),
				},
			)
			p.planner.countReservation()
			p.claims.holdStart(c.job, c.class.part.Spec.Name, nodesOf(c), c.class.demand.Limit)
		}
		p.marks[m.uid] |= claiming
		return nil
	}
	return nil
}

// placeBeside is placeClaim where the places of other claimants are taken.
func (p *het) placeBeside(
	others []claimant,
	leader *state.Job,
	parts []hetPart,
	at spec.Instant,
) bool {
	for i := range others {
		if c := &others[i]; c.slot.Parts != nil {
			p.line.Promise(c.slot.Parts, c.slot.Start, c.class.demand.Limit, c.member.uid)
			defer p.line.Forget(c.slot.Parts, c.slot.Start, c.class.demand.Limit, c.member.uid)
		}
	}
	return p.placeClaim(leader, parts, at)
}

// placeClaim finds room for all components at an instant on the nodes that their
// leader claims, and leaves the timeline as it was.
func (p *het) placeClaim(leader *state.Job, parts []hetPart, at spec.Instant) bool {
	if at == p.now && p.claims.awaitsVictims(leader) {
		return false
	}
	p.claimQueries(parts, leader.Claim)
	return p.placeIn(p.line, parts, at)
}

// claimQueries makes the questions of the components of a job about the nodes that
// others left, or are to leave, for all of them.
func (p *het) claimQueries(parts []hetPart, room spec.Bitset) {
	for i := range parts {
		c := &parts[i]
		c.queries = nil
		for _, class := range c.classes {
			c.queries = append(
				c.queries,
				p.line.NewQuery(
					class.demand,
					class.nodes.Set.And(room),
					class.nodes.Options(p.cfg, class.part.Spec, c.job.Spec, p.trees),
					p.barsOf(class),
				),
			)
		}
	}
}

// placeIn finds room for all components at an instant on a timeline, and leaves
// that as it was: one after the other; who gets none is looked at first then.
func (p *het) placeIn(line *timeline.Timeline, parts []hetPart, at spec.Instant) bool {
	slices.SortFunc(parts, func(a, b hetPart) int {
		return cmp.Or(
			cmp.Compare(a.countChoices(), b.countChoices()),
			cmp.Compare(a.job.UID, b.job.UID),
		)
	})
	for range maxClaimOrders {
		placed := 0
		for placed < len(parts) && parts[placed].placeIn(line, at) {
			placed++
		}
		for i := range parts[:placed] {
			c := &parts[i]
			line.Forget(c.slot.Parts, at, c.class.demand.Limit, c.job.UID)
		}
		if placed == len(parts) {
			return true
		}
		out := parts[placed]
		copy(parts[1:placed+1], parts[:placed])
		parts[0] = out
	}
	return false
}

// placeIn gives a component room on a timeline at an instant, if it has any.
func (c *hetPart) placeIn(line *timeline.Timeline, at spec.Instant) bool {
	for i, class := range c.classes {
		if parts := line.Relieved(c.queries[i], at, nil); parts != nil {
			c.class, c.slot = class, timeline.Slot{Start: at, Parts: parts}
			line.Promise(parts, at, class.demand.Limit, c.job.UID)
			return true
		}
	}
	return false
}
