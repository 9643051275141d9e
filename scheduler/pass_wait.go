package scheduler

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/scheduler/reserve"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// find asks the timeline for the earliest start of a job, as far ahead as it
// may be reserved. A reason means that no job of the lot can start now, nor be
// planned.
func (p *pass) find(l *lot, m *member, j *state.Job, task int64) (reserve.Slot, *spec.Reason) {
	blocked := p.head[l.pi] != 0 && p.head[l.pi] != m.uid
	inOrder := blocked && p.strict
	plan := p.depth > 0 && p.phase != gaps && !l.noReserve && p.marks[m.uid]&reserved == 0
	until := p.now
	switch {
	case plan:
		until = spec.FarFuture
	case p.depth <= 0:
		p.out.Exit = exitDepth
	}
	if inOrder {
		if !plan {
			return reserve.Slot{}, p.queues(l, m)
		}
		p.ask(l).NotBefore(max(p.fifo[l.pi], p.now+1))
	}
	if !plan && !p.roomy(l) {
		return reserve.Slot{}, p.queues(l, m)
	}
	slot, ok := p.line.Earliest(p.ask(l), until, p.hint(j.UID, task))
	switch {
	case ok:
		return slot, nil
	case plan:
		return slot, p.impossible(l, j)
	}
	return slot, p.queues(l, m)
}

// ask is what a lot asks the timeline.
func (p *pass) ask(l *lot) *reserve.Ask {
	strict := l.nodes.switches != nil && !p.waitedForSwitches(l.current().job)
	if l.ask == nil || (l.nodes.switches != nil && strict != l.patient) {
		opt := l.nodes.options(p.cfg, l.part.Spec, l.kin.like.Spec, p.trees)
		opt.Mix = p.opt.Mix
		if strict {
			opt.OneOf = cross(opt.OneOf, l.nodes.switches)
		}
		l.ask, l.patient = p.line.Ask(l.demand, l.nodes.set, opt, p.barsOf(l)), strict
	}
	return l.ask
}

// shorter finds the longest time limit, not less than --time-min, with which a
// job can start now that cannot with the one it asked for.
func (p *pass) shorter(l *lot, j *state.Job, slot reserve.Slot, blocked *spec.Reason) (reserve.Slot, spec.Span, bool) {
	low, high := j.Spec.Time.Min, l.demand.Limit
	inOrder := p.strict && p.head[l.pi] != 0 && p.head[l.pi] != j.UID
	if low == 0 || low >= high || inOrder || (blocked == nil && slot.Start <= p.now) {
		return slot, 0, false
	}
	try := func(limit spec.Span) (reserve.Slot, bool) {
		d := l.demand
		d.Limit = limit
		return p.line.Earliest(p.line.Ask(d, l.nodes.set, l.nodes.options(p.cfg, l.part.Spec, l.kin.like.Spec, p.trees), p.barsOf(l)), p.now, nil)
	}
	best, ok := try(low)
	if !ok {
		return slot, 0, false
	}
	if high == spec.Infinite {
		high = maxSpan
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

// late tells that a planned start would not leave the time limit until the
// job's deadline.
func late(j *state.Job, now spec.Instant, slot *reserve.Slot, limit spec.Span) bool {
	d := j.Spec.Time.Deadline
	return d != 0 && slot.Start > now && slot.Start.Add(limit) > d
}

// hint is what the plan before promised to a job.
func (p *pass) hint(uid spec.JobUID, task int64) *reserve.Hint {
	pl := p.opt.Plan.OfTask(uid, task)
	if pl == nil {
		return nil
	}
	return &reserve.Hint{Start: pl.Start, Nodes: pl.Nodes, Devices: pl.Devices}
}

// waiting is the reason of a job that does not fit now, to be completed.
func (p *pass) waiting(l *lot, m *member) *spec.Reason {
	r := *p.queues(l, m)
	return &r
}

// queues is why a job waits that does not fit now: Resources for the first in a
// partition, Priority behind it. All of those get the same, which nobody changes.
func (p *pass) queues(l *lot, m *member) *spec.Reason {
	head := p.head[l.pi]
	if head == 0 || head == m.uid {
		return &spec.Reason{Code: spec.ReasonResources, Subject: l.part.Subject}
	}
	if p.rear == nil {
		p.rear = make([]*spec.Reason, len(p.head))
	}
	if r := p.rear[l.pi]; r == nil || r.Blocker != head {
		p.rear[l.pi] = &spec.Reason{Code: spec.ReasonPriority, Subject: l.part.Subject, Blocker: head}
	}
	return p.rear[l.pi]
}

// impossible is the reason of a job that no end of other jobs would let
// start: nodes are missing that could take it, or there are none.
func (p *pass) impossible(l *lot, j *state.Job) *spec.Reason {
	who := l.part.Subject
	nodes, err := allowedNodes(p.st, l.part, j.Spec)
	if err != nil {
		return &spec.Reason{Code: spec.ReasonBadConstraints, Detail: err.Error()}
	}
	if v := l.view; v != nil {
		switch {
		case v.Own != nil:
			return &spec.Reason{Code: "ReservationInvalid", Subject: "reservation/" + v.Own.Name}
		case p.openOtherwise(l, nodes, spec.FarFuture):
			return &spec.Reason{Code: spec.ReasonReqNodeNotAvail, Detail: "May be reserved for other job"}
		}
	}
	shapes := place.Shapes{Caps: place.Caps(p.st)}
	var cands []place.Candidate
	var missing []string
	for id := nodes.set.Next(0); id >= 0; id = nodes.set.Next(id + 1) {
		n := p.st.NodeByID(spec.NodeID(id))
		if n == nil {
			continue
		}
		s := shapes.Configured(n)
		cands = append(cands, place.Candidate{Node: n, Shape: s, Free: s.Whole()})
		if !n.Usable() {
			missing = append(missing, n.Spec.Name)
		}
	}
	if place.Pick(&l.demand, cands, nodes.options(p.cfg, l.part.Spec, j.Spec, nil)) == nil {
		return &spec.Reason{Code: spec.ReasonPartitionConfig, Subject: who}
	}
	if opt := nodes.options(p.cfg, l.part.Spec, j.Spec, nil); nodes.switches != nil && !p.waitedForSwitches(j) {
		if opt.OneOf = cross(opt.OneOf, nodes.switches); place.Pick(&l.demand, cands, opt) == nil {
			return &spec.Reason{Code: spec.ReasonResources, Subject: "switches", Until: p.anySwitches(j)}
		}
	}
	if missing == nil {
		return &spec.Reason{Code: spec.ReasonResources, Subject: who, Detail: ""}
	}
	return &spec.Reason{Code: spec.ReasonReqNodeNotAvail, Detail: "UnavailableNodes:" + hostlist.Fold(missing)}
}

// promise reserves a start that was found, for an array's record as many
// tasks exactly as bf_max_job_array_resv allows, and returns the reason.
func (p *pass) promise(l *lot, m *member, j *state.Job, slot reserve.Slot) *spec.Reason {
	r := p.waiting(l, m)
	own := p.waitsForReservation(l, r, slot.Start)
	r.Until = slot.Start
	tasks, all := []int64{spec.NoTask}, int64(1)
	if j.IsArrayRecord() {
		tasks, all = p.planTasks(j), j.Tasks.Len()
	}
	if blockers := p.plant(l, j, slot, tasks, all); r.Blocker == 0 && len(blockers) > 0 {
		r.Blocker = blockers[0]
	}
	p.marks[m.uid] |= reserved
	if p.head[l.pi] == 0 && !own {
		p.head[l.pi] = m.uid
	}
	return r
}

// plant reserves the starts of a job, or of some tasks of a record, of which the
// first is known, and says whom that one waits for. Of all there are the plan says
// at least that they come later.
func (p *pass) plant(l *lot, j *state.Job, slot reserve.Slot, tasks []int64, all int64) (first []spec.JobUID) {
	made := 0
	for ok := true; ok; {
		blockers := p.line.Blockers(slot.Parts, slot.Start, j.UID)
		if made == 0 {
			first = blockers
		}
		p.line.Promise(slot.Parts, slot.Start, l.demand.Limit, j.UID)
		p.note(l, &promise{j.UID, tasks[made], slot, l.demand.Limit, blockers})
		p.spend()
		p.fifo[l.pi] = slot.Start
		if made++; made == len(tasks) || p.depth <= 0 {
			break
		}
		slot, ok = p.line.Earliest(l.ask, spec.FarFuture, p.hint(j.UID, tasks[made]))
	}
	if int64(made) < all {
		last := p.plan[len(p.plan)-1]
		last.Task, last.Estimate = spec.NoTask, true
		p.plan = append(p.plan, last)
	}
	return first
}

// planTasks are the tasks of a record that get reservations of their own.
func (p *pass) planTasks(j *state.Job) []int64 {
	most := int64(p.cfg.Sched.ArrayResv)
	if most == 0 {
		most = defaultArrayResv
	}
	if a := p.t.ArrayOf(j); a != nil && j.Spec.Queue.Array.Throttle > 0 {
		most = min(most, int64(j.Spec.Queue.Array.Throttle)-a.Running)
	}
	var out []int64
	j.Tasks.Each(func(task int64) bool {
		out = append(out, task)
		return int64(len(out)) < most
	})
	return out
}

const defaultArrayResv = 20 // bf_max_job_array_resv

func partNodes(parts []place.Part) []spec.NodeID {
	out := make([]spec.NodeID, len(parts))
	for i := range parts {
		out[i] = parts[i].Node.ID
	}
	return out
}

func partDevices(parts []place.Part) []view.PlannedDevice {
	var out []view.PlannedDevice
	for i := range parts {
		for _, use := range parts[i].Devices {
			out = append(out, view.PlannedDevice{Node: parts[i].Node.ID, Pos: int32(use.Pos)})
		}
	}
	return out
}

// unavailable lists the explicitly required nodes that cannot be used at all.
func (p *pass) unavailable(must spec.Bitset) string {
	var names []string
	for id := must.Next(0); id >= 0; id = must.Next(id + 1) {
		if n := p.st.NodeByID(spec.NodeID(id)); n == nil || !n.Usable() {
			names = append(names, nodeName(n, id))
		}
	}
	if names == nil {
		return ""
	}
	return hostlist.Fold(names)
}

func nodeName(n *state.Node, id int) string {
	if n == nil {
		return strconv.Itoa(id)
	}
	return n.Spec.Name
}

// refuse notes why a job waits. Of a job in several partitions or QOS the
// reason stands that is nearest to a start: resources before limits and the like, and
// those before what keeps it out of a partition altogether.
func (p *pass) refuse(j *state.Job, r *spec.Reason) {
	if p.opt.Alone && r.Code != spec.ReasonDependencyNever { // the only one that decides something
		return
	}
	for _, c := range p.st.Components(j) {
		if c.State == spec.Pending && c.Hold == spec.NotHeld {
			p.reason(c, r)
		}
	}
	if j.Het != nil {
		return
	}
	if !j.Spec.Choices() {
		p.reason(j, r)
		return
	}
	if old := p.multi[j.UID]; old == nil || nearness(r.Code) > nearness(old.Code) {
		if p.multi == nil {
			p.multi = map[spec.JobUID]*spec.Reason{}
		}
		p.multi[j.UID] = r
	}
}

// reason proposes a reason that differs from what the ledger knows.
func (p *pass) reason(j *state.Job, r *spec.Reason) {
	if !j.Reason.Same(*r) {
		p.out.Reasons = append(p.out.Reasons, event.JobReason{UID: j.UID, Reason: *r})
	}
}

// refuseAll notes why the rest of a lot waits. Where the ledger says so of all
// of them already, only the odd ones are looked at.
func (p *pass) refuseAll(l *lot, r *spec.Reason) {
	if p.opt.Alone {
		return
	}
	rest := l.members[l.pos:]
	if l.kin.like.Spec.Choices() {
		for i := range rest {
			if rest[i].job != nil {
				p.refuse(rest[i].job, r)
			}
		}
		return
	}
	if l.settled != nil && l.settled.Same(*r) {
		//muster:unordered the reasons are sorted when the pass is over
		for uid, j := range l.odd {
			if m := memberOf(j, p.queue.rule); uid == l.current().uid || l.current().before(&m) {
				p.reason(j, r)
			}
		}
		return
	}
	l.settled, l.odd = r, map[spec.JobUID]*state.Job{}
	for i := range l.members {
		j := l.members[i].job
		if j == nil || j.Reason.Same(*r) {
			continue
		}
		l.odd[j.UID] = j
		if i >= l.pos {
			p.reason(j, r)
		}
	}
}

func nearness(c spec.ReasonCode) int {
	switch c {
	case spec.ReasonResources, spec.ReasonPriority:
		return 2
	case spec.ReasonBadConstraints, spec.ReasonPartitionConfig, spec.ReasonPartitionNodeLimit, spec.ReasonPartitionTimeLimit, spec.ReasonPartitionDown,
		spec.ReasonPartitionInactive, spec.ReasonAccountNotAllowed, spec.ReasonQOSNotAllowed, reasonMaxMem:
		return 0
	}
	return 1
}

// settleReasons adds the reasons of jobs in several partitions, and puts all
// in order. A job that the pass did not get to keeps its own.
func (p *pass) settleReasons() {
	//muster:unordered the reasons are sorted below
	for uid, r := range p.multi {
		if p.marks[uid]&touched == 0 || p.t.Job(uid).State == spec.Pending {
			p.reason(p.st.Job(uid), r)
		}
	}
	slices.SortFunc(p.out.Reasons, func(a, b event.JobReason) int { return cmp.Compare(a.UID, b.UID) })
}
