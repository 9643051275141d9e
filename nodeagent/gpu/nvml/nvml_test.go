//go:build linux && cgo

package nvml_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/musterhpc/muster/nodeagent/gpu"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/gpu/gputest"
	"github.com/musterhpc/muster/nodeagent/gpu/nvml"
	"github.com/musterhpc/muster/spec"
)

// double builds the stand-in library and gives its path.
func double(t *testing.T, flags ...string) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler: the stand-in library cannot be built")
	}
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml").Output()
	if err != nil {
		t.Skipf("the header of go-nvml cannot be found: %v", err)
	}
	out := filepath.Join(t.TempDir(), "libdouble.so")
	args := append([]string{"-shared", "-fPIC", "-w", "-DNVML_NO_UNVERSIONED_FUNC_DEFS", "-I", filepath.Join(strings.TrimSpace(string(dir)), "pkg/nvml"),
		"-o", out, "testdata/double.c"}, flags...)
	if text, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
		t.Fatalf("building the stand-in library: %v\n%s", err, text)
	}
	return out
}

var sys = fstest.MapFS{
	"bus/pci/devices/0000:1b:00.0/numa_node":     {Data: []byte("0\n")},
	"bus/pci/devices/0000:1c:00.0/numa_node":     {Data: []byte("1\n")},
	"bus/pci/devices/0000:1c:00.0/local_cpulist": {Data: []byte("2-3\n")},
}

func open(t *testing.T, library string) gpu.Provider {
	t.Helper()
	p, err := nvml.Open(t.Context(), nvml.Config{Library: library, Sys: sys})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func now() func() spec.Instant {
	var at atomic.Int64
	at.Store(1_700_000_000_000_000_000)
	return func() spec.Instant { return spec.Instant(at.Add(1_000_000_000)) }
}

func TestConformance(t *testing.T) {
	lib := double(t)
	for name, words := range map[string]string{"whole": "", "cut": "mig0", "lost": "lost1"} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("DOUBLE", words)
			t.Setenv("DOUBLE_XIDS", "31,79")
			gputest.Run(t, gputest.Harness{Open: func(t *testing.T) gpu.Provider { return open(t, lib) }, Now: now()})
		})
	}
}

func TestInventory(t *testing.T) {
	lib := double(t)
	t.Setenv("DOUBLE", "mig0")
	p := open(t, lib)
	defer p.Close()
	devices, err := p.Inventory(t.Context())
	if err != nil || len(devices) != 2 {
		t.Fatal(devices, err)
	}
	d := devices[1]
	if d.UUID != "GPU-00000000-0000-0000-0000-000000000001" || d.PCIBusID != "00000000:1C:00.0" || d.Minor != 5 ||
		d.Model != "Double 80GB" || d.MemoryMiB != 81920 || d.NUMA != 1 || len(d.CPUs) != 2 || d.Driver != "570.01" || d.Files[0] != "/dev/nvidia5" {
		t.Errorf("%+v", d)
	}
	if d.Links[0].String() != "NV4" || d.Links[1].String() != "X" {
		t.Errorf("links %v", d.Links)
	}
	if m := devices[0].MIG; len(m) != 2 || m[1].Profile != "3g.40gb" || m[1].GPUInstance != 2 || m[1].MemoryMiB != 40960 || m[1].Slices != 3 {
		t.Errorf("instances %+v", m)
	}
}

func TestSampleProcessesEvents(t *testing.T) {
	lib := double(t)
	t.Setenv("DOUBLE", "")
	t.Setenv("DOUBLE_XIDS", "13,48")
	p := open(t, lib)
	defer p.Close()
	clock := now()
	var s device.Sample
	if err := p.Sample(t.Context(), clock(), &s); err != nil {
		t.Fatal(err)
	}
	for f, want := range map[device.Field]int64{
		device.SMClock: 1980, device.MemClock: 2619, device.GPUTemp: 61, device.MemoryTemp: 66, device.PowerUsage: 412_345,
		device.PowerLimit: 700_000, device.GPUUtil: 93, device.MemCopyUtil: 41, device.FBUsed: 1024, device.FBFree: 79 * 1024,
		device.ClockReasons: device.ReasonPowerCap, device.ECCDBEVol: 10, device.ECCSBEAgg: 1, device.RemappedUncorrected: 2,
		device.RemapPending: 1, device.NVLinkBandwidth: 138 + 139, device.XIDErrors: 48, device.PCIeReplay: 3, device.EncUtil: 5,
	} {
		if got, ok := s.Readings[0].Get(f); !ok || got != want {
			t.Errorf("field %d is %d (%v), want %d", f, got, ok, want)
		}
	}
	if xid, _ := s.Readings[1].Get(device.XIDErrors); xid != 0 {
		t.Errorf("the other device has XID %d", xid)
	}
	list, err := p.Processes(t.Context(), nil)
	if err != nil || len(list) != 4 || list[0] != (device.Process{PID: 4242, UUID: s.Readings[0].UUID, MemoryMiB: 3072}) || list[1].MemoryMiB != device.Unknown {
		t.Errorf("processes %+v, %v", list, err)
	}
	t.Setenv("DOUBLE", "lost1")
	if err := p.Sample(t.Context(), clock(), &s); err != nil || !s.Readings[1].Lost || s.Readings[0].Lost {
		t.Errorf("a lost device: %v, %+v", err, s.Readings[1])
	}
	t.Setenv("DOUBLE", "")
	if err := p.Sample(t.Context(), clock(), &s); err != nil || s.Readings[1].Lost {
		t.Errorf("a device that came back: %v", err)
	}
	events, err := p.Events(t.Context(), clock(), nil)
	var kinds []string
	for _, e := range events {
		kinds = append(kinds, e.Kind.String())
	}
	if got := strings.Join(kinds, " "); err != nil || got != "xid xid lost returned" || events[1].XID != 48 {
		t.Errorf("events %s, %v", got, err)
	}
}

func TestUnavailable(t *testing.T) {
	_, err := nvml.Open(t.Context(), nvml.Config{Library: filepath.Join(t.TempDir(), "libnone.so")})
	if !errors.Is(err, gpu.ErrUnavailable) || !strings.Contains(err.Error(), "libnvidia-ml.so.1 is not installed") {
		t.Errorf("no library: %v", err)
	}
	t.Setenv("DOUBLE", "nodriver")
	_, err = nvml.Open(t.Context(), nvml.Config{Library: double(t)})
	if !errors.Is(err, gpu.ErrUnavailable) || !strings.Contains(err.Error(), "driver is not loaded") {
		t.Errorf("no driver: %v", err)
	}
	noLibrary := filepath.Join(t.TempDir(), "libnvidia-ml.so.1")
	if err := os.WriteFile(noLibrary, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = nvml.Open(t.Context(), nvml.Config{Library: noLibrary}); err == nil || errors.Is(err, gpu.ErrUnavailable) || !strings.Contains(err.Error(), "cannot be loaded") {
		t.Errorf("a library that cannot be loaded: %v", err)
	}
	for words, why := range map[string]string{"denied": "may not use the devices: run the agent as root", "closed": "may not use the devices: run the agent as root", // everything, or each device
		"updated": "load the new one, or restart the machine"} {
		t.Setenv("DOUBLE", words)
		choice, err := gpu.Choose(t.Context(), []gpu.Candidate{{Name: "nvml", Open: func(ctx context.Context) (gpu.Provider, error) {
			return nvml.Open(ctx, nvml.Config{Library: double(t)})
		}}})
		if err != nil || choice.Provider != nil || len(choice.Failures) != 1 || !strings.Contains(choice.Reason, "this node has no GPU (nvml failed: ") || !strings.Contains(choice.Reason, why) {
			t.Errorf("%s: %+v, %v", words, choice, err)
		}
	}
}

// TestOldDriver runs in a process of its own: a missing function would end it,
// and go-nvml remembers the newest functions it has seen.
func TestOldDriver(t *testing.T) {
	const child = "MUSTER_NVML_OLD_DRIVER"
	if lib := os.Getenv(child); lib != "" {
		gputest.Run(t, gputest.Harness{Open: func(t *testing.T) gpu.Provider { return open(t, lib) }, Now: now()})
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestOldDriver$", "-test.count=1")
	cmd.Env = append(os.Environ(), child+"="+double(t, "-DOLD"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestThisMachine runs the suite on real GPUs where there are any.
func TestThisMachine(t *testing.T) {
	p, err := nvml.Open(t.Context(), nvml.Config{})
	if errors.Is(err, gpu.ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	clock := now()
	gputest.Run(t, gputest.Harness{Now: clock, Untouched: true, Open: func(t *testing.T) gpu.Provider {
		p, err := nvml.Open(t.Context(), nvml.Config{})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}})
}

// TestPartitionedWhileOpen: a device that is cut into instances while the
// library is loaded gives their readings after the next inventory, and is whole
// again after the one behind that.
func TestPartitionedWhileOpen(t *testing.T) {
	lib := double(t)
	t.Setenv("DOUBLE", "")
	p := open(t, lib)
	defer p.Close()
	clock := now()
	for _, step := range []struct {
		words               string
		instances, readings int
	}{{"", 0, 2}, {"mig0", 2, 4}, {"", 0, 2}} {
		t.Setenv("DOUBLE", step.words)
		list, err := p.Inventory(t.Context())
		if err != nil || len(list) != 2 || len(list[0].MIG) != step.instances {
			t.Fatalf("%q: %+v %v", step.words, list, err)
		}
		var s device.Sample
		if err := p.Sample(t.Context(), clock(), &s); err != nil || len(s.Readings) != step.readings {
			t.Fatalf("%q: %d readings, %v", step.words, len(s.Readings), err)
		}
		for _, m := range list[0].MIG {
			r := s.Find(m.UUID)
			if r == nil || r.Lost {
				t.Fatalf("%s has no reading", m.UUID)
			}
			if _, ok := r.Get(device.FBUsed); !ok {
				t.Errorf("%s: %v", m.UUID, r.Values)
			}
		}
	}
}

// TestClocks: the pairs are the driver's, settings outlive the provider, and
// what an administrator had set is set again.
func TestClocks(t *testing.T) {
	lib := double(t)
	const gpu0 = "GPU-00000000-0000-0000-0000-000000000000"
	low, mid := device.Clocks{Memory: 1593, Graphics: 300}, device.Clocks{Memory: 2619, Graphics: 1680}
	for _, c := range []struct {
		words  string
		before device.Clocks
		set    string // what the device holds
		fails  string
	}{
		{"", device.Clocks{}, "a 1593 300", ""},
		{"lockonly", device.Clocks{Locked: true}, "l 1593 300", ""},
		{"nopermission", device.Clocks{}, "", "the driver does not permit it"},
	} {
		t.Run(c.words, func(t *testing.T) {
			state := filepath.Join(t.TempDir(), "clocks")
			t.Setenv("DOUBLE", c.words)
			t.Setenv("DOUBLE_CLOCKS", state)
			p := open(t, lib)
			list, err := p.ListClocks(t.Context(), gpu0)
			if err != nil || len(list) != 8 || !slices.Contains(list, low) || !slices.Contains(list, mid) || slices.Contains(list, device.Clocks{Memory: 1593, Graphics: 1980}) {
				t.Fatalf("%v %v", list, err)
			}
			before, err := p.SetClocks(t.Context(), gpu0, low)
			if c.fails != "" {
				if err == nil || !strings.Contains(err.Error(), c.fails) {
					t.Errorf("%v, want %s", err, c.fails)
				}
				return
			}
			if err != nil || before != c.before {
				t.Fatalf("before %+v, want %+v: %v", before, c.before, err)
			}
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(state + "0"); err != nil || strings.TrimSpace(string(b)) != c.set {
				t.Errorf("the device holds %q, want %q: %v", b, c.set, err)
			}
			p = open(t, lib)
			defer p.Close()
			if err := p.ResetClocks(t.Context(), gpu0, before); err != nil {
				t.Fatal(err)
			}
			if b, err := os.ReadFile(state + "0"); err == nil {
				t.Errorf("after it was set back the device holds %q", b)
			}
		})
	}
	t.Run("as an administrator had them", func(t *testing.T) {
		t.Setenv("DOUBLE", "")
		t.Setenv("DOUBLE_CLOCKS", filepath.Join(t.TempDir(), "clocks"))
		p := open(t, lib)
		defer p.Close()
		if _, err := p.SetClocks(t.Context(), gpu0, mid); err != nil {
			t.Fatal(err)
		}
		before, err := p.SetClocks(t.Context(), gpu0, low)
		if err != nil || before != mid {
			t.Fatalf("before %+v, want %+v: %v", before, mid, err)
		}
		if err := p.ResetClocks(t.Context(), gpu0, before); err != nil {
			t.Fatal(err)
		}
		if again, err := p.SetClocks(t.Context(), gpu0, low); err != nil || again != mid {
			t.Errorf("set back to %+v, want %+v: %v", again, mid, err)
		}
	})
	t.Run("none", func(t *testing.T) {
		t.Setenv("DOUBLE", "clockless mig0")
		p := open(t, lib)
		defer p.Close()
		if list, err := p.ListClocks(t.Context(), gpu0); err == nil {
			t.Errorf("%v", list)
		}
		if _, err := p.ListClocks(t.Context(), "MIG-00000000-0000-0000-0000-000000000001"); err == nil || !strings.Contains(err.Error(), "no clocks of its own") {
			t.Errorf("an instance: %v", err)
		}
	})
}
