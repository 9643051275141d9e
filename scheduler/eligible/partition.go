// Package eligible says what a job may use, and what it waits for that is not a
// resource: partitions and their limits, features, switches and blocks of nodes,
// licences, dependencies and deadlines. Submission refuses what can never be, and a
// pass gives the same answer as the reason why a job waits.
package eligible

import (
	"cmp"
	"slices"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/limits"
	"github.com/musterhpc/muster/scheduler/place"
	"github.com/musterhpc/muster/spec"
)

// ReasonMaxMem is Slurm's reason for a job over MaxMemPerNode.
const ReasonMaxMem spec.ReasonCode = "MaxMemPerLimit"

// Rejection is why a partition does not take a job: as a refusal at submission and
// as a reason to wait. Where EnforcePartLimits is NO a job waits in front of
// most bars, since the partition may change; always ones refuse it.
type Rejection struct {
	Code   spec.Code
	Reason spec.Reason
	Always bool
}

// CheckPartition says what keeps a job out of a partition, or nil.
func CheckPartition(st *state.State, p *state.Partition, js *spec.JobSpec, d *place.Demand) *Rejection {
	ps := p.Spec
	cfg := st.Config
	own := st.Policy.FindQOS(js.QOS)
	who := p.Subject
	free := func(flag string) bool { return own != nil && own.HasFlag(flag) }
	access := func(code spec.Code, detail string) *Rejection {
		return &Rejection{code, spec.Reason{Code: spec.ReasonPartitionConfig, Subject: who, Detail: detail}, true}
	}
	switch {
	case ps.RootOnly && js.UID != 0:
		return access(spec.CodeAccessDenied, "RootOnly=YES")
	case ps.DisableRootJobs && js.UID == 0:
		return access(spec.CodeAccessDenied, "DisableRootJobs=YES")
	case len(ps.AllowGroups) > 0 && !slices.Contains(ps.AllowGroups, js.Group) && js.UID != 0:
		return access(spec.CodeGroupNotPermitted, "AllowGroups does not name "+js.Group)
	case ps.ReqResv && js.Place.Reservation == "":
		return access(spec.CodeReservationDenied, "ReqResv=YES")
	case len(ps.AllowAccounts) > 0 && !slices.Contains(ps.AllowAccounts, js.Account),
		len(ps.AllowAccounts) == 0 && slices.Contains(ps.DenyAccounts, js.Account):
		return &Rejection{Code: spec.CodeInvalidAccount, Reason: spec.Reason{Code: spec.ReasonAccountNotAllowed, Subject: who}}
	case len(ps.AllowQOS) > 0 && !slices.Contains(ps.AllowQOS, js.QOS),
		len(ps.AllowQOS) == 0 && slices.Contains(ps.DenyQOS, js.QOS):
		return &Rejection{Code: spec.CodeInvalidQOS, Reason: spec.Reason{Code: spec.ReasonQOSNotAllowed, Subject: who}}
	case over(d.Limit, ps.MaxTime) && !free("PartitionTimeLimit"):
		return &Rejection{Code: spec.CodeInvalidTimeLimit, Reason: spec.Reason{Code: spec.ReasonPartitionTimeLimit, TRES: "time",
			Limit: ps.MaxTime.Seconds(), Asked: d.Limit.Seconds(), Subject: who}}
	}
	total := int64(p.Nodes.Count())
	if ps.MaxNodes > 0 && !free("PartitionMaxNodes") {
		total = min(total, int64(ps.MaxNodes))
	}
	if d.MinNodes > total || (d.MaxNodes < int64(ps.MinNodes) && !free("PartitionMinNodes")) {
		return &Rejection{Code: spec.CodeNodeCountInvalid, Reason: spec.Reason{Code: spec.ReasonPartitionNodeLimit, TRES: "node", Limit: total, Asked: d.MinNodes, Subject: who}}
	}
	most := ps.MaxMemPerNode
	if most == 0 {
		most = cfg.Limits.MaxMemPerNode
	}
	if most > 0 && d.MemPerNode > most {
		return &Rejection{Code: spec.CodeMemoryUnavailable, Reason: spec.Reason{Code: ReasonMaxMem, TRES: "mem", Limit: most, Asked: d.MemPerNode, Subject: who}}
	}
	return nil
}

func over(limit, most spec.Span) bool { return most != 0 && limit > most }

// ResolveDemand resolves a request in a partition. A job that names no time limit
// gets the partition's default, but no more than MaxWall allows.
func ResolveDemand(st *state.State, p *state.Partition, js *spec.JobSpec, b *limits.Bound) place.Demand {
	d := ResolveRequest(st, p, js, b.Wall())
	if IsElastic(&d) {
		RaiseMinNodes(st, p, &d)
	}
	return d
}

// IsElastic tells that how many nodes a demand takes depends on those there are.
func IsElastic(d *place.Demand) bool {
	return d.Grow > 0 || d.MaxNodes > d.MinNodes && !d.Overcommit
}

// ResolveRequest is a demand as far as it does not depend on the nodes there are.
func ResolveRequest(st *state.State, p *state.Partition, js *spec.JobSpec, most spec.Span) place.Demand {
	d := place.Resolve(st.Config, p.Spec, js)
	if js.Time.Limit == 0 && most > 0 {
		d.Limit = min(d.Limit, most)
	}
	if js.Place.Constraint != "" {
		nodesOfCounts(&d, js.Place.Constraint)
	}
	return d
}

// nodesOfCounts raises the numbers of nodes to what the counts of a constraint
// ask for.
func nodesOfCounts(d *place.Demand, expr string) {
	c, err := ParseConstraint(expr)
	if err != nil || c.Nodes() <= d.MinNodes {
		return
	}
	d.MinNodes = c.Nodes()
	d.MaxNodes, d.Tasks = max(d.MaxNodes, d.MinNodes), max(d.Tasks, d.MinNodes)
}

// RaiseMinNodes raises the least number of nodes to what the largest node of
// the partition leaves possible.
func RaiseMinNodes(st *state.State, p *state.Partition, d *place.Demand) {
	if d.Grow > 0 {
		growForGPUs(st, p, d)
		return
	}
	most := int64(0)
	for id := p.Nodes.Next(0); id >= 0; id = p.Nodes.Next(id + 1) {
		if n := st.NodeByID(spec.NodeID(id)); n != nil {
			most = max(most, n.CPUs/d.CPUsPerTask)
			if most >= d.Tasks {
				return
			}
		}
	}
	if most == 0 {
		return
	}
	if least := (d.Tasks + most - 1) / most; least <= d.MaxNodes {
		d.MinNodes = max(d.MinNodes, least)
	}
}

// growForGPUs gives a demand for GPUs of the whole job the fewest nodes whose GPUs,
// with the CPUs and the memory that go with them, are enough together. A demand that
// no number of nodes satisfies stays as it is, and is refused for what one node lacks.
func growForGPUs(st *state.State, p *state.Partition, d *place.Demand) {
	needed := int64(0)
	for _, c := range d.PerJob {
		if c.Name == "gpu" {
			needed += c.N
		}
	}
	shapes := place.Shapes{Caps: place.Caps(st)}
	var rooms []int64
	for id := p.Nodes.Next(0); id >= 0; id = p.Nodes.Next(id + 1) {
		n := st.NodeByID(spec.NodeID(id))
		if n == nil {
			continue
		}
		shape := shapes.Configured(n)
		whole := shape.Whole()
		room := d.Room(shape, &whole)
		if room >= needed {
			return
		}
		rooms = append(rooms, room)
	}
	slices.SortFunc(rooms, func(a, b int64) int { return cmp.Compare(b, a) })
	total := int64(0)
	for i, room := range rooms {
		nodes := int64(i) + 1
		total += room
		if nodes > d.Grow || room == 0 {
			return
		}
		if total >= needed {
			d.MinNodes = max(d.MinNodes, nodes)
			d.MaxNodes = max(d.MaxNodes, d.MinNodes)
			d.Tasks = max(d.Tasks, d.MinNodes*max(d.TasksPerNode, 1))
			return
		}
	}
}

// MinimumTRES is what a job counts as while it waits.
func MinimumTRES(d *place.Demand, p *spec.PartitionSpec, js *spec.JobSpec) spec.TRES {
	t := d.Least(p.BillingWeights)
	for i, l := range js.Licenses {
		if i == 0 || !js.AnyLicense {
			t = t.With("license/"+l.Name, l.N)
		}
	}
	t.Billing = d.Billing(t, p.BillingWeights)
	return t
}

// CheckStartable says that a partition starts nothing, or that what a job was
// accepted under is gone.
func CheckStartable(st *state.State, p *state.Partition, j *state.Job) *spec.Reason {
	switch who := p.Subject; {
	case p.Spec.State == spec.PartitionDown:
		return &spec.Reason{Code: spec.ReasonPartitionDown, Subject: who}
	case p.Spec.State == spec.PartitionInactive:
		return &spec.Reason{Code: spec.ReasonPartitionInactive, Subject: who}
	case st.Config.Enforce.Associations && st.Policy.Assoc(j.Assoc) == nil:
		return &spec.Reason{Code: spec.ReasonInvalidAccount, Subject: "assoc/" + j.Spec.Account + "/" + j.Spec.User}
	case j.Spec.QOS != "" && st.Policy.FindQOS(j.Spec.QOS) == nil:
		return &spec.Reason{Code: spec.ReasonInvalidQOS, Subject: "qos/" + j.Spec.QOS}
	case st.Config.Enforce.QOS && j.Spec.QOS != "" && !slices.Contains(AllowedQOS(st.Policy, j.Assoc), j.Spec.QOS):
		return &spec.Reason{Code: spec.ReasonInvalidQOS, Subject: "qos/" + j.Spec.QOS, Detail: "the association may not use it any more"}
	}
	return nil
}
