package pass

import (
	"cmp"
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/commit"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/scheduler/preempt"
	"github.com/musterhpc/muster/spec"
)

// A job that was suspended for another goes on when its CPUs are free again: it
// comes before the waiting jobs of its tier. Until then those behind it get none
// of its CPUs that become free. Where jobs take turns (OverSubscribe=FORCE with
// PreemptMode=GANG), it goes on when the turn of those is over that have them.

// turns lets suspended jobs go on.
type turns struct {
	*pass
	suspended []*state.Job                // jobs that are to go on, in the order in which they do
	spared    map[spec.NodeID]spec.Bitset // CPUs that nobody behind them may have
}

// listSuspended lists the suspended jobs that are to go on, in the order in which
// they do.
func (p *turns) listSuspended() {
	p.snapshot.Sleeping.Range(func(uid uint64, _ struct{}) bool {
		if j := p.snapshot.Job(spec.JobUID(uid)); j.Ending == nil {
			p.suspended = append(p.suspended, j)
		}
		return true
	})
	slices.SortStableFunc(p.suspended, func(a, b *state.Job) int {
		return cmp.Or(cmp.Compare(p.standingOf(b), p.standingOf(a)), cmp.Compare(a.SuspendedAt, b.SuspendedAt), cmp.Compare(a.UID, b.UID))
	})
}

// standingOf is that of a job where it runs.
func (p *turns) standingOf(j *state.Job) uint32 {
	part := p.snapshot.Parts.Find(j.Alloc.Partition)
	if part == nil {
		return 0
	}
	return p.ctx.Standing(j, part.Spec)
}

// resumeSuspended looks at the suspended jobs that come before the waiting jobs of a
// standing.
func (p *turns) resumeSuspended(before uint32) error {
	for len(p.suspended) > 0 && p.standingOf(p.suspended[0]) >= before {
		j := p.suspended[0]
		p.suspended = p.suspended[1:]
		instead, ok := p.findTurn(j)
		if !ok {
			p.keepFreeCPUs(j)
			continue
		}
		t := commit.Turn{UID: j.UID, Attempt: j.Attempt, Instead: instead}
		if err := commit.On(p.trial).TakeTurn(&t); err != nil {
			return err
		}
		p.out.Turns = append(p.out.Turns, t)
		p.takeCPUs(j)
	}
	return nil
}

// findTurn tells whether a suspended job can go on now, and who is to be suspended
// for it.
func (p *turns) findTurn(j *state.Job) (instead []commit.Run, ok bool) {
	part := p.snapshot.Parts.Find(j.Alloc.Partition)
	shares := 0
	if part != nil {
		shares = p.cfg.Sched.Turns(part.Spec)
	}
	for i := range j.Alloc.Nodes {
		a := &j.Alloc.Nodes[i]
		n := p.trial.NodeByID(a.ID)
		if j.Done.Has(i) || n == nil {
			continue
		}
		if p.line.Usable(a.ID) && !n.UsedCPU.Intersects(a.CPUs) && p.line.FreeCPUs(a.ID) < int64(a.CPUs.Count()) {
			return nil, false // it was promised to jobs that come before
		}
		if !n.UsedCPU.Intersects(a.CPUs) {
			continue
		}
		if n.HeldCPU.Intersects(a.CPUs) {
			return nil, false
		}
		for _, uid := range n.Jobs {
			o := p.trial.Job(uid)
			if o.Yields || !o.Alloc.Nodes[o.Alloc.Index(a.ID)].CPUs.Intersects(a.CPUs) {
				continue
			}
			over := o.RunsSince().Add(preempt.Slice(&p.cfg.Sched))
			if shares < 2 || o.Het != nil || o.State != spec.Running || o.Ending != nil || o.Alloc.Partition != j.Alloc.Partition {
				return nil, false
			}
			if over > p.now {
				p.wakeAt(over)
				return nil, false
			}
			if r := (commit.Run{UID: uid, Attempt: o.Attempt}); !slices.Contains(instead, r) {
				instead = append(instead, r)
			}
		}
	}
	if commit.ExceedsPartitionCPUs(p.trial.State, j, instead) {
		return nil, false
	}
	for _, r := range instead { // what they leave beside its CPUs is not given out before the next pass
		p.keepCPUsOf(p.trial.Job(r.UID))
	}
	return instead, true
}

// takeCPUs takes the CPUs of a job that goes on out of the timeline, if they were
// in it.
func (p *turns) takeCPUs(j *state.Job) {
	left := max(j.Limit-p.now.Sub(j.Started)+j.Paused+p.now.Sub(j.SuspendedAt), spec.Second)
	if j.Limit == spec.Infinite {
		left = spec.Infinite
	}
	for i := range j.Alloc.Nodes {
		a := &j.Alloc.Nodes[i]
		if n := p.snapshot.NodeByID(a.ID); !j.Done.Has(i) && n != nil && p.line.Usable(a.ID) {
			use := p.line.OnCPUs(a, j.Alloc)
			if j.Alloc.Reservation == "" || use.CPU > 0 { // else a reservation has them
				use.CPU = int64(a.CPUs.AndNot(n.UsedCPU).Count())
			}
			p.line.Promise([]place.Part{{Node: n, Need: place.Need{Use: use}}}, p.now, left, j.UID)
		}
	}
}

// keepFreeCPUs keeps the CPUs of a suspended job that are free from the jobs behind it.
func (p *turns) keepFreeCPUs(j *state.Job) {
	for i := range j.Alloc.Nodes {
		a := &j.Alloc.Nodes[i]
		n := p.trial.NodeByID(a.ID)
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

// keepCPUsOf keeps the CPUs of a job that is suspended in this pass from those that
// start in it: it may turn out that it need not be.
func (p *turns) keepCPUsOf(j *state.Job) {
	for i := range j.Alloc.Nodes {
		if a := &j.Alloc.Nodes[i]; !j.Done.Has(i) {
			p.keepCPUs(a.ID, a.CPUs)
		}
	}
}

func (p *turns) keepCPUs(id spec.NodeID, cpus spec.Bitset) {
	if p.spared == nil {
		p.spared = map[spec.NodeID]spec.Bitset{}
	}
	p.spared[id] = p.spared[id].Or(cpus)
}
