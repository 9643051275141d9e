package daemon

import (
	"context"
	"fmt"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// maxProgram bounds the path of a trigger's program, with its arguments.
const maxProgram = 4096

// maySetTriggers refuses those whose programs the site does not want.
func (s *triggerCalls) maySetTriggers(caller Caller) error {
	config := s.C.View().State.Config
	switch {
	case s.C.deps.UserPrograms == nil || config.NoTriggers:
		return spec.Refuse(spec.CodeDisabled, "SlurmctldParameters=disable_triggers")
	case caller.NoUID:
		return spec.Refuse(
			spec.CodeAccessDenied,
			"an administrator's certificate names no user to run programs as",
		)
	case caller.Limited:
		return spec.Refuse(
			spec.CodeAccessDenied,
			"a compute node vouches for its users only while their jobs run there: "+
				"set triggers on a login host",
		)
	case !s.isAdministrator(caller) && !config.UserTriggers:
		return spec.Refuse(
			spec.CodeAccessDenied,
			"triggers of all users need SlurmctldParameters=allow_user_triggers",
		)
	case !s.C.deps.UserPrograms.May(caller.UID):
		return spec.Refuse(
			spec.CodeDisabled,
			"the controller does not run as root, so it can run programs only as its own user",
		)
	}
	return nil
}

// SetTriggers adds programs that run as the caller on the controller's host.
func (s *triggerCalls) SetTriggers(
	ctx context.Context,
	req *apiv1.SetTriggersRequest,
) (*apiv1.SetTriggersReply, error) {
	caller, actor, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.maySetTriggers(caller); err != nil {
		return nil, err
	}
	_, groups := s.C.deps.Directory.Groups(ctx, caller.User, caller.GID)
	cmd := scheduler.SetTriggers{}
	var problems []string
	for _, asked := range req.GetTriggers() {
		trigger := spec.Trigger{
			Kind:      spec.ParseTriggerKind(asked.GetKind()),
			Node:      asked.GetNode(),
			Offset:    spec.Span(asked.GetOffset()),
			Program:   asked.GetProgram(),
			UID:       caller.UID,
			GID:       caller.GID,
			User:      caller.User,
			Groups:    groups,
			Permanent: asked.GetPermanent(),
		}
		if trigger.Kind == 0 {
			problems = append(problems, fmt.Sprintf("there are no triggers of type %q", asked.GetKind()))
		}
		if !strings.HasPrefix(trigger.Program, "/") || len(trigger.Program) > maxProgram ||
			strings.ContainsAny(trigger.Program, "\x00\n") {
			problems = append(problems, fmt.Sprintf("program %q is not an absolute path", trigger.Program))
		}
		if asked.GetJob() != "" {
			list, err := visibleTargets(s.C.View().State, asked.GetJob(), s.visibleTo(caller))
			if err != nil {
				return nil, err
			}
			if job := s.C.View().State.Job(list[0].UID); !s.mayChange(caller, job) {
				return nil, spec.Refuse(spec.CodeAccessDenied, "the job is not yours")
			}
			trigger.Job = list[0].UID
		}
		cmd.Triggers = append(cmd.Triggers, trigger)
	}
	if len(problems) > 0 {
		return nil, spec.Refuse(spec.CodeBadRequest, strings.Join(problems, "; "))
	}
	rep := s.C.writer.commitCommand(ctx, &request{cmd: cmd, actor: actor})
	if rep.err != nil {
		return nil, rep.err
	}
	return &apiv1.SetTriggersReply{Ids: rep.res.Triggers}, nil
}

// ListTriggers shows the caller's triggers, and all of them to operators.
func (s *triggerCalls) ListTriggers(
	ctx context.Context,
	_ *apiv1.ListTriggersRequest,
) (*apiv1.ListTriggersReply, error) {
	caller, _, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	cluster := s.C.View().State
	out := &apiv1.ListTriggersReply{}
	for i := range cluster.Triggers {
		trigger := &cluster.Triggers[i]
		if !s.ownsTrigger(caller, trigger) {
			continue
		}
		out.Triggers = append(out.Triggers, showTrigger(cluster, trigger))
	}
	return out, nil
}

func (s *triggerCalls) ownsTrigger(caller Caller, trigger *spec.Trigger) bool {
	return !caller.NoUID && trigger.UID == caller.UID || s.isOperator(caller)
}

func showTrigger(cluster *state.State, trigger *spec.Trigger) *apiv1.TriggerInfo {
	info := &apiv1.TriggerInfo{
		Id:        trigger.ID,
		Kind:      trigger.Kind.String(),
		Node:      trigger.Node,
		Offset:    int64(trigger.Offset),
		Program:   trigger.Program,
		User:      trigger.User,
		Permanent: trigger.Permanent,
		Due:       uint32(len(trigger.Pulls)),
	}
	if job := cluster.Job(trigger.Job); job != nil {
		info.Job = wire.JobName(cluster, job, spec.NoTask)
	}
	return info
}

// ClearTriggers removes triggers.
func (s *triggerCalls) ClearTriggers(
	ctx context.Context,
	req *apiv1.ClearTriggersRequest,
) (*apiv1.ClearTriggersReply, error) {
	caller, actor, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	for _, id := range req.GetIds() {
		trigger := s.C.View().State.Trigger(id)
		if trigger == nil || !s.ownsTrigger(caller, trigger) {
			return nil, spec.Refuse(spec.CodeBadRequest, fmt.Sprintf("there is no trigger %d", id))
		}
		rep := s.C.writer.commitCommand(
			ctx,
			&request{cmd: scheduler.ClearTrigger{ID: id}, actor: actor},
		)
		if rep.err != nil {
			return nil, rep.err
		}
	}
	return &apiv1.ClearTriggersReply{}, nil
}
