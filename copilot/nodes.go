package copilot

import (
	"slices"

	"github.com/musterhpc/muster/ledger/state"
)

// Nodes are the nodes of a state as Reconcile wants them, by name. open tells
// whether a node takes holds at all.
func Nodes(st *state.State, open func(n *state.Node) bool) []Node {
	out := make([]Node, 0, st.Nodes.Len())
	st.Nodes.Range(func(_ uint64, n *state.Node) bool {
		out = append(out, NodeOf(st, n, open(n)))
		return true
	})
	slices.SortFunc(out, func(a, b Node) int {
		if a.Name < b.Name {
			return -1
		}
		return 1
	})
	return out
}

// endless is more memory than a node has: where jobs' memory is not counted, that
// of pods is not either.
const endless = 1 << 40

// NodeOf is one of them.
func NodeOf(st *state.State, node *state.Node, open bool) Node {
	out := Node{
		Name:     node.Spec.Name,
		Open:     open,
		FreeCPU:  int64(st.OpenCPUs(node).Count()),
		SpareCPU: int64(node.HeldCPU.Count())*1000 - node.HeldMilli(),
		FreeMem:  endless,
		FreeGPU:  map[string]int64{},
		Holds:    node.Holds,
	}
	if st.Config.Sched.Memory {
		out.FreeMem = node.FreeMem()
	}
	for i := range node.GPUs {
		if node.FreeWhole(i) {
			out.FreeGPU[node.GPUs[i].Type]++
		}
	}
	return out
}
