package event

import "github.com/musterhpc/muster/spec"

// JobSubmitted is an accepted job: the spec with every default filled in, and
// what it will be counted as. Eligible is set when nothing but resources and
// limits stands in its way; Reason is why it waits at first.
type JobSubmitted struct {
	UID      spec.JobUID   `cbor:"1,keyasint"`
	ID       spec.JobID    `cbor:"2,keyasint"`
	Spec     *spec.JobSpec `cbor:"3,keyasint"`
	Req      spec.TRES     `cbor:"4,keyasint"` // the least it will be allocated (per task of an array)
	Assoc    uint32        `cbor:"5,keyasint,omitempty"`
	Eligible spec.Instant  `cbor:"6,keyasint,omitempty"`
	Reason   spec.Reason   `cbor:"7,keyasint"`
	NoAccrue bool          `cbor:"8,keyasint,omitempty"` // it does not age yet: a MaxJobsAccrue limit
	Het      *spec.HetPart `cbor:"60,keyasint,omitempty"`
	Request  uint64        `cbor:"61,keyasint,omitempty"` // the number that the client gave the submission; 0 = none
	// ByScript is what the site's job_submit.lua changed of the request, NAME: OLD -> NEW.
	ByScript []string `cbor:"62,keyasint,omitempty"`
	// Adopted is set in a job of a lost history, whose run a node still has: its uid is the one
	// that it had there. A JobStarted with Adopted follows in the same batch.
	Adopted *AdoptedJob `cbor:"63,keyasint,omitempty" since:"2"`
}

// AdoptedJob is what a job was in a history that was lost.
type AdoptedJob struct {
	At       spec.Instant `cbor:"1,keyasint,omitempty" since:"2"` // when it was submitted
	By       *Actor       `cbor:"2,keyasint,omitempty" since:"2"` // and by whom
	Restarts uint32       `cbor:"3,keyasint,omitempty" since:"2"`
}

// JobEligible tells that dependencies and begin time no longer hold a job.
type JobEligible struct {
	UID      spec.JobUID `cbor:"1,keyasint"`
	NoAccrue bool        `cbor:"2,keyasint,omitempty"` // it does not age yet
}

// JobsAccruing lets eligible jobs age from now on that a MaxJobsAccrue limit
// had kept from it.
type JobsAccruing struct {
	UIDs []spec.JobUID `cbor:"1,keyasint"`
}

// ReasonsChanged records why pending jobs wait now, many at once.
type ReasonsChanged struct {
	Jobs []JobReason `cbor:"1,keyasint"`
}

// JobReason is one entry of ReasonsChanged.
type JobReason struct {
	UID    spec.JobUID `cbor:"1,keyasint"`
	Reason spec.Reason `cbor:"2,keyasint"`
	// Promise is the start that the job was promised when it first came to the
	// front of the queue, and zero in all later entries about it. It is what the
	// actual start is compared with.
	Promise spec.Instant `cbor:"3,keyasint,omitempty"`
}

// JobHeld stops a pending job from being considered.
type JobHeld struct {
	UID spec.JobUID `cbor:"1,keyasint"`
	By  spec.Hold   `cbor:"2,keyasint"`
}

// JobReleased ends a hold.
type JobReleased struct {
	UID spec.JobUID `cbor:"1,keyasint"`
}

// JobUpdated replaces the spec. Changed names the fields as scontrol does. On
// a running job only what may change then differs (its time limit, comment).
type JobUpdated struct {
	UID     spec.JobUID   `cbor:"1,keyasint"`
	Spec    *spec.JobSpec `cbor:"2,keyasint"`
	Req     spec.TRES     `cbor:"3,keyasint"`
	Assoc   uint32        `cbor:"4,keyasint,omitempty"`
	Changed []string      `cbor:"5,keyasint,omitempty"`
	// ByScript is what the site's job_submit.lua changed of the update.
	ByScript []string `cbor:"60,keyasint,omitempty"`
	// Ranks is the priority of a job that has started from now on; nil: as it was. A ledger of
	// an older release has updates of priority and niceness that did not change it.
	Ranks *uint32 `cbor:"61,keyasint,omitempty" since:"2"`
}

// ArrayTaskSplit gives a task of an array a record of its own. When it is the
// last one left, UID equals Array: the array's record becomes the task.
type ArrayTaskSplit struct {
	Array spec.JobUID `cbor:"1,keyasint"`
	Task  int64       `cbor:"2,keyasint"`
	UID   spec.JobUID `cbor:"3,keyasint"`
	ID    spec.JobID  `cbor:"4,keyasint"`
}

// JobStarted opens an attempt with its whole allocation.
type JobStarted struct {
	UID      spec.JobUID      `cbor:"1,keyasint"`
	Attempt  uint32           `cbor:"2,keyasint"`
	Alloc    *spec.Allocation `cbor:"3,keyasint"`
	Limit    spec.Span        `cbor:"4,keyasint"`           // time limit in force; Infinite = none
	Backfill bool             `cbor:"5,keyasint,omitempty"` // started out of order, delaying nobody
	Priority uint32           `cbor:"6,keyasint,omitempty"` // the priority it started with
	// Adopted is set for an attempt that a lost history started and that goes on.
	Adopted *AdoptedRun `cbor:"7,keyasint,omitempty" since:"2"`
}

// Follows tells whether the attempt may come after another of its job, 0 for none: those in
// between are lost with the history that started an adopted one.
func (e *JobStarted) Follows(last uint32) bool {
	if e.Adopted != nil {
		return e.Attempt > last
	}
	return e.Attempt == last+1
}

// AdoptedRun is where in the lost history an attempt began: its runs keep their keys.
type AdoptedRun struct {
	Epoch uint64       `cbor:"1,keyasint,omitempty" since:"2"`
	Seq   uint64       `cbor:"2,keyasint,omitempty" since:"2"`
	At    spec.Instant `cbor:"3,keyasint,omitempty" since:"2"`
	// NextStep is above all steps that the attempt's nodes know of.
	NextStep spec.StepID `cbor:"4,keyasint,omitempty" since:"2"`
}

// EndCause is why an attempt must end.
type EndCause uint8

// The causes; the values are stored.
const (
	EndCancel EndCause = iota + 1
	EndTimeLimit
	EndPreempt
	EndRequeue
	EndNodeLost
	EndLaunchFailed
	EndDeadline
	EndOutOfMemory
)

// EndLeader: the leader of the heterogeneous job is over. EndBoot: a node that
// was powered up for the job did not come up.
const (
	EndLeader EndCause = 20
	EndBoot   EndCause = 21
)

// JobEndRequested decides that an attempt must end: its processes get the
// signals of that cause. The first such decision rules the verdict; only one
// that does not requeue overrules an earlier one that does.
type JobEndRequested struct {
	UID     spec.JobUID `cbor:"1,keyasint"`
	Attempt uint32      `cbor:"2,keyasint"`
	Cause   EndCause    `cbor:"3,keyasint"`
	By      uint32      `cbor:"4,keyasint,omitempty"` // uid, for CANCELLED by uid
	Requeue bool        `cbor:"5,keyasint,omitempty"` // run it again afterwards
	Hold    spec.Hold   `cbor:"6,keyasint,omitempty"` // and hold it then
	Detail  string      `cbor:"7,keyasint,omitempty"`
	For     spec.JobUID `cbor:"8,keyasint,omitempty"`  // the job that it makes room for
	Grace   spec.Span   `cbor:"9,keyasint,omitempty"`  // between the first signal and the last; 0 = KillWait
	Room    spec.Bitset `cbor:"10,keyasint,omitempty"` // the nodes where that job is to start, by id; told with one of its victims
}

// SignalScope says which processes of a job get a signal.
type SignalScope uint8

// The scopes of scancel: all steps but the batch shell (the default), the
// batch shell alone (-b), everything (-f).
const (
	SignalSteps SignalScope = iota
	SignalBatch
	SignalFull
)

// JobSignalled sends a signal that does not end the job by itself.
type JobSignalled struct {
	UID     spec.JobUID `cbor:"1,keyasint"`
	Attempt uint32      `cbor:"2,keyasint"`
	Signal  int32       `cbor:"3,keyasint"`
	Scope   SignalScope `cbor:"4,keyasint,omitempty"`
	// Warning is the signal that the job asked for before its end; it is sent
	// once in an attempt.
	Warning bool `cbor:"5,keyasint,omitempty"`
}

// JobEnded is the verdict: an attempt is over, or a job ended that never
// started (Attempt 0). Nodes may still be cleaning up.
type JobEnded struct {
	UID     spec.JobUID     `cbor:"1,keyasint"`
	Attempt uint32          `cbor:"2,keyasint"`
	State   spec.JobState   `cbor:"3,keyasint"`
	Exit    spec.ExitStatus `cbor:"4,keyasint"`
	Reason  spec.Reason     `cbor:"5,keyasint"`
	By      uint32          `cbor:"6,keyasint,omitempty"` // who cancelled
	Derived spec.ExitStatus `cbor:"7,keyasint"`           // the worst of its steps
	Epilog  bool            `cbor:"8,keyasint,omitempty"` // EpilogSlurmctld is to run for the attempt
	// At is when the attempt was over by what its node says, where that is earlier
	// than this event: the report took its time, or no controller was there to be
	// told. 0 = with it.
	At spec.Instant `cbor:"110,keyasint,omitempty"`
}

// JobNodeDone gives one node's part of an allocation back and says what was
// used there. Batch describes the batch script on the first node.
type JobNodeDone struct {
	UID     spec.JobUID `cbor:"1,keyasint"`
	Attempt uint32      `cbor:"2,keyasint"`
	Node    string      `cbor:"3,keyasint"`
	Usage   spec.Usage  `cbor:"4,keyasint"`
	Batch   *StepResult `cbor:"5,keyasint,omitempty"`
	Lost    bool        `cbor:"6,keyasint,omitempty"` // the node is gone: usage is not known
	// Unfenced tells that nobody could ask the node, so that processes of the
	// attempt may still live there. RunFenced tells when they certainly do not.
	Unfenced bool `cbor:"7,keyasint,omitempty"`
	// FencedBy is when the attempt's processes are gone at the latest, where a
	// lease bounds their life; 0 = no bound is known.
	FencedBy spec.Instant `cbor:"8,keyasint,omitempty"`
	// Rest is what the attempt holds from now on, if it gave the node back by
	// JobShrunk and goes on; nil otherwise.
	Rest *spec.TRES `cbor:"9,keyasint,omitempty"`
	// Extern is what the extern step used there, which Usage has too; nil: the
	// attempt had none on the node.
	Extern *spec.Usage `cbor:"10,keyasint,omitempty" since:"2"`
}

// JobShrunk takes nodes from a running attempt, which goes on with the others.
// What runs on them ends; each is given back by a JobNodeDone with Rest.
type JobShrunk struct {
	UID     spec.JobUID `cbor:"1,keyasint"`
	Attempt uint32      `cbor:"2,keyasint"`
	Nodes   []string    `cbor:"3,keyasint"`
}

// StepResult is how a step ended.
type StepResult struct {
	Started spec.Instant    `cbor:"1,keyasint,omitempty"`
	Ended   spec.Instant    `cbor:"2,keyasint,omitempty"`
	Exit    spec.ExitStatus `cbor:"3,keyasint"`
	Unknown bool            `cbor:"4,keyasint,omitempty"` // nobody saw the exit
	Detail  string          `cbor:"5,keyasint,omitempty"` // a launch error, for the user
}

// JobRequeued closes an attempt and puts the job back into the queue. State
// is what the attempt is recorded as (NODE_FAIL, PREEMPTED, or Pending for a
// requeue that somebody asked for, which Slurm shows as REQUEUED).
type JobRequeued struct {
	UID     spec.JobUID     `cbor:"1,keyasint"`
	Attempt uint32          `cbor:"2,keyasint"`
	State   spec.JobState   `cbor:"3,keyasint"`
	Exit    spec.ExitStatus `cbor:"4,keyasint"`
	Begin   spec.Instant    `cbor:"5,keyasint,omitempty"` // not eligible before
	Hold    spec.Hold       `cbor:"6,keyasint,omitempty"`
	Reason  spec.Reason     `cbor:"7,keyasint"`
	Counts  bool            `cbor:"8,keyasint,omitempty"`   // counts towards MaxBatchRequeue
	Epilog  bool            `cbor:"9,keyasint,omitempty"`   // EpilogSlurmctld is to run for the attempt
	At      spec.Instant    `cbor:"110,keyasint,omitempty"` // as in JobEnded
}

// JobPurged forgets finished jobs in the controller.
type JobPurged struct {
	UIDs []spec.JobUID `cbor:"1,keyasint"`
}

// StepStarted opens a numbered step inside a running attempt.
type StepStarted struct {
	UID     spec.JobUID `cbor:"1,keyasint"`
	Attempt uint32      `cbor:"2,keyasint"`
	Step    spec.StepID `cbor:"3,keyasint"`
	Name    string      `cbor:"4,keyasint,omitempty"`
	Nodes   []string    `cbor:"5,keyasint,omitempty"`
	Tasks   uint32      `cbor:"6,keyasint,omitempty"`
	TRES    spec.TRES   `cbor:"7,keyasint"`
	// Layout is what the step has of each of its nodes, in their order, and Spec
	// what it asked for. Ticket tells who asked: asking again with it makes no
	// second step.
	Layout []spec.NodeAlloc `cbor:"8,keyasint,omitempty"`
	Spec   *spec.StepSpec   `cbor:"9,keyasint,omitempty"`
	Ticket string           `cbor:"10,keyasint,omitempty"`
}

// StepNodeDone gives one node's part of a step back and says how it ended
// there. The step has ended when all its nodes have.
type StepNodeDone struct {
	UID     spec.JobUID `cbor:"1,keyasint"`
	Attempt uint32      `cbor:"2,keyasint"`
	Step    spec.StepID `cbor:"3,keyasint"`
	Node    string      `cbor:"4,keyasint"`
	Result  StepResult  `cbor:"5,keyasint"`
	Usage   spec.Usage  `cbor:"6,keyasint"`
}

// StepEndRequested decides that a step must end.
type StepEndRequested struct {
	UID     spec.JobUID `cbor:"1,keyasint"`
	Attempt uint32      `cbor:"2,keyasint"`
	Step    spec.StepID `cbor:"3,keyasint"`
	Cause   EndCause    `cbor:"4,keyasint"`
	By      uint32      `cbor:"5,keyasint,omitempty"`
}

// StepSignalled sends a signal to a step that does not end it by itself.
type StepSignalled struct {
	UID     spec.JobUID `cbor:"1,keyasint"`
	Attempt uint32      `cbor:"2,keyasint"`
	Step    spec.StepID `cbor:"3,keyasint"`
	Signal  int32       `cbor:"4,keyasint"`
}

// StepUpdated changes the time limit of a step that runs.
type StepUpdated struct {
	UID     spec.JobUID `cbor:"1,keyasint"`
	Attempt uint32      `cbor:"2,keyasint"`
	Step    spec.StepID `cbor:"3,keyasint"`
	Limit   spec.Span   `cbor:"4,keyasint"` // counted from the step's start; Infinite = that of its job
}

// StepEnded closes a numbered step.
type StepEnded struct {
	UID     spec.JobUID   `cbor:"1,keyasint"`
	Attempt uint32        `cbor:"2,keyasint"`
	Step    spec.StepID   `cbor:"3,keyasint"`
	State   spec.JobState `cbor:"4,keyasint"`
	Result  StepResult    `cbor:"5,keyasint"`
	Usage   spec.Usage    `cbor:"6,keyasint"`
	At      spec.Instant  `cbor:"110,keyasint,omitempty"` // as in JobEnded
}

// JobPrepared tells that the site's PrologSlurmctld for an attempt has ended
// well: only now are its processes started.
type JobPrepared struct {
	UID     spec.JobUID `cbor:"1,keyasint"`
	Attempt uint32      `cbor:"2,keyasint"`
}

// ImagePinned tells what the name of a container's image meant when the job first
// ran in it. All later runs of the job get the same files, whatever a registry says
// by then.
type ImagePinned struct {
	UID     spec.JobUID `cbor:"1,keyasint"`
	Attempt uint32      `cbor:"2,keyasint"`
	Node    string      `cbor:"3,keyasint"` // that asked the registry
	Image   string      `cbor:"4,keyasint"` // as spec.Container has it
	Digest  string      `cbor:"5,keyasint"` // sha256:...
}

// JobNoted changes what is said of a job, most often of one that is over and that the
// controller may have forgotten. What is nil stays as it is.
type JobNoted struct {
	UID     spec.JobUID `cbor:"1,keyasint,omitempty" since:"2"`
	Comment *string     `cbor:"2,keyasint,omitempty" since:"2"`
	Admin   *string     `cbor:"3,keyasint,omitempty" since:"2"`
	System  *string     `cbor:"4,keyasint,omitempty" since:"2"`
	Extra   *string     `cbor:"5,keyasint,omitempty" since:"2"`
	// Derived is the exit code that is derived from the steps; it holds for runs that are
	// over when it is noted.
	Derived *spec.ExitStatus `cbor:"6,keyasint,omitempty" since:"2"`
}

// Amend changes the texts of a job's request.
func (e *JobNoted) Amend(job *spec.JobSpec) {
	for _, text := range [...]struct{ to, from *string }{
		{&job.Comment, e.Comment},
		{&job.AdminComment, e.Admin},
		{&job.SystemComment, e.System},
		{&job.Extra, e.Extra},
	} {
		if text.from != nil {
			*text.to = *text.from
		}
	}
}

// JobPodsOver tells that nothing of a job's pods can run any more: Kubernetes has ended
// them, or they were deleted. Only then may the job be forgotten, because a pod that is
// there and of no job would be submitted as another one.
type JobPodsOver struct {
	UID     spec.JobUID `cbor:"1,keyasint,omitempty" since:"2"`
	Attempt uint32      `cbor:"2,keyasint,omitempty" since:"2"` // 0: it never started
}

// JobEpilogOver tells that the site's EpilogSlurmctld for an attempt has run,
// however it ended.
type JobEpilogOver struct {
	UID     spec.JobUID `cbor:"1,keyasint"`
	Attempt uint32      `cbor:"2,keyasint"`
}

// JobSuspended stops the processes of a running attempt. It keeps what it
// holds, but for its CPUs where it yields them, and its time limit stands
// still. Of an attempt that is suspended already, it says only whether it goes
// on by itself.
type JobSuspended struct {
	UID     spec.JobUID `cbor:"1,keyasint"`
	Attempt uint32      `cbor:"2,keyasint"`
	Yields  bool        `cbor:"3,keyasint,omitempty"` // others may have its CPUs meanwhile, unless it shares them
	Auto    bool        `cbor:"4,keyasint,omitempty"` // it goes on when they are free again
	For     spec.JobUID `cbor:"5,keyasint,omitempty"` // the job that it makes room for
	Room    spec.Bitset `cbor:"6,keyasint,omitempty"` // as in JobEndRequested
}

// JobResumed lets a suspended attempt go on.
type JobResumed struct {
	UID     spec.JobUID `cbor:"1,keyasint"`
	Attempt uint32      `cbor:"2,keyasint"`
}

// JobReady tells that the nodes that were powered up for an attempt are all
// there: only now are its processes started, and its time limit begins.
type JobReady struct {
	UID     spec.JobUID `cbor:"1,keyasint"`
	Attempt uint32      `cbor:"2,keyasint"`
}
