// Package suppose answers what would become of the queue if something were
// changed: it makes the plan of a whole pass for the state as it is and for a copy
// in which the change was made, and compares the two job by job. Both passes are
// those of production, at the same instant and with the same promises, so what
// differs between them comes from the change alone.
package suppose

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// Standing is what a job does right after a pass.
type Standing uint8

// What a job may do.
const (
	// Absent is a job that is not in the queue: not submitted yet, or over.
	Absent Standing = iota
	// Running is a job that holds its nodes already.
	Running
	// Evicted is a job that runs, and that the pass ends or stops for another.
	Evicted
	// Starting is a job that the pass starts.
	Starting
	// Planned is a job that waits, with a planned start.
	Planned
	// Waiting is a job that waits without a planned start.
	Waiting
)

// Outlook is what a pass says of one job. Of an array's record it is what it says
// of the task that starts first.
type Outlook struct {
	Standing  Standing
	Start     spec.Instant // of a job that starts or is planned; else 0
	Nodes     []spec.NodeID
	Partition string
	// Reason is why the job does not start now.
	Reason spec.Reason
}

// hasStart tells whether a start is known, and not past.
func (o Outlook) hasStart() bool { return o.Standing == Starting || o.Standing == Planned }

// Change is one job for which the two passes differ.
type Change struct {
	UID           spec.JobUID
	Before, After Outlook
}

// Later is by how much the change delays the start; negative: it comes earlier.
// It is false where a start is not known on both sides.
func (c Change) Later() (spec.Span, bool) {
	if !c.Before.hasStart() || !c.After.hasStart() {
		return 0, false
	}
	return c.After.Start.Sub(c.Before.Start), true
}

// Comparison is what a change does to the queue.
type Comparison struct {
	// Changes are the jobs whose outlook differs, in the order of their UIDs.
	Changes []Change
	// Same counts the waiting jobs whose outlook is the same on both sides.
	Same int
	// StartedBefore and StartedAfter count the jobs that start at once.
	StartedBefore, StartedAfter int
	// Both counts the jobs with a known start on both sides, Delay is the sum of
	// what the change delays them by.
	Both  int
	Delay spec.Span
	// Truncated tells that bf_max_job_test kept a pass from planning every job.
	Truncated bool
	After     *state.State // the changed state before its pass: it names nodes and jobs
}

// Compare runs a pass over the state as it is and over the changed one. kept is
// the plan in force: jobs keep the nodes that it promised them where they can. Only
// jobs that sees shows are compared and counted. Both states must be frozen.
func Compare(
	before, after *state.State,
	now spec.Instant,
	kept *view.Plan,
	sees func(*state.Job) bool,
) (*Comparison, error) {
	old, err := lookOut(before, now, kept)
	if err != nil {
		return nil, fmt.Errorf("plan without the change: %w", err)
	}
	changed, err := lookOut(after, now, kept)
	if err != nil {
		return nil, fmt.Errorf("plan with the change: %w", err)
	}
	comparison := &Comparison{Truncated: old.truncated || changed.truncated, After: after}
	for _, uid := range bothQueues(old, changed) {
		job := after.Job(uid)
		if job == nil {
			job = before.Job(uid)
		}
		if !sees(job) {
			continue
		}
		comparison.addChange(Change{UID: uid, Before: old.known[uid], After: changed.known[uid]})
	}
	return comparison, nil
}

// addChange counts a job in, and keeps it if its outlook differs.
func (c *Comparison) addChange(job Change) {
	if job.Before.Standing == Starting {
		c.StartedBefore++
	}
	if job.After.Standing == Starting {
		c.StartedAfter++
	}
	later, known := job.Later()
	if known {
		c.Both++
		c.Delay += later
	}
	moved := job.Before.Standing != job.After.Standing || later != 0
	switch {
	case moved:
		c.Changes = append(c.Changes, job)
	case job.Before.Standing != Running:
		c.Same++
	}
}

// outlooks is what a pass says of every job.
type outlooks struct {
	uids      []spec.JobUID // in order: of the jobs that wait or run
	known     map[spec.JobUID]Outlook
	truncated bool
}

// lookOut runs a pass and says what becomes of each job.
func lookOut(cluster *state.State, now spec.Instant, kept *view.Plan) (*outlooks, error) {
	pass, err := scheduler.Pass(cluster, now, scheduler.PassOptions{Plan: kept})
	if err != nil {
		return nil, err
	}
	out := &outlooks{known: map[spec.JobUID]Outlook{}, truncated: pass.Plan.Truncated}
	note := func(key uint64, _ struct{}) bool {
		uid := spec.JobUID(key)
		if _, seen := out.known[uid]; !seen {
			out.uids = append(out.uids, uid)
			out.known[uid] = standingOf(cluster.Job(uid))
		}
		return true
	}
	cluster.Waiting.Range(note)
	cluster.Active.Range(note)
	out.notePlan(pass.Plan)
	for i := range pass.Starts {
		out.noteStart(&pass.Starts[i], now)
	}
	for i := range pass.Preempts {
		victim := pass.Preempts[i].Victim.UID
		out.known[victim] = Outlook{Standing: Evicted}
	}
	for _, r := range pass.Reasons {
		if outlook, ok := out.known[r.UID]; ok && outlook.Standing >= Planned {
			outlook.Reason = r.Reason
			out.known[r.UID] = outlook
		}
	}
	slices.Sort(out.uids)
	return out, nil
}

// standingOf is what a job does before the pass.
func standingOf(job *state.Job) Outlook {
	if job.State == spec.Pending {
		return Outlook{Standing: Waiting, Reason: job.Reason}
	}
	return Outlook{Standing: Running}
}

// notePlan takes the first start that is planned for each job.
func (o *outlooks) notePlan(plan *view.Plan) {
	for i := range plan.Jobs {
		planned := &plan.Jobs[i]
		known := o.known[planned.UID]
		if known.Standing != Waiting && known.Start <= planned.Start {
			continue
		}
		known.Standing = Planned
		known.Start = planned.Start
		known.Nodes = planned.Nodes
		known.Partition = planned.Partition
		o.known[planned.UID] = known
	}
}

// noteStart takes a start that the pass makes.
func (o *outlooks) noteStart(start *scheduler.Start, now spec.Instant) {
	nodes := make([]spec.NodeID, 0, len(start.Alloc.Nodes))
	for i := range start.Alloc.Nodes {
		nodes = append(nodes, start.Alloc.Nodes[i].ID)
	}
	o.known[start.UID] = Outlook{
		Standing:  Starting,
		Start:     now,
		Nodes:     nodes,
		Partition: start.Alloc.Partition,
	}
}

// bothQueues are the jobs of either side, each once, in order.
func bothQueues(p, q *outlooks) []spec.JobUID {
	all := slices.Concat(p.uids, q.uids)
	slices.SortFunc(all, func(a, b spec.JobUID) int { return cmp.Compare(a, b) })
	return slices.Compact(all)
}
