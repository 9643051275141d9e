package decide

import (
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// rebootNodes asks for nodes to be rebooted once no job is on them.
func (d powerCommands) rebootNodes(c RebootNodes) error {
	if d.t.Config.RebootProgram == "" {
		return spec.Refuse(spec.CodeDisabled, "RebootProgram is not configured: nodes cannot be rebooted")
	}
	for _, name := range c.Nodes {
		switch n := d.t.Node(name); {
		case n == nil || n.Removed:
			return spec.Refuse(spec.CodeInvalidNodeName, name)
		case n.Asleep():
			return spec.Refuse(spec.CodeInvalidNodeState, name+" is not powered up")
		case n.Reboot != nil && n.Reboot.Issued:
			return spec.Refuse(spec.CodeInvalidNodeState, name+" is rebooting already")
		}
	}
	for _, name := range c.Nodes {
		if err := d.Emit(&event.NodeReboot{Node: name, Phase: event.RebootWanted, ASAP: c.ASAP, Next: c.Next, Reason: c.Reason}); err != nil {
			return err
		}
	}
	return nil
}

// cancelReboots calls off reboots that have not begun.
func (d powerCommands) cancelReboots(c CancelReboots) error {
	for _, name := range c.Nodes {
		switch n := d.t.Node(name); {
		case n == nil:
			return spec.Refuse(spec.CodeInvalidNodeName, name)
		case n.Reboot == nil:
			return spec.Refuse(spec.CodeInvalidNodeState, name+" is not to be rebooted")
		case n.Reboot.Issued:
			return spec.Refuse(spec.CodeInvalidNodeState, name+" is rebooting already")
		}
	}
	for _, name := range c.Nodes {
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
func (d powerCommands) rebootedFor(n *state.Node) bool {
	return len(n.Jobs) > 0 && !slices.ContainsFunc(n.Jobs, func(uid spec.JobUID) bool {
		j := d.t.Job(uid)
		return !j.Configuring() || !j.Spec.Queue.Reboot || j.Ending != nil
	})
}

// tickReboots tells idle nodes to reboot that are to, and gives up those that
// do not come back.
func (d powerCommands) tickReboots() error {
	var due, late []string
	d.t.Nodes.Range(func(_ uint64, n *state.Node) bool {
		switch r := n.Reboot; {
		case r == nil:
		case r.Issued && r.At.Add(d.powerTimes(n).UpIn) <= d.t.Now:
			late = append(late, n.Spec.Name)
		case !r.Issued && len(n.Holds) == 0 && (len(n.Jobs) == 0 || d.rebootedFor(n)) && n.Inv != nil && !n.Lost && !n.Asleep():
			due = append(due, n.Spec.Name)
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

const rebootTimeout = "reboot timed out"

// cameBack ends the reboot of a node that has registered again, if it is
// another life of it.
func (d powerCommands) cameBack(n *state.Node, inv *spec.Inventory, before string) error {
	r := n.Reboot
	if r == nil || !r.Issued || (inv.BootID == before && inv.BootedAt <= r.At && inv.AgentStarted <= r.At) {
		return nil
	}
	if err := d.Emit(&event.NodeReboot{Node: n.Spec.Name, Phase: event.RebootOver}); err != nil {
		return err
	}
	if r.Next != 0 && r.Next != n.Admin {
		ev := &event.NodeStateSet{Node: n.Spec.Name, State: r.Next, Reason: r.Reason}
		if r.Next == event.NodeDown && ev.Reason == "" {
			ev.Reason = "rebooted"
		}
		if err := d.Emit(ev); err != nil {
			return err
		}
	}
	if r.Next == event.NodeDown {
		return d.nodes().loseJobs(n.Spec.Name, "node "+n.Spec.Name+" was to be down after its reboot")
	}
	return d.beginWaiting(n.Spec.Name)
}
