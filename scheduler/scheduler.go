package scheduler

import (
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/commit"
	"github.com/musterhpc/muster/scheduler/decide"
	"github.com/musterhpc/muster/scheduler/eligible"
	"github.com/musterhpc/muster/scheduler/pass"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// Decide turns a command into events, folded into the trial's state at once. A
// refusal is a *spec.Error and leaves no event behind. After any other error the
// trial must be dropped, because a rule of the ledger is broken.
func Decide(t *trial.Trial, command Command) (Result, error) { return decide.Decide(t, command) }

// Pass looks at the whole queue of a frozen state and proposes what to start,
// whom to preempt and why the other jobs wait.
func Pass(cluster *state.State, now spec.Instant, options PassOptions) (*Outcome, error) {
	return pass.Pass(cluster, now, options)
}

// Explore runs a pass up to one pending job, so that the caller can ask when
// other requests would start in its place. It is nil if a pass does not get to
// the job.
func Explore(
	cluster *state.State,
	now spec.Instant,
	uid spec.JobUID,
	options PassOptions,
) (*Explorer, error) {
	return pass.Explore(cluster, now, uid, options)
}

// Confirm runs a whole pass in which jobs ask for something else, and tells
// when the first of them would start. It is false if that cannot be told.
func Confirm(
	cluster *state.State,
	now spec.Instant,
	changes []Change,
	options PassOptions,
) (spec.Instant, bool) {
	return pass.Confirm(cluster, now, changes, options)
}

// What a pass takes and gives.
type (
	PassOptions = pass.Options
	Discipline  = pass.Discipline
	Predictor   = pass.Predictor
	Queue       = pass.Queue
	Promises    = pass.Promises
	Outcome     = pass.Outcome
	Proposal    = commit.Proposal
	Start       = commit.Start
	Explorer    = pass.Explorer
	Change      = pass.Change
)

// Command is anything that Decide decides. The types below are all there are;
// package decide documents each of them.
type (
	Command = decide.Command
	Result  = decide.Result
	Target  = decide.Target
	Run     = commit.Run
)

// Commands about jobs and their steps.
type (
	Submit     = decide.Submit
	Cancel     = decide.Cancel
	NoteJobs   = decide.NoteJobs
	PutCrontab = decide.PutCrontab
	CronJob    = decide.CronJob

	SetTriggers  = decide.SetTriggers
	ClearTrigger = decide.ClearTrigger
	TriggerRan   = decide.TriggerRan
	Hold         = decide.Hold
	Release      = decide.Release
	Requeue      = decide.Requeue
	Suspend      = decide.Suspend
	Resume       = decide.Resume
	UpdateJob    = decide.UpdateJob
	StartStep    = decide.StartStep
	EndStep      = decide.EndStep
	UpdateStep   = decide.UpdateStep
	EndJob       = decide.EndJob
	AdmitPods    = decide.AdmitPods
	PodsOver     = decide.PodsOver
)

// Commands about nodes, partitions and reservations.
type (
	UpdateNodes       = decide.UpdateNodes
	TopJob            = decide.TopJob
	CreateNodes       = decide.CreateNodes
	DeleteNodes       = decide.DeleteNodes
	PowerNodes        = decide.PowerNodes
	PowerHow          = decide.PowerHow
	RebootNodes       = decide.RebootNodes
	CancelReboots     = decide.CancelReboots
	DeclareFenced     = decide.DeclareFenced
	UpdatePartition   = decide.UpdatePartition
	CreatePartition   = decide.CreatePartition
	DeletePartition   = decide.DeletePartition
	CreateReservation = decide.CreateReservation
	UpdateReservation = decide.UpdateReservation
	DeleteReservation = decide.DeleteReservation
)

// JobKey is scontrol's spelling of a key of update job.
func JobKey(typed string) string { return decide.JobKey(typed) }

// OpenToHolds refuses a node that takes no holds of other schedulers now.
func OpenToHolds(cluster *state.State, now spec.Instant, node *state.Node) error {
	return decide.OpenToHolds(cluster, now, node)
}

// Commands of other schedulers.
type (
	TakeForeignHold    = decide.TakeForeignHold
	ReleaseForeignHold = decide.ReleaseForeignHold
)

// What may be asked of a node's power.
const (
	PowerUp        = decide.PowerUp
	PowerDown      = decide.PowerDown
	PowerDownASAP  = decide.PowerDownASAP
	PowerDownForce = decide.PowerDownForce
)

// What agents and the controller's scripts report.
type (
	RegisterNode    = decide.RegisterNode
	NodeSilent      = decide.NodeSilent
	NodeUnready     = decide.NodeUnready
	NodeHeard       = decide.NodeHeard
	FenceNode       = decide.FenceNode
	FenceAnswered   = decide.FenceAnswered
	BeginEpoch      = decide.BeginEpoch
	RaiseVersion    = decide.RaiseVersion
	NoteLostHistory = decide.NoteLostHistory
	HoldOrphans     = decide.HoldOrphans
	AdoptRun        = decide.AdoptRun
	Report          = decide.Report
	LaunchFailed    = decide.LaunchFailed
	BatchOver       = decide.BatchOver
	NodeDone        = commit.NodeDone
	StepOver        = commit.StepOver
	PrologOver      = decide.PrologOver
	EpilogOver      = decide.EpilogOver
	CheckReport     = decide.CheckReport
	GPUReport       = decide.GPUReport
	GPUPolicy       = decide.GPUPolicy
)

// Commands about the cluster as a whole.
type (
	Configure        = decide.Configure
	Policy           = decide.Policy
	SpendToken       = decide.SpendToken
	IssueCertificate = decide.IssueCertificate
	RevokeHost       = decide.RevokeHost
	IssueUserToken   = decide.IssueUserToken
	EndUserTokens    = decide.EndUserTokens
	Tick             = decide.Tick
	Starts           = decide.Starts
)

// Accepts tells whether a request would be taken in a pending job's place.
func Accepts(cluster *state.State, now spec.Instant, job *state.Job, jobSpec *spec.JobSpec) bool {
	return decide.Accepts(cluster, now, job, jobSpec)
}

// Ahead counts the jobs that a pass would look at before a pending one.
func Ahead(
	cluster *state.State,
	now spec.Instant,
	uid spec.JobUID,
) int {
	return pass.Ahead(cluster, now, uid)
}

// Nodes tells which nodes of a partition a request may use, and which it must.
func Nodes(
	cluster *state.State,
	part *state.Partition,
	jobSpec *spec.JobSpec,
) (may, must spec.Bitset, err error) {
	set, err := eligible.AllowedNodes(cluster, part, jobSpec)
	return set.Set, set.Must, err
}

// QOSToTry lists the QOS that jobs of an association may name, except those
// that need a reservation or refuse what could wait.
func QOSToTry(cluster *state.State, assoc uint32) []string {
	return eligible.QOSToTry(cluster, assoc)
}

// TermState says how one term of a dependency stands, for display.
func TermState(
	cluster *state.State, job *state.Job, term *spec.DependencyTerm, now spec.Instant,
) string {
	return eligible.TermState(cluster, job, term, now)
}

// LeasesOver lists the runs that a node owes and whose leases are over, if the
// controller has not answered the node's heartbeats for so long.
func LeasesOver(
	node *state.Node,
	unanswered spec.Span,
) []Run {
	return decide.LeasesOver(node, unanswered)
}

// FenceProgramOf names the program that is to be asked about a node that does not
// answer, and the runs that the node owes; empty where none is.
func FenceProgramOf(cluster *state.State, node *state.Node) (program string, owed []Run) {
	return decide.FenceProgramOf(cluster, node)
}

// PowerTimes are the times that count for a node's power in its partitions.
func PowerTimes(cluster *state.State, node *state.Node) spec.PowerTimes {
	return decide.PowerTimes(cluster, node)
}
