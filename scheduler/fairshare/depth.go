package fairshare

import (
	"math/bits"

	"github.com/musterhpc/muster/spec/fixed"
)

// fraction is how many bits of a logarithm are behind the point.
const fraction = 48

// farthest is the greatest logarithm that is told from a greater one: a ratio of
// 2^8192 leaves no factor, its inverse the whole of it.
const farthest = int64(1) << (13 + fraction)

// A ratio of use to shares is told as its logarithm to base 2. never is that of
// no use at all.
const never = -farthest

// computeOblivious is the classic formula with DEPTH_OBLIVIOUS: 2^-R, dampened, where R
// is the ratio R_parent * R_local^k. R_local is an association's part of its
// parent's use by its part of its siblings' shares, and k is 1 unless one of
// the two ratios is above 1 and the other below: then 1/(1 + (5 ln R_parent)^2),
// so that a user far below an account counts as the account does.
func (t *Tree) computeOblivious(dampening int64) {
	roots := halfPowers()
	ratios := make([]int64, len(t.Shares))
	for i := range t.Shares {
		share := &t.Shares[i]
		switch {
		case share.Up < 0:
			share.Effect = fixed.One
		case share.Assoc.SharesParent:
			ratios[i], share.Effect = ratios[share.Up], t.Shares[share.Up].Effect
		case share.Shares == 0 || share.Siblings == 0 || share.Norm == 0: // no part of anything
			share.Effect = share.Used
		default:
			ratios[i] = never
			if !share.Raw.IsZero() {
				local := log2(share.Raw) - log2(t.Shares[share.Up].Raw) + log2(fixed.Of(share.Siblings)) - log2(fixed.Of(share.Shares))
				ratios[i] = min(max(below(ratios[share.Up], local), -farthest), farthest)
			}
			share.Effect = fixed.One
			if e := exp2(ratios[i], roots).Scale(share.Norm); e.Hi == 0 {
				share.Effect = e.Lo >> 1
			}
		}
		if share.User && share.Norm > 0 {
			share.Factor = negExp2(exp2(ratios[i], roots).Over(dampening), roots)
		}
	}
}

// below is the ratio of an association whose parent has the first one.
func below(up, local int64) int64 {
	if up < 0 == (local < 0) || up == 0 || local == 0 {
		return up + local
	}
	// x is 5 ln R_parent: 5 ln 2 of the logarithm, in the same unit.
	hi, lo := bits.Mul64(uint64(max(up, -up)), fiveLn2)
	x := hi<<(64-fraction) | lo>>fraction
	hi, lo = bits.Mul64(x, x)
	hi += 1 << (2*fraction - 64) // 1 + x^2, twice as many bits behind the point
	// local/(1+x^2): both by 2^fraction more than they are.
	q := quo(uint64(max(local, -local)), hi, lo)
	if local < 0 {
		return up - q
	}
	return up + q
}

// fiveLn2 is 5 times the natural logarithm of 2, in the unit of logarithms.
const fiveLn2 = 975517932525837

// quo is n * 2^96 / (hi, lo), where hi is at least 2^32 and n below 2^62.
func quo(n, hi, lo uint64) int64 {
	// What is cut off of both is below 2^-32 of them and of the quotient's last bit.
	shift := bits.LeadingZeros64(hi)
	d := hi<<shift | lo>>(64-shift)
	q, _ := bits.Div64(n>>1, n<<63, d) // n * 2^63 / d
	return int64(q >> (31 - shift))
}

// log2 is the logarithm of a number that is not 0.
func log2(a fixed.U128) int64 {
	var whole int64
	var m uint64
	if a.Hi == 0 {
		z := bits.LeadingZeros64(a.Lo)
		whole = -1 - int64(z)
		m = a.Lo << z
	} else {
		z := bits.LeadingZeros64(a.Hi)
		whole = 63 - int64(z)
		m = a.Hi<<z | a.Lo>>(64-z) // a shift by all 64 bits gives 0
	}
	out := whole
	for range fraction { // m is from 1 to 2, in 2^-63: what it is squared tells a bit
		hi, lo := bits.Mul64(m, m)
		out <<= 1
		if hi>>63 != 0 {
			m, out = hi, out|1
		} else {
			m = hi<<1 | lo>>63
		}
	}
	return out
}

// exp2 is 2 to a logarithm; what is too large is the largest number there is.
func exp2(l int64, roots []uint64) fixed.U128 {
	up := -(-l >> fraction) // to the next whole number
	m := negExp2(fixed.U128{Lo: uint64(up<<fraction-l) << (64 - fraction)}, roots)
	switch shift := up + 1; { // of m in 2^-63 to 2^-64
	case shift > 64:
		return fixed.Max()
	case shift > 0:
		return fixed.U128{Hi: m >> (64 - shift), Lo: m << shift}
	case shift > -64:
		return fixed.U128{Lo: m >> -shift}
	}
	return fixed.U128{}
}
