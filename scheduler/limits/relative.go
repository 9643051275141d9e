package limits

import (
	"strings"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// Relative is the flag of a QOS whose limits of TRES are per cent: of the
// cluster or, for the QOS of a partition, of that partition.
const Relative = "Relative"

// Sizes remembers what the percentages of QOS are per cent of, for as long as
// the nodes stay as they are. The zero value is ready; nil remembers nothing.
type Sizes struct{ whole map[uint32]spec.TRES }

// IsShare tells whether a limit of a TRES can be a percentage: of one whose
// whole is known.
func IsShare(tres string) bool {
	switch kind, _, _ := strings.Cut(tres, "/"); kind {
	case "cpu", "mem", "node", "gres", "license":
		return true
	}
	return false
}

// Shares are the limits of a QOS that the flag Relative makes percentages.
func Shares(qos *spec.QOS) [6]*spec.Limits {
	return [...]*spec.Limits{
		&qos.GrpTRES,
		&qos.MaxTRESPerAcct,
		&qos.MaxTRESPerJob,
		&qos.MaxTRESPerNode,
		&qos.MaxTRESPerUser,
		&qos.MinTRESPerJob,
	}
}

// Amounts is a QOS with the amounts that its percentages stand for, rounded
// down; one without the flag Relative is left as it is.
func (s *Sizes) Amounts(cluster *state.State, qos *spec.QOS) *spec.QOS {
	if !qos.HasFlag(Relative) {
		return qos
	}
	whole := s.sizeOf(cluster, qos)
	out := *qos
	for _, limits := range Shares(&out) {
		given := *limits
		*limits = make(spec.Limits, 0, len(given))
		for _, e := range given {
			all := whole.Get(e.Name)
			if name, ok := strings.CutPrefix(e.Name, "license/"); ok {
				all = cluster.LicenseTotal(name)
			}
			e.N = all/100*e.N + all%100*e.N/100
			*limits = append(*limits, e)
		}
	}
	return &out
}

// sizeOf sums up the nodes of the partitions whose QOS it is, or else of the cluster.
func (s *Sizes) sizeOf(cluster *state.State, qos *spec.QOS) spec.TRES {
	if s != nil {
		if t, ok := s.whole[qos.ID]; ok {
			return t
		}
	}
	var own spec.Bitset
	all := !PartitionQOS(cluster, qos.Name)
	for i := range cluster.Parts.List {
		if cluster.Parts.List[i].Spec.QOS == qos.Name {
			own = own.Or(cluster.Parts.List[i].Nodes)
		}
	}
	var tres spec.TRES
	cluster.Nodes.Range(func(_ uint64, node *state.Node) bool {
		if all || own.Has(int(node.ID)) {
			tres = tres.Add(node.Capacity())
		}
		return true
	})
	if s != nil {
		if s.whole == nil {
			s.whole = map[uint32]spec.TRES{}
		}
		s.whole[qos.ID] = tres
	}
	return tres
}

// PartitionQOS tells whether any partition has a QOS as its own.
func PartitionQOS(cluster *state.State, name string) bool {
	for i := range cluster.Parts.List {
		if cluster.Parts.List[i].Spec.QOS == name {
			return true
		}
	}
	return false
}
