package daemon

import (
	"context"
	"fmt"
	"log/slog"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// ListOrphans tells which runs the nodes have that the ledger does not know.
func (s *nodeCalls) ListOrphans(
	ctx context.Context,
	_ *apiv1.ListOrphansRequest,
) (*apiv1.ListOrphansReply, error) {
	if _, err := s.requireKeeper(ctx); err != nil {
		return nil, err
	}
	out := &apiv1.ListOrphansReply{}
	if lost := s.C.View().State.Lost; lost != nil {
		out.LostAt, out.Witness = int64(lost.At), lost.Witness
	}
	for _, o := range s.C.orphans.listOrphans() {
		out.Runs = append(out.Runs, orphanInfo(o))
	}
	return out, nil
}

// KillOrphans ends runs that the ledger does not know. It is never done unasked:
// they may be the work of a history that is still to be put back.
func (s *nodeCalls) KillOrphans(
	ctx context.Context,
	req *apiv1.KillOrphansRequest,
) (*apiv1.KillOrphansReply, error) {
	actor, err := s.requireKeeper(ctx)
	if err != nil {
		return nil, err
	}
	if len(req.GetRuns()) == 0 {
		return nil, spec.Refuse(
			spec.CodeBadRequest,
			"name the runs to kill, as muster runs prints them",
		)
	}
	chosen, err := s.findOrphans(req.GetRuns())
	if err != nil {
		return nil, err
	}
	grace := spec.Span(req.GetGrace())
	if grace <= 0 {
		grace = killWait(s.C.View().State.Config)
	}
	out := &apiv1.KillOrphansReply{}
	for _, o := range chosen {
		conn := s.C.hub.connOf(o.node)
		if conn == nil {
			return out, spec.Refuse(
				spec.CodeBadRequest,
				fmt.Sprintf(
					"node %s is not connected; run %s can be killed when it is",
					o.node,
					orphanName(o.run.GetRun()),
				),
			)
		}
		conn.queueOrder(
			&apiv1.Order{
				Run:  o.run.GetRun(),
				Kind: &apiv1.Order_Terminate{Terminate: &apiv1.Terminate{Grace: int64(grace)}},
			},
		)
		s.C.deps.Logger.Warn(
			"a run of a lost history is killed",
			aboutLostRun(o.run.GetRun(), uint64(o.run.GetJobId()), o.run.GetUser()),
			"node",
			o.node,
			actorAttr(actor),
		)
		out.Runs = append(out.Runs, orphanInfo(o))
	}
	return out, nil
}

func orphanInfo(o orphan) *apiv1.OrphanRun {
	return &apiv1.OrphanRun{
		Run:     orphanName(o.run.GetRun()),
		Node:    o.node,
		JobId:   o.run.GetJobId(),
		User:    o.run.GetUser(),
		UserId:  o.run.GetUserId(),
		Started: o.run.GetStarted(),
	}
}

// orphanName is how people name a run: its key.
func orphanName(key *apiv1.RunKey) string { return keyOf(key).String() }

func keyOf(key *apiv1.RunKey) plan.RunKey {
	return plan.RunKey{
		Job:     key.GetJobUid(),
		Attempt: key.GetAttempt(),
		Step:    key.GetStep(),
		Epoch:   key.GetEpoch(),
	}
}

// aboutLostRun are the fields of a line of the log about a run of a lost history, of
// which this ledger knows no job.
func aboutLostRun(key *apiv1.RunKey, job uint64, user string) slog.Attr {
	return slog.Group("", keyOf(key).Fields(job, user)...)
}
