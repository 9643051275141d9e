package cli

import (
	"strings"
	"testing"

	apiv1 "github.com/musterhpc/muster/api/v1"
)

// TestShowTopology: of several topologies each has its heading; a name is that of
// a topology, a switch, a block or a node.
func TestShowTopology(t *testing.T) {
	w := newWorld(t)
	w.config = &apiv1.GetConfigReply{Topologies: []*apiv1.TopologyInfo{
		{Name: "fabric", Switches: []*apiv1.SwitchInfo{{Name: "l1", Nodes: []string{"n1", "n2"}}, {Name: "root", Level: 1, Nodes: []string{"n1", "n2"}, Switches: []string{"l1"}}}},
		{Name: "nvl", Blocks: []*apiv1.BlockInfo{{Name: "b1", Nodes: []string{"g1", "g2"}}, {Name: "b2", Nodes: []string{"g3", "g4"}}, {Name: "b3", Nodes: []string{"g5"}}}, BlockSizes: []uint32{2, 4}},
		{Name: "none"},
	}}
	const (
		tree = "Topology=fabric Default=YES Type=tree\nSwitchName=l1 Level=0 LinkSpeed=1 Nodes=n[1-2]\nSwitchName=root Level=1 LinkSpeed=1 Nodes=n[1-2] Switches=l1\n"
		nvl  = "Topology=nvl Default=NO Type=block\n"
		b2   = "BlockName=b2 BlockIndex=1 Nodes=g[3-4] BlockSize=2\n"
		both = "AggregatedBlock=b[1-2] BlockIndex=0 Nodes=g[1-4] BlockSize=4\n"
	)
	for args, want := range map[string]string{
		"": tree + nvl + "BlockName=b1 BlockIndex=0 Nodes=g[1-2] BlockSize=2\n" + b2 + "BlockName=b3 BlockIndex=2 Nodes=g5 BlockSize=2\n" + both +
			"AggregatedBlock=b3 BlockIndex=1 Nodes=g5 BlockSize=4\nTopology=none Default=NO Type=flat\n",
		"fabric": tree, "node=g3": nvl + b2 + both, "unit=b2": nvl + b2, "l1": strings.Split(tree, "\n")[0] + "\nSwitchName=l1 Level=0 LinkSpeed=1 Nodes=n[1-2]\n",
	} {
		if got := w.shell("scontrol show topology " + args).out; got != want {
			t.Errorf("%q:\n%s\nwant\n%s", args, got, want)
		}
	}
}
