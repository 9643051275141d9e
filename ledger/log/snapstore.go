package log

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/hashicorp/raft"

	"github.com/musterhpc/muster/internal/durable"
)

// A snapshot is one file:
//
//	"MUSTSNAP", version u32, length of the JSON u32, CRC32C of the JSON u32, JSON (raft's description)
//	chunks: length u32, CRC32C of chunk number and data u32, data
//	end: length 0 u32, CRC32C of chunk number and total u32, total bytes u64
//
// It is written under another name, synced and then renamed, so a file with the right name is
// whole unless it was damaged.
const (
	snapMagic   = "MUSTSNAP"
	snapVersion = 1
	snapHeader  = 20
	snapChunk   = 256 << 10
	snapSuffix  = ".snap"
	snapTemp    = durable.TempSuffix
	snapsKept   = 2
)

// snapStore implements raft.SnapshotStore. It offers raft only the newest snapshot: falling
// back to an older one is an administrator's decision, and the error of a damaged one says how.
type snapStore struct {
	fs  FS
	dir string
	log *slog.Logger
	// stateless is set on a witness: of a snapshot it keeps the head.
	stateless bool

	mu      sync.Mutex
	lastErr error // of the last Open or read, since raft reduces it to a text
}

func snapName(index, term uint64) string {
	return fmt.Sprintf("%020d-%020d%s", index, term, snapSuffix)
}

func openSnapStore(fs FS, dir string, logger *slog.Logger) (*snapStore, error) {
	store := &snapStore{fs: fs, dir: dir, log: logger}
	names, err := fs.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, n := range names {
		if strings.HasSuffix(n, snapTemp) {
			if err := fs.Remove(filepath.Join(dir, n)); err != nil {
				return nil, err
			}
		}
	}
	return store, nil
}

// rememberError remembers err, nil to forget the last one.
func (s *snapStore) rememberError(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lastErr = err
	return err
}

func (s *snapStore) currentError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lastErr
}

// listNames returns the snapshots' file names, newest first.
func (s *snapStore) listNames() ([]string, error) {
	all, err := s.fs.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	var out []string
	for i := len(all) - 1; i >= 0; i-- {
		if strings.HasSuffix(all[i], snapSuffix) {
			out = append(out, all[i])
		}
	}
	return out, nil
}

// listIndexes returns the raft indexes of the snapshots, newest first.
func (s *snapStore) listIndexes() ([]uint64, error) {
	names, err := s.listNames()
	if err != nil {
		return nil, err
	}
	out := make([]uint64, 0, len(names))
	for _, name := range names {
		var index, term uint64
		if _, err := fmt.Sscanf(name, "%020d-%020d", &index, &term); err != nil {
			return nil, corruptError(
				filepath.Join(s.dir, name),
				0,
				"move it away if it is not a snapshot of Muster's",
				"the name is not index-term",
			)
		}
		out = append(out, index)
	}
	return out, nil
}

// describeCure says what to do about a damaged snapshot: the one before and the log reproduce it.
func (s *snapStore) describeCure(name string) string {
	names, err := s.listNames()
	if err != nil || len(names) < 2 || names[0] != name {
		return cureSegment
	}
	return fmt.Sprintf(
		"move the file away: %s before it and the log together hold the same state",
		names[1],
	)
}

// List returns the newest snapshot, if any.
func (s *snapStore) List() ([]*raft.SnapshotMeta, error) {
	names, err := s.listNames()
	if err != nil || len(names) == 0 {
		return nil, err
	}
	meta, file, _, err := s.readHeader(names[0])
	if err != nil {
		return nil, s.rememberError(err)
	}
	defer file.Close()
	return []*raft.SnapshotMeta{meta}, nil
}

func (s *snapStore) readHeader(name string) (*raft.SnapshotMeta, File, int64, error) {
	path := filepath.Join(s.dir, name)
	file, err := s.fs.Open(path, false)
	if err != nil {
		return nil, nil, 0, err
	}
	bad := func(off int64, format string, args ...any) (*raft.SnapshotMeta, File, int64, error) {
		return nil, nil, 0, errors.Join(
			corruptError(path, off, s.describeCure(name), format, args...),
			file.Close(),
		)
	}
	size, err := file.Size()
	if err != nil {
		return nil, nil, 0, errors.Join(err, file.Close())
	}
	var head [snapHeader]byte
	if n, _ := file.ReadAt(head[:], 0); n < snapHeader || string(head[:8]) != snapMagic {
		return bad(0, "not a snapshot")
	}
	if v := binary.LittleEndian.Uint32(head[8:]); v > snapVersion {
		return nil, nil, 0, errors.Join(
			newerError(path, int(v), snapVersion),
			file.Close(),
		)
	}
	n := int64(binary.LittleEndian.Uint32(head[12:]))
	if n > size-snapHeader {
		return bad(12, "its description is said to be longer than the file")
	}
	body := make([]byte, n)
	if got, _ := file.ReadAt(body, snapHeader); got < len(body) ||
		durable.Checksum(body) != binary.LittleEndian.Uint32(head[16:]) {
		return bad(snapHeader, "checksum of its description does not match")
	}
	var meta raft.SnapshotMeta
	if err := json.Unmarshal(body, &meta); err != nil {
		return bad(snapHeader, "its description cannot be decoded: %v", err)
	}
	var end [8]byte
	if _, err := file.ReadAt(end[:], size-int64(len(end))); err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, 0, errors.Join(err, file.Close())
	}
	// Checked against the content when that has been read.
	meta.Size = int64(binary.LittleEndian.Uint64(end[:]))
	return &meta, file, snapHeader + n, nil
}

// Open returns a snapshot's description and content; the content is checked as it is read.
func (s *snapStore) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, file, at, err := s.readHeader(id)
	if err != nil {
		return nil, nil, s.rememberError(err)
	}
	return meta, &snapReader{store: s, name: id, f: file, at: at}, nil
}

type snapReader struct {
	store *snapStore
	name  string
	f     File
	at    int64
	chunk uint32
	total uint64
	buf   []byte
	done  bool
}

func (r *snapReader) Close() error { return r.f.Close() }

func (r *snapReader) Read(p []byte) (int, error) {
	for len(r.buf) == 0 {
		if r.done {
			return 0, io.EOF
		}
		if err := r.next(); err != nil {
			return 0, r.store.rememberError(err)
		}
	}
	n := copy(p, r.buf)
	r.buf = r.buf[n:]
	return n, nil
}

func (r *snapReader) next() error {
	path := filepath.Join(r.store.dir, r.name)
	bad := func(what string) error { return corruptError(path, r.at, r.store.describeCure(r.name), "%s", what) }
	var head [16]byte
	got, err := r.f.ReadAt(head[:], r.at)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if got < 8 {
		return bad("the file ends too early")
	}
	n, sum := binary.LittleEndian.Uint32(head[:]), binary.LittleEndian.Uint32(head[4:])
	if n == 0 {
		total := binary.LittleEndian.Uint64(head[8:])
		if got < 16 || total != r.total || sum != chunkSum(r.chunk, head[8:16]) {
			return bad("the end mark does not match")
		}
		r.done = true
		return nil
	}
	if n > snapChunk {
		return bad("a chunk has an impossible length")
	}
	data := make([]byte, n)
	if got, err := r.f.ReadAt(data, r.at+8); err != nil && !errors.Is(err, io.EOF) {
		return err
	} else if got < len(data) || chunkSum(r.chunk, data) != sum {
		return bad("checksum of a chunk does not match")
	}
	r.at += 8 + int64(n)
	r.total += uint64(n)
	r.chunk++
	r.buf = data
	return nil
}

func chunkSum(n uint32, data []byte) uint32 {
	var b [4]byte
	binary.LittleEndian.PutUint32(b[:], n)
	return durable.ExtendChecksum(durable.Checksum(b[:]), data)
}

// Create begins a snapshot.
func (s *snapStore) Create(
	version raft.SnapshotVersion,
	index, term uint64,
	conf raft.Configuration,
	confIndex uint64,
	_ raft.Transport,
) (raft.SnapshotSink, error) {
	name := snapName(index, term)
	body, err := json.Marshal(
		raft.SnapshotMeta{
			Version:            version,
			ID:                 name,
			Index:              index,
			Term:               term,
			Configuration:      conf,
			ConfigurationIndex: confIndex,
		},
	)
	if err != nil {
		return nil, err
	}
	temp := filepath.Join(s.dir, name+snapTemp)
	if err := s.fs.Remove(temp); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	file, err := s.fs.Create(temp, 0)
	if err != nil {
		return nil, s.rememberError(err)
	}
	sink := &snapSink{store: s, name: name, temp: temp, f: file}
	head := make([]byte, snapHeader, snapHeader+len(body))
	copy(head, snapMagic)
	binary.LittleEndian.PutUint32(head[8:], snapVersion)
	binary.LittleEndian.PutUint32(head[12:], uint32(len(body)))
	binary.LittleEndian.PutUint32(head[16:], durable.Checksum(body))
	if err := sink.writeRaw(append(head, body...)); err != nil {
		return nil, errors.Join(err, sink.Cancel())
	}
	return sink, nil
}

type snapSink struct {
	store  *snapStore
	name   string
	temp   string
	f      File
	at     int64
	chunk  uint32
	total  uint64
	buf    []byte
	closed bool
}

// ID is the name under which the snapshot can be opened.
func (k *snapSink) ID() string { return k.name }

func (k *snapSink) writeRaw(data []byte) error {
	if _, err := k.f.WriteAt(data, k.at); err != nil {
		return k.store.rememberError(err)
	}
	k.at += int64(len(data))
	return nil
}

func (k *snapSink) Write(p []byte) (int, error) {
	if k.store.stateless {
		k.buf = append(k.buf, keepHead(len(k.buf), p)...)
		if len(k.buf) == fsmHeader {
			markStateless(k.buf)
		}
		return len(p), nil
	}
	k.buf = append(k.buf, p...)
	if k.chunk == 0 && isStateless(k.buf) {
		return 0, k.store.rememberError(errStateless)
	}
	for len(k.buf) >= snapChunk {
		if err := k.flushBlock(k.buf[:snapChunk]); err != nil {
			return 0, err
		}
		k.buf = append(k.buf[:0], k.buf[snapChunk:]...)
	}
	return len(p), nil
}

func (k *snapSink) flushBlock(data []byte) error {
	buffer := binary.LittleEndian.AppendUint32(make([]byte, 0, len(data)+8), uint32(len(data)))
	buffer = binary.LittleEndian.AppendUint32(buffer, chunkSum(k.chunk, data))
	k.chunk++
	k.total += uint64(len(data))
	return k.writeRaw(append(buffer, data...))
}

// Close makes the snapshot durable and visible, and removes those before the last two.
func (k *snapSink) Close() error {
	if k.closed {
		return nil
	}
	if len(k.buf) > 0 {
		if err := k.flushBlock(k.buf); err != nil {
			return errors.Join(err, k.Cancel())
		}
	}
	total := binary.LittleEndian.AppendUint64(nil, k.total)
	end := binary.LittleEndian.AppendUint32(make([]byte, 4, 16), chunkSum(k.chunk, total))
	if err := errors.Join(k.writeRaw(append(end, total...)), k.f.Sync()); err != nil {
		return errors.Join(k.store.rememberError(err), k.Cancel())
	}
	k.closed = true
	store := k.store
	if err := k.f.Close(); err != nil {
		return err
	}
	if err := store.fs.Rename(k.temp, filepath.Join(store.dir, k.name)); err != nil {
		return err
	}
	if err := store.fs.SyncDir(store.dir); err != nil {
		return err
	}
	return store.reapOld()
}

func (s *snapStore) reapOld() error {
	names, err := s.listNames()
	if err != nil || len(names) <= snapsKept {
		return err
	}
	for _, n := range names[snapsKept:] {
		if err := s.fs.Remove(filepath.Join(s.dir, n)); err != nil {
			return err
		}
	}
	return s.fs.SyncDir(s.dir)
}

// Cancel abandons the snapshot.
func (k *snapSink) Cancel() error {
	if k.closed {
		return nil
	}
	k.closed = true
	return errors.Join(k.f.Close(), k.store.fs.Remove(k.temp))
}
