package scheduler

import (
	"slices"
	"sort"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/fair"
	"github.com/musterhpc/muster/scheduler/limits"
	"github.com/musterhpc/muster/scheduler/order"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/scheduler/reserve"
	"github.com/musterhpc/muster/scheduler/resv"
	"github.com/musterhpc/muster/spec"
)

// A deep queue is mostly many jobs that ask for the same. The pass works on
// lots: the jobs of one user, account and QOS that ask for the same in one
// partition. What bars one of them bars all, and what does not fit for one
// does not fit for the next, so that a pass costs something for each lot and
// for each job that it starts or plans, but nothing for the rest.

// lot is a set of such jobs, in the order in which they come.
type lot struct {
	part *state.Partition
	pi   int    // of the partition
	nth  int    // which of the job's partitions it is, and of its QOS in each
	qos  string // that its jobs would start in, of several; else empty
	// The least that a request needs, where it is the same in each of its
	// partitions: it has one; else 0.
	cpus, gpus, size int64
	kin              *kin

	members []member // in order; those that have gone stay, marked, for a while
	gone    int
	picky   bool // its jobs mind who is on the nodes beside them
	// settled is the reason that all members have in the ledger but the odd
	// ones. While it is nil nothing is known about them.
	settled *spec.Reason
	odd     map[spec.JobUID]*state.Job

	// What is asked for, once a pass has worked it out.
	sized  bool      // the next one need not: it does not depend on the nodes there are
	wall   spec.Span // the limit it was worked out under
	demand place.Demand
	least  spec.TRES

	// Of one pass.
	pos       int // the member that is looked at
	rank      uint64
	share     uint64    // of what goes beyond floors: the less its account holds, the earlier
	length    spec.Span // time limit, where the shortest comes first; else 0
	fixed     order.Factors
	ready     bool
	bound     limits.Bound
	nodes     nodeSet
	ask       *reserve.Ask // made when it is needed
	noReserve bool
	patient   bool       // the ask insists on --switches
	stuck     bool       // no victims are enough
	view      *resv.View // nil: no reservation concerns it
}

// member is one job of a lot, or the record of an array. Jobs of a lot differ
// in priority only by age, so that the order of members never changes.
type member struct {
	eligible  spec.Instant // FarFuture: since now
	submitted spec.Instant
	uid       spec.JobUID
	job       *state.Job // nil: gone
}

// before is the order among jobs of equal priority: by age, submission,
// number.
func (a *member) before(b *member) bool {
	switch {
	case a.eligible != b.eligible:
		return a.eligible < b.eligible
	case a.submitted != b.submitted:
		return a.submitted < b.submitted
	}
	return a.uid < b.uid
}

// rule is what the order within a lot depends on.
type rule uint8

const (
	byNumber     rule = iota // first come, first served
	bySubmission             // age does not count
	byAge
)

func ruleOf(p *spec.PriorityConfig) rule {
	switch {
	case p.Basic:
		return byNumber
	case p.Age == 0, fair.Has(p, "ACCRUE_ALWAYS"):
		return bySubmission
	}
	return byAge
}

// memberOf makes the member of a job.
func memberOf(j *state.Job, by rule) member {
	m := member{uid: j.UID, job: j}
	if by != byNumber {
		m.submitted = j.Submitted
	}
	if by == byAge && j.Spec.Queue.Priority == 0 {
		if m.eligible = j.AgesSince(); m.eligible == 0 {
			m.eligible = spec.FarFuture
		}
	}
	return m
}

// find is where a member is, or would be.
func (l *lot) find(m *member) int {
	if n := len(l.members); n == 0 || l.members[n-1].before(m) {
		return n
	}
	return sort.Search(len(l.members), func(i int) bool { return !l.members[i].before(m) })
}

func (l *lot) add(m member) {
	m.job = l.as(m.job)
	i := l.find(&m)
	if i < len(l.members) && l.members[i].uid == m.uid {
		l.members[i] = m // it was here before
		l.gone--
	} else {
		l.members = slices.Insert(l.members, i, m)
	}
	if l.settled != nil && !m.job.Reason.Same(*l.settled) {
		l.odd[m.uid] = m.job
	}
}

func (l *lot) remove(m *member) {
	if i := l.find(m); i < len(l.members) && l.members[i].uid == m.uid && l.members[i].job != nil {
		l.members[i].job = nil
		l.gone++
	}
	delete(l.odd, m.uid)
	if l.gone > 64 && l.gone > len(l.members)/2 {
		l.members = slices.DeleteFunc(l.members, func(m member) bool { return m.job == nil })
		l.gone = 0
	}
}

// as is a job as it is in this lot: one that may start in several QOS is in a
// lot for each.
func (l *lot) as(j *state.Job) *state.Job { return inQOS(j, l.qos) }

// inQOS is a waiting job as it is in one of its QOS.
func inQOS(j *state.Job, name string) *state.Job {
	if name == "" || j.Spec.QOS == name {
		return j
	}
	out := *j
	out.Spec = j.Spec.InQOS(name)
	return &out
}

func (l *lot) empty() bool { return l.gone == len(l.members) }

// begin prepares a lot for a pass.
func (l *lot) begin(ctx *order.Context) {
	l.pos, l.ready, l.ask, l.noReserve, l.length, l.share = -1, false, nil, false, 0, 0
	l.patient, l.stuck, l.view = false, false, nil
	l.fixed = ctx.Fixed(l.as(l.kin.like), l.part.Spec)
	l.next(ctx)
}

// measure works out what the jobs of a lot ask for.
func (l *lot) measure(st *state.State, j *state.Job) {
	if wall := l.bound.Wall(); !l.sized || l.wall != wall {
		l.demand, l.wall = resolved(st, l.part, j.Spec, wall), wall
		if l.sized = !elastic(&l.demand); !l.sized {
			fewestNodes(st, l.part, &l.demand)
		}
		l.least = leastOf(&l.demand, l.part.Spec, j.Spec)
	}
	l.demand.Inside = "" // until a reservation says otherwise
}

// next goes to the next member; false if there is none.
func (l *lot) next(ctx *order.Context) bool {
	for l.pos++; l.pos < len(l.members); l.pos++ {
		if j := l.members[l.pos].job; j != nil {
			f := l.fixed
			ctx.Complete(&f, j)
			l.rank = rankOf(ctx.Standing(j, l.part.Spec), f.Total)
			if ctx.Share != nil {
				l.share = ctx.Share(j)
			}
			return true
		}
	}
	return false
}

func (l *lot) current() *member { return &l.members[l.pos] }

// before is the order in which a pass looks at lots: tier of their current
// members, what their accounts hold beyond their floors, and priority, then those
// members' own order. Of one job the partition that it named first comes first,
// and in it the best QOS.
func (l *lot) before(o *lot) bool {
	a, b := l.current(), o.current()
	switch {
	case l.length != o.length && l.rank>>32 == o.rank>>32: // of one tier
		return l.length < o.length
	case l.share != o.share && l.rank>>32 == o.rank>>32:
		return l.share < o.share
	case l.rank != o.rank:
		return l.rank < o.rank
	case a.uid == b.uid:
		return l.nth < o.nth
	}
	return a.before(b)
}

// moves works out anew where a lot stands, where that changes within a pass: with
// what its account holds. It tells whether it did.
func (p *pass) moves(l *lot) bool {
	if p.floors == nil {
		return false
	}
	j := l.current().job
	rank, share := p.rank(l, j), p.floors.Share(j)
	if rank == l.rank && share == l.share {
		return false
	}
	l.rank, l.share = rank, share
	return true
}

// rankOf makes one number of standing and priority; the lower, the earlier.
func rankOf(standing, priority uint32) uint64 { return ^(uint64(standing)<<32 | uint64(priority)) }

// kin are the lots of one request, one for each of its partitions and QOS.
type kin struct {
	like *state.Job
	hash uint64
	next *kin // of the same hash
	lots []*lot
	gone int // partitions that do not exist
}

// askHash is a hash over the numbers of a request; equal requests have equal
// hashes.
func askHash(j *state.Job) uint64 {
	js, h := j.Spec, uint64(14695981039346656037)
	sz := &js.Size
	for _, v := range [...]uint64{uint64(js.UID), uint64(j.Assoc), uint64(js.Time.Limit), uint64(sz.MinNodes)<<32 | uint64(sz.MaxNodes),
		uint64(sz.Tasks)<<32 | uint64(sz.TasksPerNode), uint64(sz.CPUsPerTask)<<32 | uint64(sz.CPUsPerGPU), uint64(sz.MinCPUsPerNode),
		uint64(sz.MemPerNode), uint64(sz.MemPerCPU)<<20 ^ uint64(sz.MemPerGPU), uint64(len(js.QOS))<<8 | uint64(len(js.Partitions)),
		countsHash(sz.PerNode), countsHash(sz.PerTask), countsHash(sz.PerJob), countsHash(js.Licenses),
		uint64(len(js.Place.Nodes))<<16 | uint64(len(js.Place.Constraint)), uint64(js.Queue.Priority)<<32 | uint64(uint32(js.Queue.Nice))} {
		h = (h ^ v) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return h
}

func countsHash(list []spec.Count) uint64 {
	h := uint64(len(list))
	for i := range list {
		h = h*1099511628211 ^ uint64(list[i].N)<<16 ^ uint64(len(list[i].Type))
	}
	return h
}

// sameAsk tells whether two jobs belong into the same lots. A job of the same
// array shares the spec itself.
func sameAsk(a, b *state.Job) bool {
	x, y := a.Spec, b.Spec
	if a.Het != nil || b.Het != nil {
		return a.UID == b.UID && x == y // or it was updated
	}
	if a.Assoc != b.Assoc || !sameReq(&a.Req, &b.Req) {
		return false
	}
	if x == y {
		return true
	}
	return x.Queue.Priority == y.Queue.Priority && x.Queue.Nice == y.Queue.Nice && x.Queue.SiteFactor == y.Queue.SiteFactor && x.Queue.Reboot == y.Queue.Reboot && x.UID == y.UID && x.Time.Limit == y.Time.Limit && x.Time.Min == y.Time.Min && sameSize(&x.Size, &y.Size) && x.Place == y.Place && x.QOS == y.QOS && slices.Equal(x.QOSes, y.QOSes) && x.Group == y.Group &&
		x.Account == y.Account && x.MCSLabel == y.MCSLabel && slices.Equal(x.Partitions, y.Partitions) && x.AnyLicense == y.AnyLicense && slices.Equal(x.Licenses, y.Licenses)
}

func sameReq(a, b *spec.TRES) bool {
	return a.CPU == b.CPU && a.Mem == b.Mem && a.Node == b.Node && a.Billing == b.Billing && slices.Equal(a.Other, b.Other)
}

func sameSize(a, b *spec.Size) bool {
	return a.MinNodes == b.MinNodes && a.MaxNodes == b.MaxNodes && a.Tasks == b.Tasks && a.TasksPerNode == b.TasksPerNode &&
		a.CPUsPerTask == b.CPUsPerTask && a.CPUsPerGPU == b.CPUsPerGPU && a.TasksPerGPU == b.TasksPerGPU && a.MinCPUsPerNode == b.MinCPUsPerNode &&
		a.MemPerNode == b.MemPerNode && a.MemPerCPU == b.MemPerCPU && a.MemPerGPU == b.MemPerGPU && a.AllMem == b.AllMem && a.TmpDisk == b.TmpDisk &&
		a.TasksPerSocket == b.TasksPerSocket && a.TasksPerCore == b.TasksPerCore && a.ThreadsPerCore == b.ThreadsPerCore && a.CoreSpec == b.CoreSpec &&
		a.ThreadSpec == b.ThreadSpec && a.Overcommit == b.Overcommit && a.FewestNodes == b.FewestNodes &&
		slices.Equal(a.PerNode, b.PerNode) && slices.Equal(a.PerTask, b.PerTask) && slices.Equal(a.PerJob, b.PerJob) && slices.Equal(a.PerSocket, b.PerSocket) && a.SocketsPerNode == b.SocketsPerNode && a.CoresPerSocket == b.CoresPerSocket
}

// lotHeap keeps lots with the one whose current member comes first on top.
type lotHeap []*lot

func newLotHeap(h lotHeap) lotHeap {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.sink(i)
	}
	return h
}

func (h lotHeap) sink(i int) {
	for {
		kid := 2*i + 1
		if kid >= len(h) {
			return
		}
		if kid+1 < len(h) && h[kid+1].before(h[kid]) {
			kid++
		}
		if !h[kid].before(h[i]) {
			return
		}
		h[i], h[kid] = h[kid], h[i]
		i = kid
	}
}

// shortestFirst puts the lots in order of their time limits.
func (h lotHeap) shortestFirst() {
	for _, l := range h {
		l.length = l.kin.like.Spec.Time.Limit
	}
	newLotHeap(h)
}

// inOrder puts the lots back in order of priority.
func (h lotHeap) inOrder() lotHeap {
	for _, l := range h {
		l.length = 0
	}
	return newLotHeap(h)
}

// drop takes the top lot out.
func (h lotHeap) drop() lotHeap {
	h[0] = h[len(h)-1]
	return h[:len(h)-1]
}
