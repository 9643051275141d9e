package decide

import (
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// rebootNodes asks for nodes to be rebooted once no job is on them.
func (d powerCommands) rebootNodes(command RebootNodes) error {
	if d.t.Config.RebootProgram == "" {
		return spec.Refuse(
			spec.CodeDisabled,
			"RebootProgram is not configured: nodes cannot be rebooted",
		)
	}
	for _, name := range command.Nodes {
		switch node := d.t.Node(name); {
		case node == nil || node.Removed:
			return spec.Refuse(spec.CodeInvalidNodeName, name)
		case node.Asleep():
			return spec.Refuse(spec.CodeInvalidNodeState, name+" is not powered up")
		case node.IsRebooting():
			return spec.Refuse(spec.CodeInvalidNodeState, name+" is rebooting already")
		}
	}
	for _, name := range command.Nodes {
		if err := d.Emit(
			&event.NodeReboot{
				Node:   name,
				Phase:  event.RebootWanted,
				ASAP:   command.ASAP,
				Next:   command.Next,
				Reason: command.Reason,
			},
		); err != nil {
			return err
		}
	}
	return nil
}

// cancelReboots calls off reboots that have not begun.
func (d powerCommands) cancelReboots(cancel CancelReboots) error {
	for _, name := range cancel.Nodes {
		switch node := d.t.Node(name); {
		case node == nil:
			return spec.Refuse(spec.CodeInvalidNodeName, name)
		case node.Reboot == nil:
			return spec.Refuse(spec.CodeInvalidNodeState, name+" is not to be rebooted")
		case node.Reboot.Issued:
			return spec.Refuse(spec.CodeInvalidNodeState, name+" is rebooting already")
		}
	}
	for _, name := range cancel.Nodes {
		if n := d.t.Node(name); n.Reboot == nil {
			continue // named twice
		}
		if err := d.Emit(&event.NodeReboot{Node: name, Phase: event.RebootOver, Reason: "called off"}); err != nil {
			return err
		}
		if err := d.beginWaiting(name); err != nil {
			return err
		}
	}
	return nil
}

// rebootedFor tells whether nothing is on a node but a job that waits for its
// reboot.
func (d powerCommands) rebootedFor(node *state.Node) bool {
	return len(node.Jobs) > 0 && !slices.ContainsFunc(node.Jobs, func(uid spec.JobUID) bool {
		job := d.t.Job(uid)
		return !job.Configuring() || !job.Spec.Queue.Reboot || job.Ending != nil
	})
}

// tickReboots tells idle nodes to reboot that are to, and gives up those that
// do not come back.
func (d powerCommands) tickReboots() error {
	var due, late []string
	d.t.Nodes.Range(func(_ uint64, node *state.Node) bool {
		switch reboot := node.Reboot; {
		case reboot == nil:
		case reboot.Issued && reboot.At.Add(d.powerTimes(node).UpIn) <= d.t.Now:
			late = append(late, node.Spec.Name)
		case !reboot.Issued && d.canReboot(node):
			due = append(due, node.Spec.Name)
		}
		return true
	})
	for _, name := range due {
		if err := d.Emit(&event.NodeReboot{Node: name, Phase: event.RebootIssued}); err != nil {
			return err
		}
	}
	for _, name := range late {
		if err := d.Emit(&event.NodeReboot{Node: name, Phase: event.RebootOver, Reason: rebootTimeout}); err != nil {
			return err
		}
		if err := d.endBoots(name, rebootTimeout); err != nil {
			return err
		}
		if n := d.t.Node(name); n.Admin == event.NodeDown {
			continue
		}
		if err := d.Emit(&event.NodeStateSet{Node: name, State: event.NodeDown, Reason: rebootTimeout}); err != nil {
			return err
		}
	}
	return nil
}

// canReboot tells whether a node can be told to reboot now: its agent is there to obey,
// and nothing would be lost but the job for which the node reboots.
func (d powerCommands) canReboot(node *state.Node) bool {
	if node.Inv == nil || node.Lost || node.Asleep() {
		return false
	}
	return len(node.Holds) == 0 && (len(node.Jobs) == 0 || d.rebootedFor(node))
}

const rebootTimeout = "reboot timed out"

// cameBack ends the reboot of a node that has registered again, if it is
// another life of it.
func (d powerCommands) cameBack(node *state.Node, inventory *spec.Inventory, before string) error {
	if !node.IsRebooting() {
		return nil
	}
	reboot := node.Reboot
	sameLife := inventory.BootID == before && inventory.BootedAt <= reboot.At &&
		inventory.AgentStarted <= reboot.At
	if sameLife {
		return nil
	}
	if err := d.Emit(&event.NodeReboot{Node: node.Spec.Name, Phase: event.RebootOver}); err != nil {
		return err
	}
	if reboot.Next != 0 && reboot.Next != node.Admin {
		ev := &event.NodeStateSet{Node: node.Spec.Name, State: reboot.Next, Reason: reboot.Reason}
		if reboot.Next == event.NodeDown && ev.Reason == "" {
			ev.Reason = "rebooted"
		}
		if err := d.Emit(ev); err != nil {
			return err
		}
	}
	if reboot.Next == event.NodeDown {
		return d.nodes().loseJobs(node.Spec.Name, "node "+node.Spec.Name+
			" was to be down after its reboot")
	}
	return d.beginWaiting(node.Spec.Name)
}
