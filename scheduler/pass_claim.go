package scheduler

import (
	"slices"
	"strings"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/reserve"
	"github.com/musterhpc/muster/spec"
)

// What preempted jobs leave belongs to the job that they were preempted for,
// until it starts: before anybody else is looked at, it gets the nodes that it
// was to start on. Where it cannot start there soon any more (a node was lost,
// a limit was reached), it waits its turn like the others.

// claimant is a job that others made room for, in one of its partitions.
type claimant struct {
	l    *lot
	m    member
	task int64
	slot reserve.Slot // where it is to start; without parts: nowhere
}

// claims places the jobs that others made room for.
func (p *pass) claims() error {
	list, hets := p.claimants()
	if len(hets) > 0 {
		p.settle(list) // so that they leave to the others what these can use, if they can
	}
	for i := range hets { // first, since they need room for all of their components
		if c := &hets[i]; (p.opt.Starts == 0 || len(p.out.Starts) < p.opt.Starts) && p.marks[c.m.uid]&(touched|claiming) == 0 {
			if err := p.claimHet(c.l, &c.m, list); err != nil {
				return err
			}
		}
	}
	p.settle(list)
	for i := range list {
		if p.opt.Starts != 0 && len(p.out.Starts) >= max(p.opt.Starts, 0) {
			return nil
		}
		if c := &list[i]; c.slot.Parts != nil && p.marks[c.m.uid]&(touched|claiming) == 0 {
			if err := p.claim(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// claimants lists the jobs that others made room for, as far as they may
// start, in the order in which they come, and heterogeneous jobs apart.
func (p *pass) claimants() (list, hets []claimant) {
	p.queue.claim.Range(func(uid uint64, _ struct{}) bool {
		w := p.queue.jobs[spec.JobUID(uid)]
		for _, l := range w.kin.lots {
			if w.job.Het != nil && w.job.UID != p.stop {
				hets = append(hets, claimant{l: l, m: memberOf(w.job, p.queue.rule)})
				break
			}
			if c := (claimant{l: l, m: memberOf(l.as(w.job), p.queue.rule)}); c.m.uid != p.stop && p.ready(&c) {
				list = append(list, c)
			}
		}
		return true
	})
	slices.SortStableFunc(list, p.inRank)
	slices.SortStableFunc(hets, p.inRank)
	return list, hets
}

// inRank is the order in which claimants come.
func (p *pass) inRank(a, b claimant) int {
	switch x, y := p.rank(a.l, a.m.job), p.rank(b.l, b.m.job); {
	case x < y, x == y && a.m.before(&b.m):
		return -1
	case x > y, b.m.before(&a.m):
		return 1
	}
	return a.l.nth - b.l.nth
}

// ready finds which task of a claimant is to start; false if none may.
func (p *pass) ready(c *claimant) bool {
	if !c.l.ready {
		if p.prepare(c.l, c.m.job) != nil {
			return false
		}
		c.l.ready = true
	}
	c.task = spec.NoTask
	if !p.withinLimits(c) {
		return false
	}
	if c.m.job.IsArrayRecord() {
		var r *spec.Reason
		if c.task, r = p.nextTask(c.m.job); r != nil {
			return false
		}
	}
	return true
}

// withinLimits tells that no limit, licence or throttle keeps a claimant from
// starting.
func (p *pass) withinLimits(c *claimant) bool {
	l, j := c.l, c.m.job
	return l.bound.Before(l.least, l.demand.Limit) == nil && p.tooLow(l, j) == nil && licences(p.t.State, j.Spec, p.now, l.demand.Limit) == nil &&
		throttled(p.t.State, j) == nil
}

// Bounds of the search for places for all claimants.
const maxClaimOrders = 8

// settle finds places for all claimants, or for as many as it can: what was
// left for one of them is no use to it if one that comes before takes it, which
// has another choice. Who gets none is looked at first then.
func (p *pass) settle(list []claimant) {
	for i := range list {
		if old := p.promised(list[i].m.uid, list[i].task); old != nil {
			p.giveBack(list[i].l, old)
		}
	}
	best, most := slices.Clone(list), -1
	var tried []spec.JobUID
	for range maxClaimOrders {
		placed, out := p.placeClaims(list)
		if placed > most {
			copy(best, list)
			most = placed
		}
		if out = slices.DeleteFunc(out, func(uid spec.JobUID) bool { return slices.Contains(tried, uid) }); len(out) == 0 {
			break
		}
		tried = append(tried, out[0])
		front := slices.DeleteFunc(slices.Clone(list), func(c claimant) bool { return c.m.uid != out[0] })
		behind := slices.DeleteFunc(slices.Clone(list), func(c claimant) bool { return c.m.uid == out[0] })
		copy(list, append(front, behind...))
	}
	copy(list, best)
	slices.SortStableFunc(list, p.inRank)
}

// placeClaims gives the claimants places, one after the other, and leaves the
// timeline as it was. It returns how many got one, and who did not.
func (p *pass) placeClaims(list []claimant) (placed int, out []spec.JobUID) {
	got := map[spec.JobUID]bool{}
	for i := range list {
		c := &list[i]
		if c.slot = (reserve.Slot{}); got[c.m.uid] {
			continue
		}
		ask := p.line.Ask(c.l.demand, c.l.nodes.set.And(c.m.job.Claim), c.l.nodes.options(p.cfg, c.l.part.Spec, c.m.job.Spec, p.trees), p.barsOf(c.l))
		if p.awaits(c.m.job) {
			ask.NotBefore(p.line.Soon())
		}
		if slot, ok := p.line.Earliest(ask, p.line.Soon(), nil); ok {
			c.slot, got[c.m.uid] = slot, true
			p.line.Promise(slot.Parts, slot.Start, c.l.demand.Limit, c.m.uid)
		}
	}
	for i := range list {
		c := &list[i]
		if c.slot.Parts != nil {
			p.line.Forget(c.slot.Parts, c.slot.Start, c.l.demand.Limit, c.m.uid)
		} else if !got[c.m.uid] && !slices.Contains(out, c.m.uid) {
			out = append(out, c.m.uid)
		}
	}
	return len(got), out
}

// rank is where a job of a lot stands.
func (p *pass) rank(l *lot, j *state.Job) uint64 {
	f := l.fixed
	p.ctx.Complete(&f, j)
	return rankOf(p.ctx.Standing(j, l.part.Spec), f.Total)
}

// awaits tells that some of those who are to make room for a job have not gone
// yet. What is free beside them may be promised to a job that comes before it.
func (p *pass) awaits(j *state.Job) bool {
	for id := j.Claim.Next(0); id >= 0; id = j.Claim.Next(id + 1) {
		if n := p.st.NodeByID(spec.NodeID(id)); n != nil && slices.ContainsFunc(n.Jobs, func(uid spec.JobUID) bool {
			e := p.st.Job(uid).Ending
			return e != nil && e.For == j.UID
		}) {
			return true
		}
	}
	return false
}

// claim starts a job on the nodes that were freed for it, or promises them to
// it if they will be free soon.
func (p *pass) claim(c *claimant) error {
	l, m, j := c.l, &c.m, c.m.job
	if !p.withinLimits(c) { // those that came before may have what there was
		return nil
	}
	if c.slot.Start <= p.now {
		_, err := p.start(l, m, c.task, c.slot.Parts, l.demand.Limit)
		return err
	}
	p.line.Promise(c.slot.Parts, c.slot.Start, l.demand.Limit, j.UID)
	p.note(l, &promise{j.UID, c.task, c.slot, l.demand.Limit, p.line.Blockers(c.slot.Parts, c.slot.Start, j.UID)})
	p.spend()
	p.marks[m.uid] |= claiming
	p.hold(j, l.part.Spec.Name, j.Claim, l.demand.Limit)
	return nil
}

// held is what a job counts as in limits and licences while others make room
// for it: like its nodes, nobody takes that before it starts.
type held struct {
	job   *state.Job
	alloc *spec.Allocation
	limit spec.Span
}

// hold counts a job that is to start on some nodes as if it did already.
func (p *pass) hold(j *state.Job, part string, nodes spec.Bitset, limit spec.Span) {
	lics, short := takeLicences(p.t.State, j.Spec, p.now, limit)
	if p.holds[j.UID] != nil || short != nil {
		return
	}
	h := &held{j, &spec.Allocation{Partition: part, TRES: j.Req, Licenses: lics}, limit}
	for id := nodes.Next(0); id >= 0; id = nodes.Next(id + 1) {
		h.alloc.Nodes = append(h.alloc.Nodes, spec.NodeAlloc{ID: spec.NodeID(id)})
	}
	if p.holds == nil {
		p.holds = map[spec.JobUID]*held{}
	}
	p.holds[j.UID] = h
	p.t.Hold(j, h.alloc, limit, true)
}

// look stops counting a job that is held as if it ran, so that it can be looked
// at itself; what is returned counts it again unless it has started.
func (p *pass) look(uid spec.JobUID) (done func()) {
	h := p.holds[uid]
	p.t.Hold(h.job, h.alloc, h.limit, false)
	delete(p.holds, uid)
	return func() {
		if j := p.t.Job(uid); j.State == spec.Pending && p.t.Job(leaderOf(j)).Claim != nil && p.holds[uid] == nil {
			p.t.Hold(h.job, h.alloc, h.limit, true)
			p.holds[uid] = h
		}
	}
}

// lookAll is look for the components of a heterogeneous job but its leader.
func (p *pass) lookAll(leader *state.Job) (done func()) {
	var again []func()
	for _, c := range p.st.Components(leader) {
		if p.holds[c.UID] != nil {
			again = append(again, p.look(c.UID))
		}
	}
	return func() {
		for _, f := range again {
			f()
		}
	}
}

// holder is the first job that others make room for and that is to have some of
// a licence; 0 if there is none.
func (p *pass) holder(licence string) spec.JobUID {
	first := spec.JobUID(0)
	//muster:unordered the least is looked for
	for uid, h := range p.holds {
		if amount(h.alloc.Licenses, strings.TrimPrefix(licence, "license/")) > 0 && (first == 0 || uid < first) {
			first = uid
		}
	}
	return first
}

// holdAll counts all jobs that others make room for and whose promises stand.
func (p *pass) holdAll() {
	if p.queue.claim.Len() == 0 {
		return
	}
	for i := range p.opt.Keep.list {
		r := &p.opt.Keep.list[i]
		w := p.queue.jobs[r.uid]
		if w == nil || !p.queue.claim.Has(uint64(leaderOf(w.job))) {
			continue
		}
		room := w.job.Claim
		if w.job.Het != nil {
			room = spec.Bitset{}
			for k := range r.slot.Parts {
				room = room.Set(int(r.slot.Parts[k].Node.ID))
			}
		}
		p.hold(w.job, w.job.Partition(), room, r.limit)
	}
}

// claimed is why a job waits that others make room for.
func (p *pass) claimed(l *lot, m *member) *spec.Reason {
	r := p.waiting(l, m)
	r.Until = p.line.Soon()
	if p.head[l.pi] == 0 {
		p.head[l.pi] = m.uid
	}
	p.planBehind(l, m)
	return r
}

// planBehind reserves the starts of the tasks of a record behind the one that
// others make room for: who comes later must not delay them.
func (p *pass) planBehind(l *lot, m *member) {
	j := m.job
	if !j.IsArrayRecord() || !l.ready || p.marks[m.uid]&reserved != 0 || p.overLimits(l, j) != nil {
		return
	}
	first, _ := p.nextTask(j)
	tasks := slices.DeleteFunc(p.planTasks(j), func(task int64) bool { return task == first })
	if len(tasks) == 0 {
		return
	}
	if slot, r := p.find(l, m, j, tasks[0]); r == nil && slot.Start > p.now {
		p.plant(l, j, slot, tasks, j.Tasks.Len()-1)
		p.marks[m.uid] |= reserved
	}
}
