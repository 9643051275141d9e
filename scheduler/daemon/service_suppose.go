package daemon

import (
	"context"
	"errors"
	"fmt"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler/suppose"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// maxSuppositions is how many changes one question may make.
const maxSuppositions = 100

// Suppose tells whose start some changes would move. Each is made on a copy of the
// cluster by the method that would make it for real, so that the same rules hold for
// who may make it and for what is refused.
func (s *ClusterService) Suppose(
	ctx context.Context,
	req *apiv1.SupposeRequest,
) (*apiv1.SupposeReply, error) {
	caller, actor, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	if n := len(req.GetChanges()); n == 0 || n > maxSuppositions {
		return nil, spec.Refuse(
			spec.CodeBadRequest,
			fmt.Sprintf("%d changes: suppose 1 to %d", n, maxSuppositions),
		)
	}
	// The passes of a question take a core as long as those of the controller do.
	select {
	case s.C.supposing <- struct{}{}:
		defer func() { <-s.C.supposing }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	copied := newService(&head{C: s.C, supposed: newSupposition(s.C)})
	var notes []string
	for i, change := range req.GetChanges() {
		said, err := copied.supposeChange(ctx, actor, change)
		if err != nil {
			return nil, namedChange(i, len(req.GetChanges()), err)
		}
		notes = append(notes, said...)
	}
	return copied.answerSupposition(caller, notes)
}

// namedChange says which of several changes was refused.
func namedChange(i, of int, err error) error {
	var refused *spec.Error
	if of == 1 || !errors.As(err, &refused) {
		return err
	}
	named := *refused
	named.Detail = fmt.Sprintf("change %d: %s", i+1, named.Detail)
	return &named
}

// supposeChange makes one change on the copy, and returns what it says.
func (s *ClusterService) supposeChange(
	ctx context.Context,
	actor event.Actor,
	change *apiv1.SupposedChange,
) (notes []string, err error) {
	switch c := change.GetChange().(type) {
	case *apiv1.SupposedChange_UpdateNode:
		_, err = s.UpdateNode(ctx, c.UpdateNode)
	case *apiv1.SupposedChange_ChangeNodes:
		_, err = s.ChangeNodes(ctx, c.ChangeNodes)
	case *apiv1.SupposedChange_ChangePartition:
		var rep *apiv1.PartitionChangeReply
		rep, err = s.ChangePartition(ctx, c.ChangePartition)
		notes = rep.GetWarnings()
	case *apiv1.SupposedChange_ChangePolicy:
		_, err = s.ChangePolicy(ctx, c.ChangePolicy)
	case *apiv1.SupposedChange_ChangeReservation:
		var rep *apiv1.ReservationChangeReply
		rep, err = s.ChangeReservation(ctx, c.ChangeReservation)
		if name := rep.GetName(); name != "" {
			notes = append(notes, "the reservation is "+name)
		}
	case *apiv1.SupposedChange_Cancel:
		err = refusedJob(s.Cancel(ctx, c.Cancel))
	case *apiv1.SupposedChange_ControlJobs:
		if c.ControlJobs.GetVerb() == apiv1.ControlJobsRequest_NOTIFY {
			return nil, spec.Refuse(spec.CodeBadRequest, "a message to a job changes no plan")
		}
		err = refusedJob(s.ControlJobs(ctx, c.ControlJobs))
	case *apiv1.SupposedChange_Submit:
		return s.supposeJob(ctx, c.Submit)
	case *apiv1.SupposedChange_AddNodes:
		return s.supposeNodes(ctx, c.AddNodes)
	default:
		return nil, spec.Refuse(spec.CodeBadRequest, "the change says nothing")
	}
	if err != nil {
		return nil, err
	}
	return notes, suppose.Settle(s.supposed.trial, s.supposed.base.State)
}

// refusedJob is the first refusal among the answers for several jobs.
func refusedJob(results *apiv1.JobResults, err error) error {
	if err != nil {
		return err
	}
	for _, result := range results.GetResults() {
		if e := result.GetError(); e != nil {
			detail := "job " + result.GetJob()
			if e.GetDetail() != "" {
				detail += ": " + e.GetDetail()
			}
			return spec.Refuse(spec.Code(e.GetCode()), detail)
		}
	}
	return nil
}

// supposeJob submits a job on the copy.
func (s *ClusterService) supposeJob(
	ctx context.Context,
	req *apiv1.SubmitRequest,
) ([]string, error) {
	if req.GetTestOnly() {
		return nil, spec.Refuse(spec.CodeBadRequest, "a test of a job changes no plan")
	}
	rep, err := s.Submit(ctx, req)
	if err != nil {
		return nil, err
	}
	notes := []string{fmt.Sprintf("the job is %d", rep.GetJobId())}
	if rep.GetMessage() != "" {
		notes = append(notes, rep.GetMessage())
	}
	return notes, nil
}

// supposeNodes adds nodes to the copy.
func (s *ClusterService) supposeNodes(
	ctx context.Context,
	add *apiv1.AddedNodes,
) ([]string, error) {
	if _, err := s.operatorCaller(ctx); err != nil {
		return nil, err
	}
	copied := s.supposed.trial
	count := int(min(add.GetCount(), suppose.MaxNodes+1))
	names, err := suppose.AddNodes(copied, add.GetLike(), count)
	if err != nil {
		return nil, err
	}
	notes := []string{"the new nodes are " + hostlist.Fold(names)}
	return notes, suppose.Settle(copied, s.supposed.base.State)
}

// answerSupposition compares the plans and shows a caller what he may see of that.
func (s *ClusterService) answerSupposition(
	caller Caller,
	notes []string,
) (*apiv1.SupposeReply, error) {
	base, copied := s.supposed.base, s.supposed.trial
	found, err := suppose.Compare(
		base.State,
		copied.Freeze(),
		copied.Now,
		base.Plan,
		s.visibleTo(caller),
	)
	if err != nil {
		return nil, fmt.Errorf("compare the plans: %w", err)
	}
	supposeReply := &apiv1.SupposeReply{
		Now:           int64(copied.Now),
		Seq:           base.State.Seq,
		Notes:         notes,
		Same:          int64(found.Same),
		StartedBefore: int64(found.StartedBefore),
		StartedAfter:  int64(found.StartedAfter),
		Both:          int64(found.Both),
		Delay:         int64(found.Delay),
		Truncated:     found.Truncated,
	}
	hideNodes := s.private(privateNodes, caller)
	for i := range found.Changes {
		change := &found.Changes[i]
		job := supposedJob(base.State, found.After, change.UID)
		job.Before = outlook(base.State, &change.Before, hideNodes)
		job.After = outlook(found.After, &change.After, hideNodes)
		supposeReply.Jobs = append(supposeReply.Jobs, job)
	}
	return supposeReply, nil
}

// supposedJob names a job that either state knows.
func supposedJob(before, after *state.State, uid spec.JobUID) *apiv1.SupposedJob {
	cluster := after
	job := cluster.Job(uid)
	if job == nil {
		cluster = before
		job = cluster.Job(uid)
	}
	return &apiv1.SupposedJob{
		Job:       wire.JobName(cluster, job, spec.NoTask),
		JobId:     uint32(job.ID),
		Name:      job.Spec.Name,
		User:      job.Spec.User,
		Account:   job.Spec.Account,
		Partition: job.Partition(),
	}
}

// outlook shows what becomes of a job.
func outlook(cluster *state.State, of *suppose.Outlook, hideNodes bool) *apiv1.Outlook {
	out := &apiv1.Outlook{
		Standing: apiv1.Outlook_Standing(of.Standing),
		Start:    int64(of.Start),
	}
	if of.Standing >= suppose.Planned {
		out.Reason = wire.Reason(of.Reason)
	}
	if hideNodes {
		return out
	}
	names := make([]string, 0, len(of.Nodes))
	for _, id := range of.Nodes {
		names = append(names, cluster.NodeByID(id).Spec.Name)
	}
	out.Nodes = hostlist.Fold(names)
	return out
}
