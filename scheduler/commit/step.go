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
func (d Changes) StepParts(j *state.Job, id spec.StepID) []StepPart {
	var out []StepPart
	for _, c := range d.t.Components(j) {
		if st := c.StepByID(id); st != nil && st.Live() && st.Spec != nil && st.Spec.World != nil {
			out = append(out, StepPart{c, st})
		}
	}
	return out
}

// FinishStepPart closes a node's part of a step, and the step with its last part.
func (d Changes) FinishStepPart(j *state.Job, node string, over *StepOver) error {
	st := j.StepByID(over.Step)
	if err := d.Emit(&event.StepNodeDone{UID: j.UID, Attempt: j.Attempt, Step: st.ID, Node: node, Result: over.Result, Usage: over.Usage}); err != nil {
		return err
	}
	j = d.t.Job(j.UID)
	st = j.StepByID(over.Step)
	if err := d.failedStep(j, st); err != nil || st.Done.Count() < len(st.Layout) {
		return err
	}
	ev := &event.StepEnded{UID: j.UID, Attempt: j.Attempt, Step: st.ID, State: stepState(j, st), Result: *st.Result, Usage: st.Usage}
	if ev.State == spec.OutOfMemory {
		ev.Result.Exit = outOfMemory(ev.Result.Exit)
	}
	return d.Emit(ev)
}

// failedStep ends a step of which a part could not be started or was lost, in
// all its components: the rest would wait for it.
func (d Changes) failedStep(j *state.Job, st *state.Step) error {
	if !st.Result.Unknown {
		return nil
	}
	parts := []StepPart{{j, st}}
	if st.Spec != nil && st.Spec.World != nil {
		parts = d.StepParts(j, st.ID)
	}
	for _, p := range parts {
		if p.Step.Done.Count() == len(p.Step.Layout) {
			continue
		}
		if err := d.RequestStepEnd(p.Job, p.Step, event.EndNodeLost); err != nil {
			return err
		}
	}
	return nil
}

// RequestStepEnd decides that a step must end, once.
func (d Changes) RequestStepEnd(j *state.Job, st *state.Step, cause event.EndCause) error {
	if st.Ending != nil {
		return nil
	}
	return d.Emit(&event.StepEndRequested{UID: j.UID, Attempt: j.Attempt, Step: st.ID, Cause: cause, By: d.t.Actor.UID})
}

// stepsLeave closes what is left of a job's steps on a node that is given back.
func (d Changes) stepsLeave(j *state.Job, node string, lost bool) error {
	for _, st := range j.Steps {
		if st.Part(node) < 0 {
			continue
		}
		over := &StepOver{Step: st.ID, Result: event.StepResult{Ended: d.t.Now, Unknown: true, Detail: "its end was not seen"}}
		if lost {
			over.Result.Detail = "node " + node + " was lost"
		}
		if err := d.FinishStepPart(d.t.Job(j.UID), node, over); err != nil {
			return err
		}
	}
	return nil
}

// stepState derives how a step ended.
func stepState(j *state.Job, st *state.Step) spec.JobState {
	r := st.Result
	switch {
	case st.Ending != nil:
		s, _ := endedAs(st.Ending.Cause)
		return s
	case j.Ending != nil:
		s, _ := endedAs(j.Ending.Cause)
		return s
	case r.Exit.OK() && !r.Unknown:
		return spec.Completed
	case j.State.Terminal():
		return spec.Cancelled
	case st.Usage.OOMKilled:
		return spec.OutOfMemory
	}
	return spec.Failed
}

// lastOutOfMemory tells that the last step to end ran out of memory, which is
// then why its srun has failed, and the script with it.
func lastOutOfMemory(j *state.Job) bool {
	var last *state.Step
	for i := range j.Steps {
		if st := &j.Steps[i]; !st.Live() && (last == nil || st.Ended >= last.Ended) {
			last = st
		}
	}
	return last != nil && last.State == spec.OutOfMemory
}
