package daemon

import (
	"context"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/slurmconf"
)

// ChangePartition sets keys of a partition anew while the cluster runs, adds one or
// takes such a one away.
func (s *partitionCalls) ChangePartition(
	ctx context.Context,
	req *apiv1.PartitionChange,
) (*apiv1.PartitionChangeReply, error) {
	actor, err := s.administratorCaller(ctx)
	if err != nil {
		return nil, err
	}
	do := func(command scheduler.Command) error {
		return s.commitCommand(ctx, &request{cmd: command, actor: actor}).err
	}
	if req.GetDelete() {
		return &apiv1.PartitionChangeReply{}, do(scheduler.DeletePartition{Name: req.GetName()})
	}
	if req.GetCreate() {
		next, warnings, err := slurmconf.NewPartition(
			req.GetName(),
			configPairs(req.GetSet()),
			s.currentView().State.Config,
		)
		if err != nil {
			return nil, spec.Refuse(spec.CodeBadRequest, err.Error())
		}
		return &apiv1.PartitionChangeReply{
				Warnings: warnings,
			}, do(
				scheduler.CreatePartition{New: next},
			)
	}
	partition := s.currentView().State.Parts.Find(req.GetName())
	if partition == nil {
		return nil, spec.Refuse(spec.CodeInvalidPartition, req.GetName())
	}
	next, warnings, err := slurmconf.ChangePartition(
		*partition.Spec,
		configPairs(req.GetSet()),
		s.currentView().State.Config,
	)
	if err != nil {
		return nil, spec.Refuse(spec.CodeBadRequest, err.Error())
	}
	return &apiv1.PartitionChangeReply{
			Warnings: warnings,
		}, do(
			scheduler.UpdatePartition{
				Old:   *partition.Spec,
				New:   next,
				Nodes: slurmconf.ChangesNodes(configPairs(req.GetSet())),
			},
		)
}
