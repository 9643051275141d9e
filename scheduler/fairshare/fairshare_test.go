package fairshare_test

import (
	"cmp"
	"fmt"
	"math"
	"math/big"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/fairshare"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/fixed"
)

// world makes a state of associations that have used something.
func world(t interface{ Fatal(...any) }, flags []string, damp uint32, list []spec.Association, used map[uint32]fixed.U128) *state.State {
	s := state.New()
	put := func(e event.Event) {
		if err := s.Apply(&event.Envelope{Seq: s.Seq + 1, Event: e}); err != nil {
			t.Fatal(err)
		}
	}
	put(&event.ConfigAdopted{Config: &spec.Config{Priority: spec.PriorityConfig{Flags: flags, Dampening: damp}}})
	for _, a := range list {
		put(&event.AssociationPut{Association: a})
	}
	f := s.Freeze().Fork()
	for id, n := range used {
		f.SetSpent(id, n)
	}
	return f
}

// TestGolden is the tree of which a real cluster printed these figures.
func TestGolden(t *testing.T) {
	tenth := func(n int64) fixed.U128 { return fixed.Of(n).Over(100_000) }
	s := world(t, nil, 0, []spec.Association{{ID: 1, Account: "root"}, {ID: 2, Account: "root", User: "root", Parent: 1}, {ID: 3, Account: "ml", Parent: 1, Shares: 50},
		{ID: 4, Account: "vision", Parent: 3, Shares: 20}, {ID: 5, Account: "physics", Parent: 1, Shares: 30}, {ID: 6, Account: "physics", User: "bob", Parent: 5},
		{ID: 7, Account: "vision", User: "carol", Parent: 4, Shares: 5}, {ID: 8, Account: "ml", User: "alice", Parent: 3}},
		map[uint32]fixed.U128{1: tenth(1_300_000), 2: tenth(185_705), 3: tenth(1_114_295), 8: tenth(1_114_295)})
	tree := fairshare.Of(s)
	var got []string
	for i := range tree.Shares {
		x := &tree.Shares[i]
		fs, inf := tree.LevelFS(x)
		level := fmt.Sprintf("%.6f", float64(fs)/1e9)
		if inf {
			level = "inf"
		}
		f := func(n uint64) float64 { return float64(n) / float64(fixed.One) }
		sib := 0.0
		if x.Siblings > 0 {
			sib = float64(x.Shares) / float64(x.Siblings)
		}
		got = append(got, fmt.Sprintf("%d %s %s %.6f %d %.6f %.6f %.6f %s", x.Depth, x.Assoc.Account, x.Assoc.User, sib, x.Raw.Hi, f(x.Used), f(x.Effect), f(x.Factor), level))
	}
	want := []string{"0 root  1.000000 13 1.000000 1.000000 0.000000 0.000000", "1 root root 0.012346 1 0.142850 0.142850 0.250000 0.086424",
		"1 ml  0.617284 11 0.857150 0.857150 0.000000 0.720159", "2 ml alice 0.047619 11 0.857150 1.000000 0.500000 0.047619",
		"2 vision  0.952381 0 0.000000 0.000000 0.000000 inf", "3 vision carol 1.000000 0 0.000000 0.000000 0.750000 inf",
		"1 physics  0.370370 0 0.000000 0.000000 0.000000 inf", "2 physics bob 1.000000 0 0.000000 0.000000 1.000000 inf"}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

// draw makes a random tree with random use, which adds up.
func draw(t *rapid.T) ([]spec.Association, map[uint32]fixed.U128) {
	list := []spec.Association{{ID: 1, Account: "a1"}}
	accounts := []int{0}
	for range rapid.IntRange(1, 14).Draw(t, "associations") {
		up := rapid.SampledFrom(accounts).Draw(t, "up")
		a := spec.Association{ID: uint32(len(list) + 1), Account: list[up].Account, Parent: list[up].ID, Shares: rapid.SampledFrom([]int64{0, 1, 1, 2, 5, 40, spec.NoShares}).Draw(t, "shares"),
			SharesParent: rapid.IntRange(0, 9).Draw(t, "parent") == 0}
		if rapid.IntRange(0, 2).Draw(t, "kind") == 0 {
			a.Account = fmt.Sprintf("a%d", a.ID)
			accounts = append(accounts, len(list))
		} else {
			a.User = fmt.Sprintf("u%d", a.ID)
		}
		list = append(list, a)
	}
	used := map[uint32]fixed.U128{}
	for i := range list {
		if list[i].User == "" || rapid.IntRange(0, 2).Draw(t, "idle") == 0 {
			continue
		}
		n := fixed.U128{Hi: rapid.SampledFrom([]uint64{0, 1, 2, 3, 1 << 20, 1 << 50}).Draw(t, "use"), Lo: rapid.SampledFrom([]uint64{0, 1 << 63, 1 << 40}).Draw(t, "rest")}
		for k := i; ; k = int(list[k].Parent) - 1 {
			used[list[k].ID] = used[list[k].ID].Add(n)
			if list[k].Parent == 0 {
				break
			}
		}
	}
	return list, used
}

func exact(a fixed.U128) *big.Rat {
	n := new(big.Int).Lsh(new(big.Int).SetUint64(a.Hi), 64)
	return new(big.Rat).SetFrac(n.Or(n, new(big.Int).SetUint64(a.Lo)), new(big.Int).Lsh(big.NewInt(1), 64))
}

// model is fair share in rationals, written from the description alone.
type model struct {
	list []spec.Association
	used map[uint32]fixed.U128
	rank map[uint32]int
	left int
	told int
}

func (m *model) below(parent uint32) (out []spec.Association) {
	for _, a := range m.list {
		if a.Parent == parent {
			out = append(out, a)
		}
	}
	return out
}

// levelFS is nil for infinity.
func (m *model) levelFS(a spec.Association) *big.Rat {
	own := exact(m.used[a.ID])
	if a.SharesParent || own.Sign() == 0 {
		return nil
	}
	total := int64(0)
	for _, b := range m.below(a.Parent) {
		if !b.SharesParent {
			total += b.Share()
		}
	}
	if a.Share() == 0 {
		return new(big.Rat)
	}
	u := own
	if a.Parent != 0 {
		u = new(big.Rat).Quo(own, exact(m.used[a.Parent]))
	}
	return new(big.Rat).Quo(big.NewRat(a.Share(), total), u)
}

func compare(a, b *big.Rat) int {
	switch {
	case a == nil && b == nil:
		return 0
	case a == nil:
		return 1
	case b == nil:
		return -1
	}
	return a.Cmp(b)
}

func (m *model) walk(parent uint32, tied bool) {
	list := m.below(parent)
	slices.SortStableFunc(list, func(a, b spec.Association) int {
		if c := compare(m.levelFS(b), m.levelFS(a)); c != 0 {
			return c
		}
		if (a.User == "") != (b.User == "") {
			return map[bool]int{true: 1, false: -1}[a.User == ""]
		}
		return cmp.Compare(a.ID, b.ID)
	})
	for i, a := range list {
		same := i == 0 && tied || i > 0 && compare(m.levelFS(a), m.levelFS(list[i-1])) == 0
		if a.User == "" {
			m.walk(a.ID, same)
			continue
		}
		if !same {
			m.told = m.left
		}
		m.rank[a.ID] = m.told
		m.left--
	}
}

func TestFairTreeAgainstRationals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list, used := draw(t)
		m := &model{list: list, used: used, rank: map[uint32]int{}}
		for _, a := range list {
			if a.User != "" {
				m.left++
			}
		}
		users := m.left
		m.told = users
		m.walk(0, false)
		tree := fairshare.Of(world(t, nil, 0, list, used))
		for _, a := range list {
			s := tree.Find(a.ID)
			if s.Rank != int64(m.rank[a.ID]) {
				t.Fatalf("association %d has rank %d of %d, exactly %d: %+v, used %v", a.ID, s.Rank, users, m.rank[a.ID], list, used)
			}
			if a.User == "" {
				continue
			}
			want := new(big.Rat).Mul(big.NewRat(int64(m.rank[a.ID]), int64(users)), new(big.Rat).SetInt(new(big.Int).SetUint64(fixed.One)))
			d := want.Sub(want, new(big.Rat).SetInt(new(big.Int).SetUint64(tree.Factor(a.ID))))
			if d.Sign() < 0 || d.Cmp(big.NewRat(2, 1)) > 0 {
				t.Fatalf("association %d: factor %d", a.ID, tree.Factor(a.ID))
			}
		}
	})
}

func TestClassicAgainstRationals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list, used := draw(t)
		damp := uint32(rapid.IntRange(1, 5).Draw(t, "dampening"))
		tree := fairshare.Of(world(t, []string{"NO_FAIR_TREE"}, damp, list, used))
		norm, effect := map[uint32]*big.Rat{}, map[uint32]*big.Rat{}
		for _, a := range list { // parents come first
			all := exact(used[1])
			if a.Parent == 0 {
				norm[a.ID], effect[a.ID] = big.NewRat(1, 1), big.NewRat(1, 1)
				continue
			}
			total := int64(0)
			for _, b := range list {
				if b.Parent == a.Parent && !b.SharesParent {
					total += b.Share()
				}
			}
			if a.SharesParent {
				norm[a.ID], effect[a.ID] = norm[a.Parent], effect[a.Parent]
			} else {
				own, use := new(big.Rat), new(big.Rat)
				if total > 0 {
					own.SetFrac64(a.Share(), total)
				}
				if all.Sign() > 0 {
					use.Quo(exact(used[a.ID]), all)
				}
				norm[a.ID] = new(big.Rat).Mul(norm[a.Parent], own)
				more := new(big.Rat).Sub(effect[a.Parent], use)
				effect[a.ID] = new(big.Rat).Add(use, more.Mul(more, own))
			}
			if a.User == "" {
				continue
			}
			want := 0.0
			if norm[a.ID].Sign() > 0 {
				x, _ := new(big.Rat).Quo(effect[a.ID], norm[a.ID]).Float64()
				want = math.Exp2(-x / float64(damp))
			}
			if got := float64(tree.Factor(a.ID)) / float64(fixed.One); math.Abs(got-want) > 1e-9 {
				t.Fatalf("association %d: factor %.12f, want %.12f (shares %s, use %s)", a.ID, got, want, norm[a.ID].FloatString(9), effect[a.ID].FloatString(9))
			}
		}
	})
}
