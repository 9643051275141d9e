package daemon

import (
	"slices"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/nodeagent/gpu/attrib"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// Bounds of what the controller is told about GPUs: one fault of a kind, GPU
// and number in a minute, with how often it happened; and no more than so many
// kinds of news waiting, whatever the hardware does.
const (
	faultEvery    = spec.Minute
	maxFaultGates = 256
	maxFaultsDue  = 128
)

// gateKey tells one kind of news from another.
type gateKey struct {
	uuid string
	kind spec.GPUFaultKind
	xid  int64
	// The holder is part of the key: what struck one job must not be counted
	// for the next one that got the GPU within the minute.
	job     spec.JobUID
	attempt uint32
}

// gate holds back what was said a moment ago.
type gate struct {
	said  spec.Instant
	held  spec.GPUFault // the newest that was held back
	count uint64        // how many were
}

// idleMark is since when a GPU of a run has had no process.
type idleMark struct {
	since spec.Instant
	used  int64     // time with a process, as far as it was counted
	told  spec.Span // how much idle time the controller knows of
}

// faults are what the node has to say about its GPUs.
type faults struct {
	gates map[gateKey]*gate
	order []gateKey // in which gates were made
	idle  map[attrib.Key]*idleMark
	due   int // reports in the outbox
}

// reportFault tells the controller, at once or, if it was told a moment ago, later.
func (c *Core) reportFault(fault spec.GPUFault) {
	key := gateKey{
		uuid:    fault.UUID,
		kind:    fault.Kind,
		xid:     fault.XID,
		job:     fault.Job,
		attempt: fault.Attempt,
	}
	g := c.faults.gates[key]
	if g == nil {
		if len(c.faults.order) >= maxFaultGates {
			delete(c.faults.gates, c.faults.order[0])
			c.faults.order = c.faults.order[1:]
		}
		g = &gate{}
		if c.faults.gates == nil {
			c.faults.gates = map[gateKey]*gate{}
		}
		c.faults.gates[key] = g
		c.faults.order = append(c.faults.order, key)
	}
	g.count += fault.Times()
	g.held = fault
	c.letOut(g)
}

// letOut sends what a gate holds back, if it is time.
func (c *Core) letOut(g *gate) {
	now := c.clock()
	if g.count == 0 || g.said != 0 && now.Sub(g.said) < faultEvery || c.faults.due >= maxFaultsDue {
		return
	}
	g.held.Count = g.count
	g.count, g.said = 0, now
	c.faults.due++
	c.outbox.addReport(
		&apiv1.Report{Kind: &apiv1.Report_GpuFault{GpuFault: wire.GPUFault(&g.held)}},
		plan.RunKey{},
		false,
	)
	c.fx.Send = true
}

// watchDevices turns a collection into news: the provider's events, and GPUs that are
// held without a process.
func (c *Core) watchDevices(reading *Reading) {
	for i := range reading.Events {
		event := &reading.Events[i]
		fault := spec.GPUFault{
			UUID: event.UUID,
			Kind: faultKind(event.Kind),
			Text: event.Text,
			At:   event.At,
		}
		if event.Kind == device.EventXID {
			fault.XID, fault.Class = int64(event.XID), device.ClassifyXID(event.XID).String()
		}
		if fault.Kind == 0 {
			continue
		}
		fault.Job, fault.Attempt = c.holderOf(event.UUID, event.At)
		c.reportFault(fault)
	}
	if reading.Err == nil {
		c.watchIdle()
	}
	for _, key := range c.faults.order {
		c.letOut(c.faults.gates[key])
	}
}

func faultKind(kind device.EventKind) spec.GPUFaultKind {
	switch kind {
	case device.EventXID:
		return spec.GPUXID
	case device.EventLost:
		return spec.GPULost
	case device.EventReturned:
		return spec.GPUReturned
	case device.EventThermal:
		return spec.GPUThermal
	case device.EventECC:
		return spec.GPUECC
	case device.EventMIGChanged:
		return spec.GPUMIGChanged
	}
	return 0
}

// holderOf is the one run that held a GPU at an instant (0 = now); none if several
// share it. An error often kills its job, so a run whose last reading is awaited
// still counts, and one that began after the error does not.
func (c *Core) holderOf(uuid string, at spec.Instant) (spec.JobUID, uint32) {
	var found *run
	for _, key := range c.sortedKeys() {
		r := c.runs[key]
		holds := r.phase == living || r.phase == held || r.phase == closing || r.phase == measuring
		if r.from == 0 || !holds || !slices.Contains(r.facts.GPUs, uuid) {
			continue
		}
		if at != 0 && r.from > at {
			continue
		}
		if found != nil {
			return 0, 0
		}
		found = r
	}
	if found == nil {
		return 0, 0
	}
	return found.jobUID(), found.key.Attempt
}

// watchIdle says which GPUs have had no process for IdleAfter, then after the
// grace that cancelling leaves, then each time it has doubled. Time that nobody
// observed counts as used: nobody knows that it was not.
func (c *Core) watchIdle() {
	if c.cfg.IdleAfter <= 0 {
		return
	}
	open := map[attrib.Key]bool{}
	for _, account := range c.book.Accounts() {
		if account.Share < whole {
			continue // whose processes they are nobody knows
		}
		open[account.Key] = true
		mark := c.faults.idle[account.Key]
		used := account.Allocated - account.NoProcess
		if mark == nil {
			mark = &idleMark{since: account.To.Add(-spec.Span(account.NoProcess)), used: used}
			if used > 0 {
				mark.since = account.To
			}
			if c.faults.idle == nil {
				c.faults.idle = map[attrib.Key]*idleMark{}
			}
			c.faults.idle[account.Key] = mark
		}
		if used > mark.used {
			mark.since = account.To
			mark.used = used
			mark.told = 0
		}
		idle := account.To.Sub(mark.since)
		if next := c.nextIdle(mark.told); idle >= next {
			mark.told = next
			c.reportFault(
				spec.GPUFault{
					UUID:    account.GPU,
					Kind:    spec.GPUIdle,
					At:      account.To,
					Job:     account.Job,
					Attempt: account.Attempt,
					Idle:    idle,
					Text:    "allocated, and no process on it",
				},
			)
		}
	}
	for key := range c.faults.idle {
		if !open[key] {
			delete(c.faults.idle, key)
		}
	}
}

// nextIdle is the idle time to speak of after some was told.
func (c *Core) nextIdle(told spec.Span) spec.Span {
	switch first, second := c.cfg.IdleAfter, c.cfg.IdleAfter+c.cfg.IdleGrace; {
	case told < first:
		return first
	case told < second:
		return second
	}
	return 2 * told
}
