package daemon

import (
	"fmt"
	"log/slog"
	"slices"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/nodeagent/gpu/attrib"
	"github.com/musterhpc/muster/nodeagent/gpu/device"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// phase is where a run is in its life; see the package's comment.
type phase uint8

const (
	queued    phase = iota + 1 // a step whose job has not begun here
	preparing                  // its prolog runs
	tuning                     // the clocks of its GPUs are set
	asked                      // the launcher has it
	living                     // the shepherd has it
	held                       // a part of an allocation without a script
	closing                    // over but for its steps, which are being ended
	measuring                  // over; one more reading of its GPUs is awaited
	cleaning                   // its epilog runs
	reported                   // over; the report waits for its acknowledgement
)

// run is one attempt on this node.
type run struct {
	key    plan.RunKey
	launch spec.Hash // identity of what was launched; zero where it is not known
	seq    uint64    // of the ledger's event that started the attempt; 0 = not known
	user   uint32    // whose it is
	phase  phase
	facts  facts
	wanted bool            // by the controller
	spec   *plan.RunSpec   // until the shepherd has it; nil for a held part
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
	usedAt cpuMark    // at its last sample
	slot   int64      // of its last sample
	steps  spec.Usage // of its steps here that are over
	summed int64      // most memory that it and its steps had at a time
	unborn bool       // its prolog ran, and nothing else of it
	over   bool       // being killed for its memory
	stuck  bool       // it was said that it cannot be killed
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
	var out []GPUPart
	for i := range list {
		out = append(out, GPUPart{UUID: list[i].UUID, Share: int(list[i].inThousandths())})
	}
	return out
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
	seen     position             // the last that the controller told of its ledger
	complete bool                 // there was a Welcome in this life
	stream   uint64               // number of the connection
	cluster  [16]byte             // zero before the first Welcome
	killWait spec.Span
	memory   plan.Memory
	snapshot map[plan.RunKey]bool // what lived when a list was asked for
	outbox   outbox
	faults   faults
	checked  bool   // the node's health has been looked at
	unwell   string // what was wrong with it
	reboot   uint64 // the last reboot that was ordered
	recent   recent

	devices map[string]device.Device // by UUID, instances too
	book    *attrib.Book
	gpus    bool // there is a provider

	known      []device.Device      // the inventory
	unlisted   bool                 // when the node registered, it could not be read
	units      map[string]unitFacts // devices and instances, by UUID
	sampleSlot int64                // of the clock, in which the last sample was taken

	fx Effects
}

// NewCore makes the state of an agent that knows nothing yet.
func NewCore(cfg Config, creds Credentials, now func() spec.Instant, log *slog.Logger) *Core {
	return &Core{cfg: cfg, creds: creds, clock: now, log: log, runs: map[plan.RunKey]*run{}, desired: map[plan.RunKey]bool{}, unknown: map[plan.RunKey]bool{},
		snapshot: map[plan.RunKey]bool{}, devices: map[string]device.Device{}, killWait: 30 * spec.Second,
		book: attrib.NewBook(gapOf(cfg.Interval))}
}

// gapOf is the longest time between two readings that still tells what was in
// between.
func gapOf(interval spec.Span) spec.Span { return max(3*interval, 3*spec.Second) }

// Effects gives what is to be done, once.
func (c *Core) Effects() Effects {
	fx := c.fx
	c.fx = Effects{}
	return fx
}

// SetNode replaces what the node can do: the shepherd has said.
func (c *Core) SetNode(e plan.Enforces) { c.cfg.Node.Enforces = e }

// SetDevices replaces the inventory of GPUs.
func (c *Core) SetDevices(list []device.Device) {
	c.gpus, c.known = true, list
	c.devices = make(map[string]device.Device, len(list))
	c.units = make(map[string]unitFacts, len(list))
	parts := map[string]attrib.Part{}
	for i := range list {
		c.units[list[i].UUID] = unitFacts{index: uint32(list[i].Index)}
		for _, m := range list[i].MIG {
			c.units[m.UUID] = unitFacts{uint32(list[i].Index), m.Profile}
			parts[m.UUID] = attrib.Part{Device: list[i].UUID, Slices: m.Slices}
		}
		for _, d := range allocatableDevices(&list[i]) {
			c.devices[d.UUID] = d
		}
	}
	c.book.SetParts(parts)
	c.cfg.Node.HasGPUs = len(list) > 0
}

// Running lists the runs that hold the node, in order of their keys.
func (c *Core) Running() []plan.RunKey {
	var out []plan.RunKey
	for k, r := range c.runs {
		if r.phase != reported {
			out = append(out, k)
		}
	}
	slices.SortFunc(out, plan.RunKey.Compare)
	return out
}

// Pending is the number of reports that wait for their acknowledgement.
func (c *Core) Pending() int { return len(c.outbox.queue) }

// Outgoing gives the reports to send now.
func (c *Core) Outgoing() []*apiv1.Report { return c.outbox.take() }

// UseKeys takes the public keys of credentials that are good from now on. It tells
// whether they can be used; the connection ends where they cannot.
func (c *Core) UseKeys(keys [][]byte) bool {
	if err := c.creds.Use(keys, c.cluster); err != nil {
		c.fx.Leave = fmt.Sprintf("the controller's credential keys cannot be used: %v", err)
		return false
	}
	return true
}

// Welcome begins a connection. What the controller does not name is either
// over, and its report repeated, or an orphan, which the next Resync finds.
func (c *Core) Welcome(w *apiv1.Welcome) {
	var cluster [16]byte
	if len(w.GetClusterUuid()) != len(cluster) {
		c.fx.Leave = fmt.Sprintf("the controller names its cluster by %d bytes, want %d: its release does not fit this agent's", len(w.GetClusterUuid()), len(cluster))
		return
	}
	copy(cluster[:], w.GetClusterUuid())
	if c.cluster != cluster {
		if c.cluster != ([16]byte{}) {
			c.fx.Leave = fmt.Sprintf("this node belongs to another cluster (%x) than the controller's (%x, %s): give the agent an empty state folder to move the node",
				c.cluster, cluster, w.GetCluster())
			return
		}
		c.cluster, c.fx.Save = cluster, true
	}
	if c.isOutdated(w) {
		return
	}
	if !c.UseKeys(w.GetCredentialKeys()) {
		return
	}
	if w.GetKillWait() > 0 {
		c.killWait = spec.Span(w.GetKillWait())
	}
	c.stream++
	c.complete = true
	clear(c.desired)
	for _, k := range w.GetDesired() {
		c.desired[runKey(k)] = true
	}
	c.setUnknown(w.GetUnknown())
	for _, k := range c.sortedKeys() {
		r := c.runs[k]
		r.wanted = c.wantsAttempt(k)
		if r.wanted {
			continue
		}
		switch r.phase {
		case queued:
			c.releaseRun(r)
		case held:
			c.releaseRun(r) // given away long ago: nothing to tell
		case asked:
			c.endRun(r, &plan.Terminate{Key: k, Scope: plan.ScopeJob})
		case preparing, tuning:
			c.endRun(r, &plan.Terminate{Key: k, Scope: plan.ScopeJob})
		case living, closing, measuring, cleaning, reported:
		}
	}
	c.outbox.rewindReports()
	c.fx.Send = true
	c.fx.List = true
	c.fx.Jobs = true
}

// wantsAttempt tells whether the controller names the attempt.
func (c *Core) wantsAttempt(k plan.RunKey) bool {
	return c.desired[k] || c.desired[jobKey(k)]
}

// sortedKeys lists all runs in order, so that effects have an order too.
func (c *Core) sortedKeys() []plan.RunKey {
	out := make([]plan.RunKey, 0, len(c.runs))
	for k := range c.runs {
		out = append(out, k)
	}
	slices.SortFunc(out, plan.RunKey.Compare)
	return out
}

// Ack takes back the reports that are in the ledger. What was over with them
// is forgotten, here and by the shepherd.
func (c *Core) Ack(upTo uint64) {
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
	for _, k := range c.sortedKeys() {
		r := c.runs[k]
		switch {
		case r.phase == measuring && now.Sub(r.since) > measureWait:
			c.log.Warn("a run is reported without a last reading of its GPUs", "run", k.String())
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
	for k, r := range c.runs {
		if r.phase == living {
			c.snapshot[k] = true
		}
	}
}

// Resync compares what the controller wants with what the shepherd has.
func (c *Core) Resync(seen []plan.Observed) {
	in := plan.Input{Now: c.clock(), Stream: c.stream, Complete: c.complete, Observed: seen, Up: true, Unknown: c.unknown}
	observed := make(map[plan.RunKey]bool, len(seen))
	for i := range seen {
		observed[seen[i].Key] = true
		c.adoptRun(&seen[i])
		c.reportUnkillable(&seen[i])
	}
	for _, k := range c.sortedKeys() {
		r := c.runs[k]
		switch {
		case !c.complete:
			continue // nothing is concluded before the controller has spoken
		case !observed[k] && (!c.snapshot[k] || r.phase != living):
			continue
		case !r.wanted && !observed[k]:
			c.releaseRun(r) // known from the spool, and over long ago
			continue
		case !r.wanted:
			continue
		}
		w := plan.Wish{Key: k, Begun: r.phase == living}
		if r.term != nil && r.phase == living {
			w.Stop, w.Grace = true, r.term.Grace
		}
		in.Wishes = append(in.Wishes, w)
	}
	for _, a := range c.memory.Step(in, c.cfg.Orphans) {
		c.carryAction(a)
	}
}

// reportUnkillable says once that processes outlive SIGKILL: their node needs help.
func (c *Core) reportUnkillable(o *plan.Observed) {
	r := c.runs[o.Key]
	if r == nil || r.stuck || o.KillSent == 0 || o.State == plan.Exited || c.cfg.UnkillableAfter <= 0 || c.clock().Sub(o.KillSent) < c.cfg.UnkillableAfter {
		return
	}
	r.stuck = true
	c.log.Error("processes of a job cannot be killed; the job keeps the node until they are gone", "run", o.Key.String(), "job", o.JobID, "pid", o.PID,
		"seconds", c.clock().Sub(o.KillSent).Seconds())
}

// carryAction takes one action of the plan. Launches and starts need none: orders
// and the shepherd's news bring them.
func (c *Core) carryAction(a plan.Action) {
	switch a.Kind {
	case plan.DoAck:
		c.fx.Forget = append(c.fx.Forget, a.Key)
	case plan.ReportExit:
		c.noteExited(a.Exit)
	case plan.ReportMissing:
		if r := c.runs[a.Key]; r != nil && r.phase == living {
			c.log.Error("a run is lost: the shepherd does not know it", "run", a.Key.String())
			c.noteExited(&plan.Exit{Key: a.Key, Failure: plan.Lost, Start: r.from, End: c.clock(), Message: "the node's shepherd does not know the run any more"})
		}
	case plan.ReportOrphan:
		c.log.Warn("a run is here that the controller does not know", "run", a.Key.String(), "job", a.Observed.JobID, "pid", a.Observed.PID)
	case plan.DoTerminate:
		t := plan.Terminate{Key: a.Key, Scope: scopeOfRun(a.Key), Grace: a.Grace}
		if r := c.runs[a.Key]; r != nil && r.term == nil {
			t.Notice = c.noticeLine(r, "")
			r.term = &t
		}
		c.fx.Terminate = append(c.fx.Terminate, t)
	case plan.ReportStarted, plan.DoLaunch:
	}
}

// adoptRun learns of a living run that this life of the agent did not start.
func (c *Core) adoptRun(o *plan.Observed) {
	if o.State == plan.Exited || c.recent.of[o.Key] != nil {
		return
	}
	r := c.runs[o.Key]
	if r == nil {
		r = &run{key: o.Key, wanted: c.wantsAttempt(o.Key), facts: facts{Batch: o.Key.Step == plan.StepBatch, ID: o.JobID}}
		c.runs[o.Key] = r
	}
	if r.phase == 0 || r.phase == asked {
		c.noteLive(r)
	}
	r.socket = o.Socket
	r.launch = o.Launch
	r.seq = o.Seq
	r.user = o.UID
	if o.Start != 0 {
		c.noteBegan(r, o.Start)
	}
}
