package log

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	wsegment "github.com/hashicorp/raft-wal/segment"
	"github.com/hashicorp/raft-wal/types"
)

// openVerified verifies and repairs what is on disk and starts raft-wal over it. keep is the
// last entry to keep, keepAll at the first open. The caller holds op.
func (s *logStore) openVerified(keep uint64) error {
	table, err := s.verifyEntries(keep)
	if err != nil {
		return err
	}
	vfs := &walFS{fs: s.fs, spare: s.spare}
	s.meta.setNote(vfs.noteError)
	w, err := wal.Open(
		s.dir,
		wal.WithMetaStore(s.meta),
		wal.WithSegmentFiler(wsegment.NewFiler(s.dir, vfs)),
		wal.WithSegmentSize(s.segBytes),
		wal.WithLogger(newHCLog(s.log)),
	)
	if err != nil {
		if errors.Is(err, types.ErrCorrupt) {
			return corruptError(s.dir, 0, cureSegment, "%v", err)
		}
		return fmt.Errorf("open the log's segments in %s: %w", s.dir, err)
	}
	last, err := w.LastIndex()
	if err == nil && last < s.meta.currentState().Watermark {
		err = corruptError(
			s.dir,
			0,
			cureSegment,
			"the log ends at entry %d but entry %d was acknowledged",
			last,
			s.meta.currentState().Watermark,
		)
	}
	if err != nil {
		return errors.Join(err, w.Close())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.wal != nil {
		err = s.wal.Close()
	}
	s.wal, s.table = w, table
	s.vfs = vfs
	s.last = last
	s.broken = nil
	s.tries = 0
	return err
}

func (s *logStore) verifyEntries(keep uint64) ([]*segment, error) {
	st := s.meta.currentState().Wal
	var table []*segment
	for i, si := range st.Segments {
		sealed := !si.SealTime.IsZero()
		if i+1 < len(st.Segments) && (!sealed || si.MaxIndex+1 != st.Segments[i+1].BaseIndex) {
			return nil, corruptError(
				metaPath(s.dir, 0),
				0,
				cureSegment,
				"entries between segments %d and %d are missing",
				si.BaseIndex,
				st.Segments[i+1].BaseIndex,
			)
		}
		var seg *segment
		var err error
		switch {
		case sealed && si.MaxIndex <= s.skip && si.IndexStart > 0:
			err = s.checkPresent(si)
		case sealed:
			seg, err = s.verifySealed(si)
		default:
			seg, err = s.repairTail(si, keep)
		}
		if err != nil {
			return nil, err
		}
		if seg != nil {
			table = append(table, seg)
		}
	}
	return table, nil
}

func (s *logStore) segmentPath(si types.SegmentInfo) string {
	return filepath.Join(s.dir, segmentName(si.BaseIndex, si.ID))
}

// checkPresent checks only that a segment behind the snapshot is there: it is read when a
// member lags, or when the snapshot has to be given up.
func (s *logStore) checkPresent(si types.SegmentInfo) error {
	ok, err := fileExists(s.fs, s.segmentPath(si))
	if err == nil && !ok {
		err = s.missingSegment(si)
	}
	return err
}

func (s *logStore) missingSegment(si types.SegmentInfo) error {
	return corruptError(
		s.segmentPath(si),
		0,
		cureSegment,
		"the file with entries %d to %d is missing",
		si.BaseIndex,
		si.MaxIndex,
	)
}

func (s *logStore) verifySealed(si types.SegmentInfo) (*segment, error) {
	path := s.segmentPath(si)
	file, err := s.fs.Open(path, false)
	if errors.Is(err, os.ErrNotExist) {
		return nil, s.missingSegment(si)
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	seg, err := scanSegment(file, path, si, s.check)
	if err != nil {
		return nil, err
	}
	if seg.lastIndex() < si.MaxIndex {
		return nil, corruptError(
			path,
			seg.bad,
			cureSegment,
			"%s; entries %d to %d cannot be read",
			seg.describeSegment(),
			seg.lastIndex()+1,
			si.MaxIndex,
		)
	}
	seg.offsets = seg.offsets[:si.MaxIndex-si.BaseIndex+1]
	return seg, nil
}

// repairTail cuts off what an interrupted write left and, if the crash came between the sealing
// of the segment and the note of it in the metadata, makes that note: raft-wal would take no
// further entry otherwise.
func (s *logStore) repairTail(si types.SegmentInfo, keep uint64) (*segment, error) {
	path := s.segmentPath(si)
	file, err := s.fs.Open(path, true)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // it was never written to; raft-wal creates it
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	seg, err := scanSegment(file, path, si, s.check)
	if err != nil {
		return nil, err
	}
	end, err := seg.findTornEnd(file, s.check)
	if err != nil {
		return nil, err
	}
	if n := end - seg.bad; n > 0 {
		s.dropped.Add(uint64(n))
		s.log.Warn(
			"removed the remains of an interrupted write from the log",
			"file",
			path,
			"offset",
			seg.bad,
			"bytes",
			n,
			"reason",
			seg.describeSegment(),
		)
	}
	if err := seg.cutAfter(file, end, keep); err != nil {
		return nil, err
	}
	if err := s.fs.SyncDir(s.dir); err != nil {
		return nil, err
	}
	if seg.index > 0 {
		err = s.meta.updateState(
			func(st *metaState) { st.Wal = rotatedSegments(st.Wal, seg, s.segBytes) },
		)
	}
	return seg, err
}

// rotatedSegments returns the list of segments after seg, its last one, was sealed.
func rotatedSegments(st types.PersistentState, seg *segment, segBytes int) types.PersistentState {
	segs := append([]types.SegmentInfo{}, st.Segments...)
	tail := &segs[len(segs)-1]
	tail.SealTime = time.Now()
	tail.MaxIndex = seg.lastIndex()
	tail.IndexStart = uint64(seg.index)
	next := tail.MaxIndex + 1
	segs = append(
		segs,
		types.SegmentInfo{
			ID:         st.NextSegmentID,
			BaseIndex:  next,
			MinIndex:   next,
			SizeLimit:  uint32(segBytes),
			Codec:      wal.CodecBinaryV1,
			CreateTime: time.Now(),
		},
	)
	return types.PersistentState{NextSegmentID: st.NextSegmentID + 1, Segments: segs}
}

// check is what every entry on disk must satisfy.
func (s *logStore) check(index uint64, data []byte) error {
	var entry raft.Log
	if err := decodeEntry(data, &entry, s.salt); err != nil {
		return err
	}
	if entry.Index != index {
		return fmt.Errorf("%w: entry says it is %d", ErrCorrupt, entry.Index)
	}
	if entry.Type == raft.LogCommand {
		f, err := decodeFrame(entry.Data)
		if err == nil && f.kind == kindBatch && s.visit != nil {
			s.visit(f.payload)
		}
		return err
	}
	return nil
}
