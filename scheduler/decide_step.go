package scheduler

import (
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

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

// EndJob ends a job that srun or salloc made, with the exit of what ran in it.
type EndJob struct {
	UID  spec.JobUID
	Exit spec.ExitStatus
}

// StepOver tells that nothing of a step is left on a node.
type StepOver struct {
	Step   spec.StepID
	Result event.StepResult
	Usage  spec.Usage
}

func (StartStep) command() string { return "start step" }
func (EndStep) command() string   { return "end step" }
func (EndJob) command() string    { return "end job" }

// runningJob finds a job in which steps can be.
func (d *decision) runningJob(uid spec.JobUID) (*state.Job, error) {
	j := d.t.Job(uid)
	switch {
	case j == nil:
		return nil, spec.Refuse(spec.CodeInvalidJobID, "")
	case j.State == spec.Pending:
		return nil, spec.Refuse(spec.CodeJobPending, "")
	case !j.State.Active() || j.Ending != nil:
		return nil, spec.Refuse(spec.CodeAlreadyDone, "")
	}
	return j, nil
}

func (d *decision) startStep(c StartStep) error {
	j, err := d.runningJob(c.UID)
	if err != nil {
		return err
	}
	if c.Attempt != 0 && c.Attempt != j.Attempt {
		return spec.Refuse(spec.CodeAlreadyDone, "")
	}
	for i := range j.Steps {
		if j.Steps[i].Ticket == c.Ticket && c.Ticket != "" {
			d.res.Step = j.Steps[i].ID
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
		if i > 0 && (o.Het == nil || leaderOf(o) != leaderOf(j) || slices.ContainsFunc(evs[:i], func(e *event.StepStarted) bool { return e.UID == o.UID })) {
			return spec.Refuse(spec.CodeBadRequest, "a step runs in different components of one heterogeneous job")
		}
		evs[i], number = ev, max(number, o.NextStep)
	}
	if len(evs) > 1 {
		for _, o := range d.t.Components(j) { // two such steps of one job are told apart by their numbers
			number = max(number, o.NextStep)
		}
		for i, w := range stepWorlds(j.ID, evs) {
			with := *evs[i].Spec
			with.World = w
			evs[i].Spec = &with
		}
	}
	d.res.Step = number
	for i := range evs {
		evs[i].Step, evs[i].Ticket = number, c.Ticket
		if err := d.emit(evs[i]); err != nil {
			return err
		}
	}
	return nil
}

// stepWorlds tell each part of a step in several components what it is as a
// whole.
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
func (d *decision) roomForStep(c *StartStep) (*event.StepStarted, *state.Job, error) {
	j, err := d.runningJob(c.UID)
	if err != nil {
		return nil, nil, err
	}
	switch {
	case c.Attempt != 0 && c.Attempt != j.Attempt:
		return nil, nil, spec.Refuse(spec.CodeAlreadyDone, "")
	case j.State == spec.Suspended:
		return nil, nil, spec.Refuse(spec.CodeJobSuspended, "")
	case j.Prepares:
		return nil, nil, spec.Refuse(spec.CodePrologRunning, "")
	case j.Configuring():
		return nil, nil, spec.Refuse(spec.CodeNodesBusy, "its nodes boot")
	case full(j):
		return nil, nil, spec.Refuse(spec.CodeNodesBusy, "the job has as many steps at once as it may")
	}
	layout, err := layStep(j, c.Spec, d.t.Config.Limits.MaxTasksPerNode)
	if err != nil {
		return nil, nil, err
	}
	for i := range layout {
		if n := d.t.NodeByID(layout[i].ID); n == nil || n.Inv == nil || n.Inv.Socket == "" {
			return nil, nil, spec.Refuse(spec.CodeDisabled, "the agent of node "+layout[i].Name+" starts no steps: it is of an older release")
		}
	}
	ev := &event.StepStarted{UID: j.UID, Attempt: j.Attempt, Name: c.Spec.Name, TRES: stepTRES(j, layout), Layout: layout, Spec: c.Spec}
	for i := range layout {
		ev.Nodes = append(ev.Nodes, layout[i].Name)
		ev.Tasks += layout[i].Tasks
	}
	return ev, j, nil
}

// What a job's live steps may come to. Steps that share what others have would
// else grow the ledger's state without bound.
const (
	maxLiveSteps     = 1024
	maxLiveStepBytes = 16 << 20 // of commands
)

// full tells that a job's next step waits until one of them is over.
func full(j *state.Job) bool {
	n, size := 0, 0
	for i := range j.Steps {
		if !j.Steps[i].Live() {
			continue
		}
		n++
		if s := j.Steps[i].Spec; s != nil {
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

func (d *decision) endStep(c EndStep) error {
	j := d.t.Job(c.UID)
	if j == nil {
		return spec.Refuse(spec.CodeInvalidJobID, "")
	}
	st := j.StepByID(c.Step)
	if j.Het.Leads() && (st == nil || st.Spec != nil && st.Spec.World != nil) { // not one of its own
		if parts := d.stepParts(j, c.Step); len(parts) > 0 {
			return d.endParts(parts, c)
		}
	}
	if st == nil && c.Step >= j.NextStep {
		return spec.Refuse(spec.CodeInvalidJobID, "")
	}
	if st == nil || !st.Live() {
		return spec.Refuse(spec.CodeAlreadyDone, "")
	}
	return d.endParts([]stepPart{{j, st}}, c)
}

// stepPart is a step of a component.
type stepPart struct {
	job  *state.Job
	step *state.Step
}

// stepParts are the parts of a step in several components that have not ended.
func (d *decision) stepParts(j *state.Job, id spec.StepID) []stepPart {
	var out []stepPart
	for _, c := range d.t.Components(j) {
		if st := c.StepByID(id); st != nil && st.Live() && st.Spec != nil && st.Spec.World != nil {
			out = append(out, stepPart{c, st})
		}
	}
	return out
}

func (d *decision) endParts(parts []stepPart, c EndStep) error {
	for _, p := range parts {
		var err error
		if c.Signal != 0 && c.Signal != sigKill {
			err = d.emit(&event.StepSignalled{UID: p.job.UID, Attempt: p.job.Attempt, Step: p.step.ID, Signal: c.Signal})
		} else {
			err = d.cutStep(p.job, p.step, event.EndCancel)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// cutStep decides that a step must end, once.
func (d *decision) cutStep(j *state.Job, st *state.Step, cause event.EndCause) error {
	if st.Ending != nil {
		return nil
	}
	return d.emit(&event.StepEndRequested{UID: j.UID, Attempt: j.Attempt, Step: st.ID, Cause: cause, By: d.t.Actor.UID})
}

// endJob is the verdict of a job without a batch script; its nodes are cleaned
// afterwards. One that still waits is cancelled.
func (d *decision) endJob(c EndJob) error {
	j := d.t.Job(c.UID)
	switch {
	case j == nil || !j.Spec.Shell:
		return spec.Refuse(spec.CodeInvalidJobID, "")
	case j.State.Terminal():
		return nil
	case j.State == spec.Pending:
		return d.cancel(Cancel{Target: Target{UID: j.UID, Task: spec.NoTask}})
	case j.Ending != nil:
		return nil // it was decided otherwise before
	case j.Configuring():
		return d.end(j, event.EndCancel, false, spec.NotHeld, "")
	}
	return d.emit(d.verdict(j, &NodeDone{Batch: &event.StepResult{Exit: c.Exit}}))
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

// stepOver closes a node's part of a step, and the step with its last part.
func (d *decision) stepOver(j *state.Job, node string, over *StepOver) error {
	st := j.StepByID(over.Step)
	if st == nil || st.Part(node) < 0 {
		d.res.Stale++
		return nil
	}
	if err := d.emit(&event.StepNodeDone{UID: j.UID, Attempt: j.Attempt, Step: st.ID, Node: node, Result: over.Result, Usage: over.Usage}); err != nil {
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
	return d.emit(ev)
}

// failedStep ends a step of which a part could not be started or was lost, in
// all its components: the rest would wait for it.
func (d *decision) failedStep(j *state.Job, st *state.Step) error {
	if !st.Result.Unknown {
		return nil
	}
	parts := []stepPart{{j, st}}
	if st.Spec != nil && st.Spec.World != nil {
		parts = d.stepParts(j, st.ID)
	}
	for _, p := range parts {
		if p.step.Done.Count() == len(p.step.Layout) {
			continue
		}
		if err := d.cutStep(p.job, p.step, event.EndNodeLost); err != nil {
			return err
		}
	}
	return nil
}

// stepsLeave closes what is left of a job's steps on a node that is given back.
func (d *decision) stepsLeave(j *state.Job, node string, lost bool) error {
	for _, st := range j.Steps {
		if st.Part(node) < 0 {
			continue
		}
		over := &StepOver{Step: st.ID, Result: event.StepResult{Ended: d.t.Now, Unknown: true, Detail: "its end was not seen"}}
		if lost {
			over.Result.Detail = "node " + node + " was lost"
		}
		if err := d.stepOver(d.t.Job(j.UID), node, over); err != nil {
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

// tickSteps ends the steps that are over their own time limit.
func (d *decision) tickSteps() error {
	type due struct {
		uid  spec.JobUID
		step spec.StepID
	}
	var list []due
	d.t.Active.Range(func(uid uint64, _ struct{}) bool {
		j := d.t.Job(spec.JobUID(uid))
		for i := range j.Steps {
			st := &j.Steps[i]
			if st.Live() && st.Ending == nil && st.Spec != nil && st.Spec.Limit > 0 && j.State == spec.Running && st.Started.Add(st.Spec.Limit) <= d.t.Now {
				list = append(list, due{j.UID, st.ID})
			}
		}
		return true
	})
	for _, x := range list {
		j := d.t.Job(x.uid)
		if err := d.cutStep(j, j.StepByID(x.step), event.EndTimeLimit); err != nil {
			return err
		}
	}
	return nil
}
