package eligible

import (
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// NodeSet is where a job may run in a partition.
type NodeSet struct {
	Set    spec.Bitset // may be used
	Must   spec.Bitset // --nodelist: have to be part of it
	oneOf  []spec.Bitset
	quotas []place.Quota
	prefer spec.Bitset // --prefer; nil: nothing is preferred
	// switches are the sets of nodes below as many leaf switches as --switches
	// allows; nil without it.
	Switches []spec.Bitset
	segment  int64 // --segment: groups of so many nodes, each in one block
	blockOf  []int32
	apartSeg bool // --spread-segments: each in a block of its own
}

// Options are what the choice of nodes has to observe.
func (n *NodeSet) Options(
	config *spec.Config,
	part *spec.PartitionSpec,
	jobSpec *spec.JobSpec,
	all Trees,
) place.Options {
	return place.Options{
		Must:          n.Must,
		LLN:           config.Sched.LLN || part.LLN,
		OneOf:         n.oneOf,
		Quotas:        n.quotas,
		Prefer:        n.prefer,
		Contiguous:    jobSpec.Place.Contiguous,
		Spread:        jobSpec.Place.Spread,
		Tree:          all.treeFor(config, part, jobSpec),
		Segment:       n.segment,
		BlockOf:       n.blockOf,
		ApartSegments: n.apartSeg,
	}
}

// AllowedNodes applies --nodelist, --exclude, --constraint and --prefer to a
// partition.
func AllowedNodes(
	cluster *state.State,
	partition *state.Partition,
	jobSpec *spec.JobSpec,
) (NodeSet, error) {
	set := NodeSet{Set: partition.Nodes}
	if jobSpec.Pods != nil {
		set.Set = partition.Nodes.And(admitting(cluster, jobSpec.Pods.Admits))
		if set.Set.Empty() {
			return set, spec.Refuse(
				spec.CodeNodeConfigUnavailable,
				"no node of the partition admits the pods (labels, affinity, taints, cordons)",
			)
		}
	}
	must, err := named(cluster, jobSpec.Place.Nodes)
	if err != nil {
		return set, err
	}
	if len(must.AndNot(partition.Nodes).Members()) > 0 {
		return set, spec.Refuse(spec.CodeNodesNotInPartition, "")
	}
	set.Must = must
	exclude, err := named(cluster, jobSpec.Place.Exclude)
	if err != nil {
		return set, err
	}
	if !exclude.Empty() {
		set.Set = set.Set.AndNot(exclude)
		if must.Intersects(exclude) || (set.Set.Empty() && !partition.Nodes.Empty()) {
			return set, spec.Refuse(
				spec.CodeNodeConfigUnavailable,
				"the nodes asked for are excluded",
			)
		}
	}
	if jobSpec.Place.Constraint != "" {
		if err := set.applyConstraint(cluster, jobSpec.Place.Constraint); err != nil {
			return set, err
		}
	}
	if jobSpec.Place.Switches > 0 {
		set.Switches, err = leafSets(cluster, partition.Spec, set.Set, int(jobSpec.Place.Switches))
		if err != nil {
			return set, err
		}
	}
	if size := &jobSpec.Size; size.SocketsPerNode > 0 || size.CoresPerSocket > 0 {
		set.Set = nodesShaped(cluster, set.Set, size)
		if len(set.Must.AndNot(set.Set).Members()) > 0 {
			return set, spec.Refuse(
				spec.CodeNodeConfigUnavailable,
				"a node that is asked for has fewer sockets, or cores on each, than are asked for",
			)
		}
	}
	if err := set.inBlocks(cluster, partition.Spec, jobSpec); err != nil {
		return set, err
	}
	if jobSpec.Place.Prefer != "" {
		c, err := ParseConstraint(jobSpec.Place.Prefer)
		if err != nil {
			return set, err
		}
		if len(c.Counts)+len(c.OneOf) > 0 {
			return set, spec.Refuse(
				spec.CodeInvalidFeature,
				"--prefer takes no counts and no brackets",
			)
		}
		set.prefer = nodesHaving(cluster, set.Set, c.All)
	}
	return set, nil
}

// applyConstraint applies a --constraint.
func (n *NodeSet) applyConstraint(cluster *state.State, expr string) error {
	c, err := ParseConstraint(expr)
	if err != nil {
		return err
	}
	with := nodesHaving(cluster, n.Set, c.All)
	for _, m := range c.OneOf {
		n.oneOf = append(n.oneOf, nodesHaving(cluster, with, m))
	}
	for _, feature := range c.Counts {
		quota := place.Quota{Nodes: nodesHaving(cluster, with, feature.match), N: feature.n}
		if int64(quota.Nodes.Count()) < quota.N && !n.Set.Empty() {
			return spec.Refuse(
				spec.CodeInvalidFeature,
				"fewer nodes than are asked for have the features "+expr,
			)
		}
		n.quotas = append(n.quotas, quota)
	}
	if with.Empty() && !n.Set.Empty() {
		return spec.Refuse(
			spec.CodeInvalidFeature,
			"no node that the job may use has the features "+expr,
		)
	}
	if len(n.Must.AndNot(with).Members()) > 0 {
		return spec.Refuse(
			spec.CodeNodeConfigUnavailable,
			"a node that is asked for lacks a feature that is asked for",
		)
	}
	n.Set = with
	return nil
}

// nodesHaving are the nodes of a set whose features match. It is never nil.
func nodesHaving(cluster *state.State, set spec.Bitset, m match) spec.Bitset {
	with := make(spec.Bitset, max(len(set), 1))
	for id := set.Next(0); id >= 0; id = set.Next(id + 1) {
		if node := cluster.NodeByID(spec.NodeID(id)); node != nil && m(node.Spec.Features) {
			with.Set(id)
		}
	}
	return with
}

// admitting are the nodes of a list that there are. Kubernetes may name one that the
// ledger does not have.
func admitting(cluster *state.State, expr string) spec.Bitset {
	names, err := hostlist.Expand(expr)
	if err != nil {
		return nil // nothing was accepted that cannot be read
	}
	var set spec.Bitset
	for _, name := range names {
		if node := cluster.Node(name); node != nil {
			set = set.Set(int(node.ID))
		}
	}
	return set
}

func named(cluster *state.State, expr string) (spec.Bitset, error) {
	if expr == "" {
		return nil, nil
	}
	names, err := hostlist.Expand(expr)
	if err != nil {
		return nil, spec.Refuse(spec.CodeInvalidNodeName, err.Error())
	}
	var set spec.Bitset
	for _, name := range names {
		node := cluster.Node(name)
		if node == nil {
			return nil, spec.Refuse(spec.CodeInvalidNodeName, "there is no node "+name)
		}
		set = set.Set(int(node.ID))
	}
	return set, nil
}

// nodesShaped are the nodes of a set with as many sockets, and cores on each, as a
// job asks for. It is never nil.
func nodesShaped(cluster *state.State, set spec.Bitset, size *spec.Size) spec.Bitset {
	with := make(spec.Bitset, max(len(set), 1))
	for id := set.Next(0); id >= 0; id = set.Next(id + 1) {
		node := cluster.NodeByID(spec.NodeID(id))
		if node != nil && max(node.Spec.Sockets, 1) >= int64(size.SocketsPerNode) &&
			max(node.Spec.CoresPerSocket, 1) >= int64(size.CoresPerSocket) {
			with.Set(id)
		}
	}
	return with
}
