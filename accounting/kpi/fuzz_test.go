package kpi_test

import (
	"testing"

	"github.com/musterhpc/muster/accounting/kpi"
	"github.com/musterhpc/muster/spec"
)

// FuzzRates: prices, carbon intensities and budgets that are accepted are no negative amounts,
// and what is left of a budget can be a limit.
func FuzzRates(f *testing.F) {
	f.Add("1.4", "2026-01-01 cpu=0.5 mem=0.25 gres/gpu=2", "2026-01-01 400", "ml 2026-01-01 2027-01-01 120 enforce warn=10")
	f.Add("", "2026-06-01 cpu=0.000001", "2026-01-01 0", "a 2026-01-01 2026-01-02 0.01")
	f.Fuzz(func(t *testing.T, pue, price, carbon, budget string) {
		rates, err := kpi.ParseRates("EUR", pue, []string{price}, []string{carbon}, []string{budget})
		if err != nil {
			if err.Error() == "" {
				t.Fatal("refused without a word")
			}
			return
		}
		for _, list := range rates.Prices {
			for _, p := range list.Per {
				if p.Micro < 0 {
					t.Fatalf("%q: a price of %d", price, p.Micro)
				}
			}
		}
		for _, b := range rates.Budgets {
			if b.Micro < 0 || b.End <= b.Start {
				t.Fatalf("%q: %+v", budget, b)
			}
			for _, spent := range []float64{0, float64(b.Micro) / 2e6, float64(b.Micro) / 1e6} {
				s := kpi.Spent{Budget: b, Amount: float64(b.Micro) / 1e6, Spent: spent, At: b.End - 1}
				checkLeft(t, s.Left(rates.Prices), spent < s.Amount)
			}
		}
	})
}

// checkLeft: something is left of each TRES where money is, and no limit is negative.
func checkLeft(t *testing.T, left spec.Limits, money bool) {
	t.Helper()
	for _, l := range left {
		if l.N < 0 || !money && l.N != 0 {
			t.Fatalf("%d minutes of %s are left, money %v", l.N, l.Name, money)
		}
	}
}
