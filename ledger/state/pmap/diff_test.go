package pmap

import (
	"testing"

	"pgregory.net/rapid"
)

// Diff reports, once and in order, every key that two versions do not agree
// on, whatever happened between them.
func TestDiff(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		keys := rapid.SampledFrom([]uint64{40, 2_000, 1 << 40}).Draw(rt, "keys")
		var m Map[int]
		write := func(own *Owner, label string) {
			for range rapid.IntRange(0, 40).Draw(rt, label) {
				key := rapid.Uint64Range(0, keys).Draw(rt, "key")
				if rapid.Bool().Draw(rt, "delete") {
					m.Delete(own, key)
				} else {
					m.Set(own, key, rapid.IntRange(0, 3).Draw(rt, "value"))
				}
			}
		}
		write(new(Owner), "before")
		old := m
		write(new(Owner), "after")
		type pair struct {
			was, now int
			had, has bool
		}
		got, last := map[uint64]pair{}, int64(-1)
		Diff(&old, &m, func(key uint64, was int, had bool, now int, has bool) {
			if int64(key) <= last {
				rt.Fatalf("key %d after %d", key, last)
			}
			last, got[key] = int64(key), pair{was, now, had, has}
		})
		check := func(key uint64) {
			was, had := old.Get(key)
			now, has := m.Get(key)
			want := pair{was, now, had, has}
			if p, ok := got[key]; (ok && p != want) || (!ok && (was != now || had != has)) {
				rt.Fatalf("key %d: %+v, reported %v %+v", key, want, ok, p)
			}
		}
		for _, v := range []*Map[int]{&old, &m} {
			v.Range(func(key uint64, _ int) bool { check(key); return true })
		}
	})
}

// Between two versions of a large map only what changed is looked at.
func TestDiffIsLocal(t *testing.T) {
	var m Map[int]
	own := new(Owner)
	for key := range uint64(100_000) {
		m.Set(own, key, 1)
	}
	old := m
	m.Set(new(Owner), 50_000, 2)
	n := 0
	Diff(&old, &m, func(uint64, int, bool, int, bool) { n++ })
	if n > 32 {
		t.Errorf("one change of %d is reported as %d keys", m.Len(), n)
	}
}
