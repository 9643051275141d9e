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
	cfg *spec.Config,
	part *spec.PartitionSpec,
	jobSpec *spec.JobSpec,
	all Trees,
) place.Options {
	return place.Options{
		Must:          n.Must,
		LLN:           cfg.Sched.LLN || part.LLN,
		OneOf:         n.oneOf,
		Quotas:        n.quotas,
		Prefer:        n.prefer,
		Contiguous:    jobSpec.Place.Contiguous,
		Spread:        jobSpec.Place.Spread,
		Tree:          all.treeFor(cfg, part, jobSpec),
		Segment:       n.segment,
		BlockOf:       n.blockOf,
		ApartSegments: n.apartSeg,
	}
}

// AllowedNodes applies --nodelist, --exclude, --constraint and --prefer to a
// partition.
func AllowedNodes(
	st *state.State,
	partition *state.Partition,
	jobSpec *spec.JobSpec,
) (NodeSet, error) {
	out := NodeSet{Set: partition.Nodes}
	if jobSpec.Pods != nil {
		out.Set = partition.Nodes.And(admitting(st, jobSpec.Pods.Admits))
		if out.Set.Empty() {
			return out, spec.Refuse(
				spec.CodeNodeConfigUnavailable,
				"no node of the partition admits the pods (labels, affinity, taints, cordons)",
			)
		}
	}
	must, err := named(st, jobSpec.Place.Nodes)
	if err != nil {
		return out, err
	}
	if len(must.AndNot(partition.Nodes).Members()) > 0 {
		return out, spec.Refuse(spec.CodeNodesNotInPartition, "")
	}
	out.Must = must
	exclude, err := named(st, jobSpec.Place.Exclude)
	if err != nil {
		return out, err
	}
	if !exclude.Empty() {
		out.Set = out.Set.AndNot(exclude)
		if must.Intersects(exclude) || (out.Set.Empty() && !partition.Nodes.Empty()) {
			return out, spec.Refuse(
				spec.CodeNodeConfigUnavailable,
				"the nodes asked for are excluded",
			)
		}
	}
	if jobSpec.Place.Constraint != "" {
		if err := out.applyConstraint(st, jobSpec.Place.Constraint); err != nil {
			return out, err
		}
	}
	if jobSpec.Place.Switches > 0 {
		out.Switches, err = leafSets(st, partition.Spec, out.Set, int(jobSpec.Place.Switches))
		if err != nil {
			return out, err
		}
	}
	if size := &jobSpec.Size; size.SocketsPerNode > 0 || size.CoresPerSocket > 0 {
		out.Set = nodesShaped(st, out.Set, size)
		if len(out.Must.AndNot(out.Set).Members()) > 0 {
			return out, spec.Refuse(
				spec.CodeNodeConfigUnavailable,
				"a node that is asked for has fewer sockets, or cores on each, than are asked for",
			)
		}
	}
	if err := out.inBlocks(st, partition.Spec, jobSpec); err != nil {
		return out, err
	}
	if jobSpec.Place.Prefer != "" {
		c, err := ParseConstraint(jobSpec.Place.Prefer)
		if err != nil {
			return out, err
		}
		if len(c.Counts)+len(c.OneOf) > 0 {
			return out, spec.Refuse(
				spec.CodeInvalidFeature,
				"--prefer takes no counts and no brackets",
			)
		}
		out.prefer = nodesHaving(st, out.Set, c.All)
	}
	return out, nil
}

// applyConstraint applies a --constraint.
func (n *NodeSet) applyConstraint(st *state.State, expr string) error {
	c, err := ParseConstraint(expr)
	if err != nil {
		return err
	}
	with := nodesHaving(st, n.Set, c.All)
	for _, m := range c.OneOf {
		n.oneOf = append(n.oneOf, nodesHaving(st, with, m))
	}
	for _, feature := range c.Counts {
		quota := place.Quota{Nodes: nodesHaving(st, with, feature.match), N: feature.n}
		if int64(quota.Nodes.Count()) < quota.N && !n.Set.Empty() {
			return spec.Refuse(spec.CodeInvalidFeature, "")
		}
		n.quotas = append(n.quotas, quota)
	}
	if with.Empty() && !n.Set.Empty() {
		return spec.Refuse(spec.CodeInvalidFeature, "")
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
func nodesHaving(st *state.State, set spec.Bitset, m match) spec.Bitset {
	with := make(spec.Bitset, max(len(set), 1))
	for id := set.Next(0); id >= 0; id = set.Next(id + 1) {
		if n := st.NodeByID(spec.NodeID(id)); n != nil && m(n.Spec.Features) {
			with.Set(id)
		}
	}
	return with
}

// admitting are the nodes of a list that there are. Kubernetes may name one that the
// ledger does not have.
func admitting(st *state.State, expr string) spec.Bitset {
	names, err := hostlist.Expand(expr)
	if err != nil {
		return nil // nothing was accepted that cannot be read
	}
	var out spec.Bitset
	for _, name := range names {
		if node := st.Node(name); node != nil {
			out = out.Set(int(node.ID))
		}
	}
	return out
}

func named(st *state.State, expr string) (spec.Bitset, error) {
	if expr == "" {
		return nil, nil
	}
	names, err := hostlist.Expand(expr)
	if err != nil {
		return nil, spec.Refuse(spec.CodeInvalidNodeName, err.Error())
	}
	var out spec.Bitset
	for _, name := range names {
		node := st.Node(name)
		if node == nil {
			return nil, spec.Refuse(spec.CodeInvalidNodeName, "")
		}
		out = out.Set(int(node.ID))
	}
	return out, nil
}

// nodesShaped are the nodes of a set with as many sockets, and cores on each, as a
// job asks for. It is never nil.
func nodesShaped(st *state.State, set spec.Bitset, size *spec.Size) spec.Bitset {
	with := make(spec.Bitset, max(len(set), 1))
	for id := set.Next(0); id >= 0; id = set.Next(id + 1) {
		n := st.NodeByID(spec.NodeID(id))
		if n != nil && max(n.Spec.Sockets, 1) >= int64(size.SocketsPerNode) &&
			max(n.Spec.CoresPerSocket, 1) >= int64(size.CoresPerSocket) {
			with.Set(id)
		}
	}
	return with
}
