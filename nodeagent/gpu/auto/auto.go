// Package auto lists the GPU providers a node tries, in order, from what its
// gres.conf says.
package auto

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/musterhpc/muster/nodeagent/gpu"
	"github.com/musterhpc/muster/nodeagent/gpu/dcgm"
	"github.com/musterhpc/muster/nodeagent/gpu/declared"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
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
	// Declared devices. Those whose device files are there are real: where no
	// library reads them they are handed out without figures. Without such files
	// they are simulated. Neither happens where AutoDetect names a library or
	// where NVIDIA's driver is loaded: a driver that is there and does not answer
	// is broken, and its devices must not be given to jobs.
	Declared []simulated.Declared
	// Simulate asks for the simulation whatever else there is.
	Simulate bool
	// HostEngine and Period configure DCGM; see dcgm.Config.
	HostEngine string
	Period     spec.Span
	// NVML says where the driver library is.
	NVML nvml.Config
	// DriverLoaded reports whether NVIDIA's kernel driver is loaded; nil looks.
	DriverLoaded func() bool
}

// Candidates gives the providers in the order they are tried: DCGM, NVML, then
// declared device files or the simulation when devices are declared. The error wraps ErrAutoDetect.
func Candidates(config Config) ([]gpu.Candidate, error) {
	var candidates []gpu.Candidate
	switch mode := strings.ToLower(config.AutoDetect); mode {
	case "", "nvml", "nvidia":
		candidates = append(
			candidates,
			gpu.Candidate{Name: "dcgm", Open: func(ctx context.Context) (gpu.Provider, error) {
				return dcgm.Open(
					ctx,
					dcgm.Config{
						HostEngine: config.HostEngine, Period: config.Period, NVML: config.NVML,
					},
				)
			}},
			gpu.Candidate{
				Name: "nvml",
				Open: func(ctx context.Context) (gpu.Provider, error) {
					return nvml.Open(ctx, config.NVML)
				},
			},
		)
	case "off":
	case "rsmi", "oneapi", "nrt":
		return nil, fmt.Errorf(
			"%w=%s: Muster reads NVIDIA devices only; declare the devices with File= and set AutoDetect=off",
			ErrAutoDetect,
			mode,
		)
	default:
		return nil, fmt.Errorf("%w=%s: want nvml, nvidia or off", ErrAutoDetect, config.AutoDetect)
	}
	if len(config.Declared) == 0 {
		return candidates, nil
	}
	simulate := gpu.Candidate{Name: "simulated", Open: func(context.Context) (gpu.Provider, error) {
		return simulated.New(
			simulated.Config{Node: config.Node, Start: config.Start, Lines: config.Declared},
		)
	}}
	libraryNamed := strings.HasPrefix(strings.ToLower(config.AutoDetect), "nv")
	switch {
	case config.Simulate:
		candidates = append(candidates, simulate)
	case libraryNamed:
	case !hasDeviceFile(config.Declared):
		candidates = append(candidates, simulate)
	case strings.EqualFold(config.AutoDetect, "off") || !config.driverLoaded():
		candidates = append(
			candidates,
			gpu.Candidate{Name: "declared", Open: func(context.Context) (gpu.Provider, error) {
				devices, err := simulated.Devices(config.Node, config.Declared)
				if err != nil {
					return nil, err
				}
				withFile := slices.DeleteFunc(
					devices,
					func(d device.Device) bool { return len(d.Files) == 0 },
				)
				return declared.New(withFile)
			}},
		)
	}
	return candidates, nil
}

// driverLoaded reports whether NVIDIA's kernel driver is loaded.
func (cfg *Config) driverLoaded() bool {
	if cfg.DriverLoaded != nil {
		return cfg.DriverLoaded()
	}
	_, err := os.Stat("/proc/driver/nvidia/version")
	return err == nil
}

// hasDeviceFile reports whether a declared device file exists.
func hasDeviceFile(lines []simulated.Declared) bool {
	for _, line := range lines {
		if slices.ContainsFunc(line.Files, declared.Exists) {
			return true
		}
	}
	return false
}

// Choose tries the candidates; see gpu.Choose.
func Choose(ctx context.Context, config Config) (gpu.Choice, error) {
	candidates, err := Candidates(config)
	if err != nil {
		return gpu.Choice{}, err
	}
	return gpu.Choose(ctx, candidates)
}
