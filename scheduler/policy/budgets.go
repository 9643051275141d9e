package policy

import (
	"slices"
	"strings"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// Budget is how much of each TRES what is left of an account's money still pays
// for, if it were spent on that alone, in TRES minutes.
type Budget struct {
	Account string
	Left    spec.Limits
}

// budgetSteps: a limit is written again when it is wrong by one of that many
// parts of what is left, so that the ledger has few of them.
const budgetSteps = 50

// Budgets plans the limits that make accounts keep to their budgets, of which
// these are all. Such a limit is what the account has used, as its limits
// count it, and what is left; nothing where nothing is left.
func Budgets(cluster *state.State, all []Budget) []event.Event {
	var events []event.Event
	for i := range cluster.Policy.Assocs {
		assoc := &cluster.Policy.Assocs[i]
		if assoc.User != "" {
			continue
		}
		var want spec.Limits
		if n := slices.IndexFunc(all, func(b Budget) bool { return b.Account == assoc.Account }); n >= 0 {
			used := cluster.SpentOf(state.UsageAssoc, 0, assoc.ID)
			for _, limit := range all[n].Left {
				have, ok := assoc.Budget.Get(limit.Name)
				if limit.N <= 0 {
					limit.N = 0
				} else {
					left := limit.N
					limit.N += int64(min(used.Of(limit.Name).Hi/60, 1<<53))
					off := have - limit.N
					if ok && have > 0 && max(off, -off) <= left/budgetSteps {
						limit.N = have
					}
				}
				want = append(want, limit)
			}
			slices.SortFunc(
				want,
				func(x, y spec.TRESCount) int { return strings.Compare(x.Name, y.Name) },
			)
		}
		if !slices.Equal(want, assoc.Budget) {
			changed := *assoc
			changed.Budget = want
			events = append(events, &event.AssociationPut{Association: changed})
		}
	}
	return events
}
