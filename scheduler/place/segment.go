package place

import (
	"cmp"
	"slices"
)

// findSegments takes nodes in groups of options.Segment, each within one block, that
// can all take an equal share of the tasks: first
// the groups that nodes which have to be part of it need, then those of the
// blocks that the rest fits best, so that few blocks are touched. Candidates
// are in the preferred order.
func (d *Demand) findSegments(candidates []Candidate, musts int, options *Options) []Part {
	size := int(options.Segment)
	groups := int(d.MinNodes) / size
	if int(d.MinNodes)%size != 0 || d.MinNodes != d.MaxNodes {
		return nil
	}
	share := divideUp(d.Tasks, d.MinNodes)
	byBlock := map[int32][]Candidate{}
	var order []int32
	for i := range candidates {
		b := options.BlockOf[candidates[i].Node.ID]
		if b < 0 || candidates[i].fit < share {
			continue
		}
		if byBlock[b] == nil {
			order = append(order, b)
		}
		byBlock[b] = append(byBlock[b], candidates[i])
	}
	slices.Sort(order)
	room, taken := map[int32]int{}, map[int32]int{}
	for _, b := range order {
		must := 0
		for i := range byBlock[b] {
			if byBlock[b][i].must {
				must++
			}
		}
		room[b], taken[b] = len(byBlock[b])/size, (must+size-1)/size
		if options.ApartSegments {
			room[b] = min(room[b], 1)
		}
		if taken[b] > room[b] {
			return nil
		}
		groups -= taken[b]
	}
	if groups < 0 {
		return nil
	}
	for groups > 0 {
		b, ok := bestBlock(order, room, taken, groups)
		if !ok {
			return nil
		}
		more := min(groups, room[b]-taken[b])
		taken[b] += more
		groups -= more
	}
	var chosen []Candidate
	for _, b := range order {
		list := byBlock[b]
		slices.SortStableFunc(
			list,
			func(a, c Candidate) int { return cmp.Compare(notMust(a), notMust(c)) },
		)
		chosen = append(chosen, list[:taken[b]*size]...)
	}
	slices.SortStableFunc(
		chosen,
		func(a, c Candidate) int { return cmp.Compare(notMust(a), notMust(c)) },
	)
	for i := range chosen {
		if chosen[i].must {
			musts--
		}
	}
	if musts > 0 {
		return nil // one is in no block, or cannot take its share
	}
	return d.assembleNodes(chosen, len(chosen), options)
}

func notMust(candidate Candidate) int {
	if candidate.must {
		return 0
	}
	return 1
}

// bestBlock is the block that takes the rest of the groups and has the least
// room beside them, else the one with most room; of those already in use
// first.
func bestBlock(order []int32, room, taken map[int32]int, groups int) (int32, bool) {
	best, found := int32(0), false
	for _, b := range order {
		left := room[b] - taken[b]
		if left == 0 {
			continue
		}
		have := room[best] - taken[best]
		switch {
		case !found,
			left >= groups && have < groups,
			left >= groups && have >= groups && left < have,
			left < groups && have < groups && left > have:
			best, found = b, true
		}
	}
	return best, found
}
