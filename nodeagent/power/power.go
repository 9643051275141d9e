// Package power reads the power meters of a node for package energy.
//
// A Source is one kind of meter. Those of the kernel (RAPL, hwmon, Cray's
// pm_counters) are files below /sys and cost microseconds; they come through
// fs.FS, so that a tree of files answers as a machine does. Those of the
// management controller (IPMI by ipmitool, Redfish over HTTPS) take up to
// seconds and are read less often.
package power

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/nodeagent/energy"
	"github.com/musterhpc/muster/spec"
)

// ErrNoMeter is wrapped where this node has no such meter.
var ErrNoMeter = errors.New("this node has no such meter")

// Source is a meter of the node.
type Source interface {
	// Name is the one of muster.yaml.
	Name() string
	// IsSlow tells that it may take seconds.
	IsSlow() bool
	// Read gives what it says now.
	Read(ctx context.Context, now spec.Instant) (*energy.Reading, error)
}

// Auto finds a meter of the kernel, the one that covers most first: of Cray's
// counters, RAPL and sensors. It gives nil where there is none.
func Auto(sys fs.FS, now spec.Instant) Source {
	for _, s := range []Source{&PMCounters{Sys: sys}, &RAPL{Sys: sys}, &Hwmon{Sys: sys}} {
		if _, err := s.Read(context.Background(), now); err == nil {
			return s
		}
	}
	return nil
}

// RAPL reads the processors' own counters below /sys/class/powercap: their packages
// and, where it has a counter of its own, memory. Parts of a package (cores, graphics)
// are in it already, and psys counts the package again.
type RAPL struct{ Sys fs.FS }

// Name implements Source.
func (*RAPL) Name() string { return "rapl" }

// IsSlow implements Source.
func (*RAPL) IsSlow() bool { return false }

// Read implements Source.
func (r *RAPL) Read(_ context.Context, now spec.Instant) (*energy.Reading, error) {
	const dir = "class/powercap"
	entries, err := fs.ReadDir(r.Sys, dir)
	if err != nil {
		return nil, fmt.Errorf("%w: rapl: %w", ErrNoMeter, err)
	}
	reading := &energy.Reading{At: now}
	for _, entry := range entries {
		zone := path.Join(dir, entry.Name())
		// intel-rapl-mmio shows the same counters by another way.
		if !strings.HasPrefix(entry.Name(), "intel-rapl:") {
			continue
		}
		name, err := readText(r.Sys, path.Join(zone, "name"))
		if err != nil || !strings.HasPrefix(name, "package-") && name != "dram" {
			continue
		}
		micro, err := readNumber(r.Sys, path.Join(zone, "energy_uj"))
		if err != nil {
			return nil, fmt.Errorf("rapl: %w (the agent must be root)", err)
		}
		most, err := readNumber(r.Sys, path.Join(zone, "max_energy_range_uj"))
		if err != nil {
			most = 0
		}
		reading.Zones = append(
			reading.Zones,
			energy.Zone{Name: entry.Name(), Micro: micro, Max: most},
		)
	}
	if len(reading.Zones) == 0 {
		return nil, fmt.Errorf("%w: rapl: no package below /sys/%s", ErrNoMeter, dir)
	}
	return reading, nil
}

// Hwmon reads sensors of the kernel: an ACPI power meter, which measures the whole
// machine, else the counters of AMD's sockets.
type Hwmon struct{ Sys fs.FS }

// Name implements Source.
func (*Hwmon) Name() string { return "hwmon" }

// IsSlow implements Source.
func (*Hwmon) IsSlow() bool { return false }

// Read implements Source.
func (h *Hwmon) Read(_ context.Context, now spec.Instant) (*energy.Reading, error) {
	const dir = "class/hwmon"
	entries, err := fs.ReadDir(h.Sys, dir)
	if err != nil {
		return nil, fmt.Errorf("%w: hwmon: %w", ErrNoMeter, err)
	}
	sockets := &energy.Reading{At: now}
	machine := &energy.Reading{At: now, WithGPUs: true}
	found := false
	for _, entry := range entries {
		chip := path.Join(dir, entry.Name())
		name, err := readText(h.Sys, path.Join(chip, "name"))
		if err != nil {
			continue
		}
		switch name {
		case "power_meter":
			for _, file := range []string{"power1_input", "power1_average"} {
				micro, err := readNumber(h.Sys, path.Join(chip, file))
				if err == nil {
					machine.MilliWatts += micro / 1000
					found = true
					break
				}
			}
		case "amd_energy":
			sockets.Zones = append(sockets.Zones, h.socketZones(chip, entry.Name())...)
		}
	}
	switch {
	case found:
		return machine, nil
	case len(sockets.Zones) > 0:
		return sockets, nil
	}
	return nil, fmt.Errorf(
		"%w: hwmon: neither power_meter nor amd_energy below /sys/%s",
		ErrNoMeter,
		dir,
	)
}

// socketZones are the counters of a chip's sockets; those of its cores are in them.
func (h *Hwmon) socketZones(chip, name string) (zones []energy.Zone) {
	labels, err := fs.Glob(h.Sys, path.Join(chip, "energy*_label"))
	if err != nil {
		return nil
	}
	for _, file := range labels {
		label, err := readText(h.Sys, file)
		if err != nil || !strings.HasPrefix(label, "Esocket") {
			continue
		}
		micro, err := readNumber(h.Sys, strings.TrimSuffix(file, "_label")+"_input")
		if err == nil {
			zones = append(zones, energy.Zone{Name: name + "/" + label, Micro: micro})
		}
	}
	return zones
}

// PMCounters reads what a Cray blade counts of its node, accelerators with it.
type PMCounters struct{ Sys fs.FS }

// Name implements Source.
func (*PMCounters) Name() string { return "pm_counters" }

// IsSlow implements Source.
func (*PMCounters) IsSlow() bool { return false }

// Read implements Source.
func (p *PMCounters) Read(_ context.Context, now spec.Instant) (*energy.Reading, error) {
	text, err := readText(p.Sys, "cray/pm_counters/energy")
	if err != nil {
		return nil, fmt.Errorf("%w: pm_counters: %w", ErrNoMeter, err)
	}
	// "26614 J 1418238411 us"
	fields := strings.Fields(text)
	if len(fields) < 2 || fields[1] != "J" {
		return nil, fmt.Errorf("pm_counters: %q is not an energy in J", text)
	}
	joules, err := strconv.ParseInt(fields[0], 10, 64)
	if err != nil || joules < 0 || joules > maxJoules {
		return nil, fmt.Errorf("pm_counters: %q is not an energy in J", text)
	}
	return &energy.Reading{
		At:       now,
		Zones:    []energy.Zone{{Name: "node", Micro: joules * 1_000_000}},
		WithGPUs: true,
	}, nil
}

// maxJoules is what fits as microjoules.
const maxJoules = 1 << 42

// readText reads a small file without its last newline.
func readText(fsys fs.FS, name string) (string, error) {
	data, err := fs.ReadFile(fsys, name)
	return strings.TrimSpace(string(data)), err
}

func readNumber(fsys fs.FS, name string) (int64, error) {
	text, err := readText(fsys, name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("/sys/%s: %q is not a number", name, text)
	}
	return n, nil
}

// milliwatts reads "220" or "220.5" watts.
func milliwatts(text string) (int64, error) {
	watts, err := strconv.ParseFloat(text, 64)
	if err != nil || watts < 0 || watts > 1_000_000 {
		return 0, fmt.Errorf("%q is not a power in watts", text)
	}
	return int64(watts * 1000), nil
}

// fieldBehind gives the word behind a label of a line "label: word ...".
func fieldBehind(text, label string) (string, bool) {
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(line, ":")
		words := strings.Fields(rest)
		if ok && strings.TrimSpace(name) == label && len(words) > 0 {
			return words[0], true
		}
	}
	return "", false
}
