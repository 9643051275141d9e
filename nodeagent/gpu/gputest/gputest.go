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
func Run(t *testing.T, harness Harness) {
	t.Run("inventory", func(t *testing.T) { inventory(t, harness) })
	t.Run("inventory is stable", func(t *testing.T) { stable(t, harness) })
	t.Run("sample", func(t *testing.T) { sample(t, harness) })
	t.Run("counters do not go back", func(t *testing.T) { counters(t, harness) })
	t.Run("processes", func(t *testing.T) { processes(t, harness) })
	t.Run("events are given once", func(t *testing.T) { events(t, harness) })
	t.Run("clocks", func(t *testing.T) { clocks(t, harness) })
	t.Run("done context", func(t *testing.T) { cancelled(t, harness) })
	t.Run("closed", func(t *testing.T) { closed(t, harness) })
	t.Run("concurrent use", func(t *testing.T) { concurrent(t, harness) })
}

func open(t *testing.T, harness Harness) (gpu.Provider, []device.Device) {
	t.Helper()
	provider := harness.Open(t)
	t.Cleanup(func() {
		if err := provider.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	devices, err := provider.Inventory(t.Context())
	if err != nil {
		t.Fatalf("Inventory: %v", err)
	}
	if len(devices) == 0 {
		t.Fatal("Inventory is empty: the suite needs a device")
	}
	return provider, devices
}

func inventory(t *testing.T, harness Harness) {
	provider, devices := open(t, harness)
	if provider.Name() == "" {
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
		for j, link := range d.Links {
			if (i == j) != (link.Kind == device.LinkSelf) {
				t.Errorf("link %d-%d is %v", i, j, link)
			}
			if (link.Kind == device.LinkNVLink) != (link.NVLinks > 0) {
				t.Errorf("link %d-%d is %v with %d NVLinks", i, j, link, link.NVLinks)
			}
			if !devices[j].Lost && len(devices[j].Links) == len(devices) &&
				devices[j].Links[i] != link {
				t.Errorf("link %d-%d is %v, back it is %v", i, j, link, devices[j].Links[i])
			}
		}
		for _, mig := range d.MIG {
			if mig.UUID == "" || uuids[mig.UUID] {
				t.Errorf("device %d: instance UUID %q is empty or used twice", i, mig.UUID)
			}
			uuids[mig.UUID] = true
			if mig.Profile == "" || mig.MemoryMiB <= 0 {
				t.Errorf("device %d: instance %+v", i, mig)
			}
		}
	}
}

func stable(t *testing.T, harness Harness) {
	_, before := open(t, harness)
	_, after := open(t, harness)
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
func clocks(t *testing.T, harness Harness) {
	provider, devices := open(t, harness)
	if _, err := provider.ListClocks(t.Context(), "GPU-none"); err == nil {
		t.Error("an unknown device has clocks")
	}
	for i := range devices {
		d := &devices[i]
		list, err := provider.ListClocks(t.Context(), d.UUID)
		if d.Lost || err != nil && harness.Untouched {
			t.Logf("%s: %v", d.UUID, err)
			continue
		}
		if err != nil || len(list) == 0 {
			t.Errorf("%s can run at %v: %v", d.UUID, list, err)
			continue
		}
		t.Logf(
			"%s runs at %d pairs of clocks, from %v to %v",
			d.UUID,
			len(list),
			list[len(list)-1],
			list[0],
		)
		for _, mig := range d.MIG {
			if _, err := provider.ListClocks(t.Context(), mig.UUID); err == nil {
				t.Errorf("instance %s has clocks of its own", mig.UUID)
			}
		}
		if !harness.Untouched {
			setClocks(t, harness, provider, d.UUID, list)
		}
	}
}

func setClocks(
	t *testing.T,
	harness Harness,
	provider gpu.Provider,
	uuid string,
	list []device.Clocks,
) {
	t.Helper()
	low := list[len(list)-1]
	clock := func(otherwise uint32) int64 {
		var s device.Sample
		if err := provider.Sample(t.Context(), harness.Now(), &s); err != nil {
			t.Fatal(err)
		}
		if n, ok := s.Find(uuid).Get(device.MemClock); ok {
			return n
		}
		return int64(otherwise) // the provider does not read it
	}
	rest := clock(0)
	before, err := provider.SetClocks(t.Context(), uuid, low)
	if err != nil {
		t.Errorf("%s at %v: %v", uuid, low, err)
		return
	}
	if n := clock(low.Memory); n != int64(low.Memory) {
		t.Errorf("%s was set to %v and runs at %d", uuid, low, n)
	}
	if _, err := provider.SetClocks(t.Context(), uuid, device.Clocks{Memory: 1, Graphics: 1}); err == nil {
		t.Errorf("%s was set to clocks that it does not have", uuid)
	}
	if err := provider.ResetClocks(t.Context(), uuid, before); err != nil {
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
		for _, mig := range d.MIG {
			want[mig.UUID] = mig.MemoryMiB
		}
	}
	return want
}

func sample(t *testing.T, harness Harness) {
	provider, devices := open(t, harness)
	var s device.Sample
	for round := 0; round < 3; round++ {
		now := harness.Now()
		if err := provider.Sample(t.Context(), now, &s); err != nil {
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
		reading := &s.Readings[i]
		memory, ok := want[reading.UUID]
		if !ok || seen[reading.UUID] {
			t.Errorf("reading of %q: unknown or given twice", reading.UUID)
		}
		seen[reading.UUID] = true
		if reading.Lost {
			if len(reading.Values) > 0 {
				t.Errorf("%s is lost and still says %v", reading.UUID, reading.Values)
			}
			continue
		}
		checkReading(t, reading, memory)
	}
	if len(seen) != len(want) {
		t.Errorf("%d readings for %d devices and instances", len(seen), len(want))
	}
}

func checkReading(t *testing.T, reading *device.Reading, memory int64) {
	t.Helper()
	info := map[device.Field]device.Info{}
	for _, f := range device.Fields() {
		info[f.Field] = f
	}
	if len(reading.Values) == 0 {
		t.Errorf("%s answers but says nothing", reading.UUID)
	}
	var last device.Field
	for _, value := range reading.Values {
		f, known := info[value.Field]
		switch {
		case !known:
			t.Errorf("%s: field %d is in no table", reading.UUID, value.Field)
		case value.Field <= last:
			t.Errorf("%s: %s does not ascend", reading.UUID, f.Name)
		case value.N < 0:
			t.Errorf("%s: %s is %d", reading.UUID, f.Name, value.N)
		case f.Unit == "%" && value.N > 100, f.Unit == "ratio" && value.N > device.Ratio:
			t.Errorf("%s: %s is %d, more than all", reading.UUID, f.Name, value.N)
		case f.Unit == "C" && value.N > 150:
			t.Errorf("%s: %s is %d degrees", reading.UUID, f.Name, value.N)
		}
		last = value.Field
	}
	used, _ := reading.Get(device.FBUsed)
	free, _ := reading.Get(device.FBFree)
	if used+free > memory {
		t.Errorf("%s: %d MiB used and %d free of %d", reading.UUID, used, free, memory)
	}
}

func counters(t *testing.T, harness Harness) {
	provider, _ := open(t, harness)
	var before, after device.Sample
	if err := provider.Sample(t.Context(), harness.Now(), &before); err != nil {
		t.Fatal(err)
	}
	for round := 0; round < 5; round++ {
		if err := provider.Sample(t.Context(), harness.Now(), &after); err != nil {
			t.Fatal(err)
		}
		for _, info := range device.Fields() {
			if info.Kind != device.Counter {
				continue
			}
			for i := range after.Readings {
				old := before.Find(after.Readings[i].UUID)
				if old == nil {
					t.Fatalf("%s appeared", after.Readings[i].UUID)
				}
				was, ok1 := old.Get(info.Field)
				is, ok2 := after.Readings[i].Get(info.Field)
				if ok1 && ok2 && is < was {
					t.Errorf(
						"%s of %s went from %d to %d", info.Name, after.Readings[i].UUID, was, is,
					)
				}
			}
		}
		before, after = after, before
	}
}

func processes(t *testing.T, harness Harness) {
	provider, devices := open(t, harness)
	known := memoryOf(devices)
	mark := device.Process{PID: 1, UUID: "mark"}
	list, err := provider.Processes(t.Context(), []device.Process{mark})
	if err != nil {
		t.Fatal(err)
	}
	if len(list) == 0 || list[0] != mark {
		t.Fatal("Processes must append to what it is given")
	}
	for _, process := range list[1:] {
		if _, ok := known[process.UUID]; !ok || process.PID <= 0 ||
			process.MemoryMiB < device.Unknown {
			t.Errorf("process %+v", process)
		}
	}
}

func events(t *testing.T, harness Harness) {
	provider, _ := open(t, harness)
	now := harness.Now()
	first, err := provider.Events(t.Context(), now, nil)
	if err != nil {
		t.Fatal(err)
	}
	again, err := provider.Events(t.Context(), now, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, event := range again {
		for _, f := range first {
			if event == f {
				t.Errorf("event %+v was given twice", event)
			}
		}
	}
}

func cancelled(t *testing.T, harness Harness) {
	provider, _ := open(t, harness)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	each(provider, ctx, harness, func(name string, err error) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s with a done context: %v", name, err)
		}
	})
}

func closed(t *testing.T, harness Harness) {
	provider, _ := open(t, harness)
	if err := provider.Close(); err != nil {
		t.Fatal(err)
	}
	each(provider, t.Context(), harness, func(name string, err error) {
		if !errors.Is(err, gpu.ErrClosed) {
			t.Errorf("%s after Close: %v", name, err)
		}
	})
	if err := provider.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}

// each calls every method that reads.
func each(provider gpu.Provider, ctx context.Context, harness Harness, report func(string, error)) {
	_, err := provider.Inventory(ctx)
	report("Inventory", err)
	var s device.Sample
	report("Sample", provider.Sample(ctx, harness.Now(), &s))
	_, err = provider.Processes(ctx, nil)
	report("Processes", err)
	_, err = provider.Events(ctx, harness.Now(), nil)
	report("Events", err)
}

func concurrent(t *testing.T, harness Harness) {
	provider, devices := open(t, harness)
	var wg sync.WaitGroup
	for worker := 0; worker < 4; worker++ {
		now := harness.Now()
		wg.Go(func() {
			var s device.Sample
			for i := 0; i < 20; i++ {
				if err := provider.Sample(t.Context(), now, &s); err != nil {
					t.Errorf("Sample: %v", err)
				}
				CheckSample(t, devices, &s)
				if _, err := provider.Inventory(t.Context()); err != nil {
					t.Errorf("Inventory: %v", err)
				}
				if _, err := provider.Processes(t.Context(), nil); err != nil {
					t.Errorf("Processes: %v", err)
				}
				if _, err := provider.Events(t.Context(), now, nil); err != nil {
					t.Errorf("Events: %v", err)
				}
			}
		})
	}
	wg.Wait()
}
