package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/proto"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// knownCaller refuses those who are nobody here.
func (s *authority) knownCaller(ctx context.Context) (Caller, event.Actor, error) {
	caller := s.C.deps.Identify(ctx)
	if caller.User == "" {
		return caller, event.Actor{}, spec.Refuse(
			spec.CodeAccessDenied,
			"this connection proves no user",
		)
	}
	return caller, event.Actor{
		Kind: event.ActorUser,
		UID:  caller.UID,
		Name: caller.User,
		Host: caller.Host,
	}, nil
}

// mayChange tells whether a caller may change a job: its owner, an operator, or a
// coordinator of its account.
func (s *authority) mayChange(caller Caller, job *state.Job) bool {
	return s.mayOwned(caller, job.Spec.UID, job.Spec.Account)
}

// mayOwned is may for a job of which only the owner and the account are known.
func (s *authority) mayOwned(caller Caller, owner uint32, account string) bool {
	return owner == caller.UID || s.isOperator(caller) || s.isCoordinator(caller, account)
}

// isCoordinator tells whether a caller is a coordinator of an account or of one
// above it.
func (s *authority) isCoordinator(caller Caller, account string) bool {
	if caller.Limited {
		return false
	}
	for account != "" {
		a := s.C.View().State.Policy.FindAccount(account)
		if a == nil {
			return false
		}
		if slices.Contains(a.Coordinators, caller.User) {
			return true
		}
		account = a.Parent
	}
	return false
}

// maxScript is MaxScriptSize when the site sets none.
const maxScript = 4 << 20

// Bounds of one submission, whatever the site allows: what a message, an entry
// of the log and an order to an agent can carry.
const (
	maxSpecBytes    = 1 << 20
	maxContentBytes = 12 << 20
)

// makeSubmission makes what a command consists of from a request, after the site's script
// has seen it.
func (s *submitCalls) makeSubmission(
	ctx context.Context,
	caller Caller,
	req *apiv1.SubmitRequest,
	cron bool,
) (*prepared, error) {
	if caller.NoUID {
		return nil, spec.Refuse(
			spec.CodeAccessDenied,
			"a certificate of an administrator or a token of root names no user to run jobs as: name one (REST: X-SLURM-USER-NAME)",
		)
	}
	if proto.Size(req.GetSpec()) > maxSpecBytes || len(req.GetRest()) > 128 ||
		len(req.GetScript().GetData())+len(req.GetEnvironment().GetData()) > maxContentBytes {
		return nil, spec.Refuse(
			spec.CodeBadRequest,
			"the job's description, script or environment is too large",
		)
	}
	jobSpec, err := wire.ToJobSpec(req.GetSpec())
	if err != nil {
		return nil, err
	}
	owner, err := s.ownerOf(ctx, caller, req.GetOwner())
	if err != nil {
		return nil, err
	}
	s.setOwner(ctx, owner, jobSpec)
	if err := s.mayAsk(caller, jobSpec); err != nil {
		return nil, err
	}
	component := -1
	if len(req.GetRest()) > 0 {
		component = 0
	}
	judged, verdict, err := s.judgeSubmission(ctx, caller, jobSpec, req, component, cron)
	if err != nil {
		return nil, err
	}
	if judged != req {
		jobSpec, err = s.rereadJob(jobSpec, judged.GetSpec())
		if err != nil {
			return nil, err
		}
	}
	out := &prepared{spec: jobSpec, said: verdict.User, changed: verdict.Changed}
	out.blobs, err = s.takeContents(caller, jobSpec, judged)
	if err != nil {
		return nil, err
	}
	if jobSpec.Script.IsZero() && !jobSpec.Shell {
		return nil, spec.Refuse(spec.CodeNoScript, "")
	}
	return out, nil
}

// ownerOf is whom a job is submitted for: the caller, unless an administrator names another.
func (s *submitCalls) ownerOf(
	ctx context.Context, caller Caller, asked *apiv1.JobOwner,
) (Caller, error) {
	if asked == nil {
		return caller, nil
	}
	if !s.isAdministrator(caller) {
		return caller, spec.Refuse(
			spec.CodeAccessDenied, "only administrators submit jobs for others",
		)
	}
	owner := Caller{UID: caller.UID, GID: caller.GID, User: caller.User}
	if name := asked.GetUser(); name != "" {
		uid, gid, known := s.C.deps.Directory.User(ctx, name)
		if !known {
			return caller, spec.Refuse(spec.CodeInvalidUser, name)
		}
		owner = Caller{UID: uid, GID: gid, User: name}
	}
	if asked.Gid != nil {
		owner.GID = asked.GetGid()
	}
	return owner, nil
}

// setOwner says who a job belongs to.
func (s *submitCalls) setOwner(ctx context.Context, caller Caller, jobSpec *spec.JobSpec) {
	jobSpec.UID = caller.UID
	jobSpec.GID = caller.GID
	jobSpec.User = caller.User
	jobSpec.Group, jobSpec.Groups = s.C.deps.Directory.Groups(ctx, caller.User, caller.GID)
}

// rereadJob reads what the site's script made of a job, which stays that of its user.
func (s *submitCalls) rereadJob(asked *spec.JobSpec, changed *apiv1.JobSpec) (*spec.JobSpec, error) {
	if proto.Size(changed) > maxSpecBytes {
		return nil, spec.Refuse(spec.CodeBadRequest, "job_submit.lua made the job's description too large")
	}
	jobSpec, err := wire.ToJobSpec(changed)
	if err != nil {
		return nil, err
	}
	jobSpec.UID = asked.UID
	jobSpec.GID = asked.GID
	jobSpec.User = asked.User
	jobSpec.Group, jobSpec.Groups = asked.Group, asked.Groups
	setByScript(jobSpec, asked, changed)
	return jobSpec, nil
}

// takeContents notes the hashes of a submission's script and environment, and gives what has
// to be stored of them.
func (s *submitCalls) takeContents(
	caller Caller,
	jobSpec *spec.JobSpec,
	req *apiv1.SubmitRequest,
) ([]content, error) {
	limit := s.C.View().State.Config.Limits.MaxScript
	if limit == 0 {
		limit = maxScript
	}
	var blobs []content
	for _, b := range [...]struct {
		in *apiv1.Blob
		to *spec.Hash
	}{{req.GetScript(), &jobSpec.Script}, {req.GetEnvironment(), &jobSpec.Env}} {
		if len(b.in.GetData()) == 0 && len(b.in.GetSha256()) == 0 {
			continue
		}
		if int64(len(b.in.GetData())) > limit {
			return nil, spec.Refuse(
				spec.CodeBadRequest,
				"the script or environment is larger than max_script_size",
			)
		}
		var err error
		*b.to, err = s.content(caller, b.in)
		if err != nil {
			return nil, err
		}
		if len(b.in.GetData()) > 0 {
			blobs = append(blobs, content{*b.to, b.in.GetData()})
		}
	}
	return blobs, nil
}

// content is the hash of a blob that was sent, or that its sender sent before
// with a request that was accepted. What others have sent is unknown to him: the
// answer would tell whether a guess of their script is right.
func (s *submitCalls) content(caller Caller, blob *apiv1.Blob) (spec.Hash, error) {
	if len(blob.GetData()) > 0 {
		return s.C.recent.hashOf(blob.GetData()), nil
	}
	var hash spec.Hash
	if len(blob.GetSha256()) != len(hash) {
		return hash, spec.Refuse(spec.CodeBadRequest, "a content hash has 32 bytes")
	}
	copy(hash[:], blob.GetSha256())
	if !s.C.senders.knowsSender(caller.UID, hash) || !s.C.deps.Blobs.Has(hash) {
		return hash, spec.Refuse(spec.CodeBadRequest, "content "+hash.String()+
			" is not known here: send it whole")
	}
	return hash, nil
}

// Submit accepts one job; the answer means that it is durable.
func (s *submitCalls) Submit(
	ctx context.Context,
	req *apiv1.SubmitRequest,
) (*apiv1.SubmitReply, error) {
	caller, actor, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	sub, err := s.makeSubmission(ctx, caller, req, false)
	if err != nil {
		return nil, err
	}
	rest, err := s.listComponents(ctx, caller, sub, req)
	if err != nil {
		return nil, err
	}
	if req.GetTestOnly() {
		reply, err := s.testOnly(
			scheduler.Submit{Spec: sub.spec, Rest: rest, Sees: s.visibleTo(caller)},
			actor,
		)
		if err == nil {
			reply.Message = sub.said
		}
		return reply, err
	}
	if err := s.C.awaitNumbers(ctx); err != nil {
		return nil, err
	}
	rep := s.commitCommand(
		ctx,
		&request{
			cmd: scheduler.Submit{
				Spec:     sub.spec,
				Rest:     rest,
				Sees:     s.visibleTo(caller),
				Request:  req.GetRequest(),
				Again:    req.GetAgain(),
				ByScript: sub.changed,
			},
			actor: actor,
			blobs: sub.blobs,
			size:  proto.Size(req),
		},
	)
	if rep.err != nil {
		return nil, rep.err
	}
	return &apiv1.SubmitReply{
		Uid:     uint64(rep.res.UID),
		JobId:   uint32(rep.res.ID),
		Message: joinSaid(sub.said, rep.res.Message),
		Tag:     req.GetTag(),
	}, nil
}

// listComponents are the further components of a heterogeneous job. What the site's script
// says of them is added to what it said of the first.
func (s *submitCalls) listComponents(
	ctx context.Context,
	caller Caller,
	leader *prepared,
	req *apiv1.SubmitRequest,
) ([]*spec.JobSpec, error) {
	var jobs []*spec.JobSpec
	for i, message := range req.GetRest() {
		jobSpec, err := wire.ToJobSpec(message)
		if err != nil {
			return nil, err
		}
		if err := s.mayAsk(caller, jobSpec); err != nil {
			return nil, err
		}
		of := leader.spec
		jobSpec.UID = of.UID
		jobSpec.GID = of.GID
		jobSpec.User = of.User
		jobSpec.Group = of.Group
		jobSpec.Groups = of.Groups
		asked := &apiv1.SubmitRequest{Spec: message}
		judged, verdict, err := s.judgeSubmission(ctx, caller, jobSpec, asked, i+1, false)
		if err != nil {
			return nil, err
		}
		if judged != asked {
			jobSpec, err = s.rereadJob(jobSpec, judged.GetSpec())
			if err != nil {
				return nil, err
			}
		}
		leader.said = joinSaid(leader.said, verdict.User)
		for _, change := range verdict.Changed {
			leader.changed = append(leader.changed, fmt.Sprintf("component %d: %s", i+1, change))
		}
		jobs = append(jobs, jobSpec)
	}
	return jobs, nil
}

// mayAsk refuses what only an operator, or an administrator, may ask for.
func (s *submitCalls) mayAsk(caller Caller, jobSpec *spec.JobSpec) error {
	if jobSpec.Queue.Nice < 0 && !s.isOperator(caller) {
		return spec.Refuse(spec.CodeAccessDenied, "only an operator may use a negative --nice")
	}
	if jobSpec.Queue.Reboot && !s.isAdministrator(caller) {
		return spec.Refuse(spec.CodeAccessDenied, "only an administrator may use --reboot")
	}
	if jobSpec.Queue.Priority != 0 && !s.isOperator(caller) {
		return spec.Refuse(spec.CodeAccessDenied, "only an operator may set --priority")
	}
	return nil
}

func (s *submitCalls) testOnly(
	cmd scheduler.Submit,
	actor event.Actor,
) (*apiv1.SubmitReply, error) {
	cluster := s.C.View().State
	answer, err := scheduler.TestOnly(cluster, cmd, s.C.deps.Clock.Now(), actor)
	if errors.Is(err, scheduler.ErrNoStart) {
		e := &spec.Error{
			Kind:   spec.CodePartitionConfigUnavailable,
			Detail: err.Error(),
			Reason: &answer.Reason,
		}
		if answer.Reason.Code != "" {
			e.Detail += " (" + answer.Reason.String()
			if answer.Reason.Limit != 0 || answer.Reason.Asked != 0 {
				e.Detail += fmt.Sprintf(
					": %s %d, asked %d",
					answer.Reason.TRES,
					answer.Reason.Limit,
					answer.Reason.Asked,
				)
			}
			e.Detail += ")"
		}
		return nil, e
	}
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(answer.Nodes))
	for _, id := range answer.Nodes {
		names = append(names, cluster.NodeByID(id).Spec.Name)
	}
	return &apiv1.SubmitReply{
		JobId:            uint32(cluster.NextID),
		PlannedStart:     int64(answer.Start),
		PlannedNodes:     hostlist.Fold(names),
		PlannedPartition: answer.Partition,
		PlannedCpus:      uint32(answer.CPUs),
	}, nil
}

// SubmitStream accepts jobs as they come and acknowledges each when it is
// durable, in order. A refusal is an answer and does not end the stream.
func (s *submitCalls) SubmitStream(stream service.Cluster_SubmitStreamServer) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	caller, actor, err := s.knownCaller(ctx)
	if err != nil {
		return err
	}
	waiting := make(chan outstanding, 1024)
	received := make(chan error, 1)
	go func() {
		defer close(waiting)
		received <- s.receiveSubmissions(ctx, stream, caller, actor, waiting)
	}()
	stopping := s.C.stopping
	for {
		select {
		case o, ok := <-waiting:
			if !ok {
				return <-received
			}
			rep := reply{err: o.err}
			if o.err == nil {
				rep = s.C.writer.awaitReply(ctx, o.req)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := stream.Send(submitReply(o, rep)); err != nil {
				return err
			}
			if stopping == nil && len(waiting) == 0 { // all that was taken is answered
				return spec.Refuse(spec.CodeStopping, "")
			}
		case <-stopping:
			stopping = nil
			if len(waiting) == 0 {
				return spec.Refuse(spec.CodeStopping, "")
			}
		}
	}
}

// outstanding is a submission of a stream that waits for its answer.
type outstanding struct {
	tag  uint64
	req  *request
	err  error
	said string // by the site's script, for the user
}

// receiveSubmissions passes what a stream submits to the writer, until its end.
func (s *submitCalls) receiveSubmissions(
	ctx context.Context,
	stream service.Cluster_SubmitStreamServer,
	caller Caller,
	actor event.Actor,
	waiting chan<- outstanding,
) error {
	if err := s.C.awaitNumbers(ctx); err != nil {
		return err
	}
	for {
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		o := outstanding{tag: message.GetTag()}
		sub, err := s.makeSubmission(ctx, caller, message, false)
		switch {
		case err != nil:
			o.err = err
		case len(message.GetRest()) > 0:
			o.err = spec.Refuse(spec.CodeBadRequest, "a stream takes no heterogeneous jobs")
		case message.GetTestOnly():
			o.err = spec.Refuse(spec.CodeBadRequest, "a stream takes no --test-only")
		default:
			o.said = sub.said
			o.req = &request{
				cmd: scheduler.Submit{
					Spec:     sub.spec,
					Sees:     s.visibleTo(caller),
					Request:  message.GetRequest(),
					Again:    message.GetAgain(),
					ByScript: sub.changed,
				},
				actor: actor,
				blobs: sub.blobs,
				size:  proto.Size(message),
			}
			if err := s.C.writer.enqueueCommand(ctx, o.req); err != nil {
				return err
			}
		}
		select {
		case waiting <- o:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func submitReply(o outstanding, rep reply) *apiv1.SubmitReply {
	out := &apiv1.SubmitReply{
		Tag:     o.tag,
		Uid:     uint64(rep.res.UID),
		JobId:   uint32(rep.res.ID),
		Message: joinSaid(o.said, rep.res.Message),
	}
	if rep.err != nil {
		out.Error = wire.Error(asRefusal(rep.err))
	}
	return out
}

// asRefusal is an error as one that has a code.
func asRefusal(err error) *spec.Error {
	var e *spec.Error
	if !errors.As(err, &e) {
		e = spec.Refuse(spec.CodeBadRequest, err.Error())
	}
	return e
}

// ListJobs shows jobs, in one message.
func (s *jobCalls) ListJobs(
	ctx context.Context,
	req *apiv1.ListJobsRequest,
) (*apiv1.ListJobsReply, error) {
	var out *apiv1.ListJobsReply
	err := s.streamJobs(
		ctx,
		req,
		math.MaxInt,
		func(part *apiv1.ListJobsReply) error { out = part; return nil },
	)
	return out, err
}

// jobsAtOnce is about how many bytes of jobs go into one message of a stream.
const jobsAtOnce = 1 << 20

// StreamJobs shows jobs, all as they were at one moment.
func (s *jobCalls) StreamJobs(
	req *apiv1.ListJobsRequest,
	stream service.Cluster_StreamJobsServer,
) error {
	return s.streamJobs(stream.Context(), req, jobsAtOnce, stream.Send)
}

// streamJobs hands the jobs that a request is about on, in messages of about so many
// bytes; there is at least one.
func (s *jobCalls) streamJobs(
	ctx context.Context,
	req *apiv1.ListJobsRequest,
	most int,
	send func(*apiv1.ListJobsReply) error,
) error {
	caller, _, err := s.knownCaller(ctx)
	if err != nil {
		return err
	}
	snapshot, now, err := s.viewAt(ctx, req.GetMoment())
	if err != nil {
		return err
	}
	sel, unknown, err := newSelection(snapshot.State, req.GetFilter(), s.visibleTo(caller))
	if err != nil {
		return err
	}
	if err := s.checkNodesExist(snapshot.State, caller, req.GetFilter().GetNodes()); err != nil {
		return err
	}
	show := wire.NewShower(snapshot, now, req.GetDetail())
	part := func() *apiv1.ListJobsReply {
		return &apiv1.ListJobsReply{Now: int64(now), Seq: snapshot.State.Seq}
	}
	out, size := part(), 0
	out.Unknown = unknown
	shown := map[spec.JobUID]bool{}
	sel.eachRecord(snapshot.State, func(job *state.Job, _ scheduler.Target) {
		if err != nil || shown[job.UID] {
			return
		}
		shown[job.UID] = true
		info := s.showJob(show, snapshot, job)
		out.Jobs = append(out.Jobs, info)
		if most == math.MaxInt {
			return
		}
		size += proto.Size(info)
		if size >= most {
			err = send(out)
			out, size = part(), 0
		}
	})
	if err != nil {
		return err
	}
	return send(out)
}

// checkNodesExist refuses names of nodes that there are not: an empty list would say that
// nothing runs there. Where nodes are private the answer must not tell which there are.
func (s *jobCalls) checkNodesExist(cluster *state.State, caller Caller, names []string) error {
	if s.private(privateNodes, caller) {
		return nil
	}
	for _, name := range names {
		if cluster.Node(name) == nil {
			return spec.Refuse(spec.CodeInvalidNodeName, name)
		}
	}
	return nil
}

// showJob adds the paths of a job's files, with their patterns expanded as far
// as is known here.
func (s *jobCalls) showJob(show *wire.Shower, snapshot *view.View, j *state.Job) *apiv1.JobInfo {
	out := show.Job(j)
	out.Stdin, out.Stdout, out.Stderr = wire.Files(snapshot.State, j)
	return out
}

// WatchJob sends a job's record each time it changes, until its end.
func (s *jobCalls) WatchJob(
	req *apiv1.WatchJobRequest,
	stream service.Cluster_WatchJobServer,
) error {
	ctx := stream.Context()
	caller, _, err := s.knownCaller(ctx)
	if err != nil {
		return err
	}
	sees := s.visibleTo(caller)
	var last uint64 // when the record that was sent had changed
	uid := spec.JobUID(req.GetUid())
	if req.GetAttend() {
		leave, err := s.noteAttended(caller, uid)
		if err != nil {
			return err
		}
		defer leave()
	}
	var lines <-chan string // for those who attend; nil never has one
	if req.GetAttend() {
		var leave func()
		lines, leave = s.C.listeners.addStream(uid)
		defer leave()
	}
	for {
		snapshot, changed := s.C.Changed()
		if uid == 0 {
			if j := snapshot.State.JobByID(spec.JobID(req.GetJobId())); j != nil {
				uid = j.UID
			} else if array := snapshot.State.ArrayByID(spec.JobID(req.GetJobId())); array != nil {
				uid = array.UID
			}
		}
		job := snapshot.State.Job(uid)
		if job != nil && !sees(job) {
			return hiddenJob()
		}
		arr, _ := snapshot.State.Arrays.Get(uint64(uid))
		if job == nil && arr != nil {
			if _, err := visibleTargets(
				snapshot.State, strconv.FormatUint(uint64(arr.ID), 10), sees,
			); err != nil &&
				last == 0 {
				return hiddenJob()
			}
		}
		switch {
		case job != nil:
			over := jobOver(snapshot.State, job)
			if job.Changed != last && (over || !req.GetUntilEnd()) {
				last = job.Changed
				if err := stream.Send(
					s.showJob(wire.NewShower(snapshot, s.C.deps.Clock.Now(), true), snapshot, job),
				); err != nil {
					return err
				}
			}
			if over {
				return nil
			}
		case arr != nil && arr.Ended < arr.Total: // its own record is forgotten already
		case arr != nil || last != 0: // over, and forgotten since this was last looked at
			return nil
		default:
			return spec.Refuse(spec.CodeInvalidJobID, "")
		}
		select {
		case <-changed:
		case line := <-lines:
			if err := stream.Send(&apiv1.JobInfo{Uid: uint64(uid), Notice: line}); err != nil {
				return err
			}
		case <-ctx.Done():
			return nil
		case <-s.C.stopping:
			return spec.Refuse(spec.CodeStopping, "")
		}
	}
}

// noteAttended notes that the srun or salloc of a job is there.
func (s *jobCalls) noteAttended(caller Caller, uid spec.JobUID) (leave func(), err error) {
	job := s.C.View().State.Job(uid)
	if job == nil || !job.Spec.Attended || !s.visibleTo(caller)(job) {
		return nil, hiddenJob()
	}
	if job.Spec.UID != caller.UID {
		return nil, spec.Refuse(spec.CodeAccessDenied, "")
	}
	return s.C.present.enterClient(jobKey(uid)), nil
}

// jobOver tells whether a job, or the whole array it stands for, has ended.
func jobOver(cluster *state.State, job *state.Job) bool {
	if array := cluster.ArrayOf(job); array != nil && array.UID == job.UID {
		return array.Ended >= array.Total
	}
	return job.State.Terminal() && !job.HoldsNodes()
}

// Cancel ends or signals the selected jobs.
func (s *jobCalls) Cancel(
	ctx context.Context,
	req *apiv1.CancelRequest,
) (*apiv1.JobResults, error) {
	caller, actor, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	if req.GetAdminComment() != "" && !s.isOperator(caller) {
		return nil, spec.Refuse(
			spec.CodeAccessDenied,
			"only an operator may write an administrator's comment",
		)
	}
	snapshot := s.currentView()
	results := &apiv1.JobResults{}
	sel, unknown, err := newSelection(snapshot.State, req.GetFilter(), s.visibleTo(caller))
	if err != nil {
		return nil, err
	}
	for _, expr := range unknown {
		results.Results = append(
			results.Results,
			&apiv1.JobResult{Job: expr, Error: wire.Error(spec.Refuse(spec.CodeInvalidJobID, ""))},
		)
	}
	if len(req.GetFilter().GetJobs()) > 0 { // by id also what has ended, to say so
		filter := cloneFilter(req.GetFilter())
		filter.AllStates = len(filter.GetStates()) == 0
		sel.f = filter
	}
	scope := event.SignalSteps
	switch {
	case req.GetFull():
		scope = event.SignalFull
	case req.GetBatch():
		scope = event.SignalBatch
	}
	var reqs []*request
	sel.eachRecord(snapshot.State, func(job *state.Job, target scheduler.Target) {
		result := &apiv1.JobResult{Job: jobName(snapshot.State, job, target), JobId: uint32(job.ID)}
		results.Results = append(results.Results, result)
		if !s.mayChange(caller, job) {
			result.Error = wire.Error(spec.Refuse(spec.CodeAccessDenied, ""))
			reqs = append(reqs, nil)
			return
		}
		reqs = append(
			reqs,
			&request{
				cmd: scheduler.Cancel{
					Target:  target,
					Signal:  req.GetSignal(),
					Scope:   scope,
					Cron:    req.GetCron(),
					Comment: req.GetAdminComment(),
				},
				actor: actor,
			},
		)
	})
	return results, s.sendAll(ctx, reqs, results.Results[len(unknown):])
}

func cloneFilter(filter *apiv1.JobFilter) *apiv1.JobFilter {
	return &apiv1.JobFilter{
		Jobs:       filter.GetJobs(),
		Users:      filter.GetUsers(),
		Accounts:   filter.GetAccounts(),
		Partitions: filter.GetPartitions(),
		States:     filter.GetStates(),
		Names:      filter.GetNames(),
		Qos:        filter.GetQos(),
		Nodes:      filter.GetNodes(),
		AllStates:  filter.GetAllStates(),
		Completing: filter.GetCompleting(),
	}
}

// sendAll passes commands to the writer together and waits for all answers.
func (s *jobCalls) sendAll(
	ctx context.Context,
	reqs []*request,
	results []*apiv1.JobResult,
) error {
	for _, r := range reqs {
		if r != nil {
			if err := s.enqueueCommand(ctx, r); err != nil {
				return err
			}
		}
	}
	for i, r := range reqs {
		if r == nil {
			continue
		}
		rep := s.awaitReply(ctx, r)
		var e *spec.Error
		if errors.As(rep.err, &e) {
			results[i].Error = wire.Error(e)
		} else if rep.err != nil {
			return rep.err
		}
	}
	return nil
}

// jobName is how people name a target.
func jobName(cluster *state.State, job *state.Job, target scheduler.Target) string {
	return wire.JobName(cluster, job, target.Task)
}

// ControlJobs holds, releases, requeues and updates jobs.
func (s *jobCalls) ControlJobs(
	ctx context.Context,
	req *apiv1.ControlJobsRequest,
) (*apiv1.JobResults, error) {
	caller, actor, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	snapshot := s.currentView()
	results := &apiv1.JobResults{}
	sees := s.visibleTo(caller)
	var reqs []*request
	for _, expr := range req.GetJobs() {
		list, err := visibleTargets(snapshot.State, expr, sees)
		if err != nil {
			results.Results = append(
				results.Results,
				&apiv1.JobResult{
					Job:   expr,
					Error: wire.Error(spec.Refuse(spec.CodeInvalidJobID, "")),
				},
			)
			reqs = append(reqs, nil)
			continue
		}
		for _, target := range withoutEnded(snapshot.State, list, req.GetVerb()) {
			job := snapshot.State.Job(target.UID)
			result := &apiv1.JobResult{Job: expr, JobId: uint32(job.ID)}
			results.Results = append(results.Results, result)
			if req.GetVerb() == apiv1.ControlJobsRequest_NOTIFY {
				reqs = append(reqs, nil)
				if !s.mayChange(caller, job) {
					result.Error = wire.Error(spec.Refuse(spec.CodeAccessDenied, ""))
				} else if err := s.C.notifyFollowers(job, req.GetMessage()); err != nil {
					result.Error = wire.Error(err)
				}
				continue
			}
			command := s.makeControl(req, target, caller, job)
			operators := req.GetVerb() == apiv1.ControlJobsRequest_SUSPEND ||
				req.GetVerb() == apiv1.ControlJobsRequest_RESUME
			if !s.mayChange(caller, job) || (operators && !s.isOperator(caller)) {
				result.Error, command = wire.Error(spec.Refuse(spec.CodeAccessDenied, "")), nil
			} else if command == nil {
				result.Error = wire.Error(spec.Refuse(spec.CodeBadRequest, req.GetVerb().String()))
			}
			if update, ok := command.(scheduler.UpdateJob); ok {
				said, err := s.submit.judgeUpdate(ctx, caller, snapshot.State, job, &update)
				result.Message = said
				command = update
				if err != nil {
					result.Error, command = wire.Error(asRefusal(err)), nil
				}
			}
			if command == nil {
				reqs = append(reqs, nil)
				continue
			}
			reqs = append(reqs, &request{cmd: command, actor: actor})
		}
	}
	return results, s.sendAll(ctx, reqs, results.Results)
}

// withoutEnded leaves out the tasks of an array that are over where a change is meant for
// those that are not. One that is named alone stays, to be refused.
func withoutEnded(
	cluster *state.State,
	list []scheduler.Target,
	verb apiv1.ControlJobsRequest_Verb,
) []scheduler.Target {
	switch verb {
	case apiv1.ControlJobsRequest_HOLD,
		apiv1.ControlJobsRequest_RELEASE,
		apiv1.ControlJobsRequest_UPDATE:
	default:
		return list
	}
	ended := func(t scheduler.Target) bool { return cluster.Job(t.UID).State.Terminal() }
	goesOn := func(t scheduler.Target) bool { return !ended(t) }
	if !slices.ContainsFunc(list, goesOn) {
		return list
	}
	return slices.DeleteFunc(slices.Clone(list), ended)
}

// makeControl makes the command of a verb. An administrator who holds another's
// job holds it as one.
func (s *jobCalls) makeControl(
	req *apiv1.ControlJobsRequest,
	target scheduler.Target,
	caller Caller,
	job *state.Job,
) scheduler.Command {
	admin := s.isOperator(caller)
	by := spec.HeldByUser
	if admin {
		by = spec.HeldByAdmin
	}
	switch req.GetVerb() {
	case apiv1.ControlJobsRequest_HOLD:
		return scheduler.Hold{Target: target, By: by}
	case apiv1.ControlJobsRequest_USER_HOLD:
		return scheduler.Hold{Target: target, By: spec.HeldByUser}
	case apiv1.ControlJobsRequest_RELEASE:
		return scheduler.Release{Target: target, Admin: admin}
	case apiv1.ControlJobsRequest_REQUEUE:
		return scheduler.Requeue{Target: target, Incomplete: req.GetIncomplete()}
	case apiv1.ControlJobsRequest_REQUEUE_HOLD:
		if req.GetSpecialExit() {
			by = spec.HeldSpecialExit
		}
		return scheduler.Requeue{Target: target, Hold: by, Incomplete: req.GetIncomplete()}
	case apiv1.ControlJobsRequest_TOP:
		return scheduler.TopJob{Target: target, Admin: admin}
	case apiv1.ControlJobsRequest_SUSPEND:
		return scheduler.Suspend{Target: target}
	case apiv1.ControlJobsRequest_RESUME:
		return scheduler.Resume{Target: target}
	case apiv1.ControlJobsRequest_UPDATE_STEP:
		limit, ok := req.GetChanges()["timelimit"]
		if !ok || len(req.GetChanges()) != 1 {
			return nil
		}
		return scheduler.UpdateStep{
			UID:   target.UID,
			Step:  spec.StepID(req.GetStep()),
			All:   req.Step == nil,
			Limit: limit,
			Admin: admin,
		}
	case apiv1.ControlJobsRequest_UPDATE:
		command := scheduler.UpdateJob{Target: target, Admin: admin, Sees: s.visibleTo(caller)}
		for k, v := range req.GetChanges() {
			command.Changes = append(
				command.Changes, spec.KeyValue{Key: strings.ToLower(k), Value: v},
			)
		}
		slices.SortFunc(
			command.Changes,
			func(a, b spec.KeyValue) int { return strings.Compare(a.Key, b.Key) },
		)
		return command
	}
	return nil
}
