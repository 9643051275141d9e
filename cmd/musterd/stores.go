package main

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"syscall"

	"github.com/musterhpc/muster/ledger/archive"
	"github.com/musterhpc/muster/ledger/blob"
	"github.com/musterhpc/muster/spec"
)

// archiveAdapter is the archive as the fold sees it. While the disk is full
// it holds back what the archive cannot take: a full disk must not stop the
// ledger, whose log keeps every batch until the archive has it.
type archiveAdapter struct {
	a   *archive.Archive
	log *slog.Logger

	mu      sync.Mutex
	waiting []archived
}

type archived struct {
	position, first, last uint64
	events                []byte
}

func openArchive(dir string, l *slog.Logger) (*archiveAdapter, error) {
	a, err := archive.Open(dir, archive.Options{Logger: l})
	return &archiveAdapter{a: a, log: l}, err
}

// Append implements daemon.Archive.
func (a *archiveAdapter) Append(position, firstSeq, lastSeq uint64, events []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.drainWaiting()
	if err == nil {
		err = a.a.Append(position, firstSeq, lastSeq, events)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		return err
	}
	if len(a.waiting) == 0 {
		a.log.Warn(
			"the archive's disk is full: batches wait in memory and in the log",
			"position",
			position,
		)
	}
	a.waiting = append(a.waiting, archived{position, firstSeq, lastSeq, slices.Clone(events)})
	return nil
}

// drainWaiting passes on what waits. The caller holds mu.
func (a *archiveAdapter) drainWaiting() error {
	for len(a.waiting) > 0 {
		w := a.waiting[0]
		if err := a.a.Append(w.position, w.first, w.last, w.events); err != nil {
			return err
		}
		a.waiting = a.waiting[1:]
		if len(a.waiting) == 0 {
			a.log.Info("the archive has caught up", "position", w.position)
		}
	}
	return nil
}

// Sync makes the archive durable; it fails while anything waits.
func (a *archiveAdapter) Sync() (uint64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.drainWaiting(); err != nil {
		return 0, err
	}
	return a.a.Sync()
}

// Close closes the archive; the log still holds what waited.
func (a *archiveAdapter) Close() error { return a.a.Close() }

// blobStore keeps scripts and environments; what a full disk does not take
// waits in memory, and in the log.
type blobStore struct {
	s *blob.Store

	mu      sync.Mutex
	waiting map[spec.Hash][]byte
	asked   map[spec.Hash]bool // what was found or put since watch; nil = nobody watches
}

func openBlobs(dir string, l *slog.Logger) (*blobStore, error) {
	s, err := blob.Open(dir, blob.Options{Logger: l})
	return &blobStore{s: s, waiting: map[spec.Hash][]byte{}}, err
}

// Has implements daemon.Blobs.
func (b *blobStore) Has(hash spec.Hash) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting[hash] == nil && !b.s.Has(blob.Hash(hash)) {
		return false
	}
	if b.asked != nil {
		b.asked[hash] = true
	}
	return true
}

// startWatching remembers from now on what is found here or put: the writer leaves out
// of its batch what the store has already, so that must stay until the batch
// is applied. unwatch ends it.
func (b *blobStore) startWatching() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = map[spec.Hash]bool{}
}

func (b *blobStore) stopWatching() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = nil
}

// foundSinceWatch tells whether something was found or put since watch.
func (b *blobStore) foundSinceWatch(h spec.Hash) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked[h]
}

// Get implements daemon.Blobs.
func (b *blobStore) Get(hash spec.Hash) ([]byte, error) {
	b.mu.Lock()
	data := b.waiting[hash]
	b.mu.Unlock()
	if data != nil {
		return data, nil
	}
	return b.s.Get(blob.Hash(hash))
}

// Put implements daemon.Blobs.
func (b *blobStore) Put(data []byte) (spec.Hash, error) {
	b.mu.Lock()
	if b.asked != nil {
		b.asked[spec.Hash(blob.Sum(data))] = true
	}
	b.mu.Unlock()
	hash, err := b.s.Put(data)
	if !errors.Is(err, syscall.ENOSPC) {
		return spec.Hash(hash), err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	key := spec.Hash(blob.Sum(data))
	b.waiting[key] = slices.Clone(data)
	return key, nil
}

// Sync makes the store durable; it fails while anything waits.
func (b *blobStore) Sync() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for hash, data := range b.waiting {
		if _, err := b.s.Put(data); err != nil {
			return fmt.Errorf("content %s waits for room: %w", hash, err)
		}
		delete(b.waiting, hash)
	}
	return b.s.Sync()
}

// Close closes the store; the log still holds what waited.
func (b *blobStore) Close() error { return b.s.Close() }
