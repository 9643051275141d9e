package attrib_test

import (
	"testing"

	"github.com/musterhpc/muster/nodeagent/gpu/attrib"
	"github.com/musterhpc/muster/nodeagent/gpu/simulated"

	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/spec"
)

// A whole run over the simulated provider: three jobs, one of which holds its
// GPU without a process and one of which never computes.
func TestObserveSimulatedJobs(t *testing.T) {
	p, err := simulated.New(simulated.Config{Node: "n", Start: t0, Lines: []simulated.Declared{{Type: "h100", Count: 3}}})
	if err != nil {
		t.Fatal(err)
	}
	devices, _ := p.Inventory(t.Context())
	shapes := []simulated.Shape{simulated.Steady, simulated.Idle, simulated.Absent}
	var jobs []simulated.Assignment
	book := attrib.NewBook(30 * spec.Second)
	var s device.Sample
	collect := func(at spec.Instant) {
		if err := p.Sample(t.Context(), at, &s); err != nil {
			t.Fatal(err)
		}
		processes, err := p.Processes(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		book.ObserveSample(&s, processes, true)
	}
	collect(t0.Add(1))
	for i, shape := range shapes {
		jobs = append(jobs, simulated.Assignment{Job: spec.JobUID(i), From: t0.Add(1), UUIDs: []string{devices[i].UUID}, Load: simulated.Load{Shape: shape, Util: 100, Memory: 50}})
		if err := book.Start(attrib.Key{Job: spec.JobUID(i), GPU: devices[i].UUID}, t0.Add(1), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.SetJobs(t0.Add(1), jobs); err != nil {
		t.Fatal(err)
	}
	before := make([]int64, len(devices))
	for i := range devices {
		before[i], _ = s.Readings[i].Get(device.TotalEnergy)
	}
	for sec := int64(10); sec <= 600; sec += 10 {
		collect(t0.Add(1).Add(spec.Seconds(sec)))
	}
	for i := range shapes {
		a, err := book.End(attrib.Key{Job: spec.JobUID(i), GPU: devices[i].UUID}, t0.Add(1).Add(spec.Seconds(600)))
		if err != nil || a.Check() != nil {
			t.Fatal(err, a.Check())
		}
		after, _ := s.Readings[i].Get(device.TotalEnergy)
		if a.EnergyMJ != after-before[i] || a.EnergySeen != a.Allocated {
			t.Errorf("%v: %d mJ over %d ns, the device used %d", shapes[i], a.EnergyMJ, a.EnergySeen, after-before[i])
		}
		got := [...]int64{a.Busy, a.Idle, a.NoProcess}
		for state, ns := range got {
			if want := int64(state) == int64(i); (ns == int64(600*spec.Second)) != want {
				t.Errorf("%v: busy, idle and no process are %v", shapes[i], got)
			}
		}
		if i == 0 && (a.Util.Whole < 570*int64(spec.Second) || a.SMSeen != a.Allocated || a.Power == 0 || a.MemoryPeakMiB != 81559/2) {
			t.Errorf("%+v", a)
		}
	}
}

// TestEnergyOfInstances: an instance has the device's energy by its slices, in
// whole millijoules, never more together than the device.
func TestEnergyOfInstances(t *testing.T) {
	b := attrib.NewBook(spec.Minute)
	b.SetParts(map[string]attrib.Part{"MIG-a": {"GPU-0", 3}, "MIG-b": {"GPU-0", 4}, "MIG-c": {"GPU-9", 1}})
	at := spec.AtUnix(1_800_000_000)
	for i, uuid := range []string{"MIG-a", "MIG-b", "MIG-c"} {
		if err := b.Start(attrib.Key{Job: spec.JobUID(i + 1), Attempt: 1, GPU: uuid}, at, 0); err != nil {
			t.Fatal(err)
		}
	}
	for i := range int64(101) {
		s := &device.Sample{At: at.Add(spec.Span(i) * spec.Second), Readings: []device.Reading{{UUID: "GPU-0", Values: []device.Value{{Field: device.TotalEnergy, N: 1_000_003 + i*701}}},
			{UUID: "MIG-a"}, {UUID: "MIG-b"}, {UUID: "MIG-c"}}}
		b.ObserveSample(s, nil, true)
	}
	got := map[string]int64{}
	for _, a := range b.Accounts() {
		if got[a.GPU] = a.EnergyMJ; (a.EnergySeen > 0) != (a.GPU != "MIG-c") {
			t.Errorf("%s: energy was seen for %d", a.GPU, a.EnergySeen)
		}
	}
	if whole := int64(70_100); got["MIG-a"] < whole*3/7-1 || got["MIG-b"] < whole*4/7-1 || got["MIG-a"]+got["MIG-b"] > whole {
		t.Errorf("%v of %d", got, whole)
	}
}
