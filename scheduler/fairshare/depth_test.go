package fairshare_test

import (
	"math"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/scheduler/fairshare"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/fixed"
)

// depthModel is DEPTH_OBLIVIOUS from its formula: for each association the part
// of all shares and the logarithm of use by shares, of exact ratios. A
// logarithm of minus infinity is that of no use.
func depthModel(list []spec.Association, used map[uint32]fixed.U128) (norm, ratio map[uint32]float64) {
	norm, ratio = map[uint32]float64{}, map[uint32]float64{}
	for _, a := range list { // parents come first
		switch {
		case a.Parent == 0:
			norm[a.ID] = 1
			continue
		case a.SharesParent:
			norm[a.ID], ratio[a.ID] = norm[a.Parent], ratio[a.Parent]
			continue
		}
		total := int64(0)
		for _, b := range list {
			if b.Parent == a.Parent && !b.SharesParent {
				total += b.Share()
			}
		}
		if norm[a.Parent] == 0 || a.Share() == 0 {
			continue
		}
		norm[a.ID] = norm[a.Parent] * float64(a.Share()) / float64(total)
		own := exact(used[a.ID])
		if own.Sign() == 0 {
			ratio[a.ID] = math.Inf(-1)
			continue
		}
		local, _ := new(big.Rat).Mul(own.Quo(own, exact(used[a.Parent])), big.NewRat(total, a.Share())).Float64()
		up, k := ratio[a.Parent]*math.Ln2, 1.0
		if up*math.Log(local) < 0 {
			k = 1 / (1 + math.Pow(5*up, 2))
		}
		ratio[a.ID] = ratio[a.Parent] + k*math.Log2(local)
	}
	return norm, ratio
}

func TestDepthObliviousAgainstRationals(t *testing.T) {
	apart := false // some factor is another than the classic one
	rapid.Check(t, func(t *rapid.T) {
		list, used := draw(t)
		damp := uint32(rapid.IntRange(1, 5).Draw(t, "dampening"))
		tree, classic := fairshare.Of(world(t, []string{"DEPTH_OBLIVIOUS"}, damp, list, used)), fairshare.Of(world(t, []string{"NO_FAIR_TREE"}, damp, list, used))
		if tree.Fair {
			t.Fatal("it is no Fair Tree")
		}
		norm, ratio := depthModel(list, used)
		for _, a := range list {
			r := math.Exp2(ratio[a.ID])
			if s := tree.Find(a.ID); norm[a.ID] > 0 && math.Abs(float64(s.Effect)/float64(fixed.One)-min(r*norm[a.ID], 1)) > 1e-9 {
				t.Fatalf("association %d: use %d that counts, want %.12f * %.12f", a.ID, s.Effect, r, norm[a.ID])
			}
			if a.User == "" {
				continue
			}
			want := 0.0
			if norm[a.ID] > 0 {
				want = math.Exp2(-r / float64(damp))
			}
			if got := float64(tree.Factor(a.ID)) / float64(fixed.One); math.Abs(got-want) > 1e-9 {
				t.Fatalf("association %d: factor %.12f, want %.12f (use by shares %g)", a.ID, got, want, r)
			}
			apart = apart || math.Abs(want-float64(classic.Factor(a.ID))/float64(fixed.One)) > 0.1
		}
	})
	if !apart {
		t.Error("every factor was the classic one")
	}
}

// TestDepthDoesNotCount: a user of an account that used its share has the factor
// of one who stands there directly, however many accounts are in between, and
// one who used nothing is not held back by those around.
func TestDepthDoesNotCount(t *testing.T) {
	deep := func(levels uint32) (busy, idle uint64) {
		list := []spec.Association{{ID: 1, Account: "root"}, {ID: 2, Account: "other", Parent: 1}, {ID: 3, Account: "other", User: "o", Parent: 2}}
		used := map[uint32]fixed.U128{1: fixed.Of(1000), 2: fixed.Of(500), 3: fixed.Of(500)}
		up := uint32(1)
		for id := uint32(4); id < 4+levels; id++ {
			list, up = append(list, spec.Association{ID: id, Account: string(rune('a' + id)), Parent: up}), id
			used[id] = fixed.Of(500)
		}
		list = append(list, spec.Association{ID: 98, Account: "z", User: "busy", Parent: up, Shares: 1}, spec.Association{ID: 99, Account: "z", User: "idle", Parent: up, Shares: 1})
		used[98] = fixed.Of(500)
		tree := fairshare.Of(world(t, []string{"DEPTH_OBLIVIOUS"}, 0, list, used))
		return tree.Factor(98), tree.Factor(99)
	}
	busy, idle := deep(1)
	if idle != fixed.One {
		t.Errorf("who used nothing has the factor %d", idle)
	}
	for _, levels := range []uint32{2, 5, 20} {
		if b, i := deep(levels); b != busy || i != idle {
			t.Errorf("%d levels: factors %d and %d, at one level %d and %d", levels, b, i, busy, idle)
		}
	}
}
