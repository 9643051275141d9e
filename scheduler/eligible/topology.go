package eligible

import (
	"fmt"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/spec"
)

// Trees are the trees of switches by the names with which partitions choose them;
// the empty one is the cluster's.
type Trees map[string]*place.Tree

func BuildTrees(cluster *state.State) Trees {
	trees := Trees{"": treeOf(cluster, cluster.Config.Topology)}
	for i := range cluster.Config.Topologies {
		topology := &cluster.Config.Topologies[i]
		trees[topology.Name] = treeOf(cluster, topology.Switches)
	}
	if name := cluster.Config.TopologyName; name != "" {
		trees[name] = trees[""]
	}
	return trees
}

// treeFor is the tree that counts for a job in a partition; nil: none does.
func (t Trees) treeFor(
	config *spec.Config,
	part *spec.PartitionSpec,
	jobSpec *spec.JobSpec,
) *place.Tree {
	if config.Sched.TopoOptional && jobSpec.Place.Switches == 0 {
		return nil
	}
	return t[part.Topology]
}

// treeOf is a tree of switches with its nodes as sets; nil without switches.
func treeOf(cluster *state.State, list []spec.Switch) *place.Tree {
	if len(list) == 0 {
		return nil
	}
	tree := &place.Tree{
		LeafOf: make([]int32, len(cluster.NodeIDs)), Evenly: cluster.Config.Sched.Dragonfly,
	}
	for i := range tree.LeafOf {
		tree.LeafOf[i] = -1
	}
	leaves := map[string][]int32{}
	count := int32(0)
	for i := range list {
		s := &list[i]
		sw := place.Switch{Level: int(s.Level)}
		for _, name := range s.Nodes {
			id, ok := cluster.NodeIDs[name]
			if !ok {
				continue
			}
			sw.Nodes = sw.Nodes.Set(int(id))
			if s.Level == 0 {
				tree.LeafOf[id] = count
			}
		}
		if s.Level == 0 {
			sw.Leaves = []int32{count}
			count++
		}
		for _, below := range s.Switches {
			sw.Leaves = append(sw.Leaves, leaves[below]...)
		}
		leaves[s.Name] = sw.Leaves
		tree.Switches = append(tree.Switches, sw)
	}
	tree.Leaves = int(count)
	return tree
}

// maxLeafSets bounds the choices that --switches may leave.
const maxLeafSets = 256

// leafSets are the sets of nodes below every choice of n leaf switches of a
// partition.
func leafSets(
	cluster *state.State,
	part *spec.PartitionSpec,
	allowed spec.Bitset,
	n int,
) ([]spec.Bitset, error) {
	tree := treeOf(cluster, cluster.Config.TopologyOf(part).Switches)
	if tree == nil {
		return nil, nil // without switches all nodes are equally near
	}
	var leaves []spec.Bitset
	for _, s := range tree.Switches {
		if s.Level == 0 && s.Nodes.Intersects(allowed) {
			leaves = append(leaves, s.Nodes)
		}
	}
	if n >= len(leaves) {
		return nil, nil // any choice will do
	}
	var sets []spec.Bitset
	var choose func(from, left int, have spec.Bitset) bool
	choose = func(from, left int, have spec.Bitset) bool {
		if left == 0 {
			sets = append(sets, have)
			return len(sets) <= maxLeafSets
		}
		for i := from; i+left <= len(leaves); i++ {
			if !choose(i+1, left-1, have.Or(leaves[i])) {
				return false
			}
		}
		return true
	}
	if !choose(0, n, nil) {
		return nil, spec.Refuse(
			spec.CodeDisabled,
			fmt.Sprintf(
				"--switches=%d of %d leaf switches leaves more than %d choices, which is not implemented in this release",
				n,
				len(leaves),
				maxLeafSets,
			),
		)
	}
	return sets, nil
}

// CombineSets combines two choices of sets: one of each.
func CombineSets(a, b []spec.Bitset) []spec.Bitset {
	if len(a) == 0 {
		return b
	}
	var out []spec.Bitset
	for _, x := range a {
		for _, y := range b {
			out = append(out, x.And(y))
		}
	}
	return out
}
