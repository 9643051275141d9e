package attrib

import (
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/spec"
)

// ObserveSample observes every device and instance of a collection that
// answered; time on one that did not stays unobserved. listed tells whether
// the provider could list processes; when it could not, a GPU that computes
// nothing counts as idle, since nobody knows whether it is held.
func (b *Book) ObserveSample(s *device.Sample, processes []device.Process, listed bool) {
	for i := range s.Readings {
		r := &s.Readings[i]
		if r.Lost {
			b.lost(r.UUID, s.At)
			continue
		}
		o := Observation{At: s.At, Processes: -1}
		if listed {
			o.Processes = 0
			for _, p := range processes {
				if p.UUID == r.UUID {
					o.Processes++
				}
			}
		}
		fillFigures(&o, r)
		if part, ok := b.parts[r.UUID]; ok && o.EnergyMJ == nil {
			o.EnergyMJ = part.energyShare(s)
		}
		b.Observe(r.UUID, o)
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
func (p Part) energyShare(s *device.Sample) *int64 {
	r := s.Find(p.Device)
	if r == nil || r.Lost || p.Slices <= 0 || p.Slices > slicesOfDevice {
		return nil
	}
	n, ok := r.Get(device.TotalEnergy)
	if !ok {
		return nil
	}
	n = n/slicesOfDevice*int64(p.Slices) + n%slicesOfDevice*int64(p.Slices)/slicesOfDevice
	return &n
}

// fillFigures takes the figures of a reading. Utilisation is the driver's where it
// has one, else the engine's activity, which is what a MIG instance has.
func fillFigures(o *Observation, r *device.Reading) {
	get := func(f device.Field) *int64 {
		if n, ok := r.Get(f); ok {
			return &n
		}
		return nil
	}
	if percent := get(device.GPUUtil); percent != nil {
		*percent *= device.Ratio / 100
		o.Util = percent
	} else {
		o.Util = get(device.GraphicsActive)
	}
	o.SM, o.Tensor = get(device.SMActive), get(device.TensorActive)
	o.MemoryMiB, o.EnergyMJ = get(device.FBUsed), get(device.TotalEnergy)
	if reasons, ok := r.Get(device.ClockReasons); ok {
		o.Thermal = reasons&device.ReasonsThermal != 0
		o.Power = reasons&device.ReasonsPower != 0
	}
}

// lost counts the time up to an instant as time in which a device was gone. The
// stretch in which it went is counted whole: nobody saw it work in that either.
func (b *Book) lost(gpu string, at spec.Instant) {
	i, ok := b.findGPU(gpu)
	if !ok {
		return
	}
	for _, a := range b.gpus[i].Open {
		if ns := int64(at - a.To); ns > 0 {
			a.spendTime(ns, nil)
			a.Lost += ns
		}
	}
}
