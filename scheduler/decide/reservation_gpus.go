package decide

import (
	"fmt"
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// chooseGPUs sets the nodes of a reservation of GPUs, how many it has of each, and
// the cores that go with them: what was said, or of each node the part that its
// GPUs are of all GPUs there. Of a number of nodes, or of named ones, each gives
// the same, the first ones one more; else one node after the other what it can.
func (d reservationCommands) chooseGPUs(request *resvAsk) error {
	reservation := request.r
	reservation.Flags &^= spec.ResvSpecNodes | wholeResv
	if request.cores != nil {
		return spec.Refuse(
			spec.CodeCPUCountInvalid,
			"request the cores beside GPUs with TRES=cpu=",
		)
	}
	var list []*state.Node
	want := 0 // nodes; 0 = as many as it takes
	switch {
	case request.nodes != "":
		if err := d.listResvNodes(request); err != nil {
			return err
		}
		for _, name := range reservation.Nodes {
			list = append(list, d.t.Node(name))
		}
		want = len(list)
	case request.choose:
		list, want = d.resvNodes(reservation), int(reservation.Want)
	default:
		list = d.resvNodes(reservation)
	}
	total, each := request.gpus, request.gpus
	if request.perNode {
		want = max(want, 1)
		total *= int64(want)
	}
	if int64(want) > total {
		return spec.Refuse(
			spec.CodeNodeCountInvalid,
			fmt.Sprintf("%d nodes for %s", want, format.Plural(total, "GPU", "GPUs")),
		)
	}
	reservation.Nodes = nil
	reservation.Cores = nil
	reservation.GPUs = nil
	left := total
	for _, node := range list {
		free, _ := d.freeGPUs(reservation, node)
		if !oneKind(node, request.gpuType) {
			free = 0
		}
		take := min(free, left)
		if want > 0 {
			if !request.perNode {
				open := int64(want - len(reservation.Nodes))
				each = (left + open - 1) / open
			}
			take = each
			if free < take {
				if request.nodes != "" {
					return spec.Refuse(
						spec.CodeNodesBusy,
						fmt.Sprintf(
							"%s has %d GPUs for it in that time, and %d are asked for",
							node.Spec.Name,
							free,
							take,
						),
					)
				}
				continue
			}
		}
		cores := d.coresBeside(request, node, take, total)
		if have, _ := d.freeCores(reservation, node); take == 0 || have < cores {
			continue
		}
		reservation.Nodes = append(reservation.Nodes, node.Spec.Name)
		reservation.Cores = append(reservation.Cores, uint32(cores))
		reservation.GPUs = append(reservation.GPUs, uint32(take))
		left -= take
		if left == 0 {
			break
		}
	}
	if left > 0 {
		return spec.Refuse(
			spec.CodeNodesBusy,
			fmt.Sprintf(
				"%d of %d GPUs, or the cores beside them, are not free in that time",
				left,
				total,
			),
		)
	}
	d.sortCores(reservation)
	return nil
}

// sortCores puts the nodes of a reservation of cores, perhaps with GPUs, into their
// order.
func (d reservationCommands) sortCores(reservation *spec.Reservation) {
	names := slices.Clone(reservation.Nodes)
	cores := slices.Clone(reservation.Cores)
	gpus := slices.Clone(reservation.GPUs)
	slices.SortFunc(
		reservation.Nodes,
		func(a, b string) int { return int(d.t.NodeIDs[a]) - int(d.t.NodeIDs[b]) },
	)
	for i, name := range reservation.Nodes {
		k := slices.Index(names, name)
		reservation.Cores[i] = cores[k]
		if gpus != nil {
			reservation.GPUs[i] = gpus[k]
		}
	}
}

// coresBeside is how many cores of a node a reservation keeps with some GPUs of
// the node, of so many in total.
func (d reservationCommands) coresBeside(
	request *resvAsk, node *state.Node, gpus, total int64,
) int64 {
	threads := max(node.Spec.ThreadsPerCore, 1)
	cpus := (node.CPUs*gpus + int64(len(node.GPUs)) - 1) / max(int64(len(node.GPUs)), 1)
	switch {
	case request.cpus > 0 && request.perNode:
		cpus = request.cpus
	case request.cpus > 0:
		cpus = (request.cpus*gpus + total - 1) / total
	}
	return max((cpus+threads-1)/threads, 1)
}

// oneKind tells whether all GPUs of a node are whole ones of a type, any without
// one.
func oneKind(node *state.Node, typ string) bool {
	return node.Shares == nil &&
		(typ == "" || !slices.ContainsFunc(node.GPUs, func(g spec.GPU) bool {
			return g.Type != typ
		}))
}

// freeGPUs is how many GPUs of a node a reservation could have: those that no
// other keeps at the same time, and no job that may run into it holds.
func (d reservationCommands) freeGPUs(
	reservation *spec.Reservation,
	node *state.Node,
) (free int64, who string) {
	held, who, whole := d.heldBeside(reservation, node)
	if whole {
		return 0, who
	}
	return max(int64(len(node.GPUs))-held.GPU, 0), who
}
