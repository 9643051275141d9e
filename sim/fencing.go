package sim

import (
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// Policies of a profile (Profile.Fencing).
const (
	fencesByLease   = 1
	fencesByProgram = 2
)

// simLease is what runs live without an answer of the controller, where it fences
// by leases; the nodes are given up after 30 s of silence.
const simLease = 40 * spec.Second

// maxDrift is how far the clock of a node is off at most, in parts of a million.
const maxDrift = 1000

// fencingPolicy is the policy of a profile.
func (p *Profile) fencingPolicy() *spec.FencingPolicy {
	switch p.Fencing {
	case fencesByLease:
		return &spec.FencingPolicy{Kind: spec.FenceLease, Lease: simLease}
	case fencesByProgram:
		return &spec.FencingPolicy{Kind: spec.FenceProgram, Program: "/sbin/fence"}
	}
	return nil
}

// bootClock is what the node's boot clock says, which is too fast or too slow.
func (n *node) bootClock() int64 {
	since := int64(n.w.now.Sub(n.booted))
	return since + since/1_000_000*n.drift
}

// takeGrant takes the controller's answer to a heartbeat.
func (n *node) takeGrant(g plan.Grant) { n.grant = n.grant.Newer(g) }

// grantLease answers a heartbeat that a node sent at this instant of its boot clock. The
// answer may come late, and what on the node passes it on may hang.
func (c *controller) grantLease(n *node, sent int64) {
	if c.w.profile.Fencing != fencesByLease {
		return
	}
	c.answered[n.name], c.sent[n.name] = c.w.now, sent
	answer := plan.Grant{Sent: sent}
	if known := c.st.Node(n.name); known != nil {
		answer.After = known.GaveUp
	}
	boot := n.boot
	c.w.sendMessage(func() {
		n.carryOut(func() {
			if boot == n.boot {
				n.takeGrant(answer)
			}
		})
	})
}

// enforceLeases ends the runs whose leases are over: with SIGTERM by the shepherd, and at
// last with SIGKILL, also where the shepherd hangs or is gone.
func (n *node) enforceLeases() {
	if n.dead {
		return
	}
	now := n.bootClock()
	for _, r := range n.w.truth.order {
		p := n.journal[r]
		if p == nil || !p.alive {
			continue
		}
		switch {
		case p.lease.Over(n.grant, now):
			n.w.noteLine(
				"%s: the lease of attempt %d of job uid %d is over",
				n.name,
				r.attempt,
				r.uid,
			)
			p.unknown = true
			n.noteEnded(r, p)
		case p.lease.Ending(n.grant, now) && !p.warned && n.hung != shepherdHangs && n.hung != allHangs:
			p.warned = true
			boot := n.boot
			n.w.scheduleAfter(n.w.upTo(p.lease.Kill), func() {
				if boot == n.boot && p.alive {
					p.unknown = true
					n.noteEnded(r, p)
				}
			})
		}
	}
}

// watchLeases is the node's own clockwork for leases.
func (n *node) watchLeases() {
	var look func()
	look = func() {
		n.enforceLeases()
		n.w.scheduleAfter(spec.Second, look)
	}
	n.w.scheduleAfter(n.w.upTo(spec.Second), look)
}

// fenceNodes lets the controller believe in leases, and ask the site's program.
func (c *controller) fenceNodes() {
	for _, n := range c.w.nodes {
		known := c.st.Node(n.name)
		if !c.up || known == nil || len(known.Unfenced) == 0 {
			continue
		}
		last := max(c.answered[n.name], c.began)
		if over := scheduler.LeasesOver(known, c.w.now.Sub(last)); len(over) > 0 {
			c.w.noteLine("the controller fences %s by lease", n.name)
			c.decideCommand(
				event.Actor{},
				scheduler.FenceNode{Node: n.name, By: event.FenceLease, Of: over},
				nil,
			)
		}
		if program, owed := scheduler.FenceProgramOf(c.st, known); program != "" && !n.fencing {
			c.runProgram(n, program, owed)
		}
	}
}

// runProgram is the site's program, which switches a machine off or fails, and of
// which the controller may not live to hear.
func (c *controller) runProgram(n *node, program string, owed []scheduler.Run) {
	n.fencing = true
	life, boot := c.life, n.boot
	c.w.scheduleAfter(c.w.upTo(10*spec.Second), func() {
		n.fencing = false
		answer := scheduler.FenceAnswered{Node: n.name, Program: program, Of: owed}
		if c.w.rng.IntN(3) == 0 {
			answer.Failed = "exit code 1"
		} else if boot == n.boot && !n.dead {
			c.w.noteLine("the fence program switches %s off", n.name)
			n.killMachine()
			c.w.scheduleAfter(c.w.upTo(2*spec.Minute), func() { n.dead = false; n.connectSoon() })
		}
		if life == c.life {
			c.decideCommand(event.Actor{}, answer, nil)
		}
	})
}
