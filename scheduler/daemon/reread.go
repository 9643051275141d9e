package daemon

import (
	"context"
	"fmt"
	"maps"
	"slices"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/spec"
	"github.com/musterhpc/muster/spec/hostlist"
)

// rereadPatience is how long a reconfiguration waits for the agents to read theirs.
const rereadPatience = 5 * spec.Second

// askReread has an agent read its configuration; the newest request counts.
func (a *agentConn) askReread(query uint64) {
	a.mu.Lock()
	a.reread = &apiv1.ReadConfig{Ask: query}
	a.mu.Unlock()
	a.wakeSender()
}

// rereadConfigs has all connected agents read their configuration again. It says which
// of them did not take everything over, and what to do about them.
func (h *hub) rereadConfigs(ctx context.Context) []string {
	conns := map[string]*agentConn{}
	var older []string
	h.mu.Lock()
	for node, conn := range h.conns {
		if conn.rereads {
			conns[node] = conn
		} else {
			older = append(older, node)
		}
	}
	h.mu.Unlock()
	silent := maps.Clone(conns)
	query, back := h.rereads.beginQuestion(maps.Keys(conns), len(conns))
	defer h.rereads.endQuestion(query)
	for _, conn := range conns {
		conn.askReread(query)
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
			case got.reply.GetFailed() != "":
				reason := got.reply.GetFailed()
				failed[reason] = append(failed[reason], got.node)
			case got.reply.GetRestart():
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
	for _, reason := range slices.Sorted(maps.Keys(failed)) {
		say(
			failed[reason],
			"the agent goes on with its old configuration, as it cannot read the new one: "+reason,
		)
	}
	say(restart, "restart the agent for what else changed for it in slurm.conf, gres.conf or cgroup.conf; "+
		"prologs, epilogs and the HealthCheckProgram are in effect")
	say(older, "the agent is of a release that reads its configuration when it starts only: restart it")
	say(slices.Collect(maps.Keys(silent)), fmt.Sprintf(
		"the agent has not said within %d s that it has read its configuration", rereadPatience.Seconds()))
	return out
}
