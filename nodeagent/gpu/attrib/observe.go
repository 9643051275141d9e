package attrib

import "github.com/musterhpc/muster/nodeagent/gpu/device"

// ObserveSample observes every device and instance of a collection that
// answered; time on one that did not stays unobserved. listed tells whether
// the provider could list processes; when it could not, a GPU that computes
// nothing counts as idle, since nobody knows whether it is held.
func (b *Book) ObserveSample(s *device.Sample, processes []device.Process, listed bool) {
	for i := range s.Readings {
		r := &s.Readings[i]
		if r.Lost {
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
		fill(&o, r)
		b.Observe(r.UUID, o)
	}
}

// fill takes the figures of a reading. Utilisation is the driver's where it
// has one, else the engine's activity, which is what a MIG instance has.
func fill(o *Observation, r *device.Reading) {
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
