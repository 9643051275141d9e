package state

import (
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// Job is one record: an ordinary job, an array whose tasks have not started
// (Tasks is not empty), or a task that has a record of its own. A *Job that a
// table holds never changes.
type Job struct {
	UID   spec.JobUID  `cbor:"1,keyasint"`
	ID    spec.JobID   `cbor:"2,keyasint"`
	Array spec.JobUID  `cbor:"3,keyasint,omitempty"` // the array's record, also in that record; 0 = no array
	Task  int64        `cbor:"4,keyasint"`           // NoTask unless a task of its own
	Tasks spec.TaskSet `cbor:"5,keyasint,omitempty"` // tasks still in this record

	Spec  *spec.JobSpec `cbor:"-"` // shared by the tasks of an array
	Req   spec.TRES     `cbor:"6,keyasint"`
	Assoc uint32        `cbor:"7,keyasint,omitempty"`

	State    spec.JobState `cbor:"8,keyasint"`
	Reason   spec.Reason   `cbor:"9,keyasint"`
	Hold     spec.Hold     `cbor:"10,keyasint,omitempty"`
	Attempt  uint32        `cbor:"11,keyasint,omitempty"` // of the current or last run; 0 = never ran
	Restarts uint32        `cbor:"12,keyasint,omitempty"` // SLURM_RESTART_COUNT
	Requeues uint32        `cbor:"13,keyasint,omitempty"` // those that count towards MaxBatchRequeue
	Begin    spec.Instant  `cbor:"14,keyasint,omitempty"` // not before, after a requeue

	Submitted spec.Instant `cbor:"15,keyasint"`
	Eligible  spec.Instant `cbor:"16,keyasint,omitempty"` // 0 = not yet
	Started   spec.Instant `cbor:"17,keyasint,omitempty"` // of the current or last attempt
	Ended     spec.Instant `cbor:"18,keyasint,omitempty"` // when it was over, by its node if that said so
	Changed   uint64       `cbor:"19,keyasint,omitempty"` // sequence of the last event about it
	EndSeq    uint64       `cbor:"20,keyasint,omitempty"` // sequence of its JobEnded

	Alloc    *spec.Allocation `cbor:"21,keyasint,omitempty"` // of the current or last attempt
	Done     spec.Bitset      `cbor:"22,keyasint,omitempty"` // indices into Alloc.Nodes that are given back
	Limit    spec.Span        `cbor:"23,keyasint,omitempty"` // time limit in force
	Backfill bool             `cbor:"24,keyasint,omitempty"`
	Ending   *Ending          `cbor:"25,keyasint,omitempty"` // the decision to end the attempt

	Exit        spec.ExitStatus   `cbor:"26,keyasint"`
	Derived     spec.ExitStatus   `cbor:"27,keyasint"`
	EndedBy     uint32            `cbor:"28,keyasint,omitempty"` // uid that cancelled
	Usage       spec.Usage        `cbor:"29,keyasint"`           // of the attempt's nodes that are done
	Batch       *event.StepResult `cbor:"30,keyasint,omitempty"`
	StartPrio   uint32            `cbor:"31,keyasint,omitempty"`
	Steps       []Step            `cbor:"32,keyasint,omitempty"`
	Submitter   event.Actor       `cbor:"33,keyasint"`
	LastSignal  *Signal           `cbor:"34,keyasint,omitempty"`
	Warned      bool              `cbor:"35,keyasint,omitempty"` // the signal before the end was sent in this attempt
	Paused      spec.Span         `cbor:"60,keyasint,omitempty"` // how long the attempt was suspended before
	SuspendedAt spec.Instant      `cbor:"61,keyasint,omitempty"` // since when it is; 0 = it is not
	// Accrue is since when an eligible job ages, where not since it became
	// eligible: a MaxJobsAccrue limit kept it from it (NoAccrue: it still does).
	Accrue   spec.Instant `cbor:"36,keyasint,omitempty"`
	NoAccrue bool         `cbor:"37,keyasint,omitempty"`
	// Claim are the nodes, by id, on which other jobs were told to make room for
	// this one: it comes first there until it starts, or asks for something else.
	Claim spec.Bitset `cbor:"62,keyasint,omitempty"`
	// Of a suspended job: whether others may have its CPUs, and whether it goes
	// on by itself when they are free. It yields them still while it ends.
	Yields bool         `cbor:"63,keyasint,omitempty"`
	Auto   bool         `cbor:"64,keyasint,omitempty"`
	Turn   spec.Instant `cbor:"65,keyasint,omitempty"` // since when it runs, if it was suspended before; 0 = since it started
	// Boots tells that nodes were powered up or rebooted for the attempt; Ready is when they
	// were all there.
	Boots bool         `cbor:"66,keyasint,omitempty"`
	Ready spec.Instant `cbor:"67,keyasint,omitempty"`
	// Prepares tells that PrologSlurmctld has not ended yet: nothing of the
	// attempt has been started anywhere.
	Prepares bool `cbor:"70,keyasint,omitempty"`
	// Epilogs are the attempts that are over whose EpilogSlurmctld has not run
	// yet, oldest first.
	Epilogs []Epilog `cbor:"71,keyasint,omitempty"`
	// Het is set in the components of a heterogeneous job.
	Het *spec.HetPart `cbor:"80,keyasint,omitempty"`
	// NextStep is the number of the attempt's next step, StepExit the worst exit
	// of those that have ended.
	NextStep spec.StepID     `cbor:"90,keyasint,omitempty"`
	StepExit spec.ExitStatus `cbor:"91,keyasint"`
	// Promised is the start that the job was promised when it first came to the
	// front of the queue; 0 = it has not been there. It is void, and made anew,
	// when the job is held, changed or requeued.
	Promised spec.Instant `cbor:"95,keyasint,omitempty"`
	// Unfenced counts the nodes on which an earlier attempt was given up and is not
	// fenced yet. While there are any the job must not start.
	Unfenced uint32 `cbor:"100,keyasint,omitempty"`
	// Epoch and StartSeq are where in the history the attempt was started: they
	// are part of the key of its runs. Epoch is 0 for one that an older release
	// started.
	Epoch    uint64 `cbor:"110,keyasint,omitempty"`
	StartSeq uint64 `cbor:"111,keyasint,omitempty"`
	// Request is the number that the client gave the submission, by which one that
	// is repeated after a lost answer is recognised; 0 = none.
	Request uint64 `cbor:"112,keyasint,omitempty"`
	// Stopped tells that the attempt's processes got SIGSTOP from scancel and no
	// SIGCONT since. The job keeps all that it holds.
	Stopped bool `cbor:"120,keyasint,omitempty"`
	// Leaving are nodes that a running attempt gives back and that are not done.
	Leaving []string `cbor:"121,keyasint,omitempty"`
	// Launched is the allocation that the attempt started with, where Alloc has
	// become smaller since: agents know the attempt by it.
	Launched *spec.Allocation `cbor:"122,keyasint,omitempty"`
	// Charged is until when the attempt's use was charged when it last became
	// smaller; 0 = it did not.
	Charged spec.Instant `cbor:"123,keyasint,omitempty"`

	// Heard is when the controller learnt of the end, where that is later than Ended.
	Heard spec.Instant `cbor:"124,keyasint,omitempty"`
	// Images are what the names of the job's images meant when it first ran in
	// them; they hold for all its attempts and steps.
	Images []spec.PinnedImage `cbor:"125,keyasint,omitempty"`
	// PodsOver tells that nothing of its pods can run any more.
	PodsOver bool `cbor:"126,keyasint,omitempty" since:"2"`
	// Adopted tells that the current attempt was started by a history that is lost. Its nodes
	// had it when it was adopted: they are never told to start it.
	Adopted bool `cbor:"127,keyasint,omitempty" since:"2"`
}

// StartedWith is the whole allocation that the current attempt started with.
func (j *Job) StartedWith() *spec.Allocation {
	if j.Launched != nil {
		return j.Launched
	}
	return j.Alloc
}

// AgesSince is since when a pending job ages; 0 = it does not yet.
func (j *Job) AgesSince() spec.Instant {
	switch {
	case j.NoAccrue:
		return 0
	case j.Accrue != 0:
		return j.Accrue
	}
	return j.Eligible
}

// isAging tells whether a job counts for MaxJobsAccrue.
func (j *Job) isAging() bool {
	return j.IsUnheld() && j.AgesSince() != 0
}

// sigStop and sigCont are what a suspended and a resumed job get.
const (
	sigCont = 18
	sigStop = 19
)

// Ending is the decision that an attempt must end.
type Ending struct {
	Cause   event.EndCause `cbor:"1,keyasint"`
	At      spec.Instant   `cbor:"2,keyasint"`
	By      uint32         `cbor:"3,keyasint,omitempty"`
	Requeue bool           `cbor:"4,keyasint,omitempty"`
	Hold    spec.Hold      `cbor:"5,keyasint,omitempty"`
	Detail  string         `cbor:"6,keyasint,omitempty"`
	Seq     uint64         `cbor:"7,keyasint"`
	For     spec.JobUID    `cbor:"8,keyasint,omitempty"` // the job that it makes room for
	Grace   spec.Span      `cbor:"9,keyasint,omitempty"` // before the last signal; 0 = KillWait
}

// Epilog is what EpilogSlurmctld learns about an attempt that is over: the job
// itself may be waiting or running again.
type Epilog struct {
	Attempt  uint32           `cbor:"1,keyasint"`
	Restarts uint32           `cbor:"2,keyasint,omitempty"`
	Alloc    *spec.Allocation `cbor:"3,keyasint"`
	Started  spec.Instant     `cbor:"4,keyasint"`
	Until    spec.Instant     `cbor:"5,keyasint,omitempty"` // its time limit; FarFuture: it had none
	Exit     spec.ExitStatus  `cbor:"6,keyasint"`
	Derived  spec.ExitStatus  `cbor:"7,keyasint"`
}

// Signal is the last signal sent to an attempt without ending it.
type Signal struct {
	Number int32             `cbor:"1,keyasint"`
	Scope  event.SignalScope `cbor:"2,keyasint,omitempty"`
	Seq    uint64            `cbor:"3,keyasint"` // tells one signal from the next
}

// Step is a numbered step of the current attempt. Those that run are all kept,
// of those that have ended the last keptSteps.
type Step struct {
	ID      spec.StepID       `cbor:"1,keyasint"`
	Name    string            `cbor:"2,keyasint,omitempty"`
	Nodes   []string          `cbor:"3,keyasint,omitempty"`
	Tasks   uint32            `cbor:"4,keyasint,omitempty"`
	TRES    spec.TRES         `cbor:"5,keyasint"`
	Started spec.Instant      `cbor:"6,keyasint"`
	Ended   spec.Instant      `cbor:"7,keyasint,omitempty"`
	State   spec.JobState     `cbor:"8,keyasint"`
	Result  *event.StepResult `cbor:"9,keyasint,omitempty"` // of its nodes that are done
	Usage   spec.Usage        `cbor:"10,keyasint"`          // likewise
	Layout  []spec.NodeAlloc  `cbor:"11,keyasint,omitempty"`
	Spec    *spec.StepSpec    `cbor:"12,keyasint,omitempty"`
	Ticket  string            `cbor:"13,keyasint,omitempty"`
	Done    spec.Bitset       `cbor:"14,keyasint,omitempty"` // indices into Layout that are given back
	Ending  *Ending           `cbor:"15,keyasint,omitempty"`
	Signal  *Signal           `cbor:"16,keyasint,omitempty"`
	// Limit is the time limit that was set while the step ran; 0 = that of Spec, by
	// which agents know the step.
	Limit spec.Span `cbor:"17,keyasint,omitempty"`
}

// TimeLimit is how long the step may run; 0 = as long as its job.
func (s *Step) TimeLimit() spec.Span {
	switch {
	case s.Limit == spec.Infinite:
		return 0
	case s.Limit == 0 && s.Spec != nil:
		return s.Spec.Limit
	}
	return s.Limit
}

// keptSteps is how many steps that have ended a job remembers: whoever asks for
// the end of one asks at once, and accounting has them all.
const keptSteps = 16

// Live tells a step that has not ended.
func (s *Step) Live() bool { return !s.State.Terminal() }

// Part finds a node's part of a step that is not done; -1 if it has none.
func (s *Step) Part(node string) int {
	if !s.Live() {
		return -1
	}
	i := slices.IndexFunc(s.Layout, func(a spec.NodeAlloc) bool { return a.Name == node })
	if i >= 0 && s.Done.Has(i) {
		return -1
	}
	return i
}

// StepByID finds a step that the job still knows; nil if there is none.
func (j *Job) StepByID(id spec.StepID) *Step {
	for i := range j.Steps {
		if j.Steps[i].ID == id {
			return &j.Steps[i]
		}
	}
	return nil
}

// Array is what the tasks of one array have in common.
type Array struct {
	UID     spec.JobUID // of the array's record
	ID      spec.JobID  // the number people see: ID_task
	Split   pmapJobs    // task -> JobUID of its own record
	Running int64       // tasks that hold an allocation and have no verdict
	Started int64       // tasks that ever started
	Ended   int64       // tasks with a verdict
	OK      int64       // tasks that completed with exit 0
	Total   int64       // tasks submitted
	Records int64       // records not yet purged
}

// IsArrayRecord tells a record that still stands for several tasks, or for
// one that has not been split off.
func (j *Job) IsArrayRecord() bool { return len(j.Tasks) > 0 }

// RunsSince is since when a running attempt was not suspended.
func (j *Job) RunsSince() spec.Instant { return max(j.Started, j.Turn, j.Ready) }

// GoesOn tells an active job whose end nothing has asked for.
func (j *Job) GoesOn() bool { return j.State.Active() && j.Ending == nil }

// IsUnheld tells a pending job that nobody holds.
func (j *Job) IsUnheld() bool { return j.State == spec.Pending && j.Hold == spec.NotHeld }

// Configuring tells an attempt that waits for its nodes to boot: nothing of it
// has been started anywhere.
func (j *Job) Configuring() bool { return j.State.Active() && j.Boots && j.Ready == 0 }

// Count is the number of jobs that limits count this record as.
func (j *Job) Count() int64 {
	if len(j.Tasks) > 0 {
		return j.Tasks.Len()
	}
	return 1
}

// Partition is where the job runs or, while it waits, the first it asked for.
func (j *Job) Partition() string {
	if j.Alloc != nil && j.State != spec.Pending {
		return j.Alloc.Partition
	}
	if len(j.Spec.Partitions) == 0 {
		return ""
	}
	return j.Spec.Partitions[0]
}

// QOS is the one that the job runs in or, while it waits, the best that it may
// run in.
func (j *Job) QOS() string {
	if j.Alloc != nil && j.State != spec.Pending && j.Alloc.QOS != "" {
		return j.Alloc.QOS
	}
	return j.Spec.QOS
}

// Completing tells a job with a verdict whose nodes are not all done.
func (j *Job) Completing() bool {
	return j.State.Terminal() && j.Alloc != nil && j.Done.Count() < len(j.Alloc.Nodes)
}

// HoldsNodes tells whether any node is still allocated to the job.
func (j *Job) HoldsNodes() bool {
	return j.Alloc != nil && (j.State.Active() || j.State.Terminal()) &&
		j.Done.Count() < len(j.Alloc.Nodes)
}

// Deadline is when the time limit of a running job ends; FarFuture if never.
// While a job is suspended its limit stands still; it begins when the nodes are
// there, until when this is a guess.
func (j *Job) Deadline() spec.Instant {
	switch {
	case !j.State.Active():
		return 0
	case j.State == spec.Suspended || j.Limit == spec.Infinite:
		return spec.FarFuture // nobody knows
	}
	return max(j.Started, j.Ready).Add(j.Limit + j.Paused)
}

// Claims tells whether others make room for a job that waits: of a heterogeneous
// job the leader has the claim of all components.
func (s *State) Claims(job *Job) bool {
	if job.Het.Follows() {
		leader := s.Job(job.Het.Leader)
		return job.State == spec.Pending && leader != nil && leader.Claim != nil
	}
	return job.Claim != nil
}

// Components are those of a heterogeneous job that are still known, in order,
// given any of them; nil for another job.
func (s *State) Components(job *Job) []*Job {
	if job.Het == nil {
		return nil
	}
	var jobs []*Job
	for k := range spec.JobUID(job.Het.Size) {
		if component := s.Job(job.Het.Leader + k); component != nil {
			jobs = append(jobs, component)
		}
	}
	return jobs
}
