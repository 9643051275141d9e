package sim

import (
	"os"
	"strconv"
	"testing"
)

// seeds is how many a run tries: a few with the other tests, many with
// `make sim` (MUSTER_SIM_SEEDS), starting at MUSTER_SIM_FIRST.
func seeds(t *testing.T) (first, count uint64) {
	first, count = 1, 20
	for _, v := range [...]struct {
		name string
		to   *uint64
	}{{"MUSTER_SIM_FIRST", &first}, {"MUSTER_SIM_SEEDS", &count}} {
		if s := os.Getenv(v.name); s != "" {
			n, err := strconv.ParseUint(s, 10, 64)
			if err != nil {
				t.Fatalf("%s=%q: %v", v.name, s, err)
			}
			*v.to = n
		}
	}
	return first, count
}

func TestSeeds(t *testing.T) {
	first, count := seeds(t)
	var events uint64
	var crashes, attempts int
	for seed := first; seed < first+count; seed++ {
		res, err := Run(seed)
		if err != nil {
			for _, line := range res.Trace[max(0, len(res.Trace)-30):] {
				t.Log(line)
			}
			t.Fatalf("%v\nprofile %+v\nreplay: MUSTER_SIM_FIRST=%d MUSTER_SIM_SEEDS=1 go test ./sim -run TestSeeds", err, res.Profile, seed)
		}
		events, crashes, attempts = events+res.Events, crashes+res.Crashes, attempts+res.Attempts
	}
	t.Logf("%d seeds: %d events, %d attempts, %d crashes of the controller", count, events, attempts, crashes)
	if attempts == 0 || (count >= 20 && crashes == 0) {
		t.Error("the simulator did nothing: a simulator that finds nothing is assumed broken")
	}
}

func TestSameSeedSameRun(t *testing.T) {
	for seed := uint64(100); seed < 103; seed++ {
		a, errA := Run(seed)
		b, errB := Run(seed)
		if a.Hash != b.Hash || a.Events != b.Events || (errA == nil) != (errB == nil) {
			t.Fatalf("seed %d gave two different runs: %d and %d events, %v, %v", seed, a.Events, b.Events, errA, errB)
		}
	}
}
