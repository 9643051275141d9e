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
	// A library that is named, or a device file that is there: nothing is made up.
	there := []simulated.Declared{{Type: "h100", Files: []string{"/dev/null"}}}
	for _, c := range []struct {
		cfg  auto.Config
		want int
	}{
		{auto.Config{AutoDetect: "nvml", Declared: declared}, 2}, {auto.Config{Declared: there}, 2}, {auto.Config{AutoDetect: "off", Declared: there}, 0},
		{auto.Config{AutoDetect: "nvml", Declared: declared, Simulate: true}, 3}, {auto.Config{Declared: there, Simulate: true}, 3},
	} {
		if list, err := auto.Candidates(c.cfg); err != nil || len(list) != c.want {
			t.Errorf("%+v: %d ways, want %d: %v", c.cfg, len(list), c.want, err)
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
