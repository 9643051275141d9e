package pass

import (
	"slices"
	"strings"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/commit"
	"github.com/musterhpc/muster/scheduler/eligible"
	"github.com/musterhpc/muster/scheduler/timeline"
	"github.com/musterhpc/muster/spec"
)

// The resources of preempted jobs belong to the job that they were preempted for,
// until it starts: it gets the nodes that it was to start on before the pass considers
// any other job. If it can no longer start there soon (a node was lost,
// a limit was reached), it waits its turn like the others.

// claims gives the jobs that others made room for the nodes that were freed for them,
// and counts them in limits until they start.
type claims struct {
	*pass
	holds map[spec.JobUID]*held // jobs that others make room for
}

// claimant is a job that others made room for, in one of its partitions.
type claimant struct {
	class  *jobClass
	member member
	task   int64
	slot   timeline.Slot // where it is to start; without parts: nowhere
}

// startClaimants places the jobs that others made room for.
func (p *claims) startClaimants() error {
	list, hets := p.listClaimants()
	if len(hets) > 0 {
		p.placeClaimants(list) // so that they leave to the others what these can use, if they can
	}
	for i := range hets { // first, since they need room for all of their components
		if c := &hets[i]; (p.options.Starts == 0 || len(p.out.Starts) < p.options.Starts) &&
			p.marks[c.member.uid]&(touched|claiming) == 0 {
			if err := p.het.claimHet(c.class, &c.member, list); err != nil {
				return err
			}
		}
	}
	p.placeClaimants(list)
	for i := range list {
		if p.options.Starts != 0 && len(p.out.Starts) >= max(p.options.Starts, 0) {
			return nil
		}
		if c := &list[i]; c.slot.Parts != nil && p.marks[c.member.uid]&(touched|claiming) == 0 {
			if err := p.claimNodes(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// listClaimants lists the jobs that others were preempted for and that may
// start, in order of rank; heterogeneous jobs are listed separately.
func (p *claims) listClaimants() (list, hets []claimant) {
	p.queue.claim.Range(func(uid uint64, _ struct{}) bool {
		w := p.queue.jobs[spec.JobUID(uid)]
		for _, class := range w.request.classes {
			if w.job.Het != nil && w.job.UID != p.stopAt {
				hets = append(hets, claimant{class: class, member: memberOf(w.job, p.queue.order)})
				break
			}
			if c := (claimant{class: class, member: memberOf(class.inQOS(w.job), p.queue.order)}); c.member.uid != p.stopAt &&
				p.readyClaimant(&c) {
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
func (p *claims) inRank(a, b claimant) int {
	switch x, y := p.rankOf(a.class, a.member.job), p.rankOf(b.class, b.member.job); {
	case x < y, x == y && a.member.ranksBefore(&b.member):
		return -1
	case x > y, b.member.ranksBefore(&a.member):
		return 1
	}
	return a.class.choice - b.class.choice
}

// readyClaimant finds which task of a claimant is to start; false if none may.
func (p *claims) readyClaimant(c *claimant) bool {
	if !c.class.ready {
		if p.prepareClass(c.class, c.member.job) != nil {
			return false
		}
		c.class.ready = true
	}
	c.task = spec.NoTask
	if !p.withinLimits(c) {
		return false
	}
	if c.member.job.IsArrayRecord() {
		var reason *spec.Reason
		c.task, reason = p.nextTask(c.member.job)
		if reason != nil {
			return false
		}
	}
	return true
}

// withinLimits tells whether every limit, licence and throttle allows a claimant to start.
func (p *claims) withinLimits(c *claimant) bool {
	class, job := c.class, c.member.job
	return class.bound.Before(class.least, class.demand.Limit) == nil &&
		p.checkPriority(class, job) == nil &&
		eligible.CheckLicenses(p.trial.State, job.Spec, p.now, class.demand.Limit) == nil &&
		eligible.CheckArrayThrottle(p.trial.State, job) == nil
}

// Bounds of the search for places for all claimants.
const maxClaimOrders = 8

// placeClaimants finds places for as many claimants as possible. A greedy order can give a
// claimant's only feasible nodes to one that had alternatives, so it retries with the
// unplaced one first.
func (p *claims) placeClaimants(list []claimant) {
	for i := range list {
		if old := p.planner.promiseTo(list[i].member.uid, list[i].task); old != nil {
			p.planner.giveBack(list[i].class, old)
		}
	}
	best, most := slices.Clone(list), -1
	var tried []spec.JobUID
	for range maxClaimOrders {
		placed, unplaced := p.placeClaims(list)
		if placed > most {
			copy(best, list)
			most = placed
		}
		unplaced = slices.DeleteFunc(
			unplaced,
			func(uid spec.JobUID) bool { return slices.Contains(tried, uid) },
		)
		if len(unplaced) == 0 {
			break
		}
		tried = append(tried, unplaced[0])
		front := slices.DeleteFunc(
			slices.Clone(list),
			func(c claimant) bool { return c.member.uid != unplaced[0] },
		)
		behind := slices.DeleteFunc(
			slices.Clone(list),
			func(c claimant) bool { return c.member.uid == unplaced[0] },
		)
		copy(list, append(front, behind...))
	}
	copy(list, best)
	slices.SortStableFunc(list, p.inRank)
}

// placeClaims gives the claimants places, one after the other, and leaves the
// timeline as it was. It returns how many got one, and whose jobs did not.
func (p *claims) placeClaims(list []claimant) (placed int, unplaced []spec.JobUID) {
	got := map[spec.JobUID]bool{}
	for i := range list {
		c := &list[i]
		c.slot = (timeline.Slot{})
		if got[c.member.uid] {
			continue
		}
		query := p.line.NewQuery(
			c.class.demand,
			c.class.nodes.Set.And(c.member.job.Claim),
			c.class.nodes.Options(p.cfg, c.class.part.Spec, c.member.job.Spec, p.trees),
			p.barsOf(c.class),
		)
		if p.awaitsVictims(c.member.job) {
			query.NotBefore(p.line.NextTick())
		}
		if slot, ok := p.line.Earliest(query, p.line.NextTick(), nil); ok {
			c.slot, got[c.member.uid] = slot, true
			p.line.Promise(slot.Parts, slot.Start, c.class.demand.Limit, c.member.uid)
		}
	}
	for i := range list {
		c := &list[i]
		if c.slot.Parts != nil {
			p.line.Forget(c.slot.Parts, c.slot.Start, c.class.demand.Limit, c.member.uid)
		} else if !got[c.member.uid] && !slices.Contains(unplaced, c.member.uid) {
			unplaced = append(unplaced, c.member.uid)
		}
	}
	return len(got), unplaced
}

// rankOf is where a job of a class stands.
func (p *claims) rankOf(class *jobClass, job *state.Job) uint64 {
	factors := class.fixed
	p.ctx.Complete(&factors, job)
	return rankOf(p.ctx.Standing(job, class.part.Spec), factors.Total)
}

// awaitsVictims tells whether some jobs preempted for a job are still running.
// Other free resources may be promised to a job that ranks before it.
func (p *claims) awaitsVictims(job *state.Job) bool {
	for id := job.Claim.Next(0); id >= 0; id = job.Claim.Next(id + 1) {
		if node := p.snapshot.NodeByID(spec.NodeID(id)); node != nil &&
			slices.ContainsFunc(node.Jobs, func(uid spec.JobUID) bool {
				ending := p.snapshot.Job(uid).Ending
				return ending != nil && ending.For == job.UID
			}) {
			return true
		}
	}
	return false
}

// claimNodes starts a job on the nodes that were freed for it, or promises them to
// it if they will be free soon.
func (p *claims) claimNodes(c *claimant) error {
	class := c.class
	member := &c.member
	job := c.member.job
	if !p.withinLimits(c) { // those that came before may have what there was
		return nil
	}
	if c.slot.Start <= p.now {
		_, err := p.startJob(class, member, c.task, c.slot.Parts, wholeLimit(class))
		return err
	}
	p.line.Promise(c.slot.Parts, c.slot.Start, class.demand.Limit, job.UID)
	p.planner.notePromise(
		class,
		&promise{
			job.UID,
			c.task,
			c.slot,
			class.demand.Limit,
			p.line.Blockers(c.slot.Parts, c.slot.Start, job.UID),
		},
	)
	p.planner.countReservation()
	p.marks[member.uid] |= claiming
	p.holdStart(job, class.part.Spec.Name, job.Claim, class.demand.Limit)
	return nil
}

// held is what a job counts as in limits and licences while others are preempted
// for it: they are reserved for it like its nodes, until it starts.
type held struct {
	job   *state.Job
	alloc *spec.Allocation
	limit spec.Span
}

// holdStart counts a job that is to start on some nodes as if it were running there.
func (p *claims) holdStart(job *state.Job, part string, nodes spec.Bitset, limit spec.Span) {
	lics, short := eligible.ChooseLicenses(p.trial.State, job.Spec, p.now, limit)
	if p.holds[job.UID] != nil || short != nil {
		return
	}
	h := &held{job, &spec.Allocation{Partition: part, TRES: job.Req, Licenses: lics}, limit}
	for id := nodes.Next(0); id >= 0; id = nodes.Next(id + 1) {
		h.alloc.Nodes = append(h.alloc.Nodes, spec.NodeAlloc{ID: spec.NodeID(id)})
	}
	if p.holds == nil {
		p.holds = map[spec.JobUID]*held{}
	}
	p.holds[job.UID] = h
	p.trial.Hold(job, h.alloc, limit, true)
}

// lookAtHeld stops counting a job that is held as if it ran, so that it can be looked
// at itself; what is returned counts it again unless it has started.
func (p *claims) lookAtHeld(uid spec.JobUID) (done func()) {
	h := p.holds[uid]
	p.trial.Hold(h.job, h.alloc, h.limit, false)
	delete(p.holds, uid)
	return func() {
		if job := p.trial.Job(uid); job.State == spec.Pending &&
			p.trial.Job(commit.LeaderOf(job)).Claim != nil &&
			p.holds[uid] == nil {
			p.trial.Hold(h.job, h.alloc, h.limit, true)
			p.holds[uid] = h
		}
	}
}

// lookAtHeldComponents is look for the components of a heterogeneous job but its leader.
func (p *claims) lookAtHeldComponents(leader *state.Job) (done func()) {
	var again []func()
	for _, component := range p.snapshot.Components(leader) {
		if p.holds[component.UID] != nil {
			again = append(again, p.lookAtHeld(component.UID))
		}
	}
	return func() {
		for _, f := range again {
			f()
		}
	}
}

// licenceHolder is the first job that others make room for and that is to have some of
// a licence; 0 if there is none.
func (p *claims) licenceHolder(licence string) spec.JobUID {
	first := spec.JobUID(0)
	//muster:unordered the least is looked for
	for uid, h := range p.holds {
		if eligible.Amount(h.alloc.Licenses, strings.TrimPrefix(licence, "license/")) > 0 &&
			(first == 0 || uid < first) {
			first = uid
		}
	}
	return first
}

// holdAll counts all jobs that others make room for and whose promises stand.
func (p *claims) holdAll() {
	if p.queue.claim.Len() == 0 {
		return
	}
	for i := range p.options.Keep.list {
		r := &p.options.Keep.list[i]
		w := p.queue.jobs[r.uid]
		if w == nil || !p.queue.claim.Has(uint64(commit.LeaderOf(w.job))) {
			continue
		}
		room := w.job.Claim
		if w.job.Het != nil {
			room = spec.Bitset{}
			for k := range r.slot.Parts {
				room = room.Set(int(r.slot.Parts[k].Node.ID))
			}
		}
		p.holdStart(w.job, w.job.Partition(), room, r.limit)
	}
}

// claimReason is why a job waits that others make room for.
func (p *claims) claimReason(class *jobClass, m *member) *spec.Reason {
	reason := p.reasons.waitReason(class, m)
	reason.Until = p.line.NextTick()
	if p.firstWaiting[class.partIndex] == 0 {
		p.firstWaiting[class.partIndex] = m.uid
	}
	p.planBehind(class, m)
	return reason
}

// planBehind reserves the starts of an array's tasks after the one that
// others are preempted for, so that lower jobs do not delay them.
func (p *claims) planBehind(class *jobClass, m *member) {
	job := m.job
	if !job.IsArrayRecord() || !class.ready || p.marks[m.uid]&reserved != 0 ||
		p.checkLimits(class, job) != nil {
		return
	}
	first, _ := p.nextTask(job)
	tasks := slices.DeleteFunc(
		p.planner.planTasks(job),
		func(task int64) bool { return task == first },
	)
	if len(tasks) == 0 {
		return
	}
	slot, reason := p.planner.findSlot(class, m, job, tasks[0])
	if reason == nil && slot.Start > p.now {
		p.planner.planTasksFrom(class, job, slot, tasks, job.Tasks.Len()-1)
		p.marks[m.uid] |= reserved
	}
}
