package auto_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhpc/muster/nodeagent/gpu/auto"
	"github.com/musterhpc/muster/nodeagent/gpu/nvml"
	"github.com/musterhpc/muster/nodeagent/gpu/simulated"
)

func TestCandidates(t *testing.T) {
	declared := []simulated.Declared{{Type: "h100", Count: 8}}
	for _, c := range []struct {
		mode     string
		declared []simulated.Declared
		want     string
	}{
		{"", nil, "dcgm nvml"}, {"", declared, "dcgm nvml simulated"}, {"NVML", nil, "dcgm nvml"},
		{"off", declared, "simulated"}, {"off", nil, ""},
	} {
		list, err := auto.Candidates(auto.Config{AutoDetect: c.mode, Declared: c.declared})
		var names []string
		for _, p := range list {
			names = append(names, p.Name)
		}
		if got := strings.Join(names, " "); err != nil || got != c.want {
			t.Errorf("AutoDetect=%s: %s, %v; want %s", c.mode, got, err, c.want)
		}
	}
	// A device file that is there makes a device that nobody measures, unless a
	// library is named or its driver is loaded and thus broken.
	there := []simulated.Declared{{Type: "h100", Files: []string{"/dev/null"}}}
	for _, c := range []struct {
		cfg    auto.Config
		loaded bool
		want   string
	}{
		{auto.Config{AutoDetect: "nvml", Declared: declared}, false, "dcgm nvml"},
		{auto.Config{AutoDetect: "nvml", Declared: there}, false, "dcgm nvml"},
		{auto.Config{Declared: there}, false, "dcgm nvml declared"},
		{auto.Config{Declared: there}, true, "dcgm nvml"},
		{auto.Config{AutoDetect: "off", Declared: there}, true, "declared"},
		{auto.Config{AutoDetect: "nvml", Declared: declared, Simulate: true}, false, "dcgm nvml simulated"},
		{auto.Config{Declared: there, Simulate: true}, false, "dcgm nvml simulated"},
	} {
		c.cfg.DriverLoaded = func() bool { return c.loaded }
		list, err := auto.Candidates(c.cfg)
		var names []string
		for _, candidate := range list {
			names = append(names, candidate.Name)
		}
		if got := strings.Join(names, " "); err != nil || got != c.want {
			t.Errorf("%+v: %s, %v; want %s", c.cfg, got, err, c.want)
		}
	}
	for mode, want := range map[string]string{"rsmi": "NVIDIA devices only", "oneapi": "NVIDIA devices only", "nrt": "NVIDIA devices only", "magic": "want nvml, nvidia or off"} {
		if _, err := auto.Candidates(auto.Config{AutoDetect: mode}); !errors.Is(err, auto.ErrAutoDetect) || !strings.Contains(err.Error(), want) {
			t.Errorf("AutoDetect=%s: %v", mode, err)
		}
	}
}

// A machine whose driver library is not there falls back to what it declares,
// and says so.
func TestChooseFallsBack(t *testing.T) {
	cfg := auto.Config{Node: "n1", NVML: nvml.Config{Library: filepath.Join(t.TempDir(), "none.so")}, Declared: []simulated.Declared{{Type: "h100", Count: 8}}}
	choice, err := auto.Choose(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer choice.Provider.Close()
	if choice.Provider.Name() != "simulated" || !strings.HasPrefix(choice.Reason, "GPUs come from simulated (8 devices); not used: dcgm: ") ||
		!strings.Contains(choice.Reason, "nvml: libnvidia-ml.so.1 is not installed") {
		t.Errorf("%s", choice.Reason)
	}
	cfg.Declared = nil
	if choice, err = auto.Choose(t.Context(), cfg); err != nil || choice.Provider != nil || !strings.HasPrefix(choice.Reason, "this node has no GPU (dcgm: ") {
		t.Errorf("%+v %v", choice, err)
	}
}
