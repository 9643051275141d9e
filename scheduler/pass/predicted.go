package pass

import (
	"cmp"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/predict"
	"github.com/musterhpc/muster/scheduler/timeline"
	"github.com/musterhpc/muster/spec"
)

// With bf_promise=prediction, jobs behind the firm reservations are ordered, and
// fitted into the gaps before these, by predicted run times: the worst expected
// slowdown first. Running jobs still count until their time limits, so a firm reservation moves
// only if a job that was started in a gap outlives its prediction. How far it may move is
// bounded twice. Once a firm job is planned later than it was first promised by more
// than bf_promise_slack, gaps are filled by time limits until it has started. And once
// it has waited for maxPredictedWait they are, late or not: from then on no job that
// starts after it came to the front delays it at all.

// defaultPromiseSlack is bf_promise_slack where it is not configured, in percent.
const defaultPromiseSlack = 10

// maxPredictedWait is how long a firm job may have been eligible while gaps are still
// filled by predictions. A job that needs most of a machine can lose days to a few
// long runs that were predicted to be short, and everybody behind it loses them too:
// on two of six parts of the Graham log the mean bounded slowdown was 22 and 4 times
// that under EASY without this bound. It was chosen on that log (decision 201).
const maxPredictedWait = 2 * spec.Day

// gapOrder is where the current job of a class stands among those that fill gaps;
// the lowest comes first. By time limits, the shortest comes first. By predictions,
// the job comes first whose slowdown (wait and run, over run) would be the worst:
// short jobs do, and so does whoever has waited for long in proportion.
func (p *pass) gapOrder(class *jobClass) spec.Span {
	job := class.currentMember().job
	limit := job.Spec.Time.Limit
	if !p.cfg.Sched.PredictRuns || job.Het != nil {
		return limit
	}
	const scale = 1_000_000
	seconds := max(int64(p.predictRun(class, job, limit).Length/spec.Second), 1)
	waited := max(int64(p.now.Sub(job.Submitted)/spec.Second), 0)
	return spec.Span(seconds * scale / (waited + seconds))
}

// predictRun is how long a job of a class will probably run.
func (p *pass) predictRun(class *jobClass, job *state.Job, limit spec.Span) predict.Prediction {
	if p.options.Predict != nil {
		return p.options.Predict(p.snapshot, job, limit)
	}
	return class.forecast.Run(p.snapshot, job, limit)
}

// predictEnd is when a running job will probably end: as the similar runs of its user did. One
// that has outlived the quantile is taken to run as long as the longest of them, and one that has
// outlived that too, or of which nothing is known, until its time limit.
func (p *pass) predictEnd(job *state.Job) spec.Instant {
	deadline := job.Deadline()
	var prediction predict.Prediction
	if p.options.Predict != nil {
		prediction = p.options.Predict(p.snapshot, job, job.Limit)
	} else {
		prediction = predict.Run(p.snapshot, job, job.Limit)
	}
	if !prediction.Known() {
		return deadline
	}
	began := max(job.Started, job.Ready).Add(job.Paused)
	for _, length := range []spec.Span{prediction.Length, prediction.Longest} {
		if end := began.Add(length); end > p.now {
			return min(end, deadline)
		}
	}
	return deadline
}

// findPredicted looks for a start at this instant for a job that cannot start
// now with its whole time limit, but probably ends before the reservation that is
// in its way.
func (p *pass) findPredicted(
	class *jobClass,
	job *state.Job,
	found timeline.Slot,
	blocked *spec.Reason,
) (slot timeline.Slot, planned spec.Span, ok bool) {
	startsAnyway := blocked == nil && found.Start <= p.now
	if p.phase != gaps || !p.cfg.Sched.PredictRuns || p.promiseLate || startsAnyway {
		return timeline.Slot{}, 0, false
	}
	if !p.mayHaveRoom(class) {
		return timeline.Slot{}, 0, false
	}
	prediction := p.predictRun(class, job, class.demand.Limit)
	if !prediction.Known() || prediction.Length >= class.demand.Limit {
		return timeline.Slot{}, 0, false
	}
	demand := class.demand
	demand.Limit = prediction.Length
	options := class.nodes.Options(
		p.cfg,
		class.part.Spec,
		class.request.representative.Spec,
		p.trees,
	)
	options.Mix = p.options.Mix
	slot, ok = p.line.Earliest(
		p.line.NewQuery(demand, class.nodes.Set, options, p.barsOf(class)),
		p.now,
		nil,
	)
	return slot, prediction.Length, ok
}

// boundDelay compares the start that is planned for a firm job with the one it
// was first promised, and records the promise where it is the first.
func (p *pass) boundDelay(job *state.Job, planned spec.Instant, reason *spec.Reason) {
	if p.phase != firmly || !p.cfg.Sched.PredictRuns {
		return
	}
	if job.Eligible != 0 && p.now.Sub(job.Eligible) > maxPredictedWait {
		p.promiseLate = true
	}
	if job.Promised == 0 {
		p.firstPromises = append(
			p.firstPromises,
			event.JobReason{UID: job.UID, Reason: *reason, Promise: planned},
		)
		return
	}
	slack := spec.Span(p.cfg.Sched.PromiseSlack)
	if slack == 0 {
		slack = defaultPromiseSlack
	}
	promisedWait := job.Promised.Sub(job.Submitted)
	if planned > job.Promised.Add(promisedWait/100*slack) {
		p.promiseLate = true
	}
}

// addPromises writes the first promises of this pass to the reasons of their
// jobs, which are sorted by job.
func (p *pass) addPromises() {
	for _, promise := range p.firstPromises {
		at, found := slices.BinarySearchFunc(
			p.out.Reasons,
			promise.UID,
			func(r event.JobReason, uid spec.JobUID) int {
				return cmp.Compare(r.UID, uid)
			},
		)
		if found {
			p.out.Reasons[at].Promise = promise.Promise
			continue
		}
		p.out.Reasons = slices.Insert(p.out.Reasons, at, promise)
	}
}
