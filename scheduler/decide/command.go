package decide

import (
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/commit"
	"github.com/musterhpc/muster/spec"
)

// Command is a wish. The types of this file are all there are.
type Command interface{ command() string }

// Submit asks for a job. The spec's user is who the channel says it is; the
// dependency's jobs are still numbers.
type Submit struct {
	Spec *spec.JobSpec
	// Rest are the further components of a heterogeneous job.
	Rest []*spec.JobSpec
	// Sees tells which jobs its user may know of; nil = all. A dependency on
	// another job is refused like one on a job that does not exist.
	Sees func(*state.Job) bool
	// Request is the number by which the client knows this submission; 0 = none.
	Request uint64
	// Again tells that the client, or a relay on its way, sent the submission before
	// and does not know what became of it.
	Again bool
	// ByScript is what the site's job_submit.lua changed of the request.
	ByScript []string
}

// Target names what a job command is about: a record, or one task of it.
type Target struct {
	UID  spec.JobUID
	Task int64 // a task still inside an array's record; else NoTask
}

// Cancel ends jobs, or sends them a signal.
type Cancel struct {
	Target Target
	Signal int32 // 0 ends the job
	Scope  event.SignalScope
	// Cron ends a job of a crontab too where the site wants to be asked for it by name.
	Cron bool
	// Comment is an administrator's, for a job that is ended; empty leaves it.
	Comment string
}

// NoteJobs changes what is said of jobs, also of some that the state no longer has.
type NoteJobs struct {
	UIDs []spec.JobUID
	Note event.JobNoted // its UID is that of each job in turn
}

// Hold keeps a pending job from starting.
type Hold struct {
	Target Target
	By     spec.Hold
}

// Release ends a hold.
type Release struct {
	Target Target
	Admin  bool // also one that an administrator set
}

// Requeue puts a running or finished job back into the queue.
type Requeue struct {
	Target     Target
	Hold       spec.Hold
	Incomplete bool // a job that has ended well is left alone
}

// Suspend stops a running job's processes; it keeps what it holds.
type Suspend struct{ Target Target }

// Resume lets a suspended job go on.
type Resume struct{ Target Target }

// TopJob moves a pending job before the others of its user, partition, account and QOS.
type TopJob struct {
	Target Target
	Admin  bool
}

// UpdateJob changes a job. Keys are scontrol's, in lower case.
type UpdateJob struct {
	Target  Target
	Changes []spec.KeyValue
	Admin   bool
	Sees    func(*state.Job) bool // as in Submit
	// ByScript is as in Submit.
	ByScript []string
}

// UpdatePartition changes a partition from what it was when somebody decided
// about it.
type UpdatePartition struct {
	Old, New spec.PartitionSpec
	Nodes    bool // its nodes are part of the change
}

// UpdateNodes changes nodes, all of them or none: their administrative state and
// what is known of them. What is nil or zero stays.
type UpdateNodes struct {
	Nodes []string
	State event.NodeAdminState
	// KeepInService accepts that a node is in service already, as state=idle and
	// state=undrain do. With state=resume it is an error.
	KeepInService bool
	// Power is a further command about the power of the same nodes, their reboot or
	// their fencing; nil without one.
	Power Command
	// ResumeAfter is how long a state lasts before the node returns to service; 0 =
	// until somebody resumes it.
	ResumeAfter       spec.Span
	Weight            *uint32
	Available, Active *[]string // features that they may have, and have
	Comment, Extra    *string
	Reason            *string
}

// CreatePartition adds a partition to the cluster while it runs.
type CreatePartition struct{ New spec.PartitionSpec }

// DeletePartition takes a partition away that was added so.
type DeletePartition struct{ Name string }

// CreateNodes adds nodes to the cluster while it runs.
type CreateNodes struct{ Nodes []spec.NodeSpec }

// DeleteNodes takes nodes away that were added so.
type DeleteNodes struct{ Nodes []string }

// PowerHow is what somebody wants of a node's power.
type PowerHow uint8

// The wishes of scontrol update state=power_up, power_down, …
const (
	PowerUp        PowerHow = iota + 1
	PowerDown               // once no job is on it
	PowerDownASAP           // likewise, and no job is started on it
	PowerDownForce          // now: its jobs end
)

// PowerNodes powers nodes up or down.
type PowerNodes struct {
	Nodes []string
	How   PowerHow
}

// RebootNodes asks for nodes to be rebooted.
type RebootNodes struct {
	Nodes  []string
	ASAP   bool                 // no job is started on them before
	Next   event.NodeAdminState // what they are to be afterwards; 0 = as before
	Reason string
}

// CancelReboots calls reboots off that have not begun.
type CancelReboots struct{ Nodes []string }

// RegisterNode is an agent presenting its inventory.
type RegisterNode struct {
	Node      string
	Inventory spec.Inventory
	// Dynamic is the agent's own description of its node, which adds it unless
	// there is one of that name; nil where the configuration describes it.
	Dynamic *spec.NodeSpec
}

// EpilogOver tells that EpilogSlurmctld has run for an attempt, however it
// ended.
type EpilogOver struct{ Run commit.Run }

// PrologOver tells how PrologSlurmctld ended for an attempt.
type PrologOver struct {
	Run    commit.Run
	Failed string // why; empty: it ended well
}

// NodeSilent tells that a node's agent has not been heard of since LastSeen, or
// has said since then that it can start nothing, for SlurmdTimeout.
type NodeSilent struct {
	Node     string
	LastSeen spec.Instant
}

// NodeUnready tells that a node's agent answers and says that it can start
// nothing.
type NodeUnready struct {
	Node, Why string
	LastSeen  spec.Instant // when it last could
}

// NodeHeard tells that a node that was taken for lost answers again.
type NodeHeard struct{ Node string }

// Report is a fact from a node about one attempt.
type Report struct {
	Node string
	Run  commit.Run
	// Epoch is that of the run's key: a report about a run of another history,
	// which had the same numbers, is not about this attempt.
	Epoch uint64
	// Exactly one of these is set.
	LaunchFailed *LaunchFailed
	Image        *spec.PinnedImage // what a registry said that an image's name means
	BatchOver    *BatchOver
	Done         *commit.NodeDone
	StepOver     *commit.StepOver
}

// LaunchFailed tells that the batch script could not be started.
type LaunchFailed struct {
	Text  string
	Drain bool // the fault is the node's
	Again bool // it is nobody's fault, and certain that nothing of it ran: run it again
	Hold  bool // the prolog failed: the job is held when it is queued again
}

// BatchOver tells that the batch script has ended while its node is still
// being cleaned up.
type BatchOver struct {
	Batch *event.StepResult
	OOM   bool
}

// CheckReport is what a node's HealthCheckProgram found; Failed is empty when
// it found nothing.
type CheckReport struct{ Node, Failed string }

// GPUReport is a fault of a GPU of a node, with what the site wants done.
type GPUReport struct {
	Node   string
	Fault  spec.GPUFault
	Policy GPUPolicy
}

// GPUPolicy is what follows from what GPUs do; the zero value only records it.
type GPUPolicy struct {
	Drain      bool      // a node with a GPU that must not be used takes nothing new
	WarnIdle   bool      // the user is warned of a GPU that his job holds without a process
	CancelIdle bool      // a job ends whose GPU has had no process for IdleAfter and Grace
	IdleAfter  spec.Span // when agents say so first
	Grace      spec.Span
}

// Configure adopts a configuration.
type Configure struct{ Config *spec.Config }

// Policy is a prepared change of accounts, users, associations or QOS.
type Policy struct{ Events []event.Event }

// SpendToken binds an enrolment token to the key it is used for; again with
// the same key it changes nothing.
type SpendToken struct {
	Hash spec.Hash
	Node string
	Key  spec.Hash
}

// IssueCertificate notes a certificate that is to be handed out. What it was
// asked with must still be good: the certificate By, or else the enrolment
// token Token.
type IssueCertificate struct {
	Issued event.CertificateIssued
	By     string // serial number
	Token  spec.Hash
}

// IssueUserToken records a token of a user.
type IssueUserToken struct{ Token event.UserTokenIssued }

// EndUserTokens revokes the tokens with these ids or, without ids, all of a user. Whose
// is set where only tokens of that user may be named.
type EndUserTokens struct {
	IDs    []string
	User   string
	Whose  string
	Reason string
}

// RevokeHost ends all certificates of a machine, expired ones too, and the
// tokens with which it could get one. An empty role means both roles.
type RevokeHost struct{ Name, Role, Reason string }

// CreateReservation makes a reservation; keys are scontrol's. Without a name
// one is made up, which is the result's message.
type CreateReservation struct {
	Name string
	Set  []spec.KeyValue
}

// UpdateReservation changes one.
type UpdateReservation struct {
	Name string
	Set  []spec.KeyValue
}

// DeleteReservation ends one. Admin tells that the actor is an operator.
type DeleteReservation struct {
	Name  string
	Admin bool
}

// Tick lets time pass: time limits, signals before the end, fences, purges.
type Tick struct {
	// East is how far the clocks of the cluster's zone are ahead of UTC at an
	// instant; nil = it keeps UTC.
	East func(spec.Instant) spec.Span
}

// Starts commits proposals of a pass.
type Starts struct{ Proposal *commit.Proposal }

func (Submit) command() string            { return "submit" }
func (Cancel) command() string            { return "cancel" }
func (NoteJobs) command() string          { return "note_jobs" }
func (Hold) command() string              { return "hold" }
func (Release) command() string           { return "release" }
func (Requeue) command() string           { return "requeue" }
func (Suspend) command() string           { return "suspend" }
func (Resume) command() string            { return "resume" }
func (UpdateJob) command() string         { return "update job" }
func (TopJob) command() string            { return "top" }
func (UpdateNodes) command() string       { return "update node" }
func (CreatePartition) command() string   { return "create partition" }
func (DeletePartition) command() string   { return "delete partition" }
func (UpdatePartition) command() string   { return "update partition" }
func (CreateNodes) command() string       { return "create node" }
func (DeleteNodes) command() string       { return "delete node" }
func (PowerNodes) command() string        { return "power" }
func (RebootNodes) command() string       { return "reboot" }
func (CancelReboots) command() string     { return "cancel reboot" }
func (RegisterNode) command() string      { return "register" }
func (NodeUnready) command() string       { return "unready" }
func (NodeSilent) command() string        { return "silence" }
func (NodeHeard) command() string         { return "heard" }
func (Report) command() string            { return "report" }
func (BeginEpoch) command() string        { return "lead" }
func (RaiseVersion) command() string      { return "upgrade" }
func (NoteLostHistory) command() string   { return "history" }
func (HoldOrphans) command() string       { return "orphans" }
func (AdoptRun) command() string          { return "adopt" }
func (PrologOver) command() string        { return "prolog" }
func (EpilogOver) command() string        { return "epilog" }
func (GPUReport) command() string         { return "gpu" }
func (CheckReport) command() string       { return "check" }
func (Configure) command() string         { return "configure" }
func (Policy) command() string            { return "policy" }
func (SpendToken) command() string        { return "enrol" }
func (IssueCertificate) command() string  { return "certificate" }
func (RevokeHost) command() string        { return "revoke" }
func (IssueUserToken) command() string    { return "token" }
func (EndUserTokens) command() string     { return "revoke" }
func (CreateReservation) command() string { return "create reservation" }
func (UpdateReservation) command() string { return "update reservation" }
func (DeleteReservation) command() string { return "delete reservation" }
func (Tick) command() string              { return "tick" }
func (Starts) command() string            { return "schedule" }

// Result is what a command brought about, beyond its events.
type Result struct {
	UID spec.JobUID // of a submitted job
	ID  spec.JobID
	// Message is a line for the user, for example a warning.
	Message string
	// Stale counts reports and proposals that were no longer current.
	Stale int
	// Started counts the proposals that were committed.
	Started   int
	Preempted int
	Step      spec.StepID  // of StartStep
	Jobs      []spec.JobID // of PutCrontab, in the order of its lines
	Triggers  []uint32     // of SetTriggers
}

// findTarget finds the record of a job command; a task inside an array's record
// is given a record of its own when split is set.
func (d *decision) findTarget(target Target, split bool) (*state.Job, error) {
	job := d.t.Job(target.UID)
	if job == nil {
		return nil, spec.Refuse(spec.CodeInvalidJobID, "")
	}
	if target.Task == spec.NoTask || !job.IsArrayRecord() {
		return job, nil
	}
	if !job.Tasks.Has(target.Task) {
		return nil, spec.Refuse(spec.CodeInvalidJobID, "")
	}
	if !split {
		return job, nil
	}
	return d.SplitTask(job, target.Task)
}
