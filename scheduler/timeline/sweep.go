package timeline

import (
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/spec"
)

// sweep walks through time for demands that leave placement a choice. For
// each node it keeps what fits there from an instant on and until which
// instant that stays so.
type sweep struct {
	fit   []int64 // tasks
	room  []int64 // of the first GRES asked for the job as a whole
	until []spec.Instant
	ids   []int32

	nodes, tasks, gres int64 // sums
	better             bool  // something fits at this instant that did not before
}

// startUneven finds the first start before an instant, in any distribution, or
// returns nil and the instant that no start precedes.
func (t *Timeline) startUneven(
	query *Query,
	before spec.Instant,
	hint *Hint,
) ([]place.Part, spec.Instant) {
	at := query.one.earliestFit(query.ids, query.Demand.MinNodes, query.from, query.Demand.Limit)
	if at >= before {
		return nil, before
	}
	s := &t.sweep
	s.beginSweep(t, query)
	for at < before {
		next := s.stepTo(t, query, at)
		if s.better && s.sumsSuffice(&query.Demand) {
			if parts := t.pickNodes(query, at, hint); parts != nil {
				return parts, at
			}
		}
		at = next
	}
	return nil, before
}

// sumsSuffice tells whether the sums are enough for a demand. They need not be: the
// nodes that give them may not go together.
func (s *sweep) sumsSuffice(demand *place.Demand) bool {
	if len(demand.PerJob) > 0 && s.gres < demand.PerJob[0].N {
		return false
	}
	return s.nodes >= demand.MinNodes && s.tasks >= demand.Tasks
}

func (s *sweep) beginSweep(timeline *Timeline, query *Query) {
	s.ids = s.ids[:0]
	s.fit = s.fit[:0]
	s.room = s.room[:0]
	s.until = s.until[:0]
	s.nodes = 0
	s.tasks = 0
	s.gres = 0
	for _, id := range query.ids {
		if query.one.needOf(timeline.lanes[id].shape).ok {
			s.ids = append(s.ids, id)
			s.fit = append(s.fit, 0)
			s.room = append(s.room, 0)
			s.until = append(s.until, 0)
		}
	}
}

// stepTo brings the sums up to an instant and returns the next one at which
// they may change.
func (s *sweep) stepTo(timeline *Timeline, query *Query, at spec.Instant) spec.Instant {
	next := spec.FarFuture
	s.better = false
	for i, id := range s.ids {
		if s.until[i] <= at {
			s.measureNode(timeline, query, i, timeline.lanes[id], at)
		}
		next = min(next, s.until[i])
	}
	return next
}

// measureNode finds what fits on the ith node at an instant, and until when.
func (s *sweep) measureNode(timeline *Timeline, query *Query, i int, lane *lane, at spec.Instant) {
	limit := query.Demand.Limit
	end := at.Add(limit)
	free := lane.leastOver(at, end)
	fit, _ := query.reduced.Fits(lane.shape, &free)
	node := int32(lane.node.ID)
	barred, until := query.view.isBarred(node, at, end, limit)
	if timeline.apart && !barred {
		var apartUntil spec.Instant
		barred, apartUntil = barredWithin(
			timeline.strangerWindows(node, &query.Demand.Tenant, nil),
			at,
			end,
			limit,
		)
		until = min(until, apartUntil)
	}
	if barred {
		fit = 0
	}
	room := int64(0)
	if len(query.Demand.PerJob) > 0 && fit > 0 {
		room = query.Demand.Room(lane.shape, &free)
	}
	s.tasks += fit - s.fit[i]
	s.gres += room - s.room[i]
	s.nodes += bit(fit) - bit(s.fit[i])
	s.better = s.better || fit > s.fit[i] || room > s.room[i]
	s.fit[i] = fit
	s.room[i] = room
	s.until[i] = min(until, lane.sameUntil(at, end, limit))
}

// sameUntil is the instant until which a stretch of this length that begins at an
// instant has the same free on the lane wherever it begins: then another segment
// begins at its front, or at its end.
func (l *lane) sameUntil(at, end spec.Instant, length spec.Span) spec.Instant {
	front := l.segmentAt(at) + 1
	if front >= len(l.segs) {
		return spec.FarFuture
	}
	until := l.segs[front].from
	if end == spec.FarFuture {
		return until
	}
	back := l.segmentAt(end-1) + 1
	if back >= len(l.segs) {
		return until
	}
	return min(until, l.segs[back].from.Add(-length)+1)
}

func bit(n int64) int64 {
	if n > 0 {
		return 1
	}
	return 0
}

// pickNodes places a demand at an instant on the nodes that have anything for it.
// A promise is kept on its nodes if they still do.
func (t *Timeline) pickNodes(query *Query, at spec.Instant, hint *Hint) []place.Part {
	t.cands = t.cands[:0]
	end := at.Add(query.Demand.Limit)
	for i, id := range t.sweep.ids {
		if t.sweep.fit[i] > 0 {
			lane := t.lanes[id]
			t.cands = append(
				t.cands,
				place.Candidate{Node: lane.node, Shape: lane.shape, Free: lane.leastOver(at, end)},
			)
		}
	}
	if hint != nil && hint.Start <= at && len(hint.Nodes) > 0 {
		var old spec.Bitset
		for _, id := range hint.Nodes {
			old = old.Set(int(id))
		}
		var same []place.Candidate
		for i := range t.cands {
			if old.Has(int(t.cands[i].Node.ID)) {
				same = append(same, t.cands[i])
				same[len(same)-1].Before = hint.devicesOn(t.cands[i].Node.ID)
			}
		}
		if parts := place.Pick(&query.Demand, same, query.options); parts != nil {
			return parts
		}
	}
	return place.Pick(&query.Demand, t.cands, query.options)
}
