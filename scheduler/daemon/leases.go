package daemon

import (
	"context"
	"errors"
	"fmt"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// answerHeartbeat answers a heartbeat, or a registration, that a node sent at an instant of
// its boot clock: the leases of its runs go on from then.
//
// The instant of the answer is noted before it is decided which runs it is for, and
// fence looks at these two in the other order. So either the answer is for none of
// the runs that are given up, or their leases are counted from it.
func (h *hub) answerHeartbeat(conn *agentConn, sent uint64) {
	if sent == 0 || !conn.leases {
		return
	}
	h.mu.Lock()
	h.answered[conn.node] = h.c.deps.Clock.Monotonic()
	h.mu.Unlock()
	grant := &apiv1.Grant{Sent: sent}
	if node := h.c.View().State.Node(conn.node); node != nil {
		grant.After = node.GaveUp
	}
	conn.mu.Lock()
	conn.sent, conn.grant = sent, grant
	conn.mu.Unlock()
	conn.wakeSender()
}

// confirmLead returns when this controller is known to have led after the call began. What was
// received before may then be answered for the leader, however long this process, or a
// message, was held up.
func (c *Controller) confirmLead(ctx context.Context) error {
	if c.deps.ConfirmLead == nil {
		return nil
	}
	return c.deps.ConfirmLead(ctx)
}

// leadOverlap is how long a controller of an older release, which answers heartbeats without
// confirming that it leads, may do so after it has lost the lead: raft's lease of a leader, and
// the time to stop.
const leadOverlap = 10 * spec.Second

// countLeases begins to count leases, now that this controller leads: what those
// before it answered is not known here.
func (h *hub) countLeases() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.began = h.c.deps.Clock.Monotonic() + leadOverlap
}

// unansweredFor is for how long no heartbeat of a node has been answered, by this
// controller and those before it.
func (h *hub) unansweredFor(node string) spec.Span {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.began
	if at, ok := h.answered[node]; ok {
		last = at
	}
	return h.c.deps.Clock.Monotonic() - last
}

// errNoLeases is why a run with a lease cannot be started by an agent that would
// not end it.
var errNoLeases = errors.New(
	"the site fences by leases, which the agent of this node does not know: restart it with this release",
)

// leaseFor is what an agent learns about the lease of a job; nil where it has none.
func (h *hub) leaseFor(
	conn *agentConn, cluster *state.State, job *state.Job,
) (*apiv1.Lease, error) {
	length := job.Alloc.Lease
	if length == 0 {
		return nil, nil
	}
	if !conn.leases {
		return nil, errNoLeases
	}
	conn.mu.Lock()
	from := conn.sent
	conn.mu.Unlock()
	// KillWait may have been raised since the job started.
	kill := min(killWait(cluster.Config), length/2)
	return &apiv1.Lease{
		From:   from,
		Length: int64(length),
		Kill:   int64(kill),
		Seq:    job.StartSeq,
	}, nil
}

// maxFencers bounds the fence programs that run at a time.
const maxFencers = 16

// The waits between two calls of the fence program for one node: doubled from the
// first to the longest.
const (
	firstFenceWait   = 10 * spec.Second
	longestFenceWait = 5 * spec.Minute
)

// fencers are the calls of the site's fence program.
type fencers struct {
	busy map[string]bool      // by node
	next map[string]spec.Span // when a node may be tried again, on the monotonic clock
}

// fenceOwed does what can be done about the runs that nodes owe.
func (h *hub) fenceOwed(ctx context.Context) {
	cluster := h.c.View().State
	cluster.Nodes.Range(func(_ uint64, node *state.Node) bool {
		name := node.Spec.Name
		if len(node.Unfenced) == 0 {
			h.forgetFencer(name)
			return true
		}
		if over := scheduler.LeasesOver(node, h.unansweredFor(name)); len(over) > 0 {
			h.c.deps.Logger.Info("the leases of runs are over", "node", name, "runs", len(over))
			h.recordFencing(ctx, scheduler.FenceNode{Node: name, By: event.FenceLease, Of: over})
		}
		if program, owed := scheduler.FenceProgramOf(cluster, node); program != "" {
			h.callFencer(ctx, node, program, owed)
		}
		return true
	})
}

func (h *hub) forgetFencer(node string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.fencers.next, node)
}

// callFencer calls the site's program for a node unless it was called a moment ago.
// The program's answer is about what the node owed when it was called.
func (h *hub) callFencer(ctx context.Context, n *state.Node, program string, owed []scheduler.Run) {
	if h.c.deps.Programs == nil {
		return
	}
	node := n.Spec.Name
	now := h.c.deps.Clock.Monotonic()
	h.mu.Lock()
	due := !h.fencers.busy[node] && len(h.fencers.busy) < maxFencers && now >= h.fencers.next[node]
	if due {
		h.fencers.busy[node] = true
	}
	h.mu.Unlock()
	if !due {
		return
	}
	tries := uint32(0)
	if n.FenceTry != nil {
		tries = n.FenceTry.Try
	}
	reason := fmt.Sprintf("node %s does not respond", node)
	if n.Power == event.PoweredDown {
		reason = "" // it is SuspendProgram, which takes the node and nothing else
	}
	go func() {
		h.c.deps.Logger.Warn(
			"the fence program is called",
			"program",
			program,
			"node",
			node,
			"runs",
			len(owed),
		)
		err := h.c.deps.Programs.Fence(ctx, program, node, reason)
		answer := scheduler.FenceAnswered{Node: node, Program: program, Of: owed}
		if err != nil {
			answer.Failed = err.Error()
			h.c.deps.Logger.Error(
				"the fence program did not confirm that a node is off",
				"program",
				program,
				"node",
				node,
				"error",
				err,
			)
		}
		h.mu.Lock()
		delete(h.fencers.busy, node)
		h.fencers.next[node] = h.c.deps.Clock.Monotonic() + fenceWait(tries)
		h.mu.Unlock()
		if ctx.Err() == nil { // a controller that ends has killed the program itself
			h.recordFencing(ctx, answer)
		}
	}()
}

// fenceWait is how long to wait after so many failures.
func fenceWait(failures uint32) spec.Span {
	wait := firstFenceWait
	for range failures {
		wait = min(2*wait, longestFenceWait)
	}
	return wait
}

// recordFencing has a command about fencing done; what fails is tried at the next look.
func (h *hub) recordFencing(ctx context.Context, command scheduler.Command) {
	rep := h.c.writer.commitCommand(
		ctx,
		&request{cmd: command, actor: event.Actor{Kind: event.ActorSystem}},
	)
	if rep.err != nil && ctx.Err() == nil {
		h.c.deps.Logger.Warn("what fences a node could not be recorded", "error", rep.err)
	}
}
