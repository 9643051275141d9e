package pass

import (
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/eligible"
	"github.com/musterhpc/muster/scheduler/timeline"
	"github.com/musterhpc/muster/spec"
)

// applyReservations restricts a class to the nodes and the times that reservations
// leave it.
func (p *pass) applyReservations(
	class *jobClass,
	job *state.Job,
	nodes *eligible.NodeSet,
) *spec.Reason {
	class.view = nil
	if len(p.snapshot.Reservations) == 0 && job.Spec.Place.Reservation == "" {
		return nil
	}
	view, reason := timeline.ViewReservations(p.snapshot, job.Spec, p.now)
	if reason != nil {
		return reason
	}
	class.view, class.demand.Inside = &view, view.Cores()
	class.demand.Limit = view.CapLimit(class.demand.Limit, p.now)
	if view.Only != nil {
		nodes.Set = nodes.Set.And(view.Only)
	}
	if at, later := view.Opens(p.now); later {
		p.wakeAt(at)
	}
	return nil
}

// openOtherwise tells whether a job could start up to an instant if there were no
// reservations.
func (p *pass) openOtherwise(class *jobClass, nodes eligible.NodeSet, until spec.Instant) bool {
	view, line := class.view, p.line
	switch {
	case view == nil || (len(view.Bars.List) == 0 && !view.Cored):
		return false
	case view.Cored && until == spec.FarFuture: // the timeline has their cores taken out
		line = timeline.New(
			p.snapshot,
			p.now,
			max(p.cfg.Sched.BFResolution, spec.Second),
			nodes.Set,
			nil,
		)
	}
	_, ok := line.Earliest(
		line.NewQuery(
			class.demand,
			nodes.Set,
			nodes.Options(p.cfg, class.part.Spec, class.request.representative.Spec, p.trees),
			timeline.Bars{},
		),
		until,
		nil,
	)
	return ok
}

// waitsForReservation finds out whether it is a reservation that a job waits for, and says so
// in its reason: its own that has not begun, which own tells, or another's
// that keeps it off nodes it could start on.
func (p *pass) waitsForReservation(
	class *jobClass,
	reason *spec.Reason,
	planned spec.Instant,
) (own bool) {
	view := class.view
	if view == nil {
		return false
	}
	if at, later := view.Opens(p.now); later && planned >= at {
		*reason = spec.Reason{Code: spec.ReasonReservation, Subject: "reservation/" +
			view.Own.Name, Until: at}
		return true
	}
	if reason.Code != spec.ReasonResources || !view.BarredByOthers() {
		return false
	}
	nodes, err := eligible.AllowedNodes(p.snapshot, class.part, class.request.representative.Spec)
	if err != nil {
		return false
	}
	if p.keptByOthers(class, nodes, p.now) {
		reason.Code, reason.Detail = spec.ReasonReqNodeNotAvail, keptDetail(view)
	}
	return false
}

// keptByOthers tells whether a job could start up to an instant, on the nodes of its own
// reservation if it has one, if others had reserved nothing.
func (p *pass) keptByOthers(class *jobClass, nodes eligible.NodeSet, until spec.Instant) bool {
	if !class.view.BarredByOthers() {
		return false
	}
	if class.view.Only != nil {
		nodes.Set = nodes.Set.And(class.view.Only)
	}
	return p.openOtherwise(class, nodes, until)
}

// keptDetail is the detail of the reason of a job that reservations of others keep off nodes.
func keptDetail(view *timeline.ReservationView) string {
	if view.Maint {
		return "Reserved for maintenance"
	}
	return "May be reserved for other job"
}

// barsOf are the times and nodes that reservations keep a class from.
func (p *pass) barsOf(class *jobClass) timeline.Bars {
	if view := class.view; view != nil {
		return view.Bars
	}
	return timeline.Bars{}
}
