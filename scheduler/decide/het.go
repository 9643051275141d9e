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
func (d hetCommands) submitHet(list []*spec.JobSpec, command Submit) error {
	if len(list) > maxComponents {
		return spec.Refuse(
			spec.CodeBadRequest,
			fmt.Sprintf("%d components; at most %d are possible", len(list), maxComponents),
		)
	}
	specs, evs := make([]spec.JobSpec, len(list)), make([]event.JobSubmitted, len(list))
	ids := d.nextIDs(len(list))
	for i := range list {
		jobSpec := &specs[i]
		*jobSpec = *list[i]
		if i > 0 {
			followLeader(jobSpec, &specs[0])
		}
		if jobSpec.Queue.Array != nil {
			return spec.Refuse(spec.CodeInvalidArray, "a heterogeneous job cannot be an array")
		}
		assoc, request, err := d.submission().resolveSpec(jobSpec, nil)
		if err != nil {
			return blameComponent(err, i)
		}
		evs[i] = event.JobSubmitted{
			UID:   d.t.NextUID + spec.JobUID(i),
			ID:    ids + spec.JobID(i),
			Spec:  jobSpec,
			Req:   request,
			Assoc: assoc,
			Reason: spec.Reason{
				Code: spec.ReasonNone,
			},
			Het: &spec.HetPart{Leader: d.t.NextUID, Offset: uint32(i), Size: uint32(len(list))},
		}
	}
	for i := range evs {
		beside := besidePods(evs, i)
		err := d.submission().withinLimits(evs[i].Spec, evs[i].Assoc, evs[i].Req, int64(len(list)), beside)
		if err != nil {
			return blameComponent(err, i)
		}
	}
	if err := d.submission().requireRoom(specs[0].UID); err != nil {
		return err
	}
	evs[0].Request = command.Request
	evs[0].ByScript = command.ByScript
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

// besidePods is what the rest of a gang of pods requests beside one of its components.
func besidePods(evs []event.JobSubmitted, at int) spec.TRES {
	var sum spec.TRES
	for i := range evs {
		if i != at && evs[i].Spec.Pods != nil {
			sum = sum.Add(evs[i].Req)
		}
	}
	return sum
}

// followLeader gives a component what all have from the leader.
func followLeader(jobSpec, leader *spec.JobSpec) {
	jobSpec.UID = leader.UID
	jobSpec.GID = leader.GID
	jobSpec.User = leader.User
	jobSpec.Group = leader.Group
	jobSpec.Groups = leader.Groups
	if jobSpec.Account == "" {
		jobSpec.Account = leader.Account
	}
	if jobSpec.Name == "" {
		jobSpec.Name = leader.Name
	}
	jobSpec.IO = leader.IO
	jobSpec.Line = leader.Line
	jobSpec.Host = leader.Host
	jobSpec.Env = leader.Env
	jobSpec.Args = leader.Args
	jobSpec.Command = leader.Command
	jobSpec.Script, jobSpec.Shell = spec.Hash{}, true
	ask, of := &jobSpec.Queue, &leader.Queue
	ask.Hold = of.Hold
	ask.Requeue = of.Requeue
	ask.Dependency = nil // which the leader waits for
	jobSpec.Time.Begin, jobSpec.Time.Deadline = leader.Time.Begin, leader.Time.Deadline
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
func (d hetCommands) dispatchWhole(command Command) error {
	var target Target
	switch c := command.(type) {
	case Cancel:
		target = c.Target
	case Hold:
		target = c.Target
	case Release:
		target = c.Target
	case Requeue:
		target = c.Target
	case Suspend:
		target = c.Target
	case Resume:
		target = c.Target
	default:
		return d.dispatchCommand(command)
	}
	job := d.t.Job(target.UID)
	if job == nil || job.Het == nil {
		return d.dispatchCommand(command)
	}
	if c, ok := command.(Cancel); ok {
		return d.cancelHet(c, job)
	}
	if job.Het.Follows() {
		return spec.Refuse(
			spec.CodeJobNotAlterable,
			fmt.Sprintf(
				"it is a component of heterogeneous job %d; use that job id",
				d.leaderID(job),
			),
		)
	}
	if c, ok := command.(Requeue); ok {
		return d.requeueHet(c, job)
	}
	for i, component := range d.t.Components(job) {
		if err := d.dispatchCommand(retarget(command, component.UID)); err != nil &&
			(i == 0 || spec.CodeOf(err) == 0) {
			return err
		}
	}
	return nil
}

func (d hetCommands) leaderID(job *state.Job) spec.JobID {
	return job.ID - spec.JobID(job.Het.Offset)
}

// retarget is a command of dispatchWhole about another job.
func retarget(command Command, uid spec.JobUID) Command {
	target := Target{UID: uid, Task: spec.NoTask}
	switch c := command.(type) {
	case Hold:
		c.Target = target
		return c
	case Release:
		c.Target = target
		return c
	case Suspend:
		c.Target = target
		return c
	case Resume:
		c.Target = target
		return c
	}
	return command
}

// cancelHet cancels a component that runs alone, and all with the leader. A
// component that waits cannot go without the others.
func (d hetCommands) cancelHet(cancel Cancel, job *state.Job) error {
	leader := d.t.Job(job.Het.Leader)
	if job.Het.Follows() && leader != nil {
		endsForGood := leader.Ending != nil && !leader.Ending.Requeue
		if endsForGood || leader.HeardEnd() == d.t.Now {
			return nil // it went with its leader
		}
	}
	if job.Het.Follows() && job.State == spec.Pending {
		return spec.Refuse(
			spec.CodeNotWholeHetJob,
			fmt.Sprintf(
				"it is a component of heterogeneous job %d, which is cancelled as a whole",
				d.leaderID(job),
			),
		)
	}
	return d.dispatchCommand(cancel) // tellSiblings tells the others
}

// requeueHet queues all components again: those that run end first, as the
// leader does, and those that are over are queued with it.
func (d hetCommands) requeueHet(command Requeue, job *state.Job) error {
	all := d.t.Components(job)
	if len(all) < int(job.Het.Size) {
		return spec.Refuse(spec.CodeJobNotAlterable, "a component of it has already been removed")
	}
	for _, other := range all {
		if other.Completing() {
			return spec.Refuse(spec.CodeJobNotAlterable, "a component of it is still completing")
		}
	}
	return d.dispatchCommand(command) // tellSiblings tells the others
}
