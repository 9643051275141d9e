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
func (s Service) Maintain(req *apiv1.MaintainRequest, stream service.Accounting_MaintainServer) error {
	ctx := stream.Context()
	if !s.D.caller(ctx).Admin {
		return spec.Refuse(spec.CodeAccessDenied, "only administrators take care of the accounting store")
	}
	var found []query.Finding
	var err error
	switch req.GetVerb() {
	case "verify":
		found, err = s.D.verify(ctx, func(done, of uint64) { _ = stream.Send(&apiv1.MaintainReply{Done: done, Of: of}) })
	case "doctor":
		found, err = s.D.examine(ctx)
	case "backup":
		if err = s.D.cfg.Store.Backup(ctx, req.GetName()); err == nil {
			found = []query.Finding{{Name: "backup", Detail: req.GetName() + " is complete"}}
		}
	case "restore":
		if err = s.D.restore(ctx, req.GetName()); err == nil {
			found = []query.Finding{{Name: "restore", Detail: "the store is that of backup " + req.GetName() + "; what happened since is counted again from the ledger"}}
		}
	default:
		return spec.Refuse(spec.CodeBadRequest, fmt.Sprintf("there is no %q: it is one of verify, doctor, backup, restore", req.GetVerb()))
	}
	if err != nil {
		return s.D.away(err)
	}
	for _, f := range found {
		if err := stream.Send(&apiv1.MaintainReply{Name: f.Name, Text: f.Detail, Bad: f.Bad}); err != nil {
			return err
		}
	}
	return nil
}

// restore stops the ingester, replaces the store, and lets the ingester begin
// again from where the backup was.
func (d *Daemon) restore(ctx context.Context, name string) error {
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
