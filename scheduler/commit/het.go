package commit

import (
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// LeaderOf is the uid of the leader of a component; its own for another job.
func LeaderOf(job *state.Job) spec.JobUID {
	if job.Het == nil {
		return job.UID
	}
	return job.Het.Leader
}

// tellLeader lets the leader of a heterogeneous job end because this component did:
// with a lost node under a running leader, and never started under a pending one.
func (d Changes) tellLeader(job *state.Job, e *event.JobEnded) error {
	leader := d.t.Job(LeaderOf(job))
	if leader == nil {
		return nil
	}
	if e.State == spec.NodeFailed && leader.GoesOn() {
		// Which tells the other components.
		return d.RequestEnd(leader, event.EndNodeLost, false, spec.NotHeld, e.Reason.Detail)
	}
	if leader.State == spec.Pending && !job.HoldsNodes() {
		return d.Emit(&event.JobEnded{
			UID: leader.UID, Attempt: leader.Attempt, State: e.State, Reason: e.Reason, By: e.By,
		})
	}
	return nil
}

// tellSiblings lets the components of a heterogeneous job share its fate: all
// end with the leader, and all are queued again if one is.
func (d Changes) tellSiblings(ev event.Event) error {
	switch e := ev.(type) {
	case *event.JobEnded:
		job := d.t.Job(e.UID)
		if job.Het.Follows() {
			return d.tellLeader(job, e)
		}
		if !job.Het.Leads() {
			return nil
		}
		for _, component := range d.t.Components(job)[1:] {
			var err error
			switch {
			case component.State == spec.Pending:
				err = d.Emit(
					&event.JobEnded{
						UID:     component.UID,
						Attempt: component.Attempt,
						State:   e.State,
						Reason:  e.Reason,
						By:      e.By,
					},
				)
			case component.State.Active() && (component.Ending == nil || component.Ending.Requeue):
				err = d.RequestEnd(component, event.EndLeader, false, spec.NotHeld, "")
			}
			if err != nil {
				return err
			}
		}
	case *event.JobRequeued:
		if err := d.waitTogether(e.UID); err != nil {
			return err
		}
		return d.holdTogether(e.UID)
	case *event.JobNodeDone:
		return d.waitTogether(e.UID)
	case *event.JobUpdated:
		return d.holdTogether(e.UID)
	case *event.JobEndRequested:
		job := d.t.Job(e.UID)
		if job.Het == nil || (!job.Het.Leads() && !e.Requeue && e.Cause != event.EndPreempt) {
			return nil // a component may be cancelled alone
		}
		for _, component := range d.t.Components(job) {
			component = d.t.Job(component.UID)
			// An end for good replaces one that would queue the component again.
			told := component.Ending != nil && (e.Requeue || !component.Ending.Requeue)
			if component.UID == job.UID || !component.State.Active() || told {
				continue
			}
			if err := d.Emit(&event.JobEndRequested{UID: component.UID, Attempt: component.Attempt,
				Cause: e.Cause, By: e.By, Requeue: e.Requeue, Hold: e.Hold,
				Detail: e.Detail, Grace: e.Grace, For: e.For}); err != nil {
				return err
			}
		}
	}
	return nil
}

// waitTogether queues components again that are over, one of which may have been cancelled
// alone, where their leader waits: it starts with all of them. One that still has nodes is
// queued when it has given them back.
func (d Changes) waitTogether(uid spec.JobUID) error {
	job := d.t.Job(uid)
	if leader := d.t.Job(LeaderOf(job)); job.Het == nil || leader == nil ||
		leader.State != spec.Pending {
		return nil
	}
	for _, component := range d.t.Components(job) {
		component = d.t.Job(component.UID)
		if !component.State.Terminal() || component.HoldsNodes() {
			continue // or was queued with one before it
		}
		if err := d.RequeueJob(component, spec.Pending, spec.NotHeld, false); err != nil {
			return err
		}
	}
	return nil
}

// holdTogether holds all waiting components of a heterogeneous job if one of them is held, as
// the strictest hold says: one may have been queued again too often, or end for another reason
// than the others did.
func (d Changes) holdTogether(uid spec.JobUID) error {
	waiting := slices.DeleteFunc(
		d.t.Components(d.t.Job(uid)),
		func(c *state.Job) bool { return c.State != spec.Pending },
	)
	by := spec.NotHeld
	for _, component := range waiting {
		by = max(by, component.Hold)
	}
	for _, component := range waiting {
		if component.Hold < by {
			if err := d.Emit(&event.JobHeld{UID: component.UID, By: by}); err != nil {
				return err
			}
		}
	}
	return nil
}
