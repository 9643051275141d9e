package spec

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// tasks draws a valid set with its model, the sorted list of its members.
func tasks(t *rapid.T) (TaskSet, []int64) {
	var s TaskSet
	var model []int64
	next := int64(0)
	for range rapid.IntRange(1, 4).Draw(t, "ranges") {
		first := next + rapid.Int64Range(0, 3).Draw(t, "gap")
		n, step := rapid.Int64Range(1, 6).Draw(t, "n"), rapid.Int64Range(1, 4).Draw(t, "step")
		if n == 1 {
			step = 1
		}
		r := TaskRange{First: first, Last: first + (n-1)*step, Step: step}
		for i := r.First; i <= r.Last; i += r.Step {
			model = append(model, i)
		}
		s, next = append(s, r), r.Last+1
	}
	return s, model
}

func members(s TaskSet) []int64 {
	out := []int64{}
	s.Each(func(i int64) bool { out = append(out, i); return true })
	return out
}

// TestTaskSets compares sets of tasks with sorted lists, while tasks are
// taken out one by one until none is left.
func TestTaskSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, model := tasks(t)
		for {
			if !s.Valid() || s.Len() != int64(len(model)) || !slices.Equal(members(s), model) {
				t.Fatalf("%s has %v (%d), want %v; valid %v", s, members(s), s.Len(), model, s.Valid())
			}
			if len(model) == 0 {
				return
			}
			if s.Min() != model[0] || s.Max() != model[len(model)-1] {
				t.Fatalf("%s: from %d to %d, want %v", s, s.Min(), s.Max(), model)
			}
			for i := int64(-1); i <= model[len(model)-1]+1; i++ {
				if s.Has(i) != slices.Contains(model, i) {
					t.Fatalf("%s: Has(%d) is %v", s, i, s.Has(i))
				}
			}
			gone := rapid.SampledFrom(model).Draw(t, "take")
			before := s.String()
			left := s.Without(gone)
			if s.String() != before {
				t.Fatalf("Without changed its receiver from %s to %s", before, s)
			}
			if absent := left.Without(gone); absent.Len() != left.Len() {
				t.Fatalf("taking %d out of %s again leaves %s", gone, left, absent)
			}
			i := slices.Index(model, gone)
			s, model = left, slices.Delete(model, i, i+1)
		}
	})
}

func TestTaskSetEachStops(t *testing.T) {
	n := 0
	TaskSet{{0, 999_999, 1}}.Each(func(int64) bool { n++; return n < 3 })
	if n != 3 {
		t.Errorf("%d calls after the third said stop", n)
	}
}

func TestTaskSetText(t *testing.T) {
	s := TaskSet{{1, 5, 1}, {7, 7, 1}, {10, 20, 5}}
	if got := s.String(); got != "1-5,7,10-20:5" {
		t.Error(got)
	}
	if got := s.Without(15).Without(3).String(); got != "1-2,4-5,7,10,20" {
		t.Error(got)
	}
}

func TestTaskSetValid(t *testing.T) {
	for _, s := range []TaskSet{{{3, 1, 1}}, {{0, 4, 0}}, {{0, 4, -1}}, {{0, 4, 3}}, {{-1, 4, 1}}, {{0, 4, 1}, {4, 5, 1}}, {{5, 6, 1}, {0, 1, 1}}, {{0, 10, 5}, {7, 8, 1}}} {
		if s.Valid() {
			t.Errorf("%v passes as valid", []TaskRange(s))
		}
	}
}

func TestNewArrayAsk(t *testing.T) {
	if a := NewArrayAsk(TaskSet{{4, 20, 4}}, 2); a.Throttle != 2 || a.Step != 4 || a.Min != 4 || a.Max != 20 || a.Count != 5 {
		t.Errorf("%+v", a)
	}
	if b := NewArrayAsk(TaskSet{{1, 1, 1}, {4, 20, 4}}, 0); b.Step != 1 || b.Min != 1 || b.Max != 20 || b.Count != 6 {
		t.Errorf("%+v", b)
	}
}

// TestBitsets compares sets of bits with maps.
func TestBitsets(t *testing.T) {
	draw := func(t *rapid.T) (Bitset, map[int]bool) {
		var b Bitset
		model := make(map[int]bool)
		for range rapid.IntRange(0, 12).Draw(t, "ops") {
			i := rapid.SampledFrom([]int{0, 1, 5, 62, 63, 64, 65, 100, 127, 128, 200}).Draw(t, "i")
			if rapid.IntRange(0, 2).Draw(t, "op") == 0 {
				b = b.Clear(i)
				delete(model, i)
			} else {
				b = b.Set(i)
				model[i] = true
			}
		}
		return b, model
	}
	same := func(t *rapid.T, what string, b Bitset, has func(i int) bool) {
		t.Helper()
		var want []int
		for i := range 300 {
			if has(i) {
				want = append(want, i)
			}
			if b.Has(i) != has(i) {
				t.Fatalf("%s: Has(%d) is %v", what, i, b.Has(i))
			}
		}
		if !slices.Equal(b.Members(), want) || b.Count() != len(want) || b.Empty() != (len(want) == 0) {
			t.Fatalf("%s: %v, want %v; count %d, empty %v", what, b.Members(), want, b.Count(), b.Empty())
		}
		last := -1
		for _, i := range want {
			if b.Next(last+1) != i {
				t.Fatalf("%s: Next(%d) is %d, want %d", what, last+1, b.Next(last+1), i)
			}
			last = i
		}
		if b.Last() != last || b.Next(last+1) != -1 || b.Next(100_000) != -1 {
			t.Fatalf("%s: Last is %d, want %d", what, b.Last(), last)
		}
		trim := slices.Clone(b).Trim()
		if !slices.Equal(trim.Members(), want) || (len(trim) > 0 && trim[len(trim)-1] == 0) || (len(want) == 0 && trim != nil) {
			t.Fatalf("%s: trimmed %v", what, []uint64(trim))
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		a, ma := draw(t)
		b, mb := draw(t)
		same(t, "a", a, func(i int) bool { return ma[i] })
		same(t, "or", a.Or(b), func(i int) bool { return ma[i] || mb[i] })
		same(t, "and", a.And(b), func(i int) bool { return ma[i] && mb[i] })
		same(t, "and not", a.AndNot(b), func(i int) bool { return ma[i] && !mb[i] })
		if a.Intersects(b) != !a.And(b).Empty() {
			t.Fatalf("%v and %v intersect: %v", a.Members(), b.Members(), a.Intersects(b))
		}
		c := a.Clone().Set(250).Clear(0)
		_ = a.Or(c)
		same(t, "a, afterwards", a, func(i int) bool { return ma[i] })
		n := rapid.IntRange(0, 200).Draw(t, "n")
		same(t, "full", FullBitset(n), func(i int) bool { return i < n })
	})
}
