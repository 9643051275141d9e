package store

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/scheduler/daemon"
)

// Machine lets the log drive the controller's fold.
type Machine struct {
	Fold *daemon.Machine
	// Sync puts on the disk what the machine has handed to archive and content
	// store.
	Sync func() error
	// Complete, if set, fetches from the other controllers what a snapshot names and
	// does not hold.
	Complete func() error
}

// Apply implements log.Machine.
func (l Machine) Apply(position log.Position, batch []byte) error {
	return l.Fold.Apply(uint64(position), batch)
}

// Restore implements log.Machine.
func (l Machine) Restore(r io.Reader) error {
	if err := l.Fold.Restore(r); err != nil {
		return err
	}
	if l.Complete == nil {
		return nil
	}
	return l.Complete()
}

// Snapshot captures the state. A start from the snapshot does not apply the
// batches before it again, so what they added elsewhere must be on the disk
// before the snapshot is.
func (l Machine) Snapshot() (func(io.Writer) error, error) {
	write, err := l.Fold.Snapshot()
	if err != nil {
		return nil, err
	}
	return func(w io.Writer) error {
		if err := l.Sync(); err != nil {
			return err
		}
		return write(w)
	}, nil
}

// Log is the durable log as the writer sees it.
type Log struct{ Durable *log.Durable }

// Append implements daemon.Log.
func (l Log) Append(batch []byte) daemon.Pending { return pending{l.Durable.Append(batch)} }

// Resume implements daemon.Log.
func (l Log) Resume(ctx context.Context) error { return ledgerError(l.Durable.Resume(ctx)) }

// LastPosition implements daemon.Log.
func (l Log) LastPosition() uint64 { return uint64(l.Durable.LastPosition()) }

// Low tells that the disk is almost full.
func (l Log) Low() (bool, error) {
	headroom, err := l.Durable.Headroom()
	return headroom.Low(), err
}

type pending struct{ p log.Pending }

func (p pending) Wait(ctx context.Context) error {
	_, err := p.p.Wait(ctx)
	return ledgerError(err)
}

// ledgerError names the errors that the writer must know apart.
func ledgerError(err error) error {
	var elsewhere *log.NotLeaderError
	switch {
	case errors.As(err, &elsewhere) && elsewhere.Unknown:
		return fmt.Errorf("%w: %w", daemon.ErrOutcomeUnknown, err)
	case errors.As(err, &elsewhere):
		return fmt.Errorf("%w: %w", daemon.ErrNotLeader, err)
	case errors.Is(err, log.ErrStopped), errors.Is(err, log.ErrClosed):
		return fmt.Errorf("%w: %w", daemon.ErrLogStopped, err)
	case errors.Is(err, log.ErrDiskFull):
		return fmt.Errorf("%w: %w", daemon.ErrDiskFull, err)
	}
	return err
}
