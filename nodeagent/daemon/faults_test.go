package daemon

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/spec"
)

// told takes what the controller is told about GPUs, and acknowledges it.
func (b *bench) told() string {
	var out []string
	var last uint64
	for _, r := range b.core.Outgoing() {
		last = r.GetNumber()
		if f := r.GetGpuFault(); f != nil {
			line := fmt.Sprintf("%s %s", f.GetUuid(), spec.GPUFaultKind(f.GetKind()))
			if f.GetXid() != 0 {
				line += fmt.Sprintf(" %d %s", f.GetXid(), f.GetClass())
			}
			if f.GetCount() > 1 {
				line += fmt.Sprintf(" x%d", f.GetCount())
			}
			if f.GetJobUid() != 0 {
				line += fmt.Sprintf(" job %d.%d", f.GetJobUid(), f.GetAttempt())
			}
			if f.GetIdle() != 0 {
				line += fmt.Sprintf(" for %ds", f.GetIdle()/int64(spec.Second))
			}
			out = append(out, line)
		}
	}
	b.core.Ack(last)
	b.core.Effects()
	return strings.Join(out, "; ")
}

func (b *bench) events(list ...device.Event) {
	b.core.Collected(&Reading{Sample: device.Sample{At: b.now, Readings: []device.Reading{{UUID: "GPU-0"}, {UUID: "GPU-1"}}}, Listed: true, Events: list})
}

// TestFaultsAreToldOnceAMinute: a storm of errors is a few reports with counts,
// and nothing of it is forgotten.
func TestFaultsAreToldOnceAMinute(t *testing.T) {
	b := newBench(t)
	b.core.SetDevices([]device.Device{{UUID: "GPU-0"}, {UUID: "GPU-1"}})
	b.welcome()
	b.run(key(1), onGPU("GPU-0"))
	want := func(text string) {
		t.Helper()
		if got := b.told(); got != text {
			t.Errorf("told %q, want %q", got, text)
		}
	}
	xid := device.Event{Kind: device.EventXID, UUID: "GPU-0", XID: 79}
	b.events(xid, device.Event{Kind: device.EventLost, UUID: "GPU-1"})
	want("GPU-0 xid 79 fatal job 1.1; GPU-1 lost")
	for range 50 {
		b.now = b.now.Add(spec.Second)
		b.events(xid, xid)
	}
	want("")
	b.now = b.now.Add(10 * spec.Second)
	b.events(device.Event{Kind: device.EventReturned, UUID: "GPU-1"})
	want("GPU-1 returned; GPU-0 xid 79 fatal x100 job 1.1")
	b.now = b.now.Add(2 * spec.Minute)
	b.events()
	want("")
}

// TestFaultsNameTheRunThatHeldTheGPU: an error that ended its run, seen in the
// last reading, is that run's. One from before a run began is not the run's, and
// the same number within a minute is not counted for the wrong one.
func TestFaultsNameTheRunThatHeldTheGPU(t *testing.T) {
	b := newBench(t)
	b.core.SetDevices([]device.Device{{UUID: "GPU-0"}, {UUID: "GPU-1"}})
	b.welcome()
	xid := func() device.Event {
		return device.Event{Kind: device.EventXID, UUID: "GPU-0", XID: 48, At: b.now}
	}
	var told []string
	b.run(key(1), onGPU("GPU-0"))
	b.now = b.now.Add(spec.Second)
	struck := xid()
	b.exit(key(1))
	b.now = b.now.Add(spec.Second)
	b.events(struck)
	told = append(told, b.told())
	before := xid()
	b.now = b.now.Add(spec.Second)
	b.run(key(2), onGPU("GPU-0"))
	b.now = b.now.Add(spec.Second)
	b.events(before)
	told = append(told, b.told())
	b.events(xid())
	told = append(told, b.told())
	want := []string{"GPU-0 xid 48 fatal job 1.1", "GPU-0 xid 48 fatal", "GPU-0 xid 48 fatal job 2.1"}
	if !slices.Equal(told, want) {
		t.Errorf("the controller is told %q, want %q", told, want)
	}
}

// TestFaultsAreBoundedWhileTheControllerIsAway: whatever the hardware does, so
// many reports wait at most, and the counts come later.
func TestFaultsAreBoundedWhileTheControllerIsAway(t *testing.T) {
	b := newBench(t)
	for i := range 1000 {
		b.now = b.now.Add(2 * spec.Minute)
		b.events(device.Event{Kind: device.EventXID, UUID: "GPU-0", XID: 1 + i%3})
	}
	if n := len(b.core.outbox.queue); n != maxFaultsDue {
		t.Errorf("%d reports wait, want %d", n, maxFaultsDue)
	}
	b.welcome()
	total := uint64(0)
	for range 3 {
		var last uint64
		for _, r := range b.core.Outgoing() {
			total, last = total+max(r.GetGpuFault().GetCount(), 1), r.GetNumber()
		}
		b.core.Ack(last)
		b.now = b.now.Add(2 * spec.Minute)
		b.events()
	}
	if total != 1000 {
		t.Errorf("%d events arrived of 1000", total)
	}
}

// TestIdleTail: a GPU that a job holds without a process is told after the
// configured time, after the grace, and then at each doubling; work or a
// process begins the time anew, and so does another job.
func TestIdleTail(t *testing.T) {
	cfg := testConfig()
	cfg.IdleAfter, cfg.IdleGrace = 10*spec.Second, 20*spec.Second
	b := newBenchWith(t, cfg)
	b.core.SetDevices([]device.Device{{UUID: "GPU-0"}, {UUID: "GPU-1"}})
	b.welcome()
	b.run(key(1), onGPU("GPU-0"))
	step := func(percent int64, processes ...device.Process) string {
		b.now = b.now.Add(5 * spec.Second)
		b.core.Collected(&Reading{Sample: device.Sample{At: b.now, Readings: []device.Reading{{UUID: "GPU-0", Values: []device.Value{{Field: device.GPUUtil, N: percent}}}, {UUID: "GPU-1"}}},
			Listed: true, Processes: processes})
		return b.told()
	}
	var got []string
	for i := range 14 {
		if s := step(0); s != "" {
			got = append(got, fmt.Sprintf("%d: %s", i, s))
		}
	}
	// The second and third are held back until a minute after the first.
	if text := strings.Join(got, "; "); text != "1: GPU-0 idle job 1.1 for 10s; 13: GPU-0 idle x2 job 1.1 for 60s" {
		t.Error(text)
	}
	if s := step(0, device.Process{PID: 1, UUID: "GPU-0"}) + step(50) + step(0); s != "" {
		t.Error(s)
	}
	b.exit(key(1))
	b.now = b.now.Add(spec.Minute)
	b.events()
	b.told()
	b.run(key(2), onGPU("GPU-0"))
	if s := step(0) + step(0); s != "GPU-0 idle job 2.1 for 10s" {
		t.Error(s)
	}
}
