package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"

	"github.com/musterhpc/muster/internal/durable"
)

// Iterator walks the history forwards. It may be used by one goroutine at a time and needs no
// closing.
type Iterator struct {
	a     *Archive
	next  uint64 // position of the next record
	chunk []byte // whole records, beginning with next
	salt  uint32
}

// ReadFrom returns an iterator that begins with the batch at position. position may lie just behind
// the end, for Follow.
func (a *Archive) ReadFrom(position uint64) *Iterator {
	return &Iterator{a: a, next: max(position, 1)}
}

// Reader returns an iterator that begins with the batch that holds the event fromSeq, or behind
// the end if that is still to come.
func (a *Archive) Reader(fromSeq uint64) (*Iterator, error) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	i := sort.Search(len(a.segs), func(i int) bool { return a.segs[i].lastSeq >= fromSeq })
	if i == len(a.segs) {
		_, last := a.positionBounds()
		return a.ReadFrom(last + 1), nil
	}
	segment := a.segs[i]
	if i == 0 && fromSeq < segment.firstSeq {
		return nil, fmt.Errorf("%w: events before %d", ErrDropped, segment.firstSeq)
	}
	if !segment.sealed {
		j := sort.Search(
			len(segment.lasts),
			func(j int) bool { return segment.lasts[j] >= fromSeq },
		)
		return a.ReadFrom(segment.first + uint64(j)), nil
	}
	j := sort.Search(
		len(segment.blocks),
		func(j int) bool { return segment.blocks[j].lastSeq >= fromSeq },
	)
	iterator := a.ReadFrom(segment.blocks[j].firstPos)
	body, err := a.unpackBlock(segment, segment.blocks[j])
	if err != nil {
		return nil, err
	}
	iterator.chunk, iterator.salt = body, segment.salt
	for {
		record, n, err := readRecord(iterator.chunk, iterator.salt)
		if err != nil {
			return nil, corruptError(
				segment.path,
				segment.blocks[j].off,
				cureSegment,
				"block of batch %d: %v",
				segment.blocks[j].firstPos,
				err,
			)
		}
		if record.LastSeq >= fromSeq {
			return iterator, nil
		}
		iterator.chunk, iterator.next = iterator.chunk[n:], iterator.next+1
	}
}

// Next returns the next record, or io.EOF at the present end; it may be called again later.
func (it *Iterator) Next() (Record, error) {
	if len(it.chunk) == 0 {
		if err := it.loadRecords(); err != nil {
			return Record{}, err
		}
	}
	record, n, err := readRecord(it.chunk, it.salt)
	if err == nil && record.Pos != it.next {
		err = fmt.Errorf("it holds batch %d", record.Pos)
	}
	if err != nil {
		return Record{}, corruptError(
			it.a.segDir(),
			0,
			cureSegment,
			"record of batch %d: %v",
			it.next,
			err,
		)
	}
	it.chunk, it.next = it.chunk[n:], it.next+1
	return record, nil
}

// Follow is Next, but waits at the end for more. It returns the context's error, or ErrClosed.
func (it *Iterator) Follow(ctx context.Context) (Record, error) {
	for {
		it.a.mu.RLock()
		grown, closed := it.a.grown, it.a.closed
		it.a.mu.RUnlock()
		record, err := it.Next()
		if !errors.Is(err, io.EOF) {
			return record, err
		}
		if closed {
			return Record{}, ErrClosed
		}
		select {
		case <-grown:
		case <-ctx.Done():
			return Record{}, context.Cause(ctx)
		}
	}
}

// loadRecords fetches records from it.next on.
func (it *Iterator) loadRecords() error {
	for {
		chunk, salt, err := it.a.readChunk(it.next)
		if errors.Is(err, os.ErrNotExist) {
			// The segment has just been sealed or dropped; look again where the records are
			// now. If they are nowhere, the file is missing.
			if !it.a.segmentMoved(it.next) {
				return err
			}
			continue
		}
		it.chunk, it.salt = chunk, salt
		return err
	}
}

// segmentMoved reports whether the segment that holds position exists as a file, or is known to be
// gone.
func (a *Archive) segmentMoved(position uint64) bool {
	a.mu.RLock()
	defer a.mu.RUnlock()
	segment := a.findSegment(position)
	if segment == nil {
		return true
	}
	_, err := os.Stat(segment.path)
	return err == nil
}

// readChunk returns whole records beginning with position, about a block of them.
func (a *Archive) readChunk(position uint64) ([]byte, uint32, error) {
	a.mu.RLock()
	first, last := a.positionBounds()
	segment := a.findSegment(position)
	var from, to, written int64
	if segment != nil && !segment.sealed {
		from, to = segment.byteSpan(position)
		written = segment.size
		if a.segs[len(a.segs)-1] == segment && a.file != nil {
			written = a.written
		}
	}
	closed := a.closed
	a.mu.RUnlock()
	switch {
	case closed:
		return nil, 0, ErrClosed
	case position > last:
		return nil, 0, io.EOF
	case position < first || segment == nil:
		return nil, 0, fmt.Errorf("%w: batches before %d", ErrDropped, first)
	case segment.sealed:
		i := sort.Search(len(segment.blocks), func(i int) bool {
			return segment.blocks[i].firstPos > position
		}) - 1
		body, err := a.unpackBlock(segment, segment.blocks[i])
		if err != nil {
			return nil, 0, err
		}
		return skip(body, segment, segment.blocks[i], position)
	case to > written:
		a.mu.Lock()
		err := a.flushBuffer()
		a.mu.Unlock()
		if err != nil {
			return nil, 0, err
		}
	}
	file, err := os.Open(segment.path)
	if err != nil {
		return nil, 0, err
	}
	defer file.Close()
	body := make([]byte, to-from)
	if _, err := file.ReadAt(body, from); err != nil {
		return nil, 0, corruptError(segment.path, from, cureSegment, "cannot be read: %v", err)
	}
	return body, segment.salt, nil
}

// byteSpan returns the bytes of a live segment that hold about a block of records from position on.
// The caller holds mu.
func (s *segment) byteSpan(position uint64) (from, to int64) {
	i := int(position - s.first)
	from, to = s.offsets[i], s.size
	j := i + sort.Search(
		len(s.offsets)-i,
		func(k int) bool { return s.offsets[i+k] >= from+blockBytes },
	)
	if j < len(s.offsets) {
		to = s.offsets[j]
	}
	return from, to
}

func skip(body []byte, s *segment, k block, position uint64) ([]byte, uint32, error) {
	for p := k.firstPos; p < position; p++ {
		_, n, err := readRecord(body, s.salt)
		if err != nil {
			return nil, 0, corruptError(
				s.path,
				k.off,
				cureSegment,
				"block of batch %d: %v",
				k.firstPos,
				err,
			)
		}
		body = body[n:]
	}
	return body, s.salt, nil
}

// unpackBlock reads and checks one block of a sealed segment.
func (a *Archive) unpackBlock(s *segment, k block) ([]byte, error) {
	file, err := os.Open(s.path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	packed := make([]byte, k.packed)
	if _, err := file.ReadAt(packed, k.off); err != nil {
		return nil, corruptError(s.path, k.off, cureSegment, "cannot be read: %v", err)
	}
	if durable.Checksum(packed) != k.sum {
		return nil, corruptError(
			s.path,
			k.off,
			cureSegment,
			"checksum of the block that begins with batch %d does not match",
			k.firstPos,
		)
	}
	body, err := a.dec.DecodeAll(packed, make([]byte, 0, k.size))
	if err != nil || len(body) != int(k.size) {
		return nil, corruptError(
			s.path,
			k.off,
			cureSegment,
			"the block that begins with batch %d unpacks to %d bytes: %v",
			k.firstPos,
			len(body),
			err,
		)
	}
	return body, nil
}
