// Package fairshare computes fair share: how far each user is from the part of the
// cluster that the shares of the association tree promise. It knows Fair Tree,
// which is the default, the classic formula (PriorityFlags=NO_FAIR_TREE), and
// that in which the depth of the tree does not count (DEPTH_OBLIVIOUS), in integers.
package fairshare

import (
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/fixed"
)

// Share is one association in the tree.
type Share struct {
	Assoc *spec.Association
	Up    int // index of the one above; -1 for the root
	Depth int
	User  bool
	Raw   fixed.U128 // decayed billing seconds

	Shares   int64  // its own
	Siblings int64  // of all below the one above it, together
	Rank     int64  // Fair Tree: place from the end among users; 0 for accounts
	Norm     uint64 // part of all shares down the tree, in 2^-63
	Used     uint64 // part of all use, in 2^-63
	Effect   uint64 // the use that counts: of the parent's (Fair Tree), or of all with the classic formula
	Factor   uint64 // the fair-share factor, in 2^-63
}

// Tree is the whole tree, depth first: an account, its users, its accounts.
type Tree struct {
	Shares []Share
	Users  int64
	Fair   bool // Fair Tree, not the classic formula

	byID map[uint32]int
	kids map[int][]int
}

// Has tells whether PriorityFlags has a flag.
func Has(config *spec.PriorityConfig, flag string) bool {
	return slices.ContainsFunc(config.Flags, func(f string) bool {
		return strings.EqualFold(f, flag)
	})
}

// Of computes the tree of a state.
func Of(cluster *state.State) *Tree {
	tree := buildTree(cluster)
	dampening := max(int64(cluster.Config.Priority.Dampening), 1)
	switch {
	case Has(&cluster.Config.Priority, "DEPTH_OBLIVIOUS"):
		tree.computeOblivious(dampening)
	case Has(&cluster.Config.Priority, "NO_FAIR_TREE"):
		tree.computeClassic(dampening)
	default:
		tree.Fair = true
		tree.fairTree()
	}
	return tree
}

// Find returns an association's share, or nil.
func (t *Tree) Find(assoc uint32) *Share {
	if i, ok := t.byID[assoc]; ok {
		return &t.Shares[i]
	}
	return nil
}

// Factor is an association's fair-share factor in 2^-63; 0 if it has none.
func (t *Tree) Factor(assoc uint32) uint64 {
	if share := t.Find(assoc); share != nil {
		return share.Factor
	}
	return 0
}

// Millionths is the factor in millionths, cut off.
func (t *Tree) Millionths(assoc uint32) int64 { return toMillionths(t.Factor(assoc)) }

// toMillionths writes a fraction in 2^-63 in millionths, cut off.
func toMillionths(f uint64) int64 {
	hi, lo := bits.Mul64(f, 1_000_000)
	return int64(hi<<1 | lo>>63)
}

// Notes says of each association that has used something, and of each account,
// how far use and shares are apart.
func (t *Tree) Notes() []event.ShareNote {
	var notes []event.ShareNote
	for i := range t.Shares {
		share := &t.Shares[i]
		if share.User && share.Raw.IsZero() {
			continue
		}
		notes = append(
			notes,
			event.ShareNote{
				Assoc:  share.Assoc.ID,
				Norm:   toMillionths(share.Norm),
				Used:   toMillionths(share.Used),
				Factor: toMillionths(share.Factor),
				Raw:    int64(min(share.Raw.Hi, math.MaxInt64)),
			},
		)
	}
	return notes
}

// fractionOf is a/b in 2^-63, at most 1.
func fractionOf(a, b fixed.U128) uint64 {
	if a.Cmp(b) >= 0 {
		if b.IsZero() {
			return 0
		}
		return fixed.One
	}
	// Shift both so that b fills 64 bits: what is lost is below 2^-62 of it.
	for b.Hi == 0 && b.Lo>>63 == 0 {
		a.Lo, b.Lo = a.Lo<<1, b.Lo<<1
	}
	if b.Hi != 0 {
		n := 64 - bits.LeadingZeros64(b.Hi)
		a.Lo, b.Lo = a.Hi<<(64-n)|a.Lo>>n, b.Hi<<(64-n)|b.Lo>>n
		if a.Lo >= b.Lo {
			return fixed.One
		}
	}
	q, _ := bits.Div64(a.Lo>>1, a.Lo<<63, b.Lo)
	return q
}

func partOf(a, b int64) uint64 { return fractionOf(fixed.Of(a), fixed.Of(b)) }

// multiply is a*b in 2^-63.
func multiply(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi<<1 | lo>>63
}

// buildTree orders the associations as a tree and adds up what is alike for every
// formula.
func buildTree(cluster *state.State) *Tree {
	policy := cluster.Policy
	tree := &Tree{byID: make(map[uint32]int, len(policy.Assocs)), kids: map[int][]int{}}
	below := map[uint32][]*spec.Association{}
	for i := range policy.Assocs {
		assoc := &policy.Assocs[i]
		parent := assoc.Parent
		if policy.Assoc(parent) == nil {
			parent = 0
		}
		below[parent] = append(below[parent], assoc)
	}
	var walk func(list []*spec.Association, up, depth int)
	walk = func(list []*spec.Association, up, depth int) {
		slices.SortStableFunc(list, func(assoc, association *spec.Association) int {
			if (assoc.User == "") != (association.User == "") {
				if assoc.User != "" {
					return -1
				}
				return 1
			}
			return int(assoc.ID) - int(association.ID)
		})
		total := int64(0)
		for _, association := range list {
			if !association.SharesParent {
				total += association.Share()
			}
		}
		for _, assoc := range list {
			share := Share{
				Assoc:    assoc,
				Up:       up,
				Depth:    depth,
				User:     assoc.User != "",
				Shares:   assoc.Share(),
				Siblings: total,
			}
			if usage := cluster.SpentOf(state.UsageAssoc, 0, assoc.ID); usage != nil {
				share.Raw = usage.Raw
			}
			i := len(tree.Shares)
			tree.byID[assoc.ID] = i
			tree.kids[up] = append(tree.kids[up], i)
			tree.Shares = append(tree.Shares, share)
			if share.User {
				tree.Users++
			}
			walk(below[assoc.ID], i, depth+1)
		}
	}
	walk(below[0], -1, 0)
	for i := range tree.Shares {
		share := &tree.Shares[i]
		switch {
		case share.Up < 0:
			share.Norm, share.Used = fixed.One, fixed.One
		case share.Assoc.SharesParent:
			share.Norm, share.Used = tree.Shares[share.Up].Norm, fractionOf(
				share.Raw,
				tree.Shares[0].Raw,
			)
		default:
			share.Norm, share.Used = multiply(
				tree.Shares[share.Up].Norm,
				partOf(share.Shares, share.Siblings),
			), fractionOf(
				share.Raw,
				tree.Shares[0].Raw,
			)
		}
	}
	return tree
}

// isInfinite tells whether an association has used nothing, or counts as its
// parent: it comes before all others.
func (s *Share) isInfinite() bool { return s.Assoc.SharesParent || s.Raw.IsZero() }

// compareLevels compares LevelFS, shares by use, of two siblings: what they have in
// common, all shares and the parent's use, falls out.
func compareLevels(a, b *Share) int {
	switch {
	case a.isInfinite() && b.isInfinite():
		return 0
	case a.isInfinite():
		return 1
	case b.isInfinite():
		return -1
	}
	return -fixed.CmpProducts(a.Raw, b.Shares, b.Raw, a.Shares)
}

// LevelFS is shares by use among siblings in billionths; infinite tells that
// nothing was used.
func (t *Tree) LevelFS(share *Share) (billionths int64, infinite bool) {
	if share.isInfinite() {
		return 0, true
	}
	if share.Up < 0 || share.Shares == 0 || share.Siblings == 0 {
		return 0, false
	}
	up := t.Shares[share.Up].Raw
	return fixed.Ratio(
		up.Times(share.Shares).Over(share.Siblings),
		share.Raw,
		1_000_000_000,
		math.MaxInt64/2,
	), false
}

// fairTree ranks the users: siblings by LevelFS, the highest first and users
// before accounts among equals, everything below an account in its place.
func (t *Tree) fairTree() {
	for i := range t.Shares {
		if share := &t.Shares[i]; share.Up < 0 {
			share.Effect = fixed.One
		} else {
			share.Effect = fractionOf(share.Raw, t.Shares[share.Up].Raw)
		}
	}
	rank, told := t.Users, t.Users
	var walk func(up int, tied bool)
	walk = func(up int, tied bool) {
		list := slices.Clone(t.kids[up])
		slices.SortStableFunc(list, func(i, j int) int {
			a, b := &t.Shares[i], &t.Shares[j]
			if c := compareLevels(b, a); c != 0 || a.User == b.User {
				return c
			}
			if a.User {
				return -1
			}
			return 1
		})
		for k, i := range list {
			share := &t.Shares[i]
			// Equals share the rank of the first of them. The first below an
			// account that is tied with its sibling is tied, too.
			same := (k == 0 && tied) || (k > 0 && compareLevels(share, &t.Shares[list[k-1]]) == 0)
			if !share.User {
				walk(i, same)
				continue
			}
			if !same {
				told = rank
			}
			share.Rank = told
			share.Factor = partOf(told, t.Users)
			rank--
		}
	}
	walk(-1, false)
}

// computeClassic is 2^-(effective use by shares), dampened.
func (t *Tree) computeClassic(dampening int64) {
	roots := halfPowers()
	for i := range t.Shares {
		share := &t.Shares[i]
		switch {
		case share.Up < 0:
			share.Effect = fixed.One
		case share.Assoc.SharesParent:
			share.Effect = t.Shares[share.Up].Effect
		default:
			up := t.Shares[share.Up].Effect
			share.Effect = share.Used
			if up > share.Used {
				share.Effect += multiply(up-share.Used, partOf(share.Shares, share.Siblings))
			}
		}
		if share.User && share.Norm > 0 {
			share.Factor = negExp2(quotient(share.Effect, share.Norm, dampening), roots)
		}
	}
}

// quotient is x/d/damp for two numbers x and d of the same unit, with 64 bits
// behind the point.
func quotient(x, d uint64, damp int64) fixed.U128 {
	frac, _ := bits.Div64(x%d, 0, d)
	return fixed.U128{Hi: x / d, Lo: frac}.Over(damp)
}

// halfPowers are 2^-(1/2), 2^-(1/4), ... in 2^-63: each the root of the one before.
func halfPowers() []uint64 {
	out := make([]uint64, 48)
	value := fixed.One / 2
	for i := range out {
		value = squareRoot(value)
		out[i] = value
	}
	return out
}

// squareRoot is the square root of value in 2^-63: of value * 2^63, by bits.
func squareRoot(value uint64) uint64 {
	out := uint64(0)
	for bit := uint64(1) << 63; bit > 0; bit >>= 1 {
		try := out | bit
		hi, lo := bits.Mul64(try, try)
		if hi < value>>1 || (hi == value>>1 && lo <= value<<63) {
			out = try
		}
	}
	return out
}

// negExp2 is 2^-x in 2^-63.
func negExp2(x fixed.U128, roots []uint64) uint64 {
	if x.Hi >= 63 {
		return 0
	}
	out := fixed.One >> x.Hi
	for i, r := range roots {
		if x.Lo>>(63-i)&1 != 0 {
			out = multiply(out, r)
		}
	}
	return out
}
