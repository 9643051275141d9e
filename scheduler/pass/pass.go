// Package pass runs over the queue of a frozen state in order of priority. It
// starts what fits, reserves the earliest start for what does not, and says why each
// job waits. What it proposes is committed by package decide, which checks each part
// against the state as it is then.
package pass

import (
	"fmt"
	"math"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/state/pmap"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/scheduler/commit"
	"github.com/musterhpc/muster/scheduler/eligible"
	"github.com/musterhpc/muster/scheduler/guarantee"
	"github.com/musterhpc/muster/scheduler/limits"
	"github.com/musterhpc/muster/scheduler/order"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/scheduler/predict"
	"github.com/musterhpc/muster/scheduler/preempt"
	"github.com/musterhpc/muster/scheduler/timeline"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// Outcome is what a pass proposes. It was computed on a snapshot; committing
// it (Starts) checks each part against the head.
type Outcome struct {
	commit.Proposal
	Plan     *view.Plan
	Promises *Promises
	Depth    int64 // jobs and tasks that were tried
	Queue    int64 // pending records
	Exit     string
	// Again tells that another pass may have jobs make room that started in this one.
	Again bool
	// Wake is when time alone changes something for a waiting job: its begin
	// time, a delayed dependency, its deadline. FarFuture if nothing does.
	Wake spec.Instant
	// Ahead is the state with the starts made, where nothing else is proposed but
	// reasons, for a caller that asked for it (PassOptions.Alone); else nil.
	Ahead *trial.Trial
}

// Options bound and guide a pass.
type Options struct {
	// Starts is the most jobs to start; 0 = no bound, negative = none. A
	// bound keeps one batch of events small; the next pass goes on.
	Starts int
	// Plan is the plan of the pass before: a job that cannot start earlier
	// than it promised keeps the nodes it promised. Without it promises to
	// jobs behind the first may move.
	Plan *view.Plan
	// Queue remembers the waiting jobs between passes. It makes a pass
	// cheaper and nothing else.
	Queue *Queue
	// Discipline bends the rules by which jobs overtake each other; the zero
	// value is what the configuration says.
	Discipline Discipline
	// Mix is what jobs are expected to ask for of the GPUs of a node, so that they
	// are placed where they take least from others. Nil: best fit, or what waits
	// and runs now where the configuration says so.
	Mix *place.Mix
	// Predict says how long a job will probably run, where another method than that of
	// package predict is to be judged. It must be a function of its arguments.
	Predict Predictor
	// EndsPredicted takes running jobs to end when their users' similar runs did, not at
	// their time limits, to say when a job would start then. Nothing may be started or
	// promised by such a pass.
	EndsPredicted bool
	// Keep keeps the promises of the previous pass: every job keeps the start
	// that it was promised unless it can have an earlier one. Without it a pass
	// plans anew, in order of priority.
	Keep *Promises
	// Settled leaves every job that has a promise for later where it is: only
	// jobs without one, and those whose time has come, are looked at.
	Settled bool
	// Yield, if set, is called every few jobs: whoever runs the pass may let
	// others go first. It changes nothing of the outcome.
	Yield func()
	// Alone tells that nothing happens between the pass and its commit, that the
	// state is one to be thrown away (Draft), and that nobody wants to know why
	// jobs wait: only reasons that decide something are proposed, and the caller
	// may go on with the state that the pass made its starts in.
	Alone bool
	// Incremental starts what can start inside the plan that is kept, and
	// leaves the plan and all reasons as they are. Without a plan to keep it
	// changes nothing.
	Incremental bool

	// ran is the state before the starts that this pass has made already, which
	// is repeated; nil: it has made none.
	ran *state.State
}

// Predictor predicts the length of a job that runs under a time limit.
type Predictor func(*state.State, *state.Job, spec.Span) predict.Prediction

// Discipline holds the parameters by which the classic policies differ from
// each other: first come first served reserves nothing and lets nobody
// overtake, EASY reserves for the first job only, conservative backfill for
// all.
type Discipline struct {
	Depth int64 // jobs that get a reservation; 0 = bf_max_job_test
	// Strict lets no job of a partition start before an earlier one.
	Strict bool
	// Shortest looks at the jobs behind the last reservation by time limit, the
	// shortest first.
	Shortest bool
}

const (
	defaultDepth = 500 // bf_max_job_test
	exitEnd      = "end of job queue"
	exitDepth    = "bf_max_job_test"
	exitStarts   = "start limit"
)

// pass is one run over the queue.
type pass struct {
	snapshot *state.State
	trial    *trial.Trial // a fork of it: starts are folded in, so that limits see them
	cfg      *spec.Config
	now      spec.Instant
	options  Options

	queue *Queue
	ctx   *order.Context
	line  *timeline.Timeline
	out   *Outcome

	phase  phase
	strict bool        // nothing may overtake
	stopAt spec.JobUID // look no further than this job; 0 = look at all
	moved  bool        // a job started that had a reservation in another partition

	promiseLate   bool              // a firm job is planned later than its promise allows
	firstPromises []event.JobReason // of jobs that are firm for the first time

	marks        map[spec.JobUID]mark
	firstWaiting []spec.JobUID  // by partition: the first job that waits for resources
	lastPlanned  []spec.Instant // by partition: the last start that was planned

	sizes      limits.Sizes          // what QOS with the flag Relative are per cent of
	guarantees *guarantee.Guarantees // nil: nothing is guaranteed
	trees      eligible.Trees        // of switches

	// What each of these knows beside the pass is its own.
	planner     *planner
	reasons     *reasons
	claims      *claims
	preemption  *preemption
	turns       *turns
	het         *het
	incremental *incremental
}

// mark is what happened to a job in the pass.
type mark uint8

const (
	touched    mark = 1 << iota // some of it started: the snapshot's record is old
	reserved                    // it has a reservation in one of its partitions
	preempting                  // other jobs make room for it
	claiming                    // they did: it starts where they were
	seen                        // a heterogeneous job was looked at
)

// Pass runs over the whole queue of a frozen state in order of priority:
// starts what fits, reserves the earliest start for what does not (a lower
// job starts only if it delays none of these), and says why each job waits.
func Pass(cluster *state.State, now spec.Instant, options Options) (*Outcome, error) {
	p := newPass(cluster, now, options)
	if p.incremental.mayRun() {
		if err := p.incremental.runQuick(); err != nil {
			return nil, err
		}
		p.out.Plan, p.out.Promises = options.Plan, options.Keep
		return p.out, nil
	}
	if err := p.run(); err != nil {
		return nil, err
	}
	if p.moved {
		return p.repeatPass()
	}
	outcome := p.finishPass()
	if options.Alone && len(outcome.Starts) > 0 &&
		len(outcome.Preempts)+len(outcome.Turns)+len(outcome.Eligible)+len(outcome.Ends)+
			len(p.claims.holds) == 0 {
		outcome.Ahead = p.trial
	}
	return outcome, nil
}

// repeatPass repeats a pass in which a job started in one of its partitions after
// it had got a reservation in another: with its starts made, without that
// reservation, and without those who were to make room for it there.
func (p *pass) repeatPass() (*Outcome, error) {
	first := p.out
	options := p.options
	if options.ran == nil {
		options.ran = p.snapshot
	}
	t := trial.On(p.snapshot.Draft(), p.now, event.Actor{}, "schedule")
	first.Preempts = slices.DeleteFunc(first.Preempts, func(pr commit.Preempt) bool {
		return slices.ContainsFunc(first.Starts, func(s commit.Start) bool { return s.UID == pr.For }) && !p.wasReplaced(&pr)
	})
	for i := range first.Preempts {
		if err := commit.On(t).PreemptJob(&first.Preempts[i]); err != nil {
			return nil, fmt.Errorf("pass: job uid %d: %w", first.Preempts[i].Victim.UID, err)
		}
	}
	for i := range first.Turns {
		if err := commit.On(t).TakeTurn(&first.Turns[i]); err != nil {
			return nil, fmt.Errorf("pass: job uid %d: %w", first.Turns[i].UID, err)
		}
	}
	for i := range first.Starts {
		if _, err := commit.On(t).StartJob(&first.Starts[i]); err != nil {
			return nil, fmt.Errorf("pass: job uid %d: %w", first.Starts[i].UID, err)
		}
	}
	if options.Starts > 0 {
		options.Starts -= len(first.Starts)
		if options.Starts <= 0 {
			options.Starts = -1
		}
	}
	options.Queue = nil
	outcome, err := Pass(t.Freeze(), p.now, options)
	if err != nil {
		return nil, err
	}
	for i := range outcome.Preempts {
		outcome.Preempts[i].After += len(first.Starts)
	}
	outcome.Starts = append(first.Starts, outcome.Starts...)
	outcome.Preempts, outcome.Turns = append(first.Preempts, outcome.Preempts...),
		append(first.Turns, outcome.Turns...)
	// what started may have made others ready
	outcome.Eligible = first.withEligible(outcome.Eligible)
	outcome.Ends = first.Ends
	outcome.Queue = first.Queue
	outcome.Depth = first.Depth + outcome.Depth
	outcome.Again = outcome.Again || p.preemption.startsMayGo()
	outcome.Wake = min(outcome.Wake, first.Wake)
	outcome.Plan.Seq = p.snapshot.Seq
	outcome.Ahead = nil
	return outcome, nil
}

// wasReplaced tells whether a job that was to make room was gone at once, as its
// nodes were not up yet, and something started where it was.
func (p *pass) wasReplaced(pr *commit.Preempt) bool {
	victim := p.snapshot.Job(pr.Victim.UID)
	return victim != nil && victim.Configuring() &&
		slices.ContainsFunc(p.out.Starts[pr.After:], func(start commit.Start) bool {
			return slices.ContainsFunc(
				start.Alloc.Nodes,
				func(a spec.NodeAlloc) bool { return victim.Alloc.Index(a.ID) >= 0 },
			)
		})
}

// withEligible adds to the jobs that became eligible those of a second list.
func (o *Outcome) withEligible(more []spec.JobUID) []spec.JobUID {
	var have state.Set
	own := new(pmap.Owner)
	for _, uid := range o.Eligible {
		have.Set(own, uint64(uid), struct{}{})
	}
	for _, uid := range more {
		if !have.Has(uint64(uid)) {
			o.Eligible = append(o.Eligible, uid)
		}
	}
	return o.Eligible
}

func newPass(cluster *state.State, now spec.Instant, options Options) *pass {
	p := &pass{
		snapshot: cluster,
		trial:    trial.On(cluster.Draft(), now, event.Actor{}, "schedule"),
		cfg:      cluster.Config,
		now:      max(now, cluster.At),
		options:  options,
		queue:    options.Queue,
		out: &Outcome{
			Exit:  exitEnd,
			Wake:  spec.FarFuture,
			Queue: int64(cluster.Waiting.Len()),
		},
		marks: map[spec.JobUID]mark{},
		firstWaiting: make(
			[]spec.JobUID,
			len(cluster.Parts.List),
		),
		lastPlanned: make([]spec.Instant, len(cluster.Parts.List)),
	}
	p.planner = &planner{pass: p}
	p.reasons = &reasons{pass: p}
	p.claims = &claims{pass: p}
	p.preemption = &preemption{pass: p}
	p.turns = &turns{pass: p}
	p.het = &het{pass: p}
	p.incremental = &incremental{pass: p}
	if p.queue == nil {
		p.queue = &Queue{}
	}
	p.ctx = order.NewContext(cluster, p.now)
	p.planner.depth = options.Discipline.Depth
	if p.planner.depth == 0 {
		p.planner.depth = int64(p.cfg.Sched.BFMaxJobTest)
	}
	if p.planner.depth == 0 {
		p.planner.depth = defaultDepth
	}
	switch p.planner.firm = int64(p.cfg.Sched.Firm); {
	case options.Discipline.Shortest:
		p.planner.firm = p.planner.depth
	case p.planner.firm == 0:
		p.planner.firm = math.MaxInt64
	}
	p.guarantees = guarantee.New(cluster, p.now, options.ran)
	if p.guarantees != nil {
		p.ctx.First = func(job *state.Job) bool { return p.guarantees.Within(job, job.Req) }
		p.ctx.Share = p.guarantees.Share
	}
	p.preemption.rules = preempt.New(cluster, p.now, options.ran)
	if p.options.Mix == nil && p.cfg.Sched.PackMix {
		p.options.Mix = mixOf(cluster)
	}
	p.trees = eligible.BuildTrees(cluster)
	p.strict = options.Discipline.Strict || !p.cfg.Sched.Backfill
	p.updateQueue()
	p.turns.listSuspended()
	return p
}

func (p *pass) finishPass() *Outcome {
	p.reasons.settleReasons()
	p.out.Again = p.preemption.startsMayGo()
	p.out.Plan = view.NewPlan(p.now, p.snapshot.Seq, p.planner.plan, p.out.Exit == exitDepth)
	p.out.Promises = &p.planner.made
	if len(p.planner.made.list) > 1000 {
		p.planner.made.onNodes() // now, where it costs little beside the rest
	}
	return p.out
}

// updateQueue brings the queue up to date and looks at the jobs that wait for
// more than their turn.
func (p *pass) updateQueue() {
	queue := p.queue
	queue.refreshJobs(p.snapshot, p.now)
	watched := queue.watch // what is added meanwhile needs no look
	watched.Range(func(uid uint64, _ struct{}) bool {
		w := queue.jobs[spec.JobUID(uid)]
		if reason := p.notYet(w.job); reason != nil {
			queue.leaveClasses(w)
			p.reasons.noteReason(w.job, reason)
			return true
		}
		queue.joinClasses(p.snapshot, w)
		if w.request.missingParts > 0 {
			p.reasons.noteReason(
				w.job,
				&spec.Reason{Code: spec.ReasonPartitionDown, Detail: "the partition is gone"},
			)
		}
		return true
	})
	queue.fresh.Range(func(uid uint64, _ struct{}) bool {
		p.out.Eligible = append(p.out.Eligible, spec.JobUID(uid))
		return true
	})
}

func (p *pass) wakeAt(t spec.Instant) {
	if t > p.now {
		p.out.Wake = min(p.out.Wake, t)
	}
}

// notYet is why a job is not considered at all, or nil. The pass proposes to end a job
// that can never run.
func (p *pass) notYet(job *state.Job) *spec.Reason {
	if d := job.Spec.Time.Deadline; d != 0 {
		if eligible.MissesDeadline(job, p.now) {
			p.out.Ends = append(
				p.out.Ends,
				*eligible.EndPending(job, spec.DeadlineMissed, spec.ReasonDeadLine),
			)
			return &spec.Reason{Code: spec.ReasonDeadLine}
		}
		p.wakeAt(eligible.LatestStart(job) + 1)
	}
	if job.Begin > p.now {
		p.wakeAt(job.Begin)
		return &spec.Reason{Code: spec.ReasonBeginTime, Until: job.Begin}
	}
	if reason := eligible.FencingWait(p.snapshot, job); reason != nil {
		return reason
	}
	if job.Spec.Queue.Dependency == nil {
		return nil
	}
	v, until := eligible.EvaluateDependency(p.snapshot, job, p.now)
	switch v {
	case eligible.Waiting:
		p.wakeAt(until)
		return &spec.Reason{Code: spec.ReasonDependency}
	case eligible.Unsatisfiable:
		if eligible.KillsInvalid(p.cfg, job) {
			p.out.Ends = append(
				p.out.Ends,
				*eligible.EndPending(job, spec.Cancelled, spec.ReasonDependencyNever),
			)
		}
		return &spec.Reason{Code: spec.ReasonDependencyNever}
	}
	return nil
}

// nodesOfClasses are the nodes of the partitions that some classes are in.
func (p *pass) nodesOfClasses(classes []*jobClass) spec.Bitset {
	var nodes spec.Bitset
	if p.stopAt != 0 { // it may be asked about any other partition
		for i := range p.snapshot.Parts.List {
			nodes = nodes.Or(p.snapshot.Parts.List[i].Nodes)
		}
		return nodes
	}
	known := make([]bool, len(p.firstWaiting)) // by partition
	for _, class := range classes {
		if !known[class.partIndex] {
			known[class.partIndex], nodes = true, nodes.Or(class.part.Nodes)
		}
		for _, component := range p.snapshot.Components(class.request.representative) {
			for _, name := range component.Spec.Partitions {
				if part := p.snapshot.Parts.Find(name); part != nil {
					nodes = nodes.Or(part.Nodes)
				}
			}
		}
	}
	return nodes
}

// yieldEvery is the number of classes after which a pass yields.
const yieldEvery = 8

// run looks at jobs in order until nothing can start or be planned.
func (p *pass) run() error {
	heap := p.queue.beginPass(p.ctx)
	ends := timeline.Ends((*state.Job).Deadline)
	if p.options.EndsPredicted {
		ends = p.predictEnd
	}
	p.line = timeline.NewEnding(
		p.snapshot,
		p.now,
		max(p.cfg.Sched.BFResolution, spec.Second),
		p.nodesOfClasses(heap),
		ends,
		p.queue.line,
	)
	p.queue.line = p.line
	timeline.KeepReserved(p.snapshot, p.line, p.now)
	p.trackTenants()
	p.planner.restorePromises()
	if err := p.claims.startClaimants(); err != nil {
		return err
	}
	var aside classHeap
	for n := 1; len(heap) > 0; n++ {
		if p.options.Yield != nil && n%yieldEvery == 0 {
			p.options.Yield()
		}
		if p.phase == firmly && p.planner.firm <= 0 {
			p.phase = gaps
			heap.forGaps(p.gapOrder)
		}
		if p.updateRank(heap[0]) {
			heap.sinkAt(0)
			continue
		}
		class := heap[0]
		member := class.currentMember()
		if err := p.turns.resumeSuspended(uint32(^class.rank >> 32)); err != nil {
			return err
		}
		if (member.uid == p.stopAt && p.phase != gaps) ||
			(p.options.Starts != 0 && len(p.out.Starts) >= max(p.options.Starts, 0)) {
			p.out.Exit = exitStarts
			return nil
		}
		next, reason, err := p.tryStart(class, member)
		if err != nil {
			return err
		}
		if next == nextClass && p.stopAt != 0 && p.phase != gaps {
			next = nextMember // the job looked for may be one of the class
		}
		more := true
		switch next {
		case nextMember:
			if reason != nil {
				p.reasons.noteReason(member.job, reason)
			}
			more = class.nextMember(p.ctx)
		case nextClass:
			more = false
			if p.phase == gaps && p.planner.depth > 0 {
				aside = append(aside, class)
			} else {
				p.reasons.refuseAll(class, reason)
			}
		}
		if !more {
			heap = heap.dropTop()
		}
		if len(heap) > 0 {
			heap.sinkAt(0)
		} else if p.phase == gaps {
			p.phase, heap, aside = rest, aside.inOrder(), nil
		}
	}
	return p.turns.resumeSuspended(0)
}

// phase is how far a pass is. Where nothing else is configured it is in order
// of priority throughout: all reservations are firm. With bf_firm that is so
// for the first jobs only; then the shortest of the others start in the gaps,
// and what is left is planned, in order of priority again.
type phase uint8

const (
	firmly phase = iota
	gaps
	rest
)

// next says how a pass goes on after it has tried a job.
type next uint8

const (
	nextMember next = iota // with the one after it
	sameMember             // a task of its record started: with the next task
	nextClass              // what holds it up holds up the rest of its class
)

// tryStart starts a job, or one task of a record, or says why not.
func (p *pass) tryStart(class *jobClass, m *member) (next, *spec.Reason, error) {
	job := m.job
	if p.marks[m.uid]&touched != 0 {
		job = class.inQOS(p.trial.Job(m.uid))
		if job.State != spec.Pending {
			return nextMember, nil, nil // it started, or started in another partition
		}
	}
	if p.marks[m.uid]&claiming != 0 {
		return nextMember, p.claims.claimReason(class, m), nil
	}
	if p.claims.holds[m.uid] != nil {
		defer p.claims.lookAtHeld(m.uid)()
	}
	return p.tryJob(class, m, job)
}

// tryJob is try for a job that has not started yet.
func (p *pass) tryJob(class *jobClass, m *member, job *state.Job) (next, *spec.Reason, error) {
	p.out.Depth++
	if job.Het != nil {
		reason, err := p.het.tryHet(class, m)
		if reason != nil && p.phase == gaps && p.planner.depth > 0 {
			return nextClass, reason, err // it is alone in its class, and planned later
		}
		return nextMember, reason, err
	}
	if !class.ready {
		if r := p.prepareClass(class, job); r != nil {
			return nextClass, r, nil
		}
		class.ready = true
	}
	if r := p.checkLimits(class, job); r != nil {
		return nextClass, r, nil
	}
	if r := p.checkJob(class, job); r != nil {
		return nextMember, r, nil
	}
	task := spec.NoTask
	if job.IsArrayRecord() {
		var reason *spec.Reason
		task, reason = p.nextTask(job)
		if reason != nil {
			return nextMember, reason, nil
		}
	}
	if old := p.planner.promiseTo(job.UID, task); old != nil {
		if p.options.Settled && old.slot.Start > p.now {
			return nextMember, p.planner.keepPromise(class, m, old), nil
		}
		p.planner.giveBack(class, old)
	}
	slot, reason := p.planner.findSlot(class, m, job, task)
	run := wholeLimit(class)
	if early, planned, ok := p.findPredicted(class, job, slot, reason); ok {
		slot, reason = early, nil
		run.planned = planned
	}
	if short, less, ok := p.planner.findShorterLimit(class, job, slot, reason); ok {
		slot, reason = short, nil
		run = runTime{limit: less, planned: less}
	}
	if room, ok, err := p.preemption.makeRoom(class, m, job, slot, reason); err != nil {
		return nextMember, nil, err
	} else if ok {
		slot, reason = room, nil
	}
	if reason != nil {
		return nextClass, reason, nil
	}
	if startsTooLate(job, p.now, &slot, class.demand.Limit) {
		return nextMember, &spec.Reason{Code: spec.ReasonDeadLine, Until: slot.Start}, nil
	}
	if slot.Start > p.now {
		p.guarantees.CountPromised(job)
		why := p.planner.promiseSlot(class, m, job, slot)
		p.boundDelay(job, slot.Start, why)
		return nextMember, why, nil
	}
	reason, err := p.startJob(class, m, task, slot.Parts, run)
	switch {
	case err != nil || reason != nil:
		return nextClass, reason, err
	case task != spec.NoTask:
		return sameMember, nil, nil
	}
	return nextMember, nil, nil
}

// checkLimits gives the limit or licence that keeps all jobs of a class from starting, or nil.
func (p *pass) checkLimits(class *jobClass, job *state.Job) *spec.Reason {
	if r := class.bound.Before(class.least, class.demand.Limit); r != nil {
		return r
	}
	reason := eligible.CheckLicenses(p.trial.State, job.Spec, p.now, class.demand.Limit)
	if reason != nil {
		reason.Blocker = p.claims.licenceHolder(reason.TRES)
	}
	return reason
}

// checkJob gives what keeps this job of a class, but not the others, from starting, or nil.
func (p *pass) checkJob(class *jobClass, job *state.Job) *spec.Reason {
	if reason := p.checkPriority(class, job); reason != nil {
		return reason
	}
	return eligible.CheckArrayThrottle(p.trial.State, job)
}

// checkPriority refuses a job whose priority is below a limit's minimum, or gives nil.
func (p *pass) checkPriority(class *jobClass, job *state.Job) *spec.Reason {
	if !class.bound.HasPriority() {
		return nil
	}
	factors := class.fixed
	p.ctx.Complete(&factors, job)
	return class.bound.Priority(factors.Total)
}

// checkUsage says that a QOS with EnforceUsageThreshold starts no job of one
// whose fair share is as low, or nil.
func (p *pass) checkUsage(qos *spec.QOS, job *state.Job) *spec.Reason {
	if qos.UsageThreshold == nil || !qos.HasFlag("EnforceUsageThreshold") {
		return nil
	}
	factor := p.ctx.Shares().Millionths(job.Assoc)
	if factor >= *qos.UsageThreshold {
		return nil
	}
	return &spec.Reason{
		Code:  spec.ReasonQOSUsageThreshold,
		TRES:  "fairshare",
		Limit: *qos.UsageThreshold,
		Asked: factor,
		Subject: "qos/" +
			qos.Name,
	}
}

// prepareClass computes what all jobs of a class have in common; a reason applies
// to all of them.
func (p *pass) prepareClass(class *jobClass, job *state.Job) *spec.Reason {
	class.bound = limits.Find(
		p.trial.State,
		limits.Subject{
			Job:   job.Spec,
			Part:  class.part.Spec,
			Assoc: job.Assoc,
			Now:   p.now,
			Sizes: &p.sizes,
			// Only jobs that are all alike share a class, and components have one each.
			Beside: limits.Beside(p.trial.State, job),
		},
	)
	class.measureDemand(p.snapshot, job)
	if reason := eligible.CheckStartable(p.snapshot, class.part, job); reason != nil {
		return reason
	}
	if rejection := eligible.CheckPartition(
		p.snapshot, class.part, job.Spec, &class.demand,
	); rejection != nil {
		return &rejection.Reason
	}
	nodes, err := eligible.AllowedNodes(p.snapshot, class.part, job.Spec)
	if err != nil {
		return &spec.Reason{Code: spec.ReasonBadConstraints, Detail: err.Error()}
	}
	if qos := p.snapshot.Policy.FindQOS(job.QOS()); qos != nil {
		class.noReserve = qos.HasFlag("NoReserve")
		if reason := p.checkUsage(qos, job); reason != nil {
			return reason
		}
	}
	if reason := p.applyReservations(class, job, &nodes); reason != nil {
		return reason
	}
	class.nodes = nodes
	if un := p.reasons.unavailableNodes(nodes.Must); un != "" {
		return &spec.Reason{Code: spec.ReasonReqNodeNotAvail, Detail: "UnavailableNodes:" + un}
	}
	return nil
}

// nextTask is the lowest task of a record that may start now.
func (p *pass) nextTask(job *state.Job) (int64, *spec.Reason) {
	dependency := job.Spec.Queue.Dependency
	if dependency == nil {
		return job.Tasks.Min(), nil
	}
	out := spec.NoTask
	job.Tasks.Each(func(task int64) bool {
		probe := *job
		probe.Task, probe.Tasks = task, nil
		if v, _ := eligible.EvaluateDependency(p.trial.State, &probe, p.now); v == eligible.Satisfied {
			out = task
		}
		return out == spec.NoTask
	})
	if out != spec.NoTask {
		return out, nil
	}
	if v, _ := eligible.EvaluateDependency(p.trial.State, job, p.now); v == eligible.Unsatisfiable {
		return out, &spec.Reason{Code: spec.ReasonDependencyNever}
	}
	return out, &spec.Reason{Code: spec.ReasonDependency}
}

// runTime is how long a job may run, and how long it is planned to.
type runTime struct {
	limit   spec.Span
	planned spec.Span
}

// wholeLimit plans the jobs of a class until their time limit.
func wholeLimit(class *jobClass) runTime {
	return runTime{limit: class.demand.Limit, planned: class.demand.Limit}
}

// startJob allocates, checks the limits that need exact numbers, and folds the
// start into the pass's own state.
func (p *pass) startJob(
	class *jobClass,
	m *member,
	task int64,
	parts []place.Part,
	run runTime,
) (*spec.Reason, error) {
	job := class.inQOS(p.trial.Job(m.uid))
	alloc, reason := p.allocateJob(p.trial.State, class, job, parts, &class.bound)
	if reason != nil {
		return reason, nil
	}
	factors := class.fixed
	p.ctx.Complete(&factors, job)
	start := commit.Start{
		UID:      job.UID,
		Task:     task,
		Alloc:    alloc,
		Limit:    run.limit,
		Backfill: p.firstWaiting[class.partIndex] != 0 || p.options.Incremental,
		Priority: factors.Total,
	}
	changes := commit.On(p.trial)
	uid, err := changes.StartJob(&start)
	if err != nil {
		return nil, fmt.Errorf("pass: job %d: %w", job.ID, err)
	}
	if !p.snapshot.Claims(job) { // else it counts already
		p.guarantees.Claim(job, alloc.TRES)
	}
	p.moved = p.moved || p.marks[m.uid]&reserved != 0
	p.marks[m.uid] |= touched
	p.line.Promise(parts, p.now, run.planned, uid)
	p.out.Starts = append(p.out.Starts, start)
	return nil, nil
}

// allocateJob makes the allocation of a job on some nodes of a state, within the
// limits that need exact numbers.
func (p *pass) allocateJob(
	cluster *state.State,
	class *jobClass,
	job *state.Job,
	parts []place.Part,
	bound *limits.Bound,
) (*spec.Allocation, *spec.Reason) {
	alloc := place.Allocate(
		p.onNodesOf(cluster, parts), &class.demand, class.part.Spec.BillingWeights,
	)
	if alloc == nil {
		return nil, &spec.Reason{Code: spec.ReasonResources, Subject: class.part.Subject}
	}
	if reason := eligible.CheckPowerLimit(cluster, alloc); reason != nil {
		return nil, reason
	}
	alloc.QOS = class.qos
	if v := class.view; v != nil {
		alloc.Reservation = v.Inside(p.snapshot, NodeIDs(alloc), p.now)
	}
	var short *spec.Reason
	alloc.Licenses, short = eligible.ChooseLicenses(cluster, job.Spec, p.now, class.demand.Limit)
	if short != nil {
		return nil, short
	}
	for _, count := range alloc.Licenses {
		alloc.TRES = alloc.TRES.With("license/"+count.Name, count.N)
	}
	alloc.TRES.Billing = class.demand.Billing(alloc.TRES, class.part.Spec.BillingWeights)
	if reason := bound.After(alloc, class.demand.Limit); reason != nil {
		return nil, reason
	}
	return alloc, nil
}

// onTrialNodes gives the parts the nodes of the pass's own state, which know what
// this pass has started already.
func (p *pass) onTrialNodes(parts []place.Part) []place.Part {
	return p.onNodesOf(p.trial.State, parts)
}

// onNodesOf gives the parts the nodes as a state has them.
func (p *pass) onNodesOf(cluster *state.State, parts []place.Part) []place.Part {
	out := append([]place.Part(nil), parts...)
	for i := range out {
		out[i].Node = cluster.NodeByID(out[i].Node.ID)
		if cpus := p.turns.spared[out[i].Node.ID]; cpus != nil {
			node := *out[i].Node
			node.UsedCPU = node.UsedCPU.Or(cpus)
			out[i].Node = &node
		}
	}
	return out
}

func NodeIDs(allocation *spec.Allocation) []spec.NodeID {
	ids := make([]spec.NodeID, len(allocation.Nodes))
	for i := range allocation.Nodes {
		ids[i] = allocation.Nodes[i].ID
	}
	return ids
}
