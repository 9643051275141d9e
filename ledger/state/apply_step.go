package state

import (
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

func (s *State) applyStepStarted(env *event.Envelope, e *event.StepStarted) error {
	job, err := s.editJob(e.UID, env)
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
		Started: env.At,
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

// checkLayout tells why a step cannot have its layout: it is not within the job's
// allocation, or another step has a part of it; empty if it can.
func (j *Job) checkLayout(step *Step) string {
	for i := range step.Layout {
		if step.Done.Has(i) || !step.Live() {
			continue
		}
		if why := j.partTaken(step, &step.Layout[i]); why != "" {
			return why
		}
	}
	return ""
}

// Shares tells a step that shares what others have.
func (s *Step) Shares() bool { return s.Spec != nil && (s.Spec.Overlap || s.Spec.External) }

func (j *Job) partTaken(step *Step, alloc *spec.NodeAlloc) string {
	i := j.Alloc.Index(alloc.ID)
	if i < 0 || j.Done.Has(i) {
		return "the job does not hold node " + alloc.Name
	}
	whole := &j.Alloc.Nodes[i]
	if whole.Name != alloc.Name || !alloc.CPUs.AndNot(whole.CPUs).Empty() ||
		alloc.Mem > whole.Mem ||
		!within(alloc.GPUs, whole.GPUs) {
		return "it is more than the job has of node " + alloc.Name
	}
	if step.Shares() {
		return ""
	}
	mem := alloc.Mem
	for k := range j.Steps {
		other := &j.Steps[k]
		at := other.Part(alloc.Name)
		if at < 0 || other.ID == step.ID || other.Shares() {
			continue
		}
		b := &other.Layout[at]
		mem += b.Mem
		if alloc.CPUs.Intersects(b.CPUs) || mem > whole.Mem ||
			slices.ContainsFunc(
				alloc.GPUs,
				func(g spec.GPURef) bool { return hasGPU(b.GPUs, g.UUID) },
			) {
			return "step " + other.ID.String() + " has a part of it on node " + alloc.Name
		}
	}
	return ""
}

func within(part, whole []spec.GPURef) bool {
	return !slices.ContainsFunc(part, func(g spec.GPURef) bool { return !hasGPU(whole, g.UUID) })
}

func hasGPU(list []spec.GPURef, uuid string) bool {
	return slices.ContainsFunc(list, func(g spec.GPURef) bool { return g.UUID == uuid })
}

// editStep is edit for events of a step that runs.
func (s *State) editStep(
	uid spec.JobUID,
	attempt uint32,
	id spec.StepID,
	env *event.Envelope,
) (*Job, *Step, error) {
	job, err := s.editJob(uid, env)
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

func (s *State) applyStepNodeDone(env *event.Envelope, e *event.StepNodeDone) error {
	job, step, err := s.editStep(e.UID, e.Attempt, e.Step, env)
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
	res := Worse(step.Result, &e.Result)
	step.Result = &res
	s.storeJob(job)
	return nil
}

// Worse joins the ends of two parts of one step: the higher exit code rules,
// then a signal.
func Worse(a, b *event.StepResult) event.StepResult {
	if a == nil {
		return *b
	}
	out := *a
	if b.Exit.Code > a.Exit.Code || (b.Exit.Code == a.Exit.Code && b.Exit.Signal > a.Exit.Signal) {
		out.Exit, out.Detail = b.Exit, b.Detail
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

func (s *State) applyStepEndRequested(env *event.Envelope, end *event.StepEndRequested) error {
	job, step, err := s.editStep(end.UID, end.Attempt, end.Step, env)
	if err != nil {
		return err
	}
	if step.Ending == nil {
		step.Ending = &Ending{Cause: end.Cause, At: env.At, By: end.By, Seq: env.Seq}
	}
	s.storeJob(job)
	return nil
}

func (s *State) applyStepSignalled(env *event.Envelope, e *event.StepSignalled) error {
	job, step, err := s.editStep(e.UID, e.Attempt, e.Step, env)
	if err != nil {
		return err
	}
	step.Signal = &Signal{Number: e.Signal, Seq: env.Seq}
	s.storeJob(job)
	return nil
}

func (s *State) applyStepUpdated(env *event.Envelope, e *event.StepUpdated) error {
	job, step, err := s.editStep(e.UID, e.Attempt, e.Step, env)
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

func (s *State) applyStepEnded(env *event.Envelope, e *event.StepEnded) error {
	job, step, err := s.editStep(e.UID, e.Attempt, e.Step, env)
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
	over := env.At
	if e.At != 0 {
		if e.At < step.Started || e.At > env.At {
			return contradictionError(
				"step %d of job uid %d cannot have been over at %d: it could from %d to %d",
				e.Step,
				e.UID,
				e.At,
				step.Started,
				env.At,
			)
		}
		over = e.At
	}
	res := e.Result
	step.State = e.State
	step.Ended = over
	step.Result = &res
	step.Usage = e.Usage
	step.Spec, step.Layout = nil, nil // nobody needs them any more, and they can be large
	if res.Exit.Code > job.StepExit.Code {
		job.StepExit = res.Exit
	}
	ended := 0
	for i := range job.Steps {
		if !job.Steps[i].Live() {
			ended++
		}
	}
	if ended > keptSteps {
		i := slices.IndexFunc(job.Steps, func(st Step) bool { return !st.Live() })
		job.Steps = slices.Delete(job.Steps, i, i+1)
	}
	s.storeJob(job)
	return nil
}

// CheckSteps is S21: what steps have lies within what their job holds, and no
// two that do not share have the same.
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
			case !step.Live() || len(step.Layout) == 0: // histories from before layouts
				continue
			case !job.HoldsNodes():
				return brokenInvariant(
					"%s: its step %s runs, but it holds no nodes",
					state.labelJob(job),
					step.ID,
				)
			}
			if why := job.checkLayout(step); why != "" {
				return brokenInvariant("%s: step %s: %s", state.labelJob(job), step.ID, why)
			}
		}
		return nil
	})
}
