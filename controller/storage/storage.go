// Package storage opens what a controller keeps on its disk: the archive of events, the content of
// scripts and environments, and the log, which replays into the fold.
package storage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"time"

	"github.com/musterhpc/muster/internal/conffile"
	"github.com/musterhpc/muster/ledger/event"
	"github.com/musterhpc/muster/ledger/log"
	"github.com/musterhpc/muster/ledger/store"
	"github.com/musterhpc/muster/scheduler/daemon"
)

// Storage is open from Open to Close. Machine and Durable are nil until OpenLog.
type Storage struct {
	Archive *store.Archive
	Blobs   *store.Blobs
	Codec   *event.Codec
	Machine *daemon.Machine
	Durable *log.Durable

	config *conffile.Config
	log    *slog.Logger
}

// Open opens archive and content.
func Open(config *conffile.Config, logger *slog.Logger) (*Storage, error) {
	codec, err := event.NewCodec()
	if err != nil {
		return nil, err
	}
	archive, err := store.OpenArchive(config.Ledger.ArchiveDir, logger)
	if err != nil {
		return nil, err
	}
	blobs, err := store.OpenBlobs(filepath.Join(config.StateDir, "content"), logger)
	if err != nil {
		return nil, errors.Join(err, archive.Close())
	}
	return &Storage{
		Archive: archive,
		Blobs:   blobs,
		Codec:   codec,
		config:  config,
		log:     logger,
	}, nil
}

// IsArchived tells whether the archive holds anything.
func (s *Storage) IsArchived() bool {
	_, known := s.Archive.Disk.Bounds()
	return known > 0
}

// Place says which member of a group of controllers a log belongs to.
type Place struct {
	// Options are those of the member; empty = it is the only one. OpenLog adds what follows from
	// the configuration.
	Options log.Options
	// Complete fetches from the other controllers what lies beside the log, once a snapshot of
	// theirs was taken over. nil = there are no others.
	Complete func(ctx context.Context, storage *Storage) error
}

// OpenLog opens the log and replays it into Machine.
func (s *Storage) OpenLog(ctx context.Context, place Place) error {
	s.Machine = daemon.NewMachine(s.Codec, s.Archive, s.Blobs)
	fold := store.Machine{Fold: s.Machine, Sync: s.syncAside}
	if place.Complete != nil {
		fold.Complete = func() error { return place.Complete(ctx, s) }
	}
	_, known := s.Archive.Disk.Bounds()
	options := place.Options
	options.Dir = filepath.Join(s.config.StateDir, "ledger")
	options.Machine = fold
	options.Logger = s.log
	options.SnapshotEvery = uint64(s.config.Ledger.SnapshotEvery)
	options.ReserveBytes = uint64(s.config.Ledger.ReserveBytes)
	options.AtLeast = log.Position(known)
	options.BeforeCompact = s.beforeCompact
	began := time.Now()
	durable, err := log.Open(ctx, options)
	if err != nil {
		return fmt.Errorf("the ledger in %s: %w", s.config.StateDir, err)
	}
	s.Durable = durable
	s.log.Info("the ledger is open", "seq", s.Machine.Applied().Seq, "took", time.Since(began))
	return nil
}

// closePatience bounds the last writes of a log.
const closePatience = 10 * time.Second

// Close closes the log, and then what it writes to.
func (s *Storage) Close() error {
	var err error
	if s.Durable != nil {
		ctx, cancel := context.WithTimeout(context.Background(), closePatience)
		defer cancel()
		err = s.Durable.Close(ctx)
	}
	return errors.Join(err, s.Archive.Close(), s.Blobs.Close())
}

// syncAside puts what lies beside the log on the disk.
func (s *Storage) syncAside() error {
	_, err := s.Archive.Sync()
	return errors.Join(err, s.Blobs.Sync())
}

// beforeCompact lets the log forget what archive and content store have on
// disk. Accounting does not hold the log back: it reads the archive, which
// drops nothing that accounting has not stored, so a store that is away for a
// month costs room there and not the speed of a restart.
func (s *Storage) beforeCompact(position log.Position) error {
	synced, err := s.Archive.Sync()
	if err != nil {
		return err
	}
	if synced < uint64(position) {
		return fmt.Errorf(
			"the archive is synced to position %d, the log may not forget up to %d",
			synced,
			position,
		)
	}
	return s.Blobs.Sync()
}

// NewKeeper makes the keeper of the archive. neededFrom is the first position that accounting still
// needs; inGroup tells that other controllers may still fetch content.
func (s *Storage) NewKeeper(neededFrom func() uint64, inGroup bool) *store.Keeper {
	return store.NewKeeper(store.Keeper{
		Stored:    neededFrom,
		Archive:   s.Archive.Disk,
		Blobs:     s.Blobs,
		Codec:     s.Codec,
		Applied:   s.Machine.AppliedAt,
		Retention: s.config.Ledger.Retention,
		Group:     inGroup,
		Settle:    store.SweepSettle,
		Now:       time.Now,
		Log:       s.log,
	})
}
