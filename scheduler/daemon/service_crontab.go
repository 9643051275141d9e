package daemon

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// Bounds of a crontab: what a person writes, and no way to fill the ledger.
const (
	maxCrontabBytes = 256 << 10
	maxCrontabLines = 1000
)

// cronOwner is the user whose crontab a request is about; only some may name another.
func (s *crontabCalls) cronOwner(
	ctx context.Context,
	caller Caller,
	name string,
	others bool,
) (Caller, error) {
	if name == "" || name == caller.User {
		if caller.NoUID {
			return caller, spec.Refuse(
				spec.CodeInvalidUser,
				"an administrator's certificate names no user: say whose crontab it is (-u)",
			)
		}
		return caller, nil
	}
	if !others {
		return caller, spec.Refuse(
			spec.CodeAccessDenied,
			"the crontab of another user is for administrators",
		)
	}
	uid, gid, ok := s.C.deps.Directory.User(ctx, name)
	if !ok {
		return caller, spec.Refuse(
			spec.CodeInvalidUser,
			fmt.Sprintf("there is no user %q on the controller's host", name),
		)
	}
	if uid == 0 && !caller.Admin {
		return caller, spec.Refuse(spec.CodeAccessDenied, "the crontab of root is for root")
	}
	return Caller{UID: uid, GID: gid, User: name, Host: caller.Host}, nil
}

// GetCrontab shows the crontab of the caller, or of another user.
func (s *crontabCalls) GetCrontab(
	ctx context.Context,
	req *apiv1.GetCrontabRequest,
) (*apiv1.GetCrontabReply, error) {
	caller, _, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	owner, err := s.cronOwner(ctx, caller, req.GetUser(), s.isOperator(caller))
	if err != nil {
		return nil, err
	}
	cluster := s.C.View().State
	if !cluster.Config.Scrontab {
		return nil, spec.Refuse(
			spec.CodeDisabled,
			"crontabs are off here; ScronParameters=enable in slurm.conf turns them on",
		)
	}
	out := &apiv1.GetCrontabReply{User: owner.User}
	if table := cluster.Crontab(owner.UID); table != nil {
		out.Text = table.Text
	}
	return out, nil
}

// PutCrontab replaces a crontab, with the jobs of its lines; the answer means that it is
// durable.
func (s *crontabCalls) PutCrontab(
	ctx context.Context,
	req *apiv1.PutCrontabRequest,
) (*apiv1.PutCrontabReply, error) {
	caller, actor, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	owner, err := s.cronOwner(ctx, caller, req.GetUser(), s.isAdministrator(caller))
	if err != nil {
		return nil, err
	}
	if len(req.GetText()) > maxCrontabBytes || len(req.GetLines()) > maxCrontabLines {
		return nil, spec.Refuse(spec.CodeBadRequest, fmt.Sprintf(
			"the crontab has %d bytes and %d jobs; at most %d bytes and %d jobs are possible",
			len(req.GetText()), len(req.GetLines()), maxCrontabBytes, maxCrontabLines))
	}
	cmd := scheduler.PutCrontab{UID: owner.UID, User: owner.User, Text: req.GetText()}
	var blobs []content
	for _, line := range req.GetLines() {
		sub, err := s.submit.makeSubmission(ctx, owner, &apiv1.SubmitRequest{
			Spec:        line.GetSpec(),
			Script:      &apiv1.Blob{Data: line.GetScript()},
			Environment: &apiv1.Blob{Data: line.GetEnvironment()},
		}, true)
		if err != nil {
			return nil, err
		}
		sub.spec.Cron = line.GetWhen()
		blobs = append(blobs, sub.blobs...)
		cmd.Jobs = append(
			cmd.Jobs,
			scheduler.CronJob{Spec: sub.spec, First: line.GetFirst(), Last: line.GetLast()},
		)
	}
	rep := s.C.writer.commitCommand(
		ctx,
		&request{cmd: cmd, actor: actor, blobs: blobs, size: proto.Size(req)},
	)
	if rep.err != nil {
		return nil, rep.err
	}
	out := &apiv1.PutCrontabReply{}
	for _, id := range rep.res.Jobs {
		out.JobIds = append(out.JobIds, uint32(id))
	}
	return out, nil
}
