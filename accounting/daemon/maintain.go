package daemon

import (
	"context"
	"fmt"

	"github.com/musterhpc/muster/accounting/query"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/api/v1/service"
	"github.com/musterhpc/muster/spec"
)

// Maintain takes care of the store, for administrators: verify, doctor, backup
// and restore.
func (s Service) Maintain(
	request *apiv1.MaintainRequest,
	stream service.Accounting_MaintainServer,
) error {
	ctx := stream.Context()
	if !s.D.callerOf(ctx).Admin {
		return spec.Refuse(
			spec.CodeAccessDenied,
			"only administrators take care of the accounting store",
		)
	}
	var found []query.Finding
	var err error
	switch request.GetVerb() {
	case "verify":
		found, err = s.D.verifyStore(
			ctx,
			func(done, of uint64) { _ = stream.Send(&apiv1.MaintainReply{Done: done, Of: of}) },
		)
	case "doctor":
		found, err = s.D.examineStore(ctx)
	case "backup":
		err = s.D.cfg.Store.Backup(ctx, request.GetName())
		if err == nil {
			found = []query.Finding{{Name: "backup", Detail: request.GetName() + " is complete"}}
		}
	case "restore":
		err = s.D.restoreStore(ctx, request.GetName())
		if err == nil {
			found = []query.Finding{{Name: "restore", Detail: "the store is that of backup " +
				request.GetName() + "; what happened since is counted again from the ledger"}}
		}
	case "archive", "purge", "discard", "unarchive":
		found, err = s.D.careForMonth(ctx, request.GetVerb(), request.GetName())
	default:
		return spec.Refuse(
			spec.CodeBadRequest,
			fmt.Sprintf(
				"there is no %q: it is one of verify, doctor, backup, restore, archive, purge, discard, unarchive",
				request.GetVerb(),
			),
		)
	}
	if err != nil {
		return s.D.storeAway(err)
	}
	for _, finding := range found {
		if err := stream.Send(
			&apiv1.MaintainReply{Name: finding.Name, Text: finding.Detail, Bad: finding.Bad},
		); err != nil {
			return err
		}
	}
	return nil
}

// careForMonth archives a month, purges it (discard: also without an archive), or
// brings it back.
func (d *Daemon) careForMonth(
	ctx context.Context,
	verb, month string,
) (found []query.Finding, err error) {
	m, err := query.ParseMonth(month)
	if err != nil {
		return nil, spec.Refuse(spec.CodeBadRequest, err.Error())
	}
	root := d.cfg.Archive
	if root == "" && verb != "discard" {
		return nil, spec.Refuse(
			spec.CodeBadRequest,
			"accounting.archive names no folder for archives",
		)
	}
	scope, _, err := d.openScope(ctx, 0)
	if err != nil {
		return nil, err
	}
	d.careMu.Lock()
	defer d.careMu.Unlock()
	switch verb {
	case "archive":
		found, err = d.cfg.Store.Archive(ctx, scope, m, root)
	case "purge":
		found, err = d.cfg.Store.Purge(ctx, scope, m, root)
	case "discard":
		found, err = d.cfg.Store.Purge(ctx, scope, m, "")
	case "unarchive":
		found, err = d.cfg.Store.Unarchive(ctx, scope, m, root)
	}
	if err != nil {
		return nil, spec.Refuse(spec.CodeBadRequest, fmt.Sprintf("%s of %s: %v", verb, m, err))
	}
	if len(found) == 0 {
		found = []query.Finding{{Name: verb, Detail: "there is nothing of " + m.String()}}
	}
	return found, nil
}

// runRetention purges months that are older than they are kept, in each table as its
// retention says; with a folder for archives they are archived first. It also
// ends purges that were broken off.
func (d *Daemon) runRetention(ctx context.Context) {
	for d.sleepFor(ctx, d.cfg.RetainEvery) {
		if err := d.retainOnce(ctx); err != nil && ctx.Err() == nil {
			d.cfg.Log.Warn("what is too old could not be purged", "error", err)
		}
	}
}

func (d *Daemon) retainOnce(ctx context.Context) error {
	scope, _, err := d.openScope(ctx, 0)
	if err != nil || scope.Seq == 0 {
		return err
	}
	d.careMu.Lock()
	defer d.careMu.Unlock()
	if err := d.cfg.Store.EndPurges(ctx, scope); err != nil {
		return err
	}
	for _, aged := range query.AgedTables() {
		keep, ok := d.cfg.Retention[aged.Name]
		if !ok || keep == spec.Infinite {
			continue
		}
		oldest := scope
		oldest.Seq = min(scope.Seq, scope.Rolled.Seq)
		var rows uint64
		var first int64
		err := d.cfg.Store.Query(
			ctx,
			aged.OldestMonth(oldest),
			func(scan func(...any) error) error { return scan(&rows, &first) },
		)
		if err != nil {
			return err
		}
		if rows == 0 {
			continue
		}
		limit := (int64(scope.Now) - int64(keep)) / int64(spec.Microsecond)
		for m := query.MonthOf(first); m.Until <= min(limit, scope.Rolled.Until); m = query.MonthOf(m.Until) {
			if err := d.retainMonth(ctx, scope, m, aged.Name); err != nil {
				return fmt.Errorf("%s of %s: %w", aged.Name, m, err)
			}
		}
	}
	return nil
}

func (d *Daemon) retainMonth(
	ctx context.Context,
	scope query.Scope,
	month query.Month,
	table string,
) error {
	purge := func() ([]query.Finding, error) { return d.cfg.Store.Purge(ctx, scope, month, d.cfg.Archive, table) }
	found, err := purge()
	if err != nil && d.cfg.Archive != "" {
		// It is not archived yet, or not as it is now. Tables that went before it
		// stand in an older archive, which must stay.
		_, err = d.cfg.Store.Archive(ctx, scope, month, d.cfg.Archive)
		if err == nil {
			found, err = purge()
		}
	}
	for _, finding := range found {
		d.cfg.Log.Info(
			"rows that were kept long enough are purged",
			"month",
			month.String(),
			"table",
			finding.Name,
			"what",
			finding.Detail,
		)
	}
	return err
}

// restoreStore stops the ingester, replaces the store, and lets the ingester begin
// again from where the backup was.
func (d *Daemon) restoreStore(ctx context.Context, name string) error {
	d.careMu.Lock()
	defer d.careMu.Unlock()
	d.mu.Lock()
	stop := d.interrupt
	d.mu.Unlock()
	if stop != nil {
		stop()
	}
	d.sessionMu.Lock() // the session is over
	defer d.sessionMu.Unlock()
	err := d.cfg.Store.Restore(ctx, name)
	d.mu.Lock()
	d.stored = false // what is known of the position is not true any more
	d.mu.Unlock()
	return err
}
