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
		old.Alloc == now.Alloc && old.Spec == now.Spec && old.Assoc == now.Assoc {
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

// charge adds to counters what now counts and takes away what old counted.
func (s *State) charge(keys []uint64, old, now *Job) {
	var submitted, running int64
	var less, more *spec.Allocation
	if old != nil && !old.State.Terminal() {
		submitted -= old.Count()
		if old.State.Active() {
			running, less = running-1, old.Alloc
		}
	}
	if now != nil && !now.State.Terminal() {
		submitted += now.Count()
		if now.State.Active() {
			running, more = running+1, now.Alloc
		}
	}
	if less == more {
		less, more = nil, nil
	}
	for _, k := range keys {
		u := s.ownUsage(k)
		u.Submitted += submitted
		u.Running += running
		s.chargeAlloc(u, less, -1)
		s.chargeAlloc(u, more, 1)
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
		u.TRES.Other = slices.Clone(u.TRES.Other)
	}
	u.own = s.own
	s.Usage.Set(s.own, key, u)
	return u
}

func (s *State) chargeAlloc(u *Usage, a *spec.Allocation, sign int64) {
	if a == nil {
		return
	}
	u.addTRES(&a.TRES, sign)
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

// addTRES adds sign times a vector in place.
func (u *Usage) addTRES(t *spec.TRES, sign int64) {
	u.TRES.CPU += sign * t.CPU
	u.TRES.Mem += sign * t.Mem
	u.TRES.Node += sign * t.Node
	u.TRES.Billing += sign * t.Billing
	u.TRES.Energy += sign * t.Energy
	i := 0
	for _, c := range t.Other {
		for i < len(u.TRES.Other) && u.TRES.Other[i].Name < c.Name {
			i++
		}
		if i == len(u.TRES.Other) || u.TRES.Other[i].Name != c.Name {
			u.TRES.Other = slices.Insert(u.TRES.Other, i, spec.TRESCount{Name: c.Name})
		}
		u.TRES.Other[i].N += sign * c.N
		if u.TRES.Other[i].N == 0 {
			u.TRES.Other = slices.Delete(u.TRES.Other, i, i+1)
		}
	}
	if len(u.TRES.Other) == 0 {
		u.TRES.Other = nil
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
