package daemon

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// allocatable lists what of a device can be given to a job: the device, or
// its instances where it is partitioned. Instances open the device's files.
func allocatable(d *device.Device) []device.Device {
	if len(d.MIG) == 0 {
		return []device.Device{*d}
	}
	out := make([]device.Device, len(d.MIG))
	for i := range d.MIG {
		m := &d.MIG[i]
		out[i] = *d
		out[i].UUID, out[i].MIG, out[i].Model, out[i].MemoryMiB = m.UUID, nil, d.Model+" MIG "+m.Profile, m.MemoryMiB
		out[i].Type = m.Profile
	}
	return out
}

// gpuInventory writes devices as the controller registers them. Their types are what
// the site declared: by device file, else by a type that is part of the
// model's name, else by the only type there is. A device that does not answer
// is left out: the node then has fewer than it declares, and says so.
func gpuInventory(devices []device.Device, declared []spec.GRESSpec, provider string) []spec.GPU {
	var out []spec.GPU
	parted := slices.ContainsFunc(devices, func(d device.Device) bool { return len(d.MIG) > 0 })
	for i := range devices {
		d := &devices[i]
		if d.Lost {
			continue
		}
		for _, a := range allocatable(d) {
			g := spec.GPU{Index: uint32(len(out)), UUID: a.UUID, Type: gpuType(&a, declared), Minor: int32(a.Minor), PCI: a.PCIBusID,
				Model: a.Model, Mem: a.MemoryMiB, NUMA: int32(a.NUMA), Provider: provider}
			if len(d.MIG) > 0 {
				g.Parent = d.UUID
			} else {
				// Beside instances, which have no number of their own, everything is
				// counted through.
				if !parted {
					g.Index = uint32(d.Index)
				}
				for k, l := range d.Links {
					parts := 1
					if k < len(devices) {
						parts = len(allocatable(&devices[k]))
					}
					g.Links = append(g.Links, slices.Repeat([]int32{closeness(l)}, parts)...)
				}
			}
			if len(a.Files) > 0 {
				g.Path = a.Files[0]
			}
			for _, cpu := range a.CPUs {
				g.CPUs = g.CPUs.Set(cpu)
			}
			out = append(out, g)
		}
	}
	return out
}

// closeness puts links in an order: the kind first, then NVLink's lanes.
func closeness(l device.Link) int32 { return int32(l.Kind)*64 + int32(min(l.NVLinks, 63)) }

func gpuType(d *device.Device, declared []spec.GRESSpec) string {
	var types []string
	for i := range declared {
		g := &declared[i]
		if g.Name != "gpu" || g.Type == "" {
			continue
		}
		if g.Files != "" && len(d.Files) > 0 {
			if files, err := DeviceFiles(g.Files); err == nil && slices.Contains(files, d.Files[0]) {
				return g.Type
			}
		}
		if !slices.Contains(types, g.Type) {
			types = append(types, g.Type)
		}
	}
	for _, t := range types { // an instance's type is its profile; sites put the model before it
		if d.Type != "" && strings.HasSuffix(t, "_"+d.Type) {
			return t
		}
	}
	if d.Type != "" {
		for _, t := range types {
			if len(d.MIG) == 0 && strings.Contains(strings.ToLower(d.Type), strings.ToLower(t)) && !slices.Contains(types, d.Type) {
				return t // 1g.10gb for an instance of 1g.10gb+me
			}
		}
		return d.Type
	}
	model := strings.ToLower(d.Model)
	for _, t := range types {
		if strings.Contains(model, strings.ToLower(t)) {
			return t
		}
	}
	if len(types) == 1 {
		return types[0]
	}
	return ""
}

// DeviceFiles expands a File= value of gres.conf: /dev/nvidia[0-3],/dev/nvidia7.
func DeviceFiles(expr string) ([]string, error) {
	var out []string
	for len(expr) > 0 {
		end := len(expr)
		depth := 0
		for i, r := range expr {
			switch r {
			case '[':
				depth++
			case ']':
				depth--
			}
			if r == ',' && depth == 0 {
				end = i
				break
			}
		}
		dir, base := path.Split(expr[:end])
		names, err := hostlist.Expand(base)
		if err != nil {
			return nil, err
		}
		for _, n := range names {
			out = append(out, dir+n)
		}
		expr = strings.TrimPrefix(expr[end:], ",")
	}
	return out, nil
}

// checkDeclared says what is missing of the declared GPUs, or "".
func checkDeclared(gpus []spec.GPU, declared []spec.GRESSpec) string {
	var want int64
	for i := range declared {
		if declared[i].Name == "gpu" {
			want += declared[i].N
		}
	}
	if int64(len(gpus)) < want {
		return fmt.Sprintf("%d GPUs are declared and %d found", want, len(gpus))
	}
	return ""
}
