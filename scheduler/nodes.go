package scheduler

import (
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// nodeSet is where a job may run in a partition.
type nodeSet struct {
	set    spec.Bitset // may be used
	must   spec.Bitset // --nodelist: have to be part of it
	oneOf  []spec.Bitset
	quotas []place.Quota
	prefer spec.Bitset // --prefer; nil: nothing is preferred
	// switches are the sets of nodes below as many leaf switches as --switches
	// allows; nil without it.
	switches []spec.Bitset
	segment  int64 // --segment: groups of so many nodes, each in one block
	blockOf  []int32
	apartSeg bool // --spread-segments: each in a block of its own
}

// options are what the choice of nodes has to observe.
func (n *nodeSet) options(cfg *spec.Config, part *spec.PartitionSpec, js *spec.JobSpec, all trees) place.Options {
	return place.Options{Must: n.must, LLN: cfg.Sched.LLN || part.LLN, OneOf: n.oneOf, Quotas: n.quotas, Prefer: n.prefer,
		Contiguous: js.Place.Contiguous, Spread: js.Place.Spread, Tree: all.of(cfg, part, js), Segment: n.segment, BlockOf: n.blockOf, ApartSegments: n.apartSeg}
}

// allowedNodes applies --nodelist, --exclude, --constraint and --prefer to a
// partition.
func allowedNodes(st *state.State, p *state.Partition, js *spec.JobSpec) (nodeSet, error) {
	out := nodeSet{set: p.Nodes}
	must, err := named(st, js.Place.Nodes)
	if err != nil {
		return out, err
	}
	if len(must.AndNot(p.Nodes).Members()) > 0 {
		return out, spec.Refuse(spec.CodeNodesNotInPartition, "")
	}
	out.must = must
	exclude, err := named(st, js.Place.Exclude)
	if err != nil {
		return out, err
	}
	if !exclude.Empty() {
		out.set = out.set.AndNot(exclude)
		if must.Intersects(exclude) || (out.set.Empty() && !p.Nodes.Empty()) {
			return out, spec.Refuse(spec.CodeNodeConfigUnavailable, "the nodes asked for are excluded")
		}
	}
	if js.Place.Constraint != "" {
		if err := out.constrain(st, js.Place.Constraint); err != nil {
			return out, err
		}
	}
	if js.Place.Switches > 0 {
		if out.switches, err = leafSets(st, p.Spec, out.set, int(js.Place.Switches)); err != nil {
			return out, err
		}
	}
	if sz := &js.Size; sz.SocketsPerNode > 0 || sz.CoresPerSocket > 0 {
		out.set = shaped(st, out.set, sz)
		if len(out.must.AndNot(out.set).Members()) > 0 {
			return out, spec.Refuse(spec.CodeNodeConfigUnavailable, "a node that is asked for has fewer sockets, or cores on each, than are asked for")
		}
	}
	if err := out.inBlocks(st, p.Spec, js); err != nil {
		return out, err
	}
	if js.Place.Prefer != "" {
		c, err := parseConstraint(js.Place.Prefer)
		if err != nil {
			return out, err
		}
		if len(c.counts)+len(c.oneOf) > 0 {
			return out, spec.Refuse(spec.CodeInvalidFeature, "--prefer takes no counts and no brackets")
		}
		out.prefer = having(st, out.set, c.all)
	}
	return out, nil
}

// constrain applies a --constraint.
func (n *nodeSet) constrain(st *state.State, expr string) error {
	c, err := parseConstraint(expr)
	if err != nil {
		return err
	}
	with := having(st, n.set, c.all)
	for _, m := range c.oneOf {
		n.oneOf = append(n.oneOf, having(st, with, m))
	}
	for _, f := range c.counts {
		q := place.Quota{Nodes: having(st, with, f.match), N: f.n}
		if int64(q.Nodes.Count()) < q.N && !n.set.Empty() {
			return spec.Refuse(spec.CodeInvalidFeature, "")
		}
		n.quotas = append(n.quotas, q)
	}
	if with.Empty() && !n.set.Empty() {
		return spec.Refuse(spec.CodeInvalidFeature, "")
	}
	if len(n.must.AndNot(with).Members()) > 0 {
		return spec.Refuse(spec.CodeNodeConfigUnavailable, "a node that is asked for lacks a feature that is asked for")
	}
	n.set = with
	return nil
}

// having are the nodes of a set whose features match. It is never nil.
func having(st *state.State, set spec.Bitset, m match) spec.Bitset {
	with := make(spec.Bitset, max(len(set), 1))
	for id := set.Next(0); id >= 0; id = set.Next(id + 1) {
		if n := st.NodeByID(spec.NodeID(id)); n != nil && m(n.Spec.Features) {
			with.Set(id)
		}
	}
	return with
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
		n := st.Node(name)
		if n == nil {
			return nil, spec.Refuse(spec.CodeInvalidNodeName, "")
		}
		out = out.Set(int(n.ID))
	}
	return out, nil
}

// shaped are the nodes of a set with as many sockets, and cores on each, as a
// job asks for. It is never nil.
func shaped(st *state.State, set spec.Bitset, sz *spec.Size) spec.Bitset {
	with := make(spec.Bitset, max(len(set), 1))
	for id := set.Next(0); id >= 0; id = set.Next(id + 1) {
		n := st.NodeByID(spec.NodeID(id))
		if n != nil && max(n.Spec.Sockets, 1) >= int64(sz.SocketsPerNode) && max(n.Spec.CoresPerSocket, 1) >= int64(sz.CoresPerSocket) {
			with.Set(id)
		}
	}
	return with
}
