package daemon

import (
	"context"
	"errors"
	"log/slog"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/nodeagent/gpu/attrib"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/scheduler/credentials"
	"github.com/musterhpc/muster/spec"
)

// Errors that adapters wrap so that the agent knows what to do.
var (
	// ErrNoRun: the shepherd has no such run.
	ErrNoRun = errors.New("no such run")
	// ErrDown: nobody answers at the moment; ask again.
	ErrDown = errors.New("not answering now")
	// ErrClock: a credential is too old or too new by this machine's clock.
	ErrClock = errors.New("the clocks of node and controller disagree")
)

// Shepherd owns the node's job processes. Errors wrap ErrNoRun or ErrDown
// where they mean that; any other is final.
type Shepherd interface {
	Hello(ctx context.Context) (plan.Hello, error)
	// Launch returns when the accepted runs are recorded; each of those gives
	// exactly one exit.
	Launch(ctx context.Context, runs []plan.RunSpec) ([]plan.LaunchResult, error)
	List(ctx context.Context) ([]plan.Observed, error)
	Signal(ctx context.Context, key plan.RunKey, sig int32, scope plan.Scope) error
	Terminate(ctx context.Context, terminate plan.Terminate) error
	// Tell writes a line into the error output of a run, as its user.
	Tell(ctx context.Context, key plan.RunKey, line string) error
	// Usage is of the named runs, or of all without names.
	Usage(ctx context.Context, keys ...plan.RunKey) ([]plan.Usage, error)
	// Adopt makes a process, with what it starts from then on, one of a run.
	Adopt(ctx context.Context, key plan.RunKey, pid int) error
	// Ack lets exits be forgotten.
	Ack(ctx context.Context, keys []plan.RunKey) error
	// Grant passes on that the controller has answered a heartbeat.
	Grant(ctx context.Context, grant plan.Grant) error
	// Spaces gives the attempts that have private folders, or something left of
	// them, by their batch step.
	Spaces(ctx context.Context) ([]plan.RunKey, error)
	// Vacate removes the private folders of an attempt that is over, and returns
	// when they are gone. Of an attempt that has none it removes nothing.
	Vacate(ctx context.Context, key plan.RunKey) error
}

// Accounts knows the users of the node.
type Accounts interface {
	// FindAccount looks a user up. It may wait for a database of the network, and
	// returns when ctx ends or its own time is over. The error is for the user.
	FindAccount(ctx context.Context, uid uint32) (Account, error)
}

// Account is what a job without an environment, or with a login environment, is told
// of its user.
type Account struct {
	Home  string
	Shell string // empty: /bin/sh
}

// Images keeps the files of containers' images on the node.
type Images interface {
	// Fetch gives an image of a registry. The error is for the user of the job.
	Fetch(ctx context.Context, request ImageAsk) (*plan.Unpacked, error)
	// ReadBundle reads what the OCI bundle in the folder Image says, with the rights
	// of the job's user.
	ReadBundle(ctx context.Context, request ImageAsk) (*plan.Unpacked, error)
	// Holders lists the runs, by their keys, that were given an image and are not
	// forgotten; also those of an earlier agent.
	Holders() ([]string, error)
	// IsFull tells that the images take more room than they may.
	IsFull() bool
	// Trim releases what the ended holders keep, and removes images without a holder
	// until the rest fit into the cache. It returns what to log.
	Trim(ended []string) (said []any, err error)
}

// ImageAsk names an image of a registry and whose run it is for.
type ImageAsk struct {
	Image     string // as spec.Container has it
	Digest    string // what it meant for the job before; empty: what it means now
	Holder    string // key of the run
	LoginFile string // file of the user with logins at registries; may be empty
	UID       uint32
	GID       uint32
	Groups    []uint32
}

// Controller is the way to the controller.
type Controller interface {
	// Connect opens a stream; it ends with the context.
	Connect(ctx context.Context) (Stream, error)
}

// Stream carries messages both ways. Send and Recv may be called at the same
// time, each from one goroutine.
type Stream interface {
	Send(*apiv1.AgentMessage) error
	Recv() (*apiv1.ControllerMessage, error)
}

// Credentials checks that the controller signed what an agent may start.
type Credentials interface {
	// Use takes the controller's public keys and the cluster they are of.
	Use(keys [][]byte, cluster [16]byte) error
	// Verify checks signature, time, cluster and that this node is named.
	// Claims.Nodes may be left empty. Errors of time wrap ErrClock.
	Verify(raw []byte, now spec.Instant) (credentials.Claims, error)
}

// GPUs reads the node's devices.
type GPUs interface {
	Name() string
	Inventory(ctx context.Context) ([]device.Device, error)
	Sample(ctx context.Context, now spec.Instant, dst *device.Sample) error
	Processes(ctx context.Context, dst []device.Process) ([]device.Process, error)
	Events(ctx context.Context, now spec.Instant, dst []device.Event) ([]device.Event, error)
}

// Clocks sets the frequencies of devices for the runs that ask for some. What
// it sets outlives the agent; it knows what a killed one had set.
type Clocks interface {
	// Tune sets devices for a run, and says what was done and what was not.
	Tune(
		ctx context.Context,
		owner string,
		uuids []string,
		requested spec.GPUFreq,
	) (done, failed []string)
	// Keep sets back the devices of all runs but these.
	Keep(ctx context.Context, owners []string) error
}

// Simulator is told which jobs hold the devices; GPUs that are simulated
// implement it.
type Simulator interface {
	Assign(now spec.Instant, jobs []Assignment) error
}

// Assignment is one job on some simulated devices.
type Assignment struct {
	Job     spec.JobUID
	Attempt uint32
	From    spec.Instant
	Load    string // as the job's comment asks for it; may be empty
	UUIDs   []string
	Share   int // of each, in thousandths; 0 = all
}

// Host is the machine.
type Host interface {
	// Inventory is what a node registers, without its GPUs.
	Inventory(ctx context.Context) (spec.Inventory, error)
	// Load is the one-minute load in thousandths and the free memory in MiB.
	Load(ctx context.Context) (loadMilli, freeMiB int64, err error)
	// BusyCPU is the CPU time that everything on the node has used, in nanoseconds.
	BusyCPU() (int64, error)
}

// Telemetry shows what the agent knows.
type Telemetry interface {
	SetDevices([]device.Device)
	SetSample(*device.Sample)
	SetGPUAccounts([]attrib.Account)
	SetJobs([]JobOnNode)
	SetUsage([]JobUsage)
	SetEnergy(EnergyFigures)
	SetCounters(spec.CounterValues)
	GPUEvent(device.EventKind)
	SetControllerConnected(bool)
	SetShepherdUp(bool)
	SetReportsPending(int)
	SamplesStored(n int)
	SamplesLost(n int)
	SetSamplesPending(int)
	ReportSent()
	ReportFailed()
	Collected(collection Collection, took spec.Span, err error)
}

// Collection is a kind of reading.
type Collection uint8

// The collections.
const (
	CollectGPU Collection = iota
	CollectJobs
	CollectNode
	CollectEnergy
)

// JobOnNode is a job that holds a part of this node.
type JobOnNode struct {
	UID       spec.JobUID
	Attempt   uint32
	ID        spec.JobID
	User      string
	Account   string
	Partition string
	From      spec.Instant
	CPUs      int
	MemoryMiB int64
	GPUs      []string // UUIDs of those that it holds alone
	Shares    []GPUPart
}

// GPUPart is a job's part of a device that others may share.
type GPUPart struct {
	UUID  string
	Share int // thousandths
}

// JobUsage is what a job has used so far.
type JobUsage struct {
	UID     spec.JobUID
	Attempt uint32
	plan.Usage
}

// Spool keeps one small state over restarts.
type Spool interface {
	// Load gives what was saved last, nil when nothing was.
	Load() ([]byte, error)
	Save([]byte) error
}

// Programs are the site's programs around jobs and for the node's health, which can
// change while the agent runs.
type Programs struct {
	// Prolog and Epilog tell that Deps.Scripts has them.
	Prolog, Epilog bool
	// TaskProlog and TaskEpilog are those of the plan's node.
	TaskProlog, TaskEpilog string
	// Contain gives each job an extern step (PrologFlags=Contain), and PrologInJob
	// runs the prolog in it (RunInJob).
	Contain, PrologInJob bool
	// CheckEvery is the time between two looks at the node's health, the first
	// CheckFirst after the agent has begun; 0 looks once. CheckIdle and CheckBusy
	// tell whether it looks while there are no jobs, and while there are some.
	CheckEvery, CheckFirst spec.Span
	CheckIdle, CheckBusy   bool
}

// Reread is what a new look at the configuration gives.
type Reread struct {
	Programs
	Check   Checker // nil: there is no HealthCheckProgram
	Restart bool    // something else changed
	Apply   func()  // has Deps.Scripts take its part over
}

// Scripts are the node's prolog and epilog. The error is for the person who
// must act; it names the program. They end when the context does. place is called
// with the process of each program before that begins; it may be nil.
type Scripts interface {
	Prolog(ctx context.Context, env []string, place func(pid int) error) error
	Epilog(ctx context.Context, env []string) error
}

// Checker looks at the node's health: nil is well, and an error says for the
// person who must act what is wrong. It ends when the context does.
type Checker interface {
	Check(ctx context.Context) error
}

// Clock is the machine's time.
type Clock interface {
	Now() spec.Instant
	// After delivers once after d; stop frees it early.
	After(d spec.Span) (fires <-chan struct{}, stop func())
}

// Config is what the agent is told when it starts.
type Config struct {
	Node    plan.Node
	Version string
	Place   string // the machine and the state folder, by which a second agent of the node is known
	Started spec.Instant
	// Declared are the GRES of the node's line in slurm.conf, with gres.conf.
	Declared []spec.GRESSpec
	// Dynamic is the NodeName record with which the agent describes its node
	// itself; empty where slurm.conf does.
	Dynamic string
	// MessageTimeout is how long the shepherd may be silent before the node takes
	// no jobs; 0 is 10 seconds.
	MessageTimeout spec.Span
	// Interval is the time between two collections.
	Interval spec.Span
	// Orphans says what happens to runs that the controller does not know.
	Orphans plan.Policy
	// UnkillableAfter is how long after SIGKILL processes that are still there
	// are an administrator's affair; 0 never says so.
	UnkillableAfter spec.Span
	// OverMemoryKill ends jobs that use more memory than they were given.
	OverMemoryKill bool
	Programs
	// RulesEvery is the time between two looks by the rules of package health.
	RulesEvery spec.Span
	// IdleAfter is how long a GPU may be held without a process before the
	// controller is told; 0 never tells. IdleGrace is when it is told again.
	IdleAfter, IdleGrace spec.Span
	// SampleEvery is the time between two samples of the GPUs that are kept; 0 or
	// Infinite keeps none.
	SampleEvery spec.Span
	// UsageEvery is the time between two samples of the CPU and memory of each
	// run that are kept; 0 keeps none.
	UsageEvery spec.Span
	// Location is the time zone of lines written for people.
	Location *time.Location
	// GPUFreq is the --gpu-freq of jobs with GPUs that give none; may be empty.
	GPUFreq string
	// EnergyEvery is the time between two readings of Deps.Meter, EnergyGap the
	// longest between two that still tells what was in between, IdleMilliWatts the
	// power of the idle node, 0 to learn it, and EnergySource the meter's name.
	EnergyEvery, EnergyGap spec.Span
	// CountEvery is the time between two readings of Deps.Counters.
	CountEvery     spec.Span
	IdleMilliWatts int64
	EnergySource   string
	// Unable is why no job may start here; empty where some can.
	Unable string
}

// Deps are the outside of the agent. GPUs may be nil.
type Deps struct {
	Shepherd    Shepherd
	Controller  Controller
	Credentials Credentials
	GPUs        GPUs
	Images      Images       // nil: containers of registries cannot be started
	Accounts    Accounts     // nil: no account is known, and none is looked up
	Displays    Displays     // nil: jobs have no X displays
	Clocks      Clocks       // nil: those of the GPUs cannot be set
	Meter       Meter        // nil: nothing measures the node's energy
	Network     Network      // nil: bytes over the network are not counted by run
	Counters    NodeCounters // nil: the node's own counters are not read
	Host        Host
	Telemetry   Telemetry
	Spool       Spool
	Check       Checker                               // HealthCheckProgram; may be nil
	Rules       Checker                               // the rules of package health; may be nil
	Scripts     Scripts                               // may be nil
	Outputs     Outputs                               // nil: nobody reads here what jobs write
	Reread      func(context.Context) (Reread, error) // reads the configuration again; nil: cannot
	Reboot      func()                                // reboots the node and does not wait; may be nil
	Samples     Samples                               // may be nil
	// Revoked, if set, takes the serial numbers of all certificates that hold no
	// more. It is called from several goroutines, one after the other.
	Revoked func(serials []string)
	Clock   Clock
	// BootClock is the machine's boot clock in nanoseconds, in which leases are
	// counted; nil: the node cannot keep leases.
	BootClock func() int64
	// Jitter gives a number below n, for the waits between connections.
	Jitter func(n int64) int64
	Logger *slog.Logger
}
