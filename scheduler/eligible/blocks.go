package eligible

import (
	"cmp"
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// blocksOf are the blocks of a topology as sets of nodes, in order.
func blocksOf(cluster *state.State, top *spec.Topology) []spec.Bitset {
	var sets []spec.Bitset
	for i := range top.Blocks {
		var set spec.Bitset
		for _, name := range top.Blocks[i].Nodes {
			if id, ok := cluster.NodeIDs[name]; ok {
				set = set.Set(int(id))
			}
		}
		sets = append(sets, set)
	}
	return sets
}

// blockIndex tells which block each node is in; -1 = none.
func blockIndex(cluster *state.State, blocks []spec.Bitset) []int32 {
	out := make([]int32, len(cluster.NodeIDs))
	for i := range out {
		out[i] = -1
	}
	for b, set := range blocks {
		for id := set.Next(0); id >= 0; id = set.Next(id + 1) {
			out[id] = int32(b)
		}
	}
	return out
}

// inBlocks applies --segment and, to a job on several nodes without it, the
// rule that a job is in as few blocks as its number of nodes needs, next to
// each other as BlockSizes says.
func (n *NodeSet) inBlocks(
	cluster *state.State, part *spec.PartitionSpec, jobSpec *spec.JobSpec,
) error {
	segment, top := jobSpec.Place.Segment, cluster.Config.TopologyOf(part)
	if len(top.Blocks) == 0 {
		if segment > 0 {
			return spec.Refuse(
				spec.CodeDisabled,
				"--segment needs to know the blocks: TopologyPlugin=topology/block and topology.conf",
			)
		}
		return nil
	}
	blocks := blocksOf(cluster, &top)
	if segment > 0 {
		n.segment = int64(segment)
		n.blockOf = blockIndex(cluster, blocks)
		n.apartSeg = jobSpec.Place.ApartSegments
		return nil
	}
	want := int(max(jobSpec.Size.MinNodes, 1))
	if want < 2 {
		return nil
	}
	sets := blockSets(cluster, blocks, top.Sizes, n.Set, want)
	if sets == nil {
		return nil
	}
	n.oneOf = CombineSets(n.oneOf, sets)
	return nil
}

// maxBlockSets bounds the choices among blocks; where there are more, any of a
// group's blocks will do.
const maxBlockSets = 256

// blockSets are the sets of nodes that a job on a number of nodes may be in:
// as few blocks as that number needs, all of one group of the smallest size
// that holds them, those with the fewest idle nodes first. It is nil if no
// group is large enough: the job may be anywhere then.
func blockSets(
	cluster *state.State,
	blocks []spec.Bitset,
	sizes []uint32,
	allowed spec.Bitset,
	want int,
) []spec.Bitset {
	base := int(sizes[0])
	few := (want + base - 1) / base
	for _, size := range sizes {
		per := int(size) / base
		if int(size) < want {
			continue
		}
		var sets []spec.Bitset
		for from := 0; from < len(blocks); from += per {
			group := blocks[from:min(from+per, len(blocks))]
			sets = append(sets, choices(group, min(few, len(group)))...)
		}
		sets = slices.DeleteFunc(
			sets,
			func(s spec.Bitset) bool { return s.And(allowed).Count() < want },
		)
		if len(sets) == 0 {
			continue
		}
		idle := idleNodes(cluster)
		slices.SortStableFunc(
			sets,
			func(a, b spec.Bitset) int { return cmp.Compare(a.And(idle).Count(), b.And(idle).Count()) },
		)
		return sets
	}
	return nil
}

// idleNodes are the usable nodes without a job.
func idleNodes(cluster *state.State) spec.Bitset {
	var set spec.Bitset
	cluster.Nodes.Range(func(id uint64, node *state.Node) bool {
		if node.Usable() && len(node.Jobs) == 0 {
			set = set.Set(int(id))
		}
		return true
	})
	return set
}

// choices are the unions of every n of some sets; of all of them where there
// would be too many.
func choices(sets []spec.Bitset, n int) []spec.Bitset {
	var out []spec.Bitset
	var choose func(from, left int, have spec.Bitset) bool
	choose = func(from, left int, have spec.Bitset) bool {
		if left == 0 {
			out = append(out, have)
			return len(out) <= maxBlockSets
		}
		for i := from; i+left <= len(sets); i++ {
			if !choose(i+1, left-1, have.Or(sets[i])) {
				return false
			}
		}
		return true
	}
	if choose(0, n, nil) {
		return out
	}
	var all spec.Bitset
	for _, s := range sets {
		all = all.Or(s)
	}
	return []spec.Bitset{all}
}
