package render

import (
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec/hostlist"
)

// First is a node that speaks for all in the columns that must match.
func (g *NodeGroup) First() *apiv1.NodeInfo {
	if len(g.Nodes) == 0 {
		return nil
	}
	return g.Nodes[0]
}

func (g *NodeGroup) List() string {
	names := make([]string, len(g.Nodes))
	for i, node := range g.Nodes {
		names[i] = node.GetName()
	}
	return hostlist.FoldSorted(names)
}

// Tally counts A/I/O/T of nodes or CPUs.
func (g *NodeGroup) Tally(cpus bool) [4]int64 {
	var t [4]int64
	for _, node := range g.Nodes {
		state := StateOf(node)
		if cpus {
			t[0] += node.GetCpusAlloc()
			rest := node.GetCpus() - node.GetCpusAlloc()
			if state.Out() {
				t[2] += rest
			} else {
				t[1] += rest
			}
			t[3] += node.GetCpus()
			continue
		}
		switch {
		case state.isBusy():
			t[0]++
		case state.Out():
			t[2]++
		default:
			t[1]++
		}
		t[3]++
	}
	return t
}
