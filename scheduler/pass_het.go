package scheduler

import (
	"cmp"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/reserve"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// hetPart is one of a heterogeneous job in a pass: lots of its own, which are
// not in the queue, one for each of its partitions and QOS, and where it would
// start.
type hetPart struct {
	job  *state.Job
	lots []*lot // in the order in which they come
	lot  *lot   // of them, that of the slot
	slot reserve.Slot
	asks []*reserve.Ask // of a claim, for each lot
}

// Bounds of the search for a common start.
const maxHetTries = 200

// tryHet starts all components of a heterogeneous job, or plans them for the
// first instant at which there is room for all, or says why not.
func (p *pass) tryHet(l *lot, m *member) (*spec.Reason, error) {
	if p.marks[m.uid]&seen != 0 {
		return nil, nil // in another of the leader's partitions
	}
	defer p.lookAll(m.job)()
	parts, r := p.components(l, m)
	if r == nil && !p.staysHet(parts, &r) {
		start := p.now
		start, r = p.place(l, m, parts)
		switch made, err := p.makeRoomHet(l, m, parts, start, r); {
		case err != nil:
			return nil, err
		case made, r == nil && start > p.now:
			r = p.promiseHet(l, m, parts)
		case r == nil:
			r = p.allowed(parts)
		}
		if r == nil {
			return nil, p.startHet(parts)
		}
	}
	if p.phase != gaps || p.depth <= 0 { // else it is planned later
		p.marks[m.uid] |= seen
	}
	for _, c := range p.st.Components(m.job) {
		if c.State != spec.Pending {
			continue
		}
		if c.Eligible == 0 && r != nil && c.Het.Follows() && c.Hold == spec.NotHeld && c.Begin <= p.now {
			p.out.Eligible = append(p.out.Eligible, c.UID)
		}
	}
	return r, nil
}

// components prepares a lot for each component, those with the fewest nodes to
// choose from first.
func (p *pass) components(l *lot, m *member) ([]hetPart, *spec.Reason) {
	var out []hetPart
	all := p.st.Components(m.job)
	for _, j := range all {
		if j.State != spec.Pending || j.Hold != spec.NotHeld {
			return nil, &spec.Reason{Code: spec.ReasonCleaning, Blocker: j.UID}
		}
		if r := p.notYet(j); r != nil {
			return nil, r
		}
		lots, r := p.hetLots(l, j)
		if r != nil {
			return nil, r
		}
		out = append(out, hetPart{job: j, lots: lots, lot: lots[0]})
	}
	if len(all) < int(m.job.Het.Size) {
		return nil, &spec.Reason{Code: spec.ReasonBadConstraints, Detail: "a component is gone"}
	}
	slices.SortStableFunc(out, func(a, b hetPart) int { return cmp.Compare(a.choices(), b.choices()) })
	return out, nil
}

// choices is how many nodes a component has to choose from.
func (c *hetPart) choices() int {
	var set spec.Bitset
	for _, l := range c.lots {
		set = set.Or(l.nodes.set)
	}
	return set.Count()
}

// hetLots prepares a lot for each partition and QOS that a component may start
// in now, those of the higher rank first; else it says what keeps it out of the
// one that is nearest to a start.
func (p *pass) hetLots(l *lot, j *state.Job) ([]*lot, *spec.Reason) {
	why := &spec.Reason{Code: spec.ReasonPartitionDown, Detail: "the partition is gone"}
	var out []*lot
	for _, name := range j.Spec.Partitions {
		pi := slices.IndexFunc(p.st.Parts.List, func(q state.Partition) bool { return q.Spec.Name == name })
		if pi < 0 {
			continue
		}
		for _, qos := range qosOf(j.Spec) {
			c := &lot{part: &p.st.Parts.List[pi], pi: pi, nth: len(out), qos: qos, kin: &kin{like: j}, rank: l.rank}
			c.members = []member{memberOf(c.as(j), p.queue.rule)}
			c.fixed = p.ctx.Fixed(c.as(j), c.part.Spec)
			switch r := p.prepareHet(c, c.as(j)); {
			case r == nil:
				l.noReserve = l.noReserve || c.noReserve
				out = append(out, c)
			case why.Code == spec.ReasonPartitionDown, nearness(r.Code) > nearness(why.Code):
				why = r
			}
		}
	}
	if out == nil {
		return nil, why
	}
	slices.SortStableFunc(out, func(a, b *lot) int { return cmp.Compare(p.rank(a, a.as(j)), p.rank(b, b.as(j))) })
	return out, nil
}

// prepareHet is prepare for a component, with what its limits say.
func (p *pass) prepareHet(c *lot, j *state.Job) *spec.Reason {
	if r := p.prepare(c, j); r != nil {
		return r
	}
	c.demand.Stretch = 0 // what one takes beyond its need another may lack
	if r := c.bound.Before(c.least, c.demand.Limit); r != nil {
		return r
	}
	if r := p.tooLow(c, j); r != nil {
		return r
	}
	return licences(p.t.State, j.Spec, p.now, c.demand.Limit)
}

// staysHet leaves the promises to a heterogeneous job where they are, if the
// pass may, and takes them back else.
func (p *pass) staysHet(parts []hetPart, r **spec.Reason) bool {
	stays := p.opt.Settled
	for i := range parts {
		old := p.promised(parts[i].job.UID, spec.NoTask)
		stays = stays && old != nil && old.slot.Start > p.now
	}
	for i := range parts {
		c := &parts[i]
		old := p.promised(c.job.UID, spec.NoTask)
		switch {
		case old == nil:
		case stays:
			if why := p.stays(c.lot, &c.lot.members[0], old); c.job.Het.Leads() {
				*r = why
			}
		default:
			p.giveBack(c.lot, old) // each question of placeAt is asked anew
		}
	}
	return stays
}

// place finds the first instant at which there is room for all components;
// where it is still to come and nothing may be planned, it says why they wait.
// Each is given room in turn; where one finds it later only, all are looked at
// again from then on.
func (p *pass) place(l *lot, m *member, parts []hetPart) (spec.Instant, *spec.Reason) {
	plan := p.depth > 0 && p.phase != gaps && !l.noReserve && p.marks[m.uid]&reserved == 0
	until, at := p.now, p.now
	if plan {
		until = spec.FarFuture
	}
	if p.head[l.pi] != 0 && p.head[l.pi] != m.uid && p.strict {
		if !plan {
			return at, p.queues(l, m)
		}
		at = max(p.fifo[l.pi], p.now+1)
	}
	start, r := p.togetherInTurn(parts, at, until)
	switch {
	case r != nil && !plan:
		r = p.queues(l, m)
	case r == nil && start == spec.FarFuture:
		r = &spec.Reason{Code: spec.ReasonPartitionConfig, Subject: l.part.Subject, Detail: "the components do not fit together"}
	}
	return start, r
}

// togetherInTurn is together with each of the components first, and with the
// others behind it from either side, until there is room for all.
func (p *pass) togetherInTurn(parts []hetPart, at, until spec.Instant) (spec.Instant, *spec.Reason) {
	start, r := p.together(parts, at, until)
	for i := 1; i < 2*len(parts) && (r != nil || start == spec.FarFuture); i++ {
		if i == len(parts) {
			slices.Reverse(parts)
		} else {
			first := parts[0] // it may have taken what only it could do without
			copy(parts, parts[1:])
			parts[len(parts)-1] = first
		}
		start, r = p.together(parts, at, until)
	}
	return start, r
}

// together finds the first instant from at on at which each component in turn
// is given room; FarFuture if there is none.
func (p *pass) together(parts []hetPart, at, until spec.Instant) (spec.Instant, *spec.Reason) {
	for range maxHetTries {
		later, r := p.placeAt(parts, at, until)
		for i := range parts {
			if c := &parts[i]; c.slot.Parts != nil {
				p.line.Forget(c.slot.Parts, c.slot.Start, c.lot.demand.Limit, c.job.UID)
			}
		}
		if r != nil || later == at {
			return at, r
		}
		at = later
	}
	return spec.FarFuture, nil
}

// placeAt gives the components room from an instant on, one after the other,
// until one finds it later; it returns when.
func (p *pass) placeAt(parts []hetPart, at, until spec.Instant) (spec.Instant, *spec.Reason) {
	for i := range parts {
		parts[i].slot = reserve.Slot{}
	}
	for i := range parts {
		c := &parts[i]
		found := p.earliest(c, at, until)
		switch {
		case !found:
			return at, p.impossible(c.lots[0], c.lots[0].as(c.job))
		case c.slot.Start > at:
			later := c.slot.Start
			c.slot = reserve.Slot{}
			return later, nil
		}
		p.line.Promise(c.slot.Parts, at, c.lot.demand.Limit, c.job.UID)
	}
	return at, nil
}

// earliest finds the first start of a component from an instant on, in any of
// its partitions and QOS.
func (p *pass) earliest(c *hetPart, at, until spec.Instant) (found bool) {
	for _, l := range c.lots {
		ask := p.ask(l)
		ask.Anew(at)
		if slot, ok := p.line.Earliest(ask, until, nil); ok && (!found || slot.Start < c.slot.Start) {
			c.lot, c.slot, found = l, slot, true
		}
		if found && c.slot.Start <= at {
			break
		}
	}
	return found
}

// promiseHet plans all components and says why they wait.
func (p *pass) promiseHet(l *lot, m *member, parts []hetPart) *spec.Reason {
	r := p.waiting(l, m)
	r.Until = parts[0].slot.Start
	for i := range parts {
		if late(parts[i].job, p.now, &parts[i].slot, parts[i].lot.demand.Limit) {
			return &spec.Reason{Code: spec.ReasonDeadLine, Until: r.Until}
		}
	}
	p.depth = max(p.depth, int64(len(parts))) // all of them or none
	for i := range parts {
		c := &parts[i]
		p.floors.Promised(c.job)
		if why := p.promise(c.lot, &c.lot.members[0], c.lot.as(c.job), c.slot); r.Blocker == 0 && why.Blocker != m.uid {
			r.Blocker = why.Blocker
		}
	}
	return r
}

// allowed tries the starts of all components on a copy of the pass's state: a
// limit may allow each of them, but not all.
func (p *pass) allowed(parts []hetPart) *spec.Reason {
	return p.allowedIn(trial.On(p.t.Freeze().Fork(), p.now, event.Actor{}, "schedule"), parts)
}

// allowedIn is allowed in a state that is thrown away.
func (p *pass) allowedIn(t *trial.Trial, parts []hetPart) *spec.Reason {
	slices.SortFunc(parts, func(a, b hetPart) int { return cmp.Compare(a.job.UID, b.job.UID) }) // limits may depend on the order
	d := &decision{t: t}
	for i := range parts {
		c := &parts[i]
		b := boundIn(t.State, c.lot, c.job, p.now)
		if r := b.Before(c.lot.least, c.lot.demand.Limit); r != nil {
			return r
		}
		if r := licences(t.State, c.job.Spec, p.now, c.lot.demand.Limit); r != nil {
			return r
		}
		alloc, r := p.allocate(t.State, c.lot, c.lot.as(c.job), c.slot.Parts, &b)
		if r != nil {
			return r
		}
		if _, err := d.begin(&Start{UID: c.job.UID, Task: spec.NoTask, Alloc: alloc, Limit: c.lot.demand.Limit}); err != nil {
			return &spec.Reason{Code: spec.ReasonResources, Detail: err.Error()}
		}
	}
	return nil
}

// startHet starts all components.
func (p *pass) startHet(parts []hetPart) error {
	first := len(p.out.Starts)
	for i := range parts {
		c := &parts[i]
		if c.job.Eligible == 0 && c.job.Het.Follows() {
			p.out.Eligible = append(p.out.Eligible, c.job.UID)
		}
		c.lot.bound = boundIn(p.t.State, c.lot, c.job, p.now)
		r, err := p.start(c.lot, &c.lot.members[0], spec.NoTask, c.slot.Parts, c.lot.demand.Limit)
		if err != nil {
			return err
		}
		if r != nil {
			return spec.Refuse(spec.CodeStale, "a component could not start though it was allowed to: "+string(r.Code))
		}
	}
	p.out.Starts[first].Group = len(parts)
	return nil
}
