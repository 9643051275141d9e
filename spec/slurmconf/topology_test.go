package slurmconf

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/musterhpc/muster/spec"
)

func TestTopology(t *testing.T) {
	for _, tt := range []struct{ name, file, want string }{
		{"tree", "SwitchName=root Switches=s[0-1]\nSwitchName=s0 Nodes=n[1-2] LinkSpeed=9\nSwitchName=s1 Nodes=n3\n",
			"s0/0 n1,n2 [] s1/0 n3 [] root/1 n1,n2,n3 [s0 s1]"},
		{"alone", "SwitchName=s0 Nodes=n1\n", "s0/0 n1 []"},
		{"twice", "SwitchName=s0 Nodes=n[1-3]\nSwitchName=s0 Nodes=n1\n", `switch "s0" is there twice`},
		{"shared", "SwitchName=s0 Nodes=n[1-3]\nSwitchName=s1 Nodes=n3\n", `node "n3" is below switch s0 already`},
		{"unknown node", "SwitchName=s0 Nodes=n[1-4]\n", `node "n4" is not configured`},
		{"unknown switch", "SwitchName=s0 Nodes=n[1-3]\nSwitchName=r Switches=s[0-1]\n", "stands above a switch that does not exist"},
		{"circle", "SwitchName=a Switches=b\nSwitchName=b Switches=a\n", "or above itself"},
		{"neither", "SwitchName=a\n", "either Nodes or Switches"},
		{"both", "SwitchName=a Nodes=n1 Switches=b\n", "either Nodes or Switches"},
		{"no name", "Nodes=n1\n", "names no switch"},
		{"block", "BlockName=a Nodes=n1\n", "names no switch"},
		{"left out", "SwitchName=s0 Nodes=n[1-2]\n", `node "n3" is below no switch`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			list, ps := ReadTopology(fstest.MapFS{"topology.conf": {Data: []byte(tt.file)}}, "topology.conf", []spec.NodeSpec{{Name: "n1"}, {Name: "n2"}, {Name: "n3"}})
			var got []string
			for _, s := range list {
				got = append(got, fmt.Sprintf("%s/%d %s %v", s.Name, s.Level, strings.Join(s.Nodes, ","), s.Switches))
			}
			text := strings.Join(got, " ")
			for _, p := range ps {
				text += "\n" + p.String()
			}
			if !strings.Contains(text, tt.want) {
				t.Errorf("got\n%s\nwant %s", text, tt.want)
			}
		})
	}
}

func TestBlocks(t *testing.T) {
	for _, tt := range []struct{ name, file, want string }{
		{"blocks", "BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n3\nBlockSizes=2,4\n", "[{b1 [n1 n2]} {b2 [n3]}] [2 4]"},
		{"no sizes", "BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n3\n", "[{b1 [n1 n2]} {b2 [n3]}] [2]"},
		{"odd sizes", "BlockName=b1 Nodes=n1\nBlockSizes=2,6\n", "times a power of two"},
		{"falling sizes", "BlockName=b1 Nodes=n1\nBlockSizes=4,2\n", "times a power of two"},
		{"no size", "BlockName=b1 Nodes=n1\nBlockSizes=none\n", "BlockSizes"},
		{"twice", "BlockName=b1 Nodes=n1\nBlockName=b1 Nodes=n2\n", `block "b1" is there twice`},
		{"shared", "BlockName=b1 Nodes=n1\nBlockName=b2 Nodes=n[1-2]\n", `node "n1" is in block b1 already`},
		{"unknown node", "BlockName=b1 Nodes=n9\n", `node "n9" is not configured`},
		{"empty", "BlockName=b1\n", `block "b1" has no Nodes`},
		{"switch", "SwitchName=s Nodes=n1\n", "names no block"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			list, sizes, ps := ReadBlocks(fstest.MapFS{"topology.conf": {Data: []byte(tt.file)}}, "topology.conf", []spec.NodeSpec{{Name: "n1"}, {Name: "n2"}, {Name: "n3"}})
			text := fmt.Sprint(list, sizes)
			for _, p := range ps {
				text += "\n" + p.String()
			}
			if !strings.Contains(text, tt.want) {
				t.Errorf("got\n%s\nwant %s", text, tt.want)
			}
		})
	}
}

func TestTopologyYAML(t *testing.T) {
	const conf = "ClusterName=c\nNodeName=n[1-4] CPUs=2\nPartitionName=p Nodes=n[1-4]\n"
	for _, tt := range []struct{ name, file, want string }{
		{"block", "---\n- topology: main # ours\n  cluster_default: true\n  block:\n    block_sizes: [2, 4]\n    blocks:\n      - block: b1\n        nodes: n[1-2]\n      - block: b2\n        nodes: \"n[3-4]\"\n",
			"[] [{b1 [n1 n2]} {b2 [n3 n4]}] [2 4]"},
		{"list sizes", "- topology: main\n  block:\n    block_sizes:\n    - 2\n    - 4\n    blocks:\n    - block: b1\n      nodes: n[1-2]\n    - block: b2\n      nodes: n[3-4]\n",
			"[] [{b1 [n1 n2]} {b2 [n3 n4]}] [2 4]"},
		{"tree", "- topology: t\n  tree:\n    switches:\n      - switch: s1\n        nodes: n[1-2]\n      - switch: s2\n        nodes: n[3-4]\n      - switch: root\n        children: s[1-2]\n",
			"[{s1 0 [n1 n2] []} {s2 0 [n3 n4] []} {root 1 [n1 n2 n3 n4] [s1 s2]}] [] []"},
		{"default", "- topology: a\n  flat: true\n- topology: b\n  cluster_default: true\n  tree:\n    switches:\n      - switch: s1\n        nodes: n[1-4]\n", "[{s1 0 [n1 n2 n3 n4] []}] [] []"},
		{"flat", "- topology: a\n  flat: true\n", "[] [] []"},
		{"several", "- topology: a\n  cluster_default: true\n  flat: true\n- topology: b\n  tree:\n    switches:\n      - switch: s1\n        nodes: n[1-2]\n", "[] [] [] a [{b [{s1 0 [n1 n2] []}] [] []}]"},
		{"two of one name", "- topology: a\n  flat: true\n- topology: a\n  flat: true\n", `topology "a" is there twice`},
		{"one without a name", "- topology: a\n  flat: true\n- flat: true\n", "each has a name"},
		{"bad one", "- topology: a\n  flat: true\n- topology: b\n  tree:\n    switches:\n      - switch: s1\n        nodes: n[1-9]\n", `node "n5" is not configured`},
		{"no switches", "- topology: a\n  tree: x\n", "topology.yaml:1: error: a tree has a list of switches"},
		{"unknown node", "- topology: t\n  tree:\n    switches:\n      - switch: s1\n        nodes: n[1-9]\n", `node "n5" is not configured`},
		{"unknown key", "- topology: t\n  tree:\n    switches:\n      - switch: s1\n        speed: 9\n", `"speed" is not known here`},
		{"other kind", "- topology: t\n  ring:\n    rings: []\n", "others are not supported"},
		{"tab", "- topology: t\n\ttree: x\n", "tabs are not read"},
		{"anchor", "- topology: t\n  tree: &x\n", "this kind of value"},
		{"twice", "- topology: t\n  topology: u\n", "twice"},
		{"indent", "- topology: t\n    tree: x\n", "indented otherwise"},
		{"empty", "# nothing\n", "topology.yaml: error: it names no topology"},
		{"two kinds", "- topology: t\n  tree:\n    switches:\n      - switch: s1\n        nodes: n1\n  flat: true\n", "topology.yaml:1: error: a topology is one of tree, block and flat"},
		{"unknown key beside", "- topology: t\n  flat: true\n  colour: 3\n", `topology.yaml:3: error: "colour" is not known here`},
		{"unknown key of a tree", "- topology: t\n  tree:\n    speed: 3\n    switches:\n      - switch: s1\n        nodes: n1\n", `topology.yaml:3: error: "speed" is not known here`},
		{"unknown key of blocks", "- topology: t\n  block:\n    size: 3\n    blocks:\n      - block: b1\n        nodes: n1\n", `topology.yaml:3: error: "size" is not known here`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f, ps := ReadCluster(fstest.MapFS{"slurm.conf": {Data: []byte(conf)}, "topology.yaml": {Data: []byte(tt.file)}}, "slurm.conf")
			text := fmt.Sprint(f.Config.Topology, f.Config.Blocks, f.Config.BlockSizes, " ", f.Config.TopologyName, " ", f.Config.Topologies)
			for _, p := range ps {
				text += "\n" + p.String()
			}
			if !strings.Contains(text, tt.want) {
				t.Errorf("got\n%s\nwant %s", text, tt.want)
			}
		})
	}
}

// Whatever the file says, reading it ends, and says what it is about.
func FuzzTopologyYAML(f *testing.F) {
	f.Add([]byte("- topology: a\n  block:\n    block_sizes: [1]\n    blocks:\n    - block: b\n      nodes: n1\n"))
	f.Add([]byte("a:\n- b:\n  - c: [d\n"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		ReadCluster(fstest.MapFS{"slurm.conf": {Data: []byte("ClusterName=c\nNodeName=n1 CPUs=2\n")}, "topology.yaml": {Data: data}}, "slurm.conf")
	})
}

// A partition that is made while the cluster runs names a topology that is there.
func TestNewPartitionTopology(t *testing.T) {
	conf := &spec.Config{Nodes: []spec.NodeSpec{{Name: "n1"}}, TopologyName: "main", Topologies: []spec.Topology{{Name: "other"}}}
	for _, tt := range []struct{ topology, want string }{
		{"main", ""}, {"other", ""}, {"", ""},
		{"nosuch", `Topology: there is no topology "nosuch": topology.yaml beside slurm.conf names them`},
	} {
		p, _, err := NewPartition("p", []spec.KeyValue{{Key: "Nodes", Value: "n1"}, {Key: "Topology", Value: tt.topology}}, conf)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != tt.want || (err == nil && p.Topology != tt.topology) {
			t.Errorf("Topology=%s: %q, %+v; want %q", tt.topology, got, p, tt.want)
		}
	}
}
