//go:build linux && cgo

package nvml

import (
	"fmt"
	"strings"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/musterhpc/muster/nodeagent/gpu/device"
)

// describe reads what identifies one device. A device without a PCI address or
// memory is lost.
func describe(handle nvml.Device, uuid string, index int) device.Device {
	gpu := device.Device{
		UUID:  uuid,
		Index: index,
		Minor: device.Unknown,
		NUMA:  device.Unknown,
		Model: "unknown",
	}
	if pci, ret := handle.GetPciInfo(); ret == nvml.SUCCESS {
		gpu.PCIBusID = busID(pci)
	}
	if memory, ret := handle.GetMemoryInfo(); ret == nvml.SUCCESS {
		gpu.MemoryMiB = int64(memory.Total >> 20)
	}
	gpu.Lost = gpu.PCIBusID == "" || gpu.MemoryMiB == 0
	if name, ret := handle.GetName(); ret == nvml.SUCCESS {
		gpu.Model = name
	}
	if minor, ret := handle.GetMinorNumber(); ret == nvml.SUCCESS {
		gpu.Minor = minor
		gpu.Files = []string{fmt.Sprintf("/dev/nvidia%d", minor)}
	}
	return gpu
}

// busID gives the address with eight digits of domain, as DCGM prints it.
func busID(pci nvml.PciInfo) string {
	return fmt.Sprintf("%08X:%02X:%02X.0", pci.Domain, pci.Bus, pci.Device)
}

// migParts lists the instances of a device and puts them into gpu.MIG; none when
// MIG is off.
func migParts(lib nvml.Interface, handle nvml.Device, gpu *device.Device) []part {
	if !hasSymbol(lib, "nvmlDeviceGetMigMode") {
		return nil
	}
	current, _, ret := handle.GetMigMode()
	if ret != nvml.SUCCESS || current != nvml.DEVICE_MIG_ENABLE {
		return nil
	}
	most, ret := handle.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return nil
	}
	var parts []part
	for i := 0; i < most; i++ {
		mig, ret := handle.GetMigDeviceHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue // this slot is empty
		}
		m := device.MIG{GPUInstance: device.Unknown, ComputeInstance: device.Unknown}
		if m.UUID, ret = mig.GetUUID(); ret != nvml.SUCCESS {
			continue
		}
		if id, ret := mig.GetGpuInstanceId(); ret == nvml.SUCCESS {
			m.GPUInstance = id
		}
		if id, ret := mig.GetComputeInstanceId(); ret == nvml.SUCCESS {
			m.ComputeInstance = id
		}
		if a, ret := mig.GetAttributes(); ret == nvml.SUCCESS {
			m.Slices, m.MemoryMiB = int(a.GpuInstanceSliceCount), int64(a.MemorySizeMB)
			// The name counts memory in whole GB, rounded up.
			m.Profile = fmt.Sprintf("%dg.%dgb", a.GpuInstanceSliceCount, (a.MemorySizeMB+1023)/1024)
		}
		// The name of an instance ends with its profile, which is exact.
		if name, ret := mig.GetName(); ret == nvml.SUCCESS {
			if _, profile, ok := strings.Cut(name, " MIG "); ok {
				m.Profile = profile
			}
		}
		gpu.MIG = append(gpu.MIG, m)
		parts = append(parts, part{uuid: m.UUID, handle: mig, mig: true})
	}
	return parts
}

// maxLinks is the most NVLink lanes a device has.
const maxLinks = 18

// links fills the matrix: NVLink lanes to the peer, or to a switch that both
// have lanes to, else the nearest common point on PCIe.
func links(lib nvml.Interface, handles []nvml.Device, devices []device.Device) {
	index := map[string]int{}
	for i := range devices {
		index[devices[i].PCIBusID] = i
		devices[i].Links = make([]device.Link, len(devices))
	}
	direct := make([][]int, len(devices))
	switched := make([]int, len(devices))
	nvlink := hasSymbol(lib, "nvmlDeviceGetNvLinkState")
	for i, handle := range handles {
		direct[i] = make([]int, len(devices))
		for l := 0; l < maxLinks && nvlink; l++ {
			if state, ret := handle.GetNvLinkState(l); ret != nvml.SUCCESS ||
				state != nvml.FEATURE_ENABLED {
				continue
			}
			pci, ret := handle.GetNvLinkRemotePciInfo(l)
			if ret != nvml.SUCCESS {
				continue
			}
			if j, ok := index[busID(pci)]; ok {
				direct[i][j]++
			} else {
				switched[i]++
			}
		}
	}
	for i := range devices {
		for j := range devices {
			lanes := max(min(direct[i][j], direct[j][i]), min(switched[i], switched[j]))
			switch {
			case i == j:
				devices[i].Links[j] = device.Link{Kind: device.LinkSelf}
			case lanes > 0:
				devices[i].Links[j] = device.Link{
					Kind:    device.LinkNVLink,
					NVLinks: uint8(min(lanes, 255)),
				}
			default:
				devices[i].Links[j] = device.Link{Kind: ancestor(handles[i], handles[j])}
			}
		}
	}
}

// ancestor gives the nearest common point of two devices on PCIe.
func ancestor(a, b nvml.Device) device.LinkKind {
	level, ret := a.GetTopologyCommonAncestor(b)
	if ret != nvml.SUCCESS {
		return device.LinkUnknown
	}
	switch level {
	case nvml.TOPOLOGY_INTERNAL:
		return device.LinkBoard
	case nvml.TOPOLOGY_SINGLE:
		return device.LinkSingle
	case nvml.TOPOLOGY_MULTIPLE:
		return device.LinkMultiple
	case nvml.TOPOLOGY_HOSTBRIDGE:
		return device.LinkHostBridge
	case nvml.TOPOLOGY_NODE:
		return device.LinkNode
	case nvml.TOPOLOGY_SYSTEM:
		return device.LinkSystem
	}
	return device.LinkUnknown
}
