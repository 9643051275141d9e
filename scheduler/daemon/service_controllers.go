package daemon

import (
	"context"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/spec"
)

// ListControllers tells who the controllers are, who leads, and how far the others
// are.
func (s *controllerCalls) ListControllers(
	ctx context.Context,
	_ *apiv1.ControllersRequest,
) (*apiv1.ControllersReply, error) {
	if group := s.C.deps.Group; group != nil {
		return s.C.describeLedger(ctx, group.List(ctx)), nil
	}
	self := &apiv1.ControllerInfo{
		Name:     s.C.deps.Settings.Host,
		Role:     "leader",
		Version:  s.C.deps.Settings.Version,
		Position: s.C.deps.Log.LastPosition(),
		Knows:    event.Version,
	}
	out := &apiv1.ControllersReply{Controllers: []*apiv1.ControllerInfo{self}}
	return s.C.describeLedger(ctx, out), nil
}

// ChangeControllers adds or removes a controller, hands the lead over, or raises the
// ledger's version.
func (s *controllerCalls) ChangeControllers(
	ctx context.Context,
	req *apiv1.ChangeControllersRequest,
) (*apiv1.ChangeControllersReply, error) {
	actor, err := s.administratorCaller(ctx)
	if err != nil {
		return nil, err
	}
	if req.GetRaiseLedger() {
		s.C.deps.Logger.Info("the ledger's version is to be raised", "by", actor.Name)
		version, err := s.C.raiseLedger(ctx, actor)
		if err != nil {
			return nil, err
		}
		return &apiv1.ChangeControllersReply{LedgerVersion: version}, nil
	}
	group := s.C.deps.Group
	if group == nil {
		return nil, spec.Refuse(
			spec.CodeDisabled,
			"this is the only controller: name the others as SlurmctldHost in slurm.conf and start it again (docs/operations/controllers.md)",
		)
	}
	s.C.deps.Logger.Info("a change of the controllers was asked for", "by", actor.Name,
		"add", req.GetAdd(), "remove", req.GetRemove(), "hand_over", req.GetHandOver())
	leader, err := group.Change(ctx, req)
	if err != nil {
		return nil, err
	}
	return &apiv1.ChangeControllersReply{Leader: leader}, nil
}
