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

func newRecounter(state *State) *recounter {
	r := &recounter{
		s:      state,
		qos:    make(map[string]*spec.QOS),
		assocs: make(map[uint32]*spec.Association),
		accounts: make(
			map[string]uint32,
		),
		parts: make(map[string]*spec.PartitionSpec),
		sums:  make(map[subject]*sum),
	}
	for i := range state.Policy.QOS {
		r.qos[state.Policy.QOS[i].Name] = &state.Policy.QOS[i]
	}
	for i := range state.Policy.Assocs {
		assoc := &state.Policy.Assocs[i]
		r.assocs[assoc.ID] = assoc
		if assoc.User == "" && assoc.Partition == "" {
			r.accounts[assoc.Account] = assoc.ID
		}
	}
	for i := len(state.Config.Partitions) - 1; i >= 0; i-- {
		r.parts[state.Config.Partitions[i].Name] = &state.Config.Partitions[i]
	}
	return r
}

// listSubjects lists whom a job is counted for.
func (r *recounter) listSubjects(job *Job) []subject {
	var subjects []subject
	own, part := job.Spec.QOS, ""
	if job.Alloc != nil {
		part = job.Alloc.Partition
		if job.Alloc.QOS != "" {
			own = job.Alloc.QOS
		}
	} else if len(job.Spec.Partitions) > 0 {
		part = job.Spec.Partitions[0]
	}
	names := []string{own}
	if partition := r.parts[part]; partition != nil && partition.QOS != "" && partition.QOS != own {
		names = append(names, partition.QOS)
	}
	for _, name := range names {
		qos := r.qos[name]
		if qos == nil {
			continue
		}
		subjects = append(
			subjects, subject{UsageQOS, qos.ID, 0}, subject{UsageQOSUser, qos.ID, job.Spec.UID},
		)
		if id := r.accounts[job.Spec.Account]; id != 0 {
			subjects = append(subjects, subject{UsageQOSAccount, qos.ID, id})
		}
	}
	for association := r.assocs[job.Assoc]; association != nil &&
		len(subjects) < 2*maxChain; association = r.assocs[association.Parent] {
		subjects = append(subjects, subject{UsageAssoc, 0, association.ID})
	}
	return subjects
}

func (r *recounter) countJob(job *Job) {
	if job.State >= spec.Completed {
		return
	}
	for _, sub := range r.listSubjects(job) {
		c := r.sums[sub]
		if c == nil {
			c = &sum{
				tres:  make(map[string]int64),
				due:   make(map[string]int64),
				still: make(map[string]int64),
				nodes: make(map[spec.NodeID]int32),
			}
			r.sums[sub] = c
			r.order = append(r.order, sub)
		}
		if len(job.Tasks) > 0 {
			c.submitted += job.Tasks.Len()
		} else {
			c.submitted++
		}
		if job.State == spec.Pending {
			if job.Hold == 0 && !job.NoAccrue && (job.Eligible != 0 || job.Accrue != 0) {
				c.accruing += max(job.Tasks.Len(), 1)
			}
			continue
		}
		c.running++
		due, still := r.dueOf(job)
		for _, tres := range job.Alloc.TRES.All() {
			c.tres[tres.Name] += tres.N
			c.due[tres.Name] += tres.N * due
			if still {
				c.still[tres.Name] += tres.N
			}
		}
		for i := range job.Alloc.Nodes {
			c.nodes[job.Alloc.Nodes[i].ID]++
		}
	}
}

// dueOf is what a running job counts in Due for each of its TRES, and whether
// it counts in Still: its end, what is left while it is suspended, or nothing
// once it is over.
func (r *recounter) dueOf(job *Job) (due int64, still bool) {
	limit := job.Limit
	if limit <= 0 || limit == spec.Infinite {
		limit = unlimited
	}
	seconds := func(at spec.Instant) int64 { return at.Sub(r.s.Created).Seconds() }
	end := seconds(job.Started) + limit.Seconds() + job.Paused.Seconds()
	switch {
	case job.State == spec.Suspended:
		return max(0, end-seconds(job.SuspendedAt)), true
	case end <= seconds(r.s.At):
		return 0, true
	}
	return end, false
}

// CheckUsage is S6: the counters equal an independent recount.
func CheckUsage(state *State) error {
	r := newRecounter(state)
	if err := state.eachJob(func(job *Job) error { r.countJob(job); return nil }); err != nil {
		return err
	}
	for _, sub := range r.order {
		c, usage := r.sums[sub], state.UsageOf(sub.kind, sub.qos, sub.id)
		if usage.Submitted != c.submitted || usage.Running != c.running {
			return brokenInvariant(
				"usage of %s: %d submitted and %d running are counted, there are %d and %d",
				sub,
				usage.Submitted,
				usage.Running,
				c.submitted,
				c.running,
			)
		}
		if usage.Accruing != c.accruing {
			return brokenInvariant(
				"usage of %s: %d jobs are counted as ageing, there are %d",
				sub,
				usage.Accruing,
				c.accruing,
			)
		}
		all := usage.TRES.All()
		for _, tres := range all {
			if c.tres[tres.Name] != tres.N {
				return brokenInvariant(
					"usage of %s: %d of %s are counted, allocated are %d",
					sub,
					tres.N,
					tres.Name,
					c.tres[tres.Name],
				)
			}
			if due := usage.Due.Get(tres.Name); due != c.due[tres.Name] {
				return brokenInvariant(
					"usage of %s: %s is counted as due until %d, it is until %d",
					sub,
					tres.Name,
					due,
					c.due[tres.Name],
				)
			}
			if still := usage.Still.Get(tres.Name); still != c.still[tres.Name] {
				return brokenInvariant(
					"usage of %s: time stands still for %d of %s, it does for %d",
					sub,
					still,
					tres.Name,
					c.still[tres.Name],
				)
			}
		}
		if len(all) != len(c.tres) || usage.Nodes.Len() != len(c.nodes) {
			return brokenInvariant(
				"usage of %s: %s on %d nodes is counted, allocated are %d kinds on %d nodes",
				sub,
				usage.TRES,
				usage.Nodes.Len(),
				len(c.tres),
				len(c.nodes),
			)
		}
		var err error
		usage.Nodes.Range(func(id uint64, n int32) bool {
			if c.nodes[spec.NodeID(id)] != n {
				err = brokenInvariant(
					"usage of %s: %d jobs are counted on node id %d, there are %d",
					sub,
					n,
					id,
					c.nodes[spec.NodeID(id)],
				)
			}
			return err == nil
		})
		if err != nil {
			return err
		}
	}
	if state.Usage.Len() != len(r.order) {
		return brokenInvariant(
			"%d counters of usage exist, %d have anything to count",
			state.Usage.Len(),
			len(r.order),
		)
	}
	return nil
}

// CheckPolicy is S6 for the lists that limits stand in.
func CheckPolicy(state *State) error {
	policy := state.Policy
	for i := range policy.QOS {
		if policy.QOS[i].ID == 0 || policy.QOS[i].ID > policy.NextQOS ||
			(i > 0 && policy.QOS[i-1].Name >= policy.QOS[i].Name) {
			return brokenInvariant(
				"QOS %s (id %d) is out of order, or its id is above %d",
				policy.QOS[i].Name,
				policy.QOS[i].ID,
				policy.NextQOS,
			)
		}
	}
	for i := 1; i < len(policy.Accounts); i++ {
		if policy.Accounts[i-1].Name >= policy.Accounts[i].Name {
			return brokenInvariant("account %s is out of order", policy.Accounts[i].Name)
		}
	}
	for i := 1; i < len(policy.Users); i++ {
		if policy.Users[i-1].Name >= policy.Users[i].Name {
			return brokenInvariant("user %s is out of order", policy.Users[i].Name)
		}
	}
	for i := range policy.Assocs {
		assoc := &policy.Assocs[i]
		if assoc.ID == 0 || assoc.ID > policy.NextAssoc ||
			(i > 0 && policy.Assocs[i-1].ID >= assoc.ID) {
			return brokenInvariant(
				"association %d is out of order, or above %d",
				assoc.ID,
				policy.NextAssoc,
			)
		}
		if f := policy.FindAssoc(assoc.Account, assoc.User, assoc.Partition); f != assoc {
			return brokenInvariant(
				"association %d (account %s, user %s, partition %s) is not found by its names",
				assoc.ID,
				assoc.Account,
				assoc.User,
				assoc.Partition,
			)
		}
	}
	if len(policy.byPair) != len(policy.Assocs) {
		return brokenInvariant(
			"%d associations are indexed, there are %d",
			len(policy.byPair),
			len(policy.Assocs),
		)
	}
	return nil
}
