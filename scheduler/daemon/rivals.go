package daemon

import (
	"fmt"

	"github.com/musterhpc/muster/spec"
)

// A node has one agent. Two that speak for the same node, each with a
// shepherd of its own, would start its jobs twice and lose each other's: the
// one that is there stays, the other is refused and told why, and the node's
// state says so for as long as that one goes on asking. Agents are told apart
// by their place, the machine and the state folder: of those with the same,
// only one can run, and it may always come back.

// rival is an agent that was refused.
type rival struct {
	of    string       // place of the agent that the node has
	place string       // its own
	at    spec.Instant // when it asked last
	said  spec.Instant // when that was logged last
	left  spec.Instant // when the node's agent left; 0 = it has not
}

// How long what was seen of two agents holds.
const (
	rivalShown = 30 * spec.Second // agents ask at least every ten seconds
	rivalSaid  = spec.Minute
	seatKept   = spec.Minute // for an agent that restarts while another one wants its node
)

// refuseRival returns an error when an agent of another place than this one
// has the node. Agents of releases that tell no place are not known apart.
func (h *hub) refuseRival(node, place string) error {
	now, silent := h.c.deps.Clock.Now(), 2*h.heartbeatInterval()
	h.mu.Lock()
	defer h.mu.Unlock()
	r, of := h.rivals[node], ""
	if old := h.conns[node]; old != nil && now.Sub(h.live[node].LastSeen) <= silent {
		of = old.place
	} else if old == nil && r.left != 0 && now.Sub(r.left) < seatKept {
		of = r.of
	}
	if of == "" || place == "" || of == place {
		return nil
	}
	r.of = of
	r.place = place
	r.at = now
	if h.conns[node] != nil {
		r.left = 0
	}
	if r.said == 0 || now.Sub(r.said) >= rivalSaid {
		r.said = now
		h.c.deps.Logger.Warn(
			"a second agent wants to be a node and is refused",
			"node",
			node,
			"agent",
			of,
			"second",
			place,
		)
	}
	h.rivals[node] = r
	return spec.Refuse(
		spec.CodeAccessDenied,
		fmt.Sprintf(
			"node %s has an agent, %s: this one, %s, is a second; stop one of them",
			node,
			of,
			place,
		),
	)
}

// rivalText is what the node's state says of a second agent; empty = there is
// none. Callers hold mu.
func (h *hub) rivalText(node string) string {
	r, ok := h.rivals[node]
	if !ok || h.c.deps.Clock.Now().Sub(r.at) > rivalShown {
		return ""
	}
	return fmt.Sprintf(
		"a second agent, %s, wants to be this node and is refused: the node's is %s",
		r.place,
		r.of,
	)
}
