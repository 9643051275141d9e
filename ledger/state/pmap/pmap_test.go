package pmap

import (
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestAgainstPlainMaps drives several generations of a map beside ordinary
// maps: every generation must keep showing what it held when it was copied.
func TestAgainstPlainMaps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type generation struct {
			m    Map[int]
			want map[uint64]int
		}
		key := rapid.OneOf(rapid.Uint64Range(0, 100), rapid.Uint64Range(0, 1<<20), rapid.Uint64())
		var frozen []generation
		own := new(Owner)
		cur := generation{want: map[uint64]int{}}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			k := key.Draw(t, "key")
			switch rapid.IntRange(0, 5).Draw(t, "op") {
			case 0:
				frozen = append(frozen, generation{cur.m, maps.Clone(cur.want)})
				own = new(Owner)
			case 1, 2:
				cur.m.Delete(own, k)
				delete(cur.want, k)
			default:
				v := rapid.Int().Draw(t, "v")
				cur.m.Set(own, k, v)
				cur.want[k] = v
			}
		}
		for _, g := range append(frozen, cur) {
			same(t, g.m, g.want)
		}
	})
}

func same(t *rapid.T, m Map[int], want map[uint64]int) {
	if m.Len() != len(want) {
		t.Fatalf("Len %d, want %d", m.Len(), len(want))
	}
	var keys []uint64
	m.Range(func(k uint64, v int) bool {
		if w, ok := want[k]; !ok || w != v {
			t.Fatalf("key %d: %d, want %d (%v)", k, v, w, ok)
		}
		keys = append(keys, k)
		return true
	})
	if len(keys) != len(want) || !slices.IsSorted(keys) {
		t.Fatalf("Range gave %d keys, sorted %v; want %d", len(keys), slices.IsSorted(keys), len(want))
	}
	for i, k := range keys {
		var from []uint64
		m.RangeFrom(k, func(k uint64, _ int) bool { from = append(from, k); return true })
		if !slices.Equal(from, keys[i:]) {
			t.Fatalf("RangeFrom(%d) gave %d keys, want %d", k, len(from), len(keys)-i)
		}
		if i > 3 {
			break
		}
	}
}

func BenchmarkSetWithSnapshotEach100(b *testing.B) {
	var m Map[int]
	own := new(Owner)
	for i := range 100_000 {
		m.Set(own, uint64(i), i)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if i%100 == 0 {
			own = new(Owner)
		}
		m.Set(own, uint64(i*7919%100_000), i)
	}
}
