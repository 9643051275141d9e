package decide

import (
	"fmt"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// createNodes adds nodes, all of them or none.
func (d nodeCommands) createNodes(list []spec.NodeSpec) error {
	cfg := d.t.Config
	if cfg.MaxNodes == 0 {
		return spec.Refuse(
			spec.CodeDisabled,
			"nodes are added while the cluster runs only with MaxNodeCount in slurm.conf",
		)
	}
	if n := len(cfg.Nodes) + len(list); n > int(cfg.MaxNodes) {
		return spec.Refuse(
			spec.CodeNodeCountInvalid,
			fmt.Sprintf("MaxNodeCount=%d, and with these there would be %s", cfg.MaxNodes, format.Plural(n, "node", "nodes")),
		)
	}
	for i := range list {
		name := list[i].Name
		twice := slices.ContainsFunc(list[:i], func(n spec.NodeSpec) bool { return n.Name == name })
		if n := d.t.Node(name); n != nil && n.Removed {
			return spec.Refuse(spec.CodeNodesBusy, name+
				" was taken away, and a job is not done there yet")
		} else if n != nil || twice {
			return spec.Refuse(spec.CodeInvalidNodeName, name+" exists already")
		}
	}
	for i := range list {
		if err := d.Emit(&event.NodeAdded{Node: list[i], Partitions: cfg.Taking(&list[i])}); err != nil {
			return err
		}
	}
	return nil
}

// deleteNodes takes nodes away that were added while the cluster ran and that
// nobody uses, all of them or none.
func (d nodeCommands) deleteNodes(c DeleteNodes) error {
	for _, name := range c.Nodes {
		n := d.t.Node(name)
		switch {
		case n == nil || n.Removed:
			return spec.Refuse(spec.CodeInvalidNodeName, name)
		case !n.Spec.Dynamic:
			return spec.Refuse(spec.CodeInvalidNodeState, name+
				" is defined in slurm.conf; remove it there and run scontrol reconfigure")
		case len(n.Jobs) > 0:
			return spec.Refuse(spec.CodeNodesBusy, "jobs are on "+name+": drain it first")
		case len(n.Holds) > 0:
			return spec.Refuse(spec.CodeNodesBusy, n.Holds[0].Name()+
				" of another scheduler is on "+name+": drain the node there first")
		case len(n.Unfenced) > 0:
			return spec.Refuse(spec.CodeNodesBusy, "runs that were given up may still live on "+
				name+": set it to state=fenced once it is off")
		}
		for i := range d.t.Reservations {
			if r := &d.t.Reservations[i]; slices.Contains(r.Nodes, name) {
				return spec.Refuse(spec.CodeReservationInUse, name+" is of the reservation "+r.Name)
			}
		}
	}
	for _, name := range c.Nodes {
		if d.t.Node(name) == nil {
			continue // it was named twice
		}
		if err := d.Emit(&event.NodeDeleted{Node: name}); err != nil {
			return err
		}
	}
	return nil
}
