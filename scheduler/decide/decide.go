// Package decide turns commands into events on a trial. command.go lists the
// commands; the other files hold what decides them, by what they are about: jobs
// (jobs.go, submit.go, update.go, het.go), their steps, nodes and their power,
// partitions, reservations, hosts, time (tick.go), and what a pass proposes
// (starts.go).
//
// A command that is refused leaves no event behind.
package decide

import (
	"fmt"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/commit"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// decision is one command being decided.
type decision struct {
	commit.Changes
	t   *trial.Trial
	res Result
	// sees tells which jobs whoever gave the command may know of; nil = all.
	sees func(*state.Job) bool
}

func decisionOn(t *trial.Trial) *decision { return &decision{Changes: commit.On(t), t: t} }

// Decide turns a command into events, folded into the trial's state at once.
// A refusal is a *spec.Error and leaves no event behind; any other error is a
// broken rule, after which the trial must be dropped.
func Decide(t *trial.Trial, command Command) (Result, error) {
	t.Cause = event.Cause{Command: command.command()}
	d := decisionOn(t)
	before := len(t.Events)
	var old *state.State // for the triggers; without any nobody asks
	if len(t.Triggers) > 0 {
		old = t.State.Freeze()
	}
	err := d.het().dispatchWhole(command)
	if err == nil && old != nil && len(t.Events) > before {
		err = d.triggers().followEvents(old, slices.Clone(t.Events[before:]))
	}
	if err != nil && spec.CodeOf(err) != 0 && len(t.Events) != before {
		return d.res, fmt.Errorf(
			"%s was refused after it had changed something: %v",
			command.command(),
			err,
		)
	}
	return d.res, err
}

// The groups of commands, by what they are about.
func (d *decision) submission() submission            { return submission{d} }
func (d *decision) jobs() jobCommands                 { return jobCommands{d} }
func (d *decision) het() hetCommands                  { return hetCommands{d} }
func (d *decision) steps() stepCommands               { return stepCommands{d} }
func (d *decision) nodes() nodeCommands               { return nodeCommands{d} }
func (d *decision) power() powerCommands              { return powerCommands{d} }
func (d *decision) partitions() partitionCommands     { return partitionCommands{d} }
func (d *decision) reservations() reservationCommands { return reservationCommands{d} }
func (d *decision) hosts() hostCommands               { return hostCommands{d} }
func (d *decision) pods() podCommands                 { return podCommands{d} }
func (d *decision) clock() clock                      { return clock{d} }
func (d *decision) usage() usageClock                 { return usageClock{d} }
func (d *decision) proposals() proposalCheck          { return proposalCheck{d} }

//muster:table one case for each command
func (d *decision) dispatchCommand(command Command) error {
	switch c := command.(type) {
	case Submit:
		d.sees = c.Sees
		if c.Again && d.submission().findEarlier(c) {
			return nil
		}
		if c.Spec.Pods != nil {
			return d.pods().submitPods(c)
		}
		if len(c.Rest) > 0 {
			return d.het().submitHet(append([]*spec.JobSpec{c.Spec}, c.Rest...), c)
		}
		return d.submission().submitJob(c.Spec, c.Request, c.ByScript)
	case Cancel:
		return d.jobs().cancelJob(c)
	case NoteJobs:
		return d.jobs().noteJobs(c)
	case SetTriggers:
		return d.triggers().setTriggers(c)
	case ClearTrigger:
		return d.triggers().clearTriggers(c)
	case TriggerRan:
		return d.triggers().forgetRun(c)
	case PutCrontab:
		return d.crontabs().putTable(c)
	case Hold:
		return d.jobs().holdJob(c)
	case Release:
		return d.jobs().releaseJob(c)
	case Requeue:
		return d.jobs().requeueJob(c)
	case Suspend:
		return d.jobs().suspendJob(c)
	case Resume:
		return d.jobs().resumeJob(c)
	case TopJob:
		return d.jobs().topJob(c)
	case UpdateJob:
		d.sees = c.Sees
		return d.jobs().updateJob(c)
	case UpdatePartition:
		return d.partitions().updatePartition(c)
	case UpdateNodes:
		return d.nodes().updateNodes(c)
	case CreatePartition:
		return d.partitions().createPartition(c)
	case DeletePartition:
		return d.partitions().deletePartition(c)
	case CreateNodes:
		return d.nodes().createNodes(c.Nodes)
	case DeleteNodes:
		return d.nodes().deleteNodes(c)
	case PowerNodes:
		return d.power().powerNodes(c)
	case RebootNodes:
		return d.power().rebootNodes(c)
	case CancelReboots:
		return d.power().cancelReboots(c)
	case RegisterNode:
		return d.nodes().registerNode(c)
	case DeclareFenced:
		return d.nodes().declareFenced(c)
	case FenceNode:
		return d.nodes().fenceNode(c)
	case FenceAnswered:
		return d.nodes().fenceAnswered(c)
	case NodeUnready:
		return d.nodes().drainUnready(c)
	case NodeSilent:
		return d.nodes().giveUpSilent(c)
	case NodeHeard:
		return d.nodes().noteHeard(c)
	case Report:
		return d.jobs().foldReport(c)
	case RaiseVersion:
		return d.raiseVersion(c)
	case BeginEpoch:
		return d.Emit(&event.EpochBegan{Value: c.Value, Host: c.Host, Version: c.Version})
	case NoteLostHistory:
		return d.nodes().noteLostHistory(c)
	case HoldOrphans:
		return d.nodes().holdOrphans(c)
	case AdoptRun:
		return d.jobs().adoptRun(c)
	case EpilogOver:
		return d.jobs().epilogOver(c)
	case PrologOver:
		return d.jobs().prologOver(c)
	case CheckReport:
		return d.nodes().checkReport(c)
	case GPUReport:
		return d.nodes().gpuReport(c)
	case Configure:
		return d.decideConfigure(c)
	case Policy:
		return d.adoptPolicy(c)
	case SpendToken:
		return d.hosts().spendToken(c)
	case IssueCertificate:
		return d.hosts().issueCertificate(c)
	case IssueUserToken:
		return d.hosts().issueUserToken(c)
	case EndUserTokens:
		return d.hosts().endUserTokens(c)
	case RevokeHost:
		return d.hosts().revokeHost(c)
	case CreateReservation:
		return d.reservations().createReservation(c)
	case UpdateReservation:
		return d.reservations().updateReservation(c)
	case DeleteReservation:
		return d.reservations().deleteReservation(c)
	case StartStep:
		return d.steps().startStep(c)
	case EndStep:
		return d.steps().endStep(c)
	case UpdateStep:
		return d.steps().updateStep(c)
	case EndJob:
		return d.steps().endJob(c)
	case TakeForeignHold:
		return d.foreign().take(c)
	case ReleaseForeignHold:
		return d.foreign().releaseHold(c)
	case AdmitPods:
		return d.pods().admitPods(c)
	case PodsOver:
		return d.pods().endPods(c)
	case Tick:
		return d.clock().advanceClock(c)
	case Starts:
		return d.proposals().commitProposal(c.Proposal)
	}
	return fmt.Errorf("unknown command %T", command)
}

func (d *decision) decideConfigure(configure Configure) error {
	old := d.t.Config
	config := configure.Config.KeepDynamic(old)
	if n := config.DynamicNodes(); n > 0 && len(config.Nodes) > int(config.MaxNodes) {
		return spec.Refuse(
			spec.CodeBadRequest,
			fmt.Sprintf(
				"MaxNodeCount=%d is less than the %d nodes of slurm.conf and the %d that were added since: delete some with `scontrol delete nodename=`, or raise it",
				config.MaxNodes,
				len(config.Nodes)-n,
				n,
			),
		)
	}
	if err := d.Emit(&event.ConfigAdopted{Config: config}); err != nil {
		return err
	}
	if err := d.nodes().judgeInventories(); err != nil {
		return err
	}
	return d.usage().clearNow(old)
}

// adoptPolicy adopts prepared changes of accounts, users, associations and QOS.
func (d *decision) adoptPolicy(command Policy) error {
	for _, ev := range command.Events {
		if err := d.Emit(ev); err != nil {
			return err
		}
	}
	return nil
}
