package daemon

import (
	"context"
	"fmt"
	"maps"
	"sync"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/view"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// hub holds the agents' connections and what their heartbeats say. Nothing
// of it is a fact of the ledger: it is rebuilt when agents connect again.
type hub struct {
	c *Controller
	// turn is held while the orders of a batch, or those of a new connection,
	// are queued: an agent never gets an older order after a newer one.
	turn sync.Mutex
	mu   sync.Mutex
	// conns by node name; a newer connection replaces an older one.
	conns   map[string]*agentConn
	live    map[string]wire.NodeLive
	ableAt  map[string]spec.Instant // when each node was last alive and could start jobs
	grace   spec.Instant            // before which no silence counts
	closed  string                  // why there are no connections any more
	asks    asks[*apiv1.Measured]
	reads   reads
	rereads asks[*apiv1.ConfigRead]
	rivals  map[string]rival // by node name
	known   map[string]bool  // nodes that were connected in this life of the controller
	// answered is when a heartbeat of each node was last answered, and began when no
	// controller before this one answered any more, both on the monotonic clock.
	answered map[string]spec.Span
	began    spec.Span
	fencers  fencers
	prologs  prologs
}

// agentConn is the sending side of one agent's stream.
type agentConn struct {
	node   string
	place  string // of the agent: machine and state folder
	epochs bool   // the agent's run keys carry epochs
	leases bool   // the agent's node ends runs whose leases are over
	// outputs tells that the agent reads what jobs write.
	outputs bool
	rereads bool // the agent reads its configuration again when it is told to
	// prepares tells that the agent says when a prolog is over.
	prepares bool
	adopts   bool // the agent tells what it kept of unknown runs, and never starts an adopted one
	mu       sync.Mutex
	orders   []*apiv1.Order
	asks     []*apiv1.Measure
	reads    []*apiv1.ReadFile
	reread   *apiv1.ReadConfig
	acked    uint64
	ackDue   bool
	bye      string
	barred   bool         // certificates were revoked since the agent was told
	keyed    bool         // the keys of credentials changed since the agent was told
	sent     uint64       // boot clock of the node when it sent the last heartbeat
	grant    *apiv1.Grant // an answer that is to be sent; a newer one replaces it
	// unready is why the node can start nothing, as the last heartbeat said. The
	// goroutine that receives owns it.
	unready string
	wake    chan struct{}
	full    chan struct{} // closed when the agent has left too many orders unread
}

// maxOrders is how many orders may wait for an agent. A connection that has
// more is cut: the next one begins with what is still to be done.
const maxOrders = 16384

func newHub(controller *Controller) *hub {
	return &hub{
		c:        controller,
		conns:    map[string]*agentConn{},
		live:     map[string]wire.NodeLive{},
		ableAt:   map[string]spec.Instant{},
		rivals:   map[string]rival{},
		known:    map[string]bool{},
		answered: map[string]spec.Span{},
		fencers:  fencers{busy: map[string]bool{}, next: map[string]spec.Span{}},
	}
}

func newAgentConn(reg *apiv1.Registration) *agentConn {
	return &agentConn{
		node:     reg.GetNode(),
		place:    reg.GetPlace(),
		epochs:   reg.GetEpochs(),
		leases:   reg.GetLeases(),
		outputs:  reg.GetOutputs(),
		rereads:  reg.GetRereads(),
		prepares: reg.GetPrepares(),
		adopts:   reg.GetAdopts(),
		wake:     make(chan struct{}, 1),
		full:     make(chan struct{}),
	}
}

func (a *agentConn) wakeSender() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// queueOrder queues an order for the agent; it leaves in one message with whatever
// else is waiting.
func (a *agentConn) queueOrder(order *apiv1.Order) {
	a.mu.Lock()
	defer a.mu.Unlock()
	select {
	case <-a.full:
		return
	default:
	}
	if len(a.orders) >= maxOrders {
		a.orders = nil
		close(a.full)
		return
	}
	a.orders = append(a.orders, order)
	a.wakeSender()
}

func (a *agentConn) ackReports(upTo uint64) {
	a.mu.Lock()
	a.acked, a.ackDue = max(a.acked, upTo), true
	a.mu.Unlock()
	a.wakeSender()
}

func (a *agentConn) sayGoodbye(reason string) {
	a.mu.Lock()
	if a.bye == "" {
		a.bye = reason
	}
	a.mu.Unlock()
	a.wakeSender()
}

// take empties the queue.
func (a *agentConn) take() outgoing {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := outgoing{
		a.orders, a.asks, a.reads, a.reread, a.acked, a.ackDue, a.bye, a.barred, a.keyed, a.grant,
	}
	a.orders = nil
	a.asks = nil
	a.reads = nil
	a.reread = nil
	a.ackDue = false
	a.barred = false
	a.keyed = false
	a.grant = nil
	return out
}

// outgoing is what waits for an agent.
type outgoing struct {
	orders []*apiv1.Order
	asks   []*apiv1.Measure
	reads  []*apiv1.ReadFile
	reread *apiv1.ReadConfig
	acked  uint64
	ackDue bool
	bye    string
	barred bool
	keyed  bool
	grant  *apiv1.Grant
}

// attachConn makes a connection the one of its node and queues what the node
// should be doing by the newest view. What is decided after that view follows.
// reg is what the agent says of itself.
func (h *hub) attachConn(agent *agentConn, reg *apiv1.Registration) (*view.View, []*apiv1.RunKey) {
	h.turn.Lock()
	defer h.turn.Unlock()
	h.mu.Lock()
	old, closed := h.conns[agent.node], h.closed
	h.conns[agent.node] = agent
	h.known[agent.node] = true
	h.mu.Unlock()
	if old != nil {
		old.sayGoodbye("the node connected again")
	}
	if closed != "" {
		agent.sayGoodbye(closed)
	}
	h.noteHeard(agent.node, -1, -1)
	h.noteAble(agent.node)
	h.answerHeartbeat(agent, reg.GetSent())
	snapshot := h.c.View()
	desired := h.reconcileNode(snapshot, agent.node)
	desired = append(desired, h.stopGivenUp(snapshot.State, agent.node)...)
	h.stopOutlived(snapshot.State, agent, reg.GetRunning())
	return snapshot, desired
}

func (h *hub) detachConn(agent *agentConn) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.conns[agent.node] != agent {
		return
	}
	delete(h.conns, agent.node)
	if r, ok := h.rivals[agent.node]; ok && r.of == agent.place {
		r.left = h.c.deps.Clock.Now()
		h.rivals[agent.node] = r
	}
}

// tellRevoked has every agent told which certificates hold no more.
func (h *hub) tellRevoked() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, agent := range h.conns {
		agent.mu.Lock()
		agent.barred = true
		agent.mu.Unlock()
		agent.wakeSender()
	}
}

// KeysChanged has every agent told which keys credentials are signed with from now on.
func (c *Controller) KeysChanged() {
	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	for _, agent := range c.hub.conns {
		agent.mu.Lock()
		agent.keyed = true
		agent.mu.Unlock()
		agent.wakeSender()
	}
}

func (h *hub) connOf(node string) *agentConn {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.conns[node]
}

// wasConnected tells whether a node was connected since this controller began.
func (h *hub) wasConnected(node string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.known[node]
}

// knowsRunKeys tells whether the agents of all these nodes know run keys with epochs.
func (h *hub) knowsRunKeys(nodes []string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, name := range nodes {
		if conn := h.conns[name]; conn != nil && !conn.epochs {
			return false
		}
	}
	return true
}

// countConnected is the number of agents with a stream.
func (h *hub) countConnected() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.conns)
}

// connectedNodes are the nodes whose agents have a stream.
func (h *hub) connectedNodes() map[string]bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := make(map[string]bool, len(h.conns))
	for node := range h.conns {
		out[node] = true
	}
	return out
}

// copySaid copies what the heartbeats said.
func (h *hub) copySaid() map[string]wire.NodeLive {
	h.mu.Lock()
	defer h.mu.Unlock()
	return maps.Clone(h.live)
}

func (h *hub) noteHeard(node string, load, free int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	live := h.live[node]
	live.LastSeen = h.c.deps.Clock.Now()
	if _, known := h.live[node]; !known || load >= 0 {
		live.LoadMilli, live.MemFree = load, free
	}
	h.live[node] = live
}

// nodeLive is what heartbeats said about a node.
func (h *hub) nodeLive(node string) wire.NodeLive {
	h.mu.Lock()
	defer h.mu.Unlock()
	live, ok := h.live[node]
	if !ok {
		live = wire.NodeLive{LoadMilli: -1, MemFree: -1}
	}
	live.Trouble = h.rivalText(node)
	if n := h.c.View().State.Node(node); live.Trouble == "" && n != nil {
		live.Trouble = fenceTrouble(n)
	}
	return live
}

// fenceTrouble tells that the site's program has failed to fence a node.
func fenceTrouble(node *state.Node) string {
	if node.FenceTry == nil {
		return ""
	}
	return fmt.Sprintf(
		"fence program %s failed %d times: %s",
		node.FenceTry.Program,
		node.FenceTry.Try,
		node.FenceTry.Why,
	)
}

func (h *hub) closeAll(reason string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = reason
	for _, conn := range h.conns {
		conn.sayGoodbye(reason)
	}
}

// silenceTimeout is SlurmdTimeout; 0 would never call a node silent.
func (h *hub) silenceTimeout() spec.Span {
	if t := h.c.View().State.Config.Timing.NodeTimeout; t > 0 {
		return t
	}
	return 300 * spec.Second
}

// heartbeatInterval is how often agents report that they are alive.
func (h *hub) heartbeatInterval() spec.Span {
	if b := h.c.deps.Settings.Heartbeat; b > 0 {
		return b
	}
	return max(h.silenceTimeout()/3, spec.Second)
}

// watchSilence tells the ledger of nodes that have been silent for SlurmdTimeout. A
// controller that has just started, or has slept, gives every node that long
// to be heard.
func (h *hub) watchSilence(ctx context.Context) error {
	h.countLeases()
	last := h.c.deps.Clock.Now()
	for {
		pause := min(h.silenceTimeout()/10, spec.Second)
		if !h.c.sleepFor(ctx, pause) {
			return nil
		}
		now := h.c.deps.Clock.Now()
		h.clockStepped(last, now, pause)
		last = now
		for _, silent := range h.silentNodes(now) {
			h.c.deps.Logger.Warn(
				"a node does not respond",
				"node",
				silent.Node,
				"last_seen",
				silent.LastSeen.Unix(),
			)
			if rep := h.c.writer.commitCommand(
				ctx, &request{cmd: silent, actor: event.Actor{Kind: event.ActorSystem}},
			); rep.err != nil &&
				ctx.Err() == nil {
				h.c.deps.Logger.Warn(
					"a node's silence could not be recorded",
					"node",
					silent.Node,
					"error",
					rep.err,
				)
			}
		}
		h.fenceOwed(ctx)
	}
}

// clockStepped notices that the clock was set, or that this machine slept: the
// nodes were not silent then, nobody listened.
func (h *hub) clockStepped(last, now spec.Instant, pause spec.Span) {
	step := now.Sub(last) - pause
	if step >= 0 && step < max(h.silenceTimeout()/3, spec.Second) {
		return
	}
	h.c.deps.Logger.Warn(
		"the clock stepped or the controller was stopped: every node gets SlurmdTimeout anew",
		"nanoseconds",
		int64(step),
	)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.grace = now
	for node, live := range h.live {
		live.LastSeen = min(live.LastSeen, now)
		h.live[node] = live
	}
	for node, at := range h.ableAt {
		h.ableAt[node] = min(at, now)
	}
}

// silentNodes lists the nodes that have not been heard of, or have been able to start
// nothing, for too long. One that is known to be lost is listed as long as it has
// jobs, which an older release left there.
func (h *hub) silentNodes(now spec.Instant) []scheduler.NodeSilent {
	h.mu.Lock()
	grace := max(h.grace, min(h.c.started, now))
	h.mu.Unlock()
	var silents []scheduler.NodeSilent
	cluster := h.c.View().State
	cluster.Nodes.Range(func(_ uint64, node *state.Node) bool {
		if node.Inv == nil || node.Asleep() || node.IsRebooting() {
			return true // it is expected to be silent
		}
		if node.Lost && !cluster.EndsWithNode(node) {
			return true // there is nothing left to give up
		}
		if seen := max(h.ableBefore(node.Spec.Name), grace); now.Sub(seen) > h.silenceTimeout() {
			silents = append(silents, scheduler.NodeSilent{Node: node.Spec.Name, LastSeen: seen})
		}
		return true
	})
	return silents
}
