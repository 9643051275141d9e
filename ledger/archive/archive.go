package archive

import (
	"bytes"
	crand "crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/musterhpc/muster/internal/durable"
)

// Options configure Open. The zero value is usable.
type Options struct {
	Logger *slog.Logger // default: discards
	// SegmentBytes is the size at which a segment is sealed. Default 64 MiB.
	SegmentBytes int64
	// ChainEvery is how often new batches are linked in the hash chain. Default 10 s.
	ChainEvery time.Duration
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// Archive is the history in one folder. All methods may be called from any goroutine; Append
// from one at a time.
type Archive struct {
	dir  string
	opts Options
	dec  *zstd.Decoder
	wg   sync.WaitGroup
	quit chan struct{}
	seal chan struct{} // a segment is ready to be sealed
	due  chan struct{} // there are records that are not in the file yet

	appendMu sync.Mutex // one Append at a time
	again    *Iterator  // reads what a repeated Append is compared with

	syncMu sync.Mutex // one Sync at a time; taken before mu

	mu      sync.RWMutex
	syncing *os.File   // being synced without mu; Sync closes it if it was replaced meanwhile
	segs    []*segment // in order, without gaps; the last one is live, if any
	file    *os.File   // of the live segment
	buf     []byte     // records not yet written to file
	written int64      // bytes of the live segment in file
	synced  uint64     // last position known durable
	grown   chan struct{}
	failed  error // a failed sync: what is durable is unknown until the next Open
	closed  bool

	chain chain
}

// segment is one file. Those of a live one grow under the archive's mutex; sealed ones never
// change.
type segment struct {
	path     string
	sealed   bool
	salt     uint32
	size     int64
	first    uint64
	last     uint64 // first-1 while empty
	firstSeq uint64
	lastSeq  uint64
	at       int64 // newest record's time

	blocks  []block  // sealed
	offsets []int64  // live: of each record
	lasts   []uint64 // live: last sequence of each record
}

// flushBytes is how much is collected before it is written. Nothing acknowledged depends on it: the
// log keeps what the archive has not synced.
const flushBytes = 256 << 10

// Open opens or creates the archive in a folder, cutting off what a crash left behind the last
// whole record.
func Open(dir string, opts Options) (*Archive, error) {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.SegmentBytes == 0 {
		opts.SegmentBytes = 64 << 20
	}
	if opts.ChainEvery == 0 {
		opts.ChainEvery = 10 * time.Second
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	decoder, err := zstd.NewReader(
		nil,
		zstd.WithDecoderConcurrency(2),
		zstd.WithDecoderMaxMemory(256<<20),
	)
	if err != nil {
		return nil, err
	}
	archive := &Archive{
		dir:   dir,
		opts:  opts,
		dec:   decoder,
		quit:  make(chan struct{}),
		seal:  make(chan struct{}, 1),
		due:   make(chan struct{}, 1),
		grown: make(chan struct{}),
		chain: chain{stop: make(chan struct{})},
	}
	for _, p := range []string{dir, archive.segDir(), archive.snapDir(), archive.chainDir()} {
		if err := os.MkdirAll(p, 0o700); err != nil {
			return nil, err
		}
	}
	if err := archive.loadSegments(); err != nil {
		decoder.Close()
		return nil, err
	}
	if err := archive.openChain(); err != nil {
		// The jobs do not depend on it, and continuing it would hide what happened.
		opts.Logger.Error(
			"the archive's hash chain is damaged and is not continued (muster audit verify)",
			"error", err,
		)
	}
	archive.wg.Add(3)
	go archive.runSealer()
	go archive.keepPace()
	go archive.keepChain()
	archive.sealSoon()
	return archive, nil
}

func (a *Archive) segDir() string  { return filepath.Join(a.dir, "segments") }
func (a *Archive) snapDir() string { return filepath.Join(a.dir, "snapshots") }

func (a *Archive) chainDir() string { return filepath.Join(a.dir, chainFolder) }

func livePath(dir string, first uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%020d.live", first))
}

func sealedPath(dir string, first uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%020d.seg", first))
}

// Append adds the batch at position, whose events are numbered firstSeq to lastSeq (lastSeq is
// firstSeq-1 when it has none). A batch that is already there is accepted without effect if it
// is the same. After an error the batch is not in the archive and the call can be repeated.
func (a *Archive) Append(position, firstSeq, lastSeq uint64, batch []byte) error {
	a.appendMu.Lock()
	defer a.appendMu.Unlock()
	if len(batch) > maxBatch {
		return fmt.Errorf("archive batch %d: %d bytes exceed %d", position, len(batch), maxBatch)
	}
	if lastSeq+1 < firstSeq || position == 0 {
		return fmt.Errorf(
			"archive batch %d: events %d to %d make no sense", position, firstSeq, lastSeq,
		)
	}
	record := Record{
		Pos:      position,
		FirstSeq: firstSeq,
		LastSeq:  lastSeq,
		At:       a.opts.Now().UnixNano(),
		Batch:    batch,
	}
	if known, err := a.comparePosition(record); known || err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := a.checkUsable(); err != nil {
		return err
	}
	live, err := a.liveFor(record)
	if err != nil {
		return err
	}
	if len(a.buf) >= flushBytes {
		if err := a.flushBuffer(); err != nil {
			return err
		}
	}
	live.offsets = append(live.offsets, live.size)
	live.lasts = append(live.lasts, lastSeq)
	before := len(a.buf)
	a.buf = appendRecord(a.buf, live.salt, record)
	live.size += int64(len(a.buf) - before)
	live.last = position
	live.lastSeq = lastSeq
	live.at = record.At
	close(a.grown)
	a.grown = make(chan struct{})
	select {
	case a.due <- struct{}{}:
	default:
	}
	return nil
}

// flushEvery is how long a record waits for others before it is written to the
// file. What is in the file survives the end of the process, so that the archive
// is hardly behind a log that turns out to be damaged at the next start.
const flushEvery = 2 * time.Millisecond

// keepPace writes records to the file soon after they came.
func (a *Archive) keepPace() {
	defer a.wg.Done()
	for {
		select {
		case <-a.due:
		case <-a.quit:
			return
		}
		a.mu.Lock()
		if a.checkUsable() == nil && a.file != nil {
			// An error comes again with the next Append or Sync, which report it.
			_ = a.flushBuffer()
		}
		a.mu.Unlock()
		select {
		case <-time.After(flushEvery):
		case <-a.quit:
			return
		}
	}
}

func (a *Archive) checkUsable() error {
	switch {
	case a.closed:
		return ErrClosed
	case a.failed != nil:
		return fmt.Errorf("the archive must be opened again: %w", a.failed)
	}
	return nil
}

// comparePosition reports whether the archive holds r's position already, and fails if with
// something else.
func (a *Archive) comparePosition(record Record) (bool, error) {
	first, last := a.Bounds()
	if last == 0 || record.Pos > last {
		return false, nil
	}
	if record.Pos < first {
		return true, nil // dropped by retention, so nothing to compare with
	}
	if a.again == nil || a.again.next != record.Pos {
		a.again = a.ReadFrom(record.Pos)
	}
	have, err := a.again.Next()
	if err != nil {
		return false, err
	}
	if have.FirstSeq != record.FirstSeq || have.LastSeq != record.LastSeq ||
		!bytes.Equal(have.Batch, record.Batch) {
		return false, fmt.Errorf(
			"%w: %d has events %d to %d in %d bytes, offered were %d to %d in %d",
			ErrDiffers,
			record.Pos,
			have.FirstSeq,
			have.LastSeq,
			len(have.Batch),
			record.FirstSeq,
			record.LastSeq,
			len(record.Batch),
		)
	}
	return true, nil
}

// liveFor returns the live segment that takes r, beginning a new one when needed. The caller
// holds mu.
func (a *Archive) liveFor(record Record) (*segment, error) {
	var tail *segment
	if n := len(a.segs); n > 0 {
		tail = a.segs[n-1]
		if record.Pos != tail.last+1 {
			return nil, fmt.Errorf(
				"%w: it ends at batch %d, offered was %d; the log no longer holds what is missing: copy the archive from another controller or a backup",
				ErrGap,
				tail.last,
				record.Pos,
			)
		}
		if record.FirstSeq != tail.lastSeq+1 {
			return nil, fmt.Errorf(
				"%w: it ends at event %d, batch %d begins with %d",
				ErrGap,
				tail.lastSeq,
				record.Pos,
				record.FirstSeq,
			)
		}
		if !tail.sealed && tail.size < a.opts.SegmentBytes {
			return tail, nil
		}
	}
	if tail != nil && !tail.sealed {
		// The full one must be durable before the next begins: only the newest may have a torn
		// tail.
		if err := a.syncLocked(); err != nil {
			return nil, err
		}
		if a.syncing != a.file {
			if err := a.file.Close(); err != nil {
				return nil, err
			}
		}
		a.file = nil
	}
	return a.beginSegment(record)
}

// beginSegment creates a live segment whose first record is r.
func (a *Archive) beginSegment(record Record) (*segment, error) {
	var salt [4]byte
	if _, err := crand.Read(salt[:]); err != nil {
		return nil, err
	}
	s := &segment{
		path:     livePath(a.segDir(), record.Pos),
		salt:     binary.LittleEndian.Uint32(salt[:]),
		size:     fileHeader,
		first:    record.Pos,
		last:     record.Pos - 1,
		firstSeq: record.FirstSeq,
		lastSeq:  record.FirstSeq - 1,
		at:       record.At,
	}
	file, err := os.OpenFile(s.path, os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	_, err = file.WriteAt(putFileHeader(magicLive, s.salt, s.first), 0)
	if err == nil {
		err = file.Sync() // before any record, so that records never stand behind a torn header
	}
	if err == nil {
		err = durable.SyncDir(a.segDir())
	}
	if err != nil {
		return nil, errors.Join(err, file.Close(), os.Remove(s.path))
	}
	a.file, a.written = file, fileHeader
	a.segs = append(a.segs, s)
	a.sealSoon()
	return s, nil
}

// flushBuffer writes what is buffered. A failure leaves the buffer as it is, so that flush can
// be repeated. The caller holds mu.
func (a *Archive) flushBuffer() error {
	if len(a.buf) == 0 {
		return nil
	}
	if _, err := a.file.WriteAt(a.buf, a.written); err != nil {
		return fmt.Errorf("write the archive: %w", err)
	}
	a.written += int64(len(a.buf))
	a.buf = a.buf[:0]
	return nil
}

func (a *Archive) syncLocked() error {
	if a.file == nil {
		return nil
	}
	if err := a.flushBuffer(); err != nil {
		return err
	}
	if err := a.file.Sync(); err != nil {
		return a.syncFailed(a.file, err)
	}
	a.synced = a.segs[len(a.segs)-1].last
	return nil
}

// Sync makes everything appended so far durable and returns the last position of it. Appending
// and reading go on meanwhile.
func (a *Archive) Sync() (uint64, error) {
	a.syncMu.Lock()
	defer a.syncMu.Unlock()
	a.mu.Lock()
	err := a.checkUsable()
	if err == nil {
		err = a.flushBuffer()
	}
	if err != nil || a.file == nil {
		defer a.mu.Unlock()
		return a.synced, err
	}
	file, last := a.file, a.segs[len(a.segs)-1].last
	a.syncing = file
	a.mu.Unlock()
	err = file.Sync()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.syncing = nil
	if err != nil {
		return a.synced, a.syncFailed(file, err)
	}
	a.synced = max(a.synced, last)
	if a.file != file {
		err = file.Close()
	}
	return a.synced, err
}

// syncFailed refuses everything further: the system may now believe that lost pages are clean,
// and only a new scan can tell what is there.
func (a *Archive) syncFailed(file *os.File, err error) error {
	a.failed = fmt.Errorf("sync %s: %w", file.Name(), err)
	return a.failed
}

// Bounds returns the first and the last position, zeros when there is none.
func (a *Archive) Bounds() (first, last uint64) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.positionBounds()
}

func (a *Archive) positionBounds() (first, last uint64) {
	if len(a.segs) == 0 {
		return 0, 0
	}
	first, last = a.segs[0].first, a.segs[len(a.segs)-1].last
	if last < first {
		return 0, 0
	}
	return first, last
}

// Stats describe the archive.
type Stats struct {
	FirstPos, LastPos uint64
	FirstSeq, LastSeq uint64
	Synced            uint64 // last durable position
	Segments          int
	Sealed            int
	Bytes             int64 // on disk, without snapshots
}

// Stats returns the archive's extent.
func (a *Archive) Stats() Stats {
	a.mu.RLock()
	defer a.mu.RUnlock()
	stats := Stats{Segments: len(a.segs), Synced: a.synced}
	stats.FirstPos, stats.LastPos = a.positionBounds()
	for i, g := range a.segs {
		if i == 0 {
			stats.FirstSeq = g.firstSeq
		}
		stats.LastSeq = g.lastSeq
		stats.Bytes += g.size
		if g.sealed {
			stats.Sealed++
		}
	}
	return stats
}

// Close syncs and closes the archive; iterators end with ErrClosed.
func (a *Archive) Close() error {
	chained := a.closeChain()
	a.syncMu.Lock()
	defer a.syncMu.Unlock()
	a.mu.Lock()
	if a.closed {
		a.mu.Unlock()
		return nil
	}
	err := chained
	if a.failed == nil {
		err = errors.Join(err, a.syncLocked())
	}
	a.closed = true
	if a.file != nil {
		err = errors.Join(err, a.file.Close())
	}
	close(a.grown)
	a.grown = make(chan struct{})
	a.mu.Unlock()
	close(a.quit)
	a.wg.Wait()
	a.dec.Close()
	return err
}

// findSegment returns the segment that holds position. The caller holds mu.
func (a *Archive) findSegment(position uint64) *segment {
	i := sort.Search(len(a.segs), func(i int) bool { return a.segs[i].last >= position })
	if i == len(a.segs) || a.segs[i].first > position {
		return nil
	}
	return a.segs[i]
}
