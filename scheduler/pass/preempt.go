package pass

import (
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/commit"
	"github.com/musterhpc/muster/scheduler/eligible"
	"github.com/musterhpc/muster/scheduler/guarantee"
	"github.com/musterhpc/muster/scheduler/limits"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/scheduler/preempt"
	"github.com/musterhpc/muster/scheduler/timeline"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// preemption looks for running jobs that a pending one may preempt.
type preemption struct {
	*pass
	rules    *preempt.Rules // nil: nothing can be preempted
	searches int            // for victims
}

// Bounds of the search for victims.
const (
	maxSearches = 200 // of one pass
	maxSpared   = 64  // victims that are tried to be spared, of one search
)

// maySearch tells whether the pass may look for victims of a job at all. It may not once
// others make room for the job, for a job that must not overtake, and in a search for gaps,
// where nothing may be pushed out.
func (p *preemption) maySearch(class *jobClass, m *member) bool {
	if p.rules == nil && p.guarantees == nil {
		return false
	}
	if p.phase == gaps || p.options.Starts < 0 || p.searches >= maxSearches {
		return false
	}
	return p.marks[m.uid]&preempting == 0 && !p.mustFollow(class, m.uid)
}

// makeRoom looks for running jobs that a job may preempt so that it can start
// as soon as they are gone, and promises it those nodes. slot is the start that it would
// have otherwise, blocked is why it has none.
func (p *preemption) makeRoom(
	class *jobClass,
	m *member,
	job *state.Job,
	slot timeline.Slot,
	blocked *spec.Reason,
) (timeline.Slot, bool, error) {
	at := p.line.NextTick()
	startsNow := blocked == nil && slot.Start <= at
	if startsNow || class.noVictims || !p.maySearch(class, m) {
		return slot, false, nil
	}
	factors := class.fixed
	p.ctx.Complete(&factors, job)
	p.searches++
	victims, parts := p.fewestVictims(class, at, p.listVictims(class, job, factors.Total))
	if parts == nil || p.stillBlocked(class, job, victims, parts) {
		class.noVictims = true
		return slot, false, nil
	}
	var room spec.Bitset
	for k := range parts {
		room = room.Set(int(parts[k].Node.ID))
	}
	for i, victim := range victims { // none, if what others leave is enough
		pr := commit.Preempt{
			For:       job.UID,
			Partition: class.part.Spec.Name,
			QOS:       class.qos,
			Priority:  factors.Total,
			Victim:    victim,
			After:     len(p.out.Starts),
		}
		if i == 0 {
			pr.Room = room
		}
		if err := commit.On(p.trial).PreemptJob(&pr); err != nil {
			return slot, false, err
		}
		p.out.Preempts = append(p.out.Preempts, pr)
		for _, gone := range componentsOf(p.snapshot, victim.UID) {
			p.guarantees.RemoveVictim(gone.UID)
		}
		if victim.Mode == preempt.Suspend {
			p.turns.keepCPUsOf(p.trial.Job(victim.UID))
		}
	}
	p.line.Relieve(at, p.goneRecords(victims))
	p.marks[m.uid] |= preempting
	if len(victims) > 0 {
		p.claims.holdStart(job, class.part.Spec.Name, room, class.demand.Limit)
	}
	return timeline.Slot{Start: at, Parts: parts}, true, nil
}

// listVictims are the jobs that may have to make room for a job: by the rules of
// preemption, and for what is guaranteed to its account.
func (p *preemption) listVictims(
	class *jobClass,
	job *state.Job,
	priority uint32,
) []preempt.Victim {
	var list []preempt.Victim
	if p.rules != nil {
		var next spec.Instant
		list, next = p.rules.Victims(job, class.part.Spec, priority)
		p.wakeAt(next)
	}
	for _, victim := range p.guarantees.Victims(job, class.least) {
		if !slices.ContainsFunc(list, func(o preempt.Victim) bool { return o.UID == victim.UID }) {
			list = append(list, victim)
		}
	}
	return slices.DeleteFunc(onePerJob(p.snapshot, list), func(victim preempt.Victim) bool {
		r := p.trial.Job(victim.UID)
		return r == nil || r.State != spec.Running || r.Ending != nil
	})
}

// goneRecords gives the records of the victims, and of those who go with them, as
// the pass found them.
func (p *preemption) goneRecords(list []preempt.Victim) []timeline.Gone {
	gones := make([]timeline.Gone, 0, len(list))
	for i := range list {
		for _, job := range componentsOf(p.snapshot, list[i].UID) {
			gones = append(gones, timeline.Gone{Job: job, CPUs: list[i].Mode == preempt.Suspend})
		}
	}
	return gones
}

// componentsOf are a job that runs and those that end with it when it makes room:
// the other components of its heterogeneous job that run.
func componentsOf(cluster *state.State, uid spec.JobUID) []*state.Job {
	job := cluster.Job(uid)
	if job.Het == nil {
		return []*state.Job{job}
	}
	return slices.DeleteFunc(
		cluster.Components(job),
		func(c *state.Job) bool { return !c.GoesOn() },
	)
}

// onePerJob leaves one component of each heterogeneous job among some victims:
// the others go with it.
func onePerJob(cluster *state.State, list []preempt.Victim) []preempt.Victim {
	var have []spec.JobUID
	return slices.DeleteFunc(list, func(victim preempt.Victim) bool {
		job := cluster.Job(victim.UID)
		if job == nil || job.Het == nil {
			return false
		}
		if slices.Contains(have, job.Het.Leader) {
			return true
		}
		have = append(have, job.Het.Leader)
		return false
	})
}

// fewestVictims takes victims from the front of a list until a demand fits, and then
// spares those that are not needed, the dearest first. strict_order spares
// only those on nodes that are not used.
func (p *preemption) fewestVictims(
	class *jobClass,
	at spec.Instant,
	list []preempt.Victim,
) ([]preempt.Victim, []place.Part) {
	if len(list) == 0 {
		return nil, nil
	}
	fit := func(v []preempt.Victim) []place.Part {
		return p.line.Relieved(p.planner.queryOf(class), at, p.goneRecords(v))
	}
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
	victims := slices.DeleteFunc(slices.Clone(list[:high]), func(victim preempt.Victim) bool {
		return !slices.ContainsFunc(componentsOf(p.snapshot, victim.UID),
			func(job *state.Job) bool {
				return slices.ContainsFunc(
					job.Alloc.Nodes,
					func(a spec.NodeAlloc) bool { return used.Has(int(a.ID)) },
				)
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

// stillBlocked tells that the job could not start even if its victims were gone, and
// those who are ending there already: a limit keeps it from that, or what is
// free is enough in number only.
func (p *preemption) stillBlocked(
	class *jobClass,
	job *state.Job,
	victims []preempt.Victim,
	parts []place.Part,
) bool {
	t := trial.On(p.trial.Freeze().Fork(), p.now, event.Actor{}, "schedule")
	if !p.removeVictims(t, victims, parts) {
		return true
	}
	there := slices.Clone(parts)
	for i := range there {
		there[i].Node = t.NodeByID(there[i].Node.ID)
	}
	alloc := place.Allocate(there, &class.demand, class.part.Spec.BillingWeights)
	if alloc == nil {
		return true
	}
	bound := limits.Find(
		t.State,
		limits.Subject{
			Job:   job.Spec,
			Part:  class.part.Spec,
			Assoc: job.Assoc,
			Now:   p.now,
			Sizes: &p.sizes,
		},
	)
	return bound.After(alloc, class.demand.Limit) != nil ||
		eligible.CheckPowerLimit(t.State, alloc) != nil
}

// removeVictims takes victims, and those that end on the nodes of some parts anyway,
// out of a state that is thrown away; false if that cannot be.
func (p *preemption) removeVictims(t *trial.Trial, victims []preempt.Victim, parts []place.Part) bool {
	for _, victim := range victims {
		for _, r := range componentsOf(t.State, victim.UID) {
			if victim.Mode == preempt.Suspend {
				if t.Emit(&event.JobSuspended{UID: r.UID, Attempt: r.Attempt, Yields: true, Auto: true}) != nil {
					return false
				}
			} else if removeJob(t, r) != nil {
				return false
			}
		}
	}
	for i := range parts {
		for _, uid := range slices.Clone(t.NodeByID(parts[i].Node.ID).Jobs) {
			if r := t.Job(uid); (r.Ending != nil || r.Completing() || r.Deadline() <= p.line.NextTick()) && removeJob(t, r) != nil {
				return false
			}
		}
	}
	return true
}

// removeJob takes a job and all that it holds out of a state that is thrown away.
func removeJob(t *trial.Trial, r *state.Job) error {
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

// startsMayGo tells whether pending jobs may preempt jobs that this pass started. This pass
// itself preempts only jobs that ran before it. The test uses only
// ranks and shares, so it may say yes too often.
func (p *preemption) startsMayGo() bool {
	if len(p.out.Starts) == 0 || (p.guarantees == nil && !preempt.Configured(&p.cfg.Sched)) {
		return false
	}
	rules, floors := preempt.New(p.trial.State, p.now, nil).
		Since(p.snapshot),
		guarantee.New(
			p.trial.State,
			p.now,
			nil,
		)
	asked := map[[2]string]bool{} // by partition and QOS
	for _, class := range p.queue.classes {
		job := p.waitsStill(class)
		if job == nil {
			continue
		}
		kind := [2]string{class.part.Spec.Name, job.QOS()}
		if job.Het != nil || (!asked[kind] && rules.Any(job, class.part.Spec)) {
			return true
		}
		asked[kind] = true
		if floors.Within(job, job.Req) || (class.ready && floors.Within(job, class.least)) {
			return true
		}
	}
	return false
}

// waitsStill is the first job of a class that did not start, or nil.
func (p *preemption) waitsStill(class *jobClass) *state.Job {
	for i := range class.members {
		job := class.members[i].job
		if job != nil && p.marks[job.UID]&touched != 0 {
			job = class.inQOS(p.trial.Job(job.UID))
		}
		if job != nil && job.State == spec.Pending {
			return job
		}
	}
	return nil
}
