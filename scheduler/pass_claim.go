package scheduler

import (
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// What preempted jobs leave belongs to the job that they were preempted for,
// until it starts: before anybody else is looked at, it gets the nodes that it
// was to start on. Where it cannot start there soon any more (a node was lost,
// a limit was reached), it waits its turn like the others.

// claims places the jobs that others made room for.
func (p *pass) claims() error {
	type claimant struct {
		l *lot
		m member
	}
	var list []claimant
	p.queue.claim.Range(func(uid uint64, _ struct{}) bool {
		w := p.queue.jobs[spec.JobUID(uid)]
		for _, l := range w.kin.lots {
			if c := (claimant{l, memberOf(w.job, p.queue.rule)}); c.m.uid != p.stop {
				list = append(list, c)
			}
		}
		return true
	})
	slices.SortStableFunc(list, func(a, b claimant) int {
		switch x, y := p.rank(a.l, a.m.job), p.rank(b.l, b.m.job); {
		case x < y, x == y && a.m.before(&b.m):
			return -1
		case x > y, b.m.before(&a.m):
			return 1
		}
		return a.l.nth - b.l.nth
	})
	for i := range list {
		if p.opt.Starts != 0 && len(p.out.Starts) >= max(p.opt.Starts, 0) {
			return nil
		}
		if c := &list[i]; p.marks[c.m.uid]&(touched|claiming) == 0 {
			if err := p.claim(c.l, &c.m); err != nil {
				return err
			}
		}
	}
	return nil
}

// rank is where a job of a lot stands.
func (p *pass) rank(l *lot, j *state.Job) uint64 {
	f := l.fixed
	p.ctx.Complete(&f, j)
	return rankOf(p.ctx.Standing(j, l.part.Spec), f.Total)
}

// claim starts a job on the nodes that were freed for it, or promises them to
// it if they will be free soon.
func (p *pass) claim(l *lot, m *member) error {
	j := m.job
	if !l.ready {
		if p.prepare(l, j) != nil {
			return nil
		}
		l.ready = true
	}
	if l.bound.Before(l.least, l.demand.Limit) != nil || p.tooLow(l, j) != nil || licences(p.t.State, j.Spec, p.now, l.demand.Limit) != nil || throttled(p.t.State, j) != nil {
		return nil
	}
	task := spec.NoTask
	if j.IsArrayRecord() {
		var r *spec.Reason
		if task, r = p.nextTask(j); r != nil {
			return nil
		}
	}
	if old := p.promised(j.UID, task); old != nil {
		p.giveBack(l, old)
	}
	ask := p.line.Ask(l.demand, l.nodes.set.And(j.Claim), l.nodes.options(p.cfg, l.part.Spec, j.Spec, p.tree), p.barsOf(l))
	slot, ok := p.line.Earliest(ask, p.line.Soon(), nil)
	switch {
	case !ok:
		return nil
	case slot.Start <= p.now:
		_, err := p.start(l, m, task, slot.Parts, l.demand.Limit)
		return err
	}
	p.line.Promise(slot.Parts, slot.Start, l.demand.Limit, j.UID)
	p.note(l, &promise{j.UID, task, slot, l.demand.Limit, p.line.Blockers(slot.Parts, slot.Start, j.UID)})
	p.spend()
	p.marks[m.uid] |= claiming
	return nil
}

// claimed is why a job waits that others make room for.
func (p *pass) claimed(l *lot, m *member) *spec.Reason {
	r := p.waiting(l, m)
	r.Until = p.line.Soon()
	if p.head[l.pi] == 0 {
		p.head[l.pi] = m.uid
	}
	return r
}
