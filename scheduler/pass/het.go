package pass

import (
	"cmp"
	"slices"

	"github.com/musterhpc/muster/scheduler/commit"
	"github.com/musterhpc/muster/scheduler/eligible"
	"github.com/musterhpc/muster/scheduler/limits"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/timeline"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// het looks at the components of a heterogeneous job together.
type het struct{ *pass }

// hetPart is one of a heterogeneous job in a pass: classes of its own, which are
// not in the queue, one for each of its partitions and QOS, and where it would
// start.
type hetPart struct {
	job     *state.Job
	classes []*jobClass // in the order in which they come
	class   *jobClass   // of them, that of the slot
	slot    timeline.Slot
	queries []*timeline.Query // of a claim, for each class
}

// Bounds of the search for a common start.
const maxHetTries = 200

// tryHet starts all components of a heterogeneous job, or plans them for the
// first instant at which there is room for all, or says why not.
func (p *het) tryHet(class *jobClass, m *member) (*spec.Reason, error) {
	if p.marks[m.uid]&seen != 0 {
		return nil, nil // in another of the leader's partitions
	}
	defer p.claims.lookAtHeldComponents(m.job)()
	parts, r := p.prepareComponents(class, m)
	if r == nil && !p.staysHet(parts, &r) {
		start := p.now
		start, r = p.place(class, m, parts)
		switch made, err := p.makeRoomHet(class, m, parts, start, r); {
		case err != nil:
			return nil, err
		case made, r == nil && start > p.now:
			r = p.promiseHet(class, m, parts)
		case r == nil:
			r = p.tryStarts(parts)
		}
		if r == nil {
			return nil, p.startHet(parts)
		}
	}
	if p.phase != gaps || p.planner.depth <= 0 { // else it is planned later
		p.marks[m.uid] |= seen
	}
	for _, c := range p.snapshot.Components(m.job) {
		if r == nil || !c.IsUnheld() || !c.Het.Follows() {
			continue
		}
		if c.Eligible == 0 && c.Begin <= p.now {
			p.out.Eligible = append(p.out.Eligible, c.UID)
		}
	}
	return r, nil
}

// prepareComponents prepares a class for each component, those with the fewest nodes to
// choose from first.
func (p *het) prepareComponents(class *jobClass, m *member) ([]hetPart, *spec.Reason) {
	var out []hetPart
	all := p.snapshot.Components(m.job)
	for _, job := range all {
		if !job.IsUnheld() {
			return nil, &spec.Reason{Code: spec.ReasonCleaning, Blocker: job.UID}
		}
		if r := p.notYet(job); r != nil {
			return nil, r
		}
		classes, reason := p.hetClasses(class, job)
		if reason != nil {
			return nil, reason
		}
		out = append(out, hetPart{job: job, classes: classes, class: classes[0]})
	}
	if len(all) < int(m.job.Het.Size) {
		return nil, &spec.Reason{Code: spec.ReasonBadConstraints, Detail: "a component is gone"}
	}
	slices.SortStableFunc(
		out,
		func(a, b hetPart) int { return cmp.Compare(a.countChoices(), b.countChoices()) },
	)
	return out, nil
}

// countChoices is how many nodes a component has to choose from.
func (c *hetPart) countChoices() int {
	var set spec.Bitset
	for _, class := range c.classes {
		set = set.Or(class.nodes.Set)
	}
	return set.Count()
}

// hetClasses prepares a class for each partition and QOS that a component may start
// in now, those of the higher rank first; else it says what keeps it out of the
// one that is nearest to a start.
func (p *het) hetClasses(class *jobClass, job *state.Job) ([]*jobClass, *spec.Reason) {
	why := &spec.Reason{Code: spec.ReasonPartitionDown, Detail: "the partition is gone"}
	var out []*jobClass
	for _, name := range job.Spec.Partitions {
		pi := slices.IndexFunc(
			p.snapshot.Parts.List,
			func(q state.Partition) bool { return q.Spec.Name == name },
		)
		if pi < 0 {
			continue
		}
		for _, qos := range eligible.QOSChoices(job.Spec) {
			c := &jobClass{
				part:      &p.snapshot.Parts.List[pi],
				partIndex: pi,
				choice:    len(out),
				qos:       qos,
				request:   &request{representative: job},
				rank:      class.rank,
			}
			c.members = []member{memberOf(c.inQOS(job), p.queue.order)}
			c.fixed = p.ctx.Fixed(c.inQOS(job), c.part.Spec)
			switch reason := p.prepareHet(c, c.inQOS(job)); {
			case reason == nil:
				class.noReserve = class.noReserve || c.noReserve
				out = append(out, c)
			case why.Code == spec.ReasonPartitionDown,
				reasonNearness(reason.Code) > reasonNearness(why.Code):
				why = reason
			}
		}
	}
	if out == nil {
		return nil, why
	}
	slices.SortStableFunc(out, func(a, b *jobClass) int {
		return cmp.Compare(p.claims.rankOf(a, a.inQOS(job)), p.claims.rankOf(b, b.inQOS(job)))
	})
	return out, nil
}

// prepareHet is prepare for a component, with what its limits say.
func (p *het) prepareHet(class *jobClass, job *state.Job) *spec.Reason {
	if r := p.prepareClass(class, job); r != nil {
		return r
	}
	class.demand.Stretch = 0 // what one takes beyond its need another may lack
	if r := class.bound.Before(class.least, class.demand.Limit); r != nil {
		return r
	}
	if r := p.checkPriority(class, job); r != nil {
		return r
	}
	return eligible.CheckLicenses(p.trial.State, job.Spec, p.now, class.demand.Limit)
}

// staysHet leaves the promises to a heterogeneous job where they are, if the
// pass may, and takes them back else.
func (p *het) staysHet(parts []hetPart, r **spec.Reason) bool {
	stays := p.options.Settled
	for i := range parts {
		old := p.planner.promiseTo(parts[i].job.UID, spec.NoTask)
		stays = stays && old != nil && old.slot.Start > p.now
	}
	for i := range parts {
		c := &parts[i]
		old := p.planner.promiseTo(c.job.UID, spec.NoTask)
		switch {
		case old == nil:
		case stays:
			why := p.planner.keepPromise(c.class, &c.class.members[0], old)
			if c.job.Het.Leads() {
				*r = why
			}
		default:
			p.planner.giveBack(c.class, old) // each question of placeAt is asked anew
		}
	}
	return stays
}

// place finds the first instant at which there is room for all components;
// where it is still to come and nothing may be planned, it says why they wait.
// Each is given room in turn; where one finds it later only, all are looked at
// again from then on.
func (p *het) place(class *jobClass, m *member, parts []hetPart) (spec.Instant, *spec.Reason) {
	plan := p.planner.depth > 0 && p.phase != gaps && !class.noReserve &&
		p.marks[m.uid]&reserved == 0
	until, at := p.now, p.now
	if plan {
		until = spec.FarFuture
	}
	if p.mustFollow(class, m.uid) {
		if !plan {
			return at, p.reasons.queueReason(class, m)
		}
		at = max(p.lastPlanned[class.partIndex], p.now+1)
	}
	start, reason := p.togetherInTurn(parts, at, until)
	switch {
	case reason != nil && !plan:
		reason = p.reasons.queueReason(class, m)
	case reason == nil && start == spec.FarFuture:
		reason = &spec.Reason{
			Code:    spec.ReasonPartitionConfig,
			Subject: class.part.Subject,
			Detail:  "the components do not fit together",
		}
	}
	return start, reason
}

// togetherInTurn is together with each of the components first, and with the
// others behind it from either side, until there is room for all.
func (p *het) togetherInTurn(parts []hetPart, at, until spec.Instant) (spec.Instant, *spec.Reason) {
	start, reason := p.earliestTogether(parts, at, until)
	for i := 1; i < 2*len(parts) && (reason != nil || start == spec.FarFuture); i++ {
		if i == len(parts) {
			slices.Reverse(parts)
		} else {
			first := parts[0] // it may have taken what only it could do without
			copy(parts, parts[1:])
			parts[len(parts)-1] = first
		}
		start, reason = p.earliestTogether(parts, at, until)
	}
	return start, reason
}

// earliestTogether finds the first instant from at on at which each component in turn
// is given room; FarFuture if there is none.
func (p *het) earliestTogether(
	parts []hetPart,
	at, until spec.Instant,
) (spec.Instant, *spec.Reason) {
	for range maxHetTries {
		later, reason := p.placeAt(parts, at, until)
		for i := range parts {
			if c := &parts[i]; c.slot.Parts != nil {
				p.line.Forget(c.slot.Parts, c.slot.Start, c.class.demand.Limit, c.job.UID)
			}
		}
		if reason != nil || later == at {
			return at, reason
		}
		at = later
	}
	return spec.FarFuture, nil
}

// placeAt gives the components room from an instant on, one after the other,
// until one finds it later; it returns when.
func (p *het) placeAt(parts []hetPart, at, until spec.Instant) (spec.Instant, *spec.Reason) {
	for i := range parts {
		parts[i].slot = timeline.Slot{}
	}
	for i := range parts {
		c := &parts[i]
		found := p.earliestStart(c, at, until)
		switch {
		case !found:
			return at, p.reasons.impossibleReason(c.classes[0], c.classes[0].inQOS(c.job))
		case c.slot.Start > at:
			later := c.slot.Start
			c.slot = timeline.Slot{}
			return later, nil
		}
		p.line.Promise(c.slot.Parts, at, c.class.demand.Limit, c.job.UID)
	}
	return at, nil
}

// earliestStart finds the first start of a component from an instant on, in any of
// its partitions and QOS.
func (p *het) earliestStart(c *hetPart, at, until spec.Instant) (found bool) {
	for _, class := range c.classes {
		query := p.planner.queryOf(class)
		query.Reset(at)
		if slot, ok := p.line.Earliest(query, until, nil); ok &&
			(!found || slot.Start < c.slot.Start) {
			c.class = class
			c.slot = slot
			found = true
		}
		if found && c.slot.Start <= at {
			break
		}
	}
	return found
}

// promiseHet plans all components and says why they wait.
func (p *het) promiseHet(class *jobClass, m *member, parts []hetPart) *spec.Reason {
	reason := p.reasons.waitReason(class, m)
	reason.Until = parts[0].slot.Start
	for i := range parts {
		if startsTooLate(parts[i].job, p.now, &parts[i].slot, parts[i].class.demand.Limit) {
			return &spec.Reason{Code: spec.ReasonDeadLine, Until: reason.Until}
		}
	}
	p.planner.depth = max(p.planner.depth, int64(len(parts))) // all of them or none
	for i := range parts {
		c := &parts[i]
		p.guarantees.CountPromised(c.job)
		if why := p.planner.promiseSlot(c.class, &c.class.members[0], c.class.inQOS(c.job), c.slot); reason.Blocker == 0 &&
			why.Blocker != m.uid {
			reason.Blocker = why.Blocker
		}
	}
	return reason
}

// tryStarts tries the starts of all components on a copy of the pass's state: a
// limit may allow each of them, but not all.
func (p *het) tryStarts(parts []hetPart) *spec.Reason {
	return p.allowedIn(trial.On(p.trial.Freeze().Fork(), p.now, event.Actor{}, "schedule"), parts)
}

// allowedIn is allowed in a state that is thrown away.
func (p *het) allowedIn(t *trial.Trial, parts []hetPart) *spec.Reason {
	slices.SortFunc(
		parts,
		func(a, b hetPart) int { return cmp.Compare(a.job.UID, b.job.UID) },
	) // limits may depend on the order
	d := commit.On(t)
	for i := range parts {
		c := &parts[i]
		bound := boundIn(t.State, c.class, c.job, p.now)
		if r := bound.Before(c.class.least, c.class.demand.Limit); r != nil {
			return r
		}
		if r := eligible.CheckLicenses(t.State, c.job.Spec, p.now, c.class.demand.Limit); r != nil {
			return r
		}
		alloc, reason := p.allocateJob(t.State, c.class, c.class.inQOS(c.job), c.slot.Parts, &bound)
		if reason != nil {
			return reason
		}
		if _, err := d.StartJob(&commit.Start{UID: c.job.UID, Task: spec.NoTask, Alloc: alloc, Limit: c.class.demand.Limit}); err != nil {
			return &spec.Reason{Code: spec.ReasonResources, Detail: err.Error()}
		}
	}
	return nil
}

// startHet starts all components.
func (p *het) startHet(parts []hetPart) error {
	first := len(p.out.Starts)
	for i := range parts {
		c := &parts[i]
		if c.job.Eligible == 0 && c.job.Het.Follows() {
			p.out.Eligible = append(p.out.Eligible, c.job.UID)
		}
		c.class.bound = boundIn(p.trial.State, c.class, c.job, p.now)
		reason, err := p.startJob(
			c.class,
			&c.class.members[0],
			spec.NoTask,
			c.slot.Parts,
			wholeLimit(c.class),
		)
		if err != nil {
			return err
		}
		if reason != nil {
			return spec.Refuse(
				spec.CodeStale,
				"a component could not start though it was allowed to: "+
					string(reason.Code),
			)
		}
	}
	p.out.Starts[first].Group = len(parts)
	return nil
}

// boundIn finds the limits of a job in a state that it is tried on.
func boundIn(st *state.State, class *jobClass, j *state.Job, now spec.Instant) limits.Bound {
	return limits.Find(
		st,
		limits.Subject{Job: class.inQOS(j).Spec, Part: class.part.Spec, Assoc: j.Assoc, Now: now},
	)
}
