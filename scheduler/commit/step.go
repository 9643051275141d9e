package commit

import (
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// StepOver tells that nothing of a step is left on a node.
type StepOver struct {
	Step   spec.StepID
	Result event.StepResult
	Usage  spec.Usage
}

// StepPart is a step of a component.
type StepPart struct {
	Job  *state.Job
	Step *state.Step
}

// StepParts are the parts of a step in several components that have not ended.
func (d Changes) StepParts(job *state.Job, id spec.StepID) []StepPart {
	var parts []StepPart
	for _, component := range d.t.Components(job) {
		if step := component.StepByID(id); step != nil && step.Live() && step.Spec != nil &&
			step.Spec.World != nil {
			parts = append(parts, StepPart{component, step})
		}
	}
	return parts
}

// FinishStepPart closes a node's part of a step, and the step with its last part.
func (d Changes) FinishStepPart(job *state.Job, node string, over *StepOver) error {
	step := job.StepByID(over.Step)
	if err := d.Emit(&event.StepNodeDone{UID: job.UID, Attempt: job.Attempt, Step: step.ID, Node: node, Result: over.Result, Usage: over.Usage.InVersion(d.t.Version)}); err != nil {
		return err
	}
	job = d.t.Job(job.UID)
	step = job.StepByID(over.Step)
	if err := d.failedStep(job, step); err != nil || step.Done.Count() < len(step.Layout) {
		return err
	}
	ev := &event.StepEnded{
		UID:     job.UID,
		Attempt: job.Attempt,
		Step:    step.ID,
		State:   stepState(job, step),
		Result:  *step.Result,
		Usage:   step.Usage,
		At:      endByNode(step.Started, step.Result, d.t.Now),
	}
	if ev.State == spec.OutOfMemory {
		ev.Result.Exit = outOfMemory(ev.Result.Exit)
	}
	return d.Emit(ev)
}

// failedStep ends a step of which a part could not be started or was lost, in
// all its components: the rest would wait for it.
func (d Changes) failedStep(job *state.Job, step *state.Step) error {
	if !step.Result.Unknown {
		return nil
	}
	parts := []StepPart{{job, step}}
	if step.Spec != nil && step.Spec.World != nil {
		parts = d.StepParts(job, step.ID)
	}
	for _, part := range parts {
		if part.Step.Done.Count() == len(part.Step.Layout) {
			continue
		}
		if err := d.RequestStepEnd(part.Job, part.Step, event.EndNodeLost); err != nil {
			return err
		}
	}
	return nil
}

// RequestStepEnd decides that a step must end, once.
func (d Changes) RequestStepEnd(job *state.Job, step *state.Step, cause event.EndCause) error {
	if step.Ending != nil {
		return nil
	}
	return d.Emit(
		&event.StepEndRequested{
			UID:     job.UID,
			Attempt: job.Attempt,
			Step:    step.ID,
			Cause:   cause,
			By:      d.t.Actor.UID,
		},
	)
}

// stepsLeave closes what is left of a job's steps on a node that is given back.
func (d Changes) stepsLeave(job *state.Job, node string, lost bool) error {
	for _, step := range job.Steps {
		if step.Part(node) < 0 {
			continue
		}
		over := &StepOver{
			Step:   step.ID,
			Result: event.StepResult{Ended: d.t.Now, Unknown: true, Detail: "its end was not seen"},
		}
		if lost {
			over.Result.Detail = "node " + node + " was lost"
		}
		if err := d.FinishStepPart(d.t.Job(job.UID), node, over); err != nil {
			return err
		}
	}
	return nil
}

// stepState derives how a step ended.
func stepState(job *state.Job, step *state.Step) spec.JobState {
	result := step.Result
	switch {
	case step.Ending != nil:
		s, _ := endedAs(step.Ending.Cause)
		return s
	case job.Ending != nil:
		s, _ := endedAs(job.Ending.Cause)
		return s
	case result.Exit.OK() && !result.Unknown:
		return spec.Completed
	case job.State.Terminal():
		return spec.Cancelled
	case step.Usage.OOMKilled:
		return spec.OutOfMemory
	case result.Exit.Signal != 0:
		return spec.Cancelled // as Slurm's accounting has it, whoever sent the signal
	}
	return spec.Failed
}

// lastOutOfMemory tells that the last step to end ran out of memory, which is
// then why its srun has failed, and the script with it.
func lastOutOfMemory(job *state.Job) bool {
	var last *state.Step
	for i := range job.Steps {
		if step := &job.Steps[i]; !step.Live() && (last == nil || step.Ended >= last.Ended) {
			last = step
		}
	}
	return last != nil && last.State == spec.OutOfMemory
}
