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

func (d stepCommands) startStep(c StartStep) error {
	job, err := d.runningJob(c.UID)
	if err != nil {
		return err
	}
	if c.Attempt != 0 && c.Attempt != job.Attempt {
		return spec.Refuse(spec.CodeAlreadyDone, "")
	}
	for i := range job.Steps {
		if job.Steps[i].Ticket == c.Ticket && c.Ticket != "" {
			d.res.Step = job.Steps[i].ID
			return nil
		}
	}
	parts := append([]StartStep{c}, c.Rest...)
	evs := make([]*event.StepStarted, len(parts))
	number := spec.StepID(0)
	for i := range parts {
		ev, o, err := d.roomForStep(&parts[i])
		if err != nil {
			return err
		}
		if i > 0 && !isAnotherComponent(o, job, evs[:i]) {
			return spec.Refuse(
				spec.CodeBadRequest,
				"a step runs in different components of one heterogeneous job",
			)
		}
		evs[i], number = ev, max(number, o.NextStep)
	}
	if len(evs) > 1 {
		for _, o := range d.t.Components(job) { // two such steps of one job are told apart by their numbers
			number = max(number, o.NextStep)
		}
		for i, w := range stepWorlds(job.ID, evs) {
			with := *evs[i].Spec
			with.World = w
			evs[i].Spec = &with
		}
	}
	d.res.Step = number
	for i := range evs {
		evs[i].Step, evs[i].Ticket = number, c.Ticket
		if err := d.Emit(evs[i]); err != nil {
			return err
		}
	}
	return nil
}

// isAnotherComponent tells whether o is a component of the same heterogeneous job as first, and not
// one that the step runs in already.
func isAnotherComponent(o, first *state.Job, parts []*event.StepStarted) bool {
	if o.Het == nil || commit.LeaderOf(o) != commit.LeaderOf(first) {
		return false
	}
	return !slices.ContainsFunc(parts, func(e *event.StepStarted) bool { return e.UID == o.UID })
}

// stepWorlds describes the whole step to each part of it, for a step in several components: ranks
// are numbered over all parts.
func stepWorlds(first spec.JobID, evs []*event.StepStarted) []*spec.StepWorld {
	list := make([]spec.WorldPart, len(evs))
	out := make([]*spec.StepWorld, len(evs))
	for i, ev := range evs {
		list[i] = spec.WorldPart{Nodes: hostlist.Fold(ev.Nodes), Distribution: ev.Spec.Distribution}
		for k := range ev.Layout {
			list[i].Tasks = append(list[i].Tasks, ev.Layout[k].Tasks)
		}
		out[i] = &spec.StepWorld{Job: first, Place: uint32(i), Parts: list}
	}
	return out
}

// roomForStep finds what a step gets of its job.
func (d stepCommands) roomForStep(c *StartStep) (*event.StepStarted, *state.Job, error) {
	job, err := d.runningJob(c.UID)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case c.Attempt != 0 && c.Attempt != job.Attempt:
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
	layout, err := layStep(job, c.Spec, d.t.Config.Limits.MaxTasksPerNode)
	if err != nil {
		return nil, nil, err
	}
	for i := range layout {
		if n := d.t.NodeByID(layout[i].ID); n == nil || n.Inv == nil || n.Inv.Socket == "" {
			return nil, nil, spec.Refuse(spec.CodeDisabled, "the agent of node "+layout[i].Name+
				" starts no steps: it is of an older release")
		}
	}
	ev := &event.StepStarted{
		UID:     job.UID,
		Attempt: job.Attempt,
		Name:    c.Spec.Name,
		TRES:    stepTRES(job, layout),
		Layout:  layout,
		Spec:    c.Spec,
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
		if s := job.Steps[i].Spec; s != nil {
			size += argvBytes(s.Argv)
			for p := range s.Programs {
				size += argvBytes(s.Programs[p].Argv)
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

func (d stepCommands) endStep(c EndStep) error {
	job := d.t.Job(c.UID)
	if job == nil {
		return spec.Refuse(spec.CodeInvalidJobID, "")
	}
	step := job.StepByID(c.Step)
	if job.Het.Leads() &&
		(step == nil || step.Spec != nil && step.Spec.World != nil) { // not one of its own
		if parts := d.StepParts(job, c.Step); len(parts) > 0 {
			return d.endParts(parts, c)
		}
	}
	if step == nil && c.Step >= job.NextStep {
		return spec.Refuse(spec.CodeInvalidJobID, "")
	}
	if step == nil || !step.Live() {
		return spec.Refuse(spec.CodeAlreadyDone, "")
	}
	return d.endParts([]commit.StepPart{{Job: job, Step: step}}, c)
}

// updateStep changes time limits of steps. Only an administrator raises one. A step
// of a heterogeneous job has one limit in all components.
func (d stepCommands) updateStep(c UpdateStep) error {
	job := d.t.Job(c.UID)
	if job == nil {
		return spec.Refuse(spec.CodeInvalidJobID, "")
	}
	var parts []commit.StepPart
	for i := range job.Steps {
		step := &job.Steps[i]
		switch {
		case !step.Live() || !c.All && step.ID != c.Step:
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
		limit, err := d.jobs().newLimit(old, c.Limit)
		if err != nil {
			return err
		}
		if limit > old && !c.Admin {
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

func (d stepCommands) endParts(parts []commit.StepPart, c EndStep) error {
	for _, part := range parts {
		var err error
		if c.Signal != 0 && c.Signal != commit.SigKill {
			err = d.Emit(
				&event.StepSignalled{
					UID:     part.Job.UID,
					Attempt: part.Job.Attempt,
					Step:    part.Step.ID,
					Signal:  c.Signal,
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
func (d stepCommands) endJob(c EndJob) error {
	j := d.t.Job(c.UID)
	switch {
	case j == nil || !j.Spec.Shell || j.Spec.Runner() != spec.ByAgents:
		return spec.Refuse(spec.CodeInvalidJobID, "")
	case j.State.Terminal():
		return nil
	case j.State == spec.Pending:
		return d.jobs().cancelJob(Cancel{Target: Target{UID: j.UID, Task: spec.NoTask}})
	case j.Ending != nil:
		return nil // it was decided otherwise before
	case j.Configuring():
		return d.RequestEnd(j, event.EndCancel, false, spec.NotHeld, "")
	}
	return d.Emit(d.DeriveEnd(j, &commit.NodeDone{Batch: &event.StepResult{Exit: c.Exit}}))
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
			st := &job.Steps[i]
			limit := st.TimeLimit()
			overdue := limit > 0 && st.Started.Add(limit) <= d.t.Now
			if overdue && st.Live() && st.Ending == nil {
				list = append(list, due{job.UID, st.ID})
			}
		}
		return true
	})
	for _, x := range list {
		j := d.t.Job(x.uid)
		if err := d.RequestStepEnd(j, j.StepByID(x.step), event.EndTimeLimit); err != nil {
			return err
		}
	}
	return nil
}
