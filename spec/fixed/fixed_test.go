package fixed_test

import (
	"math/big"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/spec/fixed"
)

func rat(a fixed.U128) *big.Rat {
	n := new(big.Int).Lsh(new(big.Int).SetUint64(a.Hi), 64)
	n.Or(n, new(big.Int).SetUint64(a.Lo))
	return new(big.Rat).SetFrac(n, new(big.Int).Lsh(big.NewInt(1), 64))
}

func factor(f uint64) *big.Rat {
	return new(big.Rat).SetFrac(new(big.Int).SetUint64(f), new(big.Int).SetUint64(fixed.One))
}

// ulp is how far a result that is cut off may be below the exact one.
func ulp(k int64) *big.Rat {
	return new(big.Rat).SetFrac(big.NewInt(k), new(big.Int).Lsh(big.NewInt(1), 64))
}

func drawU128(t *rapid.T, what string) fixed.U128 {
	shift := rapid.IntRange(0, 63).Draw(t, "shift")
	return fixed.U128{Hi: rapid.Uint64().Draw(t, what) >> shift, Lo: rapid.Uint64().Draw(t, what)}
}

func within(t *rapid.T, what string, got fixed.U128, want, below *big.Rat) {
	t.Helper()
	limit := new(big.Rat).SetInt(new(big.Int).Lsh(big.NewInt(1), 64))
	if want.Cmp(limit) >= 0 {
		if got != fixed.Max() {
			t.Fatalf("%s: %v does not saturate at %s", what, got, want.FloatString(3))
		}
		return
	}
	d := new(big.Rat).Sub(want, rat(got))
	if d.Sign() < 0 || d.Cmp(below) > 0 {
		t.Fatalf("%s: %s, exactly %s", what, rat(got).FloatString(20), want.FloatString(20))
	}
}

func TestArithmeticAgainstRationals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawU128(t, "a"), drawU128(t, "b")
		n := rapid.Int64Range(1, 1<<40).Draw(t, "n")
		f := rapid.Uint64Range(0, fixed.One).Draw(t, "f")
		zero := new(big.Rat)
		within(t, "a+b", a.Add(b), new(big.Rat).Add(rat(a), rat(b)), zero)
		within(t, "a*n", a.Times(n), new(big.Rat).Mul(rat(a), new(big.Rat).SetInt64(n)), zero)
		within(t, "a/n", a.Over(n), new(big.Rat).Quo(rat(a), new(big.Rat).SetInt64(n)), ulp(1))
		within(t, "a*f", a.Scale(f), new(big.Rat).Mul(rat(a), factor(f)), ulp(1))
		if d := new(big.Rat).Sub(rat(a), rat(b)); d.Sign() < 0 {
			within(t, "a-b", a.Sub(b), zero, zero)
		} else {
			within(t, "a-b", a.Sub(b), d, zero)
		}
		if got, want := a.Cmp(b), rat(a).Cmp(rat(b)); got != want {
			t.Fatalf("compare: %d, want %d", got, want)
		}
		m := rapid.Int64Range(0, 1<<40).Draw(t, "m")
		x := new(big.Rat).Mul(rat(a), new(big.Rat).SetInt64(m))
		y := new(big.Rat).Mul(rat(b), new(big.Rat).SetInt64(n))
		if got, want := fixed.CmpProducts(a, m, b, n), x.Cmp(y); got != want {
			t.Fatalf("compare products: %d, want %d", got, want)
		}
	})
}

func TestSecondsAreExactToTheLastBit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ns := rapid.Int64Range(0, 1<<62).Draw(t, "ns")
		within(t, "seconds", fixed.Seconds(ns), big.NewRat(ns, 1_000_000_000), ulp(1))
	})
}

// A power is at most a few units of 2^-63 below the exact one for every
// multiplication that it takes.
func TestPowAgainstRationals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := fixed.One - rapid.Uint64Range(0, 1<<50).Draw(t, "less")
		n := rapid.Int64Range(0, 1200).Draw(t, "n")
		want := new(big.Rat).SetInt64(1)
		for range n {
			want.Mul(want, factor(f))
			if want.Denom().BitLen() > 2000 { // keep it quick; 2^-900 does not matter here
				want.SetFrac(new(big.Int).Quo(new(big.Int).Lsh(want.Num(), 900), want.Denom()), new(big.Int).Lsh(big.NewInt(1), 900))
			}
		}
		got := factor(fixed.Pow(f, n))
		d := new(big.Rat).Sub(want, got)
		if d.Abs(d).Cmp(big.NewRat(3000, 1<<62)) > 0 {
			t.Fatalf("%d^%d: %s, exactly %s", f, n, got.FloatString(20), want.FloatString(20))
		}
	})
}

func TestRatio(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawU128(t, "a"), drawU128(t, "b")
		const unit, most = 1_000_000, 1 << 40
		got := fixed.Ratio(a, b, unit, most)
		if b.IsZero() {
			if got != 0 {
				t.Fatalf("%v/0 is %d", a, got)
			}
			return
		}
		want := new(big.Rat).Mul(new(big.Rat).Quo(rat(a), rat(b)), new(big.Rat).SetInt64(unit))
		if want.Cmp(new(big.Rat).SetInt64(most)) >= 0 {
			if got < most-1 {
				t.Fatalf("%v/%v is %d, beyond %d", a, b, got, most)
			}
			return
		}
		d := new(big.Rat).Sub(want, new(big.Rat).SetInt64(got))
		if d.Cmp(big.NewRat(-1, 1)) < 0 || d.Cmp(big.NewRat(2, 1)) > 0 {
			t.Fatalf("%v/%v is %d, exactly %s", a, b, got, want.FloatString(6))
		}
	})
}
