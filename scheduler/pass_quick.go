package scheduler

import (
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/scheduler/reserve"
	"github.com/musterhpc/muster/scheduler/resv"
	"github.com/musterhpc/muster/spec"
)

// An incremental pass starts jobs inside the plan of the pass before: it looks
// at the nodes that have something free now, and at the jobs that could use
// it, in order, and starts those that delay nothing that was promised there.
// It plans nothing, moves nothing and gives no new reasons, so that it costs
// little however deep the queue is; the next full pass compresses the plan.

// quick is what an incremental pass knows beside a full one.
type quick struct {
	nodes spec.Bitset // that have something free now
	count int64
	near  map[spec.JobUID]bool // jobs that were promised something there
	local map[int][]place.Part // by promise: its part on those nodes
}

// incremental tells whether the pass may be one: there is a plan to keep, and
// overtaking is allowed.
func (p *pass) incremental() bool {
	return p.opt.Incremental && p.opt.Keep != nil && !p.strict && p.stop == 0 && !p.opt.Discipline.Shortest && !p.wholeBlocks()
}

// runQuick is run for an incremental pass.
func (p *pass) runQuick() error {
	q := &quick{near: map[spec.JobUID]bool{}, local: map[int][]place.Part{}}
	p.st.Nodes.Range(func(id uint64, n *state.Node) bool {
		if n.Usable() && n.UnsharedCPUs() > 0 {
			q.nodes = q.nodes.Set(int(id))
			q.count++
		}
		return true
	})
	if q.count == 0 {
		return nil
	}
	p.line = reserve.New(p.st, p.now, max(p.cfg.Sched.BFResolution, spec.Second), q.nodes, p.queue.line)
	p.queue.line = p.line
	resv.Keep(p.st, p.line, p.now)
	p.tellApart()
	p.restoreOn(q)
	p.holdAll()
	heap := p.fitting(q)
	for began := 0; len(heap) > 0; {
		if n := len(p.out.Starts); n > began { // there is less room
			began = n
			heap = newLotHeap(slices.DeleteFunc(heap, func(l *lot) bool { return !p.mayFit(q, l) }))
			continue
		}
		if p.opt.Starts != 0 && len(p.out.Starts) >= max(p.opt.Starts, 0) {
			p.out.Exit = exitStarts
			return nil
		}
		if p.moves(heap[0]) {
			heap.sink(0)
			continue
		}
		l := heap[0]
		if err := p.goOn(uint32(^l.rank >> 32)); err != nil {
			return err
		}
		more, err := p.tryNow(q, l)
		if err != nil {
			return err
		}
		if !more {
			heap = heap.drop()
		}
		if len(heap) > 0 {
			heap.sink(0)
		}
	}
	return p.goOn(0)
}

// fitting are the lots whose jobs may fit on the nodes looked at.
func (p *pass) fitting(q *quick) lotHeap {
	var heap lotHeap
	there := make([]bool, len(p.head)) // by partition: some of its nodes are looked at
	for i := range there {
		there[i] = p.st.Parts.List[i].Nodes.Intersects(q.nodes)
	}
	for _, l := range p.queue.lots {
		if there[l.pi] && p.mayFit(q, l) && !l.empty() && l.kin.like.Het == nil {
			l.begin(p.ctx)
			heap = append(heap, l)
		}
	}
	return newLotHeap(heap)
}

// mayFit rules out requests that are larger than all that is free.
func (p *pass) mayFit(q *quick, l *lot) bool {
	return l.cpus == 0 || (l.size <= q.count && p.line.Has(l.cpus, l.gpus))
}

// restoreOn puts those parts of the promises into the timeline that lie on
// the nodes looked at.
func (p *pass) restoreOn(q *quick) {
	p.kept = map[promiseKey]int{}
	for id, list := range p.opt.Keep.onNodes() {
		if !q.nodes.Has(id) || !p.line.Usable(spec.NodeID(id)) {
			continue
		}
		for _, at := range list {
			r := &p.opt.Keep.list[at.promise]
			j := p.st.Job(r.uid)
			if j == nil || j.State != spec.Pending || j.Hold != spec.NotHeld || (r.task != spec.NoTask && !j.Tasks.Has(r.task)) {
				continue
			}
			part := r.slot.Parts[at.part : at.part+1]
			if !p.line.Takes(&part[0]) {
				continue
			}
			p.line.Promise(part, r.slot.Start, r.limit, r.uid)
			p.kept[promiseKey{r.uid, r.task}] = int(at.promise)
			q.near[r.uid] = true
			q.local[int(at.promise)] = append(q.local[int(at.promise)], part...)
		}
	}
}

// tryNow starts the current job of a lot, or one task of it, if it can start
// now; false if the lot is done with.
func (p *pass) tryNow(q *quick, l *lot) (bool, error) {
	m := l.current()
	if l.ask != nil && l.ask.NotNow(p.now) && !q.near[m.uid] {
		return p.skip(q, l), nil
	}
	j := m.job
	if p.marks[m.uid]&touched != 0 {
		if j = l.as(p.t.Job(m.uid)); j.State != spec.Pending {
			return l.next(p.ctx), nil
		}
	}
	if !l.ready {
		if !p.mayFit(q, l) || p.prepare(l, j) != nil {
			return false, nil
		}
		l.ready = true
	}
	if p.holds[m.uid] != nil {
		defer p.look(m.uid)()
	}
	p.out.Depth++
	if !p.roomy(l) || l.bound.Before(l.least, l.demand.Limit) != nil || licences(p.t.State, j.Spec, p.now, l.demand.Limit) != nil {
		return false, nil
	}
	if throttled(p.t.State, j) != nil {
		return l.next(p.ctx), nil
	}
	task := spec.NoTask
	if j.IsArrayRecord() {
		var r *spec.Reason
		if task, r = p.nextTask(j); r != nil {
			return l.next(p.ctx), nil
		}
	}
	return p.startNow(q, l, m, task)
}

// startNow looks for a start at this instant. What was promised to the job
// itself is no obstacle; it stays promised if the job cannot start.
func (p *pass) startNow(q *quick, l *lot, m *member, task int64) (bool, error) {
	ask := p.ask(l)
	i, promised := p.kept[promiseKey{m.uid, task}]
	began := false
	if promised {
		r := &p.opt.Keep.list[i]
		p.line.Forget(q.local[i], r.slot.Start, r.limit, r.uid)
		ask.Anew(p.now)
		defer func() {
			if !began {
				p.line.Promise(q.local[i], r.slot.Start, r.limit, r.uid)
			}
		}()
	}
	slot, ok := p.line.Earliest(ask, p.now, p.hint(m.uid, task)) // where it was promised, if it can
	if !ok {
		return p.skip(q, l), nil
	}
	if r, err := p.start(l, m, task, slot.Parts, l.demand.Limit); err != nil || r != nil {
		return false, err
	}
	if began = true; task != spec.NoTask {
		delete(p.kept, promiseKey{m.uid, task})
		return true, nil // the next task of the record
	}
	return l.next(p.ctx), nil
}

// skip goes to the next job of a lot that a start could be found for: one that
// was promised something on these nodes, since for the others the answer is
// known.
func (p *pass) skip(q *quick, l *lot) bool {
	for l.next(p.ctx) {
		if q.near[l.current().uid] {
			return true
		}
	}
	return false
}
