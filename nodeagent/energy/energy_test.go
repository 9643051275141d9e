package energy_test

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/nodeagent/energy"
	"github.com/musterhpc/muster/spec"
)

const (
	t0     = spec.Instant(1_700_000_000) * spec.Instant(spec.Second)
	second = int64(spec.Second)
)

func sec(s int64) spec.Instant { return t0.Add(spec.Seconds(s)) }

func run(job uint64, step int32) energy.Run { return energy.Run{Job: job, Attempt: 1, Step: step} }

const batch = int32(spec.StepBatch)

// counter is a reading of one counter, in joules.
func counter(at spec.Instant, joules int64) *energy.Reading {
	return &energy.Reading{At: at, Zones: []energy.Zone{{Name: "package-0", Micro: joules * 1e6}}}
}

// A node of 8 CPUs that idles at 100 W and pays 10 J for a second of CPU time: one
// job has half of it and computes, the other a quarter and waits.
func TestTwoJobsByHand(t *testing.T) {
	b := energy.NewBook(8, spec.Minute, 100_000)
	b.Observe(counter(sec(0), 0), 0, 0, nil)
	b.Start(run(1, batch), sec(0), 4)
	b.Start(run(2, batch), sec(5), 2)
	// In 10 s: 1,000 J static, 400 J dynamic of 40 s of CPU time, 4 of them the system's.
	b.Observe(counter(sec(10), 1400), 0, 40*second, []energy.Use{{Run: run(1, batch), CPU: 36 * second}})
	one, _ := b.Account(run(1, batch))
	two, _ := b.Account(run(2, batch))
	if one.MJ != 500_000+360_000 || two.MJ != 125_000 || !one.Has() || !two.Has() {
		t.Errorf("job 1 has %d mJ, job 2 %d", one.MJ, two.MJ)
	}
	if got := b.Totals(); got.NodeMJ != 1_400_000 || got.NobodyMJ != 375_000+40_000 || got.MilliWatts != 140_000 || got.AdvancedMJ != 0 {
		t.Errorf("%+v", got)
	}
	// It ends 50 ms later, between two readings, with 0.2 s of CPU time.
	one, ok := b.End(run(1, batch), sec(10).Add(50*spec.Millisecond), 36*second+second/5)
	if !ok || one.MJ != 860_000+2_500+2_000 {
		t.Errorf("at its end: %+v", one)
	}
	// The next reading pays that back, and nothing is counted twice.
	b.Observe(counter(sec(11), 1502), 0, 40*second+second/5, nil)
	two, _ = b.Account(run(2, batch))
	got := b.Totals()
	if got.AdvancedMJ != 0 || one.MJ+two.MJ+got.NobodyMJ != got.NodeMJ || got.NodeMJ != 1_502_000 {
		t.Errorf("job 1 %d, job 2 %d, %+v", one.MJ, two.MJ, got)
	}
}

// The static part of a job is its runs' by their CPU time, and its own while none
// computes.
func TestStepsOfAJob(t *testing.T) {
	b := energy.NewBook(4, spec.Minute, 40_000)
	b.Observe(counter(sec(0), 0), 0, 0, nil)
	b.Start(run(1, 0), sec(0), 0)
	b.Start(run(1, batch), sec(0), 4)
	b.Observe(counter(sec(1), 40), 0, 0, nil)
	own, _ := b.Account(run(1, batch))
	step, _ := b.Account(run(1, 0))
	if own.MJ != 40_000 || step.MJ != 0 {
		t.Errorf("idle: own %d, step %d", own.MJ, step.MJ)
	}
	b.Observe(counter(sec(2), 100), 0, 2*second, []energy.Use{
		{Run: run(1, batch), CPU: second / 2}, {Run: run(1, 0), CPU: second * 3 / 2}})
	own, _ = b.Account(run(1, batch))
	step, _ = b.Account(run(1, 0))
	if own.MJ != 40_000+10_000+5_000 || step.MJ != 30_000+15_000 {
		t.Errorf("computing: own %d, step %d", own.MJ, step.MJ)
	}
}

// A counter that wraps around goes on; one that cannot begins anew.
func TestWrapAround(t *testing.T) {
	b := energy.NewBook(1, spec.Minute, 0)
	read := func(at int64, wraps, fresh int64) {
		b.Observe(&energy.Reading{At: sec(at), Zones: []energy.Zone{
			{Name: "package-0", Micro: wraps, Max: 262_143_328_850}, {Name: "energy", Micro: fresh}}}, 0, -1, nil)
	}
	read(0, 262_143_000_000, 9_000_000)
	read(1, 1_000_000, 2_000_000) // 328,850 + 1,000,000 and 2,000,000 uJ
	if got := b.Totals().NodeMJ; got != 3_328 {
		t.Errorf("%d mJ", got)
	}
	read(2, 1_000_150, 2_000_000) // with the 850 that were left over, one more
	if got := b.Totals().NodeMJ; got != 3_329 {
		t.Errorf("%d mJ with what was left over", got)
	}
	// So long without a reading that it may have wrapped twice: nothing is known.
	read(600, 262_000_000_000, 2_000_000)
	if got := b.Totals().NodeMJ; got != 3_329 {
		t.Errorf("%d mJ after a gap", got)
	}
}

// Where only power is known, energy is its mean over the time; what the GPUs in it
// used is taken off, also where their counter is ahead of the meter.
func TestPowerWithGPUs(t *testing.T) {
	b := energy.NewBook(1, spec.Minute, 0)
	read := func(at, watts, gpuJoules int64) {
		b.Observe(&energy.Reading{At: sec(at), MilliWatts: watts * 1000, WithGPUs: true}, gpuJoules*1000, -1, nil)
	}
	read(0, 500, 0)
	read(10, 700, 2_000) // 6,000 J in all
	if got := b.Totals().NodeMJ; got != 4_000_000 {
		t.Errorf("%d mJ", got)
	}
	read(20, 700, 10_000) // 7,000 J, of which the GPUs say 8,000
	read(30, 700, 13_000) // 7,000 J: 3,000 and the 1,000 from before
	if got := b.Totals().NodeMJ; got != 4_000_000+3_000_000 {
		t.Errorf("%d mJ", got)
	}
}

// The idle power is the lowest that was seen for long enough.
func TestIdlePowerIsLearned(t *testing.T) {
	b := energy.NewBook(2, spec.Minute, 0)
	joules := int64(0)
	for at := range int64(60) {
		b.Observe(counter(sec(at), joules), 0, -1, nil)
		joules += 80
		if at >= 40 {
			joules += 100
		}
		if at == 20 {
			joules -= 80 // a second in which the counter did not step
		}
	}
	if got := b.Totals().IdleMilliW; got < 70_000 || got > 80_000 {
		t.Errorf("learned %d mW", got)
	}
}

func TestGarbageDoesNotStopTheAgent(t *testing.T) {
	b := energy.NewBook(1, spec.Infinite, 0)
	b.Start(run(1, batch), 1, math.MaxInt64/4)
	for _, at := range []spec.Instant{10, math.MaxInt64 / 2, math.MaxInt64 - 1, 5} {
		b.Observe(&energy.Reading{At: at, MilliWatts: math.MaxInt64 / 4}, math.MinInt64/2, math.MaxInt64, []energy.Use{{Run: run(1, batch), CPU: math.MaxInt64}})
		b.Observe(&energy.Reading{At: at, Zones: []energy.Zone{{Name: "a", Micro: -5, Max: -9}}}, 0, -7, nil)
	}
	b.End(run(1, batch), math.MaxInt64, math.MaxInt64)
}

// world drives a book at random and keeps what ended runs had beside it.
type world struct {
	book  *energy.Book
	at    spec.Instant
	micro int64
	gpus  int64
	busy  int64
	open  map[energy.Run]int64 // CPU time
	ended int64                // mJ
	runs  []energy.Run
}

const wrapAt = int64(3_000_000_000)

func (w *world) observe(t *rapid.T) {
	w.micro = (w.micro + rapid.Int64Range(0, wrapAt-1).Draw(t, "uJ")) % wrapAt
	w.gpus += rapid.Int64Range(0, 2_000_000).Draw(t, "GPU mJ")
	var uses []energy.Use
	for _, r := range w.runs {
		if _, open := w.open[r]; open && rapid.IntRange(0, 9).Draw(t, "answers") > 0 {
			spent := rapid.Int64Range(0, 8*second).Draw(t, "cpu")
			w.open[r] += spent
			w.busy += spent
			uses = append(uses, energy.Use{Run: r, CPU: w.open[r]})
		}
	}
	reading := &energy.Reading{At: w.at, WithGPUs: rapid.Bool().Draw(t, "with GPUs")}
	if rapid.IntRange(0, 9).Draw(t, "kind") > 0 {
		reading.Zones = []energy.Zone{{Name: "package-0", Micro: w.micro, Max: wrapAt - 1}}
	} else {
		reading.MilliWatts = rapid.Int64Range(0, 2_000_000).Draw(t, "mW")
	}
	busy := w.busy + rapid.Int64Range(0, second).Draw(t, "system")
	if rapid.IntRange(0, 9).Draw(t, "busy known") == 0 {
		busy = -1
	}
	w.book.Observe(reading, w.gpus, busy, uses)
}

// check compares all accounts and nobody's part with what the node used.
func (w *world) check(t *rapid.T) {
	sum := w.ended
	for _, a := range w.book.Accounts() {
		if a.MJ < 0 || a.Seen < 0 {
			t.Fatalf("%+v", a)
		}
		sum += a.MJ
	}
	got := w.book.Totals()
	if got.NobodyMJ < 0 || got.AdvancedMJ < 0 {
		t.Fatalf("%+v", got)
	}
	if sum+got.NobodyMJ != got.NodeMJ+got.AdvancedMJ {
		t.Fatalf("runs have %d mJ, nobody %d, the node used %d and %d are advanced", sum, got.NobodyMJ, got.NodeMJ, got.AdvancedMJ)
	}
}

// Whatever happens, in any order, with restarts in between: what the runs and nobody
// have is what the node used, to the millijoule, and once the node has idled for a
// while, nothing is advanced any more.
func TestConservation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := world{book: energy.NewBook(8, 30*spec.Second, rapid.SampledFrom([]int64{0, 100_000}).Draw(t, "idle")), at: t0, open: map[energy.Run]int64{}}
		for job := uint64(1); job <= 3; job++ {
			w.runs = append(w.runs, run(job, batch), run(job, 0), run(job, 1))
		}
		for step := rapid.IntRange(1, 60).Draw(t, "steps"); step > 0; step-- {
			w.at = w.at.Add(spec.Span(rapid.Int64Range(1, 12*second).Draw(t, "tick")))
			r := rapid.SampledFrom(w.runs).Draw(t, "run")
			_, open := w.open[r]
			switch what := rapid.IntRange(0, 9).Draw(t, "what"); {
			case what < 4:
				w.observe(t)
			case what < 7 && !open:
				cpus := int64(0)
				if r.Step == batch {
					cpus = rapid.Int64Range(1, 8).Draw(t, "cpus")
				}
				w.book.Start(r, w.at.Add(-spec.Span(rapid.Int64Range(0, second).Draw(t, "late"))), cpus)
				w.open[r] = 0
			case what < 8 && open:
				cpu := w.open[r] + rapid.Int64Range(0, second).Draw(t, "last cpu")
				w.busy += cpu - w.open[r]
				a, ok := w.book.End(r, w.at, cpu)
				if !ok {
					t.Fatal("it was not open")
				}
				w.ended += a.MJ
				delete(w.open, r)
			case what == 8 && open:
				w.book.Drop(r)
				delete(w.open, r)
			case what == 9:
				w.restart(t)
			}
			w.check(t)
		}
		for range 200 {
			w.at = w.at.Add(spec.Second)
			w.micro = (w.micro + 500_000_000) % wrapAt
			w.book.Observe(&energy.Reading{At: w.at, Zones: []energy.Zone{{Name: "package-0", Micro: w.micro, Max: wrapAt - 1}}}, w.gpus, w.busy, nil)
			w.check(t)
		}
		if got := w.book.Totals(); got.AdvancedMJ*100 > got.NodeMJ {
			t.Fatalf("%d mJ of %d are advanced and not paid back", got.AdvancedMJ, got.NodeMJ)
		}
	})
}

// restart stores the book and goes on with what was read back.
func (w *world) restart(t *rapid.T) {
	data, err := w.book.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	again := energy.NewBook(8, 30*spec.Second, 100_000)
	if err := again.Restore(data); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(w.book.Accounts(), again.Accounts()) {
		t.Fatal("accounts changed")
	}
	stored, err := again.Marshal()
	if err != nil || !bytes.Equal(data, stored) {
		t.Fatalf("stored twice, two results: %v", err)
	}
	w.book = again
}

func TestBadStateIsRefused(t *testing.T) {
	b := energy.NewBook(1, spec.Minute, 0)
	for _, bad := range []string{"", "{", `{"version":9}`, `{"version":1,"open":[{"job":2,"attempt":1,"step":0},{"job":1,"attempt":1,"step":0}]}`, `{"version":1,"open":[{"job":2,"mj":-1}]}`} {
		if err := b.Restore([]byte(bad)); !errors.Is(err, energy.ErrState) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}
