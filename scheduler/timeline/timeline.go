// Package timeline keeps the timeline of a pass: what every node can give from
// now on, given when running jobs end and what was promised to jobs of higher
// priority. A job gets the earliest span in which enough nodes can hold it
// for its whole time limit; taking that span promises it.
//
// Promises only ever take away, so whatever was found not to fit in a pass
// does not fit later in that pass either. Everything here that is remembered
// between two questions (the indexes, Ask.from) rests on that.
package timeline

import (
	"cmp"
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/spec"
)

// Timeline is the future of a set of nodes. It belongs to one pass.
type Timeline struct {
	st      *state.State
	now     spec.Instant
	tick    spec.Span // until what is ending is taken to have ended
	endOf   Ends
	shapes  place.Shapes
	cpus    int64   // free now, of all nodes together
	gpus    int64   // likewise
	mixed   bool    // some shape counts one resource by several types
	lanes   []*lane // by node id; nil = not usable
	store   []lane  // what they point into
	changed []change
	merged  []change          // scratch space of one index: one for each node
	turnOf  []int32           // by node id: its place in merged, where its stamp is of this epoch
	parts   []window          // scratch space of one node
	given   int               // promises that were given back
	grown   int               // how often any node could give more than before
	indexes map[uint64]*index // by the hash of their keys
	viewers map[string]*viewer
	ranking rankingRule
	apart   bool                // who is on which node is known: stays
	near    [][]spec.NodeID     // by node id: those of its block; nil: there are no blocks
	lists   map[*uint64][]int32 // node sets that were listed before, by where they are stored

	madeAsks    slab[Query]
	madeIndexes slab[index]

	ends  []ending // scratch space of New
	turns []turn

	// Scratch space of one question.
	tails   []spec.Instant
	windows []window
	helpful []int32
	cands   []place.Candidate
	ranks   []rank
	sweep   sweep
	stamp   []uint32
	epoch   uint32
}

// lane is one node's future: segments that begin at from and last until the
// next one; the last lasts for ever.
type lane struct {
	node  *state.Node
	shape *place.Shape
	segs  []segment
	stays []stay // only where the timeline is apart
}

// change tells that what a node can give in a span of time has changed.
type change struct {
	id       int32
	from, to spec.Instant
}

// changedThroughout is a change of which no more is known than the node.
func (t *Timeline) changedThroughout(id spec.NodeID) change {
	return change{int32(id), t.now, spec.FarFuture}
}

type segment struct {
	from spec.Instant
	// after names the job whose end begins the segment, for explanations.
	after spec.JobUID
	free  place.Free
}

// New builds the timeline of the usable nodes among those given: every
// running job gives its part back when its time limit ends; one that overruns
// it, or is ending already, after a tick.
//
// It takes the memory of an earlier timeline that nobody uses any more, if one
// is given.
func New(
	cluster *state.State,
	now spec.Instant,
	tick spec.Span,
	nodes spec.Bitset,
	old *Timeline,
) *Timeline {
	return NewEnding(cluster, now, tick, nodes, (*state.Job).Deadline, old)
}

// Ends says when a running job gives its nodes back.
type Ends func(job *state.Job) spec.Instant

// NewEnding is New with other ends of the running jobs than their time limits.
func NewEnding(
	cluster *state.State,
	now spec.Instant,
	tick spec.Span,
	nodes spec.Bitset,
	ends Ends,
	old *Timeline,
) *Timeline {
	size := len(cluster.NodeIDs)
	timeline := old.emptyTimeline(size, min(nodes.Count(), size))
	timeline.st = cluster
	timeline.now = now
	timeline.tick = tick
	timeline.endOf = ends
	timeline.ranking = rankingRule{minNodes: minRanked, after: rankedAfter}
	timeline.shapes.Caps = place.Caps(cluster)
	endings, picky := timeline.ends[:0], false
	for id := nodes.Next(0); id >= 0 && id < size; id = nodes.Next(id + 1) {
		node := cluster.NodeByID(spec.NodeID(id))
		if node == nil || !node.Usable() {
			continue
		}
		timeline.store = timeline.store[:len(timeline.store)+1]
		l := &timeline.store[len(timeline.store)-1]
		*l = lane{node: node, shape: timeline.shapes.Of(node), segs: l.segs}
		timeline.lanes[id] = l
		timeline.mixed = timeline.mixed || l.shape.Mixed()
		endings = timeline.fillLane(l, endings[:0], &picky)
		timeline.countFree(l, 1)
	}
	timeline.ends = endings
	if picky || timeline.pickyBeyond() {
		timeline.TrackTenants()
	}
	return timeline
}

// emptyTimeline is an empty timeline with room for so many node ids and lanes, in the
// memory of one that is no longer used.
func (t *Timeline) emptyTimeline(size, lanes int) *Timeline {
	if t == nil {
		t = &Timeline{
			indexes: map[uint64]*index{},
			viewers: map[string]*viewer{},
			lists:   map[*uint64][]int32{},
		}
	}
	clear(t.indexes)
	clear(t.viewers)
	clear(t.lists)
	t.madeAsks.renewSlab(keptAsks)
	t.madeIndexes.renewSlab(keptCells / max(size, 1))
	t.shapes.Forget(keptShapes)
	*t = Timeline{
		shapes:      t.shapes,
		lanes:       t.lanes,
		store:       t.store,
		stamp:       t.stamp,
		changed:     t.changed[:0],
		merged:      t.merged,
		turnOf:      t.turnOf,
		parts:       t.parts,
		ends:        t.ends,
		turns:       t.turns,
		tails:       t.tails,
		windows:     t.windows,
		helpful:     t.helpful,
		cands:       t.cands,
		ranks:       t.ranks,
		sweep:       t.sweep,
		indexes:     t.indexes,
		viewers:     t.viewers,
		lists:       t.lists,
		madeAsks:    t.madeAsks,
		madeIndexes: t.madeIndexes,
	}
	if cap(t.lanes) < size {
		t.lanes, t.stamp = make([]*lane, size), make([]uint32, size)
		t.turnOf = make([]int32, size)
	}
	t.lanes, t.stamp = t.lanes[:size], t.stamp[:size]
	t.turnOf = t.turnOf[:size]
	clear(t.lanes)
	clear(t.stamp)
	if cap(t.store) < lanes {
		t.store = make([]lane, lanes)
	}
	t.store = t.store[:0]
	return t
}

// How much of one pass serves the next one: so many shapes of nodes and asks, and indexes
// with so many nodes together. Most passes are small.
const (
	keptShapes = 64
	keptAsks   = 1 << 10
	keptCells  = 1 << 14
)

// slab hands out values whose memory serves again.
type slab[T any] struct {
	list []*T
	used int
}

// take gives a value that nobody uses. What is in it is what it held before.
func (s *slab[T]) take() *T {
	if s.used == len(s.list) {
		s.list = append(s.list, new(T))
	}
	s.used++
	return s.list[s.used-1]
}

// renewSlab takes all values back, and keeps so many.
func (s *slab[T]) renewSlab(most int) {
	if len(s.list) > most {
		clear(s.list[most:])
		s.list = s.list[:most]
	}
	s.used = 0
}

// countFree adds what a node can give now to what all can, or takes it away.
func (t *Timeline) countFree(l *lane, sign int64) {
	t.cpus += sign * max(l.segs[0].free.CPU, 0)
	t.gpus += sign * max(l.segs[0].free.GPU, 0)
}

// MayHaveRoom tells whether all nodes together have as much free now as a demand
// needs at least; if not, no node needs to be looked at.
func (t *Timeline) MayHaveRoom(least *spec.TRES) bool {
	return t.HasFree(least.CPU, least.Get("gres/gpu"))
}

// HasFree is Room for so many CPUs and GPUs.
func (t *Timeline) HasFree(cpus, gpus int64) bool { return cpus <= t.cpus && gpus <= t.gpus }

// listNodes gives the nodes of a set that the timeline has. Sets that nobody
// changes are listed once.
func (t *Timeline) listNodes(set spec.Bitset) []int32 {
	if len(set) == 0 {
		return nil
	}
	ids, ok := t.lists[&set[0]]
	if !ok {
		for id := set.Next(0); id >= 0 && id < len(t.lanes); id = set.Next(id + 1) {
			if t.lanes[id] != nil {
				ids = append(ids, int32(id))
			}
		}
		t.lists[&set[0]] = ids
	}
	return ids
}

// ending is when a running job gives its part of a node back.
type ending struct {
	at   spec.Instant
	uid  spec.JobUID
	part place.Free
}

// turn is the place of an ending in a list; it is less to move about.
type turn struct {
	at  spec.Instant
	uid spec.JobUID
	nth int
}

// fillLane derives a lane's segments from the jobs on its node.
func (t *Timeline) fillLane(l *lane, ends []ending, picky *bool) []ending {
	node := l.node
	free := l.shape.Now(node)
	for _, uid := range node.Jobs {
		job := t.st.Job(uid)
		i := job.Alloc.Index(node.ID)
		if i < 0 || job.Done.Has(i) {
			continue
		}
		part := l.shape.Held(node, &job.Alloc.Nodes[i], job.Alloc)
		cpus := int64(job.Alloc.Nodes[i].CPUs.Count())
		if job.Yields { // others have its CPUs
			left := l.shape.OnCPUs(part)
			part.Add(&left, -1)
			cpus = 0
		}
		l.shape.TakeCap(&free, job.Alloc, cpus)
		if l.shape.Inside(job.Alloc) {
			free.CPU += cpus // which the reservation has: see Keep
		}
		free.GPU += l.shape.GPUsInside(job.Alloc, &job.Alloc.Nodes[i])
		l.shape.TakeGPUs(&free, job.Alloc, &job.Alloc.Nodes[i])
		*picky = *picky || job.Alloc.Apart != 0 || job.Alloc.Share > 0
		end := t.expectedEnd(job)
		if end != spec.FarFuture {
			ends = append(ends, ending{end, uid, part})
		}
	}
	turns := t.turns[:0]
	for i := range ends {
		turns = append(turns, turn{ends[i].at, ends[i].uid, i})
	}
	slices.SortFunc(turns, func(a, b turn) int {
		if c := cmp.Compare(a.at, b.at); c != 0 {
			return c
		}
		return cmp.Compare(a.uid, b.uid)
	})
	t.turns = turns
	if cap(l.segs) <= len(ends) {
		l.segs = make([]segment, 0, len(ends)+4)
	}
	l.segs = append(l.segs[:0], segment{from: t.now, free: free})
	for i := range turns {
		last := &l.segs[len(l.segs)-1]
		if at := turns[i].at; last.from != at {
			l.segs = append(l.segs, segment{from: at, after: turns[i].uid, free: last.free.Clone()})
			last = &l.segs[len(l.segs)-1]
		}
		last.free.Add(&ends[turns[i].nth].part, 1)
	}
	return ends
}

// expectedEnd is when a running job is taken to have given its nodes back.
func (t *Timeline) expectedEnd(job *state.Job) spec.Instant {
	end := t.endOf(job)
	if job.Completing() || job.Ending != nil || end <= t.now {
		end = t.now.Add(t.tick)
	}
	return end
}

// segmentAt is the index of the segment that an instant lies in.
func (l *lane) segmentAt(t spec.Instant) int {
	lo, hi := 0, len(l.segs)
	for lo < hi {
		if mid := int(uint(lo+hi) >> 1); l.segs[mid].from <= t {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return max(lo-1, 0)
}

// splitAt makes a segment begin at an instant and returns its index.
func (l *lane) splitAt(at spec.Instant) int {
	i := l.segmentAt(at)
	if l.segs[i].from >= at {
		return i
	}
	l.segs = slices.Insert(l.segs, i+1, segment{from: at, free: l.segs[i].free.Clone()})
	return i + 1
}

// leastOver is the least that the lane can give throughout [from, to). The result
// may share memory with the lane.
func (l *lane) leastOver(from, to spec.Instant) place.Free {
	i := l.segmentAt(from)
	free := l.segs[i].free
	if i+1 >= len(l.segs) || l.segs[i+1].from >= to {
		return free
	}
	free = free.Clone()
	for i++; i < len(l.segs) && l.segs[i].from < to; i++ {
		free.Min(&l.segs[i].free)
	}
	return free
}

// Promise takes a placement out of the timeline for [start, start+limit), for
// the job that is named where its end makes room.
func (t *Timeline) Promise(
	parts []place.Part,
	start spec.Instant,
	limit spec.Span,
	uid spec.JobUID,
) {
	start = max(start, t.now)
	end := start.Add(limit)
	for i := range parts {
		id := parts[i].Node.ID
		lane := t.lanes[id]
		first, last := lane.splitAt(start), len(lane.segs)
		if end != spec.FarFuture {
			last = lane.splitAt(end)
			if lane.segs[last].after == 0 {
				lane.segs[last].after = uid
			}
		}
		t.countFree(lane, -1)
		for k := first; k < last; k++ {
			lane.segs[k].free.Add(&parts[i].Use, -1)
		}
		t.countFree(lane, 1)
		t.changed = append(t.changed, change{int32(id), start, end})
		t.enterPart(&parts[i], start, end, uid)
	}
}

// Keep takes the CPUs and GPUs of a node that a reservation keeps out of the
// timeline in some windows of time. What jobs of the reservation hold of them is
// part of it; a job that outlasts it holds them until it ends.
func (t *Timeline) Keep(
	node *state.Node,
	reservation *spec.Reservation,
	kept place.Free,
	windows []Window,
) {
	shape := t.lanes[node.ID].shape
	heeds := func(name string) bool {
		o := t.st.Reservation(name)
		return name != reservation.Name && o != nil && o.Heeds(reservation)
	}
	take := func(held place.Free, from, to spec.Instant, uid spec.JobUID) {
		use := shape.Leave(&held, heeds)
		limit := spec.Infinite
		if to != spec.FarFuture {
			limit = to.Sub(max(from, t.now))
		}
		t.Promise([]place.Part{{Node: node, Need: place.Need{Use: use}}}, from, limit, uid)
	}
	over := t.now // until then it lasts now
	for _, w := range windows {
		take(kept, w.From, w.To, 0)
		if w.From <= t.now {
			over = max(over, w.To)
		}
	}
	if reservation.Flags&spec.ResvOpen != 0 {
		return // what its jobs hold is counted where all are that are not of others
	}
	for _, uid := range node.Jobs {
		job := t.st.Job(uid)
		i := job.Alloc.Index(node.ID)
		if until := t.expectedEnd(job); i >= 0 && !job.Done.Has(i) &&
			job.Alloc.Reservation == reservation.Name &&
			until > over {
			held := place.Free{
				CPU: int64(job.Alloc.Nodes[i].CPUs.Count()),
				GPU: shape.GPUsInside(job.Alloc, &job.Alloc.Nodes[i]),
			}
			if job.Yields {
				held.CPU = 0
			}
			take(held, over, until, uid)
		}
	}
}

// Holds tells whether a node can give one part of an allocation from now on until
// an instant. Memory is not looked at.
func (t *Timeline) Holds(
	node *state.Node,
	alloc *spec.NodeAlloc,
	of *spec.Allocation,
	until spec.Instant,
) bool {
	if !t.Usable(node.ID) {
		return false
	}
	lane := t.lanes[node.ID]
	need, free := lane.shape.Held(node, alloc, of), lane.leastOver(t.now, until)
	need.Mem = 0
	return free.Holds(&need)
}

// Forget gives the promise to a job back. Questions that were asked before
// know nothing of it: see Ask.Anew.
func (t *Timeline) Forget(
	parts []place.Part,
	start spec.Instant,
	limit spec.Span,
	uid spec.JobUID,
) {
	start = max(start, t.now)
	end := start.Add(limit)
	t.given++
	t.grown++
	for i := range parts {
		id := parts[i].Node.ID
		lane := t.lanes[id]
		first, last := lane.splitAt(start), len(lane.segs)
		if end != spec.FarFuture {
			last = lane.splitAt(end)
		}
		t.countFree(lane, -1)
		for k := first; k < last; k++ {
			lane.segs[k].free.Add(&parts[i].Use, 1)
		}
		t.countFree(lane, 1)
		t.changed = append(t.changed, change{int32(id), start, end})
		t.leavePart(&parts[i], start, end, uid)
	}
}

// Blockers names the other jobs whose end a start waits for: on each node the
// last one that ends by then.
func (t *Timeline) Blockers(parts []place.Part, at spec.Instant, self spec.JobUID) []spec.JobUID {
	var uids []spec.JobUID
	for i := range parts {
		if len(uids) == maxBlockers {
			break
		}
		lane := t.lanes[parts[i].Node.ID]
		if uid := t.lastStranger(&parts[i], at); uid != 0 && uid != self &&
			!slices.Contains(uids, uid) {
			uids = append(uids, uid)
			continue
		}
		for k := lane.segmentAt(at); k > 0; k-- {
			if uid := lane.segs[k].after; uid != 0 && uid != self {
				if !slices.Contains(uids, uid) {
					uids = append(uids, uid)
				}
				break
			}
		}
	}
	return uids
}

const maxBlockers = 8

// Takes tells whether a part of an earlier placement can be put into the
// timeline: its node is there, and counts the same kinds of things.
func (t *Timeline) Takes(part *place.Part) bool {
	if !t.Usable(part.Node.ID) {
		return false
	}
	n := len(part.Use.More)
	return n == 0 || n == len(t.lanes[part.Node.ID].shape.Kinds)
}

// FreeCPUs is how many CPUs of a node nobody has now, nor was promised for as
// soon as somebody ends.
func (t *Timeline) FreeCPUs(id spec.NodeID) int64 {
	return t.lanes[id].leastOver(t.now, t.NextTick().Add(1)).CPU
}

// OnCPUs is what one node's part of an allocation takes of its CPUs.
func (t *Timeline) OnCPUs(allocation *spec.NodeAlloc, of *spec.Allocation) place.Free {
	lane := t.lanes[allocation.ID]
	return lane.shape.OnCPUs(lane.shape.Held(lane.node, allocation, of))
}

// Usable tells whether the timeline has a node.
func (t *Timeline) Usable(id spec.NodeID) bool {
	return int(id) < len(t.lanes) && t.lanes[id] != nil
}
