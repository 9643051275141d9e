// Package view is what everyone but the writer reads: an immutable snapshot
// of the cluster with the plan derived from it and the figures of the
// controller. The writer publishes a new View; readers keep the one they
// have for as long as they need it, without a lock.
package view

import (
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// View is one published snapshot. Everything it points to is immutable.
type View struct {
	State     *state.State // frozen
	Published spec.Instant
	Plan      *Plan // of the last full pass; nil before the first
	Pass      PassStats
	Writer    WriterStats
	// Durable is the last sequence number that is safe on disk. State may be
	// ahead of it only on the writer's side, never in a published view.
	Durable uint64
	Orphans int // runs that nodes have and the ledger does not know
	// AccountedSeq is the last event that accounting confirmed; 0 = unknown.
	AccountedSeq uint64
	AccountedAt  spec.Instant
}

// Plan is the predicted future: derived from a state, published, never stored.
type Plan struct {
	At   spec.Instant // the instant it was made for
	Seq  uint64       // of the state it was made from
	Jobs []Planned    // in order of priority
	// Truncated tells that jobs beyond bf_max_job_test were not planned.
	Truncated bool
	byUID     map[spec.JobUID]int // nil if it is short
}

// Planned is one pending job's predicted start.
type Planned struct {
	UID       spec.JobUID
	Task      int64 // array task, or NoTask
	Start     spec.Instant
	End       spec.Instant // at its time limit
	Nodes     []spec.NodeID
	Devices   []PlannedDevice // where GPUs are counted one by one; in the order of Nodes
	Partition string
	Estimate  bool // labelled as an estimate: tasks of an array beyond those reserved exactly
	Priority  uint32
	// Blockers are the jobs whose end it waits for, at most a few.
	Blockers []spec.JobUID
}

// PlannedDevice is a GPU of which a job is to get a part, or all.
type PlannedDevice struct {
	Node spec.NodeID
	Pos  int32 // in the node's list
}

// NewPlan indexes a list of predictions.
func NewPlan(at spec.Instant, seq uint64, jobs []Planned, truncated bool) *Plan {
	plan := &Plan{At: at, Seq: seq, Jobs: jobs, Truncated: truncated}
	if len(jobs) <= short {
		return plan
	}
	plan.byUID = make(map[spec.JobUID]int, len(jobs))
	for i := len(jobs) - 1; i >= 0; i-- {
		plan.byUID[jobs[i].UID] = i
	}
	return plan
}

// short is a plan that is looked through faster than in an index.
const short = 4

// firstPrediction is where the first prediction for a job stands; -1 = there is none.
func (p *Plan) firstPrediction(uid spec.JobUID) int {
	if p.byUID == nil {
		return slices.IndexFunc(p.Jobs, func(j Planned) bool { return j.UID == uid })
	}
	if i, ok := p.byUID[uid]; ok {
		return i
	}
	return -1
}

// Of returns the first prediction for a job, or nil.
func (p *Plan) Of(uid spec.JobUID) *Planned {
	if p == nil {
		return nil
	}
	if i := p.firstPrediction(uid); i >= 0 {
		return &p.Jobs[i]
	}
	return nil
}

// OfTask returns the prediction for one task of an array's record, or for a
// job with NoTask; nil if there is none of its own.
func (p *Plan) OfTask(uid spec.JobUID, task int64) *Planned {
	if p == nil {
		return nil
	}
	for i := p.firstPrediction(uid); i >= 0 && i < len(p.Jobs) && p.Jobs[i].UID == uid; i++ {
		if p.Jobs[i].Task == task && !p.Jobs[i].Estimate {
			return &p.Jobs[i]
		}
	}
	return nil
}

// PassStats describe scheduling passes, for sdiag and metrics. Times are wall
// times that the daemon measured around the pure pass.
type PassStats struct {
	Passes      uint64 // full passes
	QuickPasses uint64 // passes over new work only
	Last        spec.Span
	Max         spec.Span
	Total       spec.Span
	LastAt      spec.Instant
	Depth       int64 // jobs tried in the last full pass
	DepthTotal  uint64
	Planned     int64  // reservations in the plan
	Queue       int64  // pending records at the last pass
	Exit        string // why the last pass ended: end of queue, depth limit
	Dropped     uint64 // proposals the writer dropped because the head had moved on
	// How the passes ended, and sums over them, for means.
	ExitEnd, ExitDepth, ExitStarts uint64
	QueueTotal, PlannedTotal       uint64
	// Times counts full passes by how long they took; see PassBounds.
	Times [11]uint64
}

// PassBounds are the upper bounds of PassStats.Times, in milliseconds; what took
// longer is in the last count, which has no bound.
func PassBounds() [10]int64 {
	return [10]int64{1, 5, 20, 50, 100, 500, 1000, 2500, 5000, 10000}
}

// Count counts a full pass by how long it took.
func (p *PassStats) Count(took spec.Span) {
	bounds := PassBounds()
	i := 0
	for i < len(bounds) && took > spec.Span(bounds[i])*spec.Millisecond {
		i++
	}
	p.Times[i]++
}

// Within counts the full passes that took at most d, as far as PassBounds tell.
func (p *PassStats) Within(d spec.Span) (n uint64) {
	for i, bound := range PassBounds() {
		if spec.Span(bound)*spec.Millisecond > d {
			break
		}
		n += p.Times[i]
	}
	return n
}

// WriterStats describe the single writer.
type WriterStats struct {
	Commands          uint64
	Batches           uint64
	Events            uint64
	Refused           uint64
	StaleReports      uint64
	QueueLen          int64
	LogPosition       uint64
	AppendLast        spec.Span // time from append to durable, last batch
	AppendMax         spec.Span
	InvariantFailures uint64
}
