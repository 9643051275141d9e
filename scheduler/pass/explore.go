package pass

import (
	"cmp"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/eligible"
	"github.com/musterhpc/muster/scheduler/limits"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/scheduler/timeline"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// Explorer is a pass that has come to one job: all jobs before it are started
// or planned, and it can be asked when other requests would start in the
// job's place.
type Explorer struct {
	p *pass
	j *state.Job
}

// Explore runs a pass up to a pending job. It is nil if the pass does not
// come to it: the job is held, waits for its begin or a dependency, or a pass
// of the whole queue would start it. A heterogeneous job is its leader.
func Explore(
	cluster *state.State, now spec.Instant, uid spec.JobUID, options Options,
) (*Explorer, error) {
	p := newPass(cluster, now, options)
	p.stopAt = uid
	if err := p.run(); err != nil {
		return nil, err
	}
	w := p.queue.jobs[uid]
	if w == nil || w.request == nil || len(w.request.classes) == 0 {
		return nil, nil
	}
	return &Explorer{p, w.job}, nil
}

// Sure tells that a whole pass would come to the job in the same state.
func (x *Explorer) Sure() bool { return !x.p.moved }

// Start tells when and where a request would start, given the job's place in
// the queue, or why it would not. Starts later than until are not looked for.
func (x *Explorer) Start(
	jobSpec *spec.JobSpec,
	until spec.Instant,
) (spec.Instant, []spec.NodeID, *spec.Reason) {
	at, reason := spec.FarFuture, (*spec.Reason)(nil)
	var nodes []spec.NodeID
	for _, name := range jobSpec.Partitions {
		part := x.p.snapshot.Parts.Find(name)
		if part == nil {
			continue
		}
		for _, qos := range eligible.QOSChoices(jobSpec) {
			slot, r := x.startIn(part, jobSpec.InQOS(qos), min(until, at-1))
			if r != nil {
				reason = r
			} else if slot.Start < at {
				at, nodes = slot.Start, partNodes(slot.Parts)
			}
		}
	}
	if at == spec.FarFuture {
		if reason == nil {
			reason = &spec.Reason{Code: spec.ReasonPartitionDown}
		}
		return 0, nil, reason
	}
	return at, nodes, nil
}

// startIn asks about one partition.
func (x *Explorer) startIn(
	part *state.Partition,
	jobSpec *spec.JobSpec,
	until spec.Instant,
) (timeline.Slot, *spec.Reason) {
	p := x.p
	job := *x.j
	job.Spec = jobSpec
	bound := limits.Find(
		p.trial.State,
		limits.Subject{
			Job:    jobSpec,
			Part:   part.Spec,
			Assoc:  x.j.Assoc,
			Now:    p.now,
			Beside: limits.Beside(p.trial.State, x.j),
		},
	)
	demand := eligible.ResolveDemand(p.snapshot, part, jobSpec, &bound)
	if eligible.MissesDeadline(&job, p.now) {
		return timeline.Slot{}, &spec.Reason{Code: spec.ReasonDeadLine}
	}
	if r := eligible.CheckStartable(p.snapshot, part, &job); r != nil {
		return timeline.Slot{}, r
	}
	if rejection := eligible.CheckPartition(p.snapshot, part, jobSpec, &demand); rejection != nil {
		return timeline.Slot{}, &rejection.Reason
	}
	nodes, err := eligible.AllowedNodes(p.snapshot, part, jobSpec)
	if err != nil {
		return timeline.Slot{}, &spec.Reason{Code: spec.ReasonBadConstraints, Detail: err.Error()}
	}
	if r := bound.Before(eligible.MinimumTRES(&demand, part.Spec, jobSpec), demand.Limit); r != nil {
		return timeline.Slot{}, r
	}
	if r := eligible.CheckLicenses(p.trial.State, jobSpec, p.now, demand.Limit); r != nil {
		return timeline.Slot{}, r
	}
	if r := eligible.CheckArrayThrottle(p.trial.State, x.j); r != nil {
		return timeline.Slot{}, r
	}
	view, reason := timeline.ViewReservations(p.snapshot, jobSpec, p.now)
	if reason != nil {
		return timeline.Slot{}, reason
	}
	if view.Only != nil {
		nodes.Set = nodes.Set.And(view.Only)
	}
	demand.Inside = view.Cores()
	demand.Limit = view.CapLimit(demand.Limit, p.now)
	options := nodes.Options(p.cfg, part.Spec, jobSpec, p.trees)
	if nodes.Switches != nil && !p.planner.waitedForSwitches(&job) {
		options.OneOf = eligible.CombineSets(options.OneOf, nodes.Switches)
	}
	query := p.line.NewQuery(demand, nodes.Set, options, view.Bars)
	for i := range p.snapshot.Parts.List {
		if p.strict && &p.snapshot.Parts.List[i] == part && p.firstWaiting[i] != 0 {
			query.NotBefore(max(p.lastPlanned[i], p.now+1)) // nothing may overtake
		}
	}
	slot, ok := p.line.Earliest(query, until, nil)
	if !ok {
		return slot, &spec.Reason{Code: spec.ReasonResources, Subject: "partition/" +
			part.Spec.Name}
	}
	if startsTooLate(&job, p.now, &slot, demand.Limit) {
		return slot, &spec.Reason{Code: spec.ReasonDeadLine, Until: slot.Start}
	}
	if slot.Start == p.now {
		alloc := place.Allocate(p.onTrialNodes(slot.Parts), &demand, part.Spec.BillingWeights)
		if alloc == nil {
			return slot, &spec.Reason{Code: spec.ReasonResources, Subject: "partition/" +
				part.Spec.Name}
		}
		if r := bound.After(alloc, demand.Limit); r != nil {
			return slot, r
		}
	}
	return slot, nil
}

// StartTogether tells the same of a heterogeneous job, whose leader the
// Explorer has come to, with a request for each of its components: when all can
// start, and where. Without preemption, as Start.
func (x *Explorer) StartTogether(
	specs []*spec.JobSpec,
	until spec.Instant,
) (spec.Instant, []spec.NodeID, *spec.Reason) {
	p := x.p
	own := p.queue.jobs[x.j.UID].request.classes[0]
	var parts []hetPart
	for i, job := range p.snapshot.Components(x.j) {
		if job.State != spec.Pending || i >= len(specs) {
			return 0, nil, &spec.Reason{Code: spec.ReasonCleaning, Blocker: job.UID}
		}
		changed := *job
		changed.Spec = specs[i]
		if eligible.MissesDeadline(&changed, p.now) {
			return 0, nil, &spec.Reason{Code: spec.ReasonDeadLine}
		}
		classes, reason := p.het.hetClasses(own, &changed)
		if reason != nil {
			return 0, nil, reason
		}
		parts = append(parts, hetPart{job: &changed, classes: classes, class: classes[0]})
	}
	slices.SortStableFunc(
		parts,
		func(a, b hetPart) int { return cmp.Compare(a.countChoices(), b.countChoices()) },
	)
	at := p.now
	if p.strict && p.firstWaiting[own.partIndex] != 0 {
		at = max(p.lastPlanned[own.partIndex], p.now+1) // nothing may overtake
	}
	start, reason := p.het.togetherInTurn(parts, at, until)
	switch {
	case reason != nil:
		return 0, nil, reason
	case start == spec.FarFuture:
		return 0, nil, &spec.Reason{Code: spec.ReasonPartitionConfig, Subject: own.part.Subject}
	}
	var nodes []spec.NodeID
	for i := range parts {
		part := &parts[i]
		if startsTooLate(part.job, p.now, &part.slot, part.class.demand.Limit) {
			return 0, nil, &spec.Reason{Code: spec.ReasonDeadLine, Until: start}
		}
		nodes = append(nodes, partNodes(part.slot.Parts)...)
	}
	if start == p.now {
		if r := p.het.refuseTogether(parts); r != nil {
			return 0, nil, r
		}
	}
	slices.Sort(nodes)
	return start, slices.Compact(nodes), nil
}

// Change is another request for a pending job.
type Change struct {
	UID  spec.JobUID
	Spec *spec.JobSpec
}

// Confirm runs a whole pass with changed requests, and tells
// when the first of their jobs would start; false if that is unknown.
func Confirm(
	cluster *state.State, now spec.Instant, changes []Change, options Options,
) (spec.Instant, bool) {
	t := trial.On(cluster.Fork(), now, event.Actor{}, "explain")
	for _, change := range changes {
		job := t.Job(change.UID)
		part := t.Parts.Find(change.Spec.Partitions[0])
		if job == nil || part == nil {
			return 0, false
		}
		bound := limits.Find(t.State, limits.Subject{Job: change.Spec, Part: part.Spec, Assoc: job.Assoc})
		demand := eligible.ResolveDemand(t.State, part, change.Spec, &bound)
		changed := *change.Spec
		changed.Queue.Hold, changed.Time.Begin = job.Hold, job.Begin
		if t.Emit(&event.JobUpdated{UID: change.UID, Spec: &changed, Req: eligible.MinimumTRES(&demand, part.Spec, change.Spec), Assoc: job.Assoc}) != nil {
			return 0, false
		}
	}
	uid := changes[0].UID
	outcome, err := Pass(t.Freeze(), t.Now, options)
	if err != nil {
		return 0, false
	}
	for i := range outcome.Starts {
		if outcome.Starts[i].UID == uid {
			return t.Now, true
		}
	}
	if planned := outcome.Plan.Of(uid); planned != nil {
		return planned.Start, true
	}
	return 0, false
}

// Rank compares the place in the queue that a changed request would have with
// the job's own: negative if it would come earlier.
func (x *Explorer) Rank(jobSpec *spec.JobSpec) int {
	changed := *x.j
	changed.Spec = jobSpec
	best := func(job *state.Job) uint64 {
		out := ^uint64(0)
		for _, name := range job.Spec.Partitions {
			part := x.p.snapshot.Parts.Find(name)
			if part == nil {
				continue
			}
			for _, qos := range eligible.QOSChoices(job.Spec) {
				component := *job
				component.Spec = job.Spec.InQOS(qos)
				bound := limits.Find(
					x.p.snapshot,
					limits.Subject{Job: component.Spec, Part: part.Spec, Assoc: job.Assoc},
				)
				demand := eligible.ResolveDemand(x.p.snapshot, part, component.Spec, &bound)
				component.Req = eligible.MinimumTRES(&demand, part.Spec, component.Spec)
				out = min(
					out,
					rankOf(
						x.p.ctx.Standing(&component, part.Spec),
						x.p.ctx.Of(&component, part.Spec).Total,
					),
				)
			}
		}
		return out
	}
	a, b := best(&changed), best(x.j)
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// Ahead counts the jobs that a pass would look at before a pending one in one
// of its partitions: those that are not held and wait for nothing else.
func Ahead(cluster *state.State, now spec.Instant, uid spec.JobUID) int {
	p := newPass(cluster, now, Options{})
	w := p.queue.jobs[uid]
	if w == nil || w.request == nil {
		return 0
	}
	ahead := map[spec.JobUID]bool{}
	me := memberOf(w.job, p.queue.order)
	for _, own := range w.request.classes {
		job := own.inQOS(w.job)
		at := &jobClass{
			rank:    rankOf(p.ctx.Standing(job, own.part.Spec), p.ctx.Of(job, own.part.Spec).Total),
			members: []member{me},
			choice:  own.choice,
		}
		if p.ctx.Share != nil {
			at.share = p.ctx.Share(job)
		}
		for _, class := range p.queue.classes {
			if class.partIndex != own.partIndex || class.isEmpty() {
				continue
			}
			for class.beginPass(p.ctx); class.position < len(class.members); class.nextMember(p.ctx) {
				m := class.currentMember()
				if !class.ranksBefore(at) {
					break // nor do those behind it
				}
				if m.uid != uid {
					ahead[m.uid] = true
				}
			}
		}
	}
	return len(ahead)
}
