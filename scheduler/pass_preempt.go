package scheduler

import (
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/floor"
	"github.com/musterhpc/muster/scheduler/limits"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/scheduler/preempt"
	"github.com/musterhpc/muster/scheduler/reserve"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// Preempt is a proposal: a running job is told to end, so that a waiting one
// can start.
type Preempt struct {
	For spec.JobUID
	// By is the component that outranks the victim, where For leads a
	// heterogeneous job; else 0.
	By        spec.JobUID
	Partition string // where the waiting job is to start
	QOS       string // in which it is to start, of several; else empty
	Priority  uint32 // of the waiting job
	Victim    preempt.Victim
	Room      spec.Bitset // the nodes where it is to start; with one of its victims
	// After is how many of the outcome's starts come before it.
	After int
}

// Bounds of the search for victims.
const (
	maxSearches = 200 // of one pass
	maxSpared   = 64  // victims that are tried to be spared, of one search
)

// makeRoom looks for running jobs that a job may push out so that it can start
// as soon as they are gone. slot is the start that it would have otherwise,
// blocked why it has none. The job gets those nodes promised.
func (p *pass) makeRoom(l *lot, m *member, j *state.Job, slot reserve.Slot, blocked *spec.Reason) (reserve.Slot, bool, error) {
	at := p.line.Soon()
	inOrder := p.strict && p.head[l.pi] != 0 && p.head[l.pi] != m.uid
	if (p.rules == nil && p.floors == nil) || l.stuck || p.marks[m.uid]&preempting != 0 || p.phase == gaps || p.searches >= maxSearches || inOrder || (blocked == nil && slot.Start <= at) || p.opt.Starts < 0 {
		return slot, false, nil
	}
	f := l.fixed
	p.ctx.Complete(&f, j)
	p.searches++
	victims, parts := p.fewest(l, at, p.victims(l, j, f.Total))
	if parts == nil || p.inVain(l, j, victims, parts) {
		l.stuck = true
		return slot, false, nil
	}
	var room spec.Bitset
	for k := range parts {
		room = room.Set(int(parts[k].Node.ID))
	}
	for i, v := range victims { // none, if what others leave is enough
		pr := Preempt{For: j.UID, Partition: l.part.Spec.Name, QOS: l.qos, Priority: f.Total, Victim: v, After: len(p.out.Starts)}
		if i == 0 {
			pr.Room = room
		}
		if err := (&decision{t: p.t}).push(&pr); err != nil {
			return slot, false, err
		}
		p.out.Preempts = append(p.out.Preempts, pr)
		for _, gone := range together(p.st, v.UID) {
			p.floors.Gone(gone.UID)
		}
		if v.Mode == preempt.Suspend {
			p.reserve(p.t.Job(v.UID))
		}
	}
	p.line.Relieve(at, p.records(victims))
	p.marks[m.uid] |= preempting
	if len(victims) > 0 {
		p.hold(j, l.part.Spec.Name, room, l.demand.Limit)
	}
	return reserve.Slot{Start: at, Parts: parts}, true, nil
}

// victims are the jobs that may have to make room for a job: by the rules of
// preemption, and for what is guaranteed to its account.
func (p *pass) victims(l *lot, j *state.Job, priority uint32) []preempt.Victim {
	var list []preempt.Victim
	if p.rules != nil {
		var next spec.Instant
		list, next = p.rules.Victims(j, l.part.Spec, priority)
		p.wake(next)
	}
	for _, v := range p.floors.Victims(j, l.least) {
		if !slices.ContainsFunc(list, func(o preempt.Victim) bool { return o.UID == v.UID }) {
			list = append(list, v)
		}
	}
	return slices.DeleteFunc(onePerJob(p.st, list), func(v preempt.Victim) bool {
		r := p.t.Job(v.UID)
		return r == nil || r.State != spec.Running || r.Ending != nil
	})
}

// records gives the records of the victims, and of those who go with them, as
// the pass found them.
func (p *pass) records(list []preempt.Victim) []reserve.Gone {
	out := make([]reserve.Gone, 0, len(list))
	for i := range list {
		for _, j := range together(p.st, list[i].UID) {
			out = append(out, reserve.Gone{Job: j, CPUs: list[i].Mode == preempt.Suspend})
		}
	}
	return out
}

// together are a job that runs and those that end with it when it makes room:
// the other components of its heterogeneous job that run.
func together(st *state.State, uid spec.JobUID) []*state.Job {
	j := st.Job(uid)
	if j.Het == nil {
		return []*state.Job{j}
	}
	return slices.DeleteFunc(st.Components(j), func(c *state.Job) bool { return !c.State.Active() || c.Ending != nil })
}

// onePerJob leaves one component of each heterogeneous job among some victims:
// the others go with it.
func onePerJob(st *state.State, list []preempt.Victim) []preempt.Victim {
	var have []spec.JobUID
	return slices.DeleteFunc(list, func(v preempt.Victim) bool {
		j := st.Job(v.UID)
		if j == nil || j.Het == nil {
			return false
		}
		if slices.Contains(have, j.Het.Leader) {
			return true
		}
		have = append(have, j.Het.Leader)
		return false
	})
}

// fewest takes victims from the front of a list until a demand fits, and then
// spares those that are not needed, the dearest first. strict_order spares
// only those on nodes that are not used.
func (p *pass) fewest(l *lot, at spec.Instant, list []preempt.Victim) ([]preempt.Victim, []place.Part) {
	if len(list) == 0 {
		return nil, nil
	}
	fit := func(v []preempt.Victim) []place.Part { return p.line.Relieved(p.ask(l), at, p.records(v)) }
	parts := fit(list)
	if parts == nil {
		return nil, nil
	}
	low, high := 0, len(list) // none is not enough, or the job would not be here
	for high-low > 1 {
		if mid := (low + high) / 2; fit(list[:mid]) != nil {
			high = mid
		} else {
			low = mid
		}
	}
	parts = fit(list[:high])
	used := spec.Bitset{}
	for i := range parts {
		used = used.Set(int(parts[i].Node.ID))
	}
	victims := slices.DeleteFunc(slices.Clone(list[:high]), func(v preempt.Victim) bool {
		return !slices.ContainsFunc(together(p.st, v.UID), func(j *state.Job) bool {
			return slices.ContainsFunc(j.Alloc.Nodes, func(a spec.NodeAlloc) bool { return used.Has(int(a.ID)) })
		})
	})
	if again := fit(victims); again != nil {
		parts = again
	} else {
		victims = slices.Clone(list[:high])
	}
	if p.cfg.Sched.PreemptStrict {
		return victims, parts
	}
	for i, tried := len(victims)-1, 0; i >= 0 && len(victims) > 1 && tried < maxSpared; i, tried = i-1, tried+1 {
		fewer := slices.Delete(slices.Clone(victims), i, i+1)
		if again := fit(fewer); again != nil {
			victims, parts = fewer, again
		}
	}
	return victims, parts
}

// inVain tells that the job could not start even if its victims were gone, and
// those who are ending there already: a limit keeps it from that, or what is
// free is enough in number only.
func (p *pass) inVain(l *lot, j *state.Job, victims []preempt.Victim, parts []place.Part) bool {
	t := trial.On(p.t.Freeze().Fork(), p.now, event.Actor{}, "schedule")
	if !p.clear(t, victims, parts) {
		return true
	}
	there := slices.Clone(parts)
	for i := range there {
		there[i].Node = t.NodeByID(there[i].Node.ID)
	}
	alloc := place.Allocate(there, &l.demand, l.part.Spec.BillingWeights)
	if alloc == nil {
		return true
	}
	b := limits.Find(t.State, limits.Subject{Job: j.Spec, Part: l.part.Spec, Assoc: j.Assoc, Now: p.now, Sizes: &p.sizes})
	return b.After(alloc, l.demand.Limit) != nil || overPowered(t.State, alloc) != nil
}

// clear takes victims, and those that end on the nodes of some parts anyway,
// out of a state that is thrown away; false if that cannot be.
func (p *pass) clear(t *trial.Trial, victims []preempt.Victim, parts []place.Part) bool {
	for _, v := range victims {
		for _, r := range together(t.State, v.UID) {
			if v.Mode == preempt.Suspend {
				if t.Emit(&event.JobSuspended{UID: r.UID, Attempt: r.Attempt, Yields: true, Auto: true}) != nil {
					return false
				}
			} else if vanish(t, r) != nil {
				return false
			}
		}
	}
	for i := range parts {
		for _, uid := range slices.Clone(t.NodeByID(parts[i].Node.ID).Jobs) {
			if r := t.Job(uid); (r.Ending != nil || r.Completing() || r.Deadline() <= p.line.Soon()) && vanish(t, r) != nil {
				return false
			}
		}
	}
	return true
}

// vanish takes a job and all that it holds out of a state that is thrown away.
func vanish(t *trial.Trial, r *state.Job) error {
	if !r.State.Terminal() {
		if err := t.Emit(&event.JobEnded{UID: r.UID, Attempt: r.Attempt, State: spec.Preempted}); err != nil {
			return err
		}
	}
	for i := range r.Alloc.Nodes {
		if !r.Done.Has(i) {
			if err := t.Emit(&event.JobNodeDone{UID: r.UID, Attempt: r.Attempt, Node: r.Alloc.Nodes[i].Name}); err != nil {
				return err
			}
		}
	}
	return nil
}

// push tells a victim to end, or to stand still.
func (d *decision) push(pr *Preempt) error {
	v := &pr.Victim
	if v.Mode == preempt.Suspend {
		return d.emit(&event.JobSuspended{UID: v.UID, Attempt: v.Attempt, Yields: true, Auto: true, For: pr.For, Room: pr.Room})
	}
	return d.emit(&event.JobEndRequested{UID: v.UID, Attempt: v.Attempt, Cause: event.EndPreempt, Requeue: v.Mode == preempt.Requeue,
		For: pr.For, Grace: v.Grace, Room: pr.Room})
}

// startsMayGo tells that jobs started which those that still wait may push out,
// and of which this pass took none: only who ran before it makes room. It looks
// at ranks and shares alone, and so says yes rather too often.
func (p *pass) startsMayGo() bool {
	if len(p.out.Starts) == 0 || (p.floors == nil && !preempt.Configured(&p.cfg.Sched)) {
		return false
	}
	rules, floors := preempt.New(p.t.State, p.now, nil).Since(p.st), floor.New(p.t.State, p.now, nil)
	asked := map[[2]string]bool{} // by partition and QOS
	for _, l := range p.queue.lots {
		j := p.waitsStill(l)
		if j == nil {
			continue
		}
		kind := [2]string{l.part.Spec.Name, j.QOS()}
		if j.Het != nil || (!asked[kind] && rules.Any(j, l.part.Spec)) {
			return true
		}
		asked[kind] = true
		if floors.Within(j, j.Req) || (l.ready && floors.Within(j, l.least)) {
			return true
		}
	}
	return false
}

// waitsStill is the first job of a lot that did not start, or nil.
func (p *pass) waitsStill(l *lot) *state.Job {
	for i := range l.members {
		j := l.members[i].job
		if j != nil && p.marks[j.UID]&touched != 0 {
			j = l.as(p.t.Job(j.UID))
		}
		if j != nil && j.State == spec.Pending {
			return j
		}
	}
	return nil
}

// commitPreempts tells some of the victims of a pass to end, but for those that
// the rules no longer name.
func (d *decision) commitPreempts(list []Preempt, which func(pr Preempt) bool) error {
	for i := range list {
		pr := &list[i]
		if !which(*pr) {
			continue
		}
		j, part := d.t.Job(max(pr.For, pr.By)), d.t.Parts.Find(pr.Partition)
		if j == nil || part == nil || j.State != spec.Pending || j.Hold != spec.NotHeld ||
			(!preempt.Allowed(d.t.State, d.t.Now, inQOS(j, pr.QOS), part.Spec, pr.Priority, pr.Victim) && !floor.Allowed(d.t.State, d.t.Now, j, pr.Victim)) {
			d.res.Stale++
			continue
		}
		if err := d.push(pr); err != nil {
			return err
		}
		d.res.Preempted++
	}
	return nil
}
