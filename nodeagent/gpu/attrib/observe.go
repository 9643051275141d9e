package attrib

import (
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/spec"
)

// ObserveSample observes every device and instance of a collection that
// answered; time on one that did not stays unobserved. listed tells whether
// the provider could list processes; when it could not, a GPU that computes
// nothing counts as idle, since nobody knows whether it is held.
func (b *Book) ObserveSample(sample *device.Sample, processes []device.Process, listed bool) {
	for i := range sample.Readings {
		reading := &sample.Readings[i]
		if reading.Lost {
			b.countLost(reading.UUID, sample.At)
			continue
		}
		observation := Observation{At: sample.At, Processes: -1}
		if listed {
			observation.Processes = 0
			for _, process := range processes {
				if process.UUID == reading.UUID {
					observation.Processes++
				}
			}
		}
		fillFigures(&observation, reading)
		if part, ok := b.parts[reading.UUID]; ok && observation.EnergyMJ == nil {
			observation.EnergyMJ = part.energyShare(sample)
		}
		b.Observe(reading.UUID, observation)
	}
}

// Part says what a MIG instance is of its device.
type Part struct {
	Device string
	Slices int // compute slices
}

// slicesOfDevice is how many compute slices a device has.
const slicesOfDevice = 7

// SetParts says which instances there are. No counter tells what an instance
// draws: it has the device's energy by its compute slices out of seven, so that
// the instances together never have more than the device, and what an unused
// slice draws is nobody's.
func (b *Book) SetParts(parts map[string]Part) { b.parts = parts }

// energyShare is the part of the device's counter; nil where it is not known.
func (p Part) energyShare(sample *device.Sample) *int64 {
	reading := sample.Find(p.Device)
	if reading == nil || reading.Lost || p.Slices <= 0 || p.Slices > slicesOfDevice {
		return nil
	}
	n, ok := reading.Get(device.TotalEnergy)
	if !ok {
		return nil
	}
	n = n/slicesOfDevice*int64(p.Slices) + n%slicesOfDevice*int64(p.Slices)/slicesOfDevice
	return &n
}

// fillFigures takes the figures of a reading. Utilisation is the driver's where it
// has one, else the engine's activity, which is what a MIG instance has.
func fillFigures(observation *Observation, reading *device.Reading) {
	get := func(field device.Field) *int64 {
		if n, ok := reading.Get(field); ok {
			return &n
		}
		return nil
	}
	if percent := get(device.GPUUtil); percent != nil {
		*percent *= device.Ratio / 100
		observation.Util = percent
	} else {
		observation.Util = get(device.GraphicsActive)
	}
	observation.SM, observation.Tensor = get(device.SMActive), get(device.TensorActive)
	observation.MemoryMiB, observation.EnergyMJ = get(device.FBUsed), get(device.TotalEnergy)
	if reasons, ok := reading.Get(device.ClockReasons); ok {
		observation.Thermal = reasons&device.ReasonsThermal != 0
		observation.Power = reasons&device.ReasonsPower != 0
	}
}

// countLost counts the time up to an instant as time in which a device was gone. The
// stretch in which it went is counted whole: nobody saw it work in that either.
func (b *Book) countLost(gpu string, at spec.Instant) {
	i, ok := b.findGPU(gpu)
	if !ok {
		return
	}
	for _, account := range b.gpus[i].Open {
		if ns := int64(at - account.To); ns > 0 {
			account.spendTime(ns, nil)
			account.Lost += ns
		}
	}
}
