// Package order computes job priorities (Slurm's multifactor formula, in
// integers) and the order in which a pass looks at jobs.
package order

import (
	"math"
	"math/bits"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// unit is 1.0 of a normalised factor: factors are in billionths.
const unit = 1_000_000_000

// Factors are the parts of a job's priority, each already weighted.
type Factors struct {
	Age, Assoc, FairShare, JobSize, Partition, QOS, TRES int64
	Nice                                                 int64
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
}

type partTotals struct{ tres spec.TRES }

// NewContext sums up the cluster once.
func NewContext(st *state.State, now spec.Instant) *Context {
	c := &Context{st: st, now: now, parts: map[string]partTotals{}, levels: levels(st), maxAge: st.Config.Priority.MaxAge}
	if c.maxAge == 0 {
		c.maxAge = 7 * spec.Day
	}
	st.Nodes.Range(func(_ uint64, n *state.Node) bool {
		c.totalCPUs += n.CPUs
		c.totalNodes++
		return true
	})
	for i := range st.Parts.List {
		p := &st.Parts.List[i]
		c.maxPart = max(c.maxPart, jobFactor(p.Spec))
		if len(st.Config.Priority.TRES) == 0 {
			continue
		}
		var t spec.TRES
		for id := p.Nodes.Next(0); id >= 0; id = p.Nodes.Next(id + 1) {
			if n := st.NodeByID(spec.NodeID(id)); n != nil {
				t = t.Add(n.Capacity())
			}
		}
		c.parts[p.Spec.Name] = partTotals{t}
	}
	for i := range st.Policy.QOS {
		c.maxQOS = max(c.maxQOS, int64(st.Policy.QOS[i].Priority))
	}
	for i := range st.Policy.Assocs {
		c.maxAssoc = max(c.maxAssoc, int64(st.Policy.Assocs[i].Priority))
	}
	return c
}

func jobFactor(p *spec.PartitionSpec) int64 { return max(int64(p.PriorityJobFactor), 1) }

// Of computes a job's factors in one of its partitions. Fair share counts as
// zero until usage is folded into the state.
func (c *Context) Of(j *state.Job, part *spec.PartitionSpec) Factors {
	f := c.Fixed(j, part)
	c.Complete(&f, j)
	return f
}

// Fixed computes the factors that all jobs share which ask for the same in
// the same partition under the same QOS and association.
func (c *Context) Fixed(j *state.Job, part *spec.PartitionSpec) Factors {
	p := &c.st.Config.Priority
	var f Factors
	if p.Basic {
		return f
	}
	f.JobSize = c.size(j, p)
	f.Partition = weigh(p.Partition, jobFactor(part), c.maxPart)
	if q := c.st.Policy.FindQOS(j.Spec.QOS); q != nil && c.maxQOS > 0 {
		f.QOS = weigh(p.QOS, int64(q.Priority), c.maxQOS)
	}
	if a := c.st.Policy.Assoc(j.Assoc); a != nil && c.maxAssoc > 0 {
		f.Assoc = weigh(p.Assoc, int64(a.Priority), c.maxAssoc)
	}
	for _, w := range p.TRES {
		f.TRES += muldiv(w.Micro, j.Req.Get(w.TRES), max(c.parts[part.Name].tres.Get(w.TRES), 1)) / 1_000_000
	}
	return f
}

// Complete adds to fixed factors what is the job's own, and sums them up.
func (c *Context) Complete(f *Factors, j *state.Job) {
	p := &c.st.Config.Priority
	f.Nice = int64(j.Spec.Queue.Nice)
	switch {
	case j.Hold != spec.NotHeld:
		*f = Factors{Nice: f.Nice}
		return
	case j.Spec.Queue.Priority != 0:
		*f = Factors{Nice: f.Nice, Direct: true, Total: j.Spec.Queue.Priority}
		return
	case p.Basic: // first come, first served
		f.Total = uint32(clamp(math.MaxUint32-int64(j.UID)-f.Nice, 1))
		return
	}
	if since := j.AgesSince(); since != 0 && p.Age != 0 {
		f.Age = weigh(p.Age, int64(max(min(c.now.Sub(since), c.maxAge), 0)), int64(c.maxAge))
	}
	f.Total = uint32(clamp(f.Age+f.Assoc+f.FairShare+f.JobSize+f.Partition+f.QOS+f.TRES-f.Nice, 1))
}

// size is (nodes/allNodes + cpus/allCPUs)/2, or its complement when small
// jobs are favoured.
func (c *Context) size(j *state.Job, p *spec.PriorityConfig) int64 {
	if p.JobSize == 0 || c.totalNodes == 0 || c.totalCPUs == 0 {
		return 0
	}
	nodes := muldiv(unit, min(j.Req.Node, c.totalNodes), c.totalNodes)
	cpus := muldiv(unit, min(j.Req.CPU, c.totalCPUs), c.totalCPUs)
	frac := (nodes + cpus) / 2
	if p.FavorSmall {
		frac = unit - frac
	}
	return muldiv(int64(p.JobSize), frac, unit)
}

func weigh(weight uint32, part, whole int64) int64 {
	if whole <= 0 {
		return 0
	}
	return muldiv(int64(weight), part, whole)
}

// muldiv is a*b/c for non-negative numbers without overflow in between; it
// saturates.
func muldiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, uint64(c))
	if q > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(q)
}

func clamp(v, low int64) int64 { return max(min(v, math.MaxUint32), low) }

// levels numbers the QOS so that one whose jobs may preempt those of another
// stands above it; 0 are those that preempt nobody.
func levels(st *state.State) map[string]uint32 {
	if st.Config.Sched.PreemptType != "preempt/qos" {
		return nil
	}
	out := map[string]uint32{}
	for range st.Policy.QOS { // as often as a chain of them may be long
		for i := range st.Policy.QOS {
			q := &st.Policy.QOS[i]
			for _, below := range q.Preempt {
				if out[q.Name] <= out[below] && out[below] < maxLevel {
					out[q.Name] = out[below] + 1
				}
			}
		}
	}
	return out
}

const maxLevel = 1<<16 - 1

// Standing is what comes before priority in the order of a pass: who may
// preempt comes before whom that may hit, then the partition's tier.
func (c *Context) Standing(j *state.Job, part *spec.PartitionSpec) uint32 {
	return c.levels[j.Spec.QOS]<<16 | min(Tier(part), 1<<16-1)
}

// Tier is a partition's PriorityTier; 1 by default.
func Tier(p *spec.PartitionSpec) uint32 { return max(p.PriorityTier, 1) }
