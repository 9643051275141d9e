//go:build linux && cgo

package dcgm_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/musterhpc/muster/nodeagent/gpu"
	"github.com/musterhpc/muster/nodeagent/gpu/dcgm"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/gpu/gputest"
	"github.com/musterhpc/muster/nodeagent/gpu/nvml"
	"github.com/musterhpc/muster/spec"
)

// libraryDir tells a child process where the stand-in libraries are.
const libraryDir = "MUSTER_GPU_DOUBLES"

// build makes the stand-in libraries of both packages.
func build(t *testing.T) string {
	t.Helper()
	cc, err := exec.LookPath("cc")
	if err != nil {
		t.Skip("no C compiler: the stand-in libraries cannot be built")
	}
	dir := t.TempDir()
	for _, lib := range []struct{ module, include, source, out string }{
		{"github.com/NVIDIA/go-nvml", "pkg/nvml", "../nvml/testdata/double.c", "libnvml-double.so"},
		{"github.com/NVIDIA/go-dcgm", "pkg/dcgm", "testdata/double.c", "libdcgm.so.4"},
	} {
		path, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", lib.module).Output()
		if err != nil {
			t.Skipf("the headers of %s cannot be found: %v", lib.module, err)
		}
		cmd := exec.Command(cc, "-shared", "-fPIC", "-w", "-DNVML_NO_UNVERSIONED_FUNC_DEFS", "-I", filepath.Join(strings.TrimSpace(string(path)), lib.include),
			"-o", filepath.Join(dir, lib.out), lib.source)
		if text, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("building %s: %v\n%s", lib.source, err, text)
		}
	}
	return dir
}

// TestOverStandIn runs the tests named TestChild… in a process whose loader
// finds the stand-in: go-dcgm loads its library by name only.
func TestOverStandIn(t *testing.T) {
	dir := build(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild", "-test.count=1", "-test.v")
	cmd.Env = append(os.Environ(), libraryDir+"="+dir, "LD_LIBRARY_PATH="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if n := strings.Count(string(out), "--- PASS: TestChild"); n < 5 || strings.Contains(string(out), "--- SKIP") {
		t.Errorf("%d tests ran over the stand-in\n%s", n, out)
	}
}

func config(t *testing.T) dcgm.Config {
	dir := os.Getenv(libraryDir)
	if dir == "" {
		t.Skip("run by TestOverStandIn")
	}
	return dcgm.Config{NVML: nvml.Config{Library: filepath.Join(dir, "libnvml-double.so"), Sys: fstest.MapFS{}}}
}

func open(t *testing.T, cfg dcgm.Config) gpu.Provider {
	t.Helper()
	p, err := dcgm.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func clock() func() spec.Instant {
	var at atomic.Int64
	at.Store(1_700_000_000_000_000_000)
	return func() spec.Instant { return spec.Instant(at.Add(1_000_000_000)) }
}

func TestChildConformance(t *testing.T) {
	embedded := config(t)
	remote := config(t)
	remote.HostEngine = "localhost:5555"
	for name, c := range map[string]struct {
		cfg          dcgm.Config
		dcgm, nvidia string
	}{
		"embedded":     {embedded, "", ""},
		"host engine":  {remote, "", ""},
		"no profiling": {embedded, "noprof", ""},
		"lost":         {embedded, "lost1", "lost1"},
		"cut":          {embedded, "mig0", "mig0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("DCGM_DOUBLE", c.dcgm)
			t.Setenv("DOUBLE", c.nvidia)
			gputest.Run(t, gputest.Harness{Open: func(t *testing.T) gpu.Provider { return one(t, c.cfg) }, Now: clock()})
		})
	}
}

// one opens a provider and closes it with the test, since a process has one
// manager: the suite's own stability test opens two that share it.
func one(t *testing.T, cfg dcgm.Config) gpu.Provider { return open(t, cfg) }

func TestChildValues(t *testing.T) {
	p := open(t, config(t))
	defer p.Close()
	var s device.Sample
	if err := p.Sample(t.Context(), 1, &s); err != nil {
		t.Fatal(err)
	}
	for i, uuid := range []string{"GPU-00000000-0000-0000-0000-000000000000", "GPU-00000000-0000-0000-0000-000000000001"} {
		r := s.Readings[i]
		if r.UUID != uuid {
			t.Errorf("reading %d is of %s: the driver's order was lost", i, r.UUID)
		}
		for f, want := range map[device.Field]int64{device.PowerUsage: 412_346, device.GPUUtil: 93, device.FBUsed: 1000, device.GraphicsActive: device.Ratio, device.SMActive: 500_000} {
			if got, ok := r.Get(f); !ok || got != want {
				t.Errorf("field %d is %d (%v), want %d", f, got, ok, want)
			}
		}
		for _, f := range []device.Field{device.EncUtil, device.DecUtil, device.SMOccupancy, device.SMClock} {
			if n, ok := r.Get(f); ok {
				t.Errorf("field %d is blank and reads %d", f, n)
			}
		}
	}
}

func TestChildWithoutProfilingRights(t *testing.T) {
	t.Setenv("DCGM_DOUBLE", "noprof")
	p := open(t, config(t))
	defer p.Close()
	var s device.Sample
	if err := p.Sample(t.Context(), 1, &s); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Readings[0].Get(device.SMActive); ok {
		t.Error("a profiling field was read without rights")
	}
	note := p.(interface{ Note() string }).Note()
	if !strings.Contains(note, "profiling fields are missing") {
		t.Errorf("note %q", note)
	}
}

func TestChildHostEngineRestarts(t *testing.T) {
	cfg := config(t)
	cfg.HostEngine = "localhost:5555"
	p := open(t, cfg)
	defer p.Close()
	at := spec.Instant(1_700_000_000_000_000_000)
	var s device.Sample
	if err := p.Sample(t.Context(), at, &s); err != nil {
		t.Fatal(err)
	}
	t.Setenv("DCGM_DOUBLE", "away")
	for _, after := range []spec.Span{spec.Second, 2 * spec.Second, 7 * spec.Second} {
		if err := p.Sample(t.Context(), at.Add(after), &s); err == nil {
			t.Errorf("a sample came from an engine that is away, after %d", after)
		}
	}
	t.Setenv("DCGM_DOUBLE", "")
	if err := p.Sample(t.Context(), at.Add(20*spec.Second), &s); err != nil {
		t.Errorf("after the engine came back: %v", err)
	}
}

// TestChildLosesADevice: a device that falls off the bus, and comes back, is an
// event each time, once.
func TestChildLosesADevice(t *testing.T) {
	p := open(t, config(t))
	defer p.Close()
	at := clock()
	for _, step := range []struct {
		words string
		want  device.EventKind
	}{{"lost1", 0}, {"", 0}, {"lost1", device.EventLost}, {"lost1", 0}, {"", device.EventReturned}, {"", 0}} {
		t.Setenv("DCGM_DOUBLE", step.words)
		var s device.Sample
		if err := p.Sample(t.Context(), at(), &s); err != nil {
			t.Fatal(err)
		}
		events, err := p.Events(t.Context(), at(), nil)
		if err != nil || (step.want == 0) != (len(events) == 0) || len(events) > 0 && (events[0].Kind != step.want || events[0].UUID != s.Readings[1].UUID) {
			t.Errorf("%q: %+v %v", step.words, events, err)
		}
	}
}

// TestChildPartitioned: instances that are made while the manager is watched
// are read after the next inventory, and are gone after the one behind that.
func TestChildPartitioned(t *testing.T) {
	t.Setenv("DOUBLE", "")
	p := open(t, config(t))
	defer p.Close()
	at := clock()
	for _, step := range []struct {
		words    string
		readings int
	}{{"", 2}, {"mig0", 4}, {"", 2}} {
		t.Setenv("DOUBLE", step.words)
		t.Setenv("DCGM_DOUBLE", step.words)
		if _, err := p.Inventory(t.Context()); err != nil {
			t.Fatal(err)
		}
		var s device.Sample
		if err := p.Sample(t.Context(), at(), &s); err != nil || len(s.Readings) != step.readings {
			t.Errorf("%q: %d readings, %v", step.words, len(s.Readings), err)
		}
	}
}

func TestChildRefusals(t *testing.T) {
	cfg := config(t)
	cfg.HostEngine = "elsewhere:1"
	if _, err := dcgm.Open(t.Context(), cfg); err == nil || errors.Is(err, gpu.ErrUnavailable) || !strings.Contains(err.Error(), "reaching DCGM") {
		t.Errorf("an engine that does not answer: %v", err)
	}
	t.Setenv("DCGM_DOUBLE", "stranger")
	if _, err := dcgm.Open(t.Context(), config(t)); err == nil || !strings.Contains(err.Error(), "DCGM does not know GPU-") {
		t.Errorf("other devices than the driver's: %v", err)
	}
	t.Setenv("DCGM_DOUBLE", "")
	t.Setenv("DOUBLE", "nodriver")
	if _, err := dcgm.Open(t.Context(), config(t)); !errors.Is(err, gpu.ErrUnavailable) {
		t.Errorf("no driver: %v", err)
	}
}

// TestThisMachine runs the suite on a real manager where there is one.
func TestThisMachine(t *testing.T) {
	if os.Getenv(libraryDir) != "" {
		t.Skip("over the stand-in")
	}
	p, err := dcgm.Open(t.Context(), dcgm.Config{})
	if errors.Is(err, gpu.ErrUnavailable) {
		if !strings.Contains(err.Error(), "is not installed") && !strings.Contains(err.Error(), "driver is not loaded") {
			t.Errorf("the reason is not clear: %v", err)
		}
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	gputest.Run(t, gputest.Harness{Open: func(t *testing.T) gpu.Provider { return one(t, dcgm.Config{}) }, Now: clock(), Untouched: true})
}
