package format

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestArrayTexts(t *testing.T) {
	for _, c := range []struct{ in, text, display, indices string }{
		{"0-15:4%2,20", "0-12:4,20%2", "0,4,8,12,20%2", "0 4 8 12 20"},
		{"0-15:4", "0-12:4", "0,4,8,12", "0 4 8 12"},
		{"1-20%16", "1-20%16", "1-20%16", ""},
		{"7", "7", "7", "7"},
		{"1,2,3", "1-3", "1-3", "1 2 3"},
		{"3,1,2,2", "1-3", "1-3", "1 2 3"},
		{"1,3", "1,3", "1,3", "1 3"},
		{"1,3,5", "1-5:2", "1,3,5", "1 3 5"},
		// The real Slurm lists up to five indices, and any within a distance of ten.
		{"0-10:2", "0-10:2", "0,2,4,6,8,10", "0 2 4 6 8 10"},
		{"0-12:2", "0-12:2", "0-12:2", "0 2 4 6 8 10 12"},
		{"0-40:10", "0-40:10", "0,10,20,30,40", "0 10 20 30 40"},
		{"0-50:10", "0-50:10", "0-50:10", "0 10 20 30 40 50"},
		{"0-12:4,13", "0-12:4,13", "0,4,8,12-13", "0 4 8 12 13"},
		{"1-5,3-8", "1-8", "1-8", "1 2 3 4 5 6 7 8"},
		{"0-10:2,1-9:2", "0-10", "0-10", "0 1 2 3 4 5 6 7 8 9 10"},
		{"0-6:2,3", "0,2-4,6", "0,2-4,6", "0 2 3 4 6"},
		{"[1-4]", "1-4", "1-4", "1 2 3 4"},
		{"5-5:3", "5", "5", "5"},
		{"1-4,5-8:3%0", "1-5,8", "1-5,8", "1 2 3 4 5 8"},
		{"4-4000000:1000", "4-3999004:1000", "4-3999004:1000", ""},
	} {
		a, err := ParseArray(c.in)
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		if a.String() != c.text || a.Display(64) != c.display {
			t.Errorf("%s: %s, shown %s; want %s, %s", c.in, a, a.Display(64), c.text, c.display)
		}
		if c.indices != "" {
			var b []byte
			for i := range a.All() {
				b = append(appendUint(b, i), ' ')
			}
			if got := strings.TrimSpace(string(b)); got != c.indices {
				t.Errorf("%s: indices %s, want %s", c.in, got, c.indices)
			}
		}
	}
	a, _ := ParseArray("0,2,5-7,9,12,14,17,19,22,24,27,29,32,34,37,39,42,44,47,49,52,54,57%3")
	if got, want := a.Display(64), "0,2,5-7,9,12,14,17,19,22,24,27,29,32,34,37,39,42,44,47,49,52,54,...%3"; got != want {
		t.Errorf("truncated: %s, want %s", got, want)
	}
}

func appendUint(b []byte, n uint32) []byte {
	return append(b, (Array{Ranges: []Range{{n, n, 1}}}).String()...)
}

func TestArrayRefused(t *testing.T) {
	for in, reason := range map[string]string{
		"": "it is empty", "[]": "it is empty", "1,,2": "an index is missing", "x": "is not n", "1-": "is not n", "-1": "is not n",
		"5-1": "runs backwards", "1-5:0": "is 0", "1:2": "a step but no range", "1-4000001": "up to 4000000", "1-3%": "a number after %",
		"1-3%x": "a number after %", "1%2,3%4": "more than one", "1 ,2": "is not n", "99999999999999999999": "is not n",
		"0-4000000:3,0-4000000:7":                       "more than 10000",
		strings.Repeat("0-4000000,", 2000) + "1":        "overlap too often",
		strings.Repeat("0-3999999:2,", 20) + "1-9999:2": "overlap too often",
	} {
		a, err := ParseArray(in)
		check(t, in[:min(len(in), 40)], a.String(), err, "", reason)
	}
}

func arrays() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		var parts []string
		for range rapid.IntRange(1, 6).Draw(t, "parts") {
			lo := rapid.IntRange(0, 40).Draw(t, "lo")
			hi := lo + rapid.IntRange(0, 30).Draw(t, "more")
			part := appendInt(lo)
			if hi > lo {
				part += "-" + appendInt(hi)
				if step := rapid.IntRange(1, 5).Draw(t, "step"); step > 1 {
					part += ":" + appendInt(step)
				}
			}
			parts = append(parts, part)
		}
		return strings.Join(parts, ",")
	})
}

func appendInt(n int) string { return string(appendUint(nil, uint32(n))) }

// The model is a plain set of integers.
func model(expr string) map[uint32]bool {
	set := map[uint32]bool{}
	for _, part := range strings.Split(expr, ",") {
		r, _ := parseRange(part)
		for i := r.First; i <= r.Last; i += r.Step {
			set[i] = true
		}
	}
	return set
}

func TestArrayAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		expr := arrays().Draw(t, "expression")
		a, err := ParseArray(expr)
		if err != nil {
			t.Fatal(err)
		}
		set := model(expr)
		agree := func(a Array) {
			want := slices.Sorted(maps.Keys(set))
			if got := slices.Collect(a.All()); !slices.Equal(got, want) {
				t.Fatalf("%s: %v, want %v", expr, got, want)
			}
			if a.Count() != int64(len(want)) {
				t.Fatalf("%s: count %d, want %d", expr, a.Count(), len(want))
			}
			if len(want) > 0 && (a.Min() != want[0] || a.Max() != want[len(want)-1]) {
				t.Fatalf("%s: %d to %d", expr, a.Min(), a.Max())
			}
			for i := uint32(0); i < 80; i++ {
				if a.Contains(i) != set[i] {
					t.Fatalf("%s: contains %d: %v", expr, i, a.Contains(i))
				}
				k, _ := slices.BinarySearch(want, i)
				next, ok := a.Next(i)
				if ok != (k < len(want)) || (ok && next != want[k]) {
					t.Fatalf("%s: next of %d is %d, %v", expr, i, next, ok)
				}
			}
			if len(want) == 0 {
				return
			}
			for _, text := range []string{a.String(), a.Display(0)} {
				back, err := ParseArray(text)
				if err != nil || !maps.Equal(model(text), set) || back.Count() != a.Count() {
					t.Fatalf("%s -> %s -> %v, %v", expr, text, back, err)
				}
			}
		}
		agree(a)
		for range rapid.IntRange(0, 30).Draw(t, "changes") {
			i := rapid.Uint32Range(0, 75).Draw(t, "index")
			before := a.String()
			changed := a
			if rapid.Bool().Draw(t, "add") {
				changed, set[i] = a.With(i), true
			} else {
				changed = a.Without(i)
				delete(set, i)
			}
			if a.String() != before {
				t.Fatalf("%s became %s", before, a)
			}
			a = changed
			agree(a)
		}
	})
}

// A million tasks are one range, whatever is done at the ends.
func TestArrayStaysSmall(t *testing.T) {
	a, err := ParseArray("1-1000000%500")
	if err != nil || a.Count() != 1_000_000 || len(a.Ranges) != 1 || a.Throttle != 500 {
		t.Fatal(a, err)
	}
	for i := uint32(1); i <= 5000; i++ {
		if a = a.Without(i); len(a.Ranges) != 1 {
			t.Fatalf("%d ranges after task %d", len(a.Ranges), i)
		}
	}
	if a.String() != "5001-1000000%500" {
		t.Fatal(a)
	}
}

func FuzzParseArray(f *testing.F) {
	for _, s := range []string{"0-15:4%2,20", "1-1000000", "1,3,5", "0-4000000:3,0-4000000:7", "[1-4]%3"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseArray(s)
		if err != nil {
			return
		}
		if len(a.Ranges) > maxRanges || a.Count() < 1 || a.Max() > MaxArrayIndex {
			t.Fatalf("%q: %d ranges, %d tasks, max %d", s, len(a.Ranges), a.Count(), a.Max())
		}
		back, err := ParseArray(a.String())
		if err != nil || back.Count() != a.Count() || back.Throttle != a.Throttle || back.String() != a.String() {
			t.Fatalf("%q -> %q -> %q, %v", s, a, back, err)
		}
	})
}

func BenchmarkParseMillion(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if a, err := ParseArray("1-1000000%1000"); err != nil || a.Count() != 1_000_000 {
			b.Fatal(err)
		}
	}
}

func BenchmarkStartTask(b *testing.B) {
	a, _ := ParseArray("0-4000000")
	b.ReportAllocs()
	for b.Loop() {
		a = a.Without(a.Min())
		if a.Count() == 0 {
			a, _ = ParseArray("0-4000000")
		}
	}
}
