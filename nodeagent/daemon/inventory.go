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

// allocatableDevices lists what of a device can be given to a job: the device, or
// its instances where it is partitioned. Instances open the device's files.
func allocatableDevices(gpu *device.Device) []device.Device {
	if len(gpu.MIG) == 0 {
		return []device.Device{*gpu}
	}
	devices := make([]device.Device, len(gpu.MIG))
	for i := range gpu.MIG {
		mig := &gpu.MIG[i]
		devices[i] = *gpu
		devices[i].UUID = mig.UUID
		devices[i].MIG = nil
		devices[i].Model = gpu.Model + " MIG " + mig.Profile
		devices[i].MemoryMiB = mig.MemoryMiB
		devices[i].Type = mig.Profile
	}
	return devices
}

// gpuInventory writes devices as the controller registers them. Their types are what
// the site declared: by device file, else by a type that is part of the
// model's name, else by the only type there is. A device that does not answer
// is left out: the node then has fewer than it declares, and says so.
func gpuInventory(devices []device.Device, declared []spec.GRESSpec, provider string) []spec.GPU {
	var gpus []spec.GPU
	parted := slices.ContainsFunc(devices, func(d device.Device) bool { return len(d.MIG) > 0 })
	for i := range devices {
		d := &devices[i]
		if d.Lost {
			continue
		}
		for _, a := range allocatableDevices(d) {
			gpu := spec.GPU{
				Index:    uint32(len(gpus)),
				UUID:     a.UUID,
				Type:     gpuType(&a, declared),
				Minor:    int32(a.Minor),
				PCI:      a.PCIBusID,
				Model:    a.Model,
				Mem:      a.MemoryMiB,
				NUMA:     int32(a.NUMA),
				Provider: provider,
			}
			if len(d.MIG) > 0 {
				gpu.Parent = d.UUID
			} else {
				// Beside instances, which have no number of their own, everything is
				// counted through.
				if !parted {
					gpu.Index = uint32(d.Index)
				}
				for k, link := range d.Links {
					if k < len(devices) && !devices[k].Lost { // one for each of those that are registered
						gpu.Links = append(
							gpu.Links,
							slices.Repeat(
								[]int32{link.Closeness()}, len(allocatableDevices(&devices[k])),
							)...,
						)
					}
				}
			}
			if len(a.Files) > 0 {
				gpu.Path = a.Files[0]
			}
			for _, cpu := range a.CPUs {
				gpu.CPUs = gpu.CPUs.Set(cpu)
			}
			gpus = append(gpus, gpu)
		}
	}
	return gpus
}

// Changed takes an inventory that was read while the agent runs. Where it
// differs, the controller is told what became of partitioned devices, and the
// node registers again: with fewer devices than it declares it takes no new
// jobs and says why, with others it is resized.
func (c *Core) Changed(list []device.Device) bool {
	list = c.Missed(list)
	var what []string
	for i := range list {
		gpu := &list[i]
		at := slices.IndexFunc(c.known, func(k device.Device) bool { return k.UUID == gpu.UUID })
		if at < 0 {
			what = append(what, "GPU "+gpu.UUID+" is new")
			continue
		}
		old := &c.known[at]
		switch was, is := partitionKey(old), partitionKey(gpu); {
		case gpu.Lost && !old.Lost:
			what = append(what, "GPU "+gpu.UUID+" is lost")
		case gpu.Lost:
		case old.Lost:
			what = append(what, "GPU "+gpu.UUID+" answers again")
		case was != is:
			what = append(what, "GPU "+gpu.UUID+" is partitioned anew")
			c.reportFault(
				spec.GPUFault{UUID: gpu.UUID, Kind: spec.GPUMIGChanged, At: c.clock(),
					Text: "now " +
						describeProfiles(gpu) + ", was " + describeProfiles(old)},
			)
		}
	}
	if c.unlisted {
		what, c.unlisted = append(what, "they can be listed again"), false
	}
	if len(what) == 0 {
		return false
	}
	c.SetDevices(list)
	c.fx.Register = strings.Join(what, "; ")
	return true
}

// Missed adds to an inventory the devices that were there before and are not in
// it: a driver may leave out what has fallen off the bus, and metrics must go on
// saying that it is lost.
func (c *Core) Missed(list []device.Device) []device.Device {
	devices := slices.Clone(list)
	for i := range c.known {
		if gpu := c.known[i]; !slices.ContainsFunc(
			list,
			func(l device.Device) bool { return l.UUID == gpu.UUID },
		) {
			gpu.Lost = true
			devices = append(devices, gpu)
		}
	}
	slices.SortStableFunc(devices, func(a, b device.Device) int { return a.Index - b.Index })
	return devices
}

// partitionKey tells the instances of a device apart from others.
func partitionKey(gpu *device.Device) string {
	var text strings.Builder
	for _, mig := range gpu.MIG {
		fmt.Fprintf(&text, "%s %s\n", mig.UUID, mig.Profile)
	}
	return text.String()
}

// describeProfiles says how a device is partitioned.
func describeProfiles(gpu *device.Device) string {
	if len(gpu.MIG) == 0 {
		return "whole"
	}
	names := make([]string, len(gpu.MIG))
	for i := range gpu.MIG {
		names[i] = gpu.MIG[i].Profile
	}
	return strings.Join(names, " ")
}

func gpuType(gpu *device.Device, declared []spec.GRESSpec) string {
	var types []string
	for i := range declared {
		gres := &declared[i]
		if gres.Name != "gpu" || gres.Type == "" {
			continue
		}
		if gres.Files != "" && len(gpu.Files) > 0 {
			if files, err := DeviceFiles(gres.Files); err == nil &&
				slices.Contains(files, gpu.Files[0]) {
				return gres.Type
			}
		}
		if !slices.Contains(types, gres.Type) {
			types = append(types, gres.Type)
		}
	}
	for _, t := range types { // an instance's type is its profile; sites put the model before it
		if gpu.Type != "" && strings.HasSuffix(t, "_"+gpu.Type) {
			return t
		}
	}
	if gpu.Type != "" {
		for _, t := range types {
			if len(gpu.MIG) == 0 &&
				strings.Contains(strings.ToLower(gpu.Type), strings.ToLower(t)) &&
				!slices.Contains(types, gpu.Type) {
				return t // 1g.10gb for an instance of 1g.10gb+me
			}
		}
		return gpu.Type
	}
	model := strings.ToLower(gpu.Model)
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

// checkDeclared says what is missing of the declared GPUs, or what is there
// beyond them, or "".
func checkDeclared(gpus []spec.GPU, declared []spec.GRESSpec) string {
	var out []string
	want, any := int64(0), false
	for i := range declared {
		gres := &declared[i]
		if gres.Name != "gpu" {
			continue
		}
		any = true
		want += gres.N
		have := int64(0)
		for k := range gpus {
			if gpus[k].Type == gres.Type {
				have++
			}
		}
		if gres.Type != "" && have < gres.N {
			out = append(
				out,
				fmt.Sprintf(
					"%d GPUs of type %s are declared and %d found",
					gres.N,
					gres.Type,
					have,
				),
			)
		}
	}
	switch have := int64(len(gpus)); {
	case have < want && len(out) == 0:
		out = append(out, fmt.Sprintf("%d GPUs are declared and %d found", want, have))
	case any && have > want:
		out = append(out, fmt.Sprintf("%d GPUs are declared and %d found", want, have))
	}
	return strings.Join(out, "; ")
}
