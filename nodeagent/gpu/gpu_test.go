package gpu_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/musterhpc/muster/nodeagent/gpu"
	"github.com/musterhpc/muster/nodeagent/gpu/simulated"
)

func candidate(name string, open func() (gpu.Provider, error)) gpu.Candidate {
	return gpu.Candidate{Name: name, Open: func(context.Context) (gpu.Provider, error) { return open() }}
}

func declared() (gpu.Provider, error) {
	return simulated.New(simulated.Config{Node: "n1", Lines: []simulated.Declared{{Type: "h100", Count: 2}}})
}

func TestChoose(t *testing.T) {
	errBroken := errors.New("version mismatch")
	missing := candidate("dcgm", func() (gpu.Provider, error) {
		return nil, fmt.Errorf("libdcgm.so.4 is not installed: %w", gpu.ErrUnavailable)
	})
	broken := candidate("nvml", func() (gpu.Provider, error) { return nil, errBroken })
	works := candidate("simulated", declared)
	for _, c := range []struct {
		name       string
		candidates []gpu.Candidate
		provider   string
		reason     string
		failures   int
	}{
		{"the first that works", []gpu.Candidate{works, broken}, "simulated", "GPUs come from simulated (2 devices)", 0},
		{"missing is no failure", []gpu.Candidate{missing, works}, "simulated",
			"GPUs come from simulated (2 devices); not used: dcgm: libdcgm.so.4 is not installed", 0},
		{"broken is a failure, and the next is tried", []gpu.Candidate{broken, works}, "simulated",
			"GPUs come from simulated (2 devices); not used: nvml failed: version mismatch", 1},
		{"none", []gpu.Candidate{missing}, "", "this node has no GPU (dcgm: libdcgm.so.4 is not installed)", 0},
		{"nothing asked", nil, "", "this node has no GPU", 0},
	} {
		choice, err := gpu.Choose(t.Context(), c.candidates)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
		name := ""
		if choice.Provider != nil {
			name = choice.Provider.Name()
		}
		if name != c.provider || choice.Reason != c.reason || len(choice.Failures) != c.failures {
			t.Errorf("%s: %q %q %v", c.name, name, choice.Reason, choice.Failures)
		}
		if c.failures > 0 && !errors.Is(choice.Failures[0], errBroken) {
			t.Errorf("%s: %v does not wrap the cause", c.name, choice.Failures[0])
		}
		if strings.Contains(choice.Reason, "\n") {
			t.Errorf("%s: the reason is not one line", c.name)
		}
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := gpu.Choose(done, []gpu.Candidate{works}); !errors.Is(err, context.Canceled) {
		t.Errorf("a done context: %v", err)
	}
}
