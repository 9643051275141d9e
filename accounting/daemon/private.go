package daemon

import (
	"context"
	"slices"

	"github.com/musterhpc/muster/accounting/query"
	"github.com/musterhpc/muster/spec"
)

// The words of PrivateData that are about the past.
const (
	privateJobs  = "jobs"
	privateUsage = "usage"
)

// private tells whether what a site keeps private is kept from the caller. Where
// the controller is another process, the store tells who is an operator.
func (d *Daemon) private(ctx context.Context, scope query.Scope, what string) (bool, error) {
	if d.cfg.Private == nil || !slices.Contains(d.cfg.Private(ctx), what) {
		return false, nil
	}
	who := d.callerOf(ctx)
	if !d.cfg.Operators || who.User == "" || who.Limited {
		return true, nil
	}
	level, _ := query.Standing(scope, who.User)
	operator, err := d.isOperator(ctx, level)
	return !operator, err
}

// restrictToOwn restricts a question to the caller's own jobs where jobs are private.
// One about others then has no answer.
func (d *Daemon) restrictToOwn(ctx context.Context, scope query.Scope, acct *query.Acct) error {
	if private, err := d.private(ctx, scope, privateJobs); err != nil || !private {
		return err
	}
	who := d.callerOf(ctx).User
	if len(acct.Users) > 0 && !slices.Contains(acct.Users, who) {
		who = "" // nobody's name
	}
	acct.Users = []string{who}
	return nil
}

// mayReport refuses reports, which are over everybody's use, where use is
// private.
func (d *Daemon) mayReport(ctx context.Context, scope query.Scope) error {
	private, err := d.private(ctx, scope, privateUsage)
	if err != nil {
		return d.storeAway(err)
	}
	if private {
		return spec.Refuse(
			spec.CodeAccessDenied,
			"PrivateData=usage: reports are over the use of all, and only operators see them; sacct shows your own jobs",
		)
	}
	return nil
}
