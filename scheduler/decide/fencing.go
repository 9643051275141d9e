package decide

import (
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/commit"
	"github.com/musterhpc/muster/spec"
)

// To end a run in the books is harmless. To start its job again is not, because
// nobody knows whether the processes on a node that cannot be asked are gone. So
// these are two decisions: what is given up is owed by the node (state.Unfenced),
// and the job starts again only after something has proved that debt void.

// FenceNode says that nothing lives any more on a node of the attempts that were
// given up there: of all of them, or of those in Of where that is not nil.
type FenceNode struct {
	Node string
	By   event.FenceCause
	Of   []commit.Run
}

// DeclareFenced is scontrol update nodename=X state=fenced: an operator knows that
// nothing that was given up lives on these nodes.
type DeclareFenced struct{ Nodes []string }

func (FenceNode) command() string     { return "fence" }
func (DeclareFenced) command() string { return "update" }

// declareFenced records that an operator declares nodes fenced: all of them, or none.
func (d nodeCommands) declareFenced(command DeclareFenced) error {
	for _, name := range command.Nodes {
		node := d.t.Node(name)
		if node == nil {
			return spec.Refuse(spec.CodeInvalidNodeName, name)
		}
		if len(node.Unfenced) == 0 {
			return spec.Refuse(spec.CodeInvalidNodeState, name+
				" has no runs to fence: set it down first, or wait for SlurmdTimeout")
		}
	}
	for _, name := range command.Nodes {
		if err := d.fenceNode(FenceNode{Node: name, By: event.FenceOperator}); err != nil {
			return err
		}
	}
	return nil
}

// fenceNode records the result of whatever fences a node.
func (d nodeCommands) fenceNode(command FenceNode) error {
	node := d.t.Node(command.Node)
	if node == nil {
		return nil // it was deleted, which it is only without debts
	}
	for _, debt := range slices.Clone(node.Unfenced) {
		if command.Of != nil &&
			!slices.Contains(command.Of, commit.Run{UID: debt.UID, Attempt: debt.Attempt}) {
			continue
		}
		if err := d.Emit(
			&event.RunFenced{
				Node: command.Node, UID: debt.UID, Attempt: debt.Attempt, By: command.By,
			},
		); err != nil {
			return err
		}
	}
	return nil
}

// fencedByReport records that an agent that came back has reported the end of a run
// that was given up. Only the end of the whole attempt on the node counts.
func (d nodeCommands) fencedByReport(report Report) error {
	ev := &event.RunFenced{
		Node:    report.Node,
		UID:     report.Run.UID,
		Attempt: report.Run.Attempt,
		By:      event.FenceAgent,
		Usage:   report.Done.Usage.InVersion(d.t.Version),
		Batch:   report.Done.Batch,
	}
	if err := d.Emit(ev); err != nil {
		return err
	}
	if report.Done.Drain != "" {
		return d.DrainNode(report.Node, report.Done.Drain)
	}
	return nil
}

// isOwed tells whether a report is the end of a run that was given up.
func (d nodeCommands) isOwed(report Report) bool {
	node := d.t.Node(report.Node)
	return report.Done != nil && node != nil &&
		node.OwesRun(report.Run.UID, report.Run.Attempt, report.Epoch)
}

// giveUpJobs ends all jobs of a node although some of their processes may still
// be alive there.
func (d nodeCommands) giveUpJobs(node, reason string) error {
	n := d.t.Node(node)
	// Nothing was ever started on a node without an agent, or on one that is off.
	unfenced := n.Inv != nil && !n.Asleep()
	return d.takeJobs(node, reason, unfenced)
}

// loseJobs ends all jobs of a node. The caller knows that none of their processes
// is left there.
func (d nodeCommands) loseJobs(node, reason string) error {
	return d.takeJobs(node, reason, false)
}

func (d nodeCommands) takeJobs(node, reason string, unfenced bool) error {
	n := d.t.Node(node)
	gone := &commit.NodeDone{Unfenced: unfenced}
	for _, uid := range slices.Clone(n.Jobs) {
		job := d.t.Job(uid)
		if !commit.HoldsNode(job, node) {
			continue
		}
		if !job.Spec.Runner().EndsWithNode() && !job.Configuring() {
			continue // who runs it tells when it is over
		}
		if outlives(job, node) {
			if err := d.FinishNode(job, node, gone, true); err != nil {
				return err
			}
			continue
		}
		if job.GoesOn() {
			again := d.MayRequeue(job)
			if err := d.RequestEnd(
				job, event.EndNodeLost, again, spec.NotHeld, reason,
			); err != nil {
				return err
			}
			job = d.t.Job(uid)
			if !job.HoldsNodes() || !commit.HoldsNode(job, node) {
				continue // it had not begun
			}
		}
		if err := d.FinishNode(job, node, gone, true); err != nil {
			return err
		}
	}
	return nil
}

// outlives tells whether a job continues without a lost node: it was submitted
// with --no-kill, its script runs elsewhere, and all of it has started.
func outlives(job *state.Job, node string) bool {
	if job.State == spec.Running && slices.Contains(job.Leaving, node) {
		return true // it was giving the node back
	}
	if !job.Spec.Queue.NoKill || job.State != spec.Running || job.Ending != nil {
		return false
	}
	runsScript := job.Alloc.Nodes[0].Name == node
	return !job.Configuring() && !runsScript && !commit.IsLastNode(job, node)
}

// drainUnready drains a node whose agent reports that it cannot start anything.
// Its jobs stay: SlurmdTimeout decides about them, as on a silent node.
func (d nodeCommands) drainUnready(command NodeUnready) error {
	node := d.t.Node(command.Node)
	if node == nil || node.Lost || node.Inv == nil || node.Asleep() {
		return nil
	}
	return d.Emit(&event.NodeLost{Node: command.Node, LastSeen: command.LastSeen, Why: command.Why})
}

// giveUpSilent gives a node up that has not been heard of, or has been able to do
// nothing, for SlurmdTimeout: it is DOWN, and what ran there has failed with it.
func (d nodeCommands) giveUpSilent(command NodeSilent) error {
	node := d.t.Node(command.Node)
	if node == nil || node.Inv == nil || node.Asleep() || node.IsRebooting() {
		return nil
	}
	if !node.Lost {
		if err := d.Emit(
			&event.NodeLost{Node: command.Node, LastSeen: command.LastSeen},
		); err != nil {
			return err
		}
	}
	reason := "node " + command.Node + " does not respond"
	if node.LostWhy != "" {
		reason += ": " + node.LostWhy
	}
	return d.giveUpJobs(command.Node, reason)
}

// FenceAnswered is the answer of the site's fence program about a node: Failed is
// empty if the node is off, and so is everything in Of, which the node owed when
// the program was started.
type FenceAnswered struct {
	Node    string
	Program string
	Of      []commit.Run
	Failed  string
}

func (FenceAnswered) command() string { return "fence" }

// fenceAnswered takes the answer of a fence program. A node that owes nothing any
// more was fenced by something else in the meantime.
func (d nodeCommands) fenceAnswered(command FenceAnswered) error {
	node := d.t.Node(command.Node)
	if node == nil || len(node.Unfenced) == 0 {
		return nil
	}
	if command.Failed == "" {
		return d.fenceNode(FenceNode{Node: command.Node, By: event.FenceProgram, Of: command.Of})
	}
	tried := event.FenceTried{
		Node: command.Node, Program: command.Program, Try: 1, Why: command.Failed,
	}
	if node.FenceTry != nil {
		tried.Try = node.FenceTry.Try + 1
	}
	return d.Emit(&tried)
}

// FenceProgramOf names the program that is to be asked about a node that does not
// answer, or was powered down, and the runs that the node owes; empty where none is.
func FenceProgramOf(cluster *state.State, node *state.Node) (program string, owed []commit.Run) {
	if !node.Lost && node.Power != event.PoweredDown {
		return "", nil // its agent ends the runs
	}
	for i := range node.Unfenced {
		debt := &node.Unfenced[i]
		if program == "" {
			program = cluster.FenceProgram(node, debt)
		}
		owed = append(owed, commit.Run{UID: debt.UID, Attempt: debt.Attempt})
	}
	return program, owed
}

// LeasesOver lists the runs that a node owes and whose leases are over, if the
// controller has not answered the node's heartbeats for so long.
func LeasesOver(node *state.Node, unanswered spec.Span) []commit.Run {
	var over []commit.Run
	for _, debt := range node.Unfenced {
		if debt.Lease > 0 && unanswered >= spec.LeaseBound(debt.Lease) {
			over = append(over, commit.Run{UID: debt.UID, Attempt: debt.Attempt})
		}
	}
	return over
}

// rebootProves fences everything on a node that has booted again.
func (d nodeCommands) rebootProves(node string) error {
	return d.fenceNode(FenceNode{Node: node, By: event.FenceReboot})
}
