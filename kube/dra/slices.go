package dra

import (
	"cmp"
	"slices"
	"strconv"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/dynamic-resource-allocation/deviceattribute"
	"k8s.io/dynamic-resource-allocation/resourceslice"
	"k8s.io/utils/ptr"

	"github.com/musterhpc/muster/kube/claims"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/podserver/podapi"
)

// Limits of Kubernetes for one ResourceSlice. Devices with taints and counters have
// the narrower one.
const (
	devicesOfSlice  = resourceapi.ResourceSliceMaxDevicesWithAdvancedFeatures
	countersOfSlice = resourceapi.ResourceSliceMaxCounterSets
	maxAttribute    = resourceapi.DeviceAttributeMaxValueLength
)

// migSlices are the compute slices of a partitioned device.
const migSlices = 7

// resources are the devices of a node as Kubernetes publishes them: one pool with the
// name of the Node. A device that does not answer is left out. A partitioned device is
// published as its instances, which together consume no more than the device has.
func resources(node *podapi.Node, pool string) resourceslice.DriverResources {
	var devices []resourceapi.Device
	var counters []resourceapi.CounterSet
	for i := range node.Devices {
		d := &node.Devices[i]
		if d.Lost {
			continue
		}
		if len(d.MIG) == 0 {
			devices = append(devices, wholeDevice(d, node.Devices))
			continue
		}
		counters = append(counters, counterSet(d))
		for m := range d.MIG {
			devices = append(devices, instance(d, &d.MIG[m]))
		}
	}
	out := resourceslice.Pool{}
	for part := range slices.Chunk(counters, countersOfSlice) {
		out.Slices = append(out.Slices, resourceslice.Slice{SharedCounters: part})
	}
	for part := range slices.Chunk(devices, devicesOfSlice) {
		out.Slices = append(out.Slices, resourceslice.Slice{Devices: part})
	}
	if len(out.Slices) == 0 {
		// An empty pool tells that the driver runs and has no device.
		out.Slices = []resourceslice.Slice{{}}
	}
	return resourceslice.DriverResources{Pools: map[string]resourceslice.Pool{pool: out}}
}

func text(s string) resourceapi.DeviceAttribute {
	return resourceapi.DeviceAttribute{StringValue: ptr.To(s)}
}

func number(n int) resourceapi.DeviceAttribute {
	return resourceapi.DeviceAttribute{IntValue: ptr.To(int64(n))}
}

func mebibytes(n int64) resource.Quantity { return *resource.NewQuantity(n<<20, resource.BinarySI) }

type attributes map[resourceapi.QualifiedName]resourceapi.DeviceAttribute

// put sets a text that is known and fits.
func (a attributes) put(name resourceapi.QualifiedName, value string) {
	if value != "" && len(value) <= maxAttribute {
		a[name] = text(value)
	}
}

// common are the attributes that an instance has from its device.
func common(d *device.Device) attributes {
	a := attributes{"index": number(d.Index)}
	a.put("productName", d.Model)
	a.put("gresType", d.Type)
	a.put("driverVersion", d.Driver)
	a.put(deviceattribute.StandardDeviceAttributePCIBusID, busID(d.PCIBusID))
	if d.NUMA != device.Unknown {
		a["numa"] = number(d.NUMA)
	}
	return a
}

// busID is a PCI address as Kubernetes' standard attribute has it: four digits of
// domain. One with a larger domain has no such form.
func busID(id string) string {
	if len(id) == len("00000000:00:00.0") && id[:4] == "0000" {
		return id[4:]
	}
	return ""
}

// neverByItself keeps Kubernetes' scheduler from giving devices out.
var neverByItself = []resourceapi.DeviceTaint{
	{Key: claims.LedgerTaint, Effect: resourceapi.DeviceTaintEffectNoSchedule},
}

func wholeDevice(d *device.Device, all []device.Device) resourceapi.Device {
	a := common(d)
	a.put("type", "gpu")
	a.put("uuid", d.UUID)
	a.put("links", d.GresLinks())
	a["nvlinkDomain"] = number(domain(d, all))
	return resourceapi.Device{
		Name:       claims.DeviceName(d.UUID),
		Attributes: a,
		Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
			"memory": {Value: mebibytes(d.MemoryMiB)},
		},
		Taints: neverByItself,
	}
}

// domain is the lowest index of the devices that NVLink joins with one, over any
// number of hops, as the metric muster_gpu_link_info has it.
func domain(d *device.Device, all []device.Device) int {
	at := slices.IndexFunc(all, func(o device.Device) bool { return o.UUID == d.UUID })
	lowest := d.Index
	seen := map[int]bool{at: true}
	for reach := []int{at}; len(reach) > 0; reach = reach[1:] {
		lowest = min(lowest, all[reach[0]].Index)
		for k, link := range all[reach[0]].Links {
			if link.Kind == device.LinkNVLink && k < len(all) && !seen[k] {
				seen[k] = true
				reach = append(reach, k)
			}
		}
	}
	return lowest
}

func instance(d *device.Device, m *device.MIG) resourceapi.Device {
	a := common(d)
	a.put("type", "mig")
	a.put("uuid", m.UUID)
	a.put("parentUUID", d.UUID)
	a.put("profile", m.Profile)
	a.put("gresType", m.Profile) // so the ledger counts them
	a["gpuInstance"] = number(m.GPUInstance)
	a["computeInstance"] = number(m.ComputeInstance)
	return resourceapi.Device{
		Name:       claims.DeviceName(m.UUID),
		Attributes: a,
		Capacity: map[resourceapi.QualifiedName]resourceapi.DeviceCapacity{
			"memory":        {Value: mebibytes(m.MemoryMiB)},
			"computeSlices": {Value: *resource.NewQuantity(int64(m.Slices), resource.DecimalSI)},
		},
		ConsumesCounters: []resourceapi.DeviceCounterConsumption{{
			CounterSet: claims.DeviceName(d.UUID),
			Counters:   counts(m.MemoryMiB, m.Slices),
		}},
		Taints: neverByItself,
	}
}

func counts(memory int64, compute int) map[string]resourceapi.Counter {
	return map[string]resourceapi.Counter{
		"memory":         {Value: mebibytes(memory)},
		"compute-slices": {Value: *resource.NewQuantity(int64(compute), resource.DecimalSI)},
	}
}

// counterSet is what a partitioned device has for its instances. Compute instances of
// one GPU instance name the memory of the whole, so that a driver's figures may sum up
// to more than the device has; the instances that are there fit by definition.
func counterSet(d *device.Device) resourceapi.CounterSet {
	var memory int64
	compute := 0
	for i := range d.MIG {
		memory += d.MIG[i].MemoryMiB
		compute += d.MIG[i].Slices
	}
	return resourceapi.CounterSet{
		Name:     claims.DeviceName(d.UUID),
		Counters: counts(max(memory, d.MemoryMiB), max(compute, migSlices)),
	}
}

// known finds a device of the node by its name in the pool.
func known(node *podapi.Node, name string) (found device.Device, mig bool, ok bool) {
	for i := range node.Devices {
		d := node.Devices[i]
		if len(d.MIG) == 0 && claims.DeviceName(d.UUID) == name {
			return d, false, true
		}
		for m := range d.MIG {
			if claims.DeviceName(d.MIG[m].UUID) == name {
				d.UUID = d.MIG[m].UUID
				return d, true, true
			}
		}
	}
	return device.Device{}, false, false
}

// envName is the variable that tells a container the UUID of a device that it has:
// MUSTER_GPU_3, or MUSTER_GPU_3_2_0 of a MIG instance.
func envName(d *device.Device) string {
	name := "MUSTER_GPU_" + strconv.Itoa(d.Index)
	at := slices.IndexFunc(d.MIG, func(m device.MIG) bool { return m.UUID == d.UUID })
	if at < 0 {
		return name
	}
	return name + "_" + strconv.Itoa(d.MIG[at].GPUInstance) + "_" + strconv.Itoa(d.MIG[at].ComputeInstance)
}

func byName(a, b resourceapi.Device) int { return cmp.Compare(a.Name, b.Name) }
