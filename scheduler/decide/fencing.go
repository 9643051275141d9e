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

// declareFenced takes an operator's word for all of the nodes, or for none.
func (d nodeCommands) declareFenced(c DeclareFenced) error {
	for _, name := range c.Nodes {
		node := d.t.Node(name)
		if node == nil {
			return spec.Refuse(spec.CodeInvalidNodeName, name)
		}
		if len(node.Unfenced) == 0 {
			return spec.Refuse(spec.CodeInvalidNodeState, name+
				" has no runs to fence: set it down first, or wait for SlurmdTimeout")
		}
	}
	for _, name := range c.Nodes {
		if err := d.fenceNode(FenceNode{Node: name, By: event.FenceOperator}); err != nil {
			return err
		}
	}
	return nil
}

// fenceNode takes the word of whatever fences a node.
func (d nodeCommands) fenceNode(c FenceNode) error {
	node := d.t.Node(c.Node)
	if node == nil {
		return nil // it was deleted, which it is only without debts
	}
	for _, debt := range slices.Clone(node.Unfenced) {
		if c.Of != nil && !slices.Contains(c.Of, commit.Run{UID: debt.UID, Attempt: debt.Attempt}) {
			continue
		}
		if err := d.Emit(&event.RunFenced{Node: c.Node, UID: debt.UID, Attempt: debt.Attempt, By: c.By}); err != nil {
			return err
		}
	}
	return nil
}

// fencedByReport takes the end of a run that was given up, from the agent that
// came back. Only the end of the whole attempt there is one.
func (d nodeCommands) fencedByReport(c Report) error {
	ev := &event.RunFenced{
		Node:    c.Node,
		UID:     c.Run.UID,
		Attempt: c.Run.Attempt,
		By:      event.FenceAgent,
		Usage:   c.Done.Usage.InVersion(d.t.Version),
		Batch:   c.Done.Batch,
	}
	if err := d.Emit(ev); err != nil {
		return err
	}
	if c.Done.Drain != "" {
		return d.DrainNode(c.Node, c.Done.Drain)
	}
	return nil
}

// isOwed tells whether a report is the end of a run that was given up.
func (d nodeCommands) isOwed(c Report) bool {
	n := d.t.Node(c.Node)
	return c.Done != nil && n != nil && n.OwesRun(c.Run.UID, c.Run.Attempt, c.Epoch)
}

// giveUpJobs takes all jobs of a node away although processes of them may still
// live there.
func (d nodeCommands) giveUpJobs(node, why string) error {
	n := d.t.Node(node)
	// Nothing was ever started on a node without an agent, or on one that is off.
	unfenced := n.Inv != nil && !n.Asleep()
	return d.takeJobs(node, why, unfenced)
}

// loseJobs takes all jobs of a node away: it is certain that nothing of them is
// left there.
func (d nodeCommands) loseJobs(node, why string) error {
	return d.takeJobs(node, why, false)
}

func (d nodeCommands) takeJobs(node, why string, unfenced bool) error {
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
			if err := d.RequestEnd(job, event.EndNodeLost, again, spec.NotHeld, why); err != nil {
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

// outlives tells whether a job goes on without a node that is lost: it was asked
// for with --no-kill, the script runs elsewhere, and all of it has begun.
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

// drainUnready takes a node out of service whose agent says that it can start nothing.
// Its jobs stay: SlurmdTimeout decides about them, as about those of a silent node.
func (d nodeCommands) drainUnready(c NodeUnready) error {
	node := d.t.Node(c.Node)
	if node == nil || node.Lost || node.Inv == nil || node.Asleep() {
		return nil
	}
	return d.Emit(&event.NodeLost{Node: c.Node, LastSeen: c.LastSeen, Why: c.Why})
}

// giveUpSilent gives a node up that has not been heard of, or has been able to do
// nothing, for SlurmdTimeout: it is DOWN, and what ran there has failed with it.
func (d nodeCommands) giveUpSilent(c NodeSilent) error {
	node := d.t.Node(c.Node)
	if node == nil || node.Inv == nil || node.Asleep() || node.IsRebooting() {
		return nil
	}
	if !node.Lost {
		if err := d.Emit(&event.NodeLost{Node: c.Node, LastSeen: c.LastSeen}); err != nil {
			return err
		}
	}
	why := "node " + c.Node + " does not respond"
	if node.LostWhy != "" {
		why += ": " + node.LostWhy
	}
	return d.giveUpJobs(c.Node, why)
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
func (d nodeCommands) fenceAnswered(c FenceAnswered) error {
	node := d.t.Node(c.Node)
	if node == nil || len(node.Unfenced) == 0 {
		return nil
	}
	if c.Failed == "" {
		return d.fenceNode(FenceNode{Node: c.Node, By: event.FenceProgram, Of: c.Of})
	}
	tried := event.FenceTried{Node: c.Node, Program: c.Program, Try: 1, Why: c.Failed}
	if node.FenceTry != nil {
		tried.Try = node.FenceTry.Try + 1
	}
	return d.Emit(&tried)
}

// FenceProgramOf names the program that is to be asked about a node that does not
// answer, and the runs that the node owes; empty where none is.
func FenceProgramOf(st *state.State, node *state.Node) (program string, owed []commit.Run) {
	if !node.Lost {
		return "", nil // its agent ends the runs
	}
	for _, debt := range node.Unfenced {
		if policy := st.FencingOf(debt.Partition); policy.Kind == spec.FenceProgram &&
			program == "" {
			program = policy.Program
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
