// Package gputest is the one suite every GPU provider passes: what telemetry
// and attribution rely on, checked against the real provider.
package gputest

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/musterhpc/muster/nodeagent/gpu"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/spec"
)

// Harness opens the provider under test.
type Harness struct {
	// Open gives a fresh provider over the same hardware each time.
	Open func(t *testing.T) gpu.Provider
	// Now gives an instant not before the last one.
	Now func() spec.Instant
	// Untouched: the devices are somebody's, and their clocks are not set.
	Untouched bool
}

// Run runs the suite.
func Run(t *testing.T, h Harness) {
	t.Run("inventory", func(t *testing.T) { inventory(t, h) })
	t.Run("inventory is stable", func(t *testing.T) { stable(t, h) })
	t.Run("sample", func(t *testing.T) { sample(t, h) })
	t.Run("counters do not go back", func(t *testing.T) { counters(t, h) })
	t.Run("processes", func(t *testing.T) { processes(t, h) })
	t.Run("events are given once", func(t *testing.T) { events(t, h) })
	t.Run("clocks", func(t *testing.T) { clocks(t, h) })
	t.Run("done context", func(t *testing.T) { cancelled(t, h) })
	t.Run("closed", func(t *testing.T) { closed(t, h) })
	t.Run("concurrent use", func(t *testing.T) { concurrent(t, h) })
}

func open(t *testing.T, h Harness) (gpu.Provider, []device.Device) {
	t.Helper()
	p := h.Open(t)
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	devices, err := p.Inventory(t.Context())
	if err != nil {
		t.Fatalf("Inventory: %v", err)
	}
	if len(devices) == 0 {
		t.Fatal("Inventory is empty: the suite needs a device")
	}
	return p, devices
}

func inventory(t *testing.T, h Harness) {
	p, devices := open(t, h)
	if p.Name() == "" {
		t.Error("no name")
	}
	uuids, buses := map[string]bool{}, map[string]bool{}
	for i, d := range devices {
		if d.Index < i || (i > 0 && d.Index <= devices[i-1].Index) {
			t.Errorf("device %d has index %d: indices must ascend", i, d.Index)
		}
		if d.UUID == "" || uuids[d.UUID] {
			t.Errorf("device %d: UUID %q is empty or used twice", i, d.UUID)
		}
		uuids[d.UUID] = true
		if d.Lost {
			continue
		}
		if d.PCIBusID == "" || buses[d.PCIBusID] {
			t.Errorf("device %d: bus id %q is empty or used twice", i, d.PCIBusID)
		}
		buses[d.PCIBusID] = true
		if d.Model == "" || d.MemoryMiB <= 0 {
			t.Errorf("device %d: model %q, %d MiB", i, d.Model, d.MemoryMiB)
		}
		if d.NUMA < device.Unknown || d.Minor < device.Unknown {
			t.Errorf("device %d: NUMA %d, minor %d", i, d.NUMA, d.Minor)
		}
		for n := 1; n < len(d.CPUs); n++ {
			if d.CPUs[n] <= d.CPUs[n-1] {
				t.Errorf("device %d: CPUs %v are not ascending", i, d.CPUs)
			}
		}
		if len(d.Links) != len(devices) {
			t.Fatalf("device %d: %d links for %d devices", i, len(d.Links), len(devices))
		}
		for j, l := range d.Links {
			if (i == j) != (l.Kind == device.LinkSelf) {
				t.Errorf("link %d-%d is %v", i, j, l)
			}
			if (l.Kind == device.LinkNVLink) != (l.NVLinks > 0) {
				t.Errorf("link %d-%d is %v with %d NVLinks", i, j, l, l.NVLinks)
			}
			if !devices[j].Lost && len(devices[j].Links) == len(devices) && devices[j].Links[i] != l {
				t.Errorf("link %d-%d is %v, back it is %v", i, j, l, devices[j].Links[i])
			}
		}
		for _, m := range d.MIG {
			if m.UUID == "" || uuids[m.UUID] {
				t.Errorf("device %d: instance UUID %q is empty or used twice", i, m.UUID)
			}
			uuids[m.UUID] = true
			if m.Profile == "" || m.MemoryMiB <= 0 {
				t.Errorf("device %d: instance %+v", i, m)
			}
		}
	}
}

func stable(t *testing.T, h Harness) {
	_, before := open(t, h)
	_, after := open(t, h)
	if len(before) != len(after) {
		t.Fatalf("%d devices, then %d", len(before), len(after))
	}
	for i := range before {
		if before[i].UUID != after[i].UUID || before[i].PCIBusID != after[i].PCIBusID {
			t.Errorf("device %d was %s at %s and is %s at %s after a restart", i,
				before[i].UUID, before[i].PCIBusID, after[i].UUID, after[i].PCIBusID)
		}
	}
}

// clocks are set to a pair that the device names, seen, and set back.
func clocks(t *testing.T, h Harness) {
	p, devices := open(t, h)
	if _, err := p.ListClocks(t.Context(), "GPU-none"); err == nil {
		t.Error("an unknown device has clocks")
	}
	for i := range devices {
		d := &devices[i]
		list, err := p.ListClocks(t.Context(), d.UUID)
		if d.Lost || err != nil && h.Untouched {
			t.Logf("%s: %v", d.UUID, err)
			continue
		}
		if err != nil || len(list) == 0 {
			t.Errorf("%s can run at %v: %v", d.UUID, list, err)
			continue
		}
		t.Logf("%s runs at %d pairs of clocks, from %v to %v", d.UUID, len(list), list[len(list)-1], list[0])
		for _, m := range d.MIG {
			if _, err := p.ListClocks(t.Context(), m.UUID); err == nil {
				t.Errorf("instance %s has clocks of its own", m.UUID)
			}
		}
		if !h.Untouched {
			setClocks(t, h, p, d.UUID, list)
		}
	}
}

func setClocks(t *testing.T, h Harness, p gpu.Provider, uuid string, list []device.Clocks) {
	t.Helper()
	low := list[len(list)-1]
	clock := func(otherwise uint32) int64 {
		var s device.Sample
		if err := p.Sample(t.Context(), h.Now(), &s); err != nil {
			t.Fatal(err)
		}
		if n, ok := s.Find(uuid).Get(device.MemClock); ok {
			return n
		}
		return int64(otherwise) // the provider does not read it
	}
	rest := clock(0)
	before, err := p.SetClocks(t.Context(), uuid, low)
	if err != nil {
		t.Errorf("%s at %v: %v", uuid, low, err)
		return
	}
	if n := clock(low.Memory); n != int64(low.Memory) {
		t.Errorf("%s was set to %v and runs at %d", uuid, low, n)
	}
	if _, err := p.SetClocks(t.Context(), uuid, device.Clocks{Memory: 1, Graphics: 1}); err == nil {
		t.Errorf("%s was set to clocks that it does not have", uuid)
	}
	if err := p.ResetClocks(t.Context(), uuid, before); err != nil {
		t.Errorf("setting %s back: %v", uuid, err)
	}
	if n := clock(0); n != rest {
		t.Errorf("%s ran at %d, and runs at %d after it was set back", uuid, rest, n)
	}
}

// memoryOf maps each UUID that a sample must hold to its memory in MiB.
func memoryOf(devices []device.Device) map[string]int64 {
	want := map[string]int64{}
	for _, d := range devices {
		want[d.UUID] = d.MemoryMiB
		for _, m := range d.MIG {
			want[m.UUID] = m.MemoryMiB
		}
	}
	return want
}

func sample(t *testing.T, h Harness) {
	p, devices := open(t, h)
	var s device.Sample
	for round := 0; round < 3; round++ {
		now := h.Now()
		if err := p.Sample(t.Context(), now, &s); err != nil {
			t.Fatalf("Sample: %v", err)
		}
		if s.At != now {
			t.Errorf("the sample is of %d, want %d", s.At, now)
		}
		CheckSample(t, devices, &s)
	}
}

// CheckSample reports what is wrong with a sample of the given devices.
func CheckSample(t *testing.T, devices []device.Device, s *device.Sample) {
	t.Helper()
	want := memoryOf(devices)
	seen := map[string]bool{}
	for i := range s.Readings {
		r := &s.Readings[i]
		memory, ok := want[r.UUID]
		if !ok || seen[r.UUID] {
			t.Errorf("reading of %q: unknown or given twice", r.UUID)
		}
		seen[r.UUID] = true
		if r.Lost {
			if len(r.Values) > 0 {
				t.Errorf("%s is lost and still says %v", r.UUID, r.Values)
			}
			continue
		}
		checkReading(t, r, memory)
	}
	if len(seen) != len(want) {
		t.Errorf("%d readings for %d devices and instances", len(seen), len(want))
	}
}

func checkReading(t *testing.T, r *device.Reading, memory int64) {
	t.Helper()
	info := map[device.Field]device.Info{}
	for _, f := range device.Fields() {
		info[f.Field] = f
	}
	if len(r.Values) == 0 {
		t.Errorf("%s answers but says nothing", r.UUID)
	}
	var last device.Field
	for _, v := range r.Values {
		f, known := info[v.Field]
		switch {
		case !known:
			t.Errorf("%s: field %d is in no table", r.UUID, v.Field)
		case v.Field <= last:
			t.Errorf("%s: %s does not ascend", r.UUID, f.Name)
		case v.N < 0:
			t.Errorf("%s: %s is %d", r.UUID, f.Name, v.N)
		case f.Unit == "%" && v.N > 100, f.Unit == "ratio" && v.N > device.Ratio:
			t.Errorf("%s: %s is %d, more than all", r.UUID, f.Name, v.N)
		case f.Unit == "C" && v.N > 150:
			t.Errorf("%s: %s is %d degrees", r.UUID, f.Name, v.N)
		}
		last = v.Field
	}
	used, _ := r.Get(device.FBUsed)
	free, _ := r.Get(device.FBFree)
	if used+free > memory {
		t.Errorf("%s: %d MiB used and %d free of %d", r.UUID, used, free, memory)
	}
}

func counters(t *testing.T, h Harness) {
	p, _ := open(t, h)
	var before, after device.Sample
	if err := p.Sample(t.Context(), h.Now(), &before); err != nil {
		t.Fatal(err)
	}
	for round := 0; round < 5; round++ {
		if err := p.Sample(t.Context(), h.Now(), &after); err != nil {
			t.Fatal(err)
		}
		for _, f := range device.Fields() {
			if f.Kind != device.Counter {
				continue
			}
			for i := range after.Readings {
				old := before.Find(after.Readings[i].UUID)
				if old == nil {
					t.Fatalf("%s appeared", after.Readings[i].UUID)
				}
				was, ok1 := old.Get(f.Field)
				is, ok2 := after.Readings[i].Get(f.Field)
				if ok1 && ok2 && is < was {
					t.Errorf("%s of %s went from %d to %d", f.Name, after.Readings[i].UUID, was, is)
				}
			}
		}
		before, after = after, before
	}
}

func processes(t *testing.T, h Harness) {
	p, devices := open(t, h)
	known := memoryOf(devices)
	mark := device.Process{PID: 1, UUID: "mark"}
	list, err := p.Processes(t.Context(), []device.Process{mark})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 || list[0] != mark {
		t.Fatal("Processes must append to what it is given")
	}
	for _, q := range list[1:] {
		if _, ok := known[q.UUID]; !ok || q.PID <= 0 || q.MemoryMiB < device.Unknown {
			t.Errorf("process %+v", q)
		}
	}
}

func events(t *testing.T, h Harness) {
	p, _ := open(t, h)
	now := h.Now()
	first, err := p.Events(t.Context(), now, nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := p.Events(t.Context(), now, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range again {
		for _, f := range first {
			if e == f {
				t.Errorf("event %+v was given twice", e)
			}
		}
	}
}

func cancelled(t *testing.T, h Harness) {
	p, _ := open(t, h)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	each(p, ctx, h, func(name string, err error) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a done context: %v", name, err)
		}
	})
}

func closed(t *testing.T, h Harness) {
	p, _ := open(t, h)
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	each(p, t.Context(), h, func(name string, err error) {
		if !errors.Is(err, gpu.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	})
	if err := p.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}

// each calls every method that reads.
func each(p gpu.Provider, ctx context.Context, h Harness, report func(string, error)) {
	_, err := p.Inventory(ctx)
	report("Inventory", err)
	var s device.Sample
	report("Sample", p.Sample(ctx, h.Now(), &s))
	_, err = p.Processes(ctx, nil)
	report("Processes", err)
	_, err = p.Events(ctx, h.Now(), nil)
	report("Events", err)
}

func concurrent(t *testing.T, h Harness) {
	p, devices := open(t, h)
	var wg sync.WaitGroup
	for worker := 0; worker < 4; worker++ {
		now := h.Now()
		wg.Go(func() {
			var s device.Sample
			for i := 0; i < 20; i++ {
				if err := p.Sample(t.Context(), now, &s); err != nil {
					t.Errorf("Sample: %v", err)
				}
				CheckSample(t, devices, &s)
				if _, err := p.Inventory(t.Context()); err != nil {
					t.Errorf("Inventory: %v", err)
				}
				if _, err := p.Processes(t.Context(), nil); err != nil {
					t.Errorf("Processes: %v", err)
				}
				if _, err := p.Events(t.Context(), now, nil); err != nil {
					t.Errorf("Events: %v", err)
				}
			}
		})
	}
	wg.Wait()
}
