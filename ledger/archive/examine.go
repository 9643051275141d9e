package archive

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/musterhpc/muster/internal/durable"
)

// Examine reads a whole archive without changing it, goes on behind each damage
// and hands it on. Unlike Verify it needs no open archive, so that it also works
// where Open refuses. done, which is called last, gets what could be read.
func Examine(dir string, damage func(error), done func(Report)) (bad int, err error) {
	decoder, err := zstd.NewReader(
		nil,
		zstd.WithDecoderConcurrency(1),
		zstd.WithDecoderMaxMemory(256<<20),
	)
	if err != nil {
		return 0, err
	}
	defer decoder.Close()
	x := &examiner{a: &Archive{dir: dir, dec: decoder}, damage: func(err error) {
		bad++
		damage(err)
	}}
	if err := x.examineSegments(); err != nil {
		return bad, err
	}
	if err := x.examineSnapshots(); err != nil {
		return bad, err
	}
	done(x.rep)
	return bad, nil
}

// examineSegments reads the segments in their order.
func (x *examiner) examineSegments() error {
	names, err := os.ReadDir(x.a.segDir())
	if err != nil {
		return err
	}
	type file struct {
		first  uint64
		sealed bool
	}
	var files []file
	for _, entry := range names {
		var first uint64
		if strings.HasSuffix(entry.Name(), durable.TempSuffix) {
			continue
		}
		if _, err := fmt.Sscanf(entry.Name(), "%020d.", &first); err != nil {
			x.damage(
				corruptError(
					filepath.Join(x.a.segDir(), entry.Name()),
					0,
					"move it away if it is not Muster's",
					"the name is not that of a segment",
				),
			)
			continue
		}
		files = append(files, file{first, strings.HasSuffix(entry.Name(), ".seg")})
	}
	// Of two files of one segment the sealed one counts, as for Open.
	slices.SortFunc(files, func(p, q file) int {
		if p.first != q.first || p.sealed == q.sealed {
			return cmp.Compare(p.first, q.first)
		}
		if p.sealed {
			return -1
		}
		return 1
	})
	for i, f := range files {
		if i > 0 && files[i-1].first == f.first {
			continue // sealed, and the live one was not removed yet
		}
		if f.sealed {
			x.sealed(f.first)
		} else {
			x.examineLive(f.first, i == len(files)-1)
		}
	}
	return nil
}

// examiner collects what can be read.
type examiner struct {
	a      *Archive
	damage func(error)
	rep    Report
	torn   bool                                        // the record before was damaged: a gap is known
	visit  func(path string, off int64, record Record) // may be nil
}

// takeRecord takes the next record that can be read.
func (x *examiner) takeRecord(path string, off int64, record Record) {
	switch {
	case x.rep.Records == 0:
		x.rep.FirstPos, x.rep.FirstSeq = record.Pos, record.FirstSeq
	case !x.torn && (record.Pos != x.rep.LastPos+1 || record.FirstSeq != x.rep.LastSeq+1):
		x.damage(
			corruptError(
				path,
				off,
				cureSegment,
				"batch %d with event %d follows batch %d with event %d",
				record.Pos,
				record.FirstSeq,
				x.rep.LastPos,
				x.rep.LastSeq,
			),
		)
	}
	x.torn = false
	x.rep.Records++
	x.rep.Bytes += uint64(len(record.Batch))
	x.rep.LastPos, x.rep.LastSeq = record.Pos, record.LastSeq
	if x.visit != nil {
		x.visit(path, off, record)
	}
}

// noteGap notes damage behind which there is a gap.
func (x *examiner) noteGap(err error) {
	x.damage(err)
	x.torn = true
}

func (x *examiner) sealed(first uint64) {
	path := sealedPath(x.a.segDir(), first)
	segment, err := readSealed(path, first)
	if err != nil {
		x.noteGap(err)
		return
	}
	for _, k := range segment.blocks {
		body, err := x.a.unpackBlock(segment, k)
		for err == nil && len(body) > 0 {
			record, n, bad := readRecord(body, segment.salt)
			if bad != nil {
				err = corruptError(
					path,
					k.off,
					cureSegment,
					"the block that begins with batch %d: %v",
					k.firstPos,
					bad,
				)
				break
			}
			x.takeRecord(path, k.off, record)
			body = body[n:]
		}
		if err != nil {
			x.noteGap(err)
		}
	}
}

func (x *examiner) examineLive(first uint64, newest bool) {
	path := livePath(x.a.segDir(), first)
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		x.sealed(first) // a running controller has sealed it meanwhile
		return
	}
	if err != nil {
		x.noteGap(err)
		return
	}
	file, err := os.Open(path)
	if err != nil {
		x.noteGap(err)
		return
	}
	defer file.Close()
	salt, err := readFileHeader(path, magicLive, file, first)
	if err != nil {
		if newest && (len(data) < fileHeader || len(strings.Trim(string(data), "\x00")) == 0) {
			return // it never got its header
		}
		x.noteGap(err)
		return
	}
	for at := fileHeader; at < len(data); {
		record, n, err := readRecord(data[at:], salt)
		if err == nil {
			x.takeRecord(path, int64(at), record)
			at += n
			continue
		}
		next := nextRecord(data, at+1, salt, x.rep.LastPos)
		if next < 0 && newest {
			return // the remains of an interrupted write, which the log brings again
		}
		if next < 0 {
			x.noteGap(
				corruptError(path, int64(at), cureSegment, "%v, and another segment follows", err),
			)
			return
		}
		x.noteGap(
			corruptError(
				path,
				int64(at),
				cureSegment,
				"%v, behind batch %d with event %d",
				err,
				x.rep.LastPos,
				x.rep.LastSeq,
			),
		)
		at = next
	}
}

// nextRecord looks for a whole record from an offset on that can follow a
// position; -1 = there is none.
func nextRecord(data []byte, from int, salt uint32, last uint64) int {
	for at := from; at+recordHeader <= len(data); at++ {
		// Positions are dense, so this test alone rules out almost every offset.
		if ahead := le64(data[at+8:]) - last; ahead == 0 || ahead > 1<<24 {
			continue
		}
		if _, _, err := readRecord(data[at:], salt); err == nil {
			return at
		}
	}
	return -1
}

func (x *examiner) examineSnapshots() error {
	names, err := os.ReadDir(x.a.snapDir())
	if err != nil {
		return err
	}
	for _, entry := range names {
		if !strings.HasSuffix(entry.Name(), ".snap") {
			continue
		}
		f, info, err := openSnapshot(filepath.Join(x.a.snapDir(), entry.Name()))
		if err == nil {
			err = f.Close()
		}
		if err == nil {
			err = x.a.readThrough(info)
		}
		if err != nil {
			x.damage(err)
			continue
		}
		x.rep.Snapshots++
	}
	return nil
}
