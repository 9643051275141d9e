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
	own *pmap.Owner // who may change it in place, with what lists it has

	Submitted int64           // pending, running and completing jobs; tasks of arrays count each
	Running   int64           // jobs with an allocation and no verdict
	TRES      spec.TRES       // allocated; Node counts node shares, Nodes the distinct ones
	Nodes     pmap.Map[int32] // by NodeID: how many jobs of the subject hold the node
	Accruing  int64           // pending jobs that age
	// Due is the sum of what is allocated times when it ends at its time limit,
	// in seconds since the cluster was made; of Still, times the seconds that
	// are left: see RunSeconds.
	Due spec.TRES
	// Still is what of TRES is of jobs whose time limit stands still, because
	// they are suspended, or is over.
	Still spec.TRES
}

// RunSeconds is how much of a TRES, times seconds, the running jobs of a
// subject may still use until their time limits.
func (s *State) RunSeconds(key uint64, tres string, now spec.Instant) int64 {
	usage, ok := s.Usage.Get(key)
	if !ok {
		return 0
	}
	at := s.secondOf(now)
	sum := usage.Due.Get(tres) - (usage.TRES.Get(tres)-usage.Still.Get(tres))*at
	s.Ends.Range(func(end uint64, jobs Set) bool { // which ended since the last event
		if int64(end) >= at {
			return false
		}
		jobs.Range(func(uid uint64, _ struct{}) bool {
			var buf [24]uint64
			if job := s.Job(spec.JobUID(uid)); slices.Contains(s.usageKeys(buf[:0], job), key) {
				sum += job.Alloc.TRES.Get(tres) * (at - int64(end))
			}
			return true
		})
		return true
	})
	return max(sum, 0)
}

// secondOf is an instant in seconds since the cluster was made.
func (s *State) secondOf(at spec.Instant) int64 { return at.Sub(s.Created).Seconds() }

// unlimited is how long a job without a time limit counts as.
const unlimited = 365 * spec.Day

// limitSecond is when a running job ends at its time limit, in seconds since the
// cluster was made; of a suspended one still is true, and it is the seconds
// that are left.
func (s *State) limitSecond(job *Job) (due int64, still bool) {
	limit := job.Limit
	if limit <= 0 || limit == spec.Infinite {
		limit = unlimited
	}
	end := s.secondOf(job.Started) + limit.Seconds() + job.Paused.Seconds()
	if job.SuspendedAt != 0 {
		return max(end-s.secondOf(job.SuspendedAt), 0), true
	}
	return end, false
}

// endOf is the key in Ends of a job whose time limit runs at an instant; 0 if
// it does not.
func (s *State) endOf(job *Job, at spec.Instant) uint64 {
	if job == nil || !job.State.Active() {
		return 0
	}
	if end, still := s.limitSecond(job); !still && end > s.secondOf(at) {
		return uint64(end)
	}
	return 0
}

// updateEnds keeps Ends.
func (s *State) updateEnds(old, job *Job) {
	was, is := s.endOf(old, s.At), s.endOf(job, s.At)
	if was == is {
		return
	}
	if was != 0 {
		s.updateGroup(&s.Ends, was, job.UID, false)
	}
	if is != 0 {
		s.updateGroup(&s.Ends, is, job.UID, true)
	}
}

// runOut takes the jobs whose time limits end until an instant out of what
// running jobs may still use: they go on until they are ended, and have
// nothing left that others could have.
func (s *State) runOut(until spec.Instant) {
	var over []uint64
	s.Ends.Range(func(end uint64, _ Set) bool {
		if int64(end) > s.secondOf(until) {
			return false
		}
		over = append(over, end)
		return true
	})
	for _, end := range over {
		jobs, _ := s.Ends.Get(end)
		jobs.Range(func(uid uint64, _ struct{}) bool {
			job := s.Job(spec.JobUID(uid))
			var buf [24]uint64
			s.chargeCounters(s.usageKeys(buf[:0], job), s.loadOf(job, s.At), s.loadOf(job, until))
			return true
		})
		s.Ends.Delete(s.own, end)
	}
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
	return uint64(
		kind-1,
	)&3 | uint64(
		qos&0xfff,
	)<<2 | uint64(
		subject,
	)<<14 | uint64(
		qos>>12&0xffff,
	)<<46
}

// ParseUsageKey is the reverse of UsageKey.
func ParseUsageKey(key uint64) (kind UsageKind, qos, subject uint32) {
	return UsageKind(key&3) + 1, uint32(key>>2&0xfff | key>>46&0xffff<<12), uint32(key >> 14)
}

// UsageOf returns a counter; the zero Usage when nothing was counted yet.
func (s *State) UsageOf(kind UsageKind, qos, subject uint32) Usage {
	if usage, ok := s.Usage.Get(UsageKey(kind, qos, subject)); ok {
		return *usage
	}
	return Usage{}
}

// usageKeys appends the counters a job counts in: its QOS, the partition's
// QOS when it differs, the user and account within each, and its
// associations. A job with a verdict counts nowhere, like no job (nil).
func (s *State) usageKeys(keys []uint64, job *Job) []uint64 {
	if job == nil || job.State.Terminal() {
		return keys
	}
	account := s.Policy.AccountAssoc(job.Spec.Account)
	keys = s.qosKeys(keys, job.QOS(), job.Spec.UID, account)
	if partition := s.Parts.Find(job.Partition()); partition != nil && partition.Spec.QOS != "" &&
		partition.Spec.QOS != job.QOS() {
		keys = s.qosKeys(keys, partition.Spec.QOS, job.Spec.UID, account)
	}
	for id, depth := job.Assoc, 0; id != 0 && depth < maxChain; depth++ {
		assoc := s.Policy.Assoc(id)
		if assoc == nil {
			break
		}
		keys = append(keys, UsageKey(UsageAssoc, 0, id))
		id = assoc.Parent
	}
	return keys
}

func (s *State) qosKeys(keys []uint64, name string, user, account uint32) []uint64 {
	qos := s.Policy.FindQOS(name)
	if qos == nil {
		return keys
	}
	keys = append(keys, UsageKey(UsageQOS, qos.ID, 0), UsageKey(UsageQOSUser, qos.ID, user))
	if account != 0 {
		keys = append(keys, UsageKey(UsageQOSAccount, qos.ID, account))
	}
	return keys
}

// moveCounters moves the counters from what a job was to what it is; nil stands
// for no job. Counted are: submitted until the verdict, running and TRES
// while an attempt has no verdict.
func (s *State) moveCounters(old, now *Job) {
	if old != nil && now != nil && old.countsAs(now) {
		return
	}
	var wasBuf, isBuf [24]uint64
	was, is := s.usageKeys(wasBuf[:0], old), s.usageKeys(isBuf[:0], now)
	if slices.Equal(was, is) {
		s.chargeCounters(is, s.loadOf(old, s.At), s.loadOf(now, s.At))
		return
	}
	s.chargeCounters(was, s.loadOf(old, s.At), load{})
	s.chargeCounters(is, load{}, s.loadOf(now, s.At))
}

// load is what a job counts as.
type load struct {
	submitted, running, accruing int64
	alloc                        *spec.Allocation
	due                          int64
	still                        bool
}

func (s *State) loadOf(job *Job, at spec.Instant) load {
	var l load
	if job == nil || job.State.Terminal() {
		return l
	}
	l.submitted = job.Count()
	if job.isAging() {
		l.accruing = l.submitted
	}
	if job.State.Active() {
		l.running, l.alloc = 1, job.Alloc
		l.due, l.still = s.limitSecond(job)
		if !l.still && l.due <= s.secondOf(at) {
			l.due, l.still = 0, true
		}
	}
	return l
}

// Hold counts a waiting job in limits and licences as if one run of it had an
// allocation, or takes that away again. It is for forks on which starts are
// tried: in a state that is kept it would be counted for ever.
func (s *State) Hold(job *Job, allocation *spec.Allocation, limit spec.Span, held bool) {
	run := *job
	run.State = spec.Running
	run.Alloc = allocation
	run.Started = s.At
	run.Limit = limit
	run.Tasks = nil
	run.Paused, run.SuspendedAt = 0, 0
	is := s.loadOf(&run, s.At)
	was := load{}
	sign := int64(1)
	is.submitted = 0 // it is counted as that already
	if !held {
		is, was, sign = was, is, -1
	}
	var keys [24]uint64
	s.chargeCounters(s.usageKeys(keys[:0], &run), was, is)
	s.Licenses = addCounts(s.Licenses, allocation.Licenses, sign)
}

// chargeCounters adds to counters what a job is and takes away what it was.
func (s *State) chargeCounters(keys []uint64, was, is load) {
	if was.alloc == is.alloc && was.due == is.due && was.still == is.still {
		was.alloc, is.alloc = nil, nil
	}
	for _, k := range keys {
		usage := s.ownUsage(k)
		usage.Submitted += is.submitted - was.submitted
		usage.Running += is.running - was.running
		usage.Accruing += is.accruing - was.accruing
		s.chargeAlloc(usage, &was, -1)
		s.chargeAlloc(usage, &is, 1)
		if usage.Submitted == 0 && usage.Running == 0 && usage.TRES.IsZero() {
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
	usage := &Usage{}
	if ok {
		*usage = *old
		usage.TRES.Other = slices.Clone(usage.TRES.Other)
		usage.Due.Other = slices.Clone(usage.Due.Other)
		usage.Still.Other = slices.Clone(usage.Still.Other)
	}
	usage.own = s.own
	s.Usage.Set(s.own, key, usage)
	return usage
}

func (s *State) chargeAlloc(usage *Usage, l *load, sign int64) {
	allocation := l.alloc
	if allocation == nil {
		return
	}
	addTRES(&usage.TRES, &allocation.TRES, sign)
	if l.due != 0 {
		addTRES(&usage.Due, &allocation.TRES, sign*l.due)
	}
	if l.still {
		addTRES(&usage.Still, &allocation.TRES, sign)
	}
	for i := range allocation.Nodes {
		id := uint64(allocation.Nodes[i].ID)
		n, _ := usage.Nodes.Get(id)
		n += int32(sign)
		if n == 0 {
			usage.Nodes.Delete(s.own, id)
		} else {
			usage.Nodes.Set(s.own, id, n)
		}
	}
}

// addTRES adds n times a vector in place.
func addTRES(to, tres *spec.TRES, n int64) {
	to.CPU += n * tres.CPU
	to.Mem += n * tres.Mem
	to.Node += n * tres.Node
	to.Billing += n * tres.Billing
	to.Energy += n * tres.Energy
	i := 0
	for _, count := range tres.Other {
		for i < len(to.Other) && to.Other[i].Name < count.Name {
			i++
		}
		if i == len(to.Other) || to.Other[i].Name != count.Name {
			to.Other = slices.Insert(to.Other, i, spec.TRESCount{Name: count.Name})
		}
		to.Other[i].N += n * count.N
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
	s.Jobs.Range(func(_ uint64, job *Job) bool {
		s.moveCounters(nil, job)
		return true
	})
}

// countsAs tells whether the counters are the same for both.
func (j *Job) countsAs(other *Job) bool {
	sameRequest := j.Spec == other.Spec && j.Assoc == other.Assoc && j.Limit == other.Limit
	sameRun := j.State == other.State && j.Alloc == other.Alloc && j.isAging() == other.isAging()
	return sameRequest && sameRun && j.Count() == other.Count()
}
