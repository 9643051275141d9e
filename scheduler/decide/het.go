package decide

import (
	"errors"
	"fmt"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// hetCommands applies commands to all components of a heterogeneous job.
type hetCommands struct{ *decision }

// A heterogeneous job is several jobs with numbers in a row that wait, start,
// are preempted, held and queued again together. The first of them, the leader,
// has the batch script; when it ends, the others do.

// maxComponents bounds a heterogeneous job.
const maxComponents = 128

// submitHet accepts the components of a heterogeneous job, all or none.
func (d hetCommands) submitHet(list []*spec.JobSpec, request uint64) error {
	if len(list) > maxComponents {
		return spec.Refuse(spec.CodeBadRequest, fmt.Sprintf("%d components; at most %d are possible", len(list), maxComponents))
	}
	specs, evs := make([]spec.JobSpec, len(list)), make([]event.JobSubmitted, len(list))
	ids := d.nextIDs(len(list))
	for i := range list {
		js := &specs[i]
		*js = *list[i]
		if i > 0 {
			followLeader(js, &specs[0])
		}
		if js.Queue.Array != nil {
			return spec.Refuse(spec.CodeInvalidArray, "a heterogeneous job cannot be an array")
		}
		assoc, req, err := d.submission().resolveSpec(js, nil)
		if err == nil {
			err = d.submission().withinLimits(js, assoc, req, int64(len(list)))
		}
		if err != nil {
			return blameComponent(err, i)
		}
		evs[i] = event.JobSubmitted{UID: d.t.NextUID + spec.JobUID(i), ID: ids + spec.JobID(i), Spec: js, Req: req, Assoc: assoc,
			Reason: spec.Reason{Code: spec.ReasonNone}, Het: &spec.HetPart{Leader: d.t.NextUID, Offset: uint32(i), Size: uint32(len(list))}}
	}
	if err := d.submission().requireRoom(specs[0].UID); err != nil {
		return err
	}
	evs[0].Request = request
	for i := range evs {
		d.submission().firstReason(&evs[i])
		if i > 0 {
			evs[i].Reason, evs[i].Eligible = evs[0].Reason, evs[0].Eligible
		}
		if err := d.Emit(&evs[i]); err != nil {
			return err
		}
	}
	d.res.UID, d.res.ID = evs[0].UID, evs[0].ID
	return nil
}

// followLeader gives a component what all have from the leader.
func followLeader(js, leader *spec.JobSpec) {
	js.UID, js.GID, js.User, js.Group, js.Groups = leader.UID, leader.GID, leader.User, leader.Group, leader.Groups
	if js.Account == "" {
		js.Account = leader.Account
	}
	if js.Name == "" {
		js.Name = leader.Name
	}
	js.IO, js.Line, js.Host, js.Env, js.Args, js.Command = leader.IO, leader.Line, leader.Host, leader.Env, leader.Args, leader.Command
	js.Script, js.Shell = spec.Hash{}, true
	q, of := &js.Queue, &leader.Queue
	q.Hold, q.Requeue, q.Dependency = of.Hold, of.Requeue, nil // which the leader waits for
	js.Time.Begin, js.Time.Deadline = leader.Time.Begin, leader.Time.Deadline
}

// blameComponent says in a refusal which component it is about.
func blameComponent(err error, i int) error {
	var e *spec.Error
	if errors.As(err, &e) && e.Detail == "" {
		c := *e
		c.Detail = fmt.Sprintf("component %d", i)
		return &c
	}
	return err
}

// nextIDs is the first of so many free numbers in a row.
func (d hetCommands) nextIDs(n int) spec.JobID {
	first := d.NextJobID()
	for k := 0; k < n; k++ {
		if d.t.ByID.Has(uint64(first + spec.JobID(k))) {
			first, k = first+spec.JobID(k)+1, -1
		}
	}
	return first
}

// dispatchWhole carries out a command on a heterogeneous job for all of its
// components, and any other as it is.
func (d hetCommands) dispatchWhole(cmd Command) error {
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
		return d.dispatchCommand(cmd)
	}
	j := d.t.Job(t.UID)
	if j == nil || j.Het == nil {
		return d.dispatchCommand(cmd)
	}
	if c, ok := cmd.(Cancel); ok {
		return d.cancelHet(c, j)
	}
	if j.Het.Follows() {
		return spec.Refuse(spec.CodeJobNotAlterable, fmt.Sprintf("it is a component of heterogeneous job %d; use that job id", d.leaderID(j)))
	}
	if c, ok := cmd.(Requeue); ok {
		return d.requeueHet(c, j)
	}
	for i, c := range d.t.Components(j) {
		if err := d.dispatchCommand(retarget(cmd, c.UID)); err != nil && (i == 0 || spec.CodeOf(err) == 0) {
			return err
		}
	}
	return nil
}

func (d hetCommands) leaderID(j *state.Job) spec.JobID { return j.ID - spec.JobID(j.Het.Offset) }

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
func (d hetCommands) cancelHet(c Cancel, j *state.Job) error {
	leader := d.t.Job(j.Het.Leader)
	if j.Het.Follows() && leader != nil && (leader.Ended == d.t.Now || (leader.Ending != nil && !leader.Ending.Requeue)) {
		return nil // it went with its leader
	}
	if j.Het.Follows() && j.State == spec.Pending {
		return spec.Refuse(spec.CodeJobPending, fmt.Sprintf("it is a component of heterogeneous job %d, which is cancelled as a whole", d.leaderID(j)))
	}
	return d.dispatchCommand(c) // tellSiblings tells the others
}

// requeueHet queues all components again: those that run end first, as the
// leader does, and those that are over are queued with it.
func (d hetCommands) requeueHet(c Requeue, j *state.Job) error {
	all := d.t.Components(j)
	if len(all) < int(j.Het.Size) {
		return spec.Refuse(spec.CodeJobNotAlterable, "a component of it has already been removed")
	}
	for _, o := range all {
		if o.Completing() {
			return spec.Refuse(spec.CodeJobNotAlterable, "a component of it is still completing")
		}
	}
	return d.dispatchCommand(c) // tellSiblings tells the others
}
