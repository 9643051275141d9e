package archive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/musterhpc/muster/internal/durable"
)

// loadSegments finds the segments, checks that they follow each other, and prepares the live one.
func (a *Archive) loadSegments() error {
	entries, err := os.ReadDir(a.segDir())
	if err != nil {
		return err
	}
	var sealed, live []uint64
	for _, e := range entries {
		name := e.Name()
		var first uint64
		if strings.HasSuffix(name, durable.TempSuffix) {
			if err := os.Remove(filepath.Join(a.segDir(), name)); err != nil {
				return err
			}
			continue
		}
		if _, err := fmt.Sscanf(name, "%020d.", &first); err != nil {
			return corruptError(
				filepath.Join(a.segDir(), name),
				0,
				"move it away if it is not Muster's",
				"the name is not that of a segment",
			)
		}
		if strings.HasSuffix(name, ".seg") {
			sealed = append(sealed, first)
		} else if strings.HasSuffix(name, ".live") {
			live = append(live, first)
		}
	}
	for _, first := range sealed {
		segment, err := readSealed(sealedPath(a.segDir(), first), first)
		if err != nil {
			return err
		}
		a.segs = append(a.segs, segment)
	}
	for len(live) > 0 {
		empty, err := a.dropEmpty(live[len(live)-1])
		if err != nil {
			return err
		}
		if !empty {
			break
		}
		live = live[:len(live)-1]
	}
	for i, first := range live {
		if err := a.loadLive(first, i == len(live)-1); err != nil {
			return err
		}
	}
	if n := len(a.segs); n > 0 {
		a.synced = a.segs[n-1].last
	}
	return a.checkContiguous()
}

// dropEmpty removes the newest live segment if it holds no whole record.
func (a *Archive) dropEmpty(first uint64) (bool, error) {
	path := livePath(a.segDir(), first)
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return false, err
	}
	defer file.Close()
	if salt, err := readFileHeader(path, magicLive, file, first); err == nil {
		var head [recordHeader]byte
		if _, err := file.ReadAt(head[:], fileHeader); err == nil {
			record := make([]byte, recordHeader+int64(min(le32(head[4:]), maxBatch)))
			n, _ := file.ReadAt(record, fileHeader)
			if _, _, err := readRecord(record[:n], salt); err == nil {
				return false, nil
			}
		}
	}
	segment, err := a.scanLive(path, file, first, true)
	if err != nil || segment != nil && len(segment.offsets) > 0 {
		return false, err
	}
	return true, os.Remove(path)
}

func (a *Archive) loadLive(first uint64, newest bool) error {
	path := livePath(a.segDir(), first)
	if n := len(a.segs); n > 0 && a.segs[n-1].last >= first {
		if a.findSegment(first) == nil || !a.findSegment(first).sealed ||
			a.findSegment(first).first != first {
			return corruptError(
				path,
				0,
				cureSegment,
				"the segment before it reaches to batch %d",
				a.segs[n-1].last,
			)
		}
		// The crash came between sealing it and removing it.
		return os.Remove(path)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	segment, err := a.scanLive(path, file, first, newest)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	a.segs = append(a.segs, segment)
	if !newest {
		return file.Close()
	}
	a.file, a.written = file, segment.size
	return a.syncLocked()
}

// scanLive reads a live segment and cuts off its torn tail, which only the newest may have.
func (a *Archive) scanLive(
	path string, file *os.File, first uint64, newest bool,
) (*segment, error) {
	data, err := io.ReadAll(file)
	if err != nil {
		return nil, err
	}
	salt, err := readFileHeader(path, magicLive, file, first)
	if err != nil {
		if newest && (len(data) < fileHeader || len(strings.Trim(string(data), "\x00")) == 0) {
			return nil, nil // it never got its header
		}
		return nil, err
	}
	s := &segment{path: path, salt: salt, size: fileHeader, first: first, last: first - 1}
	for int(s.size) < len(data) {
		record, n, err := readRecord(data[s.size:], salt)
		if err != nil {
			return s, a.cutTail(s, file, data, newest, err)
		}
		if record.Pos != s.last+1 || len(s.offsets) > 0 && record.FirstSeq != s.lastSeq+1 {
			return nil, corruptError(
				path,
				s.size,
				cureSegment,
				"batch %d with event %d follows batch %d with event %d",
				record.Pos,
				record.FirstSeq,
				s.last,
				s.lastSeq,
			)
		}
		if len(s.offsets) == 0 {
			s.firstSeq = record.FirstSeq
		}
		s.offsets, s.lasts = append(s.offsets, s.size), append(s.lasts, record.LastSeq)
		s.size += int64(n)
		s.last = record.Pos
		s.lastSeq = record.LastSeq
		s.at = record.At
	}
	return s, nil
}

// cutTail removes the incomplete record at s.size, unless whole records follow it: then it is
// damage.
func (a *Archive) cutTail(s *segment, file *os.File, data []byte, newest bool, cause error) error {
	if !newest {
		return corruptError(s.path, s.size, cureSegment, "%v, and another segment follows", cause)
	}
	if at := nextRecord(data, int(s.size)+1, s.salt, s.last); at >= 0 {
		return corruptError(
			s.path,
			s.size,
			cureSegment,
			"%v, and batch %d follows whole at %d",
			cause,
			le64(data[at+8:]),
			at,
		)
	}
	a.opts.Logger.Warn(
		"removed an incomplete record from the end of the archive; the log brings it again",
		"file",
		s.path,
		"offset",
		s.size,
		"bytes",
		int64(len(data))-s.size,
		"reason",
		cause,
	)
	if err := file.Truncate(s.size); err != nil {
		return err
	}
	return file.Sync()
}

func le64(data []byte) uint64 { return binary.LittleEndian.Uint64(data) }
func le32(data []byte) uint32 { return binary.LittleEndian.Uint32(data) }

// checkContiguous checks that no segment is missing.
func (a *Archive) checkContiguous() error {
	for i := 1; i < len(a.segs); i++ {
		p, segment := a.segs[i-1], a.segs[i]
		if segment.first != p.last+1 || segment.firstSeq != p.lastSeq+1 {
			return corruptError(
				segment.path,
				0,
				cureSegment,
				"it begins with batch %d and event %d, the one before ends with %d and %d: a segment is missing",
				segment.first,
				segment.firstSeq,
				p.last,
				p.lastSeq,
			)
		}
	}
	return nil
}
