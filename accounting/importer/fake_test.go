package importer_test

import (
	"context"
	"math/big"

	"github.com/musterhpc/muster/accounting/importer"
	"github.com/musterhpc/muster/accounting/tally"
)

// nothing is a store that has nothing and keeps nothing, for dumps that are
// refused before anything is stored, and for measuring what reading costs.
type nothing struct{}

func (nothing) Ended(context.Context, [16]byte, tally.Micros, tally.Micros) ([]uint64, []uint32, error) {
	return nil, nil, nil
}
func (nothing) Open(context.Context, [16]byte) ([]uint64, []uint32, error) { return nil, nil, nil }
func (nothing) Totals(context.Context, [16]byte) (importer.Totals, error) {
	return importer.Totals{CPU: new(big.Int), GPU: new(big.Int), WaitedFor: new(big.Int)}, nil
}
func (nothing) Write(context.Context, *tally.Batch) error { return nil }
func (nothing) RollUp(context.Context) (bool, error)      { return false, nil }
func (nothing) Position() tally.Position                  { return tally.Position{} }
