package daemon

import (
	"context"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// stopGivenUp tells an agent to end the runs that were given up on its node. Their
// ends are what the next attempts of their jobs wait for. It gives the keys, which
// the agent must not take for runs that nobody knows.
func (h *hub) stopGivenUp(cluster *state.State, node string) []*apiv1.RunKey {
	conn, n := h.connOf(node), cluster.Node(node)
	if conn == nil || n == nil {
		return nil
	}
	var keys []*apiv1.RunKey
	for _, debt := range n.Unfenced {
		key := givenUpKey(&debt)
		keys = append(keys, key)
		conn.queueOrder(
			&apiv1.Order{Run: key, Kind: &apiv1.Order_Terminate{Terminate: &apiv1.Terminate{
				Grace: int64(
					killWait(cluster.Config),
				), Cause: uint32(event.EndNodeLost), Note: causeNote(event.EndNodeLost)}}},
		)
	}
	return keys
}

func givenUpKey(debt *state.Unfenced) *apiv1.RunKey {
	return &apiv1.RunKey{
		JobUid:  uint64(debt.UID),
		Attempt: debt.Attempt,
		Step:    int32(spec.StepBatch),
		Epoch:   debt.Epoch,
	}
}

// stopOutlived tells an agent to kill the runs that it has of attempts which are
// over although nobody owes their ends: an operator or a fence program was wrong
// about the node, or the site requeues without fencing. A later attempt may run at
// this moment, so they get no time.
func (h *hub) stopOutlived(cluster *state.State, conn *agentConn, running []*apiv1.RunKey) {
	node := cluster.Node(conn.node)
	if node == nil {
		return
	}
	for _, key := range running {
		if !cluster.KnowsEpoch(key.GetEpoch()) {
			continue // of a history that this ledger has lost: an administrator decides
		}
		job := cluster.Job(spec.JobUID(key.GetJobUid()))
		if key.GetStep() != int32(spec.StepBatch) || job == nil ||
			key.GetAttempt() >= job.Attempt ||
			node.HasUnfenced(job.UID, key.GetAttempt()) {
			continue
		}
		h.c.deps.Logger.Error(
			"an attempt lives that was taken for fenced: it is killed",
			aboutJob(cluster, job),
			"lives",
			key.GetAttempt(),
			"node",
			conn.node,
		)
		conn.queueOrder(
			&apiv1.Order{
				Run: key,
				Kind: &apiv1.Order_Terminate{
					Terminate: &apiv1.Terminate{Cause: uint32(event.EndNodeLost)},
				},
			},
		)
	}
}

// answerBeat answers a heartbeat if this controller still leads. One that does not must not
// lengthen leases: the leader after it counts them from its own beginning.
func (c *Controller) answerBeat(ctx context.Context, conn *agentConn, beat *apiv1.Heartbeat) {
	if beat.GetSent() == 0 || !conn.leases {
		return
	}
	if err := c.confirmLead(ctx); err != nil {
		c.deps.Logger.Debug("a heartbeat is not answered", "node", conn.node, "error", err)
		return
	}
	c.hub.answerHeartbeat(conn, beat.GetSent())
}

// takePulse takes what a message from an agent says about its node: that it is alive,
// and whether it can start jobs. Only a heartbeat says the latter; other messages
// leave it as it was.
func (c *Controller) takePulse(
	ctx context.Context,
	conn *agentConn,
	beat *apiv1.Heartbeat,
	actor event.Actor,
) {
	load, free := int64(-1), int64(-1)
	if beat != nil {
		load, free = beat.GetLoadMilli(), beat.GetMemFree()
		conn.unready = beat.GetUnready()
	}
	c.hub.noteHeard(conn.node, load, free)
	if conn.unready == "" {
		c.hub.noteAble(conn.node)
		c.answerBeat(ctx, conn, beat)
	}
	node := c.View().State.Node(conn.node)
	if node == nil {
		return
	}
	var command scheduler.Command
	switch {
	case node.Lost && conn.unready == "":
		command = scheduler.NodeHeard{Node: conn.node}
	case !node.Lost && conn.unready != "":
		c.deps.Logger.Warn("a node can start nothing", "node", conn.node, "because", conn.unready)
		command = scheduler.NodeUnready{
			Node:     conn.node,
			Why:      conn.unready,
			LastSeen: c.hub.lastAble(conn.node),
		}
	default:
		return
	}
	if rep := c.writer.commitCommand(ctx, &request{cmd: command, actor: actor}); rep.err != nil &&
		ctx.Err() == nil {
		c.deps.Logger.Warn(
			"what a node says of itself could not be recorded",
			"node",
			conn.node,
			"error",
			rep.err,
		)
	}
}

// noteAble notes that a node is alive and can start jobs.
func (h *hub) noteAble(node string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ableAt[node] = h.c.deps.Clock.Now()
}

// lastAble is when a node could last start jobs, as far as this controller knows.
func (h *hub) lastAble(node string) spec.Instant {
	h.mu.Lock()
	defer h.mu.Unlock()
	return max(h.ableAt[node], h.c.started)
}

// ableBefore is when a node could last start jobs; 0 if this controller has not
// heard of it.
func (h *hub) ableBefore(node string) spec.Instant {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ableAt[node]
}
