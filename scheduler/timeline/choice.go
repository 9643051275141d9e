package timeline

import (
	"github.com/musterhpc/muster/spec"
)

// chooseSets makes an ask of those on each of some sets of nodes. What is
// preferred comes in front, and counts only for a start now.
func (t *Timeline) chooseSets(query *Query, bars Bars) *Query {
	options := query.options
	sets := options.OneOf
	if len(sets) == 0 {
		sets = []spec.Bitset{query.allowed}
	}
	prefer := options.Prefer
	options.OneOf, options.Prefer = nil, nil
	for _, set := range sets {
		query.oneOf = append(
			query.oneOf,
			t.NewQuery(query.Demand, query.allowed.And(set), options, bars),
		)
	}
	if prefer != nil {
		front := options
		for _, set := range sets {
			front.OneOf = append(front.OneOf, set.And(prefer))
		}
		query.prefer = t.NewQuery(query.Demand, query.allowed.And(prefer), front, bars)
	}
	return query
}

// earliestOnSets is the earliest start on any of the sets, on the first of those where
// it is the same.
func (t *Timeline) earliestOnSets(query *Query, until spec.Instant, hint *Hint) (Slot, bool) {
	if query.prefer != nil && query.from <= t.now {
		if slot, ok := t.Earliest(query.prefer, t.now, hint); ok {
			return slot, true
		}
	}
	best, found := Slot{Start: spec.FarFuture}, false
	for _, sub := range query.oneOf {
		sub.from = max(sub.from, query.from)
		limit := until
		if found {
			limit = min(limit, best.Start-1)
		}
		if slot, ok := t.Earliest(sub, limit, hint); ok {
			best, found = slot, true
		}
	}
	if found {
		query.from = max(query.from, best.Start)
		return best, true
	}
	query.from = max(query.from, until.Add(1))
	for _, sub := range query.oneOf {
		query.from = min(query.from, max(sub.from, until.Add(1)))
	}
	return best, false
}
