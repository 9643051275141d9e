package decide

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// SetTriggers adds triggers of one user; their numbers are given here.
type SetTriggers struct{ Triggers []spec.Trigger }

// ClearTrigger removes a trigger.
type ClearTrigger struct{ ID uint32 }

// TriggerRan tells that a run of a trigger's program has ended, however it ended.
type TriggerRan struct {
	ID   uint32
	Pull spec.TriggerPull
}

func (SetTriggers) command() string  { return "set trigger" }
func (ClearTrigger) command() string { return "clear trigger" }
func (TriggerRan) command() string   { return "trigger" }

// Bounds of what one user, or all, may set.
const (
	maxUserTriggers = 200
	maxTriggers     = 2000
)

// triggerCommands decides about triggers.
type triggerCommands struct{ *decision }

func (d *decision) triggers() triggerCommands { return triggerCommands{d} }

// setTriggers adds all of the triggers or none, and says all that is wrong with them at once.
func (d triggerCommands) setTriggers(command SetTriggers) error {
	var problems []string
	own := 0
	for i := range d.t.Triggers {
		if len(command.Triggers) > 0 && d.t.Triggers[i].UID == command.Triggers[0].UID {
			own++
		}
	}
	if n := len(command.Triggers); own+n > maxUserTriggers || len(d.t.Triggers)+n > maxTriggers {
		problems = append(problems, fmt.Sprintf(
			"%d triggers of this user, %d in all: at most %d and %d are possible",
			own+n, len(d.t.Triggers)+n, maxUserTriggers, maxTriggers))
	}
	for i := range command.Triggers {
		if reason := d.refuseTrigger(&command.Triggers[i]); reason != "" {
			problems = append(problems, reason)
		}
	}
	if len(problems) > 0 {
		return spec.Refuse(spec.CodeBadRequest, strings.Join(problems, "; "))
	}
	for _, trigger := range command.Triggers {
		trigger.ID = d.t.NextTrigger + 1
		if err := d.Emit(&event.TriggerPut{Trigger: trigger}); err != nil {
			return err
		}
		d.res.Triggers = append(d.res.Triggers, trigger.ID)
	}
	return nil
}

// refuseTrigger says what is wrong with a trigger; empty if nothing is.
func (d triggerCommands) refuseTrigger(trigger *spec.Trigger) string {
	if trigger.Job != 0 {
		job := d.t.Job(trigger.Job)
		if job == nil {
			return "there is no such job"
		}
		if job.State.Terminal() {
			return fmt.Sprintf("job %d has ended", job.ID)
		}
	}
	if trigger.Kind.AboutJobs() && trigger.Job == 0 {
		return trigger.Kind.String() + " needs a job"
	}
	if trigger.Node != "" && d.t.Node(trigger.Node) == nil {
		return "there is no node " + trigger.Node
	}
	for i := range d.t.Triggers {
		if sameTrigger(&d.t.Triggers[i], trigger) {
			return fmt.Sprintf("trigger %d is the same", d.t.Triggers[i].ID)
		}
	}
	return ""
}

func sameTrigger(a, b *spec.Trigger) bool {
	sameEvent := a.Kind == b.Kind && a.Node == b.Node && a.Job == b.Job
	sameAction := a.Offset == b.Offset && a.Program == b.Program && a.UID == b.UID
	return sameEvent && sameAction && len(a.Pulls) == 0
}

func (d triggerCommands) clearTriggers(command ClearTrigger) error {
	if d.t.Trigger(command.ID) == nil {
		return spec.Refuse(spec.CodeBadRequest, fmt.Sprintf("there is no trigger %d", command.ID))
	}
	return d.Emit(&event.TriggerRemoved{ID: command.ID})
}

// forgetRun forgets a run that has ended, and a trigger with its only one.
func (d triggerCommands) forgetRun(command TriggerRan) error {
	old := d.t.Trigger(command.ID)
	if old == nil || !slices.Contains(old.Pulls, command.Pull) {
		d.res.Stale++
		return nil
	}
	trigger := *old
	i := slices.Index(trigger.Pulls, command.Pull)
	trigger.Pulls = slices.Delete(slices.Clone(trigger.Pulls), i, i+1)
	if !trigger.Permanent && len(trigger.Pulls) == 0 {
		return d.Emit(&event.TriggerRemoved{ID: command.ID, Why: "run"})
	}
	return d.Emit(&event.TriggerPut{Trigger: trigger})
}

// pullTrigger adds a run to a trigger. One that is not permanent has one run.
func (d triggerCommands) pullTrigger(id uint32, what string, at spec.Instant) error {
	trigger := *d.t.Trigger(id)
	pull := spec.TriggerPull{Due: at, What: what}
	if !trigger.Permanent && len(trigger.Pulls) > 0 || slices.Contains(trigger.Pulls, pull) {
		return nil
	}
	trigger.Pulls = append(slices.Clip(trigger.Pulls), pull)
	return d.Emit(&event.TriggerPut{Trigger: trigger})
}

// followEvents pulls the triggers of what the events of a command brought about. before is the
// state before them.
func (d triggerCommands) followEvents(before *state.State, events []event.Envelope) error {
	var nodes []string
	for i := range events {
		switch e := events[i].Event.(type) {
		case *event.JobEnded:
			if err := d.jobEnded(e.UID); err != nil {
				return err
			}
		case *event.ConfigAdopted:
			if before.Config.ClusterName != "" {
				if err := d.pullAll(spec.TriggerReconfig, "", ""); err != nil {
					return err
				}
			}
		case *event.EpochBegan:
			if err := d.leaderChanged(before, e.Host); err != nil {
				return err
			}
		case *event.NodeStateSet:
			if e.State == event.NodeResume {
				if err := d.pullAll(spec.TriggerNodeResume, e.Node, ""); err != nil {
					return err
				}
			}
			nodes = append(nodes, e.Node)
		case *event.NodeLost:
			nodes = append(nodes, e.Node)
		case *event.NodeReturned:
			nodes = append(nodes, e.Node)
		case *event.NodeRegistered:
			nodes = append(nodes, e.Node)
		case *event.JobNodeDone:
			nodes = append(nodes, e.Node)
		}
	}
	slices.Sort(nodes)
	for _, name := range slices.Compact(nodes) {
		if err := d.nodeChanged(before, before.Node(name), d.t.Node(name)); err != nil {
			return err
		}
	}
	return nil
}

// nodeState is what triggers tell apart.
type nodeState struct{ down, draining, drained, failing bool }

func stateOf(node *state.Node) nodeState {
	if node == nil {
		return nodeState{}
	}
	set := node.Admin == event.NodeDrain || node.Admin == event.NodeFail
	return nodeState{
		down:     node.Admin == event.NodeDown || node.Lost || node.Inv == nil && !node.Asleep(),
		draining: node.Admin == event.NodeDrain && len(node.Jobs) > 0,
		drained:  set && len(node.Jobs) == 0,
		failing:  node.Admin == event.NodeFail,
	}
}

// nodeChanged pulls the triggers of a node whose state is another than before.
func (d triggerCommands) nodeChanged(before *state.State, old, now *state.Node) error {
	if now == nil {
		return nil
	}
	was := stateOf(old)
	is := stateOf(now)
	for _, c := range [...]struct {
		kind  spec.TriggerKind
		holds bool
	}{
		{spec.TriggerNodeDown, is.down && !was.down},
		{spec.TriggerNodeUp, !is.down && was.down},
		{spec.TriggerNodeDraining, is.draining && !was.draining},
		{spec.TriggerNodeDrained, is.drained && !was.drained},
		{spec.TriggerNodeFail, is.failing && !was.failing},
	} {
		if !c.holds {
			continue
		}
		if err := d.pullNode(before, c.kind, old, now.Spec.Name); err != nil {
			return err
		}
	}
	return nil
}

// pullNode pulls the triggers about a node: those of all nodes, of this one, and of a job
// that has it.
func (d triggerCommands) pullNode(
	before *state.State,
	kind spec.TriggerKind,
	old *state.Node,
	name string,
) error {
	for _, trigger := range slices.Clone(d.t.Triggers) {
		if trigger.Kind != kind || trigger.Node != "" && trigger.Node != name {
			continue
		}
		if trigger.Job != 0 &&
			(before.Job(trigger.Job) == nil || old == nil || !slices.Contains(old.Jobs, trigger.Job)) {
			continue
		}
		if err := d.pullTrigger(trigger.ID, name, d.t.Now.Add(trigger.Offset)); err != nil {
			return err
		}
	}
	return nil
}

// pullAll pulls the triggers of a kind; those that name a node only for that one.
func (d triggerCommands) pullAll(kind spec.TriggerKind, node, what string) error {
	for _, trigger := range slices.Clone(d.t.Triggers) {
		if trigger.Kind != kind || trigger.Node != "" && trigger.Node != node {
			continue
		}
		if node != "" {
			what = node
		}
		if err := d.pullTrigger(trigger.ID, what, d.t.Now.Add(trigger.Offset)); err != nil {
			return err
		}
	}
	return nil
}

// jobEnded pulls the triggers that wait for the end of a job, and removes those that can
// never be pulled any more.
func (d triggerCommands) jobEnded(uid spec.JobUID) error {
	for _, trigger := range slices.Clone(d.t.Triggers) {
		if trigger.Job != uid {
			continue
		}
		var err error
		switch {
		case trigger.Kind == spec.TriggerJobFini:
			err = d.pullTrigger(trigger.ID, d.jobName(uid), d.t.Now.Add(max(trigger.Offset, 0)))
		case len(trigger.Pulls) == 0 && !d.t.ComesBack(d.t.Job(uid)):
			err = d.Emit(&event.TriggerRemoved{ID: trigger.ID, Why: "the job has ended"})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d triggerCommands) jobName(uid spec.JobUID) string {
	return strconv.FormatUint(uint64(d.t.Job(uid).ID), 10)
}

// leaderChanged pulls the triggers about controllers. The primary one is that which led
// the cluster first.
func (d triggerCommands) leaderChanged(before *state.State, host string) error {
	primary := d.t.FirstLeader
	was := before.Leader
	if was == "" || host == "" {
		return nil
	}
	for _, c := range [...]struct {
		kind  spec.TriggerKind
		holds bool
	}{
		{spec.TriggerControllerFailed, was == primary && host != primary},
		{spec.TriggerBackupLeads, was == primary && host != primary},
		{spec.TriggerControllerResumed, host == primary},
		{spec.TriggerControllerRegained, host == primary && was != primary},
	} {
		if !c.holds {
			continue
		}
		if err := d.pullAll(c.kind, "", host); err != nil {
			return err
		}
	}
	return nil
}

// tickTriggers pulls the triggers that wait for time: the limit of a job comes near, or a
// node has been idle for so long.
func (d triggerCommands) tickTriggers() error {
	for _, trigger := range slices.Clone(d.t.Triggers) {
		var err error
		switch trigger.Kind {
		case spec.TriggerJobTime:
			err = d.tickTime(trigger)
		case spec.TriggerNodeIdle:
			err = d.tickIdle(trigger)
		default:
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d triggerCommands) tickTime(trigger spec.Trigger) error {
	job := d.t.Job(trigger.Job)
	if job == nil || job.State != spec.Running {
		return nil
	}
	end := job.Deadline()
	if end == spec.FarFuture || end.Add(trigger.Offset) > d.t.Now {
		return nil
	}
	mark := spec.TriggerMark{What: d.jobName(trigger.Job), Since: job.Started}
	return d.pullOnce(trigger, mark)
}

func (d triggerCommands) tickIdle(trigger spec.Trigger) error {
	for _, name := range d.nodesOf(trigger) {
		node := d.t.Node(name)
		if node == nil || !node.Usable() || node.Asleep() || len(node.Jobs) > 0 {
			continue
		}
		since := max(node.BusyAt, node.Registered)
		if since.Add(trigger.Offset) > d.t.Now {
			continue
		}
		mark := spec.TriggerMark{What: name, Since: since}
		if err := d.pullOnce(*d.t.Trigger(trigger.ID), mark); err != nil {
			return err
		}
	}
	return nil
}

// nodesOf are the nodes that a trigger is about, by id.
func (d triggerCommands) nodesOf(trigger spec.Trigger) []string {
	if trigger.Node != "" {
		return []string{trigger.Node}
	}
	var out []string
	d.t.Nodes.Range(func(_ uint64, node *state.Node) bool {
		if !node.Removed && node.Spec != nil {
			out = append(out, node.Spec.Name)
		}
		return true
	})
	return out
}

// pullOnce pulls a trigger for a state that lasts, and remembers it.
func (d triggerCommands) pullOnce(trigger spec.Trigger, mark spec.TriggerMark) error {
	if slices.Contains(trigger.Done, mark) || !trigger.Permanent && len(trigger.Pulls) > 0 {
		return nil
	}
	trigger.Done = append(
		slices.DeleteFunc(
			slices.Clone(trigger.Done),
			func(m spec.TriggerMark) bool { return m.What == mark.What },
		),
		mark,
	)
	pull := spec.TriggerPull{Due: d.t.Now, What: mark.What}
	trigger.Pulls = append(slices.Clip(trigger.Pulls), pull)
	return d.Emit(&event.TriggerPut{Trigger: trigger})
}
