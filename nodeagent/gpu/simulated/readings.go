package simulated

import "github.com/musterhpc/muster/nodeagent/gpu/device"

// reservedMiB is what the driver keeps of a device or instance.
func reservedMiB(memory int64) int64 { return memory / 128 }

// readModel fills one reading for the device and, with MIG on, one per instance.
// The values are those of the second that m.at falls in.
func (m *model) readModel(uuid string, readings []device.Reading) []device.Reading {
	l := m.deviceLevel()
	readings, reading := growReadings(readings, uuid)
	reading.Lost = m.lost
	if !m.lost {
		m.readDevice(reading, l)
	}
	if !m.mig {
		return readings
	}
	for i := range m.units {
		u := &m.units[i]
		readings, reading = growReadings(readings, u.uuid)
		reading.Lost = m.lost
		if !m.lost {
			m.readUnit(reading, u)
		}
	}
	return readings
}

// growReadings grows a list of readings by one that reuses the memory it had.
func growReadings(readings []device.Reading, uuid string) ([]device.Reading, *device.Reading) {
	if len(readings) < cap(readings) {
		readings = readings[:len(readings)+1]
	} else {
		readings = append(readings, device.Reading{})
	}
	reading := &readings[len(readings)-1]
	reading.UUID = uuid
	reading.Lost = false
	reading.Values = reading.Values[:0]
	return readings, reading
}

// readDevice appends the fields of a device, ascending by number.
func (m *model) readDevice(reading *device.Reading, l level) {
	power, reasons := m.powerDraw(l)
	clock, memory := m.maxClock(), m.fig.memMHz
	switch {
	case reasons&device.ReasonsThermal != 0:
		clock = clock * throttled / device.Ratio
	case l.util == 0:
		clock = min(clock, m.fig.smMHz/6)
	}
	if m.clocks.Memory != 0 {
		memory = int64(m.clocks.Memory)
	}
	total := int64(0)
	for i := range m.units {
		total += m.units[i].memory
	}
	reserved := reservedMiB(total)
	used := min(l.memory, total-reserved)
	pcie := l.util / 100 * 240_000 // up to 2.4 GB/s
	put := func(f device.Field, n int64) { reading.Values = append(reading.Values, device.Value{Field: f, N: n}) }
	put(device.SMClock, clock)
	put(device.MemClock, memory)
	put(device.ClockReasons, reasons)
	put(device.MemoryTemp, m.milliC/1000+4)
	put(device.GPUTemp, m.milliC/1000)
	put(device.PowerUsage, power)
	put(device.TotalEnergy, m.energy.whole)
	put(device.PowerLimit, m.fig.maxMW)
	put(device.PCIeReplay, 0)
	if !m.mig { // the driver cannot say these of a partitioned device
		put(device.GPUUtil, percentOf(l.util))
		put(device.MemCopyUtil, percentOf(l.util*6/10))
		put(device.EncUtil, 0)
		put(device.DecUtil, 0)
	}
	put(device.XIDErrors, m.lastXID)
	put(device.PowerViolation, m.powerNS)
	put(device.ThermalViolation, m.thermalNS)
	if !m.mig {
		put(device.FBFree, total-reserved-used)
		put(device.FBUsed, used)
		put(device.FBReserved, reserved)
	}
	put(device.ECCSBEVol, 0)
	put(device.ECCDBEVol, m.ecc)
	put(device.ECCSBEAgg, 0)
	put(device.ECCDBEAgg, m.ecc)
	put(device.RemappedUncorrected, m.ecc)
	put(device.RemappedCorrected, m.remap)
	put(device.RemapFailure, 0)
	put(device.RemapPending, min(1, m.ecc))
	if m.fig.nvlinks > 0 {
		put(device.NVLinkReplay, m.recoveries)
		put(device.NVLinkRecovery, m.recoveries)
		put(device.NVLinkBandwidth, m.nvlink.whole)
	}
	put(device.VGPULicense, 0)
	if !m.mig {
		appendProfile(reading, l)
		put(device.PCIeTxBytes, pcie)
		put(device.PCIeRxBytes, pcie*3/2)
	}
	if m.fig.nvlinks > 0 {
		put(device.NVLinkTxBytes, m.linkBytes(l)/2)
		put(device.NVLinkRxBytes, m.linkBytes(l)/2)
	}
}

// readUnit appends the fields of a MIG instance.
func (m *model) readUnit(reading *device.Reading, u *unit) {
	l := m.unitLevel(u)
	reserved := reservedMiB(u.memory)
	used := min(l.memory, u.memory-reserved)
	reading.Values = append(reading.Values,
		device.Value{Field: device.FBFree, N: u.memory - reserved - used},
		device.Value{Field: device.FBUsed, N: used},
		device.Value{Field: device.FBReserved, N: reserved})
	appendProfile(reading, l)
}

// appendProfile appends the activity ratios that go with a level: a training step
// keeps the engine busier than the multiprocessors, and those busier than the
// tensor pipe.
func appendProfile(reading *device.Reading, l level) {
	reading.Values = append(reading.Values,
		device.Value{Field: device.GraphicsActive, N: l.util},
		device.Value{Field: device.SMActive, N: l.util * 86 / 100},
		device.Value{Field: device.SMOccupancy, N: l.util * 41 / 100},
		device.Value{Field: device.TensorActive, N: l.util * 38 / 100},
		device.Value{Field: device.DRAMActive, N: l.util * 52 / 100},
		device.Value{Field: device.FP64Active, N: 0},
		device.Value{Field: device.FP32Active, N: l.util * 17 / 100},
		device.Value{Field: device.FP16Active, N: l.util * 6 / 100})
}

func percentOf(ratio int64) int64 { return (ratio*100 + device.Ratio/2) / device.Ratio }
