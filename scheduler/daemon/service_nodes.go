package daemon

import (
	"context"
	"fmt"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
	"github.com/musterhpc/muster/spec/slurmconf"
)

// ChangeNodes adds nodes while the cluster runs, or takes such nodes away.
func (s *nodeCalls) ChangeNodes(
	ctx context.Context,
	req *apiv1.NodeChange,
) (*apiv1.NodeChangeReply, error) {
	actor, err := s.administratorCaller(ctx)
	if err != nil {
		return nil, err
	}
	out := &apiv1.NodeChangeReply{}
	var command scheduler.Command
	if line := req.GetCreate(); line != "" {
		list, err := slurmconf.ReadNode(line, s.currentView().State.Config)
		if err != nil {
			return nil, spec.Refuse(spec.CodeBadRequest, err.Error())
		}
		for i := range list {
			out.Nodes = append(out.Nodes, list[i].Name)
		}
		command = scheduler.CreateNodes{Nodes: list}
	} else {
		names, err := hostlist.Expand(req.GetDelete())
		if err != nil || len(names) == 0 {
			return nil, spec.Refuse(spec.CodeInvalidNodeName, req.GetDelete())
		}
		out.Nodes, command = names, scheduler.DeleteNodes{Nodes: names}
	}
	return out, s.commitCommand(ctx, &request{cmd: command, actor: actor}).err
}

// describedNode is the node that an agent describes itself; nil if it does not.
func (c *Controller) describedNode(reg *apiv1.Registration) (*spec.NodeSpec, error) {
	if reg.GetDynamic() == "" {
		return nil, nil
	}
	list, err := slurmconf.ReadNode(reg.GetDynamic(), c.View().State.Config)
	if err != nil {
		return nil, spec.Refuse(
			spec.CodeBadRequest,
			fmt.Sprintf("the description of node %s: %v", reg.GetNode(), err),
		)
	}
	if len(list) != 1 || list[0].Name != reg.GetNode() {
		return nil, spec.Refuse(
			spec.CodeInvalidNodeName,
			fmt.Sprintf("the agent of node %s describes another", reg.GetNode()),
		)
	}
	return &list[0], nil
}
