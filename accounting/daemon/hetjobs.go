package daemon

import (
	"cmp"
	"maps"
	"slices"

	"github.com/musterhpc/muster/accounting/query"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
)

// hetFound is a component of a heterogeneous job that an answer has.
type hetFound struct{ leader, size uint32 }

// noteComponents keeps which components of heterogeneous jobs are in the answer.
func (a *answer) noteComponents(run *acctRun) {
	if run.row.GetHetJobId() == 0 || (len(a.ask.Jobs) == 0 && !a.wholeHet) {
		return
	}
	if a.found == nil {
		a.found = map[uint32]hetFound{}
	}
	a.found[run.row.GetJobId()] = hetFound{run.row.GetHetJobId(), run.parts}
}

// querySiblings asks for the components that belong to those which were found and
// are not named themselves, by the same conditions; where no job was named, by
// no other than whose they are. Nil = none.
func (a *answer) querySiblings(whole apiv1.HetWhole) *query.Acct {
	if whole == apiv1.HetWhole_HET_WHOLE_NONE {
		return nil
	}
	var more []query.JobRef
	if len(a.ask.Jobs) == 0 {
		for _, found := range slices.Sorted(maps.Keys(a.found)) {
			f := a.found[found]
			for id := f.leader; id-f.leader < f.size; id++ {
				ref := query.JobRef{ID: id, Task: spec.NoTask, Het: f.leader}
				if _, ok := a.found[id]; !ok && !slices.Contains(more, ref) {
					more = append(more, ref)
				}
			}
		}
		if len(more) == 0 {
			return nil
		}
		request := &query.Acct{
			Jobs:        more,
			Users:       a.ask.Users,
			Allocations: a.ask.Allocations,
			Duplicates:  a.ask.Duplicates,
		}
		request.Window(a.scope.Now, 0)
		return request
	}
	for _, job := range a.ask.Jobs {
		found, ok := a.found[job.ID]
		if !ok ||
			(whole == apiv1.HetWhole_HET_WHOLE_LEADERS && (job.Het != 0 ||
				job.ID != found.leader)) {
			continue
		}
		for id := found.leader; id-found.leader < found.size; id++ {
			ref := query.JobRef{ID: id, Task: job.Task, Step: job.Step, Het: found.leader}
			if id != job.ID && !slices.Contains(more, ref) {
				more = append(more, ref)
			}
		}
	}
	// Those that the first question brought are not asked for again; their
	// steps may be.
	a.ask.Jobs = append(a.ask.Jobs, more...)
	more = slices.DeleteFunc(
		slices.Clone(more),
		func(j query.JobRef) bool { _, ok := a.found[j.ID]; return ok },
	)
	if len(more) == 0 {
		return nil
	}
	ask := *a.ask
	ask.Jobs = more
	return &ask
}

// inOrder brings the components of a heterogeneous job together, which came
// in two answers.
func (a *answer) inOrder() {
	number := func(run acctRun) uint32 {
		return cmp.Or(run.row.GetHetJobId(), run.row.GetArrayJobId(), run.row.GetJobId())
	}
	slices.SortStableFunc(a.runs, func(x, y acctRun) int {
		return cmp.Or(
			cmp.Compare(number(x), number(y)),
			cmp.Compare(x.row.GetHetOffset(), y.row.GetHetOffset()),
		)
	})
}
