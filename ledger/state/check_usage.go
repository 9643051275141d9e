package state

import (
	"fmt"

	"github.com/musterhpc/muster/spec"
)

// subject is whom a counter of usage is about.
type subject struct {
	kind    UsageKind
	qos, id uint32
}

// String names the subject for a message.
func (s subject) String() string {
	switch s.kind {
	case UsageQOS:
		return fmt.Sprintf("QOS id %d", s.qos)
	case UsageQOSUser:
		return fmt.Sprintf("user id %d in QOS id %d", s.id, s.qos)
	case UsageQOSAccount:
		return fmt.Sprintf("the account of association %d in QOS id %d", s.id, s.qos)
	case UsageAssoc:
		return fmt.Sprintf("association %d", s.id)
	}
	return "nobody"
}

// sum is a counter, counted from scratch.
type sum struct {
	submitted, running int64
	accruing           int64
	tres, due, still   map[string]int64
	nodes              map[spec.NodeID]int32
}

// recounter counts usage from the policy's lists and the jobs alone.
type recounter struct {
	s        *State
	qos      map[string]*spec.QOS
	assocs   map[uint32]*spec.Association
	accounts map[string]uint32 // own association
	parts    map[string]*spec.PartitionSpec
	sums     map[subject]*sum
	order    []subject
}

func newRecounter(s *State) *recounter {
	r := &recounter{s: s, qos: make(map[string]*spec.QOS), assocs: make(map[uint32]*spec.Association),
		accounts: make(map[string]uint32), parts: make(map[string]*spec.PartitionSpec), sums: make(map[subject]*sum)}
	for i := range s.Policy.QOS {
		r.qos[s.Policy.QOS[i].Name] = &s.Policy.QOS[i]
	}
	for i := range s.Policy.Assocs {
		a := &s.Policy.Assocs[i]
		r.assocs[a.ID] = a
		if a.User == "" && a.Partition == "" {
			r.accounts[a.Account] = a.ID
		}
	}
	for i := len(s.Config.Partitions) - 1; i >= 0; i-- {
		r.parts[s.Config.Partitions[i].Name] = &s.Config.Partitions[i]
	}
	return r
}

// listSubjects lists whom a job is counted for.
func (r *recounter) listSubjects(j *Job) []subject {
	var out []subject
	own, part := j.Spec.QOS, ""
	if j.Alloc != nil {
		part = j.Alloc.Partition
		if j.Alloc.QOS != "" {
			own = j.Alloc.QOS
		}
	} else if len(j.Spec.Partitions) > 0 {
		part = j.Spec.Partitions[0]
	}
	names := []string{own}
	if p := r.parts[part]; p != nil && p.QOS != "" && p.QOS != own {
		names = append(names, p.QOS)
	}
	for _, name := range names {
		q := r.qos[name]
		if q == nil {
			continue
		}
		out = append(out, subject{UsageQOS, q.ID, 0}, subject{UsageQOSUser, q.ID, j.Spec.UID})
		if id := r.accounts[j.Spec.Account]; id != 0 {
			out = append(out, subject{UsageQOSAccount, q.ID, id})
		}
	}
	for a := r.assocs[j.Assoc]; a != nil && len(out) < 2*maxChain; a = r.assocs[a.Parent] {
		out = append(out, subject{UsageAssoc, 0, a.ID})
	}
	return out
}

func (r *recounter) countJob(j *Job) {
	if j.State >= spec.Completed {
		return
	}
	for _, sub := range r.listSubjects(j) {
		c := r.sums[sub]
		if c == nil {
			c = &sum{tres: make(map[string]int64), due: make(map[string]int64), still: make(map[string]int64), nodes: make(map[spec.NodeID]int32)}
			r.sums[sub] = c
			r.order = append(r.order, sub)
		}
		if len(j.Tasks) > 0 {
			c.submitted += j.Tasks.Len()
		} else {
			c.submitted++
		}
		if j.State == spec.Pending {
			if j.Hold == 0 && !j.NoAccrue && (j.Eligible != 0 || j.Accrue != 0) {
				c.accruing += max(j.Tasks.Len(), 1)
			}
			continue
		}
		c.running++
		due, still := r.dueOf(j)
		for _, t := range j.Alloc.TRES.All() {
			c.tres[t.Name] += t.N
			c.due[t.Name] += t.N * due
			if still {
				c.still[t.Name] += t.N
			}
		}
		for i := range j.Alloc.Nodes {
			c.nodes[j.Alloc.Nodes[i].ID]++
		}
	}
}

// dueOf is what a running job counts in Due for each of its TRES, and whether
// it counts in Still: its end, what is left while it is suspended, or nothing
// once it is over.
func (r *recounter) dueOf(j *Job) (due int64, still bool) {
	limit := j.Limit
	if limit <= 0 || limit == spec.Infinite {
		limit = unlimited
	}
	seconds := func(at spec.Instant) int64 { return at.Sub(r.s.Created).Seconds() }
	end := seconds(j.Started) + limit.Seconds() + j.Paused.Seconds()
	switch {
	case j.State == spec.Suspended:
		return max(0, end-seconds(j.SuspendedAt)), true
	case end <= seconds(r.s.At):
		return 0, true
	}
	return end, false
}

// CheckUsage is S6: the counters equal an independent recount.
func CheckUsage(s *State) error {
	r := newRecounter(s)
	if err := s.eachJob(func(j *Job) error { r.countJob(j); return nil }); err != nil {
		return err
	}
	for _, sub := range r.order {
		c, u := r.sums[sub], s.UsageOf(sub.kind, sub.qos, sub.id)
		if u.Submitted != c.submitted || u.Running != c.running {
			return brokenInvariant("usage of %s: %d submitted and %d running are counted, there are %d and %d", sub, u.Submitted, u.Running, c.submitted, c.running)
		}
		if u.Accruing != c.accruing {
			return brokenInvariant("usage of %s: %d jobs are counted as ageing, there are %d", sub, u.Accruing, c.accruing)
		}
		all := u.TRES.All()
		for _, t := range all {
			if c.tres[t.Name] != t.N {
				return brokenInvariant("usage of %s: %d of %s are counted, allocated are %d", sub, t.N, t.Name, c.tres[t.Name])
			}
			if due := u.Due.Get(t.Name); due != c.due[t.Name] {
				return brokenInvariant("usage of %s: %s is counted as due until %d, it is until %d", sub, t.Name, due, c.due[t.Name])
			}
			if still := u.Still.Get(t.Name); still != c.still[t.Name] {
				return brokenInvariant("usage of %s: time stands still for %d of %s, it does for %d", sub, still, t.Name, c.still[t.Name])
			}
		}
		if len(all) != len(c.tres) || u.Nodes.Len() != len(c.nodes) {
			return brokenInvariant("usage of %s: %s on %d nodes is counted, allocated are %d kinds on %d nodes", sub, u.TRES, u.Nodes.Len(), len(c.tres), len(c.nodes))
		}
		var err error
		u.Nodes.Range(func(id uint64, n int32) bool {
			if c.nodes[spec.NodeID(id)] != n {
				err = brokenInvariant("usage of %s: %d jobs are counted on node id %d, there are %d", sub, n, id, c.nodes[spec.NodeID(id)])
			}
			return err == nil
		})
		if err != nil {
			return err
		}
	}
	if s.Usage.Len() != len(r.order) {
		return brokenInvariant("%d counters of usage exist, %d have anything to count", s.Usage.Len(), len(r.order))
	}
	return nil
}

// CheckPolicy is S6 for the lists that limits stand in.
func CheckPolicy(s *State) error {
	p := s.Policy
	for i := range p.QOS {
		if p.QOS[i].ID == 0 || p.QOS[i].ID > p.NextQOS || (i > 0 && p.QOS[i-1].Name >= p.QOS[i].Name) {
			return brokenInvariant("QOS %s (id %d) is out of order, or its id is above %d", p.QOS[i].Name, p.QOS[i].ID, p.NextQOS)
		}
	}
	for i := 1; i < len(p.Accounts); i++ {
		if p.Accounts[i-1].Name >= p.Accounts[i].Name {
			return brokenInvariant("account %s is out of order", p.Accounts[i].Name)
		}
	}
	for i := 1; i < len(p.Users); i++ {
		if p.Users[i-1].Name >= p.Users[i].Name {
			return brokenInvariant("user %s is out of order", p.Users[i].Name)
		}
	}
	for i := range p.Assocs {
		a := &p.Assocs[i]
		if a.ID == 0 || a.ID > p.NextAssoc || (i > 0 && p.Assocs[i-1].ID >= a.ID) {
			return brokenInvariant("association %d is out of order, or above %d", a.ID, p.NextAssoc)
		}
		if f := p.FindAssoc(a.Account, a.User, a.Partition); f != a {
			return brokenInvariant("association %d (account %s, user %s, partition %s) is not found by its names", a.ID, a.Account, a.User, a.Partition)
		}
	}
	if len(p.byPair) != len(p.Assocs) {
		return brokenInvariant("%d associations are indexed, there are %d", len(p.byPair), len(p.Assocs))
	}
	return nil
}
