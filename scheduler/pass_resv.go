package scheduler

import (
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/reserve"
	"github.com/musterhpc/muster/scheduler/resv"
	"github.com/musterhpc/muster/spec"
)

// reservations restricts a lot to the nodes and the times that reservations
// leave it.
func (p *pass) reservations(l *lot, j *state.Job, nodes *nodeSet) *spec.Reason {
	l.view = nil
	if len(p.st.Reservations) == 0 && j.Spec.Place.Reservation == "" {
		return nil
	}
	v, r := resv.For(p.st, j.Spec, p.now)
	if r != nil {
		return r
	}
	l.view, l.demand.Inside = &v, v.Cores()
	if v.Only != nil {
		nodes.set = nodes.set.And(v.Only)
	}
	if at, later := v.Opens(p.now); later {
		p.wake(at)
	}
	return nil
}

// openOtherwise tells whether a job could start up to an instant if nobody had
// reserved anything.
func (p *pass) openOtherwise(l *lot, nodes nodeSet, until spec.Instant) bool {
	v, line := l.view, p.line
	switch {
	case v == nil || (len(v.Bars.List) == 0 && !v.Cored):
		return false
	case v.Cored && until == spec.FarFuture: // the timeline has their cores taken out
		line = reserve.New(p.st, p.now, max(p.cfg.Sched.BFResolution, spec.Second), nodes.set, nil)
	}
	_, ok := line.Earliest(line.Ask(l.demand, nodes.set, nodes.options(p.cfg, l.part.Spec, l.kin.like.Spec, p.trees), reserve.Bars{}), until, nil)
	return ok
}

// waitsForReservation finds out whether it is a reservation that a job waits for, and says so
// in its reason: its own that has not begun, which own tells, or another's
// that keeps it off nodes it could start on.
func (p *pass) waitsForReservation(l *lot, r *spec.Reason, planned spec.Instant) (own bool) {
	v := l.view
	if v == nil {
		return false
	}
	if at, later := v.Opens(p.now); later && planned >= at {
		*r = spec.Reason{Code: spec.ReasonReservation, Subject: "reservation/" + v.Own.Name, Until: at}
		return true
	}
	if r.Code != spec.ReasonResources || len(v.Bars.List) == 0 || v.Own != nil {
		return false
	}
	nodes, err := allowedNodes(p.st, l.part, l.kin.like.Spec)
	if err != nil {
		return false
	}
	if !p.openOtherwise(l, nodes, p.now) {
		return false
	}
	r.Code, r.Detail = spec.ReasonReqNodeNotAvail, "May be reserved for other job"
	if v.Maint {
		r.Detail = "Reserved for maintenance"
	}
	return false
}

// barsOf are the times and nodes that reservations keep a lot from.
func (p *pass) barsOf(l *lot) reserve.Bars {
	if v := l.view; v != nil {
		return v.Bars
	}
	return reserve.Bars{}
}
