// Package feed brings the ledger to accounting: in the same process (Local), or from a controller
// in another one (Service there, Remote here), with the way back for what was stored and for
// the budgets. Access is what accounting knows of either.
package feed

import (
	"context"
	"log/slog"

	acctd "github.com/musterhpc/muster/accounting/daemon"
	"github.com/musterhpc/muster/accounting/kpi"
	apiv1 "github.com/musterhpc/muster/api/v1"
	"github.com/musterhpc/muster/internal/wire"
	"github.com/musterhpc/muster/ledger/archive"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/ledger/store"
	"github.com/musterhpc/muster/scheduler/daemon"
	"github.com/musterhpc/muster/scheduler/policy"
	"github.com/musterhpc/muster/spec"
)

// Access is the ledger as accounting needs it: in this process, or of a
// controller in another.
type Access interface {
	acctd.Source
	Identity() (ledger [16]byte, cluster string)
	Content(ctx context.Context, hash spec.Hash) ([]byte, error)
	Private(ctx context.Context) []string
	Confirm(progress acctd.Progress)
	// Lost tells of a position that the store has seen and the ledger lacks.
	Lost(ctx context.Context, seen event.Position) error
	// Enforce gives what is told how the budgets that are enforced stand.
	Enforce(rates *kpi.Rates) func(context.Context, []kpi.Spent)
}

// Local is the archive as accounting reads it.
type Local struct {
	Archive    *archive.Archive
	Controller *daemon.Controller
	Blobs      *store.Blobs
	Confirmed  *Confirmed
	Log        *slog.Logger
}

// Open implements the source of accounting.
func (l Local) Open(_ context.Context, seq uint64) (acctd.Cursor, error) {
	iterator, err := l.Archive.Reader(max(seq, 1))
	if err != nil {
		return nil, err
	}
	return ledgerCursor{iterator}, nil
}

// Head implements the source of accounting.
func (l Local) Head() (uint64, spec.Instant) {
	cluster := l.Controller.View().State
	return cluster.Seq, cluster.At
}

// Epochs implements the source of accounting.
func (l Local) Epochs(context.Context) ([]state.Epoch, uint64, error) {
	cluster := l.Controller.View().State
	return cluster.Epochs, cluster.Seq, nil
}

// storeWitness is the accounting store as a witness of lost history.
const storeWitness = "accounting store"

// Lost implements feed.Access.
func (l Local) Lost(ctx context.Context, seen event.Position) error {
	return l.Controller.NoteLost(ctx, storeWitness, seen)
}

// Identity implements feed.Access.
func (l Local) Identity() ([16]byte, string) {
	cluster := l.Controller.View().State
	return cluster.UUID, cluster.ClusterName
}

// Content implements feed.Access.
func (l Local) Content(
	_ context.Context,
	hash spec.Hash,
) ([]byte, error) {
	return l.Blobs.Get(hash)
}

// Private implements feed.Access.
func (l Local) Private(ctx context.Context) []string { return l.Controller.Private(ctx) }

// Confirm implements feed.Access.
func (l Local) Confirm(progress acctd.Progress) {
	l.Controller.SetAccounted(progress.Seq)
	l.Confirmed.NoteConfirmed(
		&apiv1.ConfirmRequest{Seq: progress.Seq, Keep: progress.Keep, Up: true},
	)
}

// Enforce makes accounts keep to their budgets, where this controller leads.
func (l Local) Enforce(rates *kpi.Rates) func(context.Context, []kpi.Spent) {
	return func(ctx context.Context, list []kpi.Spent) {
		if err := l.Controller.SetBudgets(ctx, toBudgets(wireBudgets(list, rates))); err != nil {
			l.Log.Debug("the budgets could not be made limits", "error", err)
		}
	}
}

// wireBudgets says what is left of budgets.
func wireBudgets(list []kpi.Spent, rates *kpi.Rates) *apiv1.BudgetsLeft {
	left := &apiv1.BudgetsLeft{}
	for _, spent := range list {
		left.Budgets = append(
			left.Budgets,
			&apiv1.BudgetLeft{Account: spent.Account, Left: wire.Limits(spent.Left(rates.Prices))},
		)
	}
	return left
}

func toBudgets(budgets *apiv1.BudgetsLeft) []policy.Budget {
	var out []policy.Budget
	for _, left := range budgets.GetBudgets() {
		out = append(
			out, policy.Budget{Account: left.GetAccount(), Left: wire.ToLimits(left.GetLeft())},
		)
	}
	return out
}

type ledgerCursor struct{ it *archive.Iterator }

// Next implements a cursor of accounting.
func (c ledgerCursor) Next(ctx context.Context) (acctd.Entry, error) {
	for {
		record, err := c.it.Follow(ctx)
		if err != nil {
			return acctd.Entry{}, err
		}
		if record.LastSeq >= record.FirstSeq {
			return acctd.Entry{
				First:  record.FirstSeq,
				Last:   record.LastSeq,
				Events: append([]byte(nil), record.Batch...),
			}, nil
		}
	}
}
