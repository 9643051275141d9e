package state

import (
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

func (s *State) applyStepStarted(envelope *event.Envelope, e *event.StepStarted) error {
	job, err := s.editJob(e.UID, envelope)
	if err != nil {
		return err
	}
	if !job.State.Active() || job.Attempt != e.Attempt || e.Step < 0 ||
		job.StepByID(e.Step) != nil {
		return contradictionError(
			"step %d of attempt %d cannot start: job uid %d is %s in attempt %d, or has that step",
			e.Step,
			e.Attempt,
			e.UID,
			job.State,
			job.Attempt,
		)
	}
	step := Step{
		ID:      e.Step,
		Name:    e.Name,
		Nodes:   e.Nodes,
		Tasks:   e.Tasks,
		TRES:    e.TRES,
		Started: envelope.At,
		State:   spec.Running,
		Layout:  e.Layout,
		Spec:    e.Spec,
		Ticket:  e.Ticket,
	}
	if over := job.checkLayout(&step); over != "" {
		return contradictionError(
			"step %d of job uid %d cannot have what it is given: %s",
			e.Step,
			e.UID,
			over,
		)
	}
	job.Steps = append(slices.Clone(job.Steps), step)
	job.NextStep = max(job.NextStep, e.Step+1)
	s.storeJob(job)
	return nil
}

// checkLayout tells why a step cannot have its layout: a part is not within the job's allocation,
// or another step has some of it. It is empty if the step can.
func (j *Job) checkLayout(step *Step) string {
	for i := range step.Layout {
		if step.Done.Has(i) || !step.Live() {
			continue
		}
		if reason := j.checkPart(step, &step.Layout[i]); reason != "" {
			return reason
		}
	}
	return ""
}

// Shares tells whether the step may have what other steps of its job have, and they what it has.
func (s *Step) Shares() bool { return s.Spec != nil && (s.Spec.Overlap || s.Spec.External) }

// checkPart tells why a step cannot have its part of one node; empty if it can.
func (j *Job) checkPart(step *Step, part *spec.NodeAlloc) string {
	i := j.Alloc.Index(part.ID)
	if i < 0 || j.Done.Has(i) {
		return "the job does not hold node " + part.Name
	}
	whole := &j.Alloc.Nodes[i]
	if !isWithin(part, whole) {
		return "it is more than the job has of node " + part.Name
	}
	if step.Shares() {
		return ""
	}
	memory := part.Mem
	for k := range j.Steps {
		other := &j.Steps[k]
		at := other.Part(part.Name)
		if at < 0 || other.ID == step.ID || other.Shares() {
			continue
		}
		theirs := &other.Layout[at]
		memory += theirs.Mem
		if memory > whole.Mem || overlaps(part, theirs) {
			return "step " + other.ID.String() + " has a part of it on node " + part.Name
		}
	}
	return ""
}

// isWithin tells whether a step's part of a node is within what its job has of the node.
func isWithin(part, whole *spec.NodeAlloc) bool {
	if part.Name != whole.Name || part.Mem > whole.Mem {
		return false
	}
	if !part.CPUs.AndNot(whole.CPUs).Empty() {
		return false
	}
	return !slices.ContainsFunc(
		part.GPUs,
		func(gpu spec.GPURef) bool { return !hasGPU(whole.GPUs, gpu.UUID) },
	)
}

// overlaps tells whether two parts of a node have a CPU or a GPU in common.
func overlaps(a, b *spec.NodeAlloc) bool {
	if a.CPUs.Intersects(b.CPUs) {
		return true
	}
	return slices.ContainsFunc(
		a.GPUs,
		func(gpu spec.GPURef) bool { return hasGPU(b.GPUs, gpu.UUID) },
	)
}

func hasGPU(list []spec.GPURef, uuid string) bool {
	return slices.ContainsFunc(list, func(gpu spec.GPURef) bool { return gpu.UUID == uuid })
}

// editStep is editJob for events of a running step. The steps are cloned, because a record of a
// frozen state must not change.
func (s *State) editStep(
	uid spec.JobUID,
	attempt uint32,
	id spec.StepID,
	envelope *event.Envelope,
) (*Job, *Step, error) {
	job, err := s.editJob(uid, envelope)
	if err != nil {
		return nil, nil, err
	}
	i := slices.IndexFunc(job.Steps, func(st Step) bool { return st.ID == id && st.Live() })
	if i < 0 || job.Attempt != attempt {
		return nil, nil, contradictionError(
			"step %d of attempt %d of job uid %d does not run",
			id,
			attempt,
			uid,
		)
	}
	job.Steps = slices.Clone(job.Steps)
	return job, &job.Steps[i], nil
}

func (s *State) applyStepNodeDone(envelope *event.Envelope, e *event.StepNodeDone) error {
	job, step, err := s.editStep(e.UID, e.Attempt, e.Step, envelope)
	if err != nil {
		return err
	}
	i := step.Part(e.Node)
	if i < 0 {
		return contradictionError(
			"step %d of job uid %d is not, or no longer, on node %s",
			e.Step,
			e.UID,
			e.Node,
		)
	}
	step.Done = step.Done.Clone().Set(i)
	step.Usage = step.Usage.Add(e.Usage)
	result := joinResults(step.Result, &e.Result)
	step.Result = &result
	s.storeJob(job)
	return nil
}

// joinResults joins the results of a step on two nodes. The higher exit code counts, and of equal
// exit codes the higher signal.
func joinResults(a, b *event.StepResult) event.StepResult {
	if a == nil {
		return *b
	}
	out := *a
	if b.Exit.Code > a.Exit.Code || (b.Exit.Code == a.Exit.Code && b.Exit.Signal > a.Exit.Signal) {
		out.Exit = b.Exit
		out.Detail = b.Detail
	}
	out.Unknown = a.Unknown || b.Unknown
	if out.Detail == "" {
		out.Detail = b.Detail
	}
	if out.Started == 0 || (b.Started != 0 && b.Started < out.Started) {
		out.Started = b.Started
	}
	out.Ended = max(out.Ended, b.Ended)
	return out
}

func (s *State) applyStepEndRequested(envelope *event.Envelope, end *event.StepEndRequested) error {
	job, step, err := s.editStep(end.UID, end.Attempt, end.Step, envelope)
	if err != nil {
		return err
	}
	if step.Ending == nil {
		step.Ending = &Ending{Cause: end.Cause, At: envelope.At, By: end.By, Seq: envelope.Seq}
	}
	s.storeJob(job)
	return nil
}

func (s *State) applyStepSignalled(envelope *event.Envelope, e *event.StepSignalled) error {
	job, step, err := s.editStep(e.UID, e.Attempt, e.Step, envelope)
	if err != nil {
		return err
	}
	step.Signal = &Signal{Number: e.Signal, Seq: envelope.Seq}
	s.storeJob(job)
	return nil
}

func (s *State) applyStepUpdated(envelope *event.Envelope, e *event.StepUpdated) error {
	job, step, err := s.editStep(e.UID, e.Attempt, e.Step, envelope)
	if err != nil {
		return err
	}
	if e.Limit <= 0 {
		return contradictionError(
			"step %d of job uid %d cannot have the time limit %d",
			e.Step,
			e.UID,
			e.Limit,
		)
	}
	step.Limit = e.Limit
	s.storeJob(job)
	return nil
}

func (s *State) applyStepEnded(envelope *event.Envelope, e *event.StepEnded) error {
	job, step, err := s.editStep(e.UID, e.Attempt, e.Step, envelope)
	if err != nil {
		return err
	}
	if !e.State.Terminal() || e.State > spec.OutOfMemory || step.Done.Count() < len(step.Layout) {
		return contradictionError(
			"step %d of attempt %d of job uid %d cannot end as %s, or is not over on all its nodes",
			e.Step,
			e.Attempt,
			e.UID,
			e.State,
		)
	}
	ended := envelope.At
	if e.At != 0 {
		if e.At < step.Started || e.At > envelope.At {
			return contradictionError(
				"step %d of job uid %d cannot have been over at %d: it could from %d to %d",
				e.Step,
				e.UID,
				e.At,
				step.Started,
				envelope.At,
			)
		}
		ended = e.At
	}
	result := e.Result
	step.State = e.State
	step.Ended = ended
	step.Result = &result
	step.Usage = e.Usage
	step.Spec = nil // large, and only needed while the step runs, as the layout
	step.Layout = nil
	if result.Exit.Code > job.StepExit.Code {
		job.StepExit = result.Exit
	}
	job.dropOldStep()
	s.storeJob(job)
	return nil
}

// dropOldStep forgets the oldest step that has ended, if more than keptSteps have.
func (j *Job) dropOldStep() {
	ended := 0
	for i := range j.Steps {
		if !j.Steps[i].Live() {
			ended++
		}
	}
	if ended > keptSteps {
		i := slices.IndexFunc(j.Steps, func(step Step) bool { return !step.Live() })
		j.Steps = slices.Delete(j.Steps, i, i+1)
	}
}

// CheckSteps is invariant S21: what a step has is within what its job holds, and no two steps of
// which neither shares have the same CPU, GPU or memory.
func CheckSteps(state *State) error {
	return state.eachJob(func(job *Job) error {
		for i := range job.Steps {
			step := &job.Steps[i]
			switch {
			case len(step.Layout) > 0 && job.NextStep <= step.ID:
				return brokenInvariant(
					"%s: its step %s is not below the next one, %d",
					state.labelJob(job),
					step.ID,
					job.NextStep,
				)
			case !step.Live() && (step.Ended < step.Started || step.Done.Count() < len(step.Layout)):
				return brokenInvariant(
					"%s: its step %s has ended, but not everywhere, or before it began",
					state.labelJob(job),
					step.ID,
				)
			case !step.Live() || len(step.Layout) == 0: // the oldest ledgers have no layouts
				continue
			case !job.HoldsNodes():
				return brokenInvariant(
					"%s: its step %s runs, but it holds no nodes",
					state.labelJob(job),
					step.ID,
				)
			}
			if reason := job.checkLayout(step); reason != "" {
				return brokenInvariant("%s: step %s: %s", state.labelJob(job), step.ID, reason)
			}
		}
		return nil
	})
}
