package daemon

import (
	"context"
	"maps"
	"slices"
	"sync"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// rereadPatience is how long a reconfiguration waits for the agents to read theirs.
const rereadPatience = 5 * spec.Second

// rereads are the agents that are reading their configuration again.
type rereads struct {
	mu   sync.Mutex
	last uint64
	open map[uint64]*rereading
}

// rereading waits for some nodes.
type rereading struct {
	waiting map[string]bool
	out     chan<- reread // with room for all of them
}

// reread is one node's answer.
type reread struct {
	node   string
	answer *apiv1.ConfigRead
}

func (r *rereads) begin(q *rereading) uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.open == nil {
		r.open = map[uint64]*rereading{}
	}
	r.last++
	r.open[r.last] = q
	return r.last
}

func (r *rereads) end(ask uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, ask)
}

// take hands an answer on; one that comes too late, twice, or from a node that was not
// asked is nobody's.
func (r *rereads) take(node string, answer *apiv1.ConfigRead) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if q := r.open[answer.GetAsk()]; q != nil && q.waiting[node] {
		delete(q.waiting, node)
		q.out <- reread{node, answer}
	}
}

// askReread has an agent read its configuration; the newest request counts.
func (a *agentConn) askReread(ask uint64) {
	a.mu.Lock()
	a.reread = &apiv1.ReadConfig{Ask: ask}
	a.mu.Unlock()
	a.wakeSender()
}

// rereadConfigs has all connected agents read their configuration again. It says which
// of them did not take everything over, and what to do about them.
func (h *hub) rereadConfigs(ctx context.Context) []string {
	q := &rereading{waiting: map[string]bool{}}
	conns := map[string]*agentConn{}
	var older []string
	h.mu.Lock()
	for node, conn := range h.conns {
		if conn.rereads {
			conns[node], q.waiting[node] = conn, true
		} else {
			older = append(older, node)
		}
	}
	h.mu.Unlock()
	back := make(chan reread, len(conns))
	q.out = back
	silent := maps.Clone(q.waiting)
	ask := h.rereads.begin(q)
	defer h.rereads.end(ask)
	for _, conn := range conns {
		conn.askReread(ask)
	}
	failed := map[string][]string{} // nodes by reason
	var restart []string
	late, stop := h.c.deps.Clock.After(rereadPatience)
	defer stop()
	for waiting := true; waiting && len(silent) > 0; {
		select {
		case got := <-back:
			delete(silent, got.node)
			switch {
			case got.answer.GetFailed() != "":
				why := got.answer.GetFailed()
				failed[why] = append(failed[why], got.node)
			case got.answer.GetRestart():
				restart = append(restart, got.node)
			}
		case <-late:
			waiting = false
		case <-ctx.Done():
			waiting = false
		case <-h.c.stopping:
			waiting = false
		}
	}
	var out []string
	say := func(nodes []string, text string) {
		if len(nodes) > 0 {
			slices.Sort(nodes)
			out = append(out, hostlist.Fold(nodes)+": "+text)
		}
	}
	for _, why := range slices.Sorted(maps.Keys(failed)) {
		say(failed[why], "the agent goes on with its old configuration, as it cannot read the new one: "+why)
	}
	say(restart, "restart the agent for what else changed for it in slurm.conf, gres.conf or cgroup.conf; "+
		"prologs, epilogs and the HealthCheckProgram are in effect")
	say(older, "the agent is of a release that reads its configuration when it starts only: restart it")
	say(slices.Collect(maps.Keys(silent)), "the agent has not said within 5 s that it has read its configuration")
	return out
}
