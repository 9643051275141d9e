package reserve

import (
	"github.com/musterhpc/muster/spec"
)

// choice makes an ask of those on each of some sets of nodes. What is
// preferred comes in front, and counts only for a start now.
func (t *Timeline) choice(a *Ask, bars Bars) *Ask {
	opt := a.options
	sets := opt.OneOf
	if len(sets) == 0 {
		sets = []spec.Bitset{a.allowed}
	}
	prefer := opt.Prefer
	opt.OneOf, opt.Prefer = nil, nil
	for _, set := range sets {
		a.oneOf = append(a.oneOf, t.Ask(a.Demand, a.allowed.And(set), opt, bars))
	}
	if prefer != nil {
		front := opt
		for _, set := range sets {
			front.OneOf = append(front.OneOf, set.And(prefer))
		}
		a.prefer = t.Ask(a.Demand, a.allowed.And(prefer), front, bars)
	}
	return a
}

// chosen is the earliest start on any of the sets, on the first of those where
// it is the same.
func (t *Timeline) chosen(a *Ask, until spec.Instant, hint *Hint) (Slot, bool) {
	if a.prefer != nil && a.from <= t.now {
		if slot, ok := t.Earliest(a.prefer, t.now, hint); ok {
			return slot, true
		}
	}
	best, found := Slot{Start: spec.FarFuture}, false
	for _, sub := range a.oneOf {
		sub.from = max(sub.from, a.from)
		limit := until
		if found {
			limit = min(limit, best.Start-1)
		}
		if slot, ok := t.Earliest(sub, limit, hint); ok {
			best, found = slot, true
		}
	}
	if found {
		a.from = max(a.from, best.Start)
		return best, true
	}
	a.from = max(a.from, until.Add(1))
	for _, sub := range a.oneOf {
		a.from = min(a.from, max(sub.from, until.Add(1)))
	}
	return best, false
}
