// Package pmap is a persistent map from uint64 to values: copying a Map costs
// nothing, and writing to one copy never shows in another.
//
// It is a 32-way radix tree whose nodes are compressed by bitmap and stamped
// with an owner. A writer changes nodes that carry its own stamp in place and
// copies all others, so a long run of writes between two snapshots is about as
// cheap as on an ordinary tree, and taking a snapshot is one assignment plus
// a new stamp. Iteration is in ascending key order, always.
//
// The digits that all keys have in common above the root are kept once, so a
// set of a few neighbouring keys is one node, wherever the keys lie.
package pmap

import (
	"math/bits"
	"slices"
)

const (
	stride = 5
	mask   = 1<<stride - 1
)

// Owner stamps the nodes that one writer may change in place. Dropping the
// last reference to an Owner freezes everything that carries it.
type Owner struct{ _ byte }

// Map is a persistent map; the zero value is empty. Copy it freely.
type Map[V any] struct {
	root   *node[V]
	prefix uint64 // what every key is above the root's digits
	height uint8  // levels above the leaves
	n      int
}

type node[V any] struct {
	owner  *Owner
	bitmap uint32
	kids   []*node[V]
	vals   []V
}

// Len is the number of entries.
func (m *Map[V]) Len() int { return m.n }

// Get returns the value of a key.
func (m *Map[V]) Get(key uint64) (V, bool) {
	var zero V
	if m.root == nil || !m.fits(key) {
		return zero, false
	}
	n := m.root
	for level := int(m.height); level > 0; level-- {
		i, ok := n.slot(key, level)
		if !ok {
			return zero, false
		}
		n = n.kids[i]
	}
	i, ok := n.slot(key, 0)
	if !ok {
		return zero, false
	}
	return n.vals[i], true
}

// Has tells whether a key is present.
func (m *Map[V]) Has(key uint64) bool {
	_, ok := m.Get(key)
	return ok
}

// Set stores a value. Nodes not stamped by own are copied first.
func (m *Map[V]) Set(own *Owner, key uint64, v V) {
	if m.root == nil {
		m.root = made[V](1, 0)
		m.root.owner = own
		m.prefix, m.height = key>>stride, 0
	}
	for !m.fits(key) {
		m.root = &node[V]{owner: own, bitmap: 1 << (m.prefix & mask), kids: []*node[V]{m.root}}
		m.prefix, m.height = m.prefix>>stride, m.height+1
	}
	m.root = m.root.editable(own, key, int(m.height))
	n := m.root
	for level := int(m.height); level > 0; level-- {
		i, ok := n.slot(key, level)
		if !ok {
			n.bitmap |= 1 << digit(key, level)
			kid := made[V](1, level-1)
			kid.owner = own
			n.kids = slices.Insert(n.kids, i, kid)
		} else {
			n.kids[i] = n.kids[i].editable(own, key, level-1)
		}
		n = n.kids[i]
	}
	i, ok := n.slot(key, 0)
	if ok {
		n.vals[i] = v
		return
	}
	n.bitmap |= 1 << digit(key, 0)
	n.vals = slices.Insert(n.vals, i, v)
	m.n++
}

// Delete removes a key, if present.
func (m *Map[V]) Delete(own *Owner, key uint64) {
	if !m.Has(key) {
		return
	}
	m.root = m.root.remove(own, key, int(m.height))
	m.n--
}

// remove returns the node without the key, which is there, or nil when nothing
// is left.
func (n *node[V]) remove(own *Owner, key uint64, level int) *node[V] {
	i, _ := n.slot(key, level)
	var kid *node[V]
	if level > 0 {
		kid = n.kids[i].remove(own, key, level-1)
	}
	if kid == nil && n.bitmap == 1<<digit(key, level) {
		return nil
	}
	n = n.editable(own, key, level)
	switch {
	case kid != nil:
		n.kids[i] = kid
		return n
	case level > 0:
		n.kids = slices.Delete(n.kids, i, i+1)
	default:
		n.vals = slices.Delete(n.vals, i, i+1)
	}
	n.bitmap &^= 1 << digit(key, level)
	return n
}

// Range calls f for each entry in ascending order until f returns false. The
// map must not be written while it runs; writing a copy with another Owner is
// safe.
func (m *Map[V]) Range(f func(key uint64, v V) bool) { m.RangeFrom(0, f) }

// RangeFrom is Range over the keys that are at least from.
func (m *Map[V]) RangeFrom(from uint64, f func(key uint64, v V) bool) {
	if m.root != nil {
		m.root.walk(int(m.height), m.prefix<<(stride*(uint(m.height)+1)), from, f)
	}
}

func (n *node[V]) walk(level int, prefix, from uint64, f func(uint64, V) bool) bool {
	i := 0
	for b := n.bitmap; b != 0; b &= b - 1 {
		key := prefix | uint64(bits.TrailingZeros32(b))<<(stride*level)
		last := key | (1<<(stride*level) - 1)
		if last >= from {
			if level == 0 {
				if !f(key, n.vals[i]) {
					return false
				}
			} else if !n.kids[i].walk(level-1, key, from, f) {
				return false
			}
		}
		i++
	}
	return true
}

// fits tells whether a key lies below the root.
func (m *Map[V]) fits(key uint64) bool {
	return key>>(stride*(uint(m.height)+1)) == m.prefix
}

func digit(key uint64, level int) uint64 { return key >> (stride * level) & mask }

// slot gives the index of a key's entry in the node and whether it is there.
func (n *node[V]) slot(key uint64, level int) (int, bool) {
	bit := uint32(1) << digit(key, level)
	return bits.OnesCount32(n.bitmap & (bit - 1)), n.bitmap&bit != 0
}

// editable returns the node, or a copy of it, to change what it holds of a key.
// A copy has room for the key if it is not there yet.
func (n *node[V]) editable(own *Owner, key uint64, level int) *node[V] {
	if own != nil && n.owner == own {
		return n
	}
	room := 0
	if _, ok := n.slot(key, level); !ok {
		room = 1
	}
	c := made[V](len(n.kids)+len(n.vals)+room, level)
	c.owner, c.bitmap = own, n.bitmap
	c.kids, c.vals = append(c.kids, n.kids...), append(c.vals, n.vals...)
	return c
}

// made is a node with room for so many entries.
func made[V any](size, level int) *node[V] {
	if level > 0 {
		n, kids := piece[V, *node[V]](size)
		n.kids = kids
		return n
	}
	n, vals := piece[V, V](size)
	n.vals = vals
	return n
}

// piece is a node with room for so many of what it holds, in one piece of memory
// where that is small: most of what a writer does between two snapshots is to
// copy nodes.
func piece[V, E any](size int) (*node[V], []E) {
	switch {
	case size <= 1:
		n := new(struct {
			room [1]E
			node[V]
		})
		return &n.node, n.room[:0]
	case size <= 4:
		n := new(struct {
			room [4]E
			node[V]
		})
		return &n.node, n.room[:0]
	case size <= 12:
		n := new(struct {
			room [12]E
			node[V]
		})
		return &n.node, n.room[:0]
	}
	return new(node[V]), make([]E, 0, size)
}
