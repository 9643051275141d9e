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
		for _, c := range d.t.Components(job)[1:] {
			var err error
			switch {
			case c.State == spec.Pending:
				err = d.Emit(&event.JobEnded{UID: c.UID, Attempt: c.Attempt, State: e.State, Reason: e.Reason, By: e.By})
			case c.State.Active() && (c.Ending == nil || c.Ending.Requeue):
				err = d.RequestEnd(c, event.EndLeader, false, spec.NotHeld, "")
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
		j := d.t.Job(e.UID)
		if j.Het == nil || (!j.Het.Leads() && !e.Requeue && e.Cause != event.EndPreempt) {
			return nil // a component may be cancelled alone
		}
		for _, c := range d.t.Components(j) {
			c = d.t.Job(c.UID)
			// An end for good replaces one that would queue the component again.
			told := c.Ending != nil && (e.Requeue || !c.Ending.Requeue)
			if c.UID == j.UID || !c.State.Active() || told {
				continue
			}
			if err := d.Emit(&event.JobEndRequested{UID: c.UID, Attempt: c.Attempt, Cause: e.Cause, By: e.By, Requeue: e.Requeue, Hold: e.Hold,
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
	for _, c := range d.t.Components(job) {
		c = d.t.Job(c.UID)
		if !c.State.Terminal() || c.HoldsNodes() {
			continue // or was queued with one before it
		}
		if err := d.RequeueJob(c, spec.Pending, spec.NotHeld, false); err != nil {
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
	for _, c := range waiting {
		by = max(by, c.Hold)
	}
	for _, c := range waiting {
		if c.Hold < by {
			if err := d.Emit(&event.JobHeld{UID: c.UID, By: by}); err != nil {
				return err
			}
		}
	}
	return nil
}
