package place

import (
	"cmp"
	"slices"

	"github.com/musterhpc/muster/spec"
)

// Quota is a number of nodes of a set that have to be part of a placement.
type Quota struct {
	Nodes spec.Bitset
	N     int64
}

// Open tells options that leave the choice among the candidates open, so that
// any nodes that fit will do.
func (o *Options) Open() bool {
	namesNodes := !o.Must.Empty() || len(o.Quotas) > 0
	shapesThem := o.Contiguous || o.Spread || o.Segment > 0
	return !namesNodes && !shapesThem
}

// favourQuotas brings the best nodes of each quota to the front, behind those that
// have to be part of it anyway, and tells how many have to be taken then. A
// node counts for one quota. Candidates are in the preferred order.
func favourQuotas(candidates []Candidate, musts int, quotas []Quota) ([]Candidate, int, bool) {
	order := make([]int, len(quotas))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(
		order,
		func(a, b int) int { return cmp.Compare(quotas[a].Nodes.Count(), quotas[b].Nodes.Count()) },
	)
	used := make([]bool, len(candidates))
	for _, q := range order {
		left := quotas[q].N
		for i := range candidates {
			if left > 0 && !used[i] && quotas[q].Nodes.Has(int(candidates[i].Node.ID)) {
				used[i] = true
				left--
			}
		}
		if left > 0 {
			return nil, 0, false
		}
	}
	out := make([]Candidate, 0, len(candidates))
	front := 0
	for _, first := range [...]bool{true, false} {
		for i := range candidates {
			if (used[i] || candidates[i].must) == first {
				out = append(out, candidates[i])
			}
		}
		if first {
			front = len(out)
		}
	}
	return out, max(front, musts), true
}

// findAdjacent looks for a run of neighbouring nodes that is enough as a whole.
func (d *Demand) findAdjacent(candidates []Candidate, musts int, options *Options) []Part {
	slices.SortFunc(
		candidates,
		func(a, b Candidate) int { return cmp.Compare(a.Node.ID, b.Node.ID) },
	)
	for i := range candidates {
		for k := i; k < len(candidates) && int64(k-i) < d.MaxNodes && (k == i || candidates[k].Node.ID == candidates[k-1].Node.ID+1); k++ {
			run := candidates[i : k+1]
			forced := 0
			for j := range run {
				if run[j].must {
					forced++
				}
			}
			if int64(len(run)) < d.MinNodes || forced < musts {
				continue
			}
			if parts := d.assembleNodes(slices.Clone(run), len(run), options); parts != nil {
				return parts
			}
		}
	}
	return nil
}

// spreadEvenly gives each node one task in turn until all are placed.
func (d *Demand) spreadEvenly(candidates []Candidate) []int64 {
	out := make([]int64, len(candidates))
	for left, moved := d.Tasks, true; left > 0 && moved; {
		moved = false
		for i := range candidates {
			if left > 0 && out[i] < candidates[i].fit {
				out[i]++
				left--
				moved = true
			}
		}
	}
	return out
}

// pickOneOf is Pick on the first set that gives it.
func pickOneOf(demand *Demand, cands []Candidate, options Options) []Part {
	sets := options.OneOf
	options.OneOf = nil
	for _, set := range sets {
		var some []Candidate
		for i := range cands {
			if set.Has(int(cands[i].Node.ID)) {
				some = append(some, cands[i])
			}
		}
		if parts := Pick(demand, some, options); parts != nil {
			return parts
		}
	}
	return nil
}
