package state

import (
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state/pmap"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/fixed"
)

// Spent is what the jobs of an association (with everything below it) or of a
// QOS have used, fading with time, in seconds. A *Spent that a frozen state
// holds never changes.
type Spent struct {
	own  *pmap.Owner
	Raw  fixed.U128   `cbor:"1,keyasint"` // billing units times seconds, weighted with UsageFactor
	Wall fixed.U128   `cbor:"2,keyasint"` // seconds that jobs ran
	TRES []SpentCount `cbor:"3,keyasint,omitempty"`
}

// SpentCount is how much of one TRES, times seconds; sorted by name.
type SpentCount struct {
	Name string     `cbor:"1,keyasint"`
	N    fixed.U128 `cbor:"2,keyasint"`
}

// Of is how much of a TRES was used, times seconds.
func (u *Spent) Of(name string) fixed.U128 {
	if u == nil {
		return fixed.U128{}
	}
	if i, ok := searchSorted(u.TRES, name, spentKey); ok {
		return u.TRES[i].N
	}
	return fixed.U128{}
}

func spentKey(count *SpentCount) string { return count.Name }

// Aging is how use fades.
type Aging struct {
	At        spec.Instant `cbor:"1,keyasint,omitempty"` // of the last UsageAged; 0 = none yet
	PerSecond uint64       `cbor:"2,keyasint,omitempty"` // what a second leaves, in 2^-63
	Reset     spec.Instant `cbor:"3,keyasint,omitempty"` // the last one that left nothing
}

// SpentOf is what an association or QOS has used; nil if nothing.
func (s *State) SpentOf(kind UsageKind, qos, subject uint32) *Spent {
	usage, _ := s.Spent.Get(UsageKey(kind, qos, subject))
	return usage
}

// spentKeys appends what a job's use is charged to: its QOS, that of its
// partition where it is another, and its associations up to the root.
func (s *State) spentKeys(keys []uint64, job *Job) []uint64 {
	own := s.Policy.FindQOS(job.QOS())
	if own != nil {
		keys = append(keys, UsageKey(UsageQOS, own.ID, 0))
	}
	if partition := s.Parts.Find(job.Partition()); partition != nil &&
		partition.Spec.QOS != job.QOS() {
		if qos := s.Policy.FindQOS(partition.Spec.QOS); qos != nil {
			keys = append(keys, UsageKey(UsageQOS, qos.ID, 0))
		}
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

// chargeUse charges what an active job has used until an instant since it was
// last charged. What was used earlier in that time has faded by its end.
func (s *State) chargeUse(job *Job, until spec.Instant) {
	from := max(job.Started, s.Aging.At, job.Charged)
	if job.Alloc == nil || until <= from {
		return
	}
	ran := until.Sub(from)
	secs := fixed.Seconds(int64(ran))
	faded := secs
	if s.Aging.PerSecond != 0 {
		faded = secs.Scale(fixed.Pow(s.Aging.PerSecond, ran.Seconds()))
	}
	factor := s.Policy.FindQOS(job.QOS()).Factor()
	var buf [24]uint64
	for _, key := range s.spentKeys(buf[:0], job) {
		wall := faded
		if s.isLasting(key) {
			wall = secs
		}
		usage := s.ownSpent(key)
		usage.Wall = usage.Wall.Add(wall)
		weighted := wall.Times(factor).Over(1_000_000)
		usage.Raw = usage.Raw.Add(weighted.Times(job.Alloc.TRES.Billing))
		for _, count := range job.Alloc.TRES.All() {
			usage.add(count.Name, weighted.Times(count.N))
		}
	}
}

// isLasting tells whether what is charged to a key does not fade: a QOS with
// NoDecay.
func (s *State) isLasting(key uint64) bool {
	kind, id, _ := ParseUsageKey(key)
	if kind != UsageQOS {
		return false
	}
	i := slices.IndexFunc(s.Policy.QOS, func(q spec.QOS) bool { return q.ID == id })
	return i >= 0 && s.Policy.QOS[i].HasFlag("NoDecay")
}

func (u *Spent) add(name string, n fixed.U128) {
	if n.IsZero() {
		return
	}
	i, ok := searchSorted(u.TRES, name, spentKey)
	if !ok {
		u.TRES = slices.Insert(u.TRES, i, SpentCount{Name: name})
	}
	u.TRES[i].N = u.TRES[i].N.Add(n)
}

// ownSpent returns a record of use that may be changed in place.
func (s *State) ownSpent(key uint64) *Spent {
	old, ok := s.Spent.Get(key)
	if ok && old.own == s.own {
		return old
	}
	usage := &Spent{}
	if ok {
		*usage = *old
		usage.TRES = slices.Clone(usage.TRES)
	}
	usage.own = s.own
	s.Spent.Set(s.own, key, usage)
	return usage
}

// settleUse forgets a record of use in which nothing is left.
func (s *State) settleUse(key uint64, usage *Spent) {
	usage.TRES = slices.DeleteFunc(usage.TRES, func(c SpentCount) bool { return c.N.IsZero() })
	if len(usage.TRES) == 0 {
		usage.TRES = nil
		if usage.Raw.IsZero() && usage.Wall.IsZero() {
			s.Spent.Delete(s.own, key)
		}
	}
}

// spentSubjects lists the keys of all records of use.
func (s *State) spentSubjects() []uint64 {
	keys := make([]uint64, 0, s.Spent.Len())
	s.Spent.Range(func(key uint64, _ *Spent) bool {
		keys = append(keys, key)
		return true
	})
	return keys
}

func (s *State) applyUsageAged(envelope *event.Envelope, e *event.UsageAged) error {
	isShare := e.PerSecond > 0 && e.PerSecond <= event.One && e.Keep <= event.One
	if !isShare || (e.Reset && e.Keep != 0) {
		return contradictionError("use cannot fade by %d a second to %d", e.PerSecond, e.Keep)
	}
	for _, key := range s.spentSubjects() {
		if e.Keep == event.One || (!e.Reset && s.isLasting(key)) {
			continue
		}
		usage := s.ownSpent(key)
		usage.Raw, usage.Wall = usage.Raw.Scale(e.Keep), usage.Wall.Scale(e.Keep)
		for i := range usage.TRES {
			usage.TRES[i].N = usage.TRES[i].N.Scale(e.Keep)
		}
		s.settleUse(key, usage)
	}
	if !e.Reset {
		s.Active.Range(func(uid uint64, _ struct{}) bool {
			if job := s.Job(spec.JobUID(uid)); job.State.Active() {
				s.chargeUse(job, envelope.At)
			}
			return true
		})
	} else {
		s.Aging.Reset = envelope.At
	}
	s.Aging.At, s.Aging.PerSecond = envelope.At, e.PerSecond
	return nil
}

func (s *State) applyUsageCleared(e *event.UsageCleared) error {
	if e.QOS != 0 {
		s.Spent.Delete(s.own, UsageKey(UsageQOS, e.QOS, 0))
	}
	if e.Assoc == 0 {
		return nil
	}
	gone, ok := s.Spent.Get(UsageKey(UsageAssoc, 0, e.Assoc))
	if !ok {
		return nil
	}
	if chain := s.Policy.Chain(e.Assoc); len(chain) > 0 {
		for _, association := range chain[1:] {
			s.shiftSpent(association.ID, gone, false)
		}
	}
	for i := range s.Policy.Assocs {
		id := s.Policy.Assocs[i].ID
		if slices.ContainsFunc(
			s.Policy.Chain(id),
			func(a *spec.Association) bool { return a.ID == e.Assoc },
		) {
			s.Spent.Delete(s.own, UsageKey(UsageAssoc, 0, id))
		}
	}
	return nil
}

// shiftSpent adds use to that of an association, or takes it away.
func (s *State) shiftSpent(assoc uint32, by *Spent, add bool) {
	key := UsageKey(UsageAssoc, 0, assoc)
	usage := s.ownSpent(key)
	if add {
		usage.Raw, usage.Wall = usage.Raw.Add(by.Raw), usage.Wall.Add(by.Wall)
		for _, count := range by.TRES {
			usage.add(count.Name, count.N)
		}
	} else {
		usage.Raw, usage.Wall = usage.Raw.Sub(by.Raw), usage.Wall.Sub(by.Wall)
		for i := range usage.TRES {
			usage.TRES[i].N = usage.TRES[i].N.Sub(by.Of(usage.TRES[i].Name))
		}
	}
	s.settleUse(key, usage)
}

// CheckSpent checks what was used: nothing is charged to nobody, and records
// are as their readers expect them.
func CheckSpent(state *State) error {
	var err error
	state.Spent.Range(func(key uint64, usage *Spent) bool {
		kind, _, _ := ParseUsageKey(key)
		switch {
		case kind != UsageQOS && kind != UsageAssoc:
			err = brokenInvariant(
				"use is charged to %d, which is neither a QOS nor an association",
				key,
			)
		case usage.Raw.IsZero() && usage.Wall.IsZero() && len(usage.TRES) == 0:
			err = brokenInvariant("a record of no use is kept for %d", key)
		case !slices.IsSortedFunc(usage.TRES, func(a, b SpentCount) int {
			return compareNames(a.Name, b.Name)
		}):
			err = brokenInvariant("the use of %d is not sorted by name", key)
		}
		return err == nil
	})
	if err == nil && state.Aging.At > state.At {
		err = brokenInvariant("use faded last at %d, after the last event", state.Aging.At)
	}
	return err
}

func compareNames(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// SetSpent sets what an association has used, for tests and what-ifs: the
// ledger says it with UsageAged and the ends of jobs.
func (s *State) SetSpent(assoc uint32, raw fixed.U128) {
	s.ownSpent(UsageKey(UsageAssoc, 0, assoc)).Raw = raw
}
