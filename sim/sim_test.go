package sim

import (
	"encoding/json"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
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

// profileOf is the profile that MUSTER_SIM_PROFILE gives a seed instead of its
// own: a failure is replayed as Shrink left it.
func profileOf(t *testing.T) *Profile {
	text := os.Getenv("MUSTER_SIM_PROFILE")
	if text == "" {
		return nil
	}
	p := &Profile{}
	if err := json.Unmarshal([]byte(text), p); err != nil {
		t.Fatalf("MUSTER_SIM_PROFILE: %v", err)
	}
	return p
}

// TestSeeds runs many worlds, as many at a time as there are processors. The
// first that fails is shrunk, and can be replayed with one command.
func TestSeeds(t *testing.T) {
	first, count := seeds(t)
	given := profileOf(t)
	var next, events, crashes, attempts, overlaps atomic.Int64
	var failed atomic.Uint64
	var mu sync.Mutex
	var starts Starts
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				seed := first + uint64(next.Add(1)-1)
				if seed >= first+count || failed.Load() != 0 {
					return
				}
				res, err := RunProfile(seed, or(given, seed))
				if err != nil {
					failed.CompareAndSwap(0, seed)
				}
				events.Add(int64(res.Events))
				crashes.Add(int64(res.Crashes))
				attempts.Add(int64(res.Attempts))
				overlaps.Add(int64(res.Overlaps))
				mu.Lock()
				starts.Add(res.Starts)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if seed := failed.Load(); seed != 0 {
		reportFailure(t, seed, or(given, seed))
	}
	t.Logf("%d seeds: %d events, %d attempts, %d crashes of controllers, %d leaders beside an older one; of the starts were %+v", count, events.Load(), attempts.Load(), crashes.Load(), overlaps.Load(), starts)
	if s := starts; given == nil && count >= 20 && min(s.Reserved, s.Together, s.Shared, s.Short, s.Side, s.Strange) == 0 {
		t.Errorf("no start of some kind at all: %+v", s)
	}
	if given == nil && (attempts.Load() == 0 || (count >= 20 && crashes.Load() == 0)) {
		t.Error("the simulator did nothing: a simulator that finds nothing is assumed broken")
	}
	if given == nil && count >= 20 && overlaps.Load() == 0 {
		t.Error("no controller was overtaken by another while it still believed that it led")
	}
}

// or is a seed's own profile unless another is given.
func or(given *Profile, seed uint64) Profile {
	if given != nil {
		return *given
	}
	return ProfileOf(seed)
}

func reportFailure(t *testing.T, seed uint64, p Profile) {
	small := p
	if os.Getenv("MUSTER_SIM_NOSHRINK") == "" {
		small, _, _ = Shrink(seed, p)
	}
	res, err := RunProfile(seed, small)
	for _, line := range res.Trace[max(0, len(res.Trace)-30):] {
		t.Log(line)
	}
	text, jerr := json.Marshal(small)
	if jerr != nil {
		t.Error(jerr)
	}
	t.Fatalf("%v\nreplay: MUSTER_SIM_FIRST=%d MUSTER_SIM_SEEDS=1 MUSTER_SIM_PROFILE='%s' go test ./sim -run TestSeeds", err, seed, text)
}

// The same seed gives the same log, byte for byte, on one processor and on several.
func TestSameSeedSameRun(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for seed := uint64(100); seed < 103; seed++ {
		runtime.GOMAXPROCS(1)
		a, errA := Run(seed)
		runtime.GOMAXPROCS(4)
		b, errB := Run(seed)
		if a.Hash != b.Hash || a.Log != b.Log || a.Events != b.Events || (errA == nil) != (errB == nil) {
			t.Fatalf("seed %d gave two different runs: %d and %d events, %v, %v", seed, a.Events, b.Events, errA, errB)
		}
	}
}
