package decide

import (
	"fmt"
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// chooseGPUs sets the nodes of a reservation of GPUs, how many it has of each, and
// the cores that go with them: what was said, or of each node the part that its
// GPUs are of all GPUs there. Of a number of nodes, or of named ones, each gives
// the same, the first ones one more; else one node after the other what it can.
func (d reservationCommands) chooseGPUs(a *resvAsk) error {
	r := a.r
	r.Flags &^= spec.ResvSpecNodes | spec.ResvAllNodes
	if a.cores != nil {
		return spec.Refuse(spec.CodeCPUCountInvalid, "the cores beside GPUs are said with TRES=cpu=")
	}
	var list []*state.Node
	want := 0 // nodes; 0 = as many as it takes
	switch {
	case a.nodes != "":
		if err := d.listResvNodes(a); err != nil {
			return err
		}
		for _, name := range r.Nodes {
			list = append(list, d.t.Node(name))
		}
		want = len(list)
	case a.choose:
		list, want = d.resvNodes(r), int(r.Want)
	default:
		list = d.resvNodes(r)
	}
	total, each := a.gpus, a.gpus
	if a.perNode {
		want = max(want, 1)
		total *= int64(want)
	}
	if int64(want) > total {
		return spec.Refuse(spec.CodeNodeCountInvalid, fmt.Sprintf("%d nodes for %d GPUs", want, total))
	}
	r.Nodes = nil
	r.Cores = nil
	r.GPUs = nil
	left := total
	for _, n := range list {
		free, _ := d.freeGPUs(r, n)
		if !oneKind(n, a.gpuType) {
			free = 0
		}
		take := min(free, left)
		if want > 0 {
			if open := int64(want - len(r.Nodes)); !a.perNode {
				each = (left + open - 1) / open
			}
			take = each
			if free < take {
				if a.nodes != "" {
					return spec.Refuse(spec.CodeNodesBusy, fmt.Sprintf("%s has %d GPUs for it in that time, and %d are asked for", n.Spec.Name, free, take))
				}
				continue
			}
		}
		cores := d.coresBeside(a, n, take, total)
		if have, _ := d.freeCores(r, n); take == 0 || have < cores {
			continue
		}
		r.Nodes = append(r.Nodes, n.Spec.Name)
		r.Cores = append(r.Cores, uint32(cores))
		r.GPUs = append(r.GPUs, uint32(take))
		left -= take
		if left == 0 {
			break
		}
	}
	if left > 0 {
		return spec.Refuse(spec.CodeNodesBusy, fmt.Sprintf("%d of %d GPUs, or the cores beside them, are not free in that time", left, total))
	}
	d.sortCores(r)
	return nil
}

// sortCores puts the nodes of a reservation of cores, perhaps with GPUs, into their
// order.
func (d reservationCommands) sortCores(r *spec.Reservation) {
	names := slices.Clone(r.Nodes)
	cores := slices.Clone(r.Cores)
	gpus := slices.Clone(r.GPUs)
	slices.SortFunc(r.Nodes, func(a, b string) int { return int(d.t.NodeIDs[a]) - int(d.t.NodeIDs[b]) })
	for i, name := range r.Nodes {
		k := slices.Index(names, name)
		r.Cores[i] = cores[k]
		if gpus != nil {
			r.GPUs[i] = gpus[k]
		}
	}
}

// coresBeside is how many cores of a node a reservation keeps with some GPUs of
// the node, of so many in total.
func (d reservationCommands) coresBeside(a *resvAsk, n *state.Node, gpus, total int64) int64 {
	threads := max(n.Spec.ThreadsPerCore, 1)
	cpus := (n.CPUs*gpus + int64(len(n.GPUs)) - 1) / max(int64(len(n.GPUs)), 1)
	switch {
	case a.cpus > 0 && a.perNode:
		cpus = a.cpus
	case a.cpus > 0:
		cpus = (a.cpus*gpus + total - 1) / total
	}
	return max((cpus+threads-1)/threads, 1)
}

// oneKind tells whether all GPUs of a node are whole ones of a type, any without
// one.
func oneKind(n *state.Node, typ string) bool {
	return n.Shares == nil && (typ == "" || !slices.ContainsFunc(n.GPUs, func(g spec.GPU) bool { return g.Type != typ }))
}

// freeGPUs is how many GPUs of a node a reservation could have: those that no
// other keeps at the same time, and no job that may run into it holds.
func (d reservationCommands) freeGPUs(r *spec.Reservation, n *state.Node) (free int64, who string) {
	held, who, whole := d.heldBeside(r, n)
	if whole {
		return 0, who
	}
	return max(int64(len(n.GPUs))-held.GPU, 0), who
}
