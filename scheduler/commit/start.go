package commit

import (
	"fmt"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// Start is a proposal: this record (or task of it) starts with this
// allocation.
type Start struct {
	UID      spec.JobUID
	Task     int64 // of an array's record, or NoTask
	Alloc    *spec.Allocation
	Limit    spec.Span
	Backfill bool
	Priority uint32
	// Group is set in the first of so many starts that are made together or not
	// at all.
	Group int
}

// StartJob emits the events of a start and returns the record that runs: a task
// of an array gets one of its own.
func (d Changes) StartJob(start *Start) (spec.JobUID, error) {
	job := d.t.Job(start.UID)
	if start.Task != spec.NoTask {
		var err error
		job, err = d.SplitTask(job, start.Task)
		if err != nil {
			return 0, err
		}
	}
	if err := d.wakeNodes(start.Alloc); err != nil {
		return 0, err
	}
	if err := d.rebootFor(job, start.Alloc); err != nil {
		return 0, err
	}
	return job.UID, d.Emit(
		&event.JobStarted{UID: job.UID, Attempt: job.Attempt +
			1, Alloc: d.setLease(job, start.Alloc), Limit: start.Limit, Backfill: start.Backfill,
			Priority: start.Priority},
	)
}

// setLease gives an allocation the lease of its partition's jobs. A job that may not
// run again has none: nobody would gain by its end.
func (d Changes) setLease(job *state.Job, alloc *spec.Allocation) *spec.Allocation {
	policy := d.t.FencingOf(alloc.Partition)
	if policy.Kind != spec.FenceLease || !d.MayRequeue(job) {
		return alloc
	}
	allocation := *alloc
	allocation.Lease = policy.Lease + d.t.Config.Timing.KillWait
	return &allocation
}

// SplitTask gives an array's task a record of its own and returns it.
func (d Changes) SplitTask(job *state.Job, task int64) (*state.Job, error) {
	ev := &event.ArrayTaskSplit{Array: job.UID, Task: task, UID: job.UID, ID: job.ID}
	if job.Tasks.Len() > 1 {
		ev.UID, ev.ID = d.t.NextUID, d.NextJobID()
	}
	if err := d.Emit(ev); err != nil {
		return nil, err
	}
	return d.t.Job(ev.UID), nil
}

// NextJobID is the next number to show: numbers in use are skipped and the
// count starts again at FirstJobId beyond MaxJobId.
func (d Changes) NextJobID() spec.JobID {
	lim := &d.t.Config.Limits
	first := spec.JobID(max(lim.FirstJobID, 1))
	last := spec.JobID(lim.MaxJobID)
	if last == 0 {
		last = 0x03ff0000
	}
	id := max(d.t.NextID, first)
	for tries := 0; tries <= d.t.Jobs.Len(); tries++ {
		if id > last {
			id = first
		}
		if !d.t.ByID.Has(uint64(id)) {
			return id
		}
		id++
	}
	return id
}

// wakeNodes asks for the nodes of an allocation that are powered down.
func (d Changes) wakeNodes(allocation *spec.Allocation) error {
	var names []string
	for i := range allocation.Nodes {
		if node := d.t.NodeByID(allocation.Nodes[i].ID); node != nil &&
			node.Power == event.PoweredDown {
			names = append(names, node.Spec.Name)
		}
	}
	if names == nil {
		return nil
	}
	return d.Emit(&event.NodePowered{Nodes: names, To: event.PowerUpWish, Why: "a job"})
}

// rebootFor asks for a reboot of the nodes of an allocation for a job that wants
// them so, but for those that are powered up for it.
func (d Changes) rebootFor(job *state.Job, allocation *spec.Allocation) error {
	if !job.Spec.Queue.Reboot {
		return nil
	}
	for i := range allocation.Nodes {
		node := d.t.NodeByID(allocation.Nodes[i].ID)
		if node == nil || node.Asleep() || node.Reboot != nil {
			continue
		}
		if err := d.Emit(&event.NodeReboot{Node: node.Spec.Name, Phase: event.RebootWanted, ASAP: true, Reason: fmt.Sprintf("job %d", job.ID)}); err != nil {
			return err
		}
	}
	return nil
}
