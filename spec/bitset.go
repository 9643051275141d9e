package spec

import (
	"math/bits"
	"strconv"
	"strings"
)

// Bitset is a set of small integers (CPUs, GPU indices, node ids), 64 a word.
// Trailing zero words may be absent. Methods that change return the set.
type Bitset []uint64

// Has tells whether i is in the set.
func (b Bitset) Has(i int) bool { return i>>6 < len(b) && b[i>>6]&(1<<(i&63)) != 0 }

// Set adds i in place, growing if needed.
func (b Bitset) Set(i int) Bitset {
	for len(b) <= i>>6 {
		b = append(b, 0)
	}
	b[i>>6] |= 1 << (i & 63)
	return b
}

// Clear removes i in place.
func (b Bitset) Clear(i int) Bitset {
	if i>>6 < len(b) {
		b[i>>6] &^= 1 << (i & 63)
	}
	return b
}

// Count is the number of members.
func (b Bitset) Count() int {
	n := 0
	for _, w := range b {
		n += bits.OnesCount64(w)
	}
	return n
}

// Clone copies the set.
func (b Bitset) Clone() Bitset { return append(Bitset(nil), b...) }

// Trim drops trailing zero words and makes an empty set nil, so that equal
// sets are equal values.
func (b Bitset) Trim() Bitset {
	for len(b) > 0 && b[len(b)-1] == 0 {
		b = b[:len(b)-1]
	}
	if len(b) == 0 {
		return nil
	}
	return b
}

// Or returns b ∪ c as a new set.
func (b Bitset) Or(c Bitset) Bitset {
	if len(b) < len(c) {
		b, c = c, b
	}
	out := b.Clone()
	for i, w := range c {
		out[i] |= w
	}
	return out
}

// AndNot returns b \ c as a new set.
func (b Bitset) AndNot(c Bitset) Bitset {
	out := b.Clone()
	for i := range out {
		if i < len(c) {
			out[i] &^= c[i]
		}
	}
	return out
}

// And returns b ∩ c as a new set.
func (b Bitset) And(c Bitset) Bitset {
	n := min(len(b), len(c))
	out := make(Bitset, n)
	for i := range out {
		out[i] = b[i] & c[i]
	}
	return out
}

// Intersects tells whether the sets share a member.
func (b Bitset) Intersects(c Bitset) bool {
	for i := 0; i < min(len(b), len(c)); i++ {
		if b[i]&c[i] != 0 {
			return true
		}
	}
	return false
}

// Empty tells a set without members.
func (b Bitset) Empty() bool {
	for _, w := range b {
		if w != 0 {
			return false
		}
	}
	return true
}

// Next returns the smallest member that is at least i, or -1.
func (b Bitset) Next(i int) int {
	for w := i >> 6; w < len(b); w++ {
		word := b[w]
		if w == i>>6 {
			word &= ^uint64(0) << (i & 63)
		}
		if word != 0 {
			return w<<6 + bits.TrailingZeros64(word)
		}
	}
	return -1
}

// Last returns the largest member, or -1.
func (b Bitset) Last() int {
	for w := len(b) - 1; w >= 0; w-- {
		if b[w] != 0 {
			return w<<6 + 63 - bits.LeadingZeros64(b[w])
		}
	}
	return -1
}

// Members lists the set in ascending order.
func (b Bitset) Members() []int {
	out := make([]int, 0, b.Count())
	for i := b.Next(0); i >= 0; i = b.Next(i + 1) {
		out = append(out, i)
	}
	return out
}

// Ranges writes the set as 0-3,8.
func (b Bitset) Ranges() string {
	var out []byte
	for i := b.Next(0); i >= 0; {
		j := i
		for b.Has(j + 1) {
			j++
		}
		if len(out) > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendInt(out, int64(i), 10)
		if j > i {
			out = strconv.AppendInt(append(out, '-'), int64(j), 10)
		}
		i = b.Next(j + 1)
	}
	return string(out)
}

// ParseRanges reads what Ranges writes, for members below most.
func ParseRanges(text string, most int) (bitset Bitset, ok bool) {
	if text == "" {
		return nil, true
	}
	for part := range strings.SplitSeq(text, ",") {
		from, to, wide := strings.Cut(part, "-")
		first, err := strconv.Atoi(from)
		last := first
		if err == nil && wide {
			last, err = strconv.Atoi(to)
		}
		if err != nil || first < 0 || last < first || last >= most {
			return nil, false
		}
		for i := first; i <= last; i++ {
			bitset = bitset.Set(i)
		}
	}
	return bitset, true
}

// FullBitset is the set {0 … n-1}.
func FullBitset(n int) Bitset {
	bitset := make(Bitset, (n+63)/64)
	for i := range bitset {
		bitset[i] = ^uint64(0)
	}
	if n&63 != 0 {
		bitset[len(bitset)-1] = 1<<(n&63) - 1
	}
	return bitset
}
