package pass

import (
	"slices"
	"sort"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/eligible"
	"github.com/musterhpc/muster/scheduler/fairshare"
	"github.com/musterhpc/muster/scheduler/limits"
	"github.com/musterhpc/muster/scheduler/order"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/scheduler/predict"
	"github.com/musterhpc/muster/scheduler/timeline"
	"github.com/musterhpc/muster/spec"
)

// A deep queue consists mostly of jobs with equal requests. The pass works on
// job classes: the jobs of one user, account and QOS with equal requests in one
// partition. What keeps one of them from starting keeps all, and what does not fit for one
// does not fit for the next. So the cost of a pass grows with the classes and
// with the jobs that it starts or plans, but not with the rest of the queue.

// jobClass is a set of such jobs, in the order in which they come.
type jobClass struct {
	part      *state.Partition
	partIndex int    // of the partition
	choice    int    // which of the job's partitions it is, and of its QOS in each
	qos       string // that its jobs would start in, of several; else empty
	// The least that a request needs, where it is the same in each of its
	// partitions: it has one; else 0.
	cpus, gpus, nodeCount int64
	request               *request

	members         []member // in order; those that have gone stay, marked, for a while
	gone            int
	mindsNeighbours bool // its jobs mind who is on the nodes beside them
	// settled is the reason that all members except the odd
	// ones have in the ledger; nil if their reasons are not known.
	settled *spec.Reason
	odd     map[spec.JobUID]*state.Job

	// What is asked for, once a pass has worked it out.
	sized  bool      // the next one need not: it does not depend on the nodes there are
	wall   spec.Span // the limit it was worked out under
	limit  spec.Span // the demand's, before a reservation shortens it
	demand place.Demand
	least  spec.TRES

	forecast predict.Memo // of the member that was looked at last

	// Of one pass.
	position          int // the member that is looked at
	rank              uint64
	share             uint64    // of what goes beyond guarantees: the less its account holds, the earlier
	length            spec.Span // its place among those that fill gaps; else 0
	fixed             order.Factors
	ready             bool
	bound             limits.Bound
	nodes             eligible.NodeSet
	query             *timeline.Query // made when it is needed
	noReserve         bool
	insistsOnSwitches bool                      // the ask insists on --switches
	noVictims         bool                      // no victims are enough
	view              *timeline.ReservationView // nil: no reservation concerns it
}

// member is one job of a class, or the record of an array. Jobs of a class differ
// in priority only by age, so that the order of members never changes.
type member struct {
	eligible  spec.Instant // FarFuture: since now
	submitted spec.Instant
	uid       spec.JobUID
	job       *state.Job // nil: gone
}

// ranksBefore is the order among jobs of equal priority: by age, submission,
// number.
func (a *member) ranksBefore(b *member) bool {
	switch {
	case a.eligible != b.eligible:
		return a.eligible < b.eligible
	case a.submitted != b.submitted:
		return a.submitted < b.submitted
	}
	return a.uid < b.uid
}

// memberOrder is what the order within a class depends on.
type memberOrder uint8

const (
	byNumber     memberOrder = iota // first come, first served
	bySubmission                    // age does not count
	byAge
)

func memberOrderOf(priority *spec.PriorityConfig) memberOrder {
	switch {
	case priority.Basic:
		return byNumber
	case priority.Age == 0, fairshare.Has(priority, "ACCRUE_ALWAYS"):
		return bySubmission
	}
	return byAge
}

// memberOf makes the member of a job.
func memberOf(job *state.Job, by memberOrder) member {
	m := member{uid: job.UID, job: job}
	if by != byNumber {
		m.submitted = job.Submitted
	}
	if by == byAge && job.Spec.Queue.Priority == 0 {
		m.eligible = job.AgesSince()
		if m.eligible == 0 {
			m.eligible = spec.FarFuture
		}
	}
	return m
}

// findMember is where a member is, or would be.
func (class *jobClass) findMember(m *member) int {
	if n := len(class.members); n == 0 || class.members[n-1].ranksBefore(m) {
		return n
	}
	return sort.Search(
		len(class.members),
		func(i int) bool { return !class.members[i].ranksBefore(m) },
	)
}

func (class *jobClass) addMember(m member) {
	m.job = class.inQOS(m.job)
	i := class.findMember(&m)
	if i < len(class.members) && class.members[i].uid == m.uid {
		class.members[i] = m // it was here before
		class.gone--
	} else {
		class.members = slices.Insert(class.members, i, m)
	}
	if class.settled != nil && !m.job.Reason.Same(*class.settled) {
		class.odd[m.uid] = m.job
	}
}

func (class *jobClass) removeMember(m *member) {
	if i := class.findMember(m); i < len(class.members) && class.members[i].uid == m.uid &&
		class.members[i].job != nil {
		class.members[i].job = nil
		class.gone++
	}
	delete(class.odd, m.uid)
	if class.gone > 64 && class.gone > len(class.members)/2 {
		class.members = slices.DeleteFunc(
			class.members,
			func(m member) bool { return m.job == nil },
		)
		class.gone = 0
	}
}

// inQOS is a job as it is in this class: one that may start in several QOS is in a
// class for each.
func (class *jobClass) inQOS(job *state.Job) *state.Job { return eligible.InQOS(job, class.qos) }

func (class *jobClass) isEmpty() bool { return class.gone == len(class.members) }

// beginPass prepares a class for a pass.
func (class *jobClass) beginPass(ctx *order.Context) {
	class.position = -1
	class.ready = false
	class.query = nil
	class.noReserve = false
	class.length = 0
	class.share = 0
	class.insistsOnSwitches = false
	class.noVictims = false
	class.view = nil
	class.fixed = ctx.Fixed(class.inQOS(class.request.representative), class.part.Spec)
	class.nextMember(ctx)
}

// measureDemand computes what the jobs of a class request.
func (class *jobClass) measureDemand(cluster *state.State, job *state.Job) {
	if wall := class.bound.Wall(); !class.sized || class.wall != wall {
		class.demand, class.wall = eligible.ResolveRequest(cluster, class.part, job.Spec, wall),
			wall
		class.sized = !eligible.IsElastic(&class.demand)
		if !class.sized {
			eligible.RaiseMinNodes(cluster, class.part, &class.demand)
		}
		class.least = eligible.MinimumTRES(&class.demand, class.part.Spec, job.Spec)
		class.limit = class.demand.Limit
	}
	// Until a reservation says otherwise: what an earlier pass had of it may have changed.
	class.demand.Inside = ""
	class.demand.Limit = class.limit
}

// nextMember goes to the next member; false if there is none.
func (class *jobClass) nextMember(ctx *order.Context) bool {
	for class.position++; class.position < len(class.members); class.position++ {
		if job := class.members[class.position].job; job != nil {
			factors := class.fixed
			ctx.Complete(&factors, job)
			class.rank = rankOf(ctx.Standing(job, class.part.Spec), factors.Total)
			if ctx.Share != nil {
				class.share = ctx.Share(job)
			}
			return true
		}
	}
	return false
}

func (class *jobClass) currentMember() *member { return &class.members[class.position] }

// ranksBefore is the order in which a pass looks at classes: tier of their current
// members, what their accounts hold beyond their guarantees, and priority, then those
// members' own order. Of one job the partition that it named first comes first,
// and in it the best QOS.
func (class *jobClass) ranksBefore(other *jobClass) bool {
	a, b := class.currentMember(), other.currentMember()
	switch {
	case class.length != other.length && class.rank>>32 == other.rank>>32: // of one tier
		return class.length < other.length
	case class.share != other.share && class.rank>>32 == other.rank>>32:
		return class.share < other.share
	case class.rank != other.rank:
		return class.rank < other.rank
	case a.uid == b.uid:
		return class.choice < other.choice
	}
	return a.ranksBefore(b)
}

// updateRank recomputes the rank of a class if it can change within a pass, with
// what its account holds. It tells whether the rank changed.
func (p *pass) updateRank(class *jobClass) bool {
	if p.guarantees == nil {
		return false
	}
	job := class.currentMember().job
	rank, share := p.claims.rankOf(class, job), p.guarantees.Share(job)
	if rank == class.rank && share == class.share {
		return false
	}
	class.rank, class.share = rank, share
	return true
}

// rankOf makes one number of standing and priority; the lower, the earlier.
func rankOf(standing, priority uint32) uint64 { return ^(uint64(standing)<<32 | uint64(priority)) }

// request are the classes of one request, one for each of its partitions and QOS.
type request struct {
	representative *state.Job
	hash           uint64
	next           *request // of the same hash
	classes        []*jobClass
	missingParts   int // partitions that do not exist
}

// hashRequest is a hash over the numbers of a request; equal requests have equal
// hashes.
func hashRequest(job *state.Job) uint64 {
	jobSpec, h := job.Spec, uint64(14695981039346656037)
	size := &jobSpec.Size
	for _, value := range [...]uint64{uint64(jobSpec.UID), uint64(job.Assoc),
		uint64(jobSpec.Time.Limit), uint64(size.MinNodes)<<32 | uint64(size.MaxNodes),
		uint64(size.Tasks)<<32 | uint64(size.TasksPerNode), uint64(size.CPUsPerTask)<<32 | uint64(size.CPUsPerGPU), uint64(size.MinCPUsPerNode),
		uint64(size.MemPerNode), uint64(size.MemPerCPU)<<20 ^ uint64(size.MemPerGPU), uint64(len(jobSpec.QOS))<<8 | uint64(len(jobSpec.Partitions)),
		hashCounts(size.PerNode), hashCounts(size.PerTask), hashCounts(size.PerJob), hashCounts(jobSpec.Licenses),
		uint64(len(jobSpec.Place.Nodes))<<16 | uint64(len(jobSpec.Place.Constraint)), uint64(jobSpec.Queue.Priority)<<32 | uint64(uint32(jobSpec.Queue.Nice))} {
		h = (h ^ value) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return h
}

func hashCounts(list []spec.Count) uint64 {
	h := uint64(len(list))
	for i := range list {
		h = h*1099511628211 ^ uint64(list[i].N)<<16 ^ uint64(len(list[i].Type))
	}
	return h
}

// sameRequest tells whether two jobs belong into the same classes. Tasks of one array
// share the spec itself. TestSameRequestLooksAtEveryField keeps it complete.
func sameRequest(a, b *state.Job) bool {
	x, y := a.Spec, b.Spec
	if a.Het != nil || b.Het != nil {
		return a.UID == b.UID && x == y // or it was updated
	}
	if a.Assoc != b.Assoc || !sameTRES(&a.Req, &b.Req) {
		return false
	}
	if x == y {
		return true
	}
	return x.UID == y.UID &&
		x.Group == y.Group &&
		x.Account == y.Account &&
		x.MCSLabel == y.MCSLabel &&
		x.QOS == y.QOS &&
		slices.Equal(x.QOSes, y.QOSes) &&
		slices.Equal(x.Partitions, y.Partitions) &&
		x.AnyLicense == y.AnyLicense &&
		slices.Equal(x.Licenses, y.Licenses) &&
		x.Time.Limit == y.Time.Limit &&
		x.Time.Min == y.Time.Min &&
		sameRank(&x.Queue, &y.Queue) &&
		sameSize(&x.Size, &y.Size) &&
		x.Place == y.Place &&
		samePods(x.Pods, y.Pods)
}

// samePods tells whether two jobs are run by the same kind of runner, and their pods may go to the
// same nodes. What the pods are called does not matter to a pass.
func samePods(a, b *spec.PodSet) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Admits == b.Admits
}

func sameTRES(a, b *spec.TRES) bool {
	return a.CPU == b.CPU && a.Mem == b.Mem && a.Node == b.Node && a.Billing == b.Billing &&
		slices.Equal(a.Other, b.Other)
}

// sameRank compares what jobs say about their place in the queue.
func sameRank(query, queueAsk *spec.QueueAsk) bool {
	return query.Priority == queueAsk.Priority &&
		query.Nice == queueAsk.Nice &&
		query.SiteFactor == queueAsk.SiteFactor &&
		query.Reboot == queueAsk.Reboot
}

func sameSize(a, b *spec.Size) bool {
	return a.MinNodes == b.MinNodes &&
		a.MaxNodes == b.MaxNodes &&
		a.Tasks == b.Tasks &&
		a.TasksPerNode == b.TasksPerNode &&
		a.TasksPerSocket == b.TasksPerSocket &&
		a.TasksPerCore == b.TasksPerCore &&
		a.TasksPerGPU == b.TasksPerGPU &&
		a.CPUsPerTask == b.CPUsPerTask &&
		a.CPUsPerGPU == b.CPUsPerGPU &&
		a.MinCPUsPerNode == b.MinCPUsPerNode &&
		a.MemPerNode == b.MemPerNode &&
		a.MemPerCPU == b.MemPerCPU &&
		a.MemPerGPU == b.MemPerGPU &&
		a.AllMem == b.AllMem &&
		a.TmpDisk == b.TmpDisk &&
		a.ThreadsPerCore == b.ThreadsPerCore &&
		a.CoreSpec == b.CoreSpec &&
		a.ThreadSpec == b.ThreadSpec &&
		a.SocketsPerNode == b.SocketsPerNode &&
		a.CoresPerSocket == b.CoresPerSocket &&
		a.Overcommit == b.Overcommit &&
		a.FewestNodes == b.FewestNodes &&
		slices.Equal(a.PerNode, b.PerNode) &&
		slices.Equal(a.PerTask, b.PerTask) &&
		slices.Equal(a.PerJob, b.PerJob) &&
		slices.Equal(a.PerSocket, b.PerSocket)
}

// classHeap keeps classes with the one whose current member comes first on top.
type classHeap []*jobClass

func newClassHeap(heap classHeap) classHeap {
	for i := len(heap)/2 - 1; i >= 0; i-- {
		heap.sinkAt(i)
	}
	return heap
}

func (h classHeap) sinkAt(i int) {
	for {
		kid := 2*i + 1
		if kid >= len(h) {
			return
		}
		if kid+1 < len(h) && h[kid+1].ranksBefore(h[kid]) {
			kid++
		}
		if !h[kid].ranksBefore(h[i]) {
			return
		}
		h[i], h[kid] = h[kid], h[i]
		i = kid
	}
}

// forGaps puts the classes in the order in which they fill gaps.
func (h classHeap) forGaps(order func(*jobClass) spec.Span) {
	for _, class := range h {
		class.length = order(class)
	}
	newClassHeap(h)
}

// inOrder puts the classes back in order of priority.
func (h classHeap) inOrder() classHeap {
	for _, class := range h {
		class.length = 0
	}
	return newClassHeap(h)
}

// dropTop takes the top class out.
func (h classHeap) dropTop() classHeap {
	h[0] = h[len(h)-1]
	return h[:len(h)-1]
}
