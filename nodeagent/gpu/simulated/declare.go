package simulated

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/nodeagent/gpu/device"
)

// ErrDeclaration is wrapped by every error about a declared device.
var ErrDeclaration = errors.New("bad simulated GPU declaration")

// Declared is one line of gres.conf: devices that the node pretends to have.
type Declared struct {
	// Type is the gres type and picks the figures of the model when it is
	// known. A type that ends in a MIG profile, named as detection names them
	// ("a100_3g.20gb"), declares instances: as many devices as they need are
	// cut into them.
	Type  string
	Count int      // number of devices or instances; 0 means len(Files)
	Files []string // device files, one a device; a trailing number is the minor
	Cores []int    // CPUs near these devices
	Links []int    // Links of gres.conf, for a line of one device; nil picks by model
	MIG   []string // profiles that each device is cut into ("3g.40gb"); nil for none
}

// figures are what the load model needs to know about a kind of device.
type figures struct {
	model         string
	memoryMiB     int64
	idleMW, maxMW int64 // power
	smMHz, memMHz int64 // highest clocks
	nvlinks       int   // lanes to each peer; 0 means PCIe
}

// figuresOf gives the figures of a gres type. The name always begins with
// "Simulated", so that no chart can pass for a measurement.
func figuresOf(gresType string) figures {
	model, _, _ := strings.Cut(strings.ToLower(gresType), "_") // without a MIG profile
	switch model {
	case "b200":
		return figures{"Simulated B200 180GB", 183359, 140_000, 1_000_000, 1965, 3996, 18}
	case "h200":
		return figures{"Simulated H200 141GB", 143771, 75_000, 700_000, 1980, 3201, 18}
	case "h100":
		return figures{"Simulated H100 80GB", 81559, 70_000, 700_000, 1980, 2619, 18}
	case "a100":
		return figures{"Simulated A100 80GB", 81920, 52_000, 400_000, 1410, 1593, 12}
	case "v100":
		return figures{"Simulated V100 32GB", 32768, 40_000, 300_000, 1530, 877, 6}
	case "l40s":
		return figures{"Simulated L40S 48GB", 46068, 35_000, 350_000, 2520, 9001, 0}
	case "t4":
		return figures{"Simulated T4 16GB", 15360, 10_000, 70_000, 1590, 5001, 0}
	}
	return figures{"Simulated GPU 16GB", 16384, 20_000, 250_000, 1500, 5000, 0}
}

// Devices lists the devices that a node's lines declare, in order, with the
// UUIDs, links and files that a provider gives them.
func Devices(node string, lines []Declared) ([]device.Device, error) {
	devices, _, err := declareDevices(node, lines)
	return devices, err
}

// declareDevices turns declarations into devices, in order, and checks them.
func declareDevices(node string, lines []Declared) ([]device.Device, []figures, error) {
	var devices []device.Device
	var figs []figures
	lines, err := expandInstances(lines)
	if err != nil {
		return nil, nil, err
	}
	for n, line := range lines {
		count := line.Count
		if count == 0 {
			count = len(line.Files)
		}
		if count <= 0 || (len(line.Files) > 0 && len(line.Files) != count) {
			return nil, nil, fmt.Errorf(
				"%w: line %d: count %d with %d files",
				ErrDeclaration,
				n+1,
				line.Count,
				len(line.Files),
			)
		}
		if line.Links != nil && count != 1 {
			return nil, nil, fmt.Errorf(
				"%w: line %d: Links describe one device, this line has %d",
				ErrDeclaration,
				n+1,
				count,
			)
		}
		f := figuresOf(line.Type)
		for i := 0; i < count; i++ {
			gpu := device.Device{
				Index: len(devices), Minor: len(devices), Model: f.model, Type: line.Type,
				MemoryMiB: f.memoryMiB, NUMA: device.Unknown, CPUs: append([]int(nil), line.Cores...),
				Driver: "simulated",
			}
			gpu.UUID = deriveUUID("GPU-", node, gpu.Index)
			gpu.PCIBusID = fmt.Sprintf("00000000:%02X:00.0", 0x10+gpu.Index%0xe0)
			if len(line.Files) > 0 {
				gpu.Files = []string{line.Files[i]}
				gpu.Minor = trailingNumber(line.Files[i])
			}
			mig, err := cutInstances(node, gpu, line.MIG)
			if err != nil {
				return nil, nil, fmt.Errorf("%w: line %d: %w", ErrDeclaration, n+1, err)
			}
			gpu.MIG = mig
			devices = append(devices, gpu)
			figs = append(figs, f)
		}
	}
	return devices, figs, fillLinks(devices, figs, lines)
}

// fillLinks fills the link matrix: what the site declared, else NVLink between
// devices that have it, else PCIe.
func fillLinks(devices []device.Device, figs []figures, lines []Declared) error {
	for i := range devices {
		devices[i].Links = make([]device.Link, len(devices))
		for j := range devices {
			switch lanes := min(figs[i].nvlinks, figs[j].nvlinks); {
			case i == j:
				devices[i].Links[j] = device.Link{Kind: device.LinkSelf}
			case lanes > 0 && figs[i].model == figs[j].model:
				devices[i].Links[j] = device.Link{Kind: device.LinkNVLink, NVLinks: uint8(lanes)}
			default:
				devices[i].Links[j] = device.Link{Kind: device.LinkHostBridge}
			}
		}
	}
	at := 0
	for n, line := range lines {
		if line.Links != nil {
			if len(line.Links) != len(devices) || line.Links[at] != -1 {
				return fmt.Errorf(
					"%w: line %d: Links needs %d numbers with -1 at position %d",
					ErrDeclaration,
					n+1,
					len(devices),
					at+1,
				)
			}
			for j, lanes := range line.Links {
				switch {
				case j == at:
				case lanes > 0 && lanes < 256:
					devices[at].Links[j] = device.Link{
						Kind:    device.LinkNVLink,
						NVLinks: uint8(lanes),
					}
				case lanes == 0:
					devices[at].Links[j] = device.Link{Kind: device.LinkHostBridge}
				default:
					return fmt.Errorf(
						"%w: line %d: %d is no number of links",
						ErrDeclaration,
						n+1,
						lanes,
					)
				}
			}
		}
		at += max(line.Count, len(line.Files))
	}
	for i := range devices {
		for j := range devices {
			if devices[i].Links[j] != devices[j].Links[i] {
				return fmt.Errorf(
					"%w: Links disagree: device %d to %d is %v, back it is %v",
					ErrDeclaration,
					i,
					j,
					devices[i].Links[j],
					devices[j].Links[i],
				)
			}
		}
	}
	return nil
}

// expandInstances turns lines that count MIG instances into lines of devices: one
// line for the devices that are full, one for the last if it is not.
func expandInstances(lines []Declared) ([]Declared, error) {
	var out []Declared
	for n, line := range lines {
		profile := line.Type[strings.LastIndex(line.Type, "_")+1:]
		g, gb, ok := profileOf(profile)
		if !ok || line.MIG != nil {
			out = append(out, line)
			continue
		}
		if len(line.Files) > 0 || line.Links != nil {
			return nil, fmt.Errorf(
				"%w: line %d: MIG instances have neither File nor Links",
				ErrDeclaration,
				n+1,
			)
		}
		each := min(7/g, int(figuresOf(line.Type).memoryMiB*21/20/(gb*1024)))
		if each < 1 {
			return nil, fmt.Errorf(
				"%w: line %d: no instance of %s fits on a device",
				ErrDeclaration,
				n+1,
				line.Type,
			)
		}
		if full := line.Count / each; full > 0 {
			some := line
			some.Count, some.MIG = full, slices.Repeat([]string{profile}, each)
			out = append(out, some)
		}
		if rest := line.Count % each; rest > 0 {
			line.Count, line.MIG = 1, slices.Repeat([]string{profile}, rest)
			out = append(out, line)
		}
	}
	return out, nil
}

// profileOf reads the name of a MIG profile, "3g.20gb": its slices and gigabytes.
func profileOf(p string) (g int, gb int64, ok bool) {
	n, err := fmt.Sscanf(p, "%dg.%dgb", &g, &gb)
	return g, gb, err == nil && n == 2 && g >= 1 && g <= 7 && gb >= 1 &&
		p == fmt.Sprintf("%dg.%dgb", g, gb)
}

// cutInstances cuts a device into MIG instances by profile name "<g>g.<mem>gb".
func cutInstances(node string, gpu device.Device, profiles []string) ([]device.MIG, error) {
	var migs []device.MIG
	slicesUsed, memory := 0, int64(0)
	for i, p := range profiles {
		g, gb, ok := profileOf(p)
		if !ok {
			return nil, fmt.Errorf("invalid MIG profile %q: expected for example 1g.10gb", p)
		}
		slicesUsed += g
		memory += gb * 1024
		migs = append(migs, device.MIG{
			UUID: deriveUUID(
				"MIG-",
				node,
				gpu.Index,
				i,
			), GPUInstance: i + 1, Profile: p, MemoryMiB: gb * 1024, Slices: g,
		})
	}
	// Profiles are named in round gigabytes; the device has a little less.
	if slicesUsed > 7 || memory > gpu.MemoryMiB*21/20 {
		return nil, fmt.Errorf(
			"%s do not fit: %d of 7 slices, %d of %d MiB",
			strings.Join(profiles, " "),
			slicesUsed,
			memory,
			gpu.MemoryMiB,
		)
	}
	return migs, nil
}

// deriveUUID derives a stable UUID from the node's name and the numbers given.
func deriveUUID(prefix, node string, numbers ...int) string {
	h := sha256.Sum256(
		[]byte(fmt.Sprintf("muster simulated gpu\x00%s\x00%s\x00%v", prefix, node, numbers)),
	)
	h[6] = h[6]&0x0f | 0x80 // version 8: made by the vendor's own rule
	h[8] = h[8]&0x3f | 0x80
	return fmt.Sprintf("%s%x-%x-%x-%x-%x", prefix, h[0:4], h[4:6], h[6:8], h[8:10], h[10:16])
}

// trailingNumber gives the number a path ends in, or Unknown.
func trailingNumber(path string) int {
	i := len(path)
	for i > 0 && path[i-1] >= '0' && path[i-1] <= '9' {
		i--
	}
	if n, err := strconv.Atoi(path[i:]); err == nil {
		return n
	}
	return device.Unknown
}

// IsProfile tells a gres type that names MIG instances: 1g.10gb.
func IsProfile(gresType string) bool {
	_, _, ok := profileOf(gresType)
	return ok
}

// Partitioned declares the devices that some MIG instances are parts of, in
// their order: H100s of 7 slices and 80 GB, as many as they need.
func Partitioned(profiles []string) []Declared {
	const wide, large = 7, 80
	var out []Declared
	var used int
	var memory int64
	for _, p := range profiles {
		g, gb, ok := profileOf(p)
		if !ok {
			continue
		}
		if len(out) == 0 || used+g > wide || memory+gb > large {
			out, used, memory = append(out, Declared{Type: "h100", Count: 1}), 0, 0
		}
		used, memory = used+g, memory+gb
		last := &out[len(out)-1]
		last.MIG = append(last.MIG, p)
	}
	return out
}
