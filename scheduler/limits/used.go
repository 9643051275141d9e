package limits

import (
	"math"

	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// Held is how much of a TRES a subject holds now, as limits count it: nodes
// count once, however many of its jobs share them.
func Held(u *state.Usage, tres string) int64 {
	if tres == "node" {
		return int64(u.Nodes.Len())
	}
	return u.TRES.Get(tres)
}

// SpentMinutes is what of a limit in minutes was used in the past; nil = none.
func SpentMinutes(u *state.Spent, tres string) int64 {
	return int64(min(u.Of(tres).Hi, math.MaxInt64/2)) / 60
}

// SpentSeconds is how long jobs ran in the past; nil = never.
func SpentSeconds(u *state.Spent) int64 {
	if u == nil {
		return 0
	}
	return int64(min(u.Wall.Hi, math.MaxInt64/2))
}

// RunMinutes is what running jobs of a subject may still use.
func RunMinutes(st *state.State, key uint64, tres string, now spec.Instant) int64 {
	return st.RunSeconds(key, tres, now) / 60
}

// Effective is an association with the limits of one job and of one user that
// it inherits: of each, the nearest one up the tree rules.
func Effective(p *state.Policy, id uint32) *spec.Association {
	chain := p.Chain(id)
	if len(chain) == 0 {
		return nil
	}
	out := *chain[0]
	for _, a := range chain[1:] {
		inherit(&out.MaxJobs, a.MaxJobs)
		inherit(&out.MaxSubmitJobs, a.MaxSubmitJobs)
		inherit(&out.MaxJobsAccrue, a.MaxJobsAccrue)
		inherit(&out.MinPrio, a.MinPrio)
		if out.MaxWall <= 0 {
			out.MaxWall = a.MaxWall
		}
		inheritTRES(&out.MaxTRESPerJob, a.MaxTRESPerJob)
		inheritTRES(&out.MaxTRESPerNode, a.MaxTRESPerNode)
		inheritTRES(&out.MaxTRESMins, a.MaxTRESMins)
	}
	return &out
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
	for _, l := range above {
		if _, ok := list.Get(l.Name); !ok {
			list = append(list[:len(list):len(list)], l)
		}
	}
	*own = list
}
