package state

import (
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

func (s *State) applyStepStarted(env *event.Envelope, e *event.StepStarted) error {
	j, err := s.editJob(e.UID, env)
	if err != nil {
		return err
	}
	if !j.State.Active() || j.Attempt != e.Attempt || e.Step < 0 || j.StepByID(e.Step) != nil {
		return contradictionError("step %d of attempt %d cannot start: job uid %d is %s in attempt %d, or has that step", e.Step, e.Attempt, e.UID, j.State, j.Attempt)
	}
	st := Step{ID: e.Step, Name: e.Name, Nodes: e.Nodes, Tasks: e.Tasks, TRES: e.TRES, Started: env.At, State: spec.Running,
		Layout: e.Layout, Spec: e.Spec, Ticket: e.Ticket}
	if over := j.checkLayout(&st); over != "" {
		return contradictionError("step %d of job uid %d cannot have what it is given: %s", e.Step, e.UID, over)
	}
	j.Steps = append(slices.Clone(j.Steps), st)
	j.NextStep = max(j.NextStep, e.Step+1)
	s.storeJob(j)
	return nil
}

// checkLayout tells why a step cannot have its layout: it is not within the job's
// allocation, or another step has a part of it; empty if it can.
func (j *Job) checkLayout(st *Step) string {
	for i := range st.Layout {
		if st.Done.Has(i) || !st.Live() {
			continue
		}
		if why := j.partTaken(st, &st.Layout[i]); why != "" {
			return why
		}
	}
	return ""
}

// Shares tells a step that shares what others have.
func (s *Step) Shares() bool { return s.Spec != nil && (s.Spec.Overlap || s.Spec.External) }

func (j *Job) partTaken(st *Step, a *spec.NodeAlloc) string {
	i := j.Alloc.Index(a.ID)
	if i < 0 || j.Done.Has(i) {
		return "the job does not hold node " + a.Name
	}
	whole := &j.Alloc.Nodes[i]
	if whole.Name != a.Name || !a.CPUs.AndNot(whole.CPUs).Empty() || a.Mem > whole.Mem || !within(a.GPUs, whole.GPUs) {
		return "it is more than the job has of node " + a.Name
	}
	if st.Shares() {
		return ""
	}
	mem := a.Mem
	for k := range j.Steps {
		other := &j.Steps[k]
		at := other.Part(a.Name)
		if at < 0 || other.ID == st.ID || other.Shares() {
			continue
		}
		b := &other.Layout[at]
		mem += b.Mem
		if a.CPUs.Intersects(b.CPUs) || mem > whole.Mem || slices.ContainsFunc(a.GPUs, func(g spec.GPURef) bool { return hasGPU(b.GPUs, g.UUID) }) {
			return "step " + other.ID.String() + " has a part of it on node " + a.Name
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
func (s *State) editStep(uid spec.JobUID, attempt uint32, id spec.StepID, env *event.Envelope) (*Job, *Step, error) {
	j, err := s.editJob(uid, env)
	if err != nil {
		return nil, nil, err
	}
	i := slices.IndexFunc(j.Steps, func(st Step) bool { return st.ID == id && st.Live() })
	if i < 0 || j.Attempt != attempt {
		return nil, nil, contradictionError("step %d of attempt %d of job uid %d does not run", id, attempt, uid)
	}
	j.Steps = slices.Clone(j.Steps)
	return j, &j.Steps[i], nil
}

func (s *State) applyStepNodeDone(env *event.Envelope, e *event.StepNodeDone) error {
	j, st, err := s.editStep(e.UID, e.Attempt, e.Step, env)
	if err != nil {
		return err
	}
	i := st.Part(e.Node)
	if i < 0 {
		return contradictionError("step %d of job uid %d is not, or no longer, on node %s", e.Step, e.UID, e.Node)
	}
	st.Done = st.Done.Clone().Set(i)
	st.Usage = st.Usage.Add(e.Usage)
	res := Worse(st.Result, &e.Result)
	st.Result = &res
	s.storeJob(j)
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

func (s *State) applyStepEndRequested(env *event.Envelope, e *event.StepEndRequested) error {
	j, st, err := s.editStep(e.UID, e.Attempt, e.Step, env)
	if err != nil {
		return err
	}
	if st.Ending == nil {
		st.Ending = &Ending{Cause: e.Cause, At: env.At, By: e.By, Seq: env.Seq}
	}
	s.storeJob(j)
	return nil
}

func (s *State) applyStepSignalled(env *event.Envelope, e *event.StepSignalled) error {
	j, st, err := s.editStep(e.UID, e.Attempt, e.Step, env)
	if err != nil {
		return err
	}
	st.Signal = &Signal{Number: e.Signal, Seq: env.Seq}
	s.storeJob(j)
	return nil
}

func (s *State) applyStepUpdated(env *event.Envelope, e *event.StepUpdated) error {
	j, st, err := s.editStep(e.UID, e.Attempt, e.Step, env)
	if err != nil {
		return err
	}
	if e.Limit <= 0 {
		return contradictionError("step %d of job uid %d cannot have the time limit %d", e.Step, e.UID, e.Limit)
	}
	st.Limit = e.Limit
	s.storeJob(j)
	return nil
}

func (s *State) applyStepEnded(env *event.Envelope, e *event.StepEnded) error {
	j, st, err := s.editStep(e.UID, e.Attempt, e.Step, env)
	if err != nil {
		return err
	}
	if !e.State.Terminal() || e.State > spec.OutOfMemory || st.Done.Count() < len(st.Layout) {
		return contradictionError("step %d of attempt %d of job uid %d cannot end as %s, or is not over on all its nodes", e.Step, e.Attempt, e.UID, e.State)
	}
	res := e.Result
	st.State, st.Ended, st.Result, st.Usage = e.State, env.At, &res, e.Usage
	st.Spec, st.Layout = nil, nil // nobody needs them any more, and they can be large
	if res.Exit.Code > j.StepExit.Code {
		j.StepExit = res.Exit
	}
	ended := 0
	for i := range j.Steps {
		if !j.Steps[i].Live() {
			ended++
		}
	}
	if ended > keptSteps {
		i := slices.IndexFunc(j.Steps, func(st Step) bool { return !st.Live() })
		j.Steps = slices.Delete(j.Steps, i, i+1)
	}
	s.storeJob(j)
	return nil
}

// CheckSteps is S21: what steps have lies within what their job holds, and no
// two that do not share have the same.
func CheckSteps(s *State) error {
	return s.eachJob(func(j *Job) error {
		for i := range j.Steps {
			st := &j.Steps[i]
			switch {
			case len(st.Layout) > 0 && j.NextStep <= st.ID:
				return brokenInvariant("%s: its step %s is not below the next one, %d", s.labelJob(j), st.ID, j.NextStep)
			case !st.Live() && (st.Ended < st.Started || st.Done.Count() < len(st.Layout)):
				return brokenInvariant("%s: its step %s has ended, but not everywhere, or before it began", s.labelJob(j), st.ID)
			case !st.Live() || len(st.Layout) == 0: // histories from before layouts
				continue
			case !j.HoldsNodes():
				return brokenInvariant("%s: its step %s runs, but it holds no nodes", s.labelJob(j), st.ID)
			}
			if why := j.checkLayout(st); why != "" {
				return brokenInvariant("%s: step %s: %s", s.labelJob(j), st.ID, why)
			}
		}
		return nil
	})
}
