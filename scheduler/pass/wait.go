package pass

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/scheduler/eligible"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/scheduler/timeline"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// reasons notes why jobs wait.
type reasons struct {
	*pass
	multi       map[spec.JobUID]*spec.Reason // of jobs in several partitions
	behindFirst []*spec.Reason               // by partition: why those behind the first wait, once somebody does
}

// findSlot asks the timeline for the earliest start of a job, as far ahead as it
// may be reserved. A reason means that no job of the class can start now, nor be
// planned.
func (p *planner) findSlot(
	class *jobClass,
	m *member,
	job *state.Job,
	task int64,
) (timeline.Slot, *spec.Reason) {
	blocked := p.firstWaiting[class.partIndex] != 0 && p.firstWaiting[class.partIndex] != m.uid
	inOrder := blocked && p.strict
	plan := p.depth > 0 && p.phase != gaps && !class.noReserve && p.marks[m.uid]&reserved == 0
	until := p.now
	switch {
	case plan:
		until = spec.FarFuture
	case p.depth <= 0:
		p.out.Exit = exitDepth
	}
	if inOrder {
		if !plan {
			return timeline.Slot{}, p.reasons.queueReason(class, m)
		}
		p.queryOf(class).NotBefore(max(p.lastPlanned[class.partIndex], p.now+1))
	}
	if !plan && !p.mayHaveRoom(class) {
		return timeline.Slot{}, p.reasons.queueReason(class, m)
	}
	slot, ok := p.line.Earliest(p.queryOf(class), until, p.hintFor(job.UID, task))
	if !ok && plan {
		slot, ok = p.findBeforeEnd(class)
	}
	switch {
	case ok:
		return slot, nil
	case plan:
		return slot, p.reasons.impossibleReason(class, job)
	}
	return slot, p.reasons.queueReason(class, m)
}

// shortestInReservation is the least time for which a job is planned into what is left of its
// reservation.
const shortestInReservation = spec.Minute

// findBeforeEnd plans a job that ends with its reservation and cannot have all that is left of
// it: what is left from the first instant on at which it has room.
func (p *planner) findBeforeEnd(class *jobClass) (timeline.Slot, bool) {
	if !class.endsWithReservation(p.now) {
		return timeline.Slot{}, false
	}
	options := class.nodes.Options(
		p.cfg, class.part.Spec, class.request.representative.Spec, p.trees,
	)
	demand := class.demand
	demand.Limit = min(demand.Limit, shortestInReservation)
	query := p.line.NewQuery(demand, class.nodes.Set, options, p.barsOf(class))
	query.NotBefore(p.now + 1)
	first, ok := p.line.Earliest(query, spec.FarFuture, nil)
	if !ok {
		return first, false
	}
	demand.Limit = class.view.CapLimit(class.demand.Limit, first.Start)
	query = p.line.NewQuery(demand, class.nodes.Set, options, p.barsOf(class))
	query.NotBefore(first.Start)
	return p.line.Earliest(query, first.Start, nil)
}

// endsWithReservation tells whether the reservation of a class bounds how long its jobs run.
func (class *jobClass) endsWithReservation(now spec.Instant) bool {
	if class.view == nil {
		return false
	}
	left, bounded := class.view.Left(now)
	return bounded && class.demand.Limit == left
}

// queryOf is what a class asks the timeline.
func (p *planner) queryOf(class *jobClass) *timeline.Query {
	strict := class.nodes.Switches != nil && !p.waitedForSwitches(class.currentMember().job)
	if class.query == nil || (class.nodes.Switches != nil && strict != class.insistsOnSwitches) {
		options := class.nodes.Options(
			p.cfg,
			class.part.Spec,
			class.request.representative.Spec,
			p.trees,
		)
		options.Mix = p.options.Mix
		if strict {
			options.OneOf = eligible.CombineSets(options.OneOf, class.nodes.Switches)
		}
		class.query, class.insistsOnSwitches = p.line.NewQuery(
			class.demand,
			class.nodes.Set,
			options,
			p.barsOf(class),
		), strict
	}
	return class.query
}

// mustFollow tells whether a job may not start before another one of its partition: the
// queue is kept in strict order, and a job before it waits for resources.
func (p *pass) mustFollow(class *jobClass, uid spec.JobUID) bool {
	first := p.firstWaiting[class.partIndex]
	return p.strict && first != 0 && first != uid
}

// maxShortened is where the search for a shorter time limit begins for a job
// without one: no job may ask for more.
const maxShortened = 100 * 366 * spec.Day

// findShorterLimit finds the longest time limit, not less than --time-min, with which a
// job can start now that cannot with the one it asked for.
func (p *planner) findShorterLimit(
	class *jobClass,
	job *state.Job,
	slot timeline.Slot,
	blocked *spec.Reason,
) (timeline.Slot, spec.Span, bool) {
	low, high := job.Spec.Time.Min, class.demand.Limit
	startsNow := blocked == nil && slot.Start <= p.now
	if startsNow || low == 0 || low >= high || p.mustFollow(class, job.UID) {
		return slot, 0, false
	}
	try := func(limit spec.Span) (timeline.Slot, bool) {
		demand := class.demand
		demand.Limit = limit
		return p.line.Earliest(
			p.line.NewQuery(
				demand,
				class.nodes.Set,
				class.nodes.Options(
					p.cfg,
					class.part.Spec,
					class.request.representative.Spec,
					p.trees,
				),
				p.barsOf(class),
			),
			p.now,
			nil,
		)
	}
	best, ok := try(low)
	if !ok {
		return slot, 0, false
	}
	if high == spec.Infinite {
		high = maxShortened
	}
	for high-low > spec.Minute { // low starts now, high does not
		mid := low + (high-low)/2/spec.Second*spec.Second
		if s, ok := try(mid); ok {
			best, low = s, mid
		} else {
			high = mid
		}
	}
	return best, low, true
}

// startsTooLate tells that a planned start would not leave the time limit until the
// job's deadline.
func startsTooLate(job *state.Job, now spec.Instant, slot *timeline.Slot, limit spec.Span) bool {
	d := job.Spec.Time.Deadline
	return d != 0 && slot.Start > now && slot.Start.Add(limit) > d
}

// hintFor is what the plan before promised to a job.
func (p *planner) hintFor(uid spec.JobUID, task int64) *timeline.Hint {
	planned := p.options.Plan.OfTask(uid, task)
	if planned == nil {
		return nil
	}
	return &timeline.Hint{Start: planned.Start, Nodes: planned.Nodes, Devices: planned.Devices}
}

// waitReason is the reason of a job that does not fit now, to be completed.
func (p *reasons) waitReason(class *jobClass, m *member) *spec.Reason {
	reason := *p.queueReason(class, m)
	return &reason
}

// queueReason is why a job waits that does not fit now: Resources for the first in a
// partition, Priority behind it. All of those get the same, which nobody changes.
func (p *reasons) queueReason(class *jobClass, m *member) *spec.Reason {
	head := p.firstWaiting[class.partIndex]
	if head == 0 || head == m.uid {
		return &spec.Reason{Code: spec.ReasonResources, Subject: class.part.Subject}
	}
	if p.behindFirst == nil {
		p.behindFirst = make([]*spec.Reason, len(p.firstWaiting))
	}
	if reason := p.behindFirst[class.partIndex]; reason == nil || reason.Blocker != head {
		p.behindFirst[class.partIndex] = &spec.Reason{
			Code:    spec.ReasonPriority,
			Subject: class.part.Subject,
			Blocker: head,
		}
	}
	return p.behindFirst[class.partIndex]
}

// impossibleReason is the reason of a job that no end of other jobs would let
// start: nodes are missing that could take it, or there are none.
func (p *reasons) impossibleReason(class *jobClass, job *state.Job) *spec.Reason {
	who := class.part.Subject
	nodes, err := eligible.AllowedNodes(p.snapshot, class.part, job.Spec)
	if err != nil {
		return &spec.Reason{Code: spec.ReasonBadConstraints, Detail: err.Error()}
	}
	if v := class.view; v != nil {
		opens, _ := v.Opens(p.now)
		switch {
		case v.Own != nil && p.keptByOthers(class, nodes, max(opens, p.now)):
			return &spec.Reason{Code: spec.ReasonReqNodeNotAvail, Detail: keptDetail(v)}
		case v.Own != nil && class.endsWithReservation(p.now) && p.fitsEmpty(class, job, nodes):
			// The reservation ends before there is room.
			return &spec.Reason{Code: spec.ReasonResources, Subject: "reservation/" + v.Own.Name}
		case v.Own != nil:
			return &spec.Reason{Code: "ReservationInvalid", Subject: "reservation/" + v.Own.Name}
		case p.openOtherwise(class, nodes, spec.FarFuture):
			return &spec.Reason{Code: spec.ReasonReqNodeNotAvail, Detail: keptDetail(v)}
		}
	}
	shapes := place.Shapes{Caps: place.Caps(p.snapshot)}
	var cands []place.Candidate
	var missing []string
	for id := nodes.Set.Next(0); id >= 0; id = nodes.Set.Next(id + 1) {
		node := p.snapshot.NodeByID(spec.NodeID(id))
		if node == nil {
			continue
		}
		shape := shapes.Configured(node)
		cands = append(cands, place.Candidate{Node: node, Shape: shape, Free: shape.Whole()})
		if !node.Usable() || node.Shortfall() != "" {
			missing = append(missing, node.Spec.Name)
		}
	}
	options := nodes.Options(p.cfg, class.part.Spec, job.Spec, nil)
	if place.Pick(&class.demand, cands, options) == nil {
		return &spec.Reason{Code: spec.ReasonPartitionConfig, Subject: who}
	}
	if nodes.Switches != nil && !p.planner.waitedForSwitches(job) {
		options.OneOf = eligible.CombineSets(options.OneOf, nodes.Switches)
		if place.Pick(&class.demand, cands, options) == nil {
			return &spec.Reason{Code: spec.ReasonResources, Subject: "switches", Until: p.planner.anySwitches(job)}
		}
	}
	if missing == nil {
		return &spec.Reason{Code: spec.ReasonResources, Subject: who, Detail: ""}
	}
	return &spec.Reason{Code: spec.ReasonReqNodeNotAvail, Detail: "UnavailableNodes:" +
		hostlist.Fold(missing)}
}

// fitsEmpty tells whether a job fits on the nodes of its class if nobody else is there.
func (p *reasons) fitsEmpty(class *jobClass, job *state.Job, nodes eligible.NodeSet) bool {
	shapes := place.Shapes{Caps: place.Caps(p.snapshot)}
	var cands []place.Candidate
	set := nodes.Set
	if class.view.Only != nil {
		set = set.And(class.view.Only)
	}
	for id := set.Next(0); id >= 0; id = set.Next(id + 1) {
		if node := p.snapshot.NodeByID(spec.NodeID(id)); node != nil && node.Usable() {
			shape := shapes.Configured(node)
			cands = append(cands, place.Candidate{Node: node, Shape: shape, Free: shape.Whole()})
		}
	}
	return place.Pick(&class.demand, cands, nodes.Options(p.cfg, class.part.Spec, job.Spec, nil)) != nil
}

// promiseSlot reserves a start that was found, for an array's record as many
// tasks exactly as bf_max_job_array_resv allows, and returns the reason.
func (p *planner) promiseSlot(
	class *jobClass,
	m *member,
	job *state.Job,
	slot timeline.Slot,
) *spec.Reason {
	reason := p.reasons.waitReason(class, m)
	own := p.waitsForReservation(class, reason, slot.Start)
	reason.Until = slot.Start
	tasks, all := []int64{spec.NoTask}, int64(1)
	if job.IsArrayRecord() {
		tasks, all = p.planTasks(job), job.Tasks.Len()
	}
	if blockers := p.planTasksFrom(class, job, slot, tasks, all); reason.Blocker == 0 &&
		len(blockers) > 0 {
		reason.Blocker = blockers[0]
	}
	p.marks[m.uid] |= reserved
	if p.firstWaiting[class.partIndex] == 0 && !own {
		p.firstWaiting[class.partIndex] = m.uid
	}
	return reason
}

// planTasksFrom reserves the starts of a job, or of some tasks of a record, of which the
// first is known, and says whom that one waits for. Of all there are the plan says
// at least that they come later.
func (p *planner) planTasksFrom(
	class *jobClass,
	job *state.Job,
	slot timeline.Slot,
	tasks []int64,
	all int64,
) (first []spec.JobUID) {
	made := 0
	for ok := true; ok; {
		blockers := p.line.Blockers(slot.Parts, slot.Start, job.UID)
		if made == 0 {
			first = blockers
		}
		p.line.Promise(slot.Parts, slot.Start, class.demand.Limit, job.UID)
		p.notePromise(class, &promise{job.UID, tasks[made], slot, class.demand.Limit, blockers})
		p.countReservation()
		p.lastPlanned[class.partIndex] = slot.Start
		made++
		if made == len(tasks) || p.depth <= 0 {
			break
		}
		slot, ok = p.line.Earliest(class.query, spec.FarFuture, p.hintFor(job.UID, tasks[made]))
	}
	if int64(made) < all {
		last := p.plan[len(p.plan)-1]
		last.Task, last.Estimate = spec.NoTask, true
		p.plan = append(p.plan, last)
	}
	return first
}

// planTasks are the tasks of a record that get reservations of their own.
func (p *planner) planTasks(job *state.Job) []int64 {
	most := int64(p.cfg.Sched.ArrayResv)
	if most == 0 {
		most = defaultArrayResv
	}
	if array := p.trial.ArrayOf(job); array != nil && job.Spec.Queue.Array.Throttle > 0 {
		most = min(most, int64(job.Spec.Queue.Array.Throttle)-array.Running)
	}
	var out []int64
	job.Tasks.Each(func(task int64) bool {
		out = append(out, task)
		return int64(len(out)) < most
	})
	return out
}

const defaultArrayResv = 20 // bf_max_job_array_resv

func partNodes(parts []place.Part) []spec.NodeID {
	ids := make([]spec.NodeID, len(parts))
	for i := range parts {
		ids[i] = parts[i].Node.ID
	}
	return ids
}

func partDevices(parts []place.Part) []view.PlannedDevice {
	var devices []view.PlannedDevice
	for i := range parts {
		for _, use := range parts[i].Devices {
			devices = append(
				devices, view.PlannedDevice{Node: parts[i].Node.ID, Pos: int32(use.Pos)},
			)
		}
	}
	return devices
}

// unavailableNodes lists the explicitly required nodes that cannot be used at all.
func (p *reasons) unavailableNodes(must spec.Bitset) string {
	var names []string
	for id := must.Next(0); id >= 0; id = must.Next(id + 1) {
		if node := p.snapshot.NodeByID(spec.NodeID(id)); node == nil || !node.Usable() {
			names = append(names, nodeName(node, id))
		}
	}
	if names == nil {
		return ""
	}
	return hostlist.Fold(names)
}

func nodeName(node *state.Node, id int) string {
	if node == nil {
		return strconv.Itoa(id)
	}
	return node.Spec.Name
}

// noteReason notes why a job waits. Of a job in several partitions or QOS the
// reason stands that is nearest to a start: resources before limits and the like, and
// those before what keeps it out of a partition altogether.
func (p *reasons) noteReason(job *state.Job, reason *spec.Reason) {
	if p.options.Alone &&
		reason.Code != spec.ReasonDependencyNever { // the only one that decides something
		return
	}
	for _, component := range p.snapshot.Components(job) {
		if component.IsUnheld() {
			p.proposeReason(component, reason)
		}
	}
	if job.Het != nil {
		return
	}
	if !job.Spec.Choices() {
		p.proposeReason(job, reason)
		return
	}
	if old := p.multi[job.UID]; old == nil ||
		reasonNearness(reason.Code) > reasonNearness(old.Code) {
		if p.multi == nil {
			p.multi = map[spec.JobUID]*spec.Reason{}
		}
		p.multi[job.UID] = reason
	}
}

// proposeReason proposes a reason that differs from what the ledger knows.
func (p *reasons) proposeReason(job *state.Job, reason *spec.Reason) {
	if !job.Reason.Same(*reason) {
		p.out.Reasons = append(p.out.Reasons, event.JobReason{UID: job.UID, Reason: *reason})
	}
}

// refuseAll notes why the rest of a class waits. Where the ledger says so of all
// of them already, only the odd ones are looked at.
func (p *reasons) refuseAll(class *jobClass, reason *spec.Reason) {
	if p.options.Alone {
		return
	}
	rest := class.members[class.position:]
	if class.request.representative.Spec.Choices() {
		for i := range rest {
			if rest[i].job != nil {
				p.noteReason(rest[i].job, reason)
			}
		}
		return
	}
	if class.settled != nil && class.settled.Same(*reason) {
		//muster:unordered the reasons are sorted when the pass is over
		for uid, job := range class.odd {
			if m := memberOf(job, p.queue.order); uid == class.currentMember().uid ||
				class.currentMember().ranksBefore(&m) {
				p.proposeReason(job, reason)
			}
		}
		return
	}
	class.settled, class.odd = reason, map[spec.JobUID]*state.Job{}
	for i := range class.members {
		job := class.members[i].job
		if job == nil || job.Reason.Same(*reason) {
			continue
		}
		class.odd[job.UID] = job
		if i >= class.position {
			p.proposeReason(job, reason)
		}
	}
}

func reasonNearness(code spec.ReasonCode) int {
	switch code {
	case spec.ReasonResources, spec.ReasonPriority:
		return 2
	case spec.ReasonBadConstraints,
		spec.ReasonPartitionConfig,
		spec.ReasonPartitionNodeLimit,
		spec.ReasonPartitionTimeLimit,
		spec.ReasonPartitionDown,
		spec.ReasonPartitionInactive,
		spec.ReasonAccountNotAllowed,
		spec.ReasonQOSNotAllowed,
		eligible.ReasonMaxMem:
		return 0
	}
	return 1
}

// settleReasons adds the reasons of jobs in several partitions, and puts all
// in order. A job that the pass did not get to keeps its own.
func (p *reasons) settleReasons() {
	//muster:unordered the reasons are sorted below
	for uid, reason := range p.multi {
		if p.marks[uid]&touched == 0 || p.trial.Job(uid).State == spec.Pending {
			p.proposeReason(p.snapshot.Job(uid), reason)
		}
	}
	slices.SortFunc(
		p.out.Reasons,
		func(a, b event.JobReason) int { return cmp.Compare(a.UID, b.UID) },
	)
	p.addPromises()
}

// anySwitches is when a job has waited for --switches for as long as it
// wanted, at most max_switch_wait: any nodes will do for it then.
func (p *planner) anySwitches(job *state.Job) spec.Instant {
	most := p.cfg.Sched.SwitchWait
	if most == 0 {
		most = 5 * spec.Minute
	}
	if w := job.Spec.Place.SwitchWait; w > 0 {
		most = min(most, w)
	}
	if job.Eligible == 0 {
		return p.now.Add(most)
	}
	return job.Eligible.Add(most)
}

func (p *planner) waitedForSwitches(job *state.Job) bool {
	at := p.anySwitches(job)
	p.wakeAt(at)
	return at <= p.now
}
