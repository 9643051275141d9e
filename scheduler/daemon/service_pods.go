package daemon

import (
	"context"
	"slices"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/copilot"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// SubmitPods accepts a job of pods of a user. Nothing of it is ever started with that
// user's rights on a node: what a pod may do is for Kubernetes to say.
func (s *podCalls) SubmitPods(
	ctx context.Context,
	req *apiv1.SubmitPodsRequest,
) (*apiv1.SubmitPodsReply, error) {
	actor, err := s.connectorCaller(ctx)
	if err != nil {
		return nil, err
	}
	if proto.Size(req) > maxSpecBytes {
		return nil, spec.Refuse(spec.CodeBadRequest, "the description of the pods is too large")
	}
	var parts []*spec.JobSpec
	for _, part := range append([]*apiv1.JobSpec{req.GetSpec()}, req.GetRest()...) {
		jobSpec, err := s.specOfPods(ctx, req.GetUser(), part)
		if err != nil {
			return nil, err
		}
		parts = append(parts, jobSpec)
	}
	if err := s.C.awaitNumbers(ctx); err != nil {
		return nil, err
	}
	done := s.C.writer.commitCommand(
		ctx,
		&request{
			cmd:   scheduler.Submit{Spec: parts[0], Rest: parts[1:]},
			actor: actor,
			size:  proto.Size(req),
		},
	)
	if done.err != nil {
		return nil, done.err
	}
	return &apiv1.SubmitPodsReply{
		Uid:   uint64(done.res.UID),
		JobId: uint32(done.res.ID),
		Seq:   done.seq,
	}, nil
}

// specOfPods reads what is asked of one kind of pods.
func (s *podCalls) specOfPods(
	ctx context.Context,
	user string,
	message *apiv1.JobSpec,
) (*spec.JobSpec, error) {
	if message.GetPods() == nil {
		return nil, spec.Refuse(spec.CodeBadRequest, "no pods are named")
	}
	job, err := wire.ToJobSpec(message)
	if err != nil {
		return nil, err
	}
	job.Pods = wire.ToPodSet(message.GetPods())
	return job, s.setOwnerOfPods(ctx, user, job)
}

// setOwnerOfPods says whose a job of pods is: the named user's, or the caller's.
func (s *podCalls) setOwnerOfPods(
	ctx context.Context,
	user string,
	jobSpec *spec.JobSpec,
) error {
	caller := s.C.deps.Identify(ctx)
	if user == "" || user == caller.User {
		s.submit.setOwner(ctx, caller, jobSpec)
		return nil
	}
	uid, gid, known := s.C.deps.Directory.User(ctx, user)
	if !known {
		return spec.Refuse(spec.CodeInvalidUser, "user "+user+" does not exist")
	}
	s.submit.setOwner(ctx, Caller{User: user, UID: uid, GID: gid}, jobSpec)
	return nil
}

// AdmitPods changes where the pods of a job that waits may go.
func (s *podCalls) AdmitPods(
	ctx context.Context,
	req *apiv1.AdmitPodsRequest,
) (*apiv1.AdmitPodsReply, error) {
	actor, err := s.connectorCaller(ctx)
	if err != nil {
		return nil, err
	}
	cmd := scheduler.AdmitPods{
		UID:    spec.JobUID(req.GetUid()),
		Pod:    req.GetPod(),
		Admits: req.GetAdmits(),
	}
	done := s.C.writer.commitCommand(ctx, &request{cmd: cmd, actor: actor})
	if done.err != nil {
		return nil, done.err
	}
	return &apiv1.AdmitPodsReply{Seq: done.seq}, nil
}

// PodsOver takes the word of Kubernetes that the pods of a job are over.
func (s *podCalls) PodsOver(
	ctx context.Context,
	req *apiv1.PodsOverRequest,
) (*apiv1.PodsOverReply, error) {
	actor, err := s.connectorCaller(ctx)
	if err != nil {
		return nil, err
	}
	cmd := scheduler.PodsOver{
		Run:    scheduler.Run{UID: spec.JobUID(req.GetUid()), Attempt: req.GetAttempt()},
		Epoch:  req.GetEpoch(),
		Pod:    req.GetPod(),
		Result: wire.ToPodsEnd(req.GetEnded()),
		Why:    req.GetWhy(),
	}
	done := s.C.writer.commitCommand(ctx, &request{cmd: cmd, actor: actor})
	if done.err != nil {
		return nil, done.err
	}
	return &apiv1.PodsOverReply{Seq: done.seq}, nil
}

// podWatch is what one watch has said about jobs of pods.
type podWatch struct {
	sent map[spec.JobUID]sentJob
	// asked is set while the caller wants to hear of them.
	asked bool
}

// sentJob is a job as it was told, and what that was made from.
type sentJob struct {
	record  *state.Job
	planned spec.Instant
}

// plannedStep is how much a planned start has to move to be told again: each pass plans
// anew, and each pod that waits would be written for it.
const plannedStep = spec.Minute

// addChanges adds the jobs that are not as they were told. Records of a published state are
// never changed in place, so that one that is still the same is skipped.
func (w *podWatch) addChanges(snapshot *view.View, out *apiv1.WatchHoldsReply) {
	if !w.asked {
		return
	}
	there := map[spec.JobUID]bool{}
	snapshot.State.Pods.Range(func(_ uint64, uid spec.JobUID) bool {
		if there[uid] {
			return true // of another pod of the gang
		}
		there[uid] = true
		job := snapshot.State.Job(uid)
		planned := spec.Instant(0)
		if p := snapshot.Plan.Of(uid); p != nil && job.State == spec.Pending {
			planned = p.Start
		}
		old, told := w.sent[uid]
		moved := max(planned.Sub(old.planned), old.planned.Sub(planned)) >= plannedStep
		if told && old.record == job && !moved {
			return true
		}
		w.sent[uid] = sentJob{job, planned}
		now := copilot.PodJobOf(job)
		if now.Pending {
			now.Reason = string(job.Reason.Code)
			now.Text = wire.WaitText(job.ID, job.Reason, planned)
		}
		out.Jobs = append(out.Jobs, wire.PodJob(&now))
		return true
	})
	for uid := range w.sent {
		if !there[uid] {
			out.GoneJobs = append(out.GoneJobs, uint64(uid))
			delete(w.sent, uid)
		}
	}
	slices.SortFunc(out.Jobs, func(a, b *apiv1.PodJob) int { return int(a.GetUid()) - int(b.GetUid()) })
	slices.Sort(out.GoneJobs)
}
