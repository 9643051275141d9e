package state

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/spec"
)

// TestFineBucketsAgreeWithTheirBounds: the bucket found with integers is the
// one the formula of the exponential histogram names.
func TestFineBucketsAgreeWithTheirBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := spec.Span(rapid.Int64Range(0, int64(spec.Second)<<25).Draw(t, "d"))
		if rapid.Bool().Draw(t, "short") {
			d = spec.Span(rapid.Int64Range(0, int64(4*spec.Second)).Draw(t, "short d"))
		}
		i := fineBucket(d)
		upper := math.Pow(2, float64(FineFirst+i)/4) * 1e9
		lower := math.Pow(2, float64(FineFirst+i-1)/4) * 1e9
		switch {
		case i < 0:
			if float64(d) > lower*math.Pow(2, 0.25)+1 {
				t.Fatalf("%d ns is not tiny", d)
			}
		case float64(d) < lower-1 || (float64(d) > upper+1 && i != FineBuckets-1):
			t.Fatalf("%d ns in bucket %d (%.0f, %.0f]", d, i, lower, upper)
		}
	})
}

func TestSizeClasses(t *testing.T) {
	for _, tc := range []struct {
		cpu, gpu int64
		want     string
	}{{1, 0, "cpu1"}, {2, 0, "cpu2-16"}, {16, 0, "cpu2-16"}, {17, 0, "cpu17-128"}, {129, 0, "cpu129+"}, {0, 0, "cpu1"},
		{64, 1, "gpu1"}, {1, 8, "gpu2-8"}, {1, 9, "gpu9-64"}, {1, 65, "gpu65+"}} {
		req := spec.TRES{CPU: tc.cpu}.With("gres/gpu", tc.gpu)
		if got := SizeOf(&req).String(); got != tc.want {
			t.Errorf("%d CPUs, %d GPUs: %s, want %s", tc.cpu, tc.gpu, got, tc.want)
		}
	}
	if SizeClass(99).String() != "unknown" {
		t.Error("a class of a later release has a name")
	}
}

// TestPublishedTimesDoNotChange: a frozen state keeps its counts while the
// writer goes on.
func TestPublishedTimesDoNotChange(t *testing.T) {
	s := New()
	s.partitionTotals("p").sizeTotals(s.own, SizeCPU1).Wait.add(spec.Second)
	frozen := s.Freeze()
	s.partitionTotals("p").sizeTotals(s.own, SizeCPU1).Wait.add(spec.Second)
	s.partitionTotals("p").sizeTotals(s.own, SizeGPU1).Wait.add(spec.Second)
	if n := frozen.Totals.Parts[0].Sizes[0].Wait.Histogram.Count; n != 1 || len(frozen.Totals.Parts[0].Sizes) != 1 {
		t.Errorf("a frozen state counts %d waits in %d classes", n, len(frozen.Totals.Parts[0].Sizes))
	}
	if n := s.Totals.Parts[0].Sizes[0].Wait.Histogram.Count; n != 2 {
		t.Errorf("the writer counts %d", n)
	}
}

// TestWithin counts what is at most a time, against each duration by itself.
func TestWithin(t *testing.T) {
	var times Times
	all := []spec.Span{0, spec.Millisecond, spec.Second, spec.Second + 1, 3 * spec.Second, spec.Hour, 4 * spec.Hour, spec.Day, 30 * spec.Day}
	for _, d := range all {
		times.add(d)
	}
	for i, d := range all {
		got, most := times.Within(d), uint64(i+1)
		// What lies in the bucket of d may be left out, never what lies before it,
		// and nothing that is longer is counted.
		if got > most || got+2 < most {
			t.Errorf("%d durations within %d, of %d", got, d, most)
		}
	}
	if n := times.Within(spec.Second); n != 3 {
		t.Errorf("%d durations within a second, which is the end of a bucket; want 3", n)
	}
	if n := times.Within(100 * 365 * spec.Day); n != uint64(len(all))-1 && n != uint64(len(all)) {
		t.Errorf("%d durations within a century", n)
	}
}
