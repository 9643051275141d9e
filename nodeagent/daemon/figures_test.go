package daemon

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/nodeagent/gpu/attrib"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
	"pgregory.net/rapid"
)

func onGPU(uuids ...string) func(*apiv1.Launch) {
	return func(l *apiv1.Launch) {
		for i, u := range uuids {
			l.Here.Gpus = append(l.Here.Gpus, &apiv1.GpuRef{Uuid: u, Index: uint32(i)})
		}
		l.Job.Spec.Comment = "sim: util=50"
	}
}

func TestGPUTime(t *testing.T) {
	b := newBench(t)
	b.core.SetDevices([]device.Device{{UUID: "GPU-0"}, {UUID: "GPU-1", Index: 1}})
	b.welcome()
	if fx := b.launch(key(1), onGPU("GPU-1")); !slices.Contains(fx.Launch[0].Env, "CUDA_VISIBLE_DEVICES=1") {
		t.Errorf("%q", fx.Launch[0].Env)
	}
	b.answer(key(1), plan.Accepted, 0)
	if fx := b.started(key(1)); !fx.Collect || !fx.Jobs {
		t.Errorf("%+v", fx)
	}
	if a := b.core.Assignments(); len(a) != 1 || a[0].Load != "util=50" || !slices.Equal(a[0].UUIDs, []string{"GPU-1"}) {
		t.Errorf("%+v", a)
	}
	begin := b.now
	step := func(percent int64) {
		b.now = b.now.Add(5 * spec.Second)
		b.collected(percent, "GPU-0", "GPU-1")
	}
	step(100)
	step(0) // held and idle
	b.now = b.now.Add(60 * spec.Second)
	b.collected(50, "GPU-0", "GPU-1") // after a gap that tells nothing
	b.core.Collected(&Reading{Err: errors.New("the driver hangs")})
	b.now = b.now.Add(2 * spec.Second)
	end := b.now
	if fx := b.exit(key(1), func(e *plan.Exit) { e.Start = begin }); !fx.Collect || fx.Send {
		t.Errorf("not measured: %+v", fx)
	}
	if len(b.core.Jobs()) != 0 || len(b.core.Assignments()) != 1 {
		t.Error("its labels end with the job, its load with its last reading")
	}
	b.core.Collected(&Reading{Sample: device.Sample{At: end.Add(-1)}})
	b.wantSent("") // a reading from before the end
	b.collected(50, "GPU-0", "GPU-1")
	u := b.core.outbox.queue[0].report.GetNodeDone().GetUsage().GetGpus()
	if len(u) != 1 {
		t.Fatalf("%v", u)
	}
	g := u[0]
	sec := int64(spec.Second)
	if g.GetUuid() != "GPU-1" || g.GetBusy() != 7*sec || g.GetIdle() != 5*sec || g.GetNoProcess() != 60*sec || !g.GetHas() ||
		g.GetBusy()+g.GetIdle()+g.GetNoProcess() != int64(end.Sub(begin)) || g.GetPeakMem() != 1000<<20 {
		t.Errorf("%v", g)
	}
	if len(b.core.Accounts()) != 0 || len(b.core.Assignments()) != 0 {
		t.Error("accounts are left open")
	}
}

// TestNoLastReading: a driver that hangs, or fails, delays a report but does
// not hold it back.
func TestNoLastReading(t *testing.T) {
	b := newBench(t)
	b.core.SetDevices([]device.Device{{UUID: "GPU-0"}})
	b.welcome()
	b.run(key(1), onGPU("GPU-0"))
	b.run(key(2), onGPU("GPU-0"))
	b.now = b.now.Add(spec.Second)
	b.exit(key(1))
	b.core.Tick()
	b.wantSent("")
	b.now = b.now.Add(measureWait + 1)
	b.core.Tick()
	b.wantSent("1 1.1.batch done 0:0")
	g := b.core.outbox.queue[0].report.GetNodeDone().GetUsage().GetGpus()
	if len(g) != 1 || g[0].GetHas() || g[0].GetNoProcess() != int64(spec.Second) {
		t.Errorf("never read, and yet %v", g)
	}
	b.exit(key(2))
	b.core.Collected(&Reading{Err: errors.New("no driver")})
	b.wantSent("2 2.1.batch done 0:0")
}

// TestALostGPUIsNobodysIdling: the time for which a device was gone is not
// counted as time in which its job held it without a process.
func TestALostGPUIsNobodysIdling(t *testing.T) {
	b := newBench(t)
	b.core.SetDevices([]device.Device{{UUID: "GPU-0"}})
	b.welcome()
	b.run(key(1), onGPU("GPU-0"))
	for range 6 {
		b.now = b.now.Add(10 * spec.Second)
		b.core.Collected(&Reading{Sample: device.Sample{At: b.now, Readings: []device.Reading{{UUID: "GPU-0", Lost: true}}}, Listed: true})
	}
	b.exit(key(1))
	b.now = b.now.Add(spec.Second)
	b.core.Collected(&Reading{Sample: device.Sample{At: b.now, Readings: []device.Reading{{UUID: "GPU-0", Lost: true}}}, Listed: true})
	queue := b.core.outbox.queue
	usage := queue[len(queue)-1].report.GetNodeDone().GetUsage().GetGpus()
	if len(usage) != 1 || usage[0].GetNoProcess()+usage[0].GetIdle() != 0 {
		t.Errorf("a device that was lost all the time: %v", usage)
	}
}

func TestXIDsAreCounted(t *testing.T) {
	b := newBench(t)
	b.core.SetDevices([]device.Device{{UUID: "GPU-0"}})
	b.welcome()
	b.run(key(1), onGPU("GPU-0"))
	b.now = b.now.Add(spec.Second)
	b.core.Collected(&Reading{Sample: device.Sample{At: b.now, Readings: []device.Reading{{UUID: "GPU-0"}}},
		Events: []device.Event{{Kind: device.EventXID, UUID: "GPU-0", XID: 79}, {Kind: device.EventThermal, UUID: "GPU-0"}, {Kind: device.EventXID, UUID: "GPU-9", XID: 1}}})
	b.exit(key(1))
	b.now = b.now.Add(spec.Second)
	b.collected(0, "GPU-0")
	queue := b.core.outbox.queue
	if f := queue[0].report.GetGpuFault(); f.GetXid() == 0 || f.GetKind() != uint32(spec.GPUXID) || f.GetJobUid() == 0 {
		t.Errorf("the controller is told %v", f)
	}
	if g := queue[len(queue)-1].report.GetNodeDone().GetUsage().GetGpus(); len(g) != 1 || g[0].GetXids() != 1 {
		t.Errorf("%v", g)
	}
}

// TestGPUUsageAddsUp: whatever the account, the three states are the time.
func TestGPUUsageAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		book := attrib.NewBook(10 * spec.Second)
		at := spec.AtUnix(1000)
		k := attrib.Key{Job: 1, Attempt: 1, GPU: "G"}
		share := rapid.SampledFrom([]int64{0, 1, 333, 500, 999}).Draw(t, "share")
		if err := book.Start(k, at, share); err != nil {
			t.Fatal(err)
		}
		begin := at
		for range rapid.IntRange(0, 8).Draw(t, "readings") {
			at = at.Add(spec.Span(rapid.Int64Range(1, int64(30*spec.Second)).Draw(t, "later")))
			util := rapid.Int64Range(0, 1_000_000).Draw(t, "util")
			book.Observe("G", attrib.Observation{At: at, Util: &util, Processes: rapid.IntRange(-1, 1).Draw(t, "processes"), Thermal: true, Power: true})
		}
		end := begin.Add(spec.Span(rapid.Int64Range(0, int64(300*spec.Second)).Draw(t, "end")))
		a, err := book.End(k, end)
		if err != nil {
			t.Fatal(err)
		}
		u := (&Core{}).gpuUsage(&a)
		held, off := end.Sub(begin), spec.Span(0)
		if share > 0 {
			// A part of each state, each rounded down.
			held, off = spec.Span(partOf(int64(held), share)), 3
		}
		if sum := u.NoProcess + u.Idle + u.Busy; sum > held || sum < held-off || u.Throttled > held || u.NoProcess < 0 {
			t.Fatalf("%+v of %d", u, held)
		}
		if (u.Method == spec.GPUByShare) != (share > 0) || u.Share != share {
			t.Fatalf("%s, %d thousandths, want %d", u.Method, u.Share, share)
		}
	})
}

func TestMemoryOverTime(t *testing.T) {
	sec := spec.Second
	for _, c := range []struct {
		name  string
		reads []plan.Usage // one a second
		lived spec.Span
		peak  int64
		want  int64 // MiB·s
	}{
		{"never read: the peak, all the time", nil, 3 * sec, 10 << 20, 30},
		{"read each second", []plan.Usage{{RSS: 10 << 20}, {RSS: 30 << 20}}, 2 * sec, 40 << 20, 40},
		{"the rest counts as the last reading", []plan.Usage{{RSS: 10 << 20}}, 5 * sec, 40 << 20, 50},
		{"nothing at all", nil, 0, 10 << 20, 0},
	} {
		b := newBench(t)
		b.welcome()
		b.run(key(1))
		begin := b.now
		for _, u := range c.reads {
			b.now = b.now.Add(sec)
			u.Key = key(1)
			b.core.Usage(b.now, []plan.Usage{u})
		}
		b.now = begin.Add(c.lived)
		b.exit(key(1), func(e *plan.Exit) { e.Start, e.Usage.PeakRSS = begin, c.peak })
		if u := b.core.outbox.queue[0].report.GetNodeDone().GetUsage(); u.GetMemMibS() != c.want || u.GetPeakRss() != c.peak || !u.GetHasRss() {
			t.Errorf("%s: %v", c.name, u)
		}
	}
}

// TestMemoryInParts: how often one looks does not change the sum by more than
// the rounding of milliseconds.
func TestMemoryInParts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.Int64Range(0, 1<<41).Draw(t, "bytes")
		parts := rapid.SliceOfN(rapid.Int64Range(0, int64(spec.Hour)), 1, 20).Draw(t, "parts")
		whole, split := memoryUse{at: 1}, memoryUse{at: 1}
		at := spec.Instant(1)
		for _, p := range parts {
			at = at.Add(spec.Span(p))
			split.countUntil(at, bytes)
		}
		whole.countUntil(at, bytes)
		if whole.whole != split.whole {
			t.Fatalf("%d in one, %d in parts", whole.whole, split.whole)
		}
	})
}

func TestOverMemory(t *testing.T) {
	cfg := testConfig()
	for _, on := range []bool{false, true} {
		cfg.OverMemoryKill = on
		b := newBenchWith(t, cfg)
		b.welcome()
		b.run(key(1))
		read := func(mib int64) Effects {
			b.core.Usage(b.now, []plan.Usage{{Key: key(1), RSS: mib << 20}})
			return b.core.Effects()
		}
		if fx := read(500); len(fx.Terminate) != 0 {
			t.Error("killed for what it was given")
		}
		fx := read(501)
		if (len(fx.Terminate) == 1) != on {
			t.Fatalf("wanted %v: %+v", on, fx)
		}
		if on && (fx.Terminate[0].Notice != "StepId=1001.batch exceeded memory limit (525336576 > 524288000), being killed" || fx.Terminate[0].Grace != 0) {
			t.Errorf("%+v", fx.Terminate[0])
		}
		if fx := read(502); len(fx.Terminate) != 0 {
			t.Error("killed again")
		}
	}
}

func TestUnkillable(t *testing.T) {
	cfg := testConfig()
	cfg.UnkillableAfter = 60 * spec.Second
	b := newBenchWith(t, cfg)
	b.welcome()
	b.run(key(1))
	o := plan.Observed{Key: key(1), JobID: 1001, State: plan.Ending, KillSent: b.now, Start: b.now}
	for range 4 {
		b.now = b.now.Add(30 * spec.Second)
		b.resync(o)
	}
	if n := strings.Count(b.log.String(), "cannot be killed"); n != 1 {
		t.Errorf("said %d times", n)
	}
}

func TestGPUInventory(t *testing.T) {
	declared := []spec.GRESSpec{{Name: "gpu", Type: "h100", N: 2, Files: "/dev/nvidia[0-1]"}, {Name: "gpu", Type: "a100", N: 2}, {Name: "nic", N: 1}}
	devices := []device.Device{
		{UUID: "GPU-a", Minor: 0, Model: "NVIDIA A100-SXM4-80GB", Files: []string{"/dev/nvidia0"}, CPUs: []int{0, 1}, MemoryMiB: 5, PCIBusID: "00000000:01:00.0",
			Links: []device.Link{{Kind: device.LinkSelf}, {Kind: device.LinkNVLink, NVLinks: 12}, {Kind: device.LinkNVLink, NVLinks: 18}, {Kind: device.LinkSystem}}},
		{UUID: "GPU-b", Index: 1, Minor: 1, Model: "NVIDIA A100-SXM4-80GB", Files: []string{"/dev/nvidia7"}},
		{UUID: "GPU-c", Index: 2, Lost: true},
		{UUID: "GPU-d", Index: 3, Model: "NVIDIA A100", Files: []string{"/dev/nvidia3"}, MIG: []device.MIG{{UUID: "MIG-1", Profile: "1g.10gb", MemoryMiB: 10}, {UUID: "MIG-2", Profile: "3g.40gb"}}},
	}
	got := gpuInventory(devices, declared, "nvml")
	if len(got) != 4 {
		t.Fatalf("%+v", got)
	}
	if g := got[0]; g.Type != "h100" || g.Path != "/dev/nvidia0" || g.Provider != "nvml" || !g.CPUs.Has(1) || g.Mem != 5 || g.Index != 0 ||
		len(g.Links) != 4 || !(g.Links[1] > g.Links[2] && g.Links[2] == g.Links[3] && g.Links[3] > g.Links[0]) { // none to the lost one, one to each instance
		t.Errorf("by its file: %+v", g)
	}
	if g := got[1]; g.Type != "a100" || g.Index != 1 {
		t.Errorf("by its model: %+v", g)
	}
	if g := got[2]; g.UUID != "MIG-1" || g.Parent != "GPU-d" || g.Type != "1g.10gb" || g.Mem != 10 {
		t.Errorf("an instance: %+v", g)
	}
	if got[2].Index == got[3].Index {
		t.Error("two instances with one index")
	}
	// A whole device beside a partitioned one: no two have one number, and the type is the
	// site's name of the profile.
	mixed := []device.Device{{Index: 0, UUID: "GPU-0", Model: "A100", Links: []device.Link{{Kind: device.LinkSelf}, {Kind: device.LinkNVLink, NVLinks: 4}},
		MIG: []device.MIG{{UUID: "MIG-0", Profile: "3g.20gb"}, {UUID: "MIG-1", Profile: "3g.20gb"}}},
		{Index: 1, UUID: "GPU-1", Model: "A100", Links: []device.Link{{Kind: device.LinkNVLink, NVLinks: 4}, {Kind: device.LinkSelf}}}}
	var text []string
	for _, g := range gpuInventory(mixed, []spec.GRESSpec{{Name: "gpu", Type: "a100_3g.20gb", N: 2}, {Name: "gpu", Type: "a100", N: 1}}, "nvml") {
		text = append(text, fmt.Sprint(g.Index, g.Type, g.Parent, len(g.Links)))
	}
	if want := "0a100_3g.20gbGPU-00, 1a100_3g.20gbGPU-00, 2a1003"; strings.Join(text, ", ") != want {
		t.Errorf("got %q, want %q", strings.Join(text, ", "), want)
	}
	if g := gpuInventory([]device.Device{{Model: "Odd"}}, []spec.GRESSpec{{Name: "gpu", Type: "odd9000", N: 1}}, "nvml"); g[0].Type != "odd9000" {
		t.Errorf("the only type: %+v", g)
	}
	if g := gpuInventory([]device.Device{{Model: "Odd"}}, nil, "nvml"); g[0].Type != "" {
		t.Errorf("no type: %+v", g)
	}
	for expr, want := range map[string]string{"/dev/nvidia[0-1],/dev/nvidia7": "/dev/nvidia0 /dev/nvidia1 /dev/nvidia7", "/dev/nvidia0": "/dev/nvidia0", "": "",
		"/dev/a[1,3],/dev/b": "/dev/a1 /dev/a3 /dev/b"} {
		files, err := DeviceFiles(expr)
		if err != nil || strings.Join(files, " ") != want {
			t.Errorf("%q: %q %v", expr, files, err)
		}
	}
	if _, err := DeviceFiles("/dev/nvidia[0-"); err == nil {
		t.Error("an open bracket is taken")
	}
	// What is missing is said by type where types are declared.
	gpus := func(types ...string) (out []spec.GPU) {
		for _, typ := range types {
			out = append(out, spec.GPU{Type: typ})
		}
		return out
	}
	four := []spec.GRESSpec{{Name: "gpu", Type: "h100", N: 2}, {Name: "gpu", Type: "a100", N: 2}, {Name: "nic", N: 9}}
	for _, c := range []struct {
		have     []spec.GPU
		declared []spec.GRESSpec
		want     string
	}{
		{gpus("h100", "a100", "h100", "a100"), four, ""},
		{gpus("h100", "a100", "a100"), four, "2 GPUs of type h100 are declared and 1 found"},
		{gpus("h100", "h100", "1g.10gb", "1g.10gb", "a100", "a100"), four, "4 GPUs are declared and 6 found"},
		{nil, four[:1], "2 GPUs of type h100 are declared and 0 found"},
		{gpus("x", "y", "z"), []spec.GRESSpec{{Name: "gpu", N: 4}}, "4 GPUs are declared and 3 found"},
		{gpus("x"), nil, ""},
	} {
		if got := checkDeclared(c.have, c.declared); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}
