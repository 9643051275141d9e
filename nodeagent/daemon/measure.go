package daemon

import (
	"cmp"
	"context"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// attempt is what all runs of a job's try have in common.
type attempt struct {
	job spec.JobUID
	try uint32
}

// measureFor answers what runs have used so far. The shepherd is asked while
// others go on; an answer that it cannot give is none, which says that nothing
// is known here.
func (a *Agent) measureFor(ctx context.Context, s *session, measure *apiv1.Measure) {
	want := map[attempt]bool{}
	for _, key := range measure.GetAttempts() {
		want[attempt{spec.JobUID(key.GetJobUid()), key.GetAttempt()}] = true
	}
	a.inbox.putItems(func() {
		keys := a.core.livingRuns(want)
		answer := func(runs []*apiv1.Measurement) {
			s.sendMessage(
				&apiv1.AgentMessage{
					Kind: &apiv1.AgentMessage_Measured{
						Measured: &apiv1.Measured{Ask: measure.GetAsk(), Runs: runs},
					},
				},
			)
		}
		if len(keys) == 0 {
			answer(nil)
			return
		}
		a.wg.Go(func() {
			list, err := a.deps.Shepherd.Usage(ctx, keys...)
			if err != nil {
				a.log.Warn("running jobs cannot be measured", "error", err)
				return
			}
			at := a.deps.Clock.Now()
			a.countNetwork(list)
			a.inbox.putItems(func() { answer(a.core.Measure(at, list)) })
		})
	})
}

// livingRuns lists the runs of some attempts that have begun and not ended.
func (c *Core) livingRuns(want map[attempt]bool) []plan.RunKey {
	var keys []plan.RunKey
	for _, key := range c.sortedKeys() {
		if r := c.runs[key]; r.phase == living && r.from != 0 &&
			want[attempt{r.jobUID(), key.Attempt}] {
			keys = append(keys, key)
		}
	}
	return keys
}

// Measure takes readings of living runs and tells what these have used up to
// now, with their GPUs.
func (c *Core) Measure(at spec.Instant, list []plan.Usage) []*apiv1.Measurement {
	c.Usage(at, list)
	var measurements []*apiv1.Measurement
	for i := range list {
		usage := &list[i]
		r := c.runs[usage.Key]
		if r == nil || r.phase != living {
			continue // it ended meanwhile
		}
		now := spec.Usage{
			UserCPU:   usage.UserCPU,
			SystemCPU: usage.SystemCPU,
			PeakRSS:   max(usage.PeakRSS, r.memory.peak),
			HasRSS:    true,
			ReadB:     usage.ReadB,
			WriteB:    usage.WriteB,
			MajFaults: usage.MajFaults,
			MemMiBS:   r.memory.whole,
			OOMKilled: usage.OOMKills > 0,
			PeakVM:    max(usage.PeakVM, r.memory.vm),
			CPUKHz:    cmp.Or(usage.KHz, r.memory.khz),
			Counters:  usage.Counters,
		}
		if !r.isStep() {
			now.Counters = now.Counters.Add(c.sole.peekCounters(r.key))
		}
		if c.energy.book != nil {
			account, open := c.energy.book.Account(energyRun(usage.Key))
			if open && account.Has() {
				now.EnergyMJ, now.HasEnergy = account.MJ, true
			}
		}
		for _, account := range c.book.Accounts() {
			if account.Key.Job == r.jobUID() && account.Key.Attempt == usage.Key.Attempt &&
				usage.Key.Step == plan.StepBatch {
				now.GPUs = append(now.GPUs, c.gpuUsage(&account))
			}
		}
		measurements = append(
			measurements,
			&apiv1.Measurement{
				Run:    wireKey(usage.Key),
				At:     int64(at),
				Usage:  wire.Usage(&now),
				Rss:    usage.RSS,
				Vm:     usage.VM,
				PeakVm: now.PeakVM,
				HasVm:  now.PeakVM > 0,
				Pids:   usage.PIDs,
			},
		)
	}
	return measurements
}
