package daemon

import (
	"context"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/nodeagent/plan"
	"github.com/musterhpc/muster/spec"
)

// The agent only carries what concerns leases between the controller and the
// shepherd, which enforces them: an agent that is stopped or dead changes nothing.

// leaseOf reads the lease of an order.
func leaseOf(launch *apiv1.Launch) plan.Lease {
	lease := launch.GetLease()
	return plan.Lease{
		From:   int64(lease.GetFrom()),
		Length: spec.Span(lease.GetLength()),
		Kill:   spec.Span(lease.GetKill()),
		Seq:    lease.GetSeq(),
	}
}

// bootClock is the machine's boot clock in nanoseconds; 0 where there is none.
func (a *Agent) bootClock() uint64 {
	if a.deps.BootClock == nil {
		return 0
	}
	return uint64(a.deps.BootClock())
}

// passGrant tells the shepherd that the controller has answered. An answer that is
// lost is made up for by the next.
func (a *Agent) passGrant(ctx context.Context, g *apiv1.Grant) {
	grant := plan.Grant{Sent: int64(g.GetSent()), After: g.GetAfter()}
	a.wg.Go(func() {
		if err := a.deps.Shepherd.Grant(ctx, grant); err != nil && ctx.Err() == nil {
			a.log.Warn(
				"the shepherd was not told that the controller has answered; jobs with leases end unless a later answer reaches it",
				"error",
				err,
			)
		}
	})
}
