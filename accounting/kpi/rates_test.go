package kpi_test

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/accounting/kpi"
)

// TestRates: what a site writes is read exactly, and what cannot be meant is
// refused with the line.
func TestRates(t *testing.T) {
	r, err := kpi.ParseRates("EUR", "1.4", []string{"2026-07-01 gres/gpu=2 cpu=0.013", "2026-01-01 cpu=0.012 mem=0.000001 gres/gpu=1.50"},
		[]string{"2026-01-01 380.5"}, []string{"ml 2026-01-01 2027-01-01 120000", "bio 2026-01-01 2026-02-01 0.5 enforce warn=50,20"})
	if err != nil {
		t.Fatal(err)
	}
	want := `{EUR [{1767225600000000000 [{cpu 12000} {gres/gpu 1500000} {mem 1}]} {1782864000000000000 [{cpu 13000} {gres/gpu 2000000}]}] ` +
		`[{1767225600000000000 380500}] 1400 [{ml 1767225600000000000 1798761600000000000 120000000000 [80 95] false} {bio 1767225600000000000 1769904000000000000 500000 [20 50] true}]}`
	if got := fmt.Sprint(r); got != want {
		t.Errorf("read as\n%s\nexpected\n%s", got, want)
	}
	prices := []string{"2026-01-01 cpu=1"}
	for _, bad := range []struct {
		pue                     string
		prices, carbon, budgets []string
	}{
		{pue: "0.9"}, {pue: "x"}, {prices: []string{"cpu=1"}}, {prices: []string{"2026-01-01"}}, {prices: []string{"2026-01-01 cpu"}},
		{prices: []string{"2026-01-01 cpu=-1"}}, {prices: []string{"2026-01-01 cpu=1.0000001"}}, {prices: []string{"2026-01-01 cpu=1 cpu=2"}},
		{prices: []string{"2026-01-01 gres/=1"}}, {prices: []string{"2026-01-01 time=1"}}, {prices: []string{"2026-02-30 cpu=1"}},
		{prices: []string{"2026-01-01 cpu=1", "2026-01-01 cpu=2"}}, {carbon: []string{"2026-01-01"}}, {carbon: []string{"2026-01-01 x"}},
		{carbon: []string{"2026-01-01 1", "2026-01-01 2"}},
		{prices: prices, budgets: []string{"ml 2026-01-01 2025-01-01 5"}}, {prices: prices, budgets: []string{"ml 2026-01-01 2027-01-01 0"}},
		{prices: prices, budgets: []string{"ml 2026-01-01 2027-01-01 5 warn=x"}}, {prices: prices, budgets: []string{"ml 2026-01-01 2027-01-01 5 soon"}},
		{prices: prices, budgets: []string{"ml 2026-01-01 2027-01-01 5", "ml 2026-12-31 2028-01-01 5"}}, {prices: prices, budgets: []string{"ml 2026-01-01"}},
	} {
		if _, err := kpi.ParseRates("EUR", bad.pue, bad.prices, bad.carbon, bad.budgets); !errors.Is(err, kpi.ErrRate) {
			t.Errorf("%v is read: %v", bad, err)
		}
	}
}

// TestDays: every day is the calendar's.
func TestDays(t *testing.T) {
	for at := time.Date(1970, 1, 1, 0, 0, 0, 0, time.UTC); at.Year() < 2101; at = at.AddDate(0, 0, 1) {
		got, err := kpi.ParseIntensity(at.Format(time.DateOnly) + " 1")
		if err != nil || int64(got.From) != at.UnixNano() {
			t.Fatalf("%s is %d, %v", at, got.From, err)
		}
	}
	for _, bad := range []string{"2026-02-29", "2026-13-01", "2026-00-01", "2026-04-31", "2026-01-00", "1969-12-31", "2026-1-1", "2100-02-29", "2026/01/01", "2026-01-+1"} {
		if _, err := kpi.ParseIntensity(bad + " 1"); err == nil {
			t.Errorf("%s is a day", bad)
		}
	}
}

// TestDrift: known answers.
func TestDrift(t *testing.T) {
	tree := []kpi.Node{{ID: 1, Account: "root"}, {ID: 2, Parent: 1, Account: "a", Shares: 3}, {ID: 3, Parent: 1, Account: "b", Shares: 1},
		{ID: 4, Parent: 2, Account: "a", User: "x", Shares: 1}, {ID: 5, Parent: 2, Account: "a", User: "y", Shares: 1},
		{ID: 6, Parent: 3, Account: "b", User: "z", Shares: -1}, {ID: 7, Parent: 1, Account: "lazy", Shares: 1000}}
	for i, c := range []struct {
		use  []kpi.Use
		want float64
	}{
		// As the shares say: a has 3 of 4, in equal parts.
		{[]kpi.Use{{"a", "x", 3}, {"a", "y", 3}, {"b", "z", 2}}, 0},
		// b takes everything while a wants something: all of a's 3/4.
		{[]kpi.Use{{"a", "x", 0}, {"b", "z", 5}}, 0.75},
		// Who is alone has everything and is due everything.
		{[]kpi.Use{{"b", "z", 5}}, 0},
		// Within a: 1/2 each is due, x has all.
		{[]kpi.Use{{"a", "x", 5}, {"a", "y", 0}}, 0.5},
		// Somebody from nowhere stands below root with one share: 3, 1, 1 of 5.
		{[]kpi.Use{{"a", "x", 3}, {"b", "z", 1}, {"new", "u", 1}}, 0},
	} {
		d := kpi.Drift(tree, c.use)
		if !d.OK || math.Abs(d.Total-c.want) > 1e-12 {
			t.Errorf("case %d: %v, expected %v", i, d, c.want)
		}
	}
	if d := kpi.Drift(tree, []kpi.Use{{"a", "x", 0}}); d.OK {
		t.Error("a drift of nothing")
	}
	if s, ok := kpi.Slope([]float64{0, 1, 3}, []float64{5, 7, 11}); !ok || math.Abs(s-2) > 1e-12 {
		t.Errorf("the slope is %v", s)
	}
	if _, ok := kpi.Slope([]float64{1}, []float64{5}); ok {
		t.Error("one point has a slope")
	}
}

// TestDriftBounds: whatever tree and use, also a tree that is none, the drift
// lies between 0 and 1, and its parts by account and by user add up to it.
func TestDriftBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tree []kpi.Node
		for i := range rapid.IntRange(0, 12).Draw(t, "n") {
			tree = append(tree, kpi.Node{ID: uint32(i + 1), Parent: uint32(rapid.IntRange(0, 12).Draw(t, "parent")),
				Account: rapid.SampledFrom([]string{"root", "a", "b", "c"}).Draw(t, "account"), User: rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "user"),
				Shares: int64(rapid.IntRange(-1, 5).Draw(t, "shares"))})
		}
		var use []kpi.Use
		for range rapid.IntRange(1, 8).Draw(t, "uses") {
			use = append(use, kpi.Use{Account: rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "in"),
				User: rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "who"), Used: float64(rapid.IntRange(0, 9).Draw(t, "used"))})
		}
		d := kpi.Drift(tree, use)
		if !d.OK {
			return
		}
		if d.Total < 0 || d.Total > 1+1e-9 {
			t.Fatalf("the drift is %v: %+v %+v", d.Total, tree, use)
		}
		sum := 0.0
		for _, v := range d.Accounts {
			sum += v
		}
		if math.Abs(sum-d.Total) > 1e-9 {
			t.Fatalf("the accounts' parts are %v, all is %v", sum, d.Total)
		}
	})
}

// TestBound: the largest keys stay, whole.
func TestBound(t *testing.T) {
	var all []kpi.Value
	for i := range 10 {
		key := fmt.Sprintf("u%d", i)
		all = append(all, kpi.Value{KPI: "utilisation", By: kpi.ByUser, Key: key, Value: float64(i % 7)}, kpi.Value{KPI: "cost", By: kpi.ByUser, Key: key})
	}
	all = append(all, kpi.Value{KPI: "cost", By: kpi.ByQOS, Key: "normal"})
	got := ""
	for _, v := range kpi.Bound(all, 3) {
		got += v.Key + "/" + v.KPI + " "
	}
	if want := "u4/utilisation u4/cost u5/utilisation u5/cost u6/utilisation u6/cost normal/cost "; got != want {
		t.Errorf("left: %s", got)
	}
	if n := len(kpi.Bound(all, 100)); n != len(all) {
		t.Errorf("%d of %d are left", n, len(all))
	}
}
