package attrib_test

import (
	"bytes"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/nodeagent/gpu/attrib"
	"github.com/musterhpc/muster/spec"
)

const t0 = spec.Instant(1_700_000_000) * spec.Instant(spec.Second)

func n(v int64) *int64 { return &v }

func sec(s int64) spec.Instant { return t0.Add(spec.Seconds(s)) }

func obs(at int64, processes int, utilPercent, memMiB, energy int64) attrib.Observation {
	return attrib.Observation{At: sec(at), Processes: processes, Util: n(utilPercent * 10_000), MemoryMiB: n(memMiB), EnergyMJ: n(energy)}
}

func TestOneJobByHand(t *testing.T) {
	b := attrib.NewBook(30 * spec.Second)
	k := attrib.Key{Job: 7, Attempt: 1, GPU: "GPU-a"}
	b.Observe("GPU-a", obs(0, 0, 0, 0, 1_000))
	if err := b.Start(k, sec(5), 0); err != nil {
		t.Fatal(err)
	}
	b.Observe("GPU-a", obs(10, 0, 0, 0, 2_001))          // 5 s with no process; half of 1,001 mJ
	b.Observe("GPU-a", obs(20, 1, 0, 500, 3_000))        // 10 s idle
	b.Observe("GPU-a", obs(30, 1, 80, 1_000, 9_000))     // 10 s busy at 80 %
	b.XID("GPU-a", 31)                                   //
	b.XID("GPU-b", 79)                                   // another device
	b.Observe("GPU-a", obs(100, 1, 90, 1_000, 99_000))   // 70 s: nobody looked
	b.Observe("GPU-a", obs(110, 2, 100, 2_000, 100_000)) // 10 s busy at 100 %
	got, err := b.End(k, sec(115))
	if err != nil {
		t.Fatal(err)
	}
	s := int64(spec.Second)
	want := attrib.Account{
		Key: k, From: sec(5), To: sec(115), Share: 1000,
		Allocated: 110 * s, NoProcess: 5 * s, Idle: 10 * s, Busy: 20 * s, Unobserved: 75 * s,
		BusyByUtil:    [attrib.Deciles]int64{7: 10 * s, 9: 10 * s},
		Util:          attrib.Integral{Whole: 18 * s},
		MemoryPeakMiB: 2_000, MemoryMiBNS: attrib.Integral{Whole: 500*10 + 1000*10 + 2000*10},
		EnergyMJ: 501 + 999 + 6_000 + 1_000, EnergySeen: 35 * s,
		XIDs: []attrib.XID{{Number: 31, Count: 1}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
	if _, err := b.End(k, sec(116)); !errors.Is(err, attrib.ErrUnknown) {
		t.Errorf("a second end: %v", err)
	}
}

func TestDriverReloadAndLateEnd(t *testing.T) {
	b := attrib.NewBook(30 * spec.Second)
	k := attrib.Key{Job: 1, GPU: "g"}
	b.Observe("g", obs(0, 0, 0, 0, 5_000))
	if err := b.Start(k, sec(0), 0); err != nil {
		t.Fatal(err)
	}
	if err := b.Start(k, sec(0), 0); !errors.Is(err, attrib.ErrRunning) {
		t.Errorf("a second start: %v", err)
	}
	b.Observe("g", obs(10, 1, 50, 10, 300)) // the counter began anew
	b.Observe("g", obs(20, 0, 0, 0, 400))
	got, err := b.End(k, sec(14)) // the agent learned of the end only after the reading at 20
	if err != nil || got.Check() != nil {
		t.Fatal(err, got.Check())
	}
	s := int64(spec.Second)
	if got.EnergyMJ != 400 || got.Allocated != 14*s || got.NoProcess != 4*s || got.Busy != 10*s {
		t.Errorf("%+v", got)
	}
}

func TestGarbageFromTheDriverDoesNotStopTheAgent(t *testing.T) {
	b := attrib.NewBook(spec.Infinite)
	k := attrib.Key{Job: 1, GPU: "g"}
	if err := b.Start(k, 1, 0); err != nil {
		t.Fatal(err)
	}
	for _, at := range []spec.Instant{10, math.MaxInt64 / 2, math.MaxInt64 - 1} {
		b.Observe("g", attrib.Observation{At: at, Processes: 1, Util: n(math.MaxInt64), SM: n(math.MinInt64),
			Tensor: n(math.MaxInt64), MemoryMiB: n(math.MaxInt64), EnergyMJ: n(math.MaxInt64)})
	}
	a, err := b.End(k, math.MaxInt64-1)
	if err != nil || a.Check() != nil {
		t.Fatalf("%v %v %+v", err, a.Check(), a)
	}
}

// world drives a book at random and keeps the truth beside it.
type world struct {
	book   *attrib.Book
	at     spec.Instant
	energy map[string]int64 // counter of each device
	grown  map[string]int64 // all it ever grew
	open   map[attrib.Key]spec.Instant
	spent  map[string]int64 // energy given to ended accounts
	ended  []attrib.Account
	truth  []int64 // allocated ns of each ended account
}

func (w *world) reading(t *rapid.T, g string) attrib.Observation {
	if rapid.IntRange(0, 30).Draw(t, "reload") == 0 {
		w.energy[g] = 0
	}
	step := rapid.Int64Range(0, 1_000_000).Draw(t, "mJ")
	w.energy[g] += step
	w.grown[g] += step
	o := attrib.Observation{At: w.at, Processes: rapid.IntRange(-1, 2).Draw(t, "processes")}
	if rapid.Bool().Draw(t, "has util") {
		o.Util = n(rapid.Int64Range(0, 1_000_000).Draw(t, "util"))
	}
	if rapid.Bool().Draw(t, "has sm") {
		o.SM = n(rapid.Int64Range(0, 1_000_000).Draw(t, "sm"))
	}
	if rapid.Bool().Draw(t, "has memory") {
		o.MemoryMiB = n(rapid.Int64Range(0, 80_000).Draw(t, "memory"))
	}
	o.EnergyMJ = n(w.energy[g])
	return o
}

// Whatever happens, in any order, with restarts in between: time is conserved,
// equals the truth, and energy is never given out twice.
func TestConservation(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := world{
			book: attrib.NewBook(spec.Seconds(rapid.Int64Range(1, 60).Draw(t, "gap"))), at: t0,
			energy: map[string]int64{}, grown: map[string]int64{}, open: map[attrib.Key]spec.Instant{}, spent: map[string]int64{},
		}
		gpus := []string{"GPU-a", "GPU-b"}
		for step := rapid.IntRange(1, 60).Draw(t, "steps"); step > 0; step-- {
			w.at = w.at.Add(spec.Span(rapid.Int64Range(0, int64(20*spec.Second)).Draw(t, "tick")))
			g := rapid.SampledFrom(gpus).Draw(t, "gpu")
			k := attrib.Key{Job: spec.JobUID(rapid.IntRange(1, 4).Draw(t, "job")), Attempt: 1, GPU: g}
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0, 1, 2:
				w.book.Observe(g, w.reading(t, g))
			case 3:
				// At most four jobs of a quarter each: shares never exceed the device.
				if _, running := w.open[k]; !running {
					if err := w.book.Start(k, w.at, 250); err != nil {
						t.Fatal(err)
					}
					w.open[k] = w.at
				}
			case 4:
				if from, running := w.open[k]; running {
					end := max(from, w.at.Add(-spec.Span(rapid.Int64Range(0, int64(5*spec.Second)).Draw(t, "late"))))
					a, err := w.book.End(k, end)
					if err != nil {
						t.Fatal(err)
					}
					w.ended = append(w.ended, a)
					w.truth = append(w.truth, int64(end-from))
					w.spent[g] += a.EnergyMJ
					delete(w.open, k)
				}
			case 5:
				w.restart(t)
			}
			w.check(t)
		}
	})
}

// restart stores the book and goes on with what was read back.
func (w *world) restart(t *rapid.T) {
	data, err := w.book.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	before := w.book.Accounts()
	if w.book, err = attrib.Unmarshal(data); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(before, w.book.Accounts()) {
		t.Fatalf("before the restart %+v\nafter %+v", before, w.book.Accounts())
	}
	again, err := w.book.Marshal()
	if err != nil || !bytes.Equal(data, again) {
		t.Fatalf("stored twice, two results:\n%s\n%s\n%v", data, again, err)
	}
}

func (w *world) check(t *rapid.T) {
	energy := map[string]int64{}
	for g, e := range w.spent {
		energy[g] = e
	}
	for _, a := range w.book.Accounts() {
		if err := a.Check(); err != nil {
			t.Fatal(err)
		}
		energy[a.GPU] += a.EnergyMJ
	}
	for i, a := range w.ended {
		if err := a.Check(); err != nil {
			t.Fatal(err)
		}
		if a.Allocated != w.truth[i] {
			t.Fatalf("allocated %d ns, in truth %d", a.Allocated, w.truth[i])
		}
		if a.SMSeen > int64(a.To-a.From)+int64(5*spec.Second) {
			t.Fatalf("%+v: more SM time than time", a)
		}
	}
	for g, e := range energy {
		if e > w.grown[g] {
			t.Fatalf("%s used %d mJ and its jobs are charged %d", g, w.grown[g], e)
		}
	}
}

// Two jobs that follow one another inside one collection period share its
// energy exactly when each end is observed.
func TestEnergyOfNeighboursAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := attrib.NewBook(spec.Infinite)
		grown := rapid.Int64Range(0, 1<<40).Draw(t, "mJ")
		at := []spec.Instant{t0}
		b.Observe("g", attrib.Observation{At: t0, EnergyMJ: n(0)})
		var counted, counter int64
		for i := 1; i <= 5; i++ {
			k := attrib.Key{Job: spec.JobUID(i), GPU: "g"}
			if err := b.Start(k, at[i-1], 0); err != nil {
				t.Fatal(err)
			}
			at = append(at, at[i-1].Add(spec.Span(rapid.Int64Range(1, 1e10).Draw(t, "span"))))
			counter += rapid.Int64Range(0, grown).Draw(t, "part")
			b.Observe("g", attrib.Observation{At: at[i], EnergyMJ: n(counter)})
			a, err := b.End(k, at[i])
			if err != nil {
				t.Fatal(err)
			}
			counted += a.EnergyMJ
		}
		if counted != counter {
			t.Fatalf("the device used %d mJ, its jobs %d", counter, counted)
		}
	})
}

func TestBadStateIsRefused(t *testing.T) {
	b := attrib.NewBook(spec.Minute)
	if err := b.Start(attrib.Key{Job: 1, GPU: "g"}, t0, 0); err != nil {
		t.Fatal(err)
	}
	b.Observe("g", obs(10, 1, 10, 1, 1))
	good, err := b.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]string{
		"empty":      "",
		"no JSON":    "{",
		"version":    strings.Replace(string(good), `"version":1`, `"version":9`, 1),
		"sums":       strings.Replace(string(good), `"busy":10000000000`, `"busy":10000000001`, 1),
		"other GPU":  strings.Replace(string(good), `"gpu":"g","at"`, `"gpu":"h","at"`, 1),
		"null entry": `{"version":1,"gpus":[null]}`,
	} {
		if bad == string(good) {
			t.Fatalf("%s: the test changes nothing", name)
		}
		if _, err := attrib.Unmarshal([]byte(bad)); !errors.Is(err, attrib.ErrState) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzUnmarshal(f *testing.F) {
	b := attrib.NewBook(spec.Minute)
	_ = b.Start(attrib.Key{Job: 1, GPU: "g"}, t0, 0)
	b.Observe("g", obs(10, 1, 10, 1, 1))
	good, _ := b.Marshal()
	f.Add(good)
	f.Add([]byte(`{"version":1,"gpus":[null]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		b, err := attrib.Unmarshal(data)
		if err != nil {
			return
		}
		for _, a := range b.Accounts() {
			if err := a.Check(); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := b.Marshal(); err != nil {
			t.Fatal(err)
		}
	})
}

func BenchmarkObserve(b *testing.B) {
	book := attrib.NewBook(spec.Minute)
	for j := 0; j < 8; j++ {
		if err := book.Start(attrib.Key{Job: spec.JobUID(j), GPU: "g"}, t0, 125); err != nil {
			b.Fatal(err)
		}
	}
	at := int64(0)
	b.ReportAllocs()
	for b.Loop() {
		at++
		book.Observe("g", obs(at, 1, 50, 1000, at*100))
	}
}
