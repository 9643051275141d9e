package sim

import (
	"bytes"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// controller is the single writer over a simulated disk: batches that are
// decided but not yet synced are lost when it dies.
type controller struct {
	w       *World
	up      bool
	life    int // counts restarts: things of an earlier life are void
	st      *state.State
	log     [][]byte // durable batches
	snap    []byte   // an encoded state …
	snapAt  int      // … after this many batches
	flying  []*batch
	crashes int
	queue   scheduler.Queue
	plan    *view.Plan
	kept    *scheduler.Promises
	last    *state.State // after the last command; nil: after a restart
	durable *state.State // after the last batch on the disk: what readers are shown
	skew    spec.Span    // of its clock
	heard   map[string]spec.Instant
	began   spec.Instant // this life
	// For leases: when it last answered a heartbeat of each node, and when the node
	// had sent that, by its own clock.
	answered map[string]spec.Instant
	sent     map[string]int64
}

type batch struct {
	bytes  []byte
	events []event.Envelope
	after  *state.State
	acks   []func(error)
}

func newController(w *World) *controller {
	return &controller{
		w:        w,
		up:       true,
		st:       state.New(),
		durable:  state.New(),
		heard:    map[string]spec.Instant{},
		answered: map[string]spec.Instant{},
		sent:     map[string]int64{},
	}
}

// simLicences is how many there are of licence l.
const simLicences = 3

// clockNow is what the controller's clock says.
func (c *controller) clockNow() spec.Instant { return c.w.now.Add(c.skew) }

// foundCluster creates the cluster.
func (c *controller) foundCluster() {
	profile := c.w.profile
	cfg := &spec.Config{
		ClusterName: "sim",
		GresTypes:   []string{"gpu", "shard"},
		Licenses:    []spec.Count{{Name: "l", N: simLicences}},
		MaxNodes:    uint32(profile.Nodes + profile.Strangers + 1),
	}
	cfg.Sched = spec.SchedConfig{Backfill: true, Memory: true}
	cfg.Limits = spec.JobLimits{JobRequeue: true, DefMemPerCPU: 10, MaxJobCount: 100000}
	cfg.Timing = spec.Timing{
		KillWait:        5 * spec.Second,
		MinJobAge:       2 * spec.Minute,
		NodeTimeout:     30 * spec.Second,
		ReturnToService: 2,
	}
	cfg.Enforce.Limits = true
	cfg.Fencing = profile.fencingPolicy()
	for i := range profile.Nodes {
		nodeSpec := profile.nodeSpec(nodeName(i))
		if profile.Power && i > 0 {
			nodeSpec.State = "CLOUD"
		}
		cfg.Nodes = append(cfg.Nodes, nodeSpec)
	}
	if profile.Power {
		cfg.Power = &spec.PowerConfig{
			Suspend:   "off",
			Resume:    "on",
			IdleAfter: 30 * spec.Second,
			DownIn:    10 * spec.Second,
			UpIn:      spec.Minute,
			DownRate:  60,
			UpRate:    30,
		}
		cfg.RebootProgram = "reboot"
	}
	names := make([]string, profile.Nodes)
	for i := range names {
		names[i] = nodeName(i)
	}
	cfg.Partitions = []spec.PartitionSpec{
		{
			Name:        "main",
			NodeNames:   names,
			Default:     true,
			DefaultTime: 5 * spec.Minute,
			MaxTime:     spec.Hour,
		},
	}
	if profile.Preempt > 0 {
		cfg.Sched.PreemptType, cfg.Sched.PreemptMode = "preempt/partition_prio", [...]string{1: "CANCEL", 2: "REQUEUE", 3: "SUSPEND,GANG", 4: "SUSPEND,GANG"}[profile.Preempt]
		cfg.Partitions = append(
			cfg.Partitions,
			spec.PartitionSpec{
				Name:         "top",
				NodeNames:    names,
				PriorityTier: 2,
				DefaultTime:  5 * spec.Minute,
				MaxTime:      spec.Hour,
			},
		)
		if profile.Preempt == 4 {
			cfg.Partitions[0].OverSubscribe = "FORCE:2"
		}
	}
	profile.varyCluster(cfg, names)
	qos := spec.QOS{ID: 1, Name: "normal"}
	if profile.QOSCap {
		qos.MaxTRESPerUser = spec.Limits{{Name: "cpu", N: int64(profile.CPUs)}}
	}
	policy := []event.Event{
		&event.ClusterCreated{UUID: [16]byte{9}, Name: "sim", Version: event.Version},
		&event.QOSPut{QOS: qos},
	}
	if profile.Several {
		policy = append(policy, &event.QOSPut{QOS: shortQOS(profile)})
	}
	c.decideCommand(
		event.Actor{},
		scheduler.Policy{Events: append(policy, floorPolicy(profile.Floor)...)},
		nil,
	)
	c.w.config = cfg
	c.decideCommand(event.Actor{}, scheduler.Configure{Config: cfg}, nil)
}

// floorPolicy are the accounts of the users where the first one's is guaranteed
// some CPUs; nothing where it is not.
func floorPolicy(cpus int) []event.Event {
	if cpus == 0 {
		return nil
	}
	assoc := func(id, parent uint32, account, user string) *event.AssociationPut {
		return &event.AssociationPut{
			Association: spec.Association{
				ID:      id,
				Parent:  parent,
				Account: account,
				User:    user,
				Shares:  1,
			},
		}
	}
	floor := assoc(2, 1, floorAccount, "")
	floor.Association.Guaranteed = spec.Limits{{Name: "cpu", N: int64(cpus)}}
	out := []event.Event{
		&event.AccountPut{Account: spec.Account{Name: "root"}},
		&event.AccountPut{Account: spec.Account{Name: floorAccount}},
		&event.AccountPut{Account: spec.Account{Name: "a"}},
		assoc(1, 0, "root", ""),
		floor,
		assoc(3, 1, "a", ""),
	}
	for n := range users {
		who := userActor(n)
		in := "a"
		parent := uint32(3)
		if n == 0 {
			in, parent = floorAccount, 2
		}
		out = append(
			out,
			&event.UserPut{User: spec.User{Name: who.Name, DefaultAccount: in}},
			assoc(uint32(10+n), parent, in, who.Name),
		)
	}
	return out
}

// floorAccount is that of the first user where it is guaranteed something.
const floorAccount = "gold"

// decideCommand decides a command; ack is called when it is durable, with the refusal if
// it was refused, and never if the controller dies first.
func (c *controller) decideCommand(
	actor event.Actor,
	cmd scheduler.Command,
	ack func(scheduler.Result, error),
) {
	if !c.up {
		return
	}
	if c.last == nil {
		c.last = c.st.Freeze()
	}
	t := trial.On(c.st, c.clockNow(), actor, "")
	res, err := scheduler.Decide(t, cmd)
	if err != nil && spec.CodeOf(err) == 0 {
		c.w.failSeed("%T: %v", cmd, err)
		return
	}
	if err := c.st.Check(); err != nil {
		c.w.failSeed("after %T: %v", cmd, err)
		return
	}
	c.w.judgeCommand(cmd, c.last, t.Events)
	if c.w.err != nil {
		return
	}
	b := &batch{events: t.Events}
	if ack != nil {
		b.acks = append(b.acks, func(lost error) {
			if lost == nil {
				ack(res, err)
			}
		})
	}
	if len(t.Events) > 0 {
		b.bytes, err = c.w.codec.Encode(t.Events)
		if err != nil {
			c.w.failSeed("encode: %v", err)
			return
		}
	}
	b.after = c.st.Freeze()
	c.last = b.after
	c.flying = append(c.flying, b)
	life := c.life
	c.w.scheduleAfter(c.w.upTo(c.w.profile.Sync), func() { c.landBatch(life, b) })
}

// landBatch makes everything up to a batch durable.
func (c *controller) landBatch(life int, b *batch) {
	if life != c.life {
		return
	}
	for len(c.flying) > 0 {
		f := c.flying[0]
		c.flying = c.flying[1:]
		if len(f.events) > 0 {
			c.log = append(c.log, f.bytes)
			c.noteStarted(f)
			c.durable = f.after
			if c.w.rng.IntN(50) == 0 {
				c.takeSnapshot(f.after)
			}
			c.orderEffects(f)
		}
		for _, ack := range f.acks {
			ack(nil)
		}
		if f == b {
			return
		}
	}
}

func (c *controller) takeSnapshot(s *state.State) {
	var buf bytes.Buffer
	if err := s.Encode(&buf); err != nil {
		c.w.failSeed("snapshot: %v", err)
	}
	c.snap, c.snapAt = buf.Bytes(), len(c.log)
}

// crashController kills the controller. Of what was flying, a prefix may have reached
// the disk; nothing of it was acknowledged.
func (c *controller) crashController() {
	if !c.up {
		return
	}
	c.up = false
	c.crashes++
	c.life++
	for _, f := range c.flying[:c.w.rng.IntN(len(c.flying)+1)] {
		if len(f.events) > 0 {
			c.log = append(c.log, f.bytes)
			c.noteStarted(f)
		}
	}
	c.flying = nil
	c.queue = scheduler.Queue{}
	c.plan = nil
	c.kept = nil
	c.w.noteLine("controller dies")
	for _, n := range c.w.nodes {
		n.lostController()
	}
	c.w.scheduleAfter(c.w.upTo(3*spec.Second), c.restartController)
}

// restartController folds snapshot and tail, and compares with a fold of everything.
func (c *controller) restartController() {
	st := state.New()
	from := 0
	if c.snap != nil && c.w.rng.IntN(4) > 0 {
		var err error
		st, err = state.Decode(bytes.NewReader(c.snap))
		if err != nil {
			c.w.failSeed("decode the snapshot: %v", err)
			return
		}
		from = c.snapAt
	}
	c.foldLog(st, c.log[from:])
	full := state.New()
	c.foldLog(full, c.log)
	if c.w.err == nil && (st.Hash() != full.Hash() || !sameJobs(st, full)) {
		c.w.failSeed("snapshot and tail give another state than the whole log")
	}
	c.st = st
	c.up = true
	c.last = nil
	c.durable = st.Freeze()
	c.heard = map[string]spec.Instant{}
	c.answered = map[string]spec.Instant{}
	c.sent = map[string]int64{}
	c.began = c.w.now
	for _, n := range c.w.nodes {
		c.heard[n.name] = c.w.now
	}
	c.w.noteLine("controller back at event %d", st.Seq)
}

func (c *controller) foldLog(st *state.State, log [][]byte) {
	for _, b := range log {
		envs, err := c.w.codec.Decode(b)
		if err != nil {
			c.w.failSeed("decode: %v", err)
			return
		}
		for i := range envs {
			if err := st.Apply(&envs[i]); err != nil {
				c.w.failSeed("replay: %v", err)
				return
			}
		}
	}
}

// runClockwork lets time pass and runs passes, each on a snapshot that may be
// old by the time it is committed.
func (c *controller) runClockwork() {
	var tick, pass func()
	tick = func() {
		c.decideCommand(event.Actor{}, scheduler.Tick{}, nil)
		for _, n := range c.w.nodes {
			if seen, known := c.heard[n.name], c.st.Node(n.name); c.up && known != nil &&
				!known.Asleep() &&
				c.w.now.Sub(seen) > c.st.Config.Timing.NodeTimeout {
				c.decideCommand(
					event.Actor{},
					scheduler.NodeSilent{Node: n.name, LastSeen: seen},
					nil,
				)
			}
		}
		c.fenceNodes()
		c.w.scheduleAfter(spec.Second, tick)
	}
	pass = func() {
		if c.up {
			life := c.life
			snap := c.st.Freeze()
			now := c.clockNow()
			opt := c.passOptions()
			out, err := scheduler.Pass(snap, now, opt)
			if err != nil {
				c.w.failSeed("pass: %v", err)
				return
			}
			c.plan, c.kept = out.Plan, out.Promises
			c.w.scheduleAfter(c.w.upTo(300*spec.Millisecond), func() {
				if life == c.life {
					fresh := snap.Seq == c.st.Seq && now == c.clockNow()
					c.decideCommand(event.Actor{}, scheduler.Starts{Proposal: &out.Proposal}, nil)
					if fresh {
						c.w.judgeIdle(out, opt)
					}
				}
			})
		}
		c.w.scheduleAfter(c.w.upTo(2*spec.Second), pass)
	}
	c.w.scheduleAfter(spec.Second, tick)
	c.w.scheduleAfter(spec.Second, pass)
}

// passOptions are those of the next pass: with what the passes before left, as
// the daemon keeps it, and now and then an incremental one.
func (c *controller) passOptions() scheduler.PassOptions {
	opt := scheduler.PassOptions{Plan: c.plan, Queue: &c.queue}
	if c.kept != nil && c.w.rng.IntN(3) == 0 {
		opt.Keep, opt.Incremental = c.kept, true
	}
	return opt
}

// orderEffects orders what a durable batch asks of the nodes.
func (c *controller) orderEffects(b *batch) {
	for i := range b.events {
		switch e := b.events[i].Event.(type) {
		case *event.JobStarted, *event.JobReady:
			c.orderJob(b.after.Job(startedIn(e)), "")
		case *event.NodePowered:
			for _, name := range e.Nodes {
				c.w.nodeNamed(name).switchPower(e.To)
			}
		case *event.NodeReboot:
			if e.Phase == event.RebootIssued {
				n := c.w.nodeNamed(e.Node)
				c.w.scheduleAfter(c.w.upTo(5*spec.Second), n.rebootMachine)
			}
		case *event.JobNodeDone:
			if e.Unfenced {
				c.stopGivenUp(e.Node)
			}
		case *event.NodeReturned:
			c.stopGivenUp(e.Node)
		case *event.JobEndRequested:
			c.orderJob(b.after.Job(e.UID), "")
		case *event.JobEnded:
			if j := b.after.Job(e.UID); j != nil && j.HoldsNodes() {
				c.orderJob(j, "")
			}
		}
	}
}

// startedIn is the job of an event that may let it begin.
func startedIn(ev event.Event) spec.JobUID {
	if e, ok := ev.(*event.JobReady); ok {
		return e.UID
	}
	return ev.(*event.JobStarted).UID
}

// noteStarted tells the truth which attempts a batch on the disk has begun, also
// one whose controller died before it could act on it.
func (c *controller) noteStarted(b *batch) {
	for i := range b.events {
		if e, ok := b.events[i].Event.(*event.JobStarted); ok {
			c.w.truth.attempts[run{e.UID, e.Attempt}] = true
			c.w.truth.starts.countStart(e, b.after.Job(e.UID))
		}
	}
}

// orderJob sends the launch or the end of an attempt to its nodes, or one.
func (c *controller) orderJob(job *state.Job, only string) {
	if job == nil || job.Alloc == nil || job.Spec.Runner() != spec.ByAgents {
		return
	}
	ending := !job.GoesOn()
	if !ending && job.Configuring() {
		return // its nodes are not up
	}
	for i := range job.Alloc.Nodes {
		name := job.Alloc.Nodes[i].Name
		if job.Done.Has(i) || (only != "" && name != only) {
			continue
		}
		n := c.w.nodeNamed(name)
		r := run{job.UID, job.Attempt}
		batchHost := i == 0
		if !n.connected {
			continue // reconcile orders it on the next connection, whose lease it needs
		}
		life, session := c.life, n.session
		lease := plan.Lease{
			From:   c.sent[name],
			Length: job.Alloc.Lease,
			Kill:   c.st.Config.Timing.KillWait,
			Seq:    job.StartSeq,
		}
		c.w.sendMessage(func() {
			if life != c.life || session != n.session || !n.connected {
				return // the connection on which it was sent is gone
			}
			boot := n.boot
			n.carryOut(func() {
				switch {
				case boot != n.boot:
				case ending:
					n.terminatePart(r)
				default:
					n.launchPart(r, batchHost, lease)
				}
			})
		})
	}
}

// reconcileNode sends a node that connected everything that concerns it.
func (c *controller) reconcileNode(name string) {
	n := c.st.Node(name)
	if n == nil {
		return
	}
	for _, uid := range n.Jobs {
		c.orderJob(c.st.Job(uid), name)
	}
	c.stopGivenUp(name)
}

// stopGivenUp tells a node to end what was given up on it.
func (c *controller) stopGivenUp(name string) {
	given, n := c.st.Node(name), c.w.nodeNamed(name)
	if given == nil || !n.connected {
		return
	}
	for _, debt := range given.Unfenced {
		r := run{debt.UID, debt.Attempt}
		life, session := c.life, n.session
		c.w.sendMessage(func() {
			if life != c.life || session != n.session || !n.connected {
				return
			}
			boot := n.boot
			n.carryOut(func() {
				if boot == n.boot {
					n.terminatePart(r)
				}
			})
		})
	}
}
