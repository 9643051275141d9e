package kpi

import (
	"cmp"
	"math"
	"math/big"
	"slices"

	"github.com/musterhpc/muster/spec"
)

// Spent is how a budget stands at an instant.
type Spent struct {
	Budget
	Amount float64 // of the budget, in the currency
	Spent  float64 // since its start
	Recent float64 // of it within Window
	Window spec.Span
	At     spec.Instant
}

// RecentSpan is what the forecast of a budget looks back on: a week, so that
// weekends are in it.
const RecentSpan = 7 * spec.Day

// beneathCounting is a part of a minute that only arithmetic leaves.
const beneathCounting = 1e-6

// Share is the part that is spent.
func (s Spent) Share() float64 { return s.Spent / s.Amount }

// Elapsed is the part of the budget's time that is over.
func (s Spent) Elapsed() float64 {
	return min(1, max(0, float64(s.At-s.Start)/float64(s.End-s.Start)))
}

// Forecast is what will be spent when the budget ends, if spending goes on as
// it did recently.
func (s Spent) Forecast() float64 {
	if s.Window <= 0 || s.At >= s.End {
		return s.Spent
	}
	return s.Spent + s.Recent/float64(s.Window)*float64(s.End-s.At)
}

// RunsOut is when nothing is left, if spending goes on as it did recently; ok
// is false where that is not before its end.
func (s Spent) RunsOut() (at spec.Instant, ok bool) {
	switch left := s.Amount - s.Spent; {
	case left <= 0:
		return s.At, true
	case s.Recent <= 0 || s.Forecast() <= s.Amount:
		return 0, false
	default:
		return s.At.Add(spec.Span(left / s.Recent * float64(s.Window))), true
	}
}

// Warning is the highest percentage that is passed of those at which a
// warning is due; 0 = none.
func (s Spent) Warning() int64 {
	out := int64(0)
	for _, p := range s.Warn {
		if s.Share()*100 >= float64(p) {
			out = p
		}
	}
	return out
}

// Left is what is left of the money, as the minutes of each TRES with a price that
// it would pay for alone. Memory is counted in MiB. A minute that it would pay for in part
// counts, since limits have no smaller unit: otherwise a small budget would be over before
// anything was spent.
func (s Spent) Left(prices []PriceList) spec.Limits {
	var limits spec.Limits
	for i := len(prices) - 1; i >= 0; i-- {
		if prices[i].From > s.At {
			continue
		}
		for _, price := range prices[i].Per {
			if price.Micro == 0 {
				continue
			}
			hours := max(s.Amount-s.Spent, 0) * 1e6 / float64(price.Micro)
			if price.TRES == "mem" {
				hours *= 1024
			}
			minutes := math.Ceil(hours*60 - beneathCounting)
			limits = append(limits, spec.TRESCount{Name: price.TRES, N: int64(min(minutes, 1<<53))})
		}
		break
	}
	return limits
}

// Apportion rounds exact sums to units of scale so that the rounded ones add
// up to the rounded total.
func Apportion(exact []*big.Int, scale *big.Int) (parts []*big.Int, total *big.Int) {
	sum := new(big.Int)
	for _, n := range exact {
		sum.Add(sum, n)
	}
	// Halves are rounded up.
	half := new(big.Int).Add(new(big.Int).Lsh(sum, 1), scale)
	total = half.Div(half, new(big.Int).Lsh(scale, 1))
	return ApportionTotal(exact, scale, total), total
}

// ApportionTotal rounds exact sums to units of scale so that the rounded ones add up to a total,
// which is their sum rounded up or down: the largest remainders are rounded up, the first of
// equals first.
func ApportionTotal(exact []*big.Int, scale, total *big.Int) []*big.Int {
	floors := new(big.Int)
	parts := make([]*big.Int, len(exact))
	rests := make([]*big.Int, len(exact))
	order := make([]int, len(exact))
	for i, n := range exact {
		parts[i], rests[i] = new(big.Int).DivMod(n, scale, new(big.Int))
		order[i] = i
		floors.Add(floors, parts[i])
	}
	slices.SortStableFunc(
		order,
		func(a, b int) int { return cmp.Or(rests[b].Cmp(rests[a]), cmp.Compare(a, b)) },
	)
	missing := new(big.Int).Sub(total, floors)
	for i := 0; i < len(order) && missing.Sign() > 0; i++ {
		parts[order[i]].Add(parts[order[i]], big.NewInt(1))
		missing.Sub(missing, big.NewInt(1))
	}
	return parts
}

// Below are an account and all below it in the tree, sorted.
func Below(tree []Node, account string) []string {
	names := map[uint32]string{}
	for _, node := range tree {
		names[node.ID] = node.Account
	}
	parent := map[string]string{}
	for _, node := range tree {
		if node.User == "" && names[node.Parent] != node.Account {
			parent[node.Account] = names[node.Parent]
		}
	}
	out := []string{account}
	for _, node := range tree {
		if node.User != "" {
			continue
		}
		up := node.Account
		for range tree {
			up = parent[up]
			if up == account {
				out = append(out, node.Account)
				break
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
