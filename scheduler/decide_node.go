package scheduler

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// updateNode sets the administrative state. DOWN takes the node's jobs away
// at once: the administrator vouches that nothing runs there any more.
func (d *decision) updateNode(c UpdateNode) error {
	n := d.t.Node(c.Node)
	if n == nil {
		return spec.Refuse(spec.CodeInvalidNodeName, c.Node)
	}
	if c.Reason == "" && n.Reason == "" && (c.State == event.NodeDrain || c.State == event.NodeFail || c.State == event.NodeDown) {
		return spec.Refuse(spec.CodeInvalidNodeState, "you must specify a reason when DOWNING or DRAINING a node")
	}
	if c.State == event.NodeResume && n.Admin == event.NodeResume {
		if n.Spec.State == "FUTURE" && n.Inv == nil {
			return spec.Refuse(spec.CodeInvalidNodeState, c.Node+" is FUTURE: it is there once its agent has registered")
		}
		return spec.Refuse(spec.CodeInvalidNodeState, "")
	}
	if c.Reason == "" {
		c.Reason = n.Reason // an older one stands
	}
	if err := d.emit(&event.NodeStateSet{Node: c.Node, State: c.State, Reason: c.Reason}); err != nil {
		return err
	}
	if c.State == event.NodeDown {
		return d.loseJobs(c.Node, "node "+c.Node+" was set down")
	}
	return nil
}

// amendNodes changes what is known of nodes, all of them or none.
func (d *decision) amendNodes(c ChangeNodes) error {
	var due []event.Event
	seen := map[string]bool{}
	for _, name := range c.Nodes {
		n := d.t.Node(name)
		switch {
		case n == nil || n.Removed:
			return spec.Refuse(spec.CodeInvalidNodeName, name)
		case seen[name]:
			continue
		}
		seen[name] = true
		ev := event.NodeChanged{Node: name, Weight: n.Spec.Weight, Features: n.Spec.Features, Available: n.Spec.Available, Comment: n.Comment, Extra: n.Extra, Reason: n.Reason}
		was := ev
		if c.Available != nil {
			ev.Features, ev.Available = *c.Available, nil // which are active all at once
		}
		if c.Active != nil {
			all := n.Spec.AvailableFeatures()
			if c.Available != nil {
				all = *c.Available
			}
			for _, f := range *c.Active {
				if !slices.Contains(all, f) {
					return spec.Refuse(spec.CodeInvalidFeature, fmt.Sprintf("%s is not among the available features of %s", f, name))
				}
			}
			if ev.Features, ev.Available = *c.Active, all; len(*c.Active) == len(all) {
				ev.Features, ev.Available = all, nil
			}
		}
		set(&ev.Weight, c.Weight)
		set(&ev.Comment, c.Comment)
		set(&ev.Extra, c.Extra)
		set(&ev.Reason, c.Reason)
		if !reflect.DeepEqual(ev, was) {
			due = append(due, &ev)
		}
	}
	for _, ev := range due {
		if err := d.emit(ev); err != nil {
			return err
		}
	}
	return nil
}

// set changes a value if a new one is given.
func set[T any](to, v *T) {
	if v != nil {
		*to = *v
	}
}

// register takes an agent's inventory. A new boot id proves that the runs of
// the old life are gone.
func (d *decision) register(c RegisterNode) error {
	if d.t.Node(c.Node) == nil && c.Dynamic != nil {
		if err := d.createNodes([]spec.NodeSpec{*c.Dynamic}); err != nil {
			return err
		}
	}
	n := d.t.Node(c.Node)
	if n == nil || n.Removed {
		return spec.Refuse(spec.CodeInvalidNodeName, fmt.Sprintf("%s is not in the configuration", c.Node))
	}
	rebooted := n.Inv != nil && n.Inv.BootID != c.Inventory.BootID && !n.Asleep()
	wasDown, before := n.Admin == event.NodeDown, ""
	if n.Inv != nil {
		before = n.Inv.BootID
	}
	if err := d.heard(NodeHeard{Node: c.Node}); err != nil {
		return err
	}
	bad := invalid(n.Spec, &c.Inventory, d.t.Config.ConfigOverrides)
	if n.Inv == nil || n.Invalid != bad || !reflect.DeepEqual(*n.Inv, c.Inventory) { // else an agent has only connected again
		if err := d.emit(&event.NodeRegistered{Node: c.Node, Inventory: c.Inventory, Invalid: bad}); err != nil {
			return err
		}
	}
	if rebooted && (n.Reboot == nil || !n.Reboot.Issued || !d.rebootedFor(n)) {
		if err := d.loseJobs(c.Node, "node "+c.Node+" rebooted"); err != nil {
			return err
		}
	}
	if err := d.cameBack(d.t.Node(c.Node), &c.Inventory, before); err != nil {
		return err
	}
	if n.Asleep() && n.Power != event.PoweringDown {
		if err := d.cameUp(c.Node); err != nil {
			return err
		}
	}
	if wasDown && n.ReasonBy.Kind == event.ActorSystem && d.t.Config.Timing.ReturnToService >= 1 {
		return d.emit(&event.NodeStateSet{Node: c.Node, State: event.NodeResume})
	}
	return nil
}

// invalid says why an inventory does not fit the configuration, or "". With
// config_overrides the configured size counts, whatever the node has; other
// devices than GPUs must be there in any case. A node with fewer GPUs than
// configured is smaller by those: jobs get the ones that are there, and jobs
// that need none are none of their business; the agent says what is missing.
func invalid(ns *spec.NodeSpec, inv *spec.Inventory, overrides bool) string {
	switch {
	case overrides:
	case inv.CPUs < ns.CPUs:
		return fmt.Sprintf("Low CPUs: %d found, %d configured", inv.CPUs, ns.CPUs)
	case inv.Mem < ns.Mem:
		return fmt.Sprintf("Low RealMemory: %d MiB found, %d configured", inv.Mem, ns.Mem)
	}
	for _, g := range ns.GRES {
		var have int64
		if g.Name == "gpu" {
			continue
		}
		for _, c := range inv.GRES {
			if c.Name == g.Name && (g.Type == "" || c.Type == g.Type) {
				have += c.N
			}
		}
		if have < g.N {
			return fmt.Sprintf("gres/%s count too low: %d found, %d configured", g.Name, have, g.N)
		}
	}
	return ""
}

func (d *decision) silent(c NodeSilent) error {
	n := d.t.Node(c.Node)
	if n == nil || n.Lost || n.Inv == nil || n.Asleep() || (n.Reboot != nil && n.Reboot.Issued) {
		return nil
	}
	return d.emit(&event.NodeLost{Node: c.Node, LastSeen: c.LastSeen})
}

func (d *decision) heard(c NodeHeard) error {
	n := d.t.Node(c.Node)
	if n == nil || !n.Lost {
		return nil
	}
	return d.emit(&event.NodeReturned{Node: c.Node})
}

// loseJobs takes all jobs of a node away: nothing of them is left there.
func (d *decision) loseJobs(node, why string) error {
	n := d.t.Node(node)
	for _, uid := range slices.Clone(n.Jobs) {
		j := d.t.Job(uid)
		if !holdsNode(j, node) {
			continue
		}
		if outlives(j, node) {
			if err := d.nodeDone(j, node, &NodeDone{}, true); err != nil {
				return err
			}
			continue
		}
		if j.State.Active() && j.Ending == nil {
			again := d.mayRequeue(j)
			if err := d.end(j, event.EndNodeLost, again, spec.NotHeld, why); err != nil {
				return err
			}
			if j = d.t.Job(uid); !j.HoldsNodes() || !holdsNode(j, node) {
				continue // it had not begun
			}
		}
		if err := d.nodeDone(j, node, &NodeDone{}, true); err != nil {
			return err
		}
	}
	return nil
}

// outlives tells whether a job goes on without a node that is lost: it was asked
// for with --no-kill, the script runs elsewhere, and all of it has begun.
func outlives(j *state.Job, node string) bool {
	return j.Spec.Queue.NoKill && j.State == spec.Running && j.Ending == nil && !j.Configuring() && j.Alloc.Nodes[0].Name != node && !lastNode(j, node)
}

// tick lets time pass.
func (d *decision) tick(c Tick) error {
	usage := func() error { return d.tickUsage(c.East) }
	for _, step := range [...]func() error{d.tickRunning, d.tickSteps, usage, d.tickAccrual, d.tickFences, d.tickPower, d.tickReboots, d.tickReservations, d.tickPurge} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// tickRunning ends the attempts that are over their time limit, with
// OverTimeLimit on top, or over their deadline, and sends the signal that a
// job asked for before its end.
func (d *decision) tickRunning() error {
	var due []event.Event
	d.t.Active.Range(func(uid uint64, _ struct{}) bool {
		j := d.t.Job(spec.JobUID(uid))
		if j.State != spec.Running || j.Ending != nil {
			return true
		}
		end := j.Deadline()
		switch by := j.Spec.Time.Deadline; {
		case j.Configuring() && (by == 0 || by > d.t.Now): // its time has not begun
		case !j.Configuring() && end != spec.FarFuture && end.Add(d.grace(j)) <= d.t.Now:
			due = append(due, d.ending(j, event.EndTimeLimit))
		case by != 0 && by <= d.t.Now:
			due = append(due, d.ending(j, event.EndDeadline))
		case j.Spec.Time.Signal != 0 && !j.Warned && end != spec.FarFuture && end.Add(-j.Spec.Time.SignalBefore) <= d.t.Now:
			scope := event.SignalSteps
			if j.Spec.Time.SignalBatch {
				scope = event.SignalBatch
			}
			due = append(due, &event.JobSignalled{UID: j.UID, Attempt: j.Attempt, Signal: j.Spec.Time.Signal, Scope: scope, Warning: true})
		}
		return true
	})
	return d.emitEnds(due)
}

// emitEnds emits what was found due, but for ends of attempts that an end
// before it has brought about already.
func (d *decision) emitEnds(due []event.Event) error {
	for _, ev := range due {
		if e, ok := ev.(*event.JobEndRequested); ok && (!d.t.Job(e.UID).State.Active() || d.t.Job(e.UID).Attempt != e.Attempt) {
			continue
		}
		if err := d.emit(ev); err != nil {
			return err
		}
	}
	return nil
}

func (d *decision) ending(j *state.Job, cause event.EndCause) event.Event {
	return &event.JobEndRequested{UID: j.UID, Attempt: j.Attempt, Cause: cause, By: d.t.Actor.UID}
}

func (d *decision) grace(j *state.Job) spec.Span {
	if p := d.t.Parts.Find(j.Alloc.Partition); p != nil && p.Spec.OverTimeLimit > 0 {
		return p.Spec.OverTimeLimit
	}
	return d.t.Config.Timing.OverTimeLimit
}

// lastStart is the latest start with which a pending job meets its deadline.
func lastStart(j *state.Job) spec.Instant {
	if l := j.Spec.Time.Limit; l != 0 && l != spec.Infinite {
		return j.Spec.Time.Deadline.Add(-l)
	}
	return j.Spec.Time.Deadline
}

// missed tells a pending job that can no longer meet its deadline.
func missed(j *state.Job, now spec.Instant) bool {
	return j.Spec.Time.Deadline != 0 && (now >= j.Spec.Time.Deadline || now > lastStart(j))
}

// endOf is the verdict on a job that never runs (again).
func endOf(j *state.Job, s spec.JobState, why spec.ReasonCode) *event.JobEnded {
	return &event.JobEnded{UID: j.UID, Attempt: j.Attempt, State: s, Reason: spec.Reason{Code: why}}
}

// tickFences takes the jobs of silent nodes away where the site opted into a
// lease (FenceAfter); otherwise a silent node keeps its jobs until it boots
// again or an administrator sets it down.
func (d *decision) tickFences() error {
	lease := d.t.Config.Timing.FenceAfter
	if lease == 0 {
		return nil
	}
	var due []string
	d.t.Nodes.Range(func(_ uint64, n *state.Node) bool {
		if n.Lost && len(n.Jobs) > 0 && n.LostAt.Add(lease) <= d.t.Now {
			due = append(due, n.Spec.Name)
		}
		return true
	})
	for _, name := range due {
		if err := d.loseJobs(name, "node "+name+" is silent and its lease has expired"); err != nil {
			return err
		}
	}
	return nil
}

// tickPurge forgets jobs that ended MinJobAge ago, but for those whose end
// somebody still waits to learn, or that EpilogSlurmctld has not run for.
func (d *decision) tickPurge() error {
	const maxPurge = 10_000 // of one event; the next tick goes on
	age := d.t.Config.Timing.MinJobAge
	if age == 0 {
		return nil
	}
	ev, ctl := &event.JobPurged{}, d.t.Config.Ctl
	d.t.Finished.Range(func(_ uint64, uid spec.JobUID) bool {
		j := d.t.Job(uid)
		if j.Ended.Add(age) > d.t.Now {
			return false
		}
		if !awaited(d.t.State, j) && (len(j.Epilogs) == 0 || ctl == nil || ctl.Epilog == "") {
			ev.UIDs = append(ev.UIDs, uid)
		}
		return len(ev.UIDs) < maxPurge
	})
	if len(ev.UIDs) == 0 {
		return nil
	}
	return d.emit(ev)
}
