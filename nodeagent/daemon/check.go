package daemon

import (
	"context"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// check looks at the node's health if it is time: in a goroutine of its own,
// once at a time.
func (a *Agent) check(ctx context.Context, now spec.Instant) {
	busy := len(a.core.runs) > 0
	if a.deps.Check == nil || a.checks || now < a.checkAt || (busy && !a.cfg.CheckBusy) ||
		(!busy && !a.cfg.CheckIdle) {
		return
	}
	a.checks, a.checkAt = true, spec.FarFuture
	if a.cfg.CheckEvery > 0 {
		a.checkAt = now.Add(a.cfg.CheckEvery)
	}
	a.wg.Go(func() {
		why := ""
		if err := a.deps.Check.Check(ctx); err != nil {
			why = err.Error()
		}
		if ctx.Err() == nil {
			a.inbox.put(func() {
				a.checks = false
				a.core.Checked(why)
			})
		}
	})
}

// Checked takes what a look at the node's health found; why is empty when it is
// well. The controller is told what is new, and at first in any case: it may
// have set the node aside before this agent began.
func (c *Core) Checked(why string) {
	if c.checked && c.unwell == why {
		return
	}
	if why != "" {
		c.log.Error("the node is not well", "why", why)
	} else if c.unwell != "" {
		c.log.Info("the node is well again")
	}
	c.checked, c.unwell = true, why
	c.outbox.addReport(
		&apiv1.Report{Kind: &apiv1.Report_NodeCheck{NodeCheck: &apiv1.NodeCheck{Failed: why}}},
		plan.RunKey{},
		false,
	)
	c.fx.Send = true
}
