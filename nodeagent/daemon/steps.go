package daemon

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/plan/pmi"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
	"google.golang.org/protobuf/proto"
)

// isStep tells that a run is a step's part, inside of a job that holds the node.
func (r *run) isStep() bool { return r.key.Step >= 0 || r.isExtern() }

// isExtern tells that a run is a job's extern step, which the agent itself begins.
func (r *run) isExtern() bool { return r.key.Step == plan.StepExtern }

// jobKey is the run that holds the node for the attempt of a step: the batch
// script, or the part of an allocation that has none here.
func jobKey(key plan.RunKey) plan.RunKey { return key.StepOf(plan.StepBatch) }

// scopeOfRun is what ends with a run: a job's steps with it, a step alone.
func scopeOfRun(key plan.RunKey) plan.Scope {
	if key.Step >= 0 || key.Step == plan.StepExtern {
		return plan.ScopeRun
	}
	return plan.ScopeJob
}

// launchStep takes a step's part on, once. It begins when its job has: the
// node's prolog may still run.
func (c *Core) launchStep(key plan.RunKey, launch *apiv1.Launch) {
	identity := identityOf(launch)
	if last := c.recent.of[key]; last != nil {
		if !c.hasConflict(key, c.recent.launch[key], identity) {
			c.repeatEnd(key, last)
		}
		return
	}
	if r := c.runs[key]; r != nil {
		r.wanted = r.wanted || !c.hasConflict(key, r.launch, identity)
		return
	}
	r := &run{
		key:    key,
		wanted: true,
		phase:  queued,
		since:  c.clock(),
		launch: identity.Launch,
		seq:    identity.Seq,
	}
	c.runs[key] = r
	c.noteStep(key)
	part, err := c.readStep(key, launch)
	if err != nil {
		c.stepFailed(r, err.Error())
		return
	}
	r.facts = facts{
		ID:        part.Job.ID,
		User:      part.Job.User,
		Account:   part.Job.Spec.Account,
		Partition: part.Job.Partition,
		CPUs:      part.Here.CPUs.Count(),
		MemoryMiB: part.Here.Mem,
	}
	if err := c.checkStep(part, launch); err != nil {
		c.stepFailed(r, err.Error())
		return
	}
	c.identifyRun(r, part.Job.UID, stepNeedsAccount(part.Job), func(account Account, notices []string) {
		part.Job.Home, part.Job.Shell = account.Home, account.Shell
		if err := c.specifyStep(r, part); err != nil {
			c.stepFailed(r, err.Error())
			return
		}
		r.spec.Tasks.Notices = append(r.spec.Tasks.Notices, notices...)
		r.spec.Lease = leaseOf(launch)
		r.phase = queued
		c.beginStep(r)
	})
}

// beginStep hands a step's part to the launcher if its job is there, and leaves
// it in the queue while that is to come.
func (c *Core) beginStep(r *run) {
	job := c.runs[jobKey(r.key)]
	switch {
	case job == nil: // its order is on its way
	case job.term != nil || job.phase > held:
		c.stepFailed(r, "the job is ending on this node")
	case job.phase == living || job.phase == held:
		r.phase, r.since = asked, c.clock()
		c.giveDisplay(r, job)
		c.fx.Launch = append(c.fx.Launch, *r.spec)
	}
}

// beginSteps begins the steps that waited for their job.
func (c *Core) beginSteps(job plan.RunKey) {
	for _, r := range c.stepsOf(job) {
		if r.phase == queued {
			c.beginStep(r)
		}
	}
}

// stepsOf lists the steps of a job that are not over here.
func (c *Core) stepsOf(job plan.RunKey) []*run {
	var runs []*run
	for _, key := range c.sortedKeys() {
		if r := c.runs[key]; r.isStep() && key.SameAttempt(job) && r.phase != reported {
			runs = append(runs, r)
		}
	}
	return runs
}

// closeSteps ends the steps of a job that ends, and tells whether there are any
// to wait for.
func (c *Core) closeSteps(job *run) bool {
	list := c.stepsOf(job.key)
	for _, r := range list {
		if r.term != nil {
			continue
		}
		grace := c.killWait
		if job.term != nil {
			grace = job.term.Grace
		}
		c.endRun(r, &plan.Terminate{Key: r.key, Scope: plan.ScopeRun, Grace: grace})
	}
	return len(c.stepsOf(job.key)) > 0
}

// stepOver goes on with a job that waited for its steps.
func (c *Core) stepOver(key plan.RunKey) {
	job := c.runs[jobKey(key)]
	if job != nil && job.phase == closing && len(c.stepsOf(job.key)) == 0 {
		if job.unborn {
			c.finishRun(job)
		} else {
			c.measureEnd(job)
		}
	}
}

// readStep makes a part of an order; the error says what is wrong with it.
func (c *Core) readStep(key plan.RunKey, launch *apiv1.Launch) (*plan.StepPart, error) {
	job, err := c.readLaunch(key, launch)
	if err != nil {
		return nil, err
	}
	message := launch.GetStep()
	stepSpec, err := wire.ToStepSpec(message.GetSpec())
	if err != nil {
		return nil, fmt.Errorf("the order's step cannot be read: %w", err)
	}
	step := &plan.StepPart{
		Job:        job,
		Key:        key,
		Spec:       stepSpec,
		Here:       readAllocation(message.GetHere()),
		Index:      int(message.GetNodeIndex()),
		Nodes:      message.GetNodes(),
		Tasks:      message.GetTasks(),
		Ranks:      message.GetRanks(),
		LaunchHost: message.GetLaunchHost(),
		Secret:     message.GetSecret(),
	}
	step.TasksOnNode, err = perNode(message.GetTasksPerNode())
	if err != nil {
		return nil, fmt.Errorf("the order's step: %w", err)
	}
	if n := len(step.TasksOnNode); step.Index >= n ||
		int(step.TasksOnNode[step.Index]) != len(step.Ranks) {
		return nil, fmt.Errorf(
			"the order's step has %d tasks for place %d of %d nodes, and they are not that many",
			len(step.Ranks),
			step.Index,
			n,
		)
	}
	if world := stepSpec.World; world != nil {
		return step, ofWorld(step, world)
	}
	nodeOf := make([]uint32, step.Tasks)
	for i, node := range message.GetPeers() {
		for _, r := range node.GetRanks() {
			if r < step.Tasks {
				nodeOf[r] = uint32(i)
			}
		}
	}
	step.Mapping, step.NodeOf = pmi.Mapping(nodeOf), nodeOf
	for _, node := range message.GetPeers() {
		step.Hosts = append(step.Hosts, node.GetName())
	}
	return step, nil
}

// ofWorld makes of a part what it is of a step in several components: its tasks
// count all nodes and tasks.
func ofWorld(step *plan.StepPart, world *spec.StepWorld) error {
	if int(world.Place) >= len(world.Parts) ||
		!slices.Equal(world.Parts[world.Place].Tasks, step.TasksOnNode) {
		return errors.New("the order's step does not fit into what it is of the components' step")
	}
	step.Index += world.FirstNode()
	step.TasksOnNode = world.TasksOnNode()
	var nodes []string
	for i := range world.Parts {
		nodes = append(nodes, world.Parts[i].Nodes)
		hosts, err := hostlist.Expand(world.Parts[i].Nodes)
		if err != nil {
			return fmt.Errorf("the order's step: %w", err)
		}
		step.Hosts = append(step.Hosts, hosts...)
	}
	nodeOf := world.NodeOf()
	step.NodeOf = nodeOf
	step.Nodes = strings.Join(nodes, ",")
	step.Tasks = uint32(len(nodeOf))
	step.Mapping = pmi.Mapping(nodeOf)
	return nil
}

// readAllocation reads a node's part of an allocation.
func readAllocation(here *apiv1.NodeAlloc) spec.NodeAlloc {
	allocation := spec.NodeAlloc{
		Name:  here.GetName(),
		CPUs:  here.GetCpus(),
		Mem:   here.GetMem(),
		Tasks: here.GetTasks(),
		GRES:  wire.ToCounts(here.GetGres()),
	}
	allocation.GPUs = wire.ToGPURefs(here.GetGpus())
	for _, g := range here.GetShares() {
		allocation.Shares = append(
			allocation.Shares,
			spec.GPUShare{
				UUID:  g.GetUuid(),
				Index: g.GetIndex(),
				Type:  g.GetType(),
				Name:  g.GetName(),
				N:     g.GetN(),
				Of:    g.GetOf(),
			},
		)
	}
	return allocation
}

// checkStep verifies that the controller signed the part, and that its devices
// are here.
func (c *Core) checkStep(step *plan.StepPart, launch *apiv1.Launch) error {
	signed, err := proto.MarshalOptions{Deterministic: true}.Marshal(launch.GetStep())
	if err != nil {
		return err
	}
	if why := c.checkClaims(step.Job, step.Key, launch, sha256.Sum256(signed)); why.text != "" {
		return errors.New(why.text)
	}
	for _, g := range plan.Devices(&step.Here) {
		d, ok := c.devices[g.UUID]
		if !ok {
			return fmt.Errorf("GPU %s is not on this node", g.UUID)
		}
		gpu := plan.StepGPU{Index: g.Index, Files: d.Files}
		for _, n := range d.CPUs {
			gpu.CPUs = gpu.CPUs.Set(n)
		}
		step.GPUs = append(step.GPUs, gpu)
	}
	return nil
}

// specifyStep prepares the tasks.
func (c *Core) specifyStep(r *run, step *plan.StepPart) error {
	runSpec, warnings, err := plan.StepRun(
		step,
		&c.cfg.Node,
		func(places []int) []string { return c.visibleDevices(step, places) },
	)
	for _, w := range warnings {
		c.log.Warn("a step cannot have all it asks for", aboutRun(r), "problem", w)
	}
	if err != nil {
		return err
	}
	runSpec.Launch, runSpec.Seq = r.launch, r.seq
	r.spec = &runSpec
	return nil
}

// visibleDevices are the variables by which a task finds its devices, which stand at
// places among the step's. Inside a fence a program counts those of the step.
func (c *Core) visibleDevices(step *plan.StepPart, places []int) []string {
	env := plan.ShareEnv(step.Here.Shares, c.cfg.Node.MPSEach)
	if !c.cfg.Node.HasGPUs {
		return env
	}
	fenced := c.cfg.Node.Confine.Devices && c.cfg.Node.Enforces.Devices
	refs := plan.Devices(&step.Here)
	list := make([]device.Device, len(places))
	numbers := make([]string, len(places))
	for i, p := range places {
		list[i] = c.devices[refs[p].UUID]
		numbers[i] = fmt.Sprint(refs[p].Index)
		list[i].Index = p
		if !fenced {
			list[i].Index = int(refs[p].Index)
		}
	}
	for _, e := range device.VisibleEnv(list, device.EnvOptions{UUIDs: plan.ShareByUUID(step.Here.Shares, fenced)}) {
		if !strings.HasPrefix(e, "SLURM_") { // SLURM_JOB_GPUS is the job's, which is not here
			env = append(env, e)
		}
	}
	if len(numbers) > 0 {
		env = append(env, "SLURM_STEP_GPUS="+strings.Join(numbers, ","))
	}
	return env
}

// stepFailed reports a part that was not begun. The job goes on.
func (c *Core) stepFailed(r *run, reason string) {
	c.log.Error("a step is not started", aboutRun(r), "why", reason)
	now := int64(c.clock())
	c.reportStep(
		r, &apiv1.RunEnded{Started: now, Ended: now, ExitCode: 1, Detail: validText(reason)},
	)
}

// reportStep tells the end of a step's part.
func (c *Core) reportStep(r *run, ended *apiv1.RunEnded) {
	if r.isExtern() {
		c.externOver(r, ended)
		return
	}
	c.queueReport(r, &apiv1.Report{Kind: &apiv1.Report_Ended{Ended: ended}}, true)
	c.stepOver(r.key)
}

// stepLost answers an order to end a step's part that is not here.
func (c *Core) stepLost(r *run) {
	now := int64(c.clock())
	c.reportStep(
		r,
		&apiv1.RunEnded{
			Started: now,
			Ended:   now,
			Unknown: true,
			Detail:  "the node does not know the step (any more)",
		},
	)
}

// StepState is how a step's part is doing, for who wants its output.
type StepState struct {
	Socket string // where it is; empty while it has not begun
	Over   bool   // it is not here, or not any more
}

// Step tells how a step's part is doing. Nothing, while nothing was heard of it:
// its order may still come.
func (c *Core) Step(key plan.RunKey) StepState {
	if c.recent.of[key] != nil {
		return StepState{Over: true}
	}
	r := c.runs[key]
	if r == nil {
		return StepState{}
	}
	return StepState{Socket: r.socket, Over: r.phase == reported}
}

// attachWords are what a credential for input and output is about, in the place
// of the hash of an order.
const attachWords = "step input and output"

// Attachable tells whose the step is that a credential lets a client attach to
// on this node, and its whole key: clients do not name the epoch, the credential
// does. Before the controller has told its keys nothing can be said: the error
// wraps ErrDown.
func (c *Core) Attachable(key plan.RunKey, raw []byte) (whole plan.RunKey, uid uint32, err error) {
	if !c.complete {
		return key, 0, fmt.Errorf("the controller has not been heard of yet: %w", ErrDown)
	}
	claims, err := c.creds.Verify(raw, c.clock())
	key.Epoch = claims.Epoch
	signed := plan.RunKey{
		Job:     uint64(claims.Job),
		Attempt: claims.Attempt,
		Step:    int32(claims.Step),
		Epoch:   claims.Epoch,
	}
	switch {
	case err != nil:
		return key, 0, err
	case claims.Cluster != c.cluster || signed != key:
		return key, 0, errors.New("the credential is for another step")
	case claims.Launch != sha256.Sum256([]byte(attachWords)):
		return key, 0, errors.New("the credential is not for input and output")
	}
	return key, claims.UID, nil
}

// Attachable is the core's, from any goroutine.
func (a *Agent) Attachable(
	ctx context.Context,
	k plan.RunKey,
	raw []byte,
) (plan.RunKey, uint32, error) {
	type answer struct {
		key plan.RunKey
		uid uint32
		err error
	}
	got := make(chan answer, 1)
	a.inbox.putItems(func() {
		key, uid, err := a.core.Attachable(k, raw)
		got <- answer{key, uid, err}
	})
	select {
	case x := <-got:
		return x.key, x.uid, x.err
	case <-ctx.Done():
		return k, 0, ctx.Err()
	}
}

// How long the output of a step is waited for, and how seldom it is looked for
// at the end.
const (
	stepPatience = 60 * spec.Second
	stepLook     = 20 * spec.Millisecond
)

// ErrStepOver: the step is not on this node, or not any more.
var ErrStepOver = errors.New("the step is not on this node (any more)")

// StepSocket gives the socket of a step's part, once it has begun.
func (a *Agent) StepSocket(ctx context.Context, key plan.RunKey) (string, error) {
	if key.Step < 0 || key.Step == math.MaxInt32 {
		return "", fmt.Errorf("%w: %s has no input and output of its own", ErrStepOver, key)
	}
	until := a.deps.Clock.Now().Add(stepPatience)
	for look := spec.Millisecond; ; look = min(2*look, stepLook) {
		got := make(chan StepState, 1)
		a.inbox.putItems(func() { got <- a.core.Step(key) })
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case state := <-got:
			if state.Socket != "" && !state.Over {
				return state.Socket, nil
			}
			if state.Over || a.deps.Clock.Now() >= until {
				return "", ErrStepOver
			}
		}
		if !a.sleepFor(ctx, look) {
			return "", ctx.Err()
		}
	}
}
