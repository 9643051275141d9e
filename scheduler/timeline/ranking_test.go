package timeline

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/musterhpc/muster/spec"
	"pgregory.net/rapid"
)

// The order of tails is that of a sorted list, through splits of buckets and their ends.
func TestTailOrderIsSorted(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var order tailOrder
		var model []tailEntry
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		draw := func(id int32) tailEntry { return tailEntry{spec.Instant(random.IntN(9)), id} }
		for id := range int32(rapid.SampledFrom([]int{0, 1, maxBucket, 400}).Draw(rt, "at first")) {
			model = append(model, draw(id))
		}
		order.fillSorted(slices.Clone(model))
		next := int32(len(model))
		for range rapid.SampledFrom([]int{0, 5, 800}).Draw(rt, "changes") {
			if len(model) > 0 && random.IntN(5) < 2 {
				i := random.IntN(len(model))
				order.removeEntry(model[i])
				model = slices.Delete(model, i, i+1)
				continue
			}
			e := draw(next)
			next++
			order.addEntry(e)
			model = append(model, e)
		}
		slices.SortFunc(model, func(a, b tailEntry) int {
			if a.precedesEntry(b) {
				return -1
			}
			return 1
		})
		var got []tailEntry
		order.eachUntil(spec.FarFuture, func(e tailEntry) { got = append(got, e) })
		if !slices.Equal(got, model) {
			rt.Fatalf("%v, want %v", got, model)
		}
		for k := range model {
			if at := order.nthTail(int64(k)); at != model[k].tail {
				rt.Fatalf("number %d is %d, want %d", k, at, model[k].tail)
			}
		}
		if at := order.nthTail(int64(len(model))); at != spec.FarFuture {
			rt.Fatalf("one more than there are is %d", at)
		}
	})
}

// The tree finds the nodes that a look at each of them finds, in the same order.
func TestHoleTreeFindsWhatHelps(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		draw := func() hole {
			return hole{
				longest: spec.Span(rapid.IntRange(0, 8).Draw(rt, "longest")),
				end:     spec.Instant(rapid.IntRange(0, 30).Draw(rt, "end")),
			}
		}
		var tree holeTree
		tree.makeTree(rapid.IntRange(1, 70).Draw(rt, "nodes"))
		for i := range tree.leaves {
			tree.leaves[i] = draw()
		}
		tree.sumUp()
		for range rapid.IntRange(0, 40).Draw(rt, "changes") {
			tree.setLeaf(rapid.IntRange(0, len(tree.leaves)-1).Draw(rt, "node"), draw())
		}
		from := spec.Instant(rapid.IntRange(0, 30).Draw(rt, "from"))
		limit := spec.Span(rapid.IntRange(1, 8).Draw(rt, "limit"))
		var want []int32
		for i, h := range tree.leaves {
			if h.helpsFrom(from, limit) {
				want = append(want, int32(i))
			}
		}
		if got := tree.appendHelpful(nil, from, limit); !slices.Equal(got, want) {
			rt.Fatalf("%v, want %v", got, want)
		}
	})
}
