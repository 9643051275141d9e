package spec

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Config is the cluster as its administrator wrote it: parsed, defaulted and
// validated. It enters the ledger as one event, so a follower and a replay
// never read a file.
type Config struct {
	ClusterName string          `cbor:"1,keyasint"`
	Nodes       []NodeSpec      `cbor:"2,keyasint,omitempty"`
	Partitions  []PartitionSpec `cbor:"3,keyasint,omitempty"`
	Priority    PriorityConfig  `cbor:"4,keyasint"`
	Limits      JobLimits       `cbor:"5,keyasint"`
	Timing      Timing          `cbor:"6,keyasint"`
	Sched       SchedConfig     `cbor:"7,keyasint"`
	Enforce     Enforce         `cbor:"8,keyasint"`
	GresTypes   []string        `cbor:"9,keyasint,omitempty"`
	Licenses    []Count         `cbor:"10,keyasint,omitempty"`
	TRES        []string        `cbor:"11,keyasint,omitempty"` // AccountingStorageTRES beyond the built-in ones
	// Raw holds every key as written, in order, for scontrol show config.
	Raw []KeyValue `cbor:"12,keyasint,omitempty"`
	// JobCompFile is the path of the jobcomp/filetxt file, or empty.
	JobCompFile string `cbor:"13,keyasint,omitempty"`
	// ConfigOverrides: a node keeps its configured size where its agent reports
	// less (SlurmdParameters=config_overrides).
	ConfigOverrides bool `cbor:"14,keyasint,omitempty"`
	// SlurmUser is the account whose owner is an administrator, besides root.
	SlurmUser string `cbor:"15,keyasint,omitempty"`
	// Private is PrivateData: what users do not see of others, in lower case.
	Private []string `cbor:"16,keyasint,omitempty"`
	// Topology is the tree of switches, the leaves first; empty: none is known.
	Topology []Switch `cbor:"60,keyasint,omitempty"`
	// Blocks are the blocks of topology/block, in order; empty: none are known.
	Blocks []Block `cbor:"61,keyasint,omitempty"`
	// BlockSizes are the planning sizes, in nodes, the smallest first; the others
	// are it times a power of two.
	BlockSizes []uint32   `cbor:"62,keyasint,omitempty"`
	MCS        *MCSConfig `cbor:"63,keyasint,omitempty"` // nil: jobs have no labels
	// TrackWCKey gives a job without a wckey its user's default one.
	TrackWCKey bool `cbor:"64,keyasint,omitempty"`
	// Power is nil where nothing is said about it.
	Power *PowerConfig `cbor:"65,keyasint,omitempty"`
	// RebootProgram is what the agents reboot their nodes with, or empty.
	RebootProgram string `cbor:"66,keyasint,omitempty"`
	// Ctl are the programs that the controller runs for jobs; nil: none.
	Ctl *CtlScripts `cbor:"70,keyasint,omitempty"`
	// MaxNodes is how many nodes there may be with those that are added while the
	// cluster runs; 0: none are (MaxNodeCount).
	MaxNodes uint32 `cbor:"75,keyasint,omitempty"`
	// FileParts are partitions as the files have them, without their nodes, that
	// were changed since while the cluster ran.
	FileParts []PartitionSpec `cbor:"76,keyasint,omitempty"`
	// FileNodes are likewise the nodes as the files have them that were changed
	// since.
	FileNodes []NodeSpec `cbor:"77,keyasint,omitempty"`
	// PartNodes names those of FileParts whose nodes were changed too: these have the
	// nodes of the files as well.
	PartNodes []string `cbor:"80,keyasint,omitempty"`
	// TopologyName is the name of the topology in Topology or Blocks, empty where
	// it has none, and Topologies are the others, which partitions choose by name.
	TopologyName string     `cbor:"81,keyasint,omitempty"`
	Topologies   []Topology `cbor:"82,keyasint,omitempty"`
	// Rate limits the calls of each user; nil: they are not limited.
	Rate *RateLimit `cbor:"100,keyasint,omitempty"`
	// RequeueUnfenced starts the jobs of a lost node again while their processes
	// may still live there, as Slurm does (SlurmctldParameters=requeue_unfenced).
	RequeueUnfenced bool `cbor:"110,keyasint,omitempty"`
	// Fencing is what proves that nothing lives on a node that was given up; nil:
	// jobs wait for the node.
	Fencing *FencingPolicy `cbor:"111,keyasint,omitempty"`
	// MailProg sends mail about jobs, empty: the host's mail, none: nothing is sent.
	// MailDomain is that of recipients without one.
	MailProg   string `cbor:"115,keyasint,omitempty"`
	MailDomain string `cbor:"116,keyasint,omitempty"`
	// Scrontab lets users have crontabs; with CronExplicit their jobs are cancelled only
	// where that is asked for (scancel --cron).
	Scrontab     bool `cbor:"117,keyasint,omitempty"`
	CronExplicit bool `cbor:"118,keyasint,omitempty"`
	// UserTriggers lets all users set triggers, NoTriggers nobody; by default SlurmUser and
	// administrators do.
	UserTriggers bool `cbor:"119,keyasint,omitempty"`
	NoTriggers   bool `cbor:"120,keyasint,omitempty"`
	// JobSubmit is job_submit.lua, which sees each job before it becomes a command;
	// CliFilter is cli_filter.lua, which sees the options of the commands that submit. Nil:
	// there is none.
	JobSubmit *SiteScript `cbor:"121,keyasint,omitempty"`
	CliFilter *SiteScript `cbor:"122,keyasint,omitempty"`
	// ForwardX11: jobs may reach the display of who submitted them (PrologFlags=X11).
	ForwardX11 bool `cbor:"123,keyasint,omitempty" since:"2"`
}

// SiteScript is a script of the site with its text, so that every controller runs the same one
// and the ledger tells which one judged a job.
type SiteScript struct {
	Path string `cbor:"1,keyasint"` // as messages name it
	Text string `cbor:"2,keyasint"`
}

// RateLimit gives each user a bucket of calls (rl_* of SlurmctldParameters). A
// field of 0 has Slurm's default.
type RateLimit struct {
	Bucket uint32 `cbor:"1,keyasint,omitempty"` // rl_bucket_size
	Refill uint32 `cbor:"2,keyasint,omitempty"` // rl_refill_rate: calls put back in each period
	Period Span   `cbor:"3,keyasint,omitempty"` // rl_refill_period
	Users  uint32 `cbor:"4,keyasint,omitempty"` // rl_table_size
}

// CtlScripts are the programs that the controller runs when a job has got its
// nodes, before anything of it starts, and when it is over, empty: none; and what
// follows when a prolog fails.
type CtlScripts struct {
	Prolog        string `cbor:"1,keyasint,omitempty"` // PrologSlurmctld
	Epilog        string `cbor:"2,keyasint,omitempty"` // EpilogSlurmctld
	PrologTimeout Span   `cbor:"3,keyasint,omitempty"` // 0 = as long as it takes
	EpilogTimeout Span   `cbor:"4,keyasint,omitempty"`
	// ForceRequeue queues a job again whose node's Prolog failed, also one with
	// --no-requeue (PrologFlags=ForceRequeueOnFail).
	ForceRequeue bool `cbor:"5,keyasint,omitempty"`
	// DeferBatch starts a batch script when the prologs of all its nodes are over
	// (PrologFlags=DeferBatch), not only that of its own node.
	DeferBatch bool `cbor:"6,keyasint,omitempty" since:"2"`
}

// KeyValue is one line of a configuration file.
type KeyValue struct {
	Key   string `cbor:"1,keyasint"`
	Value string `cbor:"2,keyasint"`
	// Record is the key with which the record begins that this one is of, such
	// as NodeName; empty in the main part of the file.
	Record string `cbor:"3,keyasint,omitempty"`
}

// PartitionState says what a partition does with jobs.
type PartitionState uint8

// The states of a partition.
const (
	PartitionUp       PartitionState = iota + 1 // accepts and starts
	PartitionDown                               // accepts, starts nothing
	PartitionDrain                              // starts, accepts nothing
	PartitionInactive                           // neither
)

// String gives Slurm's name.
func (s PartitionState) String() string {
	switch s {
	case PartitionUp:
		return "UP"
	case PartitionDown:
		return "DOWN"
	case PartitionDrain:
		return "DRAIN"
	case PartitionInactive:
		return "INACTIVE"
	}
	return "UNKNOWN"
}

// PartitionSpec is a partition as configured.
type PartitionSpec struct {
	Name              string         `cbor:"1,keyasint"`
	Nodes             string         `cbor:"2,keyasint,omitempty"` // as written, for display
	NodeNames         []string       `cbor:"3,keyasint,omitempty"` // expanded, in order
	Default           bool           `cbor:"4,keyasint,omitempty"`
	State             PartitionState `cbor:"5,keyasint,omitempty"` // 0 = UP
	MaxTime           Span           `cbor:"6,keyasint,omitempty"` // 0 = Infinite
	DefaultTime       Span           `cbor:"7,keyasint,omitempty"` // 0 = MaxTime
	MinNodes          uint32         `cbor:"8,keyasint,omitempty"`
	MaxNodes          uint32         `cbor:"9,keyasint,omitempty"`  // 0 = no limit
	PriorityTier      uint32         `cbor:"10,keyasint,omitempty"` // 0 = 1
	PriorityJobFactor uint32         `cbor:"11,keyasint,omitempty"` // 0 = 1
	QOS               string         `cbor:"12,keyasint,omitempty"`
	AllowAccounts     []string       `cbor:"13,keyasint,omitempty"`
	DenyAccounts      []string       `cbor:"14,keyasint,omitempty"`
	AllowQOS          []string       `cbor:"15,keyasint,omitempty"`
	DenyQOS           []string       `cbor:"16,keyasint,omitempty"`
	AllowGroups       []string       `cbor:"17,keyasint,omitempty"`
	DefMemPerCPU      int64          `cbor:"18,keyasint,omitempty"` // MiB
	DefMemPerNode     int64          `cbor:"19,keyasint,omitempty"`
	DefMemPerGPU      int64          `cbor:"20,keyasint,omitempty"`
	MaxMemPerCPU      int64          `cbor:"21,keyasint,omitempty"`
	MaxMemPerNode     int64          `cbor:"22,keyasint,omitempty"`
	DefCPUPerGPU      int64          `cbor:"23,keyasint,omitempty"`
	MaxCPUsPerNode    int64          `cbor:"24,keyasint,omitempty"`
	OverSubscribe     string         `cbor:"25,keyasint,omitempty"` // NO, YES[:n], FORCE[:n], EXCLUSIVE
	Hidden            bool           `cbor:"26,keyasint,omitempty"`
	RootOnly          bool           `cbor:"27,keyasint,omitempty"`
	DisableRootJobs   bool           `cbor:"28,keyasint,omitempty"`
	ReqResv           bool           `cbor:"29,keyasint,omitempty"`
	LLN               bool           `cbor:"30,keyasint,omitempty"`
	BillingWeights    []Weight       `cbor:"31,keyasint,omitempty"`
	PreemptMode       string         `cbor:"32,keyasint,omitempty"`
	GraceTime         Span           `cbor:"33,keyasint,omitempty"`
	OverTimeLimit     Span           `cbor:"34,keyasint,omitempty"`
	ExclusiveUser     bool           `cbor:"35,keyasint,omitempty"`
	Alternate         string         `cbor:"36,keyasint,omitempty"`
	ExclusiveTopo     bool           `cbor:"60,keyasint,omitempty"`
	// Power saving: 0 = as the cluster, Infinite = never. See PowerConfig.
	SuspendTime     Span `cbor:"61,keyasint,omitempty"`
	SuspendTimeout  Span `cbor:"62,keyasint,omitempty"`
	ResumeTimeout   Span `cbor:"63,keyasint,omitempty"`
	PowerDownOnIdle bool `cbor:"64,keyasint,omitempty"` // as soon as a node is idle
	// AllNodes and NodeFeatures say which nodes that are added later are of the
	// partition: all, or those with one of the features (Nodes=ALL, a NodeSet).
	AllNodes     bool     `cbor:"70,keyasint,omitempty"`
	NodeFeatures []string `cbor:"71,keyasint,omitempty"`
	// Dynamic tells a partition that was made while the cluster ran: no file names it.
	Dynamic bool `cbor:"72,keyasint,omitempty"`
	// Topology names one of Config.Topologies; empty: the cluster's.
	Topology string `cbor:"73,keyasint,omitempty"`
	// Fencing is that of the partition's jobs; nil: the cluster's.
	Fencing *FencingPolicy `cbor:"110,keyasint,omitempty"`
}

// TimeLimit is the limit of a job that requests this one: without a request, the partition's
// default, or else the longest that it allows; Infinite where it has neither.
func (p *PartitionSpec) TimeLimit(requested Span) Span {
	return cmp.Or(requested, p.DefaultTime, p.MaxTime, Infinite)
}

// Sharers is how many jobs may be on a CPU of the partition at once, given
// how a job wants to share it: 1 where each has its CPUs for itself.
func (p *PartitionSpec) Sharers(want Sharing) uint32 {
	word, times, _ := strings.Cut(p.OverSubscribe, ":")
	if word != "FORCE" && (word != "YES" || want != Oversubscribe) {
		return 1
	}
	if n, err := strconv.ParseUint(times, 10, 16); err == nil && n > 0 {
		return uint32(n)
	}
	return 4
}

// MCSConfig says by what jobs are labelled for MCS (multi-category security).
type MCSConfig struct {
	By       string `cbor:"1,keyasint,omitempty"` // user, account; empty: there are no labels
	Enforced bool   `cbor:"2,keyasint,omitempty"` // every job has a label, else those that ask for it
	Always   bool   `cbor:"3,keyasint,omitempty"` // select: labelled jobs always keep others off their nodes
	Never    bool   `cbor:"4,keyasint,omitempty"` // noselect: not even with --exclusive=mcs
}

// Labels says by what jobs are labelled.
func (c *Config) Labels() MCSConfig {
	if c.MCS == nil {
		return MCSConfig{}
	}
	return *c.MCS
}

// Weight is a per-TRES weight in millionths.
type Weight struct {
	TRES  string `cbor:"1,keyasint"`
	Micro int64  `cbor:"2,keyasint"`
	// Per is how many units the weight is for: Mem=0.25G is 250000 per 1024
	// MiB; 0 = 1. Kept apart because 0.25/1024 is no whole number of millionths.
	Per int64 `cbor:"3,keyasint,omitempty"`
}

// PriorityConfig holds the multifactor weights.
type PriorityConfig struct {
	Basic      bool     `cbor:"1,keyasint,omitempty"` // priority/basic: first come, first served
	Age        uint32   `cbor:"2,keyasint,omitempty"`
	Assoc      uint32   `cbor:"3,keyasint,omitempty"`
	FairShare  uint32   `cbor:"4,keyasint,omitempty"`
	JobSize    uint32   `cbor:"5,keyasint,omitempty"`
	Partition  uint32   `cbor:"6,keyasint,omitempty"`
	QOS        uint32   `cbor:"7,keyasint,omitempty"`
	TRES       []Weight `cbor:"8,keyasint,omitempty"`
	MaxAge     Span     `cbor:"9,keyasint,omitempty"` // 0 = 7 days
	FavorSmall bool     `cbor:"10,keyasint,omitempty"`
	HalfLife   Span     `cbor:"11,keyasint,omitempty"` // 0 = never decays
	CalcPeriod Span     `cbor:"12,keyasint,omitempty"`
	UsageReset string   `cbor:"13,keyasint,omitempty"`
	Flags      []string `cbor:"14,keyasint,omitempty"`
	Dampening  uint32   `cbor:"15,keyasint,omitempty"` // FairShareDampeningFactor of the classic formula; 0 = 1
}

// JobLimits bounds what the controller accepts.
type JobLimits struct {
	MaxJobCount     uint32 `cbor:"1,keyasint,omitempty"` // live records; 0 = 10000
	MaxArraySize    uint32 `cbor:"2,keyasint,omitempty"` // 0 = 1001
	MaxJobID        uint32 `cbor:"3,keyasint,omitempty"` // 0 = 67108863
	FirstJobID      uint32 `cbor:"4,keyasint,omitempty"` // 0 = 1
	MaxScript       int64  `cbor:"5,keyasint,omitempty"` // bytes; 0 = 4 MiB
	MaxTasksPerNode uint32 `cbor:"6,keyasint,omitempty"`
	EnforcePart     string `cbor:"7,keyasint,omitempty"` // NO, ANY, ALL
	DefMemPerCPU    int64  `cbor:"8,keyasint,omitempty"` // MiB
	DefMemPerNode   int64  `cbor:"9,keyasint,omitempty"`
	DefMemPerGPU    int64  `cbor:"10,keyasint,omitempty"`
	MaxMemPerCPU    int64  `cbor:"11,keyasint,omitempty"`
	MaxMemPerNode   int64  `cbor:"12,keyasint,omitempty"`
	DefCPUPerGPU    int64  `cbor:"13,keyasint,omitempty"`
	MaxBatchRequeue uint32 `cbor:"14,keyasint,omitempty"` // 0 = 5
	JobRequeue      bool   `cbor:"15,keyasint,omitempty"`
	JobFileAppend   bool   `cbor:"16,keyasint,omitempty"`
	KillInvalidDep  bool   `cbor:"17,keyasint,omitempty"`
	KillOnBadExit   bool   `cbor:"18,keyasint,omitempty"` // what holds for steps that do not say
	// UserShare bounds the jobs of one user (max_user_share): he may have at most
	// this part, in percent, of the records that others do not hold. 0 = 90, 100 =
	// he may fill MaxJobCount.
	UserShare uint32 `cbor:"19,keyasint,omitempty"`
	// MPIDefault is the PMIx of steps that do not say (MpiDefault); empty: they have
	// PMI-2.
	MPIDefault string `cbor:"20,keyasint,omitempty" since:"2"`
}

// Timing holds the intervals that users notice.
type Timing struct {
	KillWait          Span   `cbor:"1,keyasint,omitempty"`
	MinJobAge         Span   `cbor:"2,keyasint,omitempty"`
	NodeTimeout       Span   `cbor:"3,keyasint,omitempty"` // SlurmdTimeout
	InactiveLimit     Span   `cbor:"4,keyasint,omitempty"` // of old ledgers; nothing reads it
	OverTimeLimit     Span   `cbor:"5,keyasint,omitempty"`
	UnkillableAfter   Span   `cbor:"6,keyasint,omitempty"`
	ReturnToService   uint32 `cbor:"7,keyasint,omitempty"`
	RequeueDelay      Span   `cbor:"8,keyasint,omitempty"`
	ControllerTimeout Span   `cbor:"9,keyasint,omitempty"`  // SlurmctldTimeout
	FenceAfter        Span   `cbor:"10,keyasint,omitempty"` // of old ledgers; nothing reads it
	WaitTime          Span   `cbor:"11,keyasint,omitempty"` // srun --wait of steps that do not say
	// MessageTimeout bounds each call between the agent and the shepherd of a
	// node; 0 = 10 seconds.
	MessageTimeout Span `cbor:"12,keyasint,omitempty"`
}

// SchedConfig holds the scheduler's own settings.
type SchedConfig struct {
	Backfill     bool     `cbor:"1,keyasint,omitempty"`
	BFWindow     Span     `cbor:"2,keyasint,omitempty"`
	BFResolution Span     `cbor:"3,keyasint,omitempty"`
	BFMaxJobTest uint32   `cbor:"4,keyasint,omitempty"`
	BFInterval   Span     `cbor:"5,keyasint,omitempty"`
	QueueDepth   uint32   `cbor:"6,keyasint,omitempty"`
	Interval     Span     `cbor:"7,keyasint,omitempty"`
	Cores        bool     `cbor:"8,keyasint,omitempty"` // CR_Core*: whole cores
	Memory       bool     `cbor:"9,keyasint,omitempty"` // memory is a consumable resource
	LLN          bool     `cbor:"10,keyasint,omitempty"`
	Params       []string `cbor:"11,keyasint,omitempty"` // SchedulerParameters, as written
	PreemptType  string   `cbor:"12,keyasint,omitempty"`
	PreemptMode  string   `cbor:"13,keyasint,omitempty"`
	ArrayResv    uint32   `cbor:"14,keyasint,omitempty"` // bf_max_job_array_resv
	// Preemption, besides PreemptType and PreemptMode.
	PreemptExempt     Span   `cbor:"40,keyasint,omitempty"` // no job is preempted before it ran this long
	PreemptYoungest   bool   `cbor:"41,keyasint,omitempty"` // youngest_first
	PreemptStrict     bool   `cbor:"42,keyasint,omitempty"` // strict_order
	PreemptExemptPrio uint32 `cbor:"43,keyasint,omitempty"` // min_exempt_priority; 0 = none
	// Firm is how many waiting jobs, by priority, have reservations that nobody
	// may delay; behind them the shortest jobs start first. 0 = all (bf_firm).
	Firm uint32 `cbor:"44,keyasint,omitempty"`
	// SwitchWait is the longest that a job waits for --switches; 0 = 5 minutes.
	SwitchWait Span `cbor:"45,keyasint,omitempty"`
	// LeastShared takes parts of GPUs of the emptiest device (LL_SHARED_GRES).
	LeastShared bool `cbor:"46,keyasint,omitempty"`
	// PackMix places jobs where they take least from what the jobs of the cluster
	// ask for (pack_mix).
	PackMix bool `cbor:"47,keyasint,omitempty"`
	// TimeSlice is how long jobs that take turns on the same CPUs run at a time;
	// 0 = 30 seconds.
	TimeSlice Span `cbor:"48,keyasint,omitempty"`
	// TopoOptional: switches matter only to jobs with --switches. Dragonfly: a job
	// that one leaf switch has no room for is spread over the leaves evenly.
	TopoOptional bool `cbor:"80,keyasint,omitempty"`
	Dragonfly    bool `cbor:"81,keyasint,omitempty"`
	// PredictRuns plans the jobs behind the firm reservations with the run times
	// that are predicted for them, instead of their time limits
	// (bf_promise=prediction).
	PredictRuns bool `cbor:"82,keyasint,omitempty"`
	// PromiseSlack is how far a firm reservation may move because such a job
	// outlived its prediction, in percent of the wait that was promised
	// (bf_promise_slack).
	PromiseSlack uint32 `cbor:"83,keyasint,omitempty"`
}

// Turns is how many jobs of a partition take turns on the same CPUs, one at a
// time: OverSubscribe=FORCE[:n] with PreemptMode=GANG. 0 = they do not.
func (c *SchedConfig) Turns(part *PartitionSpec) int {
	words := strings.Split(c.PreemptMode+","+part.PreemptMode, ",")
	if n := int(part.Sharers(0)); n > 1 && part.PreemptMode != "OFF" &&
		slices.Contains(words, "GANG") {
		return n
	}
	return 0
}

// Enforce is AccountingStorageEnforce.
type Enforce struct {
	Associations bool `cbor:"1,keyasint,omitempty"`
	Limits       bool `cbor:"2,keyasint,omitempty"`
	QOS          bool `cbor:"3,keyasint,omitempty"`
	Safe         bool `cbor:"4,keyasint,omitempty"`
	WCKeys       bool `cbor:"5,keyasint,omitempty"`
}
