package scheduler

import (
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// sigKill and sigTerm end a pending job at once, as scancel does.
const (
	sigKill = 9
	sigTerm = 15
)

// cancel ends a pending job at once and asks a running one to end; with a
// signal a running job only gets the signal.
func (d *decision) cancel(c Cancel) error {
	j := d.t.Job(c.Target.UID)
	if j == nil {
		return spec.Refuse(spec.CodeInvalidJobID, "")
	}
	if j.State.Terminal() {
		return spec.Refuse(spec.CodeAlreadyDone, "")
	}
	ends := c.Signal == 0 || (c.Signal == sigKill && c.Scope == event.SignalFull)
	if j.State == spec.Pending {
		if c.Signal != 0 && c.Signal != sigKill && c.Signal != sigTerm {
			return spec.Refuse(spec.CodeJobPending, "")
		}
		j, err := d.target(c.Target, true)
		if err != nil {
			return err
		}
		return d.emit(&event.JobEnded{UID: j.UID, Attempt: j.Attempt, State: spec.Cancelled,
			Reason: spec.Reason{Code: spec.ReasonNone}, By: d.t.Actor.UID})
	}
	if !ends && j.State == spec.Suspended {
		return spec.Refuse(spec.CodeJobSuspended, "")
	}
	if !ends {
		return d.emit(&event.JobSignalled{UID: j.UID, Attempt: j.Attempt, Signal: c.Signal, Scope: c.Scope})
	}
	if j.Ending != nil && !j.Ending.Requeue {
		return nil // it is ending already and will not run again
	}
	return d.end(j, event.EndCancel, false, spec.NotHeld, "")
}

// end decides that an attempt must end.
func (d *decision) end(j *state.Job, cause event.EndCause, requeue bool, hold spec.Hold, detail string) error {
	return d.emit(&event.JobEndRequested{UID: j.UID, Attempt: j.Attempt, Cause: cause, By: d.t.Actor.UID,
		Requeue: requeue, Hold: hold, Detail: detail})
}

func (d *decision) hold(c Hold) error {
	j, err := d.target(c.Target, false)
	if err != nil {
		return err
	}
	if j.State != spec.Pending {
		return spec.Refuse(spec.CodeJobNotPending, "")
	}
	if j.Hold == spec.HeldByAdmin && c.By == spec.HeldByUser {
		return nil // the stronger hold stays
	}
	if j, err = d.target(c.Target, true); err != nil {
		return err
	}
	return d.emit(&event.JobHeld{UID: j.UID, By: c.By})
}

func (d *decision) release(c Release) error {
	j, err := d.target(c.Target, false)
	if err != nil {
		return err
	}
	switch {
	case j.State != spec.Pending:
		return spec.Refuse(spec.CodeJobNotPending, "")
	case j.Hold == spec.NotHeld:
		return nil
	case j.Hold != spec.HeldByUser && !c.Admin && d.t.Actor.Kind == event.ActorUser && d.t.Actor.UID != 0:
		return spec.Refuse(spec.CodeAccessDenied, "the job is held by an administrator")
	}
	return d.emit(&event.JobReleased{UID: j.UID})
}

// requeue ends the running attempt and queues the job again once every node
// is done; a finished job is queued again at once.
func (d *decision) requeue(c Requeue) error {
	j, err := d.target(c.Target, false)
	if err != nil {
		return err
	}
	switch {
	case j.State == spec.Pending:
		return spec.Refuse(spec.CodeJobPending, "")
	case j.Spec.Shell:
		return spec.Refuse(spec.CodeOnlyBatch, "")
	case !j.Spec.Queue.Requeue.Or(d.t.Config.Limits.JobRequeue):
		return spec.Refuse(spec.CodeDisabled, "the job was submitted with --no-requeue, or JobRequeue=0")
	case j.Completing():
		return spec.Refuse(spec.CodeJobNotAlterable, "it is still completing")
	case j.State.Terminal():
		return d.queueAgain(j, spec.Pending, c.Hold, false)
	case j.Ending != nil:
		return spec.Refuse(spec.CodeAlreadyDone, "")
	}
	return d.end(j, event.EndRequeue, true, c.Hold, "")
}

// suspend stops a job. It keeps its memory and devices; its CPUs are free to
// others.
func (d *decision) suspend(c Suspend) error {
	j, err := d.target(c.Target, false)
	switch {
	case err != nil:
		return err
	case j.State == spec.Pending:
		return spec.Refuse(spec.CodeJobPending, "")
	case j.State == spec.Suspended && j.Auto: // for another job: it does not go on by itself any more
		return d.emit(&event.JobSuspended{UID: j.UID, Attempt: j.Attempt})
	case j.State == spec.Suspended:
		return spec.Refuse(spec.CodeJobSuspended, "")
	case j.State.Terminal():
		return spec.Refuse(spec.CodeAlreadyDone, "")
	case j.Ending != nil:
		return spec.Refuse(spec.CodeJobNotRunning, "it is ending")
	case j.Prepares:
		return spec.Refuse(spec.CodePrologRunning, "")
	case j.Configuring():
		return spec.Refuse(spec.CodeJobNotRunning, "its nodes are booting")
	}
	return d.emit(&event.JobSuspended{UID: j.UID, Attempt: j.Attempt, Yields: true})
}

// resume lets a suspended job go on: at once, or as soon as nobody else has its
// CPUs.
func (d *decision) resume(c Resume) error {
	j, err := d.target(c.Target, false)
	switch {
	case err != nil:
		return err
	case j.State == spec.Pending:
		return spec.Refuse(spec.CodeJobPending, "")
	case j.State.Terminal():
		return spec.Refuse(spec.CodeAlreadyDone, "")
	case j.State != spec.Suspended:
		return spec.Refuse(spec.CodeJobNotSuspended, "")
	case j.Ending != nil:
		return spec.Refuse(spec.CodeJobNotRunning, "it is ending")
	}
	if d.t.InItsPlace(j) != "" || (j.Yields && overCap(d.t.State, j, nil)) {
		if j.Auto {
			return nil
		}
		return d.emit(&event.JobSuspended{UID: j.UID, Attempt: j.Attempt, Auto: true})
	}
	return d.emit(&event.JobResumed{UID: j.UID, Attempt: j.Attempt})
}

// queueAgain closes an attempt whose nodes are all done and puts the job back
// into the queue. counts tells whether it counts towards MaxBatchRequeue.
func (d *decision) queueAgain(j *state.Job, closedAs spec.JobState, hold spec.Hold, counts bool) error {
	most := d.t.Config.Limits.MaxBatchRequeue
	if most == 0 {
		most = 5
	}
	if counts && j.Requeues+1 > most {
		hold = spec.HeldMaxRequeue
	}
	ev := &event.JobRequeued{UID: j.UID, Attempt: j.Attempt, State: closedAs, Exit: j.Exit, Hold: hold, Counts: counts}
	delay := d.t.Config.Timing.RequeueDelay
	switch {
	case hold != spec.NotHeld:
		ev.Reason.Code = state.HoldReason(hold)
	case delay > 0:
		ev.Begin = d.t.Now.Add(delay)
		ev.Reason = spec.Reason{Code: spec.ReasonBeginTime, Until: ev.Begin}
	case j.Het != nil:
		ev.Reason.Code = spec.ReasonCleaning // the other components may not be done yet
	default:
		ev.Reason.Code = spec.ReasonNone
	}
	return d.emit(ev)
}

// report folds what a node says about an attempt. A report about an attempt
// that is not current changes nothing and is counted.
func (d *decision) report(c Report) error {
	j := d.t.Job(c.Run.UID)
	if j == nil || j.Attempt != c.Run.Attempt || !j.HoldsNodes() || !holdsNode(j, c.Node) {
		d.res.Stale++
		return nil
	}
	switch {
	case c.LaunchFailed != nil:
		return d.launchFailed(j, c)
	case c.BatchOver != nil && j.State.Active():
		return d.batchOver(j, c.BatchOver)
	case c.Done != nil:
		return d.nodeDone(j, c.Node, c.Done, false)
	case c.StepOver != nil:
		return d.stepOver(j, c.Node, c.StepOver)
	}
	d.res.Stale++
	return nil
}

// prologOver: only behind a PrologSlurmctld that ended well are the job's
// processes started. Behind one that failed the job is queued again, unless it
// must not be.
func (d *decision) prologOver(c PrologOver) error {
	j := d.t.Job(c.Run.UID)
	if j == nil || j.Attempt != c.Run.Attempt || !j.Prepares || j.Ending != nil {
		d.res.Stale++
		return nil
	}
	if c.Failed == "" {
		return d.emit(&event.JobPrepared{UID: j.UID, Attempt: j.Attempt})
	}
	return d.end(j, event.EndLaunchFailed, d.mayRequeue(j), spec.NotHeld, c.Failed)
}

// owesEpilog tells whether the end of a job's attempt asks for EpilogSlurmctld.
func (d *decision) owesEpilog(uid spec.JobUID) bool {
	j, ctl := d.t.Job(uid), d.t.Config.Ctl
	return ctl != nil && ctl.Epilog != "" && j != nil && j.State.Active()
}

func (d *decision) epilogOver(c EpilogOver) error {
	j := d.t.Job(c.Run.UID)
	if j == nil || !slices.ContainsFunc(j.Epilogs, func(due state.Epilog) bool { return due.Attempt == c.Run.Attempt }) {
		d.res.Stale++
		return nil
	}
	return d.emit(&event.JobEpilogOver{UID: j.UID, Attempt: c.Run.Attempt})
}

// holdsNode tells whether the attempt still holds a node.
func holdsNode(j *state.Job, node string) bool {
	for i := range j.Alloc.Nodes {
		if j.Alloc.Nodes[i].Name == node {
			return !j.Done.Has(i)
		}
	}
	return false
}

// batchOver is the verdict of an attempt whose nodes are not clean yet. One
// that is to run again is queued when they are.
func (d *decision) batchOver(j *state.Job, over *BatchOver) error {
	if j.Ending != nil && j.Ending.Requeue {
		return nil
	}
	return d.emit(d.verdict(j, &NodeDone{Batch: over.Batch, Usage: spec.Usage{OOMKilled: over.OOM}}))
}

// drained sets a node aside for a fault of its own, unless it is already.
func (d *decision) drained(node, why string) error {
	if n := d.t.Node(node); n == nil || n.Admin == event.NodeDrain || n.Admin == event.NodeDown {
		return nil
	}
	return d.emit(&event.NodeStateSet{Node: node, State: event.NodeDrain, Reason: why})
}

// nohold is SchedulerParameters=nohold_on_prolog_fail.
const nohold = "nohold_on_prolog_fail"

// launchFailed: the job is queued again unless it must not be, held if the
// prolog failed; the node is drained when the fault is its own.
func (d *decision) launchFailed(j *state.Job, c Report) error {
	if c.LaunchFailed.Drain {
		why := c.LaunchFailed.Text
		if !c.LaunchFailed.Hold {
			why = "batch job launch failed: " + why
		}
		if err := d.drained(c.Node, why); err != nil {
			return err
		}
	}
	if !j.State.Active() || j.Ending != nil {
		return nil
	}
	force := c.LaunchFailed.Hold && d.t.Config.Ctl != nil && d.t.Config.Ctl.ForceRequeue && !j.Spec.Shell
	again := (c.LaunchFailed.Drain || c.LaunchFailed.Again) && (force || d.mayRequeue(j))
	hold := spec.NotHeld
	if c.LaunchFailed.Hold && again && !slices.Contains(d.t.Config.Sched.Params, nohold) {
		hold = spec.HeldByAdmin
	}
	return d.end(j, event.EndLaunchFailed, again, hold, c.LaunchFailed.Text)
}

// nodeDone gives a node back. The batch script's end, or the last node, is the
// verdict of the attempt; if another run was decided on, the job is queued
// again when the last node is done.
func (d *decision) nodeDone(j *state.Job, node string, done *NodeDone, lost bool) error {
	verdict := j.State.Active() && (done.Batch != nil || lastNode(j, node)) && (j.Ending == nil || !j.Ending.Requeue)
	if verdict {
		if err := d.emit(d.verdict(j, done)); err != nil {
			return err
		}
	}
	if done.Drain != "" {
		if err := d.drained(node, done.Drain); err != nil {
			return err
		}
	}
	if err := d.stepsLeave(d.t.Job(j.UID), node, lost); err != nil {
		return err
	}
	if err := d.emit(&event.JobNodeDone{UID: j.UID, Attempt: j.Attempt, Node: node, Usage: done.Usage, Batch: batchOutOfMemory(done.Batch, done.Usage.OOMKilled), Lost: lost}); err != nil {
		return err
	}
	j = d.t.Job(j.UID)
	if !j.HoldsNodes() && j.Ending != nil && j.Ending.Requeue && j.State.Active() {
		closedAs, counts := requeuedAs(j.Ending.Cause)
		return d.queueAgain(j, closedAs, j.Ending.Hold, counts)
	}
	return nil
}

func lastNode(j *state.Job, node string) bool {
	for i := range j.Alloc.Nodes {
		if !j.Done.Has(i) && j.Alloc.Nodes[i].Name != node {
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

// verdict derives how an attempt ended: from the decision to end it if there
// was one, else from the batch script's exit.
func (d *decision) verdict(j *state.Job, done *NodeDone) *event.JobEnded {
	ev := &event.JobEnded{UID: j.UID, Attempt: j.Attempt, Reason: spec.Reason{Code: spec.ReasonNone}}
	if done.Batch != nil {
		ev.Exit, ev.Derived = done.Batch.Exit, worstStep(j, done.Batch.Exit)
	}
	if j.Ending != nil {
		ev.State, ev.Reason.Code = endedAs(j.Ending.Cause)
		if leader := d.t.Job(leaderOf(j)); j.Ending.Cause == event.EndLeader && leader != nil && leader.State.Terminal() {
			ev.State, ev.Reason.Code = leader.State, leader.Reason.Code
		}
		ev.Reason.Detail = j.Ending.Detail
		if j.Ending.Cause == event.EndCancel {
			ev.By = j.Ending.By
		}
		if j.Ending.Cause == event.EndLaunchFailed && ev.Exit.OK() {
			ev.Exit.Code = 1
		}
		return ev
	}
	switch {
	case done.Batch == nil:
		ev.State, ev.Reason.Code = spec.NodeFailed, spec.ReasonNodeDown
	case (done.Usage.OOMKilled || lastOutOfMemory(j)) && !done.Batch.Exit.OK():
		ev.State, ev.Reason.Code = spec.OutOfMemory, spec.ReasonOutOfMemory
		ev.Exit = outOfMemory(ev.Exit)
	case done.Batch.Unknown:
		ev.State = spec.Failed
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
func outOfMemory(x spec.ExitStatus) spec.ExitStatus {
	if x.Signal == sigKill || x.Code == 128+sigKill || x.Code == 128+memorySignal {
		return spec.ExitStatus{Signal: memorySignal}
	}
	return x
}

// batchOutOfMemory is the end of a batch script, of which the kernel may have
// killed something for memory.
func batchOutOfMemory(b *event.StepResult, oom bool) *event.StepResult {
	if b == nil || !oom {
		return b
	}
	out := *b
	out.Exit = outOfMemory(b.Exit)
	return &out
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
func worstStep(j *state.Job, batch spec.ExitStatus) spec.ExitStatus {
	worst := j.StepExit
	for i := range j.Steps {
		r := j.Steps[i].Result
		if r != nil && (r.Exit.Code > worst.Code || (r.Exit.Code == worst.Code && r.Exit.Signal > worst.Signal)) {
			worst = r.Exit
		}
	}
	return worst
}
