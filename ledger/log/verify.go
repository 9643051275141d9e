package log

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
)

// Findings are what Verify has read, and the damage it found.
type Findings struct {
	Segments, Entries, Snapshots int
	Snapshot                     Position // of the newest snapshot that is whole; 0 = none
	Damage                       []error  // each a durable.CorruptError or durable.VersionError, or what the system said of a file
}

// Verify is Read without looking at the batches.
func Verify(dir string) (Findings, error) { return Read(dir, nil) }

// Read reads a whole log without changing it: metadata, every entry of every
// segment, and snapshots. It goes on behind each damage. It fails only where it
// cannot look: with ErrLocked while a process has the log open, and
// os.ErrNotExist where there is no log. each, if not nil, gets every batch that can
// be read, in the order of the log. Some of these were never applied: a batch that
// failed stays in the log, and the one that took its place follows.
func Read(dir string, each func(batch []byte)) (Findings, error) {
	fs := OS()
	walDir := filepath.Join(dir, "raft")
	if ok, err := fileExists(fs, walDir); err != nil || !ok {
		return Findings{}, errors.Join(
			fmt.Errorf("there is no log in %s: %w", dir, os.ErrNotExist),
			err,
		)
	}
	lock, err := fs.Lock(filepath.Join(dir, "LOCK"))
	if err != nil {
		return Findings{}, err
	}
	v := &verifier{fs: fs, dir: dir, walDir: walDir, each: each}
	v.readSnapshots()
	if meta := v.readMeta(); meta != nil {
		v.readSegments(meta)
	}
	return v.found, lock.Close()
}

// verifier collects what is found.
type verifier struct {
	fs          FS
	dir, walDir string
	each        func(batch []byte)
	newest      uint64 // raft index of the newest snapshot
	found       Findings
}

func (v *verifier) damageError(err error) { v.found.Damage = append(v.found.Damage, err) }

// readMeta gives the newest whole copy of the metadata.
func (v *verifier) readMeta() *metaState {
	meta := &metaStore{fs: v.fs, dir: v.walDir}
	var best *metaState
	var newest uint64
	for i := range 2 {
		state, generation, err := meta.readSlot(i)
		if err != nil {
			v.damageError(err)
			continue
		}
		if best == nil || generation > newest {
			best, newest = state, generation
		}
	}
	return best
}

func (v *verifier) readSegments(meta *metaState) {
	store := &logStore{fs: v.fs, dir: v.walDir, salt: meta.Salt, log: slog.New(slog.DiscardHandler)}
	if v.each != nil {
		store.visit = v.each
	}
	last := uint64(0)
	for i, info := range meta.Wal.Segments {
		v.found.Segments++
		if !info.SealTime.IsZero() {
			seg, err := store.verifySealed(info)
			if err != nil {
				v.damageError(err)
				last = info.MaxIndex
				continue
			}
			v.found.Entries += len(seg.offsets)
			last = seg.lastIndex()
			continue
		}
		if i+1 < len(meta.Wal.Segments) {
			v.damageError(
				corruptError(
					metaPath(v.walDir, 0),
					0,
					cureSegment,
					"segment %d is not closed, but others follow",
					info.BaseIndex,
				),
			)
			continue
		}
		path := store.segmentPath(info)
		file, err := v.fs.Open(path, false)
		if errors.Is(err, os.ErrNotExist) {
			continue // it was never written to
		}
		if err != nil {
			v.damageError(err)
			continue
		}
		seg, err := scanSegment(file, path, info, store.check)
		if err == nil {
			v.found.Entries += len(seg.offsets)
			last = seg.lastIndex()
			_, err = seg.findTornEnd(file, store.check)
		}
		if err != nil {
			v.damageError(err)
			last = max(last, meta.Watermark) // said once
		}
		if err := file.Close(); err != nil {
			v.damageError(err)
		}
	}
	last = max(last, v.newest)
	if last < meta.Watermark {
		v.damageError(
			corruptError(
				v.walDir,
				0,
				cureSegment,
				"the log ends at entry %d but entry %d was acknowledged",
				last,
				meta.Watermark,
			),
		)
	}
}

func (v *verifier) readSnapshots() {
	store := &snapStore{
		fs:  v.fs,
		dir: filepath.Join(v.dir, "snapshots"),
		log: slog.New(slog.DiscardHandler),
	}
	names, err := store.listNames()
	if err != nil {
		v.damageError(err)
		return
	}
	for _, name := range names {
		v.found.Snapshots++
		position, index, err := readSnapshot(store, name)
		if err != nil {
			v.damageError(err)
			continue
		}
		v.found.Snapshot, v.newest = max(v.found.Snapshot, position), max(v.newest, index)
	}
}

// readSnapshot reads a snapshot to its end.
func readSnapshot(store *snapStore, name string) (position Position, index uint64, err error) {
	meta, r, err := store.Open(name)
	if err != nil {
		return 0, 0, err
	}
	var head [fsmHeader]byte
	_, err = io.ReadFull(r, head[:])
	if err == nil {
		position, err = snapshotPosition(head[:])
	}
	if err == nil {
		_, err = io.Copy(io.Discard, r)
	}
	return position, meta.Index, errors.Join(err, r.Close())
}
