package pass

import (
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/scheduler/timeline"
	"github.com/musterhpc/muster/spec"
)

// planner finds the starts of jobs in the timeline, reserves them, and keeps what the
// pass before promised.
type planner struct {
	*pass
	plan  []view.Planned
	made  Promises           // those of this pass
	kept  map[promiseKey]int // those of the pass before that are in the timeline still
	depth int64              // reservations that may still be made
	firm  int64              // those of them that shorter jobs must not delay
}

// Promises are the reservations that a pass made, for the next one to keep.
// The zero value is empty.
type Promises struct {
	list []promise
	on   [][]where // by node; made when it is first asked for
}

// where is one promise's part on a node.
type where struct{ promise, part int32 }

// onNodes lists the promises by node.
func (p *Promises) onNodes() [][]where {
	if p.on != nil || len(p.list) == 0 {
		return p.on
	}
	most := 0
	for i := range p.list {
		for k := range p.list[i].slot.Parts {
			most = max(most, int(p.list[i].slot.Parts[k].Node.ID))
		}
	}
	p.on = make([][]where, most+1)
	for i := range p.list {
		for k := range p.list[i].slot.Parts {
			id := p.list[i].slot.Parts[k].Node.ID
			p.on[id] = append(p.on[id], where{int32(i), int32(k)})
		}
	}
	return p.on
}

// promise is one reservation.
type promise struct {
	uid      spec.JobUID
	task     int64
	slot     timeline.Slot
	limit    spec.Span
	blockers []spec.JobUID
}

type promiseKey struct {
	uid  spec.JobUID
	task int64
}

// Next is when the first of the promised jobs may start; FarFuture if there
// is none.
func (p *Promises) Next() spec.Instant {
	out := spec.FarFuture
	if p != nil {
		for i := range p.list {
			out = min(out, p.list[i].slot.Start)
		}
	}
	return out
}

// notePromise writes a reservation down.
func (p *planner) notePromise(class *jobClass, r *promise) {
	p.made.list = append(p.made.list, *r)
	p.plan = append(
		p.plan,
		view.Planned{UID: r.uid, Task: r.task, Start: r.slot.Start, End: r.slot.Start.Add(r.limit),
			Estimate: p.phase == rest, Nodes: partNodes(r.slot.Parts), Devices: partDevices(r.slot.Parts), Partition: class.part.Spec.Name, Priority: uint32(^class.rank), Blockers: r.blockers},
	)
}

// restorePromises puts the promises to keep into the timeline: those to jobs that
// still wait, on nodes that are still in service.
func (p *planner) restorePromises() {
	if p.options.Keep == nil {
		return
	}
	for i := range p.options.Keep.list {
		r := &p.options.Keep.list[i]
		if job := p.snapshot.Job(r.uid); job == nil || job.State != spec.Pending ||
			!p.inService(r.slot.Parts) {
			continue
		}
		if p.kept == nil {
			p.kept = make(map[promiseKey]int, len(p.options.Keep.list))
		}
		p.kept[promiseKey{r.uid, r.task}] = i
		p.line.Promise(r.slot.Parts, r.slot.Start, r.limit, r.uid)
	}
}

func (p *planner) inService(parts []place.Part) bool {
	for i := range parts {
		if !p.line.Takes(&parts[i]) {
			return false
		}
	}
	return true
}

// promiseTo is the promise to a job that is in the timeline, or nil.
func (p *planner) promiseTo(uid spec.JobUID, task int64) *promise {
	i, ok := p.kept[promiseKey{uid, task}]
	if !ok {
		return nil
	}
	return &p.options.Keep.list[i]
}

// giveBack removes a promise from the timeline, so that its job can be planned
// again.
func (p *planner) giveBack(class *jobClass, r *promise) {
	delete(p.kept, promiseKey{r.uid, r.task})
	p.line.Forget(r.slot.Parts, r.slot.Start, r.limit, r.uid)
	p.queryOf(class).Reset(p.now)
}

// keepPromise keeps a promise as it is and returns why the job waits.
func (p *planner) keepPromise(class *jobClass, m *member, r *promise) *spec.Reason {
	reason := p.reasons.waitReason(class, m)
	reason.Until = r.slot.Start
	if reason.Blocker == 0 && len(r.blockers) > 0 {
		reason.Blocker = r.blockers[0]
	}
	p.notePromise(class, r)
	p.countReservation()
	p.marks[m.uid] |= reserved
	if p.firstWaiting[class.partIndex] == 0 {
		p.firstWaiting[class.partIndex] = m.uid
	}
	return reason
}

// countReservation counts a reservation.
func (p *planner) countReservation() {
	p.depth--
	p.firm--
}
