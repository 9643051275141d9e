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
func (d nodeCommands) updateNodes(c UpdateNodes) error {
	c.Nodes = slices.Clone(c.Nodes)
	slices.Sort(c.Nodes)
	c.Nodes = slices.Compact(c.Nodes)
	due, err := d.settingsDue(c)
	if err != nil {
		return err
	}
	changing, err := d.checkStates(c)
	if err != nil {
		return err
	}
	if c.Power != nil { // it checks all its nodes before it changes the first
		if err := d.dispatchCommand(c.Power); err != nil {
			return err
		}
	}
	for _, ev := range due {
		if err := d.Emit(ev); err != nil {
			return err
		}
	}
	for _, name := range changing {
		if err := d.setState(name, c); err != nil {
			return err
		}
	}
	return nil
}

// checkStates returns the nodes whose state is to be set. A node of a list that is
// in service already is not resumed; one that is named alone refuses.
func (d nodeCommands) checkStates(c UpdateNodes) ([]string, error) {
	if c.State == 0 {
		return nil, nil
	}
	var changing []string
	takesOut := c.State == event.NodeDrain || c.State == event.NodeFail || c.State == event.NodeDown
	for _, name := range c.Nodes {
		node := d.t.Node(name)
		inService := c.State == event.NodeResume && node.Admin == event.NodeResume
		switch {
		case takesOut && node.Reason == "" && (c.Reason == nil || *c.Reason == ""):
			return nil, spec.Refuse(
				spec.CodeInvalidNodeState,
				"you must specify a reason when DOWNING or DRAINING a node",
			)
		case inService && node.Spec.State == "FUTURE" && node.Inv == nil:
			return nil, spec.Refuse(spec.CodeInvalidNodeState, name+
				" is in state FUTURE; it becomes available once its agent has registered")
		case inService && len(c.Nodes) == 1:
			return nil, spec.Refuse(spec.CodeInvalidNodeState, "")
		case !inService:
			changing = append(changing, name)
		}
	}
	return changing, nil
}

// setState sets the administrative state of a node. DOWN takes the node's jobs away
// at once. That they are gone nobody has proved: state=fenced says that.
func (d nodeCommands) setState(name string, c UpdateNodes) error {
	reason := d.t.Node(name).Reason // an older one stands
	if c.Reason != nil && *c.Reason != "" {
		reason = *c.Reason
	}
	ev := &event.NodeStateSet{Node: name, State: c.State, Reason: reason}
	if c.ResumeAfter > 0 && c.State != event.NodeResume {
		ev.ResumeAt = d.t.Now.Add(c.ResumeAfter)
	}
	if err := d.Emit(ev); err != nil {
		return err
	}
	if c.State != event.NodeDown {
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
func (d nodeCommands) settingsDue(c UpdateNodes) ([]event.Event, error) {
	var due []event.Event
	_, fencing := c.Power.(DeclareFenced)
	for _, name := range c.Nodes {
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
		if c.Available != nil {
			ev.Features, ev.Available = *c.Available, nil // which are active all at once
		}
		if c.Active != nil {
			all := node.Spec.AvailableFeatures()
			if c.Available != nil {
				all = *c.Available
			}
			for _, f := range *c.Active {
				if !slices.Contains(all, f) {
					return nil, spec.Refuse(
						spec.CodeInvalidFeature,
						fmt.Sprintf("%s is not among the available features of %s", f, name),
					)
				}
			}
			ev.Features, ev.Available = *c.Active, all
			if len(*c.Active) == len(all) {
				ev.Features, ev.Available = all, nil
			}
		}
		set(&ev.Weight, c.Weight)
		set(&ev.Comment, c.Comment)
		set(&ev.Extra, c.Extra)
		if c.State == 0 && c.Power == nil {
			set(&ev.Reason, c.Reason)
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
func (d nodeCommands) registerNode(c RegisterNode) error {
	if d.t.Node(c.Node) == nil && c.Dynamic != nil {
		if err := d.createNodes([]spec.NodeSpec{*c.Dynamic}); err != nil {
			return err
		}
	}
	n := d.t.Node(c.Node)
	if n == nil || n.Removed {
		return spec.Refuse(
			spec.CodeInvalidNodeName,
			fmt.Sprintf("%s is not in the configuration", c.Node),
		)
	}
	rebooted := n.Inv != nil && n.Inv.BootID != c.Inventory.BootID && !n.Asleep()
	wasDown, before := n.Admin == event.NodeDown, ""
	if n.Inv != nil {
		before = n.Inv.BootID
	}
	if before != "" && before != c.Inventory.BootID {
		if err := d.rebootProves(c.Node); err != nil {
			return err
		}
	}
	if err := d.noteHeard(NodeHeard{Node: c.Node}); err != nil {
		return err
	}
	bad := invalid(n.Spec, &c.Inventory, d.t.Config.ConfigOverrides)
	if n.Inv == nil || n.Invalid != bad ||
		!reflect.DeepEqual(*n.Inv, c.Inventory) { // else an agent has only connected again
		if err := d.Emit(&event.NodeRegistered{Node: c.Node, Inventory: c.Inventory, Invalid: bad}); err != nil {
			return err
		}
	}
	if rebooted && (!n.IsRebooting() || !d.power().rebootedFor(n)) {
		if err := d.loseJobs(c.Node, "node "+c.Node+" rebooted"); err != nil {
			return err
		}
	}
	if err := d.power().cameBack(d.t.Node(c.Node), &c.Inventory, before); err != nil {
		return err
	}
	if n.Asleep() && n.Power != event.PoweringDown {
		if err := d.power().cameUp(c.Node); err != nil {
			return err
		}
	}
	if wasDown && n.ReasonBy.Kind == event.ActorSystem && d.t.Config.Timing.ReturnToService >= 1 {
		return d.Emit(&event.NodeStateSet{Node: c.Node, State: event.NodeResume})
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
func invalid(nodeSpec *spec.NodeSpec, inv *spec.Inventory, overrides bool) string {
	switch {
	case overrides:
	case inv.CPUs < nodeSpec.CPUs:
		return fmt.Sprintf("Low CPUs: %d found, %d configured", inv.CPUs, nodeSpec.CPUs)
	case inv.Mem < nodeSpec.Mem:
		return fmt.Sprintf("Low RealMemory: %d MiB found, %d configured", inv.Mem, nodeSpec.Mem)
	}
	for _, gres := range nodeSpec.GRES {
		var have int64
		if gres.Name == "gpu" {
			continue
		}
		for _, c := range inv.GRES {
			if c.Name == gres.Name && (gres.Type == "" || c.Type == gres.Type) {
				have += c.N
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

func (d nodeCommands) noteHeard(c NodeHeard) error {
	node := d.t.Node(c.Node)
	if node == nil || !node.Lost {
		return nil
	}
	return d.Emit(&event.NodeReturned{Node: c.Node})
}
