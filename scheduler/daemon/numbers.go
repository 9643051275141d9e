package daemon

import (
	"context"

	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

// After a restore the ledger does not know which job numbers were given since the
// backup. The accounting store and the agents do (noteLost), and speak soon after the
// controller has begun. Nothing that takes a number is done before: a submission waits,
// and no pass runs, which would split tasks from arrays.

// Bounds of the wait for those who know. Behind them jobs matter more than numbers.
const (
	accountingPatience = 60 * spec.Second
	agentPatience      = 10 * spec.Second
	submitPatience     = 5 * spec.Second // of one submission
)

// settleNumbers waits, after a restore, for those who may have seen more of the history.
func (c *Controller) settleNumbers(ctx context.Context) error {
	if c.deps.Restored == nil {
		return nil
	}
	fires, stop := c.deps.Clock.After(accountingPatience)
	defer stop()
	select {
	case <-c.accounted:
	case <-fires:
		c.deps.Logger.Error(
			"the ledger was restored, and the accounting store has not said which job numbers were given since the backup: "+
				"numbers that only it knows may be given again",
			"waited",
			accountingPatience,
		)
	case <-ctx.Done():
		return nil
	}
	const step = 100 * spec.Millisecond
	for waited := spec.Span(0); waited < agentPatience && !c.heardAllAgents(); waited += step {
		if !c.sleepFor(ctx, step) {
			return nil
		}
	}
	if err := c.deps.Restored(); err != nil {
		return err
	}
	c.deps.Logger.Info(
		"the ledger was restored: job numbers go on",
		"next",
		c.View().State.NextID,
	)
	close(c.numbered)
	return nil
}

// heardAllAgents tells whether every node in service has connected.
func (c *Controller) heardAllAgents() bool {
	heard := true
	c.View().State.Nodes.Range(func(_ uint64, node *state.Node) bool {
		if node.Inv != nil && !node.Lost && !node.Asleep() && node.Admin != event.NodeDown {
			heard = c.hub.wasConnected(node.Spec.Name)
		}
		return heard
	})
	return heard
}

// awaitNumbers waits until job numbers may be given.
func (c *Controller) awaitNumbers(ctx context.Context) error {
	select {
	case <-c.numbered:
		return nil
	default:
	}
	fires, stop := c.deps.Clock.After(submitPatience)
	defer stop()
	select {
	case <-c.numbered:
		return nil
	case <-fires:
	case <-ctx.Done():
	}
	return spec.Refuse(
		spec.CodeSocketTimeout,
		"the ledger was restored, and the accounting store is asked which job numbers were given since: try again in a minute",
	)
}
