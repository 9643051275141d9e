package daemon

import (
	"context"
	"errors"

	"github.com/musterhpc/muster/nodeagent/energy"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// Meter reads what the node uses.
type Meter interface {
	Name() string
	// IsSlow tells that a reading may take seconds: it is then made beside the others.
	IsSlow() bool
	Read(ctx context.Context, now spec.Instant) (*energy.Reading, error)
}

// EnergyFigures are the node's energy and that of the jobs on it, for metrics.
type EnergyFigures struct {
	energy.Totals
	Source string
	Jobs   []JobEnergy
}

// JobEnergy is what a job has used on this node until now, without its GPUs.
type JobEnergy struct {
	UID     spec.JobUID
	Attempt uint32
	MJ      int64 // millijoules
}

// energyState is the core's part in counting energy; the zero value counts none.
type energyState struct {
	book *energy.Book // nil: the node has no meter
	// gpus is what all devices have counted, and last the counter of each.
	gpus int64
	last map[string]int64
}

// countGPUEnergy adds up the counters of the devices: meters of the whole node
// measure them too.
func (e *energyState) countGPUEnergy(sample *device.Sample, known map[string]unitFacts) {
	if e.book == nil {
		return
	}
	if e.last == nil {
		e.last = map[string]int64{}
	}
	for i := range sample.Readings {
		reading := &sample.Readings[i]
		unit, listed := known[reading.UUID]
		if reading.Lost || !listed || unit.profile != "" { // an instance's is in its device's
			continue
		}
		now, ok := reading.Get(device.TotalEnergy)
		if !ok || now < 0 {
			continue
		}
		before, counted := e.last[reading.UUID]
		e.last[reading.UUID] = now
		switch {
		case counted && now >= before:
			e.gpus += now - before
		case counted: // the driver was loaded again
			e.gpus += now
		}
	}
}

func energyRun(key plan.RunKey) energy.Run {
	return energy.Run{Job: key.Job, Attempt: key.Attempt, Step: key.Step, Epoch: key.Epoch}
}

// Energy shares out what the node has used since the last reading. busy is the CPU
// time of the whole node, -1 where it is not known, and list the use of the runs.
func (c *Core) Energy(reading *energy.Reading, busy int64, list []plan.Usage) {
	if c.energy.book == nil {
		return
	}
	uses := make([]energy.Use, 0, len(list))
	for i := range list {
		r := c.runs[list[i].Key]
		if r == nil || r.phase != living {
			continue
		}
		uses = append(
			uses,
			energy.Use{
				Run: energyRun(list[i].Key),
				CPU: int64(list[i].UserCPU + list[i].SystemCPU),
			},
		)
	}
	c.energy.book.Observe(reading, c.energy.gpus, busy, uses)
}

// EnergyFigures gives what metrics show; ok is false where the node has no meter.
func (c *Core) EnergyFigures() (figures EnergyFigures, ok bool) {
	if c.energy.book == nil {
		return EnergyFigures{}, false
	}
	figures.Totals = c.energy.book.Totals()
	figures.Source = c.cfg.EnergySource
	sums := map[plan.RunKey]int64{}
	for _, account := range c.energy.book.Accounts() {
		if account.Has() {
			job := plan.RunKey{Job: account.Job, Attempt: account.Attempt, Epoch: account.Epoch}
			sums[jobKey(job)] += account.MJ
		}
	}
	for _, key := range c.sortedKeys() {
		r := c.runs[key]
		open, has := sums[key]
		present := r.phase == living || r.phase == held
		measured := has || r.steps.HasEnergy
		if r.isStep() || !present || !measured {
			continue
		}
		figures.Jobs = append(
			figures.Jobs,
			JobEnergy{UID: r.jobUID(), Attempt: key.Attempt, MJ: open + r.steps.EnergyMJ},
		)
	}
	return figures, true
}

// openEnergy begins to count the energy of a run. The CPUs of a step are its job's.
func (c *Core) openEnergy(r *run) {
	if c.energy.book == nil || r.from == 0 {
		return
	}
	cpus := int64(r.facts.CPUs)
	if r.isStep() {
		cpus = 0
	}
	c.energy.book.Start(energyRun(r.key), r.from, cpus)
}

// endEnergy closes the account of a run and writes it into what it used.
func (c *Core) endEnergy(r *run, usage *spec.Usage) {
	if c.energy.book == nil {
		return
	}
	end, cpu := c.clock(), int64(0)
	if r.exit != nil {
		cpu = int64(r.exit.Usage.UserCPU + r.exit.Usage.SystemCPU)
		if r.exit.End != 0 {
			end = r.exit.End
		}
	}
	account, open := c.energy.book.End(energyRun(r.key), end, cpu)
	if open && account.Has() {
		usage.EnergyMJ, usage.HasEnergy = account.MJ, true
	}
}

// readMeter reads the meter if that is due; nil where there is nothing new.
func (a *Agent) readMeter(ctx context.Context) *energy.Reading {
	meter := a.deps.Meter
	if meter == nil {
		return nil
	}
	if meter.IsSlow() {
		return a.measured.Swap(nil)
	}
	now := a.deps.Clock.Now()
	if now.Sub(a.meterAt) < a.cfg.EnergyEvery && now >= a.meterAt {
		return nil
	}
	a.meterAt = now
	return a.askMeter(ctx, now)
}

// askMeter reads the meter and says once when it fails and when it works again.
func (a *Agent) askMeter(ctx context.Context, now spec.Instant) *energy.Reading {
	reading, err := a.deps.Meter.Read(ctx, now)
	if ctx.Err() != nil {
		return nil
	}
	a.deps.Telemetry.Collected(CollectEnergy, a.deps.Clock.Now().Sub(now), err)
	if failed := err != nil; failed != a.meterFails {
		a.meterFails = failed
		if failed {
			a.log.Warn(
				"the node's energy cannot be read; jobs have none while that lasts",
				"source",
				a.deps.Meter.Name(),
				"error",
				err,
			)
		} else {
			a.log.Info("the node's energy can be read again", "source", a.deps.Meter.Name())
		}
	}
	if err != nil {
		return nil
	}
	return reading
}

// runMeter reads a meter that takes its time, beside the other collections.
func (a *Agent) runMeter(ctx context.Context) {
	for {
		began := a.deps.Clock.Now()
		if reading := a.askMeter(ctx, began); reading != nil {
			// The power is that of the answer, however long the question took.
			reading.At = a.deps.Clock.Now()
			a.measured.Store(reading)
		}
		rest := a.cfg.EnergyEvery - a.deps.Clock.Now().Sub(began)
		if !a.sleepFor(ctx, max(rest, leastPause)) {
			return
		}
	}
}

// restoreEnergy takes up what was saved of the energy.
func (c *Core) restoreEnergy(s *saved) error {
	if c.energy.book == nil || len(s.Energy) == 0 {
		return nil
	}
	c.energy.gpus = s.GPUEnergy
	c.energy.last = s.GPUCounters
	return c.energy.book.Restore(s.Energy)
}

// saveEnergy gives what a restart needs to go on counting energy.
func (c *Core) saveEnergy(s *saved) error {
	if c.energy.book == nil {
		return nil
	}
	data, err := c.energy.book.Marshal()
	if err != nil {
		return errors.New("save energy accounts: " + err.Error())
	}
	s.Energy = data
	s.GPUEnergy = c.energy.gpus
	s.GPUCounters = c.energy.last
	return nil
}
