package log

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"

	"github.com/hashicorp/raft-wal/types"

	"github.com/musterhpc/muster/internal/durable"
)

// The metadata of the log are the list of segments, raft's term and vote, and the watermark.
// They live in two files of fixed size that hold the same bytes, so that an update needs no new
// block on the disk and damage to either is repaired. One file:
//
//	0  "MUSTMETA"
//	8  version
//	12 length of the JSON
//	16 generation, one more with each update
//	24 CRC32C over bytes 0-23 and the JSON
//	28 zero
//	32 JSON
//
// An update writes and syncs file 0, then writes file 1, whose sync is due only before the next
// update of file 0. So at any instant one of them holds the newest durable generation.
const (
	metaMagic   = "MUSTMETA"
	metaVersion = 1
	metaHeader  = 32
	metaSize    = 256 << 10
)

type metaState struct {
	Salt      uint32 `json:"salt"`      // secret start value of the entries' checksums
	Watermark uint64 `json:"watermark"` // raft index known to be durable; a log that ends before it is damaged
	Wal       types.PersistentState
	Stable    map[string][]byte `json:"stable"`
}

// metaStore implements raft-wal's types.MetaStore.
type metaStore struct {
	fs  FS
	dir string
	log *slog.Logger

	mu         sync.Mutex
	state      metaState
	generation uint64
	files      [2]File
	secondDue  bool // file 1 has been written but not synced
	existed    bool // Load found the store of an earlier run
	// onFail decides what to do when an update fails: it may wait for room and return nil to
	// try again.
	onFail func(error) error
	note   func(error) error // remembers an error that raft-wal will not pass on
}

func metaPath(dir string, i int) string { return filepath.Join(dir, fmt.Sprintf("meta.%d", i)) }

// openMeta loads or creates the store. fresh says whether the folder may be new: when it
// already holds segments or snapshots, missing metadata are damage, not a new log.
func openMeta(fs FS, dir string, fresh bool, salt uint32, logger *slog.Logger) (*metaStore, error) {
	meta := &metaStore{fs: fs, dir: dir, log: logger, onFail: func(err error) error { return err },
		note: func(err error) error { return err }}
	var found [2]*metaState
	var gens [2]uint64
	for i := range found {
		state, gen, err := meta.readSlot(i)
		if errors.Is(err, ErrNewerVersion) {
			return nil, err
		}
		if err == nil {
			found[i], gens[i] = state, gen
			continue
		}
		if !errors.Is(err, os.ErrNotExist) && !errors.Is(err, ErrCorrupt) {
			return nil, err
		}
		if !fresh {
			logger.Warn(
				"one copy of the log's metadata is unusable",
				"file",
				metaPath(dir, i),
				"error",
				err,
			)
		}
	}
	best := 0
	if found[1] != nil && (found[0] == nil || gens[1] > gens[0]) {
		best = 1
	}
	switch {
	case found[best] != nil:
		meta.state = *found[best]
		meta.generation = gens[best]
		meta.existed = true
	case fresh:
		meta.state = metaState{Salt: salt}
	default:
		return nil, corruptError(
			metaPath(dir, 0),
			0,
			cureSegment,
			"neither it nor %s can be read",
			metaPath(dir, 1),
		)
	}
	if meta.state.Stable == nil {
		meta.state.Stable = map[string][]byte{}
	}
	if err := meta.openFiles(); err != nil {
		return nil, err
	}
	// Writing the state out again makes both copies whole and equal.
	return meta, meta.updateState(func(*metaState) {})
}

func (m *metaStore) openFiles() error {
	created := false
	for i := range m.files {
		file, err := m.fs.Open(metaPath(m.dir, i), true)
		if errors.Is(err, os.ErrNotExist) {
			created = true
			file, err = m.fs.Create(metaPath(m.dir, i), metaSize)
		}
		if err != nil {
			return fmt.Errorf("open the log's metadata: %w", err)
		}
		m.files[i] = file
	}
	if created {
		return m.fs.SyncDir(m.dir)
	}
	return nil
}

func (m *metaStore) readSlot(i int) (*metaState, uint64, error) {
	path := metaPath(m.dir, i)
	data, err := readAll(m.fs, path, metaSize)
	if err != nil {
		return nil, 0, err
	}
	if len(data) < metaHeader || string(data[:8]) != metaMagic {
		return nil, 0, corruptError(path, 0, cureSegment, "not a metadata file")
	}
	if v := binary.LittleEndian.Uint32(data[8:]); v > metaVersion {
		return nil, 0, newerError(path, int(v), metaVersion)
	}
	n := binary.LittleEndian.Uint32(data[12:])
	if int(n) > len(data)-metaHeader {
		return nil, 0, corruptError(path, 12, cureSegment, "length %d is beyond the file", n)
	}
	body := data[metaHeader : metaHeader+n]
	if sum := metaSum(data[:24], body); sum != binary.LittleEndian.Uint32(data[24:]) {
		return nil, 0, corruptError(path, 24, cureSegment, "checksum does not match")
	}
	var state metaState
	if err := json.Unmarshal(body, &state); err != nil {
		return nil, 0, corruptError(path, metaHeader, cureSegment, "cannot be decoded: %v", err)
	}
	return &state, binary.LittleEndian.Uint64(data[16:]), nil
}

func metaSum(header, body []byte) uint32 {
	return durable.ExtendChecksum(durable.Checksum(header), body)
}

// updateState changes the state durably or not at all.
func (m *metaStore) updateState(change func(*metaState)) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := m.state
	next.Stable = make(map[string][]byte, len(m.state.Stable)+1)
	for k, v := range m.state.Stable {
		next.Stable[k] = v
	}
	change(&next)
	for {
		err := m.writeSlot(next)
		if err == nil {
			m.state = next
			return nil
		}
		err = m.onFail(err)
		if err != nil {
			return m.note(fmt.Errorf("write the log's metadata in %s: %w", m.dir, err))
		}
	}
}

func (m *metaStore) writeSlot(next metaState) error {
	body, err := json.Marshal(next)
	if err != nil {
		return err
	}
	if len(body) > metaSize-metaHeader {
		return fmt.Errorf(
			"metadata of %d bytes exceed %d: too many segments wait for a snapshot",
			len(body),
			metaSize-metaHeader,
		)
	}
	data := make([]byte, metaHeader+len(body))
	copy(data, metaMagic)
	binary.LittleEndian.PutUint32(data[8:], metaVersion)
	binary.LittleEndian.PutUint32(data[12:], uint32(len(body)))
	binary.LittleEndian.PutUint64(data[16:], m.generation+1)
	copy(data[metaHeader:], body)
	binary.LittleEndian.PutUint32(data[24:], metaSum(data[:24], body))
	if m.secondDue {
		if err := m.files[1].Sync(); err != nil {
			return err
		}
		m.secondDue = false
	}
	if _, err := m.files[0].WriteAt(data, 0); err != nil {
		return err
	}
	if err := m.files[0].Sync(); err != nil {
		return err
	}
	m.generation++
	m.secondDue = true
	_, err = m.files[1].WriteAt(data, 0)
	return err
}

// Load returns raft-wal's part of the state.
func (m *metaStore) Load(string) (types.PersistentState, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state.Wal, nil
}

// CommitState replaces raft-wal's part of the state.
func (m *metaStore) CommitState(s types.PersistentState) error {
	return m.updateState(func(st *metaState) { st.Wal = s })
}

// GetStable returns a copy of a stable value, nil when it was never set.
func (m *metaStore) GetStable(key []byte) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	v, ok := m.state.Stable[string(key)]
	if !ok {
		return nil, nil
	}
	return append([]byte{}, v...), nil
}

// SetStable stores a value durably; nil deletes it.
func (m *metaStore) SetStable(key, value []byte) error {
	return m.updateState(func(state *metaState) {
		if value == nil {
			delete(state.Stable, string(key))
			return
		}
		state.Stable[string(key)] = append([]byte{}, value...)
	})
}

func (m *metaStore) currentState() metaState {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

func (m *metaStore) setNote(note func(error) error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.note = note
}

func (m *metaStore) setWatermark(index uint64) error {
	if m.currentState().Watermark == index {
		return nil
	}
	return m.updateState(func(st *metaState) { st.Watermark = index })
}

// Close is called by nobody but shut: raft-wal does not own the store, because the log reopens
// raft-wal over it.
func (m *metaStore) Close() error { return nil }

func (m *metaStore) closeFiles() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	var errs []error
	if m.secondDue {
		errs = append(errs, m.files[1].Sync())
	}
	for _, f := range m.files {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}
