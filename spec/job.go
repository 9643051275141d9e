package spec

import "strings"

// JobSpec is a job as it was asked for. It never changes after submission;
// an update writes a new JobSpec. All tasks of an array share one.
//
// Zero means "not given" unless a field says otherwise.
type JobSpec struct {
	Name       string   `cbor:"1,keyasint,omitempty"`
	UID        uint32   `cbor:"2,keyasint,omitempty"`
	GID        uint32   `cbor:"3,keyasint,omitempty"`
	User       string   `cbor:"4,keyasint,omitempty"`
	Group      string   `cbor:"5,keyasint,omitempty"`
	Groups     []uint32 `cbor:"6,keyasint,omitempty"` // supplementary
	Account    string   `cbor:"7,keyasint,omitempty"`
	QOS        string   `cbor:"8,keyasint,omitempty"`
	Partitions []string `cbor:"9,keyasint,omitempty"` // in order of preference
	WCKey      string   `cbor:"10,keyasint,omitempty"`
	Comment    string   `cbor:"11,keyasint,omitempty"`

	Size     Size     `cbor:"20,keyasint"`
	Time     TimeAsk  `cbor:"21,keyasint"`
	Place    PlaceAsk `cbor:"22,keyasint"`
	Queue    QueueAsk `cbor:"23,keyasint"`
	IO       JobIO    `cbor:"24,keyasint"`
	Licenses []Count  `cbor:"25,keyasint,omitempty"`

	Script  Hash     `cbor:"40,keyasint"` // the batch script
	Env     Hash     `cbor:"41,keyasint"` // NUL-separated NAME=value of the job
	Args    []string `cbor:"42,keyasint,omitempty"`
	Command string   `cbor:"43,keyasint,omitempty"` // the script's path as shown, or empty
	Line    string   `cbor:"44,keyasint,omitempty"` // the submitting command line
	Host    string   `cbor:"45,keyasint,omitempty"` // the submitting host
	Shell   bool     `cbor:"46,keyasint,omitempty"` // an allocation without a batch script (salloc, srun)

	// MCSLabel is whose jobs it shares nodes with under --exclusive=mcs.
	MCSLabel string `cbor:"60,keyasint,omitempty"`
	// AnyLicense: one of Licenses is enough, the first that is free.
	AnyLicense bool `cbor:"61,keyasint,omitempty"`
	// QOSes are all in which it may run, QOS being the first of them; nil where it
	// is the only one.
	QOSes []string `cbor:"62,keyasint,omitempty"`
	// GPUBind and GPUFreq are --gpu-bind and --gpu-freq as they were written; see
	// ParseGPUBind and ParseGPUFreq.
	GPUBind string `cbor:"70,keyasint,omitempty"`
	GPUFreq string `cbor:"71,keyasint,omitempty"`
	// Attended: it ends with the srun or salloc that made it.
	Attended bool `cbor:"72,keyasint,omitempty"`
	// Extra is a text of the user's beside Comment; AdminComment and SystemComment
	// are texts that only administrators write.
	Extra         string `cbor:"90,keyasint,omitempty"`
	AdminComment  string `cbor:"91,keyasint,omitempty"`
	SystemComment string `cbor:"92,keyasint,omitempty"`
	// SampleEvery is how often what the job uses is sampled (--acctg-freq); 0 = as
	// the configuration says, Infinite = never.
	SampleEvery Span `cbor:"93,keyasint,omitempty"`
	// Container is that of the batch script; nil where it runs in the node's files.
	Container *Container `cbor:"94,keyasint,omitempty"`
	// Cron is the time of the crontab's line that the job was made of, as written; empty
	// where it is of none.
	Cron string `cbor:"95,keyasint,omitempty"`
	// Pods are what the job consists of where kubelets run it; nil where agents do.
	Pods *PodSet `cbor:"96,keyasint,omitempty" since:"2"`
	// X11 is where programs of the job reach the display of who submitted it.
	X11 X11 `cbor:"97,keyasint,omitempty" since:"2"`
}

// InQOS is the job as it is in one of its QOS; an empty name is the one that it
// is in.
func (j *JobSpec) InQOS(name string) *JobSpec {
	if name == "" || name == j.QOS {
		return j
	}
	job := *j
	job.QOS = name
	return &job
}

// SetQOS gives the job one QOS, or several of which the first is the best.
func (j *JobSpec) SetQOS(names []string) {
	j.QOS, j.QOSes = names[0], nil
	if len(names) > 1 {
		j.QOSes = names
	}
}

// Choices tells a job that may start in several partitions or QOS.
func (j *JobSpec) Choices() bool { return len(j.Partitions) > 1 || len(j.QOSes) > 0 }

// QOSText is the QOS of the job, all of them with commas.
func (j *JobSpec) QOSText() string {
	if len(j.QOSes) == 0 {
		return j.QOS
	}
	return strings.Join(j.QOSes, ",")
}

// HetPart makes a job one component of a heterogeneous job: of several with
// their own requests that start together, the first of which, the leader, has
// the batch script. The uids of the components follow that of the leader.
type HetPart struct {
	Leader JobUID `cbor:"1,keyasint"`
	Offset uint32 `cbor:"2,keyasint,omitempty"` // 0 = the leader
	Size   uint32 `cbor:"3,keyasint"`           // how many components there are
}

// Leads tells the leader of a heterogeneous job.
func (h *HetPart) Leads() bool { return h != nil && h.Offset == 0 }

// Follows tells a component that is not the leader.
func (h *HetPart) Follows() bool { return h != nil && h.Offset > 0 }

// Size is how much a job asks for. Counts are per what the name says.
type Size struct {
	MinNodes       uint32  `cbor:"1,keyasint,omitempty"` // at least; 0 = as many as the tasks need
	MaxNodes       uint32  `cbor:"2,keyasint,omitempty"` // at most; 0 = MinNodes
	Tasks          uint32  `cbor:"3,keyasint,omitempty"` // 0 = derived from nodes and per-node counts
	TasksPerNode   uint32  `cbor:"4,keyasint,omitempty"`
	TasksPerSocket uint32  `cbor:"5,keyasint,omitempty"`
	TasksPerCore   uint32  `cbor:"6,keyasint,omitempty"`
	TasksPerGPU    uint32  `cbor:"7,keyasint,omitempty"`
	CPUsPerTask    uint32  `cbor:"8,keyasint,omitempty"` // 0 = one, and SLURM_CPUS_PER_TASK stays unset
	CPUsPerGPU     uint32  `cbor:"9,keyasint,omitempty"`
	MinCPUsPerNode uint32  `cbor:"10,keyasint,omitempty"` // --mincpus
	MemPerNode     int64   `cbor:"11,keyasint,omitempty"` // MiB
	MemPerCPU      int64   `cbor:"12,keyasint,omitempty"` // MiB
	MemPerGPU      int64   `cbor:"13,keyasint,omitempty"` // MiB
	AllMem         bool    `cbor:"14,keyasint,omitempty"` // --mem=0: all of each node
	PerNode        []Count `cbor:"15,keyasint,omitempty"` // --gres, --gpus-per-node: gpu, gpu:h100, …
	PerJob         []Count `cbor:"16,keyasint,omitempty"` // --gpus
	PerTask        []Count `cbor:"17,keyasint,omitempty"` // --gpus-per-task
	PerSocket      []Count `cbor:"18,keyasint,omitempty"` // --gpus-per-socket
	TmpDisk        int64   `cbor:"19,keyasint,omitempty"` // MiB
	ThreadsPerCore uint32  `cbor:"20,keyasint,omitempty"`
	CoreSpec       uint32  `cbor:"21,keyasint,omitempty"`
	SocketsPerNode uint32  `cbor:"60,keyasint,omitempty"` // at least so many sockets on each node
	CoresPerSocket uint32  `cbor:"61,keyasint,omitempty"` // with at least so many cores on each
	ThreadSpec     uint32  `cbor:"62,keyasint,omitempty"` // as CoreSpec, but threads
	Overcommit     bool    `cbor:"63,keyasint,omitempty"` // CPUs are counted as if each node had one task
	FewestNodes    bool    `cbor:"64,keyasint,omitempty"` // of a range of nodes, as few as will do
}

// Count is an amount of a GRES or licence: Name "gpu", optional Type "h100".
type Count struct {
	Name string `cbor:"1,keyasint"`
	Type string `cbor:"2,keyasint,omitempty"`
	N    int64  `cbor:"3,keyasint"`
}

// TRES gives the name under which the amount is counted: gres/gpu.
func (c Count) TRES() string { return "gres/" + c.Name }

// TypedTRES gives gres/gpu:h100, or "" without a type.
func (c Count) TypedTRES() string {
	if c.Type == "" {
		return ""
	}
	return "gres/" + c.Name + ":" + c.Type
}

// TimeAsk holds what a job says about time.
type TimeAsk struct {
	Limit    Span    `cbor:"1,keyasint,omitempty"` // 0 = the partition's default
	Min      Span    `cbor:"2,keyasint,omitempty"` // --time-min
	Begin    Instant `cbor:"3,keyasint,omitempty"` // not before
	Deadline Instant `cbor:"4,keyasint,omitempty"`
	// Signal before the end: number, how long before, and to whom.
	Signal       int32 `cbor:"5,keyasint,omitempty"`
	SignalBefore Span  `cbor:"6,keyasint,omitempty"`
	SignalBatch  bool  `cbor:"7,keyasint,omitempty"` // B: only the batch shell
	SignalResv   bool  `cbor:"8,keyasint,omitempty"` // R:
}

// Sharing says how a job shares its nodes.
type Sharing uint8

// The values of --exclusive and --oversubscribe.
const (
	ShareDefault Sharing = iota
	Exclusive
	ExclusiveUser
	ExclusiveMCS
	ExclusiveTopo
	Oversubscribe
)

// PlaceAsk restricts where a job may run.
type PlaceAsk struct {
	Nodes        string  `cbor:"1,keyasint,omitempty"` // hostlist that must be included
	Exclude      string  `cbor:"2,keyasint,omitempty"` // hostlist
	Constraint   string  `cbor:"3,keyasint,omitempty"` // --constraint, as written
	Prefer       string  `cbor:"4,keyasint,omitempty"`
	Sharing      Sharing `cbor:"5,keyasint,omitempty"`
	Contiguous   bool    `cbor:"6,keyasint,omitempty"`
	Spread       bool    `cbor:"7,keyasint,omitempty"`
	Reservation  string  `cbor:"8,keyasint,omitempty"`
	Switches     uint32  `cbor:"9,keyasint,omitempty"`
	SwitchWait   Span    `cbor:"10,keyasint,omitempty"`
	Distribution string  `cbor:"11,keyasint,omitempty"`
	// Segment cuts the job into groups of so many nodes, each in one block.
	Segment       uint32 `cbor:"60,keyasint,omitempty"`
	ApartSegments bool   `cbor:"61,keyasint,omitempty"` // each in a block of its own
}

// QueueAsk holds what a job says about its place in the queue.
type QueueAsk struct {
	Hold          Hold        `cbor:"1,keyasint,omitempty"`
	Nice          int32       `cbor:"2,keyasint,omitempty"`
	Priority      uint32      `cbor:"3,keyasint,omitempty"` // 0 = computed
	Requeue       Tri         `cbor:"4,keyasint,omitempty"` // unset = the cluster's JobRequeue
	Array         *ArrayAsk   `cbor:"5,keyasint,omitempty"` // nil = no array
	Dependency    *Dependency `cbor:"6,keyasint,omitempty"`
	KillInvalid   Tri         `cbor:"7,keyasint,omitempty"` // --kill-on-invalid-dep
	MailTypes     []string    `cbor:"8,keyasint,omitempty"`
	MailUser      string      `cbor:"9,keyasint,omitempty"`
	ImmediateOnly bool        `cbor:"10,keyasint,omitempty"` // --immediate
	Reboot        bool        `cbor:"11,keyasint,omitempty"`
	SiteFactor    int32       `cbor:"12,keyasint,omitempty"` // set by an administrator, added to the priority
	// NoKill: the job goes on when one of its nodes is lost, but for the first,
	// where its script runs (--no-kill).
	NoKill bool `cbor:"60,keyasint,omitempty"`
}

// Tri is a yes-no question that may be left open.
type Tri uint8

// The answers.
const (
	Unset Tri = iota
	No
	Yes
)

// Or gives the answer, or what holds when there is none.
func (t Tri) Or(open bool) bool {
	if t == Unset {
		return open
	}
	return t == Yes
}

// JobIO names a job's files. The paths are patterns (%j, %A, …) as given.
type JobIO struct {
	WorkDir string `cbor:"1,keyasint,omitempty"`
	Stdin   string `cbor:"2,keyasint,omitempty"`
	Stdout  string `cbor:"3,keyasint,omitempty"`
	Stderr  string `cbor:"4,keyasint,omitempty"` // empty = as stdout
	Append  Tri    `cbor:"5,keyasint,omitempty"` // --open-mode
	Umask   uint32 `cbor:"6,keyasint,omitempty"`
	// Rlimits are the soft limits to set, by Slurm's name (NOFILE, CORE, …).
	Rlimits []Count `cbor:"7,keyasint,omitempty"`
	// LimitsAsked tells that --propagate chose Rlimits: they apply whatever limits
	// the site propagates.
	LimitsAsked bool `cbor:"8,keyasint,omitempty" since:"2"`
	// Login has the node read the login environment of the job's user before the
	// batch script begins; nil: the environment is that of the submission.
	Login *LoginShell `cbor:"9,keyasint,omitempty" since:"2"`
}

// LoginShell is --get-user-env: how the login environment is read.
type LoginShell struct {
	Timeout Span `cbor:"1,keyasint,omitempty" since:"2"` // 0 = as the site says
	// Plain reads what the user's shell has without its login files, as su without
	// a dash does.
	Plain bool `cbor:"2,keyasint,omitempty" since:"2"`
}

// DependencyKind is the relation that a dependency waits for.
type DependencyKind uint8

// The kinds; the values are stored.
const (
	After DependencyKind = iota + 1
	AfterAny
	AfterOK
	AfterNotOK
	AfterCorr
	AfterBurstBuffer
	Singleton
)

// Dependency is a list of terms that must all (or, with Any, at least one) hold.
type Dependency struct {
	Any   bool             `cbor:"1,keyasint,omitempty"`
	Terms []DependencyTerm `cbor:"2,keyasint"`
}

// DependencyTerm is one condition. Job and Task are as the user wrote them;
// UID is the job they meant, resolved when the job was submitted.
type DependencyTerm struct {
	Kind  DependencyKind `cbor:"1,keyasint"`
	Job   JobID          `cbor:"2,keyasint,omitempty"`
	Task  int64          `cbor:"3,keyasint,omitempty"` // NoTask = the whole job or array
	Delay Span           `cbor:"4,keyasint,omitempty"` // after:id+minutes
	UID   JobUID         `cbor:"5,keyasint,omitempty"`
}
