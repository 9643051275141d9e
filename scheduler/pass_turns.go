package scheduler

import (
	"cmp"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/scheduler/preempt"
	"github.com/musterhpc/muster/spec"
)

// A job that was suspended for another goes on when its CPUs are free again: it
// comes before the waiting jobs of its tier. Until then those behind it get none
// of its CPUs that become free. Where jobs take turns (OverSubscribe=FORCE with
// PreemptMode=GANG), it goes on when the turn of those is over that have them.

// Turn is a proposal: a suspended job goes on, and those that had its CPUs are
// suspended instead.
type Turn struct {
	UID     spec.JobUID
	Attempt uint32
	Instead []Run
}

// findSleepers lists the suspended jobs that are to go on, in the order in which
// they do.
func (p *pass) findSleepers() {
	p.st.Sleeping.Range(func(uid uint64, _ struct{}) bool {
		if j := p.st.Job(spec.JobUID(uid)); j.Ending == nil {
			p.sleepers = append(p.sleepers, j)
		}
		return true
	})
	slices.SortStableFunc(p.sleepers, func(a, b *state.Job) int {
		return cmp.Or(cmp.Compare(p.standing(b), p.standing(a)), cmp.Compare(a.SuspendedAt, b.SuspendedAt), cmp.Compare(a.UID, b.UID))
	})
}

// standing is that of a job where it runs.
func (p *pass) standing(j *state.Job) uint32 {
	part := p.st.Parts.Find(j.Alloc.Partition)
	if part == nil {
		return 0
	}
	return p.ctx.Standing(j, part.Spec)
}

// goOn looks at the suspended jobs that come before the waiting jobs of a
// standing.
func (p *pass) goOn(before uint32) error {
	for len(p.sleepers) > 0 && p.standing(p.sleepers[0]) >= before {
		j := p.sleepers[0]
		p.sleepers = p.sleepers[1:]
		instead, ok := p.turn(j)
		if !ok {
			p.spare(j)
			continue
		}
		t := Turn{UID: j.UID, Attempt: j.Attempt, Instead: instead}
		if err := (&decision{t: p.t}).takeTurn(&t); err != nil {
			return err
		}
		p.out.Turns = append(p.out.Turns, t)
		p.occupy(j)
	}
	return nil
}

// turn tells whether a suspended job can go on now, and who is to be suspended
// for it.
func (p *pass) turn(j *state.Job) (instead []Run, ok bool) {
	part := p.st.Parts.Find(j.Alloc.Partition)
	shares := 0
	if part != nil {
		shares = p.cfg.Sched.Turns(part.Spec)
	}
	for i := range j.Alloc.Nodes {
		a := &j.Alloc.Nodes[i]
		n := p.t.NodeByID(a.ID)
		if j.Done.Has(i) || n == nil {
			continue
		}
		if p.line.Usable(a.ID) && !n.UsedCPU.Intersects(a.CPUs) && p.line.FreeCPUs(a.ID) < int64(a.CPUs.Count()) {
			return nil, false // it was promised to jobs that come before
		}
		if !n.UsedCPU.Intersects(a.CPUs) {
			continue
		}
		for _, uid := range n.Jobs {
			o := p.t.Job(uid)
			if o.Yields || !o.Alloc.Nodes[o.Alloc.Index(a.ID)].CPUs.Intersects(a.CPUs) {
				continue
			}
			over := o.RunsSince().Add(preempt.Slice(&p.cfg.Sched))
			if shares < 2 || o.Het != nil || o.State != spec.Running || o.Ending != nil || o.Alloc.Partition != j.Alloc.Partition {
				return nil, false
			}
			if over > p.now {
				p.wake(over)
				return nil, false
			}
			if r := (Run{UID: uid, Attempt: o.Attempt}); !slices.Contains(instead, r) {
				instead = append(instead, r)
			}
		}
	}
	if overCap(p.t.State, j, instead) {
		return nil, false
	}
	for _, r := range instead { // what they leave beside its CPUs is not given out before the next pass
		p.reserve(p.t.Job(r.UID))
	}
	return instead, true
}

// occupy takes the CPUs of a job that goes on out of the timeline, if they were
// in it.
func (p *pass) occupy(j *state.Job) {
	left := max(j.Limit-p.now.Sub(j.Started)+j.Paused+p.now.Sub(j.SuspendedAt), spec.Second)
	if j.Limit == spec.Infinite {
		left = spec.Infinite
	}
	for i := range j.Alloc.Nodes {
		a := &j.Alloc.Nodes[i]
		if n := p.st.NodeByID(a.ID); !j.Done.Has(i) && n != nil && p.line.Usable(a.ID) {
			use := p.line.OnCPUs(a, j.Alloc)
			if j.Alloc.Reservation == "" || use.CPU > 0 { // else a reservation has them
				use.CPU = int64(a.CPUs.AndNot(n.UsedCPU).Count())
			}
			p.line.Promise([]place.Part{{Node: n, Need: place.Need{Use: use}}}, p.now, left, j.UID)
		}
	}
}

// spare keeps the CPUs of a suspended job that are free from the jobs behind it.
func (p *pass) spare(j *state.Job) {
	for i := range j.Alloc.Nodes {
		a := &j.Alloc.Nodes[i]
		n := p.t.NodeByID(a.ID)
		if j.Done.Has(i) || n == nil || !p.line.Usable(a.ID) {
			continue
		}
		free := a.CPUs.AndNot(n.UsedCPU).AndNot(p.spared[a.ID])
		if free.Empty() {
			continue
		}
		p.keepCPUs(a.ID, free)
		p.line.Promise([]place.Part{{Node: n, Need: place.Need{Use: place.Free{CPU: int64(free.Count())}}}}, p.now, spec.Infinite, j.UID)
	}
}

// reserve keeps the CPUs of a job that is suspended in this pass from those that
// start in it: it may turn out that it need not be.
func (p *pass) reserve(j *state.Job) {
	for i := range j.Alloc.Nodes {
		if a := &j.Alloc.Nodes[i]; !j.Done.Has(i) {
			p.keepCPUs(a.ID, a.CPUs)
		}
	}
}

func (p *pass) keepCPUs(id spec.NodeID, cpus spec.Bitset) {
	if p.spared == nil {
		p.spared = map[spec.NodeID]spec.Bitset{}
	}
	p.spared[id] = p.spared[id].Or(cpus)
}

// overCap tells whether the MaxCPUsPerNode of its partition keeps a suspended
// job from going on: others have its share, but for those that are to leave.
func overCap(st *state.State, j *state.Job, leave []Run) bool {
	part := st.Parts.Find(j.Alloc.Partition)
	if part == nil || part.Spec.MaxCPUsPerNode == 0 || j.Alloc.Whole {
		return false
	}
	for i := range j.Alloc.Nodes {
		a := &j.Alloc.Nodes[i]
		n := st.NodeByID(a.ID)
		if j.Done.Has(i) || n == nil {
			continue
		}
		sum := int64(a.CPUs.Count())
		for _, uid := range n.Jobs {
			o := st.Job(uid)
			if uid != j.UID && !o.Yields && o.Alloc.Partition == j.Alloc.Partition && !slices.ContainsFunc(leave, func(r Run) bool { return r.UID == uid }) {
				sum += int64(o.Alloc.Nodes[o.Alloc.Index(a.ID)].CPUs.Count())
			}
		}
		if sum > part.Spec.MaxCPUsPerNode {
			return true
		}
	}
	return false
}

// takeTurn suspends some jobs and lets another go on.
func (d *decision) takeTurn(t *Turn) error {
	for _, r := range t.Instead {
		if err := d.emit(&event.JobSuspended{UID: r.UID, Attempt: r.Attempt, Yields: true, Auto: true}); err != nil {
			return err
		}
	}
	return d.emit(&event.JobResumed{UID: t.UID, Attempt: t.Attempt})
}

// commitTurns lets suspended jobs go on, but for those that cannot any more.
func (d *decision) commitTurns(o *Outcome) error {
	for i := range o.Turns {
		t := &o.Turns[i]
		if !d.turnHolds(t) {
			d.res.Stale++
			continue
		}
		if err := d.takeTurn(t); err != nil {
			return err
		}
	}
	return nil
}

// turnHolds checks a turn against the head: the job still stands still, those
// that are to do so instead still run, and nobody else has its CPUs.
func (d *decision) turnHolds(t *Turn) bool {
	j := d.t.Job(t.UID)
	if j == nil || j.State != spec.Suspended || !j.Auto || j.Attempt != t.Attempt || j.Ending != nil || overCap(d.t.State, j, t.Instead) {
		return false
	}
	for _, r := range t.Instead {
		if o := d.t.Job(r.UID); o == nil || o.State != spec.Running || o.Attempt != r.Attempt || o.Ending != nil {
			return false
		}
	}
	for i := range j.Alloc.Nodes {
		a := &j.Alloc.Nodes[i]
		n := d.t.NodeByID(a.ID)
		if j.Done.Has(i) || !n.UsedCPU.Intersects(a.CPUs) {
			continue
		}
		for _, uid := range n.Jobs {
			o := d.t.Job(uid)
			if !o.Yields && o.Alloc.Nodes[o.Alloc.Index(a.ID)].CPUs.Intersects(a.CPUs) &&
				!slices.ContainsFunc(t.Instead, func(r Run) bool { return r.UID == uid }) {
				return false
			}
		}
	}
	return true
}
