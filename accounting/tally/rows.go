package tally

import (
	"math"
	"slices"

	"github.com/musterhpc/muster/spec"
)

// Micros is an instant (since 1970) or a span in whole microseconds.
type Micros = int64

// Unlimited stands in a time limit for none.
const Unlimited Micros = -1

// Cut drops what an instant has below a microsecond.
func Cut(t spec.Instant) Micros { return int64(t) / int64(spec.Microsecond) }

// Requeued is the state of a run that somebody's wish ended and that is run
// again; StateRequeued is its number beside those of spec.JobState.
const (
	Requeued      = "REQUEUED"
	StateRequeued = 100
)

// Batch is what a stretch of the ledger adds to the store.
type Batch struct {
	First, Last uint64 // sequence numbers, both included; First > Last in an empty batch
	At          spec.Instant

	Events       []EventRow
	Jobs         []JobRow
	Live         []LiveRow
	Steps        []StepRow
	Nodes        []NodeRow
	GPUs         []GPURow
	NodeStates   []NodeStateRow
	Reasons      []ReasonRow
	Associations []AssociationRow
	Epochs       []Segment // that began in it; At is not set
}

// Rows is the number of rows of all tables.
func (b *Batch) Rows() int {
	return len(b.Events) + len(b.Jobs) + len(b.Live) + len(b.Steps) + len(b.Nodes) + len(b.GPUs) + len(b.NodeStates) +
		len(b.Reasons) + len(b.Associations)
}

// Largest is the number of rows of the table that has most.
func (b *Batch) Largest() int {
	return max(
		len(b.Events),
		len(b.Jobs),
		len(b.Live),
		len(b.Steps),
		len(b.Nodes),
		len(b.GPUs),
		len(b.NodeStates),
		len(b.Reasons),
		len(b.Associations),
	)
}

// nextBatch begins the batch that follows, in the place of a spare one or with room
// for as much: batches in a row are alike.
func (b *Batch) nextBatch(spare *Batch) *Batch {
	if spare != nil {
		spare.First = b.Last + 1
		return spare
	}
	return &Batch{
		First:   b.Last + 1,
		Events:  room(b.Events),
		Jobs:    room(b.Jobs),
		Live:    room(b.Live),
		Steps:   room(b.Steps),
		Nodes:   room(b.Nodes),
		GPUs:    room(b.GPUs),
		Reasons: room(b.Reasons),
	}
}

// dropRows drops the rows and keeps their room.
func (b *Batch) dropRows() {
	*b = Batch{
		Events: none(b.Events),
		Jobs:   none(b.Jobs),
		Live:   none(b.Live),
		Steps:  none(b.Steps),
		Nodes:  none(b.Nodes),
		GPUs:   none(b.GPUs),
		NodeStates: none(
			b.NodeStates,
		),
		Reasons:      none(b.Reasons),
		Associations: none(b.Associations),
		Epochs:       none(b.Epochs),
	}
}

// none lets go of what rows point at, and of room that was much too large.
func none[R any](rows []R) []R {
	if cap(rows) > 1024+4*len(rows) {
		return nil
	}
	clear(rows)
	return rows[:0]
}

// growTwice makes room for as many rows again where there is none for one more. Go
// by itself adds a quarter: a batch of 200,000 rows would be moved five times over.
func growTwice[R any](rows []R) []R {
	if len(rows) == cap(rows) {
		return slices.Grow(rows, max(64, len(rows)))
	}
	return rows
}

func room[R any](like []R) []R {
	if len(like) == 0 {
		return nil
	}
	return make([]R, 0, len(like)+len(like)/8)
}

// EventRow is one event, for the audit trail.
type EventRow struct {
	Seq       uint64
	At        Micros
	Kind      string
	ActorKind string // system, user, node
	ActorUID  uint32
	Actor     string
	Host      string
	Command   string
	CauseSeq  uint64
	UID       uint64 // the job it is about; 0 = none, or several
	Attempt   uint32
	Node      string
	Body      string // JSON; empty values are left out
}

// Amounts is a TRES vector as columns.
type Amounts struct {
	CPUs    int64
	Mem     int64 // MiB
	Nodes   int64
	GPUs    int64 // gres/gpu
	Billing int64
	Other   []spec.TRESCount // the rest, sorted by name
}

func amountsOf(tres spec.TRES) Amounts {
	amounts := Amounts{
		CPUs:    tres.CPU,
		Mem:     tres.Mem,
		Nodes:   tres.Node,
		Billing: tres.Billing,
		GPUs:    tres.Get("gres/gpu"),
	}
	if amounts.GPUs == 0 {
		amounts.Other = tres.Other
		return amounts
	}
	for _, count := range tres.Other {
		if count.Name != "gres/gpu" {
			amounts.Other = append(amounts.Other, count)
		}
	}
	return amounts
}

// Used is what was measured. Pointers are nil where nothing was.
type Used struct {
	Measured  bool // at all: at least one node reported
	UserCPU   Micros
	SystemCPU Micros
	PeakRSS   *int64 // bytes
	MemMiBS   int64
	Read      int64 // bytes
	Write     int64
	Energy    *int64 // millijoules; of a node without its GPUs, of jobs and steps with them
	MajFaults int64
	PeakVM    *int64 // bytes of address space; only of steps
	KHz       uint32 // mean frequency of the CPUs it ran on; 0 = not known; only of steps
	// Counters are what only some nodes can count, and Tasks how the use of a step lay
	// on its tasks.
	Counters spec.CounterValues
	Tasks    spec.TaskSpreads
}

// usedOf is what a job or a step used. Its energy is that of its nodes' parts and of
// its devices: who asks what a job used means both.
func usedOf(usage spec.Usage) Used {
	used := withoutGPUs(usage)
	for i := range usage.GPUs {
		gpu := &usage.GPUs[i]
		if !gpu.Has || gpu.EnergyMJ <= 0 { // a working device always uses some
			continue
		}
		sum := gpu.EnergyMJ
		if used.Energy != nil {
			sum += *used.Energy
		}
		used.Energy = &sum
	}
	return used
}

// withoutGPUs is what a run used of a node; its devices have rows of their own.
func withoutGPUs(usage spec.Usage) Used {
	used := Used{
		Measured:  true,
		UserCPU:   int64(usage.UserCPU / spec.Microsecond),
		SystemCPU: int64(usage.SystemCPU / spec.Microsecond),
		MemMiBS:   usage.MemMiBS,
		Read:      usage.ReadB,
		Write:     usage.WriteB,
		MajFaults: usage.MajFaults,
		Counters:  usage.Counters,
		Tasks:     usage.Tasks,
	}
	if usage.HasRSS {
		rss := usage.PeakRSS
		used.PeakRSS = &rss
	}
	if usage.PeakVM > 0 {
		vm := usage.PeakVM
		used.PeakVM = &vm
	}
	used.KHz = uint32(min(max(usage.CPUKHz, 0), math.MaxUint32))
	if usage.HasEnergy {
		e := usage.EnergyMJ
		used.Energy = &e
	}
	return used
}

// JobRow is one run of a job.
type JobRow struct {
	Seq         uint64 // the event that made the row what it is
	UID         uint64
	Restarts    uint32
	Attempt     uint32 // 0 = never started
	JobID       uint32
	ArrayUID    uint64 // the array's record; 0 = no array
	ArrayJobID  uint32 // the number people see before the underscore; 0 = no array
	ArrayTask   int64  // -1 = none, or a record that stands for several
	ArrayTasks  string // those it stands for
	Count       uint64 // how many jobs that is
	HetJobID    uint32 // number of the leader of its heterogeneous job; 0 = it is a component of none
	HetOffset   uint32 // which component of it, from 0
	HetSize     uint32 // how many there are
	Name        string
	User        string
	UserID      uint32
	Group       string
	GroupID     uint32
	Account     string
	Assoc       uint32
	Partition   string // where it ran; as asked for, comma separated, before that
	QOS         string
	WCKey       string
	Comment     string
	Admin       string // an administrator's comment
	System      string // one of the system's
	Extra       string
	MCS         string // whose jobs it shares nodes with
	Segment     uint32 // nodes of a segment that it asked for
	Container   string // image of the batch script, or of the srun that made the job
	FailedNode  string // the first that was lost while it ran
	State       string // COMPLETED, …, REQUEUED
	Exit        spec.ExitStatus
	Derived     spec.ExitStatus
	CancelledBy *uint32
	Reason      string // the last for which it waited
	EndReason   string // of the verdict
	Submit      Micros
	Eligible    Micros
	Promised    Micros // the first start that it was promised; 0 = it was promised none
	Start       Micros
	End         Micros
	Limit       Micros // Unlimited = none
	Suspended   Micros // before Stopped
	Stopped     Micros // since when it is suspended; 0 = it is not
	Req         Amounts
	Alloc       Amounts
	ReqMem      int64 // MiB, for the whole job
	ReqNodes    uint32
	Tasks       uint32
	NodeList    string
	Constraint  string
	Reservation string
	Licenses    string
	Priority    uint32
	Backfill    bool
	Batch       bool // it has a batch script
	WorkDir     string
	Line        string
	Stdin       string
	Stdout      string
	Stderr      string
	GPUs        []string // UUIDs, in the order of the allocation
	Used        Used
	GPUTime     Micros // allocated GPU time that was measured
	GPUUtil     Micros // integral of utilisation over it
	GPUNoProc   Micros
	GPUIdle     Micros
	GPUBusy     Micros
}

// LiveRow is the newest form of a run that is open, or that the same batch
// closed (Final).
type LiveRow struct {
	JobRow
	Final bool
	// What it holds, node by node; HeldTo is 0 while it does.
	HeldNodes []string
	HeldCPUs  []int64
	HeldMem   []int64
	HeldGPUs  []int64
	HeldTo    []Micros
	// Its numbered steps that are running.
	StepIDs    []int32
	StepNames  []string
	StepStarts []Micros
	StepTasks  []uint32
	// StepContainers are the images of their tasks; empty where they have none.
	StepContainers []string
	StepNodes      []string // hostlists
}

// StepRow is a step that is over.
type StepRow struct {
	Seq      uint64
	UID      uint64
	Restarts uint32
	Attempt  uint32
	JobID    uint32
	Step     int32 // spec.StepID
	Name     string
	User     string
	Account  string
	State    string
	Exit     spec.ExitStatus
	Start    Micros
	End      Micros
	Tasks    uint32
	NodeList string
	Alloc    Amounts
	Used     Used
	// Container is the image of its tasks, with its digest where that is known.
	Container string
}

// NodeRow is what one run held on one node, and used there.
type NodeRow struct {
	Seq       uint64
	UID       uint64
	Restarts  uint32
	Attempt   uint32
	JobID     uint32
	User      string
	Account   string
	Partition string
	QOS       string
	Node      string
	From      Micros
	To        Micros // given back
	End       Micros // the run's verdict
	CPUs      int64
	Mem       int64 // MiB
	GPUs      int64
	Tasks     uint32
	Lost      bool
	Used      Used
}

// GPURow is one device that a run held.
type GPURow struct {
	Seq       uint64
	UID       uint64
	Restarts  uint32
	Attempt   uint32
	JobID     uint32
	User      string
	Account   string
	Partition string
	QOS       string
	Node      string
	UUID      string
	Index     uint32
	Type      string
	From      Micros
	To        Micros // given back
	End       Micros // the run's verdict
	Measured  bool
	NoProcess Micros
	Idle      Micros
	Busy      Micros
	Util      Micros
	SM        Micros
	Tensor    Micros
	PeakMem   int64 // bytes
	MemMiBS   int64
	Energy    int64 // millijoules
	Throttled Micros
	XIDs      int64
	Method    string // how that became the run's; "" = nothing was measured
	Share     int64  // the part of the device that the run had, in thousandths; 0 = nothing was measured
}

// The classes of node states in reports.
const (
	ClassUp      = "up"
	ClassDown    = "down"
	ClassPlanned = "planned" // out of service on purpose: FUTURE nodes, and those that are powered down
	ClassGone    = "gone"    // not, or no longer, in the cluster
)

// NodeStateRow says what holds for a node from an instant on.
type NodeStateRow struct {
	Seq        uint64
	At         Micros
	Node       string
	State      string // UP, DRAIN, DOWN, FAIL, INVAL, NOT_RESPONDING, UNKNOWN, FUTURE, REMOVED
	Class      string
	Restated   bool // no change: said again at midnight UTC, so that a reader need not look back further
	CPUs       int64
	Mem        int64 // MiB
	GPUs       int64
	Other      []spec.TRESCount
	Partitions []string
	Reason     string
	By         string
	ByUID      uint32
}

// ReasonRow says why a run waits from an instant on, until the next row of it
// or its start or end.
type ReasonRow struct {
	Seq       uint64
	UID       uint64
	Restarts  uint32
	JobID     uint32
	Count     uint64
	User      string
	Account   string
	Partition string
	QOS       string
	At        Micros
	Code      string
	TRES      string
	Limit     int64
	InUse     int64
	Asked     int64
	Subject   string
	Blocker   uint64
	Detail    string
}

// SharesParent stands in AssociationRow.Shares for Fairshare=parent.
const SharesParent int64 = -1

// AssociationRow is an association as an event made it.
type AssociationRow struct {
	Seq       uint64
	At        Micros
	ID        uint32
	Account   string
	User      string
	Partition string
	Parent    uint32
	Shares    int64
	Removed   bool
}
