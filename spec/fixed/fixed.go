// Package fixed is arithmetic on non-negative fixed-point numbers: 128 bits,
// 64 of them behind the point. It gives the same result on every machine,
// which floating point does not promise. Results too large saturate.
package fixed

import "math/bits"

// U128 is a number: Hi whole, and Lo 2^-64ths.
type U128 struct {
	Hi uint64 `cbor:"1,keyasint,omitempty"`
	Lo uint64 `cbor:"2,keyasint,omitempty"`
}

// Max is the largest number.
func Max() U128 { return U128{^uint64(0), ^uint64(0)} }

// One is the factor 1 among the factors of Scale and Pow, which are in units
// of 2^-63.
const One uint64 = 1 << 63

// Of makes a whole number; a negative one is 0.
func Of(n int64) U128 { return U128{Hi: uint64(max(n, 0))} }

// Seconds is a span of nanoseconds in seconds; a negative one is 0.
func Seconds(ns int64) U128 {
	if ns <= 0 {
		return U128{}
	}
	const sec = 1_000_000_000
	lo, _ := bits.Div64(uint64(ns)%sec, 0, sec)
	return U128{uint64(ns) / sec, lo}
}

// IsZero tells 0.
func (a U128) IsZero() bool { return a.Hi == 0 && a.Lo == 0 }

// Cmp compares: -1, 0 or 1.
func (a U128) Cmp(b U128) int {
	switch {
	case a == b:
		return 0
	case a.Hi < b.Hi || (a.Hi == b.Hi && a.Lo < b.Lo):
		return -1
	}
	return 1
}

// Add is a + b.
func (a U128) Add(b U128) U128 {
	lo, carry := bits.Add64(a.Lo, b.Lo, 0)
	hi, over := bits.Add64(a.Hi, b.Hi, carry)
	if over != 0 {
		return Max()
	}
	return U128{hi, lo}
}

// Sub is a - b, at least 0.
func (a U128) Sub(b U128) U128 {
	lo, borrow := bits.Sub64(a.Lo, b.Lo, 0)
	hi, under := bits.Sub64(a.Hi, b.Hi, borrow)
	if under != 0 {
		return U128{}
	}
	return U128{hi, lo}
}

// Times is a * n for a whole n; a negative one is 0.
func (a U128) Times(n int64) U128 {
	if n <= 0 {
		return U128{}
	}
	carry, lo := bits.Mul64(a.Lo, uint64(n))
	over, hi := bits.Mul64(a.Hi, uint64(n))
	hi, c := bits.Add64(hi, carry, 0)
	if over+c != 0 {
		return Max()
	}
	return U128{hi, lo}
}

// Over is a / n, cut off; n must be positive.
func (a U128) Over(n int64) U128 {
	hi, rest := a.Hi/uint64(n), a.Hi%uint64(n)
	lo, _ := bits.Div64(rest, a.Lo, uint64(n))
	return U128{hi, lo}
}

// Scale is a * f, cut off, for a factor f of at most One.
func (a U128) Scale(f uint64) U128 {
	if f >= One {
		return a
	}
	// (Hi*2^64 + Lo) * f / 2^63, by words.
	h1, h0 := bits.Mul64(a.Hi, f)
	l1, _ := bits.Mul64(a.Lo, f)
	mid, carry := bits.Add64(h0, l1, 0)
	h1 += carry
	_, low := bits.Mul64(a.Lo, f)
	return U128{h1<<1 | mid>>63, mid<<1 | low>>63}
}

// Pow is f^n for a factor f of at most One.
func Pow(f uint64, n int64) uint64 {
	out := One
	for f = min(f, One); n > 0; n >>= 1 {
		if n&1 != 0 {
			out = mul(out, f)
		}
		f = mul(f, f)
	}
	return out
}

func mul(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi<<1 | lo>>63
}

// CmpProducts compares a*m with b*n exactly, for whole m and n that are not
// negative.
func CmpProducts(a U128, m int64, b U128, n int64) int {
	x, y := words(a, uint64(m)), words(b, uint64(n))
	for i := range x {
		if x[i] != y[i] {
			if x[i] < y[i] {
				return -1
			}
			return 1
		}
	}
	return 0
}

// words is a*m in three words, the highest first.
func words(a U128, m uint64) [3]uint64 {
	l1, l0 := bits.Mul64(a.Lo, m)
	h1, h0 := bits.Mul64(a.Hi, m)
	mid, carry := bits.Add64(h0, l1, 0)
	return [3]uint64{h1 + carry, mid, l0}
}

// Ratio is a/b in units of 1/unit, cut off; it saturates at most, and is 0
// where b is 0.
func Ratio(a, b U128, unit, most int64) int64 {
	if b.IsZero() || a.IsZero() {
		return 0
	}
	// Shift both down until the divisor fits a word: the loss is below 2^-63.
	n := words(a, uint64(unit))
	d := [2]uint64{b.Hi, b.Lo}
	for d[0] != 0 {
		d[1], d[0] = d[1]>>1|d[0]<<63, d[0]>>1
		n[2] = n[2]>>1 | n[1]<<63
		n[1] = n[1]>>1 | n[0]<<63
		n[0] >>= 1
	}
	if n[0] != 0 || n[1] >= d[1] {
		return most
	}
	q, _ := bits.Div64(n[1], n[2], d[1])
	if q > uint64(most) {
		return most
	}
	return int64(q)
}
