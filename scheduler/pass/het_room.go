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

// A heterogeneous job preempts others for all of its components, or for
// none. Each component preempts only jobs that its own rank allows. The freed nodes belong
// to the leader until all components start there.

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

// outranksSome tells whether a component could preempt any job at all. It is a cheap test
// before the search on a sketch, which is expensive.
func (p *het) outranksSome(part hetPart) bool {
	return slices.ContainsFunc(part.classes, func(class *jobClass) bool {
		return p.preemption.rules.Any(class.inQOS(part.job), class.part.Spec) ||
			p.guarantees.Within(part.job, class.least)
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
	var preempts []commit.Preempt
	for i := range parts {
		list, ok := p.pushesOf(m, &parts[i], at, preempts)
		if !ok {
			preempts = nil
			break
		}
		part := &parts[i]
		p.line.Promise(part.slot.Parts, at, part.class.demand.Limit, part.job.UID)
		p.guarantees.Claim(part.job, part.class.least)
		claimed, preempts = i+1, append(preempts, list...)
	}
	p.line = line
	for i := range parts[:claimed] {
		p.guarantees.Unclaim(parts[i].job, parts[i].class.least)
	}
	for i, tried := len(preempts)-1,
		0; i >= 0 && len(preempts) > 1 && tried < maxSparedHet &&
		!p.cfg.Sched.PreemptStrict; i, tried = i-1, tried+1 {
		fewer, before := slices.Delete(slices.Clone(preempts), i, i+1), slices.Clone(parts)
		if p.fitWithout(fewer, parts, at) &&
			p.isClaimable(fewer, slices.Clone(parts), roomOf(parts), at) {
			preempts = fewer // those for another component leave enough
		} else {
			copy(parts, before)
		}
	}
	return preempts
}

// isClaimable tells whether the components would find places once the
// victims are gone and the leader claims the nodes. Each component then takes what suits it
// best, and only the search for claims notices that another one needs the same
// nodes. The components' slots tell where they start.
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
		part := &parts[i]
		if !slices.ContainsFunc(part.classes, func(class *jobClass) bool {
			part.class, part.slot = class, timeline.Slot{
				Start: at,
				Parts: line.Relieved(p.planner.queryOf(class), at, nil),
			}
			return part.slot.Parts != nil
		}) {
			return false
		}
		line.Promise(part.slot.Parts, at, part.class.demand.Limit, part.job.UID)
	}
	return true
}

// pushesOf finds the victims of a component beside those that were found
// already, which are gone from the sketch: none if it has room as it is.
func (p *het) pushesOf(
	m *member,
	part *hetPart,
	at spec.Instant,
	have []commit.Preempt,
) ([]commit.Preempt, bool) {
	for _, class := range part.classes {
		if parts := p.line.Relieved(p.planner.queryOf(class), at, nil); parts != nil {
			part.class, part.slot = class, timeline.Slot{Start: at, Parts: parts}
			return nil, true
		}
	}
	for _, class := range part.classes {
		factors := class.fixed
		p.ctx.Complete(&factors, class.inQOS(part.job))
		list := slices.DeleteFunc(
			p.preemption.listVictims(class, class.inQOS(part.job), factors.Total),
			func(victim preempt.Victim) bool {
				return slices.ContainsFunc(
					have,
					func(pr commit.Preempt) bool {
						return sameJob(p.snapshot, pr.Victim.UID, victim.UID)
					},
				)
			},
		)
		p.preemption.searches++
		victims, parts := p.preemption.fewestVictims(class, at, list)
		if parts == nil {
			continue
		}
		p.line.Relieve(at, p.preemption.goneRecords(victims))
		part.class, part.slot = class, timeline.Slot{Start: at, Parts: parts}
		var preempts []commit.Preempt
		for _, victim := range victims {
			preempts = append(
				preempts,
				commit.Preempt{
					For:       m.uid,
					By:        part.job.UID,
					Partition: class.part.Spec.Name,
					QOS:       class.qos,
					Priority:  factors.Total,
					Victim:    victim,
					After:     len(p.out.Starts),
				},
			)
		}
		return preempts, true
	}
	return nil, false
}

// sameJob tells whether two records are of one job: the same, or components of
// one heterogeneous job.
func sameJob(cluster *state.State, a, b spec.JobUID) bool {
	if a == b {
		return true
	}
	x, y := cluster.Job(a), cluster.Job(b)
	return x != nil && y != nil && x.Het != nil && commit.LeaderOf(x) == commit.LeaderOf(y)
}

func victimsOf(list []commit.Preempt) []preempt.Victim {
	victims := make([]preempt.Victim, len(list))
	for i := range list {
		victims[i] = list[i].Victim
	}
	return victims
}

// roomOf are the nodes of all components' slots.
func roomOf(parts []hetPart) spec.Bitset {
	var set spec.Bitset
	for i := range parts {
		set = set.Or(nodesOf(&parts[i]))
	}
	return set
}

func nodesOf(part *hetPart) spec.Bitset {
	var set spec.Bitset
	for i := range part.slot.Parts {
		set = set.Set(int(part.slot.Parts[i].Node.ID))
	}
	return set
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
	return p.refuseIn(t, parts) != nil
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
		part := &parts[i]
		if old := p.planner.promiseTo(part.job.UID, spec.NoTask); old != nil {
			p.planner.giveBack(part.class, old)
		}
	}
	for _, at := range [...]spec.Instant{p.now, p.line.NextTick()} {
		if !p.placeBeside(others, m.job, parts, at) && !p.placeClaim(m.job, parts, at) {
			continue
		}
		if at == p.now {
			if p.refuseTogether(parts) != nil {
				return nil
			}
			return p.startHet(parts)
		}
		for i := range parts {
			part := &parts[i]
			p.line.Promise(part.slot.Parts, at, part.class.demand.Limit, part.job.UID)
			p.planner.notePromise(
				part.class,
				&promise{
					part.job.UID,
					spec.NoTask,
					part.slot,
					part.class.demand.Limit,
					p.line.Blockers(part.slot.Parts, at, part.job.UID),
				},
			)
			p.planner.countReservation()
			p.claims.holdStart(
				part.job, part.class.part.Spec.Name, nodesOf(part), part.class.demand.Limit,
			)
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
		part := &parts[i]
		part.queries = nil
		for _, class := range part.classes {
			part.queries = append(
				part.queries,
				p.line.NewQuery(
					class.demand,
					class.nodes.Set.And(room),
					class.nodes.Options(p.cfg, class.part.Spec, part.job.Spec, p.trees),
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
			part := &parts[i]
			line.Forget(part.slot.Parts, at, part.class.demand.Limit, part.job.UID)
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
