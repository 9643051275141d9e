package timeline

import (
	"strconv"
	"strings"

	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/spec"
)

// key names what makes two demands need the same of a node.
type key struct {
	partition, inside                       string
	tasks, cpusPerTask, cpusPerGPU, minCPUs int64
	perNode, perCPU, perGPU, tmp            int64
	threads, perCore, perSocket, coreSpec   int64
	threadSpec                              int64
	exclusive, overcommit                   bool
	bars                                    string
	tenant                                  place.Tenant // only where the timeline is apart
	gres                                    string
}

func (t *Timeline) keyOf(demand *place.Demand, tasks int64) key {
	k := key{
		tasks:       tasks,
		cpusPerTask: demand.CPUsPerTask,
		cpusPerGPU:  demand.CPUsPerGPU,
		minCPUs:     demand.MinCPUs,
		perNode:     demand.MemPerNode,
		perCPU:      demand.MemPerCPU,
		perGPU:      demand.MemPerGPU,
		tmp:         demand.TmpDisk,
		exclusive:   demand.Exclusive,
		threads:     demand.Threads,
		perCore:     demand.PerCore,
		perSocket:   demand.PerSocket,
		coreSpec:    demand.CoreSpec,
		threadSpec:  demand.ThreadSpec,
		overcommit:  demand.Overcommit,
		inside:      demand.Inside,
	}
	if len(t.shapes.Caps) > 0 {
		k.partition = demand.Partition
	}
	if t.apart {
		k.tenant = demand.Tenant
	}
	if len(demand.PerNode)+len(demand.PerTask)+len(demand.PerJob) == 0 {
		return k
	}
	var text strings.Builder
	for i, list := range [...][]spec.Count{demand.PerNode, demand.PerTask, demand.PerJob} {
		for _, count := range list {
			text.WriteString(strconv.Itoa(i) + count.Name + ":" + count.Type + ":" +
				strconv.FormatInt(count.N, 10) + ",")
		}
	}
	k.gres = text.String()
	return k
}

// hashKey is equal for equal keys.
func (k *key) hashKey() uint64 {
	h := uint64(14695981039346656037)
	for _, text := range [...]string{k.partition, k.inside, k.bars, k.gres} { // mostly empty
		for i := range len(text) {
			h = (h ^ uint64(text[i])) * 1099511628211
		}
	}
	for _, v := range [...]int64{k.tasks, k.cpusPerTask, k.cpusPerGPU, k.minCPUs, k.perNode, k.perCPU, k.perGPU, k.threads} {
		h = (h ^ uint64(v)) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return h
}

// index knows, for one need, when each node can give it: as spans of time, of
// which the last may be endless.
type index struct {
	t       *Timeline
	key     key
	next    *index  // of the same hash
	view    *viewer // nil: nothing is barred
	demand  *place.Demand
	tasks   int64
	shape   *place.Shape                // the first that was asked about
	onShape shapeNeed                   // the need on it
	needs   map[*place.Shape]*shapeNeed // on the others
	spans   [][]window                  // by node: those that end
	tail    []spec.Instant              // by node: when the endless one begins; FarFuture = never
	hole    []spec.Span                 // by node: the longest of spans
	seen    int                         // changes of the timeline that are accounted for
	built   bool
	known   []bound
	given   int // promises given back when known was found out
	// rankings are the lists of nodes that were asked about, with the nodes in order
	// where they are asked about often.
	rankings []*ranking
}

// bound says that so many nodes cannot give it for so long before an instant.
// It holds for more nodes and for longer, too, until a promise is given back.
type bound struct {
	nodes int64
	limit spec.Span
	set   *int32 // the nodes that were asked about, by where they are listed
	from  spec.Instant
}

// raiseToKnown raises an instant to what is known to precede every start.
func (x *index) raiseToKnown(
	ids []int32,
	n int64,
	from spec.Instant,
	limit spec.Span,
) spec.Instant {
	if x.given != x.t.given {
		x.known, x.given = x.known[:0], x.t.given
	}
	for i := range x.known {
		if b := &x.known[i]; b.nodes <= n && b.limit <= limit && b.from > from && b.set == &ids[0] {
			from = b.from
		}
	}
	return from
}

// learnStart notes what was found. What follows from it is dropped.
func (x *index) learnStart(ids []int32, n int64, limit spec.Span, from spec.Instant) {
	keep := x.known[:0]
	for _, b := range x.known {
		if b.set != &ids[0] || b.nodes < n || b.limit < limit || b.from > from {
			keep = append(keep, b)
		}
	}
	x.known = append(keep, bound{n, limit, &ids[0], from})
}

// shapeNeed is the need on nodes of one shape.
type shapeNeed struct {
	place.Need
	ok    bool // such a node can give it when idle
	loose bool // what is taken depends on what is free: Need is the least
}

// window is a span of time.
type window struct{ from, to spec.Instant }

// indexFor finds or makes the index of what tasks of a demand need of a node.
func (t *Timeline) indexFor(demand *place.Demand, tasks int64, bars Bars) *index {
	k := t.keyOf(demand, tasks)
	k.bars = bars.Key
	h := k.hashKey()
	first := t.indexes[h]
	for x := first; x != nil; x = x.next {
		if x.key == k {
			return x
		}
	}
	x := t.madeIndexes.take()
	*x = index{
		t:      t,
		key:    k,
		next:   first,
		view:   t.viewerFor(bars),
		demand: demand,
		tasks:  tasks,
		spans:  x.spans,
		tail:   x.tail,
		hole:   x.hole,
		known:  x.known[:0],
	}
	t.indexes[h] = x
	return x
}

func (x *index) needOf(shape *place.Shape) *shapeNeed {
	if x.shape == shape {
		return &x.onShape
	}
	if n := x.needs[shape]; n != nil {
		return n
	}
	need := &x.onShape
	if x.shape == nil {
		x.shape = shape
	} else {
		if x.needs == nil {
			x.needs = map[*place.Shape]*shapeNeed{}
		}
		need = &shapeNeed{}
		x.needs[shape] = need
	}
	need.Need, need.ok, need.loose = x.demand.Fixed(shape, x.tasks)
	return need
}

// applyPromises accounts for the promises made since the last question.
func (x *index) applyPromises() {
	if !x.built {
		n := len(x.t.lanes)
		if cap(x.spans) < n {
			x.spans = make([][]window, n)
			x.tail = make([]spec.Instant, n)
			x.hole = make([]spec.Span, n)
		}
		x.spans = x.spans[:n]
		x.tail = x.tail[:n]
		x.hole = x.hole[:n]
		for id, lane := range x.t.lanes {
			if lane != nil {
				x.rebuildSpans(id, lane)
				continue
			}
			x.spans[id] = x.spans[id][:0]
			x.tail[id] = spec.FarFuture
			x.hole[id] = 0
		}
		x.built, x.seen = true, len(x.t.changed)
		return
	}
	if x.seen == len(x.t.changed) {
		return
	}
	piecewise := x.view == nil && !x.t.apart
	for _, c := range x.t.mergeChanges(x.seen) {
		if piecewise {
			x.updateSpans(int(c.id), x.t.lanes[c.id], c.from, c.to)
		} else {
			x.rebuildSpans(int(c.id), x.t.lanes[c.id])
		}
	}
	x.seen = len(x.t.changed)
}

// mergeChanges makes one of all changes of each node that came after the first few.
func (t *Timeline) mergeChanges(seen int) []change {
	t.epoch++
	t.merged = t.merged[:0]
	for _, c := range t.changed[seen:] {
		if t.stamp[c.id] != t.epoch {
			t.stamp[c.id] = t.epoch
			t.turnOf[c.id] = int32(len(t.merged))
			t.merged = append(t.merged, c)
			continue
		}
		all := &t.merged[t.turnOf[c.id]]
		all.from = min(all.from, c.from)
		all.to = max(all.to, c.to)
	}
	return t.merged
}

// updateSpans is rebuildSpans for a lane that has changed within [from, to) only, where
// nothing is barred. What lies before and behind stays as it is, which is most of a
// lane in a deep plan.
func (x *index) updateSpans(id int, l *lane, from, to spec.Instant) {
	need := x.needOf(l.shape)
	if !need.ok {
		return
	}
	old := x.spans[id]
	kept := 0
	for kept < len(old) && old[kept].to < from {
		kept++
	}
	open, since := false, spec.Instant(0)
	switch {
	case kept < len(old):
		open, since = old[kept].from < from, old[kept].from
	case x.tail[id] < from:
		open, since = true, x.tail[id]
	}
	spans := x.t.parts[:0]
	k := l.segmentAt(from)
	for ; k < len(l.segs) && l.segs[k].from < to; k++ {
		holds := l.segs[k].free.Holds(&need.Use)
		switch {
		case holds && !open:
			open, since = true, l.segs[k].from
		case !holds && open:
			open = false
			spans = append(spans, window{since, l.segs[k].from})
		}
	}
	tail := x.tail[id]
	if k == len(l.segs) {
		tail = spec.FarFuture
		if open {
			tail = since
		}
	} else {
		at := l.segs[k].from
		rest := kept
		for rest < len(old) && old[rest].to <= at {
			rest++
		}
		holds := l.segs[k].free.Holds(&need.Use)
		switch {
		case holds && !open:
			open, since = true, at
		case !holds && open:
			open = false
			spans = append(spans, window{since, at})
		}
		switch {
		case open && rest < len(old):
			spans = append(spans, window{since, old[rest].to})
			rest++
		case open:
			tail = since
		}
		spans = append(spans, old[rest:]...)
	}
	x.t.parts = spans
	x.setSpans(id, append(old[:kept], spans...), tail)
}

// rebuildSpans derives a node's spans from its lane.
func (x *index) rebuildSpans(id int, l *lane) {
	need := x.needOf(l.shape)
	spans := x.spans[id][:0]
	open, since := false, spec.Instant(0)
	if need.ok {
		for i := range l.segs {
			holds := l.segs[i].free.Holds(&need.Use)
			switch {
			case holds && !open:
				open, since = true, l.segs[i].from
			case !holds && open:
				open = false
				spans = append(spans, window{since, l.segs[i].from})
			}
		}
	}
	tail := spec.FarFuture
	if open {
		tail = since
	}
	spans, tail = x.view.cutBarred(id, spans, tail)
	spans, tail = cutWindows(x.t.strangerWindows(int32(id), &x.demand.Tenant, nil), spans, tail)
	x.setSpans(id, spans, tail)
}

// setSpans notes the spans of a node.
func (x *index) setSpans(id int, spans []window, tail spec.Instant) {
	hole := spec.Span(0)
	for _, w := range spans {
		hole = max(hole, w.to.Sub(w.from))
	}
	before := x.tail[id]
	x.spans[id] = spans
	x.hole[id] = hole
	x.tail[id] = tail
	for _, r := range x.rankings {
		r.updateNode(id, before, tail, x.holeOf(id))
	}
}

// firstStart is the earliest start on one node, or FarFuture.
func (x *index) firstStart(id int32, from spec.Instant, limit spec.Span) spec.Instant {
	if x.hole[id] >= limit {
		for _, w := range x.spans[id] {
			if s := max(w.from, from); w.to.Sub(s) >= limit {
				return s
			}
		}
	}
	if x.tail[id] == spec.FarFuture {
		return spec.FarFuture
	}
	return max(x.tail[id], from)
}

// fitsThroughout tells whether one node can give it throughout [at, at+limit).
func (x *index) fitsThroughout(id int32, at spec.Instant, limit spec.Span) bool {
	if x.tail[id] <= at {
		return true
	}
	if x.hole[id] >= limit {
		for _, w := range x.spans[id] {
			if w.from > at {
				return false
			}
			if w.to.Sub(at) >= limit {
				return true
			}
		}
	}
	return false
}

// earliestFit is the first instant not before from at which n of the listed nodes
// can give it for the whole limit, or FarFuture.
func (x *index) earliestFit(ids []int32, n int64, from spec.Instant, limit spec.Span) spec.Instant {
	if len(ids) == 0 {
		return spec.FarFuture
	}
	x.applyPromises()
	from = x.raiseToKnown(ids, n, from, limit)
	at := x.searchStart(ids, n, from, limit)
	if at > from {
		x.learnStart(ids, n, limit, at)
	}
	return at
}

// searchStart is earliestFit without what is known.
func (x *index) searchStart(ids []int32, n int64, from spec.Instant, limit spec.Span) spec.Instant {
	if r := x.rankingFor(ids); r != nil {
		return r.searchStart(x, ids, n, from, limit)
	}
	if n == 1 {
		best := spec.FarFuture
		for _, id := range ids {
			best = min(best, x.firstStart(id, from, limit))
			if best == from {
				break
			}
		}
		return best
	}
	timeline := x.t
	timeline.tails = timeline.tails[:0]
	holes := false
	for _, id := range ids {
		if x.tail[id] != spec.FarFuture {
			timeline.tails = append(timeline.tails, max(x.tail[id], from))
		}
		holes = holes || x.hole[id] >= limit
	}
	latest := spec.FarFuture
	if int64(len(timeline.tails)) >= n {
		latest = nthSmallest(timeline.tails, int(n)-1)
	}
	if !holes || latest == from {
		return latest
	}
	return x.withHoles(ids, n, window{from, latest}, limit)
}

// withHoles is earliest where spans that end may help: it counts, at the
// beginning of each span, how many nodes can start then. That within.to is a
// start is known from the endless spans alone, so only earlier ones are
// looked for.
func (x *index) withHoles(ids []int32, n int64, within window, limit spec.Span) spec.Instant {
	timeline := x.t
	timeline.windows = timeline.windows[:0]
	for _, id := range ids {
		timeline.windows = x.appendHoles(timeline.windows, id, within, limit)
		if s := max(x.tail[id], within.from); x.tail[id] != spec.FarFuture && s < within.to {
			timeline.windows = append(timeline.windows, window{s, spec.FarFuture})
		}
	}
	return timeline.sweepWindows(n, within.to)
}

// appendHoles appends the first and the last starts in the spans of a node that end,
// as far as they lie within a span of time.
func (x *index) appendHoles(windows []window, id int32, within window, limit spec.Span) []window {
	if x.hole[id] < limit {
		return windows
	}
	for _, w := range x.spans[id] {
		if w.from >= within.to {
			break
		}
		if s := max(w.from, within.from); w.to.Sub(s) >= limit {
			windows = append(windows, window{s, w.to.Add(-limit)})
		}
	}
	return windows
}

// sweepWindows is the first instant at which n of the windows in t.windows are open, or
// the given one, which is later than the beginning of each.
func (t *Timeline) sweepWindows(n int64, otherwise spec.Instant) spec.Instant {
	if int64(len(t.windows)) < n {
		return otherwise
	}
	todo := t.windows // a heap with the first to open on top: mostly a few are enough
	for i := len(todo)/2 - 1; i >= 0; i-- {
		siftDown(todo, i)
	}
	t.tails = t.tails[:0] // a heap of the last starts of the windows that are open
	for len(todo) > 0 {
		at := todo[0].from
		for len(todo) > 0 && todo[0].from == at {
			t.tails = pushLeast(t.tails, todo[0].to)
			todo[0] = todo[len(todo)-1]
			todo = todo[:len(todo)-1]
			siftDown(todo, 0)
		}
		for len(t.tails) > 0 && t.tails[0] < at {
			t.tails = popLeast(t.tails)
		}
		if int64(len(t.tails)) >= n {
			return at
		}
	}
	return otherwise
}

// siftDown lets a window sink to its place in a heap by from.
func siftDown(windows []window, i int) {
	for {
		kid := 2*i + 1
		if kid >= len(windows) {
			return
		}
		if kid+1 < len(windows) && windows[kid+1].from < windows[kid].from {
			kid++
		}
		if windows[i].from <= windows[kid].from {
			return
		}
		windows[i], windows[kid] = windows[kid], windows[i]
		i = kid
	}
}

// pushLeast and pop keep a slice as a heap with the least first.
func pushLeast(h []spec.Instant, v spec.Instant) []spec.Instant {
	h = append(h, v)
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if h[up] <= h[i] {
			break
		}
		h[up], h[i] = h[i], h[up]
		i = up
	}
	return h
}

func popLeast(h []spec.Instant) []spec.Instant {
	n := len(h) - 1
	h[0] = h[n]
	h = h[:n]
	for i := 0; ; {
		kid := 2*i + 1
		if kid >= n {
			return h
		}
		if kid+1 < n && h[kid+1] < h[kid] {
			kid++
		}
		if h[i] <= h[kid] {
			return h
		}
		h[i], h[kid] = h[kid], h[i]
		i = kid
	}
}

// nthSmallest is the k-th smallest of a list, counted from 0. The list is reordered.
func nthSmallest(list []spec.Instant, k int) spec.Instant {
	lo, hi := 0, len(list)-1
	for lo < hi {
		pivot := list[int(uint(lo+hi)>>1)]
		i, j := lo, hi
		for i <= j {
			for list[i] < pivot {
				i++
			}
			for list[j] > pivot {
				j--
			}
			if i <= j {
				list[i], list[j] = list[j], list[i]
				i, j = i+1, j-1
			}
		}
		switch {
		case k <= j:
			hi = j
		case k >= i:
			lo = i
		default:
			return list[k]
		}
	}
	return list[lo]
}
