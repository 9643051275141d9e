package importer

import (
	"context"
	"math/big"

	"github.com/musterhpc/muster/accounting/tally"
)

// Database is a store that adds up with plain values, as package clickhouse's
// does.
type Database interface {
	Ended(
		ctx context.Context,
		ledger [16]byte,
		from, to tally.Micros,
	) (uids []uint64, restarts []uint32, err error)
	Open(ctx context.Context, ledger [16]byte) (uids []uint64, restarts []uint32, err error)
	Sums(ctx context.Context, ledger [16]byte) (runs uint64, cpu, gpu, waited *big.Int, err error)
}

// In makes a Store of a Database.
func In(db Database) Store { return database{db} }

type database struct{ Database }

// Totals implements Store.
func (d database) Totals(ctx context.Context, ledger [16]byte) (Totals, error) {
	var totals Totals
	var err error
	totals.Runs, totals.CPU, totals.GPU, totals.WaitedFor, err = d.Sums(ctx, ledger)
	return totals, err
}
