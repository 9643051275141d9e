package tune

import (
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/musterhpc/muster/spec"
)

const begin = spec.Instant(1_000_000_000 * int64(spec.Second))

// drawn makes two schedules of the same jobs on a site with backlogs: how
// congested a day is depends on the day before, and has a heavy tail. Both
// schedules are the same random function of it, so that neither is better; the
// second is then multiplied by factor.
func drawn(seed uint64, days int, factor float64) []Pair {
	random := rand.New(rand.NewPCG(seed, 7))
	var pairs []Pair
	congestion := 0.0
	luck := [2]float64{}
	for day := range days {
		congestion = 0.7*congestion + random.NormFloat64()
		for k := range luck {
			luck[k] = 0.5*luck[k] + 0.3*random.NormFloat64()
		}
		for i := range 30 {
			run := spec.Span(60+random.ExpFloat64()*3000) * spec.Second
			wait := func(k int) spec.Span {
				return spec.Span(1000*math.Exp(congestion+luck[k]+0.5*random.NormFloat64())) * spec.Second
			}
			p := Pair{Submit: begin.Add(spec.Span(day)*spec.Day + spec.Span(i)*spec.Minute), User: "u", Account: "a", Size: "s"}
			p.OldWait, p.NewWait = wait(0), spec.Span(float64(wait(1))*factor)
			p.OldRun, p.NewRun = run, run
			pairs = append(pairs, p)
		}
	}
	return pairs
}

// judged is the verdict on drawn schedules. They have no figures for the bounds,
// which only ever take advice back.
func judged(pairs []Pair, seed uint64) Verdict {
	verdict, _ := Judge(pairs, seed).giveVerdict(Slowdown, DefaultBounds())
	return verdict
}

// TestNoFalseAdvice: where neither schedule is better, none is advised. Half a
// percent of seeds may err if blocks were independent; those of backlogs are
// not quite, and the rest of the bound is for that.
func TestNoFalseAdvice(t *testing.T) {
	seeds := uint64(100)
	if os.Getenv("MUSTER_LONG") != "" {
		seeds = 1000
	}
	for _, days := range []int{20, 45, 180} {
		advised := 0
		for seed := range seeds {
			if judged(drawn(seed, days, 1), seed) == Change {
				advised++
			}
		}
		if max := 2 * seeds / 100; uint64(advised) > max {
			t.Errorf("%d days: %d of %d comparisons of equals ended in advice, at most %d may", days, advised, seeds, max)
		}
		t.Logf("%d days: false advice in %d of %d", days, advised, seeds)
	}
}

// TestTruthIsFound: what halves every wait is advised, though luck alone halves
// or doubles those of a day often enough.
func TestTruthIsFound(t *testing.T) {
	const seeds = 50
	found := 0
	for seed := range uint64(seeds) {
		if judged(drawn(seed, 90, 0.5), seed) == Change {
			found++
		}
	}
	if found < seeds*8/10 {
		t.Errorf("waits were halved, and that was advised for %d of %d seeds", found, seeds)
	}
	t.Logf("found in %d of %d", found, seeds)
}

// TestJudge: figures that can be worked out by hand, the same for the same seed.
func TestJudge(t *testing.T) {
	var pairs []Pair
	for day := range 40 {
		at := begin.Add(spec.Span(day) * spec.Day)
		pairs = append(pairs,
			Pair{Submit: at, User: "ann", Account: "a", Size: "small", OldWait: 900 * spec.Second, NewWait: 400 * spec.Second, OldRun: 100 * spec.Second, NewRun: 100 * spec.Second},
			Pair{Submit: at, User: "ben", Account: "a", Size: "large", OldWait: 100 * spec.Second, NewWait: 300 * spec.Second, OldRun: 100 * spec.Second, NewRun: 100 * spec.Second},
			Pair{Submit: at, User: "cat", Account: "b", Size: "small", OldWait: -1, NewWait: 0, NewRun: spec.Second})
	}
	j := Judge(pairs, 1)
	// Slowdowns 10 and 2 become 5 and 4; every day is the same, so is every sample.
	if in := j.Slowdown; math.Abs(in.Change+0.25) > 1e-9 || math.Abs(in.Low-in.High) > 1e-9 {
		t.Errorf("slowdown %+v, want -25 %% without doubt", in)
	}
	if in := j.Wait; math.Abs(in.Change+0.3) > 1e-9 {
		t.Errorf("wait %+v, want -30 %%", in)
	}
	want := []Group{{Kind: "size", Name: "large", Jobs: 40, OldWait: 100, NewWait: 300}, {Kind: "user", Name: "ben", Jobs: 40, OldWait: 100, NewWait: 300}}
	if len(j.Losers) != 2 || j.Losers[0] != want[0] || j.Losers[1] != want[1] {
		t.Errorf("who waits longer: %+v, want %+v", j.Losers, want)
	}
	uneven := drawn(3, 40, 0.8)
	if a, b := Judge(uneven, 5), Judge(uneven, 5); a.Slowdown != b.Slowdown || a.Wait != b.Wait {
		t.Error("the same seed gave two intervals")
	}
}

// TestBounds: a setting that breaks a bound out of sample is not advised, however
// much better its mean is.
func TestBounds(t *testing.T) {
	good := Judgement{Old: Figures{Jobs: 10, MeanWait: 100, LongestWait: 1000}, Slowdown: Interval{Change: -0.5, Low: -0.6, High: -0.4, Chance: 0.001}}
	for _, tc := range []struct {
		name string
		New  Figures
		want Verdict
	}{
		{"all bounds kept", Figures{Jobs: 10, MeanWait: 103, LongestWait: 1100}, Change},
		{"the mean wait grows", Figures{Jobs: 10, MeanWait: 104, LongestWait: 900}, NotConfirmed},
		{"the longest wait grows", Figures{Jobs: 10, MeanWait: 90, LongestWait: 1101}, NotConfirmed},
		{"a job does not run", Figures{Jobs: 9, NotRun: 1, MeanWait: 90, LongestWait: 900}, NotConfirmed},
	} {
		j := good
		j.New = tc.New
		if got, why := j.giveVerdict(Slowdown, DefaultBounds()); got != tc.want {
			t.Errorf("%s: %s (%s), want %s", tc.name, got, why, tc.want)
		}
	}
	lucky := good
	lucky.New = Figures{Jobs: 10, MeanWait: 90, LongestWait: 900}
	lucky.Slowdown.Chance = 0.02
	if got, why := lucky.giveVerdict(Slowdown, DefaultBounds()); got != NotConfirmed {
		t.Errorf("chance would do as well in 2 of 100 cases: %s (%s)", got, why)
	}
}
