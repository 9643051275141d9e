package timeline

import (
	"slices"

	"github.com/musterhpc/muster/spec"
)

// A deep queue asks an index the same question for thousands of jobs: when can n of
// these nodes give it. To look at each node each time is most of what a pass over
// thousands of nodes costs, although a promise changes a few of them. A ranking keeps
// the answer for each node in order, so that a question costs as much as the nodes that
// it is about: those that can give it by then, and those with a hole of that length.

const (
	// minRanked is from how many nodes on a list is ranked. Below, to look at all of
	// them costs less than to keep them in order.
	minRanked = 128
	// rankedAfter is how often a list is looked through before it is ranked: many
	// needs are asked about once.
	rankedAfter = 3
	// maxRankings is how many lists of one index are ranked. Each costs memory in
	// proportion to the nodes of the cluster.
	maxRankings = 8
)

// rankingRule says which lists are ranked: from how many nodes on, and after how many
// questions.
type rankingRule struct{ minNodes, after int }

// ranking is a list of nodes in the order in which they can give a need for ever,
// and where among them the holes are.
type ranking struct {
	first *int32 // names the list: where it is stored
	asked int    // questions before it was made
	made  bool
	nodes spec.Bitset
	tails tailOrder
	holes holeTree

	versions []uint32 // by node id: how often its spans have changed
	starts   []*startOrder
}

// rankingFor is the ranking of a list, or nil while there is none.
func (x *index) rankingFor(ids []int32) *ranking {
	if len(ids) < x.t.ranking.minNodes {
		return nil
	}
	for _, r := range x.rankings {
		if r.first != &ids[0] {
			continue
		}
		if !r.made {
			r.asked++
			if r.asked < x.t.ranking.after {
				return nil
			}
			r.rankNodes(x, ids)
		}
		return r
	}
	if len(x.rankings) < maxRankings {
		x.rankings = append(x.rankings, &ranking{first: &ids[0]})
	}
	return nil
}

// rankingOf is the ranking of a list that has been asked about, or nil.
func (x *index) rankingOf(ids []int32) *ranking {
	for _, r := range x.rankings {
		if r.made && r.first == &ids[0] {
			return r
		}
	}
	return nil
}

// rankNodes fills a ranking from what the index knows of each node.
func (r *ranking) rankNodes(x *index, ids []int32) {
	r.made = true
	r.holes.makeTree(len(x.tail))
	r.versions = make([]uint32, len(x.tail))
	entries := make([]tailEntry, 0, len(ids))
	for _, id := range ids {
		r.nodes = r.nodes.Set(int(id))
		r.holes.leaves[id] = x.holeOf(int(id))
		if x.tail[id] != spec.FarFuture {
			entries = append(entries, tailEntry{x.tail[id], id})
		}
	}
	r.holes.sumUp()
	r.tails.fillSorted(entries)
}

// updateNode brings a node up to date whose spans have changed.
func (r *ranking) updateNode(id int, before, after spec.Instant, hole hole) {
	if !r.made || !r.nodes.Has(id) {
		return
	}
	r.versions[id]++
	r.holes.setLeaf(id, hole)
	if before == after {
		return
	}
	if before != spec.FarFuture {
		r.tails.removeEntry(tailEntry{before, int32(id)})
	}
	if after != spec.FarFuture {
		r.tails.addEntry(tailEntry{after, int32(id)})
	}
}

// hole is what a search may skip a node by: no span that ends is longer, nor ends later.
type hole struct {
	longest spec.Span
	end     spec.Instant
}

// helpsFrom tells whether there may be a start not before an instant.
func (h hole) helpsFrom(from spec.Instant, limit spec.Span) bool {
	return h.longest >= limit && h.end.Sub(from) >= limit
}

func (h hole) unionWith(o hole) hole {
	return hole{max(h.longest, o.longest), max(h.end, o.end)}
}

// holeOf is what is known of the spans of a node that end.
func (x *index) holeOf(id int) hole {
	if n := len(x.spans[id]); n > 0 {
		return hole{x.hole[id], x.spans[id][n-1].to}
	}
	return hole{}
}

// holeTree finds the nodes whose holes help without a look at the others. Each inner
// node is the union of the two below it.
type holeTree struct {
	leaves []hole   // by node id
	levels [][]hole // each half as long as the one before
}

func (t *holeTree) makeTree(n int) {
	t.leaves = make([]hole, n)
	for n > 1 {
		n = (n + 1) / 2
		t.levels = append(t.levels, make([]hole, n))
	}
}

func (t *holeTree) sumUp() {
	below := t.leaves
	for _, level := range t.levels {
		for i := range level {
			level[i] = unionAt(below, i)
		}
		below = level
	}
}

// unionAt is the union of the two nodes below the ith of a level.
func unionAt(below []hole, i int) hole {
	if 2*i+1 < len(below) {
		return below[2*i].unionWith(below[2*i+1])
	}
	return below[2*i]
}

func (t *holeTree) setLeaf(i int, h hole) {
	if t.leaves[i] == h {
		return
	}
	t.leaves[i] = h
	below := t.leaves
	for _, level := range t.levels {
		i /= 2
		h = unionAt(below, i)
		if level[i] == h {
			return
		}
		level[i] = h
		below = level
	}
}

// appendHelpful appends the nodes whose holes help, in order of their ids.
func (t *holeTree) appendHelpful(out []int32, from spec.Instant, limit spec.Span) []int32 {
	return t.appendBelow(out, len(t.levels), 0, from, limit)
}

func (t *holeTree) appendBelow(
	out []int32,
	height, i int,
	from spec.Instant,
	limit spec.Span,
) []int32 {
	if height == 0 {
		if i < len(t.leaves) && t.leaves[i].helpsFrom(from, limit) {
			out = append(out, int32(i))
		}
		return out
	}
	level := t.levels[height-1]
	if i >= len(level) || !level[i].helpsFrom(from, limit) {
		return out
	}
	out = t.appendBelow(out, height-1, 2*i, from, limit)
	return t.appendBelow(out, height-1, 2*i+1, from, limit)
}

// tailEntry is a node and the instant from which it can give a need for ever.
type tailEntry struct {
	tail spec.Instant
	id   int32
}

func (e tailEntry) precedesEntry(o tailEntry) bool {
	return e.tail < o.tail || (e.tail == o.tail && e.id < o.id)
}

// tailOrder keeps entries in order, in buckets of which none is empty: to add one moves
// a bucket and not the whole list.
type tailOrder struct{ buckets [][]tailEntry }

// maxBucket bounds what an insertion has to move. A bucket that is full is halved, so that
// neighbours that come next find room.
const maxBucket = 128

func (o *tailOrder) fillSorted(entries []tailEntry) {
	slices.SortFunc(entries, func(a, b tailEntry) int {
		if a.precedesEntry(b) {
			return -1
		}
		return 1
	})
	for chunk := range slices.Chunk(entries, maxBucket/2) {
		o.buckets = append(o.buckets, append(make([]tailEntry, 0, maxBucket), chunk...))
	}
}

// bucketFor is the bucket that an entry is in, or belongs into; there is one.
func (o *tailOrder) bucketFor(entry tailEntry) int {
	low, high := 0, len(o.buckets)
	for low < high {
		middle := int(uint(low+high) >> 1)
		if entry.precedesEntry(o.buckets[middle][0]) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return max(low-1, 0)
}

// placeOf is where in a bucket an entry is, or belongs.
func placeOf(bucket []tailEntry, entry tailEntry) int {
	low, high := 0, len(bucket)
	for low < high {
		middle := int(uint(low+high) >> 1)
		if bucket[middle].precedesEntry(entry) {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

func (o *tailOrder) addEntry(entry tailEntry) {
	if len(o.buckets) == 0 {
		o.fillSorted([]tailEntry{entry})
		return
	}
	b := o.bucketFor(entry)
	if len(o.buckets[b]) == maxBucket {
		upper := append(make([]tailEntry, 0, maxBucket), o.buckets[b][maxBucket/2:]...)
		o.buckets[b] = o.buckets[b][:maxBucket/2]
		o.buckets = slices.Insert(o.buckets, b+1, upper)
		if upper[0].precedesEntry(entry) {
			b++
		}
	}
	o.buckets[b] = slices.Insert(o.buckets[b], placeOf(o.buckets[b], entry), entry)
}

// removeEntry removes an entry that is there.
func (o *tailOrder) removeEntry(entry tailEntry) {
	b := o.bucketFor(entry)
	at := placeOf(o.buckets[b], entry)
	o.buckets[b] = slices.Delete(o.buckets[b], at, at+1)
	if len(o.buckets[b]) == 0 {
		o.buckets = slices.Delete(o.buckets, b, b+1)
	}
}

// nthTail is the kth instant in order, counted from 0, or FarFuture.
func (o *tailOrder) nthTail(k int64) spec.Instant {
	for _, bucket := range o.buckets {
		if k < int64(len(bucket)) {
			return bucket[k].tail
		}
		k -= int64(len(bucket))
	}
	return spec.FarFuture
}

// eachUntil calls for each entry whose instant is not after a given one, in order.
func (o *tailOrder) eachUntil(at spec.Instant, call func(tailEntry)) {
	for _, bucket := range o.buckets {
		for _, entry := range bucket {
			if entry.tail > at {
				return
			}
			call(entry)
		}
	}
}

// searchStart is index.searchStart with the nodes in order.
func (r *ranking) searchStart(
	x *index,
	ids []int32,
	n int64,
	from spec.Instant,
	limit spec.Span,
) spec.Instant {
	if n == 1 {
		if at, known := r.firstOf(x, ids, from, limit); known {
			return at
		}
	}
	latest := r.tails.nthTail(n - 1)
	if latest != spec.FarFuture {
		latest = max(latest, from)
	}
	if latest == from {
		return latest
	}
	timeline := x.t
	timeline.helpful = r.holes.appendHelpful(timeline.helpful[:0], from, limit)
	if n == 1 {
		for _, id := range timeline.helpful {
			latest = min(latest, x.firstStart(id, from, limit))
			if latest == from {
				break
			}
		}
		return latest
	}
	if len(timeline.helpful) == 0 {
		return latest
	}
	timeline.windows = timeline.windows[:0]
	within := window{from, latest}
	for _, id := range timeline.helpful {
		timeline.windows = x.appendHoles(timeline.windows, id, within, limit)
	}
	r.tails.eachUntil(latest-1, func(entry tailEntry) {
		timeline.windows = append(timeline.windows, window{max(entry.tail, from), spec.FarFuture})
	})
	return timeline.sweepWindows(n, latest)
}

// appendFitting is index.appendFitting with the nodes in order.
func (r *ranking) appendFitting(
	x *index,
	ranks []rank,
	at spec.Instant,
	limit spec.Span,
) []rank {
	r.tails.eachUntil(at, func(e tailEntry) { ranks = append(ranks, rank{id: e.id}) })
	timeline := x.t
	timeline.helpful = r.holes.appendHelpful(timeline.helpful[:0], at, limit)
	for _, id := range timeline.helpful {
		if x.tail[id] > at && x.fitsThroughout(id, at, limit) {
			ranks = append(ranks, rank{id: id})
		}
	}
	return ranks
}

// maxStarts is for how many time limits the nodes of a ranking are kept in order of
// their first starts.
const maxStarts = 16

// startOrder are the nodes of a list in order of their first start for a time limit,
// as a heap. A promise makes a node start later and never earlier, so that an entry
// that is out of date is too early: it is put right when it comes to the top.
type startOrder struct {
	limit spec.Span
	asked int // questions before it was made
	made  bool
	grown int // see Timeline.grown
	heap  []startEntry
}

type startEntry struct {
	at      spec.Instant
	id      int32
	version uint32
}

// firstOf is the earliest start on any one node. It is not known where the order is not
// worth its memory, and where earlier starts are ruled out that the nodes have.
func (r *ranking) firstOf(
	x *index,
	ids []int32,
	from spec.Instant,
	limit spec.Span,
) (at spec.Instant, known bool) {
	order := r.startsFor(limit, x.t.ranking.after)
	if order == nil {
		return 0, false
	}
	if !order.made || order.grown != x.t.grown {
		order.fillHeap(r, x, ids)
	}
	for len(order.heap) > 0 {
		top := &order.heap[0]
		if top.version == r.versions[top.id] {
			return top.at, top.at >= from
		}
		top.version = r.versions[top.id]
		top.at = x.firstStart(top.id, x.t.now, limit)
		order.sinkAt(0)
	}
	return spec.FarFuture, true
}

// startsFor finds or makes the order for a time limit; nil: not yet, or there are enough.
func (r *ranking) startsFor(limit spec.Span, after int) *startOrder {
	for _, order := range r.starts {
		if order.limit != limit {
			continue
		}
		order.asked++
		if order.asked < after {
			return nil
		}
		return order
	}
	if len(r.starts) < maxStarts {
		r.starts = append(r.starts, &startOrder{limit: limit})
	}
	return nil
}

func (o *startOrder) fillHeap(r *ranking, x *index, ids []int32) {
	o.made = true
	o.grown = x.t.grown
	o.heap = o.heap[:0]
	for _, id := range ids {
		o.heap = append(o.heap, startEntry{x.firstStart(id, x.t.now, o.limit), id, r.versions[id]})
	}
	for i := len(o.heap)/2 - 1; i >= 0; i-- {
		o.sinkAt(i)
	}
}

func (o *startOrder) sinkAt(i int) {
	entries := o.heap
	for {
		kid := 2*i + 1
		if kid >= len(entries) {
			return
		}
		if kid+1 < len(entries) && entries[kid+1].at < entries[kid].at {
			kid++
		}
		if entries[i].at <= entries[kid].at {
			return
		}
		entries[i], entries[kid] = entries[kid], entries[i]
		i = kid
	}
}
