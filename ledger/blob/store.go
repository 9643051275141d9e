package blob

import (
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/musterhpc/muster/internal/durable"
)

// Options configure Open. The zero value is usable.
type Options struct {
	Logger *slog.Logger // default: discards
	// FileBytes is the size at which a blob file is complete. Default 64 MiB.
	FileBytes int64
	// CacheBytes is the memory for blobs used last. Default 32 MiB.
	CacheBytes int64
}

// Store is a folder of blobs. All methods may be called from any goroutine.
type Store struct {
	dir   string
	opts  Options
	cache *cache

	syncMu  sync.Mutex // one Sync or Sweep at a time; taken before mu
	mu      sync.RWMutex
	index   map[Hash]place
	files   map[uint32]*file
	full    []*file // complete but not yet synced
	active  *file   // nil until the first Put
	nextID  uint32
	buf     []byte // records of the active file not yet written
	bytes   int64  // of blobs in the index
	touched map[Hash]bool
	damaged int64
	failed  error
	closed  bool
}

const flushBytes = 256 << 10

// Open opens or creates the store in a folder. A torn tail is cut off: replaying the log's tail
// brings it again.
func Open(dir string, opts Options) (*Store, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.FileBytes == 0 {
		opts.FileBytes = 64 << 20
	}
	if opts.CacheBytes == 0 {
		opts.CacheBytes = 32 << 20
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	store := &Store{
		dir:    dir,
		opts:   opts,
		cache:  newCache(opts.CacheBytes),
		index:  map[Hash]place{},
		files:  map[uint32]*file{},
		nextID: 1,
	}
	ids, err := fileIDs(dir)
	if err != nil {
		return nil, err
	}
	for i, id := range ids {
		if err := store.loadFile(id, i == len(ids)-1); err != nil {
			return nil, errors.Join(fmt.Errorf("open the blob store: %w", err), store.closeFiles())
		}
		store.nextID = id + 1
	}
	return store, nil
}

// loadFile reads one file's index, or the file itself.
func (s *Store) loadFile(id uint32, newest bool) error {
	f, err := openFile(s.dir, id)
	if err != nil {
		return err
	}
	if f == nil {
		return os.Remove(blobPath(s.dir, id))
	}
	s.files[id] = f
	entries := readIndex(s.dir, id)
	f.sealed = entries != nil
	if !f.sealed {
		var damaged, end int64
		entries, damaged, end, err = f.scanRecords()
		if err != nil {
			return err
		}
		if damaged > 0 {
			s.damaged += damaged
			s.opts.Logger.Error(
				"a file of job scripts and environments is damaged; what is lost is reported when it is used",
				"file",
				f.path,
				"bytes",
				damaged,
			)
		}
		if end < f.size {
			s.opts.Logger.Info(
				"removed the remains of an interrupted write; the log brings it again",
				"file",
				f.path,
				"offset",
				end,
				"bytes",
				f.size-end,
			)
			if err := f.f.Truncate(end); err != nil {
				return err
			}
			f.size = end
		}
		f.entries = entries
		if newest && end < s.opts.FileBytes {
			s.active = f
		} else {
			s.full = append(s.full, f)
		}
	}
	for _, e := range entries {
		s.add(e)
	}
	return nil
}

func (s *Store) add(e entry) {
	if old, ok := s.index[e.hash]; ok {
		s.bytes -= int64(old.n)
	}
	s.index[e.hash] = e.at
	s.bytes += int64(e.at.n)
}

func (s *Store) checkUsable() error {
	switch {
	case s.closed:
		return ErrClosed
	case s.failed != nil:
		return fmt.Errorf("the blob store must be opened again: %w", s.failed)
	}
	return nil
}

// Put stores data, if it is new, and returns its hash. The slice may be reused afterwards.
func (s *Store) Put(data []byte) (Hash, error) {
	hash := Sum(data)
	if len(data) > maxBlob {
		return hash, fmt.Errorf(
			"store a blob of %d bytes: at most %d are accepted",
			len(data),
			maxBlob,
		)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkUsable(); err != nil {
		return hash, err
	}
	if s.touched != nil {
		s.touched[hash] = true
	}
	if _, ok := s.index[hash]; ok {
		return hash, nil
	}
	return hash, s.appendBlob(hash, data)
}

// appendBlob appends a record to the active file. The caller holds mu.
func (s *Store) appendBlob(hash Hash, data []byte) error {
	if s.active != nil && s.active.size >= s.opts.FileBytes {
		if err := s.flushBuffer(); err != nil {
			return err
		}
		s.full = append(s.full, s.active)
		s.active = nil
	}
	if s.active == nil {
		var salt [4]byte
		if _, err := crand.Read(salt[:]); err != nil {
			return err
		}
		f, err := newFile(s.dir, s.nextID, binary.LittleEndian.Uint32(salt[:]))
		if err != nil {
			return fmt.Errorf("begin a blob file: %w", err)
		}
		s.active = f
		s.files[f.id] = f
		s.nextID++
	}
	if len(s.buf) >= flushBytes {
		if err := s.flushBuffer(); err != nil {
			return err
		}
	}
	before := len(s.buf)
	e := entry{hash, place{s.active.id, uint32(s.active.size), uint32(len(data))}}
	s.add(e)
	s.active.entries = append(s.active.entries, e)
	s.buf = appendRecord(s.buf, s.active.salt, hash, data)
	s.active.size += int64(len(s.buf) - before)
	return nil
}

// flushBuffer writes the buffer; after a failure it can be repeated. The caller holds mu.
func (s *Store) flushBuffer() error {
	if len(s.buf) == 0 {
		return nil
	}
	if _, err := s.active.f.WriteAt(s.buf, s.active.size-int64(len(s.buf))); err != nil {
		return fmt.Errorf("write blobs: %w", err)
	}
	s.buf = s.buf[:0]
	return nil
}

// Has reports whether the store knows the blob.
func (s *Store) Has(hash Hash) bool {
	s.mu.RLock()
	defer s.mu.RUnlock()
	_, ok := s.index[hash]
	return ok
}

// Get returns a blob, which must not be changed. It fails with ErrNotFound, or ErrCorrupt when
// the bytes no longer match; then the blob is forgotten and can be put again.
func (s *Store) Get(hash Hash) ([]byte, error) {
	if data, ok := s.cache.get(hash); ok {
		return data, nil
	}
	for {
		data, at, err := s.readBlob(hash)
		if errors.Is(err, os.ErrClosed) {
			continue // Sweep has just moved it
		}
		if err == nil && Sum(data) != hash {
			err = s.forgetDamaged(hash, at)
		}
		if err != nil {
			return nil, err
		}
		s.cache.put(hash, data)
		return data, nil
	}
}

func (s *Store) readBlob(hash Hash) ([]byte, place, error) {
	s.mu.RLock()
	at, ok := s.index[hash]
	if !ok || s.closed {
		err := fmt.Errorf("%w: %s", ErrNotFound, hash)
		if s.closed {
			err = ErrClosed
		}
		s.mu.RUnlock()
		return nil, at, err
	}
	f := s.files[at.file]
	data := make([]byte, at.n)
	if f == s.active {
		if from := int64(at.off) - (f.size - int64(len(s.buf))); from >= 0 {
			copy(data, s.buf[from+recordHeader:])
			s.mu.RUnlock()
			return data, at, nil
		}
	}
	s.mu.RUnlock()
	_, err := f.f.ReadAt(data, int64(at.off)+recordHeader)
	if err != nil && !errors.Is(err, os.ErrClosed) {
		err = errors.Join(s.forgetDamaged(hash, at), err)
	}
	return data, at, err
}

// forgetDamaged removes a damaged blob from the index and says so.
func (s *Store) forgetDamaged(hash Hash, at place) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.index[hash] == at {
		delete(s.index, hash)
		s.bytes -= int64(at.n)
		s.damaged += int64(at.n)
	}
	const cure = "put it again from the archive or another controller"
	return corruptError(
		blobPath(s.dir, at.file),
		int64(at.off),
		cure,
		"blob %s has changed on disk",
		hash,
	)
}

// Sync makes every blob put so far durable.
func (s *Store) Sync() error {
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	return s.syncActive()
}

// syncActive does so while others go on. The caller holds syncMu.
func (s *Store) syncActive() error {
	s.mu.Lock()
	err := s.checkUsable()
	if err == nil {
		err = s.flushBuffer()
	}
	full, active := s.full, s.active
	s.mu.Unlock()
	if err != nil {
		return err
	}
	for _, f := range full {
		if err := s.sealFile(f); err != nil {
			return s.failStore(err)
		}
	}
	if active != nil {
		if err := active.f.Sync(); err != nil {
			return s.failStore(err)
		}
		if err := durable.SyncDir(s.dir); err != nil {
			return s.failStore(err)
		}
	}
	return nil
}

// sealFile syncs a complete file and writes its index. The caller holds syncMu.
func (s *Store) sealFile(f *file) error {
	if err := f.f.Sync(); err != nil {
		return err
	}
	if err := writeIndex(s.dir, f.id, f.entries); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	f.sealed, f.entries = true, nil
	s.full = s.full[1:]
	return nil
}

// failStore refuses everything further: after a failed sync, what is on disk is known only
// after the next Open.
func (s *Store) failStore(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = fmt.Errorf("sync blobs: %w", err)
	return s.failed
}

// Stats describe the store.
type Stats struct {
	Blobs   int
	Bytes   int64 // of blobs, each once
	Files   int
	OnDisk  int64
	Damaged int64 // bytes found damaged since Open
}

// Stats returns the store's extent.
func (s *Store) Stats() Stats {
	s.mu.RLock()
	defer s.mu.RUnlock()
	stats := Stats{Blobs: len(s.index), Bytes: s.bytes, Files: len(s.files), Damaged: s.damaged}
	for _, f := range s.files {
		stats.OnDisk += f.size
	}
	return stats
}

// Close syncs and closes the store.
func (s *Store) Close() error {
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	err := s.syncActive()
	if errors.Is(err, ErrClosed) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return errors.Join(err, s.closeFiles())
}

func (s *Store) closeFiles() error {
	var errs []error
	for _, f := range s.files {
		errs = append(errs, f.f.Close())
	}
	return errors.Join(errs...)
}
