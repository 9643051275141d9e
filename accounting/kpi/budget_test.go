package kpi_test

import (
	"fmt"
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/spec"
)

// TestSpent: burn-down and forecast.
func TestSpent(t *testing.T) {
	s := kpi.Spent{Budget: kpi.Budget{Start: 0, End: spec.Instant(100 * spec.Day), Warn: []int64{50, 80}}, Amount: 1000, Spent: 600, Recent: 70,
		Window: 7 * spec.Day, At: spec.Instant(40 * spec.Day)}
	if s.Share() != 0.6 || s.Elapsed() != 0.4 || s.Forecast() != 1200 || s.Warning() != 50 {
		t.Errorf("%v %v %v %v", s.Share(), s.Elapsed(), s.Forecast(), s.Warning())
	}
	if at, ok := s.RunsOut(); !ok || at != spec.Instant(80*spec.Day) {
		t.Errorf("it runs out at %v, %v", at, ok)
	}
	s.Recent = 7
	if _, ok := s.RunsOut(); ok {
		t.Error("it runs out although it lasts")
	}
	s.Spent = 1000
	if at, ok := s.RunsOut(); !ok || at != s.At || s.Warning() != 80 {
		t.Error("it is spent")
	}
	s.At = spec.Instant(200 * spec.Day)
	if s.Forecast() != 1000 || s.Elapsed() != 1 {
		t.Error("a budget that is over has no future")
	}
}

// TestLeft: what is left pays for so many minutes of each TRES, at the prices of
// the day, and for nothing once it is spent.
func TestLeft(t *testing.T) {
	rates, err := kpi.ParseRates("EUR", "", []string{"2026-01-01 cpu=0.5 mem=0.25 gres/gpu=2 node=0", "2026-06-01 cpu=1"}, nil, []string{"ml 2026-01-01 2027-01-01 120 enforce warn=10"})
	if err != nil {
		t.Fatal(err)
	}
	if b := rates.Budgets[0]; !b.Enforce || len(b.Warn) != 1 {
		t.Fatalf("%+v", b)
	}
	s := kpi.Spent{Budget: rates.Budgets[0], Amount: 120, Spent: 20, At: rates.Prices[1].From - 1}
	for want, change := range map[string]func(){
		"cpu=12000,gres/gpu=3000,mem=24000G": func() {},
		"cpu=6000":                           func() { s.At++ },
		"cpu=0":                              func() { s.At, s.Spent = s.At+1, 121 },
		"cpu=1":                              func() { s.At, s.Spent = s.At+1, 119.999 },
		"":                                   func() { s.At = 0 },
	} {
		was := s
		change()
		if got := s.Left(rates.Prices).String(); got != want {
			t.Errorf("left %s, want %s", got, want)
		}
		s = was
	}
}

// TestApportion: the parts add up to the rounded total, and none is off by a
// whole unit.
func TestApportion(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scale := big.NewInt(rapid.Int64Range(1, 1000).Draw(t, "scale"))
		var exact []*big.Int
		sum := new(big.Int)
		for range rapid.IntRange(0, 9).Draw(t, "n") {
			exact = append(exact, big.NewInt(rapid.Int64Range(0, 5000).Draw(t, "part")))
			sum.Add(sum, exact[len(exact)-1])
		}
		parts, total := kpi.Apportion(exact, scale)
		got := new(big.Int)
		for i, p := range parts {
			got.Add(got, p)
			diff := new(big.Int).Sub(new(big.Int).Mul(p, scale), exact[i])
			if diff.CmpAbs(scale) >= 0 {
				t.Fatalf("%v of %v is %v", exact[i], scale, p)
			}
		}
		twice := new(big.Int).Sub(new(big.Int).Mul(total, scale), sum)
		if got.Cmp(total) != 0 || twice.Lsh(twice, 1).CmpAbs(scale) > 0 {
			t.Fatalf("%v by %v: parts %v, total %v", exact, scale, parts, total)
		}
	})
}

// TestApportionTotal: a line that was rounded among others is given out among its parts, whichever
// way it was rounded, and no part is off by a whole unit.
func TestApportionTotal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		scale := big.NewInt(rapid.Int64Range(1, 1000).Draw(t, "scale"))
		var lines [][]*big.Int
		var sums []*big.Int
		for range rapid.IntRange(1, 5).Draw(t, "lines") {
			var line []*big.Int
			sum := new(big.Int)
			for range rapid.IntRange(1, 9).Draw(t, "parts") {
				line = append(line, big.NewInt(rapid.Int64Range(0, 5000).Draw(t, "part")))
				sum.Add(sum, line[len(line)-1])
			}
			lines = append(lines, line)
			sums = append(sums, sum)
		}
		rounded, _ := kpi.Apportion(sums, scale)
		for i, line := range lines {
			got := new(big.Int)
			for j, part := range kpi.ApportionTotal(line, scale, rounded[i]) {
				got.Add(got, part)
				diff := new(big.Int).Sub(new(big.Int).Mul(part, scale), line[j])
				if diff.CmpAbs(scale) >= 0 {
					t.Fatalf("%v of %v is %v", line[j], scale, part)
				}
			}
			if got.Cmp(rounded[i]) != 0 {
				t.Fatalf("%v by %v: %v, the line says %v", line, scale, got, rounded[i])
			}
		}
	})
}

func TestBelow(t *testing.T) {
	tree := []kpi.Node{{ID: 1, Account: "root"}, {ID: 2, Parent: 1, Account: "a"}, {ID: 3, Parent: 2, Account: "b"}, {ID: 4, Parent: 3, Account: "b", User: "u"},
		{ID: 5, Parent: 3, Account: "c"}, {ID: 6, Parent: 1, Account: "d"}, {ID: 7, Parent: 8, Account: "x"}, {ID: 8, Parent: 7, Account: "y"}}
	for account, want := range map[string]string{"a": "[a b c]", "b": "[b c]", "d": "[d]", "new": "[new]", "root": "[a b c d root]", "x": "[x y]"} {
		if got := fmt.Sprint(kpi.Below(tree, account)); got != want {
			t.Errorf("below %s: %s", account, got)
		}
	}
}
