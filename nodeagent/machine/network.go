package machine

import (
	"context"
	"sync"

	"github.com/musterhpc/muster/nodeagent/netcount"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/nodeagent/telemetry/host"
	"github.com/musterhpc/muster/spec"
)

// Network implements daemon.Network.
type Network struct {
	mu      sync.Mutex
	counter *netcount.Counter // nil: nothing is counted
}

// Follow implements daemon.Network. It costs one look at the group where that is
// followed already.
func (n *Network) Follow(tree string, depth int) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.counter != nil {
		if n.counter.Is(tree) {
			return nil
		}
		n.counter.Close()
		n.counter = nil
	}
	counter, err := netcount.Open(tree, depth)
	if err != nil {
		return err
	}
	n.counter = counter
	return nil
}

// Count implements daemon.Network.
func (n *Network) Count(usage *plan.Usage) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.counter == nil || usage.Group == 0 {
		return
	}
	bytes, err := n.counter.Read(usage.Group)
	if err != nil {
		return
	}
	usage.Counters = usage.Counters.
		With(spec.CounterNetIn, int64(bytes.In4+bytes.In6)).
		With(spec.CounterNetOut, int64(bytes.Out4+bytes.Out6)).
		With(spec.CounterNetIn6, int64(bytes.In6)).
		With(spec.CounterNetOut6, int64(bytes.Out6)).
		With(spec.CounterNetLoopback, int64(bytes.OutLoop))
}

// Forget implements daemon.Network.
func (n *Network) Forget(group uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.counter != nil {
		n.counter.Forget(group)
	}
}

// Counters implements daemon.NodeCounters.
type Counters struct {
	Source  host.Source
	Options host.CounterOptions
}

// Read implements daemon.NodeCounters.
func (c *Counters) Read(context.Context) spec.CounterValues {
	return host.ReadCounters(c.Source, &c.Options)
}
