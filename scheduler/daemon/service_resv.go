package daemon

import (
	"context"
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/timeline"
	"github.com/musterhpc/muster/spec"
)

// ListReservations shows reservations.
func (s *reservationCalls) ListReservations(
	ctx context.Context,
	req *apiv1.ReservationsRequest,
) (*apiv1.ReservationsReply, error) {
	caller, _, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	view, now, err := s.viewAt(ctx, req.GetMoment())
	if err != nil {
		return nil, err
	}
	cluster := view.State
	out := &apiv1.ReservationsReply{Now: int64(now)}
	for i := range cluster.Reservations {
		if s.private(privateReservations, caller) &&
			!slices.Contains(cluster.Reservations[i].Users, caller.User) {
			continue
		}
		out.Reservations = append(
			out.Reservations, wire.Reservation(cluster, &cluster.Reservations[i], now),
		)
	}
	return out, nil
}

// ChangeReservation creates, changes and deletes reservations. Users may
// delete those that say so (USER_DELETE).
func (s *reservationCalls) ChangeReservation(
	ctx context.Context,
	req *apiv1.ReservationChange,
) (*apiv1.ReservationChangeReply, error) {
	caller, actor, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	admin := s.isOperator(caller)
	var command scheduler.Command
	switch set := configPairs(req.GetSet()); req.GetVerb() {
	case apiv1.ReservationChange_CREATE:
		command = scheduler.CreateReservation{Name: req.GetName(), Set: set}
	case apiv1.ReservationChange_UPDATE:
		command = scheduler.UpdateReservation{Name: req.GetName(), Set: set}
	case apiv1.ReservationChange_DELETE:
		command = scheduler.DeleteReservation{Name: req.GetName(), Admin: admin}
	default:
		return nil, spec.Refuse(spec.CodeBadRequest, "unknown verb")
	}
	if !admin && req.GetVerb() != apiv1.ReservationChange_DELETE {
		return nil, spec.Refuse(spec.CodeAccessDenied, "")
	}
	if err := s.knownUsers(ctx, req.GetSet()); err != nil {
		return nil, err
	}
	rep := s.commitCommand(ctx, &request{cmd: command, actor: actor})
	if rep.err != nil {
		return nil, rep.err
	}
	return &apiv1.ReservationChangeReply{Name: rep.res.Message}, nil
}

// markReserved notes which nodes a reservation holds now.
func markReserved(cluster *state.State, now spec.Instant, nodes []*apiv1.NodeInfo) {
	holds := map[string]*spec.Reservation{}
	for i := range cluster.Reservations {
		reservation := &cluster.Reservations[i]
		if !timeline.ReservationActive(reservation, now) ||
			reservation.Cores != nil { // of cores: the nodes are everybody's
			continue
		}
		for _, name := range reservation.Nodes {
			if old := holds[name]; old == nil || !old.Flags.Has(spec.ResvMaint) {
				holds[name] = reservation
			}
		}
	}
	for _, node := range nodes {
		if reservation := holds[node.GetName()]; reservation != nil {
			node.Reservation, node.Maintenance = reservation.Name,
				reservation.Flags.Has(spec.ResvMaint)
			node.State = wire.NodeState(node)
		}
	}
}

// knownUsers refuses a reservation for users that neither the site nor
// accounting knows.
func (s *reservationCalls) knownUsers(ctx context.Context, set []*apiv1.ConfigEntry) error {
	for _, entry := range set {
		if key := strings.ToLower(strings.TrimRight(entry.GetKey(), "+-")); key != "users" &&
			key != "user" {
			continue
		}
		for _, name := range strings.FieldsFunc(entry.GetValue(), func(c rune) bool { return c == ',' }) {
			name = strings.TrimLeft(name, "+-")
			if s.currentView().State.Policy.FindUser(name) != nil {
				continue
			}
			if _, _, ok := s.C.deps.Directory.User(ctx, name); !ok {
				return spec.Refuse(spec.CodeInvalidUser, "there is no user "+name)
			}
		}
	}
	return nil
}
