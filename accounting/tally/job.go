package tally

import (
	"cmp"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// job is one record that the controller still knows, with its current run.
// The fields with a key are its snapshot.
type job struct {
	UID      spec.JobUID  `cbor:"1,keyasint"`
	ID       spec.JobID   `cbor:"2,keyasint"`
	Array    spec.JobUID  `cbor:"3,keyasint,omitempty"`
	ArrayID  spec.JobID   `cbor:"4,keyasint,omitempty"`
	Task     int64        `cbor:"5,keyasint"`
	TaskSet  spec.TaskSet `cbor:"6,keyasint,omitempty"` // tasks still in this record
	Req      spec.TRES    `cbor:"7,keyasint"`
	Assoc    uint32       `cbor:"8,keyasint,omitempty"`
	Restarts uint32       `cbor:"9,keyasint,omitempty"`
	Attempt  uint32       `cbor:"10,keyasint,omitempty"` // the last that started, of any run
	Changed  uint64       `cbor:"11,keyasint,omitempty"` // sequence of the last event about it
	Over     bool         `cbor:"12,keyasint,omitempty"` // the run is in the store for good
	// Counted tells that a history which was lost has the end of the current run:
	// its rows are in the store, and no others are made of it.
	Counted bool `cbor:"13,keyasint,omitempty"`

	// The current run.
	Submit   spec.Instant     `cbor:"20,keyasint"`
	Eligible spec.Instant     `cbor:"21,keyasint,omitempty"`
	Start    spec.Instant     `cbor:"22,keyasint,omitempty"`
	End      spec.Instant     `cbor:"23,keyasint,omitempty"`
	Reason   spec.Reason      `cbor:"24,keyasint"`           // why it waits or, after the verdict, ended
	Waited   string           `cbor:"37,keyasint,omitempty"` // the last reason for which it waited
	Alloc    *spec.Allocation `cbor:"25,keyasint,omitempty"`
	Limit    spec.Span        `cbor:"26,keyasint,omitempty"`
	Backfill bool             `cbor:"27,keyasint,omitempty"`
	Priority uint32           `cbor:"28,keyasint,omitempty"`
	Done     []doneNode       `cbor:"29,keyasint,omitempty"` // as long as Alloc.Nodes
	Given    uint32           `cbor:"30,keyasint,omitempty"` // nodes given back
	Batch    *batchEnd        `cbor:"31,keyasint,omitempty"`
	Steps    []step           `cbor:"32,keyasint,omitempty"` // numbered, running and ended
	State    spec.JobState    `cbor:"33,keyasint"`           // Pending or Running until the verdict
	Exit     spec.ExitStatus  `cbor:"34,keyasint"`
	Derived  spec.ExitStatus  `cbor:"35,keyasint"`
	By       uint32           `cbor:"36,keyasint,omitempty"`
	Hold     spec.Hold        `cbor:"38,keyasint,omitempty"`
	Begin    spec.Instant     `cbor:"39,keyasint,omitempty"` // not before
	Paused   spec.Span        `cbor:"60,keyasint,omitempty"` // how long the run was suspended before
	Stopped  spec.Instant     `cbor:"61,keyasint,omitempty"` // since when it is suspended; 0 = it is not
	Het      *spec.HetPart    `cbor:"62,keyasint,omitempty"` // of which heterogeneous job it is a component
	Promised spec.Instant     `cbor:"63,keyasint,omitempty"` // the first start that it was promised, as in state.Job

	Images []spec.PinnedImage `cbor:"64,keyasint,omitempty"` // as in state.Job

	spec    *spec.JobSpec // shared by the tasks of an array
	touched bool          // is in Tally.touched
	written bool          // the current run has a row in the live table
}

// doneNode is what came back from one node of an allocation.
type doneNode struct {
	At    spec.Instant `cbor:"1,keyasint,omitempty"` // 0 = still held
	Lost  bool         `cbor:"2,keyasint,omitempty"`
	Usage spec.Usage   `cbor:"3,keyasint"`
	// Extern is the part of Usage that the extern step used; nil: there was none.
	Extern *spec.Usage `cbor:"4,keyasint,omitempty"`
}

// batchEnd is how the batch script ended, and on which node of the
// allocation.
type batchEnd struct {
	Node   uint32           `cbor:"1,keyasint"`
	Result event.StepResult `cbor:"2,keyasint"`
}

// step is a numbered step of the attempt. Only its times stay once it has
// ended: its row is made then.
type step struct {
	ID      spec.StepID  `cbor:"1,keyasint"`
	Name    string       `cbor:"2,keyasint,omitempty"`
	Nodes   []string     `cbor:"3,keyasint,omitempty"`
	Tasks   uint32       `cbor:"4,keyasint,omitempty"`
	TRES    spec.TRES    `cbor:"5,keyasint"`
	Started spec.Instant `cbor:"6,keyasint"`
	Ended   spec.Instant `cbor:"7,keyasint,omitempty"`
	Usage   spec.Usage   `cbor:"8,keyasint"`
	// Container is the image of its tasks; empty where they have the node's files.
	Container string `cbor:"9,keyasint,omitempty"`
}

// countJobs is how many jobs the record stands for.
func (j *job) countJobs() uint64 {
	if len(j.TaskSet) > 0 {
		return uint64(j.TaskSet.Len())
	}
	return 1
}

// job returns a record whose current run is open.
func (t *Tally) job(uid spec.JobUID) (*job, error) {
	j := t.jobs[uid]
	if j == nil || j.Over {
		return nil, contradictionError("there is no open job with uid %d", uid)
	}
	return j, nil
}

// pending returns a record that waits.
func (t *Tally) pending(uid spec.JobUID) (*job, error) {
	j, err := t.job(uid)
	if err == nil && j.State != spec.Pending {
		return nil, contradictionError("job uid %d is %s", uid, j.State)
	}
	return j, err
}

// attempt returns a record with the attempt that an event is about.
func (t *Tally) attempt(uid spec.JobUID, attempt uint32) (*job, error) {
	j, err := t.job(uid)
	if err == nil && (j.Start == 0 || j.Attempt != attempt) {
		return nil, contradictionError("attempt %d of job uid %d does not run", attempt, uid)
	}
	return j, err
}

func (t *Tally) applySubmitted(envelope *event.Envelope, e *event.JobSubmitted) error {
	if e.Spec == nil || t.jobs[e.UID] != nil {
		return contradictionError("job uid %d is known or has no spec", e.UID)
	}
	j := &job{
		UID:      e.UID,
		ID:       e.ID,
		Task:     spec.NoTask,
		Req:      e.Req,
		Assoc:    e.Assoc,
		Submit:   envelope.At,
		Eligible: e.Eligible,
		State:    spec.Pending,
		Restarts: t.firstRun(e.UID),
		Hold:     e.Spec.Queue.Hold,
		Begin:    e.Spec.Time.Begin,
		Het:      e.Het,
		spec:     e.Spec,
	}
	if query := e.Spec.Queue.Array; query != nil {
		j.Array = e.UID
		j.ArrayID = e.ID
		j.TaskSet = query.Tasks
	}
	if e.Adopted != nil {
		j.Submit = e.Adopted.At
		j.Restarts = max(j.Restarts, e.Adopted.Restarts)
	}
	t.jobs[e.UID] = j
	t.open++
	t.reason(j, envelope, e.Reason)
	return nil
}

func (t *Tally) applyEligible(envelope *event.Envelope, eligible *event.JobEligible) error {
	job, err := t.pending(eligible.UID)
	if err != nil {
		return err
	}
	job.Eligible = envelope.At
	t.touchJob(job, envelope)
	return nil
}

func (t *Tally) applyReasons(envelope *event.Envelope, e *event.ReasonsChanged) error {
	for i := range e.Jobs {
		job, err := t.pending(e.Jobs[i].UID)
		if err != nil {
			return err
		}
		if job.Promised == 0 {
			job.Promised = e.Jobs[i].Promise
		}
		t.reason(job, envelope, e.Jobs[i].Reason)
	}
	return nil
}

// reason notes why a job waits from now on.
func (t *Tally) reason(j *job, envelope *event.Envelope, reason spec.Reason) {
	j.Reason = reason
	if reason.Code != spec.ReasonNone {
		j.Waited = reason.String()
	}
	t.touchJob(j, envelope)
	if t.quiet {
		return
	}
	t.out.Reasons = append(
		t.out.Reasons,
		ReasonRow{Seq: envelope.Seq, UID: uint64(j.UID), Restarts: j.Restarts, JobID: uint32(j.ID),
			Count: j.countJobs(), User: j.spec.User, Account: j.spec.Account,
			Partition: j.partitionNow(), QOS: j.qosNow(), At: Cut(envelope.At),
			Code: string(
				reason.Code,
			), TRES: reason.TRES, Limit: reason.Limit, InUse: reason.Used, Asked: reason.Asked, Subject: reason.Subject,
			Blocker: uint64(reason.Blocker), Detail: reason.Detail},
	)
}

func (t *Tally) applyHeld(envelope *event.Envelope, e *event.JobHeld) error {
	job, err := t.pending(e.UID)
	if err != nil {
		return err
	}
	job.Hold = e.By
	job.Eligible = 0
	job.Promised = 0
	t.reason(job, envelope, spec.Reason{Code: state.HoldReason(e.By)})
	return nil
}

func (t *Tally) applyReleased(envelope *event.Envelope, e *event.JobReleased) error {
	job, err := t.pending(e.UID)
	if err != nil {
		return err
	}
	job.Hold = spec.NotHeld
	t.reason(job, envelope, spec.Reason{Code: spec.ReasonNone})
	return nil
}

func (t *Tally) applyUpdated(envelope *event.Envelope, e *event.JobUpdated) error {
	job, err := t.job(e.UID)
	if err != nil {
		return err
	}
	if e.Spec == nil {
		return contradictionError("job uid %d is updated to nothing", e.UID)
	}
	if job.State == spec.Pending {
		if job.Hold != e.Spec.Queue.Hold || job.Begin != e.Spec.Time.Begin ||
			!job.spec.Queue.Dependency.Equal(e.Spec.Queue.Dependency) {
			job.Eligible = 0
		}
		job.Req = e.Req
		job.Assoc = e.Assoc
		job.Hold = e.Spec.Queue.Hold
		job.Begin = e.Spec.Time.Begin
		job.Promised = 0
	} else if e.Spec.Time.Limit != job.spec.Time.Limit || slices.Contains(e.Changed, "TimeLimit") {
		job.Limit = e.Spec.Time.Limit
	}
	job.spec = e.Spec
	t.touchJob(job, envelope)
	return nil
}

func (t *Tally) applySplit(envelope *event.Envelope, e *event.ArrayTaskSplit) error {
	record, err := t.pending(e.Array)
	if err != nil {
		return err
	}
	if !record.TaskSet.Has(e.Task) {
		return contradictionError("array uid %d has no task %d left", e.Array, e.Task)
	}
	t.touchJob(record, envelope)
	if e.UID == e.Array {
		record.Task, record.TaskSet = e.Task, nil
		return nil
	}
	if t.jobs[e.UID] != nil {
		return contradictionError("task uid %d is known", e.UID)
	}
	record.TaskSet = record.TaskSet.Without(e.Task)
	task := *record
	task.UID = e.UID
	task.ID = e.ID
	task.Task = e.Task
	task.TaskSet = nil
	task.touched, task.written = false, false
	task.Restarts = max(task.Restarts, t.firstRun(e.UID))
	record.Promised = 0 // it was made to the task that starts first
	t.jobs[e.UID] = &task
	t.open++
	t.touchJob(&task, envelope)
	return nil
}

func (t *Tally) applyStarted(envelope *event.Envelope, e *event.JobStarted) error {
	job, err := t.pending(e.UID)
	if err != nil {
		return err
	}
	if e.Alloc == nil || len(e.Alloc.Nodes) == 0 || len(job.TaskSet) > 0 ||
		!e.Follows(job.Attempt) {
		return contradictionError("attempt %d of job uid %d cannot start", e.Attempt, e.UID)
	}
	job.State = spec.Running
	job.Attempt = e.Attempt
	job.Start = envelope.At
	if e.Adopted != nil {
		job.Start = e.Adopted.At
	}
	job.Alloc = e.Alloc
	job.Limit = e.Limit
	job.Backfill = e.Backfill
	job.Priority = e.Priority
	job.Done, job.Given = make([]doneNode, len(e.Alloc.Nodes)), 0
	job.Reason = spec.Reason{Code: spec.ReasonNone}
	if job.Eligible == 0 {
		job.Eligible = job.Start
	}
	t.touchJob(job, envelope)
	return nil
}

func (t *Tally) applyEnded(envelope *event.Envelope, ended *event.JobEnded) error {
	job, err := t.job(ended.UID)
	if err != nil {
		return err
	}
	if job.State.Terminal() || ended.Attempt != job.Attempt || !ended.State.Terminal() {
		return contradictionError(
			"job uid %d (%s, attempt %d) cannot end as %s of attempt %d",
			ended.UID,
			job.State,
			job.Attempt,
			ended.State,
			ended.Attempt,
		)
	}
	over := cmp.Or(ended.At, envelope.At)
	job.unsuspend(over)
	job.State = ended.State
	job.Exit = ended.Exit
	job.Derived = ended.Derived
	job.Reason = ended.Reason
	job.By = ended.By
	job.End = over
	t.touchJob(job, envelope)
	if job.Start == 0 || int(job.Given) == len(job.Done) {
		t.close(job, envelope, ended.State.String())
	}
	return nil
}

func (t *Tally) nodeDone(envelope *event.Envelope, e *event.JobNodeDone) error {
	job, err := t.attempt(e.UID, e.Attempt)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(job.Alloc.Nodes, func(a spec.NodeAlloc) bool { return a.Name == e.Node })
	if i < 0 || job.Done[i].At != 0 {
		return contradictionError("node %s is not, or no longer, held by job uid %d", e.Node, e.UID)
	}
	job.Done[i] = doneNode{At: envelope.At, Lost: e.Lost, Usage: e.Usage, Extern: e.Extern}
	job.Given++
	if e.Batch != nil {
		job.Batch = &batchEnd{Node: uint32(i), Result: *e.Batch}
	}
	t.touchJob(job, envelope)
	if job.State.Terminal() && int(job.Given) == len(job.Done) {
		t.close(job, envelope, job.State.String())
	}
	return nil
}

// applyRequeued opens the next run. The current one ends with it, unless it had
// its verdict before.
func (t *Tally) applyRequeued(envelope *event.Envelope, e *event.JobRequeued) error {
	j := t.jobs[e.UID]
	if j == nil || j.Attempt != e.Attempt || !j.isRunComplete() {
		return contradictionError("attempt %d of job uid %d cannot be requeued", e.Attempt, e.UID)
	}
	if !j.Over {
		over := cmp.Or(e.At, envelope.At)
		j.unsuspend(over)
		j.Exit, j.End = e.Exit, over
		name := Requeued
		if e.State != spec.Pending {
			name = e.State.String()
		}
		j.State = spec.Preempted // any verdict that names nobody; the name says which
		j.Changed = envelope.Seq
		t.close(j, envelope, name)
	}
	next := &job{
		UID:      j.UID,
		ID:       j.ID,
		Array:    j.Array,
		ArrayID:  j.ArrayID,
		Task:     j.Task,
		TaskSet:  j.TaskSet,
		Req:      j.Req,
		Assoc:    j.Assoc,
		Restarts: max(j.Restarts+1, t.firstRun(j.UID)),
		Attempt:  j.Attempt,
		Submit:   envelope.At,
		State:    spec.Pending,
		Exit:     e.Exit,
		Hold:     e.Hold,
		Begin:    e.Begin,
		Het:      j.Het,
		spec:     j.spec,
	}
	t.jobs[j.UID] = next
	t.open++
	t.reason(next, envelope, e.Reason)
	return nil
}

func (t *Tally) applyPurged(e *event.JobPurged) error {
	for _, uid := range e.UIDs {
		job := t.jobs[uid]
		if job == nil || !job.Over {
			return contradictionError("job uid %d is purged before its end", uid)
		}
		delete(t.jobs, uid)
	}
	return nil
}

func (t *Tally) stepStarted(envelope *event.Envelope, e *event.StepStarted) error {
	job, err := t.attempt(e.UID, e.Attempt)
	if err != nil {
		return err
	}
	container := ""
	if e.Spec != nil {
		container = e.Spec.Container.Name()
	}
	job.Steps = append(
		job.Steps,
		step{
			ID:        e.Step,
			Name:      e.Name,
			Nodes:     e.Nodes,
			Tasks:     e.Tasks,
			TRES:      e.TRES,
			Started:   envelope.At,
			Container: container,
		},
	)
	t.touchJob(job, envelope)
	return nil
}

func (t *Tally) stepEnded(envelope *event.Envelope, ended *event.StepEnded) error {
	if job := t.jobs[ended.UID]; job != nil && job.Over && job.Attempt == ended.Attempt {
		return nil // it came after the run's last node, which closed the step
	}
	job, err := t.attempt(ended.UID, ended.Attempt)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(
		job.Steps,
		func(s step) bool { return s.ID == ended.Step && s.Ended == 0 },
	)
	if i < 0 {
		return contradictionError("step %s of job uid %d does not run", ended.Step, ended.UID)
	}
	s := &job.Steps[i]
	s.Ended, s.Usage = cmp.Or(ended.At, envelope.At), ended.Usage
	t.touchJob(job, envelope)
	if !t.quiet && !job.Counted {
		row := job.stepRow(envelope.Seq, s)
		row.State = ended.State.String()
		row.Exit = ended.Result.Exit
		row.Used = usedOf(ended.Usage)
		t.out.Steps = append(growTwice(t.out.Steps), row)
	}
	return nil
}

// imagePinned notes what an image's name means for a job and its steps.
func (t *Tally) imagePinned(envelope *event.Envelope, e *event.ImagePinned) error {
	job, err := t.attempt(e.UID, e.Attempt)
	if err != nil {
		return err
	}
	pinned := spec.PinnedImage{Image: e.Image, Digest: e.Digest}
	job.Images = append(slices.Clip(job.Images), pinned)
	t.touchJob(job, envelope)
	return nil
}

// applyNoted changes what is said of a run whose row is still to be written. That of one
// that is over stays: who reads it finds the note among the events.
func (t *Tally) applyNoted(envelope *event.Envelope, e *event.JobNoted) {
	job := t.jobs[e.UID]
	if job == nil || job.Over {
		return
	}
	noted := *job.spec
	e.Amend(&noted)
	job.spec = &noted
	if e.Derived != nil && job.State.Terminal() {
		job.Derived = *e.Derived
	}
	t.touchJob(job, envelope)
}

// imageOf is an image by its name, with its digest where that is known.
func (j *job) imageOf(name string) string {
	container := spec.Container{Image: name}
	return container.NameWith(j.Images)
}

// applySuspended notes since when a run's processes stand still. It keeps what it
// holds, so what its nodes gave goes on.
func (t *Tally) applySuspended(envelope *event.Envelope, e *event.JobSuspended) error {
	job, err := t.attempt(e.UID, e.Attempt)
	if err != nil {
		return err
	}
	if job.State == spec.Suspended {
		return nil // it is only said whether it goes on by itself
	}
	if job.State != spec.Running {
		return contradictionError("job uid %d is %s and cannot be suspended", e.UID, job.State)
	}
	job.State, job.Stopped = spec.Suspended, envelope.At
	t.touchJob(job, envelope)
	return nil
}

func (t *Tally) applyResumed(envelope *event.Envelope, e *event.JobResumed) error {
	job, err := t.attempt(e.UID, e.Attempt)
	if err != nil {
		return err
	}
	if job.State != spec.Suspended {
		return contradictionError("job uid %d is %s, not suspended", e.UID, job.State)
	}
	job.State = spec.Running
	job.unsuspend(envelope.At)
	t.touchJob(job, envelope)
	return nil
}

// unsuspend counts the time since a run was suspended.
func (j *job) unsuspend(now spec.Instant) {
	if j.Stopped != 0 {
		j.Paused += now.Sub(j.Stopped)
		j.Stopped = 0
	}
}

// isRunComplete tells whether all parts of a run have ended, or it had its verdict before.
func (j *job) isRunComplete() bool {
	return j.Over || (j.Start != 0 && int(j.Given) >= len(j.Done))
}
