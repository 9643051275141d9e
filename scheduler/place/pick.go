package place

import (
	"cmp"
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// Part is one node's part of a placement, by amount.
type Part struct {
	Node  *state.Node
	Tasks int64
	Need
}

// Candidate is a node that may be considered, with what it can give.
type Candidate struct {
	Node  *state.Node
	Shape *Shape
	Free  Free
	// Before are the devices that were promised there earlier: they are taken
	// again if they can be.
	Before []int32
	must   bool  // named by --nodelist
	fit    int64 // tasks
	room   int64 // of the first GRES asked for the job as a whole
	// spared is what is lost there for others, or what the device that the demand
	// takes a part of would have left; 0 where neither is asked.
	spared int64
}

// Options restrict and order the candidates.
type Options struct {
	Must spec.Bitset // nodes that have to be part of it
	LLN  bool        // least loaded first

	OneOf      []spec.Bitset // all nodes are of one of these sets; nil: of any
	Prefer     spec.Bitset   // taken if a start on them is possible at once; nil: none
	Quotas     []Quota       // so many nodes of each set
	Contiguous bool          // neighbours only
	Spread     bool          // as many nodes as may be, evenly loaded
	Tree       *Tree         // nodes below as few switches as may be; nil: none are known

	Segment       int64   // nodes in groups of so many, each in one block; 0 = any
	BlockOf       []int32 // by node id: the block; -1 = none
	ApartSegments bool    // each group in a block of its own

	Mix *Mix // what others are expected to ask for; nil: best fit
}

// Pick chooses nodes for a demand, or returns nil when the candidates cannot
// give it. If one node can take all tasks, the best fitting is taken: lowest
// weight, then one that is up, then least left over. Otherwise nodes of the lowest weight and then
// those that take most tasks come first, so that few are used; where that
// order finds none, weight does not count.
func Pick(demand *Demand, cands []Candidate, options Options) []Part {
	if len(options.OneOf) > 0 {
		return pickOneOf(demand, cands, options)
	}
	if options.Tree != nil && demand.MaxNodes > 1 {
		if parts := pickBelow(demand, cands, options); parts != nil {
			return parts
		}
	}
	usable := make([]Candidate, 0, len(cands))
	musts := 0
	share := demand.WantsShare()
	for i := range cands {
		candidate := &cands[i]
		candidate.fit, _ = demand.Fits(candidate.Shape, &candidate.Free)
		candidate.must = options.Must.Has(int(candidate.Node.ID))
		if candidate.fit == 0 {
			if candidate.must {
				return nil
			}
			continue
		}
		if len(demand.PerJob) > 0 {
			candidate.room = demand.roomFor(candidate.Shape, &candidate.Free, demand.PerJob[0])
		}
		if candidate.must {
			musts++
		}
		candidate.spared = 0
		switch {
		case options.Mix != nil && demand.MaxNodes == 1:
			loss := options.Mix.lossOf(demand, candidate)
			candidate.spared = loss.loss
			if len(candidate.Before) == 0 && loss.pos >= 0 {
				candidate.Before = []int32{loss.pos}
			}
		case share.N > 0:
			candidate.spared = candidate.spareAfter(demand, share)
		}
		usable = append(usable, *candidate)
	}
	if musts < options.Must.Count() {
		return nil
	}
	if demand.MaxNodes == 1 && len(options.Quotas) == 0 {
		return demand.placeBest(usable, musts, &options)
	}
	for _, by := range [...]func(a, b *Candidate) int{byFit(demand, options), byTasks, byRoom} {
		slices.SortStableFunc(usable, func(a, b Candidate) int { return by(&a, &b) })
		if parts := demand.layOut(slices.Clone(usable), musts, &options); parts != nil {
			return parts
		}
	}
	if len(demand.PerJob) == 0 || len(options.Quotas) > 0 || options.Contiguous ||
		options.Segment > 0 {
		return nil // by most tasks is the best there is
	}
	if chosen := demand.combineNodes(usable); chosen != nil {
		return demand.assembleNodes(chosen, musts, &options)
	}
	return nil
}

// placeBest places a demand of one node on the candidate that comes first of those
// that can take all of it.
func (d *Demand) placeBest(candidates []Candidate, musts int, options *Options) []Part {
	by, at := byFit(d, *options), -1
	for i := range candidates {
		candidate := &candidates[i]
		isEnough := candidate.fit >= d.Tasks && (musts == 0 || candidate.must)
		if !isEnough || !d.jobGRESFits(candidates[i:i+1]) {
			continue
		}
		if at < 0 || by(candidate, &candidates[at]) < 0 {
			at = i
		}
	}
	if at < 0 {
		return nil
	}
	return d.layOut([]Candidate{candidates[at]}, musts, options)
}

// layOut takes candidates in their order, as the options want it.
func (d *Demand) layOut(candidates []Candidate, musts int, options *Options) []Part {
	if len(options.Quotas) > 0 {
		var ok bool
		candidates, musts, ok = favourQuotas(candidates, musts, options.Quotas)
		if !ok {
			return nil
		}
	}
	if options.Contiguous {
		return d.findAdjacent(candidates, musts, options)
	}
	if options.Segment > 0 {
		return d.findSegments(candidates, musts, options)
	}
	return d.assembleNodes(candidates, musts, options)
}

// maxCombine bounds the table of combine.
const maxCombine = 1 << 20

// combineNodes looks for nodes that give enough tasks and enough of the GRES asked
// for the job as a whole where no simple order finds them: for each number of
// nodes and each amount of the GRES it keeps the most tasks, node by node. It
// gives up, and returns nil, where that table would be too large.
func (d *Demand) combineNodes(candidates []Candidate) []Candidate {
	nodes, most := int(min(d.MaxNodes, int64(len(candidates)))), int(d.PerJob[0].N)
	if nodes == 0 || len(candidates)*(nodes+1)*(most+1) > maxCombine {
		return nil
	}
	at := func(k, g int) int { return k*(most+1) + g }
	width := at(nodes, most) + 1
	tasks, taken := make([]int64, width), make([]bool, len(candidates)*width)
	for i := range tasks {
		tasks[i] = -1
	}
	var out []Candidate // begins with the nodes that have to be part of it
	have, sum := 0, int64(0)
	for i := range candidates {
		if candidates[i].must {
			out = append(out, candidates[i])
			have, sum = min(have+int(candidates[i].room), most), sum+candidates[i].fit
		}
	}
	if len(out) > nodes {
		return nil
	}
	for g := 0; g <= have; g++ {
		tasks[at(len(out), g)] = sum
	}
	for i := range candidates {
		for k := nodes; k > 0 && !candidates[i].must; k-- {
			for g := most; g >= 0; g-- {
				old := tasks[at(k-1, max(g-int(candidates[i].room), 0))]
				if to := at(k, g); old >= 0 && old+candidates[i].fit > tasks[to] {
					tasks[to], taken[i*width+to] = old+candidates[i].fit, true
				}
			}
		}
	}
	for k := max(int(d.MinNodes), len(out)); k <= nodes; k++ {
		if tasks[at(k, most)] < d.Tasks {
			continue
		}
		left := k - len(out)
		for i, g := len(candidates)-1, most; i >= 0 && left > 0; i-- {
			if taken[i*width+at(k, g)] {
				out = append(out, candidates[i])
				g, left, k = max(g-int(candidates[i].room), 0), left-1, k-1
			}
		}
		return out
	}
	return nil
}

// byFit is the preferred order.
func byFit(demand *Demand, options Options) func(a, b *Candidate) int {
	single := demand.MinNodes == 1
	return func(a, b *Candidate) int {
		if a.must != b.must {
			return last(b.must)
		}
		if c := cmp.Compare(a.Node.Spec.Weight, b.Node.Spec.Weight); c != 0 {
			return c
		}
		if a.Node.Asleep() != b.Node.Asleep() {
			return last(a.Node.Asleep())
		}
		if single && (a.fit >= demand.Tasks) != (b.fit >= demand.Tasks) {
			return last(b.fit >= demand.Tasks)
		}
		if !single && a.fit != b.fit {
			return cmp.Compare(b.fit, a.fit)
		}
		return demand.Compare(a, b, options.LLN)
	}
}

// last orders a pair of which one has a quality: after, if it is the second.
func last(second bool) int {
	if second {
		return 1
	}
	return -1
}

func byTasks(a, b *Candidate) int {
	switch {
	case a.must != b.must:
		return last(b.must)
	case a.fit != b.fit:
		return cmp.Compare(b.fit, a.fit)
	}
	return cmp.Compare(a.Node.ID, b.Node.ID)
}

func byRoom(a, b *Candidate) int {
	switch {
	case a.must != b.must:
		return last(b.must)
	case a.room != b.room:
		return cmp.Compare(b.room, a.room)
	}
	return byTasks(a, b)
}

// Compare orders nodes of equal weight that can all take the demand: GPUs are
// kept for those who want them, and the fullest node comes first (the emptiest
// with LLN), so that large gaps stay whole.
func (d *Demand) Compare(a, b *Candidate, lln bool) int {
	switch {
	case a.spared != b.spared:
		return cmp.Compare(a.spared, b.spared)
	case lln && a.Free.CPU != b.Free.CPU:
		return cmp.Compare(b.Free.CPU, a.Free.CPU)
	case (a.Shape.GPUs == 0) != (b.Shape.GPUs == 0) && !d.WantsGPU():
		return last(b.Shape.GPUs == 0)
	case a.idleGPUs() != b.idleGPUs():
		return cmp.Compare(a.idleGPUs(), b.idleGPUs())
	case a.Free.CPU != b.Free.CPU:
		return cmp.Compare(a.Free.CPU, b.Free.CPU)
	}
	return cmp.Compare(a.Node.ID, b.Node.ID)
}

// assembleNodes takes nodes in order until tasks, node count and per-job GRES are
// satisfied, then spreads the tasks: every node at least one.
func (d *Demand) assembleNodes(candidates []Candidate, musts int, options *Options) []Part {
	limit := min(int(d.MaxNodes), len(candidates))
	if musts > limit || int64(len(candidates)) < d.MinNodes {
		return nil
	}
	var fit int64
	n := 0
	isEnough := func() bool {
		return int64(n) >= d.MinNodes && fit >= d.Tasks && d.jobGRESFits(candidates[:n])
	}
	for n < limit && (options.Spread || n < musts || !isEnough()) {
		fit += candidates[n].fit
		n++
	}
	if !isEnough() {
		return nil
	}
	chosen := candidates[:n]
	slices.SortStableFunc(
		chosen,
		func(a, b Candidate) int { return cmp.Compare(a.Node.ID, b.Node.ID) },
	)
	tasks, shares := d.spreadTasks(chosen), d.spreadGRES(chosen)
	if options.Spread || d.Exclusive { // a job that has its nodes whole fills none of them first
		tasks = d.spreadEvenly(chosen)
	}
	parts := make([]Part, n)
	for i := range chosen {
		candidate := &chosen[i]
		need, ok := d.needOf(candidate, tasks[i], shares[i])
		if !ok {
			return nil
		}
		parts[i] = Part{Node: candidate.Node, Tasks: tasks[i], Need: need}
	}
	return parts
}

func (d *Demand) jobGRESFits(candidates []Candidate) bool {
	for _, count := range d.PerJob {
		var have int64
		for i := range candidates {
			have += d.roomFor(candidates[i].Shape, &candidates[i].Free, count)
		}
		if have < count.N {
			return false
		}
	}
	return true
}

// spreadTasks gives each node one task, then fills them in order (block).
func (d *Demand) spreadTasks(candidates []Candidate) []int64 {
	out := make([]int64, len(candidates))
	left := d.Tasks
	for i := range candidates {
		if left > 0 {
			out[i], left = 1, left-1
		}
	}
	for i := range candidates {
		more := max(min(left, candidates[i].fit-out[i]), 0)
		out[i] += more
		left -= more
	}
	return out
}

// spreadGRES divides --gpus and the like over the nodes: one each, then as
// much as fits in order.
func (d *Demand) spreadGRES(candidates []Candidate) [][]spec.Count {
	out := make([][]spec.Count, len(candidates))
	for _, count := range d.PerJob {
		got, room := make([]int64, len(candidates)), make([]int64, len(candidates))
		left := count.N
		for i := range candidates {
			room[i] = d.roomFor(candidates[i].Shape, &candidates[i].Free, count)
			if left > 0 && room[i] > 0 {
				got[i], left = 1, left-1
			}
		}
		for i := range candidates {
			more := max(min(left, room[i]-got[i]), 0)
			got[i] += more
			left -= more
		}
		for i, n := range got {
			if n > 0 {
				out[i] = append(out[i], spec.Count{Name: count.Name, Type: count.Type, N: n})
			}
		}
	}
	return out
}
