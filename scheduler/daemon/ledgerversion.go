package daemon

import (
	"context"
	"fmt"

	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/scheduler"
	"github.com/musterhpc/muster/spec"
)

// How often the leader looks whether all controllers know a newer version of the ledger.
const (
	minRaiseInterval = spec.Second
	maxRaiseInterval = spec.Minute
)

// refuseNewer refuses events that need a newer version of the ledger than the one that all
// controllers have agreed on: one of them could not read the batch, and would stop. The
// version counts that was in force before the batch, because readers see it as a whole.
func (w *writer) refuseNewer(events []event.Envelope) error {
	if w.base.Version >= event.Version {
		return nil
	}
	// The first batch of a new ledger says itself which version it begins with.
	if w.base.Seq == 0 {
		return nil
	}
	for i := range events {
		needs, what, err := w.c.deps.Codec.Needs(events[i].Event)
		if err != nil {
			return err
		}
		if needs > w.base.Version {
			return spec.Refuse(spec.CodeLedgerVersion, fmt.Sprintf(
				"%s needs version %d of the ledger, which is at %d", what, needs, w.base.Version))
		}
	}
	return nil
}

// writableConfig is a configuration without what the ledger's version has no words for. A
// controller that was upgraded starts with what slurm.conf says, and what only its release
// knows holds once the version is raised.
func (c *Controller) writableConfig(config *spec.Config) (*spec.Config, error) {
	version := c.View().State.Version
	if version >= event.Version {
		return config, nil
	}
	needs, what, err := c.deps.Codec.Needs(&event.ConfigAdopted{Config: config})
	if err != nil || needs <= version {
		return config, err
	}
	reduced, err := c.deps.Codec.Reduce(&event.ConfigAdopted{Config: config}, version)
	if err != nil {
		return nil, err
	}
	c.deps.Logger.Warn(
		"a part of the configuration holds only once the ledger's version is raised (muster upgrade --plan)",
		"part", what, "needs", needs, "version", version,
	)
	return reduced.(*event.ConfigAdopted).Config, nil
}

// adoptConfigAnew adopts the configuration with what it had no words for until now.
func (c *Controller) adoptConfigAnew(ctx context.Context, actor event.Actor) error {
	if c.deps.Reload == nil {
		return nil
	}
	config, _, err := c.deps.Reload()
	if err != nil {
		return err
	}
	old := c.View().State.Config
	config = config.KeepChanged(old)
	if sameConfig(old, config.KeepDynamic(old)) {
		return nil
	}
	return c.writer.commitCommand(
		ctx,
		&request{cmd: scheduler.Configure{Config: config}, actor: actor},
	).err
}

// agreeVersion finds the newest version of the ledger that all controllers know, and calls then with
// it if that is newer than the one in force.
func (c *Controller) agreeVersion(ctx context.Context, then func(version uint32) error) error {
	now := c.View().State.Version
	if group := c.deps.Group; group != nil {
		return group.Agree(ctx, now, then)
	}
	if event.Version <= now {
		return nil
	}
	return then(event.Version)
}

// raiseLedger raises the ledger's version as far as all controllers know it, and returns the
// version in force then.
func (c *Controller) raiseLedger(ctx context.Context, actor event.Actor) (uint32, error) {
	err := c.agreeVersion(ctx, func(version uint32) error {
		rep := c.writer.commitCommand(
			ctx,
			&request{cmd: scheduler.RaiseVersion{To: version}, actor: actor},
		)
		if rep.err != nil {
			return rep.err
		}
		if err := c.adoptConfigAnew(ctx, actor); err != nil {
			c.deps.Logger.Warn(
				"the ledger's version was raised, and the configuration was not adopted again (scontrol reconfigure)",
				"error", err,
			)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	return c.View().State.Version, nil
}

// raiseInTime raises the ledger's version once all controllers have known a newer one for as
// long as the site wants to be able to go back. A controller that is started anew begins to
// count anew.
func (c *Controller) raiseInTime(ctx context.Context) error {
	after := c.deps.Settings.RaiseAfter
	if after == 0 || after >= spec.Infinite {
		return nil
	}
	interval := min(max(after/8, minRaiseInterval), maxRaiseInterval)
	known := false
	since := spec.Span(0)
	for c.View().State.Version < event.Version {
		agreed := false
		err := c.agreeVersion(ctx, func(uint32) error {
			agreed = true
			return nil
		})
		now := c.deps.Clock.Monotonic()
		switch {
		case err != nil || !agreed:
			known = false
			c.raiseAt.Store(0)
		case !known:
			known = true
			since = now
			c.raiseAt.Store(int64(c.deps.Clock.Now().Add(after)))
		case now-since >= after:
			version, err := c.raiseLedger(ctx, event.Actor{Kind: event.ActorSystem})
			c.deps.Logger.Info("the ledger's version was raised", "version", version, "error", err)
			known = false
			c.raiseAt.Store(0)
		}
		if !c.sleepFor(ctx, interval) {
			return nil
		}
	}
	return nil
}

// describeLedger adds to the list of controllers which version of the ledger they write, and
// what keeps them from a newer one.
func (c *Controller) describeLedger(
	ctx context.Context,
	out *apiv1.ControllersReply,
) *apiv1.ControllersReply {
	out.LedgerVersion = c.View().State.Version
	out.LedgerNewest = event.Version
	out.RaiseAt = c.raiseAt.Load()
	if out.GetLedgerVersion() >= event.Version {
		return out
	}
	if err := c.agreeVersion(ctx, func(uint32) error { return nil }); err != nil {
		out.RaiseWaits = err.Error()
	}
	return out
}
