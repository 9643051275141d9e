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
func CheckPartition(
	cluster *state.State,
	partition *state.Partition,
	jobSpec *spec.JobSpec,
	demand *place.Demand,
) *Rejection {
	ps := partition.Spec
	config := cluster.Config
	own := cluster.Policy.FindQOS(jobSpec.QOS)
	who := partition.Subject
	free := func(flag string) bool { return own != nil && own.HasFlag(flag) }
	access := func(code spec.Code, detail string) *Rejection {
		return &Rejection{
			code,
			spec.Reason{Code: spec.ReasonPartitionConfig, Subject: who, Detail: detail},
			true,
		}
	}
	switch {
	case ps.RootOnly && jobSpec.UID != 0:
		return access(spec.CodeAccessDenied, "RootOnly=YES")
	case ps.DisableRootJobs && jobSpec.UID == 0:
		return access(spec.CodeAccessDenied, "DisableRootJobs=YES")
	case len(ps.AllowGroups) > 0 && !slices.Contains(ps.AllowGroups, jobSpec.Group) && jobSpec.UID != 0:
		return access(spec.CodeGroupNotPermitted, "AllowGroups does not name "+jobSpec.Group)
	case ps.ReqResv && jobSpec.Place.Reservation == "":
		return access(spec.CodeReservationDenied, "ReqResv=YES")
	case len(ps.AllowAccounts) > 0 && !slices.Contains(ps.AllowAccounts, jobSpec.Account),
		len(ps.AllowAccounts) == 0 && slices.Contains(ps.DenyAccounts, jobSpec.Account):
		return &Rejection{
			Code:   spec.CodeInvalidAccount,
			Reason: spec.Reason{Code: spec.ReasonAccountNotAllowed, Subject: who},
		}
	case len(ps.AllowQOS) > 0 && !slices.Contains(ps.AllowQOS, jobSpec.QOS),
		len(ps.AllowQOS) == 0 && slices.Contains(ps.DenyQOS, jobSpec.QOS):
		return &Rejection{
			Code:   spec.CodeInvalidQOS,
			Reason: spec.Reason{Code: spec.ReasonQOSNotAllowed, Subject: who},
		}
	case over(demand.Limit, ps.MaxTime) && !free("PartitionTimeLimit"):
		return &Rejection{
			Code: spec.CodeInvalidTimeLimit,
			Reason: spec.Reason{Code: spec.ReasonPartitionTimeLimit, TRES: "time",
				Limit: ps.MaxTime.Seconds(), Asked: demand.Limit.Seconds(), Subject: who},
		}
	}
	total := int64(partition.Nodes.Count())
	if ps.MaxNodes > 0 && !free("PartitionMaxNodes") {
		total = min(total, int64(ps.MaxNodes))
	}
	if demand.MinNodes > total ||
		(demand.MaxNodes < int64(ps.MinNodes) && !free("PartitionMinNodes")) {
		return &Rejection{
			Code: spec.CodeNodeCountInvalid,
			Reason: spec.Reason{
				Code:    spec.ReasonPartitionNodeLimit,
				TRES:    "node",
				Limit:   total,
				Asked:   demand.MinNodes,
				Subject: who,
			},
		}
	}
	most := ps.MaxMemPerNode
	if most == 0 {
		most = config.Limits.MaxMemPerNode
	}
	if most > 0 && demand.MemPerNode > most {
		return &Rejection{
			Code: spec.CodeMemoryUnavailable,
			Reason: spec.Reason{
				Code:    ReasonMaxMem,
				TRES:    "mem",
				Limit:   most,
				Asked:   demand.MemPerNode,
				Subject: who,
			},
		}
	}
	return nil
}

func over(limit, most spec.Span) bool { return most != 0 && limit > most }

// ResolveDemand resolves a request in a partition. A job that names no time limit
// gets the partition's default, but no more than MaxWall allows.
func ResolveDemand(
	cluster *state.State,
	partition *state.Partition,
	jobSpec *spec.JobSpec,
	bound *limits.Bound,
) place.Demand {
	demand := ResolveRequest(cluster, partition, jobSpec, bound.Wall())
	if IsElastic(&demand) {
		RaiseMinNodes(cluster, partition, &demand)
	}
	return demand
}

// IsElastic tells that how many nodes a demand takes depends on those there are.
func IsElastic(demand *place.Demand) bool {
	return demand.Grow > 0 || demand.MaxNodes > demand.MinNodes && !demand.Overcommit
}

// ResolveRequest is a demand as far as it does not depend on the nodes there are.
func ResolveRequest(
	cluster *state.State,
	partition *state.Partition,
	jobSpec *spec.JobSpec,
	most spec.Span,
) place.Demand {
	demand := place.Resolve(cluster.Config, partition.Spec, jobSpec)
	if jobSpec.Time.Limit == 0 && most > 0 {
		demand.Limit = min(demand.Limit, most)
	}
	if jobSpec.Place.Constraint != "" {
		nodesOfCounts(&demand, jobSpec.Place.Constraint)
	}
	return demand
}

// nodesOfCounts raises the numbers of nodes to what the counts of a constraint
// ask for.
func nodesOfCounts(demand *place.Demand, expr string) {
	c, err := ParseConstraint(expr)
	if err != nil || c.Nodes() <= demand.MinNodes {
		return
	}
	demand.MinNodes = c.Nodes()
	demand.MaxNodes, demand.Tasks = max(
		demand.MaxNodes,
		demand.MinNodes,
	), max(
		demand.Tasks,
		demand.MinNodes,
	)
}

// RaiseMinNodes raises the least number of nodes to what the largest node of
// the partition leaves possible.
func RaiseMinNodes(cluster *state.State, partition *state.Partition, demand *place.Demand) {
	if demand.Grow > 0 {
		growForGPUs(cluster, partition, demand)
		return
	}
	most := int64(0)
	for id := partition.Nodes.Next(0); id >= 0; id = partition.Nodes.Next(id + 1) {
		if node := cluster.NodeByID(spec.NodeID(id)); node != nil {
			most = max(most, node.CPUs/demand.CPUsPerTask)
			if most >= demand.Tasks {
				return
			}
		}
	}
	if most == 0 {
		return
	}
	if least := (demand.Tasks + most - 1) / most; least <= demand.MaxNodes {
		demand.MinNodes = max(demand.MinNodes, least)
	}
}

// growForGPUs gives a demand for GPUs of the whole job the fewest nodes whose GPUs,
// with the CPUs and the memory that go with them, are enough together. A demand that
// no number of nodes satisfies stays as it is, and is refused for what one node lacks.
func growForGPUs(cluster *state.State, partition *state.Partition, demand *place.Demand) {
	needed := int64(0)
	for _, count := range demand.PerJob {
		if count.Name == "gpu" {
			needed += count.N
		}
	}
	shapes := place.Shapes{Caps: place.Caps(cluster)}
	var rooms []int64
	for id := partition.Nodes.Next(0); id >= 0; id = partition.Nodes.Next(id + 1) {
		node := cluster.NodeByID(spec.NodeID(id))
		if node == nil {
			continue
		}
		shape := shapes.Configured(node)
		whole := shape.Whole()
		room := demand.Room(shape, &whole)
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
		if nodes > demand.Grow || room == 0 {
			return
		}
		if total >= needed {
			demand.MinNodes = max(demand.MinNodes, nodes)
			demand.MaxNodes = max(demand.MaxNodes, demand.MinNodes)
			demand.Tasks = max(demand.Tasks, demand.MinNodes*max(demand.TasksPerNode, 1))
			return
		}
	}
}

// MinimumTRES is what a job counts as while it waits.
func MinimumTRES(
	demand *place.Demand,
	partition *spec.PartitionSpec,
	jobSpec *spec.JobSpec,
) spec.TRES {
	tres := demand.Least(partition.BillingWeights)
	for i, l := range jobSpec.Licenses {
		if i == 0 || !jobSpec.AnyLicense {
			tres = tres.With("license/"+l.Name, l.N)
		}
	}
	tres.Billing = demand.Billing(tres, partition.BillingWeights)
	return tres
}

// CheckStartable says that a partition starts nothing, or that what a job was
// accepted under is gone.
func CheckStartable(cluster *state.State, partition *state.Partition, job *state.Job) *spec.Reason {
	switch who := partition.Subject; {
	case partition.Spec.State == spec.PartitionDown:
		return &spec.Reason{Code: spec.ReasonPartitionDown, Subject: who}
	case partition.Spec.State == spec.PartitionInactive:
		return &spec.Reason{Code: spec.ReasonPartitionInactive, Subject: who}
	case cluster.Config.Enforce.Associations && cluster.Policy.Assoc(job.Assoc) == nil:
		return &spec.Reason{Code: spec.ReasonInvalidAccount, Subject: "assoc/" +
			job.Spec.Account + "/" + job.Spec.User}
	case job.Spec.QOS != "" && cluster.Policy.FindQOS(job.Spec.QOS) == nil:
		return &spec.Reason{Code: spec.ReasonInvalidQOS, Subject: "qos/" + job.Spec.QOS}
	case cluster.Config.Enforce.QOS && job.Spec.QOS != "" &&
		!slices.Contains(AllowedQOS(cluster.Policy, job.Assoc), job.Spec.QOS):
		return &spec.Reason{
			Code:    spec.ReasonInvalidQOS,
			Subject: "qos/" + job.Spec.QOS,
			Detail:  "the association may not use it any more",
		}
	}
	return nil
}
