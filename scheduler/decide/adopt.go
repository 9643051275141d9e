package decide

import (
	"fmt"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// AdoptRun takes a run of a lost history into the ledger: its job runs from then on as if
// this history had started it. All of it is what the lost ledger said of the job, as the nodes
// kept it.
type AdoptRun struct {
	Submitted event.JobSubmitted
	Started   event.JobStarted // with the uid, attempt and allocation of the run
	// Job and Run are what becomes Adopted of the two.
	Job event.AdoptedJob
	Run event.AdoptedRun
	// Array and Task name the task of an array that the run is; Array 0: it is none.
	Array spec.JobID
	Task  int64
}

// adoptRun starts a job with what a run of it holds. It refuses whatever would make the ledger
// say of one job what is true of another, or two jobs of what one holds.
func (d jobCommands) adoptRun(command AdoptRun) error {
	submitted, started := command.Submitted, command.Started
	submitted.Adopted, started.Adopted = &command.Job, &command.Run
	if err := d.checkAdoptable(&command); err != nil {
		return err
	}
	var err error
	started.Alloc, err = d.allocationHere(started.Alloc)
	if err != nil {
		return err
	}
	known := d.t.Job(started.UID)
	events := []event.Event{&started}
	switch {
	case known != nil:
		if err := d.checkKnown(known, &command); err != nil {
			return err
		}
		if known.Hold != spec.NotHeld {
			events = []event.Event{&event.JobReleased{UID: known.UID}, &started}
		}
	case !d.t.IsLostUID(started.UID):
		return refuseAdoption(
			"this ledger has given the run's identity to another job since",
		)
	default:
		if err := d.describeAgain(&submitted, &command); err != nil {
			return err
		}
		events = []event.Event{&submitted, &started}
	}
	if err := d.tryEvents(events); err != nil {
		return refuseAdoption(err.Error())
	}
	for _, ev := range events {
		if err := d.Emit(ev); err != nil {
			return err
		}
	}
	job := d.t.Job(started.UID)
	d.res.UID, d.res.ID = job.UID, job.ID
	return nil
}

// refuseAdoption says why a run stays what it is, and what can be done with it.
func refuseAdoption(why string) error {
	return spec.Refuse(spec.CodeBadRequest,
		"the run cannot be adopted: "+why+"; let it run to its end, or end it with muster runs kill")
}

// checkAdoptable refuses runs of which more is needed than their nodes know.
func (d jobCommands) checkAdoptable(command *AdoptRun) error {
	job := command.Submitted.Spec
	switch {
	case job == nil || command.Started.Alloc == nil || command.Run.Epoch == 0:
		return refuseAdoption("its node does not know enough of its job")
	case d.t.HasSeen(command.Run.Epoch, command.Run.Seq):
		return refuseAdoption("it was started by this history")
	case job.Runner() != spec.ByAgents || job.Shell:
		return refuseAdoption("it has no batch script, and whoever waited for it is gone")
	case command.Submitted.Het != nil:
		return refuseAdoption("it is a component of a heterogeneous job, whose others are not known")
	case command.Run.At > d.t.Now:
		return refuseAdoption("it began later than now by the clock of this host")
	}
	array := d.t.JobByID(command.Array)
	if command.Array != 0 && array != nil && array.Spec.UID == job.UID &&
		array.Tasks.Has(command.Task) {
		return refuseAdoption(fmt.Sprintf(
			"task %d of array %d waits here and would run a second time (scancel %d_%d ends that)",
			command.Task, command.Array, command.Array, command.Task,
		))
	}
	return nil
}

// allocationHere is an allocation of a lost history with the node ids of this one.
func (d jobCommands) allocationHere(lost *spec.Allocation) (*spec.Allocation, error) {
	allocation := *lost
	allocation.Nodes = slices.Clone(lost.Nodes)
	for i := range allocation.Nodes {
		node := d.t.Node(allocation.Nodes[i].Name)
		if node == nil || node.Removed {
			return nil, refuseAdoption("node " + allocation.Nodes[i].Name +
				" is not configured (put it back and run scontrol reconfigure)")
		}
		if i > 0 && node.ID <= allocation.Nodes[i-1].ID {
			return nil, refuseAdoption("its nodes have another order in this configuration")
		}
		allocation.Nodes[i].ID = node.ID
	}
	if d.t.Parts.Find(allocation.Partition) == nil {
		return nil, refuseAdoption("partition " + allocation.Partition +
			" does not exist (put it back and run scontrol reconfigure)")
	}
	return &allocation, nil
}

// checkKnown refuses to take a run for one of a job that the ledger has and that the lost
// history started later, unless it is that job and has not been started here.
func (d jobCommands) checkKnown(job *state.Job, command *AdoptRun) error {
	submitted := &command.Submitted
	switch {
	case job.ID != submitted.ID || job.Submitted != command.Job.At ||
		job.Spec.UID != submitted.Spec.UID || job.Spec.Script != submitted.Spec.Script:
		return refuseAdoption("this ledger has given the run's identity to another job since")
	case job.State.Active():
		return refuseAdoption(fmt.Sprintf("job %d runs here as another attempt (scancel %d ends that)",
			job.ID, job.ID))
	case job.State != spec.Pending:
		return refuseAdoption(fmt.Sprintf("job %d is %s here", job.ID, job.State))
	case job.IsArrayRecord() || !(&event.JobStarted{
		Attempt: command.Started.Attempt,
		Adopted: &command.Run,
	}).Follows(job.Attempt):
		return refuseAdoption(fmt.Sprintf("job %d has had a later attempt here", job.ID))
	}
	return nil
}

// describeAgain completes a job that the ledger lost with what holds now: its association, and a
// number that no other job has.
func (d jobCommands) describeAgain(submitted *event.JobSubmitted, command *AdoptRun) error {
	job := *submitted.Spec
	submitted.Spec = &job
	job.Queue.Array = nil      // the array itself is lost: the task goes on by itself
	job.Queue.Dependency = nil // it was met when the attempt started
	job.Queue.Hold = spec.NotHeld
	qos := job.QOS
	if command.Started.Alloc.QOS != "" {
		qos = command.Started.Alloc.QOS
	}
	if qos != "" && d.t.Policy.FindQOS(qos) == nil {
		return refuseAdoption("QOS " + qos + " does not exist (put it back with sacctmgr)")
	}
	job.SetQOS([]string{qos})
	job.Partitions = []string{command.Started.Alloc.Partition}
	var err error
	submitted.Assoc, err = d.submission().resolveAccount(&job)
	if err != nil {
		return refuseAdoption(fmt.Sprintf(
			"user %s has no association with account %s (put it back with sacctmgr)",
			job.User, job.Account,
		))
	}
	if !d.t.IsLostID(submitted.ID) {
		submitted.ID = d.NextJobID()
	}
	submitted.Reason = spec.Reason{Code: spec.ReasonNone}
	submitted.Request = 0
	submitted.ByScript = nil
	submitted.NoAccrue = false
	return nil
}

// tryEvents folds events into a copy of the state: what they take may be in use here.
func (d jobCommands) tryEvents(events []event.Event) error {
	probe := trial.On(d.t.State.Freeze().Draft(), d.t.Now, d.t.Actor, "adopt")
	for _, ev := range events {
		if err := probe.Emit(ev); err != nil {
			return err
		}
	}
	return nil
}
