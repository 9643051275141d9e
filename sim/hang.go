package sim

import "github.com/musterhpc/muster/spec"

// hangs says which daemons of a node are stopped: their connections stay open, but
// they do nothing. Processes of jobs continue and end.
type hangs uint8

const (
	nothingHangs  hangs = iota
	agentHangs          // no heartbeat, no report; orders wait in its socket
	shepherdHangs       // the agent says so; nothing starts and nothing is killed
	allHangs            // both, or both were killed: only what guards the leases is left
)

// hangPart stops the agent or the shepherd of a node for a while.
func (n *node) hangPart(what hangs) {
	if n.dead || n.hung != nothingHangs {
		return
	}
	n.w.noteLine(
		"%s: its %s hangs",
		n.name,
		[...]string{agentHangs: "agent", shepherdHangs: "shepherd", allHangs: "agent and its shepherd"}[what],
	)
	n.hung = what
	boot := n.boot
	n.w.scheduleAfter(n.w.upTo(2*spec.Minute), func() {
		if boot == n.boot {
			n.goOn()
		}
	})
}

// goOn resumes the stopped daemons, which carry out waiting orders in sequence.
func (n *node) goOn() {
	waiting := n.waiting
	n.hung, n.waiting = nothingHangs, nil
	for _, do := range waiting {
		do()
	}
	n.sendHeartbeat()
}

// carryOut executes an order now, or when the daemon resumes.
func (n *node) carryOut(do func()) {
	if n.hung != nothingHangs {
		n.waiting = append(n.waiting, do)
		return
	}
	do()
}
