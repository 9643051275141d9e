package store

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

// Archive is the archive as the fold sees it. While the disk is full
// it holds back what the archive cannot take: a full disk must not stop the
// ledger, whose log keeps every batch until the archive has it.
type Archive struct {
	Disk *archive.Archive
	log  *slog.Logger

	mu      sync.Mutex
	waiting []archived
}

type archived struct {
	position, first, last uint64
	events                []byte
}

// OpenArchive opens the archive in a folder, which is made if it is not there.
func OpenArchive(dir string, logger *slog.Logger) (*Archive, error) {
	a, err := archive.Open(dir, archive.Options{Logger: logger})
	return &Archive{Disk: a, log: logger}, err
}

// Append implements daemon.Archive.
func (a *Archive) Append(position, firstSeq, lastSeq uint64, events []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	err := a.drainWaiting()
	if err == nil {
		err = a.Disk.Append(position, firstSeq, lastSeq, events)
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
func (a *Archive) drainWaiting() error {
	for len(a.waiting) > 0 {
		w := a.waiting[0]
		if err := a.Disk.Append(w.position, w.first, w.last, w.events); err != nil {
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
func (a *Archive) Sync() (uint64, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.drainWaiting(); err != nil {
		return 0, err
	}
	return a.Disk.Sync()
}

// Close closes the archive; the log still holds what waited.
func (a *Archive) Close() error { return a.Disk.Close() }

// Blobs keeps scripts and environments; what a full disk does not take
// waits in memory, and in the log.
type Blobs struct {
	Disk *blob.Store

	mu      sync.Mutex
	waiting map[spec.Hash][]byte
	asked   map[spec.Hash]bool // what was found or put since startWatching; nil = nobody watches
}

// OpenBlobs opens the store of scripts and environments in a folder.
func OpenBlobs(dir string, logger *slog.Logger) (*Blobs, error) {
	store, err := blob.Open(dir, blob.Options{Logger: logger})
	return NewBlobs(store), err
}

// NewBlobs is OpenBlobs of a store that is open.
func NewBlobs(store *blob.Store) *Blobs {
	return &Blobs{Disk: store, waiting: map[spec.Hash][]byte{}}
}

// Has implements daemon.Blobs.
func (b *Blobs) Has(hash spec.Hash) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.waiting[hash] == nil && !b.Disk.Has(blob.Hash(hash)) {
		return false
	}
	if b.asked != nil {
		b.asked[hash] = true
	}
	return true
}

// startWatching remembers from now on what is found here or put: the writer leaves out
// of its batch what the store has already, so that must stay until the batch
// is applied. stopWatching ends it.
func (b *Blobs) startWatching() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = map[spec.Hash]bool{}
}

func (b *Blobs) stopWatching() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.asked = nil
}

// foundSinceWatch tells whether something was found or put since startWatching.
func (b *Blobs) foundSinceWatch(hash spec.Hash) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked[hash]
}

// Get implements daemon.Blobs.
func (b *Blobs) Get(hash spec.Hash) ([]byte, error) {
	b.mu.Lock()
	data := b.waiting[hash]
	b.mu.Unlock()
	if data != nil {
		return data, nil
	}
	return b.Disk.Get(blob.Hash(hash))
}

// Put implements daemon.Blobs.
func (b *Blobs) Put(data []byte) (spec.Hash, error) {
	b.mu.Lock()
	if b.asked != nil {
		b.asked[spec.Hash(blob.Sum(data))] = true
	}
	b.mu.Unlock()
	hash, err := b.Disk.Put(data)
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
func (b *Blobs) Sync() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for hash, data := range b.waiting {
		if _, err := b.Disk.Put(data); err != nil {
			return fmt.Errorf("content %s waits for room: %w", hash, err)
		}
		delete(b.waiting, hash)
	}
	return b.Disk.Sync()
}

// Close closes the store; the log still holds what waited.
func (b *Blobs) Close() error { return b.Disk.Close() }
