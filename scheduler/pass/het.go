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
	parts, reason := p.prepareComponents(class, m)
	if reason == nil && !p.staysHet(parts, &reason) {
		start := p.now
		start, reason = p.place(class, m, parts)
		switch made, err := p.makeRoomHet(class, m, parts, start, reason); {
		case err != nil:
			return nil, err
		case made, reason == nil && start > p.now:
			reason = p.promiseHet(class, m, parts)
		case reason == nil:
			reason = p.refuseTogether(parts)
		}
		if reason == nil {
			return nil, p.startHet(parts)
		}
	}
	if p.phase != gaps || p.planner.depth <= 0 { // else it is planned later
		p.marks[m.uid] |= seen
	}
	for _, component := range p.snapshot.Components(m.job) {
		if reason == nil || !component.IsUnheld() || !component.Het.Follows() {
			continue
		}
		if component.Eligible == 0 && component.Begin <= p.now {
			p.out.Eligible = append(p.out.Eligible, component.UID)
		}
	}
	return reason, nil
}

// prepareComponents prepares a class for each component, those with the fewest nodes to
// choose from first.
func (p *het) prepareComponents(class *jobClass, m *member) ([]hetPart, *spec.Reason) {
	var parts []hetPart
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
		parts = append(parts, hetPart{job: job, classes: classes, class: classes[0]})
	}
	if len(all) < int(m.job.Het.Size) {
		return nil, &spec.Reason{Code: spec.ReasonBadConstraints, Detail: "a component is gone"}
	}
	slices.SortStableFunc(
		parts,
		func(a, b hetPart) int { return cmp.Compare(a.countChoices(), b.countChoices()) },
	)
	return parts, nil
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
	var classes []*jobClass
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
				choice:    len(classes),
				qos:       qos,
				request:   &request{representative: job},
				rank:      class.rank,
			}
			c.members = []member{memberOf(c.inQOS(job), p.queue.order)}
			c.fixed = p.ctx.Fixed(c.inQOS(job), c.part.Spec)
			switch reason := p.prepareHet(c, c.inQOS(job)); {
			case reason == nil:
				class.noReserve = class.noReserve || c.noReserve
				classes = append(classes, c)
			case why.Code == spec.ReasonPartitionDown,
				reasonNearness(reason.Code) > reasonNearness(why.Code):
				why = reason
			}
		}
	}
	if classes == nil {
		return nil, why
	}
	slices.SortStableFunc(classes, func(a, b *jobClass) int {
		return cmp.Compare(p.claims.rankOf(a, a.inQOS(job)), p.claims.rankOf(b, b.inQOS(job)))
	})
	return classes, nil
}

// prepareHet is prepare for a component, with what its limits say.
func (p *het) prepareHet(class *jobClass, job *state.Job) *spec.Reason {
	if reason := p.prepareClass(class, job); reason != nil {
		return reason
	}
	class.demand.Stretch = 0 // what one takes beyond its need another may lack
	if reason := class.bound.Before(class.least, class.demand.Limit); reason != nil {
		return reason
	}
	if reason := p.checkPriority(class, job); reason != nil {
		return reason
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
		part := &parts[i]
		old := p.planner.promiseTo(part.job.UID, spec.NoTask)
		switch {
		case old == nil:
		case stays:
			reason := p.planner.keepPromise(part.class, &part.class.members[0], old)
			if part.job.Het.Leads() {
				*r = reason
			}
		default:
			p.planner.giveBack(part.class, old) // each question of placeAt is asked anew
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
			if part := &parts[i]; part.slot.Parts != nil {
				p.line.Forget(
					part.slot.Parts, part.slot.Start, part.class.demand.Limit, part.job.UID,
				)
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
		part := &parts[i]
		found := p.earliestStart(part, at, until)
		switch {
		case !found:
			return at, p.reasons.impossibleReason(part.classes[0], part.classes[0].inQOS(part.job))
		case part.slot.Start > at:
			later := part.slot.Start
			part.slot = timeline.Slot{}
			return later, nil
		}
		p.line.Promise(part.slot.Parts, at, part.class.demand.Limit, part.job.UID)
	}
	return at, nil
}

// earliestStart finds the first start of a component from an instant on, in any of
// its partitions and QOS.
func (p *het) earliestStart(part *hetPart, at, until spec.Instant) (found bool) {
	for _, class := range part.classes {
		query := p.planner.queryOf(class)
		query.Reset(at)
		if slot, ok := p.line.Earliest(query, until, nil); ok &&
			(!found || slot.Start < part.slot.Start) {
			part.class = class
			part.slot = slot
			found = true
		}
		if found && part.slot.Start <= at {
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
		part := &parts[i]
		p.guarantees.CountPromised(part.job)
		if why := p.planner.promiseSlot(
			part.class, &part.class.members[0], part.class.inQOS(part.job), part.slot,
		); reason.Blocker == 0 &&
			why.Blocker != m.uid {
			reason.Blocker = why.Blocker
		}
	}
	return reason
}

// refuseTogether tells why the components cannot all start now, or nil. It starts them on a copy
// of the pass's state, because a limit may allow each of them, but not all.
func (p *het) refuseTogether(parts []hetPart) *spec.Reason {
	return p.refuseIn(trial.On(p.trial.Freeze().Fork(), p.now, event.Actor{}, "schedule"), parts)
}

// refuseIn is refuseTogether in a state that is thrown away.
func (p *het) refuseIn(t *trial.Trial, parts []hetPart) *spec.Reason {
	// Limits may depend on the order, and a start for good goes by number.
	slices.SortFunc(
		parts,
		func(a, b hetPart) int { return cmp.Compare(a.job.UID, b.job.UID) },
	)
	changes := commit.On(t)
	for i := range parts {
		part := &parts[i]
		bound := boundIn(t.State, part.class, part.job, p.now)
		if r := bound.Before(part.class.least, part.class.demand.Limit); r != nil {
			return r
		}
		if r := eligible.CheckLicenses(
			t.State, part.job.Spec, p.now, part.class.demand.Limit,
		); r != nil {
			return r
		}
		alloc, reason := p.allocateJob(
			t.State, part.class, part.class.inQOS(part.job), part.slot.Parts, &bound,
		)
		if reason != nil {
			return reason
		}
		if _, err := changes.StartJob(
			&commit.Start{
				UID: part.job.UID, Task: spec.NoTask, Alloc: alloc, Limit: part.class.demand.Limit,
			},
		); err != nil {
			return &spec.Reason{Code: spec.ReasonResources, Detail: err.Error()}
		}
	}
	return nil
}

// startHet starts all components.
func (p *het) startHet(parts []hetPart) error {
	first := len(p.out.Starts)
	for i := range parts {
		part := &parts[i]
		if part.job.Eligible == 0 && part.job.Het.Follows() {
			p.out.Eligible = append(p.out.Eligible, part.job.UID)
		}
		part.class.bound = boundIn(p.trial.State, part.class, part.job, p.now)
		reason, err := p.startJob(
			part.class,
			&part.class.members[0],
			spec.NoTask,
			part.slot.Parts,
			wholeLimit(part.class),
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
func boundIn(cluster *state.State, class *jobClass, job *state.Job, now spec.Instant) limits.Bound {
	return limits.Find(
		cluster,
		limits.Subject{
			Job:    class.inQOS(job).Spec,
			Part:   class.part.Spec,
			Assoc:  job.Assoc,
			Now:    now,
			Beside: limits.Beside(cluster, job),
		},
	)
}
