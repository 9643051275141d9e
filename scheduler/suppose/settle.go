package suppose

import (
	"fmt"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// Settle brings about on a trial what the nodes would report soon: nodes that the
// change has created register with all that they declare, and runs that it has
// told to end have ended. before is the state without the change: what was under
// way in it already is left as it is.
func Settle(t *trial.Trial, before *state.State) error {
	if err := registerCreated(t, before); err != nil {
		return err
	}
	return endRuns(t, before)
}

// registerCreated lets the nodes register that the state before does not have.
func registerCreated(t *trial.Trial, before *state.State) error {
	var created []*spec.NodeSpec
	t.Nodes.Range(func(_ uint64, node *state.Node) bool {
		if !node.Removed && before.Node(node.Spec.Name) == nil {
			created = append(created, node.Spec)
		}
		return true
	})
	for _, node := range created {
		err := decideAs(t, node.Name, scheduler.RegisterNode{
			Node:      node.Name,
			Inventory: node.FullInventory("supposed"),
		})
		if err != nil {
			return fmt.Errorf("suppose that node %s registers: %w", node.Name, err)
		}
	}
	return nil
}

// endRuns lets the runs end that the change has told to.
func endRuns(t *trial.Trial, before *state.State) error {
	var ending []spec.JobUID
	t.Active.Range(func(uid uint64, _ struct{}) bool {
		job := t.Job(spec.JobUID(uid))
		if isEnding(job) && !isEnding(before.Job(job.UID)) {
			ending = append(ending, job.UID)
		}
		return true
	})
	for _, uid := range ending {
		if err := endRun(t, uid); err != nil {
			return fmt.Errorf("suppose that job %d ends: %w", uid, err)
		}
	}
	return nil
}

// isEnding tells a job that has been told to end, or that has ended and whose nodes
// are not all done.
func isEnding(job *state.Job) bool {
	return job != nil && (job.Completing() || (job.State.Active() && job.Ending != nil))
}

// endRun lets each node of a run say that it is done.
func endRun(t *trial.Trial, uid spec.JobUID) error {
	job := t.Job(uid)
	run := scheduler.Run{UID: uid, Attempt: job.Attempt}
	epoch := job.Epoch
	if job.Spec.Runner() == spec.ByKubelets {
		over := scheduler.PodsOver{
			Run:    run,
			Epoch:  epoch,
			Pod:    job.Spec.Pods.Pods[0].UID,
			Result: &event.StepResult{},
		}
		_, err := scheduler.Decide(t, over)
		return err
	}
	names := make([]string, 0, len(job.Alloc.Nodes))
	for i := range job.Alloc.Nodes {
		if !job.Done.Has(i) {
			names = append(names, job.Alloc.Nodes[i].Name)
		}
	}
	for i, node := range names {
		done := &scheduler.NodeDone{}
		if i == 0 && !job.Spec.Shell {
			done.Batch = &event.StepResult{}
		}
		report := scheduler.Report{Node: node, Run: run, Epoch: epoch, Done: done}
		if err := decideAs(t, node, report); err != nil {
			return err
		}
	}
	return nil
}

// decideAs decides a command of a node.
func decideAs(t *trial.Trial, node string, command scheduler.Command) error {
	actor := t.Actor
	defer func() { t.Actor = actor }()
	t.Actor = event.Actor{Kind: event.ActorNode, Name: node}
	_, err := scheduler.Decide(t, command)
	return err
}
