package auto_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/musterhpc/muster/nodeagent/gpu"
	"github.com/musterhpc/muster/nodeagent/gpu/auto"
	"github.com/musterhpc/muster/nodeagent/gpu/dcgm"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/gpu/gputest"
	"github.com/musterhpc/muster/nodeagent/gpu/nvml"
	"github.com/musterhpc/muster/nodeagent/gpu/simulated"
	"github.com/musterhpc/muster/spec"
)

// TestRealGPU runs the conformance suite over this machine's own GPUs, through
// NVML and, where it is installed, DCGM, and reports what each of them says:
// make test-gpu. It needs nothing but the driver: the program that `go test -c`
// makes of it can be carried to a machine without Go or network.
func TestRealGPU(t *testing.T) {
	if os.Getenv("MUSTER_TEST_GPU") == "" {
		t.Skip("make test-gpu runs it, on a machine with an NVIDIA GPU")
	}
	if found, err := nvidiaDevices("/sys/bus/pci/devices"); err == nil && len(found) == 0 {
		t.Skip("NOT TESTED: no device of NVIDIA is on this machine's PCI bus")
	}
	now := func() spec.Instant { return spec.Instant(time.Now().UnixNano()) }
	for _, way := range []struct {
		name string
		must bool
		open func(context.Context) (gpu.Provider, error)
	}{
		{"nvml", true, func(ctx context.Context) (gpu.Provider, error) { return nvml.Open(ctx, nvml.Config{}) }},
		{"dcgm", false, func(ctx context.Context) (gpu.Provider, error) { return dcgm.Open(ctx, dcgm.Config{}) }},
	} {
		t.Run(way.name, func(t *testing.T) {
			p, err := way.open(t.Context())
			switch {
			case err != nil && !way.must && errors.Is(err, gpu.ErrUnavailable):
				t.Skipf("NOT TESTED: %v", err)
			case err != nil:
				t.Fatalf("what is missing: %v", err)
			}
			report(t, p, now, 20)
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			t.Run("conformance", func(t *testing.T) {
				gputest.Run(t, gputest.Harness{Now: now, Untouched: true, Open: func(t *testing.T) gpu.Provider {
					p, err := way.open(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					return p
				}})
			})
		})
	}
	choice, err := auto.Choose(t.Context(), auto.Config{Node: "here", Start: now(), AutoDetect: "nvml"})
	if err != nil || choice.Provider == nil {
		t.Fatalf("%+v %v", choice, err)
	}
	t.Log(choice.Reason)
	if err := choice.Provider.Close(); err != nil {
		t.Error(err)
	}
}

// nvidiaDevices lists the display and compute devices of NVIDIA on a PCI bus,
// whether a driver serves them or not.
func nvidiaDevices(bus string) (found []string, err error) {
	list, err := os.ReadDir(bus)
	for _, e := range list {
		vendor, verr := os.ReadFile(filepath.Join(bus, e.Name(), "vendor"))
		class, cerr := os.ReadFile(filepath.Join(bus, e.Name(), "class"))
		if verr == nil && cerr == nil && strings.TrimSpace(string(vendor)) == "0x10de" && strings.HasPrefix(string(class), "0x03") {
			found = append(found, e.Name())
		}
	}
	return found, err
}

// TestNvidiaDevices: GPUs count, their sound and their bridges do not.
func TestNvidiaDevices(t *testing.T) {
	bus := t.TempDir()
	for name, words := range map[string][2]string{"0000:1b:00.0": {"0x10de", "0x030200"}, "0000:1b:00.1": {"0x10de", "0x040300"},
		"0000:05:00.0": {"0x10de", "0x068000"}, "0000:00:02.0": {"0x8086", "0x030000"}} {
		dir := filepath.Join(bus, name)
		if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(filepath.Join(dir, "vendor"), []byte(words[0]+"\n"), 0o600),
			os.WriteFile(filepath.Join(dir, "class"), []byte(words[1]+"\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if found, err := nvidiaDevices(bus); err != nil || !slices.Equal(found, []string{"0000:1b:00.0"}) {
		t.Errorf("%v, %v", found, err)
	}
	if _, err := nvidiaDevices(filepath.Join(bus, "none")); err == nil {
		t.Error("a machine whose bus cannot be read is taken for one without devices")
	}
}

// report prints what a provider says of each device, and how long it takes.
func report(t *testing.T, p gpu.Provider, now func() spec.Instant, times int) {
	t.Helper()
	began := time.Now()
	devices, err := p.Inventory(t.Context())
	if err != nil || len(devices) == 0 {
		t.Fatalf("%d devices: %v", len(devices), err)
	}
	t.Logf("inventory in %v", time.Since(began))
	var s device.Sample
	var took []time.Duration
	for range times {
		began := time.Now()
		if err := p.Sample(t.Context(), now(), &s); err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Since(began))
		time.Sleep(100 * time.Millisecond) //muster:sleep the driver reads its devices ten times a second
	}
	slices.Sort(took)
	t.Logf("a collection takes %v, at most %v", took[len(took)/2], took[len(took)-1])
	names := map[device.Field]device.Info{}
	for _, f := range device.Fields() {
		names[f.Field] = f
	}
	for i := range devices {
		d := &devices[i]
		t.Logf("GPU %d %s %s %s, %d MiB, minor %d, NUMA %d, CPUs %v, driver %s, files %v, links %v", d.Index, d.UUID, d.Model, d.PCIBusID, d.MemoryMiB, d.Minor, d.NUMA, d.CPUs, d.Driver, d.Files, d.Links)
		for _, m := range d.MIG {
			t.Logf("  instance %s %s GI %d CI %d, %d MiB, %d slices", m.UUID, m.Profile, m.GPUInstance, m.ComputeInstance, m.MemoryMiB, m.Slices)
		}
	}
	for i := range s.Readings {
		r := &s.Readings[i]
		t.Logf("%s: %d fields, lost %v", r.UUID, len(r.Values), r.Lost)
		for _, v := range r.Values {
			f := names[v.Field]
			t.Logf("  %-48s %d (10^-%d %s)", f.Name, v.N, f.Decimals, f.Unit)
			delete(names, v.Field)
		}
	}
	for _, f := range device.Fields() {
		if _, missing := names[f.Field]; missing && f.Default {
			t.Logf("  not read: %s", f.Name)
		}
	}
	procs, err := p.Processes(t.Context(), nil)
	t.Logf("processes: %v %v", procs, err)
	events, err := p.Events(t.Context(), now(), nil)
	t.Logf("events: %v %v", events, err)
	if n, ok := p.(interface{ Note() string }); ok && n.Note() != "" {
		t.Log(n.Note())
	}
}

// TestReport: the report is written for simulated devices too, so that it is
// known to work where there are real ones.
func TestReport(t *testing.T) {
	p, err := simulated.New(simulated.Config{Node: "n1", Start: spec.AtUnix(1_800_000_000), Lines: []simulated.Declared{{Type: "h100", Count: 2}, {Type: "a100", Count: 1, MIG: []string{"3g.40gb"}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	report(t, p, func() spec.Instant { return spec.AtUnix(1_800_000_100) }, 1)
}
