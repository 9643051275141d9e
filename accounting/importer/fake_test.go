package importer_test

import (
	"context"
	"math/big"
	"slices"
	"sync"

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

// overlapping is a store that has a batch only when it is written, and ends the
// first one only when it was asked often enough what it has of a chunk.
type overlapping struct {
	nothing
	mu    sync.Mutex
	asked chan struct{} // closed then
	often int           // 0 = at the second chunk
	uids  []uint64
	subs  []uint32
	seq   uint64
	calls int
}

func (o *overlapping) Ended(context.Context, [16]byte, tally.Micros, tally.Micros) ([]uint64, []uint32, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.calls++; o.calls == max(o.often, 2) {
		close(o.asked)
	}
	return slices.Clone(o.uids), slices.Clone(o.subs), nil
}

func (o *overlapping) Write(ctx context.Context, b *tally.Batch) error {
	if b.First == 1 {
		select {
		case <-o.asked:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if b.First != o.seq+1 {
		return tally.ErrOrder
	}
	o.seq = b.Last
	for _, r := range b.Jobs {
		o.uids, o.subs = append(o.uids, r.UID), append(o.subs, r.Restarts)
	}
	return nil
}
