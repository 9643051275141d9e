package scheduler

import (
	"fmt"
	"math"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/state/pmap"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/scheduler/floor"
	"github.com/musterhpc/muster/scheduler/limits"
	"github.com/musterhpc/muster/scheduler/order"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/scheduler/preempt"
	"github.com/musterhpc/muster/scheduler/reserve"
	"github.com/musterhpc/muster/scheduler/resv"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// Start is a proposal: this record (or task of it) starts with this
// allocation.
type Start struct {
	UID      spec.JobUID
	Task     int64 // of an array's record, or NoTask
	Alloc    *spec.Allocation
	Limit    spec.Span
	Backfill bool
	Priority uint32
	// Group is set in the first of so many starts that are made together or not
	// at all.
	Group int
}

// Outcome is what a pass proposes. It was computed on a snapshot; committing
// it (Starts) checks each part against the head.
type Outcome struct {
	Starts   []Start
	Preempts []Preempt
	Turns    []Turn
	Reasons  []event.JobReason // only those that changed
	Eligible []spec.JobUID
	Ends     []event.JobEnded // pending jobs that can never run any more
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

// Empty tells that there is nothing to commit.
func (o *Outcome) Empty() bool {
	return len(o.Starts)+len(o.Preempts)+len(o.Turns)+len(o.Reasons)+len(o.Eligible)+len(o.Ends) == 0
}

// PassOptions bound and guide a pass.
type PassOptions struct {
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
	// Keep holds the promises of the pass before: every job keeps the start
	// that it was promised unless it can have an earlier one. Without it a pass
	// plans anew, in order of priority.
	Keep *Promises
	// Settled leaves every job that has a promise for later where it is: only
	// jobs without one, and those whose time has come, are looked at.
	Settled bool
	// Breathe, if set, is called every few jobs: whoever runs the pass may let
	// others go first. It changes nothing of the outcome.
	Breathe func()
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
	st  *state.State // the snapshot
	t   *trial.Trial // a fork: starts are folded in, so that limits see them
	cfg *spec.Config
	now spec.Instant
	opt PassOptions

	queue *Queue
	ctx   *order.Context
	line  *reserve.Timeline
	out   *Outcome
	plan  []view.Planned
	made  Promises           // those of this pass
	kept  map[promiseKey]int // those of the pass before that are in the timeline still
	depth int64              // reservations that may still be made

	firm   int64 // those of them that shorter jobs must not delay
	phase  phase
	strict bool // nothing may overtake

	marks map[spec.JobUID]mark
	multi map[spec.JobUID]*spec.Reason // of jobs in several partitions
	head  []spec.JobUID                // by partition: the first job that waits for resources
	rear  []*spec.Reason               // by partition: why those behind it wait, once somebody does
	fifo  []spec.Instant               // by partition: the last start that was planned
	moved bool                         // a job started that had a reservation in another partition
	stop  spec.JobUID                  // look no further than this job; 0 = look at all

	sizes    limits.Sizes                // what QOS with the flag Relative are per cent of
	rules    *preempt.Rules              // nil: nothing can be preempted
	floors   *floor.Floors               // nil: nothing is guaranteed
	trees    trees                       // of switches
	searches int                         // for victims
	sleepers []*state.Job                // suspended jobs that are to go on, in the order in which they do
	spared   map[spec.NodeID]spec.Bitset // CPUs that nobody behind them may have
	holds    map[spec.JobUID]*held       // jobs that others make room for
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
func Pass(st *state.State, now spec.Instant, opt PassOptions) (*Outcome, error) {
	p := newPass(st, now, opt)
	if p.incremental() {
		if err := p.runQuick(); err != nil {
			return nil, err
		}
		p.out.Plan, p.out.Promises = opt.Plan, opt.Keep
		return p.out, nil
	}
	if err := p.run(); err != nil {
		return nil, err
	}
	if p.moved {
		return p.again()
	}
	out := p.finish()
	if opt.Alone && len(out.Starts) > 0 && len(out.Preempts)+len(out.Turns)+len(out.Eligible)+len(out.Ends)+len(p.holds) == 0 {
		out.Ahead = p.t
	}
	return out, nil
}

// again repeats a pass in which a job started in one of its partitions after
// it had got a reservation in another: with its starts made, without that
// reservation, and without those who were to make room for it there.
func (p *pass) again() (*Outcome, error) {
	first := p.out
	opt := p.opt
	if opt.ran == nil {
		opt.ran = p.st
	}
	t := trial.On(p.st.Draft(), p.now, event.Actor{}, "schedule")
	first.Preempts = slices.DeleteFunc(first.Preempts, func(pr Preempt) bool {
		return slices.ContainsFunc(first.Starts, func(s Start) bool { return s.UID == pr.For }) && !p.replaced(&pr)
	})
	for i := range first.Preempts {
		if err := (&decision{t: t}).push(&first.Preempts[i]); err != nil {
			return nil, fmt.Errorf("pass: job uid %d: %w", first.Preempts[i].Victim.UID, err)
		}
	}
	for i := range first.Turns {
		if err := (&decision{t: t}).takeTurn(&first.Turns[i]); err != nil {
			return nil, fmt.Errorf("pass: job uid %d: %w", first.Turns[i].UID, err)
		}
	}
	for i := range first.Starts {
		if _, err := (&decision{t: t}).begin(&first.Starts[i]); err != nil {
			return nil, fmt.Errorf("pass: job uid %d: %w", first.Starts[i].UID, err)
		}
	}
	if opt.Starts > 0 {
		if opt.Starts -= len(first.Starts); opt.Starts <= 0 {
			opt.Starts = -1
		}
	}
	opt.Queue = nil
	out, err := Pass(t.Freeze(), p.now, opt)
	if err != nil {
		return nil, err
	}
	for i := range out.Preempts {
		out.Preempts[i].After += len(first.Starts)
	}
	out.Starts = append(first.Starts, out.Starts...)
	out.Preempts, out.Turns = append(first.Preempts, out.Preempts...), append(first.Turns, out.Turns...)
	out.Eligible = first.with(out.Eligible) // what started may have made others ready
	out.Ends, out.Queue, out.Depth = first.Ends, first.Queue, first.Depth+out.Depth
	out.Again = out.Again || p.startsMayGo()
	out.Wake, out.Plan.Seq, out.Ahead = min(out.Wake, first.Wake), p.st.Seq, nil
	return out, nil
}

// replaced tells whether a job that was to make room was gone at once, as its
// nodes were not up yet, and something started where it was.
func (p *pass) replaced(pr *Preempt) bool {
	victim := p.st.Job(pr.Victim.UID)
	return victim != nil && victim.Configuring() && slices.ContainsFunc(p.out.Starts[pr.After:], func(s Start) bool {
		return slices.ContainsFunc(s.Alloc.Nodes, func(a spec.NodeAlloc) bool { return victim.Alloc.Index(a.ID) >= 0 })
	})
}

// with adds to the jobs that became eligible those of a second list.
func (o *Outcome) with(more []spec.JobUID) []spec.JobUID {
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

func newPass(st *state.State, now spec.Instant, opt PassOptions) *pass {
	p := &pass{st: st, t: trial.On(st.Draft(), now, event.Actor{}, "schedule"), cfg: st.Config, now: max(now, st.At), opt: opt, queue: opt.Queue,
		out: &Outcome{Exit: exitEnd, Wake: spec.FarFuture, Queue: int64(st.Waiting.Len())}, marks: map[spec.JobUID]mark{},
		head: make([]spec.JobUID, len(st.Parts.List)), fifo: make([]spec.Instant, len(st.Parts.List))}
	if p.queue == nil {
		p.queue = &Queue{}
	}
	p.ctx = order.NewContext(st, p.now)
	if p.depth = opt.Discipline.Depth; p.depth == 0 {
		p.depth = int64(p.cfg.Sched.BFMaxJobTest)
	}
	if p.depth == 0 {
		p.depth = defaultDepth
	}
	switch p.firm = int64(p.cfg.Sched.Firm); {
	case opt.Discipline.Shortest:
		p.firm = p.depth
	case p.firm == 0:
		p.firm = math.MaxInt64
	}
	if p.floors = floor.New(st, p.now, opt.ran); p.floors != nil {
		p.ctx.First = func(j *state.Job) bool { return p.floors.Within(j, j.Req) }
		p.ctx.Share = p.floors.Share
	}
	p.rules = preempt.New(st, p.now, opt.ran)
	if p.opt.Mix == nil && p.cfg.Sched.PackMix {
		p.opt.Mix = mixOf(st)
	}
	p.trees = treesOf(st)
	p.strict = opt.Discipline.Strict || !p.cfg.Sched.Backfill
	p.collect()
	p.findSleepers()
	return p
}

func (p *pass) finish() *Outcome {
	p.settleReasons()
	p.out.Again = p.startsMayGo()
	p.out.Plan = view.NewPlan(p.now, p.st.Seq, p.plan, p.out.Exit == exitDepth)
	p.out.Promises = &p.made
	if len(p.made.list) > 1000 {
		p.made.onNodes() // now, where it costs little beside the rest
	}
	return p.out
}

// collect brings the queue up to date and looks at the jobs that wait for
// more than their turn.
func (p *pass) collect() {
	q := p.queue
	q.refresh(p.st, p.now)
	watched := q.watch // what is added meanwhile needs no look
	watched.Range(func(uid uint64, _ struct{}) bool {
		w := q.jobs[spec.JobUID(uid)]
		if r := p.notYet(w.job); r != nil {
			q.leave(w)
			p.refuse(w.job, r)
			return true
		}
		q.join(p.st, w)
		if w.kin.gone > 0 {
			p.refuse(w.job, &spec.Reason{Code: spec.ReasonPartitionDown, Detail: "the partition is gone"})
		}
		return true
	})
	q.fresh.Range(func(uid uint64, _ struct{}) bool {
		p.out.Eligible = append(p.out.Eligible, spec.JobUID(uid))
		return true
	})
}

func (p *pass) wake(t spec.Instant) {
	if t > p.now {
		p.out.Wake = min(p.out.Wake, t)
	}
}

// notYet is why a job is not considered at all, or nil. A job that can never
// run is proposed to be ended.
func (p *pass) notYet(j *state.Job) *spec.Reason {
	if d := j.Spec.Time.Deadline; d != 0 {
		if missed(j, p.now) {
			p.out.Ends = append(p.out.Ends, *endOf(j, spec.DeadlineMissed, spec.ReasonDeadLine))
			return &spec.Reason{Code: spec.ReasonDeadLine}
		}
		p.wake(lastStart(j) + 1)
	}
	if j.Begin > p.now {
		p.wake(j.Begin)
		return &spec.Reason{Code: spec.ReasonBeginTime, Until: j.Begin}
	}
	if j.Spec.Queue.Dependency == nil {
		return nil
	}
	v, until := dependency(p.st, j, p.now)
	switch v {
	case waits:
		p.wake(until)
		return &spec.Reason{Code: spec.ReasonDependency}
	case never:
		if killInvalid(p.cfg, j) {
			p.out.Ends = append(p.out.Ends, *endOf(j, spec.Cancelled, spec.ReasonDependencyNever))
		}
		return &spec.Reason{Code: spec.ReasonDependencyNever}
	}
	return nil
}

// nodesOf are the nodes of the partitions that some lots are in.
func (p *pass) nodesOf(lots []*lot) spec.Bitset {
	var nodes spec.Bitset
	if p.stop != 0 { // it may be asked about any other partition
		for i := range p.st.Parts.List {
			nodes = nodes.Or(p.st.Parts.List[i].Nodes)
		}
		return nodes
	}
	known := make([]bool, len(p.head)) // by partition
	for _, l := range lots {
		if !known[l.pi] {
			known[l.pi], nodes = true, nodes.Or(l.part.Nodes)
		}
		for _, c := range p.st.Components(l.kin.like) {
			for _, name := range c.Spec.Partitions {
				if part := p.st.Parts.Find(name); part != nil {
					nodes = nodes.Or(part.Nodes)
				}
			}
		}
	}
	return nodes
}

// breatheEvery is after how many lots a pass lets others go first.
const breatheEvery = 8

// run looks at jobs in order until nothing can start or be planned.
func (p *pass) run() error {
	heap := p.queue.begin(p.ctx)
	p.line = reserve.New(p.st, p.now, max(p.cfg.Sched.BFResolution, spec.Second), p.nodesOf(heap), p.queue.line)
	p.queue.line = p.line
	resv.Keep(p.st, p.line, p.now)
	p.tellApart()
	p.restore()
	if err := p.claims(); err != nil {
		return err
	}
	var aside lotHeap
	for n := 1; len(heap) > 0; n++ {
		if p.opt.Breathe != nil && n%breatheEvery == 0 {
			p.opt.Breathe()
		}
		if p.phase == firmly && p.firm <= 0 {
			p.phase = gaps
			heap.shortestFirst()
		}
		if p.moves(heap[0]) {
			heap.sink(0)
			continue
		}
		l := heap[0]
		m := l.current()
		if err := p.goOn(uint32(^l.rank >> 32)); err != nil {
			return err
		}
		if (m.uid == p.stop && p.phase != gaps) || (p.opt.Starts != 0 && len(p.out.Starts) >= max(p.opt.Starts, 0)) {
			p.out.Exit = exitStarts
			return nil
		}
		next, r, err := p.try(l, m)
		if err != nil {
			return err
		}
		if next == nextLot && p.stop != 0 && p.phase != gaps {
			next = nextMember // the job looked for may be one of the lot
		}
		more := true
		switch next {
		case nextMember:
			if r != nil {
				p.refuse(m.job, r)
			}
			more = l.next(p.ctx)
		case nextLot:
			if more = false; p.phase == gaps && p.depth > 0 {
				aside = append(aside, l)
			} else {
				p.refuseAll(l, r)
			}
		}
		if !more {
			heap = heap.drop()
		}
		if len(heap) > 0 {
			heap.sink(0)
		} else if p.phase == gaps {
			p.phase, heap, aside = rest, aside.inOrder(), nil
		}
	}
	return p.goOn(0)
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
	nextLot                // what holds it up holds up the rest of its lot
)

// try starts a job, or one task of a record, or says why not.
func (p *pass) try(l *lot, m *member) (next, *spec.Reason, error) {
	j := m.job
	if p.marks[m.uid]&touched != 0 {
		if j = l.as(p.t.Job(m.uid)); j.State != spec.Pending {
			return nextMember, nil, nil // it started, or started in another partition
		}
	}
	if p.marks[m.uid]&claiming != 0 {
		return nextMember, p.claimed(l, m), nil
	}
	if p.holds[m.uid] != nil {
		defer p.look(m.uid)()
	}
	return p.tryJob(l, m, j)
}

// tryJob is try for a job that has not started yet.
func (p *pass) tryJob(l *lot, m *member, j *state.Job) (next, *spec.Reason, error) {
	p.out.Depth++
	if j.Het != nil {
		r, err := p.tryHet(l, m)
		if r != nil && p.phase == gaps && p.depth > 0 {
			return nextLot, r, err // it is alone in its lot, and planned later
		}
		return nextMember, r, err
	}
	if !l.ready {
		if r := p.prepare(l, j); r != nil {
			return nextLot, r, nil
		}
		l.ready = true
	}
	if r := p.overLimits(l, j); r != nil {
		return nextLot, r, nil
	}
	if r := p.alone(l, j); r != nil {
		return nextMember, r, nil
	}
	task := spec.NoTask
	if j.IsArrayRecord() {
		var r *spec.Reason
		if task, r = p.nextTask(j); r != nil {
			return nextMember, r, nil
		}
	}
	if old := p.promised(j.UID, task); old != nil {
		if p.opt.Settled && old.slot.Start > p.now {
			return nextMember, p.stays(l, m, old), nil
		}
		p.giveBack(l, old)
	}
	slot, r := p.find(l, m, j, task)
	limit := l.demand.Limit
	if short, less, ok := p.shorter(l, j, slot, r); ok {
		slot, r, limit = short, nil, less
	}
	if room, ok, err := p.makeRoom(l, m, j, slot, r); err != nil {
		return nextMember, nil, err
	} else if ok {
		slot, r = room, nil
	}
	if r != nil {
		return nextLot, r, nil
	}
	if late(j, p.now, &slot, l.demand.Limit) {
		return nextMember, &spec.Reason{Code: spec.ReasonDeadLine, Until: slot.Start}, nil
	}
	if slot.Start > p.now {
		p.floors.Promised(j)
		return nextMember, p.promise(l, m, j, slot), nil
	}
	r, err := p.start(l, m, task, slot.Parts, limit)
	switch {
	case err != nil || r != nil:
		return nextLot, r, err
	case task != spec.NoTask:
		return sameMember, nil, nil
	}
	return nextMember, nil, nil
}

// overLimits says which limit or licence holds all jobs of a lot up, or nil.
func (p *pass) overLimits(l *lot, j *state.Job) *spec.Reason {
	if r := l.bound.Before(l.least, l.demand.Limit); r != nil {
		return r
	}
	r := licences(p.t.State, j.Spec, p.now, l.demand.Limit)
	if r != nil {
		r.Blocker = p.holder(r.TRES)
	}
	return r
}

// alone says what holds this job of a lot up and not the others, or nil.
func (p *pass) alone(l *lot, j *state.Job) *spec.Reason {
	if r := p.tooLow(l, j); r != nil {
		return r
	}
	return throttled(p.t.State, j)
}

// tooLow says that a job's priority is below what a limit asks for, or nil.
func (p *pass) tooLow(l *lot, j *state.Job) *spec.Reason {
	if !l.bound.HasPriority() {
		return nil
	}
	f := l.fixed
	p.ctx.Complete(&f, j)
	return l.bound.Priority(f.Total)
}

// overused says that a QOS with EnforceUsageThreshold starts no job of one
// whose fair share is as low, or nil.
func (p *pass) overused(q *spec.QOS, j *state.Job) *spec.Reason {
	if q.UsageThreshold == nil || !q.HasFlag("EnforceUsageThreshold") {
		return nil
	}
	factor := p.ctx.Shares().Millionths(j.Assoc)
	if factor >= *q.UsageThreshold {
		return nil
	}
	return &spec.Reason{Code: spec.ReasonQOSUsageThreshold, TRES: "fairshare", Limit: *q.UsageThreshold, Asked: factor, Subject: "qos/" + q.Name}
}

// prepare works out what all jobs of a lot have in common; a reason bars
// them all.
func (p *pass) prepare(l *lot, j *state.Job) *spec.Reason {
	l.bound = limits.Find(p.t.State, limits.Subject{Job: j.Spec, Part: l.part.Spec, Assoc: j.Assoc, Now: p.now, Sizes: &p.sizes})
	l.measure(p.st, j)
	if r := closed(p.st, l.part, j); r != nil {
		return r
	}
	if b := barred(p.st, l.part, j.Spec, &l.demand); b != nil {
		return &b.reason
	}
	nodes, err := allowedNodes(p.st, l.part, j.Spec)
	if err != nil {
		return &spec.Reason{Code: spec.ReasonBadConstraints, Detail: err.Error()}
	}
	if q := p.st.Policy.FindQOS(j.QOS()); q != nil {
		l.noReserve = q.HasFlag("NoReserve")
		if r := p.overused(q, j); r != nil {
			return r
		}
	}
	if r := p.reservations(l, j, &nodes); r != nil {
		return r
	}
	l.nodes = nodes
	if un := p.unavailable(nodes.must); un != "" {
		return &spec.Reason{Code: spec.ReasonReqNodeNotAvail, Detail: "UnavailableNodes:" + un}
	}
	return nil
}

// nextTask is the lowest task of a record that may start now.
func (p *pass) nextTask(j *state.Job) (int64, *spec.Reason) {
	dep := j.Spec.Queue.Dependency
	if dep == nil {
		return j.Tasks.Min(), nil
	}
	out := spec.NoTask
	j.Tasks.Each(func(task int64) bool {
		probe := *j
		probe.Task, probe.Tasks = task, nil
		if v, _ := dependency(p.t.State, &probe, p.now); v == holds {
			out = task
		}
		return out == spec.NoTask
	})
	if out != spec.NoTask {
		return out, nil
	}
	if v, _ := dependency(p.t.State, j, p.now); v == never {
		return out, &spec.Reason{Code: spec.ReasonDependencyNever}
	}
	return out, &spec.Reason{Code: spec.ReasonDependency}
}

// start allocates, checks the limits that need exact numbers, and folds the
// start into the pass's own state.
func (p *pass) start(l *lot, m *member, task int64, parts []place.Part, limit spec.Span) (*spec.Reason, error) {
	j := l.as(p.t.Job(m.uid))
	alloc, r := p.allocate(p.t.State, l, j, parts, &l.bound)
	if r != nil {
		return r, nil
	}
	f := l.fixed
	p.ctx.Complete(&f, j)
	s := Start{UID: j.UID, Task: task, Alloc: alloc, Limit: limit, Backfill: p.head[l.pi] != 0 || p.opt.Incremental, Priority: f.Total}
	d := &decision{t: p.t}
	uid, err := d.begin(&s)
	if err != nil {
		return nil, fmt.Errorf("pass: job %d: %w", j.ID, err)
	}
	if !p.st.Claims(j) { // else it counts already
		p.floors.Claim(j, alloc.TRES)
	}
	p.moved = p.moved || p.marks[m.uid]&reserved != 0
	p.marks[m.uid] |= touched
	p.line.Promise(parts, p.now, limit, uid)
	p.out.Starts = append(p.out.Starts, s)
	return nil, nil
}

// allocate makes the allocation of a job on some nodes of a state, within the
// limits that need exact numbers.
func (p *pass) allocate(st *state.State, l *lot, j *state.Job, parts []place.Part, bound *limits.Bound) (*spec.Allocation, *spec.Reason) {
	alloc := place.Allocate(p.onNodesOf(st, parts), &l.demand, l.part.Spec.BillingWeights)
	if alloc == nil {
		return nil, &spec.Reason{Code: spec.ReasonResources, Subject: l.part.Subject}
	}
	if r := overPowered(st, alloc); r != nil {
		return nil, r
	}
	alloc.QOS = l.qos
	if v := l.view; v != nil {
		alloc.Reservation = v.Inside(p.st, nodeIDs(alloc), p.now)
	}
	var short *spec.Reason
	if alloc.Licenses, short = takeLicences(st, j.Spec, p.now, l.demand.Limit); short != nil {
		return nil, short
	}
	for _, c := range alloc.Licenses {
		alloc.TRES = alloc.TRES.With("license/"+c.Name, c.N)
	}
	alloc.TRES.Billing = l.demand.Billing(alloc.TRES, l.part.Spec.BillingWeights)
	if r := bound.After(alloc, l.demand.Limit); r != nil {
		return nil, r
	}
	return alloc, nil
}

// fresh gives the parts the nodes of the pass's own state, which know what
// this pass has started already.
func (p *pass) fresh(parts []place.Part) []place.Part { return p.onNodesOf(p.t.State, parts) }

// onNodesOf gives the parts the nodes as a state has them.
func (p *pass) onNodesOf(st *state.State, parts []place.Part) []place.Part {
	out := append([]place.Part(nil), parts...)
	for i := range out {
		out[i].Node = st.NodeByID(out[i].Node.ID)
		if cpus := p.spared[out[i].Node.ID]; cpus != nil {
			n := *out[i].Node
			n.UsedCPU = n.UsedCPU.Or(cpus)
			out[i].Node = &n
		}
	}
	return out
}

func nodeIDs(a *spec.Allocation) []spec.NodeID {
	out := make([]spec.NodeID, len(a.Nodes))
	for i := range a.Nodes {
		out[i] = a.Nodes[i].ID
	}
	return out
}
