package decide

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// nodeCommands decides about nodes: their state, their registration, their faults, and
// the loss of one with its jobs.
type nodeCommands struct{ *decision }

// updateNodes checks everything before the first change, so that one node that
// refuses leaves all as they were. Settings come before the state: a reason that is
// given with a state is the state's.
func (d nodeCommands) updateNodes(command UpdateNodes) error {
	command.Nodes = slices.Clone(command.Nodes)
	slices.Sort(command.Nodes)
	command.Nodes = slices.Compact(command.Nodes)
	due, err := d.settingsDue(command)
	if err != nil {
		return err
	}
	changing, err := d.checkStates(command)
	if err != nil {
		return err
	}
	if command.Power != nil { // it checks all its nodes before it changes the first
		if err := d.dispatchCommand(command.Power); err != nil {
			return err
		}
	}
	for _, ev := range due {
		if err := d.Emit(ev); err != nil {
			return err
		}
	}
	for _, name := range changing {
		if err := d.setState(name, command); err != nil {
			return err
		}
	}
	return nil
}

// checkStates returns the nodes whose state is to be set. A node of a list that is
// in service already is not resumed; one that is named alone refuses.
func (d nodeCommands) checkStates(command UpdateNodes) ([]string, error) {
	if command.State == 0 {
		return nil, nil
	}
	var changing []string
	takesOut := command.State == event.NodeDrain || command.State == event.NodeFail ||
		command.State == event.NodeDown
	for _, name := range command.Nodes {
		node := d.t.Node(name)
		inService := command.State == event.NodeResume && node.Admin == event.NodeResume
		switch {
		case takesOut && node.Reason == "" && (command.Reason == nil || *command.Reason == ""):
			return nil, spec.Refuse(
				spec.CodeInvalidNodeState,
				"you must specify a reason when DOWNING or DRAINING a node",
			)
		case inService && node.Spec.State == "FUTURE" && node.Inv == nil:
			return nil, spec.Refuse(spec.CodeInvalidNodeState, name+
				" is in state FUTURE; it becomes available once its agent has registered")
		case inService && len(command.Nodes) == 1 && !command.KeepInService:
			return nil, spec.Refuse(spec.CodeInvalidNodeState, "")
		case !inService:
			changing = append(changing, name)
		}
	}
	return changing, nil
}

// setState sets the administrative state of a node. DOWN ends the node's jobs
// immediately, but does not prove that their processes are gone: only state=fenced asserts that.
func (d nodeCommands) setState(name string, command UpdateNodes) error {
	reason := d.t.Node(name).Reason // an older one stands
	if command.Reason != nil && *command.Reason != "" {
		reason = *command.Reason
	}
	ev := &event.NodeStateSet{Node: name, State: command.State, Reason: reason}
	if command.ResumeAfter > 0 && command.State != event.NodeResume {
		ev.ResumeAt = d.t.Now.Add(command.ResumeAfter)
	}
	if err := d.Emit(ev); err != nil {
		return err
	}
	if command.State != event.NodeDown {
		return nil
	}
	why := "node " + name + " was set down"
	if err := d.pods().endOn(name, why); err != nil {
		return err
	}
	return d.giveUpJobs(name, why)
}

// tickResumes returns those nodes to service whose ResumeAfter has passed.
func (d nodeCommands) tickResumes() error {
	var due []string
	d.t.Nodes.Range(func(_ uint64, node *state.Node) bool {
		if node.ResumeAt != 0 && node.ResumeAt <= d.t.Now && node.Admin != event.NodeResume {
			due = append(due, node.Spec.Name)
		}
		return true
	})
	for _, name := range due {
		if err := d.Emit(&event.NodeStateSet{Node: name, State: event.NodeResume}); err != nil {
			return err
		}
	}
	return nil
}

// settingsDue returns the events that change what is known of nodes. Of a node that
// is not configured any more only one thing can be said: that it is fenced.
func (d nodeCommands) settingsDue(command UpdateNodes) ([]event.Event, error) {
	var due []event.Event
	_, fencing := command.Power.(DeclareFenced)
	for _, name := range command.Nodes {
		node := d.t.Node(name)
		if node == nil || (node.Removed && !fencing) {
			return nil, spec.Refuse(spec.CodeInvalidNodeName, name)
		}
		ev := event.NodeChanged{
			Node:      name,
			Weight:    node.Spec.Weight,
			Features:  node.Spec.Features,
			Available: node.Spec.Available,
			Comment:   node.Comment,
			Extra:     node.Extra,
			Reason:    node.Reason,
		}
		was := ev
		if command.Available != nil {
			ev.Features, ev.Available = *command.Available, nil // which are active all at once
		}
		if command.Active != nil {
			all := node.Spec.AvailableFeatures()
			if command.Available != nil {
				all = *command.Available
			}
			for _, f := range *command.Active {
				if !slices.Contains(all, f) {
					return nil, spec.Refuse(
						spec.CodeInvalidFeature,
						fmt.Sprintf("%s is not among the available features of %s", f, name),
					)
				}
			}
			ev.Features, ev.Available = *command.Active, all
			if len(*command.Active) == len(all) {
				ev.Features, ev.Available = all, nil
			}
		}
		set(&ev.Weight, command.Weight)
		set(&ev.Comment, command.Comment)
		set(&ev.Extra, command.Extra)
		if command.State == 0 && command.Power == nil {
			set(&ev.Reason, command.Reason)
		}
		if reflect.DeepEqual(ev, was) {
			continue
		}
		if node.Removed {
			return nil, spec.Refuse(spec.CodeInvalidNodeName, name+" is not in the configuration")
		}
		due = append(due, &ev)
	}
	return due, nil
}

// set changes a value if a new one is given.
func set[T any](to, v *T) {
	if v != nil {
		*to = *v
	}
}

// registerNode takes an agent's inventory. A new boot id proves that the runs of
// the old life are gone.
func (d nodeCommands) registerNode(command RegisterNode) error {
	if d.t.Node(command.Node) == nil && command.Dynamic != nil {
		if err := d.createNodes([]spec.NodeSpec{*command.Dynamic}); err != nil {
			return err
		}
	}
	node := d.t.Node(command.Node)
	if node == nil || node.Removed {
		return spec.Refuse(
			spec.CodeInvalidNodeName,
			fmt.Sprintf("%s is not in the configuration", command.Node),
		)
	}
	rebooted := node.Inv != nil && node.Inv.BootID != command.Inventory.BootID && !node.Asleep()
	wasDown, before := node.Admin == event.NodeDown, ""
	if node.Inv != nil {
		before = node.Inv.BootID
	}
	if before != "" && before != command.Inventory.BootID {
		if err := d.rebootProves(command.Node); err != nil {
			return err
		}
	}
	if err := d.noteHeard(NodeHeard{Node: command.Node}); err != nil {
		return err
	}
	bad := invalid(node.Spec, &command.Inventory, d.t.Config.ConfigOverrides)
	if node.Inv == nil || node.Invalid != bad ||
		!reflect.DeepEqual(*node.Inv, command.Inventory) { // else an agent has only connected again
		if err := d.Emit(
			&event.NodeRegistered{Node: command.Node, Inventory: command.Inventory, Invalid: bad},
		); err != nil {
			return err
		}
	}
	if rebooted && (!node.IsRebooting() || !d.power().rebootedFor(node)) {
		if err := d.loseJobs(command.Node, "node "+command.Node+" rebooted"); err != nil {
			return err
		}
	}
	if err := d.power().cameBack(d.t.Node(command.Node), &command.Inventory, before); err != nil {
		return err
	}
	if node.Asleep() && node.Power != event.PoweringDown {
		if err := d.power().cameUp(command.Node); err != nil {
			return err
		}
	}
	if wasDown && node.ReasonBy.Kind == event.ActorSystem &&
		d.t.Config.Timing.ReturnToService >= 1 {
		return d.Emit(&event.NodeStateSet{Node: command.Node, State: event.NodeResume})
	}
	return nil
}

// judgeInventories compares what the agents have registered with a configuration
// that was adopted since. A node that has become silent is judged when it registers.
func (d nodeCommands) judgeInventories() error {
	var due []event.Event
	d.t.Nodes.Range(func(_ uint64, node *state.Node) bool {
		if node.Inv == nil || node.Lost || node.Removed {
			return true
		}
		bad := invalid(node.Spec, node.Inv, d.t.Config.ConfigOverrides)
		if bad != node.Invalid {
			due = append(due, &event.NodeRegistered{
				Node:      node.Spec.Name,
				Inventory: *node.Inv,
				Invalid:   bad,
			})
		}
		return true
	})
	for _, ev := range due {
		if err := d.Emit(ev); err != nil {
			return err
		}
	}
	return nil
}

// invalid says why an inventory does not fit the configuration, or "". With
// config_overrides the configured size counts, whatever the node has; other
// devices than GPUs must be there in any case. A node with fewer GPUs than
// configured is smaller by those: jobs get the ones that are there, and jobs
// that need none are none of their business; the agent says what is missing.
func invalid(nodeSpec *spec.NodeSpec, inventory *spec.Inventory, overrides bool) string {
	switch {
	case overrides:
	case inventory.CPUs < nodeSpec.CPUs:
		return fmt.Sprintf("Low CPUs: %d found, %d configured", inventory.CPUs, nodeSpec.CPUs)
	case inventory.Mem < nodeSpec.Mem:
		return fmt.Sprintf(
			"Low RealMemory: %d MiB found, %d configured", inventory.Mem, nodeSpec.Mem,
		)
	}
	for _, gres := range nodeSpec.GRES {
		var have int64
		if gres.Name == "gpu" {
			continue
		}
		for _, count := range inventory.GRES {
			if count.Name == gres.Name && (gres.Type == "" || count.Type == gres.Type) {
				have += count.N
			}
		}
		if have < gres.N {
			return fmt.Sprintf(
				"gres/%s count too low: %d found, %d configured",
				gres.Name,
				have,
				gres.N,
			)
		}
	}
	return ""
}

func (d nodeCommands) noteHeard(command NodeHeard) error {
	node := d.t.Node(command.Node)
	if node == nil || !node.Lost {
		return nil
	}
	return d.Emit(&event.NodeReturned{Node: command.Node})
}
