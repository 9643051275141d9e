package daemon

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/nodeagent/energy"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// Agent runs a Core: it carries its effects out and tells it what happens.
type Agent struct {
	cfg  Config
	deps Deps
	log  *slog.Logger
	core *Core
	boot string

	// inbox holds what happened; only the owner's goroutine runs it, and only
	// there the core and the fields below are touched.
	inbox    *queue[func()]
	session  *session
	beat     spec.Span
	beatAt   spec.Instant
	listing  bool // a list is on its way
	trimming bool // images are being removed
	relist   bool // and another is wanted
	listAt   spec.Instant
	saveAt   spec.Instant
	dirty    bool                               // what metrics show of the jobs is old
	aborts   map[plan.RunKey]context.CancelFunc // of the prologs that run
	checkAt  spec.Instant                       // when the node's health is looked at next
	checks   bool                               // that is going on

	rulesAt   spec.Instant // when the rules are judged next
	rulesBusy bool         // that is going on
	welcomed  bool         // a controller has welcomed the agent before; the connector's
	load      int64
	free      int64
	vigil     vigil // over the shepherd
	// sweeping: private folders that no job needs are being removed.
	sweeping bool
	unable   string // why the shepherd can start no job as it is configured; empty where it can

	fetching map[plan.RunKey]context.CancelFunc // the images of these runs
	launches *launches
	tunes    *queue[func(context.Context)]
	forget   *queue[plan.RunKey]
	collect  chan struct{} // room for one token: read the GPUs now
	saves    chan []byte   // room for the newest state
	samples  sampleQueue
	measured atomic.Pointer[energy.Reading] // the newest of a slow meter
	// meterAt is when the meter was read last, meterFails that it could not be: of
	// the one goroutine that reads it.
	meterAt    spec.Instant
	meterFails bool
	counting   sync.Mutex // of countNode
	netTrouble string     // why the network is not counted, as it was said
	groups     map[plan.RunKey]uint64
	wg         sync.WaitGroup
	health     atomic.Pointer[Health]
}

// Health is how the agent does.
type Health struct {
	Shepherd  bool // answers
	Connected bool // to the controller
	Pending   int  // reports that wait
}

// The agent's own times.
const (
	tickEvery    = spec.Second
	listEvery    = 30 * spec.Second
	publishAfter = 100 * spec.Millisecond
)

// New makes an agent. Heard may be called from then on.
func New(config Config, deps Deps) *Agent {
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	agent := &Agent{
		cfg:    config,
		deps:   deps,
		log:    deps.Logger,
		load:   -1,
		free:   -1,
		inbox:  newQueue[func()](),
		forget: newQueue[plan.RunKey](),
		tunes:  newQueue[func(context.Context)](),
		launches: &launches{
			wake: make(chan struct{}, 1),
		},
		collect: make(chan struct{}, 1),
		saves:   make(chan []byte, 1),
	}
	agent.samples.wake = make(chan struct{}, 1)
	agent.groups = map[plan.RunKey]uint64{}
	agent.aborts, agent.fetching = map[plan.RunKey]context.CancelFunc{}, map[plan.RunKey]context.CancelFunc{}
	agent.core = NewCore(config, deps.Credentials, deps.Clock.Now, deps.Logger)
	agent.core.awaited = deps.awaitedSources()
	agent.core.identifies = deps.Accounts != nil
	agent.health.Store(&Health{})
	agent.vigil = newVigil(config.MessageTimeout)
	return agent
}

// Heard takes the shepherd's news; it never waits.
func (a *Agent) Heard(batch []plan.Event) {
	for i := range batch {
		a.countExits(batch[i].Exited)
	}
	a.inbox.putItems(func() {
		for i := range batch {
			if exit := batch[i].Exited; exit != nil {
				a.rememberGroups([]plan.Usage{exit.Usage})
			}
		}
		a.core.Heard(batch)
	})
}

// Health tells how the agent does.
func (a *Agent) Health() Health { return *a.health.Load() }

// Run is the agent's life. It returns when the context ends, with nil, or
// when the node cannot be read at all. Jobs go on.
func (a *Agent) Run(ctx context.Context) error {
	inventory, err := a.deps.Host.Inventory(ctx)
	if err != nil {
		return fmt.Errorf("this node cannot be registered: %w", err)
	}
	a.boot = inventory.BootID
	a.checkAt = a.deps.Clock.Now().Add(a.cfg.CheckFirst)
	a.restoreState()
	if err := a.learnNode(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	a.wg.Go(func() { a.runLauncher(ctx) })
	a.wg.Go(func() { a.runForgetter(ctx) })
	a.wg.Go(func() { a.runTuner(ctx) })
	a.wg.Go(func() { a.runSaver(ctx) })
	a.wg.Go(func() { a.runConnector(ctx) })
	a.wg.Go(func() { a.runCollector(ctx) })
	if a.deps.Meter != nil && a.deps.Meter.IsSlow() {
		a.wg.Go(func() { a.runMeter(ctx) })
	}
	if a.deps.GPUs != nil {
		a.wg.Go(func() { a.gpuCollector(ctx) })
		if a.deps.Samples != nil {
			a.wg.Go(func() { a.runShipper(ctx) })
		}
	}
	a.runOwner(ctx)
	a.wg.Wait()
	if data, err := a.core.Save(a.boot); err == nil {
		err = a.deps.Spool.Save(data)
		if err != nil {
			a.log.Warn(
				"the agent's state is not saved; GPU and memory figures of running jobs will have a gap",
				"error",
				err,
			)
		}
	}
	return nil
}

func (a *Agent) restoreState() {
	data, err := a.deps.Spool.Load()
	if err == nil && len(data) > 0 {
		err = a.core.Restore(data, a.boot)
	}
	if err != nil {
		a.log.Warn(
			"what the agent knew before is lost; GPU and memory figures of running jobs begin anew",
			"error",
			err,
		)
	}
}

// learnNode learns what this node has and what the shepherd runs: before that no
// order can be judged.
func (a *Agent) learnNode(ctx context.Context) error {
	if a.deps.GPUs != nil {
		devices, err := a.deps.GPUs.Inventory(ctx)
		if err != nil {
			return fmt.Errorf("this node's GPUs cannot be listed: %w", err)
		}
		a.core.SetDevices(devices)
		a.deps.Telemetry.SetDevices(devices)
	}
	wait := 50 * spec.Millisecond
	for {
		hello, err := a.deps.Shepherd.Hello(ctx)
		if err == nil {
			a.core.SetNode(hello.Enforces)
			a.judgeShepherd(&hello)
			a.followTree(&hello)
			a.core.Listing()
			var runs []plan.Observed
			runs, err = a.deps.Shepherd.List(ctx)
			if err == nil {
				a.core.Resync(runs)
				a.shepherdAnswered(nil)
				a.log.Info(
					"the shepherd answers",
					"release",
					hello.Release,
					"pid",
					hello.PID,
					"cgroups",
					hello.CgroupMode,
					"runs",
					len(runs),
				)
				for _, w := range hello.Degraded {
					a.log.Warn("this node is weaker than it should be", "because", w)
				}
				return nil
			}
		}
		if !errors.Is(err, ErrDown) {
			return fmt.Errorf("the shepherd does not answer as it should: %w", err)
		}
		if !a.sleepFor(ctx, wait) {
			return ctx.Err()
		}
		wait = min(2*wait, 2*spec.Second)
	}
}

// runOwner is the owner's goroutine.
func (a *Agent) runOwner(ctx context.Context) {
	tick, stopTick := a.deps.Clock.After(tickEvery)
	var publish <-chan struct{}
	stopPublish := func() {}
	defer func() { stopTick(); stopPublish() }()
	a.dirty = true
	for {
		a.carryOut(ctx)
		if a.dirty && publish == nil {
			publish, stopPublish = a.deps.Clock.After(publishAfter)
		}
		select {
		case <-ctx.Done():
			return
		case <-a.inbox.wake:
			for _, f := range a.inbox.take() {
				f()
			}
		case <-publish:
			publish = nil
			a.publishJobs()
		case <-tick:
			a.doDue(ctx)
			tick, stopTick = a.deps.Clock.After(tickEvery)
		}
	}
}

// doDue does what is due.
func (a *Agent) doDue(ctx context.Context) {
	a.core.Tick()
	now := a.deps.Clock.Now()
	a.watchShepherd(ctx)
	if a.session != nil && now >= a.beatAt {
		a.sendHeartbeats(now)
	}
	if a.relist || now >= a.listAt {
		a.listRuns(ctx)
	}
	if now >= a.saveAt {
		a.queueSave()
	}
	a.check(ctx, now)
}

// sendHeartbeats says that this node is alive, and whether it can start jobs.
func (a *Agent) sendHeartbeats(now spec.Instant) {
	a.beatAt = now.Add(a.beat)
	beat := &apiv1.Heartbeat{
		LoadMilli: a.load,
		MemFree:   a.free,
		Unready:   a.whyUnready(),
		Sent:      a.bootClock(),
	}
	a.session.sendMessage(&apiv1.AgentMessage{Kind: &apiv1.AgentMessage_Heartbeat{Heartbeat: beat}})
}

// whyUnready is why no job can start on this node; empty where one can.
func (a *Agent) whyUnready() string { return cmp.Or(a.vigil.trouble, a.cfg.Unable, a.unable) }

// judgeShepherd finds out whether the shepherd can do what the configuration asks for.
func (a *Agent) judgeShepherd(hello *plan.Hello) {
	a.unable = ""
	if space := a.cfg.Node.Space; space != nil && !hello.Enforces.Spaces {
		a.unable = fmt.Sprintf(
			"JobContainerType: jobs cannot have their own %s here: the shepherd is not root, or may not make mount namespaces",
			strings.Join(space.Dirs, " and "),
		)
		a.log.Error("this node takes no jobs", "because", a.unable)
	}
}

// carryOut does what the core asks for.
func (a *Agent) carryOut(ctx context.Context) {
	for {
		effects := a.core.Effects()
		a.identifyAccounts(ctx, effects.Identify)
		a.showDisplays(ctx, effects.Show)
		a.runScripts(ctx, &effects)
		for _, tune := range effects.Tune {
			a.queueTune(tune)
		}
		a.launchRuns(ctx, effects.Launch)
		for _, terminate := range effects.Terminate {
			a.askUntilAnswered(
				ctx,
				terminate.Key,
				"end",
				func(ctx context.Context) error {
					return a.deps.Shepherd.Terminate(ctx, terminate)
				},
			)
		}
		for _, line := range effects.Tell {
			a.askUntilAnswered(
				ctx,
				line.Key,
				"tell",
				func(ctx context.Context) error {
					return a.deps.Shepherd.Tell(ctx, line.Key, line.Text)
				},
			)
		}
		for _, signal := range effects.Signal {
			a.askUntilAnswered(
				ctx,
				signal.Key,
				"signal",
				func(ctx context.Context) error {
					return a.deps.Shepherd.Signal(ctx, signal.Key, signal.Number, signal.Scope)
				},
			)
		}
		a.forget.putItems(effects.Forget...)
		a.forgetGroups(effects.Forget)
		if effects.CountNode {
			a.wg.Go(func() { a.countNode(ctx) })
		}
		for range effects.Acked {
			a.deps.Telemetry.ReportSent()
		}
		a.dirty = a.dirty || effects.Jobs || effects.Acked > 0 || effects.Send
		if effects.Jobs {
			a.assignSimulated()
			a.keepClocks()
			a.keepDisplays()
		}
		if len(effects.Samples)+len(effects.Usage) > 0 && a.deps.Samples != nil {
			if lost := a.samples.putSamples(effects.Samples, effects.Usage); lost > 0 {
				a.deps.Telemetry.SamplesLost(lost)
			}
			a.deps.Telemetry.SetSamplesPending(a.samples.countWaiting())
		}
		if effects.Collect {
			putToken(a.collect)
		}
		if effects.List {
			a.listRuns(ctx)
		}
		if effects.Save {
			a.queueSave()
		}
		if effects.Reboot && a.deps.Reboot != nil {
			a.deps.Reboot()
		}
		if effects.Register != "" {
			a.log.Warn("the GPUs of this node have changed", "what", effects.Register)
			if a.session != nil {
				a.session.cancel(fmt.Errorf("%w: %s", errRegister, effects.Register))
				a.session = nil
				a.noteConnected(false)
			}
		}
		if effects.Leave != "" && a.session != nil {
			a.session.leaveController(effects.Leave)
		} else if a.session != nil && effects.Send {
			a.session.sendReports(a.core.Outgoing())
		}
		a.tellPrepared(effects.Prepared)
		if effects.TellKept && a.session != nil {
			a.session.sendKept(a.core.Kept())
		}
		if len(effects.Withdraw) == 0 {
			return
		}
		for _, key := range effects.Withdraw {
			if a.launches.withdrawRun(key) || a.abandonImage(key) {
				a.core.Withdrawn(key)
			}
		}
	}
}

// listRuns asks the shepherd for its runs; answers come one at a time.
func (a *Agent) listRuns(ctx context.Context) {
	if a.listing {
		a.relist = true
		return
	}
	a.listing, a.relist = true, false
	a.listAt = a.deps.Clock.Now().Add(listEvery)
	a.core.Listing()
	a.wg.Go(func() {
		holders := a.listHolders()
		runs, err := a.deps.Shepherd.List(ctx)
		spaces := a.listSpaces(ctx)
		a.inbox.putItems(func() {
			a.listing = false
			a.shepherdAnswered(err)
			if err != nil {
				a.relist = true // with the next tick
				return
			}
			a.core.Resync(runs)
			a.sweepSpaces(ctx, spaces)
			a.trimImages(holders, runs)
			a.keepClocks() // again, where it failed
			if a.relist {
				a.listRuns(ctx)
			}
		})
	})
}

// listSpaces asks which attempts have private folders; an answer that does not come
// is asked for again with the next list.
func (a *Agent) listSpaces(ctx context.Context) []plan.RunKey {
	list, err := a.deps.Shepherd.Spaces(ctx)
	if err != nil && ctx.Err() == nil && !errors.Is(err, ErrDown) {
		a.log.Warn("private folders of jobs cannot be listed", "error", err)
	}
	return list
}

// askUntilAnswered asks the shepherd until it has answered.
func (a *Agent) askUntilAnswered(
	ctx context.Context,
	key plan.RunKey,
	what string,
	request func(context.Context) error,
) {
	a.wg.Go(func() {
		wait := 50 * spec.Millisecond
		for {
			err := request(ctx)
			switch {
			case err == nil || ctx.Err() != nil:
				return
			case errors.Is(err, ErrNoRun):
				// Its end is on its way, or it is lost: a list will tell.
				a.inbox.putItems(func() { a.relist = true })
				return
			case !errors.Is(err, ErrDown):
				a.log.Error("the shepherd refuses", "to", what, aboutKey(key, 0), "error", err)
				return
			}
			if !a.sleepFor(ctx, wait) {
				return
			}
			wait = min(2*wait, 2*spec.Second)
		}
	})
}

// runLauncher hands the shepherd what has gathered, one call at a time.
func (a *Agent) runLauncher(ctx context.Context) {
	wait := 50 * spec.Millisecond
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.launches.wake:
		}
		batch := a.launches.nextRuns()
		if len(batch) == 0 {
			continue
		}
		results, err := a.deps.Shepherd.Launch(ctx, batch)
		switch {
		case err == nil:
			wait = 50 * spec.Millisecond
			a.inbox.putItems(func() { a.core.Launched(results) })
		case ctx.Err() != nil:
			return
		case errors.Is(err, ErrDown):
			a.launches.putBack(batch)
			if !a.sleepFor(ctx, wait) {
				return
			}
			wait = min(2*wait, 2*spec.Second)
		default:
			a.launchEach(ctx, batch, err)
		}
	}
}

// launchEach finds out which run of a batch cannot even be asked for.
func (a *Agent) launchEach(ctx context.Context, batch []plan.RunSpec, why error) {
	for i := range batch {
		var results []plan.LaunchResult
		if len(batch) > 1 {
			results, why = a.deps.Shepherd.Launch(ctx, batch[i:i+1])
			if errors.Is(why, ErrDown) {
				a.launches.putBack(batch[i:])
				return
			}
		}
		if why != nil {
			results = []plan.LaunchResult{
				{
					Key:    batch[i].Key,
					Status: plan.Refused,
					Code:   plan.RefusedSpec,
					Reason: why.Error(),
				},
			}
		}
		a.inbox.putItems(func() { a.core.Launched(results) })
	}
}

// runForgetter tells the shepherd which exits are recorded. One that it does not
// hear comes again as news, and then is told again.
func (a *Agent) runForgetter(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-a.forget.wake:
		}
		keys := a.forget.take()
		if err := a.deps.Shepherd.Ack(ctx, keys); err != nil && ctx.Err() == nil {
			a.log.Debug(
				"the shepherd did not take acknowledgements",
				"runs",
				len(keys),
				"error",
				err,
			)
		}
	}
}

func (a *Agent) sleepFor(ctx context.Context, d spec.Span) bool {
	fires, stop := a.deps.Clock.After(d)
	defer stop()
	select {
	case <-fires:
		return true
	case <-ctx.Done():
		return false
	}
}

// queueSave puts the state where the saver finds the newest.
func (a *Agent) queueSave() {
	a.saveAt = a.deps.Clock.Now().Add(max(a.cfg.Interval, 2*spec.Second))
	data, err := a.core.Save(a.boot)
	if err != nil {
		a.log.Error("the agent's state cannot be saved", "error", err)
		return
	}
	select {
	case <-a.saves:
	default:
	}
	select {
	case a.saves <- data:
	default:
	}
}

// runSaver writes the state; a slow disk delays nobody.
func (a *Agent) runSaver(ctx context.Context) {
	failing := false
	var last []byte
	for {
		select {
		case <-ctx.Done():
			return
		case data := <-a.saves:
			if bytes.Equal(data, last) {
				continue
			}
			err := a.deps.Spool.Save(data)
			if err == nil {
				last = data
			}
			if err != nil && !failing {
				a.log.Warn(
					"the agent's state is not saved; after a restart, GPU and memory figures of running jobs would have a gap",
					"error",
					err,
				)
			}
			failing = err != nil
		}
	}
}

// noteConnected notes whether there is a stream to the controller.
func (a *Agent) noteConnected(yes bool) {
	a.deps.Telemetry.SetControllerConnected(yes)
	health := a.Health()
	health.Connected = yes
	a.health.Store(&health)
}

// publishJobs shows the jobs as they are now.
func (a *Agent) publishJobs() {
	a.dirty = false
	a.deps.Telemetry.SetJobs(a.core.Jobs())
	a.deps.Telemetry.SetReportsPending(a.core.Pending())
	health := a.Health()
	health.Pending = a.core.Pending()
	a.health.Store(&health)
}

// makeRegistration is what the agent says first.
func (a *Agent) makeRegistration(ctx context.Context) (*apiv1.Registration, error) {
	inventory, err := a.deps.Host.Inventory(ctx)
	if err != nil {
		return nil, err
	}
	inventory.AgentStarted, inventory.AgentVersion = a.cfg.Started, a.cfg.Version
	var weak []string
	if hello, err := a.deps.Shepherd.Hello(ctx); err == nil {
		weak = append(weak, hello.Degraded...)
	}
	if a.deps.GPUs != nil {
		devices, err := a.deps.GPUs.Inventory(ctx)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil { // the node has more than GPUs
			weak = append(weak, "this node's GPUs cannot be listed, the last list stands: "+
				err.Error())
			a.log.Warn("this node's GPUs cannot be listed; the last list stands", "error", err)
		}
		devices = a.noteGPUs(ctx, devices, err == nil)
		inventory.GPUs = gpuInventory(devices, a.cfg.Declared, a.deps.GPUs.Name())
	}
	weak = append(weak, checkDeclared(inventory.GPUs, a.cfg.Declared))
	for _, gres := range a.cfg.Declared {
		if gres.Name != "gpu" {
			inventory.GRES = append(
				inventory.GRES, spec.Count{Name: gres.Name, Type: gres.Type, N: gres.N},
			)
		}
	}
	inventory.Degraded = joinText(append([]string{inventory.Degraded}, weak...))
	running, seen := a.runningRuns(ctx)
	reg := a.cfg.makeRegistration(&inventory, running, seen)
	reg.Outputs = a.deps.Outputs != nil
	reg.Rereads = a.deps.Reread != nil
	reg.Prepares = true
	reg.Sent, reg.Leases = a.bootClock(), a.deps.BootClock != nil
	return reg, nil
}

// noteGPUs tells the owner which GPUs there are, or that it could not be found
// out, and gives those that the node registers.
func (a *Agent) noteGPUs(ctx context.Context, devices []device.Device, known bool) []device.Device {
	got := make(chan []device.Device, 1)
	a.inbox.putItems(func() {
		a.core.unlisted = !known
		if known {
			list := a.core.Missed(devices)
			a.core.SetDevices(list)
			a.deps.Telemetry.SetDevices(list)
		}
		got <- a.core.known
	})
	select {
	case list := <-got:
		return list
	case <-ctx.Done():
		return nil
	}
}

// runningRuns asks the owner which runs hold the node.
func (a *Agent) runningRuns(ctx context.Context) ([]*apiv1.HeldRun, *apiv1.LedgerPosition) {
	type answer struct {
		runs []*apiv1.HeldRun
		seen *apiv1.LedgerPosition
	}
	got := make(chan answer, 1)
	a.inbox.putItems(func() { got <- answer{a.core.Held(), a.core.Seen()} })
	select {
	case x := <-got:
		return x.runs, x.seen
	case <-ctx.Done():
		return nil, nil
	}
}

// joinText joins sentences, without the empty ones.
func joinText(list []string) string {
	var out []string
	for _, s := range list {
		if s != "" {
			out = append(out, s)
		}
	}
	return strings.Join(out, "; ")
}
