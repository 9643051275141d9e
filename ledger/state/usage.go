package state

import (
	"slices"

	"github.com/musterhpc/muster/ledger/state/pmap"
	"github.com/musterhpc/muster/spec"
)

// pmapJobs maps a small integer (an array task) to a job.
type pmapJobs = pmap.Map[spec.JobUID]

// Usage is what the live jobs of one subject hold now, for limits. Those of a
// frozen state never change; those of the writer's own state may change with
// the next event.
type Usage struct {
	own *pmap.Owner // who may change it in place, with TRES.Other

	Submitted int64           // pending, running and completing jobs; tasks of arrays count each
	Running   int64           // jobs with an allocation and no verdict
	TRES      spec.TRES       // allocated; Node counts node shares, Nodes the distinct ones
	Nodes     pmap.Map[int32] // by NodeID: how many jobs of the subject hold the node
	Accruing  int64           // pending jobs that age
	// Due is the sum of what is allocated times when it ends at its time limit,
	// in seconds since the cluster was made: see RunSeconds.
	Due spec.TRES
}

// RunSeconds is how much of a TRES, times seconds, the running jobs of a
// subject may still use until their time limits.
func (s *State) RunSeconds(u *Usage, tres string, now spec.Instant) int64 {
	return max(u.Due.Get(tres)-u.TRES.Get(tres)*now.Sub(s.Created).Seconds(), 0)
}

// unlimited is how long a job without a time limit counts as.
const unlimited = 365 * spec.Day

// due is when a job ends at its time limit, in seconds since the cluster was
// made.
func (s *State) due(j *Job) int64 {
	limit := j.Limit
	if limit <= 0 || limit == spec.Infinite {
		limit = unlimited
	}
	return j.Started.Sub(s.Created).Seconds() + limit.Seconds()
}

// UsageKind says whose usage a counter is.
type UsageKind uint64

// The subjects of limits.
const (
	UsageQOS        UsageKind = iota + 1 // everyone in a QOS
	UsageQOSUser                         // one user in a QOS
	UsageQOSAccount                      // one account in a QOS, by the id of its own association
	UsageAssoc                           // an association with everything below it
)

// UsageKey makes the key of a counter: QOS id (0 for UsageAssoc) and user id
// or association id (0 for UsageQOS). Small ids give small keys, so that the
// map of counters stays shallow.
func UsageKey(kind UsageKind, qos, subject uint32) uint64 {
	return uint64(kind-1)&3 | uint64(qos&0xfff)<<2 | uint64(subject)<<14 | uint64(qos>>12&0xffff)<<46
}

// ParseUsageKey is the reverse of UsageKey.
func ParseUsageKey(key uint64) (kind UsageKind, qos, subject uint32) {
	return UsageKind(key&3) + 1, uint32(key>>2&0xfff | key>>46&0xffff<<12), uint32(key >> 14)
}

// UsageOf returns a counter; the zero Usage when nothing was counted yet.
func (s *State) UsageOf(kind UsageKind, qos, subject uint32) Usage {
	if u, ok := s.Usage.Get(UsageKey(kind, qos, subject)); ok {
		return *u
	}
	return Usage{}
}

// usageKeys appends the counters a job counts in: its QOS, the partition's
// QOS when it differs, the user and account within each, and its
// associations. A job with a verdict counts nowhere, like no job (nil).
func (s *State) usageKeys(keys []uint64, j *Job) []uint64 {
	if j == nil || j.State.Terminal() {
		return keys
	}
	account := s.Policy.AccountAssoc(j.Spec.Account)
	keys = s.qosKeys(keys, j.Spec.QOS, j.Spec.UID, account)
	if p := s.Parts.Find(j.Partition()); p != nil && p.Spec.QOS != "" && p.Spec.QOS != j.Spec.QOS {
		keys = s.qosKeys(keys, p.Spec.QOS, j.Spec.UID, account)
	}
	for id, depth := j.Assoc, 0; id != 0 && depth < maxChain; depth++ {
		a := s.Policy.Assoc(id)
		if a == nil {
			break
		}
		keys = append(keys, UsageKey(UsageAssoc, 0, id))
		id = a.Parent
	}
	return keys
}

func (s *State) qosKeys(keys []uint64, name string, user, account uint32) []uint64 {
	q := s.Policy.FindQOS(name)
	if q == nil {
		return keys
	}
	keys = append(keys, UsageKey(UsageQOS, q.ID, 0), UsageKey(UsageQOSUser, q.ID, user))
	if account != 0 {
		keys = append(keys, UsageKey(UsageQOSAccount, q.ID, account))
	}
	return keys
}

// recount moves the counters from what a job was to what it is; nil stands
// for no job. Counted are: submitted until the verdict, running and TRES
// while an attempt has no verdict.
func (s *State) recount(old, now *Job) {
	if old != nil && now != nil && old.Count() == now.Count() && old.State == now.State &&
		old.Alloc == now.Alloc && old.Spec == now.Spec && old.Assoc == now.Assoc && old.Limit == now.Limit && old.aging() == now.aging() {
		return
	}
	var wasBuf, isBuf [24]uint64
	was, is := s.usageKeys(wasBuf[:0], old), s.usageKeys(isBuf[:0], now)
	if slices.Equal(was, is) {
		s.charge(is, old, now)
		return
	}
	s.charge(was, old, nil)
	s.charge(is, nil, now)
}

// load is what a job counts as.
type load struct {
	submitted, running, accruing int64
	alloc                        *spec.Allocation
	due                          int64
}

func (s *State) loadOf(j *Job) load {
	var l load
	if j == nil || j.State.Terminal() {
		return l
	}
	l.submitted = j.Count()
	if j.aging() {
		l.accruing = l.submitted
	}
	if j.State.Active() {
		l.running, l.alloc, l.due = 1, j.Alloc, s.due(j)
	}
	return l
}

// charge adds to counters what now counts and takes away what old counted.
func (s *State) charge(keys []uint64, old, now *Job) {
	was, is := s.loadOf(old), s.loadOf(now)
	if was.alloc == is.alloc && was.due == is.due {
		was.alloc, is.alloc = nil, nil
	}
	for _, k := range keys {
		u := s.ownUsage(k)
		u.Submitted += is.submitted - was.submitted
		u.Running += is.running - was.running
		u.Accruing += is.accruing - was.accruing
		s.chargeAlloc(u, was.alloc, -1, was.due)
		s.chargeAlloc(u, is.alloc, 1, is.due)
		if u.Submitted == 0 && u.Running == 0 && u.TRES.IsZero() {
			s.Usage.Delete(s.own, k)
		}
	}
}

// ownUsage returns a counter that may be changed in place.
func (s *State) ownUsage(key uint64) *Usage {
	old, ok := s.Usage.Get(key)
	if ok && old.own == s.own {
		return old
	}
	u := &Usage{}
	if ok {
		*u = *old
		u.TRES.Other, u.Due.Other = slices.Clone(u.TRES.Other), slices.Clone(u.Due.Other)
	}
	u.own = s.own
	s.Usage.Set(s.own, key, u)
	return u
}

func (s *State) chargeAlloc(u *Usage, a *spec.Allocation, sign, due int64) {
	if a == nil {
		return
	}
	addTRES(&u.TRES, &a.TRES, sign)
	addTRES(&u.Due, &a.TRES, sign*due)
	for i := range a.Nodes {
		id := uint64(a.Nodes[i].ID)
		n, _ := u.Nodes.Get(id)
		if n += int32(sign); n == 0 {
			u.Nodes.Delete(s.own, id)
		} else {
			u.Nodes.Set(s.own, id, n)
		}
	}
}

// addTRES adds n times a vector in place.
func addTRES(to, t *spec.TRES, n int64) {
	to.CPU += n * t.CPU
	to.Mem += n * t.Mem
	to.Node += n * t.Node
	to.Billing += n * t.Billing
	to.Energy += n * t.Energy
	i := 0
	for _, c := range t.Other {
		for i < len(to.Other) && to.Other[i].Name < c.Name {
			i++
		}
		if i == len(to.Other) || to.Other[i].Name != c.Name {
			to.Other = slices.Insert(to.Other, i, spec.TRESCount{Name: c.Name})
		}
		to.Other[i].N += n * c.N
		if to.Other[i].N == 0 {
			to.Other = slices.Delete(to.Other, i, i+1)
		}
	}
	if len(to.Other) == 0 {
		to.Other = nil
	}
}

// recountAll rebuilds every counter: needed only when a change of policy
// moves jobs between subjects.
func (s *State) recountAll() {
	s.Usage = pmap.Map[*Usage]{}
	s.Jobs.Range(func(_ uint64, j *Job) bool {
		s.recount(nil, j)
		return true
	})
}
