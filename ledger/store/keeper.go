package store

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/musterhpc/muster/ledger/archive"
	"github.com/musterhpc/muster/ledger/blob"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/state"
	"github.com/musterhpc/muster/spec"
)

const (
	// keepEvery is how often the keeper looks.
	keepEvery = 10 * time.Minute
	// snapshotEvery is how old the archive's newest snapshot of the state may become.
	snapshotEvery = time.Hour
)

// SweepSettle is how long the writer may take from finding a script in the store to the
// batch that names it being applied.
const SweepSettle = time.Minute

// Keeper looks after the history beside the log: it puts snapshots of the
// state into the archive, thins them, and drops what is older than the
// retention and stored by accounting, with the scripts and environments that
// nothing names any more.
type Keeper struct {
	Archive   *archive.Archive
	Blobs     *Blobs
	Codec     *event.Codec
	Applied   func() (position uint64, st *state.State)
	Stored    func() uint64 // accounting needs the history from here on; 0 = all of it
	Retention spec.Span
	Settle    time.Duration // before a sweep: SweepSettle
	Now       func() time.Time
	Log       *slog.Logger

	// Group tells that there are other controllers: contents stay, because the leader
	// leaves out of a batch what it has, and a standby must not have less.
	Group   bool
	unswept bool // segments were dropped since the last sweep
}

// NewKeeper readies a keeper whose other fields are set.
func NewKeeper(keeper Keeper) *Keeper {
	first, _ := keeper.Archive.Bounds()
	keeper.unswept = first > 1 // what a sweep forgot is known again after a start
	return &keeper
}

// Run looks from time to time until the context ends. What fails is tried
// again: nothing is lost by keeping too much.
func (k *Keeper) Run(ctx context.Context) error {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := k.RunOnce(ctx); err != nil && ctx.Err() == nil {
			k.Log.Error("the history could not be looked after; trying again", "error", err)
		}
	}
}

// RunOnce makes the snapshot that is due, and drops what is older than the retention.
func (k *Keeper) RunOnce(ctx context.Context) error {
	if err := k.archiveSnapshot(); err != nil {
		return err
	}
	if _, err := k.Archive.Thin(k.chooseKept()); err != nil {
		return err
	}
	if k.Retention == spec.Infinite {
		return nil
	}
	from := k.Stored()
	if from <= 1 {
		return nil
	}
	dropped, err := k.Archive.Retain(from-1, k.Now().Add(-time.Duration(k.Retention)))
	if dropped > 0 {
		k.unswept = true
		first, _ := k.Archive.Bounds()
		k.Log.Info(
			"old history was dropped",
			"segments",
			dropped,
			"first_batch",
			first,
			"retention",
			time.Duration(k.Retention),
		)
	}
	if err != nil || !k.unswept || k.Group {
		return err
	}
	if err := k.sweepBlobs(ctx); err != nil {
		return err
	}
	k.unswept = false
	return nil
}

// chooseKept is which snapshots stay: every hour's of a day, every day's of a month,
// every month's for as long as the retention lasts.
func (k *Keeper) chooseKept() archive.Keep {
	keep := archive.Keep{Hours: 24, Days: 31}
	if k.Retention != spec.Infinite {
		days := int(k.Retention / spec.Day)
		keep.Days, keep.Months = min(31, max(days, 1)), max(days/30, 1)
	}
	return keep
}

// archiveSnapshot puts the state into the archive if that is due.
func (k *Keeper) archiveSnapshot() error {
	all, err := k.Archive.Snapshots()
	if err != nil {
		return err
	}
	position, cluster := k.Applied()
	if n := len(all); position == 0 ||
		n > 0 && (position <= all[n-1].Pos || k.Now().Sub(all[n-1].At) < snapshotEvery) {
		return nil
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(cluster.Encode(w)) }()
	err = k.Archive.PutSnapshot(position, cluster.Seq, r)
	return errors.Join(err, r.Close())
}

// sweepBlobs forgets the scripts and environments that neither a job of the state
// nor an event of the archive names.
func (k *Keeper) sweepBlobs(ctx context.Context) error {
	k.Blobs.startWatching()
	defer k.Blobs.stopWatching()
	select {
	case <-time.After(k.Settle):
	case <-ctx.Done():
		return nil
	}
	named, err := k.collectNamed(ctx)
	if err != nil {
		return err
	}
	swept, err := k.Blobs.Disk.Sweep(
		func(h blob.Hash) bool { return named[spec.Hash(h)] || k.Blobs.foundSinceWatch(spec.Hash(h)) },
	)
	if swept.Removed > 0 {
		k.Log.Info(
			"scripts and environments of dropped history were forgotten",
			"count",
			swept.Removed,
			"bytes",
			swept.RemovedBytes,
			"freed",
			swept.Freed,
		)
	}
	return err
}

// collectNamed collects what state and archive refer to.
func (k *Keeper) collectNamed(ctx context.Context) (map[spec.Hash]bool, error) {
	out := map[spec.Hash]bool{}
	_, cluster := k.Applied()
	EachJobContent(cluster, func(h spec.Hash) { out[h] = true })
	first, last := k.Archive.Bounds()
	for iterator := k.Archive.ReadFrom(first); ; {
		record, err := iterator.Next()
		if errors.Is(err, io.EOF) || err == nil && record.Pos > last {
			return out, nil // what came later was found or put while it was watched
		}
		if err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		events, err := k.Codec.Decode(record.Batch)
		if err != nil {
			return nil, err
		}
		for i := range events {
			EachContent(events[i].Event, func(h spec.Hash) { out[h] = true })
		}
	}
}
