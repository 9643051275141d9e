package collector

import (
	"sort"
	"strings"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// picture is a cluster as the exporter counts it, whatever it was read from:
// the ledger's view, or the commands of a Slurm. It is built once for each
// view or snapshot and does not change afterwards, so that any number of
// scrapes may read it.
type picture struct {
	cluster  string
	at       spec.Instant // of the state it shows
	until    spec.Instant // when a reservation begins or ends next, or a promise is missed; 0: never
	jobs     tally
	parts    []partRow // in configuration order
	nodes    []nodeRow // by id or name
	byPart   tallies
	byAcct   tallies
	byUser   tallies
	byQOS    tallies
	pairs    map[pair]*cores // user and partition
	pairKeys []pair
	reason   map[string]int64
	why      map[pair]int64 // partition and reason
	byType   map[string]int64
	done     map[pair]*efficiency // account and user: jobs that ended and are still known
	sched    schedRow
	lics     []licenceRow
	resvs    []reservationRow
	shares   []shareRow
	made     making
	// userNames are those of the users with live jobs, by number: counters of
	// limits know numbers only.
	userNames map[uint32]string
	exemplars exemplars // of waits and run times
}

// making is how the picture came about.
type making struct {
	kind, binary, version string
	parts                 []part
	commands              []commands
}

// part is one thing that was read for a picture.
type part struct {
	name    string
	seconds float64
	err     error
	at      spec.Instant // of the values; 0: never read, or as the picture
}

type pair struct{ a, b string }

// jobRow is one job record as every dialect counts it.
type jobRow struct {
	Base       spec.JobState // as Slurm's base state: a job that is being ended already has that of its end
	Completing bool          // nodes are not all given back
	Held       bool
	Flags      jobFlags
	Partition  string
	Account    string
	User       string
	QOS        string
	Reason     string
	Count      int64 // jobs that limits count the record as
	CPUs       int64 // held, or asked for while pending, by each of Count
	Mem        int64 // MiB
	GPUs       int64
	Nodes      int64
	GPUType    string       // asked for or held, if it is one type
	Eligible   spec.Instant // 0: not yet
	Promised   bool         // pending, with a promised start that can still be kept
	Slipped    bool         // promised, and planned to start too late to keep it
	Overdue    bool         // pending, and its promised start is more than the grace ago
	Eff        *jobEff      // of a job that ended and ran
}

// jobEff is what a job that ended was given and has used.
type jobEff struct {
	cpuUsed, cpuGiven float64 // CPU-seconds
	memUsed, memGiven float64 // bytes
}

// efficiency sums jobEff over the jobs of a user in an account.
type efficiency struct {
	jobs, withCPU, withMem    int64
	cpuRatio, memRatio, hours float64
}

// jobFlags are the flags beside a job's base state.
type jobFlags uint16

const (
	jobConfiguring jobFlags = 1 << iota
	jobRequeued
	jobResizing
	jobRevoked
	jobSignaling
	jobStageOut
	jobPowerUp
	jobFedRequeued
	jobExpediting
	jobFlagCount = 9
)

const jobBases = int(spec.OutOfMemory) + 1

// tally counts the jobs of one subject.
type tally struct {
	base    [jobBases]int64 // by base state
	shown   [jobBases]int64 // the same without those that are completing
	cores   cores           // their CPUs
	flags   [jobFlagCount]int64
	closing int64 // completing
	all     int64
	held    int64
	waiting int64 // pending on a dependency
	limited int64 // pending on a limit of the partition's nodes

	cpus, mem, gpus, nodes          int64 // held now
	askCPU, askMem, askGPU, askNode int64 // of pending jobs
	minNodes, maxNodes              int64 // of one pending job
	minNodesFree, maxNodesFree      int64 // the same without those that are held
	oldest                          spec.Instant
	promised                        int64 // pending records whose promise can still be kept
	slipped                         int64 // those of them that the plan has start too late
	overdue                         int64 // pending records that miss their promise
}

func (t *tally) addRow(row *jobRow) {
	n := row.Count
	t.all += n
	t.base[row.Base] += n
	if row.Completing {
		t.closing += n
	} else {
		t.shown[row.Base] += n
		t.cores[row.Base] += row.CPUs * n
	}
	for i := range t.flags {
		if row.Flags&(1<<i) != 0 {
			t.flags[i] += n
		}
	}
	if row.Base.Active() || row.Completing {
		t.cpus += row.CPUs
		t.mem += row.Mem
		t.gpus += row.GPUs
		t.nodes += row.Nodes
	}
	if row.Base == spec.Pending {
		t.addPending(row)
	}
}

func (t *tally) addPending(row *jobRow) {
	n := row.Count
	t.askCPU += row.CPUs * n
	t.askMem += row.Mem * n
	t.askGPU += row.GPUs * n
	t.askNode += row.Nodes * n
	t.minNodes, t.maxNodes = least(t.minNodes, row.Nodes), max(t.maxNodes, row.Nodes)
	if strings.HasPrefix(row.Reason, "Dependency") {
		t.waiting += n
	}
	if row.Reason == string(spec.ReasonPartitionNodeLimit) {
		t.limited += n
	}
	if row.Held {
		t.held += n
		return
	}
	t.minNodesFree, t.maxNodesFree = least(
		t.minNodesFree,
		row.Nodes,
	), max(
		t.maxNodesFree,
		row.Nodes,
	)
	if row.Promised {
		t.promised++
	}
	if row.Slipped {
		t.slipped++
	}
	if row.Overdue {
		t.overdue++ // one promise for a record, to the task that starts first
	}
	if row.Eligible != 0 && (t.oldest == 0 || row.Eligible < t.oldest) {
		t.oldest = row.Eligible
	}
}

// countStarted are the jobs that have ever had an allocation in their present
// attempt, as far as the states tell.
func (t *tally) countStarted() int64 {
	return t.all - t.base[spec.Pending]
}

// countFinished have a verdict and hold nothing any more.
func (t *tally) countFinished() int64 {
	n := int64(0)
	for jobState := spec.Completed; jobState <= spec.OutOfMemory; jobState++ {
		n += t.shown[jobState]
	}
	return n
}

// least is the smaller of two amounts of which 0 means none yet.
func least(a, b int64) int64 {
	if a == 0 || (b != 0 && b < a) {
		return b
	}
	return a
}

// tallies are counts by one key.
type tallies struct {
	by   map[string]*tally
	keys []string // sorted once the picture is drawn
	free []tally  // made together, given out one by one
}

func (m *tallies) tallyOf(key string) *tally {
	counts := m.by[key]
	if counts == nil {
		if m.by == nil {
			m.by = map[string]*tally{}
		}
		if len(m.free) == 0 {
			m.free = make([]tally, 1+min(len(m.keys), 63))
		}
		counts, m.free = &m.free[0], m.free[1:]
		m.by[key] = counts
		m.keys = append(m.keys, key)
	}
	return counts
}

// cores are CPUs by the base state of the jobs.
type cores [jobBases]int64

// entryOf gives what a map holds under a key, made when it is missing.
func entryOf[K comparable, V any](m map[K]*V, key K) *V {
	v := m[key]
	if v == nil {
		v = new(V)
		m[key] = v
	}
	return v
}

func newPicture(cluster string, at spec.Instant) *picture {
	return &picture{
		cluster:   cluster,
		at:        at,
		pairs:     map[pair]*cores{},
		reason:    map[string]int64{},
		why:       map[pair]int64{},
		byType:    map[string]int64{},
		done:      map[pair]*efficiency{},
		userNames: map[uint32]string{},
		exemplars: newExemplars(),
	}
}

// addJob counts a job under everything it belongs to.
func (p *picture) addJob(row *jobRow) {
	p.jobs.addRow(row)
	p.byPart.tallyOf(row.Partition).addRow(row)
	p.byAcct.tallyOf(row.Account).addRow(row)
	p.byUser.tallyOf(row.User).addRow(row)
	p.byQOS.tallyOf(row.QOS).addRow(row)
	if !row.Completing {
		entryOf(p.pairs, pair{row.User, row.Partition})[row.Base] += row.CPUs * row.Count
	}
	if row.Base == spec.Pending {
		p.reason[row.Reason] += row.Count
		p.why[pair{row.Partition, row.Reason}] += row.Count
		if row.GPUs > 0 {
			p.byType[row.GPUType] += row.GPUs * row.Count
		}
	}
	if row.Eff != nil {
		entryOf(p.done, pair{row.Account, row.User}).addJob(row.Eff)
	}
}

// sortRows sorts what scrapes walk in order.
func (p *picture) sortRows() *picture {
	for _, t := range [...]*tallies{&p.byPart, &p.byAcct, &p.byUser, &p.byQOS} {
		sort.Strings(t.keys)
	}
	p.pairKeys = sortedPairs(p.pairs)
	return p
}

func (e *efficiency) addJob(job *jobEff) {
	e.jobs++
	e.hours += job.cpuGiven / 3600
	if job.cpuGiven > 0 {
		e.withCPU++
		e.cpuRatio += job.cpuUsed / job.cpuGiven
	}
	if job.memGiven > 0 && job.memUsed > 0 {
		e.withMem++
		e.memRatio += job.memUsed / job.memGiven
	}
}

// nodeFlags are the base states and flags of a node.
type nodeFlags uint32

const (
	nodeIdle nodeFlags = 1 << iota
	nodeAlloc
	nodeMixed
	nodeDown
	nodeUnknown
	nodeFuture
	nodeError
	nodeDrain // asked for; drained or draining by what runs
	nodeFail
	nodeCompleting
	nodeNoResp
	nodeInvalid
	nodePlanned
	nodeResv
	nodeMaint
	nodeCloud
	nodeBlocked
	nodeDynFuture
	nodeDynNormal
	nodeExternal
	nodePowerDown
	nodePowerUp
	nodePoweredDown
	nodePoweringDown
	nodePoweringUp
	nodeRebootIssued
	nodeRebootRequested
)

// nodeRow is one node.
type nodeRow struct {
	Name, Addr  string // Addr: host:port of the agent's metrics, if known
	Flags       nodeFlags
	Busy        bool // jobs hold it
	Reason      string
	ReasonAt    spec.Instant
	LostAt      spec.Instant
	CPUs        int64 // configured
	CPUsForJobs int64 // without those kept for the system
	CPUAlloc    int64
	Mem         int64 // MiB
	MemForJobs  int64
	MemAlloc    int64
	MemFree     int64 // MiB the operating system calls free; -1 when it is not known
	GPUs        int64
	GPUAlloc    int64
	GPUsLost    int64  // configured, but not in the inventory that the node registered with
	Incomplete  string // what it found less of than is configured; empty without
	GRES        []gresRow
	Features    string
	Parts       []string
	Faults      []state.FaultTotals // of its GPUs, by kind and class
	Warned      []warnedRow         // GPUs that its jobs hold without a process
	XIDs        []xidRow            // errors of the driver
}

// xidRow is an error number of the driver on one device: how often the node
// reported it, and the last time, with the job that was struck then.
type xidRow struct {
	Index, UUID string // Index is empty while the node does not list the device
	XID         int64
	Class       string
	Count       uint64
	At          spec.Instant
	Job         string // empty if no job held the device alone
	User        string
}

// warnedRow is a GPU whose holder was warned that nobody uses it.
type warnedRow struct {
	Job                            uint64
	User, Account, Partition, UUID string
	Idle                           spec.Span
	At                             spec.Instant
}

// gresRow is one kind and type of generic resource of a node.
type gresRow struct {
	Name, Type  string
	Total, Used int64
	Shared      int64 // GPUs of which jobs have parts
	Lost        int64 // GPUs that are configured and that the node does not list any more
}

// isUsable tells whether new jobs may start on the node.
func (n *nodeRow) isUsable() bool {
	return n.Flags&(nodeDown|nodeUnknown|nodeFuture|nodeError|nodeDrain|nodeFail|nodeNoResp|nodeInvalid|nodePoweredDown|nodePoweringDown) == 0
}

// countedState is the one state muster_nodes counts the node under.
func (n *nodeRow) countedState() string {
	switch flags := n.Flags; {
	case flags&(nodeUnknown|nodeFuture) != 0:
		return "unknown"
	case flags&(nodeDown|nodeError) != 0:
		return "down"
	case flags&nodeFail != 0:
		return "fail"
	case flags&(nodeDrain|nodeInvalid) != 0:
		if n.Busy {
			return "draining"
		}
		return "drained"
	case flags&(nodePoweredDown|nodePoweringDown) != 0 && !n.Busy:
		return "powered_down"
	case flags&nodeAlloc != 0:
		return "allocated"
	case flags&nodeMixed != 0:
		return "mixed"
	}
	return "idle"
}

func (n *nodeRow) cpuIdle() int64 {
	if !n.isUsable() {
		return 0
	}
	return max(n.CPUsForJobs-n.CPUAlloc, 0)
}

// cpuOther are neither allocated nor idle.
func (n *nodeRow) cpuOther() int64 { return max(n.CPUs-n.CPUAlloc-n.cpuIdle(), 0) }

func (n *nodeRow) gpuIdle() int64 {
	if !n.isUsable() {
		return 0
	}
	return max(n.GPUs-n.GPUAlloc, 0)
}

// partRow is a partition with its nodes as indices into picture.nodes.
type partRow struct {
	Name  string
	nodes []int32
}

// schedRow is what sdiag prints, with durations.
type schedRow struct {
	Threads, ServerQueue, DBDQueue, AgentThreads, Agents int64

	Cycles, CycleDepth              uint64
	CycleLast, CycleMax, CycleTotal spec.Span
	CycleQueue                      int64
	Since                           spec.Instant // what the figures cover
	BFCycles                        uint64
	BFLast, BFMax, BFTotal          spec.Span
	BFDepthTotal, BFTryTotal        uint64
	BFDepthLast, BFTryLast          int64
	BFQueue, BFTable                int64
	BFQueueTotal, BFTableTotal      uint64
	BFWhen                          spec.Instant
	BFActive                        bool
	Backfilled, BackfilledCycle     uint64
	BackfilledHet                   uint64
	Submitted, Started, Completed   uint64
	Cancelled, Failed               uint64
	Exits, BFExits                  map[string]uint64 // by the native dialect's word
	Latency                         spec.Span
	StatesAt                        spec.Instant
	RPCs, UserRPCs                  []rpcRow
}

// rpcRow is one operation's or user's calls.
type rpcRow struct {
	Name  string
	Count uint64
	Total spec.Span
}

// licenceRow is one kind of licence. Reserved is what active reservations keep,
// Kept what of it their own jobs do not hold.
type licenceRow struct {
	Name                        string
	Total, Used, Reserved, Kept int64
}

// licenceUse is what jobs in reservations hold of licences.
type licenceUse map[[2]string]int64

func (u *licenceUse) addReserved(reservation, licence string, n int64) {
	if *u == nil {
		*u = licenceUse{}
	}
	(*u)[[2]string{reservation, licence}] += n
}

// reserveLicence adds what an active reservation keeps of a licence.
func (p *picture) reserveLicence(reservation, licence string, n int64, held licenceUse) {
	for i := range p.lics {
		if row := &p.lics[i]; row.Name == licence {
			row.Reserved += n
			row.Kept += max(n-held[[2]string{reservation, licence}], 0)
		}
	}
}

type reservationRow struct {
	Name, State, Nodes, Partition, Flags string
	Users, Accounts                      string
	Start, End                           spec.Instant
	NodeCount, Cores                     int64
	members                              []int32
}

// shareRow is one association's place in fair-share.
type shareRow struct {
	Account, User string
	RawShares     int64
	NormShares    float64
	RawUsage      float64 // TRES-seconds, decayed
	NormUsage     float64
	EffectUsage   float64 // of the siblings together: what the factor compares with the shares
	Factor        float64
	HasFactor     bool
	HasUsage      bool
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}

func sortedPairs[V any](m map[pair]V) []pair {
	keys := make([]pair, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Slice(keys, func(i, j int) bool {
		return keys[i].a < keys[j].a || (keys[i].a == keys[j].a && keys[i].b < keys[j].b)
	})
	return keys
}
