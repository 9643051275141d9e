package daemon

import (
	"bytes"
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
	for _, o := range list {
		k := runKey(o.GetRun())
		switch kind := o.GetKind().(type) {
		case *apiv1.Order_Launch:
			if kind.Launch.GetStep() != nil {
				c.launchStep(k, kind.Launch)
			} else {
				c.takeLaunch(k, kind.Launch)
			}
		case *apiv1.Order_Terminate:
			c.terminateRun(k, kind.Terminate)
		case *apiv1.Order_Signal:
			c.passSignal(k, kind.Signal)
		case *apiv1.Order_Limit:
			// The controller watches time limits; nothing here depends on them.
		case *apiv1.Order_Reboot:
			c.orderReboot(kind.Reboot)
		default:
			c.log.Warn("an order of a kind that this release does not know was left out", "run", k.String())
		}
	}
}

// orderReboot takes the order to reboot the node, each only once.
func (c *Core) orderReboot(r *apiv1.Reboot) {
	if r.GetSeq() <= c.reboot {
		return
	}
	c.reboot, c.fx.Reboot = r.GetSeq(), true
	c.log.Warn("the node is to be rebooted", "reason", r.GetReason())
}

// takeLaunch takes a run on, once. A run that is here already only learns whose it
// is; one that is over is answered with what was said before.
func (c *Core) takeLaunch(k plan.RunKey, l *apiv1.Launch) {
	identity := identityOf(l)
	if last := c.recent.of[k]; last != nil {
		if !c.hasConflict(k, c.recent.launch[k], identity) {
			c.desired[k] = true
			c.repeatEnd(k, last)
		}
		return
	}
	r := c.runs[k]
	if r != nil {
		if c.hasConflict(k, r.launch, identity) {
			return
		}
		c.desired[k] = true
		r.wanted = true
		if r.phase == living && len(r.facts.GPUs) == 0 {
			if job, err := c.readLaunch(k, l); err == nil {
				r.facts = c.factsOf(job, l)
				if r.env == nil && c.cfg.Epilog {
					r.env = plan.ScriptEnv(job, &c.cfg.Node)
				}
				c.openAccounts(r)
				c.fx.Jobs = true
			}
		}
		return
	}
	c.desired[k] = true
	c.endEarlier(k)
	r = &run{key: k, wanted: true, since: c.clock(), launch: identity.Launch, seq: identity.Seq, user: l.GetJob().GetUserId()}
	c.runs[k] = r
	job, err := c.readLaunch(k, l)
	if err != nil {
		r.facts.Batch = l.GetBatch()
		c.refuseRun(r, refusal{text: err.Error()})
		return
	}
	r.facts = c.factsOf(job, l)
	if why := c.check(job, l); why.text != "" {
		c.refuseRun(r, why)
		return
	}
	if l.GetBatch() {
		c.specifyBatch(r, job)
		r.spec.Launch, r.spec.Seq, r.spec.Order = identity.Launch, identity.Seq, identity.Order
		r.spec.Lease = leaseOf(l)
	}
	if c.cfg.Prolog || c.cfg.Epilog {
		r.env = plan.ScriptEnv(job, &c.cfg.Node)
	}
	if c.cfg.Prolog {
		r.phase = preparing
		c.fx.Prepare = append(c.fx.Prepare, Script{k, plan.PrologEnv(r.env)})
		return
	}
	c.beginRun(r)
}

// endEarlier kills what lives of earlier attempts of a job that are over for the
// controller: two attempts are never to work side by side.
func (c *Core) endEarlier(k plan.RunKey) {
	for _, o := range c.sortedKeys() {
		if o.Job == k.Job && o.Attempt < k.Attempt && !c.unknown[jobKey(o)] && c.runs[o].phase == living && !c.wantsAttempt(o) && c.cfg.Orphans.KillOrphans {
			c.log.Warn("an earlier attempt of a job is here, and is killed", "run", o.String(), "next", k.String())
			c.carryAction(plan.Action{Kind: plan.DoTerminate, Key: o})
		}
	}
}

// specifyBatch prepares the batch script.
func (c *Core) specifyBatch(r *run, job *plan.Job) {
	if c.cfg.Account != nil && !bytes.Contains(job.Env, []byte("HOME=")) {
		job.Home, job.Shell = c.cfg.Account(job.UID)
	}
	rs, warnings := plan.Batch(job, &c.cfg.Node)
	for _, w := range warnings {
		c.log.Warn("a job cannot have all it asks for", "job", job.ID, "problem", w)
	}
	r.spec = &rs
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
func (c *Core) Prepared(k plan.RunKey, why string) {
	r := c.runs[k]
	switch {
	case r == nil || r.phase != preparing:
	case r.term != nil: // cancelled meanwhile; whether it then failed says nothing
		c.endUnbegun(r, &plan.Exit{Key: k, Signal: sigTerm, Start: r.since, End: c.clock(), Message: "ended before it began"})
	case why != "":
		c.log.Error("a job is not started: the prolog failed", "run", k.String(), "job", r.facts.ID, "why", why)
		c.reportFailed(r, refusal{text: why, drain: true, hold: true}, 0)
		c.endUnbegun(r, &plan.Exit{Key: k, Code: 1, Start: r.since, End: c.clock(), Message: why})
	default:
		c.beginRun(r)
	}
}

// endUnbegun ends a run whose prolog ran and that did not begin: its epilog runs.
func (c *Core) endUnbegun(r *run, e *plan.Exit) {
	if r.facts.Batch {
		r.exit, r.unborn = e, true
	}
	r.spec = nil
	c.finishRun(r)
}

// readLaunch makes a job of an order; the error says what is wrong with the order.
func (c *Core) readLaunch(k plan.RunKey, l *apiv1.Launch) (*plan.Job, error) {
	j := l.GetJob()
	js, err := wire.ToJobSpec(j.GetSpec())
	if err != nil {
		return nil, fmt.Errorf("the order's job cannot be read: %w", err)
	}
	out := &plan.Job{
		Key: k, ID: uint64(j.GetJobId()), ArrayID: uint64(j.GetArrayJobId()), Task: spec.NoTask, Spec: js,
		User: j.GetUser(), Group: j.GetGroup(), UID: j.GetUserId(), GID: j.GetGroupId(), Groups: l.GetGroups(),
		Partition: j.GetPartition(), Nodes: j.GetNodes(), Index: int(l.GetNodeIndex()), Tasks: j.GetNumTasks(), Restarts: j.GetRestarts(),
		Start: spec.Instant(j.GetStart()), End: spec.Instant(j.GetEnd()), Script: l.GetScript(), Env: l.GetEnvironment(),
	}
	if out.ArrayID != 0 {
		out.Task = j.GetArrayTask()
	}
	out.Here = readAllocation(l.GetHere())
	out.CPUsPerNode, err = perNode(l.GetCpusPerNode())
	if err != nil {
		return nil, fmt.Errorf("the order's CPUs: %w", err)
	}
	out.TasksOnNode, err = perNode(l.GetTasksPerNode())
	if err != nil {
		return nil, fmt.Errorf("the order's tasks: %w", err)
	}
	for _, h := range l.GetComponents() {
		out.Components = append(out.Components, plan.Component{ID: uint64(h.GetJobId()), Partition: h.GetPartition(), Nodes: h.GetNodes(), Tasks: h.GetTasks(),
			NumNodes: h.GetNumNodes(), CPUsPerNode: h.GetCpusPerNode(), TasksPerNode: h.GetTasksPerNode(), Mem: h.GetMem()})
	}
	if n := len(out.CPUsPerNode); out.Index >= n || len(out.TasksOnNode) != n || out.Here.Name != c.cfg.Node.Name {
		return nil, fmt.Errorf("the order is for place %d of the job's %d nodes, %s: that is not %s", out.Index, n, out.Here.Name, c.cfg.Node.Name)
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
func (c *Core) check(j *plan.Job, l *apiv1.Launch) refusal {
	var script spec.Hash
	if l.GetBatch() && len(l.GetScript()) > 0 {
		script = sha256.Sum256(l.GetScript())
	}
	if why := c.checkClaims(j, j.Key, l, script); why.text != "" {
		return why
	}
	return c.bindDevices(j)
}

// checkClaims verifies that the controller signed a run of a job. content is the
// hash of what is to be run; of a part without a script it is not looked at.
func (c *Core) checkClaims(j *plan.Job, k plan.RunKey, l *apiv1.Launch, content spec.Hash) refusal {
	claims, err := c.creds.Verify(l.GetCredential(), c.clock())
	if err != nil {
		return refusal{text: "the job's credential is refused: " + err.Error(), drain: errors.Is(err, ErrClock)}
	}
	for _, claim := range [...]struct {
		what string
		ok   bool
	}{
		{"cluster", claims.Cluster == c.cluster},
		{"job", uint64(claims.Job) == k.Job},
		{"attempt", claims.Attempt == k.Attempt},
		{"step", int32(claims.Step) == k.Step},
		{"user", claims.UID == j.UID && claims.GID == j.GID},
		{"groups", slices.Equal(claims.Groups, j.Groups)},
		{"epoch", claims.Epoch == k.Epoch},
		{"script", content.IsZero() || claims.Launch == content},
		{"launch", claims.Epoch == 0 || claims.Run == identityOf(l).Launch},
	} {
		if !claim.ok {
			return refusal{text: "the job's credential is for another " + claim.what + " than the order"}
		}
	}
	return refusal{}
}

// bindDevices gives a job the files and the environment of its GPUs, and of
// those that it has a part of.
func (c *Core) bindDevices(j *plan.Job) refusal {
	here := &j.Here
	refs := plan.Devices(here)
	devices := make([]device.Device, len(refs))
	for i, g := range refs {
		d, ok := c.devices[g.UUID]
		if !ok {
			return refusal{text: "GPU " + g.UUID + " is not on this node", drain: true}
		}
		devices[i] = d
		if strings.HasPrefix(g.UUID, "MIG-") {
			devices[i].Index = int(g.Index) // its own, not its device's
		}
		j.Devices = append(j.Devices, d.Files...)
	}
	if c.cfg.Node.HasGPUs {
		fenced := c.cfg.Node.Confine.Devices && c.cfg.Node.Enforces.Devices
		j.GPUEnv = device.VisibleEnv(devices, device.EnvOptions{Fenced: fenced, UUIDs: plan.ShareByUUID(here.Shares, fenced)})
		j.GPUEnv = append(j.GPUEnv, nearEnv(devices)...)
	}
	j.GPUEnv = append(j.GPUEnv, plan.ShareEnv(here.Shares, c.cfg.Node.MPSEach)...)
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

func (c *Core) factsOf(j *plan.Job, l *apiv1.Launch) facts {
	here := &j.Here
	f := facts{Batch: l.GetBatch(), ID: j.ID, User: j.User, Account: j.Spec.Account, Partition: j.Partition, CPUs: here.CPUs.Count(), MemoryMiB: here.Mem}
	switch every := j.Spec.SampleEvery; {
	case every == spec.Infinite:
		f.Every = -1
	case every > 0: // no oftener than anybody looks
		f.Every = max(every, (c.cfg.Interval+spec.Second-1)/spec.Second*spec.Second)
	}
	for _, g := range here.GPUs {
		f.GPUs = append(f.GPUs, g.UUID)
	}
	for _, s := range here.Shares {
		f.Shares = append(f.Shares, share{UUID: s.UUID, Name: s.Name, N: s.N, Of: s.Of})
	}
	if len(f.GPUs) > 0 {
		f.Freq = cmp.Or(j.Spec.GPUFreq, c.cfg.GPUFreq)
	}
	if load, ok := strings.CutPrefix(j.Spec.Comment, loadPrefix); ok {
		f.Load = strings.TrimSpace(load)
	}
	return f
}

// Launched takes the shepherd's answers.
func (c *Core) Launched(results []plan.LaunchResult) {
	for _, res := range results {
		c.memory.Launched(res)
		r := c.runs[res.Key]
		if r == nil || r.phase != asked {
			continue // its start or its end was quicker
		}
		switch res.Status {
		case plan.Accepted, plan.Known:
			c.noteLive(r)
		case plan.Ended:
			c.noteExited(&plan.Exit{Key: res.Key, Failure: plan.Lost, End: c.clock(),
				Message: "the run was over and its end confirmed before; how it ended is not known here any more"})
		case plan.Refused:
			c.refusedBy(r, res)
		}
	}
}

// patience is how long a run waits for a shepherd that cannot take it now.
const patience = 60 * spec.Second

func (c *Core) refusedBy(r *run, res plan.LaunchResult) {
	passing := res.Code == plan.RefusedDisk || res.Code == plan.RefusedDraining
	switch {
	case r.term != nil:
		c.reportCancelled(r)
	case passing && c.clock().Sub(r.since) < patience:
		r.retry = true
	default:
		c.refuseRun(r, refusal{text: res.Reason, drain: passing}) // what did not pass is the node's trouble
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
func (c *Core) Withdrawn(k plan.RunKey) {
	if r := c.runs[k]; r != nil && r.phase == asked {
		c.reportCancelled(r)
	}
}

// terminateRun ends a run. One that is not here is answered at once: nothing of
// it is left.
func (c *Core) terminateRun(k plan.RunKey, t *apiv1.Terminate) {
	c.desired[k] = true
	if last := c.recent.of[k]; last != nil {
		c.repeatEnd(k, last)
		return
	}
	r := c.runs[k]
	if r == nil {
		r = &run{key: k, wanted: true, phase: reported}
		c.runs[k] = r
		if r.isStep() {
			c.stepLost(r)
			return
		}
		c.queueReport(r, &apiv1.Report{Kind: &apiv1.Report_NodeDone{NodeDone: &apiv1.NodeDone{}}}, true)
		return
	}
	r.wanted = true
	c.endRun(r, &plan.Terminate{Key: k, Scope: scopeOfRun(k), Grace: max(spec.Span(t.GetGrace()), 0), Notice: c.noticeLine(r, t.GetNote())})
}

// endRun carries a termination out, as far as the run has come. The first line
// that explains it stands; a shorter grace is passed on.
func (c *Core) endRun(r *run, t *plan.Terminate) {
	again := r.term != nil
	if again {
		t.Notice = ""
	}
	if !again || t.Grace < r.term.Grace {
		r.term = t
	}
	switch r.phase {
	case preparing:
		c.fx.Abort = append(c.fx.Abort, r.key)
	case tuning: // that takes no time; Tuned sees it
	case queued:
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
		c.fx.Terminate = append(c.fx.Terminate, *t)
	case closing:
		for _, s := range c.stepsOf(r.key) {
			c.endRun(s, &plan.Terminate{Key: s.key, Scope: plan.ScopeRun, Grace: t.Grace})
		}
	case measuring, cleaning, reported:
	}
}

// noticeLine is the line that a job finds in its error output.
func (c *Core) noticeLine(r *run, why string) string {
	if !r.facts.Batch && !r.isStep() {
		return ""
	}
	at := time.Unix(c.clock().Unix(), 0).In(c.location()).Format("2006-01-02T15:04:05")
	if why != "" {
		why = " " + why
	}
	what := fmt.Sprintf("JOB %d", r.facts.ID)
	if r.isStep() {
		what = fmt.Sprintf("STEP %d.%d", r.facts.ID, r.key.Step)
	}
	return fmt.Sprintf("*** %s ON %s CANCELLED AT %s%s ***", what, c.cfg.Node.Name, at, why)
}

func (c *Core) location() *time.Location {
	if c.cfg.Location != nil {
		return c.cfg.Location
	}
	return time.UTC
}

// passSignal passes a signal on, each once.
func (c *Core) passSignal(k plan.RunKey, s *apiv1.SignalRun) {
	r := c.runs[k]
	if r == nil || s.GetSeq() != 0 && s.GetSeq() <= r.signal {
		return
	}
	if s.GetMessage() != "" && s.GetSignal() == 0 {
		if r.phase == living {
			c.fx.Tell = append(c.fx.Tell, Line{k, s.GetMessage()})
		}
		return
	}
	r.signal = s.GetSeq()
	sig := Signal{Key: k, Number: s.GetSignal(), Scope: scopeOf(event.SignalScope(s.GetScope()))}
	if r.isStep() {
		sig.Scope = plan.ScopeRun
	}
	switch r.phase {
	case queued, preparing, tuning, asked:
		r.early = append(r.early, sig)
	case living:
		c.fx.Signal = append(c.fx.Signal, sig)
	case held: // nothing runs here but its steps
		if sig.Scope != plan.ScopeLeader && len(c.stepsOf(k)) > 0 {
			c.fx.Signal = append(c.fx.Signal, sig)
		}
	case closing, measuring, cleaning, reported:
	}
}

func scopeOf(s event.SignalScope) plan.Scope {
	switch s {
	case event.SignalBatch:
		return plan.ScopeLeader
	case event.SignalFull:
		return plan.ScopeJob
	case event.SignalSteps:
	}
	return plan.ScopeSteps
}
