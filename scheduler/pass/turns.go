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

// A job that was suspended for another resumes when its CPUs are free again. It comes before the
// pending jobs of its tier, and until then no job behind it gets those of its CPUs that become free.
// Where jobs take turns (OverSubscribe=FORCE with PreemptMode=GANG), it resumes when the time slice
// of the jobs that have its CPUs is over.

// turns resumes suspended jobs.
type turns struct {
	*pass
	suspended []*state.Job                // not yet looked at, in the order in which they resume
	spared    map[spec.NodeID]spec.Bitset // CPUs kept for suspended jobs from those behind them
}

// listSuspended lists the jobs that may resume, in the order in which they do.
func (p *turns) listSuspended() {
	p.snapshot.Sleeping.Range(func(uid uint64, _ struct{}) bool {
		if job := p.snapshot.Job(spec.JobUID(uid)); job.Ending == nil {
			p.suspended = append(p.suspended, job)
		}
		return true
	})
	slices.SortStableFunc(p.suspended, func(a, b *state.Job) int {
		return cmp.Or(
			cmp.Compare(p.standingOf(b), p.standingOf(a)),
			cmp.Compare(a.SuspendedAt, b.SuspendedAt),
			cmp.Compare(a.UID, b.UID),
		)
	})
}

// standingOf is the standing of a job in the partition where it has its nodes.
func (p *turns) standingOf(job *state.Job) uint32 {
	part := p.snapshot.Parts.Find(job.Alloc.Partition)
	if part == nil {
		return 0
	}
	return p.ctx.Standing(job, part.Spec)
}

// resumeSuspended resumes what it can of the suspended jobs that come before the pending jobs of a
// standing.
func (p *turns) resumeSuspended(before uint32) error {
	for len(p.suspended) > 0 && p.standingOf(p.suspended[0]) >= before {
		job := p.suspended[0]
		p.suspended = p.suspended[1:]
		suspend, ok := p.findTurn(job)
		if !ok {
			p.keepFreeCPUs(job)
			continue
		}
		turn := commit.Turn{UID: job.UID, Attempt: job.Attempt, Suspend: suspend}
		if err := commit.On(p.trial).TakeTurn(&turn); err != nil {
			return err
		}
		p.out.Turns = append(p.out.Turns, turn)
		p.takeCPUs(job)
	}
	return nil
}

// findTurn tells whether a suspended job can resume now, and which jobs have to be suspended for it.
func (p *turns) findTurn(job *state.Job) (suspend []commit.Run, ok bool) {
	part := p.snapshot.Parts.Find(job.Alloc.Partition)
	shares := 0
	if part != nil {
		shares = p.cfg.Sched.Turns(part.Spec)
	}
	for i := range job.Alloc.Nodes {
		alloc := &job.Alloc.Nodes[i]
		node := p.trial.NodeByID(alloc.ID)
		if job.Done.Has(i) || node == nil {
			continue
		}
		if p.line.Usable(alloc.ID) && !node.UsedCPU.Intersects(alloc.CPUs) &&
			p.line.FreeCPUs(alloc.ID) < int64(alloc.CPUs.Count()) {
			return nil, false // these CPUs are promised to jobs that come before it
		}
		if !node.UsedCPU.Intersects(alloc.CPUs) {
			continue
		}
		if node.HeldCPU.Intersects(alloc.CPUs) {
			return nil, false
		}
		for _, uid := range node.Jobs {
			other := p.trial.Job(uid)
			if other.Yields ||
				!other.Alloc.Nodes[other.Alloc.Index(alloc.ID)].CPUs.Intersects(alloc.CPUs) {
				continue
			}
			over := other.RunsSince().Add(preempt.Slice(&p.cfg.Sched))
			canYield := preempt.TakesTurns(other) && other.State == spec.Running &&
				other.Ending == nil
			if shares < 2 || !canYield || other.Alloc.Partition != job.Alloc.Partition {
				return nil, false
			}
			if over > p.now {
				p.wakeAt(over)
				return nil, false
			}
			if run := (commit.Run{
				UID: uid, Attempt: other.Attempt,
			}); !slices.Contains(suspend, run) {
				suspend = append(suspend, run)
			}
		}
	}
	if commit.ExceedsPartitionCPUs(p.trial.State, job, suspend) {
		return nil, false
	}
	// What these jobs free beside the CPUs of this one is given out by the next pass.
	for _, run := range suspend {
		p.keepCPUsOf(p.trial.Job(run.UID))
	}
	return suspend, true
}

// takeCPUs takes the CPUs of a job that resumes out of the timeline, where the timeline has them.
func (p *turns) takeCPUs(job *state.Job) {
	left := max(job.Limit-p.now.Sub(job.Started)+job.Paused+p.now.Sub(job.SuspendedAt), spec.Second)
	if job.Limit == spec.Infinite {
		left = spec.Infinite
	}
	for i := range job.Alloc.Nodes {
		alloc := &job.Alloc.Nodes[i]
		if node := p.snapshot.NodeByID(alloc.ID); !job.Done.Has(i) && node != nil &&
			p.line.Usable(alloc.ID) {
			use := p.line.OnCPUs(alloc, job.Alloc)
			if job.Alloc.Reservation == "" || use.CPU > 0 { // else a reservation has them
				use.CPU = int64(alloc.CPUs.AndNot(node.UsedCPU).Count())
			}
			p.line.Promise(
				[]place.Part{{Node: node, Need: place.Need{Use: use}}},
				p.now,
				left,
				job.UID,
			)
		}
	}
}

// keepFreeCPUs keeps the CPUs of a suspended job that are free from the jobs behind it.
func (p *turns) keepFreeCPUs(job *state.Job) {
	for i := range job.Alloc.Nodes {
		alloc := &job.Alloc.Nodes[i]
		node := p.trial.NodeByID(alloc.ID)
		if job.Done.Has(i) || node == nil || !p.line.Usable(alloc.ID) {
			continue
		}
		free := alloc.CPUs.AndNot(node.UsedCPU).AndNot(p.spared[alloc.ID])
		if free.Empty() {
			continue
		}
		p.keepCPUs(alloc.ID, free)
		p.line.Promise(
			[]place.Part{{Node: node, Need: place.Need{Use: place.Free{CPU: int64(free.Count())}}}},
			p.now,
			spec.Infinite,
			job.UID,
		)
	}
}

// keepCPUsOf keeps the CPUs of a job that this pass suspends from the jobs that it starts, because
// the writer may find the turn stale and not suspend the job.
func (p *turns) keepCPUsOf(job *state.Job) {
	for i := range job.Alloc.Nodes {
		if !job.Done.Has(i) {
			allocation := &job.Alloc.Nodes[i]
			p.keepCPUs(allocation.ID, allocation.CPUs)
		}
	}
}

func (p *turns) keepCPUs(id spec.NodeID, cpus spec.Bitset) {
	if p.spared == nil {
		p.spared = map[spec.NodeID]spec.Bitset{}
	}
	p.spared[id] = p.spared[id].Or(cpus)
}
