package decide

import (
	"slices"
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/commit"
	"github.com/musterhpc/muster/spec"
)

// jobCommands decides about one job: cancel, hold, requeue, suspend, update, and what
// its nodes report of it.
type jobCommands struct{ *decision }

// cancelJob ends a pending job at once and asks a running one to end; with a
// signal a running job only gets the signal.
func (d jobCommands) cancelJob(cancel Cancel) error {
	j := d.t.Job(cancel.Target.UID)
	if j == nil {
		return spec.Refuse(spec.CodeInvalidJobID, "")
	}
	if j.State.Terminal() {
		return spec.Refuse(spec.CodeAlreadyDone, "")
	}
	ends := cancel.Signal == 0 ||
		(cancel.Signal == commit.SigKill && cancel.Scope == event.SignalFull)
	if j.State == spec.Pending {
		if cancel.Signal != 0 && cancel.Signal != commit.SigKill &&
			cancel.Signal != commit.SigTerm {
			return spec.Refuse(spec.CodeJobPending, "")
		}
		if err := d.crontabs().mayCancel(j, cancel); err != nil {
			return err
		}
		job, err := d.findTarget(cancel.Target, true)
		if err != nil {
			return err
		}
		if err := d.noteCancel(job, cancel); err != nil {
			return err
		}
		return d.Emit(&event.JobEnded{UID: job.UID, Attempt: job.Attempt, State: spec.Cancelled,
			Reason: spec.Reason{Code: spec.ReasonNone}, By: d.t.Actor.UID})
	}
	if !ends && !j.Spec.Runner().Signals() {
		return spec.Refuse(spec.CodeDisabled, "a pod takes no signals; without --signal the job ends")
	}
	if !ends && j.State == spec.Suspended {
		return spec.Refuse(spec.CodeJobSuspended, "")
	}
	if !ends {
		return d.Emit(
			&event.JobSignalled{
				UID:     j.UID,
				Attempt: j.Attempt,
				Signal:  cancel.Signal,
				Scope:   cancel.Scope,
			},
		)
	}
	if j.Ending != nil && !j.Ending.Requeue {
		return nil // it is ending already and will not run again
	}
	if err := d.crontabs().mayCancel(j, cancel); err != nil {
		return err
	}
	if err := d.noteCancel(j, cancel); err != nil {
		return err
	}
	return d.RequestEnd(j, event.EndCancel, false, spec.NotHeld, "")
}

// noteCancel writes what stays of a cancellation beside the end of the job: the comment of
// who cancelled it, and that its crontab does not bring it back.
func (d jobCommands) noteCancel(job *state.Job, cancel Cancel) error {
	if cancel.Comment != "" {
		commented := commit.CurrentSpec(job)
		commented.AdminComment = cancel.Comment
		if err := d.Emit(&event.JobUpdated{UID: job.UID, Spec: &commented, Req: job.Req,
			Assoc: job.Assoc, Changed: []string{"AdminComment"}}); err != nil {
			return err
		}
	}
	return d.crontabs().disableLines(job)
}

// noteJobs changes what is said of jobs, of all or of none.
func (d jobCommands) noteJobs(command NoteJobs) error {
	for _, uid := range command.UIDs {
		if uid == 0 || uid >= d.t.NextUID {
			return spec.Refuse(spec.CodeInvalidJobID, "")
		}
	}
	for _, uid := range command.UIDs {
		note := command.Note
		note.UID = uid
		if err := d.Emit(&note); err != nil {
			return err
		}
	}
	return nil
}

func (d jobCommands) holdJob(command Hold) error {
	job, err := d.findTarget(command.Target, false)
	if err != nil {
		return err
	}
	if job.State != spec.Pending {
		return spec.Refuse(spec.CodeJobNotPending, "")
	}
	if job.Hold == spec.HeldByAdmin && command.By == spec.HeldByUser {
		return nil // the stronger hold stays
	}
	job, err = d.findTarget(command.Target, true)
	if err != nil {
		return err
	}
	return d.Emit(&event.JobHeld{UID: job.UID, By: command.By})
}

func (d jobCommands) releaseJob(command Release) error {
	job, err := d.findTarget(command.Target, false)
	if err != nil {
		return err
	}
	switch {
	case job.State != spec.Pending:
		return spec.Refuse(spec.CodeJobNotPending, "")
	case job.Hold == spec.NotHeld:
		return nil
	case isHeldByAdmin(job) && !command.Admin && d.actsForUser():
		return spec.Refuse(spec.CodeAccessDenied, "the job is held by an administrator")
	}
	job, err = d.findTarget(command.Target, true)
	if err != nil { // of an array only the task that is named
		return err
	}
	return d.Emit(&event.JobReleased{UID: job.UID})
}

// requeueJob ends the running attempt and queues the job again once every node
// is done; a finished job is queued again at once.
func (d jobCommands) requeueJob(command Requeue) error {
	job, err := d.findTarget(command.Target, false)
	if err != nil {
		return err
	}
	switch {
	case job.State == spec.Pending:
		return spec.Refuse(spec.CodeJobPending, "")
	case command.Incomplete && job.State == spec.Completed:
		return nil
	case job.Spec.Shell:
		return spec.Refuse(spec.CodeOnlyBatch, "")
	case !job.Spec.Queue.Requeue.Or(d.t.Config.Limits.JobRequeue):
		return spec.Refuse(
			spec.CodeDisabled,
			"the job was submitted with --no-requeue, or JobRequeue=0",
		)
	case job.Completing():
		return spec.Refuse(spec.CodeJobNotAlterable, "it is still completing")
	case job.State.Terminal() && !d.hasPartition(job.Spec):
		return spec.Refuse(
			spec.CodeInvalidPartition,
			strings.Join(job.Spec.Partitions, ",")+" was deleted; submit the job anew",
		)
	case job.State.Terminal():
		return d.RequeueJob(job, spec.Pending, command.Hold, false)
	case job.Ending != nil:
		return spec.Refuse(spec.CodeAlreadyDone, "")
	}
	return d.RequestEnd(job, event.EndRequeue, true, command.Hold, "")
}

// hasPartition tells whether a partition that a job names exists. One that was added by
// command can be deleted once no job waits for it or runs in it: a job that is over would wait
// in it for ever.
func (d jobCommands) hasPartition(job *spec.JobSpec) bool {
	return slices.ContainsFunc(
		job.Partitions,
		func(name string) bool { return d.t.Parts.Find(name) != nil },
	)
}

// suspendJob stops a job. It keeps its memory and devices; its CPUs are free to
// others.
func (d jobCommands) suspendJob(command Suspend) error {
	job, err := d.findTarget(command.Target, false)
	switch {
	case err != nil:
		return err
	case job.State == spec.Pending:
		return spec.Refuse(spec.CodeJobPending, "")
	case !job.Spec.Runner().Suspends():
		return spec.Refuse(spec.CodeDisabled, "a pod cannot be suspended")
	case job.State == spec.Suspended && job.Auto: // for another job: it does not go on by itself any more
		return d.Emit(&event.JobSuspended{UID: job.UID, Attempt: job.Attempt})
	case job.State == spec.Suspended:
		return spec.Refuse(spec.CodeJobSuspended, "")
	case job.State.Terminal():
		return spec.Refuse(spec.CodeAlreadyDone, "")
	case job.Ending != nil:
		return spec.Refuse(spec.CodeJobNotRunning, "it is ending")
	case job.Prepares:
		return spec.Refuse(spec.CodePrologRunning, "")
	case job.Configuring():
		return spec.Refuse(spec.CodeJobNotRunning, "its nodes are booting")
	}
	return d.Emit(&event.JobSuspended{UID: job.UID, Attempt: job.Attempt, Yields: true})
}

// resumeJob lets a suspended job go on: at once, or as soon as nobody else has its
// CPUs.
func (d jobCommands) resumeJob(command Resume) error {
	job, err := d.findTarget(command.Target, false)
	switch {
	case err != nil:
		return err
	case job.State == spec.Pending:
		return spec.Refuse(spec.CodeJobPending, "")
	case job.State.Terminal():
		return spec.Refuse(spec.CodeAlreadyDone, "")
	case job.State != spec.Suspended:
		return spec.Refuse(spec.CodeJobNotSuspended, "")
	case job.Ending != nil:
		return spec.Refuse(spec.CodeJobNotRunning, "it is ending")
	}
	if d.t.InItsPlace(job) != "" ||
		(job.Yields && commit.ExceedsPartitionCPUs(d.t.State, job, nil)) {
		if job.Auto {
			return nil
		}
		return d.Emit(&event.JobSuspended{UID: job.UID, Attempt: job.Attempt, Auto: true})
	}
	return d.Emit(&event.JobResumed{UID: job.UID, Attempt: job.Attempt})
}

// foldReport folds what a node says about an attempt. A report about an attempt
// that is not current changes nothing and is counted.
func (d jobCommands) foldReport(report Report) error {
	job := d.t.Job(report.Run.UID)
	if d.nodes().isOwed(report) {
		return d.nodes().fencedByReport(report)
	}
	if !isOfRun(job, report) || !commit.HoldsNode(job, report.Node) ||
		job.Spec.Runner() != spec.ByAgents {
		d.res.Stale++
		return nil
	}
	switch {
	case report.LaunchFailed != nil:
		return d.launchFailed(job, report)
	case report.BatchOver != nil && job.State.Active():
		return d.batchOver(job, report.BatchOver)
	case report.Done != nil:
		return d.FinishNode(job, report.Node, report.Done, false)
	case report.Image != nil:
		return d.pinImage(job, report)
	case report.StepOver != nil && holdsStep(job, report.StepOver.Step, report.Node):
		return d.FinishStepPart(job, report.Node, report.StepOver)
	}
	d.res.Stale++
	return nil
}

// pinImage keeps what an image's name meant when the job first ran in it. What a
// second node was told at the same time is not kept: there is one digest for a job.
func (d jobCommands) pinImage(job *state.Job, report Report) error {
	if spec.FindDigest(job.Images, report.Image.Image) != "" {
		return nil
	}
	return d.Emit(&event.ImagePinned{
		UID:     job.UID,
		Attempt: job.Attempt,
		Node:    report.Node,
		Image:   report.Image.Image,
		Digest:  report.Image.Digest,
	})
}

// prologOver: only behind a PrologSlurmctld that ended well are the job's
// processes started. Behind one that failed the job is queued again, unless it
// must not be.
func (d jobCommands) prologOver(command PrologOver) error {
	job := d.t.Job(command.Run.UID)
	if job == nil || job.Attempt != command.Run.Attempt || !job.Prepares || job.Ending != nil {
		d.res.Stale++
		return nil
	}
	if command.Failed == "" {
		return d.Emit(&event.JobPrepared{UID: job.UID, Attempt: job.Attempt})
	}
	return d.RequestEnd(job, event.EndLaunchFailed, d.MayRequeue(job), spec.NotHeld, command.Failed)
}

func (d jobCommands) epilogOver(command EpilogOver) error {
	job := d.t.Job(command.Run.UID)
	if job == nil ||
		!slices.ContainsFunc(
			job.Epilogs,
			func(due state.Epilog) bool { return due.Attempt == command.Run.Attempt },
		) {
		d.res.Stale++
		return nil
	}
	return d.Emit(&event.JobEpilogOver{UID: job.UID, Attempt: command.Run.Attempt})
}

// batchOver is the verdict of an attempt whose nodes are not clean yet. One
// that is to run again is queued when they are.
func (d jobCommands) batchOver(job *state.Job, over *BatchOver) error {
	job, err := d.RequeueUnseen(job, over.Batch)
	if err != nil || (job.Ending != nil && job.Ending.Requeue) {
		return err
	}
	return d.Emit(
		d.DeriveEnd(
			job,
			&commit.NodeDone{Batch: over.Batch, OOM: over.OOM},
		),
	)
}

// nohold is SchedulerParameters=nohold_on_prolog_fail.
const nohold = "nohold_on_prolog_fail"

// launchFailed: the job is queued again unless it must not be, held if the
// prolog failed; the node is drained when the fault is its own.
func (d jobCommands) launchFailed(job *state.Job, report Report) error {
	if report.LaunchFailed.Drain {
		reason := report.LaunchFailed.Text
		if !report.LaunchFailed.Hold {
			reason = "batch job launch failed: " + reason
		}
		if err := d.DrainNode(report.Node, reason); err != nil {
			return err
		}
	}
	if !job.GoesOn() {
		return nil
	}
	force := report.LaunchFailed.Hold && d.t.Config.Ctl != nil && d.t.Config.Ctl.ForceRequeue &&
		!job.Spec.Shell
	again := (report.LaunchFailed.Drain || report.LaunchFailed.Again) &&
		(force || d.MayRequeue(job))
	hold := spec.NotHeld
	if report.LaunchFailed.Hold && again && !slices.Contains(d.t.Config.Sched.Params, nohold) {
		hold = spec.HeldByAdmin
	}
	return d.RequestEnd(job, event.EndLaunchFailed, again, hold, report.LaunchFailed.Text)
}

// holdsStep tells whether a node has a part of a step that the job remembers.
func holdsStep(job *state.Job, step spec.StepID, node string) bool {
	st := job.StepByID(step)
	return st != nil && st.Part(node) >= 0
}

// isHeldByAdmin tells whether only an administrator may release a job: its user held it neither by
// a request nor by the exit code that he named.
func isHeldByAdmin(job *state.Job) bool {
	return job.Hold != spec.HeldByUser && job.Hold != spec.HeldSpecialExit
}

// actsForUser tells whether a command comes from a user other than root.
func (d jobCommands) actsForUser() bool {
	return d.t.Actor.Kind == event.ActorUser && d.t.Actor.UID != 0
}

// isOfRun tells whether a report is about the present attempt of a job that holds nodes.
func isOfRun(job *state.Job, report Report) bool {
	if job == nil || !job.HoldsNodes() {
		return false
	}
	return job.Attempt == report.Run.Attempt && job.Epoch == report.Epoch
}
