package scheduler

import (
	"fmt"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// decision is one command being decided.
type decision struct {
	t   *trial.Trial
	res Result
}

// Decide turns a command into events, folded into the trial's state at once.
// A refusal is a *spec.Error and leaves no event behind; any other error is a
// broken rule, after which the trial must be dropped.
func Decide(t *trial.Trial, cmd Command) (Result, error) {
	t.Cause = event.Cause{Command: cmd.command()}
	d := &decision{t: t}
	before := len(t.Events)
	err := d.dispatchWhole(cmd)
	if err != nil && spec.CodeOf(err) != 0 && len(t.Events) != before {
		return d.res, fmt.Errorf("%s was refused after it had changed something: %v", cmd.command(), err)
	}
	return d.res, err
}

//muster:table one case for each command
func (d *decision) dispatch(cmd Command) error {
	switch c := cmd.(type) {
	case Submit:
		if len(c.Rest) > 0 {
			return d.submitHet(append([]*spec.JobSpec{c.Spec}, c.Rest...))
		}
		return d.submit(c.Spec)
	case Cancel:
		return d.cancel(c)
	case Hold:
		return d.hold(c)
	case Release:
		return d.release(c)
	case Requeue:
		return d.requeue(c)
	case Suspend:
		return d.suspend(c)
	case Resume:
		return d.resume(c)
	case UpdateJob:
		return d.updateJob(c)
	case UpdateNode:
		return d.updateNode(c)
	case UpdatePartition:
		return d.updatePartition(c)
	case ChangeNodes:
		return d.amendNodes(c)
	case CreatePartition:
		return d.createPartition(c)
	case DeletePartition:
		return d.deletePartition(c)
	case CreateNodes:
		return d.createNodes(c.Nodes)
	case DeleteNodes:
		return d.deleteNodes(c)
	case PowerNodes:
		return d.powerNodes(c)
	case RebootNodes:
		return d.rebootNodes(c)
	case CancelReboots:
		return d.cancelReboots(c)
	case RegisterNode:
		return d.register(c)
	case NodeSilent:
		return d.silent(c)
	case NodeHeard:
		return d.heard(c)
	case Report:
		return d.report(c)
	case EpilogOver:
		return d.epilogOver(c)
	case PrologOver:
		return d.prologOver(c)
	case CheckReport:
		return d.checkReport(c)
	case GPUReport:
		return d.gpuReport(c)
	case Configure:
		return d.configure(c)
	case Policy:
		return d.policy(c)
	case SpendToken:
		return d.spendToken(c)
	case IssueCertificate:
		return d.issueCertificate(c)
	case RevokeHost:
		return d.revokeHost(c)
	case CreateReservation:
		return d.createReservation(c)
	case UpdateReservation:
		return d.updateReservation(c)
	case DeleteReservation:
		return d.deleteReservation(c)
	case StartStep:
		return d.startStep(c)
	case EndStep:
		return d.endStep(c)
	case EndJob:
		return d.endJob(c)
	case Tick:
		return d.tick(c)
	case Starts:
		return d.commit(c.Outcome)
	}
	return fmt.Errorf("unknown command %T", cmd)
}

func (d *decision) emit(ev event.Event) error {
	switch e := ev.(type) {
	case *event.JobEnded:
		e.Epilog = d.owesEpilog(e.UID)
	case *event.JobRequeued:
		e.Epilog = d.owesEpilog(e.UID)
	}
	if err := d.t.Emit(ev); err != nil {
		return err
	}
	if err := d.tellSiblings(ev); err != nil {
		return err
	}
	return d.neverRan(ev)
}

// nextID is the next number to show: numbers in use are skipped and the
// count starts again at FirstJobId beyond MaxJobId.
func (d *decision) nextID() spec.JobID {
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

// split gives an array's task a record of its own and returns it.
func (d *decision) split(j *state.Job, task int64) (*state.Job, error) {
	ev := &event.ArrayTaskSplit{Array: j.UID, Task: task, UID: j.UID, ID: j.ID}
	if j.Tasks.Len() > 1 {
		ev.UID, ev.ID = d.t.NextUID, d.nextID()
	}
	if err := d.emit(ev); err != nil {
		return nil, err
	}
	return d.t.Job(ev.UID), nil
}

func (d *decision) configure(c Configure) error {
	old := d.t.Config
	cfg := c.Config.KeepDynamic(old)
	if n := cfg.DynamicNodes(); n > 0 && len(cfg.Nodes) > int(cfg.MaxNodes) {
		return spec.Refuse(spec.CodeBadRequest, fmt.Sprintf("MaxNodeCount=%d is less than the %d nodes of slurm.conf and the %d that were added since: delete some with `scontrol delete nodename=`, or raise it",
			cfg.MaxNodes, len(cfg.Nodes)-n, n))
	}
	if err := d.emit(&event.ConfigAdopted{Config: cfg}); err != nil {
		return err
	}
	return d.clearNow(old)
}

// spendToken binds a token to a key; of several keys, one wins.
func (d *decision) policy(c Policy) error {
	for _, ev := range c.Events {
		if err := d.emit(ev); err != nil {
			return err
		}
	}
	return nil
}
