//go:build linux

// Package journal keeps the shepherd's memory on disk: an append-only file of
// checksummed records, synced in groups and rewritten when mostly obsolete.
//
// What was appended survives the death of the process; what was synced
// survives the death of the machine. A torn last record is dropped; damage
// before a good record is ErrCorrupt, because a forgotten launch could be
// started twice. Room for the records that end what was begun is reserved on
// the disk ahead of time, so that a full disk refuses launches, never exits.
package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/musterhpc/muster/internal/durable"
)

var (
	// ErrFull means that the record was not written because the disk is full.
	ErrFull = errors.New("no room left on disk")
	// ErrCorrupt means that the file is damaged before its end.
	ErrCorrupt = errors.New("journal is damaged")
	// ErrFailed means that the disk failed to keep what was written; only a
	// new journal can be trusted.
	ErrFailed = errors.New("journal failed on disk")
)

const (
	magic      = "MUSTERJ1"
	headerSize = 8 // length, checksum
	// MaxRecord is the largest payload in bytes.
	MaxRecord = 1 << 20
	// Reserve is the room kept for AppendReserved, in bytes.
	Reserve = 1 << 20
	// chunk is how much the file grows at once. The room is allocated before it is needed, so that a
	// full disk shows here and not in the middle of a record.
	chunk = 1 << 20
)

// Journal is one open file. Its methods may be called from any goroutine.
type Journal struct {
	path string

	mu      sync.Mutex
	cond    *sync.Cond
	f       *os.File
	end     int64 // where the next record goes
	alloc   int64 // bytes reserved on disk
	seq     uint64
	synced  uint64
	syncing bool
	failed  error
	buf     []byte
	noAlloc bool // the file system cannot reserve
}

// Open reads the journal, giving each record to replay, and makes it if there
// is none. It reports the bytes of a torn record that it dropped.
func Open(path string, replay func([]byte) error) (journal *Journal, torn int64, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, 0, fmt.Errorf("open journal: %w", err)
	}
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	data, err := io.ReadAll(file)
	if err != nil {
		return nil, 0, fmt.Errorf("read journal %s: %w", path, err)
	}
	journal = &Journal{path: path, f: file}
	journal.cond = sync.NewCond(&journal.mu)
	// A file cut inside of its magic was being made when the machine died.
	if len(data) < len(magic) {
		torn = int64(len(data))
		if err := journal.fresh(); err != nil {
			return nil, 0, err
		}
		return journal, torn, nil
	}
	if string(data[:len(magic)]) != magic {
		return nil, 0, fmt.Errorf("%w: %s is not a journal of this program", ErrCorrupt, path)
	}
	end, err := scanRecords(data, replay)
	if err != nil {
		return nil, 0, fmt.Errorf("journal %s: %w", path, err)
	}
	journal.end = end
	torn = int64(len(data)) - end
	if torn > 0 {
		if err := file.Truncate(end); err != nil {
			return nil, 0, fmt.Errorf("cut torn record of %s: %w", path, err)
		}
	}
	journal.alloc = end
	return journal, torn, nil
}

// Read gives each record to replay, as Open does, of a journal that another
// process may be writing: nothing is changed, and what is torn is left out.
func Read(path string, replay func([]byte) error) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read journal: %w", err)
	}
	if len(data) < len(magic) {
		return nil
	}
	if string(data[:len(magic)]) != magic {
		return fmt.Errorf("%w: %s is not a journal of this program", ErrCorrupt, path)
	}
	if _, err := scanRecords(data, replay); err != nil {
		return fmt.Errorf("journal %s: %w", path, err)
	}
	return nil
}

func (j *Journal) fresh() error {
	if err := j.f.Truncate(0); err != nil {
		return fmt.Errorf("start journal: %w", err)
	}
	if _, err := j.f.WriteAt([]byte(magic), 0); err != nil {
		return fmt.Errorf("start journal: %w", asErrFull(err))
	}
	j.end, j.alloc = int64(len(magic)), int64(len(magic))
	if err := j.f.Sync(); err != nil {
		return fmt.Errorf("start journal: %w", err)
	}
	return durable.SyncDir(filepath.Dir(j.path))
}

// scanRecords gives each good record to replay and returns where the good part ends.
func scanRecords(data []byte, replay func([]byte) error) (int64, error) {
	at := len(magic)
	for at < len(data) {
		payload, ok := readRecord(data[at:])
		if !ok {
			if next := findGoodRecord(data[at+1:]); next >= 0 {
				return 0, fmt.Errorf(
					"%w at byte %d, with good records after it: move the file away to start anew; "+
						"its runs will then be unknown",
					ErrCorrupt,
					at,
				)
			}
			return int64(at), nil
		}
		if err := replay(payload); err != nil {
			return 0, fmt.Errorf("record at byte %d: %w", at, err)
		}
		at += headerSize + len(payload)
	}
	return int64(at), nil
}

// readRecord reads the record at the start of b.
func readRecord(b []byte) ([]byte, bool) {
	if len(b) < headerSize {
		return nil, false
	}
	n := binary.LittleEndian.Uint32(b)
	if n == 0 || n > MaxRecord || int(n) > len(b)-headerSize {
		return nil, false
	}
	p := b[headerSize : headerSize+int(n)]
	return p, durable.Checksum(p) == binary.LittleEndian.Uint32(b[4:])
}

// findGoodRecord looks for any good record; -1 if there is none.
func findGoodRecord(data []byte) int {
	for i := 0; i+headerSize < len(data); i++ {
		if _, ok := readRecord(data[i:]); ok {
			return i
		}
	}
	return -1
}

// Append writes records at once, or none of them; ErrFull if that would eat
// into the reserve. It returns the position for Sync.
func (j *Journal) Append(payloads ...[]byte) (uint64, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.encode(payloads); err != nil {
		return 0, err
	}
	if err := j.reserveRoom(int64(len(j.buf))); err != nil {
		return 0, err
	}
	return j.writeRecords()
}

// AppendReserved writes records that end what was begun; it may use the reserve.
func (j *Journal) AppendReserved(payloads ...[]byte) (uint64, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.encode(payloads); err != nil {
		return 0, err
	}
	return j.writeRecords()
}

func (j *Journal) encode(payloads [][]byte) error {
	if j.failed != nil {
		return j.failed
	}
	j.buf = j.buf[:0]
	for _, p := range payloads {
		if len(p) == 0 || len(p) > MaxRecord {
			return fmt.Errorf("journal: a record of %d bytes is not allowed", len(p))
		}
		j.buf = binary.LittleEndian.AppendUint32(j.buf, uint32(len(p)))
		j.buf = binary.LittleEndian.AppendUint32(j.buf, durable.Checksum(p))
		j.buf = append(j.buf, p...)
	}
	return nil
}

// reserveRoom makes sure that n bytes and the reserve after them have their place
// on the disk.
func (j *Journal) reserveRoom(n int64) error {
	need := j.end + n + Reserve
	if j.noAlloc || need <= j.alloc {
		return nil
	}
	to := need + chunk
	err := unix.Fallocate(int(j.f.Fd()), unix.FALLOC_FL_KEEP_SIZE, j.end, to-j.end)
	switch {
	case err == nil:
		j.alloc = to
		return nil
	case errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS):
		j.noAlloc = true
		return nil
	}
	return fmt.Errorf("journal %s: %w", j.path, asErrFull(err))
}

func (j *Journal) writeRecords() (uint64, error) {
	// A record that does not fit is written over by the next try.
	if _, err := j.f.WriteAt(j.buf, j.end); err != nil {
		return 0, fmt.Errorf("journal %s: %w", j.path, asErrFull(err))
	}
	j.end += int64(len(j.buf))
	j.seq++
	return j.seq, nil
}

// asErrFull turns the kernel's ways to say "no room" into ErrFull.
func asErrFull(err error) error {
	if errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG) {
		return errors.Join(ErrFull, err)
	}
	return err
}

// Sync returns when everything up to the position is on disk. Callers that
// wait at the same time share one flush.
func (j *Journal) Sync(upTo uint64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for j.synced < upTo && j.failed == nil {
		if j.syncing {
			j.cond.Wait()
			continue
		}
		j.syncing = true
		f, target := j.f, j.seq
		j.mu.Unlock()
		err := unix.Fdatasync(int(f.Fd()))
		j.mu.Lock()
		j.syncing = false
		if err != nil {
			// The kernel has dropped the pages: a second flush would lie.
			j.failed = fmt.Errorf("%w: %s: %w", ErrFailed, j.path, err)
		} else {
			j.synced = max(j.synced, target)
		}
		j.cond.Broadcast()
	}
	return j.failed
}

// Last gives the position of the newest record.
func (j *Journal) Last() uint64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.seq
}

// Size is the length of the file in bytes.
func (j *Journal) Size() int64 {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.end
}

// Err tells whether the journal has failed for good.
func (j *Journal) Err() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.failed
}

// Rewrite replaces the file by one that holds only the records that emit
// gives. Appends wait meanwhile. When it fails the old file stays in force.
func (j *Journal) Rewrite(emit func(add func([]byte) error) error) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for j.syncing {
		j.cond.Wait()
	}
	if j.failed != nil {
		return j.failed
	}
	tmp := j.path + ".new"
	file, err := os.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("rewrite journal: %w", asErrFull(err))
	}
	end, err := j.fill(file, emit)
	if err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = os.Rename(tmp, j.path)
	}
	if err != nil {
		_ = file.Close()
		_ = os.Remove(tmp)
		return fmt.Errorf("rewrite journal: %w", asErrFull(err))
	}
	_ = j.f.Close()
	j.f = file
	j.end = end
	j.alloc = end
	j.synced = j.seq
	if err := durable.SyncDir(filepath.Dir(j.path)); err != nil {
		return fmt.Errorf("rewrite journal: %w", err)
	}
	return nil
}

func (j *Journal) fill(file *os.File, emit func(add func([]byte) error) error) (int64, error) {
	out := []byte(magic)
	var end int64
	flush := func() error {
		_, err := file.WriteAt(out, end)
		end += int64(len(out))
		out = out[:0]
		return err
	}
	err := emit(func(p []byte) error {
		if err := j.encode([][]byte{p}); err != nil {
			return err
		}
		out = append(out, j.buf...)
		if len(out) < 1<<16 {
			return nil
		}
		return flush()
	})
	if err != nil {
		return 0, err
	}
	err = flush()
	return end, err
}

// Close closes the file without a flush.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for j.syncing {
		j.cond.Wait()
	}
	if j.failed == nil {
		j.failed = errors.New("journal is closed")
	}
	return j.f.Close()
}
