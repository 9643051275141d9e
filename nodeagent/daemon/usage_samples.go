package daemon

import (
	"cmp"

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

// sampledUsage turns a collection of the runs into samples, of those of which
// one is due: the first collection in each interval of the clock, which is the
// node's or, with --acctg-freq, the job's own. What a run used is a mean
// since its sample before, or since its start; where neither is known, because
// the agent was started meanwhile, it is told with the sample after.
func (c *Core) sampledUsage(at spec.Instant, list []plan.Usage) {
	for i := range list {
		usage := &list[i]
		r := c.runs[usage.Key]
		if r == nil || r.phase != living || r.from == 0 || r.from > at {
			continue
		}
		every := cmp.Or(r.facts.Every, c.cfg.UsageEvery)
		if every <= 0 || int64(at)/int64(every) == r.slot {
			continue
		}
		r.slot = int64(at) / int64(every)
		before, now := r.usedAt, cpuMark{at: at, cpu: usage.UserCPU + usage.SystemCPU}
		if before.at == 0 && r.from >= c.cfg.Started {
			before.at = r.from
		}
		r.usedAt = now
		cpus := int64(noSample)
		if before.at != 0 && now.at > before.at && now.cpu >= before.cpu {
			cpus = int64(now.cpu-before.cpu) / max(int64(now.at-before.at)/1000, 1)
		}
		c.fx.Usage = append(
			c.fx.Usage,
			&apiv1.UsageSeries{
				Uid:       usage.Key.Job,
				Attempt:   usage.Key.Attempt,
				Step:      usage.Key.Step,
				JobId:     uint32(r.facts.ID),
				User:      r.facts.User,
				Account:   r.facts.Account,
				Partition: r.facts.Partition,
				Seconds:   uint32(every / spec.Second),
				At: []int64{
					int64(at) / int64(spec.Second),
				},
				Cpu: []int64{cpus},
				Rss: []int64{usage.RSS >> 10},
			},
		)
	}
}

// addUsage puts one reading behind those of the same run.
func (b *sampleBatchOf) addUsage(usage *apiv1.UsageSeries) {
	b.rows++
	for _, series := range b.usage {
		if series.Uid == usage.Uid && series.Attempt == usage.Attempt && series.Step == usage.Step {
			series.At = append(series.At, usage.At...)
			series.Cpu = append(series.Cpu, usage.Cpu...)
			series.Rss = append(series.Rss, usage.Rss...)
			return
		}
	}
	b.usage = append(b.usage, usage)
}
