package simulated

import (
	"slices"

	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/spec"
)

const (
	second        = int64(spec.Second)
	throttled     = 600_000 // share of the highest clock under a thermal fault, in millionths
	ambientMilliC = 30_000
)

// attached is one job's load on one unit.
type attached struct {
	job     spec.JobUID
	attempt uint32
	from    spec.Instant
	load    Load
	pids    []int
	share   int64 // of the unit, in millionths
	fired   int   // faults of the load that already happened
}

// unit is what a job can hold: a whole device or one MIG instance.
type unit struct {
	uuid   string
	memory int64 // MiB
	weight int64 // share of the device, in millionths
	loads  []attached
}

// level is the state of a unit or device during one second.
type level struct {
	util   int64 // millionths
	memory int64 // MiB held
}

// model is one device moved through time. Every call moves it forward; the
// result at an instant does not depend on the calls before it, only on the
// loads that were attached and when.
type model struct {
	seed   uint64
	fig    figures
	units  []unit // one per MIG instance, or one for the whole device
	mig    bool
	uuid   string // of the device
	memory int64  // MiB
	// instances are those that the device is cut into; cut makes others.
	instances []device.MIG
	former    []string // units that were, and are not
	cut       func(profiles []string) ([]device.MIG, error)
	at        spec.Instant
	lost      bool
	milliC    int64
	lastXID   int64
	events    []device.Event

	energy     integral // mW·ns -> mJ
	nvlink     integral // KiB/s·ns -> KiB
	thermalNS  int64
	powerNS    int64
	ecc, remap int64
	recoveries int64 // of NVLink

	clocks device.Clocks // as they were set; zero: the highest
}

// maxClock is the highest frequency of the multiprocessors, in MHz.
func (m *model) maxClock() int64 {
	if m.clocks.Graphics != 0 {
		return min(m.fig.smMHz, int64(m.clocks.Graphics))
	}
	return m.fig.smMHz
}

// integral adds rate × time without losing a remainder.
type integral struct{ whole, rest int64 }

func (g *integral) addProduct(rate, ns int64) {
	// Whole seconds first, so that a jump of months cannot overflow.
	g.whole += rate * (ns / second)
	g.rest += rate * (ns % second)
	g.whole += g.rest / second
	g.rest %= second
}

// advanceTo moves the device to an instant. An earlier instant changes nothing:
// a clock that was set back must not turn counters back.
func (m *model) advanceTo(to spec.Instant) {
	for m.at < to {
		end := min(to, spec.Instant((int64(m.at)/second+1)*second))
		if m.isSettled() {
			end = to // nothing changes until someone attaches a load
		}
		end = m.nextFault(end)
		m.integrateFigures(int64(end - m.at))
		if int64(end)%second == 0 && !m.lost {
			m.milliC += (m.targetTemperature() - m.milliC) / 32
		}
		m.at = end
		m.fireFaults()
	}
}

// isSettled tells that the device is idle and its temperature rests.
func (m *model) isSettled() bool {
	for i := range m.units {
		if len(m.units[i].loads) > 0 {
			return false
		}
	}
	return m.lost || (m.targetTemperature()-m.milliC)/32 == 0
}

func (m *model) integrateFigures(ns int64) {
	if m.lost {
		return
	}
	l := m.deviceLevel()
	power, reasons := m.powerDraw(l)
	m.energy.addProduct(power, ns)
	if m.fig.nvlinks > 0 {
		m.nvlink.addProduct(m.linkBytes(l)/1024, ns)
	}
	if reasons&device.ReasonsThermal != 0 {
		m.thermalNS += ns
	}
	if reasons&device.ReasonsPower != 0 {
		m.powerNS += ns
	}
}

// targetTemperature is the temperature the device tends to, in thousandths of a degree.
func (m *model) targetTemperature() int64 {
	if m.lost {
		return ambientMilliC
	}
	power, _ := m.powerDraw(m.deviceLevel())
	return ambientMilliC + 50_000*power/m.fig.maxMW
}

// deviceLevel is the level of the device: its units by weight.
func (m *model) deviceLevel() level {
	var sum level
	for i := range m.units {
		l := m.unitLevel(&m.units[i])
		sum.util += l.util * m.units[i].weight / device.Ratio
		sum.memory += l.memory
	}
	return sum
}

// unitLevel sums the loads of a unit in the second that m.at falls in.
func (m *model) unitLevel(u *unit) level {
	var sum level
	for i := range u.loads {
		l := u.loads[i].levelAt(m.at, u.memory, m.seed)
		sum.util += l.util
		sum.memory += l.memory
	}
	sum.util = min(sum.util, device.Ratio)
	sum.memory = min(sum.memory, u.memory)
	return sum
}

// levelAt is what one load does in the second that an instant falls in.
func (a *attached) levelAt(at spec.Instant, memory int64, seed uint64) level {
	if a.load.Shape == Absent {
		return level{}
	}
	// The age at the start of the second, so that nothing changes inside one.
	age := spec.Span(max(0, int64(at)/second*second-int64(a.from)))
	held := memory * int64(a.load.Memory) / 100 * a.share / device.Ratio
	peak := int64(a.load.Util) * device.Ratio / 100 * a.share / device.Ratio
	jitter := int64(mixBits(seed^uint64(a.job)^uint64(int64(at)/second)) % 40_000) // up to 4 % less
	if age < a.load.Warmup {
		return level{
			util:   peak / 20,
			memory: held * toMillis(age) / max(1, toMillis(a.load.Warmup)),
		}
	}
	util := peak - peak*jitter/device.Ratio
	if a.load.Period > 0 {
		into := toMillis(age % a.load.Period)
		period := max(1, toMillis(a.load.Period))
		switch a.load.Shape {
		case Saw:
			util = util * (period + into) / (2 * period)
		case Burst:
			if into >= period/2 {
				util /= 30
			}
		case Ramp:
			if age < a.load.Period {
				util = util * into / period
			}
		case Steady, Idle, Absent:
		}
	}
	if a.load.Shape == Idle {
		util = 0
	}
	return level{util: util, memory: held}
}

// toMillis keeps products of spans inside 64 bits.
func toMillis(d spec.Span) int64 { return int64(d / spec.Millisecond) }

// powerDraw gives the draw in milliwatts and the reasons that hold the clocks
// down. The draw is idle plus a share of the rest that grows with use and with
// the clock; above 97 % at the highest clock the device sits at its limit.
func (m *model) powerDraw(l level) (milliwatts, reasons int64) {
	p := m.fig.idleMW + (m.fig.maxMW-m.fig.idleMW)*l.util/device.Ratio*103/100*m.maxClock()/m.fig.smMHz
	if p >= m.fig.maxMW {
		p, reasons = m.fig.maxMW, device.ReasonPowerCap
	}
	if m.hasThermalFault() {
		p = m.fig.idleMW + (p-m.fig.idleMW)*throttled/device.Ratio
		reasons |= device.ReasonSWThermal
		reasons &^= device.ReasonPowerCap
	}
	if reasons == 0 && m.maxClock() < m.fig.smMHz {
		reasons = device.ReasonAppClocks
	}
	if l.util == 0 && reasons&^device.ReasonAppClocks == 0 {
		reasons = device.ReasonIdle
	}
	return p, reasons
}

// hasThermalFault tells whether a thermal fault is under way.
func (m *model) hasThermalFault() bool {
	for i := range m.units {
		for j := range m.units[i].loads {
			a := &m.units[i].loads[j]
			for _, fault := range a.load.Faults {
				begin := a.from.Add(fault.After)
				if fault.Kind == FaultThermal && m.at >= begin && m.at < begin.Add(fault.For) {
					return true
				}
			}
		}
	}
	return false
}

// linkBytes is the NVLink traffic a second that goes with a level.
func (m *model) linkBytes(l level) int64 {
	return int64(m.fig.nvlinks) * 2_000_000 * l.util / device.Ratio * 1000
}

// nextFault cuts a stretch of time at the first fault edge inside it.
func (m *model) nextFault(end spec.Instant) spec.Instant {
	for i := range m.units {
		for j := range m.units[i].loads {
			a := &m.units[i].loads[j]
			for _, fault := range a.load.Faults {
				for _, edge := range [2]spec.Instant{a.from.Add(fault.After), a.from.Add(fault.After).Add(fault.For)} {
					if edge > m.at && edge < end {
						end = edge
					}
				}
			}
		}
	}
	return end
}

// fireFaults lets the faults happen whose time has come.
func (m *model) fireFaults() {
	for i := range m.units {
		for j := range m.units[i].loads {
			a := &m.units[i].loads[j]
			for a.fired < len(a.load.Faults) && a.from.Add(a.load.Faults[a.fired].After) <= m.at {
				fault := a.load.Faults[a.fired]
				a.fired++
				m.injectFault(m.units[i].uuid, fault)
				if fault.Kind == FaultCut {
					return // the units are others
				}
			}
		}
	}
}

// injectFault makes one fault happen at m.at.
func (m *model) injectFault(uuid string, fault Fault) {
	if m.lost {
		return
	}
	switch fault.Kind {
	case FaultThermal:
		m.noteEvent(
			device.Event{
				Kind: device.EventThermal,
				UUID: uuid,
				Text: "clocks held down by temperature (simulated)",
			},
		)
	case FaultLost:
		m.loseDevice(uuid)
	case FaultCut:
		instances, err := m.cut(fault.Profiles)
		if err != nil {
			return // it was checked when the load was read, and does not fit this device
		}
		m.partitionDevice(m.uuid, m.memory, instances)
		m.noteEvent(
			device.Event{
				Kind: device.EventMIGChanged,
				UUID: m.uuid,
				Text: "partitioned anew (simulated)",
			},
		)
	case FaultXID:
		m.lastXID = int64(fault.XID)
		m.noteEvent(
			device.Event{
				Kind: device.EventXID,
				UUID: uuid,
				XID:  fault.XID,
				Text: device.ClassifyXID(fault.XID).String() +
					" error (simulated)",
			},
		)
		switch fault.XID {
		case 48, 95:
			m.ecc++
			m.noteEvent(
				device.Event{
					Kind: device.EventECC,
					UUID: uuid,
					Text: "uncorrectable memory error (simulated)",
				},
			)
		case 63, 94:
			m.remap++
		case 74:
			m.recoveries++
		case 79:
			m.loseDevice(uuid)
		}
	}
}

// partitionDevice cuts the device into instances, or none. What ran on it is gone.
func (m *model) partitionDevice(uuid string, memory int64, instances []device.MIG) {
	for i := range m.units {
		m.former = append(m.former, m.units[i].uuid)
	}
	m.uuid = uuid
	m.memory = memory
	m.instances = instances
	m.mig = len(instances) > 0
	m.units = nil
	for _, mig := range instances {
		m.units = append(
			m.units,
			unit{
				uuid: mig.UUID, memory: mig.MemoryMiB, weight: int64(mig.Slices) * device.Ratio / 7,
			},
		)
	}
	if !m.mig {
		m.units = []unit{{uuid: uuid, memory: memory, weight: device.Ratio}}
	}
	m.former = slices.DeleteFunc(m.former, func(uuid string) bool {
		return slices.ContainsFunc(m.units, func(u unit) bool { return u.uuid == uuid })
	})
	slices.Sort(m.former)
	m.former = slices.Compact(m.former)
}

func (m *model) loseDevice(uuid string) {
	m.lost = true
	m.noteEvent(
		device.Event{
			Kind: device.EventLost,
			UUID: uuid,
			Text: "the device has fallen off the bus (simulated)",
		},
	)
}

// noteEvent keeps an event until it is asked for; the oldest go first when nobody asks.
func (m *model) noteEvent(event device.Event) {
	const most = 256
	event.At = m.at
	if len(m.events) == most {
		m.events = slices.Delete(m.events, 0, 1)
	}
	m.events = append(m.events, event)
}

// attachLoads replaces the loads of every unit; a load that was there before keeps
// its place in its faults.
func (m *model) attachLoads(now spec.Instant, loads map[string][]attached) {
	m.advanceTo(now)
	for i := range m.units {
		u := &m.units[i]
		next := slices.Clone(loads[u.uuid])
		for n := range next {
			for _, old := range u.loads {
				if old.job == next[n].job && old.attempt == next[n].attempt {
					next[n].fired = old.fired
				}
			}
		}
		u.loads = next
	}
	m.fireFaults()
}
