package daemon

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/format"
)

// Orders carries out what the controller orders. All launches of one message
// leave in one Effects.
func (c *Core) Orders(list []*apiv1.Order) {
	if c.refused {
		return
	}
	for _, order := range list {
		key := runKey(order.GetRun())
		switch kind := order.GetKind().(type) {
		case *apiv1.Order_Launch:
			if kind.Launch.GetStep() != nil {
				c.launchStep(key, kind.Launch)
			} else {
				c.takeLaunch(key, kind.Launch)
			}
		case *apiv1.Order_Terminate:
			c.terminateRun(key, kind.Terminate)
		case *apiv1.Order_Signal:
			c.passSignal(key, kind.Signal)
		case *apiv1.Order_Limit:
			// The controller watches time limits; nothing here depends on them.
		case *apiv1.Order_Reboot:
			c.orderReboot(kind.Reboot)
		default:
			c.log.Warn("an order of a kind that this release does not know was left out", aboutKey(key, 0))
		}
	}
}

// orderReboot takes the order to reboot the node, each only once.
func (c *Core) orderReboot(reboot *apiv1.Reboot) {
	if reboot.GetSeq() <= c.reboot {
		return
	}
	c.reboot, c.fx.Reboot = reboot.GetSeq(), true
	c.log.Warn("the node is to be rebooted", "reason", reboot.GetReason())
}

// takeLaunch takes a run on, once. A run that is here already only learns whose it
// is; one that is over is answered with what was said before.
func (c *Core) takeLaunch(key plan.RunKey, launch *apiv1.Launch) {
	identity := identityOf(launch)
	if last := c.recent.of[key]; last != nil {
		if !c.hasConflict(key, c.recent.launch[key], identity) {
			c.desired[key] = true
			c.repeatEnd(key, last)
		}
		return
	}
	r := c.runs[key]
	if r == nil && launch.GetAdopted() && launch.GetBatch() {
		c.awaitAdopted(key)
		return
	}
	if r != nil {
		if c.hasConflict(key, r.launch, identity) {
			return
		}
		c.desired[key] = true
		delete(c.unknown, key) // it may have been adopted
		r.wanted = true
		c.defersAgain(r, launch)
		if r.phase == living && len(r.facts.GPUs) == 0 {
			if job, err := c.readLaunch(key, launch); err == nil {
				display := r.facts.Display
				r.facts = c.factsOf(job, launch)
				r.facts.Display = display
				if r.facts.X11 && len(display) == 0 { // it is not known any more
					r.group = job.GID
					c.askDisplay(r)
				}
				if r.env == nil {
					r.env = plan.ScriptEnv(job, &c.cfg.Node)
				}
				c.openAccounts(r)
				c.fx.Jobs = true
			}
		}
		return
	}
	c.desired[key] = true
	c.endEarlier(key)
	r = &run{
		key:    key,
		wanted: true,
		since:  c.clock(),
		launch: identity.Launch,
		seq:    identity.Seq,
		order:  identity.Order,
		user:   launch.GetJob().GetUserId(),
		group:  launch.GetJob().GetGroupId(),
		tells:  launch.GetTellPrepared(),
		waits:  launch.GetDefer(),
	}
	c.runs[key] = r
	job, err := c.readLaunch(key, launch)
	if err != nil {
		r.facts.Batch = launch.GetBatch()
		c.refuseRun(r, refusal{text: err.Error()})
		return
	}
	r.facts = c.factsOf(job, launch)
	if why := c.check(job, launch); why.text != "" {
		c.refuseRun(r, why)
		return
	}
	if !launch.GetBatch() {
		c.prepareRun(r, job)
		return
	}
	c.identifyRun(r, job.UID, needsAccount(job), func(account Account, notices []string) {
		job.Home, job.Shell = account.Home, account.Shell
		c.specifyBatch(r, job)
		r.spec.Notices = append(r.spec.Notices, notices...)
		r.spec.Launch = identity.Launch
		r.spec.Seq = identity.Seq
		r.spec.Order = identity.Order
		r.spec.Lease = leaseOf(launch)
		c.prepareRun(r, job)
	})
}

// prepareRun begins the extern step of a run, where jobs have one, runs its prolog,
// and begins it.
func (c *Core) prepareRun(r *run, job *plan.Job) {
	r.env = plan.ScriptEnv(job, &c.cfg.Node) // an epilog may be configured while it runs
	if c.cfg.Contain {
		c.beginExtern(r, job)
		return
	}
	if r.facts.X11 && r.spec != nil {
		r.spec.Notices = append(r.spec.Notices, noDisplay+"its agent does not know PrologFlags=X11")
	}
	c.runProlog(r)
}

// runProlog runs the prolog of a run, or begins it where there is none.
func (c *Core) runProlog(r *run) {
	if !c.cfg.Prolog {
		c.notePrepared(r)
		return
	}
	r.phase = preparing
	script := Script{Key: r.key, Env: plan.PrologEnv(r.env)}
	if c.cfg.PrologInJob {
		script.In = r.key.StepOf(plan.StepExtern)
	}
	c.fx.Prepare = append(c.fx.Prepare, script)
}

// endEarlier kills what lives of earlier attempts of a job that are over for the
// controller: two attempts are never to work side by side.
func (c *Core) endEarlier(key plan.RunKey) {
	for _, o := range c.sortedKeys() {
		if o.Job == key.Job && o.Attempt < key.Attempt && !c.unknown[jobKey(o)] &&
			c.runs[o].phase == living &&
			!c.wantsAttempt(o) &&
			c.cfg.Orphans.KillOrphans {
			c.log.Warn(
				"an earlier attempt of a job is here, and is killed",
				aboutRun(c.runs[o]),
				"next",
				key.String(),
			)
			c.carryAction(plan.Action{Kind: plan.DoTerminate, Key: o})
		}
	}
}

// specifyBatch prepares the batch script.
func (c *Core) specifyBatch(r *run, job *plan.Job) {
	runSpec, warnings := plan.Batch(job, &c.cfg.Node)
	for _, w := range warnings {
		c.log.Warn("a job cannot have all it asks for", aboutRun(r), "problem", w)
	}
	r.spec = &runSpec
}

// beginRun hands a run to the launcher, or holds the part without a script. Where
// it asks for clocks of its GPUs, these are set first.
func (c *Core) beginRun(r *run) {
	if r.facts.Freq != "" && r.phase != tuning {
		r.phase = tuning
		c.fx.Tune = append(c.fx.Tune, Tune{Key: r.key, GPUs: r.facts.GPUs, Freq: r.facts.Freq})
		return
	}
	if r.spec == nil {
		r.phase, r.from = held, c.clock()
		c.openAccounts(r)
		c.fx.Jobs = true
		c.beginSteps(r.key)
		return
	}
	r.phase, r.since = asked, c.clock()
	c.fx.Launch = append(c.fx.Launch, *r.spec)
}

// Prepared takes the end of a prolog; why is empty when it went well.
func (c *Core) Prepared(key plan.RunKey, reason string) {
	r := c.runs[key]
	switch {
	case r == nil || r.phase != preparing:
	case r.term != nil: // cancelled meanwhile; whether it then failed says nothing
		c.endUnbegun(
			r,
			&plan.Exit{
				Key:     key,
				Signal:  sigTerm,
				Start:   r.since,
				End:     c.clock(),
				Message: "ended before it began",
			},
		)
	case reason != "":
		c.log.Error(
			"a job is not started: the prolog failed",
			aboutRun(r),
			"why",
			reason,
		)
		c.reportFailed(r, refusal{text: reason, drain: true, hold: true}, 0)
		c.endUnbegun(
			r, &plan.Exit{Key: key, Code: 1, Start: r.since, End: c.clock(), Message: reason},
		)
	default:
		c.notePrepared(r)
	}
}

// endUnbegun ends a run whose prolog ran and that did not begin: its epilog runs.
func (c *Core) endUnbegun(r *run, exit *plan.Exit) {
	if r.facts.Batch {
		r.exit, r.unborn = exit, true
	}
	r.spec = nil
	if c.closeSteps(r) { // its extern step
		r.unborn = true
		r.phase = closing
		c.fx.Jobs = true
		return
	}
	c.finishRun(r)
}

// readLaunch makes a job of an order; the error says what is wrong with the order.
func (c *Core) readLaunch(key plan.RunKey, launch *apiv1.Launch) (*plan.Job, error) {
	job := launch.GetJob()
	jobSpec, err := wire.ToJobSpec(job.GetSpec())
	if err != nil {
		return nil, fmt.Errorf("the order's job cannot be read: %w", err)
	}
	out := &plan.Job{
		Key: key, ID: uint64(job.GetJobId()), ArrayID: uint64(job.GetArrayJobId()), Task: spec.NoTask, Spec: jobSpec,
		User: job.GetUser(), Group: job.GetGroup(), UID: job.GetUserId(), GID: job.GetGroupId(), Groups: launch.GetGroups(),
		Partition: job.GetPartition(), Nodes: job.GetNodes(), Index: int(launch.GetNodeIndex()), Tasks: job.GetNumTasks(), Restarts: job.GetRestarts(),
		Start: spec.Instant(
			job.GetStart(),
		), End: spec.Instant(job.GetEnd()), Script: launch.GetScript(), Env: launch.GetEnvironment(),
	}
	out.Images = wire.ToPinnedImages(job.GetImages())
	if out.ArrayID != 0 {
		out.Task = job.GetArrayTask()
	}
	out.Here = readAllocation(launch.GetHere())
	out.CPUsPerNode, err = perNode(launch.GetCpusPerNode())
	if err != nil {
		return nil, fmt.Errorf("the order's CPUs: %w", err)
	}
	out.TasksOnNode, err = perNode(launch.GetTasksPerNode())
	if err != nil {
		return nil, fmt.Errorf("the order's tasks: %w", err)
	}
	for _, component := range launch.GetComponents() {
		out.Components = append(
			out.Components,
			plan.Component{
				ID:           uint64(component.GetJobId()),
				Partition:    component.GetPartition(),
				Nodes:        component.GetNodes(),
				Tasks:        component.GetTasks(),
				NumNodes:     component.GetNumNodes(),
				CPUsPerNode:  component.GetCpusPerNode(),
				TasksPerNode: component.GetTasksPerNode(),
				Mem:          component.GetMem(),
				CPUsPerTask:  component.GetCpusPerTask(),
				MemPerCPU:    component.GetMemPerCpu(),
			},
		)
	}
	if n := len(out.CPUsPerNode); out.Index >= n || len(out.TasksOnNode) != n ||
		out.Here.Name != c.cfg.Node.Name {
		return nil, fmt.Errorf(
			"the order is for place %d of the job's %d nodes, %s: that is not %s",
			out.Index,
			n,
			out.Here.Name,
			c.cfg.Node.Name,
		)
	}
	return out, nil
}

// perNode reads a folded list of counts.
func perNode(text string) ([]uint32, error) {
	list, err := format.ParsePerNode(text)
	if err != nil {
		return nil, err
	}
	out := make([]uint32, len(list))
	for i, n := range list {
		if n > math.MaxUint32 {
			return nil, fmt.Errorf("%d of a node", n)
		}
		out[i] = uint32(n)
	}
	return out, nil
}

// refusal is why a run is not begun.
type refusal struct {
	text  string
	drain bool // the node is at fault
	hold  bool // the job is not to run again by itself
}

// check verifies that the controller signed the run and that its devices are
// here. It completes the job with what this node knows of them.
func (c *Core) check(job *plan.Job, launch *apiv1.Launch) refusal {
	var script spec.Hash
	if launch.GetBatch() && len(launch.GetScript()) > 0 {
		script = sha256.Sum256(launch.GetScript())
	}
	if why := c.checkClaims(job, job.Key, launch, script); why.text != "" {
		return why
	}
	return c.bindDevices(job)
}

// checkClaims verifies that the controller signed a run of a job. content is the
// hash of what is to be run; of a part without a script it is not looked at.
func (c *Core) checkClaims(
	job *plan.Job,
	key plan.RunKey,
	launch *apiv1.Launch,
	content spec.Hash,
) refusal {
	claims, err := c.creds.Verify(launch.GetCredential(), c.clock())
	if err != nil {
		return refusal{
			text:  "the job's credential is refused: " + err.Error(),
			drain: errors.Is(err, ErrClock),
		}
	}
	for _, claim := range [...]struct {
		what string
		ok   bool
	}{
		{"cluster", claims.Cluster == c.cluster},
		{"job", uint64(claims.Job) == key.Job},
		{"attempt", claims.Attempt == key.Attempt},
		{"step", int32(claims.Step) == key.Step},
		{"user", claims.UID == job.UID && claims.GID == job.GID},
		{"groups", slices.Equal(claims.Groups, job.Groups)},
		{"epoch", claims.Epoch == key.Epoch},
		{"script", content.IsZero() || claims.Launch == content},
		{"launch", claims.Epoch == 0 || claims.Run == identityOf(launch).Launch},
	} {
		if !claim.ok {
			return refusal{text: "the job's credential is for another " + claim.what +
				" than the order"}
		}
	}
	return refusal{}
}

// bindDevices gives a job the files and the environment of its GPUs, and of
// those that it has a part of.
func (c *Core) bindDevices(job *plan.Job) refusal {
	here := &job.Here
	refs := plan.Devices(here)
	devices := make([]device.Device, len(refs))
	for i, gpu := range refs {
		d, ok := c.devices[gpu.UUID]
		if !ok {
			return refusal{text: "GPU " + gpu.UUID + " is not on this node", drain: true}
		}
		devices[i] = d
		if strings.HasPrefix(gpu.UUID, "MIG-") {
			devices[i].Index = int(gpu.Index) // its own, not its device's
		}
		job.Devices = append(job.Devices, d.Files...)
	}
	if c.cfg.Node.HasGPUs {
		fenced := c.cfg.Node.Confine.Devices && c.cfg.Node.Enforces.Devices
		job.GPUEnv = device.VisibleEnv(
			devices,
			device.EnvOptions{Fenced: fenced, UUIDs: plan.ShareByUUID(here.Shares, fenced)},
		)
		job.GPUEnv = append(job.GPUEnv, nearEnv(devices)...)
	}
	job.GPUEnv = append(job.GPUEnv, plan.ShareEnv(here.Shares, c.cfg.Node.MPSEach)...)
	return refusal{}
}

// nearEnv tells near which CPUs each device is, for muster gpu-bind.
func nearEnv(devices []device.Device) []string {
	known := false
	lists := make([]string, len(devices))
	for i := range devices {
		var cpus spec.Bitset
		for _, c := range devices[i].CPUs {
			cpus = cpus.Set(c)
		}
		lists[i], known = cpus.Ranges(), known || !cpus.Empty()
	}
	if !known {
		return nil
	}
	return []string{"MUSTER_GPU_CPUS=" + strings.Join(lists, ";")}
}

// loadPrefix begins a job's comment that says what it does to simulated GPUs.
const loadPrefix = "sim:"

func (c *Core) factsOf(job *plan.Job, launch *apiv1.Launch) facts {
	here := &job.Here
	f := facts{
		Batch:     launch.GetBatch(),
		ID:        job.ID,
		User:      job.User,
		Account:   job.Spec.Account,
		Partition: job.Partition,
		CPUs:      here.CPUs.Count(),
		MemoryMiB: here.Mem,
		X11:       job.Spec.X11.Reaches(job.Index, len(job.TasksOnNode)),
	}
	switch every := job.Spec.SampleEvery; {
	case every == spec.Infinite:
		f.Every = -1
	case every > 0: // no oftener than anybody looks
		f.Every = max(every, (c.cfg.Interval+spec.Second-1)/spec.Second*spec.Second)
	}
	for _, gpu := range here.GPUs {
		f.GPUs = append(f.GPUs, gpu.UUID)
	}
	for _, gpuShare := range here.Shares {
		f.Shares = append(
			f.Shares,
			share{UUID: gpuShare.UUID, Name: gpuShare.Name, N: gpuShare.N, Of: gpuShare.Of},
		)
	}
	if len(f.GPUs) > 0 {
		f.Freq = cmp.Or(job.Spec.GPUFreq, c.cfg.GPUFreq)
	}
	if load, ok := strings.CutPrefix(job.Spec.Comment, loadPrefix); ok {
		f.Load = strings.TrimSpace(load)
	}
	return f
}

// Launched takes the shepherd's answers.
func (c *Core) Launched(results []plan.LaunchResult) {
	for _, result := range results {
		c.memory.Launched(result)
		r := c.runs[result.Key]
		if r == nil || r.phase != asked {
			continue // its start or its end was quicker
		}
		switch result.Status {
		case plan.Accepted, plan.Known:
			c.noteLive(r)
		case plan.Ended:
			c.noteExited(&plan.Exit{Key: result.Key, Failure: plan.Lost, End: c.clock(),
				Message: "the run was over and its end confirmed before; how it ended is not known here any more"})
		case plan.Refused:
			c.refusedBy(r, result)
		}
	}
}

// patience is how long a run waits for a shepherd that cannot take it now.
const patience = 60 * spec.Second

func (c *Core) refusedBy(r *run, result plan.LaunchResult) {
	passing := result.Code == plan.RefusedDisk || result.Code == plan.RefusedDraining
	switch {
	case r.term != nil:
		c.reportCancelled(r)
	case passing && c.clock().Sub(r.since) < patience:
		r.retry = true
	default:
		c.refuseRun(
			r,
			refusal{text: result.Reason, drain: passing},
		) // what did not pass is the node's trouble
	}
}

// noteLive notes that the shepherd has a run, and sends on what waited for that.
func (c *Core) noteLive(r *run) {
	r.phase, r.spec = living, nil
	if r.term != nil {
		c.fx.Terminate = append(c.fx.Terminate, *r.term)
	}
	c.fx.Signal = append(c.fx.Signal, r.early...)
	r.early = nil
	c.beginSteps(r.key)
}

// noteBegan notes the start of a run's process.
func (c *Core) noteBegan(r *run, at spec.Instant) {
	if r.from != 0 {
		return
	}
	r.from = at
	r.memory.at = at
	c.openAccounts(r)
	c.fx.Jobs = true
}

// Withdrawn tells that the shepherd was never asked for a run that is to end.
func (c *Core) Withdrawn(key plan.RunKey) {
	if r := c.runs[key]; r != nil && r.phase == asked {
		c.reportCancelled(r)
	}
}

// terminateRun ends a run. One that is not here is answered at once: nothing of
// it is left.
func (c *Core) terminateRun(key plan.RunKey, terminate *apiv1.Terminate) {
	c.desired[key] = true
	if last := c.recent.of[key]; last != nil {
		c.repeatEnd(key, last)
		return
	}
	r := c.runs[key]
	if r == nil {
		r = &run{key: key, wanted: true, phase: reported}
		c.runs[key] = r
		if r.isStep() {
			c.stepLost(r)
			return
		}
		c.queueReport(
			r,
			&apiv1.Report{Kind: &apiv1.Report_NodeDone{NodeDone: &apiv1.NodeDone{}}},
			true,
		)
		return
	}
	r.wanted = true
	c.endRun(
		r,
		&plan.Terminate{
			Key:    key,
			Scope:  scopeOfRun(key),
			Grace:  max(spec.Span(terminate.GetGrace()), 0),
			Notice: c.noticeLine(r, terminate.GetNote()),
		},
	)
}

// endRun carries a termination out, as far as the run has come. The first line
// that explains it stands; a shorter grace is passed on.
func (c *Core) endRun(r *run, terminate *plan.Terminate) {
	again := r.term != nil
	if again {
		terminate.Notice = ""
	}
	if !again || terminate.Grace < r.term.Grace {
		r.term = terminate
	}
	switch r.phase {
	case containing, displaying, deferred:
		c.endUnbegun(
			r,
			&plan.Exit{
				Key:     r.key,
				Signal:  sigTerm,
				Start:   r.since,
				End:     c.clock(),
				Message: "ended before it began",
			},
		)
	case preparing:
		c.fx.Abort = append(c.fx.Abort, r.key)
	case tuning: // that takes no time; Tuned sees it
	case queued, identifying:
		c.reportCancelled(r)
	case held:
		c.measureEnd(r)
	case asked:
		if r.retry {
			c.reportCancelled(r)
			return
		}
		c.fx.Withdraw = append(c.fx.Withdraw, r.key)
	case living:
		c.fx.Terminate = append(c.fx.Terminate, *terminate)
	case closing:
		for _, s := range c.stepsOf(r.key) {
			c.endRun(s, &plan.Terminate{Key: s.key, Scope: plan.ScopeRun, Grace: terminate.Grace})
		}
	case measuring, cleaning, reported:
	}
}

// noticeLine is the line that a job finds in its error output.
func (c *Core) noticeLine(r *run, reason string) string {
	if !r.facts.Batch && !r.isStep() || r.isExtern() {
		return ""
	}
	at := time.Unix(c.clock().Unix(), 0).In(c.locationOf()).Format("2006-01-02T15:04:05")
	if reason != "" {
		reason = " " + reason
	}
	what := fmt.Sprintf("JOB %d", r.facts.ID)
	if r.isStep() {
		what = fmt.Sprintf("STEP %d.%d", r.facts.ID, r.key.Step)
	}
	return fmt.Sprintf("*** %s ON %s CANCELLED AT %s%s ***", what, c.cfg.Node.Name, at, reason)
}

func (c *Core) locationOf() *time.Location {
	if c.cfg.Location != nil {
		return c.cfg.Location
	}
	return time.UTC
}

// passSignal passes a signal on, each once.
func (c *Core) passSignal(key plan.RunKey, signal *apiv1.SignalRun) {
	r := c.runs[key]
	if r == nil || signal.GetSeq() != 0 && signal.GetSeq() <= r.signal {
		return
	}
	if signal.GetMessage() != "" && signal.GetSignal() == 0 {
		if r.phase == living {
			c.fx.Tell = append(c.fx.Tell, Line{key, signal.GetMessage()})
		}
		return
	}
	r.signal = signal.GetSeq()
	sig := Signal{
		Key:    key,
		Number: signal.GetSignal(),
		Scope:  scopeOf(event.SignalScope(signal.GetScope())),
	}
	if r.isStep() {
		sig.Scope = plan.ScopeRun
	}
	switch r.phase {
	case queued, identifying, containing, displaying, preparing, deferred, tuning, asked:
		r.early = append(r.early, sig)
	case living:
		c.fx.Signal = append(c.fx.Signal, sig)
	case held: // nothing runs here but its steps
		if sig.Scope != plan.ScopeLeader && len(c.stepsOf(key)) > 0 {
			c.fx.Signal = append(c.fx.Signal, sig)
		}
	case closing, measuring, cleaning, reported:
	}
}

func scopeOf(scope event.SignalScope) plan.Scope {
	switch scope {
	case event.SignalBatch:
		return plan.ScopeLeader
	case event.SignalFull:
		return plan.ScopeJob
	case event.SignalSteps:
	}
	return plan.ScopeSteps
}
