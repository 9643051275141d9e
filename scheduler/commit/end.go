package commit

import (
	"fmt"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/cron"
)

// RequestEnd decides that an attempt must end.
func (d Changes) RequestEnd(
	job *state.Job,
	cause event.EndCause,
	requeue bool,
	hold spec.Hold,
	detail string,
) error {
	return d.Emit(
		&event.JobEndRequested{UID: job.UID, Attempt: job.Attempt, Cause: cause, By: d.t.Actor.UID,
			Requeue: requeue, Hold: hold, Detail: detail},
	)
}

// RequeueJob closes an attempt whose nodes are all done and puts the job back
// into the queue. counts tells whether it counts towards MaxBatchRequeue.
func (d Changes) RequeueJob(
	job *state.Job,
	closedAs spec.JobState,
	hold spec.Hold,
	counts bool,
) error {
	most := d.t.Config.Limits.MaxBatchRequeue
	if most == 0 {
		most = 5
	}
	if counts && job.Requeues+1 > most {
		hold = spec.HeldMaxRequeue
	}
	ev := &event.JobRequeued{
		UID:     job.UID,
		Attempt: job.Attempt,
		State:   closedAs,
		Exit:    job.Exit,
		Hold:    hold,
		Counts:  counts,
	}
	if job.State.Active() {
		ev.At = endByNode(job.EarliestEnd(), job.Batch, d.t.Now)
	}
	delay := d.t.Config.Timing.RequeueDelay
	switch {
	case hold != spec.NotHeld:
		ev.Reason.Code = state.HoldReason(hold)
	case delay > 0:
		ev.Begin = d.t.Now.Add(delay)
		ev.Reason = spec.Reason{Code: spec.ReasonBeginTime, Until: ev.Begin}
	case job.Het != nil:
		ev.Reason.Code = spec.ReasonCleaning // the other components may not be done yet
	default:
		ev.Reason.Code = spec.ReasonNone
	}
	if err := d.Emit(ev); err != nil {
		return err
	}
	return d.adoptThrottle(d.t.State.Job(job.UID))
}

// MayRequeue tells whether a job may be run again on its own account: a batch
// job, or a component of one. A heterogeneous job of which a component has been
// forgotten may not: it starts with all of them, and would wait for ever.
func (d Changes) MayRequeue(job *state.Job) bool {
	if job.Het != nil && len(d.t.Components(job)) < int(job.Het.Size) {
		return false
	}
	return (!job.Spec.Shell || job.Het.Follows()) &&
		job.Spec.Queue.Requeue.Or(d.t.Config.Limits.JobRequeue)
}

// externSince is the version of the ledger from which on it has words for what an
// extern step used.
const externSince = 2

// NodeDone tells that nothing of the attempt is left on the node.
type NodeDone struct {
	Usage spec.Usage
	Batch *event.StepResult // on the node that ran the script
	// OOM tells that the kernel killed a process of the batch script for memory. Usage
	// tells of the steps' too, which decide for themselves: their job may go on and succeed.
	OOM   bool
	Drain string // why the node takes nothing new: its epilog failed
	// Extern is the part of Usage that the extern step used; nil: there was none.
	Extern *spec.Usage
	// Unfenced tells that nobody could ask the node whether it is so.
	Unfenced bool
}

// FinishNode gives a node back. The batch script's end, or the last node, is the
// verdict of the attempt; if another run was decided on, the job is queued
// again when the last node is done.
func (d Changes) FinishNode(job *state.Job, node string, done *NodeDone, lost bool) error {
	job, err := d.RequeueUnseen(job, done.Batch)
	if err != nil {
		return err
	}
	queuedAgain := job.Ending != nil && job.Ending.Requeue
	judged := job.State.Active() && !queuedAgain
	if judged && (done.Batch != nil || IsLastNode(job, node)) {
		if err := d.Emit(d.DeriveEnd(job, done)); err != nil {
			return err
		}
	}
	if done.Drain != "" {
		if err := d.DrainNode(node, done.Drain); err != nil {
			return err
		}
	}
	if err := d.stepsLeave(d.t.Job(job.UID), node, lost); err != nil {
		return err
	}
	gone := &event.JobNodeDone{UID: job.UID, Attempt: job.Attempt, Node: node, Usage: done.Usage.InVersion(d.t.Version),
		Batch: batchOutOfMemory(
			done.Batch,
			done.OOM,
		), Lost: lost, Unfenced: done.Unfenced, Rest: d.restWithout(d.t.Job(job.UID), node)}
	if done.Extern != nil && d.t.Version >= externSince {
		gone.Extern = done.Extern
	}
	if done.Unfenced && job.Alloc.Lease > 0 {
		gone.FencedBy = d.t.Now.Add(spec.LeaseBound(job.Alloc.Lease))
	}
	if err := d.Emit(gone); err != nil {
		return err
	}
	job = d.t.Job(job.UID)
	if !job.HoldsNodes() && job.Ending != nil && job.Ending.Requeue && job.State.Active() {
		closedAs, counts := requeuedAs(job.Ending.Cause)
		return d.RequeueJob(job, closedAs, job.Ending.Hold, counts)
	}
	if !job.HoldsNodes() && job.State.Terminal() && d.t.ComesBack(job) {
		return d.waitForClock(job)
	}
	return nil
}

// waitForClock queues a job of a crontab again, for the next time of its line. How it
// ended stands in the verdict of its attempt.
func (d Changes) waitForClock(job *state.Job) error {
	when, problems := cron.Parse(job.Spec.Cron)
	if len(problems) > 0 {
		return fmt.Errorf("job uid %d: time %q: %s", job.UID, job.Spec.Cron, problems[0])
	}
	begin := when.Next(d.t.Now, d.t.East)
	return d.Emit(&event.JobRequeued{
		UID:     job.UID,
		Attempt: job.Attempt,
		State:   spec.Pending,
		Exit:    job.Exit,
		Begin:   begin,
		Reason:  spec.Reason{Code: spec.ReasonBeginTime, Until: begin},
	})
}

// restWithout is what an attempt holds that goes on without a node that it was told
// to give back; nil for any other.
func (d Changes) restWithout(job *state.Job, node string) *spec.TRES {
	if !job.State.Active() || !slices.Contains(job.Leaving, node) {
		return nil
	}
	var less []spec.NodeAlloc
	for i := range job.Alloc.Nodes {
		if job.Alloc.Nodes[i].Name != node {
			less = append(less, job.Alloc.Nodes[i])
		}
	}
	if len(less) == 0 {
		return nil
	}
	var part spec.PartitionSpec
	if partition := d.t.Parts.Find(job.Alloc.Partition); partition != nil {
		part = *partition.Spec
	}
	demand := place.Resolve(d.t.Config, &part, job.Spec)
	sum := place.Sum(less, &demand, part.BillingWeights)
	return &sum
}

// RequeueUnseen queues a job again whose end nobody saw: its script was killed
// together with the agent and the shepherd. The shepherd reports such an end only
// when nothing of the run is left, so that the next attempt is alone. A job that
// must not run again ends as NODE_FAIL.
func (d Changes) RequeueUnseen(job *state.Job, batch *event.StepResult) (*state.Job, error) {
	if batch == nil || !batch.Unknown || !job.GoesOn() || !d.MayRequeue(job) {
		return job, nil
	}
	if err := d.RequestEnd(job, event.EndNodeLost, true, spec.NotHeld, batch.Detail); err != nil {
		return nil, err
	}
	return d.t.Job(job.UID), nil
}

func IsLastNode(job *state.Job, node string) bool {
	for i := range job.Alloc.Nodes {
		if !job.Done.Has(i) && job.Alloc.Nodes[i].Name != node {
			return false
		}
	}
	return true
}

// requeuedAs is how an attempt that was cut short is recorded.
func requeuedAs(cause event.EndCause) (spec.JobState, bool) {
	switch cause {
	case event.EndNodeLost:
		return spec.NodeFailed, true
	case event.EndPreempt:
		return spec.Preempted, false
	case event.EndLaunchFailed, event.EndBoot: // nothing of it ran, so nothing has failed
		return spec.Pending, true
	}
	return spec.Pending, false
}

// endByNode is when something was over by the clock of its node, or 0 where that
// is not known or no earlier than now: now is then the end. The node's clock may
// differ. What began there before the controller ordered it did so on a clock
// that is behind, by that much at least, and its end is moved along.
func endByNode(earliest spec.Instant, end *event.StepResult, now spec.Instant) spec.Instant {
	if end == nil || end.Unknown || end.Ended == 0 || end.Ended < end.Started {
		return 0 // nobody saw it, or the clock was set back meanwhile
	}
	over := end.Ended
	if end.Started != 0 && end.Started < earliest {
		over = over.Add(earliest.Sub(end.Started))
	}
	if over = max(over, earliest); over >= now {
		return 0
	}
	return over
}

// maxClockError bounds how far the clocks of a node and of the controller are
// believed to be apart where their order decides about a verdict.
const maxClockError = 10 * spec.Second

// endedInTime tells whether an attempt that is to end at its time limit or its
// deadline was over before, while no controller could be told.
func endedInTime(job *state.Job, over spec.Instant) bool {
	if over == 0 || over.Add(maxClockError) >= job.Ending.At {
		return false
	}
	switch job.Ending.Cause {
	case event.EndTimeLimit:
		return over < max(job.Started, job.Ready).Add(job.Limit+job.Paused)
	case event.EndDeadline:
		return over < job.Spec.Time.Deadline
	}
	return false
}

// DeriveEnd derives how an attempt ended: from the decision to end it if there
// was one, else from the batch script's exit. When it ended is told by its node.
func (d Changes) DeriveEnd(job *state.Job, done *NodeDone) *event.JobEnded {
	ev := &event.JobEnded{
		UID:     job.UID,
		Attempt: job.Attempt,
		Reason:  spec.Reason{Code: spec.ReasonNone},
	}
	if done.Batch != nil {
		ev.Exit, ev.Derived = done.Batch.Exit, worstStep(job, done.Batch.Exit)
		ev.At = endByNode(job.EarliestEnd(), done.Batch, d.t.Now)
	}
	if job.Ending != nil && !endedInTime(job, ev.At) {
		ev.State, ev.Reason.Code = endedAs(job.Ending.Cause)
		if leader := d.t.Job(LeaderOf(job)); job.Ending.Cause == event.EndLeader && leader != nil &&
			leader.State.Terminal() {
			ev.State, ev.Reason.Code = leader.State, leader.Reason.Code
		}
		ev.Reason.Detail = job.Ending.Detail
		if job.Ending.Cause == event.EndCancel {
			ev.By = job.Ending.By
		}
		if job.Ending.Cause == event.EndLaunchFailed && ev.Exit.OK() {
			ev.Exit.Code = 1
		}
		return ev
	}
	switch {
	case done.Batch == nil:
		ev.State, ev.Reason.Code = spec.NodeFailed, spec.ReasonNodeDown
	case done.OOM || lastOutOfMemory(job) && !done.Batch.Exit.OK():
		ev.State, ev.Reason.Code = spec.OutOfMemory, spec.ReasonOutOfMemory
		ev.Exit = outOfMemory(ev.Exit)
		if done.OOM {
			ev.Exit = batchMemoryExit(ev.Exit)
		}
	case done.Batch.Unknown:
		ev.State = spec.NodeFailed
		ev.Reason = spec.Reason{Code: spec.ReasonUnknownExit, Detail: done.Batch.Detail}
	case done.Batch.Exit.Signal != 0:
		ev.State = spec.Failed
		ev.Reason = spec.Reason{Code: spec.ReasonRaisedSignal, Asked: int64(done.Batch.Exit.Signal)}
	case done.Batch.Exit.Code != 0:
		ev.State, ev.Reason.Code = spec.Failed, spec.ReasonNonZeroExit
	default:
		ev.State = spec.Completed
	}
	return ev
}

// memorySignal is what Slurm shows for the signal of what the kernel killed for
// memory: 0:125.
const memorySignal = 125

// outOfMemory is the exit of something that ended for lack of memory: what was
// killed for it, also as srun tells of it, shows the number that stands for that.
func outOfMemory(status spec.ExitStatus) spec.ExitStatus {
	if status.Signal == SigKill || status.Code == 128+SigKill || status.Code == 128+memorySignal {
		return spec.ExitStatus{Signal: memorySignal}
	}
	return status
}

// batchOutOfMemory is the end of a batch script, of which the kernel may have
// killed something for memory.
func batchOutOfMemory(b *event.StepResult, oom bool) *event.StepResult {
	if b == nil || !oom {
		return b
	}
	out := *b
	out.Exit = batchMemoryExit(b.Exit)
	return &out
}

// batchMemoryExit is the exit of a batch script in whose group the kernel killed
// a process for memory. A script that went on and succeeded did so without what
// that process was to do, so its success does not count: Slurm shows 0:125 too.
func batchMemoryExit(status spec.ExitStatus) spec.ExitStatus {
	if status.OK() {
		return spec.ExitStatus{Signal: memorySignal}
	}
	return outOfMemory(status)
}

func endedAs(cause event.EndCause) (spec.JobState, spec.ReasonCode) {
	switch cause {
	case event.EndCancel, event.EndLeader:
		return spec.Cancelled, spec.ReasonNone
	case event.EndTimeLimit:
		return spec.TimedOut, spec.ReasonTimeLimit
	case event.EndPreempt:
		return spec.Preempted, spec.ReasonNone
	case event.EndNodeLost:
		return spec.NodeFailed, spec.ReasonNodeDown
	case event.EndLaunchFailed:
		return spec.Failed, spec.ReasonLaunchFailure
	case event.EndBoot:
		return spec.BootFailed, spec.ReasonNodeDown
	case event.EndDeadline:
		return spec.DeadlineMissed, spec.ReasonDeadLine
	case event.EndOutOfMemory:
		return spec.OutOfMemory, spec.ReasonOutOfMemory
	}
	return spec.Failed, spec.ReasonSystemFailure
}

// worstStep is the worst exit of a job's steps: a code is worse than a signal.
func worstStep(job *state.Job, batch spec.ExitStatus) spec.ExitStatus {
	worst := job.StepExit
	for i := range job.Steps {
		r := job.Steps[i].Result
		if r != nil &&
			(r.Exit.Code > worst.Code || (r.Exit.Code == worst.Code && r.Exit.Signal > worst.Signal)) {
			worst = r.Exit
		}
	}
	return worst
}

// DrainNode sets a node aside for a fault of its own, unless it is already.
func (d Changes) DrainNode(node, reason string) error {
	if n := d.t.Node(node); n == nil || n.Admin == event.NodeDrain || n.Admin == event.NodeDown {
		return nil
	}
	return d.Emit(&event.NodeStateSet{Node: node, State: event.NodeDrain, Reason: reason})
}

// HoldsNode tells whether the attempt still holds a node.
func HoldsNode(job *state.Job, node string) bool {
	for i := range job.Alloc.Nodes {
		if job.Alloc.Nodes[i].Name == node {
			return !job.Done.Has(i)
		}
	}
	return false
}

// neverRan lets an attempt that is to end be over at once if it still waits
// for its nodes to boot: nothing of it was started anywhere.
func (d Changes) neverRan(ev event.Event) error {
	end, ok := ev.(*event.JobEndRequested)
	if !ok {
		return nil
	}
	for job := d.t.Job(end.UID); job.Configuring(); job = d.t.Job(end.UID) {
		i := 0
		for job.Done.Has(i) {
			i++
		}
		if err := d.FinishNode(job, job.Alloc.Nodes[i].Name, &NodeDone{}, false); err != nil {
			return err
		}
	}
	return nil
}

// SigKill and sigTerm end a pending job at once, as scancel does.
const (
	SigKill = 9
	SigTerm = 15
)
