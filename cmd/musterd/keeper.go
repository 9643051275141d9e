package main

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

// How often the keeper looks, how old the archive's newest snapshot of the
// state may become, and how long the writer may take from finding a script in
// the store to the batch that names it being applied.
const (
	keepEvery     = 10 * time.Minute
	snapshotEvery = time.Hour
	sweepSettle   = time.Minute
)

// keeper looks after the history beside the log: it puts snapshots of the
// state into the archive, thins them, and drops what is older than the
// retention and stored by accounting, with the scripts and environments that
// nothing names any more.
type keeper struct {
	archive   *archive.Archive
	blobs     *blobStore
	codec     *event.Codec
	applied   func() (position uint64, st *state.State)
	stored    func() uint64 // accounting needs the history from here on; 0 = all of it
	retention spec.Span
	settle    time.Duration
	now       func() time.Time
	log       *slog.Logger

	// group tells that there are other controllers: contents stay, because the leader
	// leaves out of a batch what it has, and a standby must not have less.
	group   bool
	unswept bool // segments were dropped since the last sweep
}

func newKeeper(s *server) *keeper {
	k := &keeper{
		stored:    s.told.neededFrom,
		archive:   s.archive.a,
		blobs:     s.blobs,
		codec:     s.codec,
		applied:   s.machine.AppliedAt,
		retention: s.cfg.Ledger.Retention,
		group:     s.peers != nil,
		settle:    sweepSettle,
		now:       time.Now,
		log:       s.log,
	}
	first, _ := k.archive.Bounds()
	k.unswept = first > 1 // what a sweep forgot is known again after a start
	return k
}

// run looks from time to time until the context ends. What fails is tried
// again: nothing is lost by keeping too much.
func (k *keeper) run(ctx context.Context) error {
	tick := time.NewTicker(keepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := k.runOnce(ctx); err != nil && ctx.Err() == nil {
			k.log.Error("the history could not be looked after; trying again", "error", err)
		}
	}
}

func (k *keeper) runOnce(ctx context.Context) error {
	if err := k.archiveSnapshot(); err != nil {
		return err
	}
	if _, err := k.archive.Thin(k.chooseKept()); err != nil {
		return err
	}
	if k.retention == spec.Infinite {
		return nil
	}
	from := k.stored()
	if from <= 1 {
		return nil
	}
	dropped, err := k.archive.Retain(from-1, k.now().Add(-time.Duration(k.retention)))
	if dropped > 0 {
		k.unswept = true
		first, _ := k.archive.Bounds()
		k.log.Info(
			"old history was dropped",
			"segments",
			dropped,
			"first_batch",
			first,
			"retention",
			time.Duration(k.retention),
		)
	}
	if err != nil || !k.unswept || k.group {
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
func (k *keeper) chooseKept() archive.Keep {
	out := archive.Keep{Hours: 24, Days: 31}
	if k.retention != spec.Infinite {
		days := int(k.retention / spec.Day)
		out.Days, out.Months = min(31, max(days, 1)), max(days/30, 1)
	}
	return out
}

// archiveSnapshot puts the state into the archive if that is due.
func (k *keeper) archiveSnapshot() error {
	all, err := k.archive.Snapshots()
	if err != nil {
		return err
	}
	pos, st := k.applied()
	if n := len(all); pos == 0 ||
		n > 0 && (pos <= all[n-1].Pos || k.now().Sub(all[n-1].At) < snapshotEvery) {
		return nil
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(st.Encode(w)) }()
	err = k.archive.PutSnapshot(pos, st.Seq, r)
	return errors.Join(err, r.Close())
}

// sweepBlobs forgets the scripts and environments that neither a job of the state
// nor an event of the archive names.
func (k *keeper) sweepBlobs(ctx context.Context) error {
	k.blobs.startWatching()
	defer k.blobs.stopWatching()
	select {
	case <-time.After(k.settle):
	case <-ctx.Done():
		return nil
	}
	named, err := k.collectNamed(ctx)
	if err != nil {
		return err
	}
	swept, err := k.blobs.s.Sweep(
		func(h blob.Hash) bool { return named[spec.Hash(h)] || k.blobs.foundSinceWatch(spec.Hash(h)) },
	)
	if swept.Removed > 0 {
		k.log.Info(
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
func (k *keeper) collectNamed(ctx context.Context) (map[spec.Hash]bool, error) {
	out := map[spec.Hash]bool{}
	_, st := k.applied()
	eachJobContent(st, func(h spec.Hash) { out[h] = true })
	first, last := k.archive.Bounds()
	for iterator := k.archive.ReadFrom(first); ; {
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
		events, err := k.codec.Decode(record.Batch)
		if err != nil {
			return nil, err
		}
		for i := range events {
			eachContent(events[i].Event, func(h spec.Hash) { out[h] = true })
		}
	}
}

// eachJobContent visits the scripts and environments that jobs of the state name.
func eachJobContent(st *state.State, visit func(spec.Hash)) {
	st.Jobs.Range(func(_ uint64, job *state.Job) bool {
		visit(job.Spec.Script)
		visit(job.Spec.Env)
		for i := range job.Steps {
			if step := job.Steps[i].Spec; step != nil {
				visit(step.Env)
			}
		}
		return true
	})
}

// eachContent visits the scripts and environments that an event names.
func eachContent(ev event.Event, visit func(spec.Hash)) {
	switch e := ev.(type) {
	case *event.JobSubmitted:
		if e.Spec != nil {
			visit(e.Spec.Script)
			visit(e.Spec.Env)
		}
	case *event.StepStarted:
		if e.Spec != nil {
			visit(e.Spec.Env)
		}
	}
}
