package daemon

import (
	"context"

	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// leastPause lies between two collections of the GPUs, however many jobs come
// and go.
const leastPause = 50 * spec.Millisecond

// recheckEvery is the time between two looks at which GPUs there are: somebody
// may partition one while the agent runs, and no driver tells of it.
const recheckEvery = 30 * spec.Second

// gpuCollector reads the GPUs at every interval, and when a job that holds
// some begins or ends.
func (a *Agent) gpuCollector(ctx context.Context) {
	began := a.deps.Clock.Now()
	recheck := began.Add(recheckEvery)
	for {
		// From the beginning of one to that of the next: no interval of the clock
		// is left without one.
		due, stop := a.deps.Clock.After(max(began.Add(a.cfg.Interval).Sub(a.deps.Clock.Now()), 1))
		select {
		case <-ctx.Done():
			stop()
			return
		case <-due:
		case <-a.collect:
			stop()
		}
		began = a.deps.Clock.Now()
		if changed := a.readGPUs(ctx); changed || began >= recheck {
			a.recheckGPUs(ctx)
			recheck = began.Add(recheckEvery)
		}
		if !a.sleepFor(ctx, leastPause) {
			return
		}
	}
}

// recheckGPUs looks which GPUs there are.
func (a *Agent) recheckGPUs(ctx context.Context) {
	devices, err := a.deps.GPUs.Inventory(ctx)
	if err != nil {
		if ctx.Err() == nil {
			a.log.Warn("this node's GPUs cannot be listed; the last list stands", "error", err)
		}
		return
	}
	a.inbox.putItems(func() {
		if a.core.Changed(devices) {
			a.deps.Telemetry.SetDevices(a.core.Missed(devices))
		}
	})
}

// readGPUs makes one collection; changed tells that devices have come or gone.
func (a *Agent) readGPUs(ctx context.Context) (changed bool) {
	began := a.deps.Clock.Now()
	reading := &Reading{}
	reading.Err = a.deps.GPUs.Sample(ctx, began, &reading.Sample)
	if reading.Err == nil {
		var err error
		reading.Processes, err = a.deps.GPUs.Processes(ctx, nil)
		reading.Listed = err == nil
		reading.Events, err = a.deps.GPUs.Events(ctx, began, nil)
		if err != nil {
			a.log.Warn("GPU events cannot be read", "error", err)
		}
		a.deps.Telemetry.SetSample(&reading.Sample)
	}
	if ctx.Err() != nil {
		return false
	}
	a.deps.Telemetry.Collected(CollectGPU, a.deps.Clock.Now().Sub(began), reading.Err)
	for i := range reading.Events {
		event := &reading.Events[i]
		a.deps.Telemetry.GPUEvent(event.Kind)
		changed = changed || event.Kind == device.EventLost || event.Kind == device.EventReturned ||
			event.Kind == device.EventMIGChanged
		a.log.Warn(
			"GPU event",
			"kind",
			event.Kind.String(),
			"gpu",
			event.UUID,
			"xid",
			event.XID,
			"class",
			device.ClassifyXID(event.XID).String(),
			"text",
			event.Text,
		)
	}
	a.inbox.putItems(func() {
		a.core.Collected(reading)
		a.deps.Telemetry.SetGPUAccounts(a.core.Accounts())
	})
	return changed
}

// runCollector reads the jobs' use and the machine's at every interval.
func (a *Agent) runCollector(ctx context.Context) {
	sums := jobSums{}
	countAt := spec.Instant(0)
	for {
		a.readHost(ctx)
		now := a.deps.Clock.Now()
		if now >= countAt {
			countAt = now.Add(a.cfg.CountEvery)
			a.countNode(ctx)
		}
		a.readUsage(ctx, &sums)
		if !a.sleepFor(ctx, a.cfg.Interval) {
			return
		}
	}
}

func (a *Agent) readHost(ctx context.Context) {
	began := a.deps.Clock.Now()
	load, free, err := a.deps.Host.Load(ctx)
	a.deps.Telemetry.Collected(CollectNode, a.deps.Clock.Now().Sub(began), err)
	if err != nil {
		load, free = -1, -1
	}
	a.inbox.putItems(func() { a.load, a.free = load, free })
}

func (a *Agent) readUsage(ctx context.Context, sums *jobSums) {
	began := a.deps.Clock.Now()
	reading := a.readMeter(ctx)
	busy, err := a.deps.Host.BusyCPU()
	if err != nil {
		busy = -1
	}
	list, err := a.deps.Shepherd.Usage(ctx)
	if ctx.Err() != nil {
		return
	}
	at := a.deps.Clock.Now()
	a.deps.Telemetry.Collected(CollectJobs, at.Sub(began), err)
	if err != nil {
		a.inbox.putItems(func() { a.relist = true }) // the next list tells whether the shepherd is back
		return
	}
	a.countNetwork(list)
	jobs := sums.addReading(list)
	a.inbox.putItems(func() {
		a.rememberGroups(list)
		for i := range jobs {
			job := plan.Key(uint64(jobs[i].UID), jobs[i].Attempt, plan.StepBatch)
			job.Epoch = jobs[i].Key.Epoch
			jobs[i].Counters = jobs[i].Counters.Add(a.core.sole.peekCounters(job))
		}
		a.deps.Telemetry.SetUsage(jobs)
		if reading != nil {
			a.core.Energy(reading, busy, list)
		}
		if figures, ok := a.core.EnergyFigures(); ok {
			a.deps.Telemetry.SetEnergy(figures)
		}
		a.core.Usage(at, list)
		a.core.sampledUsage(at, list)
	})
}

// assignSimulated tells simulated GPUs who holds them.
func (a *Agent) assignSimulated() {
	sim, ok := a.deps.GPUs.(Simulator)
	if !ok {
		return
	}
	if err := sim.Assign(a.deps.Clock.Now(), a.core.Assignments()); err != nil {
		a.log.Warn("the simulated GPUs do not take their jobs", "error", err)
	}
}
