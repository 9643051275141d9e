package daemon

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
	"pgregory.net/rapid"
)

// reading is a collection of the devices at the bench's instant.
func (b *bench) reading(uuids ...string) *Reading {
	rd := &Reading{Sample: device.Sample{At: b.now}, Listed: true}
	for _, u := range uuids {
		rd.Sample.Readings = append(rd.Sample.Readings, device.Reading{UUID: u, Values: []device.Value{{Field: device.PowerUsage, N: 250_600},
			{Field: device.GPUUtil, N: 40}, {Field: device.SMActive, N: 123_600}}})
	}
	rd.Processes = []device.Process{{PID: 1, UUID: "GPU-0"}, {PID: 2, UUID: "GPU-0"}}
	return rd
}

// taken says what a step sampled.
func taken(fx Effects) string {
	var out []string
	for _, g := range fx.Samples {
		out = append(out, fmt.Sprintf("%s/%s job %d %d.%d %s at %d util %d power %d sm %d temp %d procs %d", g.GetUuid(), g.GetProfile(), g.GetJobId(), g.GetUid(), g.GetAttempt(), g.GetUser(),
			g.GetAt()[0]%1000, g.GetUtil()[0], g.GetPower()[0], g.GetSm()[0], g.GetTemp()[0], g.GetProcesses()[0]))
	}
	return strings.Join(out, "; ")
}

// TestSamplesSayWhoseTheyAre: one in each interval, with the job that held the
// device alone at the time of the reading and at no other.
func TestSamplesSayWhoseTheyAre(t *testing.T) {
	cfg := testConfig()
	cfg.SampleEvery = 10 * spec.Second
	b := newBenchWith(t, cfg)
	b.core.SetDevices([]device.Device{{UUID: "GPU-0"}, {UUID: "GPU-1", Index: 1, MIG: []device.MIG{{UUID: "MIG-a", Profile: "1g.10gb"}, {UUID: "MIG-b", Profile: "2g.20gb"}}}})
	b.welcome()
	see := func(want string, uuids ...string) {
		t.Helper()
		b.core.Effects()
		b.core.Collected(b.reading(uuids...))
		if got := taken(b.core.Effects()); got != want {
			t.Errorf("sampled %q\nwant %q", got, want)
		}
	}
	const figures = " util 40 power 251 sm 124 temp -1"
	see("GPU-0/ job 0 0.0  at 0"+figures+" procs 2", "GPU-0", "GPU-9")
	b.now = b.now.Add(9 * spec.Second)
	see("", "GPU-0")
	b.now = b.now.Add(spec.Second)
	late := b.reading("GPU-0", "GPU-1", "MIG-a", "MIG-b")
	b.now = b.now.Add(spec.Second)
	b.run(key(1), onGPU("GPU-0", "MIG-b"))
	b.core.Effects()
	b.core.Collected(late) // taken before the job began, seen after
	if got := taken(b.core.Effects()); strings.Contains(got, "alice") || strings.Count(got, " at 10 ") != 4 {
		t.Errorf("a job has what was read before it began: %s", got)
	}
	b.now = b.now.Add(10 * spec.Second)
	see("GPU-0/ job 1001 1.1 alice at 21"+figures+" procs 2; GPU-1/ job 0 0.0  at 21"+figures+" procs 0; MIG-b/2g.20gb job 1001 1.1 alice at 21"+figures+" procs 0",
		"GPU-0", "GPU-1", "MIG-b")
	b.run(key(2), onGPU("GPU-0")) // shared: nobody's
	b.now = b.now.Add(10 * spec.Second)
	see("GPU-0/ job 0 0.0  at 31"+figures+" procs 2", "GPU-0")
	b.now = b.now.Add(10 * spec.Second)
	b.core.Effects()
	b.core.Collected(&Reading{Sample: device.Sample{At: b.now}, Err: errors.New("no")})
	if got := taken(b.core.Effects()); got != "" {
		t.Errorf("sampled %q of nothing", got)
	}
}

func oneSample(uuid string, at int64) *apiv1.GpuSeries {
	g := &apiv1.GpuSeries{Uuid: uuid}
	SampleReading(g, at, &device.Reading{}, 0)
	return g
}

// TestSamplesWaitWithinBounds: what the store does not take waits, the newest
// of it; what is lost is counted, and a batch that is on its way is not touched.
func TestSamplesWaitWithinBounds(t *testing.T) {
	q := sampleQueue{wake: make(chan struct{}, 1)}
	lost, at := 0, int64(0)
	fill := func(n int) {
		for range n {
			at++
			lost += q.putSamples([]*apiv1.GpuSeries{oneSample("GPU-0", at)}, []*apiv1.UsageSeries{{Uid: 7, At: []int64{at}, Cpu: []int64{at}, Rss: []int64{at}}})
		}
	}
	fill(100)
	flying := q.take()
	fill(samplesMost)
	if flying.rows != 200 || len(flying.series) != 1 || len(flying.series[0].GetAt()) != 100 || len(flying.usage) != 1 || len(flying.usage[0].GetAt()) != 100 {
		t.Errorf("the batch on its way has changed: %d rows, %d series of GPUs, %d of jobs", flying.rows, len(flying.series), len(flying.usage))
	}
	if q.countWaiting() > samplesMost || q.countWaiting() < samplesMost-2*sampleBatch || lost+q.countWaiting() != 2*int(at) {
		t.Errorf("%d wait, %d are lost of %d", q.countWaiting(), lost, 2*at)
	}
	q.settleBatch(flying, true)
	seen := q.countWaiting()
	for b := q.take(); b != nil; b = q.take() {
		for _, s := range b.series {
			if len(s.GetUtil()) != len(s.GetAt()) || len(s.GetProcesses()) != len(s.GetAt()) {
				t.Fatalf("%d times, %d figures", len(s.GetAt()), len(s.GetUtil()))
			}
			seen -= len(s.GetAt())
		}
		for _, s := range b.usage {
			if len(s.GetCpu()) != len(s.GetAt()) || len(s.GetRss()) != len(s.GetAt()) {
				t.Fatalf("%d times, %d and %d figures", len(s.GetAt()), len(s.GetCpu()), len(s.GetRss()))
			}
			seen -= len(s.GetAt())
		}
		q.settleBatch(b, true)
	}
	if seen != 0 || q.countWaiting() != 0 {
		t.Errorf("%d are missing, %d wait", seen, q.countWaiting())
	}
}

// TestChangedGPUs: what became of devices while the agent runs is told, and the
// node registers again, once.
func TestChangedGPUs(t *testing.T) {
	b := newBench(t)
	two := func(change func(list []device.Device)) []device.Device {
		list := []device.Device{{UUID: "GPU-0"}, {UUID: "GPU-1", Index: 1}}
		change(list)
		return list
	}
	none := func([]device.Device) {}
	cut := func(list []device.Device) {
		list[1].MIG = []device.MIG{{UUID: "MIG-a", Profile: "1g.10gb"}, {UUID: "MIG-b", Profile: "2g.20gb"}}
	}
	b.core.SetDevices(two(none))
	b.welcome()
	for _, step := range []struct {
		list       []device.Device
		why, fault string
	}{
		{two(none), "", ""},
		{two(cut), "GPU GPU-1 is partitioned anew", "GPU-1 mig_changed"},
		{two(cut), "", ""},
		{two(func(list []device.Device) { list[0].Lost = true; cut(list) }), "GPU GPU-0 is lost", ""},
		{two(func(list []device.Device) { list[0].Lost = true; cut(list) }), "", ""},
		{two(cut), "GPU GPU-0 answers again", ""},
		{two(cut)[1:], "GPU GPU-0 is lost", ""}, // the driver leaves it out
		{two(cut)[1:], "", ""},
		{two(cut), "GPU GPU-0 answers again", ""},
		{append(two(cut), device.Device{UUID: "GPU-2", Index: 2}), "GPU GPU-2 is new", ""},
	} {
		b.core.Effects()
		changed := b.core.Changed(step.list)
		if fx := b.core.Effects(); fx.Register != step.why || changed != (step.why != "") {
			t.Errorf("registers because %q, want %q", fx.Register, step.why)
		}
		if got := b.told(); got != step.fault {
			t.Errorf("told %q, want %q", got, step.fault)
		}
	}
	if _, ok := b.core.units["MIG-b"]; !ok {
		t.Error("the new instance is not known")
	}
}

// hold is who really had a device, and since when; to is 0 while he has it.
type hold struct {
	key      plan.RunKey
	from, to spec.Instant
}

// labelsAreTrue: of each device the metrics name, as a label of its fields, the
// job that has it, since it had it, or nobody.
func labelsAreTrue(t *rapid.T, jobs []JobOnNode, truth map[string][]hold) {
	named := map[string]bool{}
	for i := range jobs {
		for _, uuid := range jobs[i].GPUs {
			var now *hold
			if list := truth[uuid]; len(list) > 0 {
				now = &list[len(list)-1]
			}
			if now == nil || now.to != 0 || now.key.Job != uint64(jobs[i].UID) || jobs[i].From < now.from || named[uuid] {
				t.Fatalf("%s is labelled with job %d since %d; it was with %v", uuid, jobs[i].UID, jobs[i].From, truth[uuid])
			}
			named[uuid] = true
		}
	}
}

// TestSamplesNameTheHolder: whatever the order in which starts, ends, readings
// and restarts of the agent come in, a sample names the job that had the device
// alone when it was read, or nobody: never another.
func TestSamplesNameTheHolder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tb := testBenchOf(t)
		cfg := testConfig()
		cfg.SampleEvery = spec.Second
		devices := []device.Device{{UUID: "GPU-0"}, {UUID: "GPU-1", Index: 1}}
		b := newBenchWith(tb, cfg)
		b.core.SetDevices(devices)
		b.welcome()
		truth := map[string][]hold{}
		var late []*Reading // taken, and not seen by the core yet
		var alive []plan.RunKey
		of := map[plan.RunKey]string{}
		next, labelled := uint64(0), 0
		see := func() {
			rd := late[0]
			late = late[1:]
			b.core.Effects()
			b.core.Collected(rd)
			for _, g := range b.core.Effects().Samples {
				if g.GetUid() == 0 {
					continue
				}
				labelled++
				var had []uint64
				for _, h := range truth[g.GetUuid()] {
					// The node has a device until its end is told, which is after the process
					// ended.
					if h.from <= rd.Sample.At && (h.to == 0 || rd.Sample.At <= h.to) {
						had = append(had, h.key.Job)
					}
				}
				if len(had) != 1 || had[0] != g.GetUid() {
					t.Fatalf("a reading of %s at %d names job %d; it was with %v: %v", g.GetUuid(), rd.Sample.At, g.GetUid(), had, truth[g.GetUuid()])
				}
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"start": func(t *rapid.T) {
				gpu := rapid.SampledFrom([]string{"GPU-0", "GPU-1"}).Draw(t, "gpu")
				for _, k := range alive {
					if of[k] == gpu {
						t.Skip()
					}
				}
				for k, r := range b.core.runs { // the controller gives nothing twice
					if of[k] == gpu && r.phase != reported {
						t.Skip()
					}
				}
				next++
				k := key(next)
				of[k] = gpu
				b.run(k, onGPU(gpu))
				alive = append(alive, k)
				truth[gpu] = append(truth[gpu], hold{key: k, from: b.now})
			},
			"end": func(t *rapid.T) {
				if len(alive) == 0 {
					t.Skip()
				}
				i := rapid.IntRange(0, len(alive)-1).Draw(t, "which")
				k := alive[i]
				alive = append(alive[:i:i], alive[i+1:]...)
				list := truth[of[k]]
				list[len(list)-1].to = b.now
				b.exit(k)
			},
			"read": func(*rapid.T) { late = append(late, b.reading("GPU-0", "GPU-1")) },
			"see": func(t *rapid.T) {
				if len(late) == 0 {
					t.Skip()
				}
				see()
			},
			"restart": func(t *rapid.T) {
				data, err := b.core.Save("boot")
				if err != nil {
					t.Fatal(err)
				}
				now := b.now
				b = newBenchWith(tb, cfg)
				b.now = now
				if rapid.Bool().Draw(t, "spooled") {
					if err := b.core.Restore(data, "boot"); err != nil {
						t.Fatal(err)
					}
				}
				b.core.SetDevices(devices)
				b.welcome(alive...)
				late = nil
			},
			"": func(t *rapid.T) {
				b.now = b.now.Add(spec.Span(rapid.IntRange(1, 3000).Draw(t, "ms")) * spec.Millisecond)
				b.core.Tick()
				b.core.Ack(^uint64(0))
				b.core.Effects()
				labelsAreTrue(t, b.core.Jobs(), truth)
			},
		})
		for len(late) > 0 {
			see()
		}
	})
}
