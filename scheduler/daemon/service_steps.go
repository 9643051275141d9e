package daemon

import (
	"context"
	"crypto/sha256"
	"fmt"
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
	"github.com/musterhpc/muster/scheduler/credentials"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
	"github.com/musterhpc/muster/spec/hostlist"
)

// Bounds of a step's request.
const (
	maxStepSpec = 256 << 10
	maxHostName = 255
	ticketSize  = 16
)

// attachWords are what a credential for input and output is about, in the place
// of the hash of an order.
const attachWords = "step input and output"

// attachLife is how long srun may attach with one credential.
const attachLife = 30 * spec.Day

// CredentialLife is the longest life of a credential that this package has signed. A
// key verifies for as long after the last credential that it has signed.
const CredentialLife = attachLife

// stepJob finds the one job that an expression names; the number that an
// array's last task has with the array means that task.
func stepJob(cluster *state.State, expr string, sees func(*state.Job) bool) (*state.Job, error) {
	if n, err := strconv.ParseUint(expr, 10, 32); err == nil {
		if job := cluster.JobByID(spec.JobID(n)); job != nil && !job.IsArrayRecord() {
			if !sees(job) {
				return nil, hiddenJob()
			}
			return job, nil
		}
	}
	list, err := visibleTargets(cluster, expr, sees)
	if err != nil {
		return nil, err
	}
	if len(list) != 1 || list[0].Task != spec.NoTask {
		return nil, spec.Refuse(
			spec.CodeInvalidJobID,
			"steps run in one task of an array: name it as 12_3",
		)
	}
	return cluster.Job(list[0].UID), nil
}

// ownJob finds a running or pending job of the caller by its number.
func (s *stepCalls) ownJob(caller Caller, cluster *state.State, expr string) (*state.Job, error) {
	job, err := stepJob(cluster, expr, s.visibleTo(caller))
	switch {
	case err != nil:
		return nil, err
	case job.Spec.UID != caller.UID:
		return nil, spec.Refuse(spec.CodeAccessDenied, "only its user runs something in a job")
	}
	return job, nil
}

// RunStep starts a step as soon as the job's other steps leave it room, tells
// where it runs, and then its end.
func (s *stepCalls) RunStep(
	req *apiv1.RunStepRequest,
	stream service.Cluster_RunStepServer,
) error {
	ctx := stream.Context()
	caller, actor, err := s.knownCaller(ctx)
	if err != nil {
		return err
	}
	if len(req.GetTicket()) != ticketSize || req.GetCreated() < 0 ||
		len(req.GetHost()) > maxHostName {
		return spec.Refuse(
			spec.CodeBadRequest,
			"invalid step request: the ticket must be 16 bytes; check step number and host",
		)
	}
	r, jobs, err := s.stepRequest(caller, req)
	if err != nil {
		return err
	}
	r.actor = actor
	keys := make([]attended, len(jobs))
	number := spec.StepID(req.GetCreated())
	if req.GetAttempt() == 0 {
		number, err = s.awaitStep(ctx, r, req, jobs[0], stream)
		if err != nil {
			return err
		}
	}
	for i, job := range jobs {
		keys[i] = attended{job: job.UID, attempt: job.Attempt, step: number}
		if req.GetAttempt() != 0 {
			keys[i].attempt = req.GetAttempt()
			if i > 0 {
				keys[i].attempt = req.GetRest()[i-1].GetAttempt()
			}
		}
		defer s.C.present.enterClient(keys[i])()
	}
	return s.followStep(ctx, keys, stream)
}

// maxStepParts bounds the components that a step runs in.
const maxStepParts = 128

// stepRequest makes a command of a request, and gives the jobs of its parts.
func (s *stepCalls) stepRequest(
	caller Caller,
	req *apiv1.RunStepRequest,
) (*request, []*state.Job, error) {
	if len(req.GetRest()) >= maxStepParts {
		return nil, nil, spec.Refuse(spec.CodeBadRequest, "a step in so many components")
	}
	parts := append(
		[]*apiv1.StepInComponent{
			{Job: req.GetJob(), Step: req.GetStep(), Environment: req.GetEnvironment()},
		},
		req.GetRest()...)
	cluster := s.C.View().State
	r := &request{size: proto.Size(req)}
	var jobs []*state.Job
	var list []scheduler.StartStep
	for _, component := range parts {
		if proto.Size(component.GetStep()) > maxStepSpec ||
			len(component.GetEnvironment().GetData()) > maxContentBytes {
			return nil, nil, spec.Refuse(
				spec.CodeBadRequest,
				"the step's description or environment is too large",
			)
		}
		job, err := s.ownJob(caller, cluster, component.GetJob())
		if err != nil {
			return nil, nil, err
		}
		step, err := s.stepSpec(caller, component, r)
		if err != nil {
			return nil, nil, err
		}
		step.Host = req.GetHost()
		if takesDefaultMPI(step) {
			step.MPI = cluster.Config.Limits.MPIDefault
		}
		jobs, list = append(
			jobs,
			job,
		), append(
			list,
			scheduler.StartStep{UID: job.UID, Attempt: job.Attempt, Spec: step},
		)
	}
	list[0].Ticket, list[0].Rest = string(req.GetTicket()), list[1:]
	r.cmd = list[0]
	return r, jobs, nil
}

// takesDefaultMPI tells that MpiDefault holds for a step. Who types into a terminal
// starts programs that would all take the same connection for theirs, and the
// daemons of a launcher bring their own.
func takesDefaultMPI(step *spec.StepSpec) bool {
	return step.MPI == "" && !step.Pty && !step.External && step.Cast == nil
}

// stepSpec reads what is asked for in one component; its environment goes with
// the request.
func (s *stepCalls) stepSpec(
	caller Caller,
	component *apiv1.StepInComponent,
	r *request,
) (*spec.StepSpec, error) {
	step, err := wire.ToStepSpec(component.GetStep())
	if err != nil {
		return nil, err
	}
	step.World = nil // which the decision fills in
	if len(step.Argv) == 0 && len(step.Programs) == 0 {
		return nil, spec.Refuse(spec.CodeBadRequest, "the step has no command")
	}
	if step.MemPerNode < 0 || step.MemPerCPU < 0 {
		return nil, spec.Refuse(
			spec.CodeBadRequest,
			"invalid step request: check the step's memory",
		)
	}
	if env := component.GetEnvironment(); len(env.GetData()) > 0 || len(env.GetSha256()) > 0 {
		step.Env, err = s.submit.content(caller, env)
		if err != nil {
			return nil, err
		}
		if len(env.GetData()) > 0 {
			r.blobs = append(r.blobs, content{step.Env, env.GetData()})
		}
	}
	return step, nil
}

// stepWaits are the refusals that pass by themselves.
func stepWaits(err error) bool {
	return slices.Contains(
		[]spec.Code{spec.CodeNodesBusy, spec.CodePrologRunning, spec.CodeJobSuspended},
		spec.CodeOf(err),
	)
}

// awaitStep sends the command until the step is there: at once if nobody else of
// the job waits, else in its turn.
func (s *stepCalls) awaitStep(
	ctx context.Context,
	r *request,
	req *apiv1.RunStepRequest,
	job *state.Job,
	stream service.Cluster_RunStepServer,
) (spec.StepID, error) {
	step := r.cmd.(scheduler.StartStep).Spec
	why := spec.CodeNodesBusy
	if req.GetImmediate() || step.Overlap || step.External || s.C.steps.countWaiting(job.UID) == 0 {
		first := *r
		rep := s.C.writer.commitCommand(ctx, &first)
		if !stepWaits(rep.err) || req.GetImmediate() {
			return rep.res.Step, rep.err
		}
		why = spec.CodeOf(rep.err)
	}
	if err := stream.Send(&apiv1.StepNews{Kind: &apiv1.StepNews_Queued{Queued: &apiv1.StepQueued{JobId: uint32(job.ID), Why: why.String()}}}); err != nil {
		return 0, err
	}
	rep := s.C.steps.waitForStep(ctx, job.UID, r)
	return rep.res.Step, rep.err
}

// followStep tells where the parts of a step run and, when all are over, how it
// ended.
func (s *stepCalls) followStep(
	ctx context.Context,
	keys []attended,
	stream service.Cluster_RunStepServer,
) error {
	created := false
	for {
		snapshot, changed := s.C.Changed()
		parts, err := stepsOf(snapshot.State, keys)
		if err != nil {
			return err
		}
		if !created {
			created = true
			news, err := s.describeStep(snapshot, parts, parts[0].job.Spec.UID)
			if err != nil {
				return err
			}
			if err := stream.Send(&apiv1.StepNews{Kind: &apiv1.StepNews_Created{Created: news}}); err != nil {
				return err
			}
		}
		if over := stepsOver(parts); over != nil {
			return stream.Send(&apiv1.StepNews{Kind: &apiv1.StepNews_Over{Over: over}})
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		case <-s.C.stopping:
			return spec.Refuse(spec.CodeStopping, "")
		}
	}
}

// jobStep is a step and its job.
type jobStep struct {
	job  *state.Job
	step *state.Step
}

func stepsOf(cluster *state.State, keys []attended) ([]jobStep, error) {
	steps := make([]jobStep, len(keys))
	for i, key := range keys {
		job := cluster.Job(key.job)
		if job == nil || job.Attempt != key.attempt {
			return nil, spec.Refuse(spec.CodeAlreadyDone, "")
		}
		steps[i] = (jobStep{job, job.StepByID(key.step)})
		if steps[i].step == nil {
			return nil, spec.Refuse(
				spec.CodeAlreadyDone,
				"the step ended, and is known to accounting only",
			)
		}
	}
	return steps, nil
}

// stepsOver is how a step ended, as the worst of its parts; nil while one runs.
func stepsOver(parts []jobStep) *apiv1.StepOver {
	var stepOver *apiv1.StepOver
	for _, step := range parts {
		if step.step.Live() {
			return nil
		}
		over := &apiv1.StepOver{
			State:      uint32(step.step.State),
			ExitCode:   step.step.Result.Exit.Code,
			ExitSignal: step.step.Result.Exit.Signal,
			Detail:     step.step.Result.Detail,
		}
		if stepOver == nil || endsWorse(over, stepOver) {
			stepOver = over
		}
	}
	return stepOver
}

// endsWorse tells whether an end is worse than another: by exit code, then by signal; any
// failure is worse than none.
func endsWorse(over, than *apiv1.StepOver) bool {
	const completed = uint32(spec.Completed)
	if than.GetState() == completed && over.GetState() != completed {
		return true
	}
	if over.GetExitCode() != than.GetExitCode() {
		return over.GetExitCode() > than.GetExitCode()
	}
	return over.GetExitSignal() > than.GetExitSignal()
}

// describeStep tells where a step runs, and gives a user the right to attach to it.
func (s *stepCalls) describeStep(
	snapshot *view.View,
	parts []jobStep,
	uid uint32,
) (*apiv1.StepCreated, error) {
	var first *apiv1.StepCreated
	for _, step := range parts {
		created, err := s.createdIn(snapshot, step.job, step.step, uid)
		if err != nil {
			return nil, err
		}
		if first == nil {
			first = created
		} else {
			first.Rest = append(first.Rest, created)
		}
	}
	return first, nil
}

func (s *stepCalls) createdIn(
	snapshot *view.View,
	job *state.Job,
	step *state.Step,
	uid uint32,
) (*apiv1.StepCreated, error) {
	now := s.C.deps.Clock.Now()
	claims := credentials.Claims{
		Cluster: snapshot.State.UUID,
		Job:     job.UID,
		Attempt: job.Attempt,
		Step:    step.ID,
		UID:     uid,
		GID:     job.Spec.GID,
		Groups:  job.Spec.Groups,
		Nodes:   step.Nodes,
		Issued:  now,
		Expires: now.Add(attachLife),
		Launch:  sha256.Sum256([]byte(attachWords)),
		Epoch:   job.Epoch,
	}
	if !s.C.hub.knowsRunKeys(step.Nodes) {
		claims.Epoch = 0
	}
	cred, err := s.C.deps.Access.Sign(claims)
	if err != nil {
		return nil, err
	}
	kill, wait := step.Spec != nil &&
		step.Spec.KillOnFail, int32(
		snapshot.State.Config.Timing.WaitTime/spec.Second,
	)
	if step.Spec != nil && !step.Spec.KeepOnFail {
		kill = kill || snapshot.State.Config.Limits.KillOnBadExit
	}
	if step.Spec != nil && step.Spec.Wait != 0 {
		wait = max(step.Spec.Wait, 0)
	}
	return &apiv1.StepCreated{
		KillOnBadExit: kill,
		Wait:          wait,
		JobUid:        uint64(job.UID),
		JobId:         uint32(job.ID),
		Attempt:       job.Attempt,
		Step:          int32(step.ID),
		Credential:    cred,
		Tasks:         step.Tasks,
		Nodes:         stepNodes(snapshot.State, step),
		Job:           s.jobs.showJob(wire.NewShower(snapshot, now, true), snapshot, job),
	}, nil
}

// stepNodes tells where the parts of a step are and how they are reached; of one
// that is over there are none.
func stepNodes(cluster *state.State, step *state.Step) []*apiv1.StepNode {
	if !step.Live() {
		return nil
	}
	ranks := spec.StepRanks(step.Layout, step.Spec)
	nodes := make([]*apiv1.StepNode, len(step.Layout))
	for i := range step.Layout {
		nodes[i] = &apiv1.StepNode{Name: step.Layout[i].Name, Ranks: ranks[i]}
		if node := cluster.NodeByID(step.Layout[i].ID); node != nil && node.Inv != nil {
			nodes[i].Host = node.Inv.Hostname
			nodes[i].Socket = node.Inv.Socket
			nodes[i].Address = node.Inv.Addr
		}
	}
	return nodes
}

// AttachStep lets a step's user, or root, see what it writes.
func (s *stepCalls) AttachStep(
	ctx context.Context,
	req *apiv1.AttachStepRequest,
) (*apiv1.StepCreated, error) {
	caller, _, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	snapshot := s.C.View()
	job, err := stepJob(snapshot.State, req.GetJob(), s.visibleTo(caller))
	switch {
	case err != nil:
		return nil, err
	case job.Spec.UID != caller.UID && (caller.UID != 0 || !s.isOperator(caller)):
		return nil, spec.Refuse(
			spec.CodeAccessDenied,
			"only its user and root see what a step writes",
		)
	case req.GetStep() == int32(spec.StepExtern):
		return s.attachDisplay(snapshot, job, caller.UID)
	case req.GetStep() < 0:
		return nil, spec.Refuse(spec.CodeBadRequest, "only steps of srun can be attached to")
	}
	var parts []jobStep
	id := spec.StepID(req.GetStep())
	list := []*state.Job{job}
	own := job.StepByID(id)
	// A step of one component may have the number that a step of several has.
	spansJob := func(step *state.Step) bool { return step.Spec != nil && step.Spec.World != nil }
	namesWhole := job.Het.Leads() && !strings.Contains(req.GetJob(), "+")
	if namesWhole && (own == nil || spansJob(own)) {
		list = snapshot.State.Components(job)
	}
	for _, component := range list {
		step := component.StepByID(id)
		if step == nil || !step.Live() || step.Spec == nil {
			continue
		}
		if component == job || spansJob(step) {
			parts = append(parts, jobStep{component, step})
		}
	}
	switch {
	case len(parts) > 0:
		return s.describeStep(snapshot, parts, caller.UID)
	case own != nil || (id < job.NextStep && job.State.Active()) || job.State.Terminal():
		return nil, spec.Refuse(spec.CodeAlreadyDone, "")
	}
	return nil, spec.Refuse(spec.CodeInvalidJobID, "the job has no such step")
}

// attachDisplay lets the user of a job forward the X display to the nodes where its programs
// are to reach it. It is asked for by the job's extern step, which the ledger does not have.
func (s *stepCalls) attachDisplay(
	snapshot *view.View, job *state.Job, uid uint32,
) (*apiv1.StepCreated, error) {
	switch {
	case job.Spec.X11 == spec.X11None:
		return nil, spec.Refuse(spec.CodeBadRequest, "the job was submitted without --x11")
	case job.State.Terminal():
		return nil, spec.Refuse(spec.CodeAlreadyDone, "")
	case job.State != spec.Running && job.State != spec.Suspended:
		return nil, spec.Refuse(spec.CodeNodesBusy, "the job has not begun")
	}
	var nodes []spec.NodeAlloc
	for i := range job.Alloc.Nodes {
		if job.Spec.X11.Reaches(i, len(job.Alloc.Nodes)) {
			nodes = append(nodes, job.Alloc.Nodes[i])
		}
	}
	return s.createdIn(snapshot, job, displayStep(nodes), uid)
}

// displayStep is the extern step of a job on some of its nodes, as far as clients that
// attach to it see it.
func displayStep(nodes []spec.NodeAlloc) *state.Step {
	names := make([]string, len(nodes))
	for i := range nodes {
		names[i] = nodes[i].Name
	}
	return &state.Step{
		ID:     spec.StepExtern,
		State:  spec.Running,
		Layout: nodes,
		Nodes:  names,
		Spec:   &spec.StepSpec{},
	}
}

// EndStep ends a step or signals it; who may end the job may do that.
func (s *stepCalls) EndStep(
	ctx context.Context,
	req *apiv1.EndStepRequest,
) (*apiv1.EndStepReply, error) {
	caller, actor, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	job, err := stepJob(s.C.View().State, req.GetJob(), s.visibleTo(caller))
	if err != nil {
		return nil, err
	}
	if !s.mayChange(caller, job) {
		return nil, spec.Refuse(spec.CodeAccessDenied, "")
	}
	rep := s.C.writer.commitCommand(
		ctx,
		&request{
			cmd: scheduler.EndStep{
				UID:    job.UID,
				Step:   spec.StepID(req.GetStep()),
				Signal: req.GetSignal(),
			},
			actor: actor,
		},
	)
	return &apiv1.EndStepReply{}, rep.err
}

// EndJob ends a job of the caller's own srun or salloc.
func (s *stepCalls) EndJob(
	ctx context.Context,
	req *apiv1.EndJobRequest,
) (*apiv1.EndJobReply, error) {
	caller, actor, err := s.knownCaller(ctx)
	if err != nil {
		return nil, err
	}
	job, err := s.ownJob(caller, s.C.View().State, req.GetJob())
	if err != nil {
		return nil, err
	}
	rep := s.C.writer.commitCommand(
		ctx,
		&request{
			cmd: scheduler.EndJob{
				UID:  job.UID,
				Exit: spec.ExitStatus{Code: req.GetExitCode(), Signal: req.GetExitSignal()},
			},
			actor: actor,
		},
	)
	return &apiv1.EndJobReply{}, rep.err
}

// stepKey names a step's part on any node.
func stepKey(job *state.Job, step *state.Step) *apiv1.RunKey {
	return &apiv1.RunKey{
		JobUid:  uint64(job.UID),
		Attempt: job.Attempt,
		Step:    int32(step.ID),
		Epoch:   job.Epoch,
	}
}

// reconcileSteps sends an agent the steps that run on its node.
func (h *hub) reconcileSteps(cluster *state.State, job *state.Job, node string) []*apiv1.RunKey {
	var desired []*apiv1.RunKey
	for i := range job.Steps {
		step := &job.Steps[i]
		if step.Part(node) < 0 {
			continue
		}
		desired = append(desired, stepKey(job, step))
		if job.GoesOn() && step.Ending == nil {
			h.launchStep(cluster, job, step, node)
			h.signalStep(job, step, node)
		} else {
			h.endStep(cluster, job, step, node)
		}
	}
	return desired
}

// stepOf finds a step that an event names.
func stepOf(cluster *state.State, uid spec.JobUID, id spec.StepID) (*state.Job, *state.Step) {
	job := cluster.Job(uid)
	if job == nil {
		return nil, nil
	}
	return job, job.StepByID(id)
}

// launchStep orders a step's start on its nodes, or on one of them.
func (h *hub) launchStep(cluster *state.State, job *state.Job, step *state.Step, only string) {
	if job == nil || step == nil || !step.Live() {
		return
	}
	order, err := h.stepOrder(cluster, job, step)
	if err != nil {
		h.c.deps.Logger.Error(
			"a step cannot be launched",
			aboutStep(cluster, job, step.ID),
			"error",
			err,
		)
	}
	ranks := spec.StepRanks(step.Layout, step.Spec)
	for i := range step.Layout {
		alloc := &step.Layout[i]
		at := job.Alloc.Index(alloc.ID)
		conn := h.connOf(alloc.Name)
		if only != "" && alloc.Name != only {
			continue
		}
		if step.Done.Has(i) || conn == nil || at < 0 {
			continue
		}
		if err != nil {
			h.stepImpossible(job, step, alloc.Name, err)
			continue
		}
		part := proto.CloneOf(order.GetStep())
		part.Here = wire.NodeAlloc(alloc)
		part.NodeIndex = uint32(i)
		part.Ranks = ranks[i]
		launch := &apiv1.Launch{
			Job:          order.Job,
			Groups:       order.Groups,
			NodeIndex:    uint32(at),
			Here:         wire.NodeAlloc(partOf(cluster, job, at)),
			CpusPerNode:  order.CpusPerNode,
			TasksPerNode: order.TasksPerNode,
			Environment:  order.Environment,
			Step:         part,
			Seq:          job.StartSeq,
		}
		launch.Credential, launch.Launch, err = h.signStep(cluster, job, step, part, conn.epochs)
		if err != nil {
			h.stepImpossible(job, step, alloc.Name, err)
			continue
		}
		launch.Lease, err = h.leaseFor(conn, cluster, job)
		if err != nil {
			h.stepImpossible(job, step, alloc.Name, err)
			continue
		}
		conn.queueOrder(
			&apiv1.Order{Run: stepKey(job, step), Kind: &apiv1.Order_Launch{Launch: launch}},
		)
	}
}

// signStep signs the order of a step for one node and gives the hash of what it
// starts there. epochs tells whether that node's agent knows keys with epochs.
func (h *hub) signStep(
	cluster *state.State,
	job *state.Job,
	step *state.Step,
	part *apiv1.StepLaunch,
	epochs bool,
) (credential, launch []byte, err error) {
	data, err := proto.MarshalOptions{Deterministic: true}.Marshal(part)
	if err != nil {
		return nil, nil, err
	}
	hash := sha256.Sum256(data)
	now := h.c.deps.Clock.Now()
	claims := credentials.Claims{
		Cluster: cluster.UUID,
		Job:     job.UID,
		Attempt: job.Attempt,
		Step:    step.ID,
		UID:     job.Spec.UID,
		GID:     job.Spec.GID,
		Groups:  job.Spec.Groups,
		Nodes:   step.Nodes,
		Issued:  now,
		Expires: now.Add(120 * spec.Second),
		Launch:  hash,
	}
	if epochs && job.Epoch != 0 {
		claims.Epoch, claims.Run = job.Epoch, hash
	}
	credential, err = h.c.deps.Access.Sign(claims)
	return credential, hash[:], err
}

// stepOrder is what all nodes of a step get.
func (h *hub) stepOrder(
	cluster *state.State, job *state.Job, step *state.Step,
) (*apiv1.Launch, error) {
	launch := h.jobOrder(cluster, job)
	if env := step.Spec.Env; !env.IsZero() {
		var err error
		launch.Environment, err = h.c.deps.Blobs.Get(env)
		if err != nil {
			return nil, fmt.Errorf("environment %s of step %d.%d: %w", env, job.ID, step.ID, err)
		}
	}
	tasks := make([]int64, len(step.Layout))
	for i := range step.Layout {
		tasks[i] = int64(step.Layout[i].Tasks)
	}
	launch.Step = &apiv1.StepLaunch{
		Spec:         wire.StepSpec(step.Spec),
		Nodes:        hostlist.Fold(step.Nodes),
		NumNodes:     uint32(len(step.Layout)),
		TasksPerNode: format.PerNode(tasks),
		Tasks:        step.Tasks,
		LaunchHost:   step.Spec.Host,
		LaunchUid:    job.Spec.UID,
		Peers:        stepNodes(cluster, step),
		Shared:       step.Shares(),
	}
	// Only then: an order must be derived again as it was by an older release.
	if spec.IsPMIx(step.Spec.MPI) {
		sum := sha256.Sum256([]byte("secret of a step's nodes\x00" + step.Ticket))
		launch.Step.Secret = sum[:]
	}
	return launch, nil
}

// stepImpossible closes a part that cannot be ordered.
func (h *hub) stepImpossible(job *state.Job, step *state.Step, node string, cause error) {
	now := h.c.deps.Clock.Now()
	over := &scheduler.StepOver{
		Step: step.ID,
		Result: event.StepResult{
			Started: now,
			Ended:   now,
			Exit:    spec.ExitStatus{Code: 1},
			Detail:  cause.Error(),
		},
	}
	r := &request{
		cmd: scheduler.Report{
			Node:     node,
			Run:      scheduler.Run{UID: job.UID, Attempt: job.Attempt},
			Epoch:    job.Epoch,
			StepOver: over,
		},
		actor: event.Actor{Kind: event.ActorSystem},
		reply: make(chan reply, 1),
	}
	select {
	case h.c.writer.cmds <- r:
	default: // the writer waits for who calls this: it is told when it can take it
		go func() { _ = h.c.writer.enqueueCommand(context.Background(), r) }() // until the controller stops; its next start orders the step anew
	}
}

// endStep orders the end of a step's parts.
func (h *hub) endStep(cluster *state.State, job *state.Job, step *state.Step, only string) {
	if job == nil || step == nil {
		return
	}
	terminate := &apiv1.Terminate{
		Grace: int64(killWait(cluster.Config)), Cause: uint32(event.EndCancel),
	}
	if step.Ending != nil {
		terminate.Cause = uint32(step.Ending.Cause)
		terminate.Note = causeNote(step.Ending.Cause)
	}
	h.toParts(
		job,
		step,
		only,
		&apiv1.Order{Run: stepKey(job, step), Kind: &apiv1.Order_Terminate{Terminate: terminate}},
	)
}

func (h *hub) signalStep(job *state.Job, step *state.Step, only string) {
	if job == nil || step == nil || step.Signal == nil {
		return
	}
	run := &apiv1.SignalRun{
		Signal: step.Signal.Number,
		Scope:  uint32(event.SignalFull),
		Seq:    step.Signal.Seq,
	}
	h.toParts(
		job,
		step,
		only,
		&apiv1.Order{Run: stepKey(job, step), Kind: &apiv1.Order_Signal{Signal: run}},
	)
}

func (h *hub) toParts(job *state.Job, step *state.Step, only string, order *apiv1.Order) {
	for i := range step.Layout {
		name := step.Layout[i].Name
		if step.Done.Has(i) || (only != "" && name != only) {
			continue
		}
		if conn := h.connOf(name); conn != nil {
			conn.queueOrder(order)
		}
	}
}
