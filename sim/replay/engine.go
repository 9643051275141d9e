package replay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// Job is one job of a workload: what was asked for and when, and how long it
// runs once it has started.
type Job struct {
	Spec   *spec.JobSpec
	Submit spec.Instant
	Run    spec.Span // a longer one than the time limit is cut off there
	Failed bool      // it ends with an exit code, which dependencies look at
	// After are the jobs that its dependency names, by their place in the
	// workload, in the order of its terms; -1 for a term that names none.
	After []int
}

// Workload is a cluster and its jobs, in order of submission.
type Workload struct {
	Config *spec.Config
	Policy []event.Event // QOS, accounts, users, associations
	Jobs   []Job
}

// Rule says by which policy a workload is replayed: what a pass does and when
// there is one.
type Rule struct {
	Name       string
	Discipline scheduler.Discipline
	// Predict replaces the prediction of run times, to judge another one; nil: it is
	// that of package predict.
	Predict scheduler.Predictor
	// PerEvent passes once for each submission and end, in that order within
	// one instant, and for a submission only if the job would fit at once.
	// Otherwise there is one pass for all that happens at an instant, as in
	// production.
	PerEvent bool
	// Keep lets every job keep the start it was promised unless it can have an
	// earlier one: a submission plans only the new job, an end moves the others
	// forward in order, and a job starts when its time has come.
	Keep bool
}

// Watch looks at a replay as exporters look at a cluster, at equal distances of
// virtual time, and may have something happen to it then.
type Watch struct {
	Every spec.Span
	Until spec.Instant // the replay ends here, whatever still runs
	// See is shown the state with the plan as they are at an instant. What it
	// returns is carried out at that instant, in order.
	See func(v *view.View) ([]Act, error)
	// Stalled tells that the scheduler makes no pass now, as one that fails each
	// time; nil: it always does. What it planned before stays published.
	Stalled func() bool
}

// Act is a command of somebody, as of a node that falls silent.
type Act struct {
	By      event.Actor
	Command scheduler.Command
}

// Progress is told now and then how many jobs have ended.
type Progress func(ended, all int, now spec.Instant)

// Outcome of a replay for one job.
type Outcome struct {
	Submit, Start, End spec.Instant
	Refused            error // at submission
	Procs, Nodes, GPUs int64
}

// Started tells that the job ran.
func (o *Outcome) Started() bool { return o.Start != 0 }

// Wait is from submission to start.
func (o *Outcome) Wait() spec.Span { return o.Start.Sub(o.Submit) }

// Result is a schedule.
type Result struct {
	Jobs     []Outcome // in the order of the workload
	Procs    int64     // CPUs of the cluster
	GPUs     int64
	Passes   int
	Never    int // jobs that were accepted and never started
	Refused  int
	MaxQueue int
	// Preempted counts the runs that were ended to make room. Only the last run
	// of a job is in the figures.
	Preempted int
	// MeanFreeGPUs and MeanStrandedGPUs are means over the time in which jobs arrived: GPUs that
	// nobody held, and those of them that the mean request could not have used; see fragmentMeter.
	MeanFreeGPUs, MeanStrandedGPUs float64
}

// engine is one replay.
type engine struct {
	w     *Workload
	rule  Rule
	st    *state.State
	now   spec.Instant
	queue scheduler.Queue
	plan  *view.Plan
	kept  *scheduler.Promises
	ends  []ending // a heap
	of    map[spec.JobUID]int
	uids  []spec.JobUID          // of each job that was submitted; nil: no dependencies
	live  map[spec.JobUID]uint64 // of each running job, the order of its ending
	left  map[spec.JobUID]ending // of each that was suspended: how long it still runs, as an instant
	res   *Result
	wake  spec.Instant
	ended int
	order uint64
	stale int // ends since the last tick

	watch *Watch // nil: nobody looks
	look  spec.Instant
	meter *fragmentMeter // nil: no GPUs
}

// ending is when a running job ends; at one instant they end in the order in
// which they started.
type ending struct {
	at    spec.Instant
	order uint64
	uid   spec.JobUID
	limit bool // at its time limit
}

func (e ending) endsBefore(o ending) bool {
	return e.at < o.at || (e.at == o.at && e.order < o.order)
}

// Run replays a workload. Progress may be nil.
func Run(ctx context.Context, workload *Workload, rule Rule, progress Progress) (*Result, error) {
	return run(ctx, workload, rule, nil, progress)
}

// RunWatched is Run under the eyes of somebody.
func RunWatched(ctx context.Context, workload *Workload, rule Rule, watch *Watch) (*Result, error) {
	return run(ctx, workload, rule, watch, nil)
}

func run(
	ctx context.Context,
	workload *Workload,
	rule Rule,
	watch *Watch,
	progress Progress,
) (*Result, error) {
	e := &engine{
		watch: watch,
		w:     workload,
		rule:  rule,
		st:    state.New().Freeze().Draft(),
		of:    map[spec.JobUID]int{},
		live:  map[spec.JobUID]uint64{},
		left:  map[spec.JobUID]ending{},
		wake:  spec.FarFuture,
		res:   &Result{Jobs: make([]Outcome, len(workload.Jobs))},
	}
	if len(workload.Jobs) == 0 {
		return nil, ErrEmpty
	}
	e.now = workload.Jobs[0].Submit.Add(-spec.Second)
	if watch != nil {
		e.look = e.now
		e.st = state.New().Freeze().Fork() // whoever looks sees the totals too
	}
	if err := e.foundCluster(); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(workload.Jobs, func(j Job) bool { return j.After != nil }) {
		e.uids = make([]spec.JobUID, len(workload.Jobs))
	}
	e.rule.Discipline.Depth = depth(workload.Config, rule.Discipline)
	e.meter = newFragmentMeter(workload, e.res.GPUs)
	next := 0
	for n := 0; e.goesOn(next); n++ {
		if n%64 == 0 && ctx.Err() != nil {
			return nil, ctx.Err()
		}
		e.order++
		t := e.nextInstant(next)
		if watch != nil && e.look <= t {
			if err := e.showWatcher(); err != nil {
				return nil, err
			}
			continue
		}
		if t == spec.FarFuture {
			break // what waits now waits for ever
		}
		e.meter.advanceTo(e.st, t)
		var err error
		if rule.PerEvent {
			if t != e.now {
				e.now = t
				err = e.releaseOverdue()
			}
			if err == nil {
				next, err = e.handleNext(next)
			}
		} else {
			e.now = t
			next, err = e.handleInstant(next)
		}
		if err != nil {
			return nil, err
		}
		if progress != nil && n%64 == 0 {
			progress(e.ended, len(workload.Jobs), e.now)
		}
	}
	for i := range e.res.Jobs {
		if o := &e.res.Jobs[i]; o.Refused == nil && !o.Started() {
			e.res.Never++
		}
	}
	if e.meter != nil && e.meter.samples > 0 {
		e.res.MeanFreeGPUs = e.meter.free / float64(e.meter.samples)
		e.res.MeanStrandedGPUs = e.meter.stranded / float64(e.meter.samples)
	}
	return e.res, nil
}

// depth is how many jobs a pass plans. Behind those whose reservations are firm
// (bf_firm) a plan is an estimate: it tells users when to expect their jobs,
// and no pass looks at it again. Nobody waits to be told here, so it is left out,
// and every job starts when it would with it.
func depth(config *spec.Config, discipline scheduler.Discipline) int64 {
	if firm := int64(config.Sched.Firm); discipline == (scheduler.Discipline{}) && firm > 0 &&
		firm < int64(config.Sched.BFMaxJobTest) {
		return firm
	}
	return discipline.Depth
}

// goesOn tells whether anything can still happen, or anybody still looks.
func (e *engine) goesOn(next int) bool {
	if e.watch != nil {
		return e.look <= e.watch.Until
	}
	return next < len(e.w.Jobs) || len(e.ends) > 0 || e.hasWaiting()
}

// showWatcher lets the watcher look, and carries out what it has happen.
func (e *engine) showWatcher() error {
	e.now = e.look
	e.look = e.look.Add(e.watch.Every)
	// Virtual time stands still during a pass.
	stats := view.PassStats{Passes: uint64(e.res.Passes)}
	stats.Times[0] = stats.Passes
	acts, err := e.watch.See(
		&view.View{State: e.st.Freeze(), Published: e.now, Plan: e.plan, Pass: stats},
	)
	if err != nil || len(acts) == 0 {
		return err
	}
	for _, act := range acts {
		_, t, err := e.decideCommand(act.By, act.Command)
		if err != nil {
			return fmt.Errorf("%T: %w", act.Command, err)
		}
		if err := e.followEvents(t.Events); err != nil {
			return err
		}
	}
	return e.runPass(false)
}

func (e *engine) hasWaiting() bool { return e.st.Waiting.Len()+e.st.Sleeping.Len() > 0 }

// nextInstant is when something happens next.
func (e *engine) nextInstant(next int) spec.Instant {
	t := e.wake
	if next < len(e.w.Jobs) {
		t = min(t, e.w.Jobs[next].Submit)
	}
	if len(e.ends) > 0 {
		t = min(t, e.ends[0].at)
	}
	return t
}

// handleNext handles the next event alone: a submission before an end.
func (e *engine) handleNext(next int) (int, error) {
	switch {
	case next < len(e.w.Jobs) && e.w.Jobs[next].Submit <= e.now:
		uid, err := e.submitJob(next)
		if err != nil || uid == 0 {
			return next + 1, err
		}
		if e.rule.Keep || e.fitsAlone(uid) {
			err = e.runPass(true)
		}
		return next + 1, err
	case len(e.ends) > 0 && e.ends[0].at <= e.now:
		if x := e.popEnding(); !e.isGone(x) {
			if err := e.endJob(x); err != nil {
				return next, err
			}
		}
		if e.passChangesNothing() {
			return next, nil
		}
		return next, e.runPass(false)
	}
	return next, e.runPass(true)
}

// passChangesNothing tells that a pass would change nothing: every job that waits asks for
// more than is free, and on one node there is no choice of where it is to start.
func (e *engine) passChangesNothing() bool {
	if e.rule.Keep || len(e.w.Config.Nodes) != 1 || e.wake != spec.FarFuture || !e.hasWaiting() {
		return false
	}
	free, least := e.freeCPUs(), int64(math.MaxInt64)
	e.st.Waiting.Range(func(uid uint64, _ struct{}) bool {
		least = min(least, e.st.Job(spec.JobUID(uid)).Req.CPU)
		return least > free
	})
	return least > free
}

// releaseOverdue ends the jobs whose time limit is over at this instant: what they
// held counts as free before anything else happens. Each still has its own
// turn, and its own pass, among the ends of the instant.
func (e *engine) releaseOverdue() error {
	var due []ending
	var look func(i int)
	look = func(i int) {
		if i < len(e.ends) && e.ends[i].at <= e.now {
			if e.ends[i].limit && !e.isGone(e.ends[i]) {
				due = append(due, e.ends[i])
			}
			look(2*i + 1)
			look(2*i + 2)
		}
	}
	look(0)
	slices.SortFunc(due, func(a, b ending) int { return cmp.Compare(a.order, b.order) })
	for _, x := range due {
		if err := e.endJob(x); err != nil {
			return err
		}
	}
	return nil
}

// isGone tells that a job was ended before its turn: by release, or to make room
// for another.
func (e *engine) isGone(x ending) bool { return e.live[x.uid] != x.order }

// handleInstant handles everything of an instant, then passes.
func (e *engine) handleInstant(next int) (int, error) {
	for ; next < len(e.w.Jobs) && e.w.Jobs[next].Submit <= e.now; next++ {
		if _, err := e.submitJob(next); err != nil {
			return next, err
		}
	}
	for len(e.ends) > 0 && e.ends[0].at <= e.now {
		if x := e.popEnding(); !e.isGone(x) {
			if err := e.endJob(x); err != nil {
				return next, err
			}
		}
	}
	return next, e.runPass(false)
}

// decideCommand runs a command on the state.
func (e *engine) decideCommand(
	actor event.Actor,
	command scheduler.Command,
) (scheduler.Result, *trial.Trial, error) {
	t := trial.On(e.st, e.now, actor, "")
	result, err := scheduler.Decide(t, command)
	return result, t, err
}

// submitJob hands a job in. A refusal is kept with the job; 0 is no job.
func (e *engine) submitJob(i int) (spec.JobUID, error) {
	job := &e.w.Jobs[i]
	outcome := &e.res.Jobs[i]
	outcome.Submit = job.Submit
	result, _, err := e.decideCommand(
		event.Actor{Kind: event.ActorUser, UID: job.Spec.UID, Name: job.Spec.User},
		scheduler.Submit{Spec: e.linkedSpec(job)},
	)
	var refusal *spec.Error
	switch {
	case errors.As(err, &refusal):
		outcome.Refused = refusal
		e.res.Refused++
		e.ended++
		return 0, nil
	case err != nil:
		return 0, err
	}
	e.of[result.UID] = i
	if e.uids != nil {
		e.uids[i] = result.UID
	}
	e.res.MaxQueue = max(e.res.MaxQueue, e.st.Waiting.Len())
	return result.UID, nil
}

// linkedSpec is what a job asks for, with the numbers that the jobs of its
// dependency have in this replay. A term holds whose job has been forgotten.
func (e *engine) linkedSpec(job *Job) *spec.JobSpec {
	dep := job.Spec.Queue.Dependency
	if dep == nil || job.After == nil {
		return job.Spec
	}
	jobSpec := *job.Spec
	out := &spec.Dependency{Any: dep.Any}
	held := false
	for k, term := range dep.Terms {
		term.UID = 0
		if i := job.After[k]; i >= 0 {
			on := e.st.Job(e.uids[i])
			if on == nil {
				held = true
				continue
			}
			term.Job, term.Task = on.ID, spec.NoTask
		}
		out.Terms = append(out.Terms, term)
	}
	jobSpec.Queue.Dependency = out
	if len(out.Terms) == 0 || (held && out.Any) {
		jobSpec.Queue.Dependency = nil
	}
	return &jobSpec
}

// fitsAlone tells whether a job could start now if it were alone: enough is free.
func (e *engine) fitsAlone(uid spec.JobUID) bool {
	return e.st.Job(uid).Req.CPU <= e.freeCPUs()
}

// freeCPUs is how many CPUs nobody has.
func (e *engine) freeCPUs() (n int64) {
	e.st.Nodes.Range(func(_ uint64, node *state.Node) bool {
		n += node.FreeCPUs()
		return true
	})
	return n
}

// endJob lets a job end.
func (e *engine) endJob(x ending) error {
	job := e.st.Job(x.uid)
	i := e.of[x.uid]
	delete(e.live, x.uid)
	e.res.Jobs[i].End = e.now
	code := int32(0)
	if e.w.Jobs[i].Failed {
		code = 1
	}
	for k := range job.Alloc.Nodes {
		done := &scheduler.NodeDone{}
		if k == 0 {
			done.Batch = &event.StepResult{Exit: spec.ExitStatus{Code: code}}
		}
		name := job.Alloc.Nodes[k].Name
		if _, _, err := e.decideCommand(event.Actor{Kind: event.ActorNode, Name: name}, scheduler.Report{Node: name, Run: scheduler.Run{UID: x.uid, Attempt: job.Attempt}, Done: done}); err != nil {
			return err
		}
	}
	if j := e.st.Job(x.uid); j != nil && j.State == spec.Pending {
		return nil // it was put back into the queue
	}
	delete(e.of, x.uid)
	e.ended++
	e.stale++
	if e.stale >= 1000 { // forget those that ended
		e.stale = 0
		_, _, err := e.decideCommand(event.Actor{Kind: event.ActorSystem}, scheduler.Tick{})
		return err
	}
	return nil
}

// runPass runs the scheduler and commits what it proposes. Where promises are
// kept, settled leaves them where they are.
func (e *engine) runPass(settled bool) error {
	e.wake = spec.FarFuture
	if e.watch != nil && e.watch.Stalled != nil && e.watch.Stalled() {
		return nil
	}
	if !e.hasWaiting() {
		e.plan, e.kept = nil, nil
		return nil
	}
	options := scheduler.PassOptions{
		Plan:       e.plan,
		Queue:      &e.queue,
		Discipline: e.rule.Discipline,
		Predict:    e.rule.Predict,
		Alone:      true,
	}
	if e.rule.Keep {
		options.Keep, options.Settled = e.kept, settled
	}
	outcome, err := scheduler.Pass(e.st.Freeze(), e.now, options)
	if err != nil {
		return err
	}
	e.res.Passes++
	e.plan, e.wake = outcome.Plan, outcome.Wake
	if e.rule.Keep {
		e.kept, e.wake = outcome.Promises, min(e.wake, outcome.Promises.Next())
	}
	if t := outcome.Ahead; t != nil {
		e.st = t.State
		if err := e.followEvents(t.Events); err != nil || len(outcome.Reasons) == 0 {
			return err
		}
		outcome.Starts = nil
	}
	if outcome.Empty() {
		return nil
	}
	result, t, err := e.decideCommand(
		event.Actor{Kind: event.ActorSystem},
		scheduler.Starts{Proposal: &outcome.Proposal},
	)
	if err != nil {
		return err
	}
	if result.Started != len(outcome.Starts) {
		return fmt.Errorf(
			"%d of %d starts could not be committed",
			len(outcome.Starts)-result.Started,
			len(outcome.Starts),
		)
	}
	return e.followEvents(t.Events)
}

// followEvents does what the events of a pass ask for.
func (e *engine) followEvents(events []event.Envelope) error {
	for k := range events {
		switch ev := events[k].Event.(type) {
		case *event.ArrayTaskSplit:
			if ev.UID != ev.Array {
				return errors.New("arrays are replayed task by task")
			}
		case *event.JobStarted:
			e.noteStarted(ev)
		case *event.JobEligible: // a job waits from when nothing but its turn keeps it
			if i := e.of[ev.UID]; e.w.Jobs[i].After != nil {
				e.res.Jobs[i].Submit = e.now
			}
		case *event.JobRequeued: // its node was lost, say: the end that was due is void
			delete(e.live, ev.UID)
		case *event.JobEnded:
			if _, ran := e.live[ev.UID]; ran {
				delete(e.live, ev.UID)
				e.ended++
			}
		case *event.JobSuspended:
			e.suspendJob(ev.UID)
		case *event.JobResumed:
			e.resumeJob(ev.UID)
		case *event.JobEndRequested: // it is preempted
			e.res.Preempted++
			if err := e.endJob(ending{uid: ev.UID}); err != nil {
				return err
			}
			e.wake = min(e.wake, e.now.Add(spec.Second))
		}
	}
	return nil
}

// suspendJob takes a job's end back: it stands still.
func (e *engine) suspendJob(uid spec.JobUID) {
	order, ok := e.live[uid]
	if i := slices.IndexFunc(e.ends, func(x ending) bool { return x.uid == uid && x.order == order }); ok &&
		i >= 0 {
		x := e.ends[i]
		x.at = spec.Instant(x.at.Sub(e.now))
		e.left[uid] = x
	}
	delete(e.live, uid)
	e.wake = min(e.wake, e.now.Add(spec.Second))
}

// resumeJob lets it run for the rest.
func (e *engine) resumeJob(uid spec.JobUID) {
	x := e.left[uid]
	delete(e.left, uid)
	e.order++
	x.at, x.order = e.now.Add(spec.Span(x.at)), e.order
	e.live[uid] = x.order
	e.pushEnding(x)
}

func (e *engine) noteStarted(ev *event.JobStarted) {
	i := e.of[ev.UID]
	outcome := &e.res.Jobs[i]
	outcome.Start = e.now
	outcome.Procs = ev.Alloc.TRES.CPU
	outcome.Nodes = ev.Alloc.TRES.Node
	outcome.GPUs = ev.Alloc.TRES.Get("gres/gpu")
	e.order++
	run := e.w.Jobs[i].Run
	e.live[ev.UID] = e.order
	e.pushEnding(ending{e.now.Add(min(run, ev.Limit)), e.order, ev.UID, run >= ev.Limit})
}

// foundCluster makes the cluster: its configuration and all its nodes, idle.
func (e *engine) foundCluster() error {
	system := event.Actor{Kind: event.ActorSystem}
	first := []event.Event{
		&event.ClusterCreated{
			UUID:    [16]byte{1},
			Name:    e.w.Config.ClusterName,
			Version: event.Version,
		},
	}
	if _, _, err := e.decideCommand(system, scheduler.Policy{Events: append(first, e.w.Policy...)}); err != nil {
		return err
	}
	if _, _, err := e.decideCommand(system, scheduler.Configure{Config: e.w.Config}); err != nil {
		return err
	}
	for i := range e.w.Config.Nodes {
		node := &e.w.Config.Nodes[i]
		if _, _, err := e.decideCommand(event.Actor{Kind: event.ActorNode, Name: node.Name}, scheduler.RegisterNode{Node: node.Name, Inventory: node.FullInventory("replay")}); err != nil {
			return err
		}
		e.res.Procs += e.st.Node(node.Name).CPUs
		e.res.GPUs += int64(len(e.st.Node(node.Name).GPUs))
	}
	return nil
}

func (e *engine) pushEnding(x ending) {
	endings := append(e.ends, x)
	for i := len(endings) - 1; i > 0; {
		up := (i - 1) / 2
		if !endings[i].endsBefore(endings[up]) {
			break
		}
		endings[i], endings[up] = endings[up], endings[i]
		i = up
	}
	e.ends = endings
}

func (e *engine) popEnding() ending {
	endings := e.ends
	top, n := endings[0], len(endings)-1
	endings[0] = endings[n]
	endings = endings[:n]
	for i := 0; ; {
		kid := 2*i + 1
		if kid >= n {
			break
		}
		if kid+1 < n && endings[kid+1].endsBefore(endings[kid]) {
			kid++
		}
		if !endings[kid].endsBefore(endings[i]) {
			break
		}
		endings[i], endings[kid] = endings[kid], endings[i]
		i = kid
	}
	e.ends = endings
	return top
}

// foldEvent folds an event that is no command's.
func (e *engine) foldEvent(ev event.Event) error {
	return trial.On(e.st, e.now, event.Actor{Kind: event.ActorSystem}, "replay").Emit(ev)
}
