// Package auto lists the GPU providers a node tries, in order, from what its
// gres.conf says.
package auto

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/musterhpc/muster/nodeagent/gpu"
	"github.com/musterhpc/muster/nodeagent/gpu/dcgm"
	"github.com/musterhpc/muster/nodeagent/gpu/nvml"
	"github.com/musterhpc/muster/nodeagent/gpu/simulated"
	"github.com/musterhpc/muster/spec"
)

// ErrAutoDetect is wrapped when AutoDetect names what Muster does not have.
var ErrAutoDetect = errors.New("bad AutoDetect")

// Config is what a node knows about its GPUs before it looks.
type Config struct {
	Node  string
	Start spec.Instant // now; simulated counters begin here
	// AutoDetect of gres.conf: nvml or nvidia look for devices, and there are no
	// others; off does not look; empty looks, and falls back to what is declared.
	AutoDetect string
	// Declared devices. They are simulated where no real device is found and
	// none can be: not where AutoDetect names a library, nor where one of their
	// device files is there, so that a broken driver is not taken for none.
	Declared []simulated.Declared
	// Simulate asks for the simulation whatever else there is.
	Simulate bool
	// HostEngine and Period configure DCGM; see dcgm.Config.
	HostEngine string
	Period     spec.Span
	// NVML says where the driver library is.
	NVML nvml.Config
}

// Candidates gives the providers in the order they are tried: DCGM, NVML, then
// the simulated one when devices are declared. The error wraps ErrAutoDetect.
func Candidates(cfg Config) ([]gpu.Candidate, error) {
	var out []gpu.Candidate
	switch mode := strings.ToLower(cfg.AutoDetect); mode {
	case "", "nvml", "nvidia":
		out = append(out,
			gpu.Candidate{Name: "dcgm", Open: func(ctx context.Context) (gpu.Provider, error) {
				return dcgm.Open(ctx, dcgm.Config{HostEngine: cfg.HostEngine, Period: cfg.Period, NVML: cfg.NVML})
			}},
			gpu.Candidate{Name: "nvml", Open: func(ctx context.Context) (gpu.Provider, error) { return nvml.Open(ctx, cfg.NVML) }})
	case "off":
	case "rsmi", "oneapi", "nrt":
		return nil, fmt.Errorf("%w=%s: Muster reads NVIDIA devices only; declare the devices with File= and set AutoDetect=off", ErrAutoDetect, mode)
	default:
		return nil, fmt.Errorf("%w=%s: want nvml, nvidia or off", ErrAutoDetect, cfg.AutoDetect)
	}
	if len(cfg.Declared) > 0 && (cfg.Simulate || !strings.HasPrefix(strings.ToLower(cfg.AutoDetect), "nv") && !hardware(cfg.Declared)) {
		out = append(out, gpu.Candidate{Name: "simulated", Open: func(context.Context) (gpu.Provider, error) {
			return simulated.New(simulated.Config{Node: cfg.Node, Start: cfg.Start, Lines: cfg.Declared})
		}})
	}
	return out, nil
}

// hardware tells that a declared device file is there.
func hardware(lines []simulated.Declared) bool {
	for _, l := range lines {
		for _, f := range l.Files {
			if info, err := os.Stat(f); err == nil && info.Mode()&os.ModeCharDevice != 0 {
				return true
			}
		}
	}
	return false
}

// Choose tries the candidates; see gpu.Choose.
func Choose(ctx context.Context, cfg Config) (gpu.Choice, error) {
	candidates, err := Candidates(cfg)
	if err != nil {
		return gpu.Choice{}, err
	}
	return gpu.Choose(ctx, candidates)
}
