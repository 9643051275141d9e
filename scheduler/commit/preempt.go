package commit

import (
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/scheduler/preempt"
	"github.com/musterhpc/muster/spec"
)

// Preempt is a proposal: a running job is told to end, so that a waiting one
// can start.
type Preempt struct {
	For spec.JobUID
	// By is the component that outranks the victim, where For leads a
	// heterogeneous job; else 0.
	By        spec.JobUID
	Partition string // where the waiting job is to start
	QOS       string // in which it is to start, of several; else empty
	Priority  uint32 // of the waiting job
	Victim    preempt.Victim
	Room      spec.Bitset // the nodes where it is to start; with one of its victims
	// After is how many of the outcome's starts come before it.
	After int
}

// PreemptJob tells a victim to end, or to stand still.
func (d Changes) PreemptJob(pr *Preempt) error {
	victim := &pr.Victim
	if victim.Mode == preempt.Suspend {
		return d.Emit(
			&event.JobSuspended{
				UID:     victim.UID,
				Attempt: victim.Attempt,
				Yields:  true,
				Auto:    true,
				For:     pr.For,
				Room:    pr.Room,
			},
		)
	}
	return d.Emit(
		&event.JobEndRequested{
			UID:     victim.UID,
			Attempt: victim.Attempt,
			Cause:   event.EndPreempt,
			Requeue: victim.Mode == preempt.Requeue,
			For:     pr.For,
			Grace:   victim.Grace,
			Room:    pr.Room,
		},
	)
}
