package decide

import (
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/commit"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// stepCommands decides about steps, and about jobs that srun or salloc made.
type stepCommands struct{ *decision }

// StartStep asks for a step in a running job. The result names the step; Busy
// tells that it must wait for others.
type StartStep struct {
	UID     spec.JobUID
	Attempt uint32 // of the job; 0 = any
	Spec    *spec.StepSpec
	Ticket  string
	// Rest are its parts in other components of a heterogeneous job: all begin
	// together, with the same number.
	Rest []StartStep
}

// EndStep ends a step, or sends it a signal.
type EndStep struct {
	UID    spec.JobUID
	Step   spec.StepID
	Signal int32 // 0 ends it
}

// UpdateStep changes the time limit of a step that runs: of one, or of all of the
// job. Limit is as scontrol takes it, also with + or - before it.
type UpdateStep struct {
	UID   spec.JobUID
	Step  spec.StepID
	All   bool
	Limit string
	Admin bool
}

// EndJob ends a job that srun or salloc made, with the exit of what ran in it.
type EndJob struct {
	UID  spec.JobUID
	Exit spec.ExitStatus
}

func (StartStep) command() string  { return "start step" }
func (EndStep) command() string    { return "end step" }
func (UpdateStep) command() string { return "update step" }
func (EndJob) command() string     { return "end job" }

// runningJob finds a job in which steps can be.
func (d stepCommands) runningJob(uid spec.JobUID) (*state.Job, error) {
	job := d.t.Job(uid)
	switch {
	case job == nil:
		return nil, spec.Refuse(spec.CodeInvalidJobID, "")
	case job.State == spec.Pending:
		return nil, spec.Refuse(spec.CodeJobPending, "")
	case !job.GoesOn():
		return nil, spec.Refuse(spec.CodeAlreadyDone, "")
	case !job.Spec.Runner().TakesSteps():
		return nil, spec.Refuse(spec.CodeDisabled, "the job consists of pods: use kubectl exec")
	}
	return job, nil
}

func (d stepCommands) startStep(command StartStep) error {
	job, err := d.runningJob(command.UID)
	if err != nil {
		return err
	}
	if command.Attempt != 0 && command.Attempt != job.Attempt {
		return spec.Refuse(spec.CodeAlreadyDone, "")
	}
	for i := range job.Steps {
		if job.Steps[i].Ticket == command.Ticket && command.Ticket != "" {
			d.res.Step = job.Steps[i].ID
			return nil
		}
	}
	parts := append([]StartStep{command}, command.Rest...)
	evs := make([]*event.StepStarted, len(parts))
	number := spec.StepID(0)
	for i := range parts {
		ev, other, err := d.roomForStep(&parts[i])
		if err != nil {
			return err
		}
		if i > 0 && !isAnotherComponent(other, job, evs[:i]) {
			return spec.Refuse(
				spec.CodeBadRequest,
				"a step runs in different components of one heterogeneous job",
			)
		}
		evs[i], number = ev, max(number, other.NextStep)
	}
	if len(evs) > 1 {
		// two such steps of one job are told apart by their numbers
		for _, other := range d.t.Components(job) {
			number = max(number, other.NextStep)
		}
		for i, world := range stepWorlds(job.ID, evs) {
			with := *evs[i].Spec
			with.World = world
			evs[i].Spec = &with
		}
	}
	d.res.Step = number
	for i := range evs {
		evs[i].Step, evs[i].Ticket = number, command.Ticket
		if err := d.Emit(evs[i]); err != nil {
			return err
		}
	}
	return nil
}

// isAnotherComponent tells whether other is a component of the same heterogeneous job as first, and
// not one that the step runs in already.
func isAnotherComponent(other, first *state.Job, parts []*event.StepStarted) bool {
	if other.Het == nil || commit.LeaderOf(other) != commit.LeaderOf(first) {
		return false
	}
	return !slices.ContainsFunc(parts, func(e *event.StepStarted) bool {
		return e.UID == other.UID
	})
}

// stepWorlds describes the whole step to each part of it, for a step in several components: ranks
// are numbered over all parts.
func stepWorlds(first spec.JobID, evs []*event.StepStarted) []*spec.StepWorld {
	list := make([]spec.WorldPart, len(evs))
	worlds := make([]*spec.StepWorld, len(evs))
	for i, ev := range evs {
		list[i] = spec.WorldPart{Nodes: hostlist.Fold(ev.Nodes), Distribution: ev.Spec.Distribution}
		for k := range ev.Layout {
			list[i].Tasks = append(list[i].Tasks, ev.Layout[k].Tasks)
		}
		worlds[i] = &spec.StepWorld{Job: first, Place: uint32(i), Parts: list}
	}
	return worlds
}

// roomForStep finds what a step gets of its job.
func (d stepCommands) roomForStep(command *StartStep) (*event.StepStarted, *state.Job, error) {
	job, err := d.runningJob(command.UID)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case command.Attempt != 0 && command.Attempt != job.Attempt:
		return nil, nil, spec.Refuse(spec.CodeAlreadyDone, "")
	case job.State == spec.Suspended:
		return nil, nil, spec.Refuse(spec.CodeJobSuspended, "")
	case job.Prepares:
		return nil, nil, spec.Refuse(spec.CodePrologRunning, "")
	case job.Configuring():
		return nil, nil, spec.Refuse(spec.CodeNodesBusy, "its nodes boot")
	case isFull(job):
		return nil, nil, spec.Refuse(
			spec.CodeNodesBusy,
			"the job has reached its limit of concurrent steps",
		)
	}
	layout, err := layStep(job, command.Spec, d.t.Config.Limits.MaxTasksPerNode)
	if err != nil {
		return nil, nil, err
	}
	for i := range layout {
		if node := d.t.NodeByID(layout[i].ID); node == nil || node.Inv == nil ||
			node.Inv.Socket == "" {
			return nil, nil, spec.Refuse(spec.CodeDisabled, "the agent of node "+layout[i].Name+
				" starts no steps: it is of an older release")
		}
	}
	ev := &event.StepStarted{
		UID:     job.UID,
		Attempt: job.Attempt,
		Name:    command.Spec.Name,
		TRES:    stepTRES(job, layout),
		Layout:  layout,
		Spec:    command.Spec,
	}
	for i := range layout {
		ev.Nodes = append(ev.Nodes, layout[i].Name)
		ev.Tasks += layout[i].Tasks
	}
	return ev, job, nil
}

// What a job's live steps may come to. Steps that share what others have would
// else grow the ledger's state without bound.
const (
	maxLiveSteps     = 1024
	maxLiveStepBytes = 16 << 20 // of commands
)

// isFull tells that a job's next step waits until one of them is over.
func isFull(job *state.Job) bool {
	n, size := 0, 0
	for i := range job.Steps {
		if !job.Steps[i].Live() {
			continue
		}
		n++
		if step := job.Steps[i].Spec; step != nil {
			size += argvBytes(step.Argv)
			for p := range step.Programs {
				size += argvBytes(step.Programs[p].Argv)
			}
		}
	}
	return n >= maxLiveSteps || size >= maxLiveStepBytes
}

func argvBytes(argv []string) (n int) {
	for _, a := range argv {
		n += len(a)
	}
	return n
}

func (d stepCommands) endStep(command EndStep) error {
	job := d.t.Job(command.UID)
	if job == nil {
		return spec.Refuse(spec.CodeInvalidJobID, "")
	}
	step := job.StepByID(command.Step)
	if job.Het.Leads() &&
		(step == nil || step.Spec != nil && step.Spec.World != nil) { // not one of its own
		if parts := d.StepParts(job, command.Step); len(parts) > 0 {
			return d.endParts(parts, command)
		}
	}
	if step == nil && command.Step >= job.NextStep {
		return spec.Refuse(spec.CodeInvalidJobID, "")
	}
	if step == nil || !step.Live() {
		return spec.Refuse(spec.CodeAlreadyDone, "")
	}
	return d.endParts([]commit.StepPart{{Job: job, Step: step}}, command)
}

// updateStep changes time limits of steps. Only an administrator raises one. A step
// of a heterogeneous job has one limit in all components.
func (d stepCommands) updateStep(command UpdateStep) error {
	job := d.t.Job(command.UID)
	if job == nil {
		return spec.Refuse(spec.CodeInvalidJobID, "")
	}
	var parts []commit.StepPart
	for i := range job.Steps {
		step := &job.Steps[i]
		switch {
		case !step.Live() || !command.All && step.ID != command.Step:
		case step.Spec != nil && step.Spec.World != nil:
			parts = append(parts, d.StepParts(d.t.Job(commit.LeaderOf(job)), step.ID)...)
		default:
			parts = append(parts, commit.StepPart{Job: job, Step: step})
		}
	}
	if len(parts) == 0 {
		return spec.Refuse(spec.CodeAlreadyDone, "")
	}
	for _, part := range parts {
		old := part.Step.TimeLimit()
		if old == 0 {
			old = part.Job.Limit
		}
		limit, err := d.jobs().newLimit(old, command.Limit)
		if err != nil {
			return err
		}
		if limit > old && !command.Admin {
			return spec.Refuse(
				spec.CodeAccessDenied,
				"only an administrator may raise a time limit",
			)
		}
		if err := d.Emit(&event.StepUpdated{UID: part.Job.UID, Attempt: part.Job.Attempt, Step: part.Step.ID, Limit: limit}); err != nil {
			return err
		}
	}
	return nil
}

func (d stepCommands) endParts(parts []commit.StepPart, command EndStep) error {
	for _, part := range parts {
		var err error
		if command.Signal != 0 && command.Signal != commit.SigKill {
			err = d.Emit(
				&event.StepSignalled{
					UID:     part.Job.UID,
					Attempt: part.Job.Attempt,
					Step:    part.Step.ID,
					Signal:  command.Signal,
				},
			)
		} else {
			err = d.RequestStepEnd(part.Job, part.Step, event.EndCancel)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// endJob is the verdict of a job without a batch script; its nodes are cleaned
// afterwards. One that still waits is cancelled.
func (d stepCommands) endJob(command EndJob) error {
	job := d.t.Job(command.UID)
	switch {
	case job == nil || !job.Spec.Shell || job.Spec.Runner() != spec.ByAgents:
		return spec.Refuse(spec.CodeInvalidJobID, "")
	case job.State.Terminal():
		return nil
	case job.State == spec.Pending:
		return d.jobs().cancelJob(Cancel{Target: Target{UID: job.UID, Task: spec.NoTask}})
	case job.Ending != nil:
		return nil // it was decided otherwise before
	case job.Configuring():
		return d.RequestEnd(job, event.EndCancel, false, spec.NotHeld, "")
	}
	return d.Emit(d.DeriveEnd(job, &commit.NodeDone{Batch: &event.StepResult{Exit: command.Exit}}))
}

// tickSteps ends the steps that are over their own time limit.
func (d stepCommands) tickSteps() error {
	type due struct {
		uid  spec.JobUID
		step spec.StepID
	}
	var list []due
	d.t.Active.Range(func(uid uint64, _ struct{}) bool {
		job := d.t.Job(spec.JobUID(uid))
		if job.State != spec.Running {
			return true
		}
		for i := range job.Steps {
			step := &job.Steps[i]
			limit := step.TimeLimit()
			overdue := limit > 0 && step.Started.Add(limit) <= d.t.Now
			if overdue && step.Live() && step.Ending == nil {
				list = append(list, due{job.UID, step.ID})
			}
		}
		return true
	})
	for _, x := range list {
		job := d.t.Job(x.uid)
		if err := d.RequestStepEnd(job, job.StepByID(x.step), event.EndTimeLimit); err != nil {
			return err
		}
	}
	return nil
}
