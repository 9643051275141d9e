package sim

import (
	"fmt"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// run names one attempt.
type run struct {
	uid     spec.JobUID
	attempt uint32
}

// node is a machine: its shepherd's journal (what was ever started, what
// ended and is not acknowledged) survives everything but a reboot.
type node struct {
	w         *World
	name      string
	boot      int
	session   int // counts connections
	connected bool
	ctl       *controller // to which it is connected, or was last
	cut       bool        // the network is down
	dead      bool        // powered off
	hung      hangs
	waiting   []func() // orders that came while something hung
	journal   map[run]*process
	booted    spec.Instant
	drift     int64      // of its boot clock, in parts of a million
	grant     plan.Grant // the newest answer to its heartbeats
	fencing   bool       // the site's program was called for it
}

// process is one attempt's part on a node.
type process struct {
	batch   bool // runs the script
	alive   bool
	ended   bool // waits for its acknowledgement
	exit    spec.ExitStatus
	report  int // counts sendings
	lease   plan.Lease
	warned  bool // SIGTERM was sent, because its lease ends
	unknown bool // its exit tells nothing about it: its lease was over
	late    bool // its order was read when its lease was over, so that it never began
	began   spec.Instant
	over    spec.Instant
}

func nodeName(i int) string { return fmt.Sprintf("n%d", i+1) }

// strangeName is the name of a node that no file has.
func strangeName(i int) string { return fmt.Sprintf("d%d", i+1) }

func newNode(world *World, name string) *node {
	n := &node{w: world, name: name, journal: map[run]*process{}, booted: world.now}
	if world.profile.Fencing == fencesByLease {
		n.drift = world.rng.Int64N(2*maxDrift+1) - maxDrift
		n.watchLeases()
	}
	var beat func()
	beat = func() {
		n.sendHeartbeat()
		world.scheduleAfter(10*spec.Second, beat)
	}
	world.scheduleAfter(world.upTo(10*spec.Second), beat)
	return n
}

func (w *World) nodeNamed(name string) *node {
	for _, n := range w.nodes {
		if n.name == name {
			return n
		}
	}
	return nil
}

// sendMessage delivers a message after a while, sometimes twice.
func (w *World) sendMessage(deliver func()) {
	w.scheduleAfter(w.upTo(w.profile.Slow), deliver)
	if w.rng.IntN(100) < w.profile.Duplicate {
		w.scheduleAfter(w.upTo(3*w.profile.Slow), deliver)
		if w.rng.IntN(3) == 0 {
			w.scheduleAfter(w.upTo(spec.Minute), deliver)
		}
	}
}

// reaches tells whether a message from the node comes to a controller that serves.
func (n *node) reaches(c *controller) bool { return !n.cut && !n.dead && c.up }

// connectSoon registers the node again after a while.
func (n *node) connectSoon() {
	n.w.scheduleAfter(n.w.upTo(2*spec.Second), func() {
		if n.connected || n.dead {
			return
		}
		c := n.w.someController()
		if !n.reaches(c) || n.hung != nothingHangs {
			n.connectSoon()
			return
		}
		n.session++
		n.ctl = c
		session, sent := n.session, n.bootClock()
		c.decideCommand(
			event.Actor{Kind: event.ActorNode, Name: n.name},
			n.makeRegistration(),
			func(_ scheduler.Result, err error) {
				if n.isStrange() && err != nil {
					return // it was taken away, and a job is not done there yet
				}
				if err != nil {
					n.w.failSeed("register %s: %v", n.name, err)
				}
				if session != n.session || !n.reaches(c) {
					return
				}
				n.connected = true
				c.heard[n.name] = n.w.now
				c.grantLease(n, sent)
				c.reconcileNode(n.name)
				n.resendReports()
			},
		)
		n.w.scheduleAfter(5*spec.Second, func() {
			if session == n.session && !n.connected {
				n.connectSoon()
			}
		})
	})
}

// isStrange tells a node that no file has.
func (n *node) isStrange() bool { return n.name[0] == 'd' }

// makeRegistration is what the node says of itself.
func (n *node) makeRegistration() scheduler.RegisterNode {
	profile := &n.w.profile
	reg := scheduler.RegisterNode{
		Node: n.name,
		Inventory: spec.Inventory{
			BootID: fmt.Sprintf("%s-%d", n.name, n.boot),
			CPUs:   int64(profile.CPUs),
			Mem:    1000,
		},
	}
	for g := range uint32(profile.GPUs) {
		gpu := spec.GPU{Index: g, UUID: fmt.Sprintf("%s-g%d", n.name, g)}
		if profile.Typed {
			gpu.Type = gpuTypes[int(g)%len(gpuTypes)]
		}
		reg.Inventory.GPUs = append(reg.Inventory.GPUs, gpu)
	}
	if profile.Shards && profile.GPUs > 0 {
		reg.Inventory.GRES = []spec.Count{{Name: "shard", N: int64(shardsPerGPU * profile.GPUs)}}
	}
	if n.isStrange() {
		nodeSpec := profile.nodeSpec(n.name)
		reg.Dynamic = &nodeSpec
	}
	return reg
}

// lostController breaks the connection from the other side.
func (n *node) lostController() {
	n.connected = false
	n.session++
	n.connectSoon()
}

func (n *node) sendHeartbeat() {
	if !n.connected || !n.reaches(n.ctl) {
		return
	}
	c := n.ctl
	s := c.durable.Node(n.name)
	switch {
	case n.hung == agentHangs || n.hung == allHangs:
		return
	case n.hung == shepherdHangs:
		if s != nil && !s.Lost {
			unready := scheduler.NodeUnready{
				Node:     n.name,
				Why:      "the shepherd does not answer",
				LastSeen: c.heard[n.name],
			}
			c.decideCommand(event.Actor{Kind: event.ActorNode, Name: n.name}, unready, nil)
		}
		return
	}
	c.heard[n.name] = n.w.now
	if s != nil && s.Lost {
		c.decideCommand(
			event.Actor{Kind: event.ActorNode, Name: n.name},
			scheduler.NodeHeard{Node: n.name},
			nil,
		)
	}
	c.grantLease(n, n.bootClock())
	n.resendReports()
}

// launchPart starts an attempt's part, once ever.
func (n *node) launchPart(r run, batch bool, lease plan.Lease) {
	if n.dead || n.journal[r] != nil {
		return
	}
	if lease.Over(n.grant, n.bootClock()) {
		n.w.noteLine(
			"%s refuses attempt %d of job uid %d: its lease is over",
			n.name,
			r.attempt,
			r.uid,
		)
		p := &process{batch: batch, ended: true, late: true}
		n.journal[r] = p
		n.reportGone(r, p)
		return
	}
	p := &process{batch: batch, alive: true, lease: lease, began: n.w.now}
	n.journal[r] = p
	n.w.truth.noteBegins(n.w, n.name, r)
	if !batch {
		return // an allocated node without the script waits for its end
	}
	if n.w.rng.IntN(10) == 0 {
		p.exit.Code = 1
	}
	boot := n.boot
	n.w.scheduleAfter(n.w.upTo(2*spec.Minute), func() {
		if boot == n.boot && p.alive {
			n.noteEnded(r, p)
		}
	})
}

// terminatePart ends an attempt's part; one that was never started here is
// reported as done at once, and never started later.
func (n *node) terminatePart(r run) {
	if n.dead {
		return
	}
	p := n.journal[r]
	if p == nil {
		p = &process{ended: true}
		n.journal[r] = p
		n.reportGone(r, p)
		return
	}
	if !p.alive {
		n.reportGone(r, p)
		return
	}
	boot := n.boot
	n.w.scheduleAfter(n.w.upTo(5*spec.Second), func() {
		if boot == n.boot && p.alive {
			p.exit = spec.ExitStatus{Signal: 15}
			n.noteEnded(r, p)
		}
	})
}

func (n *node) noteEnded(r run, p *process) {
	p.alive, p.ended = false, true
	p.over = n.w.now
	n.w.truth.noteEnds(n.w, n.name, r)
	n.reportGone(r, p)
}

// reportGone tells the controller that nothing of an attempt is left here, again
// and again until it is acknowledged.
func (n *node) reportGone(r run, p *process) {
	if !p.ended || !n.connected || !n.reaches(n.ctl) || n.hung != nothingHangs {
		return
	}
	done := &scheduler.NodeDone{}
	if p.batch && !p.late {
		done.Batch = &event.StepResult{
			Started: p.began,
			Ended:   p.over,
			Exit:    p.exit,
			Unknown: p.unknown,
		}
	}
	boot, c := n.boot, n.ctl
	n.w.sendMessage(func() {
		if boot != n.boot || c.over || n.cut {
			return
		}
		cmd := scheduler.Report{
			Node: n.name,
			Run:  scheduler.Run{UID: r.uid, Attempt: r.attempt},
			Done: done,
		}
		if p.late {
			failed := cmd
			failed.Done, failed.LaunchFailed = nil, &scheduler.LaunchFailed{
				Text:  "its lease is over",
				Again: true,
			}
			c.decideCommand(event.Actor{Kind: event.ActorNode, Name: n.name}, failed, nil)
		}
		c.decideCommand(
			event.Actor{Kind: event.ActorNode, Name: n.name},
			cmd,
			func(scheduler.Result, error) {
				if boot == n.boot {
					p.ended = false // acknowledged; the journal still knows the key
				}
			},
		)
	})
}

func (n *node) resendReports() {
	for _, r := range n.w.truth.order {
		if p := n.journal[r]; p != nil && p.ended {
			n.reportGone(r, p)
		}
	}
}

// switchPower is the site's program, which switches the machine off or on, in its
// own time. Now and then a machine does not come up.
func (n *node) switchPower(to event.PowerState) {
	switch to {
	case event.PoweringDown:
		n.w.scheduleAfter(n.w.upTo(8*spec.Second), func() {
			if s := n.w.ctl.st.Node(n.name); n.w.ctl.up && s != nil &&
				s.Power == event.PoweringDown {
				n.killMachine()
			}
		})
	case event.PoweringUp:
		if n.w.ctl.up {
			n.connected = false // the controller cuts it off, should it be there
			n.session++
		}
		if !n.w.calm && n.w.rng.IntN(100) < n.w.profile.BootFails {
			n.w.noteLine("%s does not come up", n.name)
			return
		}
		n.w.scheduleAfter(n.w.upTo(50*spec.Second), func() { n.dead = false; n.connectSoon() })
	case event.PowerOn,
		event.PowerDownWish,
		event.PowerDownASAP,
		event.PoweredDown,
		event.PowerUpWish:
	}
}

// rebootMachine kills everything on the machine; a new boot id proves it.
func (n *node) rebootMachine() {
	if n.dead {
		return
	}
	n.w.noteLine("%s reboots", n.name)
	n.killMachine()
	n.w.scheduleAfter(n.w.upTo(90*spec.Second), func() {
		if s := n.w.ctl.st.Node(n.name); s != nil && s.Asleep() {
			return // it was switched off meanwhile
		}
		n.dead = false
		n.connectSoon()
	})
}

// killMachine ends all that lives on the machine, which is off then.
func (n *node) killMachine() {
	for _, r := range n.w.truth.order {
		if p := n.journal[r]; p != nil && p.alive {
			n.w.truth.noteEnds(n.w, n.name, r)
		}
	}
	n.boot++
	n.session++
	n.connected, n.dead = false, true
	n.hung, n.waiting = nothingHangs, nil
	n.booted, n.grant = n.w.now, plan.Grant{}
	n.journal = map[run]*process{}
}
