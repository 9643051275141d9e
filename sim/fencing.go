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

// simLease is how long a run lives without an answer of the controller, if it fences
// by leases; nodes are given up after 30 s of silence.
const simLease = 40 * spec.Second

// maxDrift bounds the drift of a node's clock, in parts per million.
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

// bootClock is the time of the node's boot clock, which runs too fast or too slow.
func (n *node) bootClock() int64 {
	since := int64(n.w.now.Sub(n.booted))
	return since + since/1_000_000*n.drift
}

// takeGrant takes the controller's answer to a heartbeat.
func (n *node) takeGrant(grant plan.Grant) { n.grant = n.grant.Newer(grant) }

// grantLease answers a heartbeat that a node sent at this instant of its boot clock. The
// answer may come late, and what on the node passes it on may hang.
func (c *controller) grantLease(n *node, sent int64) {
	if c.w.profile.Fencing != fencesByLease || !c.confirmsLead() {
		return
	}
	c.answered[n.name], c.sent[n.name] = c.w.now, sent
	answer := plan.Grant{Sent: sent}
	if known := c.durable.Node(n.name); known != nil {
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

// enforceLeases ends runs whose leases have expired: the shepherd sends SIGTERM, and SIGKILL
// follows even if the shepherd hangs or is gone.
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

// watchLeases checks the node's leases at intervals of its own clock.
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
	for _, node := range c.w.nodes {
		known := c.durable.Node(node.name)
		if !c.up || known == nil || len(known.Unfenced) == 0 {
			continue
		}
		last := max(c.answered[node.name], c.began)
		if over := scheduler.LeasesOver(known, c.w.now.Sub(last)); len(over) > 0 {
			c.w.noteLine("the controller fences %s by lease", node.name)
			c.decideCommand(
				event.Actor{},
				scheduler.FenceNode{Node: node.name, By: event.FenceLease, Of: over},
				nil,
			)
		}
		if program, owed := scheduler.FenceProgramOf(c.durable, known); program != "" && !node.fencing {
			c.runProgram(node, program, owed)
		}
	}
}

// runProgram is the site's fence program. It switches a machine off or fails, and the
// controller may die before it learns the result.
func (c *controller) runProgram(n *node, program string, owed []scheduler.Run) {
	n.fencing = true
	boot := n.boot
	c.w.scheduleAfter(c.w.upTo(10*spec.Second), func() {
		n.fencing = false
		answer := scheduler.FenceAnswered{Node: n.name, Program: program, Of: owed}
		if c.w.rng.IntN(3) == 0 {
			answer.Failed = "exit code 1"
		} else if boot == n.boot && !n.dead {
			c.w.noteLine("the fence program switches %s off", n.name)
			n.killMachine()
			c.w.scheduleAfter(c.w.upTo(2*spec.Minute), func() {
				if s := c.w.ctl.durable.Node(n.name); s != nil && s.Asleep() {
					return // it stays off until it is powered up
				}
				n.dead = false
				n.connectSoon()
			})
		}
		if !c.over {
			c.decideCommand(event.Actor{}, answer, nil)
		}
	})
}
