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

func (d *Daemon) private(ctx context.Context, what string) bool {
	return d.cfg.Private != nil && slices.Contains(d.cfg.Private(ctx), what)
}

// own restricts a question to the caller's own jobs where jobs are private.
// One about others then has no answer.
func (d *Daemon) own(ctx context.Context, a *query.Acct) {
	if !d.private(ctx, privateJobs) {
		return
	}
	who := d.caller(ctx).User
	if len(a.Users) > 0 && !slices.Contains(a.Users, who) {
		who = "" // nobody's name
	}
	a.Users = []string{who}
}

// mayReport refuses reports, which are over everybody's use, where use is
// private.
func (d *Daemon) mayReport(ctx context.Context) error {
	if d.private(ctx, privateUsage) {
		return spec.Refuse(spec.CodeAccessDenied, "PrivateData=usage: reports are over the use of all, and only operators see them; sacct shows your own jobs")
	}
	return nil
}
