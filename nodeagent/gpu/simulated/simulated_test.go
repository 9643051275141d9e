package simulated_test

import (
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/musterhpc/muster/nodeagent/gpu"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/gpu/gputest"
	"github.com/musterhpc/muster/nodeagent/gpu/simulated"
	"github.com/musterhpc/muster/spec"
)

const start = spec.Instant(1_700_000_000) * spec.Instant(spec.Second)

func provider(t testing.TB, lines ...simulated.Declared) *simulated.Provider {
	t.Helper()
	p, err := simulated.New(simulated.Config{Node: "gpu01", Start: start, Lines: lines})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func eightH100() simulated.Declared { return simulated.Declared{Type: "h100", Count: 8} }

func TestConformance(t *testing.T) {
	for name, lines := range map[string][]simulated.Declared{
		"eight":    {eightH100()},
		"mixed":    {{Type: "a100", Files: []string{"/dev/nvidia0", "/dev/nvidia1"}, Cores: []int{0, 1}}, {Type: "t4", Count: 1}},
		"one":      {{Count: 1}},
		"MIG":      {{Type: "h100", Count: 1, MIG: []string{"3g.40gb", "2g.20gb", "1g.10gb"}}, {Type: "h100", Count: 1}},
		"declared": {{Type: "a100", Count: 1, Links: []int{-1, 4}}, {Type: "a100", Count: 1, Links: []int{4, -1}}},
	} {
		t.Run(name, func(t *testing.T) {
			now := start
			gputest.Run(t, gputest.Harness{
				Open: func(t *testing.T) gpu.Provider {
					p := provider(t, lines...)
					devices, _ := p.Inventory(t.Context())
					job := simulated.Assignment{Job: 7, From: start, UUIDs: []string{devices[0].UUID}, Load: simulated.Load{Util: 95, Memory: 80}}
					if len(devices[0].MIG) > 0 {
						job.UUIDs = []string{devices[0].MIG[0].UUID}
					}
					if err := p.SetJobs(start, []simulated.Assignment{job}); err != nil {
						t.Fatal(err)
					}
					if err := p.Inject(start, devices[0].UUID, simulated.Fault{Kind: simulated.FaultXID, XID: 63}); err != nil {
						t.Fatal(err)
					}
					return p
				},
				Now: func() spec.Instant { now = now.Add(700 * spec.Millisecond); return now },
			})
		})
	}
}

// The UUIDs are what the ledger keeps: these must never change.
func TestUUIDsAreForEver(t *testing.T) {
	devices, err := provider(t, eightH100()).Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := devices[0].UUID, "GPU-6a0a341c-30f8-8277-85d5-0269515031d3"; got != want {
		t.Errorf("gpu01's first device is %s, was %s in every release", got, want)
	}
	if got, want := devices[7].UUID, "GPU-8e6a273d-2937-877e-a035-db03a7bf9129"; got != want {
		t.Errorf("gpu01's last device is %s, was %s in every release", got, want)
	}
}

func TestBadDeclarations(t *testing.T) {
	for name, c := range map[string]struct {
		lines []simulated.Declared
		want  string
	}{
		"no count":       {[]simulated.Declared{{Type: "a100"}}, "line 1: count 0 with 0 files"},
		"count vs files": {[]simulated.Declared{{Count: 1}, {Count: 3, Files: []string{"/dev/nvidia0"}}}, "line 2: count 3 with 1 files"},
		"links of two":   {[]simulated.Declared{{Count: 2, Links: []int{-1, 2}}}, "line 1: Links describe one device"},
		"links length":   {[]simulated.Declared{{Count: 1, Links: []int{-1}}, {Count: 1}}, "line 1: Links needs 2 numbers with -1 at position 1"},
		"links disagree": {[]simulated.Declared{{Count: 1, Links: []int{-1, 4}}, {Count: 1, Links: []int{2, -1}}}, "Links disagree: device 0 to 1 is NV4, back it is NV2"},
		"MIG and links":  {[]simulated.Declared{{Type: "1g.10gb", Count: 1, Links: []int{-1}}}, "line 1: MIG instances have neither File nor Links"},
		"huge instance":  {[]simulated.Declared{{Type: "t4_7g.80gb", Count: 1}}, "no instance of t4_7g.80gb fits"},
		"profile":        {[]simulated.Declared{{Type: "h100", Count: 1, MIG: []string{"half"}}}, `line 1: invalid MIG profile "half"`},
		"too many":       {[]simulated.Declared{{Type: "h100", Count: 1, MIG: []string{"7g.80gb", "1g.10gb"}}}, "do not fit: 8 of 7 slices"},
	} {
		_, err := simulated.New(simulated.Config{Node: "n", Lines: c.lines})
		if !errors.Is(err, simulated.ErrDeclaration) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want ...%s...", name, err, c.want)
		}
	}
	if _, err := simulated.New(simulated.Config{Node: "n"}); !errors.Is(err, gpu.ErrUnavailable) {
		t.Errorf("a node that declares nothing: %v", err)
	}
}

// genLoad draws any load.
func genLoad(t *rapid.T) simulated.Load {
	l := simulated.Load{
		Shape:  simulated.Shape(rapid.IntRange(0, 5).Draw(t, "shape")),
		Util:   rapid.IntRange(0, 100).Draw(t, "util"),
		Memory: rapid.IntRange(0, 100).Draw(t, "mem"),
		Period: spec.Span(rapid.Int64Range(0, int64(90*spec.Second)).Draw(t, "period")),
		Warmup: spec.Span(rapid.Int64Range(0, int64(20*spec.Second)).Draw(t, "warmup")),
	}
	if rapid.Bool().Draw(t, "thermal") {
		l.Faults = append(l.Faults, simulated.Fault{Kind: simulated.FaultThermal,
			After: spec.Span(rapid.Int64Range(0, int64(30*spec.Second)).Draw(t, "after")),
			For:   spec.Span(rapid.Int64Range(0, int64(30*spec.Second)).Draw(t, "for"))})
	}
	if rapid.Bool().Draw(t, "xid") {
		l.Faults = append(l.Faults, simulated.Fault{Kind: simulated.FaultXID,
			XID:   rapid.SampledFrom([]int{13, 31, 48, 63, 79, 94}).Draw(t, "number"),
			After: spec.Span(rapid.Int64Range(int64(31*spec.Second), int64(100*spec.Second)).Draw(t, "xidafter"))})
	}
	return l
}

// Reading often or rarely, in any rhythm, gives the same values, energy and
// events at the same instant.
func TestReadingsDoNotDependOnTheRhythm(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		loads := make([]simulated.Load, 3)
		for i := range loads {
			loads[i] = genLoad(rt)
		}
		type step struct {
			at   spec.Instant
			jobs []simulated.Assignment
		}
		ref := provider(t, eightH100())
		devices, _ := ref.Inventory(t.Context())
		var steps []step
		at := start
		for n := 0; n < 4; n++ {
			at = at.Add(spec.Span(rapid.Int64Range(0, int64(40*spec.Second)).Draw(rt, "gap")))
			var jobs []simulated.Assignment
			for j := range loads {
				if rapid.Bool().Draw(rt, "runs") {
					jobs = append(jobs, simulated.Assignment{Job: spec.JobUID(j + 1), From: at, Load: loads[j], UUIDs: []string{devices[j].UUID, devices[7].UUID}, Share: 400})
				}
			}
			steps = append(steps, step{at, jobs})
		}
		end := at.Add(spec.Span(rapid.Int64Range(0, int64(60*spec.Second)).Draw(rt, "tail")))

		other := provider(t, eightH100())
		var s device.Sample
		clock := start
		read := func(until spec.Instant) {
			for clock < until {
				clock = min(until, clock.Add(spec.Span(rapid.Int64Range(1, int64(9*spec.Second)).Draw(rt, "tick"))))
				if err := other.Sample(t.Context(), clock, &s); err != nil {
					rt.Fatal(err)
				}
			}
		}
		for _, st := range steps {
			read(st.at)
			if err := errors.Join(ref.SetJobs(st.at, st.jobs), other.SetJobs(st.at, st.jobs)); err != nil {
				rt.Fatal(err)
			}
		}
		read(end)
		var want, got device.Sample
		if err := errors.Join(ref.Sample(t.Context(), end, &want), other.Sample(t.Context(), end, &got)); err != nil {
			rt.Fatal(err)
		}
		if !reflect.DeepEqual(want.Clone(), got.Clone()) {
			rt.Fatalf("read once:\n%v\nread often:\n%v", want, got)
		}
		wantEvents, _ := ref.Events(t.Context(), end, nil)
		gotEvents, _ := other.Events(t.Context(), end, nil)
		if !reflect.DeepEqual(wantEvents, gotEvents) {
			rt.Fatalf("events read once:\n%v\nread often:\n%v", wantEvents, gotEvents)
		}
	})
}

// Energy is the integral of power: a device that draws a constant 70 W for an
// hour has used 252 kJ, to the millijoule.
func TestEnergyOfAnIdleHour(t *testing.T) {
	p := provider(t, eightH100())
	var s device.Sample
	if err := p.Sample(t.Context(), start.Add(spec.Hour), &s); err != nil {
		t.Fatal(err)
	}
	power, _ := s.Readings[3].Get(device.PowerUsage)
	energy, _ := s.Readings[3].Get(device.TotalEnergy)
	if power != 70_000 || energy != 70*3600*1000 {
		t.Errorf("%d mW, %d mJ", power, energy)
	}
}

func TestLoadShowsAndGoes(t *testing.T) {
	p := provider(t, eightH100())
	devices, _ := p.Inventory(t.Context())
	job := simulated.Assignment{Job: 42, From: start, UUIDs: []string{devices[2].UUID}, PIDs: []int{100, 101},
		Load: simulated.Load{Util: 100, Memory: 50, Faults: []simulated.Fault{{Kind: simulated.FaultXID, XID: 31, After: 20 * spec.Second}}}}
	if err := p.SetJobs(start, []simulated.Assignment{job}); err != nil {
		t.Fatal(err)
	}
	var s device.Sample
	at := start.Add(10 * spec.Second)
	if err := p.Sample(t.Context(), at, &s); err != nil {
		t.Fatal(err)
	}
	for i := range s.Readings {
		util, _ := s.Readings[i].Get(device.GPUUtil)
		used, _ := s.Readings[i].Get(device.FBUsed)
		if busy := util >= 95 && used > 40_000; busy != (i == 2) {
			t.Errorf("device %d: util %d, used %d", i, util, used)
		}
	}
	list, _ := p.Processes(t.Context(), nil)
	if len(list) != 2 || list[0].PID != 100 || list[1].UUID != devices[2].UUID {
		t.Errorf("processes %v", list)
	}
	at = start.Add(25 * spec.Second)
	ev, _ := p.Events(t.Context(), at, nil)
	if len(ev) != 1 || ev[0].XID != 31 || ev[0].At != start.Add(20*spec.Second) || ev[0].UUID != devices[2].UUID {
		t.Errorf("events %v", ev)
	}
	if err := p.SetJobs(at, nil); err != nil {
		t.Fatal(err)
	}
	if err := p.Sample(t.Context(), at, &s); err != nil {
		t.Fatal(err)
	}
	if util, _ := s.Readings[2].Get(device.GPUUtil); util != 0 {
		t.Errorf("util %d after the job's end", util)
	}
	if list, _ = p.Processes(t.Context(), nil); len(list) != 0 {
		t.Errorf("processes %v after the job's end", list)
	}
	if err := p.SetJobs(at, []simulated.Assignment{{Job: 1, UUIDs: []string{"GPU-elsewhere"}}}); err == nil {
		t.Error("an unknown GPU was accepted")
	}
}

func TestLostDeviceComesBackOnlyByHealing(t *testing.T) {
	p := provider(t, eightH100())
	devices, _ := p.Inventory(t.Context())
	if err := p.Inject(start, devices[1].UUID, simulated.Fault{Kind: simulated.FaultXID, XID: 79}); err != nil {
		t.Fatal(err)
	}
	var s device.Sample
	_ = p.Sample(t.Context(), start.Add(spec.Second), &s)
	if !s.Readings[1].Lost || s.Readings[0].Lost {
		t.Error("XID 79 must lose its own device only")
	}
	if err := p.Heal(start.Add(2*spec.Second), devices[1].UUID); err != nil {
		t.Fatal(err)
	}
	_ = p.Sample(t.Context(), start.Add(3*spec.Second), &s)
	if s.Readings[1].Lost {
		t.Error("still lost after healing")
	}
	var kinds []string
	ev, _ := p.Events(t.Context(), start.Add(3*spec.Second), nil)
	for _, e := range ev {
		kinds = append(kinds, e.Kind.String())
	}
	if got := strings.Join(kinds, " "); got != "xid lost returned" {
		t.Errorf("events %s", got)
	}
}

func TestParseLoad(t *testing.T) {
	got, err := simulated.ParseLoad("util=90, mem=60%,shape=saw,period=30s,warmup=500ms,lost@5m,xid=31@2m,thermal@60s+30s", simulated.Load{})
	want := simulated.Load{Shape: simulated.Saw, Util: 90, Memory: 60, Period: 30 * spec.Second, Warmup: 500 * spec.Millisecond,
		Faults: []simulated.Fault{
			{Kind: simulated.FaultThermal, After: 60 * spec.Second, For: 30 * spec.Second},
			{Kind: simulated.FaultXID, After: 2 * spec.Minute, XID: 31},
			{Kind: simulated.FaultLost, After: 5 * spec.Minute}}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"util=101", "util", "shape=round", "xid@3s", "xid=0@3s", "lost@", "lost@3", "thermal@3s", "period=-1s", "period=9999999h", "speed=3"} {
		if _, err := simulated.ParseLoad(bad, simulated.Load{}); !errors.Is(err, simulated.ErrLoad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func FuzzParseLoad(f *testing.F) {
	f.Add("util=90,mem=60,shape=saw,period=30s,xid=79@2m,thermal@60s+30s,lost@5m")
	f.Add("=,@,+")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := simulated.ParseLoad(text, simulated.Load{})
		if err != nil {
			return
		}
		if l.Util < 0 || l.Util > 100 || l.Memory < 0 || l.Memory > 100 || l.Period < 0 || l.Warmup < 0 {
			t.Fatalf("%q gives %+v", text, l)
		}
		p := provider(t, simulated.Declared{Count: 1})
		devices, _ := p.Inventory(t.Context())
		if err := p.SetJobs(start, []simulated.Assignment{{Job: 1, From: start, Load: l, UUIDs: []string{devices[0].UUID}}}); err != nil {
			t.Fatal(err)
		}
		var s device.Sample
		if err := p.Sample(t.Context(), start.Add(5*spec.Second), &s); err != nil {
			t.Fatal(err)
		}
		gputest.CheckSample(t, devices, &s)
	})
}

func TestLoadOfIsDeterministicAndVaried(t *testing.T) {
	seen := map[simulated.Shape]int{}
	for j := spec.JobUID(1); j <= 400; j++ {
		l := simulated.LoadOf(j)
		if !reflect.DeepEqual(l, simulated.LoadOf(j)) {
			t.Fatalf("job %d has two loads", j)
		}
		seen[l.Shape]++
	}
	if seen[simulated.Steady] < 150 || seen[simulated.Idle] == 0 || seen[simulated.Burst] == 0 {
		t.Errorf("shapes %v", seen)
	}
}

func BenchmarkSampleOneSecondEightGPUs(b *testing.B) {
	p := provider(b, eightH100())
	devices, _ := p.Inventory(b.Context())
	var jobs []simulated.Assignment
	for i, d := range devices {
		jobs = append(jobs, simulated.Assignment{Job: spec.JobUID(i), From: start, UUIDs: []string{d.UUID}, Load: simulated.LoadOf(spec.JobUID(i))})
	}
	if err := p.SetJobs(start, jobs); err != nil {
		b.Fatal(err)
	}
	var s device.Sample
	at := start
	b.ReportAllocs()
	for b.Loop() {
		at = at.Add(spec.Second)
		if err := p.Sample(b.Context(), at, &s); err != nil {
			b.Fatal(err)
		}
	}
}

// TestInstances: a type that ends in a MIG profile declares instances, and as
// many devices as they need are cut.
func TestInstances(t *testing.T) {
	p, err := simulated.New(simulated.Config{Node: "n1", Start: start, Lines: []simulated.Declared{{Type: "a100_3g.20gb", Count: 5}, {Type: "h100", Count: 1}}})
	if err != nil {
		t.Fatal(err)
	}
	devices, err := p.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range devices {
		got = append(got, fmt.Sprintf("%d %s %d", d.Index, d.Model, len(d.MIG)))
	}
	if want := "0 Simulated A100 80GB 2, 1 Simulated A100 80GB 2, 2 Simulated A100 80GB 1, 3 Simulated H100 80GB 0"; strings.Join(got, ", ") != want {
		t.Errorf("got %s", strings.Join(got, ", "))
	}
}

// TestPartitionedWhileItRuns: instances come and go, the job that held the
// device does nothing any more, and readings are of what is there.
func TestPartitionedWhileItRuns(t *testing.T) {
	start := spec.AtUnix(1_800_000_000)
	p, err := simulated.New(simulated.Config{Node: "n1", Start: start, Lines: []simulated.Declared{{Type: "h100", Count: 2}}})
	if err != nil {
		t.Fatal(err)
	}
	list, err := p.Inventory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	load, err := simulated.ParseLoad("util=90,warmup=0s,mig=3g.40gb/1g.10gb@20s,mig=@60s", simulated.Load{})
	if err != nil {
		t.Fatal(err)
	}
	job := []simulated.Assignment{{Job: 1, Attempt: 1, From: start, Load: load, UUIDs: []string{list[0].UUID}}}
	if err := p.SetJobs(start, job); err != nil {
		t.Fatal(err)
	}
	see := func(after spec.Span, readings, processes, instances int) {
		t.Helper()
		now := start.Add(after)
		var s device.Sample
		if err := p.Sample(t.Context(), now, &s); err != nil {
			t.Fatal(err)
		}
		list, err := p.Inventory(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		procs, err := p.Processes(t.Context(), nil)
		if err != nil || len(s.Readings) != readings || len(procs) != processes || len(list[0].MIG) != instances {
			t.Errorf("after %v: %d readings, %d processes, %d instances: %v", after, len(s.Readings), len(procs), len(list[0].MIG), err)
		}
		if err := p.SetJobs(now, job); err != nil { // it still holds the device
			t.Error(err)
		}
	}
	see(10*spec.Second, 2, 1, 0)
	see(30*spec.Second, 4, 0, 2)
	events, err := p.Events(t.Context(), start.Add(30*spec.Second), nil)
	if err != nil || len(events) != 1 || events[0].Kind != device.EventMIGChanged || events[0].UUID != list[0].UUID {
		t.Errorf("%v %v", events, err)
	}
	for _, bad := range []string{"mig=9g@1s", "mig=1g.10gb", "mig=1g.10gb@1s+2s"} {
		if _, err := simulated.ParseLoad(bad, simulated.Load{}); err == nil {
			t.Errorf("%s is read", bad)
		}
	}
}
