package timeline

import (
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/spec"
)

// narrowRanks leaves those of the nodes in t.ranks that are below as few switches
// as may be, just as many as are wanted. It changes nothing where no switch
// has enough.
func (t *Timeline) narrowRanks(tree *place.Tree, query *Query, at spec.Instant, want int) {
	counts := make([]int, tree.Leaves)
	for _, r := range t.ranks {
		if leaf := tree.LeafOf[r.id]; leaf >= 0 {
			counts[leaf]++
		}
	}
	s := tree.Lowest(counts, want)
	if s == nil {
		return
	}
	leaves, of := tree.Shares(s, counts, want)
	all := t.ranks
	var chosen []rank
	for i, leaf := range leaves {
		var here []rank
		for _, r := range all {
			if tree.LeafOf[r.id] == leaf {
				r.order = t.nodeOrder(query, t.lanes[r.id], at)
				here = append(here, r)
			}
		}
		if len(here) > of[i] {
			selectLeast(here, of[i])
			here = here[:of[i]]
		}
		chosen = append(chosen, here...)
	}
	t.ranks = append(t.ranks[:0], chosen...)
}
