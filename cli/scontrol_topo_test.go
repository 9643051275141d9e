package cli

import (
	"strings"
	"testing"
	"testing/fstest"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/slurmconf"
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

// TestShowTopoConf: what is printed is a topology.yaml, which makes the same topologies.
func TestShowTopoConf(t *testing.T) {
	const file = `---
- topology: fabric
  cluster_default: true
  tree:
    switches:
      - switch: l1
        nodes: n[1-2]
      - switch: root
        children: l1
- topology: nvl
  cluster_default: false
  block:
    block_sizes: [2, 4]
    blocks:
      - block: b1
        nodes: n[1-2]
      - block: b2
        nodes: n[3-4]
- topology: none
  cluster_default: false
  flat: true
`
	cluster, problems := slurmconf.ReadCluster(fstest.MapFS{
		"slurm.conf":    {Data: []byte("ClusterName=c\nNodeName=n[1-4] CPUs=2\nPartitionName=p Nodes=ALL\n")},
		"topology.yaml": {Data: []byte(file)},
	}, "slurm.conf")
	if err := problems.Err(); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	w.config = &apiv1.GetConfigReply{}
	main := cluster.Config.MainTopology()
	for _, topology := range append([]spec.Topology{main}, cluster.Config.Topologies...) {
		info := &apiv1.TopologyInfo{Name: topology.Name, BlockSizes: topology.Sizes}
		for _, unit := range topology.Switches {
			info.Switches = append(info.Switches, &apiv1.SwitchInfo{Name: unit.Name, Level: unit.Level, Nodes: unit.Nodes, Switches: unit.Switches})
		}
		for _, unit := range topology.Blocks {
			info.Blocks = append(info.Blocks, &apiv1.BlockInfo{Name: unit.Name, Nodes: unit.Nodes})
		}
		w.config.Topologies = append(w.config.Topologies, info)
	}
	if r := w.shell("scontrol show topoconf"); r.out != file || r.code != 0 {
		t.Errorf("%d\n%s%s", r.code, r.out, r.errOut)
	}
}
