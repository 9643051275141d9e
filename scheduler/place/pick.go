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
func Pick(d *Demand, cands []Candidate, opt Options) []Part {
	if len(opt.OneOf) > 0 {
		return pickOneOf(d, cands, opt)
	}
	if opt.Tree != nil && d.MaxNodes > 1 {
		if parts := pickBelow(d, cands, opt); parts != nil {
			return parts
		}
	}
	usable := make([]Candidate, 0, len(cands))
	musts := 0
	share := d.WantsShare()
	for i := range cands {
		c := &cands[i]
		c.fit, _ = d.Fits(c.Shape, &c.Free)
		c.must = opt.Must.Has(int(c.Node.ID))
		if c.fit == 0 {
			if c.must {
				return nil
			}
			continue
		}
		if len(d.PerJob) > 0 {
			c.room = d.roomFor(c.Shape, &c.Free, d.PerJob[0])
		}
		if c.must {
			musts++
		}
		c.spared = 0
		switch {
		case opt.Mix != nil && d.MaxNodes == 1:
			l := opt.Mix.lossOf(d, c)
			c.spared = l.loss
			if len(c.Before) == 0 && l.pos >= 0 {
				c.Before = []int32{l.pos}
			}
		case share.N > 0:
			c.spared = c.spareAfter(d, share)
		}
		usable = append(usable, *c)
	}
	if musts < opt.Must.Count() {
		return nil
	}
	if d.MaxNodes == 1 && len(opt.Quotas) == 0 {
		return d.placeBest(usable, musts, &opt)
	}
	for _, by := range [...]func(a, b *Candidate) int{byFit(d, opt), byTasks, byRoom} {
		slices.SortStableFunc(usable, func(a, b Candidate) int { return by(&a, &b) })
		if parts := d.layOut(slices.Clone(usable), musts, &opt); parts != nil {
			return parts
		}
	}
	if len(d.PerJob) == 0 || len(opt.Quotas) > 0 || opt.Contiguous || opt.Segment > 0 {
		return nil // by most tasks is the best there is
	}
	if chosen := d.combineNodes(usable); chosen != nil {
		return d.assembleNodes(chosen, musts, &opt)
	}
	return nil
}

// placeBest places a demand of one node on the candidate that comes first of those
// that can take all of it.
func (d *Demand) placeBest(cs []Candidate, musts int, opt *Options) []Part {
	by, at := byFit(d, *opt), -1
	for i := range cs {
		c := &cs[i]
		if c.fit >= d.Tasks && (musts == 0 || c.must) && d.jobGRESFits(cs[i:i+1]) && (at < 0 || by(c, &cs[at]) < 0) {
			at = i
		}
	}
	if at < 0 {
		return nil
	}
	return d.layOut([]Candidate{cs[at]}, musts, opt)
}

// layOut takes candidates in their order, as the options want it.
func (d *Demand) layOut(cs []Candidate, musts int, opt *Options) []Part {
	if len(opt.Quotas) > 0 {
		var ok bool
		cs, musts, ok = favourQuotas(cs, musts, opt.Quotas)
		if !ok {
			return nil
		}
	}
	if opt.Contiguous {
		return d.findAdjacent(cs, musts, opt)
	}
	if opt.Segment > 0 {
		return d.findSegments(cs, musts, opt)
	}
	return d.assembleNodes(cs, musts, opt)
}

// maxCombine bounds the table of combine.
const maxCombine = 1 << 20

// combineNodes looks for nodes that give enough tasks and enough of the GRES asked
// for the job as a whole where no simple order finds them: for each number of
// nodes and each amount of the GRES it keeps the most tasks, node by node. It
// gives up, and returns nil, where that table would be too large.
func (d *Demand) combineNodes(cs []Candidate) []Candidate {
	nodes, most := int(min(d.MaxNodes, int64(len(cs)))), int(d.PerJob[0].N)
	if nodes == 0 || len(cs)*(nodes+1)*(most+1) > maxCombine {
		return nil
	}
	at := func(k, g int) int { return k*(most+1) + g }
	width := at(nodes, most) + 1
	tasks, taken := make([]int64, width), make([]bool, len(cs)*width)
	for i := range tasks {
		tasks[i] = -1
	}
	var out []Candidate // begins with the nodes that have to be part of it
	have, sum := 0, int64(0)
	for i := range cs {
		if cs[i].must {
			out = append(out, cs[i])
			have, sum = min(have+int(cs[i].room), most), sum+cs[i].fit
		}
	}
	if len(out) > nodes {
		return nil
	}
	for g := 0; g <= have; g++ {
		tasks[at(len(out), g)] = sum
	}
	for i := range cs {
		for k := nodes; k > 0 && !cs[i].must; k-- {
			for g := most; g >= 0; g-- {
				old := tasks[at(k-1, max(g-int(cs[i].room), 0))]
				if to := at(k, g); old >= 0 && old+cs[i].fit > tasks[to] {
					tasks[to], taken[i*width+to] = old+cs[i].fit, true
				}
			}
		}
	}
	for k := max(int(d.MinNodes), len(out)); k <= nodes; k++ {
		if tasks[at(k, most)] < d.Tasks {
			continue
		}
		left := k - len(out)
		for i, g := len(cs)-1, most; i >= 0 && left > 0; i-- {
			if taken[i*width+at(k, g)] {
				out = append(out, cs[i])
				g, left, k = max(g-int(cs[i].room), 0), left-1, k-1
			}
		}
		return out
	}
	return nil
}

// byFit is the preferred order.
func byFit(d *Demand, opt Options) func(a, b *Candidate) int {
	single := d.MinNodes == 1
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
		if single && (a.fit >= d.Tasks) != (b.fit >= d.Tasks) {
			return last(b.fit >= d.Tasks)
		}
		if !single && a.fit != b.fit {
			return cmp.Compare(b.fit, a.fit)
		}
		return d.Compare(a, b, opt.LLN)
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
func (d *Demand) assembleNodes(cs []Candidate, musts int, opt *Options) []Part {
	limit := min(int(d.MaxNodes), len(cs))
	if musts > limit || int64(len(cs)) < d.MinNodes {
		return nil
	}
	var fit int64
	n := 0
	for n < limit && (opt.Spread || int64(n) < d.MinNodes || fit < d.Tasks || n < musts || !d.jobGRESFits(cs[:n])) {
		fit += cs[n].fit
		n++
	}
	if int64(n) < d.MinNodes || fit < d.Tasks || !d.jobGRESFits(cs[:n]) {
		return nil
	}
	chosen := cs[:n]
	slices.SortStableFunc(chosen, func(a, b Candidate) int { return cmp.Compare(a.Node.ID, b.Node.ID) })
	tasks, shares := d.spreadTasks(chosen), d.spreadGRES(chosen)
	if opt.Spread {
		tasks = d.spreadEvenly(chosen)
	}
	parts := make([]Part, n)
	for i := range chosen {
		c := &chosen[i]
		need, ok := d.needOf(c, tasks[i], shares[i])
		if !ok {
			return nil
		}
		parts[i] = Part{Node: c.Node, Tasks: tasks[i], Need: need}
	}
	return parts
}

func (d *Demand) jobGRESFits(cs []Candidate) bool {
	for _, c := range d.PerJob {
		var have int64
		for i := range cs {
			have += d.roomFor(cs[i].Shape, &cs[i].Free, c)
		}
		if have < c.N {
			return false
		}
	}
	return true
}

// spreadTasks gives each node one task, then fills them in order (block).
func (d *Demand) spreadTasks(cs []Candidate) []int64 {
	out := make([]int64, len(cs))
	left := d.Tasks
	for i := range cs {
		if left > 0 {
			out[i], left = 1, left-1
		}
	}
	for i := range cs {
		more := max(min(left, cs[i].fit-out[i]), 0)
		out[i] += more
		left -= more
	}
	return out
}

// spreadGRES divides --gpus and the like over the nodes: one each, then as
// much as fits in order.
func (d *Demand) spreadGRES(cs []Candidate) [][]spec.Count {
	out := make([][]spec.Count, len(cs))
	for _, c := range d.PerJob {
		got, room := make([]int64, len(cs)), make([]int64, len(cs))
		left := c.N
		for i := range cs {
			room[i] = d.roomFor(cs[i].Shape, &cs[i].Free, c)
			if left > 0 && room[i] > 0 {
				got[i], left = 1, left-1
			}
		}
		for i := range cs {
			more := max(min(left, room[i]-got[i]), 0)
			got[i] += more
			left -= more
		}
		for i, n := range got {
			if n > 0 {
				out[i] = append(out[i], spec.Count{Name: c.Name, Type: c.Type, N: n})
			}
		}
	}
	return out
}
