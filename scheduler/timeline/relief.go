package timeline

import (
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/spec"
)

// NextTick is when a job that is ending, or is told to end now, is taken to have
// given its nodes back.
func (t *Timeline) NextTick() spec.Instant { return t.now.Add(t.tick) }

// Gone is a job that runs and is to make room.
type Gone struct {
	Job  *state.Job
	CPUs bool // it is suspended: it leaves its CPUs only
}

// Relieved places a demand at an instant as if some of the jobs that run
// ended by then, or returns nil. Promises that were made stand.
func (t *Timeline) Relieved(query *Query, at spec.Instant, gone []Gone) []place.Part {
	for _, sub := range query.oneOf {
		if parts := t.Relieved(sub, at, gone); parts != nil {
			return parts
		}
	}
	if query.oneOf != nil {
		return nil
	}
	without := map[spec.NodeID][]Gone{}
	var leaving []spec.JobUID
	for _, g := range gone {
		leaving = append(leaving, g.Job.UID)
		for i := range g.Job.Alloc.Nodes {
			if !g.Job.Done.Has(i) {
				without[g.Job.Alloc.Nodes[i].ID] = append(without[g.Job.Alloc.Nodes[i].ID], g)
			}
		}
	}
	end := at.Add(query.Demand.Limit)
	t.cands = t.cands[:0]
	for _, id := range query.ids {
		lane := t.lanes[id]
		if barred, _ := query.view.isBarred(id, at, end, query.Demand.Limit); barred {
			continue
		}
		if barred, _ := barredWithin(t.strangerWindows(id, &query.Demand.Tenant, leaving), at, end, query.Demand.Limit); barred {
			continue
		}
		free := lane.leastOver(at, end)
		if list := without[spec.NodeID(id)]; list != nil {
			copied := lane.copyLane()
			for _, g := range list {
				t.relievePart(copied, g, at)
			}
			free = copied.leastOver(at, end)
		}
		t.cands = append(t.cands, place.Candidate{Node: lane.node, Shape: lane.shape, Free: free})
	}
	return place.Pick(&query.Demand, t.cands, query.options)
}

// Relieve gives the parts of jobs back from an instant on: they were told to
// end. What was found not to fit before may fit later then; it is found in the
// next pass.
func (t *Timeline) Relieve(at spec.Instant, gone []Gone) {
	t.grown++
	for _, g := range gone {
		for i := range g.Job.Alloc.Nodes {
			if id := g.Job.Alloc.Nodes[i].ID; !g.Job.Done.Has(i) && t.Usable(id) {
				t.relievePart(t.lanes[id], g, at)
				t.changed = append(t.changed, t.changedThroughout(id))
				t.cutStay(id, g.Job.UID, at)
			}
		}
	}
}

// Sketch is a copy of the timeline to try things on that may come to nothing:
// what is promised and relieved there is not so here. Only questions that were
// made here already can be asked of it, and only by Relieved.
func (t *Timeline) Sketch() *Timeline {
	timeline := *t
	timeline.lanes, timeline.changed = make([]*lane, len(t.lanes)), nil
	for id, l := range t.lanes {
		if l != nil {
			timeline.lanes[id] = l.copyLane()
			timeline.lanes[id].stays = slices.Clone(l.stays)
		}
	}
	return &timeline
}

// copyLane is a lane of its own with the same future; who stays is shared.
func (l *lane) copyLane() *lane {
	c := *l
	c.segs = slices.Clone(l.segs)
	for i := range c.segs {
		c.segs[i].free = c.segs[i].free.Clone()
	}
	return &c
}

// relievePart gives one job's part of a lane back between an instant and the end
// at which it was to come back.
func (t *Timeline) relievePart(l *lane, gone Gone, at spec.Instant) {
	job := gone.Job
	end := max(job.Deadline(), t.now.Add(t.tick))
	if end <= at {
		return
	}
	held := l.shape.Held(l.node, &job.Alloc.Nodes[job.Alloc.Index(l.node.ID)], job.Alloc)
	if gone.CPUs {
		held = l.shape.OnCPUs(held)
	}
	first, last := l.splitAt(at), len(l.segs)
	if end != spec.FarFuture {
		last = l.splitAt(end)
	}
	l.segs[first].after = job.UID
	for k := first; k < last; k++ {
		l.segs[k].free.Add(&held, 1)
	}
}
