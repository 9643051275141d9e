package daemon

import (
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// cpuMark is the CPU time that a run had used at an instant; its zero value is
// not known.
type cpuMark struct {
	at  spec.Instant
	cpu spec.Span
}

// sampledUsage turns a collection of the runs into samples, if one is due: the
// first collection in each interval of the clock. What a run used is a mean
// since its sample before, or since its start; where neither is known, because
// the agent was started meanwhile, it is told with the sample after.
func (c *Core) sampledUsage(at spec.Instant, list []plan.Usage) {
	every := int64(c.cfg.UsageEvery)
	if every <= 0 {
		return
	}
	slot := int64(at) / every
	if slot == c.usageSlot {
		return
	}
	c.usageSlot = slot
	for i := range list {
		u := &list[i]
		r := c.runs[u.Key]
		if r == nil || r.phase != living || r.from == 0 || r.from > at {
			continue
		}
		before, now := r.usedAt, cpuMark{at: at, cpu: u.UserCPU + u.SystemCPU}
		if before.at == 0 && r.from >= c.cfg.Started {
			before.at = r.from
		}
		r.usedAt = now
		cpus := int64(noSample)
		if before.at != 0 && now.at > before.at && now.cpu >= before.cpu {
			cpus = int64(now.cpu-before.cpu) / max(int64(now.at-before.at)/1000, 1)
		}
		c.fx.Usage = append(c.fx.Usage, &apiv1.UsageSeries{Uid: u.Key.Job, Attempt: u.Key.Attempt, Step: u.Key.Step, JobId: uint32(r.facts.ID),
			User: r.facts.User, Account: r.facts.Account, Partition: r.facts.Partition,
			At: []int64{int64(at) / int64(spec.Second)}, Cpu: []int64{cpus}, Rss: []int64{u.RSS >> 10}})
	}
}

// addUsage puts one reading behind those of the same run.
func (b *sampleBatchOf) addUsage(u *apiv1.UsageSeries) {
	b.rows++
	for _, s := range b.usage {
		if s.Uid == u.Uid && s.Attempt == u.Attempt && s.Step == u.Step {
			s.At, s.Cpu, s.Rss = append(s.At, u.At...), append(s.Cpu, u.Cpu...), append(s.Rss, u.Rss...)
			return
		}
	}
	b.usage = append(b.usage, u)
}
