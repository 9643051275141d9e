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
	config := d.t.Config
	if config.MaxNodes == 0 {
		return spec.Refuse(
			spec.CodeDisabled,
			"nodes are added while the cluster runs only with MaxNodeCount in slurm.conf",
		)
	}
	if n := len(config.Nodes) + len(list); n > int(config.MaxNodes) {
		return spec.Refuse(
			spec.CodeNodeCountInvalid,
			fmt.Sprintf(
				"MaxNodeCount=%d, and with these there would be %s",
				config.MaxNodes,
				format.Plural(n, "node", "nodes"),
			),
		)
	}
	for i := range list {
		name := list[i].Name
		twice := slices.ContainsFunc(list[:i], func(n spec.NodeSpec) bool { return n.Name == name })
		if node := d.t.Node(name); node != nil && node.Removed {
			return spec.Refuse(spec.CodeNodesBusy, name+
				" was taken away, and a job is not done there yet")
		} else if node != nil || twice {
			return spec.Refuse(spec.CodeInvalidNodeName, name+" exists already")
		}
	}
	for i := range list {
		if err := d.Emit(
			&event.NodeAdded{Node: list[i], Partitions: config.Taking(&list[i])},
		); err != nil {
			return err
		}
	}
	return nil
}

// deleteNodes takes nodes away that were added while the cluster ran and that
// nobody uses, all of them or none.
func (d nodeCommands) deleteNodes(command DeleteNodes) error {
	for _, name := range command.Nodes {
		node := d.t.Node(name)
		switch {
		case node == nil || node.Removed:
			return spec.Refuse(spec.CodeInvalidNodeName, name)
		case !node.Spec.Dynamic:
			return spec.Refuse(spec.CodeInvalidNodeState, name+
				" is defined in slurm.conf; remove it there and run scontrol reconfigure")
		case len(node.Jobs) > 0:
			return spec.Refuse(spec.CodeNodesBusy, "jobs are on "+name+": drain it first")
		case len(node.Holds) > 0:
			return spec.Refuse(spec.CodeNodesBusy, node.Holds[0].Name()+
				" of another scheduler is on "+name+": drain the node there first")
		case len(node.Unfenced) > 0:
			return spec.Refuse(spec.CodeNodesBusy, "runs that were given up may still live on "+
				name+": set it to state=fenced once it is off")
		}
		for i := range d.t.Reservations {
			if reservation := &d.t.Reservations[i]; slices.Contains(reservation.Nodes, name) {
				return spec.Refuse(
					spec.CodeReservationInUse, name+" is of the reservation "+reservation.Name,
				)
			}
		}
	}
	for _, name := range command.Nodes {
		if d.t.Node(name) == nil {
			continue // it was named twice
		}
		if err := d.Emit(&event.NodeDeleted{Node: name}); err != nil {
			return err
		}
	}
	return nil
}
