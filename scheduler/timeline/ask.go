package timeline

import (
	"slices"

	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/spec"
)

// Query is one class of identical requests in one pass. What is found out for
// one of them holds for the next.
type Query struct {
	Demand  place.Demand
	allowed spec.Bitset // node ids
	ids     []int32     // those of them that the timeline has
	options place.Options
	view    *viewer // nil: nothing is barred

	wantsGPU bool
	even     bool   // every node gets the same: each
	nodes    int64  // of the even form; 0 = there is none
	each     int64  // tasks of a node in the even form
	form     *index // of the even form
	one      *index // of a single task; only if not even
	reduced  *place.Demand
	// from is an instant before which no start exists any more.
	from spec.Instant

	oneOf  []*Query // the same on each of some sets of nodes: whichever is first
	prefer *Query   // the same on nodes that are preferred, if that can start now
}

// NewQuery prepares the questions about a demand on the allowed nodes.
func (t *Timeline) NewQuery(
	demand place.Demand,
	allowed spec.Bitset,
	options place.Options,
	bars Bars,
) *Query {
	query := t.madeAsks.take()
	*query = Query{
		Demand:   demand,
		allowed:  allowed,
		options:  options,
		view:     t.viewerFor(bars),
		from:     t.now,
		wantsGPU: demand.WantsGPU(),
	}
	if len(options.OneOf) > 0 || options.Prefer != nil {
		return t.chooseSets(query, bars)
	}
	if n := options.Must.Count(); n > 0 && int64(n) == demand.MaxNodes &&
		len(options.Quotas) == 0 &&
		!options.Contiguous {
		query.allowed, query.options.Must = options.Must.And(allowed), nil
	}
	query.ids = t.listNodes(query.allowed)
	loose := t.mixed &&
		slices.ContainsFunc(
			query.ids,
			func(id int32) bool { return demand.Loose(t.lanes[id].shape) },
		)
	loose = loose ||
		(options.Mix != nil && demand.MaxNodes == 1) // the choice is not one of an order of nodes
	tasks, even := demand.Even()
	query.even = even && !loose && query.options.Open()
	if form, each, ok := evenForm(&query.Demand); ok && !loose && query.options.Open() {
		query.nodes = demand.MinNodes
		query.each = each
		query.form = t.indexFor(form, each, bars)
	}
	if query.even {
		query.each = tasks
		return query
	}
	query.reduced = &place.Demand{}
	*query.reduced = demand
	query.reduced.PerJob = nil
	query.one = t.indexFor(query.reduced, 1, bars)
	return query
}

// evenForm is a demand on the fewest nodes with the same for each of them; it
// satisfies the demand, but there may be other ways to do that.
func evenForm(demand *place.Demand) (form *place.Demand, tasks int64, ok bool) {
	if demand.Tasks%demand.MinNodes != 0 {
		return nil, 0, false
	}
	tasks = demand.Tasks / demand.MinNodes
	if demand.TasksPerNode > 0 && tasks > demand.TasksPerNode {
		return nil, 0, false
	}
	if demand.MinNodes == 1 && demand.MaxNodes == 1 {
		return demand, tasks, true
	}
	f := *demand
	f.MaxNodes, f.PerJob = 1, nil // of one node: its share of what the job as a whole gets
	for _, count := range demand.PerJob {
		if count.N%demand.MinNodes != 0 {
			return nil, 0, false
		}
		count.N /= demand.MinNodes
		f.PerJob = append(f.PerJob, count)
	}
	return &f, tasks, true
}

// Slot is a start that was found.
type Slot struct {
	Start spec.Instant
	Parts []place.Part
}

// Hint is where a job was promised to start before: the same nodes are taken
// again unless it can start earlier.
type Hint struct {
	Start   spec.Instant
	Nodes   []spec.NodeID
	Devices []view.PlannedDevice
}

// devicesOn is which devices of a node were promised, by position.
func (h *Hint) devicesOn(id spec.NodeID) []int32 {
	var out []int32
	for _, device := range h.Devices {
		if device.Node == id {
			out = append(out, device.Pos)
		}
	}
	return out
}

// Earliest finds the first start, or false when there is none up to until.
func (t *Timeline) Earliest(query *Query, until spec.Instant, hint *Hint) (Slot, bool) {
	if query.from > until {
		return Slot{}, false
	}
	if query.oneOf != nil {
		return t.earliestOnSets(query, until, hint)
	}
	at := spec.FarFuture
	if query.form != nil {
		at = query.form.earliestFit(query.ids, query.nodes, query.from, query.Demand.Limit)
	}
	if !query.even {
		if parts, sooner := t.startUneven(query, min(at, until.Add(1)), hint); parts != nil {
			query.from = sooner
			return Slot{sooner, parts}, true
		}
	}
	if at == spec.FarFuture || at > until {
		if !query.even {
			at = min(at, until.Add(1)) // beyond that nobody looked
		}
		query.from = max(query.from, at)
		return Slot{}, false
	}
	query.from = at
	return Slot{at, t.chooseNodes(query, at, hint)}, true
}

// NotNow tells that no start at an instant exists any more.
func (query *Query) NotNow(now spec.Instant) bool { return query.from > now }

// chooseNodes takes the best of the nodes that fit the even form at an instant.
func (t *Timeline) chooseNodes(query *Query, at spec.Instant, hint *Hint) []place.Part {
	x, limit := query.form, query.Demand.Limit
	want := int(query.nodes)
	if hint != nil && len(hint.Nodes) == want && query.Demand.Stretch == 0 &&
		t.canRepeat(query, at, hint) {
		return t.partsOn(query, at, hint.Nodes)
	}
	t.ranks = x.appendFitting(t.ranks[:0], query.ids, at, limit)
	if at == t.now && query.even {
		want = max(want, min(int(query.Demand.Stretch), len(t.ranks)))
	}
	if tree := query.options.Tree; tree != nil && want > 1 && want < len(t.ranks) {
		t.narrowRanks(tree, query, at, want)
	}
	if want < len(t.ranks) {
		for i := range t.ranks {
			t.ranks[i].order = t.nodeOrder(query, t.lanes[t.ranks[i].id], at)
		}
		selectLeast(t.ranks, want)
	}
	ids := make([]spec.NodeID, want)
	for i := range ids {
		ids[i] = spec.NodeID(t.ranks[i].id)
	}
	slices.Sort(ids)
	return t.partsOn(query, at, ids)
}

// appendFitting appends the listed nodes that can give it throughout [at, at+limit), in
// any order.
func (x *index) appendFitting(
	ranks []rank,
	ids []int32,
	at spec.Instant,
	limit spec.Span,
) []rank {
	if r := x.rankingOf(ids); r != nil {
		return r.appendFitting(x, ranks, at, limit)
	}
	for _, id := range ids {
		if x.fitsThroughout(id, at, limit) {
			ranks = append(ranks, rank{id: id})
		}
	}
	return ranks
}

// rank orders a node among those that can all take a demand.
type rank struct {
	order uint64
	id    int32
}

func (r rank) ranksBefore(q rank) bool {
	return r.order < q.order || (r.order == q.order && r.id < q.id)
}

// nodeOrder is place.Demand's order of nodes in one number: weight, those that are
// up, then (with LLN) the emptiest, then GPUs kept for those who want them, then the fullest.
func (t *Timeline) nodeOrder(query *Query, l *lane, at spec.Instant) uint64 {
	free := &l.segs[0].free
	if at != t.now {
		free = &l.segs[l.segmentAt(at)].free
	}
	cpu, gpu := uint64(min(max(free.CPU, 0), 1<<16-1)), uint64(min(max(free.GPU, 0), 1<<15-1))
	if l.shape.GPUs > 0 && !query.wantsGPU {
		gpu |= 1 << 15
	}
	first := uint64(l.node.Spec.Weight) << 33
	if l.node.Asleep() {
		first |= 1 << 32
	}
	if query.options.LLN {
		return first | (1<<16-1-cpu)<<16 | gpu
	}
	return first | gpu<<16 | cpu
}

// selectLeast brings the first k of a list to its front, in any order.
func selectLeast(list []rank, k int) {
	lo, hi := 0, len(list)-1
	for lo < hi {
		pivot := list[int(uint(lo+hi)>>1)]
		i, j := lo, hi
		for i <= j {
			for list[i].ranksBefore(pivot) {
				i++
			}
			for pivot.ranksBefore(list[j]) {
				j--
			}
			if i <= j {
				list[i], list[j] = list[j], list[i]
				i, j = i+1, j-1
			}
		}
		switch {
		case k-1 <= j:
			hi = j
		case k-1 >= i:
			lo = i
		default:
			return
		}
	}
}

// canRepeat tells whether a promise can be kept on the same nodes.
func (t *Timeline) canRepeat(query *Query, at spec.Instant, hint *Hint) bool {
	if hint.Start > at {
		return false
	}
	for _, id := range hint.Nodes {
		if !t.Usable(id) || !query.allowed.Has(int(id)) ||
			!query.form.fitsThroughout(int32(id), at, query.Demand.Limit) {
			return false
		}
	}
	return true
}

// partsOn shares the tasks out over the chosen nodes, in order of their ids. The
// even form told only that they have room: a demand that does not ask for the
// same on each of them fills the first, as wherever else it is placed.
func (t *Timeline) partsOn(query *Query, at spec.Instant, ids []spec.NodeID) []place.Part {
	if query.even || len(ids) == 1 {
		return t.evenParts(query, ids)
	}
	end := at.Add(query.Demand.Limit)
	t.cands = t.cands[:0]
	for _, id := range ids {
		lane := t.lanes[id]
		t.cands = append(
			t.cands,
			place.Candidate{Node: lane.node, Shape: lane.shape, Free: lane.leastOver(at, end)},
		)
	}
	if parts := place.Pick(&query.Demand, t.cands, query.options); len(parts) == len(ids) {
		return parts
	}
	return t.evenParts(query, ids) // what the job asks for as a whole may fit in even shares only
}

// evenParts is the even form on nodes in order of their ids.
func (t *Timeline) evenParts(query *Query, ids []spec.NodeID) []place.Part {
	parts := make([]place.Part, len(ids))
	for i, id := range ids {
		lane := t.lanes[id]
		parts[i] = place.Part{
			Node: lane.node, Tasks: query.each, Need: query.form.needOf(lane.shape).Need,
		}
	}
	return parts
}

// Reset drops what earlier questions found out, after a promise was given back.
func (query *Query) Reset(now spec.Instant) {
	query.from = now
	for _, sub := range query.oneOf {
		sub.Reset(now)
	}
	if query.prefer != nil {
		query.prefer.Reset(now)
	}
}

// NotBefore rules out starts before an instant.
func (query *Query) NotBefore(t spec.Instant) { query.from = max(query.from, t) }
