package place

import "github.com/musterhpc/muster/spec"

// Tree is the tree of switches that connects the nodes.
type Tree struct {
	Switches []Switch // by level, the leaves first
	Leaves   int      // number of leaves
	LeafOf   []int32  // by node id; -1 = below no switch
	// Evenly: what does not fit below one leaf is spread over all leaves below the
	// lowest switch with room, as many nodes of each as may be the same.
	Evenly bool
}

// Switch is a switch with the nodes and the leaf switches below it.
type Switch struct {
	Level  int
	Nodes  spec.Bitset
	Leaves []int32
}

// Lowest finds the switch of the lowest level below which a number of nodes
// is, given how many there are below each leaf; among equals the one with the
// fewest, so that large switches stay whole. It is nil if there is none.
func (t *Tree) Lowest(counts []int, want int) *Switch {
	var best *Switch
	fewest := 0
	for i := range t.Switches {
		s := &t.Switches[i]
		if best != nil && s.Level > best.Level {
			break
		}
		n := 0
		for _, leaf := range s.Leaves {
			n += counts[leaf]
		}
		if n >= want && (best == nil || n < fewest) {
			best, fewest = s, n
		}
	}
	return best
}

// Fill chooses leaves below a switch, as few as possible: the fullest ones
// whole, and of those that can give the rest the one with the fewest nodes,
// which comes last.
func (s *Switch) Fill(counts []int, want int) []int32 {
	var out []int32
	used := map[int32]bool{}
	for want > 0 {
		best := int32(-1)
		for _, leaf := range s.Leaves {
			switch n := counts[leaf]; {
			case used[leaf] || n == 0:
			case best < 0,
				n >= want && (counts[best] < want || n < counts[best]),
				n < want && counts[best] < want && n > counts[best]:
				best = leaf
			}
		}
		if best < 0 {
			return nil
		}
		used[best] = true
		out = append(out, best)
		want -= counts[best]
	}
	return out
}

// Shares is how many nodes of each of a switch's leaves a job of so many takes:
// those that Fill chooses, as many of each as there are, or evenly.
func (t *Tree) Shares(s *Switch, counts []int, want int) (leaves []int32, of []int) {
	if !t.Evenly || s.Level == 0 {
		for _, leaf := range s.Fill(counts, want) {
			n := min(counts[leaf], want)
			leaves, of, want = append(leaves, leaf), append(of, n), want-n
		}
		return leaves, of
	}
	leaves, of = s.Leaves, make([]int, len(s.Leaves))
	for want > 0 {
		took := false
		for i, leaf := range leaves {
			if want > 0 && of[i] < counts[leaf] {
				of[i], want, took = of[i]+1, want-1, true
			}
		}
		if !took {
			break
		}
	}
	return leaves, of
}

// pickBelow is Pick below one switch after the other, the lowest first.
func pickBelow(demand *Demand, cands []Candidate, options Options) []Part {
	tree := options.Tree
	options.Tree = nil
	for i := range tree.Switches {
		var some []Candidate
		for k := range cands {
			if tree.Switches[i].Nodes.Has(int(cands[k].Node.ID)) {
				some = append(some, cands[k])
			}
		}
		if int64(len(some)) < demand.MinNodes {
			continue
		}
		if parts := Pick(demand, some, options); parts != nil {
			return parts
		}
	}
	return nil
}
