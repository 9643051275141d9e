package pmap

import "math/bits"

// Diff calls f for every key whose value may differ between two maps, in
// ascending order. Parts that the maps share are not looked at, so the cost
// is that of the changes between two versions of one map. Keys next to a
// changed one are reported too, with what may be the same value in both.
func Diff[V any](old, is *Map[V], f func(key uint64, was V, had bool, now V, has bool)) {
	if old.root == is.root {
		return
	}
	if old.root != nil && is.root != nil && (old.height != is.height || old.prefix != is.prefix) {
		diffAll(old, is, f)
		return
	}
	m := old
	if m.root == nil {
		m = is
	}
	diff(old.root, is.root, int(m.height), m.prefix<<(stride*(uint(m.height)+1)), f)
}

func diff[V any](
	a, b *node[V],
	level int,
	prefix uint64,
	f func(key uint64, was V, had bool, now V, has bool),
) {
	if a == b {
		return
	}
	var x, y uint32
	if a != nil {
		x = a.bitmap
	}
	if b != nil {
		y = b.bitmap
	}
	for all := x | y; all != 0; all &= all - 1 {
		at := uint64(bits.TrailingZeros32(all))
		key := prefix | at<<(stride*level)
		had, has := x&(1<<at) != 0, y&(1<<at) != 0
		i, k := bits.OnesCount32(x&(1<<at-1)), bits.OnesCount32(y&(1<<at-1))
		if level > 0 {
			var p, q *node[V]
			if had {
				p = a.kids[i]
			}
			if has {
				q = b.kids[k]
			}
			diff(p, q, level-1, key, f)
			continue
		}
		var was, now V
		if had {
			was = a.vals[i]
		}
		if has {
			now = b.vals[k]
		}
		f(key, was, had, now, has)
	}
}

// diffAll compares maps that are built differently, key by key.
func diffAll[V any](old, is *Map[V], f func(key uint64, was V, had bool, now V, has bool)) {
	var keys []uint64
	old.Range(func(key uint64, _ V) bool { keys = append(keys, key); return true })
	i := 0
	report := func(key uint64) {
		was, had := old.Get(key)
		now, has := is.Get(key)
		f(key, was, had, now, has)
	}
	is.Range(func(key uint64, _ V) bool {
		for ; i < len(keys) && keys[i] < key; i++ {
			report(keys[i])
		}
		if i < len(keys) && keys[i] == key {
			i++
		}
		report(key)
		return true
	})
	for ; i < len(keys); i++ {
		report(keys[i])
	}
}
