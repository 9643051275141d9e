// Package order computes job priorities (Slurm's multifactor formula, in
// integers) and the order in which a pass looks at jobs.
package order

import (
	"math"
	"math/bits"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/fairshare"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/fixed"
)

// Scale is what a part of a priority is counted in: parts are in units of
// 1/Scale, so that what is cut off of each does not show in their sum.
const Scale = 1 << 24

// slack is less than a thousandth of a point and more than what is cut off of
// all parts together: a sum that is whole stays whole.
const slack = 16

// Factors are the parts of a job's priority, each already weighted, in units
// of 1/Scale.
type Factors struct {
	Age, Assoc, FairShare, JobSize, Partition, QOS, TRES int64
	Nice, Site                                           int64  // whole points
	Total                                                uint32 // 0 = held
	Direct                                               bool   // set by an administrator, not computed
}

// Context is what all jobs of a pass are compared with; make one per pass.
type Context struct {
	st         *state.State
	now        spec.Instant
	totalCPUs  int64
	totalNodes int64
	maxPart    int64
	maxQOS     int64
	maxAssoc   int64
	maxAge     spec.Span
	parts      map[string]partTotals
	levels     map[string]uint32 // of QOS whose jobs may preempt others
	shares     *fairshare.Tree   // nil until asked for
	flags      flags
	// First tells jobs that come before all others: those that are within what is
	// guaranteed to their account. Nil: none do.
	First func(j *state.Job) bool
	// Share orders jobs of one standing before their priority does: what the account
	// of one holds beyond its guarantee, the least first. Nil: nothing is guaranteed.
	Share func(j *state.Job) uint64
}

// flags are the PriorityFlags that the formula knows.
type flags struct {
	rawAssoc, rawPart, rawQOS, rawTRES bool // no normalisation
	byTime                             bool // SMALL_RELATIVE_TO_TIME
	always                             bool // ACCRUE_ALWAYS
}

func flagsOf(config *spec.PriorityConfig) flags {
	all := fairshare.Has(config, "NO_NORMAL_ALL")
	return flags{
		rawAssoc: all || fairshare.Has(config, "NO_NORMAL_ASSOC"),
		rawPart:  all || fairshare.Has(config, "NO_NORMAL_PART"),
		rawQOS:   all || fairshare.Has(config, "NO_NORMAL_QOS"),
		rawTRES: all ||
			fairshare.Has(config, "NO_NORMAL_TRES"),
		byTime: fairshare.Has(config, "SMALL_RELATIVE_TO_TIME"),
		always: fairshare.Has(config, "ACCRUE_ALWAYS"),
	}
}

type partTotals struct{ tres spec.TRES }

// NewContext sums up the cluster once.
func NewContext(cluster *state.State, now spec.Instant) *Context {
	context := &Context{st: cluster, now: now, levels: qosLevels(cluster),
		maxAge: cluster.Config.Priority.MaxAge,
		flags:  flagsOf(&cluster.Config.Priority)}
	if context.maxAge == 0 {
		context.maxAge = 7 * spec.Day
	}
	cluster.Nodes.Range(func(_ uint64, node *state.Node) bool {
		context.totalCPUs += node.CPUs
		context.totalNodes++
		return true
	})
	for i := range cluster.Parts.List {
		partition := &cluster.Parts.List[i]
		context.maxPart = max(context.maxPart, jobFactor(partition.Spec))
		if len(cluster.Config.Priority.TRES) == 0 {
			continue
		}
		var tres spec.TRES
		for id := partition.Nodes.Next(0); id >= 0; id = partition.Nodes.Next(id + 1) {
			if node := cluster.NodeByID(spec.NodeID(id)); node != nil {
				tres = tres.Add(node.Capacity())
			}
		}
		if context.parts == nil {
			context.parts = map[string]partTotals{}
		}
		context.parts[partition.Spec.Name] = partTotals{tres}
	}
	for i := range cluster.Policy.QOS {
		context.maxQOS = max(context.maxQOS, int64(cluster.Policy.QOS[i].Priority))
	}
	for i := range cluster.Policy.Assocs {
		context.maxAssoc = max(context.maxAssoc, int64(cluster.Policy.Assocs[i].Priority))
	}
	return context
}

// Running tells the priorities of jobs that hold nodes; make one per look at them.
type Running struct{ now *Context }

// NewRunning prepares what CALCULATE_RUNNING needs, where it is set.
func NewRunning(cluster *state.State, now spec.Instant) Running {
	if !fairshare.Has(&cluster.Config.Priority, "CALCULATE_RUNNING") {
		return Running{}
	}
	return Running{NewContext(cluster, now)}
}

// Of is the priority with which a job started or, with CALCULATE_RUNNING, what
// the formula gives it now for what it holds. A verdict ends that.
func (r Running) Of(job *state.Job) uint32 {
	started := job.State == spec.Running || job.State == spec.Suspended
	if r.now == nil || job.Alloc == nil || !started || job.Hold != spec.NotHeld {
		return job.StartPrio
	}
	part := r.now.st.Parts.Find(job.Alloc.Partition)
	if part == nil {
		return job.StartPrio
	}
	holds := *job
	holds.Req = job.Alloc.TRES
	return r.now.Of(&holds, part.Spec).Total
}

func jobFactor(partition *spec.PartitionSpec) int64 {
	return max(int64(partition.PriorityJobFactor), 1)
}

// Shares is the tree of fair shares of the state.
func (c *Context) Shares() *fairshare.Tree {
	if c.shares == nil {
		c.shares = fairshare.Of(c.st)
	}
	return c.shares
}

// Of computes a job's factors in one of its partitions.
func (c *Context) Of(job *state.Job, part *spec.PartitionSpec) Factors {
	factors := c.Fixed(job, part)
	c.Complete(&factors, job)
	return factors
}

// Fixed computes the factors that all jobs share which ask for the same in
// the same partition under the same QOS and association.
func (c *Context) Fixed(job *state.Job, part *spec.PartitionSpec) Factors {
	priority := &c.st.Config.Priority
	var factors Factors
	if priority.Basic {
		return factors
	}
	factors.JobSize = c.sizeFactor(job, part, priority)
	factors.Partition = weighPart(
		priority.Partition,
		jobFactor(part),
		wholeOrOne(c.maxPart, c.flags.rawPart),
	)
	if qos := c.st.Policy.FindQOS(job.QOS()); qos != nil {
		factors.QOS = weighPart(
			priority.QOS,
			int64(qos.Priority),
			wholeOrOne(c.maxQOS, c.flags.rawQOS),
		)
	}
	if association := c.st.Policy.Assoc(job.Assoc); association != nil {
		factors.Assoc = weighPart(
			priority.Assoc,
			int64(association.Priority),
			wholeOrOne(c.maxAssoc, c.flags.rawAssoc),
		)
	}
	if priority.FairShare != 0 {
		hi, lo := bits.Mul64(
			uint64(priority.FairShare)*Scale,
			c.Shares().Factor(job.Assoc),
		) // in 2^-63
		factors.FairShare = int64(hi<<1 | lo>>63)
	}
	for i := range priority.TRES {
		factors.TRES = add(factors.TRES, c.TRES(job, part, i))
	}
	return factors
}

// TRES is the part of one entry of PriorityWeightTRES.
func (c *Context) TRES(job *state.Job, part *spec.PartitionSpec, entry int) int64 {
	weight := &c.st.Config.Priority.TRES[entry]
	total := int64(1)
	if !c.flags.rawTRES {
		total = max(c.parts[part.Name].tres.Get(weight.TRES), 1)
	}
	v := fixed.Of(weight.Micro).Times(job.Req.Get(weight.TRES)).Over(total).Over(1_000_000)
	if v.Hi >= 1<<38 {
		return most
	}
	return int64(v.Hi*Scale | v.Lo>>40)
}

// wholeOrOne is what a factor is divided by: the greatest there is, or 1 where it
// is not to be normalised. 0 stands for no factor at all.
func wholeOrOne(greatest int64, raw bool) int64 {
	if raw {
		return 1
	}
	return greatest
}

// most is the greatest part: seven of them do not overflow.
const most = math.MaxInt64 / 16

func add(a, b int64) int64 { return min(a+b, most) }

// Complete adds to fixed factors what is the job's own, and sums them up.
func (c *Context) Complete(factors *Factors, job *state.Job) {
	priority := &c.st.Config.Priority
	factors.Nice, factors.Site = int64(job.Spec.Queue.Nice), int64(job.Spec.Queue.SiteFactor)
	switch {
	case job.Hold != spec.NotHeld:
		*factors = Factors{Nice: factors.Nice}
		return
	case job.Spec.Queue.Priority != 0:
		*factors = Factors{Nice: factors.Nice, Direct: true, Total: job.Spec.Queue.Priority}
		return
	case priority.Basic: // first come, first served
		factors.Total = uint32(clamp(math.MaxUint32-int64(job.UID)-factors.Nice, 1))
		return
	}
	since := job.AgesSince()
	if c.flags.always {
		since = job.Submitted
	}
	if since != 0 && priority.Age != 0 {
		factors.Age = weighPart(
			priority.Age,
			int64(max(min(c.now.Sub(since), c.maxAge), 0)),
			int64(c.maxAge),
		)
	}
	sum := factors.Age + factors.Assoc + factors.FairShare + factors.JobSize + factors.Partition + factors.QOS + factors.TRES
	factors.Total = uint32(clamp((sum+slack)/Scale+factors.Site-factors.Nice, 1))
}

// sizeFactor is (nodes/allNodes + cpus/allCPUs)/2, at most 1, or its complement when
// small jobs are favoured. With SMALL_RELATIVE_TO_TIME it is the CPUs, or as
// many as the nodes have, for each minute of the time limit.
func (c *Context) sizeFactor(
	job *state.Job,
	part *spec.PartitionSpec,
	priority *spec.PriorityConfig,
) int64 {
	if priority.JobSize == 0 || c.totalNodes == 0 || c.totalCPUs == 0 {
		return 0
	}
	num, den := job.Req.Node*c.totalCPUs+job.Req.CPU*c.totalNodes, 2*c.totalNodes*c.totalCPUs
	if c.flags.byTime {
		limit := part.TimeLimit(job.Spec.Time.Limit)
		minutes := int64(365 * spec.Day / spec.Minute)
		if limit != spec.Infinite {
			minutes = max(int64(limit/spec.Minute), 1)
		}
		num, den = max(job.Req.CPU*c.totalNodes, job.Req.Node*c.totalCPUs), c.totalNodes*c.totalCPUs
		if den > math.MaxInt64/minutes {
			return 0
		}
		den *= minutes
	}
	num = min(num, den)
	if priority.FavorSmall {
		num = den - num
	}
	return weighPart(priority.JobSize, num, den)
}

// weighPart is weight*part/whole in units of 1/Scale.
func weighPart(weight uint32, part, whole int64) int64 {
	if whole <= 0 || part <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(weight)*Scale, uint64(part))
	if hi >= uint64(whole) {
		return most
	}
	q, _ := bits.Div64(hi, lo, uint64(whole))
	return int64(min(q, most))
}

func clamp(value, low int64) int64 { return max(min(value, math.MaxUint32), low) }

// qosLevels numbers the QOS so that one whose jobs may preempt those of another
// stands above it; 0 are those that preempt nobody.
func qosLevels(cluster *state.State) map[string]uint32 {
	if cluster.Config.Sched.PreemptType != "preempt/qos" {
		return nil
	}
	out := map[string]uint32{}
	for range cluster.Policy.QOS { // as often as a chain of them may be long
		for i := range cluster.Policy.QOS {
			qos := &cluster.Policy.QOS[i]
			for _, below := range qos.Preempt {
				if out[qos.Name] <= out[below] && out[below] < maxLevel {
					out[qos.Name] = out[below] + 1
				}
			}
		}
	}
	return out
}

// maxLevel bounds the levels of QOS that may preempt each other in a circle: those rise in each
// round above.
const maxLevel = 1<<16 - 1

// Standing is what comes before priority in the order of a pass: who may
// preempt comes before whom that may hit, then the partition's tier. In front of
// all is what is guaranteed.
func (c *Context) Standing(job *state.Job, part *spec.PartitionSpec) uint32 {
	standing := min(Tier(part), 1<<16-1)
	if len(c.levels) > 0 {
		standing |= min(c.levels[job.QOS()], 1<<15-1) << 16
	}
	if c.First != nil && c.First(job) {
		standing |= 1 << 31
	}
	return standing
}

// Tier is a partition's PriorityTier; 1 by default.
func Tier(partition *spec.PartitionSpec) uint32 { return max(partition.PriorityTier, 1) }
