package scheduler

import (
	"errors"
	"fmt"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/limits"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// A heterogeneous job is several jobs with numbers in a row that wait, start,
// are preempted, held and queued again together. The first of them, the leader,
// has the batch script; when it ends, the others do.

// maxComponents bounds a heterogeneous job.
const maxComponents = 128

// submitHet accepts the components of a heterogeneous job, all or none.
func (d *decision) submitHet(list []*spec.JobSpec) error {
	if len(list) > maxComponents {
		return spec.Refuse(spec.CodeBadRequest, fmt.Sprintf("%d components; at most %d are possible", len(list), maxComponents))
	}
	specs, evs := make([]spec.JobSpec, len(list)), make([]event.JobSubmitted, len(list))
	ids := d.nextIDs(len(list))
	for i := range list {
		js := &specs[i]
		*js = *list[i]
		if i > 0 {
			follow(js, &specs[0])
		}
		if js.Queue.Array != nil {
			return spec.Refuse(spec.CodeInvalidArray, "a heterogeneous job cannot be an array")
		}
		assoc, req, err := d.resolve(js, nil)
		if err == nil {
			err = d.withinLimits(js, assoc, req, int64(len(list)))
		}
		if err != nil {
			return component(err, i)
		}
		evs[i] = event.JobSubmitted{UID: d.t.NextUID + spec.JobUID(i), ID: ids + spec.JobID(i), Spec: js, Req: req, Assoc: assoc,
			Reason: spec.Reason{Code: spec.ReasonNone}, Het: &spec.HetPart{Leader: d.t.NextUID, Offset: uint32(i), Size: uint32(len(list))}}
	}
	if err := d.room(); err != nil {
		return err
	}
	for i := range evs {
		if d.firstReason(&evs[i]); i > 0 {
			evs[i].Reason, evs[i].Eligible = evs[0].Reason, evs[0].Eligible
		}
		if err := d.emit(&evs[i]); err != nil {
			return err
		}
	}
	d.res.UID, d.res.ID = evs[0].UID, evs[0].ID
	return nil
}

// follow gives a component what all have from the leader.
func follow(js, leader *spec.JobSpec) {
	js.UID, js.GID, js.User, js.Group, js.Groups = leader.UID, leader.GID, leader.User, leader.Group, leader.Groups
	if js.Account == "" {
		js.Account = leader.Account
	}
	js.Name, js.IO, js.Line, js.Host, js.Env, js.Args, js.Command = leader.Name, leader.IO, leader.Line, leader.Host, leader.Env, leader.Args, leader.Command
	js.Script, js.Shell = spec.Hash{}, true
	q, of := &js.Queue, &leader.Queue
	q.Hold, q.Requeue, q.Dependency = of.Hold, of.Requeue, nil // which the leader waits for
	js.Time.Begin, js.Time.Deadline = leader.Time.Begin, leader.Time.Deadline
}

// component says in a refusal which component it is about.
func component(err error, i int) error {
	var e *spec.Error
	if errors.As(err, &e) && e.Detail == "" {
		c := *e
		c.Detail = fmt.Sprintf("component %d", i)
		return &c
	}
	return err
}

// nextIDs is the first of so many free numbers in a row.
func (d *decision) nextIDs(n int) spec.JobID {
	first := d.nextID()
	for k := 0; k < n; k++ {
		if d.t.ByID.Has(uint64(first + spec.JobID(k))) {
			first, k = first+spec.JobID(k)+1, -1
		}
	}
	return first
}

// leaderOf is the uid of the leader of a component; its own for another job.
func leaderOf(j *state.Job) spec.JobUID {
	if j.Het == nil {
		return j.UID
	}
	return j.Het.Leader
}

// dispatchWhole carries out a command on a heterogeneous job for all of its
// components, and any other as it is.
func (d *decision) dispatchWhole(cmd Command) error {
	var t Target
	switch c := cmd.(type) {
	case Cancel:
		t = c.Target
	case Hold:
		t = c.Target
	case Release:
		t = c.Target
	case Requeue:
		t = c.Target
	case Suspend:
		t = c.Target
	case Resume:
		t = c.Target
	default:
		return d.dispatch(cmd)
	}
	j := d.t.Job(t.UID)
	if j == nil || j.Het == nil {
		return d.dispatch(cmd)
	}
	if c, ok := cmd.(Cancel); ok {
		return d.cancelHet(c, j)
	}
	if j.Het.Follows() {
		return spec.Refuse(spec.CodeJobNotAlterable, fmt.Sprintf("it is a component of heterogeneous job %d: name that", d.leaderID(j)))
	}
	if c, ok := cmd.(Requeue); ok {
		return d.requeueHet(c, j)
	}
	for i, c := range d.t.Components(j) {
		if err := d.dispatch(retarget(cmd, c.UID)); err != nil && (i == 0 || spec.CodeOf(err) == 0) {
			return err
		}
	}
	return nil
}

func (d *decision) leaderID(j *state.Job) spec.JobID { return j.ID - spec.JobID(j.Het.Offset) }

// retarget is a command of dispatchWhole about another job.
func retarget(cmd Command, uid spec.JobUID) Command {
	t := Target{UID: uid, Task: spec.NoTask}
	switch c := cmd.(type) {
	case Hold:
		c.Target = t
		return c
	case Release:
		c.Target = t
		return c
	case Suspend:
		c.Target = t
		return c
	case Resume:
		c.Target = t
		return c
	}
	return cmd
}

// cancelHet cancels a component that runs alone, and all with the leader. A
// component that waits cannot go without the others.
func (d *decision) cancelHet(c Cancel, j *state.Job) error {
	leader := d.t.Job(j.Het.Leader)
	if j.Het.Follows() && leader != nil && (leader.Ended == d.t.Now || (leader.Ending != nil && !leader.Ending.Requeue)) {
		return nil // it went with its leader
	}
	if j.Het.Follows() && j.State == spec.Pending {
		return spec.Refuse(spec.CodeJobPending, fmt.Sprintf("it is a component of heterogeneous job %d, which is cancelled as a whole", d.leaderID(j)))
	}
	return d.dispatch(c) // tellSiblings tells the others
}

// requeueHet queues all components again: those that run end first, as the
// leader does, and those that are over are queued with it.
func (d *decision) requeueHet(c Requeue, j *state.Job) error {
	all := d.t.Components(j)
	if len(all) < int(j.Het.Size) {
		return spec.Refuse(spec.CodeJobNotAlterable, "a component of it is forgotten already")
	}
	for _, o := range all {
		if o.Completing() {
			return spec.Refuse(spec.CodeJobNotAlterable, "a component of it is still completing")
		}
	}
	return d.dispatch(c) // tellSiblings tells the others
}

// mayRequeue tells whether a job may be run again on its own account: a batch
// job, or a component of one.
func (d *decision) mayRequeue(j *state.Job) bool {
	return (!j.Spec.Shell || j.Het.Follows()) && j.Spec.Queue.Requeue.Or(d.t.Config.Limits.JobRequeue)
}

// tellSiblings lets the components of a heterogeneous job share its fate: all
// end with the leader, and all are queued again if one is.
func (d *decision) tellSiblings(ev event.Event) error {
	switch e := ev.(type) {
	case *event.JobEnded:
		j := d.t.Job(e.UID)
		if leader := d.t.Job(leaderOf(j)); j.Het.Follows() && e.State == spec.NodeFailed && leader != nil && leader.State.Active() && leader.Ending == nil {
			return d.end(leader, event.EndNodeLost, false, spec.NotHeld, e.Reason.Detail) // which tells the others
		}
		if leader := d.t.Job(leaderOf(j)); j.Het.Follows() && leader != nil && leader.State == spec.Pending && !j.HoldsNodes() {
			return d.emit(&event.JobEnded{UID: leader.UID, Attempt: leader.Attempt, State: e.State, Reason: e.Reason, By: e.By})
		}
		if !j.Het.Leads() {
			return nil
		}
		for _, c := range d.t.Components(j)[1:] {
			var err error
			switch {
			case c.State == spec.Pending:
				err = d.emit(&event.JobEnded{UID: c.UID, Attempt: c.Attempt, State: e.State, Reason: e.Reason, By: e.By})
			case c.State.Active() && (c.Ending == nil || c.Ending.Requeue):
				err = d.end(c, event.EndLeader, false, spec.NotHeld, "")
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
			if c = d.t.Job(c.UID); c.UID == j.UID || !c.State.Active() || (c.Ending != nil && (e.Requeue || !c.Ending.Requeue)) {
				continue
			}
			if err := d.emit(&event.JobEndRequested{UID: c.UID, Attempt: c.Attempt, Cause: e.Cause, By: e.By, Requeue: e.Requeue, Hold: e.Hold,
				Detail: e.Detail, Grace: e.Grace, For: e.For}); err != nil {
				return err
			}
		}
	}
	return nil
}

// waitTogether queues components again that are over, one of which may have been cancelled alone, where their leader
// waits: it starts with all of them. One that still has nodes is queued when it has given them back.
func (d *decision) waitTogether(uid spec.JobUID) error {
	j := d.t.Job(uid)
	if leader := d.t.Job(leaderOf(j)); j.Het == nil || leader == nil || leader.State != spec.Pending {
		return nil
	}
	for _, c := range d.t.Components(j) {
		if c = d.t.Job(c.UID); !c.State.Terminal() || c.HoldsNodes() {
			continue // or was queued with one before it
		}
		if err := d.queueAgain(c, spec.Pending, spec.NotHeld, false); err != nil {
			return err
		}
	}
	return nil
}

// holdTogether holds all waiting components of a heterogeneous job if one of them is held, as the strictest hold
// says: one may have been queued again too often, or end for another reason than the others did.
func (d *decision) holdTogether(uid spec.JobUID) error {
	waiting := slices.DeleteFunc(d.t.Components(d.t.Job(uid)), func(c *state.Job) bool { return c.State != spec.Pending })
	by := spec.NotHeld
	for _, c := range waiting {
		by = max(by, c.Hold)
	}
	for _, c := range waiting {
		if c.Hold < by {
			if err := d.emit(&event.JobHeld{UID: c.UID, By: by}); err != nil {
				return err
			}
		}
	}
	return nil
}

// startTogether commits the starts of the components of a heterogeneous job,
// all or none.
func (d *decision) startTogether(list []Start) error {
	try := &decision{t: trial.On(d.t.Freeze().Fork(), d.t.Now, d.t.Actor, "schedule")}
	for i := range list {
		if !try.current(&list[i]) {
			d.res.Stale += len(list)
			return nil
		}
		if _, err := try.begin(&list[i]); err != nil {
			return err
		}
	}
	for i := range list {
		if _, err := d.begin(&list[i]); err != nil {
			return err
		}
		d.res.Started++
	}
	return nil
}

// boundIn finds the limits of a job in a state that it is tried on.
func boundIn(st *state.State, l *lot, j *state.Job, now spec.Instant) limits.Bound {
	return limits.Find(st, limits.Subject{Job: l.as(j).Spec, Part: l.part.Spec, Assoc: j.Assoc, Now: now})
}
