package plan

import "github.com/musterhpc/muster/spec"

// RunSpec is everything the shepherd needs to start one run. Patterns in file
// names are already expanded and the environment is complete: the shepherd
// adds only MUSTER_RUN and, for a batch script, SLURM_TASK_PID, which is not
// known before the fork.
type RunSpec struct {
	Key    RunKey   `cbor:"1,keyasint"`
	JobID  uint64   `cbor:"2,keyasint,omitempty"` // the number people see; names the spool folder
	UID    uint32   `cbor:"3,keyasint,omitempty"`
	GID    uint32   `cbor:"4,keyasint,omitempty"`
	Groups []uint32 `cbor:"5,keyasint,omitempty"` // supplementary groups

	WorkDir string   `cbor:"6,keyasint,omitempty"` // absolute; /tmp is used, with a warning in the output, if it cannot be entered
	Script  []byte   `cbor:"7,keyasint,omitempty"` // batch script; written to <spool>/job00042/slurm_script
	Argv    []string `cbor:"8,keyasint,omitempty"` // arguments of the script; without a script the whole command, searched in PATH
	Env     []string `cbor:"9,keyasint,omitempty"` // NAME=value

	Stdin  string `cbor:"10,keyasint,omitempty"` // empty means /dev/null
	Stdout string `cbor:"11,keyasint,omitempty"` // relative names are relative to WorkDir
	Stderr string `cbor:"12,keyasint,omitempty"` // empty or equal to Stdout: one file for both
	Append bool   `cbor:"13,keyasint,omitempty"` // open mode; false truncates

	Umask   uint32   `cbor:"14,keyasint,omitempty"`
	Rlimits []Rlimit `cbor:"15,keyasint,omitempty"`
	Nice    int32    `cbor:"16,keyasint,omitempty"`
	CPUs    []int32  `cbor:"17,keyasint,omitempty"` // CPU affinity; empty leaves it as the node's
	Limits  Limits   `cbor:"18,keyasint,omitempty"`

	Devices      []string `cbor:"19,keyasint,omitempty"` // GPU device files the run may open
	FenceDevices bool     `cbor:"20,keyasint,omitempty"` // refuse to start if other devices cannot be fenced off

	TaskProlog string `cbor:"21,keyasint,omitempty"` // program that the user runs before the script; it can change the environment
	TaskEpilog string `cbor:"23,keyasint,omitempty"` // program that the user runs after the script, whatever became of it

	Notices []string `cbor:"22,keyasint,omitempty"` // lines for the error output, before anything of the run's own

	// Tasks makes the run a step's part: Script, Argv, the files, Rlimits and
	// the programs around tasks are then those of Tasks.
	Tasks *Tasks `cbor:"24,keyasint,omitempty"`

	Launch spec.Hash `cbor:"26,keyasint"`           // hash of script, environment, user and allocation; zero: an older release ordered it
	Seq    uint64    `cbor:"27,keyasint,omitempty"` // of the ledger's event that started the attempt
	Order  []byte    `cbor:"28,keyasint,omitempty"` // the controller's order without script and environment, for a ledger that has lost the job

	// JobLimits hold all runs of the attempt on this node together; only memory counts.
	JobLimits Limits `cbor:"25,keyasint,omitempty"`

	// Space are the private folders of the attempt; nil where there are none.
	Space *Space `cbor:"29,keyasint,omitempty"`

	// Container is the file tree of the run's processes; nil: that of the node.
	Container *Container `cbor:"30,keyasint,omitempty"`

	// Login has the batch script begin in the login environment of its user; nil:
	// Env is all that it has.
	Login *Login `cbor:"31,keyasint,omitempty"`

	// NiceAbove has the processes begin with a nice value above the node's own,
	// even if Nice is not.
	NiceAbove bool `cbor:"32,keyasint,omitempty"`

	// Placeholder says that the run's first process only keeps its place for processes
	// that are put into it. It belongs to the node and not to the job's user, who could
	// end the run by a signal otherwise: it has the shepherd's identity and the node's
	// own folders, and the kernel does not choose it when memory is short. Files are
	// opened as the user.
	Placeholder bool `cbor:"33,keyasint,omitempty"`

	// Lease bounds the run's life where the site fences by leases.
	Lease Lease `cbor:"110,keyasint"`
}

// Login is whose login environment is read, and how.
type Login struct {
	User    string    `cbor:"1,keyasint"`
	Home    string    `cbor:"2,keyasint,omitempty"`
	Shell   string    `cbor:"3,keyasint,omitempty"` // empty: /bin/sh
	Plain   bool      `cbor:"4,keyasint,omitempty"` // without the login files
	Timeout spec.Span `cbor:"5,keyasint,omitempty"` // 0: only Cache counts
	Cache   string    `cbor:"6,keyasint,omitempty"` // file to read when the shell does not tell
}

// Rlimit is one resource limit by its Linux number (RLIMIT_NOFILE is 7). Keep
// in either field leaves that side as the node's daemon has it. A soft limit
// above the hard one is cut to it; with Asked it is left as the node has it, with
// an error in the output.
type Rlimit struct {
	Resource int32  `cbor:"1,keyasint"`
	Soft     uint64 `cbor:"2,keyasint"`
	Hard     uint64 `cbor:"3,keyasint"`
	Asked    bool   `cbor:"4,keyasint,omitempty"` // by the user, who named it
}

// RlimitKeep leaves one side of an Rlimit alone; RlimitInfinity is no limit.
const (
	RlimitKeep     = ^uint64(0) - 1
	RlimitInfinity = ^uint64(0)
)

// Limits are what the control group enforces. Zero leaves a limit unset.
type Limits struct {
	MemoryBytes int64 `cbor:"1,keyasint,omitempty"`
	SwapBytes   int64 `cbor:"2,keyasint,omitempty"` // swap beyond memory; NoSwap forbids it; needs MemoryBytes
	Pids        int64 `cbor:"3,keyasint,omitempty"`
	Cores       bool  `cbor:"4,keyasint,omitempty"` // confine to RunSpec.CPUs, not only affinity
}

// NoSwap in Limits.SwapBytes forbids swap.
const NoSwap int64 = -1

// IsZero tells that nothing is limited.
func (l Limits) IsZero() bool { return l == Limits{} }

// State is where a run is in its life.
type State uint8

// The states of a run, in order.
const (
	Starting State = iota + 1
	Running
	Ending // the leader has ended, or SIGKILL was sent; processes are left
	Exited // the exit waits for its acknowledgement
)

// String names the state.
func (s State) String() string {
	switch s {
	case Starting:
		return "starting"
	case Running:
		return "running"
	case Ending:
		return "ending"
	case Exited:
		return "exited"
	}
	return "unknown"
}

// Failure tells why a run did not run as asked; None for one that ran,
// whatever its exit code.
type Failure uint8

// The ways in which a run can fail other than by its own exit code.
const (
	None          Failure = iota
	FailSpool             // the script could not be stored: the node's fault
	FailCgroup            // the control group could not be made: the node's fault
	FailSpawn             // fork, credentials or limits failed: the node's fault
	FailInput             // standard input could not be opened
	FailOutput            // standard output or error could not be opened
	FailExec              // the script or command could not be executed
	FailCanceled          // terminated before it started
	FailFence             // devices cannot be fenced here and the spec demanded it
	Lost                  // it may have run, and nobody saw its end
	NotBegun              // accepted, and certain never to have begun: the shepherd died before
	FailSpace             // the private folders could not be made: the node's fault
	FailContainer         // the container could not be made
	FailPMIx              // muster-pmix could not be started
)

// String names the failure.
func (f Failure) String() string {
	names := [...]string{
		"none",
		"spool",
		"cgroup",
		"spawn",
		"input",
		"output",
		"exec",
		"canceled",
		"fence",
		"lost",
		"not begun",
		"private folders",
		"container",
		"PMIx",
	}
	if int(f) < len(names) {
		return names[f]
	}
	return "unknown"
}

// NodeFault tells that the job did nothing wrong: run it elsewhere and look
// at this node.
func (f Failure) NodeFault() bool {
	switch f {
	case FailSpool, FailCgroup, FailSpawn, FailFence, NotBegun, FailSpace:
		return true
	}
	return false
}

// IOErrorSignal is what Slurm shows as the signal (ExitCode=0:53) of a job
// whose files could not be opened.
const IOErrorSignal = 53

// Exit is how a run ended. Failure Lost means that the end was not seen: Code
// and Signal are then meaningless, and never invented.
type Exit struct {
	Key     RunKey       `cbor:"1,keyasint"`
	Code    int32        `cbor:"2,keyasint,omitempty"` // exit code, 0-255
	Signal  int32        `cbor:"3,keyasint,omitempty"` // signal that ended the leader; IOErrorSignal for files
	Core    bool         `cbor:"4,keyasint,omitempty"`
	OOM     bool         `cbor:"5,keyasint,omitempty"` // the kernel killed for memory
	Failure Failure      `cbor:"6,keyasint,omitempty"`
	Message string       `cbor:"7,keyasint,omitempty"` // for the person who must act
	Started bool         `cbor:"8,keyasint,omitempty"` // a process of it existed
	Start   spec.Instant `cbor:"9,keyasint,omitempty"`
	End     spec.Instant `cbor:"10,keyasint,omitempty"`
	Elapsed spec.Span    `cbor:"11,keyasint,omitempty"` // by a clock that never jumps
	Usage   Usage        `cbor:"12,keyasint"`
	Adopted bool         `cbor:"13,keyasint,omitempty"` // a later shepherd saw it: no rusage, Usage is from the control group
}

// Unknown tells that nobody saw the end.
func (e *Exit) Unknown() bool { return e.Failure == Lost }

// Usage is what the tree of a run has used so far, or in all.
type Usage struct {
	Key       RunKey    `cbor:"1,keyasint"`
	UserCPU   spec.Span `cbor:"2,keyasint,omitempty"`
	SystemCPU spec.Span `cbor:"3,keyasint,omitempty"`
	RSS       int64     `cbor:"4,keyasint,omitempty"` // bytes resident now, summed over the tree; 0 at the end
	PeakRSS   int64     `cbor:"5,keyasint,omitempty"` // bytes: largest sum seen, or the largest single process
	PeakGroup int64     `cbor:"6,keyasint,omitempty"` // bytes: the control group's peak, page cache included; 0 = not measured
	MinFaults int64     `cbor:"7,keyasint,omitempty"`
	MajFaults int64     `cbor:"8,keyasint,omitempty"`
	ReadB     int64     `cbor:"9,keyasint,omitempty"`  // bytes from storage
	WriteB    int64     `cbor:"10,keyasint,omitempty"` // bytes to storage
	VolSwitch int64     `cbor:"11,keyasint,omitempty"`
	InvSwitch int64     `cbor:"12,keyasint,omitempty"`
	OOMKills  int64     `cbor:"13,keyasint,omitempty"`
	Procs     int32     `cbor:"14,keyasint,omitempty"` // processes alive now
	VM        int64     `cbor:"15,keyasint,omitempty"` // bytes of address space now, summed over the tree; 0 at the end
	PeakVM    int64     `cbor:"16,keyasint,omitempty"` // bytes: largest sum seen; 0 = never looked at
	PIDs      []int32   `cbor:"17,keyasint,omitempty"` // of the processes alive now
	KHz       int64     `cbor:"18,keyasint,omitempty"` // mean frequency of its CPUs, by CPU time; 0 = never looked at
	Group     uint64    `cbor:"19,keyasint,omitempty"` // the kernel's number of its control group in the v2 hierarchy; 0 = none

	Counters spec.CounterValues `cbor:"20,keyasint,omitempty"` // what its control group counts
	Tasks    spec.TaskSpreads   `cbor:"21,keyasint,omitempty"` // of a step's part, once it has ended
}

// Observed is one run as the shepherd has it.
type Observed struct {
	Key       RunKey       `cbor:"1,keyasint"`
	JobID     uint64       `cbor:"2,keyasint,omitempty"`
	State     State        `cbor:"3,keyasint"`
	PID       int32        `cbor:"4,keyasint,omitempty"`
	UID       uint32       `cbor:"5,keyasint,omitempty"`
	Start     spec.Instant `cbor:"6,keyasint,omitempty"`
	Cgroup    string       `cbor:"7,keyasint,omitempty"`
	Exit      *Exit        `cbor:"8,keyasint,omitempty"`  // when State is Exited
	KillSent  spec.Instant `cbor:"9,keyasint,omitempty"`  // first SIGKILL; old and still Ending means unkillable
	Adopted   bool         `cbor:"10,keyasint,omitempty"` // taken over from a shepherd that died
	TermUntil spec.Instant `cbor:"11,keyasint,omitempty"` // SIGKILL follows then
	Socket    string       `cbor:"12,keyasint,omitempty"` // of a step's part: where its input and output are
	Launch    spec.Hash    `cbor:"13,keyasint"`           // as in RunSpec
	Seq       uint64       `cbor:"14,keyasint,omitempty"`
	Namespace string       `cbor:"15,keyasint,omitempty"` // file of the mount namespace with its attempt's private folders
	Order     []byte       `cbor:"16,keyasint,omitempty"` // as in RunSpec; only in lists
}

// Event is news of one run: it started, or it exited.
type Event struct {
	Started *Observed `cbor:"1,keyasint,omitempty"`
	Exited  *Exit     `cbor:"2,keyasint,omitempty"`
}

// Scope says which processes a signal reaches.
type Scope uint8

// The scopes of a signal.
const (
	ScopeRun    Scope = iota + 1 // every process of the named run
	ScopeLeader                  // only the first process of the named run: the batch shell
	ScopeSteps                   // every process of the attempt's other steps, not the batch shell
	ScopeJob                     // every process of every run of the attempt
)

// Terminate asks for SIGCONT and SIGTERM now and SIGKILL after the grace.
type Terminate struct {
	Key    RunKey    `cbor:"1,keyasint"`
	Scope  Scope     `cbor:"2,keyasint"`
	Grace  spec.Span `cbor:"3,keyasint,omitempty"` // KillWait; zero kills at once
	Notice string    `cbor:"4,keyasint,omitempty"` // one line for the job's standard error
	Signal int32     `cbor:"5,keyasint,omitempty"` // instead of SIGTERM
}

// LaunchStatus is the shepherd's answer to one launch.
type LaunchStatus uint8

// The answers to a launch.
const (
	Accepted LaunchStatus = iota + 1 // recorded on disk; exactly one Exit will follow
	Known                            // asked before; nothing was done
	Ended                            // ran, ended and was acknowledged before; nothing was done
	Refused                          // not recorded; may be asked again
)

// LaunchResult answers one RunSpec.
type LaunchResult struct {
	Key    RunKey       `cbor:"1,keyasint"`
	Status LaunchStatus `cbor:"2,keyasint"`
	Reason string       `cbor:"3,keyasint,omitempty"`
	Code   RefusalCode  `cbor:"4,keyasint,omitempty"`
}

// RefusalCode says why a launch was refused.
type RefusalCode uint8

// The reasons for a refusal.
const (
	RefusedDraining  RefusalCode = iota + 1 // a newer shepherd has taken over
	RefusedDisk                             // the journal cannot be written: disk full or failing
	RefusedSpec                             // the spec cannot be carried out as it is
	RefusedPrivilege                        // another user's run, and the shepherd is not root
	RefusedConflict                         // another launch was recorded under the same key
)

// Hello is what a shepherd says of itself.
type Hello struct {
	Protocol   uint32   `cbor:"1,keyasint"`
	Release    string   `cbor:"2,keyasint"`
	BootID     string   `cbor:"3,keyasint"`
	StartID    string   `cbor:"4,keyasint"` // new for every shepherd process
	PID        int32    `cbor:"5,keyasint"`
	Root       bool     `cbor:"6,keyasint,omitempty"` // runs jobs as their own users
	CgroupMode string   `cbor:"7,keyasint"`           // v2 | hybrid | v1 | none
	Enforces   Enforces `cbor:"8,keyasint"`
	Degraded   []string `cbor:"9,keyasint,omitempty"` // what is weaker than it should be, one sentence each
	Draining   bool     `cbor:"10,keyasint,omitempty"`
	Runs       int32    `cbor:"11,keyasint,omitempty"`
	Unacked    int32    `cbor:"12,keyasint,omitempty"`
	// Tree is the group of the v2 hierarchy below which those of the runs lie, so many
	// levels deeper as TreeDepth says; empty where there is none.
	Tree      string `cbor:"13,keyasint,omitempty"`
	TreeDepth int32  `cbor:"14,keyasint,omitempty"`
}

// Enforces says which limits hold on this node.
type Enforces struct {
	Memory  bool `cbor:"1,keyasint,omitempty"`
	Pids    bool `cbor:"2,keyasint,omitempty"`
	Cores   bool `cbor:"3,keyasint,omitempty"`
	Devices bool `cbor:"4,keyasint,omitempty"`
	Tree    bool `cbor:"5,keyasint,omitempty"` // no process can escape a kill
	Spaces  bool `cbor:"6,keyasint,omitempty"` // jobs can have private folders
}
