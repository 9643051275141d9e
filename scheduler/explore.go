package scheduler

import (
	"cmp"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/limits"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/scheduler/reserve"
	"github.com/musterhpc/muster/scheduler/resv"
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
func Explore(st *state.State, now spec.Instant, uid spec.JobUID, opt PassOptions) (*Explorer, error) {
	p := newPass(st, now, opt)
	p.stop = uid
	if err := p.run(); err != nil {
		return nil, err
	}
	w := p.queue.jobs[uid]
	if w == nil || w.kin == nil || len(w.kin.lots) == 0 {
		return nil, nil
	}
	return &Explorer{p, w.job}, nil
}

// Sure tells that a whole pass would come to the job in the same state.
func (x *Explorer) Sure() bool { return !x.p.moved }

// Start tells when and where a request would start, given the job's place in
// the queue, or why it would not. Starts later than until are not looked for.
func (x *Explorer) Start(js *spec.JobSpec, until spec.Instant) (spec.Instant, []spec.NodeID, *spec.Reason) {
	at, reason := spec.FarFuture, (*spec.Reason)(nil)
	var nodes []spec.NodeID
	for _, name := range js.Partitions {
		part := x.p.st.Parts.Find(name)
		if part == nil {
			continue
		}
		for _, qos := range qosOf(js) {
			slot, r := x.in(part, js.InQOS(qos), min(until, at-1))
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

// in asks about one partition.
func (x *Explorer) in(part *state.Partition, js *spec.JobSpec, until spec.Instant) (reserve.Slot, *spec.Reason) {
	p := x.p
	job := *x.j
	job.Spec = js
	bound := limits.Find(p.t.State, limits.Subject{Job: js, Part: part.Spec, Assoc: x.j.Assoc, Now: p.now})
	d := demandOf(p.st, part, js, &bound)
	if missed(&job, p.now) {
		return reserve.Slot{}, &spec.Reason{Code: spec.ReasonDeadLine}
	}
	if r := closed(p.st, part, &job); r != nil {
		return reserve.Slot{}, r
	}
	if b := barred(p.st, part, js, &d); b != nil {
		return reserve.Slot{}, &b.reason
	}
	nodes, err := allowedNodes(p.st, part, js)
	if err != nil {
		return reserve.Slot{}, &spec.Reason{Code: spec.ReasonBadConstraints, Detail: err.Error()}
	}
	if r := bound.Before(leastOf(&d, part.Spec, js), d.Limit); r != nil {
		return reserve.Slot{}, r
	}
	if r := licences(p.t.State, js, p.now, d.Limit); r != nil {
		return reserve.Slot{}, r
	}
	if r := throttled(p.t.State, x.j); r != nil {
		return reserve.Slot{}, r
	}
	view, r := resv.For(p.st, js, p.now)
	if r != nil {
		return reserve.Slot{}, r
	}
	if view.Only != nil {
		nodes.set = nodes.set.And(view.Only)
	}
	d.Inside = view.Cores()
	opt := nodes.options(p.cfg, part.Spec, js, p.trees)
	if nodes.switches != nil && !p.waitedForSwitches(&job) {
		opt.OneOf = cross(opt.OneOf, nodes.switches)
	}
	ask := p.line.Ask(d, nodes.set, opt, view.Bars)
	for i := range p.st.Parts.List {
		if p.strict && &p.st.Parts.List[i] == part && p.head[i] != 0 {
			ask.NotBefore(max(p.fifo[i], p.now+1)) // nothing may overtake
		}
	}
	slot, ok := p.line.Earliest(ask, until, nil)
	if !ok {
		return slot, &spec.Reason{Code: spec.ReasonResources, Subject: "partition/" + part.Spec.Name}
	}
	if late(&job, p.now, &slot, d.Limit) {
		return slot, &spec.Reason{Code: spec.ReasonDeadLine, Until: slot.Start}
	}
	if slot.Start == p.now {
		alloc := place.Allocate(p.fresh(slot.Parts), &d, part.Spec.BillingWeights)
		if alloc == nil {
			return slot, &spec.Reason{Code: spec.ReasonResources, Subject: "partition/" + part.Spec.Name}
		}
		if r := bound.After(alloc, d.Limit); r != nil {
			return slot, r
		}
	}
	return slot, nil
}

// StartTogether tells the same of a heterogeneous job, whose leader the
// Explorer has come to, with a request for each of its components: when all can
// start, and where. Without preemption, as Start.
func (x *Explorer) StartTogether(specs []*spec.JobSpec, until spec.Instant) (spec.Instant, []spec.NodeID, *spec.Reason) {
	p := x.p
	own := p.queue.jobs[x.j.UID].kin.lots[0]
	var parts []hetPart
	for i, j := range p.st.Components(x.j) {
		if j.State != spec.Pending || i >= len(specs) {
			return 0, nil, &spec.Reason{Code: spec.ReasonCleaning, Blocker: j.UID}
		}
		changed := *j
		changed.Spec = specs[i]
		if missed(&changed, p.now) {
			return 0, nil, &spec.Reason{Code: spec.ReasonDeadLine}
		}
		lots, r := p.hetLots(own, &changed)
		if r != nil {
			return 0, nil, r
		}
		parts = append(parts, hetPart{job: &changed, lots: lots, lot: lots[0]})
	}
	slices.SortStableFunc(parts, func(a, b hetPart) int { return cmp.Compare(a.choices(), b.choices()) })
	at := p.now
	if p.strict && p.head[own.pi] != 0 {
		at = max(p.fifo[own.pi], p.now+1) // nothing may overtake
	}
	start, r := p.togetherInTurn(parts, at, until)
	switch {
	case r != nil:
		return 0, nil, r
	case start == spec.FarFuture:
		return 0, nil, &spec.Reason{Code: spec.ReasonPartitionConfig, Subject: own.part.Subject}
	}
	var nodes []spec.NodeID
	for i := range parts {
		c := &parts[i]
		if late(c.job, p.now, &c.slot, c.lot.demand.Limit) {
			return 0, nil, &spec.Reason{Code: spec.ReasonDeadLine, Until: start}
		}
		nodes = append(nodes, partNodes(c.slot.Parts)...)
	}
	if start == p.now {
		if r := p.allowed(parts); r != nil {
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

// Confirm runs a whole pass in which jobs ask for something else, and tells
// when the first of them would start; false if that cannot be told.
func Confirm(st *state.State, now spec.Instant, changes []Change, opt PassOptions) (spec.Instant, bool) {
	t := trial.On(st.Fork(), now, event.Actor{}, "explain")
	for _, c := range changes {
		j := t.Job(c.UID)
		part := t.Parts.Find(c.Spec.Partitions[0])
		if j == nil || part == nil {
			return 0, false
		}
		b := limits.Find(t.State, limits.Subject{Job: c.Spec, Part: part.Spec, Assoc: j.Assoc})
		d := demandOf(t.State, part, c.Spec, &b)
		changed := *c.Spec
		changed.Queue.Hold, changed.Time.Begin = j.Hold, j.Begin
		if t.Emit(&event.JobUpdated{UID: c.UID, Spec: &changed, Req: leastOf(&d, part.Spec, c.Spec), Assoc: j.Assoc}) != nil {
			return 0, false
		}
	}
	uid := changes[0].UID
	out, err := Pass(t.Freeze(), t.Now, opt)
	if err != nil {
		return 0, false
	}
	for i := range out.Starts {
		if out.Starts[i].UID == uid {
			return t.Now, true
		}
	}
	if p := out.Plan.Of(uid); p != nil {
		return p.Start, true
	}
	return 0, false
}

// Accepts tells whether a request would be taken in a pending job's place.
func Accepts(st *state.State, now spec.Instant, j *state.Job, js *spec.JobSpec) bool {
	d := &decision{t: trial.On(st.Fork(), now, event.Actor{}, "explain")}
	asked := *js
	asked.Queue.Dependency, asked.Queue.Hold, asked.Time.Begin, asked.Time.Deadline = nil, spec.NotHeld, 0, 0
	_, _, err := d.resolve(&asked, j)
	return err == nil || spec.CodeOf(err) == spec.CodePartitionUnavailable // for new jobs; this one was there before
}

// Rank compares the place in the queue that a changed request would have with
// the job's own: negative if it would come earlier.
func (x *Explorer) Rank(js *spec.JobSpec) int {
	changed := *x.j
	changed.Spec = js
	best := func(j *state.Job) uint64 {
		out := ^uint64(0)
		for _, name := range j.Spec.Partitions {
			part := x.p.st.Parts.Find(name)
			if part == nil {
				continue
			}
			for _, qos := range qosOf(j.Spec) {
				c := *j
				c.Spec = j.Spec.InQOS(qos)
				b := limits.Find(x.p.st, limits.Subject{Job: c.Spec, Part: part.Spec, Assoc: j.Assoc})
				d := demandOf(x.p.st, part, c.Spec, &b)
				c.Req = leastOf(&d, part.Spec, c.Spec)
				out = min(out, rankOf(x.p.ctx.Standing(&c, part.Spec), x.p.ctx.Of(&c, part.Spec).Total))
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

// Nodes tells which nodes of a partition a request may use, and which it must.
func Nodes(st *state.State, part *state.Partition, js *spec.JobSpec) (may, must spec.Bitset, err error) {
	n, err := allowedNodes(st, part, js)
	return n.set, n.must, err
}

// Ahead counts the jobs that a pass would look at before a pending one in one
// of its partitions: those that are not held and wait for nothing else.
func Ahead(st *state.State, now spec.Instant, uid spec.JobUID) int {
	p := newPass(st, now, PassOptions{})
	w := p.queue.jobs[uid]
	if w == nil || w.kin == nil {
		return 0
	}
	ahead := map[spec.JobUID]bool{}
	me := memberOf(w.job, p.queue.rule)
	for _, own := range w.kin.lots {
		job := own.as(w.job)
		at := &lot{rank: rankOf(p.ctx.Standing(job, own.part.Spec), p.ctx.Of(job, own.part.Spec).Total), members: []member{me}, nth: own.nth}
		if p.ctx.Share != nil {
			at.share = p.ctx.Share(job)
		}
		for _, l := range p.queue.lots {
			if l.pi != own.pi || l.empty() {
				continue
			}
			for l.begin(p.ctx); l.pos < len(l.members); l.next(p.ctx) {
				m := l.current()
				if !l.before(at) {
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
