//go:build linux && cgo

package nvml

import (
	"encoding/binary"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/musterhpc/muster/nodeagent/gpu/device"
)

// reader reads some fields of a device with one call of the library.
type reader struct {
	symbol string // the C function, which an older driver may lack
	mig    bool   // read from MIG instances, not from a device that is split into them
	read   func(nvml.Device, *device.Reading) nvml.Return
}

// fieldReader makes a reader of one field, whose unit is that of the library.
func fieldReader(
	symbol string,
	field device.Field,
	get func(nvml.Device) (uint64, nvml.Return),
) reader {
	return reader{symbol: symbol, read: func(h nvml.Device, reading *device.Reading) nvml.Return {
		n, ret := get(h)
		if ret == nvml.SUCCESS && int64(n) >= 0 {
			addValue(reading, field, int64(n))
		}
		return ret
	}}
}

func addValue(reading *device.Reading, field device.Field, n int64) {
	reading.Values = append(reading.Values, device.Value{Field: field, N: n})
}

// readers lists the calls that make up one sample of a device.
func readers() []reader {
	list := []reader{
		fieldReader(
			"nvmlDeviceGetClockInfo",
			device.SMClock,
			func(h nvml.Device) (uint64, nvml.Return) { return widen(h.GetClockInfo(nvml.CLOCK_SM)) },
		),
		fieldReader(
			"nvmlDeviceGetClockInfo",
			device.MemClock,
			func(h nvml.Device) (uint64, nvml.Return) { return widen(h.GetClockInfo(nvml.CLOCK_MEM)) },
		),
		fieldReader(
			"nvmlDeviceGetCurrentClocksThrottleReasons",
			device.ClockReasons,
			nvml.Device.GetCurrentClocksThrottleReasons,
		),
		fieldReader(
			"nvmlDeviceGetTemperature",
			device.GPUTemp,
			func(h nvml.Device) (uint64, nvml.Return) {
				return widen(h.GetTemperature(nvml.TEMPERATURE_GPU))
			},
		),
		fieldReader(
			"nvmlDeviceGetPowerUsage",
			device.PowerUsage,
			func(h nvml.Device) (uint64, nvml.Return) { return widen(h.GetPowerUsage()) },
		),
		fieldReader(
			"nvmlDeviceGetEnforcedPowerLimit",
			device.PowerLimit,
			func(h nvml.Device) (uint64, nvml.Return) { return widen(h.GetEnforcedPowerLimit()) },
		),
		fieldReader(
			"nvmlDeviceGetTotalEnergyConsumption",
			device.TotalEnergy,
			nvml.Device.GetTotalEnergyConsumption,
		),
		fieldReader(
			"nvmlDeviceGetPcieReplayCounter",
			device.PCIeReplay,
			func(h nvml.Device) (uint64, nvml.Return) {
				n, ret := h.GetPcieReplayCounter()
				return uint64(max(n, 0)), ret
			},
		),
		fieldReader(
			"nvmlDeviceGetEncoderUtilization",
			device.EncUtil,
			func(h nvml.Device) (uint64, nvml.Return) {
				n, _, ret := h.GetEncoderUtilization()
				return uint64(n), ret
			},
		),
		fieldReader(
			"nvmlDeviceGetDecoderUtilization",
			device.DecUtil,
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
		field   device.Field
		kind    nvml.MemoryErrorType
		counter nvml.EccCounterType
	}{
		{device.ECCSBEVol, nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC},
		{device.ECCDBEVol, nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC},
		{device.ECCSBEAgg, nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.AGGREGATE_ECC},
		{device.ECCDBEAgg, nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.AGGREGATE_ECC},
	} {
		get := func(h nvml.Device) (uint64, nvml.Return) {
			return h.GetTotalEccErrors(e.kind, e.counter)
		}
		list = append(list, fieldReader("nvmlDeviceGetTotalEccErrors", e.field, get))
	}
	return list
}

func widen(n uint32, ret nvml.Return) (uint64, nvml.Return) { return uint64(n), ret }

func readUtil(handle nvml.Device, reading *device.Reading) nvml.Return {
	u, ret := handle.GetUtilizationRates()
	if ret == nvml.SUCCESS {
		addValue(reading, device.GPUUtil, int64(min(u.Gpu, 100)))
		addValue(reading, device.MemCopyUtil, int64(min(u.Memory, 100)))
	}
	return ret
}

// readMemory counts the memory that the driver reserves as used, because the older call, which
// every driver has, does not tell the two apart.
func readMemory(handle nvml.Device, reading *device.Reading) nvml.Return {
	m, ret := handle.GetMemoryInfo()
	if ret == nvml.SUCCESS {
		addValue(reading, device.FBFree, int64(m.Free>>20))
		addValue(reading, device.FBUsed, int64(m.Used>>20))
	}
	return ret
}

func readRemapped(handle nvml.Device, reading *device.Reading) nvml.Return {
	corrected, uncorrected, pending, failed, ret := handle.GetRemappedRows()
	if ret == nvml.SUCCESS {
		addValue(reading, device.RemappedUncorrected, int64(uncorrected))
		addValue(reading, device.RemappedCorrected, int64(corrected))
		addValue(reading, device.RemapFailure, int64(boolNumber(failed)))
		addValue(reading, device.RemapPending, int64(boolNumber(pending)))
	}
	return ret
}

// allLinks asks for the sum over a device's NVLinks.
const allLinks = ^uint32(0)

// readFields reads the figures that have no call of their own: the memory's
// temperature and the NVLink traffic, both ways, in KiB.
func readFields(handle nvml.Device, reading *device.Reading) nvml.Return {
	values := []nvml.FieldValue{
		{FieldId: nvml.FI_DEV_MEMORY_TEMP},
		{FieldId: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, ScopeId: allLinks},
		{FieldId: nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX, ScopeId: allLinks},
	}
	ret := handle.GetFieldValues(values)
	if ret != nvml.SUCCESS {
		return ret
	}
	if n, ok := number(values[0]); ok {
		addValue(reading, device.MemoryTemp, n)
	}
	tx, ok1 := number(values[1])
	rx, ok2 := number(values[2])
	if ok1 && ok2 {
		addValue(reading, device.NVLinkBandwidth, tx+rx)
	}
	return ret
}

// number decodes an integer value. ok is false where the device does not have the field.
func number(v nvml.FieldValue) (n int64, ok bool) {
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
