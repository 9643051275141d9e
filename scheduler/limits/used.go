package limits

import (
	"math"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// Held is how much of a TRES a subject holds now, as limits count it: nodes
// count once, however many of its jobs share them.
func Held(usage *state.Usage, tres string) int64 {
	if tres == "node" {
		return int64(usage.Nodes.Len())
	}
	return usage.TRES.Get(tres)
}

// SpentMinutes is what of a limit in minutes was used in the past; nil = none.
func SpentMinutes(usage *state.Spent, tres string) int64 {
	return int64(min(usage.Of(tres).Hi, math.MaxInt64/2)) / 60
}

// SpentSeconds is how long jobs ran in the past; nil = never.
func SpentSeconds(usage *state.Spent) int64 {
	if usage == nil {
		return 0
	}
	return int64(min(usage.Wall.Hi, math.MaxInt64/2))
}

// RunMinutes is what running jobs of a subject may still use.
func RunMinutes(cluster *state.State, key uint64, tres string, now spec.Instant) int64 {
	return cluster.RunSeconds(key, tres, now) / 60
}

// Effective is an association with the limits of one job and of one user that
// it inherits: of each, the nearest one up the tree rules.
func Effective(policy *state.Policy, id uint32) *spec.Association {
	chain := policy.Chain(id)
	if len(chain) == 0 {
		return nil
	}
	association := *chain[0]
	for _, assoc := range chain[1:] {
		inherit(&association.MaxJobs, assoc.MaxJobs)
		inherit(&association.MaxSubmitJobs, assoc.MaxSubmitJobs)
		inherit(&association.MaxJobsAccrue, assoc.MaxJobsAccrue)
		inherit(&association.MinPrio, assoc.MinPrio)
		if association.MaxWall <= 0 {
			association.MaxWall = assoc.MaxWall
		}
		inheritTRES(&association.MaxTRESPerJob, assoc.MaxTRESPerJob)
		inheritTRES(&association.MaxTRESPerNode, assoc.MaxTRESPerNode)
		inheritTRES(&association.MaxTRESMins, assoc.MaxTRESMins)
	}
	return &association
}

func inherit(own **int64, above *int64) {
	if *own == nil {
		*own = above
	}
}

// inheritTRES adds the limits of TRES that have none yet; it never writes
// into the list that it was given.
func inheritTRES(own *spec.Limits, above spec.Limits) {
	list := *own
	for _, limit := range above {
		if _, ok := list.Get(limit.Name); !ok {
			list = append(list[:len(list):len(list)], limit)
		}
	}
	*own = list
}
