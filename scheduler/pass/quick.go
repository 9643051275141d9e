package pass

import (
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/eligible"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/scheduler/timeline"
	"github.com/musterhpc/muster/spec"
)

// An incremental pass starts jobs inside the plan of the pass before: it looks
// at the nodes that have something free now, and at the jobs that could use
// it, in order, and starts those that delay nothing that was promised there.
// It plans nothing, moves nothing and gives no new reasons, so that it costs
// little however deep the queue is; the next full pass compresses the plan.

// incremental is a pass that starts what fits inside the plan of the pass before.
type incremental struct{ *pass }

// quick is what an incremental pass knows beside a full one.
type quick struct {
	nodes spec.Bitset // that have something free now
	count int64
	near  map[spec.JobUID]bool // jobs that were promised something there
	local map[int][]place.Part // by promise: its part on those nodes
}

// mayRun tells whether the pass may be one: there is a plan to keep, and
// overtaking is allowed.
func (p *incremental) mayRun() bool {
	if !p.options.Incremental || p.options.Keep == nil {
		return false
	}
	overtakes := !p.strict && p.stopAt == 0 && !p.options.Discipline.Shortest
	return overtakes && !p.wholeBlocks()
}

// runQuick is run for an incremental pass.
func (p *incremental) runQuick() error {
	q := &quick{near: map[spec.JobUID]bool{}, local: map[int][]place.Part{}}
	p.snapshot.Nodes.Range(func(id uint64, node *state.Node) bool {
		if node.Usable() && node.UnsharedCPUs() > 0 {
			q.nodes = q.nodes.Set(int(id))
			q.count++
		}
		return true
	})
	if q.count == 0 {
		return nil
	}
	p.line = timeline.New(
		p.snapshot,
		p.now,
		max(p.cfg.Sched.BFResolution, spec.Second),
		q.nodes,
		p.queue.line,
	)
	p.queue.line = p.line
	timeline.KeepReserved(p.snapshot, p.line, p.now)
	p.trackTenants()
	p.restoreOn(q)
	p.claims.holdAll()
	heap := p.fittingClasses(q)
	for began := 0; len(heap) > 0; {
		if n := len(p.out.Starts); n > began { // there is less room
			began = n
			heap = newClassHeap(
				slices.DeleteFunc(heap, func(class *jobClass) bool { return !p.mayFit(q, class) }),
			)
			continue
		}
		if p.options.Starts != 0 && len(p.out.Starts) >= max(p.options.Starts, 0) {
			p.out.Exit = exitStarts
			return nil
		}
		if p.updateRank(heap[0]) {
			heap.sinkAt(0)
			continue
		}
		class := heap[0]
		if err := p.turns.resumeSuspended(uint32(^class.rank >> 32)); err != nil {
			return err
		}
		more, err := p.tryNow(q, class)
		if err != nil {
			return err
		}
		if !more {
			heap = heap.dropTop()
		}
		if len(heap) > 0 {
			heap.sinkAt(0)
		}
	}
	return p.turns.resumeSuspended(0)
}

// fittingClasses are the classes whose jobs may fit on the nodes looked at.
func (p *incremental) fittingClasses(q *quick) classHeap {
	var heap classHeap
	there := make([]bool, len(p.firstWaiting)) // by partition: some of its nodes are looked at
	for i := range there {
		there[i] = p.snapshot.Parts.List[i].Nodes.Intersects(q.nodes)
	}
	for _, class := range p.queue.classes {
		if there[class.partIndex] && p.mayFit(q, class) && !class.isEmpty() &&
			class.request.representative.Het == nil {
			class.beginPass(p.ctx)
			heap = append(heap, class)
		}
	}
	return newClassHeap(heap)
}

// mayFit rules out requests that are larger than all that is free.
func (p *incremental) mayFit(q *quick, class *jobClass) bool {
	return class.cpus == 0 || (class.nodeCount <= q.count && p.line.HasFree(class.cpus, class.gpus))
}

// restoreOn puts those parts of the promises into the timeline that lie on
// the nodes looked at.
func (p *incremental) restoreOn(q *quick) {
	p.planner.kept = map[promiseKey]int{}
	for id, list := range p.options.Keep.onNodes() {
		if !q.nodes.Has(id) || !p.line.Usable(spec.NodeID(id)) {
			continue
		}
		for _, at := range list {
			r := &p.options.Keep.list[at.promise]
			job := p.snapshot.Job(r.uid)
			if job == nil || !job.IsUnheld() ||
				(r.task != spec.NoTask && !job.Tasks.Has(r.task)) {
				continue
			}
			part := r.slot.Parts[at.part : at.part+1]
			if !p.line.Takes(&part[0]) {
				continue
			}
			p.line.Promise(part, r.slot.Start, r.limit, r.uid)
			p.planner.kept[promiseKey{r.uid, r.task}] = int(at.promise)
			q.near[r.uid] = true
			q.local[int(at.promise)] = append(q.local[int(at.promise)], part...)
		}
	}
}

// tryNow starts the current job of a class, or one task of it, if it can start
// now; false if the class is done with.
func (p *incremental) tryNow(q *quick, class *jobClass) (bool, error) {
	member := class.currentMember()
	if class.query != nil && class.query.NotNow(p.now) && !q.near[member.uid] {
		return p.skipToFitting(q, class), nil
	}
	job := member.job
	if p.marks[member.uid]&touched != 0 {
		job = class.inQOS(p.trial.Job(member.uid))
		if job.State != spec.Pending {
			return class.nextMember(p.ctx), nil
		}
	}
	if !class.ready {
		if !p.mayFit(q, class) || p.prepareClass(class, job) != nil {
			return false, nil
		}
		class.ready = true
	}
	if p.claims.holds[member.uid] != nil {
		defer p.claims.lookAtHeld(member.uid)()
	}
	p.out.Depth++
	if !p.mayHaveRoom(class) || class.bound.Before(class.least, class.demand.Limit) != nil ||
		eligible.CheckLicenses(p.trial.State, job.Spec, p.now, class.demand.Limit) != nil {
		return false, nil
	}
	if eligible.CheckArrayThrottle(p.trial.State, job) != nil {
		return class.nextMember(p.ctx), nil
	}
	task := spec.NoTask
	if job.IsArrayRecord() {
		var reason *spec.Reason
		task, reason = p.nextTask(job)
		if reason != nil {
			return class.nextMember(p.ctx), nil
		}
	}
	return p.startNow(q, class, member, task)
}

// startNow looks for a start at this instant. What was promised to the job
// itself is no obstacle; it stays promised if the job cannot start.
func (p *incremental) startNow(q *quick, class *jobClass, m *member, task int64) (bool, error) {
	query := p.planner.queryOf(class)
	i, promised := p.planner.kept[promiseKey{m.uid, task}]
	began := false
	if promised {
		r := &p.options.Keep.list[i]
		p.line.Forget(q.local[i], r.slot.Start, r.limit, r.uid)
		query.Reset(p.now)
		defer func() {
			if !began {
				p.line.Promise(q.local[i], r.slot.Start, r.limit, r.uid)
			}
		}()
	}
	slot, ok := p.line.Earliest(
		query,
		p.now,
		p.planner.hintFor(m.uid, task),
	) // where it was promised, if it can
	if !ok {
		return p.skipToFitting(q, class), nil
	}
	reason, err := p.startJob(class, m, task, slot.Parts, wholeLimit(class))
	if err != nil || reason != nil {
		return false, err
	}
	began = true
	if task != spec.NoTask {
		delete(p.planner.kept, promiseKey{m.uid, task})
		return true, nil // the next task of the record
	}
	return class.nextMember(p.ctx), nil
}

// skipToFitting goes to the next job of a class that a start could be found for: one that
// was promised something on these nodes, since for the others the answer is
// known.
func (p *incremental) skipToFitting(q *quick, class *jobClass) bool {
	for class.nextMember(p.ctx) {
		if q.near[class.currentMember().uid] {
			return true
		}
	}
	return false
}
