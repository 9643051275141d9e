package sim

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/scheduler/trial"
	"github.com/musterhpc/muster/spec"
)

// controller is one turn of a member as the leader: the single writer of the log. Batches that are
// decided but on no disk yet are lost when its process ends. Batches only on its own
// disk are lost too, unless a later leader has them.
type controller struct {
	w    *World
	m    *member
	term uint64
	up   bool // it serves: the first entry of its term is committed
	over bool // the turn has ended: its work in flight is void

	st       *state.State
	flying   []*batch // decided, not yet on its own disk
	waiting  []*batch // on its own disk, not yet chosen
	chosen   int      // entries of its log that a majority has on its disks
	copies   map[*member]int
	contact  map[*member]spec.Instant // when each member last answered
	patience spec.Span                // how long it believes that it leads without a majority

	queue   scheduler.Queue
	plan    *view.Plan
	kept    *scheduler.Promises
	last    *state.State // after the last command; nil: at the beginning
	durable *state.State // after the last batch that was chosen: what readers are shown
	heard   map[string]spec.Instant
	began   spec.Instant
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
	place  int // entries of the log up to and with this batch
	// cancelled are jobs of pods that end with this batch and had not started.
	cancelled []spec.JobUID
}

func newController(m *member) *controller {
	return &controller{
		w:        m.g.w,
		m:        m,
		term:     m.term,
		copies:   map[*member]int{},
		contact:  map[*member]spec.Instant{},
		heard:    map[string]spec.Instant{},
		answered: map[string]spec.Instant{},
		sent:     map[string]int64{},
		began:    m.g.w.now,
	}
}

// simLicences is the total of licence l.
const simLicences = 3

// clockNow is what the controller's clock says.
func (c *controller) clockNow() spec.Instant { return c.w.now.Add(c.m.skew) }

// foundCluster creates the cluster.
func (c *controller) foundCluster() {
	profile := c.w.profile
	config := &spec.Config{
		ClusterName: "sim",
		GresTypes:   []string{"gpu", "shard"},
		Licenses:    []spec.Count{{Name: "l", N: simLicences}},
		MaxNodes:    uint32(profile.Nodes + profile.Strangers + 1),
	}
	config.Sched = spec.SchedConfig{Backfill: true, Memory: true}
	config.Limits = spec.JobLimits{JobRequeue: true, DefMemPerCPU: 10, MaxJobCount: 100000}
	config.Timing = spec.Timing{
		KillWait:        5 * spec.Second,
		MinJobAge:       2 * spec.Minute,
		NodeTimeout:     30 * spec.Second,
		ReturnToService: 2,
	}
	config.Enforce.Limits = true
	config.Fencing = profile.fencingPolicy()
	for i := range profile.Nodes {
		nodeSpec := profile.nodeSpec(nodeName(i))
		if profile.Power && i > 0 {
			nodeSpec.State = "CLOUD"
		}
		config.Nodes = append(config.Nodes, nodeSpec)
	}
	if profile.Power {
		config.Power = &spec.PowerConfig{
			Suspend:   "off",
			Resume:    "on",
			IdleAfter: 30 * spec.Second,
			DownIn:    10 * spec.Second,
			UpIn:      spec.Minute,
			DownRate:  60,
			UpRate:    30,
		}
		config.RebootProgram = "reboot"
	}
	names := make([]string, profile.Nodes)
	for i := range names {
		names[i] = nodeName(i)
	}
	config.Partitions = []spec.PartitionSpec{
		{
			Name:        "main",
			NodeNames:   names,
			Default:     true,
			DefaultTime: 5 * spec.Minute,
			MaxTime:     spec.Hour,
		},
	}
	if profile.Preempt > 0 {
		config.Sched.PreemptType, config.Sched.PreemptMode = "preempt/partition_prio",
			[...]string{
				1: "CANCEL", 2: "REQUEUE", 3: "SUSPEND,GANG", 4: "SUSPEND,GANG",
			}[profile.Preempt]
		config.Partitions = append(
			config.Partitions,
			spec.PartitionSpec{
				Name:         "top",
				NodeNames:    names,
				PriorityTier: 2,
				DefaultTime:  5 * spec.Minute,
				MaxTime:      spec.Hour,
			},
		)
		if profile.Preempt == 4 {
			config.Partitions[0].OverSubscribe = "FORCE:2"
		}
	}
	profile.varyCluster(config, names)
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
	c.w.config = config
	c.decideCommand(event.Actor{}, scheduler.Configure{Config: config}, nil)
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
	events := []event.Event{
		&event.AccountPut{Account: spec.Account{Name: "root"}},
		&event.AccountPut{Account: spec.Account{Name: floorAccount}},
		&event.AccountPut{Account: spec.Account{Name: "a"}},
		assoc(1, 0, "root", ""),
		floor,
		assoc(3, 1, "a", ""),
	}
	for n := range users {
		actor := userActor(n)
		in := "a"
		parent := uint32(3)
		if n == 0 {
			in, parent = floorAccount, 2
		}
		events = append(
			events,
			&event.UserPut{User: spec.User{Name: actor.Name, DefaultAccount: in}},
			assoc(uint32(10+n), parent, in, actor.Name),
		)
	}
	return events
}

// floorAccount is that of the first user where it is guaranteed something.
const floorAccount = "gold"

// decideCommand decides a command; ack is called when it is durable, with the refusal if
// it was refused, and never if the controller dies first.
func (c *controller) decideCommand(
	actor event.Actor,
	command scheduler.Command,
	ack func(scheduler.Result, error),
) {
	if !c.up {
		return
	}
	if c.last == nil {
		c.last = c.st.Freeze()
	}
	t := trial.On(c.st, c.clockNow(), actor, "")
	result, err := scheduler.Decide(t, command)
	if err != nil && spec.CodeOf(err) == 0 {
		c.w.failSeed("%T: %v", command, err)
		return
	}
	if err := c.st.Check(); err != nil {
		c.w.failSeed("after %T: %v", command, err)
		return
	}
	if c == c.w.ctl { // decisions of an overtaken leader are never committed
		c.w.judgeCommand(command, c.last, t.Events)
		if c.w.err != nil {
			return
		}
	}
	b := &batch{events: t.Events, cancelled: podJobsCancelled(c.last, t.Events)}
	if ack != nil {
		b.acks = append(b.acks, func(lost error) {
			if lost == nil {
				ack(result, err)
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
	c.w.scheduleAfter(c.w.upTo(c.w.profile.Sync), func() { c.landBatch(b) })
}

// landBatch writes everything up to a batch to the leader's own disk, once that disk works.
func (c *controller) landBatch(last *batch) {
	if c.over {
		return
	}
	if c.m.disk.is == diskFull {
		c.endTurn("its disk is full")
		return
	}
	c.m.disk.write(func() { c.keepBatch(last) })
}

// keepBatch writes everything up to a batch.
func (c *controller) keepBatch(last *batch) {
	if c.over {
		return
	}
	for len(c.flying) > 0 {
		b := c.flying[0]
		c.flying = c.flying[1:]
		if len(b.events) > 0 {
			c.m.log = append(c.m.log, &entry{term: c.term, batch: b})
		}
		b.place = len(c.m.log)
		c.waiting = append(c.waiting, b)
		if b == last {
			break
		}
	}
	c.replicate()
	c.advance()
}

// noteCopy records how many entries of this leader a member has on its disk.
func (c *controller) noteCopy(m *member, count int) {
	c.contact[m] = c.w.now
	c.copies[m] = max(c.copies[m], count)
	c.advance()
}

// advance applies the effects of entries that a majority has on its disks.
func (c *controller) advance() {
	c.copies[c.m] = len(c.m.log)
	counts := make([]int, 0, len(c.w.group.members))
	for _, m := range c.w.group.members {
		counts = append(counts, c.copies[m])
	}
	slices.Sort(counts)
	count := counts[len(counts)-c.w.group.majority()]
	// An entry of an earlier term is chosen with one of this term only.
	if count > c.chosen && c.m.log[count-1].term == c.term {
		c.chosen = count
		c.w.group.choose(c.m, count)
	}
	for len(c.waiting) > 0 && c.waiting[0].place <= c.chosen && c.w.err == nil && !c.over {
		b := c.waiting[0]
		c.waiting = c.waiting[1:]
		c.finishBatch(b)
	}
}

// finishBatch performs the effects of a committed batch and answers the callers that wait for it.
func (c *controller) finishBatch(b *batch) {
	if len(b.events) > 0 {
		c.durable = b.after
		if c.w.rng.IntN(50) == 0 {
			c.takeSnapshot(b)
		}
		c.orderEffects(b)
	} else if !c.confirmsLead() {
		return // only a confirmed leader may answer, even with a refusal
	}
	for _, ack := range b.acks {
		ack(nil)
	}
}

// confirmsLead tells whether a majority says now that this controller leads.
func (c *controller) confirmsLead() bool {
	count := 0
	for _, m := range c.w.group.members {
		isHeard := m == c.m || (c.m.reaches(m) && m.reaches(c.m))
		if isHeard && m.term == c.term {
			count++
		}
	}
	return count >= c.w.group.majority()
}

// replicate sends the other members what they lack.
func (c *controller) replicate() {
	for _, other := range c.w.group.members {
		if other == c.m {
			continue
		}
		message := appendMessage{from: c.m, term: c.term, entries: c.m.log}
		if c.copies[other] < c.m.snapAt {
			message.entries = c.m.log[:c.m.snapAt]
			message.snap = c.m.snap
		}
		boots := other.boots
		c.w.sendMessage(func() {
			if boots == other.boots && c.m.reaches(other) {
				other.takeEntries(message)
			}
		})
	}
}

func (c *controller) takeSnapshot(b *batch) {
	var buf bytes.Buffer
	if err := b.after.Encode(&buf); err != nil {
		c.w.failSeed("snapshot: %v", err)
	}
	c.m.snap = buf.Bytes()
	c.m.snapAt = b.place
}

// longestBelief bounds how long a leader believes that it leads without hearing a majority. The
// product steps down within a second of its own clock, but its process may be stopped meanwhile.
const longestBelief = 90 * spec.Second

// beginTurn folds snapshot and tail, compares with a fold of everything, and writes what a leader
// begins with. It serves when that is chosen.
func (c *controller) beginTurn() {
	c.st = c.foldDisk()
	c.durable = c.st.Freeze()
	for _, node := range c.w.nodes {
		c.heard[node.name] = c.w.now
	}
	for _, m := range c.w.group.members {
		c.contact[m] = c.w.now
	}
	if len(c.w.group.members) > 1 {
		c.patience = longestPatience + c.w.upTo(longestBelief)
	}
	opening := &batch{after: c.durable, acks: []func(error){func(error) { c.serve() }}}
	c.m.log = append(c.m.log, &entry{term: c.term, batch: opening})
	opening.place = len(c.m.log)
	c.waiting = append(c.waiting, opening)
	c.replicate()
	c.advance()
	c.runClockwork()
}

// serve takes commands from now on.
func (c *controller) serve() {
	c.up = true
	c.w.noteLine("%s serves at event %d", c.m.name, c.st.Seq)
}

// foldDisk is the state that the member's disk gives.
func (c *controller) foldDisk() *state.State {
	full := state.New()
	c.foldEntries(full, c.m.log)
	if c.m.snap == nil || c.w.rng.IntN(4) == 0 {
		return full
	}
	cluster, err := state.Decode(bytes.NewReader(c.m.snap))
	if err != nil {
		c.w.failSeed("decode the snapshot: %v", err)
		return full
	}
	c.foldEntries(cluster, c.m.log[c.m.snapAt:])
	if c.w.err == nil && (cluster.Hash() != full.Hash() || !sameJobs(cluster, full)) {
		c.w.failSeed("snapshot and tail give another state than the whole log")
	}
	return cluster
}

// endTurn ends the lead of a member: its process has ended, it has heard of another leader, or it
// has heard no majority.
func (c *controller) endTurn(reason string, args ...any) {
	if c.over {
		return
	}
	c.over = true
	c.up = false
	c.m.ctl = nil
	c.m.heard = c.w.now
	c.flying = nil
	c.waiting = nil
	c.w.noteLine("%s leads no more: %s", c.m.name, fmt.Sprintf(reason, args...))
	for _, node := range c.w.nodes {
		if node.ctl == c {
			node.lostController()
		}
	}
}

// keepLead sends the heartbeat of a leader, and ends the turn of one that has heard of no majority
// for longer than its patience.
func (c *controller) keepLead() {
	if len(c.w.group.members) == 1 {
		return
	}
	if c.m.disk.is == diskHangs && c.w.now.Sub(c.m.disk.since) > longestWrite {
		c.endTurn("its disk hangs")
		return
	}
	count := 0
	for _, m := range c.w.group.members {
		if m == c.m || c.w.now.Sub(c.contact[m]) <= c.patience {
			count++
		}
	}
	if count < c.w.group.majority() {
		c.endTurn("it hears no majority")
		return
	}
	c.replicate()
}

func (c *controller) foldEntries(cluster *state.State, entries []*entry) {
	for _, e := range entries {
		if len(e.batch.events) == 0 {
			continue
		}
		envs, err := c.w.codec.Decode(e.batch.bytes)
		if err != nil {
			c.w.failSeed("decode: %v", err)
			return
		}
		for i := range envs {
			if err := cluster.Apply(&envs[i]); err != nil {
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
		c.keepLead()
		if c.over {
			return
		}
		c.decideCommand(event.Actor{}, scheduler.Tick{}, nil)
		for _, node := range c.w.nodes {
			if seen, known := c.heard[node.name], c.st.Node(node.name); c.up && known != nil &&
				!known.Asleep() &&
				c.w.now.Sub(seen) > c.st.Config.Timing.NodeTimeout {
				c.decideCommand(
					event.Actor{},
					scheduler.NodeSilent{Node: node.name, LastSeen: seen},
					nil,
				)
			}
		}
		c.fenceNodes()
		c.w.scheduleAfter(spec.Second, tick)
	}
	pass = func() {
		if c.over {
			return
		}
		if c.up {
			snap := c.st.Freeze()
			now := c.clockNow()
			options := c.passOptions()
			outcome, err := scheduler.Pass(snap, now, options)
			if err != nil {
				c.w.failSeed("pass: %v", err)
				return
			}
			c.plan, c.kept = outcome.Plan, outcome.Promises
			c.w.scheduleAfter(c.w.upTo(300*spec.Millisecond), func() {
				if !c.over {
					fresh := snap.Seq == c.st.Seq && now == c.clockNow()
					c.decideCommand(
						event.Actor{}, scheduler.Starts{Proposal: &outcome.Proposal}, nil,
					)
					if fresh && c == c.w.ctl {
						c.w.judgeIdle(outcome, options)
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
	options := scheduler.PassOptions{Plan: c.plan, Queue: &c.queue}
	if c.kept != nil && c.w.rng.IntN(3) == 0 {
		options.Keep, options.Incremental = c.kept, true
	}
	return options
}

// orderEffects sends the nodes the orders that follow from a durable batch.
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
				node := c.w.nodeNamed(e.Node)
				c.w.scheduleAfter(c.w.upTo(5*spec.Second), node.rebootMachine)
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
			if job := b.after.Job(e.UID); job != nil && job.HoldsNodes() {
				c.orderJob(job, "")
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

// noteChosen records in truth which attempts a committed batch has started, and which jobs of pods
// it has cancelled, even if its controller died before it could act on it.
func (w *World) noteChosen(b *batch) {
	for _, uid := range b.cancelled {
		w.pods.cancelled[uid] = true
	}
	for i := range b.events {
		if e, ok := b.events[i].Event.(*event.JobStarted); ok {
			w.truth.attempts[run{e.UID, e.Attempt}] = true
			w.truth.starts.countStart(e, b.after.Job(e.UID))
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
		node := c.w.nodeNamed(name)
		r := run{job.UID, job.Attempt}
		batchHost := i == 0
		if !node.connected || node.ctl != c {
			continue // reconcile orders it on the next connection, whose lease it needs
		}
		session := node.session
		lease := plan.Lease{
			From:   c.sent[name],
			Length: job.Alloc.Lease,
			Kill:   c.st.Config.Timing.KillWait,
			Seq:    job.StartSeq,
		}
		c.w.sendMessage(func() {
			if c.over || session != node.session || !node.connected {
				return // the connection on which it was sent is gone
			}
			boot := node.boot
			node.carryOut(func() {
				switch {
				case boot != node.boot:
				case ending:
					node.terminatePart(r)
				default:
					node.launchPart(r, batchHost, lease)
				}
			})
		})
	}
}

// reconcileNode sends a node that connected everything that concerns it.
func (c *controller) reconcileNode(name string) {
	node := c.durable.Node(name)
	if node == nil {
		return
	}
	for _, uid := range node.Jobs {
		c.orderJob(c.durable.Job(uid), name)
	}
	c.stopGivenUp(name)
}

// stopGivenUp tells a node to end the runs that the controller has given up.
func (c *controller) stopGivenUp(name string) {
	given, node := c.durable.Node(name), c.w.nodeNamed(name)
	if given == nil || !node.connected || node.ctl != c {
		return
	}
	for _, debt := range given.Unfenced {
		r := run{debt.UID, debt.Attempt}
		session := node.session
		c.w.sendMessage(func() {
			if c.over || session != node.session || !node.connected {
				return
			}
			boot := node.boot
			node.carryOut(func() {
				if boot == node.boot {
					node.terminatePart(r)
				}
			})
		})
	}
}
