package daemon

import (
	"context"
	"maps"
	"slices"

	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// Network counts the bytes of the runs' control groups.
type Network interface {
	// Follow counts in the groups below the one that the shepherd names.
	Follow(tree string, depth int) error
	// Count adds to what a run has used what its group has sent and received.
	Count(*plan.Usage)
	// Forget drops the counts of a group.
	Forget(group uint64)
}

// NodeCounters reads what only the node as a whole counts: ports of the fabric and
// clients of file systems. A counter that the node does not have is missing.
type NodeCounters interface {
	Read(ctx context.Context) spec.CounterValues
}

// soleJob gives the node's counters to the job that has it alone. The job is given
// what was counted from one reading to the next if no other was here in between.
type soleJob struct {
	last   spec.CounterValues
	known  bool                // there is a last reading
	job    plan.RunKey         // that was alone here since the last reading
	shared bool                // others were here too
	sums   map[plan.RunKey]sum // of jobs that are not reported yet
}

// sum is what a job has of the node's counters, while it has been alone here.
type sum struct {
	counted  spec.CounterValues
	wasAlone bool
}

// noteJob notes that a job is on the node. One that is neither new nor remembered was
// here before this agent, and with whom is not known.
func (s *soleJob) noteJob(job plan.RunKey, isNew bool) {
	switch s.job {
	case plan.RunKey{}:
		s.job = job
	case job:
	default:
		s.shared = true
	}
	if s.sums == nil {
		s.sums = map[plan.RunKey]sum{}
	}
	have, known := s.sums[job]
	if !known {
		have.wasAlone = isNew
	}
	s.sums[job] = have
	if s.shared {
		for key, each := range s.sums {
			each.wasAlone = false
			s.sums[key] = each
		}
	}
}

// observeReading takes a reading; jobs are those that are on the node now.
func (s *soleJob) observeReading(now spec.CounterValues, jobs []plan.RunKey) {
	for _, job := range jobs {
		s.noteJob(job, false)
	}
	owner, owned := s.sums[s.job]
	if s.known && owned && !s.shared {
		owner.counted = owner.counted.Add(grownSince(now, s.last))
		s.sums[s.job] = owner
	}
	s.last, s.known = now, true
	s.job, s.shared = plan.RunKey{}, false
	for _, job := range jobs {
		s.noteJob(job, false)
	}
}

// grownSince is how much the counters grew. One that went back began anew: what it
// shows is growth. One that was not there before has none.
func grownSince(now, before spec.CounterValues) spec.CounterValues {
	var values spec.CounterValues
	for _, value := range now {
		old, known := before.Get(value.Counter)
		if !known {
			continue
		}
		grown := value.N - old
		if grown < 0 {
			grown = value.N
		}
		values = values.With(value.Counter, grown)
	}
	return values
}

// take gives what a job has counted: nothing, if it was ever not alone.
func (s *soleJob) take(job plan.RunKey) spec.CounterValues {
	have := s.sums[job]
	delete(s.sums, job)
	if !have.wasAlone {
		return nil
	}
	return have.counted
}

// peekCounters is take for a job that goes on.
func (s *soleJob) peekCounters(job plan.RunKey) spec.CounterValues {
	if have := s.sums[job]; have.wasAlone {
		return have.counted
	}
	return nil
}

// NodeCounted takes a reading of the node's counters. Jobs whose end it has seen are
// reported.
func (c *Core) NodeCounted(at spec.Instant, now spec.CounterValues) {
	var here []plan.RunKey
	for _, key := range c.sortedKeys() {
		r := c.runs[key]
		onNode := r.phase >= living && r.phase <= measuring && r.from != 0
		if !r.isStep() && onNode {
			here = append(here, key)
		}
	}
	c.sole.observeReading(now, here)
	for _, key := range here {
		r := c.runs[key]
		if r.phase == measuring && r.awaitsCount && at >= r.since {
			r.awaitsCount = false
			c.finishMeasured(r)
		}
	}
}

// needsCount tells that a job that ends should wait for a last reading of the node's
// counters: it is alone here, and there are such counters.
func (c *Core) needsCount(r *run) bool {
	have, known := c.sole.sums[r.key]
	return len(c.sole.last) > 0 && known && have.wasAlone && !c.sole.shared
}

// countersOf is what was counted of a run that has ended. What the node counted is
// its job's, not its steps'.
func (c *Core) countersOf(r *run) spec.CounterValues {
	var own spec.CounterValues
	if r.exit != nil {
		own = r.exit.Usage.Counters
	}
	if r.isStep() {
		return own
	}
	return own.Add(c.sole.take(r.key))
}

// countNode reads the node's counters. It is cheap: some files of the kernel. Readings
// reach the core in the order in which they were taken.
func (a *Agent) countNode(ctx context.Context) {
	if a.deps.Counters == nil {
		return
	}
	a.counting.Lock()
	defer a.counting.Unlock()
	counted := a.deps.Counters.Read(ctx)
	if ctx.Err() != nil || len(counted) == 0 {
		return
	}
	a.deps.Telemetry.SetCounters(counted)
	at := a.deps.Clock.Now()
	a.inbox.putItems(func() { a.core.NodeCounted(at, counted) })
}

// countNetwork completes what runs have used by their bytes over the network.
func (a *Agent) countNetwork(list []plan.Usage) {
	if a.deps.Network == nil {
		return
	}
	for i := range list {
		a.deps.Network.Count(&list[i])
	}
}

// countExits does the same for runs that have ended.
func (a *Agent) countExits(exits ...*plan.Exit) {
	if a.deps.Network == nil {
		return
	}
	for _, exit := range exits {
		if exit != nil {
			a.deps.Network.Count(&exit.Usage)
		}
	}
}

// followTree has the network counted where the shepherd makes its groups; what the
// kernel refuses is said once, and left out.
func (a *Agent) followTree(hello *plan.Hello) {
	if a.deps.Network == nil || hello.Tree == "" {
		return
	}
	err := a.deps.Network.Follow(hello.Tree, int(hello.TreeDepth))
	reason := ""
	if err != nil {
		reason = err.Error()
	}
	if reason != "" && reason != a.netTrouble {
		a.log.Warn("bytes over the network are not counted", "error", err)
	}
	a.netTrouble = reason
}

// forgetGroups drops the network counts of runs that are forgotten.
func (a *Agent) forgetGroups(keys []plan.RunKey) {
	if a.deps.Network == nil {
		return
	}
	for _, key := range keys {
		if group, known := a.groups[key]; known {
			a.deps.Network.Forget(group)
			delete(a.groups, key)
		}
	}
}

// rememberGroups notes the groups of runs, to forget them with the runs.
func (a *Agent) rememberGroups(list []plan.Usage) {
	if a.deps.Network == nil {
		return
	}
	for i := range list {
		if list[i].Group != 0 {
			a.groups[list[i].Key] = list[i].Group
		}
	}
}

// savedSole is soleJob over a restart of the agent, in which no job can begin.
type savedSole struct {
	Last spec.CounterValues `json:"last,omitempty"`
	Jobs []savedSum         `json:"jobs,omitempty"`
}

type savedSum struct {
	Job     string             `json:"job"`
	Counted spec.CounterValues `json:"counted,omitempty"`
	Alone   bool               `json:"alone,omitempty"`
}

func (s *soleJob) saveState() *savedSole {
	if !s.known {
		return nil
	}
	sole := &savedSole{Last: s.last}
	keys := slices.SortedFunc(maps.Keys(s.sums), plan.RunKey.Compare)
	for _, key := range keys {
		have := s.sums[key]
		sole.Jobs = append(
			sole.Jobs,
			savedSum{Job: key.String(), Counted: have.counted, Alone: have.wasAlone},
		)
	}
	return sole
}

func (s *soleJob) restoreState(from *savedSole) error {
	if from == nil {
		return nil
	}
	s.last = from.Last
	s.known = true
	s.sums = map[plan.RunKey]sum{}
	for _, one := range from.Jobs {
		key, err := plan.ParseRunKey(one.Job)
		if err != nil {
			return err
		}
		s.sums[key] = sum{counted: one.Counted, wasAlone: one.Alone}
	}
	return nil
}
