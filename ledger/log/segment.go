package log

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"path/filepath"

	"github.com/hashicorp/raft-wal/types"

	"github.com/musterhpc/muster/internal/durable"
)

// raft-wal's segment format, as far as it is needed to verify and repair one: a header of 32
// bytes (magic, version, first index, id, codec), then frames of 8-byte headers with payloads
// padded to 8 bytes. A commit frame ends each group and holds the CRC32C of everything since
// the one before. raft-wal itself checks only the last group when it opens a segment and takes
// the first unreadable frame for the end of the log, which would silently drop what follows a
// damaged one; so the whole file is checked here first.
const (
	segHeader      = 32
	segMagic       = 0x58eb6b0d
	segVersion     = 0
	segFrameHeader = 8
	segMaxEntry    = 64 << 20
	sector         = 512 // a power cut leaves each of these old or new, never mixed

	segEntry  = 1
	segIndex  = 2
	segCommit = 3
)

func segmentName(
	baseIndex, id uint64,
) string {
	return fmt.Sprintf("%020d-%016x.wal", baseIndex, id)
}

// segment is what a scan of one file found.
type segment struct {
	info    types.SegmentInfo
	path    string
	offsets []int64 // of each entry's frame, beginning with info.BaseIndex; only entries of whole groups
	groups  []group
	index   int64 // offset of the index array, 0 when the segment is not sealed
	size    int64
	bad     int64  // offset of the first byte that does not belong to a whole group
	reason  string // why the group at bad is not whole; empty when zeros follow
}

// group is one commit: the bytes [start, end) hold entries up to and including last.
type group struct {
	start, end int64
	last       uint64
}

func (s *segment) lastIndex() uint64 { return s.info.BaseIndex + uint64(len(s.offsets)) - 1 }

// scanSegment reads a segment from its first byte to the end of its last whole group, checking
// every checksum. check is called with each entry. Damage ends the scan without an error: bad
// and reason tell where and what.
func scanSegment(
	file File,
	path string,
	info types.SegmentInfo,
	check func(index uint64, entry []byte) error,
) (*segment, error) {
	size, err := file.Size()
	if err != nil {
		return nil, err
	}
	s := &segment{info: info, path: path, size: size}
	reader := &windowReader{f: file, size: size}
	var entries []int64
	start, at := int64(0), int64(segHeader)
	for {
		head, err := reader.readAt(at, segFrameHeader)
		if err != nil {
			return nil, err
		}
		if len(head) < segFrameHeader || binary.LittleEndian.Uint64(head) == 0 {
			reason := ""
			if at > start+segHeader || (start > 0 && at > start) {
				reason = fmt.Sprintf("a group of entries that begins here has no end at %d", at)
			}
			return s.stopScan(start, reason), nil
		}
		kind, arg, ok := segFrame(head)
		switch {
		case !ok || (kind != segCommit && int64(arg) > size-at-segFrameHeader):
			return s.stopScan(
				start,
				fmt.Sprintf("the frame at %d has an impossible header %x", at, head),
			), nil
		case kind == segCommit:
			whole, err := s.closeGroup(reader, start, at, arg, entries, check)
			if err != nil || !whole {
				return s, err
			}
			entries = entries[:0]
			at += segFrameHeader
			start = at
		default:
			if kind == segEntry {
				entries = append(entries, at)
			} else if s.index == 0 {
				s.index = at + segFrameHeader
			}
			at += segFrameHeader + padded(int64(arg))
		}
	}
}

// stopScan ends the scan at the group that begins at start.
func (s *segment) stopScan(start int64, reason string) *segment {
	s.bad, s.reason = start, reason
	if s.index >= start {
		s.index = 0 // belongs to the group that is not whole
	}
	return s
}

// closeGroup checks the group [start, commit) against the checksum in its commit frame and
// records it.
func (s *segment) closeGroup(
	reader *windowReader,
	start, commit int64,
	sum uint32,
	entries []int64,
	check func(uint64, []byte) error,
) (bool, error) {
	fail := func(format string, args ...any) (bool, error) {
		s.stopScan(start, fmt.Sprintf(format, args...))
		return false, nil
	}
	body, err := reader.readAt(start, commit-start)
	if err != nil {
		return false, err
	}
	if got := durable.Checksum(body); got != sum {
		return fail(
			"checksum of the group is %08x, its commit frame at %d says %08x",
			got,
			commit,
			sum,
		)
	}
	if start == 0 {
		if err := checkSegmentHeader(body, s.info); err != nil {
			return fail("%v", err)
		}
	}
	next := s.info.BaseIndex + uint64(len(s.offsets))
	for i, at := range entries {
		rel := at - start
		n := int64(binary.LittleEndian.Uint32(body[rel+4:]))
		if err := check(next+uint64(i), body[rel+segFrameHeader:rel+segFrameHeader+n]); err != nil {
			if errors.Is(err, ErrNewerVersion) {
				return false, err
			}
			return fail("entry %d at %d: %v", next+uint64(i), at, err)
		}
	}
	s.offsets = append(s.offsets, entries...)
	s.groups = append(
		s.groups,
		group{start: start, end: commit + segFrameHeader, last: s.lastIndex()},
	)
	s.bad = commit + segFrameHeader
	return true, nil
}

func checkSegmentHeader(data []byte, info types.SegmentInfo) error {
	if binary.LittleEndian.Uint64(data) != segMagic|segVersion<<56 {
		return fmt.Errorf("the file header is not one of a segment of version %d", segVersion)
	}
	if base, id := binary.LittleEndian.Uint64(data[8:]),
		binary.LittleEndian.Uint64(data[16:]); base != info.BaseIndex ||
		id != info.ID {
		return fmt.Errorf("the file says it is segment %s", segmentName(base, id))
	}
	return nil
}

func segFrame(head []byte) (kind uint8, arg uint32, ok bool) {
	kind, arg = head[0], binary.LittleEndian.Uint32(head[4:])
	ok = kind >= segEntry && kind <= segCommit && head[1]|head[2]|head[3] == 0 &&
		(kind == segCommit || arg <= segMaxEntry)
	return kind, arg, ok
}

func padded(n int64) int64 { return (n + 7) &^ 7 }

// findTornEnd decides what the bytes from bad to the end of the file are. A power cut or a
// crash during the last write leaves sectors unwritten; nothing in that group was acknowledged,
// and end is where its remains stop. Anything else is damage to a group that may have been
// acknowledged, and the error says so.
func (s *segment) findTornEnd(file File, check func(uint64, []byte) error) (end int64, err error) {
	n := s.size - s.bad
	tail := make([]byte, padded(n))
	if got, err := file.ReadAt(tail[:n], s.bad); err != nil &&
		!(errors.Is(err, io.EOF) && got == int(n)) {
		return 0, fmt.Errorf("read %s: %w", s.path, err)
	}
	last := lastNonZero(tail)
	if last < 0 {
		return s.bad, nil
	}
	tail = tail[:padded(int64(last)+1)]
	if at, ok := s.laterGroup(tail, check); ok {
		return 0, corruptError(
			s.path,
			s.bad,
			cureSegment,
			"%s, and acknowledged entries follow at %d",
			s.describeSegment(),
			s.bad+at,
		)
	}
	if s.isComplete(tail) {
		return 0, corruptError(
			s.path,
			s.bad,
			cureSegment,
			"%s, and no part of it is missing, so it is not the remains of an interrupted write",
			s.describeSegment(),
		)
	}
	return s.bad + int64(len(tail)), nil
}

func (s *segment) describeSegment() string {
	if s.reason == "" {
		return "zeros where a group of entries should begin"
	}
	return s.reason
}

// laterGroup looks for a whole group behind the damaged one: the log is written strictly in
// order with a sync after each group, so its existence proves that the damaged one was once
// whole. Entries carry a salted checksum, so that the text of a job script cannot pass for a
// group.
func (s *segment) laterGroup(tail []byte, check func(uint64, []byte) error) (int64, bool) {
	next := s.info.BaseIndex + uint64(len(s.offsets))
	for at := int64(0); at+segFrameHeader <= int64(len(tail)); at += segFrameHeader {
		if kind, _, ok := segFrame(tail[at:]); !ok || kind != segCommit {
			continue
		}
		if wholeGroup(tail[at+segFrameHeader:], next, check) {
			return at + segFrameHeader, true
		}
	}
	return 0, false
}

// wholeGroup reports whether data begins with a group of at least one valid entry whose index is
// next or later.
func wholeGroup(data []byte, next uint64, check func(uint64, []byte) error) bool {
	at, valid := int64(0), false
	for at+segFrameHeader <= int64(len(data)) {
		kind, arg, ok := segFrame(data[at:])
		if !ok {
			return false
		}
		if kind == segCommit {
			return valid && durable.Checksum(data[:at]) == arg
		}
		end := at + segFrameHeader + int64(arg)
		if end > int64(len(data)) {
			return false
		}
		if kind == segEntry {
			index, n := binary.Uvarint(data[at+segFrameHeader : end])
			if n <= 0 || index < next {
				return false
			}
			if err := check(index, data[at+segFrameHeader:end]); err != nil &&
				!errors.Is(err, ErrNewerVersion) {
				return false
			}
			valid = true
		}
		at += segFrameHeader + padded(int64(arg))
	}
	return false
}

// isComplete reports whether every sector of the last group was written: it ends in a commit
// frame (perhaps with one bit of its type flipped) and no sector of it is all zeros.
func (s *segment) isComplete(tail []byte) bool {
	if len(tail) <= segFrameHeader {
		return false // no group is as short
	}
	head := tail[len(tail)-segFrameHeader:]
	kind := binary.LittleEndian.Uint32(head)
	if kind != segCommit {
		oneBit := bits.OnesCount32(kind^segCommit) == 1
		return oneBit && durable.Checksum(tail[:len(tail)-segFrameHeader]) == binary.LittleEndian.Uint32(head[4:])
	}
	for from := s.bad; from < s.bad+int64(len(tail)); {
		to := min((from/sector+1)*sector, s.bad+int64(len(tail)))
		if lastNonZero(tail[from-s.bad:to-s.bad]) < 0 {
			return false
		}
		from = to
	}
	return true
}

func lastNonZero(data []byte) int {
	var zero [4096]byte
	n := len(data)
	for n >= len(zero) && bytes.Equal(data[n-len(zero):n], zero[:]) {
		n -= len(zero)
	}
	for n--; n >= 0; n-- {
		if data[n] != 0 {
			return n
		}
	}
	return -1
}

// keepAll tells cut to keep every whole group.
const keepAll = ^uint64(0)

// cutAfter removes everything after the whole groups up to and including the entry keep, writes
// the last remaining group again and syncs. Writing it again matters after a failed sync: the
// system may have marked pages clean that never reached the disk.
func (s *segment) cutAfter(file File, end int64, keep uint64) error {
	for len(s.groups) > 0 && s.groups[len(s.groups)-1].last > keep {
		g := s.groups[len(s.groups)-1]
		s.groups = s.groups[:len(s.groups)-1]
		end, s.bad = max(end, g.end), g.start
		if s.index >= g.start {
			s.index = 0
		}
		s.offsets = s.offsets[:0:len(s.offsets)]
		if n := len(s.groups); n > 0 {
			s.offsets = s.offsets[:s.groups[n-1].last-s.info.BaseIndex+1]
		}
	}
	if keep != keepAll && s.lastIndex() < keep {
		return fmt.Errorf(
			"%w: %s ends at entry %d, raft holds %d",
			ErrCorrupt,
			filepath.Base(s.path),
			s.lastIndex(),
			keep,
		)
	}
	if end > s.bad {
		if _, err := file.WriteAt(make([]byte, end-s.bad), s.bad); err != nil {
			return err
		}
	}
	if n := len(s.groups); n > 0 {
		g := s.groups[n-1]
		body := make([]byte, g.end-g.start)
		if _, err := file.ReadAt(body, g.start); err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if _, err := file.WriteAt(body, g.start); err != nil {
			return err
		}
	}
	return file.Sync()
}

// windowReader reads a file front to back in large pieces.
type windowReader struct {
	f    File
	size int64
	from int64
	buf  []byte
}

const windowSize = 1 << 20

// readAt returns n bytes at off, fewer at the end of the file. They stay valid: windows are not
// reused.
func (w *windowReader) readAt(off, n int64) ([]byte, error) {
	if off >= w.from && off+n <= w.from+int64(len(w.buf)) {
		return w.buf[off-w.from : off-w.from+n], nil
	}
	if off >= w.size {
		return nil, nil
	}
	w.buf = make([]byte, min(max(n, windowSize), w.size-off))
	w.from = off
	got, err := w.f.ReadAt(w.buf, off)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	w.buf = w.buf[:got]
	return w.buf[:min(n, int64(len(w.buf)))], nil
}
