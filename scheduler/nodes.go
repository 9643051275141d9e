package scheduler

import (
	"fmt"
	"slices"
	"strings"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// nodeSet is where a job may run in a partition.
type nodeSet struct {
	set  spec.Bitset // may be used
	must spec.Bitset // --nodelist: have to be part of it
}

// allowedNodes applies --nodelist, --exclude and --constraint to a partition.
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
		match, err := parseConstraint(js.Place.Constraint)
		if err != nil {
			return out, err
		}
		with := make(spec.Bitset, len(out.set))
		for id := out.set.Next(0); id >= 0; id = out.set.Next(id + 1) {
			if n := st.NodeByID(spec.NodeID(id)); n != nil && match(n.Spec.Features) {
				with.Set(id)
			}
		}
		if with.Empty() && !out.set.Empty() {
			return out, spec.Refuse(spec.CodeInvalidFeature, "")
		}
		if len(must.AndNot(with).Members()) > 0 {
			return out, spec.Refuse(spec.CodeNodeConfigUnavailable, "a node that is asked for lacks a feature that is asked for")
		}
		out.set = with
	}
	return out, nil
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
		id, ok := st.NodeIDs[name]
		if !ok {
			return nil, spec.Refuse(spec.CodeInvalidNodeName, name)
		}
		out = out.Set(int(id))
	}
	return out, nil
}

// parseConstraint reads "a&b|c": & binds stronger than |. The forms with
// counts, brackets and parentheses are refused by name.
func parseConstraint(expr string) (func(features []string) bool, error) {
	if i := strings.IndexAny(expr, "[]()*"); i >= 0 {
		return nil, spec.Refuse(spec.CodeInvalidFeature, fmt.Sprintf("%q: %q is not implemented in this release, only & and |", expr, expr[i]))
	}
	var any [][]string
	for _, alt := range strings.Split(expr, "|") {
		var all []string
		for _, f := range strings.FieldsFunc(alt, func(r rune) bool { return r == '&' || r == ',' }) {
			all = append(all, strings.TrimSpace(f))
		}
		if len(all) == 0 {
			return nil, spec.Refuse(spec.CodeInvalidFeature, fmt.Sprintf("%q", expr))
		}
		any = append(any, all)
	}
	return func(features []string) bool {
		return slices.ContainsFunc(any, func(all []string) bool {
			return !slices.ContainsFunc(all, func(f string) bool { return !slices.Contains(features, f) })
		})
	}, nil
}
