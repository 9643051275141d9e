package daemon

import (
	"cmp"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
	"google.golang.org/protobuf/proto"
)

// Heard takes the shepherd's news. Exits may come again.
func (c *Core) Heard(batch []plan.Event) {
	for i := range batch {
		switch event := &batch[i]; {
		case event.Exited != nil:
			c.noteExited(event.Exited)
		case event.Started != nil:
			c.adoptRun(event.Started)
		}
	}
}

// noteExited takes the end of a run.
func (c *Core) noteExited(exit *plan.Exit) {
	if c.recent.of[exit.Key] != nil {
		c.fx.Forget = append(
			c.fx.Forget,
			exit.Key,
		) // the acknowledgement did not reach the shepherd
		return
	}
	r := c.runs[exit.Key]
	if r == nil {
		r = &run{
			key:    exit.Key,
			wanted: c.wantsAttempt(exit.Key),
			facts:  facts{Batch: exit.Key.Step == plan.StepBatch},
		}
		c.runs[exit.Key] = r
	}
	if r.phase > held {
		return
	}
	if r.from == 0 && exit.Start != 0 {
		c.noteBegan(r, exit.Start)
	}
	r.exit = exit
	r.spec = nil
	r.early = nil
	c.measureEnd(r)
}

// measureEnd ends a run's time on the node: at once, or after one more reading of
// its GPUs.
func (c *Core) measureEnd(r *run) {
	if !r.isStep() && c.closeSteps(r) {
		r.phase, c.fx.Jobs = closing, true
		return
	}
	r.phase, r.since = measuring, c.clock()
	c.fx.Jobs = true
	r.awaitsGPUs = c.gpus && r.from != 0 && len(r.facts.GPUs)+len(r.facts.Shares) > 0
	r.awaitsCount = !r.isStep() && c.needsCount(r)
	c.fx.Collect = c.fx.Collect || r.awaitsGPUs
	c.fx.CountNode = c.fx.CountNode || r.awaitsCount
	c.finishMeasured(r)
}

// finishMeasured reports the end of a run that waits for no reading any more.
func (c *Core) finishMeasured(r *run) {
	if !r.awaitsGPUs && !r.awaitsCount {
		c.finishRun(r)
	}
}

// finishRun reports the end of a run, has its epilog run, and its private folders
// removed: the node is given back when they are gone.
func (c *Core) finishRun(r *run) {
	r.usage = c.usageOf(r)
	exit := r.exit
	if r.isStep() {
		ended := runEnded(exit)
		ended.Usage = wire.Usage(r.usage)
		if job := c.runs[jobKey(r.key)]; job != nil {
			used := *r.usage
			used.Tasks = nil // those of a step are told apart, not of several steps
			if r.isExtern() {
				used.OOMKilled = false // a login that needed too much is not the job's failure
			}
			job.steps = job.steps.Add(used)
		}
		c.reportStep(r, ended)
		return
	}
	epilog := c.cfg.Epilog && r.env != nil
	if !epilog && c.cfg.Node.Space == nil {
		c.giveNodeBack(r, "")
		return
	}
	r.phase = cleaning
	c.closeAccounts(r)
	c.fx.Jobs = true
	if exit != nil && !r.unborn && !exit.Failure.NodeFault() {
		c.queueReport(r, &apiv1.Report{Kind: &apiv1.Report_Ended{Ended: runEnded(exit)}}, false)
	}
	clean := Script{Key: r.key}
	if epilog {
		clean.Env = plan.EpilogEnv(r.env, exit)
	}
	c.fx.Clean = append(c.fx.Clean, clean)
}

// Abandoned picks the attempts that are over of those that have private folders.
// What a job has here was made after the agent heard of it: an attempt that is
// not known any more needs nothing. It is for lists that are made before the call.
func (c *Core) Abandoned(spaces []plan.RunKey) []plan.RunKey {
	if !c.complete { // the controller has not said yet what it wants here
		return nil
	}
	known := make(map[plan.RunKey]bool, len(c.runs))
	for key := range c.runs {
		known[jobKey(key)] = true
	}
	var keys []plan.RunKey
	for _, key := range spaces {
		if !known[key] && !c.wantsAttempt(key) && !c.unknown[key] {
			keys = append(keys, key)
		}
	}
	return keys
}

// Cleaned takes the end of an epilog; why is empty when it went well.
func (c *Core) Cleaned(key plan.RunKey, reason string) {
	r := c.runs[key]
	if r == nil || r.phase != cleaning {
		return
	}
	if reason != "" {
		c.log.Error("the epilog failed", aboutRun(r), "why", reason)
	}
	c.giveNodeBack(r, reason)
}

// giveNodeBack gives the node back.
func (c *Core) giveNodeBack(r *run, drain string) {
	exit := r.exit
	done := &apiv1.NodeDone{Usage: wire.Usage(r.usage), Drain: drain}
	if r.extern != nil {
		done.Extern = wire.Usage(r.extern)
	}
	if exit != nil {
		done.Batch = runEnded(exit)
		if exit.Failure.NodeFault() {
			text := strings.TrimSuffix("the batch script could not be started ("+
				exit.Failure.String()+"): "+exit.Message, ": ")
			c.log.Error(
				"a job's script could not be started",
				aboutRun(r),
				"why",
				text,
			)
			// A shepherd that died before it began a run says nothing about the node.
			c.reportFailed(
				r,
				refusal{text: text, drain: exit.Failure != plan.NotBegun},
				int32(exit.Failure),
			)
		}
	}
	c.queueReport(r, &apiv1.Report{Kind: &apiv1.Report_NodeDone{NodeDone: done}}, true)
}

// refuseRun reports a run that was not begun.
func (c *Core) refuseRun(r *run, why refusal) {
	if r.isStep() {
		c.stepFailed(r, why.text)
		return
	}
	c.log.Error(
		"a job is not started",
		aboutRun(r),
		"why",
		why.text,
		"drain",
		why.drain,
	)
	c.reportFailed(r, why, 0)
	if r.env != nil { // its prolog ran
		c.endUnbegun(
			r,
			&plan.Exit{Key: r.key, Code: 1, Start: c.clock(), End: c.clock(), Message: why.text},
		)
		return
	}
	done := &apiv1.NodeDone{}
	if r.facts.Batch {
		now := int64(c.clock())
		done.Batch = &apiv1.RunEnded{
			Started:  now,
			Ended:    now,
			ExitCode: 1,
			Detail:   validText(why.text),
		}
	}
	c.queueReport(r, &apiv1.Report{Kind: &apiv1.Report_NodeDone{NodeDone: done}}, true)
}

const sigTerm = 15

// reportCancelled reports a run that was ended before it began.
func (c *Core) reportCancelled(r *run) {
	if r.isStep() {
		now := int64(c.clock())
		c.reportStep(
			r,
			&apiv1.RunEnded{
				Started:    now,
				Ended:      now,
				ExitSignal: sigTerm,
				Detail:     "ended before it began",
			},
		)
		return
	}
	if r.env != nil { // its prolog ran
		c.endUnbegun(
			r,
			&plan.Exit{
				Key:     r.key,
				Signal:  sigTerm,
				Start:   c.clock(),
				End:     c.clock(),
				Message: "ended before it began",
			},
		)
		return
	}
	now := int64(c.clock())
	done := &apiv1.NodeDone{
		Batch: &apiv1.RunEnded{
			Started:    now,
			Ended:      now,
			ExitSignal: sigTerm,
			Detail:     "ended before it began",
		},
	}
	c.queueReport(r, &apiv1.Report{Kind: &apiv1.Report_NodeDone{NodeDone: done}}, true)
}

func (c *Core) reportFailed(r *run, why refusal, code int32) {
	c.queueReport(
		r,
		&apiv1.Report{
			Kind: &apiv1.Report_LaunchFailed{
				LaunchFailed: &apiv1.LaunchFailed{
					Text:      why.text,
					Code:      code,
					DrainNode: why.drain,
					Hold:      why.hold,
				},
			},
		},
		false,
	)
}

// queueReport queues a report; the last one of a run ends its part here.
func (c *Core) queueReport(r *run, message *apiv1.Report, last bool) {
	if last {
		c.closeAccounts(r)
		r.phase = reported
		r.spec = nil
		r.retry = false
		c.fx.Jobs = true
	}
	c.outbox.addReport(message, r.key, last)
	c.fx.Send = true
}

// ImageResolved reports what the name of a run's image means, unless the controller
// has said that.
func (c *Core) ImageResolved(spec *plan.RunSpec, digest string) {
	r := c.runs[spec.Key]
	if r == nil || spec.Container.Digest != "" {
		return
	}
	c.queueReport(r, &apiv1.Report{Kind: &apiv1.Report_ImageResolved{
		ImageResolved: &apiv1.PinnedImage{Image: spec.Container.Image, Digest: digest},
	}}, false)
}

// repeatEnd answers a controller that asks for a run whose end it has
// acknowledged: its ledger may have lost the fact.
func (c *Core) repeatEnd(key plan.RunKey, last *apiv1.Report) {
	for _, p := range c.outbox.queue {
		if p.run == key && p.last {
			return // on its way
		}
	}
	message, ok := proto.Clone(last).(*apiv1.Report)
	if !ok {
		return
	}
	c.outbox.addReport(message, key, true)
	c.fx.Send = true
}

// releaseRun drops a run without a word.
func (c *Core) releaseRun(r *run) {
	c.closeAccounts(r)
	delete(c.runs, r.key)
	c.fx.Jobs = true
}

// validText is what may stand in a report: the words of a user's script need not be
// UTF-8, and a message that is not cannot be sent.
func validText(text string) string { return strings.ToValidUTF8(text, "\ufffd") }

// runEnded writes an exit as the controller learns it.
func runEnded(exit *plan.Exit) *apiv1.RunEnded {
	ended := &apiv1.RunEnded{
		Started:    int64(exit.Start),
		Ended:      int64(exit.End),
		ExitCode:   exit.Code,
		ExitSignal: exit.Signal,
		Unknown:    exit.Unknown(),
		Oom:        exit.OOM,
		Detail:     validText(exit.Message),
	}
	if ended.Started == 0 {
		ended.Started = ended.Ended
	}
	if ended.Unknown {
		ended.ExitCode, ended.ExitSignal = 0, 0
	}
	return ended
}

// memoryUse is the integral of a run's memory.
type memoryUse struct {
	at    spec.Instant // counted until here
	rss   int64        // bytes, at the last reading
	peak  int64
	seen  bool
	whole int64 // MiB·s
	rest  int64 // KiB·ms below one MiB·s
	vm    int64 // bytes of address space, the most
	khz   int64 // mean frequency of its CPUs, as last told
}

const kibMsPerMiBs = 1024 * 1000

// countUntil counts the time up to an instant with so many bytes.
func (m *memoryUse) countUntil(at spec.Instant, bytes int64) {
	if at > m.at && m.at != 0 {
		ms := int64(at.Sub(m.at) / spec.Millisecond)
		sum := m.rest + (bytes>>10)*ms
		m.whole += sum / kibMsPerMiBs
		m.rest = sum % kibMsPerMiBs
		m.at = m.at.Add(spec.Span(ms) * spec.Millisecond)
	}
}

// usageOf is what a run used, and, of a job, what its steps on this node did:
// the job's part of the node is theirs too.
func (c *Core) usageOf(r *run) *spec.Usage {
	own := c.ownUsage(r)
	if r.isStep() {
		return own
	}
	sum := own.Add(r.steps)
	if r.steps.HasRSS {
		sum.PeakRSS = max(sum.PeakRSS, r.summed)
	}
	return &sum
}

// ownUsage is what a run used, from the kernel's final counters and from what
// was read while it lived. The time after the last reading counts with that
// reading's memory; a run that was never read counts with its peak.
func (c *Core) ownUsage(r *run) *spec.Usage {
	out := &spec.Usage{GPUs: c.endAccounts(r)}
	c.endEnergy(r, out)
	out.Counters = c.countersOf(r)
	exit := r.exit
	if exit == nil {
		return out
	}
	usage := &exit.Usage
	out.UserCPU = usage.UserCPU
	out.SystemCPU = usage.SystemCPU
	out.MajFaults = usage.MajFaults
	out.ReadB, out.WriteB = usage.ReadB, usage.WriteB
	out.PeakRSS = max(usage.PeakRSS, r.memory.peak)
	out.HasRSS = exit.Started && out.PeakRSS > 0
	out.PeakVM, out.CPUKHz = max(usage.PeakVM, r.memory.vm), cmp.Or(usage.KHz, r.memory.khz)
	out.OOMKilled = exit.OOM
	out.Tasks = usage.Tasks.On(c.cfg.Node.Name)
	level := r.memory.rss
	if !r.memory.seen {
		level = out.PeakRSS
	}
	r.memory.countUntil(exit.End, level)
	out.MemMiBS = r.memory.whole
	return out
}

// Usage takes readings of the living runs' memory, and ends those that use
// more than they were given where the site wants that.
func (c *Core) Usage(at spec.Instant, list []plan.Usage) {
	together := map[*run]int64{}
	for i := range list {
		usage := &list[i]
		r := c.runs[usage.Key]
		if r == nil || r.phase != living {
			continue
		}
		if job := c.runs[jobKey(usage.Key)]; job != nil {
			together[job] += usage.RSS
			job.summed = max(job.summed, together[job])
		}
		r.memory.countUntil(at, usage.RSS)
		r.memory.rss = usage.RSS
		r.memory.peak = max(r.memory.peak, usage.RSS, usage.PeakRSS)
		r.memory.seen = true
		r.memory.vm, r.memory.khz = max(r.memory.vm, usage.PeakVM), cmp.Or(usage.KHz, r.memory.khz)
		limit := r.facts.MemoryMiB << 20
		if c.cfg.OverMemoryKill && limit > 0 && usage.RSS > limit && !r.over {
			r.over = true
			c.log.Warn(
				"a job uses more memory than it was given and is ended",
				aboutRun(r),
				"bytes",
				usage.RSS,
				"given",
				limit,
			)
			c.fx.Terminate = append(
				c.fx.Terminate,
				plan.Terminate{
					Key:    r.key,
					Scope:  scopeOfRun(r.key),
					Grace:  0,
					Notice: overMemory(r, usage.RSS, limit),
				},
			)
		}
	}
}
