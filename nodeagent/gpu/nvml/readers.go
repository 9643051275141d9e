//go:build linux && cgo

package nvml

import (
	"encoding/binary"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/musterhpc/muster/nodeagent/gpu/device"
)

// reader reads some fields with one call.
type reader struct {
	symbol string // that the driver must have
	mig    bool   // says something about an instance, not about a device that is cut
	read   func(nvml.Device, *device.Reading) nvml.Return
}

// one makes a reader of one field.
func one(
	symbol string,
	f device.Field,
	scale int64,
	get func(nvml.Device) (uint64, nvml.Return),
) reader {
	return reader{symbol: symbol, read: func(h nvml.Device, r *device.Reading) nvml.Return {
		n, ret := get(h)
		if ret == nvml.SUCCESS && int64(n) >= 0 {
			put(r, f, int64(n)*scale)
		}
		return ret
	}}
}

func put(r *device.Reading, f device.Field, n int64) {
	r.Values = append(r.Values, device.Value{Field: f, N: n})
}

// readers lists every call of a collection.
func readers() []reader {
	list := []reader{
		one(
			"nvmlDeviceGetClockInfo",
			device.SMClock,
			1,
			func(h nvml.Device) (uint64, nvml.Return) { return widen(h.GetClockInfo(nvml.CLOCK_SM)) },
		),
		one(
			"nvmlDeviceGetClockInfo",
			device.MemClock,
			1,
			func(h nvml.Device) (uint64, nvml.Return) { return widen(h.GetClockInfo(nvml.CLOCK_MEM)) },
		),
		one(
			"nvmlDeviceGetCurrentClocksThrottleReasons",
			device.ClockReasons,
			1,
			nvml.Device.GetCurrentClocksThrottleReasons,
		),
		one(
			"nvmlDeviceGetTemperature",
			device.GPUTemp,
			1,
			func(h nvml.Device) (uint64, nvml.Return) { return widen(h.GetTemperature(nvml.TEMPERATURE_GPU)) },
		),
		one(
			"nvmlDeviceGetPowerUsage",
			device.PowerUsage,
			1,
			func(h nvml.Device) (uint64, nvml.Return) { return widen(h.GetPowerUsage()) },
		),
		one(
			"nvmlDeviceGetEnforcedPowerLimit",
			device.PowerLimit,
			1,
			func(h nvml.Device) (uint64, nvml.Return) { return widen(h.GetEnforcedPowerLimit()) },
		),
		one(
			"nvmlDeviceGetTotalEnergyConsumption",
			device.TotalEnergy,
			1,
			nvml.Device.GetTotalEnergyConsumption,
		),
		one(
			"nvmlDeviceGetPcieReplayCounter",
			device.PCIeReplay,
			1,
			func(h nvml.Device) (uint64, nvml.Return) {
				n, ret := h.GetPcieReplayCounter()
				return uint64(max(n, 0)), ret
			},
		),
		one(
			"nvmlDeviceGetEncoderUtilization",
			device.EncUtil,
			1,
			func(h nvml.Device) (uint64, nvml.Return) {
				n, _, ret := h.GetEncoderUtilization()
				return uint64(n), ret
			},
		),
		one(
			"nvmlDeviceGetDecoderUtilization",
			device.DecUtil,
			1,
			func(h nvml.Device) (uint64, nvml.Return) {
				n, _, ret := h.GetDecoderUtilization()
				return uint64(n), ret
			},
		),
		{"nvmlDeviceGetUtilizationRates", false, readUtil},
		{"nvmlDeviceGetMemoryInfo", true, readMemory},
		{"nvmlDeviceGetRemappedRows", false, readRemapped},
		{"nvmlDeviceGetFieldValues", false, readFields},
	}
	for _, e := range []struct {
		f       device.Field
		kind    nvml.MemoryErrorType
		counter nvml.EccCounterType
	}{
		{device.ECCSBEVol, nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC},
		{device.ECCDBEVol, nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC},
		{device.ECCSBEAgg, nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.AGGREGATE_ECC},
		{device.ECCDBEAgg, nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.AGGREGATE_ECC},
	} {
		list = append(
			list,
			one("nvmlDeviceGetTotalEccErrors", e.f, 1, func(h nvml.Device) (uint64, nvml.Return) {
				return h.GetTotalEccErrors(e.kind, e.counter)
			}),
		)
	}
	return list
}

func widen(n uint32, ret nvml.Return) (uint64, nvml.Return) { return uint64(n), ret }

func readUtil(h nvml.Device, r *device.Reading) nvml.Return {
	u, ret := h.GetUtilizationRates()
	if ret == nvml.SUCCESS {
		put(r, device.GPUUtil, int64(min(u.Gpu, 100)))
		put(r, device.MemCopyUtil, int64(min(u.Memory, 100)))
	}
	return ret
}

// readMemory counts what the driver keeps for itself as used, because the
// older call, which every driver has, does not tell it apart.
func readMemory(h nvml.Device, r *device.Reading) nvml.Return {
	m, ret := h.GetMemoryInfo()
	if ret == nvml.SUCCESS {
		put(r, device.FBFree, int64(m.Free>>20))
		put(r, device.FBUsed, int64(m.Used>>20))
	}
	return ret
}

func readRemapped(h nvml.Device, r *device.Reading) nvml.Return {
	corrected, uncorrected, pending, failed, ret := h.GetRemappedRows()
	if ret == nvml.SUCCESS {
		put(r, device.RemappedUncorrected, int64(uncorrected))
		put(r, device.RemappedCorrected, int64(corrected))
		put(r, device.RemapFailure, int64(btoi(failed)))
		put(r, device.RemapPending, int64(btoi(pending)))
	}
	return ret
}

// allLinks asks for the sum over a device's NVLinks.
const allLinks = ^uint32(0)

// readFields reads the figures that have no call of their own: the memory's
// temperature and the NVLink traffic, both ways, in KiB.
func readFields(h nvml.Device, r *device.Reading) nvml.Return {
	values := []nvml.FieldValue{
		{FieldId: nvml.FI_DEV_MEMORY_TEMP},
		{FieldId: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ScopeId: allLinks},
		{FieldId: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, ScopeId: allLinks},
	}
	ret := h.GetFieldValues(values)
	if ret != nvml.SUCCESS {
		return ret
	}
	if n, ok := number(values[0]); ok {
		put(r, device.MemoryTemp, n)
	}
	tx, ok1 := number(values[1])
	rx, ok2 := number(values[2])
	if ok1 && ok2 {
		put(r, device.NVLinkBandwidth, tx+rx)
	}
	return ret
}

// number reads a field's integer value.
func number(v nvml.FieldValue) (int64, bool) {
	if nvml.Return(v.NvmlReturn) != nvml.SUCCESS {
		return 0, false
	}
	switch nvml.ValueType(v.ValueType) {
	case nvml.VALUE_TYPE_UNSIGNED_INT:
		return int64(binary.NativeEndian.Uint32(v.Value[:])), true
	case nvml.VALUE_TYPE_UNSIGNED_LONG,
		nvml.VALUE_TYPE_UNSIGNED_LONG_LONG,
		nvml.VALUE_TYPE_SIGNED_LONG_LONG:
		n := int64(binary.NativeEndian.Uint64(v.Value[:]))
		return n, n >= 0
	}
	return 0, false
}
