package log

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
)

// storeHooks are how the store tells the log what became of frames. All are called on raft's
// own goroutines.
type storeHooks struct {
	stored  func(logs []*raft.Log)           // durable here
	failed  func(err error)                  // a group was not stored; raft steps down
	fatal   func(err error)                  // the store will not take anything any more
	refuse  func(logs []*raft.Log) bool      // a frame among them whose writer was told that it failed
	compact func(max uint64) (uint64, error) // how far the log may be compacted, after the archive agreed
	clear   func() error                     // the whole log goes, a snapshot from the leader replaces it
	running func() bool                      // raft's goroutines run
}

// logStore is raft's log and stable store: raft-wal, and around it the checks and the recovery
// that it lacks. It verifies every segment before raft-wal sees it, reads the replayed tail in
// large pieces, and opens raft-wal anew after a failed write, since raft-wal's writer is of no
// use afterwards.
type logStore struct {
	fs       FS
	dir      string
	meta     *metaStore
	segBytes int
	log      *slog.Logger
	hooks    storeHooks
	closing  chan struct{}
	spare    *spare
	salt     uint32
	visit    func(batch []byte) // gets the batches that a scan meets; may be nil
	skip     uint64             // segments that end here or before lie behind the snapshot and are not read at open

	// op is held by whatever changes the log. It guards these:
	op     sync.Mutex
	vfs    *walFS
	last   uint64 // index of the last entry that raft believes stored
	broken error  // why the next write must open raft-wal anew
	tries  int

	// mu guards what readers need; op is taken first.
	mu    sync.RWMutex
	wal   *wal.WAL
	table []*segment // what was on disk at open

	winMu sync.Mutex
	win   entryWindow

	groups, groupMax, syncNanos, failures, dropped atomic.Uint64

	writing writeClock
}

type entryWindow struct {
	first uint64
	logs  []raft.Log
}

// IsMonotonic tells raft that indexes may not jump.
func (s *logStore) IsMonotonic() bool { return true }

// FirstIndex is the oldest entry, 0 when there is none.
func (s *logStore) FirstIndex() (uint64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.wal.FirstIndex()
}

// LastIndex is the newest entry, 0 when there is none.
func (s *logStore) LastIndex() (uint64, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.wal.LastIndex()
}

// StoreLog stores one entry.
func (s *logStore) StoreLog(entry *raft.Log) error { return s.StoreLogs([]*raft.Log{entry}) }

// StoreLogs stores a group with one sync. Only raft's main goroutine calls it.
func (s *logStore) StoreLogs(logs []*raft.Log) error {
	s.writing.begin()
	defer s.writing.end()
	if s.hooks.refuse(logs) {
		s.hooks.failed(errStale)
		return errStale
	}
	if err := s.storeEntries(logs); err != nil {
		s.failures.Add(1)
		s.hooks.failed(err)
		if !isFull(err) {
			s.hooks.fatal(err)
		}
		return err
	}
	s.hooks.stored(logs)
	return nil
}

func (s *logStore) storeEntries(logs []*raft.Log) error {
	s.op.Lock()
	defer s.op.Unlock()
	if s.broken != nil {
		if err := s.reopenWAL(); err != nil {
			return err
		}
	}
	sealed := make([]*raft.Log, len(logs))
	for i, l := range logs {
		sealed[i] = sealEntry(l, s.salt)
	}
	began := time.Now()
	if err := s.wal.StoreLogs(sealed); err != nil {
		err = s.vfs.causeOf(err)
		if isFull(err) {
			err = diskFull(err)
		}
		s.broken = err
		return err
	}
	s.syncNanos.Add(uint64(time.Since(began)))
	s.groups.Add(1)
	if n := uint64(len(logs)); n > s.groupMax.Load() {
		s.groupMax.Store(n)
	}
	s.last = logs[len(logs)-1].Index
	return nil
}

// reopenWAL waits a little for room and opens raft-wal anew, dropping what the failed write may
// have left.
func (s *logStore) reopenWAL() error {
	if !isFull(s.broken) {
		return s.broken
	}
	const pause, patience = 100 * time.Millisecond, 5
	for i := 0; ; i++ {
		free, err := s.fs.Free(s.dir)
		if err == nil && free > uint64(s.segBytes)+(1<<20) && (i > 0 || s.tries == 0) {
			break
		}
		if i == 0 {
			s.hooks.failed(s.broken) // who waits shall not wait for patience to end
		}
		if i == patience {
			return s.broken
		}
		if !s.waitForRoom(pause) {
			return ErrClosed
		}
	}
	s.tries++
	if err := s.openVerified(s.last); err != nil {
		if isFull(err) {
			err = diskFull(err)
		}
		s.broken = err
		return err
	}
	s.log.Info("the ledger's disk has room again")
	return nil
}

// waitForRoom pauses; false means that the log is closing.
func (s *logStore) waitForRoom(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.closing:
		return false
	}
}

// GetLog reads one entry and checks it.
func (s *logStore) GetLog(index uint64, entry *raft.Log) (err error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for _, seg := range s.table {
		if index >= seg.info.BaseIndex && index <= seg.lastIndex() {
			return s.fromWindow(seg, index, entry)
		}
	}
	defer func() {
		// raft-wal slices without checking when an entry is damaged.
		if r := recover(); r != nil {
			err = fmt.Errorf("%w: entry %d cannot be decoded: %v", ErrCorrupt, index, r)
		}
	}()
	if err := s.wal.GetLog(index, entry); err != nil {
		return err
	}
	return openEntry(entry, s.salt)
}

// fromWindow serves the entries that were on disk at open, reading a piece of the file at a time.
func (s *logStore) fromWindow(seg *segment, index uint64, entry *raft.Log) error {
	s.winMu.Lock()
	defer s.winMu.Unlock()
	if index < s.win.first || index >= s.win.first+uint64(len(s.win.logs)) {
		if err := s.fillWindow(seg, index); err != nil {
			return err
		}
	}
	*entry = s.win.logs[index-s.win.first]
	return nil
}

func (s *logStore) fillWindow(seg *segment, index uint64) error {
	file, err := s.fs.Open(seg.path, false)
	if err != nil {
		return err
	}
	defer file.Close()
	reader := &windowReader{f: file, size: seg.size}
	s.win = entryWindow{first: index}
	for i := index; i <= seg.lastIndex(); i++ {
		at := seg.offsets[i-seg.info.BaseIndex]
		if i > index && at+segFrameHeader > reader.from+int64(len(reader.buf)) {
			return nil
		}
		head, err := reader.readAt(at, segFrameHeader)
		if err != nil {
			return err
		}
		kind, n, ok := segFrame(head)
		if !ok || kind != segEntry {
			return corruptError(
				seg.path,
				at,
				cureSegment,
				"entry %d has changed since it was verified",
				i,
			)
		}
		if i > index && at+segFrameHeader+int64(n) > reader.from+int64(len(reader.buf)) {
			return nil
		}
		body, err := reader.readAt(at+segFrameHeader, int64(n))
		if err != nil {
			return err
		}
		var entry raft.Log
		if err := decodeEntry(body, &entry, s.salt); err != nil {
			return corruptError(seg.path, at, cureSegment, "%v", err)
		}
		s.win.logs = append(s.win.logs, entry)
	}
	return nil
}

// DeleteRange compacts the log (a prefix), clears it (everything), or removes entries that a
// new leader overruled (a suffix).
func (s *logStore) DeleteRange(lo, hi uint64) error {
	first, err := s.FirstIndex()
	if err != nil {
		return err
	}
	last, err := s.LastIndex()
	if err != nil {
		return err
	}
	// The hooks sync the archive, which takes time, so they come before the lock.
	prefix, all := lo <= first, lo <= first && hi >= last
	switch {
	case all:
		err = s.hooks.clear()
	case prefix:
		hi, err = s.hooks.compact(hi)
	}
	if err != nil || prefix && hi < first {
		return err
	}
	s.op.Lock()
	defer s.op.Unlock()
	if s.broken != nil {
		return s.broken
	}
	if all || !prefix {
		from := lo
		if all {
			from = 0
		}
		if err := s.lowerWatermark(max(from, 1) - 1); err != nil {
			return err
		}
		s.truncateTable(from)
		s.last = max(from, 1) - 1
	}
	return s.wal.DeleteRange(lo, hi)
}

func (s *logStore) lowerWatermark(index uint64) error {
	if s.meta.currentState().Watermark <= index {
		return nil
	}
	return s.meta.setWatermark(index)
}

// truncateTable forgets scanned entries from lo on.
func (s *logStore) truncateTable(lo uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.winMu.Lock()
	defer s.winMu.Unlock()
	s.win = entryWindow{}
	var keep []*segment
	for _, seg := range s.table {
		if seg.info.BaseIndex >= lo {
			continue
		}
		if seg.lastIndex() >= lo {
			seg.offsets = seg.offsets[:lo-seg.info.BaseIndex]
		}
		keep = append(keep, seg)
	}
	s.table = keep
}

// Set stores a value of raft's durably.
func (s *logStore) Set(key, value []byte) error {
	return s.endUnlessStable(s.meta.SetStable(key, value))
}

// Get returns a value of raft's, nil when there is none.
func (s *logStore) Get(key []byte) ([]byte, error) { return s.meta.GetStable(key) }

// SetUint64 stores a number of raft's durably.
func (s *logStore) SetUint64(key []byte, value uint64) error {
	return s.Set(key, appendUint64(nil, value))
}

// GetUint64 returns a number of raft's, 0 when there is none.
func (s *logStore) GetUint64(key []byte) (uint64, error) {
	data, err := s.Get(key)
	if err != nil || len(data) == 0 {
		return 0, err
	}
	return readUint64(data)
}

// termKey is raft's own key.
const termKey = "CurrentTerm"

// bootTerm sets raft's term in a new log.
func (s *logStore) bootTerm() error {
	key := []byte(termKey)
	term, err := s.GetUint64(key)
	if err != nil || term > 0 {
		return err
	}
	return s.SetUint64(key, 1)
}

// endUnlessStable ends raft's goroutine when its term or vote cannot be saved. raft would panic
// and take the whole controller down with a stack trace; so the log stops with its error and
// the daemon can say what happened.
func (s *logStore) endUnlessStable(err error) error {
	if err == nil {
		return nil
	}
	s.hooks.fatal(err)
	if s.hooks.running() {
		runtime.Goexit()
	}
	return err
}

// metaFailed waits for room and lets the update of the metadata be tried again. Their blocks
// are reserved, so this is for filesystems that write every block anew.
func (s *logStore) metaFailed(err error) error {
	if !isFull(err) || !s.hooks.running() {
		return err
	}
	s.hooks.failed(diskFull(err))
	if !s.waitForRoom(250 * time.Millisecond) {
		return err
	}
	return nil
}

// close notes the last entry, so that a shorter log at the next open is known to be damaged,
// and closes everything.
func (s *logStore) close(clean bool) error {
	s.op.Lock()
	defer s.op.Unlock()
	var errs []error
	if clean && s.broken == nil {
		last, err := s.wal.LastIndex()
		if err == nil {
			err = s.meta.setWatermark(last)
		}
		errs = append(errs, err)
	}
	errs = append(errs, s.wal.Close(), s.spare.close(), s.meta.closeFiles())
	return errors.Join(errs...)
}
