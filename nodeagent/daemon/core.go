package daemon

import (
	"fmt"
	"log/slog"
	"slices"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/nodeagent/energy"
	"github.com/musterhpc/muster/nodeagent/gpu/attrib"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// phase is where a run is in its life; see the package's comment.
type phase uint8

const (
	queued      phase = iota + 1 // a step whose job has not begun here
	identifying                  // the account of its user is looked up
	containing                   // its extern step begins, and nothing of it before
	displaying                   // its X display is opened
	preparing                    // its prolog runs
	deferred                     // the prologs of other nodes are not over
	tuning                       // the clocks of its GPUs are set
	asked                        // the launcher has it
	living                       // the shepherd has it
	held                         // a part of an allocation without a script
	closing                      // over but for its steps, which are being ended
	measuring                    // over; one more reading of its GPUs is awaited
	cleaning                     // its epilog runs
	reported                     // over; the report waits for its acknowledgement
)

// run is one attempt on this node.
type run struct {
	key    plan.RunKey
	launch spec.Hash // identity of what was launched; zero where it is not known
	seq    uint64    // of the ledger's event that started the attempt; 0 = not known
	order  []byte    // as in plan.RunSpec; nil where it is not known, or nothing runs
	next   int32     // above all steps of the attempt that were seen here
	user   uint32    // whose it is
	group  uint32    // and that user's group
	phase  phase
	facts  facts
	wanted bool          // by the controller
	spec   *plan.RunSpec // until the shepherd has it; nil for a held part
	// awaits goes on with the run when its user's account is known; set while it is
	// identified.
	awaits func(Account, []string)
	env    []string        // of prolog and epilog; nil = neither ran nor is to run
	usage  *spec.Usage     // while its epilog runs
	since  spec.Instant    // first asked, or first measuring
	retry  bool            // refused for now: ask again
	term   *plan.Terminate // asked for
	signal uint64          // sequence number of the last signal
	early  []Signal        // that wait for its start
	socket string          // of a step's part: where its input and output are
	from   spec.Instant    // start on this node
	exit   *plan.Exit      // nil for a held part
	memory memoryUse
	usedAt cpuMark     // at its last sample
	slot   int64       // of its last sample
	steps  spec.Usage  // of its steps here that are over
	extern *spec.Usage // of its extern step, which is over; steps has it too
	summed int64       // most memory that it and its steps had at a time
	unborn bool        // its prolog ran, and nothing else of it
	tells  bool        // the controller wants to know when its prolog is over
	waits  bool        // its script waits until the controller says so
	over   bool        // being killed for its memory
	stuck  bool        // it was said that it cannot be killed
	// awaitsGPUs and awaitsCount tell what it still waits for while it is measured.
	awaitsGPUs, awaitsCount bool
}

// facts are whose run it is: what metrics and the spool need of the order.
type facts struct {
	Batch     bool     `json:"batch,omitempty"`
	ID        uint64   `json:"id,omitempty"`
	User      string   `json:"user,omitempty"`
	Account   string   `json:"account,omitempty"`
	Partition string   `json:"partition,omitempty"`
	CPUs      int      `json:"cpus,omitempty"`
	MemoryMiB int64    `json:"memory_mib,omitempty"`
	GPUs      []string `json:"gpus,omitempty"` // UUIDs
	Load      string   `json:"load,omitempty"` // for simulated devices
	// Every is the time between samples of what it uses; 0 = as configured,
	// negative = never.
	Every spec.Span `json:"every,omitempty"`
	Freq  string    `json:"freq,omitempty"` // clocks of its GPUs, as --gpu-freq has them
	// X11 tells that it is to have an X display here, and Display by which variables its
	// programs find it, once it has.
	X11     bool     `json:"x11,omitempty"`
	Display []string `json:"display,omitempty"`
	// Shares are the parts of devices that it has; such a device is of several
	// runs at once, so that its own figures are of none of them.
	Shares []share `json:"shares,omitempty"`
}

// share is a part of a device: N of its Of shards, of mps or of bytes.
type share struct {
	UUID string `json:"uuid"`
	Name string `json:"name"`
	N    int64  `json:"n"`
	Of   int64  `json:"of"`
}

// whole is all of a device, in thousandths.
const whole = 1000

// inThousandths is the part of the device: of what is shared so coarsely that it
// would round to nothing, one.
func (s *share) inThousandths() int64 {
	if s.Of <= 0 || s.N >= s.Of {
		return whole - 1 // all of what can be shared is a share still
	}
	n, of := s.N, s.Of
	for of > 1<<40 { // so that the product fits
		n, of = n>>1, of>>1
	}
	return max(1, n*whole/of)
}

// partsOf are shares as metrics show them.
func partsOf(list []share) []GPUPart {
	var parts []GPUPart
	for i := range list {
		parts = append(parts, GPUPart{UUID: list[i].UUID, Share: int(list[i].inThousandths())})
	}
	return parts
}

func (r *run) jobUID() spec.JobUID { return spec.JobUID(r.key.Job) }

// Core is the agent's state. It belongs to one goroutine.
type Core struct {
	cfg   Config
	creds Credentials
	clock func() spec.Instant
	log   *slog.Logger

	runs     map[plan.RunKey]*run
	desired  map[plan.RunKey]bool // of the last Welcome, without an order yet
	unknown  map[plan.RunKey]bool // jobs of the last Welcome that the controller's ledger does not know
	adopted  map[plan.RunKey]bool // scripts that were adopted and of which no list has said whether they are here
	seen     position             // the last position of its ledger that the controller sent
	complete bool                 // there was a Welcome in this life
	refused  bool                 // the connection is of a controller that is not followed: nothing of it counts
	stream   uint64               // number of the connection
	cluster  [16]byte             // zero before the first Welcome
	killWait spec.Span
	memory   plan.Memory
	snapshot map[plan.RunKey]bool // what lived when a list was asked for
	outbox   outbox
	faults   faults
	awaited  [checkSources]bool   // who has not looked at the node's health yet
	found    [checkSources]string // what each found wrong
	checked  bool                 // the controller knows the node's health
	unwell   string               // what the controller heard last
	reboot   uint64               // the last reboot that was ordered
	recent   recent

	devices map[string]device.Device // by UUID, instances too
	book    *attrib.Book
	gpus    bool // there is a provider
	// identifies tells that accounts can be looked up here.
	identifies bool
	energy     energyState
	sole       soleJob

	known      []device.Device      // the inventory
	unlisted   bool                 // when the node registered, it could not be read
	units      map[string]unitFacts // devices and instances, by UUID
	sampleSlot int64                // of the clock, in which the last sample was taken

	fx Effects
}

// NewCore makes the state of an agent that knows nothing yet.
func NewCore(config Config, creds Credentials, now func() spec.Instant, logger *slog.Logger) *Core {
	core := &Core{
		cfg:      config,
		creds:    creds,
		clock:    now,
		log:      logger,
		runs:     map[plan.RunKey]*run{},
		desired:  map[plan.RunKey]bool{},
		unknown:  map[plan.RunKey]bool{},
		adopted:  map[plan.RunKey]bool{},
		snapshot: map[plan.RunKey]bool{},
		devices:  map[string]device.Device{},
		killWait: 30 * spec.Second,
		book:     attrib.NewBook(gapOf(config.Interval)),
	}
	if config.EnergyEvery > 0 {
		cpus := int64(config.Node.CPUs.Count())
		core.energy.book = energy.NewBook(cpus, config.EnergyGap, config.IdleMilliWatts)
	}
	return core
}

// gapOf is the longest time between two readings that still tells what was in
// between.
func gapOf(interval spec.Span) spec.Span { return max(3*interval, 3*spec.Second) }

// Effects gives what is to be done, once.
func (c *Core) Effects() Effects {
	effects := c.fx
	c.fx = Effects{}
	return effects
}

// SetNode replaces what the node can do: the shepherd has said.
func (c *Core) SetNode(enforces plan.Enforces) { c.cfg.Node.Enforces = enforces }

// SetDevices replaces the inventory of GPUs.
func (c *Core) SetDevices(list []device.Device) {
	c.gpus, c.known = true, list
	c.devices = make(map[string]device.Device, len(list))
	c.units = make(map[string]unitFacts, len(list))
	parts := map[string]attrib.Part{}
	for i := range list {
		c.units[list[i].UUID] = unitFacts{index: uint32(list[i].Index)}
		for _, mig := range list[i].MIG {
			c.units[mig.UUID] = unitFacts{uint32(list[i].Index), mig.Profile}
			parts[mig.UUID] = attrib.Part{Device: list[i].UUID, Slices: mig.Slices}
		}
		for _, gpu := range allocatableDevices(&list[i]) {
			c.devices[gpu.UUID] = gpu
		}
	}
	c.book.SetParts(parts)
	c.cfg.Node.HasGPUs = len(list) > 0
}

// Running lists the runs that hold the node, in order of their keys.
func (c *Core) Running() []plan.RunKey {
	var keys []plan.RunKey
	for key, r := range c.runs {
		if r.phase != reported {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, plan.RunKey.Compare)
	return keys
}

// Pending is the number of reports that wait for their acknowledgement.
func (c *Core) Pending() int { return len(c.outbox.queue) }

// Outgoing gives the reports to send now.
func (c *Core) Outgoing() []*apiv1.Report {
	if c.refused {
		return nil
	}
	return c.outbox.take()
}

// UseKeys takes the public keys of credentials that are good from now on. It tells
// whether they can be used; the connection ends where they cannot.
func (c *Core) UseKeys(keys [][]byte) bool { return !c.refused && c.useKeys(keys) }

func (c *Core) useKeys(keys [][]byte) bool {
	if err := c.creds.Use(keys, c.cluster); err != nil {
		c.fx.Leave = fmt.Sprintf("the controller's credential keys cannot be used: %v", err)
		return false
	}
	return true
}

// Welcome begins a connection. It may refuse it, and leave: what the controller has sent behind its
// welcome by then counts as little as what it says of itself. What the controller does not name is either
// over, and its report repeated, or an orphan, which the next Resync finds.
func (c *Core) Welcome(welcome *apiv1.Welcome) {
	c.refused = true
	var cluster [16]byte
	if len(welcome.GetClusterUuid()) != len(cluster) {
		c.fx.Leave = fmt.Sprintf(
			"the controller names its cluster by %d bytes, want %d: its release does not fit this agent's",
			len(welcome.GetClusterUuid()),
			len(cluster),
		)
		return
	}
	copy(cluster[:], welcome.GetClusterUuid())
	if c.cluster != cluster {
		if c.cluster != ([16]byte{}) {
			c.fx.Leave = fmt.Sprintf(
				"this node belongs to another cluster (%x) than the controller's (%x, %s): give the agent an empty state folder to move the node",
				c.cluster,
				cluster,
				welcome.GetCluster(),
			)
			return
		}
		c.cluster, c.fx.Save = cluster, true
	}
	if c.isOutdated(welcome) {
		return
	}
	if !c.useKeys(welcome.GetCredentialKeys()) {
		return
	}
	c.refused = false
	if welcome.GetKillWait() > 0 {
		c.killWait = spec.Span(welcome.GetKillWait())
	}
	c.stream++
	c.complete = true
	clear(c.desired)
	for _, key := range welcome.GetDesired() {
		c.desired[runKey(key)] = true
	}
	c.setUnknown(welcome.GetUnknown())
	for _, key := range c.sortedKeys() {
		r := c.runs[key]
		r.wanted = c.wantsAttempt(key)
		if r.wanted {
			continue
		}
		switch r.phase {
		case queued, identifying: // nothing of it was done
			c.releaseRun(r)
		case held:
			c.releaseRun(r) // given away long ago: nothing to tell
		case asked:
			c.endRun(r, &plan.Terminate{Key: key, Scope: plan.ScopeJob})
		case containing, displaying, preparing, deferred, tuning:
			c.endRun(r, &plan.Terminate{Key: key, Scope: plan.ScopeJob})
		case living, closing, measuring, cleaning, reported:
		}
	}
	c.outbox.rewindReports()
	c.fx.Send = true
	c.fx.List = true
	c.fx.Jobs = true
	c.fx.TellKept = len(c.unknown) > 0
}

// wantsAttempt tells whether the controller names the attempt.
func (c *Core) wantsAttempt(key plan.RunKey) bool {
	return c.desired[key] || c.desired[jobKey(key)]
}

// sortedKeys lists all runs in order, so that effects have an order too.
func (c *Core) sortedKeys() []plan.RunKey {
	keys := make([]plan.RunKey, 0, len(c.runs))
	for key := range c.runs {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, plan.RunKey.Compare)
	return keys
}

// Ack takes back the reports that are in the ledger. What was over with them
// is forgotten, here and by the shepherd.
func (c *Core) Ack(upTo uint64) {
	if c.refused {
		return
	}
	for _, p := range c.outbox.ackReports(upTo) {
		c.fx.Acked++
		if p.report.GetGpuFault() != nil {
			c.faults.due--
		}
		if !p.last {
			continue
		}
		r := c.runs[p.run]
		var launch spec.Hash
		if r != nil {
			launch = r.launch
		}
		c.recent.addEnded(p.run, p.report, launch)
		c.memory.Confirmed(p.run)
		delete(c.desired, p.run)
		if r == nil || r.phase != reported {
			continue
		}
		delete(c.runs, p.run)
		if r.exit != nil {
			c.fx.Forget = append(c.fx.Forget, p.run)
		}
	}
}

// Tick lets time pass.
func (c *Core) Tick() {
	now := c.clock()
	for _, key := range c.sortedKeys() {
		r := c.runs[key]
		switch {
		case r.phase == measuring && now.Sub(r.since) > measureWait:
			c.log.Warn("a run is reported without a last reading of its GPUs", aboutRun(r))
			c.finishRun(r)
		case r.phase == asked && r.retry:
			r.retry = false
			c.fx.Launch = append(c.fx.Launch, *r.spec)
		}
	}
}

// measureWait bounds the wait for a reading after the end of a run.
const measureWait = 5 * spec.Second

// Listing notes what lives now, just before the shepherd is asked for its
// list: what it begins later may be missing in the answer.
func (c *Core) Listing() {
	clear(c.snapshot)
	for key, r := range c.runs {
		if r.phase == living {
			c.snapshot[key] = true
		}
	}
}

// Resync compares what the controller wants with what the shepherd has.
func (c *Core) Resync(seen []plan.Observed) {
	input := plan.Input{
		Now:      c.clock(),
		Stream:   c.stream,
		Complete: c.complete,
		Observed: seen,
		Up:       true,
		Unknown:  c.unknown,
	}
	observed := make(map[plan.RunKey]bool, len(seen))
	for i := range seen {
		observed[seen[i].Key] = true
		c.adoptRun(&seen[i])
		c.reportUnkillable(&seen[i])
	}
	for _, key := range c.sortedKeys() {
		r := c.runs[key]
		switch {
		case !c.complete:
			continue // nothing is concluded before the controller has spoken
		case !observed[key] && (!c.snapshot[key] || r.phase != living):
			continue
		case !r.wanted && !observed[key]:
			c.releaseRun(r) // known from the spool, and over long ago
			continue
		case !r.wanted:
			continue
		}
		wish := plan.Wish{Key: key, Begun: r.phase == living}
		if r.term != nil && r.phase == living {
			wish.Stop, wish.Grace = true, r.term.Grace
		}
		input.Wishes = append(input.Wishes, wish)
	}
	for _, action := range c.memory.Step(input, c.cfg.Orphans) {
		c.carryAction(action)
	}
	c.missAdopted()
}

// reportUnkillable says once that processes outlive SIGKILL: their node needs help.
func (c *Core) reportUnkillable(observed *plan.Observed) {
	r := c.runs[observed.Key]
	if r == nil || r.stuck || observed.State == plan.Exited {
		return
	}
	if c.cfg.UnkillableAfter <= 0 || observed.KillSent == 0 ||
		c.clock().Sub(observed.KillSent) < c.cfg.UnkillableAfter {
		return
	}
	r.stuck = true
	c.log.Error(
		"processes of a job cannot be killed; the job keeps the node until they are gone",
		aboutKey(observed.Key, observed.JobID),
		"pid",
		observed.PID,
		"seconds",
		c.clock().Sub(observed.KillSent).Seconds(),
	)
}

// carryAction takes one action of the plan. Launches and starts need none: orders
// and the shepherd's news bring them.
func (c *Core) carryAction(action plan.Action) {
	switch action.Kind {
	case plan.DoAck:
		c.fx.Forget = append(c.fx.Forget, action.Key)
	case plan.ReportExit:
		c.noteExited(action.Exit)
	case plan.ReportMissing:
		if r := c.runs[action.Key]; r != nil && r.phase == living {
			c.log.Error("a run is lost: the shepherd does not know it", aboutRun(r))
			c.noteExited(
				&plan.Exit{
					Key:     action.Key,
					Failure: plan.Lost,
					Start:   r.from,
					End:     c.clock(),
					Message: "the node's shepherd does not know the run any more",
				},
			)
		}
	case plan.ReportOrphan:
		c.log.Warn(
			"a run is here that the controller does not know",
			aboutKey(action.Key, action.Observed.JobID),
			"pid",
			action.Observed.PID,
		)
	case plan.DoTerminate:
		terminate := plan.Terminate{
			Key:   action.Key,
			Scope: scopeOfRun(action.Key),
			Grace: action.Grace,
		}
		if r := c.runs[action.Key]; r != nil && r.term == nil {
			terminate.Notice = c.noticeLine(r, "")
			r.term = &terminate
		}
		c.fx.Terminate = append(c.fx.Terminate, terminate)
	case plan.ReportStarted, plan.DoLaunch:
	}
}

// adoptRun learns of a living run that this life of the agent did not start.
func (c *Core) adoptRun(observed *plan.Observed) {
	if observed.State == plan.Exited || c.recent.of[observed.Key] != nil {
		return
	}
	r := c.runs[observed.Key]
	if r == nil {
		r = &run{
			key:    observed.Key,
			wanted: c.wantsAttempt(observed.Key),
			facts:  facts{Batch: observed.Key.Step == plan.StepBatch, ID: observed.JobID},
		}
		c.runs[observed.Key] = r
	}
	if r.phase == 0 || r.phase == asked {
		c.noteLive(r)
	}
	r.socket = observed.Socket
	r.launch = observed.Launch
	r.seq = observed.Seq
	if r.order == nil && len(observed.Order) > 0 {
		r.order = observed.Order
		c.fx.TellKept = c.fx.TellKept || c.unknown[r.key]
	}
	c.noteStep(observed.Key)
	r.user = observed.UID
	if observed.Start != 0 {
		c.noteBegan(r, observed.Start)
		c.externBegan(r.key)
	}
}
